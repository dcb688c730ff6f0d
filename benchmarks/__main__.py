"""Run the measurements and print them as one table. Nothing is asserted: the targets stand beside the numbers."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from benchmarks.measurements import MEASUREMENTS, Row, Workplace
from transcript_store import __version__

_IN_MEMORY = ("tmpfs", "ramfs")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=sys.modules["benchmarks"].__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages and fewer rounds")
    parser.add_argument("--only", choices=MEASUREMENTS, action="append", help="only this measurement; may be repeated")
    parser.add_argument("--directory", type=Path, help="where the files go; on a real disk")
    options = parser.parse_args()

    parent = options.directory or _default_directory()
    with tempfile.TemporaryDirectory(prefix=".benchmarks-", dir=parent) as directory:
        _print_machine(Path(directory))
        _print_row("", "ours", "beside", "ratio", "middle half", "target", "")
        place = Workplace(Path(directory), quick=options.quick)
        for name in options.only or MEASUREMENTS:
            for row in MEASUREMENTS[name](place):
                _print(row)


def _default_directory() -> Path:
    """The current directory, or the system's temporary one; the first that is not in memory."""
    candidates = [path for path in (Path.cwd(), Path(tempfile.gettempdir())) if os.access(path, os.W_OK)]
    return next((path for path in candidates if file_system(path) not in _IN_MEMORY), candidates[0])


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


def _print_machine(directory: Path) -> None:
    kind = file_system(directory)
    print(
        f"transcript-store {__version__}, orjson {version('orjson')}, filelock {version('filelock')}, "
        f"{platform.python_implementation()} {platform.python_version()}, {platform.system()} {platform.release()}\n"
        f"{_processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, files on {kind}"
    )
    if kind in _IN_MEMORY:
        print("THE DURABLE FIGURES MEAN NOTHING HERE: use --directory on a real disk")
    print()


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _print(row: Row) -> None:
    target = "" if row.limit is None else f"≤ {row.limit:<5g}{'met' if row.value <= row.limit else 'MISSED'}"
    _print_row(row.what, row.ours, row.beside, f"{row.value:.2f}", row.spread, target, row.note)


def _print_row(what: str, ours: str, beside: str, value: str, spread: str, target: str, note: str) -> None:
    print(f"{what:<58}{ours:>9}{beside:>10}{value:>8}  {spread:<14}{target:<15}{note}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
