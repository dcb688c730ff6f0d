"""J1 to J5 after a power cut: restore, relink, repair and undo leave all or nothing, whatever of their writes reached the disk.

Before each system call that was really made, and at the end, each state that a weak disk may have is looked at by the next call. A sync
that is left out must be noticed, or this proves nothing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.kernel import Note
from tests.crash.model import ViolationError
from tests.kit.homes import set_home
from tests.kit.scratch import scratch_directory
from tests.sessions.homes import MAKERS, SESSION, forget_sessions, opencode
from tests.sessions.power_cuts import Change, cut_at_every_call
from transcript_store import ConversationLibrary
from transcript_store.importing import discover, import_conversations
from transcript_store.sessions import (
    _journal,
    finished_changes,
    moved_folder,
    program_named,
    relink_program,
    repair_program,
    restore_session,
    undo_change,
)
from transcript_store.sessions._rows import RowChange, change_rows

pytestmark = [pytest.mark.long, pytest.mark.needs("strace")]

FOLDERS = {"claude-code": ".claude", "codex": ".codex", "gemini-cli": ".gemini", "pi": ".pi/agent"}
Patch = pytest.MonkeyPatch


@pytest.fixture
def place(monkeypatch: Patch) -> Iterator[Path]:
    """A folder in memory: the home is ``home`` in it, and a project was moved from ``shop`` to ``our shop``."""
    with scratch_directory() as folder:
        (Path(folder) / "our shop").mkdir()
        set_home(monkeypatch, f"{folder}/home")
        yield Path(folder)


def threads(home: Path) -> object:
    """Of the rows of Codex what its list shows."""
    path = home / ".codex/state_5.sqlite"
    if not path.exists():
        return None
    with closing(sqlite3.connect(path)) as database:
        return sorted(database.execute("SELECT id, cwd, rollout_path FROM threads"))


def restored(program: str, place: Path) -> Change:
    """A session whose file is gone, or cut, and whose row is gone."""
    library = ConversationLibrary(place / "chats")

    def make_home(home: Path) -> None:
        path = MAKERS[program](home, str(place / "our shop"))
        list(import_conversations(discover(home=home), library))
        if program == "pi":  # a beginning of it is there: it is replaced
            path.write_bytes(path.read_bytes()[:100])
        else:
            path.unlink()
        if program == "codex":
            with closing(sqlite3.connect(home / ".codex/state_5.sqlite")) as database:
                database.execute("DELETE FROM threads")
                database.commit()
        if program == "gemini-cli":
            (home / ".gemini/projects.json").unlink()
            (home / ".gemini/tmp/shop/.project_root").unlink()

    def make(_: Path) -> None:
        [own] = [one.id for one in library.list() if "part_of" not in (one.labels or {})]
        assert restore_session(library, str(own), apply=True).applied

    return Change(make_home, lambda home: home / FOLDERS[program], make, threads)


def restored_rows(program: str, place: Path) -> Change:
    """Sessions that a database lost."""
    library = ConversationLibrary(place / "chats")

    def make_home(home: Path) -> None:
        path = opencode(home, str(place / "our shop"), program=program)
        list(import_conversations(discover(home=home), library))
        forget_sessions(path)

    def make(_: Path) -> None:
        [own] = [one.id for one in library.list() if "part_of" not in (one.labels or {})]
        assert restore_session(library, str(own), apply=True).applied

    def rows(home: Path) -> object:
        with closing(sqlite3.connect(home / f".local/share/{program}/{program}.db")) as database:
            return [
                database.execute(f"SELECT count(*) FROM {table}").fetchone() for table in ("session", "message", "part")
            ]

    return Change(make_home, lambda home: home / f".local/share/{program}", make, rows)


def relinked(program: str, place: Path) -> Change:
    def make(_: Path) -> None:
        moved = moved_folder(str(place / "shop"), str(place / "our shop"))
        assert any(each.applied for each in relink_program(program, moved, apply=True))

    return Change(
        lambda home: MAKERS[program](home, str(place / "shop")), lambda home: home / FOLDERS[program], make, threads
    )


def repaired(program: str, place: Path) -> Change:
    """Two torn files."""

    def make_home(home: Path) -> None:
        path = MAKERS[program](home, str(place / "our shop"))
        other = path.with_name(path.name.replace(SESSION, f"{SESSION[:-1]}9"))
        for each in (path, other):
            each.write_bytes(path.read_bytes().replace(b"\n", b"", 1) + b'{"torn')

    def make(_: Path) -> None:
        assert any(each.applied for each in repair_program(program_named(program), apply=True))

    return Change(make_home, lambda home: home / FOLDERS[program], make, threads)


def undone(program: str, place: Path) -> Change:
    """The undo of a relink."""
    change = relinked(program, place)

    def make_home(home: Path) -> None:
        change.make_home(home)
        change.make(home)

    def make(home: Path) -> None:
        folder = str(change.folder(home))
        undo_change(folder, finished_changes(folder)[-1])

    return Change(make_home, change.folder, make, threads, is_undo=True)


Make = Callable[[str, Path], Change]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("program", MAKERS)
@pytest.mark.parametrize("change", [restored, relinked, repaired, undone], ids=lambda change: change.__name__)
def test_a_power_cut_leaves_all_or_nothing(change: Make, program: str, place: Path, record_property: Note) -> None:
    """Whatever of the files and of the transaction is on the disk: the next call makes it what it was, or finds it finished."""
    tally = cut_at_every_call(change(program, place), place / "home")
    record_property("system calls of a change of another program's files, power cut before each", tally.calls)
    record_property("states after a power cut, other programs' files", tally.states)
    assert tally.calls > 15
    assert tally.states >= 4


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("program", ["opencode", "kilo"])
def test_a_power_cut_leaves_all_rows_or_none(program: str, place: Path, record_property: Note) -> None:
    """The same for a program with a database of all sessions."""
    tally = cut_at_every_call(restored_rows(program, place), place / "home")
    record_property("system calls of a change of another program's files, power cut before each", tally.calls)
    record_property("states after a power cut, other programs' files", tally.states)
    assert tally.calls > 15


# ---- seeded bugs ------------------------------------------------------------------------------------------------------


def no_sync_of_folders(patch: Patch) -> None:
    patch.setattr(_journal, "_sync", lambda folder: None)


def files_are_not_synced(patch: Patch) -> None:
    """The journal and the new files get their names before their bytes are on the disk."""
    real = _journal._write_synced

    def hasty(*given: object, **named: object) -> None:
        with patch.context() as within:
            within.setattr("os.fsync", lambda handle: None)
            real(*given, **named)  # type: ignore[arg-type]

    patch.setattr(_journal, "_write_synced", hasty)


def changed_before_the_journal(patch: Patch) -> None:
    """The steps are made, and the journal is written after them."""
    waits: list[tuple[object, ...]] = []
    make, write = _journal._make, _journal._write_journal
    patch.setattr(_journal, "_write_journal", lambda *given: waits.append(given))

    def make_first(*given: object) -> None:
        make(*given)  # type: ignore[arg-type]
        while waits:
            write(*waits.pop())  # type: ignore[arg-type]

    patch.setattr(_journal, "_make", make_first)


def written_in_place(patch: Patch) -> None:
    """A file that is there is emptied and written again."""
    make = _journal._make

    def in_place(step: _journal.Step, change_id: str) -> None:
        if isinstance(step, _journal.FileChange) and step.data is not None and step.seen is not None:
            new = _journal._new_name(step.path, change_id)
            os.unlink(step.path)
            os.rename(new, step.path)
        else:
            make(step, change_id)

    patch.setattr(_journal, "_make", in_place)


def finished_before_the_database(patch: Patch) -> None:
    """The journal gets the name of a finished change, and the rows follow."""
    rename = os.rename
    waits: list[tuple[str, Sequence[RowChange]]] = []

    def later(path: str, rows: Sequence[RowChange]) -> None:
        waits.append((path, rows))

    def rename_first(old: str, new: str) -> None:
        rename(old, new)
        while waits and ".transcript-store-session-" in new:
            change_rows(*waits.pop())

    patch.setattr(_journal, "change_rows", later)
    patch.setattr("os.rename", rename_first)


@pytest.mark.parametrize(
    ("bug", "change", "program"),
    [
        (no_sync_of_folders, relinked, "claude-code"),
        (files_are_not_synced, relinked, "claude-code"),
        (changed_before_the_journal, relinked, "claude-code"),
        (written_in_place, repaired, "claude-code"),
        (finished_before_the_database, restored, "codex"),
    ],
    ids=lambda given: given if isinstance(given, str) else given.__name__,
)
def test_a_seeded_bug_is_found(
    bug: Callable[[Patch], None], change: Make, program: str, place: Path, monkeypatch: Patch
) -> None:
    """Each is a way to lose a session of another program at a power cut."""
    made = change(program, place)
    make = made.make

    def make_with_bug(home: Path) -> None:
        with monkeypatch.context() as patch:
            bug(patch)
            make(home)

    made.make = make_with_bug
    with pytest.raises((ViolationError, _journal.SessionChangeError), match=r"power cut|not a readable journal"):
        cut_at_every_call(made, place / "home")
