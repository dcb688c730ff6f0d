"""No operation becomes slower unseen: its processor time, beside the plainest way's in the same minute, stays within a bound.

The bounds are those of benchmarks/guard.json; ``python -m benchmarks.guard --set`` makes new ones when something became faster,
or slower for a good reason.
"""

from __future__ import annotations

import pytest

from benchmarks import guard
from benchmarks.pairs import Pair

BOUNDS = guard.bounds()
A_LOSS = 1.5


def some_work() -> int:
    return sum(n * n for n in range(20_000))


@pytest.mark.long
def test_a_loss_is_told_from_noise() -> None:
    """Two ways that do the same cost the same; made slower by a half, one costs more than a bound allows."""
    pair = Pair(some_work, some_work)

    def is_seen_between(least: float, cost_of: Pair, most: float) -> bool:
        return any(
            least < guard.cost(cost_of) < most for _ in guard.PAUSES
        )  # whoever else is at work: as the guard, again

    assert is_seen_between(1 / guard.MARGIN, pair, guard.MARGIN)
    assert is_seen_between(guard.MARGIN, guard.slowed(pair, A_LOSS), A_LOSS * guard.MARGIN)


def test_every_operation_has_a_bound() -> None:
    """What is measured is held, and nothing else."""
    assert BOUNDS.keys() == guard.CHECKS.keys()


def test_no_bound_creeps_away_from_a_fixed_state() -> None:
    """A loss that comes a little at a time, with new bounds each time, is seen beside a state of the history that stays what it is."""
    assert guard.crept() == []


@pytest.mark.long
@pytest.mark.parametrize("name", BOUNDS)
def test_it_has_not_become_slower(name: str) -> None:
    """It costs what it did when its bound was set."""
    assert guard.seen(name, BOUNDS[name]) is None, "slower than its bound: profile it, or set new bounds and say why"
