"""Where does a turn start, and which calls and results belong together, in any provider's form?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from transcript_store._json.parts import role_of
from transcript_store._json.pydantic_ai import in_claude_form
from transcript_store._json.times import is_time

_CALLS = ("functionCall", "function_call")
_RESULTS = ("functionResponse", "function_response")
_AT_ONCE = ("server_tool_use", "mcp_tool_use")
"""Calls that the provider itself answers, in the same message."""


def begins_turn(message: dict[str, Any]) -> bool:
    """True if a turn starts with this message: a user's, without results of tools."""
    return role_of(message) in ("user", "human") and not any(True for _ in result_ids(message))


def call_ids(message: dict[str, Any]) -> Iterator[str]:
    """The ids of the calls in a message; of one without an id (Gemini's) the name."""
    for block in _blocks(message):
        kind = block.get("type")
        if kind == "tool_use" or (type(block.get("function")) is dict and "id" in block):
            yield str(block.get("id"))
        elif type(kind) is str and kind.endswith("_call") and "call_id" in block and kind not in _AT_ONCE:
            yield str(block["call_id"])
        yield from _named(block, _CALLS)


def result_ids(message: dict[str, Any]) -> Iterator[str]:
    """The ids of the calls whose results are in a message."""
    for block in _blocks(message):
        kind = block.get("type")
        if kind == "tool_result":
            yield str(block.get("tool_use_id"))
        elif block.get("role") == "tool":
            yield str(block.get("tool_call_id"))
        elif type(kind) is str and kind.endswith("_output") and "call_id" in block:
            yield str(block["call_id"])
        yield from _named(block, _RESULTS)


def _named(block: Mapping[str, Any], names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if type(inner := block.get(name)) is dict:
            yield str(inner.get("id") or inner.get("name"))


def _blocks(message: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The message, which may be a block itself (an item of Responses), and the blocks in it."""
    message = in_claude_form(message) or message
    yield message
    for name in ("content", "parts", "tool_calls"):
        if type(inner := message.get(name)) is list:
            yield from (block for block in inner if type(block) is dict)


# ---- imported ----
# What an import notes beside a message: what the user typed, what was written on an abandoned branch, when it was
# imported.


def typed_of(extra: Mapping[str, Any] | None, said: str) -> str:
    """What the user typed of a message with the text ``said``: all of it, unless ``extra.scaffolding`` marks it.

    Returns:
        The text that the user typed; empty if a program wrote all of the message.
    """
    mark = (extra or {}).get("scaffolding")
    if isinstance(mark, dict):
        typed = mark.get("typed")
        return typed if isinstance(typed, str) else ""
    return "" if mark is True else said


def imported_at(extra: Mapping[str, Any] | None) -> str:
    """When an import wrote the record with this ``extra``, if it is one of its notes; empty otherwise. Its records have the times of the
    source.
    """
    note = (extra or {}).get("import")
    at = note.get("at") if isinstance(note, dict) else None
    return at if isinstance(at, str) and is_time(at) else ""


def left_of(extra: Mapping[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The message of an abandoned branch that an event keeps, and its extra; None for any other event."""
    left = (extra or {}).get("left_branch")
    message = left.get("message") if isinstance(left, dict) else None
    if not isinstance(left, dict) or not isinstance(message, dict):
        return None
    return message, {name: value for name, value in left.items() if name != "message"}
