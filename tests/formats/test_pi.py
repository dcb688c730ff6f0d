"""pi's sessions: the messages that pi would send, in the form of the provider who replied last, and every other line beside them."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats import of_others
from tests.formats.of_others import Bytes, few_or_many_seeds
from tests.formats.of_others import messages as messages_in
from tests.formats.sources import check_accounts, corpora, entries_of, json_lines, texts_in
from transcript_store.formats import head_of
from transcript_store.formats._pi import Pi, PiWriter
from transcript_store.messages import tokens_in
from transcript_store.testing import check_format

HEADER = {
    "type": "session",
    "version": 3,
    "id": "0195-pi",
    "timestamp": "2026-01-02T03:04:05.000Z",
    "cwd": "/home/me/work",
}
CLAUDE = {"api": "anthropic-messages", "provider": "anthropic", "model": "claude-sonnet-4-5"}
GPT = {"api": "openai-responses", "provider": "openai", "model": "gpt-5.1-codex"}
GEMINI = {"api": "google-generative-ai", "provider": "google", "model": "gemini-3-pro"}
USAGE = {"input": 3, "output": 68, "cacheRead": 10, "cacheWrite": 100, "cost": {"input": 0.000009}}


def entry(id, parent, kind="message", **more):
    return {"type": kind, "id": id, "parentId": parent, "timestamp": "2026-01-02T03:04:06.000Z", **more}


def asked(id, parent, text):
    return entry(id, parent, message={"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 1})


def reply(id, parent, *blocks, by=None, stop="stop"):
    content = [{"type": "text", "text": one} if isinstance(one, str) else one for one in blocks]
    message = {
        "role": "assistant",
        "content": content,
        **(by or CLAUDE),
        "usage": USAGE,
        "stopReason": stop,
        "timestamp": 1,
    }
    return entry(id, parent, message=message)


def call(id, **more):
    return {
        "type": "toolCall",
        "id": id,
        "name": "read",
        "arguments": {"path": "a path that is long enough for a hole"},
        **more,
    }


def result(id, parent, call, *content, failed=False):
    about = {"toolCallId": call, "toolName": "read", "isError": failed, "timestamp": 1}
    return entry(id, parent, message={"role": "toolResult", "content": [*content], **about})


def text(said):
    return {"type": "text", "text": said}


def plan(values):
    data = values if isinstance(values, bytes) else json_lines(values)
    (found,) = Pi().plans(Bytes(data))
    check_accounts(found, data)
    return found


def cut(reply):
    """A reply that failed or was stopped: its text."""
    return {
        **reply,
        "content": [block for block in reply["content"] if block["type"] == "text" and block["text"].strip()],
    }


@pytest.mark.parametrize("path", corpora("pi"), ids=lambda path: path.stem)
def test_a_session_of_a_thousand_lines_that_others_wrote(path):
    data = path.read_bytes()
    assert Pi().recognizes(head_of(Bytes(data)))
    found = plan(data)
    # Counted by hand, with no code of ours: what pi would send, and what was written of a reply that failed or was stopped.
    values = [value["message"] for value in map(json.loads, data.splitlines()) if value["type"] == "message"]
    sent = [cut(one) if one.get("stopReason") in ("aborted", "error") else one for one in values]
    sent = [one for one in sent if one["content"]]
    assert len(messages_in(found)) == len(sent)
    blocks: list[dict[str, Any]] = [block for message in messages_in(found) for block in message["content"]]
    calls = [block["id"] for message in sent for block in message["content"] if block["type"] == "toolCall"]
    assert [block["id"] for block in blocks if block["type"] == "tool_use"] == calls
    results = [message["toolCallId"] for message in sent if message["role"] == "toolResult"]
    assert [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"] == results
    said = [
        block["text"]
        for message in sent
        for block in message["content"]
        if block["type"] == "text" and message["role"] != "toolResult"
    ]
    assert [block["text"] for block in blocks if block["type"] == "text"] == said
    tokens = [tokens_in(entry.extra["usage"]).output for entry in entries_of(found) if "usage" in entry.extra]
    assert tokens == [message["usage"]["output"] for message in sent if message["role"] == "assistant"]
    assert (found.provider, found.model, found.findings) == ("claude", "claude-sonnet-4-5", ())


def test_the_conversation_is_the_way_from_the_last_entry_to_its_root():
    found = plan(
        [
            HEADER,
            asked("1", None, "Hello"),
            reply("2", "1", "Hi"),
            asked("3", "2", "left"),
            reply("4", "3", "left too"),
            asked("5", "2", "better"),
            entry("6", "5", "label", targetId="5", label="x"),
        ]
    )
    assert texts_in(found) == ["Hello", "Hi", "better"]
    assert [one.lines for one in entries_of(found) if one.message is None] == [(1,), (4,), (5,), (7,)]


def test_a_replys_figures_are_kept_beside_it():
    said = entries_of(plan([HEADER, asked("1", None, "Hello"), reply("2", "1", "Hi")]))[2]
    assert said.extra["model"] == "claude-sonnet-4-5"
    assert said.extra["stop_reason"] == "stop"
    assert tokens_in(said.extra["usage"]) == (113, 68, 181)


def test_the_first_version_has_no_ids_and_is_in_the_order_of_its_lines():
    def old(value):
        return {name: member for name, member in value.items() if name not in ("id", "parentId")}

    values = [
        old(HEADER) | {"id": "0195-pi"},
        *map(old, (asked("", "", "one"), reply("", "", "two"), asked("", "", "three"), reply("", "", "four"))),
    ]
    del values[0]["version"]
    assert texts_in(plan(values)) == ["one", "two", "three", "four"]
    compaction = {
        "type": "compaction",
        "timestamp": "2026-01-02T03:04:06.000Z",
        "summary": "SUM",
        "firstKeptEntryIndex": 3,
        "tokensBefore": 9,
    }
    found = plan([*values, compaction, old(asked("", "", "five"))])
    assert [said[:9] for said in texts_in(found)] == ["The conve", "three", "four", "five"]


COMPACTED = [
    HEADER,
    asked("1", None, "one"),
    reply("2", "1", "two"),
    asked("3", "2", "three"),
    reply("4", "3", "four"),
    entry("5", "4", "compaction", summary="SUM", firstKeptEntryId="3", tokensBefore=99),
    asked("6", "5", "five"),
]


def test_a_compaction_is_a_generation_of_its_summary_what_it_kept_and_what_came_after():
    found = plan(COMPACTED)
    assert texts_in(found, 0) == ["one", "two", "three", "four"]
    summary, *rest = texts_in(found, 1)
    assert (
        summary
        == "The conversation history before this point was compacted into the following summary:\n\n<summary>\nSUM\n</summary>"
    )
    assert rest == ["three", "four", "five"]
    assert [one.lines for one in found.generations[1]()] == [(6,), (), (), (7,)]
    assert plan([*COMPACTED[:5], {**COMPACTED[5], "firstKeptEntryId": "?"}]).findings[0].kind == "kept-missing"


def test_a_second_compaction_keeps_from_the_whole_way():
    again = [
        entry("7", "6", "compaction", summary="SUM2", firstKeptEntryId="4", tokensBefore=9),
        asked("8", "7", "six"),
    ]
    assert texts_in(plan([*COMPACTED, *again]))[1:] == ["four", "five", "six"]


def test_what_no_model_is_sent_is_an_event():
    def ran(id, parent, **more):
        return entry(
            id, parent, message={"role": "bashExecution", "command": "ls", "output": "a", "exitCode": 1, **more}
        )

    values = [
        HEADER,
        asked("1", None, "Hello"),
        reply("2", "1", "half", stop="aborted"),
        reply("3", "2", stop="error"),
        ran("4", "3"),
        ran("5", "4", excludeFromContext=True),
        entry("6", "5", message={"role": "hookMessage", "customType": "h", "content": "hooked", "display": True}),
        entry("7", "6", "custom_message", customType="c", content=[text("said by an extension")]),
        entry("8", "7", "custom", customType="c", data={"a": 1}),
        entry("9", "8", "branch_summary", fromId="2", summary="B"),
        reply("10", "9", "Hi"),
    ]
    assert texts_in(plan(values)) == [
        "Hello",
        "half",
        "Ran `ls`\n```\na\n```\n\nCommand exited with code 1",
        "hooked",
        "said by an extension",
        "The following is a summary of a branch that this conversation came back from:\n\n<summary>\nB</summary>",
        "Hi",
    ]


THOUGHT = {"type": "thinking", "thinking": "hm", "thinkingSignature": "sig"}


def test_the_form_is_that_of_the_provider_who_replied_last():
    image = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    said = [
        HEADER,
        asked("1", None, "Look"),
        reply("2", "1", THOUGHT, "I look", call("c|fc_1")),
        result("3", "2", "c|fc_1", text("seen"), image),
    ]
    claude = plan([*said, reply("4", "3", "Done")])
    assert claude.provider == "claude"
    assert messages_in(claude)[1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        text("I look"),
        {"type": "tool_use", "id": "c", "name": "read", "input": call("")["arguments"]},
    ]
    assert claude.losses == ()
    assert "long enough" not in json.dumps(entries_of(claude)[2].extra)

    openai = plan([*said, reply("4", "3", "Done", by=GPT)])
    assert openai.provider == "openai"
    assert [message["role"] for message in messages_in(openai)] == ["user", "assistant", "tool", "user", "assistant"]
    assert "data:image/png;base64,iVBORw0KGgo=" in json.dumps(messages_in(openai)[3])
    assert [(loss.kind, loss.count) for loss in openai.losses] == [("thinking", 1)]

    gemini = plan([*said, reply("4", "3", {**call("d"), "thoughtSignature": "ts"}, by=GEMINI)])
    assert gemini.provider == "gemini"
    assert messages_in(gemini)[-1] == {
        "role": "model",
        "parts": [
            {"functionCall": {"id": "d", "name": "read", "args": call("")["arguments"]}, "thoughtSignature": "ts"}
        ],
    }

    local = plan(
        [*said, reply("4", "3", "Done", by={"api": "openai-completions", "provider": "ollama", "model": "qwen"})]
    )
    assert local.provider == "openai-compatible"


def test_labels_and_version_come_from_the_header_and_the_last_name_given():
    header = {**HEADER, "parentSession": "/home/me/.pi/agent/sessions/--x--/2026-01-01T00-00-00-000Z_0194-parent.jsonl"}
    found = plan(
        [
            header,
            asked("1", None, "Hi"),
            entry("2", "1", "session_info", name="first"),
            entry("3", "2", "session_info", name="My work"),
        ]
    )
    assert found.labels == {"title": "My work", "cwd": "/home/me/work", "forked_from": "0194-parent"}
    assert (found.session, found.version) == ("0195-pi", "3")


def test_missing_parents_cycles_and_ids_given_twice_are_reported():
    lost = plan([HEADER, asked("1", None, "one"), asked("2", "1", "two"), asked("3", "lost", "three")])
    assert texts_in(lost) == ["one", "two", "three"]
    assert [(one.kind, one.line) for one in lost.findings] == [("dangling-parent", 4)]
    assert [one.kind for one in plan([HEADER, asked("1", "2", "one"), asked("2", "1", "two")]).findings] == ["cycle"]
    assert [one.kind for one in plan([HEADER, asked("1", None, "one"), asked("1", None, "two")]).findings] == [
        "duplicate-id"
    ]


KINDS = st.sampled_from(["asked", "asked", "reply", "reply", "gpt", "gemini", "aborted", "result", "compaction", "custom", "title", "torn", "no-id", "header", "duplicate", "glued"])  # fmt: skip
SHAPES = st.lists(st.tuples(KINDS, st.integers(-2, 20)), max_size=14)


def one_of_a_tree(kind, number, parent, at):
    me = str(number)
    match kind:
        case "reply" | "gpt" | "gemini":
            by = {"reply": CLAUDE, "gpt": GPT, "gemini": GEMINI}[kind]
            return reply(me, parent, THOUGHT, f"said {number}", call(f"c{at}"), by=by)
        case "aborted":
            return reply(me, parent, "half", stop="aborted")
        case "result":
            return result(me, parent, f"c{at}", text(f"result {number}"))
        case "compaction":
            return entry(me, parent, "compaction", summary=f"summary {number}", firstKeptEntryId=str(at))
        case "custom":
            return entry(me, parent, "custom_message", content=f"custom {number}")
        case "title":
            return entry(me, parent, "session_info", name=f"title {number}")
        case "no-id":
            return {"type": "message", "message": {"role": "user", "content": "no id"}}
        case "header":
            return {**HEADER, "id": me}
        case "duplicate":
            return asked("0", parent, f"duplicate {number}")
    return asked(me, parent, f"asked {number}")


def tree(shape):
    data = b""
    for number, (kind, at) in enumerate(shape):
        parent = None if at == -1 else "nowhere" if at == -2 else str(at % (len(shape) + 1))
        line = json_lines([one_of_a_tree(kind, number, parent, at)])
        data += line[: 30 + number] + b"\n" if kind == "torn" else line[:-1] if kind == "glued" else line
    return data


@given(SHAPES)
def test_any_tree_is_accounted_for_line_by_line_and_comes_out_again(shape):
    data = tree(shape)
    for found in Pi().plans(Bytes(data)):
        check_accounts(found, data)


LINEAR = [HEADER, entry("0", None, "model_change", provider="anthropic", modelId="claude-sonnet-4-5"), asked("1", "0", "one"), reply("2", "1", call("c")), result("3", "2", "c", text("two")), entry("4", "3", "thinking_level_change", thinkingLevel="off"), reply("5", "4", "three"), asked("6", "5", "four"), entry("7", "6", "compaction", summary="SUM", firstKeptEntryId="5")]  # fmt: skip


def test_the_plan_of_a_file_that_grew_extends_the_plan_of_what_it_was():
    before: list[list[str]] = []
    for length in range(2, len(LINEAR) + 1):
        now = [[repr(one) for one in generation()] for generation in plan(LINEAR[:length]).generations]
        assert all(later[: len(earlier)] == earlier for earlier, later in zip(before, now, strict=False))
        before = now


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.long)])
def test_a_file_cut_at_any_byte_is_read_to_its_last_whole_line(step):
    data = json_lines(LINEAR)
    whole = texts_in(plan(data), 0)
    for cut in range(1, len(data), step):
        for found in Pi().plans(Bytes(data[:cut])):
            check_accounts(found, data[:cut])
            assert whole[: len(texts_in(found, 0))] == texts_in(found, 0)


@given(st.data())
def test_a_line_with_a_member_taken_away_or_changed_is_still_accounted_for(data):
    values = orjson.loads(orjson.dumps([*LINEAR, *COMPACTED]))
    for _ in range(data.draw(st.integers(1, 3))):
        value = data.draw(st.sampled_from(values))
        if isinstance(value.get("message"), dict) and value["message"] and data.draw(st.booleans()):
            value = value["message"]
        name = data.draw(st.sampled_from(sorted(value) or ["x"]))
        value[name] = data.draw(
            st.sampled_from([None, 0, "", "5", [], {}, [None], ["x"], [{"type": "toolCall"}], {"a": 1}, True, 1e300])
        )
    plan(values)


@few_or_many_seeds
def test_it_keeps_the_contract_of_formats(seeds):
    check_format(Pi(), [of_others.lines(*LINEAR), of_others.lines(*COMPACTED)], PiWriter(), seeds=seeds)
