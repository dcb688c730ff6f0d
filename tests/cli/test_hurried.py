"""Commands that a hurried person types after a look at `--help`: hurried.tsv has each with what must come, and what must not.

The home has sessions in the shape of the real programs', imported; no command but those of the table changes it, in their order.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.helpers import Cli
from transcript_store import ConversationLibrary

TABLE = Path(__file__).with_name("hurried.tsv")


class Line(NamedTuple):
    """A line of the table."""

    number: int
    command: str
    code: int
    comes: str
    comes_not: str


def table() -> Iterator[Line]:
    for number, line in enumerate(TABLE.read_text(encoding="utf-8").splitlines(), 1):
        if line and not line.startswith("#"):
            command, code, comes, comes_not = (*line.split("\t"), "", "")[:4]
            yield Line(number, command, int(code), comes, comes_not)


def claude_code() -> list[dict[str, object]]:
    about = {"sessionId": "5f0c0f0e-0000-4000-8000-000000000001", "cwd": "/srv/shop", "version": "2.1.0"}
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "pytest -q tests/test_checkout.py"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "E   TimeoutError: after 30 s\n1 failed"}
    said: list[dict[str, object]] = [
        {"role": "user", "content": "Mend the flaky checkout test"},
        {"role": "assistant", "model": "claude-opus-4-8", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "model": "claude-opus-4-8", "content": [{"type": "text", "text": "Mended: it waited."}]},
    ]
    return [
        {
            **about,
            "type": message["role"],
            "uuid": f"u{at}",
            "parentUuid": f"u{at - 1}" if at else None,
            "timestamp": f"2026-05-01T10:00:0{at}.000Z",
            "message": message,
        }
        for at, message in enumerate(said)
    ]


def codex() -> list[dict[str, object]]:
    head = {"id": "5f0c0f0e-0000-4000-8000-000000000002", "timestamp": "2026-05-02T10:00:00Z", "cwd": "/srv/ledger"}
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Parse the ledger"}]}
    return [
        {"timestamp": "2026-05-02T10:00:00.000Z", "type": "session_meta", "payload": head},
        {"timestamp": "2026-05-02T10:00:01.000Z", "type": "response_item", "payload": said},
    ]


def gemini_cli() -> list[dict[str, object]]:
    head = {"sessionId": "5f0c0f0e-0000-4000-8000-000000000003", "projectHash": "0" * 64, "kind": "main"}
    said: dict[str, object] = {
        "id": "m1",
        "timestamp": "2026-05-03T10:00:00.000Z",
        "type": "user",
        "content": [{"text": "Ein Café am 河边"}],
    }
    return [{**head, "startTime": "2026-05-03T10:00:00.000Z", "lastUpdated": "2026-05-03T10:00:00.000Z"}, said]


def pi() -> list[dict[str, object]]:
    head = {"type": "session", "version": 3, "id": "5f0c0f0e-0000-4000-8000-000000000004", "cwd": "/home/ada"}
    said = {"role": "user", "content": [{"type": "text", "text": "Remember the milk"}]}
    at = "2026-05-04T10:00:00.000Z"
    return [
        {**head, "timestamp": at},
        {"type": "message", "id": "a1", "parentId": None, "timestamp": at, "message": said},
    ]


SESSIONS: dict[str, Callable[[], list[dict[str, object]]]] = {
    ".claude/projects/-srv-shop/5f0c0f0e-0000-4000-8000-000000000001.jsonl": claude_code,
    ".codex/sessions/2026/05/02/rollout-2026-05-02T10-00-00-5f0c0f0e-0000-4000-8000-000000000002.jsonl": codex,
    ".gemini/tmp/5f0c/chats/session-2026-05-03T10-00-5f0c0f0e.jsonl": gemini_cli,
    ".pi/agent/sessions/--home-ada--/2026-05-04T10-00-00-000Z_5f0c0f0e-0000-4000-8000-000000000004.jsonl": pi,
}


@pytest.fixture
def names(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The home, and what the table calls its conversations."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TRANSCRIPT_STORE_LIBRARY", str(tmp_path / "chats"))
    for path, made in SESSIONS.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("".join(f"{json.dumps(line)}\n" for line in made()), encoding="utf-8")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert cli("import", "--all").code == 0
    found = {str((one.labels or {})["source"]): str(one.id) for one in ConversationLibrary(tmp_path / "chats").list()}
    flaky = found["claude-code"]
    return {"flaky": flaky, "flaky8": flaky[:8], "flaky4": flaky[:4], "milk": found["pi"]}


def test_what_a_hurried_person_types_is_answered(cli: Cli, names: dict[str, str]) -> None:
    """With the right exit code, what was meant, and no traceback."""
    wrong = []
    for line in table():
        words = shlex.split(_named(line.command, names))
        result = cli(*words)
        said = result.out + result.err
        is_right = (
            result.code == line.code
            and re.search(_named(line.comes, names), said, re.MULTILINE) is not None
            and not (line.comes_not and re.search(line.comes_not, said))
            and "Traceback" not in said
        )
        if not is_right:
            wrong.append(f"line {line.number}: {line.command}: {result.code}\n{said[:600]}")
    assert not wrong, f"{len(wrong)} of {len(list(table()))}:\n" + "\n".join(islice(wrong, 20))


def _named(text: str, names: dict[str, str]) -> str:
    for name, own_id in names.items():
        text = text.replace(f"{{{name}}}", own_id)
    return text
