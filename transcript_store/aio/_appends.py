"""Appends of many tasks, stored as one batch: one write and one sync.

While the thread stores one batch, the appends that come make the next. Each caller's messages stay together, and stand in the
order in which the calls were made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from datetime import datetime
from typing import Any, NamedTuple

from transcript_store._conversation import arguments
from transcript_store._json.strict import EncodedMessage, encode
from transcript_store.aio._worker import Turn
from transcript_store.conversation import AppendResult, ConversationStore
from transcript_store.errors import ConversationLockedError, TranscriptStoreError
from transcript_store.ways_out import WayOut

_MOST_BYTES = 8 << 20
"""So much is stored as one batch. A call that brings more is a batch of its own."""


class Records(NamedTuple):
    """What one call appends: checked, encoded, and so copied, before the call waits for anything."""

    messages: Sequence[EncodedMessage | None]
    extras: Sequence[EncodedMessage | None]
    times: Sequence[str | datetime | None]

    @property
    def size(self) -> int:
        return sum(len(part.text) for parts in (self.messages, self.extras) for part in parts if part is not None)


def record(message: Mapping[str, Any] | None, extra: Mapping[str, Any] | None, max_bytes: int) -> Records:
    """One message, with an extra or without; or an event, which has only that."""
    encoded = None if message is None else EncodedMessage(encode(message, "message", max_bytes))
    return Records((encoded,), (None if extra is None else EncodedMessage(encode(extra, "extra", max_bytes)),), (None,))


def records(
    messages: Iterable[Mapping[str, Any] | EncodedMessage | None],
    extras: Iterable[Mapping[str, Any] | EncodedMessage | None] | None,
    times: Iterable[str | datetime | None] | None,
    max_bytes: int,
) -> Records:
    """Several messages, as ``ConversationStore.append_messages`` takes them; raises as that does."""
    times = None if times is None else list(times)
    entries = arguments.entries(messages, extras, times, max_bytes)
    return Records(
        [None if message is None else EncodedMessage(message) for message, _, _ in entries],
        [None if extra is None else EncodedMessage(extra) for _, extra, _ in entries],
        times or [None] * len(entries),
    )


class Member:
    """One call that appends, and its answer."""

    __slots__ = ("error", "records", "stored")

    def __init__(self, records: Records) -> None:
        self.records = records
        self.stored: tuple[AppendResult, ...] = ()
        self.error: BaseException | None = None
        """What refused it; None if it is stored."""


class Batch(Turn):
    """The calls that are stored together, in one turn."""

    def __init__(self, conversation: ConversationStore, member: Member) -> None:
        self._conversation = conversation
        self._members = [member]
        self._size = member.records.size

    def takes(self, other: Turn) -> bool:
        if not isinstance(other, Batch) or self._size + other._size > _MOST_BYTES:
            return False
        self._members += other._members
        self._size += other._size
        return True

    def run(self) -> None:
        try:
            self._store(self._members)
        except TranscriptStoreError as refusal:
            # A batch of which the disk may have a part, or all, is never stored again: each of its calls gets that error. So does
            # each of a batch that did not get the lock: one after another they would wait for it again.
            is_of_all = refusal.way_out is WayOut.LOAD_TO_SEE or isinstance(refusal, ConversationLockedError)
            if len(self._members) == 1 or is_of_all:
                self._refuse(refusal)
            else:
                self._store_each()
        except BaseException as error:  # nobody's on purpose: no memory, say
            for member in self._members:
                member.error = error

    def _store_each(self) -> None:
        """Store each call by itself: what is refused of one does not refuse the others'."""
        for member in self._members:
            try:
                self._store([member])
            except BaseException as error:
                member.error = error

    def _refuse(self, error: TranscriptStoreError) -> None:
        for member in self._members:
            member.error = _another(error)

    def _store(self, members: Sequence[Member]) -> None:
        stored = self._conversation.append_messages(
            [message for member in members for message in member.records.messages],
            extras=[extra for member in members for extra in member.records.extras],
            times=[time for member in members for time in member.records.times],
        )
        start = 0
        for member in members:
            end = start + len(member.records.messages)
            member.stored = stored[start:end]
            start = end


def _another(error: TranscriptStoreError) -> TranscriptStoreError:
    """The same error for one more task: an error notes what it is raised through."""
    another = copy(error)
    another.__cause__ = error.__cause__
    return another.with_traceback(error.__traceback__)
