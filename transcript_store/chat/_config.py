"""What a caller gives: the configuration of a client, and the tools it may run."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from transcript_store.chat._provider import ToolDescription

Provider = Literal["claude", "openai", "openai-compatible", "gemini", "claude-local"]

_NAMES: tuple[str, ...] = get_args(Provider)

_log = logging.getLogger("transcript_store.chat")


@dataclass(frozen=True, slots=True)
class Tool:
    """Something that the model may ask to have done.

    ``parameters`` is a JSON schema of type object. ``handler`` is called with the model's arguments by name and returns a
    text, or any JSON value; what it raises (an ``Exception``) goes back to the model as an error result, and its type to
    the log. It is an ordinary function: a coroutine function is a ``TypeError``. It must be ready to be called twice for
    one wish: if the process dies while it runs, the model is told that the outcome is unknown and may ask again.
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
        if inspect.iscoroutinefunction(self.handler):
            raise TypeError(f"tool {self.name}: the handler must be an ordinary function; call asyncio.run() within it")

    def describe(self) -> ToolDescription:
        return ToolDescription(name=self.name, description=self.description, parameters=self.parameters)

    def run(self, arguments: dict[str, Any] | None) -> tuple[str, bool]:
        """Call the handler; returns the text for the model, and whether it tells of an error."""
        if arguments is None:
            return "the arguments are not a JSON object", True
        try:
            result = self.handler(**arguments)
            text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        except Exception as error:
            _log.warning("tool %s: the handler raised %s, and the model is told", self.name, type(error).__name__)
            _log.debug("tool %s: the handler raised", self.name, exc_info=True)
            return _plain(f"{type(error).__name__}: {error}"), True
        return _plain(text), False


def _plain(text: str) -> str:
    """The text without lone surrogates, as in a file name that is not UTF-8: JSON in UTF-8 cannot carry them."""
    return text.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatConfig:
    """How a client is to be made. Everything but ``provider`` may be left out.

    * ``model``: None keeps the one on record, and is a current default of the provider for a new conversation. A given
      one is written to the record.
    * ``system_prompt``: a text, or a callable that is asked anew for each turn. None keeps what is on record.
    * ``token``: the API key, or a callable that gives it (a keychain), asked once. None takes it from the provider's
      usual environment variable. It is never shown or stored.
    * ``base_url``: where the API is; it must pass ``validate_base_url``. ``openai-compatible`` needs one.
    * ``max_steps``: how many requests one turn may take, each with the tool calls that follow from it.
    * ``max_tokens``: the most tokens of one reply. ``timeout_seconds``: how long a server may be silent.
    * ``initial_history``: native messages, without a system prompt, that a new conversation begins with.
    * ``select_messages``: is given all messages of the conversation before each request, to read and not to change, and
      returns those that the request carries (the newest that fit a small context). What is on record stays whole, and a tool call is never
      sent without its result nor the reverse, whatever it returns.
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
    if not isinstance(value, allowed):  # without the value: it may be a token
        raise TypeError(f"{name} must be {described}, not {type(value).__name__}")
