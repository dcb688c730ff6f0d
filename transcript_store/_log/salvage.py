"""Damaged bytes → the records that a repair keeps.

Three answers to "what of this is the conversation?":

* *prefix*: what stands before the first damage. Nothing after it, whole or not.
* *salvage*: every record that verifies, wherever it stands: against the end of the line before it (as stated or as
  recomputed), or against the last record that was kept. What lies between is a gap, and is recorded as one.
* *accept-edits*: every line that is a record by its form. For a transcript that a person edited, whose edits are wanted.

Whatever is kept gets a new number and a new place in a new chain; its other bytes stay as they are, unless the line itself
was edited. Nothing here does I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain, pairwise
from typing import Literal, NamedTuple, get_args

import orjson

from transcript_store._json.strict import JSONDecodeError, decode, encode, parse
from transcript_store._json.times import format_time, parse_time
from transcript_store._log import recovery
from transcript_store._log.record import (
    GENESIS,
    RECORD_HEAD_BYTES,
    SUFFIX_BYTES,
    Copied,
    Gap,
    Record,
    as_record,
    chain_hash,
    copied,
    record_seq,
    record_starts,
    record_time_us,
)
from transcript_store.errors import InvalidMessageError

Mode = Literal["prefix", "salvage", "accept-edits"]
MODES: tuple[Mode, ...] = get_args(Mode)

GAP = "transcript_store.gap"
"""The member of a record's ``extra`` that says that something is missing here."""

_GLUE = b'"}{"seq":'
_SPACE = b" \t\r"
_HEADER = re.compile(rb'(?:\xef\xbb\xbf)?\{\s*"format"\s*:\s*"transcript-store"')
_BOM = b"\xef\xbb\xbf"
_ENDS_IN_HASH = re.compile(rb',"hash":"([0-9a-f]{32})"\}')
_REPLACED = frozenset({"seq", "at", "clock", "message", "extra", "batch", "hash"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """A stretch of a transcript as :func:`salvage` reads it: a record, or bytes that hold none."""

    offset_bytes: int
    length_bytes: int
    record: Record | None
    """None: what stands here cannot be read. The ``seq`` is the one that the line states, or the next."""
    damage: str | None
    """Why it does not verify, in a sentence. None: it is as it was stored."""


class Plan(NamedTuple):
    """What a repair keeps of a transcript."""

    records: list[Copied]
    """In their order; where ``salvage`` and ``accept-edits`` leave a gap, a record that says so."""
    kept: int
    """How many of them were records of the damaged transcript."""
    left_out: int
    """How many records that verify are not kept."""
    gaps: tuple[Gap, ...]


class _Piece(NamedTuple):
    """A stretch of a transcript that ends at a line feed, or where a record begins or ends."""

    start: int
    content: bytes
    record: Copied | None
    """What is kept of it; None if it is not a record."""
    is_whole: bool
    """Whether it verifies."""


def plan(buffer: bytes, mode: Mode, *, at: str, original: str) -> Plan:
    """Decide what to keep of a transcript.

    ``at`` is the time for a record whose own is lost before any is known, ``original`` what a gap's record calls the file.
    """
    if mode == "prefix":
        return _prefix(buffer)
    found: list[Copied | Gap] = []
    for piece in _Pieces(buffer, at, accepts_edits=mode == "accept-edits"):
        if piece.record is not None:
            found.append(piece.record)
        elif found and isinstance(last := found[-1], Gap):
            found[-1] = replace(last, length_bytes=piece.start + len(piece.content) - last.offset_bytes)
        else:
            found.append(_gap(piece.start, piece.content))
    gaps = tuple(item for item in found if isinstance(item, Gap))
    return Plan(list(_with_gaps(found, at, original)), len(found) - len(gaps), 0, gaps)


def contents(buffer: bytes, *, at: str) -> Iterator[Salvaged]:
    """Everything behind the header of a transcript, in its order: what verifies, what only reads, and what does neither.

    ``at`` is the time for a record whose own is lost before any is known.
    """
    seq = 0
    unread: Salvaged | None = None
    for piece in _Pieces(buffer, at, accepts_edits=True):
        record = None if piece.record is None else _record(piece, seq + 1)
        if record is None and unread is not None:
            unread = replace(unread, length_bytes=piece.start + len(piece.content) - unread.offset_bytes)
            continue
        found = Salvaged(
            offset_bytes=piece.start,
            length_bytes=len(piece.content),
            record=record,
            damage=None if piece.is_whole and record else recovery.describe(piece.content),
        )
        if record is None:
            unread = found
            continue
        if unread is not None:
            yield unread
            unread = None
        seq = record.seq
        yield found
    if unread is not None:
        yield unread


def _record(piece: _Piece, next_seq: int) -> Record | None:
    """The record of a piece with the number that it states; None if a program that knows the format wrote something else."""
    assert piece.record is not None
    stated = record_seq(piece.content[:RECORD_HEAD_BYTES])
    try:
        return as_record(decode(b'{"seq":%d%b}' % (next_seq if stated is None else stated, piece.record.members)))
    except JSONDecodeError:
        return None


def is_ours(buffer: bytes) -> bool:
    """Whether a file was a transcript once: it begins with a header, edited or damaged, or holds a record that verifies."""
    return _HEADER.match(buffer) is not None or any(piece.is_whole for piece in _Pieces(buffer))


def _prefix(buffer: bytes) -> Plan:
    whole = sum(piece.is_whole for piece in _Pieces(buffer))
    header = recovery.read_header(buffer)
    if isinstance(header, recovery.NotAHeader):
        gaps = (Gap(offset_bytes=0, length_bytes=len(buffer), reason=header.reason),) if buffer else ()
        return Plan([], 0, whole, gaps)
    begin = header[1]
    scan = recovery.scan(buffer, begin, begin)
    damage, kept, end = scan.damage, buffer, scan.end.offset_bytes
    if damage is not None and damage.line_feed_missing:
        end = damage.cut_at_bytes
        kept = buffer[:end] + b"\n"
        scan = recovery.scan(kept, begin, begin)
    ends = [*scan.starts[1:], scan.end.offset_bytes]
    records = [copied(kept[at : to - SUFFIX_BYTES - 1]) for at, to in zip(scan.starts, ends, strict=False)]
    left_out = max(0, whole - len(records))
    if damage is None or end == len(buffer):
        return Plan(records, len(records), left_out, ())
    gap = Gap(offset_bytes=end, length_bytes=len(buffer) - end, reason=damage.reason)
    return Plan(records, len(records), left_out, (gap,))


class _Pieces:
    """Takes a transcript apart behind its header: what is a record, and what is not. Linear in the bytes.

    A record is looked for where a line begins, right behind a record, and where on a line that is not one record something
    begins like one.
    """

    def __init__(self, buffer: bytes, at: str = "", *, accepts_edits: bool = False) -> None:
        self._buffer = buffer
        self._at = at
        self._accepts_edits = accepts_edits
        self._seen: dict[bytes, int] = {}
        """Where the whole record with this hash begins."""
        self._line_before = [GENESIS]
        """The hash of the last line that ends in one: as it stands there, and as recomputed."""
        self._last_whole = GENESIS

    def __iter__(self) -> Iterator[_Piece]:
        """The pieces in their order; a whole record that stands there twice, once; what lies between as ``record`` None."""
        for start, line in _lines(self._buffer):
            header_end = _header_end(line) if start == 0 else 0
            if header_end:
                self._pass(line[:header_end])
            if header_end < len(line):
                yield from self._on_line(start + header_end, line[header_end:])

    def _on_line(self, start: int, line: bytes) -> Iterator[_Piece]:
        """A line, or the part of one that another is glued to: a record, or a record and what is not, or only that."""
        if (found := self._take(start, line)) is not None:
            yield from found
            return
        whole_bytes = self._whole_bytes(line)
        if whole_bytes:
            yield from self._take(start, line[:whole_bytes]) or ()
        starts = record_starts(line, whole_bytes)
        for begin, end in pairwise(chain([whole_bytes], starts, [len(line)])):
            stretch = line[begin:end]
            cut = self._whole_bytes(stretch) or len(stretch)
            for at, content in ((begin, stretch[:cut]), (begin + cut, stretch[cut:])):
                if content and content != line and (found := self._take(start + at, content)) is not None:
                    yield from found
                elif content.strip(_SPACE):
                    self._pass(content)
                    yield _Piece(start + at, content, None, is_whole=False)

    def _take(self, start: int, content: bytes) -> list[_Piece] | None:
        """The record that this is, by its hash or as somebody edited it; nothing if it was there before, None if it is none."""
        stated = content[-34:-2]
        if stated in self._seen and self._buffer.startswith(content, self._seen[stated]):
            self._line_before = [stated]
            return []
        is_whole = self._whole_bytes(content) == len(content)
        if is_whole:
            self._line_before, self._last_whole = [stated], stated
            self._seen[stated] = start
            record = copied(content[:-SUFFIX_BYTES])
        elif self._accepts_edits and (edited := _edited(content, self._at)):
            self._pass(content)
            record = edited
        else:
            return None
        self._at = _time_of(record) or self._at
        return [_Piece(start, content, record, is_whole)]

    def _whole_bytes(self, content: bytes) -> int:
        """The length of the record that this begins with, if that verifies; else 0."""
        if record_seq(content[:RECORD_HEAD_BYTES]) is None:
            return 0
        hashers = [sha256(before) for before in dict.fromkeys((*self._line_before, self._last_whole))]
        hashed = 0
        with memoryview(content) as view:
            for end in _ENDS_IN_HASH.finditer(content):
                for hasher in hashers:
                    hasher.update(view[hashed : end.start()])
                    if hasher.hexdigest()[:32].encode() == end[1]:
                        return end.end()
                hashed = end.start()
        return 0

    def _pass(self, content: bytes) -> None:
        """Go past what is no whole record: the next may be chained to the hash that it ends in, or ought to."""
        if (end := _ENDS_IN_HASH.search(content, max(0, len(content) - SUFFIX_BYTES))) and end.end() == len(content):
            self._line_before = [end[1], chain_hash(self._line_before[0], content[:-SUFFIX_BYTES])]


def _lines(buffer: bytes) -> Iterator[tuple[int, bytes]]:
    """Where each line begins, and the line without the space that an editor put around it; two records that are glued
    together count as two lines.
    """
    line_start = 0
    while line_start < len(buffer):
        line_end = buffer.find(b"\n", line_start)
        line_end = len(buffer) if line_end < 0 else line_end
        start = line_start
        while start < line_end:
            glue = buffer.find(_GLUE, start, line_end)
            end = glue + 2 if glue >= 0 else line_end
            line = buffer[start:end]
            content = line.lstrip(_SPACE)
            if content:
                yield end - len(content), content.rstrip(_SPACE)
            start = end
        line_start = line_end + 1


def _header_end(line: bytes) -> int:
    """The length of the header that a transcript begins with, edited or damaged; 0 if it does not."""
    if _HEADER.match(line) is None:
        return 0
    if line[-34:-2] == chain_hash(GENESIS, line[:-SUFFIX_BYTES]):
        return len(line)
    return next(record_starts(line, 1), len(line))


def _edited(line: bytes, at: str) -> Copied | None:
    """A record as somebody edited it, by its form alone; None if it has not that form."""
    if b'"message"' not in line and b'"extra"' not in line:
        return None
    try:
        members = parse(line.removeprefix(_BOM))
        carried = {key: members[key] for key in ("message", "extra") if type(members.get(key)) is dict}
        if not carried:
            return None
        limit = 6 * len(line) + 64  # no JSON text is longer than that once it is encoded anew
        parts = [b',"at":%b' % orjson.dumps(_valid_time(members.get("at")) or at)]
        parts += (b',"%b":%b' % (key.encode(), encode(value, key, limit)) for key, value in carried.items())
        others = {key: value for key, value in members.items() if key not in _REPLACED}
        if others:
            parts.append(b"," + encode(others, "record", limit)[1:-1])
        return Copied(b"".join(parts))
    except InvalidMessageError:
        return None


def _gap(start: int, content: bytes) -> Gap:
    return Gap(offset_bytes=start, length_bytes=len(content), reason=recovery.describe(content))


def _valid_time(text: object) -> str | None:
    try:
        return text if type(text) is str and format_time(parse_time(text)) == text else None
    except (ValueError, TypeError, OverflowError):
        return None


def _time_of(record: Copied) -> str | None:
    at_us = record_time_us(b'{"seq":1' + record.members[:RECORD_HEAD_BYTES])
    return None if at_us is None else format_time(at_us)


def _with_gaps(found: list[Copied | Gap], at: str, original: str) -> Iterator[Copied]:
    """The records, and for each gap one without a message that tells of it."""
    for item in found:
        if isinstance(item, Copied):
            at = _time_of(item) or at
            yield item
        else:
            extra = {
                GAP: {
                    "offset": item.offset_bytes,
                    "bytes": item.length_bytes,
                    "reason": item.reason,
                    "original": original,
                }
            }
            yield Copied(b',"at":"%b","extra":%b' % (at.encode(), orjson.dumps(extra)))
