"""``transcript-store seal``: seal a plaintext conversation."""

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
Seal a conversation with a key, or all plaintext ones of a library: messages, system prompt, tools and labels cannot be read
without the key. The same records, byte for byte, become its next generation. Then all plaintext is removed: the earlier
generations, the quarantine, and the library's index in your cache directory, which has its words (the next search builds it
again, without them).

The disk may keep the bytes of deleted files (flash, file system snapshots, backups). Earlier copies, snapshots and exports do not
change. If it is interrupted, run it again: it continues.

On a backend the plaintext of a conversation cannot be removed: --keep-plain seals it from here on. To have no plaintext there,
`fork` it into a folder, seal that, `fork` it back with the key, and `delete` the earlier ones.

{NAMES}"""
EPILOG = """\
examples:
  transcript-store new-key ~/.keys/chats
  transcript-store seal chats/today --key-file ~/.keys/chats
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True, or_library=True)
    parser.add_argument("--keep-plain", action="store_true", help="keep the plaintext generations and the quarantine")
    add_keys(parser)


def run(arguments: Namespace) -> int:
    """Seal the conversation, and print what stays in plaintext."""
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
        say("earlier slots did not change: anyone who can read them can read their plaintext")
    elif arguments.keep_plain:
        say(
            "its earlier generations and its quarantine did not change: anyone who has the files can read their plaintext"
        )
    else:
        say("its plaintext was deleted; the disk may keep deleted bytes, and earlier copies did not change")
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
