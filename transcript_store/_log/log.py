"""One append-only file: verified, recovered, appended to.

Invariants, which the tests name:

L1  ``end`` is the end of the last complete append; the buffer holds the file's bytes up to it, verified, from the file's
    beginning or from ``base`` on.
L2  ``synced`` is at or before ``end``; everything up to it is on the medium.
L3  Nothing is written unless the file is what memory says: the same inode, the same size, and no call was interrupted.
    After an interruption the file is looked at from ``synced`` on, as after a crash.
L4  A call returns only when L1 and, if it was asked for, the sync hold for what it stored.

Together: what was acknowledged is never overwritten, never glued to, and never believed on the word of a cache that
holds what the disk does not.
"""

from __future__ import annotations

import logging
import stat
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

from transcript_store._json.strict import JSONDecodeError, decode
from transcript_store._json.times import format_time, parse_time
from transcript_store._log import quarantine as _quarantine
from transcript_store._log import recovery
from transcript_store._log.record import (
    DAY_US,
    GENESIS,
    RECORD_HEAD_BYTES,
    SINGLE,
    SUFFIX_BYTES,
    Batch,
    Copied,
    Header,
    Mark,
    Position,
    Record,
    as_record,
    copied,
    copied_body,
    has_message,
    header_body,
    record_body,
    record_time_us,
    seal_line,
    seal_onto,
)
from transcript_store._os.directory import Folder
from transcript_store._os.names import TRANSCRIPT
from transcript_store._os.refusals import NotOursError, SyncFailedError, kind_of, refusals
from transcript_store.errors import (
    CorruptTranscriptError,
    InvalidMessageError,
    UnsupportedVersionError,
)

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


class Image(NamedTuple):
    """A whole transcript in memory, to be put in place by a rename."""

    header: Header
    begin: Position
    end: Position
    buffer: bytearray
    starts: array[int]


_WHOLE = Position(0, 0, GENESIS)
"""Where memory begins if it holds the whole file, header included."""

_TAIL_BYTES = 64 * 1024
"""How much is read at first of what stands before the mark, if only the tail is wanted."""


_new = tuple.__new__
"""Makes a named tuple of a tuple in half the time that its class takes: an append makes three."""


class CannotCutBackError(OSError):
    """A write was refused, and the part of it that was written could not be taken back."""


class Log:
    """The transcript in a folder, open, with its bytes in memory.

    With ``tail_only`` memory begins at an append before the mark, whose word is taken for what stands before: what chains
    to the mark's hash is as it was when it was synced. The rest is read and verified when it is asked for.
    """

    def __init__(
        self, folder: Folder, *, writable: bool, max_line_bytes: int, name: str = TRANSCRIPT, tail_only: bool = False
    ) -> None:
        self.header = Header(conversation="", generation=0, at="", metadata={}, members={})
        self.end = self.synced = Position(0, 0, GENESIS)
        self.recovery: Recovery | None = None
        self.settled = False
        self._folder = folder
        self._files = folder.files
        self._name = name
        self._path = folder.path_of(name)
        self._writable = writable
        self._max_line_bytes = max_line_bytes
        self._handle = -1
        self._inode = (-1, -1)
        self._tail_only = tail_only
        self._base = _WHOLE
        """Where memory begins: the buffer's first byte, and the record before the first of ``_starts``."""
        self._buffer = bytearray()
        self._starts = array("Q")
        self._begin = self.end
        self._last_at_us = 0
        self._warned_of_clock = False

    # ---- open ----------------------------------------------------------------------------------------------------

    def open(self, mark: Mark | None) -> None:
        """Open the transcript and read it and its header; verify nothing else yet.

        A writer syncs it first. Unless it ends where the mark of this very generation says that it was synced, a writer
        also forgets what the cache holds and reads it again: after a failed sync the cache shows bytes that the disk
        does not have (measured on ext4 and btrfs), and trusting them loses a *later* message.
        """
        try:
            self._handle = self._folder.open_file(self._name, to_append=self._writable)
        except FileNotFoundError:
            raise self._corrupt("missing", "there is no transcript") from None
        except NotOursError as error:
            raise self._corrupt("foreign", error.reason) from None
        if self._writable:
            self._sync()
        found = self._read(mark)
        if self._writable and not self._ends_at(mark, found):
            self._files.drop_cache(self._handle)
            found = self._read(mark)
        if isinstance(found, recovery.NotAHeader):
            if found.version is not None:
                raise UnsupportedVersionError(f"{self._path}: {found.reason}; upgrade it", path=self._path)
            raise self._corrupt(found.kind, found.reason, line_number=1, offset_bytes=0)
        self.header, self._begin = found
        self._last_at_us = parse_time(self.header.at)

    def _read(self, mark: Mark | None) -> tuple[Header, Position] | recovery.NotAHeader:
        status = self._files.handle_status(self._handle)
        self._inode = (status.st_dev, status.st_ino)
        self._base = _WHOLE
        if self._tail_only and mark is not None and mark.position.offset_bytes <= status.st_size:
            found = recovery.read_header(self._folder.first_line(self._handle))
            if not isinstance(found, recovery.NotAHeader) and found[0].generation == mark.generation:
                self._base = self._append_before(mark.position.offset_bytes, _TAIL_BYTES)
        begin = self._base.offset_bytes
        self._buffer = self._files.read(self._handle, begin, max(0, status.st_size - begin))
        return found if begin else recovery.read_header(self._buffer)

    def _append_before(self, offset: int, length: int) -> Position:
        """The first append to begin in the ``length`` bytes before a place, or in a multiple; the file's beginning if none does."""
        while length < offset:
            place = recovery.first_append(self._files.read(self._handle, offset - length, length))
            if place is not None:
                return place.moved(offset - length)
            length *= 4
        return _WHOLE

    def _ends_at(self, mark: Mark | None, found: tuple[Header, Position] | recovery.NotAHeader) -> bool:
        if mark is None or isinstance(found, recovery.NotAHeader) or found[0].generation != mark.generation:
            return False
        return self._base.offset_bytes + len(self._buffer) == mark.position.offset_bytes

    def verify(self, mark: Mark | None) -> None:
        """Verify what was read; a writer recovers a torn tail, a reader passes over it, any other damage is refused."""
        self._accept(self._base if self._base.seq else self._begin, mark.position if mark else self._begin)
        if mark is not None and (self._is_whole or not self.holds(mark.position)):
            self.complete()
            self._refuse(recovery.check_mark(mark, self._starts, self.end, self._buffer))
        self.settled = True

    def adopt(self, image: Image, handle: int, inode: tuple[int, int]) -> None:
        """Become what stands in place now: an image that was written, synced and renamed. Nothing here can fail."""
        with suppress(OSError):
            self.close()
        self._handle, self._inode = handle, inode
        self._base = _WHOLE
        self.header, self._begin, self.end, self._buffer, self._starts = image
        self.synced = self.end
        self._last_at_us = parse_time(self.header.at)
        self._look_at_last_time()
        self.settled = True

    def _accept(self, begin: Position, mark: Position) -> None:
        """Take in what the buffer holds from ``begin`` on. What is not whole is judged with all of the file in memory."""
        buffer, base = self._buffer, self._base
        by = base.offset_bytes
        scan = recovery.scan(buffer, begin.moved(-by), mark.moved(-by)).moved(by)
        if scan.damage is not None and not self._is_whole:
            buffer, base, begin = self._before(0) + buffer, _WHOLE, self._begin
            scan = recovery.scan(buffer, begin, mark)
        torn = scan.damage if scan.damage is not None and scan.damage.kind == "torn-tail" else None
        if torn is None:
            self._refuse(scan.damage)
        self._buffer, self._base = buffer, base
        del self._starts[begin.seq - base.seq :]
        self._starts += scan.starts
        quarantined = None
        torn_bytes = 0
        if torn is not None and self._writable:
            torn_bytes = len(self._buffer) - torn.cut_at_bytes
            quarantined = self._recover(torn)
            scan = recovery.scan(self._buffer, scan.end, mark)
            self._refuse(scan.damage)  # R3: there is none
            self._starts += scan.starts
        del self._buffer[scan.end.offset_bytes - base.offset_bytes :]
        self.end = scan.end
        if self._writable:
            self.synced = self.end
        self._look_at_last_time()
        if torn is not None and self._writable:
            kept = sum(has_message(self._buffer[start : start + RECORD_HEAD_BYTES]) for start in self._starts)
            self.recovery = Recovery(
                messages_kept=kept, torn_bytes=torn_bytes, quarantine=quarantined, reason=torn.reason
            )
            logger.warning(
                "%s: recovered a torn tail: %d bytes cut at byte %d (%s)",
                self._path,
                torn_bytes,
                torn.cut_at_bytes,
                torn.reason,
            )

    def _look_at_last_time(self) -> None:
        """The next record is not before the last one, nor before what was the last one until now."""
        if self._starts:
            start = self._starts[-1] - self._base.offset_bytes
            last = record_time_us(self._buffer[start : start + RECORD_HEAD_BYTES])
            self._last_at_us = max(self._last_at_us, last or 0)

    def _recover(self, torn: recovery.Damage) -> str | None:
        """Cut a torn tail, or give a whole last record its line feed; the bytes are safe elsewhere before they go."""
        cut_at = torn.cut_at_bytes
        tail = bytes(self._buffer[cut_at:])
        quarantined = None
        if tail:
            with refusals(
                self._path,
                "keep its torn tail in quarantine/",
                "So it was not cut; read_only=True gives every whole record",
            ):
                quarantined = _quarantine.keep(
                    self._folder,
                    tail,
                    generation=self.header.generation,
                    offset_bytes=cut_at,
                    kind=torn.kind,
                    reason=torn.reason,
                )
        with refusals(self._path, "recover its torn tail", "Nothing that was acknowledged was touched"):
            if tail:
                self._files.truncate(self._handle, cut_at)
            if torn.line_feed_missing:
                self._folder.write_all(self._handle, b"\n")
            self._sync()
        del self._buffer[cut_at:]
        if torn.line_feed_missing:
            self._buffer += b"\n"
        return quarantined

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
            line, head = seal_line(head, *record_body(seq, at, message, extra, clock, batch))
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
        data, stored, end, at_us = prepared
        self.settled = False
        try:
            self._folder.write_all(self._handle, data)
        except OSError:
            self._cut_back()
            raise
        if sync:
            self._sync()
        self._buffer += data
        for appended in stored:
            self._starts.append(appended.offset_bytes)
        self.end = end
        if sync:
            self.synced = end
        self._last_at_us = at_us
        self.settled = True

    def holds(self, position: Position) -> bool:
        """Whether the transcript leads through this position: the same records before it, to the last byte."""
        seq, offset, head = position
        return seq <= self.end.seq and self.head_at(seq) == head.decode() and self._end_of(seq) == offset

    def image(self, members: dict[str, Any], entries: Iterable[Entry | Copied], **more: Any) -> Image:
        """The next generation's transcript in memory: a header with this metadata, and these records."""
        _, at_text, clock = self.stamp()
        at = at_text.encode()
        body = header_body(
            conversation=members["id"], generation=members["generation"], at=at_text, metadata=members, **more
        )
        line, head = seal_line(GENESIS, body)
        found = recovery.read_header(line)
        assert not isinstance(found, recovery.NotAHeader)
        buffer, starts = bytearray(line), array("Q")
        for k, entry in enumerate(entries, 1):
            start = len(buffer)
            starts.append(start)
            if isinstance(entry, Copied):
                head = seal_onto(buffer, head, copied_body(k, entry))
            else:
                message, extra = entry
                head = seal_onto(buffer, head, record_body(k, at, message, extra, clock))
                if len(buffer) - start > self._max_line_bytes:
                    raise self._too_long(len(buffer) - start, f"messages[{k - 1}]")
        return Image(*found, Position(len(starts), len(buffer), head), buffer, starts)

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
            raise self._corrupt(
                "replaced", "the transcript is gone; load() anew, after you saved get_messages() if you need it"
            ) from None
        if status.st_ino != self._inode[1] or status.st_dev != self._inode[0]:
            what = "another file" if stat.S_ISREG(status.st_mode) else kind_of(status)
            raise self._corrupt(
                "replaced", f"{what} stands in the place of the transcript that was loaded; load() anew"
            )
        return self.settled and status.st_size == self.end.offset_bytes

    def look_again(self) -> None:
        """Read the file from the last sync on, as after a crash: a call was interrupted, or somebody else wrote."""
        self.settled = False
        acknowledged, begin = self.end, self.synced
        self._sync()
        self._files.drop_cache(self._handle)
        size = self._files.handle_status(self._handle).st_size
        if size < begin.offset_bytes:
            raise self._corrupt(
                "truncated",
                f"the transcript has {size} bytes, and {acknowledged.offset_bytes} were stored; load() anew",
            )
        del self._buffer[begin.offset_bytes - self._base.offset_bytes :]
        self._buffer += self._files.read(self._handle, begin.offset_bytes, size - begin.offset_bytes)
        self._accept(begin, acknowledged)
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
    def buffer(self) -> bytearray:
        """The file's bytes up to ``end``, as far as they are in memory. Do not change or keep."""
        return self._buffer

    @property
    def _is_whole(self) -> bool:
        return self._base.offset_bytes == 0

    def complete(self) -> None:
        """Have all of the file in memory, verified; raises ``CorruptTranscriptError``, and then memory is as it was."""
        if not self._is_whole:
            whole = self._before(0)
            whole += self._buffer
            scan = recovery.scan(whole, self._begin, self.end)
            self._refuse(scan.damage)
            self._buffer, self._starts, self._base = whole, scan.starts, _WHOLE

    def _extend(self) -> None:
        """Have twice as much of the file in memory, verified: it must lead to where memory began."""
        base = self._append_before(self._base.offset_bytes, len(self._buffer))
        by = base.offset_bytes
        more = self._before(by)
        scan = recovery.scan(more, base.moved(-by), base.moved(-by)).moved(by)
        if scan.end != self._base:
            self.complete()  # it is the header that stands there, or damage: this says what is wrong
        else:
            self._buffer, self._starts, self._base = more + self._buffer, scan.starts + self._starts, base

    def _before(self, offset: int) -> bytearray:
        """The file's bytes from an offset up to where memory begins."""
        with refusals(self._path, "read what stands before its tail"):
            return self._files.read(self._handle, offset, self._base.offset_bytes - offset)

    def messages(self, last: int | None = None) -> list[dict[str, Any]]:
        """The messages in order, or the ``last`` so many; decoded anew."""
        if last is None:
            self.complete()
        while True:
            found = self._messages_in_memory(last)
            if self._is_whole or len(found) == last:
                return found
            self._extend()

    def _messages_in_memory(self, last: int | None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        with memoryview(self._buffer) as view:
            for start, end in self._bounds(newest_first=last is not None):
                if len(found) == last:
                    break
                try:
                    message = decode(view[start:end]).get("message")
                except JSONDecodeError:
                    raise self._not_a_record(start) from None
                if type(message) is dict:
                    found.append(message)
                elif message is not None:
                    raise self._not_a_record(start)
        return found if last is None else found[::-1]

    def records(self, last: int | None = None) -> list[Record]:
        """The records in order, or the ``last`` so many; decoded anew."""
        if last is None:
            self.complete()
        while not self._is_whole and (last or 0) > self.end.seq - self._base.seq:
            self._extend()
        bounds = self._bounds(newest_first=last is not None)
        found: list[Record] = []
        with memoryview(self._buffer) as view:
            for start, end in islice(bounds, last):
                try:
                    record = as_record(decode(view[start:end]))
                except JSONDecodeError:
                    record = None
                if record is None:
                    raise self._not_a_record(start)
                found.append(record)
        return found if last is None else found[::-1]

    def _bounds(self, *, newest_first: bool) -> Iterator[tuple[int, int]]:
        """Where the line of each record begins and ends in the buffer."""
        by, starts, count = self._base.offset_bytes, self._starts, self.end.seq - self._base.seq
        if by:
            starts = array("Q", (start - by for start in starts))
        end = (self.end.offset_bytes - by,)
        if newest_first:
            down = range(count - 1, -1, -1)
            return zip(map(starts.__getitem__, down), chain(end, map(starts.__getitem__, down)), strict=False)
        return zip(islice(starts, count), chain(islice(starts, 1, count), end), strict=False)

    def head_at(self, seq: int) -> str:
        """The hash of the record with this number, of the header for 0."""
        if seq <= self._base.seq:
            self.complete()
        end = self._end_of(seq) - self._base.offset_bytes
        return self._buffer[end - 35 : end - 3].decode()

    def _end_of(self, seq: int) -> int:
        """Where the line of a record that is in memory ends in the file."""
        return self._starts[seq - self._base.seq] if seq < self.end.seq else self.end.offset_bytes

    def copies(self, count: int) -> Iterator[Copied]:
        """The first so many records, to be put into another transcript."""
        self.complete()
        for index in range(count):
            end = self._end_of(index + 1)
            yield copied(self._buffer[self._starts[index] : end - SUFFIX_BYTES - 1])

    def _not_a_record(self, start: int) -> CorruptTranscriptError:
        offset = start + self._base.offset_bytes
        reason = "the line verifies, but is not a record: a program that knows the format wrote something else"
        return self._corrupt("foreign", reason, bisect_left(self._starts, offset) + self._base.seq + 2, offset)

    def is_at(self, inode: tuple[int, int]) -> bool:
        """Whether this is the file that is open."""
        return inode == self._inode

    def read_on(self) -> bool:
        """For a reader: take in what follows the last record; False if what was read before is not there any more."""
        base = self._base
        del self._starts[self.end.seq - base.seq :]  # what an interrupted call left
        del self._buffer[self.end.offset_bytes - base.offset_bytes :]
        last = self._starts[-1] if self._starts else 0
        size = self._files.handle_status(self._handle).st_size
        tail = self._files.read(self._handle, last, max(0, size - last))
        known = self.end.offset_bytes - last
        if tail[:known] != self._buffer[last - base.offset_bytes :]:
            return False
        self._buffer += tail[known:]
        try:
            self._accept(self.end, self.end)
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

    def _refuse(self, damage: recovery.Damage | None) -> None:
        if damage is not None:
            raise self._corrupt(damage.kind, damage.reason, damage.line_number, damage.offset_bytes)

    def _corrupt(
        self, kind: str, reason: str, line_number: int | None = None, offset_bytes: int | None = None
    ) -> CorruptTranscriptError:
        return CorruptTranscriptError(
            path=self._path, kind=kind, reason=reason, line_number=line_number, offset_bytes=offset_bytes
        )
