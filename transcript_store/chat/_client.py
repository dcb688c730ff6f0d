"""How does one turn run: question, reply, tools, answer? Each is on disk before the next step. No provider's format is
used here.

These invariants hold at each step, and after a crash, Ctrl-C, or an error of the server or the disk:

1. A request is sent only when all messages of the conversation that it carries are on record.
2. A tool runs only when the reply that calls it is on record.
3. The next request is sent only when the result of each call is on record.
4. Before the next message is added, each call of an interrupted turn has a result on record. A result whose outcome is
   unknown is marked.
"""

from __future__ import annotations

import json
import re
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
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
from transcript_store.chat._config import (
    ChatConfig,
    Facts,
    StreamEvent,
    TextDelta,
    Tool,
    ToolCallEnded,
    ToolCallStarted,
    TurnEnded,
    Usage,
)
from transcript_store.chat._history import History
from transcript_store.chat._provider import JSON, Connection, Reply, Request, ToolCall, WireFormat
from transcript_store.chat._turns import UNRECORDED, Steps, events, from_request_start, paired, turns_of
from transcript_store.histories import OURS, messages_in, native_history, tool_members, tool_snapshots
from transcript_store.messages import provider_family, tokens_in

# ---- answers ----
# Parses an answer that was requested as JSON.

_FENCE = re.compile(r"```(?:json)?[^\S\n]*\n")


def parsed_answer(text: str) -> Any:
    """The JSON value in a model's answer. Some models put it into a Markdown fence against instructions; that is accepted.

    Raises:
        IncompleteResponseError: the answer is not JSON. ``text`` is the whole answer.
    """
    # No pattern of the whole: a model that is asked for JSON may write blank lines up to its limit, and a pattern with several
    # repetitions would take the third power of them.
    said = text.strip()
    if (fence := _FENCE.match(said)) and said.endswith("```"):
        said = said[fence.end() :].removesuffix("```")
    try:
        return json.loads(said)
    except (ValueError, RecursionError) as error:
        raise IncompleteResponseError(reason=f"the answer is not JSON ({error})", text=text) from None


# ---- requests ----
# One request: the part of the record that is sent, and its reply, which is stored before any code acts on it. No
# provider's format is used here.

_PIECES = "[redacted:pieces]"


class Requests:
    """The requests of one client, each with its current history."""

    def __init__(
        self, *, config: ChatConfig, wire: WireFormat, connection: Connection, history: History, facts: Facts
    ) -> None:
        self._config = config
        self._wire = wire
        self._connection = connection
        self._history = history
        self._facts = facts
        self.usage = Usage()
        """The tokens of the replies so far."""

    def reply(self, tools: Iterable[Tool], *, stream: bool, schema: JSON | None) -> Generator[StreamEvent, None, Reply]:
        """Ask for one reply. On return it is complete and on record. A reply that ended early is recorded, and the error raised.

        A refusal of the question is recorded too: then later requests leave the question out.
        """
        body = self._wire.request(self._request(tools, schema), stream=stream)
        try:
            if stream:
                reply = yield from self._streamed_reply(body)
            else:
                reply = _understood(self._wire.reply, self._connection.send(self._facts.model, body))
                self._keep(reply)
        except Exception as error:
            if (refusal := self._connection.refusal(error)) is not None:
                # Recorded, so that a question that the provider rejects (too long, say) does not make every later
                # request fail.
                self._history.refuse(refusal)
            raise
        if reply.incomplete:
            raise IncompleteResponseError(reason=reply.incomplete, text=reply.text)
        return reply

    def _request(self, tools: Iterable[Tool], schema: JSON | None) -> Request:
        prompt = self._facts.system_prompt
        record = self._history.for_request(prompt, self._facts.model)
        # A copy of the list: the caller's function may change it, and the record must stay.
        chosen = record if self._config.select_messages is None else self._config.select_messages(list(record))
        return Request(
            model=self._facts.model,
            system_prompt=prompt,
            messages=paired(self._wire, from_request_start(self._wire, chosen, record)),
            tools=[tool.describe() for tool in tools],
            max_tokens=self._config.max_tokens,
            schema=schema,
        )

    def _streamed_reply(self, body: JSON) -> Generator[StreamEvent, None, Reply]:
        """Receive a streamed reply. On return it is on record. After an error in the stream, the received part is on record."""
        assembly = self._wire.assembly()
        came: list[JSON] = []
        with closing(self._connection.stream(self._facts.model, body)) as events:
            try:
                for event in events:
                    if not isinstance(event, dict):
                        continue  # some servers send such events to keep the connection alive
                    came.append(event)
                    if text := assembly.add(event):
                        yield TextDelta(text=text)
            except BaseException as error:
                # Nothing was received, so the question is simply unanswered, and retry() asks it again.
                if not came:
                    raise  # the request failed or was given up: there is nothing to record
                reply = _understood(lambda _: assembly.reply(), came)
                if reply.incomplete:
                    reply = replace(reply, incomplete=f"the stream was cut ({type(error).__name__})")
                self._keep(reply)
                if not isinstance(error, Exception):
                    raise  # Ctrl-C, or the caller closed the iterator and wants no answer
                if reply.incomplete:
                    raise IncompleteResponseError(reason=reply.incomplete, text=reply.text) from error
                return reply  # the stop reason was received, so the reply is complete
        reply = _understood(lambda _: assembly.reply(), came)
        self._keep(reply)
        return reply

    def _keep(self, reply: Reply) -> None:
        """Record a reply: its message, or a record without a message if nothing of the reply can be sent again."""
        first: JSON | None = None
        for extra in self._extras(reply):
            first = extra if first is None else first
            try:
                if reply.message is not None:
                    self._history.append(reply.message, extra)
                else:
                    self._history.note(extra)
                break
            # The next candidate is smaller: the reply was paid for, so something of it is always recorded.
            except InvalidMessageError as error:
                refused = error
        else:
            # The reply has a lone surrogate or an integer beyond 64 bits, or is longer than a line may be. It is kept as text.
            # A quarter of a line leaves room for the escapes.
            cut = json.dumps([reply.message, first])[: self._history.max_bytes // 4]
            partial = _PIECES if self._history.redacts else cut
            self._history.note({"incomplete": {"reason": str(refused), "partial": partial}})
            raise refused
        took = tokens_in(reply.extra.get("usage") or {})
        self.usage = Usage(
            input_tokens=self.usage.input_tokens + (took.input or 0),
            output_tokens=self.usage.output_tokens + (took.output or 0),
        )

    def _extras(self, reply: Reply) -> Iterator[JSON]:
        """The candidates for a reply's extra, the most complete first. The store may refuse one for its size or content."""
        if not reply.incomplete:
            yield reply.extra
            return
        refused = {"refused": {"status": None, "reason": reply.incomplete}} if reply.is_refusal else {}
        for partial in self._partials(reply.raw):
            yield {**reply.extra, **refused, "incomplete": {"reason": reply.incomplete, "partial": partial}}

    def _partials(self, raw: Any) -> Iterator[Any]:
        redacts = self._history.redacts
        # Events that were not understood are in pieces, and a secret that is cut in two has no form.
        yield _PIECES if redacts and isinstance(raw, list) else raw
        # The message repeats most of it, and both together may be too long. Its ends have the rest.
        text, eighth = json.dumps(raw), self._history.max_bytes // 8
        ends = text if len(text) <= 2 * eighth else f"{text[:eighth]} … {text[-eighth:]}"
        yield _PIECES if redacts else ends
        yield ""


def _understood(read: Callable[[Any], Reply], raw: Any) -> Reply:
    """The reply that ``read`` makes of ``raw``. If ``raw`` is not in the provider's form, an incomplete reply that keeps it."""
    try:
        return read(raw)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        reason = f"the response is not in the provider's form ({type(error).__name__})"
        return Reply(message=None, text="", stop_reason=None, extra={}, incomplete=reason, raw=raw)


# ---- client ----


class ResumableChatClient:
    """A chat client whose conversation can be resumed. ``create_client`` makes it.

    It satisfies ``ChatClient``, ``StreamingChatClient`` and ``PersistentChatClient``. A conversation has one turn at a time, also
    if it has several clients. A stream that was left unfinished is ended by the next turn of its thread; by that of any thread
    if its own has ended. ``export_history`` and ``is_answered`` may be asked in any thread.

    As a context manager it is closed at the end of the block.

    Raises:
        RuntimeError: any call that takes part in a turn; another turn of the conversation is under way: in another thread, or a
            tool of this turn calls. Wait for its end. A stream is a turn that is under way until it is closed or dropped.
        ConversationNotLoadedError: any call that uses the conversation; the conversation was closed.
    """

    def __init__(
        self,
        *,
        config: ChatConfig,
        wire: WireFormat,
        connection: Connection,
        conversation: ConversationStore | None,
        history: History,
        facts: Facts,
    ) -> None:
        self._conversation = conversation
        self._config = config
        self._wire = wire
        self._requests = Requests(config=config, wire=wire, connection=connection, history=history, facts=facts)
        self._let_go = weakref.finalize(self, connection.close)
        self._history = history
        self._facts = facts
        self._tools: dict[str, Tool] = {}
        self._known_tools = facts.tool_names
        self._turns = turns_of(conversation)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._facts.provider} {self._facts.model}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close an unfinished stream and the connections to the server. The conversation stays open.

        If ``close()`` is never called, the connections are closed when the client is garbage-collected.
        """
        self._turns.end(self)
        self._let_go()

    # ---- ChatClient ----------------------------------------------------------------------------------------------

    def add(self, prompt: str) -> None:
        """Add a user's message without asking for a reply. On return it is on record; the next request carries it.

        Raises:
            ValueError: the prompt is empty, or white space alone.
            TypeError: the prompt is not a str.
            TranscriptStoreError: as :meth:`ConversationStore.append_message`.
        """
        _insist_on_a_prompt(prompt)
        with self._turns.one(self):
            self._say(prompt)

    def chat(self, prompt: str) -> str:
        """Run one turn and return the text of the answer. On return the whole turn is stored.

        The prompt is stored before it is sent, each reply before its tools run, each result before the next request.

        After any error, and after Ctrl-C, the conversation is consistent and the next turn works. A prompt that was
        recorded stays on record; :meth:`retry` asks it again. If the provider refused it for what it is (too long, not
        allowed), later requests leave it out: see :attr:`is_refused`.

        Raises:
            IncompleteResponseError: the reply ended early. The received part is on record; ``retry()`` asks again.
            MaxStepsError: the model still called tools after ``max_steps`` requests. All of it is on record;
                ``retry()`` continues.
            ValueError: the prompt is empty, or white space alone.
            TypeError: the prompt is not a str.
            TranscriptStoreError: a record could not be written; as :meth:`ConversationStore.append_message`.
            Exception: the SDK's own error; the request failed.
        """
        _insist_on_a_prompt(prompt)
        with self._turns.one(self):
            return _answer(self._steps(prompt, stream=False))

    def retry(self) -> str:
        """Continue an unanswered turn and return the text of the answer. On return it is on record.

        The turn continues where the record ends: after a question, after the results of tools, or after a reply that ended
        early. That reply stays on record, but the request does not carry it. The prompt is not recorded twice.

        Raises:
            ValueError: there is nothing to ask again; ``is_answered`` is True.
            Exception: as :meth:`chat`.
        """
        with self._turns.one(self):
            return _answer(self._steps(None, stream=False))

    def ask(self, question: str, schema: dict[str, Any]) -> Any:
        """Run one turn whose answer is JSON, and return it parsed. On return the whole turn is stored.

        The provider is given the JSON schema. The answer is not checked against it.

        Raises:
            IncompleteResponseError: the answer is not JSON, or as :meth:`chat`. The answer is on record.
            TypeError: the schema is not a dict, or the question is not a str.
            Exception: as :meth:`chat`.
        """
        _insist_on_a_prompt(question)
        if type(schema) is not dict:
            raise TypeError(f"ask() takes a question and then a JSON schema (a dict), not {type(schema).__name__}")
        with self._turns.one(self):
            text = _answer(self._steps(question, stream=False, schema=schema))
        return parsed_answer(text)

    def stream_chat(self, prompt: str) -> Generator[StreamEvent, None, None]:
        """Run one turn as :meth:`chat` does, and yield ``TextDelta``, ``ToolCallStarted``, ``ToolCallEnded`` and ``TurnEnded``.

        Nothing is sent or recorded before the first event is asked for. A reply is recorded when it ends, not with each
        ``TextDelta``. If it ends early, the received part is recorded as an incomplete reply. It ends early if the caller leaves the
        loop (``break``, an error, Ctrl-C), or closes the iterator, the client or the conversation. If the process is killed
        while a reply is streamed, the text of that reply is lost.

        Raises:
            ValueError: the prompt is empty, or white space alone. Raised by the call itself.
            TypeError: the prompt is not a str. Raised by the call itself.
            IncompleteResponseError: also if another turn of this thread began, or the client or the conversation was closed,
                before the iterator was at its end. Raised by the iterator, if it is read on.
            Exception: as :meth:`chat`. Raised by the iterator.
        """
        _insist_on_a_prompt(prompt)
        return self._turns.read(self, self._steps(prompt, stream=True))

    def stream_retry(self) -> Generator[StreamEvent, None, None]:
        """Continue an unanswered turn as :meth:`retry` does, and yield the events of :meth:`stream_chat`.

        Raises:
            Exception: as :meth:`retry`. Raised by the iterator.
        """
        return self._turns.read(self, self._steps(None, stream=True))

    def drop(self) -> int:
        """Take back the question that has no answer, with everything after the last answer. On return that is on record.

        In a conversation with the feature ``retract`` the messages are retracted; otherwise the records before them become its
        next generation, and the archive keeps the rest.

        Returns:
            How many messages were retracted.

        Raises:
            ValueError: there is nothing to take back; ``is_answered`` is True.
            TranscriptStoreError: as :meth:`ConversationStore.retract` and :meth:`ConversationStore.keep_records`.
        """
        with self._turns.one(self):
            self._history.refresh()
            if self._history.is_answered:
                raise ValueError("there is nothing to take back: the last question is answered, or nothing was asked")
            return self._history.drop()

    @property
    def is_refused(self) -> bool:
        """True if the provider refused the last question, or the results of its tools, for what they are.

        They stay on record, marked, and later requests leave them out. ``retry()`` asks again all the same, for example with a
        model that takes more; ``drop()`` takes them back. It may be asked at any time, in any thread.
        """
        return self._history.now().is_refused

    @property
    def is_answered(self) -> bool:
        """True if the last answer is on record, or there is no message yet. If False, ``retry()`` continues the turn.

        It may be asked at any time, in any thread. While a turn runs it is False, until its answer is on record.
        """
        return self._history.now().is_answered

    def set_tools(self, tools: Sequence[Tool]) -> None:
        """Replace all tools that the model may call. On return their descriptions are on record; handlers are never stored.

        Raises:
            ValueError: two tools have the same name.
            TypeError: ``tools`` is not a sequence of ``Tool``.
            TranscriptStoreError: as :meth:`ConversationStore.update_metadata`.
        """
        if isinstance(tools, Tool) or not all(isinstance(tool, Tool) for tool in tools):
            raise TypeError("set_tools() takes a sequence of Tool")
        by_name = {tool.name: tool for tool in tools}
        if len(by_name) != len(tools):
            raise ValueError("two tools have the same name")
        self._facts.set(tools=[tool.describe() for tool in tools])
        # Only after they are on record: a process that resumes knows which tools are missing.
        self._tools = by_name

    @property
    def usage(self) -> Usage:
        """The tokens that this client's requests took since it was made, as the provider counted them."""
        return self._requests.usage

    @property
    def model(self) -> str:
        """The name of the model that answers the requests."""
        return self._facts.model

    @property
    def missing_tools(self) -> tuple[str, ...]:
        """The names of the tools that the resumed or restored conversation had and that are not set. Set them again."""
        return tuple(name for name in self._known_tools if name not in self._tools)

    # ---- PersistentChatClient ------------------------------------------------------------------------------------

    def export_history(self) -> list[dict[str, Any]]:
        """A deep copy of the native messages in order, without the system prompt.

        It may be called from any thread, also while a turn runs.
        """
        return self._history.export(self._facts.system_prompt)

    def save(self, *, metadata: dict[str, str] | None = None) -> Snapshot:
        """The conversation as a snapshot with a new id. It contains neither the token nor a handler.

        Args:
            metadata: texts of your own, by name; they are added to the snapshot's metadata.

        Raises:
            ValueError: a name in ``metadata`` starts with ``transcript_store.``, which is reserved.
            TranscriptStoreError: as :func:`snapshot_of`.
        """
        given = dict(metadata or {})
        if ours := [name for name in given if name.startswith(OURS)]:
            raise ValueError(f"metadata keys that start with {OURS!r} are reserved: {ours}")
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
        """Continue from a snapshot. On return its messages have replaced those of the conversation, in one commit.

        The client keeps its model. It keeps its system prompt if ``ChatConfig`` gave one; otherwise it takes the snapshot's.
        The client has no tools afterwards. ``missing_tools`` names those of the snapshot; set them again.

        Raises:
            ProviderMismatchError: the snapshot is another provider's. Nothing has changed; use a client of that provider.
            TranscriptStoreError: as :func:`restore_snapshot`.
        """
        with self._turns.one(self):
            if provider_family(snapshot.provider) != provider_family(self._facts.provider):
                raise ProviderMismatchError(recorded_provider=snapshot.provider, provider=self._facts.provider)
            if self._conversation is not None:
                restore_snapshot(replace(snapshot, model=self._facts.model), self._conversation)
                self._history.refresh()
                self._facts.refresh()
            else:
                messages, prompt, _ = messages_in(snapshot)
                tools = tool_members(snapshot.tools)
                self._history.replace(messages)
                self._facts.take(system_prompt=prompt or None, tools=tools)
            self._known_tools = self._facts.tool_names
            self._tools = {}

    # ---- one turn ------------------------------------------------------------------------------------------------

    def _say(self, prompt: str | None) -> None:
        """Prepare the record for a request. With a prompt, add it; without one, the record must end unanswered."""
        self._history.settle()
        if prompt is None and self._history.is_answered:
            raise ValueError("there is nothing to ask again: the last question is answered, or nothing was asked")
        self._facts.renew_prompt()
        if prompt is not None:
            self._history.append(self._wire.user_message(prompt))

    def _steps(self, prompt: str | None, *, stream: bool, schema: JSON | None = None) -> Steps:
        self._say(prompt)
        paused = ""
        for _ in range(self._config.max_steps):
            reply = yield from self._requests.reply(self._tools.values(), stream=stream, schema=schema)
            calls = self._wire.calls(reply.message or {})
            if not calls and reply.stop_reason is not None and reply.stop_reason == self._wire.pause_reason:
                paused += reply.text  # the next request ends with it, and the next reply continues it
                continue
            if not calls:
                return TurnEnded(text=paused + reply.text, stop_reason=reply.stop_reason)
            paused = ""
            yield from self._run(calls)
        raise MaxStepsError(steps=self._config.max_steps)

    def _run(self, calls: Sequence[ToolCall]) -> Generator[StreamEvent, None, None]:
        """Run the tools in order. On return every result is on record, in the form that the provider wants."""
        results: list[JSON] = []
        for place, call in enumerate(calls):
            yield ToolCallStarted(id=call.id, name=call.name, arguments=call.arguments)
            tool = self._tools.get(call.name)
            # A call of an unknown tool gets a result too: a provider refuses a request in which a call has none.
            text, is_error = tool.run(call.arguments) if tool else (f"there is no tool named {call.name!r}", True)
            result = self._wire.result(call, text, is_error=is_error)
            if self._wire.results_are_messages:
                recorded = self._history.append_results(result)
            elif len(results) + 1 < len(calls):
                # One message will carry all results. Until then each is journaled, so that a crash loses none.
                recorded = self._history.note_result(place, call, result)
            else:
                message = self._history.append_results(self._wire.results_message([*results, result]))
                recorded = self._wire.results(message)[-1].native
            if recorded != result:
                text, is_error = UNRECORDED, True
            results.append(recorded)
            yield ToolCallEnded(id=call.id, name=call.name, result=text, is_error=is_error)


def _answer(steps: Steps) -> str:
    (complete,) = (event for event in events(steps) if isinstance(event, TurnEnded))
    return complete.text


def _insist_on_a_prompt(prompt: object) -> None:
    """Raise for a prompt that is not a text, or is empty: providers refuse an empty one."""
    if not isinstance(prompt, str):
        raise TypeError(f"a prompt is a str, not {type(prompt).__name__}; append_message() takes a provider's message")
    if not prompt.strip():
        raise ValueError("a prompt must not be empty, or white space alone")
