"""Which file system a directory is on, as Linux reports it, and what is known about that file system."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_MOUNTINFO = "/proc/self/mountinfo"
_ESCAPED = re.compile(r"\\([0-7]{3})")

IN_MEMORY = {"tmpfs", "ramfs", "rootfs"}
OVER_A_NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "ceph",
    "afs",
    "lustre",
    "gfs2",
    "ocfs2",
    "glusterfs",
    "sshfs",
}
TRIED = {"ext4", "xfs", "btrfs", "overlay", "tmpfs"}
"""The file systems on which the crash tests of this package were run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A line of ``/proc/self/mountinfo`` (proc(5))."""

    kind: str
    source: str
    point: str
    options: tuple[str, ...]
    """The options of the mount, then the options of the file system itself."""

    def __str__(self) -> str:
        return f"{self.kind} on {self.source}, mounted at {self.point} ({','.join(self.options)})"


def mount_of(path: str) -> Mount | None:
    """The mount that a directory is on; None without ``/proc/self/mountinfo`` (not Linux, or no /proc)."""
    try:
        with open(_MOUNTINFO, encoding="utf-8", errors="surrogateescape") as lines:
            mounts = [_parsed(line) for line in lines]
    except OSError:
        return None
    real = os.path.realpath(path)
    over = [mount for mount in mounts if os.path.commonpath([mount.point, real]) == mount.point]
    # The longest mount point is the nearest one. Of several mounts on the same point, the last one hides the others.
    return max(reversed(over), key=lambda mount: len(mount.point), default=None)


def _parsed(line: str) -> Mount:
    before, _, after = line.rstrip("\n").partition(" - ")
    point, options = before.split(" ")[4:6]
    kind, source, of_the_file_system = after.split(" ")[:3]
    both = dict.fromkeys([*options.split(","), *of_the_file_system.split(",")])
    return Mount(kind=kind, source=_plain(source), point=_plain(point), options=tuple(both))


def _plain(text: str) -> str:
    """Undo mountinfo's escapes: it writes a space, a tab, a line feed and a backslash as octal numbers."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)
