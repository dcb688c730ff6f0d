"""The tool calls and results of messages in each provider's form and in pydantic-ai's, and what a provider would refuse about them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from transcript_store.messages import pydantic_ai_in_claude_form

Message = Mapping[str, Any]


class ToolCall(NamedTuple):
    """A tool call of a model. If the provider gives no id (Gemini), ``id`` is the name."""

    id: str
    name: str
    arguments: dict[str, Any]


def calls_in(message: Message) -> list[ToolCall]:
    """The tool calls in a message: Claude's blocks, OpenAI's ``tool_calls``, Gemini's parts, pydantic-ai's."""
    message = pydantic_ai_in_claude_form(message) or message
    calls = [
        ToolCall(str(block.get("id")), str(block.get("name")), _arguments(block.get("input")))
        for block in _objects(message.get("content"))
        if block.get("type") == "tool_use"
    ]
    for call in _objects(message.get("tool_calls")):
        function = call.get("function") or {}
        arguments = _arguments(function.get("arguments"))
        calls.append(ToolCall(str(call.get("id")), str(function.get("name")), arguments))
    for part in _objects(message.get("parts")):
        if isinstance(asked := part.get("functionCall") or part.get("function_call"), Mapping):
            name = str(asked.get("name"))
            calls.append(ToolCall(str(asked.get("id") or name), name, _arguments(asked.get("args"))))
    return calls


def results_in(message: Message) -> list[str]:
    """The ids of the calls whose results are in a message; the name if there is no id."""
    message = pydantic_ai_in_claude_form(message) or message
    found = [
        str(block.get("tool_use_id"))
        for block in _objects(message.get("content"))
        if block.get("type") == "tool_result"
    ]
    if message.get("role") == "tool":
        found.append(str(message.get("tool_call_id")))
    answers = [part.get("functionResponse") or part.get("function_response") for part in _objects(message.get("parts"))]
    return found + [str(one.get("id") or one.get("name")) for one in answers if isinstance(one, Mapping)]


def problem_with(messages: Sequence[Message]) -> str | None:
    """Why every provider would refuse a request with these messages. None if it knows no reason.

    Each call must be followed directly by its result. Each result must directly follow its call. So a request cannot end with
    a call.
    """
    owed: list[str] = []
    for number, message in enumerate(messages, 1):
        answered = results_in(message)
        for one in answered:
            if one not in owed:
                return f"message {number} answers the call {one}, which nobody made there"
            owed.remove(one)
        if owed and (not answered or calls_in(message)):
            return f"message {number} follows the call {owed[0]}, which has no result"
        owed += [call.id for call in calls_in(message)]
    if owed:
        return f"the call {owed[0]} has no result"
    return None


def _objects(value: Any) -> Iterable[Mapping[str, Any]]:
    return (item for item in value if isinstance(item, Mapping)) if isinstance(value, list) else ()


def _arguments(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {"": value}
    return dict(value) if isinstance(value, Mapping) else {}
