"""What a user sees of a conversation, and how it is looked at after a crash.

``observe`` is the judge of every crash test. It opens what is on a disk as the next process would, and beyond the state
it returns it insists that the conversation can be lived with: recovery has nothing to do a second time, an append works
and is there afterwards, ``verify`` finds nothing.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson

from transcript_store import ConversationStore, CorruptMetadataError, CorruptTranscriptError, verify
from transcript_store.testing import SimulatedFileSystem

DIRECTORY = "/home/agent/conversation"
PROBE = {"role": "user", "content": "are you still there?"}


class State(NamedTuple):
    """What a user sees; ``records`` is None where there is no conversation."""

    records: tuple[bytes, ...] | None
    metadata: tuple[Any, ...] | None = None
    refused: str | None = None
    """The kind of damage, where loading was refused; ``archive`` where only an earlier generation is damaged."""


ABSENT = State(None)


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
            _insist(created.get_messages() == [PROBE], "a conversation created after the crash is not there")
        return ABSENT
    try:
        store.load()
    except (CorruptTranscriptError, CorruptMetadataError) as error:
        return State(None, refused=error.kind)
    state = state_of(store)
    if store.recovery is not None and store.recovery.torn_bytes:
        quarantine = store.recovery.quarantine
        _insist(quarantine is not None and disk.tree()[quarantine] is not None, "torn bytes were not kept")
    store.close()

    with loaded(disk) as again:
        _insist(again.recovery is None, "recovery had something to do again")
        _insist(state_of(again) == state, "a second load shows something else")
        messages = again.get_messages()
        again.append_message(PROBE)
    with loaded(disk) as again:
        _insist(again.get_messages() == [*messages, PROBE], "an append after the crash is not there, or not alone")
    verification = verify(DIRECTORY, file_system=disk)
    if any("/archive/" in finding.path for finding in verification.findings):
        return State(None, refused="archive")
    _insist(verification.is_whole, f"verify finds {verification.findings}")
    kept = {*verification.archived_generations, *_repaired(verification.quarantined)}
    _insist(kept.issuperset(range(verification.generation or 0)), "an earlier generation is nowhere")
    live = f"{DIRECTORY}/archive/transcript-{verification.generation:06d}.jsonl"
    _insist(live not in disk.tree(), "an unfinished replace was left in the archive")
    leftovers = [path for path in disk.tree() if "/.tmp-" in path]
    _insist(not leftovers, f"leftovers were not swept: {leftovers}")
    return state


def _repaired(quarantined: tuple[str, ...]) -> set[int]:
    """The generations whose file is in quarantine as a whole."""
    found = (re.search(r"/g(\d+)-o0-[0-9a-f]{16}$", path) for path in quarantined)
    return {int(match[1]) for match in found if match}


def loaded(disk: SimulatedFileSystem) -> ConversationStore:
    """The conversation as another process on this disk loads it."""
    store = store_on(disk.another_process())
    store.load()
    return store


def _insist(holds: bool, what: str) -> None:
    if not holds:
        raise ViolationError(what)
