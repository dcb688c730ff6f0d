"""The native form of texts, tool calls and results, of each provider."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from transcript_store.messages import pydantic_ai_in_claude_form

Provider = Literal["claude", "openai", "gemini"]
Fault = Literal["missing", "out of order", "late", "twice", "foreign"]
PROVIDERS: tuple[Provider, ...] = get_args(Provider)
FAULTS: tuple[Fault, ...] = get_args(Fault)
"""All that may be wrong with an exchange."""

Message = dict[str, Any]
Call = tuple[str, str, dict[str, Any]]
"""Id, name and arguments. Gemini has no ids."""


def native_text(provider: Provider, role: str, texts: Sequence[str], mark: str | None) -> Message:
    """A message of these texts. ``mark`` is what a provider puts beside a text: a signature, or who it is."""
    if provider == "gemini":
        parts: list[Message] = [{"text": text} for text in texts]
        if mark is not None:
            parts[-1]["thoughtSignature"] = mark
        return {"role": "model" if role == "assistant" else "user", "parts": parts}
    content: Any = texts[0]
    if len(texts) > 1:
        content = [{"type": "text", "text": text} for text in texts]
    if mark is not None:
        if provider == "claude":
            content = [{"type": "text", "text": text, "cache_control": {"type": mark}} for text in texts]
        else:
            return {"role": role, "name": mark, "content": content}
    return {"role": role, "content": content}


def native_reply(provider: Provider, text: str, calls: Iterable[Call]) -> Message:
    """A reply of the model: a text, and tool calls."""
    if provider == "claude":
        blocks = [{"type": "tool_use", "id": key, "name": name, "input": given} for key, name, given in calls]
        return {"role": "assistant", "content": [{"type": "text", "text": text}, *blocks]}
    if provider == "openai":
        functions = [
            {"id": key, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for key, name, given in calls
        ]
        return {"role": "assistant", "content": text, "tool_calls": functions}
    parts: list[Message] = [{"functionCall": {"name": name, "args": given}} for _, name, given in calls]
    return {"role": "model", "parts": [{"text": text}, *parts]}


def native_results(provider: Provider, results: Sequence[tuple[str, str, str]]) -> list[Message]:
    """The messages with these results (id and name of the call, text): one of all, or one of each for OpenAI."""
    if provider == "openai":
        return [{"role": "tool", "tool_call_id": key, "content": text} for key, _, text in results]
    if not results:
        return []
    if provider == "claude":
        return [
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": key, "content": text} for key, _, text in results],
            }
        ]
    answers: list[Message] = [
        {"functionResponse": {"name": name, "response": {"output": text}}} for _, name, text in results
    ]
    return [{"role": "user", "parts": answers}]


# ---- pairing ----
#
# The tool calls and results of messages in each provider's form and in pydantic-ai's, and what a provider would refuse about them.

AnyMessage = Mapping[str, Any]


class CallInMessage(NamedTuple):
    """A tool call of a model. If the provider gives no id (Gemini), ``id`` is the name."""

    id: str
    name: str
    arguments: dict[str, Any]


def calls_in(message: AnyMessage) -> list[CallInMessage]:
    """The tool calls in a message: Claude's blocks, OpenAI's ``tool_calls``, Gemini's parts, pydantic-ai's."""
    message = pydantic_ai_in_claude_form(message) or message
    calls = [
        CallInMessage(str(block.get("id")), str(block.get("name")), _arguments(block.get("input")))
        for block in _objects(message.get("content"))
        if block.get("type") == "tool_use"
    ]
    for call in _objects(message.get("tool_calls")):
        function = call.get("function") or {}
        arguments = _arguments(function.get("arguments"))
        calls.append(CallInMessage(str(call.get("id")), str(function.get("name")), arguments))
    for part in _objects(message.get("parts")):
        if isinstance(asked := part.get("functionCall") or part.get("function_call"), Mapping):
            name = str(asked.get("name"))
            calls.append(CallInMessage(str(asked.get("id") or name), name, _arguments(asked.get("args"))))
    return calls


def results_in(message: AnyMessage) -> list[str]:
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


def problem_with(messages: Sequence[AnyMessage]) -> str | None:
    """Why every provider would refuse a request with these messages. None if it knows no reason.

    Each call must be followed directly by its result. Each result must directly follow its call. So a request cannot end with
    a call.
    """
    owed: list[str] = []
    for number, message in enumerate(messages, 1):
        answered = results_in(message)
        for one in answered:
            if one not in owed:
                return f"message {number} answers the call {one}, which was not made there"
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
