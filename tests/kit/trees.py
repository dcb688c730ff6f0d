"""The files below a folder, to compare before and after."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def tree(directory: Path | str, *, but: tuple[str, ...] = ()) -> dict[str, tuple[int, bytes]]:
    """Everything below a path (itself too): its mode, and its bytes or its target."""
    top = Path(directory)
    found: dict[str, tuple[int, bytes]] = {}
    for path in [top, *sorted(top.rglob("*"))] if top.is_dir() else [top]:
        if path.name not in but and os.path.lexists(path):
            mode = path.lstat().st_mode
            content = path.read_bytes() if stat.S_ISREG(mode) else b""
            found[str(path)] = mode, os.readlink(os.fsencode(path)) if stat.S_ISLNK(mode) else content
    return found


def contents(directory: Path | str) -> dict[str, bytes]:
    """The bytes of every file below a directory except the lock, by its path from there."""
    files = (path for path in sorted(Path(directory).rglob("*")) if path.is_file() and path.name != "lock")
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def times(directory: Path) -> dict[str, int]:
    """When everything below a directory (itself too) was changed, in nanoseconds."""
    return {str(path): path.stat().st_mtime_ns for path in [directory, *directory.rglob("*")]}


def bytes_below(directory: Path) -> bytes:
    """The bytes of every file below a directory, one after the other: what may not stand in any of them is looked for once."""
    return b"".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())


def transcript_lines(conversation: Path) -> list[bytes]:
    """The lines of a conversation's transcript, each with its line feed."""
    return (conversation / "transcript.jsonl").read_bytes().splitlines(keepends=True)


def remove_last_line(path: Path) -> None:
    """Take the last record off: every line that is left verifies."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def replace_by_folder(path: Path) -> None:
    """Put an empty folder where a file was."""
    path.unlink()
    path.mkdir()
