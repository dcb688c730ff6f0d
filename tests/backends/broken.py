"""Backends that break one rule of the contract: the contract and the machine must both find them."""

from __future__ import annotations

from transcript_store.backends import SlotRange
from transcript_store.testing import SimulatedBackend, SimulatedObjectStore


class Overwrites(SimulatedBackend):
    """E3: puts into a slot that is taken."""

    def _put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        self.set_object(id, f"s/{slot}", data)
        return True


class SaysItIsOurs(SimulatedBackend):
    """E3: answers as a client does that repeats a request by itself: the slot exists, with the same bytes."""

    def _put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        is_put = super()._put(id, slot, data, previous)
        return is_put or (f"s/{slot}" in self.names(id) and self.object(id, f"s/{slot}") == data)


class PrefersSlots(SimulatedObjectStore):
    """E11: reads a slot that a pack holds."""

    def read(self, id: str, after: int = 0) -> list[SlotRange]:
        return SimulatedBackend.read(self, id, after)
