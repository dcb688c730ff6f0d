"""Kimi Code's wire log: a reply is many lines; compactions, undone prompts and a cleared context are generations."""

from __future__ import annotations

import json
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
COUNTED = {"prompt_tokens": 12, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2}}
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
    assert reply.extra["usage"] == COUNTED
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


def test_what_is_known_of_a_session_beside_its_messages():
    """The version of its log, and of a message that nobody typed where it came from."""
    plan = plan_of(*SESSION)
    assert plan.version == "1.5"
    asked_by_user, injected = (e.extra for e in entries(plan) if e.message is not None and e.message["role"] == "user")
    assert not {"origin", "scaffolding"} & set(asked_by_user)
    assert (injected["origin"], injected["scaffolding"]) == ("injection", {"typed": ""})


@pytest.mark.parametrize(("said", "content"), [([{"type": "text", "text": "I look."}], "I look."), ([], None)])
def test_a_reply_that_was_appended_whole(said, content):
    """With its calls, it may have no text. Without either it has nothing that could be sent."""
    call = {"type": "function", "id": "c1", "name": "Bash", "arguments": '{"command": "ls"}'}
    reply = {"role": "assistant", "content": said, "toolCalls": [call]}
    function = {"name": "Bash", "arguments": '{"command": "ls"}'}
    assert messages(plan_of(META, line("context.append_message", message=reply))) == [
        {
            "role": "assistant",
            "content": content,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        }
    ]
    empty = line("context.append_message", message={"role": "assistant", "content": [], "toolCalls": []})
    assert messages(plan_of(META, empty)) == []


class InAFolder(Bytes):
    """With a ``state.json`` in its own folder, and another two folders above."""

    def beside(self, path):
        titles = {"state.json": "its own", "../../state.json": "the session's"}
        return b'{"title": "%s"}' % titles[path].encode() if path in titles else None


@pytest.mark.parametrize(
    ("name", "title"), [("s/agents/main/wire.jsonl", "the session's"), ("h/sessions/s/wire.jsonl", "its own")]
)
def test_where_the_title_is_looked_for(name, title):
    """The versions that have agents keep it in the session's folder, those before beside the log."""
    (plan,) = Kimi().plans(InAFolder(lines(*SESSION), name))
    assert plan.labels["title"] == title


OWN, FORK = ("session_4519c200-8375-4084-be88-8778d30c48b8", "session_5361425c-0e11-4ebb-8cc2-324e00a00a88")


class Beside(Bytes):
    """With the ``state.json`` that Kimi writes."""

    about: Any = None

    def beside(self, path):
        return json.dumps(self.about).encode() if path.endswith("state.json") and self.about else None


@pytest.mark.parametrize(
    ("name", "about", "session", "labels"),
    [
        (f"{OWN}/agents/main/wire.jsonl", {"title": "Fruits"}, OWN, {"title": "Fruits"}),
        (f"{FORK}/agents/main/wire.jsonl", {"forkedFrom": OWN}, FORK, {"forked_from": OWN}),
        (f"{OWN}/agents/main/wire.jsonl", {}, OWN, {}),
        (f"{OWN}/agents/agent-0/wire.jsonl", {"title": "Fruits"}, f"{OWN}/agent-0", {"part_of": OWN}),
        (f"sessions/{FORK[8:]}/wire.jsonl", {"custom_title": "Undo: Fruits"}, FORK[8:], {"title": "Undo: Fruits"}),
        (f"{OWN[8:]}/subagents/a1/wire.jsonl", {}, f"{OWN[8:]}/a1", {"part_of": OWN[8:]}),
    ],
)
def test_a_session_a_fork_and_a_helper_that_begin_alike(name, about, session, labels):
    """Kimi Code 2.1 and Kimi CLI 1.51 copy the lines into a fork; the old one also to undo a turn. Of the copies one was imported."""
    source = Beside(lines(*SESSION), name)
    source.about = about
    (plan,) = Kimi().plans(source)
    assert (plan.session, {**plan.labels, "cwd": "/home/me"}) == (session, {**labels, "cwd": "/home/me"})


def test_a_call_that_failed():
    """The text of the result says it, and so does the record."""
    failed = loop("tool.result", toolCallId="c1", result={"output": "not there", "isError": True})
    plan = plan_of(META, BEGIN, CALL, failed, END)
    said = [(entry.message["content"], entry.extra.get("failed")) for entry in entries(plan) if entry.message]
    assert ("Error: not there", True) in said


def test_a_log_whose_first_line_a_crash_tore():
    """It is recognized by what only this program writes. An ordinary event is not that."""
    assert Kimi().recognizes(head_of(Bytes(b'{"type":"metad\n' + lines(asked("List")))))
    assert not Kimi().recognizes(head_of(Bytes(lines(CONFIG, {"type": "metadata"}))))


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
    assert entries(plan)[2].extra["usage"] == COUNTED
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


PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
SHOWN = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE}}]}
OTHER_CALL = loop("tool.call", stepUuid="s1", toolCallId="c2", name="Bash", args={})


def result_of(call: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return loop("tool.result", toolCallId=call, result={"output": list(parts)})


PICTURED = result_of("c1", {"type": "text", "text": "<image>"}, {"type": "image_url", "imageUrl": {"url": PICTURE}})
FILMED = result_of("c2", {"type": "text", "text": "a film"}, {"type": "video_url", "videoUrl": {"url": "ms://film"}})


def test_a_picture_in_a_result_is_the_users_behind_the_results():
    """It was base64 in the text of the result. Between a call's results nobody may speak, and a line keeps no picture twice."""
    plan = plan_of(META, CONFIG, asked("Look"), BEGIN, SAY, CALL, OTHER_CALL, END, PICTURED, FILMED, *REPLY)
    assert messages(plan)[2:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "<image>"},
        {"role": "tool", "tool_call_id": "c2", "content": "a film"},
        SHOWN,
        {"role": "assistant", "content": "Done"},
    ]
    assert PICTURE not in str([entry.extra for entry in entries(plan)])
    assert [(loss.kind, loss.count) for loss in plan.losses] == [("media", 1)]


def test_a_picture_in_a_result_of_the_python_version():
    value = {"is_error": False, "output": [{"type": "image_url", "image_url": {"url": PICTURE, "id": None}}]}
    plan = plan_of(*PYTHON[:7], old("ToolResult", tool_call_id="c1", return_value=value), *PYTHON[8:])
    assert messages(plan)[2:4] == [{"role": "tool", "tool_call_id": "c1", "content": ""}, SHOWN]


def test_a_sound_or_a_video_is_a_loss():
    """Of the user, of the model: chat completions have no place for it."""
    film, sound = ({"type": kind, kind: {"url": "ms://1"}} for kind in ("video_url", "audio_url"))
    said = line("context.append_message", message={"role": "user", "content": [film, {"type": "text", "text": "See"}]})
    plan = plan_of(META, said, BEGIN, loop("content.part", stepUuid="s1", part=sound), SAY, END)
    assert [message["content"] for message in messages(plan)] == ["See", "I look."]
    assert [(loss.kind, loss.count) for loss in plan.losses] == [("media", 2)]
    assert plan_of(*SESSION).losses == ()


def test_what_a_result_shows_is_no_message_that_kimi_counts():
    """Neither for an undo, which counts the user's prompts, nor for a compaction of the versions before, which counts messages."""
    looked = [META, CONFIG, asked("Look"), BEGIN, CALL, END, PICTURED, *REPLY, asked("More")]
    undone = plan_of(*looked, line("context.undo", count=2), asked("Else"))
    assert [message["content"] for message in messages(undone)] == ["Else"]
    for gone, kept in ((2, ["S", "<image>", SHOWN["content"], "Done", "More"]), (3, ["S", "Done", "More"]), (9, ["S"])):
        plan = plan_of(*looked, line("context.apply_compaction", summary="S", compactedCount=gone))
        assert [message["content"] for message in messages(plan)] == kept


ANEW = [
    line("context.clear"),
    line("context.undo", count=1),
    line("context.apply_compaction", summary="S", compactedCount=2),
]


@given(st.lists(st.sampled_from([*SESSION, *ANEW, OTHER_CALL, PICTURED, FILMED]), max_size=20), st.integers(0, 300))
def test_any_order_of_lines_cut_anywhere(steps, cut):
    """Each whole line is accounted for, and the bytes come out again."""
    data = lines(META, *steps)
    source = Bytes(data[: max(len(lines(META)), len(data) - cut)])
    (plan,) = Kimi().plans(source)
    assert_nothing_is_lost(plan)
    assert original(plan) == source.data


@few_or_many_seeds
def test_it_keeps_the_contract_of_formats(seeds):
    pictured = lines(META, BEGIN, CALL, OTHER_CALL, END, PICTURED, asked("And"), FILMED, *REPLY, ANEW[2])
    check_format(Kimi(), [lines(*SESSION, ANEW[2], *SESSION[3:], ANEW[1]), lines(*PYTHON), pictured], seeds=seeds)
