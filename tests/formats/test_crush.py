"""Crush: a project's database, whose messages have their parts as JSON. Made here from its sources; it was not run."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.formats.of_others import Rows, assert_nothing_is_lost, few_or_many_seeds
from tests.formats.of_programs import READER, said
from tests.importing.helpers import imported
from transcript_store import ConversationLibrary
from transcript_store.testing import check_format


def part(kind: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "data": data}


def message(number: int, role: str, *parts: Any, session: str = "s-1", summary: int = 0) -> dict[str, Any]:
    about = {"id": f"m{number}", "session_id": session, "role": role, "parts": json.dumps(parts)}
    return {**about, "model": "m", "provider": "p", "created_at": 1795773000 + number, "is_summary_message": summary}


def session(id: str, parent: str | None = None) -> dict[str, Any]:
    about = {"id": id, "parent_session_id": parent, "title": "Fruit", "message_count": 1, "created_at": 1795773000}
    return {**about, "updated_at": 1795773000, "prompt_tokens": 9, "completion_tokens": 1, "cost": 0.0}


MESSAGES = [
    message(1, "user", part("text", text="Read both."), part("binary", mime_type="image/png", data="aGk=")),
    message(
        2,
        "assistant",
        part("reasoning", thinking="Hm."),
        part("text", text="I read."),
        part("tool_call", id="c1", name="view", input='{"path": "a"}', finished=True),
        part("tool_call", id="c2", name="view", input='{"path": "b"}', finished=False),
        part("finish", reason="tool_use", time=1),
    ),
    message(3, "tool", part("tool_result", tool_call_id="c1", name="view", content="no file", is_error=True)),
    message(4, "assistant", part("text", text="It is not there."), part("finish", reason="canceled")),
]
SAID = [
    "user: Read both. [image/png]",
    "assistant: (Hm.) I read. view#c1{'path': 'a'} view#c2{'path': 'b'}",
    "#c1 failed: no file",
    "assistant: It is not there.",
]
SUMMARY = message(5, "assistant", part("text", text="Nothing was read."), summary=1)
HELPER = message(6, "user", part("text", text="Count."), session="s-2")
TABLES = {"sessions": [session("s-1"), session("s-2", "s-1")], "messages": [*MESSAGES, SUMMARY, HELPER]}


@few_or_many_seeds
def test_the_contract(seeds):
    check_format(READER["crush"], [TABLES], seeds=seeds)


def test_complete_sessions_are_read():
    first, helper = READER["crush"].plans(Rows(TABLES))
    for plan in (first, helper):
        assert_nothing_is_lost(plan)
    assert said(first, 0) == SAID
    assert said(first) == ["*user: Nothing was read."]
    assert (first.model, first.labels) == ("m", {"title": "Fruit"})
    assert (said(helper), helper.labels["part_of"]) == (["user: Count."], "s-1")
    assert list(first.generations[0]())[-1].extra["stop_reason"] == "canceled"


def test_parts_that_are_no_json_are_a_finding():
    broken = {"sessions": [session("s-1")], "messages": [{**MESSAGES[0], "parts": "[{"}]}
    (plan,) = READER["crush"].plans(Rows(broken))
    assert [finding.kind for finding in plan.findings] == ["not-json"]


def test_a_database_that_grew_grows(tmp_path: Path):
    library = ConversationLibrary(tmp_path / "library")
    file = tmp_path / "crush.db"

    def put(table: str, rows: list[dict[str, Any]]) -> None:
        with closing(sqlite3.connect(file)) as database, database:
            names = ", ".join(rows[0])
            database.execute(f"CREATE TABLE IF NOT EXISTS {table} ({names})")
            marks = ", ".join("?" * len(rows[0]))
            database.executemany(f"INSERT INTO {table} VALUES ({marks})", [tuple(row.values()) for row in rows])

    put("sessions", [session("s-1")])
    put("messages", MESSAGES[:1])
    first = imported(file, library)
    put("messages", MESSAGES[1:])
    grown = imported(file, library)
    assert (first.action, grown.action, grown.id, grown.messages) == ("created", "grew", first.id, len(SAID))
    assert imported(file, library).action == "unchanged"
