"""How is the index of a library updated, searched, listed and rebuilt?"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from threading import RLock
from typing import TYPE_CHECKING, Any, Self, TypeVar

from transcript_store.errors import ConversationNotFoundError, StorageError
from transcript_store.file_names import TRANSCRIPT, absolute_path
from transcript_store.search._answers import (
    IndexStatus,
    IndexUpdate,
    ListPage,
    Order,
    SearchResult,
    Sort,
    checked_limit,
    facets,
    listed,
    page_of,
)
from transcript_store.search._catalogue import (
    CatalogueUpdate,
    FolderIndexSource,
    index_error,
    index_source,
    note,
    update_catalogue,
)
from transcript_store.search._database import Database, cache_folder, is_busy, is_full, path_in, remove_index
from transcript_store.search._finding import Finder, Redact, SealedFinder, newest_first
from transcript_store.search._indexing import PENDING, Indexer
from transcript_store.search._query import Match, Query, functions, matcher, parse_query, with_pattern

if TYPE_CHECKING:  # a command that searches starts in two thirds of the time without what writes conversations
    from transcript_store.keys import KeyProvider
    from transcript_store.library import ConversationLibrary

UPDATE_SECONDS = 0.2
"""How long an answer may wait for the index to be brought up to date."""
_PATIENCE_SECONDS = 30.0
"""How long to wait for an index that other processes keep locked."""
_DEAD_SHARE, _DEAD_LEAST = 10, 10_000
"""An update without a limit rebuilds when a tenth of the documents, and at least this many, are forgotten."""

_T = TypeVar("_T")


class SearchIndex:
    """Finds messages in a library, and lists its conversations; use it in a ``with`` statement, or close it.

    The index is a file in a cache directory, 0600. It is derived: damaged, deleted, or written by another version, it
    is rebuilt. It takes no lock of a conversation and writes nothing into the library. Several processes may use the
    index of one library at the same time. One object may be used by several threads; one call waits for the other.

    Args:
        library: the library, or its directory. Every conversation directly under it is searched, with any folder
            name. A library on a backend has an index here too.
        cache: the directory of the file; None for ``transcript-store`` in the user's cache directory.
        encryption_key: the key of sealed conversations. The index has nothing of them: with the key a search
            reads them, one after the other, in memory.
        retired_keys: earlier keys.

    Raises:
        ConversationNotFoundError: the path does not exist, or is a conversation; name the directory that
            it is in. (A ``ConversationLibrary`` may still be empty: it creates its directory with the first
            conversation.)
    """

    def __init__(
        self,
        library: ConversationLibrary | str | os.PathLike[str],
        *,
        cache: str | os.PathLike[str] | None = None,
        encryption_key: bytes | KeyProvider | None = None,
        retired_keys: Sequence[bytes | KeyProvider] = (),
    ) -> None:
        named = absolute_path(library) if isinstance(library, (str, os.PathLike)) else library
        if isinstance(named, str) and not os.path.exists(named):
            raise ConversationNotFoundError(path=named, reason="there is no such directory")
        self._source = index_source(named)
        if isinstance(self._source, FolderIndexSource) and os.path.lexists(os.path.join(self._source.name, TRANSCRIPT)):
            reason = "this is a conversation, not a library: name its directory's parent"
            raise ConversationNotFoundError(path=self._source.name, reason=reason, hint=None)
        self._library, identity = self._source.name, self._source.identity
        self._identity = identity or ""
        self._keys: dict[str, Any] = {}
        if encryption_key is not None:
            self._keys = {"encryption_key": encryption_key, "retired_keys": retired_keys}
        folder = cache_folder() if cache is None else absolute_path(cache)
        self._path: str | None = None if identity is None else path_in(folder, identity)
        self._mutex = RLock()
        self._as_of = 0.0
        self._found_to: float | None = None
        self._is_closed = False
        self._open()

    def _open(self) -> None:
        self._database = Database(self._path, self._identity)
        functions(self._database.connection)
        self._indexer = Indexer(self._database, self._source)

    def close(self) -> None:
        """Close the index. Its file stays for the next one."""
        with self._mutex:
            if not self._is_closed:
                self._is_closed = True
                self._source.close()
                self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SearchIndex({self._library!r})"

    # ---- bringing it up to date ------------------------------------------------------------------------------------

    def update(self, *, seconds: float | None = None, refresh: bool = False) -> IndexUpdate:
        """Bring the index up to date with the library, for at most so many seconds; None for as long as it takes.

        If ``not_indexed`` is 0 afterwards, a search finds everything that was acknowledged before this call (F9), and
        nothing that was deleted, replaced or repaired away before it.

        On an object store this holds with ``refresh``, which reads the new slots of every conversation. Without it,
        the list summaries are used, and ``SearchResult.as_of`` has the time of the last refresh.

        Raises:
            StorageError: the library cannot be read, or this process can open no file more or has no memory. Nothing is
                left out for that.
        """
        with self._mutex:
            return self._surely(lambda: self._update(seconds, refresh=refresh))

    def rebuild(self) -> None:
        """Rebuild the index from scratch. Words of deleted messages are in the old file until then.

        The disk may keep the deleted file's bytes: overwrite the free space, or encrypt the disk.

        Raises:
            StorageError: the library cannot be read, or the old file cannot be removed; remove it yourself.
        """
        with self._mutex:
            self.purge()
            self.update()

    def purge(self) -> None:
        """Remove the index. The next call builds a new one.

        Raises:
            StorageError: the file cannot be removed; the message says which, and why.
        """
        with self._mutex:
            self._surely(self._start_again)

    def status(self) -> IndexStatus:
        """The contents of the index, and whether its file is intact; all of it is read."""
        with self._mutex:
            return self._surely(self._status)

    def _update(self, limit: float | None, *, with_texts: bool = True, refresh: bool = False) -> IndexUpdate:
        began = time.monotonic()
        deadline = began + (float("inf") if limit is None else limit)
        patience = began + (_PATIENCE_SECONDS if limit is None else 0)
        left = 0
        while True:
            try:
                swept = update_catalogue(self._database, self._source, deadline, refresh=refresh)
                if with_texts:
                    left = self._indexer.run(deadline, swept.lines)
                    self._note_as_of(swept, left + swept.left, refresh=refresh)
                elif swept.lines:
                    with self._database.writing():
                        note(self._database, swept.lines)
                if not swept.left:
                    self._as_of = swept.began_at
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                if limit is not None:
                    return IndexUpdate(not_indexed=max(1, self._pending()) if with_texts else 0, is_busy=True)
                if time.monotonic() > patience:
                    raise
                continue  # SQLite has waited for the other writer; its work need not be repeated
            # Only where the caller waits: a rebuild takes as long as the first build.
            if limit is None and with_texts and self._is_mostly_dead():
                self._start_again()
                continue
            not_read = tuple(self._indexer.refused) if with_texts else ()
            return IndexUpdate(not_indexed=left + swept.left, is_busy=False, not_read=not_read)

    def _note_as_of(self, swept: CatalogueUpdate, left: int, *, refresh: bool) -> None:
        """Remember the time up to which everything is found. That of a refresh is stored, for a search without one."""
        self._found_to = swept.began_at if swept.is_exact and not left else None
        if left:
            return
        if self._found_to is not None:
            if not refresh or isinstance(self._source, FolderIndexSource):
                return
            with self._database.writing() as connection:
                connection.execute("INSERT OR REPLACE INTO about VALUES ('as_of', ?)", (self._found_to,))
        else:
            found = self._database.connection.execute("SELECT value FROM about WHERE name = 'as_of'").fetchone()
            self._found_to = found[0] if found else None

    def _pending(self) -> int:
        return self._one(f"SELECT count(*) FROM conversation WHERE {PENDING}")

    def _is_mostly_dead(self) -> bool:
        dead = self._forgotten()
        return dead > _DEAD_LEAST and dead * _DEAD_SHARE > self._one("SELECT coalesce(max(n), 0) FROM document")

    def _forgotten(self) -> int:
        return self._one(
            "SELECT (SELECT coalesce(max(n), 0) FROM document) - (SELECT value FROM about WHERE name = 'messages')"
        )

    def _status(self) -> IndexStatus:
        path = self._database.path
        forgotten = self._forgotten()
        return IndexStatus(
            path=path,
            size_bytes=sum(os.path.getsize(path + end) for end in ("", "-wal") if os.path.exists(path + end))
            if path
            else 0,
            conversations=self._one("SELECT count(*) FROM conversation"),
            messages=self._one("SELECT value FROM about WHERE name = 'messages'"),
            forgotten=forgotten,
            not_indexed=self._one("SELECT count(*) FROM conversation WHERE indexed <> stamp"),
            is_intact=self._database.check(),
        )

    def _one(self, statement: str) -> int:
        return int(self._database.connection.execute(statement).fetchone()[0])

    def _surely(self, work: Callable[[], _T]) -> _T:
        """Call ``work`` on the index; after damage on a new one; if that fails too, on a private one."""
        if self._is_closed:
            raise ValueError("this index is closed")
        for attempt in range(3):
            try:
                return work()
            # A mistake in our own statement: a new index would meet it again.
            except sqlite3.ProgrammingError:
                raise
            except MemoryError as error:  # SQLite's too
                lacking = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
                raise index_error(lacking, self._library, "search it") from error
            except sqlite3.DatabaseError as error:
                if attempt == 2:
                    number = errno.ENOSPC if is_full(error) else errno.EIO
                    raise index_error(OSError(number, str(error)), self._library, "keep an index") from error
                # Locked for longer than SQLite waits, or damaged twice: the file is left to the others, and a private
                # index answers.
                if attempt or is_busy(error):
                    self._path = None
                with suppress(StorageError):
                    self._start_again()
        raise AssertionError("the third attempt returns or raises")

    def _start_again(self) -> None:
        self._database.close()
        try:
            if self._path is not None:
                remove_index(self._path)
        except OSError as error:
            self._path = None  # from here on with a private one
            raise index_error(error, str(error.filename), "remove the index") from error
        finally:
            self._open()

    # ---- searching -------------------------------------------------------------------------------------------------

    def search(
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
        """The messages that match a query: words, phrases and filters, as docs/search.md has them. Every text is a query.

        The index is updated before, for at most 200 ms. Each hit is read from its transcript, and its hash checked, so none is
        stale.

        Args:
            query: searched in texts, then in thinking, calls and results, unless ``in:`` names one; then
                on abandoned branches and in earlier generations (``Hit.beside``).
            limit: the most hits.
            sort: ``"rank"`` for the best first (of the 2,000 indexed last), ``"newest"``; None for rank,
                and for the newest if there are more than 2,000.
            regex: a Python regular expression that must match too, in the columns of the query. Without a query it is searched
                in every message.
            redact: a function that removes secrets from a message, such as a ``SecretRedactor``. Text that it
                removes is never found, and no number reveals it: ``total`` is None, ``elsewhere`` is empty.
            wait: update the index as long as it takes.
            refresh: the same, with a refresh of an object store as in :meth:`update`.

        Raises:
            ValueError: ``limit`` is not a positive int, or ``sort`` or ``regex`` is invalid.
            StorageError: the library cannot be read, or this process can open no file more or has no memory. Nothing is left out for that.
        """
        limit = checked_limit(limit)
        if sort not in (None, "rank", "newest"):
            raise ValueError(f"sort must be 'rank' or 'newest', not {sort!r}")
        asked = parse_query(query)
        try:
            pattern = None if regex is None else re.compile(regex)
        except re.error as error:
            raise ValueError(f"{regex!r:.80} is not a regular expression: {error}") from None

        def match_of(asked: Query) -> Match:
            match = matcher(asked)
            return match if pattern is None else with_pattern(match, asked, pattern)

        def work() -> SearchResult:
            self._found_to = None
            done = self._update(None if wait or refresh else UPDATE_SECONDS, refresh=refresh)
            finder = Finder(self._database, self._source, redact)
            hits, total = finder.found(asked, match_of, limit, sort, is_read=regex is not None and not asked.groups)
            sealed = SealedFinder(self._database, self._source, redact, self._keys)
            more = sealed.found(asked, match_of(asked), limit, is_read=pattern is not None)
            if more:  # they cannot be ranked: the index has no words of sealed ones
                hits, total = ((*hits, *more) if sort == "rank" else newest_first((*hits, *more)))[:limit], None
            is_counted = regex is None and redact is None
            return SearchResult(
                hits=hits, total=total if is_counted else None,
                elsewhere=finder.elsewhere(asked) if is_counted and not hits else {},
                not_indexed=done.not_indexed, is_busy=done.is_busy,
                ignored=asked.ignored, not_searched=sealed.not_opened, damaged=finder.damaged(asked), as_of=_time(self._found_to),
                not_read=tuple({one.path: one for one in (*done.not_read, *finder.refused)}.values()),
            )  # fmt: skip

        with self._mutex:
            return self._surely(work)

    # ---- listing ---------------------------------------------------------------------------------------------------

    def list(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        sort: Order = "updated",
        filter: str = "",
        wait: bool = False,
    ) -> ListPage:
        """A page of the conversations, latest change first. Every page costs the same, independent of their number.

        First each conversation's stamp is checked (``stat``), for at most 200 ms, and changed ones are read.
        ``ConversationLibrary.list()`` reads each and needs no index.

        Args:
            limit: how many.
            after: ``next`` of the page before; None for the first page.
            sort: ``"updated"``, ``"created"`` (the latest first), ``"title"``, ``"records"`` or ``"size"`` (the most first).
            filter: a query: its filters apply, and its words must be in the conversation's name (:attr:`ListPage.names`).
            wait: check all conversations, as long as that takes.

        Raises:
            ValueError: ``limit`` is not a positive int, ``sort`` is unknown, or ``after`` is not ``next`` of a page in this order.
            StorageError: the library cannot be read, or this process can open no file more or has no memory. Nothing is left out for that.
        """
        page = page_of(limit, after, sort, filter)

        def work() -> ListPage:
            done = self._update(None if wait else UPDATE_SECONDS, with_texts=False)
            found = listed(self._database, self._source, page)
            return ListPage(
                **found._asdict(), as_of=_time(self._as_of) or "", not_looked_at=done.not_indexed, ignored=page.ignored
            )

        with self._mutex:
            return self._surely(work)

    def facets(self, *, most: int = 8) -> dict[str, tuple[tuple[str, int], ...]]:
        """Filter values for a list: for ``source``, ``project`` (whole paths) and ``model`` the most frequent
        values, each with its number of conversations, as of the last list or search; nothing is read
        for it.

        Raises:
            StorageError: the index cannot be read.
        """
        with self._mutex:
            return self._surely(lambda: facets(self._database, most))


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
