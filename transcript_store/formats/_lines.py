r"""Bytes → lines with their place: what a program, a crash or a hand left in a file of JSON lines.

A line ends at LF and nowhere else: a text may hold U+2028 or a form feed. What stands on a line is told apart as far as that
can be done without guessing:

* one JSON object, also behind a byte order mark or a run of NUL bytes (a power loss leaves those), and before CR LF;
* several objects glued together, or the beginning of one and then a whole one (a writer was killed, the next one went on):
  each is a piece of its own, and the pieces' bytes joined are the line;
* an object that is no strict JSON, or none that can be stored: half a character (``\ud83d``), a control character, bytes that are not
  UTF-8, ``NaN``. It is read with U+FFFD, or null, in place of those;
* anything else: a piece without a value. Empty lines that follow one another are one such piece: they say nothing, and a run of them
  may be as long as the file.

What stands behind the last LF is taken only if it is a whole object. Otherwise it is still being written: the tail.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import orjson

from transcript_store.formats._document import TOO_DEEP, is_too_deep, parsed, read_object
from transcript_store.formats._plan import Finding, Head, Source

PIECE_BYTES = 64 << 10
"""Small enough that the processor's cache holds a piece until its lines are parsed."""
DEFAULT_MAX_LINE_BYTES = 64 << 20
HEAD_BYTES = 64 << 10
_HEAD_LINES = 20
_LONGEST_RUN_BYTES = 1 << 20
"""Of empty lines: so much is stored in one record."""
_TRIES = 64
"""How often a whole object is looked for in vain behind a torn beginning: each ``{"`` may be one, and each try reads the rest."""
_NOTHING = " \t\r\n\x00\ufeff"
"""What may stand before and behind an object that is a line of its own."""
_AROUND = b"\x00 \t\r\n"
"""What may stand before and behind the text of an object, where programs write one and a power loss leaves NUL bytes."""
_MARK = b"\xef\xbb\xbf"
_BRACE = ord("{")
_DECODER = json.JSONDecoder(strict=False)


class Line(NamedTuple):
    """A line, or a piece of one on which several things stand."""

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
    """How many lines it stands for: more than one of a run of empty lines, whose first one has the number."""

    @property
    def numbers(self) -> Sequence[int]:
        """Of all lines for which it stands."""
        return (self.number,) if self.lines == 1 else range(self.number, self.number + self.lines)

    @property
    def last(self) -> int:
        """The number of the last of them."""
        return self.number + self.lines - 1


class Lines:
    """The lines of a source, read in pieces. After an iteration ``count``, ``tail`` and ``findings`` are those of the whole."""

    def __init__(self, source: Source, *, max_line_bytes: int = DEFAULT_MAX_LINE_BYTES) -> None:
        self._source = source
        self._limit = max_line_bytes
        self.count = 0
        self.tail = b""
        self.findings: list[Finding] = []

    def __iter__(self) -> Iterator[Line]:
        self.count, self.tail, self.findings = 0, b"", []
        for offset, raw, count in self._raw_lines():
            if raw is not None and count:
                self.count += count
                said = "an empty line" if count == 1 else f"{count:,} empty lines"
                self._find("empty", said, offset, 1 - count)
                yield Line(self.count - count + 1, offset, raw, None, lines=count)
                continue
            value = None if raw is None else _object(raw)
            if value is None and raw is not None and not raw.endswith(b"\n") and object_on(raw) is None:
                self.tail = raw
                self._find("torn", f"{len(raw):,} bytes behind the last line end: left for the next time", offset, +1)
                return
            self.count += 1
            if raw is None:
                self._find("too-long", f"a line longer than {self._limit:,} bytes was left out", offset)
                yield Line(self.count, offset, b"", None)
                continue
            if value is not None and raw[0] == _BRACE:
                yield Line(self.count, offset, raw, value)
                continue
            yield from self._unusual(offset, raw, value)

    def _unusual(self, offset: int, raw: bytes, value: dict[str, Any] | None) -> Iterator[Line]:
        start = 0
        if raw.startswith(_MARK) and offset == 0:
            self._find("byte-order-mark", "the file begins with a byte order mark", offset)
            start = len(_MARK)
        text = raw[start:].strip(_AROUND)
        if zeros := raw.count(b"\x00") - text.count(b"\x00"):
            self._find("nul", f"{zeros:,} NUL {'byte' if zeros == 1 else 'bytes'}, as a power loss leaves them", offset)
        if value is None:
            value, odd = read_object(text)
            for kind, message in odd:
                self._find(kind, message, offset)
        if value is not None or not text:
            yield Line(self.count, offset, raw, value)
            return
        pieces = _apart(raw)
        if len(pieces) > 1:
            whole = sum(piece is not None for _, piece in pieces)
            self._find("glued", f"{len(pieces)} pieces on one line, {whole} of them whole", offset)
        elif is_too_deep(text):
            self._find("too-deep", f"a line that is {TOO_DEEP}", offset)
        elif (why := why_no_json(text)) is None:
            self._find("not-an-object", "a JSON value that is no object", offset)
        else:
            self._find("not-json", f"this is no JSON that can be read: {why}", offset)
        for part, (piece, found) in enumerate(pieces):
            yield Line(self.count, offset, piece, found, part)
            offset += len(piece)

    def _raw_lines(self) -> Iterator[tuple[int, bytes | None, int]]:
        """Each line with its offset and 0, or a run of empty lines with their number.

        None instead of a line that is longer than the limit.
        """
        offset = position = 0
        held: list[bytes] = []
        length = 0
        run: list[bytes] = []
        run_bytes = 0
        while position < self._source.size:
            piece = self._source.read(position, min(PIECE_BYTES, self._source.size - position))
            if not piece:
                break  # somebody cut the file meanwhile: what was read is what there is
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
        self.findings.append(Finding(kind, message, self.count + later, offset))


def head_of(source: Source) -> Head:
    """How a source begins."""
    start = source.read(0, min(HEAD_BYTES, source.size))
    whole = start if len(start) == source.size else start[: start.rfind(b"\n") + 1]
    lines = (
        line for line in whole.split(b"\n")[:_HEAD_LINES] if not_utf8_at(line) is None
    )  # or it is in another encoding
    found = [value for line in lines if (value := object_on(line)) is not None]
    if not found and len(start) < source.size and start.removeprefix(_MARK).lstrip(b"\x00 \t\r\n")[:1] in (b"{", b""):
        # The first line is longer than the head: a message with a picture, or a run of NUL. The first object stands for all.
        later = (line.value for line in islice(Lines(source), _HEAD_LINES))
        found = [*islice((value for value in later if value is not None), 1)]
    return Head(source.name, start, tuple(found))


def object_on(raw: bytes) -> dict[str, Any] | None:
    """The object on a line, or on a piece of one, as ``Lines`` finds it there; None if it holds none."""
    return parsed(raw.removeprefix(_MARK).strip(_AROUND))


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(raw)
    except (orjson.JSONDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def why_no_json(raw: bytes) -> str | None:
    """What the parser says of a text, and where; None if it is JSON. It quotes nothing of the text but a byte that is no UTF-8."""
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        if (at := not_utf8_at(raw)) is not None:  # the parser does not say where
            return f"byte 0x{raw[at]:02x} is not UTF-8, at byte {at + 1:,}"
        return f"{error.msg}, at character {error.pos + 1:,}"
    return None


def not_utf8_at(raw: bytes) -> int | None:
    """Where the first byte stands that is not UTF-8; None if all are."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def _apart(raw: bytes) -> list[tuple[bytes, dict[str, Any] | None]]:
    """The pieces of a line: whole objects, and what stands between them. Joined they are the line.

    An object behind a torn beginning may be a part of what was torn: what a tool answered, say. It counts as a line that a program
    wrote only if nothing, or another object, follows it on the line.
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
        pieces.append((whole, parsed(whole)))  # not what Python's decoder says: it takes NaN, and halves of characters
        done = end
        at = text.find("{", end)
    rest = text[done:]
    if pieces and not rest.strip():
        last, value = pieces[-1]
        pieces[-1] = (last + rest.encode(), value)
    else:
        pieces.append((rest.encode(), None))
    return pieces
