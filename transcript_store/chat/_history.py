"""Which messages does a client's conversation have? Each is on disk before it is in the list.

With a :class:`ConversationStore` the transcript is authoritative, and the list follows it. Without one there is only
the list. Messages in the list are never changed, so a shallow copy of the list is a snapshot of the conversation.

A record's ``extra`` may have these members, besides those of a reply (``response_id``, ``model``, ``stop_reason``,
``usage``):

* ``tool_result`` ``{index, id, name, result}``, on a record without a message: the result of one of several calls, in its
  native form. The message that carries all results follows later.
* ``interrupted`` ``[id, …]``, on a results message: the calls whose outcome is unknown.
* ``incomplete`` ``{reason, partial}``: the reply ended early. ``partial`` is what came of it, cut to its two ends
  or empty where it is too long beside the message.
* ``refused`` ``{status, reason}``: the provider refused the messages since the last reply, and this reply if it is one.
  Later requests leave them out, unless they are asked again (:meth:`History.for_request`). ``status`` is null if it was
  no HTTP status.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any

from transcript_store import (
    AppendResult,
    ConversationMetadata,
    ConversationStore,
    FeatureNotEnabledError,
    InvalidMessageError,
    RedactionError,
    TranscriptPosition,
)
from transcript_store.chat._provider import JSON, Message, ToolCall, WireFormat
from transcript_store.chat._turns import UNRECORDED, Owed, owed, without_one
from transcript_store.conversation import DEFAULT_MAX_LINE_BYTES
from transcript_store.histories import begins_with_prompt
from transcript_store.messages import PROMPT_ROLES, decode_message, encode_message

_log = logging.getLogger("transcript_store.chat")

_REFUSALS = (InvalidMessageError, RedactionError)
"""Errors of a record that cannot hold its contents. Nothing was written; other contents can be stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    message: Message | None
    extra: JSON | None


class History:
    """The messages of one conversation, and the tool results that are missing at its end.

    Raises:
        TranscriptStoreError: any call; as the store's ``get_messages()``, ``append_message()`` and ``append_event()``.
    """

    def __init__(self, wire: WireFormat, conversation: ConversationStore | None) -> None:
        self._wire = wire
        self._conversation = conversation
        self._messages: list[Message] = []
        self._tail: list[_Entry] = []  # the last reply and everything after it
        self._unanswered: list[int] = []  # the places of the messages after the last reply
        self._left_out: set[int] = set()  # the places of the messages that the provider refused
        self._written_by: dict[int, str] = {}  # the models of the replies that were read, by their places
        self._entries: list[_Entry] = []  # all of them; only without a conversation, which would have them
        self._seen: TranscriptPosition | None = None  # the end of the transcript that the list was read from
        self._at_start: ConversationMetadata | None = None
        self._looked: History | None = None
        """The last result of :meth:`now`, if it differs from this one."""
        self.refresh()

    @property
    def messages(self) -> list[Message]:
        """The messages in order: a new list of the messages themselves, which the caller must not change."""
        return list(self._messages)

    @property
    def max_bytes(self) -> int:
        """The greatest length of a record's line, in bytes."""
        return DEFAULT_MAX_LINE_BYTES if self._conversation is None else self._conversation.max_line_bytes

    @property
    def redacts(self) -> bool:
        """True if redaction may remove parts of records."""
        return self._conversation is not None and self._conversation.redacts

    @property
    def ends_cut_short(self) -> bool:
        """True if the last message is a reply that ended early."""
        return bool(self._messages) and self._wire.is_reply(self._messages[-1]) and self._tail_is_cut_short

    @property
    def is_answered(self) -> bool:
        """True if nothing awaits a reply: there is no message, or the last one is a complete reply without a tool call."""
        last = next(reversed(self._messages), None)
        if last is None or not self._wire.is_reply(last):
            return last is None or last.get("role") in PROMPT_ROLES
        return not self._tail_is_cut_short and not self._tail_is_paused and not self._wire.calls(last)

    @property
    def is_refused(self) -> bool:
        """True if the provider refused all messages since the last reply, so that later requests leave them out."""
        return bool(self._unanswered) and self._left_out.issuperset(self._unanswered)

    @property
    def _tail_is_cut_short(self) -> bool:
        return any("incomplete" in (entry.extra or {}) for entry in self._tail[:1])

    @property
    def _tail_is_paused(self) -> bool:
        paused = self._wire.pause_reason
        return paused is not None and any((entry.extra or {}).get("stop_reason") == paused for entry in self._tail[:1])

    def for_request(self, prompt: str | None, model: str) -> list[Message]:
        """The messages that a request to a model may carry, without the system prompt if one is given.

        Not among them is what the provider refused, unless nothing else was said since: then it is asked again. Nor is half a
        reply at the end, which the provider would take for the beginning of the next one. What another model thought is
        not sent as text: some servers refuse every request that carries it.
        """
        # If nothing was said since the refusal, leaving it out would leave no question to ask.
        left_out = self._left_out.difference(self._unanswered) if self.is_refused else set(self._left_out)
        if self.ends_cut_short:
            left_out.add(len(self._messages) - 1)
        messages = self.without_prompt(prompt) if prompt else self.messages
        before = len(self._messages) - len(messages)
        return [
            self._without_thinking(message) if _is_another(self._written_by.get(place), model) else message
            for place, message in enumerate(messages, before)
            if place not in left_out
        ]

    def _without_thinking(self, message: Message) -> Message:
        members = self._wire.thinking_members
        return {name: value for name, value in message.items() if name not in members} if members else message

    def without_prompt(self, prompt: str | None) -> list[Message]:
        """The messages without a system prompt, with which the log of another program may start.

        If the provider's history can hold system messages, only a first message that is the prompt is left out
        (``begins_with_prompt``). Otherwise all leading system messages are.
        """
        messages = self.messages
        if not self._wire.has_system_messages:
            return list(dropwhile(lambda message: message.get("role") in PROMPT_ROLES, messages))
        if self._at_start is not None and begins_with_prompt(messages, prompt, self._at_start):
            return messages[1:]
        return messages

    def export(self, prompt: str | None) -> list[Message]:
        """A deep copy of the messages without the system prompt. It may be called from any thread."""
        return plain_copies(self.without_prompt(prompt), "messages")

    def refresh(self) -> None:
        """Read the transcript again if its end has changed.

        It changes when other code of this process appends to the store, and when a call of this client was interrupted.
        """
        if self._conversation is None or (seen := self._conversation.position) == self._seen:
            return
        records = self._conversation.get_records()
        self._at_start = self._conversation.get_metadata(at_start=True)
        self._read(_Entry(message=r.message, extra=r.extra) for r in records if not r.is_retracted)
        self._seen = seen

    def now(self) -> History:
        """The messages as they are on record now, to be looked at in any thread: a turn may run, so this one is not changed."""
        if self._conversation is None or (now := self._conversation.position) == self._seen:
            return self
        looked = self._looked
        if looked is None or looked._seen != now:
            looked = self._looked = History(self._wire, self._conversation)
        return looked

    def append(self, message: Message, extra: JSON | None = None) -> None:
        """Add a message. On return it is durable."""
        conversation = self._conversation
        entry, seen = _Entry(message=message, extra=extra), None
        if conversation is None:
            encode_message(message, "message", self.max_bytes)  # raises as the record would
        else:
            followed = self._followed(entry, lambda: conversation.append_message(message, extra=extra or None))
            if followed is None:
                return  # the list was read again, with this message
            entry, seen = followed
        self._add(entry)
        self._seen = seen  # last: an interruption before this makes the next turn read the transcript

    def note(self, extra: JSON) -> None:
        """Add a record without a message. On return it is durable."""
        conversation = self._conversation
        entry, seen = _Entry(message=None, extra=extra), None
        if conversation is not None:
            followed = self._followed(entry, lambda: conversation.append_event(extra))
            if followed is None:
                return
            entry, seen = followed
        self._add(entry)
        self._seen = seen

    def refuse(self, refusal: JSON) -> None:
        """Mark the messages since the last reply as refused. On return that is durable. If there are none, nothing is done."""
        if self._unanswered:
            self.note({"refused": refusal})

    def drop(self) -> int:
        """Retract the messages since the last answer, durably. Return how many.

        In a conversation that cannot take messages back, the records before them become its next generation.
        """
        self.refresh()
        count = self._unanswered_count
        conversation = self._conversation
        if conversation is None:
            places = [place for place, entry in enumerate(self._entries) if entry.message is not None]
            self._read(self._entries[: places[-count]] if count else self._entries)
            return count
        try:
            conversation.retract(count)
        except FeatureNotEnabledError:
            records = [record for record in conversation.get_records() if record.message is not None]
            # An older conversation, without the feature `retract`: the archive keeps the removed messages.
            conversation.keep_records(range(1, records[-count].seq))
        self.refresh()
        return count

    @property
    def _unanswered_count(self) -> int:
        """How many messages follow the last answer: a reply that calls no tool. Half a reply at the end is none."""
        end = len(self._messages) - 1 if self.ends_cut_short or self._tail_is_paused else len(self._messages)
        for place in range(end - 1, -1, -1):
            message = self._messages[place]
            is_answer = self._wire.is_reply(message) and not self._wire.calls(message)
            if is_answer or message.get("role") in PROMPT_ROLES:
                return len(self._messages) - place - 1
        return len(self._messages)

    def note_result(self, place: int, call: ToolCall, result: JSON) -> JSON:
        """Journal the result of one of several calls, before the message that carries all of them. On return it is durable.

        Returns the result that is on record: one that says so if the record refuses this one.
        """
        try:
            self._note_result(place, call, result)
        except _REFUSALS as error:
            _tell(error)
            # The tool has run, so the model must learn that it did: a missing result would look as if it had not.
            result = self._wire.result(call, UNRECORDED, is_error=True)
            self._note_result(place, call, result)
        return result

    def append_results(self, message: Message, extra: JSON | None = None) -> Message:
        """Add a results message durably, and return it as it was stored.

        The tools have run, so their results must not make this fail. While the record refuses the message (sealed or
        redacted it may be longer than it looks), one of its results is replaced by one that says so.
        """
        while True:
            try:
                self.append(message, extra)
            except _REFUSALS as error:
                is_too_long = isinstance(error, InvalidMessageError) and _can_be_json(message)
                # One result at a time: the others may fit, and the model should get as many as possible.
                if (less := without_one(self._wire, message, is_too_long=is_too_long)) is None:
                    raise
                _tell(error)
                message = less
            else:
                return message

    def settle(self) -> None:
        """Add the results that the last reply's calls still need (:func:`owed`), so that the next message may follow."""
        self.refresh()
        # Providers reject a request in which a call has no result.
        debt = self._owed()
        for message in debt.messages:
            lost = [result.id or result.name for result in self._wire.results(message)]
            interrupted = [name for name in debt.interrupted if name in lost]
            self.append_results(message, {"interrupted": interrupted} if interrupted else None)

    def replace(self, messages: Sequence[Message]) -> None:
        """Replace the list. Only for a client without a conversation; otherwise the transcript is replaced and read."""
        self._read(_Entry(message=message, extra=None) for message in messages)

    def _read(self, entries: Iterable[_Entry]) -> None:
        """Start again with these entries."""
        entries = list(entries)
        self._messages, self._tail, self._entries = [], [], []
        self._unanswered, self._left_out, self._written_by = [], set(), {}
        for entry in entries:
            if entry.message is not None and isinstance(model := (entry.extra or {}).get("model"), str):
                self._written_by[len(self._messages)] = model
            self._add(entry)

    def _add(self, entry: _Entry) -> None:
        """Add an entry that is durable."""
        message, is_refused = entry.message, "refused" in (entry.extra or {})
        if self._conversation is None:
            self._entries.append(entry)
        if message is not None and self._wire.is_reply(message):
            self._tail = [entry]  # before the message: another thread may check whether it is an answer
        else:
            self._tail.append(entry)
        if message is not None:
            place = len(self._messages)
            self._messages.append(message)
            if not self._wire.is_reply(message):
                self._unanswered += [] if message.get("role") in PROMPT_ROLES else [place]
            elif is_refused:
                self._left_out.add(place)
            else:
                # An answer shows that the provider accepts them now.
                if self.is_refused:  # it was asked again, and is answered
                    self._left_out.difference_update(self._unanswered)
                self._unanswered = []
        if is_refused:
            self._left_out.update(self._unanswered)

    def _note_result(self, place: int, call: ToolCall, result: JSON) -> None:
        self.note({"tool_result": {"index": place, "id": call.id, "name": call.name, "result": result}})

    def _followed(self, entry: _Entry, append: Callable[[], AppendResult]) -> tuple[_Entry, TranscriptPosition] | None:
        """Append a record. Return it as it is stored, and the transcript's new end, if it directly follows what the
        list has.

        If it does not (a tool appended something in between), read the transcript again and return None.
        """
        appended = append()
        # The store reports the head before our record: if it is ours, no other code appended in between.
        if self._seen is not None and appended.previous_head == self._seen.head:
            stored = self._as_stored(entry, appended.seq)
            if stored is not None:
                return stored, TranscriptPosition(appended.seq, appended.head)
        self.refresh()
        return None

    def _as_stored(self, entry: _Entry, seq: int) -> _Entry | None:
        """The stored form of a record that was just appended: it has less if the store removes secrets."""
        if self._conversation is None or not self.redacts:
            return entry
        records = self._conversation.iter_records(after_seq=seq - 1, through_seq=seq)
        return next((_Entry(message=record.message, extra=record.extra) for record in records), None)

    def _owed(self) -> Owed:
        journaled = dict(noted for entry in self._tail if (noted := _result_noted(entry.extra)) is not None)
        unanswered = [entry.message for entry in self._tail if entry.message is not None]
        return owed(self._wire, unanswered, journaled, cut_short=self._tail_is_cut_short)


def _can_be_json(message: Message) -> bool:
    """True if a record could hold the message if it were short."""
    try:
        encode_message(message, "message", sys.maxsize)
    except InvalidMessageError:
        return False
    return True


def _tell(error: Exception) -> None:
    _log.warning("a tool's result is not stored, which is reported to the model: %s", error)


def _result_noted(extra: JSON | None) -> tuple[int, JSON] | None:
    """The place of a call and its result, if :meth:`History.note_result` wrote this. Other programs may use the same name."""
    note = (extra or {}).get("tool_result")
    if type(note) is dict and type(note.get("index")) is int and type(note.get("result")) is dict:
        return note["index"], note["result"]
    return None


def plain_copies(messages: Sequence[Mapping[str, Any]], name: str) -> list[Message]:
    """Deep copies of messages from outside. ``name`` is what an error calls the list.

    Raises:
        InvalidMessageError: a record cannot hold a message; the error says which.
    """
    return [
        decode_message(encode_message(message, f"{name}[{place}]", DEFAULT_MAX_LINE_BYTES))
        for place, message in enumerate(messages)
    ]


def _is_another(wrote: str | None, asked: str) -> bool:
    """True if a reply is known to be of another model: ``deepseek/deepseek-chat`` answers as ``deepseek-chat-v3.1``."""
    one, other = ((name or "").rpartition("/")[2].lower() for name in (wrote, asked))
    return bool(one and other) and not one.startswith(other) and not other.startswith(one)
