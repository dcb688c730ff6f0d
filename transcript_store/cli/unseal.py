"""``transcript-store unseal``: make a sealed conversation plain again."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from transcript_store.cli._shared.arguments import NAMES, add_conversation
from transcript_store.cli._shared.keys import VARIABLE, add_keys, keys_of
from transcript_store.cli._shared.places import conversation_at, shown
from transcript_store.cli._shared.progress import Working
from transcript_store.cli._shared.terminal import Misuse, one_line, say

DESCRIPTION = f"""\
Make a sealed conversation plain again, as its next generation. From then on whoever has its files can read it. Its earlier
generations stay sealed, and `generations --delete` removes them; on a place they stay.

{NAMES}"""
EPILOG = """\
examples:
  transcript-store unseal chats/today --key-file ~/.keys/chats
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_places=True)
    add_keys(parser)


def run(arguments: Namespace) -> int:
    """Unseal the conversation."""
    keys = keys_of(arguments)
    if not keys:
        raise Misuse(f"unseal needs the key, in --key-file or {VARIABLE}")
    with Working("unsealing"), conversation_at(arguments.directory, **keys.options) as conversation:
        conversation.load()
        conversation.unseal()
    say(f"plain {one_line(shown(arguments.directory))}")
    return 0
