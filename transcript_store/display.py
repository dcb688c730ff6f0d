"""How are counts, times, addresses and untrusted text shown to a person?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

# In this order: C0 except LF and tab, DEL and C1, the marks and overrides of bidirectional text, the line and paragraph
# separators, other invisible format characters, lone surrogates (Python's form of file names that are not UTF-8), tags.
UNSAFE = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u206f\\ufff9-\\ufffb"
    "\\ud800-\\udfff\\U000e0000-\\U000e007f]"
)
"""Characters that a terminal acts on instead of showing, or that disguise text."""


MOMENTS = (
    "24h, 7d, 2w, 1y, today, yesterday, last week, last month, last year, november, 2026, 2026-01, 2026-01-31, or "
    "2026-01-31T12:00"
)
"""What :func:`moment` accepts, for a person."""
_AGO = re.compile(r"([0-9]{1,6}) ?(h|d|w|y|hours?|days?|weeks?|years?)(?: ago)?")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1), "y": timedelta(days=365)}
_DAYS_AGO = {"today": 0, "yesterday": 1}
_YEAR = re.compile(r"[0-9]{4}")
_MONTH = re.compile(r"([0-9]{4})-([0-9]{2})")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_NAMED_MONTH = re.compile(r"([a-z]{3,})(?: ([0-9]{4}))?")


def moment(text: str) -> datetime | None:
    """The moment that a text means: the start of its :func:`period`; None if it is not a time."""
    found = period(text)
    return None if found is None else found[0]


def period(text: str) -> tuple[datetime, datetime] | None:
    """The period that a text means, its start and its end: a day, a week, a month, a year; or a moment, which is its own end.

    A month by its name is the latest one of that name that has started. All of it is UTC unless the text names another
    zone: so are all times that the commands print.
    """
    now, word = datetime.now(UTC), " ".join(re.sub("(?<=[a-z])-", " ", text.lower()).split())
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        if ago := _AGO.fullmatch(word):
            return _moment(now - int(ago[1]) * _UNITS[ago[2][0]])
        if word in _DAYS_AGO:
            begin = day - timedelta(days=_DAYS_AGO[word])
            return begin, begin + timedelta(days=1)
        if word in ("this week", "last week"):
            begin = day - timedelta(days=day.weekday() + 7 * word.startswith("last"))
            return begin, begin + timedelta(weeks=1)
        if word in ("this month", "last month"):
            return _month(now.year, now.month - word.startswith("last"))
        if word in ("this year", "last year") or _YEAR.fullmatch(word):
            year = int(word) if word.isdecimal() else now.year - word.startswith("last")
            return _month(year, 1)[0], _month(year, len(_MONTHS))[1]
        if (said := _NAMED_MONTH.fullmatch(word)) and (
            named := [month for month in _MONTHS if month.startswith(said[1])]
        ):
            number = _MONTHS.index(named[0]) + 1
            return _month(int(said[2] or now.year - (number > now.month)), number)
        if month := _MONTH.fullmatch(word):
            return _month(int(month[1]), int(month[2])) if 1 <= int(month[2]) <= len(_MONTHS) else None
        at = datetime.fromisoformat(text.strip())
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        return (at, at + timedelta(days=1)) if _DAY.fullmatch(word) else _moment(at)
    except (ValueError, OverflowError):
        return None


def _moment(at: datetime) -> tuple[datetime, datetime]:
    return at, at


def _month(year: int, number: int) -> tuple[datetime, datetime]:
    """A month; its number may lie outside of the year."""
    begin, end = (divmod(year * 12 + one, 12) for one in (number - 1, number))
    return datetime(begin[0], begin[1] + 1, 1, tzinfo=UTC), datetime(end[0], end[1] + 1, 1, tzinfo=UTC)


TITLE = "title"
"""The label that is shown as a conversation's title."""


def title_in(labels: Mapping[str, Any] | None) -> str | None:
    """The conversation's ``title`` label; None if it is missing or blank."""
    title = (labels or {}).get(TITLE)
    return title if type(title) is str and title.strip() else None


def safe(text: str) -> str:
    r"""The text with every such character as an escape, ``\x1b``. Line feeds and tabs stay."""
    return UNSAFE.sub(_escape, text)


_USER = re.compile(r"://(?:[^\s/?#@:]*:\S*|[^\s/?#@]*(?:@[^\s/?#@]*)*)@")
_WORD = re.compile(r"\S+")
_NO_PORT = re.compile(r":(?![0-9]*(?:,|$))")


def without_credentials(text: str) -> str:
    """A text in which addresses have no user and no password: an argument may be a backend's address, and errors repeat
    arguments.
    """
    return _WORD.sub(_word_without_credentials, text)


def _word_without_credentials(word: re.Match[str]) -> str:
    # Nothing behind the last @ can match, and trying it takes the square of its length: an argument may have 128 KiB.
    before, at, behind = word[0].rpartition("@")
    return _USER.sub("://", before + at) + behind


SCHEMA_OPTION = re.compile(r"[?&]schema=([a-z_][a-z0-9_]{0,62})(?=&|$)")
"""The option of a database's address that names a schema. It is no secret: two libraries of one database differ in nothing else."""


def printable_address(address: str) -> str:
    """A printable form of an address: without the user, the password and the options, but with the schema.

    A password with an unescaped ``/``, ``?``, ``#`` or ``@`` cannot be separated from what follows it, nor half of one
    from a port. So if there may be one, only the scheme is shown: ``postgresql://…``.
    """
    scheme, mark, rest = address.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    _, at, hosts = authority.rpartition("@")
    behind = rest[len(authority) :]
    if ((at or ":" in authority) and "@" in behind) or _NO_PORT.search(re.sub(r"\[[^\[\]]*\]", "", hosts)):
        return f"{scheme}{mark}…"
    schema = SCHEMA_OPTION.search(behind)
    return f"{scheme}{mark}{hosts}{re.split('[?#]', behind, maxsplit=1)[0]}" + (
        f"?schema={schema[1]}" if schema else ""
    )


def many(number: int, what: str) -> str:
    """A number and what it counts: ``1 byte``, ``2,048 bytes``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def dollars(amount: float) -> str:
    """An amount in US dollars: ``$12.30``; a small one to the hundredth of a cent, ``$0.0031``."""
    return f"${amount:,.2f}" if amount >= 0.1 else f"${amount:.4f}" if amount >= 0.0001 else "under $0.0001"


def line_location(line_number: int | None, offset_bytes: int | None) -> str:
    """The position of a line of a transcript, in words. The first line is the header, so the second has the first record."""
    if line_number is None:
        return ""
    record = f" (record {line_number - 1})" if line_number > 1 else ""
    return f", line {line_number}{record}, byte {offset_bytes}"


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
"""ECMA-48: control sequences, and commands such as links."""


def without_escapes(text: str) -> str:
    """A program's output as text: no colours, no links; a space where the cursor was moved or a line cleared."""
    if "\x1b" not in text:
        return text
    return _ESCAPES.sub(lambda found: "" if found[0][-1] in "m\x07\\" else " ", text)
