"""The contract of ``Backend``, as numbered checks. The docstring of a check is the rule that an error prints."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from random import randrange
from typing import Any
from uuid import uuid4

from transcript_store import ConversationExistsError, ConversationLibrary, ConversationNotFoundError
from transcript_store.backends import (
    Backend,
    BackendConversation,
    BackendError,
    ConversationTakenOverError,
    PackingBackend,
    SlotRange,
    StoredSummary,
)
from transcript_store.testing._arguments import require_function

__all__ = ["check_backend"]


# ---- backend case ----
# The values that the contract of ``Backend`` puts and reads: its slots and summaries, and their stored forms.

OpenPlace = Callable[[], Backend]

ZEROS = b"0" * 32


def backend_and_id(open_backend: OpenPlace) -> tuple[Backend, str]:
    """The backend, and the id of a conversation without slots."""
    return open_backend(), str(uuid4())


def slot_of(number: int, content: bytes) -> bytes:
    """A slot's envelope with a distinct hash, and any bytes after it."""
    return b'{"slot":%d,"hash":"%032x"}\n' % (number, number * 7919 + len(content)) + content


def sample_hash(data: bytes) -> bytes:
    return data.partition(b"\n")[0][-34:-2]


def put_all(backend: Backend, id: str, data: Sequence[bytes]) -> None:
    previous = ZEROS
    for number, slot in enumerate(data, 1):
        assert backend.put(id, number, slot, previous) is True, f"slot {number} was not put"
        previous = sample_hash(slot)


def slots_of(backend: Backend, id: str, after: int = 0) -> dict[int, bytes]:
    pieces = list(backend.read(id, after))
    assert len({piece.first for piece in pieces}) == len(pieces), "a slot is read twice"
    return {piece.first: piece.data for piece in sorted(pieces)}


def a_day() -> str:
    """The minute of a time that no other check uses, so existing summaries do not matter."""
    return f"{3000 + randrange(6000)}-{randrange(1, 13):02}-{randrange(1, 29):02}T{randrange(24):02}:{randrange(60):02}"


def sample_summary(id: str, at: str, *, slot: int = 1, labels: dict[str, str] | None = None) -> StoredSummary:
    members = {"metadata": {"id": id, "labels": labels or {}, "title": "\u00e9 \0 \ud800"}, "seq": 7, "at": at}
    return StoredSummary(id, at, slot, json.dumps(members, separators=(",", ":")).encode())


def newest_of(backend: Backend, day: str, label: str | None = None) -> list[StoredSummary]:
    """All summaries of a minute, or of all days if that is empty, by pages of two, in the order in which they come."""
    found: list[StoredSummary] = []
    before = (f"{day or '9999-12-31T23:59'}:59.999999Z", "f" * 8 + "-ffff-ffff-ffff-" + "f" * 12)
    while page := backend.summaries(before=before, limit=2, label=label):
        assert len(page) <= 2
        found += page
        before = page[-1][1::-1]
        if page[-1].updated_at < day:
            break
    return [summary for summary in found if summary.updated_at.startswith(day)]


def at_once(calls: Sequence[Callable[[], Any]]) -> None:
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


# ---- beside the slots ----
# The second part of the contract of ``Backend``: the values beside the slots, and the state after a deletion.


def summarized(open_backend: OpenPlace) -> None:
    """``summaries`` gives the newest first, by time and then by id, page by page, as they were put, also to another process."""
    backend, _ = backend_and_id(open_backend)
    day = a_day()
    ids = sorted(str(uuid4()) for _ in range(3))
    put = [sample_summary(ids[1], f"{day}:07.000001Z"), sample_summary(ids[0], f"{day}:07.000001Z")]
    put += [sample_summary(ids[2], f"{day}:07.000000Z"), sample_summary(str(uuid4()), f"{day}:06.999999Z")]
    put.insert(0, sample_summary(str(uuid4()), f"{day}:07.100000Z"))
    for summary in (put[2], put[0], put[4], put[1], put[3]):
        assert backend.put(summary.id, 1, slot_of(1, b""), ZEROS)
        backend.put_summary(summary)
    for opened in (backend, open_backend()):
        assert newest_of(opened, day) == put
        assert opened.summaries(before=(put[1].updated_at, put[1].id), limit=2) == put[2:4]


def later_summary(open_backend: OpenPlace) -> None:
    """A conversation without a summary is listed with an empty one. The summary of a later slot replaces the one before, and
    that of an earlier slot changes nothing.
    """
    backend, one = backend_and_id(open_backend)
    day = a_day()
    assert backend.put(one, 1, slot_of(1, b""), ZEROS)
    begun = [(each.slot, each.data) for each in newest_of(open_backend(), "") if each.id == one]
    assert begun == [(0, b"")], (
        "a writer that is killed before its first summary leaves a conversation that no listing shows"
    )
    texts = [(2, "1"), (9, "2"), (10, "3"), (9, "4"), (3, "5")]
    for slot, second in texts:
        open_backend().put_summary(sample_summary(one, f"{day}:0{second}.000000Z", slot=slot))
    assert newest_of(backend, day) == [sample_summary(one, f"{day}:03.000000Z", slot=10)]


def labelled(open_backend: OpenPlace) -> None:
    """``summaries(label=…)`` gives those that have it, by name or by name and value; or it says that it cannot, as ``BackendError``."""
    backend, _ = backend_and_id(open_backend)
    day = a_day()
    labels: list[dict[str, str]] = [{"team": "a=b", "x": ""}, {"team": "a"}, {"teams": "a=b"}, {}, {"x": "'\"%_\\"}]
    put = [sample_summary(str(uuid4()), f"{day}:0{9 - n}.000000Z", labels=each) for n, each in enumerate(labels)]
    for summary in put:
        assert backend.put(summary.id, 1, slot_of(1, b""), ZEROS)
        backend.put_summary(summary)
    try:
        backend.summaries(label="team", limit=1)
    except BackendError as error:
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
        assert newest_of(backend, day, label) == expected, label


def keyed(open_backend: OpenPlace) -> None:
    """A key takes the backend of the one that is meant, and of nothing else: also as another process does it, and of many exactly one."""
    backend, one = backend_and_id(open_backend)
    data = [b'{"key":%d,"\0\xff":"\r\n"}\n' % number for number in range(3)]
    assert backend.key(one) is None
    assert backend.put_key(one, data[1], data[0]) is False
    assert backend.put_key(one, data[0], None) is True
    for known in (None, data[1], data[0][:-1], b""):
        assert open_backend().put_key(one, data[2], known) is False
    assert open_backend().put_key(one, data[1], data[0]) is True
    assert backend.put_key(one, data[2], data[0]) is False
    assert [opened.key(one) for opened in (backend, open_backend())] == [data[1]] * 2
    assert backend.key(str(uuid4())) is None
    assert list(backend.read(one)) == [], "a key is no slot"
    backends, won = [open_backend() for _ in range(6)], list[bytes]()
    barrier = threading.Barrier(len(backends))

    def race(number: int) -> None:
        barrier.wait(30)
        if backends[number].put_key(one, b"of %d" % number, data[1]):
            won.append(b"of %d" % number)

    at_once([lambda number=number: race(number) for number in range(len(backends))])  # type: ignore[misc]
    assert won == [backend.key(one)], f"{len(won)} got True for putting the key"


def expunged(open_backend: OpenPlace) -> None:
    """``expunge`` leaves only the slot ``deleted``: every later call sees it, a late key too; no other conversation is
    changed.
    """
    one, other = str(uuid4()), str(uuid4())
    day = a_day()
    backend = open_backend()
    library = ConversationLibrary(open_backend())
    for each in (one, other):
        with library.create(id=each, messages=[{"text": "secret"}]) as begun:
            begun.append_messages([{"text": "more"}])
    stalled = ConversationLibrary(open_backend()).open(one, read_only=True)
    with BackendConversation(open_backend(), one) as begun:
        begun.load()
        begun.append_message({"text": "packed"})
        begun.pack(tidy=True)
    for each in (one, other):
        backend.put_summary(sample_summary(each, f"{day}:0{1 + (each == one)}.000000Z", slot=99))
        assert backend.put_key(each, b"a key", None)
    library.delete(one)
    last = max(piece.last for piece in backend.read(one))
    for opened in (backend, open_backend(), backend):
        opened.expunge(one, last)
        assert list(slots_of(opened, one)) == [last]
        assert not any(b"secret" in piece.data or b"packed" in piece.data for piece in opened.read(one))
        assert [summary.id for summary in newest_of(opened, day)] == [other]
        assert [opened.key(one), opened.key(other)] == [None, b"a key"]
        assert not any(opened.put_key(one, b"late", known) for known in (None, b"a key"))
    with stalled, BackendConversation(backend, one) as late:
        for call in (late.load, late.initialize, stalled.refresh):
            try:
                call()
            except (ConversationNotFoundError, ConversationExistsError):
                continue
            raise AssertionError(f"{call.__name__} does not report that the conversation was deleted")
    with ConversationLibrary(backend).open(other, read_only=True) as reader:
        assert [message["text"] for message in reader.get_messages()] == ["secret", "more"]


def late(open_backend: OpenPlace) -> None:
    """A late call on an expunged conversation changes nothing: no slot is put, a stalled writer gets False, no summary
    is listed.
    """
    backend = open_backend()
    day = a_day()
    data = [slot_of(number, b"%d" % number) for number in range(1, 6)]
    for has_summary in (True, False):
        one = str(uuid4())
        put_all(backend, one, data)
        if hasattr(backend, "put_pack"):
            backend.put_pack(one, 1, 3, b"".join(data[:3]))  # no slot is removed, so that each name is taken
        if has_summary:
            backend.put_summary(sample_summary(one, f"{day}:01.000000Z"))
        open_backend().expunge(one, len(data))
        for late in (backend, open_backend()):
            for number, previous in enumerate([ZEROS, *map(sample_hash, data[:-1])], 1):
                is_put = late.put(one, number, slot_of(number, b"late"), previous)
                assert is_put is False, f"slot {number} was put after the deletion"
            late.put_summary(sample_summary(one, f"{day}:02.000000Z", slot=99))
            assert slots_of(late, one) == {len(data): data[-1]}
            assert newest_of(late, day) == [], "a summary that came late is listed"
    one = str(uuid4())
    with BackendConversation(open_backend(), one) as stalled:
        stalled.initialize()
        with BackendConversation(open_backend(), one, take_over=True) as other:
            other.load()
            other.append_message({"text": "behind"})
        ConversationLibrary(open_backend()).delete(one)
        try:
            stalled.append_message({"text": "late"})
        except (ConversationNotFoundError, ConversationTakenOverError):
            return
        raise AssertionError("a stalled writer got True for a message in a deleted conversation")


# ---- backend contract ----


def check_backend(open_backend: OpenPlace) -> None:
    """Check a ``Backend`` against its contract. It returns None if the backend keeps it.

    Args:
        open_backend: opens the same backend again at each call, as another process would. Existing data does not matter:
            each check creates its own conversations, and does not delete them.

    Raises:
        AssertionError: a rule is broken. The message begins with the number of the rule, as in ``E3``.
    """
    require_function("open_backend", open_backend)
    for number, check in enumerate(CONTRACT, 1):
        try:
            check(open_backend)
        except Exception as error:
            raise AssertionError(f"E{number}, {(check.__doc__ or '').strip()} {error!r}") from error


def _nothing(open_backend: OpenPlace) -> None:
    """A conversation that was never written has no slots."""
    backend, one = backend_and_id(open_backend)
    assert list(backend.read(one)) == []
    assert list(backend.read(one, 7)) == []


def _whole(open_backend: OpenPlace) -> None:
    """A stored value is read byte for byte, by another process too."""
    backend, one = backend_and_id(open_backend)
    data = [slot_of(1, b"\0\xff\r\n\\ '\"%s;--"), slot_of(2, bytes(range(256)) * 4096), slot_of(3, b"")]
    put_all(backend, one, data)
    for opened in (backend, open_backend()):
        assert slots_of(opened, one) == dict(enumerate(data, 1))


def _once(open_backend: OpenPlace) -> None:
    """A slot is written once: a second put returns False and changes nothing, from any writer, also with the same bytes."""
    backend, one = backend_and_id(open_backend)
    first = slot_of(1, b"first")
    assert backend.put(one, 1, first, ZEROS) is True
    for opened in (backend, open_backend()):
        for data in (slot_of(1, b"second"), first, b""):
            assert opened.put(one, 1, data, ZEROS) is False
    assert slots_of(backend, one) == {1: first}


def _one_of_many(open_backend: OpenPlace) -> None:
    """If many put one slot at the same time, exactly one returns True, and its bytes are stored."""
    backends = [open_backend() for _ in range(6)]
    one = str(uuid4())
    previous, won = ZEROS, []
    for slot in range(1, 9):
        winners: list[bytes] = []
        barrier = threading.Barrier(len(backends))

        def race(
            number: int,
            slot: int = slot,
            previous: bytes = previous,
            winners: list[bytes] = winners,
            barrier: threading.Barrier = barrier,
        ) -> None:
            data = slot_of(slot, b"of %d" % number)
            barrier.wait(30)
            if backends[number].put(one, slot, data, previous):
                winners.append(data)

        at_once([lambda number=number: race(number) for number in range(len(backends))])  # type: ignore[misc]
        assert len(winners) == 1, f"{len(winners)} got True for putting slot {slot}"
        won += winners
        previous = sample_hash(winners[0])
    assert slots_of(backends[0], one) == dict(enumerate(won, 1))


def _behind(open_backend: OpenPlace) -> None:
    """``read`` gives the slots behind a number, by number and not by text, and all of them."""
    backend, one = backend_and_id(open_backend)
    data = [slot_of(number, b"%d" % number) for number in range(1, 13)]
    put_all(backend, one, data)
    for after in (0, 1, 8, 9, 10, 11, 12, 13):
        assert slots_of(backend, one, after) == {number: data[number - 1] for number in range(after + 1, 13)}


def _apart(open_backend: OpenPlace) -> None:
    """Conversations do not mix."""
    backend, one = backend_and_id(open_backend)
    other = str(uuid4())
    assert backend.put(one, 1, slot_of(1, b"one"), ZEROS)
    assert backend.put(other, 1, slot_of(1, b"other"), ZEROS)
    assert (slots_of(backend, one), slots_of(backend, other)) == ({1: slot_of(1, b"one")}, {1: slot_of(1, b"other")})


def _listed(open_backend: OpenPlace) -> None:
    """``conversations`` gives every id that has a slot, in the order of their text, page by page."""
    backend, _ = backend_and_id(open_backend)
    ids = sorted(str(uuid4()) for _ in range(5))
    for id in reversed(ids):  # noqa: A001
        assert backend.put(id, 1, slot_of(1, b""), ZEROS)
    after, found = "", list[str]()
    while page := backend.conversations(after=after, limit=2):
        assert len(page) <= 2
        found += page
        after = page[-1]
    assert found == sorted(set(found))
    assert set(ids) <= set(found)


def _prefix(open_backend: OpenPlace) -> None:
    """A reader beside a writer sees everything acknowledged before, and no hole."""
    backend, one = backend_and_id(open_backend)
    reader = open_backend()
    acknowledged = [0]
    done = threading.Event()

    def write() -> None:
        try:
            previous = ZEROS
            for number in range(1, 41):
                data = slot_of(number, b"x" * 500)
                assert backend.put(one, number, data, previous)
                acknowledged[0], previous = number, sample_hash(data)
        finally:
            done.set()

    def read() -> None:
        while not done.is_set():
            least = acknowledged[0]
            seen = sorted(slots_of(reader, one))
            assert seen == list(range(1, len(seen) + 1)), f"a hole in {seen}"
            assert len(seen) >= least, f"{least} were acknowledged, and {len(seen)} are seen"

    at_once([write, read])


def _looks_back(open_backend: OpenPlace) -> None:
    """A backend that looks at the slot before puts nothing after a gap, or after a slot other than the given one."""
    backend, one = backend_and_id(open_backend)
    first = slot_of(1, b"")
    assert backend.put(one, 1, first, ZEROS)
    if backend.put(one, 3, slot_of(3, b""), sample_hash(first)):
        return  # no backend has to look; then there is nothing more to see
    assert backend.put(one, 2, slot_of(2, b""), b"f" * 32) is False
    assert slots_of(backend, one) == {1: first}
    assert backend.put(one, 2, slot_of(2, b""), sample_hash(first)) is True


def _taken_over(open_backend: OpenPlace) -> None:
    """A fenced session gets an error, nothing of its call is stored, and everything acknowledged is stored in order."""
    one = str(uuid4())
    texts = []
    with (
        BackendConversation(open_backend(), one, holder="first", take_over=True) as first,
        BackendConversation(open_backend(), one, holder="second", take_over=True) as second,
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
                epoch_named = error.epoch
            else:
                raise AssertionError("a fenced session appended")
            assert epoch_named == other.epoch
    with ConversationLibrary(open_backend()).open(one, read_only=True) as reader:
        assert [message["text"] for message in reader.get_messages()] == texts


def _packed(open_backend: OpenPlace) -> None:
    """A backend that packs: a pack is put once, is reported as existing, and is read instead of removed slots."""
    backend, one = backend_and_id(open_backend)
    if not hasattr(backend, "put_pack"):
        return
    packing: PackingBackend = backend  # type: ignore[assignment]
    data = [slot_of(number, b"%d" % number) for number in range(1, 6)]
    put_all(backend, one, data)
    assert not packing.packs_from(one, 1)
    packing.put_pack(one, 1, 4, b"".join(data[:4]))
    packing.put_pack(one, 1, 4, b"something else")
    for opened in (packing, open_backend()):
        assert [opened.packs_from(one, slot) for slot in (1, 4, 5)] == [True, True, False]  # type: ignore[attr-defined]
    packing.delete_slots(one, [2, 3, 77])
    assert backend.put(one, 2, slot_of(2, b"late"), sample_hash(data[0])) is True
    packs = [piece for piece in open_backend().read(one) if piece.is_pack]
    assert packs == [SlotRange(1, 4, b"".join(data[:4]), is_pack=True)]
    assert max(piece.last for piece in backend.read(one, 4)) == 5


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
