"""The commands about keys: ``new-key``, ``seal``, ``unseal``, ``shred``, ``rotate-key``."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from transcript_store import ConversationShreddedError
from transcript_store.cli._shared.arguments import NAMES, add_conversation, add_json, path
from transcript_store.cli._shared.keys import VARIABLE, add_keys, command_keys, key_in
from transcript_store.cli._shared.names import (
    conversation_at,
    existing,
    is_backend_address,
    library_at,
    library_of,
    none_in,
    printable_name,
    summary_at,
    taken_apart,
    the_library,
    with_id,
)
from transcript_store.cli._shared.terminal import (
    Misuse,
    Working,
    complain,
    confirmed,
    is_at_a_terminal,
    many,
    one_line,
    say,
    say_json,
)
from transcript_store.cli._shared.whole_libraries import all_of, each_of
from transcript_store.file_names import TRANSCRIPT, absolute_path, is_id
from transcript_store.new_files import make_folders
from transcript_store.transcripts import summary_of

if TYPE_CHECKING:
    from transcript_store import Shredding

NEW_KEY_DESCRIPTION = """\
Write a new key to FILE, readable by its owner only: 32 random bytes, in hex digits. An existing file is never overwritten.
Sealed data can only be read with its key: keep a copy of the key apart from the conversations.
"""
NEW_KEY_EPILOG = """\
examples:
  transcript-store new-key ~/.keys/chats         its folder is created if it is missing, for its owner only
  transcript-store record chats/today --key-file ~/.keys/chats
"""


def configure_new_key(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", type=path, help="the new file; it must not exist")


def run_new_key(arguments: Namespace) -> int:
    """Write the key, and print what to do with it."""
    file = absolute_path(arguments.file)
    make_folders(os.path.dirname(file))
    from transcript_store import write_key_file  # here: the other commands write no key

    write_key_file(file)
    say(f"{one_line(file)}: keep a copy of this key apart; without it, what it seals cannot be read")
    beside = os.path.dirname(file)
    if os.path.lexists(os.path.join(beside, TRANSCRIPT)) or none_in(beside) is None:
        complain(f"{file}: it is next to conversations, so a copy of them includes the key: move it elsewhere")
    return 0


SEAL_DESCRIPTION = f"""\
Seal a conversation with a key, or all plaintext ones of a library: messages, system prompt, tools and labels cannot be read
without the key. The same records, byte for byte, become its next generation. Then all plaintext is removed: the earlier
generations, the quarantine, and the library's index in your cache directory, which has its words (the next search builds it
again, without them).

The disk may keep the bytes of deleted files (flash, file system snapshots, backups). Earlier copies, snapshots and exports do not
change. If it is interrupted, run it again: it continues.

On a backend the plaintext of a conversation cannot be removed: --keep-plain seals it from here on. To have no plaintext there,
`fork` it into a folder, seal that, `fork` it back with the key, and `delete` the earlier ones.

{NAMES}"""
SEAL_EPILOG = """\
examples:
  transcript-store new-key ~/.keys/chats
  transcript-store seal chats/today --key-file ~/.keys/chats
"""


def configure_seal(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True, or_library=True)
    parser.add_argument("--keep-plain", action="store_true", help="keep the plaintext generations and the quarantine")
    add_keys(parser)


def run_seal(arguments: Namespace) -> int:
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


UNSEAL_DESCRIPTION = f"""\
Decrypt a sealed conversation, or all of a library, as its next generation. From then on anyone who has its files can read it.
Its earlier generations stay sealed, and `generations --delete` removes them; on a backend they stay.

{NAMES}"""
UNSEAL_EPILOG = """\
examples:
  transcript-store unseal chats/today --key-file ~/.keys/chats
"""


def configure_unseal(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True, or_library=True)
    add_keys(parser)


def run_unseal(arguments: Namespace) -> int:
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


SHRED_DESCRIPTION = f"""\
Destroy the key of a sealed conversation: its transcript, archive and quarantine can never be read again, unless there is a
backup of its file key.json. It stays listed; `delete` removes it. This needs no key.

It cannot reach backups of key.json (destroy those too), old bytes that the disk keeps, forks, snapshots and exports of it, and a
program that has it open to read. On a backend it cannot reach what the server keeps of replaced values; a writer there gets an
error.

{NAMES}"""
SHRED_EPILOG = """\
exit code: 0 if it is destroyed, 1 if some of its files are not sealed, 2 if it was not confirmed

examples:
  transcript-store shred chats/0b8f
  transcript-store shred chats/0b8f --yes
"""


def configure_shred(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    add_json(parser, "one JSON object (needs --yes)")


def run_shred(arguments: Namespace) -> int:
    """Ask, shred, and print what it cannot reach."""
    question = (
        f"destroy the key of {one_line(printable_name(arguments.directory))}, so that it can never be read again?"
    )
    if not arguments.yes and (arguments.json or not confirmed(question)):
        complain("nothing was destroyed" + ("" if is_at_a_terminal() else "; without a terminal, --yes does it"))
        return 2
    done = _shred(arguments.directory)
    if arguments.json:
        say_json(asdict(done))
    else:
        say(f"shredded {done.id}: its key was destroyed at {done.shredded_at}")
        kept = "what the server keeps of its key (versions, replicas, backups, a log)"
        kept = kept if is_backend_address(arguments.directory) else "backups of its key.json, old bytes on the disk"
        say(f"not reached: {kept}, forks, snapshots and exports of it")
        for path in done.still_readable:
            say(f"not sealed, so still readable: {one_line(path)}")
    return 1 if done.still_readable else 0


def _shred(named: str) -> Shredding:
    if is_backend_address(named):
        library, own_id = with_id(named)
        return library_at(library).shred(own_id)
    library, name = os.path.split(named)
    home = library_at(library)
    return home.shred(name) if is_id(name) else home.shred_folder(name)


ROTATE_KEY_DESCRIPTION = """\
Change the key of the sealed conversations of a library, or of one: each has its own data key, and this wraps it with the new key.
No record is changed. If it is interrupted, run it again: it does the rest. Keep the earlier key until all are done, and as long as
you have backups of earlier key.json files.

The earlier key and a copy of an earlier key.json still open a conversation. To prevent that, fork it and shred the original.
"""
ROTATE_KEY_EPILOG = """\
exit code: 0 if all sealed conversations have the new key, 1 if one was skipped: it is open to write, or has another key

examples:
  transcript-store new-key ~/.keys/chats-2
  transcript-store rotate-key postgresql://keeper@db.example/agents --key-file ~/.keys/chats --new-key-file ~/.keys/chats-2
  transcript-store rotate-key chats --key-file ~/.keys/chats --new-key-file ~/.keys/chats-2
"""

_HAS_NO_KEY = "it is not sealed"
_LOST_ITS_KEY = ConversationShreddedError(path="", shredded_at="").problem.rpartition(";")[2]
"""The end of a reason that is a ``ConversationShreddedError``: there is no key left to wrap. A ``Rotation`` has sentences only."""


def configure_rotate_key(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    what = "the library's directory; or one conversation, named as for show (default: the library of `chat`)"
    parser.add_argument("library", metavar="LIBRARY", nargs="?", type=path, help=what)
    parser.add_argument("--new-key-file", metavar="FILE", type=path, required=True, help="the new key (see new-key)")
    add_keys(parser, what="the current key")
    add_json(parser, "one JSON object: rotated, already_current, skipped")


def run_rotate_key(arguments: Namespace) -> int:
    """Rotate, and print what was skipped. The exit code is 1 if a sealed conversation was."""
    keys, new_key = command_keys(arguments), key_in(arguments.new_key_file)
    if keys.key is None:
        raise Misuse(f"rotate-key needs the current key, in --key-file or {VARIABLE}")
    library, names = _meant(arguments.library)
    with Working("wrapping keys"):
        home = library_at(library, encryption_key=new_key, retired_keys=[keys.key, *keys.retired])
        done = home.rotate_key(names)
        if names is None and (others := _folders_with_names(library)):  # which the library leaves alone unless named
            from transcript_store import Rotation

            more, skipped = home.rotate_key(others), [one for one in done.skipped if one[0] not in others]
            done = Rotation(
                rotated=(*done.rotated, *more.rotated),
                already_current=(*done.already_current, *more.already_current),
                skipped=(*skipped, *more.skipped),
            )
    left = [(name, why) for name, why in done.skipped if why != _HAS_NO_KEY and not why.endswith(_LOST_ITS_KEY)]
    if not is_backend_address(library):  # a backend has already seen that it is sealed, by its wrapped key
        left = [(name, why) for name, why in left if _may_be_sealed(library, name)]
    if arguments.json:
        say_json({"rotated": done.rotated, "already_current": done.already_current, "skipped": left})
    else:
        say(_in_words(len(done.rotated), len(done.already_current), len(left)))
    for name, why in left:
        complain(f"{name}: skipped: {why}; keep its earlier key")
    return 1 if left else 0


def _in_words(rotated: int, already: int, left: int) -> str:
    if rotated:
        before = f"; {many(already, 'other')} had it already" if already else ""
        return f"{many(rotated, 'conversation')} now {'opens' if rotated == 1 else 'open'} with the new key{before}"
    if already:
        return f"nothing to do: {many(already, 'conversation')} had the new key already"
    return "no key was changed" if left else "nothing to do: no conversation is sealed"


def _meant(named: str | None) -> tuple[str, list[str] | None]:
    """The library, and the named conversation: its folder, or its id on a backend. None if the library is named."""
    if named is None:
        return the_library(None), None
    if is_backend_address(named):
        library, what = taken_apart(named)
        return library, None if what is None else [with_id(named)[1]]
    found = existing(named)
    if os.path.lexists(os.path.join(found, TRANSCRIPT)):
        directory, name = os.path.split(os.path.abspath(found))
        return directory, [name]
    return the_library(named), None


def _folders_with_names(library: str) -> list[str]:
    """The sealed conversations of a directory whose folders are not named by an id."""
    from transcript_store import list_conversations

    if is_backend_address(library):
        return []
    names = ((os.path.basename(one.directory), one.sealed) for one in list_conversations(library))
    return [name for name, is_sealed in names if is_sealed and not is_id(name)]


def _may_be_sealed(library: str, name: str) -> bool:
    """True if it is sealed, or if this user cannot read its folder to find out."""
    summary = summary_of(os.path.join(library, name))
    return summary is not None and (summary.sealed or summary.touched_at is None)
