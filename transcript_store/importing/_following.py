"""Sources that changed since they were imported, and have been quiet since.

A program writes a reply line by line, over seconds. A source that was imported in between would look rewritten later.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from transcript_store.sources import FoundSource

QUIET_SECONDS = 10.0
"""How long a source does not change before it is imported."""
_DATABASES = (".db", ".sqlite", ".sqlite3", ".vscdb")


class SourceFollower:
    """Remembers each source as it was imported, and finds those that changed since.

    Args:
        imported: the sources that were imported, as they were then.
        quiet_seconds: how long a source must not change before it is due.
    """

    def __init__(self, imported: Iterable[FoundSource] = (), *, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._imported = {one.path: one for one in imported}
        self._waiting: dict[str, tuple[FoundSource, float]] = {}
        """The sources that changed, each as it is now, and since when it looks so, by the monotonic clock."""
        self._quiet_seconds = quiet_seconds

    def __len__(self) -> int:
        """How many sources changed and were not imported since."""
        return len(self._waiting)

    def look(self, found: Iterable[FoundSource], *, is_all: bool) -> None:
        """Compare sources with those that were imported.

        With ``is_all`` missing ones are noted as removed. They may return, when a program replaces its file or a disk is mounted,
        and are then compared with their import.
        """
        now, paths = time.monotonic(), set()
        for one in found:
            paths.add(one.path)
            if self._imported.get(one.path) == one:
                self._waiting.pop(one.path, None)
            elif (before := self._waiting.get(one.path)) is None or (
                before[0] != one and not one.path.endswith(_DATABASES)
            ):
                self._waiting[one.path] = one, now
            else:
                # Some session of a database may always be at work, so it waits since its first change, whatever comes after it:
                # only its sessions that changed are read.
                self._waiting[one.path] = one, before[1]
        if is_all:
            for path in [path for path in self._waiting if path not in paths]:
                del self._waiting[path]

    def due(self) -> list[FoundSource]:
        """The sources that changed and have been quiet long enough, by their own time or by ours: theirs may lie ahead of the clock."""
        now, quiet_since = time.monotonic(), time.time_ns() - int(self._quiet_seconds * 10**9)
        return [
            one
            for one, since in self._waiting.values()
            if one.mtime_ns <= quiet_since or since <= now - self._quiet_seconds
        ]

    def seconds_until_due(self) -> float | None:
        """How long until the next source may be due; None if nothing changed."""
        if not self._waiting:
            return None
        first = min(since for _, since in self._waiting.values())
        return max(0.0, first + self._quiet_seconds - time.monotonic())

    def is_waiting(self, path: str) -> bool:
        """True if the source at a path changed and was not imported since."""
        return path in self._waiting

    def imported(self, found: Iterable[FoundSource]) -> None:
        """Note that sources were imported as they were found."""
        for one in found:
            self._imported[one.path] = one
            if (waiting := self._waiting.get(one.path)) is not None and waiting[0] == one:
                del self._waiting[one.path]

    def forget(self, path: str) -> None:
        """Take a source for one that was never imported: the next look at it finds it changed."""
        self._imported.pop(path, None)
