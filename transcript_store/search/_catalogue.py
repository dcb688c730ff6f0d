"""Which conversations exist? A ``stat`` of each, and a summary of those whose stamp changed.

How a conversation looks is its stamp: inode, size, mtime and ctime of its transcript and its metadata. A file that was
written a moment ago may be written again without another time to show for it, so its stamp does not count yet, and it
is read again.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from transcript_store.file_names import METADATA, TRANSCRIPT
from transcript_store.search._database import Database
from transcript_store.search._index_source import FolderIndexSource, TrackedIndexSource

if TYPE_CHECKING:
    from transcript_store.library import ConversationSummary

SETTLED_NS = 2 * 10**9
_FILES = tuple(b"/" + os.fsencode(name) for name in (TRANSCRIPT, METADATA))
_NOTHING = (0, None)
_LOOKS_AT_A_TIME = 16
"""The clock is asked behind so many folders."""
_AT_A_TIME = 200
"""So many summaries are made in a transaction; a reader of the index never waits, another writer waits for one of them."""
FACTS: dict[str, str | int | None] = {
    "id": None, "title": "", "provider": None, "model": None, "created_at": "", "updated_at": "", "touched_at": None,
    "record_count": -1,
    "generation": None, "size_bytes": -1, "damage": None, "torn_bytes": 0, "sealed": 0,
}  # fmt: skip
"""What is kept of a summary, and what stands for a fact that it does not have: a list is sorted by some of them."""
_COLUMNS = ("stamp", *FACTS)
_KNOWN = f"SELECT n, {', '.join(_COLUMNS)} FROM conversation WHERE folder = ?"
_NEW = f"INSERT INTO conversation (folder, {', '.join(_COLUMNS)}) VALUES (?, {', '.join('?' * len(_COLUMNS))})"


Changed = tuple[bytes, str]
"""A folder that looks other than it is known, and how."""


class CatalogueRow(NamedTuple):
    """The catalogue's row of a folder with this stamp; None if the conversation no longer exists."""

    folder: bytes
    stamp: str
    summary: ConversationSummary | None
    name: str = ""
    """What it is called: the catalogue has that as its title."""


class CatalogueUpdate(NamedTuple):
    """What a sweep looked at. ``left`` folders were not, because the time was over. It is not exact if what writers
    said is all that is known, on a backend that cannot list its current slots.
    """

    began_at: float
    left: int
    is_exact: bool
    lines: list[CatalogueRow]
    """What is still to be noted; so few that it can go into a transaction with something else."""


def update_catalogue(
    database: Database, shelf: FolderIndexSource | TrackedIndexSource, deadline: float, *, refresh: bool = False
) -> CatalogueUpdate:
    """Bring the catalogue up to date with the library until the deadline (of ``time.monotonic``).

    The caller notes the lines that it returns. When they are noted, the catalogue has each folder that was looked at as it was at
    ``began_at`` or later. If ``is_exact``, it has no folder that was gone.

    Raises:
        StorageError: the library cannot be read. (One that does not exist has no conversations.)
        sqlite3.OperationalError: another process writes to the index.
    """
    began_at = time.time()
    changed, left, is_exact, gone = find_changes(database, shelf, deadline, refresh=refresh)
    _forget(database, gone)
    lines: list[CatalogueRow] = []
    for at in range(0, len(changed), _AT_A_TIME):
        if at and time.monotonic() > deadline:
            return CatalogueUpdate(began_at, left + len(changed) - at, is_exact, lines)
        if lines:
            with database.writing():
                note(database, lines)
        # Read before the transaction that stores them: every other writer waits for that one.
        some = changed[at : at + _AT_A_TIME]
        lines = [_line(shelf, folder, stamp) for folder, stamp in some]
    return CatalogueUpdate(began_at, left, is_exact, lines)


def _line(shelf: FolderIndexSource | TrackedIndexSource, folder: bytes, stamp: str) -> CatalogueRow:
    summary = shelf.summary(os.fsdecode(folder))
    if summary is None:
        return CatalogueRow(folder, stamp, None)
    if summary.title is not None:
        return CatalogueRow(folder, stamp, summary, summary.title)
    from transcript_store.naming import name_at, name_of  # with all that reads conversations, for a first prompt

    # On a place a whole conversation would be fetched for its first prompt.
    return CatalogueRow(
        folder, stamp, summary, name_at(summary) if isinstance(shelf, FolderIndexSource) else name_of(summary)
    )


def find_changes(
    database: Database, shelf: FolderIndexSource | TrackedIndexSource, deadline: float, *, refresh: bool = False
) -> FoundChanges:
    """What changed in a library since it was noted in the catalogue. Nothing is written."""
    known: dict[bytes, tuple[int, str]] = {
        folder: (n, stamp)
        for folder, n, stamp in database.connection.execute("SELECT folder, n, stamp FROM conversation")
    }  # before the library is looked at: what is known and not there was deleted
    if isinstance(shelf, FolderIndexSource):
        changed, left, is_exact = _look_at_files(shelf, known, deadline)
    else:
        changed, left, is_exact = _look_at_word(shelf, known, deadline, refresh)
    return FoundChanges(changed, left, is_exact, [] if left or not is_exact else [n for n, _ in known.values()])


class FoundChanges(NamedTuple):
    """What looks other than it is known, how many were not looked at, whether that is how it stands now, and what was deleted."""

    changed: list[Changed]
    left: int
    is_exact: bool
    gone: list[int]


def _look_at_files(
    shelf: FolderIndexSource, known: dict[bytes, tuple[int, str]], deadline: float
) -> tuple[list[Changed], int, bool]:
    """What was looked at is taken out of ``known``."""
    names = shelf.names()
    # What is new comes first. Of a library that is too large for one look, each look begins elsewhere.
    turn = time.time_ns() % (len(names) or 1)
    names = sorted(names[turn:] + names[:turn], key=known.__contains__)
    changed: list[Changed] = []
    looked, above = 0, os.fsencode(shelf.name) + b"/"
    now = time.time_ns()  # a moment that is past already only makes more of them unsettled
    for name in names:
        looked += 1
        stamp = _stamp_of(above + name, now)
        if stamp is not None:
            _, before = known.pop(name, _NOTHING)
            if stamp != before or not stamp:
                changed.append((name, stamp))
        if not looked % _LOOKS_AT_A_TIME and time.monotonic() > deadline:
            break
    return changed, len(names) - looked, True


def _look_at_word(
    shelf: TrackedIndexSource, known: dict[bytes, tuple[int, str]], deadline: float, refresh: bool
) -> tuple[list[Changed], int, bool]:
    """The same for a backend. The number is unknown before the end: an interrupted sweep reports one as left."""
    before = {os.fsdecode(folder): stamp for folder, (_, stamp) in known.items()}
    pages, is_exact = shelf.looks(before, refresh=refresh)
    changed: list[Changed] = []
    for page in pages:
        for folder, stamp in page:
            known.pop(os.fsencode(folder), None)
            if stamp != before.get(folder):
                changed.append((os.fsencode(folder), stamp))
        if time.monotonic() > deadline:
            return changed, 1, is_exact
    return changed, 0, is_exact


def _stamp_of(directory: bytes, now: int) -> str | None:
    """How a conversation looks; "" if it may look the same after another write, None if there is none."""
    settled = now - SETTLED_NS
    looks = []
    for name in _FILES:
        try:
            status = os.lstat(directory + name)
        except (FileNotFoundError, NotADirectoryError):
            looks.append("-")
            continue
        except OSError:
            return ""
        modified, changed = status.st_mtime_ns, status.st_ctime_ns
        if modified > settled or changed > settled:
            return ""
        looks.append(f"{status.st_ino}.{status.st_size}.{modified}.{changed}")
    return None if looks == ["-", "-"] else " ".join(looks)


def _forget(database: Database, gone: list[int]) -> None:
    if gone:
        with database.writing():
            _forget_these(database, gone)


def _forget_these(database: Database, gone: list[int]) -> None:
    database.connection.executemany("DELETE FROM conversation WHERE n = ?", ((n,) for n in gone))
    database.connection.executemany("DELETE FROM label WHERE n = ?", ((n,) for n in gone))


def note(database: Database, lines: list[CatalogueRow]) -> None:
    """Note what a list says of these, within a transaction. What is known already is not written: each fact has an index of its own."""
    execute, many = database.connection.execute, database.connection.executemany
    for folder, stamp, summary, name in lines:
        n, *before = execute(_KNOWN, (folder,)).fetchone() or (None,)
        if summary is None:
            _forget_these(database, [] if n is None else [n])
            continue
        known = {fact: getattr(summary, fact) for fact in FACTS} | {"title": name}
        facts = [stamp, *(_storable(known[fact], absent) for fact, absent in FACTS.items())]
        if n is None:
            n = execute(_NEW, (folder, *facts)).lastrowid
        elif new := {column: fact for column, fact, was in zip(_COLUMNS, facts, before, strict=True) if fact != was}:
            execute(
                f"UPDATE conversation SET {', '.join(f'{column} = ?' for column in new)} WHERE n = ?",
                [*new.values(), n],
            )
        labels = summary.labels or {}
        if labels != dict(execute("SELECT name, value FROM label WHERE n = ?", (n,))):
            execute("DELETE FROM label WHERE n = ?", (n,))
            many("INSERT INTO label VALUES (?, ?, ?)", ((n, *pair) for pair in labels.items()))


def _storable(fact: str | int | None, absent: str | int | None) -> str | int | None:
    """A fact as SQLite can hold it; a forged file may say any number."""
    if fact is None:
        return absent
    return min(int(fact), 2**63 - 1) if isinstance(fact, int) else fact
