"""The end of a file → its last complete append: what a list says of a conversation, without reading the rest."""

from __future__ import annotations

from typing import NamedTuple

from transcript_store._json.times import is_time
from transcript_store._log.record import (
    HASH_MEMBER,
    RECORD_HEAD_BYTES,
    SUFFIX_BYTES,
    body_batch,
    chain_hash,
    record_head,
)
from transcript_store._log.scan import PIECE_BYTES, Read

LONGEST_TAIL_BYTES = 256 * 2**20
"""How far back the last whole record is looked for: a tail of NULs can have any size."""

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
    """The last record that verifies and completes an append. None if there is none, or if it ends too far back.

    A record verifies against the hash at the end of the line before it. What stands before that is not read, so this is no
    verification: a list of ten thousand conversations reads the last 4 KiB of each.
    """
    floor, near = max(0, size - LONGEST_TAIL_BYTES), max(0, size - _NEAR_BYTES)
    rest = file(near, size - near)

    def read(offset: int, length: int) -> bytearray:
        return rest[offset - near :][:length] if offset >= near else file(offset, length)

    end = _line_feed_before(read, size, floor)
    while end is not None and (before := _line_feed_before(read, end, floor)) is not None:
        start = before + 1
        # A line that does not verify, or that begins a batch whose rest is missing, is a torn tail or damage. Either way
        # the last append ends before it.
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
