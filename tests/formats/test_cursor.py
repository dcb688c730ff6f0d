"""Cursor's three stores. Inputs are made from the schemas that others described: no file that the program wrote was at hand."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tests.formats.of_others import (
    Bytes,
    Rows,
    a_handful_or_many_seeds,
    assert_nothing_is_lost,
    entries,
    lines,
    messages,
    original,
    plan_of,
)
from transcript_store.formats import SessionPlan, head_of
from transcript_store.formats._cursor import Cursor
from transcript_store.testing import check_format

ID, CHILD = "f1ff7b74-0a28-4dd4-a452-e01ae080eb20", "f1ff7b74-0a28-4dd4-a452-e01ae080eb21"


def said(role: str, *blocks: Any, **members: Any) -> dict[str, Any]:
    return {
        "role": role,
        "message": {"content": [{"type": "text", "text": one} if isinstance(one, str) else one for one in blocks]},
        **members,
    }


PROMPT = "<timestamp>Monday, Mar 2, 2026, 10:15 AM (UTC+1)</timestamp>\n<user_query>\nLook.\n</user_query>"
CALL = {"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}
TRANSCRIPT = [
    said("user", PROMPT),
    said("assistant", {"type": "thinking", "thinking": "Hm."}, "I look.", CALL),
    said("user", {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "a.txt"}]}),
    said("assistant", CALL, {"type": "custom_block", "text": "New."}),
]


@a_handful_or_many_seeds
def test_it_keeps_the_contract(seeds: int) -> None:
    check_format(Cursor(), [lines(*TRANSCRIPT), STORE, EDITOR], seeds=seeds)


def test_a_transcript_has_its_prompts_times_and_calls_with_ids() -> None:
    plan = plan_of(Cursor(), *TRANSCRIPT)
    asked, reply, answer, last = entries(plan)
    assert (asked.at, asked.extra["scaffolding"]) == ("2026-03-02T10:15:00+01:00", {"typed": "Look."})
    assert reply.message is not None
    assert (reply.message["reasoning_content"], reply.message["tool_calls"][0]["id"]) == ("Hm.", "t1")
    assert answer.message == {"role": "tool", "tool_call_id": "t1", "content": "a.txt"}
    assert last.message is not None
    assert last.message["content"] == "New."
    assert last.message["tool_calls"][0]["id"].startswith("call_"), "a call without a result, and none is made up"


def test_lines_that_say_that_a_turn_ended_are_passed_over_and_marks_of_thinking_are_no_text() -> None:
    """Reports of real files: melagiri/code-insights PR#312, caura-ai/caura PR#612."""
    ended = {"type": "turn_ended", "status": "completed"}
    plan = plan_of(
        Cursor(), *TRANSCRIPT[:1], said("assistant", "Yes.\n\n[REDACTED]"), ended, said("assistant", "[REDACTED]", CALL)
    )
    assert [message["content"] for message in messages(plan)[1:]] == ["Yes.", None]
    assert Cursor().recognizes(head_of(Bytes(lines(ended, *TRANSCRIPT))))
    assert not Cursor().recognizes(head_of(Bytes(lines(ended))))


def test_the_path_says_which_session_it_is_and_whose_part() -> None:
    """Nothing in the file does. Two that begin with the same prompt are two; elsewhere a copy is the same."""
    folder = "/home/ada/.cursor/projects/srv-p/agent-transcripts"
    names = (f"{folder}/{ID}/{ID}.jsonl", f"{folder}/{ID}/subagents/{CHILD}.jsonl", f"{folder}/{CHILD}.jsonl")
    plans = [next(iter(Cursor().plans(Bytes(lines(*TRANSCRIPT), name)))) for name in names]
    ids = [f"{ID}/transcript", f"{CHILD}/transcript", f"{CHILD}/transcript"]
    assert [plan.session for plan in plans] == ids, (
        "the same session may stand in a database too, which says more of it"
    )
    assert [dict(plan.labels) for plan in plans] == [{}, {"part_of": ids[0]}, {}]
    elsewhere = {next(iter(Cursor().plans(Bytes(lines(*TRANSCRIPT), name)))).session for name in ("a", "/tmp/b.jsonl")}
    assert len(elsewhere) == 1


def blob(value: Any) -> tuple[str, bytes]:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return hashlib.sha256(raw).hexdigest(), raw


def store(*sent: dict[str, Any], beside: tuple[dict[str, Any], ...] = ()) -> dict[str, list[dict[str, Any]]]:
    blobs = [blob(one) for one in (*sent, *beside)]
    root = b"".join(b"\x0a\x20" + bytes.fromhex(blob(one)[0]) for one in sent) + b"\x4a\x06/srv/p"
    about = {
        "agentId": ID,
        "latestRootBlobId": blob(root)[0],
        "name": "Gone",
        "createdAt": 1754000000000,
        "lastUsedModel": "m",
    }
    rows = dict([*blobs, blob(root)])
    return {
        "meta": [{"key": "0", "value": json.dumps(about).encode().hex()}],
        "blobs": [{"id": name, "data": raw} for name, raw in rows.items()],
    }


QUERY = {
    "role": "user",
    "content": [{"type": "text", "text": "<user_query>\nfix it\n</user_query>"}],
    "createdAt": 1754000000000,
}
SENT = (
    {"role": "system", "content": "You are."},
    {"role": "user", "content": [{"type": "text", "text": "<user_info>\nOS\n</user_info>"}]},
    QUERY,
    {"role": "assistant", "content": [
        {"type": "reasoning", "text": "Hm."}, {"type": "text", "text": "I read."},
        {"type": "tool-call", "toolCallId": "c1", "toolName": "Read", "args": {"path": "a"}}],
     "createdAt": 1754000001000, "providerOptions": {"cursor": {"modelName": "composer-2.5"}}},
    {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "Read", "result": "no file", "isError": True}]},
    QUERY,
    {"role": "assistant", "content": [{"type": "text", "text": "Gone."}], "createdAt": 1754000005000},
)  # fmt: skip
BACK = {"role": "user", "content": "taken back", "createdAt": 1754000002000}
STORE = store(*SENT, beside=(BACK,))


def one_plan(tables: Any) -> SessionPlan:
    (plan,) = Cursor().plans(Rows(tables))
    assert_nothing_is_lost(plan)
    return plan


def test_a_store_is_in_the_order_of_its_root() -> None:
    plan = one_plan(STORE)
    assert (plan.session, plan.model, plan.system_prompt) == (ID, "composer-2.5", "You are.")
    assert plan.labels == {"title": "Gone", "cwd": "/srv/p"}
    roles = [message["role"] for message in messages(plan)]
    assert roles == ["user", "user", "assistant", "tool", "user", "assistant"], (
        "one that was said twice is one blob, and two messages"
    )
    assert [entry.extra.get("scaffolding") for entry in entries(plan)[1:3]] == [True, {"typed": "fix it"}]
    assert [entry.extra.get("failed") for entry in entries(plan) if (entry.message or {}).get("role") == "tool"] == [
        True
    ]
    assert [finding.kind for finding in plan.findings] == ["left-branch"]


def test_what_was_retracted_does_not_move_when_more_is_said() -> None:
    before = list(entries(one_plan(STORE)))
    grown = store(*SENT, {"role": "user", "content": "And?", "createdAt": 1754000009000}, beside=(BACK,))
    assert entries(one_plan(grown))[: len(before)] == before


def test_a_store_without_its_root_or_a_message_says_so() -> None:
    rootless = {**STORE, "meta": [{"key": "0", "value": "7b7d"}]}
    assert "no-order" in {finding.kind for finding in one_plan(rootless).findings}
    missing = {**STORE, "blobs": [row for row in STORE["blobs"] if b"I read" not in row["data"]]}
    assert "missing-message" in {finding.kind for finding in one_plan(missing).findings}


def key(name: str, /, **value: Any) -> dict[str, Any]:
    return {"key": name, "value": json.dumps(value)}


TOOL = {"toolCallId": "t", "name": "read_file", "status": "error", "rawArgs": '{"p":1}', "result": '{"e":1}'}
EDITOR = {
    "cursorDiskKV": [
        key("composerData:a", name="Chat", createdAt=1754000000000, subComposerIds=["b"],
            fullConversationHeadersOnly=[{"bubbleId": number, "type": 1} for number in ("1", "2", "3", "4")]),
        key("bubbleId:a:1", type=1, text="fix", createdAt="2026-01-01T00:00:00.000Z", workspaceUris=["file:///srv/p%20q"]),
        key("bubbleId:a:2", type=2, text="", thinking={"text": "Hm."}, toolFormerData=TOOL, createdAt="2026-01-01T00:00:01.000Z"),
        key("bubbleId:a:3", type=2, toolFormerData={**TOOL, "toolCallId": "u", "status": "loading", "result": None}),
        key("bubbleId:a:4", type=2, text="Done", tokenCount={"inputTokens": 5, "outputTokens": 2}, modelInfo={"modelName": "gpt-5"}),
        key("bubbleId:a:9", type=1, text="taken back", createdAt="2026-01-01T00:00:00.500Z"),
        key("composerData:b", createdAt=1754000000000, conversation=[{"type": 1, "text": "sub"}, {"type": 2, "text": "done"}]),
        key("bubbleId:gone:1", type=1, text="deleted"),
        {"key": "agentKv:blob:1", "value": "a token"},
    ],
    "ItemTable": [{"key": "cursorAuth/accessToken", "value": "a token"}],
}  # fmt: skip


class Watched(Rows):
    """Tables that note which values were asked for."""

    def rows(self, table, columns, order, where=None):
        asked.append((table, tuple(columns), (where or {}).get("key")))
        return super().rows(table, columns, order, where or {})


asked: list[tuple[str, tuple[str, ...], Any]] = []


def test_of_the_editors_database_only_conversations_are_read() -> None:
    """Tokens lie beside them."""
    asked.clear()
    list(Cursor().plans(Watched(EDITOR)))
    assert {table for table, _, _ in asked} == {"cursorDiskKV"}
    values = {name for _, columns, name in asked if "value" in columns}
    assert {str(name).split(":")[0] for name in values} == {"composerData", "bubbleId"}


def test_a_conversation_of_the_editor() -> None:
    plans = {plan.session: plan for plan in Cursor().plans(Rows(EDITOR))}
    plan = plans["a"]
    assert_nothing_is_lost(plan)
    assert plan.labels == {"title": "Chat", "cwd": "/srv/p q"}
    assert [message["role"] for message in messages(plan)] == ["user", "assistant", "tool", "assistant", "assistant"]
    assert [entry.extra.get("failed") for entry in entries(plan) if (entry.message or {}).get("role") == "tool"] == [
        True
    ]
    assert entries(plan)[-1].extra == {
        "model": "gpt-5",
        "usage": {"input_tokens": 5, "output_tokens": 2},
        "source": entries(plan)[-1].extra["source"],
    }
    assert entries(plan)[1].extra["left_branch"]["message"]["content"] == "taken back"
    assert plans["b"].labels == {"part_of": "a"}
    assert [message["content"] for message in messages(plans["b"])] == ["sub", "done"]
    assert [finding.kind for finding in plans["gone"].findings] == ["deleted-session"]
    assert [message["content"] for message in messages(plans["gone"])] == ["deleted"]


def test_other_peoples_lines_are_not_taken() -> None:
    for value in (
        {"role": "user", "content": "hi"},
        {"role": "user", "message": {"role": "user", "content": "hi"}},
        {"type": "user", "message": {"content": []}},
    ):
        assert not Cursor().recognizes(head_of(Bytes(lines(value))))
    assert original(plan_of(Cursor(), *TRANSCRIPT)) == lines(*TRANSCRIPT)


def test_a_bubble_may_have_its_text_in_a_document_alone() -> None:
    """johnlindquist/cursor-history PR#3."""
    rich = json.dumps(
        {"root": {"children": [{"children": [{"text": "fix "}, {"text": "it"}]}, {"children": [{"text": "now"}]}]}}
    )
    tables = {"cursorDiskKV": [key("composerData:r", conversation=[{"type": 1, "text": "", "richText": rich}])]}
    (plan,) = Cursor().plans(Rows(tables))
    assert messages(plan) == [{"role": "user", "content": "fix it\nnow"}]


def test_only_conversations_that_changed_are_read_again() -> None:
    before = Cursor().session_stamps(Rows(EDITOR))
    more = {**EDITOR, "cursorDiskKV": [*EDITOR["cursorDiskKV"], key("bubbleId:a:5", type=1, text="And?")]}
    after = Cursor().session_stamps(Rows(more))
    assert [session for session in before if after[session] != before[session]] == ["a"]
    assert {plan.session for plan in Cursor().plans(Rows(EDITOR), skip={"a"})} == {"b", "gone"}
    assert Cursor().session_times(Rows(EDITOR)) == [(1754000000.0, 1754000000.0)] * 2
    assert Cursor().session_times(Rows(STORE)) == [(1754000000.0, 1754000000.0)]
    assert Cursor().session_stamps(Rows(STORE)) == {}
