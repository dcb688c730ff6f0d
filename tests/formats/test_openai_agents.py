"""The sessions of OpenAI's Agents SDK: rows as 0.24.0 writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.formats.of_others import (
    Rows,
    assert_nothing_is_lost,
    entries,
    few_or_many_seeds,
    messages,
    original,
)
from transcript_store.formats import SessionPlan, SourceHead
from transcript_store.formats._openai_agents import OpenAIAgents
from transcript_store.testing import check_format

ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi"},
    {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "ok"},
    {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Done", "annotations": []}],
    },
]
SECRET = {"__enc__": 1, "v": 1, "kid": "hkdf-v1", "payload": "gAAAAA"}


def row(number: int, item: object, session: str = "chat-1") -> dict[str, Any]:
    data = item if isinstance(item, str) else json.dumps(item)
    return {"id": number, "session_id": session, "message_data": data, "created_at": "2026-11-23 06:49:40"}


def plans_of(*rows: dict[str, Any]) -> list[SessionPlan]:
    tables = Rows({"agent_messages": list(rows)})
    assert OpenAIAgents().recognizes(SourceHead("x", tables={"agent_messages": tables.columns("agent_messages")}))
    plans = list(OpenAIAgents().plans(tables))
    for plan in plans:
        assert_nothing_is_lost(plan)
    return plans


def test_a_session_is_what_our_client_sends():
    (plan,) = plans_of(*[row(number, item) for number, item in enumerate(ITEMS, 1)])
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert messages(plan) == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"role": "assistant", "content": "Done"},
    ]
    assert (plan.session, plan.lines, plan.provider) == ("chat-1", 5, "openai")
    assert entries(plan)[0].at == "2026-11-23T06:49:40Z"


def test_the_text_of_each_row_comes_out_again():
    (plan,) = plans_of(*[row(number, item) for number, item in enumerate(ITEMS, 1)])
    assert original(plan).decode().splitlines() == [json.dumps(item) for item in ITEMS]


def test_sessions_that_were_written_at_once():
    """Each has its own rows, in the order of their ids."""
    first, second = plans_of(
        *[row(number, ITEMS[0] | {"content": str(number)}, f"s{number % 2}") for number in range(6, 0, -1)]
    )
    assert [message["content"] for message in messages(first)] == ["2", "4", "6"]
    assert [message["content"] for message in messages(second)] == ["1", "3", "5"]


def test_rows_that_are_encrypted_are_named():
    """They are kept, so that nothing is gone; they cannot be read."""
    (plan,) = plans_of(row(1, SECRET), row(2, ITEMS[0]), row(3, "no JSON"))
    assert [(finding.kind, finding.line) for finding in plan.findings] == [("encrypted", 1), ("not-json", 3)]
    assert "row 1 of agent_messages" in plan.findings[0].message
    assert len(messages(plan)) == 1


@pytest.mark.parametrize("nested", ["[" * 100_000 + "]" * 100_000, '{"a":' * 5_000 + "1" + "}" * 5_000])
def test_f6_a_row_that_is_nested_too_deep_is_named_and_kept(nested):
    """The rows around it are messages; its text comes out again."""
    bomb = json.dumps({**ITEMS[0], "content": "HERE"}).replace('"HERE"', nested)
    (plan,) = plans_of(row(1, ITEMS[0]), row(2, bomb), row(3, ITEMS[-1]))
    ((kind, line, message),) = [(finding.kind, finding.line, finding.message) for finding in plan.findings]
    assert (kind, line) == ("too-deep", 2)
    assert "row 2 of agent_messages" in message
    assert "1,024 levels" in message
    assert [said["role"] for said in messages(plan)] == ["user", "assistant"]
    assert original(plan).splitlines()[1] == bomb.encode()


HOSTED: list[dict[str, Any]] = [
    {"role": "user", "content": "Edit the file"},
    {"type": "apply_patch_call", "id": "a", "call_id": "c1", "operation": {"type": "update_file", "path": "a.py"}},
    {"type": "apply_patch_call_output", "call_id": "c1", "status": "completed", "output": "patched"},
    {"type": "shell_call", "id": "s", "call_id": "c2", "action": {"commands": ["ls"]}},
    {"type": "shell_call_output", "call_id": "c2", "output": [{"stdout": "file.txt", "stderr": "", "outcome": {"type": "exit"}}]},
    {"type": "computer_call", "id": "k", "call_id": "c3", "action": {"type": "screenshot"}},
    {"type": "computer_call_output", "call_id": "c3", "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,iVBO"}},
    {"type": "mcp_call", "id": "m", "name": "lookup", "arguments": "{}", "output": "found"},
    {"type": "message", "id": "z", "role": "assistant", "content": [{"type": "output_text", "text": "Done"}]},
]  # fmt: skip


def test_each_hosted_call_stands_with_its_result():
    """The calls were events, their results stood there without a call and partly empty, and nobody was told."""
    (plan,) = plans_of(*[row(number, item) for number, item in enumerate(HOSTED, 1)])
    said = messages(plan)
    calls = [call for message in said for call in message.get("tool_calls", ())]
    assert [(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls] == [
        ("c1", "apply_patch", {"type": "update_file", "path": "a.py"}),
        ("c2", "shell", {"commands": ["ls"]}),
        ("c3", "computer", {"type": "screenshot"}),
    ]
    results = {message["tool_call_id"]: message["content"] for message in said if message["role"] == "tool"}
    assert (results["c1"], json.loads(results["c2"])["stdout"]) == ("patched", "file.txt")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}
    assert {"role": "user", "content": [picture]} in said
    assert said[-1] == {"role": "assistant", "content": "Done"}
    assert [(loss.kind, loss.count) for loss in plan.losses] == [("own", 1)]


@few_or_many_seeds
def test_it_keeps_the_contract_of_formats(seeds):
    sessions = [{"agent_messages": [row(n, item) for n, item in enumerate(items, 1)]} for items in (ITEMS, HOSTED)]
    check_format(OpenAIAgents(), sessions, seeds=seeds)
