"""Undo in an agent: "take back the last message" left a call without its result, and the next request was refused.

Public reports: "tool_use ids were found without tool_result blocks immediately after" (Anthropic), "An assistant message with 'tool_calls'
must be followed by tool messages" (OpenAI), after an undo, a retry or a pop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from transcript_store import ConversationLibrary, ConversationStore, FeatureNotEnabledError
from transcript_store.aio import AsyncConversationStore
from transcript_store.chat import ChatConfig, create_client
from transcript_store.testing import SimulatedBackend, SimulatedFileSystem

FORMS: dict[str, list[Any]] = {
    "claude": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "y"}]},
        {"role": "assistant", "content": "A y."},
    ],
    "openai": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "y"},
        {"role": "assistant", "content": "A y."},
    ],
    "responses": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look."}]},
        {"type": "reasoning", "id": "r1", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "y"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A y."}]},
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "Look."}]},
        {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "y"}}}]},
        {"role": "model", "parts": [{"text": "A y."}]},
    ],
    "pydantic-ai": [
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Look."}]},
        {"kind": "response", "parts": [{"part_kind": "tool-call", "tool_name": "look", "tool_call_id": "c1", "args": "{}"}]},
        {"kind": "request", "parts": [{"part_kind": "tool-return", "tool_name": "look", "tool_call_id": "c1", "content": "y"}]},
        {"kind": "response", "parts": [{"part_kind": "text", "content": "A y."}]},
    ],
}  # fmt: skip


@pytest.fixture(params=FORMS)
def turn(request):
    return FORMS[request.param]


@pytest.fixture(params=["folder", "shared lock", "sealed", "backend"])
def conversation(request, tmp_path):
    key = b"k" * 32 if request.param == "sealed" else None
    library = ConversationLibrary(tmp_path, encryption_key=key)
    if request.param == "backend":
        library = ConversationLibrary(SimulatedBackend(), file_system=SimulatedFileSystem())
    with library.create(features=["retract"], hold_lock=request.param != "shared lock") as conversation:
        yield conversation


@pytest.mark.sampled(every=3)
def test_a_turn_is_retracted_whole(conversation, turn):
    """Wherever it stopped: after the prompt, the call, the result or the answer; events and earlier turns stay."""
    conversation.append_messages(turn)
    for length in range(1, len(turn) + 1):
        conversation.append_messages(turn[:length])
        conversation.append_event({"length": length})
        conversation.retract_turn()
        assert conversation.get_messages() == turn
    conversation.retract_turn()
    assert conversation.get_messages() == []
    before = conversation.record_count
    with pytest.raises(ValueError, match="no turn to retract"):
        conversation.retract_turn()
    assert conversation.record_count == before


def test_a_long_turn(conversation):
    """A hundred calls in one turn: they are looked through from the end."""
    prompt, call, result, answer = FORMS["claude"]
    conversation.append_messages([prompt, answer, prompt, *([call, result] * 100), answer])
    conversation.retract_turn(if_head=conversation.head)
    assert conversation.get_messages() == [prompt, answer]


@pytest.mark.sampled(every=3)
def test_a_result_that_is_retracted_alone_is_said(conversation, turn, caplog):
    """``retract(n)`` does it, as some loops run a call again, and the log names the conversation and the other call."""
    calls = len(turn) - 2  # the answer and the result
    conversation.append_messages(turn)
    with caplog.at_level(logging.WARNING, "transcript_store"):
        conversation.retract(1)
        assert caplog.messages == []
        conversation.retract(1)
        assert len(caplog.messages) == 1
        assert "retract_turn()" in caplog.messages[0]
        assert conversation.get_messages() == turn[:calls]
        caplog.clear()
        conversation.retract(calls)
        assert caplog.messages == []


def test_what_a_chat_client_begins_can_retract(tmp_path):
    with ConversationStore(tmp_path / "c") as conversation:
        create_client(ChatConfig(provider="claude", token="t"), conversation=conversation)
        assert conversation.features == ("retract",)
    with ConversationStore(tmp_path / "d") as conversation:
        conversation.initialize(messages=FORMS["claude"])
        with pytest.raises(FeatureNotEnabledError):
            conversation.retract_turn()


def test_for_tasks(tmp_path):
    async def main() -> None:
        async with AsyncConversationStore(tmp_path / "c") as conversation:
            await conversation.initialize(messages=FORMS["openai"], features=["retract"])
            await conversation.retract_turn()
            assert await conversation.get_messages() == []

    asyncio.run(main())
