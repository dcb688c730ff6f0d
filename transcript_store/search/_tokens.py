"""Which parts of a message are searched, and how does a text become tokens?

The same way for the index, for a query and for the highlights in an excerpt.

A token is a run of letters and digits in small letters and without accents: ``Café`` and ``CAFE`` are ``cafe``.
Chinese, Japanese and Korean are written without spaces, or with endings glued on. So a run of them becomes overlapping
pairs and its last character: 东京大学 becomes 东京, 京大, 大学 and 学. A search for 京大 finds that pair. A search for one
character finds every pair that starts with it, and the last one of the run. The last character also keeps two runs
apart: no pair follows one that it does not overlap.

:func:`fold` gives SQLite a text that it can only cut in this way. :func:`tokens` cuts it in Python, and knows where
each was.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import islice, pairwise
from typing import Any, NamedTuple

from transcript_store.display import without_escapes
from transcript_store.messages import parts_of, typed_of

_FOREIGN = re.compile(r"[^\x00-\x7f]+")
_RUN = re.compile(r"[^\x00-/:-@\[-`{-\x7f]+")  # excludes ASCII; the allowed characters would take re 7 ms to compile
"""Runs between two ASCII punctuation characters: no token crosses one."""
_TOKEN = re.compile(r"[^\x00-/:-`{-\x7f]+")
_SPACES = bytes(code if code >= 0x80 or chr(code).isalnum() else 0x20 for code in range(256))
_ACCENTS = dict.fromkeys(range(768, 880))
_ON_A_LETTER = "".join(map(chr, _ACCENTS)).replace("\u0345", "")  # which becomes an iota
_CJK = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
_LONGEST_CACHED = 16


@cache
def _cjk_run() -> re.Pattern[str]:
    return re.compile(f"[{_CJK}]+")  # compiled at its first use: that takes 1.5 ms


class Token(NamedTuple):
    """A token and its position: ``text[start:end]``, and the end of its first character, each with accents."""

    text: str
    start: int
    end: int
    first_end: int


def fold(text: str) -> str:
    """A text in which spaces or ASCII punctuation separate all tokens. ASCII text is returned unchanged."""
    return text if text.isascii() else _FOREIGN.sub(_folded_match, text)


def foreign_runs(text: str) -> Iterator[tuple[int, int]]:
    """The runs between two ASCII characters that are not all ASCII themselves."""
    at = 0
    while (foreign := _FOREIGN.search(text, at)) is not None:
        start = foreign.start()
        while start > at and text[start - 1].isalnum():
            start -= 1
        (run,) = islice(_RUN.finditer(text, start), 1)
        at = run.end()
        yield start, at


def blanked(text: str, stretches: Iterable[tuple[int, int]]) -> str:
    """A text with some spans replaced by spaces; all other positions stay."""
    pieces: list[str] = []
    at = 0
    for start, end in stretches:
        pieces += (text[at:start], " " * (end - start))
        at = end
    return "".join((*pieces, text[at:]))


def tokens(text: str, stretches: Iterable[tuple[int, int]] | None = None) -> Iterator[Token]:
    """The tokens of a text in order, or those in some spans.

    A token from several characters covers all of their positions.
    """
    for start, end in stretches if stretches is not None else (run.span() for run in _RUN.finditer(text)):
        word = text[start:end]
        if word.isascii():  # only the case is folded: a sixth of the time
            yield Token(word.lower(), start, end, start + 1)
            continue
        for one in _tokens_of_short(word) if len(word) <= _LONGEST_CACHED else _tokens_of(word):
            yield Token(one.text, start + one.start, start + one.end, start + one.first_end)


def _tokens_of(word: str) -> list[Token]:
    """The tokens of a run between two ASCII characters, with their positions in it."""
    folded, origins = _folded_with_origins(word)
    found = []
    for match in _TOKEN.finditer(folded):
        first, last = origins[match.start()], origins[match.end() - 1]
        found.append(Token(match[0], first[0], last[1], first[1]))
    return found


_tokens_of_short = lru_cache(maxsize=4096)(_tokens_of)


def words_in(folded: str) -> list[bytes]:
    """The tokens of a folded text, as UTF-8. Cutting bytes takes half the time of a pattern."""
    return folded.encode().lower().translate(_SPACES).split()


def is_cjk(text: str) -> bool:
    """True if a token has Chinese, Japanese or Korean characters."""
    return _cjk_run().fullmatch(text) is not None


def _folded_match(match: re.Match[str]) -> str:
    run = match[0]
    return _folded_short(run) if len(run) <= _LONGEST_CACHED else _folded(run)


def _folded(run: str) -> str:
    """A run of characters that are not ASCII, folded."""
    return _cjk_run().sub(lambda found: f" {' '.join(_pairs(found[0]))} ", _plain(run))


_folded_short = lru_cache(maxsize=4096)(_folded)


def _plain(run: str) -> str:
    """Lower-case letters without accents; anything but letters, digits and marks of a script becomes a space.

    Hangul is taken apart to find the accents of other scripts, and put together again.
    """
    bare = unicodedata.normalize("NFKD", run.casefold()).translate(_ACCENTS)
    whole = unicodedata.normalize("NFKC", bare).lower()
    return "".join(char if char.isalnum() or unicodedata.category(char)[0] == "M" else " " for char in whole)


_plain_short = lru_cache(maxsize=4096)(_plain)


def _pairs(run: str) -> Iterator[str]:
    yield from (first + second for first, second in pairwise(run))
    yield run[-1]


def _folded_with_origins(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The folded lower-case text, and for each of its characters the span of the original."""
    out: list[str] = []
    origins: list[tuple[int, int]] = []
    at = 0
    for match in _FOREIGN.finditer(text):
        out.append(text[at : match.start()].lower())
        origins += ((place, place + 1) for place in range(at, match.start()))
        at = match.end()
        run = match[0].lstrip(_ON_A_LETTER)
        begin = at - len(run)
        if origins:  # a removed mark belongs to the character before
            origins[-1] = (origins[-1][0], begin)
        for character, start, end in _aligned(run):
            out.append(character)
            origins.append((begin + start, begin + end))
    out.append(text[at:].lower())
    origins += ((place, place + 1) for place in range(at, len(text)))
    return "".join(out), origins


def _aligned(run: str) -> list[tuple[str, int, int]]:
    """The characters of a folded run with their spans in the original."""
    plain = _plain(run)
    placed = [(character, *place) for character, place in zip(plain, _places(run, plain), strict=True)]
    out, done = [], 0
    for found in _cjk_run().finditer(plain):
        out += placed[done : found.start()]
        for start in range(*found.span()):
            out += (_SPACE, *placed[start : min(start + 2, found.end())])
        done = found.end()
        out.append(_SPACE)
    return out + placed[done:]


_SPACE = (" ", 0, 0)


def _places(run: str, plain: str) -> list[tuple[int, int]]:
    """For each character of a run without accents, its span in the original; the whole run if that is unknown."""
    if plain == run:
        return [(place, place + 1) for place in range(len(run))]
    starts = [place for place, character in enumerate(run) if not place or unicodedata.category(character)[0] != "M"]
    stretches = list(pairwise([*starts, len(run)]))
    pieces = [_plain_short(run[start:end]) for start, end in stretches]
    if "".join(pieces) != plain:  # Hangul that was taken apart
        return [(0, len(run))] * len(plain)
    return [stretch for stretch, piece in zip(stretches, pieces, strict=True) for _ in piece]


# ---- texts ----
# The searched texts of a message: its text, thinking, calls, results, and what a program wrote in the user's
# name, separately. Base64, data URLs and signatures are not words: they never get into an index.

LONGEST_PART_BYTES = 256 * 1024
"""The searched bytes of each part of a message, from its start. (In non-ASCII text, as many characters.)"""

_DATA = re.compile(r"data:[\w.+-]*+/?+[\w.+-]*+(?:;[\w.+=-]*+)*;base64,[A-Za-z0-9+/=_-]*+|[A-Za-z0-9+/_-]{512,}+={0,2}")
"""A data URL, and a run that is too long to be a word: snapshots treat such runs as base64 too. No part backtracks
(``*+``), or a long word after ``data:`` would take quadratic time."""
_MARK = "base64,"
_SHORTEST_RUN = 512
_NO_RUN = re.compile(r"[^A-Za-z0-9+/_-]")
_PLAIN = {"role", "content"}
_SIGNATURES = frozenset(
    {"signature", "thoughtSignature", "thought_signature", "encrypted_content", "encryptedContent", "data"}
)
_HIDDEN = "(not shown by the provider)"


class Texts(NamedTuple):
    """The searched texts of a message. The fields are the columns of the index."""

    text: str = ""
    thinking: str = ""
    call: str = ""
    result: str = ""
    scaffolding: str = ""
    """All text that a program wrote in the user's name."""


COLUMNS = Texts._fields
_COLUMN_OF = {
    "text": 0,
    "thinking": 1,
    "call": 2,
    "result": 3,
    "document": 0,
    "other": 0,
}  # media and extras are not searched


def texts_of(message: object, extra: Mapping[str, Any] | None = None) -> Texts:
    """The searched texts of a message in any provider's form, with its extra."""
    found = _texts_of(message)
    if not extra or "scaffolding" not in extra:
        return found
    return found._replace(text=_words_of(typed_of(extra, found.text)), scaffolding=found.text)


def _texts_of(message: object) -> Texts:
    if isinstance(message, dict) and message.keys() == _PLAIN and isinstance(content := message["content"], str):
        return Texts(_words_of(content))  # most messages: a tenth of the time of their parts
    found: tuple[list[str], ...] = ([], [], [], [])
    for kind, title, text in parts_of(message):
        column = _COLUMN_OF.get(kind)
        if column is None or text == _HIDDEN:
            continue
        if kind in ("text", "thinking"):
            piece = text
        else:
            # The title's first word is ours; the second is the tool's name, and the brackets have the call's number.
            name = (
                title.split(" ", 2)[1:2]
                if kind in ("call", "result")
                else title.split(" ", 1)[1:] * (kind == "document")
            )
            piece = "\n".join((*(part for part in name if not part.startswith("(")), *_said_in(text)))
        found[column].append(_words_of(piece))
    return Texts(*("\n".join(pieces) for pieces in found))


def _words_of(text: str) -> str:
    """The searched part of a text: its start, without colours and data."""
    cut = without_escapes(text[:LONGEST_PART_BYTES])
    return _DATA.sub(" ", cut) if _MARK in cut or _has_run(cut) else cut


def _has_run(text: str) -> bool:
    """True if it has a run that is too long to be a word. Such a run would cover one of the sampled positions."""
    for place in range(_SHORTEST_RUN - 1, len(text), _SHORTEST_RUN):
        # Most positions have a space nearby on both sides: this test takes a third of the time.
        space, next_space = (
            text.rfind(" ", place - _SHORTEST_RUN + 1, place),
            text.find(" ", place, place + _SHORTEST_RUN),
        )
        if space >= 0 and 0 <= next_space - space <= _SHORTEST_RUN:
            continue
        # From the earliest start of the word around the position: words are short, so little is scanned.
        if (end := _NO_RUN.search(text, place)) is not None and end.start() == place:
            continue
        behind = (len(text) if end is None else end.start()) - place
        before = _NO_RUN.search(text[max(0, place - _SHORTEST_RUN) : place][::-1])
        if behind + (_SHORTEST_RUN if before is None else before.start()) >= _SHORTEST_RUN:
            return True
    return False


def _said_in(text: str) -> Iterator[str]:
    r"""The names and values of a JSON text, without signatures; any other text unchanged.

    In JSON a line feed is ``\n``, and the word after it would start with an n.
    """
    if not text.startswith(("{", "[")):
        yield text
        return
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        yield text
        return
    yield from _strings_in(value)


def _strings_in(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            for name, member in reversed(one.items()):
                if name not in _SIGNATURES:
                    waiting += (member, name)
        elif isinstance(one, list):
            waiting += reversed(one)
        elif one is not None:
            yield str(one)
