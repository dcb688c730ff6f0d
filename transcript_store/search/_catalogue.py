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
"""The clock is read after this many folders."""
_AT_A_TIME = 200
"""Summaries per transaction: another writer waits for one transaction, a reader never."""
FACTS: dict[str, str | int | None] = {
    "id": None, "title": "", "provider": None, "model": None, "created_at": "", "updated_at": "", "touched_at": None,
    "record_count": -1,
    "generation": None, "size_bytes": -1, "damage": None, "torn_bytes": 0, "sealed": 0,
}  # fmt: skip
"""The stored facts of a summary, each with the value for a missing one: lists are sorted by some of them."""
_COLUMNS = ("stamp", *FACTS)
_KNOWN = f"SELECT n, {', '.join(_COLUMNS)} FROM conversation WHERE folder = ?"
_NEW = f"INSERT INTO conversation (folder, {', '.join(_COLUMNS)}) VALUES (?, {', '.join('?' * len(_COLUMNS))})"


Changed = tuple[bytes, str]
"""A folder with another stamp than the known one, and that stamp."""


class CatalogueRow(NamedTuple):
    """The catalogue's row of a folder with this stamp; None if the conversation no longer exists."""

    folder: bytes
    stamp: str
    summary: ConversationSummary | None
    name: str = ""
    """Its name: the catalogue has it as the title."""


class CatalogueUpdate(NamedTuple):
    """The result of a sweep. ``left`` folders were not checked, because the time ran out. It is not exact if only list
    summaries are known, on a backend that cannot list its current slots.
    """

    began_at: float
    left: int
    is_exact: bool
    lines: list[CatalogueRow]
    """Rows still to be stored; so few that they fit into another transaction."""


def update_catalogue(
    database: Database, source: FolderIndexSource | TrackedIndexSource, deadline: float, *, refresh: bool = False
) -> CatalogueUpdate:
    """Bring the catalogue up to date with the library until the deadline (of ``time.monotonic``).

    The caller stores the returned rows. Then the catalogue has each checked folder in its state at
    ``began_at`` or later. If ``is_exact``, it has no folder that was deleted before.

    Raises:
        StorageError: the library cannot be read. (One that does not exist has no conversations.)
        sqlite3.OperationalError: another process writes to the index.
    """
    began_at = time.time()
    changed, left, is_exact, gone = find_changes(database, source, deadline, refresh=refresh)
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
        lines = [_line(source, folder, stamp) for folder, stamp in some]
    return CatalogueUpdate(began_at, left, is_exact, lines)


def _line(source: FolderIndexSource | TrackedIndexSource, folder: bytes, stamp: str) -> CatalogueRow:
    summary = source.summary(os.fsdecode(folder))
    if summary is None:
        return CatalogueRow(folder, stamp, None)
    if summary.title is not None:
        return CatalogueRow(folder, stamp, summary, summary.title)
    from transcript_store.naming import name_at, name_of  # imports the readers of conversations, for a first prompt

    # On a backend a first prompt would cost a fetch of the whole conversation.
    return CatalogueRow(
        folder, stamp, summary, name_at(summary) if isinstance(source, FolderIndexSource) else name_of(summary)
    )


def find_changes(
    database: Database, source: FolderIndexSource | TrackedIndexSource, deadline: float, *, refresh: bool = False
) -> FoundChanges:
    """The changes of a library since the catalogue was updated. Nothing is written."""
    known: dict[bytes, tuple[int, str]] = {
        folder: (n, stamp)
        for folder, n, stamp in database.connection.execute("SELECT folder, n, stamp FROM conversation")
    }  # before the library is read: a known folder that is missing then was deleted
    if isinstance(source, FolderIndexSource):
        changed, left, is_exact = _look_at_files(source, known, deadline)
    else:
        changed, left, is_exact = _look_at_word(source, known, deadline, refresh)
    # Nothing counts as deleted after an incomplete sweep: the folder may be among those that were not checked.
    return FoundChanges(changed, left, is_exact, [] if left or not is_exact else [n for n, _ in known.values()])


class FoundChanges(NamedTuple):
    """The changed folders, how many were not checked, whether the stamps are current, and the deleted ones."""

    changed: list[Changed]
    left: int
    is_exact: bool
    gone: list[int]


def _look_at_files(
    source: FolderIndexSource, known: dict[bytes, tuple[int, str]], deadline: float
) -> tuple[list[Changed], int, bool]:
    """Checked folders are removed from ``known``."""
    names = source.names()
    # New folders first. In a library that is too large for one sweep, each sweep starts at another folder.
    turn = time.time_ns() % (len(names) or 1)
    names = sorted(names[turn:] + names[:turn], key=known.__contains__)
    changed: list[Changed] = []
    looked, above = 0, os.fsencode(source.name) + b"/"
    now = time.time_ns()  # an earlier time only makes more stamps unsettled
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
    source: TrackedIndexSource, known: dict[bytes, tuple[int, str]], deadline: float, refresh: bool
) -> tuple[list[Changed], int, bool]:
    """The same for a backend. The number is unknown before the end: an interrupted sweep reports one as left."""
    before = {os.fsdecode(folder): stamp for folder, (_, stamp) in known.items()}
    pages, is_exact = source.looks(before, refresh=refresh)
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
    """The stamp of a conversation; "" if another write may leave the same one, None if it does not exist."""
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
        # The clock of a file system ticks in milliseconds: a second write within the tick would leave the same stamp.
        if modified > settled or changed > settled:
            return ""
        looks.append(f"{status.st_ino}.{status.st_size}.{modified}.{changed}")
    # One missing file is damage, and is shown; both missing is a folder without a conversation.
    return None if looks == ["-", "-"] else " ".join(looks)


def _forget(database: Database, gone: list[int]) -> None:
    if gone:
        with database.writing():
            _forget_these(database, gone)


def _forget_these(database: Database, gone: list[int]) -> None:
    database.connection.executemany("DELETE FROM conversation WHERE n = ?", ((n,) for n in gone))
    database.connection.executemany("DELETE FROM label WHERE n = ?", ((n,) for n in gone))


def note(database: Database, lines: list[CatalogueRow]) -> None:
    """Store the listed facts of these, within a transaction. Unchanged facts are not written: each has its own SQL index."""
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
    """A fact that SQLite can hold; a forged file may have any number."""
    if fact is None:
        return absent
    return min(int(fact), 2**63 - 1) if isinstance(fact, int) else fact
