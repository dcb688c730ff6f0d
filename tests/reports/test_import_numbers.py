"""The numbers of `import`: sizes count every file of a session, and each session found is in one of the counts.

Reported by a first user: "openhands 6 sessions 24.8 kB" although single ones had 65 kB, and "44 sessions" that became 47 created,
2 refused and 1 diverged.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import a_cache_of_its_own, cli  # noqa: F401 (fixtures)
from tests.cli.helpers import Cli, lines
from transcript_store import ConversationLibrary
from transcript_store.cli._shared.tally import ImportTally
from transcript_store.importing import ImportReport, discover, overviews

pytestmark = pytest.mark.usefixtures("a_cache_of_its_own")


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b" " * size)


@pytest.mark.parametrize(
    "files",
    [
        {".openhands/conversations/c/base_state.json": 1, ".openhands/conversations/c/events/event-00001-a.json": 20},
        {
            f".vibe/logs/session/unified/c/{name}": 3
            for name in ("CURRENT", "generations/g/manifest.json", "chunks/a.json")
        },
        {
            ".local/share/opencode/storage/session/p/ses.json": 1,
            ".local/share/opencode/storage/message/ses/msg.json": 10,
            ".local/share/opencode/storage/part/msg/prt.json": 100,
        },
        {".local/share/gptme/logs/c/conversation.jsonl": 9},
    ],
)
def test_every_file_of_a_session_counts(tmp_path: Path, files: dict[str, int]) -> None:
    for name, size in files.items():
        write(tmp_path / name, size)
    (one,) = overviews(discover(tmp_path, {}))
    assert (one.sessions, one.size) == (1, sum(files.values()))


def test_what_was_found_is_what_was_done(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Sessions without a message are counted with their program."""
    monkeypatch.setenv("HOME", str(tmp_path))
    header = {"type": "session", "version": 3, "timestamp": "2026-09-01T10:00:00Z", "cwd": "/p"}
    said = {"type": "message", "id": "a", "parentId": None, "timestamp": "2026-09-01T10:00:00Z"}
    said["message"] = {"role": "user", "content": "hi"}  # type: ignore[assignment]
    for program in (".pi", ".omp"):
        folder = tmp_path / program / "agent/sessions/p"
        folder.mkdir(parents=True)
        (folder / "empty.jsonl").write_bytes(lines({**header, "id": f"{program}-empty"}))
        (folder / "full.jsonl").write_bytes(lines({**header, "id": f"{program}-full"}, said))
    code, out, _ = cli("import", "--yes", "--into", str(tmp_path / "chats"))
    found, finished = [], []
    for line in out.splitlines():
        if match := re.match(r"(pi|omp) +(\d+) sessions", line):
            found.append((match[1], int(match[2])))
        elif match := re.match(r"(pi|omp) +\d", line):
            finished.append((match[1], sum(map(int, re.findall(r"(\d+) (?:created|without a message)", line)))))
    assert (code, found) == (0, [("pi", 2), ("omp", 2)])
    assert finished == found


def test_a_session_inside_another_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Copilot writes a sub-agent's events into the file of the session that started it: one file, two conversations."""
    tally = ImportTally({"a": "copilot", "b": "pi"}, is_json=False, is_dry_run=False, is_verbose=False)
    for source, is_part in (("a", False), ("a", True), ("b", False)):
        tally.add(ImportReport(action="created", source=source, is_part=is_part))
    tally.say_all(ConversationLibrary(tmp_path), "")
    assert capsys.readouterr().out.splitlines()[:3] == [
        "copilot  2 created (1 of them inside another session's file)",
        "pi       1 created",
        "3 created (1 of them inside another session's file)",
    ]
