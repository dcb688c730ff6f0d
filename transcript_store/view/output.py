"""How is a program's output shown? Its colours become CSS classes; every other escape sequence is shown as text.

Colours are ECMA-48's "select graphic rendition", with the 256 and 16 million of xterm brought down to the nearest of
sixteen: a page has its own colours for these, which can be read on light and on dark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from transcript_store.view._html import Html, joined, tag, text

_COLOURS = re.compile("\x1b\\[([0-9;:]*)m")
_LEVELS = (0, 95, 135, 175, 215, 255)
_CUBE = [*product(_LEVELS, repeat=3)]
_SIXTEEN = [*product((0, 128), repeat=3)], [*product((0, 255), repeat=3)]
_STYLES = {1: "bold", 2: "dim", 3: "italic", 4: "under"}
_MOST_PARAMETERS = 64
"""A sequence with more is none: a terminal takes 32 at most."""


def terminal(said: str) -> Html:
    """The text with its colours as spans of the classes ``f0`` to ``f15``, ``b0`` to ``b15``, ``bold``, ``dim``, ``italic``, ``under``."""
    if "\x1b[" not in said:
        return text(said)
    return joined(
        *(tag("span", piece, class_=" ".join(styles)) if styles else text(piece) for piece, styles in styled(said))
    )


def without_colours(said: str) -> str:
    """The text without the sequences that :func:`terminal` obeys."""
    return _COLOURS.sub("", said) if "\x1b[" in said else said


def styled(said: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The pieces of the text with the classes of each."""
    state: dict[str, str] = {}
    # Text and parameters take turns, as re.split gives them.
    for number, piece in enumerate(_COLOURS.split(said)):
        if number % 2:
            _change(state, piece)
        elif piece:
            yield piece, tuple(state.values())


def _change(state: dict[str, str], parameters: str) -> None:
    codes = [int(code) if len(code) < 4 and code else 0 for code in re.split("[;:]", parameters)]
    if len(codes) > _MOST_PARAMETERS:
        return
    while codes:
        code = codes.pop(0)
        if code == 0:
            state.clear()
        elif code in _STYLES:
            state[_STYLES[code]] = _STYLES[code]
        elif code == 22:
            state.pop("bold", None)
            state.pop("dim", None)
        elif code in (23, 24):
            state.pop(_STYLES[code - 20], None)
        elif code in (38, 48):
            colour, codes = _extended(codes)
            if colour is not None:
                state["fb"[code == 48]] = f"{'fb'[code == 48]}{colour}"
        elif code in (39, 49):
            state.pop("fb"[code == 49], None)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            state["f"] = f"f{code - 30 if code < 90 else code - 82}"
        elif 40 <= code <= 47 or 100 <= code <= 107:
            state["b"] = f"b{code - 40 if code < 100 else code - 92}"


def _extended(codes: list[int]) -> tuple[int | None, list[int]]:
    """The colour that ``5;n`` or ``2;r;g;b`` names, and the parameters after it."""
    if codes[:1] == [5] and len(codes) > 1:
        number, rest = codes[1], codes[2:]
        if number < 16:
            return number, rest
        if number < 232:
            return _nearest(*_CUBE[number - 16]), rest
        grey = 8 + 10 * (number - 232)
        return (_nearest(grey, grey, grey) if number < 256 else None), rest
    if codes[:1] == [2] and len(codes) > 3:
        return _nearest(*codes[1:4]), codes[4:]
    return None, []


@lru_cache(maxsize=512)
def _nearest(red: int, green: int, blue: int) -> int:
    """The nearest of the sixteen; the grey ones apart, as most programs use those for what matters less."""
    if max(red, green, blue) - min(red, green, blue) < 24:
        return 0 if red < 64 else 8 if red < 160 else 7 if red < 224 else 15
    bright = max(red, green, blue) > 191
    corners = _SIXTEEN[bright]
    nearest = min(
        corners, key=lambda corner: sum((a - b) ** 2 for a, b in zip(corner, (red, green, blue), strict=True))
    )
    return (8 if bright else 0) + sum(bit for bit, part in zip((1, 2, 4), nearest, strict=True) if part)
