"""Each rule of a snapshot store on a backend is left out once, and the schedules catch it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.backends import snapshot_stories as stories
from tests.backends.schedules import LossError, every
from tests.backends.snapshot_schedules import commute
from transcript_store._snapshots.stored import StoredFiles, StoreKeys
from transcript_store.backends import ListedValue, _snapshots
from transcript_store.backends._snapshots import ValueFiles
from transcript_store.testing import SimulatedBackend, SimulatedObjectStore
from transcript_store.testing._simulated_backend import SimulatedCells

Patch = pytest.MonkeyPatch


def puts_whatever_is_there(patch: Patch) -> None:
    """V1: a rotation reads, and then replaces what it has not read."""
    real = ValueFiles._seal_again

    def seal_anew(self: ValueFiles, name: str) -> None:
        cells = self._cells
        read = cells.get(name)

        class Blind:
            def get(self, name: str) -> Any:
                return read

            def put(self, name: str, data: bytes, known: Any) -> bool:
                return cells.put(name, data, cells.get(name))

        self._cells = Blind()  # type: ignore[assignment]
        try:
            real(self, name)
        finally:
            self._cells = cells

    patch.setattr(ValueFiles, "_seal_again", seal_anew)


def replaces_what_does_not_open(patch: Patch) -> None:
    """V1: what the keys do not open is judged as if it were ours."""
    patch.setattr(StoreKeys, "is_of_others", lambda *_: False)


def snapshot_first(patch: Patch) -> None:
    """V2: the snapshot, then its media."""
    real = ValueFiles._save

    def save(self: ValueFiles, keys: StoreKeys, name: str, texts: dict[str, bytes]) -> None:
        real(self, keys, name, {name: texts[name]})
        real(self, keys, name, texts)

    patch.setattr(ValueFiles, "_save", save)


def holds_nothing(patch: Patch) -> None:
    """V2: the put of a snapshot does not hold its media."""
    real = SimulatedCells._put
    patch.setattr(SimulatedCells, "_put", lambda self, name, data, known, _: real(self, name, data, known, ()))


def looks_before_it_lists(patch: Patch) -> None:
    """V3: a collection looks at snapshots, and then lists media."""
    real = ValueFiles.collect

    def collect(self: ValueFiles, in_use: Any, older_than_seconds: float) -> list[str]:
        used = in_use()
        return real(self, lambda: used, older_than_seconds)

    patch.setattr(ValueFiles, "collect", collect)


def removes_any_version(patch: Patch) -> None:
    """V3: what was put since it was listed is removed too."""
    patch.setattr(
        SimulatedCells,
        "remove",
        lambda self, name, _: self._ask("remove", name, lambda: self._there.pop(name, None) is not None, changes=True),
    )


def forgets_what_it_asked_for(patch: Patch) -> None:
    """V4: after a lost answer the found value is reported as if nothing had been requested."""
    patch.setattr(_snapshots._Write, "ask", lambda self, change: change())


def puts_no_mark(patch: Patch) -> None:
    """V5: the state at the check is not the state at the put."""
    patch.setattr(ValueFiles, "_marked", lambda *_: False)


def looks_before_the_mark(patch: Patch) -> None:
    """V5: the store is checked once for a sealing, and then everything is put."""
    real, look = ValueFiles._save, StoredFiles.refuse_to_save_in_the_clear

    def save(self: ValueFiles, *given: Any) -> None:
        look(self)
        real(self, *given)

    patch.setattr(ValueFiles, "_save", save)
    patch.setattr(ValueFiles, "refuse_to_save_in_the_clear", lambda self: None)


def leaves_marks(patch: Patch) -> None:
    """V5: a sealing passes over marks."""
    patch.setattr(StoreKeys, "takes_plain", property(lambda keys: False))


def seals_without_a_note(patch: Patch) -> None:
    """V5: a sealing does not say that it is under way."""
    patch.setattr(ValueFiles, "note_sealing", lambda *_: None)


def takes_the_note_away_first(patch: Patch) -> None:
    """V5: the note goes before all is sealed."""
    real = ValueFiles.reseal

    def reseal(self: ValueFiles) -> Any:
        self.discard_note()
        return real(self)

    patch.setattr(ValueFiles, "reseal", reseal)


def looks_once(patch: Patch) -> None:
    """V5: a store that was plain is believed to be plain for ever."""
    real = StoredFiles.refuse_to_save_in_the_clear
    patch.setattr(
        StoredFiles, "refuse_to_save_in_the_clear", lambda self: None if self._witness.name is not None else real(self)
    )


def tells_the_first_size(patch: Patch) -> None:
    """ListedValue.size_bytes: a list tells the size that a name had first, and so that of a mark where a snapshot is."""
    real, sizes = SimulatedCells._page, dict[tuple[int, str], int]()

    def page(self: SimulatedCells, prefix: str, after: str) -> list[ListedValue]:
        return [
            each._replace(size_bytes=sizes.setdefault((id(self), each.name), each.size_bytes))
            for each in real(self, prefix, after)
        ]

    patch.setattr(SimulatedCells, "_page", page)


class Bug(NamedTuple):
    """A rule left out, and the story that shows it."""

    leave_out: Callable[[Patch], None]
    story: stories.Story
    backend: type[SimulatedBackend]
    faults: int = 0


BUGS = [
    Bug(puts_whatever_is_there, stories.one_seals_what_is_replaced, SimulatedObjectStore),
    Bug(replaces_what_does_not_open, stories.the_key_comes_too_late, SimulatedObjectStore),
    Bug(snapshot_first, stories.one_reads, SimulatedObjectStore),
    Bug(holds_nothing, stories.one_collects, SimulatedBackend),
    Bug(looks_before_it_lists, stories.one_collects, SimulatedBackend),
    Bug(removes_any_version, stories.one_collects, SimulatedBackend),
    Bug(forgets_what_it_asked_for, stories.the_key_comes_too_late, SimulatedBackend, 1),
    Bug(puts_no_mark, stories.one_seals, SimulatedObjectStore),
    Bug(looks_before_the_mark, stories.one_seals, SimulatedBackend),
    Bug(leaves_marks, stories.one_seals, SimulatedObjectStore),
    Bug(seals_without_a_note, stories.one_seals, SimulatedBackend),
    Bug(takes_the_note_away_first, stories.one_seals, SimulatedBackend),
    Bug(looks_once, stories.one_seals, SimulatedObjectStore),
    Bug(tells_the_first_size, stories.lists_what_is_saved_again, SimulatedBackend),
    Bug(tells_the_first_size, stories.lists_what_is_saved_again, SimulatedObjectStore),
]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.leave_out.__name__)
def test_the_schedules_see_what_comes_of_it(bug: Bug, monkeypatch: Patch):
    """R6, R13, P17: with the rule left out, some schedule breaks a promise."""
    bug.leave_out(monkeypatch)
    with pytest.raises(LossError):
        for _ in every(lambda: bug.story(bug.backend, bug.faults), faults=bug.faults, commute=commute):
            pass
