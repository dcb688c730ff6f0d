"""The same library: every operation has the same result, to the byte, on a conversation in a folder and on a backend.

Two libraries get the same calls, under one clock that stands still between two calls. Each call returns the same, or raises the same error; and
after each of them all that can be read is the same: messages, records of every generation, metadata, position. The hashes are among it, so
each line is the same, too. Long random sequences stand for every behaviour test of a conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest

from transcript_store import ConversationLibrary, ConversationStore, TranscriptStoreError, snapshot_of
from transcript_store.testing import SimulatedBackend, SimulatedFileSystem

ID = "6f1c2c0e-53cb-4d7e-8a5f-0a3a1c7d9e21"


class StillMachine(SimulatedFileSystem):
    """Its clock moves when the test says so."""

    def now_us(self) -> int:
        return self.clock_us


class Twins:
    """One conversation in a folder, and the same on a backend."""

    def __init__(self, backend: SimulatedBackend, **options: Any) -> None:
        self.machines = StillMachine(), StillMachine()
        self.libraries = (
            ConversationLibrary("/library", file_system=self.machines[0]),
            ConversationLibrary(backend, file_system=self.machines[1]),
        )
        self._options = {"take_over": True, **options}
        self.stores: list[ConversationStore] = []

    def both(self, call: Callable[[Any], Any], things: Any = None) -> Any:
        for machine in self.machines:
            machine.clock_us += 1_000_000
        told = [outcome(call, thing) for thing in things or self.stores]
        assert told[0] == told[1]
        return told[0]

    def create(self, **contents: Any) -> None:
        self.stores = [library.create(id=ID, **contents, **self._options) for library in self.libraries]

    def open_anew(self) -> None:
        for store in self.stores:
            store.close()
        self.stores = [library.open(ID, **self._options) for library in self.libraries]

    def compare(self) -> None:
        self.both(everything)

    def close(self) -> None:
        for store in self.stores:
            store.close()


def outcome(call: Callable[[Any], Any], thing: Any) -> Any:
    try:
        return call(thing)
    except (TranscriptStoreError, ValueError, TypeError) as error:
        return type(error), getattr(error, "reason", "")


def everything(store: ConversationStore) -> Any:
    generations = store.generations()
    return (
        store.id,
        store.features,
        store.position,
        store.get_messages(),
        store.get_messages(last=2),
        store.get_metadata(),
        store.get_metadata(at_start=True),
        generations,
        [store.get_records(generation=each.number) for each in generations],
        [*store.iter_records(after_seq=2)],
        store.recovery,
    )


def said(random: Random) -> dict[str, Any]:
    return {
        "role": random.choice(["user", "assistant"]),
        "content": "密 " * random.randrange(40) + str(random.random()),
    }


def steps(random: Random) -> Iterator[Callable[[ConversationStore], Any]]:
    """What is done to a conversation, one after the other."""

    def some(most: int = 3) -> list[dict[str, Any]]:
        return [said(random) for _ in range(random.randrange(most + 1))]

    while True:
        messages, n, other = some(), random.randrange(6), said(random)
        times = [random.choice([None, "2020-01-01T00:00:00Z", "2026-09-21T14:00:00Z"]) for _ in messages]
        extras: list[Any] = [random.choice([None, {"usage": n}]) for _ in messages]
        acts: list[Callable[..., Any]] = [
            lambda store, m=other: store.append_message(m, extra={"n": 1}),
            lambda store, m=messages, x=extras, t=times: store.append_messages(m, extras=x, times=t),
            lambda store, n=n: store.append_event({"event": n}),
            lambda store, m=other: store.append_message(m, if_head=store.head),
            lambda store, m=other: store.append_message(m, if_head="0" * 32),
            lambda store, n=n: store.retract(n),
            lambda store, m=messages: store.replace_transcript(m, compaction_count=len(m)),
            lambda store, m=messages, h="0" * 32: store.replace_transcript(m, if_head=h),
            lambda store, m=messages: store.replace_transcript(m, features=["retract"]),
            lambda store, n=n: store.keep_records(range(1, min(n, store.record_count) + 1), model=f"m{n}"),
            lambda store, n=n: store.keep_records([n + 1]),
            lambda store, n=n: store.update_metadata(labels={"title": f"t{n}"}, system_prompt="p" * n),
            lambda store: store.update_metadata(colour="red"),
            lambda store: store.append_message({"x": object()}),
            lambda store: store.purge_quarantine(),
            lambda store, n=n: store.get_records(generation=n),
            lambda store: snapshot_of(store).messages,
            lambda store, m=messages: store.restore(m, provider="claude"),
            lambda store: (store.state().position, store.torn_tail, store.is_fully_verified),
        ]
        yield random.choice(acts)


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("options", [{}, {"cache_bytes": 0}, {"hold_lock": False}])
def test_every_call_has_the_same_result_as_in_a_folder(backend: SimulatedBackend, seed: int, options: dict[str, Any]):
    """R2, R7, and the documentation of each ``ConversationStore`` call: on a backend as in a folder."""
    random = Random(seed)
    twins = Twins(backend, **options)
    twins.create(provider="claude", features=["retract"], messages=[said(random) for _ in range(seed)])
    with ExitStack() as stack:
        stack.callback(twins.close)
        for number, step in zip(range(40), steps(random), strict=False):
            twins.both(step)
            if number % 5 == 4:
                twins.compare()
            if number % 13 == 12:
                twins.open_anew()
                twins.compare()
    for library in twins.libraries:
        found = library.verify(ID)
        assert (found.is_intact, found.archived_generations) == (True, tuple(range(found.generation or 0)))


@pytest.mark.parametrize("through_seq", [None, 0, 3, 99])
def test_a_fork_is_the_same_wherever_it_is_made(backend: SimulatedBackend, through_seq: int | None):
    """Between folders and backends in all directions: the records are the same bytes, and the fork names its origin."""
    twins = Twins(backend)
    twins.create(messages=[{"n": n} for n in range(5)], labels={"title": "t"})
    twins.close()
    forks = []
    for source in twins.libraries:
        for into in twins.libraries:
            try:
                fork = source.fork(ID, through_seq=through_seq, into=into)
            except ValueError:
                assert through_seq == 99
                continue
            with into.open(fork) as store:
                forks.append((store.get_records(), store.get_metadata().forked_from, store.get_metadata().labels))
                store.append_message({"n": "of the fork"})
            assert into.verify(fork).is_intact
    assert all(each == forks[0] for each in forks)
    assert len(forks) == (0 if through_seq == 99 else 4)


def test_a_list_is_the_same(backend: SimulatedBackend):
    """R11: the newest first, page by page, with what was left at the close; what was deleted is not in it."""
    twins = Twins(backend)
    for n in range(7):
        for machine in twins.machines:
            machine.clock_us += 1_000_000
        for library in twins.libraries:
            with library.create(id=f"{ID[:-1]}{n}", labels={"title": f"t{n}"}, provider="claude") as store:
                store.append_message({"n": n})
    for library in twins.libraries:
        library.delete(f"{ID[:-1]}3")
    lists = [
        [(s.id, s.title, s.labels, s.provider, s.updated_at, s.record_count, s.generation, s.size_bytes) for s in found]
        for found in (library.list() for library in twins.libraries)
    ]
    assert lists[0] == lists[1]
    assert [title for _, title, *_ in lists[1]] == ["t6", "t5", "t4", "t2", "t1", "t0"]
    for library in twins.libraries:
        assert [summary.title for summary in library.iter_list()] == ["t6", "t5", "t4", "t2", "t1", "t0"]
        page = library.list(limit=2)
        titles = []
        while page:
            titles.append([summary.title for summary in page])
            page = library.list(limit=2, before=page[-1])
        assert titles == [["t6", "t5"], ["t4", "t2"], ["t1", "t0"]]
        assert library.list(limit=0) == []
