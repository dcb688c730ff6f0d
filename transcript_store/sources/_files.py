"""Somebody else's file, opened to read only (F1): a regular file, no link, and as long as it was when it was opened."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any, NamedTuple, Protocol

from transcript_store.descriptors import descriptor
from transcript_store.errors import TranscriptStoreError

_PIECE_BYTES = 1 << 20
_LONGEST_BESIDE_BYTES = 4 << 20
_OF_AN_EXPORT = ("conversation_asset_file_names.json", "export_manifest.json", "chat.html", "user.json")
"""One of these stands beside the conversations of an export that was unpacked."""
_DEEPEST_OF_AN_EXPORT = 4
_HELD_BYTES = 16 << 20
"""A source up to this size is read once, and held."""


class UnreadableSourceError(TranscriptStoreError):
    """A source at ``path`` cannot be read, or is not what a source may be. Nothing of it was imported."""

    path: str
    reason: str


class Stamp(NamedTuple):
    """By what a file is seen to have changed."""

    size: int
    mtime_ns: int
    inode: int


class FileSource:
    """A :class:`formats.Source` of an open file. What a writer adds after the opening is not in it.

    As :class:`formats.Tables` it has none: whoever names a wrong format gets no session.
    """

    def __init__(self, name: str, handle: int, *, folder: str | None = None) -> None:
        status = os.fstat(handle)
        self.neighbours: Neighbours | None = None if folder is None else _Folder(folder)
        """What stands beside it; None if that is not known."""
        self.seen_beside: dict[str, tuple[int, int, int] | None] = {}
        """The files of its folder that :meth:`beside` was asked for, each with its size, mtime and inode as it was then; None if there was
        none."""
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
        """Whether what was read may be of several moments, or is not all: somebody wrote to it, or cut it, since it was opened."""
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
        """What a small file beside this one holds; ``path`` is relative to this one's folder. Of a member of an archive: another member.

        None if there is none, if it is no regular file, or if it is longer than ``longest``.
        """
        if self.neighbours is None:
            return None
        found, looks = self.neighbours.read(path, longest)
        if looks is not None:
            self.seen_beside[looks[0]] = looks[1]
        return found

    def names_beside(self) -> Iterator[str]:
        """The paths of files that stand beside this one and below its folder, relative to it, as far as they are a part of one export."""
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
        """Of all its bytes, in hex; None if somebody changed or cut them since they were read.

        What a writer added behind them is no change. It moves the time of a large file, so then the sum of what stands there now is
        compared with that of the first reading.
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
        try:
            with opened(there) as handle:
                size = os.fstat(handle).st_size
                return (None if size > longest else os.pread(handle, size, 0)), looks
        except (UnreadableSourceError, OSError, ValueError):
            return None, looks

    def names(self) -> Iterator[str]:
        if not any(os.path.lexists(os.path.join(self._folder, name)) for name in _OF_AN_EXPORT):
            return  # a folder of downloads, say
        for path, folders, files in os.walk(self._folder):
            below = os.path.relpath(path, self._folder)
            if below.count(os.sep) >= _DEEPEST_OF_AN_EXPORT:
                folders.clear()
            yield from (os.path.normpath(os.path.join(below, name)) for name in files)


def how_it_looks(path: str) -> tuple[int, int, int] | None:
    """The size, the mtime and the inode of what stands at a path; None if nothing does, or if the system refuses."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


@contextmanager
def opened(path: str) -> Iterator[int]:
    """A handle to read a regular file with; a link, a FIFO or a device is refused, and not opened.

    Raises:
        UnreadableSourceError: it is not there, no regular file, or the system refuses.
    """
    with ExitStack() as stack:
        try:
            require_regular(path, os.lstat(path))
            # Between the look and the opening somebody may put something else there: then O_NOFOLLOW refuses a link,
            # O_NONBLOCK does not wait at a FIFO, and the second look refuses whatever else it is.
            handle = stack.enter_context(descriptor(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK))
        except OSError as error:
            raise UnreadableSourceError(path=path, reason=f"cannot be opened: {error.strerror}") from error
        require_regular(path, os.fstat(handle))
        yield handle


@contextmanager
def private_copy(name: str, stream: IO[bytes], stamp: Stamp, limit: int) -> Iterator[FileSource]:
    """What a stream holds, as a source: a file without a name that nobody else can open.

    Raises:
        UnreadableSourceError: there is more than ``limit`` bytes.
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
    """Raise ``UnreadableSourceError`` unless what was looked at is a regular file."""
    if not stat.S_ISREG(status.st_mode):
        what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no regular file"
        raise UnreadableSourceError(path=path, reason=f"is {what}, and is not opened")
