"""Goose: rows of its database, and the lines of before 1.10. Inputs are made from the columns and contents of its source."""

from __future__ import annotations

import json
from typing import Any

from tests.formats.of_others import Rows, a_handful_or_many_seeds, assert_nothing_is_lost, entries, lines, messages
from tests.formats.of_others import plan_of as plan_of_lines
from transcript_store.formats import SessionPlan
from transcript_store.formats._goose import Goose
from transcript_store.testing import check_format

SESSION = {
    "id": "20260301_1", "name": "Fix", "description": "", "session_type": "user", "working_dir": "/srv/p", "created_at": "2026-03-01 10:00:00",
    "provider_name": "anthropic", "model_config_json": '{"model_name": "claude-x"}', "parent_session_id": None, "archived_at": None,
}  # fmt: skip
GONE, AGENTS = {"userVisible": True, "agentVisible": False}, {"userVisible": False, "agentVisible": True}


def row(number: int, role: str, *contents: Any, seen: dict[str, bool] | None = None, **members: Any) -> dict[str, Any]:
    said = [{"type": "text", "text": content} if isinstance(content, str) else content for content in contents]
    about = {
        "id": number,
        "message_id": f"m{number}",
        "session_id": "20260301_1",
        "role": role,
        "content_json": json.dumps(said),
    }
    return {
        **about,
        "created_timestamp": 1772359200 + number,
        "tokens": None,
        "metadata_json": json.dumps(seen or {}),
        **members,
    }


def asked(number: str) -> dict[str, Any]:
    return {
        "type": "toolRequest",
        "id": number,
        "toolCall": {"status": "success", "value": {"name": "shell", "arguments": {"command": "ls"}}},
    }


def answered(number: str, value: Any, status: str = "success") -> dict[str, Any]:
    name = "value" if status == "success" else "error"
    return {"type": "toolResponse", "id": number, "toolResult": {"status": status, name: value}}


THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
SHOWN = [{"type": "text", "text": "no"}, {"type": "image", "data": "aGk=", "mimeType": "image/png"}]


def turn(seen: dict[str, bool] | None = None) -> list[dict[str, Any]]:
    return [
        row(1, "user", "Look.", seen=seen),
        row(2, "assistant", THOUGHT, asked("t1"), asked("t2"), asked("t3"), seen=seen),
        row(
            3,
            "user",
            answered("t1", {"content": SHOWN, "isError": True}),
            answered("t2", SHOWN[:1]),
            answered("t3", "denied", "error"),
            seen=seen,
        ),
        row(4, "assistant", {"type": "systemNotification", "msg": "x"}, seen=seen),
        row(5, "assistant", "Done.", seen=seen),
    ]


COMPACTED = [
    *turn(GONE),
    row(6, "user", "Summary.", seen=AGENTS),
    row(7, "assistant", "I go on.", seen=AGENTS),
    row(8, "user", "And?"),
]
LEDGER = [
    {"id": number, "session_id": "20260301_1", "created_timestamp": 1772359200 + at, "model": model, "input_tokens": 10, "output_tokens": 5,
     "total_tokens": 15, "cache_read_tokens": 4, "cache_write_tokens": 0, "cost": 0.5, "is_compaction": compacts}
    for number, at, model, compacts in ((1, 2, "claude-x", 0), (2, 6, "claude-y", 0), (3, 6, "claude-z", 1))
]  # fmt: skip


def tables(rows: list[dict[str, Any]], **session: Any) -> dict[str, list[dict[str, Any]]]:
    return {"sessions": [{**SESSION, **session}], "messages": rows, "usage_ledger": LEDGER}


def plan_of(rows: list[dict[str, Any]], **session: Any) -> SessionPlan:
    (plan,) = Goose().plans(Rows(tables(rows, **session)))
    assert_nothing_is_lost(plan)
    return plan


@a_handful_or_many_seeds
def test_it_keeps_the_contract(seeds: int) -> None:
    check_format(Goose(), [tables(turn()), tables(COMPACTED), lines(*OLD)], seeds=seeds)


def test_contents_are_blocks_of_the_provider_and_a_call_may_fail_in_three_ways() -> None:
    plan = plan_of(turn())
    assert (plan.provider, plan.model) == ("claude", "claude-y")
    assert plan.labels == {"title": "Fix", "cwd": "/srv/p"}
    _, reply, results, done = messages(plan)
    assert [block["type"] for block in reply["content"]] == ["thinking", "tool_use", "tool_use", "tool_use"]
    assert [block.get("is_error") for block in results["content"]] == [True, None, True]
    assert [one["type"] for one in results["content"][0]["content"]] == ["text", "image"]
    assert (results["content"][2]["content"], done["content"][0]["text"]) == ("denied", "Done.")


def test_each_reply_has_the_request_of_the_ledger() -> None:
    said = [entry.extra for entry in entries(plan_of(turn())) if (entry.message or {}).get("role") == "assistant"]
    assert [about["model"] for about in said] == ["claude-x", "claude-y"]
    counts = {
        "cache_read_input_tokens": 4,
        "cache_creation_input_tokens": 0,
        "input_tokens": 6,
        "output_tokens": 5,
        "cost": 0.5,
    }
    assert [about["usage"] for about in said] == [counts, counts]


def test_a_compaction_begins_a_generation() -> None:
    plan = plan_of(COMPACTED)
    assert [len(messages(plan, number)) for number in (0, 1)] == [4, 3]
    assert [message["content"][0]["text"] for message in messages(plan)] == ["Summary.", "I go on.", "And?"]
    assert entries(plan)[0].extra["compaction"] is True


def test_rows_that_were_put_in_anew_are_the_same_lines() -> None:
    """A compaction deletes all rows, and writes them with other ids and as invisible."""
    before = [entry.extra["source"] for entry in entries(plan_of(turn()))]
    again = [{**one, "id": one["id"] + 100} for one in COMPACTED]
    assert [entry.extra["source"] for entry in entries(plan_of(again), 0)] == before


def test_a_reply_that_was_stored_while_it_came_is_one() -> None:
    """A real session had 1,486 pieces of thinking, a word each (WildChildForLife/lantern PR#54); a row a piece, or a part a piece."""
    pieces = [{"type": "thinking", "thinking": word} for word in ("I ", "look", ".")]
    first = row(1, "assistant", *pieces, {"type": "thinking", "thinking": "", "signature": "c2ln"}, "It", " is.")
    second = {**row(2, "assistant", " Done.", asked("t1")), "message_id": "m1"}
    plan = plan_of([row(0, "user", "Look.", "And say."), first, second])
    asked_for, reply = messages(plan)
    assert [block["text"] for block in asked_for["content"]] == ["Look.", "And say."]
    assert [block["type"] for block in reply["content"]] == ["thinking", "text", "tool_use"]
    assert reply["content"][0] == {"type": "thinking", "thinking": "I look.", "signature": "c2ln"}
    assert reply["content"][1]["text"] == "It is. Done."
    assert entries(plan)[1].lines == (2, 3)


def test_times_in_milliseconds_are_times() -> None:
    late = row(1, "assistant", "Second.", created_timestamp=1772359201000)
    plan = plan_of([late, row(0, "user", "First.")])
    assert [message["role"] for message in messages(plan)] == ["user", "assistant"]
    assert entries(plan)[1].at == "2026-03-01T10:00:01Z"


def test_sub_agents_and_other_providers() -> None:
    plan = plan_of(turn(), session_type="sub_agent", parent_session_id="20260301_0", provider_name="openrouter")
    assert (plan.provider, plan.labels["part_of"]) == ("openai-compatible", "20260301_0")
    assert messages(plan)[1]["reasoning_content"] == "Hm."
    assert [entry.extra.get("failed") for entry in entries(plan) if (entry.message or {}).get("role") == "tool"] == [
        True,
        None,
        True,
    ]


OLD = [
    {"working_dir": "/srv/p", "description": "Greeting", "message_count": 2},
    {"role": "user", "created": 1745571153, "content": [{"type": "text", "text": "hoi"}]},
    {"role": "assistant", "created": 1745571154, "content": [{"type": "text", "text": "hello"}, {"type": "toolRequest", "id": "t", "toolCall": {"status": "error", "error": "no JSON"}}]},
]  # fmt: skip


def test_the_lines_of_before_are_read() -> None:
    plan = plan_of_lines(Goose(), *OLD)
    assert plan.labels == {"title": "Greeting", "cwd": "/srv/p"}
    assert [entry.at for entry in entries(plan)] == [None, "2025-04-25T08:52:33Z", "2025-04-25T08:52:34Z"]
    (call,) = messages(plan)[1]["tool_calls"]
    assert (messages(plan)[1]["content"], call["id"], call["function"]["name"]) == ("hello", "t", "invalid_call")


def test_only_sessions_that_changed_are_read_again() -> None:
    before = Goose().session_stamps(Rows(tables(turn())))
    assert Goose().session_stamps(Rows(tables(turn()))) == before
    assert Goose().session_stamps(Rows(tables(COMPACTED))) != before
    assert list(Goose().plans(Rows(tables(turn())), skip={"20260301_1"})) == []
    (span,) = Goose().session_times(Rows(tables(turn(), updated_at="2026-03-01 10:00:30")))
    assert span == (1772359200.0, 1772359230.0)
