"""Two processes, and the second does all of its work between any two system calls of the first.

The first is stopped (SIGSTOP, by strace) at one call that touches the conversation after another; then the second runs to its
end; then the first goes on. No window is too small to be met so. P11, P12, P13.

To try another pair add it to ``RACES``.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest

from tests.crash.kernel import Note, scratch
from tests.crash.strace import Injection, Say, Traced, trace
from transcript_store import (
    ConversationExistsError,
    ConversationLibrary,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationStore,
    TranscriptStoreError,
    verify,
)
from transcript_store._folder import Folder

pytestmark = [pytest.mark.long, pytest.mark.needs("strace")]

ID = "0b61b0e5-5b5a-4c1e-9d2f-7f3a1c2d4e5f"
"""The conversation that two want to have, in a library of its own."""

Work = Callable[[Path, str], str]
"""What a process does on a conversation, by its name; returns what came of it."""


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
            store.initialize(messages=[{"created by": who}])
            store.append_message({"by": who})
    except (ConversationLockedError, ConversationExistsError) as error:
        return "locked" if isinstance(error, ConversationLockedError) else "exists"
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


def delete(path: Path, who: str) -> str:
    try:
        ConversationLibrary(path.parent).delete(path.name)
    except ConversationLockedError:
        return "locked"
    except ConversationNotFoundError:
        return "nothing"
    return "deleted"


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


def _seen(store: ConversationStore) -> str:
    authors = [message.get("by") or message["created by"] for message in store.get_messages()]
    return f"{','.join(authors)} of {store.get_metadata().model}"


def nothing(path: Path) -> None:
    pass


def conversation(path: Path) -> None:
    with ConversationStore(path) as store:
        store.initialize(model="old", messages=[{"by": "old"}])


def interrupted_create(path: Path) -> None:
    """What a create leaves that was killed before its commit: a lock and a temporary."""
    path.mkdir()
    (path / "lock").touch()
    (path / f".tmp-{'0' * 32}").write_bytes(b"half")


def interrupted_create_in_a_library(path: Path) -> None:
    """The same, with the note of the library that says so."""
    interrupted_create(path)
    (path.parent / f".new-{path.name}").touch()


@dataclass(frozen=True)
class Race:
    """Two pieces of work on the same conversation, and what may come of them."""

    base: Callable[[Path], None]
    first: Work
    second: Work
    outcomes: frozenset[tuple[str, str]]

    @property
    def name(self) -> str:
        return f"{self.base.__name__}-{self.first.__name__}-{self.second.__name__}"


WRITES = frozenset({("loaded", "loaded"), ("loaded", "locked"), ("locked", "loaded")})
CREATES = frozenset(
    {("created", "locked"), ("created", "loaded"), ("loaded", "created"), ("locked", "created"), ("loaded", "locked")}
)
OLD, FIRST, SECOND = "old of old", "first of first", "second of second"

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
    Race(conversation, delete, recreate, frozenset({("deleted", "locked"), ("deleted", "recreated")})),
    Race(
        interrupted_create_in_a_library,
        create_another,
        create,
        frozenset({("another", "created"), ("another", "locked")}),
    ),
    Race(interrupted_create_in_a_library, create, create_another, frozenset({("created", "another")})),
]


def interleave(race: Race) -> int:
    """Try every interleaving; returns how many there were, each with an outcome that is allowed."""
    with scratch() as folder:
        path = folder / "library" / ID
        points = [call for call in _one_after_the_other(race, path).calls if call.touches(folder)]
        for call in points:
            _begin(race, path)
            seconds: list[str] = []

            def second(seconds: list[str] = seconds) -> None:
                seconds.append(race.second(path, "second"))

            def work(say: Say) -> None:
                say(race.first(path, "first"))

            traced = trace(work, while_stopped=second, injection=Injection(call, "signal=SIGSTOP"))
            outcome = traced.lines[1], seconds[0]
            assert outcome in race.outcomes, f"stopped at {call}: {outcome}"
            _judge(path, outcome, f"stopped at {call}")
        return len(points)


def _begin(race: Race, path: Path) -> None:
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir()
    race.base(path)


def _one_after_the_other(race: Race, path: Path) -> Traced:
    _begin(race, path)
    return trace(lambda say: say(race.first(path, "first")))


def _judge(path: Path, outcome: tuple[str, str], where: str) -> None:
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
        if "replaced" in outcome:
            assert store.get_metadata().model == authors[0], f"{where}: {authors} of {store.get_metadata().model}"
            assert store.get_metadata().labels == {"by": authors[0]}
        store.append_message({"by": "a third"})
    assert verify(path).is_whole
    with suppress(FileNotFoundError):
        assert not [name for name in os.listdir(path) if name.startswith(".tmp-")]


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
def test_all_of_the_second_between_any_two_calls_of_the_first(race: Race, record_property: Note) -> None:
    """P11, P12, P13: one of two writers writes, the other is told why not, and no reader sees a part of either."""
    count = interleave(race)
    record_property("interleavings of two processes", count)
    assert count >= 15


def test_a_lock_that_locks_nobody_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness itself: with a lock that everybody gets, two writers meet."""
    from transcript_store._files import PosixFileSystem

    monkeypatch.setattr(PosixFileSystem, "try_lock", lambda self, handle: True)
    with pytest.raises((AssertionError, TranscriptStoreError)):
        interleave(RACES[3])
