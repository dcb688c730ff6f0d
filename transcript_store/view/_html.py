"""Markup that is safe by its making: what is not :class:`Html` is escaped, and only this folder makes Html.

Everything a transcript says is a plain ``str`` until it goes through :func:`tag` or :func:`text`. So whoever forgets to escape
shows too many ``&lt;``, and never a tag of somebody else's.
"""

from __future__ import annotations

import html
import re
from functools import lru_cache
from typing import Literal

from transcript_store.words import UNSAFE, safe

_TO_BE_CHANGED = re.compile(f"[&<>\"']|{UNSAFE.pattern}")
_VOID = frozenset({"input", "meta", "link", "img", "hr", "br"})


class Html(str):
    """Text that is markup."""

    __slots__ = ()


NOTHING = Html("")


def text(said: str) -> Html:
    """A text as it was said. Control characters, and those that turn the direction of text, are shown as escapes."""
    if _TO_BE_CHANGED.search(said) is None:  # most of what is said
        return Html(said)
    return Html(html.escape(safe(said.replace("\r\n", "\n"))))


def tag(name: str, /, *children: str | None, **attributes: str | int | bool | None) -> Html:
    """An element. Children that are not :class:`Html` are escaped; None is left out.

    ``class_`` is the attribute ``class``, ``data_x`` is ``data-x``. True is an attribute without a value; False and None are none.
    """
    written = f"<{name}"
    for key, value in attributes.items():
        if value is not None and value is not False:
            written += (_class if key == "class_" else _attribute)(key, value)
    inside = "".join([child if type(child) is Html else text(child) for child in children if child is not None])
    return Html(f"{written}>{inside}" if name in _VOID else f"{written}>{inside}</{name}>")


def _attribute(key: str, value: str | int | Literal[True]) -> str:
    name = _spelled(key)
    return f" {name}" if value is True else f' {name}="{text(str(value))}"'


_class = lru_cache(maxsize=256)(_attribute)
"""A page has few classes, and fifty thousand tags with them."""


@lru_cache(maxsize=256)
def _spelled(key: str) -> str:
    """The name of an attribute, of that of a parameter."""
    return key.rstrip("_").replace("_", "-")


def joined(*pieces: str | None) -> Html:
    """Pieces one behind the other; those that are not :class:`Html` are escaped."""
    return Html("".join([piece if type(piece) is Html else text(piece) for piece in pieces if piece is not None]))


def listing(shown: str, kind: str | None = None) -> Html:
    """Code, or what a program printed: scrolls by itself, and has a place for a button that copies it."""
    pre = tag("pre", tag("code", shown), class_=kind, tabindex=0)
    return tag("div", pre, class_="block")
