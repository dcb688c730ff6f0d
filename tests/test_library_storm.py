"""Eight processes that create, append, fork and delete in one library, killed at random, and readers that list it meanwhile.

Each says on a pipe what it is about to do, and then that it is done, with the time. At the end the library is held against what was
said: nothing that was acknowledged is lost or there twice, what was deleted is gone, what nobody was told of is whole or absent, and
nothing is left over: no lock, no trash, no half of a create.

What is random is seeded; the seed is printed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.crash.kernel import Note
from tests.kit.children import Child, wait_for_any
from tests.kit.scratch import scratch_directory
from transcript_store import (
    ConversationLibrary,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationStore,
    TranscriptStoreError,
    verify,
)
from transcript_store._conversation import deleting
from transcript_store._os.filesystem import PosixFileSystem

SEED = 20261122
NOBODY = "00000000-0000-4000-8000-000000000000"
WRITERS = 8
MANY = 14
"""With more conversations than that they delete more."""
Say = Callable[[object], None]

REFUSALS: dict[str, tuple[type[TranscriptStoreError], ...]] = {
    "create": (),
    "append": (ConversationNotFoundError, ConversationLockedError),
    "fork": (ConversationNotFoundError,),
    "delete": (ConversationNotFoundError, ConversationLockedError),
}
"""What each may end with, though nothing is wrong: somebody else was faster."""


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch_directory() as directory:
        yield Path(directory) / "chats"
        for child in list(Child.running.values()):  # of a test that failed
            child.end(signal.SIGKILL)


class Deed(NamedTuple):
    """Something that a process began, and what came of it."""

    kind: str
    id: str | None
    """The conversation it is about; None for one that has no id yet."""
    token: str
    """What it wrote, if it wrote something; no other deed has the same."""
    began: int
    ended: int | None
    """None if it was killed before it said so."""
    result: str | None
    """The new conversation, or the error."""

    @property
    def is_done(self) -> bool:
        return self.ended is not None and self.result not in ("refused",)


# ---- what the processes do -------------------------------------------------------------------------------------------


def writer(root: Path, number: int) -> Callable[[Say], None]:
    """Do one thing after another until it is killed."""

    def work(say: Say) -> None:
        try:
            go_on(say)
        except BaseException as error:
            say(json.dumps(["failed", f"{type(error).__name__}: {error}"]))
            raise

    def go_on(say: Say) -> None:
        own = random.Random(f"{SEED} {number}")
        library = ConversationLibrary(root)
        count = 0

        def do(kind: str, id: str | None, act: Callable[[str], str | None]) -> None:
            nonlocal count
            count += 1
            token = f"{number}.{count}"
            say(json.dumps([kind, id, token, time.monotonic_ns()]))
            try:
                result = act(token)
            except REFUSALS[kind]:
                result = "refused"
            say(json.dumps([time.monotonic_ns(), result]))

        def create(token: str, id: str | None) -> str:
            with library.create(id=id, messages=[{"token": token}]) as store:
                return store.get_metadata().id

        def append(store: ConversationStore, token: str) -> None:
            if own.random() < 0.3:
                store.append_messages([{"token": token, "part": 1}, {"token": token, "part": 2}])
            else:
                store.append_message({"token": token, "pad": "x" * own.choice([10, 100_000])})

        while True:
            ids = [name for name in os.listdir(root) if not name.startswith(".")]
            kinds = [*REFUSALS, *(["delete"] * 4 if len(ids) > MANY else ["append"] * 3)]
            kind = own.choice(kinds) if len(ids) > 3 else "create"
            if kind == "create":
                new = str(uuid.UUID(int=own.getrandbits(128), version=4)) if own.random() < 0.5 else None
                do("create", new, partial(create, id=new))
                continue
            chat = own.choice(ids)
            if kind == "fork":
                do("fork", chat, lambda _, chat=chat: library.fork(chat))  # type: ignore[misc]
            elif kind == "delete":
                do("delete", chat, lambda _, chat=chat: library.delete(chat))  # type: ignore[misc]
            else:
                with suppress(*REFUSALS["append"]):
                    store = library.open(chat, durability=own.choice(["power-loss", "process-crash"]))
                    for _ in range(own.randrange(1, 5)):
                        do("append", chat, partial(append, store))
                    store.close()

    return work


def reader(root: Path) -> Callable[[Say], None]:
    """List and read until it is killed; says how often, and what is wrong with what it sees."""

    def work(say: Say) -> None:
        library = ConversationLibrary(root)
        while True:
            found = library.list()
            problems = [summary.damage for summary in found if summary.damage]
            if len({summary.id for summary in found}) != len(found):
                problems.append("twice in the list")
            for summary in found[:3]:
                with suppress(ConversationNotFoundError), library.open(str(summary.id), read_only=True) as store:
                    if not store.get_messages():
                        problems.append("a conversation without its first message")
            say(json.dumps(problems))

    return work


def deeds_of(lines: list[str]) -> list[Deed]:
    deeds: list[Deed] = []
    for line in map(json.loads, lines):
        assert line[0] != "failed", line[1]
        if len(line) == 4:
            kind, about, token, began = line
            deeds.append(Deed(kind, about, token, began, None, None))
        else:
            deeds[-1] = deeds[-1]._replace(ended=line[0], result=line[1])
    return deeds


# ---- the storm -------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_storm_of_eight_processes_in_one_library(root: Path, record_property: Note) -> None:
    """P4, P11, P12, P13: nothing lost, nothing twice, nothing half, no lock left; and readers see whole conversations only."""
    kills = 200
    deeds, looks = storm(root, kills)
    done = [deed.kind for deed in deeds if deed.is_done]
    assert all(done.count(kind) > kills / 4 for kind in REFUSALS), "they hardly got to work: this proved nothing"
    assert looks > kills / 10
    judge(root, deeds)
    print({kind: done.count(kind) for kind in REFUSALS}, f"{looks} looks of readers")
    record_property("kills in a storm on a library", kills)
    record_property("operations acknowledged in a storm on a library", len(done))


def storm(root: Path, kills: int) -> tuple[list[Deed], int]:
    """Returns all that was done, and how often readers looked; what they saw is insisted on here."""
    print(f"seed {SEED}")
    randomly = random.Random(SEED)
    root.mkdir()
    children = {number: Child(writer(root, number)) for number in range(WRITERS)}
    readers = [Child(reader(root)) for _ in range(2)]
    deeds: list[Deed] = []
    for kill in range(kills):
        wait_for_any(children.values(), lines=randomly.randrange(8, 40))
        for child in readers:
            child.has_said()  # or it would wait for somebody who listens
        number = randomly.choice(sorted(children))
        deeds += deeds_of(children.pop(number).end(signal.SIGKILL))
        children[WRITERS + kill] = Child(writer(root, WRITERS + kill))
    for child in children.values():
        deeds += deeds_of(child.end(signal.SIGKILL))
    seen = [json.loads(line) for child in readers for line in child.end(signal.SIGKILL)]
    assert [problems for problems in seen if problems] == []
    return deeds, len(seen)


def judge(root: Path, deeds: list[Deed]) -> None:
    """Hold what is there against what was said."""
    library = ConversationLibrary(root)
    with suppress(ConversationNotFoundError):
        library.delete(NOBODY)  # any change sweeps what killed processes left
    listed = {str(summary.id): summary for summary in library.list()}
    assert [summary.damage for summary in listed.values()] == [None] * len(listed)
    assert sorted(path.name for path in root.iterdir()) == sorted(listed), "something is left over"

    tokens: dict[str, list[str]] = {}
    origins: dict[str, tuple[str, int] | None] = {}
    for chat in listed:
        with library.open(chat) as store:  # no lock is left
            tokens[chat] = [message["token"] for message in store.get_messages()]
            origin = store.get_metadata().forked_from
            origins[chat] = (origin["conversation"], origin["seq"]) if origin else None
        assert verify(root / chat).is_intact
        assert {path.name for path in (root / chat).iterdir()} <= {
            "lock",
            "metadata.json",
            "transcript.jsonl",
            "quarantine",
        }

    begun = {kind: [deed for deed in deeds if deed.kind == kind] for kind in REFUSALS}
    deletes = {deed.id for deed in begun["delete"]}
    for deed in begun["delete"]:
        assert not deed.is_done or deed.id not in listed, f"{deed} came back"
    for deed in [*begun["create"], *begun["fork"]]:
        if deed.is_done:
            assert deed.result in listed or deed.result in deletes, f"{deed} is lost"

    made = {deed.result for deed in [*begun["create"], *begun["fork"]] if deed.is_done}
    killed_forks = [deed.id for deed in begun["fork"] if deed.ended is None]
    killed_creates = {deed.token for deed in begun["create"] if deed.ended is None}
    for chat in listed.keys() - made:  # nobody was told of it
        origin_of = origins[chat]
        if origin_of is None:
            assert tokens[chat][0] in killed_creates, f"{chat} was made by nobody"
            killed_creates.remove(tokens[chat][0])
        else:
            killed_forks.remove(origin_of[0])

    appends = {deed.token: deed for deed in [*begun["create"], *begun["append"]]}
    for chat, found in tokens.items():
        own = found
        if (origin_of := origins[chat]) is not None:
            source, seq = origin_of
            assert source not in tokens or found[:seq] == tokens[source][:seq], (
                f"{chat} is not its original's beginning"
            )
            own = found[seq:]
        assert_once_and_in_order(own)
        for token in own:
            assert appends[token].id in (chat, None), f"{token} was written elsewhere"
        must = [deed.token for deed in begun["append"] if deed.id == chat and deed.is_done]
        assert set(must) <= set(own), f"{chat}: lost {set(must) - set(own)}"
    for deed in begun["fork"]:
        if deed.is_done and deed.result in tokens:
            before = {a.token for a in begun["append"] if a.id == deed.id and a.is_done and (a.ended or 0) < deed.began}
            assert before <= set(tokens[deed.result]), f"{deed} misses what had been appended before it"


def assert_once_and_in_order(tokens: list[str]) -> None:
    """Each once (a batch of two: twice, together), and those of one process as it wrote them."""
    by_writer: dict[str, list[int]] = {}
    for token, following in zip(tokens, [*tokens[1:], ""], strict=False):
        number, count = token.split(".")
        if token != following:
            by_writer.setdefault(number, []).append(int(count))
    for number, counts in by_writer.items():
        assert counts == sorted(set(counts)), f"writer {number}: twice, or out of order: {counts}"


# ---- does the judge object? ------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("bug", ["a lock that everybody gets", "creates are not noted"])
def test_the_storm_would_notice(root: Path, monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    """The harness itself: each of these fails the storm."""
    if bug == "a lock that everybody gets":
        monkeypatch.setattr(PosixFileSystem, "try_lock", lambda self, handle: True)
    else:
        monkeypatch.setattr(deleting, "noted", lambda *_: nullcontext())
    with pytest.raises((AssertionError, TranscriptStoreError, KeyError)):
        deeds, _ = storm(root, 60)
        judge(root, deeds)
