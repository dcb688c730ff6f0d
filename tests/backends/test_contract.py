"""The backends of the kit keep the contract of ``check_backend``, and the contract objects to backends that do not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.backends.broken import Overwrites, PrefersSlots, SaysItIsOurs
from transcript_store.backends import BackendError, SlotRange, StoredSummary
from transcript_store.testing import SimulatedBackend, SimulatedObjectStore, check_backend


@pytest.mark.parametrize("make_backend", [SimulatedBackend, SimulatedObjectStore])
def test_the_simulated_backends_keep_the_contract(make_backend: type[SimulatedBackend]):
    """E1 to E17."""
    backend = make_backend()
    check_backend(lambda: backend)


class Forgets(SimulatedBackend):
    def read(self, id: str, after: int = 0) -> list[SlotRange]:
        return super().read(id, after)[:-1]


class SaysYes(SimulatedBackend):
    def _put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        self._create(id, f"s/{slot}", data)
        return True


class Cuts(SimulatedBackend):
    def _put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        return super()._put(id, slot, data[:100_000], previous)


class OrdersByText(SimulatedBackend):
    def read(self, id: str, after: int = 0) -> list[SlotRange]:
        return [piece for piece in super().read(id) if str(piece.first) > str(after)]


class Mixes(SimulatedBackend):
    """Returns the last value put under a number, whichever conversation's it is."""

    def _put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        is_put = super()._put(id, slot, data, previous)
        if is_put:
            self.set_object("anybody", f"s/{slot}", data)
        return is_put

    def read(self, id: str, after: int = 0) -> list[SlotRange]:
        return [piece._replace(data=self.object("anybody", f"s/{piece.first}")) for piece in super().read(id, after)]


class ListsNothing(SimulatedBackend):
    def conversations(self, *, after: str = "", limit: int = 1000) -> list[str]:
        return []


class LooksBackByHalf(SimulatedBackend):
    def _put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        there = slot == 1 or f"s/{slot - 1}" in self.names(id)
        return there and self._create(id, f"s/{slot}", data)


class KeepsWhatIsPacked(SimulatedObjectStore):
    def delete_slots(self, id: str, slots: Iterable[int]) -> None:
        return None


class RepacksInPlace(SimulatedObjectStore):
    def put_pack(self, id: str, first: int, last: int, data: bytes) -> None:
        self.set_object(id, f"p/{first}-{last}", data)


class ListsOldestFirst(SimulatedBackend):
    def summaries(self, **given: Any) -> list[StoredSummary]:
        return super().summaries(**given)[::-1]


class PagesByTimeAlone(SimulatedBackend):
    """Of two that changed at the same moment, the page behind the first one leaves out the second."""

    def summaries(
        self, *, before: tuple[str, str] | None = None, limit: int = 50, label: str | None = None
    ) -> list[StoredSummary]:
        return super().summaries(before=(before[0], "") if before else None, limit=limit, label=label)


class KeepsTheLastSummary(SimulatedBackend):
    def _put_summary(self, summary: StoredSummary) -> None:
        self._summaries[summary.id] = summary


class KeepsTheFirstSummary(SimulatedBackend):
    def _put_summary(self, summary: StoredSummary) -> None:
        if (there := self._summaries.get(summary.id)) is None or not there.slot:
            self._summaries[summary.id] = summary


class IgnoresLabels(SimulatedBackend):
    def summaries(
        self, *, before: tuple[str, str] | None = None, limit: int = 50, label: str | None = None
    ) -> list[StoredSummary]:
        return super().summaries(before=before, limit=limit)


class SearchesLabelsAsText(SimulatedBackend):
    def summaries(
        self, *, before: tuple[str, str] | None = None, limit: int = 50, label: str | None = None
    ) -> list[StoredSummary]:
        name, _, value = (label or "").partition("=")
        found = super().summaries(before=before, limit=1000)
        return [each for each in found if name.encode() in each.data and value.encode() in each.data][:limit]


class HasNoLabels(SimulatedBackend):
    """It reports that it has no labels, which a backend may."""

    def summaries(
        self, *, before: tuple[str, str] | None = None, limit: int = 50, label: str | None = None
    ) -> list[StoredSummary]:
        if label is not None:
            raise BackendError(path=self.name, doing="list", reason="it has no labels", outcome="not stored")
        return super().summaries(before=before, limit=limit)


class ExpungesNothing(SimulatedBackend):
    def _expunge(self, id: str, keep: int) -> None:
        self._expunge_summary(id)


class ExpungesAll(SimulatedBackend):
    """Nothing is left that reports the delete, so the conversation may start again."""

    def _expunge(self, id: str, keep: int) -> None:
        super()._expunge(id, keep + 1)


class ListsWhatIsExpunged(SimulatedBackend):
    def _expunge(self, id: str, keep: int) -> None:
        for name in self._below(id, keep):
            self.set_object(id, name, None)


class ForgetsThatItWasExpunged(SimulatedBackend):
    def _expunge_summary(self, id: str) -> None:
        self._summaries.pop(id, None)


class ExpungesOnlyASummaryThatIsThere(SimulatedObjectStore):
    """As it does with the key, which is put only before slot 1."""

    def _expunge_summary(self, id: str) -> None:
        if (there := self._summaries[id]) is not None and there.slot:
            super()._expunge_summary(id)


class ListsAfterTheFirstSummary(SimulatedBackend):
    def _begin(self, id: str) -> bool:
        return id != ""


class BeginsAnew(SimulatedBackend):
    def _put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        if slot > 1:
            return super()._put(id, slot, data, previous)
        return self._create(id, "s/1", data) and self._begin(id)


class ForgetsPacks(SimulatedObjectStore):
    def _below(self, id: str, keep: int) -> list[str]:
        return [name for name in super()._below(id, keep) if name.startswith("s/")]


class FreesNames(SimulatedObjectStore):
    def expunge(self, id: str, keep: int) -> None:
        SimulatedBackend.expunge(self, id, keep)


class FreesAllNamesButTheFirst(SimulatedObjectStore):
    """A create or load is refused, but a stalled writer is not."""

    def expunge(self, id: str, keep: int) -> None:
        freed = [name for name in self._below(id, keep) if name != "s/1"]
        super().expunge(id, keep)
        for name in freed:
            self.set_object(id, name, None)


class FreesTheNameOfOneSlot(SimulatedObjectStore):
    """That of the slot before the last."""

    def expunge(self, id: str, keep: int) -> None:
        super().expunge(id, keep)
        self.set_object(id, f"s/{keep - 1}", None)


class FreesTheNamesOfClaims(SimulatedObjectStore):
    """As if it knew what is in them: only a writer that stalled before one shows it."""

    def expunge(self, id: str, keep: int) -> None:
        freed = [name for name in self._below(id, keep) if b'"kind":"claim"' in self.object(id, name)]
        super().expunge(id, keep)
        for name in freed:
            self.set_object(id, name, None)


class KeepsTheFirstKey(SimulatedBackend):
    def _put_key(self, id: str, data: bytes, known: bytes | None) -> bool:
        return super()._put_key(id, data, None) if known is None else False


class OverwritesKeys(SimulatedBackend):
    def _put_key(self, id: str, data: bytes, known: bytes | None) -> bool:
        return super()._put_key(id, data, self._keys.get(id))


class FreesTheKey(SimulatedBackend):
    def _expunge_key(self, id: str) -> None:
        self.set_key(id, None)


class KeepsTheKey(SimulatedBackend):
    def _expunge_key(self, id: str) -> None:
        pass


class PutsTheKeyIntoASlot(SimulatedBackend):
    def _put_key(self, id: str, data: bytes, known: bytes | None) -> bool:
        self._create(id, "s/1", data)
        return super()._put_key(id, data, known)


def test_a_backend_need_not_know_labels():
    """E14: then it says so."""
    backend = HasNoLabels()
    check_backend(lambda: backend)


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        (Forgets, "E2"),
        (Cuts, "E2"),
        (Overwrites, "E3"),
        (SaysYes, "E3"),
        (SaysItIsOurs, "E3"),
        (OrdersByText, "E5"),
        (Mixes, "E6"),
        (ListsNothing, "E7"),
        (LooksBackByHalf, "E9"),
        (KeepsWhatIsPacked, "E11"),
        (PrefersSlots, "E11"),
        (RepacksInPlace, "E11"),
        (ListsOldestFirst, "E12"),
        (PagesByTimeAlone, "E12"),
        (KeepsTheLastSummary, "E13"),
        (KeepsTheFirstSummary, "E13"),
        (ListsAfterTheFirstSummary, "E13"),
        (IgnoresLabels, "E14"),
        (SearchesLabelsAsText, "E14"),
        (ExpungesNothing, "E15"),
        (ExpungesAll, "E15"),
        (ListsWhatIsExpunged, "E15"),
        (BeginsAnew, "E15"),
        (ForgetsPacks, "E15"),
        (FreesNames, "E15"),
        (FreesTheKey, "E15"),
        (KeepsTheKey, "E15"),
        (KeepsTheFirstKey, "E16"),
        (OverwritesKeys, "E15"),
        (PutsTheKeyIntoASlot, "E16"),
        (FreesAllNamesButTheFirst, "E17"),
        (FreesTheNameOfOneSlot, "E17"),
        (FreesTheNamesOfClaims, "E17"),
        (ForgetsThatItWasExpunged, "E17"),
        (ExpungesOnlyASummaryThatIsThere, "E17"),
    ],
)
def test_the_contract_objects(wrong: type[SimulatedBackend], rule: str):
    """A backend that breaks a rule is named by it. (Lost races, E4 and E8, show only on a backend with threads.)"""
    backend = wrong()
    with pytest.raises(AssertionError) as told:
        check_backend(lambda: backend)
    assert str(told.value).startswith(f"{rule},")


def test_the_contract_is_given_what_opens_a_backend():
    with pytest.raises(
        TypeError,
        match="open_backend must be a function that makes a new one each time, or a class, not a SimulatedBackend",
    ):
        check_backend(SimulatedBackend())  # type: ignore[arg-type]
