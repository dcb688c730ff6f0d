"""``transcript-store new-key``: a new key for sealed conversations, in a file."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from transcript_store import write_key_file
from transcript_store.cli._shared.arguments import path
from transcript_store.cli._shared.names import none_in
from transcript_store.cli._shared.terminal import complain, one_line, say
from transcript_store.file_names import TRANSCRIPT, absolute_path

DESCRIPTION = """\
Write a new key to FILE, readable by its owner only: 32 random bytes, in hex digits. An existing file is never overwritten.
Sealed data can only be read with its key: keep a copy of the key apart from the conversations.
"""
EPILOG = """\
examples:
  transcript-store new-key ~/.keys/chats         its folder is created if it is missing, for its owner only
  transcript-store record chats/today --key-file ~/.keys/chats
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", type=path, help="the new file; it must not exist")


def run(arguments: Namespace) -> int:
    """Write the key, and print what to do with it."""
    file = absolute_path(arguments.file)
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    write_key_file(file)
    say(f"{one_line(file)}: keep a copy of this key apart; without it, what it seals cannot be read")
    beside = os.path.dirname(file)
    if os.path.lexists(os.path.join(beside, TRANSCRIPT)) or none_in(beside) is None:
        complain(f"{file}: it is next to conversations, so a copy of them includes the key: move it elsewhere")
    return 0
