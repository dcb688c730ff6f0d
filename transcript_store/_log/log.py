"""How is the append-only file opened, recovered and appended to, and where are the bytes kept that a recovery removes?

Invariants, which the tests name:

L1  ``end`` is the end of the last complete append. The cache holds the newest lines up to it, verified. The file holds the
    rest, which is verified when it is read: line by line, or by the checksum of bytes that this process verified before.
L2  ``synced`` is at or before ``end``; everything up to it is on disk.
L3  Nothing is written unless the file is what memory says: the same inode, the same size, and no call was interrupted.
    After an interruption the file is read from ``synced`` on, as after a crash.
L4  A call returns only when L1 and, if requested, the sync hold for the bytes that it stored.

Together: acknowledged bytes are never overwritten, and never joined with later ones. Nothing is trusted because the page
cache shows it: the disk may not hold it.

Removed bytes are kept in ``quarantine/g<generation>-o<offset>-<first 16 hex of SHA-256>``: the name says where they were. The
same name with ``.json`` holds the note. The store never deletes them by itself.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from transcript_store._json.times import format_time, parse_time
from transcript_store._log.damage import Damage, judge
from transcript_store._log.header import Image, NotAHeader, begins_at, read_header
from transcript_store._log.lines import Cache, CachedLines
from transcript_store._log.messages import Messages
from transcript_store._log.record import (
    DAY_US,
    GENESIS,
    HASH_MEMBER,
    RECORD_HEAD_BYTES,
    SINGLE,
    SUFFIX_BYTES,
    Batch,
    Copied,
    Entry,
    Gap,
    Mark,
    Position,
    Stamp,
    close_line,
    header_body,
    record_body,
    record_head,
    record_time_us,
    stamp_of,
)
from transcript_store._log.retractions import TakenBack
from transcript_store._log.scan import Walk, append_before, first_line, has_bytes, read_chunks
from transcript_store._log.sealed_records import RecordSealer, batch_member, first_plain, plain_members
from transcript_store._os.directory import Folder, identity
from transcript_store._os.filesystem import NotOursError, SyncFailedError, kind_of, refusals
from transcript_store._os.names import QUARANTINE, TRANSCRIPT, is_temporary, quarantine_name
from transcript_store.display import many
from transcript_store.errors import CorruptTranscriptError, InvalidMessageError, UnsupportedVersionError
from transcript_store.hints import Hint


def purge_quarantine(folder: Folder) -> int:
    """Remove all quarantined bytes, durably; returns how many files there were."""
    if folder.status(QUARANTINE) is None:
        return 0
    with folder.subfolder(QUARANTINE) as quarantine:
        names = quarantine.names()
        for name in names:
            quarantine.remove_tree(name)
        quarantine.sync()
        return sum(not name.endswith(".json") and not is_temporary(name) for name in names)


def quarantine_bytes(
    folder: Folder,
    pieces: Callable[[], Iterable[bytes | bytearray]],
    *,
    generation: int,
    offset_bytes: int,
    kind: str,
    reason: str,
) -> str:
    """Keep bytes that are about to be removed from a transcript; returns the path of the file.

    On return they are on disk. ``pieces`` reads them from their start each time: they may be larger than memory. The
    same bytes kept again are one file, so an interrupted recovery can be repeated.
    """
    name, digest, length = name_in_quarantine(pieces, generation=generation, offset_bytes=offset_bytes)
    note = {
        "at": format_time(folder.files.now_us()),
        "generation": generation,
        "offset": offset_bytes,
        "bytes": length,
        "sha256": digest,
        "kind": kind,
        "reason": reason,
    }
    with folder.subfolder(QUARANTINE, create=True) as quarantine:
        if quarantine.read_file(f"{name}.json") is None:
            quarantine.replace_file(f"{name}.json", [orjson.dumps(note, option=orjson.OPT_INDENT_2) + b"\n"])
        try:
            with quarantine.reading(name) as kept:
                is_kept = has_bytes(kept.read, kept.size, pieces())
        except FileNotFoundError:
            is_kept = False
        if is_kept:
            quarantine.sync()  # the process that wrote it may have been killed before it did this
        else:
            quarantine.replace_file(name, pieces())
        return quarantine.path_of(name)


def name_in_quarantine(
    pieces: Callable[[], Iterable[bytes | bytearray]], *, generation: int, offset_bytes: int
) -> tuple[str, str, int]:
    """The name of the file that keeps these bytes, their SHA-256, and their number."""
    digest, length = sha256(), 0
    for piece in pieces():
        digest.update(piece)
        length += len(piece)
    found = digest.hexdigest()
    return quarantine_name(found, generation=generation, offset_bytes=offset_bytes), found, length


logger = logging.getLogger("transcript_store.log")


class AppendResult(NamedTuple):
    """The result of an append: sequence number, time, and the range of its line in transcript.jsonl (LF included).

    ``head`` is the line's own hash, which names the whole transcript up to it; ``previous_head`` is the hash of the
    line before.
    """

    seq: int
    at: str
    offset_bytes: int
    length_bytes: int
    head: str
    previous_head: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The recovery of a torn tail, on the last load or after an interrupted call."""

    messages_kept: int
    """The number of messages in the conversation afterwards."""
    torn_bytes: int
    """How many bytes were cut from the end of the transcript; 0 if it only lacked its last line feed."""
    quarantine: str | None
    """The file that holds those bytes now; None if there were none."""
    reason: str
    """A sentence about the cut bytes."""


class Prepared(NamedTuple):
    """The bytes and the result of an append, and the transcript's end and last time after it."""

    data: bytes
    stored: list[AppendResult]
    end: Position
    at_us: int


TAIL_BYTES = 64 * 1024
"""How much is read at first before a position, to verify what leads to it."""
_LONGEST_FRAME_BYTES = 256
"""More than a record has besides its message and its extra members. A message that fits with it need not be encoded to
be measured.
"""

_new = tuple.__new__
"""Makes a named tuple in 0.1 µs, where its class takes 0.35: an append of 13 µs makes four."""


class CannotCutBackError(OSError):
    """A write was refused, and the part that was written could not be cut off."""


class Log(Messages):
    """The transcript in a folder, open.

    With ``tail_only`` a load verifies only the last append before the mark and what follows. Earlier lines must lead to
    the mark's hash; they are verified when they are read.
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
        super().__init__(folder, name, cache_bytes)
        self.synced = self.end
        self.recovery: Recovery | None = None
        self.torn_tail: Gap | None = None
        """The bytes that a reader skipped after the last complete append."""
        self._name = name
        self._writable = writable
        self._from_medium = writable or from_medium
        """True if only what is on disk may be read: a writer appends to it, and a reader may be copying it."""
        self._max_line_bytes = max_line_bytes
        self._cache_bytes = cache_bytes
        self._tail_only = tail_only
        self._last_at_us = 0
        self._second = -1, ""
        """The second of the last stamp, and the text of a time up to its point."""
        self._warned_of_clock = False

    @property
    def updated_at(self) -> str:
        """The time of the last record, or of the header."""
        return format_time(self._last_at_us)

    # ---- open ----------------------------------------------------------------------------------------------------

    def open(self, mark: Mark | None) -> None:
        """Open the transcript and read its header; verify nothing else.

        A writer, and a reader that copies, sync it first.
        """
        try:
            self.handle, _ = self.folder.open_file(self._name, to_append=self._writable)
        except FileNotFoundError:
            raise self.corrupt("missing", "there is no transcript") from None
        except NotOursError as error:
            raise self.corrupt("foreign", error.reason) from None
        if self._writable:
            self._sync()
        elif self._from_medium:
            self.folder.sync_to_copy(self.handle)
        status = self.files.handle_status(self.handle)
        self.inode = identity(status)
        # After a failed sync the page cache shows bytes that the disk does not have (measured on ext4 and btrfs). A
        # writer that trusts them loses a *later* message. A file that ends at its mark was synced; any other is read
        # from the disk.
        if self._from_medium and (mark is None or mark.position.offset_bytes != status.st_size):
            self.files.drop_cache(self.handle)
        self._read_header(status.st_size)
        if self._from_medium and mark is not None and mark.generation != self.header.generation:
            # The mark belongs to another file; an equal length is a coincidence.
            self.files.drop_cache(self.handle)
            self._read_header(status.st_size)

    def _read_header(self, size: int) -> None:
        found = read_header(first_line(self.read, size))
        if isinstance(found, NotAHeader):
            if found.version is not None:
                raise UnsupportedVersionError(path=self.path, reason=found.reason)
            raise self.corrupt(found.kind, found.reason, line_number=1, offset_bytes=0)
        self.header, self.begin = found
        self.verified_from = self.end = self.begin
        self._last_at_us = parse_time(self.header.at)

    def verify(self, mark: Mark | None) -> None:
        """Verify the file. A writer recovers a torn tail, a reader skips it; any other damage raises."""
        begin, place = self.begin, self.begin if mark is None else mark.position
        # A file that ends before its mark is read from the start: it will be refused, and the error names the first bad
        # line.
        if self._tail_only and place.offset_bytes <= self.size_bytes():
            begin = append_before(self.read, begin, place.offset_bytes, TAIL_BYTES)
        cache = Cache(self._cache_bytes, begin)
        if self._take_in(begin, place.offset_bytes, cache).end != place:
            raise self.why_not(place)
        self._accept(place, place, cache)
        self.verified_from = begin
        self.is_current = True

    def _take_in(self, begin: Position, stop: int, cache: Cache) -> Walk:
        """Verify a range of the file, and cache as much of its end as fits."""
        walk = Walk(self.read, begin, stop)
        is_sealed = self.header.is_sealed
        for piece in walk:
            if is_sealed and (index := first_plain(piece.data, piece.starts)) is not None:
                raise self.not_genuine(
                    piece.begin.seq + 1 + index, "it is not sealed, but all records of this generation must be"
                )
            # Only the newest lines are kept. Of the lines before them the process keeps a checksum, to recognize them
            # when they are read again (L1).
            if piece.end.offset_bytes > stop - self._cache_bytes:
                cache.put(CachedLines(piece.begin, bytes(piece.data), piece.end))
            else:
                cache.skip_to(piece.end)
                self.note_verified(piece)
            last_at_us = record_time_us(piece.data[piece.starts[-1] :][:RECORD_HEAD_BYTES])
            # The next record's time is not before the last one's, nor before that of the record that was last until
            # now.
            if last_at_us is not None:
                self._last_at_us = max(self._last_at_us, last_at_us)
        return walk

    def _accept(self, begin: Position, mark: Position, cache: Cache) -> None:
        """Verify the bytes from ``begin`` to the end of the file. The old state stays until all of them are verified."""
        while self.verified and self.verified[-1].end.offset_bytes > begin.offset_bytes:
            self.verified.pop()  # noted by an earlier attempt
        size = self.size_bytes()
        # `size` was read once: a writer may append while a reader verifies, and later bytes are not judged.
        walk = self._take_in(begin, size, cache)
        damage = judge(self.read, size, walk, mark)
        if damage is not None and damage.kind != "torn-tail":
            raise self.damaged(damage)
        end, quarantined = walk.end, None
        if damage is not None and self._writable:
            quarantined = self._recover(damage, size)
            # A last record that got its line feed back counts too.
            end = self._take_in(end, self.size_bytes(), cache).end
            if end.offset_bytes != self.size_bytes():
                raise AssertionError("R3: what recovery leaves is whole")
        # `end` and `cache` change only here, after everything up to them was verified. An interruption above leaves the
        # old ones and `is_current` == False, so the next call starts over (L1, L3).
        self.cache, self.end, self.torn_tail = cache, end, None
        if self._writable:
            self.synced = end
        if damage is not None and self._writable:
            self._report(damage, size - damage.cut_at_bytes, quarantined)
        elif damage is not None:
            length = size - end.offset_bytes
            self.torn_tail = Gap(offset_bytes=end.offset_bytes, length_bytes=length, reason=damage.reason)

    def _recover(self, torn: Damage, size: int) -> str | None:
        """Cut a torn tail, or give a whole last record its line feed. The bytes are in quarantine before they are cut off."""
        cut_at, quarantined = torn.cut_at_bytes, None
        if cut_at < size:
            with refusals(self.path, "keep its torn tail in quarantine/", "So it was not cut", Hint.OPEN_TO_READ):
                quarantined = quarantine_bytes(
                    self.folder,
                    lambda: read_chunks(self.read, cut_at, size),
                    generation=self.header.generation,
                    offset_bytes=cut_at,
                    kind=torn.kind,
                    reason=torn.reason,
                )
        with refusals(self.path, "recover its torn tail", "Nothing that was acknowledged was touched"):
            if cut_at < size:
                # quarantine_bytes() has synced the bytes under a name made of offset and hash. Killed before this line, the next
                # load finds the same tail and the same name; killed after it, the bytes are in quarantine/.
                self.files.truncate(self.handle, cut_at)
            if torn.line_feed_missing:
                self.folder.write_all(self.handle, b"\n")
            self._sync()
        return quarantined

    def _report(self, torn: Damage, torn_bytes: int, quarantined: str | None) -> None:
        taken_back = self.taken_back()
        heads = (record_head(line) for block in self.blocks() for line in self.shown(block))
        kept = sum(head is not None and head.has_message and head.seq not in taken_back for head in heads)
        self.recovery = Recovery(messages_kept=kept, torn_bytes=torn_bytes, quarantine=quarantined, reason=torn.reason)
        if torn_bytes:
            what = "%s: recovered a torn tail: %d bytes cut at byte %d (%s)"
            logger.warning(what, self.path, torn_bytes, torn.cut_at_bytes, torn.reason)
        else:
            logger.warning("%s: wrote the line feed again that the last record lacked", self.path)

    # ---- append --------------------------------------------------------------------------------------------------

    def prepare(self, entries: Sequence[Entry]) -> Prepared:
        """The lines that append these entries as one batch; nothing is written."""
        at_us, now_us = self._last_at_us, self.files.now_us()
        second, microseconds = divmod(now_us, 1_000_000)
        if second == self._second[0] and now_us >= at_us:
            now: Stamp = (now_us, f"{self._second[1]}{microseconds:06}Z", None)
        else:
            now = self.stamp(now_us)
        first, offset, head = self.end
        previous = head.decode()
        seq, count = first, len(entries)
        lines: list[bytes] = []
        stored: list[AppendResult] = []
        # Sealed here, with the lock held, because the record's number and time are not known earlier. It takes 6 µs of
        # an append.
        sealer = self.sealer_to_write() if self.header.is_sealed else None
        for message, extra, given_us in entries:
            seq += 1
            batch = SINGLE if count == 1 else Batch(seq - first, count)
            at_us, at, clock = now if given_us is None else stamp_of(given_us, now, at_us)
            if sealer is not None:
                mark_of_batch = b"" if batch is SINGLE else batch_member(batch)
                body = sealer.body(seq, at.encode(), plain_members(message, extra, clock), mark_of_batch)
            elif message is None or extra is not None or clock is not None or batch is not SINGLE:
                body = record_body(seq, at.encode(), message, extra, clock, batch)
            else:
                body = [b'{"seq":%d,"at":"%b","message":' % (seq, at.encode()), message]  # what most records are
            digest = sha256(head)
            for part in body:
                digest.update(part)
            # The hash of the line before is hashed first: so each hash covers every byte before it.
            head = digest.hexdigest()[:32].encode()
            line = b"".join((*body, HASH_MEMBER, head, b'"}\n'))
            length = len(line)
            # Checked for the whole line, before anything is written: a batch is stored completely or not at all.
            if length > self._max_line_bytes:
                raise self._too_long(length, "message" if count == 1 else f"messages[{seq - first - 1}]")
            lines.append(line)
            text = head.decode()
            stored.append(_new(AppendResult, (seq, at, offset, length, text, previous)))
            offset += length
            previous = text
        return _new(Prepared, (b"".join(lines), stored, _new(Position, (seq, offset, head)), at_us))

    def prepare_retraction(self, first: int, last: int) -> Prepared:
        """The line that retracts these records, first and last included; nothing is written."""
        at_us, at, clock = self.stamp()
        seq, offset, previous = self.end.seq + 1, self.end.offset_bytes, self.end.head
        sealer, named = self.sealer_to_write(), (first, last)
        if sealer is None:
            body = record_body(seq, at.encode(), None, None, clock, retracts=named)
        else:
            body = sealer.body(seq, at.encode(), plain_members(None, None, clock, named), retracts=named)
        line, head = close_line(previous, *body)
        stored = AppendResult(seq, at, offset, len(line), head.decode(), previous.decode())
        return Prepared(line, [stored], Position(seq, offset + len(line), head), at_us)

    def append(self, prepared: Prepared, *, sync: bool) -> None:
        """Append lines that were prepared for exactly this end.

        Raises ``SyncFailedError`` if it was written but not synced, ``CannotCutBackError`` if a part was written and is
        still there, and the plain ``OSError`` if nothing of it was stored.
        """
        data, _, end, at_us = prepared
        # L3. A signal may interrupt this between any two lines. Then it stays False, and the next call reads the file.
        self.is_current = False
        try:
            done = self.files.write(self.handle, data)
            if done < len(data):
                self.folder.write_all(self.handle, data[done:])
        except OSError:
            # A full disk may have taken a part of the line.
            self._cut_back()  # the next line must not be glued to a part of this one
            raise
        if sync:
            try:
                self.files.sync_data(self.handle)
            except OSError as error:
                raise SyncFailedError(error.errno, error.strerror) from error
        # Only after the sync: if it fails, `end` still says what is stored, and the next call reads the file (L3).
        self.cache.put(_new(CachedLines, (self.end, data, end)))  # these bytes themselves: nothing is copied
        self.end = end
        if sync:
            self.synced = end
        self._last_at_us = at_us
        self.is_current = True

    def _cut_back(self) -> None:
        try:
            # Only bytes of our own, unacknowledged append are cut.
            self.files.truncate(self.handle, self.end.offset_bytes)
        except OSError as error:
            raise CannotCutBackError(error.errno, error.strerror) from error
        # The file is again what memory says, so a full disk does not end the store: the next append may succeed (P7).
        self.is_current = True

    def sync(self) -> None:
        """Sync to disk the bytes appended since the last sync; raises ``SyncFailedError``."""
        if self.synced != self.end:
            self._sync()
            self.synced = self.end

    def _sync(self) -> None:
        try:
            self.files.sync_data(self.handle)
        except OSError as error:
            raise SyncFailedError(error.errno, error.strerror) from error

    def stamp(self, now: int | None = None) -> Stamp:
        """The time of a record that is written now, or at this reading of the clock; it is never before the last record's.

        If the clock is a day or more before the last record, its reading is stored too: the last record may be the
        wrong one.
        """
        now = self.files.now_us() if now is None else now
        last = self._last_at_us
        if last - now < DAY_US:
            at_us = max(now, last)
            at = format_time(at_us)
            self._second = at_us // 1_000_000, at[:20]
            return at_us, at, None
        if not self._warned_of_clock:
            self._warned_of_clock = True
            logger.warning("%s: the clock says %s, the last record %s", self.path, format_time(now), format_time(last))
        return last, format_time(last), format_time(now).encode()

    def holds(self, position: Position) -> bool:
        """True if the transcript leads through this position: its hash covers every byte before it."""
        return position.seq <= self.end.seq and self._ends_in(position)

    def _ends_in(self, position: Position) -> bool:
        """True if a line with this hash ends at this position of the file."""
        suffix = HASH_MEMBER + position.head + b'"}\n'
        return self.read(position.offset_bytes - len(suffix), len(suffix)) == suffix

    # ---- replace -------------------------------------------------------------------------------------------------

    def image(
        self,
        members: dict[str, Any],
        entries: Iterable[Entry | Copied],
        features: Sequence[str] = (),
        *,
        sealer: RecordSealer | None = None,
        check: Callable[[bytes], bytes] | None = None,
        **more: Any,
    ) -> Image:
        """The next generation's transcript: a header with this metadata that requires these features, and these records.

        With a ``sealer`` the records are sealed, and ``check`` puts a keyed check behind the header.
        """
        now = _, at, clock = self.stamp()
        begins = begins_at(now, entries)
        if isinstance(entries, Sequence):
            for k, entry in enumerate(entries):
                if isinstance(entry, Copied):
                    continue  # it was stored once, so any length is accepted
                message, extra, _ = entry
                carried = len(message or b"") + len(extra or b"")
                # Sealing makes four bytes of three (base64). Only a message near the limit is encoded to be measured.
                if (carried if sealer is None else carried * 4 // 3) + _LONGEST_FRAME_BYTES >= self._max_line_bytes:
                    if sealer is None:
                        body = record_body(k + 1, at.encode(), message, extra, clock)
                    else:
                        body = sealer.body(k + 1, at.encode(), plain_members(message, extra, clock))
                    if (length := sum(map(len, body)) + SUFFIX_BYTES + 1) > self._max_line_bytes:
                        raise self._too_long(length, f"messages[{k}]")
        conversation, generation = members["id"], members["generation"]
        if features:
            more["requires"] = [*features]
        first = header_body(conversation=conversation, generation=generation, at=begins[1], metadata=members, **more)
        line, _ = close_line(GENESIS, first if check is None else check(first))
        return Image(line, begins, now, entries, self._cache_bytes, sealer)

    def _too_long(self, length: int, name: str) -> InvalidMessageError:
        reason = f"makes a line of {length:,} bytes, more than max_line_bytes ({self._max_line_bytes:,})"
        return InvalidMessageError(member=name, reason=reason)

    def adopt(self, image: Image, handle: int, inode: tuple[int, int]) -> None:
        """Switch to the new transcript: an image that was written, synced and renamed. Nothing here can fail.

        Writing an image verifies it, so all of it counts as verified.
        """
        with suppress(OSError):
            # The old file is in the archive: an error of its close concerns nothing that was stored.
            self.close()
        self.handle, self.inode = handle, inode
        self.header, self.begin, self.cache = image.header, image.begin, image.cache
        self.sealer = image.sealer
        self.end = self.synced = image.end
        self.verified_from = self.begin
        self.verified.clear()
        self._known_taken_back, self._passed_over = (0, TakenBack()), None
        self._last_at_us = image.last_at_us
        self.is_current = True

    # ---- look again ----------------------------------------------------------------------------------------------

    def is_as_remembered(self) -> bool:
        """L3: compare the file with what memory says; raises ``CorruptTranscriptError`` if it is another file."""
        try:
            # By its name, not by our handle: the handle still leads to our file after another one was renamed over it.
            status = self.files.status(self.folder.handle, self._name)
        except FileNotFoundError:
            raise self.corrupt("replaced", "the transcript was removed", hint=Hint.SAVE_AND_RELOAD) from None
        if status.st_ino != self.inode[1] or status.st_dev != self.inode[0]:
            what = "another file" if stat.S_ISREG(status.st_mode) else kind_of(status)
            raise self.corrupt("replaced", f"{what} replaced the transcript that was loaded")
        return self.is_current and status.st_size == self.end.offset_bytes

    def look_again(self) -> None:
        """Read the file from the last sync on, as after a crash: a call was interrupted, or another process wrote.

        If this call is interrupted too, the next one reads again: ``is_current`` is still False, or the size still
        differs. At worst everything was read and only the report of the cut is missing.
        """
        # From the last sync, not the last append: after a failed sync the page cache may show bytes that the disk
        # lacks.
        acknowledged, begin = self.end, self.synced
        self._sync()
        self.files.drop_cache(self.handle)
        size = self.size_bytes()
        # Not a torn tail: these bytes were synced, and no crash removes synced bytes (R2).
        if size < begin.offset_bytes:
            what = f"the transcript has {many(size, 'byte')}, and {acknowledged.offset_bytes:,} were stored"
            raise self.corrupt("truncated", what, hint=Hint.RELOAD)
        # The line that the next record is chained to may be damaged now.
        self.require_chain(append_before(self.read, self.begin, begin.offset_bytes, TAIL_BYTES), begin)
        self._accept(begin, acknowledged, self.cache.until(begin))
        self.is_current = True

    def read_on(self) -> bool:
        """For a reader: read the bytes after the last record; False if the bytes read before are no longer in the file."""
        # One comparison at the known end: its hash covers everything before, so an equal hash means an equal prefix.
        if not self._ends_in(self.end):
            return False
        try:
            self._accept(self.end, self.end, self.cache.until(self.end))
        except CorruptTranscriptError:
            return False
        return True
