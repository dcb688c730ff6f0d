"""What a chat client can do, as protocols: a capability is discovered with ``isinstance``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from transcript_store.chat._config import Tool

if TYPE_CHECKING:
    from transcript_store import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens that a client's requests took since it was made, each request counted once. Thinking counts as output."""

    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of the answer's text. It is not on record yet."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted:
    """The reply that calls the tool is on record, and the tool runs next. ``arguments`` is None if they are no JSON object."""

    id: str | None
    name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallEnded:
    """The tool's result is on record."""

    id: str | None
    name: str
    result: str
    is_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """The turn is over and on record. ``text`` is the text of its last reply."""

    text: str
    stop_reason: str | None


StreamEvent = TextDelta | ToolCallStarted | ToolCallEnded | Complete


@runtime_checkable
class ChatClient(Protocol):
    """Talks to a model. One turn at a time; the calls of one client must not overlap."""

    def add(self, prompt: str) -> None:
        """Add a user's message without asking for a reply: the next request carries it."""
        ...

    def ask(self, question: str, schema: dict[str, Any]) -> Any:
        """Ask for an answer that is JSON of this JSON schema; returns it parsed."""
        ...

    def chat(self, prompt: str) -> str:
        """One turn: the prompt, all tool calls and their results, and the answer, whose text is returned."""
        ...

    def set_tools(self, tools: Sequence[Tool]) -> None:
        """Replace all tools that the model may call."""
        ...

    @property
    def usage(self) -> Usage: ...


@runtime_checkable
class StreamingChatClient(ChatClient, Protocol):
    """A client that shows an answer while it comes."""

    def stream_chat(self, prompt: str) -> Iterator[StreamEvent]:
        """One turn as ``chat`` does it, as events. Nothing happens before the first one is asked for."""
        ...


@runtime_checkable
class PersistentChatClient(ChatClient, Protocol):
    """A client whose conversation can be taken along."""

    def save(self, *, metadata: dict[str, str] | None = None) -> Snapshot:
        """The conversation as a portable value, without token and handlers."""
        ...

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot of the same provider; its tools are to be set again."""
        ...

    def export_history(self) -> list[dict[str, Any]]:
        """A deep copy of the native messages, without the system prompt; from any thread, also while a turn runs."""
        ...
