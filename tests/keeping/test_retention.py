"""Warnings about sessions that programs will delete by their own settings.

Public reports: anthropics/claude-code#90866, #85743, #62476, #62959, google-gemini/gemini-cli's `sessionRetention`.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.keeping.helpers import Kept, line, write
from transcript_store import ConversationLibrary
from transcript_store.keeping import retention_outlook
from transcript_store.sources import PROGRAMS, discover

NOW = time.time()
DAY = 86_400
SESSIONS = {
    "claude-code": ".claude/projects/-p/{}.jsonl",
    "gemini-cli": ".gemini/tmp/p/chats/session-{}.jsonl",
    "openclaw": ".openclaw/agents/main/sessions/{}.jsonl",
}


def sessions(home: Path, program: str, *ages: float) -> list[Path]:
    """A source of a program for each age in days."""
    found = []
    for number, age in enumerate(ages):
        source = home / SESSIONS[program].format(f"s{number}")
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text('{"x": 1}\n')
        os.utime(source, (NOW - age * DAY,) * 2)
        found.append(source)
    return found


def outlook(home: Path, program: str, library: ConversationLibrary | None = None):
    (found,) = [one for one in retention_outlook(discover(), library, at=NOW) if one.program == program]
    return found


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("program", "file", "text", "days"),
    [
        ("claude-code", ".claude/settings.json", None, 30),
        ("claude-code", ".claude/settings.json", "{}", 30),
        ("claude-code", ".claude/settings.json", '{"cleanupPeriodDays": 90}', 90),
        ("claude-code", ".claude/settings.json", '{"cleanupPeriodDays": 36500}', 36500),
        ("claude-code", ".claude/settings.json", '\ufeff{"cleanupPeriodDays": 2}', 2),
        ("gemini-cli", ".gemini/settings.json", '{"general": {"sessionRetention": {"maxAge": "60d"}}}', 60),
        ("gemini-cli", ".gemini/settings.json", '{"general": {"sessionRetention": {"maxAge": "12h"}}}', 0.5),
        ("gemini-cli", ".gemini/settings.json", '{"general": {"sessionRetention": {"maxAge": "2w"}}}', 14),
        ("gemini-cli", ".gemini/settings.json", '{"general": {"sessionRetention": {"enabled": false}}}', None),
        ("gemini-cli", ".gemini/settings.json", '{\n// mine\n"general": {/* x */ "theme": "//no",},\n}', 30),
        ("openclaw", ".openclaw/openclaw.json", '{"session": {"maintenance": {"pruneAfter": "45d"}}}', 45),
        ("openclaw", ".openclaw/openclaw.json", '{"session": {"maintenance": {"mode": "warn"}}}', None),
    ],
)
def test_the_setting_counts(home: Path, program: str, file: str, text: str | None, days: float | None) -> None:
    """In the program's own file, with comments where it allows them; without it the program's default."""
    sessions(home, program, 1)
    if text is not None:
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text(text)
    found = outlook(home, program)
    assert (found.days, found.problem) == (days, None)
    assert found.setting == str(home / file)


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '"x"',
        '{"cleanupPeriodDays": "soon"}',
        '{"cleanupPeriodDays": -1}',
        '{"cleanupPeriodDays": 0}',
        "\udcff",
    ],
)
def test_a_setting_that_cannot_be_understood(home: Path, text: str) -> None:
    """The default counts, which is the worse case, and the file is named."""
    sessions(home, "claude-code", 1)
    settings = home / ".claude/settings.json"
    settings.write_bytes(text.encode(errors="surrogateescape"))
    found = outlook(home, "claude-code")
    assert found.days == 30
    if text not in ("[]", '"x"'):
        assert found.problem is not None
        assert str(settings) in found.problem


def settings(path: Path, **members: object) -> Path:
    """A file of settings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(members))
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the settings of a machine are, instead of ``/``."""
    monkeypatch.setattr("transcript_store.keeping._retention._ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


def test_the_setting_of_one_project_deletes_the_sessions_of_all(home: Path, tmp_path: Path, machine: Path) -> None:
    """anthropics/claude-code#90148: the shortest time of all projects counts; within one its local file is above the shared one."""
    sessions(home, "claude-code", 10)
    settings(home / ".claude/settings.json", cleanupPeriodDays=36500)
    shop, scratch = tmp_path / "shop", tmp_path / "scratch"
    settings(home / ".claude.json", projects={str(each): {} for each in (shop, scratch, tmp_path / "gone", "relative")})
    assert outlook(home, "claude-code").days == 36500
    settings(shop / ".claude/settings.json", cleanupPeriodDays=90)
    settings(scratch / ".claude/settings.json", cleanupPeriodDays=7)
    found = outlook(home, "claude-code")
    assert (found.days, found.soon, found.setting) == (7, 1, str(scratch / ".claude/settings.json"))
    local = settings(scratch / ".claude/settings.local.json", cleanupPeriodDays=3650)
    found = outlook(home, "claude-code")
    assert (found.days, found.setting) == (90, str(shop / ".claude/settings.json"))
    local.write_text("{")
    found = outlook(home, "claude-code")
    assert found.days == 7
    assert found.problem is not None
    assert str(local) in found.problem
    assert not machine.exists()


def test_a_project_that_only_its_sessions_name_counts(home: Path, tmp_path: Path, machine: Path) -> None:
    """`claude -p` lists no project: the folder stands in each session."""
    source = home / ".claude/projects/-x/s.jsonl"
    source.parent.mkdir(parents=True)
    source.write_bytes(line("s", 1, cwd=str(tmp_path / "quick one")))
    wanted = settings(tmp_path / "quick one/.claude/settings.json", cleanupPeriodDays=2)
    found = outlook(home, "claude-code")
    assert (found.days, found.setting) == (2, str(wanted))
    assert not machine.exists()


def test_the_settings_of_a_machine_are_above_all(home: Path, tmp_path: Path, machine: Path) -> None:
    """The managed file, then its drop-ins by name, then what the organization's server sent; a project cannot undo it."""
    sessions(home, "claude-code", 10)
    settings(home / ".claude/settings.json", cleanupPeriodDays=5)
    settings(home / ".claude.json", projects={str(tmp_path / "shop"): {}})
    settings(tmp_path / "shop/.claude/settings.local.json", cleanupPeriodDays=1)
    managed = settings(machine / "etc/claude-code/managed-settings.json", cleanupPeriodDays=365)
    found = outlook(home, "claude-code")
    assert (found.days, found.soon, found.setting) == (365, 0, str(managed))
    second = settings(machine / "etc/claude-code/managed-settings.d/20-keep.json", cleanupPeriodDays=14)
    settings(machine / "etc/claude-code/managed-settings.d/10-model.json", model="opus")
    found = outlook(home, "claude-code")
    assert (found.days, found.soon, found.setting) == (14, 1, str(second))
    settings(home / ".claude/remote-settings.json", cleanupPeriodDays=1000)
    assert outlook(home, "claude-code").days == 1000


def test_members_of_one_setting_may_stand_in_several_files(
    home: Path, tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemini CLI joins its files member by member; a variable names the one of the machine."""
    sessions(home, "gemini-cli", 1)
    settings(home / ".gemini/settings.json", general={"sessionRetention": {"enabled": False}})
    system = settings(machine / "etc/gemini-cli/settings.json", general={"sessionRetention": {"maxAge": "5d"}})
    assert outlook(home, "gemini-cli").days is None
    settings(system, general={"sessionRetention": {"maxAge": "5d", "enabled": True}})
    assert (outlook(home, "gemini-cli").days, outlook(home, "gemini-cli").setting) == (5, str(system))
    other = settings(tmp_path / "system.json", general={"sessionRetention": {"enabled": True, "maxAge": "9d"}})
    monkeypatch.setenv("GEMINI_CLI_SYSTEM_SETTINGS_PATH", str(other))
    assert outlook(home, "gemini-cli").days == 9


def test_which_are_due_and_which_are_missing(home: Path, tmp_path: Path) -> None:
    """By the age of each file: due now, within a week, later. What the library has whole is safe; what it has not, or in part, is named."""
    ages = {"soon": 25, "grown": 24, "later": 22, "young": 1, "due": 40}
    for name in list(ages)[:-1]:
        write(home, name, [1, 2])
    kept = Kept(tmp_path).run()
    write(home, "grown", [3])
    write(home, "due", [1, 2])
    for name, age in ages.items():
        source = home / f".claude/projects/-home-ada-shop/{name}.jsonl"
        os.utime(source, (NOW - age * DAY,) * 2)
    library = ConversationLibrary(kept.library)
    found = outlook(home, "claude-code", library)
    assert (found.sessions, found.soon) == (5, 3)
    assert {Path(path).stem for path in found.missing} == {"due", "grown"}
    assert found.sentence == "Claude Code deletes 3 sessions within 7 days; 2 of them are not in the library"
    assert found.first_at == pytest.approx(NOW - 10 * DAY, abs=1)
    Kept(tmp_path).run()
    assert outlook(home, "claude-code", library).sentence == (
        "Claude Code deletes 3 sessions within 7 days; all of them are in the library"
    )
    assert len(outlook(home, "claude-code", None).missing) == 3


def test_what_it_says(home: Path) -> None:
    (only,) = sessions(home, "claude-code", 25)
    assert outlook(home, "claude-code").sentence == (
        "Claude Code deletes 1 session within 7 days; 1 of them is not in the library"
    )
    os.utime(only, (NOW, NOW))
    assert outlook(home, "claude-code").sentence == "Claude Code deletes sessions after 30 days: none within 7 days"
    (home / ".claude/settings.json").write_text('{"cleanupPeriodDays": 99999}')
    assert outlook(home, "claude-code").soon == 0
    sessions(home, "gemini-cli", 400)
    (home / ".gemini/settings.json").write_text('{"general": {"sessionRetention": {"enabled": false}}}')
    assert outlook(home, "gemini-cli").sentence == "Gemini CLI keeps its sessions"


def test_every_program_of_the_table_is_understood(home: Path) -> None:
    """Its line that keeps sessions, written into its file, is taken for what it says; so is a number of days."""
    with_setting = [one for one in PROGRAMS if one.retention is not None]
    assert {one.program for one in with_setting} >= {"claude-code", "gemini-cli", "openclaw"}
    for one in with_setting:
        if one.program not in SESSIONS or one.retention is None:
            continue
        sessions(home, one.program, 29)
        assert outlook(home, one.program).soon == 1
        folder = one.session_folders[0].folder
        (home / folder / one.retention.file).write_text(f"{{{one.retention.keeps}}}")
        assert outlook(home, one.program).soon == 0


def test_programs_without_sessions_are_not_spoken_of(home: Path) -> None:
    assert retention_outlook(discover(), None) == []
