"""Where a run was made: what a reader has to know to believe its figures."""

from __future__ import annotations

import hashlib
import os
import platform
import sqlite3
import subprocess
import time
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
        "SHA-256": f"{_hashed_in_a_second() / 1e6:,.0f} MB/s",
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


def _hashed_in_a_second() -> float:
    """Bytes. It differs fourfold between processors with and without SHA instructions, and opening a conversation hashes it whole."""
    block = bytes(1 << 24)
    times = []
    for _ in range(5):
        began = time.process_time()
        hashlib.sha256(block).digest()
        times.append(time.process_time() - began)
    return len(block) / min(times)
