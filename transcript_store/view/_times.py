"""Times for a person, in UTC, which is what is stored."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def clock(at: str) -> str:
    """``14:03``; empty for what is no time."""
    time = _time(at)
    return _minute(time) if time else ""


def day(at: str) -> str:
    """``Monday, 3 June 2024``."""
    time = _time(at)
    return f"{_DAYS[time.weekday()]}, {time.day} {_MONTHS[time.month - 1]} {time.year}" if time else ""


def full(at: str) -> str:
    """``3 June 2024, 14:03:22 UTC``."""
    time = _time(at)
    return f"{time.day} {_MONTHS[time.month - 1]} {time.year}, {_minute(time)}:{time.second:02} UTC" if time else at


def span(first: str, last: str) -> str:
    """From the first to the last time, each part said once."""
    begin, end = _time(first), _time(last)
    if begin is None or end is None:
        return ""
    if begin.replace(second=0, microsecond=0) == end.replace(second=0, microsecond=0):
        return f"{begin.day} {_MONTHS[begin.month - 1]} {begin.year}, {begin:%H:%M} UTC"
    if begin.date() == end.date():
        return f"{begin.day} {_MONTHS[begin.month - 1]} {begin.year}, {begin:%H:%M} – {end:%H:%M} UTC"
    return f"{begin.day} {_MONTHS[begin.month - 1]} {begin.year} – {end.day} {_MONTHS[end.month - 1]} {end.year}"


def _minute(time: datetime) -> str:
    """A message has two of these, and ``strftime`` takes five times as long."""
    return f"{time.hour:02}:{time.minute:02}"


@lru_cache(maxsize=8)
def _time(at: str) -> datetime | None:
    try:
        return datetime.fromisoformat(at)
    except (TypeError, ValueError):  # only in a file that somebody forged
        return None
