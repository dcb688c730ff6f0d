"""The members of somebody else's JSON, whatever stands there: a reader asks for a text and gets one, or nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]


def obj(value: object) -> Json:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def text(value: object) -> str | None:
    """The text, unless it is empty or none."""
    return value if isinstance(value, str) and value else None


def first_text(*values: object) -> str | None:
    """The first of them that is a text and not empty."""
    return next((value for value in values if isinstance(value, str) and value), None)


def count(value: object) -> int | None:
    """A whole number from 0; a bool is none."""
    return value if type(value) is int and value >= 0 else None


def labels(**found: object) -> dict[str, str]:
    """Those that are texts and not empty."""
    return {name: value for name, value in found.items() if isinstance(value, str) and value}


def time_of_member(value: object) -> str:
    """A time, a text or a number, spelled as a record's is, so that times can be compared as texts; empty if it is none."""
    try:
        found = datetime.fromisoformat(time_of(value) or "")
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC)
        return found.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return ""


def time_of(value: object, *, per_second: int = 1) -> str | None:
    """RFC 3339 of a time that is a number since 1970, a text as it is, and whatever else stands there as text."""
    if value is None or isinstance(value, (bool, dict, list)):
        return None
    if isinstance(value, (int, float)):
        try:
            return datetime.fromtimestamp(value / per_second, UTC).isoformat().replace("+00:00", "Z")
        except (ValueError, OverflowError, OSError):  # NaN, the year 60,000
            return str(value)
    return text(value)
