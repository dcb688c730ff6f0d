"""A database that its program has open is read where it is: no copy of it is made, nothing beside it changes, no lock is dropped.

The report: each look of ``--follow`` at a database with a write-ahead log copied all of it, gigabytes every two seconds. And a rule of
SQLite's ("How To Corrupt An SQLite Database File", 2.2): to close any descriptor of a database's file drops the locks that the
process has on it.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.importing.helpers import files_of
from transcript_store import ConversationLibrary
from transcript_store.importing import import_conversations
from transcript_store.sources import find_sources

PROGRAM = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
for pragma in sys.argv[2:]:
    database.execute("PRAGMA " + pragma)
database.execute("CREATE TABLE IF NOT EXISTS agent_messages (id INTEGER PRIMARY KEY, session_id, message_data, created_at)")
print("ready", flush=True)
for line in sys.stdin:
    if line.startswith("SQL "):
        database.execute(line[4:])
    else:
        text = '{"type": "message", "role": "user", "content": "%s"}' % line.strip()
        database.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('s', ?)", (text,))
    print("done", flush=True)
"""


class Program:
    """Another process that writes to a database."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def say(self, text: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


@contextmanager
def program(path: Path, *pragmas: str) -> Iterator[Program]:
    command = [sys.executable, "-c", PROGRAM, str(path), *pragmas]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield Program(process)
        finally:
            process.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "program"
    folder.mkdir()
    return folder / "state.sqlite"


def imported(path: Path, library: ConversationLibrary, **options: Any) -> tuple[str, int]:
    (report,) = import_conversations([path], library, **options)
    return report.action, report.messages


def untouched(path: Path, library: ConversationLibrary, **options: Any) -> tuple[str, int]:
    """Import, and see that the database and what lies beside it are to the byte as they were (F1)."""
    before = files_of(path.parent)
    done = imported(path, library, **options)
    assert files_of(path.parent) == before
    return done


def without_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise AssertionError("a copy was made")

    monkeypatch.setattr("transcript_store.sources._files._copied", none)  # why private: it is what must not happen


def test_the_newest_rows_are_read_without_a_copy(
    path: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its program is at work, in the middle of a transaction, after a checkpoint, and when the program was killed."""
    without_copies(monkeypatch)
    with program(path, "journal_mode=WAL") as writer:
        writer.say("one")
        assert untouched(path, library) == ("created", 1)
        writer.say("two")
        writer.say("SQL BEGIN IMMEDIATE")
        writer.say("three")
        assert untouched(path, library) == ("grew", 2)
        writer.say("SQL COMMIT")
        writer.say("SQL PRAGMA wal_checkpoint(FULL)")
        assert untouched(path, library) == ("grew", 3)
        writer.say("four")
        assert untouched(path, library) == ("grew", 4)
        writer.say("five")
        writer.kill()
    assert untouched(path, library) == ("grew", 5)
    assert untouched(path, library) == ("unchanged", 5)


@pytest.mark.parametrize("pragma", ["journal_mode=PERSIST", "journal_mode=TRUNCATE", "journal_mode=DELETE"])
def test_a_journal_that_is_not_in_force_costs_no_copy(
    pragma: str, path: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_copies(monkeypatch)
    with program(path, pragma) as writer:
        writer.say("one")
        assert untouched(path, library) == ("created", 1)
        writer.say("two")
        assert untouched(path, library) == ("grew", 2)


@pytest.mark.parametrize("how", ["no index", "an index of nothing", "no index at all"])
def test_what_sqlite_would_have_to_write_is_read_from_a_copy(
    how: str, path: Path, library: ConversationLibrary
) -> None:
    """A log whose index is gone or empty; a program that keeps the index in its own memory."""
    pragmas: tuple[str, ...] = ("journal_mode=WAL", "wal_autocheckpoint=0")
    if how == "no index at all":
        pragmas = ("locking_mode=EXCLUSIVE", *pragmas)
    with program(path, *pragmas) as writer:
        writer.say("one")
        writer.say("two")
        if how == "no index at all":
            assert not Path(f"{path}-shm").exists()
            assert untouched(path, library) == ("created", 2)
            return
        writer.kill()
    if how == "no index":
        os.unlink(f"{path}-shm")
    else:
        Path(f"{path}-shm").write_bytes(b"")
    assert untouched(path, library) == ("created", 2)


def test_rows_that_stand_in_the_log_alone_are_seen_with_a_cache(
    path: Path, library: ConversationLibrary, tmp_path: Path
) -> None:
    """The database's own file looks as it did: what was added is in the log beside it, whose time is the database's too."""
    cache = tmp_path / "cache"
    with program(path, "journal_mode=WAL", "wal_autocheckpoint=0") as writer:
        writer.say("one")
        long_ago(path)
        assert imported(path, library, cache=cache) == ("created", 1)
        assert imported(path, library, cache=cache) == ("unchanged", 1)
        (before,) = find_sources(path)
        writer.say("two")
        (after,) = find_sources(path)
        assert (before == after, before.mtime_ns < after.mtime_ns) == (False, True)
        assert imported(path, library, cache=cache) == ("grew", 2)


def long_ago(path: Path) -> None:
    """So that the cache believes that nobody is writing just now."""
    for end in ("", "-wal"):
        os.utime(f"{path}{end}", (1.7e9, 1.7e9))


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_look_at_a_large_database_reads_a_part_of_it(
    is_cached: bool, path: Path, library: ConversationLibrary, tmp_path: Path
) -> None:
    """Five gigabytes, nearly all of them a hole: in use, and unchanged."""
    options = {"cache": tmp_path / "cache"} if is_cached else {}
    with program(path, "journal_mode=WAL") as writer:
        writer.say("one")
        writer.say("SQL PRAGMA wal_checkpoint(TRUNCATE)")
        os.truncate(path, 5 << 30)
        writer.say("two")
        long_ago(path)
        assert imported(path, library, **options)[0] == "created"
        before = read_by_this_process()
        assert imported(path, library, **options)[0] == "unchanged"
        assert read_by_this_process() - before < 10 << 20


def read_by_this_process() -> int:
    try:
        counts = Path("/proc/self/io").read_text()
    except OSError:
        pytest.skip("the system does not count what a process reads")
    return int(counts.split()[1])


@pytest.mark.parametrize("mode", ["WAL", "DELETE", "PERSIST"])
def test_an_import_drops_no_lock_of_a_connection_of_this_process(
    mode: str, path: Path, library: ConversationLibrary
) -> None:
    """The caller is in a transaction, or only connected: no other process gets in, or deletes the log."""
    with program(path, f"journal_mode={mode}") as writer:
        writer.say("one")
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as ours:
        ours.execute("PRAGMA journal_mode=" + mode)
        ours.execute("BEGIN IMMEDIATE")
        ours.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('s', '{}')")
        imported(path, library)
        before = descriptors()  # ours, and those that SQLite itself does not close while it has locks
        for _ in range(3):
            imported(path, library)
        assert len(descriptors()) == len(before)
        assert refused_to_others(path)
        ours.execute("COMMIT")
        if mode == "WAL":
            ours.execute("SELECT * FROM agent_messages").fetchall()
            imported(path, library)
            others(path, "SELECT 1 FROM agent_messages")  # the last one that closes it would delete the log
            assert Path(f"{path}-wal").exists()
        assert ours.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    imported(path, library)
    assert str(path) not in {os.readlink(f"/proc/self/fd/{number}") for number in descriptors()}


def descriptors() -> set[str]:
    """The open descriptors of this process, but that of the listing."""
    return {number for number in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{number}")}


def others(path: Path, sql: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None);"
        "c.execute(sys.argv[2]); c.close()"
    )
    return subprocess.run([sys.executable, "-c", code, str(path), sql], capture_output=True, text=True, check=False)


def refused_to_others(path: Path) -> bool:
    return "database is locked" in others(path, "BEGIN IMMEDIATE").stderr
