"""How is a message of pydantic-ai written in Claude's form? Code that displays, searches or exports messages then has
one form less to handle.

A message has a ``kind``, ``request`` or ``response``, and ``parts`` with a ``part_kind`` each. In a stored message
every member can be missing or of another type: an unknown part stays unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_ROLES = {"request": "user", "response": "assistant"}
_SAID = ("text", "user-prompt", "retry-prompt", "retry-feedback")
_FAILURES = ("failed", "retried")
"""Outcomes that are sent to providers as an error. A denied or interrupted call has an ordinary result that says so."""
_STANDARD_BASE64 = str.maketrans("-_", "+/")


def role_in(message: Mapping[str, Any]) -> str | None:
    """The role of the message; None if it is not a message of pydantic-ai: no provider's message has a kind and parts
    but no role.

    A request with only the system prompt has the role of the system. Beside other parts that prompt is a separate part.
    """
    kind = message.get("kind")
    if not isinstance(kind, str) or kind not in _ROLES or not isinstance(message.get("parts"), list):
        return None
    if "role" in message or "content" in message:
        return None
    kinds = [part.get("part_kind") if isinstance(part, dict) else None for part in message["parts"]]
    return "system" if kinds and all(each == "system-prompt" for each in kinds) else _ROLES[kind]


def in_claude_form(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """The message with ``role`` and ``content`` instead of ``kind`` and ``parts``; its other members stay.

    None if it is not a message of pydantic-ai.
    """
    role = role_in(message)
    if role is None:
        return None
    content: list[Any] = []
    for part in message["parts"]:
        content += _blocks(part, is_system=role == "system")
    rest = {name: member for name, member in message.items() if name not in ("kind", "parts")}
    return {"role": role, "content": content, **rest}


def _blocks(part: object, *, is_system: bool) -> Iterator[Any]:
    if not isinstance(part, dict):
        yield part
        return
    content = part.get("content")
    match part.get("part_kind"):
        case "tool-call" | "builtin-tool-call":
            yield {"type": "tool_use", **_named(part, "id"), "input": _arguments(part.get("args"))}
        case "tool-return" | "builtin-tool-return":
            yield _result(part, failed=part.get("outcome") in _FAILURES)
        case "retry-prompt" if part.get("tool_name"):
            yield _result(part, failed=True)
        case "thinking":
            yield {"type": "thinking", "thinking": _said(content)}
        case "user-prompt" | "file" if isinstance(content, (list, dict)):
            yield from map(_piece, content if isinstance(content, list) else [content])
        case "system-prompt" if is_system:
            yield _text(content)
        case kind if kind in _SAID:
            yield _text(content)
        case _:
            yield part


def _piece(piece: object) -> object:
    """A part of the user's prompt, or a file of the model: text, or media with their address or their data."""
    if not isinstance(piece, dict):
        return _text(piece)
    if isinstance(piece.get("url"), str) or isinstance(piece.get("data"), str):
        return _media(piece)
    return _text(piece["content"]) if isinstance(piece.get("content"), str) else piece


def _text(content: object) -> dict[str, Any]:
    return {"type": "text", "text": _said(content)}


def _said(content: object) -> str:
    return content if isinstance(content, str) else "" if content is None else json.dumps(content, ensure_ascii=False)


def _result(part: Mapping[str, Any], *, failed: bool) -> dict[str, Any]:
    named = _named(part, "tool_use_id")
    return {"type": "tool_result", **named, "content": _said(part.get("content")), "is_error": failed}


def _named(part: Mapping[str, Any], id: str) -> dict[str, Any]:
    return {id: part.get("tool_call_id") or "", "name": part.get("tool_name") or ""}


def _arguments(given: object) -> object:
    """The arguments of a call, which are JSON where the provider sent text: an object, if they are one."""
    if given is None:
        return {}
    if isinstance(given, str):
        try:
            return json.loads(given)
        except (ValueError, RecursionError):
            return given
    return given


def _media(piece: Mapping[str, Any]) -> dict[str, Any]:
    kind, about = (text if isinstance(text, str) else "" for text in (piece.get("kind"), piece.get("media_type")))
    source = {"type": "url", "url": piece.get("url")}
    if isinstance(piece.get("data"), str):
        # pydantic writes base64 with the letters of a URL.
        source = {"type": "base64", "media_type": about, "data": piece["data"].translate(_STANDARD_BASE64)}
    is_image = kind == "image-url" or about.startswith("image/")
    return {"type": "image" if is_image else kind, "source": source}
