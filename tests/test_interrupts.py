"""Ctrl-C at every line of every operation leaves no gap, no torn line and no lock behind.

The incident that this file remembers is a common one: an exception that is no error of the disk (KeyboardInterrupt, a
signal handler that raises, MemoryError) leaves a store between "written" and "remembered as written", and the next append
goes to a place that memory only believes in. So a trace function raises KeyboardInterrupt at the nth line that the package
executes, for every n; then the same store goes on, and a fresh one looks at what it left.

Which lines count: a signal is delivered where CPython looks for one, which is after calls, at the start of functions and
at backward jumps. Nearly every line event can stand for such a place. The exception is the line event on a ``with``
statement that is being *left*: between the body's last call (an exception there runs ``__exit__``) and the call of
``__exit__`` itself CPython does not look, so an exception there is one that cannot happen, and those events are skipped.
"""

from __future__ import annotations

import errno
import gc
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import transcript_store
from tests.kit.cases import for_each
from tests.kit.interruption import Interruption, every_line
from tests.kit.machines import HASTY
from transcript_store import (
    ConversationChangedError,
    ConversationNotFoundError,
    ConversationStore,
    FileStore,
    Repair,
    Snapshot,
    repair,
    verify,
)
from transcript_store._conversation.shared_writer import SharedWriter
from transcript_store._conversation.writer import Writer
from transcript_store._snapshots import file_store
from transcript_store.testing import FileSystemCall, SimulatedFileSystem

pytestmark = pytest.mark.usefixtures("quiet")
NEW = {"role": "user", "content": "after the interruption"}


# ---- what must hold afterwards ---------------------------------------------------------------------------------------


def go_on(store: ConversationStore, directory: Path, allowed: list[list[Any]], where: str) -> None:
    """Append with the interrupted store, close it, and load what it left in a fresh one."""
    messages = store.get_messages()
    assert messages in allowed, f"interrupted at {where}: the store shows {messages}"
    store.append_message(NEW)
    store.close()
    found = verify(directory)
    assert found.is_intact, f"interrupted at {where}: {found.findings}"
    with ConversationStore(directory) as fresh:
        fresh.load()
        assert fresh.get_messages() == [*messages, NEW], f"interrupted at {where}"
        assert [record.seq for record in fresh.get_records()] == list(range(1, len(fresh.get_records()) + 1))
        assert fresh.recovery is None, f"interrupted at {where}: {fresh.recovery}"
    leftover = [name for name in os.listdir(directory) if name.startswith(".tmp-")]
    assert not leftover, f"interrupted at {where}: {leftover} stay behind"


steps = pytest.mark.parametrize("step", [59, pytest.param(1, marks=pytest.mark.long)])
"""The dear ones: every 59th line in the plain run, every line in the long one."""
short_steps = pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.long)])
"""Those of few lines."""

OLD = [{"n": 1}, {"n": 2}, {"n": 3}]
durabilities = pytest.mark.parametrize("durability", ["power-loss", "process-crash"])


def loaded(directory: Path, **options: Any) -> ConversationStore:
    """A store with three messages in it, the last of them after the mark."""
    store = ConversationStore(directory, **options)
    store.initialize(provider="claude", model="old", messages=OLD[:2])
    store.append_message(OLD[2])
    return store


APPENDS: dict[str, tuple[Callable[[ConversationStore], object], list[list[Any]]]] = {
    "append_message": (lambda store: store.append_message({"n": 4}), [OLD, [*OLD, {"n": 4}]]),
    "append_messages": (
        lambda store: store.append_messages([{"n": 4}, {"n": 5}, {"n": 6}]),
        [OLD, [*OLD, {"n": 4}, {"n": 5}, {"n": 6}]],
    ),
    "append_messages with times and an event, if_head": (
        lambda store: store.append_messages(
            [{"n": 4}, None], extras=[None, {"e": 1}], times=["2024-01-01T00:00:00Z"] * 2, if_head=store.head
        ),
        [OLD, [*OLD, {"n": 4}]],
    ),
    "append_event": (lambda store: store.append_event({"marker": 1}), [OLD]),
}


@durabilities
@pytest.mark.parametrize("operation", APPENDS)
@short_steps
def test_append_interrupted_at_every_line(scratch, operation, durability, step):
    """P21: an interrupted append is there whole or not at all; what was acknowledged before is there once, in order."""
    operate, allowed = APPENDS[operation]
    runs, stored = 0, 0
    for store, directory, where, returned in every_line(
        scratch, lambda d: loaded(d, durability=durability), operate, step
    ):
        messages_before = len(store.get_records())
        stored += messages_before > len(OLD)
        go_on(store, directory, allowed[-1:] if returned else allowed, where)
        runs += 1
    assert runs > 60 / step, "too few interruptions to mean anything"
    assert 1 < stored < runs, "interruptions before and after the write are both among them"


@durabilities
@short_steps
def test_a_retraction_interrupted_at_every_line(scratch, durability, step):
    """P21: an interrupted retraction is there or not; the same call again, with the same head, takes back no more."""

    def with_the_feature(directory: Path) -> ConversationStore:
        store = loaded(directory, durability=durability)
        store.keep_records([1, 2, 3], features=["retract"])
        return store

    def operate(store: ConversationStore) -> object:
        return store.retract(2, if_head=store.head)

    runs, stored = 0, 0
    for store, directory, where, returned in every_line(scratch, with_the_feature, operate, step):
        is_there = store.get_messages() == OLD[:1]
        stored += is_there
        assert is_there or not returned, where
        go_on(store, directory, [OLD, OLD[:1]], where)
        runs += 1
    assert runs > 60 / step, "too few interruptions to mean anything"
    assert 1 < stored < runs, "interruptions before and after the write are both among them"


@steps
def test_append_with_a_mark_interrupted_at_every_line(scratch, monkeypatch, step):
    """P21: so is one that renews the mark as well."""
    monkeypatch.setattr("transcript_store._conversation.writer.MARK_EVERY", 2)
    operate, allowed = APPENDS["append_messages"]
    runs, marked = 0, 0
    for store, directory, where, returned in every_line(scratch, loaded, operate, step):
        marked += b'"seq": 6' in (directory / "metadata.json").read_bytes()
        go_on(store, directory, allowed[-1:] if returned else allowed, where)
        runs += 1
    assert runs > 100 / step
    assert 0 < marked < runs, "interruptions before and after the mark are both among them"


@pytest.mark.sampled(every=2)
@steps
@durabilities
def test_append_after_foreign_bytes_interrupted_at_every_line(scratch, durability, step):
    """P21, P9: an append that first has to cut somebody's torn bytes, interrupted anywhere in that, loses nothing."""

    def with_torn_bytes(directory: Path) -> ConversationStore:
        store = loaded(directory, durability=durability)
        with open(directory / "transcript.jsonl", "ab") as file:
            file.write(b'{"seq":4,"at":"20')
        return store

    runs = 0
    for store, directory, where, _ in every_line(scratch, with_torn_bytes, lambda s: s.append_message({"n": 4}), step):
        go_on(store, directory, [OLD, [*OLD, {"n": 4}]], where)
        assert len(verify(directory).quarantined) == 1, where
        runs += 1
    assert runs > 180 / step


REPLACES: dict[str, tuple[Callable[[ConversationStore], object], list[Any]]] = {
    "replace_transcript": (
        lambda store: store.replace_transcript([{"summary": True}], compaction_count=1, model="new"),
        [{"summary": True}],
    ),
    "keep_records": (lambda store: store.keep_records([1, 3], compaction_count=1, model="new"), [OLD[0], OLD[2]]),
}


@pytest.mark.sampled(every=3)
@steps
@durabilities
@pytest.mark.parametrize("operation", REPLACES)
def test_replace_interrupted_at_every_line(scratch, operation, durability, step):
    """P21, P4: an interrupted replace leaves the old messages and metadata, or the new ones, and the old in the archive."""
    operate, new = REPLACES[operation]
    old_bytes = b""

    def prepare(directory: Path) -> ConversationStore:
        nonlocal old_bytes
        store = loaded(directory, durability=durability)
        old_bytes = (directory / "transcript.jsonl").read_bytes()
        return store

    replaced = runs = 0
    for store, directory, where, returned in every_line(scratch, prepare, operate, step):
        is_new = store.get_messages() == new
        metadata = store.get_metadata()
        expected = ("new", 1, 1) if is_new else ("old", 0, 0)
        assert (metadata.model, metadata.compaction_count, metadata.generation) == expected, where
        go_on(store, directory, [new] if returned else [OLD, new], where)
        with ConversationStore(directory, read_only=True) as reader:
            reader.load()
            assert (reader.get_metadata().model, reader.get_metadata().compaction_count) == expected[:2], where
        archive = directory / "archive/transcript-000000.jsonl"
        assert archive.exists() == is_new, where
        if is_new:
            assert archive.read_bytes() == old_bytes, where
        replaced += is_new
        runs += 1
    assert runs > 300 // step
    assert 1 < replaced < runs - 1, "interruptions before and after the commit are both among them"


@short_steps
def test_update_metadata_interrupted_at_every_line(scratch, step):
    """P21, P4: an interrupted update leaves the old metadata or the new, never a mixture, and no message is touched."""
    runs, updated = 0, 0
    operate = lambda store: store.update_metadata(model="new", labels={"a": "b"})  # noqa: E731
    for store, directory, where, returned in every_line(scratch, loaded, operate, step):
        go_on(store, directory, [OLD], where)
        with ConversationStore(directory, read_only=True) as reader:
            reader.load()
            metadata = reader.get_metadata()
        allowed = [("new", {"a": "b"})] if returned else [("old", {}), ("new", {"a": "b"})]
        assert (metadata.model, metadata.labels) in allowed, where
        updated += metadata.model == "new"
        runs += 1
    assert runs > 60 / step
    assert 0 < updated < runs


@short_steps
def test_after_an_interrupted_update_the_store_knows_what_the_disk_holds(scratch, step):
    """P21: after an interrupted update_metadata the store and a fresh reader tell the same, so that nothing flips later."""
    for store, directory, where, _ in every_line(scratch, loaded, lambda s: s.update_metadata(model="new"), step):
        model = store.get_metadata().model
        with ConversationStore(directory, read_only=True) as reader:
            reader.load()
            assert reader.get_metadata().model == model, f"interrupted at {where}"
        store.close()


@steps
def test_initialize_interrupted_at_every_line(scratch, step):
    """P21: an interrupted initialize leaves nothing that stands in the way, or the conversation with all its messages."""
    runs, created = 0, 0

    def operate(store: ConversationStore) -> None:
        store.initialize(model="m", messages=OLD)

    for store, directory, where, returned in every_line(scratch, lambda d: ConversationStore(d / "c"), operate, step):
        here = directory / "c"
        assert store.exists() or not returned
        created += store.exists()
        store.close()
        store.load_or_initialize(model="m", messages=OLD)
        go_on(store, here, [OLD], where)
        runs += 1
    assert runs > 300 // step
    assert 1 < created < runs - 1


def torn(directory: Path) -> ConversationStore:
    """A store that is not loaded, of a conversation with a torn tail."""
    loaded(directory).close()
    with open(directory / "transcript.jsonl", "ab") as file:
        file.write(b'{"seq":4,"at":"20')
    return ConversationStore(directory)


@steps
def test_load_with_a_torn_tail_interrupted_at_every_line(scratch, step):
    """P21, P9: a load whose recovery is interrupted anywhere leaves a conversation that loads, with the cut bytes kept."""
    runs = 0
    for store, directory, where, _ in every_line(scratch, torn, ConversationStore.load, step):
        if runs % 2:
            store.close()
        store.load()
        go_on(store, directory, [OLD], where)
        kept = [Path(path).read_bytes() for path in verify(directory).quarantined]
        assert kept == [b'{"seq":4,"at":"20'], f"interrupted at {where}: {kept}"
        runs += 1
    assert runs > 300 // step


@pytest.mark.sampled(every=2)
@steps
@durabilities
def test_loading_a_loaded_store_again_interrupted_at_every_line(scratch, durability, step):
    """P21: load() closes what was loaded; interrupted anywhere in that or after, it can be called again."""
    runs = 0
    prepare = lambda d: loaded(d, durability=durability)  # noqa: E731
    for store, directory, where, _ in every_line(scratch, prepare, ConversationStore.load, step):
        store.load()
        go_on(store, directory, [OLD], where)
        runs += 1
    assert runs > 300 // step


@pytest.mark.sampled(every=2)
@durabilities
@short_steps
def test_close_interrupted_at_every_line(scratch, durability, step):
    """P21: an interrupted close() can be called again, and then the lock is free: a fresh store of this process loads."""
    runs = 0
    for store, directory, where, _ in every_line(
        scratch, lambda d: loaded(d, durability=durability), ConversationStore.close, step
    ):
        store.close()
        fresh = ConversationStore(directory)
        try:
            fresh.load()
        except transcript_store.ConversationLockedError as error:
            pytest.fail(f"interrupted at {where}: the lock is held for ever: {error}")
        go_on(fresh, directory, [OLD], where)
        runs += 1
    assert runs > 60 / step


def test_get_messages_interrupted_at_every_line(scratch):
    """P21: an interrupted read changes nothing."""
    runs = 0
    for store, directory, where, _ in every_line(scratch, loaded, ConversationStore.get_records):
        go_on(store, directory, [OLD], where)
        runs += 1
    assert runs > 10


# ---- readers ---------------------------------------------------------------------------------------------------------


def follow(directory: Path) -> tuple[ConversationStore, ConversationStore]:
    """A writer, and a reader that has seen its three messages."""
    writer = loaded(directory)
    reader = ConversationStore(directory, read_only=True)
    reader.load()
    return writer, reader


def appended(directory: Path) -> tuple[ConversationStore, ConversationStore]:
    writer, reader = follow(directory)
    writer.append_message({"n": 4})
    writer.append_messages([{"n": 5}, {"n": 6}])
    return writer, reader


def replaced(directory: Path) -> tuple[ConversationStore, ConversationStore]:
    writer, reader = follow(directory)
    writer.replace_transcript([{"summary": True}])
    writer.append_message({"n": 7})
    return writer, reader


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("prepare", "after"),
    [
        pytest.param(appended, [*OLD, {"n": 4}, {"n": 5}, {"n": 6}], id="appended"),
        pytest.param(replaced, [{"summary": True}, {"n": 7}], id="replaced"),
    ],
)
@steps
def test_refresh_interrupted_at_every_line(scratch, prepare, after, step):
    """P21, P12: after an interrupted refresh a reader shows what it showed or what is there now, and can refresh again."""
    runs = 0
    for (writer, reader), _, where, returned in every_line(scratch, prepare, lambda pair: pair[1].refresh(), step):
        try:
            messages = reader.get_messages()
        except transcript_store.TranscriptStoreError as error:
            pytest.fail(f"interrupted at {where}: {type(error).__name__}: {error}")
        assert messages in ([after] if returned else [OLD, after]), f"interrupted at {where}: {messages}"
        assert len(reader.get_records()) == len(messages), f"interrupted at {where}"
        reader.refresh()
        assert reader.get_messages() == after, f"interrupted at {where}"
        reader.close()
        writer.close()
        runs += 1
    assert runs > 70 // step


# ---- real signals ----------------------------------------------------------------------------------------------------


def test_a_failed_sync_that_nobody_heard_of(monkeypatch):
    """P6: Ctrl-C took the place of its error, and the next sync reports nothing: what the cache shows is not believed."""
    disk = SimulatedFileSystem()
    store = ConversationStore("/c", file_system=disk)
    store.initialize(messages=[{"n": 0}])

    def refuse(call: FileSystemCall) -> None:
        if call.name == "sync_data":
            disk.on_call = None
            raise OSError(errno.EIO, "a bad block")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    disk.on_call = refuse
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Writer, "_poison", interrupted)
        store.append_message({"n": 1})
    store.append_message({"n": 2})
    after = ConversationStore("/c", file_system=disk.worst_power_failure())
    after.load()
    assert after.get_messages()[-1] == {"n": 2}


def refused_at(store: ConversationStore, head: str) -> None:
    with pytest.raises(ConversationChangedError):
        store.append_message({"n": 4}, if_head=head)


def shown_at_once(store: ConversationStore, head: str) -> None:
    assert store.get_messages() == [*OLD, NEW]


THE_NEXT_CALL: dict[str, tuple[Callable[[ConversationStore, str], object], list[Any]]] = {
    "append_message": (lambda store, head: store.append_message({"n": 4}), [*OLD, NEW, {"n": 4}]),
    "append_message, if_head": (refused_at, [*OLD, NEW]),
    "get_messages": (shown_at_once, [*OLD, NEW]),
    "retract": (lambda store, head: store.retract(), OLD),
    "retract_turn": (lambda store, head: store.retract_turn(), OLD),
    "replace_transcript": (lambda store, head: store.replace_transcript(OLD), OLD),
    "keep_records": (lambda store, head: store.keep_records([1, 4]), [OLD[0], NEW]),
    "update_metadata": (lambda store, head: store.update_metadata(model="new"), [*OLD, NEW]),
    "purge_quarantine": (lambda store, head: store.purge_quarantine(), [*OLD, NEW]),
    "delete_generation": (lambda store, head: store.delete_generation(0), [*OLD, NEW]),
}


@for_each("name", THE_NEXT_CALL)
def test_an_append_and_both_attempts_to_end_it_are_interrupted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """P21: three signals in one call leave the lock taken; the next call reads the transcript again before it works."""
    operate, left = THE_NEXT_CALL[name]
    disk = SimulatedFileSystem()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def at_the_sync(call: FileSystemCall) -> None:
        if call.name == "sync_data":
            interrupt()

    with ConversationStore("chat", file_system=disk, hold_lock=False) as store:
        store.initialize(provider="claude", messages=OLD)
        store.keep_records([1, 2, 3], features=["retract"])
        head = store.head
        disk.on_call = at_the_sync
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(SharedWriter, "end_call", interrupt)
            store.append_message(NEW)
        disk.on_call = None
        operate(store, head)
        assert store.get_messages() == left
    with ConversationStore("chat", file_system=disk, read_only=True) as after:
        after.load()
        assert (after.get_messages(), after.recovery) == (left, None)
    assert verify("chat", file_system=disk).is_intact


# ---- stores of snapshots ---------------------------------------------------------------------------------------------

KEY, NEW_KEY = bytes(32), bytes([1] * 32)
IMAGE = "chatmedia+sha256:kept as media at any length"


def snapshot(number: int, *messages: object) -> Snapshot:
    return Snapshot.create(id=f"00000000-0000-4000-8000-{number:012d}", provider="claude", messages=messages)


def stored(directory: Path) -> FileStore:
    store = FileStore(directory, encryption_key=KEY)
    store.save(snapshot(1, "one", IMAGE))
    return store


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "operation",
    [
        lambda store: store.save(snapshot(2, "two", IMAGE)),
        lambda store: store.delete(snapshot(1).id),
        lambda store: store.rotate_key(NEW_KEY),
        lambda store: store.collect_media(older_than_seconds=0),
    ],
    ids=["save", "delete", "rotate_key", "collect_media"],
)
@steps
def test_a_store_of_snapshots_interrupted_at_every_line(scratch, operation, monkeypatch, step):
    """P15: its lock is free when the interruption is through, and what is there is what was there, or what was to be."""
    monkeypatch.setattr(file_store, "LOCK_TIMEOUT_SECONDS", 0)
    for _, directory, where, _ in every_line(scratch, stored, operation, step):
        after = FileStore(directory, encryption_key=NEW_KEY, retired_keys=[KEY])
        after.rotate_key(NEW_KEY)  # takes the lock, and opens everything
        assert after.verify() == [], where
        assert {summary.id for summary in after.list()} <= {snapshot(1).id, snapshot(2).id}, where


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.long), 197])
def test_a_repair_interrupted_at_every_line(scratch, step):
    """The lock is free when the interruption is through, and a second repair finishes."""

    def damaged(directory: Path) -> Path:
        with ConversationStore(directory) as store:
            store.initialize(messages=[{"n": 1}, {"n": 2}, {"n": 3}])
        path = directory / "transcript.jsonl"
        path.write_bytes(path.read_bytes().replace(b'"n":2', b'"n":5'))
        return directory

    def act(directory: Path) -> Repair:
        return repair(directory, mode="salvage", dry_run=False, file_system=HASTY)

    for directory, _, where, _ in every_line(scratch, damaged, act, step):
        act(directory)
        with ConversationStore(directory) as store:
            store.load()
            assert [message["n"] for message in store.get_messages()] == [1, 3], where


def test_real_signals_at_random_moments(scratch):
    """P21: with a signal handler that raises, set off by a timer, nothing acknowledged is lost and nothing stored twice."""
    seed = 12
    print(f"seed {seed}")
    randomly = random.Random(seed)
    store = ConversationStore(scratch / "c", durability="process-crash")
    store.initialize()
    acknowledged: list[int] = []
    interrupted = 0

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    measuring = sys.gettrace()
    sys.settrace(None)  # a coverage measurement has a lock of its own, which an interruption would leave locked
    gc.disable()  # what is raised within a collection is raised to nobody: hypothesis has a callback there
    usual_seconds = 50e-6
    try:
        for n in range(2000):
            # A timer has a delay of its own, and machines differ: aim so that half of the appends are struck.
            usual_seconds *= 0.98 if n > 2 * interrupted else 1.02
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, max(1e-6, randomly.uniform(0.2, 1.8) * usual_seconds))
                    store.append_message({"n": n})
                    acknowledged.append(n)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.settrace(measuring)
        gc.enable()
    store.close()
    assert interrupted > 5, "the timer did not strike"
    assert len(acknowledged) > 5, "the timer always struck"
    with ConversationStore(scratch / "c") as fresh:
        fresh.load()
        stored = [message["n"] for message in fresh.get_messages()]
    assert stored == sorted(set(stored)), "in order, and none twice"
    assert set(acknowledged) <= set(stored)
    assert verify(scratch / "c").is_intact


# ---- would it notice? ------------------------------------------------------------------------------------------------


def test_a_store_that_believes_its_memory_would_be_found_out(scratch, monkeypatch):
    """The harness itself: with the look at the file taken out of the store, an interrupted append must fail the test."""
    from transcript_store._log.log import Log

    monkeypatch.setattr(Log, "is_as_remembered", lambda self: True)
    with pytest.raises(AssertionError):
        test_append_interrupted_at_every_line(scratch, "append_message", "power-loss", 1)


def test_lines_where_a_with_statement_is_left_are_not_interrupted():
    """The harness itself: of a ``with`` statement the entry is interrupted, the exit is not."""
    interruption = Interruption(0)
    lines = Path(transcript_store.conversation.__file__).read_text(encoding="utf-8").splitlines()
    number = next(n for n, line in enumerate(lines, 1) if line.strip() == "with self._guard.locked():")

    class Frame:
        class f_code:  # noqa: N801
            co_filename = transcript_store.conversation.__file__
            co_firstlineno = 1

        f_lineno = 0

    seen = []
    for line in (number, number + 1, number, number, number + 1, number):
        Frame.f_lineno = line
        seen.append(interruption._leaves_with(Frame))
    assert seen == [False, False, True, False, False, True]
    with pytest.raises(ConversationNotFoundError), interruption:
        ConversationStore("/nonexistent/of-course").load()
    assert interruption.lines > 20
