"""Stories of two snapshot stores on one backend, and of three: who does what. The schedules decide who goes on when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.backends.schedules import Scripts
from tests.backends.snapshot_schedules import ONE, THREE, TWO, SnapshotWorld, begun
from tests.snapshots.helpers import KEY, OTHER_KEY
from transcript_store.testing import SimulatedBackend

Made = tuple[SnapshotWorld, Scripts]
Story = Callable[[type[SimulatedBackend], int], Made]


def two_save(backend: type[SimulatedBackend], faults: int) -> Made:
    """Both save one id; then each loads it."""
    world = SnapshotWorld(backend(), faults=faults)
    a, b = world.store(KEY), world.store(KEY)
    return world, [
        lambda: world.save(a, ONE, "a") and world.load(a, ONE),
        lambda: world.save(b, ONE, "b") and world.load(b, ONE),
    ]


def one_reads(backend: type[SimulatedBackend], faults: int) -> Made:
    """One saves with media that is new, and the other one loads that."""
    world = begun(SnapshotWorld(backend(), faults=faults), KEY, texts={ONE: "old"})
    a, b = world.store(KEY), world.store(KEY)
    return world, [lambda: world.save(a, ONE, "a", image=True), lambda: world.load(b, ONE) and world.list(b)]


def two_save_with_media(backend: type[SimulatedBackend], faults: int) -> Made:
    """The same media in both."""
    world = begun(SnapshotWorld(backend(), faults=faults), KEY, texts={ONE: "old"})
    a, b = world.store(KEY), world.store(KEY)
    return world, [
        lambda: world.save(a, ONE, "a", image=True),
        lambda: world.save(b, TWO, "b", image=True) and world.load(b, ONE),
    ]


def saves_and_deletes(backend: type[SimulatedBackend], faults: int) -> Made:
    """One deletes what the other one replaces; then it is listed."""
    world = begun(SnapshotWorld(backend(), faults=faults), KEY, texts={ONE: "old"})
    a, b = world.store(KEY), world.store(KEY)
    return world, [
        lambda: world.save(a, ONE, "a"),
        lambda: world.delete(b, ONE) and world.list(b),
    ]


def deletes_and_saves_again(backend: type[SimulatedBackend], faults: int) -> Made:
    """One deletes, and saves again; the other one saves beside that."""
    world = begun(SnapshotWorld(backend(), faults=faults), KEY, texts={ONE: "old"})
    a, b = world.store(KEY), world.store(KEY)
    return world, [
        lambda: world.delete(a, ONE) and world.save(a, ONE, "a"),
        lambda: world.save(b, ONE, "b"),
    ]


def lists_what_is_saved_again(backend: type[SimulatedBackend], faults: int) -> Made:
    """One deletes, and saves again, beside one who lists; then it is listed."""
    world = begun(SnapshotWorld(backend(), faults=faults), KEY, texts={ONE: "old"})
    a, b = world.store(KEY), world.store(KEY)
    return world, [
        lambda: world.delete(a, ONE) and world.save(a, ONE, "a") and world.list(a),
        lambda: world.list(b),
    ]


def one_seals(backend: type[SimulatedBackend], faults: int) -> Made:
    """A plain store is sealed while a process without the key saves a new snapshot."""
    world = begun(SnapshotWorld(backend(), faults=faults), texts={ONE: "old"})
    keyless, sealing = world.store(), world.store()
    world.save(keyless, ONE, "known")  # so that it has a witness
    return world, [lambda: world.save(keyless, TWO, "new"), lambda: world.rotate(sealing, KEY)]


def one_seals_what_is_replaced(backend: type[SimulatedBackend], faults: int) -> Made:
    """The same, while a process without the key replaces a snapshot."""
    world = begun(SnapshotWorld(backend(), faults=faults), texts={ONE: "old"})
    keyless, sealing = world.store(), world.store()
    return world, [lambda: world.save(keyless, ONE, "new"), lambda: world.rotate(sealing, KEY)]


def one_seals_with_media(backend: type[SimulatedBackend], faults: int) -> Made:
    """The same, with media that is new."""
    world = begun(SnapshotWorld(backend(), faults=faults), texts={ONE: "old"})
    keyless, sealing = world.store(), world.store()
    world.save(keyless, ONE, "known")
    return world, [lambda: world.save(keyless, TWO, "new", image=True), lambda: world.rotate(sealing, KEY)]


def one_rotates(backend: type[SimulatedBackend], faults: int) -> Made:
    """A rotation, while a store that has both keys replaces a snapshot."""
    world = begun(SnapshotWorld(backend(), faults=faults), KEY, texts={ONE: "old"})
    late, rotating = world.store(OTHER_KEY, KEY), world.store(KEY)
    return world, [lambda: world.save(late, ONE, "new"), lambda: world.rotate(rotating, OTHER_KEY)]


def the_key_comes_too_late(backend: type[SimulatedBackend], faults: int) -> Made:
    """A rotation, while a store that has only the old key replaces a snapshot, and then loads it."""
    world = begun(SnapshotWorld(backend(), faults=faults), KEY, texts={ONE: "old"})
    early, rotating = world.store(KEY), world.store(KEY)
    return world, [
        lambda: world.save(early, ONE, "new") and world.load(early, ONE),
        lambda: world.rotate(rotating, OTHER_KEY),
    ]


def one_collects(backend: type[SimulatedBackend], faults: int) -> Made:
    """Unreferenced media is collected while another process saves a snapshot with it."""
    world = begun(SnapshotWorld(backend(), faults=faults), KEY, texts={ONE: "old"}, image=True)
    a, collecting = world.store(KEY), world.store(KEY)
    world.delete(collecting, ONE)
    return world, [lambda: world.save(a, TWO, "a", image=True), lambda: world.collect(collecting)]


def storm(backend: type[SimulatedBackend], faults: int) -> Made:
    """Three stores, one of which seals: all that can be done, of three ids."""
    world = begun(SnapshotWorld(backend(), faults=faults), texts={ONE: "one", TWO: "two"}, image=True)
    a, b, c = world.store(), world.store(), world.store()

    def keyless(store: Any, name: str) -> None:
        world.save(store, ONE, f"{name}1", image=True)
        world.list(store)
        world.save(store, THREE, f"{name}2")
        world.load(store, ONE)

    def seals() -> None:
        world.rotate(c, KEY)
        world.save(c, TWO, "c1", image=True)
        world.load(c, THREE)
        if c.has_key:
            world.rotate(c, OTHER_KEY)

    return world, [lambda: keyless(a, "a"), lambda: keyless(b, "b"), seals]


def storm_of_media(backend: type[SimulatedBackend], faults: int) -> Made:
    """Three stores with one key: saves with media, deletes, collections."""
    world = begun(SnapshotWorld(backend(), faults=faults), KEY, texts={ONE: "one"}, image=True)
    a, b, c = (world.store(KEY) for _ in range(3))

    def works(store: Any, name: str, id: str) -> None:
        world.save(store, id, f"{name}1", image=True)
        world.load(store, ONE)
        world.delete(store, id)
        world.save(store, ONE, f"{name}2", image=True)
        world.list(store)

    def collects() -> None:
        for _ in range(2):
            world.collect(c)
            world.load(c, ONE)

    return world, [
        lambda: works(a, "a", ONE),
        lambda: works(b, "b", TWO),
        collects if backend is SimulatedBackend else (lambda: None),
    ]


STORIES = (
    two_save,
    one_reads,
    two_save_with_media,
    saves_and_deletes,
    deletes_and_saves_again,
    lists_what_is_saved_again,
    one_seals,
    one_seals_what_is_replaced,
    one_seals_with_media,
    one_rotates,
    the_key_comes_too_late,
    one_collects,
)
