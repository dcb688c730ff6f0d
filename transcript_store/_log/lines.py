"""How are the lines of a log read as bytes? The newest from memory, older ones from the file, which are verified again.

Every line was verified once before a caller reads it. So a line that does not verify now was damaged since, and the
error says how.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, takewhile
from operator import attrgetter
from typing import NamedTuple

from transcript_store._log.damage import Damage, check
from transcript_store._log.record import GENESIS, Header, Position
from transcript_store._log.retractions import TakenBack
from transcript_store._log.scan import PIECE_BYTES, VerifiedChunk, Walk, append_before, has_bytes, read_chunks, scan
from transcript_store._log.sealed_records import RecordSealer, sealed_place
from transcript_store._os.checksum import checksum
from transcript_store._os.directory import Folder, OpenFile, identity
from transcript_store._os.filesystem import refusals
from transcript_store.errors import CorruptTranscriptError, KeyNeededError
from transcript_store.hints import Hint

# ---- cache ----
# The newest lines of a log in memory, up to a limit: the bytes that were read or appended, never a copy. A call may be
# interrupted (Ctrl-C) between any two lines of this code; the cache is consistent even then.

OVERHEAD_BYTES = 336
"""The memory of a block beyond its bytes: its objects, those of a position, and an entry in the queue."""


class CachedLines(NamedTuple):
    """Whole lines and their positions."""

    begin: Position
    lines: bytes | bytearray
    end: Position


class Cache:
    """Holds the lines of a log from ``begin`` to its end. When one append exceeds the limit it is empty and ``begin ==
    end``.
    """

    def __init__(self, limit_bytes: int, begin: Position) -> None:
        self._limit_bytes = limit_bytes
        self._blocks: deque[CachedLines] = deque()
        self._bytes = 0
        self._end = begin

    @property
    def begin(self) -> Position:
        """Where the first cached line starts."""
        return self._blocks[0].begin if self._blocks else self._end

    def put(self, block: CachedLines) -> None:
        """Add the lines that follow the cached ones. If they exceed the limit, the oldest blocks are dropped."""
        self._blocks.append(block)
        self._end = block.end
        self._bytes += len(block.lines) + OVERHEAD_BYTES
        while self._bytes > self._limit_bytes:
            self._bytes -= len(self._blocks.popleft().lines) + OVERHEAD_BYTES

    def until(self, end: Position) -> Cache:
        """A cache of the lines before ``end``, a boundary of blocks."""
        cache = Cache(self._limit_bytes, min(self.begin, end))
        for begin, lines, block_end in self._blocks:
            if block_end.offset_bytes <= end.offset_bytes:
                cache.put(CachedLines(begin, lines, block_end))
        return cache

    def skip_to(self, end: Position) -> None:
        """Drop everything before a position."""
        self._blocks.clear()
        self._bytes = 0
        self._end = end

    def __iter__(self) -> Iterator[CachedLines]:
        return iter(self._blocks)

    def newest_first(self, before: int | None = None) -> Iterator[CachedLines]:
        """The blocks from the end of the log, or from the last block that starts after fewer records than ``before``."""
        passed_over = 0
        if before is not None:
            passed_over = len(self._blocks) - bisect_left(self._blocks, before, key=attrgetter("begin.seq"))
        return islice(reversed(self._blocks), passed_over, None)


# ---- lines ----

Place = tuple[int, int]
"""A position between two lines: how many records and how many bytes precede it. The first two members of a
``Position``.
"""


class Tail(NamedTuple):
    """A range of a log in which no message is live."""

    begin: Place
    place: Position
    """The end of the block in which the range starts."""
    through_seq: int
    """The number of its last record."""
    taken_back: TakenBack
    """The retractions of its records, in the range and before it."""


class LineRun(NamedTuple):
    """Consecutive whole lines to decode together, with the record numbers before the first and of the last."""

    after_seq: int
    parts: list[bytes | bytearray]
    """The cached lines, without a needless copy."""
    through_seq: int

    @property
    def line_count(self) -> int:
        """The number of lines."""
        return self.through_seq - self.after_seq

    def lines(self) -> list[bytes]:
        """The lines. Where each part is one line, they are the cached bytes themselves and keep their LF."""
        if len(self.parts) == self.line_count:
            return [*map(bytes, self.parts)]
        return b"".join(self.parts).split(b"\n")[:-1]

    def numbered(self) -> list[tuple[int, bytes]]:
        """The lines without their LF, each with its number."""
        return list(enumerate(b"".join(self.parts).split(b"\n")[:-1], self.after_seq + 1))


class Verified(NamedTuple):
    """A range of complete appends that this process verified line by line and does not cache."""

    begin: Position
    end: Position
    checksum: int
    """The checksum of its bytes: to read them again, this one value is compared."""


_NOT_READ_YET = Header(conversation="", generation=0, at="", metadata={}, members={})
GATHERED_BYTES = 1 << 16
"""How much is decoded at a time; it stays in the processor's cache."""


class VerifiedLines:
    """A transcript from ``begin``, after its header, to ``end``, the end of its last complete append."""

    def __init__(self, folder: Folder, name: str, cache_bytes: int) -> None:
        self.folder = folder
        self.files = folder.files
        self.path = folder.path_of(name)
        self.handle = -1
        self.inode = (-1, -1)
        self.header = _NOT_READ_YET
        self.begin = self.end = Position(0, 0, GENESIS)
        self.verified_from = self.begin
        """Every line from here on was verified since the load."""
        self.cache = Cache(cache_bytes, self.end)
        self.verified: list[Verified] = []
        """The verified ranges of the file, from ``begin`` without a gap. They never cover unverified bytes."""
        self.sealer: RecordSealer | None = None
        """Opens the records, if they are sealed and the key was given."""
        self.is_current = False
        """True if the file is known to match memory: no call was interrupted, and no read found damage."""

    # ---- the file ------------------------------------------------------------------------------------------------

    def read(self, offset: int, length: int) -> bytearray:
        """Bytes of the file; fewer only at its end."""
        return self.files.read(self.handle, offset, length)

    def size_bytes(self) -> int:
        """The current length of the file; it may exceed the complete appends."""
        return self.files.handle_status(self.handle).st_size

    def hard_links(self) -> int:
        """The number of names that the file has."""
        return self.files.handle_status(self.handle).st_nlink

    def begins_with(self, source: OpenFile) -> bool:
        """True if another file holds the start of this one, or all of it."""
        if identity(source.status) == self.inode:
            return True
        if source.size > self.end.offset_bytes:
            return False
        return has_bytes(source.read, source.size, read_chunks(self.read, 0, source.size))

    def close(self) -> None:
        """Close the file. May be called again."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            self.files.close(handle)

    # ---- sealed records ------------------------------------------------------------------------------------------

    def sealer_to_write(self) -> RecordSealer | None:
        """The sealer of the next record; None if records are plaintext. Raises ``KeyNeededError``."""
        if self.sealer is None and self.header.is_sealed:
            raise KeyNeededError(path=self.path)
        return self.sealer

    def opened(self, seq: int, line: bytes | bytearray) -> bytes | bytearray:
        """A line that can be decoded: the line itself, or its unsealed form."""
        if (sealer := self.sealer_to_write()) is None:
            return line
        opened = sealer.opened(line, seq, self.header.kept_sealed)
        if opened is None:
            raise self.not_genuine(seq, "it was not sealed for this position with this conversation's key")
        return opened

    def require_kept_in_order(self) -> None:
        """Raise unless every record unseals and was sealed after the one before it: what a repair without the key may
        leave.
        """
        sealer = self.sealer_to_write()
        last = (-1, 0)
        for block in self.blocks():
            for seq, line in numbered(block):
                self.opened(seq, line)
                place = sealed_place(line) or (0 if sealer is None else sealer.generation, seq)
                if place <= last:
                    raise self.not_genuine(
                        seq, "it was sealed before the record that precedes it, or repeats that record"
                    )
                last = place

    def shown(self, block: CachedLines) -> Iterator[bytes | bytearray]:
        """The lines of a block as far as they are readable; without the key, sealed lines stay sealed."""
        can_open = self.sealer is not None
        return (self.opened(seq, line) if can_open else line for seq, line in numbered(block))

    def not_genuine(self, seq: int, reason: str) -> CorruptTranscriptError:
        """The error for a record that verifies but was not written with the key."""
        return self.corrupt("not-genuine", reason, Hint.RESTORE, line_number=seq + 1)

    # ---- blocks --------------------------------------------------------------------------------------------------

    def contents(self) -> Iterator[bytes | bytearray]:
        """The file's bytes up to ``end``, in chunks."""
        yield self.read(0, self.begin.offset_bytes)
        for block in self.blocks():
            yield block.lines

    def place_after(self, seq: int) -> Position:
        """The position after the record with this number; for 0 the one after the header."""
        if seq == self.end.seq:
            return self.end
        block = next(block for block in self.blocks() if seq < block.end.seq)
        starts = scan(block.lines, block.begin).starts
        return VerifiedChunk(block.begin, block.lines, starts, block.end).boundary(seq - block.begin.seq)

    def append_behind(self, seq: int) -> Position:
        """Where an append starts, at or before the end of the record with this number, which is not the last one.

        Only what follows that position is read.
        """
        return self.begin if seq == 0 else next(b.begin for b in self.newest_blocks_first() if b.begin.seq <= seq)

    def block_after(self, place: Position) -> CachedLines:
        """The lines after an append that is not the last one: cached lines, or a range of the file, verified
        again.
        """
        until = self.cache.begin
        if place.offset_bytes < until.offset_bytes:
            with refusals(self.path, "read it"):
                piece = next(iter(Walk(self.read, place, until.offset_bytes)), None)
                # At the start of the cache the hash is known, so the bytes that lead there are checked against it.
                if piece is None or (piece.end.offset_bytes == until.offset_bytes and piece.end != until):
                    raise self.why_not(until)
            return CachedLines(place, piece.data, piece.end)
        block = next(block for block in self.cache if place.offset_bytes < block.end.offset_bytes)
        return CachedLines(place, block.lines[place.offset_bytes - block.begin.offset_bytes :], block.end)

    def blocks(self) -> Iterator[CachedLines]:
        """All lines in order: those that are not cached are read and verified again (L1)."""
        # The block after the end belongs to an interrupted append. It was never acknowledged.
        end = self.end.seq
        held = [block for block in self.cache if block.begin.seq < end]
        if (held[0].begin if held else self.end) == self.begin:
            self.verified_from = self.begin
            return iter(held)
        return chain(self._blocks_of_file(), held)

    def _blocks_of_file(self) -> Iterator[CachedLines]:
        place, until = self.begin, self.cache.begin
        with refusals(self.path, "read it"):
            for stretch in [*self.verified]:
                if stretch.end.offset_bytes > until.offset_bytes:
                    break
                lines = self.read(place.offset_bytes, stretch.end.offset_bytes - place.offset_bytes)
                if checksum(lines) != stretch.checksum:
                    raise self.why_not(until)
                yield CachedLines(place, lines, stretch.end)
                place = stretch.end
            walk = Walk(self.read, place, until.offset_bytes)
            for piece in walk:
                self.note_verified(piece)
                yield CachedLines(piece.begin, piece.data, piece.end)
            if walk.end != until:
                raise self.why_not(until)
        self.verified_from = self.begin

    def note_verified(self, piece: VerifiedChunk) -> None:
        """Remember that a range was verified: its lines need not be hashed one by one again."""
        # The ranges have no gap: one that does not follow the last one is verified again when it is read.
        if piece.begin == (self.verified[-1].end if self.verified else self.begin):
            self.verified.append(Verified(piece.begin, piece.end, checksum(piece.data)))

    def newest_blocks_first(self, passed_over: Tail | None = None) -> Iterator[CachedLines]:
        """The blocks from the newest on, as far back as the caller iterates; the lines of a skipped tail are left out."""
        held = self.cache.newest_first()
        if passed_over is not None:
            first, last = passed_over.place.seq, passed_over.through_seq
            behind = takewhile(lambda block: block.end.seq > last and block.begin.seq >= first, held)
            held = chain(behind, self.cache.newest_first(first))
        for block in held:
            # As in blocks(): a block after the end belongs to an interrupted append.
            if block.begin.seq < self.end.seq:
                yield block
        place, length = self.cache.begin, PIECE_BYTES // 4
        if passed_over is not None and first < place.seq <= last:
            place = passed_over.place
        while place != self.begin:
            with refusals(self.path, "read it"):
                begin = append_before(self.read, self.begin, place.offset_bytes, length)
                block = CachedLines(
                    begin, self.read(begin.offset_bytes, place.offset_bytes - begin.offset_bytes), place
                )
                # The end is known, and its hash covers the bytes read here, down to the hash that they start with.
                if scan(block.lines, begin).end != place:
                    raise self.why_not(place)
            yield block
            place, length = begin, min(2 * length, 4 * PIECE_BYTES)

    def blocks_before(self, seq: int) -> Iterator[CachedLines]:
        """The blocks that hold records before the one with this number, the newest first.

        Where this process verified the file, only those are read; elsewhere everything after them is read too.
        """
        if self.verified and seq <= min(self.verified[-1].end.seq, self.cache.begin.seq):
            with refusals(self.path, "read it"):
                for stretch in reversed([*self.verified]):
                    if stretch.begin.seq < seq - 1:
                        begin, end = stretch.begin.offset_bytes, stretch.end.offset_bytes
                        lines = self.read(begin, end - begin)
                        if checksum(lines) != stretch.checksum:
                            raise self.why_not(self.cache.begin)
                        yield CachedLines(stretch.begin, lines, stretch.end)
            return
        yield from (block for block in self.newest_blocks_first() if block.begin.seq < seq - 1)

    # ---- verify again --------------------------------------------------------------------------------------------

    @property
    def is_fully_verified(self) -> bool:
        """True if every line was verified since the load; False if only the tail was."""
        return self.verified_from == self.begin

    def complete(self) -> None:
        """Verify what a load of the tail skipped; raises ``CorruptTranscriptError``."""
        if not self.is_fully_verified:
            with refusals(self.path, "read the lines before its tail"):
                self.require_chain(self.begin, self.verified_from)
            self.verified_from = self.begin

    def require_chain(self, begin: Position, end: Position) -> None:
        """Verify the lines between two positions; raises ``CorruptTranscriptError`` if the first does not lead to the
        second.
        """
        if Walk(self.read, begin, end.offset_bytes).to_the_end() != end:
            raise self.why_not(end)

    def why_not(self, place: Position) -> CorruptTranscriptError:
        """The error for a transcript that no longer leads through a known position."""
        self.verified.clear()
        self.is_current = False  # a writer checks the bytes that it chains to before it continues
        self.verified_from = self.end  # and verifies all of it again before it is archived
        damage, _ = check(self.read, self.size_bytes(), self.begin, place)
        if damage is not None:
            return self.damaged(damage)
        reason = "it was damaged when it was read and is whole now: a disk or memory is failing"
        return self.corrupt("damaged-line", reason)

    def damaged(self, damage: Damage) -> CorruptTranscriptError:
        """The error for this damage."""
        offset = damage.place.offset_bytes
        return self.corrupt(damage.kind, damage.reason, line_number=damage.line_number, offset_bytes=offset)

    def corrupt(self, kind: str, reason: str, hint: Hint | None = None, **place: int) -> CorruptTranscriptError:
        """An error that names the file, ``line_number`` and ``offset_bytes``."""
        return CorruptTranscriptError(path=self.path, kind=kind, reason=reason, hint=hint, **place)


def split_lines(block: CachedLines) -> Sequence[bytes | bytearray]:
    """The lines of a block, each without its line feed."""
    return block.lines.split(b"\n")[:-1]


def numbered(block: CachedLines) -> list[tuple[int, bytes | bytearray]]:
    """The lines of a block without their line feeds, each with its number."""
    return list(enumerate(split_lines(block), block.begin.seq + 1))


def newest_lines_first(
    block: CachedLines, before: Place | None = None
) -> Iterator[tuple[int, bytes | bytearray, Place]]:
    """The lines of a block from its end, each with its start; found one at a time, because mostly the last few of 256
    KB are wanted.

    With ``before``, from that position in the block.
    """
    seq, stop = block.end[:2] if before is None else before
    end = stop - block.begin.offset_bytes - 1
    while seq > block.begin.seq:
        begin = block.lines.rfind(b"\n", 0, end) + 1
        yield seq, block.lines[begin:end], (seq - 1, block.begin.offset_bytes + begin)
        seq, end = seq - 1, begin - 1


def gathered(blocks: Iterable[CachedLines]) -> Iterator[LineRun]:
    """Consecutive blocks, joined: an append makes a short block, and each block costs several calls."""
    parts: list[bytes | bytearray] = []
    length = first = last = 0
    for begin, lines, end in blocks:
        if not parts:
            first = begin.seq
        parts.append(lines)
        length, last = length + len(lines), end.seq
        if length >= GATHERED_BYTES:
            yield LineRun(first, parts, last)
            parts, length = [], 0
    if parts:
        yield LineRun(first, parts, last)


class FromTheEnd:
    """Lines from the end of the log, in chunks of the requested size."""

    def __init__(self, blocks: Iterator[CachedLines]) -> None:
        self._blocks = blocks
        self._block: CachedLines | None = None
        """The blocks; the next one is read when one of its lines is needed."""
        self._seq = self._stop = 0
        """In the current block: the number of its last remaining record, and where that ends; 0 without one."""

    def take(self, count: int) -> LineRun | None:
        """The next lines in file order: fewer if they are long or a skipped range precedes them; None at the end.

        Lines are found one at a time, because mostly the last few of a 256 KB block are wanted.
        """
        parts: list[bytes | bytearray] = []
        after_seq = through_seq = length = 0
        while count and length < GATHERED_BYTES:
            if not self._stop:
                if (block := next(self._blocks, None)) is None:
                    break
                self._block, self._seq, self._stop = block, block.end.seq, len(block.lines)
            assert self._block is not None
            begin, lines, _ = self._block
            seq, stop = self._seq, self._stop
            if not parts:
                through_seq = seq
            elif seq != after_seq:
                break
            taken = min(count, seq - begin.seq)
            after_seq, start = seq - taken, 0
            if after_seq > begin.seq:
                start = stop
                for _ in range(taken):
                    start = lines.rfind(b"\n", 0, start - 1) + 1
            parts.append(lines[start:stop])
            count, length = count - taken, length + stop - start
            self._seq, self._stop = after_seq, start
        return LineRun(after_seq, parts[::-1], through_seq) if parts else None
