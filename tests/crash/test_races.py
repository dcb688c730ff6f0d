"""Conversations that two processes want at the same moment (tests/crash/races.py): P11, P12, P13.

To try another pair add it to ``RACES``.
"""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pytest

from tests.crash.kernel import Note
from tests.crash.races import Outcome, Race, interleave
from tests.kit.machines import SyncedWhole
from transcript_store import (
    ConversationExistsError,
    ConversationLibrary,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationStore,
    FileStore,
    TranscriptStoreError,
    repair,
    verify,
)
from transcript_store._os.directory import Folder

pytestmark = [pytest.mark.long, pytest.mark.needs("strace")]


def create(path: Path, who: str) -> str:
    """load_or_initialize(), then one message more."""
    store = ConversationStore(path)
    try:
        created = store.load_or_initialize(messages=[{"created by": who}])
        store.append_message({"by": who})
        if not path.exists():
            return "acknowledged what is deleted"
    except ConversationLockedError:
        return "locked"
    finally:
        store.close()
    return "created" if created else "loaded"


def initialize(path: Path, who: str) -> str:
    try:
        with ConversationStore(path) as store:
            store.initialize(id=path.name, messages=[{"created by": who}])
            store.append_message({"by": who})
    except (ConversationLockedError, ConversationExistsError) as error:
        return "locked" if isinstance(error, ConversationLockedError) else "exists"
    return "created"


def create_together(path: Path, who: str) -> str:
    """In a group, as an import does; then one message more."""
    library = ConversationLibrary(path.parent, file_system=SyncedWhole())
    try:
        with library.group() as group:
            group.add(id=path.name, messages=[{"created by": who}])
    except ConversationExistsError:
        return "exists"
    if path.name in group.existing_ids:
        return "exists"
    assert append(path, who) == "loaded"
    return "created"


def append(path: Path, who: str) -> str:
    try:
        with ConversationStore(path) as store:
            store.load()
            store.append_message({"by": who})
            if not path.exists():
                return "acknowledged what is deleted"
    except ConversationLockedError:
        return "locked"
    except ConversationNotFoundError:
        return "nothing"
    return "loaded"


def take_back(path: Path, who: str) -> str:
    """A message that stays, and one that is taken back; nobody else's is."""
    try:
        with ConversationStore(path) as store:
            store.load()
            store.append_message({"by": who})
            store.append_message({"by": f"taken back by {who}"})
            store.retract(if_head=store.head)
    except ConversationLockedError:
        return "locked"
    return "loaded"


def take_turns(path: Path, who: str) -> str:
    """A message, a change of the metadata and a message, in a turn each; whoever is stopped in its turn keeps the other waiting."""
    try:
        with ConversationStore(path, hold_lock=False, lock_timeout_seconds=0.03) as store:
            store.load()
            store.append_message({"by": who})
            store.update_metadata(labels=store.get_metadata().labels | {who: "was here"})
            store.append_message({"by": f"{who} again"})
            labels = store.get_metadata().labels
            assert who in labels, f"{who}'s change of the metadata was overwritten: {labels}"
    except ConversationLockedError:
        return "locked"
    except ConversationNotFoundError:
        return "nothing"
    return "loaded"


def delete(path: Path, who: str) -> str:
    try:
        ConversationLibrary(path.parent).delete(path.name)
    except ConversationLockedError:
        return "locked"
    except ConversationNotFoundError:
        return "nothing"
    return "deleted"


def prune(path: Path, who: str) -> str:
    """All that is older than the moment at which this begins; what somebody writes to in between stays."""
    done = ConversationLibrary(path.parent).prune(older_than=timedelta(0), dry_run=False)
    if not done.items:
        return "nothing"
    (item,) = done.items
    return "deleted" if item.skipped is None else "left"


def prune_into_snapshots(path: Path, who: str) -> str:
    """The same with a store of snapshots beside the library; what went is there."""
    kept = FileStore(path.parent.parent / "kept")
    done = ConversationLibrary(path.parent).prune(older_than=timedelta(0), snapshots=kept, dry_run=False)
    for item in done.pruned:
        assert item.snapshot is not None
        assert json.loads(kept.load(item.snapshot).messages_json) == [{"by": "old"}]
    return "deleted" if done.pruned else "left" if done.items else "nothing"


def delete_and_leave(path: Path, who: str) -> str:
    """A delete on a disk that refuses to remove files: it is gone, and what it was stands under a name of trash."""
    with mock.patch.object(Folder, "remove_tree", side_effect=OSError):
        return delete(path, who)


def recreate(path: Path, who: str) -> str:
    """A delete, and another conversation in its place."""
    if delete(path, who) == "locked":
        return "locked"
    assert create(path, who) == "created"
    return "recreated"


def create_another(path: Path, who: str) -> str:
    """Another conversation in the same library: a create removes on its way what creates that were killed have left."""
    ConversationLibrary(path.parent).create(id=str(uuid.uuid4())).close()
    return "another"


def replace(path: Path, who: str) -> str:
    """A replace, with the metadata that belongs to it."""
    try:
        with ConversationStore(path) as store:
            store.load()
            store.replace_transcript([{"by": who}], model=who)
            store.update_metadata(labels={"by": who})
    except ConversationLockedError:
        return "locked"
    return "replaced"


def read(path: Path, who: str) -> str:
    """What a reader sees: the messages' authors, and the model that belongs to them."""
    with ConversationStore(path, read_only=True) as store:
        try:
            store.load()
        except ConversationNotFoundError:
            return "nothing"
        return _seen(store)


def read_again(path: Path, who: str) -> str:
    """What a reader sees that refreshes; the pair is compared with what one that loads anew sees."""
    with ConversationStore(path, read_only=True) as store:
        store.load()
        store.refresh()
        return _seen(store)


def read_tail(path: Path, who: str) -> str:
    """What a reader sees that verifies the end first, and the rest when it is asked for it."""
    with ConversationStore(path, read_only=True) as store:
        store.load(verify="tail")
        return _seen(store)


def fork(path: Path, who: str) -> str:
    """What a copy holds that is made without the lock."""
    library = ConversationLibrary(path.parent)
    try:
        with library.open(library.fork(path.name)) as store:
            return _seen(store)
    except ConversationNotFoundError:
        return "nothing"


def check(path: Path, who: str) -> str:
    try:
        return ", ".join(map(str, verify(path).findings)) or "whole"
    except ConversationNotFoundError:
        return "nothing"


def list_all(path: Path, who: str) -> str:
    """How many conversations a library lists; damage only if there is some."""
    found = ConversationLibrary(path.parent).list()
    return ", ".join(one.damage for one in found if one.damage) or f"{len(found)} listed"


def mend(path: Path, who: str) -> str:
    """A repair: what is whole stays as it is."""
    try:
        done = repair(path, mode="salvage", dry_run=False)
    except ConversationLockedError:
        return "locked"
    return "repaired" if done.applied else "whole"


def _seen(store: ConversationStore) -> str:
    authors = [message.get("by") or message["created by"] for message in store.get_messages()]
    return f"{','.join(authors)} of {store.get_metadata().model}"


def nothing(path: Path) -> None:
    pass


def conversation(path: Path) -> None:
    with ConversationStore(path) as store:
        store.initialize(id=path.name, model="old", messages=[{"by": "old"}])


def retractable(path: Path) -> None:
    """A conversation whose messages can be taken back; one of them is."""
    with ConversationStore(path) as store:
        store.initialize(
            id=path.name, model="old", messages=[{"by": "old"}, {"by": "taken back"}], features=["retract"]
        )
        store.retract()


def damaged_conversation(path: Path) -> None:
    """Bytes that say something else, in front of a record that is whole."""
    with ConversationStore(path) as store:
        store.initialize(id=path.name, model="old", messages=[{"by": "somebody"}, {"by": "old"}])
    transcript = path / "transcript.jsonl"
    transcript.write_bytes(transcript.read_bytes().replace(b"somebody", b"nobody--"))


def interrupted_create(path: Path) -> None:
    """What a create leaves that was killed before its commit: a lock and a temporary."""
    path.mkdir()
    (path / "lock").touch()
    (path / f".tmp-{'0' * 32}").write_bytes(b"half")


def interrupted_create_in_a_library(path: Path) -> None:
    """The same, with the note of the library that says so."""
    interrupted_create(path)
    (path.parent / f".new-{path.name}").touch()


def dead_stage(path: Path) -> None:
    """What a group leaves that was killed before its commit."""
    stage = f".stage-{'0' * 32}"
    (path.parent / stage).touch()
    conversation(path)
    path.rename(path.parent / f"{stage}-{path.name}")


WRITES = frozenset({("loaded", "loaded"), ("loaded", "locked"), ("locked", "loaded")})
TURNS = WRITES
CREATES = frozenset(
    {("created", "locked"), ("created", "loaded"), ("loaded", "created"), ("locked", "created"), ("loaded", "locked")}
)
OLD, FIRST, SECOND = "old of old", "first of first", "second of second"
BOTH = "old,second of old"

RACES = [
    Race(nothing, create, create, CREATES),
    Race(interrupted_create, create, create, CREATES),
    Race(
        nothing,
        initialize,
        initialize,
        frozenset({("created", "locked"), ("created", "exists"), ("exists", "created"), ("locked", "created")}),
    ),
    Race(conversation, append, append, WRITES),
    Race(
        conversation,
        replace,
        replace,
        frozenset({("replaced", "replaced"), ("replaced", "locked"), ("locked", "replaced")}),
    ),
    Race(retractable, take_back, take_back, WRITES),
    Race(retractable, read, take_back, frozenset({(OLD, "loaded"), (BOTH, "loaded")})),
    Race(retractable, read_again, take_back, frozenset({(OLD, "loaded"), (BOTH, "loaded")})),
    Race(retractable, read_tail, take_back, frozenset({(OLD, "loaded"), (BOTH, "loaded")})),
    Race(retractable, fork, take_back, frozenset({(OLD, "loaded"), (BOTH, "loaded")})),
    Race(conversation, take_turns, take_turns, WRITES),
    Race(conversation, take_turns, append, TURNS),
    Race(conversation, append, take_turns, TURNS),
    Race(conversation, take_turns, mend, frozenset({("loaded", "whole"), ("loaded", "locked")})),
    Race(
        conversation,
        take_turns,
        delete,
        frozenset({("loaded", "locked"), ("loaded", "deleted"), ("nothing", "deleted")}),
    ),
    Race(
        conversation,
        fork,
        take_turns,
        frozenset({(seen, "loaded") for seen in (OLD, "old,second,second again of old")}),
    ),
    Race(conversation, replace, read, frozenset({("replaced", OLD), ("replaced", FIRST)})),
    Race(conversation, read, replace, frozenset({(OLD, "replaced"), (SECOND, "replaced")})),
    Race(conversation, read_again, replace, frozenset({(OLD, "replaced"), (SECOND, "replaced")})),
    Race(
        nothing,
        create,
        read,
        frozenset({("created", "nothing"), ("created", "first of None"), ("created", "first,first of None")}),
    ),
    Race(
        conversation, append, delete, frozenset({("loaded", "locked"), ("loaded", "deleted"), ("nothing", "deleted")})
    ),
    Race(
        conversation, delete, append, frozenset({("deleted", "loaded"), ("deleted", "locked"), ("deleted", "nothing")})
    ),
    Race(
        conversation, create, delete, frozenset({("loaded", "locked"), ("loaded", "deleted"), ("created", "deleted")})
    ),
    Race(
        conversation, delete, create, frozenset({("deleted", "loaded"), ("deleted", "locked"), ("deleted", "created")})
    ),
    Race(
        conversation, delete, delete, frozenset({("deleted", "locked"), ("deleted", "nothing"), ("nothing", "deleted")})
    ),
    Race(
        conversation,
        append,
        delete_and_leave,
        frozenset({("loaded", "locked"), ("loaded", "deleted"), ("nothing", "deleted")}),
    ),
    Race(
        conversation,
        delete,
        delete_and_leave,
        frozenset({("deleted", "locked"), ("deleted", "nothing"), ("nothing", "deleted")}),
    ),
    Race(
        conversation,
        prune,
        append,
        frozenset({("nothing", "loaded"), ("left", "loaded"), ("deleted", "locked"), ("deleted", "nothing")}),
    ),
    Race(
        conversation,
        prune_into_snapshots,
        append,
        frozenset({("nothing", "loaded"), ("left", "loaded"), ("deleted", "locked"), ("deleted", "nothing")}),
    ),
    Race(conversation, append, prune, frozenset({("loaded", "left"), ("loaded", "deleted"), ("nothing", "deleted")})),
    Race(
        conversation,
        prune,
        prune,
        frozenset({("deleted", "left"), ("deleted", "nothing"), ("nothing", "deleted"), ("left", "deleted")}),
    ),
    Race(
        conversation,
        prune,
        delete,
        frozenset({("deleted", "locked"), ("deleted", "nothing"), ("nothing", "deleted"), ("left", "deleted")}),
    ),
    Race(conversation, delete, recreate, frozenset({("deleted", "locked"), ("deleted", "recreated")})),
    Race(conversation, read_tail, replace, frozenset({(OLD, "replaced"), (SECOND, "replaced")})),
    Race(conversation, fork, replace, frozenset({(OLD, "replaced"), (SECOND, "replaced")})),
    Race(conversation, fork, delete, frozenset({(OLD, "deleted"), ("nothing", "deleted")})),
    Race(conversation, check, append, frozenset({("whole", "loaded")})),
    Race(conversation, check, replace, frozenset({("whole", "replaced")})),
    Race(conversation, check, delete, frozenset({("whole", "deleted"), ("nothing", "deleted")})),
    Race(conversation, append, check, frozenset({("loaded", "whole")})),
    Race(conversation, replace, check, frozenset({("replaced", "whole")})),
    Race(conversation, delete, check, frozenset({("deleted", "whole"), ("deleted", "nothing")})),
    Race(nothing, create, check, frozenset({("created", "nothing"), ("created", "whole")})),
    Race(conversation, list_all, append, frozenset({("1 listed", "loaded")})),
    Race(conversation, list_all, replace, frozenset({("1 listed", "replaced")})),
    Race(conversation, list_all, delete, frozenset({("1 listed", "deleted"), ("0 listed", "deleted")})),
    Race(conversation, replace, list_all, frozenset({("replaced", "1 listed")})),
    Race(conversation, delete, list_all, frozenset({("deleted", "1 listed"), ("deleted", "0 listed")})),
    Race(nothing, initialize, list_all, frozenset({("created", "0 listed"), ("created", "1 listed")})),
    Race(conversation, mend, append, frozenset({("whole", "loaded"), ("whole", "locked")})),
    Race(conversation, append, mend, frozenset({("loaded", "whole"), ("loaded", "locked")})),
    Race(
        damaged_conversation,
        mend,
        mend,
        frozenset({("repaired", "locked"), ("repaired", "whole"), ("whole", "repaired")}),
    ),
    Race(
        interrupted_create_in_a_library,
        create_another,
        create,
        frozenset({("another", "created"), ("another", "locked")}),
    ),
    Race(interrupted_create_in_a_library, create, create_another, frozenset({("created", "another")})),
    Race(nothing, create_together, create_together, frozenset({("created", "exists"), ("exists", "created")})),
    Race(
        nothing,
        create_together,
        create,
        frozenset({("created", "loaded"), ("created", "locked"), ("exists", "created")}),
    ),
    Race(nothing, create, create_together, frozenset({("created", "exists"), ("loaded", "created")})),
    Race(
        nothing,
        create_together,
        append,
        frozenset({("created", "nothing"), ("created", "loaded"), ("created", "locked")}),
    ),
    Race(nothing, create_together, create_another, frozenset({("created", "another")})),
    Race(dead_stage, create_together, create_another, frozenset({("created", "another")})),
    Race(dead_stage, create_another, create_together, frozenset({("another", "created")})),
    Race(dead_stage, create_together, create_together, frozenset({("created", "exists"), ("exists", "created")})),
    Race(nothing, create_together, list_all, frozenset({("created", "0 listed"), ("created", "1 listed")})),
    Race(
        nothing,
        create_together,
        read,
        frozenset({("created", "nothing"), ("created", "first of None"), ("created", "first,first of None")}),
    ),
]


def judge(path: Path, outcome: Outcome, where: str) -> None:
    """Who was told that it was done is there once; the conversation is whole, unlocked, and takes one more message.

    What was deleted, and not created anew by the other, is gone.
    """
    if outcome == ("another", "locked") or ("deleted" in outcome and not {"created", "recreated"} & set(outcome)):
        assert not path.exists(), f"{where}: {outcome}, and it is there"
        return
    if "recreated" in outcome and not path.exists():
        return  # it was deleted after that
    with ConversationStore(path) as store:
        store.load()
        authors = [message.get("by") for message in store.get_messages() if "by" in message]
        creators = [message["created by"] for message in store.get_messages() if "created by" in message]
        for who, came in zip(("first", "second"), outcome, strict=True):
            if came == "loaded":
                assert authors.count(who) == 1, f"{where}: {outcome}, and {authors}"
            if came == "created":
                assert creators == [who], f"{where}: {outcome}, and {creators}"
                assert authors.count(who) == 1
            if came == "locked":
                assert who not in authors
        assert len(authors) == len(set(authors)), f"{where}: twice: {authors}"
        assert not [one for one in authors if str(one).startswith("taken back")], f"{where}: {outcome}, and {authors}"
        if "replaced" in outcome:
            assert store.get_metadata().model == authors[0], f"{where}: {authors} of {store.get_metadata().model}"
            assert store.get_metadata().labels == {"by": authors[0]}
        store.append_message({"by": "a third"})
    assert verify(path).is_intact
    with suppress(FileNotFoundError):
        assert not [name for name in os.listdir(path) if name.startswith(".tmp-")]


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
def test_all_of_the_second_between_any_two_calls_of_the_first(race: Race, record_property: Note) -> None:
    """P11, P12, P13: one of two writers writes, the other is told why not, and no reader sees a part of either."""
    count = interleave(race, judge)
    record_property("interleavings of two processes", count)
    assert count >= 15


def test_a_lock_that_locks_nobody_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness itself: with a lock that everybody gets, two writers meet."""
    from transcript_store._os.filesystem import PosixFileSystem

    monkeypatch.setattr(PosixFileSystem, "try_lock", lambda self, handle: True)
    with pytest.raises((AssertionError, TranscriptStoreError)):
        interleave(RACES[3], judge)
