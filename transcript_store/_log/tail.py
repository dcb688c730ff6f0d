"""The end of a file → its last complete append: what a list says of a conversation, without reading the rest."""

from __future__ import annotations

from typing import NamedTuple

from transcript_store._log.record import (
    HASH_MEMBER,
    RECORD_HEAD_BYTES,
    SUFFIX_BYTES,
    body_batch,
    chain_hash,
    record_seq_and_time,
)
from transcript_store._log.scan import PIECE_BYTES, Read

LONGEST_TAIL_BYTES = 256 * 2**20
"""How far back the last whole record is looked for: a tail of NULs can have any size."""


class LastRecord(NamedTuple):
    """The last complete append of a transcript."""

    seq: int
    at: str
    end: int
    """Where its line ends."""


def last_record(tail: bytes | bytearray, offset: int = 0) -> LastRecord | None:
    """The last record in the end of a transcript that verifies and completes an append; None if there is none in it.

    ``offset`` is where the end begins in the file. A record verifies against the hash that stands at the end of the line
    before it, so that line's end must be there too.
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
                    return LastRecord(*found, offset + line_feed + 1)
        end = start
    return None


def look_back(read: Read, size: int) -> LastRecord | None:
    """The same of a file, a line at a time, however long its tail is without one (up to 256 MiB)."""
    floor = max(0, size - LONGEST_TAIL_BYTES)
    line_feed = _line_feed_before(read, size, floor)
    while line_feed is not None and (before := _line_feed_before(read, line_feed, floor)) is not None:
        start = max(0, before - SUFFIX_BYTES)
        if (found := last_record(read(start, line_feed + 1 - start), start)) is not None:
            return found
        line_feed = before
    return None


def searched_bytes(size: int) -> int:
    """How much of a file's end :func:`look_back` looks at."""
    return min(size, LONGEST_TAIL_BYTES)


def _line_feed_before(read: Read, offset: int, floor: int) -> int | None:
    while offset > floor:
        length = min(PIECE_BYTES, offset - floor)
        found = read(offset - length, length).rfind(b"\n")
        if found >= 0:
            return offset - length + found
        offset -= length
    return None
