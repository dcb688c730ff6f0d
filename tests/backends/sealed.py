"""A sealed conversation on a backend through its life; each of its texts has the canary."""

from __future__ import annotations

from itertools import count
from typing import Any

from tests.sealed.conversations import CANARY, KEY, MESSAGES
from transcript_store import ConversationLibrary, ConversationStore
from transcript_store.backends import Backend
from transcript_store.testing import SimulatedFileSystem

ID = "6f1c2c0e-53cb-4d7e-8a5f-0a3a1c7d9e21"
OTHER_ID = "7a1c2c0e-53cb-4d7e-8a5f-0a3a1c7d9e21"


_processes = count(1)


def library_on(backend: Backend, key: Any = KEY, *retired: Any) -> ConversationLibrary:
    """A library of another process, which has a chance of its own."""
    files = SimulatedFileSystem()
    files.random_bytes(64 * next(_processes))
    return ConversationLibrary(backend, encryption_key=key, retired_keys=retired, file_system=files)


def create(library: ConversationLibrary, id: str = ID) -> ConversationStore:
    return library.create(
        id=id,
        provider="claude",
        model="m-1",
        system_prompt=f"{CANARY} prompt",
        labels={"title": f"{CANARY} title"},
        tools=[{"name": f"{CANARY}_tool"}],
        features=["retract"],
        messages=MESSAGES[:2],
        holder="writer",
    )


def lived(library: ConversationLibrary, id: str = ID) -> None:
    """A create, appends, an event, a batch, a retraction, a change of the metadata, a replace, an append, a close."""
    with create(library, id) as store:
        store.append_message(MESSAGES[2], extra={"usage": CANARY})
        store.append_event({"marker": CANARY})
        store.append_messages([MESSAGES[3], {"content": f"{CANARY} taken back"}])
        store.retract()
        store.update_metadata(labels={"title": f"{CANARY} another title"}, system_prompt=f"{CANARY} another")
        store.keep_records([1, 2, 3])
        store.append_message({"role": "user", "content": f"{CANARY} behind"})


def read(library: ConversationLibrary, id: str = ID) -> list[Any]:
    with library.open(id, read_only=True) as store:
        return store.get_messages()


def dies_sealed(backend: Backend, key: bytes, other: bytes, all_bytes: Any) -> None:
    """On a server: a whole life, read by another process, forked, rotated, shredded, deleted; ``all_bytes()`` is what the server has."""
    library = library_on(backend, key)
    lived(library)
    expected = read(library)
    fork = library.fork(ID)
    assert (len(expected), read(library, fork)) == (4, expected)
    (summary, _) = sorted(library.list(), key=lambda each: each.id != ID)
    assert (summary.sealed, summary.labels, summary.record_count) == (True, None, 4)
    new = library_on(backend, other, key)
    assert set(new.rotate_key().rotated) == {ID, fork}
    assert read(library_on(backend, other)) == expected
    assert CANARY.encode() not in all_bytes()
    new.shred(ID)
    with library_on(backend, None).open(ID, read_only=True) as store:
        assert store.record_count == 4
    assert new.verify(ID).is_intact
    assert new.rotate_key().skipped[0][0] == ID
    new.delete(ID)
    assert backend.key(ID) is None
    assert read(library_on(backend, other), fork) == expected
