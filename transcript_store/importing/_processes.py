"""Several processes at once: where what takes the time is Python, threads only wait for each other."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any, TypeVar

from transcript_store.errors import TranscriptStoreError

FEWEST = 200
"""To start two processes takes as long as importing some dozens of sessions."""
_MOST = 500
"""So many items are handed to a process at a time: as many wait for their results if one of them takes long."""
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_log = logging.getLogger(__name__)


def may_fork() -> bool:
    """Whether a forked child would be whole: it has one thread, and the locks that the others held. Elsewhere systems forbid it."""
    return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1


def in_processes(
    function: Callable[[list[_Item]], Iterable[_Result]], items: list[_Item], processes: int
) -> Generator[_Result, None, None]:
    """The function's results for the items, in their order. It is called with some of the items at a time, and gives a result for each.

    The processes are forked, so the function needs no pickling; items, results and errors do. Where one is killed, as by a system
    that has no memory left, this process does what is not reported yet. All have ended on return; whoever stops in between waits for
    what has begun. If this process is killed they end at once.
    """
    size = max(1, min(_MOST, len(items) // (4 * processes)))
    parts = (items[first : first + size] for first in range(0, len(items), size))
    pending: deque[Future[tuple[list[_Result], TranscriptStoreError | None]]] = deque()
    reported = 0
    pool = ProcessPoolExecutor(processes, get_context("fork"), _begin, (function,))
    try:
        with _without_ctrl_c():  # it is this process's to handle, in which it is pending meanwhile
            pending.extend(pool.submit(_all_of, part) for _, part in zip(range(2 * processes), parts, strict=False))
        while pending:
            results, error = pending.popleft().result()
            pending.extend(pool.submit(_all_of, part) for _, part in zip(range(1), parts, strict=False))
            for result in results:
                yield result
                reported += 1
            if error is not None:
                raise error
    except BrokenProcessPool:
        _log.warning("a process that shared the work was killed; this one goes on alone with what was not reported")
        yield from function(items[reported:])
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """What begins here inherits that Ctrl-C, which a terminal sends to all processes, is not for it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_function: Callable[[list[Any]], Iterable[Any]]
"""Of a process that shares the work."""


def _begin(function: Callable[[list[Any]], Iterable[Any]]) -> None:
    global _function  # noqa: PLW0603 - a process has one
    _function = function
    Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _all_of(items: list[Any]) -> tuple[list[Any], TranscriptStoreError | None]:
    """The results, up to the error that ended them."""
    results: list[Any] = []
    try:
        results.extend(_function(items))  # one by one: those before an error stay
    except TranscriptStoreError as error:
        return results, error
    return results, None
