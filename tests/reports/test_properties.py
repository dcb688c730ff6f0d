"""The script that is run over folders of real session files holds here over a few small ones, and sees what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import session_properties
from tests.reports.sessions import SESSION, ClaudeLines, call, lines, result

AT = "2026-09-01T10:00:00.000Z"


def a_session() -> bytes:
    session = ClaudeLines()
    session.user("Where does the zebra sleep?")
    turn = session.reply(call())
    session.user(result())
    session.user("In which one?", parent=turn)
    session.compact()
    session.user("And the horse?")
    session.reply("In the barn.")
    return lines(session.lines)


def test_nothing_is_wrong_with_a_session(tmp_path: Path) -> None:
    (tmp_path / f"{SESSION}.jsonl").write_bytes(a_session())
    (tmp_path / "cursor.jsonl").write_text('{"role":"user","message":{"content":[{"type":"text","text":"Where?"}]}}\n')
    (tmp_path / "nothing.jsonl").write_bytes(b"")
    (tmp_path / "settings.jsonl").write_bytes(
        lines([{"type": "session", "version": 3, "id": SESSION, "timestamp": AT}])
    )
    assert session_properties.check([tmp_path]) == 0


def test_a_file_that_is_left_out_though_somebody_speaks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "settings.jsonl"
    path.write_bytes(lines([{"type": "session", "version": 3, "id": SESSION, "timestamp": AT}]))
    monkeypatch.setattr(session_properties, "texts_of_file", lambda _: ["quagga"])
    assert [problem[:7] for problem in session_properties.problems_of(path)] == ["P-empty"]


@pytest.mark.parametrize(
    ("name", "wrong", "told"),
    [
        ("texts_of_file", lambda _: ["nobody said quagga"], "P-said"),
        ("first_prompt", lambda _: "<environment_context>", "P-name"),
    ],
)
def test_session_properties_report_a_fault(
    tmp_path: Path, name: str, wrong: object, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_bytes(a_session())
    monkeypatch.setattr(session_properties, name, wrong)
    assert {problem[: len(told)] for problem in session_properties.problems_of(path)} == {told}
