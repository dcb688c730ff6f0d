"""The lines of a log, to read: the newest from memory, older ones from the file, where they are verified again.

A line was verified before anybody reads it. So a line that does not verify now was damaged since, and the error says how.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from transcript_store._json.strict import JSONDecodeError, decode
from transcript_store._log.cache import Block, Cache
from transcript_store._log.damage import Damage, check
from transcript_store._log.record import GENESIS, Copied, Header, Position, Record, as_record
from transcript_store._log.salvage import copies
from transcript_store._log.scan import PIECE_BYTES, Piece, Walk, append_before, is_same, pieces_of, scan
from transcript_store._os.directory import Folder, Source, identity
from transcript_store._os.refusals import refusals
from transcript_store.errors import CorruptTranscriptError
from transcript_store.ways_out import WayOut


class Lines:
    """What a transcript holds from ``begin``, behind its header, to ``end``, the end of its last complete append."""

    def __init__(self, folder: Folder, name: str, cache_bytes: int) -> None:
        self.folder = folder
        self.files = folder.files
        self.path = folder.path_of(name)
        self.handle = -1
        self.inode = (-1, -1)
        self.header = Header(conversation="", generation=0, at="", metadata={}, members={})
        self.begin = self.end = Position(0, 0, GENESIS)
        self.verified_from = self.begin
        """Every line from here on was verified since the load."""
        self.cache = Cache(cache_bytes, self.end)
        self.settled = False
        """Whether the file is known to be what memory says: nothing was interrupted, and no read found damage."""

    # ---- the file ------------------------------------------------------------------------------------------------

    def read(self, offset: int, length: int) -> bytearray:
        """Bytes of the file; fewer only at its end."""
        return self.files.read(self.handle, offset, length)

    def size_bytes(self) -> int:
        """The length of the file now; it may hold more than whole appends."""
        return self.files.handle_status(self.handle).st_size

    def hard_links(self) -> int:
        """How many names the file has."""
        return self.files.handle_status(self.handle).st_nlink

    def begins_with(self, source: Source) -> bool:
        """Whether a file holds the beginning of this one, or all of it."""
        if identity(source.status) == self.inode:
            return True
        if source.size > self.end.offset_bytes:
            return False
        return is_same(source.read, source.size, pieces_of(self.read, 0, source.size))

    def close(self) -> None:
        """Close the file. May be called again."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            self.files.close(handle)

    # ---- read ----------------------------------------------------------------------------------------------------

    def messages(self, last: int | None = None) -> list[dict[str, Any]]:
        """The messages in order, or the ``last`` so many; decoded anew."""
        found: list[dict[str, Any]] = []
        if last is None:
            for block in self.blocks():
                self._decode(_lines(block), found)
            return found
        newest = self._newest_first()
        while lines := list(islice(newest, last - len(found))):  # more than once if some of them carry no message
            self._decode(lines, found)
        return found[::-1]

    def _decode(self, lines: Iterable[bytes | bytearray], found: list[dict[str, Any]]) -> None:
        append = found.append
        line: bytes | bytearray = b""
        try:
            for line in lines:  # the one loop that a reader of everything waits for
                message = decode(line).get("message")
                if type(message) is dict:
                    append(message)
                elif message is not None:
                    raise self._not_a_record(line)
        except JSONDecodeError:
            raise self._not_a_record(line) from None

    def records(self, last: int | None = None) -> list[Record]:
        """The records in order, or the ``last`` so many; decoded anew."""
        if last is None:
            return list(self.each_record())
        return [self._record_in(line) for line in islice(self._newest_first(), last)][::-1]

    def each_record(self) -> Iterator[Record]:
        """The records in order, each decoded when it is asked for. The log must not change meanwhile."""
        return (self._record_in(line) for block in self.blocks() for line in _lines(block))

    def _record_in(self, line: bytes | bytearray) -> Record:
        try:
            record = as_record(decode(line))
        except JSONDecodeError:
            record = None
        if record is None:
            raise self._not_a_record(line)
        return record

    def copies(self, count: int) -> Iterator[Copied]:
        """The first so many records, to be put into another transcript."""
        return islice((copy for block in self.blocks() for copy in copies(block.lines)), count)

    def contents(self) -> Iterator[bytes | bytearray]:
        """The file's bytes up to ``end``, in pieces."""
        yield self.read(0, self.begin.offset_bytes)
        for block in self.blocks():
            yield block.lines

    def place_after(self, seq: int) -> Position:
        """Where the record with this number ends; for 0 where the header does."""
        if seq == self.end.seq:
            return self.end
        block = next(block for block in self.blocks() if seq < block.end.seq)
        starts = scan(block.lines, block.begin).starts
        return Piece(block.begin, block.lines, starts, block.end).boundary(seq - block.begin.seq)

    def blocks(self) -> Iterator[Block]:
        """All lines in order: those that are not in memory are read, and verified again."""
        until = self.cache.begin
        walk = Walk(self.read, self.begin, until.offset_bytes)
        with refusals(self.path, "read it"):
            for piece in walk:
                yield Block(piece.begin, piece.data, piece.end)
            if walk.end != until:
                raise self.why_not(until)
        self.verified_from = self.begin
        for block in self.cache:
            if (
                block.begin.seq < self.end.seq
            ):  # an append that was interrupted right behind it is not known to be stored
                yield block

    def _newest_first(self) -> Iterator[bytes | bytearray]:
        for block in self.cache.newest_first():
            if block.begin.seq < self.end.seq:  # as in blocks()
                yield from reversed(_lines(block))
        place, length = self.cache.begin, PIECE_BYTES // 4
        while place != self.begin:
            with refusals(self.path, "read it"):
                begin = append_before(self.read, self.begin, place.offset_bytes, length)
                block = Block(begin, self.read(begin.offset_bytes, place.offset_bytes - begin.offset_bytes), place)
                # The end is known, and its hash covers what is read here, down to the hash that it begins with.
                if scan(block.lines, begin).end != place:
                    raise self.why_not(place)
            yield from reversed(_lines(block))
            place, length = begin, min(2 * length, 4 * PIECE_BYTES)

    # ---- verify again --------------------------------------------------------------------------------------------

    @property
    def is_fully_verified(self) -> bool:
        """Whether every line was verified since the load; not so if only the tail was looked at."""
        return self.verified_from == self.begin

    def complete(self) -> None:
        """Verify what a load of the tail left; raises ``CorruptTranscriptError``."""
        if not self.is_fully_verified:
            with refusals(self.path, "read what stands before its tail"):
                self.require_chain(self.begin, self.verified_from)
            self.verified_from = self.begin

    def require_chain(self, begin: Position, end: Position) -> None:
        """Verify what stands between two places; raises ``CorruptTranscriptError`` if the first does not lead to the second."""
        if Walk(self.read, begin, end.offset_bytes).to_the_end() != end:
            raise self.why_not(end)

    def why_not(self, place: Position) -> CorruptTranscriptError:
        """What is wrong with a transcript that was known to lead through this place, and does not."""
        self.settled = False  # a writer looks at what it chains to before it goes on
        self.verified_from = self.end  # and verifies all of it anew before that goes into the archive
        damage, _ = check(self.read, self.size_bytes(), self.begin, place)
        if damage is not None:
            return self.damaged(damage)
        reason = "it was not whole when it was read, and is now: a disk or a memory that fails"
        return self.corrupt("damaged-line", reason)

    def _not_a_record(self, line: bytes | bytearray) -> CorruptTranscriptError:
        reason = "the line verifies, but is not a record: a program that knows the format wrote something else"
        seq = int(line[len(b'{"seq":') : line.index(b",")])  # a line verifies only if it begins with its number
        offset = self.place_after(seq - 1).offset_bytes
        return self.corrupt("foreign", reason, WayOut.RESTORE_OR_REPAIR, line_number=seq + 1, offset_bytes=offset)

    def damaged(self, damage: Damage) -> CorruptTranscriptError:
        """The error for this damage."""
        offset = damage.place.offset_bytes
        return self.corrupt(damage.kind, damage.reason, line_number=damage.line_number, offset_bytes=offset)

    def corrupt(self, kind: str, reason: str, way_out: WayOut | None = None, **place: int) -> CorruptTranscriptError:
        """An error that names the file, and the ``line_number`` and ``offset_bytes`` in it."""
        return CorruptTranscriptError(path=self.path, kind=kind, reason=reason, way_out=way_out, **place)


def _lines(block: Block) -> Sequence[bytes | bytearray]:
    return block.lines.split(b"\n")[:-1]
