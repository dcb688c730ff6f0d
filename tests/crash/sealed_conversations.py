"""Sealed conversations that something happens to, and their keys: the rows of the crash matrix that need a key.

The judge is that of every conversation. It is given the key, and opens without one what is not sealed: so a sealed conversation that is plain
after a crash, or the other way round, is another state than one that is allowed. What a rotation and a shred leave is judged by which key opens
each conversation.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from random import Random
from typing import Any, TypeVar, cast

import pytest

from tests.crash import model, operations
from tests.crash.model import CONVERSATION, DIRECTORY, ID, LIBRARY, Machine, State, World, insist
from tests.crash.operations import (
    OTHER_ID,
    TRANSCRIPT,
    Case,
    Step,
    append,
    append_event,
    batch,
    close,
    create_together,
    damaged,
    delete,
    delete_generation,
    fork,
    grown,
    initialize,
    load,
    message,
    nothing,
    repair_salvage,
    replace,
    retract,
    stop_behind_the_rename,
    update_metadata,
)
from tests.kit.machines import machine_of
from transcript_store import (
    ConversationLibrary,
    ConversationShreddedError,
    ConversationStore,
    StorageError,
    WrongKeyError,
)
from transcript_store.testing import FileSystemCall, SimulatedFileSystem, SimulatedStop

F = TypeVar("F", bound=Callable[..., Any])
KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
BOTH: dict[str, Any] = {"encryption_key": KEY, "retired_keys": [OTHER_KEY]}


def keys_for(disk: Machine) -> dict[str, Any]:
    """Both keys, unless the conversation is plain."""
    header = (disk.tree().get(TRANSCRIPT) or b"").partition(b"\n")[0]
    return {} if header and b'"sealed"' not in header else BOTH


def with_the_key(disk: Machine, **options: Any) -> ConversationStore:
    return ConversationStore(DIRECTORY, file_system=disk, **keys_for(disk), **options)


class Accepting(ConversationStore):
    """Takes what a repair without the key has left."""

    def load(self, **options: Any) -> None:
        super().load(**{"accept_unkeyed_repair": True, **options})

    def load_or_initialize(self, **contents: Any) -> bool:
        if self.exists():
            self.load()
            return False
        return super().load_or_initialize(**contents)


def accepting(disk: Machine, **options: Any) -> ConversationStore:
    return Accepting(DIRECTORY, file_system=disk, **BOTH, **options)


def library_with_the_key(disk: Machine, path: str = LIBRARY) -> ConversationLibrary:
    return ConversationLibrary(path, file_system=disk, **keys_for(disk))


def given(store_on: Callable[..., ConversationStore]) -> Callable[[F], F]:
    """The same for sealed conversations: what opens one, or a library, is given the keys."""

    def decorated(function: F) -> F:
        @wraps(function)
        def given_the_key(*args: Any, **kwargs: Any) -> Any:
            with pytest.MonkeyPatch.context() as patch:
                for module in (model, operations):
                    patch.setattr(module, "store_on", store_on)
                    patch.setattr(module, "library_on", library_with_the_key)
                return function(*args, **kwargs)

        return cast(F, given_the_key)

    return decorated


sealed = given(with_the_key)


def world_of(world: World, store_on: Callable[..., ConversationStore]) -> World:
    with_keys = given(store_on)
    return World(world.lock, *map(with_keys, (world.opened, world.observe, world.shown, world.go_on)))  # type: ignore[arg-type]


SEALED = world_of(CONVERSATION, with_the_key)
IN_TURNS = world_of(model.IN_TURNS, with_the_key)


@sealed
def go_on_anew(store: ConversationStore) -> tuple[State, State]:
    """Opened anew, with the key or without it: it may be sealed now, or still plain."""
    disk = machine_of(store)
    store.close()
    return CONVERSATION.go_on(with_the_key(disk))


BEING_SEALED = World(SEALED.lock, SEALED.opened, SEALED.observe, SEALED.shown, go_on_anew)
REPAIRED = world_of(CONVERSATION, accepting)


@dataclass(frozen=True)
class Sealing(Case):
    """A case whose first step loads by itself."""

    @property
    def starts_loaded(self) -> bool:
        return False


def with_both(step: Step) -> Step:
    """A step that opens the library, given the keys. It looks at no file to know which: it is refused calls, and a look would be one."""

    @wraps(step)
    def given_both(store: Any) -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(operations, "library_on", lambda disk: ConversationLibrary(LIBRARY, file_system=disk, **BOTH))
            return step(store)

    return given_both


# ---- conversations ---------------------------------------------------------------------------------------------------


@sealed
def sealed_and_grown() -> SimulatedFileSystem:
    """Three messages, sealed, in a generation that can take them back, and the mark at their end."""
    disk = nothing()
    with with_the_key(disk) as store:
        store.initialize(
            id=ID, provider="claude", system_prompt="be brief", labels={"title": "a test"}, features=["retract"]
        )
        for number in range(3):
            store.append_message(message(number, size=300 if number == 1 else 20))
    return disk.copy()


@sealed
def sealed_and_replaced() -> SimulatedFileSystem:
    """The same, in the second generation."""
    disk: SimulatedFileSystem = sealed_and_grown()
    with with_the_key(disk) as store:
        store.load()
        store.replace_transcript([message(7)])
    return disk.copy()


@sealed
def sealed_beside_plain() -> SimulatedFileSystem:
    """A seal that was killed before it removed the plain generation."""
    disk = grown()
    with ConversationStore(DIRECTORY, encryption_key=KEY, file_system=disk) as store:
        store.seal(keep_plain=True)
    return disk.copy()


def sealed_and_damaged() -> SimulatedFileSystem:
    return damaged(sealed_and_grown(), TRANSCRIPT)


def repaired_without_the_key() -> SimulatedFileSystem:
    disk = sealed_and_damaged()
    repair_salvage(accepting(disk))
    return disk.copy()


def two() -> SimulatedFileSystem:
    """A library of two, wrapped with ``KEY``."""
    disk = nothing()
    for one in (ID, OTHER_ID):
        with library(disk).create(id=one, messages=[message(1)]):
            pass
    return disk.copy()


def rotation_killed(disk: SimulatedFileSystem, at: str) -> SimulatedFileSystem:
    """What a rotation leaves that is killed at its first call of this name."""
    is_over = False

    def stop(call: FileSystemCall) -> None:
        nonlocal is_over
        is_over = is_over or call.name == at
        if is_over:
            raise SimulatedStop

    disk.on_call = stop
    with pytest.raises(SimulatedStop):
        rotate(library(disk, OTHER_KEY, (KEY,)))
    return disk.kill_process()


def known(base: F) -> F:
    """The same bytes each time it is made: a disk that holds something unsynced is made anew, and compared with the kernel's."""

    @wraps(base)
    def with_known_nonces() -> SimulatedFileSystem:
        chance = Random(0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("secrets.token_bytes", chance.randbytes)
            disk: SimulatedFileSystem = base()
            return disk

    return cast(F, with_known_nonces)


@known
def renamed_and_not_synced() -> SimulatedFileSystem:
    """The same; a rotation was killed when each had its new key file, before the last sync."""
    disk = two()
    stop_behind_the_rename(disk, f"{LIBRARY}/{OTHER_ID}/key.json")
    with pytest.raises(SimulatedStop):
        rotate(library(disk, OTHER_KEY, (KEY,)))
    return disk.kill_process()


@known
def rotation_killed_before_its_renames() -> SimulatedFileSystem:
    """A library of two; a rotation was killed with all new key files written, under temporary names."""
    return rotation_killed(two(), "sync_all")


@known
def rotation_killed_when_it_had_locked() -> SimulatedFileSystem:
    """A group was killed between giving a conversation its name and the sync of that; and a rotation of it, before its commit.

    The rotation left a lock file, so nobody syncs that name any more: it has to be on the medium already.
    """
    disk = nothing()
    library(disk).create(id=OTHER_ID).close()
    library(disk).delete(OTHER_ID)
    disk = disk.copy()
    stop_behind_the_rename(disk, DIRECTORY)
    with pytest.raises(SimulatedStop), library(disk).group() as group:
        group.add(id=ID, messages=[message(0), message(1)])
    disk = disk.kill_process()
    return rotation_killed(disk, "sync_all")


def library(disk: Any, key: bytes = KEY, retired: tuple[bytes, ...] = ()) -> ConversationLibrary:
    return ConversationLibrary(LIBRARY, encryption_key=key, retired_keys=retired, file_system=disk)


# ---- steps -----------------------------------------------------------------------------------------------------------


def seal_beside(store: ConversationStore) -> None:
    with ConversationStore(DIRECTORY, encryption_key=KEY, file_system=machine_of(store)) as sealing:
        sealing.seal(keep_plain=True)


def seal(store: ConversationStore) -> None:
    with ConversationStore(DIRECTORY, encryption_key=KEY, file_system=machine_of(store)) as sealing:
        sealing.seal()


def unseal(store: ConversationStore) -> None:
    store.unseal()


def accept(store: ConversationStore) -> None:
    store.load(accept_unkeyed_repair=True)


def rotate(of: ConversationLibrary) -> None:
    for one, why in of.rotate_key().skipped:
        insist("this user may not access it" in why, f"left alone: {one}: {why}")
        raise StorageError(
            path=one, doing="rotate it", errno=errno.EACCES, strerror=why
        )  # told, as what else is refused


def shred(of: ConversationLibrary) -> None:
    of.shred(ID)


# ---- which key opens what --------------------------------------------------------------------------------------------


def opens(disk: Any, one: str, key: bytes) -> bool | None:
    """Whether a key opens a conversation; None if its key was destroyed."""
    try:
        with library(disk, key).open(one, read_only=True) as store:
            insist(store.get_messages() == [message(1)], "something else was said")
            return True
    except WrongKeyError:
        return False
    except ConversationShreddedError:
        return None


def state_of_the_keys(disk: Any) -> State:
    """``old`` as long as the earlier key is needed; K1: each conversation opens with one of the two."""
    found = set()
    for one in (ID, OTHER_ID):
        with_old, with_new = opens(disk, one, KEY), opens(disk, one, OTHER_KEY)
        insist(with_old is not with_new, f"{one} opens with {'both' if with_old else 'neither'}")
        found.add("old" if with_old else "new")
    return State((), ("new" if found == {"new"} else "old",))


def rotated_by_the_next(disk: Any) -> State:
    """What the next process is told, which rotates too: it says of all that they are wrapped with the new key."""
    done = library(disk, OTHER_KEY, (KEY,)).rotate_key()
    insist({*done.rotated, *done.already_current} == {ID, OTHER_ID}, f"the next one says {done}")
    return state_of_the_keys(disk)


def observe_the_keys(disk: Any) -> State:
    state = state_of_the_keys(disk)
    insist(rotated_by_the_next(disk).metadata == ("new",), "a second call does not finish it")
    for path in disk.tree():
        insist("/.tmp-" not in path, f"left over: {path}")
    for one in (ID, OTHER_ID):
        with library(disk, OTHER_KEY).open(one) as store:
            store.append_message(message(2))
    return state


def go_on_rotating(of: ConversationLibrary) -> tuple[State, State]:
    disk = machine_of(of)
    before = state_of_the_keys(disk)
    rotate(of)
    return before, state_of_the_keys(disk)


def rotating(disk: Any, durability: str, load: bool) -> ConversationLibrary:
    return library(disk, OTHER_KEY, (KEY,))


def alone(function: F) -> F:
    """On a machine whose file system cannot be synced as a whole: each conversation is rotated by itself."""

    @wraps(function)
    def on_such_a_disk(disk: Any, *args: Any) -> Any:
        disk.can_sync_all = lambda handle: False
        return function(disk, *args)

    return cast(F, on_such_a_disk)


def key_is_there(disk: Any) -> State:
    """Whether the conversation can be read still; the one beside it always can."""
    insist(opens(disk, OTHER_ID, KEY) is True, "the wrong one was shredded")
    found = opens(disk, ID, KEY)
    insist(found is not False, "the key file is of another key")
    return State((), ("there" if found else "shredded",))


def shredded_by_the_next(disk: Any) -> State:
    library(disk).shred(ID)
    return key_is_there(disk)


def observe_the_shred(disk: Any) -> State:
    state = key_is_there(disk)
    insist(shredded_by_the_next(disk).metadata == ("shredded",), "a second call does not finish it")
    for path, data in disk.tree().items():
        insist(not path.startswith(DIRECTORY) or b'"wrapped"' not in (data or b""), f"a wrapped key is still in {path}")
    return state


def go_on_shredding(of: ConversationLibrary) -> tuple[State, State]:
    before = key_is_there(machine_of(of))
    shred(of)
    return before, key_is_there(machine_of(of))


def sealed_or_plain(disk: Any) -> State:
    """What was said, and whether it is sealed. (What is in the archive stays sealed, and needs another seal to be read.)"""
    with with_the_key(disk) as store:
        store.load()
        return State(tuple(str(one).encode() for one in store.get_messages()), (store.get_metadata().sealed,))


def observe_sealed_or_plain(disk: Any) -> State:
    state = sealed_or_plain(disk)
    with with_the_key(disk) as store:
        store.load()
        store.append_message(model.PROBE)
    insist(len(sealed_or_plain(disk).records or ()) == len(state.records or ()) + 1, "an append after it is not there")
    return state


def go_on_unsealing(store: ConversationStore) -> tuple[State, State]:
    disk = machine_of(store)
    store.close()
    before = sealed_or_plain(disk)
    with with_the_key(disk) as again:
        again.load()
        again.append_message(model.PROBE)
    return before, sealed_or_plain(disk)


LOCK = f"{DIRECTORY}/lock"
UNSEALING = World(LOCK, SEALED.opened, observe_sealed_or_plain, sealed_or_plain, go_on_unsealing)
ROTATING = World(LOCK, rotating, observe_the_keys, rotated_by_the_next, go_on_rotating)
ROTATING_ALONE = World(LOCK, alone(rotating), alone(observe_the_keys), alone(rotated_by_the_next), go_on_rotating)
SHREDDING = World(
    LOCK,
    lambda disk, durability, load: library(disk),
    observe_the_shred,
    shredded_by_the_next,
    go_on_shredding,
)


@dataclass(frozen=True)
class NotToldYet(Case):
    """A case that begins with names of key files that are not synced, and that nobody was told of."""

    @property
    def starts_loaded(self) -> bool:
        return False

    @property
    def before_it_returns(self) -> set[State]:
        return {State((), ("old",))}


ROTATION = Case(two, (rotate,), world=ROTATING)
ROTATION_ALONE = Sealing(two, (rotate,), world=ROTATING_ALONE)
FINISHED_ROTATION = NotToldYet(renamed_and_not_synced, (rotate,), world=ROTATING)
SHRED = Case(two, (shred,), world=SHREDDING)
SHRED_BEHIND_A_ROTATION = Case(rotation_killed_before_its_renames, (shred,), world=SHREDDING)
SEALED_BESIDE = Sealing(grown, (seal_beside,), world=BEING_SEALED)
CREATED = Case(nothing, (initialize, append), world=SEALED)

KEYS = [ROTATION, ROTATION_ALONE, FINISHED_ROTATION, SHRED, SHRED_BEHIND_A_ROTATION]
CASES = [
    CREATED,
    Case(sealed_and_grown, (append_event, batch), world=SEALED),
    Case(sealed_and_replaced, (append, replace), world=SEALED),
    Case(sealed_and_grown, (update_metadata, append), world=SEALED),
    Case(sealed_and_grown, (append, retract), world=SEALED),
    Case(sealed_and_replaced, (delete_generation, append), world=SEALED),
    Case(sealed_and_grown, (append, replace, append), world=IN_TURNS),
    Case(sealed_and_grown, (unseal,), world=UNSEALING),
    Case(sealed_and_grown, (append, with_both(fork)), world=SEALED),
    Case(sealed_and_replaced, (close, with_both(delete)), world=SEALED),
    Sealing(nothing, (with_both(create_together), load, append), world=SEALED),
    Sealing(sealed_and_grown, (load, append), world=SEALED),
    SEALED_BESIDE,
    Sealing(sealed_beside_plain, (seal,), world=BEING_SEALED),
    Sealing(repaired_without_the_key, (accept, append), world=REPAIRED),
    Sealing(rotation_killed_when_it_had_locked, (load, append), world=SEALED),
    *KEYS,
]
REPAIRS = [Case(sealed_and_damaged, (repair_salvage,), world=REPAIRED)]
