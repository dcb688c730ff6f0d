"""Two processes, and the second does all of its work between any two system calls of the first.

The first is stopped (SIGSTOP, by strace) at one call that touches the folder after another; then the second runs to its
end; then the first goes on. No window is too small to be met so.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.crash.kernel import scratch
from tests.crash.strace import Injection, Say, Traced, trace

ID = "0b61b0e5-5b5a-4c1e-9d2f-7f3a1c2d4e5f"
"""The name of what two want to have."""

Work = Callable[[Path, str], str]
"""What a process does on what is at a path, by its name; returns what came of it."""

Outcome = tuple[str, str]
"""What came of the first and of the second."""

Judge = Callable[[Path, Outcome, str], None]
"""Looks at what is there afterwards, and raises if it is not what the two were told; third, where the first was stopped."""


@dataclass(frozen=True)
class Race:
    """Two pieces of work on the same, and what may come of them."""

    base: Callable[[Path], None]
    first: Work
    second: Work
    outcomes: frozenset[Outcome]

    @property
    def name(self) -> str:
        return f"{self.base.__name__}-{self.first.__name__}-{self.second.__name__}"


def interleave(race: Race, judge: Judge) -> int:
    """Try every interleaving; returns how many there were, each with an outcome that is allowed."""
    with scratch() as folder:
        path = folder / "library" / ID
        _begin(race, path)
        for work_of, who in ((race.first, "first"), (race.second, "second")):
            work_of(path, who)  # what is imported late is imported now: it is not counted
        points = [call for call in _one_after_the_other(race, path).calls if call.touches(folder)]
        for call in points:
            _begin(race, path)
            seconds: list[str] = []

            def second(seconds: list[str] = seconds) -> None:
                seconds.append(race.second(path, "second"))

            def work(say: Say) -> None:
                say(race.first(path, "first"))

            traced = trace(work, while_stopped=second, injection=Injection(call, "signal=SIGSTOP"))
            outcome = traced.lines[1], seconds[0]
            assert outcome in race.outcomes, f"stopped at {call}: {outcome}"
            judge(path, outcome, f"stopped at {call}")
        return len(points)


def _begin(race: Race, path: Path) -> None:
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir()
    race.base(path)


def _one_after_the_other(race: Race, path: Path) -> Traced:
    _begin(race, path)
    return trace(lambda say: say(race.first(path, "first")))
