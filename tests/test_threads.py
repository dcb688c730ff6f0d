"""One store, many threads: every call is atomic, ``seq`` is the order, nothing is written twice or lost.

An agent that runs its tools in threads appends from all of them. A peer's list-and-file store lost one message in some
thousands that way: two threads read the same length, and both wrote there. So the threads here switch after a
microsecond, and what they wrote is counted.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from transcript_store import ConversationNotLoadedError, ConversationStore, verify
from transcript_store._conversation.guard import StorageGuard

THREADS = 8


@pytest.fixture(autouse=True)
def _switch_threads_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(work: Callable[[int], None], count: int = THREADS, *, meeting: threading.Barrier | None = None) -> None:
    """Run ``work(0)``, ``work(1)`` … in threads that begin together; the first error of any of them is raised.

    Nobody waits at ``meeting``, where they meet while they work, for one that failed.
    """
    barrier = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as error:  # raised again below
            errors.append(error)
            if meeting is not None:
                meeting.abort()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def stored_lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "transcript.jsonl").read_bytes().split(b"\n")[1:-1]]


@pytest.mark.parametrize(("durability", "rounds"), [("process-crash", 50), ("power-loss", 10)])
def test_eight_threads_append(tmp_path, durability, rounds):
    """P22: singles, batches and events of eight threads are each stored once, without gaps, in each thread's own order,
    batches in one piece, and what each call returned is true.
    """
    store = ConversationStore(tmp_path / "c", durability=durability)
    store.initialize()
    returned: dict[int, dict[str, Any]] = {}
    reads = 0
    round_begins = threading.Barrier(THREADS, timeout=60)

    def work(number: int) -> None:
        nonlocal reads
        for n in range(rounds):
            round_begins.wait()  # on a busy machine a thread may otherwise be through before the next one has begun
            own = [{"thread": number, "n": 4 * n + k} for k in range(4)]
            appended = [store.append_message(own[0]), *store.append_messages(own[1:3]), store.append_event(own[3])]
            for record, result in zip(own, appended, strict=True):
                returned[result.seq] = record
            if n % 10 == number:
                records = store.get_records()
                reads += 1
                assert [record.seq for record in records] == list(range(1, len(records) + 1))
                assert len(store.get_messages(last=5)) <= 5
                assert store.get_metadata().updated_at >= records[-1].at

    in_threads(work, meeting=round_begins)
    store.close()
    with ConversationStore(tmp_path / "c") as fresh:
        fresh.load()
        records = fresh.get_records()
        assert fresh.recovery is None
    everything = [record.message or record.extra or {} for record in records]
    assert [record.seq for record in records] == list(range(1, THREADS * rounds * 4 + 1))
    assert {record.seq: content for record, content in zip(records, everything, strict=True)} == returned
    assert set(Counter(map(str, everything)).values()) == {1}
    order: dict[int, list[int]] = defaultdict(list)
    for content in everything:
        order[content["thread"]].append(content["n"])
    assert order == {number: list(range(rounds * 4)) for number in range(THREADS)}
    lines = stored_lines(tmp_path / "c")
    for first, second in pairwise(lines):
        if first.get("message", {}).get("n", 0) % 4 == 1:  # the first of a batch of two
            (k, count), own = first["batch"], first["message"]
            assert second["batch"] == [k + 1, count]
            assert second["message"] == {"thread": own["thread"], "n": own["n"] + 1}
    switches = sum(a["thread"] != b["thread"] for a, b in pairwise(everything))
    assert switches >= rounds * (THREADS - 1), "the threads did not take turns: this proved nothing"
    assert reads > 0
    assert verify(tmp_path / "c").is_intact


def test_threads_that_append_update_replace_and_reload(tmp_path):
    """P22: with every operation in the mix each stays atomic: no message twice, none from nowhere, metadata in step."""
    store = ConversationStore(tmp_path / "c", durability="process-crash")
    store.initialize(messages=[{"generation": 0}])
    rounds = 25
    replaced = [0]
    appended: set[tuple[int, int]] = set()

    def work(number: int) -> None:
        for n in range(rounds):
            if number == 0:
                store.replace_transcript([{"generation": n + 1}], compaction_count=n + 1)
                replaced[0] += 1
            elif number == 1:
                store.update_metadata(model=f"m{n}", labels={"n": str(n)})
            elif number == 2:
                metadata = store.get_metadata()
                assert metadata.generation == metadata.compaction_count
                assert metadata.labels == ({"n": (metadata.model or "m")[1:]} if metadata.model else {})
            elif number == 3 and n % 5 == 0:
                store.load()
            elif number == 4:
                messages = store.get_messages()
                assert "generation" in messages[0]
                assert all("generation" not in message for message in messages[1:])
            else:
                store.append_messages([{"thread": number, "n": n, "k": k} for k in range(3)])
                appended.add((number, n))

    in_threads(work)
    store.close()
    found = verify(tmp_path / "c")
    assert found.is_intact
    assert found.generation == replaced[0] == rounds
    assert found.archived_generations == tuple(range(rounds))
    seen: list[tuple[int, int, int]] = []
    paths = [*sorted((tmp_path / "c/archive").iterdir()), tmp_path / "c/transcript.jsonl"]
    for generation, path in enumerate(paths):
        first, *rest = [json.loads(line)["message"] for line in path.read_bytes().split(b"\n")[1:-1]]
        assert first == {"generation": generation}
        seen += [(message["thread"], message["n"], message["k"]) for message in rest]
    assert sorted(seen) == sorted((thread, n, k) for thread, n in appended for k in range(3))
    assert len(appended) == 3 * rounds + rounds - 5
    with ConversationStore(tmp_path / "c", read_only=True) as reader:
        reader.load()
        assert reader.get_metadata().model == f"m{rounds - 1}"
        assert reader.get_metadata().compaction_count == rounds


def test_a_close_between_the_calls_of_other_threads(tmp_path):
    """P22: threads whose store is closed under them are told so; what was acknowledged before is stored."""
    store = ConversationStore(tmp_path / "c", durability="process-crash")
    store.initialize()
    acknowledged: list[int] = []
    refused: list[int] = []

    def work(number: int) -> None:
        if number == 0:
            while len(acknowledged) < 200:
                pass
            store.close()
            return
        for n in range(2000):
            try:
                acknowledged.append(store.append_message({"id": number * 10_000 + n}).seq)
            except ConversationNotLoadedError:
                refused.append(number)
                return

    in_threads(work)
    assert len(refused) > 0
    with ConversationStore(tmp_path / "c") as fresh:
        fresh.load()
        assert len(fresh.get_messages()) == len(acknowledged)
    assert sorted(acknowledged) == list(range(1, len(acknowledged) + 1))


def test_readers_in_threads_beside_a_writer(tmp_path):
    """P22, P12: one reader that several threads refresh and read shows whole batches in order, always."""
    writer = ConversationStore(tmp_path / "c", durability="process-crash")
    writer.initialize()
    reader = ConversationStore(tmp_path / "c", read_only=True)
    reader.load()
    done = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            try:
                for n in range(150):
                    writer.append_messages([{"n": 3 * n + k} for k in range(3)])
            finally:
                done.set()
            return
        longest = 0
        while not done.is_set():
            assert not reader.refresh().started_over
            messages = [message["n"] for message in reader.get_messages()]
            assert messages == list(range(len(messages)))
            assert len(messages) % 3 == 0
            assert len(messages) >= longest
            longest = len(messages)

    in_threads(work, 4)
    reader.refresh()
    assert len(reader.get_messages()) == 450
    reader.close()
    writer.close()


OPERATIONS: dict[str, Callable[[ConversationStore], object]] = {
    "append_message": lambda s: s.append_message({"n": "handler"}),
    "append_messages": lambda s: s.append_messages([{"n": "handler"}]),
    "append_event": lambda s: s.append_event({}),
    "replace_transcript": lambda s: s.replace_transcript([]),
    "update_metadata": lambda s: s.update_metadata(model="m"),
    "get_messages": lambda s: s.get_messages(),
    "get_metadata": lambda s: s.get_metadata(),
    "head": lambda s: s.head,
    "load": lambda s: s.load(),
    "close": lambda s: s.close(),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_call_from_a_signal_handler_during_a_call(tmp_path, operation):
    """P22: a signal handler that calls the store while a call is under way gets a RuntimeError, at once and harmlessly."""
    from transcript_store._os.filesystem import PosixFileSystem

    class Interrupted(PosixFileSystem):
        """Gets a signal in the middle of each sync of an append."""

        armed = False

        def sync_data(self, handle: int) -> None:
            if self.armed:
                os.kill(os.getpid(), signal.SIGUSR1)
            os.fsync(handle)

    files = Interrupted()
    store = ConversationStore(tmp_path / "c", file_system=files)
    store.initialize(messages=[{"n": 0}])
    outcomes: list[object] = []

    def handler(*_: object) -> None:
        try:
            outcomes.append(OPERATIONS[operation](store))
        except RuntimeError as error:
            outcomes.append(error)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        files.armed = True
        store.append_message({"n": 1})
        files.armed = False
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(outcomes) == 1
    assert type(outcomes[0]) is RuntimeError
    assert "under way" in str(outcomes[0])
    store.append_message({"n": 2})
    assert store.get_messages() == [{"n": 0}, {"n": 1}, {"n": 2}]
    store.close()
    assert verify(tmp_path / "c").is_intact


def test_a_signal_handler_that_appends_between_calls(tmp_path):
    """P22: between calls a signal handler may use the store; whenever it strikes, each of its appends is stored or refused."""
    store = ConversationStore(tmp_path / "c", durability="process-crash")
    store.initialize()
    stored: list[int] = []
    refused = 0

    def handler(*_: object) -> None:
        nonlocal refused
        try:
            stored.append(store.append_event({"handler": len(stored)}).seq)
        except RuntimeError:
            refused += 1

    before = signal.signal(signal.SIGALRM, handler)
    measuring = sys.gettrace()
    sys.settrace(None)  # a coverage measurement has a lock of its own, which the handler would wait for
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        own = [store.append_message({"n": n}).seq for n in range(3000)]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.settrace(measuring)
    store.close()
    with ConversationStore(tmp_path / "c") as fresh:
        fresh.load()
        records = fresh.get_records()
    assert [record.message for record in records if record.message] == [{"n": n} for n in range(3000)]
    assert sorted([*own, *stored]) == [record.seq for record in records]
    assert stored or refused, "the timer did not strike"


def test_the_harness_would_notice_a_store_without_its_mutex(tmp_path, monkeypatch):
    """The harness itself: with a mutex that excludes nobody, eight threads must break something."""

    class Open:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(StorageGuard, "locked", lambda self: Open())
    logging.getLogger("transcript_store").setLevel(logging.CRITICAL)
    try:
        with pytest.raises(BaseException):  # noqa: B017  # whatever breaks first
            test_eight_threads_append(tmp_path, "process-crash", 120)
    finally:
        logging.getLogger("transcript_store").setLevel(logging.NOTSET)
