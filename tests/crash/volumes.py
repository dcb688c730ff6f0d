"""Real file systems on loop devices, whose power can be cut: as root.

``overlay`` is what a container has: an overlayfs, empty below, whose upper layer is on ext4.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FS_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = struct.pack("I", 2)
_MKFS = {
    "ext4": ("mkfs.ext4", "-q", "-F"),
    "overlay": ("mkfs.ext4", "-q", "-F"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}
SIZE_BYTES = {"ext4": 96 << 20, "overlay": 96 << 20, "xfs": 300 << 20, "btrfs": 128 << 20}
"""mkfs.xfs makes none below 300 MB, mkfs.btrfs none below 109."""


def run(*command: str | Path) -> str:
    """Run a command that must succeed."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


class Volume:
    """A file system in an image; ``path`` is where it is mounted, in a folder of its own."""

    def __init__(self, kind: str, image: Path, folder: Path) -> None:
        self.kind = kind
        self.path = folder / "mounted"
        self._image = image
        self._below = folder / "below" if kind == "overlay" else self.path
        """Where the file system of the image is mounted."""
        for path in {self.path, self._below}:
            path.mkdir()

    def mount(self) -> None:
        run("mount", "-o", "loop", self._image, self._below)
        if self._below != self.path:
            for name in ("lower", "upper", "work"):
                (self._below / name).mkdir(exist_ok=True)
            run("sync", "-f", self._below)  # the layers are there before anything is stored
            layers = ",".join(f"{name}dir={self._below / name}" for name in ("lower", "upper", "work"))
            run("mount", "-t", "overlay", "overlay", "-o", layers, self.path)

    def unmount(self) -> None:
        run("umount", self.path)
        if self._below != self.path:
            run("umount", self._below)

    def let_go(self) -> None:
        """Unmount it whatever it is doing."""
        for path in (self.path, self._below):
            with suppress(AssertionError):
                run("umount", "--lazy", path)

    def cut_power(self) -> None:
        """Stop the file system where it is: nothing that was not written to the device reaches it any more."""
        handle = os.open(self._below, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _FS_IOC_SHUTDOWN, _NO_LOG_FLUSH)
        finally:
            os.close(handle)


def make_file_system(kind: str, image: Path) -> None:
    run(*_MKFS[kind], image)


@contextmanager
def volume(kind: str) -> Iterator[Volume]:
    """A new file system of this kind, mounted; unmounted and gone at the end, whatever happens."""
    with tempfile.TemporaryDirectory(prefix="volume-") as folder:
        image = Path(folder, "image")
        image.touch()
        os.truncate(image, SIZE_BYTES[kind])
        make_file_system(kind, image)
        there = Volume(kind, image, Path(folder))
        there.mount()
        try:
            yield there
        finally:
            there.let_go()
