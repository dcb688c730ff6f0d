"""The native form of texts, tool calls and results, of each provider."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

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
