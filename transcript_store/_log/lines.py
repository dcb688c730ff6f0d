"""The lines of a log, as bytes: the newest from memory, older ones from the file, where they are verified again.

A line was verified before anybody reads it. So a line that does not verify now was damaged since, and the error says how.
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
from transcript_store._os.os_errors import refusals
from transcript_store.errors import CorruptTranscriptError, KeyNeededError
from transcript_store.hints import Hint

# ---- cache ----
#
# The newest lines of a log in memory, up to a bound: the very bytes that were read or appended, never a copy.
#
# A call may be interrupted between any two lines here (Ctrl-C). What is held is in order even then.

OVERHEAD_BYTES = 336
"""What a block takes beside its bytes: its objects, those of a position, and a place in the queue."""


class CachedLines(NamedTuple):
    """Whole lines, and where they stand."""

    begin: Position
    lines: bytes | bytearray
    end: Position


class Cache:
    """Holds the lines of a log from ``begin`` to its end. If there is no room, it holds none, and ``begin`` is the end."""

    def __init__(self, limit_bytes: int, begin: Position) -> None:
        self._limit_bytes = limit_bytes
        self._blocks: deque[CachedLines] = deque()
        self._bytes = 0
        self._end = begin

    @property
    def begin(self) -> Position:
        """Where the first line begins that is held."""
        return self._blocks[0].begin if self._blocks else self._end

    def put(self, block: CachedLines) -> None:
        """Hold what stands behind all that is held. If there is no room for all, the oldest blocks go."""
        self._blocks.append(block)
        self._end = block.end
        self._bytes += len(block.lines) + OVERHEAD_BYTES
        while self._bytes > self._limit_bytes:
            self._bytes -= len(self._blocks.popleft().lines) + OVERHEAD_BYTES

    def until(self, end: Position) -> Cache:
        """A cache of what stands before ``end``, where a block begins or ends."""
        cache = Cache(self._limit_bytes, min(self.begin, end))
        for begin, lines, block_end in self._blocks:
            if block_end.offset_bytes <= end.offset_bytes:
                cache.put(CachedLines(begin, lines, block_end))
        return cache

    def skip_to(self, end: Position) -> None:
        """Hold nothing of what stands before a place."""
        self._blocks.clear()
        self._bytes = 0
        self._end = end

    def __iter__(self) -> Iterator[CachedLines]:
        return iter(self._blocks)

    def newest_first(self, before: int | None = None) -> Iterator[CachedLines]:
        """The blocks from the end of the log on; or from the last one on that begins behind fewer records than ``before``."""
        passed_over = 0
        if before is not None:
            passed_over = len(self._blocks) - bisect_left(self._blocks, before, key=attrgetter("begin.seq"))
        return islice(reversed(self._blocks), passed_over, None)


# ---- lines ----

Place = tuple[int, int]
"""Between two lines: so many records, and so many bytes of the file, stand before it. Of a ``Position`` the first two."""


class Tail(NamedTuple):
    """A stretch of a log in which no message counts."""

    begin: Place
    place: Position
    """The end of the block of lines in which it begins."""
    through_seq: int
    """The number of its last record."""
    taken_back: TakenBack
    """What the records in it take back, there and before it."""


class LineRun(NamedTuple):
    """Whole lines that stand one behind the other, to be decoded together, and the numbers of the records before them and last in them."""

    after_seq: int
    parts: list[bytes | bytearray]
    """As they are held: nothing is copied that need not be."""
    through_seq: int

    @property
    def line_count(self) -> int:
        """How many lines there are."""
        return self.through_seq - self.after_seq

    def lines(self) -> list[bytes]:
        """The lines. Where each part is one, they are the very bytes that are held, and keep their LF."""
        if len(self.parts) == self.line_count:
            return [*map(bytes, self.parts)]
        return b"".join(self.parts).split(b"\n")[:-1]

    def numbered(self) -> list[tuple[int, bytes]]:
        """The lines without their LF, each with its number."""
        return list(enumerate(b"".join(self.parts).split(b"\n")[:-1], self.after_seq + 1))


class Verified(NamedTuple):
    """A stretch of complete appends that this process verified line by line, and does not hold."""

    begin: Position
    end: Position
    checksum: int
    """Of its bytes: to read it again, they are compared with this one value."""


_NOT_READ_YET = Header(conversation="", generation=0, at="", metadata={}, members={})
GATHERED_BYTES = 1 << 16
"""So much is decoded at a time; it stays in the processor's cache."""


class VerifiedLines:
    """What a transcript holds from ``begin``, behind its header, to ``end``, the end of its last complete append."""

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
        """What was verified of the file, stretch by stretch from ``begin`` on, without a gap. It never reaches behind what was verified."""
        self.sealer: RecordSealer | None = None
        """What opens the records, if they are sealed and the key was given."""
        self.is_current = False
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

    def begins_with(self, source: OpenFile) -> bool:
        """Whether a file holds the beginning of this one, or all of it."""
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
        """What seals the next record; None if records are plain here. Raises ``KeyNeededError``."""
        if self.sealer is None and self.header.is_sealed:
            raise KeyNeededError(path=self.path)
        return self.sealer

    def opened(self, seq: int, line: bytes | bytearray) -> bytes | bytearray:
        """A line that can be decoded: the line itself, or what is sealed in it."""
        if (sealer := self.sealer_to_write()) is None:
            return line
        opened = sealer.opened(line, seq, self.header.kept_sealed)
        if opened is None:
            raise self.not_genuine(seq, "it is not what was sealed there with this conversation's key")
        return opened

    def require_kept_in_order(self) -> None:
        """Raise unless every record opens, and each was sealed behind the one in front of it: what a repair without the key may leave."""
        sealer = self.sealer_to_write()
        last = (-1, 0)
        for block in self.blocks():
            for seq, line in numbered(block):
                self.opened(seq, line)
                place = sealed_place(line) or (0 if sealer is None else sealer.generation, seq)
                if place <= last:
                    raise self.not_genuine(seq, "it was sealed before the record in front of it, or is that one again")
                last = place

    def shown(self, block: CachedLines) -> Iterator[bytes | bytearray]:
        """The lines of a block as far as they can be read: sealed ones if the key is not there."""
        can_open = self.sealer is not None
        return (self.opened(seq, line) if can_open else line for seq, line in numbered(block))

    def not_genuine(self, seq: int, reason: str) -> CorruptTranscriptError:
        """The error for a record that verifies, and was not written with the key."""
        return self.corrupt("not-genuine", reason, Hint.RESTORE, line_number=seq + 1)

    # ---- blocks --------------------------------------------------------------------------------------------------

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
        return VerifiedChunk(block.begin, block.lines, starts, block.end).boundary(seq - block.begin.seq)

    def append_behind(self, seq: int) -> Position:
        """Where an append begins, at or before the end of the record with this number, which is not the last one.

        Only what stands behind that is read.
        """
        return self.begin if seq == 0 else next(b.begin for b in self.newest_blocks_first() if b.begin.seq <= seq)

    def block_after(self, place: Position) -> CachedLines:
        """What follows the end of an append that is not the last one: lines in memory, or a piece of the file, verified again."""
        until = self.cache.begin
        if place.offset_bytes < until.offset_bytes:
            with refusals(self.path, "read it"):
                piece = next(iter(Walk(self.read, place, until.offset_bytes)), None)
                if piece is None or (piece.end.offset_bytes == until.offset_bytes and piece.end != until):
                    raise self.why_not(until)
            return CachedLines(place, piece.data, piece.end)
        block = next(block for block in self.cache if place.offset_bytes < block.end.offset_bytes)
        return CachedLines(place, block.lines[place.offset_bytes - block.begin.offset_bytes :], block.end)

    def blocks(self) -> Iterator[CachedLines]:
        """All lines in order: those that are not in memory are read, and verified again (L1)."""
        # The block behind the end is of an append that was interrupted. Nobody was told that it is stored.
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
        """Remember that a piece was verified: its lines need not be hashed one by one again."""
        if piece.begin == (self.verified[-1].end if self.verified else self.begin):
            self.verified.append(Verified(piece.begin, piece.end, checksum(piece.data)))

    def newest_blocks_first(self, passed_over: Tail | None = None) -> Iterator[CachedLines]:
        """The same, the newest first, as far back as somebody asks; without the lines of a tail that is passed over."""
        held = self.cache.newest_first()
        if passed_over is not None:
            first, last = passed_over.place.seq, passed_over.through_seq
            behind = takewhile(lambda block: block.end.seq > last and block.begin.seq >= first, held)
            held = chain(behind, self.cache.newest_first(first))
        for block in held:
            if block.begin.seq < self.end.seq:  # as in blocks()
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
                # The end is known, and its hash covers what is read here, down to the hash that it begins with.
                if scan(block.lines, begin).end != place:
                    raise self.why_not(place)
            yield block
            place, length = begin, min(2 * length, 4 * PIECE_BYTES)

    def blocks_before(self, seq: int) -> Iterator[CachedLines]:
        """Those that hold records before the one with this number, the newest first.

        Where this process verified the file, only they are read, whatever stands behind them; elsewhere what does is read too.
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
        self.verified.clear()
        self.is_current = False  # a writer looks at what it chains to before it goes on
        self.verified_from = self.end  # and verifies all of it anew before that goes into the archive
        damage, _ = check(self.read, self.size_bytes(), self.begin, place)
        if damage is not None:
            return self.damaged(damage)
        reason = "it was not whole when it was read, and is now: a disk or a memory that fails"
        return self.corrupt("damaged-line", reason)

    def damaged(self, damage: Damage) -> CorruptTranscriptError:
        """The error for this damage."""
        offset = damage.place.offset_bytes
        return self.corrupt(damage.kind, damage.reason, line_number=damage.line_number, offset_bytes=offset)

    def corrupt(self, kind: str, reason: str, hint: Hint | None = None, **place: int) -> CorruptTranscriptError:
        """An error that names the file, and the ``line_number`` and ``offset_bytes`` in it."""
        return CorruptTranscriptError(path=self.path, kind=kind, reason=reason, hint=hint, **place)


def split_lines(block: CachedLines) -> Sequence[bytes | bytearray]:
    """The lines of a block, each without its line feed."""
    return block.lines.split(b"\n")[:-1]


def numbered(block: CachedLines) -> list[tuple[int, bytes | bytearray]]:
    """The same, each with its number."""
    return list(enumerate(split_lines(block), block.begin.seq + 1))


def newest_lines_first(
    block: CachedLines, before: Place | None = None
) -> Iterator[tuple[int, bytes | bytearray, Place]]:
    """The same from the end on, each line when it is asked for: of a block of 256 KB mostly the last few are wanted. With where it begins.

    Or from a place ``before`` that on, which is in the block.
    """
    seq, stop = block.end[:2] if before is None else before
    end = stop - block.begin.offset_bytes - 1
    while seq > block.begin.seq:
        begin = block.lines.rfind(b"\n", 0, end) + 1
        yield seq, block.lines[begin:end], (seq - 1, block.begin.offset_bytes + begin)
        seq, end = seq - 1, begin - 1


def gathered(blocks: Iterable[CachedLines]) -> Iterator[LineRun]:
    """Blocks that stand one behind the other, so many together: an append makes a short one, and each costs a call or ten."""
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
    """The lines of blocks that come from the end on, as many at a time as are asked for."""

    def __init__(self, blocks: Iterator[CachedLines]) -> None:
        self._blocks = blocks
        self._block: CachedLines | None = None
        """What is taken from; the next one is read when a line of it is asked for."""
        self._seq = self._stop = 0
        """Of that block: the number of its last record that is left, and where that one ends; 0 if nothing is left."""

    def take(self, count: int) -> LineRun | None:
        """The next so many lines in their order, fewer if they are long or what stands before them is passed over; None for the end.

        Each line is looked for when it is asked for: of a block of 256 KB mostly the last few are wanted.
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
