"""The crash matrix for sealed conversations: the same operations, stopped everywhere, and those that only they have.

P1, P3, P4, P7, P9, P17. The judge is that of every conversation; it is given the key, and opens without one what is not sealed. So a
sealed conversation that is plain after a crash, or the other way round, is another state than one that is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from itertools import count
from typing import Any, TypeVar, cast

import pytest

from tests.crash import enumeration, model, operations
from tests.crash.model import CONVERSATION, DIRECTORY, ID, Machine, World
from tests.crash.operations import (
    Case,
    append,
    append_event,
    batch,
    delete_generation,
    grown,
    initialize,
    load,
    replace,
    retract,
    update_metadata,
)
from tests.kit.machines import machine_of
from transcript_store import (
    ConversationExistsError,
    ConversationLibrary,
    ConversationShreddedError,
    ConversationStore,
    WrongKeyError,
)
from transcript_store.testing import SimulatedFileSystem, SimulatedStop

F = TypeVar("F", bound=Callable[..., Any])
KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))


def with_the_key(disk: Machine, **options: Any) -> ConversationStore:
    header = (disk.tree().get(f"{DIRECTORY}/transcript.jsonl") or b"").partition(b"\n")[0]
    keys: dict[str, Any] = (
        {} if header and b'"sealed"' not in header else {"encryption_key": KEY, "retired_keys": [OTHER_KEY]}
    )
    return ConversationStore(DIRECTORY, file_system=disk, **keys, **options)


def sealed(function: F) -> F:
    """The same for sealed conversations: what opens one is given the key."""

    @wraps(function)
    def given_the_key(*args: Any, **kwargs: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(model, "store_on", with_the_key)
            patch.setattr(operations, "store_on", with_the_key)
            return function(*args, **kwargs)

    return cast(F, given_the_key)


SEALED = World(
    CONVERSATION.lock,
    sealed(CONVERSATION.opened),
    sealed(CONVERSATION.observe),
    sealed(CONVERSATION.shown),
    sealed(CONVERSATION.go_on),
)
IN_TURNS = World(SEALED.lock, sealed(model.IN_TURNS.opened), SEALED.observe, SEALED.shown, SEALED.go_on)


@dataclass(frozen=True)
class Sealing(Case):
    """A case whose first step loads by itself."""

    @property
    def starts_loaded(self) -> bool:
        return False


# ---- conversations ---------------------------------------------------------------------------------------------------


@sealed
def sealed_and_grown() -> SimulatedFileSystem:
    """Three messages, sealed, in a generation that can take them back, and the mark at their end."""
    disk = operations.nothing()
    with with_the_key(disk) as store:
        store.initialize(
            id=ID, provider="claude", system_prompt="be brief", labels={"title": "a test"}, features=["retract"]
        )
        for number in range(3):
            store.append_message(operations.message(number, size=300 if number == 1 else 20))
    return disk.copy()


@sealed
def sealed_and_replaced() -> SimulatedFileSystem:
    """The same, in the second generation."""
    disk: SimulatedFileSystem = sealed_and_grown()
    with with_the_key(disk) as store:
        store.load()
        store.replace_transcript([operations.message(7)])
    return disk.copy()


@sealed
def sealed_beside_plain() -> SimulatedFileSystem:
    """A seal that was killed before it removed the plain generation."""
    disk = grown()
    with ConversationStore(DIRECTORY, encryption_key=KEY, file_system=disk) as store:
        store.seal(keep_plain=True)
    return disk.copy()


# ---- steps -----------------------------------------------------------------------------------------------------------


def seal_beside(store: ConversationStore) -> None:
    with ConversationStore(DIRECTORY, encryption_key=KEY, file_system=machine_of(store)) as sealing:
        sealing.seal(keep_plain=True)


def seal(store: ConversationStore) -> None:
    with ConversationStore(DIRECTORY, encryption_key=KEY, file_system=machine_of(store)) as sealing:
        sealing.seal()


CASES = [
    Case(operations.nothing, (initialize, append), world=SEALED),
    Case(sealed_and_grown, (append_event, batch), world=SEALED),
    Case(sealed_and_replaced, (append, replace), world=SEALED),
    Case(sealed_and_grown, (update_metadata, append), world=SEALED),
    Case(sealed_and_grown, (append, retract), world=SEALED),
    Case(sealed_and_replaced, (delete_generation, append), world=SEALED),
    Case(sealed_and_grown, (append, replace, append), world=IN_TURNS),
]
LOADING = [
    Sealing(sealed_and_grown, (load, append), world=SEALED),
    Sealing(grown, (seal_beside,), world=SEALED),
    Sealing(sealed_beside_plain, (seal,), world=SEALED),
]
EACH = pytest.mark.parametrize("case", [*CASES, *LOADING], ids=lambda case: case.name)
QUICK = {CASES[0], CASES[2], LOADING[1]}
SOME = pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case in QUICK else pytest.mark.long, id=case.name) for case in (*CASES, *LOADING)],
)


@SOME
def test_a_kill_at_any_call_loses_nothing(case: Case) -> None:
    """P3, P4: SIGKILL before every call, and within every write."""
    assert enumeration.kills(case) >= 5


@SOME
def test_a_power_cut_leaves_what_was_acknowledged(case: Case) -> None:
    """P1, P3, P4: whatever part of the unsynced bytes and names reaches the disk."""
    assert enumeration.power_cuts(case, limit=6, fills=(b"\0",)) >= 1


@pytest.mark.long
@EACH
def test_what_a_load_shows_after_a_kill_survives_a_power_cut(case: Case) -> None:
    """P9."""
    assert enumeration.kills_then_power_cuts(case, limit=4) >= 1


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_error_at_any_call_leaves_a_conversation_that_goes_on(case: Case) -> None:
    """P7."""
    assert enumeration.errors(case) >= 5


# ---- keys: what a crash leaves of a rotation, and of a shred ---------------------------------------------------------

LIBRARY = model.LIBRARY


def two() -> SimulatedFileSystem:
    disk = operations.nothing()
    for one in (ID, operations.OTHER_ID):
        with library(disk).create(id=one, messages=[operations.message(1)]):
            pass
    return disk.copy()


def library(disk: Any, key: bytes = KEY, retired: tuple[bytes, ...] = ()) -> ConversationLibrary:
    return ConversationLibrary(LIBRARY, encryption_key=key, retired_keys=retired, file_system=disk)


def killed(work: Callable[[Any], object]) -> Iterator[Any]:
    """Disks on which the work was stopped before each of its calls, as a kill and as the worst power cut leave them."""
    for number in count():
        disk, calls = two(), count()

        def stop(_: object, number: int = number, calls: Iterator[int] = calls) -> None:
            if next(calls) >= number:
                raise SimulatedStop

        disk.on_call = stop
        try:
            work(disk)
        except SimulatedStop:
            yield disk.kill_process().copy()
            yield disk.worst_power_failure()
        else:
            return


def opens(disk: Any, one: str, key: bytes) -> bool | None:
    """Whether a key opens a conversation; None if its key was destroyed."""
    try:
        with library(disk, key).open(one, read_only=True) as store:
            assert store.get_messages() == [operations.message(1)]
            return True
    except WrongKeyError:
        return False
    except ConversationShreddedError:
        return None


def rotate(disk: Any) -> object:
    return library(disk, OTHER_KEY, (KEY,)).rotate_key()


def test_a_rotation_that_is_cut_off_is_finished_by_the_next() -> None:
    """P4, P17: before that, each conversation opens with exactly one of the two keys."""
    stopped = 0
    for disk in killed(rotate):
        stopped += 1
        for one in (ID, operations.OTHER_ID):
            assert opens(disk.copy(), one, KEY) is not opens(disk.copy(), one, OTHER_KEY)
        rotate(disk)
        for one in (ID, operations.OTHER_ID):
            assert opens(disk, one, OTHER_KEY)
            assert opens(disk, one, KEY) is False
        assert not [path for path in disk.tree() if "/.tmp-" in path]
    assert stopped >= 40


def shred(disk: Any) -> object:
    return library(disk).shred(ID)


def test_a_shred_that_is_cut_off_is_finished_by_the_next() -> None:
    """Before that, the key is there whole or it is destroyed; the other conversation is as it was."""
    found = set()
    for disk in killed(shred):
        wrapped = json.loads(two().tree()[f"{DIRECTORY}/key.json"] or b"")["key_id"]
        found.add(opens(disk.copy(), ID, KEY))
        shred(disk)
        assert opens(disk, ID, KEY) is None
        assert opens(disk, operations.OTHER_ID, KEY)
        assert not [
            path
            for path, data in disk.tree().items()
            if path.startswith(DIRECTORY) and wrapped.encode() in (data or b"")
        ]
    assert found == {True, None}


def test_a_key_that_was_shredded_is_destroyed_after_a_power_cut() -> None:
    """P1, of forgetting: on return no power cut brings the key back."""
    disk = two()
    shred(disk)
    for after in disk.power_failures():
        assert opens(after, ID, KEY) is None


def unseal(disk: Any) -> None:
    with library(disk).open(ID) as store:
        store.unseal()


def test_an_unseal_that_is_cut_off_leaves_it_sealed_or_plain() -> None:
    """P4: the messages are there, with the key or without it."""
    found = set()
    for disk in killed(unseal):
        header = (disk.tree()[operations.TRANSCRIPT] or b"").partition(b"\n")[0]
        is_sealed = b'"sealed"' in header
        found.add(is_sealed)
        opened = library(disk) if is_sealed else ConversationLibrary(LIBRARY, file_system=disk)
        with opened.open(ID) as store:
            assert store.get_messages() == [operations.message(1)]
            store.append_message(operations.message(2))
    assert found == {True, False}


def test_a_key_file_without_a_conversation_is_never_overwritten() -> None:
    """P13: the rest may come back from a backup; without its key it would be lost."""
    disk = two()
    folder = disk.open_directory(DIRECTORY)
    for name in ("transcript.jsonl", "metadata.json", "lock"):
        disk.unlink(folder, name)
    key_file = disk.tree()[f"{DIRECTORY}/key.json"]
    with (
        ConversationStore(DIRECTORY, encryption_key=KEY, file_system=disk) as store,
        pytest.raises(ConversationExistsError),
    ):
        store.initialize()
    assert disk.tree()[f"{DIRECTORY}/key.json"] == key_file
