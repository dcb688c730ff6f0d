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
Update the index of a library, however long that takes, and print what it has. It is a file in your cache directory
that `search` and `list` use. You can delete it at any time.

If a secret got into a conversation: replace the transcript (or delete the conversation), delete the generation that
had it, then --rebuild. Until then the index keeps words of deleted messages. The disk may still keep the deleted file's bytes.
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
    which.add_argument("--status", action="store_true", help="read and check all of it, and print what it has")
    which.add_argument("--rebuild", action="store_true", help="delete it, and build it again")
    which.add_argument("--purge", action="store_true", help="delete it; the next search builds a new one")
    add_json(parser, "one JSON object a library")


def run(arguments: Namespace) -> int:
    """Update, rebuild or purge the indexes, and print what they have. The exit code is 1 if an index is damaged."""
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
    """Update an index, with progress in the status line."""
    while has_status() and (left := index.update(seconds=0.5)).not_indexed:
        status(f"indexing: {many(left.not_indexed, 'conversation')} to go")
    done = index.update()
    if has_status():
        status("")
    say_not_read(done.not_read, "index")


def _say(directory: str, found: IndexStatus) -> None:
    say(one_line(printable_name(directory)))
    facts = {
        "index": one_line(found.path or "none is kept: its file is locked, or cannot be written"),
        "size": size(found.size_bytes),
        "conversations": f"{found.conversations:,}",
        "messages": f"{found.messages:,}",
        "forgotten": f"{many(found.forgotten, 'message')}, their words stay until --rebuild" if found.forgotten else "",
        "not indexed": f"{found.not_indexed:,}" if found.not_indexed else "",
        "damaged": "" if found.is_intact else "its checksum is wrong; the next search builds it again",
    }
    for name, fact in facts.items():
        if fact:
            say(f"  {name:<14} {fact}")
