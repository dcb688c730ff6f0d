"""Pages of a list, from the catalogue: each costs the same, however many conversations there are."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from transcript_store.search._answers import Order
from transcript_store.search._catalogue import FACTS
from transcript_store.search._database import Database
from transcript_store.search._plan import EVERY, conditions, joined
from transcript_store.search._query import parse
from transcript_store.search._shelf import Shelf
from transcript_store.words import title_in

if TYPE_CHECKING:
    from transcript_store.library import ConversationSummary

ORDERS: dict[Order, tuple[str, bool]] = {
    "updated": ("updated_at", True),
    "created": ("created_at", True),
    "title": ("title COLLATE NOCASE", False),
    "records": ("record_count", True),
    "size": ("size_bytes", True),
}
"""The column of each order, and whether it falls."""
_NAME = 3 + list(FACTS).index("title")
_ASKED = 500
"""Every SQLite takes so many values in a statement."""
_MOST = 2**31
"""More than there can be. SQLite and slices take no number of any length."""


class Page(NamedTuple):
    """What is asked for. ``place`` is where the page before ended: the value of its last conversation, and its number."""

    limit: int
    order: Order
    place: tuple[str | int, int] | None
    where: str
    values: list[Any]
    ignored: tuple[str, ...]

    @property
    def is_narrowed(self) -> bool:
        """Whether it is a page of some conversations, and not of all."""
        return self.where != EVERY


class Listed(NamedTuple):
    """What a page holds, of how many, and what to give for the next one."""

    summaries: tuple[ConversationSummary, ...]
    names: tuple[str, ...]
    total: int
    next: str | None


def checked_limit(limit: int) -> int:
    """How many are wanted, as a statement takes it; raises ``ValueError`` if it is no such number.

    SQLite would refuse another type in words of damage, for which the index is built anew.
    """
    if not isinstance(limit, int) or limit < 1:
        raise ValueError(f"limit must be an int from 1, not {limit!r}")
    return min(limit, _MOST)


def page_of(limit: int, after: str | None, order: Order, filter: str) -> Page:
    """The page that is asked for; raises ``ValueError`` if that makes no sense."""
    limit = checked_limit(limit)
    if order not in ORDERS:
        raise ValueError(f"sort must be one of {', '.join(ORDERS)}, not {order!r}")
    filters, values = conditions(query := parse(filter))
    where = [filters]
    for group in query.groups:
        where.append(joined(["has_text(c.title, ?)"] * len(group), "OR"))
        values += (" ".join(term.tokens) for term in group)
    for term in query.without:
        where.append("NOT has_text(c.title, ?)")
        values.append(" ".join(term.tokens))
    return Page(limit, order, _place(after, order), joined(where), values, query.ignored)


def listed(database: Database, shelf: Shelf, page: Page) -> Listed:
    """The page as the catalogue has it."""
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
    return Listed(tuple(_summary(shelf, labels[n], *facts) for n, _, *facts in shown), names, total, more)


_FACETS = {
    "source": "SELECT value, count(*) FROM label WHERE name = 'source' GROUP BY value",
    "project": "SELECT value, count(*) FROM label WHERE name = 'cwd' GROUP BY value",
    "model": "SELECT model, count(*) FROM conversation WHERE model <> '' GROUP BY model",
}


def facets(database: Database, most: int) -> dict[str, tuple[tuple[str, int], ...]]:
    """For each filter that a list is narrowed by most, its values with how many conversations have them, the most frequent first."""
    return {
        name: tuple(database.connection.execute(f"{asked} ORDER BY count(*) DESC, 1 LIMIT ?", (most,)))
        for name, asked in _FACETS.items()
    }


def _labels(database: Database, conversations: list[int]) -> dict[int, dict[str, str]]:
    """The labels of these conversations, asked for together."""
    found: dict[int, dict[str, str]] = {n: {} for n in conversations}
    for at in range(0, len(conversations), _ASKED):
        some = conversations[at : at + _ASKED]
        places = ", ".join("?" * len(some))
        asked = f"SELECT n, name, value FROM label WHERE n IN ({places}) ORDER BY n, name"
        for n, name, value in database.connection.execute(asked, some):
            found[n][name] = value
    return found


def _summary(shelf: Shelf, labels: dict[str, str], folder: bytes, *facts: Any) -> ConversationSummary:
    from transcript_store.library import ConversationSummary  # which whoever searches does not need

    known: dict[str, Any] = {
        name: None if fact == absent else fact for (name, absent), fact in zip(FACTS.items(), facts, strict=True)
    }
    known |= {"title": title_in(labels), "torn_bytes": known["torn_bytes"] or 0, "sealed": bool(known["sealed"])}
    shown = None if known["sealed"] else labels
    return ConversationSummary(directory=shelf.path(os.fsdecode(folder)), labels=shown, **known)


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
    """Whether SQLite takes these numbers."""
    return all(isinstance(value, str) or -(2**63) <= value < 2**63 for value in values)
