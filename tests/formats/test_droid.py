"""Factory Droid: lines with Claude's blocks that name their parents. The traps are those of the files that 0.225.2 wrote."""

from __future__ import annotations

from typing import Any

from tests.formats.of_others import a_handful_or_many_seeds, entries, lines, messages, plan_of
from transcript_store.formats._droid import Droid
from transcript_store.testing import check_format

AT = "2026-11-27T09:54:36.903Z"
START = {
    "type": "session_start",
    "id": "d1",
    "title": "Fix the pears",
    "owner": "unknown",
    "version": 2,
    "cwd": "/home/ada/garden",
}


def line(number: str, parent: str | None, role: str, *blocks: Any, **members: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    above = {} if parent is None else {"parentId": parent}
    return {
        "type": "message",
        "id": number,
        **above,
        "timestamp": AT,
        "message": {"role": role, "content": content, **members},
    }


def thought(signature: str, by: str) -> dict[str, Any]:
    return {"type": "thinking", "signature": signature, "signatureProvider": by, "durationMs": 1, "thinking": "Hm."}


def session(
    by: str = "generic-chat-completion-api", signature: str = "reasoning_content", model: str = "custom:m"
) -> list[dict[str, Any]]:
    calls = [{"type": "tool_use", "id": number, "name": "Read", "input": {"path": number}} for number in ("c1", "c2")]
    results = [
        {"type": "tool_result", "tool_use_id": "c1", "is_error": False, "content": "apples: 3"},
        {"type": "tool_result", "tool_use_id": "c2", "is_error": True, "content": "Error: ENOENT"},
    ]
    return [
        START,
        line("context-u1", None, "user", "<system-reminder>\nTools.\n</system-reminder>"),
        line(
            "u1",
            "context-u1",
            "user",
            "<system-reminder>\nBe kind.\n</system-reminder>\n\nFix the pears.",
            interactionMode="auto",
        ),
        line(
            "a1",
            "u1",
            "assistant",
            thought(signature, by),
            "Two calls.",
            *calls,
            modelId=model,
            chatCompletionReasoningContent="Hm.",
        ),
        line("r1", "a1", "user", *results),
        line("a2", "r1", "assistant", "Done.", modelId=model),
        {"type": "agent_turn_outcome", "turnId": "u1", "reason": "completed", "resultKind": "text"},
    ]


@a_handful_or_many_seeds
def test_it_keeps_the_contract(seeds: int) -> None:
    check_format(Droid(), [lines(*session()), lines(*session(), *COMPACTED), lines(*PRINTED)], seeds=seeds)


def test_the_form_is_that_of_who_answered_and_failures_are_told() -> None:
    plan = plan_of(Droid(), *session())
    assert (plan.provider, plan.model) == ("openai-compatible", "custom:m")
    reply = messages(plan)[2]
    assert reply["reasoning_content"] == "Hm.", "thinking stands twice in the line, and once in the message"
    assert [made["id"] for made in reply["tool_calls"]] == ["c1", "c2"]
    assert [entry.extra.get("failed") for entry in entries(plan) if (entry.message or {}).get("role") == "tool"] == [
        None,
        True,
    ]
    plan = plan_of(Droid(), *session("anthropic", "c2ln", "custom:s"))
    assert plan.provider == "claude"
    assert messages(plan)[2]["content"][0] == {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    assert messages(plan)[3]["content"][1]["is_error"] is True


def test_what_the_program_tells_of_its_surroundings_is_no_prompt() -> None:
    """It is a message of the user's, and the parent of the prompt."""
    plan = plan_of(Droid(), *session())
    marks = [entry.extra.get("scaffolding") for entry in entries(plan) if (entry.message or {}).get("role") == "user"]
    assert marks == [True, {"typed": "Fix the pears."}]
    assert plan.labels == {"title": "Fix the pears", "cwd": "/home/ada/garden"}


def test_a_turn_that_was_stopped_is_as_it_is() -> None:
    assert [message["role"] for message in messages(plan_of(Droid(), *session()[:4]))] == ["user", "user", "assistant"]
    assert [message["role"] for message in messages(plan_of(Droid(), *session()[:3]))] == ["user", "user"]


COMPACTED = [
    line("u2", "a2", "user", "And the plums?"),
    {
        "type": "compaction_state",
        "id": "c",
        "timestamp": AT,
        "summaryText": "Pears are fixed.",
        "anchorMessage": {"id": "a2"},
    },
    line("a3", "u2", "assistant", "Plums too."),
]


def test_a_compaction_begins_a_generation_with_what_stood_behind_its_anchor() -> None:
    plan = plan_of(Droid(), *session(), *COMPACTED)
    assert [message["content"] for message in messages(plan)] == ["Pears are fixed.", "And the plums?", "Plums too."]
    assert len(messages(plan, 0)) == 7
    assert entries(plan)[0].extra["compaction"] is True


def test_a_branch_that_was_left_is_kept() -> None:
    plan = plan_of(Droid(), *session(), line("u2", "a1", "user", "No, stop."))
    assert [finding.kind for finding in plan.findings] == ["left-branch"]
    assert messages(plan)[-1]["content"] == "No, stop."


def test_a_sub_agent_names_who_called_it() -> None:
    plan = plan_of(Droid(), {**START, "callingSessionId": "d0", "callingToolUseId": "c1"}, *session()[1:])
    assert plan.labels["part_of"] == "d0"


PRINTED = [
    {
        "type": "system",
        "subtype": "init",
        "sessionId": "s",
        "timestamp": 1767812640310,
        "model": "m",
        "cwd": "/tmp",
        "id": "s1",
    },
    {"type": "message", "sessionId": "s", "timestamp": 1767812641000, "role": "user", "text": "List files", "id": "m1"},
    {
        "type": "tool_call",
        "sessionId": "s",
        "id": "c1",
        "toolId": "Execute",
        "toolName": "Execute",
        "parameters": {"command": "ls"},
    },
    {
        "type": "tool_result",
        "sessionId": "s",
        "id": "c1",
        "toolId": "Execute",
        "isError": True,
        "value": "no such directory",
    },
    {"type": "completion", "sessionId": "s", "timestamp": 1767812644000, "finalText": "Done", "id": "end"},
]


def test_what_the_program_printed_is_read() -> None:
    plan = plan_of(Droid(), *PRINTED)
    assert (plan.session, [message["role"] for message in messages(plan)]) == (
        "s",
        ["user", "assistant", "tool", "assistant"],
    )
    assert entries(plan)[1].at == "2026-01-07T19:04:01Z"
