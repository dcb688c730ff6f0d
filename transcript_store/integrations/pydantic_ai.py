"""The history of a pydantic-ai agent that survives a power cut.

.. code-block:: text

    from transcript_store.integrations.pydantic_ai import TranscriptHistory

    agent = Agent(model, capabilities=[TranscriptHistory("user-1", "chats")])

It needs the extra ``pydantic-ai``.

A ``ModelMessage`` is a message. What a run has in memory and what is stored are kept equal:

* before the first request of a run that began without a history, the stored one is put before its messages;
* before each attempt of a request, what is new is stored; after it, the reply, before any tool is called;
* what the run no longer has (a reply that was rejected) is taken back when that is seen, and what it has instead is stored.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

from transcript_store.conversation import ConversationStore, Durability, Redact
from transcript_store.errors import MissingExtraError

try:
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import (
        ModelMessage,
        ModelMessagesTypeAdapter,
        ModelRequest,
        ModelResponse,
        ToolCallPart,
        ToolReturnPart,
    )
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.run import AgentRunResult
    from pydantic_ai.tools import RunContext
except ModuleNotFoundError as _error:
    if (_error.name or "").partition(".")[0] != "pydantic_ai":
        raise
    raise MissingExtraError(feature="transcript_store.integrations.pydantic_ai", extra="pydantic-ai") from _error

from transcript_store.integrations._conversations import close, conversation
from transcript_store.integrations._homes import Home, Options, home_at, id_of, path_of, to_read
from transcript_store.integrations._values import of_items, readable, redacted, restored, stored
from transcript_store.library import ConversationLibrary
from transcript_store.messages import EncodedMessage

__all__ = ["TranscriptHistory"]

FRAMEWORK = "pydantic-ai"
_CUT_OFF = "The process ended before this call had a result. The tool may have run, in part or to its end."
_FILLED_LATER = frozenset({"model_id", "workspace_ref", "history_digest"})
"""What a run notes in a reply when it takes it into its history, which is after we stored it."""


_NO_HEAD = "0" * 32


@dataclass
class _Run:
    """What of a run is stored: its messages, as objects and as JSON, in order."""

    messages: list[ModelMessage] = field(default_factory=list)
    plain: list[Any] = field(default_factory=list)
    has_begun: bool = False
    head: str = _NO_HEAD
    """What the transcript ended in when these were its last messages. Once another run stored something it stays behind, and with it
    nothing can be taken back: the last messages may be the other's."""


_runs: WeakValueDictionary[tuple[Home, str, str], _Run] = WeakValueDictionary()
"""By folder and run: an agent may have one history twice (its own, and one of a run), and what one of them stored is stored."""


class TranscriptHistory(AbstractCapability[Any]):  # type: ignore[misc]  # the framework's types are not followed
    """A capability that gives an agent its stored history, and stores each message before the run goes on.

    A run that is given a ``message_history`` must begin with what is stored; anything else is refused, before a request is made.

    Args:
        key: the history's key: any text.
        directory: the folder with the conversations, a library, which is made if it is missing. Or a ``ConversationLibrary``, which may
            be on a place: objects that are given the same one share what is open.
        durability: as of ``ConversationStore``.
        lock_timeout_seconds: how long to wait for the turns of others.
        redact: as of ``ConversationStore``: takes out of a message what must not be stored, before it is. The run that is under way
            sends its messages as they were said; later runs send what is stored. Give the same function each time.

    Raises:
        TypeError: the key is no text, or ``redact`` cannot be called.
        ValueError: ``directory`` is a file, or there is no such ``durability``.
        CorruptTranscriptError: a run, or any call; the history is damaged. ``transcript-store verify`` and ``repair`` help.
        ConversationChangedError: a run; it has to take back what it stored, and another run stored something behind that.
        ConversationLockedError: a run, or any call; a store that holds its lock (``hold_lock=True``) has the history open.
        TranscriptStoreError: a run, or any call, as ``ConversationStore``.
    """

    def __init__(
        self,
        key: str,
        directory: str | os.PathLike[str] | ConversationLibrary,
        *,
        durability: Durability = "power-loss",
        lock_timeout_seconds: float = 10.0,
        redact: Redact | None = None,
    ) -> None:
        self.key = key
        home = home_at(directory)
        options = Options.of(home, durability, lock_timeout_seconds, redact)
        self._place = (home, id_of(FRAMEWORK, key), options)
        self._max_bytes = options.store(*self._place[:2]).max_line_bytes  # which checks the options
        self._run: _Run | None = None

    def __repr__(self) -> str:
        return f"TranscriptHistory({self.key!r}, {path_of(self._place[0])!r})"

    # ---- without a run -------------------------------------------------------------------------------------------

    async def messages(self) -> list[ModelMessage]:
        """The stored messages; none if nothing was stored.

        Raises:
            TranscriptStoreError: the history cannot be read. It is never taken for an empty one.
        """
        return list(ModelMessagesTypeAdapter.validate_python(await self._stored_messages()))

    async def append(self, messages: Sequence[ModelMessage]) -> None:
        """Store messages as one batch, such as a history that was kept elsewhere; on return they are durable.

        Raises:
            TypeError: something is no ``ModelMessage``. Nothing was stored.
            InvalidMessageError: a message is too long. Nothing was stored.
            TranscriptStoreError: as ``ConversationStore.append_messages``.
        """
        for k, message in enumerate(messages):
            if not isinstance(message, (ModelRequest, ModelResponse)):  # nobody could read the history any more
                raise TypeError(
                    f"messages[{k}] must be a ModelRequest or a ModelResponse, not {type(message).__name__}: "
                    "ModelMessagesTypeAdapter.validate_json() makes them of JSON"
                )
        if plain := _plain(messages):
            await self._store(plain)

    @property
    def directory(self) -> str:
        """The conversation's folder; on a place, what errors call it."""
        return f"{path_of(self._place[0])}/{self._place[1]}"

    def conversation(self) -> ConversationStore:
        """The conversation underneath, loaded to read: use it in a ``with`` statement, or close it.

        Raises:
            ConversationNotFoundError: nothing was stored yet.
            TranscriptStoreError: as ``ConversationStore.load``.
        """
        return to_read(*self._place[:2])

    def close(self) -> None:
        """Close the history's files. The next call opens them again. No other process waits for this."""
        close(*self._place)

    # ---- what pydantic-ai calls ----------------------------------------------------------------------------------

    async def for_run(self, ctx: RunContext[Any]) -> TranscriptHistory:
        """One of its own for each run. Two of one key are the same run."""
        own = copy(self)
        own._run = _runs.setdefault((*self._place[:2], ctx.run_id or str(uuid4())), _Run())
        return own

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Put the stored history before a run that began without one."""
        run = self._of_this_run()
        if run.has_begun:
            return request_context
        run.head, plain = await self._call(_end_of) or (_NO_HEAD, [])
        run.has_begun = True
        if len(ctx.messages) > 1:
            if not self._is_stored_as(_plain(ctx.messages[: len(plain)]), plain):
                raise ValueError(
                    f"the message_history of this run does not begin with the {len(plain)} messages that are stored "
                    f"under {self.key[:60]!r}: leave it out, or give what messages() gives"
                )
            run.messages = ctx.messages[: len(plain)]
            run.plain = _plain(run.messages)
            return request_context
        run.messages, run.plain = list(ModelMessagesTypeAdapter.validate_python(plain)), plain
        _answer_what_was_cut_off(run.messages, ctx.messages[-1])
        ctx.messages[:0] = run.messages
        return replace(request_context, messages=[*run.messages, *request_context.messages])

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Store what is new, before it is sent."""
        await self._keep(ctx.messages)
        return request_context

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Store the reply, before its tools are called."""
        response = replace(  # as the run will do
            response,
            run_id=response.run_id or ctx.run_id,
            conversation_id=response.conversation_id or ctx.conversation_id,
            model_id=response.model_id or request_context.model.model_id,
        )
        await self._keep([*ctx.messages, response])
        return response

    async def after_run(
        self,
        ctx: RunContext[Any],  # noqa: ARG002
        *,
        result: AgentRunResult[Any],
    ) -> AgentRunResult[Any]:
        """Store what came behind the last reply: the results of tools that ended the run."""
        await self._keep(result.all_messages())
        return result

    # ---- within --------------------------------------------------------------------------------------------------

    def _of_this_run(self) -> _Run:
        assert self._run is not None, "pydantic-ai calls for_run() first"
        return self._run

    async def _keep(self, messages: Sequence[ModelMessage]) -> None:
        """Make what is stored equal to what the run has."""
        run = self._of_this_run()
        same = 0
        for known, plain, message in zip(run.messages, run.plain, messages, strict=False):
            if known is not message and not _same(_plain([message]), [plain]):
                break
            same += 1
        new = _plain(messages[same:])
        if surplus := len(run.plain) - same:
            run.head = await self._call(lambda store: store.retract(surplus, if_head=run.head).head)
            run.messages, run.plain = run.messages[:same], run.plain[:same]
        if new:
            before, after = await self._store(new)
            run.head = after if run.head == before else run.head
        run.messages, run.plain = [*messages], [*run.plain[:same], *new]

    async def _stored_messages(self) -> list[Any]:
        return [restored(message) for message in await self._call(ConversationStore.get_messages) or ()]

    def _is_stored_as(self, given: Sequence[Any], plain: Sequence[Any]) -> bool:
        if _same(given, plain):
            return True
        redact = of_items(self._place[2].redact)
        return redact is not None and _same([redacted(redact, each, "message_history") for each in given], plain)

    async def _store(self, plain: Sequence[Any]) -> tuple[str, str]:
        """Append messages; returns what the transcript ended in before and after."""
        messages = [stored(each, f"messages[{k}]", self._max_bytes) for k, each in enumerate(plain)]
        ends: tuple[str, str] = await self._call(partial(_append, messages), partial(self._begin, messages))
        return ends

    def _begin(self, messages: Sequence[EncodedMessage], store: ConversationStore) -> tuple[str, str]:
        name = readable(self.key)
        store.initialize(
            id=self._place[1],
            provider=FRAMEWORK,
            labels={f"{FRAMEWORK}.key": name, "title": name},
            messages=messages,
            features=["retract"],
        )
        count, head = store.position
        return _NO_HEAD, head if count == len(messages) else _NO_HEAD  # else another process stored something behind it

    async def _call(self, function: Any, begin: Any = None) -> Any:
        async with conversation(*self._place) as found:
            return await found.call(function, begin)


def _end_of(store: ConversationStore) -> tuple[str, list[Any]]:
    head = store.head  # first: what comes between the two is not ours to take back
    return head, [restored(message) for message in store.get_messages()]


def _append(messages: Sequence[EncodedMessage], store: ConversationStore) -> tuple[str, str]:
    results = store.append_messages(messages)
    return results[0].previous_head, results[-1].head


def _answer_what_was_cut_off(history: Sequence[ModelMessage], request: ModelMessage) -> None:
    """Begin the request with a result for each call that has none: a process ended while its tools ran. Providers refuse such a history."""
    last = history[-1] if history else None
    if isinstance(last, ModelResponse) and isinstance(request, ModelRequest):
        results = [
            ToolReturnPart(call.tool_name, _CUT_OFF, tool_call_id=call.tool_call_id, outcome="interrupted")
            for call in last.parts
            if isinstance(call, ToolCallPart)
        ]
        request.parts = [*results, *request.parts]


def _plain(messages: Sequence[ModelMessage]) -> list[Any]:
    plain: list[Any] = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return plain


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    def without(plain: Any) -> Any:
        return {name: value for name, value in plain.items() if name not in _FILLED_LATER}

    return [*map(without, one)] == [*map(without, other)]
