"""Several at once: where one is written with syncs, others can be read and written while it waits for the disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

_THREADS = 4
_AHEAD = 8
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def one_by_one(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Generator[_Result, None, None]:
    """The same in this thread: where nothing waits for the disk, threads only wait for each other."""
    yield from map(function, items)


def in_threads(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Generator[_Result, None, None]:
    """The function's results for the items, in their order. One item alone is done in this thread.

    At most eight are under way. Whoever stops in between waits for those that have begun.
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
