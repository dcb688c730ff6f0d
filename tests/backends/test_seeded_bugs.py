"""Each rule of the design that was paid for is left out once, and its loss is seen: a rule without such a test is a superstition.

What each one cost in storms, docs/backends.md has. Here each is a story of a few requests: what another session does stands in the middle of a call,
where the call's own requests leave room for it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.backends.schedules import ID, Actor, Claimed, LossError, World, begun, texts
from transcript_store import ConversationNotFoundError, TranscriptStoreError
from transcript_store.backends import SlotRange, _claims
from transcript_store.backends._claims import ClaimedLog
from transcript_store.backends._slots import Slot
from transcript_store.testing import BackendRequest, Fate, SimulatedBackend, SimulatedObjectStore


def before(world: World, call: str, name: str, act: Callable[[], object]) -> None:
    """Do something right before the next request of this kind, and nothing else is in the way."""

    def on_request(request: BackendRequest) -> Fate:
        if (request.call, request.name) == (call, name):
            world.backend.on_request = None
            act()
        return Fate.DONE

    world.backend.on_request = on_request


def unknown_append(actor: Actor) -> None:
    """An append without an answer that arrives late."""
    backend = actor.world.backend
    first = [Fate.LATE]
    backend.on_request = lambda request: first.pop() if request.changes and first else Fate.REFUSED
    actor.append()
    backend.on_request = None
    assert len(backend.late) == 1
    assert actor.world.unknown


def take_over_and_pack(actor: Actor) -> None:
    actor.load()
    actor.append()
    actor.pack()


def loses(world: World) -> bool:
    """True if a promise is broken at the end."""
    try:
        world.judge()
    except (LossError, TranscriptStoreError):
        return True
    return False


# ---- the stories -------------------------------------------------------------------------------------------------------


def a_claim_in_a_freed_name() -> World:
    """The second session has read two slots and is about to claim the third. The first continues, packs and tidies: the
    third slot's name is free.
    """
    world, a = begun(SimulatedObjectStore(), messages=1)
    b = Actor(world, "b")

    def goes_on() -> None:
        a.append_many(4)
        a.pack()
        assert "s/3" not in world.backend.names(ID)

    before(world, "put", "s/3", goes_on)
    if b.load():
        b.append()
    return world


def a_writer_that_stalls_before_a_claim() -> World:
    """The first session is about to put the third slot. The second claims it, continues, packs and tidies."""
    world, a = begun(SimulatedObjectStore(), messages=1)
    b = Actor(world, "b")

    before(world, "put", "s/3", lambda: take_over_and_pack(b))
    a.append()
    return world


def a_writer_that_stalls_before_its_own_late_slot() -> World:
    """A message got no answer. Its writer has looked, nothing is there, and it is about to put the next one into that slot.

    Then the first of them lands, and another session takes over, packs and tidies.
    """
    world, a = begun(SimulatedObjectStore(), messages=1)
    b = Actor(world, "b")
    unknown_append(a)

    def lands() -> None:
        world.backend.land()
        take_over_and_pack(b)

    before(world, "put", "s/3", lands)
    a.append()
    return world


def a_reader_between_its_list_and_a_get() -> World:
    """A reader listed three slots, and got two. The writer packs and removes the third; a message that was given up lands there."""
    world, a = begun(SimulatedObjectStore(), messages=1)
    unknown_append(a)
    a.append()

    def goes_on() -> None:
        a.append_many(2)
        a.pack()
        world.backend.land()

    before(world, "read", "s/3", goes_on)
    reader = world.session("c", read_only=True)
    reader.load()
    world.claims.append(Claimed(99, texts(reader)))
    return world


def a_pack_made_beside_a_late_slot() -> World:
    """A message that was given up has landed under a name that a pack had freed. Another session takes over and packs."""
    world, a = begun(SimulatedObjectStore(), messages=1)
    unknown_append(a)
    a.append_many(3)
    a.pack()
    world.backend.land()
    b = Actor(world, "b")
    take_over_and_pack(b)
    return world


def a_server_that_lost_a_commit(make_backend: type[SimulatedBackend]) -> Callable[[], World]:
    def story() -> World:
        world, a = begun(make_backend(), messages=2)
        world.backend.set_object(ID, "s/3", None)
        world.acknowledged.pop()  # the server lost it; nobody can bring it back
        with pytest.raises(TranscriptStoreError):
            a.store.append_message({"text": "a3"})
            raise LossError("R8: it was written behind a hole")
        return world

    return story


# ---- the bugs ----------------------------------------------------------------------------------------------------------


class GetsByName(SimulatedObjectStore):
    """A get is not bound to what was listed."""

    def get(self, id: str, name: str, tag: int) -> SlotRange | None:
        return self._request("read", name, lambda: self._named(id, name))

    def _named(self, id: str, name: str) -> SlotRange | None:
        slot = int(name[2:].partition("-")[0])
        if name not in self.names(id):
            return None
        last = int(name.rpartition("-")[2]) if name.startswith("p/") else slot
        return SlotRange(slot, last, self.object(id, name), name.startswith("p/"))


class LooksAtNothing(SimulatedBackend):
    """``put`` does not look at the slot before."""

    def _put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        return self._create(id, f"s/{slot}", data)


def removes_claims(slots: list[Slot]) -> list[int]:
    return [slot.number for slot in slots[:-1] if slot.number != 1]


def removes_the_last_of_a_session(slots: list[Slot]) -> list[int]:
    return [slot.number for slot in slots[:-1] if slot.number != 1 and slot.kind != "claim"]


def puts_what_it_likes(patch: pytest.MonkeyPatch) -> None:
    """Behind an unsure write anything is put, as if it could not land any more."""
    patch.setattr(ClaimedLog, "is_held", property(lambda log: log.is_ours))


def packs_what_is_there(self: ClaimedLog, *, tidy: bool) -> int:
    """A pack of the values under the names and of earlier packs; nothing is verified."""
    backend: SimulatedObjectStore = self.backend  # type: ignore[assignment]
    found: dict[int, bytes] = {}
    for piece in backend.read(self.id):
        start = 0
        for slot in range(piece.first, piece.last + 1):
            end = piece.data.index(b"\n", start)
            stop = end + 1 + int(piece.data[start:end].split(b'"bytes":')[1].split(b",")[0])
            found[slot] = piece.data[start:stop]
            start = stop
    found |= {int(name[2:]): backend.object(self.id, name) for name in backend.names(self.id) if name.startswith("s/")}
    last = max(found)
    backend.put_pack(self.id, 1, last, b"".join(found[slot] for slot in range(1, last + 1)))
    backend.delete_slots(self.id, _claims.removable(self._unpacked))
    return last


Break = Callable[[pytest.MonkeyPatch], None]

RULES: dict[str, tuple[Callable[[], World], Break]] = {
    "a claim is confirmed": (
        a_claim_in_a_freed_name,
        lambda patch: patch.setattr(ClaimedLog, "is_confirmed", lambda self: True),
    ),
    "claims are never removed": (
        a_writer_that_stalls_before_a_claim,
        lambda patch: patch.setattr(_claims, "removable", removes_claims),
    ),
    "the last slot of a session is never removed": (
        a_writer_that_stalls_before_its_own_late_slot,
        lambda patch: patch.setattr(_claims, "removable", removes_the_last_of_a_session),
    ),
    "a get is bound to its listing": (
        a_reader_between_its_list_and_a_get,
        lambda patch: patch.setitem(globals(), "SimulatedObjectStore", GetsByName),
    ),
    "a pack is made of verified slots": (
        a_pack_made_beside_a_late_slot,
        lambda patch: patch.setattr(ClaimedLog, "pack", packs_what_is_there),
    ),
}


ALSO_WITHOUT_D6 = frozenset({"a get is bound to its listing", "a pack is made of verified slots"})
"""A claim behind each unsure write (D6) keeps what is late out of names that are freed. So what these two rules are for does not happen, and
they are left out together with it."""


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("with_d6", [True, False])
def test_with_the_rule_nothing_is_lost(rule: str, with_d6: bool, monkeypatch: pytest.MonkeyPatch):
    """R3, R5, R9: the story comes to a good end, also if nothing but this rule is between it and the loss."""
    if not with_d6 and rule in ALSO_WITHOUT_D6:
        puts_what_it_likes(monkeypatch)
    RULES[rule][0]().judge()


@pytest.mark.parametrize("rule", RULES)
def test_without_the_rule_the_loss_is_seen(rule: str, monkeypatch: pytest.MonkeyPatch):
    """The same story, with the rule left out."""
    story, leave_out = RULES[rule]
    leave_out(monkeypatch)
    if rule in ALSO_WITHOUT_D6:
        puts_what_it_likes(monkeypatch)
    world = story()
    assert world.acknowledged
    assert loses(world)


def test_a_put_looks_at_the_slot_before():
    """R8: with the rule the writer gets an error; without it, it writes after the hole, and the log is unreadable."""
    a_server_that_lost_a_commit(SimulatedBackend)().judge()
    with pytest.raises(LossError, match="R8"):
        a_server_that_lost_a_commit(LooksAtNothing)()


class FreesNames(SimulatedObjectStore):
    """``expunge`` removes the names too."""

    def expunge(self, id: str, keep: int) -> None:
        SimulatedBackend.expunge(self, id, keep)


@pytest.mark.parametrize("make_backend", [SimulatedObjectStore, FreesNames])
def test_expunging_keeps_the_fences(make_backend: type[SimulatedBackend]):
    """R4: a stalled writer whose conversation was deleted and expunged gets an error.

    Without the rule, its message is acknowledged, and nobody can read it.
    """
    world, a = begun(make_backend(), messages=1)
    b = world.session("b")

    def forgets() -> None:
        b.load()
        b.close()
        world.library().delete(ID)

    before(world, "put", "s/3", forgets)
    if make_backend is FreesNames:
        a.append()
        assert [text for _, _, text in world.acknowledged] == ["a1", "a2"]
        with pytest.raises(ConversationNotFoundError):
            world.session("reader", read_only=True).load()
        return
    with pytest.raises(ConversationNotFoundError, match="was deleted"):
        a.append()
