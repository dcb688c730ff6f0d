"""Errors of the operating system → :class:`StorageError`, through :func:`refused`, at the border where files are touched."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from transcript_store._os.filesystem import Status
from transcript_store.errors import StorageError

_WAYS_OUT = {
    errno.ENOSPC: "free some space and try again",
    errno.EDQUOT: "free some of the quota and try again",
    errno.EFBIG: "the file would exceed the largest size allowed here",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "check the owner and the permissions",
    errno.EPERM: "check the owner, the permissions and the file's attributes (lsattr)",
    errno.EMFILE: "the process has too many files open",
    errno.ENFILE: "the machine has too many files open",
    errno.ENOLCK: "the file system has no locks (a network file system?)",
    errno.EIO: "the disk may be failing",
    errno.ELOOP: "a symbolic link stands where a file of ours should be",
    errno.ENOTDIR: "a file stands there, or where a folder above it should be",
    errno.ENAMETOOLONG: "the name is too long for this file system",
}


_READS_ON = {errno.EROFS: "read_only=True still reads", errno.EACCES: "read_only=True needs only to read"}
"""What is left to who opens a conversation to write."""


def refused(
    error: OSError, path: str, doing: str, consequence: str = "", *, can_read_only: bool = False
) -> StorageError:
    """Translate an error of the operating system: what was refused, what holds all the same, and the way out.

    ``can_read_only`` is for a conversation that is opened to write, and could be opened with ``read_only=True``.
    """
    number = error.errno or errno.EIO
    way_out = _WAYS_OUT.get(number)
    if can_read_only and number in _READS_ON:
        way_out = f"{way_out}; {_READS_ON[number]}"
    what = error.reason if isinstance(error, NotOursError) else os.strerror(number)
    message = f"{path}: cannot {doing}: {what}" + (f"; {way_out}" if way_out else "")
    return StorageError(number, message + (f". {consequence}" if consequence else ""), path)


@contextmanager
def refusals(path: str, doing: str, consequence: str = "", *, can_read_only: bool = False) -> Iterator[None]:
    """Translate errors of the operating system in a block."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise refused(error, path, doing, consequence, can_read_only=can_read_only) from error


class SyncFailedError(OSError):
    """A sync was refused: what the medium holds is not known any more."""


class NotOursError(OSError):
    """A name holds something other than what we would have put there; ``reason`` says what."""

    def __init__(self, status: Status) -> None:
        self.reason = f"{kind_of(status)} stands where something of ours should be"
        super().__init__(errno.EEXIST, self.reason)


def kind_of(status: Status) -> str:
    """What a directory entry is, in words."""
    mode = status.st_mode
    for test, word in (
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISREG, "a file"),
    ):
        if test(mode):
            return word
    return "a device"
