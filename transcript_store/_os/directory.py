"""How are files in a directory read, and replaced atomically? The directory is held open.

Errors of the operating system pass through; :func:`storage_error` translates them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

from transcript_store._os.filesystem import FileStatus, FileSystem, NotOursError, SyncFailedError
from transcript_store._os.names import is_temporary, temporary_name

_ATTEMPTS = 10
_WRITTEN_AT_A_TIME_BYTES = 1 << 24
"""The size of the chunks that are written after a short write: each one is copied."""


class OpenFile(NamedTuple):
    """An open file: a function that reads up to so many bytes from an offset, fewer only at its end; and its status at
    the open.
    """

    handle: int
    read: Callable[[int, int], bytearray]
    status: FileStatus

    @property
    def size(self) -> int:
        return self.status.st_size


class Folder:
    """A directory that is held open, with the path it was opened by for messages."""

    def __init__(self, files: FileSystem, path: str, handle: int) -> None:
        self.files = files
        self.path = path
        self.handle = handle
        self._inode: tuple[int, int] | None = None
        """The directory's identity, once it was needed: as long as it is open, no other one can have it."""

    @classmethod
    def open(cls, files: FileSystem, path: str) -> Folder:
        """Open an existing directory; raises the plain ``OSError``: each caller distinguishes the cases."""
        return cls(files, path, files.open_directory(path))

    @classmethod
    def make(cls, files: FileSystem, path: str) -> Folder:
        """Open a directory, creating it and its missing parents; on return its whole path survives a power cut.

        Existing parents are synced too: an earlier attempt may have created them and ended before it synced them.
        """
        missing: list[str] = []
        existing = path
        while True:
            try:
                folder = cls.open(files, existing)
                break
            except FileNotFoundError:
                existing, name = os.path.split(existing)
                if not name:
                    raise
                missing.append(name)
        try:
            while missing:
                name = missing.pop()
                with folder:
                    folder = folder.subfolder(name, create=True)
            device = files.handle_status(folder.handle).st_dev
            # All parents are synced, also existing ones: another process may have created them, and died before its
            # sync.
            while existing != os.path.dirname(existing):
                existing = os.path.dirname(existing)
                # We created no names in a parent that we may not read, nor in one that holds a mount point.
                with suppress(PermissionError), cls.open(files, existing) as parent:
                    if files.handle_status(parent.handle).st_dev != device:
                        break
                    parent.sync()
        except BaseException:
            with suppress(OSError):
                folder.close()
            raise
        return folder

    def subfolder(self, name: str, *, create: bool = False) -> Folder:
        """Open a directory in this one; with ``create``, create it if it is missing, and sync its name.

        Raises ``NotOursError`` if something other than a directory has that name.
        """
        if create:
            with suppress(FileExistsError):
                self.files.make_directory(self.handle, name)
            self.sync()
        status = self.files.status(self.handle, name)
        # Never through a link: a planted link would lead writes elsewhere.
        if not stat.S_ISDIR(status.st_mode):
            raise NotOursError(status)
        return Folder(self.files, self.path_of(name), self.files.open_directory(name, self.handle))

    def parent(self) -> Folder:
        """Open the parent directory, whatever links the path goes through."""
        return Folder(self.files, os.path.dirname(self.path), self.files.open_directory("..", self.handle))

    def take_over(self, other: Folder) -> None:
        """Take over the directory that another object holds open."""
        self.path = other.path
        self.handle, other.handle, self._inode = other.handle, self.handle, None
        other.close()  # the one that was ours; a close that fails closes it too

    def close(self) -> None:
        handle, self.handle = self.handle, -1
        if handle >= 0:
            self.files.close(handle)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, raised: object, *_: object) -> None:
        try:
            self.close()
        except OSError:
            if raised is None:  # an error of the block (a failed sync, for example) matters more
                raise

    def is_at_its_path(self) -> bool:
        """True if the path still leads to the directory that is held open."""
        try:
            there = self.files.path_status(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if self._inode is None:
            self._inode = identity(self.files.handle_status(self.handle))
        return identity(there) == self._inode

    def path_of(self, name: str) -> str:
        return (
            f"{self.path}{name}" if self.path.endswith("/") else f"{self.path}/{name}"
        )  # a call of a shared writer checks it three times

    def names(self) -> list[str]:
        return sorted(self.files.list_directory(self.handle))

    def status(self, name: str) -> FileStatus | None:
        """The status of a name; None if it does not exist."""
        try:
            return self.files.status(self.handle, name)
        except FileNotFoundError:
            return None

    def open_file(self, name: str, *, to_append: bool = False) -> tuple[int, FileStatus]:
        """Open a regular file; returns its handle and its status.

        Raises ``NotOursError`` for anything else at that name, ``FileNotFoundError`` if it does not exist.
        """
        status = self.files.status(self.handle, name)
        if not stat.S_ISREG(status.st_mode):
            raise NotOursError(status)
        handle = self.files.open_append(self.handle, name) if to_append else self.files.open_read(self.handle, name)
        try:
            opened = self.files.handle_status(handle)
            if not stat.S_ISREG(opened.st_mode):  # swapped between the two calls
                raise NotOursError(opened)
        except BaseException:
            with suppress(OSError):
                self.files.close(handle)
            raise
        return handle, opened

    def read_file(self, name: str) -> bytes | None:
        """A whole small file, None if it does not exist; raises ``NotOursError`` as :meth:`open_file` does."""
        try:
            with self.reading(name) as source:
                return bytes(source.read(0, source.size))
        except FileNotFoundError:
            return None

    @contextmanager
    def reading(self, name: str) -> Iterator[OpenFile]:
        """Open a file of any size to read parts of it; raises what :meth:`open_file` does."""
        handle, status = self.open_file(name)
        try:
            yield OpenFile(handle, partial(self.files.read, handle), status)
        except BaseException:
            with suppress(OSError):
                self.files.close(handle)
            raise
        self.files.close(handle)

    def write_all(self, handle: int, data: bytes | bytearray) -> None:
        """Write everything. After a short write the rest is written again, which raises the error that made it short."""
        done = self.files.write(handle, data)
        while done < len(data):
            done += self.files.write(handle, bytes(data[done : done + _WRITTEN_AT_A_TIME_BYTES]))

    def write_temporary(self, chunks: Iterable[bytes | bytearray]) -> tuple[str, int]:
        """Write and sync a file under a temporary name; returns the name and the open handle."""
        name = temporary_name(self.files)
        handle = self._write_new(name, chunks)
        try:
            self.sync(handle)
        except BaseException:
            with suppress(OSError):
                self.files.close(handle)
            self.discard(name)
            raise
        return name, handle

    def write_new(self, name: str, chunks: Iterable[bytes | bytearray]) -> None:
        """Write a file that must not exist, in a folder that no other process uses yet. It is not synced."""
        self.files.close(self._write_new(name, chunks))

    def _write_new(self, name: str, chunks: Iterable[bytes | bytearray]) -> int:
        handle = self.files.create(self.handle, name)
        try:
            for chunk in chunks:
                self.write_all(handle, chunk)
        except BaseException:
            with suppress(OSError):
                self.files.close(handle)
            self.discard(name)
            raise
        return handle

    def replace_file(self, name: str, chunks: Iterable[bytes | bytearray]) -> None:
        """Write a file under a name atomically: temporary file, write, sync, rename, sync the directory.

        When it returns, the new content survives a power cut. When it raises, or the power is cut before, the name has
        its old content or its new one.
        """
        temporary, handle = self.write_temporary(chunks)
        try:
            self.files.close(handle)
            # The temporary file is synced: a rename before the sync could leave an empty file after a power cut.
            self.files.rename(self.handle, temporary, name)
        except BaseException:
            self.discard(temporary)
            raise
        self.sync()

    def sync(self, handle: int | None = None) -> None:
        """Sync a file of this directory, or without a handle the directory's names; raises ``SyncFailedError``."""
        try:
            self.files.sync(self.handle if handle is None else handle)
        except OSError as error:
            raise SyncFailedError(error.errno, error.strerror) from error

    def sync_all(self) -> None:
        """Sync the whole file system, of which this directory was opened before anything was written."""
        try:
            self.files.sync_all(self.handle)
        except OSError as error:
            raise SyncFailedError(error.errno, error.strerror) from error

    def sync_to_copy(self, handle: int | None = None) -> None:
        """The same for a reader that copies what another process wrote and may not have synced."""
        try:
            self.sync(handle)
        except SyncFailedError as error:
            # A read-only file system (squashfs) has nothing to sync, and reports that as an error.
            if error.errno != errno.EINVAL:
                raise

    def discard(self, name: str) -> None:
        """Remove an unneeded file, if the system allows it."""
        with suppress(OSError):
            self.files.unlink(self.handle, name)

    def remove_tree(self, name: str) -> None:
        """Remove a name with everything in it. Another process may remove it at the same time."""
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR(self.files.status(self.handle, name).st_mode):
                self.files.unlink(self.handle, name)
                return
            # Depth first; a few attempts, because a late process may add a file between the listing and the removal.
            for attempt in range(_ATTEMPTS):
                with self.subfolder(name) as folder:
                    for entry in folder.names():
                        folder.remove_tree(entry)
                try:
                    self.files.remove_directory(self.handle, name)
                    return
                except OSError as error:
                    # A process that opened it before it was moved away may create a lock in it.
                    if error.errno != errno.ENOTEMPTY or attempt + 1 == _ATTEMPTS:
                        raise

    def sweep(self, *subfolders: str) -> None:
        """Remove what an earlier process left under temporary names, if the system allows it. The caller holds the lock.

        Existing subfolders are swept too.
        """
        with suppress(OSError):
            for name in self.names():
                if name in subfolders:
                    with suppress(OSError), self.subfolder(name) as subfolder:
                        subfolder.sweep()
                # Only our own pattern: everything else in the folder belongs to others.
                elif name.startswith(".") and is_temporary(name):
                    self.discard(name)


def identity(status: FileStatus) -> tuple[int, int]:
    """The identity of a file: its device and its inode."""
    return status.st_dev, status.st_ino
