"""What does an index answer: hits, pages of a listing, and how current they are?"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from transcript_store.display import title_in
from transcript_store.search._catalogue import FACTS, IndexSource
from transcript_store.search._database import Database
from transcript_store.search._query import EVERY, Query, Span, all_conditions, conditions, parse_query
from transcript_store.search._tokens import COLUMNS
from transcript_store.transcripts import ConversationSummary

if TYPE_CHECKING:
    from transcript_store.errors import StorageError
    from transcript_store.library import ConversationSummary


Sort = Literal["rank", "newest"]
Order = Literal["updated", "created", "title", "records", "size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A message that matches. It was read and its hash checked when the answer was made."""

    conversation: str
    """The conversation's id."""
    directory: str
    title: str | None
    """The conversation's name: its title, or its first prompt, or its program and start."""
    generation: int
    """The number of the live one, or of an earlier one."""
    beside: Literal["left-branch", "earlier-generation"] | None
    """None for a live message. Else why it is not: it is on an abandoned branch, or a compaction removed it. Such hits
    come after the others.
    """
    seq: int
    at: str
    """The time of the message: RFC 3339 in UTC."""
    role: str
    where: str
    """The part of the message that matches: ``text``, ``thinking``, ``call``, ``result``, or ``scaffolding``, which a
    program wrote in the user's name.
    """
    excerpt: str
    """A part of it on one line. Another program wrote it: it may contain anything."""
    highlights: tuple[Span, ...]
    """The matching spans of the excerpt: ``excerpt[start:end]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The hits of a search, the best or the newest first; iterate over it."""

    hits: tuple[Hit, ...]
    total: int | None
    """How many messages match according to the index; at most one more than 2,000, or than the limit if
    that is more. None if only reading them could tell."""
    elsewhere: dict[str, int]
    """If there is no hit: in which other columns there are some, and how many."""
    not_indexed: int
    """How many conversations may have more hits, because the time to update the index ran out. 0: all were searched."""
    is_busy: bool
    """True if another process is updating the index, so that this one did not."""
    ignored: tuple[str, ...]
    """Ignored parts of the query: words without a letter, invalid dates."""
    as_of: str | None = None
    """Everything that was acknowledged before then is found: RFC 3339 in UTC. None if unknown: something is left to
    index, or on an object store nothing was refreshed yet.
    """
    not_searched: int = 0
    """How many sealed conversations were not searched: no key was given, or none of them opens it, or it is damaged."""
    damaged: tuple[str, ...] = ()
    """The directories of damaged conversations: nothing after the damage is found. ``verify`` shows more."""
    not_read: tuple[StorageError, ...] = ()
    """An error for each conversation that the system refused to read, with its ``path`` and a hint."""

    @property
    def is_complete(self) -> bool:
        """True if every conversation was searched to its end."""
        return not (self.not_indexed or self.not_searched or self.damaged or self.not_read)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage:
    """A page of a list; iterate over it."""

    summaries: tuple[ConversationSummary, ...]
    names: tuple[str, ...]
    """The name of each: its title, or its first prompt, or its program and start. The first two are untrusted."""
    total: int
    """How many conversations pass the filter, on all pages."""
    next: str | None
    """The value to pass as ``after`` for the next page; None on the last one."""
    as_of: str
    """The library's state at this time or later: RFC 3339 in UTC. On an object store, that of the list summaries."""
    not_looked_at: int
    """How many folders were not checked, because the time ran out."""
    ignored: tuple[str, ...]
    """Ignored parts of the filter, as :attr:`SearchResult.ignored`; also ``in:`` and ``role:``, which select messages, and filters
    without a value."""

    def __iter__(self) -> Iterator[ConversationSummary]:
        return iter(self.summaries)

    def __len__(self) -> int:
        return len(self.summaries)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStatus:
    """The contents of an index, without an update."""

    path: str | None
    """Its file; None if none can be kept (locked, or a read-only directory): then the index lives as long as the object."""
    size_bytes: int
    conversations: int
    messages: int
    forgotten: int
    """Replaced or deleted messages. The file has their words until it is rebuilt."""
    not_indexed: int
    is_intact: bool
    """True if the whole file was read and is intact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexUpdate:
    """The work that an update left."""

    not_indexed: int
    is_busy: bool
    """True if another process is updating the index, so that this one stopped."""
    not_read: tuple[StorageError, ...] = ()
    """As :attr:`SearchResult.not_read`. It is tried again with each update; ``not_indexed`` does not count it."""


# ---- listing ----
#
# Pages of a list, from the catalogue: each costs the same, however many conversations there are.

ORDERS: dict[Order, tuple[str, bool]] = {
    "updated": ("updated_at", True),
    "created": ("created_at", True),
    "title": ("title COLLATE NOCASE", False),
    "records": ("record_count", True),
    "size": ("size_bytes", True),
}
"""The column of each order, and True for a descending one."""
_NAME = 3 + list(FACTS).index("title")
_ASKED = 500
"""Every SQLite takes at least this many values in a statement."""
_MOST = 2**31
"""More than there can be: SQLite and slices do not take larger numbers."""


class Page(NamedTuple):
    """The request for a page. ``place`` is the end of the page before: the value of its last conversation, and its number."""

    limit: int
    order: Order
    place: tuple[str | int, int] | None
    where: str
    values: list[Any]
    ignored: tuple[str, ...]

    @property
    def is_narrowed(self) -> bool:
        """True if it is a page of some conversations, not of all."""
        return self.where != EVERY


class PageRows(NamedTuple):
    """The rows of a page, the total, and the value for the next page."""

    summaries: tuple[ConversationSummary, ...]
    names: tuple[str, ...]
    total: int
    next: str | None


def checked_limit(limit: int) -> int:
    """The limit for a statement; raises ``ValueError`` if it is not an int from 1.

    SQLite would report another type as damage, and the index would be rebuilt.
    """
    if not isinstance(limit, int) or limit < 1:
        raise ValueError(f"limit must be an int from 1, not {limit!r}")
    return min(limit, _MOST)


def page_of(limit: int, after: str | None, order: Order, filter: str) -> Page:
    """The request for a page; raises ``ValueError`` for invalid arguments."""
    limit = checked_limit(limit)
    if order not in ORDERS:
        raise ValueError(f"sort must be one of {', '.join(ORDERS)}, not {order!r}")
    filters, values = conditions(query := parse_query(filter))
    where = [filters]
    for group in query.groups:
        where.append(all_conditions(["has_text(c.title, ?)"] * len(group), "OR"))
        values += (" ".join(term.tokens) for term in group)
    for term in query.without:
        where.append("NOT has_text(c.title, ?)")
        values.append(" ".join(term.tokens))
    ignored = query.ignored + tuple(_without_effect(query))
    return Page(limit, order, _place(after, order), all_conditions(where), values, ignored)


def _without_effect(query: Query) -> Iterator[str]:
    """The parts of a query that select no conversations: those that select messages, and filters without a value."""
    if query.is_limited:
        refused = [name for name in COLUMNS if name not in query.columns]
        if 0 < len(refused) < len(query.columns):
            yield from (f"-in:{name}" for name in refused)
        else:
            yield from (f"in:{name}" for name in query.columns) if refused else ("in:all",)
    for one in query.filters:
        if one.name == "role" or not one.value.strip():
            yield f"{'-' * one.is_not}{one.name}:{one.value}"


def listed(database: Database, source: IndexSource, page: Page) -> PageRows:
    """The page, from the catalogue."""
    column, is_falling = ORDERS[page.order]
    compare, way = ("<", "DESC") if is_falling else (">", "ASC")
    behind = "" if page.place is None else f"({column}, n) {compare} (?, ?) AND"
    execute = database.connection.execute
    count = f"SELECT count(*) FROM conversation c WHERE {page.where}"
    if not page.is_narrowed:
        count = "SELECT value FROM about WHERE name = 'conversations'"
    total = int(execute(count, page.values).fetchone()[0])
    statement = (
        f"SELECT n, {column.partition(' ')[0]}, folder, {', '.join(FACTS)} FROM conversation c "
        f"WHERE {behind} {page.where} ORDER BY {column} {way}, n {way} LIMIT ?"
    )
    rows = execute(statement, [*(page.place or ()), *page.values, page.limit + 1]).fetchall()
    more = None
    if len(rows) > page.limit:
        n, value = rows[page.limit - 1][:2]
        more = json.dumps([page.order, value, n])
    shown = rows[: page.limit]
    names = tuple(row[_NAME] or "" for row in shown)
    labels = _labels(database, [n for n, *_ in shown])
    return PageRows(tuple(_summary(source, labels[n], *facts) for n, _, *facts in shown), names, total, more)


_FACETS = {
    "source": "SELECT value, count(*) FROM label WHERE name = 'source' GROUP BY value",
    "project": "SELECT value, count(*) FROM label WHERE name = 'cwd' GROUP BY value",
    "model": "SELECT model, count(*) FROM conversation WHERE model <> '' GROUP BY model",
}


def facets(database: Database, most: int) -> dict[str, tuple[tuple[str, int], ...]]:
    """For each common filter, its values with the number of conversations, the most frequent first."""
    return {
        name: tuple(database.connection.execute(f"{asked} ORDER BY count(*) DESC, 1 LIMIT ?", (most,)))
        for name, asked in _FACETS.items()
    }


def _labels(database: Database, conversations: list[int]) -> dict[int, dict[str, str]]:
    """The labels of these conversations, in one query."""
    found: dict[int, dict[str, str]] = {n: {} for n in conversations}
    for at in range(0, len(conversations), _ASKED):
        some = conversations[at : at + _ASKED]
        places = ", ".join("?" * len(some))
        asked = f"SELECT n, name, value FROM label WHERE n IN ({places}) ORDER BY n, name"
        for n, name, value in database.connection.execute(asked, some):
            found[n][name] = value
    return found


def _summary(source: IndexSource, labels: dict[str, str], folder: bytes, *facts: Any) -> ConversationSummary:
    known: dict[str, Any] = {
        name: None if fact == absent else fact for (name, absent), fact in zip(FACTS.items(), facts, strict=True)
    }
    known |= {"title": title_in(labels), "torn_bytes": known["torn_bytes"] or 0, "sealed": bool(known["sealed"])}
    shown = None if known["sealed"] else labels
    return ConversationSummary(directory=source.path(os.fsdecode(folder)), labels=shown, **known)


def _place(after: str | None, order: Order) -> tuple[str | int, int] | None:
    """Where a page ended."""
    if after is None:
        return None
    try:
        its_order, value, n = json.loads(after)
    except (ValueError, TypeError):
        its_order, value, n = None, None, None
    if its_order != order or not isinstance(value, str | int) or not isinstance(n, int) or not _fit(value, n):
        raise ValueError(f"after must be `next` of a page in the order {order!r}, not {after!r:.80}")
    return value, n


def _fit(*values: str | int) -> bool:
    """True if SQLite takes these numbers."""
    return all(isinstance(value, str) or -(2**63) <= value < 2**63 for value in values)
