"""``transcript-store writers``: list the writers of a library's conversations."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from datetime import UTC, datetime

from transcript_store.cli._shared.arguments import add_json, path
from transcript_store.cli._shared.names import libraries, library_at, printable_name
from transcript_store.cli._shared.terminal import Working, one_line, say, say_json
from transcript_store.library import ConversationWriter

DESCRIPTION = """\
List the conversations of a library that are open to write, with the process, its host and the time; on a backend also the
holder's name and the time since its last write. Nothing is locked or claimed. On a backend every conversation is read. A released
one is not listed; a killed writer stays listed until another one takes over.
"""
EPILOG = """\
examples:
  transcript-store writers chats
  transcript-store writers postgresql://keeper@db.example/agents --json | jq -r .host
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "library", metavar="LIBRARY", type=path, nargs="?", help="the library (default: that of `chat`)"
    )
    add_json(parser, "one JSON object a writer")


def run(arguments: Namespace) -> int:
    """Print a line for each writer."""
    (library,) = libraries([arguments.library] if arguments.library else [], on_backends=True)
    with Working("looking for writers"):
        found = library_at(library).writers()
    for writer in found:
        if arguments.json:
            say_json({**asdict(writer), "silent_seconds": _silent_seconds(writer)})
        else:
            say(f"{writer.id}  {one_line(_described(writer))}")
    if not (found or arguments.json):
        say(f"no conversation of {one_line(printable_name(library))} has a writer")
    return 0


def _described(writer: ConversationWriter) -> str:
    by = f"process {writer.pid}" if writer.pid is not None else "a process that did not write its number"
    facts = [f"{writer.name}: {by}" if writer.name else by]
    facts[0] += f" on {writer.host}" if writer.host else ""
    facts.append(f"since {writer.since}" if writer.since else "")
    if (silent := _silent_seconds(writer)) is not None:
        facts.append(f"silent for {silent:,.0f} s")
    facts.append("takes turns" if writer.takes_turns else "")
    return ", ".join(filter(None, facts))


def _silent_seconds(writer: ConversationWriter) -> float | None:
    """The time since its last write, by both clocks."""
    if writer.last_write_at is None:
        return None
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(writer.last_write_at)).total_seconds())
