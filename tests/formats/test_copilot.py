"""GitHub Copilot CLI's events, in the forms of 1.0.102, and what its ``sessions import`` takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.formats.of_others import Bytes, assert_nothing_is_lost, entries, few_or_many_seeds, lines, messages, original
from tests.kit.cases import for_each
from transcript_store.formats import SessionPlan, head_of
from transcript_store.formats._copilot import Copilot, CopilotWriter
from transcript_store.testing import check_format

SESSION = "cbf2f7fa-fa36-506d-8180-52ef9cb07052"
SENT = "<current_datetime>2026-11-27</current_datetime>\n\nRead both."


def event(number: int, kind: str, **data: Any) -> dict[str, Any]:
    at = f"2026-11-27T09:56:{number:02}.000Z"
    agent = {"agentId": data.pop("agent")} if "agent" in data else {}
    return {"type": kind, "data": data, "id": f"e{number}", "timestamp": at, "parentId": f"e{number - 1}", **agent}


CONTEXT = {"cwd": "/home/ada/project", "branch": "main"}
START = event(
    1, "session.start", sessionId=SESSION, producer="copilot-agent", copilotVersion="1.0.102", context=CONTEXT
)
USER = event(2, "user.message", content="Read both.", transformedContent=SENT)
USAGE = {
    "model": "m",
    "inputTokens": 120,
    "outputTokens": 34,
    "cacheReadTokens": 20,
    "apiCallId": "r1",
    "finishReason": "x",
}


def request(number: str, **arguments: Any) -> dict[str, Any]:
    return {"toolCallId": number, "name": "view", "arguments": arguments, "type": "function"}


def reply(number: int, content: str = "", *requests: dict[str, Any], **more: Any) -> dict[str, Any]:
    return event(number, "assistant.message", model="m", content=content, toolRequests=list(requests), **more)


def done(number: int, call: str, said: str | None, **more: Any) -> dict[str, Any]:
    result = {"success": True, "result": {"content": said}} if said is not None else {"success": False, **more}
    return event(number, "tool.execution_complete", toolCallId=call, **result)


def plans_of(*events: dict[str, Any]) -> list[SessionPlan]:
    source = Bytes(lines(*events))
    assert Copilot().recognizes(head_of(source))
    plans = list(Copilot().plans(source))
    for plan in plans:
        assert_nothing_is_lost(plan)
    assert original(plans[0]) == source.data
    return plans


def test_calls_and_results_in_whatever_order_they_end() -> None:
    (plan,) = plans_of(
        START,
        USER,
        event(3, "session.usage_record", usage=USAGE),
        reply(4, "I look.", request("c1", path="a"), request("c2", path="b"), reasoningText="Both.", apiCallId="r1"),
        event(5, "tool.execution_start", toolCallId="c1"),
        done(6, "c2", "two"),
        done(7, "c1", None, error={"message": "Path does not exist", "code": "failure"}),
        reply(8, "Done."),
    )
    said = messages(plan)
    assert [message["role"] for message in said] == ["user", "assistant", "tool", "tool", "assistant"]
    assert said[0]["content"] == SENT
    assert said[1]["reasoning_content"] == "Both."
    assert [(m["tool_call_id"], m["content"]) for m in said[2:4]] == [("c2", "two"), ("c1", "Path does not exist")]
    of = {entry.message["role"]: entry.extra for entry in entries(plan)[:-1] if entry.message is not None}
    assert of["user"]["scaffolding"] == {"typed": "Read both."}
    assert of["tool"]["failed"] is True
    assert of["assistant"]["usage"] == {
        "prompt_tokens": 120,
        "completion_tokens": 34,
        "prompt_tokens_details": {"cached_tokens": 20},
    }
    assert (plan.session, plan.version, plan.model, dict(plan.labels)) == (
        *(SESSION, "1.0.102", "m"),
        {"cwd": "/home/ada/project", "git_branch": "main"},
    )


def test_over_the_messages_api_thinking_is_signed_and_results_are_one_message() -> None:
    block = {"type": "thinking", "thinking": "Both.", "signature": "c2ln"}
    thought = {"provider": "anthropic-messages", "blocks": [block]}
    (plan,) = plans_of(
        START,
        USER,
        reply(3, "", request("c1"), request("c2"), reasoningText="Both.", reasoningBlocks=thought),
        done(4, "c1", "one"),
        event(5, "hook.end"),
        done(6, "c2", None, error={"message": "no"}),
        event(7, "session.usage_record", usage={"apiEndpoint": "/v1/messages", "apiCallId": "r2"}),
        reply(8, "Done.", apiCallId="r2"),
    )
    assert plan.provider == "claude"
    assert messages(plan)[1]["content"][0] == block
    assert [(one["tool_use_id"], one.get("is_error", False)) for one in messages(plan)[2]["content"]] == [
        ("c1", False),
        ("c2", True),
    ]


def test_what_the_user_says_while_tools_are_at_work_stands_behind_their_results() -> None:
    (plan,) = plans_of(
        START, USER, reply(3, "", request("c1")), event(4, "user.message", content="Wait"), done(5, "c1", "x")
    )
    assert [message["role"] for message in messages(plan)] == ["user", "assistant", "tool", "user"]


def test_a_sub_agent_is_a_conversation_of_its_own() -> None:
    main, part = plans_of(
        START,
        USER,
        reply(3, "", request("c1")),
        event(4, "subagent.started", toolCallId="c1", agentDisplayName="line-counter", agent="a1"),
        event(5, "user.message", content="Count.", agent="a1", source="agent-x"),
        reply(6, "", request("c9"), agent="a1", parentToolCallId="c1"),
        event(7, "tool.execution_complete", toolCallId="c9", success=True, result={"content": "3"}, agent="a1"),
        reply(8, "Three lines.", agent="a1", parentToolCallId="c1"),
        done(9, "c1", "Three lines."),
        reply(10, "It says three."),
    )
    assert [m["content"] for m in messages(main)] == [SENT, None, "Three lines.", "It says three."]
    assert [m["role"] for m in messages(part)] == ["user", "assistant", "tool", "assistant"]
    assert (part.is_part, part.labels["part_of"], part.labels["title"]) == (True, SESSION, "line-counter")
    assert part.session != main.session
    assert "scaffolding" not in entries(part)[1].extra, "what another agent asks of it is its prompt"


def test_a_picture_stands_before_the_message_that_names_it() -> None:
    asset = event(2, "session.binary_asset", assetId="sha256:1", mimeType="image/png", data="AAAA")
    attached = {"type": "file", "path": "/home/ada/x.png", "assetId": "sha256:1", "mimeType": "image/png"}
    blob = {"type": "blob", "mimeType": "image/png", "data": "BBBB"}
    unknown = {"type": "file", "path": "/home/ada/y.png", "mimeType": "image/png"}
    (plan,) = plans_of(START, asset, event(3, "user.message", content="Look", attachments=[attached, blob, unknown]))
    content = messages(plan)[0]["content"]
    assert [part["image_url"]["url"][-4:] for part in content[1:3]] == ["AAAA", "BBBB"]
    assert content[3] == {"type": "text", "text": "[image/png: y.png]"}


def test_a_compaction_begins_a_generation() -> None:
    compaction = event(4, "session.compaction_complete", success=True, summaryContent="<summary>Both.</summary>")
    (plan,) = plans_of(START, USER, reply(3, "Done."), compaction, event(5, "user.message", content="Go on"))
    assert [m["content"] for m in messages(plan, 0)] == [SENT, "Done."]
    assert [m["content"] for m in messages(plan, 1)] == ["<summary>Both.</summary>", "Go on"]
    assert entries(plan, 1)[0].extra["compaction"] is True


@pytest.mark.parametrize("ends", [(), (event(4, "tool.execution_start", toolCallId="c1"),)])
def test_a_session_that_was_killed_just_ends(ends: tuple[dict[str, Any], ...]) -> None:
    (plan,) = plans_of(START, USER, reply(3, "", request("c1")), *ends)
    assert [message["role"] for message in messages(plan)] == ["user", "assistant"]


@for_each(
    "written, title",
    [
        ("name: Notes, corrected\nuser_named: true\n", "Notes, corrected"),
        ('name: "Notes: \\"corrected\\""\n', 'Notes: "corrected"'),
        ("name: 'It''s done'\n", "It's done"),
        ("name: |-\n  Notes\n  corrected\nuser_named: true\n", "Notes corrected"),
        ("name: Read bo…\nuser_named: false\n", None),
        ("cwd: /x\n", None),
    ],
)
def test_the_name_stands_beside_the_events(written: str, title: str | None) -> None:
    class Beside(Bytes):
        def beside(self, path: str, *, longest: int = 0) -> bytes | None:
            return written.encode() if path == "workspace.yaml" else None

    (plan,) = Copilot().plans(Beside(lines(START, USER)))
    assert plan.labels.get("title") == title


def test_early_versions_named_the_call_of_a_sub_agent_and_gave_arguments_as_text() -> None:
    called = event(
        3, "assistant.message", content="", toolRequests=[{"toolCallId": "c1", "name": "shell", "arguments": '{"a":1}'}]
    )
    inner = event(4, "assistant.message", content="Inner", toolRequests=[], parentToolCallId="c1")
    main, part = plans_of(START, USER, called, inner, done(5, "c1", "ok"))
    assert [m["role"] for m in messages(main)] == ["user", "assistant", "tool"]
    assert main.provider == "openai-compatible"
    assert [m["content"] for m in messages(part)] == ["Inner"]


def interchange() -> bytes:
    about = {"timestamp": "2026-01-02T03:04:05Z", "turnId": "t1"}
    return lines(
        {"type": "session", "version": 1, "externalId": "made-1", "createdAt": "2026-01-02T03:04:05Z", "title": "Made"},
        {"type": "message", "id": "m1", "role": "user", "content": [{"type": "text", "text": "Read it."}], **about},
        {"type": "message", "id": "m2", "role": "assistant", "content": [{"type": "text", "text": "I do."}], **about},
        {"type": "tool-call", "id": "c1", "name": "view", "arguments": {"path": "x"}, **about},
        {"type": "tool-result", "id": "r1", "toolCallId": "c1", "success": True, "content": "three lines", **about},
    )


def test_files_for_its_import_are_read_too() -> None:
    (plan,) = Copilot().plans(Bytes(interchange()))
    assert [message["role"] for message in messages(plan)] == ["user", "assistant", "tool"]
    assert messages(plan)[1]["tool_calls"][0]["id"] == "c1"
    assert (plan.session, plan.labels["title"]) == ("made-1", "Made")


DOCUMENT = {
    "sessionId": "hhh",
    "startTime": "2025-10-08T21:10:16.398Z",
    "chatMessages": [
        {"role": "system", "content": "You are the Copilot CLI."},
        {"role": "user", "content": "Add a server"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "view", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "nothing there"},
        {"role": "assistant", "content": "Done"},
        {"role": "assistant", "content": ""},
    ],
    "timeline": [{"type": "user", "text": "Add a server"}],
}


@pytest.mark.parametrize("indent", [None, 2])
def test_the_documents_of_2025(indent: int | None) -> None:
    source = Bytes(json.dumps(DOCUMENT, indent=indent).encode())
    assert Copilot().recognizes(head_of(source))
    (plan,) = Copilot().plans(source)
    assert (plan.session, plan.system_prompt, plan.provider) == ("hhh", "You are the Copilot CLI.", "openai-compatible")
    assert messages(plan) == DOCUMENT["chatMessages"][1:5]
    assert original(plan) == source.data


def test_lines_that_a_crash_fused_or_tore() -> None:
    """Public reports: github/copilot-cli#2490, #2209, #2649, #4098: two objects on a line, NUL bytes at the end, U+2028 in a text."""
    whole = lines(START, USER, reply(3, "One\u2028line"))
    fused = whole + lines(done(4, "c1", "x")).rstrip(b"\n") + lines(reply(5, "Fused"))
    source = Bytes(fused + b"\x00" * 40 + lines(event(6, "user.message", content="Behind NUL")) + b'{"type":"user.mess')
    (plan,) = Copilot().plans(source)
    assert_nothing_is_lost(plan)
    assert [m["content"] for m in messages(plan)] == [SENT, "One\u2028line", "x", "Fused", "Behind NUL"]
    assert original(plan) + plan.tail == source.data or original(plan) == source.data
    assert {finding.kind for finding in plan.findings} == {"glued", "nul", "torn"}


def test_a_torn_event_before_a_whole_one_and_half_a_character() -> None:
    """Public reports: github/copilot-cli#4098 (a resumed session writes behind a torn line), github/app#945 (half an emoji)."""
    torn = lines(reply(3, "Torn in the middle of"))[:-30]
    half = lines(reply(4, "Half KEY here")).replace(b"KEY", b"\\ud83d")
    source = Bytes(lines(START, USER) + torn + lines(reply(3, "Whole")) + half)
    (plan,) = Copilot().plans(source)
    assert_nothing_is_lost(plan)
    assert [m["content"] for m in messages(plan)] == [SENT, "Whole", "Half \ufffd here"]
    assert original(plan) == source.data
    assert {finding.kind for finding in plan.findings} == {"glued", "half-character"}


@few_or_many_seeds
def test_the_contract_of_a_format(seeds: int) -> None:
    sample = lines(START, USER, reply(3, "I look.", request("c1", path="a")), done(4, "c1", "one"), reply(5, "Done."))
    check_format(Copilot(), [sample, interchange(), json.dumps(DOCUMENT).encode()], CopilotWriter(), seeds=seeds)
