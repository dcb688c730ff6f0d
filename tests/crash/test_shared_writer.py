"""Turns at one conversation (``hold_lock=False``): what one process leaves wherever it stops, another finds that knew it before.

The matrix (tests/crash/test_matrix.py) lets the next process load. Here the next one is loaded already and remembers: it may go
on only if nothing was changed. U1 to U3 stand in ``_conversation/shared_writer.py``.
"""

from __future__ import annotations

import errno
import gc
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from tests.crash import enumeration
from tests.crash.enumeration import FAULTS
from tests.crash.kernel import Note
from tests.crash.model import DIRECTORY, PROBE, State, observe, state_of, store_on
from tests.crash.operations import (
    ALL_IN_TURNS,
    LOCK,
    Case,
    append,
    append_long,
    batch,
    close,
    delete_generation,
    grown,
    keep_records,
    leaked,
    purge_quarantine,
    replace,
    retract,
    retractable,
    unmarked,
    update_metadata,
)
from tests.kit.interruption import Interruption
from tests.kit.machines import machine_of
from transcript_store import (
    ConversationChangedError,
    ConversationLibrary,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationStore,
    PoisonedError,
    TranscriptStoreError,
    repair,
)
from transcript_store._conversation.shared_writer import SharedWriter
from transcript_store.testing import FileSystemCall, SimulatedFileSystem, SimulatedStop

Step = Callable[[ConversationStore], object]
AFTERWARDS = {"role": "assistant", "content": "I am."}
WORK: list[tuple[Callable[[], SimulatedFileSystem], Step]] = [
    (grown, append),
    (grown, append_long),
    (unmarked, batch),
    (grown, update_metadata),
    (grown, replace),
    (unmarked, keep_records),
    (retractable, retract),
    (leaked, delete_generation),
    (leaked, purge_quarantine),
    (unmarked, close),
]
EACH = pytest.mark.parametrize(("base", "step"), WORK, ids=lambda one: one.__name__)


class Two(NamedTuple):
    """Two processes on one disk that take turns at a conversation, and know it; the first was there last, and left its statement."""

    disk: SimulatedFileSystem
    """That of the first."""
    first: ConversationStore
    second: ConversationStore
    before: State


def two_at(base: Callable[[], SimulatedFileSystem], **options: Any) -> Two:
    ground = base()
    disk, other = ground.another_process(), ground.another_process()
    first = store_on(disk, hold_lock=False, lock_timeout_seconds=0, **options)
    second = store_on(other, hold_lock=False, lock_timeout_seconds=0)
    for store in (first, second):
        store.load()
    first.get_messages()
    assert opened(other, second.get_messages) == 0, "the second does not know what it should"
    before = state_of(second)
    assert opened(disk, first.get_messages) == 0, "nor does the first"
    return Two(disk, first, second, before)


def opened(disk: SimulatedFileSystem, call: Callable[[], object]) -> int:
    """How often the transcript is opened in a call: once if it loads, never if memory is what the disk holds."""
    count = 0

    def note(made: FileSystemCall) -> None:
        nonlocal count
        count += made.name == "open_append" and made.path.endswith("transcript.jsonl")

    disk.on_call = note
    try:
        call()
    finally:
        disk.on_call = None
    return count


def done(base: Callable[[], SimulatedFileSystem], step: Step) -> State:
    """What is there when the step was done."""
    two = two_at(base)
    step(two.first)
    return state_of(two.second)


def calls_of(base: Callable[[], SimulatedFileSystem], step: Step) -> list[FileSystemCall]:
    two = two_at(base)
    made: list[FileSystemCall] = []
    two.disk.on_call = made.append
    step(two.first)
    assert len(made) >= 5, "hardly a call was made, so nothing is tested"
    return made


def the_second_goes_on(two: Two, may_be: set[State], where: str, *, cuts: int = 3) -> None:
    """It finds what may be there, stores more, in the transcript and beside it; and all that it saw survives a power cut."""
    found = state_of(two.second)
    assert found in may_be, f"{where}: found {found}, allowed {sorted(may_be, key=repr)}"
    two.second.append_message(PROBE)
    count = two.second.get_metadata().compaction_count + 1
    two.second.update_metadata(compaction_count=count)  # the change of the first must not be lost by it
    now = state_of(two.second)
    assert found.records is not None
    assert now.records is not None
    assert found.metadata is not None
    assert now.records[:-1] == found.records, where
    assert now.metadata == tuple(count if at == _COUNT_AT else one for at, one in _numbered(found)), where
    for image in two.disk.power_failures(limit=cuts):
        assert observe(image) == now, f"{where}, then a power cut"


_COUNT_AT = -4
"""Where the count of compactions stands in a ``State``'s metadata, from the end."""


def _numbered(state: State) -> Iterator[tuple[int, Any]]:
    assert state.metadata is not None
    return ((at - len(state.metadata), one) for at, one in enumerate(state.metadata))


@pytest.mark.sampled(every=13)
@EACH
def test_killed_at_any_call_it_leaves_what_the_other_can_continue_with(
    base: Callable[[], SimulatedFileSystem], step: Step, record_property: Note
) -> None:
    """P1, P3, P4, U1: SIGKILL before each call, and within each write; who knew the conversation sees the change or does not."""
    after, count = done(base, step), 0
    for call in calls_of(base, step):
        for written in (None, 1, 60, 250) if call.name == "write" else (None,):
            two = two_at(base)

            def stop(made: FileSystemCall, at: int = call.number, written: int | None = written) -> int | None:
                if made.number == at and written is not None:
                    return written
                if made.number >= at:
                    raise SimulatedStop
                return None

            two.disk.on_call = stop
            with suppress(SimulatedStop):
                step(two.first)
            two.disk.kill_process()
            the_second_goes_on(two, {two.before, _with_part_of(step, two.before, after), after}, f"killed at {call}")
            count += 1
    record_property("kills within a turn, simulated disk", count)
    assert count >= 10


def _with_part_of(step: Step, before: State, after: State) -> State:
    """What is in quarantine is not shown: a purge that was killed may have removed a part of it."""
    return before._replace(has_secret=after.has_secret) if step is purge_quarantine else before


@pytest.mark.sampled(every=13)
@EACH
def test_refused_at_any_call_it_leaves_what_both_can_continue_with(
    base: Callable[[], SimulatedFileSystem], step: Step, record_property: Note
) -> None:
    """P6, P7, U2: an error at each call; then the second goes on, and behind it the first does (after a load, if it must)."""
    after, count = done(base, step), 0
    for call in calls_of(base, step):
        for code in FAULTS[call.name]:
            two = two_at(base)

            def refuse(made: FileSystemCall, at: int = call.number, code: int = code) -> None:
                if made.number == at:
                    raise OSError(code, "injected")

            where = f"{errno.errorcode[code]} at {call}"
            failed = False
            two.disk.on_call = refuse
            try:
                step(two.first)
            except TranscriptStoreError:
                failed = True
            two.disk.on_call = None
            may_be = {two.before, _with_part_of(step, two.before, after), after} if failed else {after}
            the_second_goes_on(two, may_be, where, cuts=1)
            if step is not close:
                the_first_goes_on(two, where)
            count += 1
    record_property("errors within a turn, simulated disk", count)
    assert count >= 10


def the_first_goes_on(two: Two, where: str) -> None:
    known = state_of(two.second).records
    assert known is not None
    try:
        two.first.append_message(AFTERWARDS)
    except PoisonedError:
        two.first.load()
        two.first.append_message(AFTERWARDS)
    now = state_of(two.second).records
    assert now is not None
    assert now[:-1] == known, where
    assert two.second.get_messages()[-1] == AFTERWARDS, where


@pytest.mark.sampled(every=13)
@EACH
def test_interrupted_at_any_call_it_leaves_what_both_can_continue_with(
    base: Callable[[], SimulatedFileSystem], step: Step, record_property: Note
) -> None:
    """P21, U2: Ctrl-C at each call; the lock is free, the second goes on, and the first behind it."""
    after, count = done(base, step), 0
    for call in calls_of(base, step):
        two = two_at(base)

        def interrupt(made: FileSystemCall, at: int = call.number) -> None:
            if made.number == at:
                raise KeyboardInterrupt

        two.disk.on_call = interrupt
        with suppress(KeyboardInterrupt):
            step(two.first)
        two.disk.on_call = None
        may_be = {two.before, _with_part_of(step, two.before, after), after}
        the_second_goes_on(two, may_be, f"interrupted at {call}", cuts=1)
        if step is not close:
            the_first_goes_on(two, f"interrupted at {call}")
        count += 1
    record_property("interruptions within a turn, simulated disk", count)
    assert count >= 5


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("holds", [False, True], ids=["in turns", "holding the lock"])
@EACH
def test_all_of_the_second_between_any_two_calls_of_the_first(
    base: Callable[[], SimulatedFileSystem], step: Step, holds: bool, record_property: Note
) -> None:
    """P11: a second writer, with turns or with the lock held, gets its turn before or after the first, never within; both are there."""
    count = 0
    for call in calls_of(base, step):
        two = two_at(base)
        said: list[str] = []

        def happen(made: FileSystemCall, two: Two = two, at: int = call.number, said: list[str] = said) -> None:
            if made.number != at:
                return
            try:
                if holds:
                    with store_on(two.disk.another_process()) as holder:
                        holder.load()
                        holder.append_message(PROBE)
                else:
                    two.second.append_message(PROBE)
                said.append("stored")
            except ConversationLockedError:
                said.append("locked")

        two.disk.on_call = happen
        step(two.first)
        two.disk.on_call = None
        assert times_there(two.second) == (said == ["stored"]), str(call)
        the_second_goes_on(two, {state_of(two.second)}, str(call), cuts=1)
        count += 1
    record_property("interleavings of two processes, simulated disk", count)
    assert count >= 5


def times_there(store: ConversationStore) -> int:
    """How often what the second stores stands in any generation, taken back or not."""
    numbers = [generation.number for generation in store.generations()]
    return sum(record.message == PROBE for number in numbers for record in store.get_records(generation=number))


def test_memory_is_believed_while_nobody_writes() -> None:
    """U2: turn after turn, and after a turn in which another one only read, nothing is opened; after one that wrote, it is."""
    two = two_at(grown)
    other = two.disk.another_process()
    assert opened(two.disk, lambda: append(two.first)) == 0
    assert opened(two.disk, two.first.get_messages) == 0
    two.second.get_messages()
    assert opened(two.disk, lambda: append(two.first)) == 0
    two.second.update_metadata(labels={"title": "new"})
    assert opened(two.disk, two.first.get_metadata) == 1
    reader = store_on(other, read_only=True)
    reader.load()
    assert opened(two.disk, lambda: append(two.first)) == 0, "a reader takes no turn"
    with store_on(other) as holder:
        holder.load()
        with pytest.raises(ConversationLockedError):
            two.first.get_messages()
    assert opened(two.disk, lambda: append(two.first)) == 1


def test_no_statement_stands_there_in_a_turn() -> None:
    """U1: from before the first change on there is the writer's name, and nothing else; also when the call is over: who knew it before?"""
    two = two_at(grown)
    written = 0

    def look(call: FileSystemCall) -> None:
        nonlocal written
        if not call.path.endswith("/lock") and call.name in ("write", "sync_data", "rename", "truncate"):
            written += 1
            assert (two.disk.tree()[LOCK] or b"").count(b"\n") == 1

    for step in (append, update_metadata, replace):
        assert _lines(two)[1]
        two.disk.on_call = look
        step(two.first)
        assert not _lines(two)[1]
        two.second.get_messages()
        assert _lines(two)[1], "who looked at all knows what others may know"
        assert opened(two.disk, two.first.get_messages) == 0
    assert written == 8


def test_nothing_is_written_to_the_lock_by_who_was_there_last() -> None:
    """U1: turn after turn of one writer, whatever it does, its name stands there alone, and is looked at once in each."""
    two = two_at(retractable)
    append(two.first)
    left = two.disk.tree()[LOCK]
    made: list[FileSystemCall] = []
    two.disk.on_call = made.append
    steps = (append, retract, update_metadata, lambda store: store.get_messages(), replace, append)
    for step in steps:
        step(two.first)
        assert two.disk.tree()[LOCK] == left
    names = [call.name for call in made if call.path == LOCK]
    assert not {*names} & {"write", "truncate"}
    assert names.count("read") == len(steps)


@pytest.mark.parametrize("pids", ["of one number", "of two"])
def test_a_name_in_the_lock_is_recognized_whatever_the_clock(pids: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """U1: in a name alone, one that stands before another is told from it, also if the clock stands still and the processes are called the
    same (two containers): what one changed beside the transcript is seen by the other in its next turn, and is not overwritten.
    """
    two = two_at(grown)
    other = machine_of(two.second)
    for number, disk in enumerate((two.disk, other)):
        monkeypatch.setattr(disk, "now_us", lambda: 1_800_000_000_000_000)
        monkeypatch.setattr(disk, "process_id", lambda number=number: number if pids == "of two" else 7)
    stores = [
        store_on(disk, hold_lock=False, lock_timeout_seconds=0) for disk in (two.disk, other, two.disk)
    ]  # which know their process from their first call on
    for store in stores:
        store.load()
    for number in range(9):
        stores[number % 3].update_metadata(labels={"title": str(number)})
        assert stores[number % 3].get_metadata().labels == {"title": str(number)}
        assert stores[(number + 2) % 3].get_metadata().labels == {"title": str(number)}
        stores[(number + 2) % 3].update_metadata(compaction_count=number)
    assert [store.get_metadata().compaction_count for store in stores] == [8, 8, 8]


def test_a_change_that_compares_equal_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """U1: ``1`` and ``True`` are equal in Python, and a clock that was set back gives a change the time of the one before."""
    two = two_at(grown)
    for disk in (two.disk, machine_of(two.second)):
        monkeypatch.setattr(disk, "now_us", lambda: 1_800_000_000_000_000)
    two.second.update_metadata(tools=[tool(1)])
    two.first.get_messages()
    two.second.get_messages()
    two.first.get_messages()  # the statement is its own, and both know the same
    two.first.update_metadata(tools=[tool(True)])
    two.second.update_metadata(labels={"title": "kept"})
    for store in (two.first, two.second):
        assert [type(each["parameters"]["default"]) for each in store.get_metadata().tools or ()] == [bool]


def tool(default: object) -> dict[str, Any]:
    return {"name": "t", "description": "", "parameters": {"type": "object", "default": default}}


def test_interrupted_at_any_line_of_its_end_a_turn_leaves_nothing_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    """U2: a debugger, or another interpreter, looks for Ctrl-C where CPython does not; the end of the turn is made again."""
    for nth in range(1, 1000):
        two = two_at(grown)
        two.first.get_messages()
        interruption = Interruption(nth)
        ends = SharedWriter.end_call

        def end_call(writer: SharedWriter, interruption: Interruption = interruption, ends: Any = ends) -> None:
            if interruption.lines:
                ends(writer)  # which is made again
                return
            with interruption:
                ends(writer)

        monkeypatch.setattr(SharedWriter, "end_call", end_call)
        with suppress(KeyboardInterrupt):
            two.first.update_metadata(labels={"title": "new"})
        monkeypatch.setattr(SharedWriter, "end_call", ends)
        assert two.second.get_metadata().labels == {"title": "new"}, interruption.where
        two.second.update_metadata(compaction_count=7)
        assert two.first.get_metadata().labels == {"title": "new"}, interruption.where
        assert two.first.get_metadata().compaction_count == 7, interruption.where
        if interruption.where is None:
            break
    assert nth > 10


@pytest.mark.parametrize("others", [False, True], ids=["a name alone", "a statement"])
def test_a_turn_that_only_reads_leaves_the_lock_as_it_is(others: bool) -> None:
    """U1: who finds the file as he left it writes nothing to the lock; killed at any call, he leaves what he found."""

    def left_by_the_first() -> Two:
        two = two_at(grown)
        append(two.first)
        if others:
            two.second.get_messages()
            two.first.get_messages()
        return two

    two = left_by_the_first()
    left = two.disk.tree()[LOCK]
    assert bool(_lines(two)[1]) == others
    made: list[FileSystemCall] = []
    two.disk.on_call = made.append
    two.first.get_messages()
    assert not {call.name for call in made} & {"write", "truncate", "sync", "sync_data"}, made
    assert two.disk.tree()[LOCK] == left
    for at in range(made[0].number, made[-1].number + 1):
        two = left_by_the_first()

        def stop(call: FileSystemCall, at: int = at) -> None:
            if call.number >= at:
                raise SimulatedStop

        two.disk.on_call = stop
        with suppress(SimulatedStop):
            two.first.get_messages()
        two.disk.kill_process()
        assert two.disk.tree()[LOCK] == left, at
        the_second_goes_on(two, {state_of(two.second)}, f"killed at {at}")


@pytest.mark.parametrize("step", [append, batch, retract])
def test_a_turn_that_appends_looks_once_at_the_transcript(step: Step) -> None:
    """L3: with the lock, before it writes; nothing of a call looks again, and each call looks."""
    two = two_at(retractable)
    append(two.first)
    head = two.first.head
    for call in (step, lambda store: store.retract(if_head=head)):
        made: list[FileSystemCall] = []
        two.disk.on_call = made.append
        with suppress(ConversationChangedError):
            call(two.first)
        two.disk.on_call = None
        names = [made.name for made in made if made.path.endswith("transcript.jsonl")]
        assert names.count("status") == 1
        assert names[0] == "status"


def test_a_locked_error_names_the_reader_that_holds_the_lock() -> None:
    """P11: the name in the lock is that of the one who has it, also if he only reads, and others had turns before in which they did."""
    gc.collect()  # a lock of an earlier test may hold a simulated file with the same number
    ground = grown()
    disks = [ground.another_process()]
    disks.append(disks[0].another_process())
    stores = [store_on(disk, hold_lock=False, lock_timeout_seconds=0) for disk in disks]
    for store in stores:
        store.load()
    assert disks[0].process_id() != disks[1].process_id()
    for who in (0, 0, 1, 1, 0, 1, 0, 0):  # behind his own turn and behind another's
        told: list[int | None] = []

        def wait(call: FileSystemCall, who: int = who, told: list[int | None] = told) -> None:
            if call.name == "status" and call.path.endswith("transcript.jsonl"):
                with pytest.raises(ConversationLockedError) as caught:
                    stores[1 - who].get_messages()
                told.append(caught.value.holder_pid)

        disks[who].on_call = wait
        stores[who].get_messages()
        disks[who].on_call = None
        assert told
        assert {*told} == {disks[who].process_id()}


def test_a_reading_call_that_finds_a_change_removes_the_validator() -> None:
    """U2: a sync that failed for a copy, and damage that a read met: whoever knew the conversation looks at it for himself."""
    two = two_at(grown, durability="process-crash")
    append(two.first)
    two.first.get_messages()

    def refuse(call: FileSystemCall) -> None:
        if call.name in ("sync", "sync_data"):
            assert not _lines(two)[1], "nothing tells others of what is not synced"
            raise OSError(errno.EIO, "injected")

    two.disk.on_call = refuse
    with pytest.raises(TranscriptStoreError, match="sync before the copy"):
        two.first.state()
    two.disk.on_call = None
    assert not _lines(two)[1]

    two = two_at(grown, cache_bytes=0)
    assert _lines(two)[1]
    path = f"{DIRECTORY}/transcript.jsonl"
    two.disk.write_file(path, (two.disk.tree()[path] or b"").replace(b"message 1", b"massage 1"))
    with pytest.raises(TranscriptStoreError, match=r"transcript\.jsonl"):
        two.first.get_messages()
    assert not _lines(two)[1]


def test_a_change_with_the_statement_in_place_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests themselves: a writer that leaves the statement while it writes is met by one of them."""
    monkeypatch.delattr(SharedWriter, "begin_write")
    with pytest.raises((AssertionError, TranscriptStoreError)):
        test_killed_at_any_call_it_leaves_what_the_other_can_continue_with(grown, update_metadata, lambda *_: None)


def _lines(two: Two) -> tuple[bytes, bytes]:
    name, _, statement = (two.disk.tree()[LOCK] or b"").partition(b"\n")
    return name + b"\n", statement


def test_a_statement_is_compared_and_never_believed() -> None:
    """U3: cut at any byte, changed in any, from before, doubled, long: whoever does not find his own statement loads."""
    two = two_at(grown)
    old = _lines(two)[1]
    append(two.first)
    two.second.get_messages()
    messages = two.first.get_messages()
    name, statement = _lines(two)
    assert statement != old
    contents = [name + statement[:length] for length in range(len(statement))]
    contents += [
        name + statement[:at] + bytes([statement[at] ^ 1]) + statement[at + 1 :] for at in range(len(statement))
    ]
    contents += [name + old, name + statement * 2, statement, b"", b"\n", name + b"\0" * 5000, b"x" * 100_000]
    for content in contents:
        two.disk.write_file(LOCK, content)
        assert opened(two.disk, two.first.get_messages) == 1, content
        assert two.first.get_messages() == messages
    two.disk.write_file(LOCK, b"anybody\n" + statement)
    assert opened(two.disk, two.first.get_messages) == 0, "the name is not looked at"


def test_a_statement_of_another_kernel_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """U3: another boot id, or none: each turn loads."""
    two = two_at(grown)
    elsewhere = two.disk.another_process()
    monkeypatch.setattr(elsewhere, "boot_id", lambda: "another")
    with store_on(elsewhere, hold_lock=False) as far_away:
        far_away.load()
        assert opened(two.disk, two.first.get_messages) == 1
        assert opened(elsewhere, far_away.get_messages) == 1
    nowhere = two.disk.another_process()
    monkeypatch.setattr(nowhere, "boot_id", lambda: "")
    with store_on(nowhere, hold_lock=False) as store:
        store.load()
        assert opened(nowhere, store.get_messages) == 1
        assert opened(nowhere, lambda: append(store)) == 1


@pytest.mark.parametrize("alone", [False, True], ids=["a statement", "another's name alone"])
def test_a_call_fails_if_the_validator_cannot_be_removed(alone: bool) -> None:
    """U1: the disk refuses to empty the lock file and to write to it: there is no turn, and nothing was changed."""
    two = two_at(grown)
    if alone:
        append(two.second)
        two = two._replace(before=state_of(two.second))

    def refuse(call: FileSystemCall) -> None:
        if call.path == LOCK and call.name in ("truncate", "write"):
            raise OSError(errno.EIO, "injected")

    two.disk.on_call = refuse
    with pytest.raises(TranscriptStoreError, match="lock"):
        append(two.first)
    two.disk.on_call = None
    the_second_goes_on(two, {two.before}, "no turn")
    the_first_goes_on(two, "no turn")


@pytest.mark.parametrize("step", [append, update_metadata, replace], ids=lambda one: one.__name__)
def test_a_change_is_noticed_though_the_lock_file_could_not_be_read(step: Step) -> None:
    """U1: whoever cannot see what was left there removes it before he changes anything, and then he may be killed."""
    two = two_at(grown)
    two.second.get_messages()
    has_changed = False

    def refuse(call: FileSystemCall) -> None:
        nonlocal has_changed
        has_changed |= call.name in ("write", "rename") and call.path != LOCK and ".tmp-" not in call.path
        if call.path == LOCK and call.name == "read":
            raise OSError(errno.EIO, "injected")
        if call.path == LOCK and has_changed:
            raise SimulatedStop

    two.disk.on_call = refuse
    with suppress(SimulatedStop):
        step(two.first)
    two.disk.kill_process()
    assert has_changed
    the_second_goes_on(two, {done(grown, step)}, "killed behind a lock file that could not be read")


def test_unsynced_records_of_another_process_are_synced_before_they_are_shown() -> None:
    """P1: a writer whose appends are not synced takes turns with one whose are: what that one shows survives a power cut."""
    two = two_at(grown, durability="process-crash")
    append(two.first)
    assert len(two.second.get_messages()) == 4
    assert observe(two.disk.worst_power_failure()) == state_of(two.second)
    append(two.first)
    assert opened(two.disk, lambda: append(two.first)) == 0, "nobody asked it to sync"


def test_a_conversation_that_was_deleted_between_two_turns() -> None:
    """P13: it is gone, and that is said; one that was created in its place, with another id, is not taken for it."""
    two = two_at(grown)
    other = two.disk.another_process()
    ConversationLibrary(DIRECTORY.rpartition("/")[0], file_system=other).delete(DIRECTORY.rpartition("/")[2])
    for _ in range(2):
        with pytest.raises(ConversationNotFoundError):
            append(two.first)
    with store_on(other) as another:
        another.initialize(messages=[PROBE])
    for _ in range(2):
        with pytest.raises(ConversationNotFoundError, match="its path leads to another one"):
            append(two.first)
        with pytest.raises(ConversationNotFoundError, match="its path leads to another one"):
            two.first.get_messages()
    with store_on(other) as another:
        another.load()
        assert another.get_messages() == [PROBE]


def test_a_repair_between_two_turns() -> None:
    """P13: damage is an error of the first call that meets it; after the repair the same store goes on with what was kept."""
    two = two_at(unmarked)
    path = f"{DIRECTORY}/transcript.jsonl"
    content = two.disk.tree()[path] or b""
    two.disk.write_file(path, content.replace(b"message 4", b"massage 4"))
    two.disk.write_file(LOCK, b"")
    with pytest.raises(TranscriptStoreError, match=r"transcript\.jsonl"):
        two.first.get_messages()
    repair(DIRECTORY, mode="salvage", dry_run=False, file_system=two.disk.another_process())
    messages = two.first.get_messages()
    assert [message["content"][:9] for message in messages] == [f"message {n}" for n in (0, 1, 2, 3, 5)]
    assert two.second.get_messages() == messages
    the_first_goes_on(two, "repaired")


def test_of_two_that_append_behind_one_head_one_does() -> None:
    """P22: if_head holds between processes."""
    two = two_at(grown)
    head = two.second.head
    two.first.append_message(AFTERWARDS, if_head=head)
    with pytest.raises(ConversationChangedError):
        two.second.append_message(PROBE, if_head=head)
    assert two.second.get_messages()[-1] == AFTERWARDS


@pytest.mark.long
@pytest.mark.parametrize("case", ALL_IN_TURNS, ids=lambda case: case.name)
def test_all_that_one_process_does_in_turns(case: Case, record_property: Note) -> None:
    """P1 to P9: every case of the matrix, with a turn for each call."""
    count = enumeration.power_cuts(case, limit=30)
    if "process-crash" in case.durabilities:
        count += enumeration.power_cuts(case, limit=30, durability="process-crash")
    record_property("states after a power cut, simulated disk", count)
    record_property("kills, simulated disk", enumeration.kills(case))
    record_property(
        "states after a kill, a load and a power cut, simulated disk", enumeration.kills_then_power_cuts(case, limit=4)
    )
    record_property("errors, simulated disk", enumeration.errors(case, every=3))
    assert count >= 5
