"""Real file systems on loop devices, whose power can be cut: as root."""

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
    "xfs": ("mkfs.xfs", "-q", "-f"),
}
SIZE_BYTES = {"ext4": 96 << 20, "xfs": 300 << 20}  # mkfs.xfs makes none below 300 MB


def run(*command: str | Path) -> str:
    """Run a command that must succeed."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


class Volume:
    """A file system in an image; ``path`` is where it is mounted."""

    def __init__(self, kind: str, image: Path, path: Path) -> None:
        self.kind = kind
        self.path = path
        self._image = image

    def mount(self) -> None:
        run("mount", "-o", "loop", self._image, self.path)

    def unmount(self) -> None:
        run("umount", self.path)

    def cut_power(self) -> None:
        """Stop the file system where it is: nothing that was not written to the device reaches it any more."""
        handle = os.open(self.path, os.O_RDONLY)
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
        image, path = Path(folder, "image"), Path(folder, "mounted")
        image.touch()
        os.truncate(image, SIZE_BYTES[kind])
        make_file_system(kind, image)
        path.mkdir()
        there = Volume(kind, image, path)
        there.mount()
        try:
            yield there
        finally:
            with suppress(AssertionError):
                run("umount", "--lazy", path)
