"""The contract of ``Place``, as numbered checks. The docstring of a check is the rule that an error prints."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from random import randrange
from typing import Any
from uuid import uuid4

from transcript_store import ConversationExistsError, ConversationLibrary, ConversationNotFoundError
from transcript_store.places import (
    ConversationTakenOverError,
    PackingPlace,
    Piece,
    Place,
    PlacedConversation,
    PlaceError,
    Summary,
)
from transcript_store.testing._arguments import require_function

__all__ = ["check_place"]

OpenPlace = Callable[[], Place]

_ZEROS = b"0" * 32


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
    place, one = _opened(open_place)
    assert list(place.read(one)) == []
    assert list(place.read(one, 7)) == []


def _whole(open_place: OpenPlace) -> None:
    """What was put is read again, byte for byte, also by another process."""
    place, one = _opened(open_place)
    data = [_slot(1, b"\0\xff\r\n\\ '\"%s;--"), _slot(2, bytes(range(256)) * 4096), _slot(3, b"")]
    _put_all(place, one, data)
    for opened in (place, open_place()):
        assert _slots(opened, one) == dict(enumerate(data, 1))


def _once(open_place: OpenPlace) -> None:
    """A slot is written once: a second put says False and changes nothing, whoever makes it, also with the same bytes."""
    place, one = _opened(open_place)
    first = _slot(1, b"first")
    assert place.put(one, 1, first, _ZEROS) is True
    for opened in (place, open_place()):
        for data in (_slot(1, b"second"), first, b""):
            assert opened.put(one, 1, data, _ZEROS) is False
    assert _slots(place, one) == {1: first}


def _one_of_many(open_place: OpenPlace) -> None:
    """Of many that put one slot at the same time, exactly one is told True, and its bytes stand there."""
    places = [open_place() for _ in range(6)]
    one = str(uuid4())
    previous, won = _ZEROS, []
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
            data = _slot(slot, b"of %d" % number)
            barrier.wait(30)
            if places[number].put(one, slot, data, previous):
                winners.append(data)

        _at_once([lambda number=number: race(number) for number in range(len(places))])  # type: ignore[misc]
        assert len(winners) == 1, f"{len(winners)} were told that they put slot {slot}"
        won += winners
        previous = _hash(winners[0])
    assert _slots(places[0], one) == dict(enumerate(won, 1))


def _behind(open_place: OpenPlace) -> None:
    """``read`` gives the slots behind a number, by number and not by text, and all of them."""
    place, one = _opened(open_place)
    data = [_slot(number, b"%d" % number) for number in range(1, 13)]
    _put_all(place, one, data)
    for after in (0, 1, 8, 9, 10, 11, 12, 13):
        assert _slots(place, one, after) == {number: data[number - 1] for number in range(after + 1, 13)}


def _apart(open_place: OpenPlace) -> None:
    """Conversations do not mix."""
    place, one = _opened(open_place)
    other = str(uuid4())
    assert place.put(one, 1, _slot(1, b"one"), _ZEROS)
    assert place.put(other, 1, _slot(1, b"other"), _ZEROS)
    assert (_slots(place, one), _slots(place, other)) == ({1: _slot(1, b"one")}, {1: _slot(1, b"other")})


def _listed(open_place: OpenPlace) -> None:
    """``conversations`` gives every id that has a slot, in the order of their text, page by page."""
    place, _ = _opened(open_place)
    ids = sorted(str(uuid4()) for _ in range(5))
    for id in reversed(ids):  # noqa: A001
        assert place.put(id, 1, _slot(1, b""), _ZEROS)
    after, found = "", list[str]()
    while page := place.conversations(after=after, limit=2):
        assert len(page) <= 2
        found += page
        after = page[-1]
    assert found == sorted(set(found))
    assert set(ids) <= set(found)


def _prefix(open_place: OpenPlace) -> None:
    """Whoever reads beside a writer sees all that was acknowledged before, and no hole."""
    place, one = _opened(open_place)
    reader = open_place()
    acknowledged = [0]
    done = threading.Event()

    def write() -> None:
        try:
            previous = _ZEROS
            for number in range(1, 41):
                data = _slot(number, b"x" * 500)
                assert place.put(one, number, data, previous)
                acknowledged[0], previous = number, _hash(data)
        finally:
            done.set()

    def read() -> None:
        while not done.is_set():
            least = acknowledged[0]
            seen = sorted(_slots(reader, one))
            assert seen == list(range(1, len(seen) + 1)), f"a hole in {seen}"
            assert len(seen) >= least, f"{least} were acknowledged, and {len(seen)} are seen"

    _at_once([write, read])


def _looks_back(open_place: OpenPlace) -> None:
    """A place that looks at the slot before puts nothing behind a hole, or behind another slot than the one that is meant."""
    place, one = _opened(open_place)
    first = _slot(1, b"")
    assert place.put(one, 1, first, _ZEROS)
    if place.put(one, 3, _slot(3, b""), _hash(first)):
        return  # no place has to look; then there is nothing more to see
    assert place.put(one, 2, _slot(2, b""), b"f" * 32) is False
    assert _slots(place, one) == {1: first}
    assert place.put(one, 2, _slot(2, b""), _hash(first)) is True


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
    place, one = _opened(open_place)
    if not hasattr(place, "put_pack"):
        return
    packing: PackingPlace = place  # type: ignore[assignment]
    data = [_slot(number, b"%d" % number) for number in range(1, 6)]
    _put_all(place, one, data)
    assert not packing.packs_from(one, 1)
    packing.put_pack(one, 1, 4, b"".join(data[:4]))
    packing.put_pack(one, 1, 4, b"something else")
    for opened in (packing, open_place()):
        assert [opened.packs_from(one, slot) for slot in (1, 4, 5)] == [True, True, False]  # type: ignore[attr-defined]
    packing.delete_slots(one, [2, 3, 77])
    assert place.put(one, 2, _slot(2, b"late"), _hash(data[0])) is True
    packs = [piece for piece in open_place().read(one) if piece.is_pack]
    assert packs == [Piece(1, 4, b"".join(data[:4]), is_pack=True)]
    assert max(piece.last for piece in place.read(one, 4)) == 5


def _summarized(open_place: OpenPlace) -> None:
    """``summaries`` gives the newest first, by time and then by id, page by page, as they were put, also to another process."""
    place, _ = _opened(open_place)
    day = _a_day()
    ids = sorted(str(uuid4()) for _ in range(3))
    put = [_summary(ids[1], f"{day}:07.000001Z"), _summary(ids[0], f"{day}:07.000001Z")]
    put += [_summary(ids[2], f"{day}:07.000000Z"), _summary(str(uuid4()), f"{day}:06.999999Z")]
    put.insert(0, _summary(str(uuid4()), f"{day}:07.100000Z"))
    for summary in (put[2], put[0], put[4], put[1], put[3]):
        assert place.put(summary.id, 1, _slot(1, b""), _ZEROS)
        place.put_summary(summary)
    for opened in (place, open_place()):
        assert _newest(opened, day) == put
        assert opened.summaries(before=(put[1].updated_at, put[1].id), limit=2) == put[2:4]


def _later_summary(open_place: OpenPlace) -> None:
    """The summary of a later slot takes the place of the one before, and of an earlier slot it changes nothing."""
    place, one = _opened(open_place)
    day = _a_day()
    assert place.put(one, 1, _slot(1, b""), _ZEROS)
    texts = [(2, "1"), (9, "2"), (10, "3"), (9, "4"), (3, "5")]
    for slot, second in texts:
        open_place().put_summary(_summary(one, f"{day}:0{second}.000000Z", slot=slot))
    assert _newest(place, day) == [_summary(one, f"{day}:03.000000Z", slot=10)]


def _labelled(open_place: OpenPlace) -> None:
    """``summaries(label=…)`` gives those that have it, by name or by name and value; or it says that it cannot, as ``PlaceError``."""
    place, _ = _opened(open_place)
    day = _a_day()
    labels: list[dict[str, str]] = [{"team": "a=b", "x": ""}, {"team": "a"}, {"teams": "a=b"}, {}, {"x": "'\"%_\\"}]
    put = [_summary(str(uuid4()), f"{day}:0{9 - n}.000000Z", labels=each) for n, each in enumerate(labels)]
    for summary in put:
        assert place.put(summary.id, 1, _slot(1, b""), _ZEROS)
        place.put_summary(summary)
    try:
        place.summaries(label="team", limit=1)
    except PlaceError as error:
        if error.outcome == "not stored":
            return
        raise
    for label, expected in (
        ("team", put[:2]),
        ("team=a=b", put[:1]),
        ("team=a", put[1:2]),
        ("x", [put[0], put[4]]),
        ("x=", put[:1]),
        ("x='\"%_\\", put[4:]),
        ("tea%", []),
        ("", []),
    ):
        assert _newest(place, day, label) == expected, label


def _keyed(open_place: OpenPlace) -> None:
    """A key takes the place of the one that is meant, and of nothing else: also as another process does it, and of many exactly one."""
    place, one = _opened(open_place)
    data = [b'{"key":%d,"\0\xff":"\r\n"}\n' % number for number in range(3)]
    assert place.key(one) is None
    assert place.put_key(one, data[1], data[0]) is False
    assert place.put_key(one, data[0], None) is True
    for known in (None, data[1], data[0][:-1], b""):
        assert open_place().put_key(one, data[2], known) is False
    assert open_place().put_key(one, data[1], data[0]) is True
    assert place.put_key(one, data[2], data[0]) is False
    assert [opened.key(one) for opened in (place, open_place())] == [data[1]] * 2
    assert place.key(str(uuid4())) is None
    assert list(place.read(one)) == [], "a key is no slot"
    places, won = [open_place() for _ in range(6)], list[bytes]()
    barrier = threading.Barrier(len(places))

    def race(number: int) -> None:
        barrier.wait(30)
        if places[number].put_key(one, b"of %d" % number, data[1]):
            won.append(b"of %d" % number)

    _at_once([lambda number=number: race(number) for number in range(len(places))])  # type: ignore[misc]
    assert won == [place.key(one)], f"{len(won)} were told that they put the key"


def _expunged(open_place: OpenPlace) -> None:
    """``expunge`` leaves nothing but the slot ``deleted``: whoever comes is told, a key that comes late too; no other one is touched."""
    one, other = str(uuid4()), str(uuid4())
    day = _a_day()
    place = open_place()
    library = ConversationLibrary(open_place())
    for each in (one, other):
        with library.create(id=each, messages=[{"text": "secret"}]) as begun:
            begun.append_messages([{"text": "more"}])
    stalled = ConversationLibrary(open_place()).open(one, read_only=True)
    with PlacedConversation(open_place(), one) as begun:
        begun.load()
        begun.append_message({"text": "packed"})
        begun.pack(tidy=True)
    for each in (one, other):
        place.put_summary(_summary(each, f"{day}:0{1 + (each == one)}.000000Z", slot=99))
        assert place.put_key(each, b"a key", None)
    library.delete(one)
    last = max(piece.last for piece in place.read(one))
    for opened in (place, open_place(), place):
        opened.expunge(one, last)
        assert list(_slots(opened, one)) == [last]
        assert not any(b"secret" in piece.data or b"packed" in piece.data for piece in opened.read(one))
        assert [summary.id for summary in _newest(opened, day)] == [other]
        assert [opened.key(one), opened.key(other)] == [None, b"a key"]
        assert not any(opened.put_key(one, b"late", known) for known in (None, b"a key"))
    with stalled, PlacedConversation(place, one) as late:
        for call in (late.load, late.initialize, stalled.refresh):
            try:
                call()
            except (ConversationNotFoundError, ConversationExistsError):
                continue
            raise AssertionError(f"nobody is told by {call.__name__} that the conversation was deleted")
    with ConversationLibrary(place).open(other, read_only=True) as reader:
        assert [message["text"] for message in reader.get_messages()] == ["secret", "more"]


def _late(open_place: OpenPlace) -> None:
    """What comes late to what was expunged changes nothing: no slot is put, a writer that stalled is told, no summary is in a list."""
    place = open_place()
    day = _a_day()
    data = [_slot(number, b"%d" % number) for number in range(1, 6)]
    for has_summary in (True, False):
        one = str(uuid4())
        _put_all(place, one, data)
        if hasattr(place, "put_pack"):
            place.put_pack(one, 1, 3, b"".join(data[:3]))  # no slot is removed, so that each name is taken
        if has_summary:
            place.put_summary(_summary(one, f"{day}:01.000000Z"))
        open_place().expunge(one, len(data))
        for late in (place, open_place()):
            for number, previous in enumerate([_ZEROS, *map(_hash, data[:-1])], 1):
                is_put = late.put(one, number, _slot(number, b"late"), previous)
                assert is_put is False, f"slot {number} was put behind the deletion"
            late.put_summary(_summary(one, f"{day}:02.000000Z", slot=99))
            assert _slots(late, one) == {len(data): data[-1]}
            assert _newest(late, day) == [], "a summary that came late is listed"
    one = str(uuid4())
    with PlacedConversation(open_place(), one) as stalled:
        stalled.initialize()
        with PlacedConversation(open_place(), one, take_over=True) as other:
            other.load()
            other.append_message({"text": "behind"})
        ConversationLibrary(open_place()).delete(one)
        try:
            stalled.append_message({"text": "late"})
        except (ConversationNotFoundError, ConversationTakenOverError):
            return
        raise AssertionError(
            "a writer that stalled was told that its message is stored, in a conversation that was deleted"
        )


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
    _summarized,
    _later_summary,
    _labelled,
    _expunged,
    _keyed,
    _late,
)


def _opened(open_place: OpenPlace) -> tuple[Place, str]:
    return open_place(), str(uuid4())


def _slot(number: int, content: bytes) -> bytes:
    """An envelope as slots have one, with a hash of its own, and any bytes behind it."""
    return b'{"slot":%d,"hash":"%032x"}\n' % (number, number * 7919 + len(content)) + content


def _hash(data: bytes) -> bytes:
    return data.partition(b"\n")[0][-34:-2]


def _put_all(place: Place, id: str, data: Sequence[bytes]) -> None:
    previous = _ZEROS
    for number, slot in enumerate(data, 1):
        assert place.put(id, number, slot, previous) is True, f"slot {number} was not put"
        previous = _hash(slot)


def _slots(place: Place, id: str, after: int = 0) -> dict[int, bytes]:
    pieces = list(place.read(id, after))
    assert len({piece.first for piece in pieces}) == len(pieces), "a slot is read twice"
    return {piece.first: piece.data for piece in sorted(pieces)}


def _a_day() -> str:
    """The minute of a time that no other check uses: what is there already does not matter."""
    return f"{3000 + randrange(6000)}-{randrange(1, 13):02}-{randrange(1, 29):02}T{randrange(24):02}:{randrange(60):02}"


def _summary(id: str, at: str, *, slot: int = 1, labels: dict[str, str] | None = None) -> Summary:
    members = {"metadata": {"id": id, "labels": labels or {}, "title": "\u00e9 \0 \ud800"}, "seq": 7, "at": at}
    return Summary(id, at, slot, json.dumps(members, separators=(",", ":")).encode())


def _newest(place: Place, day: str, label: str | None = None) -> list[Summary]:
    """All summaries of a minute, by pages of two, in the order in which they come."""
    found: list[Summary] = []
    before = (f"{day}:59.999999Z", "f" * 8 + "-ffff-ffff-ffff-" + "f" * 12)
    while page := place.summaries(before=before, limit=2, label=label):
        assert len(page) <= 2
        found += page
        before = page[-1][1::-1]
        if page[-1].updated_at < day:
            break
    return [summary for summary in found if summary.updated_at.startswith(day)]


def _at_once(calls: Sequence[Callable[[], Any]]) -> None:
    errors: list[BaseException] = []

    def work(call: Callable[[], Any]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
