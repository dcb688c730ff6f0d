"""Folders in memory, where syncs cost nothing, for tests that write and kill a lot.

What was left open there has no public list, so private attributes are read: an interruption strikes between any two lines.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from transcript_store._log.log import Log
from transcript_store._os import filesystem
from transcript_store._os.directory import Folder
from transcript_store._os.lock import Lock


@contextmanager
def scratch_directory() -> Iterator[str]:
    """A folder that is removed in the end. What an interrupted call opened there, and could not tell of, is closed."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
        yield directory
        if any(_open_within(directory)):
            gc.collect()  # a store that is still to be collected closes its own
            _have_owners_let_go({handle for _, handle in _open_within(directory)})
            for files, handle in _open_within(directory):
                if handle in files._handles:  # or it was closed with the one that it belongs to
                    files.close(handle)


def _have_owners_let_go(handles: set[int]) -> None:
    """Close what somebody still has, through him: or he closes it again when he is collected, and with it whatever has its
    number by then. (A server of another test was closed so.)
    """
    for owner in gc.get_objects() if handles else ():
        let_go: Callable[[], None] | None = None
        if isinstance(owner, Folder | Log):
            let_go = owner.close if owner.handle in handles else None
        elif isinstance(owner, Lock) and owner._handle in handles:
            let_go = owner.release
        if let_go is not None:
            with suppress(OSError):
                let_go()


def _open_within(directory: str) -> list[tuple[filesystem.PosixFileSystem, int]]:
    handles = [(files, handle) for files in filesystem._in_use for handle in files._handles]
    return [one for one in handles if _path_of(one[1]).startswith(directory)]


def _path_of(handle: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return ""
