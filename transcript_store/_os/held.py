"""Which files are locked right now, as the kernel tells, without taking a lock: a look must not refuse a writer that comes meanwhile."""

from __future__ import annotations

import os
import re

_FLOCK = re.compile(r"^\d+: (?:FLOCK|OFDLCK)\s+\S+\s+WRITE\s+(-?\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", re.MULTILINE)


def locked_files() -> set[tuple[int, int]] | None:
    """Device and inode of each file that is locked to write, and process and inode; None where the kernel does not tell.

    Linux does. A file of btrfs or overlayfs has another device there than ``stat`` says, so the process is taken as well.
    """
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    found = set()
    for pid, major, minor, inode in _FLOCK.findall(text):
        found |= {(os.makedev(int(major, 16), int(minor, 16)), int(inode)), (-int(pid), int(inode))}
    return found


def is_alive(pid: int) -> bool:
    """Whether a process of this host has this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
