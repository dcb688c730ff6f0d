"""A whole transcript that is being written: a create, a replace or a repair puts it in place by a rename."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from transcript_store._log.cache import Block, Cache
from transcript_store._log.header import NotAHeader, read_header
from transcript_store._log.record import (
    RECORD_HEAD_BYTES,
    Copied,
    Entry,
    Position,
    chain_hash,
    record_body,
    record_time_us,
)
from transcript_store._log.scan import PIECE_BYTES


class Image:
    """The bytes of a transcript, made as they are written: memory holds a piece of them at a time."""

    def __init__(
        self, line: bytes, at: str, clock: bytes | None, entries: Iterable[Entry | Copied], cache_bytes: int
    ) -> None:
        found = read_header(line)
        assert not isinstance(found, NotAHeader)
        self.header, self.begin = found
        self.end = self.begin
        self.cache = Cache(cache_bytes, self.begin)
        self.last_at_us = 0
        self._line = line
        self._at = at.encode()
        self._clock = clock
        self._entries = entries

    def pieces(self) -> Iterator[bytes | bytearray]:
        """The file's bytes; iterate once. After the last of them, ``end`` and ``cache`` are those of the file."""
        yield self._line
        begin, lines = self.begin, bytearray()
        body: Sequence[bytes] = ()
        for seq, entry in enumerate(self._entries, 1):
            body = (
                (b'{"seq":%d' % seq, entry.members)  # its members as they are, behind a number of its own
                if isinstance(entry, Copied)
                else record_body(seq, self._at, *entry, self._clock)
            )
            head = chain_hash(self.end.head, body)
            for part in (*body, b',"hash":"%b"}\n' % head):
                lines += part
            self.end = Position(seq, begin.offset_bytes + len(lines), head)
            if len(lines) >= PIECE_BYTES:
                self.cache.put(Block(begin, lines, self.end))
                yield lines
                begin, lines = self.end, bytearray()
        if lines:
            self.cache.put(Block(begin, lines, self.end))
            yield lines
        # Records that were copied keep their times: the last of them may be later than the header.
        self.last_at_us = record_time_us(b"".join(body)[:RECORD_HEAD_BYTES]) or 0
