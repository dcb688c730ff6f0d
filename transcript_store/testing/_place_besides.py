"""The second part of the contract of ``Place``: what stands beside the slots, and what is left when all of it is deleted."""

from __future__ import annotations

import threading
from uuid import uuid4

from transcript_store import ConversationExistsError, ConversationLibrary, ConversationNotFoundError
from transcript_store.places import ConversationTakenOverError, PlacedConversation, PlaceError
from transcript_store.testing._place_case import (
    ZEROS,
    OpenPlace,
    a_day,
    at_once,
    hash_of,
    newest_of,
    place_and_id,
    put_all,
    slot_of,
    slots_of,
    summary_of,
)


def summarized(open_place: OpenPlace) -> None:
    """``summaries`` gives the newest first, by time and then by id, page by page, as they were put, also to another process."""
    place, _ = place_and_id(open_place)
    day = a_day()
    ids = sorted(str(uuid4()) for _ in range(3))
    put = [summary_of(ids[1], f"{day}:07.000001Z"), summary_of(ids[0], f"{day}:07.000001Z")]
    put += [summary_of(ids[2], f"{day}:07.000000Z"), summary_of(str(uuid4()), f"{day}:06.999999Z")]
    put.insert(0, summary_of(str(uuid4()), f"{day}:07.100000Z"))
    for summary in (put[2], put[0], put[4], put[1], put[3]):
        assert place.put(summary.id, 1, slot_of(1, b""), ZEROS)
        place.put_summary(summary)
    for opened in (place, open_place()):
        assert newest_of(opened, day) == put
        assert opened.summaries(before=(put[1].updated_at, put[1].id), limit=2) == put[2:4]


def later_summary(open_place: OpenPlace) -> None:
    """The summary of a later slot takes the place of the one before, and of an earlier slot it changes nothing."""
    place, one = place_and_id(open_place)
    day = a_day()
    assert place.put(one, 1, slot_of(1, b""), ZEROS)
    texts = [(2, "1"), (9, "2"), (10, "3"), (9, "4"), (3, "5")]
    for slot, second in texts:
        open_place().put_summary(summary_of(one, f"{day}:0{second}.000000Z", slot=slot))
    assert newest_of(place, day) == [summary_of(one, f"{day}:03.000000Z", slot=10)]


def labelled(open_place: OpenPlace) -> None:
    """``summaries(label=…)`` gives those that have it, by name or by name and value; or it says that it cannot, as ``PlaceError``."""
    place, _ = place_and_id(open_place)
    day = a_day()
    labels: list[dict[str, str]] = [{"team": "a=b", "x": ""}, {"team": "a"}, {"teams": "a=b"}, {}, {"x": "'\"%_\\"}]
    put = [summary_of(str(uuid4()), f"{day}:0{9 - n}.000000Z", labels=each) for n, each in enumerate(labels)]
    for summary in put:
        assert place.put(summary.id, 1, slot_of(1, b""), ZEROS)
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
        assert newest_of(place, day, label) == expected, label


def keyed(open_place: OpenPlace) -> None:
    """A key takes the place of the one that is meant, and of nothing else: also as another process does it, and of many exactly one."""
    place, one = place_and_id(open_place)
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

    at_once([lambda number=number: race(number) for number in range(len(places))])  # type: ignore[misc]
    assert won == [place.key(one)], f"{len(won)} were told that they put the key"


def expunged(open_place: OpenPlace) -> None:
    """``expunge`` leaves nothing but the slot ``deleted``: whoever comes is told, a key that comes late too; no other one is touched."""
    one, other = str(uuid4()), str(uuid4())
    day = a_day()
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
        place.put_summary(summary_of(each, f"{day}:0{1 + (each == one)}.000000Z", slot=99))
        assert place.put_key(each, b"a key", None)
    library.delete(one)
    last = max(piece.last for piece in place.read(one))
    for opened in (place, open_place(), place):
        opened.expunge(one, last)
        assert list(slots_of(opened, one)) == [last]
        assert not any(b"secret" in piece.data or b"packed" in piece.data for piece in opened.read(one))
        assert [summary.id for summary in newest_of(opened, day)] == [other]
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


def late(open_place: OpenPlace) -> None:
    """What comes late to what was expunged changes nothing: no slot is put, a writer that stalled is told, no summary is in a list."""
    place = open_place()
    day = a_day()
    data = [slot_of(number, b"%d" % number) for number in range(1, 6)]
    for has_summary in (True, False):
        one = str(uuid4())
        put_all(place, one, data)
        if hasattr(place, "put_pack"):
            place.put_pack(one, 1, 3, b"".join(data[:3]))  # no slot is removed, so that each name is taken
        if has_summary:
            place.put_summary(summary_of(one, f"{day}:01.000000Z"))
        open_place().expunge(one, len(data))
        for late in (place, open_place()):
            for number, previous in enumerate([ZEROS, *map(hash_of, data[:-1])], 1):
                is_put = late.put(one, number, slot_of(number, b"late"), previous)
                assert is_put is False, f"slot {number} was put behind the deletion"
            late.put_summary(summary_of(one, f"{day}:02.000000Z", slot=99))
            assert slots_of(late, one) == {len(data): data[-1]}
            assert newest_of(late, day) == [], "a summary that came late is listed"
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
