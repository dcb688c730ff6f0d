"""A machine in memory: an implementation of ``FileSystem`` on a simulated disk that can fail and lose power."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import NamedTuple

from transcript_store.testing._simulated_disk import ABSENT, ROOT, Disk, Inode

_START_US = 1_790_000_000_000_000
_TICK_US = 1_000


class FileSystemCall(NamedTuple):
    """A call of the file system: its number, counted from 1, the name of the method, and the path."""

    number: int
    name: str
    path: str


class SimulatedStop(BaseException):
    """The process was killed. Neither this call nor any later one of the process has an effect."""


class _SimulatedStatus(NamedTuple):
    st_mode: int
    st_dev: int
    st_ino: int
    st_nlink: int
    st_size: int
    st_mtime_ns: int


@dataclass(slots=True)
class _Handle:
    inode: int
    path: str
    past_cache: bool = False
    """True from ``drop_cache`` to the next ``sync_data``: reads show the medium, even if the file is mapped."""


class _Handles(dict[int, _Handle]):
    def __missing__(self, handle: int) -> _Handle:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


class SimulatedFileSystem:
    """One process on a simulated disk. Pass it as ``file_system=`` to a store.

    After a power loss the disk has the synced writes, and any part of the rest (``power_failures``). All else is deterministic: each
    reading of the clock moves it on by a millisecond, and random bytes come from ``seed``.

    ``on_call`` is called before each call that touches the disk. If it raises, the call has no effect. An ``OSError`` stands for
    an error of the disk, ``SimulatedStop`` for SIGKILL, and ``KeyboardInterrupt`` for Ctrl-C. For ``write`` it may return a
    number; then at most so many bytes are written. If it raises an ``OSError`` for ``sync`` or ``sync_data``, the unsynced data
    are lost, as on Linux.

    Args:
        page_bytes: the size of a page. A power loss may keep one page of a write and lose another.
        sector_bytes: a page may be torn at multiples of this. Make it and ``page_bytes`` small to see small files torn.
        capacity_bytes: how many bytes of data fit on the disk; None for any number.
        seed: of the random bytes.

    Raises:
        OSError: any call of the ``FileSystem`` protocol, as of a kernel. ``errno`` says why: ``ENOSPC`` if the disk is full,
            ``EBADF`` if a handle is not open. ``kill_process()`` closes all handles of the process.
        SimulatedStop: a path is opened after ``kill_process()``.
    """

    def __init__(
        self, *, page_bytes: int = 4096, sector_bytes: int = 512, capacity_bytes: int | None = None, seed: int = 0
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.on_call: Callable[[FileSystemCall], int | None] | None = None
        self.calls_made = 0
        self.clock_us = _START_US
        self._disk = Disk(page_bytes, sector_bytes)
        self._random = Random(seed)
        self._handles = _Handles()
        self._handle_numbers = count(3)
        self._modified_us: dict[int, int] = {}
        self._locks: dict[int, tuple[SimulatedFileSystem, int]] = {}
        """Inode → the process and the handle that have its lock."""
        self._pid = 1000
        self._boot = 0

    # ---- for tests -----------------------------------------------------------------------------------------------

    def another_process(self) -> SimulatedFileSystem:
        """Another process on the same disk, with the same files and the same locks."""
        other = self._like(self._disk)
        other._locks = self._locks
        other._modified_us = self._modified_us
        other._boot = self._boot
        return other

    def kill_process(self) -> SimulatedFileSystem:
        """End this process as SIGKILL does. Returns another process, which sees what this one wrote, synced or not."""
        for inode in [inode for inode, (holder, _) in self._locks.items() if holder is self]:
            del self._locks[inode]
        self._handles.clear()
        self.on_call = _stopped
        return self.another_process()

    def power_failures(
        self, *, limit: int = 10_000, fills: tuple[bytes, ...] = (b"\0",), seed: int = 0
    ) -> Iterator[SimulatedFileSystem]:
        """Every state that the disk may be in if the power fails now, each as a separate machine.

        Args:
            limit: if there are more combinations of lost changes, how many are tried.
            fills: what an allocated block that was not written contains: NULs, or what may have been there before.
            seed: of the sample, if there are more than ``limit``.
        """
        seen = set()
        for fill in fills:
            for fates in self._disk.all_fates(limit, Random(seed)):
                failed = self._like(self._disk.after_power_failure(fates, fill))
                state = repr(sorted(failed.tree().items()))
                if state not in seen:
                    seen.add(state)
                    yield failed

    def power_failure(self, choose: Callable[[int], int], *, fill: bytes = b"\0") -> SimulatedFileSystem:
        """One of these states. For each change that was not synced, ``choose(n)`` returns which of its n fates it has.

        The fates are numbered from 0, which means that the change is lost.
        """
        options = [self._disk.fates(change) for change in self._disk.pending()]
        fates = [option[choose(len(option))] for option in options]
        return self._like(self._disk.after_power_failure(fates, fill))

    def worst_power_failure(self) -> SimulatedFileSystem:
        """The state in which everything that was not synced is lost."""
        return self._like(self._disk.after_power_failure([ABSENT] * len(self._disk.pending()), b"\0"))

    def copy(self) -> SimulatedFileSystem:
        """A copy of the machine after an orderly restart: everything written is on its disk, and no process runs."""
        disk = self._disk.after_power_failure([-1] * len(self._disk.pending()), b"\0")
        return self._like(disk)

    @property
    def open_handles(self) -> list[str]:
        """The paths that this process has open, one for each handle. After a close there should be none."""
        return [handle.path for handle in self._handles.values()]

    def sync_path(self, path: str) -> None:
        """Make the written bytes of a file durable, so that ``power_failures()`` does not vary them."""
        self._disk.sync(self._resolve(path).number)

    def map_file(self, path: str) -> None:
        """Act as if another process had the file mapped from now on: its pages stay in the cache after ``drop_cache``."""
        self._disk.mapped.add(self._resolve(path).number)

    def tree(self) -> dict[str, bytes | None]:
        """All files as a process sees them: path → content in bytes, or None for a directory."""
        found: dict[str, bytes | None] = {}

        def walk(directory: Inode, path: str) -> None:
            for name, number in sorted(directory.names.items()):
                inode = self._disk.inodes[number]
                found[f"{path}/{name}"] = None if inode.is_directory else bytes(inode.data)
                if inode.is_directory:
                    walk(inode, f"{path}/{name}")

        walk(self._disk.inodes[ROOT], "")
        return found

    def write_file(self, path: str, data: bytes) -> None:
        """Write a file as another program would, and make it durable. For tests that damage files.

        Raises:
            FileNotFoundError: the folder does not exist.
        """
        folder, name = os.path.split(path)
        directory = self._resolve(folder)
        if name in directory.names:
            number = directory.names[name]
            self._disk.truncate(number, 0)
        else:
            number = self._disk.new_inode(is_directory=False)
            self._disk.name((directory.number, name, number))
        self._disk.append(number, data)
        self._disk.sync(number)
        self._disk.sync(directory.number)

    def _like(self, disk: Disk) -> SimulatedFileSystem:
        other = SimulatedFileSystem(capacity_bytes=self.capacity_bytes)
        other._disk = disk
        other.clock_us = self.clock_us
        other._modified_us = dict(self._modified_us)
        other._random.setstate(self._random.getstate())
        other._pid = self._pid + 1
        other._boot = self._boot + 1
        return other

    # ---- the FileSystem protocol ---------------------------------------------------------------------------------

    def open_directory(self, path: str, parent: int | None = None) -> int:
        whole = path if parent is None else f"{self._handles[parent].path}/{path}"
        self._called("open_directory", whole)
        inode = (
            self._resolve(path)
            if parent is None
            else self._above(parent)
            if path == ".."
            else self._entry(parent, path)
        )
        if not inode.is_directory:
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return self._open(inode, whole)

    def open_read(self, parent: int, name: str) -> int:
        return self._open_file(parent, name, "open_read")

    def open_append(self, parent: int, name: str) -> int:
        return self._open_file(parent, name, "open_append")

    def create(self, parent: int, name: str) -> int:
        path = self._called("create", parent, name)
        directory = self._living(parent)
        if name in directory.names:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        number = self._disk.new_inode(is_directory=False)
        self._disk.name((directory.number, name, number))
        return self._open(self._disk.inodes[number], path)

    def close(self, handle: int) -> None:
        try:
            self._called("close", self._handles[handle].path)
        except SimulatedStop:
            raise
        except BaseException:
            self._close(handle)  # close(2) closes the descriptor even if it fails
            raise
        self._close(handle)

    def _close(self, handle: int) -> None:
        for inode, (holder, locked) in list(self._locks.items()):
            if holder is self and locked == handle:
                del self._locks[inode]
        self._handles.pop(handle, None)  # that it was not open was reported already

    def make_directory(self, parent: int, name: str) -> None:
        self._called("make_directory", parent, name)
        directory = self._living(parent)
        if name in directory.names:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self._disk.name((directory.number, name, self._disk.new_inode(is_directory=True)))

    def list_directory(self, handle: int) -> list[str]:
        self._called("list_directory", self._handles[handle].path)
        return list(self._inode(handle).names)

    def status(self, parent: int, name: str) -> _SimulatedStatus:
        self._called("status", parent, name)
        return self._status(self._entry(parent, name))

    def handle_status(self, handle: int) -> _SimulatedStatus:
        self._called("handle_status", self._handles[handle].path)
        return self._status(self._inode(handle))

    def path_status(self, path: str) -> _SimulatedStatus:
        self._called("path_status", path)
        return self._status(self._resolve(path))

    def read(self, handle: int, offset: int, length: int) -> bytearray:
        self._called("read", self._handles[handle].path)
        past_cache = self._handles[handle].past_cache
        data = self._disk.on_medium(self._handles[handle].inode) if past_cache else self._inode(handle).data
        return data[offset : offset + length]

    def write(self, handle: int, data: bytes | bytearray | memoryview) -> int:
        allowed = self._ask("write", self._handles[handle].path)
        count = len(data) if allowed is None else min(allowed, len(data))
        if self.capacity_bytes is not None:
            used = sum(len(inode.data) for inode in self._disk.inodes.values())
            count = max(0, min(count, self.capacity_bytes - used))
            if count == 0 and len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._disk.append(self._handles[handle].inode, bytes(data[:count]))
        self._modified_us[self._handles[handle].inode] = self.clock_us
        return count

    def truncate(self, handle: int, size: int) -> None:
        self._called("truncate", self._handles[handle].path)
        self._disk.truncate(self._handles[handle].inode, size)

    def sync(self, handle: int) -> None:
        self._sync("sync", handle)

    def sync_data(self, handle: int) -> None:
        self._sync("sync_data", handle)
        self._handles[handle].past_cache = False

    def can_sync_all(self, handle: int) -> bool:
        return self._inode(handle).is_directory

    def sync_all(self, handle: int) -> None:
        try:
            self._called("sync_all", self._handles[handle].path)
        except OSError:
            self._disk.lose_all()
            raise
        self._disk.sync_all()

    def drop_cache(self, handle: int) -> None:
        self._called("drop_cache", self._handles[handle].path)
        self._disk.drop_cache(self._handles[handle].inode)
        self._handles[handle].past_cache = True

    def rename(self, parent: int, old: str, new: str) -> None:
        self._called("rename", parent, new)
        directory, inode = self._inode(parent), self._entry(parent, old)
        if inode.is_directory and new in directory.names:
            self._require_empty(self._entry(parent, new))
        self._disk.name((directory.number, old, None), (directory.number, new, inode.number))

    def link(self, parent: int, name: str, to_parent: int, to_name: str) -> None:
        self._called("link", to_parent, to_name)
        inode, directory = self._entry(parent, name), self._inode(to_parent)
        if to_name in directory.names:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), to_name)
        self._disk.name((directory.number, to_name, inode.number))

    def unlink(self, parent: int, name: str) -> None:
        self._called("unlink", parent, name)
        if self._entry(parent, name).is_directory:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        self._disk.name((self._inode(parent).number, name, None))

    def remove_directory(self, parent: int, name: str) -> None:
        self._called("remove_directory", parent, name)
        inode = self._entry(parent, name)
        self._require_empty(inode)
        self._disk.name((self._inode(parent).number, name, None))

    def try_lock(self, handle: int) -> bool:
        self._called("try_lock", self._handles[handle].path)
        return self._locks.setdefault(self._handles[handle].inode, (self, handle)) == (self, handle)

    def unlock(self, handle: int) -> None:
        self._called("unlock", self._handles[handle].path)
        if self._locks.get(self._handles[handle].inode) == (self, handle):
            del self._locks[self._handles[handle].inode]

    def wait(self, seconds: float) -> None:
        self.clock_us += int(seconds * 1e6)

    def now_us(self) -> int:
        self.clock_us += _TICK_US
        return self.clock_us

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def process_id(self) -> int:
        return self._pid

    def host_name(self) -> str:
        return "simulated"

    def boot_id(self) -> str:
        return f"simulated-{self._boot}"

    # ---- within --------------------------------------------------------------------------------------------------

    def _called(self, name: str, where: int | str, entry: str | None = None) -> str:
        path = where if isinstance(where, str) else self._handles[where].path
        if entry is not None:
            path = f"{path}/{entry}"
        self._ask(name, path)
        return path

    def _ask(self, name: str, path: str) -> int | None:
        self.calls_made += 1
        return self.on_call(FileSystemCall(self.calls_made, name, path)) if self.on_call is not None else None

    def _sync(self, name: str, handle: int) -> None:
        inode = self._handles[handle].inode
        try:
            self._called(name, self._handles[handle].path)
        except OSError:
            self._disk.lose(inode)
            raise
        self._disk.sync(inode)

    def _open_file(self, parent: int, name: str, call: str) -> int:
        path = self._called(call, parent, name)
        inode = self._entry(parent, name)
        if inode.is_directory:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        return self._open(inode, path)

    def _open(self, inode: Inode, path: str) -> int:
        handle = next(self._handle_numbers)
        self._handles[handle] = _Handle(inode.number, path.rstrip("/"))
        return handle

    def _inode(self, handle: int) -> Inode:
        return self._disk.inodes[self._handles[handle].inode]

    def _living(self, handle: int) -> Inode:
        """The directory of a handle, for a new name. Raises ``FileNotFoundError`` if it was removed."""
        inode = self._inode(handle)
        if inode.number != ROOT and not self._disk.links(inode.number):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._handles[handle].path)
        return inode

    def _require_empty(self, inode: Inode) -> None:
        if not inode.is_directory:
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if inode.names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))

    def _above(self, handle: int) -> Inode:
        """The directory that a directory has its name in."""
        number = self._living(handle).number
        return next(
            (one for one in [*self._disk.inodes.values()] if number in [*one.names.values()]), self._disk.inodes[ROOT]
        )

    def _entry(self, parent: int, name: str) -> Inode:
        try:
            return self._disk.inodes[self._inode(parent).names[name]]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None

    def _resolve(self, path: str) -> Inode:
        inode = self._disk.inodes[ROOT]
        for name in path.split("/"):
            if not name:
                continue
            if not inode.is_directory:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            if name not in inode.names:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            inode = self._disk.inodes[inode.names[name]]
        return inode

    def _status(self, inode: Inode) -> _SimulatedStatus:
        links, modified_ns = self._disk.links(inode.number), self._modified_us.get(inode.number, 0) * 1000
        return _SimulatedStatus(inode.mode, 1, inode.number, links, len(inode.data), modified_ns)


def _stopped(call: FileSystemCall) -> int | None:
    raise SimulatedStop(f"{call.name} after the process was killed")
