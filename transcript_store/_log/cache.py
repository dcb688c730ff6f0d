"""The newest lines of a log in memory, up to a bound: the very bytes that were read or appended, never a copy.

A call may be interrupted between any two lines here (Ctrl-C). What is held is in order even then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from transcript_store._log.record import Position

OVERHEAD_BYTES = 336
"""What a block takes beside its bytes: its objects, those of a position, and a place in the queue."""


class Block(NamedTuple):
    """Whole lines, and where they stand."""

    begin: Position
    lines: bytes | bytearray
    end: Position


class Cache:
    """Holds the lines of a log from ``begin`` to its end. If there is no room, it holds none, and ``begin`` is the end."""

    def __init__(self, limit_bytes: int, begin: Position) -> None:
        self._limit_bytes = limit_bytes
        self._blocks: deque[Block] = deque()
        self._bytes = 0
        self._end = begin

    @property
    def begin(self) -> Position:
        """Where the first line begins that is held."""
        return self._blocks[0].begin if self._blocks else self._end

    def put(self, block: Block) -> None:
        """Hold what stands behind all that is held. If there is no room for all, the oldest blocks go."""
        self._blocks.append(block)
        self._end = block.end
        self._bytes += len(block.lines) + OVERHEAD_BYTES
        while self._bytes > self._limit_bytes:
            self._bytes -= len(self._blocks.popleft().lines) + OVERHEAD_BYTES

    def until(self, end: Position) -> Cache:
        """A cache of what stands before ``end``, where a block begins or ends."""
        cache = Cache(self._limit_bytes, min(self.begin, end))
        for begin, lines, block_end in self._blocks:
            if block_end.offset_bytes <= end.offset_bytes:
                cache.put(Block(begin, lines, block_end))
        return cache

    def skip_to(self, end: Position) -> None:
        """Hold nothing of what stands before a place."""
        self._blocks.clear()
        self._bytes = 0
        self._end = end

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks)

    def newest_first(self, before: int | None = None) -> Iterator[Block]:
        """The blocks from the end of the log on; or from the last one on that begins behind fewer records than ``before``."""
        passed_over = 0
        if before is not None:
            passed_over = len(self._blocks) - bisect_left(self._blocks, before, key=attrgetter("begin.seq"))
        return islice(reversed(self._blocks), passed_over, None)
