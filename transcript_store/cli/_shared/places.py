"""Conversations and libraries by name, in a folder or on a place: ``postgresql://host/database``, ``s3://bucket/prefix``.

A name with ``://`` is the address of a library on a place; a conversation there is the address and its id, as a folder's name stands behind
that of its library. Addresses may hold a password: what is printed is the name of the place, which has none. Nothing of
``transcript_store.places`` is imported before a name is an address.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from transcript_store import (
    ConversationLibrary,
    ConversationNotFoundError,
    ConversationStore,
    ConversationSummary,
)
from transcript_store.cli._shared.terminal import Misuse, for_shell
from transcript_store.file_names import is_id
from transcript_store.transcripts import summary_of
from transcript_store.words import told_address

if TYPE_CHECKING:
    from transcript_store import Diagnosis, FileStore
    from transcript_store.places import PlacedSnapshotStore

    Snapshots = FileStore | PlacedSnapshotStore

LAST = "last"
_SHORT = 8
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
BEGINNING = re.compile(r"[0-9a-f][0-9a-f-]{3,35}")
"""The beginning of an id, at least four characters. With fewer, a mistyped folder name would often match an id."""


def is_address(name: str) -> bool:
    """Whether a name is the address of a place, or of a conversation on one. Any other name is a path."""
    return _ADDRESS.match(name) is not None


class Address(NamedTuple):
    """The address of a library, and what stands behind it: an id or ``last``; None if nothing does."""

    library: str
    what: str | None


def taken_apart(name: str) -> Address:
    """An address without the conversation that it names. The last part of a path is one if it is an id, or ``last``."""
    address, mark, options = name.partition("?")
    above, _, what = address.rpartition("/")
    if is_id(behind := options.rpartition("/")[2]) or behind == LAST:  # in a hurry it is put behind the options
        (above, what), options = (address, behind), options.rpartition("/")[0]
    is_database = name.startswith("postgres") and "/" not in above.partition("://")[2]
    if not (is_id(what) or what == LAST) or is_database:
        return Address(name, None)
    return Address(f"{above}{mark}{options}", what)


def conversation_on(library: str, what: str) -> str:
    """The address of a conversation."""
    address, mark, options = library.partition("?")
    return f"{address.rstrip('/')}/{what}{mark}{options}"


def existing_on(library: str, what: str) -> str:
    """The address of the conversation that ``what`` means: an id, the beginning of one, or ``last``.

    Raises:
        Misuse: it is the beginning of several ids.
        ConversationNotFoundError: nothing there has that name.
    """
    if is_id(what):
        return conversation_on(library, what)  # whoever opens it says whether it is there
    there = library_at(library)
    if what == LAST:
        found = [summary.id for summary in there.list(limit=1)]
    elif BEGINNING.fullmatch(what):
        found = [summary.id for summary in there.iter_list() if (summary.id or "").startswith(what)]
    else:
        found = []
    if (own_id := the_only(found, what, there.directory)) is None:
        reason = "there is no conversation yet" if what == LAST else f"there is no conversation {what!r}"
        raise ConversationNotFoundError(path=there.directory, reason=reason)
    return conversation_on(library, own_id)


def the_only(found: Sequence[str | None], what: str, where: str) -> str | None:
    """The only one of those whose ids begin so; None if the list is empty.

    Raises:
        Misuse: there are several.
    """
    if len(found) > 1:
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise Misuse(f"{where}: {what} is the beginning of {len(found)} ids: {', '.join(map(str, found[:5]))}{more}")
    return found[0] if found else None


def library_at(name: str, *, creates: bool = False, **options: Any) -> ConversationLibrary:
    """The library of that name, a directory or an address. If it ``creates``, the tables of a database are made when they are missing."""
    return ConversationLibrary(place_at(name, creates=creates) if is_address(name) else name, **options)


def library_of(name: str) -> ConversationLibrary:
    """The library that a conversation is in."""
    return library_at(with_id(name)[0] if is_address(name) else os.path.dirname(name))


def conversation_at(name: str, *, creates: bool = False, **options: Any) -> ConversationStore:
    """The store of that name, a folder or the address of a conversation; not loaded yet. Of ``creates``: :func:`library_at`."""
    if not is_address(name):
        return ConversationStore(name, **options)
    library, own_id = with_id(name)
    return library_at(library, creates=creates).store(own_id, **options)


def snapshots_at(name: str, *, creates: bool = False, **options: Any) -> Snapshots:
    """The store of snapshots of that name, a directory or the address of a library. Of ``creates``: :func:`library_at`.

    Raises:
        Misuse: the address names a conversation.
    """
    if not is_address(name):
        from transcript_store import FileStore

        return FileStore(name, **options)
    library, what = taken_apart(name)
    if what is not None:
        raise Misuse(
            f"{shown(name)} is a conversation: snapshots are kept at the address of a library, {shown(library)}"
        )
    from transcript_store.places import PlacedSnapshotStore

    return PlacedSnapshotStore(place_at(library, creates=creates), **options)


def summary_at(name: str) -> ConversationSummary | None:
    """What a list has of that conversation, as it stands there now; None if there is none."""
    if not is_address(name):
        return summary_of(name)
    from transcript_store.search import shelf_of

    library, own_id = with_id(name)
    shelf = shelf_of(library_at(library))
    try:
        return shelf.summary(own_id)
    finally:
        shelf.close()


def fork_of(name: str, into: ConversationLibrary, *, through_seq: int | None = None, **options: Any) -> str:
    """Copy the conversation of that name into a library; returns the id of the copy. ``options`` are those of the library it is in."""
    if not is_address(name):
        return into.fork_from(name, through_seq=through_seq)
    library, own_id = with_id(name)
    return library_at(library, **options).fork(own_id, through_seq=through_seq, into=into)


def with_id(name: str) -> tuple[str, str]:
    """The address of the library, and the id.

    Raises:
        Misuse: the address names no conversation.
    """
    library, what = taken_apart(name)
    if what is None:
        raise Misuse(
            f"{shown(name)} is a library: name a conversation in it, as {shown(name).rstrip('/')}/ID{_begun(shown(name))}"
        )
    if what == LAST:
        _, what = taken_apart(existing_on(library, LAST))
    return library, what or ""


def _begun(name: str) -> str:
    """What to do, if the last part of an address may be the beginning of an id: a folder of a bucket may be called so too."""
    library, _, what = name.rpartition("/")
    return f"; the beginning of an id is a word of its own: {library} {what}" if BEGINNING.fullmatch(what) else ""


def refuse(name: str, command: str) -> None:
    """Refuse an address, for a command that needs a folder.

    Raises:
        Misuse: it is one. The sentence says what to do.
    """
    if is_address(name):
        kept = "`transcript-store fork URL --into DIR` makes a copy in a folder"
        raise Misuse(f"{shown(name)}: `{command}` needs a folder, and this is on a place; {kept}")


def shown(name: str) -> str:
    """An address without the user, the password and the options, to be printed."""
    return told_address(name) if is_address(name) else name


def command_name(library: str, own_id: str) -> str:
    """What a command calls a conversation, as a word of a shell: as short as it can be, in the default library without a path."""
    from transcript_store.cli._shared.conversations import is_default

    name = short_ids(library)(own_id)
    if is_default(library):
        return for_shell(name)
    if is_address(library):
        return for_shell(conversation_on(library, own_id))
    return for_shell(os.path.join(library, name))


def short_ids(library: str) -> Callable[[str], str]:
    """What makes ids of a library short: their first eight characters, or as many as no other one there begins with."""
    if is_address(library):
        return lambda own_id: own_id  # to list them all would cost more than a long line
    with suppress(OSError):
        names = sorted(name for name in os.listdir(library) if is_id(name))
        return partial(_shortened, names)
    return lambda own_id: own_id


def _shortened(names: Sequence[str], own_id: str) -> str:
    if not is_id(own_id):
        return own_id
    at = bisect_left(names, own_id)
    beside = [name for name in names[max(0, at - 1) : at + 2] if name != own_id]
    same = max(
        (next(at for at, pair in enumerate(zip(name, own_id, strict=True)) if pair[0] != pair[1]) for name in beside),
        default=0,
    )
    length = max(_SHORT, same + 1)
    return own_id[:length].rstrip("-") if length <= _SHORT else own_id[:length]


def examined(address: str) -> Diagnosis:
    """What ``doctor`` finds at an address.

    Raises:
        Misuse: the address names a conversation.
    """
    from transcript_store.places import examine

    library, what = taken_apart(address)
    if what is not None:
        raise Misuse(f"{shown(address)} is a conversation: doctor tries all that is at {shown(library)}")
    return examine(place_at(library))


def place_at(address: str, *, creates: bool = False) -> Any:
    """The place at an address. Of ``creates``: :func:`library_at`."""
    return _opened(address, creates and address.startswith("postgres"))  # nothing else has tables


@cache
def _opened(address: str, creates: bool) -> Any:
    from transcript_store.places import open_place

    try:
        return open_place(address, create=creates)
    except ValueError as error:
        raise Misuse(str(error)) from None
