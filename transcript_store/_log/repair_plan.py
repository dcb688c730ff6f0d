"""Which records of a damaged transcript does a repair keep?

Three answers to "what of this is the conversation?":

* *prefix*: the records before the first damage. Nothing after it, whole or not.
* *salvage*: every record that verifies, wherever it stands, as :func:`damage.parts` finds them. The bytes between them
  are gaps, and are recorded.
* *accept-edits*: every line that is a record by its form. For a transcript with wanted edits by a person.

A kept record gets a new number and a new position in a new chain. Its other bytes stay as they are, unless the line
itself was edited. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import orjson

from transcript_store._json.strict import JSONDecodeError, decode, encode, parse
from transcript_store._json.times import format_time, is_time, parse_time
from transcript_store._log.damage import describe_at, judge
from transcript_store._log.header import NotAHeader, read_header
from transcript_store._log.record import (
    RECORD_HEAD_BYTES,
    RETRACT,
    SEALED,
    SUFFIX_BYTES,
    Copied,
    Gap,
    Record,
    as_record,
    copied,
    copies,
    record_head,
    record_time_us,
    retracts_of,
)
from transcript_store._log.resync import ByteRange, DamagedLine, count_whole, parts, stretches
from transcript_store._log.scan import Read, Walk, first_line
from transcript_store._log.sealed_records import still_sealed
from transcript_store.errors import InvalidMessageError

Mode = Literal["prefix", "salvage", "accept-edits"]
MODES: tuple[Mode, ...] = get_args(Mode)

GAP = "transcript_store.gap"
"""The member of a record's ``extra`` that says that something is missing here."""

_BOM = b"\xef\xbb\xbf"
_EDITED_BYTES = 256 * 2**20
"""A longer line is not taken for a record that a person edited."""
_REPLACED = frozenset({"seq", "at", "clock", "message", "extra", "batch", "hash"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """A stretch of a transcript as :func:`contents` reads it: a record, or bytes that hold none."""

    offset_bytes: int
    length_bytes: int
    record: Record | None
    """None if these bytes cannot be read. Its ``seq`` is the one that the line states, or the next."""
    damage: str | None
    """Why it does not verify, in a sentence. None if it does."""


class RepairPlan(NamedTuple):
    """The parts of a transcript that a repair keeps."""

    records: Callable[[], Iterator[Copied]]
    """Reads the kept records in order. A gap of ``salvage`` and ``accept-edits`` is a record that says so."""
    kept: int
    """How many of them come from the damaged transcript."""
    left_out: int
    """How many records that verify are not kept."""
    gaps: tuple[Gap, ...]
    features: tuple[str, ...] = ()
    """The features that the repaired transcript requires."""


NOTHING = RepairPlan(lambda: iter(()), 0, 0, ())


def plan(read: Read, size: int, mode: Mode, *, at: str, original: str) -> RepairPlan:
    """Decide what to keep of a transcript.

    ``at`` is the time for a record whose own is lost before any is known, ``original`` what a gap's record calls the file.
    """
    if mode == "prefix":
        return _prefix(read, size)
    accepts_edits = mode == "accept-edits"
    kept, gaps = 0, []
    features = _features(read, size)
    needed: set[str] = set()
    for item in _kept(read, size, at, accepts_edits=accepts_edits):
        if isinstance(item, Gap):
            gaps.append(item)
        else:
            kept += 1
            if features is None and retracts_of(item[1].seq or 0, item[1].members) is not None:
                needed.add(RETRACT)  # the header, which says so, is lost

    def records() -> Iterator[Copied]:
        return _with_gaps(_kept(read, size, at, accepts_edits=accepts_edits), at, original)

    return RepairPlan(records, kept, 0, tuple(gaps), tuple(needed) if features is None else features)


def sealed_plan(read: Read, size: int, mode: Mode, generation: int, *, at: str) -> RepairPlan:
    """The same for a sealed transcript of this generation, without its key.

    Whole records are kept unchanged, with the position where they were sealed. Records that are not sealed, or were
    edited, are never kept. No record describes a gap, since it could not be sealed: the other records' numbers skip it.
    """
    whole = _prefix(read, size) if mode == "prefix" else None
    features = (whole.features if whole else None) or _features(read, size) or (SEALED,)

    def records() -> Iterator[Copied]:
        if whole is not None:
            return still_sealed(whole.records(), generation)
        found = (item[1] for item in _kept(read, size, at, accepts_edits=False) if not isinstance(item, Gap))
        return still_sealed(found, generation)

    kept = sum(1 for _ in records())
    if whole is not None:
        return RepairPlan(records, kept, whole.left_out + whole.kept - kept, whole.gaps, features)
    found = [*_kept(read, size, at, accepts_edits=False)]
    gaps = tuple(item for item in found if isinstance(item, Gap))
    return RepairPlan(records, kept, len(found) - len(gaps) - kept, gaps, features)


def _features(read: Read, size: int) -> tuple[str, ...] | None:
    """The features that the transcript requires; None if its header cannot be read."""
    header = read_header(first_line(read, size))
    return None if isinstance(header, NotAHeader) else header[0].features


def contents(read: Read, size: int, *, at: str) -> Iterator[Salvaged]:
    """Everything after the header of a transcript, in order: lines that verify, that are only readable, and that are neither.

    ``at`` is the time for a record whose own is lost before any is known. No record is marked as retracted: its
    retraction follows it.
    """
    seq, can_retract = 0, _may_have_retractions(read, size)
    for item in _kept(read, size, at, accepts_edits=True):
        if isinstance(item, Gap):
            start, length = item.offset_bytes, item.length_bytes
            yield Salvaged(offset_bytes=start, length_bytes=length, record=None, damage=item.reason)
            continue
        (start, end, whole), copy = item
        record = _record(read, start, end, copy, seq + 1, can_retract=can_retract)
        damage = None if whole and record else describe_at(read, start, end)
        yield Salvaged(offset_bytes=start, length_bytes=end - start, record=record, damage=damage)
        seq = seq if record is None else record.seq


def _may_have_retractions(read: Read, size: int) -> bool:
    """True if records may retract others: the header says so, or cannot be read."""
    features = _features(read, size)
    return features is None or RETRACT in features


def _record(read: Read, start: int, end: int, copy: Copied, next_seq: int, *, can_retract: bool) -> Record | None:
    """A record with the number that it states; None if another program that knows the format wrote something else."""
    head = record_head(read(start, min(RECORD_HEAD_BYTES, end - start)))
    seq = next_seq if head is None else head.seq
    named = retracts_of(seq, copy.members) if can_retract else None
    try:
        return as_record(decode(b'{"seq":%d%b}' % (seq, copy.members)), named)
    except JSONDecodeError:
        return None


def _prefix(read: Read, size: int) -> RepairPlan:
    header = read_header(first_line(read, size))
    if isinstance(header, NotAHeader):
        gaps = (Gap(offset_bytes=0, length_bytes=size, reason=header.reason),) if size else ()
        return RepairPlan(lambda: iter(()), 0, count_whole(read, size), gaps)
    begin = header[1]
    walk = Walk(read, begin, size)
    walk.to_the_end()
    damage = judge(read, size, walk, begin)
    end = damage.cut_at_bytes if damage is not None and damage.line_feed_missing else walk.end.offset_bytes
    last = list(stretches(read, end, walk.end))  # a last record that lacks only its line feed
    kept = walk.end.seq + len(last)

    def records() -> Iterator[Copied]:
        for piece in Walk(read, begin, walk.end.offset_bytes):
            yield from copies(piece.data)
        yield from (_copied(read, stretch) for stretch in last)

    features = header[0].features
    if damage is None:
        return RepairPlan(records, kept, 0, (), features)
    whole = ends_at = 0
    for part in parts(read, size):
        whole += sum(stretch.whole is not None for stretch in part.stretches)
        ends_at = part.end  # without its line feed, as a gap of ``salvage`` ends
    # After the kept records only blank lines may follow, or copies of those records: then nothing is lost.
    lost = Gap(offset_bytes=end, length_bytes=ends_at - end, reason=damage.reason) if ends_at > end else None
    return RepairPlan(records, kept, max(0, whole - kept), (lost,) if lost else (), features)


def _kept(read: Read, size: int, at: str, *, accepts_edits: bool) -> Iterator[tuple[ByteRange, Copied] | Gap]:
    """The records that are kept and the gaps between them, in order; gaps without a record between are one."""
    gap: Gap | None = None
    can_retract = accepts_edits and _may_have_retractions(read, size)
    for part in parts(read, size):
        for stretch, copy in _of_part(read, part, at, accepts_edits=accepts_edits, can_retract=can_retract):
            start, end, _ = stretch
            if copy is None and gap is not None:
                gap = replace(gap, length_bytes=end - gap.offset_bytes)
            elif copy is None:
                gap = Gap(offset_bytes=start, length_bytes=end - start, reason=describe_at(read, start, end))
            else:
                if gap is not None:
                    yield gap
                    gap = None
                at = _time_of(copy) or at
                yield stretch, copy
    if gap is not None:
        yield gap


def _of_part(
    read: Read, part: DamagedLine, at: str, *, accepts_edits: bool, can_retract: bool
) -> Iterator[tuple[ByteRange, Copied | None]]:
    """The stretches of a part, each with the record that is kept of it. A part that was edited may be one record."""

    def edited(start: int, end: int) -> Copied | None:
        return _edited(read, start, end, at, can_retract=can_retract) if accepts_edits else None

    if part.stretches[0].whole is None and (one := edited(part.start, part.end)):
        yield ByteRange(part.start, part.end, None), one
        return
    for stretch in part.stretches:
        if stretch.whole is not None:
            yield stretch, _copied(read, stretch)
        else:
            yield stretch, edited(stretch.start, stretch.end)


def _copied(read: Read, stretch: ByteRange) -> Copied:
    return copied(read(stretch.start, stretch.end - stretch.start - SUFFIX_BYTES))


def _edited(read: Read, start: int, end: int, at: str, *, can_retract: bool) -> Copied | None:
    """A record that a person edited, recognized by its form alone; None if it does not have that form."""
    if end - start > _EDITED_BYTES:
        return None
    line = bytes(read(start, end - start))
    if not line.removeprefix(_BOM).startswith(b"{"):
        return None
    try:
        members = parse(line.removeprefix(_BOM))
        if "role" in members and not _REPLACED & members.keys():
            members = {"message": members}  # a message alone, as `echo … >> transcript.jsonl` leaves it
        carried = {key: members[key] for key in ("message", "extra") if type(members.get(key)) is dict}
        named = members.get("retracts")
        retracts = can_retract and type(named) is list and "message" not in carried
        if not carried and not retracts:
            return None
        limit = 6 * len(line) + 64  # no JSON text is longer than that once it is encoded again
        stated = members.get("at")
        if type(stated) is str and is_time(stated) and format_time(parse_time(stated)) == stated:
            at = stated
        content = [b',"at":"%b"' % at.encode()]
        if retracts:
            content.append(b',"retracts":' + orjson.dumps(named))  # where it is in a record; its form is checked there
        content += (b',"%b":%b' % (key.encode(), encode(value, key, limit)) for key, value in carried.items())
        others = {key: value for key, value in members.items() if key not in _REPLACED}
        if retracts:
            del others["retracts"]
        if others:
            content.append(b"," + encode(others, "record", limit)[1:-1])
        seq = members.get("seq")
        return Copied(b"".join(content), seq if type(seq) is int and seq > 0 else 0)
    except InvalidMessageError:
        return None


def _time_of(record: Copied) -> str | None:
    at_us = record_time_us(b'{"seq":1' + record.members[:RECORD_HEAD_BYTES])
    return None if at_us is None else format_time(at_us)


def _with_gaps(found: Iterator[tuple[ByteRange, Copied] | Gap], at: str, original: str) -> Iterator[Copied]:
    """The records, and for each gap one without a message that describes it."""
    for item in found:
        if isinstance(item, Gap):
            gap_note = {
                "offset": item.offset_bytes,
                "bytes": item.length_bytes,
                "reason": item.reason,
                "original": original,
            }
            yield Copied(b',"at":"%b","extra":%b' % (at.encode(), orjson.dumps({GAP: gap_note})), None)
        else:
            at = _time_of(item[1]) or at
            yield item[1]
