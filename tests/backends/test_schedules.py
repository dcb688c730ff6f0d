"""Two sessions on one backend in every order, with requests that are lost, late, repeated, or kill their process.

Nothing that was acknowledged is lost, stands twice or is out of its order; whoever claims has read all that was acknowledged before; whoever is
deposed has stored nothing; and the log can be read and written afterwards (R2, R3, R4, R5, R6, R9). Longer schedules, and those on an object store
with packs, are drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.backends.schedules import Actor, World, at_random, begun, every
from transcript_store.testing import SimulatedBackend, SimulatedObjectStore

Make = Callable[[], tuple[World, Sequence[Callable[[], object]]]]


def two(make_backend: type[SimulatedBackend], first_appends: int, second_appends: int) -> Make:
    """The first has the conversation and appends, the second one takes it over and appends."""

    def make() -> tuple[World, Sequence[Callable[[], object]]]:
        world, first = begun(make_backend())
        second = Actor(world, "b")
        return world, [
            lambda: first.append_many(first_appends),
            lambda: second.load() and second.append_many(second_appends),
        ]

    return make


def both_load(make_backend: type[SimulatedBackend]) -> Make:
    """Two that claim at the same time, and append."""

    def make() -> tuple[World, Sequence[Callable[[], object]]]:
        world, _ = begun(make_backend())
        second, third = Actor(world, "b"), Actor(world, "c")
        return world, [lambda: second.load() and second.append(), lambda: third.load() and third.append()]

    return make


def packs_by_itself() -> tuple[World, Sequence[Callable[[], object]]]:
    """The first appends, which makes a pack, and another is due when it lets go; the second one takes it over meanwhile."""
    world, first = begun(SimulatedObjectStore(), pack_each=2)
    second = Actor(world, "b")
    return world, [
        lambda: first.append() and first.let_go(),
        lambda: second.load() and second.append(),
    ]


def storm_that_packs_by_itself() -> tuple[World, Sequence[Callable[[], object]]]:
    """Three that append, let go, take over, and pack by themselves; one of them tidies what it packs by hand."""
    world, first = begun(SimulatedObjectStore(), pack_each=3)
    second, third = Actor(world, "b"), Actor(world, "c")

    def works(actor: Actor) -> None:
        for turn in range(2):
            if (turn == 0 and actor is first) or actor.load():
                actor.append_many(3)
                if actor is third:
                    actor.pack()
                actor.append()
                actor.let_go()

    return world, [lambda actor=actor: works(actor) for actor in (first, second, third)]


def storm() -> tuple[World, Sequence[Callable[[], object]]]:
    """Three on an object store that append, pack, tidy and take over."""
    world, first = begun(SimulatedObjectStore())
    second, third = Actor(world, "b"), Actor(world, "c")

    def works(actor: Actor) -> None:
        if actor is first or actor.load():
            for _ in range(2):
                actor.append_many(2)
                actor.pack()
            actor.append()

    return world, [lambda actor=actor: works(actor) for actor in (first, second, third)]


def in_turns() -> tuple[World, Sequence[Callable[[], object]]]:
    """Two that take turns, and one that takes over from them and keeps it."""
    world, first = begun(SimulatedBackend())
    first.store.close()
    takes_turns = [Actor(world, name, hold_lock=False) for name in "bc"]
    last = Actor(world, "d")

    def works(actor: Actor) -> None:
        if actor.load():
            actor.append_many(3)

    return world, [lambda actor=actor: works(actor) for actor in (*takes_turns, last)]


def counted(schedules: Iterator[int], record: Callable[[str, Any], None]) -> int:
    counts = list(schedules)
    record("schedules of two or three sessions on a backend", len(counts))
    record("messages acknowledged in them", sum(counts))
    return len(counts)


@pytest.mark.parametrize(
    ("make", "faults", "schedules"),
    [
        (two(SimulatedBackend, 2, 1), 0, 14),
        (both_load(SimulatedBackend), 0, 34),
        pytest.param(two(SimulatedBackend, 1, 1), 1, 431, marks=pytest.mark.long),
        (two(SimulatedObjectStore, 1, 1), 0, 25),
    ],
)
def test_every_schedule_of_two_sessions(make: Make, faults: int, schedules: int, record_property):
    """R2, R3, R4, R5, R6, R9: short ones, with at most one request that goes wrong."""
    assert counted(every(make, faults=faults), record_property) == schedules


def test_schedules_at_random(record_property):
    """R2, R3, R4, R5, R6, R9: three sessions on an object store with packs, and four requests that go wrong."""
    assert counted(at_random(storm, seeds=range(14), faults=4), record_property) == 14


def test_schedules_of_turns_at_random(record_property):
    """R2, R3, R4, R5, R6, R9: processes that take turns, one that does not, and three requests that go wrong."""
    assert counted(at_random(in_turns, seeds=range(20), faults=3), record_property) == 20


def test_schedules_that_pack_by_themselves_at_random(record_property):
    """R2, R3, R4, R5, R6, R9, D7: three sessions that pack after a write and at a release, and four requests that go wrong."""
    assert counted(at_random(storm_that_packs_by_itself, seeds=range(14), faults=4), record_property) == 14


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "faults", "schedules"),
    [
        (two(SimulatedBackend, 2, 1), 1, 1965),
        (both_load(SimulatedBackend), 1, 5766),
        (packs_by_itself, 0, 1997),
    ],
)
def test_every_longer_schedule_of_two_sessions(make: Make, faults: int, schedules: int, record_property):
    """R2, R3, R4, R5, R6, R9, D7: longer ones, with at most one request that goes wrong; and with packs, none."""
    assert counted(every(make, faults=faults), record_property) == schedules


@pytest.mark.long
@pytest.mark.parametrize("make", [storm, storm_that_packs_by_itself])
def test_many_schedules_at_random(make: Make, record_property):
    """R2, R3, R4, R5, R6, R9, D7: as above, many more, and six requests that go wrong."""
    assert counted(at_random(make, seeds=range(1000, 3000), faults=6), record_property) == 2000


@pytest.mark.long
def test_many_schedules_of_turns_at_random(record_property):
    """R2, R3, R4, R5, R6, R9: processes that take turns, many more, and five requests that go wrong."""
    assert counted(at_random(in_turns, seeds=range(1000, 3000), faults=5), record_property) == 2000
