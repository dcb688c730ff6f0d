"""How is a time written: ours in a transcript, Go's in a snapshot, and a caller's argument? Nothing here does I/O.

Ours has always six digits of a second, and ``Z``. Go's ``time.RFC3339Nano`` has up to nine, without trailing zeros, and
keeps the offset; Python's ``datetime`` has six, so the text is stored.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EARLIEST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)T([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d+))?(?:Z|([+-])([01]\d|2[0-3]):([0-5]\d))",
    re.ASCII,
)


def format_time(microseconds: int) -> str:
    """RFC 3339 in UTC with microseconds and ``Z``, always 27 characters."""
    seconds, microseconds = divmod(microseconds, 1_000_000)
    return f"{_format_second(seconds)}.{str(microseconds).zfill(6)}Z"


@lru_cache(maxsize=2)
def _format_second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]  # strftime writes the year 33 with two digits


def is_time(text: object) -> bool:
    """True if a member is a time that :func:`parse_time` can read and :func:`format_time` can write."""
    try:
        if type(text) is str and len(text) == 27 and text[-1] == "Z" and datetime.fromisoformat(text):
            return True  # as we write it, which a listing checks for each conversation: 0.6 µs instead of 1.4 to 7
        format_time(parse_time(text))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def parse_time(text: str) -> int:
    """The inverse of :func:`format_time`; raises ``ValueError``."""
    return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND


def given_time(given: object) -> int:
    """A caller's time, RFC 3339 text or an aware ``datetime``, in microseconds since 1970; ``ValueError`` says why it
    is not a time.
    """
    if isinstance(given, datetime):
        if given.utcoffset() is None:
            raise ValueError("is a datetime without a time zone, so its moment is unknown")
        moment = given
    elif isinstance(given, str):
        try:
            moment = as_datetime(normal(given))
        except ValueError:
            raise ValueError(f"is not a time of RFC 3339, such as 2026-11-23T08:30:00Z: {given!r:.60}") from None
    else:
        raise ValueError(f"must be text of RFC 3339, an aware datetime or None, not {type(given).__name__}")
    microseconds = (moment - _EPOCH) // _MICROSECOND
    if microseconds < _EARLIEST:
        raise ValueError("is before the year 1 in UTC")
    return microseconds


def normal(text: Any) -> str:
    """A time of RFC 3339 in its normal form; raises ``ValueError`` for anything else."""
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
    seconds = (as_datetime(text).replace(microsecond=0) - _EPOCH) // timedelta(seconds=1)
    return seconds, int((match[5] or "").ljust(9, "0"))


def as_datetime(text: str) -> datetime:
    """A time in normal form as an aware ``datetime``, cut to microseconds."""
    return datetime.fromisoformat(text)
