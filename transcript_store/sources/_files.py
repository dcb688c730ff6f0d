"""Foreign files, opened read-only (F1): a regular file, not a link, with the length that it had when it was opened."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType
from typing import IO, Any, NamedTuple, Protocol, cast
from urllib.parse import quote

from transcript_store.descriptors import descriptor, is_open_elsewhere
from transcript_store.errors import TranscriptStoreError
from transcript_store.installation import install_command

_PIECE_BYTES = 1 << 20
_LONGEST_BESIDE_BYTES = 4 << 20
_OF_AN_EXPORT = ("conversation_asset_file_names.json", "export_manifest.json", "chat.html", "user.json")
"""Files of an unpacked export, one of which is beside its conversations."""
_DEEPEST_OF_AN_EXPORT = 4
_HELD_BYTES = 16 << 20
"""A source up to this size is read once, and held."""


class UnreadableSourceError(TranscriptStoreError):
    """The source at ``path`` cannot be read, or is not an allowed source. Nothing of it was imported."""

    path: str
    reason: str


class Stamp(NamedTuple):
    """Shows whether a file changed."""

    size: int
    mtime_ns: int
    inode: int


class FileSource:
    """A :class:`formats.Source` of an open file, up to its size at that time.

    As :class:`formats.Tables` it is empty, so a wrong ``--format`` finds no session.
    """

    def __init__(self, name: str, handle: int, *, folder: str | None = None) -> None:
        status = os.fstat(handle)
        self.neighbours: Neighbours | None = None if folder is None else _Folder(folder)
        """The files beside it; None if they are unknown."""
        self.seen_beside: dict[str, tuple[int, int, int] | None] = {}
        """The files that :meth:`beside` read, each with its size, mtime and inode at that time; None for a missing one."""
        self.name = name
        self.stamp = Stamp(status.st_size, status.st_mtime_ns, status.st_ino)
        self.size = status.st_size
        self._handle = handle
        self._mtime_ns = status.st_mtime_ns
        self._held: bytes | None = None
        self._walked = hashlib.sha256()
        self._walked_bytes = 0

    @property
    def is_rewritten(self) -> bool:
        """True if the bytes may be of several moments, or are incomplete: another process wrote to it or cut it since it was opened."""
        if self._held is not None:
            return len(self._held) < self.size
        return os.fstat(self._handle).st_mtime_ns != self._mtime_ns

    def read(self, offset: int, size: int) -> bytes:
        size = max(0, min(size, self.size - offset))
        if self.size > _HELD_BYTES:
            piece = self._pread(size, offset)
            if offset <= self._walked_bytes < offset + len(piece):
                self._walked.update(memoryview(piece)[self._walked_bytes - offset :])
                self._walked_bytes = offset + len(piece)
            return piece
        if self._held is None:
            self._held = self._pread(self.size, 0)
        return self._held[offset : offset + size]

    def _pread(self, size: int, offset: int) -> bytes:
        try:
            return os.pread(self._handle, size, offset)
        except OSError as error:  # a bad block, a disk that was unplugged, a network share that is away
            reason = f"cannot be read: {error.strerror}"
            raise UnreadableSourceError(path=self.name, reason=reason) from error

    def beside(self, path: str, *, longest: int = _LONGEST_BESIDE_BYTES) -> bytes | None:
        """The bytes of a small file beside this one; of a member of an archive, of another member. ``path`` is relative to this
        file's folder.

        None if it is missing, not a regular file, or longer than ``longest``.
        """
        if self.neighbours is None:
            return None
        found, looks = self.neighbours.read(path, longest)
        if looks is not None:
            self.seen_beside[looks[0]] = looks[1]
        return found

    def names_beside(self) -> Iterator[str]:
        """The paths of files in and below this file's folder, relative to it, if they belong to an export."""
        return iter(()) if self.neighbours is None else self.neighbours.names()

    def columns(self, _table: str) -> tuple[str, ...]:
        return ()

    def rows(self, _table: str, _columns: Iterable[str], _order: Iterable[str]) -> Iterator[tuple[Any, ...]]:
        return iter(())

    def sha256(self, size: int | None = None) -> str:
        """Of all its bytes, or of the first so many, in hex."""
        end = self.size if size is None else size
        digest = hashlib.sha256()
        for offset in range(0, end, _PIECE_BYTES):
            digest.update(self.read(offset, min(_PIECE_BYTES, end - offset)))
        return digest.hexdigest()

    def sha256_of_what_was_read(self) -> str | None:
        """The SHA-256 of all its bytes, in hex; None if they changed or were cut since they were read.

        An append is not a change. It moves the time of a large file, so then its current sum is compared with that of the first
        reading.
        """
        walked = self._walked.hexdigest() if self._walked_bytes == self.size else None
        now = self.sha256()
        return now if now == walked or not self.is_rewritten else None


class Neighbours(Protocol):
    """The files beside a source: those of its folder, or the other members of its archive."""

    def read(self, path: str, longest: int) -> tuple[bytes | None, tuple[str, tuple[int, int, int] | None] | None]:
        """What one holds, or None; and of a file that may change where it is, and how it looks."""

    def names(self) -> Iterator[str]:
        """The paths of those that are a part of one export."""


class _Folder:
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def read(self, path: str, longest: int) -> tuple[bytes | None, tuple[str, tuple[int, int, int] | None] | None]:
        there = os.path.normpath(os.path.join(self._folder, path))
        looks = there, how_it_looks(there)
        read = _read_beside if longest <= _LONGEST_BESIDE_BYTES else _read_beside.__wrapped__
        try:
            return read(there, looks, longest), looks
        except (UnreadableSourceError, OSError, ValueError):
            return None, looks

    def names(self) -> Iterator[str]:
        if not any(os.path.lexists(os.path.join(self._folder, name)) for name in _OF_AN_EXPORT):
            return  # such as a folder of downloads
        for path, folders, files in os.walk(self._folder):
            below = os.path.relpath(path, self._folder)
            if below.count(os.sep) >= _DEEPEST_OF_AN_EXPORT:
                folders.clear()
            yield from (os.path.normpath(os.path.join(below, name)) for name in files)


@lru_cache(maxsize=1)
def _read_beside(path: str, _looks: tuple[int, int, int] | None, longest: int) -> bytes | None:
    """The bytes of a file, or None if it is longer. Kept for the next source: a list of sessions is beside each of them."""
    with open_source(path) as handle:
        size = os.fstat(handle).st_size
        return None if size > longest else os.pread(handle, size, 0)


def how_it_looks(path: str) -> tuple[int, int, int] | None:
    """The size, the mtime and the inode at a path; None if nothing is there, or if the system refuses."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


@contextmanager
def open_source(path: str) -> Iterator[int]:
    """A read-only descriptor of a regular file; a link, a FIFO or a device is refused without opening it.

    Raises:
        UnreadableSourceError: it is missing or not a regular file, or the system refuses.
    """
    with ExitStack() as stack:
        try:
            require_regular(path, os.lstat(path))
            # Another file may take its place between lstat and open: then O_NOFOLLOW refuses a link,
            # O_NONBLOCK does not wait at a FIFO, and the second look refuses whatever else it is.
            handle = stack.enter_context(descriptor(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK))
        except OSError as error:
            raise UnreadableSourceError(path=path, reason=f"cannot be opened: {error.strerror}") from error
        require_regular(path, os.fstat(handle))
        yield handle


@contextmanager
def private_copy(name: str, stream: IO[bytes], stamp: Stamp, limit: int) -> Iterator[FileSource]:
    """The bytes of a stream as a source: a file without a name, which no other process can open.

    Raises:
        UnreadableSourceError: there are more than ``limit`` bytes.
    """
    with tempfile.TemporaryFile() as copy:
        length = 0
        while piece := stream.read(_PIECE_BYTES):
            length += len(piece)
            if length > limit:
                raise UnreadableSourceError(path=name, reason=f"unpacks to more than {limit:,} bytes")
            copy.write(piece)
        copy.flush()
        source = FileSource(name, copy.fileno())
        source.stamp = stamp
        yield source


def require_regular(path: str, status: os.stat_result) -> None:
    """Raise ``UnreadableSourceError`` unless the status is that of a regular file."""
    if not stat.S_ISREG(status.st_mode):
        what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no regular file"
        raise UnreadableSourceError(path=path, reason=f"is {what}, and is not opened")


# ---- archives ----
#
# Members of an archive, by name only: nothing is unpacked to the path in a member's name, and no bomb fills the disk.

ZIP, ZSTANDARD = b"PK\x03\x04", b"\x28\xb5\x2f\xfd"
LONGEST_MEMBER_BYTES = 4 << 30
_MOST_MEMBERS = 1000
_WANTED = ("conversations.json", "conversations-*.json", "*.jsonl")
_HIGHEST_RATIO = 200
"""Text of conversations packs to a tenth or less, not to a five-hundredth."""
_ALWAYS_BYTES = 1 << 20
_ENCRYPTED = 1
"""The bit of a ZIP member that is encrypted."""
_REFUSALS = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError)
"""What ``zipfile`` raises for damage, unknown methods and passwords."""


def archive_members(name: str, archive: zipfile.ZipFile) -> Iterator[tuple[zipfile.ZipInfo, str | None]]:
    """The members that may hold conversations, each with the reason for its refusal or None.

    Raises:
        UnreadableSourceError: there are more than a thousand; raised after these.
    """
    wanted = [
        info
        for info in archive.infolist()
        if any(fnmatchcase(info.filename.rpartition("/")[2], pattern) for pattern in _WANTED) and not info.is_dir()
    ]
    for info in wanted[:_MOST_MEMBERS]:
        yield info, _why_not(info)
    if len(wanted) > _MOST_MEMBERS:
        raise UnreadableSourceError(path=name, reason=f"has more than {_MOST_MEMBERS:,} members with conversations")


@contextmanager
def open_member(name: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, stamp: Stamp) -> Iterator[FileSource]:
    """One member as a source.

    Raises:
        UnreadableSourceError: it is damaged, encrypted or too large.
    """
    called = f"{name}!{info.filename}"
    try:
        with archive.open(info) as stream, private_copy(called, stream, stamp, LONGEST_MEMBER_BYTES) as source:
            source.neighbours = _Members(archive, info.filename.rpartition("/")[0])
            yield source
    except _REFUSALS as error:
        why = f"cannot be unpacked: {error}"
        if info.flag_bits & _ENCRYPTED:
            why = "is encrypted: unpack it with its password, and import what comes out"
        raise UnreadableSourceError(path=called, reason=why) from error


class _Members:
    """The other members of an archive, as the files beside one of them."""

    def __init__(self, archive: zipfile.ZipFile, folder: str) -> None:
        self._archive, self._below = archive, f"{folder}/" if folder else ""

    def read(self, path: str, longest: int) -> tuple[bytes | None, None]:
        try:
            info = self._archive.getinfo(self._below + path)
            if info.file_size > longest or _why_not(info) is not None:
                return None, None
            with self._archive.open(info) as stream:
                found = stream.read(longest + 1)
        except (KeyError, *_REFUSALS):
            return None, None
        return (found if len(found) <= longest else None), None

    def names(self) -> Iterator[str]:
        for name in self._archive.namelist():
            if name.startswith(self._below) and not name.endswith("/"):
                yield name[len(self._below) :]


@contextmanager
def unpacked(name: str, handle: int, stamp: Stamp) -> Iterator[FileSource]:
    """A file packed with zstandard, as a source.

    Raises:
        UnreadableSourceError: it is damaged or too large, or the module ``zstandard`` is not installed.
    """
    try:
        import zstandard
    except ImportError:
        raise UnreadableSourceError(path=name, reason=f"is packed with zstandard: {install_command('zstd')}") from None
    try:
        with (
            os.fdopen(os.dup(handle), "rb") as packed,
            zstandard.ZstdDecompressor().stream_reader(packed) as stream,
            private_copy(name, cast("IO[bytes]", stream), stamp, LONGEST_MEMBER_BYTES) as source,
        ):
            yield source
    except zstandard.ZstdError as error:
        raise UnreadableSourceError(path=name, reason=f"cannot be unpacked: {error}") from error


def _why_not(info: zipfile.ZipInfo) -> str | None:
    if info.file_size > LONGEST_MEMBER_BYTES:
        return f"says that it unpacks to {info.file_size:,} bytes"
    if info.file_size > _ALWAYS_BYTES + info.compress_size * _HIGHEST_RATIO:
        return f"would unpack {info.compress_size:,} bytes to {info.file_size:,}"
    return None


@contextmanager
def archive(name: str, handle: int) -> Iterator[zipfile.ZipFile]:
    """An open archive. Its directory is read once, because a hostile one is long.

    Raises:
        UnreadableSourceError: it is damaged.
    """
    with os.fdopen(os.dup(handle), "rb") as file:
        try:
            found = zipfile.ZipFile(file)
        except _REFUSALS as error:
            raise UnreadableSourceError(path=name, reason=f"is not a readable ZIP archive: {error}") from error
        with found:
            yield found


# ---- tables ----
#
# A foreign SQLite database: rows by the names of columns; opened read-only, never locked for long, and not trusted.
#
# How it is opened depends on what a program that uses it, or was killed, left beside it:
#
# * a write-ahead log with its index (``-shm``): ``readonly_shm``. SQLite reads the newest rows, in one transaction, and writes nothing;
# * a write-ahead log alone, or a rollback journal that is in force: SQLite would have to write, so a private copy of the files is read.
# If SQLite refuses the first way, the same;
# * nothing, and the database is in WAL mode: SQLite would create files beside it. It is opened ``immutable``;
# * nothing, or a journal that is not in force: ``mode=ro``. SQLite's own shared lock keeps writers out while rows are read.

_WRITES_WITH_WAL = b"\x02"
_JOURNAL_MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
_FAILURES = (sqlite3.Error, UnicodeDecodeError)
"""What reading may raise. The second is a message of SQLite's that quotes a damaged schema."""
_LONGEST_VALUE_BYTES = 256 << 20
_REPLACED = "another file took its place while it was opened"
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
        self.unread: Mapping[str, object] = MappingProxyType({})
        """What the rows have that could not be read when the last error was raised."""

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
            self.unread = where
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
        UnreadableSourceError: it is damaged, or another file replaced it.
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
    """A connection to the database in its place; None if SQLite would have to write to it or beside it.

    Raises:
        UnreadableSourceError: a link, or another file that is not regular, is beside it.
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
            return None  # the index must be rebuilt, or the program has an exclusive lock
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
    with open_source(journal) as handle:
        return os.pread(handle, 1, 0) != b"\x00"


def _copied(path: str, folder: str, inode: int) -> str:
    """A copy of the database with this inode and the files beside it, all of one moment; regular files only.

    Raises:
        UnreadableSourceError: a writer never pauses, a link or another file is there, or a journal would affect other files.
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
    raise UnreadableSourceError(path=path, reason="another program keeps writing it; try again later")


def _copy_file(path: str, copy: str) -> Stamp:
    """Copy a file; return the stamp of the file that was read, which another may have replaced by now."""
    # Not a link to it: SQLite would follow that, and write where it leads. Not read through a second descriptor either: to close
    # one drops the locks of the process.
    with open_source(path) as handle, open(copy, "xb") as written:
        at = 0
        while piece := os.pread(handle, _PIECE_BYTES, at):
            written.write(piece)
            at += len(piece)
        return _stamp(os.fstat(handle))


def _refuse_super_journal(path: str, journal: str) -> None:
    """Refuse a rollback journal that names a super-journal, the journal of a commit over several databases.

    SQLite deletes that file after rolling back. It belongs to the database's program, or a forger chose its name.
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
        for pragma in ("query_only=ON", "cell_size_check=ON", "mmap_size=0"):
            connection.execute(f"PRAGMA {pragma}")
        # The schema is its author's: no function in it runs, and nothing writes. (trusted_schema=OFF would refuse a whole database
        # for an index on json_extract(), which a rowset by the names of columns never uses: Kilo's has one.)
        connection.set_authorizer(_allowed)
    except BaseException:
        connection.close()
        raise
    return connection


def _allowed(action: int, _first: str | None, function: str | None, _database: str | None, _inside: str | None) -> int:
    """Allow a statement to read, and to call nothing but ``count``, which checks for a schema."""
    if action == sqlite3.SQLITE_FUNCTION and function != "count":
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ATTACH else sqlite3.SQLITE_OK


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
