"""A turn, as it is written down: the question, each reply, each result, the answer, every one of them on record before the
next step. The SDKs are the real ones and speak real HTTP; what they sent is looked at raw.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any

import pytest

from tests.chat.conftest import connect
from tests.chat.dialects import DIALECTS, Call, Dialect
from tests.chat.server import Answer, Server
from transcript_store import ConversationStore, TranscriptPosition
from transcript_store.chat import (
    ChatClient,
    StreamingChatClient,
    TextDelta,
    Tool,
    ToolCallEnded,
    ToolCallStarted,
    TurnEnded,
)
from transcript_store.errors import IncompleteResponseError, MaxStepsError

ADD = Tool(
    "add",
    "Add two numbers.",
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
    handler=lambda a, b: a + b,
)


def test_an_answer_is_what_the_provider_sent(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """The reply is on record, and in the next request, equal as a JSON value; what belongs to it stands in ``extra``."""
    server.answers += [dialect.reply("Hello."), dialect.reply("Again.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation, system_prompt="Be brief.", model="m-1")
        assert client.chat("Hi") == "Hello."
        assert client.chat("And?") == "Again."
        said = json.loads(dialect.reply("Hello.").body)
        native = {"claude": lambda: {"role": said["role"], "content": said["content"]}}
        native["openai"] = native["openai-compatible"] = lambda: said["choices"][0]["message"]
        native["gemini"] = lambda: said["candidates"][0]["content"]
        assert conversation.get_messages()[1] == native[dialect.name]()
        extra = conversation.get_records()[1].extra
        assert extra is not None
        assert extra["model"] == dialect.model_name
        assert extra["stop_reason"].lower() in ("end_turn", "stop")
        assert extra["response_id"] == said.get("id", said.get("responseId"))
        assert extra["usage"] == said.get("usage", said.get("usageMetadata"))
        metadata = conversation.get_metadata()
        assert (metadata.provider, metadata.model, metadata.system_prompt) == (dialect.provider, "m-1", "Be brief.")
        assert client.export_history() == conversation.get_messages()
    first, second = server.bodies
    assert dialect.system_prompts(first) == dialect.system_prompts(second) == ["Be brief."]
    assert dialect.messages(second) == client.export_history()[:3]
    assert (client.usage.input_tokens, client.usage.output_tokens) == (24, 10)
    assert isinstance(client, ChatClient)
    assert isinstance(client, StreamingChatClient)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_two_calls_in_one_reply(dialect: Dialect, server: Server, tmp_path: Path, streamed: bool) -> None:
    """Both tools run, in order; both results are on record, in order, before the next request; streamed or not, alike."""
    calls = (("add", {"a": 1, "b": 2}), ("add", {"a": 30, "b": 40}))
    say = dialect.stream if streamed else dialect.reply
    server.answers += [say("Let me see.", calls), say("3 and 70.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([ADD])
        if streamed:
            events = list(client.stream_chat("Sum up"))
            assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "Let me see.3 and 70."
            assert [e.arguments for e in events if isinstance(e, ToolCallStarted)] == [a for _, a in calls]
            assert [e.result for e in events if isinstance(e, ToolCallEnded)] == ["3", "70"]
            assert events[-1] == TurnEnded(text="3 and 70.", stop_reason=events[-1].stop_reason)
        else:
            assert client.chat("Sum up") == "3 and 70."
        messages = conversation.get_messages()
        events_on_record = [r for r in conversation.get_records() if r.message is None]
        assert len(events_on_record) == (0 if dialect.name.startswith("openai") else 1)
    whole = json.loads(dialect.reply("Let me see.", calls).body)
    assert dialect.messages(server.bodies[1]) == messages[:-1]
    assert json.dumps(messages).count("Let me see.") == 1
    if dialect.name == "claude":
        assert messages[1]["content"] == whole["content"]
    elif dialect.name == "gemini":
        assert messages[1] == whole["candidates"][0]["content"]
    else:
        assert messages[1] == whole["choices"][0]["message"]


def test_what_a_handler_raises_goes_back_to_the_model(
    dialect: Dialect, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of a handler, an unknown tool, and arguments that do not fit are results that say so; the log names its type."""

    def broken(**_: Any) -> str:
        raise OSError("no such file")

    calls: tuple[Call, ...] = (("broken", {}), ("nowhere", {}), ("add", {"c": 1}))
    server.answers += [dialect.reply("", calls), dialect.reply("I see.")]
    client = connect(dialect, server)
    client.set_tools([ADD, Tool("broken", "", {"type": "object"}, handler=broken)])
    assert client.chat("Go") == "I see."
    raw = server.requests[1].raw.decode()
    assert "OSError: no such file" in raw
    assert "there is no tool named 'nowhere'" in raw
    assert "unexpected keyword argument" in raw
    warnings = [record.getMessage() for record in caplog.records if record.name == "transcript_store.chat"]
    assert warnings[0] == "tool broken: the handler raised OSError, which is reported to the model"
    assert "no such file" not in "".join(warnings)


@pytest.mark.parametrize("within_a_loop", [False, True])
def test_a_handler_may_be_a_coroutine_function(server: Server, tmp_path: Path, within_a_loop: bool) -> None:
    """Its result, or its error, is what it comes to; also where an event loop runs in the thread, as in a notebook."""
    language = ContextVar("language", default="none")

    async def greet(name: str) -> str:
        await asyncio.sleep(0)
        return f"{language.get()}: {name}"

    async def broken() -> str:
        await asyncio.sleep(0)
        raise OSError("no such file")

    dialect = DIALECTS["openai"]
    server.answers += [dialect.reply("", (("greet", {"name": "Ada"}), ("broken", {}))), dialect.reply("I see.")]
    client = connect(dialect, server)
    client.set_tools([Tool(one.__name__, "", {"type": "object"}, handler=one) for one in (greet, broken)])

    async def main() -> None:
        turn()

    def turn() -> None:
        language.set("English")
        assert client.chat("Go") == "I see."

    if within_a_loop:
        asyncio.run(main())
    else:
        copy_context().run(turn)
    raw = server.requests[1].raw.decode()
    assert "English: Ada" in raw
    assert "OSError: no such file" in raw


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("arguments", ["{", '{"x": ', "[1]", "null", '{"a": ' + "1" * 5000 + "}", "[" * 200_000])
@pytest.mark.parametrize("name", ["openai", "openai-compatible"])
def test_arguments_that_are_no_json_object(server: Server, tmp_path: Path, name: str, arguments: str) -> None:
    """OpenAI's arguments are text that a model wrote: the tool does not run, and the model is told.

    Incident: llama.cpp (500) and vLLM (400) refused that history, so every later request of the conversation. The record has
    what the model wrote; requests have an empty object.
    """
    dialect = DIALECTS[name]
    answer = dialect.reply("", (("add", {"a": 1, "b": 2}), ("add", {})))
    server.answers += [
        Answer(answer.body.replace(b'"arguments": "{}"', b'"arguments": ' + json.dumps(arguments).encode()))
    ]
    server.answers += [dialect.reply("I see."), dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([ADD])
        assert client.chat("Go") == "I see."
        assert client.chat("Go on") == "Yes."
        assert "the arguments are not a JSON object" in server.requests[1].raw.decode()
        assert conversation.get_messages()[1]["tool_calls"][1]["function"]["arguments"] == arguments
    for body in server.bodies[1:]:
        sent = dialect.messages(body)[1]["tool_calls"]
        assert [json.loads(call["function"]["arguments"]) for call in sent] == [{"a": 1, "b": 2}, {}]


def test_max_steps_is_an_error_with_everything_on_record(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """A model that calls tools for ever is stopped; the last result is on record and the next turn goes on from it."""
    server.answers += [dialect.reply("", (("add", {"a": 1, "b": 1}),))] * 2 + [dialect.reply("Done.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation, max_steps=2)
        client.set_tools([ADD])
        with pytest.raises(MaxStepsError) as caught:
            client.chat("Go")
        assert caught.value.steps == 2
        assert len(server.requests) == 2
        assert len(conversation.get_messages()) == 5
        assert client.chat("Stop it.") == "Done."


def test_a_failed_request_leaves_the_question_on_record(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """The SDK's own error passes through; the next turn works and carries both questions."""
    server.answers += [Answer(b'{"error": {"message": "no"}}', status=402), dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        with pytest.raises(Exception, match="402"):
            client.chat("One")
        assert len(conversation.get_messages()) == 1
        assert client.chat("Two") == "Yes."
        assert dialect.messages(server.bodies[1]) == conversation.get_messages()[:2]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_passing_error_is_retried_as_the_server_asks(dialect: Dialect, server: Server, streamed: bool) -> None:
    """A 429 with its ``Retry-After``: the same body is sent again, after that time, and nothing is on record twice."""
    say = dialect.stream if streamed else dialect.reply
    busy = Answer(b'{"error": {"message": "busy", "code": 429}}', status=429, headers={"Retry-After": "1"})
    server.answers += [busy, say("Yes.")]
    client = connect(dialect, server)
    began = time.monotonic()
    assert (list(client.stream_chat("Go"))[-1].text if streamed else client.chat("Go")) == "Yes."
    assert time.monotonic() - began >= 0.99
    assert server.requests[0].raw == server.requests[1].raw
    assert len(client.export_history()) == 2


@pytest.mark.sampled(every=4)
def test_an_error_that_does_not_pass_is_given_up(dialect: Dialect, server: Server) -> None:
    """Three attempts, then the SDK's own error."""
    server.answers += [
        Answer(b'{"error": {"message": "no", "code": 503}}', status=503, headers={"Retry-After": "0"})
    ] * 4
    client = connect(dialect, server)
    with pytest.raises(Exception, match="503"):
        client.chat("Go")
    assert len(server.requests) == 3
    server.answers.clear()


@pytest.mark.parametrize("cut", [True, False], ids=["connection cut", "ends early"])
def test_a_stream_that_ends_early_keeps_what_came(dialect: Dialect, server: Server, tmp_path: Path, cut: bool) -> None:
    """A cut connection, and a clean end without a stop reason, are an error; what can be sent again is a message."""
    server.answers += [dialect.stream("Half an answer", stop=False, cut=cut), dialect.reply("Whole.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        with pytest.raises(IncompleteResponseError) as caught:
            list(client.stream_chat("Go"))
        assert caught.value.text == "Half an answer"
        record = conversation.get_records()[-1]
        assert record.message is not None
        assert "Half an answer" in json.dumps(record.message)
        assert record.extra is not None
        assert "Half an answer" in json.dumps(record.extra["incomplete"]["partial"])
        assert client.chat("Go on") == "Whole."
        assert dialect.messages(server.bodies[1]) == conversation.get_messages()[:3]


def test_ask_gives_parsed_json(dialect: Dialect, server: Server) -> None:
    """The schema travels in the provider's own member, and the answer comes back parsed."""
    server.answers += [dialect.reply('{"name": "Ada"}'), dialect.reply("no JSON")]
    client = connect(dialect, server)
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    assert client.ask("Who?", schema) == {"name": "Ada"}
    assert json.dumps(schema) in json.dumps(server.bodies[0])
    with pytest.raises(IncompleteResponseError, match="not JSON"):
        client.ask("Who?", schema)


def test_a_prompt_that_is_not_a_text_is_never_recorded(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """Incident: a list as a prompt was recorded, and every later request, of every later process, was refused."""
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        for wrong in (["a"], {"role": "user", "content": "x"}, 5, None, b"bytes"):
            for call in (client.add, client.chat, client.stream_chat, lambda prompt: client.ask(prompt, {})):
                with pytest.raises(TypeError, match="a prompt is a str"):
                    call(wrong)
        with pytest.raises(TypeError, match="a question and then a JSON schema"):
            client.ask("question", "schema")
        with pytest.raises(ValueError, match="must not be empty"):
            client.chat("")
        assert conversation.record_count == 0
        assert server.requests == []


def test_a_tool_that_is_none_is_refused_when_it_is_made(dialect: Dialect, server: Server) -> None:
    """Not by the service, in the middle of a turn."""
    with pytest.raises(TypeError, match="the handler must be callable"):
        Tool("add", "Add.", {"type": "object"}, handler=None)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="a tool's name"):
        Tool("", "Add.", {"type": "object"}, handler=print)
    with pytest.raises(TypeError, match="JSON schema"):
        Tool("add", "Add.", "object", handler=print)  # type: ignore[arg-type]
    client = connect(dialect, server)
    for wrong in (ADD, [{"name": "add"}]):
        with pytest.raises(TypeError, match="a sequence of Tool"):
            client.set_tools(wrong)


def test_a_turn_asks_once_where_the_transcript_ends(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """What an append returns says behind what it stands: five questions a turn were 65 of its 205 calls, and raced."""

    class Counted(ConversationStore):
        asked = 0

        @property
        def position(self) -> TranscriptPosition:
            self.asked += 1
            return super().position

    server.answers += [
        dialect.reply("Hello."),
        dialect.reply("", (("add", {"a": 1, "b": 2}),)),
        dialect.reply("3"),
    ]
    with Counted(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([ADD])
        for prompt in ("Hi", "1 + 2?"):
            before = conversation.asked
            client.chat(prompt)
            assert conversation.asked == before + 1
        assert client.export_history() == conversation.get_messages()
