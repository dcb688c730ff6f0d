"""The command session with the programs as they are shipped: what it repaired, put back or relinked is listed and resumed by the program.

What counts is the request that the program then sends: it has to carry all that was said. Codex is asked over its own protocol what it lists, from its state database alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.kit.homes import set_home
from tests.programs.exchanges import files, session_of
from tests.programs.lab import ANSWER, NOTE, PROGRAMS, WITH_DATABASE, WITH_IMPORT, Lab, command
from transcript_store import ConversationLibrary
from transcript_store.importing import import_conversations
from transcript_store.sessions import (
    SessionChangeError,
    moved_folder,
    program_named,
    relink_program,
    repair_program,
    restore_session,
    running_processes,
    undo_change,
)

pytestmark = pytest.mark.long

IN_FILES = [program for program in PROGRAMS if program not in WITH_IMPORT]
"""Those whose sessions are put back as files; the others take a file by a command of their own."""

QUESTION = "READ the note, please."
LISTED = ("codex", "gemini-cli")
"""Programs whose list can be asked for without a terminal."""


@pytest.fixture
def home(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lab's home, for this process too."""
    set_home(monkeypatch, lab.home)
    return lab.home


def listed(lab: Lab, program: str) -> list[str]:
    """The ids of the sessions that the program lists for the working folder."""
    if program == "gemini-cli":
        return [
            line.rpartition("[")[2].strip("]")
            for line in lab.run(program, "--list-sessions").splitlines()
            if "[" in line
        ]
    process = subprocess.Popen(
        [str(command("codex")), "app-server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=lab.work,
        env={"HOME": str(lab.home), "PATH": os.environ["PATH"], "LAB_KEY": "of-nobody"},
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def ask(number: int, method: str, parameters: dict[str, Any]) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"id": number, "method": method, "params": parameters}) + "\n")
        process.stdin.flush()
        return next(said for said in map(json.loads, process.stdout) if said.get("id") == number)["result"]

    try:
        ask(1, "initialize", {"clientInfo": {"name": "lab", "title": "lab", "version": "1"}})
        asked = {"sourceKinds": ["exec"], "useStateDbOnly": True, "cwd": str(lab.work)}
        return [thread["id"] for thread in ask(2, "thread/list", asked)["data"]]
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def says_all(messages: list[dict[str, Any]]) -> bool:
    said = json.dumps(messages)
    return all(words in said for words in (QUESTION, NOTE, ANSWER, "And what was it?"))


def forget(lab: Lab, program: str) -> None:
    """What loses a session: its file, and what the program's list knows of it."""
    for path in files(lab, program):
        path.unlink()
    if program == "codex":
        with closing(sqlite3.connect(lab.home / ".codex/state_5.sqlite")) as database:
            database.execute("DELETE FROM threads")
            database.commit()
    if program == "gemini-cli":
        shutil.rmtree(lab.home / ".gemini/tmp")
        (lab.home / ".gemini/projects.json").unlink()


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("program", IN_FILES)
def test_a_lost_session_is_listed_and_resumed_again(lab: Lab, program: str, tmp_path: Path) -> None:
    """openai/codex#40426, google-gemini/gemini-cli#27877, anthropics/claude-code#12908: byte for byte, and what the list needs."""
    lab.ask(program, QUESTION)
    [path] = files(lab, program)
    before, session = path.read_bytes(), session_of(program, path)
    library = ConversationLibrary(tmp_path / "chats")
    [report] = import_conversations([path], library)
    assert report.id is not None
    assert restore_session(library, report.id).is_listed
    forget(lab, program)
    if program in LISTED:
        assert session not in listed(lab, program)
    planned = restore_session(library, report.id)
    assert not planned.applied
    assert not path.exists()
    done = restore_session(library, report.id, apply=True)
    assert done.applied
    assert path.read_bytes() == before
    assert restore_session(library, report.id, apply=True).is_listed
    if program in LISTED:
        assert listed(lab, program).count(session) == 1
    assert says_all(lab.ask(program, "And what was it?", session=session))


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("program", IN_FILES)
def test_a_session_of_another_program_is_put_back_as_a_new_one(lab: Lab, program: str, tmp_path: Path) -> None:
    """``--to``: what Claude Code said (or pi, for Claude Code) is listed and resumed by the other program."""
    source = "pi" if program == "claude-code" else "claude-code"
    lab.ask(source, QUESTION)
    library = ConversationLibrary(tmp_path / "chats")
    [report] = import_conversations(files(lab, source), library)
    if program == "codex":
        lab.ask(program, "Begin its database.")
    assert report.id is not None
    there = set(files(lab, program))
    done = restore_session(library, report.id, to=program, apply=True)
    [new] = set(files(lab, program)) - there
    assert done.session is not None
    assert restore_session(library, report.id, to=program, apply=True).is_listed
    if program in LISTED:
        assert done.session in listed(lab, program) or program == "codex"  # it lists those of the terminal apart
    assert says_all(lab.ask(program, "And what was it?", session=str(new) if program == "pi" else done.session))


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("program", WITH_DATABASE)
def test_a_session_that_a_database_lost_is_listed_and_resumed_again(lab: Lab, program: str, tmp_path: Path) -> None:
    """Deleted by the program's own command: its rows come back, the request carries all, and an import finds what it had."""
    lab.ask(program, QUESTION)
    [path] = files(lab, program)
    library = ConversationLibrary(tmp_path / "chats")
    [report] = import_conversations([path], library)
    assert report.id is not None
    assert restore_session(library, report.id).is_listed
    session = str(report.session)
    lab.run(program, "session", "delete", session)
    assert session not in lab.run(program, "session", "list")
    before = path.read_bytes()
    planned = restore_session(library, report.id)
    assert (planned.applied, planned.files[0].action) == (False, "rows")
    assert path.read_bytes() == before
    done = restore_session(library, report.id, apply=True)
    assert (done.applied, done.session) == (True, session)
    assert done.files[0].copy is not None
    assert Path(done.files[0].copy).stat().st_size
    assert restore_session(library, report.id, apply=True).is_listed
    assert lab.run(program, "session", "list").count(session) == 1
    assert [each.action for each in import_conversations([path], library)] == ["unchanged"]
    assert says_all(lab.ask(program, "And what was it?", session=session))
    assert [each.action for each in import_conversations([path], library)] == ["grew"]


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("program", WITH_DATABASE)
def test_a_session_of_another_program_becomes_rows_of_a_database(lab: Lab, program: str, tmp_path: Path) -> None:
    """``--to``: listed, resumed, refused while the program runs, and undone."""
    lab.ask("claude-code", QUESTION)
    library = ConversationLibrary(tmp_path / "chats")
    [report] = import_conversations(files(lab, "claude-code"), library)
    assert report.id is not None
    with pytest.raises(SessionChangeError, match="start the program once"):
        restore_session(library, report.id, to=program, apply=True)
    lab.ask(program, "Begin its database.")
    with lab.held(program), pytest.raises(SessionChangeError, match=f"{program} runs|has a file open"):
        restore_session(library, report.id, to=program, apply=True)
    [database] = files(lab, program)
    deadline = time.monotonic() + 60
    while running_processes(
        program_named(program), str(database.parent), [str(database)]
    ):  # what it started ends a little later
        assert time.monotonic() < deadline
        time.sleep(0.1)
    done = restore_session(library, report.id, to=program, apply=True)
    assert (done.applied, done.command) == (True, f"{program} --session {done.session}")
    assert restore_session(library, report.id, to=program, apply=True).is_listed
    assert lab.run(program, "session", "list").count(str(done.session)) == 1
    undo_change(str(files(lab, program)[0].parent), str(done.change))
    assert str(done.session) not in lab.run(program, "session", "list")
    restore_session(library, report.id, to=program, apply=True)
    assert says_all(lab.ask(program, "And what was it?", session=done.session))


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("program", IN_FILES)
def test_sessions_follow_a_folder_that_was_renamed(lab: Lab, program: str, tmp_path: Path) -> None:
    """anthropics/claude-code#86713, #81603: the program lists and resumes them in the new folder; undone, all is as it was."""
    lab.ask(program, QUESTION)
    [path] = files(lab, program)
    session, before = session_of(program, path), path.read_bytes()
    old, new = lab.work, tmp_path / "renamed, ünd moved"
    old.rename(new)
    lab.work = new
    moved = moved_folder(str(old), str(new))
    changed = [each for each in relink_program(program, moved, apply=True) if each.steps]
    assert [each.sessions for each in changed] == [1]
    assert [each for each in relink_program(program, moved) if each.steps] == []
    [now] = files(lab, program)
    if program in LISTED:
        assert listed(lab, program) == [session]
    assert says_all(lab.ask(program, "And what was it?", session=session_of(program, now)))
    copies = [each.read_bytes() for each in lab.home.rglob("*.jsonl.before-*")]
    assert (
        before in copies or program == "gemini-cli"
    )  # it finds the folder by a marker, and its files stay as they are


def lines(data: bytes) -> list[bytes]:
    return data.split(b"\n")[:-1]


def answer_of(data: bytes) -> int:
    return max(number for number, line in enumerate(lines(data)) if ANSWER.encode() in line)


def joined(found: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in found)


TEARS: dict[str, Callable[[bytes, int], bytes]] = {
    "two objects on a line": lambda data, at: joined(lines(data)[:at])[:-1] + joined(lines(data)[at:]),
    "NUL before a line": lambda data, at: joined(lines(data)[:at]) + b"\0" * 300 + joined(lines(data)[at:]),
    "a half line, then a whole one": lambda data, at: (
        joined(lines(data)[:at]) + lines(data)[at][:60] + joined(lines(data)[at:])
    ),
    "a raw line feed": lambda data, at: joined(
        [*lines(data)[:at], lines(data)[at].replace(ANSWER.encode(), b"The\nlab answers."), *lines(data)[at + 1 :]]
    ),
    "U+2028": lambda data, at: joined(
        [*lines(data)[:at], lines(data)[at].replace(b"The lab", "The\u2028lab".encode()), *lines(data)[at + 1 :]]
    ),
    "a torn first line": lambda data, _: (
        lines(data)[0][: len(lines(data)[0]) * 2 // 3] + b"\n" + joined(lines(data)[1:])
    ),
    "a half last line": lambda data, at: data + lines(data)[at][:40],
}


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("program", IN_FILES)
def test_a_torn_session_is_resumed_with_all_that_was_said(lab: Lab, program: str) -> None:
    """anthropics/claude-code#49876, can1357/oh-my-pi#8596, google-gemini/gemini-cli#27276: torn in seven ways, one after the other."""
    lab.ask(program, QUESTION)
    [path] = files(lab, program)
    whole, session = path.read_bytes(), session_of(program, path)
    for name, tear in TEARS.items():
        for other in {*files(lab, program)} - {path}:
            other.unlink()
        path.write_bytes(tear(whole, answer_of(whole)))
        found = [each for each in repair_program(program_named(program), apply=True) if each.needs_repair]
        assert [each.applied for each in found] == ([] if name == "U+2028" and program != "gemini-cli" else [True]), (
            name
        )
        said = json.dumps(lab.ask(program, "And what was it?", session=session), ensure_ascii=False)
        said = said.replace("The\\nlab", "The lab").replace("The\u2028lab", "The lab")
        assert all(words in said for words in (QUESTION, NOTE, ANSWER, "And what was it?")), name


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("program", IN_FILES)
def test_nothing_is_written_while_the_program_runs(lab: Lab, program: str, tmp_path: Path) -> None:
    """The program waits for its model: repair and restore name its process, and change nothing. Afterwards they do it."""
    lab.ask(program, QUESTION)
    [path] = files(lab, program)
    library = ConversationLibrary(tmp_path / "chats")
    [report] = import_conversations([path], library)
    assert report.id is not None
    torn = path.read_bytes() + b'{"torn'
    path.write_bytes(torn)
    with lab.held(program) as process:
        with pytest.raises(SessionChangeError, match=f"{program} runs|has a file open"):
            list(repair_program(program_named(program), apply=True))
        assert path.read_bytes().startswith(torn)
        path.unlink()
        with pytest.raises(SessionChangeError, match=f"{program} runs|has a file open"):
            restore_session(library, report.id, apply=True)
        assert not path.exists()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert restore_session(library, report.id, apply=True).applied
