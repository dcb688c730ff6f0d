"""The arguments of a client: its configuration, and the tools that it may run."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from transcript_store.chat._provider import ToolDescription

Provider = Literal["claude", "openai", "openai-compatible", "gemini", "claude-local"]

_NAMES: tuple[str, ...] = get_args(Provider)

_log = logging.getLogger("transcript_store.chat")


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call.

    Args:
        name: the name that the model calls it by; not empty.
        description: what the model is told about it.
        parameters: a JSON schema of type object.
        handler: called with the model's arguments by name. It returns a text, or any other JSON value. An ``Exception`` that
            it raises goes to the model as an error result, and its type to the log. It should be idempotent: if the process
            dies while it runs, the model is told that the outcome is unknown, and may ask for the same call again.
            It may be ``async def``. Then each call runs in an asyncio event loop of its own, so it cannot use what belongs to
            another loop (an open connection, a lock).

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
            _log.warning("tool %s: the handler raised %s, and the model is told", self.name, type(error).__name__)
            _log.debug("tool %s: the handler raised", self.name, exc_info=True)
            return _plain(f"{type(error).__name__}: {error}"), True
        return _plain(text), False


def _outcome_of(result: Awaitable[Any]) -> Any:
    """Await what a handler returned: here, or if an event loop runs in this thread (a notebook's), in another one."""
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
        initial_history: native messages that a new conversation begins with, without a system prompt.
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
