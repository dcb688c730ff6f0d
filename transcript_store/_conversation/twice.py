"""Damage counts when it is seen twice: beside a writer at work, a transcript can look damaged for a moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from transcript_store._os.filesystem import FileSystem

_ATTEMPTS = 20
_WAIT_SECONDS = 0.005

Found = TypeVar("Found")


def twice(
    files: FileSystem,
    look: Callable[[], Found],
    is_fine: Callable[[Found], bool],
    *,
    key: Callable[[Found], Any] = lambda found: found,
) -> Found:
    """Look until what is found is fine, or the same twice in a row (by its ``key``), or until the last of 20 looks."""
    found = look()
    for _ in range(_ATTEMPTS - 1):
        if is_fine(found):
            return found
        before = key(found)
        files.wait(_WAIT_SECONDS)
        found = look()
        if key(found) == before:
            return found
    return found
