"""What does the store need from a file system?

:class:`FileSystem` is all of it: a few calls on handles and names, each of which maps to one system call.
``filesystem.PosixFileSystem`` is the real one; ``transcript_store.testing.SimulatedFileSystem`` is a disk that can lose
power. Names are always single components below a directory handle, so a name cannot leave its directory, and links are
never followed there: only the user's own path, opened without a parent, may go through symlinks.

Every method raises the ``OSError`` of its call. The caller decides what the error means.
"""

from __future__ import annotations

from typing import Protocol


class FileStatus(Protocol):
    """The result of ``status``: the members of ``os.stat_result`` that the store uses."""

    @property
    def st_mode(self) -> int: ...
    @property
    def st_dev(self) -> int: ...
    @property
    def st_ino(self) -> int: ...
    @property
    def st_nlink(self) -> int: ...
    @property
    def st_size(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...


class FileSystem(Protocol):
    """The machine below the store. A handle is an int, as a file descriptor is.

    Raises:
        FileNotFoundError: the name does not exist.
        FileExistsError: a name exists that ``create``, ``make_directory`` or ``link`` is to create.
        NotADirectoryError: a file is where ``open_directory`` expects a directory.
        OSError: the system refused, and ``errno`` says why; the store makes a ``StorageError`` of it.
    """

    def open_directory(self, path: str, parent: int | None = None) -> int:
        """Open a directory. With a ``parent``, ``path`` is a name in it and must not be a link."""
        ...

    def open_read(self, parent: int, name: str) -> int:
        """Open an existing file to read. Never waits, not even for a FIFO."""
        ...

    def open_append(self, parent: int, name: str) -> int:
        """Open an existing file to read it and to write at its end."""
        ...

    def create(self, parent: int, name: str) -> int:
        """Create a file that must not exist, mode 0600 whatever the umask; opened as by ``open_append``."""
        ...

    def close(self, handle: int) -> None: ...

    def make_directory(self, parent: int, name: str) -> None:
        """Create a directory that must not exist, mode 0700 whatever the umask."""
        ...

    def list_directory(self, handle: int) -> list[str]:
        """The current names in an open directory, not those from when it was opened."""
        ...

    def status(self, parent: int, name: str) -> FileStatus:
        """The status of a name; a link is not followed."""
        ...

    def handle_status(self, handle: int) -> FileStatus: ...

    def path_status(self, path: str) -> FileStatus:
        """The status of a path, through all links; as ``open_directory`` without a parent, but nothing is opened."""
        ...

    def read(self, handle: int, offset: int, length: int) -> bytearray:
        """Read up to ``length`` bytes; fewer only at the end of the file."""
        ...

    def write(self, handle: int, data: bytes | bytearray | memoryview) -> int:
        """Write at the end of the file; returns how many bytes were written, which may be fewer."""
        ...

    def truncate(self, handle: int, size: int) -> None: ...

    def sync(self, handle: int) -> None:
        """Write a file's data and size, or a directory's names, to disk."""
        ...

    def sync_data(self, handle: int) -> None:
        """Write a file's data, and the size needed to read it, to disk."""
        ...

    def can_sync_all(self, handle: int) -> bool:
        """True if ``sync_all`` is reliable on the file system of this directory."""
        ...

    def sync_all(self, handle: int) -> None:
        """Write everything on a directory's file system to disk, as ``sync`` of each file and directory would.

        It fails if that failed for any of it, or if anything failed since the directory was opened: so open it before
        you write.
        """
        ...

    def drop_cache(self, handle: int) -> None:
        """Drop the file's cached clean bytes, and let ``read`` read from disk until the next ``sync_data``.

        That holds too if another process has the file mapped, so that its pages stay in the cache.
        """
        ...

    def rename(self, parent: int, old: str, new: str) -> None:
        """Give a file or directory of this directory another name, atomically.

        A file replaces a file of that name. A directory replaces only an empty directory.
        """
        ...

    def link(self, parent: int, name: str, to_parent: int, to_name: str) -> None:
        """Give a file a second name, which must not exist."""
        ...

    def unlink(self, parent: int, name: str) -> None: ...

    def remove_directory(self, parent: int, name: str) -> None:
        """Remove a directory, which must be empty."""
        ...

    def try_lock(self, handle: int) -> bool:
        """Take the kernel's exclusive lock on an open file; False if another process, or another open, has it."""
        ...

    def unlock(self, handle: int) -> None: ...

    def wait(self, seconds: float) -> None: ...

    def now_us(self) -> int:
        """The clock: microseconds since 1970 in UTC. It may jump."""
        ...

    def random_bytes(self, count: int) -> bytes: ...

    def process_id(self) -> int: ...

    def host_name(self) -> str: ...

    def boot_id(self) -> str:
        """A text that no other boot of this or any kernel has: when it changes, the caches were lost. Empty if unknown."""
        ...
