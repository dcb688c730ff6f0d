"""The lines of a log, to read: the newest from memory, older ones from the file, where they are verified again.

A line was verified before anybody reads it. So a line that does not verify now was damaged since, and the error says how.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from transcript_store._json.strict import JSONDecodeError, decode
from transcript_store._log.cache import Block, Cache
from transcript_store._log.damage import Damage, check
from transcript_store._log.record import (
    GENESIS,
    Copied,
    Header,
    Position,
    Record,
    Retracts,
    as_record,
    copied,
    may_retract,
    record_head,
    retracts_of,
)
from transcript_store._log.retractions import TakenBack
from transcript_store._log.salvage import copies
from transcript_store._log.scan import PIECE_BYTES, Piece, Walk, append_before, is_same, pieces_of, scan
from transcript_store._log.sealed import RecordSealer, sealed_place
from transcript_store._os.directory import Folder, Source, identity
from transcript_store._os.refusals import refusals
from transcript_store.errors import CorruptTranscriptError, KeyNeededError
from transcript_store.ways_out import WayOut

_GATHERED_BYTES = 1 << 16
"""So much is decoded at a time; it stays in the processor's cache."""


class Tail(NamedTuple):
    """A stretch of a log, from the end of an append on, in which no message counts."""

    place: Position
    through_seq: int
    """The number of its last record."""
    taken_back: TakenBack
    """What the records in it take back, there and before it."""


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
        self.sealer: RecordSealer | None = None
        """What opens the records, if they are sealed and the key was given."""
        self._known_taken_back = (0, TakenBack())
        """What the records up to one with this number take back."""
        self._passed_over: Tail | None = None
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

    # ---- sealed records ------------------------------------------------------------------------------------------

    def sealer_to_write(self) -> RecordSealer | None:
        """What seals the next record; None if records are plain here. Raises ``KeyNeededError``."""
        if self.sealer is None and self.header.is_sealed:
            raise KeyNeededError(path=self.path)
        return self.sealer

    def _opened(self, seq: int, line: bytes | bytearray) -> bytes | bytearray:
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
            for seq, line in _numbered(block):
                self._opened(seq, line)
                place = sealed_place(line) or (0 if sealer is None else sealer.generation, seq)
                if place <= last:
                    raise self.not_genuine(seq, "it was sealed before the record in front of it, or is that one again")
                last = place

    def shown(self, block: Block) -> Iterator[bytes | bytearray]:
        """The lines of a block as far as they can be read: sealed ones if the key is not there."""
        can_open = self.sealer is not None
        return (self._opened(seq, line) if can_open else line for seq, line in _numbered(block))

    def not_genuine(self, seq: int, reason: str) -> CorruptTranscriptError:
        """The error for a record that verifies, and that nobody wrote who has the key."""
        return self.corrupt("not-genuine", reason, WayOut.RESTORE, line_number=seq + 1)

    # ---- read ----------------------------------------------------------------------------------------------------

    def messages(self, last: int | None = None) -> list[dict[str, Any]]:
        """The messages in order, or the ``last`` so many; decoded anew."""
        found: list[dict[str, Any]] = []
        if last is None:
            taken_back = self.taken_back()
            for block in _gathered(self.blocks()):
                if taken_back.meets(block.begin.seq + 1, block.end.seq):
                    counted = (self._opened(seq, line) for seq, line in _numbered(block) if seq not in taken_back)
                    self._decode(counted, found)
                elif (together := self._messages_in(block)) is None:
                    self._decode((self._opened(seq, line) for seq, line in _numbered(block)), found)
                else:
                    found += together
            return found
        self.sealer_to_write()
        newest = (line for _, line, _ in self._in_force_newest_first(TakenBack()))
        while lines := list(islice(newest, last - len(found))):  # more than once if some of them carry no message
            self._decode(lines, found)
        return found[::-1]

    def last_messages(self, count: int) -> tuple[list[int], Tail]:
        """The numbers of the last so many messages that count, the newest first, fewer if there are not so many; and what stands
        behind the append that has the first of them.
        """
        found: list[int] = []
        place, taken_back = self.end, TakenBack()
        for seq, line, append_end in self._in_force_newest_first(taken_back):
            if self._has_message(line):
                found.append(seq)
                place = append_end
                if len(found) == count:
                    break
        return found, Tail(place, self.end.seq, taken_back)

    def pass_over(self, tail: Tail) -> None:
        """Note that no message counts in a tail, so that whoever takes back again and again need not look at it again."""
        self._passed_over = tail

    def _has_message(self, line: bytes | bytearray) -> bool:
        if b'"message":' not in line:
            return False
        head = record_head(line)
        return (head is not None and head.has_message) or self._record_of(0, line).message is not None

    def _in_force_newest_first(self, taken_back: TakenBack) -> Iterator[tuple[int, bytes | bytearray, Position]]:
        """The records that are not taken back, from the end on, each with its number and the end of the block that it is in.

        What takes a record back stands behind it, and is met before it: ``taken_back`` grows on the way.
        """
        can_retract, passed_over = self.header.can_retract, self._passed_over
        if passed_over is not None:
            taken_back.add_all(passed_over.taken_back)
        for block in self._newest_blocks_first(passed_over):
            may_name = can_retract and may_retract(block.lines)
            if not may_name and taken_back.covers(block.begin.seq + 1, block.end.seq):
                continue
            for seq, line in reversed(_numbered(block)):
                if may_name and (named := self._retracts_in(seq, line)):
                    taken_back.add(*named)
                if seq not in taken_back:
                    yield seq, self._opened(seq, line), block.end

    def _retracts_in(self, seq: int, line: bytes | bytearray) -> Retracts | None:
        """What a record takes back. Of a sealed one that can be opened, what is sealed says so too."""
        named = retracts_of(seq, line, line.index(b","))
        if named is not None and self.sealer is not None:
            self._opened(seq, line)  # raises if somebody else wrote it
        return named

    def taken_back(self, after_seq: int = 0, through_seq: int | None = None) -> TakenBack:
        """What the records behind one number take back, up to another number; it is not changed by what is appended later."""
        if not self.header.can_retract:
            return TakenBack()
        through = self.end.seq if through_seq is None else min(through_seq, self.end.seq)
        known_to, known = self._known_taken_back
        if known_to > through:
            known_to, known = 0, TakenBack()
        found, floor = TakenBack(known), max(known_to, after_seq)
        for block in self._newest_blocks_first():
            if block.end.seq <= floor:
                break
            if self.sealer is None:
                found.read(block.lines, block.begin.seq, through)
            elif may_retract(block.lines):
                for seq, line in _numbered(block):
                    if seq <= through and (named := self._retracts_in(seq, line)):
                        found.add(*named)
        if floor == known_to and through == self.end.seq:
            self._known_taken_back = through, TakenBack(found)
        return found

    def _messages_in(self, block: Block) -> list[dict[str, Any]] | None:
        """The messages of a block whose lines are decoded together, as one array: what a reader of everything waits for.

        That takes three quarters of the time of one line after the other. None where lines are unusual: then each line is decoded by
        itself, which also says what is wrong with one. (Whoever forges lines that verify, and that are records only together, can as
        well forge a record.)
        """
        sealer = self.sealer_to_write()
        if sealer is None:
            together = block.lines.replace(b"\n", b",")[:-1]
        else:
            opened = sealer.all_opened(block.lines, block.begin.seq + 1)
            if opened is None:
                return None
            together = b",".join(opened)
        try:
            records = decode(b"".join((b"[", together, b"]")))
            # A line that ends within an array and one that begins there would be one record together.
            if len(records) != block.end.seq - block.begin.seq:
                return None
            if sealer is not None and any("retracts" in record for record in records):
                return None  # which has to be in sight, too
            messages = [message for record in records if (message := record.get("message")) is not None]
        except (JSONDecodeError, AttributeError):
            return None
        return messages if {*map(type, messages)} <= {dict} else None

    def _decode(self, lines: Iterable[bytes | bytearray], found: list[dict[str, Any]]) -> None:
        append = found.append
        line: bytes | bytearray = b""
        try:
            for line in lines:
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
        taken_back, found = TakenBack(), []
        for seq, line in islice(self._newest_first(), last):
            record = self._record_in(seq, line, taken_back)
            if record.retracts:
                taken_back.add(*record.retracts)  # it stands behind what it takes back, and is met before it
            found.append(record)
        return found[::-1]

    def each_record(self) -> Iterator[Record]:
        """The records in order, each decoded when it is asked for. The log must not change meanwhile."""
        taken_back = self.taken_back()
        return (self._record_in(seq, line, taken_back) for block in self.blocks() for seq, line in _numbered(block))

    def _record_in(self, seq: int, line: bytes | bytearray, taken_back: TakenBack | None = None) -> Record:
        return self._record_of(seq, self._opened(seq, line), taken_back)

    def _record_of(self, seq: int, line: bytes | bytearray, taken_back: TakenBack | None = None) -> Record:
        named = retracts_of(seq, line, line.index(b",")) if self.header.can_retract else None
        try:
            record = as_record(decode(line), named, is_retracted=taken_back is not None and seq in taken_back)
        except JSONDecodeError:
            record = None
        if record is None:
            raise self._not_a_record(line)
        return record

    def copies(self, count: int) -> Iterator[Copied]:
        """The first so many records, to be put into another transcript."""
        if self.header.is_sealed:
            opened = (self._opened(seq, line) for block in self.blocks() for seq, line in _numbered(block))
            found = islice((copied(line[:-1]) for line in opened), count)
        else:
            found = islice((copy for block in self.blocks() for copy in copies(block.lines)), count)
        # Where nothing can be taken back no record names others, whatever it says, nor does its copy.
        return found if self.header.can_retract else (copy._replace(seq=0) for copy in found)

    def copies_of(self, seqs: Container[int]) -> Iterator[Copied]:
        """The records with these numbers, in their order, to be put into another transcript."""
        return (copy for seq, copy in enumerate(self.copies(self.end.seq), 1) if seq in seqs)

    def contents(self) -> Iterator[bytes | bytearray]:
        """The file's bytes up to ``end``, in pieces."""
        yield self.read(0, self.begin.offset_bytes)
        for block in self.blocks():
            yield block.lines

    def records_in(self, block: Block, after_seq: int, through_seq: int, taken_back: TakenBack) -> list[Record]:
        """The records of a block whose numbers are greater than the first number, and at most the second."""
        lines = _numbered(block)[max(0, after_seq - block.begin.seq) : through_seq - block.begin.seq]
        return [self._record_in(seq, line, taken_back) for seq, line in lines]

    def place_after(self, seq: int) -> Position:
        """Where the record with this number ends; for 0 where the header does."""
        if seq == self.end.seq:
            return self.end
        block = next(block for block in self.blocks() if seq < block.end.seq)
        starts = scan(block.lines, block.begin).starts
        return Piece(block.begin, block.lines, starts, block.end).boundary(seq - block.begin.seq)

    def append_behind(self, seq: int) -> Position:
        """Where an append begins, at or before the end of the record with this number, which is not the last one.

        Only what stands behind that is read.
        """
        return self.begin if seq == 0 else next(b.begin for b in self._newest_blocks_first() if b.begin.seq <= seq)

    def block_after(self, place: Position) -> Block:
        """What follows the end of an append that is not the last one: lines in memory, or a piece of the file, verified again."""
        until = self.cache.begin
        if place.offset_bytes < until.offset_bytes:
            with refusals(self.path, "read it"):
                piece = next(iter(Walk(self.read, place, until.offset_bytes)), None)
                if piece is None or (piece.end.offset_bytes == until.offset_bytes and piece.end != until):
                    raise self.why_not(until)
            return Block(place, piece.data, piece.end)
        block = next(block for block in self.cache if place.offset_bytes < block.end.offset_bytes)
        return Block(place, block.lines[place.offset_bytes - block.begin.offset_bytes :], block.end)

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
            # The block behind the end is of an append that was interrupted. Nobody was told that it is stored.
            if block.begin.seq < self.end.seq:
                yield block

    def _newest_first(self) -> Iterator[tuple[int, bytes | bytearray]]:
        return (numbered for block in self._newest_blocks_first() for numbered in reversed(_numbered(block)))

    def _newest_blocks_first(self, passed_over: Tail | None = None) -> Iterator[Block]:
        tail = passed_over or Tail(self.end, self.end.seq, TakenBack())
        for block in self.cache.newest_first():
            is_passed_over = tail.place.seq <= block.begin.seq and block.end.seq <= tail.through_seq
            if block.begin.seq < self.end.seq and not is_passed_over:  # as in blocks()
                yield block
        place, length = self.cache.begin, PIECE_BYTES // 4
        if tail.place.seq < place.seq <= tail.through_seq:
            place = tail.place
        while place != self.begin:
            with refusals(self.path, "read it"):
                begin = append_before(self.read, self.begin, place.offset_bytes, length)
                block = Block(begin, self.read(begin.offset_bytes, place.offset_bytes - begin.offset_bytes), place)
                # The end is known, and its hash covers what is read here, down to the hash that it begins with.
                if scan(block.lines, begin).end != place:
                    raise self.why_not(place)
            yield block
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


def _gathered(blocks: Iterable[Block]) -> Iterator[Block]:
    """Blocks that stand one behind the other as longer ones: an append makes a short one, and each costs a call or ten."""
    waiting: list[Block] = []
    length = 0
    for block in blocks:
        waiting.append(block)
        length += len(block.lines)
        if length >= _GATHERED_BYTES:
            yield _joined(waiting)
            waiting, length = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    return Block(blocks[0].begin, b"".join(block.lines for block in blocks), blocks[-1].end)


def _lines(block: Block) -> Sequence[bytes | bytearray]:
    return block.lines.split(b"\n")[:-1]


def _numbered(block: Block) -> list[tuple[int, bytes | bytearray]]:
    return list(enumerate(_lines(block), block.begin.seq + 1))
