"""Finds the damage of a transcript file, and its cause.

Bad bytes have one of two causes, as in LevelDB's log reader:

* A *torn tail* is what a crash leaves of an unfinished append: bad bytes at the end, after the mark, with no whole
  record after them. Recovery cuts it; its bytes are kept in quarantine.
* Anything else is *corrupt*: damage to something acknowledged. The file is refused and not changed.

Damage to the last records after the mark looks like a torn tail. So recovery may cut acknowledged records there.

Invariants, which the tests name:

R1  A record that verifies and completes an append is never cut.
R2  Nothing at or before the mark is ever cut.
R3  Reading what recovery left gives the same records and no damage.

``resync`` finds the whole records after the damage. Nothing here does I/O: the caller passes a :data:`Read`.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from typing import Literal, NamedTuple, NoReturn

import orjson

from transcript_store._log.record import FORMAT, HASH_MEMBER, SUFFIX_BYTES, Position
from transcript_store._log.resync import ByteRange, stretches
from transcript_store._log.scan import Read, Walk, continues, read_chunks
from transcript_store.display import many

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
    "not-genuine",
    "unkeyed-repair",
]
"""The kinds of damage of a transcript; docs/format.md describes each of them with a hint."""

_SAMPLE_BYTES = 1 << 20
_LINES_BYTES = 16 * 2**20
"""A person appends no more than that by hand."""
_BEGINNING_BYTES = 64
"""Enough to see that most tails are not JSON, without reading all of them."""
_BLANK = b" \t\r\n"
_SPACE = re.compile(r"[ \t\r\n]*")


class Damage(NamedTuple):
    """The first position where a transcript is not whole, and why."""

    kind: Kind
    reason: str
    place: Position
    """Where the first line that is not whole starts."""
    cut_at_bytes: int = 0
    """For a torn tail: where recovery cuts."""
    line_feed_missing: bool = False
    """For a torn tail: True if the bytes before the cut are a whole record that lacks only its LF."""

    @property
    def line_number(self) -> int:
        """The number of the line that starts there: the first line is 1, and is the header."""
        return self.place.seq + 2


def check(read: Read, size: int, begin: Position, mark: Position) -> tuple[Damage | None, Position]:
    """Verify a whole file after its header. Return the damage, if any, and the end of the last complete append before
    it.

    ``mark`` is the last position that is known to be synced; ``begin`` if none is known.
    """
    walk = Walk(read, begin, size)
    at_the_mark = begin  # or the first boundary of a record after it
    for piece in walk:
        if at_the_mark.offset_bytes < mark.offset_bytes:
            at_the_mark = piece.boundary(bisect_left(piece.starts, mark.offset_bytes - piece.begin.offset_bytes))
    damage = judge(read, size, walk, mark)
    # Damage before the mark already explains why the mark is not reached as it was noted.
    if at_the_mark != mark and (damage is None or damage.place.offset_bytes >= mark.offset_bytes):
        # The chain is not keyed: a process that can write the file can write another history that verifies.
        what = f"the mark remembers seq {mark.seq} at byte {mark.offset_bytes} with head {mark.head.decode()}"
        damage = Damage("rewritten", f"every line verifies, but not as what was synced: {what}", at_the_mark)
    return damage, walk.end


def judge(read: Read, size: int, walk: Walk, mark: Position) -> Damage | None:
    """The damage at the position where a walk through the file stopped; None if it reached the end and the mark.

    ``mark`` is the last position that is known to be synced.
    """
    complete, stopped = walk.end, walk.stopped
    offset = stopped.offset_bytes
    # Everything verifies, but the mark may lie beyond the end: synced records are missing. No crash does that, so this
    # is "truncated", never a torn tail (R2).
    if complete.offset_bytes >= size:
        if max(mark.offset_bytes, complete.offset_bytes) <= size:
            return None
        synced = f"{many(mark.seq, 'record')} and {many(mark.offset_bytes, 'byte')} of it were synced"
        return Damage("truncated", f"the transcript ends here, but {synced}", complete)
    line_end = _find_line_feed(read, offset, size)
    reason = describe_at(read, offset, size if line_end is None else line_end)
    if offset == size:
        reason = "the file ends in the middle of a batch"
    if complete.offset_bytes < mark.offset_bytes:
        # R2. Everything up to the mark was synced, and a crash removes no synced bytes. So this is not a torn tail.
        kind: Kind = "truncated" if size < mark.offset_bytes and line_end is None else "damaged-line"
        if line_end is None and _is_whole_but_for_its_line_feed(read, stopped, size):
            reason = "the record is whole, but its line feed, which was synced, is gone: something trimmed the file; add the line feed"
        return Damage(kind, reason, stopped)
    found = _torn_or_hole(read, size, walk, reason, line_end)
    # A torn tail is cut. Whole lines of JSON are data that someone wrote, so they are refused instead (P13).
    if found.kind == "torn-tail" and _is_foreign(read, offset, size):
        return Damage(
            "foreign",
            "lines of JSON, but not records of this format: another program or a person appended them",
            stopped,
        )
    return found


def _torn_or_hole(read: Read, size: int, walk: Walk, reason: str, line_end: int | None) -> Damage:
    """Classify bad bytes after the mark: a torn tail, unless a whole record follows them that a crash cannot explain."""
    complete, stopped = walk.end, walk.stopped
    kept: ByteRange | None = None
    chained, chained_batch = stopped, walk.batch
    for stretch in stretches(read, size, stopped):
        start, end, whole = stretch
        if whole is None:
            continue
        if whole.previous == chained.head:
            # R1. This record was written whole, directly after the last good one. It counts wherever it is now: an
            # editor may have put something before it (a blank line), which does not make it part of a torn tail.
            if whole.seq != chained.seq + 1 or not continues(chained_batch, whole.batch):
                return Damage("hole", f"a record is out of order: {reason}", stopped)
            if whole.batch.k < whole.batch.n:
                chained, chained_batch = Position(whole.seq, end, whole.head), whole.batch
            elif start == stopped.offset_bytes and (size if line_end is None else line_end) - end <= 1:
                # The page with the line feed was lost, or is stale and has one other byte there. The record stays, the
                # byte goes to quarantine, and recovery writes the line feed again.
                kept = stretch
            else:
                return Damage("hole", f"a stored record has other bytes before or after it: {reason}", stopped)
        elif whole.seq > stopped.seq and whole.seq - whole.batch.k != complete.seq:
            # Record k of the batch under way has seq == complete.seq + k, and a reused block holds records with an
            # older seq. Neither was acknowledged. Any other whole record was, so the bad bytes before it are damage and
            # must not be cut (R1).
            what = f"bad bytes with a whole record after them (seq {whole.seq}, byte {start})"
            return Damage("hole", f"{what}: {reason}", stopped)
    if kept is not None:
        return Damage(
            "torn-tail", "the last record lacks only its line feed", stopped, kept.end, line_feed_missing=True
        )
    if line_end is not None and read(stopped.offset_bytes, 7) == b'{"seq":':
        # After the mark, an interrupted write cannot be distinguished from a record that was damaged later.
        reason = f"{reason}; the line is terminated, so it may have been acknowledged"
    return Damage("torn-tail", reason, stopped, complete.offset_bytes)


def _find_line_feed(read: Read, offset: int, size: int) -> int | None:
    for piece in read_chunks(read, offset, size):
        if (found := piece.find(b"\n")) >= 0:
            return offset + found
        offset += len(piece)
    return None


def _is_whole_but_for_its_line_feed(read: Read, before: Position, size: int) -> bool:
    """True if the rest of the file is one record without its line feed."""
    found = list(stretches(read, size, before))
    if len(found) != 1 or found[0].whole is None:
        return False
    return found[0].end == size and found[0].whole.previous == before.head


def _is_foreign(read: Read, start: int, size: int) -> bool:
    """True if the rest of the file is objects in JSON up to a line feed, of which no line starts or ends as ours do.

    No crash leaves that: a crash leaves part of what was written, an earlier line of ours, or a block that ends
    anywhere. Blank lines between them, and an object over several lines, are how a person or ``jq`` writes.
    """
    beginning = bytes(read(start, min(_BEGINNING_BYTES, size - start)))
    if size - start > _LINES_BYTES or beginning.lstrip(_BLANK)[:1] not in (b"{", b""):
        return False
    rest = bytes(read(start, size - start))
    if not rest.strip(_BLANK):
        return False
    # A stale sector can change the first member of a line of ours and leave JSON; the line still ends in a hash.
    *lines, end = rest.split(b"\n")
    is_ours = [line.startswith((b'{"seq":', FORMAT)) or line[-SUFFIX_BYTES:].startswith(HASH_MEMBER) for line in lines]
    if end or any(is_ours):
        return False
    filled = [line for line in lines if line.strip(_BLANK)]
    try:
        return all(type(orjson.loads(line)) is dict for line in filled)
    except orjson.JSONDecodeError:
        return _are_objects(b"\n".join(filled))


def _are_objects(data: bytes) -> bool:
    """True if data are objects in JSON, one after the other, each of any number of lines."""
    try:
        text, at = data.decode(), 0
        while (start := _SPACE.match(text, at).end()) < len(text):  # type: ignore[union-attr]  # it matches nothing, too
            found, at = _JSON.raw_decode(text, start)
            if type(found) is not dict:
                return False
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_JSON = json.JSONDecoder(parse_int=float, parse_constant=_refuse)  # an int of 5,000 digits is JSON, too


def describe_at(read: Read, start: int, end: int) -> str:
    """:func:`describe` for a line of a file; of a very long line only the start is examined."""
    if end - start <= _SAMPLE_BYTES:
        return describe(bytes(read(start, end - start)))
    sample = bytes(read(start, _SAMPLE_BYTES))
    if b"\0" in sample:
        return f"it has {end - start:,} bytes, NUL bytes among them: a power cut or a failing disk leaves such runs"
    return f"it has {end - start:,} bytes and does not verify"


def describe(line: bytes) -> str:
    """One sentence about what a bad line looks like; it repeats none of the line's bytes."""
    if not line:
        return "an empty line"
    if line.startswith(b"\xef\xbb\xbf"):
        return "it starts with a byte order mark: an editor wrote this file"
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
