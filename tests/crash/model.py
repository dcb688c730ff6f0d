"""A user's view of a conversation, and the judge of it after a crash.

``observe`` is the judge of every crash test. It opens what is on a disk as the next process would, and beyond the state
it returns it insists that the conversation can be lived with: recovery has nothing to do a second time, an append works
and is there afterwards, ``verify`` finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import orjson

from tests.crash.real_disk import RealDisk
from tests.kit.machines import machine_of
from transcript_store import (
    ConversationLibrary,
    ConversationNotFoundError,
    ConversationStore,
    CorruptMetadataError,
    CorruptTranscriptError,
    FileStore,
    PoisonedError,
    Record,
    TranscriptStoreError,
    Verification,
    verify,
)
from transcript_store._os.names import is_id
from transcript_store.testing import SimulatedFileSystem

LIBRARY = "/home/agent"
ELSEWHERE = "/home/archive"
"""Another library."""
KEPT = "/home/kept"
"""A store of snapshots, for what is pruned."""
ID = "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"
NOBODY = "00000000-0000-4000-8000-000000000000"
DIRECTORY = f"{LIBRARY}/{ID}"
SECRET = b"sk-live-0123456789"
GIVEN_YEAR = "2001-"
"""What the times begin with that a step gives: long before those of any clock here, which differ from run to run."""
Machine = SimulatedFileSystem | RealDisk
"""What a conversation stands on: a disk in memory, or a folder of this machine's file system."""
PROBE = {"role": "user", "content": "are you still there?"}


class State(NamedTuple):
    """What a user sees; ``records`` is None where there is no conversation. Of times only those that were given are seen."""

    records: tuple[bytes, ...] | None
    metadata: tuple[Any, ...] | None = None
    refused: str | None = None
    """The kind of damage, where loading was refused; ``archive`` where only an earlier generation is damaged."""
    archive: tuple[tuple[int, tuple[bytes, ...]], ...] = ()
    """The earlier generations, with their records."""
    others: tuple[State, ...] = ()
    """The other conversations in the library, and those elsewhere."""
    has_secret: bool = False
    """Whether ``SECRET`` stands in any file."""
    kept: tuple[bytes, ...] = ()
    """Where there is no conversation, the messages of each snapshot in ``KEPT``: it may go only when they are there."""


ABSENT = State(None)


@dataclass(frozen=True)
class World:
    """The object under test: how to open it, what the next process finds, and how it continues after an error."""

    lock: str
    """The path of its lock file, whose content nobody relies on."""
    opened: Callable[[Machine, str, bool], Any]
    """Open it on a disk, with a durability, and load it or not."""
    observe: Callable[[Machine], State]
    """What is found on a disk, which this may change; it insists that what is there can be lived with."""
    shown: Callable[[Machine], State]
    """What the next process is shown, and leaves as it is."""
    go_on: Callable[[Any], tuple[State, State]]
    """Store one thing more, and say what is found without it and with it."""


class ViolationError(AssertionError):
    """A state that the crash matrix does not allow, or a conversation that cannot be lived with."""


def store_on(disk: Machine, **options: Any) -> ConversationStore:
    return ConversationStore(DIRECTORY, file_system=disk, **options)


def library_on(disk: Machine, path: str = LIBRARY) -> ConversationLibrary:
    return ConversationLibrary(path, file_system=disk)


def state_of(store: ConversationStore) -> State:
    """What a user sees through a loaded store, and beside it in the library."""
    return _with_all_else(machine_of(store), _state_of(store))


def _state_of(store: ConversationStore) -> State:
    metadata = store.get_metadata()
    origin = metadata.forked_from or {}
    return State(
        _records(store),
        (
            metadata.provider,
            metadata.model,
            metadata.system_prompt,
            *sorted(metadata.labels.items()),
            metadata.compaction_count,
            *(origin.get(key) for key in ("conversation", "generation", "seq")),
        ),
        archive=tuple(
            (generation.number, () if generation.damage else _records(store, generation.number))
            for generation in store.generations()[:-1]
        ),
    )


def _records(store: ConversationStore, generation: int | None = None) -> tuple[bytes, ...]:
    return tuple(
        orjson.dumps(
            [
                record.message,
                record.extra,
                *_taken_back(record),
                *([record.at] if record.at.startswith(GIVEN_YEAR) else []),
            ]
        )
        for record in store.get_records(generation=generation)
    )


def _taken_back(record: Record) -> list[object]:
    """What a record takes back, and whether it is taken back itself; nothing for any other record."""
    named = [] if record.retracts is None else [{"retracts": record.retracts}]
    return [*named, *(["taken back"] if record.is_retracted else [])]


def _with_all_else(disk: Any, state: State) -> State:
    tree = disk.tree()
    has_secret = any(SECRET in data for data in tree.values() if data is not None)
    others: list[State] = []
    for place in (LIBRARY, ELSEWHERE):
        if not any(path.startswith(f"{place}/") and not path.startswith(DIRECTORY) for path in tree):
            continue
        library = library_on(disk, place)
        for summary in library.list():
            insist(summary.damage is None, f"the list says {summary.damage}")
            if summary.id != ID:
                with library.open(str(summary.id)) as other:
                    others.append(_state_of(other))
        # A note counts where there is no conversation, and must be there as soon as there is none.
        gone = library.deleted_ids() - {summary.id for summary in library.list()}
        others += [State(None, ("deleted", own_id)) for own_id in sorted(gone)]
    kept = _kept(disk) if state.records is None else ()
    return state._replace(others=tuple(sorted(others, key=repr)), has_secret=has_secret, kept=kept)


def _kept(disk: Any) -> tuple[bytes, ...]:
    if not any(path.startswith(f"{KEPT}/") for path in disk.tree()):
        return ()
    snapshots = FileStore(KEPT, file_system=disk)
    return tuple(snapshots.load(summary.id).messages_json for summary in snapshots.list())


def sweep(disk: Machine) -> None:
    """Do what sweeps what deletes and creates have left: the next change in the library."""
    for place in (LIBRARY, ELSEWHERE):
        if _leftovers(disk, place):
            with suppress(ConversationNotFoundError):
                library_on(disk, place).delete(NOBODY)
            insist(not _leftovers(disk, place), f"not swept: {_leftovers(disk, place)}")


def _leftovers(disk: Machine, place: str) -> list[str]:
    """Trash, notes of creates, and halves of creates beside the conversation. An empty folder is what a power cut may leave."""
    tree = disk.tree()
    below = [path for path in tree if path.startswith(f"{place}/") and not path.startswith(DIRECTORY)]
    end = len(f"{place}/{ID}")
    folders = {path[:end] for path in below if "/." not in path and path[end:].startswith("/")}
    halves = [
        folder for folder in folders if f"{folder}/transcript.jsonl" not in tree and is_id(folder.rpartition("/")[2])
    ]
    return [
        path for path in below if path.startswith(tuple(f"{place}/.{kind}-" for kind in ("trash", "new", "stage")))
    ] + halves


def absent_on(disk: Machine) -> State:
    """What a user sees who finds no conversation."""
    return _with_all_else(disk, ABSENT)


def observe(disk: Machine) -> State:
    """What the next process finds on this disk, which it may then change: give it a disk of its own."""
    sweep(disk)
    store = store_on(disk)
    if not store.exists():
        state = absent_on(disk)
        store.initialize(id=ID, messages=[PROBE])  # what is absent can be created
        store.close()
        with loaded(disk) as created:
            insist(created.get_messages() == [PROBE], "a conversation created after the crash is not there")
        return state
    try:
        store.load()
    except (CorruptTranscriptError, CorruptMetadataError) as error:
        return State(None, refused=error.kind)
    state = state_of(store)
    if store.recovery is not None and store.recovery.torn_bytes:
        quarantine = store.recovery.quarantine
        insist(quarantine is not None and disk.tree().get(quarantine) is not None, "torn bytes were not kept")
    store.close()

    with loaded(disk) as again:
        insist(again.recovery is None, "recovery had something to do again")
        insist(state_of(again) == state, "a second load shows something else")
        messages = again.get_messages()
        again.append_message(PROBE)
    with loaded(disk) as again:
        insist(again.get_messages() == [*messages, PROBE], "an append after the crash is not there, or not alone")
    verification = verify(DIRECTORY, file_system=disk)
    if any("/archive/" in finding.path for finding in verification.findings):
        return State(None, refused="archive")
    insist(verification.is_intact, f"verify finds {verification.findings}")
    live = f"{DIRECTORY}/archive/transcript-{verification.generation:06d}.jsonl"
    insist(live not in disk.tree(), "an unfinished replace was left in the archive")
    leftovers = [path for path in disk.tree() if path.startswith(f"{DIRECTORY}/") and "/.tmp-" in path]
    insist(not leftovers, f"leftovers were not swept: {leftovers}")
    _insist_on_the_ends(disk, verification)
    return state


def _insist_on_the_ends(disk: Machine, found: Verification) -> None:
    """An archived generation whose successor is gone cannot lose its end unnoticed: its last record is taken off here."""
    for number in found.archived_generations:
        if number + 1 not in (*found.archived_generations, found.generation):
            path = f"{DIRECTORY}/archive/transcript-{number:06d}.jsonl"
            content = disk.tree()[path] or b""
            disk.write_file(path, b"".join(content.splitlines(keepends=True)[:-1]))
            insist(not verify(DIRECTORY, file_system=disk).is_intact, f"how long generation {number} was is not known")


def loaded(disk: Machine) -> ConversationStore:
    """The conversation as another process on this disk loads it."""
    store = store_on(disk.another_process())
    store.load()
    return store


def shown(disk: Machine) -> State:
    """What the next process is shown when it loads the conversation."""
    sweep(disk)
    store = store_on(disk)
    if not store.exists():
        return absent_on(disk)
    store.load()
    return state_of(store)


def go_on(store: ConversationStore) -> tuple[State, State]:
    """One more message, after another load if the error requires it."""
    sweep(machine_of(store))
    created = False
    try:
        store.append_message(PROBE)
    except PoisonedError:
        store.load()
        store.append_message(PROBE)
    except TranscriptStoreError:  # it is not loaded: its load or initialize failed, or it was closed
        created = store.load_or_initialize()
        store.append_message(PROBE)
    found = state_of(store)
    assert found.records is not None
    store.close()
    if created:
        return found._replace(records=None, metadata=None, kept=_kept(machine_of(store))), found
    return found._replace(records=found.records[:-1]), found


def _opened(disk: Machine, durability: str, load: bool, *, hold_lock: bool = True) -> ConversationStore:
    store = store_on(disk, durability=durability, hold_lock=hold_lock)
    if load:
        store.load()
    return store


def insist(holds: bool, what: str) -> None:
    if not holds:
        raise ViolationError(what)


CONVERSATION = World(f"{DIRECTORY}/lock", _opened, observe, shown, go_on)
IN_TURNS = replace(CONVERSATION, opened=partial(_opened, hold_lock=False))
"""The same, by a writer that lets go of its lock between two calls."""
