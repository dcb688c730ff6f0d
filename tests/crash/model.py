"""What a user sees of a conversation, and how it is looked at after a crash.

``observe`` is the judge of every crash test. It opens what is on a disk as the next process would, and beyond the state
it returns it insists that the conversation can be lived with: recovery has nothing to do a second time, an append works
and is there afterwards, ``verify`` finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from transcript_store import (
    ConversationStore,
    CorruptTranscriptError,
    PoisonedError,
    TranscriptStoreError,
    verify,
)
from transcript_store.testing import SimulatedFileSystem

DIRECTORY = "/home/agent/conversation"
PROBE = {"role": "user", "content": "are you still there?"}


class State(NamedTuple):
    """What a user sees; ``records`` is None where there is no conversation."""

    records: tuple[bytes, ...] | None
    metadata: tuple[Any, ...] | None = None
    refused: str | None = None
    """The kind of a ``CorruptTranscriptError``, where loading was refused."""


ABSENT = State(None)


@dataclass(frozen=True)
class World:
    """What is tested: how it is opened, what the next process finds of it, and how it goes on after an error."""

    lock: str
    """The path of its lock file, whose content nobody relies on."""
    opened: Callable[[SimulatedFileSystem, str, bool], Any]
    """Open it on a disk, with a durability, and load it or not."""
    observe: Callable[[SimulatedFileSystem], State]
    """What is found on a disk, which this may change; it insists that what is there can be lived with."""
    shown: Callable[[SimulatedFileSystem], State | None]
    """What the next process is shown, and leaves as it is; None where there is nothing."""
    go_on: Callable[[Any], tuple[State, State]]
    """Store one thing more, and say what is found without it and with it."""


class ViolationError(AssertionError):
    """A state that the crash matrix does not allow, or a conversation that cannot be lived with."""


def store_on(disk: SimulatedFileSystem, **options: Any) -> ConversationStore:
    return ConversationStore(DIRECTORY, file_system=disk, **options)


def state_of(store: ConversationStore) -> State:
    metadata = store.get_metadata()
    return State(
        tuple(orjson.dumps([record.message, record.extra]) for record in store.get_records()),
        (
            metadata.provider,
            metadata.model,
            metadata.system_prompt,
            *sorted(metadata.labels.items()),
            metadata.compaction_count,
        ),
    )


def observe(disk: SimulatedFileSystem) -> State:
    """What the next process finds on this disk, which it may then change: give it a disk of its own."""
    store = store_on(disk)
    if not store.exists():
        store.initialize(messages=[PROBE])  # what is absent can be created
        store.close()
        with loaded(disk) as created:
            insist(created.get_messages() == [PROBE], "a conversation created after the crash is not there")
        return ABSENT
    try:
        store.load()
    except CorruptTranscriptError as error:
        return State(None, refused=error.kind)
    state = state_of(store)
    if store.recovery is not None and store.recovery.torn_bytes:
        quarantine = store.recovery.quarantine
        insist(quarantine is not None and disk.tree()[quarantine] is not None, "torn bytes were not kept")
    store.close()

    with loaded(disk) as again:
        insist(again.recovery is None, "recovery had something to do again")
        insist(state_of(again) == state, "a second load shows something else")
        messages = again.get_messages()
        again.append_message(PROBE)
    with loaded(disk) as again:
        insist(again.get_messages() == [*messages, PROBE], "an append after the crash is not there, or not alone")
    verification = verify(DIRECTORY, file_system=disk)
    insist(verification.is_whole, f"verify finds {verification.findings}")
    archived = set(range(verification.generation or 0))
    insist(archived <= set(verification.archived_generations), "an earlier generation is not in the archive")
    live = f"{DIRECTORY}/archive/transcript-{verification.generation:06d}.jsonl"
    insist(live not in disk.tree(), "an unfinished replace was left in the archive")
    leftovers = [path for path in disk.tree() if "/.tmp-" in path]
    insist(not leftovers, f"leftovers were not swept: {leftovers}")
    return state


def loaded(disk: SimulatedFileSystem) -> ConversationStore:
    """The conversation as another process on this disk loads it."""
    store = store_on(disk.another_process())
    store.load()
    return store


def shown(disk: SimulatedFileSystem) -> State | None:
    """What the next process is shown when it loads the conversation."""
    store = store_on(disk)
    if not store.exists():
        return None
    store.load()
    return state_of(store)


def go_on(store: ConversationStore) -> tuple[State, State]:
    """One message more, after loading anew if that is what the error asks for."""
    began = True
    try:
        store.append_message(PROBE)
    except PoisonedError:
        store.load()
        store.append_message(PROBE)
    except TranscriptStoreError:  # it is not loaded: its load or initialize failed, or it was closed
        began = not store.load_or_initialize()
        store.append_message(PROBE)
    found = state_of(store)
    assert found.records is not None
    store.close()
    return State(found.records[:-1], found.metadata) if began else ABSENT, found


def _opened(disk: SimulatedFileSystem, durability: str, load: bool) -> ConversationStore:
    store = store_on(disk, durability=durability)
    if load:
        store.load()
    return store


def insist(holds: bool, what: str) -> None:
    if not holds:
        raise ViolationError(what)


CONVERSATION = World(f"{DIRECTORY}/lock", _opened, observe, shown, go_on)
