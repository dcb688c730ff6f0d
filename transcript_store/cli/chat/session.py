"""The turns of one run of ``chat``: the client made when it is first needed, answers shown as they come."""

from __future__ import annotations

import gc
from argparse import Namespace
from contextlib import ExitStack, closing
from typing import Any, cast

from transcript_store import (
    ConversationStore,
    IncompleteResponseError,
    InvalidMessageError,
    MaxStepsError,
    TranscriptStoreError,
)
from transcript_store.chat import ChatConfig, Complete, ResumableChatClient, TextDelta, create_client
from transcript_store.cli._shared.progress import Working, bar
from transcript_store.cli._shared.terminal import Misuse, complain, is_at_a_terminal, many, one_line, say, say_on
from transcript_store.cli.chat import HINT, terminal
from transcript_store.cli.chat.conversation import Place
from transcript_store.cli.chat.errors import sentence
from transcript_store.cli.chat.local import MODEL, SIZE_BYTES
from transcript_store.cli.chat.local.context import newest_turns, rendered
from transcript_store.cli.chat.local.server import CONTEXT_TOKENS, LocalServer
from transcript_store.cli.chat.local.weights import LocalModelError, fetched, weights_path
from transcript_store.cli.chat.provider import Choice, choose

_ANSWER_TOKENS = 256
"""The most that the local model says at once: it does not always find an end."""
_TEMPLATE_TOKENS = 64
"""What the local model's template adds to a conversation."""
_CUT_SHORT = ("length", "max_tokens", "MAX_TOKENS")
"""The stop reasons of an answer that ran out of tokens."""
_ANSWERS_FAIL = (IncompleteResponseError, MaxStepsError, InvalidMessageError, LocalModelError)
"""The errors of this package that a next turn may follow; the others are the disk's."""
_TITLE_CHARACTERS = 60
_LOOK_BACK_RECORDS = 200
"""How far back the arrow keys reach."""


class Turns:
    """One run of the command: a place, a provider, and turns until the input ends."""

    def __init__(self, arguments: Namespace, place: Place) -> None:
        self._arguments = arguments
        self._place = place
        self._at_terminal = is_at_a_terminal()
        stored = place.conversation
        self._choice: Choice = choose(
            named=arguments.provider,
            model=arguments.model,
            base_url=arguments.base_url,
            allow_insecure=arguments.allow_insecure_base_url,
            metadata=None if stored is None else stored.get_metadata(),
        )
        self._resources = ExitStack()
        self._server: LocalServer | None = None
        self._client: ResumableChatClient | None = None

    def run(self) -> int:
        """Say where we are, then take turns; returns the exit code."""
        records = [] if self._place.conversation is None else self._place.conversation.get_records()
        say(self._first_line(sum(record.message is not None for record in records)), now=True)
        with self._resources:
            if not self._at_terminal:
                return self._take_piped_turns()
            terminal.show_last_turns(records)
            self._connect()
            say(HINT, now=True)
            recent = records[-_LOOK_BACK_RECORDS:]
            for prompt in terminal.typed([terminal.question(r) for r in recent if terminal.is_question(r)]):
                try:
                    self._turn(prompt)
                except KeyboardInterrupt:
                    say("\n(stopped; what came is on record)")
                say(now=True)
        return 0

    def _take_piped_turns(self) -> int:
        try:
            for prompt in terminal.piped():
                if not self._turn(prompt):
                    return 1
        except terminal.BadInputError as error:
            terminal.stop(str(error))
            return 1
        return 0

    def _first_line(self, messages: int) -> str:
        choice = self._choice
        name = f"local {choice.model}" if choice.is_local else f"{choice.provider} {choice.model}"
        count = "a new conversation" if self._place.conversation is None else many(messages, "message")
        return one_line(f"{self._place.directory}: {count}, with {name} ({choice.why})")

    # ---- before the first turn -----------------------------------------------------------------------------------

    def _connect(self) -> ResumableChatClient:
        """The client, made when it is first needed: an empty input fetches nothing, and creates nothing."""
        if self._client is None:
            choice = self._choice
            config: dict[str, Any] = {
                "provider": choice.provider,
                "model": choice.model,
                "system_prompt": self._arguments.system,
                "base_url": choice.base_url,
                "timeout_seconds": self._arguments.timeout,
                "select_messages": self._on_record,
            }
            if choice.is_local:
                self._server = server = self._serve()
                config |= {"base_url": server.base_url, "token": server.token, "max_tokens": _ANSWER_TOKENS}
            with Working(f"getting ready to talk to {self._choice.called}"):
                self._client = self._made(ChatConfig(**config))
            self._resources.callback(self._client.close)
            gc.freeze()  # a long history is many objects, and a look through all of them would delay the first answer
        return self._client

    def _made(self, config: ChatConfig) -> ResumableChatClient:
        allow_insecure = self._choice.is_local or self._choice.allow_insecure
        try:
            client = create_client(config, conversation=self._conversation(), allow_insecure_base_url=allow_insecure)
        except ValueError as error:
            if isinstance(error, TranscriptStoreError):
                raise
            raise Misuse(str(error)) from error  # a key that no HTTP header can carry
        return cast("ResumableChatClient", client)

    def _conversation(self) -> ConversationStore:
        choice = self._choice
        return self._place.conversation or self._place.create(
            provider=choice.provider, model=choice.model, system_prompt=self._arguments.system
        )

    def _serve(self) -> LocalServer:
        weights = weights_path()
        if not weights.exists():
            with bar(f"fetching {MODEL} ({SIZE_BYTES // 1_000_000} MB, once)") as progress:
                weights = fetched(progress)
        else:
            weights = fetched(lambda _done, _total: None)
        with Working("starting the local model"):
            return self._resources.enter_context(LocalServer(weights))

    def _on_record(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Called when the question is on disk and the request is made: from here on it counts as sent."""
        self._working.what = f"waiting for {self._choice.called}"
        return messages if self._server is None else self._fitting(messages, self._server)

    def _fitting(self, messages: list[dict[str, Any]], server: LocalServer) -> list[dict[str, Any]]:
        """The newest turns that fit into the local model's context; the user is told when that is not all."""
        assert self._place.conversation is not None
        prompt = self._place.conversation.get_metadata().system_prompt
        budget = CONTEXT_TOKENS - _ANSWER_TOKENS - _TEMPLATE_TOKENS
        if prompt:
            budget -= server.count_tokens(rendered([{"role": "system", "content": prompt}]))
        chosen = newest_turns(messages, budget_tokens=budget, count_tokens=server.count_tokens)
        if chosen is None:
            raise LocalModelError(
                f"this message is longer than the local model's context of {CONTEXT_TOKENS:,} tokens; it is on record"
            )
        if len(chosen) < len(messages):
            complain(
                f"the conversation is longer than the model's context of {CONTEXT_TOKENS:,} tokens: it is told the last "
                f"{len(chosen):,} of {len(messages):,} messages; all of them stay on record"
            )
        return chosen

    # ---- a turn --------------------------------------------------------------------------------------------------

    def _turn(self, prompt: str) -> bool:
        """One turn; False if it failed, after saying why. Ctrl-C in it leaves what came on record."""
        client = self._connect()
        self._entitle(prompt)
        try:
            self._stream(client, prompt)
        except TranscriptStoreError as error:
            if not isinstance(error, _ANSWERS_FAIL):
                raise  # the disk's
            return self._failed(error)
        except (OSError, RecursionError, MemoryError):
            raise
        except Exception as error:  # the SDKs have no error in common
            return self._failed(error)
        return True

    def _stream(self, client: ResumableChatClient, prompt: str) -> None:
        stream = cast("Any", client.stream_chat(prompt))  # a generator
        with Working("writing to disk") as self._working, closing(stream):
            try:
                for event in stream:
                    self._working.done()
                    if isinstance(event, TextDelta):
                        say_on(event.text)
                    elif isinstance(event, Complete):
                        say(now=True)
                        if event.stop_reason in _CUT_SHORT:
                            complain("the answer is as long as this model's answers may be, and ends there")
            except KeyboardInterrupt as stop:
                stream.throw(stop)  # so that the record says what it was, wherever it struck
                raise

    def _failed(self, error: Exception) -> bool:
        say(now=True)
        if self._server is not None and not self._server.is_running:
            self._client = None  # the next turn makes both anew
            complain("the local model's server ended; what came of the answer is kept")
            return False
        complain(sentence(error, server=self._choice.called, timeout_seconds=self._arguments.timeout))
        return False

    def _entitle(self, prompt: str) -> None:
        """A conversation is called what was said in it first."""
        conversation = self._place.conversation
        assert conversation is not None
        labels = conversation.get_metadata().labels
        if conversation.record_count == 0 and "title" not in labels:
            line = " ".join(prompt.encode("utf-8", "backslashreplace").decode().split())
            title = line if len(line) <= _TITLE_CHARACTERS else f"{line[: _TITLE_CHARACTERS - 1]}…"
            conversation.update_metadata(labels={**labels, "title": title})
