"""Bytes → the records that verify, from a place whose hash is known.

:func:`scan` looks at bytes in memory, :class:`Walk` at a stretch of a file, a piece at a time. Neither says what is wrong
with the rest: ``damage`` does. Nothing here does I/O: a :data:`Read` is given.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import NamedTuple

from transcript_store._log.record import RECORD_HEAD_BYTES, SUFFIX_BYTES, Batch, Position, body_batch, record_seq

Read = Callable[[int, int], bytearray]
"""Reads from an offset up to so many bytes; fewer only at the end of the file. Where the bytes come from is not said."""

PIECE_BYTES = 1 << 18
"""Little enough for a processor's cache: what was read is hashed, and decoded, while it is there."""

NO_BATCH = Batch(0, 0)
_CLOSING_BRACKET = 0x5D


class Scan(NamedTuple):
    """What bytes hold: where each record of the complete appends begins in them, and where these end in the file."""

    starts: array[int]
    end: Position
    """The end of the last complete append."""
    stopped: Position
    """The end of the last record that verified: behind ``end`` in the middle of a batch."""
    batch: Batch
    """The last record of that unfinished batch; ``NO_BATCH`` if there is none."""


def scan(buffer: bytes | bytearray, begin: Position) -> Scan:
    """Verify the lines in ``buffer``, whose first byte stands at ``begin`` in the file, up to the first that is not whole."""
    starts = array("Q")
    seq, base, head = begin
    start = 0
    complete = begin  # where the unfinished batch before `start` begins, if there is one
    open_batch = NO_BATCH
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
            if view[body_end - 1] == _CLOSING_BRACKET or open_batch is not NO_BATCH:
                batch = body_batch(buffer, start, body_end)
                if not continues(open_batch, batch):
                    break
                if open_batch is NO_BATCH:
                    complete = Position(seq, base + start, head)
                open_batch = NO_BATCH if batch.k == batch.n else batch
            append(start)
            seq, start, head = seq + 1, end + 1, found
    stopped = Position(seq, base + start, head)
    if open_batch is NO_BATCH:
        complete = stopped
    del starts[complete.seq - begin.seq :]
    return Scan(starts, complete, stopped, open_batch)


def continues(open_batch: Batch, batch: Batch) -> bool:
    """Whether a record may follow the last one of an unfinished batch, or of none."""
    return batch.k == open_batch.k + 1 and (open_batch.k == 0 or batch.n == open_batch.n)


class Piece(NamedTuple):
    """A stretch of complete appends that verify: the bytes from ``begin`` to ``end``, and where each record begins in them."""

    begin: Position
    data: bytearray
    starts: array[int]
    end: Position


class Walk:
    """Verifies a file from ``begin`` up to the offset ``stop``; iterate once. Memory holds a piece, or the longest append.

    Afterwards ``end`` is where the last complete append ends, ``stopped`` and ``batch`` are as in :class:`Scan`.
    """

    def __init__(self, read: Read, begin: Position, stop: int) -> None:
        self.end = self.stopped = begin
        self.batch = NO_BATCH
        self._read = read
        self._stop = stop

    @property
    def is_whole(self) -> bool:
        """Whether complete appends and nothing else stand there."""
        return self.end.offset_bytes == self._stop

    def to_the_end(self) -> Position:
        """Go all the way; returns where the last complete append ends."""
        for _ in self:
            pass
        return self.end

    def __iter__(self) -> Iterator[Piece]:
        data = bytearray()
        wanted = PIECE_BYTES
        while (at := self.end.offset_bytes + len(data)) < self._stop:
            more = self._read(at, min(wanted, self._stop - at))
            if not more:
                return
            data += more
            found = scan(data, self.end)
            begin, self.end, self.stopped, self.batch = self.end, *found[1:]
            length = self.end.offset_bytes - begin.offset_bytes
            rest = data[length:]
            wanted = PIECE_BYTES
            if length:
                del data[length:]
                yield Piece(begin, data, found.starts, self.end)
            if not self._goes_on(rest):
                return
            # Twice as much each time, so that a line or a batch of any length is looked at in linear time.
            wanted = max(wanted, len(rest))
            data = rest

    def _goes_on(self, rest: bytearray) -> bool:
        """Whether what is left may be the beginning of the next append, which more bytes would complete."""
        line = self.stopped.offset_bytes - self.end.offset_bytes
        if rest.find(b"\n", line) >= 0:
            return False  # a whole line, and it did not verify
        if len(rest) - line < RECORD_HEAD_BYTES:
            return True
        # A tail of zeros, or of anything else, may have any length: it is not read into memory.
        return rest.startswith(b'{"seq":%d,' % (self.stopped.seq + 1), line) and rest.find(b"\0", line) < 0


def pieces_of(read: Read, start: int, end: int) -> Iterator[bytearray]:
    """The bytes of a file between two offsets, a piece at a time; fewer if it ends before."""
    while start < end and (piece := read(start, min(PIECE_BYTES, end - start))):
        yield piece
        start += len(piece)


def is_same(read: Read, size: int, pieces: Iterable[bytes | bytearray]) -> bool:
    """Whether a file of this size has the bytes that these pieces have together."""
    offset = 0
    for piece in pieces:
        if read(offset, len(piece)) != piece:
            return False
        offset += len(piece)
    return offset == size


def append_before(read: Read, begin: Position, offset: int, length: int) -> Position:
    """The first append to begin in the ``length`` bytes before an offset, or in a multiple of it; ``begin`` if none does.

    Nothing is verified: the position says what stands there.
    """
    while begin.offset_bytes + length < offset:
        place = _first_append(read(offset - length, length))
        if place is not None:
            return place._replace(offset_bytes=offset - length + place.offset_bytes)
        length *= 4
    return begin


def _first_append(stretch: bytes | bytearray) -> Position | None:
    start = stretch.find(b"\n", SUFFIX_BYTES) + 1
    while start and (end := stretch.find(b"\n", start)) >= 0:
        seq = record_seq(stretch[start : start + RECORD_HEAD_BYTES])
        if seq is not None and body_batch(stretch, start, end - SUFFIX_BYTES).k == 1:
            return Position(seq - 1, start, bytes(stretch[start - 35 : start - 3]))
        start = end + 1
    return None
