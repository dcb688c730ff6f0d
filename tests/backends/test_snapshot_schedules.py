"""Two snapshot stores on one backend in every order, with requests that are lost, late, repeated, or fatal.

What each call was told can be true (R6): there is an order of all calls in which each load and list tells what was saved or deleted last. A
snapshot is whole or absent, with its media (R13). What is refused was not done. Where a sealing returned, nothing is in the clear (V5), and
the new key opens all (V1). Longer schedules, and those of three stores, are drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from tests.backends.schedules import at_random, every
from tests.backends.snapshot_schedules import commute
from tests.backends.snapshot_stories import (
    STORIES,
    Story,
    one_collects,
    one_reads,
    one_seals,
    one_seals_with_media,
    storm,
    storm_of_media,
)
from transcript_store.testing import SimulatedBackend, SimulatedObjectStore

SHORT = (one_reads,)
"""With one request that goes wrong, it fits into the plain suite."""
BACKENDS = {"database": SimulatedBackend, "objects": SimulatedObjectStore}


def each_of(stories: Iterable[Story]) -> pytest.MarkDecorator:
    """Each story on both backends, except that no media is removed from an object store."""
    pairs = [
        pytest.param(story, backend, id=f"{story.__name__}-{name}")
        for story in stories
        for name, backend in BACKENDS.items()
        if (story, name) != (one_collects, "objects")
    ]
    return pytest.mark.parametrize(("story", "backend"), pairs)


def counted(schedules: Iterator[int], record: Callable[[str, Any], None]) -> int:
    counts = list(schedules)
    record("schedules of two or three stores of snapshots on a backend", len(counts))
    record("saves and deletes acknowledged in them", sum(counts))
    return len(counts)


def run_every(story: Story, backend: type[SimulatedBackend], faults: int, record: Callable[[str, Any], None]) -> None:
    """Run all of its schedules."""
    assert counted(every(lambda: story(backend, faults), faults=faults, commute=commute), record)


@pytest.mark.sampled(every=4)
@each_of(story for story in STORIES if story is not one_seals_with_media)
def test_every_schedule_of_two_stores(story: Story, backend: type[SimulatedBackend], record_property):
    """R6, R13, P17, V1 to V5: all that there are, up to the order of requests that come to the same in either."""
    run_every(story, backend, 0, record_property)


@pytest.mark.sampled(every=2)
@each_of(SHORT)
def test_every_schedule_of_two_stores_with_a_fault(story: Story, backend: type[SimulatedBackend], record_property):
    """R6, R13, P17, V1 to V5: at each request, one that is refused, lost, late, repeated, or the last."""
    run_every(story, backend, 1, record_property)


@pytest.mark.parametrize(
    ("story", "backend"), [(storm, SimulatedBackend), (storm, SimulatedObjectStore), (storm_of_media, SimulatedBackend)]
)
def test_schedules_of_three_stores_at_random(story: Story, backend: type[SimulatedBackend], record_property):
    """R6, R13, P17, V1 to V5: three stores, and four requests that go wrong."""
    assert counted(at_random(lambda: story(backend, 4), seeds=range(20), faults=4, calm=0.9), record_property) == 20


@pytest.mark.long
@each_of(story for story in STORIES if story not in (*SHORT, one_seals))
def test_every_longer_schedule_of_two_stores_with_a_fault(
    story: Story, backend: type[SimulatedBackend], record_property
):
    """R6, R13, P17, V1 to V5: the longer ones; of the longest, without a fault. ``storm`` has faults beside a sealing."""
    run_every(story, backend, int(story is not one_seals_with_media), record_property)


@pytest.mark.long
@pytest.mark.parametrize(
    ("story", "backend"), [(storm, SimulatedBackend), (storm, SimulatedObjectStore), (storm_of_media, SimulatedBackend)]
)
def test_many_schedules_of_three_stores_at_random(story: Story, backend: type[SimulatedBackend], record_property):
    """R6, R13, P17, V1 to V5: many more, and six requests that go wrong."""
    assert (
        counted(at_random(lambda: story(backend, 6), seeds=range(1000, 2000), faults=6, calm=0.9), record_property)
        == 1000
    )
