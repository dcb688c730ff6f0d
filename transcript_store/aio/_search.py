"""The index of a library, for tasks: ``AsyncSearchIndex``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from transcript_store.aio._worker import Worker
from transcript_store.library import ConversationLibrary

if TYPE_CHECKING:
    from transcript_store.keys import KeyProvider
    from transcript_store.search import Answer, Listing, SearchIndex, Status, Update

T = TypeVar("T")


class AsyncSearchIndex:
    """Finds messages in a library, for tasks of asyncio or trio: :class:`transcript_store.search.SearchIndex`, awaited.

    Use it in an ``async with`` statement, or close it. Each call has the arguments, the result and the errors of the call of that name
    there, and is made in a thread of the index's own, in the order in which the calls are made. The index is opened by the first call.
    A call that has begun is made to its end, also if its caller is cancelled, and then the cancellation is raised.

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

    async def search(self, query: str = "", **options: Any) -> Answer:
        """As ``SearchIndex.search``, with its options: ``limit``, ``sort``, ``regex``, ``redact``, ``wait``, ``refresh``.

        Raises:
            ValueError: as there.
            TypeError: there is no such option.
            StorageError: as there.
        """
        return await self.call(lambda index: index.search(query, **options))

    async def list(self, **options: Any) -> Listing:
        """As ``SearchIndex.list``, with its options: ``limit``, ``after``, ``sort``, ``filter``, ``wait``.

        Raises:
            ValueError: as there.
            TypeError: there is no such option.
            StorageError: as there.
        """
        return await self.call(lambda index: index.list(**options))

    async def update(self, *, seconds: float | None = None, refresh: bool = False) -> Update:
        """As ``SearchIndex.update``: bring the index up to date, for so many seconds, or as long as it takes.

        Raises:
            StorageError: as there.
        """
        return await self.call(lambda index: index.update(seconds=seconds, refresh=refresh))

    async def status(self) -> Status:
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
