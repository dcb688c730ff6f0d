"""A long life, at random: Hypothesis appends, replaces, updates, reopens, kills, cuts the power, refuses and interrupts.

The model is what the crash matrix allows: a list of histories that may be true, of which every look at the store picks
one. Enumeration finds what happens at one operation; this finds what happens between many.
"""

from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.crash.model import DIRECTORY, store_on
from transcript_store import CorruptTranscriptError, PoisonedError, StorageError, verify
from transcript_store._log import log
from transcript_store.testing import Call, SimulatedFileSystem, SimulatedStop

Message = dict[str, Any]
History = tuple[tuple[str, ...], str]
"""The texts of all messages, and the model on record."""

SIZES = st.sampled_from([0, 10, 100, 300, 900])
FAULTS = st.sampled_from([errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EACCES])


class LongLife(RuleBasedStateMachine):
    """One conversation on one disk, with the histories that may be true of it."""

    durability = "power-loss"

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedFileSystem(page_bytes=256, sector_bytes=64)
        self.written = 0
        self.store = store_on(self.disk, durability=self.durability)
        self.store.initialize(model="0")
        self.shown: History = ((), "0")
        self.synced: History = self.shown
        """What a power cut may fall back to (what a load shows is on the disk); between it and ``shown`` every prefix may be left."""
        self.steps: list[History] = []
        """What was stored since, one history for each operation."""

    # ---- operations ----------------------------------------------------------------------------------------------

    def _new(self, size: int) -> tuple[str, Message]:
        self.written += 1
        text = f"{self.written}:" + "y" * size
        return text, {"role": "user", "content": text}

    @rule(size=SIZES)
    def append(self, size: int) -> None:
        text, message = self._new(size)
        self.store.append_message(message)
        self._stored(((*self.shown[0], text), self.shown[1]))

    @rule(sizes=st.lists(SIZES, max_size=4))
    def append_batch(self, sizes: list[int]) -> None:
        new = [self._new(size) for size in sizes]
        self.store.append_messages([message for _, message in new])
        self._stored(((*self.shown[0], *(text for text, _ in new)), self.shown[1]))

    @rule(keep=st.integers(0, 5), size=SIZES)
    def replace(self, keep: int, size: int) -> None:
        text, message = self._new(size)
        self.store.replace_transcript([*self.store.get_messages()[:keep], message], model=text[:5])
        self._stored(((*self.shown[0][:keep], text), text[:5]), synced=True)

    @rule()
    def update(self) -> None:
        self.written += 1
        self.store.update_metadata(model=str(self.written))
        self._stored((self.shown[0], str(self.written)), synced=True)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self._load()
        self._look([self.shown], loaded=True)

    # ---- what goes wrong -----------------------------------------------------------------------------------------

    @rule(
        data=st.data(),
        operation=st.sampled_from(["append", "append_batch", "replace", "update"]),
        number=st.integers(1, 25),
    )
    def kill_during(self, data: st.DataObject, operation: str, number: int) -> None:
        """SIGKILL at some call of an operation, a write perhaps half done."""
        written = data.draw(st.none() | st.integers(0, 400))
        may_be = self._attempt(operation, data, _stop_at(self.disk.calls_made + number, written))
        self.disk = self.disk.kill_process()
        self._load()
        self._look(may_be, loaded=True)

    @rule(data=st.data(), fill=st.sampled_from([b"\0", b'{"seq":2,"at":"stale"}\n']))
    def cut_power(self, data: st.DataObject, fill: bytes) -> None:
        self._cut_power(data, fill, self._after_power_cut([self.shown]))

    @rule(
        data=st.data(),
        operation=st.sampled_from(["append", "append_batch", "replace", "update"]),
        number=st.integers(1, 25),
    )
    def cut_power_during(self, data: st.DataObject, operation: str, number: int) -> None:
        may_be = self._attempt(operation, data, _stop_at(self.disk.calls_made + number, None))
        self._cut_power(data, b"\0", self._after_power_cut(may_be))

    @rule(
        data=st.data(),
        operation=st.sampled_from(["append", "append_batch", "replace", "update"]),
        number=st.integers(1, 25),
        code=FAULTS,
        for_ever=st.booleans(),
    )
    def refuse_during(self, data: st.DataObject, operation: str, number: int, code: int, for_ever: bool) -> None:
        """An error at some call; the store goes on, or after a failed sync is loaded anew."""
        first = self.disk.calls_made + number

        def refuse(call: Call) -> None:
            if call.number == first or (for_ever and call.number > first):
                raise OSError(code, "injected")

        may_be = self._attempt(operation, data, refuse)
        self.steps += may_be  # what follows may be lost without it
        text, message = self._new(10)
        try:
            self.store.append_message(message)
        except PoisonedError:
            self.store.load()
            self._look(self._after_power_cut(may_be), loaded=True)  # the disk refused to keep what was not synced
            may_be = [self.shown]
            self.store.append_message(message)
        self._look([((*texts, text), model) for texts, model in may_be], loaded=False)

    @rule(
        data=st.data(),
        operation=st.sampled_from(["append", "append_batch", "replace", "update"]),
        number=st.integers(1, 25),
        then=st.sampled_from(["look", "append", "update", "replace"]),
    )
    def interrupt_during(self, data: st.DataObject, operation: str, number: int, then: str) -> None:
        """Ctrl-C at some call; the same store goes on, perhaps without a look."""
        first = self.disk.calls_made + number

        def interrupt(call: Call) -> None:
            if call.number == first:
                raise KeyboardInterrupt

        may_be = self._attempt(operation, data, interrupt)
        self.steps += may_be
        text, message = self._new(10)
        if then == "append":
            self.store.append_message(message)
            may_be = [((*texts, text), model) for texts, model in may_be]
        elif then == "update":
            self.store.update_metadata(labels={"after": text})
        elif then == "replace":
            self.store.replace_transcript([message])
            may_be = [((text,), model) for _, model in may_be]
        self._look(may_be, loaded=False)

    def _attempt(self, operation: str, data: st.DataObject, on_call: Any) -> list[History]:
        """Run an operation into a fault; returns the histories that may be true afterwards."""
        before = self.shown
        new = [self._new(data.draw(SIZES)) for _ in range(1 if operation in ("append", "replace") else 2)]
        texts, messages = tuple(text for text, _ in new), [message for _, message in new]
        self.disk.on_call = on_call
        try:
            if operation == "append":
                self.store.append_message(messages[0])
            elif operation == "append_batch":
                self.store.append_messages(messages)
            elif operation == "replace":
                self.store.replace_transcript(messages)
            else:
                self.store.update_metadata(model=texts[0])
            returned = True
        except (SimulatedStop, StorageError, PoisonedError, KeyboardInterrupt):
            returned = False
        finally:
            self.disk.on_call = None
        after = {
            "append": ((*before[0], *texts), before[1]),
            "append_batch": ((*before[0], *texts), before[1]),
            "replace": (texts, before[1]),
            "update": (before[0], texts[0]),
        }[operation]
        if returned:
            self._stored(after, synced=operation in ("replace", "update"))
            return [after]
        return [before, after]

    def _cut_power(self, data: st.DataObject, fill: bytes, may_be: list[History]) -> None:
        self.disk = self.disk.power_failure(lambda count: data.draw(st.integers(0, count - 1)), fill=fill)
        self.store = store_on(self.disk, durability=self.durability)
        try:
            self.store.load()
        except CorruptTranscriptError as error:
            if self.durability == "power-loss" or error.kind != "hole":
                raise
            self.__init__()  # type: ignore[misc]  # refused, as P2 allows: begin another life
        else:
            self._look(may_be, loaded=True)

    # ---- the model -----------------------------------------------------------------------------------------------

    def _stored(self, history: History, *, synced: bool = False) -> None:
        self.shown = history
        self.steps.append(history)
        if synced or self.durability == "power-loss":
            self.synced, self.steps = history, []

    def _after_power_cut(self, may_be: list[History]) -> list[History]:
        return [self.synced, *self.steps, *may_be] if self.durability == "process-crash" else may_be

    def _load(self) -> None:
        self.store = store_on(self.disk, durability=self.durability)
        self.store.load(verify="tail" if self.written % 2 else "all")

    def _look(self, may_be: list[History], *, loaded: bool) -> None:
        found = (
            tuple(message["content"] for message in self.store.get_messages()),
            self.store.get_metadata().model or "",
        )
        assert found in may_be
        self._stored(found, synced=loaded)

    @invariant()
    def memory_is_the_file(self) -> None:
        with store_on(self.disk.another_process(), read_only=True) as reader:
            reader.load()
            assert tuple(message["content"] for message in reader.get_messages()) == self.shown[0]
            assert reader.head == self.store.head
        assert verify(DIRECTORY, file_system=self.disk).is_whole


class LongLifeWithoutSyncs(LongLife):
    """The same with process-crash durability: a power cut may leave any prefix since the last sync."""

    durability = "process-crash"


def _stop_at(first: int, written: int | None) -> Any:
    def on_call(call: Call) -> int | None:
        if call.number == first and call.name == "write" and written is not None:
            return written
        if call.number >= first:
            raise SimulatedStop
        return None

    return on_call


@pytest.mark.parametrize("machine", [LongLife, LongLifeWithoutSyncs])
@pytest.mark.parametrize("lives", [60, pytest.param(200, marks=pytest.mark.long)])
def test_a_long_life_loses_nothing(machine: type[LongLife], lives: int) -> None:
    """P1, P2, P3, P4, P6, P7, P9, P21: whatever happens, in whatever order, what was acknowledged is there."""
    live(machine, lives, tuple(Phase))


@pytest.fixture(autouse=True)
def _tails_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other load verifies only the tail; without this the whole of these small files would be the tail."""
    monkeypatch.setattr(log, "TAIL_BYTES", 300)


def live(machine: type[LongLife], lives: int, phases: tuple[Phase, ...]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=lives,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            database=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_machine_notices_a_lost_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not sync must fail here, or the machine proves nothing."""
    monkeypatch.setattr(SimulatedFileSystem, "sync_data", lambda self, handle: None)
    with pytest.raises((AssertionError, CorruptTranscriptError)):
        live(LongLife, 60, (Phase.generate,))
