"""Media out of a snapshot's messages, and back in.

A long string that is base64, or a base64 data URI, is kept beside the snapshot under the SHA-256 of its text, and
``chatmedia+sha256:<64 hex>`` stands in its place. So does, whatever its length, a string that itself begins like such a
reference: it would be taken for one. The rule for what is moved is Go's (``base64.StdEncoding``, which passes over line
breaks), so that both libraries write the same bytes; reading does not depend on it.

Works on JSON text in compact form (``_opaque``) and changes nothing but those strings. Nothing here does I/O.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from hashlib import sha256

from transcript_store import _opaque

LEAST_BYTES = 512
"""Shorter strings stay where they are."""

_REFERENCE = b"chatmedia+sha256:"
_HASH = re.compile(rb"[0-9a-f]{64}")
_STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"(:?)', re.DOTALL)
_BASE64 = re.compile(rb"[A-Za-z0-9+/]*+={0,2}")


class BadReferenceError(ValueError):
    """A reference to media without a SHA-256 in it, or media that is not text."""


def is_hash(name: str) -> bool:
    """Whether a name is one that media is kept under."""
    return _HASH.fullmatch(name.encode("utf-8", "surrogatepass")) is not None


def hash_of(media: bytes) -> str:
    """The name that media is kept under."""
    return sha256(media).hexdigest()


def move_out(messages: bytes, keep: Callable[[str, bytes], object]) -> bytes:
    """Put references in the place of media; ``keep`` gets the hash and the text of each."""

    def change(value: bytes) -> bytes | None:
        if not value.startswith(_REFERENCE) and not _is_media(value):
            return None
        name = hash_of(value)
        keep(name, value)
        return b'"%b%b"' % (_REFERENCE, name.encode())

    return _change_strings(messages, change)


def move_in(messages: bytes, get: Callable[[str], bytes]) -> bytes:
    """Put media back in the place of references; ``get`` gives the text for a hash. Raises ``BadReferenceError``."""

    def change(value: bytes) -> bytes | None:
        if not value.startswith(_REFERENCE):
            return None
        name = value.removeprefix(_REFERENCE)
        if not _HASH.fullmatch(name):
            raise BadReferenceError("a reference to media has no SHA-256 in it")
        try:
            return _opaque.encode_string(get(name.decode()).decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError:
            raise BadReferenceError("a reference leads to something that is not text") from None

    return _change_strings(messages, change)


def references(messages: bytes) -> set[str]:
    """The hashes of the media that are referred to. Raises ``BadReferenceError``."""
    found: set[str] = set()

    def note(name: str) -> bytes:
        found.add(name)
        return b""

    move_in(messages, note)
    return found


def _change_strings(text: bytes, change: Callable[[bytes], bytes | None]) -> bytes:
    """Let ``change`` give another token for a string, or None to keep it. Keys are passed over, as they are in Go."""

    def token(match: re.Match[bytes]) -> bytes:
        raw, colon = match.groups()
        # What begins neither like a reference nor with an escape, and is short, cannot be meant.
        if colon or (len(raw) < LEAST_BYTES and raw[:1] not in (b"c", b"\\")):
            return match[0]
        value = json.loads(match[0]).encode("utf-8", "surrogatepass") if b"\\" in raw else raw
        changed = change(value)
        return match[0] if changed is None else changed

    return _STRING.sub(token, text)


def _is_media(value: bytes) -> bool:
    if len(value) < LEAST_BYTES:
        return False
    if value.startswith(b"data:") and b";base64," in value:
        return True
    digits = value.translate(None, b"\r\n")
    return len(digits) % 4 == 0 and _BASE64.fullmatch(digits) is not None
