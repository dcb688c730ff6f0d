"""Retention of the real Claude Code, over simulated weeks: what it deletes is in the library, and comes out byte for byte.

faketime moves its clock by weeks, and lets it run a hundred times as fast: it looks for what to delete ten minutes after its start, once a
day. Public reports: anthropics/claude-code#90866, #85743, #62959.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.programs.lab import Lab, command
from transcript_store import ConversationLibrary
from transcript_store.exporting import export
from transcript_store.keeping import Keeper, KeepEvent, retention_outlook
from transcript_store.sources import discover, session_folders

pytestmark = [pytest.mark.long, pytest.mark.needs("faketime")]

DAY = 86_400
WEEKS = 3


@pytest.fixture
def at_home(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The lab's home is this process's too."""
    for place in session_folders():
        if place.variable:
            monkeypatch.delenv(place.variable, raising=False)
    monkeypatch.setenv("HOME", str(lab.home))
    return lab


def preload() -> str:
    """The library that moves a program's clock, as the command faketime names it."""
    said = subprocess.run(["faketime", "-f", "+0", "env"], capture_output=True, text=True, check=False).stdout
    found = next((line.partition("=")[2] for line in said.splitlines() if line.startswith("LD_PRELOAD=")), None)
    if found is None:
        pytest.skip("faketime does not say what it preloads")
    return found


@contextmanager
def claude_at(lab: Lab, days: float, question: str) -> Iterator[subprocess.Popen[bytes]]:
    """Claude Code, so many days ahead and fast, which answers a question and stays until the block ends."""
    environment = {
        "HOME": str(lab.home),
        "PATH": os.environ["PATH"],
        "TERM": "dumb",
        "ANTHROPIC_BASE_URL": lab.url,
        "ANTHROPIC_API_KEY": "sk-ant-of-nobody",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "LD_PRELOAD": preload(),
        "FAKETIME": f"+{days:g}d x100",
        "FAKETIME_NO_CACHE": "1",
        "NO_FAKE_STAT": "1",
    }
    words = ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
    process = subprocess.Popen(
        [str(command("claude-code")), *words],
        cwd=lab.work,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    said = {"type": "user", "message": {"role": "user", "content": question}}
    process.stdin.write(json.dumps(said).encode() + b"\n")
    process.stdin.flush()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def sessions() -> dict[str, bytes]:
    return {one.path: Path(one.path).read_bytes() for one in discover() if one.program == "claude-code"}


def test_claude_code_deletes_and_the_library_keeps(at_home: Lab, tmp_path: Path) -> None:
    lab, library = at_home, ConversationLibrary(tmp_path / "chats")
    settings = lab.home / ".claude/settings.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps({"cleanupPeriodDays": 1}))
    said: list[KeepEvent] = []
    written: dict[str, bytes] = {}
    for week in range(WEEKS):
        lab.ask("claude-code", f"READ the note of week {week}, please.")
        ahead = time.time() + 7 * (week + 1) * DAY
        (outlook,) = retention_outlook(discover(), library if week else None, at=ahead)
        assert (outlook.days, outlook.is_set) == (1, True)
        assert outlook.missing, "the session of this week is not in the library yet"
        Keeper(lambda: library, state_path=str(tmp_path / "state.json"), say=said.append).run(once=True)
        assert retention_outlook(discover(), library, at=ahead)[0].missing == ()
        written |= (before := sessions())
        with claude_at(lab, 7 * (week + 1), "What is said now?") as process:
            deadline = time.monotonic() + 60
            while set(before) & set(sessions()):
                assert process.poll() is None
                assert time.monotonic() < deadline, "Claude Code deletes at another time now"
                time.sleep(0.5)
        (lab.home / ".claude/.last-cleanup").unlink(missing_ok=True)  # written at this machine's own time
    assert len(written) >= WEEKS
    assert not set(written) & set(sessions())
    originals = set()
    for summary in library.list():
        original = io.BytesIO()
        export(library, summary.id, to="original", output=original)
        originals.add(original.getvalue())
    assert set(written.values()) <= originals
