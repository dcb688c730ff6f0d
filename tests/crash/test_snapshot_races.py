"""Stores of snapshots that two processes want at the same moment (tests/crash/races.py): P11, P12.

To try another pair add it to ``RACES``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.crash.kernel import Note
from tests.crash.races import ID, Outcome, Race, interleave
from transcript_store import ConversationLockedError, FileStore, Snapshot, SnapshotNotFoundError
from transcript_store._snapshots import file_store

pytestmark = [pytest.mark.long, pytest.mark.needs("strace")]

OLD_KEY, NEW_KEY = bytes(32), bytes([1] * 32)
SHARED = "chatmedia+sha256:in both"
"""A text that looks like a reference is kept as media at any length, so these files are short."""

OTHER_ID = ID.replace("0", "1")


@pytest.fixture(autouse=True)
def _nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is stopped with the lock in its hand does not let go of it."""
    monkeypatch.setattr(file_store, "LOCK_TIMEOUT_SECONDS", 0.0)


def by(who: str, id: str = ID) -> Snapshot:
    messages = [{"by": who}, SHARED, f"chatmedia+sha256:of {who}"]
    return Snapshot.create(id=id, provider="claude", messages=messages, created_at="2026-03-31T12:00:00Z")


OTHER = by("other", OTHER_ID)


def store_at(path: Path) -> FileStore:
    """As whoever has been given the new key opens it."""
    return FileStore(path, encryption_key=NEW_KEY, retired_keys=[OLD_KEY])


# ---- what there is ---------------------------------------------------------------------------------------------------


def nothing(path: Path) -> None:
    pass


def two_snapshots(path: Path) -> None:
    store = FileStore(path, encryption_key=OLD_KEY)
    store.save(by("old"))
    store.save(OTHER)


# ---- what is done ----------------------------------------------------------------------------------------------------


def save(path: Path, who: str) -> str:
    try:
        store_at(path).save(by(who))
    except ConversationLockedError:
        return "locked"
    return "saved"


def delete(path: Path, who: str) -> str:
    try:
        store_at(path).delete(ID)
    except ConversationLockedError:
        return "locked"
    except SnapshotNotFoundError:
        return "nothing"
    return "deleted"


def collect(path: Path, who: str) -> str:
    try:
        store_at(path).collect_media(older_than_seconds=0)
    except ConversationLockedError:
        return "locked"
    return "collected"


def save_and_collect(path: Path, who: str) -> str:
    done = save(path, who)
    collect(path, who)
    return done


def delete_and_collect(path: Path, who: str) -> str:
    done = delete(path, who)
    collect(path, who)
    return done


def rotate(path: Path, who: str) -> str:
    try:
        FileStore(path, encryption_key=OLD_KEY).rotate_key(NEW_KEY)
    except ConversationLockedError:
        return "locked"
    return "rotated"


def load(path: Path, who: str) -> str:
    """Whose snapshot is there, whole."""
    try:
        found = store_at(path).load(ID)
    except SnapshotNotFoundError:
        return "nothing"
    (whose,) = [one for one in ("old", "first", "second") if found == by(one)]
    return whose


def list_all(path: Path, who: str) -> str:
    return f"{len(store_at(path).list())} listed"


def verify(path: Path, who: str) -> str:
    return ", ".join(map(str, store_at(path).verify())) or "whole"


def outcomes(*pairs: Outcome) -> frozenset[Outcome]:
    return frozenset(pairs)


RACES = [
    Race(nothing, save, save, outcomes(("saved", "saved"), ("saved", "locked"))),
    Race(nothing, save, load, outcomes(("saved", "nothing"), ("saved", "first"))),
    Race(two_snapshots, save, save, outcomes(("saved", "saved"), ("saved", "locked"))),
    Race(two_snapshots, save, load, outcomes(("saved", "old"), ("saved", "first"))),
    Race(two_snapshots, save, verify, outcomes(("saved", "whole"))),
    Race(two_snapshots, save, collect, outcomes(("saved", "collected"), ("saved", "locked"))),
    Race(two_snapshots, save, delete, outcomes(("saved", "deleted"), ("saved", "locked"))),
    Race(two_snapshots, save, rotate, outcomes(("saved", "rotated"), ("saved", "locked"))),
    Race(two_snapshots, load, save_and_collect, outcomes(("old", "saved"), ("second", "saved"))),
    Race(two_snapshots, load, delete_and_collect, outcomes(("old", "deleted"), ("nothing", "deleted"))),
    Race(two_snapshots, load, rotate, outcomes(("old", "rotated"))),
    Race(two_snapshots, list_all, save_and_collect, outcomes(("2 listed", "saved"))),
    Race(two_snapshots, list_all, delete_and_collect, outcomes(("2 listed", "deleted"), ("1 listed", "deleted"))),
    Race(two_snapshots, list_all, rotate, outcomes(("2 listed", "rotated"))),
    Race(two_snapshots, verify, save_and_collect, outcomes(("whole", "saved"))),
    Race(two_snapshots, verify, delete_and_collect, outcomes(("whole", "deleted"))),
    Race(two_snapshots, verify, rotate, outcomes(("whole", "rotated"))),
    Race(two_snapshots, collect, save, outcomes(("collected", "saved"), ("collected", "locked"))),
    Race(two_snapshots, collect, delete, outcomes(("collected", "deleted"), ("collected", "locked"))),
    Race(two_snapshots, delete, save, outcomes(("deleted", "saved"), ("deleted", "locked"))),
    Race(two_snapshots, delete, load, outcomes(("deleted", "old"), ("deleted", "nothing"))),
    Race(
        two_snapshots, delete, delete, outcomes(("deleted", "nothing"), ("nothing", "deleted"), ("deleted", "locked"))
    ),
    Race(two_snapshots, rotate, save, outcomes(("rotated", "saved"), ("rotated", "locked"))),
    Race(two_snapshots, rotate, load, outcomes(("rotated", "old"))),
    Race(two_snapshots, rotate, verify, outcomes(("rotated", "whole"))),
    Race(two_snapshots, rotate, rotate, outcomes(("rotated", "rotated"), ("rotated", "locked"))),
]


def judge(path: Path, outcome: Outcome, where: str, *, of_two: bool = True) -> None:
    """What was saved is there, unless the other deleted it or saved another; the store is whole, and takes one more."""
    store = store_at(path)
    saved = {process for process, came in zip(("first", "second"), outcome, strict=True) if came == "saved"}
    expected = (saved or {"old"}) if "deleted" not in outcome else saved | {"nothing"}
    assert load(path, "") in expected, f"{where}: {outcome}, and {load(path, '')}"
    assert store.verify() == [], where
    if of_two:
        assert store.load(OTHER_ID) == OTHER, where
    if "rotated" in outcome:
        assert FileStore(path, encryption_key=NEW_KEY).verify() == [], f"{where}: not everything is sealed anew"
        assert not (path / "sealing").exists()
    assert not list(path.rglob(".tmp-*")), where
    store.save(by("a third"))
    store.collect_media(older_than_seconds=0)
    assert store.load(ID) == by("a third")
    assert store.verify() == [], where


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
def test_all_of_the_second_between_any_two_calls_of_the_first(race: Race, record_property: Note) -> None:
    """P11, P12: who reads sees the old or the new, whole; who writes is alone, or told so; no media goes that is wanted."""
    count = interleave(race, partial(judge, of_two=race.base is two_snapshots))
    record_property("interleavings of two processes", count)
    assert count >= 15


def test_a_lock_that_locks_nobody_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness itself: with a lock that everybody gets, media is collected that a save has just stored."""
    from transcript_store._os.filesystem import PosixFileSystem

    monkeypatch.setattr(PosixFileSystem, "try_lock", lambda self, handle: True)
    with pytest.raises((AssertionError, IndexError)):
        interleave(Race(two_snapshots, save, collect, outcomes(("saved", "collected"))), judge)
