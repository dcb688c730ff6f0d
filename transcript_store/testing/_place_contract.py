"""The contract of ``Place``, as numbered checks. The docstring of a check is the rule that an error prints."""

from __future__ import annotations

import threading
from collections.abc import Callable
from uuid import uuid4

from transcript_store import ConversationLibrary
from transcript_store.places import ConversationTakenOverError, PackingPlace, Piece, PlacedConversation
from transcript_store.testing._arguments import require_function
from transcript_store.testing._place_besides import (
    expunged,
    keyed,
    labelled,
    late,
    later_summary,
    summarized,
)
from transcript_store.testing._place_case import (
    ZEROS,
    OpenPlace,
    at_once,
    hash_of,
    place_and_id,
    put_all,
    slot_of,
    slots_of,
)

__all__ = ["check_place"]


def check_place(open_place: OpenPlace) -> None:
    """Check a ``Place`` against its contract. It returns nothing if the place keeps it.

    Args:
        open_place: opens the same place anew at each call, as another process would. What is there already does not matter:
            each check uses conversations of its own, and leaves them there.

    Raises:
        AssertionError: a rule is broken. The message begins with the number of the rule, as in ``E3``.
    """
    require_function("open_place", open_place)
    for number, check in enumerate(CONTRACT, 1):
        try:
            check(open_place)
        except Exception as error:
            raise AssertionError(f"E{number}, {(check.__doc__ or '').strip()} {error!r}") from error


def _nothing(open_place: OpenPlace) -> None:
    """A conversation that nobody wrote to has no slots."""
    place, one = place_and_id(open_place)
    assert list(place.read(one)) == []
    assert list(place.read(one, 7)) == []


def _whole(open_place: OpenPlace) -> None:
    """What was put is read again, byte for byte, also by another process."""
    place, one = place_and_id(open_place)
    data = [slot_of(1, b"\0\xff\r\n\\ '\"%s;--"), slot_of(2, bytes(range(256)) * 4096), slot_of(3, b"")]
    put_all(place, one, data)
    for opened in (place, open_place()):
        assert slots_of(opened, one) == dict(enumerate(data, 1))


def _once(open_place: OpenPlace) -> None:
    """A slot is written once: a second put says False and changes nothing, whoever makes it, also with the same bytes."""
    place, one = place_and_id(open_place)
    first = slot_of(1, b"first")
    assert place.put(one, 1, first, ZEROS) is True
    for opened in (place, open_place()):
        for data in (slot_of(1, b"second"), first, b""):
            assert opened.put(one, 1, data, ZEROS) is False
    assert slots_of(place, one) == {1: first}


def _one_of_many(open_place: OpenPlace) -> None:
    """Of many that put one slot at the same time, exactly one is told True, and its bytes stand there."""
    places = [open_place() for _ in range(6)]
    one = str(uuid4())
    previous, won = ZEROS, []
    for slot in range(1, 9):
        winners: list[bytes] = []
        barrier = threading.Barrier(len(places))

        def race(
            number: int,
            slot: int = slot,
            previous: bytes = previous,
            winners: list[bytes] = winners,
            barrier: threading.Barrier = barrier,
        ) -> None:
            data = slot_of(slot, b"of %d" % number)
            barrier.wait(30)
            if places[number].put(one, slot, data, previous):
                winners.append(data)

        at_once([lambda number=number: race(number) for number in range(len(places))])  # type: ignore[misc]
        assert len(winners) == 1, f"{len(winners)} were told that they put slot {slot}"
        won += winners
        previous = hash_of(winners[0])
    assert slots_of(places[0], one) == dict(enumerate(won, 1))


def _behind(open_place: OpenPlace) -> None:
    """``read`` gives the slots behind a number, by number and not by text, and all of them."""
    place, one = place_and_id(open_place)
    data = [slot_of(number, b"%d" % number) for number in range(1, 13)]
    put_all(place, one, data)
    for after in (0, 1, 8, 9, 10, 11, 12, 13):
        assert slots_of(place, one, after) == {number: data[number - 1] for number in range(after + 1, 13)}


def _apart(open_place: OpenPlace) -> None:
    """Conversations do not mix."""
    place, one = place_and_id(open_place)
    other = str(uuid4())
    assert place.put(one, 1, slot_of(1, b"one"), ZEROS)
    assert place.put(other, 1, slot_of(1, b"other"), ZEROS)
    assert (slots_of(place, one), slots_of(place, other)) == ({1: slot_of(1, b"one")}, {1: slot_of(1, b"other")})


def _listed(open_place: OpenPlace) -> None:
    """``conversations`` gives every id that has a slot, in the order of their text, page by page."""
    place, _ = place_and_id(open_place)
    ids = sorted(str(uuid4()) for _ in range(5))
    for id in reversed(ids):  # noqa: A001
        assert place.put(id, 1, slot_of(1, b""), ZEROS)
    after, found = "", list[str]()
    while page := place.conversations(after=after, limit=2):
        assert len(page) <= 2
        found += page
        after = page[-1]
    assert found == sorted(set(found))
    assert set(ids) <= set(found)


def _prefix(open_place: OpenPlace) -> None:
    """Whoever reads beside a writer sees all that was acknowledged before, and no hole."""
    place, one = place_and_id(open_place)
    reader = open_place()
    acknowledged = [0]
    done = threading.Event()

    def write() -> None:
        try:
            previous = ZEROS
            for number in range(1, 41):
                data = slot_of(number, b"x" * 500)
                assert place.put(one, number, data, previous)
                acknowledged[0], previous = number, hash_of(data)
        finally:
            done.set()

    def read() -> None:
        while not done.is_set():
            least = acknowledged[0]
            seen = sorted(slots_of(reader, one))
            assert seen == list(range(1, len(seen) + 1)), f"a hole in {seen}"
            assert len(seen) >= least, f"{least} were acknowledged, and {len(seen)} are seen"

    at_once([write, read])


def _looks_back(open_place: OpenPlace) -> None:
    """A place that looks at the slot before puts nothing behind a hole, or behind another slot than the one that is meant."""
    place, one = place_and_id(open_place)
    first = slot_of(1, b"")
    assert place.put(one, 1, first, ZEROS)
    if place.put(one, 3, slot_of(3, b""), hash_of(first)):
        return  # no place has to look; then there is nothing more to see
    assert place.put(one, 2, slot_of(2, b""), b"f" * 32) is False
    assert slots_of(place, one) == {1: first}
    assert place.put(one, 2, slot_of(2, b""), hash_of(first)) is True


def _taken_over(open_place: OpenPlace) -> None:
    """A session that is deposed is told so, nothing of its call is stored, and all that was acknowledged is there in its order."""
    one = str(uuid4())
    texts = []
    with (
        PlacedConversation(open_place(), one, holder="first", take_over=True) as first,
        PlacedConversation(open_place(), one, holder="second", take_over=True) as second,
    ):
        first.initialize()
        for turn, (writer, other) in enumerate([(first, second), (second, first)] * 3):
            for number in range(3):
                writer.append_message({"text": f"{turn}.{number}"})
                texts.append(f"{turn}.{number}")
            other.load()
            try:
                writer.append_messages([{"text": "lost"}, {"text": "lost"}])
            except ConversationTakenOverError as error:
                told = error.epoch
            else:
                raise AssertionError("a session that was deposed appended")
            assert told == other.epoch
    with ConversationLibrary(open_place()).open(one, read_only=True) as reader:
        assert [message["text"] for message in reader.get_messages()] == texts


def _packed(open_place: OpenPlace) -> None:
    """A place that packs: a pack is put once, tells that it is there, and is read in the place of slots that were removed."""
    place, one = place_and_id(open_place)
    if not hasattr(place, "put_pack"):
        return
    packing: PackingPlace = place  # type: ignore[assignment]
    data = [slot_of(number, b"%d" % number) for number in range(1, 6)]
    put_all(place, one, data)
    assert not packing.packs_from(one, 1)
    packing.put_pack(one, 1, 4, b"".join(data[:4]))
    packing.put_pack(one, 1, 4, b"something else")
    for opened in (packing, open_place()):
        assert [opened.packs_from(one, slot) for slot in (1, 4, 5)] == [True, True, False]  # type: ignore[attr-defined]
    packing.delete_slots(one, [2, 3, 77])
    assert place.put(one, 2, slot_of(2, b"late"), hash_of(data[0])) is True
    packs = [piece for piece in open_place().read(one) if piece.is_pack]
    assert packs == [Piece(1, 4, b"".join(data[:4]), is_pack=True)]
    assert max(piece.last for piece in place.read(one, 4)) == 5


CONTRACT: tuple[Callable[[OpenPlace], None], ...] = (
    _nothing,
    _whole,
    _once,
    _one_of_many,
    _behind,
    _apart,
    _listed,
    _prefix,
    _looks_back,
    _taken_over,
    _packed,
    summarized,
    later_summary,
    labelled,
    expunged,
    keyed,
    late,
)
