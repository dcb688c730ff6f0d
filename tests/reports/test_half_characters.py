r"""Half a character in a line (``\ud83d``): grammatical JSON, which programs write that cut a text in the middle.

Reports: anthropics/claude-code#56064, #61301, #61670, #65607, #68325, #69440, #69927, #70618, #1709.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reports.sessions import ClaudeLines, call, imported, lines, result


@pytest.mark.parametrize("half", ["\\ud83d", "\\uDE00", "\\ude00\\ud83d", "\\ud83d\\ud83d\\ude00", "\\\\\\ud83d"])
def test_the_message_comes_in_and_the_bytes_come_back(tmp_path: Path, half: str) -> None:
    session = ClaudeLines()
    session.user("Run it")
    session.reply(call())
    session.user(result("cut here HALF end"))
    session.user("Try zebra HALF again")
    got = imported(tmp_path, lines(session.lines).replace(b"HALF", half.encode()))
    assert got.report.messages == 4
    assert got.findings() == ["half-character"] * 2
    assert len(got.found("zebra")) == 1
    assert "\ufffd" in got.show()
    assert got.has_its_bytes()


def test_a_pair_and_a_backslash_before_it_are_whole(tmp_path: Path) -> None:
    session = ClaudeLines()
    session.user("PAIR")
    got = imported(tmp_path, lines(session.lines).replace(b"PAIR", rb"\ud83d\ude00 and \\ud83d"))
    assert got.findings() == []
    assert r"😀 and \ud83d" in got.show()
    assert got.has_its_bytes()


@pytest.mark.parametrize(
    "data",
    [
        rb'[{"uuid":"c","name":"N","chat_messages":[{"uuid":"a","sender":"human","text":"zebra \ud83d","content":[]}]}]',
        b'{\n"sessionId": "s", "projectHash": "h", "messages": [{"id":"a","type":"user","content":"zebra \\ud83d"}]}',
    ],
)
def test_in_documents_too(tmp_path: Path, data: bytes) -> None:
    got = imported(tmp_path, data, "session-a.json")
    assert got.findings() == ["half-character"]
    assert len(got.found("zebra")) == 1
    assert got.has_its_bytes()
