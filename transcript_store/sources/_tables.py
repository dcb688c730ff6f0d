"""Somebody else's SQLite database: rows by the names of columns, and nothing of it is written, locked for long, or believed.

How it is opened depends on what a program that uses it, or was killed, left beside it:

* a write-ahead log with its index (``-shm``): ``readonly_shm``. SQLite reads the newest rows, in one transaction, and writes nothing;
* a write-ahead log alone, or a rollback journal that is in force: SQLite would have to write, so a private copy of the files is read.
  If SQLite refuses the first way, the same;
* nothing, and the database is in WAL mode: SQLite would create files beside it. It is opened ``immutable``;
* nothing, or a journal that is not in force: ``mode=ro``. SQLite's own shared lock keeps writers out while rows are read.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from transcript_store.descriptors import is_open_elsewhere
from transcript_store.sources._files import Stamp, UnreadableSourceError, opened, require_regular

_WRITES_WITH_WAL = b"\x02"
_JOURNAL_MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
_FAILURES = (sqlite3.Error, UnicodeDecodeError)
"""What reading may raise. The second is a message of SQLite's that quotes a damaged schema."""
_LONGEST_VALUE_BYTES = 256 << 20
_REPLACED = "another file took its place while it was opened"
_PIECE_BYTES = 1 << 20
_COPIES = 5
"""How often a copy is tried that a writer disturbed."""


class Rows:
    """The tables of an open database, as :class:`formats.Tables`. As :class:`formats.Source` it is empty."""

    size = 0

    def __init__(self, name: str, stamp: Stamp, connection: sqlite3.Connection) -> None:
        self.name = name
        self.stamp = stamp
        self._connection = connection
        self._columns: dict[str, tuple[str, ...]] = {}

    def read(self, _offset: int, _size: int) -> bytes:
        return b""

    def columns(self, table: str) -> tuple[str, ...]:
        if table not in self._columns:  # asked for again with each message whose parts are looked up
            self._columns[table] = self._columns_of(table)
        return self._columns[table]

    def _columns_of(self, table: str) -> tuple[str, ...]:
        kind = self._all("SELECT type FROM pragma_table_list WHERE schema = 'main' AND name = ?", table)
        if kind != [("table",)]:  # a view, or a virtual table, would run what its author wrote
            return ()
        return tuple(name for (name,) in self._all("SELECT name FROM pragma_table_info(?)", table))

    def tables(self) -> dict[str, tuple[str, ...]]:
        """Each table's columns."""
        names = self._all("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'")
        return {name: self.columns(name) for (name,) in names if isinstance(name, str)}

    def rows(
        self,
        table: str,
        columns: Iterable[str],
        order: Iterable[str],
        where: Mapping[str, object] = MappingProxyType({}),
    ) -> Iterator[tuple[Any, ...]]:
        there, wanted, by = self.columns(table), list(columns), list(order)
        if missing := [name for name in (*wanted, *by, *where) if name not in there]:
            raise UnreadableSourceError(path=self.name, reason=f"table {table} has no column {missing[0]}")
        select = f"SELECT {', '.join(map(_quoted, wanted))} FROM {_quoted(table)}"  # noqa: S608 (names that are there)
        if where:
            select += f" WHERE {' AND '.join(f'{_quoted(name)} = ?' for name in where)}"
        if by:
            select += f" ORDER BY {', '.join(map(_quoted, by))}"
        cursor = self._connection.cursor()
        try:
            try:
                cursor.execute(select, tuple(where.values()))
            except OverflowError:  # a number of more than 64 bits: no row has it
                return
            yield from cursor
        except _FAILURES as error:
            raise self._unreadable(error) from error

    def _all(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except _FAILURES as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> UnreadableSourceError:
        return UnreadableSourceError(path=self.name, reason=f"the database cannot be read: {error}")


@contextmanager
def database(path: str, handle: int, stamp: Stamp) -> Iterator[Rows]:
    """The tables of the database at a path; ``handle`` is open on the same file.

    Raises:
        UnreadableSourceError: it is damaged, or somebody put another file in its place.
    """
    try:
        with ExitStack() as stack:
            connection = _in_place(path, handle)
            if connection is None:
                copy = _copied(path, stack.enter_context(tempfile.TemporaryDirectory()), stamp.inode)
                connection = _connected(copy, "mode=rw")
            stack.callback(connection.close)
            if os.lstat(path).st_ino != stamp.inode:
                raise UnreadableSourceError(path=path, reason=_REPLACED)
            yield Rows(path, stamp, connection)
    except (*_FAILURES, OSError) as error:
        raise UnreadableSourceError(path=path, reason=f"the database cannot be read: {error}") from error


def _in_place(path: str, handle: int) -> sqlite3.Connection | None:
    """A connection to the database where it is; None if SQLite would have to write to it or beside it.

    Raises:
        UnreadableSourceError: a link, or something else that is no regular file, stands beside it.
    """
    wal, shm, journal = (_status_beside(path + end) for end in ("-wal", "-shm", "-journal"))
    if journal is not None and journal.st_size and _is_in_force(f"{path}-journal"):
        return None
    if wal is not None and shm is not None:
        if is_open_elsewhere(shm):  # SQLite would use the caller's connection, which may write to the index
            return None
        connection = _connected(path, "mode=ro&readonly_shm=1")
        try:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except BaseException as error:
            connection.close()
            if not isinstance(error, sqlite3.OperationalError):
                raise
            return None  # the index has to be made anew, or the program holds its locks for itself
        return connection
    if wal is not None and wal.st_size:
        return None
    is_wal = os.pread(handle, 1, 18) == _WRITES_WITH_WAL
    return _connected(path, "mode=ro&immutable=1" if is_wal else "mode=ro")


def _status_beside(path: str) -> os.stat_result | None:
    """How a file beside the database looks; None if it is not there."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    require_regular(path, status)
    return status


def _is_in_force(journal: str) -> bool:
    """True unless the journal's header was zeroed, as a program does that keeps the file for the next transaction."""
    with opened(journal) as handle:
        return os.pread(handle, 1, 0) != b"\x00"


def _copied(path: str, folder: str, inode: int) -> str:
    """A copy of the database with this inode and what lies beside it, all of one moment; regular files only.

    Raises:
        UnreadableSourceError: a writer never stops, a link stands there, another file does, or a journal would touch other files.
    """
    copy = os.path.join(folder, "copy")
    for _ in range(_COPIES):
        before = _stamps(path)
        copied = {end: there and _copy_file(path + end, copy + end) for end, there in before.items()}
        if copied == _stamps(path) == before:
            if before[""] is None or before[""].inode != inode:
                raise UnreadableSourceError(path=path, reason=_REPLACED)
            _refuse_super_journal(path, f"{copy}-journal")
            return copy
        for end in before:
            if os.path.lexists(copy + end):
                os.unlink(copy + end)
    raise UnreadableSourceError(path=path, reason="another program goes on writing it; try again later")


def _copy_file(path: str, copy: str) -> Stamp:
    """Copy a file; returns how the one looked whose bytes these are, whatever stands at the path by now."""
    # Not a link to it: SQLite would follow that, and write where it leads. Not read through a second descriptor either: to close
    # one drops the locks of the process.
    with opened(path) as handle, open(copy, "xb") as written:
        at = 0
        while piece := os.pread(handle, _PIECE_BYTES, at):
            written.write(piece)
            at += len(piece)
        return _stamp(os.fstat(handle))


def _refuse_super_journal(path: str, journal: str) -> None:
    """A rollback journal may end with the name of another file, the super-journal of a commit over several databases.

    SQLite deletes that file when it has rolled back. It belongs to the database's program, or is whatever a forger named.
    """
    if not os.path.exists(journal):
        return
    with open(journal, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - len(_JOURNAL_MAGIC)))
        if file.read() == _JOURNAL_MAGIC:
            reason = (
                "its program was stopped while it wrote several databases; open it with that program, then import it"
            )
            raise UnreadableSourceError(path=path, reason=reason)


def _stamps(path: str) -> dict[str, Stamp | None]:
    found: dict[str, Stamp | None] = {}
    for end in ("", "-wal", "-journal"):
        try:
            found[end] = _stamp(os.lstat(path + end))
        except FileNotFoundError:
            found[end] = None
    return found


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)


def _connected(path: str, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote(path)}?{how}", uri=True, isolation_level=None)
    try:
        connection.text_factory = _text
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE_BYTES)
        # The schema is its author's: no function in it may do more than compute, and nothing writes.
        for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0"):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
