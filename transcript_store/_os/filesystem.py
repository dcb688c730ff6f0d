"""How does the store call Linux and macOS, and what does an error of theirs mean? Only :class:`PosixFileSystem` calls them.

One sync of a whole file system is not reliable everywhere. A thousand new files are a thousand waits for the disk if
each is synced, and one if the file system is (``syncfs``). But not every system reports its errors:

* Before Linux 5.8 an error of writing data was not reported at all, and before 5.17 the file system's own error was
  dropped.
* An overlayfs does not pass on errors of its upper layer. FUSE, 9p and network file systems may not wait for their server.
* macOS has ``sync()``, which starts writing and returns.

So it is used for ext4, xfs and btrfs on Linux 5.17 and later; everywhere else each file is synced by itself. tmpfs has
no disk, so nothing is gained there.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
import stat
import sys
import time
from contextlib import suppress
from functools import cache
from types import SimpleNamespace
from typing import Any, cast
from weakref import WeakSet

from transcript_store._os.protocol import FileStatus, FileSystem
from transcript_store.errors import NotAPathError, StorageError
from transcript_store.hints import Hint, hint_of_errno
from transcript_store.new_files import ROOT, give_to_owner

__all__ = [
    "REAL",
    "AnyPath",
    "FileStatus",
    "FileSystem",
    "PosixFileSystem",
    "absolute_path",
    "real_path",
    "unsynced",
]

_RELIABLE = frozenset({"ext4", "xfs", "btrfs"})
_FIRST_RELIABLE = (5, 17)


def can_be_relied_upon(handle: int) -> bool:
    """True if :func:`sync_file_system` reports every error on the file system of an open directory."""
    version = re.match(r"(\d+)\.(\d+)", release())
    if sys.platform != "linux" or version is None or (int(version[1]), int(version[2])) < _FIRST_RELIABLE:
        return False
    try:
        return type_of(handle) in _RELIABLE and hasattr(_libc(), "syncfs")
    except OSError:  # a container without /proc
        return False


def sync_file_system(handle: int) -> None:
    """Sync the file system of an open directory; raises ``OSError`` for any error since the directory was opened."""
    if _libc().syncfs(handle) != 0:
        from ctypes import get_errno

        number = get_errno()
        raise OSError(number, os.strerror(number))
    # After an error a file system may be remounted read-only; syncfs then has nothing to do and reports success. This
    # function does not.
    os.fsync(handle)


@cache
def _libc() -> Any:
    from ctypes import CDLL  # 10 ms that few need to pay

    return CDLL(None, use_errno=True)


def release() -> str:
    """The kernel's release, as ``uname -r`` prints it."""
    return os.uname().release


def type_of(handle: int) -> str | None:
    """The type of the file system, by the mount that the handle was opened through: btrfs has many devices in one mount."""
    with open(f"/proc/self/fdinfo/{handle}") as file:
        mount = next((line.split()[1] for line in file if line.startswith("mnt_id:")), None)
    with open("/proc/self/mountinfo") as file:
        for line in file:
            fields, _, about = line.partition(" - ")
            if fields.split(" ", 1)[0] == mount:
                return about.split(" ", 1)[0]
    return None


if sys.platform == "win32":
    raise ImportError("transcript_store runs on Linux and macOS; it has no locks and no directory sync on Windows")


AnyPath = str | os.PathLike[str]

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
_NEITHER = getattr(os, "O_PATH", os.O_RDONLY)
"""Opens what can neither be read nor written. (macOS has no such flag.)"""
_BLOCK_BYTES = 4096
_PIECE_BYTES = 1 << 18


def _close_in_child() -> None:
    for files in _in_use:
        files.close_in_child()


_in_use: WeakSet[PosixFileSystem] = WeakSet()
os.register_at_fork(after_in_child=_close_in_child)


class PosixFileSystem:
    """Linux and macOS."""

    def __init__(self) -> None:
        self._handles: set[int] = set()
        self._past_cache: dict[int, int] = {}
        """Handles whose reads bypass the cache, each with a second handle of the same file for that."""
        _in_use.add(self)

    def close_in_child(self) -> None:
        """Close what a child of fork() shares with its parent: the parent's lock ends with the parent, and the child
        cannot write.

        It must not unlock: there is one lock for both. The descriptor numbers stay in use. Code that the child
        inherited in the middle of a call (a suspended iterator, an open block) closes or uses them later, and must not
        reach another file there.
        """
        with suppress(OSError):  # a bare container without /dev: the numbers are free
            nothing = os.open(os.devnull, _NEITHER | os.O_CLOEXEC)
            for handle in self._handles:
                with suppress(OSError):
                    os.dup2(nothing, handle, inheritable=False)
            os.close(nothing)
            return
        for handle in self._handles:
            with suppress(OSError):
                os.close(handle)
        self._handles.clear()
        self._past_cache.clear()

    def __reduce__(self) -> str:
        """A copy or an unpickled one is the process's own instance: that one knows the open files."""
        return "REAL"

    def open_directory(self, path: str, parent: int | None = None) -> int:
        follow = 0 if parent is None else os.O_NOFOLLOW
        self._handles.add(handle := os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | follow, dir_fd=parent))
        return handle

    def open_read(self, parent: int, name: str) -> int:
        # O_NONBLOCK: opening a FIFO would block until a writer appears.
        self._handles.add(
            handle := os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        )
        return handle

    def open_append(self, parent: int, name: str) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self._handles.add(handle := os.open(name, flags, dir_fd=parent))
        return handle

    def create(self, parent: int, name: str) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._handles.add(handle := os.open(name, flags, FILE_MODE, dir_fd=parent))
        try:
            # A umask may have left no right to open it again. A chmod that changes nothing would still cost a
            # transaction.
            status = os.fstat(handle)
            if stat.S_IMODE(status.st_mode) != FILE_MODE:
                os.fchmod(handle, FILE_MODE)
            if status.st_uid == ROOT and os.fstat(parent).st_uid != ROOT:
                give_to_owner(handle, parent)
        except BaseException:
            self.close(handle)
            raise
        return handle

    def close(self, handle: int) -> None:
        try:
            if handle in self._past_cache:
                self._end_past_cache(handle)
        finally:
            self._handles.discard(handle)
            os.close(handle)

    def make_directory(self, parent: int, name: str) -> None:
        os.mkdir(name, DIRECTORY_MODE, dir_fd=parent)
        status = self.status(parent, name)
        if stat.S_IMODE(status.st_mode) != DIRECTORY_MODE:
            self._set_mode(parent, name)
        if status.st_uid == ROOT and os.fstat(parent).st_uid != ROOT:
            made = self.open_directory(name, parent)
            try:
                give_to_owner(made, parent)
            finally:
                self.close(made)

    def _set_mode(self, parent: int, name: str) -> None:
        if sys.platform == "darwin":
            os.chmod(name, DIRECTORY_MODE, dir_fd=parent, follow_symlinks=False)
            return
        # chmod(2) by name would follow a link that another process created in between, and a umask may leave no right to
        # open it.
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{handle}", DIRECTORY_MODE)
        except FileNotFoundError:  # a bare container without /proc
            with suppress(OSError):
                again = self.open_directory(name, parent)
                try:
                    os.fchmod(again, DIRECTORY_MODE)
                finally:
                    self.close(again)
        finally:
            os.close(handle)

    def list_directory(self, handle: int) -> list[str]:
        # On btrfs and FUSE a handle shows the names from when it was opened. So the directory is opened again.
        now = self.open_directory(".", handle)
        try:
            return os.listdir(now)
        finally:
            self.close(now)

    def status(self, parent: int, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)

    handle_status = staticmethod(os.fstat)

    def path_status(self, path: str) -> os.stat_result:
        return os.stat(path)

    def read(self, handle: int, offset: int, length: int) -> bytearray:
        if handle in self._past_cache:
            return self._read_past_cache(handle, offset, length)
        buffer = bytearray(length)
        done = os.preadv(handle, [buffer], offset)
        if done < length:  # at the end of the file; or because a call returns at most 2 GiB
            with memoryview(buffer) as view:
                while done < length and (count := os.preadv(handle, [view[done:]], offset + done)):
                    done += count
            del buffer[done:]
        return buffer

    def _read_past_cache(self, handle: int, offset: int, length: int) -> bytearray:
        """Read with O_DIRECT, which needs whole blocks and equally aligned memory."""
        begin = offset % _BLOCK_BYTES
        at, stop = offset - begin, offset + length
        # btrfs silently reads through the cache if the memory was never touched (so all of it is written here), and
        # from a first block that it stores inline (so the first block is read by itself).
        piece = mmap.mmap(-1, min(_PIECE_BYTES, (stop - at) // _BLOCK_BYTES * _BLOCK_BYTES + _BLOCK_BYTES))
        piece[:] = bytes(len(piece))
        found = bytearray()
        while at < stop:
            want = len(piece) if at else _BLOCK_BYTES
            try:
                count = os.preadv(self._past_cache[handle], [memoryview(piece)[:want]], at)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self._end_past_cache(handle)  # perhaps blocks of another size
                return self.read(handle, offset, length)
            found += piece[:count]
            at += count
            if count < want and (count % _BLOCK_BYTES or not count):
                break  # the file ends here
        return found[begin : begin + length]

    def _end_past_cache(self, handle: int) -> None:
        direct = self._past_cache.pop(handle)
        self._handles.discard(direct)
        with suppress(OSError):  # nothing was written through it
            os.close(direct)

    write = staticmethod(os.write)
    truncate = staticmethod(os.ftruncate)

    if sys.platform == "darwin":

        def sync(self, handle: int) -> None:
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)  # fsync(2) on macOS leaves the drive's cache alone

        sync_data = sync

        def drop_cache(self, handle: int) -> None:
            pass
    else:
        sync = staticmethod(os.fsync)

        def sync_data(self, handle: int) -> None:
            os.fdatasync(handle)
            if handle in self._past_cache:
                self._end_past_cache(handle)

        def drop_cache(self, handle: int) -> None:
            # The whole file: the kernel keeps whatever unit of its cache, which may be 2 MB, begins before a range.
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            # It also keeps every page that a process has mapped (a search tool, an indexer), with what a failed sync
            # left in it: measured on ext4, xfs and btrfs. So the next reads bypass the cache.
            if handle not in self._past_cache:
                try:
                    flags = os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC
                    self._handles.add(direct := os.open(f"/proc/self/fd/{handle}", flags))
                    self._past_cache[handle] = direct
                except OSError as error:
                    # A file system without O_DIRECT, no /proc, or a process that dropped the right to open it again.
                    if error.errno not in (errno.EINVAL, errno.ENOENT, errno.EACCES):
                        raise

    can_sync_all = staticmethod(can_be_relied_upon)
    sync_all = staticmethod(sync_file_system)

    def rename(self, parent: int, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=parent, dst_dir_fd=parent)

    def link(self, parent: int, name: str, to_parent: int, to_name: str) -> None:
        os.link(name, to_name, src_dir_fd=parent, dst_dir_fd=to_parent, follow_symlinks=False)

    def unlink(self, parent: int, name: str) -> None:
        os.unlink(name, dir_fd=parent)

    def remove_directory(self, parent: int, name: str) -> None:
        os.rmdir(name, dir_fd=parent)

    def try_lock(self, handle: int) -> bool:
        from filelock import lock_descriptor  # 40 ms that readers need not pay

        return lock_descriptor(handle, blocking=False)

    def unlock(self, handle: int) -> None:
        from filelock import unlock_descriptor

        unlock_descriptor(handle)

    wait = staticmethod(time.sleep)

    def now_us(self) -> int:
        return time.time_ns() // 1000

    random_bytes = staticmethod(os.urandom)
    process_id = staticmethod(os.getpid)

    def host_name(self) -> str:
        return os.uname().nodename

    def boot_id(self) -> str:
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                return file.read().strip()
        except OSError:  # not Linux, or a bare container without /proc
            return ""


_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
"""With one slash: pathlib reduces two to one, and so does a typing error."""


def absolute_path(path: AnyPath) -> str:
    """A user's path with ``~`` expanded, made absolute.

    Raises:
        TypeError: it is not a path of text but, for example, a store.
        ValueError: it cannot name a file.
        NotAPathError: it is an address.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str):
        hint = "; pass its directory" if hasattr(text, "directory") else ""
        raise TypeError(f"a path must be a str or an os.PathLike of one, not {type(text).__name__}{hint}")
    if not text or "\0" in text:
        raise ValueError("a path must not be empty or hold a NUL character")
    if found := _ADDRESS.match(
        text
    ):  # else a folder named postgresql: would be created, and one in it named by a password
        if text.startswith("/", found.end()):
            raise NotAPathError
        raise NotAPathError(reason="an address has lost one of its slashes", hint=Hint.WRITE_BOTH_SLASHES)
    expanded = os.path.expanduser(text)
    # abspath() does the same with an absolute path. Detectors of blocking calls refuse it in an event loop, as it may
    # read the current directory; a constructor with an absolute path makes no system call.
    return os.path.normpath(expanded) if os.path.isabs(expanded) else os.path.abspath(expanded)


def real_path(path: AnyPath) -> str:
    """The same with every symbolic link followed: a user's own file may be one."""
    return os.path.realpath(absolute_path(path))


def unsynced(files: FileSystem) -> FileSystem:
    """The same file system with syncs that do nothing: for files that no caller learns of before ``sync_all`` of the
    real one.
    """
    calls = {name: getattr(files, name) for name in vars(FileSystem) if not name.startswith("_")}
    return cast(FileSystem, SimpleNamespace(**{**calls, "sync": _do_not, "sync_data": _do_not}))


def _do_not(handle: int) -> None:
    pass


REAL = PosixFileSystem()
"""The default file system."""


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
