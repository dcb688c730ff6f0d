"""Bytes → lines with their place: what a program, a crash or a hand left in a file of JSON lines.

A line ends only at LF: a text may hold U+2028 or a form feed. The content of a line is split as far as possible without guessing:

* one JSON object, also after a byte order mark or a run of NUL bytes (a power loss leaves those), and before CR LF;
* several objects without a line end between them, or the start of one and then a whole one (a writer was killed, the next one
  continued): each is a piece, and the pieces' bytes joined are the line;
* an object that is no strict JSON, or none that can be stored: half a character (a lone surrogate), a control character, bytes that are not
  UTF-8, ``NaN``. It is read with U+FFFD, or null, in place of those;
* anything else: a piece without a value. A run of empty lines is one such piece, because it may be as long as the file.

The bytes after the last LF are a line only if they are a whole object. Otherwise they are still being written: the tail.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import orjson

from transcript_store.formats._document import (
    LONGEST_BYTES,
    TOO_DEEP,
    Span,
    is_too_deep,
    parse_object,
    pieces_within,
    read_all,
    read_object,
    why_unread,
)
from transcript_store.formats._members import Json, objects
from transcript_store.formats._packing import pack_line
from transcript_store.formats._plan import ImportFinding, PlannedRecord, Source, SourceHead

PIECE_BYTES = 64 << 10
"""Small enough that the processor's cache holds a piece until its lines are parsed."""
DEFAULT_MAX_LINE_BYTES = 64 << 20
HEAD_BYTES = 64 << 10
_HEAD_LINES = 20
_LONGEST_RUN_BYTES = 1 << 20
"""Of empty lines: so much is stored in one record."""
_TRIES = 64
"""Limits the search for a whole object after a torn start: each ``{"`` may be one, and each try reads the rest."""
_NOTHING = " \t\r\n\x00\ufeff"
"""Characters that may surround an object on its line."""
_AROUND = b"\x00 \t\r\n"
"""Bytes that may surround the text of an object: programs write some, and a power loss leaves NUL bytes."""
_MARK = b"\xef\xbb\xbf"
_BRACE = ord("{")
_DECODER = json.JSONDecoder(strict=False)


class SourceLine(NamedTuple):
    """A line, or a piece of a line that has several."""

    number: int
    """From 1. The pieces of a line have the same number."""
    offset: int
    """Of its first byte in the source."""
    raw: bytes
    """With its line end. Empty if it is longer than the limit: then nothing of it is kept."""
    value: dict[str, Any] | None
    """The object that it holds; None if it holds none."""
    part: int = 0
    """From 0: which piece of its line it is."""
    lines: int = 1
    """The number of lines: more than one for a run of empty lines, of which ``number`` is the first."""

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of all its lines."""
        return (self.number,) if self.lines == 1 else range(self.number, self.number + self.lines)

    @property
    def last(self) -> int:
        """The number of the last of them."""
        return self.number + self.lines - 1


@dataclass(frozen=True, slots=True)
class BytesSource:
    """Bytes as a :class:`Source`: a row of a database, or a part of a file, that has lines or a document of its own."""

    name: str
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]


class SourceLines:
    """The lines of a source, read in pieces. After an iteration ``count``, ``tail`` and ``findings`` are those of the whole."""

    def __init__(self, source: Source, *, max_line_bytes: int = DEFAULT_MAX_LINE_BYTES) -> None:
        self._source = source
        self._limit = max_line_bytes
        self.count = 0
        self.tail = b""
        self.findings: list[ImportFinding] = []

    def __iter__(self) -> Iterator[SourceLine]:
        self.count, self.tail, self.findings = 0, b"", []
        for offset, raw, count in self._raw_lines():
            if raw is not None and count:
                self.count += count
                said = "an empty line" if count == 1 else f"{count:,} empty lines"
                self._find("empty", said, offset, 1 - count)
                yield SourceLine(self.count - count + 1, offset, raw, None, lines=count)
                continue
            value = None if raw is None else _object(raw)
            if value is None and raw is not None and not raw.endswith(b"\n") and object_on(raw) is None:
                self.tail = raw
                self._find("torn", f"{len(raw):,} bytes after the last line end: left for the next import", offset, +1)
                return
            self.count += 1
            if raw is None:
                self._find("too-long", f"a line longer than {self._limit:,} bytes was left out", offset)
                yield SourceLine(self.count, offset, b"", None)
                continue
            if value is not None and raw[0] == _BRACE:
                yield SourceLine(self.count, offset, raw, value)
                continue
            yield from self._unusual(offset, raw, value)

    def _unusual(self, offset: int, raw: bytes, value: dict[str, Any] | None) -> Iterator[SourceLine]:
        start = 0
        if raw.startswith(_MARK) and offset == 0:
            self._find("byte-order-mark", "the file starts with a byte order mark", offset)
            start = len(_MARK)
        text = raw[start:].strip(_AROUND)
        if zeros := raw.count(b"\x00") - text.count(b"\x00"):
            self._find("nul", f"{zeros:,} NUL {'byte' if zeros == 1 else 'bytes'}, as a power loss leaves them", offset)
        if value is None:
            # Programs read such a line, so an import does: events would hide its text from searches. The bytes are kept.
            value, odd = read_object(text)
            for kind, message in odd:
                self._find(kind, message, offset)
        if value is not None or not text:
            yield SourceLine(self.count, offset, raw, value)
            return
        pieces = _apart(raw)
        if len(pieces) > 1:
            whole = sum(piece is not None for _, piece in pieces)
            self._find("glued", f"{len(pieces)} pieces on one line, {whole} of them whole", offset)
        elif is_too_deep(text):
            self._find("too-deep", f"a line that is {TOO_DEEP}", offset)
        elif (why := why_no_json(text)) is None:
            self._find("not-an-object", "a JSON value that is not an object", offset)
        else:
            self._find("not-json", f"this is not readable JSON: {why}", offset)
        for part, (piece, found) in enumerate(pieces):
            yield SourceLine(self.count, offset, piece, found, part)
            offset += len(piece)

    def _raw_lines(self) -> Iterator[tuple[int, bytes | None, int]]:
        """Each line with its offset and 0, or a run of empty lines with their number. None for a line above the limit."""
        offset = position = 0
        held: list[bytes] = []
        length = 0
        run: list[bytes] = []
        run_bytes = 0
        while position < self._source.size:
            piece = self._source.read(position, min(PIECE_BYTES, self._source.size - position))
            if not piece:
                break  # the file was cut meanwhile
            position += len(piece)
            *ends, rest = piece.split(b"\n")
            for end in ends:
                length += len(end) + 1
                whole = b"".join((*held, end, b"\n")) if held else end + b"\n"
                if whole.isspace() and length <= self._limit:
                    run.append(whole)
                    run_bytes += length
                elif run:
                    yield offset - run_bytes, b"".join(run), len(run)
                    run, run_bytes = [], 0
                if not run:
                    yield offset, None if length > self._limit else whole, 0
                offset, held, length = offset + length, [], 0
                if run_bytes >= _LONGEST_RUN_BYTES:
                    yield offset - run_bytes, b"".join(run), len(run)
                    run, run_bytes = [], 0
            length += len(rest)
            if length > self._limit:
                held = []
            elif rest:
                held.append(rest)
        if run:
            yield offset - run_bytes, b"".join(run), len(run)
        if length:
            yield offset, None if length > self._limit else b"".join(held), 0

    def _find(self, kind: str, message: str, offset: int, later: int = 0) -> None:
        self.findings.append(ImportFinding(kind, message, self.count + later, offset))


def head_of(source: Source) -> SourceHead:
    """The head of a source."""
    start = source.read(0, min(HEAD_BYTES, source.size))
    whole = start if len(start) == source.size else start[: start.rfind(b"\n") + 1]
    lines = (
        line for line in whole.split(b"\n")[:_HEAD_LINES] if not_utf8_at(line) is None
    )  # or it is in another encoding
    found = [value for line in lines if (value := object_on(line)) is not None]
    if not found and len(start) < source.size and start.removeprefix(_MARK).lstrip(b"\x00 \t\r\n")[:1] in (b"{", b""):
        # The first line is longer than the head: a message with a picture, or a run of NUL. The first object is sufficient.
        later = (line.value for line in islice(SourceLines(source), _HEAD_LINES))
        found = [*islice((value for value in later if value is not None), 1)]
    return SourceHead(source.name, start, tuple(found))


def object_on(raw: bytes) -> dict[str, Any] | None:
    """The object on a line, or on a piece of one, as ``SourceLines`` finds it there; None if it holds none."""
    return parse_object(raw.removeprefix(_MARK).strip(_AROUND))


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(raw)
    except (orjson.JSONDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def why_no_json(raw: bytes) -> str | None:
    """The parser's error and its place; None for JSON. It quotes nothing of the text but a byte that is not UTF-8."""
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        if (at := not_utf8_at(raw)) is not None:  # the parser does not tell the place
            return f"byte 0x{raw[at]:02x} is not UTF-8, at byte {at + 1:,}"
        return f"{error.msg}, at character {error.pos + 1:,}"
    return None


def not_utf8_at(raw: bytes) -> int | None:
    """The offset of the first byte that is not UTF-8; None if there is none."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def _apart(raw: bytes) -> list[tuple[bytes, dict[str, Any] | None]]:
    """The pieces of a line: whole objects, and the text between them. Joined they are the line.

    An object after a torn start may be part of it, such as a tool's answer. It counts as a line only if it ends the line, or
    another object follows.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return [(raw, None)]
    pieces: list[tuple[bytes, dict[str, Any] | None]] = []
    done = 0  # how much of the text is in pieces
    tries = _TRIES
    at = text.find("{")
    while at >= 0 and tries:
        try:
            _, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            tries -= 1
            at = text.find('{"', at + 1)
            continue
        before = text[done:at].strip(_NOTHING)
        if before and text[end:].lstrip(_NOTHING)[:1] not in ("", "{"):
            at = text.find('{"', end)
            continue
        if text[done:at].strip():
            pieces.append((text[done:at].encode(), None))
            done = at
        whole = text[done:end].encode()
        pieces.append((whole, parse_object(whole)))  # Python's decoder would accept NaN, and halves of characters
        done = end
        at = text.find("{", end)
    rest = text[done:]
    if pieces and not rest.strip():
        last, value = pieces[-1]
        pieces[-1] = (last + rest.encode(), value)
    else:
        pieces.append((rest.encode(), None))
    return pieces


# ---- kept ----
#
# The lines of a source, for random access: a tree is walked from its last leaf, and read from its root.

_IN_MEMORY_BYTES = 16 << 20
"""A source up to this size is kept in memory; of a larger one only the places of its lines, which are read again.

Lines are decoded again each time: that is faster than keeping the objects, which Python's collector would traverse.
"""
_WITH_VALUES_BYTES = 256 << 10
"""Up to this size the decoded objects are kept too: there are few for the collector, and most sessions are small."""


class KeptLines(SourceLines):
    """All pieces of all lines, by their place from 0. Nothing is known before :meth:`read` was gone through."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._whole: list[SourceLine] | None = [] if source.size <= _WITH_VALUES_BYTES else None
        self._held: list[bytes] | None = [] if source.size <= _IN_MEMORY_BYTES else None
        self._places = array("q")  # number, part, offset, length of each: four of them take less than one object

    def read(self) -> Iterator[SourceLine]:
        """Every piece, in order. Once only."""
        for line in self:
            if self._whole is not None:
                self._whole.append(line)
            else:
                self._places.extend((line.number, line.part, line.offset, len(line.raw)))
                if self._held is not None:
                    self._held.append(line.raw)
            yield line

    def __len__(self) -> int:
        return len(self._places) // 4 if self._whole is None else len(self._whole)

    def __getitem__(self, place: int) -> SourceLine:
        if self._whole is not None:
            return self._whole[place]
        number, part, offset, length = self._places[4 * place : 4 * place + 4]
        raw = self._source.read(offset, length) if self._held is None else self._held[place]
        if raw.isspace():
            return SourceLine(number, offset, raw, None, part, raw.count(b"\n"))
        return SourceLine(number, offset, raw, object_on(raw), part)

    def number(self, place: int) -> int:
        """Of its line, from 1."""
        return self._places[4 * place] if self._whole is None else self._whole[place].number

    def offset(self, place: int) -> int:
        """Of its first byte."""
        return self._places[4 * place + 2] if self._whole is None else self._whole[place].offset

    def finding(self, kind: str, message: str, place: int) -> ImportFinding:
        return ImportFinding(kind, message, self.number(place), self.offset(place))

    def event(self, place: int) -> Iterator[PlannedRecord]:
        """A line that a model does not receive; nothing if none of its bytes were kept, which a finding reports."""
        line = self[place]
        if not line.raw:
            return
        at = line.value.get("timestamp") if line.value is not None else None
        packed = pack_line(line.number, line.raw, line.value, part=line.part)
        yield PlannedRecord(None, {"source": {"lines": [packed]}}, at if isinstance(at, str) else None, line.numbers)


# ---- nearly ----
#
# Text that is nearly lines of JSON objects: what it is, and what makes a file of it that can be imported.
#
# A tool printed such a file again, or an old program or another system wrote it. It is not read as it is: a line ends at LF and has
# one object, and an export must return the same bytes (F3).

_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_ARRAY = re.compile(rb"\[\s*\{")
_SPREAD = re.compile(rb'\{\s*\n\s*"[^"\n]*"\s*:')
_SAYS_WHO = frozenset({"role", "type", "sender", "author", "message"})
_SPEAKS = re.compile(rb'"(?:role|type)"\s*:')
"""What every format of lines has. Without it a command would make lines of a file that cannot be imported: of settings, or of the
other files in an export.
"""
_MAKES = "makes a file of it that can be imported"


def in_another_encoding(head: SourceHead) -> str | None:
    """Why a source whose first line is not UTF-8 cannot be read, and a command that converts it; None if any line can be read."""
    first, end, _ = head.start.partition(b"\n")
    is_whole = bool(end) or len(head.start) < HEAD_BYTES
    if head.objects or not is_whole or (at := not_utf8_at(first)) is None:
        return None
    return (
        f"is not UTF-8 (byte 0x{first[at]:02x} on its first line): if it is Latin-1, iconv -f LATIN1 -t UTF-8 {_MAKES}"
    )


def nearly_json_lines(head: SourceHead) -> str | None:
    """Why a source that is nearly lines of objects cannot be read, and the hint; None if it is such lines, or not like them."""
    if head.start.startswith(_UTF16):
        return f"is text in UTF-16, and JSON is UTF-8: iconv -f UTF-16 -t UTF-8 {_MAKES}"
    text = head.start.removeprefix(b"\xef\xbb\xbf").lstrip(b"\x00 \t\r\n")
    if not text and len(head.start) < HEAD_BYTES:
        return "holds nothing but NUL bytes, as a power loss leaves them" if b"\x00" in head.start else "is empty"
    if head.objects or text[:1] not in (b"{", b"["):
        return None
    if (_ARRAY.match(text) or _SPREAD.match(text)) and _SPEAKS.search(text):
        one, follows = _first_of(text) or ({}, "{")
        # The first line of a log may be its header. An array, or one document, without a speaker is another program's.
        if follows.startswith("{") or not _SAYS_WHO.isdisjoint(one):
            if text[:1] == b"[":
                return "is one JSON array, and not an object a line: jq -c '.[]' makes lines of it"
            return f"has JSON over several lines, as jq prints it, and not an object a line: jq -c . {_MAKES}"
        if text[:1] == b"{" and any({"role", "content"} <= each.keys() for each in objects(one.get("messages"))):
            return f"is one document, and not an object a line: jq -c '.messages[]' {_MAKES}"
    if (said := in_another_encoding(head)) is not None:
        return said
    first, end, _ = text.partition(b"\n")
    if object_on(first.partition(b"\r")[0]) is not None:
        return f"has lines that end in CR alone, and not in LF: tr '\\r' '\\n' {_MAKES}"
    is_whole = bool(end) or len(head.start) < HEAD_BYTES
    if text[:1] == b"{" and is_whole and not _SPREAD.match(text) and (why := why_no_json(first)) is not None:
        return f"has no readable object on its first lines; the error of the first one: {why}"
    return None


def _first_of(text: bytes) -> tuple[Json, str] | None:
    """The first object of an array, or of a text, and what follows it; None if it is longer than what was read of it."""
    try:
        said = text.removeprefix(b"[").decode(errors="replace").lstrip()
        first, end = json.JSONDecoder().raw_decode(said)
    except (ValueError, RecursionError):
        return None
    return (first, said[end:].lstrip()) if isinstance(first, dict) else None


# ---- document lines ----
#
# One JSON document as lines: everything before its messages is the first line, and each message is a line.
#
# The document is an object with its messages in a member, or an array of messages. The lines joined are its bytes.

_TWICE = "the document has its messages twice: the last of the two were read, as JSON's readers do; its bytes are kept"


def objects_on(said: object) -> list[Json]:
    """The objects of an array, or of its JSON text; none if it cannot be read."""
    if isinstance(said, (str, bytes)):
        raw = said.encode(errors="surrogatepass") if isinstance(said, str) else said
        said = (parse_object(b'{"":%s}' % raw) or {}).get("")
    return objects(said)


def lines_of_document(source: Source, member: str = "messages") -> tuple[list[SourceLine], list[ImportFinding]]:
    """The document's lines and its faults: first a line with everything but the messages, then one for each message.

    A document that cannot be read is one line without a value; one that is too long is a line without bytes. One that has the
    member twice is one line, whose value includes the messages.
    """
    if source.size > LONGEST_BYTES:
        message = f"a document longer than {LONGEST_BYTES:,} bytes was left out"
        return [SourceLine(1, 0, b"", None)], [ImportFinding("too-long", message, 1, 0)]
    raw = read_all(source, Span(0, source.size))
    text = raw.removeprefix(_MARK)
    around = b'{"%s":' % member.encode() if text.lstrip()[:1] == b"[" else b""
    text = around + text + b"}" if around else text
    value, odd = read_object(text)
    if value is None:
        why = why_unread(raw, "the document is", "the document is not a JSON object, or is cut off")
        return [SourceLine(1, 0, raw, None)], [ImportFinding(*why, 1, 0)]
    findings = [ImportFinding(kind, message, 1, 0) for kind, message in odd]
    messages = objects(value.get(member))
    about = {name: found for name, found in value.items() if name != member}
    pieces = pieces_within(text, member)
    # The pieces come from the text and the messages from the parser, which drops the first of two equal members.
    if len(pieces) != 1 + len(messages):
        return [SourceLine(1, 0, raw, value)], [*findings, ImportFinding("twice", _TWICE, 1, 0)]
    if around:  # what was put around an array is taken off again
        pieces[0] = (0, pieces[0][1].removeprefix(around))
        pieces[-1] = (pieces[-1][0], pieces[-1][1].removesuffix(b"}"))
    pieces[0] = (0, raw[: len(raw) - len(raw.removeprefix(_MARK))] + pieces[0][1])
    lines, at = [], 0
    for number, ((_, piece), found) in enumerate(zip(pieces, [about, *messages], strict=True), 1):
        lines.append(SourceLine(number, at, piece, found))
        at += len(piece)
    return lines, findings
