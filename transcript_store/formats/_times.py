"""Times as other programs write them → RFC 3339 text."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from transcript_store.formats._members import first_text

_MILLISECONDS_FROM = 10**11
"""As seconds this is the year 5138; as milliseconds it is 1973."""
_NANOSECONDS = 10**9
_NUMBER = re.compile(r"(?:[0-9]{10}|[0-9]{13}|[0-9]{16}|[0-9]{19})(?:\.[0-9]+)?")
"""A number since 1970 as text, of 2001 or later. Other lengths may be a date: ``20261128``, ``202611281458``, ``20261128145800``."""


def time_member(value: object, *, per_second: int = 1) -> str | None:
    """RFC 3339 for a number of units since 1970; a text unchanged; the text of a number that is not a time; else None."""
    if value is None or isinstance(value, (bool, dict, list)):
        return None
    if isinstance(value, (int, float)):
        try:
            return datetime.fromtimestamp(value / per_second, UTC).isoformat().replace("+00:00", "Z")
        except (ValueError, OverflowError, OSError):  # NaN, the year 60,000
            return str(value)
    return first_text(value)


def time_in_ms(value: object) -> str | None:
    """:func:`time_member` for milliseconds, which JavaScript writes."""
    return time_member(value, per_second=1000)


def time_in_either(value: object) -> str | None:
    """:func:`time_member` for a number, also as text, in seconds or, if it is large, in milliseconds, microseconds, nanoseconds."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value) if "." in value else int(value)
    per_second = 1
    if isinstance(value, (int, float)):
        while per_second < _NANOSECONDS and value >= _MILLISECONDS_FROM * per_second:
            per_second *= 1000
    return time_member(value, per_second=per_second)


def time_of_member(value: object) -> str:
    """The time as a record writes it (UTC, six digits), so that texts compare as times; empty if it is not a time."""
    try:
        found = datetime.fromisoformat(time_member(value) or "")
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC)
        return found.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return ""
