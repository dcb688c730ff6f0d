"""Real system calls, repeated on the simulated disk, which knows every state that a power cut may leave.

It shows that the calls of the store are those that the simulated disk was asked for, and none besides: a call that
changes files and is not known here is an error, and after a whole trace the simulated disk must hold what the real one does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.crash.model import ViolationError
from tests.crash.strace import SystemCall
from transcript_store.testing import SimulatedFileSystem

_HARMLESS = frozenset(
    [
        "close",
        "dup",
        "dup2",
        "dup3",
        "fcntl",
        "read",
        "readv",
        "pread64",
        "preadv",
        "preadv2",
        "lseek",
        "fadvise64",
        "newfstatat",
        "fstat",
        "stat",
        "lstat",
        "statx",
        "access",
        "faccessat",
        "faccessat2",
        "fchmod",
        "fchmodat",
        "fchmodat2",
        "flock",
        "getdents64",
        "readlink",
        "readlinkat",
        "ioctl",
    ]
)
SYNCS = ("fsync", "fdatasync", "syncfs")


class Replay:
    """One process whose calls below ``root`` are repeated on ``disk``."""

    def __init__(self, disk: SimulatedFileSystem, root: Path, handles: dict[int, str]) -> None:
        self.disk = disk
        self._root = str(root)
        self._handles: dict[int, int] = {}
        for number, path in handles.items():
            if (inside := self._inside(path)) is not None:
                self._handles[number] = self._open(inside)

    def _inside(self, path: str) -> str | None:
        """A path as the simulated disk has it; None if it is elsewhere."""
        if path == self._root or path == f"{self._root}/":
            return "/"
        return path.removeprefix(self._root) if path.startswith(f"{self._root}/") else None

    def _open(self, path: str) -> int:
        try:
            return self.disk.open_directory(path)
        except NotADirectoryError:
            folder, name = os.path.split(path)
            return self.disk.open_append(self.disk.open_directory(folder), name)

    def run(self, calls: list[SystemCall], before_sync: Callable[[SystemCall], object] = lambda call: None) -> None:
        """Repeat the calls that had an effect; those that strace answered itself had none."""
        for call in calls:
            if call.tampered or call.result is None or call.result < 0:
                continue
            if call.name in SYNCS and call.handles[0][0] in self._handles:
                before_sync(call)
            self._repeat(call)

    def _repeat(self, call: SystemCall) -> None:
        parents = [self._handles.get(number) for number, _ in call.handles]
        names = [text.decode(errors="surrogateescape") for text in call.strings]
        result = call.result or 0
        match call.name:
            case "openat":
                self._open_at(call, parents[0], names[0])
            case "fcntl" if "F_DUPFD" in call.arguments and parents[0] is not None:
                self._handles[result] = parents[0]
            case "close":
                self._handles.pop(call.handles[0][0], None)
            case "write" if parents[0] is not None:
                self.disk.write(parents[0], call.strings[0][:result])
            case "ftruncate" if parents[0] is not None:
                self.disk.truncate(parents[0], int(call.arguments.rsplit(",", 1)[1]))
            case "fsync" if parents[0] is not None:
                self.disk.sync(parents[0])
            case "fdatasync" if parents[0] is not None:
                self.disk.sync_data(parents[0])
            case "syncfs" if parents[0] is not None:
                self.disk.sync_all(parents[0])
            case "mkdirat" if parents[0] is not None:
                self.disk.make_directory(parents[0], names[0])
            case "unlinkat" if parents[0] is not None:
                remove = self.disk.remove_directory if "AT_REMOVEDIR" in call.arguments else self.disk.unlink
                remove(parents[0], names[0])
            case "rename" | "renameat" | "renameat2" if parents[0] is not None:
                if call.handles[0] != call.handles[1]:
                    raise ViolationError(f"a rename from one folder to another is not known to the model: {call}")
                self.disk.rename(parents[0], names[0], names[1])
            case "linkat" if parents[0] is not None and parents[1] is not None:
                self.disk.link(parents[0], names[0], parents[1], names[1])
            case "mmap":
                if parents and parents[0] is not None and "MAP_SHARED" in call.arguments:
                    raise ViolationError(f"a shared mapping of a file of ours: {call}")
            case _:
                if call.name not in _HARMLESS and call.touches(Path(self._root)):
                    raise ViolationError(f"a call that is not known to the model: {call}")

    def _open_at(self, call: SystemCall, parent: int | None, name: str) -> None:
        inside = self._inside(name)
        if parent is None and inside is None:
            return
        assert call.result is not None
        if "O_TRUNC" in call.arguments or "O_TMPFILE" in call.arguments:
            raise ViolationError(f"an open that is not known to the model: {call}")
        if name == "." and parent is not None:
            self._handles[call.result] = parent  # a directory is opened anew to be listed as it is now
            return
        if parent is None:
            assert inside is not None
            handle = self._open(inside)
        elif "O_CREAT" in call.arguments:
            if not ("O_EXCL" in call.arguments and "O_APPEND" in call.arguments and "O_NOFOLLOW" in call.arguments):
                raise ViolationError(f"a file is created that may exist, or not to append: {call}")
            handle = self.disk.create(parent, name)
        elif "O_DIRECTORY" in call.arguments:
            handle = self.disk.open_directory(name, parent)
        else:
            if "O_RDWR" in call.arguments and "O_APPEND" not in call.arguments:
                raise ViolationError(f"a file is opened to write elsewhere than at its end: {call}")
            handle = self.disk.open_append(parent, name)
        if ("O_NOFOLLOW" not in call.arguments and parent is not None) or "O_CLOEXEC" not in call.arguments:
            raise ViolationError(f"a handle that follows links, or that a child inherits: {call}")
        self._handles[call.result] = handle


class PathReplay(Replay):
    """Repeats calls that name their files by whole paths, as Python's ``os`` makes them; without the files that it ``skips``."""

    def __init__(
        self, disk: SimulatedFileSystem, root: Path, handles: dict[int, str], *, skips: Callable[[str], bool]
    ) -> None:
        self._skips = skips
        super().__init__(disk, root, {number: path for number, path in handles.items() if not skips(path)})

    def _repeat(self, call: SystemCall) -> None:
        names = [text.decode(errors="surrogateescape") for text in call.strings] if call.name != "write" else []
        if any(self._skips(name) for name in (*names, *(path for _, path in call.handles))):
            return
        paths = [inside for name in names if (inside := self._inside(name)) is not None]
        match call.name:
            case "openat" if paths:
                self._open_path(call, paths[0])
            case "mkdir" if paths:
                self.disk.make_directory(*self._place(paths[0]))
            case "rmdir" if paths:
                self.disk.remove_directory(*self._place(paths[0]))
            case "unlink" if paths:
                self.disk.unlink(*self._place(paths[0]))
            case "link" | "linkat" if len(paths) == 2:
                self.disk.link(*self._place(paths[0]), *self._place(paths[1]))
            case "rename" if len(paths) == 2:
                self._rename(*paths)
            case "write" | "fsync" | "fdatasync" | "close" | "fcntl":
                super()._repeat(call)
            case "chown" | "fchown" | "utimensat" | "chmod" | "openat":
                pass  # they change no bytes and no names
            case _:
                super()._repeat(call)

    def _place(self, path: str) -> tuple[int, str]:
        folder, name = os.path.split(path)
        return self.disk.open_directory(folder), name

    def _open_path(self, call: SystemCall, path: str) -> None:
        assert call.result is not None
        if "O_CREAT" in call.arguments:
            if "O_EXCL" not in call.arguments:
                raise ViolationError(f"a file is created that may exist: {call}")
            self._handles[call.result] = self.disk.create(*self._place(path))
        else:
            if "O_RDONLY" not in call.arguments:
                raise ViolationError(f"a file is opened to be written in place: {call}")
            self._handles[call.result] = self._open(path)

    def _rename(self, old: str, new: str) -> None:
        (folder, name), (other, new_name) = self._place(old), self._place(new)
        if os.path.dirname(old) == os.path.dirname(new):
            self.disk.rename(folder, name, new_name)
            return
        # One step of the journal on every file system that has one: both names, or neither.
        source, target = self.disk._inode(folder), self.disk._inode(other)  # the file system has no call for it
        self.disk._disk.name((source.number, name, None), (target.number, new_name, source.names[name]))  # the same


def disk_holding(tree: dict[str, bytes | None]) -> SimulatedFileSystem:
    """A simulated disk with these contents, all of them on the medium. Pages are small, so that lines can be torn."""
    disk = SimulatedFileSystem(page_bytes=256, sector_bytes=64)
    for path, data in sorted(tree.items()):
        if data is None:
            folder, name = os.path.split(path)
            parent = disk.open_directory(folder)
            disk.make_directory(parent, name)
            disk.sync(parent)
        else:
            disk.write_file(path, data)
    return disk
