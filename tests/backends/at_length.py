"""A million messages in random schedules, by hand: ``python -m tests.backends.at_length [MESSAGES] [SEED] [objects]``.

Three sessions append to one conversation and take it over from one another; one that was killed is followed by another. One request in fourteen
or so goes wrong. Each schedule has a seed of its own, and is judged as those of the suite are (``schedules``): the first that breaks a promise ends the
run, with its seed. What it prints is in docs/backends.md.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from random import Random

from tests.backends.schedules import Actor, LossError, begun, run
from transcript_store.testing import SimulatedBackend, SimulatedObjectStore, SimulatedStop

SESSIONS, EACH, UNEVEN = "abc", 30, 0.08
SHOWN_EACH = 1000


class Storm:
    """One schedule: each session tries ``EACH`` appends, in as many lives as it takes; it lets go, packs and tidies now and then."""

    def __init__(self, make_backend: type[SimulatedBackend], seed: int) -> None:
        self._random = Random(seed)
        self.world, self._first = begun(make_backend(), pack_each=7)
        self._at_work = len(SESSIONS)
        self._stays = self._random.choice((0.0, 0.5, 0.9, 0.98))
        """How likely it is that whoever went on last goes on."""

    def run(self) -> int:
        """Run it to its end; returns how many were acknowledged."""
        first: list[Actor | None] = [self._first, None, None]
        scripts = [lambda pair=pair: self._work(*pair) for pair in zip(SESSIONS, first, strict=True)]
        return run(self.world, scripts, self._choose, faults=1 << 30)

    def _choose(self, options: int) -> int:
        """Usually which session continues; otherwise any event, most of which are faults."""
        what = self._random.random()
        if what < UNEVEN:
            return self._random.randrange(options)
        return self._at_work - 1 if self._random.random() < self._stays else self._random.randrange(self._at_work)

    def _work(self, name: str, actor: Actor | None) -> None:
        left, lives = EACH, 0
        while left:
            try:
                if actor is None:
                    lives += 1
                    given = {"attempts": self._random.choice((1, 2)), "hold_lock": self._random.random() < 0.8}
                    actor = Actor(self.world, f"{name}.{lives}.", **given)
                    if not actor.load():
                        actor = None
                        continue
                turn = self._random.randint(1, left)
                left -= turn
                if not actor.append_many(turn):
                    actor = None
                elif (next_ := self._random.random()) < 0.2:
                    actor.pack()
                elif next_ < 0.4:
                    actor.let_go()
                    actor = None
            except SimulatedStop:
                actor = None
        self._at_work -= 1


def main(messages: int, seed: int, make_backend: type[SimulatedBackend]) -> None:
    """Run schedules until so many messages were acknowledged, and say what happened."""
    logging.disable(logging.WARNING)  # of each close that nobody answered
    begin, cpu, told = seed, time.process_time(), Counter[str]()
    while told["acknowledged"] < messages:
        storm = Storm(make_backend, seed)
        try:
            told["acknowledged"] += storm.run()
        except Exception as error:
            raise LossError(f"{error}; seed {seed}") from error
        told["claims"] += len(storm.world.claims)
        told["deposed, and told"] += len(storm.world.refused)
        told["outcome unknown"] += len(storm.world.unknown)
        told["requests"] += storm.world.backend.requests
        seed += 1
        if (seed - begin) % SHOWN_EACH == 0:
            print(seed - begin, dict(told), flush=True)
    print(f"{make_backend.__name__}, seeds {begin} to {seed - 1}, {time.process_time() - cpu:.0f} s of a processor")
    print(f"{dict(told)}; lost, twice, out of order: 0, 0, 0")


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000,
        int(sys.argv[2]) if len(sys.argv) > 2 else 1,
        SimulatedObjectStore if "objects" in sys.argv else SimulatedBackend,
    )
