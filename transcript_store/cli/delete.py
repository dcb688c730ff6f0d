"""``transcript-store delete``: delete a conversation."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from transcript_store import delete_conversation
from transcript_store.cli._shared.arguments import NAMES, add_conversation, add_json
from transcript_store.cli._shared.keys import add_keys, keys_of
from transcript_store.cli._shared.places import is_address, library_at, with_id
from transcript_store.cli._shared.terminal import one_line, say, say_json

DESCRIPTION = f"""\
Delete a conversation, with its archive and its quarantine. All of it goes, or, if another process is writing to it or the
disk refuses, nothing. There is no way back but a backup.

{NAMES}"""
EPILOG = """\
examples:
  transcript-store delete chats/today
  transcript-store delete chats/0b8f
  transcript-store delete chats 0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_places=True)
    add_keys(parser, what="not needed to delete; it is looked at, and no more")
    add_json(parser, "one JSON object with the name of the folder that was deleted")


def run(arguments: Namespace) -> int:
    """Delete the conversation, and print the name of its folder."""
    keys_of(arguments)
    if is_address(arguments.directory):
        library, name = with_id(arguments.directory)
        library_at(library).delete(name)
    else:
        delete_conversation(arguments.directory)
        name = os.path.basename(arguments.directory)
    if arguments.json:
        say_json({"deleted": name})
    else:
        say(f"deleted {one_line(name)}")
    return 0
