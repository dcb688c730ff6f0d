"""What is said, whichever provider's form it has: each record with its turn, and which result answers which call."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from transcript_store.formats import Call, Result, Turn, is_form_known, turns_of
from transcript_store.messages import pydantic_ai_in_claude_form
from transcript_store.view._contents import Stretch

_OF_CLAUDE = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"})


@dataclass(slots=True)
class Said:
    stretch: Stretch
    turn: Turn | None
    """None for what is not a message."""


def said_in(stretches: Iterable[Stretch], provider: str | None) -> list[Said]:
    """The stretches with the turns of those that are messages, in their order."""
    return [Said(each, _turn_of(each, provider)) for each in stretches]


def _turn_of(stretch: Stretch, provider: str | None) -> Turn | None:
    message = stretch.record.message if stretch.record else None
    return None if message is None else turn_of(message, provider)


def turn_of(message: dict[str, Any], provider: str | None) -> Turn:
    """What a message says."""
    return turns_of((message,), _form(message, provider))[0]


def _form(message: dict[str, Any], provider: str | None) -> str:
    """Whose form a message has. A provider that is not known does not say it, so the message does."""
    if provider is not None and is_form_known(provider):
        return provider
    if isinstance(message.get("parts"), list):
        return "gemini" if pydantic_ai_in_claude_form(message) is None else "pydantic-ai"
    content = message.get("content")
    kinds = {block.get("type") for block in content if isinstance(block, dict)} if isinstance(content, list) else set()
    return "claude" if any(kind in _OF_CLAUDE for kind in kinds if isinstance(kind, str)) else "openai"


def answers_in(said: Sequence[Said]) -> dict[tuple[int, int], tuple[int, int]]:
    """Of each call that has a result, the place of the result: the number of its message, and of the block in it.

    A result belongs to the first call before it with its id that has none yet; one without an id to the last such call of its name.
    """
    waiting: dict[tuple[str, str], deque[tuple[int, int]]] = defaultdict(deque)
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for number, each in enumerate(said):
        for index, block in enumerate(each.turn.blocks if each.turn else ()):
            if isinstance(block, Call):
                waiting["id", block.id].append((number, index))
                waiting["name", block.name].append((number, index))
            elif isinstance(block, Result):
                calls = waiting["id", block.id] if block.id else waiting["name", block.name]
                while calls and calls[0] in found:
                    calls.popleft()
                if calls:
                    found[calls.popleft()] = (number, index)
    return found
