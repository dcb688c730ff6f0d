"""The tokens that are on record, by day and model. A reply that several records, generations or conversations hold counts once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from transcript_store._json.usage import cache_reads_in, cache_writes_in, cost_in, tokens_in
from transcript_store._log.record import Record

if TYPE_CHECKING:
    from transcript_store._conversation.reads import Reads


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """The tokens of some replies. What a provider did not report counts as 0."""

    day: str | None
    """``2026-11-27``, in UTC; None for all days."""
    model: str | None
    """As the reply names it, else the conversation's; None if neither does, or for all models."""
    replies: int = 0
    """How many replies have a usage on record."""
    input_tokens: int = 0
    """All of the input, with what came from a cache and what was written to one."""
    cache_read_tokens: int = 0
    """How many of them came from the provider's cache."""
    cache_write_tokens: int = 0
    """How many of them were written to the cache, where the provider says so (Claude)."""
    output_tokens: int = 0
    """With thinking."""
    cost_usd: float | None = None
    """What the replies that say so cost, in US dollars; None if none does."""

    def __add__(self, other: UsageRow) -> UsageRow:
        costs = [row.cost_usd for row in (self, other) if row.cost_usd is not None]
        return UsageRow(
            day=self.day,
            model=self.model,
            replies=self.replies + other.replies,
            input_tokens=self.input_tokens + other.input_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=sum(costs) if costs else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """The tokens that are on record: of a conversation with its earlier generations, or of a library."""

    rows: tuple[UsageRow, ...]
    """One for each day and model, in this order."""
    skipped: tuple[str, ...] = ()
    """What could not be read and is not counted, a sentence each: damaged generations or conversations, or sealed ones without the key."""

    @property
    def total(self) -> UsageRow:
        """All rows as one, without a day and a model."""
        return sum(self.rows, UsageRow(day=None, model=None))


class UsageCount:
    """Counts replies, each once."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], UsageRow] = {}
        self._seen: set[object] = set()
        self.skipped: list[str] = []

    def add_conversation(self, conversation: Reads) -> None:
        """Count the replies of all generations; raises what reading raises. Called again, it counts what came since."""
        model = conversation.get_metadata().model
        for generation in conversation.generations():
            if generation.damage is not None:
                self.skipped.append(f"{conversation.id}, generation {generation.number}: {generation.damage}")
            else:  # by its number: if it is replaced meanwhile, it is read in the archive
                self.add(conversation.iter_records(generation=generation.number), model)

    def add(self, records: Iterable[Record], model: str | None) -> None:
        """Count the replies among records. ``model`` is the conversation's, for replies that name none."""
        alike: Counter[object] = Counter()
        for record in records:
            about = _about(record)
            usage = about.get("usage")
            if type(usage) is not dict:
                continue
            # A reply of several records has an id. A copy of a record keeps its time: in a fork, and in a generation that keeps records;
            # but two replies of one generation may have the same time and the same usage, where the times are those of an import.
            reply = about.get("response_id")
            if type(reply) is not str:
                same = (record.at, orjson.dumps(usage))
                alike[same] += 1
                reply = (same, alike[same])
            if reply in self._seen:
                continue
            self._seen.add(reply)
            named = about.get("model")
            row = _row(record.at[:10], named if type(named) is str else model, usage)
            key = (row.day or "", row.model or "")
            self._rows[key] = self._rows[key] + row if key in self._rows else row

    def result(self) -> TokenUsage:
        """What was counted so far."""
        return TokenUsage(rows=tuple(row for _, row in sorted(self._rows.items())), skipped=tuple(self.skipped))


def _about(record: Record) -> dict[str, Any]:
    """As a client notes it beside the message; frameworks store it in the message."""
    extra, message = record.extra or {}, record.message or {}
    if "usage" in extra:
        return extra
    return {"model": message.get("model") or message.get("model_name"), "usage": message.get("usage")}


def _row(day: str, model: str | None, usage: dict[str, Any]) -> UsageRow:
    tokens = tokens_in(usage)
    return UsageRow(
        day=day,
        model=model,
        replies=1,
        input_tokens=tokens.input or 0,
        cache_read_tokens=cache_reads_in(usage),
        cache_write_tokens=cache_writes_in(usage),
        output_tokens=tokens.output or 0,
        cost_usd=cost_in(usage),
    )
