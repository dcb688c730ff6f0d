"""Long lives of several processes on a file system that forgets unsynced data.

Hypothesis makes up histories: two writers and a reader, each a process, that open, append, replace, update, close; are
killed; meet a sync that fails; and lose the power, at rest or in the middle of a call. After every step the reader sees
exactly what was acknowledged. P1 to P4, P6, P8, P9, P11, P12 through the real kernel.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.crash.forgetful import Forgetful, mounted
from tests.crash.kernel import Note
from tests.kit.children import Child
from transcript_store import ConversationStore, CorruptTranscriptError, TranscriptStoreError, verify
from transcript_store._os.filesystem import PosixFileSystem

pytestmark = [pytest.mark.root, pytest.mark.needs("/dev/fuse", "fusermount3")]

History = tuple[tuple[str, ...], str]
"""The contents of the messages, and the model."""


class Worker:
    """A process with a store, which does what it is told and answers with an error's name or with what it sees."""

    def __init__(self, path: Path, durability: str, **options: bool) -> None:
        read, self._orders = os.pipe()

        def work(say: Callable[[object], None]) -> None:
            os.close(self._orders)
            store = ConversationStore(path, durability=durability, **options)  # type: ignore[arg-type]
            with os.fdopen(read) as orders:
                for order in orders:
                    name, arguments = json.loads(order)
                    try:
                        getattr(store, name)(*arguments.get("args", ()), **arguments.get("kwargs", {}))
                        texts = [message["content"] for message in store.get_messages()] if name != "close" else []
                        model = store.get_metadata().model if name != "close" else ""
                        say(json.dumps(["", texts, model]))
                    except TranscriptStoreError as error:
                        kind = error.kind if isinstance(error, CorruptTranscriptError) else ""
                        say(json.dumps([type(error).__name__, str(error), kind]))

        self._answers = 0
        self._child = Child(work)
        os.close(read)

    def ask(self, name: str, *args: Any, **kwargs: Any) -> tuple[str, Any, str]:
        """Let it do something and wait for its answer: the error's name or "", then what it sees."""
        os.write(self._orders, (json.dumps([name, {"args": args, "kwargs": kwargs}]) + "\n").encode())
        self._answers += 1
        error, seen, more = json.loads(self._child.wait_for(self._answers)[-1])
        return error, seen, more

    def kill(self) -> None:
        os.close(self._orders)
        self._child.end(signal.SIGKILL)


class Lives(RuleBasedStateMachine):
    """One conversation on the forgetful disk, and the histories that may be true of it."""

    disk: Forgetful
    durability = "power-loss"
    lives = 0

    @initialize()
    def begin(self) -> None:
        Lives.lives += 1
        self.path = self.disk.path / f"agent-{Lives.lives}" / "main"
        self.workers = [self._hire(), self._hire()]
        self.reader = Worker(self.path, self.durability, read_only=True)
        self.holder: int | None = 0
        self.written = 0
        error, texts, model = self.workers[0].ask("initialize", model="0")
        assert (error, texts, model) == ("", [], "0")
        self.may_be: list[History] = [((), "0")]
        self.synced: History = ((), "0")
        self.steps: list[History] = []

    def _hire(self) -> Worker:
        return Worker(self.path, self.durability)

    # ---- what goes well ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.holder is None)
    @rule(worker=st.integers(0, 1))
    def load(self, worker: int) -> None:
        """The next writer finds a history that may be true, and from then on it is."""
        error, texts, more = self.workers[worker].ask("load")
        if error == "CorruptTranscriptError" and more == "hole" and self.durability == "process-crash":
            self._start_again()
            return
        assert error == "", f"{error}: {texts}"
        self._see((tuple(texts), more), loaded=True)
        self.holder = worker

    @precondition(lambda self: self.holder is not None)
    @rule()
    def the_other_is_locked_out(self) -> None:
        assert self.holder is not None
        error, _, _ = self.workers[1 - self.holder].ask("load")
        assert error == "ConversationLockedError"

    @precondition(lambda self: self.holder is not None)
    @rule(
        operation=st.sampled_from(["append", "append", "batch", "replace", "update"]),
        size=st.sampled_from([5, 300, 2000]),
    )
    def operate(self, operation: str, size: int) -> None:
        answer, after = self._operate(operation, size)
        assert answer[0] == "", answer
        self.may_be = [after]
        self._see((tuple(answer[1]), answer[2]), synced=operation in ("replace", "update"))

    @precondition(lambda self: self.holder is not None)
    @rule()
    def close(self) -> None:
        assert self.holder is not None
        error, _, _ = self.workers[self.holder].ask("close")
        assert error == ""
        self.synced, self.steps = self.may_be[0], []
        self.holder = None

    # ---- what goes wrong -----------------------------------------------------------------------------------------

    @rule()
    def kill_the_writer(self) -> None:
        worker = self.holder or 0
        self.workers[worker].kill()
        self.workers[worker] = self._hire()
        self.holder = None

    @rule(seed=st.none() | st.integers(0, 1 << 30))
    def cut_power(self, seed: int | None) -> None:
        self._cut_power(seed)

    @precondition(lambda self: self.holder is not None)
    @rule(
        operation=st.sampled_from(["append", "batch", "replace", "update"]),
        changes=st.integers(0, 12),
        seed=st.none() | st.integers(0, 1 << 30),
    )
    def cut_power_during(self, operation: str, changes: int, seed: int | None) -> None:
        before = self.may_be[0]
        self.disk.freeze(changes)
        answer, after = self._operate(operation, 300)
        self.may_be = [before, after]
        if answer[0] == "":
            self.may_be = [after]
            self._store(after, synced=operation in ("replace", "update"))
        self._cut_power(seed)

    @precondition(lambda self: self.holder is not None)
    @rule(
        operation=st.sampled_from(["append", "batch", "replace", "update"]),
        nth=st.integers(1, 4),
        code=st.sampled_from(["EIO", "ENOSPC", "EDQUOT"]),
    )
    def refuse_a_sync(self, operation: str, nth: int, code: str) -> None:
        """The store writes nothing more, and a new load shows what the disk has."""
        assert self.holder is not None
        before = self.may_be[0]
        self.disk.refuse_sync(nth, code)
        answer, after = self._operate(operation, 2000)
        writer = self.workers[self.holder]
        if answer[0] == "":
            self.may_be = [after]
            self._store(after, synced=operation in ("replace", "update"))
            again, _, _ = writer.ask("update_metadata", model=after[1])  # a refused mark poisons, and says so only now
            self.disk.refuse_sync(1 << 30, code)
            if again == "":
                return
            assert again in ("PoisonedError", "StorageError")
        else:
            assert answer[0] == "StorageError", answer
            self.may_be = [before, after]
            poisoned, _, _ = writer.ask("append_message", {"role": "user", "content": "not stored"})
            assert poisoned == "PoisonedError"
        self.disk.refuse_sync(1 << 30, code)
        if self.durability == "process-crash":  # what was not synced before is lost with it
            self.may_be = [self.synced, *self.steps, *self.may_be]
        self.holder_again = self.holder
        self.holder = None
        self.load(self.holder_again)

    def _operate(self, operation: str, size: int) -> tuple[tuple[str, Any, str], History]:
        """Ask the holder for an operation; returns its answer, and the history if it happened."""
        assert self.holder is not None
        writer = self.workers[self.holder]
        texts, model = self.may_be[0]
        self.written += 1
        new = tuple(f"{self.written}.{k}:" + "x" * size for k in range(2 if operation == "batch" else 1))
        messages = [{"role": "user", "content": text} for text in new]
        if operation == "append":
            return writer.ask("append_message", messages[0]), ((*texts, *new), model)
        if operation == "batch":
            return writer.ask("append_messages", messages), ((*texts, *new), model)
        if operation == "replace":
            return writer.ask("replace_transcript", messages, model=str(self.written)), (new, str(self.written))
        return writer.ask("update_metadata", model=str(self.written)), (texts, str(self.written))

    def _cut_power(self, seed: int | None) -> None:
        for worker in (*self.workers, self.reader):
            worker.kill()
        self.disk.cut_power(seed)
        self.workers = [self._hire(), self._hire()]
        self.reader = Worker(self.path, self.durability, read_only=True)
        self.holder = None
        if self.durability == "process-crash":
            self.may_be = [self.synced, *self.steps, *self.may_be]

    # ---- the model -----------------------------------------------------------------------------------------------

    def _see(self, found: History, *, loaded: bool = False, synced: bool = False) -> None:
        assert found in self.may_be, f"found {_short(found)}, may be {[_short(history) for history in self.may_be]}"
        self.may_be = [found]
        self._store(found, synced=loaded or synced)

    def _store(self, history: History, *, synced: bool) -> None:
        self.steps.append(history)
        if synced or self.durability == "power-loss":
            self.synced, self.steps = history, []

    def _start_again(self) -> None:
        """Refused, as P2 allows: another life."""
        self.teardown()
        self.begin()

    @invariant()
    def a_reader_sees_it(self) -> None:
        """P12: what a reader sees is what was acknowledged, while nothing is in doubt."""
        if self.holder is None or len(self.may_be) != 1:
            return
        error, texts, model = self.reader.ask("load")
        assert error == "", texts
        assert (tuple(texts), model) == self.may_be[0]
        assert verify(self.path).is_intact

    def teardown(self) -> None:
        for worker in (*getattr(self, "workers", ()), *([self.reader] if hasattr(self, "reader") else [])):
            worker.kill()
        if hasattr(self, "path"):
            shutil.rmtree(self.path.parent, ignore_errors=True)


class LivesWithoutSyncs(Lives):
    """The same with process-crash durability."""

    durability = "process-crash"


class LivesInTurns(Lives):
    """Two that have it open at the same time; each does some turns, and then the other one."""

    the_other_is_locked_out = None  # type: ignore[assignment]  # nobody is

    def _hire(self) -> Worker:
        return Worker(self.path, self.durability, hold_lock=False)

    @precondition(lambda self: self.holder is not None and len(self.may_be) == 1)
    @rule()
    def give_way(self) -> None:
        """The other sees what was written, whether it knew the conversation or loads it."""
        assert self.holder is not None
        other = 1 - self.holder
        error, texts, model = self.workers[other].ask("get_messages")
        if error == "ConversationNotLoadedError":
            error, texts, model = self.workers[other].ask("load")
        if (
            error != "PoisonedError"
        ):  # what it could not sync, it was told; it has to load, as the rule does that refuses
            assert error == "", texts
            self._see((tuple(texts), model))
            self.holder = other


def _short(history: History) -> tuple[list[str], str]:
    return [text.split(":")[0] for text in history[0]], history[1]


def live(machine: type[Lives], lives: int, phases: tuple[Phase, ...] = tuple(Phase)) -> dict[str, int]:
    """Run so many lives on a disk of their own; returns what the disk did."""
    with mounted("tests.crash.forgetful") as path:
        Lives.disk = Forgetful(path)
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=lives,
                stateful_step_count=25,
                deadline=None,
                derandomize=True,
                database=None,
                phases=phases,
                suppress_health_check=list(HealthCheck),
            ),
        )
        return Lives.disk.tally


@pytest.mark.timeout(600)
@pytest.mark.parametrize("machine", [Lives, LivesWithoutSyncs, LivesInTurns])
def test_processes_on_a_disk_that_forgets(machine: type[Lives], record_property: Note) -> None:
    """P1 to P4, P6, P8, P9, P11, P12: whatever happens, in whatever order, what was acknowledged is there."""
    tally = live(machine, 60)
    for what, count in tally.items():
        record_property(f"{what}, on a disk that forgets", count)
    assert tally["cuts"] > 50
    assert tally["forgotten"] > 10
    assert tally["refused"] > 3, "without syncs of appends there are few to refuse"
    assert tally["frozen"] > 3


@pytest.mark.timeout(600)
def test_a_lost_message_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not sync its appends must fail here, or the machine proves nothing."""
    monkeypatch.setattr(PosixFileSystem, "sync_data", lambda self, handle: None)
    with pytest.raises((AssertionError, CorruptTranscriptError)):
        live(Lives, 60, (Phase.generate,))
