"""``transcript-store index``: the index that search and list use."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from transcript_store.cli._shared.arguments import add_json, path
from transcript_store.cli._shared.filters import say_not_read
from transcript_store.cli._shared.names import is_backend_address, libraries, library_at, printable_name
from transcript_store.cli._shared.terminal import has_status, many, one_line, say, say_json, size, status
from transcript_store.search import IndexStatus, SearchIndex

DESCRIPTION = """\
Bring the index of a library up to date, however long that takes, and say what it has. It is a file in your cache directory
that `search` and `list` use. It can be thrown away at any time.

After a secret got into a conversation: replace the transcript (or delete the conversation), delete the generation that
had it, then --rebuild. Words of what was deleted stay in the index until then. What a disk keeps of a file that was
deleted is another matter.
"""
EPILOG = """\
examples:
  transcript-store index chats
  transcript-store index chats --status
  transcript-store index --rebuild
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("libraries", metavar="LIBRARY", nargs="*", type=path, help="of which (default: that of `chat`)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--status", action="store_true", help="only say what it has; all of it is read and checked")
    which.add_argument("--rebuild", action="store_true", help="throw it away and build it anew")
    which.add_argument("--purge", action="store_true", help="throw it away; the next search begins a new one")
    add_json(parser, "one JSON object a library")


def run(arguments: Namespace) -> int:
    """Update, rebuild, purge, and say what there is. The exit code is 1 if an index is damaged."""
    worst = 0
    for directory in libraries(arguments.libraries, on_backends=True):
        with SearchIndex(library_at(directory)) if is_backend_address(directory) else SearchIndex(directory) as index:
            if arguments.rebuild or arguments.purge:
                index.purge()
            if not (arguments.status or arguments.purge):
                _update(index)
            found = index.status()
        worst = max(worst, 0 if found.is_intact else 1)
        if arguments.json:
            say_json({"library": printable_name(directory), **asdict(found)})
        else:
            _say(directory, found)
    return worst


def _update(index: SearchIndex) -> None:
    """Bring an index up to date; how far it is stands in the status line."""
    while has_status() and (left := index.update(seconds=0.5)).not_indexed:
        status(f"indexing: {many(left.not_indexed, 'conversation')} to go")
    done = index.update()
    if has_status():
        status("")
    say_not_read(done.not_read, "index")


def _say(directory: str, found: IndexStatus) -> None:
    say(one_line(printable_name(directory)))
    facts = {
        "index": one_line(found.path or "none is kept: its place is locked, or cannot be written"),
        "size": size(found.size_bytes),
        "conversations": f"{found.conversations:,}",
        "messages": f"{found.messages:,}",
        "forgotten": f"{many(found.forgotten, 'message')}, whose words are there until --rebuild"
        if found.forgotten
        else "",
        "not indexed": f"{found.not_indexed:,}" if found.not_indexed else "",
        "damaged": "" if found.is_intact else "it is not what was written; the next search builds it anew",
    }
    for name, fact in facts.items():
        if fact:
            say(f"  {name:<14} {fact}")
