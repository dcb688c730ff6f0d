"""Which conversations and snapshots exist? Only those whose stamp changed are read.

How a conversation looks is its stamp: inode, size, mtime and ctime of its transcript and its metadata. A file that was
written a moment ago may be written again without another time to show for it, so its stamp does not count yet, and it
is read again.

The summaries of a snapshot store are kept in a file of the cache directory. It is derived and disposable, as an index
is: if anything is wrong with it, every snapshot is read. It has the stamp of
each file (inode, size, times) before it was read; a file that was written a moment ago may have the same stamp after
another write, so it is not kept.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from transcript_store.errors import StorageError, TranscriptStoreError
from transcript_store.file_names import METADATA, TRANSCRIPT, absolute_path
from transcript_store.hints import Hint, hint_of_errno
from transcript_store.new_files import replace_file
from transcript_store.search._database import Database, cache_folder, path_in
from transcript_store.transcripts import TranscriptFile, open_transcript, summary_of

if TYPE_CHECKING:
    from transcript_store.conversation import ConversationStore
    from transcript_store.library import ConversationLibrary, ConversationSummary
    from transcript_store.snapshots import FileStore, SnapshotSummary

_OF_THE_PROCESS = frozenset({Hint.ALLOW_MORE_FILES, Hint.FREE_MEMORY})


def raise_if_of_the_process(error: TranscriptStoreError) -> None:
    """Raise an error about this process itself (files, memory): no conversation may be skipped for it."""
    if error.hint in _OF_THE_PROCESS:
        raise error


def index_error(error: OSError, path: str, doing: str) -> StorageError:
    """The system's refusal, with a hint."""
    number = error.errno or errno.EIO
    why = error.strerror or str(error)
    return StorageError(path=path, doing=doing, errno=number, strerror=why, hint=hint_of_errno(number))


class IndexSource(Protocol):
    """A library as an index reads it: a conversation is named by its folder, on a backend by its id. Only one thread at
    a time may use it.
    """

    name: str
    """Its name in errors: for a backend the address, without its user, password and options."""

    identity: str | None
    """The name of its index: the same for a library on each host and in each process. None: its index is not kept."""

    def path(self, folder: str) -> str:
        """The name of a conversation for people."""
        ...

    def summary(self, folder: str) -> ConversationSummary | None:
        """The current row of a listing; None if the conversation no longer exists."""
        ...

    def transcript(self, folder: str) -> AbstractContextManager[TranscriptFile]:
        """The current live transcript."""
        ...

    def store(self, folder: str, **keys: Any) -> ConversationStore:
        """A store that reads a conversation, not loaded yet."""
        ...

    def close(self) -> None:
        """Release the resources kept for the next call."""
        ...


class TrackedIndexSource(IndexSource, Protocol):
    """An index source that reports the stamps of its conversations itself, instead of files."""

    def looks(self, known: Mapping[str, str], *, refresh: bool) -> tuple[Iterator[list[tuple[str, str]]], bool]:
        """Pages of all conversations with their stamps, and whether these are current or only the last reported ones."""
        ...


class FolderIndexSource:
    """A library in a directory."""

    def __init__(self, directory: str) -> None:
        self.name: str = directory
        self.identity: str | None = directory

    def names(self) -> list[bytes]:
        """All names in the directory, conversations among them.

        Raises:
            StorageError: the library cannot be read. (One that does not exist has no conversations.)
        """
        try:
            return [name for name in os.listdir(os.fsencode(self.name)) if not name.startswith(b".")]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise index_error(error, self.name, "list the conversations") from error

    def path(self, folder: str) -> str:
        return f"{self.name}/{folder}"

    def summary(self, folder: str) -> ConversationSummary | None:
        return summary_of(self.path(folder))

    def transcript(self, folder: str) -> AbstractContextManager[TranscriptFile]:
        return open_transcript(self.path(folder))

    def store(self, folder: str, **keys: Any) -> ConversationStore:
        from transcript_store.conversation import ConversationStore

        return ConversationStore(self.path(folder), read_only=True, **keys)

    def close(self) -> None:
        """No-op: each file is closed after it was read."""


def index_source(library: ConversationLibrary | str) -> FolderIndexSource | TrackedIndexSource:
    """The index source of a library, or of its directory. Close it. It claims nothing, and takes no lock."""
    if isinstance(library, str):
        return FolderIndexSource(library)
    found: TrackedIndexSource | None = getattr(library, "index_source", None)
    return FolderIndexSource(library.directory) if found is None else found


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


_SUFFIX = ".json"
_VERSION = 1

Known = dict[str, tuple[str, "SnapshotSummary"]]
"""By the id of a snapshot: the stamp of its file, and its summary."""


def list_snapshots(store: FileStore, *, cache: str | os.PathLike[str] | None = None) -> list[SnapshotSummary]:
    """The result of ``store.list()``, the newest first; unchanged files are not read again.

    So a file with changed bytes but unchanged size and times is listed unchanged; ``store.verify()`` reads
    everything. Nothing is kept of a store that has a key: every snapshot is read.

    Args:
        store: the store.
        cache: the directory of the file, 0600; None for ``transcript-store`` in the user's cache directory.

    Raises:
        StorageError: the store cannot be read.
    """
    from transcript_store.snapshots import SnapshotSummary  # a search need not import it

    if store.has_key:
        return store.list()
    path = path_in(cache_folder() if cache is None else absolute_path(cache), store.directory, "snapshots-{}")
    looks = _looks(store.directory)
    if looks is None:
        return store.list()  # which raises the right error
    known = {its_id: one for its_id, one in _read(path).items() if looks.get(its_id) == one[0]}
    read = store.list(looks.keys() - known.keys())
    summaries = SnapshotSummary.newest_first([*(summary for _, summary in known.values()), *read])
    fresh = {summary.id: (looks[summary.id], summary) for summary in read if looks.get(summary.id)}
    if fresh:
        with suppress(OSError):  # it costs time, never an answer
            _write(path, known | fresh)
    return summaries


def _looks(directory: str) -> dict[str, str] | None:
    """The stamp of each snapshot's file; "" if another write may leave the same one. None if the system refuses."""
    settled = time.time_ns() - SETTLED_NS
    found = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.endswith(_SUFFIX):
                    status = entry.stat(follow_symlinks=False)
                    is_settled = status.st_mtime_ns < settled and status.st_ctime_ns < settled
                    stamp = f"{status.st_ino}.{status.st_size}.{status.st_mtime_ns}.{status.st_ctime_ns}"
                    found[entry.name.removesuffix(_SUFFIX)] = stamp if is_settled else ""
    except OSError:
        return None
    return found


def _read(path: str) -> Known:
    """The stored summaries; none if the file is not intact."""
    from transcript_store.snapshots import SnapshotSummary

    try:
        # The name may be anything: a pipe must not block, and a link is not followed.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            digest, _, data = file.read().partition(b"\n")
        if digest.decode("ascii", "replace") != hashlib.sha256(data).hexdigest():
            return {}
        kept = json.loads(data)
        if kept["version"] != _VERSION:
            return {}
        names = kept["names"]
        return {
            values[0]: (stamp, SnapshotSummary(**dict(zip(names, values, strict=True)))) for stamp, values in kept["of"]
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _write(path: str, known: Known) -> None:
    of = [[stamp, astuple(summary)] for stamp, summary in known.values()]
    names = [field.name for field in fields(next(iter(known.values()))[1])]
    data = json.dumps({"version": _VERSION, "names": names, "of": of}).encode()
    replace_file(path, hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
