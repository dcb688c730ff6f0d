"""Which files may have changed: reported by the system through watchfiles, otherwise found by polling.

Both report candidates. The caller checks them, and reads all folders from time to time: a watch may miss changes while it starts,
on a network share or while the machine sleeps.
"""

from __future__ import annotations

import os
import queue
import select
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Protocol

from transcript_store.sources import FoundSource, folder_of, session_folders

_POLL_SECONDS = 2.0
_HOT_SECONDS = 2 * 86_400
"""A source that changed within this time is checked each time: a session may take a day or two."""
_MOST_HOT = 500
_DEEPEST = 6
_STEP_MILLISECONDS = 1000
"""How often watchfiles checks for events. Its default of 50 ms would cost more than everything else when idle."""
_BESIDE_A_DATABASE = ("-wal", "-shm", "-journal")


class Watcher(Protocol):
    """Reports files that may have changed."""

    how: str
    """How it knows: ``watchfiles`` or ``polling``."""

    def know(self, found: Iterable[FoundSource]) -> None:
        """Take in what a look at all folders found."""

    def wait(self, seconds: float) -> set[str]:
        """Wait until something may have changed, at most so long; the paths of files, of which some may be gone. Empty if nothing did."""

    def close(self) -> None:
        """End it."""


def session_roots() -> list[str]:
    """The folders on this machine below which programs keep sessions: of each pattern the part before the first ``*``."""
    roots: dict[str, None] = {}
    for place in session_folders():
        for pattern in place.patterns:
            fixed = pattern.split("*")[0].rpartition("/")[0]
            root = os.path.join(folder_of(place), fixed) if fixed else folder_of(place)
            if os.path.isdir(root):
                roots[root] = None
    return [root for root in roots if not any(root.startswith(f"{other}/") for other in roots)]


def files_at(path: str) -> Iterator[str]:
    """The file at a path, or the files below it if it is a folder: one that is new, or was moved there, may have sessions already."""
    for end in _BESIDE_A_DATABASE:
        path = path.removesuffix(end)
    if not os.path.isdir(path) or os.path.islink(path):
        yield path
        return
    deepest = path.count("/") + _DEEPEST
    for folder, folders, names in os.walk(path):
        if folder.count("/") >= deepest:
            folders.clear()
        yield from (os.path.join(folder, name) for name in names)


def pause(seconds: float) -> None:
    """Sleep for a while by a relative timeout: ``time.sleep`` waits for a moment of a clock, and fails where that is a simulated one."""
    select.select((), (), (), seconds)


class PollingWatcher:
    """Polls the sources that changed last and the folders of all, every other second."""

    how = "polling"

    def __init__(self, *, sleep: Callable[[float], object] | None = None) -> None:
        self._sleep = pause if sleep is None else sleep
        self._seen: dict[str, tuple[int, ...] | None] = {}

    def know(self, found: Iterable[FoundSource]) -> None:
        """Choose what to look at: the sources that changed last, and every folder of a source or between it and its program's."""
        roots = session_roots()
        recent = time.time_ns() - int(_HOT_SECONDS * 10**9)
        sources = sorted(found, key=lambda one: one.mtime_ns, reverse=True)
        looked_at = {
            path for one in sources[:_MOST_HOT] if one.mtime_ns >= recent for path in (one.path, f"{one.path}-wal")
        }
        looked_at.update(roots)
        for folder in {os.path.dirname(one.path) for one in sources}:
            at = folder
            while at not in looked_at and any(at.startswith(f"{root}/") for root in roots):
                looked_at.add(at)
                at = os.path.dirname(at)
        self._seen = {path: _looks(path) for path in looked_at}

    def wait(self, seconds: float) -> set[str]:
        """As :meth:`Watcher.wait`."""
        end = time.monotonic() + seconds
        while True:
            self._sleep(max(0.0, min(_POLL_SECONDS, end - time.monotonic())))
            changed: set[str] = set()
            for path, before in self._seen.items():
                if (now := _looks(path)) != before:
                    self._seen[path] = now
                    changed.update(self._new_in(path, now))
            for path in changed:
                self._seen.setdefault(path, _looks(path))
            if changed or time.monotonic() >= end:
                return changed

    def _new_in(self, path: str, now: tuple[int, ...] | None) -> set[str]:
        """The files that may have changed at a path: those of a changed folder, and those below its new folders."""
        if now is None or not stat.S_ISDIR(now[0]):
            return set(files_at(path))
        found: set[str] = set()
        with suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    found.add(entry.path)
                elif entry.path not in self._seen:
                    found.update(files_at(entry.path))
        return found

    def close(self) -> None:
        """Nothing is held."""


def _looks(path: str) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)  # a program's own folder may be a link
    except OSError:
        return None
    # The size of a folder says nothing, and the times of one that is read do not change.
    return (status.st_mode, status.st_ino, status.st_mtime_ns, 0 if stat.S_ISDIR(status.st_mode) else status.st_size)


class SystemWatcher:
    """Hears of changes from the system, through watchfiles, in a thread of its own.

    Raises:
        ModuleNotFoundError: watchfiles is not installed.
    """

    how = "watchfiles"

    def __init__(self) -> None:
        import watchfiles

        self._watch = watchfiles.watch
        self._changed: queue.SimpleQueue[set[str] | BaseException] = queue.SimpleQueue()
        self._roots: list[str] = []
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def know(self, found: Iterable[FoundSource]) -> None:  # noqa: ARG002 (the other watcher needs it)
        """Watch the folders of the programs that are used here by now."""
        roots = session_roots()
        if roots == self._roots and self._thread is not None and self._thread.is_alive():
            return
        self.close()
        self._roots = roots
        if roots:
            self._end = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(roots, self._end), daemon=True)
            self._thread.start()

    def _run(self, roots: list[str], end: threading.Event) -> None:
        try:
            for changes in self._watch(
                *roots,
                stop_event=end,
                step=_STEP_MILLISECONDS,
                debounce=2 * _STEP_MILLISECONDS,
                watch_filter=None,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                self._changed.put({_below(path, roots) for _, path in changes})
        except BaseException as error:
            if not end.is_set():
                self._changed.put(error)

    def wait(self, seconds: float) -> set[str]:
        """As :meth:`Watcher.wait`.

        Raises:
            OSError: the system watches no more folders, or refuses; polling can go on.
        """
        changed: set[str] = set()
        try:
            event = self._changed.get(timeout=max(0.001, seconds))
            while True:
                if isinstance(event, BaseException):
                    raise OSError(f"the folders cannot be watched: {event}") from event
                changed.update(path for given in event for path in files_at(given))
                event = self._changed.get_nowait()
        except queue.Empty:
            return changed

    def close(self) -> None:
        """End the thread."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
            self._thread = None


def _below(path: str, roots: Iterable[str]) -> str:
    """A path below the watched folder: the system may name the folder to which a link leads."""
    for root in roots:
        if (real := os.path.realpath(root)) != root and path.startswith(f"{real}/"):
            return root + path[len(real) :]
    return path


def best_watcher(*, polls: bool = False) -> Watcher:
    """A watcher that hears from the system, or one that polls: where watchfiles is not installed, or if it ``polls``."""
    if polls:
        return PollingWatcher()
    try:
        return SystemWatcher()
    except ImportError:  # not installed, or not available for this machine
        return PollingWatcher()
