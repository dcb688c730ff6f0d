r"""Lines that are not quite JSON, or JSON that cannot be stored: half a character (``\ud83d``), a control character, bytes that are
not UTF-8, ``NaN``. Programs write them that cut a text in the middle, or print what a tool printed; the message comes in all the same.

Reports: anthropics/claude-code#56064, #61301, #61670, #65607, #68325, #69440, #69927, #70618, #1709; openclaw/openclaw#18105, github/app#945;
mohamed-chs/convoviz#69 (an emoji as UTF-8 of its two halves).
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.reports.sessions import ClaudeLines, call, imported, lines, result
from transcript_store import ConversationLibrary
from transcript_store.importing import import_conversations
from transcript_store.messages import parts_of


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


ODD = {
    "a control character": (b"\x1b[31m", "control-character", "\x1b[31m"),
    "a tab": (b"\t", "control-character", "\t"),
    "a character that was cut": (b"\xf0\x9f\x90", "not-utf8", "\ufffd"),
    "half a character in bytes": (b"\xed\xa0\xbd", "not-utf8", "\ufffd" * 3),
    "two halves in bytes": (b"\xed\xa0\xbd\xed\xb8\x82", "not-utf8", "\U0001f602"),
    "two halves and a byte": (b"\xed\xa0\xbd\xed\xb8\x82\xff", "not-utf8", "\U0001f602\ufffd"),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("is_spoken_by_a_tool", [True, False])
def test_what_stands_in_a_text_and_is_no_json(tmp_path: Path, name: str, is_spoken_by_a_tool: bool) -> None:
    """The result of a call is not lost, nor what follows it; the bytes come back."""
    given, kind, read = ODD[name]
    session = ClaudeLines()
    session.user("Run it" if is_spoken_by_a_tool else "zebra ODD end")
    session.reply(call())
    session.user(result("zebra ODD end" if is_spoken_by_a_tool else "done"))
    session.reply("I see.")
    got = imported(tmp_path, lines(session.lines).replace(b"ODD", given))
    assert (got.report.messages, got.report.events, got.findings()) == (4, 0, [kind])
    assert len(got.found("zebra")) == 1
    with got.library.open(str(got.report.id), read_only=True) as store:
        content = store.get_messages()[2 if is_spoken_by_a_tool else 0]["content"]
    assert (content[0]["content"] if is_spoken_by_a_tool else content) == f"zebra {read} end"
    assert got.has_its_bytes()


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "9" * 400, "9" * 6000])
def test_what_is_no_number_is_null(tmp_path: Path, number: str) -> None:
    """Python's json.dumps writes NaN and infinities unless it is told not to. What follows is read, with its integers."""
    text = f'{{"role":"user","content":"zebra","n":{number},"m":9007199254740993}}\n'
    got = imported(tmp_path, text.encode())
    assert (got.report.messages, got.findings()) == (1, ["no-number"])
    with got.library.open(str(got.report.id), read_only=True) as store:
        (message,) = store.get_messages()
    assert message == {"role": "user", "content": "zebra", "n": None, "m": 9007199254740993}
    assert got.has_its_bytes()


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b'[{"uuid":"c","name":"N","chat_messages":[{"uuid":"a","sender":"human","text":"zebra ODD"}]}]', "c.json"),
        (
            b'{\n"sessionId":"s","projectHash":"h","messages":[{"id":"a","type":"user","content":"zebra ODD"}]}',
            "s.json",
        ),
        (
            b'[{"conversation_id":"c","create_time":1,"current_node":"a","mapping":{"a":{"id":"a","message":{"author":'
            b'{"role":"user"},"content":{"content_type":"text","parts":["zebra ODD"]}}}}}]',
            "conversations.json",
        ),
    ],
)
@pytest.mark.parametrize("odd", ODD)
def test_in_a_document(tmp_path: Path, data: bytes, name: str, odd: str) -> None:
    given, kind, read = ODD[odd]
    got = imported(tmp_path, data.replace(b"ODD", given), name)
    assert got.findings() == [kind]
    assert len(got.found("zebra")) == 1
    with got.library.open(str(got.report.id), read_only=True) as store:
        assert [part.text for part in parts_of(store.get_messages()[0])] == [f"zebra {read}"]
    assert got.has_its_bytes()


def test_in_a_row_of_a_database(tmp_path: Path) -> None:
    """The Agents SDK writes its rows with Python's json.dumps."""
    path = tmp_path / "sessions.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "CREATE TABLE agent_sessions (session_id TEXT, created_at TEXT, updated_at TEXT);"
            "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT, created_at TEXT);"
            "INSERT INTO agent_sessions VALUES ('s', '2026-09-01 10:00:00', '2026-09-01 10:00:00');"
        )
        said = json.dumps({"role": "user", "content": "zebra", "score": float("nan")})
        database.execute("INSERT INTO agent_messages VALUES (1, 's', ?, '2026-09-01 10:00:00')", (said,))
        database.commit()
    library = ConversationLibrary(tmp_path / "library")
    (report,) = import_conversations([path], library)
    assert (report.messages, [finding.kind for finding in report.findings]) == (1, ["no-number"])


def test_nul_bytes_behind_the_last_line_hide_no_message(tmp_path: Path) -> None:
    """A power loss leaves them; the program appends behind them."""
    session = ClaudeLines()
    session.user("Where is the zebra?")
    session.reply("In the stable.")
    got = imported(tmp_path, lines(session.lines).rstrip() + b"\0" * 64)
    assert (got.report.messages, got.findings()) == (2, ["nul"])
    assert got.has_its_bytes()
    session.user("Thanks")
    with got.path.open("ab") as file:
        file.write(b"\n" + lines(session.lines[2:]))
    (report,) = import_conversations([got.path], got.library)
    assert report.messages == 3


def test_of_a_member_that_stands_twice_the_last_counts(tmp_path: Path) -> None:
    """As for the programs themselves: JavaScript and Python read it so."""
    got = imported(tmp_path, b'{"role":"user","content":"horse","content":"zebra"}\n')
    assert (got.report.messages, len(got.found("zebra")), got.found("horse")) == (1, 1, [])
    assert got.has_its_bytes()


def test_a_text_of_a_database_that_is_not_utf8(tmp_path: Path) -> None:
    """SQLite stores any bytes as text. The message is read, not kept as an event without a word."""
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "CREATE TABLE sessions (id TEXT, source TEXT, started_at REAL, title TEXT, model TEXT);"
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, tool_calls TEXT,"
            " finish_reason TEXT, timestamp REAL);"
            "INSERT INTO sessions VALUES ('s', 'cli', 1788256800.0, CAST(x'54ff' AS TEXT), 'm');"
            "INSERT INTO messages VALUES (1, 's', 'user', CAST(x'7a65627261ff' AS TEXT), NULL, NULL, 1788256800.0);"
        )
        database.commit()
    library = ConversationLibrary(tmp_path / "library")
    (report,) = import_conversations([path], library)
    assert [finding.kind for finding in report.findings] == ["not-utf8"] * 2
    with library.open(str(report.id), read_only=True) as store:
        assert store.get_messages() == [{"role": "user", "content": "zebra\ufffd"}]
        assert store.get_metadata().labels["title"] == "T\ufffd"
        assert "emVicmH/" in str(store.get_records()[0].extra)
    assert [report.action for report in import_conversations([path], library)] == ["unchanged"]
