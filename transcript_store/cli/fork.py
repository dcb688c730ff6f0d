"""``transcript-store fork``: copy a conversation, or its beginning, into a new one."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from transcript_store import ConversationLibrary, TranscriptStoreError
from transcript_store.cli._shared.arguments import NAMES, add_conversation_in_two_words, add_json, count
from transcript_store.cli._shared.terminal import Misuse, say, say_json

DESCRIPTION = f"""\
Copy a conversation into a new one beside it, and print the new one's id. Records keep their times; the new conversation
remembers where it parted from the old one. The old one may have a live writer.

{NAMES}"""
EPILOG = """\
examples:
  transcript-store fork chats/today
  transcript-store fork chats/0b8f --through-seq 12
  transcript-store fork chats 0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation_in_two_words(parser)
    parser.add_argument("--through-seq", metavar="N", type=count, help="only the records up to number N")
    add_json(parser, "one JSON object with id and directory")


def run(arguments: Namespace) -> int:
    """Fork the conversation, and print the new one's id."""
    library = ConversationLibrary(os.path.dirname(arguments.directory))
    try:
        fork = library.fork_from(arguments.directory, through_seq=arguments.through_seq)
    except TranscriptStoreError:
        raise  # some of these are ValueErrors too
    except ValueError:
        raise Misuse(f"--through-seq is {arguments.through_seq}, and the conversation has fewer records") from None
    if arguments.json:
        say_json({"id": fork, "directory": f"{library.directory}/{fork}"})
    else:
        say(fork)
    return 0
