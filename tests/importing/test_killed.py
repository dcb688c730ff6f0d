"""F4: an import that is killed anywhere and run again ends as if it had not been.

The disk of the tests stops at every call of the system in turn: the process is gone, or the power is. What the library then
holds is whole conversations; the next import brings it to the very records that an import in peace leaves.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.importing.helpers import everything, imported, line, notebook
from tests.kit.machines import SyncedWhole
from transcript_store import ConversationLibrary
from transcript_store.importing import import_conversations
from transcript_store.testing import FileSystemCall, SimulatedFileSystem, SimulatedStop

pytestmark = pytest.mark.usefixtures("notebooks")

BEGINNING = notebook() + line(say="a", at="2026-01-01T10:00:00Z") + line(title="First") + "torn\n"
MIDDLE = line(compact="b", at="2026-01-02T10:00:00Z") + line(say="c", at="2026-01-02T10:00:00Z")
END = line(title="Second") + line(compact="d", at="2026-01-03T10:00:00Z") + line(say="e", at="2026-01-03T10:00:00Z")

FROM_TO = {
    "created": (None, BEGINNING + MIDDLE),
    "grew": (BEGINNING, BEGINNING + line(say="more", at="2026-01-01T10:00:01Z") + MIDDLE + END),
    "replaced": (BEGINNING + MIDDLE, BEGINNING.replace('"say": "a"', '"say": "A"') + MIDDLE + END),
}


def on(disk: SimulatedFileSystem) -> ConversationLibrary:
    return ConversationLibrary("/library", file_system=disk)


def stopped_at(number: int, disk: SimulatedFileSystem) -> None:
    calls = itertools.count(1)

    def stop(_: FileSystemCall, calls: Iterator[int] = calls) -> None:
        if next(calls) >= number:  # other threads are killed with this one
            raise SimulatedStop

    disk.on_call = stop


def stopped_everywhere(source: Path, begun: Callable[[int], SimulatedFileSystem], step: int, expected: object) -> int:
    """Stop an import at each ``step``-th call, kill it or cut the power, and import again; returns how often it was stopped."""
    stops = 0
    for stop in itertools.count(1, step):
        disk = begun(stop)
        stopped_at(stop, disk)
        try:
            imported(source, on(disk))
        except SimulatedStop:
            stops += 1
        else:
            break
        finally:
            disk.on_call = None
        for left in (disk.kill_process(), *disk.power_failures(limit=2)):
            everything(on(left))  # whole conversations: each can be read to its end
            imported(source, on(left))
            assert seen(left) == expected, f"stopped at call {stop}"
            assert imported(source, on(left)).action == "unchanged"
    return stops


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("step", [53, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("in_batches", [False, True])
@pytest.mark.parametrize("action", FROM_TO)
def test_f4_killed_anywhere_and_run_again_it_is_as_if_it_had_not_been(
    action: str, in_batches: bool, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every call of the system, by a kill and by a power loss: the same records, labels and generations in the end.

    Also of a source so large that a generation of it is stored in several batches. At every call among the long proofs, and at
    every seventeenth each time.
    """
    if in_batches:
        monkeypatch.setattr("transcript_store.importing._records._ONE_BATCH_BYTES", 0)
        monkeypatch.setattr("transcript_store.importing._records._BATCH_RECORDS", 2)
    before, after = FROM_TO[action]
    source = tmp_path / "s.jsonl"

    def begun(seed: int) -> SimulatedFileSystem:
        disk = SimulatedFileSystem(seed=seed)
        if before is not None:
            source.write_text(before)
            imported(source, on(disk))
        source.write_text(after)
        return disk

    undisturbed = begun(0)
    assert imported(source, on(undisturbed)).action == action
    expected = seen(undisturbed)
    assert stopped_everywhere(source, begun, step, expected) > 80 // step


MISREAD = {"uuid": "a", "sessionId": "s1", "type": "user", "message": {"role": "user", "content": "a"},
           "timestamp": "2026-01-01T10:00:00Z"}  # fmt: skip


@pytest.mark.parametrize("step", [39, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("action", ["grew", "created"])
def test_f4_killed_while_labels_change(action: str, step: int, tmp_path: Path) -> None:
    """A title that changed beside a session, and the label of a conversation that another format made of the source."""
    source, title = tmp_path / "s.jsonl", tmp_path / "title.txt"
    source.write_text(line(notebook="s1", say="a", at="2026-01-01T10:00:00Z", **MISREAD))

    def begun(seed: int) -> SimulatedFileSystem:
        disk = SimulatedFileSystem(seed=seed)
        title.write_text("First")
        imported(source, on(disk), format="claude-code" if action == "created" else None)
        title.write_text("Second")
        return disk

    undisturbed = begun(0)
    assert imported(source, on(undisturbed)).action == action
    expected = seen(undisturbed)
    assert ("superseded" in str(expected), "Second" in str(expected)) == (action == "created", True)
    assert stopped_everywhere(source, begun, step, expected) > 40 // step


@pytest.mark.parametrize("step", [29, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("in_between", ["kill", "power loss"])
def test_f4_what_was_reported_of_a_group_stays_and_the_rest_comes_the_next_time(
    in_between: str, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five sessions in groups of two, stopped at every call: a report that came is true after a power loss."""
    monkeypatch.setattr("transcript_store._library.group._MOST", 2)
    for number in range(5):
        said = line(say=f"a{number}", at="2026-01-01T10:00:00Z") + (MIDDLE if number == 1 else "")
        (tmp_path / f"{number}.jsonl").write_text(notebook(f"s{number}") + said)
    undisturbed = SimulatedFileSystem()
    expected_reports = list(import_conversations([tmp_path], on(undisturbed)))
    expected = seen(undisturbed)
    assert [report.action for report in expected_reports] == ["created"] * 5
    stops = 0
    for stop in itertools.count(1, step):
        disk = SimulatedFileSystem(seed=stop)
        stopped_at(stop, disk)
        reported: set[str | None] = set()
        try:
            for report in import_conversations([tmp_path], on(disk)):
                reported.add(report.id)
        except SimulatedStop:
            stops += 1
        else:
            break
        finally:
            disk.on_call = None
        killed = disk.kill_process()
        for left in [killed] if in_between == "kill" else killed.power_failures(limit=3):
            there = everything(on(left))
            assert reported <= there.keys() <= {report.id for report in expected_reports}
            again = list(import_conversations([tmp_path], on(left)))
            assert {report.id for report in again if report.action == "unchanged"} >= reported
            assert {report.id for report in again if report.action == "created"} == (
                {report.id for report in expected_reports} - there.keys()
            )
            assert seen(left) == expected, f"stopped at call {stop}"
            assert not [path for path in left.tree() if "/." in path]
    assert stops > 40 // step


def test_another_import_that_was_faster_is_not_told_of_as_ours(tmp_path: Path) -> None:
    """Both import the same session; the one that commits later finds it there, and says so."""
    source = tmp_path / "s.jsonl"
    source.write_text(BEGINNING)
    disk = SimulatedFileSystem()
    others: list[Any] = []

    def import_too(call: FileSystemCall) -> None:
        if call.name == "sync_all" and not others:
            others.append(imported(source, on(disk.another_process())).action)

    disk.on_call = import_too
    assert imported(source, on(disk)).action == "unchanged"
    assert others == ["created"]
    assert not [path for path in disk.tree() if "/." in path]


def test_two_files_of_one_session_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """The second finds the first in the group: it commits, and is compared with it."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(BEGINNING)
    library = on(SimulatedFileSystem())
    assert sorted(report.action for report in import_conversations([tmp_path], library)) == ["created", "unchanged"]


def test_the_second_of_them_waits_until_the_first_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread is at work on it. The second was refused at once: there was nothing to commit, and it did not wait."""
    second_waits = threading.Event()

    class Time:
        @staticmethod
        def sleep(seconds: float) -> None:
            second_waits.set()
            time.sleep(seconds)

    def slow(message: Any) -> Any:
        assert second_waits.wait(10)
        return message

    library = ConversationLibrary(tmp_path / "library", redact=slow, file_system=SyncedWhole())
    library.create().close()  # so that threads share the work
    sources = [tmp_path / f"{name}.jsonl" for name in ("a", "b")]
    for source in sources:
        source.write_text(BEGINNING)
    monkeypatch.setattr("transcript_store.importing._importer.time", Time)
    reports = list(import_conversations(sources, library))
    assert sorted(report.action for report in reports) == ["created", "unchanged"]


def seen(disk: SimulatedFileSystem) -> dict[str, Any]:
    """What the library holds, without the stamps of the source, which is written anew for each run."""
    found = everything(on(disk))
    return {
        name: [[_without_stamps(record) for record in records] for records in generations]
        for name, generations in found.items()
    }


def _without_stamps(record: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(re.sub(r'"(mtime_ns|inode)": \d+', "", part) if isinstance(part, str) else part for part in record)
