"""The wire formats as functions of values: streams cut at every event, members that only a response may have, odd servers.

No server and no SDK's network here; the SDKs' own types are asked what a request may carry.
"""

from __future__ import annotations

import json
from typing import Any, get_args, get_type_hints

import pytest

from tests.chat.dialects import DIALECTS, Dialect
from tests.kit.cases import for_each
from transcript_store.chat._create import PROVIDERS
from transcript_store.chat._provider import Message, Reply, Request, ToolDescription, WireFormat
from transcript_store.chat._providers.claude import ClaudeWire
from transcript_store.chat._providers.gemini import GeminiWire
from transcript_store.chat._providers.openai import OpenAIWire
from transcript_store.chat._turns import owed, paired

CALLS: tuple[tuple[str, dict[str, Any]], ...] = (("add", {"a": 1, "b": [2]}), ("add", {"a": 3}))


def events_of(dialect: Dialect, text: str = "The answer.", **options: Any) -> list[dict[str, Any]]:
    lines = "".join(dialect.events(text, CALLS, stop=True, **options)).splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def assemble(wire: WireFormat, events: list[dict[str, Any]]) -> tuple[Reply, str]:
    assembly = wire.assembly()
    text = "".join([assembly.add(event) for event in events])
    return assembly.reply(), text


def test_a_stream_gives_the_reply_that_no_stream_gives(dialect: Dialect) -> None:
    """Message and extra are equal, member for member, whether they came in one piece or in events."""
    wire = PROVIDERS[dialect.provider].wire()
    streamed, text = assemble(wire, events_of(dialect))
    whole = wire.reply(dialect.body("The answer.", CALLS))
    assert streamed == whole
    assert text == whole.text == "The answer."
    assert streamed.incomplete is None


def test_cut_at_every_event(dialect: Dialect) -> None:
    """Whatever prefix of a stream came, what is recorded of it can be sent again, and no text that was shown is lost."""
    wire = PROVIDERS[dialect.provider].wire()
    events = events_of(dialect)
    empty = recorded = 0
    for end in range(len(events) + 1):
        reply, text = assemble(wire, events[:end])
        if reply.incomplete is None:
            assert end >= len(events) - 2
            continue
        assert reply.text == text
        json.dumps(reply.raw)
        if reply.message is None:
            assert not text
            empty += 1
            continue
        recorded += 1
        question, go_on = wire.user_message("Go"), wire.user_message("Go on")
        debt = owed(wire, [reply.message], {}, cut_short=True)
        history = paired(wire, [question, reply.message, *debt.messages, go_on])
        body = wire.request(Request(model="m", system_prompt=None, messages=history), stream=True)
        assert dialect.refusal(body) is None
        assert "was not run" in json.dumps(debt.messages) or not wire.calls(reply.message)
        for call in wire.calls(reply.message):
            assert call.arguments in [arguments for _, arguments in CALLS]
        if dialect.name == "claude":
            assert reply.message["content"][-1]["type"] != "thinking"
            assert all(block.get("text", "x").strip() for block in reply.message["content"])
    assert empty >= 1
    assert recorded >= 3


def test_a_thinking_block_without_its_signature_is_not_recorded() -> None:
    """Claude refuses it; with its signature and something behind it, it is kept as it came."""
    wire = ClaudeWire()
    thinking = {"type": "thinking", "thinking": "hm", "signature": ""}
    text = {"type": "text", "text": "So"}
    body: dict[str, Any] = {"role": "assistant", "content": [thinking, text], "stop_reason": None}
    assert wire.reply(body).message == {"role": "assistant", "content": [text]}
    body["content"] = [signed := {**thinking, "signature": "s"}, text]
    assert wire.reply(body).message == {"role": "assistant", "content": [signed, text]}
    body["content"] = [signed]
    assert wire.reply(body).message is None
    assert wire.reply(body).raw == body


def test_a_thought_without_its_signature_is_not_recorded() -> None:
    """The same for Gemini's thoughts; empty text goes, a signature on empty text stays."""
    parts: list[dict[str, Any]] = [{"text": "hm", "thought": True}, {"text": ""}, {"text": "", "thoughtSignature": "s"}]
    assembly = GeminiWire().assembly()
    assembly.add({"candidates": [{"content": {"role": "model", "parts": parts}}]})
    assert assembly.reply().message == {"role": "model", "parts": parts[2:]}


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_reply_that_ran_out_of_tokens_in_a_call(reason: str) -> None:
    """Arguments that are JSON by chance may still be cut: the last call is not run, and the error says why."""
    call = {"id": "c", "type": "function", "function": {"name": "rm", "arguments": '{"path": "/"}'}}
    message = {"role": "assistant", "content": "Deleting", "tool_calls": [call]}
    reply = OpenAIWire().reply({"choices": [{"message": message, "finish_reason": reason}]})
    assert reply.message == {"role": "assistant", "content": "Deleting"}
    assert reply.incomplete is not None
    assert reason in reply.incomplete
    block = {"type": "tool_use", "id": "t", "name": "rm", "input": {"path": "/"}}
    cut = ClaudeWire().reply({"role": "assistant", "content": [block], "stop_reason": "max_tokens"})
    assert cut.message is None
    assert cut.incomplete


def test_a_block_that_stops_with_half_its_input_is_half() -> None:
    """Claude says that the block is over, and its input is no JSON: the call is not made up from what there is."""
    assembly = ClaudeWire().assembly()
    block = {"type": "tool_use", "id": "t", "name": "rm", "input": {}}
    for event in (
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"path": '}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": None},
    ):
        assembly.add(event)
    reply = assembly.reply()
    assert reply.message is None
    assert reply.incomplete == "the reply was cut short (tool_use)"
    assert reply.raw["content"] == [{**block, "partial_json": '{"path": '}]


def test_text_in_parts_and_choices_that_nobody_asked_for() -> None:
    """Some compatible servers answer with content parts; of several choices the first one is the reply."""
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert OpenAIWire().reply({"choices": [{"message": {"role": "assistant", "content": parts}}]}).text == "ab"
    events = [{"choices": [{"index": k, "delta": {"content": str(k)}, "finish_reason": "stop"}]} for k in (1, 0)]
    assert assemble(OpenAIWire(), events)[1] == "0"
    refusal = {"role": "assistant", "content": None, "refusal": "No."}
    assert OpenAIWire().reply({"choices": [{"message": refusal, "finish_reason": "stop"}]}).text == "No."


def test_a_blocked_prompt_is_an_incomplete_reply() -> None:
    """Gemini answers a blocked prompt with a response that holds no content at all."""
    reply = GeminiWire().reply({"promptFeedback": {"blockReason": "SAFETY"}})
    assert reply.message is None
    assert reply.incomplete == "the prompt was blocked (SAFETY)"


def test_servers_that_number_their_calls_otherwise() -> None:
    """Compatible servers leave out the index of a call, or repeat its id and name in each chunk."""
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": ""}}
    unnumbered = [
        {"role": "assistant", "tool_calls": [call]},
        {"tool_calls": [{"function": {"arguments": "{}"}}]},
        {"tool_calls": [{**call, "id": "c2", "function": {"name": "add", "arguments": "{}"}}]},
    ]
    repeating = [
        {"role": "assistant", "tool_calls": [{**call, "index": 0}]},
        {"role": "assistant", "tool_calls": [{**call, "index": 0, "function": {"name": "add", "arguments": "{}"}}]},
        {"tool_calls": [{**call, "id": "c2", "index": 1, "function": {"name": "add", "arguments": "{}"}}]},
    ]
    for deltas in (unnumbered, repeating):
        events = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
        reply, _ = assemble(OpenAIWire(), events)
        assert reply.message is not None
        assert [(c["id"], c["function"]) for c in reply.message["tool_calls"]] == [
            (call_id, {"name": "add", "arguments": "{}"}) for call_id in ("c1", "c2")
        ]


def test_unknown_deltas_are_added_up() -> None:
    """Reasoning text, signatures in members of their own, and members nobody knows yet survive a stream."""
    deltas = [
        {"role": "assistant", "reasoning_content": "Let me ", "extra_content": {"google": {"thought_signature": "s"}}},
        {"reasoning_content": "see.", "x": [{"index": 0, "a": "1"}]},
        {"content": "Yes", "x": [{"index": 0, "a": "2"}, 3]},
    ]
    events = [{"choices": [{"delta": delta}]} for delta in deltas] + [{"choices": [{"finish_reason": "stop"}]}]
    reply, text = assemble(OpenAIWire(), events)
    assert reply.message == {
        "role": "assistant",
        "reasoning_content": "Let me see.",
        "extra_content": {"google": {"thought_signature": "s"}},
        "x": [{"index": 0, "a": "12"}, 3],
        "content": "Yes",
    }
    assert text == "Yes"
    claude = ClaudeWire().assembly()
    claude.add({"type": "content_block_start", "index": 0, "content_block": {"type": "new", "a": "x"}})
    claude.add({"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta", "a": "y", "b": 1}})
    claude.add({"type": "content_block_stop", "index": 0})
    claude.add({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    assert claude.reply().message == {"role": "assistant", "content": [{"type": "new", "a": "xy", "b": 1}]}


def test_citations_survive_a_stream_and_lose_in_a_request_what_only_a_response_may_have() -> None:
    """The members in question are those of the SDK's response types that its request types do not have."""
    from anthropic import types

    only = {
        get_args(model.model_fields["type"].annotation)[0]: set(model.model_fields) - set(get_type_hints(param))
        for model in get_args(get_args(types.TextCitation)[0])
        if (param := getattr(types, f"{model.__name__}Param", None)) is not None
    }
    assert only["char_location"] == only["page_location"] == only["content_block_location"] == {"file_id"}
    citation = {"type": "char_location", "cited_text": "x", "document_index": 0, "file_id": "f", "start_char_index": 0}
    search = {"type": "web_search_result_location", "url": "u", "file_id": "kept: a search has none of its own"}
    assembly = ClaudeWire().assembly()
    assembly.add({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "So"}})
    for one in (citation, search):
        delta = {"type": "citations_delta", "citation": one}
        assembly.add({"type": "content_block_delta", "index": 0, "delta": delta})
    assembly.add({"type": "content_block_stop", "index": 0})
    assembly.add({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    message = assembly.reply().message
    assert message is not None
    assert message["content"][0]["citations"] == [citation, search]
    (sent,) = sent_messages(ClaudeWire(), message)
    assert sent["content"][0]["citations"] == [{k: v for k, v in citation.items() if k != "file_id"}, search]


def test_claude_is_sent_results_before_texts() -> None:
    """In one message of an imported history; the order within each kind, and the record, stay.

    Incident: behind a text the API finds no results, and refuses this request and all later ones: "Messages following tool_use
    blocks must begin with a matching number of tool_result blocks".
    """
    calls: list[Any] = [{"type": "tool_use", "id": k, "name": "add", "input": {}} for k in "ab"]
    one, two = ({"type": "tool_result", "tool_use_id": k, "content": k} for k in "ab")
    text, image = (
        {"type": "text", "text": "see"},
        {"type": "image", "source": {"type": "url", "url": "https://x.test/"}},
    )
    message = {"role": "user", "content": [text, two, image, {"type": "text", "text": " "}, one]}
    history: list[Message] = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": calls}, message]
    sent = sent_messages(ClaudeWire(), *paired(ClaudeWire(), history))
    assert sent[:2] == history[:2]
    assert sent[2:] == [{"role": "user", "content": [two, one, text, image]}]
    assert DIALECTS["claude"].refusal({"messages": history}) is not None
    assert DIALECTS["claude"].refusal({"messages": sent}) is None
    reply = {"role": "assistant", "content": [text, {"type": "server_tool_use", "id": "s"}, text]}
    assert sent_messages(ClaudeWire(), reply) == [reply]


def test_openai_requests_leave_out_what_only_a_response_has() -> None:
    """Annotations, and all of an audio reply but its id; an empty list of calls, which is refused; the record keeps them."""
    message = {
        "role": "assistant",
        "content": "Hi",
        "refusal": None,
        "annotations": [{"type": "url_citation"}],
        "audio": {"id": "a", "data": "…", "expires_at": 1, "transcript": "Hi"},
        "tool_calls": [],
    }
    (sent,) = sent_messages(OpenAIWire(), message)
    assert sent == {"role": "assistant", "content": "Hi", "refusal": None, "audio": {"id": "a"}}
    from openai.types.chat import ChatCompletionAssistantMessageParam, ChatCompletionMessage

    allowed = set(get_type_hints(ChatCompletionAssistantMessageParam))
    assert set(ChatCompletionMessage.model_fields) - allowed == {"annotations"}


@for_each(
    "wire, message",
    [
        (ClaudeWire(), {"role": "assistant", "content": []}),
        (ClaudeWire(), {"role": "assistant", "content": [{"type": "text", "text": ""}]}),
        (ClaudeWire(), {"role": "assistant", "content": ""}),
        (OpenAIWire(), {"role": "assistant", "content": None}),
        (GeminiWire(), {"role": "model"}),
        (GeminiWire(), {"role": "model", "parts": []}),
    ],
)
def test_a_reply_that_says_nothing_is_not_sent(wire: WireFormat, message: Message) -> None:
    """It is on record as it came; the services refuse a message without content."""
    assert sent_messages(wire, message) == []


def sent_messages(wire: WireFormat, *messages: Message) -> list[Any]:
    before = json.dumps(messages)
    body = wire.request(Request(model="m", system_prompt=None, messages=messages), stream=False)
    assert json.dumps(messages) == before
    sent: list[Any] = body["messages"] if "messages" in body else body["contents"]
    return sent


def test_requests_satisfy_the_sdks_own_types(dialect: Dialect) -> None:
    """System prompt, tools, limit and schema stand where the SDK's request types have them."""
    from anthropic.types import MessageCreateParams
    from google.genai.types import Content, FunctionDeclaration, GenerationConfig
    from openai.types.chat import CompletionCreateParams
    from pydantic import TypeAdapter

    wire = PROVIDERS[dialect.provider].wire()
    tool_message = wire.reply(dialect.body("", CALLS)).message
    assert tool_message is not None
    results = [wire.result(call, "r", is_error=True) for call in wire.calls(tool_message)]
    request = Request(
        model="m",
        system_prompt="Be brief.",
        messages=[
            wire.user_message("Go"),
            tool_message,
            *(results if wire.results_are_messages else [wire.results_message(results)]),
        ],
        tools=[ToolDescription(name="add", description="Add.", parameters={"type": "object", "properties": {}})],
        max_tokens=5,
        schema={"type": "object"},
    )
    body = wire.request(request, stream=True)
    if dialect.name == "claude":
        TypeAdapter(MessageCreateParams).validate_python(body)
        assert body["max_tokens"] == 5
    elif dialect.name == "gemini":
        for content in body["contents"]:
            known = [{k: v for k, v in part.items() if k != "xNew"} for part in content["parts"]]
            Content.model_validate({**content, "parts": known})
        GenerationConfig.model_validate(body["generationConfig"])
        (declaration,) = body["tools"][0]["functionDeclarations"]
        assert FunctionDeclaration.model_validate(declaration).parameters_json_schema == {
            "type": "object",
            "properties": {},
        }
        assert body["generationConfig"]["maxOutputTokens"] == 5
    else:
        TypeAdapter(CompletionCreateParams).validate_python(body)
        limit = "max_tokens" if dialect.name == "openai-compatible" else "max_completion_tokens"
        assert body[limit] == 5


def test_default_models_are_known_to_the_sdks() -> None:
    """A default that a provider has dropped from its SDK would fail for every new user."""
    from anthropic.types import Model
    from google.genai import models
    from openai.types.shared import ChatModel

    assert PROVIDERS["claude"].default_model in get_args(get_args(Model)[0])
    assert PROVIDERS["openai"].default_model in get_args(ChatModel)
    assert PROVIDERS["gemini"].default_model in (models.Models.generate_content_stream.__doc__ or "")
