"""How is a client configured, which capabilities may it have, and which tools may it run?"""

from __future__ import annotations

import inspect
import ipaddress
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, runtime_checkable
from urllib.parse import SplitResult, urlsplit

from transcript_store.chat._provider import ToolDescription
from transcript_store.conversation import ConversationStore
from transcript_store.errors import InvalidBaseUrlError
from transcript_store.hints import Hint

if TYPE_CHECKING:
    from transcript_store import Snapshot

Provider = Literal["claude", "openai", "openai-compatible", "gemini", "claude-local"]

_NAMES: tuple[str, ...] = get_args(Provider)

_log = logging.getLogger("transcript_store.chat")


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call.

    Args:
        name: the name that the model calls it by; not empty.
        description: its description for the model.
        parameters: a JSON schema of type object.
        handler: called with the model's arguments by name. It returns a text, or any other JSON value. An ``Exception``
            that it raises goes to the model as an error result, and its type to the log. It should be idempotent: if
            the process dies while it runs, the model is informed that the outcome is unknown, and may ask for the same call
            again. It may be ``async def``. Then each call runs in an asyncio event loop of its own, so it cannot use
            what belongs to another loop (an open connection, a lock).

    Raises:
        TypeError: an argument has the wrong type.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    handler: Callable[..., Any]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"a tool's name is a str that is not empty, not {self.name!r:.60}")
        if not isinstance(self.description, str) or not isinstance(self.parameters, dict):
            raise TypeError(f"tool {self.name}: the description is a str and the parameters are a JSON schema (a dict)")
        if not callable(self.handler):
            raise TypeError(f"tool {self.name}: the handler must be callable, not {type(self.handler).__name__}")

    def describe(self) -> ToolDescription:
        """The tool without its handler, as requests and the record have it."""
        return ToolDescription(name=self.name, description=self.description, parameters=self.parameters)

    def run(self, arguments: dict[str, Any] | None) -> tuple[str, bool]:
        """Call the handler. Returns the text for the model, and whether the text is an error.

        An ``Exception`` of the handler is returned as such a text. ``arguments`` is None if the model gave no JSON object; then
        the handler is not called.
        """
        if arguments is None:
            return "the arguments are not a JSON object", True
        try:
            result = self.handler(**arguments)
            if inspect.isawaitable(result):
                result = _outcome_of(result)
            text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        except Exception as error:
            _log.warning(
                "tool %s: the handler raised %s, which is reported to the model", self.name, type(error).__name__
            )
            _log.debug("tool %s: the handler raised", self.name, exc_info=True)
            return _plain(f"{type(error).__name__}: {error}"), True
        return _plain(text), False


def _outcome_of(result: Awaitable[Any]) -> Any:
    """Await a handler's result: here, or in another thread if this one runs an event loop (a notebook's)."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    async def outcome() -> Any:
        return await result

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(outcome())
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, asyncio.run, outcome()).result()


def _plain(text: str) -> str:
    """The text with lone surrogates escaped: JSON in UTF-8 cannot carry them. File names that are not UTF-8 have them."""
    return text.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatConfig:
    """The configuration of a client. Only ``provider`` is required.

    Args:
        provider: ``claude``, ``openai``, ``openai-compatible``, ``gemini`` or ``claude-local``.
        model: the model's name; it is written to the record. None means the model on record, or for a new conversation a
            current default of the provider.
        system_prompt: a text, or a callable that returns one and is called for each turn. None means the prompt on record.
        token: the API key, or a callable that returns it (from a keychain) and is called once. None means the provider's usual
            environment variable. It is never shown or stored.
        base_url: the URL of the API; it must pass ``validate_base_url``. None means the provider's environment variable, or
            else the provider's own URL. ``openai-compatible`` has no URL of its own.
        max_steps: the greatest number of requests in one turn. The tools that a reply calls are run before the next request.
        max_tokens: the greatest number of tokens in one reply. None means the provider's limit (Claude: 8192).
        timeout_seconds: how many seconds the server may be silent; with ``claude-local``, how long a turn may take.
        initial_history: native messages that a new conversation starts with, without a system prompt.
        select_messages: called before each request with all messages of the conversation, which it must not change. It returns
            those that the request carries, for example the newest that fit a small context. The record stays whole. Calls
            without results and results without calls are repaired in the request, whatever it returns.

    Raises:
        ValueError: ``provider`` is unknown, or a number is out of range.
        TypeError: an argument has the wrong type. The message does not contain the value, which may be a token.
    """

    provider: Provider
    model: str | None = None
    system_prompt: str | Callable[[], str] | None = None
    token: str | Callable[[], str] | None = field(default=None, repr=False)
    base_url: str | None = field(default=None, repr=False)
    max_steps: int = 20
    max_tokens: int | None = None
    timeout_seconds: float = 600.0
    initial_history: Sequence[Mapping[str, Any]] | None = field(default=None, repr=False)
    select_messages: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] | None = None

    def __post_init__(self) -> None:
        if self.provider not in _NAMES:
            raise ValueError(f"provider must be one of {', '.join(_NAMES)}, not {self.provider!r}")
        _insist("model", self.model, str | None, "a str")
        _insist("base_url", self.base_url, str | None, "a str")
        if not callable(self.token):
            _insist("token", self.token, str | None, "a str, or a callable that gives one")
        _insist("timeout_seconds", self.timeout_seconds, int | float, "a number")
        if type(self.max_steps) is not int or self.max_steps < 1:
            raise ValueError(f"max_steps must be an int of at least 1, not {self.max_steps!r}")
        if self.max_tokens is not None and (type(self.max_tokens) is not int or self.max_tokens < 1):
            raise ValueError(f"max_tokens must be an int of at least 1, not {self.max_tokens!r}")
        if not self.timeout_seconds > 0:
            raise ValueError(f"timeout_seconds must be more than 0, not {self.timeout_seconds!r}")


def _insist(name: str, value: object, allowed: Any, described: str) -> None:
    if not isinstance(value, allowed):  # the message does not contain the value, which may be a token
        raise TypeError(f"{name} must be {described}, not {type(value).__name__}")


# ---- settings ----
#
# The settings of a conversation: provider, model, system prompt, and the descriptions of its tools.


class Facts:
    """The settings of a client's conversation. They are kept in its ``metadata.json``; without a conversation, in memory.

    A setting that the configuration gives replaces the one on record, and is written there. A setting that it leaves None is
    taken from the record. The provider is written too, although it can only be another of the same family: a process that resumes
    the conversation without naming a provider must reach the server that was used last.

    Raises:
        TranscriptStoreError: calls that change a setting; as the store's ``update_metadata()``.
    """

    def __init__(self, config: ChatConfig, *, default_model: str, conversation: ConversationStore | None) -> None:
        self._config = config
        self._default_model = default_model
        self._conversation = conversation
        self._values: dict[str, Any] = {
            "provider": config.provider,
            "model": None,
            "system_prompt": None,
            "tools": None,
        }
        self._given: dict[str, Any] = {}
        """The values set last: the stored ones may have less, if the store removes secrets."""
        self.refresh()

    def refresh(self) -> None:
        """Read the settings on record, then replace those that the configuration gives."""
        if self._conversation is not None:
            self._values = self._on_record(self._conversation)
        self._given.clear()
        self._set(
            provider=self._config.provider,
            model=self._config.model or self._values["model"] or self._default_model,
        )
        self.renew_prompt()

    @property
    def provider(self) -> str:
        return str(self._values["provider"])

    @property
    def model(self) -> str:
        return str(self._values["model"])

    @property
    def system_prompt(self) -> str | None:
        prompt: str | None = self._values["system_prompt"]
        return prompt

    @property
    def tools(self) -> list[dict[str, Any]]:
        return self._values["tools"] or []

    @property
    def tool_names(self) -> tuple[str, ...]:
        return tuple(str(tool.get("name")) for tool in self.tools)

    def renew_prompt(self) -> None:
        """Take the system prompt of the configuration, and record it if it changed. A callable is called again."""
        prompt = self._config.system_prompt
        if prompt is not None:
            self._set(system_prompt=prompt() if callable(prompt) else prompt)

    def take(self, *, system_prompt: str | None, tools: list[dict[str, Any]] | None) -> None:
        """Take the settings of a snapshot, then replace those that the configuration gives. Only without a conversation."""
        self._values.update(system_prompt=system_prompt, tools=tools)
        self.refresh()

    def set(self, *, tools: Sequence[ToolDescription]) -> None:
        """Replace the tools' descriptions. On return they are on record."""
        self._set(
            tools=[
                {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools
            ]
            or None
        )

    def _set(self, **values: Any) -> None:
        changed = {name: value for name, value in values.items() if value != self._given.get(name, self._values[name])}
        if changed and self._conversation is not None:
            self._conversation.update_metadata(**changed)
        self._given.update(changed)
        self._values.update(changed)
        if changed and self._conversation is not None and self._conversation.redacts:
            self._values = self._on_record(self._conversation)  # a request has exactly the recorded settings

    def _on_record(self, conversation: ConversationStore) -> dict[str, Any]:
        metadata = conversation.get_metadata()
        return {name: getattr(metadata, name) for name in self._values}


# ---- base url ----
#
# The rules that a provider's base URL must pass before a token is sent to it.
#
# The rules and their order come from go-tool-base's ``ValidateBaseURL``. Refused here and accepted there: white space around the URL;
# lone surrogates, and the C1 control characters; a port that is empty, 0 or above 65535; an empty label (``https://a..b/``); a placeholder
# with a trailing dot; a host name with anything but ASCII letters, digits, ``-`` and ``_``, because under IDNA a full stop has four
# spellings. No error message repeats the URL or a part of it, because users often paste a token into the wrong field.

MAX_BASE_URL_LENGTH = 2048
"""The greatest length of a base URL, in bytes of UTF-8."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,63}")
_PORT = re.compile(r"[0-9]{1,5}")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_HTTPS = "its scheme must be https"
_PLACEHOLDERS = ("example.com", "example.net", "example.org", "localhost.localdomain")


def validate_base_url(url: str, *, allow_insecure: bool = False) -> None:
    """Check that a provider's credentials may be sent to this URL.

    The empty string is valid; it stands for the provider's own URL. Any other URL must pass these rules, in this order:

    * It has at most ``MAX_BASE_URL_LENGTH`` bytes of UTF-8.
    * It contains no control characters.
    * It contains no lone surrogates. Python makes them from arguments and variables that are not UTF-8.
    * It can be parsed. In its path and fragment, two hexadecimal digits follow each ``%``.
    * It contains no user information.
    * Its scheme is https. With ``allow_insecure=True`` it may also be http.
    * It has a host: an address, or an ASCII name without empty labels. An internationalized name is in its ``xn--`` form.
    * Its port, if it has one, is from 1 to 65535.
    * Its host is not a placeholder from documentation: example.com, example.net, example.org, localhost.localdomain, and
      every name below them.

    Raises:
        InvalidBaseUrlError: the URL breaks a rule, and ``reason`` says which. The error does not contain the URL.
        TypeError: the URL is not a str.
    """
    if not isinstance(url, str):
        raise TypeError(f"a base URL is a str, not {type(url).__name__}")
    if reason := _fault(url, allow_insecure):
        is_for_http = reason == _NOT_HTTPS
        raise InvalidBaseUrlError(reason=reason, hint=Hint.ALLOW_INSECURE if is_for_http else None)


def host_of(url: str) -> str:
    """The host of a URL that passed ``validate_base_url``, in lower case, without port and trailing dot."""
    return (urlsplit(url).hostname or "").removesuffix(".")


def is_loopback(host: str) -> bool:
    """True if a host is this machine: ``localhost``, or a loopback address (127.0.0.0/8, ::1)."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _fault(url: str, allow_insecure: bool) -> str | None:
    if len(encoded := url.encode("utf-8", "surrogatepass")) > MAX_BASE_URL_LENGTH:
        return f"it takes {len(encoded):,} bytes, and {MAX_BASE_URL_LENGTH:,} are allowed"
    if not url:
        return None
    if _CONTROL.search(url):
        return "it contains control characters"
    if _SURROGATE.search(url):
        return "it holds a lone surrogate, which no request can carry"
    parts = _split(url)
    if parts is None:
        return "it cannot be parsed"
    if _BROKEN_ESCAPE.search(parts.path) or _BROKEN_ESCAPE.search(parts.fragment):
        return "it cannot be parsed: a % in it is not followed by two hexadecimal digits"
    _, at, authority = parts.netloc.rpartition("@")
    if at:
        return "it contains user information; a token belongs into the token field"
    if parts.scheme == "http" and not allow_insecure:
        return _NOT_HTTPS
    if parts.scheme not in ("http", "https"):
        return "it is not an https URL: its scheme must be https"
    if not authority or authority.startswith(":"):
        return "it has no host"
    host = _host(authority)
    if host is None:
        return "its host or port cannot be parsed"
    if any(host == name or host.endswith("." + name) for name in _PLACEHOLDERS):
        return "its host is a placeholder from some documentation; replace it by your provider's"
    return None


def _split(url: str) -> SplitResult | None:
    if url != url.strip():
        return None  # urlsplit() strips white space: the URL that is sent would not be the URL that was checked
    try:
        return urlsplit(url)
    except ValueError:
        return None


def _host(authority: str) -> str | None:
    """The host in ``host[:port]``, in lower case, without its trailing dot. None if host or port is malformed."""
    if authority.startswith("["):
        address, bracket, rest = authority[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return None
        try:
            ipaddress.IPv6Address(address)
        except ValueError:  # since Python 3.11.4, urlsplit() refuses such a URL itself
            return None
        host, colon, port = address, rest[:1], rest[1:]
    else:
        host, colon, port = authority.partition(":")
        host = host.removesuffix(".").lower()
        if not all(_LABEL.fullmatch(label) for label in host.split(".")):
            return None
    if colon and not (_PORT.fullmatch(port) and 1 <= int(port) <= 65_535):
        return None
    return host


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
