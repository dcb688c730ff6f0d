"""The turn: question, reply, tools, answer, each on disk before the next step. It knows nothing of any provider.

What is true at each step, whatever happens next (a crash, Ctrl-C, an error of the server or of the disk):

1. a request is sent only when everything that it carries is on record;
2. a tool runs only when the reply that calls it is on record;
3. the next request is sent only when the result of each call is on record;
4. what the record owes to an interrupted turn is paid, and marked, before the next message is added.
"""

from __future__ import annotations

import inspect
import json
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, Self

from transcript_store import (
    ConversationStore,
    IncompleteResponseError,
    InvalidMessageError,
    MaxStepsError,
    ProviderMismatchError,
    Snapshot,
    restore_snapshot,
    snapshot_of,
)
from transcript_store.chat._answers import parsed_answer
from transcript_store.chat._config import ChatConfig, Tool
from transcript_store.chat._history import History
from transcript_store.chat._protocols import Complete, StreamEvent, TextDelta, ToolCallEnded, ToolCallStarted, Usage
from transcript_store.chat._provider import JSON, Connection, Reply, Request, ToolCall, Wire
from transcript_store.chat._settings import Facts
from transcript_store.chat._tool_results import opened, paired
from transcript_store.histories import OURS, native_history, said_in, tool_members, tool_snapshots
from transcript_store.messages import provider_family, tokens_in


class ResumableChatClient:
    """A chat client whose conversation can be resumed; ``create_client`` makes them.

    It satisfies ``ChatClient``, ``StreamingChatClient`` and ``PersistentChatClient``. One turn at a time: a second one in
    another thread is a ``RuntimeError``; a stream that was left unfinished is closed when the next turn begins.
    ``export_history`` may be called from any thread.
    """

    def __init__(
        self,
        *,
        config: ChatConfig,
        wire: Wire,
        connection: Connection,
        conversation: ConversationStore | None,
        history: History,
        facts: Facts,
    ) -> None:
        self._conversation = conversation
        self._config = config
        self._wire = wire
        self._connection = connection
        self._let_go = weakref.finalize(self, connection.close)
        self._history = history
        self._facts = facts
        self._tools: dict[str, Tool] = {}
        self._known_tools = facts.tool_names
        self._usage = Usage()
        self._turn_lock = threading.Lock()
        self._streams: weakref.WeakSet[Generator[StreamEvent, None, None]] = weakref.WeakSet()
        """One goes, and keeps what came, as soon as its loop is left: nobody else may hold it."""
        if conversation is not None:
            # A reference that does not keep this client alive: it may be forgotten long before the conversation is closed.
            end_streams = weakref.WeakMethod(self._end_streams)
            weakref.finalize(self, conversation.on_close(lambda: (end := end_streams()) and end()))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._facts.provider} {self._facts.model}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End a stream that is unfinished, and let go of the connections to the server; the conversation stays open.

        The connections of a client that nobody closed go with it.
        """
        with self._turn():
            self._let_go()

    # ---- ChatClient ----------------------------------------------------------------------------------------------

    def add(self, prompt: str) -> None:
        """Add a user's message without asking for a reply; on return it is on record, and the next request carries it."""
        _insist_on_a_prompt(prompt)
        with self._turn():
            self._say(prompt)

    def chat(self, prompt: str) -> str:
        """One turn: returns the text of the answer, when it is on record.

        The prompt is on record before it is sent, each reply before its tools run, each result before the next request.

        Raises ``IncompleteResponseError`` (the reply ended early; what came is on record), ``MaxStepsError`` (the model went
        on calling tools), what the store raises when the disk refuses, and the SDK's own errors. After any of them, and
        after Ctrl-C, the conversation is consistent and the next turn works; a prompt that failed stays on record, and
        :meth:`retry` asks it again.
        """
        _insist_on_a_prompt(prompt)
        with self._turn():
            return _answer(self._steps(prompt, stream=False))

    def retry(self) -> str:
        """Ask again what no reply answered: returns the text of the answer, when it is on record. The prompt is not recorded twice.

        It takes up the turn where the record ends: behind a question, behind the results of tools, or behind a reply that
        ended early. What came of that reply stays on record, and the request does not carry it.

        Raises ``ValueError`` if there is nothing to ask again (``is_answered``), and what :meth:`chat` does.
        """
        with self._turn():
            return _answer(self._steps(None, stream=False))

    def ask(self, question: str, schema: dict[str, Any]) -> Any:
        """One turn whose answer is JSON of this JSON schema; returns it parsed. It is not checked against the schema.

        Raises what :meth:`chat` does, and ``IncompleteResponseError`` if the answer is not JSON.
        """
        _insist_on_a_prompt(question)
        if type(schema) is not dict:
            raise TypeError(f"ask() takes a question and then a JSON schema (a dict), not {type(schema).__name__}")
        with self._turn():
            text = _answer(self._steps(question, stream=False, schema=schema))
        return parsed_answer(text)

    def stream_chat(self, prompt: str) -> Generator[StreamEvent, None, None]:
        """One turn as :meth:`chat` does it, as events: ``TextDelta``, ``ToolCallStarted``, ``ToolCallEnded``, ``Complete``.

        Nothing happens before the first event is asked for. Text that was shown is on record when the reply's end, or its
        untimely end, was met: if the loop over it is left (``break``, an error, Ctrl-C), or the iterator, the client or the
        conversation is closed, what came is kept as the record of an incomplete reply. Raises what :meth:`chat` does.
        """
        _insist_on_a_prompt(prompt)
        return self._streaming(prompt)

    def stream_retry(self) -> Generator[StreamEvent, None, None]:
        """Ask again as :meth:`retry` does, as the events of :meth:`stream_chat`."""
        return self._streaming(None)

    @property
    def is_answered(self) -> bool:
        """Whether the last turn is over: its answer is on record, or nothing was said yet. If not, ``retry()`` takes it up."""
        with self._turn():
            self._history.refresh()
            return self._history.is_answered

    def set_tools(self, tools: Sequence[Tool]) -> None:
        """Replace all tools that the model may call. Their descriptions go on record; their handlers never do.

        Raises ``ValueError`` if two have the same name.
        """
        if isinstance(tools, Tool) or not all(isinstance(tool, Tool) for tool in tools):
            raise TypeError("set_tools() takes a sequence of Tool")
        by_name = {tool.name: tool for tool in tools}
        if len(by_name) != len(tools):
            raise ValueError("two tools have the same name")
        self._facts.set(tools=[tool.describe() for tool in tools])
        self._tools = by_name

    @property
    def usage(self) -> Usage:
        """The tokens that this client's requests took, as the provider counted them."""
        return self._usage

    @property
    def model(self) -> str:
        """The model that requests name."""
        return self._facts.model

    @property
    def missing_tools(self) -> tuple[str, ...]:
        """The names of the tools that the conversation knew when it was resumed or restored, and that nobody has set since."""
        return tuple(name for name in self._known_tools if name not in self._tools)

    # ---- PersistentChatClient ------------------------------------------------------------------------------------

    def export_history(self) -> list[dict[str, Any]]:
        """A deep copy of the native messages in order, without the system prompt; from any thread, also while a turn runs."""
        return self._history.export(self._facts.system_prompt)

    def save(self, *, metadata: dict[str, str] | None = None) -> Snapshot:
        """The conversation as a snapshot with a fresh id; neither the token nor a handler is in it.

        ``metadata`` is added to it. Raises ``ValueError`` for a key in it that begins with ``transcript_store.``, and what
        ``snapshot_of`` does.
        """
        given = dict(metadata or {})
        if ours := [name for name in given if name.startswith(OURS)]:
            raise ValueError(f"metadata keys that begin with {OURS!r} are not a caller's: {ours}")
        if self._conversation is not None:
            snapshot = snapshot_of(self._conversation)
            return replace(snapshot, metadata={**snapshot.metadata, **given})
        facts = self._facts
        return Snapshot.create(
            provider=facts.provider,
            model=facts.model,
            messages=native_history(facts.provider, facts.system_prompt or "", self.export_history()),
            system_prompt=facts.system_prompt,
            tools=tool_snapshots(facts.tools),
            metadata=given,
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot; on return a conversation that records this client holds it, in one commit.

        The client keeps its own model, and its own system prompt if it was configured with one; else it takes the snapshot's.
        Its tools are gone: set them again; ``missing_tools`` names those that the snapshot knew.

        Raises ``ProviderMismatchError`` for another provider's snapshot, and what ``restore_snapshot`` does; until then
        nothing has changed.
        """
        with self._turn():
            if provider_family(snapshot.provider) != provider_family(self._facts.provider):
                raise ProviderMismatchError(recorded_provider=snapshot.provider, provider=self._facts.provider)
            if self._conversation is not None:
                restore_snapshot(replace(snapshot, model=self._facts.model), self._conversation)
                self._history.refresh()
                self._facts.refresh()
            else:
                messages, prompt, _ = said_in(snapshot)
                tools = tool_members(snapshot.tools)
                self._history.replace(messages)
                self._facts.take(system_prompt=prompt or None, tools=tools)
            self._known_tools = self._facts.tool_names
            self._tools = {}

    # ---- one turn ------------------------------------------------------------------------------------------------

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Only one at a time. A stream that somebody left unfinished ends here, and what came of it is recorded."""
        self._end_streams()
        if not self._turn_lock.acquire(blocking=False):
            raise RuntimeError("a turn of this client is under way")
        try:
            yield
        finally:
            self._turn_lock.release()

    def _end_streams(self) -> None:
        for stream in list(self._streams):
            if inspect.getgeneratorstate(stream) == inspect.GEN_SUSPENDED:
                stream.close()

    def _streaming(self, prompt: str | None) -> Generator[StreamEvent, None, None]:
        stream = self._streamed_turn(prompt)
        self._streams.add(stream)
        return stream

    def _streamed_turn(self, prompt: str | None) -> Generator[StreamEvent, None, None]:
        self._end_streams()
        if not self._turn_lock.acquire(blocking=False):
            raise RuntimeError("a turn of this client is under way")
        try:
            yield from self._steps(prompt, stream=True)
        finally:
            self._turn_lock.release()

    def _say(self, prompt: str | None) -> None:
        """Bring the record to where a request may follow; without a prompt it must end with what no reply answered."""
        self._history.settle()
        if prompt is None and self._history.is_answered:
            raise ValueError("there is nothing to ask again: the last question is answered, or nothing was asked")
        self._facts.renew_prompt()
        if prompt is not None:
            self._history.append(self._wire.user_message(prompt))

    def _steps(
        self, prompt: str | None, *, stream: bool, schema: JSON | None = None
    ) -> Generator[StreamEvent, None, None]:
        self._say(prompt)
        for _ in range(self._config.max_steps):
            reply = yield from self._reply(stream=stream, schema=schema)
            calls = self._wire.calls(reply.message or {})
            if not calls:
                yield Complete(text=reply.text, stop_reason=reply.stop_reason)
                return
            yield from self._run(calls)
        raise MaxStepsError(steps=self._config.max_steps)

    def _run(self, calls: Sequence[ToolCall]) -> Generator[StreamEvent, None, None]:
        """Run the tools in order; on return every result is on record in the form that the provider wants."""
        results: list[JSON] = []
        for place, call in enumerate(calls):
            yield ToolCallStarted(id=call.id, name=call.name, arguments=call.arguments)
            tool = self._tools.get(call.name)
            text, is_error = tool.run(call.arguments) if tool else (f"there is no tool named {call.name!r}", True)
            result = self._wire.result(call, text, is_error=is_error)
            if self._history.is_too_long(result, share=len(calls)):
                text, is_error = f"the result is too long to be recorded: {len(text):,} characters", True
                result = self._wire.result(call, text, is_error=True)
            results.append(result)
            if self._wire.results_are_messages:
                self._history.append(results[-1])
            elif len(results) < len(calls):
                self._history.note_result(place, call, results[-1])
            else:
                self._history.append(self._wire.results_message(results))
            yield ToolCallEnded(id=call.id, name=call.name, result=text, is_error=is_error)

    # ---- one request ---------------------------------------------------------------------------------------------

    def _reply(self, *, stream: bool, schema: JSON | None) -> Generator[StreamEvent, None, Reply]:
        """Ask for one reply; on return it is whole and on record."""
        body = self._wire.request(self._request(schema), stream=stream)
        if stream:
            reply = yield from self._streamed_reply(body)
        else:
            reply = _understood(self._wire.reply, self._connection.send(self._facts.model, body))
            self._keep(reply)
        if reply.incomplete:
            raise IncompleteResponseError(reason=reply.incomplete, text=reply.text)
        return reply

    def _request(self, schema: JSON | None) -> Request:
        prompt = self._facts.system_prompt
        record = self._history.without_prompt(prompt) if prompt else self._history.messages
        if self._history.ends_cut_short:
            record.pop()  # asked again: half an answer at the end would be taken for the beginning of the next one
        chosen = record if self._config.select_messages is None else self._config.select_messages(list(record))
        return Request(
            model=self._facts.model,
            system_prompt=prompt,
            messages=paired(self._wire, opened(self._wire, chosen, record)),
            tools=[tool.describe() for tool in self._tools.values()],
            max_tokens=self._config.max_tokens,
            schema=schema,
        )

    def _streamed_reply(self, body: JSON) -> Generator[StreamEvent, None, Reply]:
        """Take a streamed reply; on return, and whatever it raises once the first event came, what came is on record."""
        assembly = self._wire.assembly()
        came: list[JSON] = []
        with closing(self._connection.stream(self._facts.model, body)) as events:
            try:
                for event in events:
                    if not isinstance(event, dict):
                        continue  # some servers keep a connection alive with them
                    came.append(event)
                    if text := assembly.add(event):
                        yield TextDelta(text=text)
            except BaseException as error:
                if not came:
                    raise  # a request that failed, or was given up: nothing came
                reply = _understood(lambda _: assembly.reply(), came)
                if reply.incomplete:
                    reply = replace(reply, incomplete=f"the stream was cut ({type(error).__name__})")
                self._keep(reply)
                if not isinstance(error, Exception):
                    raise
                if reply.incomplete:
                    raise IncompleteResponseError(reason=reply.incomplete, text=reply.text) from error
                return reply  # its stop reason had come, so nothing of it is missing
        reply = _understood(lambda _: assembly.reply(), came)
        self._keep(reply)
        return reply

    def _keep(self, reply: Reply) -> None:
        """Put a reply on record: its message, or a record without one if nothing of it can be sent again."""
        extra = reply.extra
        if reply.incomplete:
            extra = {**extra, "incomplete": {"reason": reply.incomplete, "partial": reply.raw}}
        try:
            if reply.message is not None:
                self._history.append(reply.message, extra)
            else:
                self._history.note(extra)
        except InvalidMessageError as error:
            # A lone surrogate, an integer beyond 64 bits, more than a line may take: kept as text, as much of it as there is room for.
            partial = json.dumps([reply.message, extra])[: self._history.max_bytes // 4]
            self._history.note({"incomplete": {"reason": str(error), "partial": partial}})
            raise
        took = tokens_in(reply.extra.get("usage") or {})
        self._usage = Usage(
            input_tokens=self._usage.input_tokens + (took.input or 0),
            output_tokens=self._usage.output_tokens + (took.output or 0),
        )


def _answer(events: Iterator[StreamEvent]) -> str:
    (complete,) = (event for event in events if isinstance(event, Complete))
    return complete.text


def _understood(read: Callable[[Any], Reply], raw: Any) -> Reply:
    """The reply that ``read`` finds; one that says so, and keeps ``raw``, if a server answered in a form of its own."""
    try:
        return read(raw)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        reason = f"the response is not in the provider's form ({type(error).__name__})"
        return Reply(message=None, text="", stop_reason=None, extra={}, incomplete=reason, raw=raw)


def _insist_on_a_prompt(prompt: object) -> None:
    """What a user says is a text: nothing else could be sent again, and an empty one no provider takes."""
    if not isinstance(prompt, str):
        raise TypeError(f"a prompt is a str, not {type(prompt).__name__}; append_message() takes a provider's message")
    if not prompt.strip():
        raise ValueError("a prompt must not be empty, or white space alone")
