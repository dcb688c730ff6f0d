"""The price of a million tokens of a model, from a dated table. A user's own table replaces ours.

A table is JSON: ``date``, and ``models``, each with ``input`` and ``output`` in US dollars for a million tokens. ``cache_read`` and
``cache_write`` cost as much as input unless they are given, ``cache_write_1h`` as much as ``cache_write``. ``long`` has the prices of a
request with more input tokens than ``above``; other members have those of a speed or a service tier (``fast``, ``batch``). One of these
without prices says that there are others, and that the table does not have them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from transcript_store.conversation import UsageRow
from transcript_store.errors import TranscriptStoreError
from transcript_store.messages import tokens_in

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
