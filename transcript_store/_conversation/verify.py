"""Is a conversation intact? :func:`verify` reads its whole folder, reports what is not whole, and changes nothing.

It does not read key.json: a repair can fix each finding, but a lost key file can only come from a backup.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypedDict, Unpack

from transcript_store._conversation import layout
from transcript_store._conversation.layout import absence, names_in, never_finished, open_folder, read_metadata, twice
from transcript_store._conversation.metadata import MetadataDocument
from transcript_store._log.damage import check, describe_at
from transcript_store._log.header import NotAHeader, read_header
from transcript_store._log.record import Header, Mark, Position
from transcript_store._log.resync import count_whole, parts
from transcript_store._log.scan import Walk, first_line, has_bytes, read_chunks
from transcript_store._log.sealed_records import first_plain
from transcript_store._os import filesystem
from transcript_store._os.directory import Folder, OpenFile
from transcript_store._os.filesystem import FileSystem, NotOursError, refusals
from transcript_store._os.names import ARCHIVE, QUARANTINE, TRANSCRIPT, archive_name, generation_of
from transcript_store.errors import (
    ConversationNotFoundError,
    CorruptMetadataError,
    CorruptTranscriptError,
    UnsupportedVersionError,
)
from transcript_store.hints import Hint, hint_of_damage


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not whole."""

    path: str
    kind: str
    """One of the kinds that docs/format.md lists."""
    reason: str
    line_number: int | None = None
    """From 1; None if no line is at fault."""
    offset_bytes: int | None = None
    """Where the bad bytes start."""
    length_bytes: int | None = None
    """How many there are, up to the next whole record or the end of the file."""
    hint: Hint = None  # type: ignore[assignment]  # it follows from the kind, unless it is given
    """What to do about it."""

    def __post_init__(self) -> None:
        if self.hint is None:
            object.__setattr__(self, "hint", hint_of_damage(self.kind, self.path, self.line_number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of :func:`verify`."""

    directory: str
    records: int = 0
    """Whole records in transcript.jsonl, those after damage included: as many as ``repair(mode="salvage")`` keeps."""
    generation: int | None = None
    """The live generation; None where the header cannot be read."""
    head: str | None = None
    """The hash of the last record before any damage; None where there is no header."""
    archived_generations: tuple[int, ...] = ()
    quarantined: tuple[str, ...] = ()
    """Files that hold bytes taken out earlier. They are not damage."""
    findings: tuple[Finding, ...] = ()

    @property
    def is_intact(self) -> bool:
        """True if nothing is wrong. A torn tail counts as wrong, although the next ``load()`` removes it."""
        return not self.findings


def verify(directory: filesystem.AnyPath, *, file_system: FileSystem | None = None) -> Verification:
    """Check every line of a conversation, its archive and its metadata. Changes nothing and takes no lock.

    It reads all files and computes their SHA-256; no message is decoded, and memory holds only one chunk of a whole
    file. Beside a live writer, the line that is being written may show as a torn tail.

    Raises:
        ConversationNotFoundError: the path does not exist; check it.
        StorageError: the system refuses to read it; the message says what to do.
    """
    path = filesystem.absolute_path(directory)
    with refusals(path, "look at the conversation"):
        try:
            folder = open_folder(filesystem.REAL if file_system is None else file_system, path)
        except CorruptTranscriptError as error:
            return _not_ours(error)
        with folder:
            return verify_folder(folder)


def verify_folder(folder: Folder) -> Verification:
    """Check everything in a conversation's folder; damage counts when two reads in a row see it."""

    def look_once() -> Verification | FileNotFoundError:
        try:
            return _FolderCheck(folder).everything()
        except FileNotFoundError as error:  # it was there a moment ago
            if folder.is_at_its_path():
                return error  # a writer deleted a file between two of our steps; no two such reads are the same
            raise ConversationNotFoundError(path=folder.path, reason="it was deleted just now") from None

    found = twice(folder.files, look_once, lambda found: isinstance(found, Verification) and found.is_intact)
    if isinstance(found, FileNotFoundError):
        raise found
    return found


def _not_ours(error: CorruptTranscriptError | ConversationNotFoundError) -> Verification:
    """The findings for a path that holds no part of a conversation."""
    assert error.hint is not None
    assert error.kind is not None
    finding = Finding(path=error.path, kind=error.kind, reason=error.reason, hint=error.hint)
    return Verification(directory=error.path, findings=(finding,))


class _Checked(NamedTuple):
    """The whole part of one transcript file: its header, how many records, and where the undamaged part ends."""

    header: Header | None = None
    records: int = 0
    end: Position = Position(0, 0, b"")


class _FindingPosition(TypedDict, total=False):
    line_number: int
    offset_bytes: int
    length_bytes: int | None


class _FolderCheck:
    """One reading of a conversation's folder, and its findings."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._findings: list[Finding] = []

    def everything(self) -> Verification:
        folder, names = self._folder, names_in(self._folder)
        absent = absence(names, folder.path)
        if absent is not None and absent.kind is None:
            raise absent
        if absent is not None:
            return _not_ours(absent)
        document = self._metadata()
        live = _Checked()
        if TRANSCRIPT in names:
            live = self._transcript(folder, TRANSCRIPT, document.mark if document else None)
            if live.header is not None and document is not None:
                agreed = layout.of_live(live.header, document)
                if isinstance(agreed, layout.Mismatch):
                    self._find(folder.path_of(TRANSCRIPT), *agreed)
        elif document is not None and document.mark is None:
            raise never_finished(folder.path)
        else:
            self._find(folder.path_of(TRANSCRIPT), "missing", "there is no transcript")
        archived: list[int] = []
        if ARCHIVE in names:
            with self._foreign_is_found(folder.path_of(ARCHIVE)), folder.subfolder(ARCHIVE) as archive:
                archived = self._archive(archive, live.header, document)
        quarantined: list[str] = []
        if QUARANTINE in names:
            with self._foreign_is_found(folder.path_of(QUARANTINE)), folder.subfolder(QUARANTINE) as quarantine:
                quarantined = [quarantine.path_of(name) for name in quarantine.names() if not name.endswith(".json")]
        return Verification(
            directory=folder.path,
            records=live.records,
            generation=live.header.generation if live.header else None,
            head=live.end.head.decode() if live.header else None,
            archived_generations=tuple(archived),
            quarantined=tuple(quarantined),
            findings=tuple(self._findings),
        )

    def _find(self, path: str, kind: str, reason: str, **place: Unpack[_FindingPosition]) -> None:
        self._findings.append(Finding(path=path, kind=kind, reason=reason, **place))

    @contextmanager
    def _foreign_is_found(self, path: str) -> Iterator[None]:
        try:
            yield
        except NotOursError as error:
            self._find(path, "foreign", error.reason)

    def _metadata(self) -> MetadataDocument | None:
        try:
            return read_metadata(self._folder)
        except CorruptMetadataError as error:
            self._find(error.path, error.kind, error.reason)
        except UnsupportedVersionError as error:
            self._find(error.path, "version", "it was written by a later version")
        return None

    def _transcript(self, folder: Folder, name: str, mark: Mark | None = None) -> _Checked:
        with self._foreign_is_found(folder.path_of(name)), folder.reading(name) as source:
            return self._check(folder.path_of(name), source, mark)
        return _Checked()

    def _check(self, path: str, source: OpenFile, mark: Mark | None) -> _Checked:
        found = read_header(first_line(source.read, source.size))
        if isinstance(found, NotAHeader):
            is_later = found.version is not None  # its records may have another form, so they are not counted
            kind = "version" if is_later else found.kind
            self._find(path, kind, found.reason, line_number=1, offset_bytes=0)
            return _Checked(records=0 if is_later else count_whole(source.read, source.size))
        header, begin = found
        if (damaged := layout.of_header(header)) is not None:
            self._find(path, *damaged, line_number=1, offset_bytes=0)
            return _Checked(records=count_whole(source.read, source.size))
        # The mark of another generation says nothing about this file. That they differ is a finding of its own, if it
        # is one.
        place = mark.position if mark is not None and mark.generation == header.generation else begin
        damage, end = check(source.read, source.size, begin, place)
        if damage is None:
            if header.is_sealed:
                self._find_plain(path, source, begin)
            return _Checked(header, end.seq, end)
        records, gaps = _take_apart(source, damage.place.offset_bytes)
        if damage.kind in ("truncated", "rewritten"):
            gaps = []  # no bytes are bad: there are too few, or different ones
        offset = damage.place.offset_bytes
        first = gaps.pop(0) if gaps and gaps[0].start <= offset < gaps[0].end else None
        if gaps and damage.kind in ("torn-tail", "foreign"):
            first, gaps = gaps[-1], []  # one finding, as for ``load()``: it is the rest of the file
        self._find(
            path,
            damage.kind,
            damage.reason,
            line_number=damage.line_number,
            offset_bytes=offset,
            length_bytes=first.end - offset if first else None,
        )
        for gap in gaps:
            self._find(
                path,
                "damaged-line",
                describe_at(source.read, gap.start, gap.line_end),
                line_number=gap.line_number,
                offset_bytes=gap.start,
                length_bytes=gap.end - gap.start,
            )
        return _Checked(header, records, end)

    def _find_plain(self, path: str, source: OpenFile, begin: Position) -> None:
        """Find whole records that are not sealed in a sealed generation: such a hash needs no key."""
        for piece in Walk(source.read, begin, source.size):
            if (index := first_plain(piece.data, piece.starts)) is not None:
                place = piece.boundary(index)
                reason = "the record is not sealed, but all records of this generation must be"
                self._find(path, "not-genuine", reason, line_number=place.seq + 2, offset_bytes=place.offset_bytes)
                return

    def _archive(self, archive: Folder, live: Header | None, document: MetadataDocument | None) -> list[int]:
        """Check each archived generation: its lines, its conversation, and its end. Returns the numbers of the readable
        ones.
        """
        conversation = live.conversation if live else document.members["id"] if document else None
        # Without metadata.json the header has the metadata of the time when this generation started.
        members = document.members if document else live.metadata if live else {}
        ends: dict[int, Position] = {}
        headers = {live.generation: live} if live else {}
        for name in archive.names():
            number, path = generation_of(name), archive.path_of(name)
            if number is None:
                continue
            if live is not None and number >= live.generation:
                if number > live.generation or not self._is_begun_by_live(archive, name):
                    reason = (
                        f"it is not older than the live generation {live.generation}: a backup was restored over it"
                    )
                    self._find(path, "wrong-generation", reason)
                continue
            header, _, end = self._transcript(archive, name)
            if header is not None:
                headers[number], ends[number] = header, end
                self._disagreement(path, layout.of_archived(number, header, conversation))
        for number, end in ends.items():
            path = archive.path_of(archive_name(number))
            if all(finding.path != path for finding in self._findings):  # one finding is enough
                replaced = layout.end_of(number, conversation, headers.get(number + 1), members)
                self._disagreement(path, layout.of_end(number, end, replaced))
        return sorted(ends)

    def _disagreement(self, path: str, found: layout.Mismatch | None) -> None:
        if found is not None:
            self._find(path, *found)

    def _is_begun_by_live(self, archive: Folder, name: str) -> bool:
        """True if the live transcript starts with the file of this name: the archive entry of a replace that never
        committed.
        """
        with self._folder.reading(TRANSCRIPT) as live, archive.reading(name) as copy:
            return has_bytes(copy.read, copy.size, read_chunks(live.read, 0, min(live.size, copy.size)))


class _Gap(NamedTuple):
    """Bytes between two whole records, or between one and an end of the file."""

    start: int
    line_end: int
    end: int
    line_number: int


def _take_apart(source: OpenFile, offset: int) -> tuple[int, list[_Gap]]:
    """How many records are whole, wherever they are, and which bytes after an offset are not."""
    gaps: list[_Gap] = []
    records, is_open = 0, False
    for part in parts(source.read, source.size):
        for start, end, whole in part.stretches:
            if whole is not None:
                records, is_open = records + 1, False
            elif is_open:
                gaps[-1] = gaps[-1]._replace(end=end)
            elif end > offset:
                gaps.append(_Gap(start, end, end, part.line_number))
                is_open = True
    return records, gaps
