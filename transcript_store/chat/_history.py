"""A conversation as a client has it: its native messages, each on disk before it counts.

With a :class:`ConversationStore` the transcript is the truth, and the list here follows it; without one the list is all there
is. The messages in the list are never changed, so that a copy of the list is a snapshot of the conversation.

What a record's ``extra`` may say, beside what belongs to a reply (``response_id``, ``model``, ``stop_reason``, ``usage``):

* ``tool_result`` ``{index, id, name, result}``: a record without a message: the result of one of several calls, in its
  native form, before the message that carries all of them;
* ``interrupted`` ``[id, …]``: the calls for which this results message says that the outcome is unknown;
* ``incomplete`` ``{reason, partial}``: the reply ended early; ``partial`` is all that came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any

from transcript_store import (
    AppendResult,
    ConversationMetadata,
    ConversationStore,
    InvalidMessageError,
    Record,
    TranscriptPosition,
)
from transcript_store.chat._provider import JSON, Message, ToolCall, Wire
from transcript_store.chat._tool_results import Owed, owed
from transcript_store.conversation import DEFAULT_MAX_LINE_BYTES
from transcript_store.histories import PROMPT_ROLES, begins_with_prompt
from transcript_store.messages import decode_message, encode_message

_FIRST_LOOK = 16
"""How many records from the end are looked through for the last reply, before more are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    message: Message | None
    extra: JSON | None


class History:
    """The messages of one conversation, and what its end owes to the last reply."""

    def __init__(self, wire: Wire, conversation: ConversationStore | None) -> None:
        self._wire = wire
        self._conversation = conversation
        self._messages: list[Message] = []
        self._tail: list[_Entry] = []  # the last reply and everything behind it
        self._seen: TranscriptPosition | None = None  # the end of the transcript as the list has it
        self._at_start: ConversationMetadata | None = None
        self.refresh()

    @property
    def messages(self) -> list[Message]:
        """The messages in order, as a new list of the messages themselves: read them, do not change them."""
        return list(self._messages)

    @property
    def max_bytes(self) -> int:
        """How long a line of the record may be."""
        return DEFAULT_MAX_LINE_BYTES if self._conversation is None else self._conversation.max_line_bytes

    @property
    def ends_cut_short(self) -> bool:
        """Whether the last message is a reply that ended early."""
        return self._ends_with_a_reply and "incomplete" in (self._tail[0].extra or {})

    @property
    def is_answered(self) -> bool:
        """Whether nothing is left to ask: nothing was said, or the last message is a whole reply that calls no tool."""
        if not self._ends_with_a_reply:
            return not self._messages or self._messages[-1].get("role") in PROMPT_ROLES
        return not self.ends_cut_short and not self._wire.calls(self._messages[-1])

    @property
    def _ends_with_a_reply(self) -> bool:
        return bool(self._messages) and self._wire.is_reply(self._messages[-1])

    def is_too_long(self, result: JSON, *, share: int) -> bool:
        """Whether the result of a tool leaves too little room for the others of ``share`` results, which may be one message."""
        try:
            encode_message(result, "result", self.max_bytes // (share + 1))
        except InvalidMessageError:
            return True
        return False

    def without_prompt(self, prompt: str | None) -> list[Message]:
        """The messages without the system prompt, which a log of some other program may begin with.

        It is one message (``begins_with_prompt``) where system messages are messages; elsewhere all that stand in front.
        """
        messages = self.messages
        if not self._wire.has_system_messages:
            return list(dropwhile(lambda message: message.get("role") in PROMPT_ROLES, messages))
        if self._at_start is not None and begins_with_prompt(messages, prompt, self._at_start):
            return messages[1:]
        return messages

    def export(self, prompt: str | None) -> list[Message]:
        """A deep copy of the messages without the system prompt; may be called from any thread."""
        return plain_copies(self.without_prompt(prompt), "messages")

    def refresh(self) -> None:
        """Follow the transcript if it is not as it was: another writer of this process, or a call that was interrupted."""
        if self._conversation is None or (seen := self._conversation.position) == self._seen:
            return
        messages = self._conversation.get_messages()
        self._at_start = self._conversation.get_metadata(at_start=True)
        self._tail = [_Entry(message=r.message, extra=r.extra) for r in self._last_reply_on(self._conversation)]
        self._messages = messages
        self._seen = seen

    def append(self, message: Message, extra: JSON | None = None) -> None:
        """Add a message; on return it is durable."""
        conversation = self._conversation
        seen = None
        if conversation is None:
            encode_message(message, "message", self.max_bytes)  # refused here as a record would refuse it
        else:
            seen = self._followed(lambda: conversation.append_message(message, extra=extra or None))
            if seen is None:
                return
        self._messages.append(message)
        if self._wire.is_reply(message):
            self._tail.clear()
        self._tail.append(_Entry(message=message, extra=extra))
        self._seen = seen  # last: an interruption before this makes the next turn read the transcript

    def note(self, extra: JSON) -> None:
        """Add a record without a message; on return it is durable."""
        conversation = self._conversation
        seen = None
        if conversation is not None:
            seen = self._followed(lambda: conversation.append_event(extra))
            if seen is None:
                return
        self._tail.append(_Entry(message=None, extra=extra))
        self._seen = seen

    def note_result(self, place: int, call: ToolCall, result: JSON) -> None:
        """Add the result of one of several calls, whose message is still to come; on return it is durable."""
        self.note({"tool_result": {"index": place, "id": call.id, "name": call.name, "result": result}})

    def settle(self) -> None:
        """Bring the record to where the next message may follow: a call that was interrupted gets a result that says so."""
        self.refresh()
        debt = self._owed()
        for message in debt.messages:
            lost = [result.id or result.name for result in self._wire.results(message)]
            interrupted = [name for name in debt.interrupted if name in lost]
            self.append(message, {"interrupted": interrupted} if interrupted else None)

    def replace(self, messages: Sequence[Message]) -> None:
        """Begin anew with these messages, where there is no conversation to restore them into."""
        self._messages = list(messages)
        replies = [place for place, message in enumerate(messages) if self._wire.is_reply(message)]
        self._tail = [_Entry(message=message, extra=None) for message in messages[replies[-1] :]] if replies else []

    def _followed(self, append: Callable[[], AppendResult]) -> TranscriptPosition | None:
        """Append a record; where the transcript ends then, if it stands directly behind those that the list has.

        If not (a tool recorded something), follow, and return None.
        """
        appended = append()
        if self._seen is not None and appended.previous_head == self._seen.head:
            return TranscriptPosition(appended.seq, appended.head)
        self.refresh()
        return None

    def _owed(self) -> Owed:
        journaled = dict(noted for entry in self._tail if (noted := _result_noted(entry.extra)) is not None)
        said = [entry.message for entry in self._tail if entry.message is not None]
        cut_short = bool(self._tail and "incomplete" in (self._tail[0].extra or {}))
        return owed(self._wire, said, journaled, cut_short=cut_short)

    def _last_reply_on(self, conversation: ConversationStore) -> Sequence[Record]:
        look, total = _FIRST_LOOK, conversation.record_count
        while True:
            records = conversation.get_records(last=look)
            for place in range(len(records) - 1, -1, -1):
                message = records[place].message
                if message is not None and self._wire.is_reply(message):
                    return records[place:]
            if look >= total:
                return []
            look *= 8


def _result_noted(extra: JSON | None) -> tuple[int, JSON] | None:
    """The place of a call and its result, if this is what :meth:`History.note_result` writes; others may use its name too."""
    note = (extra or {}).get("tool_result")
    if type(note) is dict and type(note.get("index")) is int and type(note.get("result")) is dict:
        return note["index"], note["result"]
    return None


def plain_copies(messages: Sequence[Mapping[str, Any]], name: str) -> list[Message]:
    """Deep copies of messages that came from outside; raises ``InvalidMessageError`` for what a record cannot hold."""
    return [
        decode_message(encode_message(message, f"{name}[{place}]", DEFAULT_MAX_LINE_BYTES))
        for place, message in enumerate(messages)
    ]
