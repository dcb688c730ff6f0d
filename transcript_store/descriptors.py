"""How is a file read that SQLite may have open in this process?

When a process closes any descriptor of a file, POSIX releases all its locks on that file (sqlite.org/howtocorrupt.html,
2.2). An open and a close beside a connection of SQLite removes the connection's locks. Then other processes write into
its transaction, or believe to be the last one and remove the write-ahead log, and the database becomes malformed. So
the users of a database share a descriptor. It is closed only when it has no user and nothing else in this process has
the file open.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

__all__ = ["DATABASE", "close_unused", "connected", "descriptor", "is_open_elsewhere"]

DATABASE = b"SQLite format 3\x00"
"""The first bytes of a database. A new one is empty."""

_mutex = Lock()
_users: dict[int, int] = {}
"""How many users each descriptor of a database has. One that has none may not be closed yet."""
os.register_at_fork(before=_mutex.acquire, after_in_parent=_mutex.release, after_in_child=_mutex.release)


def connected(path: str, **options: Any) -> sqlite3.Connection:
    """``sqlite3.connect``, never while a descriptor of the same file is being searched for or closed."""
    with _mutex:
        connection: sqlite3.Connection = sqlite3.connect(path, **options)
    return connection


@contextmanager
def descriptor(path: str, flags: int, mode: int = 0o600) -> Iterator[int]:
    """A descriptor to read a file with, for the block. It may have been open before, so its offset is undefined.

    Raises:
        OSError: the system refuses to open it.
    """
    handle = _in_use(path)
    if handle is None:
        handle = os.open(path, flags | os.O_CLOEXEC, mode)
        with suppress(OSError):  # an unreadable file is not a database
            if os.pread(handle, len(DATABASE), 0) in (b"", DATABASE):
                with _mutex:
                    _users[handle] = 1
    try:
        yield handle
    finally:
        if handle in _users:
            with _mutex:
                _users[handle] -= 1
            close_unused()
        else:
            os.close(handle)


def close_unused() -> None:
    """Close the descriptors without users, of files that nothing else here has open: call it when a connection was closed."""
    with _mutex:
        unused = [handle for handle, users in _users.items() if not users]
        others = _open_elsewhere() if unused else None
        for handle in unused:
            if others is not None and _file(os.fstat(handle)) not in others:
                del _users[handle]
                os.close(handle)


def is_open_elsewhere(status: os.stat_result) -> bool:
    """True if this process has a descriptor of a file from other code, or if the system does not list descriptors."""
    others = _open_elsewhere()
    return others is None or _file(status) in others


def _in_use(path: str) -> int | None:
    """An open descriptor of the file at a path, to be shared; None if there is none."""
    with _mutex, suppress(OSError):
        status = os.lstat(path) if _users else None
        for handle in _users:
            if status is not None and os.path.samestat(os.fstat(handle), status):
                _users[handle] += 1
                return handle
    return None


def _open_elsewhere() -> set[tuple[int, int]] | None:
    try:
        listed = os.listdir("/dev/fd")
    except OSError:
        return None
    found = set()
    for handle in map(int, listed):
        if handle not in _users:
            with suppress(OSError):  # that of the list itself
                found.add(_file(os.fstat(handle)))
    return found


def _file(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
