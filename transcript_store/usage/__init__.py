"""Tokens and cost of a library by day, model, program, project and session, from the records.

.. code-block:: python

    from transcript_store import ConversationLibrary
    from transcript_store.usage import count_usage

    for total in count_usage(ConversationLibrary("chats"), by=("day", "model")).rows:
        print(total.key, total.input_tokens, total.output_tokens, total.cost_usd)

docs/usage.md describes the counting, and compares it with other programs' figures.

Each reply counts once, however many copies of it exist. It counts in the conversation that began first. A
sum is a cost only if every reply in it has a price.

A price is that of a million tokens of a model, from a dated table; a user's own table replaces ours. A table is JSON:
``date``, and ``models``, each with ``input`` and ``output`` in US dollars for a million tokens. ``cache_read`` and
``cache_write`` cost as much as input unless they are given, ``cache_write_1h`` as much as ``cache_write``. ``long`` has
the prices of a request with more input tokens than ``above``; other members have those of a speed or a service tier
(``fast``, ``batch``). One of these without prices says that there are others, and that the table does not have them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import orjson

from transcript_store.conversation import ConversationStore, Record, UsageRow
from transcript_store.errors import ConversationNotFoundError, TranscriptStoreError
from transcript_store.importing import conversation_id
from transcript_store.library import ConversationLibrary, ConversationSummary, iter_with_labels
from transcript_store.messages import UsageCount, tokens_in

__all__ = [
    "DIMENSIONS",
    "ConversationUsage",
    "Dimension",
    "LibraryUsage",
    "PriceTable",
    "UnusablePricesError",
    "UsageTotal",
    "bundled_prices",
    "conversation_usage",
    "count_usage",
    "read_prices",
]

_PER_TOKENS = 1_000_000
_PRICES = ("input", "output", "cache_read", "cache_write", "cache_write_1h")
_ORDINARY = (None, "standard", "default", "auto", "on_demand")
"""A speed or a service tier at the ordinary price."""
_DATED = re.compile(r"(?:\[1m\]|@[\w-]+|-v\d+(?::\d+)?|-20\d{2}-?[01]\d-?[0-3]\d)$")
"""Suffixes of a model's name that do not change its price: a large window, a cloud's version, a day."""
_CLOUD = re.compile(r"^(?:(?:us|eu|apac|jp|au|global)\.)?anthropic\.")


class UnusablePricesError(TranscriptStoreError):
    """The table of prices at ``path`` cannot be read, or is invalid (``reason``). Nothing was counted; correct the file."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices of models on a given day."""

    date: str
    """``2026-10-24``."""
    models: Mapping[str, Mapping[str, Any]]
    """In US dollars for a million tokens, by the model's name."""

    def cost(self, row: UsageRow, usage: Mapping[str, Any]) -> float | None:
        """The cost of one reply's tokens in US dollars; None if the table has no price for them.

        Args:
            row: the tokens of the reply.
            usage: the provider's ``usage`` object that they were read from: it has the cache's lifetime and the service tier.
        """
        if not (row.input_tokens or row.output_tokens):
            return 0.0
        prices = self._prices_of(row.model or "")
        for variant in (usage.get("speed"), usage.get("service_tier")):
            if prices is not None and variant not in _ORDINARY:
                prices = _variant(prices, variant)
        if prices is None:
            return None
        long = prices.get("long") or {}
        if long and (tokens_in(usage).input or 0) > long.get("above", 0):
            prices = long
        if "input" not in prices or "output" not in prices:
            return None
        cache_write = prices.get("cache_write", prices["input"])
        kinds = usage.get("cache_creation")
        hour = kinds.get("ephemeral_1h_input_tokens") if isinstance(kinds, Mapping) else None
        hour_writes = min(hour, row.cache_write_tokens) if type(hour) is int and hour > 0 else 0
        uncached = max(0, row.input_tokens - row.cache_read_tokens - row.cache_write_tokens)
        dollars = (
            uncached * prices["input"]
            + row.cache_read_tokens * prices.get("cache_read", prices["input"])
            + (row.cache_write_tokens - hour_writes) * cache_write
            + hour_writes * prices.get("cache_write_1h", cache_write)
            + row.output_tokens * prices["output"]
        )
        return float(dollars / _PER_TOKENS)

    def _prices_of(self, model: str) -> Mapping[str, Any] | None:
        """The prices of a model, by its name or without the provider before it and the day after it. Nothing is guessed: a model
        that is not in the table has no price.
        """
        name = model
        while True:
            for candidate in (name, _CLOUD.sub("", name.rpartition("/")[2]).lower()):
                for spelled in (candidate, candidate.replace(".", "-")):  # OpenRouter writes claude-opus-4.8
                    if spelled in self.models:
                        return self.models[spelled]
            shorter = _DATED.sub("", name)
            if shorter == name:
                return None
            name = shorter


def _variant(prices: Mapping[str, Any], name: object) -> Mapping[str, Any] | None:
    found = prices.get(name) if isinstance(name, str) and name != "long" else None
    return found if isinstance(found, Mapping) else None


@cache
def bundled_prices() -> PriceTable:
    """The bundled table. Models that are not in it have no price."""
    data = files("transcript_store.usage").joinpath("prices.json").read_bytes()
    return _table("prices.json", data)


def read_prices(path: str | os.PathLike[str]) -> PriceTable:
    """A user's own table.

    Raises:
        UnusablePricesError: it cannot be read, or is not a table of prices.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise UnusablePricesError(path=os.fspath(path), reason=f"cannot be read: {error.strerror}") from error
    return _table(os.fspath(path), data)


def _table(path: str, data: bytes) -> PriceTable:
    try:
        table = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise UnusablePricesError(path=path, reason=f"is not JSON: {error}") from None
    if not isinstance(table, dict) or not isinstance(table.get("models"), dict):
        raise UnusablePricesError(
            path=path, reason='is not a table of prices: expected {"date": …, "models": {NAME: {…}}}'
        )
    if not isinstance(date := table.get("date"), str):
        raise UnusablePricesError(path=path, reason="has no date: give the day of these prices, as in 2026-10-24")
    for name, prices in table["models"].items():
        if (wrong := _wrong(prices)) is not None:
            raise UnusablePricesError(path=path, reason=f"{name}: {wrong}")
    return PriceTable(date, table["models"])


def _wrong(prices: object) -> str | None:
    """The error in a model's prices; None without one."""
    if not isinstance(prices, dict):
        return "the prices of a model are an object with `input` and `output`"
    for name, price in prices.items():
        if name in (*_PRICES, "above"):
            if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < 1e9:
                return f"`{name}` must be a number from 0, not {price!r:.40}"
        elif isinstance(price, dict) and (wrong := _wrong(price)) is not None:
            return f"{name}: {wrong}"
    return None


Dimension = Literal["day", "model", "program", "project", "session"]
DIMENSIONS: tuple[Dimension, ...] = ("day", "model", "program", "project", "session")
"""The dimensions of sums."""


@dataclass(slots=True, kw_only=True)
class UsageTotal:
    """The tokens of the replies that have one key, such as a day. What a provider did not report counts as 0."""

    key: tuple[str | None, ...]
    """A value for each dimension that was asked for: a day in UTC, a model, a program, the folder of a project, the id of a conversation.
    None where nothing is on record."""
    replies: int = 0
    input_tokens: int = 0
    """All of the input, with the tokens read from a cache and written to one."""
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    """With thinking."""
    known_cost_usd: float = 0.0
    """The cost of the replies with a known price, in US dollars."""
    unpriced: frozenset[str] = frozenset()
    """The models of the replies that have no price; ``?`` of one without a name."""

    @property
    def uncached_input_tokens(self) -> int:
        """The input that was neither read from a cache nor written to one."""
        return max(0, self.input_tokens - self.cache_read_tokens - self.cache_write_tokens)

    @property
    def total_tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    @property
    def cost_usd(self) -> float | None:
        """The cost of all replies, in US dollars; None if one of them has no price."""
        return None if self.unpriced else self.known_cost_usd

    def add(self, row: UsageRow, cost: float | None) -> None:
        """Add the tokens of a reply, and its cost if that is known."""
        self.replies += row.replies
        self.input_tokens += row.input_tokens
        self.cache_read_tokens += row.cache_read_tokens
        self.cache_write_tokens += row.cache_write_tokens
        self.output_tokens += row.output_tokens
        if cost is None:
            self.unpriced |= {row.model or "?"}
        else:
            self.known_cost_usd += cost


class LibraryUsage(NamedTuple):
    """The tokens of a library."""

    rows: tuple[UsageTotal, ...]
    """One for each key, in the order of the keys."""
    total: UsageTotal
    titles: Mapping[str, str]
    """The titles of sessions that have one, by the id of the conversation."""
    skipped: tuple[str, ...]
    """A sentence for each conversation that could not be read and is not counted."""


def count_usage(
    library: ConversationLibrary,
    *,
    by: Sequence[Dimension] = ("day",),
    prices: PriceTable | None = None,
    is_asked_for: Callable[[ConversationSummary], bool] | None = None,
    since: str | None = None,
    until: str | None = None,
    subagents_alone: bool = False,
) -> LibraryUsage:
    """The tokens on record in a library, and what they cost. Every conversation is read.

    Args:
        library: a library.
        by: what to sum by, in this order.
        prices: the prices; those of this version if None. A reply that states its cost needs none.
        is_asked_for: leaves out conversations of which it returns false. A reply that one of the others has too counts there.
        since: leave out replies before this day (``2026-11-27``, UTC).
        until: leave out replies after this day.
        subagents_alone: count the session of a sub-agent for itself, and not with the one that began it.

    Raises:
        ValueError: ``by`` names something else, or something twice.
        StorageError: the library cannot be listed.
    """
    if set(by) - set(DIMENSIONS) or len(set(by)) != len(by):
        raise ValueError(f"by must name some of {', '.join(DIMENSIONS)}, each once, not {', '.join(by)!r}")
    prices = bundled_prices() if prices is None else prices
    summaries = {one.id: one for one in iter_with_labels(library) if one.id is not None}
    known = {} if subagents_alone else _parents(summaries.values())
    count = UsageCount()
    totals: dict[tuple[str | None, ...], UsageTotal] = {}
    everything = UsageTotal(key=())
    # In order of creation: of a reply that a fork repeats, the original is counted. A fork that took all along began as early.
    for summary in sorted(summaries.values(), key=_when_it_began):
        if is_asked_for is not None and not is_asked_for(summary):
            continue
        session = _root(summary.id or "", known)
        labels = summary.labels or {}
        facts = {"program": labels.get("source"), "project": labels.get("cwd"), "session": session}
        for row, cost in _rows(library, summary, count, prices):
            day = row.day or ""
            if (since is not None and day < since) or (until is not None and day > until):
                continue
            key = tuple(facts[name] if name in facts else getattr(row, name) for name in by)
            totals.setdefault(key, UsageTotal(key=key)).add(row, cost)
            everything.add(row, cost)
    rows = sorted(totals.values(), key=lambda total: [value or "" for value in total.key])
    titles = {one.id: one.title for one in summaries.values() if one.id is not None and one.title}
    return LibraryUsage(tuple(rows), everything, titles, tuple(count.skipped))


class ConversationUsage:
    """The tokens of one conversation, and what they cost; the key of ``total`` is empty. More records may be added as they come.

    Args:
        prices: the prices; those that this version came with if None.
    """

    def __init__(self, *, prices: PriceTable | None = None) -> None:
        self.total = UsageTotal(key=())
        self._prices = bundled_prices() if prices is None else prices
        self._count = UsageCount()

    def add_conversation(self, conversation: ConversationStore) -> None:
        """Add all that is on record in a loaded conversation and its earlier generations, each reply once.

        Raises:
            TranscriptStoreError: as :meth:`ConversationStore.usage`.
        """
        self._add(self._count.new_rows(conversation))

    def add_records(self, records: Iterable[Record], model: str | None) -> None:
        """Add the replies among some records. ``model`` is the conversation's, for replies that name none."""
        self._add(self._count.rows_in(records, model))

    def _add(self, rows: Iterable[tuple[UsageRow, dict[str, Any]]]) -> None:
        for row, usage in rows:
            if _is_charged(row):
                self.total.add(row, _cost(row, usage, self._prices))


def conversation_usage(conversation: ConversationStore, *, prices: PriceTable | None = None) -> UsageTotal:
    """The tokens on record in one conversation and its earlier generations, and what they cost; the key is empty.

    Raises:
        TranscriptStoreError: as :meth:`ConversationStore.usage`.
    """
    found = ConversationUsage(prices=prices)
    found.add_conversation(conversation)
    return found.total


def _is_charged(row: UsageRow) -> bool:
    """A program's own words cost nothing."""
    return bool(row.input_tokens or row.output_tokens or row.cost_usd)


def _rows(
    library: ConversationLibrary, summary: ConversationSummary, count: UsageCount, prices: PriceTable
) -> Iterator[tuple[UsageRow, float | None]]:
    try:
        with library.open(summary.id or "", read_only=True, verify="tail") as conversation:
            for row, usage in count.new_rows(conversation):
                if _is_charged(row):
                    yield row, _cost(row, usage, prices)
    except ConversationNotFoundError:
        return  # it was deleted since
    except TranscriptStoreError as error:
        count.skipped.append(error.problem)


def _when_it_began(one: ConversationSummary) -> tuple[str, bool, str]:
    return one.created_at or "", "forked_from" in (one.labels or {}), one.id or ""


def _cost(row: UsageRow, usage: Mapping[str, Any], prices: PriceTable) -> float | None:
    return row.cost_usd if row.cost_usd is not None else prices.cost(row, usage)


def _parents(summaries: Iterable[ConversationSummary]) -> dict[str, str]:
    """For each sub-agent's session, the conversation of its parent session, in the library or not."""
    found = {}
    for one in summaries:
        labels = one.labels or {}
        if one.id is not None and (whole := labels.get("part_of")) and (program := labels.get("source")):
            found[one.id] = conversation_id(program, whole)
    return found


def _root(session: str, parents: Mapping[str, str]) -> str:
    """The session at the top. A label is data: what names itself in a circle stays what it is."""
    seen = {session}
    at = session
    while (above := parents.get(at)) is not None:
        if above in seen:
            return session
        seen.add(above)
        at = above
    return at
