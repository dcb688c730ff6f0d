"""What the contract of chat clients works on: somebody's clients, and a model with scripted replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from transcript_store import ConversationStore

__all__ = ["ChatBench", "ScriptedReply", "SentRequest"]

_Calls = tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """The model's reply to the next request: a text, tool calls, or both.

    Args:
        text: the text of the reply.
        calls: tool calls, as pairs of name and arguments.
        fails: the request fails instead, with any ``Exception`` of the client's own.
        ends_early: the stream ends after the text, before a stop reason and without ``calls``.
    """

    text: str = ""
    calls: _Calls = ()
    fails: bool = False
    ends_early: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """The content of a request.

    Args:
        system_prompts: every system prompt that it carried; a correct request has one, or none if none is set.
        messages: its native messages in order, without system prompts.
        unpaired: the number of tool calls without a result and of results without a call.
    """

    system_prompts: list[str]
    messages: list[dict[str, Any]]
    unpaired: int


class ChatBench(Protocol):
    """What the contract needs of a provider: clients that talk to a model with scripted replies."""

    sent: Sequence[SentRequest]
    """Every request that reached the scripted model, in order."""

    def script(self, *replies: ScriptedReply) -> None:
        """Add replies to those of the model. Each request takes the next one."""
        ...

    def client(self, conversation: ConversationStore | None = None, **config: Any) -> Any:
        """Make a client.

        Args:
            conversation: where the client records, if anywhere.
            config: fields of ``ChatConfig``: ``token``, ``system_prompt``, ``max_steps`` and ``initial_history``.
        """
        ...
