"""Threads and processes: while one source waits for a sync, others are read and written."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import chain, islice
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any, TypeVar

from transcript_store.errors import TranscriptStoreError

_THREADS = 4
_AHEAD = 8
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def one_by_one(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Generator[_Result, None, None]:
    """The same in this thread: where nothing waits for the disk, threads only wait for each other."""
    yield from map(function, items)


def in_threads(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Generator[_Result, None, None]:
    """The function's results for the items, in their order. One item is done in this thread; at most eight run at once.

    A caller that stops early waits for those that have started.
    """
    remaining = iter(items)
    first = list(islice(remaining, 2))
    if len(first) < 2:
        yield from map(function, first)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        pending: deque[Future[_Result]] = deque()
        try:
            for item in chain(first, remaining):
                pending.append(pool.submit(function, item))
                if len(pending) >= _AHEAD:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


# ---- processes ----
#
# Several processes at once: where what takes the time is Python, threads only wait for each other.

FEWEST = 200
"""To start two processes takes as long as importing some dozens of sessions."""
_MOST = 500
"""So many items are handed to a process at a time: as many wait for their results if one of them takes long."""
_STOP = signal.SIGUSR1
"""Interrupts a worker process as Ctrl-C would. SIGTERM ends it, by which the pool stops the rest when one was killed."""
_NO_PROCESSES = (OSError, ImportError, NotImplementedError, RuntimeError)
"""Errors at the start if the system has no semaphores, refuses a process or a thread, or kills one at once."""
_log = logging.getLogger(__name__)


def may_fork() -> bool:
    """True if a forked child would be whole: it has one thread, and the locks that the others held. Elsewhere systems forbid it."""
    with suppress(OSError):  # no /proc
        return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1
    return False


def in_processes(
    function: Callable[[list[_Item]], Iterable[_Result]], items: list[_Item], processes: int
) -> Generator[_Result, None, None]:
    """The function's results for the items, in their order. It gets some items at a time, and returns a result for each.

    The processes are forked, so the function needs no pickling; items, results and errors do. If the system refuses or kills a
    process, this process does the rest. All have ended on return. A caller that stops early interrupts them, as Ctrl-C would. If
    this process is killed they end at once.
    """
    size = max(1, min(_MOST, len(items) // (4 * processes)))
    parts = (items[first : first + size] for first in range(0, len(items), size))
    pending: deque[Future[tuple[list[_Result], TranscriptStoreError | None]]] = deque()
    others, pool, reported = {*active_children()}, None, 0
    ours: set[BaseProcess] = set()
    try:
        try:
            pool = ProcessPoolExecutor(processes, get_context("fork"), _begin, (function,))
            with _without_ctrl_c():  # it is this process's to handle, in which it is pending meanwhile
                pending.extend(pool.submit(_all_of, part) for part in islice(parts, 2 * processes))
                ours = {*active_children()} - others  # a pool that forks has all of its processes now
        except _NO_PROCESSES as error:
            _log.warning("the work is not shared among processes: %s", error)
            for child in {*active_children()} - others:
                child.kill()
                child.join()
            pool = None
            yield from function(items)
            return
        while pending:
            results, ended_by = pending.popleft().result()
            pending.extend(pool.submit(_all_of, part) for part in islice(parts, 1))
            for result in results:
                yield result
                reported += 1
            if ended_by is not None:
                raise ended_by
    except BrokenProcessPool:
        _log.warning("a process that shared the work was killed; this one continues alone with what was not reported")
        yield from function(items[reported:])
    finally:
        if pool is not None:
            for child in ours.intersection(active_children()):
                with suppress(ProcessLookupError):
                    if child.pid is not None:
                        os.kill(child.pid, _STOP)
            pool.shutdown(cancel_futures=True)


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Block Ctrl-C in new processes, which a terminal sends to all, and a stop until they are ready."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, _STOP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _WorkerProcess:
    """The work of one process."""

    def __init__(self, function: Callable[[list[Any]], Iterable[Any]]) -> None:
        self._function = function
        self._is_stopped = self._is_at_work = False
        Thread(target=_end_with_the_parent, daemon=True).start()
        signal.signal(_STOP, self._stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {_STOP})

    def all_of(self, items: list[Any]) -> tuple[list[Any], TranscriptStoreError | None]:
        """The results, up to the error that ended them.

        Raises:
            KeyboardInterrupt: the process was stopped.
        """
        results: list[Any] = []
        try:
            self._is_at_work = True
            if self._is_stopped:
                raise KeyboardInterrupt
            results.extend(self._function(items))  # one by one: those before an error stay
        except TranscriptStoreError as error:
            return results, error
        finally:
            self._is_at_work = False
        return results, None

    def _stop(self, *_: object) -> None:
        self._is_stopped = True
        if self._is_at_work:
            self._is_at_work = False  # what it interrupts is cleaned up undisturbed
            raise KeyboardInterrupt


_work: _WorkerProcess
"""That of this process."""


def _begin(function: Callable[[list[Any]], Iterable[Any]]) -> None:
    global _work  # noqa: PLW0603 - a process has one
    _work = _WorkerProcess(function)


def _all_of(items: list[Any]) -> tuple[list[Any], TranscriptStoreError | None]:
    return _work.all_of(items)


def _end_with_the_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
