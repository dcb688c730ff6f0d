"""What is the interface between a chat client and a provider's wire format?

A *wire* is one module that knows one format: how a native message expresses a tool call, a result and text, and what a
request and a reply look like. A wire performs no I/O. Only its :class:`Connection` talks to a server. Native messages
are the provider's own JSON and are never changed. If a request needs a message in another form, it carries a changed
copy.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

JSON = dict[str, Any]
Message = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call of a reply.

    ``id`` is None if the provider gives none. ``arguments`` is None if the model's arguments are not a JSON object.
    """

    id: str | None
    name: str
    arguments: JSON | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """A tool's result in a native message. ``native`` is the block, or the whole message, that carries it.

    ``id`` and ``name`` are those of the call; one is None if the format does not repeat it.
    """

    id: str | None
    name: str | None
    native: JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The reply to one request.

    ``message`` is the native message, or None if nothing of the reply can be sent again. ``extra`` is what belongs to the reply
    but not to the message: response id, model, usage and stop reason. ``incomplete`` says why the reply is not whole; it is
    None for a whole one. ``raw`` is all that came of an incomplete reply, with its half blocks. ``is_refusal`` says that the
    provider refused the question: it would refuse every later request that carries it.
    """

    message: Message | None
    text: str
    stop_reason: str | None
    extra: JSON
    incomplete: str | None = None
    raw: Any = None
    is_refusal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The content of a request, before a wire gives it the provider's form."""

    model: str
    system_prompt: str | None
    messages: Sequence[Message]
    tools: Sequence[ToolDescription] = ()
    max_tokens: int | None = None
    schema: JSON | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDescription:
    """The description of a tool for a model. ``parameters`` is a JSON schema of type object."""

    name: str
    description: str
    parameters: JSON = field(default_factory=dict)


class Assembly(Protocol):
    """Builds a reply from the events of a stream."""

    def add(self, event: JSON) -> str:
        """Take the next event. Returns the text that it added to the answer; empty if it added none."""
        ...

    def reply(self) -> Reply:
        """The reply as far as it came. Without a stop reason it is incomplete, and has only what can be sent again."""
        ...


class WireFormat(Protocol):
    """One provider's wire format."""

    results_are_messages: bool
    """True if each tool result is a native message of its own; False if all results of one reply share a message."""

    has_system_messages: bool
    """True if a native history may contain system messages. If False, the system prompt has a separate place in a request."""

    pause_reason: str | None
    """The stop reason of a reply that is not over: the provider continues it if the request ends with it. None if there is none."""

    thinking_members: tuple[str, ...]
    """The members of a reply that have its thinking as text. Other models' servers may refuse a request that carries them."""

    def user_message(self, text: str) -> Message: ...

    def is_reply(self, message: Message) -> bool:
        """True if the model wrote this message. Only such a message can contain tool calls."""
        ...

    def may_open(self, message: Message) -> bool:
        """True if the provider accepts a request that begins with this message. It does not if nothing of it can be sent."""
        ...

    def calls(self, message: Message) -> list[ToolCall]:
        """The tool calls of a reply that the caller must answer, in order."""
        ...

    def results(self, message: Message) -> list[ToolResult]:
        """The tool results that a message carries, in order."""
        ...

    def without_results(self, message: Message) -> Message | None:
        """The message itself if it carries no tool results, else a copy without them. None if it carries nothing else."""
        ...

    def result(self, call: ToolCall, text: str, *, is_error: bool) -> JSON:
        """The native form of one result: a message if ``results_are_messages``, otherwise a block."""
        ...

    def results_message(self, results: Sequence[JSON]) -> Message:
        """The one message that carries these results. Not called if ``results_are_messages``."""
        ...

    def request(self, request: Request, *, stream: bool) -> JSON:
        """The body of a request, without what only a response may contain. Its calls and results are already paired."""
        ...

    def reply(self, body: JSON) -> Reply:
        """The reply in the body of a response that was not streamed."""
        ...

    def assembly(self) -> Assembly: ...


class Connection(Protocol):
    """The connection to a provider's server.

    Raises:
        Exception: any call; the SDK's own error.
    """

    def send(self, model: str, body: JSON) -> JSON:
        """Send a request. Returns the response's JSON unchanged."""
        ...

    def stream(self, model: str, body: JSON) -> Generator[JSON, None, None]:
        """Send a request. Yields the JSON of each event unchanged. Closing the generator closes the response."""
        ...

    def refusal(self, error: Exception) -> JSON | None:
        """The ``status`` and the ``reason`` of a request that the server refused because of its messages; None for another error.

        The same messages would be refused again. A key, a model or an account that is refused is another error.
        """
        ...

    def close(self) -> None:
        """Close the connections to the server."""
        ...


_STATUS_OF_REFUSALS = (400, 413, 422)
_TOO_MANY = 429
_LONGEST_REASON = 1_000
_OF_ANOTHER_THING = re.compile(
    r"credit balance|usage limits?\b|insufficient[ _](?:balance|credits?|quota|funds)|billing|organization (?:has been|is) disabled"
    r"|(?:incorrect|invalid|missing|expired|no) api[ _-]?key|api[ _-]?key (?:is )?(?:not valid|not found|invalid|expired|missing)"
    r"|(?:invalid|unknown|unsupported|not a valid) model\b|failed to load model|no models? loaded"
    r"|\bmodel\b.{0,80}?(?:not exist|not found|not available|not loaded)"
    r"|^\W*(?:error code: \d+ - )?(?:max_tokens|tools|tool_choice|model|system|output_config|thinking|temperature|top_[pk]|stream)\b[.:]"
    r"|GenerateContentRequest\.(?!contents)|\bat '(?:tools|generation_config|system_instruction|tool_config)\b",
    re.IGNORECASE,
)
"""What services say of a key, an account, a model or a parameter, some of them with the status of a bad request: xAI of its key, DeepSeek
of a model, Anthropic of money and of a limit on spending."""
_OF_MESSAGES = re.compile(
    r"\W*(?:error code: \d+ - )?(?:messages|contents|GenerateContentRequest\.contents)\b", re.IGNORECASE
)
"""It names the messages, whatever it says of them."""
_TOO_LARGE = re.compile(
    r"request too large|reduce (?:the length of (?:the|your) messages|your message size)", re.IGNORECASE
)
"""With the status of too many requests: it is larger than what a minute allows, so waiting never helps (OpenAI, Groq)."""


def refusal_by(status: object, reason: object) -> JSON | None:
    """The stored facts of a refusal; None if it is none, or not because of the messages."""
    said = str(reason)
    is_refusal = status in _STATUS_OF_REFUSALS or (status == _TOO_MANY and _TOO_LARGE.search(said))
    if not is_refusal or (not _OF_MESSAGES.match(said) and _OF_ANOTHER_THING.search(said)):
        return None
    return {"status": status, "reason": said[:_LONGEST_REASON]}


def join_text(before: str, more: str) -> str:
    """Join two pieces of streamed text. A surrogate pair that was split between two events becomes one character again."""
    text = before + more
    if "\udc00" <= more[:1] <= "\udfff":
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text


def about_reply(response_id: Any, model: Any, stop_reason: Any, usage: Any) -> JSON:
    """The ``extra`` of a reply's record. Members that the provider did not report are left out."""
    return without_nulls({"response_id": response_id, "model": model, "stop_reason": stop_reason, "usage": usage})


def without_nulls(members: JSON) -> JSON:
    return {name: value for name, value in members.items() if value is not None}
