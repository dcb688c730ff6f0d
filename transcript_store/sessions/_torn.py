r"""Bytes of a torn file of JSON lines → bytes that its program reads, and every change with its place. No I/O.

A line that its program can parse keeps its bytes. Of the others:

* NUL runs, byte order marks and empty lines go; a line that ends in CR LF ends in LF; the last line gets its LF;
* objects on one line become a line each;
* an object whose text holds raw line feeds or other control characters is one line again, with escapes in their place;
* bytes that are not UTF-8 become U+FFFD;
* a torn-off part is unreadable: it is cut. An object after it counts as a line only if it has the members that the lines
  of this file have: a message that was torn holds objects, too, and these are no lines;
* of a torn header, the first line, the whole members stay: without it a program lists nothing of the session;
* U+2028 and U+2029 become escapes where the program takes them for line ends.

A line that names a cut line as its parent gets the parent of that one, or else the line before it: otherwise a program that follows
parents would end its history there.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

_AROUND = b"\x00 \t\r\n"
_MARK = b"\xef\xbb\xbf"
_UTF_16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_SEPARATORS = {"\u2028".encode(): b"\\u2028", "\u2029".encode(): b"\\u2029"}
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_CONTROL = re.compile("[\x00-\x1f]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x00": ""}
_ESCAPED_BYTES = re.compile("[\udc80-\udcff]")
_DECODER = json.JSONDecoder(strict=False)
_MOST_TRIES = 256
"""How many beginnings of an object are tried in one damaged stretch: each may read the rest of it."""
_FEWEST_MEMBERS = 3
"""Of a line, where no whole one says what a line has."""
_EXCERPT = 80
_HEADER = re.compile(
    r'\{(?:"timestamp":"[^"]*",)?(?:"ordinal":\d+,)?"type":"session(?:_meta|\.start)?",|\{"sessionId":"[^"]*","projectHash":"[^"]*",'
)
"""How the first line of Codex, pi, Copilot CLI and Gemini CLI begins. Those of other programs begin with a message."""
_PARENTS = (("uuid", "parentUuid"), ("id", "parentId"))


@dataclass(frozen=True, slots=True)
class Mend:
    """One fault, and its repair."""

    kind: str
    """``torn`` (the only one with which text is lost), ``nul``, ``empty``, ``byte-order-mark``, ``line-end``, ``glued``, ``control``,
    ``separator``, ``not-utf-8``, ``utf-16``, ``parent``."""
    message: str
    line: int
    """From 1, in the original file."""
    offset: int
    """Of the first byte concerned, in the original file."""
    length: int = 0
    """How many bytes were cut; 0 if none were."""
    excerpt: str = ""
    """The beginning of the cut bytes."""


@dataclass(frozen=True, slots=True)
class MendedFile:
    """A repaired file, and its repairs. Without repairs the bytes are the given ones."""

    data: bytes
    mends: tuple[Mend, ...]
    lines: int
    """How many objects the file has now."""


@dataclass(slots=True)
class _FoundObject:
    text: bytes
    ids: tuple[str | None, ...]
    """Its id and its parent's, in each of the two forms."""
    line: int
    offset: int
    torn: list[str] = field(default_factory=list)
    """The bytes cut directly before it."""


def mend_lines(raw: bytes, *, escapes_separators: bool = True) -> MendedFile:
    """Make a file of lines whole. The same bytes always give the same result, and a mended file needs no mend."""
    return _Mending(raw, escapes_separators=escapes_separators).run()


def mend_document(raw: bytes) -> MendedFile | None:
    """Make a file that is one JSON value whole; None if its text is torn, so that no program can read it."""
    found = _Mending(raw, escapes_separators=False)
    text = found.as_utf_8().strip(_AROUND)
    if _strict(text) is not None and text == raw.strip():
        return MendedFile(raw, (), 1)
    decoded = text.decode("utf-8", "surrogateescape")
    try:
        value, end = _DECODER.raw_decode(decoded)
    except (ValueError, RecursionError):
        return None
    if decoded[end:].strip("\x00 \t\r\n"):
        return None
    if found.mends == [] and raw.count(b"\x00"):
        found.note("nul", f"{raw.count(0):,} NUL bytes were removed", 1, len(raw.rstrip(b"\x00")), raw.count(0))
    fixed = _fixed(decoded[:end], in_one_line=False)
    if not found.mends and fixed != text:
        found.note("control", "control characters within a text are escapes now", 1, 0)
    return MendedFile(fixed + b"\n", tuple(found.mends), 1) if value is not None else None


class _Mending:
    def __init__(self, raw: bytes, *, escapes_separators: bool) -> None:
        self._raw = raw
        self._escapes = escapes_separators
        self.mends: list[Mend] = []
        self._objects: list[_FoundObject] = []
        self._torn: list[str] = []
        self._firsts: Counter[str] = Counter()
        self._common: set[str] | None = None
        self._shapes: set[frozenset[str]] = set()
        self._types: set[str] = set()

    def note(self, kind: str, message: str, line: int, offset: int, length: int = 0, excerpt: str = "") -> None:
        self.mends.append(Mend(kind, message, line, offset, length, excerpt[:_EXCERPT]))

    def as_utf_8(self) -> bytes:
        """The bytes without a byte order mark."""
        raw = self._raw
        if encoding := _UTF_16.get(raw[:2]):
            self.note("utf-16", f"the file was written as {encoding.upper()}; it is UTF-8 now", 1, 0)
            return raw[2:].decode(encoding, "replace").encode()
        if raw.startswith(_MARK):
            self.note("byte-order-mark", "a byte order mark was removed", 1, 0, len(_MARK))
            return raw[len(_MARK) :]
        return raw

    def run(self) -> MendedFile:
        text = self.as_utf_8()
        shift = len(self._raw) - len(text) if not self.mends or self.mends[0].kind != "utf-16" else 0
        if not self.mends and (count := _count_whole(text, escapes_separators=self._escapes)) is not None:
            return MendedFile(self._raw, (), count)
        for _, _, line in _lines(text):
            if (value := _strict_object(line.strip(_AROUND))) is not None:
                self._learn(value)
        stretch: list[tuple[int, int, bytes]] = []
        for number, folder_kept, line in _lines(text):
            offset, value = (
                folder_kept + shift,
                _strict_object(line.strip(_AROUND)),
            )  # again: all values would fill the memory
            if value is None and line.strip(_AROUND):
                stretch.append((number, offset, line))
                continue
            if value is None and stretch and not line.strip(b" \t\r\n") and line.endswith(b"\n"):
                stretch.append((number, offset, line))  # an empty line may be one of a text with raw line feeds
                continue
            self._mend_stretch(stretch)
            stretch = []
            if value is None:
                self._drop_blank(number, offset, line)
            else:
                self._keep(number, offset, line, value)
        self._mend_stretch(stretch)
        self._mend_parents()
        if not self.mends:
            return MendedFile(self._raw, (), len(self._objects))
        self.mends.sort(key=lambda mend: mend.offset)
        return MendedFile(b"".join(one.text + b"\n" for one in self._objects), tuple(self.mends), len(self._objects))

    def _learn(self, value: dict[str, Any]) -> None:
        self._firsts[next(iter(value), "")] += 1
        self._common = set(value) if self._common is None else self._common & value.keys()
        self._shapes.add(frozenset(value))
        if isinstance(kind := value.get("type"), str):
            self._types.add(kind)

    def _is_line(self, value: dict[str, Any], torn: str) -> bool:
        """True if an object after a torn beginning has what the lines of this file have, and so is none of what was torn."""
        if self._common is None:  # no line is whole: it is like the beginning, as far as that can be read
            begun = re.match(r'\{\s*"([^"\\]*)"', torn)
            return len(value) >= _FEWEST_MEMBERS and (begun is None or begun[1] == next(iter(value)))
        if self._common and len(self._common) > 1:
            return self._common <= value.keys()
        known = next(iter(value), "") in self._firsts
        return known and (frozenset(value) in self._shapes or value.get("type") in self._types)

    def _drop_blank(self, number: int, offset: int, line: bytes) -> None:
        if zeros := line.count(b"\x00"):
            self.note(
                "nul", f"{zeros:,} NUL bytes, as a power loss leaves them, were removed", number, offset, len(line)
            )
        elif line:
            self.note("empty", "an empty line was removed", number, offset, len(line))

    def _keep(self, number: int, offset: int, line: bytes, value: dict[str, Any]) -> None:
        text = line.removesuffix(b"\n")  # with the spaces of a program that leaves room for a longer title
        if zeros := line.count(b"\x00"):
            text = line.strip(_AROUND)
            self.note("nul", f"{zeros:,} NUL bytes, as a power loss leaves them, were removed", number, offset, zeros)
        elif text.endswith(b"\r"):
            text = text.rstrip(b"\r")
            self.note("line-end", "the line ended in CR LF", number, offset, 1)
        if not line.endswith(b"\n"):
            self.note("line-end", "the last line had no line end: the next one would be glued to it", number, offset)
        self._add(_FoundObject(self._without_separators(text, number, offset), _ids(value), number, offset))

    def _add(self, one: _FoundObject) -> None:
        one.torn, self._torn = self._torn, []
        self._objects.append(one)

    def _without_separators(self, text: bytes, number: int, offset: int) -> bytes:
        if self._escapes:
            for separator, escape in _SEPARATORS.items():
                if separator in text:
                    name = escape.decode().replace("\\u", "U+")
                    count = text.count(separator)
                    self.note("separator", f"{name} in a text is an escape now ({count:,} ×)", number, offset)
                    text = text.replace(separator, escape)
        return text

    # ---- a stretch of lines that are not whole --------------------------------------------------------------------

    def _mend_stretch(self, stretch: Sequence[tuple[int, int, bytes]]) -> None:
        """Find the objects in lines that are none by themselves; cut the rest."""
        if not stretch:
            return
        text = b"".join(line for _, _, line in stretch).decode("utf-8", "surrogateescape")
        folder_kept = _StretchPlace(text, stretch)
        done, at, tries = 0, _skip(text, 0), _MOST_TRIES
        syntax = _Syntax(text)
        while 0 <= at < len(text) and tries:
            decoded = _decoded(text, at)
            before = text[done:at].strip("\x00 \t\r\n\ufeff\u2028\u2029")
            is_new = decoded is not None and (not before or not syntax.takes_value(done, at))
            if decoded is not None and (is_new or self._is_line(decoded[0], before)):
                value, end = decoded
                self._cut(text, done, at, folder_kept)
                self._take(text, at, end, value, folder_kept, is_glued=done > 0 and not _has_line_feed(text[done:at]))
                done, at = end, _skip(text, end)
                continue
            if decoded is None:
                tries -= 1
            at = self._next_candidate(text, at + 1 if decoded is None else decoded[1])
        self._cut(text, done, len(text), folder_kept)

    def _next_candidate(self, text: str, at: int) -> int:
        """Where the next line may begin: at a member that is the first of a whole line of this file."""
        if not self._firsts:
            return text.find('{"', at)
        names = "|".join(re.escape(json.dumps(name)) for name in self._firsts)
        found = re.compile(rf"\{{\s*(?:{names})\s*:").search(text, at)
        return -1 if found is None else found.start()

    def _take(
        self, text: str, start: int, end: int, value: dict[str, Any], folder_kept: _StretchPlace, *, is_glued: bool
    ) -> None:
        number, offset = folder_kept.of(start)
        own = text[start:end]
        if is_glued:
            self.note("glued", "stood on the line of another one, and has a line of its own now", number, offset)
        if _CONTROL.search(own):
            raw_feeds = own.count("\n")
            what = "raw line feeds" if raw_feeds else "control characters"
            self.note("control", f"{what} within a text are escapes now: it is one line again", number, offset)
        if _ESCAPED_BYTES.search(own):
            self.note("not-utf-8", "bytes that are not UTF-8 are U+FFFD now", number, offset)
        fixed = self._without_separators(_fixed(own), number, offset)
        self._add(_FoundObject(fixed, _ids(value), number, offset))
        self._learn(value)

    def _cut(self, text: str, start: int, end: int, folder_kept: _StretchPlace) -> None:
        piece = text[start:end]
        own = piece.strip("\x00 \t\r\n\ufeff\u2028\u2029")
        if not own:
            if "\x00" in piece:
                zeros = piece.count("\x00")
                self.note(
                    "nul",
                    f"{zeros:,} NUL bytes, as a power loss leaves them, were removed",
                    *folder_kept.of(start),
                    zeros,
                )
            return
        number, offset = folder_kept.of(start + piece.find(own[0]))
        # The first line names the session, so its whole members are kept. Any other torn line is cut.
        if not self._objects and _HEADER.match(own) and (closed := _closed(own)) is not None:
            kept, value = closed
            lost = own[kept:].encode("utf-8", "surrogateescape")
            what = f"{len(lost):,} bytes of a torn header were cut; its whole members stay"
            self.note(
                "torn", what, number, offset + len(own[:kept].encode("utf-8", "surrogateescape")), len(lost), own[kept:]
            )
            text_now = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
            self._add(_FoundObject(text_now, _ids(value), number, offset))
            return
        raw = own.encode("utf-8", "surrogateescape")
        shown = own[:_EXCERPT].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        self.note("torn", f"{len(raw):,} bytes of a torn line were cut", number, offset, len(raw), shown)
        self._torn.append(own)

    # ---- parents --------------------------------------------------------------------------------------------------

    def _mend_parents(self) -> None:
        if any(one.torn for one in self._objects):
            for number, (own, parent) in enumerate(_PARENTS):
                self._relink(number * 2, own, parent)

    def _relink(self, at: int, own: str, parent: str) -> None:
        """``at`` says where in the ids of an object its own is; that of its parent is the next."""
        ids = {one.ids[at] for one in self._objects}
        last: str | None = None
        torn: list[tuple[str | None, str | None]] = []  # of each cut line: its id if known, and what replaces it
        for one in self._objects:
            for text in one.torn:
                its_parent = _member(text, parent)
                torn.append((_member(text, own), its_parent if its_parent is not None and its_parent in ids else last))
            named = one.ids[at + 1]
            # Only behind a cut line: a parent that is missing elsewhere is in another file.
            if torn and named is not None and named not in ids:
                new = next((new for known, new in torn if known == named), None)
                if new is None:
                    new = next((new for known, new in reversed(torn) if known is None), torn[-1][1])
                if (text_now := _with_member(one.text, parent, new)) is not None:
                    one.text = text_now
                    self.note(
                        "parent", f"its {parent} was a cut line; it is the line before that now", one.line, one.offset
                    )
            last = one.ids[at] or last


class _Syntax:
    """True if a value may stand at a place of a torn text: then an object there may be a part of it. Each place is read once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._begin = self._at = 0
        self._brackets: list[str] = []
        self._last = ""
        self._is_in_string = False

    def takes_value(self, begin: int, at: int) -> bool:
        """False within a string, where an object would have its quotes escaped, and after a complete value."""
        if begin != self._begin:
            self._begin = self._at = begin
            self._brackets, self._last, self._is_in_string = [], "", False
        while self._at < at and not self._is_in_string:
            character = self._text[self._at]
            if character == '"':
                string = _STRING.match(self._text, self._at, at)
                if string is None:
                    self._is_in_string = True
                    break
                self._at, self._last = string.end(), '"'
                continue
            if character in "{[":
                self._brackets.append(character)
            elif character in "}]" and self._brackets:
                self._brackets.pop()
            if character > " ":
                self._last = character
            self._at += 1
        if self._is_in_string:
            # The string may have an end further on: look again from its beginning the next time.
            self._is_in_string = False
            return False
        return self._last in (":", "[") or (self._last == "," and self._brackets[-1:] == ["["])


class _StretchPlace:
    """From a character of a stretch to the line and the byte of the file."""

    def __init__(self, text: str, stretch: Sequence[tuple[int, int, bytes]]) -> None:
        self._text, self._stretch = text, stretch

    def of(self, at: int) -> tuple[int, int]:
        """The line from 1 and the offset."""
        left = len(self._text[:at].encode("utf-8", "surrogateescape"))
        for number, offset, line in self._stretch:
            if left < len(line):
                return number, offset + left
            left -= len(line)
        number, offset, line = self._stretch[-1]
        return number, offset + len(line)


def _lines(text: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, offset and bytes of each line, with its line end."""
    offset = number = 0
    while offset < len(text):
        end = text.find(b"\n", offset) + 1 or len(text)
        number += 1
        yield number, offset, text[offset:end]
        offset = end


def _count_whole(text: bytes, *, escapes_separators: bool) -> int | None:
    """How many lines a file without a fault has; None if it has one. No value is kept: a session may have gigabytes."""
    if b"\x00" in text or b"\r\n" in text or (text and not text.endswith(b"\n")):
        return None
    if escapes_separators and any(separator in text for separator in _SEPARATORS):
        return None
    count = 0
    for _, _, line in _lines(text):
        if _strict_object(line) is None:
            return None
        count += 1
    return count


def _strict(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, RecursionError):
        pass
    try:
        return json.loads(text.decode())  # NaN and half surrogates, which the program that wrote them may read
    except (ValueError, RecursionError):
        return None


def _strict_object(text: bytes) -> dict[str, Any] | None:
    if not text.startswith(b"{"):
        return None
    value = _strict(text)
    return value if isinstance(value, dict) else None


def _decoded(text: str, at: int) -> tuple[dict[str, Any], int] | None:
    if text[at] != "{":
        return None
    try:
        value, end = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    return (value, end) if isinstance(value, dict) else None


def _skip(text: str, at: int) -> int:
    """The offset after NUL, white space and byte order marks."""
    found = re.compile("[^\x00 \t\r\n\ufeff\u2028\u2029]").search(text, at)
    return len(text) if found is None else found.start()


def _has_line_feed(text: str) -> bool:
    return "\n" in text


def _fixed(text: str, *, in_one_line: bool = True) -> bytes:
    """The text of a JSON value without raw control characters, and in UTF-8."""
    pieces, done = [], 0
    for string in _STRING.finditer(text):
        between = text[done : string.start()]
        pieces.append(_CONTROL.sub(" ", between) if in_one_line else between)
        pieces.append(_CONTROL.sub(lambda found: _SHORT.get(found[0], f"\\u{ord(found[0]):04x}"), string[0]))
        done = string.end()
    between = text[done:]
    pieces.append(_CONTROL.sub(" ", between) if in_one_line else between)
    return _ESCAPED_BYTES.sub("\ufffd", "".join(pieces)).encode("utf-8", "surrogatepass")


def _member(text: str, name: str) -> str | None:
    """A member of a torn text, if it was not torn off."""
    found = re.compile(rf'"{name}"\s*:\s*"([^"\\]*)"').search(text)
    return None if found is None else found[1]


def _closed(text: str) -> tuple[int, dict[str, Any]] | None:
    """Of the beginning of an object what is whole, closed: how many characters that are, and the value. None if nothing is."""
    open_brackets: list[str] = []
    whole: tuple[int, str] | None = None
    at = 0
    while at < len(text):
        character = text[at]
        if character == '"':
            string = _STRING.match(text, at)
            if string is None:
                break
            at = string.end()
            continue
        if character in "{[":
            open_brackets.append("}" if character == "{" else "]")
        elif character in "}]" and open_brackets:
            open_brackets.pop()
        elif character == ",":
            whole = at, "".join(reversed(open_brackets))  # the value before a comma is complete
        at += 1
    if whole is None:
        return None
    value = _strict(_fixed(text[: whole[0]] + whole[1]))
    return (whole[0], value) if isinstance(value, dict) else None


def _ids(value: dict[str, Any]) -> tuple[str | None, ...]:
    found = (value.get(name) for pair in _PARENTS for name in pair)
    return tuple(one if isinstance(one, str) else None for one in found)


def _with_member(text: bytes, name: str, new: str | None) -> bytes | None:
    """The text of an object with another value of a member, and nothing else changed; None if it cannot be done so."""
    value = _strict(text)
    old = json.dumps(name).encode(), json.dumps(value[name]).encode()
    wanted = {**value, name: new}
    for found in re.finditer(re.escape(old[0]) + rb"\s*:\s*" + re.escape(old[1]), text):
        changed = text[: found.start()] + old[0] + b":" + json.dumps(new).encode() + text[found.end() :]
        if _strict(changed) == wanted:
            return changed
    return None
