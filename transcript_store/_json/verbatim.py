r"""How is JSON kept as text? It is checked and reformatted without being decoded.

A snapshot's messages are another program's JSON. Decoding and encoding them would lose the order and the repetition of
keys, integers beyond 64 bits, and how numbers are written; so they stay bytes. Two forms of the same tokens:

* *compact*, in memory: no white space, and ``< > &``, U+2028 and U+2029 written ``\u003c \u003e \u0026 \u2028 \u2029``;
* *indented*, on disk: the same with two spaces a level, as Go's ``json.MarshalIndent`` writes it, without a last LF.

``msgspec`` checks and lays out; it holds every token to RFC 8259. It refuses one thing that JSON allows: an escaped
surrogate without its other half (``"\ud800"``, observed with msgspec 0.22). They are masked before msgspec sees the
text, and restored afterwards.

Nothing here does I/O.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NoReturn, TypeVar

import orjson

from transcript_store._json import strict
from transcript_store._json.strict import EncodedMessage, outside_json

MAX_DEPTH = 500
"""Levels of nesting a snapshot's JSON may have (an empty innermost one not counted): half of what Python's parser reads."""

MAX_DIGITS = 4300
"""Digits an integer may have: those that Python reads (CPython's ``sys.int_info.default_max_str_digits``)."""

_PIECE_BYTES = 4096

_T = TypeVar("_T")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_TO_SHIELD = re.compile(
    rb"(?P<kept>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[^u])|"
    rb"\\(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|\x7f"
)
_SHIELDED = re.compile(rb"\x7f([01])")
_SEPARATORS = re.compile("\u2028|\u2029".encode())


class NotJSONError(ValueError):
    """A text that is not JSON, or that this store does not carry; the message is a reason without a subject."""


def compact(text: bytes, *, is_unicode: bool = False) -> bytes:
    """The compact form of any JSON text, or of one that is known to be UTF-8; raises ``NotJSONError``."""
    if not is_unicode:
        check_unicode(text)
    deep = b"\n" + b" " * (MAX_DEPTH + 1)
    if deep in _laid_out(text, 1):
        _too_deep()
    return escape(_laid_out(text, -1))


def indented(text: bytes) -> bytes:
    """The indented form of a text in compact form."""
    return _laid_out(text, 2)


def members(text: bytes) -> dict[str, bytes]:
    """The members of a JSON object, each as it is written; of a repeated key the last. Raises ``NotJSONError``.

    They are buffers on the text, because it may be long. :func:`decode` and :func:`compact` take them; ``bytes()`` copies one.
    """
    import msgspec

    check_unicode(text)
    return _shielded(text, lambda shielded: msgspec.json.decode(shielded, type=dict[str, msgspec.Raw]))


def elements(text: bytes) -> Iterator[bytes]:
    """The elements of a JSON array, none of ``null``: each as it is written, copied on iteration, none decoded."""
    import msgspec

    found = _shielded(text, lambda shielded: msgspec.json.decode(shielded, type=list[msgspec.Raw] | None) or [])
    return map(bytes, found)


def as_message(element: bytes, name: str) -> EncodedMessage:
    """A message in compact form as a transcript has it: the result of ``encode_compact(parse(element))``.

    Raises ``InvalidMessageError``, with this name for the message, for what a transcript cannot hold.
    """
    try:
        value = orjson.loads(element)
        encoded = orjson.dumps(value)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass
    else:
        # orjson would drop a repeated key, and make a float of a long integer: then the text differs.
        is_same = encoded == element or escape(encoded) == element
        if (
            is_same
            and type(value) is dict
            and outside_json(value, max_depth=strict.MAX_DEPTH, max_nodes=sys.maxsize) is None
        ):
            return EncodedMessage(strict.fitted(encoded))
    return EncodedMessage(strict.encode(strict.parse(element, name), name, sys.maxsize))


def count_elements(text: bytes) -> int | None:
    """How many elements a JSON array has, none of them decoded; None if it is not an array."""
    import msgspec

    if not text.lstrip(b" \t\r\n").startswith(b"["):
        return None
    return _shielded(text, lambda shielded: len(msgspec.json.decode(shielded, type=list[msgspec.Raw])))


def outline(text: bytes, array: str, names: tuple[str, ...]) -> tuple[dict[str, bytes], list[bytes]]:
    """Some members of a JSON object, each as it is written, and the elements of one that is an array.

    The same as :func:`members` and :func:`elements`, in one pass over the text; all of them are buffers on it. A member
    that is absent is ``null``. An array that is null or absent has no elements; anything else in its place raises
    ``NotJSONError``.
    """
    check_unicode(text)
    decoder = _outline_decoder(array, names)

    def work(shielded: bytes) -> tuple[dict[str, bytes], list[bytes]]:
        found = decoder.decode(shielded)
        elements = getattr(found, array)
        if elements is not None and type(elements) is not list:
            raise NotJSONError(f"has {array} that are neither an array nor null")
        return {name: getattr(found, name) for name in names}, elements or []

    return _shielded(text, work)


@cache
def _outline_decoder(array: str, names: tuple[str, ...]) -> Any:
    from msgspec import Raw, defstruct
    from msgspec.json import Decoder

    anything = list[Raw] | dict[str, Raw] | str | float | bool | None  # of a key that is repeated, the last counts
    return Decoder(defstruct("Outline", [(array, anything, None), *((name, Raw, Raw(b"null")) for name in names)]))


def compact_length(elements: list[bytes]) -> int:
    """The length of an array of these elements in compact form, before anything is escaped."""
    return len(_laid_out(b"[%b]" % b",".join(elements), -1))


def decode(text: bytes) -> Any:
    """A checked text as Python values; numbers with a fraction or an exponent are floats. Raises ``NotJSONError``."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        pass  # a lone surrogate, an exponent beyond a float's, or nothing that could be decoded
    try:
        return json.loads(bytes(text).decode("utf-8"), parse_int=_integer)
    except RecursionError:
        _too_deep()


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise NotJSONError(f"holds an integer of {len(digits):,} digits")
    return int(digits)


def encode_compact(value: Any) -> bytes:
    """A Python value in compact form; raises ``NotJSONError`` for what would not come back equal."""
    try:
        encoded = orjson.dumps(value)
    except orjson.JSONEncodeError:
        return _encode_slowly(value)
    # orjson writes tuples, dataclasses, NaN and more, but changes them.
    is_plain = outside_json([value], max_depth=MAX_DEPTH, max_nodes=sys.maxsize) is None
    return escape(encoded) if is_plain else _encode_slowly(value)


def encode_decoded(element: Any) -> bytes:
    """What was decoded from JSON as an element of an array in compact form, without :func:`escape`; raises ``NotJSONError``."""
    try:
        return orjson.dumps(element)
    except orjson.JSONEncodeError:  # it nests too deeply for orjson
        return _encode_slowly([element])[1:-1]


def _encode_slowly(value: Any) -> bytes:
    """The same for what ``orjson`` does not accept: long integers, more levels, subclasses. Any other value raises with
    its reason.
    """
    try:
        encoded = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
        comes_back = bool(decode(encoded) == value)
    except NotJSONError:
        raise
    except UnicodeEncodeError:
        raise NotJSONError("holds a lone surrogate, which UTF-8 cannot carry") from None
    except (TypeError, ValueError) as error:
        raise NotJSONError(f"is not a plain JSON value: {error}") from None
    except RecursionError:
        _too_deep()
    if not comes_back:
        raise NotJSONError("holds something that JSON would give back changed (a tuple, a key that is not a str)")
    return compact(encoded)


def encode_string(text: str) -> bytes:
    """A string in compact form; a lone surrogate is escaped, as only JSON can carry it."""
    encoded = json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")
    # surrogatepass let through three bytes that start with ED A0..BF: no valid character does.
    surrogate = rb"\xed[\xa0-\xbf][\x80-\xbf]"
    return escape(re.sub(surrogate, lambda found: b"\\u%04x" % ord(found[0].decode("utf-8", "surrogatepass")), encoded))


def escape(text: bytes) -> bytes:
    """Escape the characters that Go escapes in JSON. They occur only in strings, and never after a backslash."""
    text = text.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    if _SEPARATORS.search(text):  # 0.4 ms for 1.7 MB; two calls of replace take 11
        text = text.replace("\u2028".encode(), b"\\u2028").replace("\u2029".encode(), b"\\u2029")
    return text


def check_unicode(text: bytes) -> None:
    """Raise ``NotJSONError`` for bytes that are not UTF-8; in chunks that stay in the processor's cache."""
    done = len(text) if text.isascii() else 0
    with memoryview(text) as view:
        while done < len(text):
            end = done + _PIECE_BYTES
            try:
                done += codecs.utf_8_decode(view[done:end], "strict", end >= len(text))[1]
            except UnicodeDecodeError:
                raise NotJSONError("is not UTF-8") from None


def _laid_out(text: bytes, indent: int) -> bytes:
    import msgspec

    return _shielded(text, lambda shielded: msgspec.json.format(shielded, indent=indent))


def _shielded(text: bytes, work: Callable[[bytes], _T]) -> _T:
    r"""Let msgspec process a text; if it refuses, a second time with masked lone surrogates.

    A masked ``\ud800`` is a DEL, ``1`` and ``ud800``; every DEL of the text is a DEL and ``0``. Raises
    ``NotJSONError``.
    """
    import msgspec

    try:
        try:
            return work(text)
        except msgspec.DecodeError:
            if not _SURROGATE.search(text):
                raise
        shield = _TO_SHIELD.sub(lambda it: it["kept"] or (b"\x7f1" + it["lone"] if it["lone"] else b"\x7f0"), text)
        shielded: _T = _restored(work(shield))
        return shielded
    except msgspec.DecodeError as error:
        raise NotJSONError(f"is not JSON: {error}") from None
    except RecursionError:
        _too_deep()


def _restored(found: Any) -> Any:
    """The same value with the masked parts of its texts restored."""
    if isinstance(found, tuple):
        return tuple(map(_restored, found))
    if isinstance(found, list):
        return list(map(_restored, found))
    if isinstance(found, dict):
        return {key: _restored(text) for key, text in found.items()}
    if isinstance(found, int):
        return found
    return _SHIELDED.sub(lambda match: b"\\" if match[1] == b"1" else b"\x7f", found)


def _too_deep() -> NoReturn:
    raise NotJSONError(f"nests more than {MAX_DEPTH} levels deep") from None
