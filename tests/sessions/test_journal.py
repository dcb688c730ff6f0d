"""J1 to J5: a change of another program's files is made as a whole or not at all, whenever it is killed, and can be undone.

The reports behind it: programs that move or repair histories by hand and are stopped half way leave a project in two halves (one
renames the folder, another rewrites the index), and what was there before is gone.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.sessions.kills import ends_before
from transcript_store.sessions import SessionChangeError, Undone, finished_changes, undo_change, undo_interrupted
from transcript_store.sessions._journal import DatabaseChange, FileChange, FileMove, Step, change_files, sha256_at
from transcript_store.sessions._rows import RowChange

ROWS = ({"id": "a", "cwd": "/old", "at": 1}, {"id": "b", "cwd": "/old", "at": 2})


def home(tmp_path: Path) -> Path:
    folder = tmp_path / "program"
    (folder / "old/beside").mkdir(parents=True)
    (folder / "replaced").write_bytes(b"before\n")
    (folder / "removed").write_bytes(b"removed\n")
    (folder / "old/beside/file").write_bytes(b"moved\n")
    with closing(sqlite3.connect(folder / "state.sqlite")) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=OFF")
        database.execute("CREATE TABLE threads (id TEXT PRIMARY KEY, cwd TEXT NOT NULL, at INTEGER DEFAULT 0)")
        database.executemany("INSERT INTO threads VALUES (:id, :cwd, :at)", ROWS)
        database.commit()
    return folder


def steps(folder: Path) -> list[Step]:
    """One of each kind."""
    changes = (
        RowChange("threads", {"id": "a"}, (ROWS[0],), ({**ROWS[0], "cwd": "/new"},)),
        RowChange("threads", {"id": "b"}, (ROWS[1],), ()),
        RowChange("threads", {"id": "c"}, (), ({"id": "c", "cwd": "/new"},)),
    )
    return [
        DatabaseChange(str(folder / "state.sqlite"), changes),
        FileChange(str(folder / "replaced"), b"after\n", sha256_at(str(folder / "replaced"))),
        FileChange(str(folder / "new/deep/created"), b"created\n", None),
        FileChange(str(folder / "removed"), None, sha256_at(str(folder / "removed"))),
        FileMove(str(folder / "old/beside"), str(folder / "new/beside")),
    ]


def state(folder: Path) -> tuple[dict[str, bytes], list[tuple[object, ...]]]:
    """All files but copies, journals and the database's own; and its rows."""
    with closing(sqlite3.connect(folder / "state.sqlite")) as database:
        rows = sorted(database.execute("SELECT * FROM threads"))
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".before-" not in path.name and not path.name.startswith((".transcript", "state"))
    }
    return files, rows


BEFORE = (
    {"old/beside/file": b"moved\n", "removed": b"removed\n", "replaced": b"before\n"},
    [("a", "/old", 1), ("b", "/old", 2)],
)
AFTER = (
    {"new/beside/file": b"moved\n", "new/deep/created": b"created\n", "replaced": b"after\n"},
    [("a", "/new", 1), ("c", "/new", 0)],
)


def test_a_change_is_made_and_undone(tmp_path: Path) -> None:
    """Every step is made, a copy of each file and of the database is beside it, and the undo leaves nothing behind."""
    folder = home(tmp_path)
    names = sorted(os.listdir(folder))
    assert state(folder) == BEFORE
    change = change_files(str(folder), "a test", steps(folder))
    assert state(folder) == AFTER
    copies = {name: (folder / f"{name}.before-{change}").read_bytes() for name in ("replaced", "removed")}
    assert copies == {"replaced": b"before\n", "removed": b"removed\n"}
    with closing(sqlite3.connect(folder / f"state.sqlite.before-{change}")) as copy:
        assert len(copy.execute("SELECT * FROM threads").fetchall()) == len(ROWS)
    assert finished_changes(str(folder)) == [change]
    undone = undo_change(str(folder), change)
    assert undone.what == "a test"
    assert undone.left == ()
    assert state(folder) == BEFORE
    assert [name for name in sorted(os.listdir(folder)) if not name.startswith("state.sqlite-")] == names


def kills(
    folder_of: Callable[[], Path], call: Callable[[Path], object], check: Callable[[Path], None], every: int = 1
) -> int:
    """Kill a call before each of its changes, or each of so many, each time in a fresh home; returns how many it has."""
    nth = 1 - every
    while True:
        nth += every
        folder = folder_of()
        is_done = ends_before(nth, lambda folder=folder: call(folder))  # type: ignore[misc]
        check(folder)
        if is_done:
            return nth - 1


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for the disk: a killed process loses nothing that it wrote."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
def test_a_kill_before_every_step_leaves_all_or_nothing(tmp_path: Path, every: int) -> None:
    """J1 to J3: the next call finds the change finished, or undoes it to the last byte and row."""
    homes = (home(tmp_path / str(number)) for number in range(1000))
    reached = set()

    def check(folder: Path) -> None:
        undone = undo_interrupted(str(folder))
        reached.add((undone is not None, bool(finished_changes(str(folder)))))
        if finished_changes(str(folder)):
            assert undone is None
            assert state(folder) == AFTER
        else:
            assert state(folder) == BEFORE
            left = [name for name in os.listdir(folder) if ".new-" in name or ".before-" in name]
            assert [name for name in left if not name.startswith("state")] == []

    count = kills(lambda: next(homes), lambda folder: change_files(str(folder), "a test", steps(folder)), check, every)
    assert count > 20
    assert reached == {(False, False), (True, False), (False, True)}


@pytest.mark.long
@pytest.mark.usefixtures("quick")
def test_a_kill_of_an_undo_is_completed_by_the_next_one(tmp_path: Path) -> None:
    """J3, J4: the undo itself can be killed before each of its steps."""
    homes = (home(tmp_path / str(number)) for number in range(1000))

    def changed() -> Path:
        folder = next(homes)
        change_files(str(folder), "a test", steps(folder))
        return folder

    def check(folder: Path) -> None:
        undo_interrupted(str(folder))
        assert state(folder) == (AFTER if finished_changes(str(folder)) else BEFORE)

    count = kills(changed, lambda folder: undo_change(str(folder), finished_changes(str(folder))[-1]), check)
    assert count > 5


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "replaced").write_bytes(b"of the program\n"),
        lambda folder: (folder / "removed").write_bytes(b"of the program\n"),
        lambda folder: (
            (folder / "new/deep").mkdir(parents=True) or (folder / "new/deep/created").write_bytes(b"of the program\n")
        ),
        lambda folder: (folder / "new/beside").mkdir(parents=True),
        lambda folder: write(folder, "UPDATE threads SET cwd = '/elsewhere' WHERE id = 'a'"),
        lambda folder: write(folder, "DELETE FROM threads WHERE id = 'b'"),
        lambda folder: write(folder, "INSERT INTO threads (id, cwd) VALUES ('c', '/elsewhere')"),
    ],
    ids=["replaced", "removed", "created", "moved", "row updated", "row deleted", "row inserted"],
)
def test_what_changed_since_the_plan_stops_all_of_it(tmp_path: Path, change: Callable[[Path], object]) -> None:
    """J5: a file or a row that the program wrote meanwhile is never overwritten, and the other steps are not made either."""
    folder = home(tmp_path)
    planned = steps(folder)
    change(folder)
    before = state(folder)
    with pytest.raises(SessionChangeError, match="nothing was changed"):
        change_files(str(folder), "a test", planned)
    assert state(folder) == before
    assert finished_changes(str(folder)) == []


def write(folder: Path, sql: str) -> None:
    with closing(sqlite3.connect(folder / "state.sqlite")) as database:
        database.execute(sql)
        database.commit()


def test_an_undo_leaves_what_was_written_since(tmp_path: Path) -> None:
    """J4: the program went on in a file: its words stay, and the copy of the earlier bytes is beside it."""
    folder = home(tmp_path)
    change = change_files(str(folder), "a test", steps(folder))
    with (folder / "replaced").open("ab") as file:
        file.write(b"more\n")
    write(folder, "UPDATE threads SET cwd = '/elsewhere' WHERE id = 'a'")
    undone = undo_change(str(folder), change)
    assert isinstance(undone, Undone)
    assert set(undone.left) == {str(folder / "replaced"), str(folder / "state.sqlite")}
    assert (folder / "replaced").read_bytes() == b"after\nmore\n"
    assert (folder / f"replaced.before-{change}").read_bytes() == b"before\n"


def test_a_database_in_use_is_not_changed(tmp_path: Path) -> None:
    """A writer holds the database: the error names it, and no file was changed."""
    folder = home(tmp_path)
    before = state(folder)
    with closing(sqlite3.connect(folder / "state.sqlite", isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        with pytest.raises(SessionChangeError, match="locked"):
            change_files(str(folder), "a test", steps(folder))
    assert state(folder) == before


def test_two_changes_at_once_are_one_after_the_other(tmp_path: Path) -> None:
    """The second is refused while the first holds the folder."""
    folder = home(tmp_path)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(SessionChangeError, match="another `transcript-store session`"):
            change_files(str(folder), "a test", steps(folder))
    finally:
        os.close(handle)
    change_files(str(folder), "a test", steps(folder))


@pytest.mark.parametrize("limit", [100, 3000, 9000])
def test_a_full_disk_leaves_all_as_it_was(tmp_path: Path, limit: int) -> None:
    """A write is refused, be it of a new file, of the journal or of the copy of a database: the error says so, and nothing is left behind."""
    folder = home(tmp_path)
    planned = [*steps(folder), FileChange(str(folder / "large"), b"x" * 20_000, None)]
    names = sorted(os.listdir(folder))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        with pytest.raises(SessionChangeError, match="nothing was changed"):
            change_files(str(folder), "a test", planned)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert state(folder) == BEFORE
    undo_interrupted(str(folder))
    assert [name for name in sorted(os.listdir(folder)) if not name.startswith("state.sqlite-")] == names


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """What stands at the path leads elsewhere: neither is changed."""
    folder = home(tmp_path)
    target = tmp_path / "elsewhere"
    target.write_bytes(b"another's\n")
    (folder / "link").symlink_to(target)
    with pytest.raises(SessionChangeError):
        change_files(str(folder), "a test", [FileChange(str(folder / "link"), b"new\n", sha256_at(str(target)))])
    assert target.read_bytes() == b"another's\n"


def test_mode_and_time_of_a_file_stay(tmp_path: Path) -> None:
    """A replaced file has the mode of the old one, and its time if that is asked for; a new one is its owner's alone."""
    folder = home(tmp_path)
    os.chmod(folder / "replaced", 0o640)
    os.utime(folder / "replaced", ns=(1_000_000_000, 2_000_000_000))
    seen = sha256_at(str(folder / "replaced"))
    change_files(str(folder), "a", [FileChange(str(folder / "replaced"), b"x", seen, keeps_time=True)])
    change_files(str(folder), "b", [FileChange(str(folder / "created"), b"x", None)])
    assert (folder / "replaced").stat().st_mode & 0o777 == 0o640
    assert (folder / "replaced").stat().st_mtime_ns == 2_000_000_000
    assert (folder / "created").stat().st_mode & 0o777 == 0o600
