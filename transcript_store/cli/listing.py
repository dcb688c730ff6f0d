"""``transcript-store list``: list the conversations in a directory."""

from __future__ import annotations

import os
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict

from transcript_store import ConversationSummary, list_conversations
from transcript_store.cli._shared.arguments import add_json, path
from transcript_store.cli._shared.terminal import many, one_line, say, say_json, size, time
from transcript_store.file_names import TRANSCRIPT

DESCRIPTION = """\
List every conversation directly under DIR, whatever its folder is called, the one that changed last first: its folder,
when it changed, how many records it has, its size, provider and model, and its title (the label `title`). Looks at the
metadata and at both ends of each transcript; a conversation that is seen to be damaged is listed as that, and
`transcript-store verify` looks at everything. Nothing is changed and no lock is taken.
"""
EPILOG = """\
examples:
  transcript-store list chats
  transcript-store list chats --json | jq -r 'select(.damage) | .directory'
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("directory", metavar="DIR", type=path, help="the directory that holds the conversations")
    add_json(parser, "one JSON object a conversation")


def run(arguments: Namespace) -> int:
    """Print the list."""
    found = list_conversations(arguments.directory)
    for summary in found:
        if arguments.json:
            say_json(asdict(summary))
        else:
            for line in lines_of_summary(summary):
                say(line)
    if not found and not arguments.json:
        directory = os.path.abspath(arguments.directory)
        what = "there is no conversation directly under it"
        if os.path.exists(os.path.join(directory, TRANSCRIPT)):
            what += f"; it is a conversation itself: transcript-store show {shlex.quote(directory)}"
        say(f"{one_line(directory)}: {one_line(what)}")
    return 0


def lines_of_summary(summary: ConversationSummary) -> Iterator[str]:
    """The lines of a list for one conversation: its facts, and its damage if there is any."""
    name = one_line(os.path.basename(summary.directory))
    if summary.size_bytes is not None:
        model = "/".join(filter(None, (summary.provider, summary.model)))
        facts = (
            f"{time(summary.updated_at):<23}",
            f"{many(summary.record_count or 0, 'record'):>13}",
            f"{size(summary.size_bytes):>8}",
            one_line(model),
            one_line(summary.title or ""),
        )
        name = f"{name}  {'  '.join(fact for fact in facts if fact)}"
    yield name
    if summary.damage is not None:
        yield f"    damaged: {one_line(summary.damage)}"
    elif summary.torn_bytes:
        yield f"    torn tail: {many(summary.torn_bytes, 'byte')} behind the last whole record (or a writer is at work now)"
