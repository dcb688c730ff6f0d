"""Times as other programs write them → RFC 3339 text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from transcript_store.formats._members import first_text

_MILLISECONDS_FROM = 10**11
"""As seconds this is the year 5138; as milliseconds it is 1973."""
_NANOSECONDS = 10**9
_NUMBER = re.compile(r"(?:[0-9]{10}|[0-9]{13}|[0-9]{16}|[0-9]{19})(?:\.[0-9]+)?")
"""A number since 1970 as text, of 2001 or later. Other lengths may be a date: ``20261128``, ``202611281458``, ``20261128145800``."""
_LONGEST = 100
_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?"
_ZONE = r"(?P<zone>Z|[A-Za-z]{3,5}|(?:UTC|GMT)?[+-]\d\d:?\d\d)?(?: [A-Z]{3,5}| \(.*\))?(?: m=[+-][\d.]+)?"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = r"(?P<month>[A-Za-z]{3})[a-z]{0,6}\.?"
_OTHER_FORMS = tuple(
    re.compile(form, re.ASCII)
    for form in (
        rf"(?P<year>\d{{4}})([-/.])(?P<month>\d\d?)\2(?P<day>\d\d?)(?:(?:[Tt]|,? ){_CLOCK} ?{_ZONE})?",
        rf"(?:[A-Za-z]{{3,9}},? )?(?P<day>\d\d?)[ -]{_MONTH}[ -](?P<year>\d{{4}})(?:,? {_CLOCK} ?{_ZONE})?",
        rf"(?:[A-Za-z]{{3,9}},? )?{_MONTH} (?P<day>\d\d?),? (?P<year>\d{{4}})(?:,? {_CLOCK} ?{_ZONE})?",
        rf"(?:[A-Za-z]{{3,9}},? )?{_MONTH} (?P<day>\d\d?) {_CLOCK}(?: {_ZONE})? (?P<year>\d{{4}})",
    )
)
"""Dates that are not ISO 8601 and yet can be read in one way only: those of SQL, Go, mail, JavaScript and ``date``. Of 9/1/2026 it
is not known which is the month.
"""


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
        found = moment_of(time_member(value) or "")
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC)
        return found.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return ""


def moment_of(text: str) -> datetime:
    """A time as a program wrote it, with its zone if that is a number, ``Z``, ``UTC`` or ``GMT``. ValueError if it is none."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        if len(text) > _LONGEST:
            raise
        plain = " ".join(text.split())
        found = next(filter(None, (form.fullmatch(plain) for form in _OTHER_FORMS)), None)
        if found is None:
            raise
    parts = found.groupdict()
    day = datetime(int(parts["year"]), _month(parts["month"]), int(parts["day"]), tzinfo=_zone(parts["zone"] or ""))
    hour, minute, second = (int(parts[name] or 0) for name in ("hour", "minute", "second"))
    if hour > 24 or minute > 59 or second > 60:  # 24:00 is the next day's 0:00, and a leap second has the number 60
        raise ValueError(f"no time of a day: {text}")
    microseconds = int((parts["fraction"] or "").ljust(6, "0")[:6])
    return day + timedelta(hours=hour, minutes=minute, seconds=second, microseconds=microseconds)


def _month(written: str) -> int:
    return int(written) if written.isdigit() else _MONTHS.index(written.lower()) + 1


def _zone(written: str) -> timezone | None:
    offset = written.upper().removeprefix("UTC").removeprefix("GMT").replace(":", "")
    if offset[:1] in ("+", "-"):
        minutes = int(offset[1:3]) * 60 + int(offset[3:5])
        return timezone(timedelta(minutes=-minutes if offset[0] == "-" else minutes))
    return UTC if written.upper() in ("Z", "UTC", "GMT") else None
