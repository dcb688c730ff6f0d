"""Sealed conversations in a search: read in memory, one after the other. Nothing of them is in the index, which is plaintext."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from transcript_store.errors import TranscriptStoreError
from transcript_store.search._answers import Hit
from transcript_store.search._database import Database
from transcript_store.search._finding import Redact, earlier_records, hit_of, passes
from transcript_store.search._matching import Match
from transcript_store.search._plan import conditions
from transcript_store.search._query import Query
from transcript_store.search._shelf import Shelf, raise_if_of_the_process
from transcript_store.words import title_in


class SealedFinder:
    """Reads the sealed conversations of a library. ``keys`` is what a store is given of them; without keys they are only counted."""

    def __init__(self, database: Database, shelf: Shelf, redact: Redact | None, keys: Mapping[str, Any]) -> None:
        self._connection = database.connection
        self._shelf = shelf
        self._redact = redact
        self._keys = keys
        self.not_opened = 0
        """How many could not be read: there is no key, it is another one, or they are damaged."""

    def found(self, query: Query, match: Match, limit: int, *, is_read: bool = False) -> list[Hit]:
        """At most so many hits, the conversation that changed last first, and in each the newest first.

        Filters for a title or for labels look at what is in sight: of a sealed conversation that is nothing.
        """
        where, values = conditions(replace(query, after=None, before=None))
        statement = (
            # Left to itself SQLite goes through all conversations in this order, for the few that are sealed.
            "SELECT c.folder FROM conversation c INDEXED BY by_sealed "
            f"WHERE c.sealed = 1 AND {where} ORDER BY c.updated_at DESC, c.n DESC"
        )
        hits: list[Hit] = []
        for (folder,) in self._connection.execute(statement, values).fetchall():
            if not self._keys:
                self.not_opened += 1
            elif len(hits) < limit and (is_read or _asks_for_something(query)):
                try:
                    hits += reversed(deque(self._hits_in(os.fsdecode(folder), query, match), maxlen=limit - len(hits)))
                except TranscriptStoreError as error:
                    raise_if_of_the_process(error)
                    self.not_opened += 1
        return hits

    def _hits_in(self, folder: str, query: Query, match: Match) -> Iterator[Hit]:
        with self._shelf.store(folder, **self._keys) as conversation:
            conversation.load()
            metadata = conversation.get_metadata()
            live = ((record, None) for record in conversation.iter_records())
            for record, generation in chain(earlier_records(conversation), live):
                if record.is_retracted or not passes(query, record):
                    continue
                title = title_in(metadata.labels)
                hit = hit_of(record, match, self._redact, title, is_earlier=generation is not None)
                if hit is not None:
                    yield replace(
                        hit,
                        conversation=metadata.id,
                        directory=conversation.directory,
                        generation=metadata.generation if generation is None else generation,
                    )


def _asks_for_something(query: Query) -> bool:
    return bool(query.groups or query.without or query.filters or query.after or query.before)
