"""How a value reads on a page: JSON, times and how long something took."""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from typing import Any

_MOST_INDENTED = 20
"""JSON may be so many times as long when it is indented: a list within two hundred lists would be four hundred times as long."""
_LEAST_BOUND = 20_000
"""In characters. What is shorter than this is indented however deep it nests."""


def indented(value: Any) -> str:
    """A value as JSON, indented where that does not make a page of a line."""
    plain = json.dumps(value, ensure_ascii=False)
    left = max(_MOST_INDENTED * len(plain), _LEAST_BOUND)
    pieces: list[str] = []
    for piece in json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(value):
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            return plain
    return "".join(pieces)


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
