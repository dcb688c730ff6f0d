"""How is a file written under a temporary name until it is whole? The next writer removes a killed writer's leftovers.

A writer holds ``flock`` on its file, which the kernel releases when the process ends. On a file system without locks,
leftovers stay.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOBase
from typing import BinaryIO

__all__ = ["require_binary", "temporary"]

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


def require_binary(output: object) -> None:
    """Raise ``TypeError`` for a stream of text, before the first byte goes there."""
    if isinstance(output, TextIOBase):
        raise TypeError("output must be a path or a binary stream, but this is a text stream: pass its .buffer")
