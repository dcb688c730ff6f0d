"""Where a turn begins, and which calls and results belong together, in messages of any provider's form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from transcript_store._json.parts import role_of
from transcript_store._json.pydantic_ai import in_claude_form

_CALLS = ("functionCall", "function_call")
_RESULTS = ("functionResponse", "function_response")
_AT_ONCE = ("server_tool_use", "mcp_tool_use")
"""Calls that the provider answers itself, in the same message."""


def begins_turn(message: dict[str, Any]) -> bool:
    """Whether a turn begins with this message: a user's, which does not carry the results of tools."""
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
