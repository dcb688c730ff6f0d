"""How are media moved out of a snapshot's messages, and back in?

A long string that is base64, or a base64 data URI, is kept beside the snapshot under the SHA-256 of its text.
``chatmedia+sha256:<64 hex>`` takes its place. A string that starts like such a reference is moved too, whatever its
length, because it would be read as one. Go's rule decides what is moved (``base64.StdEncoding``, which ignores line
breaks), so that both libraries write the same bytes. Reading does not depend on it.

This works on JSON text in compact form (``_json/verbatim``) and changes nothing but those strings. Nothing here does
I/O.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from hashlib import sha256

from transcript_store._json import verbatim
from transcript_store._json.verbatim import NotJSONError

LEAST_BYTES = 512
"""A shorter string is not moved."""

_REFERENCE = b"chatmedia+sha256:"
_HASH = re.compile(rb"[0-9a-f]{64}")
_STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*)"', re.DOTALL)
_BEGINNING = re.compile(rb'"(?:c(?:hatmedia\+sha256:|[a-z0-9+:]{0,15}\\u00)|d(?:ata:|[at]{0,3}\\u00)|\\u00)')
"""The start of a reference or a data URI; some of its characters may be escaped."""

_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_IN_BASE64 = _BASE64 + b"=\\"
"""The bytes of base64 in JSON: an escape is a backslash, letters, digits and slashes."""

_IS_IN_BASE64 = bytes(b"01"[byte in _IN_BASE64] for byte in range(256))
_STRIDE = 8
_RUN = b"1" * (LEAST_BYTES // _STRIDE)


class BadReferenceError(NotJSONError):
    """A reference to media has no SHA-256 in it, or the media is not text."""


def is_hash(name: str) -> bool:
    """True if this may be the name of media."""
    return _HASH.fullmatch(name.encode("utf-8", "surrogatepass")) is not None


def media_hash(media: bytes) -> str:
    """The name of media with this text."""
    return sha256(media).hexdigest()


def move_out(messages: bytes, keep: Callable[[str, bytes], object]) -> bytes:
    """The messages with references instead of media; ``keep`` is called with the hash and the text of each."""

    def change(value: bytes) -> bytes | None:
        if not value.startswith(_REFERENCE) and not _is_media(value):
            return None
        name = media_hash(value)
        keep(name, value)
        return b'"%b%b"' % (_REFERENCE, name.encode())

    return _change_strings(messages, {*_beginnings(messages), *_long_strings(messages)}, change)


def move_in(messages: bytes, get: Callable[[str], bytes]) -> bytes:
    """The messages with media instead of references; ``get`` returns the text for a hash. Raises ``BadReferenceError``."""

    def change(value: bytes) -> bytes | None:
        if not value.startswith(_REFERENCE):
            return None
        name = value.removeprefix(_REFERENCE)
        if not _HASH.fullmatch(name):
            raise BadReferenceError("a reference to media has no SHA-256 in it")
        try:
            return verbatim.encode_string(get(name.decode()).decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError:
            raise BadReferenceError("a reference leads to a file that is not text") from None

    return _change_strings(messages, set(_beginnings(messages)), change)


def references(messages: bytes) -> set[str]:
    """The hashes of the media that are referred to. Raises ``BadReferenceError``."""
    found: set[str] = set()

    def note(name: str) -> bytes:
        found.add(name)
        return b""

    move_in(messages, note)
    return found


def _change_strings(text: bytes, starts: set[int], change: Callable[[bytes], bytes | None]) -> bytes:
    """The text with other tokens for some strings: those that start at one of these quotation marks, if ``change``
    returns one.

    A mark inside a string does not count. Keys are never changed, as in Go.
    """
    parts: list[bytes] = []
    done = 0
    for start in sorted(starts):
        if text[start - 1 : start] == b"\\":
            continue  # a mark inside a string
        raw = _string_at(text, start)
        end = start + len(raw) + 2
        if text[end : end + 1] == b":":
            continue
        changed = change(json.loads(text[start:end]).encode("utf-8", "surrogatepass") if b"\\" in raw else raw)
        if changed is not None:
            parts += (text[done:start], changed)
            done = end
    return b"".join((*parts, text[done:])) if parts else text


def _beginnings(text: bytes) -> Iterator[int]:
    """Where strings begin that may be a reference or a data URI. Some may be keys."""
    return (match.start() for match in _BEGINNING.finditer(text))


def _long_strings(text: bytes) -> Iterator[int]:
    """Where strings begin that may be long base64. Some may be keys.

    Every eighth byte is checked: 64 bytes in a row that occur in base64 are rare elsewhere. The string lies between the
    two quotation marks around them, because base64 has none inside.
    """
    samples = text[::_STRIDE].translate(_IS_IN_BASE64)
    found = samples.find(_RUN)
    while found >= 0:
        middle = found * _STRIDE
        start, end = text.rfind(b'"', 0, middle + 1), text.find(b'"', middle + 1)
        if (
            start >= 0 and text[start + 1] in _IN_BASE64
        ):  # else no string begins there: the mark ends one, or there is none
            yield start
        found = samples.find(_RUN, max(found + 1, end // _STRIDE)) if end >= 0 else -1


def _string_at(text: bytes, start: int) -> bytes:
    """The text between the quotation marks of the string that starts here, with its escapes."""
    begin = start + 1
    raw = text[begin : text.index(b'"', begin)]
    if b"\\" in raw:
        match = _STRING.match(text, start)
        assert match is not None
        raw = match[1]
    return raw


def _is_media(value: bytes) -> bool:
    if len(value) < LEAST_BYTES:
        return False
    if value.startswith(b"data:") and b";base64," in value:
        return True
    padded = value.translate(None, b"\r\n")
    digits = padded.rstrip(b"=")
    return len(padded) % 4 == 0 and len(padded) - len(digits) <= 2 and not digits.translate(None, _BASE64)
