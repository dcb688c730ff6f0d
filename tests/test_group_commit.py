"""Group commit: threads that wait to append are stored together, and none of them can tell but by the clock.

Groups form while a sync is under way. Here a sync waits at a gate until as many calls wait as a test wants, so what is in
a group is no accident.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kit.gate import Gate, LockGate
from tests.kit.interruption import Interruption
from transcript_store import (
    ConversationLockedError,
    ConversationNotLoadedError,
    ConversationStore,
    InvalidMessageError,
    PoisonedError,
    StorageError,
    verify,
)
from transcript_store._conversation.guard import GroupCommit, _Member
from transcript_store._conversation.shared_writer import SharedWriter
from transcript_store._conversation.writer import Writer

FIRST = {"n": "first"}


class Calls:
    """A store with one append at the gate, and calls of other threads that wait behind it."""

    def __init__(
        self,
        directory: Path,
        files: Gate | None = None,
        meanwhile: Callable[[], object] = lambda: None,
        **options: Any,
    ) -> None:
        self.files = files or Gate()
        self.store = ConversationStore(directory, file_system=self.files, **options)
        self.store.initialize()
        meanwhile()
        self.results: dict[object, Any] = {}
        self._threads: list[threading.Thread] = []
        self.files.armed = True
        self.start("first", lambda: self.store.append_message(FIRST))
        assert self.files.arrived.wait(30)
        self.group = self.store._guard.group_commit.open  # who waits in it is nowhere else to be seen

    def start(self, name: object, call: Callable[[], object]) -> None:
        def run() -> None:
            try:
                self.results[name] = call()
            except BaseException as error:
                self.results[name] = error

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def wait(self, name: object, call: Callable[[], object]) -> None:
        """Start a call of another thread, and go on when it is a member of the group that waits."""
        before = len(self.group.members)
        self.start(name, call)
        until = time.monotonic() + 120
        while len(self.group.members) == before and time.monotonic() < until:
            time.sleep(0.0005)
        assert len(self.group.members) > before

    def go(self) -> None:
        """Let the sync through, and wait for all threads."""
        self.files.open.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), "a call hangs"

    def stored(self, directory: Path) -> list[Any]:
        """Close, and see what a fresh reader finds."""
        self.store.close()
        assert verify(directory).is_intact
        with ConversationStore(directory, read_only=True) as fresh:
            fresh.load()
            return fresh.get_messages()


def test_calls_that_wait_share_one_write_and_one_sync(tmp_path):
    """P22, P1, P3: singles, batches and events in one group; each call returns what was stored of its own."""
    calls = Calls(tmp_path / "c")
    for n in range(6):
        calls.wait(n, partial(calls.store.append_message, {"n": n}))
    calls.wait("batch", lambda: calls.store.append_messages([{"n": "a"}, {"n": "b"}]))
    calls.wait("event", lambda: calls.store.append_event({"n": "e"}))
    calls.go()
    assert calls.files.syncs == 2
    assert calls.results["first"].seq == 1
    lines = [json.loads(line) for line in (tmp_path / "c/transcript.jsonl").read_bytes().splitlines()]
    assert [line.get("batch") for line in lines[1:]] == [None, *([k, 9] for k in range(1, 10))]
    content = {line["seq"]: line.get("message", line.get("extra"))["n"] for line in lines[1:]}
    for n in range(6):
        assert content[calls.results[n].seq] == n
        at = calls.results[n].offset_bytes
        line = (tmp_path / "c/transcript.jsonl").read_bytes()[at : at + calls.results[n].length_bytes]
        assert json.loads(line) == lines[calls.results[n].seq]
    assert [content[stored.seq] for stored in calls.results["batch"]] == ["a", "b"]
    assert calls.results["batch"][1].seq == calls.results["batch"][0].seq + 1
    assert content[calls.results["event"].seq] == "e"
    assert len(calls.stored(tmp_path / "c")) == 9


def test_no_call_returns_before_its_own_message_is_synced(tmp_path):
    """P1, P22: eight threads append for a while; at each return the bytes of that message were synced before."""
    files = Gate()
    store = ConversationStore(tmp_path / "c", file_system=files)
    store.initialize()
    too_early: list[int] = []

    def work(number: int) -> None:
        for n in range(60):
            stored = store.append_message({"thread": number, "n": n})
            if files.synced_bytes < stored.offset_bytes + stored.length_bytes:
                too_early.append(stored.seq)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not too_early
    assert files.syncs < 480 / 1.5, "the threads shared next to nothing: this proved little"
    store.close()
    found = verify(tmp_path / "c")
    assert found.is_intact
    assert found.records == 480


def test_a_full_disk_refuses_only_what_does_not_fit(tmp_path):
    """P7, P22: what is refused together is tried alone: small messages are stored, the large one gets the error."""
    calls = Calls(tmp_path / "c")
    for n in range(4):
        calls.wait(n, partial(calls.store.append_message, {"n": n}))
    calls.wait("large", lambda: calls.store.append_message({"n": "x" * 2000}))
    calls.files.refuse_longer_than = 500
    calls.go()
    assert type(calls.results["large"]) is StorageError
    assert calls.results["large"].errno == errno.ENOSPC
    assert sorted(calls.results[n].seq for n in range(4)) == [2, 3, 4, 5]
    assert sorted(message["n"] for message in calls.stored(tmp_path / "c")[1:]) == [0, 1, 2, 3]


def test_a_refused_single_append_is_not_retried(tmp_path):
    """P7: the only member of a group hears at once that the disk is full."""
    calls = Calls(tmp_path / "c")
    calls.wait("refused", lambda: calls.store.append_message({"n": "refused"}))
    calls.files.refuse_longer_than = 10
    calls.go()
    assert type(calls.results["refused"]) is StorageError
    assert calls.files.refused == 1
    assert calls.stored(tmp_path / "c") == [FIRST]


def test_a_line_that_is_too_long_only_together(tmp_path):
    """P15, P22: a line that just fits alone is stored, though a batch's mark makes it too long; others are not blamed."""
    fits = {"n": "x" * (1024 - len('{"seq":2,"at":"2026-11-22T00:00:00.000000Z","message":{"n":""}}') - 43)}
    calls = Calls(tmp_path / "c", max_line_bytes=1024)
    calls.wait(0, lambda: calls.store.append_message(fits))
    calls.wait(1, lambda: calls.store.append_message({"n": 1}))
    calls.wait(2, lambda: calls.store.append_message({"n": "x" * 1000}))
    calls.go()
    assert calls.results[0].length_bytes > 1024 - len(',"batch":[1,3]'), "it would have fitted anyway"
    assert calls.results[1].seq in (2, 3)
    assert type(calls.results[2]) is InvalidMessageError
    assert calls.results[2].member == "message"
    assert len(calls.stored(tmp_path / "c")) == 3


def test_a_failed_sync_is_told_to_all_who_were_in_the_batch(tmp_path):
    """P6, P22: everyone in the batch hears that its fate is unknown; who comes later, that the store is poisoned."""
    calls = Calls(tmp_path / "c")
    for n in range(3):
        calls.wait(n, partial(calls.store.append_message, {"n": n}))
    calls.files.refuse_sync = True
    calls.go()
    assert calls.results["first"].seq == 1
    for n in range(3):
        assert type(calls.results[n]) is StorageError
        assert "unknown" in str(calls.results[n])
    with pytest.raises(PoisonedError):
        calls.store.append_message({"n": "later"})
    calls.files.refuse_sync = False
    calls.store.load()
    assert calls.store.get_messages()[0] == FIRST
    assert len(calls.store.get_messages()) in (1, 4)
    calls.store.close()


def test_a_store_that_is_closed_before_the_group_had_its_turn(tmp_path):
    """P22: nobody's message is stored after a close, and everyone is told."""
    calls = Calls(tmp_path / "c")
    refuse = ConversationNotLoadedError(path="/c", reason="closed")

    def closed() -> Any:
        raise refuse

    calls.store._guard.writer = closed  # type: ignore[method-assign]
    for n in range(3):
        calls.wait(n, partial(calls.store.append_message, {"n": n}))
    calls.go()
    assert [calls.results[n] for n in range(3)] == [refuse] * 3
    assert calls.stored(tmp_path / "c") == [FIRST]


def test_a_message_with_an_unreadable_extra_joins_no_group(tmp_path):
    """P15: what cannot be stored is refused before anybody waits for it."""
    calls = Calls(tmp_path / "c")
    with pytest.raises(InvalidMessageError):
        calls.store.append_message({"n": 1}, extra={"n": float("nan")})
    assert calls.group.members == []
    calls.go()
    calls.store.close()


@pytest.mark.parametrize("followers", [1, 3])
@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.long)])
def test_a_leader_interrupted_at_every_line(tmp_path, followers, step):
    """P21, P22: whoever waits behind a leader that is interrupted anywhere is stored once; the leader's own message is
    there if its call returned, and not twice; nobody hangs.
    """
    taken_over = stored_all_the_same = 0
    for nth in range(1, 10_000, step):
        directory = tmp_path / str(nth)
        calls = Calls(directory)

        given_up = threading.Event()

        def follow(calls: Calls = calls, given_up: threading.Event = given_up) -> None:
            until = time.monotonic() + 120
            while not calls.group.members and not given_up.is_set() and time.monotonic() < until:
                time.sleep(0.0002)
            for n in range(followers):
                calls.wait(n, partial(calls.store.append_message, {"n": n}))
            calls.files.open.set()

        thread = threading.Thread(target=follow)
        thread.start()
        interruption, returned = Interruption(nth), False
        try:
            with interruption:
                calls.store.append_message({"n": "leader"})
                returned = True
        except KeyboardInterrupt:
            given_up.set()
            at_once = {"n": "leader"} in calls.store.get_messages()
        else:
            at_once = True
        thread.join(30)
        calls.go()
        where = interruption.where
        seen = Counter(message["n"] for message in calls.store.get_messages())
        assert seen == Counter(message["n"] for message in calls.stored(directory)), where
        assert seen["leader"] <= 1, f"interrupted at {where}: stored twice"
        assert seen["leader"] == at_once, f"interrupted at {where}: the next call did not tell how it ended"
        for n in range(followers):
            assert not isinstance(calls.results[n], BaseException), f"interrupted at {where}: {calls.results[n]!r}"
            assert seen[n] == 1, f"interrupted at {where}: message {n} is there {seen[n]} times"
        taken_over += not seen["leader"]
        stored_all_the_same += seen["leader"] and not returned
        if where is None:
            assert returned
            break
    assert taken_over > 20 // step
    assert stored_all_the_same > 3 // step, "interruptions before and after the write are both among them"


class Held:
    """The lock of a group, whose second holder waits until it may go on."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.holders = 0
        self.go = threading.Event()

    def __enter__(self) -> None:
        self.lock.acquire()
        self.holders += 1
        if self.holders == 2:
            assert self.go.wait(30)

    def __exit__(self, *_: object) -> None:
        self.lock.release()


@pytest.mark.parametrize("by_another", [False, True])
@pytest.mark.parametrize("stored", [True, False])
def test_an_interrupted_group_is_decided_before_the_transcript_is_replaced(tmp_path, monkeypatch, stored, by_another):
    """P21, P22: nothing is stored twice, once in what the replace read and once behind it; nor lost if it was not stored. That
    holds too if another process replaces it, in its turn.
    """
    calls = Calls(tmp_path / "c", hold_lock=not by_another)
    held = calls.group.leading = Held(calls.group.leading)  # type: ignore[assignment]
    answer, store = GroupCommit._answer, Writer.store

    def interrupted(*_: object) -> None:
        monkeypatch.setattr(GroupCommit, "_answer", staticmethod(answer))
        monkeypatch.setattr(Writer, "store", store)
        raise KeyboardInterrupt

    for n in range(2):
        calls.wait(n, partial(calls.store.append_message, {"n": n}))
    if stored:
        monkeypatch.setattr(GroupCommit, "_answer", staticmethod(interrupted))
    else:
        calls.files.armed = False  # the first append has passed the place
        monkeypatch.setattr(Writer, "store", interrupted)
    calls.files.open.set()
    until = time.monotonic() + 120
    while not any(isinstance(result, KeyboardInterrupt) for result in calls.results.values()):
        assert time.monotonic() < until
        time.sleep(0.001)
    with ConversationStore(tmp_path / "c", hold_lock=False) if by_another else nullcontext(calls.store) as replacing:
        if by_another:
            replacing.load()
        replacing.replace_transcript([*replacing.get_messages(), {"n": "compacted"}])
        held.go.set()
    calls.go()
    (interrupted_one,) = [n for n in range(2) if isinstance(calls.results[n], KeyboardInterrupt)]
    other = 1 - interrupted_one
    assert calls.results[other].seq == (3 if other else 2) if stored else 3
    seen = [message["n"] for message in calls.stored(tmp_path / "c")]
    assert seen == (["first", 0, 1, "compacted"] if stored else ["first", "compacted", other])


def test_a_lock_that_is_not_got_is_waited_for_once_by_all_that_wait(tmp_path):
    """A lock_timeout_seconds is as long for many threads as for one. The incident: each waited again when the one before had
    waited in vain, so that of twenty threads the last was told after twenty times that long.
    """
    gate = LockGate()
    with ConversationStore(tmp_path / "c") as holder:
        calls = Calls(tmp_path / "c", gate, holder.load, hold_lock=False, lock_timeout_seconds=1)
        for n in range(19):
            calls.wait(n, partial(calls.store.append_message, {"n": n}))
        calls.go()
        assert len(calls.results) == 20
        assert {type(result) for result in calls.results.values()} == {ConversationLockedError}
        assert gate.waited_seconds < 3, "once for the first, once for all others"
        assert holder.get_messages() == []
    assert calls.store.append_message({"n": "goes on"}).seq == 1
    calls.store.close()


def test_a_lock_that_is_not_got_says_nothing_of_what_may_be_stored(tmp_path, monkeypatch):
    """P21: a leader stored the group and was interrupted, and the next one does not get the lock. The third is not told that nothing
    was done: it finds its message, which is there once.
    """
    calls = Calls(tmp_path / "c", hold_lock=False)
    held = calls.group.leading = Held(calls.group.leading)  # type: ignore[assignment]
    for n in range(3):
        calls.wait(n, partial(calls.store.append_message, {"n": n}))
    answer, begin_call = GroupCommit._answer, SharedWriter.begin_call

    def interrupted(*_: object) -> None:
        monkeypatch.setattr(GroupCommit, "_answer", staticmethod(answer))
        raise KeyboardInterrupt

    def locked(_: SharedWriter) -> None:
        monkeypatch.setattr(SharedWriter, "begin_call", begin_call)
        raise ConversationLockedError(path="c", reason="somebody has it")

    monkeypatch.setattr(GroupCommit, "_answer", staticmethod(interrupted))
    calls.files.open.set()
    until = time.monotonic() + 120
    while not any(isinstance(result, KeyboardInterrupt) for result in calls.results.values()):
        assert time.monotonic() < until
        time.sleep(0.001)
    monkeypatch.setattr(SharedWriter, "begin_call", locked)
    held.go.set()
    calls.go()
    kinds = sorted(type(calls.results[n]).__name__ for n in range(3))
    assert kinds == ["AppendResult", "ConversationLockedError", "KeyboardInterrupt"]
    assert [message["n"] for message in calls.stored(tmp_path / "c")] == ["first", 0, 1, 2]


def test_what_was_stored_together_is_not_asked_for_again(tmp_path, monkeypatch):
    """P22: once a group has its answers nothing of it is undecided: a replace behind it need not look whether it is there."""
    calls = Calls(tmp_path / "c")
    for n in range(3):
        calls.wait(n, partial(calls.store.append_message, {"n": n}))
    calls.go()

    def asked(*_: object) -> bool:
        raise AssertionError("whether a batch is there was asked, and nothing was interrupted")

    monkeypatch.setattr(Writer, "holds", asked)
    calls.store.replace_transcript([{"n": "compacted"}])
    assert calls.store.get_messages() == [{"n": "compacted"}]
    calls.store.close()


def test_a_leader_interrupted_between_its_write_and_what_it_remembers(tmp_path, monkeypatch):
    """P21, P22: the next member looks at the file before it asks whether the batch is there; nothing is stored twice."""
    calls = Calls(tmp_path / "c")
    sync = Gate.sync_data

    def interrupted(files: Gate, handle: int) -> None:
        sync(files, handle)
        if files.syncs > interrupted_after:
            monkeypatch.setattr(Gate, "sync_data", sync)
            raise KeyboardInterrupt

    for n in range(2):
        calls.wait(n, partial(calls.store.append_message, {"n": n}))
    interrupted_after = calls.files.syncs + 1  # the one at the gate, and then the group's
    monkeypatch.setattr(Gate, "sync_data", interrupted)
    calls.go()
    assert sorted(type(result).__name__ for result in calls.results.values()) == [
        "AppendResult",
        "AppendResult",
        "KeyboardInterrupt",
    ]
    assert [message["n"] for message in calls.stored(tmp_path / "c")] == ["first", 0, 1]


def test_a_signal_handler_that_appends_while_its_thread_waits_to_lead(tmp_path):
    """P22: the handler's call stores the waiting one too, or the reverse; neither is lost, twice, or waits for ever."""
    calls = Calls(tmp_path / "c")
    outcomes: list[int] = []

    def handler(*_: object) -> None:
        calls.files.open.set()
        outcomes.append(calls.store.append_message({"n": "handler"}).seq)

    def strike() -> None:
        while not calls.group.members:
            time.sleep(0.0005)
        time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        thread = threading.Thread(target=strike)
        thread.start()
        outcomes.append(calls.store.append_message({"n": "waits"}).seq)
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    calls.go()
    assert sorted(outcomes) == [2, 3]
    assert sorted(message["n"] for message in calls.stored(tmp_path / "c")[1:]) == ["handler", "waits"]


def test_a_thread_on_its_own_needs_no_group(tmp_path, monkeypatch):
    """Neither before others came nor after: what one thread alone waits for is its write and its sync."""
    calls = Calls(tmp_path / "c")
    calls.wait("second", lambda: calls.store.append_message({"n": "second"}))
    calls.go()
    calls.files.refuse_longer_than = 10
    with pytest.raises(StorageError):
        calls.store.append_message({"n": "refused"})
    calls.files.refuse_longer_than = None
    assert calls.store.append_message({"n": "after a refusal"}).seq == 3
    monkeypatch.setattr("transcript_store._conversation.guard._Member", None)
    assert calls.store.append_message({"n": "alone"}).seq == 4
    assert calls.store.append_message({"n": "alone again"}).seq == 5
    calls.store.close()


def test_a_call_behind_the_leader_of_a_group_joins_the_next_group(tmp_path):
    """P22: also while a group is stored, and not only a single call, whoever comes waits with the others."""
    calls = Calls(tmp_path / "c")
    calls.wait("second", lambda: calls.store.append_message({"n": "second"}))
    first_may_go, calls.files.open = calls.files.open, threading.Event()
    calls.files.arrived.clear()
    calls.files.armed = True
    first_may_go.set()
    assert calls.files.arrived.wait(30)
    calls.group = calls.store._guard.group_commit.open
    calls.wait("third", lambda: calls.store.append_message({"n": "third"}))
    calls.go()
    assert [message["n"] for message in calls.stored(tmp_path / "c")] == ["first", "second", "third"]


def test_a_new_caller_joins_the_waiting_group(tmp_path):
    """P22: between two leaders nobody is at work for a moment; whoever comes then joins those who wait."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize()
        waiting = store._guard.group_commit.open
        waiting.members.append(_Member(()))
        assert store.append_message(FIRST).seq == 1
        assert len(waiting.members) == 2
        assert store._guard.group_commit.open is not waiting
