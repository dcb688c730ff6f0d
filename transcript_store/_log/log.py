"""One append-only file: opened, recovered, appended to, read.

Invariants, which the tests name:

L1  ``end`` is the end of the last complete append. The cache holds the newest lines up to it, verified; the file holds the
    rest, which is verified when it is read.
L2  ``synced`` is at or before ``end``; everything up to it is on the medium.
L3  Nothing is written unless the file is what memory says: the same inode, the same size, and no call was interrupted.
    After an interruption the file is looked at from ``synced`` on, as after a crash.
L4  A call returns only when L1 and, if it was asked for, the sync hold for what it stored.

Together: what was acknowledged is never overwritten, never glued to, and never believed on the word of a cache that
holds what the disk does not.

The bytes come from a :data:`Read`: here a file, for another engine something else. Nothing that reads them knows.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from transcript_store._json.strict import JSONDecodeError, decode
from transcript_store._json.times import format_time, parse_time
from transcript_store._log import quarantine
from transcript_store._log.cache import Block, Cache
from transcript_store._log.damage import Damage, check, first_line, judge
from transcript_store._log.header import NotAHeader, read_header
from transcript_store._log.record import (
    DAY_US,
    GENESIS,
    HASH_MEMBER,
    RECORD_HEAD_BYTES,
    SINGLE,
    SUFFIX_BYTES,
    Batch,
    Copied,
    Gap,
    Header,
    Mark,
    Position,
    Record,
    as_record,
    close_line,
    close_onto,
    copied_body,
    has_message,
    header_body,
    record_body,
    record_time_us,
)
from transcript_store._log.salvage import copies
from transcript_store._log.scan import PIECE_BYTES, Walk, append_before, is_same, pieces_of, scan
from transcript_store._os.directory import Folder, Source
from transcript_store._os.names import TRANSCRIPT
from transcript_store._os.refusals import NotOursError, SyncFailedError, kind_of, refusals
from transcript_store.errors import (
    CorruptTranscriptError,
    InvalidMessageError,
    UnsupportedVersionError,
)
from transcript_store.ways_out import WayOut
from transcript_store.words import many

logger = logging.getLogger("transcript_store.log")

Entry = tuple[bytes | None, bytes | None]
"""What a record carries: an encoded message, an encoded extra."""


class AppendResult(NamedTuple):
    """What an append stored: sequence number, time, and where its line stands in transcript.jsonl (LF included).

    ``head`` is the line's own hash, the transcript's fingerprint up to here; ``previous_head`` is that of the line before.
    """

    seq: int
    at: str
    offset_bytes: int
    length_bytes: int
    head: str
    previous_head: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What recovery did to a torn tail, on the last load or after a call that was interrupted."""

    messages_kept: int
    """Messages in the conversation afterwards."""
    torn_bytes: int
    """How many bytes were cut from the end of the transcript; 0 if it only lacked its last line feed."""
    quarantine: str | None
    """The file that holds those bytes now; None if there were none."""
    reason: str
    """What they looked like."""


class Prepared(NamedTuple):
    """What an append writes, what it returns, and where the transcript ends and the time of its last record then."""

    data: bytes
    stored: list[AppendResult]
    end: Position
    at_us: int


TAIL_BYTES = 64 * 1024
"""How much is read at first of what stands before a place, to verify what leads to it."""

_new = tuple.__new__
"""Makes a named tuple of a tuple in half the time that its class takes: an append makes three."""


class CannotCutBackError(OSError):
    """A write was refused, and the part of it that was written could not be taken back."""


class Image:
    """A whole transcript that is being written, to be put in place by a rename: memory holds a piece of it at a time."""

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
        """The file's bytes; iterate once. When they are through, ``end`` and ``cache`` are those of the file."""
        yield self._line
        begin, lines = self.begin, bytearray()
        last: Sequence[bytes] = ()
        for seq, entry in enumerate(self._entries, 1):
            if isinstance(entry, Copied):
                body: Sequence[bytes] = copied_body(seq, entry)
            else:
                body = record_body(seq, self._at, *entry, self._clock)
            head = close_onto(lines, self.end.head, body)
            self.end = Position(seq, begin.offset_bytes + len(lines), head)
            last = body
            if len(lines) >= PIECE_BYTES:
                self.cache.put(Block(begin, lines, self.end))
                yield lines
                begin, lines = self.end, bytearray()
        if lines:
            self.cache.put(Block(begin, lines, self.end))
            yield lines
        # Records that were copied keep their times: the last of them may be later than the header.
        self.last_at_us = record_time_us(b"".join(last)[:RECORD_HEAD_BYTES]) or 0


class Log:
    """The transcript in a folder, open.

    With ``tail_only`` a load looks only at an append before the mark and what follows: what chains to the mark's hash is as
    it was when it was synced. The rest is verified when it is read.
    """

    def __init__(
        self,
        folder: Folder,
        *,
        writable: bool,
        max_line_bytes: int = 0,
        cache_bytes: int = 0,
        name: str = TRANSCRIPT,
        tail_only: bool = False,
        from_medium: bool = False,
    ) -> None:
        self.header = Header(conversation="", generation=0, at="", metadata={}, members={})
        self.end = self.synced = Position(0, 0, GENESIS)
        self.recovery: Recovery | None = None
        self.torn_tail: Gap | None = None
        """What a reader passed over behind the last complete append."""
        self.settled = False
        self._folder = folder
        self._files = folder.files
        self._name = name
        self._path = folder.path_of(name)
        self._writable = writable
        self._from_medium = writable or from_medium
        """Whether what is read has to be what the medium holds: a writer appends to it, and a reader may be copying it."""
        self._max_line_bytes = max_line_bytes
        self._cache_bytes = cache_bytes
        self._handle = -1
        self._inode = (-1, -1)
        self._tail_only = tail_only
        self._begin = self._verified_from = self.end
        self._cache = Cache(cache_bytes, self.end)
        self._last_at_us = 0
        self._warned_of_clock = False

    # ---- open ----------------------------------------------------------------------------------------------------

    def open(self, mark: Mark | None) -> None:
        """Open the transcript and read its header; verify nothing else yet.

        A writer, and a reader that copies, sync it first. Unless it ends where the mark says that it was synced, they also
        forget what the operating system's cache holds: after a failed sync that shows bytes that the disk does not have (measured on ext4
        and btrfs), and trusting them loses a *later* message.
        """
        try:
            self._handle = self._folder.open_file(self._name, to_append=self._writable)
        except FileNotFoundError:
            raise self._corrupt("missing", "there is no transcript") from None
        except NotOursError as error:
            raise self._corrupt("foreign", error.reason) from None
        if self._writable:
            self._sync()
        elif self._from_medium:
            self._folder.sync_to_copy(self._handle)
        status = self._files.handle_status(self._handle)
        self._inode = (status.st_dev, status.st_ino)
        if not self._from_medium:
            self._read_header()
        elif mark is None or mark.position.offset_bytes != status.st_size:
            self._files.drop_cache(self._handle)
            self._read_header()
        else:
            self._read_header()
            if mark.generation != self.header.generation:  # then the length is a coincidence
                self._files.drop_cache(self._handle)
                self._read_header()

    def _read_header(self) -> None:
        found = read_header(first_line(self._read, self.size_bytes()))
        if isinstance(found, NotAHeader):
            if found.version is not None:
                raise UnsupportedVersionError(path=self._path, reason=found.reason)
            raise self._corrupt(found.kind, found.reason, line_number=1, offset_bytes=0)
        self.header, self._begin = found
        self._verified_from = self.end = self._begin
        self._last_at_us = parse_time(self.header.at)

    def size_bytes(self) -> int:
        """The length of the file now; it may hold more than whole appends."""
        return self._files.handle_status(self._handle).st_size

    def _read(self, offset: int, length: int) -> bytearray:
        return self._files.read(self._handle, offset, length)

    def verify(self, mark: Mark | None) -> None:
        """Verify what is there; a writer recovers a torn tail, a reader passes over it, any other damage is refused."""
        begin = self._begin
        cache = Cache(self._cache_bytes, begin)
        if mark is None:
            self._accept(begin, begin, cache)
        else:
            place = mark.position
            if self._tail_only and place.offset_bytes <= self.size_bytes():
                begin = append_before(self._read, begin, place.offset_bytes, TAIL_BYTES)
                cache = Cache(self._cache_bytes, begin)
            if self._take_in(begin, place.offset_bytes, cache).end != place:
                raise self._why_not(place)
            self._accept(place, place, cache)
        self._verified_from = begin
        self.settled = True

    def _take_in(self, begin: Position, stop: int, cache: Cache) -> Walk:
        """Verify a stretch of the file, and hold of it what there is room for."""
        walk = Walk(self._read, begin, stop)
        for piece in walk:
            if piece.end.offset_bytes > stop - self._cache_bytes:
                cache.put(Block(piece.begin, bytes(piece.data), piece.end))
            else:
                cache.skip_to(piece.end)
            last = piece.data[piece.starts[-1] :][:RECORD_HEAD_BYTES]
            # The next record is not before the last one, nor before what was the last one until now.
            self._last_at_us = max(self._last_at_us, record_time_us(last) or 0)
        return walk

    def _accept(self, begin: Position, mark: Position, cache: Cache) -> None:
        """Take in what stands from ``begin`` to the end of the file; what was known stays until all of that is verified."""
        size = self.size_bytes()
        walk = self._take_in(begin, size, cache)
        damage = judge(self._read, size, walk, mark)
        if damage is not None and damage.kind != "torn-tail":
            raise self._damaged(damage)
        end = walk.end
        if damage is not None and self._writable:
            quarantined = self._recover(damage, size)
            end = self._take_in(end, self.size_bytes(), cache).end
            if end.offset_bytes != self.size_bytes():
                raise AssertionError("R3: what recovery leaves is whole")
        self._cache, self.end = cache, end
        self.torn_tail = None
        if damage is not None and not self._writable:
            self.torn_tail = Gap(
                offset_bytes=end.offset_bytes, length_bytes=size - end.offset_bytes, reason=damage.reason
            )
        if self._writable:
            self.synced = end
        if damage is not None and self._writable:
            self._report(damage, size - damage.cut_at_bytes, quarantined)

    def _recover(self, torn: Damage, size: int) -> str | None:
        """Cut a torn tail, or give a whole last record its line feed; the bytes are safe elsewhere before they go."""
        cut_at = torn.cut_at_bytes
        quarantined = None
        if cut_at < size:
            with refusals(
                self._path,
                "keep its torn tail in quarantine/",
                "So it was not cut",
                WayOut.OPEN_TO_READ,
            ):
                quarantined = quarantine.keep(
                    self._folder,
                    lambda: pieces_of(self._read, cut_at, size),
                    generation=self.header.generation,
                    offset_bytes=cut_at,
                    kind=torn.kind,
                    reason=torn.reason,
                )
        with refusals(self._path, "recover its torn tail", "Nothing that was acknowledged was touched"):
            if cut_at < size:
                self._files.truncate(self._handle, cut_at)
            if torn.line_feed_missing:
                self._folder.write_all(self._handle, b"\n")
            self._sync()
        return quarantined

    def _report(self, torn: Damage, torn_bytes: int, quarantined: str | None) -> None:
        kept = sum(has_message(line) for block in self._blocks() for line in block.lines.split(b"\n"))
        self.recovery = Recovery(messages_kept=kept, torn_bytes=torn_bytes, quarantine=quarantined, reason=torn.reason)
        logger.warning(
            "%s: recovered a torn tail: %d bytes cut at byte %d (%s)",
            self._path,
            torn_bytes,
            torn.cut_at_bytes,
            torn.reason,
        )

    def adopt(self, image: Image, handle: int, inode: tuple[int, int]) -> None:
        """Become what stands in place now: an image that was written, synced and renamed. Nothing here can fail."""
        with suppress(OSError):
            self.close()
        self._handle, self._inode = handle, inode
        self.header, self._begin, self._cache = image.header, image.begin, image.cache
        self.end = self.synced = image.end
        self._verified_from = self._begin
        self._last_at_us = max(parse_time(self.header.at), image.last_at_us)
        self.settled = True

    # ---- write ---------------------------------------------------------------------------------------------------

    def prepare(self, entries: Sequence[Entry]) -> Prepared:
        """The lines that would append these entries as one, all of them or none whatever happens; nothing is written."""
        at_us, at_text, clock = self.stamp()
        at = at_text.encode()
        first, offset, head = self.end
        previous = head.decode()
        seq, count = first, len(entries)
        lines: list[bytes] = []
        stored: list[AppendResult] = []
        for message, extra in entries:
            seq += 1
            batch = SINGLE if count == 1 else Batch(seq - first, count)
            line, head = close_line(head, *record_body(seq, at, message, extra, clock, batch))
            length = len(line)
            if length > self._max_line_bytes:
                raise self._too_long(length, "message" if count == 1 else f"messages[{seq - first - 1}]")
            lines.append(line)
            text = head.decode()
            stored.append(_new(AppendResult, (seq, at_text, offset, length, text, previous)))
            offset += length
            previous = text
        data = lines[0] if count == 1 else b"".join(lines)
        return _new(Prepared, (data, stored, _new(Position, (seq, offset, head)), at_us))

    def append(self, prepared: Prepared, *, sync: bool) -> None:
        """Append what was prepared for this very end.

        Raises ``SyncFailedError`` if it was written but not synced, ``CannotCutBackError`` if a part was written and is
        still there, and the plain ``OSError`` if nothing of it is there.
        """
        data, _, end, at_us = prepared
        self.settled = False
        try:
            self._folder.write_all(self._handle, data)
        except OSError:
            self._cut_back()
            raise
        if sync:
            self._sync()
        self._cache.put(_new(Block, (self.end, data, end)))
        self.end = end
        if sync:
            self.synced = end
        self._last_at_us = at_us
        self.settled = True

    def holds(self, position: Position) -> bool:
        """Whether the transcript leads through this position: its hash covers every byte before."""
        return position.seq <= self.end.seq and self._ends_in(position)

    def _ends_in(self, position: Position) -> bool:
        """Whether a line with this hash ends at this place of the file."""
        suffix = HASH_MEMBER + position.head + b'"}\n'
        return self._read(position.offset_bytes - len(suffix), len(suffix)) == suffix

    def image(self, members: dict[str, Any], entries: Iterable[Entry | Copied], **more: Any) -> Image:
        """The next generation's transcript: a header with this metadata, and these records."""
        _, at, clock = self.stamp()
        if isinstance(entries, Sequence):
            for k, entry in enumerate(entries):
                self._refuse_a_long_line(k, entry)
        body = header_body(
            conversation=members["id"], generation=members["generation"], at=at, metadata=members, **more
        )
        return Image(close_line(GENESIS, body)[0], at, clock, entries, self._cache_bytes)

    def _refuse_a_long_line(self, k: int, entry: Entry | Copied) -> None:
        """What is copied was stored once, and is whatever its length."""
        if isinstance(entry, Copied) or sum(len(part) for part in entry if part) + 256 < self._max_line_bytes:
            return
        _, at, clock = self.stamp()
        length = sum(map(len, record_body(k + 1, at.encode(), *entry, clock))) + SUFFIX_BYTES + 1
        if length > self._max_line_bytes:
            raise self._too_long(length, f"messages[{k}]")

    def stamp(self) -> tuple[int, str, bytes | None]:
        """The time of the next record, never before the record before it: microseconds, and text.

        Third, the clock's reading, if it is a day or more behind the last record.
        """
        now, last = self._files.now_us(), self._last_at_us
        if now >= last:
            return now, format_time(now), None
        if last - now < DAY_US:
            return last, format_time(last), None
        if not self._warned_of_clock:
            self._warned_of_clock = True
            logger.warning("%s: the clock says %s, the last record %s", self._path, format_time(now), format_time(last))
        return last, format_time(last), format_time(now).encode()

    def sync(self) -> None:
        """Put on the medium what was appended since the last sync; raises ``SyncFailedError``."""
        if self.synced != self.end:
            self._sync()
            self.synced = self.end

    def is_as_remembered(self) -> bool:
        """L3: compare the file with what memory says; raises ``CorruptTranscriptError`` if it is another file."""
        try:
            status = self._files.status(self._folder.handle, self._name)
        except FileNotFoundError:
            raise self._corrupt("replaced", "the transcript is gone", way_out=WayOut.SAVE_AND_LOAD_ANEW) from None
        if status.st_ino != self._inode[1] or status.st_dev != self._inode[0]:
            what = "another file" if stat.S_ISREG(status.st_mode) else kind_of(status)
            raise self._corrupt("replaced", f"{what} stands in the place of the transcript that was loaded")
        return self.settled and status.st_size == self.end.offset_bytes

    def look_again(self) -> None:
        """Read the file from the last sync on, as after a crash: a call was interrupted, or somebody else wrote."""
        self.settled = False
        acknowledged, begin = self.end, self.synced
        self._sync()
        self._files.drop_cache(self._handle)
        size = self.size_bytes()
        if size < begin.offset_bytes:
            raise self._corrupt(
                "truncated",
                f"the transcript has {many(size, 'byte')}, and {acknowledged.offset_bytes:,} were stored",
                way_out=WayOut.LOAD_ANEW,
            )
        before = append_before(self._read, self._begin, begin.offset_bytes, TAIL_BYTES)
        if Walk(self._read, before, begin.offset_bytes).to_the_end() != begin:
            raise self._why_not(begin)  # what the next record would be chained to is not whole any more
        self._accept(begin, acknowledged, self._cache.until(begin))
        self.settled = True

    def _cut_back(self) -> None:
        try:
            self._files.truncate(self._handle, self.end.offset_bytes)
        except OSError as error:
            raise CannotCutBackError(error.errno, error.strerror) from error
        self.settled = True

    def _sync(self) -> None:
        try:
            self._files.sync_data(self._handle)
        except OSError as error:
            raise SyncFailedError(error.errno, error.strerror) from error

    # ---- read ----------------------------------------------------------------------------------------------------

    @property
    def updated_at(self) -> str:
        """The time of the last record, or of the header."""
        return format_time(self._last_at_us)

    @property
    def is_fully_verified(self) -> bool:
        """Whether every line was verified since the load; not so if only the tail was looked at."""
        return self._verified_from == self._begin

    def complete(self) -> None:
        """Verify what a load of the tail left; raises ``CorruptTranscriptError``."""
        if self._verified_from != self._begin:
            with refusals(self._path, "read what stands before its tail"):
                if Walk(self._read, self._begin, self._verified_from.offset_bytes).to_the_end() != self._verified_from:
                    raise self._why_not(self._verified_from)
            self._verified_from = self._begin

    def messages(self, last: int | None = None) -> list[dict[str, Any]]:
        """The messages in order, or the ``last`` so many; decoded anew."""
        found: list[dict[str, Any]] = []
        if last is None:
            for block in self._blocks():
                self._decode(block, found)
            return found
        for line in self._lines_newest_first():
            if len(found) == last:
                break
            if (message := self._message_in(line)) is not None:
                found.append(message)
        return found[::-1]

    def records(self, last: int | None = None) -> list[Record]:
        """The records in order, or the ``last`` so many; decoded anew."""
        if last is None:
            return list(self.each_record())
        return [self._record_in(line) for line in islice(self._lines_newest_first(), last)][::-1]

    def each_record(self) -> Iterator[Record]:
        """The records in order, each decoded when it is asked for. The log must not change meanwhile."""
        return (self._record_in(line) for block in self._blocks() for line in _lines(block))

    def _decode(self, block: Block, found: list[dict[str, Any]]) -> None:
        append = found.append
        line: bytes | bytearray = b""
        try:
            for line in _lines(block):  # the one loop that a reader of everything waits for
                message = decode(line).get("message")
                if type(message) is dict:
                    append(message)
                elif message is not None:
                    raise self._not_a_record(line)
        except JSONDecodeError:
            raise self._not_a_record(line) from None

    def _message_in(self, line: bytes | bytearray) -> dict[str, Any] | None:
        try:
            message = decode(line).get("message")
        except JSONDecodeError:
            raise self._not_a_record(line) from None
        if type(message) is dict or message is None:
            return message
        raise self._not_a_record(line)

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
        return islice((copy for block in self._blocks() for copy in copies(block.lines)), count)

    def contents(self) -> Iterator[bytes | bytearray]:
        """The file's bytes up to ``end``, in pieces."""
        yield self._read(0, self._begin.offset_bytes)
        for block in self._blocks():
            yield block.lines

    def head_at(self, seq: int) -> str:
        """The hash of the record with this number, of the header for 0."""
        if seq == self.end.seq:
            return self.end.head.decode()
        for block in self._blocks():
            if block.end.seq > seq:
                starts = scan(block.lines, block.begin).starts
                if seq > block.begin.seq:
                    end = starts[seq - block.begin.seq]
                    return block.lines[end - 35 : end - 3].decode()
                return block.begin.head.decode()
        raise AssertionError("a record that there is")

    def _blocks(self) -> Iterator[Block]:
        """All lines in order: those that are not in memory are read, and verified again."""
        until = self._cache.begin
        walk = Walk(self._read, self._begin, until.offset_bytes)
        with refusals(self._path, "read it"):
            for piece in walk:
                yield Block(piece.begin, piece.data, piece.end)
            if walk.end != until:
                raise self._why_not(until)
        self._verified_from = self._begin
        for block in self._cache:
            if block.begin.seq < self.end.seq:  # what an interrupted call left behind it is not known to be stored
                yield block

    def _lines_newest_first(self) -> Iterator[bytes | bytearray]:
        for block in self._cache.newest_first():
            if block.begin.seq < self.end.seq:
                yield from reversed(_lines(block))
        place, length = self._cache.begin, PIECE_BYTES // 4
        while place != self._begin:
            with refusals(self._path, "read it"):
                begin = append_before(self._read, self._begin, place.offset_bytes, length)
                block = Block(begin, self._read(begin.offset_bytes, place.offset_bytes - begin.offset_bytes), place)
                # The end is known, and its hash covers what is read here, down to the hash that it begins with.
                if scan(block.lines, begin).end != place:
                    raise self._why_not(place)
            yield from reversed(_lines(block))
            place, length = begin, min(2 * length, 4 * PIECE_BYTES)

    def _why_not(self, place: Position) -> CorruptTranscriptError:
        """What is wrong with a transcript that was known to lead through this place, and does not."""
        self.settled = False  # a writer makes sure of what it chains to before it goes on
        self._verified_from = self.end  # and verifies all of it anew before that goes into the archive
        damage, _ = check(self._read, self.size_bytes(), self._begin, place)
        if damage is None:
            reason = "it was not whole when it was read, and is now: a disk or a memory that fails"
            return self._corrupt("damaged-line", reason)
        return self._damaged(damage)

    def _not_a_record(self, line: bytes | bytearray) -> CorruptTranscriptError:
        reason = "the line verifies, but is not a record: a program that knows the format wrote something else"
        begin, number = self._begin.offset_bytes, 2
        for block in self._blocks():
            for other in _lines(block):
                if other == line:
                    return self._corrupt("foreign", reason, number, begin, way_out=WayOut.RESTORE_OR_REPAIR)
                begin, number = begin + len(other) + 1, number + 1
        return self._corrupt("foreign", reason)

    def begins_with(self, source: Source) -> bool:
        """Whether a file holds the beginning of this one, or all of it."""
        if (source.status.st_dev, source.status.st_ino) == self._inode:
            return True
        if source.size > self.end.offset_bytes:
            return False
        return is_same(source.read, source.size, pieces_of(self._read, 0, source.size))

    def is_at(self, inode: tuple[int, int]) -> bool:
        """Whether this is the file that is open."""
        return inode == self._inode

    def read_on(self) -> bool:
        """For a reader: take in what follows the last record; False if what was read before is not there any more."""
        if not self._ends_in(self.end):
            return False
        try:
            self._accept(self.end, self.end, self._cache.until(self.end))
        except CorruptTranscriptError:
            return False
        return True

    def hard_links(self) -> int:
        return self._files.handle_status(self._handle).st_nlink

    def close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            self._files.close(handle)

    # ---- errors --------------------------------------------------------------------------------------------------

    def _too_long(self, length: int, name: str) -> InvalidMessageError:
        reason = f"makes a line of {length:,} bytes, more than max_line_bytes ({self._max_line_bytes:,})"
        return InvalidMessageError(member=name, reason=reason)

    def _damaged(self, damage: Damage) -> CorruptTranscriptError:
        return self._corrupt(damage.kind, damage.reason, damage.line_number, damage.offset_bytes)

    def _corrupt(
        self,
        kind: str,
        reason: str,
        line_number: int | None = None,
        offset_bytes: int | None = None,
        *,
        way_out: WayOut | None = None,
    ) -> CorruptTranscriptError:
        return CorruptTranscriptError(
            path=self._path,
            kind=kind,
            reason=reason,
            line_number=line_number,
            offset_bytes=offset_bytes,
            way_out=way_out,
        )


def _lines(block: Block) -> Sequence[bytes | bytearray]:
    return block.lines.split(b"\n")[:-1]
