"""Words in messages that more than one layer needs."""

from __future__ import annotations


def many(number: int, what: str) -> str:
    """A number and what it counts: ``1 byte``, ``2,048 bytes``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def place(line_number: int | None, offset_bytes: int | None) -> str:
    """Where a line of a transcript stands, in words. The first line is the header, so the second has the first record."""
    if line_number is None:
        return ""
    record = f" (record {line_number - 1})" if line_number > 1 else ""
    return f", line {line_number}{record}, byte {offset_bytes}"
