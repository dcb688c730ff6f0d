"""A loop of your own on an SDK: the API accepts the stored messages of a reply.

Public reports: "messages.1.id: Extra inputs are not permitted" (anthropic-sdk-python), "Unknown parameter: 'input[1].parsed_arguments'"
and "'messages[1].annotations'" (openai-python), a thought signature that is refused (python-genai), after ``reply.model_dump()`` was
sent again. The SDKs run as they are, against a server on this machine that refuses what the services refuse.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.chat.dialects import DIALECTS, sse
from tests.chat.server import Answer, Server
from tests.kit.children import Child
from transcript_store import ConversationStore, InvalidMessageError
from transcript_store.messages import ReplyMessages, from_reply, parts_of, tokens_in

CALL = ("look", {"at": "x", "nothing": None})
EXAMPLE = Path(__file__).parents[2] / "examples" / "own_loop.py"
MODEL = "model-under-test"


def anthropic_client(server: Server) -> Any:
    import anthropic

    return anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0)


def openai_client(server: Server) -> Any:
    import openai

    return openai.OpenAI(api_key="k", base_url=server.url, max_retries=0)


def gemini_client(server: Server) -> Any:
    from google import genai
    from google.genai import types

    return genai.Client(vertexai=False, api_key="k", http_options=types.HttpOptions(base_url=server.url))


def claude_reply(server: Server, way: str, messages: list[Any]) -> Any:
    request = {"model": MODEL, "max_tokens": 9, "messages": messages}
    with anthropic_client(server) as client:
        if way == "stream":
            with client.messages.stream(**request) as stream:
                return stream.get_final_message()
        return client.messages.create(**request)


def openai_reply(server: Server, way: str, messages: list[Any]) -> Any:
    with openai_client(server) as client:
        if way == "stream":
            with client.chat.completions.stream(model=MODEL, messages=messages) as stream:
                return stream.get_final_completion()
        if way == "parse":
            return client.chat.completions.parse(model=MODEL, messages=messages)
        return client.chat.completions.create(model=MODEL, messages=messages)


def gemini_reply(server: Server, way: str, messages: list[Any]) -> Any:
    with closing(gemini_client(server)) as client:
        if way == "stream":
            return list(client.models.generate_content_stream(model=MODEL, contents=messages))
        return client.models.generate_content(model=MODEL, contents=messages)


ASK = {"claude": claude_reply, "openai": openai_reply, "gemini": gemini_reply}
WAYS = ("create", "stream", "parse", "dict", "raw")


def result_message(dialect: str, call_id: str = "") -> dict[str, Any]:
    if dialect == "claude":
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_0", "content": "y"}]}
    if dialect == "openai":
        return {"role": "tool", "tool_call_id": "call_0", "content": "y"}
    return {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "y"}}}]}


def question(dialect: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": "?"}]} if dialect == "gemini" else {"role": "user", "content": "?"}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dialect", ASK)
def test_a_reply_is_sent_again(dialect: str, way: str, server: Server, tmp_path: Path) -> None:
    """Whole, streamed, parsed, as a dict or as the server sent it: stored, read back and sent with the result of its call.

    The extra has what belongs to the reply, so that tokens are counted. Nothing that the model said is missing.
    """
    spoken = DIALECTS[dialect]
    server.answers += [(spoken.stream if way == "stream" else spoken.reply)("Look.", (CALL,)), spoken.reply("Done.")]
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize(provider=dialect, messages=[question(dialect)])
        reply = ASK[dialect](server, way, conversation.get_messages())
        if way == "dict":
            reply = reply.model_dump()
        if way == "raw":
            body = json.dumps(spoken.body("Look.", (CALL,)))
            reply = json.loads(
                body.replace(', "xNew": [1]', "")
            )  # google-genai refuses to send a member that it does not know
        messages, extras = from_reply(reply)
        conversation.append_messages(messages, extras=extras)
        conversation.append_message(result_message(dialect))
        ASK[dialect](server, "create", conversation.get_messages())
        (stored,) = conversation.get_records()[1:2]
    assert stored.message
    assert stored.extra
    assert stored.extra["model"] == MODEL
    assert stored.extra["response_id"]
    assert stored.extra["stop_reason"]
    assert tokens_in(stored.extra["usage"]).input == 12
    said = "".join(part.text or "" for part in parts_of(stored.message) if part.kind == "text")
    assert "Look." in said
    if dialect == "claude":
        assert server.bodies[-1]["messages"][1].keys() == {"role", "content"}
    if dialect == "openai":
        assert not server.bodies[-1]["messages"][1].keys() & {"parsed", "annotations", "refusal"}
        assert "parsed_arguments" not in json.dumps(server.bodies[-1])
    if dialect == "gemini":
        (signed,) = (part for part in server.bodies[-1]["contents"][1]["parts"] if part.get("thoughtSignature"))
        assert signed["thoughtSignature"].replace("-", "+").replace("_", "/") == "Et0B+/8="


REASONING: dict[str, Any] = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [],
    "encrypted_content": None,
    "status": None,
}
SAID = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Look.", "annotations": [], "logprobs": []}],
}
CALLED = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_0",
    "name": "look",
    "arguments": json.dumps(CALL[1]),
    "status": "completed",
}


def response(*items: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": MODEL,
        "output": list(items),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {"input_tokens": 12, "output_tokens": 5, "total_tokens": 17},
        **members,
    }


@pytest.mark.parametrize("way", ["create", "parse", "stream", "dict", "raw"])
def test_a_response_is_a_message_for_each_item(way: str, server: Server, tmp_path: Path) -> None:
    """OpenAI's Responses: reasoning, text and call are stored together, in their order, and are the next request's input."""
    body = response(REASONING, SAID, CALLED)
    whole = Answer(json.dumps(body).encode())
    done = {"type": "response.completed", "sequence_number": 1, "response": body}
    created = {"type": "response.created", "sequence_number": 0, "response": {**body, "output": []}}
    streamed = Answer((sse(created) + sse(done)).encode(), content_type="text/event-stream")
    server.answers += [streamed if way == "stream" else whole, Answer(json.dumps(response(SAID)).encode())]
    with openai_client(server) as client, ConversationStore(tmp_path / "c") as conversation:
        responses = client.responses
        conversation.initialize(provider="openai-responses", messages=[question("openai")])
        asked: dict[str, Any] = {"model": MODEL, "input": conversation.get_messages()}
        if way == "stream":
            with responses.stream(**asked) as stream:
                reply = stream.get_final_response()
        else:
            reply = (responses.parse if way == "parse" else responses.create)(**asked)
        reply = reply.model_dump() if way == "dict" else body if way == "raw" else reply
        messages, extras = from_reply(reply)
        conversation.append_messages(messages, extras=extras)
        conversation.append_message({"type": "function_call_output", "call_id": "call_0", "output": "y"})
        responses.create(model=MODEL, input=conversation.get_messages())
        usage = [record.extra["usage"] for record in conversation.get_records() if record.extra]
    items = server.bodies[-1]["input"]
    assert [item.get("type") for item in items] == [
        None,
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
    ]
    assert items[1] == {"id": "rs_1", "type": "reasoning", "summary": []}
    assert items[2] == SAID
    assert items[3] == CALLED
    assert [each["input_tokens"] for each in usage] == [12]


def test_reasoning_that_no_server_keeps_is_left_out() -> None:
    """With ``store=False`` an item of reasoning can be sent again only encrypted ("Item with id 'rs_1' not found")."""
    encrypted = {**REASONING, "encrypted_content": "gAAA"}
    messages, extras = from_reply(response(REASONING, encrypted, SAID, store=False))
    assert [message and message["id"] for message in messages] == ["rs_1", "msg_1"]
    assert extras[-1]
    assert extras[-1]["left_out"] == [{"id": "rs_1", "type": "reasoning", "summary": []}]


def test_what_the_apis_refuse_is_in_the_extra() -> None:
    """White space, thinking at the end or without its signature, an empty reply: nothing that was said is lost."""
    claude = {"type": "message", "role": "assistant", "id": "m", "stop_reason": "end_turn"}
    unsigned = {"type": "thinking", "thinking": "so"}
    text = {"type": "text", "text": "Yes."}
    cases: list[tuple[list[Any], list[Any] | None, list[Any] | None]] = [
        ([], None, None),
        ([{"type": "text", "text": ""}], None, None),
        ([unsigned, text, {"type": "text", "text": "\n"}], [text], [unsigned, {"type": "text", "text": "\n"}]),
        ([text, {**unsigned, "signature": "s"}], [text], [{**unsigned, "signature": "s"}]),
        ([{**text, "citations": None, "parsed_output": None}], [text], None),
    ]
    for content, kept, left_out in cases:
        (message,), (extra,) = from_reply({**claude, "content": content})
        assert message == (None if kept is None else {"role": "assistant", "content": kept})
        assert extra
        assert (extra["response_id"], extra.get("left_out")) == ("m", left_out)
    assert from_reply({"choices": []}) == ReplyMessages([None], [{}])
    assert from_reply({"choices": [{"message": {"role": "assistant", "content": None}}]}).messages == [None]
    blocked = from_reply({"candidates": None, "promptFeedback": {"blockReason": "SAFETY"}})
    assert blocked.messages == [None]
    assert blocked.extras[0]
    assert blocked.extras[0]["stop_reason"] == "SAFETY"


def test_an_empty_reply_is_an_event(tmp_path: Path) -> None:
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize()
        messages, extras = from_reply({"choices": []})
        conversation.append_messages(messages, extras=extras)
        assert (conversation.record_count, conversation.get_messages()) == (1, [])


def test_the_reply_of_the_caller_is_not_changed() -> None:
    reply = response(REASONING, SAID)
    before = json.dumps(reply)
    from_reply(reply).messages[0]["summary"].append("mine")  # type: ignore[index]
    assert json.dumps(reply) == before


def test_what_is_no_reply() -> None:
    """The stream itself, an event, a list of strangers: the error names what would be one."""

    class Stream:
        def get_final_message(self) -> None: ...

    with pytest.raises(TypeError, match=r"get_final_message\(\)"):
        from_reply(Stream())
    chunk = {"object": "chat.completion.chunk", "choices": [{"delta": {}}]}
    for stranger in (None, "text", 3, {}, [], [3], [chunk], chunk, {"role": "user", "content": "?"}, response):
        with pytest.raises(TypeError, match="from_reply"):
            from_reply(stranger)


def test_an_append_of_a_reply_names_the_function(server: Server, tmp_path: Path) -> None:
    """``append_message(reply)`` of any SDK's reply says ``from_reply``; of another model it says how it becomes JSON."""
    import anthropic.types
    from pydantic import BaseModel

    class Mine(BaseModel):
        choices: list[int] = []

    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize()
        for dialect, ask in ASK.items():
            server.answers.append(DIALECTS[dialect].reply("Yes."))
            reply = ask(server, "create", [question(dialect)])
            with pytest.raises(InvalidMessageError, match=r"messages\.from_reply\(reply\)"):
                conversation.append_message(reply)
            with pytest.raises(InvalidMessageError, match=r"messages\.from_reply\(reply\)"):
                conversation.append_messages([reply])
            with pytest.raises(TypeError, match=r"messages\.from_reply\(reply\)"):
                conversation.append_messages(reply)
        block = anthropic.types.TextBlock(type="text", text="x")  # as Anthropic's own examples send the content again
        with pytest.raises(InvalidMessageError, match=r"content.*messages\.from_reply\(reply\)"):
            conversation.append_message({"role": "assistant", "content": [block]})
        with pytest.raises(InvalidMessageError, match=r'model_dump\(mode="json"\)'):
            conversation.append_message(Mine())  # type: ignore[arg-type]
        with pytest.raises(InvalidMessageError, match=r"append_messages\(\) takes several"):
            conversation.append_message(from_reply({"choices": []}))  # type: ignore[arg-type]


def test_the_example_resumes(server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """``examples/own_loop.py``, killed before its tool's result is stored, answers the call and ends its turn when it runs again."""
    spoken = DIALECTS["claude"]
    call = ("list_files", {"folder": str(EXAMPLE.parent)})
    environment = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}

    def the_program(say: object) -> None:  # in a fork that has the SDK already
        os.environ.update(environment)
        sys.argv = [str(EXAMPLE), str(tmp_path / "c"), "Which", "files?"]
        runpy.run_path(str(EXAMPLE), run_name="__main__")
        sys.stdout.flush()

    import anthropic  # noqa: F401

    process = Child(the_program)
    server.answers.append(spoken.reply("", (call,)))

    def kill() -> Answer:
        os.kill(process.pid, signal.SIGKILL)
        return spoken.reply("", ())

    server.answers.append(kill)
    process.wait_until_it_said("the end")  # or until it was killed
    process.end(signal.SIGKILL)
    assert len(server.bodies) == 2
    server.answers.append(spoken.reply("own_loop.py and others."))
    capfd.readouterr()
    Child(the_program).end()
    assert capfd.readouterr().out == "own_loop.py and others.\n"
    (_, _, results) = server.bodies[-1]["messages"]
    assert "own_loop.py" in results["content"][0]["content"]


def test_a_message_of_a_choice() -> None:
    """``reply.choices[0].message``, as OpenAI's own examples append it: without what the API refuses, and without an extra."""
    from openai.types.chat import ChatCompletionMessage

    message = ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": "Yes.", "annotations": [], "refusal": None}
    )
    assert from_reply(message) == ReplyMessages([{"role": "assistant", "content": "Yes."}], [None])
