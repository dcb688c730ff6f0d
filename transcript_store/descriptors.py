"""Descriptors of a file that SQLite may have open in this process.

When a process closes any descriptor of a file, POSIX takes away all locks that it has on that file (sqlite.org/howtocorrupt.html,
2.2). A plain open and close beside a connection of SQLite's leaves that without its locks. Another process then takes itself for the
last one and removes the write-ahead log, and the database ends malformed. So a descriptor from here is closed only when nothing else
in this process has the file open; until then it is kept, and used again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

__all__ = ["close_unused", "connected", "descriptor"]

_File = tuple[int, int]
_mutex = Lock()
_kept: dict[int, _File] = {}
"""Descriptors that nobody uses, and that may not be closed yet, with the device and inode of their files."""
_used: dict[int, _File] = {}
os.register_at_fork(before=_mutex.acquire, after_in_parent=_mutex.release, after_in_child=_mutex.release)


def connected(path: str, **options: Any) -> sqlite3.Connection:
    """``sqlite3.connect``, in no moment in which a descriptor of the same file is looked for and closed."""
    with _mutex:
        connection: sqlite3.Connection = sqlite3.connect(path, **options)
    return connection


@contextmanager
def descriptor(path: str, flags: int, mode: int = 0o600) -> Iterator[int]:
    """A descriptor of a regular file, for the block. It may have been open before, so its offset is anywhere.

    Raises:
        OSError: the system refuses to open it.
    """
    handle = _opened(path, flags, mode)
    try:
        yield handle
    finally:
        with _mutex:
            _kept[handle] = _used.pop(handle)
        close_unused()


def close_unused() -> None:
    """Close the descriptors that were kept of files that nothing else in this process has open: call it when a connection was closed."""
    with _mutex:
        if not _kept:
            return
        others = _open_elsewhere()
        for handle, file in [*_kept.items()]:
            if others is not None and file not in others:
                os.close(handle)
                del _kept[handle]


def _opened(path: str, flags: int, mode: int) -> int:
    with _mutex:
        with suppress(OSError):
            status = os.lstat(path)
            for handle, file in _kept.items():
                if file == (status.st_dev, status.st_ino):
                    _used[handle] = _kept.pop(handle)
                    return handle
        handle = os.open(path, flags | os.O_CLOEXEC, mode)
        status = os.fstat(handle)
        _used[handle] = status.st_dev, status.st_ino
        return handle


def _open_elsewhere() -> set[_File] | None:
    """The files of which this process has descriptors besides those from here; None where the system does not list them."""
    try:
        listed = os.listdir("/dev/fd")
    except OSError:
        return None
    found = set()
    for name in listed:
        handle = int(name)
        if handle not in _kept and handle not in _used:
            with suppress(OSError):  # that of the list itself
                status = os.fstat(handle)
                found.add((status.st_dev, status.st_ino))
    return found
