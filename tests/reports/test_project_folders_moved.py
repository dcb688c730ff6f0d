"""A project's folder was renamed or moved: in the library and in the programs it is one project again, and no other one is touched.

anthropics/claude-code#86713 (a plain replace also rewrites the neighbour ``shop-docker``; memory, prompts and trust stay behind), #81603,
#88903, #41344; wsagency/claude-move-project#13 (sessions in a folder too deep); anomalyco/opencode#27822, #23248;
cursor/cursor#2607 asks for the same. With the real programs: tests/programs/test_sessions.py.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.kit.cases import for_each
from tests.kit.homes import set_home
from tests.kit.trees import tree
from tests.reports.sessions import changed_by, told
from tests.sessions.homes import MAKERS, SESSION, claude_code, codex, gemini_cli, write
from tests.sessions.kills import ends_before
from transcript_store import ConversationLibrary
from transcript_store.importing import discover, import_conversations
from transcript_store.sessions import MovedFolder, moved_folder, relink_program, undo_interrupted

OTHER = "0a000000-0000-4000-8000-000000000001"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    set_home(monkeypatch, folder)
    monkeypatch.setenv("TRANSCRIPT_STORE_LIBRARY", str(tmp_path / "chats"))
    return folder


@pytest.fixture
def old(tmp_path: Path) -> str:
    return str(tmp_path / "shop")


@pytest.fixture
def new(tmp_path: Path) -> str:
    path = tmp_path / "work/our shop"
    path.mkdir(parents=True)
    return str(path)


def test_the_library_has_one_project(home: Path, old: str, new: str) -> None:
    """Labels and filters: the folder and what is below it; a neighbour whose name begins like it stays. An import takes nothing back."""
    library = ConversationLibrary(home.parent / "chats")
    folders = {name: f"{old}{name}" for name in ("", "/api", "-docker", "2")}
    for folder in folders.values():
        with library.create(messages=[{"role": "user", "content": "hi"}], labels={"cwd": folder, "team": "x"}):
            pass
    path = claude_code(home, old)
    [report] = list(import_conversations([path], library))
    assert "nothing was changed" in changed_by("relink", old, new, code=1)
    done = [json.loads(line) for line in changed_by("relink", old, new, "--apply", "--json").splitlines()]
    assert sorted(each["new"] for each in done) == [new, new, f"{new}/api"]
    labels = sorted((each.labels or {})["cwd"] for each in library.list())
    assert labels == sorted([f"{old}-docker", f"{old}2", new, new, f"{new}/api"])
    assert all((each.labels or {}).get("team") == "x" for each in library.list() if each.id != report.id)
    assert changed_by("relink", old, new, "--apply").startswith("0 conversations")
    [again] = import_conversations([path], library)
    assert again.action == "unchanged"
    with library.open(str(report.id), read_only=True) as store:
        assert store.get_metadata().labels["cwd"] == new
    assert len(told("list", "--project", "our shop", "--json").splitlines()) == 3


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("below", ["", "/api"])
@pytest.mark.parametrize("program", MAKERS)
def test_the_programs_files_follow_and_come_back(home: Path, old: str, new: str, program: str, below: str) -> None:
    """A dry run changes nothing; --apply does; the same again has nothing to do; undo puts back every byte. Folders below it follow too."""
    MAKERS[program](home, old + below)
    before = tree(home)
    assert "would be relinked" in changed_by("relink", old, new, "--in", program, code=1)
    assert tree(home) == before
    assert "1 session relinked" in changed_by("relink", old, new, "--in", program, "--apply")
    [path] = [each.path for each in discover(home=home) if "subagents" not in each.path]
    library = ConversationLibrary(home.parent / "chats")
    [report] = import_conversations([path], library)
    with library.open(str(report.id), read_only=True) as store:
        assert store.get_metadata().labels["cwd"] == new + below
        assert old in json.dumps(store.get_messages(), ensure_ascii=False)  # what was said stays as it was said
    assert "0 sessions relinked" in changed_by("relink", old, new, "--in", program, "--apply")
    changed_by("undo", program, "--apply")
    after = {name: what for name, what in tree(home).items() if "sqlite" not in name}
    assert {name: what for name, what in before.items() if "sqlite" not in name} == after


def test_all_that_claude_code_keeps_of_a_project_follows(home: Path, old: str, new: str) -> None:
    """#86713: sub-agents, the tools' results, the memory, the prompts, the trust; and nothing of the neighbour."""
    path = claude_code(home, old)
    neighbour = claude_code(home, f"{old}-docker", session=OTHER)
    claude_code(home, old)  # the history and the settings are of this one again
    kept = neighbour.read_bytes()
    changed_by("relink", old, new, "--in", "claude", "--apply")
    project = home / ".claude/projects" / "".join(each if each.isalnum() and each.isascii() else "-" for each in new)
    names = sorted(str(each.relative_to(project)) for each in project.rglob("*") if each.is_file())
    assert names == [
        f"{SESSION}.jsonl",
        f"{SESSION}/subagents/agent-a1.jsonl",
        f"{SESSION}/tool-results/t1.txt",
        "memory/MEMORY.md",
    ]
    said = [json.loads(line) for line in (project / f"{SESSION}/subagents/agent-a1.jsonl").read_bytes().splitlines()]
    assert {each["cwd"] for each in said} == {new}
    assert old in json.dumps(said[0]["message"], ensure_ascii=False)
    prompts = [json.loads(line)["project"] for line in (home / ".claude/history.jsonl").read_bytes().splitlines()]
    assert prompts == [new, f"{old}-docker"]
    settings = json.loads((home / ".claude.json").read_bytes())
    assert list(settings["projects"]) == [new, f"{old}-docker"]
    assert settings["projects"][new] == {"hasTrustDialogAccepted": True}
    assert neighbour.read_bytes() == kept
    assert not path.exists()


def test_two_folders_with_one_name_are_told_apart(home: Path, old: str, new: str) -> None:
    """Claude Code gives /a/shop.b and /a/shop-b one folder: only the sessions of the one that moved go."""
    path = claude_code(home, f"{old}.b")
    other = claude_code(home, f"{old}-b", session=OTHER)
    assert path.parent == other.parent
    kept = other.read_bytes()
    said = changed_by("relink", f"{old}.b", new, "--in", "claude-code", "--apply")
    assert "sessions of another folder too" in said
    assert other.read_bytes() == kept
    assert not path.exists()
    assert (path.parent / "memory/MEMORY.md").exists()


def test_sessions_that_were_begun_in_the_new_folder_stay(home: Path, old: str, new: str) -> None:
    """Both are in one folder then. A file that is in the way stops all of it."""
    path = claude_code(home, old)
    claude_code(home, new, session=OTHER)
    changed_by("relink", old, new, "--in", "claude-code", "--apply")
    project = home / ".claude/projects" / "".join(each if each.isalnum() and each.isascii() else "-" for each in new)
    assert sorted(each.name for each in project.glob("*.jsonl")) == sorted([f"{SESSION}.jsonl", f"{OTHER}.jsonl"])
    write(path, (project / f"{SESSION}.jsonl").read_bytes().replace(new.encode(), old.encode()))
    before = tree(home)
    assert "is in the way" in changed_by("relink", old, new, "--in", "claude-code", "--apply", code=1)
    assert tree(home) == before


def test_codex_lists_by_the_new_folder_and_reads_the_rollout_again(home: Path, old: str, new: str) -> None:
    """The row has the new folder; what is kept of the places in the file goes, for they changed."""
    codex(home, f"{old}/api")
    changed_by("relink", old, new, "--in", "codex", "--apply")
    with closing(sqlite3.connect(home / ".codex/state_5.sqlite")) as database:
        assert database.execute("SELECT cwd FROM threads").fetchall() == [(f"{new}/api",)]
    with closing(sqlite3.connect(home / ".codex/thread_history_1.sqlite")) as database:
        assert database.execute("SELECT * FROM thread_history_projection_state").fetchall() == []


def test_gemini_cli_that_knows_both_folders_gets_one_list(home: Path, old: str, new: str) -> None:
    """Sessions were begun in the new folder: those of the old one go to it."""
    path = gemini_cli(home, old)
    gemini_cli(home, new, name="our-shop")
    registry = home / ".gemini/projects.json"
    write(registry, json.dumps({"projects": {old: "shop", new: "our-shop"}}).encode())
    other = home / ".gemini/tmp/our-shop/chats" / path.name
    other.rename(other.with_name("session-2026-11-28T10-00-0a000000.jsonl"))
    changed_by("relink", old, new, "--in", "gemini", "--apply")
    assert len([*other.parent.glob("*.jsonl")]) == 2
    assert json.loads(registry.read_bytes())["projects"] == {new: "our-shop"}


def test_opencode_lists_by_the_rows_of_its_database(home: Path, old: str, new: str) -> None:
    """anomalyco/opencode#27822, adiled/opencode-dir#26: nothing brings ``directory`` up to date, and since 1.18 the list goes by ``path``."""
    path = home / ".local/share/opencode/opencode.db"
    path.parent.mkdir(parents=True)
    rows = [
        ("in a repository", old, "", "p"),
        ("below it", f"{old}/api", "api", "p"),
        ("in none", f"{old}/api", f"{old[1:]}/api", "global"),
        ("a neighbour", f"{old}-docker", f"{old[1:]}-docker", "global"),
    ]
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TABLE session (id TEXT PRIMARY KEY, directory TEXT NOT NULL, path TEXT, project_id TEXT)"
        )
        database.execute("CREATE TABLE project (id TEXT PRIMARY KEY, worktree TEXT NOT NULL)")
        database.executemany("INSERT INTO session VALUES (?, ?, ?, ?)", rows)
        database.executemany("INSERT INTO project VALUES (?, ?)", [("p", old), ("global", "/")])
        database.commit()
    assert "3 sessions relinked" in changed_by("relink", old, new, "--in", "opencode", "--apply")
    with closing(sqlite3.connect(path)) as database:
        assert sorted(database.execute("SELECT * FROM session")) == sorted(
            [
                ("in a repository", new, "", "p"),
                ("below it", f"{new}/api", "api", "p"),
                ("in none", f"{new}/api", f"{new[1:]}/api", "global"),
                ("a neighbour", f"{old}-docker", f"{old[1:]}-docker", "global"),
            ]
        )
        assert database.execute("SELECT worktree FROM project ORDER BY id").fetchall() == [("/",), (new,)]


def test_a_folder_that_moved_into_itself_is_moved_once(tmp_path: Path) -> None:
    """/a/shop became /a/shop/old: what is there already stays."""
    (tmp_path / "shop/old").mkdir(parents=True)
    moved = moved_folder(str(tmp_path / "shop"), str(tmp_path / "shop/old"))
    assert moved.new_path(f"{tmp_path}/shop/api") == f"{tmp_path}/shop/old/api"
    assert moved.new_path(f"{tmp_path}/shop/old/api") is None


def test_a_link_at_the_old_place_is_no_hindrance(home: Path, old: str, new: str) -> None:
    """anthropics/claude-code#37954: the way out until then was a link from the old path to the new one."""
    claude_code(home, old)
    Path(old).symlink_to(new)
    said = changed_by("relink", old, new, "--in", "claude-code", "--apply")
    assert "1 session relinked" in said
    assert "still there" not in said


@for_each("text", ["é", 'a "b"', "日本", "back\\slash"])
def test_a_line_is_written_as_it_was_spelled(text: str) -> None:
    """Compact or spaced, ASCII or not: only the folder changes."""
    moved = MovedFolder((f"/home/{text}",), "/new")
    for options in ({"separators": (",", ":")}, {}, {"ensure_ascii": False}):
        line = {"cwd": f"/home/{text}/x", "message": f"in /home/{text}", "number": 1e-05}
        spelled = json.dumps(line, **options).encode() + b"\n"
        wanted = json.dumps({**line, "cwd": "/new/x"}, **options).encode() + b"\n"
        assert moved.new_line("claude-code", spelled) == wanted


def test_misuse_is_named(home: Path, old: str, new: str) -> None:
    """A folder that is not there, a program whose files do not follow, and the same folder twice."""
    assert "is not a folder" in changed_by("relink", new, old, code=2)
    assert "cannot be relinked" in changed_by("relink", old, new, "--in", "llm", code=2)
    assert "the same folder" in changed_by("relink", new, new, code=2)


@pytest.mark.long
def test_a_kill_of_a_relink_leaves_all_or_nothing(home: Path, old: str, new: str) -> None:
    """Before each call that changes something: the next call undoes it, or finds it done."""
    nth, is_done, states = 0, False, set()
    moved = moved_folder(old, new)
    while not is_done:
        nth += 1
        mine = home / str(nth)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOME", str(mine))
            path = claude_code(mine, old)
            before = {name: what for name, what in tree(mine).items() if not Path(name).is_dir()}
            is_done = ends_before(nth, lambda: list(relink_program("claude-code", moved, apply=True)))
            undo_interrupted(str(mine / ".claude"))
            states.add(path.exists())
            if path.exists():
                assert {name: what for name, what in tree(mine).items() if not Path(name).is_dir()} == before
            else:
                assert [each for each in relink_program("claude-code", moved) if each.steps] == []
    assert nth > 20
    assert states == {True, False}
