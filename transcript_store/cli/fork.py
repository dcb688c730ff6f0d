"""``transcript-store fork``: copy a conversation, or its beginning, into a new one."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from transcript_store import ConversationLibrary, TranscriptStoreError
from transcript_store.cli._shared.arguments import add_json, add_library, count
from transcript_store.cli._shared.terminal import complain, say, say_json

DESCRIPTION = """\
Copy the conversation ID in the directory LIBRARY into a new one beside it, and print the new one's id. Records keep
their times; the new conversation remembers where it parted from the old one. The old one may have a live writer.
"""
EPILOG = """\
examples:
  transcript-store fork chats 0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51
  transcript-store fork chats 0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51 --through-seq 12
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_library(parser)
    parser.add_argument("--through-seq", metavar="N", type=count, help="only the records up to number N")
    add_json(parser, "one JSON object with id and directory")


def run(arguments: Namespace) -> int:
    """Fork, and print the new id."""
    library = ConversationLibrary(arguments.library)
    try:
        fork = library.fork(arguments.id, through_seq=arguments.through_seq)
    except TranscriptStoreError:
        raise
    except ValueError:
        complain(f"--through-seq is {arguments.through_seq}, and the conversation has fewer records")
        return 2
    if arguments.json:
        say_json({"id": fork, "directory": f"{library.directory}/{fork}"})
    else:
        say(fork)
    return 0
