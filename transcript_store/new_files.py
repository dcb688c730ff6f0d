"""How is a file or folder created? It is whole before it has its name, and belongs to the owner of the folder it is in.

A writer of a temporary file holds ``flock`` on it, which the kernel releases when the process ends. The next writer
removes a killed writer's leftovers. On a file system without locks, leftovers stay.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOBase
from typing import BinaryIO

__all__ = ["ROOT", "give_to_owner", "make_folder", "make_folders", "replace_file", "require_binary", "temporary"]

ROOT = 0
_ENDS = re.compile(r"[0-9a-f]{16}\.tmp")


@contextmanager
def temporary(folder: str, begins: str) -> Iterator[tuple[BinaryIO, str]]:
    """A new file in a folder, 0600, open for writing, and its path, which starts as given; within the block it is locked.

    Leftovers with the same name and no writer are removed before. At the end of the block the path is removed, unless
    it was renamed. The caller renames the file within the block: after it another writer takes it for a leftover.

    Raises:
        OSError: the system refuses.
    """
    _remove_what_was_left(folder, begins)
    path = os.path.join(folder, f"{begins}{os.urandom(8).hex()}.tmp")
    with os.fdopen(_begun(path), "wb") as file:
        try:
            yield file, path
        finally:
            with suppress(OSError):
                os.unlink(path)


def _begun(path: str) -> int:
    """The new file, open and locked."""
    while True:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        give_to_owner(handle, os.path.dirname(path))
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)  # before it was locked another writer took it for a leftover, and removed it


def _remove_what_was_left(folder: str, begins: str) -> None:
    for name in os.listdir(folder):
        if not (name.startswith(begins) and _ENDS.fullmatch(name, len(begins))):
            continue
        with suppress(OSError):  # another writer's file, or already removed
            handle = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a killed writer's lock is released with it
                os.unlink(os.path.join(folder, name))
            finally:
                os.close(handle)


def replace_file(path: str, data: bytes) -> None:
    """Replace the file at a path with these bytes, and create its folder if it is missing. It is not synced.

    Raises:
        OSError: the system refuses; the earlier file is intact.
    """
    folder, name = os.path.split(path)
    make_folders(folder)
    with temporary(folder, f"{name}.") as (file, written):
        file.write(data)
        file.flush()
        os.rename(written, path)


def make_folders(folder: str) -> None:
    """Create a folder, and those above it that are missing, 0700. It may be there already.

    Raises:
        OSError: the system refuses.
    """
    if not os.path.isdir(folder or os.curdir):
        make_folders(os.path.dirname(folder))
        with suppress(FileExistsError):  # another process was faster; if it is no folder, what is written there fails
            make_folder(folder)


def make_folder(folder: str) -> None:
    """Create one folder, 0700.

    Raises:
        OSError: the system refuses, or something of that name is there.
    """
    os.mkdir(folder, 0o700)
    if os.geteuid() == ROOT:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            give_to_owner(handle, os.path.dirname(folder) or os.curdir)
        finally:
            os.close(handle)


def give_to_owner(handle: int, folder: str | int) -> None:
    """Give the new file or folder of a handle to the owner of the folder it is in, if root created it.

    Else one ``sudo`` would lock a user out of his own files. (SQLite does the same with the files beside a database.)
    What is not empty, or a file with another name, is not new: a user may have put it there, to get it from root.
    """
    status = os.fstat(handle)
    if status.st_uid != ROOT:
        return
    with suppress(OSError):  # a container without the right to do so, a file system without owners
        owner = os.stat(folder)
        is_new = not os.listdir(handle) if stat.S_ISDIR(status.st_mode) else (status.st_size, status.st_nlink) == (0, 1)
        if owner.st_uid != ROOT and is_new:
            os.fchown(handle, owner.st_uid, owner.st_gid)


def require_binary(output: object) -> None:
    """Raise ``TypeError`` for a stream of text, before the first byte goes there."""
    if isinstance(output, TextIOBase):
        raise TypeError("output must be a path or a binary stream, but this is a text stream: pass its .buffer")
