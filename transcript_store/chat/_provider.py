"""What the core of a chat client needs to know of a provider's wire format, and nothing more.

A *wire* is one module that knows one format: how its native messages say "a tool call", "its result", "text", and how a
request and a reply look. It is functions from values to values; the one thing that speaks to a server is its
:class:`Connection`. Native messages are the provider's own JSON and are never changed: what a request needs otherwise is a
copy made for that request.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

JSON = dict[str, Any]
Message = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A model's wish to run a tool. ``id`` is None where the provider gives none; ``arguments`` is None if it is no JSON object."""

    id: str | None
    name: str
    arguments: JSON | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """A tool's result as it stands in a native message: ``native`` is the block, or the whole message, that carries it."""

    id: str | None
    name: str | None
    native: JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came of one request.

    ``message`` is the native message, None if nothing came that could be sent again. ``extra`` belongs to the reply but not
    to the message: response id, model, usage, stop reason. ``incomplete`` is the reason why the reply is not whole, and
    ``raw`` then all that came, half blocks too.
    """

    message: Message | None
    text: str
    stop_reason: str | None
    extra: JSON
    incomplete: str | None = None
    raw: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a request carries, whatever its form on the wire."""

    model: str
    system_prompt: str | None
    messages: Sequence[Message]
    tools: Sequence[ToolDescription] = ()
    max_tokens: int | None = None
    schema: JSON | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDescription:
    """What a model is told of a tool: ``parameters`` is a JSON schema of type object."""

    name: str
    description: str
    parameters: JSON = field(default_factory=dict)


class Assembly(Protocol):
    """A streamed reply, put together event by event."""

    def add(self, event: JSON) -> str:
        """Take one event of the stream; returns the text that it added to the answer, often none."""
        ...

    def reply(self) -> Reply:
        """What came so far as a reply: whole if the stream gave a stop reason, otherwise what can be sent again of it."""
        ...


class Wire(Protocol):
    """One provider's format."""

    results_are_messages: bool
    """Whether each tool result is a native message of its own, or all results of one reply share a message."""

    has_system_messages: bool
    """Whether a native history may hold system messages, the prompt among them; else the prompt has a place of its own."""

    def user_message(self, text: str) -> Message: ...

    def is_reply(self, message: Message) -> bool:
        """Whether the model said it: tool calls can only be in such a message."""
        ...

    def may_open(self, message: Message) -> bool:
        """Whether the provider takes a request whose first message this is, and something of it is sent."""
        ...

    def calls(self, message: Message) -> list[ToolCall]:
        """The tool calls of a reply that the caller must answer, in order."""
        ...

    def results(self, message: Message) -> list[ToolResult]:
        """The tool results that a message carries, in order."""
        ...

    def without_results(self, message: Message) -> Message | None:
        """The message if it carries no tool results; else a copy without them, or None if nothing else is in it."""
        ...

    def result(self, call: ToolCall, text: str, *, is_error: bool) -> JSON:
        """The native form of one result: a block, or a message where ``results_are_messages``."""
        ...

    def results_message(self, results: Sequence[JSON]) -> Message:
        """The one message that carries these results; only where they are not messages themselves."""
        ...

    def request(self, request: Request, *, stream: bool) -> JSON:
        """The body of a request. ``messages`` are paired already; what only a response may have is left out here."""
        ...

    def reply(self, body: JSON) -> Reply:
        """A whole response that was not streamed."""
        ...

    def assembly(self) -> Assembly: ...


class Connection(Protocol):
    """The one thing that speaks to a server. Its errors are the SDK's own."""

    def send(self, model: str, body: JSON) -> JSON:
        """Send a request; returns the response's JSON exactly as it came."""
        ...

    def stream(self, model: str, body: JSON) -> Generator[JSON, None, None]:
        """Send a request; yields the JSON of each event exactly as it came. Closing the generator closes the response."""
        ...

    def close(self) -> None:
        """Let go of the connections to the server."""
        ...


def joined(before: str, more: str) -> str:
    """Streamed text put together; a character that was split between two events (a surrogate pair) becomes whole again."""
    text = before + more
    if "\udc00" <= more[:1] <= "\udfff":
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text


def about_reply(response_id: Any, model: Any, stop_reason: Any, usage: Any) -> JSON:
    """What is recorded beside a reply, in its record's ``extra``; what the provider did not say is left out."""
    return without_nulls({"response_id": response_id, "model": model, "stop_reason": stop_reason, "usage": usage})


def without_nulls(members: JSON) -> JSON:
    return {name: value for name, value in members.items() if value is not None}
