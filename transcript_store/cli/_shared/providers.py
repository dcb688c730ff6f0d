"""Copies that another provider can continue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from transcript_store.cli._shared.names import conversation_at
from transcript_store.cli._shared.terminal import Working, complain, count_lines

if TYPE_CHECKING:
    from transcript_store import ConversationLibrary

PROVIDERS = ("claude", "openai", "openai-compatible", "gemini", "local")
LOCAL = "local"


def wire_of(name: str) -> str:
    """Whose form the messages of a provider have: those of the local model are an OpenAI-compatible server's."""
    return "openai-compatible" if name == LOCAL else name


def fork_for_provider(
    directory: str, provider: str, into: ConversationLibrary, working: Working | None = None, **options: Any
) -> str:
    """Copy a conversation for a provider, and say what its form cannot hold; returns the id of the copy."""
    from transcript_store.exporting import fork_for

    def say_losses(losses: Iterable[Any]) -> None:
        counts: Counter[str] = Counter()
        for loss in losses:
            counts[loss.message] += loss.count
        if counts and working is not None:
            with working.paused():
                complain("the copy does not have all of it (the conversation here keeps it):", count_lines(counts))

    with conversation_at(directory, read_only=True, **options) as conversation:
        conversation.load()
        return fork_for(conversation, wire_of(provider), into, before_writing=say_losses)
