"""Bytes → the records that survived, and what is wrong with the rest.

Two kinds of bad bytes, told apart by their cause (LevelDB's log reader does the same):

* A *torn tail* is what a crash leaves of a line nobody acknowledged: bad bytes at the end, after the mark, with nothing
  whole behind them. Recovery cuts it; its bytes are kept in quarantine.
* Anything else is *corrupt*: damage to something acknowledged. It is refused and left alone.

Invariants, which the tests name:

R1  A record that verifies and completes an append is never cut.
R2  Nothing at or before the mark is ever cut.
R3  Reading what recovery left gives the same records and no damage.
R4  The work is linear in the bytes, whatever they hold.

Nothing here does I/O.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import orjson

from transcript_store._conversation.metadata import problem_with_members
from transcript_store._json.times import is_time
from transcript_store._json.words import many
from transcript_store._log.record import (
    FORMAT,
    GENESIS,
    HASH_MEMBER,
    RECORD_HEAD_BYTES,
    SUFFIX_BYTES,
    VERSION,
    Batch,
    Header,
    Mark,
    Position,
    body_batch,
    chain_hash,
    record_seq,
    record_seq_and_time,
)

Kind = Literal[
    "torn-tail",
    "hole",
    "damaged-line",
    "damaged-header",
    "truncated",
    "rewritten",
    "missing",
    "foreign",
    "wrong-conversation",
    "wrong-generation",
    "replaced",
]
"""What can be wrong with a transcript; docs/format.md describes each and the way out."""

_NO_BATCH = Batch(0, 0)
_PLAIN_HEADER = re.compile(
    rb'\{"format":"transcript-store","version":1,"conversation":"([0-9a-f-]{36})","generation":(0|[1-9]\d{0,17}),"at":"[^"]*","metadata":\{'
)
_HEX = re.compile(rb'[0-9a-f]{32}"\}')
_CLOSING_BRACKET = 0x5D


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """The first place where a transcript is not whole."""

    kind: Kind
    reason: str
    offset_bytes: int
    """Where the first line that is not whole begins."""
    line_number: int
    """That line's number, from 1."""
    cut_at_bytes: int = 0
    """For a torn tail: where recovery cuts."""
    line_feed_missing: bool = False
    """For a torn tail: whether what stands before the cut is a whole record that only lacks its LF."""


class Scan(NamedTuple):
    """What a stretch of lines holds: an array of where each complete record begins, and where the last one ends."""

    starts: array[int]
    end: Position
    damage: Damage | None
    stopped: Position
    """The end of the last record that verified: behind ``end`` in the middle of a batch."""

    def moved(self, by_bytes: int) -> Scan:
        """What was found, in a file that has so many bytes more before the buffer. (What ``damage`` says is not moved.)"""
        if by_bytes == 0:
            return self
        starts = array("Q", (start + by_bytes for start in self.starts))
        return Scan(starts, self.end.moved(by_bytes), self.damage, self.stopped.moved(by_bytes))


class Whole(NamedTuple):
    """A line that verifies, found anywhere."""

    start: int
    end: int
    """Where its closing brace ends (its LF, if it has one, comes next)."""
    seq: int
    batch: Batch
    head: bytes
    previous: bytes


class NotAHeader(NamedTuple):
    """Why a first line cannot be read; ``version`` is set when the only reason is that it is a later one."""

    kind: Kind
    reason: str
    version: object = None


def read_header(data: bytes | bytearray) -> tuple[Header, Position] | NotAHeader:
    """The header that a transcript begins with, and the position after it."""
    if not data:
        return NotAHeader("damaged-header", "the file is empty")
    end = data.find(b"\n")
    line = bytes(data[: end if end >= 0 else None])
    if not line.startswith(FORMAT) and HASH_MEMBER not in line[-SUFFIX_BYTES:]:
        return NotAHeader("foreign", f"the first line is not a header of ours: {describe(line)}")
    if end < 0:
        return NotAHeader("damaged-header", "the first line has no end: the header was cut")
    head = chain_hash(GENESIS, line[:-SUFFIX_BYTES])
    if line[-SUFFIX_BYTES:] != HASH_MEMBER + head + b'"}':
        return NotAHeader("damaged-header", f"the header's hash does not match: {describe(line)}")
    try:
        members = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return NotAHeader("damaged-header", f"the header is not JSON: {error.msg}")
    if type(members) is not dict or members.get("format") != "transcript-store":
        return NotAHeader("foreign", "the first line is not a header of ours")
    version, requires = members.get("version"), members.get("requires") or []
    if type(version) is not int or version > VERSION or requires:
        wanted = f"version {version!r:.20}" + (f" with {requires!r:.60}" if requires else "")
        return NotAHeader("foreign", f"the file is of format {wanted}, this program reads version {VERSION}", version)
    problem = _problem_with_header(members)
    if problem:
        return NotAHeader("damaged-header", f"the header is whole, but {problem}")
    header = Header(
        conversation=members["conversation"],
        generation=members["generation"],
        at=members["at"],
        metadata=members["metadata"],
        members=members,
    )
    return header, Position(0, end + 1, head)


def is_header_of(line: bytes | bytearray, conversation: object, generation: object) -> bool:
    """Whether a first line, with its LF, is a whole header of this conversation and generation, as this version writes it.

    Not a word on one that is not: :func:`read_header` tells.
    """
    match = _PLAIN_HEADER.match(line)
    if match is None or (match[1].decode(), int(match[2])) != (conversation, generation) or b'"requires"' in line:
        return False
    body = line[: -SUFFIX_BYTES - 1]
    return line[-SUFFIX_BYTES - 1 :] == HASH_MEMBER + chain_hash(GENESIS, body) + b'"}\n'


def _problem_with_header(members: dict[str, Any]) -> str | None:
    metadata = members.get("metadata")
    if type(metadata) is not dict:
        return "it has no metadata"
    if problem := problem_with_members(metadata):
        return f"of its metadata, {problem}"
    if (members.get("conversation"), members.get("generation")) != (metadata["id"], metadata["generation"]):
        return "its metadata is of another conversation or generation"
    return None if is_time(members.get("at")) else "it has no time"


def scan(buffer: bytes | bytearray, begin: Position, mark: Position) -> Scan:
    """Verify the lines of a transcript from ``begin`` to the end of ``buffer``, which holds the file from its first byte.

    ``mark`` is where the transcript was last known to be synced. The result's ``end`` is the end of the last complete
    append before any damage.
    """
    starts = array("Q")
    seq, start, head = begin
    complete = begin  # where the unfinished batch before `start` begins, if there is one
    open_batch = _NO_BATCH  # the last record of that batch
    find, startswith, append = buffer.find, buffer.startswith, starts.append
    with memoryview(buffer) as view:
        while (end := find(b"\n", start)) >= 0:
            body_end = end - SUFFIX_BYTES
            if body_end <= start:
                break
            digest = sha256(head)
            digest.update(view[start:body_end])
            found = digest.hexdigest()[:32].encode()
            if not startswith(b',"hash":"%b"}' % found, body_end) or not startswith(b'{"seq":%d,' % (seq + 1), start):
                break
            if view[body_end - 1] == _CLOSING_BRACKET or open_batch is not _NO_BATCH:
                batch = body_batch(buffer, start, body_end)
                if not _continues(open_batch, batch):
                    break
                if open_batch is _NO_BATCH:
                    complete = Position(seq, start, head)
                open_batch = _NO_BATCH if batch.k == batch.n else batch
            append(start)
            seq, start, head = seq + 1, end + 1, found
    stopped = Position(seq, start, head)
    if open_batch is _NO_BATCH:
        complete = stopped
    if len(buffer) == stopped.offset_bytes == complete.offset_bytes:
        damage = None
    else:
        damage = _diagnose(buffer, complete, stopped, open_batch, mark)
    del starts[complete.seq - begin.seq :]
    return Scan(starts, complete, damage or _compare_with_mark(begin, complete, mark), stopped)


def _continues(open_batch: Batch, batch: Batch) -> bool:
    return batch.k == open_batch.k + 1 and (open_batch.k == 0 or batch.n == open_batch.n)


def _compare_with_mark(begin: Position, end: Position, mark: Position) -> Damage | None:
    """The lines are whole; are they the ones that were synced at the mark?"""
    if mark.offset_bytes <= begin.offset_bytes:
        return None
    if mark.offset_bytes > end.offset_bytes:
        return Damage(
            kind="truncated",
            reason=f"the transcript ends here, but {many(mark.seq, 'record')} and {many(mark.offset_bytes, 'byte')} of it were synced",
            offset_bytes=end.offset_bytes,
            line_number=end.seq + 2,
        )
    return None


def _diagnose(
    buffer: bytes | bytearray, complete: Position, stopped: Position, open_batch: Batch, mark: Position
) -> Damage:
    """Say what stands at ``stopped``, where the first line that is not whole begins (or the file ends in a batch)."""
    offset, line_number = stopped.offset_bytes, stopped.seq + 2
    line_end = buffer.find(b"\n", offset)
    line = bytes(buffer[offset : line_end if line_end >= 0 else None])
    reason = describe(line) if offset < len(buffer) else "the file ends in the middle of a batch"
    if complete.offset_bytes < mark.offset_bytes:
        # R2. Everything up to the mark was synced, so no crash explains this.
        kind: Kind = "truncated" if len(buffer) < mark.offset_bytes and line_end < 0 else "damaged-line"
        if (
            line_end < 0
            and line[-SUFFIX_BYTES:] == HASH_MEMBER + chain_hash(stopped.head, line[:-SUFFIX_BYTES]) + b'"}'
        ):
            reason = (
                "the last line feed is gone, and the record before it is whole: an editor trimmed the file; put it back"
            )
        return Damage(kind=kind, reason=reason, offset_bytes=offset, line_number=line_number)
    kept = None
    chained, chained_batch = stopped, open_batch
    for whole in whole_lines(buffer, offset, stopped.head):
        if whole.previous == chained.head:
            # R1. Written whole, right behind the last good record; wherever it stands now.
            if whole.seq != chained.seq + 1 or not _continues(chained_batch, whole.batch):
                what = "a record is out of its order"
            elif whole.batch.k < whole.batch.n:
                chained, chained_batch = Position(whole.seq, whole.end, whole.head), whole.batch
                continue
            elif whole.start == offset and (line_end if line_end >= 0 else len(buffer)) - whole.end <= 1:
                kept = whole
                continue
            else:
                what = "a stored record has other bytes before it or behind it"
            return Damage(kind="hole", reason=f"{what}: {reason}", offset_bytes=offset, line_number=line_number)
        if whole.seq <= stopped.seq or whole.seq - whole.batch.k == complete.seq:
            continue  # a stale block, or more of the batch that was being written
        return Damage(
            kind="hole",
            reason=f"bad bytes with a whole record behind them (seq {whole.seq}, byte {whole.start}): {reason}",
            offset_bytes=offset,
            line_number=line_number,
        )
    if kept is not None:
        return Damage(
            kind="torn-tail",
            reason="the last record is whole but for its line feed",
            offset_bytes=offset,
            line_number=line_number,
            cut_at_bytes=kept.end,
            line_feed_missing=True,
        )
    return Damage(
        kind="torn-tail",
        reason=reason,
        offset_bytes=offset,
        line_number=line_number,
        cut_at_bytes=complete.offset_bytes,
    )


def whole_lines(buffer: bytes | bytearray, start: int, head: bytes) -> Iterator[Whole]:
    """Every record at or after ``start`` that verifies, in order.

    A record is found by the end that all records have, begins after the LF before it, and is whole if its hash verifies
    against the 32 bytes that stand at the end of the line before it, or against the hash recomputed for that line (its
    hash may be what was damaged). ``head`` is the hash of the line before ``start``.
    """
    line_start, last_found = start, head
    hashers: list[tuple[bytes, Any]] = [(head, sha256(head))]
    hashed = searched = position = start
    with memoryview(buffer) as view:
        while (position := buffer.find(HASH_MEMBER, position)) >= 0:
            if _HEX.match(buffer, position + len(HASH_MEMBER)) is None:
                position += 1
                continue
            line_feed = buffer.rfind(b"\n", searched, position)
            searched = position
            if line_feed >= 0:
                line_start = hashed = line_feed + 1
                previous = {last_found, *_hashes_of_line_before(buffer, start, line_start, head)}
                hashers = [(candidate, sha256(candidate)) for candidate in previous]
            for _, hasher in hashers:  # hash on from where the last find in this line ended: R4
                hasher.update(view[hashed:position])
            hashed = position
            seq = record_seq(buffer[line_start : line_start + 64])
            for previous_hash, hasher in hashers:
                found = hasher.hexdigest()[:32].encode()
                if seq is not None and buffer[position + 9 : position + 41] == found:
                    batch = body_batch(buffer, line_start, position)
                    last_found = found
                    yield Whole(line_start, position + SUFFIX_BYTES, seq, batch, found, previous_hash)
                    break
            position += len(HASH_MEMBER)


def _hashes_of_line_before(buffer: bytes | bytearray, start: int, line_start: int, head: bytes) -> list[bytes]:
    """The stated and the recomputed hash of the line before ``line_start``."""
    end = line_start - 1
    before = max(buffer.rfind(b"\n", start, end) + 1, start)
    if end - before <= SUFFIX_BYTES:
        return []
    chained_to = head if before == start else bytes(buffer[before - 35 : before - 3])
    stated = bytes(buffer[end - 34 : end - 2])
    recomputed = chain_hash(chained_to, bytes(buffer[before : end - SUFFIX_BYTES]))
    return [stated, recomputed]


def first_append(stretch: bytes | bytearray) -> Position | None:
    """Where the first append begins that is whole in a stretch of a transcript, and whose line before ends in it.

    Nothing is verified: what is said of it (its number, the hash before it) is what stands there.
    """
    start = stretch.find(b"\n", SUFFIX_BYTES) + 1
    while start and (end := stretch.find(b"\n", start)) >= 0:
        body_end = end - SUFFIX_BYTES
        seq = record_seq(stretch[start : start + RECORD_HEAD_BYTES])
        if seq is not None and body_batch(stretch, start, body_end).k == 1:
            return Position(seq - 1, start, bytes(stretch[start - 35 : start - 3]))
        start = end + 1
    return None


class LastRecord(NamedTuple):
    """The last complete append in the end of a transcript."""

    seq: int
    at: str
    end: int
    """Where its line ends in the bytes that were given."""


def last_record(tail: bytes | bytearray) -> LastRecord | None:
    """The last record in the end of a transcript that verifies and completes an append; None if there is none in it.

    It verifies against the hash that stands at the end of the line before it, so that line's end must be there too.
    """
    end = len(tail)
    while (line_feed := tail.rfind(b"\n", 0, end)) >= 0:
        start = tail.rfind(b"\n", 0, line_feed) + 1
        body_end = line_feed - SUFFIX_BYTES
        if start < SUFFIX_BYTES:
            return None
        if body_end > start:
            head = chain_hash(bytes(tail[start - 35 : start - 3]), tail[start:body_end])
            if tail[body_end:line_feed] == HASH_MEMBER + head + b'"}':
                begin = tail[start : start + RECORD_HEAD_BYTES]
                found, batch = record_seq_and_time(begin), body_batch(tail, start, body_end)
                if found is not None and batch.k == batch.n:
                    return LastRecord(*found, line_feed + 1)
        end = start
    return None


def check_mark(mark: Mark, starts: array[int], end: Position, buffer: bytes | bytearray) -> Damage | None:
    """Whether the transcript that verified is the one that the mark remembers (same place, same head)."""
    seq, offset, head = mark.position
    index = bisect_left(starts, offset)
    boundary = starts[index] if index < len(starts) else end.offset_bytes
    if boundary == offset and index == seq and buffer[offset - 35 : offset - 3] == head:
        return None
    return Damage(
        kind="rewritten",
        reason=f"every line verifies, but not as what was synced: the mark remembers seq {seq} at byte {offset} with head {head.decode()}",
        offset_bytes=boundary,
        line_number=index + 2,
    )


def describe(line: bytes) -> str:
    """A sentence on what a bad line looks like; no byte of it is repeated."""
    if not line:
        return "an empty line"
    if line.startswith(b"\xef\xbb\xbf"):
        return "it begins with a byte order mark: an editor wrote this file"
    if b"\0" in line:
        return f"it holds {many(line.count(0), 'NUL byte')}: a power cut or a failing disk leaves such runs"
    if line.endswith(b'"}\r'):
        return "it ends in CR LF: an editor changed the line ends"
    if line.count(b'{"seq":') > 1 and HASH_MEMBER in line[:-SUFFIX_BYTES]:
        return "two records are glued together on one line"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"it is not UTF-8 at its byte {error.start}"
    if line[-SUFFIX_BYTES:][: len(HASH_MEMBER)] != HASH_MEMBER:
        return "it does not end in a hash: it was cut, or something else wrote it"
    return "its hash does not match: it was changed, or a line before it is missing or foreign"
