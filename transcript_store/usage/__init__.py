"""Tokens and cost of a library by day, model, program, project and session, from the records.

.. code-block:: python

    from transcript_store import ConversationLibrary
    from transcript_store.usage import count_usage

    for total in count_usage(ConversationLibrary("chats"), by=("day", "model")).rows:
        print(total.key, total.input_tokens, total.output_tokens, total.cost_usd)

docs/usage.md describes the counting, and compares it with other programs' figures.
"""

from transcript_store.usage._prices import PriceTable, UnusablePricesError, bundled_prices, read_prices
from transcript_store.usage._totals import (
    DIMENSIONS,
    ConversationUsage,
    Dimension,
    LibraryUsage,
    UsageTotal,
    conversation_usage,
    count_usage,
)

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
