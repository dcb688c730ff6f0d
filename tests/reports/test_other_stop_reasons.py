"""Replies that were stopped, or are empty, and were taken for answers; refusals that are not about the question, and one that is.

The reports: https://ai.google.dev/gemini-api/docs/openai (``content_filter: RECITATION``), https://api-docs.deepseek.com/api/create-chat-completion
(``insufficient_system_resource``), https://openrouter.ai/docs/api-reference/errors-and-debugging (``error``),
https://docs.anthropic.com/en/api/handling-stop-reasons (an empty answer), https://docs.x.ai/docs/key-information/debugging (400 for a key),
https://github.com/Aider-AI/aider/issues/1880, https://github.com/TheR1D/shell_gpt/issues/653 (429 for what is too large),
https://github.com/vllm-project/vllm/issues/53255 (``tool_calls`` without a call).
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.chat.conftest import connect, no_certificates, no_keys, no_open_connections, server
from tests.chat.dialects import DIALECTS
from tests.chat.server import Answer, Server
from transcript_store import ConversationStore
from transcript_store.chat import Tool
from transcript_store.chat._client import parsed_answer
from transcript_store.chat._provider import refusal_by
from transcript_store.errors import IncompleteResponseError

__all__ = ["no_certificates", "no_keys", "no_open_connections", "server"]

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def openai(content: Any, reason: str, **members: Any) -> Any:
    message = {"role": "assistant", "content": content, **members}
    return {"choices": [{"index": 0, "message": message, "finish_reason": reason}]}


def claude(reason: str, *blocks: Any) -> Any:
    return {**DIALECTS["claude"].body("", ()), "content": list(blocks), "stop_reason": reason}


def gemini(reason: str, *parts: Any) -> Any:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": reason}]}


NO_ANSWERS: list[tuple[str, Any, str]] = [
    ("openai", openai("Half", "content_filter: RECITATION"), "blocked"),
    ("openai", openai("Half", "function_call_filter: MALFORMED_FUNCTION_CALL"), "blocked"),
    ("openai", openai("Half", "sensitive"), "blocked"),
    ("openai", openai("Half", "insufficient_system_resource"), "cut short"),
    ("openai", openai("Half", "network_error"), "cut short"),
    ("openai", openai("Half", "error"), "cut short"),
    ("openai", openai("Half", "abort"), "cut short"),
    ("openai", openai("I look.", "tool_calls"), "calls none"),
    ("openai", openai(None, "stop"), "no content"),
    ("openai", openai("\n", "stop"), "no content"),
    ("openai", openai("", "length", reasoning_content="hm"), "nothing but thinking"),
    ("claude", claude("end_turn"), "no content"),
    ("claude", claude("end_turn", {"type": "text", "text": "\n\n"}), "no content"),
    ("claude", claude("end_turn", THOUGHT, {"type": "text", "text": ""}), "nothing but thinking"),
    ("claude", claude("tool_use", {"type": "text", "text": "I look."}), "calls none"),
    ("gemini", gemini("OTHER", {"text": "Half"}), "blocked"),
    ("gemini", gemini("STOP", {"text": "hm", "thought": True}), "nothing but thinking"),
    ("gemini", gemini("STOP", {"text": "", "thoughtSignature": "c2ln"}), "no content"),
    ("gemini", gemini("STOP", {"text": "\n"}), "no content"),
]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(("name", "body", "why"), NO_ANSWERS)
def test_what_is_no_answer_raises_and_can_be_asked_again(
    server: Server, tmp_path: Path, name: str, body: Any, why: str
) -> None:
    """What came is on record; the question is asked again without it, and the provider takes what follows."""
    dialect = DIALECTS[name]
    server.answers += [Answer(json.dumps(body).encode()), dialect.reply("Whole."), dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        with pytest.raises(IncompleteResponseError, match=why):
            client.chat("Go")
        assert not client.is_answered
        (record,) = conversation.get_records(last=1)
        assert (record.extra or {})["incomplete"]["partial"]
        assert client.retry() == "Whole."
        assert "Half" not in json.dumps(server.bodies[1])
        assert client.chat("Sure?") == "Yes."


def test_an_empty_reply_after_results_of_tools(server: Server, tmp_path: Path) -> None:
    """Claude has nothing to add, and says the same again: docs/chat.md has what helps. No tool runs twice, and no result is lost."""
    dialect = DIALECTS["claude"]
    ran: list[str] = []

    def pay() -> str:
        ran.append("pay")
        return "paid"

    call = claude("tool_use", {"type": "tool_use", "id": "a", "name": "pay", "input": {}})
    empty = Answer(json.dumps(claude("end_turn")).encode())
    server.answers += [Answer(json.dumps(call).encode()), empty, empty, dialect.reply("It is paid.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([Tool("pay", "Pays.", {"type": "object"}, pay)])
        for ask in (partial(client.chat, "Pay"), client.retry):
            with pytest.raises(IncompleteResponseError, match="no content"):
                ask()
        assert client.chat("Please continue.") == "It is paid."
    assert ran == ["pay"]
    results, *continued = server.bodies[3]["messages"][2:]
    assert "paid" in json.dumps(results)
    assert "Please continue." in json.dumps([results, *continued])


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, "Incorrect API key provided: xa***. You can obtain an API key from https://console.x.ai."),
        (400, "Model Not Exist"),
        (400, "openai/gpt-9 is not a valid model ID"),
        (400, 'Failed to load model "qwen". Error: out of memory'),
        (400, "You have reached your specified API usage limits. You will regain access on 2026-12-01."),
        (400, "This organization has been disabled."),
        (400, "Your credit balance is too low to access the Anthropic API."),
        (400, "max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens"),
        (400, "tools.0.custom.name: String should match pattern"),
        (400, "* GenerateContentRequest.tools[0].function_declarations[0].name: Invalid function name."),
        (429, "Rate limit reached for requests per min. Please try again in 20s."),
        (401, "no"),
    ],
)
def test_what_is_not_about_the_question(status: int, reason: str) -> None:
    """Later requests keep the question."""
    assert refusal_by(status, reason) is None


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (429, "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40009."),
        (413, "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 9000"),
        (400, "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."),
        (400, "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 9 bytes > 5 bytes"),
        (400, "input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000"),
        (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
        (400, "This model does not support image inputs"),
        (400, "messages.0.content.1.image.source.url: invalid api key in the address"),
        (400, "* GenerateContentRequest.contents[0].parts[0].inline_data.data: Unable to process input image."),
    ],
)
def test_what_can_never_be_sent(status: int, reason: str) -> None:
    assert refusal_by(status, reason) == {"status": status, "reason": reason}


def test_a_failed_result_without_text_is_sent_with_one(server: Server, tmp_path: Path) -> None:
    """The API answers: content cannot be empty if ``is_error`` is true. And it knows nothing of what the SDK parsed."""
    dialect = DIALECTS["claude"]
    server.answers += [dialect.reply("Yes.")]
    call = {"type": "tool_use", "id": "a", "name": "now", "input": {}}
    failed = {"type": "tool_result", "tool_use_id": "a", "is_error": True, "content": ""}
    said = {"type": "text", "text": "b", "parsed_output": {"a": 1}}
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize(
            provider="claude",
            messages=[
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [failed]},
                {"role": "assistant", "content": [said]},
            ],
        )
        assert connect(dialect, server, conversation).chat("c") == "Yes."
    _, _, results, answer, _ = server.bodies[0]["messages"]
    assert results["content"] == [{**failed, "content": "(no text)"}]
    assert answer["content"] == [{"type": "text", "text": "b"}]


@pytest.mark.parametrize(
    "text", ['```json\n{"a": 1}\n```', '\n```\n{"a": 1}\n```\n\n', '{"a": 1}', '```json \n{"a": 1}\n\n  ```']
)
def test_an_answer_in_a_fence(text: str) -> None:
    assert parsed_answer(text) == {"a": 1}


def test_an_answer_of_blank_lines_takes_no_time_by_their_third_power() -> None:
    """A model that is asked for JSON may write them up to its limit."""
    with pytest.raises(IncompleteResponseError, match="not JSON"):
        parsed_answer("```json\n" + "\n" * 100_000)
    with pytest.raises(IncompleteResponseError, match="not JSON"):
        parsed_answer("```json\n{" + "\n" * 100_000 + "x")
