"""A disk that refuses some writes, as a file to make a block device of: real file systems stand on it. As root.

    python -m tests.crash.failing_disk FOLDER SIZE_BYTES

``FOLDER/disk`` is the disk. Commands are extended attributes of the folder: ``user.refuse`` (some bytes) lets every write
fail with EIO that holds them, and "" none; ``user.tally`` tells how many were refused. There is no device-mapper where the
tests run, whose dm-flakey would do the same.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.crash.forgetful import mounted
from tests.crash.fuse import mfusepy
from tests.crash.volumes import SIZE_BYTES, Volume, make_file_system, run


class FailingDisk(mfusepy.Operations):  # type: ignore[misc]  # it has no types
    """One file in memory."""

    use_ns = True

    def __init__(self, size_bytes: int) -> None:
        self._bytes = mmap.mmap(-1, size_bytes)
        self._refused = b""
        self._tally = 0

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> None:
        self._refused = bytes(value)

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
        self._bytes[offset : offset + len(data)] = data
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        pass

    def fsync(self, path: str, datasync: int, fh: int) -> None:
        pass


class Failing:
    """The commands to the disk below a file system."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def refuse(self, text: bytes) -> None:
        os.setxattr(self._folder, "user.refuse", text)

    @property
    def refused(self) -> int:
        return int(os.getxattr(self._folder, "user.tally"))


@contextmanager
def failing_volume(kind: str) -> Iterator[tuple[Volume, Failing]]:
    """A new file system of this kind on a failing disk, mounted; unmounted and gone at the end."""
    with mounted("tests.crash.failing_disk", str(SIZE_BYTES[kind])) as folder, tempfile.TemporaryDirectory() as path:
        make_file_system(kind, folder / "disk")
        volume = Volume(kind, folder / "disk", Path(path))
        volume.mount()
        try:
            yield volume, Failing(folder)
        finally:
            with suppress(AssertionError):
                run("umount", "--lazy", path)


if __name__ == "__main__":
    mfusepy.FUSE(FailingDisk(int(sys.argv[2])), sys.argv[1], foreground=True, nothreads=True, direct_io=True)
