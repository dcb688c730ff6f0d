"""``transcript-store rename``: set the title of a conversation."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from transcript_store.cli._shared.arguments import NAMES
from transcript_store.cli._shared.keys import add_keys, command_keys
from transcript_store.cli._shared.names import conversation_and_words, conversation_at
from transcript_store.cli._shared.terminal import Misuse

DESCRIPTION = f"""\
Give a conversation a title, which `list` shows: its label `title`. An empty TITLE removes it. Its folder and its id do not
change. All words after the conversation are the title.

{NAMES}"""
EPILOG = """\
examples:
  transcript-store rename chats/0b8f Moving house
  transcript-store rename 0b8f ''                  removes the title
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("words", metavar="CONVERSATION TITLE", nargs="+", help="the conversation, and its title")
    add_keys(parser)


def run(arguments: Namespace) -> int:
    """Set the label ``title``, or remove it if the title is empty."""
    directory, words = conversation_and_words(arguments.words)
    if not words:
        raise Misuse("the title is missing: write it after the conversation ('' removes it)")
    title = " ".join(words).strip()
    with conversation_at(directory, **command_keys(arguments).options) as conversation:
        conversation.load(verify="tail")
        conversation.title = title or None
    return 0
