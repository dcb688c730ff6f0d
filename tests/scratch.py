"""Folders in memory, where syncs cost nothing, for tests that write and kill a lot."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from transcript_store._os import filesystem


@contextmanager
def scratch_directory() -> Iterator[str]:
    """A folder that is removed in the end. What an interrupted call opened there, and could not tell of, is closed."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
        yield directory
        if any(_open_within(directory)):
            gc.collect()  # a store that is still to be collected closes its own
            for files, handle in _open_within(directory):
                if handle in files._handles:  # or it was closed with the one that it belongs to
                    files.close(handle)


def _open_within(directory: str) -> list[tuple[filesystem.PosixFileSystem, int]]:
    handles = [(files, handle) for files in filesystem._in_use for handle in files._handles]
    return [one for one in handles if _path_of(one[1]).startswith(directory)]


def _path_of(handle: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return ""
