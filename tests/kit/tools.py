"""Programs, devices and libraries of the machine that tests use: the one place that looks for them anywhere else than on ``PATH``.

``TRANSCRIPT_STORE_ONLY_PATH=1`` switches every other look-up off. `.ci/run` sets it where it proves that the suite passes on a machine
that has nothing but Python: such a machine cannot be made by taking programs away that others may be using.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

VARIABLE = "TRANSCRIPT_STORE_ONLY_PATH"
ELSEWHERE = {"initdb": "/usr/lib/postgresql/*/bin"}
"""Folders that a distribution keeps off ``PATH``, as a pattern with the version in it."""


def looks_elsewhere() -> bool:
    """Whether what is not on ``PATH`` may be looked for by a path, or by the loader of shared libraries."""
    return os.environ.get(VARIABLE) != "1"


def tool(name: str) -> Path | None:
    """A program by its name, or a device by its path; None if this machine does not have it. Of several versions the newest."""
    if name.startswith("/"):
        return Path(name) if looks_elsewhere() and Path(name).exists() else None
    if (found := shutil.which(name)) is not None:
        return Path(found)
    if name in ELSEWHERE and looks_elsewhere():
        folders = sorted(Path("/").glob(ELSEWHERE[name].lstrip("/")), key=_version)
        return next((folder / name for folder in reversed(folders) if (folder / name).exists()), None)
    return None


def _version(folder: Path) -> list[int]:
    return [int(part) for part in folder.parts if part.isdigit()]
