"""The token counts of a reply and what it cost, read from any provider's ``usage`` object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

# Providers have different names for the same count. At most one name of ``_INPUT`` and one of ``_OUTPUT`` is used.
# A provider does not include the counts of ``_APART_FROM_…`` in these, so they are added.
_INPUT = ("input_tokens", "prompt_tokens", "promptTokenCount", "prompt_token_count")
_APART_FROM_INPUT = (
    *("cache_creation_input_tokens", "cache_read_input_tokens"),  # Claude's
    *("toolUsePromptTokenCount", "tool_use_prompt_token_count"),  # Gemini's
)
_OUTPUT = ("output_tokens", "completion_tokens", "candidatesTokenCount", "candidates_token_count")
_APART_FROM_OUTPUT = ("thoughtsTokenCount", "thoughts_token_count")  # Gemini's
_TOTAL = ("total_tokens", "totalTokenCount", "total_token_count")


class Tokens(NamedTuple):
    """The tokens of one reply. A count that the provider does not report is None.

    ``total`` is the provider's own figure. If there is none, it is the sum of input and output.
    """

    input: int | None
    output: int | None
    total: int | None


def tokens_in(usage: Mapping[str, Any]) -> Tokens:
    """The counts in a reply's ``usage`` object. Members that are not integers, and negative ones, are ignored."""
    counts = {name: count for name, count in usage.items() if type(count) is int and count >= 0}
    taken = _sum(counts, _INPUT, _APART_FROM_INPUT)
    given = _sum(counts, _OUTPUT, _APART_FROM_OUTPUT)
    stated = next((counts[name] for name in _TOTAL if name in counts), None)
    total = (taken or 0) + (given or 0) if stated is None and (taken, given) != (None, None) else stated
    return Tokens(taken, given, total)


_CACHE_READS = (
    "cache_read_input_tokens",
    "cachedContentTokenCount",
    "cached_content_token_count",
    "prompt_cache_hit_tokens",
)
_CACHE_READ_DETAILS = ("prompt_tokens_details", "input_tokens_details")


def cache_reads_in(usage: Mapping[str, Any]) -> int:
    """How many input tokens of a reply's ``usage`` object came from the provider's cache; 0 if it does not say."""
    details = (usage.get(name) for name in _CACHE_READ_DETAILS)
    nested = [part.get("cached_tokens") for part in details if isinstance(part, Mapping)]
    counts = [*(usage.get(name) for name in _CACHE_READS), *nested]
    return next((count for count in counts if type(count) is int and count > 0), 0)


def cache_writes_in(usage: Mapping[str, Any]) -> int:
    """How many input tokens were written to the cache; 0 if it does not say."""
    count = usage.get("cache_creation_input_tokens")
    return count if type(count) is int and count > 0 else 0


def cost_in(usage: Mapping[str, Any]) -> float | None:
    """What a reply cost in US dollars, where its ``usage`` object says so: ``cost``, as of OpenRouter and pi; None elsewhere."""
    cost = usage.get("cost")
    if isinstance(cost, Mapping):
        cost = cost.get("total")
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        return None
    return float(cost) if 0 <= cost < 1e9 else None


def _sum(counts: Mapping[str, int], names: tuple[str, ...], besides: tuple[str, ...]) -> int | None:
    one_of_them = [counts[name] for name in names if name in counts][:1]
    found = one_of_them + [counts[name] for name in besides if name in counts]
    return sum(found) if found else None
