"""A machine in memory: the ``FileSystem`` that the store asks for, on a disk that can fail and lose power."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from transcript_store.testing._disk import ABSENT, ROOT, Disk, Inode

_START_US = 1_790_000_000_000_000
_TICK_US = 1_000


class Call(NamedTuple):
    """A call that the store made: its number from 1, the method's name, and the path it was about."""

    number: int
    name: str
    path: str


class SimulatedStop(BaseException):
    """The process was killed: this call, and every later one, does not happen."""


class _Status(NamedTuple):
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


class _Handles(dict[int, _Handle]):
    def __missing__(self, handle: int) -> _Handle:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


class SimulatedFileSystem:
    """One process on a simulated disk; pass it as ``file_system=`` to whatever opens files.

    The disk is weak: it keeps exactly what was synced, and of the rest any part in any order (``power_failures``). Pages
    of ``page_bytes`` reach it one by one, and may be torn at multiples of ``sector_bytes``; make both small to see small
    files torn. ``capacity_bytes`` is when it is full. Everything is deterministic: the clock moves a millisecond a look,
    random bytes come from ``seed``.

    ``on_call`` is asked before each call that touches the disk. It may raise, and the call does not happen: an
    ``OSError`` is a disk's, ``SimulatedStop`` a SIGKILL, ``KeyboardInterrupt`` a user's. For ``write`` it may return a
    number: only so many bytes are written. A ``sync`` for which it raises loses the unsynced data, as Linux does.
    """

    def __init__(
        self, *, page_bytes: int = 4096, sector_bytes: int = 512, capacity_bytes: int | None = None, seed: int = 0
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.on_call: Callable[[Call], int | None] | None = None
        self.calls_made = 0
        self.clock_us = _START_US
        self._disk = Disk(page_bytes, sector_bytes)
        self._random = Random(seed)
        self._handles = _Handles()
        self._next_handle = 3
        self._modified_us: dict[int, int] = {}
        self._locks: dict[int, tuple[SimulatedFileSystem, int]] = {}
        self._pid = 1000

    # ---- for tests -----------------------------------------------------------------------------------------------

    def another_process(self) -> SimulatedFileSystem:
        """Another process on the same disk: it sees the same files, and meets the same locks."""
        other = self._like(self._disk)
        other._locks = self._locks
        other._modified_us = self._modified_us
        other._pid = self._pid + 1
        return other

    def kill_process(self) -> SimulatedFileSystem:
        """End this process as SIGKILL does, what it wrote stays in the cache; returns the next process."""
        for inode in [inode for inode, (holder, _) in self._locks.items() if holder is self]:
            del self._locks[inode]
        self._handles.clear()
        self.on_call = _stopped
        return self.another_process()

    def power_failures(
        self, *, limit: int = 10_000, fills: tuple[bytes, ...] = (b"\0",), seed: int = 0
    ) -> Iterator[SimulatedFileSystem]:
        """Every state that the disk may be in if the power fails now, each as a machine of its own.

        Where there are more than ``limit``, a sample of so many. ``fills`` is what a block holds that was allocated and
        not written: NULs, or give what it may have held before.
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
        """One such state: ``choose(n)`` picks one of n fates, 0 to n-1, for each change that was not synced."""
        options = [self._disk.fates(change) for change in self._disk.pending()]
        fates = [option[choose(len(option))] for option in options]
        return self._like(self._disk.after_power_failure(fates, fill))

    def worst_power_failure(self) -> SimulatedFileSystem:
        """The state in which nothing survived that was not synced."""
        return self._like(self._disk.after_power_failure([ABSENT] * len(self._disk.pending()), b"\0"))

    def copy(self) -> SimulatedFileSystem:
        """The same machine switched off in good order and on again: everything is on the disk, no process runs."""
        disk = self._disk.after_power_failure([-1] * len(self._disk.pending()), b"\0")
        return self._like(disk)

    @property
    def open_handles(self) -> list[str]:
        """The paths that this process has open, one for each handle: none should be left after a close."""
        return [handle.path for handle in self._handles.values()]

    def sync_path(self, path: str) -> None:
        """Put what was written to a file on the medium, so that its fate is not enumerated."""
        self._disk.sync(self._resolve(path).number)

    def map_file(self, path: str) -> None:
        """Let another process have a file mapped from now on: its pages stay in the cache, whoever drops them."""
        self._disk.mapped.add(self._resolve(path).number)

    def tree(self) -> dict[str, bytes | None]:
        """What a process sees: path → content, None for a directory."""
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
        """Put a file at a path, on the medium, as another program would: for tests that damage things."""
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
        return other

    # ---- the FileSystem protocol ---------------------------------------------------------------------------------

    def open_directory(self, path: str, parent: int | None = None) -> int:
        whole = path if parent is None else f"{self._handles[parent].path}/{path}"
        self._called("open_directory", whole)
        inode = self._resolve(path) if parent is None else self._entry(parent, path)
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
            self._close(handle)  # close(2) closes, whatever it returns
            raise
        self._close(handle)

    def _close(self, handle: int) -> None:
        for inode, (holder, locked) in list(self._locks.items()):
            if holder is self and locked == handle:
                del self._locks[inode]
        del self._handles[handle]

    def make_directory(self, parent: int, name: str) -> None:
        self._called("make_directory", parent, name)
        directory = self._living(parent)
        if name in directory.names:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self._disk.name((directory.number, name, self._disk.new_inode(is_directory=True)))

    def list_directory(self, handle: int) -> list[str]:
        self._called("list_directory", self._handles[handle].path)
        return list(self._inode(handle).names)

    def status(self, parent: int, name: str) -> _Status:
        self._called("status", parent, name)
        return self._status(self._entry(parent, name))

    def handle_status(self, handle: int) -> _Status:
        self._called("handle_status", self._handles[handle].path)
        return self._status(self._inode(handle))

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

    def drop_cache(self, handle: int) -> None:
        self._called("drop_cache", self._handles[handle].path)
        self._disk.drop_cache(self._handles[handle].inode)
        self._handles[handle].past_cache = True

    def rename(self, parent: int, old: str, new: str) -> None:
        self._called("rename", parent, new)
        directory, inode = self._inode(parent), self._entry(parent, old)
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
        if not inode.is_directory:
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
        if inode.names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), name)
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

    # ---- within --------------------------------------------------------------------------------------------------

    def _called(self, name: str, where: int | str, entry: str | None = None) -> str:
        path = where if isinstance(where, str) else self._handles[where].path
        if entry is not None:
            path = f"{path}/{entry}"
        self._ask(name, path)
        return path

    def _ask(self, name: str, path: str) -> int | None:
        self.calls_made += 1
        return self.on_call(Call(self.calls_made, name, path)) if self.on_call is not None else None

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
        handle = self._next_handle
        self._next_handle += 1
        self._handles[handle] = _Handle(inode.number, path.rstrip("/"))
        return handle

    def _inode(self, handle: int) -> Inode:
        return self._disk.inodes[self._handles[handle].inode]

    def _living(self, handle: int) -> Inode:
        """The directory that a name is to be made in, which must not have been removed."""
        inode = self._inode(handle)
        if inode.number != ROOT and not self._disk.links(inode.number):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._handles[handle].path)
        return inode

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

    def _status(self, inode: Inode) -> _Status:
        links, modified_ns = self._disk.links(inode.number), self._modified_us.get(inode.number, 0) * 1000
        return _Status(inode.mode, 1, inode.number, links, len(inode.data), modified_ns)


def _stopped(call: Call) -> int | None:
    raise SimulatedStop(f"{call.name} after the process was killed")
