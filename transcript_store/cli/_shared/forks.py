"""Copies of conversations that commands make: as they are, or in another provider's form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from transcript_store.cli._shared.names import conversation_at, is_backend_address, library_at, with_id
from transcript_store.cli._shared.terminal import Working, complain, count_lines

if TYPE_CHECKING:
    from transcript_store import ConversationLibrary

PROVIDERS = ("claude", "openai", "openai-compatible", "gemini", "local")
LOCAL = "local"


def fork_of(name: str, into: ConversationLibrary, *, through_seq: int | None = None, **options: Any) -> str:
    """Copy the conversation of that name into a library; return the copy's id. ``options`` open the library that it is in."""
    if not is_backend_address(name):
        return into.fork_from(name, through_seq=through_seq)
    library, own_id = with_id(name)
    return library_at(library, **options).fork(own_id, through_seq=through_seq, into=into)


def wire_of(name: str) -> str:
    """The form of a provider's messages: the local model is an OpenAI-compatible server."""
    return "openai-compatible" if name == LOCAL else name


def fork_for_provider(
    directory: str, provider: str, into: ConversationLibrary, working: Working | None = None, **options: Any
) -> str:
    """Copy a conversation for a provider, report what its form cannot hold, and return the copy's id."""
    from transcript_store.exporting import fork_for

    def say_losses(losses: Iterable[Any]) -> None:
        counts: Counter[str] = Counter()
        for loss in losses:
            counts[loss.message] += loss.count
        if counts and working is not None:
            with working.paused():
                complain("the copy cannot hold all of it (the original keeps it):", count_lines(counts))

    with conversation_at(directory, read_only=True, **options) as conversation:
        conversation.load()
        return fork_for(conversation, wire_of(provider), into, before_writing=say_losses)
