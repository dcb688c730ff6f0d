"""A log of slots as one value: many appends are verified at once, and it comes to the same as one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from transcript_store import ConversationLibrary
from transcript_store._log.record import Position, chain_hash
from transcript_store._log.scan import Scan, scan
from transcript_store.backends import _slots
from transcript_store.backends._slots import LogState, NotASlotError, Slot, all_taken_in, encoded, flattened, taken_in
from transcript_store.testing import SimulatedBackend, SimulatedFileSystem

ID = "6f1c2c0e-53cb-4d7e-8a5f-0a3a1c7d9e21"
Numbered = Sequence[tuple[int, bytes]]


@pytest.fixture(scope="module")
def slots() -> list[tuple[int, bytes]]:
    """Appends of one message and of several, a claim, a change of the metadata, a replace, and appends behind each."""
    backend, machine = SimulatedBackend(), SimulatedFileSystem()
    library = ConversationLibrary(backend, file_system=machine)
    with library.create(id=ID, messages=[{"text": "first"}]) as conversation:
        for number in range(3):
            conversation.append_message({"text": f"{number} é"})
        conversation.append_messages([{"text": "of"}, {"text": "a batch"}])
        conversation.append_message({"text": ["ends", "in", "a", "bracket"]}, extra={"list": [1, 2]})
        conversation.update_metadata(labels={"title": "another"})
        conversation.append_message({"text": "behind it"})
    with library.open(ID) as conversation:
        conversation.append_message({"text": "of another session"})
        conversation.replace_transcript([{"text": "summary"}])
        conversation.append_message({"text": "last"})
    return flattened(backend.read(ID), 0)


def one_by_one(slots: Numbered) -> tuple[LogState, list[Slot]]:
    state, taken = LogState(conversation=ID), []
    for _, data in slots:
        state, slot = taken_in(state, data)
        taken.append(slot)
    return state, taken


def told(take: object, slots: Numbered) -> object:
    """What a way to take slots in comes to, or what it says is wrong."""
    try:
        return take(slots)  # type: ignore[operator]
    except NotASlotError as error:
        return error.kind, error.reason


def at_once(slots: Numbered) -> tuple[LogState, list[Slot]]:
    return all_taken_in(LogState(conversation=ID), slots)


def test_applying_slots_at_once_equals_applying_each(slots: list[tuple[int, bytes]]) -> None:
    """C1–C3: every state and every slot, to the last member."""
    assert at_once(slots) == one_by_one(slots)
    run = _slots._appends(at_once(slots[:1])[0], slots, 1)  # which way is taken shows nowhere else
    assert len(run) == 5


@pytest.mark.parametrize("step", [7, pytest.param(3, marks=pytest.mark.long)])
def test_a_byte_that_was_changed_is_told_as_in_its_slot(slots: list[tuple[int, bytes]], step: int) -> None:
    """R7: some bytes of each slot: the same kind and the same words as one after the other."""
    looked_at = changed = 0
    for index, (number, data) in enumerate(slots):
        for at in range(index % step, len(data), step):
            other = bytes([data[at] ^ (1 if at % 2 else 4)])
            altered = [*slots[:index], (number, data[:at] + other + data[at + 1 :]), *slots[index + 1 :]]
            found = told(at_once, altered)
            assert found == told(one_by_one, altered)
            looked_at += 1
            changed += isinstance(found[0], str)  # type: ignore[index]
    assert looked_at == changed > 1500 / step


def test_a_batch_is_in_one_slot(slots: list[tuple[int, bytes]]) -> None:
    """R2: half a batch in one slot and the rest in the next is refused, though the lines of both verify together."""
    before, _ = one_by_one(slots[:4])
    number, data = slots[4]
    first, second = _slots.slot_lines(data).splitlines(keepends=True)
    end = one_by_one(slots[:5])[0].end
    seq, offset, _ = before.end
    half = before.end._replace(seq=seq + 1, offset_bytes=offset + len(first), head=first[-35:-3])
    one = encoded(before, "append", before.at, lines=first, end=half)
    middle = before._replace(slot=number, hash=_slots.slot_hash(one), end=half)
    two = encoded(middle, "append", before.at, lines=second, end=end)
    altered = [*slots[:4], (number, one), (number + 1, two)]
    assert told(at_once, altered) == told(one_by_one, altered)
    assert told(at_once, altered)[0] == "damaged-line"  # type: ignore[index]


def test_runs_that_look_at_no_batch_are_caught(slots: list[tuple[int, bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that look half a batch is taken in."""
    monkeypatch.setattr(_slots, "_is_closed", lambda lines: True)
    with pytest.raises(AssertionError):
        test_a_batch_is_in_one_slot(slots)


def test_damage_behind_many_slots_costs_no_more_than_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reported bug: all earlier slots were verified again for each slot: 4,000 of them took half a minute."""
    backend = SimulatedBackend()
    with ConversationLibrary(backend, file_system=SimulatedFileSystem()).create(id=ID) as conversation:
        for number in range(60):
            conversation.append_message({"text": f"message {number}"})
    slots = flattened(backend.read(ID), 0)
    number, data = slots[50]
    slots[50] = (number, data.replace(b"message", b"massage"))
    scanned = 0

    def counting(lines: bytes, begin: Position) -> Scan:
        nonlocal scanned
        scanned += len(lines)
        return scan(lines, begin)

    monkeypatch.setattr(_slots, "scan", counting)
    with pytest.raises(NotASlotError):
        all_taken_in(LogState(conversation=ID), slots)
    assert scanned < 3 * sum(len(data) for _, data in slots)


def test_a_time_that_holds_a_quote_is_no_slot() -> None:
    """A slot forged so that its hash holds, and whose head is no JSON: verified with others it was taken in."""
    backend = SimulatedBackend()
    with ConversationLibrary(backend, file_system=SimulatedFileSystem()).create(id=ID) as conversation:
        conversation.append_message({"text": "one"})
    slots = flattened(backend.read(ID), 0)
    at = next(backend for backend, (_, data) in enumerate(slots) if b'"kind":"append"' in data)
    head, feed, lines = slots[at][1].partition(b"\n")
    time = head.index(b'"at":"') + len(b'"at":"') + 10
    forged = bytearray(head)
    forged[time : time + 1] = b'"'
    forged[-34:-2] = chain_hash(_slots.slot_hash(slots[at - 1][1]), (bytes(forged[:-43]),))
    slots = [*slots[:at], (slots[at][0], bytes(forged) + feed + lines)]
    told_at_once = told(lambda each: all_taken_in(LogState(conversation=ID), each), slots)
    assert told_at_once == told(one_by_one, slots)
