"""Many conversations, for tasks: ``AsyncConversationLibrary``."""

from __future__ import annotations

import builtins
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from transcript_store._os.filesystem import AnyPath, FileSystem
from transcript_store._sealing.keys import EncryptionKey
from transcript_store.aio._conversation import AsyncConversationStore
from transcript_store.aio._worker import Worker, interruptions
from transcript_store.conversation import ConversationStore, Redact, Verify
from transcript_store.library import (
    ConversationLibrary,
    ConversationSummary,
    CreateArguments,
    LibraryBackend,
    StoreOptions,
)

if TYPE_CHECKING:
    from transcript_store.keys import KeyProvider
    from transcript_store.search import IndexStatus, IndexUpdate, ListPage, Order, SearchIndex, SearchResult, Sort


# ---- search ----
#
# The index of a library, for tasks: ``AsyncSearchIndex``.

T = TypeVar("T")


class AsyncSearchIndex:
    """Finds messages in a library, for tasks of asyncio or trio: :class:`transcript_store.search.SearchIndex`, awaited.

    Use it in an ``async with`` statement, or close it. Each call has the arguments, the result and the errors of the
    call of that name there, and is made in a thread of the index's own, in the order in which the calls are made. The
    index is opened by the first call. A call that has started runs to completion, also if its caller is cancelled; then
    the cancellation is raised.

    Args:
        library: the library, or its directory.
        cache: as of ``SearchIndex``.
        encryption_key: as of ``SearchIndex``.
        retired_keys: as of ``SearchIndex``.

    Raises:
        TranscriptStoreError: any call, as ``SearchIndex`` and its call of that name.
    """

    def __init__(
        self,
        library: ConversationLibrary | str | os.PathLike[str],
        *,
        cache: str | os.PathLike[str] | None = None,
        encryption_key: bytes | KeyProvider | None = None,
        retired_keys: Sequence[bytes | KeyProvider] = (),
    ) -> None:
        self._library = library
        self._options: dict[str, Any] = {"cache": cache, "encryption_key": encryption_key, "retired_keys": retired_keys}
        self._index: SearchIndex | None = None
        self._worker = Worker()

    def _opened(self) -> SearchIndex:
        if self._index is None:
            from transcript_store.search import SearchIndex  # sqlite3 is for those who search

            self._index = SearchIndex(self._library, **self._options)
        return self._index

    async def call(self, function: Callable[[SearchIndex], T]) -> T:
        """Call ``function(index)`` in the index's thread, with the ``SearchIndex`` underneath, and return what it returns.

        Raises:
            TypeError: it is an async function. Nothing of it was done.
            BaseException: what ``function`` raises.
        """
        return await self._worker.call(lambda: function(self._opened()))

    async def search(
        self,
        query: str = "",
        *,
        limit: int = 20,
        sort: Sort | None = None,
        regex: str | None = None,
        redact: Redact | None = None,
        wait: bool = False,
        refresh: bool = False,
    ) -> SearchResult:
        """As ``SearchIndex.search``.

        Raises:
            ValueError: as there.
            StorageError: as there.
        """
        return await self.call(
            lambda index: index.search(
                query, limit=limit, sort=sort, regex=regex, redact=redact, wait=wait, refresh=refresh
            )
        )

    async def list(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        sort: Order = "updated",
        filter: str = "",
        wait: bool = False,
    ) -> ListPage:
        """As ``SearchIndex.list``.

        Raises:
            ValueError: as there.
            StorageError: as there.
        """
        return await self.call(lambda index: index.list(limit=limit, after=after, sort=sort, filter=filter, wait=wait))

    async def update(self, *, seconds: float | None = None, refresh: bool = False) -> IndexUpdate:
        """As ``SearchIndex.update``: bring the index up to date, for so many seconds, or as long as it takes.

        Raises:
            StorageError: as there.
        """
        return await self.call(lambda index: index.update(seconds=seconds, refresh=refresh))

    async def status(self) -> IndexStatus:
        """As ``SearchIndex.status``.

        Raises:
            StorageError: as there.
        """
        return await self.call(lambda index: index.status())

    async def close(self) -> None:
        """Close the file, when every call that was made before is done. The thread ends; the next call opens the index again."""
        try:
            await self._worker.call(self._close)
        finally:
            self._worker.let_go()

    def _close(self) -> None:
        index, self._index = self._index, None
        if index is not None:
            index.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


# ---- library ----

P = ParamSpec("P")
_PAGE = 1000


def _awaited(
    method: Callable[Concatenate[ConversationLibrary, P], T],
) -> Callable[Concatenate[AsyncConversationLibrary, P], Coroutine[Any, Any, T]]:
    """The same call, awaited: type checkers see its parameters, and ``help()`` shows its text."""

    @wraps(method)
    async def call(self: AsyncConversationLibrary, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.call(lambda library: getattr(library, method.__name__)(*args, **kwargs))

    return call


class AsyncConversationLibrary:
    """The conversations in a directory, by id, for tasks of asyncio or trio: :class:`ConversationLibrary`, awaited.

    Each call has the arguments, the result and the errors of the call of that name there, and runs in a thread of its
    own. A call that has started runs to completion, also if its caller is cancelled; then the cancellation is raised.

    Args:
        directory: the library's folder, or a backend.
        redact: as of :class:`ConversationLibrary`; it is called in the threads that store.
        encryption_key: as of :class:`ConversationLibrary`; a provider is called in the call's thread.
        retired_keys: as of :class:`ConversationLibrary`.
        file_system: another file system, for tests (``transcript_store.testing``).
    """

    def __init__(
        self,
        directory: AnyPath | LibraryBackend,
        *,
        redact: Redact | None = None,
        encryption_key: EncryptionKey | None = None,
        retired_keys: Iterable[EncryptionKey] = (),
        file_system: FileSystem | None = None,
    ) -> None:
        self._keys: dict[str, Any] = {"encryption_key": encryption_key, "retired_keys": tuple(retired_keys)}
        self._library = ConversationLibrary(directory, redact=redact, **self._keys, file_system=file_system)

    @property
    def directory(self) -> str:
        """The absolute path of the library."""
        return self._library.directory

    def __repr__(self) -> str:
        return f"AsyncConversationLibrary({self.directory!r})"

    async def call(self, function: Callable[[ConversationLibrary], T]) -> T:
        """Call ``function(library)`` in a thread, with the ``ConversationLibrary`` underneath, and return what it returns.

        For everything that is not here by name, as a whole ``with library.group()`` block.

        Raises:
            TypeError: it is an async function. Nothing of it was done.
            BaseException: what ``function`` raises.
        """
        worker = Worker()
        try:
            return await worker.call(partial(function, self._library))
        finally:
            worker.let_go()

    async def create(self, *, id: str | None = None, **arguments: Unpack[CreateArguments]) -> AsyncConversationStore:
        """As :meth:`ConversationLibrary.create`; use the store in an ``async with`` statement, or close it.

        If the caller is cancelled, the conversation is created, and its store closed.

        Raises:
            TranscriptStoreError: as :meth:`ConversationLibrary.create`.
        """
        return await self._loaded(lambda library: library.create(id=id, **arguments))

    async def open(self, id: str, *, verify: Verify = "all", **options: Unpack[StoreOptions]) -> AsyncConversationStore:
        """As :meth:`ConversationLibrary.open`; use the store in an ``async with`` statement, or close it.

        Raises:
            TranscriptStoreError: as :meth:`ConversationLibrary.open`.
        """
        return await self._loaded(lambda library: library.open(id, verify=verify, **options))

    async def _loaded(self, load: Callable[[ConversationLibrary], ConversationStore]) -> AsyncConversationStore:
        stores: builtins.list[ConversationStore] = []
        interrupting = interruptions()
        try:
            await self.call(lambda library: stores.append(load(library)))
        except interrupting:
            for store in stores:  # no caller gets it
                await AsyncConversationStore.of(store).close()
            raise
        return AsyncConversationStore.of(stores[0])

    deleted_ids = _awaited(ConversationLibrary.deleted_ids)
    """As :meth:`ConversationLibrary.deleted_ids`."""

    writers = _awaited(ConversationLibrary.writers)
    """As :meth:`ConversationLibrary.writers`."""

    usage = _awaited(ConversationLibrary.usage)
    """As :meth:`ConversationLibrary.usage`."""

    find = _awaited(ConversationLibrary.find)
    """As :meth:`ConversationLibrary.find`."""

    rename = _awaited(ConversationLibrary.rename)
    """As :meth:`ConversationLibrary.rename`."""

    list = _awaited(ConversationLibrary.list)
    """As :meth:`ConversationLibrary.list`."""

    async def iter_list(self, *, last_extra: bool = False) -> AsyncIterator[ConversationSummary]:
        """As :meth:`ConversationLibrary.iter_list`, a page at a time.

        Raises:
            StorageError: as :meth:`list`.
        """
        page = await self.list(last_extra=last_extra, limit=_PAGE)
        while page:
            for summary in page:
                yield summary
            page = await self.list(last_extra=last_extra, limit=_PAGE, before=page[-1])

    async def search(
        self,
        query: str = "",
        *,
        cache: AnyPath | None = None,
        limit: int = 20,
        sort: Sort | None = None,
        regex: str | None = None,
        redact: Redact | None = None,
        wait: bool = False,
        refresh: bool = False,
    ) -> SearchResult:
        """The messages that match a query, with the library's keys: one call of :class:`AsyncSearchIndex`, which is made and closed.

        Make an ``AsyncSearchIndex`` yourself to search often: then its file stays open.

        Args:
            query: as of ``SearchIndex.search``.
            cache: the directory of the index's file, as of ``SearchIndex``.
            limit: as of ``SearchIndex.search``.
            sort: as of ``SearchIndex.search``.
            regex: as of ``SearchIndex.search``.
            redact: as of ``SearchIndex.search``.
            wait: as of ``SearchIndex.search``.
            refresh: as of ``SearchIndex.search``.

        Raises:
            ValueError: as ``SearchIndex.search``.
            TranscriptStoreError: as ``SearchIndex`` and its ``search``.
        """
        async with AsyncSearchIndex(self._library, cache=cache, **self._keys) as index:
            return await index.search(
                query, limit=limit, sort=sort, regex=regex, redact=redact, wait=wait, refresh=refresh
            )

    def __aiter__(self) -> AsyncIterator[ConversationSummary]:
        """``async for summary in library``: :meth:`iter_list`."""
        return self.iter_list()

    verify = _awaited(ConversationLibrary.verify)
    """As :meth:`ConversationLibrary.verify`."""

    async def fork(
        self,
        id: str,
        *,
        through_seq: int | None = None,
        into: AsyncConversationLibrary | ConversationLibrary | AnyPath | LibraryBackend | None = None,
    ) -> str:
        """As :meth:`ConversationLibrary.fork`.

        Raises:
            ValueError: the original has fewer records than ``through_seq``.
            TranscriptStoreError: as :meth:`ConversationLibrary.fork`.
        """
        other = into._library if isinstance(into, AsyncConversationLibrary) else into
        return await self.call(lambda library: library.fork(id, through_seq=through_seq, into=other))

    async def fork_from(
        self,
        directory: AnyPath,
        *,
        through_seq: int | None = None,
        into: AsyncConversationLibrary | ConversationLibrary | AnyPath | LibraryBackend | None = None,
    ) -> str:
        """As :meth:`ConversationLibrary.fork_from`.

        Raises:
            ValueError: the original has fewer records than ``through_seq``.
            TranscriptStoreError: as :meth:`ConversationLibrary.fork_from`.
        """
        other = into._library if isinstance(into, AsyncConversationLibrary) else into
        return await self.call(lambda library: library.fork_from(directory, through_seq=through_seq, into=other))

    rotate_key = _awaited(ConversationLibrary.rotate_key)
    """As :meth:`ConversationLibrary.rotate_key`."""

    shred = _awaited(ConversationLibrary.shred)
    """As :meth:`ConversationLibrary.shred`."""

    shred_folder = _awaited(ConversationLibrary.shred_folder)
    """As :meth:`ConversationLibrary.shred_folder`."""

    delete = _awaited(ConversationLibrary.delete)
    """As :meth:`ConversationLibrary.delete`."""

    delete_folder = _awaited(ConversationLibrary.delete_folder)
    """As :meth:`ConversationLibrary.delete_folder`."""

    prune = _awaited(ConversationLibrary.prune)
    """As :meth:`ConversationLibrary.prune`."""
