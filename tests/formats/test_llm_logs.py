"""llm's logs: the message store of 0.33 and later, and the responses of the versions before. Rows as 0.36 writes them."""

from __future__ import annotations

import json
from typing import Any

from tests.formats.of_others import (
    Rows,
    assert_nothing_is_lost,
    entries,
    few_or_many_seeds,
    messages,
    original,
)
from tests.kit.cases import for_each
from transcript_store._json.replies import cache_reads_in
from transcript_store.formats import SessionPlan, SourceHead
from transcript_store.formats._llm_logs import LlmLogs
from transcript_store.testing import check_format


def message(name: str, parent: str | None, role: str) -> dict[str, Any]:
    return {"hash": name, "parent_hash": parent, "role": role, "provider_metadata": None}


def part(of: str, position: int, kind: str, text: str | None = None, **payload: Any) -> dict[str, Any]:
    packed = json.dumps(payload) if payload else None
    return {
        "message_hash": of,
        "position": position,
        "type": kind,
        "tool_name": payload.get("name"),
        "text": text,
        "payload": packed,
    }


def turn(tip: str, at: str) -> dict[str, Any]:
    known = {
        "model": "gpt-5-mini",
        "resolved_model": None,
        "input_tokens": 12,
        "output_tokens": 3,
        "token_details": None,
    }
    return {"id": f"turn of {tip}", "thread_id": "t1", "tip_message_hash": tip, **known, "datetime_utc": at}


THREADS: dict[str, list[dict[str, Any]]] = {
    "threads": [
        {
            "id": "t1",
            "name": "FRAG one Hello",
            "tip_message_hash": "f",
            "forked_from": None,
            "datetime_utc": "2026-11-23 06:49:37+00:00",
        },
        {
            "id": "t2",
            "name": None,
            "tip_message_hash": "c",
            "forked_from": "t1",
            "datetime_utc": "2026-11-23 06:50:00+00:00",
        },
    ],
    "messages": [
        message("a", None, "system"),
        message("b", "a", "user"),
        message("c", "b", "assistant"),
        message("d", "c", "user"),
        message("e", "d", "assistant"),
        message("e2", "e", "tool"),
        message("f", "e2", "assistant"),
    ],
    "parts": [
        part("a", 0, "text", "be brief"),
        part("b", 0, "text", text_ref=[{"fragment": 1}, {"literal": "\nHello"}]),
        part("c", 0, "reasoning", "Hm."),
        part("c", 1, "text", "answer 1"),
        part("d", 0, "text", "See"),
        part("d", 1, "attachment", attachment={"id": "picture"}),
        part("e", 0, "tool_call", name="up", arguments={"text": "hi"}, tool_call_id="tc1"),
        part("e2", 0, "tool_result", name="up", output="HI", tool_call_id="tc1"),
        part("f", 0, "text", "answer 2"),
    ],
    "turns": [
        turn("c", "2026-11-23T06:49:37.144689+00:00"),
        turn("e", "2026-11-23T06:49:38+00:00"),
        turn("f", "2026-11-23T06:49:39+00:00"),
    ],
    "fragments": [{"id": 1, "hash": "4", "content": "FRAG one", "datetime_utc": "", "source": None}],
    "attachments": [{"id": "picture", "type": "image/png", "path": None, "url": None, "content": b"\x89PNG"}],
}
RESPONSES: dict[str, list[dict[str, Any]]] = {
    "conversations": [{"id": "c1", "name": "Old", "model": "claude-3"}],
    "responses": [
        {
            "id": f"r{number}",
            "conversation_id": "c1" if number < 3 else None,
            "model": "claude-3-opus",
            "resolved_model": None,
            "system": "be brief" if number == 1 else None,
            "prompt": f"ask {number}",
            "response": f"say {number}",
            "reasoning": None,
            "options_json": None,
            "input_tokens": 5,
            "output_tokens": 2,
            "token_details": None,
            "datetime_utc": f"2024-01-0{number}T00:00:00.000001",
        }
        for number in (1, 2, 3)
    ],
    "tool_calls": [
        {"id": 1, "response_id": "r1", "tool_id": 1, "name": "up", "arguments": '{"text": "hi"}', "tool_call_id": "tc1"}
    ],
    "tool_results": [
        {
            "id": 1,
            "response_id": "r2",
            "tool_id": 1,
            "name": "up",
            "output": "HI",
            "tool_call_id": "tc1",
            "exception": None,
        }
    ],
    "prompt_fragments": [{"response_id": "r3", "fragment_id": 1, "order": 0}],
    "fragments": THREADS["fragments"],
}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
CALL = {"id": "tc1", "type": "function", "function": {"name": "up", "arguments": '{"text": "hi"}'}}


def plans_of(tables: dict[str, list[dict[str, Any]]]) -> list[SessionPlan]:
    source = Rows(tables)
    assert LlmLogs().recognizes(SourceHead("x", tables={name: source.columns(name) for name in tables}))
    plans = list(LlmLogs().plans(source))
    for plan in plans:
        assert_nothing_is_lost(plan)
    return plans


def test_a_thread_is_its_chain_of_messages():
    """Fragments and attachments stand where they were; the system prompt is the conversation's."""
    plan = plans_of(THREADS)[0]
    assert messages(plan) == [
        {"role": "user", "content": "FRAG one\nHello"},
        {"role": "assistant", "content": "answer 1"},
        {"role": "user", "content": [{"type": "text", "text": "See"}, IMAGE]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "tc1", "content": "HI"},
        {"role": "assistant", "content": "answer 2"},
    ]
    assert (plan.session, plan.model, plan.provider, plan.system_prompt) == ("t1", "gpt-5-mini", "openai", "be brief")
    assert plan.lines == 7
    assert [(loss.kind, loss.count) for loss in plan.losses] == [("thinking", 1)]
    reply = entries(plan)[2]
    assert reply.extra["usage"] == {"input_tokens": 12, "output_tokens": 3}
    assert [entry.at for entry in entries(plan)[:3]] == ["2026-11-23T06:49:37.144689+00:00"] * 3


def test_a_fork_has_the_messages_that_it_shares():
    plan = plans_of(THREADS)[1]
    assert len(messages(plan)) == 2
    assert plan.labels == {"forked_from": "t1"}


def test_threads_that_began_alike_have_their_own_times_models_and_tokens():
    """The hash of its texts names a message (llm 0.36): the same question with the same answer is one row of both threads."""
    own = {"thread_id": "t2", "model": "gpt-5", "token_details": '{"prompt_tokens_details": {"cached_tokens": 7}}'}
    turns = [*THREADS["turns"], {**turn("c", "2026-11-24T08:00:00+00:00"), "id": "another", **own}]
    first, second = plans_of({**THREADS, "turns": turns})
    reply, other = entries(first)[2], entries(second)[2]
    assert (reply.at, reply.extra["model"]) == ("2026-11-23T06:49:37.144689+00:00", "gpt-5-mini")
    assert (other.at, other.extra["model"]) == ("2026-11-24T08:00:00+00:00", "gpt-5")
    assert "prompt_tokens_details" not in reply.extra["usage"]
    assert cache_reads_in(other.extra["usage"]) == 7


def test_responses_of_the_versions_before():
    """Each has its prompt and its reply; the results of its tools go out with the next prompt. Claude's are Claude's blocks."""
    conversation, alone = plans_of(RESPONSES)
    assert (conversation.provider, conversation.labels, conversation.system_prompt) == (
        "claude",
        {"title": "Old"},
        "be brief",
    )
    first, second, results = (entry for entry in messages(conversation)[:3])
    assert first["content"] in ("ask 1", [{"type": "text", "text": "ask 1"}])
    assert {"type": "tool_use", "id": "tc1", "name": "up", "input": {"text": "hi"}} in second["content"]
    assert results["content"][0]["type"] == "tool_result"
    assert entries(conversation)[0].at == "2024-01-01T00:00:00.000001Z"
    assert alone.session == "r3"
    assert "FRAG one\nask 3" in json.dumps(messages(alone)[0]).replace("\\n", "\n")


def test_both_generations_in_one_file():
    assert [plan.session for plan in plans_of({**RESPONSES, **THREADS})] == ["t1", "t2", "c1", "r3"]


def test_a_chain_that_is_a_circle_and_one_that_is_broken():
    circle = {
        **THREADS,
        "messages": [{**row, "parent_hash": "c"} if row["hash"] == "a" else row for row in THREADS["messages"]],
    }
    assert [finding.kind for finding in plans_of(circle)[1].findings] == ["broken-chain"]
    broken = {**THREADS, "messages": THREADS["messages"][2:]}
    assert [finding.kind for finding in plans_of(broken)[1].findings] == ["broken-chain"]


NESTED = "[" * 100_000 + "]" * 100_000


@for_each(
    "payload, kind, why",
    [
        (f'{{"name":"up","tool_call_id":"tc1","arguments":{NESTED}}}', "too-deep", "1,024 levels"),
        (NESTED.encode(), "too-deep", "1,024 levels"),
        ('{"name":"up","argum', "not-json", "it is kept, and not sent"),
        ("[1]", "not-json", "it is kept, and not sent"),
        (b"\xff", "not-json", "it is kept, and not sent"),
        (7, "not-json", "it is kept, and not sent"),
    ],
)
def test_f6_a_payload_that_cannot_be_read_is_named_and_no_call_is_made_up(payload, kind, why):
    """It was a call without a name and without arguments, and nobody was told. Its row is kept; the other messages are read."""
    parts = [{**row, "payload": payload} if row["message_hash"] == "e" else row for row in THREADS["parts"]]
    plan = plans_of({**THREADS, "parts": parts})[0]
    ((found, line, message),) = [(finding.kind, finding.line, finding.message) for finding in plan.findings]
    assert (found, line) == (kind, 5)
    assert message.startswith("the payload of the part 0 of the message e ")
    assert why in message
    assert not any("tool_calls" in said for said in messages(plan))
    assert len(messages(plan)) == 5
    (kept,) = [entry for entry in entries(plan) if entry.lines == (5,)]
    assert kept.message is None
    if isinstance(payload, str):
        assert json.loads(original(plan).splitlines()[4])["parts"][0]["payload"] == payload


def test_a_text_stands_beside_a_payload_that_cannot_be_read():
    parts = [{**row, "payload": "{"} if row["message_hash"] == "f" else row for row in THREADS["parts"]]
    plan = plans_of({**THREADS, "parts": parts})[0]
    assert [finding.kind for finding in plan.findings] == ["not-json"]
    assert messages(plan)[-1] == {"role": "assistant", "content": "answer 2"}


def test_arguments_that_are_an_infinite_number():
    """SQLite holds what JSON does not: found by the contract of formats, with seed 133."""
    calls = [{**row, "arguments": float("inf")} for row in RESPONSES["tool_calls"]]
    conversation, *_ = plans_of({**RESPONSES, "tool_calls": calls})
    assert {"": "inf"} in [
        block["input"] for said in messages(conversation) for block in said["content"] if "input" in block
    ]


def with_a_file(**stored: Any) -> dict[str, list[dict[str, Any]]]:
    return {**THREADS, "attachments": [{**THREADS["attachments"][0], "content": None, **stored}]}


@for_each("path", ["/home/me/cat.jpg", "C:\\Users\\me\\cat.jpg"])
@for_each("model", ["gpt-5-mini", "claude-3-opus"])
def test_f7_a_file_that_the_logs_know_by_its_path_is_named_and_no_address(path, model):
    """The path was sent as the address of the picture, which no server takes; for Claude the picture was gone without a word."""
    turns = [{**each, "model": model} for each in THREADS["turns"]]
    plan = plans_of({**with_a_file(path=path), "turns": turns})[0]
    said = json.dumps(messages(plan))
    assert "[image/png: cat.jpg]" in said
    assert "/me" not in said
    assert "Users" not in said
    assert ("media", 1) in [(loss.kind, loss.count) for loss in plan.losses]


def test_a_file_with_an_address_is_sent_by_it():
    plan = plans_of(with_a_file(url="https://example.org/cat.png", path=None))[0]
    assert "https://example.org/cat.png" in json.dumps(messages(plan))
    assert [loss.kind for loss in plan.losses] == ["thinking"]


def test_what_the_form_has_no_place_for_is_named_also_in_a_result():
    """A film for Claude: as a prompt, and as what a tool showed."""
    film = with_a_file(type="video/mp4", content=b"film")
    result = part("e2", 0, "tool_result", name="up", output="HI", tool_call_id="tc1", attachments=[{"id": "picture"}])
    film["parts"] = [result if each["message_hash"] == "e2" else each for each in THREADS["parts"]]
    plan = plans_of(film)[0]
    assert messages(plan)[2] == {
        "role": "user",
        "content": [{"type": "text", "text": "See"}, {"type": "text", "text": "[video/mp4]"}],
    }
    assert messages(plan)[4] == {"role": "tool", "tool_call_id": "tc1", "content": "HI\n[video/mp4]"}
    assert {loss.kind: loss.count for loss in plan.losses} == {"thinking": 1, "media": 2}


@few_or_many_seeds
def test_it_keeps_the_contract_of_formats(seeds):
    check_format(LlmLogs(), [RESPONSES, THREADS], seeds=seeds)
