"""Hermes: rows of its database, an export of it, and the JSON files of before. The traps are those of what 0.19.0 wrote."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from tests.formats.of_others import (
    Bytes,
    Rows,
    a_handful_or_many_seeds,
    assert_nothing_is_lost,
    entries,
    lines,
    messages,
)
from transcript_store import ConversationLibrary
from transcript_store.formats import SessionPlan
from transcript_store.formats._hermes import Hermes
from transcript_store.importing import import_conversations
from transcript_store.testing import check_format

SESSION = {
    "id": "20261127_095232_82", "source": "cli", "model": "m1", "model_config": "{}", "system_prompt": "You are Hermes.", "parent_session_id": None,
    "started_at": 1795773164.0, "cwd": "/home/ada/garden", "git_branch": None, "title": "Apples", "end_reason": None, "rewind_count": 0,
}  # fmt: skip
CALLS = json.dumps([
    {"id": number, "call_id": number, "response_item_id": f"fc_{number}", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    for number in ("c1", "c2")
])  # fmt: skip


def row(number: int, role: str, content: str | None, at: float | None = None, **members: Any) -> dict[str, Any]:
    columns = (
        "tool_call_id",
        "tool_calls",
        "tool_name",
        "token_count",
        "finish_reason",
        "reasoning",
        "reasoning_content",
    )
    about = {"id": number, "session_id": SESSION["id"], "role": role, "content": content, **dict.fromkeys(columns)}
    return {**about, "timestamp": 1795773164.0 + (number if at is None else at), "active": 1, "compacted": 0, **members}


TURN = [
    row(1, "user", "Fix the pears."),
    row(
        2,
        "assistant",
        "Two calls.",
        tool_calls=CALLS,
        reasoning="Hm.",
        reasoning_content="Hm.",
        finish_reason="tool_calls",
    ),
    row(3, "tool", "Tool 'no_such_tool' does not exist.", tool_call_id="c2"),
    row(4, "tool", '{"content": "apples: 3"}', tool_call_id="c1", tool_name="read_file"),
    row(5, "assistant", "Done.", finish_reason="stop"),
]
SUMMARY = "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted."
COMPACTED = [
    *({**one, "active": 0, "compacted": 1} for one in TURN),
    row(6, "user", "Fix the pears.", at=10),
    row(7, "user", SUMMARY, at=10.000001),
    row(8, "assistant", "Done.", at=10.000002, finish_reason="stop"),
    row(9, "user", "Taken back.", active=0, at=20),
    row(10, "user", "And now?", at=30),
]
USED = [
    {
        "session_id": SESSION["id"],
        "model": model,
        "task": "",
        "first_seen": 1795773164.0 + first,
        "last_seen": 1795773164.0 + last,
    }
    for model, first, last in (("m1", 1, 3), ("m2", 29, 31))
]


def tables(rows: list[dict[str, Any]], *sessions: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    return {"sessions": [*(sessions or (SESSION,))], "messages": rows, "session_model_usage": USED}


def plan_of(rows: list[dict[str, Any]], *sessions: dict[str, Any]) -> SessionPlan:
    plan, *_ = Hermes().plans(Rows(tables(rows, *sessions)))
    assert_nothing_is_lost(plan)
    return plan


@a_handful_or_many_seeds
def test_it_keeps_the_contract(seeds: int) -> None:
    check_format(
        Hermes(), [tables(TURN), tables(COMPACTED), lines(EXPORTED), json.dumps(FILE, indent=2).encode()], seeds=seeds
    )


def test_messages_are_ready_to_be_sent_and_failures_are_told_by_their_text() -> None:
    plan = plan_of(TURN)
    asked, reply, failed, answered, done = entries(plan)
    assert (asked.message, (done.message or {})["content"]) == ({"role": "user", "content": "Fix the pears."}, "Done.")
    assert reply.message is not None
    assert reply.message["reasoning_content"] == "Hm."
    assert [set(call) for call in reply.message["tool_calls"]] == [{"id", "type", "function"}] * 2, (
        "other APIs' ids are its own additions"
    )
    assert [(failed.message or {})["tool_call_id"], (answered.message or {})["tool_call_id"]] == ["c2", "c1"], (
        "as they ended"
    )
    assert [entry.extra.get("failed") for entry in (failed, answered)] == [True, None]
    assert plan.labels == {"title": "Apples", "cwd": "/home/ada/garden"}
    assert (plan.system_prompt, asked.at) == ("You are Hermes.", "2026-11-27T09:52:45Z")


def test_a_compaction_doubles_rows_and_not_the_history() -> None:
    plan = plan_of(COMPACTED)
    assert [len(messages(plan, number)) for number in (0, 1)] == [5, 4]
    assert [message["content"] for message in messages(plan)] == ["Fix the pears.", SUMMARY, "Done.", "And now?"]
    assert [
        entry.extra["left_branch"]["message"]["content"] for entry in entries(plan) if "left_branch" in entry.extra
    ] == ["Taken back."]
    assert entries(plan)[1].extra["compaction"] is True
    assert [finding.kind for finding in plan.findings] == ["left-branch"]


def test_what_a_compaction_kept_is_not_retracted_however_its_rows_are_marked() -> None:
    """NousResearch/hermes-agent PR#93160 marks the rows that it puts in again as those of an undo."""
    rows = [{**one, "compacted": 0} if one["id"] in (1, 5) else one for one in COMPACTED]
    plan = plan_of(rows)
    assert len(messages(plan, 0)) == 5
    assert [finding.message[:9] for finding in plan.findings] == ["1 message"]


def test_a_compaction_without_a_summary_begins_behind_what_it_took() -> None:
    """NousResearch/hermes-agent PR#104087: ``hermes sessions compact`` marks rows, and puts none in."""
    plan = plan_of([*({**one, "active": 0, "compacted": 1} for one in TURN), row(6, "user", "And?")])
    assert [len(messages(plan, number)) for number in (0, 1)] == [5, 1]


def test_the_model_is_the_one_that_was_in_use_then() -> None:
    rows = [*TURN, row(30, "user", "And?"), row(31, "assistant", "Yes.", finish_reason="stop")]
    plan = plan_of(rows)
    assert [
        entry.extra.get("model") for entry in entries(plan) if (entry.message or {}).get("role") == "assistant"
    ] == ["m1", "m1", "m2"]
    assert plan.model == "m2"


def test_sub_agents_forks_and_sessions_that_were_deleted() -> None:
    agent = {**SESSION, "id": "agent", "source": "subagent", "parent_session_id": SESSION["id"]}
    other = {**SESSION, "id": "other", "parent_session_id": SESSION["id"]}
    rows = [
        *TURN,
        *(
            {**row(number, "user", "Look."), "session_id": name}
            for number, name in ((20, "agent"), (21, "other"), (22, "gone"))
        ),
    ]
    plans = {plan.session: plan for plan in Hermes().plans(Rows(tables(rows, SESSION, agent, other)))}
    assert plans["agent"].labels["part_of"] == SESSION["id"]
    assert plans["other"].labels["forked_from"] == SESSION["id"]
    assert [message["content"] for message in messages(plans["gone"])] == ["Look."]


def test_contents_with_parts_and_what_the_program_says_of_a_picture() -> None:
    parts = [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    ]
    shown = "[The user attached an image. Here's what it contains:\nPears]\n[If you need a closer look, use it]\n\nWhat is it?"
    rows = [row(number, "user", f"{mark}json:{json.dumps(parts)}") for number, mark in enumerate("\x00\x01", 1)]
    plan = plan_of([*rows, row(3, "user", shown)])
    assert [message["content"] for message in messages(plan)] == [parts, parts, shown]
    assert entries(plan)[-1].extra["scaffolding"] == {"typed": "What is it?"}


EXPORTED = {
    **SESSION,
    "messages": [{**one, "tool_calls": json.loads(one["tool_calls"]) if one["tool_calls"] else None} for one in TURN],
}
FILE = {
    "session_id": "20260429_small", "model": "m1", "platform": "cli", "session_start": "2026-04-29T20:00:00Z", "last_updated": "2026-04-29T20:00:04Z",
    "cwd": "/tmp/small", "messages": [{"role": "user", "content": "Look."}, {"role": "assistant", "content": "Yes."}, {"role": "session_meta"}],
}  # fmt: skip


def test_an_export_and_a_file_of_before_say_the_same() -> None:
    (plan,) = Hermes().plans(Bytes(lines(EXPORTED)))
    assert messages(plan) == messages(plan_of(TURN))
    assert plan.session == f"{SESSION['id']}/file", "the database may have the session too"
    (old,) = Hermes().plans(Bytes(json.dumps(FILE, indent=2).encode()))
    assert [message["role"] for message in messages(old)] == ["user", "assistant"]
    assert (old.session, old.labels, entries(old)[0].at) == (
        "20260429_small/file",
        {"cwd": "/tmp/small"},
        "2026-04-29T20:00:00Z",
    )


def test_a_young_database_stands_in_its_log_and_a_compaction_replaces_nothing_that_was_imported(tmp_path: Path) -> None:
    """The file itself is 4096 bytes then; and a compaction changes two columns of all rows that were there."""
    path, library = tmp_path / "state.db", ConversationLibrary(tmp_path / "library")
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode=WAL")
        for table, rows in tables(COMPACTED).items():
            database.execute(f"CREATE TABLE {table} ({', '.join(rows[0])})")
        database.commit()
        assert [report.action for report in import_conversations([path], library)] == ["empty"], "it was never used yet"
        _put(database, "sessions", [SESSION])
        _put(database, "session_model_usage", USED)
        _put(database, "messages", TURN)
        database.commit()
        assert [report.action for report in import_conversations([path], library)] == ["created"]
        database.execute("UPDATE messages SET active = 0, compacted = 1")
        _put(database, "messages", COMPACTED[5:])
        database.commit()
        (report,) = import_conversations([path], library)
    with library.open(str(report.id), read_only=True) as store:
        assert store.get_metadata().generation == 1, (
            "one new generation, and the rows of before stay as they were imported"
        )
        assert [message["content"] for message in store.get_messages()][-1] == "And now?"
    database.close()


def _put(database: sqlite3.Connection, table: str, rows: list[dict[str, Any]]) -> None:
    for one in rows:
        names = ", ".join(one)
        database.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(one))})", tuple(one.values()))


def test_only_sessions_that_changed_are_read_again() -> None:
    other = {**SESSION, "id": "other"}
    rows = [*TURN, {**row(20, "user", "Look."), "session_id": "other"}]
    before = Hermes().session_stamps(Rows(tables(rows, SESSION, other)))
    assert set(before) == {SESSION["id"], "other"}
    compacted = [{**rows[0], "active": 0, "compacted": 1}, *rows[1:]]
    titled = tables(rows, {**SESSION, "title": "Pears"}, other)
    for changed in (
        tables([*rows, row(21, "user", "And?")], SESSION, other),
        tables(compacted, SESSION, other),
        titled,
    ):
        after = Hermes().session_stamps(Rows(changed))
        assert [session for session in before if after[session] != before[session]] == [SESSION["id"]]
    skipped = Hermes().plans(Rows(tables(rows, SESSION, other)), skip={str(SESSION["id"])})
    assert [plan.session for plan in skipped] == ["other"]
    assert Hermes().session_times(Rows(tables(TURN))) == [(1795773164.0, 1795773169.0)]
