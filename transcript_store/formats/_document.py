"""One JSON document → its parts with their place: what a program writes that keeps its whole history in one text.

The document is not parsed as a whole, for an export may be larger than memory. Its objects are found by their brackets, and each is
cut into pieces where an element of an array, or a member of an object, ends. The pieces joined are the object: whoever keeps each
piece's bytes has kept it (F3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from transcript_store.formats._plan import Source

LONGEST_BYTES = 256 << 20
"""How long an object may be that is read as a whole. A conversation of 10,000 messages is a tenth of it."""
DEEPEST = 1024
"""How many levels of objects and arrays JSON may have that is read; orjson's own limit. Messages of real programs have ten."""
TOO_DEEP = f"nested deeper than {DEEPEST:,} levels: its bytes are kept, and nothing in it was read; flatten it, and import the file again"
_READ_BYTES = 1 << 20
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?P<open>\\?\Z)?|[{}\[\]]', re.DOTALL)
_ESCAPE = re.compile(
    rb"\\(?:(?P<high>u[dD][89abAB][0-9a-fA-F]{2})(?P<low>\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    rb"|(?P<alone>u[dD][c-fC-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
HALF_CHARACTER = (
    "half-character",
    "an escape that is half a character, such as \\ud83d: the message has U+FFFD in its place, and the bytes are kept",
)
"""The kind of a finding, and what it says."""
_REST_OF_TEXT = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*(?P<open>\\?\Z)?', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Span:
    """Where an object stands in a source."""

    offset: int
    size: int


def read_all(source: Source, span: Span) -> bytes:
    """Its bytes; fewer only where somebody cut the source meanwhile."""
    pieces: list[bytes] = []
    at, left = span.offset, span.size
    while left > 0 and (piece := source.read(at, min(_READ_BYTES, left))):
        pieces.append(piece)
        at, left = at + len(piece), left - len(piece)
    return b"".join(pieces)


def objects_of(source: Source) -> Iterator[Span]:
    """The document's own object; if it is an array, each object of it. The last may be cut: then it is what is there of it."""
    outer: int | None = None  # how deep the objects stand: 0, or 1 in an array
    start: int | None = None
    for offset, token, depth in _tokens(_pieces(source)):
        if outer is None:
            outer = 1 if token == b"[" else 0
        if token == b"{" and depth == outer + 1:
            start = offset
        elif token == b"}" and depth == outer and start is not None:
            yield Span(start, offset + 1 - start)
            start = None
    if start is not None:
        yield Span(start, source.size - start)


def pieces_within(raw: bytes, name: str) -> list[tuple[int, bytes]]:
    """The object that ``raw`` is, cut at each object in its member ``name``, an array or an object: offset and bytes.

    The first piece is what stands before them, and the last has what stands behind. Without such a member there is one piece.
    """
    spans = list(_spans_within(raw, name))
    if not spans:
        return [(0, raw)]
    starts = [0, spans[0].offset, *(span.offset + span.size for span in spans[:-1])]
    return [(start, raw[start:end]) for start, end in zip(starts, [*starts[1:], len(raw)], strict=True)]


def _spans_within(raw: bytes, name: str) -> Iterator[Span]:
    member: bytes | None = None
    inside = False
    start = 0
    for offset, token, depth in _tokens(iter([raw])):
        if depth == 1 and token[:1] == b'"':
            member = token
        elif token in (b"{", b"[") and depth == 2:
            inside = member == b'"' + name.encode()
        elif token in (b"}", b"]") and depth == 1:
            inside = False
        elif inside and token == b"{" and depth == 3:
            start = offset
        elif inside and token == b"}" and depth == 2:
            yield Span(start, offset + 1 - start)


def parsed(raw: bytes) -> dict[str, Any] | None:
    """The object, or None if it is none, or too deep. Half a character in it is U+FFFD."""
    try:
        value = orjson.loads(raw)
    except (orjson.JSONDecodeError, RecursionError):
        whole = _ESCAPE.sub(_whole_character, raw) if _may_have_halves(raw) else raw
        if whole == raw:
            return None
        try:
            value = orjson.loads(whole)
        except (orjson.JSONDecodeError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def has_half_characters(raw: bytes) -> bool:
    """Whether JSON that was read has an escape that is half a character."""
    return _may_have_halves(raw) and _ESCAPE.sub(_whole_character, raw) != raw


def _may_have_halves(raw: bytes) -> bool:
    return b"\\ud" in raw or b"\\uD" in raw


def _whole_character(escape: re.Match[bytes]) -> bytes:
    """The escape; U+FFFD instead of half a character, which is grammatical JSON, and which no text can hold."""
    is_half = (escape["high"] and not escape["low"]) or escape["alone"]
    return b"\\ufffd" if is_half else escape[0]


def is_too_deep(raw: bytes) -> bool:
    """Whether it has more than ``DEEPEST`` levels, so that it was not read whatever it says."""
    return any(depth > DEEPEST for _, _, depth in _tokens(iter([raw])))


def _pieces(source: Source) -> Iterator[bytes]:
    at = 0
    while at < source.size and (piece := source.read(at, min(_READ_BYTES, source.size - at))):
        at += len(piece)
        yield piece


def _tokens(pieces: Iterator[bytes]) -> Iterator[tuple[int, bytes, int]]:
    """Each bracket, and each text without its end, with its offset and how deep it is then. Texts that are cut have no bytes."""
    depth = 0
    base = 0
    in_text = escaped = False
    for piece in pieces:
        at = 0
        if in_text:
            match = _REST_OF_TEXT.match(piece, 1 if escaped else 0)
            assert match is not None
            in_text = match.end() == len(piece)
            escaped = in_text and match["open"] == b"\\"
            at = match.end() + 1  # behind the quotation mark
        if not in_text:
            while (match := _TOKEN.search(piece, at)) is not None:
                token, at = match[0], match.end()
                if token[:1] == b'"':
                    if match["open"] is not None:
                        in_text, escaped = True, match["open"] == b"\\"
                        break
                    at += 1
                elif token in b"{[":
                    depth += 1
                else:
                    depth -= 1
                yield base + match.start(), token, depth
        base += len(piece)
