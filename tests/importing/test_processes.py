"""A large import is shared among processes. What comes of it is the same, and whichever of them is killed, nothing is lost."""

from __future__ import annotations

import errno
import itertools
import json
import multiprocessing
import multiprocessing.synchronize  # before a test takes its semaphores away: it looks at them once
import os
import resource
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.importing.helpers import everything, line, notebook
from transcript_store import ConversationLibrary
from transcript_store.importing import import_conversations

pytestmark = [
    pytest.mark.usefixtures("notebooks"),
    pytest.mark.filterwarnings(
        "ignore:This process .* is multi-threaded"
    ),  # pytest-xdist's threads hold no lock of ours
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere everything is done in one process"),
]
SESSIONS = 210


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that came before may have left threads: they are of no interest to these."""
    monkeypatch.setattr("transcript_store.importing.may_fork", lambda: True)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Whole sessions, a torn one, one that grew in another file, and a file that holds none."""
    folder = tmp_path / "sources"
    folder.mkdir()
    for number in range(SESSIONS):
        said = "".join(line(say=f"{number}: {k}", at="2026-01-01T10:00:00Z") for k in range(3))
        (folder / f"{number:03}.jsonl").write_text(notebook(f"s{number}") + said + "torn" * (number % 20 == 7))
    first = (folder / "000.jsonl").read_text()
    (folder / "001-grown.jsonl").write_text(first + line(say="more", at="2026-01-01T10:00:01Z"))
    (folder / "empty.jsonl").write_text("nothing that anybody knows\n")
    return folder


def contents(library: ConversationLibrary) -> dict[str, bytes]:
    """Every transcript of a library."""
    top = Path(library.directory)
    return {
        str(path.relative_to(top)): path.read_bytes()
        for path in sorted(top.rglob("transcript*.jsonl"))
        if path.is_file()
    }


@pytest.mark.usefixtures("alone")
def test_f2_what_comes_of_it_is_what_one_process_makes(sources: Path, tmp_path: Path) -> None:
    """The same reports in the same order, the same records; and once more, with either, changes nothing."""
    one, two = ConversationLibrary(tmp_path / "one"), ConversationLibrary(tmp_path / "two")
    by_one = list(import_conversations([sources], one))
    by_two = []
    for report in import_conversations([sources], two, jobs=2):
        by_two.append(report)
        if report.id is not None:
            two.open(report.id, read_only=True).close()  # it is there when it is told
    assert not multiprocessing.active_children()
    assert Counter(report.action for report in by_one) == {"created": SESSIONS, "grew": 1, "skipped": 1}
    assert by_two == by_one
    assert everything(two) == everything(one)
    for library, jobs in ((one, 2), (two, 1)):
        before = contents(library)
        again = Counter(report.action for report in import_conversations([sources], library, jobs=jobs))
        assert again == {"unchanged": SESSIONS + 1, "skipped": 1}
        assert contents(library) == before


@pytest.mark.usefixtures("alone")
def test_it_is_shared(sources: Path, tmp_path: Path) -> None:
    """Two children while it goes on, none for what is little, and none if it was not asked for."""

    def children(library: ConversationLibrary, chosen: list[Path], jobs: int = 2) -> int:
        reports = import_conversations(chosen, library, jobs=jobs, dry_run=True)
        next(reports)
        found = len(multiprocessing.active_children())
        assert sum(1 for _ in reports) > 0
        assert not multiprocessing.active_children()
        return found

    library = ConversationLibrary(tmp_path / "library")
    assert children(library, [sources]) == 2
    assert children(library, [sources], jobs=1) == 0
    assert children(library, sorted(sources.iterdir())[:100]) == 0


def test_beside_another_thread_nothing_is_forked(sources: Path, tmp_path: Path) -> None:
    """A child would have this thread alone, and for ever the locks that the other one holds."""
    ends = threading.Event()
    other = threading.Thread(target=ends.wait)
    other.start()
    try:
        reports = import_conversations([sources], ConversationLibrary(tmp_path / "library"), jobs=2)
        next(reports)
        assert not multiprocessing.active_children()
        assert sum(1 for _ in reports) == SESSIONS + 1
    finally:
        ends.set()
        other.join()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_f4_a_process_that_is_killed_costs_time(
    by: signal.Signals, sources: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a system does that has no memory left: this process goes on with what was not reported. By SIGTERM the pool ends the others."""
    library = ConversationLibrary(tmp_path / "library")
    reports = import_conversations([sources], library, jobs=2)
    seen = [next(reports)]
    os.kill(multiprocessing.active_children()[0].pid or 0, by)
    seen += reports
    assert len(seen) == SESSIONS + 2
    assert {report.action for report in seen} <= {"created", "grew", "unchanged", "skipped"}
    assert "a process that shared the work was killed" in caplog.text
    assert not multiprocessing.active_children()
    assert len(everything(library)) == SESSIONS


@pytest.mark.usefixtures("alone")
def test_an_interrupted_import_ends_its_processes(sources: Path, library: ConversationLibrary) -> None:
    """What has begun is interrupted: the processes have ended, and the next change leaves nothing over."""
    reports = import_conversations([sources], library, jobs=2)
    assert next(reports).action == "created"
    del reports
    assert not multiprocessing.active_children()
    assert 0 < len(everything(library)) < SESSIONS
    # A2, A3: whoever was interrupted between giving names and syncing them leaves the note of it. The next change does the rest.
    library.create().close()
    assert not [entry.name for entry in os.scandir(library.directory) if entry.name.startswith(".")]


@pytest.mark.usefixtures("alone")
def test_the_callers_own_processes_are_left_unchanged(sources: Path, library: ConversationLibrary) -> None:
    """What the caller began between two reports was stopped with the processes that shared the work."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    own = context.Process(target=receiver.recv)
    reports = import_conversations([sources], library, jobs=2)
    next(reports)
    own.start()
    assert sum(1 for _ in reports) == SESSIONS + 1
    sender.send(None)
    own.join()
    assert own.exitcode == 0


@pytest.mark.usefixtures("alone")
def test_a_killed_worker_is_reported(sources: Path, library: ConversationLibrary) -> None:
    """Its sessions are not left out in silence (F6): the import ends, and the next one brings them."""
    reports = import_conversations([sources], library, jobs=2)
    next(reports)
    for child in multiprocessing.active_children():
        os.kill(child.pid or 0, signal.SIGUSR1)
    with pytest.raises(KeyboardInterrupt):
        list(reports)
    assert not multiprocessing.active_children()
    list(import_conversations([sources], library))
    assert len(everything(library)) == SESSIONS


@pytest.mark.usefixtures("alone")
def test_ctrl_c_while_they_begin(sources: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes to this process when all have begun; and then it ends them."""
    submit = ProcessPoolExecutor.submit

    def interrupted(*arguments: Any) -> Future[Any]:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # to this thread, as where there is no other
        return submit(*arguments)

    monkeypatch.setattr(ProcessPoolExecutor, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(import_conversations([sources], library, jobs=2))
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("lacking", ["semaphores", "the second process", "a thread"])
def test_a_system_that_gives_no_processes(
    lacking: str,
    sources: Path,
    library: ConversationLibrary,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A container without /dev/shm, or a limit of processes: one process does everything, and none is left."""
    fork, calls = os.fork, itertools.count()

    def refuse(*_: object, **__: object) -> int:
        if lacking == "semaphores" or next(calls) == 1:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    def refuse_thread(_: object) -> None:
        raise RuntimeError("can't start new thread")

    if lacking == "a thread":
        monkeypatch.setattr("concurrent.futures.process._ExecutorManagerThread.start", refuse_thread)
    else:
        monkeypatch.setattr("_multiprocessing.SemLock" if lacking == "semaphores" else "os.fork", refuse)
    assert len(list(import_conversations([sources], library, jobs=2))) == SESSIONS + 2
    assert "the work is not shared among processes" in caplog.text
    assert not multiprocessing.active_children()


def test_where_nobody_tells_how_many_threads_there_are(
    sources: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without /proc nothing is forked."""
    listdir = os.listdir

    def refuse(path: str) -> list[str]:
        if path.startswith("/proc"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return listdir(path)

    monkeypatch.setattr("os.listdir", refuse)
    reports = import_conversations([sources], library, jobs=2)
    next(reports)
    assert not multiprocessing.active_children()
    assert sum(1 for _ in reports) == SESSIONS + 1


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """A disk on which such a file finds no room, for this process and its children."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("alone")
def test_a_session_beyond_a_limit_on_one_file_is_refused(sources: Path, tmp_path: Path) -> None:
    """The others are imported, and importing again without the limit stores it."""
    large = notebook("large") + line(say="x" * (1 << 20), at="2026-01-01T10:00:00Z")
    (sources / "100-large.jsonl").write_text(large)
    library = ConversationLibrary(tmp_path / "library")
    with no_file_larger_than(1 << 19):
        seen = list(import_conversations([sources], library, jobs=2))
    (refused,) = (report for report in seen if report.action == "refused")
    assert str(library.directory) in (refused.reason or "")
    assert not multiprocessing.active_children()
    assert {report.id for report in seen if report.id} == everything(library).keys()
    again = list(import_conversations([sources], library, jobs=2))
    assert {report.action for report in again} <= {"created", "grew", "unchanged", "skipped"}
    assert len(everything(library)) == SESSIONS + 1


COMMAND = [sys.executable, "-m", "transcript_store", "import", "--json", "--jobs", "2"]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_f4_nothing_is_left_running_when_the_command_is_killed(
    sent: signal.Signals, tmp_path: Path, claude_sessions: Path
) -> None:
    """Its children have the pipe open that it writes into: the pipe ends when all of them have ended."""
    command = [*COMMAND, "--into", str(tmp_path / "library"), str(claude_sessions)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["action"] == "created"
        process.send_signal(sent)
        process.stdout.read()
    done = subprocess.run(command, capture_output=True, check=True)
    assert {json.loads(report)["action"] for report in done.stdout.splitlines()} <= {"created", "unchanged"}
    assert len(everything(ConversationLibrary(tmp_path / "library"))) == len(list(claude_sessions.iterdir()))


def test_ctrl_c_ends_all_of_it_quietly(tmp_path: Path, claude_sessions: Path) -> None:
    """A terminal sends it to the whole group."""
    command = [*COMMAND, "--into", str(tmp_path / "library"), str(claude_sessions)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    _, complaint = process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in complaint


@pytest.fixture
def claude_sessions(tmp_path: Path) -> Path:
    folder = tmp_path / "projects"
    folder.mkdir()
    for number in range(220):
        its_id = f"00000000-0000-4000-8000-{number:012}"
        first: dict[str, object] = {
            "type": "user",
            "uuid": f"u{number}",
            "parentUuid": None,
            "sessionId": its_id,
            "cwd": "/home/me",
        }
        first |= {"timestamp": "2026-01-01T10:00:00Z", "message": {"role": "user", "content": "Hello"}}
        (folder / f"{its_id}.jsonl").write_text(json.dumps(first) + "\n")
    return folder


@pytest.mark.parametrize("jobs", [0, -1])
def test_a_number_that_makes_no_sense(jobs: int, sources: Path, library: ConversationLibrary) -> None:
    with pytest.raises(ValueError, match="jobs must be at least 1"):
        import_conversations([sources], library, jobs=jobs)
