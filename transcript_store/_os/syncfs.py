"""Where is one sync of a whole file system reliable?

A thousand new files are a thousand waits for the disk if each is synced, and one if the file system is (``syncfs``).
But not every system reports its errors:

* Before Linux 5.8 an error of writing data was not reported at all, and before 5.17 the file system's own error was
  dropped.
* An overlayfs does not pass on errors of its upper layer. FUSE, 9p and network file systems may not wait for their server.
* macOS has ``sync()``, which starts writing and returns.

So it is used for ext4, xfs and btrfs on Linux 5.17 and later; everywhere else each file is synced by itself. tmpfs has
no disk, so nothing is gained there.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from typing import Any

_RELIABLE = frozenset({"ext4", "xfs", "btrfs"})
_FIRST_RELIABLE = (5, 17)


def can_be_relied_upon(handle: int) -> bool:
    """True if :func:`sync` reports every error on the file system of an open directory."""
    version = re.match(r"(\d+)\.(\d+)", release())
    if sys.platform != "linux" or version is None or (int(version[1]), int(version[2])) < _FIRST_RELIABLE:
        return False
    try:
        return type_of(handle) in _RELIABLE and hasattr(_libc(), "syncfs")
    except OSError:  # a container without /proc
        return False


def sync(handle: int) -> None:
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
