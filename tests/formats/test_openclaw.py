"""OpenClaw's database: rows that are the lines of pi's sessions, some of them packed.

No file that the program itself wrote is here: the columns are those of its schema 23.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from typing import Any

import pytest

from tests.formats.of_others import Rows, assert_nothing_is_lost, entries, lines, messages, original
from tests.kit.cases import for_each
from transcript_store import ConversationLibrary
from transcript_store.formats import SourceHead
from transcript_store.formats._pi import Pi
from transcript_store.importing import import_conversations
from transcript_store.testing import check_format

SCHEMA = """
CREATE TABLE transcript_events (
  session_id TEXT NOT NULL, seq INTEGER NOT NULL, event_json TEXT, created_at INTEGER NOT NULL,
  event_zstd BLOB, event_utf8_bytes INTEGER, navigation_json TEXT, PRIMARY KEY (session_id, seq)
) STRICT
"""


def row(seq: int, said: Any, session: str = "s1", packed: bytes | None = None) -> dict[str, Any]:
    text = said if isinstance(said, str) or said is None else json.dumps(said, separators=(",", ":"))
    return {"session_id": session, "seq": seq, "event_json": text, "created_at": 1, "event_zstd": packed}


HEADER = {"type": "session", "version": 3, "id": "0b8f5c1e", "timestamp": "2026-09-01T10:00:00.000Z", "cwd": "/home/me"}
REPLY = {"role": "assistant", "content": [{"type": "text", "text": "I look."}], "api": "anthropic-messages", "provider": "anthropic", "model": "claude", "stopReason": "stop"}  # fmt: skip


def said(number: int, message: dict[str, Any]) -> dict[str, Any]:
    at = f"2026-09-01T10:00:0{number}.000Z"
    return {"type": "message", "id": str(number), "parentId": str(number - 1) if number > 1 else None, "timestamp": at, "message": message}  # fmt: skip


LINEAR: list[dict[str, Any]] = [
    HEADER,
    said(1, {"role": "user", "content": "Which box?"}),
    said(2, REPLY),
    said(3, {"role": "user", "content": [{"type": "text", "text": "Thanks"}]}),
    said(4, REPLY),
    {"type": "compaction", "id": "5", "parentId": "4", "timestamp": "2026-09-01T10:00:05.000Z", "summary": "Boxes.", "firstKeptEntryId": "3"},
    said(6, {"role": "user", "content": "And now?"}),
]  # fmt: skip
SESSION = [row(seq, value) for seq, value in enumerate(LINEAR)]
OTHER = [row(seq, value, "s2") for seq, value in enumerate([{**LINEAR[0], "id": "other"}, *LINEAR[1:4]])]


def test_each_session_is_what_its_lines_are():
    """In the order of the numbers, whatever the order of the rows; with the id that the lines themselves have."""
    tables = Rows({"transcript_events": [*OTHER[::-1], *SESSION[::-1]]})
    assert Pi().recognizes(SourceHead("x", tables={"transcript_events": tables.columns("transcript_events")}))
    one, other = Pi().plans(tables)
    assert (one.session, other.session) == (LINEAR[0]["id"], "other")
    assert [len(one.generations), one.lines, other.lines] == [2, len(LINEAR), 4]
    assert original(one) == lines(*LINEAR)
    for plan in (one, other):
        assert_nothing_is_lost(plan)
        assert plan.findings == ()


def test_it_keeps_the_contract_of_formats():
    check_format(Pi(), [{"transcript_events": [*SESSION, *OTHER]}], seeds=30)


def test_a_line_that_is_packed_is_read():
    zstandard = pytest.importorskip("zstandard")
    packed = [
        row(one["seq"], None, packed=zstandard.ZstdCompressor().compress(one["event_json"].encode())) for one in SESSION
    ]
    (plain,), (unpacked,) = (Pi().plans(Rows({"transcript_events": rows})) for rows in (SESSION, packed))
    assert messages(unpacked) == messages(plain)
    assert original(unpacked) == original(plain)


@for_each(
    "wrong, why",
    [
        (row(1, None, packed=b"\x28\xb5\x2f\xfdno"), "damaged"),
        (row(1, None), "holds no line"),
        (row(1, "two\nlines"), "holds no line"),
        (row(1, ""), "holds no line"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_and_kept(wrong, why):
    """The others are read; where it stands in the order is the number of its line."""
    (plan,) = Pi().plans(Rows({"transcript_events": [SESSION[0], wrong, *SESSION[2:]]}))
    found = next(finding for finding in plan.findings if finding.kind == "unreadable-row")
    assert (found.line, why in found.message) == (2, True)
    assert_nothing_is_lost(plan)
    kept = [entry for entry in entries(plan, 0) if entry.lines == (2,)]
    assert len(kept) == 1


@pytest.mark.parametrize("packs", [False, True])
def test_f6_a_row_that_is_nested_too_deep_is_named_and_kept(packs):
    """A hundred thousand levels, plain and packed: one finding, its bytes come out again, and the other rows are read."""
    bomb = json.dumps(said(2, {**REPLY, "content": "HERE"})).replace('"HERE"', "[" * 100_000 + "]" * 100_000)
    zstandard = pytest.importorskip("zstandard") if packs else None
    packed = zstandard.ZstdCompressor().compress(bomb.encode()) if zstandard is not None else None
    bad = row(2, None if packs else bomb, packed=packed)
    (plan,) = Pi().plans(Rows({"transcript_events": [*SESSION[:2], bad, *SESSION[3:]]}))
    ((kind, line),) = [(finding.kind, finding.line) for finding in plan.findings if finding.kind == "too-deep"]
    assert (kind, line) == ("too-deep", 3)
    assert_nothing_is_lost(plan)
    kept = [entry for number in range(len(plan.generations)) for entry in entries(plan, number) if 3 in entry.lines]
    assert [entry.message for entry in kept] == [None]
    assert original(plan).splitlines()[2] == bomb.encode()


def test_without_the_module_the_hint_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (plan,) = Pi().plans(Rows({"transcript_events": [SESSION[0], row(1, None, packed=b"x")]}))
    assert "install the extra zstd" in plan.findings[0].message


def test_what_unpacks_to_more_than_a_line_may_have_is_not_unpacked():
    zstandard = pytest.importorskip("zstandard")
    bomb = zstandard.ZstdCompressor().compress(bytes(17 << 20))
    (plan,) = Pi().plans(Rows({"transcript_events": [SESSION[0], row(1, None, packed=bomb)]}))
    assert "unpacks to more" in plan.findings[0].message


def test_a_real_database_is_imported_and_kept_up_with(tmp_path):
    """As one conversation a session; a session that grew is appended to."""
    path, library = tmp_path / "openclaw-agent.sqlite", ConversationLibrary(tmp_path / "library")
    with closing(sqlite3.connect(path)) as database:
        database.execute(SCHEMA)
        put = "INSERT INTO transcript_events (session_id, seq, event_json, created_at) VALUES (?, ?, ?, 1)"
        database.executemany(
            put, [(one["session_id"], one["seq"], one["event_json"]) for one in [*SESSION[:4], *OTHER]]
        )
        database.commit()
        first = list(import_conversations([path], library))
        assert [report.action for report in first] == ["created", "created"]
        database.executemany(put, [(one["session_id"], one["seq"], one["event_json"]) for one in SESSION[4:6]])
        database.commit()
    assert sorted(report.action for report in import_conversations([path], library)) == ["grew", "unchanged"]
    assert [report.action for report in import_conversations([path], library)] == ["unchanged", "unchanged"]
