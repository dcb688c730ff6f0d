"""Kiro CLI's three engines. Inputs are made from the schemas that others described: no file that the program wrote was at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.formats.of_others import (
    Rows,
    a_handful_or_many_seeds,
    assert_nothing_is_lost,
    entries,
    lines,
    messages,
    plan_of,
)
from tests.reports.sessions import imported
from transcript_store.formats import SessionPlan
from transcript_store.formats._kiro import Kiro
from transcript_store.testing import check_format


def second(kind: str, *content: tuple[str, Any], **members: Any) -> dict[str, Any]:
    return {
        "version": "v1",
        "kind": kind,
        "data": {"message_id": "m", "content": [{"kind": name, "data": data} for name, data in content], **members},
    }


TURN = [
    second("Prompt", ("text", "Look."), meta={"timestamp": 1772359200}),
    second(
        "AssistantMessage", ("text", "I look."), ("toolUse", {"toolUseId": "t", "name": "fs_read", "input": {"p": 1}})
    ),
    second(
        "ToolResults",
        (
            "toolResult",
            {
                "toolUseId": "t",
                "content": [{"kind": "text", "data": "no"}, {"kind": "json", "data": {"a": 1}}],
                "status": "error",
            },
        ),
    ),
    second("Clear"),
    second("Prompt", ("text", "Anew."), ("image", {"format": "png", "source": {"bytes": "aGk="}})),
]
THIRD = [
    {"id": str(number), "timestamp": f"2026-07-01T00:00:0{number}.000Z", "payload": payload}
    for number, payload in enumerate(
        (
            {"type": "user", "content": "Look."},
            {"type": "assistant", "operationType": "Say", "content": "I look."},
            {"type": "tool_call", "toolCallId": "t", "toolName": "shell", "args": {"c": 1}},
            {"type": "tool_result", "toolCallId": "t", "content": "no", "success": False},
            {"type": "usage_summary", "promptTurnSummaries": []},
        )
    )
]


def value(*turns: dict[str, Any]) -> str:
    return json.dumps(
        {"conversation_id": "c1", "model_info": {"model_id": "claude-x"}, "history": list(turns), "next": None}
    )


ASKED = {
    "user": {"content": {"Prompt": {"prompt": "Look."}}, "timestamp": "2026-03-01T10:00:00Z"},
    "assistant": {
        "ToolUse": {
            "message_id": "m",
            "content": "I look.",
            "tool_uses": [{"id": "t", "name": "fs_read", "args": {"p": 1}}],
        }
    },
    "request_metadata": {"stream_end_timestamp_ms": 1772359205000},
}
ANSWERED = {
    "user": {
        "content": {
            "ToolUseResults": {
                "tool_use_results": [{"tool_use_id": "t", "content": [{"Text": "no"}], "status": "Error"}]
            }
        }
    },
    "assistant": {"Response": {"content": "Gone."}},
}


def tables(*turns: dict[str, Any], changed: int = 1772359209000) -> dict[str, list[dict[str, Any]]]:
    row = {
        "key": "/srv/p",
        "conversation_id": "c1",
        "value": value(*turns),
        "created_at": 1772359200000,
        "updated_at": changed,
    }
    return {"conversations_v2": [row]}


@a_handful_or_many_seeds
def test_it_keeps_the_contract(seeds: int) -> None:
    check_format(Kiro(), [lines(*TURN), lines(*THIRD), tables(ASKED, ANSWERED)], seeds=seeds)


def test_the_lines_of_the_second_engine() -> None:
    plan = plan_of(Kiro(), *TURN)
    assert [message["role"] for message in messages(plan, 0)] == ["user", "assistant", "tool"]
    answer = entries(plan, 0)[2]
    assert (answer.message or {})["content"] == 'no\n{"a": 1}'
    assert answer.extra["failed"] is True
    assert entries(plan, 0)[0].at == "2026-03-01T10:00:00Z"
    (anew,) = messages(plan)
    assert anew["content"][1]["image_url"]["url"] == "data:image/png;base64,aGk="


def test_what_stands_beside_it(tmp_path: Path) -> None:
    about = {
        "session_id": "s", "cwd": "/srv/p", "title": "Look", "created_at": "2026-03-01T10:00:00Z", "parent_session_id": "p",
        "session_created_reason": "subagent", "session_state": {"rts_model_state": {"model_info": {"model_id": "claude-x"}}},
    }  # fmt: skip
    (tmp_path / "s.json").write_text(json.dumps(about))
    got = imported(tmp_path, TURN, "s.jsonl")
    with got.library.open(str(got.report.id), read_only=True) as store:
        metadata = store.get_metadata()
        assert (metadata.model, metadata.provider, got.report.session) == ("claude-x", "claude", "s")
        assert metadata.labels == {"title": "Look", "cwd": "/srv/p", "part_of": "p", "source": "kiro"}
    assert got.has_its_bytes()


def test_the_lines_of_the_third_engine() -> None:
    plan = plan_of(Kiro(), *THIRD)
    assert [message["role"] for message in messages(plan)] == ["user", "assistant", "assistant", "tool"]
    assert [entry.extra.get("failed") for entry in entries(plan)] == [None, None, None, True, None]


def one_plan(rows: Any) -> SessionPlan:
    (plan,) = Kiro().plans(Rows(rows))
    assert_nothing_is_lost(plan)
    return plan


def test_a_row_of_the_first_engine_grows_although_it_is_written_anew() -> None:
    plan = one_plan(tables(ASKED, ANSWERED))
    assert (plan.session, plan.labels, plan.model) == ("c1", {"cwd": "/srv/p"}, "claude-x")
    assert [message["role"] for message in messages(plan)] == ["user", "assistant", "user", "assistant"]
    assert messages(plan)[2]["content"][0]["is_error"] is True
    before = one_plan(tables(ASKED, changed=1772359205000))
    assert messages(plan)[:2] == messages(before)
    assert plan.edition is not None
    assert before.edition is not None
    assert plan.edition > before.edition


def test_a_conversation_in_both_tables_is_one() -> None:
    """The first engine kept one a folder before it kept several."""
    rows = {
        **tables(ASKED),
        "conversations": [
            {"key": "/srv/p", "value": value(ASKED)},
            {"key": "/srv/q", "value": value(ASKED).replace("c1", "c2")},
        ],
    }
    assert [plan.session for plan in Kiro().plans(Rows(rows))] == ["c1", "c2"]


def test_only_conversations_that_changed_are_read_again() -> None:
    assert Kiro().session_stamps(Rows(tables(ASKED))) == {"c1": "1772359209000"}
    assert list(Kiro().plans(Rows(tables(ASKED)), skip={"c1"})) == []
    assert Kiro().session_times(Rows(tables(ASKED))) == [(1772359200.0, 1772359209.0)]
