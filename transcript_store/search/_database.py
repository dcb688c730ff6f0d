"""Where is the file of an index, how is it opened, and how is damage detected?

It is derived and disposable. Whatever is wrong with it (another version, another library's, damaged, not to be read),
it is removed and rebuilt; if that is refused (locked, no space, a read-only directory), a temporary index replaces it
as long as the object lives. So a bad index costs time but never gives a wrong answer.

SQLite detects much damage, but not all: a flipped bit in a list of positions silently loses a hit. So a *checksum* is
stored beside the file while no process writes: its SHA-256, and its stamp. An open compares the stamp, and if that
differs the hash. A writer removes the checksum first, and writes a new one at the end. A missing checksum means that a
writer was killed, or is active. Then SQLite's own checks decide, unless a writer holds the lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from transcript_store.descriptors import close_unused, connected, descriptor
from transcript_store.new_files import give_to_owner, make_folders
from transcript_store.search._tokens import COLUMNS

VERSION = 9
_APPLICATION = 0x7473_6978  # "tsix"
_BUSY_MS = 250

_SCHEMA = """
CREATE TABLE about (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE conversation (
    n INTEGER PRIMARY KEY, folder TEXT UNIQUE NOT NULL, stamp TEXT NOT NULL,
    id TEXT, title TEXT, provider TEXT, model TEXT, created_at TEXT, updated_at TEXT, touched_at TEXT,
    record_count INTEGER,
    generation INTEGER, size_bytes INTEGER, damage TEXT, torn_bytes INTEGER, sealed INTEGER,
    -- Its indexed texts. A life ends when they are forgotten; its documents then refer to nothing.
    indexed TEXT NOT NULL DEFAULT '', life INTEGER UNIQUE, documents INTEGER NOT NULL DEFAULT 0,
    -- They range from first_document to last_document, with those of others in between after a later append.
    first_document INTEGER, last_document INTEGER,
    -- Its earlier generations from this number on were indexed; NULL before the live one was read to its end.
    earlier_from INTEGER,
    text_generation INTEGER, through_seq INTEGER, through_offset INTEGER, head TEXT,
    damaged INTEGER NOT NULL DEFAULT 0);
CREATE INDEX by_updated ON conversation (updated_at, n);
CREATE INDEX by_created ON conversation (created_at, n);
CREATE INDEX by_title ON conversation (title COLLATE NOCASE, n);
CREATE INDEX by_records ON conversation (record_count, n);
CREATE INDEX by_size ON conversation (size_bytes, n);
CREATE INDEX by_id ON conversation (id);
-- The index has none of their texts; every answer counts them.
CREATE INDEX by_sealed ON conversation (n) WHERE sealed = 1;
-- Nor records after damage.
CREATE INDEX by_damage ON conversation (n) WHERE damaged = 1;
-- Not indexed yet: every search asks, and usually there is nothing. (The condition is that of _indexing.PENDING.)
CREATE INDEX pending ON conversation (updated_at, n) WHERE (stamp = '' OR indexed <> stamp);
-- The numbers of conversations and messages: counting a million takes SQLite a hundred times as long as reading fifty.
INSERT INTO about VALUES ('conversations', 0), ('messages', 0);
CREATE TRIGGER counted AFTER INSERT ON conversation BEGIN UPDATE about SET value = value + 1 WHERE name = 'conversations'; END;
CREATE TRIGGER uncounted AFTER DELETE ON conversation BEGIN UPDATE about SET value = value - 1 WHERE name = 'conversations'; END;
CREATE TRIGGER uncounted_messages AFTER DELETE ON conversation BEGIN
    UPDATE about SET value = value - old.documents WHERE name = 'messages'; END;
CREATE TRIGGER counted_messages AFTER UPDATE OF documents ON conversation BEGIN
    UPDATE about SET value = value + new.documents - old.documents WHERE name = 'messages'; END;
CREATE TABLE label (n INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (n, name)) WITHOUT ROWID;
CREATE INDEX by_label ON label (name, value, n);
CREATE TABLE role (n INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL);
-- A message: the life of its conversation, its number, the offset of its line, its time (seconds), its role, and
-- half of its line's hash. One that is not live has a kind (1: on an abandoned branch, 2: of an earlier generation), and in an
-- earlier generation its number.
CREATE TABLE document (n INTEGER PRIMARY KEY, life INTEGER, seq INTEGER, offset INTEGER, at INTEGER, role INTEGER, head INTEGER,
    kind INTEGER NOT NULL DEFAULT 0, generation INTEGER);
CREATE INDEX beside ON document (kind) WHERE kind > 0;
-- The words, for searches by a part of one. After a build they come from FTS5; 'words' is 1 if they are complete.
CREATE TABLE word (text TEXT PRIMARY KEY) WITHOUT ROWID;
INSERT INTO about VALUES ('words', 1);
"""
# No text is kept (content=''): a hit is a position. The text is folded first, so every character here outside ASCII is
# part of a word. Only features of SQLite 3.40 are used.
_WORDS = f"""
CREATE VIRTUAL TABLE words USING fts5 ({", ".join(COLUMNS)}, content='',
    tokenize="unicode61 remove_diacritics 0 categories 'L* N* M* Co Cn'");
"""
_MERGED = (("hashsize", 2**24), ("automerge", 8))
"""Bytes kept in memory until a transaction ends, and pieces merged at a time: FTS5's defaults of 1 MB and 4 make a build
a third longer. (The file stores them.)"""

_BESIDE = ("-wal", "-shm", "-journal", ".seal", ".writing")


class DamagedIndexError(Exception):
    """The file is not the index that was written."""


def cache_folder() -> str:
    """The default directory for indexes: the user's cache directory."""
    caches = "Library/Caches" if sys.platform == "darwin" else ".cache"
    below = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), caches)
    return os.path.join(below, "transcript-store")


def path_in(folder: str, library: str, name: str = "search-{}.sqlite") -> str:
    """The path of a library's index: its name has a hash of the library's path and the identity of its directory."""
    try:
        status = os.stat(library)
        what = f"{status.st_dev}:{status.st_ino}"
    except OSError:
        what = "nothing"
    of = hashlib.sha256(os.fsencode(library) + b"\0" + what.encode()).hexdigest()[:32]
    return os.path.join(folder, name.format(of))


class Database:
    """A connection to an index, with its checksum and locks.

    Args:
        path: the file; None for a private index that is removed when it is closed.
        library: whose index it is.
    """

    def __init__(self, path: str | None, library: str) -> None:
        self.path = path
        self._library = library
        self._inode = 0
        self._writer: int | None = None  # the handle of the writers' lock, from the first write to the checksum
        self.has_words = True
        self.connection = self._connect()

    # ---- opening ------------------------------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        if self.path is not None:
            with suppress(OSError, sqlite3.Error):
                make_folders(os.path.dirname(self.path))
                try:
                    return self._opened(self.path)
                except (DamagedIndexError, sqlite3.DatabaseError) as error:
                    self._let_go()
                    # A locked index is not damaged, and belongs to a working process: it is never removed.
                    if not is_busy(error):
                        remove_index(self.path)
                        return self._opened(self.path)
            self._let_go()
            self.path = None
        return self._opened(None)

    def _opened(self, path: str | None) -> sqlite3.Connection:
        if path is not None:
            # SQLite gives its other files the permissions and the owner of this one.
            with descriptor(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW) as handle:
                give_to_owner(handle, os.path.dirname(path))
                status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise DamagedIndexError("it is not a file")
            self._inode = status.st_ino
            _require_files_beside(path)
            if status.st_size:
                self._check_seal(path)
        connection = connected(path or "", isolation_level=None, timeout=_BUSY_MS / 1000, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            # A power loss may cost the last transactions, which the next update adds again. So no transaction waits
            # for the disk.
            connection.execute("PRAGMA synchronous=NORMAL")
            # Another program could have written the file: functions in its schema must not run.
            connection.execute("PRAGMA trusted_schema=OFF")
            connection.execute("PRAGMA cache_size=-16000")
            if not _tables(connection):
                connection.execute("BEGIN IMMEDIATE")
                if not _tables(connection):
                    self._create(connection)
                connection.execute("COMMIT")
            self._require_ours(connection)
        except BaseException:
            connection.close()
            close_unused()
            raise
        return connection

    def _create(self, connection: sqlite3.Connection) -> None:
        for statement in _SCHEMA.split(";\n"):
            connection.execute(statement)
        with suppress(sqlite3.OperationalError):  # an SQLite without FTS5: every transcript is searched
            connection.execute(_WORDS)
            connection.executemany("INSERT INTO words (words, rank) VALUES (?, ?)", _MERGED)
        connection.execute("INSERT INTO about VALUES ('library', ?)", (os.fsencode(self._library),))
        connection.execute(f"PRAGMA application_id={_APPLICATION}")
        connection.execute(f"PRAGMA user_version={VERSION}")

    def _require_ours(self, connection: sqlite3.Connection) -> None:
        def one(statement: str) -> object:
            return (connection.execute(statement).fetchone() or (None,))[0]

        facts = (
            one("PRAGMA application_id"),
            one("PRAGMA user_version"),
            one("SELECT value FROM about WHERE name='library'"),
        )
        # The library too: a folder that was moved takes its identity along, and another one may be at its path.
        if facts != (_APPLICATION, VERSION, os.fsencode(self._library)):
            raise DamagedIndexError("it is of another version, or of another library")
        self.has_words = bool(one("SELECT count(*) FROM sqlite_master WHERE name='words'"))

    # ---- writing ------------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that writes; use ``with``. It is undone if the block raises.

        Raises:
            sqlite3.OperationalError: another process is writing, or the system refuses.
        """
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            # Removed inside the transaction, before the first change: killed from here on, the next open finds no
            # checksum and runs SQLite's own checks. Removed later, a half-written file could still match an old
            # checksum by its stat.
            self._unseal()
            yield self.connection
            self.connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self.connection.execute("ROLLBACK")
            raise

    def _unseal(self) -> None:
        if self.path is not None and self._writer is None:
            self._note_a_writer(self.path)
            with suppress(FileNotFoundError):
                os.unlink(f"{self.path}.seal")

    def _note_a_writer(self, path: str) -> None:
        handle = os.open(f"{path}.writing", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        give_to_owner(handle, os.path.dirname(path))
        # Shared: several writers may be open. A process that gets it exclusively knows that none is.
        fcntl.flock(handle, fcntl.LOCK_SH)
        self._writer = handle

    def _let_go(self) -> None:
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None

    def close(self) -> None:
        """Write the checksum, if this object wrote to the index and no other process is writing, and close it."""
        with suppress(OSError, sqlite3.Error):
            self._seal()
        self.connection.close()
        close_unused()
        self._let_go()

    def _seal(self) -> None:
        if self.path is None or self._writer is None:
            return
        # The checksum covers the main file only, so everything has to be in it.
        if self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            return  # a reader still uses the WAL; the next writer writes the checksum
        self.connection.execute("BEGIN IMMEDIATE")  # from here on no process writes
        fcntl.flock(
            self._writer, fcntl.LOCK_EX | fcntl.LOCK_NB
        )  # another writer is between two transactions: it will write the checksum
        # Another process may have found the file damaged and replaced it: that one does not get our checksum.
        if os.path.getsize(f"{self.path}-wal") == 0 and os.stat(self.path).st_ino == self._inode:
            seal = json.dumps({"looks": _looks(self.path), "sha256": _digest(self.path)})
            temporary = f"{self.path}.seal-{os.getpid()}"
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                give_to_owner(file.fileno(), os.path.dirname(self.path))
                file.write(seal)
            os.replace(temporary, f"{self.path}.seal")
        self.connection.execute("ROLLBACK")

    def _is_written(self) -> bool:
        """True if a writer is active, in this process or another."""
        with suppress(OSError), open(f"{self.path}.writing", "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _check_seal(self, path: str) -> None:
        while (seal := _seal_of(path)) is not None:
            # The stamp first: a hash of a large index takes seconds.
            if seal["looks"] == _looks(path) or seal["sha256"] == _digest(path):
                return
            if seal == _seal_of(path):  # and no process wrote meanwhile
                raise DamagedIndexError("its checksum does not match")
        # A writer removes the checksum first, so its absence is damage only where no writer is at work.
        if not self._is_written():
            _check_inside(path)
            self._note_a_writer(path)  # so that the checksum is written in the end

    def check(self) -> bool:
        """Read the whole index; True if it is intact."""
        try:
            seal = None if self.path is None else _seal_of(self.path)
            if self.path is not None and seal is not None and seal["sha256"] != _digest(self.path):
                return False
            return _is_whole(self.connection)
        except (DamagedIndexError, sqlite3.DatabaseError):
            return False


def _require_files_beside(path: str) -> None:
    """Refuse anything but a file where SQLite and we expect one: opening a pipe would block until its other end is opened."""
    for end in _BESIDE:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(path + end).st_mode):
                raise DamagedIndexError("a file of SQLite beside it is not a file")


def remove_index(path: str) -> None:
    """Remove an index with its other files."""
    for end in ("", *_BESIDE):
        with suppress(FileNotFoundError):
            os.unlink(path + end)


def _check_inside(path: str) -> None:
    """SQLite's own checks, for a file without a checksum: a writer was killed."""
    connection = connected(path, timeout=_BUSY_MS / 1000)
    try:
        if not _is_whole(connection):
            raise DamagedIndexError("SQLite finds damage in it")
    finally:
        connection.close()


def _is_whole(connection: sqlite3.Connection) -> bool:
    if connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
        return False
    if connection.execute("SELECT count(*) FROM sqlite_master WHERE name='words'").fetchone()[0]:
        connection.execute("INSERT INTO words (words) VALUES ('integrity-check')")  # raises if it is not
    return True


def _seal_of(path: str) -> dict[str, Any] | None:
    try:
        # A pipe at that path must not block.
        handle = os.open(f"{path}.seal", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            seal = json.loads(file.read(4096))
            return {"looks": seal["looks"], "sha256": seal["sha256"]}
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        raise DamagedIndexError("its checksum cannot be read") from None


def _tables(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def is_busy(error: BaseException) -> bool:
    """True if another process has the file locked; then it is not damaged."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_full(error: BaseException) -> bool:
    """True if SQLite had no space to write, here or for its temporary files."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


def _looks(path: str) -> list[int]:
    status = os.stat(path)
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _digest(path: str) -> str:
    with descriptor(path, os.O_RDONLY) as handle, open(handle, "rb", closefd=False) as file:
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()
