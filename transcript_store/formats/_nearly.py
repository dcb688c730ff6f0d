"""Text that is nearly lines of JSON objects: what it is, and what makes a file of it that can be imported.

People have such files: a tool printed them anew, an old program or another system wrote them. None is read as it is, for a line
ends at LF and holds one object, and what came in has to come out again (F3).
"""

from __future__ import annotations

import re

from transcript_store.formats._lines import HEAD_BYTES, not_utf8_at, object_on, why_no_json
from transcript_store.formats._plan import Head

_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_ARRAY = re.compile(rb"\[\s*\{")
_SPREAD = re.compile(rb'\{\s*\n\s*"[^"\n]*"\s*:')
_MAKES = "makes a file of it that can be imported"


def in_another_encoding(head: Head) -> str | None:
    """What a source is whose first line is not UTF-8, and a command that helps; None if it is UTF-8, or if other lines can be read."""
    first, end, _ = head.start.partition(b"\n")
    is_whole = bool(end) or len(head.start) < HEAD_BYTES
    if head.objects or not is_whole or (at := not_utf8_at(first)) is None:
        return None
    return (
        f"is not UTF-8 (byte 0x{first[at]:02x} on its first line): if it is Latin-1, iconv -f LATIN1 -t UTF-8 {_MAKES}"
    )


def nearly_lines(head: Head) -> str | None:
    """What a source is whose beginning nearly is lines of objects, and the way out; None if it is lines of them, or nothing like them."""
    if head.start.startswith(_UTF16):
        return f"is text in UTF-16, and JSON is UTF-8: iconv -f UTF-16 -t UTF-8 {_MAKES}"
    text = head.start.removeprefix(b"\xef\xbb\xbf").lstrip(b"\x00 \t\r\n")
    if not text and len(head.start) < HEAD_BYTES:
        return "holds nothing but NUL bytes, as a power loss leaves them" if b"\x00" in head.start else "is empty"
    if head.objects or text[:1] not in (b"{", b"["):
        return None
    if _ARRAY.match(text):
        return "is one JSON array, and not an object a line: jq -c '.[]' makes lines of it"
    if _SPREAD.match(text):
        return f"has JSON over several lines, as jq prints it, and not an object a line: jq -c . {_MAKES}"
    if (said := in_another_encoding(head)) is not None:
        return said
    first, end, _ = text.partition(b"\n")
    if object_on(first.partition(b"\r")[0]) is not None:
        return f"has lines that end in CR alone, and not in LF: tr '\\r' '\\n' {_MAKES}"
    is_whole = bool(end) or len(head.start) < HEAD_BYTES
    if text[:1] == b"{" and is_whole and (why := why_no_json(first)) is not None:
        return f"has no object on its first lines that can be read; of the first it is said: {why}"
    return None
