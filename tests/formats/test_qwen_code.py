"""Qwen Code: lines that name their parents and have Gemini's contents. The traps are those of the files that 0.24.4 wrote."""

from __future__ import annotations

from typing import Any

from tests.formats.of_others import Bytes, a_handful_or_many_seeds, entries, lines, messages, original, plan_of
from transcript_store.formats._qwen_code import QwenCode
from transcript_store.testing import check_format

SESSION = "02ede71a-bf7b-5436-9320-5c6cca3c57d2"


def line(number: str, parent: str | None, kind: str = "user", *parts: Any, **members: Any) -> dict[str, Any]:
    role = "model" if kind == "assistant" else "user"
    said = [{"text": part} if isinstance(part, str) else part for part in parts]
    about = {
        "uuid": number,
        "parentUuid": parent,
        "sessionId": SESSION,
        "timestamp": f"2026-11-27T09:50:0{number}.000Z",
    }
    message = {"message": {"role": role, "parts": said}} if parts else {}
    return {
        **about,
        "type": kind,
        "cwd": "/home/ada/project",
        "version": "0.24.4",
        "gitBranch": "main",
        **message,
        **members,
    }


def call(number: str) -> dict[str, Any]:
    return {"functionCall": {"id": number, "name": "read_file", "args": {"file_path": number}}}


def result(number: str, parent: str, of: str, **response: str) -> dict[str, Any]:
    answer = {"functionResponse": {"id": of, "name": "read_file", "response": response}}
    return line(number, parent, "tool_result", answer, toolCallResult={"callId": of, "status": "success"})


USAGE = {"promptTokenCount": 120, "candidatesTokenCount": 34, "thoughtsTokenCount": 9, "totalTokenCount": 154}
TURN = [
    line("1", None, "user", "Read both."),
    line(
        "2", "1", "system", subtype="ui_telemetry", systemPayload={"uiEvent": {"event.name": "qwen-code.api_response"}}
    ),
    line(
        "3", "2", "assistant", {"text": "Hm.", "thought": True}, call("a"), call("b"), model="m1", usageMetadata=USAGE
    ),
    line("4", "3", "system", subtype="ui_telemetry", systemPayload={"uiEvent": {"event.name": "qwen-code.tool_call"}}),
    result("5", "4", "a", output="first"),
    result("6", "5", "b", error="File not found"),
    line("7", "6", "assistant", "Done.", model="m2"),
]


@a_handful_or_many_seeds
def test_it_keeps_the_contract(seeds: int) -> None:
    check_format(QwenCode(), [lines(*TURN), lines(*TURN, *REWOUND)], seeds=seeds)


def test_the_results_of_a_reply_are_one_content_and_telemetry_says_nothing() -> None:
    plan = plan_of(QwenCode(), *TURN)
    asked, reply, answers, done = messages(plan)
    assert [part["functionResponse"]["id"] for part in answers["parts"]] == ["a", "b"]
    assert answers["parts"][1]["functionResponse"]["response"] == {"error": "File not found"}
    assert (asked["parts"], reply["parts"][0]["thought"], done["parts"]) == (
        [{"text": "Read both."}],
        True,
        [{"text": "Done."}],
    )
    assert [entry.extra.get("model") for entry in entries(plan) if entry.message] == [None, "m1", None, "m2"]
    assert (plan.model, plan.labels) == ("m2", {"cwd": "/home/ada/project", "git_branch": "main"})


def test_thoughts_are_counted_once() -> None:
    """Over other APIs than Gemini's the candidates have the thoughts too, and the sum tells."""
    counted = [entry.extra["usage"] for entry in entries(plan_of(QwenCode(), *TURN)) if "usage" in entry.extra]
    assert [usage["candidatesTokenCount"] for usage in counted] == [25]
    apart = {**USAGE, "totalTokenCount": 163}
    plan = plan_of(QwenCode(), TURN[0], line("2", "1", "assistant", "Hi", usageMetadata=apart))
    assert entries(plan)[1].extra["usage"] == apart


REWOUND = [
    line("8", "7", "system", subtype="custom_title", systemPayload={"customTitle": "Left", "titleSource": "manual"}),
    line("9", "2", "system", subtype="rewind", systemPayload={"targetUuid": "1"}),
    line("A", "9", "user", "Only the first."),
    line("B", "A", "system", subtype="custom_title", systemPayload={"customTitle": "Kept", "titleSource": "auto"}),
]


def test_a_rewind_leaves_a_branch_with_its_title() -> None:
    plan = plan_of(QwenCode(), *TURN, *REWOUND)
    assert [message["parts"][0]["text"] for message in messages(plan)] == ["Read both.", "Only the first."]
    assert plan.labels["title"] == "Kept"
    left = [entry.extra["left_branch"]["message"]["role"] for entry in entries(plan) if "left_branch" in entry.extra]
    assert left == ["model", "user", "user", "model"]
    assert [finding.kind for finding in plan.findings] == ["left-branch"]


def test_a_compaction_begins_a_generation_with_what_it_kept() -> None:
    history = [
        {"role": "user", "parts": [{"text": "<summary>Both were read.</summary>"}]},
        {"role": "model", "parts": [{"text": "Got it."}]},
        {"role": "user", "parts": [{"text": "Recently accessed file"}]},
        {"role": "user", "parts": [{"text": "Read both."}]},
    ]
    compacted = line(
        "8", "7", "system", subtype="chat_compression", systemPayload={"info": {}, "compressedHistory": history}
    )
    plan = plan_of(QwenCode(), *TURN, compacted, line("9", "8", "user", "And?"))
    assert [len(messages(plan, number)) for number in (0, 1)] == [4, 5]
    assert messages(plan)[:4] == history
    marks = [entry.extra.get("scaffolding") for entry in entries(plan)]
    assert marks == [{"typed": ""}, None, {"typed": ""}, None, None], "what the user had said is the user's"
    assert entries(plan)[0].extra["compaction"] is True


def test_a_compaction_that_did_not_pay_is_no_generation() -> None:
    command = line("8", "7", "system", subtype="slash_command", systemPayload={"rawCommand": "/compress"})
    assert len(plan_of(QwenCode(), *TURN, command).generations) == 1


def test_lines_of_one_uuid_are_one_message_and_thoughts_begin_the_reply_behind_them() -> None:
    asked = line("1", None, "user", "Read.", agentId="x-1", isSidechain=True)
    thought = line("2", "1", "assistant", {"text": "Hm.", "thought": True}, isSidechain=True, agentId="x-1")
    plan = plan_of(QwenCode(), asked, thought, line("3", "2", "assistant", call("a"), isSidechain=True, agentId="x-1"))
    assert [len(message["parts"]) for message in messages(plan)] == [1, 2]
    assert (plan.session, plan.labels["part_of"]) == (f"{SESSION}/agent-x-1", SESSION)
    again = plan_of(QwenCode(), asked, thought, {**line("2", "1", "assistant", "Text"), "uuid": "2"})
    assert [len(message["parts"]) for message in messages(again)] == [1, 2]


def test_a_fork_says_whose_it_is() -> None:
    forked = [
        {**one, "sessionId": "fork", "forkedFrom": {"sessionId": SESSION, "messageUuid": one["uuid"]}} for one in TURN
    ]
    plan = plan_of(QwenCode(), *forked)
    assert (plan.session, plan.labels["forked_from"]) == ("fork", SESSION)


def test_an_interrupted_session_is_imported_as_it_is() -> None:
    """Killed in a tool: the call, and no result is made up. Ctrl-C: what was written of the reply, without usage."""
    plan = plan_of(QwenCode(), *TURN[:3])
    assert [message["role"] for message in messages(plan)] == ["user", "model"]
    plan = plan_of(QwenCode(), TURN[0], line("2", "1", "assistant", "Once upon", model="m1"))
    assert messages(plan)[-1]["parts"] == [{"text": "Once upon"}]


def test_what_the_program_added_to_a_prompt_is_its_own() -> None:
    hook = "<qwen:user-prompt-submit-context>\nA hook.\n</qwen:user-prompt-submit-context>"
    files = ["Look @a.txt", "\n--- Content from referenced files ---", "\nContent of a.txt", "\n--- End of content ---"]
    plan = plan_of(
        QwenCode(),
        line("1", None, "user", "Look.", hook, systemPayload={"displayText": "Look."}),
        line("2", "1", "user", *files),
        line("3", "2", "user", "A task ended.", subtype="notification", systemPayload={"displayText": "A task ended."}),
    )
    marks = [entry.extra["scaffolding"]["typed"] for entry in entries(plan)]
    assert marks == ["Look.", "Look @a.txt", ""]


def test_a_session_without_a_message_is_one() -> None:
    source = Bytes(lines(line("1", None, "system", subtype="slash_command", systemPayload={"rawCommand": "/help"})))
    (plan,) = QwenCode().plans(source)
    assert (plan.provider, messages(plan), original(plan)) == (None, [], source.data)
