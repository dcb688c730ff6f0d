"""Sessions of OpenAI's Agents SDK that survive a power cut.

.. code-block:: text

    from transcript_store.integrations.openai_agents import TranscriptSession

    await Runner.run(agent, "Hello", session=TranscriptSession("user-1", "chats"))

It needs the extra ``openai-agents``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from transcript_store.conversation import ConversationStore, Durability, Record, Redact
from transcript_store.errors import (
    ConversationChangedError,
    FeatureNotEnabledError,
    GenerationNotFoundError,
    MissingExtraError,
)

try:
    from agents.memory import SQLiteSession
    from agents.memory.session_settings import SessionSettings, coerce_session_settings, resolve_session_limit
except ModuleNotFoundError as _error:
    if (_error.name or "").partition(".")[0] != "agents":
        raise
    raise MissingExtraError(feature="transcript_store.integrations.openai_agents", extra="openai-agents") from _error

from transcript_store.integrations._conversations import (
    Conversation,
    OpenOptions,
    close,
    conversation,
    home_at,
    id_for_key,
    is_folder,
    path_of,
    to_read,
)
from transcript_store.integrations._values import readable, require_items, restored, stored
from transcript_store.library import ConversationLibrary
from transcript_store.messages import EncodedMessage, decode_message, encode_message

__all__ = ["TranscriptSession"]

FRAMEWORK = "openai-agents"
_KNOWN_ITEMS, _KNOWN_BYTES = 8, 64 << 10
"""So many items of the end are known between two calls, if they are no larger: after a failed attempt the SDK pops one by one."""

T = TypeVar("T")


class TranscriptSession:
    """A ``Session`` of the OpenAI Agents SDK: a conversation in ``directory``, whose messages are the SDK's items.

    The call that adds items returns when they survive a power loss: all of them or, after a crash before that, none.
    Any number of objects may name one session, in any number of tasks, threads and processes, which take turns: each
    call is one step, and sees what the others stored before it. Retracted, cleared or compacted items no longer count,
    but stay readable with ``conversation()``.

    Args:
        session_id: the session's key: any text.
        directory: the library's folder, which is created if it is missing; or a
            ``ConversationLibrary``, which may be on a backend: objects that are given the same one share open conversations.
        session_settings: as of the SDK's own sessions: ``limit``, how many items ``get_items()`` returns by default.
        durability: as of ``ConversationStore``.
        lock_timeout_seconds: how long to wait for the turns of others.
        keep_cleared: whether ``clear_session()`` keeps what it clears, in ``archive/``. With False, what was cleared and
            compacted is removed; on a backend that cannot be.
        redact: as of ``ConversationStore``: removes from an item what must not be stored. Give the same
            function each time.

    Raises:
        TypeError: the key is not text, or ``redact`` is not callable.
        ValueError: ``directory`` is a file, there is no such ``durability``, or ``keep_cleared`` is False on a backend.
        CorruptTranscriptError: any call; the session is damaged. ``transcript-store verify`` and ``repair`` help.
        ConversationLockedError: any call; a store that holds its lock (``hold_lock=True``) has the session open.
        TranscriptStoreError: any call, as ``ConversationStore``.
    """

    session_settings: SessionSettings | None = None

    def __init__(
        self,
        session_id: str,
        directory: str | os.PathLike[str] | ConversationLibrary,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        *,
        durability: Durability = "power-loss",
        lock_timeout_seconds: float = 10.0,
        keep_cleared: bool = True,
        redact: Redact | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = (
            SessionSettings() if session_settings is None else coerce_session_settings(session_settings)
        )
        home = home_at(directory)
        options = OpenOptions.of(home, durability, lock_timeout_seconds, redact)
        self._place = (home, id_for_key(FRAMEWORK, session_id), options)
        self._max_bytes = options.store(*self._place[:2]).max_line_bytes  # which checks the options
        if not (keep_cleared or is_folder(home)):
            raise ValueError(
                "keep_cleared must be True on a backend: cleared items stay in their slots until the session is deleted"
            )
        self._keep_cleared = keep_cleared
        self._compacted: _Sent | None = None

    def __repr__(self) -> str:
        return f"TranscriptSession({self.session_id!r}, {path_of(self._place[0])!r})"

    # ---- the protocol --------------------------------------------------------------------------------------------

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The items in order: fresh copies.

        Args:
            limit: only the last so many; 0 is none, less is all. None: as ``session_settings`` says.

        Raises:
            TranscriptStoreError: the session cannot be read. It is never treated as empty.
        """
        last = resolve_session_limit(limit, self.session_settings)
        if last is not None and last < 0:
            last = None
        messages = await self._call(lambda store: store.get_messages(last=last)) or []
        if _ENCRYPTED in messages[-1] if messages else _ends_read.get()[0] == self._place[1]:
            _ends_read.set(_with_end(self._place[1], messages[-1] if messages else None))
        return [restored(message) for message in messages]

    async def add_items(self, items: Sequence[Any]) -> None:
        """Append items as one batch; on return they are durable. Without items nothing is written.

        Raises:
            TypeError: JSON cannot hold an item, or this is not a list. Nothing was stored.
            InvalidMessageError: an item is too long. Nothing was stored.
            RedactionError: ``redact`` raised, or gave no item. Nothing was stored.
            TranscriptStoreError: as ``ConversationStore.append_messages``.
        """
        if messages := self._stored(items):
            async with conversation(*self._place) as found:
                redacts = self._place[2].redact is not None
                await found.call(partial(_add, found, messages, redacts), partial(self._begin, messages))

    # The very function of the SDK's own session, which is one line (``return await self._pop_item_with_validation()``): EncryptedSession
    # checks its key before an item is retracted if this is it. Otherwise a wrong key would retract every item, one by one.
    pop_item = SQLiteSession.pop_item
    """Take back the last item, and return it; None if there is none. It costs an append.

    Raises:
        TranscriptStoreError: as ``ConversationStore.retract``.
    """

    async def clear_session(self) -> None:
        """Start again without items. The old ones stay readable, unless ``keep_cleared`` is False.

        Raises:
            TranscriptStoreError: as ``ConversationStore.replace_transcript``.
        """
        await self._call(partial(_clear, keep=self._keep_cleared))

    # ---- besides -------------------------------------------------------------------------------------------------

    @property
    def directory(self) -> str:
        """The conversation's folder; on a backend, what errors call it."""
        return f"{path_of(self._place[0])}/{self._place[1]}"

    def close(self) -> None:
        """Close the session's files. The next call opens them again. No other process waits for this."""
        close(*self._place)

    def conversation(self) -> ConversationStore:
        """The conversation underneath, loaded to read: use it in a ``with`` statement, or close it.

        Raises:
            ConversationNotFoundError: nothing was added yet.
            TranscriptStoreError: as ``ConversationStore.load``.
        """
        return to_read(*self._place[:2])

    # ---- hooks that the SDK looks for by name --------------------------------------------------------------------
    # They are private there. Without those that replace it clears and then adds, and a crash in between leaves an empty session.
    # A subclass may change what the four methods do, so it does not get those: SQLiteSession and RedisSession do the same.

    async def _pop_item_with_validation(self, validate: Callable[[Any], object] | None = None) -> Any | None:
        """Retract the last item if ``validate(item)`` returns; if it raises, the item stays."""
        async with conversation(*self._place) as found:
            try:
                return await found.call(partial(_pop, found, validate))
            except Exception:
                task = asyncio.current_task()
                if (
                    task is not None and task.cancelling()
                ):  # as the SDK's own: who cancels a call sees that it is cancelled
                    raise asyncio.CancelledError from None
                raise

    async def _atomic_replace_items(self, items: Sequence[Any]) -> bool:
        if type(self) is not TranscriptSession:
            return False
        messages, sent, self._compacted = self._stored(items), self._compacted, None
        read = sent or self._end_of_encrypted_read()
        replace = _start_again if read is None else partial(_replace_begin, read)
        return bool(await self._call(lambda store: replace(store, messages)))

    def _end_of_encrypted_read(self) -> _SentUpTo | None:
        """What EncryptedSession read to compact: the read before the last one of this task, which the SDK makes for a rollback."""
        place, *ends = _ends_read.get()
        return _SentUpTo(ends[0]) if place == self._place[1] and len(ends) == 2 else None

    @property
    def _read_compaction_items(self) -> Callable[[int | None], Awaitable[tuple[list[Any], bool]]]:
        if type(self) is not TranscriptSession:
            raise AttributeError("_read_compaction_items")  # as for an unknown attribute
        return self._read_to_compact

    async def _read_to_compact(self, limit: int | None) -> tuple[list[Any], bool]:
        """The items that a compaction will send, and whether these are all: ``limit`` or as many as ``get_items()``.

        A forced compaction replaces everything once the provider has answered. What was added since this read is not in that answer, so
        how much was there is noted here, and what follows it stays.
        """
        if limit is not None:
            items = await self.get_items(limit)
            return items, len(items) < limit
        found = await self._call(lambda store: (_generation(store), _counted(store)))
        generation, records = found or (0, [])
        self._compacted = _Sent(generation, [record.seq for record in records])
        last = resolve_session_limit(None, self.session_settings)
        if last is not None and last >= 0:
            records = records[max(0, len(records) - last) :]
        return [restored(record.message or {}) for record in records], False

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Any], bool] | None = None
    ) -> _Snapshot | None:
        if type(self) is not TranscriptSession:
            return None
        head, messages = await self._call(lambda store: (store.head, store.get_messages(last=limit + 1))) or ("", [])
        items = [restored(message) for message in messages[-limit:]] if limit else []

        async def replace_suffix(start: int, output: list[Any]) -> bool:
            if start >= len(items):
                return False
            new, replaced = self._stored(output), len(items) - start
            done = await self._call(lambda store: _replace_end(store, head, replaced, new, prune_prefix))
            return bool(done)

        return _Snapshot(items, len(messages) <= limit, replace_suffix)

    # ---- within --------------------------------------------------------------------------------------------------

    async def _call(
        self, function: Callable[[ConversationStore], T], begin: Callable[[ConversationStore], Any] | None = None
    ) -> T | None:
        async with conversation(*self._place) as found:
            return await found.call(function, begin)

    def _begin(self, messages: Sequence[EncodedMessage], store: ConversationStore) -> None:
        name = readable(self.session_id)
        store.initialize(
            id=self._place[1],
            provider=FRAMEWORK,
            labels={f"{FRAMEWORK}.session_id": name, "title": name},
            messages=messages,
            features=["retract"],
        )

    def _stored(self, items: Sequence[Any]) -> list[EncodedMessage]:
        require_items("items", items)
        return [stored(item, f"items[{k}]", self._max_bytes) for k, item in enumerate(items)]


SQLiteSession.register(TranscriptSession)
"""EncryptedSession asks for this class too, and nothing else in the SDK does: it means the hook above."""


@dataclass(frozen=True)
class _Snapshot:
    """The end of a session, and a way to replace it if it is still the same: what the SDK reads of one."""

    items: list[Any]
    complete: bool
    """True if these are all items."""
    replace_suffix: Callable[[int, list[Any]], Awaitable[bool]]
    """Replace the items from the number ``start``; False, and nothing was done, if the session is not as it was."""


class _End(NamedTuple):
    """A transcript's head, and its last stored items in order: valid as long as it has this head."""

    head: str
    items: list[EncodedMessage]

    @classmethod
    def of(cls, head: str, items: Sequence[EncodedMessage]) -> _End:
        some = list(items[-_KNOWN_ITEMS:])
        return cls(head, some if sum(len(item.text) for item in some) <= _KNOWN_BYTES else some[-1:])


def _add(found: Conversation, messages: Sequence[EncodedMessage], redacts: bool, store: ConversationStore) -> None:
    head = store.append_messages(messages)[-1].head
    found.memo = None if redacts else _End.of(head, messages)  # else the stored messages differ from the given ones


def _pop(found: Conversation, validate: Callable[[Any], object] | None, store: ConversationStore) -> Any | None:
    """Take back the last item, which is known from before or looked at: its head says whether it still is the last. None comes twice."""
    while True:
        known: _End | None = found.memo
        found.memo = None
        if known is None or not known.items:
            head = store.head if known is None else known.head  # first: the retraction detects later items
            messages = store.get_messages(last=_KNOWN_ITEMS)
            if not messages:
                return None
            limit = store.max_line_bytes
            known = _End.of(head, [EncodedMessage(encode_message(each, "item", limit)) for each in messages])
        *others, last = known.items
        item = restored(decode_message(last.text))
        if validate is not None:
            try:
                validate(item)
            except Exception:
                if store.head != known.head:
                    continue  # something came since: that may be the last item now
                found.memo = known
                raise
        try:
            head = store.retract(if_head=known.head).head
        except ConversationChangedError:
            continue  # something came since: that may be the last item now
        except FeatureNotEnabledError:  # another program created this generation without it
            with suppress(ConversationChangedError):
                count, head = store.position
                store.keep_records(range(1, count + 1), features=["retract"], if_head=head)
            continue
        found.memo = _End(head, others)
        return item


def _clear(store: ConversationStore, *, keep: bool) -> None:
    if store.record_count:
        _start_again(store, [])
    if not keep:
        for generation in store.generations()[:-1]:
            with suppress(GenerationNotFoundError):  # another process cleared too
                store.delete_generation(generation.number)


def _start_again(store: ConversationStore, messages: Sequence[EncodedMessage]) -> bool:
    store.replace_transcript(messages, features=["retract"])
    return True


def _counted(store: ConversationStore) -> list[Record]:
    """The records with the session's items."""
    return [record for record in store.get_records() if record.message is not None and not record.is_retracted]


class _Sent(NamedTuple):
    """The start of a compaction: the transcript's generation and the numbers of its records."""

    generation: int
    numbers: list[int]

    def items_sent(self, store: ConversationStore, records: Sequence[Record]) -> int | None:
        """How many of the items are those that were sent; None if they no longer exist."""
        count = len(self.numbers)
        is_there = _generation(store) == self.generation and [each.seq for each in records[:count]] == self.numbers
        return count if is_there or not count else None


class _SentUpTo(NamedTuple):
    """The last item that a compaction began with, which is encrypted and so like no other."""

    end: dict[str, Any] | None
    """None if there were no items."""

    def items_sent(self, store: ConversationStore, records: Sequence[Record]) -> int | None:  # noqa: ARG002
        """As of ``_Sent``."""
        if self.end is None:
            return 0
        return next((n + 1 for n, each in enumerate(records) if each.message == self.end), None)


_ENCRYPTED = "__enc__"
"""The member by which EncryptedSession knows its items."""
_ends_read: ContextVar[tuple[Any, ...]] = ContextVar("transcript_store_ends_read", default=("",))
"""Which session this task read, and the last items of its last two reads, if these are encrypted. Around a compaction EncryptedSession
reads by ``get_items()`` alone, and other tasks may read the same session at that time."""


def _generation(store: ConversationStore) -> int:
    return store.generations()[-1].number


def _with_end(place: str, end: dict[str, Any] | None) -> tuple[Any, ...]:
    read, *ends = _ends_read.get()
    return place, *(ends[-1:] if read == place else ()), end


def _replace_begin(sent: _Sent | _SentUpTo, store: ConversationStore, new: Sequence[EncodedMessage]) -> bool:
    """Replace the items that were sent, in one commit; those after them keep their times and extras.

    Raises:
        ConversationChangedError: they were replaced. Nothing was changed.
    """
    while True:
        now = store.head  # first: the replacement detects later items
        records = _counted(store)
        count = sent.items_sent(store, records)
        if count is None:
            reason = "items that the provider compacted were retracted or replaced"
            raise ConversationChangedError(path=store.directory, reason=reason, expected_head=now, head=store.head)
        kept, ahead = records[count:], [None] * len(new)
        with suppress(ConversationChangedError):  # something came since: that is kept too
            store.replace_transcript(
                [*new, *(record.message for record in kept)],
                extras=[*ahead, *(record.extra for record in kept)],
                times=[*ahead, *(record.at for record in kept)],
                if_head=now,
                features=["retract"],
            )
            return True


def _replace_end(
    store: ConversationStore,
    head: str,
    replaced: int,
    new: Sequence[EncodedMessage],
    prune_prefix: Callable[[Any], bool] | None,
) -> bool:
    """Replace the last messages by new ones in one commit; those before keep their times and extras."""
    records = _counted(store)
    kept = records[: len(records) - replaced]
    if prune_prefix is not None:
        while kept and prune_prefix(restored(kept[0].message or {})):
            kept.pop(0)
    behind = [None] * len(new)
    try:
        store.replace_transcript(
            [*(record.message for record in kept), *new],
            extras=[*(record.extra for record in kept), *behind],
            times=[*(record.at for record in kept), *behind],
            if_head=head,
            features=["retract"],
        )
    except ConversationChangedError:
        return False
    return True
