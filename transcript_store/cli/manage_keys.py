"""The commands about keys: ``new-key``, ``seal``, ``unseal``, ``shred``, ``rotate-key``."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from transcript_store import Shredding, write_key_file
from transcript_store.cli._shared.arguments import NAMES, add_conversation, add_json, path
from transcript_store.cli._shared.conversations import existing
from transcript_store.cli._shared.keys import VARIABLE, add_keys, key_in, keys_of
from transcript_store.cli._shared.libraries import libraries, none_in
from transcript_store.cli._shared.places import (
    conversation_at,
    is_address,
    library_at,
    library_of,
    shown,
    taken_apart,
    with_id,
)
from transcript_store.cli._shared.progress import Working
from transcript_store.cli._shared.terminal import Misuse, complain, is_at_a_terminal, many, one_line, say, say_json
from transcript_store.file_names import TRANSCRIPT, absolute_path, is_id
from transcript_store.transcripts import summary_of

# ---- new-key ---------------------------------------------------------------------------------------------------------

DESCRIPTION_NEW_KEY = """\
Write a new key to FILE, readable by its owner alone: 32 random bytes, in hex digits. Nothing that is there is overwritten. What is
sealed with a key can be read with that key and in no other way: keep a copy of it where the conversations are not.
"""
EPILOG_NEW_KEY = """\
examples:
  mkdir -m 700 ~/.keys && transcript-store new-key ~/.keys/chats
  transcript-store record chats/today --key-file ~/.keys/chats
"""


def configure_new_key(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", type=path, help="where to; it must not exist")


def run_new_key(arguments: Namespace) -> int:
    """Write the key, and say what to do with it."""
    file = absolute_path(arguments.file)
    write_key_file(file)
    say(f"{one_line(file)}: keep a copy of this key apart; without it nothing that is sealed with it can be read")
    beside = os.path.dirname(file)
    if os.path.lexists(os.path.join(beside, TRANSCRIPT)) or none_in(beside) is None:
        complain(f"{file}: it stands beside conversations; whoever copies them has the key too: move it elsewhere")
    return 0


# ---- seal ------------------------------------------------------------------------------------------------------------

DESCRIPTION_SEAL = f"""\
Seal a conversation with a key: messages, system prompt, tools and labels cannot be read without it. The records, byte for byte, become
its next generation. Then what is plain is removed: the earlier generations, the quarantine, and the index of its library in your
cache directory, which has its words (the next search builds it anew, without them).

A medium may keep what was in deleted files (flash, snapshots of the file system, backups), and copies, snapshots and exports that were
made before are as they were. If the command is cut off, the same again goes on.

On a place nothing that is plain can be removed from a conversation: with --keep-plain it is sealed from here on. To have nothing plain
there, `fork` it into a folder, seal that, `fork` it back with the key, and `delete` the earlier ones.

{NAMES}"""
EPILOG_SEAL = """\
examples:
  transcript-store new-key ~/.keys/chats
  transcript-store seal chats/today --key-file ~/.keys/chats
"""


def configure_seal(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_places=True)
    parser.add_argument("--keep-plain", action="store_true", help="leave the plain generations and the quarantine")
    add_keys(parser)


def run_seal(arguments: Namespace) -> int:
    """Seal the conversation, and say what that does not reach."""
    from transcript_store.search import SearchIndex

    keys = keys_of(arguments)
    if not keys:
        raise Misuse(f"seal needs a key, in --key-file or {VARIABLE} (`transcript-store new-key FILE` makes one)")
    with Working("sealing"), conversation_at(arguments.directory, **keys.options) as conversation:
        conversation.seal(keep_plain=arguments.keep_plain)
    with SearchIndex(library_of(arguments.directory)) as index:
        index.purge()
    say(f"sealed {one_line(shown(arguments.directory))}")
    if is_address(arguments.directory):
        say("what was written before is as it was: whoever can read the slots can read what is plain there")
    elif arguments.keep_plain:
        say(
            "its earlier generations and its quarantine are as they were: whoever has the files can read what is plain there"
        )
    else:
        say("what is plain of it was deleted; a medium may keep deleted bytes, and copies made before are as they were")
    return 0


# ---- unseal ----------------------------------------------------------------------------------------------------------

DESCRIPTION_UNSEAL = f"""\
Make a sealed conversation plain again, as its next generation. From then on whoever has its files can read it. Its earlier
generations stay sealed, and `generations --delete` removes them; on a place they stay.

{NAMES}"""
EPILOG_UNSEAL = """\
examples:
  transcript-store unseal chats/today --key-file ~/.keys/chats
"""


def configure_unseal(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_places=True)
    add_keys(parser)


def run_unseal(arguments: Namespace) -> int:
    """Unseal the conversation."""
    keys = keys_of(arguments)
    if not keys:
        raise Misuse(f"unseal needs the key, in --key-file or {VARIABLE}")
    with Working("unsealing"), conversation_at(arguments.directory, **keys.options) as conversation:
        conversation.load()
        conversation.unseal()
    say(f"plain {one_line(shown(arguments.directory))}")
    return 0


# ---- shred -----------------------------------------------------------------------------------------------------------

DESCRIPTION_SHRED = f"""\
Destroy the key of a sealed conversation: nothing of it, its archive and its quarantine can be read again. There
is no way back but a backup of its file key.json. It stays listed; `delete` removes it. No key is needed for it.

What this cannot reach: backups of key.json (destroy those too), what the medium keeps of the old one, forks, snapshots and exports that
were made of it, and a program that has it open to read. On a place: what the server keeps of what was replaced. Its writer is told there.

{NAMES}"""
EPILOG_SHRED = """\
exit code: 0 if it is destroyed, 1 if files of it are there that are not sealed, 2 if it was not confirmed

examples:
  transcript-store shred chats/0b8f
  transcript-store shred chats/0b8f --yes
"""


def configure_shred(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_places=True)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_json(parser, "one JSON object (needs --yes)")


def run_shred(arguments: Namespace) -> int:
    """Ask, shred, and say what it cannot reach."""
    if not arguments.yes and (arguments.json or not _is_confirmed(arguments.directory)):
        complain("nothing was destroyed" + ("" if is_at_a_terminal() else ": without a terminal --yes does it"))
        return 2
    done = _shred(arguments.directory)
    if arguments.json:
        say_json(asdict(done))
    else:
        say(f"shredded {done.id}: its key was destroyed at {done.shredded_at}")
        kept = "what the server keeps of its key (versions, replicas, backups, a log)"
        kept = kept if is_address(arguments.directory) else "backups of its key.json, what the medium keeps of it"
        say(f"not reached: {kept}, forks, snapshots and exports of it")
        for path in done.still_readable:
            say(f"not sealed, so still to be read: {one_line(path)}")
    return 1 if done.still_readable else 0


def _shred(named: str) -> Shredding:
    if is_address(named):
        library, own_id = with_id(named)
        return library_at(library).shred(own_id)
    library, name = os.path.split(named)
    home = library_at(library)
    return home.shred(name) if is_id(name) else home.shred_folder(name)


def _is_confirmed(directory: str) -> bool:
    if not is_at_a_terminal():
        return False
    try:
        asked = f"destroy the key of {one_line(shown(directory))}, so that nobody can ever read it again? [y/N] "
        return input(asked).strip().lower() in ("y", "yes")
    except EOFError:
        return False


# ---- rotate-key ------------------------------------------------------------------------------------------------------

DESCRIPTION_ROTATE_KEY = """\
Give the sealed conversations of a library, or one of them, another key: each has a data key of its own, and that is wrapped anew. No
record is touched. If it is cut off, the same again does the rest. Keep the earlier key until it says that all are done, and for as long
as there are backups of key.json files that were made before.

Whoever has the earlier key and a copy of a key.json of before can still read that conversation: fork it, and shred the old one.
"""
EPILOG_ROTATE_KEY = """\
exit code: 0 if all that is sealed has the new key, 1 if something was left alone: somebody has it open, or it has yet another key

examples:
  transcript-store new-key ~/.keys/chats-2
  transcript-store rotate-key postgresql://keeper@db.example/agents --key-file ~/.keys/chats --new-key-file ~/.keys/chats-2
  transcript-store rotate-key chats --key-file ~/.keys/chats --new-key-file ~/.keys/chats-2
"""

_HAS_NO_KEY = "it is not sealed"


def configure_rotate_key(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    what = "the library's directory; or one conversation, named as for show"
    parser.add_argument("library", metavar="LIBRARY", type=path, help=what)
    parser.add_argument("--new-key-file", metavar="FILE", type=path, required=True, help="the new key (see new-key)")
    add_keys(parser, what="the key so far")
    add_json(parser, "one JSON object: rotated, already, left_alone")


def run_rotate_key(arguments: Namespace) -> int:
    """Rotate, and say what was left alone. The exit code is 1 if something sealed was."""
    keys, new_key = keys_of(arguments), key_in(arguments.new_key_file)
    if keys.key is None:
        raise Misuse(f"rotate-key needs the key so far, in --key-file or {VARIABLE}")
    library, names = _meant(arguments.library)
    with Working("wrapping keys anew"):
        home = library_at(library, encryption_key=new_key, retired_keys=[keys.key, *keys.retired])
        done = home.rotate_key(names)
    if is_address(library):  # which has told it apart already, by the key beside the conversation
        left = [(name, why) for name, why in done.left_alone if why != _HAS_NO_KEY]
    else:
        left = [(name, why) for name, why in done.left_alone if _may_be_sealed(library, name)]
    if arguments.json:
        say_json({"rotated": done.rotated, "already": done.already, "left_alone": left})
    else:
        say(f"wrapped with the new key: {many(len(done.rotated), 'conversation')}, and {len(done.already):,} before")
    for name, why in left:
        complain(f"{name}: left alone: {why}; keep its earlier key (or name it, if its folder is not called by its id)")
    return 1 if left else 0


def _meant(named: str) -> tuple[str, list[str] | None]:
    """The library, and of it the one conversation that is named: its folder, or its id on a place. None if the library is named."""
    if is_address(named):
        library, what = taken_apart(named)
        return library, None if what is None else [with_id(named)[1]]
    found = existing(named)
    if os.path.lexists(os.path.join(found, TRANSCRIPT)):
        directory, name = os.path.split(os.path.abspath(found))
        return directory, [name]
    (directory,) = libraries([named])
    return directory, None


def _may_be_sealed(library: str, name: str) -> bool:
    """Whether it is sealed, or nothing of it can be read that would say so: a folder that is closed to this user."""
    summary = summary_of(os.path.join(library, name))
    return summary is not None and (summary.sealed or summary.touched_at is None)
