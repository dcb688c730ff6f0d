"""Changes are found by notifications and by polling, and each path leads to the source that `discover` finds."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.keeping.helpers import LONG_AGO, write
from transcript_store.keeping import PollingWatcher, SystemWatcher, Watcher
from transcript_store.sources import FoundSource, discover, session_at


def system() -> Watcher:
    pytest.importorskip("watchfiles", reason="watchfiles is not installed: the extra `keep`")
    return SystemWatcher()


@pytest.fixture(params=["polling", pytest.param("watchfiles", marks=pytest.mark.long)])
def watcher(request: pytest.FixtureRequest) -> Iterator[Watcher]:
    # The one that polls sleeps as long as a test changes something.
    made = PollingWatcher(sleep=lambda _seconds: None) if request.param == "polling" else system()
    yield made
    made.close()


def grow(home: Path) -> list[Path]:
    return [write(home, "a", [2])]


def begin(home: Path) -> list[Path]:
    return [write(home, "b", [1])]


def begin_in_a_new_folder(home: Path) -> list[Path]:
    return [write(home, "b", [1], project="-new")]


def begin_below_a_session(home: Path) -> list[Path]:
    source = home / ".claude/projects/-home-ada-shop/a/subagents/agent-1.jsonl"
    source.parent.mkdir(parents=True)
    source.write_bytes((home / ".claude/projects/-home-ada-shop/a.jsonl").read_bytes())
    return [source]


def rename_the_folder(home: Path) -> list[Path]:
    folder = home / ".claude/projects/-home-ada-shop"
    folder.rename(folder.with_name("-home-ada-store"))
    return [folder.with_name("-home-ada-store") / "a.jsonl"]


def replace(home: Path) -> list[Path]:
    source = home / ".claude/projects/-home-ada-shop/a.jsonl"
    new = source.with_suffix(".new")
    new.write_bytes(source.read_bytes())
    new.rename(source)
    return [source]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    "change", [grow, begin, begin_in_a_new_folder, begin_below_a_session, rename_the_folder, replace]
)
def test_each_change_is_seen(home: Path, watcher: Watcher, change: Callable[[Path], list[Path]]) -> None:
    write(home, "a", [1], old=False)
    watcher.know(discover())
    while watcher.how == "watchfiles" and not watcher.wait(3):  # until it watches: what happens before, nothing says
        write(home, "a", [1], old=False)
    expected = {str(path) for path in change(home)}
    seen: set[str] = set()
    deadline = time.monotonic() + 60
    while not expected <= seen and time.monotonic() < deadline:
        seen |= {path for path in watcher.wait(0.0 if watcher.how == "polling" else 5.0) if session_at(path)}
    assert expected <= seen


def test_nothing_happens(home: Path, watcher: Watcher) -> None:
    write(home, "a", [1])
    watcher.know(discover())
    assert watcher.wait(0.0) == set()


def test_a_database_changes_in_its_log_alone(home: Path) -> None:
    database = home / ".config/io.datasette.llm/logs.db"
    database.parent.mkdir(parents=True)
    database.write_bytes(b"SQLite format 3\0")
    watcher = PollingWatcher(sleep=lambda _seconds: None)
    watcher.know(discover())
    Path(f"{database}-wal").write_bytes(b"rows")
    assert str(database) in watcher.wait(0.0)
    assert (found := session_at(str(database))) is not None
    assert found.size == 20


def test_a_path_leads_to_what_discover_finds(home: Path) -> None:
    """The same source, of the same program; anything else is none."""
    names = [
        ".claude/projects/-p/s.jsonl",
        ".claude/projects/-p/s/subagents/agent-1.jsonl",
        ".codex/sessions/2026/11/27/rollout-2026-11-27T10-00-00-x.jsonl",
        ".codex/archived_sessions/rollout-x.jsonl.zst",
        ".gemini/tmp/hash/chats/session-1.json",
        ".openclaw/agents/main/sessions/s.jsonl",
        ".openclaw/agents/main/sessions/s.trajectory.jsonl",
        ".pi/agent/sessions/p/s.jsonl",
        ".claude/projects/s.jsonl",
        ".claude/projects/-p/.hidden.jsonl",
        ".claude/settings.json",
        ".codex/sessions/2026/notes.jsonl",
        "elsewhere/s.jsonl",
    ]
    for number, name in enumerate(names):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(b"x" * number)
    (home / ".claude/projects/-p/link.jsonl").symlink_to(home / names[0])
    (home / ".claude/projects/-p/folder.jsonl").mkdir()
    found = {one.path: one for one in discover()}
    assert len(found) == 7
    everything = [os.path.join(folder, name) for folder, folders, files in os.walk(home) for name in [*folders, *files]]
    assert {path: one for path in everything if (one := session_at(path)) is not None} == found
    assert session_at(str(home / ".claude/projects/-p/gone.jsonl")) is None


def test_it_looks_at_little(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many sessions only those that changed last are looked at each time; of the others their folders."""
    for number in range(30):
        write(home, f"s{number}", [1])  # long ago
    write(home, "new", [1], old=False)
    watcher = PollingWatcher(sleep=lambda _seconds: None)
    watcher.know(discover())
    looked: list[str] = []
    true_stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path: (looked.append(str(path)), true_stat(path))[1])  # type: ignore[func-returns-value]
    watcher.wait(0.0)
    assert len(looked) < 10
    assert any(path.endswith("new.jsonl") for path in looked)


def test_a_thread_that_fails_is_heard(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised in the waiting caller, not in the watching thread."""
    write(home, "a", [1])
    watchfiles = pytest.importorskip("watchfiles", reason="watchfiles is not installed: the extra `keep`")

    def watch(*_roots: str, **_options: object) -> Iterator[set[tuple[int, str]]]:
        raise RuntimeError("no watches left")
        yield set()

    monkeypatch.setattr(watchfiles, "watch", watch)
    before = {*threading.enumerate()}
    watcher = SystemWatcher()
    watcher.know([])
    with pytest.raises(OSError, match="cannot be watched: no watches left"):
        watcher.wait(30.0)
    watcher.close()
    assert {*threading.enumerate()} <= before


def test_sources_ahead_of_the_clock_become_due(home: Path) -> None:
    """Their own time never says that they are quiet; the time since they look so does."""
    from transcript_store.importing import SourceFollower

    source = write(home, "a", [1])
    ahead = time.time() + 10**6
    os.utime(source, (ahead, ahead))
    follower = SourceFollower(quiet_seconds=0.0)
    follower.look(found := discover(), is_all=True)
    assert [one.path for one in follower.due()] == [str(source)]
    follower.imported(found)
    assert (len(follower), follower.seconds_until_due()) == (0, None)
    patient = SourceFollower(quiet_seconds=3600.0)
    patient.look(found, is_all=True)
    assert patient.due() == []
    assert 3590 < (patient.seconds_until_due() or 0) <= 3600
    patient.look([], is_all=True)
    assert len(patient) == 0
    assert isinstance(found[0], FoundSource)
    assert ahead > LONG_AGO
