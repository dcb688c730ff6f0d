"""What stands below a folder, to be held against what stood there before."""

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
