"""Kimi Code's wire log: a reply is many lines; compactions, undone prompts and a cleared context are generations."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats import of_others
from tests.formats.of_others import (
    Bytes,
    assert_nothing_is_lost,
    entries,
    few_or_many_seeds,
    lines,
    messages,
    original,
)
from transcript_store.formats import head_of
from transcript_store.formats._kimi import Kimi
from transcript_store.testing import check_format

SHARED = os.environ.get("TRANSCRIPT_STORE_SHARED")


def line(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": kind, **members, "time": 1785915003489}


def asked(said: str, kind: str = "user") -> dict[str, Any]:
    content = [{"type": "text", "text": said}]
    return line(
        "context.append_message",
        message={"role": "user", "content": content, "toolCalls": [], "origin": {"kind": kind}},
    )


def loop(kind: str, **members: Any) -> dict[str, Any]:
    return line("context.append_loop_event", event={"type": kind, **members})


META = {"type": "metadata", "protocol_version": "1.5", "created_at": 1785915003489}
CONFIG = line("config.update", modelAlias="kimi-k2", systemPrompt="You are Kimi.", cwd="/home/me")
BEGIN = loop("step.begin", uuid="s1", turnId="t", step=1)
THINK = loop("content.part", stepUuid="s1", part={"type": "think", "think": "Hm."})
SAY = loop("content.part", stepUuid="s1", part={"type": "text", "text": "I look."})
CALL = loop("tool.call", stepUuid="s1", toolCallId="c1", name="Bash", args={"command": "ls"})
RESULT = loop("tool.result", toolCallId="c1", result={"output": "a.txt"})
USAGE = {"inputOther": 10, "output": 5, "inputCacheRead": 2, "inputCacheCreation": 0}
END = loop("step.end", uuid="s1", finishReason="tool_use", usage=USAGE)
REPLY = [
    loop("step.begin", uuid="s2"),
    loop("content.part", stepUuid="s2", part={"type": "text", "text": "Done"}),
    loop("step.end", uuid="s2"),
]
SESSION = [
    META,
    CONFIG,
    line("turn.prompt", input=[]),
    asked("List"),
    BEGIN,
    THINK,
    SAY,
    CALL,
    asked("Also", "injection"),
    RESULT,
    END,
    *REPLY,
]


plan_of = partial(of_others.plan_of, Kimi())


def test_a_reply_is_one_message_and_its_results_follow():
    """What was appended while a result was missing stands behind it."""
    plan = plan_of(*SESSION)
    call = {"id": "c1", "type": "function", "function": {"name": "Bash", "arguments": '{"command": "ls"}'}}
    assert messages(plan) == [
        {"role": "user", "content": "List"},
        {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
        {"role": "user", "content": "Also"},
        {"role": "assistant", "content": "Done"},
    ]
    assert (plan.provider, plan.model, plan.system_prompt) == ("openai-compatible", "kimi-k2", "You are Kimi.")
    assert plan.labels == {"cwd": "/home/me"}
    reply = next(entry for entry in entries(plan) if "usage" in entry.extra)
    assert reply.lines == (5, 6, 7, 8, 11)
    assert reply.extra["usage"] == {"prompt_tokens": 12, "completion_tokens": 5}
    assert reply.at == "2026-08-05T07:30:03.489000Z"


def test_a_compaction_keeps_what_the_user_said_and_the_summary():
    plan = plan_of(
        *SESSION,
        line("context.apply_compaction", summary="Files listed.", compactedCount=5, keptUserMessageCount=1),
        asked("Go on"),
    )
    assert [message["content"] for message in messages(plan)] == ["List", "Files listed.", "Go on"]
    assert len(messages(plan, 0)) == 5


def test_a_compaction_of_the_versions_before_keeps_the_newest():
    plan = plan_of(*SESSION, line("context.apply_compaction", summary="Files listed.", compactedCount=4))
    assert [message["content"] for message in messages(plan)] == ["Files listed.", "Done"]


def test_what_is_undone_and_what_is_cleared():
    """An undo counts the user's prompts, and goes not past a summary."""
    plan = plan_of(*SESSION, asked("More"), line("context.undo", count=1), asked("Else"))
    assert [message["content"] for message in messages(plan)][-2:] == ["Done", "Else"]
    assert len(plan_of(*SESSION, line("context.undo", count=9)).generations) == 1
    assert messages(plan_of(*SESSION, line("context.clear"), asked("New"))) == [{"role": "user", "content": "New"}]


def old(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": 1785915003.5, "message": {"type": kind, "payload": payload}}


SPENT = {"input_other": 10, "output": 5, "input_cache_read": 2, "input_cache_creation": 0}
PYTHON = [
    {"type": "metadata", "protocol_version": "1.1"},
    old("TurnBegin", user_input="List"),
    old("StepBegin", n=1),
    {
        "timestamp": 1785915003.5,
        "message": {"type": "ContentPart", "payload": {"type": "think", "think": "Hm.", "encrypted": None}},
    },
    {"timestamp": 1785915003.5, "message": {"type": "ContentPart", "payload": {"type": "text", "text": "I look."}}},
    old("ToolCall", type="function", id="c1", function={"name": "Bash", "arguments": '{"command": "ls"}'}, extras=None),
    old("StatusUpdate", token_usage=SPENT, message_id="m1"),
    old(
        "ToolResult",
        tool_call_id="c1",
        return_value={"is_error": False, "output": "a.txt", "message": "", "display": []},
    ),
    old("StepBegin", n=2),
    old("ContentPart", type="text", text="Done"),
    old("TurnEnd"),
]


def test_the_log_of_the_python_version():
    plan = plan_of(*PYTHON)
    call = {"id": "c1", "type": "function", "function": {"name": "Bash", "arguments": '{"command": "ls"}'}}
    assert messages(plan) == [
        {"role": "user", "content": "List"},
        {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
        {"role": "assistant", "content": "Done"},
    ]
    assert entries(plan)[2].extra["usage"] == {"prompt_tokens": 12, "completion_tokens": 5}
    assert entries(plan)[1].at == "2026-08-05T07:30:03.500000Z"


def test_sessions_of_one_version_are_told_apart():
    """Its first line is the version alone: of all sessions of a version the first was imported. One that is known by it goes on."""
    one, other = plan_of(*PYTHON), plan_of(PYTHON[0], {**PYTHON[1], "timestamp": 1785915004.5}, *PYTHON[2:])
    assert one.session != other.session
    assert one.former_session == other.former_session == plan_of(PYTHON[0]).session
    assert plan_of(*PYTHON[:2]).session == one.session
    timeless = [{name: value for name, value in each.items() if name != "timestamp"} for each in PYTHON]
    assert plan_of(*timeless).session == plan_of(*timeless[:3]).session == one.former_session, "each growth was another"
    assert (
        plan_of(*SESSION).session == plan_of(*SESSION).former_session == plan_of(META).session
    )  # this line has a time


@pytest.mark.skipif(SHARED is None, reason="TRANSCRIPT_STORE_SHARED is not set")
def test_the_log_of_a_session_that_said_nothing():
    """A real one: it ends before the first prompt."""
    source = Bytes(Path(str(SHARED), "corpora/kimi/wire-short.jsonl").read_bytes())
    assert Kimi().recognizes(head_of(source))
    (plan,) = Kimi().plans(source)
    assert_nothing_is_lost(plan)
    assert original(plan) == source.data
    assert (plan.lines, plan.model, messages(plan), plan.provider) == (5, "deepseek-v4-flash", [], None)
    assert (plan.system_prompt or "").startswith("You are Kimi Code CLI")


ANEW = [
    line("context.clear"),
    line("context.undo", count=1),
    line("context.apply_compaction", summary="S", compactedCount=2),
]


@given(st.lists(st.sampled_from([*SESSION, *ANEW]), max_size=20), st.integers(0, 300))
def test_any_order_of_lines_cut_anywhere(steps, cut):
    """Each whole line is accounted for, and the bytes come out again."""
    data = lines(META, *steps)
    source = Bytes(data[: max(len(lines(META)), len(data) - cut)])
    (plan,) = Kimi().plans(source)
    assert_nothing_is_lost(plan)
    assert original(plan) == source.data


@few_or_many_seeds
def test_it_keeps_the_contract_of_formats(seeds):
    check_format(Kimi(), [lines(*SESSION, ANEW[2], *SESSION[3:], ANEW[1]), lines(*PYTHON)], seeds=seeds)
