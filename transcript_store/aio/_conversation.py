"""One conversation, for tasks: ``AsyncConversationStore``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial, wraps
from itertools import islice
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from transcript_store._os.filesystem import AnyPath, FileSystem
from transcript_store.aio._worker import AppendJob, Member, Records, Worker, record, records
from transcript_store.conversation import (
    AppendResult,
    ConversationStore,
    Gap,
    Record,
    Recovery,
    TranscriptPosition,
)
from transcript_store.errors import TranscriptStoreError
from transcript_store.library import StoreOptions
from transcript_store.messages import EncodedMessage

P = ParamSpec("P")
T = TypeVar("T")

_RECORDS_AT_ONCE = 16
"""So many records are fetched together: a visit to the thread takes as long as decoding a few dozen small ones."""


def _awaited(
    method: Callable[Concatenate[ConversationStore, P], T],
) -> Callable[Concatenate[AsyncConversationStore, P], Coroutine[Any, Any, T]]:
    """The same call, awaited: type checkers see its parameters, and ``help()`` shows its text."""

    @wraps(method)
    async def call(self: AsyncConversationStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.call(lambda store: method(store, *args, **kwargs))

    return call


class AsyncConversationStore:
    """A conversation in a directory of its own, for tasks of asyncio or trio: :class:`ConversationStore`, awaited.

    Each call has the arguments, the result and the errors of the call of that name there; ``await conversation.head``,
    ``position`` and the like are awaited too. ``id`` and ``directory`` never change and are plain attributes. The calls
    are made in a thread of the store's own, in the order in which they are called. Appends that wait for the disk at
    the same time share one write and one sync.

    Cancellation: a call that has started runs to completion; then the cancellation is raised. So after a cancellation
    an append is stored; if it was refused, its error is raised instead. That also holds for ``asyncio.wait_for``,
    ``asyncio.timeout`` and Ctrl-C, and for a task that is cancelled already when it calls. A load that waits for a lock
    is waited for as well.

    Any number of tasks may use one store, also in several event loops. After a fork the child must open the
    conversation again.

    Args:
        directory: the conversation's folder.
        file_system: another file system, for tests (``transcript_store.testing``).
        options: as of :class:`ConversationStore`: ``durability``, ``read_only``, ``hold_lock``, ``lock_timeout_seconds``,
            ``max_line_bytes``, ``cache_bytes``, ``redact`` (called in the store's thread), ``encryption_key``,
            ``retired_keys``.

    Raises:
        TranscriptStoreError: any call, as :class:`ConversationStore`.
        RuntimeError: any call; the interpreter is ending, and no thread can be started. Nothing was done.
    """

    def __init__(
        self, directory: AnyPath, *, file_system: FileSystem | None = None, **options: Unpack[StoreOptions]
    ) -> None:
        self._set(ConversationStore(directory, file_system=file_system, **options))

    @classmethod
    def of(cls, store: ConversationStore) -> Self:
        """The same for a store that is there already, and may be loaded. Threads may go on using that."""
        conversation = cls.__new__(cls)
        conversation._set(store)
        return conversation

    def _set(self, store: ConversationStore) -> None:
        self._store = store
        self._worker = Worker()

    @property
    def directory(self) -> str:
        """The absolute path of the conversation's folder."""
        return self._store.directory

    @property
    def id(self) -> str:
        """As :attr:`ConversationStore.id`: an attribute, which waits for nothing, also after ``close()``.

        Raises:
            ConversationNotLoadedError: nothing was loaded or created yet.
        """
        return self._store.id

    @property
    def max_line_bytes(self) -> int:
        """As :attr:`ConversationStore.max_line_bytes`."""
        return self._store.max_line_bytes

    @property
    def redacts(self) -> bool:
        """As :attr:`ConversationStore.redacts`."""
        return self._store.redacts

    def __repr__(self) -> str:
        return f"AsyncConversationStore({self.directory!r})"

    async def call(self, function: Callable[[ConversationStore], T]) -> T:
        """Call ``function(store)`` in the store's thread, with the ``ConversationStore`` underneath, and return what it returns.

        For everything that is not here by name: ``await conversation.call(snapshot_of)``, or several calls with no call of
        another task between them. Do not keep what belongs to the thread: read ``frozen()`` to its end within the function.

        If the caller is cancelled, the function is called to its end.

        Raises:
            TypeError: it is an async function. Nothing of it was done.
            BaseException: what ``function`` raises.
        """
        return await self._worker.call(partial(function, self._store))

    # ---- begin and end -------------------------------------------------------------------------------------------

    exists = _awaited(ConversationStore.exists)
    """As :meth:`ConversationStore.exists`."""
    initialize = _awaited(ConversationStore.initialize)
    """As :meth:`ConversationStore.initialize`."""
    load = _awaited(ConversationStore.load)
    """As :meth:`ConversationStore.load`."""
    load_or_initialize = _awaited(ConversationStore.load_or_initialize)
    """As :meth:`ConversationStore.load_or_initialize`."""

    seal = _awaited(ConversationStore.seal)
    """As :meth:`ConversationStore.seal`."""
    unseal = _awaited(ConversationStore.unseal)
    """As :meth:`ConversationStore.unseal`."""

    async def close(self) -> None:
        """As :meth:`ConversationStore.close`, when every call that was made before is done. The thread ends.

        Raises:
            StorageError: as :meth:`ConversationStore.close`.
        """
        try:
            await self.call(ConversationStore.close)
        finally:
            self._worker.let_go()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- write ---------------------------------------------------------------------------------------------------

    async def append_message(
        self, message: Mapping[str, Any], *, extra: Mapping[str, Any] | None = None, if_head: str | None = None
    ) -> AppendResult:
        """As :meth:`ConversationStore.append_message`: on return it is as durable as the store was opened for.

        The message is copied before the call waits for anything. With ``if_head`` it shares no write with other calls.

        Raises:
            TranscriptStoreError: as :meth:`ConversationStore.append_message`. One refused call does not refuse another's.
        """
        return (await self._append(record(message, extra, self.max_line_bytes), if_head))[0]

    async def append_messages(
        self,
        messages: Iterable[Mapping[str, Any] | EncodedMessage | None],
        *,
        extras: Iterable[Mapping[str, Any] | EncodedMessage | None] | None = None,
        times: Iterable[str | datetime | None] | None = None,
        if_head: str | None = None,
    ) -> tuple[AppendResult, ...]:
        """As :meth:`ConversationStore.append_messages`: after a crash all of them are stored, one after the other, or
        none.

        Raises:
            ValueError: there are not as many extras, or times, as messages.
            TranscriptStoreError: as :meth:`append_message`.
        """
        return await self._append(records(messages, extras, times, self.max_line_bytes), if_head)

    async def append_event(self, extra: Mapping[str, Any], *, if_head: str | None = None) -> AppendResult:
        """As :meth:`ConversationStore.append_event`.

        Raises:
            TranscriptStoreError: as :meth:`append_message`.
        """
        return (await self._append(record(None, extra, self.max_line_bytes), if_head))[0]

    async def _append(self, given: Records, if_head: str | None) -> tuple[AppendResult, ...]:
        if if_head is not None:
            messages, extras, times = given
            return await self.call(
                lambda store: store.append_messages(messages, extras=extras, times=times, if_head=if_head)
            )
        member = Member(given)
        batch = self._worker.put(AppendJob(self._store, member))
        try:
            await batch.finished()
        finally:
            if member.error is not None:
                raise member.error
        return member.stored

    retract = _awaited(ConversationStore.retract)
    """As :meth:`ConversationStore.retract`."""

    retract_turn = _awaited(ConversationStore.retract_turn)
    """As :meth:`ConversationStore.retract_turn`."""

    replace_transcript = _awaited(ConversationStore.replace_transcript)
    """As :meth:`ConversationStore.replace_transcript`."""

    keep_records = _awaited(ConversationStore.keep_records)
    """As :meth:`ConversationStore.keep_records`."""

    restore = _awaited(ConversationStore.restore)
    """As :meth:`ConversationStore.restore`."""

    update_metadata = _awaited(ConversationStore.update_metadata)
    """As :meth:`ConversationStore.update_metadata`."""

    set_title = _awaited(ConversationStore.set_title)
    """As :meth:`ConversationStore.set_title`."""

    delete_generation = _awaited(ConversationStore.delete_generation)
    """As :meth:`ConversationStore.delete_generation`."""
    purge_quarantine = _awaited(ConversationStore.purge_quarantine)
    """As :meth:`ConversationStore.purge_quarantine`."""

    # ---- read ----------------------------------------------------------------------------------------------------

    get_messages = _awaited(ConversationStore.get_messages)
    """As :meth:`ConversationStore.get_messages`."""
    get_records = _awaited(ConversationStore.get_records)
    """As :meth:`ConversationStore.get_records`."""
    get_metadata = _awaited(ConversationStore.get_metadata)
    """As :meth:`ConversationStore.get_metadata`."""
    usage = _awaited(ConversationStore.usage)
    """As :meth:`ConversationStore.usage`."""
    generations = _awaited(ConversationStore.generations)
    """As :meth:`ConversationStore.generations`."""
    state = _awaited(ConversationStore.state)
    """As :meth:`ConversationStore.state`."""
    refresh = _awaited(ConversationStore.refresh)
    """As :meth:`ConversationStore.refresh`."""

    def iter_records(
        self, *, after_seq: int = 0, through_seq: int | None = None, generation: int | None = None
    ) -> AsyncIterator[Record]:
        """As :meth:`ConversationStore.iter_records`, for ``async for``. Sixteen records at a time are fetched from the thread.

        Raises:
            ConversationChangedError: while the records are read, as there.
            TranscriptStoreError: while the records are read, as :meth:`ConversationStore.get_records`.
        """
        return self._each(self._store.iter_records(after_seq=after_seq, through_seq=through_seq, generation=generation))

    async def _each(self, records: Iterator[Record]) -> AsyncIterator[Record]:
        while True:
            fetched: list[Record] = []
            damage: TranscriptStoreError | None = None
            try:
                await self._worker.call(partial(fetched.extend, islice(records, _RECORDS_AT_ONCE)))
            except TranscriptStoreError as error:
                damage = error  # the records before it are whole
            for one in fetched:
                yield one
            if damage is not None:
                raise damage
            if not fetched:
                return

    @property
    def title(self) -> Coroutine[Any, Any, str | None]:
        """As :attr:`ConversationStore.title`; await it. :meth:`set_title` sets it."""
        return self.call(lambda store: store.title)

    @property
    def features(self) -> Coroutine[Any, Any, tuple[str, ...]]:
        """As :attr:`ConversationStore.features`; await it."""
        return self.call(lambda store: store.features)

    @property
    def position(self) -> Coroutine[Any, Any, TranscriptPosition]:
        """As :attr:`ConversationStore.position`; await it."""
        return self.call(lambda store: store.position)

    @property
    def record_count(self) -> Coroutine[Any, Any, int]:
        """As :attr:`ConversationStore.record_count`; await it."""
        return self.call(lambda store: store.record_count)

    @property
    def head(self) -> Coroutine[Any, Any, str]:
        """As :attr:`ConversationStore.head`; await it."""
        return self.call(lambda store: store.head)

    @property
    def recovery(self) -> Coroutine[Any, Any, Recovery | None]:
        """As :attr:`ConversationStore.recovery`; await it."""
        return self.call(lambda store: store.recovery)

    @property
    def is_fully_verified(self) -> Coroutine[Any, Any, bool]:
        """As :attr:`ConversationStore.is_fully_verified`; await it."""
        return self.call(lambda store: store.is_fully_verified)

    @property
    def torn_tail(self) -> Coroutine[Any, Any, Gap | None]:
        """As :attr:`ConversationStore.torn_tail`; await it."""
        return self.call(lambda store: store.torn_tail)
