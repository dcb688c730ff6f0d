"""One JSON document → its parts with their place, for programs that keep a whole history in one text.

The document is not parsed as a whole, because an export may be larger than memory. Its objects are found by their brackets, and
each is cut into pieces after an element of an array or a member of an object. The pieces joined are the object, so keeping the
bytes of each piece keeps all of it (F3).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any

import orjson

from transcript_store.formats._plan import Source

LONGEST_BYTES = 256 << 20
"""The limit of an object that is read as a whole. A conversation of 10,000 messages has a tenth of it."""
DEEPEST = 1024
"""The limit of levels in JSON that is read, and orjson's own. Messages of real programs have ten."""
TOO_DEEP = f"nested deeper than {DEEPEST:,} levels: its bytes are kept, and nothing in it was read; flatten it, and import the file again"
_READ_BYTES = 1 << 20
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?P<open>\\?\Z)?|[{}\[\]]', re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:(?P<high>u[dD][89abAB][0-9a-fA-F]{2})(?P<low>\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    r"|(?P<alone>u[dD][c-fC-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""Control characters that may also separate the members of an object: only a parser knows."""
_SMALLEST, _LARGEST, _MOST_DIGITS = -(2**63), 2**64 - 1, 20
"""Of the integers that 64 bits carry; a longer one is read as a float, as other readers of JSON do."""
Oddity = tuple[str, str]
"""A way in which programs break JSON's grammar, or in which a value cannot be stored: the kind of the finding, and its sentence."""
HALF_CHARACTER: Oddity = (
    "half-character",
    "an escape that is half a character, such as \\ud83d: the message has U+FFFD in its place, and the bytes are kept",
)
NO_NUMBER: Oddity = (
    "no-number",
    "NaN, Infinity, or a number larger than JSON readers take, such as 1e400: the message has null in its place, and the bytes are kept",
)
CONTROL_CHARACTER: Oddity = (
    "control-character",
    "a control character that JSON writes as an escape: the message has the character, and the bytes are kept",
)
_REST_OF_TEXT = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*(?P<open>\\?\Z)?', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes of an object in a source."""

    offset: int
    size: int


def read_all(source: Source, span: Span) -> bytes:
    """The bytes of a span; fewer only if the source was cut meanwhile."""
    pieces: list[bytes] = []
    at, left = span.offset, span.size
    while left > 0 and (piece := source.read(at, min(_READ_BYTES, left))):
        pieces.append(piece)
        at, left = at + len(piece), left - len(piece)
    return b"".join(pieces)


def objects_of(source: Source) -> Iterator[Span]:
    """The document's object; of an array each object in it. The last one may be cut short."""
    outer: int | None = None  # the depth of the objects: 0, or 1 in an array
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
    """Cut the object at each object in its member ``name``, an array or an object: offset and bytes of each piece.

    The first piece ends where the first of these objects starts, and the last one includes the rest. Without such a member there is
    one piece.
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


def parse_object(raw: bytes) -> dict[str, Any] | None:
    """The object, or None if it is none, or too deep. See :func:`read_object`."""
    return read_object(raw)[0]


def read_object(raw: bytes) -> tuple[dict[str, Any] | None, tuple[Oddity, ...]]:
    """The object, or None if it is not one or too deep; and how its text breaks JSON's grammar.

    The object can always be stored: null replaces what is not a number, and U+FFFD what is not a character.
    """
    try:
        value = orjson.loads(raw)
    except (orjson.JSONDecodeError, RecursionError):
        return _read_leniently(raw)
    return value if isinstance(value, dict) else None, ()


def _read_leniently(raw: bytes) -> tuple[dict[str, Any] | None, tuple[Oddity, ...]]:
    odd: dict[Oddity, None] = {}

    def number(said: str) -> float | None:
        found = float(said)
        if isfinite(found):
            return found
        odd[NO_NUMBER] = None
        return None

    def integer(said: str) -> float | None:
        fits = len(said) <= _MOST_DIGITS and _SMALLEST <= int(said) <= _LARGEST
        return int(said) if fits else number(said)

    try:
        said = raw.decode()
    except UnicodeDecodeError as error:
        joined = _TWO_HALVES.sub(_as_one, raw)
        said = joined.decode(errors="replace")
        read_as = "U+FFFD in its place" if said.encode() != joined else "the character whose two halves these are"
        where = f"byte 0x{raw[error.start]:02x} is not UTF-8, at byte {error.start + 1:,}"
        odd["not-utf8", f"{where}: the message has {read_as}, and the bytes are kept"] = None
    if "\\ud" in said or "\\uD" in said:
        whole = _ESCAPE.sub(_whole_character, said)
        if whole != said:
            said, odd[HALF_CHARACTER] = whole, None
    decoder = json.JSONDecoder(strict=False, parse_constant=number, parse_int=integer, parse_float=number)
    try:
        value = decoder.decode(said)
    except (ValueError, RecursionError):
        return None, ()
    if not isinstance(value, dict) or is_too_deep(raw):
        return None, ()
    if not odd or _CONTROL.search(said):  # all else that the strict parser refuses was noted
        odd[CONTROL_CHARACTER] = None
    return value, tuple(odd)


_TWO_HALVES = re.compile(rb"\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf]")
"""A character as UTF-8 of its two surrogates (CESU-8, as Java and Oracle write it)."""


def _as_one(halves: re.Match[bytes]) -> bytes:
    return halves[0].decode(errors="surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16").encode()


def _whole_character(escape: re.Match[str]) -> str:
    """The escape; U+FFFD instead of half a character, which is grammatical JSON, and which no text can hold."""
    is_half = (escape["high"] and not escape["low"]) or escape["alone"]
    return "\\ufffd" if is_half else escape[0]


def is_too_deep(raw: bytes) -> bool:
    """True if it has more than ``DEEPEST`` levels: such a text is not read."""
    return any(depth > DEEPEST for _, _, depth in _tokens(iter([raw])))


def why_unread(raw: bytes, too_deep: str, otherwise: str) -> Oddity:
    """Of a text that is no object: that it is nested too deep, as the end of the first sentence, or else the second sentence."""
    return ("too-deep", f"{too_deep} {TOO_DEEP}") if is_too_deep(raw) else ("not-json", otherwise)


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
            at = match.end() + 1  # after the quotation mark
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
