"""Times that can be compared: every way is timed once in each round, and a ratio is taken within its round.

A machine that is busy for a while slows both ways down alike, so the ratios hold where the times do not.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Middle(NamedTuple):
    """The median of some numbers, and between which two the middle half of them lies."""

    low: float
    median: float
    high: float


def middle(numbers: Sequence[float]) -> Middle:
    ordered = sorted(numbers)
    low, median, high = (ordered[len(ordered) * k // 4] for k in (1, 2, 3))
    return Middle(low, median, high)


def interleave(
    ways: Sequence[Callable[[], Any]], *, rounds: int, calls: int = 1, after: Callable[[Any], None] | None = None
) -> list[list[float]]:
    """Time each way in each round, beginning with another one each time; returns seconds a call, for each way a list of rounds.

    What a call returns is let go of when the clock has stopped: first given to ``after``, if that is there. The garbage
    collector is on, as it is in a program. Keep ``calls`` so few that a round is over before the scheduler's next turn.
    """
    seconds: list[list[float]] = [[] for _ in ways]
    repeats = range(calls)
    gc.collect()
    for number in range(-1, rounds):  # the first round only warms up
        for k in range(len(ways)):
            index = (k + number) % len(ways)
            way = ways[index]
            begin = time.perf_counter()
            for _ in repeats:
                result = way()
            end = time.perf_counter()
            if after is not None:
                after(result)
            del result
            if number >= 0:
                seconds[index].append((end - begin) / calls)
    return seconds


def ratio(ours: Sequence[float], other: Sequence[float]) -> Middle:
    """Ours over the other, round by round."""
    return middle([a / b for a, b in zip(ours, other, strict=True)])


def duration(seconds: float) -> str:
    """A time for people to read, three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def median_of(seconds: Sequence[float]) -> str:
    """Their median, for people to read."""
    return duration(middle(seconds).median)


def size(count: float) -> str:
    """A number of bytes for people to read, three digits."""
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= one:
            return f"{count / one:.3g} {unit}"
    return f"{count:.3g} bytes"


def in_ratio(value: float) -> str:
    """A ratio for people to read: one that two digits would blur is a fraction."""
    return f"1/{1 / value:.0f}" if 0 < value < 0.1 else f"{value:.2f}"


def in_unit(value: float, unit: str) -> str:
    """A figure for people to read: seconds (``"s"``), ``"bytes"``, or a number of something."""
    if unit == "s":
        return duration(value)
    if unit == "bytes":
        return size(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
