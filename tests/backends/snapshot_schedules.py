"""Snapshot stores on one backend, in schedules: can the result of each call be true?

``schedules`` decides who goes on when, and what becomes of each request. Here are the stores, and the judge. It holds what was told to a
register for each id: there must be an order of the calls, in which each stands between its begin and its end, and in which each load and
each list tells what was saved or deleted last. A call that ended as unknown, or was killed, may have been done at any time, or never. One
that was refused was not done.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count

from tests.backends.schedules import LossError
from tests.snapshots.helpers import IMAGE, KEY, OTHER_KEY
from transcript_store import (
    CorruptSnapshotError,
    DecryptionError,
    Snapshot,
    SnapshotNotFoundError,
    SnapshotStore,
    TranscriptStoreError,
)
from transcript_store._snapshots.stored import Key, StoreKeys, is_mark, is_text
from transcript_store.backends import BackendError, BackendSnapshotStore
from transcript_store.testing import BackendRequest, SimulatedBackend, SimulatedFileSystem

ONE, TWO, THREE = (f"{n}f1c2c0e-53cb-4d7e-8a5f-0a3a1c7d9e21" for n in (1, 2, 3))
EVER = 10**9


def snapshot(id: str, text: str, *, image: bool = False) -> Snapshot:
    """A snapshot whose model tells which one it is, also in a list."""
    made = Snapshot.create(provider="claude", model=text, messages=[text, *([IMAGE] if image else [])])
    return replace(made, id=id, created_at="2026-03-31T14:00:00Z")


def commute(one: BackendRequest, other: BackendRequest) -> bool:
    """Whether two requests come to the same in either order: two that read, or two of different names of which none holds others."""
    if not (one.changes or other.changes):
        return True
    if "list" in (one.call, other.call) or "remove" in (one.call, other.call):
        return False
    return one.name != other.name and not any(each.changes and each.name.endswith(".json") for each in (one, other))


@dataclass
class Call:
    """A call of a store. ``value`` is what it saved, or what it was told is there: None says that nothing is."""

    kind: str
    id: str
    value: str | None
    begun: int
    ended: int | None = None
    """None: it is not known whether it was done, or will be."""
    may_be_twice: bool = False
    """A save or a delete that was answered for late, or not at all, is made again, over what came between."""


class SnapshotWorld:
    """One backend, the stores on it, and the answers that they got."""

    def __init__(self, backend: SimulatedBackend, *, faults: int = 0) -> None:
        self.backend = backend
        self.calls: list[Call] = []
        self.sealed_with: list[bytes] = []
        """The keys of rotations that returned."""
        self._rotations = 0
        self._faults = faults
        self._now = count(1)
        self._processes = count(1)

    def store(self, *keys: bytes, attempts: int = 2) -> BackendSnapshotStore:
        machine = SimulatedFileSystem()
        machine.random_bytes(4096 * next(self._processes))  # each process has a chance of its own
        return BackendSnapshotStore(
            self.backend,
            encryption_key=keys[0] if keys else None,
            retired_keys=keys[1:],
            file_system=machine,
            waits_seconds=(0.0,) * (attempts - 1),
        )

    # ---- calls, each noted; the script goes on ---------------------------------------------------------------------------------------

    def save(self, store: SnapshotStore, id: str, text: str, *, image: bool = False) -> bool:
        self._write(Call("write", id, text, next(self._now)), lambda: store.save(snapshot(id, text, image=image)))
        return True

    def delete(self, store: SnapshotStore, id: str) -> bool:
        call = Call("write", id, None, next(self._now))
        try:
            self._write(call, lambda: store.delete(id))
        except SnapshotNotFoundError:
            self._told(id, None, call.begun)
        return True

    def _write(self, call: Call, act: Callable[[], None]) -> None:
        call.may_be_twice = self._faults > 0
        self.calls.append(call)
        try:
            act()
        except (DecryptionError, SnapshotNotFoundError) as error:
            self.calls.remove(call)  # nothing was touched
            if isinstance(error, SnapshotNotFoundError):
                raise
        except BackendError as error:
            if error.outcome == "not stored":
                self.calls.remove(call)
        else:
            call.ended = next(self._now)

    def load(self, store: SnapshotStore, id: str) -> bool:
        begun = next(self._now)
        try:
            found = store.load(id)
        except SnapshotNotFoundError:
            self._told(id, None, begun)
        except CorruptSnapshotError as error:
            raise LossError(f"R13: a snapshot is damaged: {error}") from error
        except (DecryptionError, BackendError):
            pass
        else:
            self._told(id, found.model, begun)
        return True

    def list(self, store: SnapshotStore) -> bool:
        begun = next(self._now)
        with suppress(BackendError):
            found = {summary.id: summary.model for summary in store.list()}
            for id in (ONE, TWO, THREE):  # noqa: A001
                if id in found or not self._rotations:  # what does not open is left out of a list
                    self._told(id, found.get(id), begun)
        return True

    def _told(self, id: str, value: str | None, begun: int) -> None:
        self.calls.append(Call("read", id, value, begun, next(self._now)))

    def rotate(self, store: BackendSnapshotStore, key: bytes) -> None:
        self._rotations += 1
        with suppress(BackendError, DecryptionError):
            store.rotate_key(key)
            self.sealed_with.append(key)

    def collect(self, store: BackendSnapshotStore) -> None:
        with suppress(BackendError):
            store.collect_media(older_than_seconds=0)

    # ---- what must hold ------------------------------------------------------------------------------------------

    def judge(self) -> int:
        """Read the store with all keys and nothing in the way, hold it to R6, R13 and P17; and again when what was late has landed."""
        self.backend.on_request = None
        self._judge_contents()
        while self.backend.late:
            self.backend.land()
        self._judge_contents()
        return sum(call.kind == "write" and call.ended is not None for call in self.calls)

    def _judge_contents(self) -> None:
        reader = self.store(KEY, OTHER_KEY)
        reader.keys = StoreKeys(
            Key(KEY), Key(OTHER_KEY), plain_too=True
        )  # of a sealing that was cut off, some is plain
        for id in (ONE, TWO, THREE):  # noqa: A001
            begun, value = next(self._now), None
            try:
                value = reader.load(id).model
            except SnapshotNotFoundError:
                pass
            except TranscriptStoreError as error:
                raise LossError(f"R13: a snapshot is damaged: {error}") from error
            self._told(id, value, begun)
            if not can_be_true([call for call in self.calls if call.id == id]):
                told = "; ".join(map(str, (call for call in self.calls if call.id == id)))
                raise LossError(f"R6: what was told of {id} cannot be true: {told}")
        if self.sealed_with:
            self._judge_sealed()

    def _judge_sealed(self) -> None:
        contents = {name: data for name, data in self.backend.cells.contents.items() if not is_mark(data)}
        if plain := [name for name, data in contents.items() if is_text(data)]:
            raise LossError(f"V5: in the clear beside what is sealed: {plain}")
        if self._rotations == 1:
            try:
                findings = self.store(self.sealed_with[0]).verify()
            except TranscriptStoreError as error:
                raise LossError(f"V1: it cannot be verified: {error}") from error
            if findings:
                raise LossError(f"V1: the new key alone does not open all: {findings}")


def can_be_true(calls: list[Call]) -> bool:
    """Whether there is an order of these calls as of a register, which is empty in the beginning."""
    effects = [call for call in calls if call.ended is not None]
    optional = [call for call in calls if call.ended is None]
    optional += [call for call in calls if call.may_be_twice]  # once more, within its own time
    every_call = [*effects, *optional]
    must = range(len(effects))
    seen: set[tuple[int, str | None]] = set()

    def goes_on(done: int, value: str | None) -> bool:
        if all(done >> index & 1 for index in must):
            return True
        if (done, value) in seen:
            return False
        seen.add((done, value))
        open_ends = [effects[index].ended or 0 for index in must if not done >> index & 1]
        first_end = min(open_ends)
        for index, call in enumerate(every_call):
            if done >> index & 1 or call.begun > first_end:
                continue
            if index >= len(effects) and call.ended is not None and call.ended < _last_begin(effects, done):
                continue
            if call.kind == "read":
                if call.value == value and goes_on(done | 1 << index, value):
                    return True
            elif goes_on(done | 1 << index, call.value):
                return True
        return False

    return goes_on(0, None)


def _last_begin(effects: list[Call], done: int) -> int:
    return max((call.begun for index, call in enumerate(effects) if done >> index & 1), default=0)


def begun(world: SnapshotWorld, *keys: bytes, texts: dict[str, str], image: bool = False) -> SnapshotWorld:
    """The world with these snapshots saved in it, by a process that is gone."""
    store = world.store(*keys)
    for id, text in texts.items():  # noqa: A001
        world.save(store, id, text, image=image)
    return world
