"""What does an error of the operating system mean for the caller? :func:`storage_error` makes a :class:`StorageError`
of it.
"""

from __future__ import annotations

import errno
import os
import stat

from transcript_store._os.filesystem import FileStatus
from transcript_store.errors import StorageError
from transcript_store.hints import Hint, hint_of_errno

_OPENED_TO_WRITE = {errno.EROFS: Hint.OPEN_TO_READ, errno.EACCES: Hint.CHECK_PERMISSIONS_OR_READ}
"""For a conversation that is opened to write: it is still readable."""
NOT_ITS_FAULT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""The process lacks something. That says nothing about the file, so no caller may report it as damaged, or skip it."""


def storage_error(
    error: OSError,
    path: str,
    doing: str,
    consequence: str = "",
    hint: Hint | None = None,
    *,
    can_read_only: bool = False,
) -> StorageError:
    """Translate an error of the operating system: what was refused (``doing``), what still holds, and a hint.

    Without a ``hint`` it is the one for the error's number. ``can_read_only`` is for a conversation that is opened to
    write, and could be opened with ``read_only=True``.
    """
    number = error.errno or errno.EIO
    usual = _OPENED_TO_WRITE.get(number) if can_read_only else None
    return StorageError(
        errno=number,
        strerror=error.reason if isinstance(error, NotOursError) else os.strerror(number),
        path=path,
        doing=doing,
        consequence=consequence,
        hint=hint or usual or hint_of_errno(number),
    )


class refusals:  # noqa: N801  # a block, as contextlib.suppress
    """Translate errors of the operating system in a block.

    Not a generator: a call of a shared writer has three such blocks, and a generator takes four times as long.
    """

    __slots__ = ("_can_read_only", "_context")

    def __init__(
        self,
        path: str,
        doing: str,
        consequence: str = "",
        hint: Hint | None = None,
        *,
        can_read_only: bool = False,
    ) -> None:
        self._context = path, doing, consequence, hint
        self._can_read_only = can_read_only

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise storage_error(error, *self._context, can_read_only=self._can_read_only) from error


class SyncFailedError(OSError):
    """A sync was refused: the content of the disk is no longer known."""


class NotOursError(OSError):
    """Something else exists under a name that is ours; ``reason`` says what."""

    def __init__(self, status: FileStatus) -> None:
        self.reason = f"{kind_of(status)} is in the place of a file of ours"
        super().__init__(errno.EEXIST, self.reason)


def kind_of(status: FileStatus) -> str:
    """The kind of a directory entry, in words."""
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
