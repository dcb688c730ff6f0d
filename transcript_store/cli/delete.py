"""``transcript-store delete``: delete a conversation."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from transcript_store import ConversationLibrary
from transcript_store.cli._shared.arguments import add_json, add_library
from transcript_store.cli._shared.terminal import say, say_json

DESCRIPTION = """\
Delete the conversation ID in the directory LIBRARY, with its archive and its quarantine. All of it goes, or, if another
process is writing to it or the disk refuses, nothing. There is no way back but a backup.
"""
EPILOG = """\
examples:
  transcript-store delete chats 0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_library(parser)
    add_json(parser, "one JSON object with the id of what was deleted")


def run(arguments: Namespace) -> int:
    """Delete."""
    ConversationLibrary(arguments.library).delete(arguments.id)
    if arguments.json:
        say_json({"deleted": arguments.id})
    else:
        say(f"deleted {arguments.id}")
    return 0
