"""The history of a pydantic-ai agent that survives a power cut.

.. code-block:: text

    from transcript_store.integrations.pydantic_ai import TranscriptHistory

    agent = Agent(model, capabilities=[TranscriptHistory("user-1", "chats")])

It needs the extra ``pydantic-ai``. A ``ModelMessage`` is a message. The run's messages and the stored ones are kept equal:

* before a run starts, the stored history becomes its ``message_history``. So the framework treats it like any history: system
  prompts, calls that wait for a result, a repeated question.
* before each attempt of a request, new messages are stored; a reply is stored before any of its tools is called.
* at the end of a run, successful or not, its messages are stored: results of tools, a reply that was cut off.
* messages that the run has dropped (a rejected reply) are retracted, and their replacements are stored.
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

import anyio

from transcript_store.integrations._conversations import (
    Home,
    OpenOptions,
    begin_turn,
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
    with_whole_characters,
)
from transcript_store.integrations._values import of_items, readable, redact_item, stored
from transcript_store.library import ConversationLibrary
from transcript_store.messages import EncodedMessage

__all__ = ["TranscriptHistory"]

FRAMEWORK = "pydantic-ai"
_CUT_OFF = "The run ended before this call had a result. The tool may have run, partly or completely."
_NOT_CALLED = "The reply was cut off, and this call did not run."
_WAITED_FOR = {
    "approval": ("This call was not approved and did not run.", "denied"),
    "result": ("This call was passed to the caller, and no result was returned.", "interrupted"),
}
_FINAL = "Final result processed."
_NOT_USED = "{} - a final result was already processed."
"""The framework's own text for a model about the calls beside a final result."""

_NO_HEAD = "0" * 32


@dataclass
class _Run:
    """The stored messages of a run, as objects and as JSON, in order."""

    id: str
    messages: list[ModelMessage] = field(default_factory=list)
    plain: list[Any] = field(default_factory=list)
    has_begun: bool = False
    is_given: bool = False
    """True if the caller gave the run a history."""
    has_more: bool = False
    """True if it has more messages than are stored."""
    head: str = _NO_HEAD
    """The head after these messages. If another run has written since, it prevents a retraction of that run's messages."""
    known: int = 0
    """How many messages were stored when the run began."""
    last: ModelMessage | None = None
    """The last message of the run's history, in the form that is sent."""
    waiting: dict[str, str] = field(default_factory=dict)
    """The calls that the previous run left for approval or an answer."""
    live: list[ModelMessage] | None = None
    """The framework's list of the run's messages; another list than at the run's start."""
    answers: ModelRequest | None = None
    """The text for the model about interrupted calls: part of the request with the next question."""
    stream: Any = None
    """The streaming reply. The framework's own list gets it when the stream is closed."""
    results: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """By the call's id, its tool's result as a part, and the user content with it."""
    final: Any = None
    """The final result of a run that was streamed."""
    results_of_stream: ModelRequest | None = None
    """The results of the tools beside it."""
    waits: dict[str, str] = field(default_factory=dict)
    """The calls that this run leaves for approval or an answer."""
    nodes: int = 0
    """The number of running nodes."""
    has_ended: bool = False
    end_turn: Callable[[], None] = lambda: None
    storing: asyncio.Lock = field(default_factory=asyncio.Lock)


_runs: WeakValueDictionary[tuple[Home, str, str], _Run] = WeakValueDictionary()
"""By folder and run: an agent may have one history twice (its own, and one of a run); both are the same run."""


class TranscriptHistory(AbstractCapability[Any]):  # type: ignore[misc]  # the framework's types are not followed
    """A capability that gives an agent its stored history, and stores each message before the run continues.

    Runs on one history take turns in a process: the second one waits until the first has ended. A run that is given a
    ``message_history`` must start with the stored messages; otherwise it is refused, before a request is made. Approvals
    and results of deferred tools need it.

    Args:
        key: the history's key: any text.
        directory: the library's folder, which is created if it is missing; or a ``ConversationLibrary``, also on a
            backend: objects with the same one share its open stores.
        durability: as in ``ConversationStore``.
        lock_timeout_seconds: how long to wait for other writers' calls, and for another run of this process to end.
        redact: as in ``ConversationStore``. The current run sends unredacted messages; later runs send the stored ones.
            Give the same function each time.

    Raises:
        TypeError: the key is not text, or ``redact`` is not callable.
        ValueError: ``directory`` is a file, or there is no such ``durability``.
        CorruptTranscriptError: a run, or any call; the history is damaged. ``transcript-store verify`` and ``repair`` help.
        ConversationChangedError: a run; it must retract messages, and another run has stored others after them.
        ConversationLockedError: a run; another run on this history did not end within ``lock_timeout_seconds``, or this run
            is inside a tool of that run: give the inner agent another key. Or any call; a store that holds its
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
        self._max_bytes = options.store(*self._place[:2]).max_line_bytes  # this checks the options
        self._run: _Run | None = None

    def __repr__(self) -> str:
        return f"TranscriptHistory({self.key!r}, {path_of(self._place[0])!r})"

    # ---- without a run -------------------------------------------------------------------------------------------

    async def messages(self) -> list[ModelMessage]:
        """The stored messages; empty if nothing was stored.

        Raises:
            TranscriptStoreError: the history cannot be read. It is never treated as empty.
        """
        _, history = await self._call(_history_of) or _nothing()
        return of_json(history.plain)

    async def append(self, messages: Sequence[ModelMessage]) -> None:
        """Store messages as one batch, such as a history from elsewhere; on return they are durable.

        Raises:
            TypeError: an item is not a ``ModelMessage``, or JSON cannot carry it. Nothing was stored.
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
        """The conversation's folder; on a backend, its name in errors."""
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
        """Outermost: the history, requests and replies are stored as the other capabilities leave them."""
        return CapabilityOrdering(position="outermost")

    def get_default_conversation_id(self, run_id: str) -> str:  # noqa: ARG002
        """The id in the stored messages; for a new history, the id of its conversation in the library.

        Raises:
            TranscriptStoreError: the history cannot be read.
        """
        _, history = call_now(*self._place, _history_of) or _nothing()
        ids = (message.get("conversation_id") for message in reversed(history.plain))
        return next(filter(None, ids), self._place[1])

    async def for_run(self, ctx: RunContext[Any]) -> TranscriptHistory:
        """A copy for each run. Two with one key are the same run."""
        own = copy(self)
        run_id = ctx.run_id or str(uuid4())
        own._run = _runs.setdefault((*self._place[:2], run_id), _Run(run_id))
        return own

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Callable[[], Any]) -> AgentRunResult[Any]:
        """Put the stored history before the run's messages; at the end of the run, store its messages."""
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
        """Prepare the history for the run's first request; store a reply before the run acts on it."""
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
        """Remember the framework's list: in an older version this is the only chance if the caller iterates over the nodes."""
        self._of_this_run().live = ctx.messages
        return request_context

    if hasattr(AbstractCapability, "prepare_model_request"):

        async def prepare_model_request(
            self, ctx: RunContext[Any], request_context: ModelRequestContext
        ) -> ModelRequestContext:
            """Store new messages before they are sent."""
            await self._keep(ctx.messages)
            return request_context

    else:  # before 2.64: the history processors have run when this is called

        async def wrap_model_request(
            self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Callable[..., Any]
        ) -> ModelResponse:
            """Store new messages before they are sent."""
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
        """Store the reply before its tool runs, if it is not stored yet, and remember the tool's result."""
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
        run.head, history = await self._call(_history_of) or _nothing()
        run.plain, run.waiting = history.plain, history.waiting
        run.messages = of_json(run.plain)
        run.known = len(run.plain)
        new = self._new_in(messages, run.messages, is_asked)
        if new is None:
            what = f"the {len(run.plain)} messages that are stored under {self.key[:60]!r}"
            raise ValueError(
                f"the message_history of this run does not begin with {what}: leave it out, or pass messages()"
            )
        run.is_given = bool(messages)
        # A web page asks by adding to its history. A skipped call has no result, and a stopped reply is requested again.
        known, asks_now = run.messages, bool(messages) and asks_something(messages[-1])
        if asks_now and not new:
            known = known[: 1 + max(n for n, each in enumerate(known) if asks_something(each))]
        sendable = with_whole_characters(known, run.plain[: len(known)])
        ordered = in_order(sendable, self._instead_of, also_last=asks_now and not answers_a_call(new))
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
        """Let a question be the next message: drop a repeated question, and answer abandoned calls.

        Without a question the framework continues with the calls, if the caller passes them to the run.
        """
        run = self._of_this_run()
        if run.has_more or (prompt is None and run.is_given):
            return  # the framework handles what the caller added
        if messages and asks(messages[-1], prompt):
            del messages[-1]  # it was asked before, without an answer
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
        """Track when the node is done, and its streaming reply."""
        # A cancelled run ends before its node, which still adds the results of its tools. And ``run_stream()`` calls
        # tools before the stream is closed.
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
        """The results of a reply's calls, if the framework's own list does not get them: ``run_stream()`` has a copy."""
        run = self._of_this_run()
        strategy = getattr(ctx.agent, "end_strategy", None) if ctx is not None else None
        parts: list[Any] = []
        contents: list[Any] = []

        def is_output(call: ToolCallPart) -> bool:
            definition = ctx.tool_manager.get_tool_def(call.tool_name) if ctx is not None else None
            return definition is not None and definition.kind == "output"

        # In the framework's order: with "early" the output tools come first; with "graceful" each batch between two of them ends
        # with the user content.
        for call in sorted(tool_calls_of(reply), key=lambda call: strategy == "early" and not is_output(call)):
            if call.tool_call_id in run.results:
                part, content = run.results[call.tool_call_id]
            elif ctx is not None:
                part, content = _beside_a_final_result(call, run.final, strategy, is_output(call)), None
            else:
                continue
            if strategy == "graceful" and is_output(call):
                parts, contents = [*parts, *contents], []
            parts.append(part)
            contents += [UserPromptPart(content)] if content else []
        if not parts:
            return None
        ids = {"run_id": reply.run_id, "conversation_id": reply.conversation_id}
        request = ModelRequest(parts=[*parts, *contents], timestamp=datetime.now(UTC), **ids)
        return request if ctx is not None else replace(request, state="interrupted")

    async def _end_run(self) -> None:
        """Store the run's final messages exactly: the framework may have changed stored ones."""
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
        """Make the stored messages equal to the run's. ``waits`` are the calls that the run leaves open, by their id.

        With ``to_the_letter``, unchanged objects are compared too: the framework may have changed their contents.
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
            if same < min(own, len(run.plain)):  # messages from before this run change: replaced in one commit
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
                # Another process's run is active: both append to the history, and the next run puts it in order.
                writing = _Writing(self._encoded(unstored), waits=waits)
                await self._write(writing)
            finally:
                if writing.ends is not None:  # also if the run was cancelled in between
                    before, after = writing.ends
                    run.head = after if run.head == before else run.head
                    run.messages, run.plain = [*messages], now

    def _unstored(self, messages: Sequence[ModelMessage], now: list[Any]) -> list[Any] | None:
        """The run's own unstored messages, as JSON; None if it changed stored ones."""
        run = self._of_this_run()
        starts = (n + 1 for n, each in enumerate(messages) if each is run.last)
        own = now[next(starts, 0) if run.last is not None else 0 :]
        there = run.plain[run.known :]
        return own[len(there) :] if own[: len(there)] == there and (run.last is None or len(own) < len(now)) else None

    def _encoded(self, messages: Sequence[Any]) -> list[EncodedMessage]:
        return [stored(each, f"messages[{k}]", self._max_bytes) for k, each in enumerate(messages)]

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
        # With another count another process has appended since: this head is not ours.
        writing.ends = _NO_HEAD, head if count == len(messages) else _NO_HEAD

    async def _call(self, function: Any, begin: Any = None) -> Any:
        async with conversation(*self._place) as found:
            return await found.call(function, begin)


@dataclass
class _Writing:
    """One write to a transcript, in the store's thread; so it completes even if the run is cancelled."""

    new: list[EncodedMessage]
    changes: list[tuple[int, Change]] = field(default_factory=list)
    """The changes of stored messages."""
    waits: dict[str, str] | None = None
    surplus: int = 0
    """How many of the last messages are retracted first."""
    whole: int | None = None
    """``new`` replaces all messages, of which this many keep their times and extras. None: ``new`` is appended."""
    head: str = _NO_HEAD
    """The head if no other process wrote: with another head nothing is retracted or replaced."""
    ends: tuple[str, str] | None = None
    """The transcript's heads before and after; None until something is written."""

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
            ConversationChangedError: messages must be retracted or replaced, and another writer came first.
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
        except ConversationChangedError:
            self.changes = []  # their positions changed; the changes do not alter the content
            self.write(store)
            return
        if results:
            self.ends = results[0].previous_head, results[-1].head


def _own_extra(record: Record) -> dict[str, Any] | None:
    """A record's extra without its facts about other records."""
    return {name: value for name, value in (record.extra or {}).items() if name not in {NOW, WAITING}} or None


def _history_of(store: ConversationStore) -> tuple[str, RecordedHistory]:
    head = store.head  # read first: records that come in between are not ours to retract
    return head, history_in(store.get_records())


def _nothing() -> tuple[str, RecordedHistory]:
    return _NO_HEAD, RecordedHistory([], [], {})


def _waiting(output: object) -> dict[str, str]:
    """The calls that a run ended with, for approval or results from outside."""
    if not isinstance(output, DeferredToolRequests):
        return {}
    return {
        **{call.tool_call_id: "result" for call in output.calls},
        **{call.tool_call_id: "approval" for call in output.approvals},
    }


def _result_of(call: ToolCallPart, result: Any) -> tuple[Any, Any]:
    """A tool's result as the framework stores it: a part, and the user content with it."""
    given = result if isinstance(result, ToolReturn) else ToolReturn(result)
    part = ToolReturnPart(call.tool_name, given.return_value, tool_call_id=call.tool_call_id, metadata=given.metadata)
    return part, given.content


def _error_result(call: ToolCallPart, error: Exception) -> Any:
    """The text for the model about a call whose tool asks for a retry; None for an error that ends the run."""
    part = getattr(error, "tool_retry", None) or getattr(error, "tool_failed", None)
    if part is None and isinstance(error, ModelRetry):
        part = ToolReturnPart(call.tool_name, error.message, tool_call_id=call.tool_call_id, outcome="failed")
    return part


def _beside_a_final_result(call: ToolCallPart, final: Any, strategy: str | None, is_output: bool) -> ToolReturnPart:
    """The framework's text for a model about a call that was not executed because of a final result."""
    if final.tool_call_id == call.tool_call_id:
        text = _FINAL
    elif not is_output:
        text = _NOT_USED.format("Tool not executed")
    elif strategy == "exhaustive":
        text = "Output tool processed, but its value will not be the final result of the agent run."
    else:
        text = _NOT_USED.format("Output tool not used")
    return ToolReturnPart(call.tool_name, text, tool_call_id=call.tool_call_id)
