"""What is whole, and what is not: :func:`verify` looks at everything in a conversation's folder and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from transcript_store._conversation import agreement
from transcript_store._conversation.layout import (
    FILE_IN_PLACE,
    absence,
    names_in,
    never_finished,
    read_metadata,
)
from transcript_store._conversation.metadata import MetadataDocument, problem_with_members
from transcript_store._conversation.twice import twice
from transcript_store._log.damage import check, count_whole, describe_at, first_line, parts
from transcript_store._log.header import NotAHeader, read_header
from transcript_store._log.record import Header, Mark, Position
from transcript_store._log.scan import is_same, pieces_of
from transcript_store._os import filesystem
from transcript_store._os.directory import Folder, Source
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import ARCHIVE, QUARANTINE, TRANSCRIPT, archive_name, generation_of
from transcript_store._os.refusals import NotOursError, refusals
from transcript_store.errors import ConversationNotFoundError, CorruptMetadataError, UnsupportedVersionError
from transcript_store.ways_out import WayOut, way_out_of_damage

_NOWHERE = Position(0, 0, b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not whole."""

    path: str
    kind: str
    """One of the kinds that docs/format.md lists."""
    reason: str
    line_number: int | None = None
    """From 1; None where no line is at fault."""
    offset_bytes: int | None = None
    """Where the bad bytes begin."""
    length_bytes: int | None = None
    """How many there are, up to the next whole record or the end of the file."""
    way_out: WayOut = None  # type: ignore[assignment]  # it follows from the kind, unless it is given
    """What to do about it."""

    def __post_init__(self) -> None:
        if self.way_out is None:
            object.__setattr__(self, "way_out", way_out_of_damage(self.kind, self.path, self.line_number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What :func:`verify` saw."""

    directory: str
    records: int
    """Whole records in transcript.jsonl, those behind damage included."""
    generation: int | None
    """The live generation; None where the header cannot be read."""
    head: str | None
    """The hash of the last record before any damage; None where there is no header."""
    archived_generations: tuple[int, ...]
    quarantined: tuple[str, ...]
    """Files that hold bytes taken out earlier. They are not damage."""
    findings: tuple[Finding, ...]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong. A torn tail counts as wrong here, though the next ``load()`` cuts it by itself."""
        return not self.findings


def verify(directory: filesystem.AnyPath, *, file_system: FileSystem | None = None) -> Verification:
    """Check every line of a conversation, its archive and its metadata; changes nothing and takes no lock.

    Costs a read and a SHA-256 of all files; no message is decoded, and a file that is whole is never in memory as a whole.
    Beside a live writer the line that is being written may show as a torn tail. Raises ``ConversationNotFoundError`` if
    nothing is there and ``StorageError`` if it cannot be read.
    """
    path = filesystem.absolute_path(directory)
    files = filesystem.REAL if file_system is None else file_system
    with refusals(path, "look at the conversation"):
        try:
            folder = Folder.open(files, path)
        except FileNotFoundError:
            raise ConversationNotFoundError(path=path, reason="there is no conversation") from None
        except NotADirectoryError:
            finding = Finding(path=path, kind="foreign", reason=FILE_IN_PLACE, way_out=WayOut.CHOOSE_A_FOLDER)
            return _verification(path, findings=[finding])
        with folder:
            return look(folder)


def look(folder: Folder) -> Verification:
    """Check everything in a conversation's folder; damage counts when it is seen twice."""

    def look_once() -> Verification:
        try:
            return _look(folder)
        except FileNotFoundError:  # it was there a moment ago
            if folder.is_at_its_path():
                raise
            raise ConversationNotFoundError(path=folder.path, reason="it was deleted just now") from None

    return twice(folder.files, look_once, lambda found: found.is_whole)


def _look(folder: Folder) -> Verification:
    findings: list[Finding] = []
    names = names_in(folder)
    absent = absence(names, folder.path)
    if isinstance(absent, ConversationNotFoundError):
        raise absent
    if absent is not None:
        assert absent.way_out is not None
        finding = Finding(path=folder.path, kind=absent.kind, reason=absent.reason, way_out=absent.way_out)
        return _verification(folder.path, findings=[finding])
    document = _metadata(folder, findings)
    header: Header | None = None
    records, head = 0, None
    if TRANSCRIPT not in names:
        if document is not None and document.mark is None:
            raise never_finished(folder.path)
        findings.append(Finding(path=folder.path_of(TRANSCRIPT), kind="missing", reason="there is no transcript"))
    else:
        header, records, end = _transcript(folder, TRANSCRIPT, document.mark if document else None, findings)
        head = end.head.decode() if header else None
        if header is not None and document is not None:
            agreed = agreement.of_live(header, document)
            if isinstance(agreed, agreement.Disagreement):
                _note(folder.path_of(TRANSCRIPT), agreed, findings)
    archived: list[int] = []
    if ARCHIVE in names:
        try:
            with folder.subfolder(ARCHIVE) as archive:
                archived = _archive(archive, header, document, folder, findings)
        except NotOursError as error:
            findings.append(Finding(path=folder.path_of(ARCHIVE), kind="foreign", reason=error.reason))
    quarantined: list[str] = []
    if QUARANTINE in names:
        try:
            with folder.subfolder(QUARANTINE) as quarantine:
                quarantined = [quarantine.path_of(name) for name in quarantine.names() if not name.endswith(".json")]
        except NotOursError as error:
            findings.append(Finding(path=folder.path_of(QUARANTINE), kind="foreign", reason=error.reason))
    return _verification(
        folder.path, records, header.generation if header else None, head, archived, quarantined, findings
    )


def _verification(
    path: str,
    records: int = 0,
    generation: int | None = None,
    head: str | None = None,
    archived: list[int] | None = None,
    quarantined: list[str] | None = None,
    findings: list[Finding] | None = None,
) -> Verification:
    return Verification(
        directory=path,
        records=records,
        generation=generation,
        head=head,
        archived_generations=tuple(archived or ()),
        quarantined=tuple(quarantined or ()),
        findings=tuple(findings or ()),
    )


def _metadata(folder: Folder, findings: list[Finding]) -> MetadataDocument | None:
    try:
        return read_metadata(folder)
    except CorruptMetadataError as error:
        findings.append(Finding(path=error.path, kind=error.kind, reason=error.reason))
    except UnsupportedVersionError as error:
        findings.append(Finding(path=error.path, kind="version", reason="it was written by a later version"))
    return None


def _transcript(
    folder: Folder, name: str, mark: Mark | None, findings: list[Finding]
) -> tuple[Header | None, int, Position]:
    """Check one transcript file; returns its header, how many records are whole, and the end of the undamaged part."""
    try:
        with folder.reading(name) as source:
            return _check(folder.path_of(name), source, mark, findings)
    except NotOursError as error:
        findings.append(Finding(path=folder.path_of(name), kind="foreign", reason=error.reason))
        return None, 0, _NOWHERE


def _check(
    path: str, source: Source, mark: Mark | None, findings: list[Finding]
) -> tuple[Header | None, int, Position]:
    found = read_header(first_line(source.read, source.size))
    if isinstance(found, NotAHeader):
        kind = "version" if found.version is not None else found.kind
        findings.append(Finding(path=path, kind=kind, reason=found.reason, line_number=1, offset_bytes=0))
        return None, 0 if found.version is not None else count_whole(source.read, source.size), _NOWHERE
    header, begin = found
    if (problem := problem_with_members(header.metadata)) is not None:
        reason = f"the header is whole, but of its metadata, {problem}"
        findings.append(Finding(path=path, kind="damaged-header", reason=reason, line_number=1, offset_bytes=0))
        return None, count_whole(source.read, source.size), _NOWHERE
    place = mark.position if mark is not None and mark.generation == header.generation else begin
    damage, end = check(source.read, source.size, begin, place)
    if damage is None:
        return header, end.seq, end
    records, gaps = _take_apart(source, damage.offset_bytes)
    if damage.kind in ("truncated", "rewritten"):
        gaps = []  # no bytes are bad: there are too few, or others
    first = gaps[0] if gaps and gaps[0].start <= damage.offset_bytes < gaps[0].end else None
    findings.append(
        Finding(
            path=path,
            kind=damage.kind,
            reason=damage.reason,
            line_number=damage.line_number,
            offset_bytes=damage.offset_bytes,
            length_bytes=first.end - damage.offset_bytes if first else None,
        )
    )
    findings += (
        Finding(
            path=path,
            kind="damaged-line",
            reason=describe_at(source.read, gap.start, gap.line_end),
            line_number=gap.line_number,
            offset_bytes=gap.start,
            length_bytes=gap.end - gap.start,
        )
        for gap in (gaps[1:] if first else gaps)
    )
    return header, records, end


class _Gap(NamedTuple):
    """Bytes between two whole records, or between one and an end of the file."""

    start: int
    line_end: int
    end: int
    line_number: int


def _take_apart(source: Source, offset: int) -> tuple[int, list[_Gap]]:
    """How many records are whole, wherever they stand, and what is not whole behind an offset."""
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


def _archive(
    archive: Folder, header: Header | None, document: MetadataDocument | None, folder: Folder, findings: list[Finding]
) -> list[int]:
    """Check the archived generations: each by itself, whose it is, and against what was replaced."""
    conversation = header.conversation if header else document.members["id"] if document else None
    members = document.members if document else header.metadata if header else {}
    ends: dict[int, Position] = {}
    headers = {header.generation: header} if header else {}
    for name in archive.names():
        generation = generation_of(name)
        if generation is None:
            continue
        if header is not None and generation >= header.generation:
            if generation > header.generation or not _is_begun_by(folder, archive, name):
                reason = f"it is not older than the live generation {header.generation}: a backup was restored over it"
                findings.append(Finding(path=archive.path_of(name), kind="wrong-generation", reason=reason))
            continue
        archived, _, end = _transcript(archive, name, None, findings)
        if archived is None:
            continue
        headers[generation], ends[generation] = archived, end
        _note(archive.path_of(name), agreement.of_archived(generation, archived, conversation), findings)
    for generation, end in ends.items():
        replaced = agreement.end_of(generation, conversation, headers.get(generation + 1), members)
        path = archive.path_of(archive_name(generation))
        if all(finding.path != path for finding in findings):  # of another conversation, or cut: that says enough
            _note(path, agreement.of_end(generation, end, replaced), findings)
    return sorted(ends)


def _is_begun_by(folder: Folder, archive: Folder, name: str) -> bool:
    """Whether the live transcript begins with what is archived under this name: a replace that never committed."""
    with folder.reading(TRANSCRIPT) as live, archive.reading(name) as copy:
        return is_same(copy.read, copy.size, pieces_of(live.read, 0, min(live.size, copy.size)))


def _note(path: str, found: agreement.Disagreement | None, findings: list[Finding]) -> None:
    if found is not None:
        findings.append(Finding(path=path, kind=found.kind, reason=found.reason))
