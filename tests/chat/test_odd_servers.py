"""Undocumented behaviour of servers and models: nothing that was shown is lost, and the conversation continues.

Each of these was seen in the issue tracker of some agent: replies of thinking alone, calls without arguments or ids, nulls,
results too long for a message, a server's own way to number things.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chat.conftest import connect
from tests.chat.dialects import DIALECTS, Dialect, delta, events, sse
from tests.chat.server import Answer, Server
from transcript_store import ConversationStore
from transcript_store.chat import TextDelta, Tool, ToolCallStarted
from transcript_store.chat._providers.openai import OpenAIWire
from transcript_store.chat._turns import owed, paired
from transcript_store.errors import IncompleteResponseError

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
CALL = {"id": "a", "type": "function", "function": {"name": "now", "arguments": '{"zone": "UTC"}'}}


def answer(body: Any) -> Answer:
    return Answer(json.dumps(body).encode())


def claude(content: list[Any], stop_reason: str = "end_turn") -> Answer:
    return answer({**DIALECTS["claude"].body("", ()), "content": content, "stop_reason": stop_reason})


def openai(message: Any, finish_reason: str = "stop") -> Answer:
    return answer({"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}]})


def tool(handler: Any) -> Tool:
    return Tool("now", "The time.", {"type": "object"}, handler=handler)


# ---- replies that cannot be sent again as they are -------------------------------------------------------------------


@pytest.mark.parametrize("stop_reason", ["max_tokens", "end_turn"])
def test_a_reply_of_thinking_alone(server: Server, tmp_path: Path, stop_reason: str) -> None:
    """It is no answer; it is on record, and no later request ends a message in thinking, which the API refuses."""
    dialect = DIALECTS["claude"]
    server.answers += [claude([THOUGHT], stop_reason), dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        with pytest.raises(IncompleteResponseError, match="nothing but thinking"):
            client.chat("Go")
        (record,) = conversation.get_records(last=1)
        assert record.extra is not None
        assert record.extra["incomplete"]["partial"]["content"] == [THOUGHT]
        assert client.chat("Go on") == "Yes."
    assert [message["role"] for message in server.bodies[1]["messages"]] == ["user", "user"]


def test_thinking_at_the_end_of_what_is_on_record_is_not_sent(server: Server, tmp_path: Path) -> None:
    """Nor is text that is only white space; so a conversation that another program left so goes on."""
    dialect = DIALECTS["claude"]
    server.answers += [dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize(
            provider="claude",
            messages=[
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": [{"type": "text", "text": "b"}, THOUGHT]},
                {"role": "user", "content": "\n"},
                {"role": "assistant", "content": [{"type": "text", "text": " \n"}]},
                {"role": "assistant", "content": [THOUGHT]},
            ],
        )
        assert connect(dialect, server, conversation).chat("c") == "Yes."
    assert server.bodies[0]["messages"] == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
        {"role": "user", "content": "c"},
    ]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("prompt", ["", " ", "\n", "\x0b", "\u3000"])
def test_a_prompt_of_white_space(dialect: Dialect, server: Server, prompt: str) -> None:
    """No provider takes it; it is refused before it is on record."""
    with pytest.raises(ValueError, match="white space alone"):
        connect(dialect, server).chat(prompt)


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        (
            "claude",
            claude([{"type": "tool_use", "id": "a", "name": "now", "input": {}}], "refusal"),
        ),
        ("claude", claude([], "refusal")),
        ("openai", openai({"role": "assistant", "content": "", "tool_calls": [CALL]}, "content_filter")),
        ("openai", openai({"role": "assistant", "content": "Half"}, "content_filter")),
        (
            "gemini",
            answer(
                {
                    "candidates": [
                        {
                            "content": {"role": "model", "parts": [{"functionCall": {"name": "now"}}]},
                            "finishReason": "SAFETY",
                        }
                    ]
                }
            ),
        ),
        ("gemini", answer({"candidates": [{"content": {"role": "model"}, "finishReason": "MALFORMED_FUNCTION_CALL"}]})),
        ("gemini", answer({"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}]})),
    ],
)
def test_a_blocked_reply_raises(server: Server, tmp_path: Path, name: str, refused: Answer) -> None:
    """``IncompleteResponseError``, no tool of it runs, and the next turn works."""
    dialect, ran = DIALECTS[name], list[str]()
    server.answers += [refused, dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([tool(ran.append)])
        with pytest.raises(IncompleteResponseError):
            client.chat("Go")
        assert conversation.record_count == 2
        assert client.chat("Go on") == "Yes."
    assert not ran


# ---- calls, and their results ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ["", " ", None, {}, {"zone": "UTC"}])
def test_arguments_that_are_not_spelled_out(server: Server, tmp_path: Path, arguments: Any) -> None:
    """No arguments at all is how many servers call a tool without any; the record keeps it, a request spells it out."""
    dialect, given = DIALECTS["openai-compatible"], list[Any]()
    call = {**CALL, "function": {"name": "now", "arguments": arguments}}
    server.answers += [openai({"role": "assistant", "content": None, "tool_calls": [call]}), dialect.reply("Noon.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([tool(lambda **members: given.append(members))])
        assert client.chat("What time is it?") == "Noon."
        assert conversation.get_messages()[1]["tool_calls"] == [call]
    assert given == [arguments if isinstance(arguments, dict) else {}]
    (sent,) = server.bodies[1]["messages"][1]["tool_calls"]
    assert json.loads(sent["function"]["arguments"]) == given[0]


def test_a_call_without_an_id_has_its_result() -> None:
    """Results that name no call belong to the calls in their order; the request is what the record says."""
    wire = OpenAIWire()
    calls = [{"type": "function", "function": {"name": "now", "arguments": json.dumps({"zone": z})}} for z in "ab"]
    results = [{"role": "tool", "tool_call_id": None, "content": f"noon in {z}"} for z in "ab"]
    history: list[Any] = [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *results,
    ]
    assert paired(wire, history) == history
    assert paired(wire, [*history[:3], {"role": "user", "content": "Well?"}])[3]["content"].startswith("Error: ")
    assert owed(wire, history[1:], {}, cut_short=False) == owed(wire, [], {}, cut_short=False)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("role", [b"", b'"role": null, '], ids=["no role", "null"])
def test_a_reply_without_a_role(dialect: Dialect, server: Server, tmp_path: Path, role: bytes, streamed: bool) -> None:
    """It is a reply. Incident: its tool ran, and no request carried the result, nor could the reply be sent again."""
    say = dialect.stream if streamed else dialect.reply
    asked = [say("", (("now", {}),)), say("Noon."), say("Yes.")]
    for answer in asked:
        body = re.sub(rb', "role": "(assistant|model)"', b"", answer.body)  # Gemini's stands at the end
        body = re.sub(rb'"role": "(assistant|model)", ', role, body)
        assert body != answer.body
        server.answers.append(replace(answer, body=body))
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([tool(lambda: "12:00")])
        for prompt in ("What time is it?", "Sure?"):
            list(client.stream_chat(prompt)) if streamed else client.chat(prompt)
            assert client.is_answered
        assert dialect.messages(server.bodies[2]) == conversation.get_messages()[:-1]
        assert {m["role"] for m in conversation.get_messages()} <= {"user", "tool", "assistant", "model"}
        assert server.requests[2].raw.count(b"12:00") == 1


def test_calls_that_all_have_the_same_index(server: Server) -> None:
    """An id of its own is a call of its own, wherever its server says that it belongs."""
    dialect, given = DIALECTS["openai-compatible"], list[str]()
    calls = [
        {"index": 0, "id": z, "type": "function", "function": {"name": "now", "arguments": json.dumps({"zone": z})}}
        for z in ("a", "b")
    ]
    more = {"index": 0, "id": "c", "type": "function", "function": {"name": "now", "arguments": '{"zone"'}}
    rest = [{"index": 0, "id": "c", "function": {"arguments": ': "c'}}, {"index": 0, "function": {"arguments": '"}'}}]
    server.answers += [
        events(*(delta(tool_calls=[call]) for call in (*calls, more, *rest)), delta("tool_calls")),
        dialect.stream("Noon."),
    ]
    client = connect(dialect, server)
    client.set_tools([tool(lambda **members: given.extend(members.values()))])
    list(client.stream_chat("What time is it?"))
    assert given == ["a", "b", "c"]


@pytest.mark.parametrize("text", ["1" * 5000, "[" * 200_000])
def test_numbers_and_nesting_that_python_does_not_read(server: Server, tmp_path: Path, text: str) -> None:
    """As an answer that is to be JSON, and as a tool's input, it is an incomplete reply, not an error that nobody expects."""
    dialect = DIALECTS["claude"]
    lines = "".join(dialect.events("", (("now", {"a": "HERE"}),), stop=True)).replace('\\"HERE\\"', text)
    pieces = [line for line in lines.split("\n\n") if "input_json_delta" not in line]
    place = next(k for k, line in enumerate(pieces) if '"tool_use"' in line) + 1
    half = {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": text}}
    pieces.insert(place, sse(half, "content_block_delta").rstrip("\n"))
    server.answers += [dialect.reply(text), Answer("\n\n".join(pieces).encode(), content_type="text/event-stream")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        with pytest.raises(IncompleteResponseError, match="not JSON"):
            client.ask("How many?", {"type": "integer"})
        with pytest.raises(IncompleteResponseError, match="cut short"):
            list(client.stream_chat("Go"))
        assert conversation.record_count == 4


# ---- streams ---------------------------------------------------------------------------------------------------------


def test_a_stream_in_a_servers_own_form(server: Server, tmp_path: Path) -> None:
    """Nulls where a list or a number belongs, events that keep a connection alive, content in parts."""
    dialect = DIALECTS["openai-compatible"]
    server.answers += [
        events(
            None,
            delta(role="assistant", content="Hel", tool_calls=None),
            delta(index=None, content=[{"type": "text", "text": "lo"}], tool_calls=None),
            delta("stop", content=None),
        ),
        events(
            delta(role="assistant", content="Hel", tool_calls=None), delta(content="lo", tool_calls=None), delta("stop")
        ),
    ]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        for _ in range(2):
            shown = [event.text for event in client.stream_chat("Go") if isinstance(event, TextDelta)]
            assert "".join(shown) == "Hello"
        assert conversation.get_messages()[3]["content"] == "Hello"


def test_a_refusal_is_shown(server: Server) -> None:
    """OpenAI streams it beside the content."""
    server.answers += [events(delta(role="assistant", refusal="I can"), delta(refusal="not."), delta("stop"))]
    shown = list(connect(DIALECTS["openai"], server).stream_chat("Go"))
    assert "".join(event.text for event in shown if isinstance(event, TextDelta)) == "I cannot."


def test_what_no_assembly_understands_is_kept_as_it_came(server: Server, tmp_path: Path) -> None:
    """All events, with what was shown in them."""
    chunks = [delta(role="assistant", content="Hello"), delta(tool_calls=["odd"]), delta("stop")]
    server.answers += [events(*chunks)]
    with ConversationStore(tmp_path / "c") as conversation:
        with pytest.raises(IncompleteResponseError, match="not in the provider's form"):
            list(connect(DIALECTS["openai-compatible"], server, conversation).stream_chat("Go"))
        (record,) = conversation.get_records(last=1)
        assert record.extra is not None
        assert record.extra["incomplete"]["partial"] == chunks


def test_members_that_are_repeated_in_each_chunk(server: Server, tmp_path: Path) -> None:
    """The format of a thought is said, not spelled out."""
    thoughts = [{"type": "reasoning.text", "text": text, "format": "anthropic-claude-v1", "index": 0} for text in "ab"]
    server.answers += [
        events(*(delta(reasoning_details=[thought]) for thought in thoughts), delta("stop", content="c"))
    ]
    with ConversationStore(tmp_path / "c") as conversation:
        list(connect(DIALECTS["openai-compatible"], server, conversation).stream_chat("Go"))
        assert conversation.get_messages()[1]["reasoning_details"] == [{**thoughts[0], "text": "ab"}]


def test_two_streams_that_are_left_unfinished(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """The second one ends the first; closing the client ends both, whoever still holds them."""
    server.answers += [dialect.stream("A long answer"), dialect.stream("Another answer"), dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        streams = [client.stream_chat("one"), client.stream_chat("two")]
        for stream in streams:
            assert any(isinstance(event, TextDelta | ToolCallStarted) for event in [next(stream)])
        assert client.chat("three") == "Yes."
        roles = [message["role"] for message in conversation.get_messages()]
        assert [role == "user" for role in roles] == [True, False] * 3


# ---- where requests go -----------------------------------------------------------------------------------------------


def test_a_proxy_is_not_asked_for_this_machine(
    dialect: Dialect, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would read the token, since http is allowed there."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    server.answers += [dialect.reply("Yes.")]
    assert connect(dialect, server).chat("Go") == "Yes."


def test_the_server_that_was_named_last_is_on_record(server: Server, tmp_path: Path) -> None:
    """OpenAI and compatible servers share their messages: whoever resumes must not send to one what was said to the other."""
    with ConversationStore(tmp_path / "c") as conversation:
        for name in ("openai", "openai-compatible", "openai"):
            server.answers += [DIALECTS[name].reply("Yes.")]
            connect(DIALECTS[name], server, conversation).chat("Go")
            assert conversation.get_metadata().provider == name
