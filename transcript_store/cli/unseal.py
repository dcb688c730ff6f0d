"""``transcript-store unseal``: decrypt a sealed conversation."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from transcript_store.cli._shared.arguments import NAMES, add_conversation
from transcript_store.cli._shared.keys import VARIABLE, add_keys, command_keys
from transcript_store.cli._shared.names import conversation_at, printable_name, summary_at
from transcript_store.cli._shared.terminal import Misuse, Working, one_line, say
from transcript_store.cli._shared.whole_libraries import all_of, each_of

DESCRIPTION = f"""\
Decrypt a sealed conversation, or all of a library, as its next generation. From then on anyone who has its files can read it.
Its earlier generations stay sealed, and `generations --delete` removes them; on a backend they stay.

{NAMES}"""
EPILOG = """\
examples:
  transcript-store unseal chats/today --key-file ~/.keys/chats
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True, or_library=True)
    add_keys(parser)


def run(arguments: Namespace) -> int:
    """Unseal the conversation."""
    keys = command_keys(arguments)
    if not keys:
        raise Misuse(f"unseal needs the key, in --key-file or {VARIABLE}")
    if (names := all_of(arguments.directory)) is not None:
        return each_of(arguments, names, lambda name: _unseal(name, keys.options), "unsealing", "plain")
    with Working("unsealing"), conversation_at(arguments.directory, **keys.options) as conversation:
        conversation.load()
        conversation.unseal()
    say(f"plain {one_line(printable_name(arguments.directory))}")
    return 0


def _unseal(name: str, options: dict[str, Any]) -> str | None:
    summary = summary_at(name)
    if summary is not None and not summary.sealed and summary.damage is None:
        return "-"
    with conversation_at(name, **options) as conversation:
        conversation.load()
        conversation.unseal()
    return None
