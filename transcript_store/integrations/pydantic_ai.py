"""The history of a pydantic-ai agent that survives a power cut.

.. code-block:: text

    from transcript_store.integrations.pydantic_ai import TranscriptHistory

    agent = Agent(model, capabilities=[TranscriptHistory("user-1", "chats")])

It needs the extra ``pydantic-ai``.

A ``ModelMessage`` is a message. What a run has in memory and what is stored are kept equal:

* before a run begins, the stored history is put where the framework has the ``message_history`` of a run that is given one. So all that the
  framework does with a history, it does with this one: system prompts, calls that wait for a result, a question that is asked again.
* before each attempt of a request, what is new is stored; the reply is stored before any of its tools is called.
* when the run has ended, however it ended, what it has then is stored: results of tools, a reply that was cut off.
* what the run no longer has (a reply that was rejected) is taken back when that is seen, and what it has instead is stored.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import anyio

from transcript_store.conversation import ConversationStore, Durability, Record, Redact
from transcript_store.errors import ConversationChangedError, MissingExtraError

try:
    from pydantic_ai import CallToolsNode, DeferredToolRequests, ModelRequestNode, ToolReturn, UserPromptNode
    from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
    from pydantic_ai.exceptions import ModelRetry, UserError
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequest,
        ModelResponse,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.run import AgentRunResult
    from pydantic_ai.tools import RunContext
except ModuleNotFoundError as _error:
    if (_error.name or "").partition(".")[0] != "pydantic_ai":
        raise
    raise MissingExtraError(feature="transcript_store.integrations.pydantic_ai", extra="pydantic-ai") from _error

from transcript_store.integrations._conversations import (
    Home,
    OpenOptions,
    call_now,
    close,
    conversation,
    home_at,
    id_for_key,
    path_of,
    to_read,
)
from transcript_store.integrations._model_messages import (
    NOW,
    WAITING,
    Change,
    RecordedHistory,
    answers_a_call,
    asks,
    asks_something,
    change_of,
    extra_of,
    history_in,
    in_order,
    is_dynamic,
    message_json,
    new_in,
    of_json,
    tool_calls_of,
)
from transcript_store.integrations._runs import begin_turn
from transcript_store.integrations._values import of_items, readable, redact_item, stored
from transcript_store.library import ConversationLibrary
from transcript_store.messages import EncodedMessage

__all__ = ["TranscriptHistory"]

FRAMEWORK = "pydantic-ai"
_CUT_OFF = "The run ended before this call had a result. The tool may have run, in part or to its end."
_NOT_CALLED = "The reply was cut off, and this call did not run."
_WAITED_FOR = {
    "approval": ("This call was not approved and did not run.", "denied"),
    "result": ("This call was handed on, and no result came back.", "interrupted"),
}
_FINAL = "Final result processed."
_NOT_USED = "{} - a final result was already processed."
"""The framework's own text for a model about the calls beside a final result."""

_NO_HEAD = "0" * 32


@dataclass
class _Run:
    """What of a run is stored: its messages, as objects and as JSON, in order."""

    id: str
    messages: list[ModelMessage] = field(default_factory=list)
    plain: list[Any] = field(default_factory=list)
    has_begun: bool = False
    is_given: bool = False
    """True if the caller gave the run a history."""
    has_more: bool = False
    """True if it has more messages than are stored."""
    head: str = _NO_HEAD
    """The head when these were the transcript's last messages. After another run stored something it is out of date and
    permits no retraction: the last messages may be the other run's.
    """
    known: int = 0
    """How many messages were stored when the run began."""
    last: ModelMessage | None = None
    """The last message of the history that the run was given, as it is sent."""
    waiting: dict[str, str] = field(default_factory=dict)
    """The calls that the previous run left for approval or an answer."""
    live: list[ModelMessage] | None = None
    """The list in which the framework has the run's messages. It is another one than that at the run's beginning."""
    answers: ModelRequest | None = None
    """The text for the model about interrupted calls: it belongs into the request with the next question."""
    stream: Any = None
    """The reply that is being streamed. The framework's own list has it only when the stream is closed."""
    results: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """By the call's id, what its tool gave, as a part, and what the user says with it."""
    final: Any = None
    """The final result of a run that was streamed."""
    results_of_stream: ModelRequest | None = None
    """The results of the tools beside it."""
    waits: dict[str, str] = field(default_factory=dict)
    """The calls that this run leaves for approval or an answer."""
    nodes: int = 0
    """How many nodes are at work."""
    has_ended: bool = False
    end_turn: Callable[[], None] = lambda: None
    storing: asyncio.Lock = field(default_factory=asyncio.Lock)


_runs: WeakValueDictionary[tuple[Home, str, str], _Run] = WeakValueDictionary()
"""By folder and run: an agent may have one history twice (its own, and one of a run), and what one of them stored is stored."""


class TranscriptHistory(AbstractCapability[Any]):  # type: ignore[misc]  # the framework's types are not followed
    """A capability that gives an agent its stored history, and stores each message before the run continues.

    Runs on one history take turns in a process: the second one waits until the first has ended. A run that is given a
    ``message_history`` must begin with what is stored; anything else is refused, before a request is made. Approvals
    and results of deferred tools need it.

    Args:
        key: the history's key: any text.
        directory: the folder with the conversations, a library, which is made if it is missing. Or a
            ``ConversationLibrary``, which may be on a backend: objects that are given the same one share what is open.
        durability: as of ``ConversationStore``.
        lock_timeout_seconds: how long to wait for the turns of others, and for another run of this process to end.
        redact: as of ``ConversationStore``: takes out of a message what must not be stored, before it is. The run that
            is under way sends its messages as they were said; later runs send what is stored. Give the same function
            each time.

    Raises:
        TypeError: the key is no text, or ``redact`` cannot be called.
        ValueError: ``directory`` is a file, or there is no such ``durability``.
        CorruptTranscriptError: a run, or any call; the history is damaged. ``transcript-store verify`` and ``repair`` help.
        ConversationChangedError: a run; it has to take back what it stored, and another run stored something behind that.
        ConversationLockedError: a run; another run on this history did not end in ``lock_timeout_seconds``, or this run
            is within one, in a tool of it. Give the inner agent a key of its own. Or any call; a store that holds its
            lock (``hold_lock=True``) has the history open.
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
        options = OpenOptions.of(home, durability, lock_timeout_seconds, redact)
        self._place = (home, id_for_key(FRAMEWORK, key), options)
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
        _, history = await self._stored()
        return of_json(history.plain)

    async def append(self, messages: Sequence[ModelMessage]) -> None:
        """Store messages as one batch, such as a history that was kept elsewhere; on return they are durable.

        Raises:
            TypeError: something is no ``ModelMessage``, or JSON cannot carry it. Nothing was stored.
            InvalidMessageError: a message is too long. Nothing was stored.
            TranscriptStoreError: as ``ConversationStore.append_messages``.
        """
        for k, message in enumerate(messages):
            if not isinstance(message, (ModelRequest, ModelResponse)):  # the history would become unreadable
                raise TypeError(
                    f"messages[{k}] must be a ModelRequest or a ModelResponse, not {type(message).__name__}: "
                    "ModelMessagesTypeAdapter.validate_json() makes them of JSON"
                )
        if messages:
            await self._write(_Writing(new=self._encoded([message_json(each) for each in messages])))

    @property
    def directory(self) -> str:
        """The conversation's folder; on a backend, what errors call it."""
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

    def get_ordering(self) -> CapabilityOrdering:
        """Outside of the others: what they make of a history, a request or a reply is what is stored."""
        return CapabilityOrdering(position="outermost")

    def get_default_conversation_id(self, run_id: str) -> str:  # noqa: ARG002
        """The one that the stored messages have; of a new history, the id of its conversation in the library.

        Raises:
            TranscriptStoreError: the history cannot be read.
        """
        _, history = call_now(*self._place, _history_of) or (_NO_HEAD, RecordedHistory([], [], {}))
        ids = (message.get("conversation_id") for message in reversed(history.plain))
        return next(filter(None, ids), self._place[1])

    async def for_run(self, ctx: RunContext[Any]) -> TranscriptHistory:
        """One of its own for each run. Two of one key are the same run."""
        own = copy(self)
        run_id = ctx.run_id or str(uuid4())
        own._run = _runs.setdefault((*self._place[:2], run_id), _Run(run_id))
        return own

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Callable[[], Any]) -> AgentRunResult[Any]:
        """Put the stored history before the run's messages; when the run has ended, store what it has then."""
        run = self._of_this_run()
        if run.has_begun:  # the agent has this history twice
            return await handler()
        home, name, options = self._place
        run.end_turn = await begin_turn(home, name, options.lock_timeout_seconds)
        try:
            await self._begin_run(ctx.messages, is_asked=ctx.prompt is not None)
            result = await handler()
            run.waits = _waiting(result.output)
            if run.live is None:  # a session of a realtime model, which has no nodes
                run.live = result.all_messages()
            return result
        finally:
            run.has_ended = True
            await self._end_run()

    async def before_node_run(self, ctx: RunContext[Any], *, node: Any) -> Any:
        """Prepare the history for what the run begins with; store a reply before what the run makes of it."""
        run = self._of_this_run()
        run.live = ctx.messages
        if isinstance(node, UserPromptNode):
            if node.deferred_tool_results is None:
                self._make_room_for(node.user_prompt, ctx.messages)
            elif not run.is_given:
                raise UserError(
                    "approvals and results of deferred tools need the calls that they are for: "
                    "give the run message_history=await history.messages() too"
                )
        elif isinstance(node, ModelRequestNode):
            if run.answers is not None and ctx.messages and ctx.messages[-1] is run.answers:
                node.request.parts = [*run.answers.parts, *node.request.parts]
                del ctx.messages[-1]
        elif isinstance(node, CallToolsNode):
            await self._keep(ctx.messages)
        elif (final := getattr(node, "final_result", None)) is not None:
            run.final = final
            if run.stream is not None:
                reply = self._streamed(ctx)
                run.results_of_stream = self._results_of(reply, ctx)
                await self._keep([*ctx.messages, reply, *filter(None, [run.results_of_stream])])
        if isinstance(node, (ModelRequestNode, CallToolsNode)):
            self._watch(node)
        return node

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Note where the framework has the messages: an older version has no other place for it if the caller iterates
        over the nodes.
        """
        self._of_this_run().live = ctx.messages
        return request_context

    if hasattr(AbstractCapability, "prepare_model_request"):

        async def prepare_model_request(
            self, ctx: RunContext[Any], request_context: ModelRequestContext
        ) -> ModelRequestContext:
            """Store what is new, before it is sent."""
            await self._keep(ctx.messages)
            return request_context

    else:  # before 2.64, in which the processors of a history are done when this is called

        async def wrap_model_request(
            self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Callable[..., Any]
        ) -> ModelResponse:
            """Store what is new, before it is sent."""
            await self._keep(ctx.messages)
            return await handler(request_context)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: Any,  # noqa: ARG002
        args: Any,
        handler: Callable[[Any], Any],
    ) -> Any:
        """Store the reply before its tool runs, if it is not stored yet, and note what the tool gave."""
        run = self._of_this_run()
        await self._keep([*ctx.messages, self._streamed(ctx)] if run.stream is not None else ctx.messages)
        try:
            result = await handler(args)
        except Exception as error:
            if (text := _error_result(call, error)) is not None:
                run.results[call.tool_call_id] = text, None
            raise
        run.results[call.tool_call_id] = _result_of(call, result)
        return result

    # ---- within --------------------------------------------------------------------------------------------------

    def _of_this_run(self) -> _Run:
        assert self._run is not None, "pydantic-ai calls for_run() first"
        return self._run

    async def _begin_run(self, messages: list[ModelMessage], *, is_asked: bool) -> None:
        run = self._of_this_run()
        run.has_begun = True
        run.head, history = await self._stored()
        run.plain, run.waiting = history.plain, history.waiting
        run.messages = of_json(run.plain)
        run.known = len(run.plain)
        new = self._new_in(messages, run.messages, is_asked)
        if new is None:
            raise ValueError(
                f"the message_history of this run does not begin with the {len(run.plain)} messages that are stored "
                f"under {self.key[:60]!r}: leave it out, or give what messages() gives"
            )
        run.is_given = bool(messages)
        # A page asks by what it adds to its history. A call that it passed by has no result, and a reply that was stopped is asked again.
        known, asks_now = run.messages, bool(messages) and asks_something(messages[-1])
        if asks_now and not new:
            known = known[: 1 + max(n for n, each in enumerate(known) if asks_something(each))]
        ordered = in_order(known, self._instead_of, also_last=asks_now and not answers_a_call(new))
        run.has_more = bool(new)
        # The framework puts today's value of a dynamic system prompt into the message; before 2.55 into the very one that it has.
        messages[:] = [*(replace(each, parts=[*each.parts]) if is_dynamic(each) else each for each in ordered), *new]
        run.last = messages[len(ordered) - 1] if ordered else None

    def _new_in(
        self, given: Sequence[ModelMessage], known: Sequence[ModelMessage], is_asked: bool
    ) -> list[ModelMessage] | None:
        if not given:
            return []
        new = new_in(given, known, is_asked=is_asked)
        redact = of_items(self._place[2].redact)
        if new is not None or redact is None:
            return new
        read = of_json([redact_item(redact, message_json(each), "message_history") for each in given])
        return new_in(read, known, is_asked=is_asked)

    def _make_room_for(self, prompt: object, messages: list[ModelMessage]) -> None:
        """Let a question be the next message: repeated messages are dropped, and abandoned calls get an answer.

        Without a question the framework continues with the calls, if the caller has seen them and gives them to the
        run.
        """
        run = self._of_this_run()
        if run.has_more or (prompt is None and run.is_given):
            return  # what the caller added is the framework's to put in order
        if messages and asks(messages[-1], prompt):
            del messages[-1]  # it was asked, and there is no answer
        ordered = in_order(messages, self._instead_of, also_last=True)
        if len(ordered) > len(messages):
            run.answers = ordered[-1]
        messages[:] = ordered

    def _instead_of(self, call: ToolCallPart) -> ToolReturnPart:
        """The text for the model about a call without a result."""
        run = self._of_this_run()
        text, outcome = _CUT_OFF, "interrupted"
        if waited_for := run.waiting.get(call.tool_call_id):
            text, outcome = _WAITED_FOR[waited_for]
        else:
            for message in reversed(run.messages):
                if isinstance(message, ModelResponse) and any(each is call for each in message.parts):
                    text = _NOT_CALLED if getattr(message, "state", None) == "interrupted" else text
        return ToolReturnPart(call.tool_name, text, tool_call_id=call.tool_call_id, outcome=outcome)

    def _watch(self, node: Any) -> None:
        """Know when the node is done, and the reply while it is streamed.

        A run that is cancelled ends before its node does, which still puts the results of its tools into the messages. And
        ``run_stream()`` calls tools before the stream is closed.
        """
        run, work, stream = self._of_this_run(), node.run, node.stream

        @asynccontextmanager
        async def at_work() -> AsyncIterator[None]:
            run.nodes += 1
            try:
                yield
            finally:
                run.nodes -= 1
                if run.has_ended:
                    await self._end_run()

        async def watched_run(ctx: Any) -> Any:
            async with at_work():
                return await work(ctx)

        @asynccontextmanager
        async def watched_stream(ctx: Any) -> AsyncIterator[Any]:
            async with at_work(), stream(ctx) as opened:
                if isinstance(node, ModelRequestNode):
                    run.stream = opened
                try:
                    yield opened
                finally:
                    run.stream = None

        node.run, node.stream = watched_run, watched_stream

    def _streamed(self, ctx: RunContext[Any]) -> ModelResponse:
        reply: ModelResponse = self._of_this_run().stream.response
        return replace(reply, run_id=ctx.run_id, conversation_id=ctx.conversation_id)

    def _results_of(self, reply: ModelResponse, ctx: RunContext[Any] | None = None) -> ModelRequest | None:
        """The results of a reply's calls, where the framework's own list does not get them: ``run_stream()`` has them in a copy."""
        run = self._of_this_run()
        strategy = getattr(ctx.agent, "end_strategy", None) if ctx is not None else None
        parts: list[Any] = []
        said: list[Any] = []

        def is_output(call: ToolCallPart) -> bool:
            definition = ctx.tool_manager.get_tool_def(call.tool_name) if ctx is not None else None
            return definition is not None and definition.kind == "output"

        # As the framework puts them: with "early" the output tools come first, and with "graceful" each batch between two of them ends
        # with what the user says.
        for call in sorted(tool_calls_of(reply), key=lambda call: strategy == "early" and not is_output(call)):
            if call.tool_call_id in run.results:
                part, content = run.results[call.tool_call_id]
            elif ctx is not None:
                part, content = _beside_a_final_result(call, run.final, strategy, is_output(call)), None
            else:
                continue
            if strategy == "graceful" and is_output(call):
                parts, said = [*parts, *said], []
            parts.append(part)
            said += [UserPromptPart(content)] if content else []
        if not parts:
            return None
        request = ModelRequest(
            parts=[*parts, *said],
            run_id=reply.run_id,
            conversation_id=reply.conversation_id,
            timestamp=datetime.now(UTC),
        )
        return request if ctx is not None else replace(request, state="interrupted")

    async def _end_run(self) -> None:
        """Store what the run has at its end, to the letter: the framework may have changed what was stored before."""
        run = self._of_this_run()
        if run.nodes:
            return  # the last of them calls this again
        try:
            if run.live is not None:
                messages = [*run.live]
                if messages and isinstance(reply := messages[-1], ModelResponse) and reply.run_id == run.id:
                    results = run.results_of_stream or self._results_of(reply)
                    messages += [results] if results is not None and not run.waits else []
                with anyio.CancelScope(shield=True):
                    await self._keep(messages, run.waits, to_the_letter=True)
        finally:
            run.end_turn()

    async def _keep(
        self, messages: Sequence[ModelMessage], waits: dict[str, str] | None = None, *, to_the_letter: bool = False
    ) -> None:
        """Make what is stored equal to what the run has.

        Args:
            messages: what the run has.
            waits: the calls that the run leaves open, by their id.
            to_the_letter: look into messages of this run that are the same objects as before, too.
        """
        run = self._of_this_run()
        async with run.storing:
            own = next((n for n, each in enumerate(run.messages) if each.run_id == run.id), len(run.plain))
            now: list[Any] = []
            changes: list[tuple[int, Change]] = []
            for number, (known, before, message) in enumerate(zip(run.messages, run.plain, messages, strict=False)):
                if known is message and not (to_the_letter and number >= own):
                    now.append(before)
                    continue
                this = message_json(message)
                if this != before:
                    if (change := change_of(before, this)) is None:
                        break
                    changes.append((number, change))
                now.append(this)
            same = len(now)
            now += [message_json(each) for each in messages[same:]]
            if same < min(own, len(run.plain)):  # what is replaced stood there before this run: in one commit
                writing = _Writing(self._encoded(now), waits=waits, whole=same, head=run.head)
            elif changes or waits or len(now) > same or len(run.plain) > same:
                writing = _Writing(self._encoded(now[same:]), changes, waits, len(run.plain) - same, head=run.head)
            else:
                run.messages = [*messages]
                return
            try:
                await self._write(writing)
            except ConversationChangedError:
                if writing.whole is None or (unstored := self._unstored(messages, now)) is None:
                    raise
                # A run of another process is under way: the history stays as both store it, and the next run puts it in order.
                writing = _Writing(self._encoded(unstored), waits=waits)
                await self._write(writing)
            finally:
                if writing.ends is not None:  # also if the run was cancelled meanwhile
                    before, after = writing.ends
                    run.head = after if run.head == before else run.head
                    run.messages, run.plain = [*messages], now

    def _unstored(self, messages: Sequence[ModelMessage], now: list[Any]) -> list[Any] | None:
        """What the run has of its own that is not stored, as JSON; None if it changed what it stored."""
        run = self._of_this_run()
        starts = (n + 1 for n, each in enumerate(messages) if each is run.last)
        own = now[next(starts, 0) if run.last is not None else 0 :]
        there = run.plain[run.known :]
        return own[len(there) :] if own[: len(there)] == there and (run.last is None or len(own) < len(now)) else None

    def _encoded(self, messages: Sequence[Any]) -> list[EncodedMessage]:
        return [stored(each, f"messages[{k}]", self._max_bytes) for k, each in enumerate(messages)]

    async def _stored(self) -> tuple[str, RecordedHistory]:
        """What the transcript ends in, and what it says."""
        return await self._call(_history_of) or (_NO_HEAD, RecordedHistory([], [], {}))

    async def _write(self, writing: _Writing) -> None:
        await self._call(writing.write, partial(self._begin, writing))

    def _begin(self, writing: _Writing, store: ConversationStore) -> None:
        name = readable(self.key)
        messages, extras = writing.records()
        store.initialize(
            id=self._place[1],
            provider=FRAMEWORK,
            labels={f"{FRAMEWORK}.key": name, "title": name},
            messages=messages,
            extras=extras,
            features=["retract"],
        )
        count, head = store.position
        writing.ends = (
            _NO_HEAD,
            head if count == len(messages) else _NO_HEAD,
        )  # else another process stored something after it

    async def _call(self, function: Any, begin: Any = None) -> Any:
        async with conversation(*self._place) as found:
            return await found.call(function, begin)


@dataclass
class _Writing:
    """One write to a transcript, in the store's thread; so it completes even if the run is cancelled meanwhile."""

    new: list[EncodedMessage]
    changes: list[tuple[int, Change]] = field(default_factory=list)
    """What of messages that are stored is different now."""
    waits: dict[str, str] | None = None
    surplus: int = 0
    """How many of the last messages are taken back first."""
    whole: int | None = None
    """``new`` replaces all messages; so many of the first ones keep their times and extras. None: it is appended."""
    head: str = _NO_HEAD
    """The head if no other process wrote: with another head nothing is retracted or replaced."""
    ends: tuple[str, str] | None = None
    """What the transcript ended in before and after; None as long as nothing was written."""

    def records(self) -> tuple[list[EncodedMessage | None], list[dict[str, Any] | None]]:
        """The new records: the first one has the changes, and an event the open calls."""
        messages: list[EncodedMessage | None] = [*self.new]
        extras: list[dict[str, Any] | None] = [None] * len(messages)
        if self.waits or (self.changes and not messages):
            messages.append(None)
            extras.append({WAITING: self.waits or {}})
        if self.changes:
            extras[0] = {**(extras[0] or {}), **extra_of(self.changes)}
        return messages, extras

    def write(self, store: ConversationStore) -> None:
        """Write it; then ``ends`` is set.

        Raises:
            ConversationChangedError: something is to be taken back or replaced, and another writer came in between.
        """
        messages, extras = self.records()
        if self.whole is not None:
            kept: list[Record] = history_in(store.get_records()).records[: self.whole]
            behind = [None] * (len(messages) - len(kept))
            store.replace_transcript(
                messages,
                extras=[*map(_own_extra, kept), *extras[len(kept) :]],
                times=[*(record.at for record in kept), *behind],
                if_head=self.head,
                features=["retract"],
            )
            self.ends = self.head, store.head
            return
        results = []
        if self.surplus:
            results.append(store.retract(self.surplus, if_head=self.head))
        try:
            if messages:
                if_head = self.head if self.changes and not self.surplus else None
                results += store.append_messages(messages, extras=extras, if_head=if_head)
        except (
            ConversationChangedError
        ):  # the places of what changed are other ones now; it says the same, so it is left out
            self.changes = []
            self.write(store)
            return
        if results:
            self.ends = results[0].previous_head, results[-1].head


def _own_extra(record: Record) -> dict[str, Any] | None:
    """A record's extra without what it said of other records."""
    return {name: value for name, value in (record.extra or {}).items() if name not in {NOW, WAITING}} or None


def _history_of(store: ConversationStore) -> tuple[str, RecordedHistory]:
    head = store.head  # first: what comes between the two is not ours to take back
    return head, history_in(store.get_records())


def _waiting(output: object) -> dict[str, str]:
    """The calls that a run ended with, for approval or results from outside."""
    if not isinstance(output, DeferredToolRequests):
        return {}
    return {
        **{call.tool_call_id: "result" for call in output.calls},
        **{call.tool_call_id: "approval" for call in output.approvals},
    }


def _result_of(call: ToolCallPart, result: Any) -> tuple[Any, Any]:
    """What a tool gave, as the framework puts it into the history: a part, and what the user says with it."""
    given = result if isinstance(result, ToolReturn) else ToolReturn(result)
    part = ToolReturnPart(call.tool_name, given.return_value, tool_call_id=call.tool_call_id, metadata=given.metadata)
    return part, given.content


def _error_result(call: ToolCallPart, error: Exception) -> Any:
    """The text for the model about a call whose tool asks for something else; None for an error that ends the run."""
    part = getattr(error, "tool_retry", None) or getattr(error, "tool_failed", None)
    if part is None and isinstance(error, ModelRetry):
        part = ToolReturnPart(call.tool_name, error.message, tool_call_id=call.tool_call_id, outcome="failed")
    return part


def _beside_a_final_result(call: ToolCallPart, final: Any, strategy: str | None, is_output: bool) -> ToolReturnPart:
    """The framework's text for a model about a call that no tool of the program answered, since there was a final result."""
    if final.tool_call_id == call.tool_call_id:
        text = _FINAL
    elif not is_output:
        text = _NOT_USED.format("Tool not executed")
    elif strategy == "exhaustive":
        text = "Output tool processed, but its value will not be the final result of the agent run."
    else:
        text = _NOT_USED.format("Output tool not used")
    return ToolReturnPart(call.tool_name, text, tool_call_id=call.tool_call_id)
