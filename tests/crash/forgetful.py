"""A file system that forgets unsynced data: the simulated disk, mounted, so that real processes use it.

Data and names that were not synced survive a power cut in any part and any order, or not at all. A failed sync loses the
data of its file as Linux does: the kernel's page cache goes on showing it until it is dropped. As root:

    python -m tests.crash.forgetful FOLDER

Commands are extended attributes of the mount point: ``user.cut-power`` (a seed, or ``worst``) lets the power fail,
``user.refuse`` (a number and the name of an errno) refuses the nth sync from now, ``user.freeze`` (a number) lets nothing
reach the disk after that many changes, as if the power had failed there. ``user.tally`` tells what happened so far.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

from tests.crash import fuse
from tests.crash.fuse import mfusepy
from transcript_store.testing import FileSystemCall, SimulatedFileSystem

_CHANGES = ("create", "make_directory", "write", "truncate", "rename", "link", "unlink", "sync", "sync_data")


class ForgetfulDisk(mfusepy.Operations):  # type: ignore[misc]  # it has no types
    """The simulated disk behind FUSE."""

    use_ns = True

    def __init__(self) -> None:
        self._refused: tuple[int, int] | None = None
        self._left: int | None = None
        self._tally = {"cuts": 0, "forgotten": 0, "refused": 0, "frozen": 0}
        self._start(SimulatedFileSystem(page_bytes=512, sector_bytes=128))

    def _start(self, machine: SimulatedFileSystem) -> None:
        self._machine = machine
        self._machine.on_call = self._on_call
        self._refused = self._left = None

    # ---- commands ------------------------------------------------------------------------------------------------

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> None:
        text = value.decode()
        if name == "user.cut-power":
            self._cut_power(text)
        elif name == "user.refuse":
            count, code = text.split()
            self._refused = (int(count), getattr(errno, code))
        elif name == "user.freeze":
            self._left = int(text)
        else:
            raise mfusepy.FuseOSError(errno.ENOTSUP)

    def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
        if name != "user.tally":
            raise mfusepy.FuseOSError(errno.ENODATA)
        return json.dumps(self._tally).encode()

    def _cut_power(self, seed: str) -> None:
        before = self._machine.tree()
        if seed == "worst":
            self._start(self._machine.worst_power_failure())
        else:
            self._start(self._machine.power_failure(Random(int(seed)).randrange))
        self._tally["cuts"] += 1
        self._tally["forgotten"] += self._machine.tree() != before

    def _on_call(self, call: FileSystemCall) -> None:
        if call.name not in _CHANGES:
            return
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self._tally["frozen"] += 1
                raise OSError(errno.EIO, "the power is failing")
        if self._refused is not None and call.name in ("sync", "sync_data"):
            count, code = self._refused
            self._refused = (count - 1, code) if count > 1 else None
            if count == 1:
                self._tally["refused"] += 1
                raise OSError(code, "injected")

    # ---- FUSE ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _folder_of(self, path: str) -> Iterator[tuple[int, str]]:
        folder, name = os.path.split(path)
        with self._handle(folder) as handle:
            yield handle, name

    @contextmanager
    def _handle(self, folder: str) -> Iterator[int]:
        handle = self._machine.open_directory(folder)
        try:
            yield handle
        finally:
            self._machine.close(handle)

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        if fh is not None:
            status = self._machine.handle_status(fh)
        elif path == "/":
            return {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
        else:
            with self._folder_of(path) as (folder, name):
                status = self._machine.status(folder, name)
        return {
            "st_mode": status.st_mode,
            "st_ino": status.st_ino,
            "st_nlink": max(1, status.st_nlink),
            "st_size": status.st_size,
        }

    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, Any], int]]:
        """With numbers of inodes: without one the C library takes an entry for a name that was removed."""
        names = [".", "..", *self._machine.list_directory(fh)]
        return [(name, self.getattr(path, fh) | {"st_ino": 1 + index}, 0) for index, name in enumerate(names)]

    def open(self, path: str, flags: int) -> int:
        with self._folder_of(path) as (folder, name):
            return self._machine.open_append(folder, name)

    def opendir(self, path: str) -> int:
        return self._machine.open_directory(path)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        with self._folder_of(path) as (folder, name):
            return self._machine.create(folder, name)

    def release(self, path: str, fh: int) -> None:
        with suppress(OSError):  # of before a power cut
            self._machine.close(fh)

    releasedir = release

    def mkdir(self, path: str, mode: int) -> None:
        with self._folder_of(path) as (folder, name):
            self._machine.make_directory(folder, name)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return bytes(self._machine.read(fh, offset, size))

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        if offset != self._machine.handle_status(fh).st_size:
            raise mfusepy.FuseOSError(errno.ENOTSUP)  # the store only appends
        return self._machine.write(fh, data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        if fh is not None:
            self._machine.truncate(fh, length)
            return
        opened = self.open(path, 0)
        try:
            self._machine.truncate(opened, length)
        finally:
            self._machine.close(opened)

    def fsync(self, path: str, datasync: int, fh: int) -> None:
        try:
            if datasync:
                self._machine.sync_data(fh)
            else:
                self._machine.sync(fh)
        except OSError:
            self._machine.drop_cache(fh)  # the kernel has a cache of its own: what is behind it is the medium
            raise

    def fsyncdir(self, path: str, datasync: int, fh: int) -> None:
        self._machine.sync(fh)

    def rename(self, old: str, new: str, flags: int = 0) -> None:
        with self._folder_of(old) as (folder, name):
            assert os.path.dirname(old) == os.path.dirname(new), "the store renames within a folder"
            self._machine.rename(folder, name, os.path.basename(new))

    def link(self, target: str, source: str) -> None:
        with self._folder_of(source) as (folder, name), self._folder_of(target) as (to_folder, to_name):
            self._machine.link(folder, name, to_folder, to_name)

    def unlink(self, path: str) -> None:
        with self._folder_of(path) as (folder, name):
            self._machine.unlink(folder, name)

    def chmod(self, path: str, mode: int) -> None:
        pass

    def statfs(self, path: str) -> dict[str, int]:
        return {"f_bsize": 512, "f_blocks": 1 << 20, "f_bfree": 1 << 20, "f_bavail": 1 << 20}


@contextmanager
def mounted(module: str, *arguments: str) -> Iterator[Path]:
    """Mount what ``python -m module FOLDER`` serves; unmounted at the end, whatever happens. Skips the test without FUSE."""
    fuse.need()
    with tempfile.TemporaryDirectory(prefix="fuse-") as folder:
        path = Path(folder)
        with subprocess.Popen([sys.executable, "-m", module, folder, *arguments]) as server:
            try:
                for _ in range(6000):
                    if path.is_mount():
                        break
                    assert server.poll() is None, "the FUSE server died"
                    time.sleep(0.01)
                else:
                    raise AssertionError("it was not mounted in a minute")
                yield path
            finally:
                subprocess.run(["umount", "--lazy", folder], check=False, capture_output=True)
                with suppress(subprocess.TimeoutExpired):
                    server.wait(10)
                server.kill()


class Forgetful:
    """The commands to a mounted disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def cut_power(self, seed: int | None) -> None:
        """Every process has to be dead. None is the worst cut: nothing survives that was not synced."""
        os.setxattr(self.path, "user.cut-power", b"worst" if seed is None else str(seed).encode())

    def refuse_sync(self, nth: int, code: str) -> None:
        os.setxattr(self.path, "user.refuse", f"{nth} {code}".encode())

    def freeze(self, after_changes: int) -> None:
        os.setxattr(self.path, "user.freeze", str(after_changes).encode())

    @property
    def tally(self) -> dict[str, int]:
        tally: dict[str, int] = json.loads(os.getxattr(self.path, "user.tally"))
        return tally


if __name__ == "__main__":
    mfusepy.FUSE(
        ForgetfulDisk(),
        sys.argv[1],
        foreground=True,
        nothreads=True,
        hard_remove=True,
        use_ino=True,
        attr_timeout=0,
        entry_timeout=0,
        negative_timeout=0,
    )
