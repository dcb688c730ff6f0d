"""A plaintext conversation on a backend is sealed: one more slot, and a wrapped key that is stored first.

In a folder ``seal()`` removes what is plain. Slots are chained and written once, so nothing of them can go: whoever seals says so, by
``keep_plain=True``, or makes a sealed fork and deletes the original. The danger is a conversation that is sealed and has no key: then its owner
has lost it. So each request of a seal is lost, late, repeated, or the last thing that its process did.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.backends.sealed import ID, library_on, read
from tests.sealed.conversations import CANARY, KEY, MESSAGES, OTHER_KEY
from transcript_store import (
    ConversationLockedError,
    KeyNeededError,
    NotSealedError,
    TranscriptStoreError,
    WrongKeyError,
)
from transcript_store._conversation.metadata import Sealing
from transcript_store.backends import Backend, BackendError, ConversationTakenOverError, UnsupportedByBackendError
from transcript_store.backends._storage import BackendWriter
from transcript_store.testing import BackendRequest, Fate, SimulatedBackend, SimulatedStop

TITLE = f"{CANARY} title"
LATER = f"{CANARY} later"


def plain(backend: Backend) -> None:
    with library_on(backend, None).create(id=ID, labels={"title": TITLE}, messages=MESSAGES[:2]) as store:
        store.append_message(MESSAGES[2])
        store.keep_records([1, 2, 3])


def seal(backend: Backend, key: bytes = KEY) -> None:
    with library_on(backend, key).store(ID) as store:
        store.seal(keep_plain=True)


def test_it_is_sealed_from_here_on(backend: SimulatedBackend) -> None:
    """The records and the metadata are what they were; what is written from now on, and what a list shows, has nothing plain in it."""
    plain(backend)
    before = set(backend.names(ID))
    with library_on(backend).store(ID) as store:
        store.seal(keep_plain=True)
        (summary,) = library_on(backend, None).list()
        assert (summary.sealed, summary.title, summary.labels) == (True, None, None)
        store.append_message({"role": "user", "content": LATER})
        store.update_metadata(labels={"title": LATER})
        assert store.get_metadata().labels == {"title": LATER}
    assert [message["content"] for message in read(library_on(backend))] == [
        *(message["content"] for message in MESSAGES[:3]),
        LATER,
    ]
    new = [backend.object(ID, name) for name in backend.names(ID) if name not in before]
    assert len(new) >= 4
    assert not any(
        CANARY.encode() in data for data in [*new, backend.key(ID) or b"", *(s.data for s in backend.summaries())]
    )
    assert library_on(backend, None).verify(ID).is_intact
    with library_on(backend, None).open(ID, read_only=True) as store, pytest.raises(KeyNeededError):
        store.get_messages()
    with library_on(backend).open(ID, read_only=True) as store:
        assert [generation.number for generation in store.generations()] == [0, 1, 2]
        assert len(store.get_records(generation=0)) == 3


def test_seal_reports_that_plaintext_stays(backend: SimulatedBackend) -> None:
    """Without ``keep_plain`` nothing is changed, and a shred lists what can still be read."""
    plain(backend)
    with library_on(backend).store(ID) as store, pytest.raises(UnsupportedByBackendError, match="remove the plaintext"):
        store.seal()
    with library_on(backend, None).open(ID, read_only=True) as store:
        assert len(store.get_messages()) == 3
    seal(backend)
    done = library_on(backend, None).shred(ID)
    assert [path.rpartition("/")[2] for path in done.still_readable] == [
        "transcript-000000.jsonl",
        "transcript-000001.jsonl",
    ]


def test_the_hint_leaves_nothing_plain(backend: SimulatedBackend) -> None:
    """A fork with the key, and a delete of the original: the backend has no plaintext any more."""
    plain(backend)
    fork = library_on(backend, None).fork(ID, into=library_on(backend))
    library_on(backend, None).delete(ID)
    assert [message["content"] for message in read(library_on(backend), fork)] == [m["content"] for m in MESSAGES[:3]]
    kept = [backend.object(each, name) for each in (ID, fork) for name in backend.names(each)]
    assert not any(CANARY.encode() in data for data in [*kept, *(summary.data for summary in backend.summaries())])


def test_sealed_twice_is_sealed_once(backend: SimulatedBackend) -> None:
    """A repeated call adds no generation; after unseal and seal the data key is the same, and each generation opens."""
    plain(backend)
    seal(backend)
    seal(backend)
    key = backend.key(ID)
    with library_on(backend).open(ID) as store:
        assert store.get_metadata().generation == 2
        store.unseal()
    seal(backend)
    assert backend.key(ID) == key
    with library_on(backend).open(ID, read_only=True) as store:
        assert [len(store.get_records(generation=number)) for number in range(5)] == [3, 3, 3, 3, 3]


def test_a_writer_at_work_is_not_sealed_away(backend: SimulatedBackend) -> None:
    """R4: an active writer causes an error; with a takeover the seal succeeds, and the other writer is fenced with
    nothing written.
    """
    plain(backend)
    with library_on(backend, None).open(ID) as here:
        with library_on(backend).store(ID) as store, pytest.raises(ConversationLockedError):
            store.seal(keep_plain=True)
        with library_on(backend).store(ID, take_over=True) as store:
            store.seal(keep_plain=True)
        with pytest.raises(ConversationTakenOverError):
            here.append_message({"content": "plain"})
    assert len(read(library_on(backend))) == 3


def test_another_key_seals_nothing_over_it(backend: SimulatedBackend) -> None:
    """A key that was put beside it, of a seal that was cut off, stays: another key is refused, and what is there stays plain."""
    plain(backend)
    cut_off(backend, "put", Fate.KILLED)
    with pytest.raises(SimulatedStop):
        seal(backend)
    backend.on_request = None
    with pytest.raises(WrongKeyError):
        seal(backend, OTHER_KEY)
    with library_on(backend, None).open(ID, read_only=True) as store:
        assert len(store.get_messages()) == 3
    seal(backend)
    assert len(read(library_on(backend))) == 3


def cut_off(backend: SimulatedBackend, call: str, fate: Fate) -> None:
    """The second slot of what comes next, the sealed generation behind the claim, has this fate."""
    seen: list[BackendRequest] = []

    def on_request(request: BackendRequest) -> Fate | None:
        if request.call == call:
            seen.append(request)
        return fate if len(seen) == 2 and request.call == call else None

    backend.on_request = on_request


# ---- each request ----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("fate", [fate for fate in Fate if fate is not Fate.DONE], ids=lambda fate: fate.name)
def test_each_request_of_a_seal(backend: SimulatedBackend, fate: Fate) -> None:
    """P17, R1, R2, R6: whatever becomes of one request, and whenever it lands, it is plain and whole, or sealed and opens with the key; the
    same call again finishes it.
    """
    kind, number = type(backend), 0
    while True:
        number += 1
        backend, is_reported = kind(), False
        plain(backend)
        first = backend.requests
        backend.on_request = lambda request, at=first + number: fate if request.number == at else None
        with suppress(SimulatedStop, BackendError):
            seal(backend)
            is_reported = True
        if backend.requests < first + number:
            break
        backend.on_request = None
        for moment in ("before", "after"):
            is_sealed = opens(backend)
            assert is_sealed or not is_reported, f"request {number}, {moment} it landed"
            while backend.late and moment == "before":
                backend.land()
        with library_on(backend).store(ID, take_over=True) as store:
            store.seal(keep_plain=True)
        while backend.late:
            backend.land()
        assert opens(backend), f"request {number}"
    assert number > 6


def opens(backend: SimulatedBackend) -> bool:
    """Whether it is sealed; what was stored is there, by the one road or the other."""
    try:
        with library_on(backend).open(ID, read_only=True) as store:
            found, is_sealed = store.get_messages(), True
    except NotSealedError:
        with library_on(backend, None).open(ID, read_only=True) as store:
            found, is_sealed = store.get_messages(), False
    assert found == MESSAGES[:3]
    return is_sealed


# ---- a rule left out -------------------------------------------------------------------------------------------------------


def test_a_seal_before_its_key_is_seen(backend: SimulatedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Y1 left out: the sealed generation first, then the key. Cut off in between, the conversation is lost to its owner."""
    whole: Callable[..., None] = BackendWriter.seal

    def new(self: BackendWriter, keys: Any, conversation: str) -> Sealing:
        return Sealing.new(keys, self.slots.id, self.files, self.path)

    def late(self: BackendWriter, keys: Any, *, keep_plain: bool) -> None:
        whole(self, keys, keep_plain=keep_plain)
        if self.sealing is not None:
            self.slots.key.replace(self.sealing.key_file, None, "put the key")

    monkeypatch.setattr(BackendWriter, "sealing_to_begin_with", new)
    monkeypatch.setattr(BackendWriter, "seal", late)
    with pytest.raises(TranscriptStoreError):
        test_each_request_of_a_seal(backend, Fate.KILLED)
