"""The client of the chosen provider, created when it is first needed, and the local model's server."""

from __future__ import annotations

import gc
import os
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Self, cast

from transcript_store import IncompleteResponseError, TranscriptStoreError
from transcript_store.chat import ChatConfig, ResumableChatClient, create_client
from transcript_store.cli._shared.hints import error_sentence as shell_sentence
from transcript_store.cli._shared.terminal import Misuse, Working, bar, complain
from transcript_store.cli.chat.conversation import ChatConversation
from transcript_store.cli.chat.local import MODELS, Model
from transcript_store.cli.chat.local.server import (
    CONTEXT_TOKENS,
    LocalModelError,
    LocalServer,
    fetched,
    newest_turns,
    rendered,
    weights_path,
)
from transcript_store.cli.chat.provider import Choice

_ANSWER_TOKENS = 256
"""The longest answer of the local model, in tokens."""
_TEMPLATE_TOKENS = 96
"""How many tokens the local model's template adds to a conversation, including its own system prompt."""


class Answerer:
    """The client for ``choice``. As a context it closes the client and the server at its end.

    ``on_request(sent, on_record)`` is called for each request, when its question is on disk: the number of messages that
    the request carries, and the number on record. ``note(text)`` is called once, with a sentence about the local model.
    """

    def __init__(
        self,
        choice: Choice,
        chat: ChatConversation,
        arguments: Namespace,
        *,
        on_request: Callable[[int, int], object],
        note: Callable[[str], object],
    ) -> None:
        self.choice = choice
        self._chat = chat
        self._arguments = arguments
        self._on_request = on_request
        self._note = note
        self._resources = ExitStack()
        self._server: LocalServer | None = None
        self._client: ResumableChatClient | None = None
        self._is_introduced = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._let_go()

    @property
    def client(self) -> ResumableChatClient:
        """The client. It is created at its first use, so that an empty input neither fetches a model nor creates anything."""
        if self._client is None:
            choice = self.choice
            config: dict[str, Any] = {
                "system_prompt": self._arguments.system,
                "base_url": choice.base_url,
                "token": choice.token,
                "timeout_seconds": self._arguments.timeout,
                "select_messages": self._selected,
            }
            if choice.is_local:
                self._server = server = self._serve()
                config |= {"base_url": server.base_url, "token": server.token, "max_tokens": _ANSWER_TOKENS}
            config |= {"provider": choice.provider, "model": self.choice.model}
            with Working(f"getting ready to talk to {choice.called}"):
                self._client = self._made(ChatConfig(**config))
            self._resources.callback(self._client.close)
            gc.freeze()  # a long history is many objects: a garbage collection of them would delay the first answer
        return self._client

    def change(self, choice: Choice) -> None:
        """Close the client. From the next request on, ``choice`` answers."""
        self._let_go()
        self.choice = choice

    def is_lost(self) -> bool:
        """True if the local model's server has ended. Then the next request starts a new one."""
        if self._server is None or self._server.is_running:
            return False
        self._let_go()
        return True

    def _let_go(self) -> None:
        self._client = self._server = None
        self._resources.close()

    def _made(self, config: ChatConfig) -> ResumableChatClient:
        choice = self.choice
        conversation = self._chat.conversation or self._chat.create(
            provider=choice.provider, model=choice.model, system_prompt=self._arguments.system, features=["retract"]
        )
        allow_insecure = choice.is_local or choice.allow_insecure
        try:
            client = create_client(config, conversation=conversation, allow_insecure_base_url=allow_insecure)
        except ValueError as error:
            raise Misuse(str(error)) from error  # a key with characters that an HTTP header cannot carry
        return cast("ResumableChatClient", client)

    # ---- the local model -----------------------------------------------------------------------------------------

    def _serve(self) -> LocalServer:
        model = MODELS[self.choice.model]
        others = [each for each in MODELS.values() if each is not model] if self._may_be_another else []
        while True:
            try:
                weights = self._weights(model)
                break
            except LocalModelError as error:
                if not others:
                    raise
                model = others.pop(0)
                complain(f"{error}; {model.name} answers instead")
        self.choice = replace(self.choice, model=model.name)
        with Working("starting the local model"):
            server = self._resources.enter_context(LocalServer(model, weights))
        if not self._is_introduced:
            self._note(
                f"{model.name} is a small model that runs on this machine: it has no tools, and it is often wrong"
            )
        self._is_introduced = True
        return server

    @property
    def _may_be_another(self) -> bool:
        """True if another model may replace it: never a model that is named or on record."""
        return self._chat.conversation is None and self._arguments.model is None

    def _weights(self, model: Model) -> Any:
        if weights_path(model).exists():
            return fetched(model, lambda _done, _total: None)
        with bar(f"fetching {model.name} ({model.size_bytes // 1_000_000} MB, once)") as progress:
            return fetched(model, progress)

    # ---- what a request carries ----------------------------------------------------------------------------------

    def _selected(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages of a request. The client calls this when the question is on disk: now it counts as sent."""
        chosen = messages if self._server is None else self._fitting(messages, self._server)
        self._on_request(len(chosen), len(messages))
        return chosen

    def _fitting(self, messages: list[dict[str, Any]], server: LocalServer) -> list[dict[str, Any]]:
        """The newest turns that fit into the local model's context."""
        assert self._chat.conversation is not None
        prompt = self._chat.conversation.get_metadata().system_prompt
        budget = CONTEXT_TOKENS - _ANSWER_TOKENS - _TEMPLATE_TOKENS
        if prompt:
            budget -= server.count_tokens(rendered([{"role": "system", "content": prompt}]))
        chosen = newest_turns(messages, budget_tokens=budget, count_tokens=server.count_tokens)
        if chosen is None:
            raise LocalModelError(
                f"this message is longer than the local model's context of {CONTEXT_TOKENS:,} tokens; it is on record"
            )
        return chosen


# ---- errors ----
#
# One sentence for a person about what went wrong in a turn, for the errors of all SDKs.
#
# An SDK may not be installed, so its classes cannot be imported. Its errors are recognized by their status
# (``status_code`` or ``code``) and by the names of their classes.
#
# The sentence quotes the server, with two exceptions, because some servers repeat the key that they refuse. The words of a
# server that refused a key are left out. In what is quoted, the values of the environment's keys and tokens are replaced.

_MOST_CHARACTERS = 300
_SHORTEST_KEY = 8


def sdk_error_sentence(error: Exception, *, server: str, timeout_seconds: float) -> str:
    """The sentence for an error. ``server`` is the name of the server that was asked."""
    causes = list(_causes(error))
    status = next((found for cause in causes if (found := _status(cause)) is not None), None)
    names = {base.__name__ for cause in causes for base in type(cause).__mro__}
    if isinstance(error, IncompleteResponseError):
        return f"{_network(names, server, timeout_seconds) or error.reason}; the received part of the answer is kept"
    if isinstance(error, TranscriptStoreError):
        return shell_sentence(error, "chat")
    if status in (401, 403):
        return f"{server} refused the key ({status})"
    if status is not None:
        what = {404: "does not know this model or address", 429: "has had too many requests"}.get(
            status, "has a problem" if status >= 500 else "refused the request"
        )
        return f"{server} {what} ({status}): {_quoted(error)}"
    return _network(names, server, timeout_seconds) or f"{server}: {type(error).__name__}: {_quoted(error)}"


def _network(names: set[str], server: str, timeout_seconds: float) -> str | None:
    if any("Timeout" in name for name in names):
        return f"{server} sent nothing for {timeout_seconds:g} seconds (--timeout)"
    if {"ConnectError", "gaierror", "ConnectionRefusedError"} & names:
        return f"{server} cannot be reached (is it running, is there a network?)"
    if {"APIConnectionError", "RemoteProtocolError", "NetworkError", "ConnectionError"} & names:
        return f"the connection to {server} broke"
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _status(error: BaseException) -> int | None:
    found = (getattr(error, name, None) for name in ("status_code", "code"))
    return next((status for status in found if type(status) is int and 400 <= status < 600), None)


def _quoted(error: Exception) -> str:
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else None
    words = " ".join(str(message or getattr(error, "message", None) or error).split())
    for name, value in os.environ.items():
        if name.endswith(("_KEY", "_TOKEN")) and len(value) >= _SHORTEST_KEY:
            words = words.replace(value, f"<{name}>")
    return words if len(words) <= _MOST_CHARACTERS else f"{words[:_MOST_CHARACTERS]}…"
