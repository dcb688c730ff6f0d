"""How is a whole new transcript written? A create, a replace or a repair puts it in place with a rename."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from transcript_store._log.header import NotAHeader, read_header
from transcript_store._log.lines import Cache, CachedLines
from transcript_store._log.record import (
    HASH_MEMBER,
    RECORD_HEAD_BYTES,
    SUFFIX_BYTES,
    Copied,
    Entry,
    Header,
    Position,
    Stamp,
    chain_hash,
    record_body,
    record_time_us,
    stamp_of,
)
from transcript_store._log.retractions import Renumbering
from transcript_store._log.scan import PIECE_BYTES
from transcript_store._log.sealed_records import RecordSealer, plain_members


def begins_at(now: Stamp, entries: Iterable[Entry | Copied]) -> Stamp:
    """The time of a transcript that starts now with these records: the first record's time, if its caller gave one."""
    first = entries[0] if isinstance(entries, Sequence) and entries else None
    given_us = None if first is None or isinstance(first, Copied) else first[2]
    return now if given_us is None else stamp_of(given_us, now, before_us=min(given_us, now[0]))


class Image:
    """The bytes of a new transcript, produced while they are written: memory holds one chunk at a time."""

    def __init__(
        self,
        line: bytes,
        begins: Stamp,
        now: Stamp,
        entries: Iterable[Entry | Copied],
        cache_bytes: int,
        sealer: RecordSealer | None = None,
    ) -> None:
        suffix = line[-SUFFIX_BYTES - len(b"\n") :]
        self.begin = self.end = Position(0, len(line), suffix[len(HASH_MEMBER) : -len(b'"}\n')])
        self.cache = Cache(cache_bytes, self.begin)
        self.last_at_us = begins[0]
        """The time of the last record, or of the header: the next record is not before it."""
        self.sealer = sealer
        """Seals its records; None if they are plaintext, or are copied unchanged."""
        self._line = line
        self._now = now
        self._entries = entries

    @cached_property
    def header(self) -> Header:
        """The parsed first line, decoded on first use: a group of many transcripts is closed without reading it."""
        found = read_header(self._line)
        assert not isinstance(found, NotAHeader)
        return found[0]

    def pieces(self) -> Iterator[bytes | bytearray]:
        """Yields the file's bytes; iterate once. Afterwards ``end`` and ``cache`` describe the written file.

        A short transcript is one chunk, because each chunk is one write.
        """
        first: bytes = self._line
        begin, lines = self.begin, bytearray()
        entry: Entry | Copied | None = None
        body: Sequence[bytes] = ()
        sealer = self.sealer
        renumbering = Renumbering()
        for seq, entry in enumerate(self._entries, 1):
            if isinstance(entry, Copied):
                # Its members are unchanged after a new number; a retraction names the new numbers of its records.
                members = renumbering.members_of(entry, seq) if self.header.can_retract else entry.members
                body = (b'{"seq":%d' % seq, members) if sealer is None else sealer.body_of_copy(seq, members)
            else:
                message, extra, given_us = entry
                self.last_at_us, at, clock = stamp_of(given_us, self._now, self.last_at_us)
                if sealer is None:
                    body = record_body(seq, at.encode(), message, extra, clock)
                else:
                    body = sealer.body(seq, at.encode(), plain_members(message, extra, clock))
            head = chain_hash(self.end.head, body)
            for part in (*body, b',"hash":"%b"}\n' % head):
                lines += part
            self.end = Position(seq, begin.offset_bytes + len(lines), head)
            if len(lines) >= PIECE_BYTES:
                self.cache.put(CachedLines(begin, lines, self.end))
                if first:
                    yield first
                yield lines
                begin, lines, first = self.end, bytearray(), b""
        if lines:
            self.cache.put(CachedLines(begin, lines, self.end))
        if first or lines:
            yield first + lines
        # Copied records keep their times: the last of them may be later than the header.
        if isinstance(entry, Copied) and (at_us := record_time_us(b"".join(body)[:RECORD_HEAD_BYTES])) is not None:
            self.last_at_us = max(self.last_at_us, at_us)
