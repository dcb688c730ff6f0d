"""An agent is killed at random again and again: everything reported as stored is there once, in order."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

from tests.kit.children import Child

Turn = Callable[[int], Awaitable[object]]


def live_and_die(turn: Turn, said: Callable[[], list[int]], kills: int) -> int:
    """Kill so many processes, each of which takes turns and reports those that are done; returns how many were reported.

    ``turn(n)`` asks "question n" and gets "answer n". ``said()`` reads the numbers of all that is stored, in its order.
    """
    reported: list[int] = []
    moments = random.Random(21)
    first = 0
    for _ in range(kills):

        async def life(say: Callable[[object], None], first: int = first) -> None:
            for n in range(first, first + 10_000):
                await turn(n)
                say(n)

        child = Child(lambda say, life=life: asyncio.run(life(say)))  # type: ignore[misc]
        child.wait_for(moments.randint(1, 3))
        time.sleep(moments.random() / 20)  # anywhere in a turn: that is what is tried
        reported += map(int, child.end(signal.SIGKILL))
        first = reported[-1] + 2  # the number that was under way is not asked again
        found = said()
        assert found == sorted(found)
        assert not [n for n in reported if found.count(n) != 2]
        assert not [n for n in found if found.count(n) > 2]
    return len(reported)


def numbers_in(texts: list[Any]) -> list[int]:
    """The number at the end of each text."""
    return [int(text.rpartition(" ")[2]) for text in texts]
