"""One directory, held open: files in it are read, replaced atomically, quarantined and locked here.

Errors of the operating system become ours at this border and in ``_log.py``, through :func:`refused`.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import orjson

from transcript_store._log.record import format_time
from transcript_store._os.filesystem import FileSystem, Status
from transcript_store.errors import ConversationLockedError, StorageError

LOCK = "lock"
_TEMPORARY = re.compile(r"\.tmp-[0-9a-f]{32}")
_TRASH = re.compile(r"\.trash-[0-9a-f]{32}")
_POLL_SECONDS = 0.02
_ATTEMPTS = 10
_FIRST_READ_BYTES = 16 * 1024
OPENED_OTHERWISE = "wait with lock_timeout_seconds, close that writer, or open with read_only=True"
"""The way out of a lock for who opens a conversation."""
_CLOSED = "close that writer, or try again when it is done"

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


class Folder:
    """A directory that is held open, with the path it was opened by for messages."""

    def __init__(self, files: FileSystem, path: str, handle: int) -> None:
        self.files = files
        self.path = path
        self.handle = handle

    @classmethod
    def open(cls, files: FileSystem, path: str) -> Folder:
        """Open an existing directory; raises the plain ``OSError``, which callers tell apart."""
        return cls(files, path, files.open_directory(path))

    @classmethod
    def make(cls, files: FileSystem, path: str) -> Folder:
        """Open a directory, creating it and its missing parents; on return its whole path survives a power cut.

        Parents that exist are synced too: an earlier attempt may have made them and ended before it synced them.
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
            while existing != os.path.dirname(existing):
                existing = os.path.dirname(existing)
                with suppress(PermissionError), cls.open(files, existing) as parent:
                    # A parent that may not be read, or the folder of a mount point: it is not us who made names in it.
                    if files.handle_status(parent.handle).st_dev != device:
                        break
                    parent.sync()
        except BaseException:
            with suppress(OSError):
                folder.close()
            raise
        return folder

    def subfolder(self, name: str, *, create: bool = False) -> Folder:
        """Open a directory in this one; with ``create``, make it first if it is not there and sync its name.

        Raises ``NotOursError`` for anything but a directory at that name.
        """
        if create:
            with suppress(FileExistsError):
                self.files.make_directory(self.handle, name)
            self.sync()
        status = self.files.status(self.handle, name)
        if not stat.S_ISDIR(status.st_mode):
            raise NotOursError(status)
        return Folder(self.files, self.path_of(name), self.files.open_directory(name, self.handle))

    def take_over(self, other: Folder) -> None:
        """Become the directory that another object holds open."""
        self.close()
        self.path, self.handle = other.path, other.handle
        other.handle = -1

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
            if raised is None:  # or it would hide a failed sync
                raise

    def is_at_its_path(self) -> bool:
        """Whether the directory that is held open still is the one that its path leads to."""
        try:
            there = Folder.open(self.files, self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        with there:
            return _identity(self.files.handle_status(there.handle)) == _identity(self.files.handle_status(self.handle))

    def path_of(self, name: str) -> str:
        return os.path.join(self.path, name)

    def names(self) -> list[str]:
        return sorted(self.files.list_directory(self.handle))

    def status(self, name: str) -> Status | None:
        """What stands at a name, None if nothing does."""
        try:
            return self.files.status(self.handle, name)
        except FileNotFoundError:
            return None

    def open_file(self, name: str, *, to_append: bool = False) -> int:
        """Open a regular file; raises ``NotOursError`` for anything else at that name, ``FileNotFoundError`` for nothing."""
        return self.open_with_status(name, to_append=to_append)[0]

    def open_with_status(self, name: str, *, to_append: bool = False) -> tuple[int, Status]:
        """The same, with what was opened."""
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
        """A whole small file, None if it is not there; raises ``NotOursError`` as :meth:`open_file` does."""
        try:
            handle, status = self.open_with_status(name)
        except FileNotFoundError:
            return None
        try:
            return bytes(self.files.read(handle, 0, status.st_size))
        finally:
            self.files.close(handle)

    def first_line(self, handle: int) -> bytearray:
        """The beginning of a file, up to its first line feed at least if it has one."""
        length = _FIRST_READ_BYTES
        while True:
            start = self.files.read(handle, 0, length)
            if b"\n" in start or len(start) < length:
                return start
            length *= 4

    def write_all(self, handle: int, data: bytes | bytearray) -> None:
        """Write everything; a short write is tried on, which gives the error that made it short."""
        done = self.files.write(handle, data)
        while done < len(data):
            done += self.files.write(handle, bytes(data[done : done + (1 << 24)]))

    def write_temporary(self, chunks: Iterable[bytes | bytearray]) -> tuple[str, int]:
        """Write and sync a file under a temporary name; returns the name and the open handle."""
        name = f".tmp-{self.files.random_bytes(16).hex()}"
        handle = self.files.create(self.handle, name)
        try:
            for chunk in chunks:
                self.write_all(handle, chunk)
            self.sync(handle)
        except BaseException:
            with suppress(OSError):
                self.files.close(handle)
            self.discard(name)
            raise
        return name, handle

    def replace_file(self, name: str, chunks: Iterable[bytes | bytearray]) -> None:
        """Put a file at a name atomically: temporary file, write, sync, rename, sync the directory.

        When it returns the new content survives a power cut; when it raises, or the power is cut before, the name has
        its old content or its new one.
        """
        temporary, handle = self.write_temporary(chunks)
        try:
            self.files.close(handle)
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

    def discard(self, name: str) -> None:
        """Remove a file that nobody needs, if that is possible."""
        with suppress(OSError):
            self.files.unlink(self.handle, name)

    def remove_tree(self, name: str) -> None:
        """Remove what stands at a name with all that is in it; what somebody else removes meanwhile is gone all the same."""
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR(self.files.status(self.handle, name).st_mode):
                self.files.unlink(self.handle, name)
                return
            for attempt in range(_ATTEMPTS):
                with self.subfolder(name) as folder:
                    for entry in folder.names():
                        folder.remove_tree(entry)
                try:
                    self.files.remove_directory(self.handle, name)
                    return
                except OSError as error:  # who opened it before it was moved away may put a lock into it
                    if error.errno != errno.ENOTEMPTY or attempt + 1 == _ATTEMPTS:
                        raise

    def sweep(self) -> None:
        """Remove what an earlier process left under temporary names, if that is possible; with the lock held."""
        with suppress(OSError):
            for name in self.names():
                if is_temporary(name):
                    self.discard(name)


class Lock:
    """The kernel's lock on a file in a folder: held by one writer, free the moment its process dies."""

    def __init__(self, folder: Folder, way_out: str = _CLOSED, *, name: str = LOCK) -> None:
        self._folder = folder
        self._name = name
        self._way_out = way_out
        self._files = folder.files
        self._handle = -1

    def take(self, timeout_seconds: float) -> bool:
        """Take the lock, waiting for it at most so long; raises ``ConversationLockedError`` with what the holder wrote.

        False if the folder has been removed, so that there is nothing to lock.
        """
        waited_seconds = 0.0  # counted, not read off a clock that may jump
        while True:
            try:
                self._handle = self._files.create(self._folder.handle, self._name)
            except FileExistsError:
                try:
                    self._handle = self._folder.open_file(self._name, to_append=True)
                except FileNotFoundError:
                    continue  # somebody removed it in between
            except FileNotFoundError:
                return False
            try:
                if self._files.try_lock(self._handle):
                    if self.is_held():
                        self._sign()
                        return True
                elif waited_seconds >= timeout_seconds:
                    raise self._held_by_another()
                else:
                    self._files.wait(_POLL_SECONDS)
                    waited_seconds += _POLL_SECONDS
            except BaseException:
                self.release()
                raise
            self.release()

    def is_held(self) -> bool:
        """Whether the file that is locked is still the one at its name; if not, another writer may hold the new one."""
        if self._handle < 0:
            return False
        try:
            there = self._files.status(self._folder.handle, self._name)
        except FileNotFoundError:
            return False
        return _identity(there) == _identity(self._files.handle_status(self._handle))

    def release(self) -> None:
        """Let go of the lock, if it is held. May be interrupted and called again."""
        if self._handle >= 0:
            try:
                self._files.unlock(self._handle)
            finally:
                handle, self._handle = self._handle, -1
                self._files.close(handle)

    @contextmanager
    def released_at_the_end(self) -> Iterator[None]:
        """Release it whatever happens, also if that is interrupted (Ctrl-C) the first time; refusals are of no consequence."""
        with ExitStack() as stack:
            for _ in range(2):
                stack.callback(self._let_go)
            yield

    def _let_go(self) -> None:
        with suppress(OSError):  # closing lets go of it, whatever unlocking says
            self.release()

    def _sign(self) -> None:
        holder = {
            "pid": self._files.process_id(),
            "host": self._files.host_name(),
            "at": format_time(self._files.now_us()),
        }
        with suppress(OSError):  # best effort: it only helps the message that the next one gets
            if self._files.handle_status(self._handle).st_nlink > 1:
                return  # a hard link that somebody planted: it locks as well, and what it holds is not ours
            self._files.truncate(self._handle, 0)
            self._files.write(self._handle, orjson.dumps(holder) + b"\n")

    def _held_by_another(self) -> ConversationLockedError:
        pid = host = None
        with suppress(OSError, orjson.JSONDecodeError):
            holder = orjson.loads(bytes(self._files.read(self._handle, 0, 4096)))
            if type(holder) is dict:
                pid = holder.get("pid") if type(holder.get("pid")) is int else None
                host = holder.get("host") if type(holder.get("host")) is str else None
        by = f"process {pid}" + (f" on {host}" if host else "") if pid else "another process"
        if (pid, host) == (self._files.process_id(), self._files.host_name()):
            by += " (this one: a store that was not closed)"
        return ConversationLockedError(
            f"{self._folder.path}: {by} is writing to it; {self._way_out}",
            path=self._folder.path,
            holder_pid=pid,
            holder_host=host,
        )


def _identity(status: Status) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def is_trash(name: str) -> bool:
    """Whether a name is that of a folder on its way out."""
    return _TRASH.fullmatch(name) is not None


def new_trash(files: FileSystem) -> str:
    """A name for a folder that is to be removed: it is gone the moment it has this name."""
    return f".trash-{files.random_bytes(16).hex()}"


def is_temporary(name: str) -> bool:
    """Whether a name is one of our temporaries."""
    return _TEMPORARY.fullmatch(name) is not None


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
