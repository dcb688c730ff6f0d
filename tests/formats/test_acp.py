"""Logs of the Agent Client Protocol, as Grok Build keeps them. Made here from the protocol and Grok's sources; it was not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.formats.of_others import few_or_many_seeds, lines
from tests.formats.of_programs import READER, plan_of_bytes, said
from tests.importing.helpers import imported
from transcript_store import ConversationLibrary
from transcript_store._json.replies import cache_reads_in
from transcript_store.testing import check_format


def update(second: int, of: str, method: str = "session/update", **more: Any) -> dict[str, Any]:
    params = {"sessionId": "s-1", "update": {"sessionUpdate": of, **more}}
    return {"timestamp": 1795773000 + second, "method": method, "params": params}


def chunk(second: int, who: str, text: str, **more: Any) -> dict[str, Any]:
    return update(second, f"{who}_chunk", content={"type": "text", "text": text}, **more)


def asked(second: int, text: str, number: int) -> dict[str, Any]:
    return chunk(second, "user_message", text, _meta={"promptIndex": number})


def call(second: int, id: str, of: str = "tool_call_update", **more: Any) -> dict[str, Any]:
    return update(second, of, toolCallId=id, **more)


UPDATES = [
    asked(1, "What is in ", 0),
    chunk(2, "user_message", "the notes?"),
    chunk(3, "agent_thought", "I "),
    chunk(4, "agent_thought", "look."),
    chunk(5, "agent_message", "Let me "),
    chunk(6, "agent_message", "look."),
    call(7, "c1", "tool_call", title="Read", kind="read", status="pending"),
    call(8, "c2", "tool_call", title="bash", kind="execute", rawInput={"command": "wc"}),
    call(9, "c1", status="in_progress", rawInput={"path": "notes.txt"}),
    call(10, "c2", status="failed", rawOutput={"error": "no such file"}),
    call(11, "c1", status="completed", content=[{"type": "content", "content": {"type": "text", "text": "apples"}}]),
    chunk(12, "agent_message", "Apples."),
    update(
        13,
        "turn_completed",
        "_x.ai/session/update",
        stop_reason="end_turn",
        usage={"inputTokens": 90, "outputTokens": 9},
    ),
]
SAID = [
    "user: What is in the notes?",
    "assistant: (I look.) Let me look. Read#c1{'path': 'notes.txt'} bash#c2{'command': 'wc'}",
    '#c2 failed: {"error": "no such file"}',
    "#c1: apples",
    "assistant: Apples.",
]
REWOUND = [
    *UPDATES,
    asked(14, "And the plums?", 1),
    chunk(15, "agent_message", "None."),
    update(16, "rewind_marker", "_x.ai/session/update", target_prompt_index=1),
    asked(17, "And the nuts?", 1),
    chunk(18, "agent_message", "None either."),
]


@few_or_many_seeds
def test_the_contract(seeds):
    check_format(READER["acp"], [lines(*REWOUND)], seeds=seeds // 2)


def test_chunks_and_calls_are_messages():
    plan = plan_of_bytes("acp", lines(*UPDATES))
    assert (plan.session, said(plan)) == ("s-1", SAID)
    extras = [entry.extra for entry in plan.generations[0]() if "usage" in entry.extra]
    assert [(one["usage"], one["stop_reason"]) for one in extras] == [
        ({"prompt_tokens": 90, "completion_tokens": 9}, "end_turn")
    ]


def test_each_reply_of_grok_has_the_model_that_its_prompt_names():
    """Grok Build 1.0.41: with two models, each reply had none; the arguments were Grok's own reading; cached tokens were left out."""
    usage = {"inputTokens": 90, "outputTokens": 9, "cachedReadTokens": 20}
    plan = plan_of_bytes(
        "acp",
        lines(
            chunk(1, "user_message", "Look.", _meta={"promptIndex": 0, "modelId": "large"}),
            call(2, "c1", "tool_call", title="read_file", rawInput={"target_file": "a"}),
            call(3, "c1", rawInput={"variant": "ReadFile", "target_file": "/a", "limit": None}),
            call(4, "c1", status="completed", content=[{"type": "content", "content": {"type": "text", "text": "x"}}]),
            chunk(5, "agent_message", "Done."),
            update(6, "turn_completed", "_x.ai/session/update", usage=usage),
            chunk(7, "user_message", "Again.", _meta={"promptIndex": 1, "modelId": "small"}),
            chunk(8, "agent_message", "Done again."),
        ),
    )
    assert said(plan)[1] == "assistant: read_file#c1{'target_file': 'a'}"
    replies = [one for one in plan.generations[-1]() if one.message is not None and one.message["role"] == "assistant"]
    assert [one.extra["model"] for one in replies] == ["large", "large", "small"]
    assert cache_reads_in(replies[1].extra["usage"]) == 20
    assert plan.model == "small"


def test_a_rewind_is_a_generation_and_retracts_from_its_prompt_on():
    plan = plan_of_bytes("acp", lines(*REWOUND))
    assert said(plan, 0) == [*SAID, "user: And the plums?", "assistant: None."]
    assert said(plan) == [*SAID, "user: And the nuts?", "assistant: None either."]


def test_a_rewind_behind_the_last_prompt_takes_nothing_back():
    plan = plan_of_bytes("acp", lines(*UPDATES, update(14, "rewind_marker", target_prompt_index=7)))
    assert (len(plan.generations), said(plan)) == (1, SAID)


def test_messages_of_the_wire_and_bare_notifications_are_read_too():
    """A recording proxy writes requests beside notifications; Grok once wrote the parameters alone."""
    prompt = {"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": {"sessionId": "s-1", "prompt": [{"type": "text", "text": "Hi"}]}}  # fmt: skip
    answer = {"jsonrpc": "2.0", "method": "session/update", "params": chunk(1, "agent_message", "Hello.")["params"]}
    assert said(plan_of_bytes("acp", lines(prompt, answer))) == ["user: Hi", "assistant: Hello."]
    assert said(plan_of_bytes("acp", lines(*(one["params"] for one in UPDATES)))) == SAID


def test_a_call_that_was_interrupted_has_no_result():
    assert said(plan_of_bytes("acp", lines(*UPDATES[:9])))[-1] == SAID[1]


def test_what_stands_beside_it_is_known(tmp_path: Path):
    library = ConversationLibrary(tmp_path / "library")
    folder = tmp_path / "sessions/%2Fhome%2Fada/s-1"
    folder.mkdir(parents=True)
    (folder / "updates.jsonl").write_bytes(lines(*UPDATES))
    about = {"info": {"id": "s-1", "cwd": "/home/ada"}, "generated_title": "Notes", "current_model_id": "grok-4.5"}
    (folder / "summary.json").write_text(json.dumps({**about, "session_kind": "subagent", "parent_session_id": "s-0"}))
    report = imported(folder / "updates.jsonl", library)
    assert report.id is not None
    with library.open(report.id, read_only=True) as store:
        metadata = store.get_metadata()
        assert next(store.iter_records()).at.startswith("2026-11-27T09:50:01")
    labels = {name: metadata.labels[name] for name in ("title", "cwd", "part_of")}
    assert (metadata.model, labels) == ("grok-4.5", {"title": "Notes", "cwd": "/home/ada", "part_of": "s-0"})
