"""Several processes and one conversation: one writes at a time, and a SIGKILL at any moment costs nothing acknowledged.

The incidents: a lock that was a file with a process id in it, so that a killed writer locked everybody out until somebody
deleted it; a lock that lived in a library's object, so that a fork took it along and its exit released it; and a writer
that went on appending to a file that somebody had moved away. Here the lock is the kernel's, and each of these is tried.

Children are forked and talk over pipes. What is random is seeded, and the seed is printed.
"""

from __future__ import annotations

import copy
import gc
import json
import multiprocessing
import os
import pickle
import random
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.kit.children import Child, Gate, check_storm, storm
from tests.kit.machines import Between
from tests.kit.trees import replace_by_folder
from transcript_store import (
    ConversationExistsError,
    ConversationLibrary,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationNotLoadedError,
    ConversationStore,
    CorruptTranscriptError,
    TranscriptStoreError,
    verify,
)
from transcript_store._os.filesystem import PosixFileSystem
from transcript_store.transcripts import open_transcript

# ---- SIGKILL ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [4, pytest.param(120, marks=pytest.mark.long)])
@pytest.mark.parametrize("durability", ["power-loss", "process-crash"])
def test_what_was_acknowledged_survives_sigkill(scratch, durability, rounds):
    """P1, P2: killed at a random moment, again and again, a writer leaves every acknowledged message, none torn, in order;
    at most the one call that was under way is there besides, whole; and the next append is not glued to anything.
    """
    seed = 7
    print(f"seed {seed}")
    randomly = random.Random(seed)
    directory = scratch / "c"
    with ConversationStore(directory) as store:
        store.initialize()
    expected, torn = 0, 0
    for _ in range(rounds):

        def write(say: Callable[[object], None], first: int = expected, kind: int = randomly.randrange(3)) -> None:
            store = ConversationStore(directory, durability=durability)
            store.load()
            n = first
            while True:
                pad = "x" * (1_000_000 if n % 7 == 3 else 50)  # a kill can tear a long write
                if kind == 0 or n % 5:
                    store.append_message({"n": n, "pad": pad})
                    n += 1
                else:
                    store.append_messages([{"n": n}, {"n": n + 1, "pad": pad}, {"n": n + 2}])
                    n += 3
                say(n)

        child = Child(write)
        child.wait_for(1)
        time.sleep(randomly.uniform(0, 0.02))
        acknowledged = int(child.end(signal.SIGKILL)[-1])
        with ConversationStore(directory) as store:
            store.load()
            messages = [message["n"] for message in store.get_messages()]
            torn += store.recovery is not None
            assert messages == list(range(len(messages))), "a message is lost, or not in its place"
            assert len(messages) - acknowledged in (0, 1, 3), f"{acknowledged} acknowledged, {len(messages)} there"
            store.append_message({"n": len(messages)})
            expected = len(messages) + 1
        assert verify(directory).is_intact
        if directory.joinpath("transcript.jsonl").stat().st_size > 5_000_000:  # begin small again
            with ConversationStore(directory) as store:
                store.load()
                store.replace_transcript({"n": n} for n in range(expected))
            shutil.rmtree(directory / "archive")
    print(f"{torn} torn tails")


@pytest.mark.parametrize("kills", [3, pytest.param(300, marks=pytest.mark.long)])
def test_a_storm_of_eight_writers(scratch, kills):
    """P11: eight processes load, append, replace and close as fast as they can and are killed at random: each message
    that was acknowledged is there once, each writer's own in order, and the conversation is whole at the end.
    """
    seed = 99
    print(f"seed {seed}")
    randomly = random.Random(seed)
    directory = scratch / "c"
    with ConversationStore(directory) as store:
        store.initialize()

    def writer(number: int) -> Callable[[Callable[[object], None]], None]:
        def work(say: Callable[[object], None]) -> None:
            own = random.Random(seed * 1000 + number)
            n = 0
            while True:
                store = ConversationStore(directory, durability="process-crash", lock_timeout_seconds=60)
                store.load()
                for _ in range(own.randrange(1, 6)):
                    if own.random() < 0.03:
                        store.replace_transcript(store.get_messages())
                    elif own.random() < 0.4:
                        store.append_messages([{"w": number, "n": n}, {"w": number, "n": n + 1}])
                        n += 2
                        say(n)
                    else:
                        store.append_message({"w": number, "n": n})
                        n += 1
                        say(n)
                if own.random() < 0.9:
                    store.close()
                else:
                    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
                        del store  # forgotten: the lock is free and nothing is written, as if it was killed, but faster

        return work

    acknowledged = storm(writer, kills, randomly)
    with ConversationStore(directory) as store:
        store.load()
        found: dict[int, list[int]] = {}
        for message in store.get_messages():
            found.setdefault(message["w"], []).append(message["n"])
    check_storm(acknowledged, found, kills)
    print(f"{sum(acknowledged.values())} messages, {verify(directory).generation} replaces")
    assert verify(directory).is_intact


# ---- one writer at a time --------------------------------------------------------------------------------------------


def test_of_eight_processes_exactly_one_holds(scratch):
    """P11: of eight that open at once one gets the conversation, and the others are told its process id; when it is killed
    the lock is free at once.
    """
    directory = scratch / "c"
    with ConversationStore(directory) as store:
        store.initialize()
    for _ in range(2):
        gate = Gate()

        def contend(say: Callable[[object], None], gate: Gate = gate) -> None:
            store = ConversationStore(directory)
            gate.wait()
            try:
                store.load()
            except ConversationLockedError as error:
                # The holder may be about to sign; what stood there before may be another's.
                say(f"locked {error.holder_pid}")
                return
            say("held")
            time.sleep(60)

        children = [Child(contend) for _ in range(8)]
        gate.open()
        answers = {child.pid: child.wait_for(1)[0] for child in children}
        holders = [pid for pid, answer in answers.items() if answer == "held"]
        assert len(holders) == 1, answers
        with pytest.raises(ConversationLockedError) as caught:
            ConversationStore(directory).load()
        assert caught.value.holder_pid == holders[0]
        for child in children:
            child.end(signal.SIGKILL if child.pid == holders[0] else None)
        with ConversationStore(directory) as store:
            store.load()


def test_a_writer_may_wait_for_the_lock(scratch):
    """P11: lock_timeout_seconds waits as long as it says, and no longer than until the holder closes."""

    class Patient(PosixFileSystem):
        """Notes what it is to wait, and waits for nothing; ``closes`` goes when so many waits were asked for."""

        def __init__(self, closes: ConversationStore | None = None, after: int = 0) -> None:
            super().__init__()
            self.waited_seconds: list[float] = []
            self._closes, self._after = closes, after

        def wait(self, seconds: float) -> None:  # type: ignore[override]
            self.waited_seconds.append(seconds)
            if self._closes is not None and len(self.waited_seconds) == self._after:
                self._closes.close()

    directory = scratch / "c"
    holder = ConversationStore(directory)
    holder.initialize()
    files = Patient()
    with pytest.raises(ConversationLockedError):
        ConversationStore(directory, lock_timeout_seconds=0.2, file_system=files).load()
    assert 0.2 <= sum(files.waited_seconds) < 0.2 + 2 * max(files.waited_seconds)
    files = Patient(closes=holder, after=7)
    with ConversationStore(directory, lock_timeout_seconds=30, file_system=files) as waiting:
        waiting.load()
        assert len(files.waited_seconds) == 7
        assert waiting.append_message({"n": 1}).seq == 1


def test_a_lock_file_that_was_left_behind_locks_nobody_out(scratch):
    """P11: the content of a lock file does not matter: after a kill it names a dead process, or an unrelated one."""
    directory = scratch / "c"

    def hold(say: Callable[[object], None]) -> None:
        ConversationStore(directory).initialize()
        say("held")
        time.sleep(60)

    child = Child(hold)
    child.wait_for(1)
    child.end(signal.SIGKILL)
    (directory / "lock").write_text(f'{{"pid":{os.getpid()},"host":"{os.uname().nodename}"}}')
    with ConversationStore(directory) as store:
        store.load()
        assert b'"pid"' in (directory / "lock").read_bytes()


# ---- fork ------------------------------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[ConversationStore], object]] = {
    "append_message": lambda s: s.append_message({"n": "child"}),
    "append_messages": lambda s: s.append_messages([{"n": "child"}]),
    "append_event": lambda s: s.append_event({}),
    "retract": lambda s: s.retract(),
    "replace_transcript": lambda s: s.replace_transcript([]),
    "update_metadata": lambda s: s.update_metadata(model="child"),
    "get_messages": lambda s: s.get_messages(),
    "get_metadata": lambda s: s.get_metadata(),
    "refresh": lambda s: s.refresh(),
    "head": lambda s: s.head,
}


@pytest.mark.parametrize("leaves", ["exit", "close", "load"])
def test_a_forked_child_cannot_write_through_its_parents_store(scratch, leaves):
    """P11: every call in a forked child says that the store is its parent's; its close, load and exit disturb nothing."""
    directory = scratch / "c"
    parent = ConversationStore(directory)
    parent.initialize(messages=[{"n": 1}])

    def use(say: Callable[[object], None]) -> None:
        for call in CALLS.values():
            try:
                call(parent)
            except ConversationNotLoadedError as error:
                say(f"refused {f'process {os.getppid()}' in str(error)}")
        if leaves == "close":
            parent.close()
        elif leaves == "load":
            try:
                parent.load()
            except ConversationLockedError as error:
                say(f"locked {error.holder_pid == os.getppid()}")
            parent.close()
        reader = ConversationStore(directory, read_only=True)
        reader.load()
        say(len(reader.get_messages()))

    before = (directory / "transcript.jsonl").read_bytes()
    said = Child(use).end()
    assert said == ["refused True"] * len(CALLS) + ["locked True"] * (leaves == "load") + ["1"]
    assert (directory / "transcript.jsonl").read_bytes() == before
    second = Child(lambda say: say(_try_to_load(directory)))
    assert second.end() == [f"ConversationLockedError {os.getpid()}"], "the child's end released its parent's lock"
    parent.append_message({"n": 2})
    assert parent.get_messages() == [{"n": 1}, {"n": 2}]
    parent.close()
    assert verify(directory).is_intact


def _try_to_load(directory: Path) -> str:
    store = ConversationStore(directory)
    try:
        store.load()
    except ConversationLockedError as error:
        return f"{type(error).__name__} {error.holder_pid}"
    store.close()
    return "loaded"


@pytest.mark.parametrize("how", ["fork", "exec"])
def test_the_lock_does_not_outlive_the_parent_in_a_child(scratch, how):
    """P11: a writer is killed while a child that it forked, or a program that it started, lives on: the lock is free."""
    directory = scratch / "c"

    def parent(say: Callable[[object], None]) -> None:
        store = ConversationStore(directory)
        store.initialize(messages=[{"n": 1}])
        if how == "fork":
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
        else:
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False).pid
        store.append_message({"n": 2})
        say(child)
        time.sleep(60)

    process = Child(parent)
    grandchild = int(process.wait_for(1)[0])
    try:
        process.end(signal.SIGKILL, to_the_last_word=False)
        os.kill(grandchild, 0)  # it lives, for a minute
        with ConversationStore(directory, lock_timeout_seconds=10) as store:  # a fork lets go when it first runs
            store.load()
            assert store.get_messages() == [{"n": 1}, {"n": 2}]
        os.kill(grandchild, 0)
    finally:
        os.kill(grandchild, signal.SIGKILL)


def _iterating(store: ConversationStore) -> Iterator[None]:
    for _ in store.iter_records(generation=0):
        yield


def _holding(store: ConversationStore) -> Iterator[None]:
    with store.frozen():
        yield


def _reading_the_file(store: ConversationStore) -> Iterator[None]:
    with open_transcript(store.directory):
        yield


@pytest.mark.parametrize("hold_lock", [True, False])
@pytest.mark.parametrize("block", [_iterating, _holding, _reading_the_file])
def test_what_a_child_inherits_in_the_middle_of_a_call_ends_without_harm(scratch, block, hold_lock):
    """P11: the incident was a child whose own transcript was closed by an iterator of its parent, so that its next message,
    acknowledged, went into whatever it had opened last; and a file of its own that a turn of its parent's wrote over.
    """
    with ConversationStore(scratch / "c", hold_lock=hold_lock) as parent:
        parent.initialize(messages=[{"n": number} for number in range(3)])
        parent.replace_transcript([])
        with ConversationStore(scratch / "c", hold_lock=False) as other:
            if not hold_lock:  # or the lock would have nothing to say at the end of the turn
                other.load()
                other.append_message({"n": "another's"})
        inherited = block(parent)
        next(inherited)

        def use(say: Callable[[object], None]) -> None:
            own = [(scratch / f"own {number}").open("w+") for number in range(9)]
            mine = ConversationStore(scratch / "mine")
            mine.initialize()
            inherited.close()
            own += [(scratch / f"later {number}").open("w+") for number in range(9)]
            mine.append_message({"n": "child"})
            for file in own:
                file.write("x")
                file.close()
            say({Path(file.name).read_text() for file in own})
            mine.close()

        before = (scratch / "c" / "lock").read_bytes()
        assert Child(use).end() == ["{'x'}"]
        assert (scratch / "c" / "lock").read_bytes() == before
        inherited.close()
        parent.append_message({"n": 4})
    with ConversationStore(scratch / "mine", read_only=True) as mine:
        mine.load()
        assert mine.get_messages() == [{"n": "child"}]
    assert verify(scratch / "c").is_intact


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda library: pickle.loads(pickle.dumps(library))])
def test_a_copied_library_knows_what_its_own_process_has_open(scratch, copied):
    """P11: the copy had a file system of its own, whose descriptors a fork kept: the lock outlived its writer."""
    library = copied(ConversationLibrary(scratch / "library"))
    with library.create(messages=[{"n": 1}]) as store:
        open_here = f"{store.directory}/lock"

        def look(say: Callable[[object], None]) -> None:
            links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
            say(open_here in [os.readlink(link) for link in links if os.path.lexists(link)])

        assert Child(look).end() == ["False"]


def test_a_fork_lets_go_of_the_lock_also_without_dev(scratch, monkeypatch):
    """P11: a bare container has no /dev/null. Then the numbers are free, and nothing is known of them in the child."""
    monkeypatch.setattr(os, "devnull", "/nowhere/null")
    with ConversationStore(scratch / "c") as store:
        store.initialize(messages=[{"n": 1}])

        def look(say: Callable[[object], None]) -> None:
            links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
            say(any(store.directory in os.readlink(link) for link in links if os.path.lexists(link)))
            with ConversationStore(store.directory, read_only=True) as reader:
                reader.load()
                say(reader.get_messages())

        assert Child(look).end() == ["False", "[{'n': 1}]"]


def test_a_fork_while_another_thread_is_in_a_call(scratch):
    """P11: a child forked while a thread of its parent held the store's mutex gets an error; it does not wait for ever."""
    inside, go_on = threading.Event(), threading.Event()

    class Slow(PosixFileSystem):
        armed = False

        def sync_data(self, handle: int) -> None:
            if self.armed:
                inside.set()
                go_on.wait(30)
            os.fsync(handle)

    files = Slow()
    store = ConversationStore(scratch / "c", file_system=files)
    store.initialize()
    files.armed = True
    thread = threading.Thread(target=lambda: store.append_message({"n": 1}))
    thread.start()
    assert inside.wait(30)

    def use(say: Callable[[object], None]) -> None:
        try:
            store.append_message({"n": "child"})
        except ConversationNotLoadedError:
            say("refused")

    child = Child(use)
    try:
        assert child.wait_for(1, seconds=10) == ["refused"]
    finally:
        go_on.set()
        thread.join()
    child.end()
    files.armed = False
    assert store.get_messages() == [{"n": 1}]
    store.close()
    assert verify(scratch / "c").is_intact


def _load_in_a_worker(directory: str) -> int:
    store = ConversationStore(directory)
    store.load()
    store.append_message({"from": "a worker"})
    store.close()
    return os.getpid()


def test_multiprocessing(scratch):
    """P11: a worker of a pool meets its parent's lock as an error that survives the way back; once free, it writes."""
    directory = str(scratch / "c")
    store = ConversationStore(directory)
    store.initialize()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with pytest.raises(ConversationLockedError) as caught:
            pool.submit(_load_in_a_worker, directory).result()
        assert caught.value.holder_pid == os.getpid()
        store.close()
        assert pool.submit(_load_in_a_worker, directory).result() != os.getpid()
    store.load()
    assert store.get_messages() == [{"from": "a worker"}]
    store.close()


# ---- a file that is swapped, a lock that is removed ------------------------------------------------------------------


def _swap_for_a_copy(path: Path) -> None:
    shutil.copyfile(path, f"{path}.copy")
    os.replace(f"{path}.copy", path)


def _swap_for_other_content(path: Path) -> None:
    Path(f"{path}.other").write_bytes(b"mine\n")
    os.replace(f"{path}.other", path)


def _swap_for_a_link(path: Path) -> None:
    path.rename(f"{path}.moved")
    path.symlink_to(f"{path}.moved")


def _remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    "swap", [_swap_for_a_copy, _swap_for_other_content, _swap_for_a_link, _remove, replace_by_folder]
)
@pytest.mark.parametrize("durability", ["power-loss", "process-crash"])
def test_a_writer_never_writes_into_another_file(scratch, swap, durability):
    """P11: with another file in the transcript's place every write raises kind ``replaced``; not a byte goes anywhere."""
    directory = scratch / "c"
    store = ConversationStore(directory, durability=durability)
    store.initialize(messages=[{"n": 1}], features=["retract"])
    store.append_message({"n": 2})
    swap(directory / "transcript.jsonl")

    def content() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}

    before = content()
    for call in (
        lambda: store.append_message({"n": 3}),
        lambda: store.append_messages([{"n": 3}, {"n": 4}]),
        lambda: store.append_event({}),
        store.retract,
        lambda: store.update_metadata(model="m"),
        lambda: store.replace_transcript([]),
    ):
        with pytest.raises(CorruptTranscriptError, match=r"load\(\) again") as caught:
            call()
        assert caught.value.kind == "replaced"
    assert content() == before
    if swap is _swap_for_a_copy:
        store.load()
        store.append_message({"n": 3})
        assert store.get_messages() == [{"n": 1}, {"n": 2}, {"n": 3}]
    store.close()


def test_a_writer_never_writes_into_a_file_of_another_disk(scratch, monkeypatch):
    """P11: what is mounted over the folder may have a file with the same inode number: that is another file."""
    real = PosixFileSystem.status

    def status(self: PosixFileSystem, parent: int, name: str) -> os.stat_result:
        found = list(real(self, parent, name))
        found[stat.ST_DEV] += 1
        return os.stat_result(found)

    with ConversationStore(scratch / "c") as store:
        store.initialize(messages=[{"n": 1}])
        monkeypatch.setattr(PosixFileSystem, "status", status)
        with pytest.raises(CorruptTranscriptError, match=r"another file replaced .* load\(\) again") as caught:
            store.append_message({"n": 2})
    assert caught.value.kind == "replaced"


def test_the_folder_is_moved_under_a_writer(scratch):
    """P11: a writer follows its folder, not its path: moved away, its appends stay with the conversation that they are of."""
    with ConversationStore(scratch / "c") as store:
        store.initialize(messages=[{"n": 1}])
        (scratch / "c").rename(scratch / "moved")
        with ConversationStore(scratch / "c") as other:
            other.initialize(messages=[{"other": 1}])
        store.append_message({"n": 2})
        store.update_metadata(model="m")
        store.replace_transcript([{"n": 3}])
    assert verify(scratch / "moved").is_intact
    assert verify(scratch / "c").is_intact
    for name, messages in (("moved", [{"n": 3}]), ("c", [{"other": 1}])):
        with ConversationStore(scratch / name, read_only=True) as reader:
            reader.load()
            assert reader.get_messages() == messages


@pytest.mark.parametrize("first_appends", [False, True])
def test_a_lock_file_that_is_removed_under_a_writer(scratch, first_appends):
    """P11: with the lock file gone a second writer gets in; then either adopts what the other wrote or is refused, and no
    message of either is lost, glued or repeated.
    """
    directory = scratch / "c"
    first = ConversationStore(directory)
    first.initialize(messages=[{"n": 1}])
    (directory / "lock").unlink()
    second = ConversationStore(directory)
    second.load()
    expected = [{"n": 1}]
    if first_appends:  # the file is still what it remembers
        first.append_message({"first": 1})
        expected.append({"first": 1})
    second.append_message({"second": 1})
    expected.append({"second": 1})
    for _ in range(2):
        with pytest.raises(ConversationLockedError, match=r"load\(\) again"):
            first.append_message({"first": 2})
        second.append_message({"second": 2})
        expected.append({"second": 2})
    assert second.get_messages() == expected
    first.close()
    second.append_message({"second": 3})
    second.close()
    with ConversationStore(directory) as fresh:
        fresh.load()
        assert fresh.get_messages() == [*expected, {"second": 3}]
        assert fresh.recovery is None
    assert verify(directory).is_intact


@pytest.mark.parametrize("last_call", ["close", "update_metadata", "replace_transcript"])
def test_a_writer_whose_lock_file_is_gone_does_not_overwrite_the_next_ones_metadata(scratch, last_call):
    """P11: a second writer's acknowledged update is not undone by a first that lost its lock, whatever that does next."""
    directory = scratch / "c"
    first = ConversationStore(directory)
    first.initialize(model="first")
    first.append_message({"n": 1})  # so that close() has a mark to renew
    (directory / "lock").unlink()
    second = ConversationStore(directory)
    second.load()
    second.update_metadata(model="second")
    try:
        if last_call == "update_metadata":
            first.update_metadata(labels={"a": "b"})
        elif last_call == "replace_transcript":
            first.replace_transcript([{"first": 1}])
        first.close()
    except TranscriptStoreError:
        pass
    second.close()
    with ConversationStore(directory) as fresh:
        fresh.load()
        assert fresh.get_metadata().model == "second"
        assert fresh.get_messages() == [{"n": 1}]


# ---- two that begin at once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [3, pytest.param(300, marks=pytest.mark.long)])
def test_load_or_initialize_in_two_processes_at_once(scratch, rounds):
    """P11, P13: of two that race one creates; the other loads what is there or meets the lock; never anything else."""
    outcomes: dict[str, int] = {}
    for number in range(rounds):
        directory = scratch / "new" / str(number)
        gate = Gate()

        def race(say: Callable[[object], None], directory: Path = directory, gate: Gate = gate) -> None:
            store = ConversationStore(directory)
            gate.wait()
            try:
                created = store.load_or_initialize(messages=[{"by": os.getpid()}])
            except ConversationLockedError:
                say("locked")
                return
            messages = store.get_messages()
            store.close()
            say(f"created {messages[0]['by']}" if created else f"loaded {messages[0]['by']}")

        children = [Child(race) for _ in range(2)]
        gate.open()
        answers = [child.end()[0] for child in children]
        creators = [answer.split()[1] for answer in answers if answer.startswith("created")]
        assert len(creators) == 1, answers
        assert all(answer.split()[1:] in ([], creators) for answer in answers), answers
        with ConversationStore(directory, read_only=True) as reader:
            reader.load()
            assert reader.get_messages() == [{"by": int(creators[0])}]
        for answer in answers:
            outcomes[answer.split()[0]] = outcomes.get(answer.split()[0], 0) + 1
    print(outcomes)


def _void_leftover(directory: Path) -> None:
    """What an initialize() leaves that was killed before its commit."""
    from transcript_store._conversation.metadata import encode_document, new_members

    directory.mkdir()
    members = new_members("2026-01-01T00:00:00.000000Z", id="01234567-89ab-4def-8123-456789abcdef")
    (directory / "metadata.json").write_bytes(encode_document(members, None))


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("operation", ["load", "load to read", "load_or_initialize", "exists", "verify"])
@pytest.mark.parametrize("leftover", [False, True])
@pytest.mark.parametrize("stays", [False, True])
def test_another_process_creates_the_conversation_between_any_two_calls(scratch, operation, leftover, stays):
    """P13: whenever another process creates the conversation, one that opens it meanwhile finds nothing, the lock, or all
    of it; a conversation in the making is never called damaged.
    """
    seen = set()
    for nth in range(1, 200):
        directory = scratch / str(nth)
        if leftover:
            _void_leftover(directory)
        creator = ConversationStore(directory)

        def create(creator: ConversationStore = creator) -> None:
            with suppress(ConversationExistsError, ConversationLockedError):  # the other one was faster
                creator.initialize(messages=[{"n": 1}])
            if not stays:
                creator.close()

        files: Any = Between(nth, create)
        store = ConversationStore(directory, read_only=operation == "load to read", file_system=files)
        try:
            if operation == "exists":
                answer = f"exists {store.exists()}"
            elif operation == "verify":
                found = verify(directory, file_system=files)
                answer = f"verified, {len(found.findings)} findings" if found.records else "nothing there"
            elif operation == "load_or_initialize":
                answer = f"created {store.load_or_initialize(messages=[{'n': 2}])}"
            else:
                store.load()
                answer = f"loaded {store.get_messages()}"
        except (ConversationNotFoundError, ConversationLockedError) as error:
            answer = type(error).__name__
        except TranscriptStoreError as error:
            pytest.fail(f"with the conversation created before call {nth}: {type(error).__name__}: {error}")
        store.close()
        if files.calls < nth:
            break
        seen.add(answer)
        assert answer in {
            "loaded [{'n': 1}]",
            "created False",
            "created True",
            "exists True",
            "exists False",
            "verified, 0 findings",
            "nothing there",
            "ConversationNotFoundError",
            "ConversationLockedError",
        }
        creator.close()
        with ConversationStore(directory, read_only=True) as reader:
            reader.load()
            assert reader.get_messages() == ([{"n": 2}] if answer == "created True" else [{"n": 1}])
    assert seen


def test_the_storm_would_notice_a_lock_that_locks_nobody(scratch, monkeypatch):
    """The harness itself: with a lock that everybody gets, eight contenders must fail the contention test."""
    monkeypatch.setattr(PosixFileSystem, "try_lock", lambda self, handle: True)
    with pytest.raises(AssertionError):
        test_of_eight_processes_exactly_one_holds(scratch)


# ---- a library -------------------------------------------------------------------------------------------------------

CONTESTED = "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"
REFUSALS: dict[str, tuple[type[TranscriptStoreError], ...]] = {
    "create": (ConversationExistsError, ConversationLockedError),
    "open": (ConversationNotFoundError, ConversationLockedError),
    "read": (ConversationNotFoundError,),
    "fork": (ConversationNotFoundError,),
    "delete": (ConversationNotFoundError, ConversationLockedError),
    "delete a fork": (),
    "list": (),
}
"""What each call may end with, had the calls come one after the other with stores open in between."""


@pytest.mark.parametrize(
    ("processes", "calls"),
    [(2, 400), pytest.param(2, 4000, marks=pytest.mark.long), pytest.param(5, 2500, marks=pytest.mark.long)],
)
def test_processes_race_for_one_id(scratch, processes, calls):
    """Each call on one id ends as if they had come one after the other: only the errors that this allows, every create
    undone by one delete at most, every acknowledged message there, every fork whole; and nothing is left over.
    """
    seed = 11
    print(f"seed {seed}")
    root = scratch / "chats"

    def race(number: int) -> Callable[[Callable[[object], None]], object]:
        return lambda say: say(json.dumps(_race(root, f"{seed} {number}", calls)))

    children = [Child(race(number)) for number in range(processes)]
    events = [event for child in children for event in json.loads(child.end()[0])]
    done = Counter(kind for kind, _ in events)
    assert all(done[kind] for kind in REFUSALS), done
    assert all(done[f"{kind} refused"] for kind in ("create", "open", "fork", "delete")), done

    library = ConversationLibrary(root)
    listed = {summary.id: summary for summary in library.list()}
    assert [summary.damage for summary in listed.values()] == [None] * len(listed)
    forks = {fork for kind, fork in events if kind == "fork"} - {
        fork for kind, fork in events if kind == "delete a fork"
    }
    assert listed.keys() - {CONTESTED} == forks
    assert done["create"] - done["delete"] == (CONTESTED in listed)

    made = {marker for kind, marker in events if kind == "create"}
    appended = {text for kind, text in events if kind == "open"}
    for chat, summary in listed.items():
        assert chat is not None
        with library.open(chat) as store:
            marker, *texts = (message["text"] for message in store.get_messages())
            assert store.recovery is None
        assert marker in made
        assert len(texts) == len(set(texts)) == (summary.record_count or 0) - 1
        assert set(texts) <= {text for text in appended if text.startswith(f"{marker} ")}
        if chat == CONTESTED:
            assert set(texts) == {text for text in appended if text.startswith(f"{marker} ")}
        assert verify(root / chat).is_intact
    assert {path.name for path in root.iterdir()} == listed.keys()
    names = {path.name for path in root.rglob("*")} - listed.keys()
    assert names <= {"lock", "metadata.json", "transcript.jsonl"}


def _race(root: Path, seed: str, calls: int) -> list[tuple[str, str]]:
    """Do this and that to one id so many times; returns what was done, and on what."""
    randomly = random.Random(seed)
    library = ConversationLibrary(root)
    forks: list[str] = []
    events: list[tuple[str, str]] = []

    def act(kind: str) -> str:
        if kind == "create":
            marker = f"{seed} {len(events)}"
            with library.create(id=CONTESTED, messages=[{"text": marker}]):
                return marker
        if kind == "open":
            with library.open(CONTESTED, durability=randomly.choice(["power-loss", "process-crash"])) as store:
                text = f"{store.get_messages()[0]['text']} {seed} {len(events)}"
                store.append_message({"text": text})
                return text
        if kind == "read":
            with library.open(CONTESTED, read_only=True) as store:
                assert store.get_messages()
        elif kind == "fork":
            forks.append(library.fork(CONTESTED))
            return forks[-1]
        elif kind == "delete":
            library.delete(CONTESTED)
        elif kind == "delete a fork" and forks:
            library.delete(forks[-1])
            return forks.pop()
        elif kind == "list":
            assert [found.damage for found in library.list() if found.damage] == []
        return ""

    for _ in range(calls):
        kind = randomly.choice(list(REFUSALS))
        try:
            events.append((kind, act(kind)))
        except REFUSALS[kind]:
            events.append((f"{kind} refused", ""))
    return events


def test_a_machine_that_is_not_used_any_more_is_let_go():
    """P11: what closes a fork's descriptors keeps nothing alive: or each fork would be dearer than the one before."""
    gone = weakref.ref(PosixFileSystem())
    gc.collect()
    assert gone() is None
