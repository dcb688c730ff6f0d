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
Write a new key to FILE, readable by its owner alone: 32 random bytes, in hex digits. Nothing that is there is overwritten. What is
sealed with a key can be read with that key and in no other way: keep a copy of it where the conversations are not.
"""
EPILOG = """\
examples:
  transcript-store new-key ~/.keys/chats         its folder is made if it is missing, for its owner alone
  transcript-store record chats/today --key-file ~/.keys/chats
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", type=path, help="where to; it must not exist")


def run(arguments: Namespace) -> int:
    """Write the key, and say what to do with it."""
    file = absolute_path(arguments.file)
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    write_key_file(file)
    say(f"{one_line(file)}: keep a copy of this key apart; without it nothing that is sealed with it can be read")
    beside = os.path.dirname(file)
    if os.path.lexists(os.path.join(beside, TRANSCRIPT)) or none_in(beside) is None:
        complain(f"{file}: it stands beside conversations; whoever copies them has the key too: move it elsewhere")
    return 0
