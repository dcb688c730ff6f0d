"""Times as Go's ``time.RFC3339Nano`` writes them: up to nine digits of a second, without trailing zeros, offset kept.

Python's ``datetime`` has six digits, so the text is what is kept. Nothing here does I/O.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Any

_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)T([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d+))?(?:Z|([+-])([01]\d|2[0-3]):([0-5]\d))",
    re.ASCII,
)


def normal(text: Any) -> str:
    """A time of RFC 3339 in the one form that it is written in; raises ``ValueError`` for anything else."""
    match = _TIME.fullmatch(text) if type(text) is str else None
    if match is None:
        raise ValueError("not a time")
    day, hour, minute, second, fraction, sign, off_hours, off_minutes = match.groups()
    date.fromisoformat(day)
    fraction = (fraction or "")[:9].rstrip("0")
    offset = f"{sign}{off_hours}:{off_minutes}" if sign and (off_hours, off_minutes) != ("00", "00") else "Z"
    return f"{day}T{hour}:{minute}:{second}{'.' if fraction else ''}{fraction}{offset}"


def instant(text: str) -> tuple[int, int]:
    """A time in normal form as seconds and nanoseconds, to compare with another."""
    match = _TIME.fullmatch(text)
    assert match is not None
    day, hour, minute, second, fraction, sign, off_hours, off_minutes = match.groups()
    seconds = date.fromisoformat(day).toordinal() * 86_400 + int(hour) * 3600 + int(minute) * 60 + int(second)
    offset = (int(off_hours) * 60 + int(off_minutes)) * 60 if sign else 0
    return seconds - (-offset if sign == "-" else offset), int((fraction or "").ljust(9, "0"))


def as_datetime(text: str) -> datetime:
    """A time in normal form as an aware ``datetime``, cut to microseconds."""
    match = _TIME.fullmatch(text)
    assert match is not None
    offset = text[match.end(5) if match[5] else 19 :]
    return datetime.fromisoformat(f"{text[:19]}.{(match[5] or '')[:6].ljust(6, '0')}{offset}")
