"""How is the conversation in a folder copied to a backend? New data is appended to the copy.

Invariants, which the tests name:

S1  Nothing is sent unless the folder contains the copy: the same hash where the copy ends, which covers everything
    before. This is checked before the claim and again with it, so that concurrent writes are detected. Nothing is ever
    written over.
S2  A slot is whole appends, and a generation comes with all records that it started with. So a partial copy is readable.
S3  A writer there that does not ship is not fenced, except on the caller's request.
S4  What is sent is on the folder's disk. Otherwise the copy might have a message that the folder loses in a power loss.

The folder is read without its lock. The copy itself shows how far a run came: nothing else is recorded, and the next
run continues after a killed one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from transcript_store._conversation import archive, layout
from transcript_store._conversation.storage import Reader, StorageOptions
from transcript_store._json.times import format_time, parse_time
from transcript_store._log.log import Log
from transcript_store._log.record import RECORD_HEAD_BYTES, Mark, Position, record_time_us
from transcript_store._log.scan import VerifiedChunk, Walk
from transcript_store._os import filesystem
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem, refusals
from transcript_store._os.names import KEY, METADATA, TRANSCRIPT
from transcript_store._sealing.keys import decode_key_file
from transcript_store.backends._backend import Backend, DivergedError
from transcript_store.backends._claims import WAITS_SECONDS, ClaimedLog
from transcript_store.backends._restoring import read_at_one_moment
from transcript_store.backends._slots import LogState, encoded
from transcript_store.backends._storage import require_no_active_writer
from transcript_store.backends._summary import keep_summary
from transcript_store.errors import ConversationShreddedError, TranscriptStoreError

__all__ = ["Shipped", "Shipper", "ship"]

SHIPS = "ships"
"""The role of a holder that only ships: another shipper may fence it, because nothing is lost."""
_DOING = "ship the conversation"
_PACK_EACH = 256
"""Slots here are long: a pack of so many has 64 MiB at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """The result of :func:`ship`."""

    id: str
    directory: str
    generation: int
    """The generation in which the copy ends now; with ``record_count`` and ``head``, its end. -1 if there is no copy."""
    record_count: int
    """The number of records of that generation in the copy."""
    head: str
    """The hash of the last of them."""
    sent_records: int
    """How many records this run sent, of all generations."""
    sent_bytes: int
    """How many bytes of transcripts that was, with their first lines."""
    left_records: int
    """How many records of the folder the copy lacks: those appended during the run; with ``dry_run`` those to send."""
    left_bytes: int
    key_is_missing: bool
    """True if the conversation is sealed and the backend lacks its wrapped key."""


class Shipper:
    """Sends one conversation repeatedly, and reads only the new records. ``transcript-store ship --follow`` uses it.

    Between two calls of :meth:`send` it holds the claim, if it wrote anything. :meth:`close` releases that; a ``with`` block calls it.
    Arguments and errors are those of :func:`ship`.
    """

    def __init__(
        self,
        directory: filesystem.AnyPath,
        backend: Backend,
        *,
        take_over: bool = False,
        with_key: bool = False,
        waits_seconds: Sequence[float] = WAITS_SECONDS,
        file_system: FileSystem | None = None,
    ) -> None:
        self._files = filesystem.REAL if file_system is None else file_system
        self._reader = Reader(
            self._files, filesystem.absolute_path(directory), StorageOptions(max_line_bytes=0, tail_only=True)
        )
        self._backend, self._waits = backend, waits_seconds
        self._take_over, self._with_key = take_over, with_key
        self._slots: ClaimedLog | None = None
        self._check: bytes | None = None
        """The keyed check of metadata.json, if it has one."""
        self._expected: tuple[int, Position] | None = None
        """The copy's end at the last check of S1; None if it must be checked."""
        self._was_shipped_to = self._metadata_is_of_others = False
        self._sent_looks: object = None
        """The stamps of the folder's files before everything was sent."""
        self._sent_records = self._sent_bytes = 0

    def __enter__(self) -> Shipper:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def has_news(self) -> bool:
        """True if the folder changed since :meth:`send` sent everything. Sends no request."""
        return self._sent_looks is None or self._sent_looks != self._looks()

    def _looks(self) -> object:
        with suppress(OSError), Folder.open(self._files, self._reader.path) as folder:
            return looks_of(folder)
        return None

    def send(self) -> Shipped:
        """Send what the backend lacks; as :func:`ship`."""
        self._sent_records = self._sent_bytes = 0
        # Read before the folder: a change during the send must look like a change to the next round.
        looks, self._sent_looks = self._looks(), None
        with refusals(self._reader.path, _DOING):
            self._read_folder()
            while True:
                try:
                    self._send()
                    break
                # The folder's generation was replaced while it was sent: start again from the new state.
                except _MovedError:
                    continue
            with suppress(TranscriptStoreError):
                self._reader.refresh()  # for the rest: the next call reports what is wrong there
            report = self._report()
        # Otherwise the folder has to look changed: what was appended during the send is sent in the next round.
        if not report.left_records:
            self._sent_looks = looks
        return report

    def lag(self) -> Shipped:
        """Report what the backend lacks. Nothing is written, and nothing is claimed."""
        self._sent_records = self._sent_bytes = 0
        with refusals(self._reader.path, _DOING):
            self._read_folder()
            self._look()
            self._require_same(self._claimed.state)
            return self._report()

    def close(self) -> None:
        """Release the conversation on the backend, if it was claimed here, and close the folder. Never raises."""
        try:
            slots = self._slots
            if slots is not None and slots.is_held:
                # A release is a courtesy. All that was sent is stored, and the next writer only waits for the idle
                # time.
                with suppress(TranscriptStoreError), slots.trying_once():
                    slots.write(lambda state: encoded(state, "release", self._at(state)), _DOING)
                    keep_summary(slots, self._reader.files, self._reader.path, slots.state.at)
        finally:
            self._reader.let_go()

    # ---- the folder ------------------------------------------------------------------------------------------------------

    def _read_folder(self) -> None:
        """S4: the transcript and the metadata of one moment, on disk."""
        reader = self._reader
        agreed = read_at_one_moment(reader).agreed
        self._members, self._mark = agreed.members, agreed.mark
        self._check = None if agreed.check is None else agreed.check[1]
        if self._slots is None:
            self._slots = ClaimedLog(
                self._backend,
                reader.log.header.conversation,
                waits_seconds=self._waits,
                sleep=self._files.wait,
                pack_each=_PACK_EACH,
            )

    @property
    def _claimed(self) -> ClaimedLog:
        """The conversation on the backend; its id is known once the folder was read."""
        assert self._slots is not None
        return self._slots

    def _generations(self) -> list[int]:
        live = self._reader.log.header.generation
        return [*(number for number in archive.numbers(self._reader.folder) if number < live), live]

    # ---- the copy -------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._claimed.look_patiently()
        self._take_note()

    def _take_note(self) -> None:
        """Note the writers of the applied slots: a change of the copy's metadata by others must not be lost."""
        for slot in self._claimed.fresh:
            claim = slot.after.claim
            is_ours = claim is not None and claim.holder.get(SHIPS) is True
            self._was_shipped_to |= is_ours
            if slot.kind in ("generation", "metadata"):
                self._metadata_is_of_others = not is_ours
        self._claimed.fresh.clear()

    def _require_same(self, state: LogState) -> list[int]:
        """S1: raise unless the folder contains the copy; returns the generations of which the copy may lack something."""
        there = self._generations()
        if state.slot == 0:
            return there
        if state.generation in there:
            with self._reader.archived(state.generation) as log:
                # One hash decides: it covers everything that the copy has of this generation.
                if not log.holds(state.end):
                    raise self._diverged(state, f"it has other records up to record {state.end.seq}")
        elif not self._ended_at(state, there):
            raise self._diverged(state, "it does not have that generation")
        self._require_same_metadata(state)
        return [number for number in there if number >= state.generation]

    def _ended_at(self, state: LogState, there: Sequence[int]) -> bool:
        """True if a generation that was deleted from the archive ended where the backend does."""
        number, successor = state.generation, None
        if number + 1 in there:
            with self._reader.archived(number + 1) as log:
                successor = log.header
        end = layout.end_of(number, self._claimed.id, successor, self._members)
        return end == layout.End(state.end.seq, state.end.head.decode())

    def _require_same_metadata(self, state: LogState) -> None:
        if self._metadata_is_of_others and _dumped(state.members) != _dumped(self._members):
            at = str(state.members.get("updated_at"))
            # Metadata changed on the copy by another writer: overwriting it would lose that change.
            if self._was_shipped_to or at > self._reader.updated_at:
                raise self._diverged(state, f"its metadata was changed there at {at}")

    def _diverged(self, state: LogState, reason: str) -> DivergedError:
        ours = self._reader.log
        return DivergedError(
            path=self._reader.path,
            backend=self._claimed.path,
            reason=reason,
            head=ours.end.head.decode(),
            backend_head=state.end.head.decode(),
            generation=ours.header.generation,
            backend_generation=state.generation,
        )

    # ---- send ------------------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        self._look()
        if self._with_key:
            self._send_key()
        due = self._require_same(self._claimed.state)
        self._expected = self._position
        for number in due:
            with self._reader.archived(number) as log:
                self._bring_up(log)
        self._send_metadata()
        if self._sent_bytes:
            keep_summary(self._claimed, self._reader.files, self._reader.path, self._reader.updated_at)

    @property
    def _position(self) -> tuple[int, Position]:
        return self._claimed.state.slot and self._claimed.state.generation, self._claimed.state.end

    def _send_key(self) -> None:
        """Send the wrapped key before the data that it seals. A destroyed key is not restored."""
        folder, cell = self._reader.folder, self._claimed.key
        if folder.status(KEY) is None:
            return
        with folder.reading(KEY) as source:
            data = bytes(source.read(0, source.size))
        with suppress(ConversationShreddedError):  # which is sent too: so it is destroyed there
            decode_key_file(data, folder.path_of(KEY), self._claimed.id)
        while (found := cell.read()) != data:
            # A backup of the folder may have an older key file: it must not bring a destroyed key back.
            if found is not None and _is_shredded(found, cell.path, self._claimed.id):
                return
            cell.replace(data, found, "put the key beside the conversation")

    def _bring_up(self, log: Log) -> None:
        state = self._claimed.state
        if state.slot == 0 or state.generation < log.header.generation:
            self._begin(log)
        for stop in self._stops(log, self._claimed.state.end):
            walk = Walk(log.read, self._claimed.state.end, stop.offset_bytes)
            for piece in walk:
                self._write("append", bytes(piece.data), piece.end)
            # Damage in the folder is never shipped.
            if walk.end != stop:
                raise log.why_not(stop)
            if stop != log.end:
                self._send_metadata()

    def _stops(self, log: Log, begin: Position) -> Iterator[Position]:
        """Where to pause. The keyed check of a sealed conversation covers a mark, and follows the slot that ends there."""
        mark = self._mark
        if (
            self._check is not None
            and mark is not None
            and mark.generation == log.header.generation
            and begin.offset_bytes <= mark.position.offset_bytes < log.end.offset_bytes
        ):
            yield mark.position
        yield log.end

    def _begin(self, log: Log) -> None:
        """S2: the first line, and every record that is not younger than it; a sealed one says how many there are."""
        parts, end = [bytes(log.read(0, log.begin.offset_bytes))], log.begin
        began_us, count = parse_time(log.header.at), log.header.begins_with
        stop = next(stop for stop in self._stops(log, log.begin) if stop.seq >= count)
        for piece in Walk(log.read, log.begin, stop.offset_bytes):
            first, last = piece.begin.seq + 1, piece.end.seq
            if first > count and _time_us_of(piece, 0) > began_us:
                break
            parts.append(bytes(piece.data))
            end = piece.end
            if last >= count and _time_us_of(piece, -1) > began_us:
                break
        self._write("generation", b"".join(parts), end)

    def _send_metadata(self) -> None:
        state, check = self._claimed.state, self._check
        # Metadata of a later generation belongs behind that generation, which is sent first.
        if state.generation != self._members["generation"]:
            return
        is_same = _dumped(state.members) == _dumped(self._members)
        if check is None:
            if not is_same:
                self._write("metadata", metadata=self._members)
        # The keyed check covers the mark. It can only be sent when the copy ends exactly there.
        elif Mark(state.generation, state.end) == self._mark and not (
            is_same and state.checked is not None and state.checked[1] == check
        ):
            self._write("metadata", metadata=self._members, check=check.decode())

    def _write(self, kind: Any, lines: bytes = b"", end: Position | None = None, **more: Any) -> None:
        def make(state: LogState, **claim: Any) -> bytes:
            return encoded(state, kind, self._at(state), lines=lines, end=end, **more, **claim)

        before = self._claimed.state
        if before.slot == 0:
            self._claim(lambda state, token: make(state, token=token, holder=self._holder))
        else:
            if not self._claimed.is_held:
                self._claim(
                    lambda state, token: encoded(state, "claim", self._at(state), token=token, holder=self._holder)
                )
            self._claimed.write(make, _DOING)
        self._take_note()
        self._expected = self._position
        after = self._claimed.state.end.seq
        self._sent_records += after if kind == "generation" else after - before.end.seq
        self._sent_bytes += len(lines)

    def _claim(self, make: Callable[[LogState, str], bytes]) -> None:
        def may(state: LogState) -> None:
            """S1, S3: the copy is unchanged since the comparison, and no writer is active there."""
            claim = state.claim
            if not (self._take_over or self._claimed.is_ours or (claim and claim.holder.get(SHIPS) is True)):
                require_no_active_writer(state, self._files.now_us(), self._claimed.path)
            self._take_note()
            # Between the look and the claim another session may have written: what was compared no longer holds.
            if self._expected != self._position or state.is_deleted:
                raise _MovedError

        if not self._claimed.claim(make, self._files.random_bytes(16).hex(), may):
            self._claimed.load_patiently()  # the claim is void: the state that was read is out of date
            raise _MovedError

    @property
    def _holder(self) -> dict[str, Any]:
        files = self._files
        return {"name": "transcript-store ship", "host": files.host_name(), "pid": files.process_id(), SHIPS: True}

    def _at(self, state: LogState) -> str:
        return max(format_time(self._files.now_us()), state.at)

    # ---- the result -------------------------------------------------------------------------------------------------

    def _report(self) -> Shipped:
        state, reader = self._claimed.state, self._reader
        left_records = left_bytes = 0
        for number in self._generations():
            if state.slot and number < state.generation:
                continue
            with reader.archived(number) as log:
                is_begun = state.slot and number == state.generation
                left_records += log.end.seq - (state.end.seq if is_begun else 0)
                left_bytes += log.end.offset_bytes - (state.end.offset_bytes if is_begun else 0)
        return Shipped(
            id=self._claimed.id,
            directory=reader.path,
            generation=state.generation if state.slot else -1,
            record_count=state.end.seq,
            head=state.end.head.decode(),
            sent_records=self._sent_records,
            sent_bytes=self._sent_bytes,
            left_records=left_records,
            left_bytes=left_bytes,
            key_is_missing=reader.log.header.is_sealed and self._claimed.key.read() is None,
        )


class _MovedError(Exception):
    """Another process wrote to the copy since the comparison: compare again."""


def ship(
    directory: filesystem.AnyPath,
    backend: Backend,
    *,
    take_over: bool = False,
    with_key: bool = False,
    dry_run: bool = False,
    waits_seconds: Sequence[float] = WAITS_SECONDS,
    file_system: FileSystem | None = None,
) -> Shipped:
    """Copy the conversation in a folder to a backend, under its id: what is missing there of every generation and of
    the metadata.

    On return the transcripts there are those of the folder, byte for byte, except for the ``left_records`` that were
    appended during it. The folder's writer may be active, and nothing is locked. The next run continues after a killed
    or failed one: nothing is stored twice. A generation that was deleted in the folder stays on the backend.
    quarantine/ is not sent.

    Args:
        directory: the folder of one conversation.
        backend: the backend.
        take_over: take over from a writer that is active on the backend.
        with_key: of a sealed conversation, send key.json too, and later its rotation or its end (``shred()``). Without
            it the copy can be read only with a key.json from elsewhere; where that is destroyed, so is the copy.
        dry_run: send nothing, and report the number of records still to send.
        waits_seconds: how long to wait between two attempts of an unanswered call.
        file_system: for tests.

    Raises:
        DivergedError: the copy has something that is not in the folder. Nothing was sent. Ship it to another backend,
            or compare both.
        ConversationLockedError: another writer, not only a shipper, is active on the backend. Nothing was sent. Wait, or
            ``take_over``.
        ConversationTakenOverError: another session claimed it. The records sent before that are stored.
        ConversationNotFoundError: there is no conversation in the folder; or it was deleted on the backend.
        CorruptTranscriptError, CorruptMetadataError: the folder or the copy is damaged. Whole records before the damage
            may have been sent.
        UnsupportedVersionError: a later version of this library wrote it.
        BackendError: the backend refused, or did not answer. Call it again.
        StorageError: the folder cannot be read.
    """
    with Shipper(
        directory, backend, take_over=take_over, with_key=with_key, waits_seconds=waits_seconds, file_system=file_system
    ) as shipper:
        return shipper.lag() if dry_run else shipper.send()


def looks_of(folder: Folder) -> object:
    """The stamps of a folder's files; None if there is no transcript."""
    found = [folder.status(name) for name in (TRANSCRIPT, METADATA, KEY)]
    if found[0] is None:
        return None
    return [status and (status.st_ino, status.st_size, status.st_mtime_ns) for status in found]


def _dumped(members: dict[str, Any]) -> bytes:
    return orjson.dumps(members)


def _time_us_of(piece: VerifiedChunk, index: int) -> int:
    """When a record of a piece was, the first or the last."""
    start = piece.starts[index]
    return record_time_us(piece.data[start : start + RECORD_HEAD_BYTES]) or 0


def _is_shredded(data: bytes, path: str, id: str) -> bool:
    try:
        decode_key_file(data, path, id)
    except ConversationShreddedError:
        return True
    except TranscriptStoreError:
        pass
    return False
