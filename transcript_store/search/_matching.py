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
    """A piece of a message on one line. ``highlights`` are stretches of ``text`` that match; ``column`` says where it stood."""

    text: str
    highlights: tuple[Span, ...]
    column: str


Match = Callable[[Texts], Excerpt | None]
"""Says whether the texts of a message match, with the excerpt that shows it."""


def matcher(query: Query) -> Match:
    """What decides for a query. One without words takes every message that has a text."""
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
    """What decides if besides a regular expression has to be found in one of the query's columns. The excerpt shows that."""

    def both(texts: Texts) -> Excerpt | None:
        for name in query.columns:
            text = getattr(texts, name)
            if (found := pattern.search(text)) is not None:
                return excerpt(text, [found.span()], name) if match(texts) is not None else None
        return None

    return both


class _Plain:
    """A text in which a pattern says where a word stands, in a tenth of the time that all its tokens take; if the word is of ASCII.

    Others are cut: the words around a sign that is not ASCII, and all of them for a term that may stand in several.
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
    """A term in a text of ASCII in small letters. Its tokens hold letters and digits alone; overlapping ones are found, too.

    It begins with the letters of the first token, which takes less time than a look at each word. What stands before them is seen
    afterwards, what stands behind is group 1. Of a part alone, and of an end, the word begins where :func:`_begin_of_word` says.
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
    """A text, or some stretches of it, in tokens, and where each word of it stands among them."""

    def __init__(self, text: str, stretches: Iterable[Span] | None = None) -> None:
        self._tokens = list(tokens(text, stretches))
        self._places: dict[str, list[int]] = {}
        for place, token in enumerate(self._tokens):
            self._places.setdefault(token.text, []).append(place)

    def spans(self, term: Term) -> list[Span]:
        """The positions of a term in the text."""
        *firsts, last = term.tokens
        count = len(firsts)
        is_one_character = term.last == "beginning" and is_cjk(last)  # which a pair begins with: it alone is marked
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
    """A piece of a text around the first of some spans, with white space as one space; its beginning if there is none."""
    first = spans[0][0] if spans else 0
    start = max(0, min(first - _BEFORE, len(text) - EXCERPT_CHARACTERS))
    if start and (space := text.find(" ", start, first)) >= 0:
        start = space + 1
    end = min(len(text), start + EXCERPT_CHARACTERS)
    out, marks = ["…"] if start else [], []
    length = len(out)
    # Printable is whatever is no white space but a space, and most texts.
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
