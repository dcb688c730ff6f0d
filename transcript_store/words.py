"""Words for people that more than one layer says."""

from __future__ import annotations


def many(number: int, what: str) -> str:
    """A number and what it counts: ``1 byte``, ``2,048 bytes``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
