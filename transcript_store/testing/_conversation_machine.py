"""``ConversationMachine``: a long life of a conversation at random."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from transcript_store import (
    ConversationNotLoadedError,
    ConversationStore,
    CorruptTranscriptError,
    PoisonedError,
    TranscriptStoreError,
    verify,
)
from transcript_store.file_names import KEY
from transcript_store.testing._crash_test import StopPoint
from transcript_store.testing._model import (
    NO_METADATA,
    ExpectedConversation,
    ModelledConversation,
    OnCall,
    Operation,
    close_after_kill,
    difference,
    forks_in,
    observe,
    observed_metadata,
    records_of,
)
from transcript_store.testing._simulated_machine import FileSystemCall, SimulatedStop
from transcript_store.testing.strategies import damaged_bytes, metadata, schedules

__all__ = ["ConversationMachine"]


# ---- operations ----
# The operations of ``ConversationMachine``: each draws its arguments, makes one call, and returns the expected history.


def an_append(of: ModelledConversation, data: st.DataObject) -> Operation:
    entry = of.a_record(data)
    return Operation(
        lambda: of.store.append_message(entry[0], extra=entry[1]), lambda history: history.with_records(entry)
    )


def a_batch(of: ModelledConversation, data: st.DataObject) -> Operation:
    entries = [of.a_record(data) for _ in range(data.draw(st.integers(0, 4), label="messages"))]
    return Operation(
        lambda: of.store.append_messages([one for one, _ in entries], extras=[extra for _, extra in entries]),
        lambda history: history.with_records(*entries),
    )


def an_event(of: ModelledConversation, data: st.DataObject) -> Operation:
    _, extra = of.a_record(data)
    return Operation(lambda: of.store.append_event(extra), lambda history: history.with_records((None, extra)))


def a_replace(of: ModelledConversation, data: st.DataObject, most_kept: int = 5) -> Operation:
    kept, (message, extra) = data.draw(st.integers(0, most_kept), label="kept"), of.a_record(data)

    def run() -> None:
        messages = [*of.store.get_messages()[:kept], message]
        extras = [*([None] * (len(messages) - 1)), extra]
        of.store.replace_transcript(messages, extras=extras, model=str(extra["n"]))

    def after(history: ExpectedConversation) -> ExpectedConversation:
        entries = [(one, None) for one in history.messages[:kept]]
        return history.replaced_by(*entries, (message, extra)).with_metadata({"model": str(extra["n"])})

    return Operation(run, after, syncs=True)


def a_selection(of: ModelledConversation, data: st.DataObject) -> Operation:
    count = len(of.shown.records)
    seqs = data.draw(st.sets(st.integers(1, count)) if count else st.just(set()), label="records that are kept")
    of.numbered += 1
    changes: dict[str, Any] = {"model": str(of.numbered)}
    changed: dict[int, Any] = {}
    if (said := sorted(seq for seq in seqs if json.loads(of.shown.records[seq - 1])[0])) and bool(
        data.draw(st.sampled_from([False, True]))
    ):
        message = {"role": "user", "content": f"changed {of.numbered}"}
        changed[data.draw(st.sampled_from(said), label="gets other contents")] = (message, {"n": of.numbered})
    return Operation(
        lambda: of.store.keep_records(seqs, changed=changed, if_head=of.store.head, **changes),
        lambda history: history.keeping(seqs, changed).with_metadata(changes),
        syncs=True,
    )


def a_retraction(of: ModelledConversation, data: st.DataObject) -> Operation:
    count = data.draw(st.integers(1, 3), label="messages to retract")

    def run() -> None:
        if there := len(of.store.get_messages(last=count)):
            of.store.retract(there)

    return Operation(run, lambda history: history.taking_back(count))


def a_change(of: ModelledConversation, data: st.DataObject) -> Operation:
    of.numbered += 1
    changes = {**data.draw(metadata(), label="changes"), "model": str(of.numbered)}
    return Operation(
        lambda: of.store.update_metadata(**changes), lambda history: history.with_metadata(changes), syncs=True
    )


def a_fork(of: ModelledConversation, data: st.DataObject) -> Operation:
    through = data.draw(st.integers(0, len(of.shown.records)), label="through_seq")
    return Operation(
        lambda: of.library.fork(of.id, through_seq=through),
        lambda history: history.with_fork(through),
        syncs=True,  # a fork has nothing that the original may lose
    )


def a_fork_gone(of: ModelledConversation, data: st.DataObject) -> Operation:
    there = sorted(forks_in(of.library, of.id))
    records, id = there[data.draw(st.integers(0, len(there) - 1), label="which fork")]  # noqa: A001
    return Operation(lambda: of.library.delete(id), lambda history: history.without_fork(records), stands_alone=True)


def a_generation_gone(of: ModelledConversation, data: st.DataObject) -> Operation:
    number, _ = data.draw(st.sampled_from(of.shown.archive), label="generation")
    return Operation(
        lambda: of.store.delete_generation(number),
        lambda history: history.without_generation(number),
        stands_alone=True,
    )


# ---- machine ----

_NOT_PERFORMED = (
    "the writer and a new reader agree, so it is the model that does not know of it. If this follows a rule of your own: a call "
    "that changes the conversation goes through self.perform(Operation(call, after)), and `after` is what the call makes of a history"
)
_STALE = b'{"seq":2,"at":"stale"}\n'
_MOST_FORKS = 2
_MOMENTS = st.integers(1, 25)
_ERRORS = st.sampled_from([errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EACCES])
_KILLS: st.SearchStrategy[list[StopPoint]] = schedules(ways=["kill"])
_POWER_CUTS: st.SearchStrategy[list[StopPoint]] = schedules(ways=["power cut", "kill"])


class ConversationMachine(ModelledConversation, RuleBasedStateMachine):
    """One conversation in a library on a simulated disk, with the histories that may be true of it.

    Its rules append, take back, replace, change metadata, fork, delete, reopen and read along; kill the process, cut the power, refuse
    calls of the disk, interrupt them, and damage files. After each step the conversation must be what the model says, for its
    writer and for a new reader, and ``verify`` must find nothing.

    Make a subclass, and give its ``TestCase`` to your test runner. Rules and invariants of your own may use ``store``, ``disk``,
    ``library`` and ``shown``. A call that changes the conversation goes through :meth:`perform`; one that is in :meth:`operations`
    is also killed, refused and interrupted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self) -> None:
        super().begin()
        self.reader: ConversationStore | None = None

    def operations(self) -> dict[str, Callable[[st.DataObject], Operation]]:
        """The possible operations, by name: each function draws its arguments. Extend it with operations of your own."""
        possible: dict[str, Callable[[st.DataObject], Operation]] = {
            "append": partial(an_append, self),
            "append a batch": partial(a_batch, self),
            "append an event": partial(an_event, self),
            "replace": partial(a_replace, self),
            "keep records": partial(a_selection, self),
            "change metadata": partial(a_change, self),
        }
        if "retract" in self.features:
            possible["take back"] = partial(a_retraction, self)
        if len(self.shown.forks) < _MOST_FORKS:
            possible["fork"] = partial(a_fork, self)
        if self.shown.forks:
            possible["delete a fork"] = partial(a_fork_gone, self)
        if self.shown.archive:
            possible["delete a generation"] = partial(a_generation_gone, self)
        return possible

    def _any_operation(self, data: st.DataObject, *, but: str = "") -> Operation:
        possible = self.operations()
        possible.pop(but, None)
        return possible[data.draw(st.sampled_from(list(possible)), label="operation")](data)

    # ---- rules: nothing goes wrong ---------------------------------------------------------------------------------

    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        self.perform(an_append(self, data))

    @rule(data=st.data())
    def append_batch(self, data: st.DataObject) -> None:
        self.perform(a_batch(self, data))

    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        self.perform(a_replace(self, data))

    @rule(data=st.data())
    def do_anything(self, data: st.DataObject) -> None:
        self.perform(self._any_operation(data))

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.load()
        self.look([self.shown], loaded=True)

    @precondition(lambda self: len(self.shown.archive) > 1)  # what matters happens in long lives
    @rule()
    def start_again(self) -> None:
        """Delete the conversation, and create it again; its forks stay."""
        self._stop_reading()
        self.store.close()
        self.library.delete(self.id)
        self.may_return = []  # that synced the library
        self.load()
        fresh = ExpectedConversation(metadata=NO_METADATA, forks=self.shown.forks)
        self.look([fresh], loaded=True)

    @rule()
    def read_along(self) -> None:
        """A reader that was opened some steps ago sees the current state after a refresh."""
        if self.reader is None:
            self.reader = self.opened(self.disk.another_process(), read_only=True)
            self.reader.load()
        self.reader.refresh()
        assert records_of(self.reader) == self.shown.records
        assert self.reader.head == self.store.head

    # ---- rules: something goes wrong -------------------------------------------------------------------------------

    @rule(data=st.data(), cuts=_KILLS)
    def kill_during(self, data: st.DataObject, cuts: list[StopPoint]) -> None:
        """SIGKILL at some call of an operation, a write perhaps half done; the next process may be killed as it loads."""
        self._stop_during(data, cuts)

    @rule(data=st.data(), cuts=_POWER_CUTS)
    def cut_power_during(self, data: st.DataObject, cuts: list[StopPoint]) -> None:
        """The power fails at some call of an operation, and perhaps again at some call of the load after it."""
        self._stop_during(data, cuts)

    @rule(seed=st.integers(0, 2**16))
    def cut_power(self, seed: int) -> None:
        may_be = self.lose_power([self.shown])
        self._next_machine(StopPoint(1, "power cut", seed))
        self._load_after_crash(may_be)

    @rule(data=st.data(), number=_MOMENTS, code=_ERRORS, for_ever=st.booleans())
    def refuse_during(self, data: st.DataObject, number: int, code: int, for_ever: bool) -> None:
        """The disk refuses some call; the store continues, or after a failed sync is loaded again."""
        first = self.disk.calls_made + number
        self._refuse_during(data, code, lambda call: call.number == first or (for_ever and call.number > first))

    @rule(data=st.data(), number=st.integers(1, 3), code=_ERRORS, for_ever=st.booleans())
    def refuse_a_sync_during(self, data: st.DataObject, number: int, code: int, for_ever: bool) -> None:
        """The disk refuses some sync, and the unsynced writes are lost."""
        syncs = count(1)

        def is_refused(call: FileSystemCall) -> bool:
            if call.name not in ("sync", "sync_data"):
                return False
            nth = next(syncs)
            return nth == number or (for_ever and nth > number)

        self._refuse_during(data, code, is_refused)

    def _refuse_during(self, data: st.DataObject, code: int, is_refused: Callable[[FileSystemCall], bool]) -> None:
        def refuse(call: FileSystemCall) -> None:
            if is_refused(call):
                raise OSError(code, "injected")

        # A fork syncs what the writer did not. If that fails, a kernel reports it to the writer at its next sync, for
        # it has the file open too; the simulated disk does not.
        but = "fork" if self.durability == "process-crash" else ""
        may_be = self.attempt(self._any_operation(data, but=but), refuse)
        self.steps += may_be  # what follows may be lost without it
        following = an_append(self, data)
        try:
            following.run()
        except (PoisonedError, ConversationNotLoadedError):
            self.store.load()
            self.look(self.after_power_cut(may_be), loaded=True)  # the unsynced writes are lost
            may_be = [self.shown]
            following.run()
        self.look(list(map(following.after, may_be)), loaded=False)

    @rule(data=st.data(), number=_MOMENTS, then=st.sampled_from(["look", "append", "change metadata", "replace"]))
    def interrupt_during(self, data: st.DataObject, number: int, then: str) -> None:
        """Ctrl-C at some call; the same store continues, perhaps without a read."""
        first = self.disk.calls_made + number

        def interrupt(call: FileSystemCall) -> None:
            if call.number == first:
                raise KeyboardInterrupt

        may_be = self.attempt(self._any_operation(data), interrupt)
        self.steps += may_be
        if then != "look":
            # A replace that keeps nothing: its result must be the same for every allowed history.
            following = a_replace(self, data, 0) if then == "replace" else self.operations()[then](data)
            following.run()
            may_be = list(map(following.after, may_be))
        self.look(may_be, loaded=False)

    @rule(data=st.data())
    def damage(self, data: st.DataObject) -> None:
        """A file is damaged after its mark, on a copy of the disk: the load refuses it, or shows everything."""
        self.reopen()  # the close notes how far the file goes, so nothing of it may be cut
        copy = self.disk.copy()
        files = {
            path: content for path, content in copy.tree().items() if content and self._is_of_the_conversation(path)
        }
        path = data.draw(st.sampled_from(sorted(files)), label="file")
        kind, content = data.draw(damaged_bytes(files[path]), label="damage")
        copy.write_file(path, content)
        is_whole = verify(self.store.directory, file_system=copy).is_intact
        conversation = self.opened(copy)
        try:
            conversation.load()
            found = observe(conversation, self.library_on(copy))
        except (TranscriptStoreError, AssertionError):  # refused, or named by the list
            assert not is_whole, f"verify finds nothing wrong with {path} ({kind})"
            assert copy.tree()[path] == content, f"{path} was refused, and changed ({kind})"
            return
        finally:
            conversation.close()
        assert found == self.shown, f"{path} ({kind}): {difference(found, [self.shown])}"

    def _is_of_the_conversation(self, path: str) -> bool:
        # A load reports a damaged key.json; verify() does not read it.
        return (
            path.startswith(f"{self.store.directory}/")
            and path.endswith((".json", ".jsonl"))
            and not path.endswith(KEY)
        )

    # ---- a crash, and the next process -----------------------------------------------------------------------------

    def _stop_during(self, data: st.DataObject, cuts: list[StopPoint]) -> None:
        """The first cut stops an operation, each other one the load of the next process."""
        first, *others = cuts
        may_be = self.attempt(self._any_operation(data), self._stop_at(first))
        if first.way == "power cut":
            may_be = self.lose_power(may_be)
        self._next_machine(first)
        for cut in others:
            self.disk.on_call = self._stop_at(cut)
            try:
                self.load()
            except (SimulatedStop, CorruptTranscriptError):
                pass  # the call is refused again below
            finally:
                self.disk.on_call = None
            if cut.way == "power cut":
                may_be = self.lose_power(may_be)
            self._next_machine(cut)
        self._load_after_crash(may_be)

    def _stop_at(self, cut: StopPoint) -> OnCall:
        first = self.disk.calls_made + cut.moment
        written = cut.seed % 400 if cut.seed and cut.way == "kill" else None

        def on_call(call: FileSystemCall) -> int | None:
            if call.number == first and call.name == "write" and written is not None:
                return written
            if call.number >= first:
                raise SimulatedStop
            return None

        return on_call

    def _next_machine(self, cut: StopPoint) -> None:
        """The disk as the next process finds it. A power cut with seed 0 loses everything that was not synced."""
        if cut.way == "kill":
            self.disk = self.disk.kill_process()
        else:
            self._stop_reading()
            choose = Random(cut.seed).randrange if cut.seed else lambda _: 0
            self.disk = self.disk.power_failure(choose, fill=_STALE if cut.seed % 2 else b"\0")
        close_after_kill(self.store)

    def _load_after_crash(self, may_be: list[ExpectedConversation]) -> None:
        try:
            self.load()
        except CorruptTranscriptError as error:
            if self.durability == "power-loss" or error.kind != "hole":
                raise
            self.begin()  # refused, as it may be after a power cut without syncs: begin another life
        else:
            self.look(may_be, loaded=True)

    def _unlike_the_model(self, seen: ExpectedConversation) -> str:
        what = difference(seen, [self.shown])
        if (records_of(self.store), observed_metadata(self.store)) == (seen.records, seen.metadata):
            what += f"\n{_NOT_PERFORMED}"
        return what

    def _stop_reading(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def teardown(self) -> None:
        self._stop_reading()
        close_after_kill(self.store)

    @invariant()
    def is_intact(self) -> None:
        """A new reader sees what the writer sees, and ``verify`` finds nothing."""
        with self.opened(self.disk.another_process(), read_only=True) as reader:
            reader.load()
            seen = self.shown._replace(records=records_of(reader), metadata=observed_metadata(reader))
            assert seen == self.shown, self._unlike_the_model(seen)
            assert reader.get_messages() == self.shown.messages
            assert reader.head == self.store.head
        found = verify(self.store.directory, file_system=self.disk)
        assert found.is_intact, f"verify finds {found.findings}"
