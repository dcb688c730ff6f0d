"""A conversation on a backend: stored, taken over, found out about, read back verified.

The incident: two writers on one conversation. Of the stores that others have for S3 and PostgreSQL, one lost 100 of 200 messages, and none
told anybody. Here the second writer claims, and the first one is told by whom.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.backends.schedules import ID, World, texts
from transcript_store import (
    ConversationChangedError,
    ConversationExistsError,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationNotLoadedError,
    ConversationStore,
    CorruptTranscriptError,
    InvalidIdError,
    InvalidMessageError,
    ReadOnlyError,
    StorageError,
    UnsupportedVersionError,
    repair,
)
from transcript_store._log.record import close_line
from transcript_store.backends import BackendConversation, BackendError, ConversationTakenOverError
from transcript_store.testing import BackendRequest, Fate, SimulatedBackend, SimulatedObjectStore, SimulatedStop

BOTH = pytest.mark.parametrize("make_backend", [SimulatedBackend, SimulatedObjectStore])
MakeBackend = Callable[[], SimulatedBackend]


def message(text: str) -> dict[str, str]:
    return {"text": text}


class Begun:
    """Begins a conversation, in a world whose sessions are closed at the end of the test."""

    def __init__(self) -> None:
        self.worlds: list[World] = []

    def __call__(self, backend: SimulatedBackend, *written: str, **metadata: Any) -> tuple[World, BackendConversation]:
        world = World(backend)
        self.worlds.append(world)
        store = world.session("first")
        store.initialize(**metadata)
        for text in written:
            store.append_message(message(text))
        return world, store


@pytest.fixture
def begun() -> Iterator[Begun]:
    begin = Begun()
    yield begin
    for world in begin.worlds:
        world.close()


# ---- stored and read ---------------------------------------------------------------------------------------------------


@BOTH
def test_what_was_appended_is_there_for_another_host(begun: Begun, make_backend: MakeBackend):
    """R1, R2: messages, batches, events, metadata and a replace come back; a batch is one slot."""
    backend = make_backend()
    world, log = begun(backend, "one", provider="claude", labels={"a": "b"})
    stored = log.append_messages([message("two"), None, message("three")], extras=[None, {"n": 1}, {"usage": 5}])
    log.update_metadata(model="m-1")
    there = world.session("there")
    there.load()
    assert texts(there) == ["one", "two", "three"]
    assert [record.extra for record in there.iter_records()] == [None, None, {"n": 1}, {"usage": 5}]
    assert (there.head, there.record_count) == (stored[-1].head, stored[-1].seq) == (log.head, 4)
    metadata = there.get_metadata()
    assert (metadata.provider, metadata.model, metadata.labels) == ("claude", "m-1", {"a": "b"})
    there.replace_transcript([message("summary")])
    there.append_message(message("four"))
    reader = world.read()
    assert texts(reader) == ["summary", "four"]
    assert reader.get_metadata().generation == 1
    assert sum(name.startswith("s/") for name in backend.names(ID)) == 7


def lines_of(backend: SimulatedBackend) -> bytes:
    """The lines in the slots, joined."""
    names = sorted(backend.names(ID), key=lambda name: int(name[2:]))
    return b"".join(backend.object(ID, name).partition(b"\n")[2] for name in names)


def test_the_lines_are_those_of_a_folder(begun: Begun, tmp_path):
    """The lines in the slots are a transcript.jsonl, byte for byte: a folder that has nothing else is repaired to the whole conversation."""
    world, log = begun(SimulatedBackend(), "one", provider="claude")
    log.append_messages([message("two"), message("three")], extras=[{"n": 1}, None])
    folder = tmp_path / "conversation"
    folder.mkdir()
    (folder / "transcript.jsonl").write_bytes(lines_of(world.backend))
    assert repair(folder, dry_run=False).mode == "prefix"
    with ConversationStore(folder, read_only=True) as store:
        store.load()
        assert [(r.message, r.extra, r.at) for r in store.get_records()] == [
            (r.message, r.extra, r.at) for r in log.iter_records()
        ]
        assert store.get_metadata().id == ID
        assert store.get_metadata().provider == "claude"


@BOTH
def test_a_reader_sees_a_prefix_and_continues(begun: Begun, make_backend: MakeBackend):
    """R9: it needs no claim, and takes in what came since."""
    world, log = begun(make_backend(), "one")
    reader = world.read()
    assert reader.refresh() == (0, False)
    log.append_message(message("two"))
    log.append_message(message("three"))
    assert texts(reader) == ["one"]
    assert reader.refresh() == (2, False)
    assert texts(reader) == ["one", "two", "three"]
    with pytest.raises(ReadOnlyError):
        reader.append_message(message("no"))
    assert log.append_message(message("four")).seq == 4


def test_what_cannot_be_stored_writes_no_slot(begun: Begun):
    """A message that JSON does not carry, an empty batch, an ``if_head`` that does not fit."""
    backend = SimulatedBackend()
    world, log = begun(backend, "one")
    before = backend.names(ID)
    with pytest.raises(InvalidMessageError):
        log.append_messages([message("two"), {"x": object()}])
    with pytest.raises(ConversationChangedError):
        log.append_messages([message("two")], if_head="0" * 32)
    small = world.session("small", max_line_bytes=1024)
    assert log.append_messages([]) == ()
    assert backend.names(ID) == before
    small.load()
    with pytest.raises(InvalidMessageError, match="max_line_bytes"):
        small.append_message(message("x" * 1000))
    with pytest.raises(InvalidIdError):
        BackendConversation(backend, "../etc")
    with pytest.raises(TypeError, match="colour"):
        world.session("x").initialize(colour="red")  # type: ignore[call-arg]


def test_there_is_one_or_there_is_none(begun: Begun):
    """What is there is not created again; what is not there, or was deleted, is not loaded."""
    backend = SimulatedBackend()
    with pytest.raises(ConversationNotFoundError):
        World(backend).session("x").load()
    world, log = begun(backend)
    with pytest.raises(ConversationExistsError):
        world.session("x").initialize()
    assert backend.conversations() == [ID]
    log.close()
    world.library().delete(ID)
    x, reader = world.session("x"), world.session("x", read_only=True)
    for call in (x.load, x.initialize, reader.load, x.load_or_initialize, lambda: world.library().delete(ID)):
        with pytest.raises((ConversationNotFoundError, ConversationExistsError)):
            call()
    assert (x.exists(), backend.conversations(), world.library().list()) == (True, [ID], [])
    assert [piece.data.split(b'"kind":"')[1][:7] for piece in backend.read(ID)] == [b"deleted"]
    with pytest.raises(ConversationNotLoadedError):
        log.get_messages()


@BOTH
def test_an_expunged_conversation_is_deleted(begun: Begun, make_backend: MakeBackend):
    """Retention: only the slot ``deleted`` is left. Loads, creates, reads and writes get an error, even if it was
    interrupted in the middle.
    """
    backend = make_backend()
    world, writer = begun(backend, "one", "two")
    reader = world.read()
    other = world.session("other")
    other.load()
    other.close()
    last = 7
    cut_at: list[int] = []

    def cut_off(request: BackendRequest) -> Fate:
        cut_at.append(request.number) if request.call == "expunge" else None
        return Fate.KILLED_AFTER if len(cut_at) == (3 if make_backend is SimulatedObjectStore else 1) else Fate.DONE

    backend.on_request = cut_off
    with pytest.raises(SimulatedStop):
        world.library().delete(ID)
    backend.on_request = None
    x = world.session("x")
    for _ in range(2):
        for call in (x.load, x.initialize, reader.refresh, lambda: writer.append_message(message("three"))):
            with pytest.raises(ConversationNotFoundError, match="was deleted"):
                call()
        assert texts(reader) == ["one", "two"]  # what was read can be read
        with pytest.raises(ConversationNotFoundError, match="was deleted"):
            world.library().delete(ID)  # and what is left goes
        assert [piece.first for piece in backend.read(ID)] == [last]


@pytest.mark.parametrize(
    "last",
    [
        b"",
        b"no slot",
        b'{"slot":3,"epoch":1,"kind":"append","hash":"00000000000000000000000000000000"}\n',
        b'{"slot":9,"epoch":1,"kind":"deleted","hash":"00000000000000000000000000000000"}\n',
    ],
)
def test_only_the_slot_deleted_says_so(begun: Begun, last: bytes):
    """R7: a log whose beginning is gone, and which ends in anything else, is damaged."""
    backend = SimulatedBackend()
    world, _ = begun(backend, "one", "two")
    backend.set_object(ID, "s/1", None)
    backend.set_object(ID, "s/3", last)
    with pytest.raises(CorruptTranscriptError) as told:
        world.session("x").load()
    assert told.value.kind == "missing"


# ---- taken over --------------------------------------------------------------------------------------------------------


@BOTH
def test_a_deposed_writer_is_told_by_whom(begun: Begun, make_backend: MakeBackend):
    """R3, R4: nothing of its call is stored, each later call says the same, and it can still read. A claim counts up the epoch."""
    world, log = begun(make_backend(), "one")
    second = world.session("second")
    second.load()
    assert (log.epoch, second.epoch) == (1, 2)
    for _ in range(2):
        with pytest.raises(ConversationTakenOverError) as told:
            log.append_message(message("lost?"))
        assert told.value.holder["name"] == "second"
        assert (told.value.epoch, told.value.holder_pid) == (2, world.machine.process_id())
        assert isinstance(told.value, ConversationLockedError)
        assert pickle.loads(pickle.dumps(told.value)).holder == told.value.holder
    assert texts(log) == ["one"]
    second.append_message(message("two"))
    log.load()
    assert texts(log) == ["one", "two"]
    assert log.append_message(message("three")).seq == 3


def test_an_active_writer_is_not_taken_over_by_default(begun: Begun):
    """Without ``take_over`` a writer that neither released nor was idle for a minute keeps the conversation."""
    world, log = begun(SimulatedBackend(), "one")
    with pytest.raises(ConversationLockedError) as told:
        world.session("second", take_over="released").load()
    assert told.value.holder_pid == world.machine.process_id()
    log.append_message(message("two"))
    log.close()
    second = world.session("second", take_over="released")
    second.load()
    assert texts(second) == ["one", "two"]
    log.close()  # it is not ours any more: nothing happens
    second.append_message(message("three"))
    world.machine.wait(61)
    later = world.session("later", take_over="released")
    later.load()
    with pytest.raises(ConversationTakenOverError):
        second.append_message(message("four"))


# ---- answers that are lost ---------------------------------------------------------------------------------------------


class Fates:
    """What becomes of the next puts."""

    def __init__(self, backend: SimulatedBackend, *fates: Fate, reads: Fate = Fate.DONE) -> None:
        self.fates, self.reads = list(fates), reads
        backend.on_request = self

    def __call__(self, request: BackendRequest) -> Fate:
        if request.call == "put":
            return self.fates.pop(0) if self.fates else Fate.DONE
        return self.reads


@BOTH
@pytest.mark.parametrize("fate", [Fate.LOST, Fate.REFUSED, Fate.LATE, Fate.TWICE])
def test_an_answer_that_is_lost_changes_nothing(begun: Begun, make_backend: MakeBackend, fate: Fate):
    """R5, R6: the message is stored once, in its place, whatever happened to the first attempt."""
    backend = make_backend()
    world, log = begun(backend, "one")
    Fates(backend, fate)
    stored = log.append_message(message("two"))
    log.append_message(message("three"))
    while backend.late:
        backend.land()
    log.append_message(message("four"))
    assert stored.seq == 2
    reader = world.read()
    assert texts(reader) == ["one", "two", "three", "four"]


@BOTH
@pytest.mark.parametrize("fate", [Fate.LOST, Fate.LATE, Fate.REFUSED])
def test_an_unknown_outcome_says_so_and_the_next_call_knows(begun: Begun, make_backend: MakeBackend, fate: Fate):
    """R6: no answer until the retries end. A message stored by then comes before the next one, and is not repeated."""
    backend = make_backend()
    world, log = begun(backend, "one")
    Fates(backend, fate, Fate.REFUSED, reads=Fate.REFUSED)
    with pytest.raises(BackendError) as told:
        log.append_message(message("two"))
    assert isinstance(told.value, StorageError)
    assert (told.value.outcome, log.outcome(told.value)) == ("unknown", None)
    assert "the next call finds out" in str(told.value)
    assert pickle.loads(pickle.dumps(told.value)).slot_hash == told.value.slot_hash
    backend.on_request = None
    while backend.late:
        backend.land()
    log.append_message(message("three"))
    stored = fate is not Fate.REFUSED
    assert log.outcome(told.value) is stored
    assert texts(log) == (["one", "two", "three"] if stored else ["one", "three"])
    reader = world.read()
    assert texts(reader) == texts(log)


def test_a_call_that_is_interrupted_is_an_unknown_outcome(begun: Begun):
    """D2: Ctrl-C in the middle of a put. The next call looks, and what was stored is taken in."""
    backend = SimulatedBackend()
    _, log = begun(backend, "one")
    put = backend.put

    def interrupted(*arguments: object) -> bool:
        put(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    backend.put = interrupted  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        log.append_message(message("two"))
    backend.put = put  # type: ignore[method-assign]
    log.append_message(message("three"))
    assert texts(log) == ["one", "two", "three"]


def refusal() -> BackendError:
    return BackendError(path="db", doing="put a slot", reason="the table is gone", outcome="not stored")


@pytest.mark.parametrize("call", ["put", "read"])
def test_what_is_refused_for_good(begun: Begun, call: str):
    """R6: refused at once, nothing is stored, and it says so. Refused after an answer that was lost, the outcome is unknown, and the next call knows."""
    backend = SimulatedBackend()
    _, log = begun(backend, "one")
    requests: list[str] = []

    def on_request(request: BackendRequest) -> Fate:
        requests.append(request.call)
        if requests == ["put"] and call == "read":
            return Fate.LOST
        raise refusal()

    backend.on_request = on_request
    with pytest.raises(BackendError, match="the table is gone") as told:
        log.append_message(message("two"))
    assert told.value.outcome == ("not stored" if call == "put" else "unknown")
    assert requests == ["put", "read"][: 1 + (call == "read")]
    backend.on_request = None
    log.append_message(message("three"))
    assert texts(log) == (["one", "three"] if call == "put" else ["one", "two", "three"])
    assert log.outcome(told.value) is (None if call == "put" else True)


def test_a_later_refusal_says_nothing_of_the_first_attempt(begun: Begun):
    """R6: the answer was lost, then the backend refuses for good. The outcome is unknown."""
    backend = SimulatedBackend()
    _, log = begun(backend, "one")
    puts: list[int] = []

    def on_request(request: BackendRequest) -> Fate:
        if request.call == "read":
            return Fate.REFUSED
        puts.append(request.number)
        if len(puts) == 2:
            raise refusal()
        return Fate.LOST

    backend.on_request = on_request
    with pytest.raises(BackendError) as told:
        log.append_message(message("two"))
    assert told.value.outcome == "unknown"
    backend.on_request = None
    log.refresh()
    assert log.outcome(told.value) is True


def test_a_load_without_an_answer_stores_nothing(begun: Begun):
    """The error says that nothing was stored, and names only the backend."""
    backend = SimulatedBackend(name="db")
    world, _ = begun(backend)
    backend.on_request = lambda request: Fate.REFUSED
    with pytest.raises(BackendError) as told:
        world.session("x").load()
    assert (told.value.outcome, told.value.path) == ("not stored", f"db/{ID}")


# ---- a backend that lost, or changed, what it had ---------------------------------------------------------------------


@BOTH
def test_a_writer_that_remembers_refuses_a_backend_that_forgot(begun: Begun, make_backend: MakeBackend):
    """R8: the last slots are gone (a restored backup). Nothing is written behind the hole."""
    backend = make_backend()
    world, log = begun(backend, "one", "two")
    backend.set_object(ID, "s/3", None)
    reader = world.read()
    if make_backend is SimulatedBackend:
        with pytest.raises(CorruptTranscriptError) as told:
            log.append_message(message("three"))
        assert told.value.kind == "truncated"
        assert backend.names(ID) == ["s/1", "s/2"]
    else:  # at the next load: no object store can look at another slot while it puts one
        log.append_message(message("three"))
        with pytest.raises(CorruptTranscriptError) as told:
            reader.load()
        assert told.value.kind == "missing"


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
def test_any_changed_byte_is_detected(begun: Begun, step: int):
    """R7: every byte of every slot, flipped in two ways; and a slot that is cut, grown, moved, of another conversation, or in the middle and gone."""
    backend = SimulatedBackend()
    world, log = begun(backend, "one", provider="claude")
    log.append_messages([message("two"), message("three")])
    log.update_metadata(model="m")
    log.replace_transcript([message("four")])
    other = world.library().create(id=ID[:-1] + "f")
    other.append_message(message("foreign"))
    other.close()
    whole = {name: backend.object(ID, name) for name in backend.names(ID)}

    def refused() -> None:
        with pytest.raises((CorruptTranscriptError, UnsupportedVersionError)):
            world.session("reader", read_only=True).load()

    for name, data in whole.items():
        for index in range(0, len(data), step):
            flipped = bytearray(data)
            flipped[index] ^= 0x01
            backend.set_object(ID, name, bytes(flipped))
            refused()
        for changed in (
            data[:-1],
            data + b" ",
            data + data,
            b"",
            backend.object(ID[:-1] + "f", "s/2"),
            whole["s/1"][:50],
        ):
            backend.set_object(ID, name, changed)
            refused()
        backend.set_object(ID, name, data)
    backend.set_object(ID, "s/3", None)
    refused()
    backend.set_object(ID, "s/3", whole["s/4"])
    refused()
    for number in (1, 2):
        backend.set_object(ID, f"s/{number}", backend.object(ID[:-1] + "f", f"s/{number}"))
    for number in (3, 4, 5):
        backend.set_object(ID, f"s/{number}", None)
    with pytest.raises(CorruptTranscriptError) as told:
        world.session("reader", read_only=True).load()
    assert told.value.kind == "wrong-conversation"


def test_a_slot_of_a_later_version_is_not_read(begun: Begun):
    """A kind that this version does not know, whole: upgrade. Nothing is guessed, and nothing written behind it."""
    backend = SimulatedBackend()
    world, log = begun(backend, "one")
    last = backend.object(ID, "s/2").split(b"\n")[0]
    members = {**json.loads(last), "slot": 3, "kind": "merge", "bytes": 0}
    del members["hash"]
    data, _ = close_line(last[-34:-2], json.dumps(members, separators=(",", ":")).encode()[:-1])
    backend.set_object(ID, "s/3", data)
    with pytest.raises(UnsupportedVersionError, match="merge"):
        world.session("x").load()
    with pytest.raises(UnsupportedVersionError):
        log.append_message(message("two"))


def test_what_was_loaded_before_a_fork_is_the_parents(begun: Begun):
    """Two processes with one claim could not be told apart; the child is refused at once, and does not hang."""
    world, _ = begun(SimulatedBackend(), "one")
    log = BackendConversation(world.backend, ID, take_over=True)
    log.load()
    child = os.fork()
    if child == 0:
        try:
            log.append_message(message("of the child"))
        except ConversationNotLoadedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    log.append_message(message("two"))
    assert texts(log) == ["one", "two"]
    log.close()


# ---- packs -------------------------------------------------------------------------------------------------------------


def test_packed_slots_are_read_from_their_packs(begun: Begun):
    """Slots that a pack holds may go, except those that begin an epoch and the last one of each: those are the fences (D5)."""
    backend = SimulatedObjectStore()
    world, log = begun(backend, "one", "two")
    second = world.session("second")
    second.load()
    for text in ("three", "four", "five"):
        second.append_message(message(text))
    assert second.pack(tidy=True) == 7
    assert backend.names(ID) == ["p/1-7", "s/1", "s/3", "s/4", "s/7"]
    second.append_message(message("six"))
    assert second.pack() == 0
    with pytest.raises(ConversationTakenOverError):
        log.append_message(message("late"))
    third = world.session("third")
    third.load()
    third.append_message(message("seven"))
    assert third.pack() == 3
    assert backend.names(ID) == ["p/1-7", "p/8-10", "s/1", "s/10", "s/3", "s/4", "s/7", "s/8", "s/9"]
    reader = world.read()
    assert texts(reader) == ["one", "two", "three", "four", "five", "six", "seven"]


def test_slots_are_packed_by_the_way(begun: Begun):
    """D7: each so many, and at a close if they are a 32nd of that. A session takes along what the one before left unpacked."""
    backend = SimulatedObjectStore()
    world, _ = begun(backend)
    log = world.session("second", pack_each=64)
    log.load()
    log.close()
    assert backend.names(ID) == ["p/1-3", "s/1", "s/2", "s/3"]
    log.load()
    for number in range(70):
        log.append_message(message(str(number)))
    assert [name for name in backend.names(ID) if name[0] == "p"] == ["p/1-3", "p/4-67"]
    asked: list[str] = []
    backend.on_request = lambda request: asked.append(request.name)
    log.append_message(message("70"))
    assert asked == ["s/75"]
    log.close()
    assert [name for name in asked if name[0] in "sp"] == ["s/75", "s/76", "p/68-76"]
    backend.on_request = None
    untouched = world.session("third", pack_each=0)
    for _ in range(40):
        untouched.load()
        untouched.close()
    assert [name for name in backend.names(ID) if name[0] == "p"] == ["p/1-3", "p/4-67", "p/68-76"]
    assert texts(world.read()) == [str(number) for number in range(71)]


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.LOST, Fate.LATE])
def test_a_pack_that_fails_is_no_error_of_a_write(begun: Begun, fate: Fate, monkeypatch):
    """D7: the append has returned, nothing waits for the backend, and the next pack has the same slots."""
    backend = SimulatedObjectStore()
    world, _ = begun(backend)
    monkeypatch.setattr(world.machine, "wait", lambda seconds: pytest.fail("it waits"))
    log = world.session("second", pack_each=4)
    log.load()
    backend.on_request = lambda request: fate if request.call == "put_pack" else None
    for number in range(4):
        log.append_message(message(str(number)))
    backend.on_request = None
    for number in range(4, 6):
        log.append_message(message(str(number)))
    while backend.late:
        backend.land()
    assert "p/1-8" in backend.names(ID)
    assert texts(world.read()) == [str(number) for number in range(6)]


def test_a_damaged_pack_is_refused(begun: Begun):
    """R7: a changed byte in a pack is found as one in a slot is."""
    backend = SimulatedObjectStore()
    world, log = begun(backend, "one", "two")
    log.pack(tidy=True)
    data = backend.object(ID, "p/1-3")
    for index in range(0, len(data), 5):
        backend.set_object(ID, "p/1-3", data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :])
        with pytest.raises(CorruptTranscriptError):
            world.session("reader", read_only=True).load()
