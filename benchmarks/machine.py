"""Where a run was made: what a reader has to know to believe its figures."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from transcript_store import __version__

IN_MEMORY = ("tmpfs", "ramfs")


def describe(directory: Path) -> dict[str, str]:
    """The machine, the versions, and the disk that holds ``directory``."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "transcript-store": f"{__version__} ({commit.stdout.strip() or 'no commit'})",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "orjson": version("orjson"),
        "filelock": version("filelock"),
        "SQLite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.release()}",
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "load at the start": f"{os.getloadavg()[0]:.1f}",
        "files on": file_system(directory),
    }


def default_directory(temporary: Path) -> Path:
    """The current directory, or the system's temporary one; the first that is not in memory."""
    candidates = [path for path in (Path.cwd(), temporary) if os.access(path, os.W_OK)]
    return next((path for path in candidates if file_system(path) not in IN_MEMORY), candidates[0])


def file_system(path: Path) -> str:
    """The kind of file system that holds a path, as Linux tells it."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    best = ("", "unknown")
    for line in mounts.read_text().splitlines():
        _, point, kind, *_ = line.split()
        if path.resolve().is_relative_to(point):
            best = max(best, (point, kind), key=lambda found: len(found[0]))
    return best[1]


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
