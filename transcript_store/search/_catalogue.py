"""Which conversations there are: a look (``stat``) at each, and a summary of those that look different.

How a conversation looks is its stamp: inode, size, mtime and ctime of its transcript and its metadata. A file that was written a
moment ago may be written again without another time to show for it, so its stamp does not count yet, and it is looked at again.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from transcript_store.errors import StorageError
from transcript_store.file_names import METADATA, TRANSCRIPT
from transcript_store.search._database import Database
from transcript_store.transcripts import summary_of

SETTLED_NS = 2 * 10**9
_FILES = tuple(b"/" + os.fsencode(name) for name in (TRANSCRIPT, METADATA))
_NOTHING = (0, None)
_LOOKS_AT_A_TIME = 16
"""The clock is asked behind so many folders."""
_AT_A_TIME = 200
"""So many summaries are made in a transaction; a reader of the index never waits, another writer waits for one of them."""
FACTS: dict[str, str | int | None] = {
    "id": None, "title": "", "provider": None, "model": None, "created_at": "", "updated_at": "", "record_count": -1,
    "generation": None, "size_bytes": -1, "damage": None, "torn_bytes": 0, "sealed": 0,
}  # fmt: skip
"""What is kept of a summary, and what stands for a fact that it does not have: a list is sorted by some of them."""


class Swept(NamedTuple):
    """What a sweep looked at. ``left`` folders were not, because the time was over."""

    began_at: float
    left: int


def sweep(database: Database, library: str, deadline: float) -> Swept:
    """Bring the catalogue up to date with what stands in the library; until the deadline (of ``time.monotonic``).

    A folder that was looked at is in the catalogue as it was at ``began_at`` or later, and one that was gone is not.

    Raises:
        StorageError: the library cannot be read. (One that does not exist has no conversations.)
        sqlite3.OperationalError: another process writes to the index.
    """
    began_at = time.time()
    known: dict[bytes, tuple[int, str]] = {
        folder: (n, stamp)
        for folder, n, stamp in database.connection.execute("SELECT folder, n, stamp FROM conversation")
    }  # before the directory is read: what is known and not there was deleted
    try:
        names = [name for name in os.listdir(os.fsencode(library)) if not name.startswith(b".")]
    except FileNotFoundError:
        names = []
    except OSError as error:
        doing = "list the conversations"
        raise StorageError(path=library, doing=doing, errno=error.errno or 0, strerror=str(error.strerror)) from error
    # What is new comes first. Of a library that is too large for one look, each look begins elsewhere.
    turn = time.time_ns() % (len(names) or 1)
    names = sorted(names[turn:] + names[:turn], key=known.__contains__)
    changed: list[tuple[bytes, str]] = []
    looked, above = 0, os.fsencode(library) + b"/"
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
    left = len(names) - looked
    if not left:
        _forget(database, [n for n, _ in known.values()])
    for at in range(0, len(changed), _AT_A_TIME):
        if at and time.monotonic() > deadline:
            return Swept(began_at, left + len(changed) - at)
        _note(database, library, changed[at : at + _AT_A_TIME])
    return Swept(began_at, left)


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
        with database.writing() as connection:
            connection.executemany("DELETE FROM conversation WHERE n = ?", ((n,) for n in gone))
            connection.executemany("DELETE FROM label WHERE n = ?", ((n,) for n in gone))


def _note(database: Database, library: str, changed: list[tuple[bytes, str]]) -> None:
    summaries = [(folder, stamp, summary_of(f"{library}/{os.fsdecode(folder)}")) for folder, stamp in changed]
    places = ", ".join("?" * (2 + len(FACTS)))
    updates = ", ".join(f"{fact} = excluded.{fact}" for fact in ("stamp", *FACTS))
    statement = (
        f"INSERT INTO conversation (folder, stamp, {', '.join(FACTS)}) VALUES ({places}) "
        f"ON CONFLICT (folder) DO UPDATE SET {updates} RETURNING n"
    )
    with database.writing() as connection:
        for folder, stamp, summary in summaries:
            if summary is None:
                connection.execute("DELETE FROM conversation WHERE folder = ?", (folder,))
                continue
            facts = [_storable(getattr(summary, fact), absent) for fact, absent in FACTS.items()]
            n = connection.execute(statement, (folder, stamp, *facts)).fetchone()[0]
            connection.execute("DELETE FROM label WHERE n = ?", (n,))
            labels = summary.labels or {}
            connection.executemany("INSERT INTO label VALUES (?, ?, ?)", ((n, *pair) for pair in labels.items()))


def _storable(fact: str | int | None, absent: str | int | None) -> str | int | None:
    """A fact as SQLite can hold it; a forged file may say any number."""
    if fact is None:
        return absent
    return min(int(fact), 2**63 - 1) if isinstance(fact, int) else fact
