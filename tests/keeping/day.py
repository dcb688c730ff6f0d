"""A day in the life of a keeper: it is killed again and again while sessions are written, a folder is renamed, the disk fills, sessions go."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from tests.keeping.helpers import keeping, until

_MOST_SECONDS = 240


class Writers(Protocol):
    """The programs of a day."""

    def write_for(self, seconds: float) -> None:
        """Write sessions for so long."""

    def rename_the_project(self, library: Path) -> None:
        """Give the project's folder another name; what comes goes into the new one, and is one project with the old in the library."""

    def delete_some(self) -> None:
        """Delete some of the sessions, as the programs do with old ones."""

    def paused(self) -> AbstractContextManager[None]:
        """Nothing is written in the block."""

    def stop(self) -> None:
        """Write no more."""

    def differs_from(self, library: Path) -> object:
        """What a library lacks, or has too much, of all that was written; something false if it is right."""


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[tuple[Path, bool]]:
    """A disk that can be filled, and whether it is one: where nothing can be mounted, it is a folder."""
    folder.mkdir()
    is_disk = os.geteuid() == 0 and shutil.which("mount") is not None
    if is_disk:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        is_disk = subprocess.run(mount, check=False).returncode == 0
    try:
        yield folder, is_disk
    finally:
        if is_disk:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def live_a_day(
    writers: Writers, disk: Path, choose: random.Random, *, kills: int, fills: bool, longest: float = 3.0
) -> Path:
    """Live through it; returns the library, which has all that was written. The last keeper was ended with SIGTERM."""
    library = disk / "library"
    for kill in range(kills):
        with keeping(library) as process:
            if choose.random() < 0.7:  # else it may be killed while it starts
                until(process, "began")
            writers.write_for(choose.uniform(0.2, longest))
            process.send_signal(signal.SIGKILL)
        if kill == kills // 3:
            writers.rename_the_project(library)
        if fills and kill == kills // 2:
            fill_and_free(disk, library, writers.write_for)
        if kill == 2 * kills // 3:
            # A program deletes only what lay there for weeks: it is in the library by then.
            with writers.paused():
                with keeping(library):
                    wait_until_all_is_there(library, writers)
                writers.delete_some()
    writers.stop()
    with keeping(library) as process:
        wait_until_all_is_there(library, writers)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    return library


def wait_until_all_is_there(library: Path, writers: Writers) -> None:
    """Wait until a library has all that was written."""
    deadline = time.monotonic() + _MOST_SECONDS
    while not library.exists() or (difference := writers.differs_from(library)):
        assert time.monotonic() < deadline, difference
        time.sleep(0.2)


def fill_and_free(disk: Path, library: Path, write_for: Callable[[float], None]) -> None:
    """The disk is full while sessions are written: the keeper says so and lives. Then there is room again, and it is killed."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        try:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        except OSError:
            pass
    with keeping(library) as process:
        write_for(3.0)
        until(process, "problem", doing="import")
        assert process.poll() is None, "it ended because the disk was full"
        ballast.unlink()
        process.send_signal(signal.SIGKILL)
