"""The places of the kit keep the contract of ``check_place``, and the contract objects to places that do not."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from transcript_store.places import Piece
from transcript_store.testing import SimulatedObjectPlace, SimulatedPlace, check_place


@pytest.mark.parametrize("make_place", [SimulatedPlace, SimulatedObjectPlace])
def test_the_simulated_places_keep_the_contract(make_place: type[SimulatedPlace]):
    """E1 to E11."""
    place = make_place()
    check_place(lambda: place)


class Forgets(SimulatedPlace):
    def read(self, id: str, after: int = 0) -> list[Piece]:
        return super().read(id, after)[:-1]


class Overwrites(SimulatedPlace):
    def _put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        self.set_object(id, f"s/{slot}", data)
        return True


class SaysYes(SimulatedPlace):
    def _put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        self._create(id, f"s/{slot}", data)
        return True


class SaysItIsOurs(SimulatedPlace):
    """As a client does that repeats a request by itself: it is there already, and it is the same."""

    def _put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        return super()._put(id, slot, data, previous) or self.object(id, f"s/{slot}") == data


class Cuts(SimulatedPlace):
    def _put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        return super()._put(id, slot, data[:100_000], previous)


class OrdersByText(SimulatedPlace):
    def read(self, id: str, after: int = 0) -> list[Piece]:
        return [piece for piece in super().read(id) if str(piece.first) > str(after)]


class Mixes(SimulatedPlace):
    """What was put last under a number is read, whoever's it is."""

    def _put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        is_put = super()._put(id, slot, data, previous)
        if is_put:
            self.set_object("anybody", f"s/{slot}", data)
        return is_put

    def read(self, id: str, after: int = 0) -> list[Piece]:
        return [piece._replace(data=self.object("anybody", f"s/{piece.first}")) for piece in super().read(id, after)]


class ListsNothing(SimulatedPlace):
    def conversations(self, *, after: str = "", limit: int = 1000) -> list[str]:
        return []


class LooksBackByHalf(SimulatedPlace):
    def _put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        there = slot == 1 or f"s/{slot - 1}" in self.names(id)
        return there and self._create(id, f"s/{slot}", data)


class KeepsWhatIsPacked(SimulatedObjectPlace):
    def delete_slots(self, id: str, slots: Iterable[int]) -> None:
        return None


class PrefersSlots(SimulatedObjectPlace):
    def read(self, id: str, after: int = 0) -> list[Piece]:
        return SimulatedPlace.read(self, id, after)


class RepacksInPlace(SimulatedObjectPlace):
    def put_pack(self, id: str, first: int, last: int, data: bytes) -> None:
        self.set_object(id, f"p/{first}-{last}", data)


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
    ],
)
def test_the_contract_objects(wrong: type[SimulatedPlace], rule: str):
    """A place that breaks a rule is named by it. (Which races a place loses, E4 and E8, only a place with threads can show.)"""
    place = wrong()
    with pytest.raises(AssertionError) as told:
        check_place(lambda: place)
    assert str(told.value).startswith(f"{rule},")
