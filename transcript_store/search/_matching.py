"""Does a message match a query, and which excerpt shows it? The message itself decides.

The index proposes; the record decides. So a hit is never stale or invented.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from transcript_store.search._query import Query, Term
from transcript_store.search._tokens import Texts, blanked, foreign_runs, is_cjk, tokens

Span = tuple[int, int]

EXCERPT_CHARACTERS = 200
_FEW = 32
"""More terms than this are looked up among the tokens of a text, which are cut once for all of them."""
_SPACES = re.compile(r"\s+")
_BEFORE = 60
"""The length of an excerpt before its first highlight."""


class Excerpt(NamedTuple):
    """A part of a message on one line. ``highlights`` are the matching spans of ``text``; ``column`` is its column."""

    text: str
    highlights: tuple[Span, ...]
    column: str


Match = Callable[[Texts], Excerpt | None]
"""Returns the matching excerpt of a message's texts, or None."""


def matcher(query: Query) -> Match:
    """The matcher for a query. Without words it accepts every message that has a text."""
    terms = sum(map(len, query.groups)) + len(query.without)
    cut_of = _Plain if terms <= _FEW else _Cut

    def match(texts: Texts) -> Excerpt | None:
        searched = {name: getattr(texts, name) for name in query.columns}
        cut = {name: cut_of(text) for name, text in searched.items() if text}
        if any(found.spans(term) for term in query.without for found in cut.values()):
            return None
        spans: dict[str, list[Span]] = {name: [] for name in cut}
        for group in query.groups:
            is_there = False
            for name, found in cut.items():
                more = [span for term in group for span in found.spans(term)]
                spans[name] += more
                is_there = is_there or bool(more)
            if not is_there:
                return None
        best = max(cut, key=lambda name: bool(spans[name]), default=None)
        return None if best is None else excerpt(searched[best], sorted(spans[best]), best)

    return match


def with_pattern(match: Match, query: Query, pattern: re.Pattern[str]) -> Match:
    """The matcher that also requires a regular expression in one of the query's columns. The excerpt shows its match."""

    def both(texts: Texts) -> Excerpt | None:
        for name in query.columns:
            text = getattr(texts, name)
            if (found := pattern.search(text)) is not None:
                return excerpt(text, [found.span()], name) if match(texts) is not None else None
        return None

    return both


class _Plain:
    """A text in which a pattern finds an ASCII word, in a tenth of the time that all its tokens take.

    Other words are cut into tokens: those around a non-ASCII character, and all of them for a term of several.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._foreign_runs = [] if text.isascii() else list(foreign_runs(text))
        self._small = (blanked(text, self._foreign_runs) if self._foreign_runs else text).lower()

    def spans(self, term: Term) -> list[Span]:
        if not self._foreign_runs:
            return self._in_ascii(term)
        # Only the rest of its own run follows a pair.
        if any(len(token) != 2 or not is_cjk(token) for token in term.tokens[:-1]):
            return self._cut.spans(term)
        return self._foreign.spans(term) + (self._in_ascii(term) if len(term.tokens) == 1 else [])

    def _in_ascii(self, term: Term) -> list[Span]:
        found = _pattern_of(term).finditer(self._small)
        may_begin_before = term.is_end or (term.last == "part" and len(term.tokens) == 1)
        return [
            (_begin_of_word(self._small, one.start()) if may_begin_before else one.start(), one.end(one.lastindex or 0))
            for one in found
        ]

    @cached_property
    def _cut(self) -> _Cut:
        return _Cut(self._text)

    @cached_property
    def _foreign(self) -> _Cut:
        return _Cut(self._text, self._foreign_runs)


@lru_cache(maxsize=4 * _FEW)
def _pattern_of(term: Term) -> re.Pattern[str]:
    """A pattern for a term in lower-case ASCII text. Its tokens have only letters and digits; overlapping ones are found too.

    It starts with the letters of the first token, which is faster than a test of each word. The text before them is tested
    afterwards, the text after them is group 1. For a part, and for an end, :func:`_begin_of_word` finds the word's start.
    """
    first, *others = map(re.escape, term.tokens)
    behind = "(?![a-z0-9])" if term.last == "whole" else "[a-z0-9]*+"
    is_begin = "" if term.is_end else f"(?<![a-z0-9]{first})"
    if not others:
        return re.compile(first + ("" if term.last == "part" else is_begin) + behind)
    others[-1] = ("[a-z0-9]*?" if term.last == "part" else "") + others[-1] + behind
    return re.compile(f"{first}{is_begin}(?=({''.join('[^a-z0-9]++' + one for one in others)}))")


def _begin_of_word(text: str, at: int) -> int:
    while at and text[at - 1].isalnum():
        at -= 1
    return at


class _Cut:
    """The tokens of a text, or of some spans of it, and the positions of each word."""

    def __init__(self, text: str, stretches: Iterable[Span] | None = None) -> None:
        self._tokens = list(tokens(text, stretches))
        self._places: dict[str, list[int]] = {}
        for place, token in enumerate(self._tokens):
            self._places.setdefault(token.text, []).append(place)

    def spans(self, term: Term) -> list[Span]:
        """The positions of a term in the text."""
        *firsts, last = term.tokens
        count = len(firsts)
        is_one_character = term.last == "beginning" and is_cjk(
            last
        )  # a pair starts with it: only this character is highlighted
        return [
            (
                self._tokens[place - count].start,
                self._tokens[place].first_end if is_one_character else self._tokens[place].end,
            )
            for place in self._places_of(last, term.last)
            if place >= count and self._stand_before(place, firsts, is_end=term.is_end)
        ]

    def _stand_before(self, place: int, firsts: list[str], *, is_end: bool) -> bool:
        there = [token.text for token in self._tokens[place - len(firsts) : place]]
        return there == firsts or (is_end and there[1:] == firsts[1:] and there[0].endswith(firsts[0]))

    def _places_of(self, word: str, how: str) -> Iterable[int]:
        if how == "whole":
            return self._places.get(word, ())
        is_it = str.startswith if how == "beginning" else str.__contains__
        return (place for known, places in self._places.items() if is_it(known, word) for place in places)


def excerpt(text: str, spans: Sequence[Span], column: str) -> Excerpt:
    """The part of a text around the first of some spans, with white space as one space; without spans its start."""
    first = spans[0][0] if spans else 0
    start = max(0, min(first - _BEFORE, len(text) - EXCERPT_CHARACTERS))
    if start and (space := text.find(" ", start, first)) >= 0:
        start = space + 1
    end = min(len(text), start + EXCERPT_CHARACTERS)
    out, marks = ["…"] if start else [], []
    length = len(out)
    # A printable text has no white space but spaces, and most texts are printable.
    is_plain = "  " not in (shown := text[start:end]) and shown.isprintable()
    for piece, is_marked in _pieces(text, start, end, spans):
        plain = piece if is_plain else _SPACES.sub(" ", piece)
        if is_marked:
            marks.append((length, length + len(plain)))
        out.append(plain)
        length += len(plain)
    return Excerpt("".join(out) + ("…" if end < len(text) else ""), tuple(marks), column)


def _pieces(text: str, start: int, end: int, spans: Sequence[Span]) -> Iterator[tuple[str, bool]]:
    at = start
    for span in spans:
        first, last = max(span[0], at), min(span[1], end)  # spans may overlap
        if first < last:
            yield text[at:first], False
            yield text[first:last], True
            at = last
    yield text[at:end], False
