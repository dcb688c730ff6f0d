"""A session that its program lost, or no longer lists, is put back: byte for byte, with what the list needs, and once.

openai/codex#40426, #31433, #41814, #45706 (the rollouts are there, the rows of the state database are not); anthropics/claude-code#90866,
#62476 (deleted by retention); google-gemini/gemini-cli#27877 (the registry of folders is gone). With the real programs:
tests/programs/test_sessions.py.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.kit.homes import set_home
from tests.kit.trees import tree
from tests.reports.sessions import changed_by
from tests.sessions.homes import MAKERS, OPENCODE_SESSION, SESSION, claude_code, codex, forget_sessions, opencode, write
from tests.sessions.kills import ends_before
from transcript_store import ConversationLibrary
from transcript_store.importing import discover, import_conversations
from transcript_store.redaction import SecretRedactor
from transcript_store.sessions import restore_session, undo_interrupted


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    set_home(monkeypatch, folder)
    monkeypatch.setenv("TRANSCRIPT_STORE_LIBRARY", str(tmp_path / "chats"))
    (tmp_path / "shop").mkdir()
    return folder


def imported(home: Path) -> dict[str, str]:
    """The conversations of all sessions in a home, by the path of each."""
    library = ConversationLibrary(home.parent / "chats")
    return {report.source: str(report.id) for report in import_conversations(discover(home=home), library)}


def thread(home: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(home / ".codex/state_5.sqlite")) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute("SELECT * FROM threads")]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("program", MAKERS)
def test_a_deleted_session_comes_back_byte_for_byte(home: Path, program: str) -> None:
    """The dry run writes nothing; --apply writes the bytes; again, there is nothing to do. The id of the session is enough to name it."""
    path = MAKERS[program](home, str(home.parent / "shop"))
    before = path.read_bytes()
    own = imported(home)[str(path)]
    assert "already: nothing to restore" in changed_by("restore", own)
    path.unlink()
    now = tree(home)
    assert "nothing was changed: add --apply" in changed_by("restore", own, code=1)
    assert tree(home) == now
    done = json.loads(changed_by("restore", SESSION, "--apply", "--json").splitlines()[-1])
    assert (done["applied"], done["session"], done["program"]) == (True, SESSION, program)
    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o600
    assert "already: nothing to restore" in changed_by("restore", own, "--apply")


def test_all_sessions_of_a_program_come_back(home: Path) -> None:
    """A wiped home: those that are there stay, the others are put back; what another program lost is left."""
    first = claude_code(home, str(home.parent / "shop"))
    second = claude_code(home, str(home.parent / "shop"), session="0a000000-0000-4000-8000-000000000001")
    other = codex(home, str(home.parent / "shop"))
    imported(home)
    before = second.read_bytes()
    second.unlink()
    other.unlink()
    assert "0 restored, 1 to restore" in changed_by("restore", "claude", code=1)
    assert "1 restored, 0 to restore" in changed_by("restore", "claude", "--apply")
    assert second.read_bytes() == before
    assert first.exists()
    assert not other.exists()
    assert "2 sessions of claude-code" in changed_by("restore", "claude", str(home.parent / "chats"))


def test_sub_agents_come_back_with_their_session(home: Path) -> None:
    """Claude Code's folder of a session went with it."""
    path = claude_code(home, str(home.parent / "shop"))
    own = imported(home)[str(path)]
    agent = path.parent / SESSION / "subagents/agent-a1.jsonl"
    before = agent.read_bytes()
    shutil.rmtree(home / ".claude/projects")
    changed_by("restore", own, "--apply")
    assert agent.read_bytes() == before
    assert path.exists()


def test_codex_gets_the_row_that_its_list_needs(home: Path) -> None:
    """openai/codex#40426: the file is there, the row is not. The newest database gets it, with what the rollout says; a copy is kept."""
    path = codex(home, str(home.parent / "shop"), row=False)
    own = imported(home)[str(path)]
    before = path.read_bytes()
    done = json.loads(changed_by("restore", own, "--apply", "--json").splitlines()[-1])
    assert [(Path(file["path"]).name, file["action"]) for file in done["files"]] == [
        (path.name, "keep"),
        ("state_5.sqlite", "rows"),
    ]
    assert Path(done["files"][1]["copy"]).exists()
    [row] = thread(home)
    assert row["id"] == SESSION
    assert row["rollout_path"] == str(path)
    assert row["preview"] == row["first_user_message"] == f"What is in {home.parent / 'shop'}?"
    assert (row["cwd"], row["model_provider"], row["source"]) == (str(home.parent / "shop"), "lab", "exec")
    assert row["created_at_ms"] == 1795802720000
    assert path.read_bytes() == before
    changed_by("undo", "codex", "--apply")
    assert thread(home) == []


def test_a_row_that_leads_nowhere_leads_to_the_file_again(home: Path) -> None:
    """The home was moved: the row names a path that is not there. Its other columns, such as a name, stay."""
    path = codex(home, str(home.parent / "shop"))
    own = imported(home)[str(path)]
    with closing(sqlite3.connect(home / ".codex/state_5.sqlite")) as database:
        database.execute("UPDATE threads SET rollout_path = '/elsewhere/rollout.jsonl', name = 'mine'")
        database.commit()
    changed_by("restore", own, "--apply")
    [row] = thread(home)
    assert (row["rollout_path"], row["name"]) == (str(path), "mine")


def test_a_state_database_of_another_version_is_not_guessed_at(home: Path) -> None:
    """A column that a row needs and no rollout says: nothing is written, the file neither."""
    path = codex(home, str(home.parent / "shop"), row=False)
    own = imported(home)[str(path)]
    path.unlink()
    with closing(sqlite3.connect(home / ".codex/state_6.sqlite")) as database:
        database.execute("CREATE TABLE threads (id TEXT PRIMARY KEY, shard TEXT NOT NULL)")
        database.commit()
    assert "threads needs shard" in changed_by("restore", own, "--apply", code=1)
    assert not path.exists()


def test_a_file_that_was_cut_is_made_whole(home: Path) -> None:
    """What is there is the beginning of what was imported: it is replaced, and a copy is beside it."""
    path = claude_code(home, str(home.parent / "shop"))
    own, before = imported(home)[str(path)], path.read_bytes()
    path.write_bytes(before[:100])
    done = json.loads(changed_by("restore", own, "--apply", "--json").splitlines()[-1])
    assert done["files"][0]["action"] == "replace"
    assert Path(done["files"][0]["copy"]).read_bytes() == before[:100]
    assert path.read_bytes() == before


@pytest.mark.parametrize("more", [b'{"type":"user"}\n', b""])
def test_what_the_program_wrote_since_is_never_overwritten(home: Path, more: bytes) -> None:
    """A longer file is left as it is; one with other bytes is an error that says what to do."""
    path = claude_code(home, str(home.parent / "shop"))
    own, before = imported(home)[str(path)], path.read_bytes()
    now = before + more if more else before.replace(b"A note", b"B note")
    path.write_bytes(now)
    said = changed_by("restore", own, "--apply", code=0 if more else 1)
    assert ("and more" if more else "has other bytes") in said
    assert path.read_bytes() == now


@pytest.mark.parametrize("name", ["archived_sessions/{}", "sessions/2026/11/27/{}.zst"])
def test_a_session_that_the_program_put_elsewhere_is_not_there_twice(home: Path, name: str) -> None:
    """openai/codex#31433: two rollouts of one thread. It was archived, or packed, since the import."""
    path = codex(home, str(home.parent / "shop"))
    own = imported(home)[str(path)]
    elsewhere = home / ".codex" / name.format(path.name)
    write(elsewhere, path.read_bytes())
    path.unlink()
    changed_by("restore", own, "--apply")
    assert not path.exists()
    assert elsewhere.exists()


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("session", ["x; touch owned", "$(touch owned)", "-p", "../../../owned"])
def test_what_a_session_is_called_is_data(home: Path, session: str) -> None:
    """An id comes from a file that others wrote: never an option, a command or a path."""
    source = home.parent / "from a stranger.jsonl"
    path = claude_code(home, str(home.parent / "shop"))
    write(source, path.read_bytes().replace(SESSION.encode(), session.encode()))
    shutil.rmtree(home / ".claude")
    library = ConversationLibrary(home.parent / "chats")
    [report] = import_conversations([source], library)
    before = tree(home)
    said = changed_by("restore", str(report.id), "--apply", "--json", code=1 if session != "-p" else 0)
    assert f"--resume {session}" not in said
    if session != "-p":
        assert "--to claude-code" in said
        assert tree(home) == before


def test_another_home_and_another_machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library came from elsewhere: the session goes to this machine's folder, at its own place in it."""
    path = claude_code(home, str(home.parent / "shop"))
    own, before = imported(home)[str(path)], path.read_bytes()
    other = home.parent / "other"
    monkeypatch.setenv("HOME", str(other))
    changed_by("restore", own, "--apply")
    assert (other / path.relative_to(home)).read_bytes() == before


def test_a_session_imported_from_a_backup_gets_the_place_that_the_program_gives_it(home: Path) -> None:
    """The file had another name and another folder when it was imported."""
    path = codex(home, str(home.parent / "shop"), row=False)
    backup = home.parent / "backup/old.jsonl"
    write(backup, path.read_bytes())
    path.unlink()
    library = ConversationLibrary(home.parent / "chats")
    [report] = import_conversations([backup], library)
    changed_by("restore", str(report.id), "--apply")
    assert path.read_bytes() == backup.read_bytes()
    assert [row["rollout_path"] for row in thread(home)] == [str(path)]


def test_what_was_never_imported_needs_a_program(home: Path) -> None:
    """A conversation of ours: --to makes a session of it, and the same again finds it there."""
    library = ConversationLibrary(home.parent / "chats")
    with library.create(
        messages=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    ) as store:
        own = store.id
    assert "--to PROGRAM makes" in changed_by("restore", own, code=1)
    done = json.loads(changed_by("restore", own, "--to", "claude", "--apply", "--json").splitlines()[-1])
    assert b"hello" in Path(done["files"][0]["path"]).read_bytes()
    assert "already" in changed_by("restore", own, "--to", "claude-code")


def test_it_is_refused_while_the_program_runs(home: Path) -> None:
    """A process of that name with this home counts; one with another home does not."""
    path = claude_code(home, str(home.parent / "shop"))
    own = imported(home)[str(path)]
    path.unlink()
    program = home.parent / "claude"
    program.symlink_to(sys.executable)
    for folder, code in ((home, 1), (home.parent, 0)):
        with subprocess.Popen(
            [str(program), "-c", "print(1, flush=True); input()"],
            env={**os.environ, "HOME": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            said = changed_by("restore", own, "--apply", code=code)
            assert (f"process {process.pid}" in said) == bool(code)
            process.kill()
        assert path.exists() != bool(code)


def test_a_file_that_another_process_has_open_is_not_changed(home: Path) -> None:
    """Whatever that process is called."""
    path = claude_code(home, str(home.parent / "shop"))
    path.write_bytes(path.read_bytes() + b'{"torn')
    with subprocess.Popen(
        [sys.executable, "-c", f"file = open({str(path)!r}, 'ab'); print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        said = changed_by("repair", str(path), "--apply", code=1)
        process.kill()
    assert f"process {process.pid}" in said
    assert path.read_bytes().endswith(b'{"torn')


@pytest.mark.long
def test_a_kill_of_a_restore_leaves_all_or_nothing(home: Path) -> None:
    """Before each call that changes something: the next command undoes it, or finds it done; the file and the row are of one mind."""
    path = codex(home, str(home.parent / "shop"))
    own = imported(home)[str(path)]
    library, nth, is_done, states = ConversationLibrary(home.parent / "chats"), 0, False, set()
    while not is_done:
        nth += 1
        shutil.rmtree(home / ".codex")
        codex(home, str(home.parent / "shop"), row=False).unlink()
        is_done = ends_before(nth, lambda: restore_session(library, own, apply=True))
        undo_interrupted(str(home / ".codex"))
        assert path.exists() == bool(thread(home))
        states.add(path.exists())
        assert restore_session(library, own, apply=True).applied or path.exists()
    assert nth > 8
    assert states == {True, False}


# ---- sessions in a database -------------------------------------------------------------------------------------------


def stored(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What OpenCode's database says: of sessions what its list shows, messages with their ids, parts in their order."""
    asked = {
        "session": "SELECT id, project_id, parent_id, directory, path, title, cost, tokens_input, agent FROM session ORDER BY id",
        "message": "SELECT id, session_id, time_created, data FROM message ORDER BY id",
        "part": "SELECT message_id, session_id, data FROM part ORDER BY message_id, id",
    }
    with closing(sqlite3.connect(path)) as database:
        return {
            table: [
                tuple(json.loads(each) if str(each).startswith("{") else each for each in row)
                for row in database.execute(sql)
            ]
            for table, sql in asked.items()
        }


@pytest.fixture
def lost(home: Path) -> Path:
    """A database that lost its sessions, which are in the library."""
    path = opencode(home, str(home.parent / "shop"))
    list(import_conversations(discover(home=home), ConversationLibrary(home.parent / "chats")))
    forget_sessions(path)
    return path


def test_rows_that_a_database_lost_come_back_with_those_of_sub_agents(home: Path, lost: Path) -> None:
    """anomalyco/opencode#6538 and its kin: the ids and the contents of messages, the order of parts, project and path for the list."""
    before = stored(opencode(home.parent / "as it was", str(home.parent / "shop")))
    now = lost.read_bytes()
    assert "2 sessions, 4 messages, 8 parts" in changed_by("restore", OPENCODE_SESSION, code=1)
    assert lost.read_bytes() == now
    done = json.loads(changed_by("restore", OPENCODE_SESSION, "--apply", "--json").splitlines()[-1])
    assert (done["applied"], done["command"]) == (True, f"opencode --session {OPENCODE_SESSION}")
    assert stored(lost) == before
    assert Path(done["files"][0]["copy"]).is_file()
    assert "already: nothing to restore" in changed_by("restore", OPENCODE_SESSION, "--apply")
    again = import_conversations(discover(home=home), ConversationLibrary(home.parent / "chats"))
    assert {report.action for report in again} == {"unchanged"}
    changed_by("undo", "opencode", "--apply")
    assert stored(lost) == {"session": [], "message": [], "part": []}


def test_a_session_belongs_to_the_project_whose_folder_it_is_in(home: Path, lost: Path) -> None:
    """The nearest one above it; its path is below that."""
    with closing(sqlite3.connect(lost)) as database:
        database.executemany(
            "INSERT INTO project VALUES (?, ?, 1, 1, '[]')",
            [("near", str(home.parent)), ("other", f"{home.parent}/shop2")],
        )
        database.commit()
    changed_by("restore", "opencode", "--apply")
    assert {row[1:5:3] for row in stored(lost)["session"]} == {("near", "shop")}


def test_a_session_of_another_program_becomes_rows_once(home: Path, lost: Path) -> None:
    """``--to``: a call and its result are one part; what is there is not put there again."""
    own = imported_session(home)
    done = json.loads(changed_by("restore", own, "--to", "opencode", "--apply", "--json").splitlines()[-1])
    assert done["files"][0]["action"] == "rows"
    rows = stored(lost)
    assert [row[0] for row in rows["session"]] == [done["session"]]
    assert [row[2]["text"] for row in rows["part"]] == [f"What is in {home.parent / 'shop'}?", "A note."]
    assert "already: nothing to restore" in changed_by("restore", own, "--to", "opencode", "--apply")


@pytest.mark.parametrize("program", ["opencode", "claude-code"])
def test_what_was_redacted_comes_back_as_a_new_session(home: Path, program: str) -> None:
    """Its bytes are not known here: the error says what makes a session of it, and that does, for its own program too."""
    shop = str(home.parent / "shop")
    path = opencode(home, shop) if program == "opencode" else claude_code(home, shop)
    library = ConversationLibrary(home.parent / "chats")
    redact = SecretRedactor(patterns=["A note"])
    reports = list(import_conversations(discover(home=home), library, redact=redact))
    forget_sessions(path) if program == "opencode" else path.unlink()
    own = next(str(report.id) for report in reports if report.session in (OPENCODE_SESSION, SESSION))
    assert "--to PROGRAM` makes a new session" in changed_by("restore", own, "--apply", code=1)
    done = json.loads(changed_by("restore", own, "--to", program, "--apply", "--json").splitlines()[-1])
    assert done["applied"]
    assert done["session"] not in (OPENCODE_SESSION, SESSION)


def imported_session(home: Path) -> str:
    path = claude_code(home, str(home.parent / "shop"))
    return imported(home)[str(path)]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("ALTER TABLE session ADD COLUMN owner TEXT NOT NULL DEFAULT ''", None),
        ("DROP TABLE part", "cannot be read"),
        ("CREATE TABLE session_v2 (id TEXT); INSERT INTO session_v2 VALUES ('x')", "version 2"),
        (
            "DROP TABLE message; CREATE TABLE message (id TEXT, session_id TEXT, data TEXT, hash TEXT NOT NULL)",
            "needs hash",
        ),
    ],
)
def test_a_database_of_another_version_is_not_guessed_at(lost: Path, sql: str, reason: str | None) -> None:
    """A column that may be empty does not matter; what needs a value that is not on record here is refused."""
    with closing(sqlite3.connect(lost)) as database:
        database.executescript(sql)
    before = lost.read_bytes()
    said = changed_by("restore", OPENCODE_SESSION, "--apply", code=0 if reason is None else 1)
    assert reason is None or reason in said
    assert (lost.read_bytes() == before) == (reason is not None)


def test_a_database_that_is_locked_or_not_there_is_named(lost: Path) -> None:
    before = lost.read_bytes()
    with closing(sqlite3.connect(lost, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        assert "locked" in changed_by("restore", OPENCODE_SESSION, "--apply", code=1)
    assert lost.read_bytes() == before
    lost.unlink()
    assert "start the program once" in changed_by("restore", OPENCODE_SESSION, "--apply", code=1)


@pytest.mark.long
def test_a_kill_of_a_restore_of_rows_leaves_all_or_nothing(home: Path, lost: Path) -> None:
    """Before each call that changes something: the next command undoes it, or finds all rows."""
    library, nth, is_done, states = ConversationLibrary(home.parent / "chats"), 0, False, set()
    own = next(str(each.id) for each in library.list() if "part_of" not in (each.labels or {}))
    while not is_done:
        nth += 1
        shutil.rmtree(lost.parent)
        forget_sessions(opencode(home, str(home.parent / "shop")))
        is_done = ends_before(nth, lambda: restore_session(library, own, apply=True))
        undo_interrupted(str(lost.parent))
        counts = tuple(len(rows) for rows in stored(lost).values())
        assert counts in ((0, 0, 0), (2, 4, 8))
        states.add(counts)
    assert nth > 4
    assert len(states) == 2
