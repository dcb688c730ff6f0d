"""One turn at a time on a conversation, among all its clients.

The turns belong to the conversation, not to a client. Starting a turn gives every call without a result one. So a
second client would report a tool that the first one is running as interrupted.
"""

from __future__ import annotations

import inspect
import json
import os
import threading
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import dropwhile
from typing import NamedTuple

from transcript_store import ConversationStore, IncompleteResponseError
from transcript_store.chat._config import StreamEvent, TurnEnded
from transcript_store.chat._provider import JSON, Message, ToolCall, ToolResult, WireFormat

_UNDER_WAY = "another turn of this conversation is under way"

Events = Generator[StreamEvent, None, None]
Steps = Generator[StreamEvent, None, TurnEnded]
"""The events of a turn but the last, which it returns: then the turn is over."""


class _CurrentTurn(NamedTuple):
    """One that is under way."""

    client: object
    thread: threading.Thread
    """The client that started it."""
    process_id: int


class Turns:
    """The turns of one conversation, and the streams in which some of them are read."""

    def __init__(self) -> None:
        self._held: dict[None, _CurrentTurn] = {}
        """The current turn. One call of the dictionary starts it, and one ends it, so Ctrl-C cannot interrupt either."""
        self._streams: weakref.WeakSet[Steps] = weakref.WeakSet()
        """Weak, so that a stream is finalized, and its partial reply recorded, as soon as the caller drops it."""

    @contextmanager
    def one(self, client: object) -> Iterator[None]:
        """Let a turn run. First end a stream of this thread that was left unfinished, so that its partial reply is recorded.

        A stream of another thread is still in use, as far as anybody knows, unless that thread has ended.

        Raises:
            RuntimeError: another turn is under way.
        """
        began = self._under_way()
        if began is not None and (began.thread is threading.current_thread() or not began.thread.is_alive()):
            self.end_stream()
        turn = _CurrentTurn(client, threading.current_thread(), os.getpid())
        try:
            # One step of the interpreter, so that of two threads only one holds the turn; a lock could stay held after
            # an interruption.
            if self._held.setdefault(None, turn) is not turn:
                raise RuntimeError(_UNDER_WAY)
            yield
        finally:
            if self._held.get(None) is turn:
                del self._held[None]

    def read(self, client: object, steps: Steps) -> Events:
        """The events of a turn, which runs while they are read, from the first one on."""
        stream = self._while_read(client, steps)
        self._streams.add(stream)
        return events(stream)

    def end(self, client: object) -> None:
        """End the turn of this client, if it has one. That of another client continues.

        Raises:
            RuntimeError: it cannot be ended: it runs in another thread, or one of its tools called this.
        """
        if self._is_of(client):
            self.end_stream()
            if self._is_of(client):
                raise RuntimeError(_UNDER_WAY)

    def end_stream(self) -> None:
        """End the stream that waits for its reader. One that runs right now belongs to another thread, and cannot be ended."""
        self._under_way()  # or a forked child would end, and record, what its parent still reads
        for stream in list(self._streams):
            if inspect.getgeneratorstate(stream) == inspect.GEN_SUSPENDED:
                stream.close()

    def _is_of(self, client: object) -> bool:
        turn = self._under_way()
        return turn is not None and turn.client is client

    def _under_way(self) -> _CurrentTurn | None:
        turn = self._held.get(None)
        if turn is None or turn.process_id == os.getpid():
            return turn
        self._held.clear()  # a forked child: the turn, and its stream, are its parent's
        self._streams.clear()
        return None

    def _while_read(self, client: object, steps: Steps) -> Steps:
        with self.one(client):
            return (yield from steps)


def events(steps: Steps) -> Events:
    """All events of a turn.

    Raises:
        IncompleteResponseError: another client ended the turn. Without an error its reader would take the received part
            for the whole.
    """
    complete: TurnEnded | None = yield from steps  # None if it was closed from outside
    if complete is None:
        raise IncompleteResponseError(
            reason="the stream was ended: another turn began, or its client or conversation was closed", text=""
        )
    yield complete


_TURNS: dict[int, Turns] = {}
"""By the id of the store, for as long as there is that one: a user's own store class may be equal to another, or have
no hash.
"""
_making = threading.Lock()


def turns_of(conversation: ConversationStore | None) -> Turns:
    """The turns of a conversation, the same for each of its clients. A stream of them ends with ``close()`` of the conversation."""
    if conversation is None:
        return Turns()
    with _making:
        turns = _TURNS.get(id(conversation))
        if turns is None:
            turns = _TURNS[id(conversation)] = Turns()
            weakref.finalize(conversation, _TURNS.pop, id(conversation), None).atexit = False
            conversation.on_close(turns.end_stream)
        return turns


# ---- tool results ----
# Matches tool calls with their results. Every provider refuses a request in which one is without the other. The
# functions depend on messages alone: :func:`paired` repairs the messages of a *request*, :func:`owed` finds the results
# that the *record* needs before its next message, and :func:`from_request_start` finds the message that a request may
# start with.

INTERRUPTED = "The tool was interrupted before its result was recorded. Its outcome is unknown: it may have run, partly or completely."
NEVER_RUN = "The tool was not run: the reply that called it was cut short."
LEFT_OUT = "The result of this call is not in this conversation."
UNRECORDED = (
    "The tool ran, but its result could not be recorded: it is too long, alone or together with the other results of the reply, "
    "or it must not be stored."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """The results that a conversation that ends with tool calls needs before its next message.

    ``messages`` are native results messages. ``interrupted`` are the ids of the calls whose outcome is unknown; a call without
    an id is given by its name.
    """

    messages: tuple[Message, ...] = ()
    interrupted: tuple[str, ...] = ()


def owed(wire: WireFormat, tail: Sequence[Message], journaled: Mapping[int, JSON], *, cut_short: bool) -> Owed:
    """The results that the calls of the last reply still need.

    ``tail`` is the last reply and the messages after it. ``journaled`` maps the place of a call in that reply to its result, if
    the result is on record and its message is not. ``cut_short`` is true if the reply was incomplete; then no tool has run.
    """
    if not tail or not wire.is_reply(tail[0]) or any(map(wire.without_results, tail[1:])):
        # There is no reply yet, or the conversation continued without the results. paired() repairs that in each request.
        return Owed()
    calls = wire.calls(tail[0])
    given = _matched(wire, calls, [result for message in tail[1:] for result in wire.results(message)])
    missing = [place for place in range(len(calls)) if place not in given]
    if not missing:
        return Owed()
    unknown = [place for place in missing if place not in journaled]
    text = NEVER_RUN if cut_short else INTERRUPTED
    results = [
        journaled[place] if place in journaled else wire.result(calls[place], text, is_error=True) for place in missing
    ]
    return Owed(
        messages=tuple(results) if wire.results_are_messages else (wire.results_message(results),),
        interrupted=tuple(calls[place].id or calls[place].name for place in unknown),
    )


def without_one(wire: WireFormat, message: Message, *, is_too_long: bool) -> Message | None:
    """A results message that the record refused, with one result replaced by one that says so. None if all are.

    That is the longest if it is too long, else the last: those before it were journaled, so the record takes them.
    """
    results = wire.results(message)
    natives = [result.native for result in results]
    spoken = [wire.result(_call_of(result), UNRECORDED, is_error=True) for result in results]
    lengths = {
        place: len(json.dumps(native))
        for place, native in enumerate(natives)
        if native != spoken[place] and not _is_unknown(wire, _call_of(results[place]), results[place])
    }
    if not lengths:
        return None
    refused = max(lengths, key=lengths.__getitem__) if is_too_long else max(lengths)
    natives[refused] = spoken[refused]
    return natives[0] if wire.results_are_messages else wire.results_message(natives)


def _call_of(result: ToolResult) -> ToolCall:
    return ToolCall(id=result.id, name=result.name or "", arguments=None)


def from_request_start(wire: WireFormat, chosen: Sequence[Message], record: Sequence[Message]) -> list[Message]:
    """The chosen messages of a record, from the first one that may open a request.

    Claude and Gemini refuse a request that begins with a reply. Of a long turn only calls and results may have been chosen, and
    none of them may open a request. Then the last message on record that may open one is put in front. If only results were
    chosen, they cannot be sent without their calls. Then the record is taken from its last reply on.
    """
    messages = _from_the_opening(wire, chosen)
    if not messages and not any(map(wire.is_reply, chosen)):
        replies = [place for place, message in enumerate(record) if wire.is_reply(message)]
        chosen = record[replies[-1] :] if replies else record
        messages = _from_the_opening(wire, chosen)
    if messages:
        return messages
    openings = [message for message in record if wire.may_open(message)]
    return [*openings[-1:], *chosen]


def _from_the_opening(wire: WireFormat, messages: Sequence[Message]) -> list[Message]:
    return list(dropwhile(lambda message: not wire.may_open(message), messages))


def paired(wire: WireFormat, messages: Sequence[Message]) -> list[Message]:
    """The messages as a request may carry them: each call is followed directly by its result, and each result has a call.

    A message that is in order is returned as the same object. Results elsewhere are moved to their call; after a later
    reply they are recognized by their id. A missing result is replaced by one that says that it is missing. Results
    without a call are left out.
    """
    sections: list[_Section] = []
    for message in messages:
        if not sections or wire.is_reply(message):
            sections.append(_Section(calls=wire.calls(message) if wire.is_reply(message) else []))
        sections[-1].add(message, wire.results(message))
    caller: dict[str, _Section] = {}  # the section that called an id last
    for section in sections:
        caller.update((call.id, section) for call in section.calls if call.id is not None)
        for _, result in section.found:
            if result.id is not None and (called := caller.get(result.id, section)) is not section:
                message = result.native if wire.results_are_messages else wire.results_message([result.native])
                called.add(message, [result])
    return [message for section in sections for message in _paired_section(wire, section)]


@dataclass(slots=True)
class _Section:
    """One reply and the messages up to the next, or the messages before the first reply."""

    calls: list[ToolCall]
    messages: list[Message] = field(default_factory=list)
    found: list[tuple[int, ToolResult]] = field(default_factory=list)
    """Each result, with the place of its message."""

    def add(self, message: Message, results: Sequence[ToolResult]) -> None:
        self.found += [(len(self.messages), result) for result in results]
        self.messages.append(message)


def _paired_section(wire: WireFormat, section: _Section) -> Sequence[Message]:
    """:func:`paired` for one section."""
    calls, found, messages = section.calls, section.found, section.messages
    if not calls and not found:
        return messages
    results = [result for _, result in found]
    given = _matched(wire, calls, results)
    last = len(calls) if wire.results_are_messages else 1
    in_place = all(1 <= place <= last for place, _ in found)
    if in_place and len(given) == len(calls) == len(results):
        return messages
    rest = [message for message in map(wire.without_results, messages) if message is not None]
    if not calls:
        return rest
    natives = [
        given[place].native if place in given else wire.result(call, LEFT_OUT, is_error=True)
        for place, call in enumerate(calls)
    ]
    return [rest[0], *(natives if wire.results_are_messages else [wire.results_message(natives)]), *rest[1:]]


def _matched(wire: WireFormat, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> dict[int, ToolResult]:
    """The result of each call, by the call's place; a call without a result is not in it.

    Results and calls are matched by id. If one of the two has no id, they are matched by name, in order. If the result has no
    name either, and the call no id, they are matched in order. A result takes the place of one that says that the outcome is
    unknown: another process may have said so while the tool was running.
    """
    given: dict[int, ToolResult] = {}
    for result in results:
        places = [place for place, call in enumerate(calls) if _belongs(result, call)]
        free = [place for place in places if place not in given]
        for place in free or [place for place in places if _is_unknown(wire, calls[place], given[place])]:
            given[place] = result
            break
    return given


def _is_unknown(wire: WireFormat, call: ToolCall, result: ToolResult) -> bool:
    return result.native == wire.result(call, INTERRUPTED, is_error=True)


def _belongs(result: ToolResult, call: ToolCall) -> bool:
    if result.id is not None and call.id is not None:
        return result.id == call.id
    if result.name is None:
        return result.id is None and call.id is None
    return result.name is not None and result.name == call.name
