"""Sealed conversations on a backend: what it and who runs it see of them, what can be done unseen, and their keys.

A backend often runs on another party's machine. So these tests search everything that reaches it; everything that can be done to
slots without the key is done, and each request of each operation is lost, late, repeated, or the last thing that its process did.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.backends.sealed import ID, OTHER_ID, create, library_on, lived, read
from tests.kit.cases import for_each
from tests.sealed.conversations import CANARY, KEY, MESSAGES, OTHER_KEY
from transcript_store import (
    ConversationExistsError,
    ConversationLibrary,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationShreddedError,
    CorruptKeyFileError,
    CorruptMetadataError,
    CorruptTranscriptError,
    KeyNeededError,
    KeyProviderError,
    NotSealedError,
    TranscriptStoreError,
    WrongKeyError,
)
from transcript_store._conversation.metadata import Sealing
from transcript_store._log.record import GENESIS, close_line
from transcript_store._sealing.keys import decode_key_file
from transcript_store.backends import (
    BackendConversation,
    BackendError,
    ConversationTakenOverError,
    StoredSummary,
    UnsupportedByBackendError,
)
from transcript_store.backends._keys import KeyCell
from transcript_store.backends._storage import MirroredLog
from transcript_store.testing import (
    BackendRequest,
    Fate,
    SimulatedBackend,
    SimulatedFileSystem,
    SimulatedObjectStore,
    SimulatedStop,
)

# ---- what reaches the backend -------------------------------------------------------------------------------------------


class Watched(SimulatedObjectStore):
    """Keeps all bytes that it is ever given, also those that it does not store."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[bytes] = []

    def put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        self.given.append(data)
        return super().put(id, slot, data, previous)

    def put_pack(self, id: str, first: int, last: int, data: bytes) -> None:
        self.given.append(data)
        super().put_pack(id, first, last, data)

    def put_summary(self, summary: StoredSummary) -> None:
        self.given.append(repr(summary).encode())
        super().put_summary(summary)

    def put_key(self, id: str, data: bytes, known: bytes | None) -> bool:
        self.given += [data, known or b""]
        return super().put_key(id, data, known)


def test_nothing_of_the_content_reaches_the_backend():
    """P17: not in a slot, a pack, a summary or the key, whatever is done; nor does a key reach it, the data key least of all."""
    backend = Watched()
    library = library_on(backend)
    lived(library)
    with library.open(ID) as store:
        assert isinstance(store, BackendConversation)
        store.pack()
        store.replace_transcript([{"content": f"{CANARY} anew"}], system_prompt=f"{CANARY} third")
    fork = library.fork(ID)
    library_on(backend, OTHER_KEY, KEY).rotate_key()
    assert read(library_on(backend, OTHER_KEY), fork) == [{"content": f"{CANARY} anew"}]
    wrapped = decode_key_file(backend.key(ID) or b"", "", ID)
    assert wrapped.key_id.startswith("aes-256-gcm:")
    library_on(backend, OTHER_KEY).shred(ID)
    library.delete(ID)
    assert len(backend.given) > 20
    for data in backend.given:
        assert CANARY.encode() not in data
        assert KEY not in data
        assert OTHER_KEY not in data


def test_a_list_needs_no_key_and_shows_no_title(backend: SimulatedBackend):
    """A list needs no key, says ``sealed``, and has neither a title nor a label; counts, times, provider and model are in sight."""
    library = library_on(backend)
    lived(library)
    for other in (library, library_on(backend, None)):
        (summary,) = other.list()
        assert (summary.sealed, summary.title, summary.labels) == (True, None, None)
        assert (summary.id, summary.provider, summary.model, summary.record_count) == (ID, "claude", "m-1", 4)
        assert summary.generation == 1


# ---- as in a folder -----------------------------------------------------------------------------------------------------


def test_a_sealed_conversation_lives_as_a_plain_one_does(backend: SimulatedBackend):
    """Created, opened, appended to, replaced, read along, taken in turns, by several processes: each as its own library has it."""
    lived(library_on(backend))
    library = library_on(backend)
    with library.open(ID) as store, library.open(ID, read_only=True) as reader:
        assert store.get_messages() == [*MESSAGES[:3], {"role": "user", "content": f"{CANARY} behind"}]
        assert store.get_metadata().labels == {"title": f"{CANARY} another title"}
        assert store.get_records(generation=0)[2].extra == {"usage": CANARY}
        store.append_message({"content": f"{CANARY} last"})
        assert reader.refresh().records_added == 1
        store.update_metadata(model="m-2")
        reader.refresh()
        assert reader.get_metadata().model == "m-2"
        store.replace_transcript([{"content": "less"}])
        assert reader.refresh().started_over
        assert reader.get_messages() == [{"content": "less"}]
    with library.open(ID, hold_lock=False) as one, library_on(backend).open(ID, hold_lock=False) as two:
        for n in range(3):
            one.append_message({"content": f"one {n}"})
            two.append_message({"content": f"two {n}"})
        two.update_metadata(model="m-3")
        assert one.get_metadata().model == "m-3"
        assert [m["content"] for m in one.get_messages()] == [
            "less",
            *(f"{w} {n}" for n in range(3) for w in ("one", "two")),
        ]
        two.replace_transcript([])
        assert one.get_messages() == []
    assert library.verify(ID).is_intact


def test_without_the_key(backend: SimulatedBackend):
    """It can be verified, listed, loaded and deleted, as in a folder; nothing of it is read or written."""
    lived(library_on(backend))
    plain = library_on(backend, None)
    found = plain.verify(ID)
    assert (found.is_intact, found.records) == (True, 4)
    before = backend.names(ID)
    with plain.open(ID, read_only=True) as store:
        assert store.record_count == 4
        for call in (store.get_messages, store.get_records):
            with pytest.raises(KeyNeededError) as told:
                call()
            assert CANARY not in str(told.value)
    with plain.open(ID) as store:
        with pytest.raises(KeyNeededError):
            store.append_message({"content": "plain"})
        with pytest.raises(KeyNeededError):
            store.replace_transcript([])
    with plain.open(ID):
        pass
    assert backend.names(ID) != before
    assert (
        len(read(library_on(backend))) == 4
    )  # and that somebody without the key claimed it and let go changes nothing
    with pytest.raises(KeyNeededError):
        plain.fork(ID)
    plain.delete(ID)
    with pytest.raises(ConversationNotFoundError):
        library_on(backend).open(ID)
    assert backend.key(ID) is None


def test_between_a_backend_and_a_folder(backend: SimulatedBackend):
    """A fork is sealed again with its own data key, in both directions; ``fork_from`` of a plain one makes a sealed one."""
    files = SimulatedFileSystem()
    lived(library := library_on(backend))
    folder = ConversationLibrary("/library", encryption_key=OTHER_KEY, file_system=files)
    there = library.fork(ID, into=folder)
    with folder.open(there) as store:
        assert store.get_messages() == read(library)
    back = folder.fork(there, into=library)
    assert read(library, back) == read(library)
    assert all(CANARY.encode() not in (content or b"") for content in files.tree().values())
    with ConversationLibrary("/plain", file_system=files).create(messages=MESSAGES) as plain:
        path = plain.directory
    with pytest.raises(NotSealedError):
        ConversationLibrary(backend, encryption_key=KEY, file_system=files).fork_from(path)
    with library_on(backend, None).create(id=OTHER_ID, messages=MESSAGES) as plain:
        with pytest.raises(UnsupportedByBackendError) as told:
            plain.seal()
        assert told.value.hint is not None
    with pytest.raises(NotSealedError):
        library.open(OTHER_ID)


def test_unseal(backend: SimulatedBackend):
    """``unseal()`` begins a plain generation; the sealed one before it stays as it is, and a key is refused from then on."""
    lived(library := library_on(backend))
    expected = read(library)
    with library.open(ID) as store:
        store.unseal()
    with pytest.raises(NotSealedError):
        library.open(ID)
    with library_on(backend, None).open(ID) as store:
        assert store.get_messages() == expected
        store.append_message({"content": "plain"})
    assert library_on(backend, None).verify(ID).is_intact


# ---- who lacks the key, and changes what is there -----------------------------------------------------------------------


def slots(backend: SimulatedBackend, id: str = ID) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each slot as its envelope and its lines."""
    names = sorted(backend.names(id), key=lambda name: int(name[2:]))
    split = [backend.object(id, name).splitlines() for name in names]
    return [(json.loads(envelope), [json.loads(line) for line in lines]) for envelope, *lines in split]


def write(backend: SimulatedBackend, changed: list[tuple[dict[str, Any], list[dict[str, Any]]]], id: str = ID) -> None:
    """Slots with all hashes, lengths and positions computed again, which needs no key."""
    for name in backend.names(id):
        backend.set_object(id, name, None)
    chain, head, seq, offset = GENESIS, GENESIS, 0, 0
    for number, (envelope, lines) in enumerate(changed, 1):
        if envelope["kind"] == "generation":
            head, seq, offset = GENESIS, -1, 0
        data = b""
        for line in lines:
            whole, head = close_line(head, compact(line))
            data, seq, offset = data + whole, seq + 1, offset + len(whole)
        members = {**envelope, "slot": number, "seq": seq, "offset": offset, "head": head.decode(), "bytes": len(data)}
        closed, chain = close_line(chain, compact(members))
        backend.set_object(id, f"s/{number}", closed + data)


def compact(members: dict[str, Any]) -> bytes:
    members = {name: value for name, value in members.items() if name != "hash"}
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode()[:-1]


def of_kind(found: list[Any], kind: str) -> list[Any]:
    return [slot for slot in found if slot[0]["kind"] == kind]


def change_a_byte(found):
    line = of_kind(found, "append")[0][1][0]
    line["sealed"] = line["sealed"][:30] + ("A" if line["sealed"][30] != "A" else "B") + line["sealed"][31:]


def swap_two_lines(found):
    one, two = found[0][1][1], found[0][1][2]
    one["sealed"], two["sealed"] = two["sealed"], one["sealed"]


def swap_two_slots(found):
    one, two = of_kind(found, "append")[:2]
    one[1][0]["sealed"], two[1][0]["sealed"] = two[1][0]["sealed"], one[1][0]["sealed"]


def change_a_time(found):
    of_kind(found, "append")[-1][1][0]["at"] = "2031-01-01T00:00:00.000000Z"


def append_plain(found):
    last = found[-2][1][0]
    line = {"seq": last["seq"] + 1, "at": last["at"], "message": {"role": "user", "content": "forged"}}
    found.insert(-1, ({"slot": 0, "epoch": 1, "kind": "append", "at": found[-2][0]["at"]}, [line]))


def replay_one(found):
    last = found[-2][1][0]
    again = {**last, "seq": last["seq"] + 1}
    found.insert(-1, ({**found[-2][0]}, [again]))


def take_the_last_append_away(found):
    del found[-2]


def take_the_check_of_the_release_away_with_the_last_append(found):
    del found[-1][0]["check"], found[-2]


def change_the_provider(found):
    of_kind(found, "generation")[-1][1][0]["metadata"]["provider"] = "openai"


def change_the_metadata(found):
    del found[-3:]
    of_kind(found, "metadata")[-1][0]["metadata"]["provider"] = "openai"


def put_in_a_plain_prompt(found):
    metadata = {**found[-3][1][0]["metadata"], "system_prompt": "forged"}
    found.append(({"slot": 0, "epoch": 1, "kind": "metadata", "at": found[-1][0]["at"], "metadata": metadata}, []))


def strip_the_check_of_a_generation(found):
    del of_kind(found, "generation")[-1][1][0]["check"]


def strip_the_check_of_the_metadata(found):
    del found[-3:]
    del found[-1][0]["check"]


def begin_a_plain_generation(found):
    """A downgrade: an unsealed generation after the sealed ones."""
    header = {**found[0][1][0], "generation": 2}
    for name in ("requires", "check", "begins_with"):
        header.pop(name, None)
    header["metadata"] = {
        name: value for name, value in header["metadata"].items() if name not in ("requires", "sealed")
    }
    header["metadata"] |= {"generation": 2, "labels": {}}
    found.append(({"slot": 0, "epoch": 1, "kind": "generation", "at": found[-1][0]["at"]}, [header]))


def write_the_first_generation_anew(found):
    of_kind(found, "append")[0][1][0]["at"] = "2000-01-01T00:00:00.000000Z"


def put_a_line_of_another_there(found):
    backend = SimulatedBackend()
    lived(library_on(backend), OTHER_ID)
    found[0][1][1]["sealed"] = slots(backend, OTHER_ID)[0][1][1]["sealed"]


ATTACKS: dict[Callable[[Any], None], str | type[Exception]] = {
    change_a_byte: "rewritten",
    swap_two_lines: "rewritten",
    swap_two_slots: "rewritten",
    change_a_time: "not-genuine",
    append_plain: "not-genuine",
    replay_one: "not-genuine",
    take_the_last_append_away: "not-genuine",
    change_the_provider: "not-genuine",
    change_the_metadata: "not-genuine",
    put_in_a_plain_prompt: "unkeyed-repair",
    strip_the_check_of_a_generation: "not-genuine",
    strip_the_check_of_the_metadata: "unkeyed-repair",
    begin_a_plain_generation: "NotSealedError",
    write_the_first_generation_anew: "rewritten",
    put_a_line_of_another_there: "rewritten",
}


@for_each("attack", ATTACKS)
def test_every_attack_without_the_key_is_an_error(attack: Callable[[Any], None]):
    """P17: changed, moved, swapped, replayed, cut out or downgraded: an error of ours, without a word of the content."""
    backend = SimulatedBackend()
    lived(library_on(backend))
    found = slots(backend)
    attack(found)
    write(backend, found)
    library = library_on(backend)
    with pytest.raises((CorruptTranscriptError, CorruptMetadataError, NotSealedError)) as told:
        for generation in (None, 0):
            with library.open(ID, read_only=True) as store:
                store.get_records(**({} if generation is None else {"generation": generation}))
    assert (getattr(told.value, "kind", None) or type(told.value).__name__) == ATTACKS[attack]
    assert CANARY not in str(told.value)


def test_rewriting_slots_unchanged_is_accepted():
    """The attacks above change only what they claim: slots rewritten unchanged are accepted."""
    backend = SimulatedBackend()
    lived(library_on(backend))
    before = {name: backend.object(ID, name) for name in backend.names(ID)}
    write(backend, slots(backend))
    assert {name: backend.object(ID, name) for name in backend.names(ID)} == before


def test_the_last_slots_gone_are_not_noticed():
    """R7: removing the last slots leaves an earlier valid state, as the table of attacks says."""
    backend = SimulatedBackend()
    lived(library_on(backend))
    found = slots(backend)
    write(backend, found[:-2])
    assert len(read(library_on(backend))) == 3


@pytest.mark.parametrize("what", [None, b"", b"damaged", "of another"])
def test_the_key_gone_or_changed(backend: SimulatedBackend, what: Any):
    """No key, no content; the error names the key file, nothing is claimed, and ``verify`` without the key finds the slots whole."""
    lived(library := library_on(backend))
    lived(library, OTHER_ID)
    backend.set_key(ID, backend.key(OTHER_ID) if what == "of another" else what)
    before = backend.names(ID)
    for read_only in (False, True):
        with pytest.raises(CorruptKeyFileError) as told:
            library.open(ID, read_only=read_only)
        assert told.value.path.endswith(f"{ID}/key.json")
    assert backend.names(ID) == before
    assert library.verify(ID).is_intact


def test_a_wrong_key_deposes_nobody(backend: SimulatedBackend):
    """Without the key, or with a key for a plain conversation, a call is refused before the claim: the active writer continues."""
    with create(library_on(backend)) as store, library_on(backend, None).create(id=OTHER_ID) as plain:
        before = backend.names(ID), backend.names(OTHER_ID)
        with pytest.raises(WrongKeyError):
            library_on(backend, OTHER_KEY).open(ID, take_over=True)
        with pytest.raises(NotSealedError):
            library_on(backend, OTHER_KEY).open(OTHER_ID, take_over=True)
        assert (backend.names(ID), backend.names(OTHER_ID)) == before
        store.append_message({"content": "on"})
        plain.append_message({"content": "on"})


# ---- keys ---------------------------------------------------------------------------------------------------------------


def test_rotate(backend: SimulatedBackend):
    """Each data key is wrapped again, also of open conversations, whose writers continue; no slot is touched; the old
    key opens nothing.
    """
    lived(library_on(backend))
    with (
        library_on(backend, None).create(id=OTHER_ID),
        create(library_on(backend), third := OTHER_ID[:-1] + "2") as store,
    ):
        before = [backend.names(each) for each in (ID, OTHER_ID, third)]
        new = library_on(backend, OTHER_KEY, KEY)
        done = new.rotate_key()
        assert done.rotated == (ID, third)
        assert [each for each, _ in done.skipped] == [OTHER_ID]
        assert new.rotate_key().already_current == (ID, third)
        assert new.rotate_key([third]).already_current == (third,)
        assert [backend.names(each) for each in (ID, OTHER_ID, third)] == before
        store.append_message({"content": "on"})
    assert len(read(library_on(backend, OTHER_KEY), third)) == 3
    with pytest.raises(WrongKeyError):
        library_on(backend).open(ID)
    assert library_on(backend, bytes(32)).rotate_key().skipped[0][0] == ID
    with pytest.raises(ValueError, match="rotate_key"):
        library_on(backend, None).rotate_key()
    with pytest.raises(TypeError, match="must be a list"):
        library_on(backend, OTHER_KEY).rotate_key(ID)
    absent = "99999999-0000-4000-8000-000000000001"
    told = library_on(backend, OTHER_KEY).rotate_key([absent, absent]).skipped
    assert told == ((absent, "there is no such conversation in the library"),)


def test_a_rotation_tells_a_key_that_is_gone_from_one_that_never_was(backend: SimulatedBackend):
    """The incident: the key beside a sealed conversation was lost, and a rotation said that it is not sealed."""
    lived(library_on(backend))
    with library_on(backend, None).create(id=OTHER_ID):
        pass
    del backend._keys[ID]  # as an operator's mistake would
    new = library_on(backend, OTHER_KEY, KEY)
    for names in (None, [ID, OTHER_ID]):
        done = new.rotate_key(names)
        assert (done.rotated, done.already_current) == ((), ())
        told = dict(done.skipped)
        assert "key.json, without which it cannot be read, is missing" in told[ID]
        assert "restore that file from a backup" in told[ID]
        assert told[OTHER_ID] == "it is not sealed"


def test_shred(backend: SimulatedBackend):
    """No key can read it again; the writer gets an error; a second call says when it was shredded; plaintext is listed."""
    lived(library := library_on(backend))
    done = library.shred(ID)
    assert (done.id, done.still_readable) == (ID, ())
    assert library.shred(ID) == done
    for key in (KEY, OTHER_KEY):
        with pytest.raises(ConversationShreddedError):
            library_on(backend, key, *([KEY] if key is OTHER_KEY else [])).open(ID)
    assert library.verify(ID).is_intact
    assert library_on(backend, OTHER_KEY, KEY).rotate_key().skipped[0][0] == ID  # K3: nothing is put back
    with pytest.raises(NotSealedError):
        with library_on(backend, None).create(id=OTHER_ID):
            pass
        library.shred(OTHER_ID)
    with pytest.raises(ConversationNotFoundError):
        library.shred(OTHER_ID[:-1] + "9")
    with create(library, third := OTHER_ID[:-1] + "2") as store:
        store.unseal()
    assert library_on(backend, None).shred(third).still_readable == (f"simulated/{third}/transcript.jsonl",)


def test_a_key_is_shredded_of_which_there_are_no_slots(backend: SimulatedBackend):
    """They were lost, and stand in a backup: the key stayed, and no call could destroy it. A key of another conversation is not touched."""
    lived(library := library_on(backend))
    key = backend.key(ID)
    for name in backend.names(ID):
        backend.set_object(ID, name, None)
    with pytest.raises(ConversationNotFoundError):
        library.open(ID, read_only=True)
    done = library_on(backend, None).shred(ID)
    assert (done.id, done.still_readable) == (ID, ())
    assert b"wrapped" not in (backend.key(ID) or b"")
    assert library.shred(ID) == done
    backend.set_key(OTHER_ID, key)
    with pytest.raises(ConversationNotFoundError):
        library.shred(OTHER_ID)
    assert backend.key(OTHER_ID) == key


def test_a_shred_beside_a_writer(backend: SimulatedBackend):
    """An active writer's conversation is not shredded; a stalled writer is fenced, and stores nothing after it."""
    library = library_on(backend)
    with create(library) as store:
        with pytest.raises(TranscriptStoreError):
            library.shred(ID)
        assert read(library) == MESSAGES[:2]
        files = SimulatedFileSystem()
        files.wait(10**6)
        ConversationLibrary(backend, file_system=files).shred(ID)
        with pytest.raises(ConversationTakenOverError):
            store.append_message({"content": "late"})


def test_what_is_damaged_can_be_forgotten(backend: SimulatedBackend):
    """A shred needs no intact log, so no repair first. Other contents count as readable."""
    lived(library := library_on(backend))
    backend.set_object(ID, "s/3", b"no slot")
    assert library.shred(ID).still_readable == (f"simulated/{ID}",)
    with pytest.raises(ConversationShreddedError):
        decode_key_file(backend.key(ID) or b"", "", ID)


def test_a_rotation_never_puts_back_what_a_shred_took(backend: SimulatedBackend):
    """Y2: the shred comes between the rotation's look and its put; and a put that comes late meets another key there."""
    lived(library_on(backend))
    new = library_on(backend, OTHER_KEY, KEY)

    def comes_between(request: BackendRequest) -> None:
        if request.call == "put_key":
            backend.on_request = None
            library_on(backend, None).shred(ID)

    backend.on_request = comes_between
    assert new.rotate_key().skipped[0][0] == ID
    lived(library_on(backend), OTHER_ID)
    backend.on_request = lambda request: Fate.TWICE if request.call == "put_key" else None
    assert new.rotate_key().rotated == (OTHER_ID,)
    backend.on_request = None
    new.shred(OTHER_ID)
    backend.land()
    with pytest.raises(ConversationShreddedError):
        new.open(OTHER_ID)


class Broken:
    id = "broken"

    def wrap(self, data_key: bytes) -> bytes:
        raise OSError(CANARY)

    def unwrap(self, wrapped: bytes) -> bytes:
        raise OSError(CANARY)


def test_a_provider_that_fails(backend: SimulatedBackend):
    """A create puts nothing on the backend; a rotation raises, and the conversations before that are rotated."""
    with pytest.raises(KeyProviderError):
        library_on(backend, Broken()).create(id=ID)
    assert (backend.names(ID), backend.key(ID)) == ([], None)


# ---- two that create ----------------------------------------------------------------------------------------------------


def test_two_that_create_one_id(backend: SimulatedBackend):
    """Y1: the other create comes between the key and slot 1. One creates it, the other gets an error, and the key fits."""
    first = library_on(backend)

    def comes_between(request: BackendRequest) -> None:
        if request.call == "put":
            backend.on_request = None
            create(library_on(backend)).close()

    backend.on_request = comes_between
    with pytest.raises(ConversationExistsError):
        first.create(id=ID, messages=[{"content": "of the slower one"}])
    assert read(library_on(backend)) == MESSAGES[:2]


def test_a_create_that_is_killed_beside_another(backend: SimulatedBackend):
    """Y1: the other create comes before slot 1, and is killed before its own: the key is that of the first."""
    first = library_on(backend)

    def comes_between(request: BackendRequest) -> None:
        if request.call == "put":
            backend.on_request = lambda request: Fate.KILLED if request.call == "put" else None
            with suppress(SimulatedStop):
                create(library_on(backend))
            backend.on_request = None

    backend.on_request = comes_between
    create(first).close()
    assert read(library_on(backend)) == MESSAGES[:2]


def test_a_create_continues_with_the_key_of_one_that_was_killed(backend: SimulatedBackend):
    """Y1: with the key of that one, or among the retired ones; another key is refused, for the other create may be under way."""

    def dies(request: BackendRequest) -> Fate | None:
        return Fate.KILLED if request.call == "put" else None

    backend.on_request = dies
    with pytest.raises(SimulatedStop):
        create(library_on(backend))
    backend.on_request = None
    left = backend.key(ID)
    with pytest.raises(WrongKeyError):
        create(library_on(backend, OTHER_KEY))
    create(library_on(backend, OTHER_KEY, KEY)).close()
    assert backend.key(ID) == left
    assert read(library_on(backend)) == MESSAGES[:2]


# ---- each request ------------------------------------------------------------------------------------------------------


def one_life(backend: SimulatedBackend) -> Iterator[tuple[str, Any]]:
    """What is done, step by step: after each, what was acknowledged."""
    library = library_on(backend)
    store = create(library)
    yield "messages", MESSAGES[:2]
    store.append_message(MESSAGES[2])
    yield "messages", MESSAGES[:3]
    store.update_metadata(labels={"title": f"{CANARY} two"})
    yield "title", f"{CANARY} two"
    store.keep_records([1])
    yield "messages", MESSAGES[:1]
    store.append_message(MESSAGES[3])
    yield "messages", [MESSAGES[0], MESSAGES[3]]
    store.close()
    library_on(backend, OTHER_KEY, KEY).rotate_key()
    yield "key", OTHER_KEY
    library_on(backend, None).shred(ID)
    yield "shredded", True


STATES: list[list[Any]] = [[], MESSAGES[:2], MESSAGES[:3], MESSAGES[:1], [MESSAGES[0], MESSAGES[3]]]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("fate", [fate for fate in Fate if fate is not Fate.DONE], ids=lambda fate: fate.name)
def test_each_request_is_lost_late_or_the_last(backend: SimulatedBackend, fate: Fate):
    """P17, R1, R2, R6: whatever becomes of one request, and whenever it lands: what is there opens with a key that was given, is whole, and is
    what was acknowledged or the next step; what was told to be rotated needs the new key alone, what was told to be shredded stays so.
    """
    kind = type(backend)
    number = 0
    while True:
        number += 1
        backend, told = kind(), dict[str, Any]()
        backend.on_request = lambda request, number=number: fate if request.number == number else None
        with suppress(SimulatedStop, BackendError, ConversationLockedError):
            for what, value in one_life(backend):
                told[what] = value
        if backend.requests < number:
            break
        backend.on_request = None
        for moment in ("before", "after"):
            check(backend, told, f"request {number}, {moment} it landed")
            while backend.late and moment == "before":
                backend.land()
    assert number > 20


def check(backend: SimulatedBackend, told: dict[str, Any], where: str) -> None:
    everything = [backend.object(ID, name) for name in backend.names(ID)] + [backend.key(ID) or b""]
    everything += [summary.data for summary in backend.summaries()]
    assert not any(CANARY.encode() in data for data in everything), where
    try:
        with library_on(backend, OTHER_KEY, *([] if "key" in told else [KEY])).open(ID, read_only=True) as store:
            messages, title = store.get_messages(), (store.get_metadata().labels or {}).get("title")
    except ConversationNotFoundError:
        assert not told, where
        return
    except ConversationShreddedError:
        assert "key" in told, where
        return
    assert "shredded" not in told, where
    least = STATES.index(told.get("messages", []))
    assert messages in STATES[max(least, 1) : least + 2], where
    assert title == told.get("title") or "title" not in told, where


# ---- rules left out ----------------------------------------------------------------------------------------------------


def test_a_create_that_replaces_a_key_is_seen(backend: SimulatedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Y1 a conversation is left without its key."""

    def begin(self: KeyCell, keys: Any, files: Any, *_: Any) -> Sealing:
        new = Sealing.new(keys, self.id, files, self.path)
        self.replace(new.key_file, self.read(), "put the key")
        return new

    monkeypatch.setattr(KeyCell, "begin", begin)
    with pytest.raises(CorruptTranscriptError, match="not-genuine"):
        test_a_create_that_is_killed_beside_another(backend)


class PutsKeysOverOthers(SimulatedBackend):
    def put_key(self, id: str, data: bytes, known: bytes | None) -> bool:
        super().put_key(id, data, known)
        self.set_key(id, data)
        return True


def test_a_key_that_is_put_over_another_is_seen() -> None:
    """Y2 left out: a rotation puts back what a shred took, and says that it rotated."""
    with pytest.raises(IndexError):
        test_a_rotation_never_puts_back_what_a_shred_took(PutsKeysOverOthers())


def test_a_claim_before_the_key_is_seen(backend: SimulatedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without the key fences a writer."""
    monkeypatch.setattr(MirroredLog, "_unlock", lambda self: None)
    with pytest.raises((AssertionError, TranscriptStoreError)):
        test_a_wrong_key_deposes_nobody(backend)
