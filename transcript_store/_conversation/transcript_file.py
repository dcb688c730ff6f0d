"""Where in the file is each record of a transcript? Read without a lock, for an index.

A position can be checked later: if the line ending there still has this hash, nothing before it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from transcript_store._conversation.layout import open_folder
from transcript_store._json.strict import JSONDecodeError, decode
from transcript_store._log.header import NotAHeader, read_header
from transcript_store._log.record import (
    HASH_MEMBER,
    SUFFIX_BYTES,
    Position,
    Record,
    Retracts,
    as_record,
    chain_hash,
    record_head,
    retracts_of,
)
from transcript_store._log.retractions import TakenBack
from transcript_store._log.scan import NO_BATCH, PIECE_BYTES, Walk, batch_before, first_line
from transcript_store._os import filesystem
from transcript_store._os.directory import OpenFile
from transcript_store._os.filesystem import FileSystem, NotOursError, refusals
from transcript_store._os.names import TRANSCRIPT
from transcript_store.errors import ConversationNotFoundError, CorruptTranscriptError, UnsupportedVersionError

_OBJECTS = frozenset({dict, type(None)})


class FilePosition(NamedTuple):
    """The position after a line of a transcript: the number of its record, where the line ends in the file, and its hash."""

    seq: int
    offset_bytes: int
    head: str


class LocatedRecord(NamedTuple):
    """A record, where its line starts, and the line's hash."""

    record: Record
    offset_bytes: int
    head: str


class LocatedLine(NamedTuple):
    """A record as its line has it, with the start and the end of the line, and its hash in ASCII."""

    seq: int
    at: str
    members: dict[str, Any]
    """All of the line. ``message`` and ``extra`` are objects, or are missing."""
    offset_bytes: int
    end_bytes: int
    head: bytes
    retracts: Retracts | None
    is_retracted: bool

    @property
    def behind(self) -> FilePosition:
        """The position after it."""
        return FilePosition(self.seq, self.end_bytes, self.head.decode())


class TranscriptFile:
    """The live transcript of a conversation, open to read; records appended after it was opened are not read."""

    def __init__(
        self,
        path: str,
        source: OpenFile,
        conversation: str,
        generation: int,
        begin: Position,
        *,
        can_retract: bool = False,
    ) -> None:
        self.conversation = conversation
        self.generation = generation
        self.size_bytes = source.size
        self.begin = FilePosition(0, begin.offset_bytes, begin.head.decode())
        """The position after the header, before the first record."""
        self._source = source
        self._path = path
        self._can_retract = can_retract

    def _read(self, offset_bytes: int, length: int) -> bytearray:
        with refusals(self._path, "read the transcript"):
            return self._source.read(offset_bytes, length)

    def holds(self, place: FilePosition) -> bool:
        """True if the line that ends at this position still has this hash: then nothing before it was replaced."""
        end = place.offset_bytes
        if not SUFFIX_BYTES < end <= self.size_bytes:
            return False
        closing = HASH_MEMBER + place.head.encode("ascii", "replace") + b'"}\n'
        return self._read(end - len(closing), len(closing)) == closing

    def records(self, after: FilePosition) -> Iterator[tuple[LocatedRecord, FilePosition]]:
        """The records of whole appends after a position, each verified, with the position after it; up to the first
        damage.

        A retracted record is marked. One with ``retracts`` may also name records before the position.
        """
        for line in self.lines(after):
            record = as_record(line.members, line.retracts, is_retracted=line.is_retracted)
            if record is None:
                return
            yield LocatedRecord(record, line.offset_bytes, line.head.decode()), line.behind

    def lines(self, after: FilePosition) -> Iterator[LocatedLine]:
        """As :meth:`records`, in two thirds of the time: for a caller that reads the messages of a whole library."""
        taken_back = self._taken_back(after)
        for begin, data, starts, piece_end in self._walk(after):
            base, seq = begin.offset_bytes, begin.seq
            ends = (*starts[1:], piece_end.offset_bytes - base)
            with memoryview(data) as view:  # a slice of it copies nothing
                for start, end in zip(starts, ends, strict=True):
                    try:
                        members = decode(view[start:end])
                    except JSONDecodeError:
                        return  # another program computed a hash over something else: `verify` reports it
                    seq, at, contents = seq + 1, members.get("at"), (members.get("message"), members.get("extra"))
                    if type(at) is not str or not _OBJECTS.issuperset(map(type, contents)):
                        return
                    named, is_retracted = None, False
                    if self._can_retract:
                        line = data[start:end]
                        named, is_retracted = retracts_of(seq, line, line.index(b",")), seq in taken_back
                    head = bytes(view[end - 35 : end - 3])
                    yield LocatedLine(seq, at, members, base + start, base + end, head, named, is_retracted)

    def record_at(self, offset_bytes: int) -> LocatedRecord | None:
        """The record whose line starts there; None unless it verifies against the hash in the line before.

        It is not marked as retracted: its retraction follows it, and :meth:`taken_back` reads that.
        """
        if not SUFFIX_BYTES < offset_bytes < self.size_bytes:
            return None
        line = self._read(offset_bytes - 35, 35 + 4096)
        before = bytes(line[:35])
        if not before.endswith(b'"}\n'):
            return None
        del line[:35]
        while (end := line.find(b"\n")) < 0:
            if not (more := self._read(offset_bytes + len(line), max(4096, len(line)))):
                return None
            line += more
        head = chain_hash(before[:32], [line[: max(0, end - SUFFIX_BYTES)]])
        if line[max(0, end - SUFFIX_BYTES) : end] != HASH_MEMBER + head + b'"}':
            return None
        record = self._record_in(line[:end])
        return LocatedRecord(record, offset_bytes, head.decode()) if record else None

    def stops_at_damage(self, after: FilePosition) -> bool:
        """True if a whole line that does not verify follows a position. An append that is not whole yet is not damage."""
        if after.offset_bytes >= self.size_bytes:
            return False
        walk = self._walk(after)
        walk.to_the_end()
        at = walk.stopped.offset_bytes
        while rest := self._read(at, min(PIECE_BYTES, self.size_bytes - at)):
            # A line feed ends a line, so what does not verify before it will not be completed by its writer.
            if b"\n" in rest:
                return True
            at += len(rest)
        return False

    def taken_back(self, after: FilePosition) -> Callable[[int], bool]:
        """A function that says of a record's number whether the records after a position retract it; it may precede the
        position.

        Nothing is read if the transcript has no ``retract``, or nothing follows.
        """
        return self._taken_back(after).__contains__

    def _walk(self, after: FilePosition) -> Walk:
        # A reader may have stopped in the middle of an append.
        open_batch = batch_before(self._read, after.offset_bytes) if after.seq else NO_BATCH
        return Walk(
            self._read, Position(after.seq, after.offset_bytes, after.head.encode()), self.size_bytes, open_batch
        )

    def _taken_back(self, after: FilePosition) -> TakenBack:
        found = TakenBack()
        if self._can_retract:
            for piece in self._walk(after):
                found.read(piece.data, piece.begin.seq)
        return found

    def _record_in(self, line: bytes | bytearray) -> Record | None:
        head = record_head(line) if self._can_retract else None
        named = retracts_of(head.seq, line, line.index(b",")) if head else None
        try:
            return as_record(decode(line), named)
        except JSONDecodeError:
            return None


@contextmanager
def open_transcript(directory: filesystem.AnyPath) -> Iterator[TranscriptFile]:
    """Open the live transcript of a conversation to read it by positions; use ``with``. No lock is taken and nothing is
    written.

    Raises:
        ConversationNotFoundError: there is no conversation, or no transcript.
        CorruptTranscriptError: its first line is damaged, or not ours.
        UnsupportedVersionError: it was written by a later version.
        StorageError: the system refuses to read it.
    """
    with transcript_in(filesystem.REAL, filesystem.absolute_path(directory)) as transcript:
        yield transcript


@contextmanager
def transcript_in(files: FileSystem, path: str) -> Iterator[TranscriptFile]:
    """As :func:`open_transcript`, on any file system. Errors of the block are the caller's own, and pass through."""
    with ExitStack() as opened:
        with refusals(path, "read the transcript"):
            transcript = _opened(files, path, opened)
        yield transcript
        with refusals(path, "read the transcript"):
            opened.close()


def _opened(files: FileSystem, path: str, opened: ExitStack) -> TranscriptFile:
    folder = opened.enter_context(open_folder(files, path))
    try:
        source = opened.enter_context(folder.reading(TRANSCRIPT))
    except FileNotFoundError:
        raise ConversationNotFoundError(path=path, reason=f"there is no {TRANSCRIPT}") from None
    except NotOursError as error:
        raise CorruptTranscriptError(path=path, kind="foreign", reason=error.reason) from None
    found = read_header(first_line(source.read, source.size))
    if isinstance(found, NotAHeader):
        if found.version is not None:
            raise UnsupportedVersionError(path=path, reason=found.reason)
        raise CorruptTranscriptError(path=path, kind=found.kind, reason=found.reason)
    header, begin = found
    return TranscriptFile(path, source, header.conversation, header.generation, begin, can_retract=header.can_retract)
