"""Which records verify, from a position whose hash is known?

:func:`scan` looks at bytes in memory, :class:`Walk` at a range of a file, chunk by chunk. Neither says what is wrong
with the rest: ``damage`` does. Nothing here does I/O: the caller passes a :data:`Read`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import NamedTuple

from transcript_store._json.times import is_time
from transcript_store._log.record import (
    HASH_MEMBER,
    LONGEST_METADATA_BYTES,
    RECORD_HEAD_BYTES,
    SINGLE,
    SUFFIX_BYTES,
    Batch,
    Position,
    body_batch,
    chain_hash,
    record_head,
)

Read = Callable[[int, int], bytearray]
"""Reads from an offset up to so many bytes; fewer only at the end of the file. The bytes may come from anywhere."""

PIECE_BYTES = 1 << 18
"""This fits into a processor's cache, so a chunk is hashed and decoded while it is cached."""

NO_BATCH = Batch(0, 0)
_MARK = b',"batch":[%d,%d]'
"""How the body of a record of a batch ends. Nothing else can look like this at a body's end: see ``body_batch``."""
_CLOSING_BRACKET = 0x5D


class Scan(NamedTuple):
    """The result of a scan: where each verified record starts in the bytes, and where the complete appends end in the
    file.
    """

    starts: array[int]
    """The starts of all records up to ``stopped``. Those after ``end`` belong to an unfinished batch."""
    end: Position
    """The end of the last complete append."""
    stopped: Position
    """The end of the last record that verified: after ``end`` in the middle of a batch."""
    batch: Batch
    """The last record of that unfinished batch; ``NO_BATCH`` if there is none."""


def scan(buffer: bytes | bytearray, begin: Position, open_batch: Batch = NO_BATCH) -> Scan:
    """Verify the lines in ``buffer``, whose first byte is at ``begin`` in the file, up to the first that is not whole.

    ``open_batch`` is the last record before ``begin`` if it is in the middle of a batch.
    """
    return resume(buffer, begin.offset_bytes, Scan(array("Q"), begin, begin, open_batch))


def resume(buffer: bytes | bytearray, base: int, before: Scan) -> Scan:
    """Continue a scan of the beginning of ``buffer``, whose first byte has the offset ``base``, where it stopped.

    No line is hashed twice, so a batch of any length is verified in linear time. ``before.starts`` is extended.
    """
    starts, complete, (seq, offset, head), (k, n) = before
    start = offset - base
    find, startswith, endswith, append = buffer.find, buffer.startswith, buffer.endswith, starts.append
    due = _MARK % (k + 1, n) if k < n else b""
    with memoryview(buffer) as view:
        while (end := find(b"\n", start)) >= 0:
            body_end = end - SUFFIX_BYTES
            if body_end <= start:
                break
            digest = sha256(head)
            digest.update(view[start:body_end])
            found = digest.hexdigest()[:32].encode()
            if not startswith(b',"hash":"%b"}' % found, body_end) or not startswith(b'{"seq":%d,' % (seq + 1), start):
                break  # the hash vouches for the bytes and for all lines before; the number, for a person, must agree
            # Most lines have no ``batch`` member and are recognized by their last byte. A batch counts only when its
            # last record is here: a crash may have left its first records, and a batch is stored completely or not at
            # all.
            if due:
                if not endswith(due, start, body_end):
                    break
                k += 1
                due = _MARK % (k + 1, n) if k < n else b""
            elif view[body_end - 1] == _CLOSING_BRACKET and (batch := body_batch(buffer, start, body_end)) != SINGLE:
                # A record from within a batch whose first records are not before it: this is not what was appended.
                if batch.k != 1:
                    break
                complete, (k, n) = Position(seq, base + start, head), batch
                due = _MARK % (2, n)
            append(start)
            seq, start, head = seq + 1, end + 1, found
    stopped = Position(seq, base + start, head)
    # Within a batch `end` stays before its first record: a batch is stored completely or not at all (P3).
    return Scan(starts, complete, stopped, Batch(k, n)) if due else Scan(starts, stopped, stopped, NO_BATCH)


def continues(open_batch: Batch, batch: Batch) -> bool:
    """True if a record may follow the last one of an unfinished batch, or of none."""
    return batch.k == open_batch.k + 1 and (open_batch.k == 0 or batch.n == open_batch.n)


class VerifiedChunk(NamedTuple):
    """A range of complete appends that verify: the bytes from ``begin`` to ``end``, and where each record starts in them."""

    begin: Position
    data: bytes | bytearray
    starts: array[int]
    end: Position

    def boundary(self, index: int) -> Position:
        """Where the record with this index starts; for the number of records, where the last one ends."""
        if index == len(self.starts):
            return self.end
        start = self.starts[index]
        if index == 0:
            return self.begin
        head = bytes(self.data[start - 35 : start - 3])
        return Position(self.begin.seq + index, self.begin.offset_bytes + start, head)


class Walk:
    """Verifies a file from ``begin`` up to the offset ``stop``; iterate once. Memory holds one chunk, or the longest
    append.

    ``begin`` is where an append ends, or in the middle of ``open_batch``: that is its last record before ``begin``.
    Afterwards ``end`` is where the last complete append ends, ``stopped`` and ``batch`` are as in :class:`Scan`.
    """

    def __init__(self, read: Read, begin: Position, stop: int, open_batch: Batch = NO_BATCH) -> None:
        self.end = self.stopped = begin
        self.batch = open_batch
        self._read = read
        self._stop = stop

    def to_the_end(self) -> Position:
        """Walk to the end; returns where the last complete append ends."""
        for _ in self:
            pass
        return self.end

    def __iter__(self) -> Iterator[VerifiedChunk]:
        data = bytearray()
        starts = array("Q")
        while (at := self.end.offset_bytes + len(data)) < self._stop:
            # At least as much as is held already, so that a line or a batch of any length is verified in linear time.
            more = self._read(at, min(max(PIECE_BYTES, len(data)), self._stop - at))
            if not more:
                return
            data += more
            begin = self.end
            found = resume(data, begin.offset_bytes, Scan(starts, begin, self.stopped, self.batch))
            _, self.end, self.stopped, self.batch = found
            length = self.end.offset_bytes - begin.offset_bytes
            if length:
                count = self.end.seq - begin.seq
                rest, starts = data[length:], array("Q", [start - length for start in starts[count:]])
                del data[length:], found.starts[count:]
                yield VerifiedChunk(begin, data, found.starts, self.end)
                data = rest
            if data and not self._goes_on(data):
                return

    def _goes_on(self, rest: bytearray) -> bool:
        """True if the rest may be the start of the next append, which more bytes would complete."""
        line = self.stopped.offset_bytes - self.end.offset_bytes
        if rest.count(b"\n", line):
            return False  # a whole line, and it did not verify
        # Too short to tell whether a record begins here.
        if len(rest) - line < RECORD_HEAD_BYTES:
            return True
        # A tail of zeros, or of anything else, may have any length: it is not read into memory. JSON holds no NUL byte.
        return rest.startswith(b'{"seq":%d,' % (self.stopped.seq + 1), line) and not rest.count(b"\0", line)


def batch_before(read: Read, offset: int) -> Batch:
    """The last record before an offset, if it and the next one belong to one batch; else ``NO_BATCH``. Nothing is
    verified.
    """
    start = max(0, offset - RECORD_HEAD_BYTES)
    stretch = read(start, offset - start)
    end = len(stretch) - SUFFIX_BYTES - 1
    batch = body_batch(stretch, 0, end) if end > 0 else NO_BATCH
    return batch if batch.k < batch.n else NO_BATCH


def first_line(read: Read, size: int, length: int = 16 * 1024) -> bytearray:
    """The start of a file, at least up to its first line feed. Of a line that is too long for a header, only the start."""
    while True:
        start = read(0, min(length, size))
        if b"\n" in start or len(start) < length or length >= LONGEST_METADATA_BYTES:
            return start
        length *= 4


def read_chunks(read: Read, start: int, end: int) -> Iterator[bytearray]:
    """The bytes of a file between two offsets, in chunks; fewer if it ends before."""
    while start < end and (piece := read(start, min(PIECE_BYTES, end - start))):
        yield piece
        start += len(piece)


def has_bytes(read: Read, size: int, pieces: Iterable[bytes | bytearray]) -> bool:
    """True if a file of this size has exactly the bytes of these chunks."""
    offset = 0
    for piece in pieces:
        if read(offset, len(piece)) != piece:
            return False
        offset += len(piece)
    return offset == size


def append_before(read: Read, begin: Position, offset: int, length: int) -> Position:
    """The start of the first append in the ``length`` bytes before an offset; ``begin`` if none starts there.

    If none starts there, four times as many bytes are read, and so on. Nothing is verified: the position is what the
    file claims, with the hash of the line before.
    """
    while begin.offset_bytes + length < offset:
        place = _first_append(read(offset - length, length))
        if place is not None:
            return place._replace(offset_bytes=offset - length + place.offset_bytes)
        length *= 4
    return begin


def _first_append(stretch: bytes | bytearray) -> Position | None:
    # Not from the first byte: the hash of the line before has to be in these bytes, too.
    start = stretch.find(b"\n", SUFFIX_BYTES) + 1
    while start and (end := stretch.find(b"\n", start)) >= 0:
        head = record_head(stretch[start : start + RECORD_HEAD_BYTES])
        if head is not None and body_batch(stretch, start, end - SUFFIX_BYTES).k == 1:
            return Position(head.seq - 1, start, bytes(stretch[start - 35 : start - 3]))
        start = end + 1
    return None


# ---- tail ----
# The end of a file → its last complete append: what a listing shows of a conversation without reading the rest.

LONGEST_TAIL_BYTES = 256 * 2**20
"""How far back the last whole record is searched for: a tail of NULs can have any size."""

_NEAR_BYTES = 4096
"""How much of the end is read at once: most often the whole last record is in it."""


class LastRecord(NamedTuple):
    """The last complete append of a transcript."""

    seq: int
    at: str
    end: int
    """Where its line ends."""
    body: bytearray
    """The line without its hash and what closes it."""


def last_record(file: Read, size: int) -> LastRecord | None:
    """The last record that verifies and completes an append. None if there is no such record within the last bytes that
    are searched.

    A record verifies against the hash at the end of the line before it. Nothing before that is read, so this is not a
    verification: a listing of ten thousand conversations reads the last 4 KiB of each.
    """
    floor, near = max(0, size - LONGEST_TAIL_BYTES), max(0, size - _NEAR_BYTES)
    rest = file(near, size - near)

    def read(offset: int, length: int) -> bytearray:
        return rest[offset - near :][:length] if offset >= near else file(offset, length)

    end = _line_feed_before(read, size, floor)
    while end is not None and (before := _line_feed_before(read, end, floor)) is not None:
        start = before + 1
        # A line that does not verify, or that starts a batch whose rest is missing, is a torn tail or damage. Either
        # way the last append ends before it.
        if start > SUFFIX_BYTES:
            line = read(start - 35, end - start + 35)
            previous, body, suffix = bytes(line[:32]), line[35:-SUFFIX_BYTES], line[-SUFFIX_BYTES:]
            if suffix == HASH_MEMBER + chain_hash(previous, [body]) + b'"}':
                head = record_head(body[:RECORD_HEAD_BYTES])
                if head is not None and is_time(head.at):
                    batch = body_batch(body, 0, len(body))
                    if batch.k == batch.n:
                        return LastRecord(head.seq, head.at, end + 1, body)
        end = before
    return None


def _line_feed_before(read: Read, offset: int, floor: int) -> int | None:
    step = _NEAR_BYTES
    while offset > floor:
        start = max(floor, offset - step)
        if (found := read(start, offset - start).rfind(b"\n")) >= 0:
            return start + found
        offset, step = start, min(2 * step, PIECE_BYTES)
    return None
