"""A disk that refuses some writes, or loses its power, as a file to make a block device of: real file systems stand on it. As
root.

    python -m tests.crash.failing_disk FOLDER SIZE_BYTES

``FOLDER/disk`` is the disk. Commands are extended attributes of the folder: ``user.refuse`` (some bytes) lets every write
fail with EIO that holds them, and "" none; ``user.tally`` tells how many were refused; ``user.cut`` (a seed) cuts the power:
of the blocks that were written and not flushed some are there and some are not, and every write is refused
until ``user.power`` switches it on again. There is no device-mapper where the tests run, whose dm-flakey would do the same.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.crash.forgetful import mounted
from tests.crash.fuse import mfusepy
from tests.crash.volumes import SIZE_BYTES, Volume, make_file_system

_BLOCK_BYTES = 4096


class FailingDisk(mfusepy.Operations):  # type: ignore[misc]  # it has no types
    """One file in memory."""

    use_ns = True

    def __init__(self, size_bytes: int) -> None:
        self._bytes = mmap.mmap(-1, size_bytes)
        self._refused = b""
        self._tally = 0
        self._unflushed: dict[int, bytes] = {}
        """What stood in blocks before they were written, since the last flush."""
        self._is_on = True

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> None:
        if name == "user.refuse":
            self._refused = bytes(value)
        elif name == "user.cut":
            choose = random.Random(bytes(value))
            for number, before in self._unflushed.items():
                if choose.random() < 0.5:
                    self._bytes[number * _BLOCK_BYTES : (number + 1) * _BLOCK_BYTES] = before
            self._is_on = False
        else:
            self._is_on = True

    def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
        if name != "user.tally":
            raise mfusepy.FuseOSError(errno.ENODATA)
        return str(self._tally).encode()

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
        if path != "/disk":
            raise mfusepy.FuseOSError(errno.ENOENT)
        return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": len(self._bytes)}

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", "disk"]

    def open(self, path: str, flags: int) -> int:
        return 1

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return self._bytes[offset : offset + size]

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        if self._refused and self._refused in data:
            self._tally += 1
            raise mfusepy.FuseOSError(errno.EIO)
        if not self._is_on:
            raise mfusepy.FuseOSError(errno.EIO)
        for number in range(offset // _BLOCK_BYTES, -(-(offset + len(data)) // _BLOCK_BYTES)):
            start = number * _BLOCK_BYTES
            self._unflushed.setdefault(number, self._bytes[start : start + _BLOCK_BYTES])
        self._bytes[offset : offset + len(data)] = data
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        pass

    def fsync(self, path: str, datasync: int, fh: int) -> None:
        if not self._is_on:
            raise mfusepy.FuseOSError(errno.EIO)
        self._unflushed.clear()


class Failing:
    """The commands to the disk below a file system."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def refuse(self, text: bytes) -> None:
        os.setxattr(self._folder, "user.refuse", text)

    def cut_power(self, seed: int) -> None:
        os.setxattr(self._folder, "user.cut", str(seed).encode())

    def switch_on(self) -> None:
        os.setxattr(self._folder, "user.power", b"on")

    @property
    def refused(self) -> int:
        return int(os.getxattr(self._folder, "user.tally"))


class _OnADiskOfItsOwn(Volume):
    """A file system that cannot be shut down (btrfs, before kernel 6.19): the power of its disk is cut."""

    def __init__(self, kind: str, image: Path, folder: Path, disk: Failing) -> None:
        super().__init__(kind, image, folder)
        self._disk = disk
        self._cuts = 0

    def cut_power(self) -> None:
        self._cuts += 1
        self._disk.cut_power(self._cuts)

    def unmount(self) -> None:
        super().unmount()
        self._disk.switch_on()


@contextmanager
def failing_volume(kind: str) -> Iterator[tuple[Volume, Failing]]:
    """A new file system of this kind on a failing disk, mounted; unmounted and gone at the end."""
    with mounted("tests.crash.failing_disk", str(SIZE_BYTES[kind])) as folder, tempfile.TemporaryDirectory() as path:
        make_file_system(kind, folder / "disk")
        disk = Failing(folder)
        there = (folder / "disk", Path(path))
        volume = _OnADiskOfItsOwn(kind, *there, disk) if kind == "btrfs" else Volume(kind, *there)
        volume.mount()
        try:
            yield volume, disk
        finally:
            volume.let_go()


if __name__ == "__main__":
    mfusepy.FUSE(FailingDisk(int(sys.argv[2])), sys.argv[1], foreground=True, nothreads=True, direct_io=True)
