"""``transcript-store rotate-key``: change the key of a library's sealed conversations."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from transcript_store import Rotation, list_conversations
from transcript_store.cli._shared.arguments import add_json, path
from transcript_store.cli._shared.keys import VARIABLE, add_keys, command_keys, key_in
from transcript_store.cli._shared.names import (
    existing,
    is_backend_address,
    library_at,
    taken_apart,
    the_library,
    with_id,
)
from transcript_store.cli._shared.terminal import Misuse, Working, complain, many, say, say_json
from transcript_store.file_names import TRANSCRIPT, is_id
from transcript_store.transcripts import summary_of

DESCRIPTION = """\
Change the key of the sealed conversations of a library, or of one: each has its own data key, and this wraps it with the new key.
No record is changed. If it is interrupted, run it again: it does the rest. Keep the earlier key until all are done, and as long as
you have backups of earlier key.json files.

The earlier key and a copy of an earlier key.json still open a conversation. To prevent that, fork it and shred the original.
"""
EPILOG = """\
exit code: 0 if all sealed conversations have the new key, 1 if one was skipped: it is open to write, or has another key

examples:
  transcript-store new-key ~/.keys/chats-2
  transcript-store rotate-key postgresql://keeper@db.example/agents --key-file ~/.keys/chats --new-key-file ~/.keys/chats-2
  transcript-store rotate-key chats --key-file ~/.keys/chats --new-key-file ~/.keys/chats-2
"""

_HAS_NO_KEY = "it is not sealed"


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    what = "the library's directory; or one conversation, named as for show (default: the library of `chat`)"
    parser.add_argument("library", metavar="LIBRARY", nargs="?", type=path, help=what)
    parser.add_argument("--new-key-file", metavar="FILE", type=path, required=True, help="the new key (see new-key)")
    add_keys(parser, what="the current key")
    add_json(parser, "one JSON object: rotated, already_current, skipped")


def run(arguments: Namespace) -> int:
    """Rotate, and print what was skipped. The exit code is 1 if a sealed conversation was."""
    keys, new_key = command_keys(arguments), key_in(arguments.new_key_file)
    if keys.key is None:
        raise Misuse(f"rotate-key needs the current key, in --key-file or {VARIABLE}")
    library, names = _meant(arguments.library)
    with Working("wrapping keys"):
        home = library_at(library, encryption_key=new_key, retired_keys=[keys.key, *keys.retired])
        done = home.rotate_key(names)
        if names is None and (others := _folders_with_names(library)):  # which the library leaves alone unless named
            more, skipped = home.rotate_key(others), [one for one in done.skipped if one[0] not in others]
            done = Rotation(
                rotated=(*done.rotated, *more.rotated),
                already_current=(*done.already_current, *more.already_current),
                skipped=(*skipped, *more.skipped),
            )
    if is_backend_address(library):  # which has already seen that it is sealed, by its wrapped key
        left = [(name, why) for name, why in done.skipped if why != _HAS_NO_KEY]
    else:
        left = [(name, why) for name, why in done.skipped if _may_be_sealed(library, name)]
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
    if is_backend_address(library):
        return []
    names = ((os.path.basename(one.directory), one.sealed) for one in list_conversations(library))
    return [name for name, is_sealed in names if is_sealed and not is_id(name)]


def _may_be_sealed(library: str, name: str) -> bool:
    """True if it is sealed, or if this user cannot read its folder to find out."""
    summary = summary_of(os.path.join(library, name))
    return summary is not None and (summary.sealed or summary.touched_at is None)
