"""What programs will delete, by their own settings: "852 of 1,120 sessions gone" is what nobody was told of.

Public reports: anthropics/claude-code#90866, #85743, #62476, #62959, google-gemini/gemini-cli's `sessionRetention`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.keeping.helpers import Kept, write
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
        ("claude-code", ".claude/settings.json", '{"cleanupPeriodDays": 0}', 0),
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
    "text", ["{", "[]", '"x"', '{"cleanupPeriodDays": "soon"}', '{"cleanupPeriodDays": -1}', "\udcff"]
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
