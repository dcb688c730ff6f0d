"""An exported conversation that is read back is the same, except for the reported losses (F8)."""

from __future__ import annotations

import json
import uuid
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.formats.of_others import Bytes
from tests.formats.of_others import messages as messages_in
from tests.formats.sources import check_accounts, corpora
from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.formats import READERS, WRITERS, SessionPlan, head_of
from transcript_store.formats._arranging import messages_of, to_neutral
from transcript_store.formats._blocks import Call, Media, Result, Text, Thinking
from transcript_store.formats._claude_code import ClaudeCodeWriter
from transcript_store.formats._pi import PiWriter

SESSION = "0195cafe-0000-4000-8000-000000000001"
NOW = "2026-02-03T04:05:06.789Z"
OURS = [writer for writer in WRITERS if writer.name in ("claude-code", "pi")]
READER = {reader.name: reader for reader in READERS}


def said(messages, provider):
    """What a conversation says, whichever form it has: who, and the text, the calls and their results."""
    found: list[object] = []
    for turn in to_neutral(messages, provider):
        for block in turn.blocks:
            match block:
                case Text(text=text) if text.strip():
                    found.append((turn.role, text))
                case Thinking():
                    found.append(("thinking", block.text, block.signature))
                case Call():
                    found.append(("call", block.id, block.name, block.arguments))
                case Result():
                    found.append(("result", block.id, block.text, block.failed, [media.data for media in block.media]))
                case Media():
                    found.append(("media", block.type, block.data))
    return found


def record(number, message, extra=None):
    at = f"2026-02-03T04:05:{number % 60:02}.000000Z"
    return Record(seq=number, at=at, message=orjson.loads(orjson.dumps(message)), extra=extra)


def records_of(messages, extras=None):
    """As a store has them."""
    return [record(number, message, (extras or {}).get(number)) for number, message in enumerate(messages, 1)]


def about(provider, **more):
    given: dict[str, Any] = {"model": "m", "system_prompt": None, "tools": None, "labels": {}, **more}
    given |= {"created_at": NOW, "updated_at": NOW, "compaction_count": 0, "generation": 0}
    return ConversationMetadata(id=SESSION, provider=provider, **given)


def handed_on(writer, records, metadata, cwd="/home/me/my work") -> tuple[SessionPlan, bytes, dict[str, int]]:
    written = writer.write(records, metadata, session=SESSION, cwd=cwd, now=NOW)
    assert written == writer.write(records, metadata, session=SESSION, cwd=cwd, now=NOW)
    ((path, data),) = written.files
    assert data.endswith(b"\n")
    assert SESSION in path
    assert SESSION in written.command
    reader = READER[writer.name]
    assert reader.recognizes(head_of(Bytes(data)))
    (plan,) = reader.plans(Bytes(data, path))
    check_accounts(plan, data)
    assert plan.session == SESSION
    assert plan.findings == ()
    return plan, data, {loss.kind: loss.count for loss in written.losses}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("path", corpora("claude-code") + corpora("pi"), ids=lambda path: path.stem)
@pytest.mark.parametrize("writer", OURS, ids=lambda writer: writer.name)
def test_a_conversation_that_others_wrote_is_the_same_after_it_was_handed_on_and_read_back(path, writer):
    data = path.read_bytes()
    reader = next(reader for reader in READERS if reader.recognizes(head_of(Bytes(data))))
    (plan, *_) = reader.plans(Bytes(data))
    entries = list(plan.generations[-1]())
    records = [record(number, one.message, one.extra) for number, one in enumerate(entries, 1)]
    labels = dict(plan.labels)
    found, _, losses = handed_on(writer, records, about(plan.provider, model=plan.model, labels=labels))
    before = said(messages_in(plan), "claude")
    after = said(messages_in(found), "claude")
    assert losses.pop("events", 0) == sum(entry.message is None for entry in entries)
    mended = losses.pop("no-result", 0)
    unanswered = losses.pop("no-call", 0)
    assert losses == {}
    results = [one for one in after if one[0] == "result" and one not in before]
    assert len(results) == mended
    # Calls and what was said stand in the same order; a result may have moved to its call.
    assert [one for one in after if one[0] != "result"] == [one for one in before if one[0] != "result"]
    assert sum(one[0] == "result" for one in before) - unanswered == sum(one[0] == "result" for one in after) - mended
    assert found.labels["title"] == plan.labels["title"] if "title" in plan.labels else True
    assert found.provider == "claude"
    again, *_ = handed_on(writer, records_of(messages_in(found)), about("claude"))
    assert messages_in(again) == messages_in(found)  # what was handed on once is in order


CONVERSATION = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "sig"}, {"type": "text", "text": "I look"}, {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a\nb", "is_error": True}]},
    {"role": "assistant", "content": [{"type": "text", "text": "Done"}]},
]  # fmt: skip


def test_claude_code_gets_the_very_messages_with_the_whole_envelope_and_a_chain_of_parents():
    extras = {2: {"response_id": "msg_1", "model": "claude-opus-4-5", "usage": {"input_tokens": 7, "output_tokens": 8}}}
    plan, data, losses = handed_on(
        ClaudeCodeWriter(),
        records_of(CONVERSATION, extras),
        about("claude", labels={"title": "T", "git_branch": "main"}),
    )
    assert messages_in(plan) == CONVERSATION
    assert losses == {}
    lines = [orjson.loads(line) for line in data.splitlines()]
    assert [line.get("parentUuid") for line in lines[:4]] == [None, *(line["uuid"] for line in lines[:3])]
    assert all(
        uuid.UUID(line["uuid"]) and line["cwd"] == "/home/me/my work" and line["sessionId"] == SESSION
        for line in lines[:4]
    )
    assert lines[1]["message"]["usage"] == {"input_tokens": 7, "output_tokens": 8}
    assert [line["message"]["model"] for line in lines[1:4:2]] == ["claude-opus-4-5", "m"]
    assert lines[4] == {"type": "custom-title", "customTitle": "T", "sessionId": SESSION}
    assert plan.labels == {"title": "T", "cwd": "/home/me/my work", "git_branch": "main"}


def test_the_folder_has_the_name_that_claude_code_makes_of_the_directory():
    def path(cwd):
        return (
            ClaudeCodeWriter()
            .write(records_of(CONVERSATION), about("claude"), session=SESSION, cwd=cwd, now=NOW)
            .files[0][0]
        )

    assert path("/home/me/my_work.é😀") == f"projects/-home-me-my-work----/{SESSION}.jsonl"
    long = path("/" + "x" * 300)
    # What the program's own function says of these two, run with node.
    assert path("/" + "é😀" * 100).endswith("-{}/{}.jsonl".format("st0uvl", SESSION))
    assert long == f"projects/-{'x' * 199}-x8zr69/{SESSION}.jsonl"


def test_pi_gets_who_said_it_and_a_chain_of_parents():
    plan, data, losses = handed_on(
        PiWriter(), records_of(CONVERSATION), about("claude", model="claude-opus-4-5", labels={"title": "T"})
    )
    assert said(messages_in(plan), "claude") == said(CONVERSATION, "claude")
    assert losses == {}
    header, *entries = [orjson.loads(line) for line in data.splitlines()]
    assert (header["version"], header["cwd"]) == (3, "/home/me/my work")
    assert [entry["parentId"] for entry in entries] == [None, *(entry["id"] for entry in entries[:-1])]
    assert [entry["message"].get("stopReason") for entry in entries[:4]] == [None, "toolUse", None, "stop"]
    assert (plan.labels["title"], plan.model) == ("T", "claude-opus-4-5")


def test_a_conversation_of_another_provider_is_handed_to_claude_code_without_its_thinking():
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"a": 1}'}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "a"},
        {"role": "assistant", "content": "Done"},
    ]  # fmt: skip
    tools = [{"name": "ls", "description": "", "parameters": {}}]
    plan, _, losses = handed_on(
        ClaudeCodeWriter(), records_of(messages), about("openai", system_prompt="Be kind.", tools=tools)
    )
    assert losses == {"system": 1, "thinking": 1, "prompt": 1, "tools": 1}
    assert said(messages_in(plan), "claude") == [
        ("user", "Be brief."),
        ("user", "Hello"),
        ("call", "c1", "ls", {"a": 1}),
        ("result", "c1", "a", False, []),
        ("assistant", "Done"),
    ]


def test_gemini_signatures_go_through_pi_and_come_back():
    contents = [
        {"role": "user", "parts": [{"text": "Hello"}]},
        {
            "role": "model",
            "parts": [{"functionCall": {"id": "c1", "name": "ls", "args": {}}, "thoughtSignature": "sig"}],
        },
        {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "ls", "response": {"output": "a"}}}]},
    ]
    plan, _, losses = handed_on(PiWriter(), records_of(contents), about("gemini"))
    assert (plan.provider, losses) == ("gemini", {})
    assert messages_in(plan) == contents


def test_a_conversation_in_which_nobody_says_anything_cannot_be_handed_on():
    for writer in OURS:
        with pytest.raises(ValueError, match="no message"):
            writer.write([record(1, None, {"a": 1})], about("claude"), session=SESSION, cwd="/", now=NOW)


WORDS = st.text(st.characters(codec="utf-8"), max_size=8)
CLAUDE_BLOCKS = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, WORDS),
    st.builds(lambda call: {"type": "tool_use", "id": call, "name": "f", "input": {"a": [1]}}, st.sampled_from(["a", "b", "c|d"])),
    st.builds(lambda call, text: {"type": "tool_result", "tool_use_id": call, "content": text}, st.sampled_from(["a", "b", "c|d"]), WORDS),
    st.just({"type": "thinking", "thinking": "hm", "signature": "sig"}),
    st.just({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}),
    st.just({"type": "something", "new": True}),
)  # fmt: skip
MESSAGES = st.lists(
    st.builds(
        lambda role, blocks: {"role": role, "content": blocks},
        st.sampled_from(["user", "assistant"]),
        st.lists(CLAUDE_BLOCKS, max_size=3),
    ),
    max_size=6,
)


@given(MESSAGES, st.sampled_from(OURS))
@example(
    [
        {"role": "assistant", "content": [{"type": "text", "text": "0"}]},
        {
            "role": "user",  # nobody but a model calls
            "content": [
                {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                {"type": "tool_result", "tool_use_id": "a", "content": ""},
            ],
        },
    ],
    next(writer for writer in OURS if writer.name == "pi"),
)
def test_whatever_is_handed_on_can_be_sent_when_it_was_read_back(messages, writer):
    try:
        plan, _, _ = handed_on(writer, records_of(messages), about("claude"))
    except ValueError:
        return
    found = messages_in(plan)
    if plan.provider == "claude":
        again = messages_of(to_neutral(found, "claude"), "claude")
        assert {loss.kind for loss in again.losses} <= {
            "own",
            "opening",
        }  # no call without a result, none without a call
        assert json.dumps(found).count('"hm"') <= json.dumps(messages).count('"hm"')


@pytest.mark.parametrize("role", [{}, {"role": None}, {"role": 7}, {"role": "narrator"}])
def test_a_message_without_a_role_that_the_program_knows_is_the_users(role):
    """Its own object would have no role in the session, or one that no API takes; the text is kept."""
    messages = [{"role": "user", "content": "Hi."}, {**role, "content": "Who speaks?"}]
    _, data, _ = handed_on(ClaudeCodeWriter(), records_of(messages), about("claude"))
    first, second = (json.loads(line) for line in data.splitlines())
    assert (first["type"], second["type"], second["message"]["role"]) == ("user", "user", "user")
    assert "Who speaks?" in json.dumps(second["message"]["content"])
