"""How is markup kept safe? Everything that is not :class:`Html` is escaped, and only this folder creates Html.

Transcript text is a plain ``str`` until :func:`tag` or :func:`text` escapes it. So a forgotten call escapes too much
(``&lt;``), and never lets a foreign tag through.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from transcript_store.display import UNSAFE, safe

_TO_BE_CHANGED = re.compile(f"[&<>]|{UNSAFE.pattern}")
_VOID = frozenset({"input", "meta", "link", "img", "hr", "br"})
_PLAIN = "".join(each for each in map(chr, range(128)) if not _TO_BE_CHANGED.match(each)).encode()
_SHORT = 40
_QUOTE = '"'


class Html(str):
    """Text that is markup."""

    __slots__ = ()


NOTHING = Html("")


def text(said: str) -> Html:
    """A text as it was written, for use between tags. Control characters, and those that change its direction, are
    shown as escapes.
    """
    if _is_plain(said):  # most of what is said
        return Html(said)
    return Html(html.escape(safe(said.replace("\r\n", "\n")), quote=False))


def _is_plain(said: str) -> bool:
    """True if a text is its own markup. Of a screen of output it takes a sixth of the pattern's time to take out what is plain."""
    if len(said) > _SHORT and said.isascii():
        return not said.encode().translate(None, _PLAIN)
    return _TO_BE_CHANGED.search(said) is None


def tag(name: str, /, *children: str | None, **attributes: str | int | bool | None) -> Html:
    """An element. Children that are not :class:`Html` are escaped; None is left out.

    ``class_`` is the attribute ``class``, ``data_x`` is ``data-x``. True is an attribute without a value; False and None are none.
    """
    inside = "".join([child if type(child) is Html else text(child) for child in children if child is not None])
    return Html(f"{_begin(name, attributes)}{inside}{_end(name)}")


@lru_cache(maxsize=256, typed=True)  # 0 is no False
def element(name: str, /, **attributes: str | int | bool | None) -> Callable[..., Html]:
    """Makes elements that differ in their children alone, as :func:`tag` does with these attributes: a page has ninety thousand."""
    begin, end = _begin(name, attributes), _end(name)

    def made(*children: str | None) -> Html:
        inside = "".join([child if type(child) is Html else text(child) for child in children if child is not None])
        return Html(f"{begin}{inside}{end}")

    return made


def _begin(name: str, attributes: Mapping[str, str | int | bool | None]) -> str:
    written = [(_usual if key in _USUAL else attribute)(key, value) for key, value in attributes.items()]
    return f"<{name}{''.join(written)}>"


def _end(name: str) -> str:
    return "" if name in _VOID else f"</{name}>"


def attribute(key: str, value: str | int | bool | None) -> Html:
    """An attribute with the blank before it, as :func:`tag` takes it."""
    if value is None or value is False:
        return NOTHING
    name = _spelled(key)
    said = str(value)
    if _QUOTE in said or not _is_plain(said):
        said = text(said).replace(_QUOTE, "&quot;")
    return Html(f" {name}" if value is True else f' {name}="{said}"')


_USUAL = frozenset({"class_", "tabindex"})
_usual = lru_cache(maxsize=256, typed=True)(attribute)
"""A page has few values of these, and tens of thousands of tags with them."""


@lru_cache(maxsize=256)
def _spelled(key: str) -> str:
    """The name of an attribute, of that of a parameter."""
    return key.rstrip("_").replace("_", "-")


def joined(*pieces: str | None) -> Html:
    """The parts joined; those that are not :class:`Html` are escaped."""
    return Html("".join([piece if type(piece) is Html else text(piece) for piece in pieces if piece is not None]))


_BLOCK, _PRE, _CODE = element("div", class_="block"), element("pre", tabindex=0), element("code")


def listing(shown: str, kind: str | None = None) -> Html:
    """Code, or what a program printed: scrolls by itself, and has a place for a button that copies it."""
    code = _CODE(shown)
    return _BLOCK(_PRE(code) if kind is None else tag("pre", code, class_=kind, tabindex=0))


# ---- times ----
# How values appear on a page: JSON, times and durations.

_MOST_INDENTED = 20
"""JSON may be so many times as long when it is indented: a list within two hundred lists would be four hundred times as long."""
_LEAST_BOUND = 20_000
"""In characters. What is shorter than this is indented however deep it nests."""


def readable_json(value: Any) -> str:
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


def time_of_day(at: str) -> str:
    """``14:03``; empty for what is no time."""
    time = _time(at)
    return _minute(time) if time else ""


def day(at: str) -> str:
    """``Monday, 3 June 2024``."""
    time = _time(at)
    return f"{_DAYS[time.weekday()]}, {time.day} {_MONTHS[time.month - 1]} {time.year}" if time else ""


def full_time(at: str) -> str:
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
    except (TypeError, ValueError):  # only in a forged file
        return None
