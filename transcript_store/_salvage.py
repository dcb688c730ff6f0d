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
from typing import Literal, NamedTuple, get_args

import orjson

from transcript_store import _recovery
from transcript_store._messages import encode, parse
from transcript_store._records import (
    GENESIS,
    RECORD_HEAD_BYTES,
    SUFFIX_BYTES,
    Copied,
    chain_hash,
    copied,
    format_time,
    last_record_start,
    parse_time,
    record_seq,
    record_time_us,
)
from transcript_store.errors import InvalidMessageError

Mode = Literal["prefix", "salvage", "accept-edits"]
MODES: tuple[Mode, ...] = get_args(Mode)

GAP = "transcript_store.gap"
"""The member of a record's ``extra`` that says that something is missing here."""

_GLUE = re.compile(rb'(?<="\})(?=\{"seq":)')
_HEADER = re.compile(rb'(?:\xef\xbb\xbf)?\{\s*"format"\s*:\s*"transcript-store"')
_BOM = b"\xef\xbb\xbf"
_ENDS_IN_HASH = re.compile(rb',"hash":"[0-9a-f]{32}"\}\Z')
_REPLACED = frozenset({"seq", "at", "clock", "message", "extra", "batch", "hash"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Bytes of the damaged transcript that a repair does not keep."""

    offset_bytes: int
    length_bytes: int
    reason: str


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
    """A line without its end, or one of the records that stand on one line."""

    start: int
    line: bytes
    is_whole: bool


def plan(buffer: bytes, mode: Mode, *, at: str, original: str) -> Plan:
    """Decide what to keep of a transcript.

    ``at`` is the time for a record whose own is lost before any is known, ``original`` what a gap's record calls the file.
    """
    pieces = list(_pieces(buffer))
    whole = sum(piece.is_whole for piece in pieces)
    if mode == "prefix":
        return _prefix(buffer, whole)
    found: list[Copied | Gap] = []
    began = at
    for piece in pieces:
        record = copied(piece.line[:-SUFFIX_BYTES]) if piece.is_whole else None
        if record is None and mode == "accept-edits":
            record = _edited(piece.line, at)
        if record is not None:
            at = _time_of(record) or at
            found.append(record)
        elif piece.line:
            gap = Gap(offset_bytes=piece.start, length_bytes=len(piece.line), reason=_recovery.describe(piece.line))
            if found and isinstance(last := found[-1], Gap):
                found[-1] = replace(last, length_bytes=gap.offset_bytes + gap.length_bytes - last.offset_bytes)
            else:
                found.append(gap)
    gaps = tuple(item for item in found if isinstance(item, Gap))
    return Plan(list(_with_gaps(found, began, original)), len(found) - len(gaps), 0, gaps)


def is_ours(buffer: bytes) -> bool:
    """Whether a file was a transcript once: it begins with a header, edited or damaged, or holds a record that verifies."""
    return _HEADER.match(buffer) is not None or any(piece.is_whole for piece in _pieces(buffer))


def _prefix(buffer: bytes, whole: int) -> Plan:
    header = _recovery.read_header(buffer)
    if isinstance(header, _recovery.NotAHeader):
        gaps = (Gap(offset_bytes=0, length_bytes=len(buffer), reason=header.reason),) if buffer else ()
        return Plan([], 0, whole, gaps)
    begin = header[1]
    scan = _recovery.scan(buffer, begin, begin)
    end, starts = scan.end.offset_bytes, [*scan.starts]
    if scan.damage is not None and scan.damage.line_feed_missing:
        starts.append(end)
        end = scan.damage.cut_at_bytes
    ends = [*starts[1:], end + (scan.damage is not None and scan.damage.line_feed_missing)]
    records = [copied(buffer[start : stop - SUFFIX_BYTES - 1]) for start, stop in zip(starts, ends, strict=False)]
    gap = Gap(offset_bytes=end, length_bytes=len(buffer) - end, reason=scan.damage.reason if scan.damage else "")
    return Plan(records, len(records), max(0, whole - len(records)), (gap,) if gap.length_bytes else ())


def _pieces(buffer: bytes) -> Iterator[_Piece]:
    """What stands in a transcript behind its header, damaged or not; a record that stands there twice, once."""
    known: set[bytes] = set()
    chains_to: list[bytes] = [GENESIS]  # what the next record may be chained to; first what the line before it states
    last_whole = b""
    for start, line in _lines(buffer):
        is_header = start == 0 and _HEADER.match(line) is not None
        head = None if is_header else _head(line, [*chains_to, last_whole])
        if head is None and not is_header and (behind := last_record_start(line)) > 0:
            # A line that was cut, and the next one written behind it.
            head = _head(line[behind:], [*chains_to, last_whole])
            if head is not None:
                yield _Piece(start, line[:behind], is_whole=False)
                start, line = start + behind, line[behind:]  # noqa: PLW2901
        if head is not None:
            chains_to, last_whole = [head], head
            if head not in known:
                yield _Piece(start, line, is_whole=True)
            known.add(head)
            continue
        if not is_header:
            yield _Piece(start, line, is_whole=False)
        if _ENDS_IN_HASH.search(line[-SUFFIX_BYTES:]):
            body = line[:-SUFFIX_BYTES].removeprefix(_BOM) if is_header else line[:-SUFFIX_BYTES]
            chains_to = [line[-34:-2], chain_hash(chains_to[0], body)]


def _lines(buffer: bytes) -> Iterator[tuple[int, bytes]]:
    """Where each line starts, and the line: what an editor put at its end is left out, and records that stand on one line
    are taken apart.
    """
    start = 0
    for with_end in buffer.split(b"\n"):
        at = start
        for line in _GLUE.split(with_end.removesuffix(b"\r")):
            yield at, line
            at += len(line)
        start += len(with_end) + 1


def _head(line: bytes, chains_to: list[bytes]) -> bytes | None:
    """The hash of a record that verifies, chained to any of these; None if it does not."""
    if record_seq(line[:RECORD_HEAD_BYTES]) is None or not _ENDS_IN_HASH.search(line[-SUFFIX_BYTES:]):
        return None
    stated = line[-34:-2]
    return stated if any(chain_hash(before, line[:-SUFFIX_BYTES]) == stated for before in chains_to) else None


def _edited(line: bytes, at: str) -> Copied | None:
    """A record as somebody edited it, by its form alone; None if it has not that form."""
    try:
        members = parse(line.removeprefix(_BOM))
        carried = {key: members[key] for key in ("message", "extra") if type(members.get(key)) is dict}
        if not carried:
            return None
        others = {key: value for key, value in members.items() if key not in _REPLACED}
        edited = {"at": _valid_time(members.get("at")) or at, **carried, **others}
        return Copied(b"," + encode(edited, "record", 6 * len(line) + 64)[1:-1])
    except InvalidMessageError:
        return None


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
