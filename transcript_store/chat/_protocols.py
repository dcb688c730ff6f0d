"""Which capabilities may a chat client have? ``isinstance`` checks them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from transcript_store.chat._config import Tool

if TYPE_CHECKING:
    from transcript_store import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens of all requests since the client was made. Each request counts once. Thinking counts as output."""

    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of the reply's text. It is not on record yet."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted:
    """The reply that calls the tool is on record, and the tool runs next.

    ``id`` is None if the provider gives none. ``arguments`` is None if the model's arguments are not a JSON object.
    """

    id: str | None
    name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallEnded:
    """The tool has run, and its result is on record. ``result`` is the text that the model gets."""

    id: str | None
    name: str
    result: str
    is_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """The turn is over and on record. ``text`` is the text of its last reply; ``stop_reason`` is in the provider's words."""

    text: str
    stop_reason: str | None


StreamEvent = TextDelta | ToolCallStarted | ToolCallEnded | TurnEnded


@runtime_checkable
class ChatClient(Protocol):
    """A client that talks to a model, one turn at a time. The caller must not let two calls of one client overlap."""

    def add(self, prompt: str) -> None:
        """Add a user's message without asking for a reply. The next request carries it."""
        ...

    def ask(self, question: str, schema: dict[str, Any]) -> Any:
        """Run one turn whose answer is JSON, and return it parsed. The model is given the JSON schema.

        Raises:
            IncompleteResponseError: the answer is not JSON, or the reply ended early.
            MaxStepsError: as :meth:`chat`.
        """
        ...

    def chat(self, prompt: str) -> str:
        """Run one turn: the prompt, all tool calls with their results, and the answer. Returns the text of the answer.

        An error of the client's own library (the request failed) is raised as it is.

        Raises:
            IncompleteResponseError: the reply ended early; ``text`` is what came.
            MaxStepsError: the model still called tools after as many requests as one turn may take.
        """
        ...

    def set_tools(self, tools: Sequence[Tool]) -> None:
        """Replace all tools that the model may call.

        Raises:
            ValueError: the client cannot be given these tools.
        """
        ...

    @property
    def usage(self) -> Usage:
        """The tokens that this client's requests took since it was made."""
        ...


@runtime_checkable
class StreamingChatClient(ChatClient, Protocol):
    """A client that shows an answer while it arrives."""

    def stream_chat(self, prompt: str) -> Iterator[StreamEvent]:
        """Run one turn as ``chat`` does, and yield its events; the last is ``TurnEnded``.

        Nothing is sent before the first event is asked for. The iterator raises what ``chat`` raises.
        """
        ...


@runtime_checkable
class PersistentChatClient(ChatClient, Protocol):
    """A client whose conversation can be saved as a snapshot and continued from one."""

    def save(self, *, metadata: dict[str, str] | None = None) -> Snapshot:
        """The conversation as a snapshot, with ``metadata`` added. It contains neither the token nor a handler.

        Raises:
            ValueError: ``metadata`` has a name that is reserved.
        """
        ...

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot. On return its messages have replaced the conversation. Set the tools again.

        Raises:
            ProviderMismatchError: the snapshot is another provider's. Nothing has changed.
        """
        ...

    def export_history(self) -> list[dict[str, Any]]:
        """A deep copy of the native messages, without the system prompt.

        It may be called from any thread, also while a turn runs.
        """
        ...
