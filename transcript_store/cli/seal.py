"""``transcript-store seal``: seal a conversation that is plain."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from transcript_store.cli._shared.arguments import NAMES, add_conversation
from transcript_store.cli._shared.keys import VARIABLE, add_keys, command_keys
from transcript_store.cli._shared.names import (
    conversation_at,
    is_backend_address,
    library_of,
    printable_name,
    summary_at,
)
from transcript_store.cli._shared.terminal import Misuse, Working, one_line, say
from transcript_store.cli._shared.whole_libraries import all_of, each_of

DESCRIPTION = f"""\
Seal a conversation with a key, or all those of a library that are plain: messages, system prompt, tools and labels cannot be
read without it. The records, byte for byte, become its next generation. Then what is plain is removed: the earlier
generations, the quarantine, and the index of its library in your
cache directory, which has its words (the next search builds it anew, without them).

A medium may keep what was in deleted files (flash, snapshots of the file system, backups), and copies, snapshots and exports that were
made before are as they were. If the command is cut off, the same again goes on.

On a place nothing that is plain can be removed from a conversation: with --keep-plain it is sealed from here on. To have nothing plain
there, `fork` it into a folder, seal that, `fork` it back with the key, and `delete` the earlier ones.

{NAMES}"""
EPILOG = """\
examples:
  transcript-store new-key ~/.keys/chats
  transcript-store seal chats/today --key-file ~/.keys/chats
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True, or_library=True)
    parser.add_argument("--keep-plain", action="store_true", help="leave the plain generations and the quarantine")
    add_keys(parser)


def run(arguments: Namespace) -> int:
    """Seal the conversation, and say what that does not reach."""
    from transcript_store.search import SearchIndex

    keys = command_keys(arguments)
    if not keys:
        raise Misuse(f"seal needs a key, in --key-file or {VARIABLE} (`transcript-store new-key FILE` makes one)")
    if (names := all_of(arguments.directory)) is not None:
        return _seal_all(arguments, names)
    with Working("sealing"), conversation_at(arguments.directory, **keys.options) as conversation:
        conversation.seal(keep_plain=arguments.keep_plain)
    with SearchIndex(library_of(arguments.directory)) as index:
        index.purge()
    say(f"sealed {one_line(printable_name(arguments.directory))}")
    if is_backend_address(arguments.directory):
        say("what was written before is as it was: whoever can read the slots can read what is plain there")
    elif arguments.keep_plain:
        say(
            "its earlier generations and its quarantine are as they were: whoever has the files can read what is plain there"
        )
    else:
        say("what is plain of it was deleted; a medium may keep deleted bytes, and copies made before are as they were")
    return 0


def _seal_all(arguments: Namespace, names: Sequence[str]) -> int:
    from transcript_store.search import SearchIndex

    options = command_keys(arguments).options

    def seal(name: str) -> str | None:
        summary = summary_at(name)
        if summary is not None and summary.sealed and arguments.keep_plain:
            return "-"
        with conversation_at(name, **options) as conversation:
            conversation.seal(keep_plain=arguments.keep_plain)
        return None

    code = each_of(arguments, names, seal, "sealing", "sealed")
    with SearchIndex(library_of(names[0])) as index:
        index.purge()
    return code
