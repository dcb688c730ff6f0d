"""``transcript-store rename``: set the title of a conversation."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from transcript_store.cli._shared.arguments import NAMES, add_conversation
from transcript_store.cli._shared.keys import add_keys, keys_of
from transcript_store.cli._shared.places import conversation_at

DESCRIPTION = f"""\
Give a conversation a title, which `list` shows: its label `title`. An empty TITLE takes it away. Its folder and its id stay
what they are.

{NAMES}"""
EPILOG = """\
examples:
  transcript-store rename chats/0b8f "Moving house"
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_places=True)
    parser.add_argument("title", metavar="TITLE", help="what to call it; several words stand in quotes")
    add_keys(parser)


def run(arguments: Namespace) -> int:
    """Set the label ``title``, or remove it if the title is empty."""
    with conversation_at(arguments.directory, **keys_of(arguments).options) as conversation:
        conversation.load(verify="tail")
        conversation.title = arguments.title or None
    return 0
