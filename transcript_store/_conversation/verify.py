"""What is whole, and what is not: :func:`verify` looks at everything in a conversation's folder and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from transcript_store._conversation.layout import (
    FILE_IN_PLACE,
    absence,
    names_in,
    never_finished,
    read_metadata,
)
from transcript_store._conversation.metadata import MetadataDocument
from transcript_store._log import recovery
from transcript_store._log.record import Header, Mark, Position
from transcript_store._os import filesystem
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import ARCHIVE, QUARANTINE, TRANSCRIPT, archive_name, generation_of
from transcript_store._os.refusals import NotOursError, refusals
from transcript_store.errors import ConversationNotFoundError, CorruptMetadataError, UnsupportedVersionError
from transcript_store.ways_out import WayOut, way_out_of_damage

_ATTEMPTS = 20
_CHUNK_BYTES = 1 << 18  # little enough for a processor's cache: what is read is hashed while it is there
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
            object.__setattr__(self, "way_out", way_out_of_damage(self.kind, self.path))


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
    seen = None
    for _ in range(_ATTEMPTS):  # a writer at work can make one moment look damaged
        found = _look(folder)
        if found.is_whole or found == seen:
            break
        seen = found
        folder.files.wait(0.005)
    return found


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
            _agreement(folder, header, document, findings)
    archived: list[int] = []
    if ARCHIVE in names:
        try:
            with folder.subfolder(ARCHIVE) as archive:
                archived = _archive(archive, header, folder, findings)
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


def _read(folder: Folder, name: str, findings: list[Finding]) -> bytes | None:
    try:
        return folder.read_file(name)
    except NotOursError as error:
        findings.append(Finding(path=folder.path_of(name), kind="foreign", reason=error.reason))
        return None


def _transcript(
    folder: Folder, name: str, mark: Mark | None, findings: list[Finding]
) -> tuple[Header | None, int, Position]:
    """Check one transcript file; returns its header, how many records are whole, and the end of the undamaged part."""
    whole = _whole(folder, name, mark)
    if whole is not None:
        header, end = whole
        return header, end.seq, end
    buffer = _read(folder, name, findings)
    return (None, 0, _NOWHERE) if buffer is None else _diagnose(folder.path_of(name), buffer, mark, findings)


def _whole(folder: Folder, name: str, mark: Mark | None) -> tuple[Header, Position] | None:
    """The header and the end of a transcript in which nothing is wrong, read a piece at a time; None for any other.

    None too where the mark is of another generation: a replace that was cut off, which is rare.
    """
    try:
        handle, status = folder.open_with_status(name)
    except (FileNotFoundError, NotOursError):
        return None
    try:
        found = recovery.read_header(folder.first_line(handle))
        if isinstance(found, recovery.NotAHeader):
            return None
        header, begin = found
        if mark is not None:
            if _follow(folder, handle, begin, mark.position.offset_bytes) != mark.position:
                return None
            begin = mark.position
        end = _follow(folder, handle, begin, status.st_size)
        return None if end is None else (header, end)
    finally:
        folder.files.close(handle)


def _follow(folder: Folder, handle: int, position: Position, stop: int) -> Position | None:
    """The position at ``stop``, if complete appends and nothing else stand between it and ``position``; or None.

    A line or a batch that does not end in its piece is looked at again with twice as much: the work stays linear.
    """
    buffer = bytearray()
    while (at := position.offset_bytes + len(buffer)) < stop:
        read = folder.files.read(handle, at, min(max(_CHUNK_BYTES, len(buffer)), stop - at))
        if not read:
            return None
        buffer += read
        cut = buffer[buffer.rfind(b"\n") + 1 :]  # a line that goes on
        del buffer[len(buffer) - len(cut) :]
        begin = Position(position.seq, 0, position.head)
        scan = recovery.scan(buffer, begin, begin)
        if scan.stopped.offset_bytes < len(buffer):
            return None
        del buffer[: scan.end.offset_bytes]
        buffer += cut
        position = scan.end._replace(offset_bytes=position.offset_bytes + scan.end.offset_bytes)
    return None if buffer else position


def _diagnose(
    path: str, buffer: bytes, mark: Mark | None, findings: list[Finding]
) -> tuple[Header | None, int, Position]:
    """The same as :func:`_transcript`, of what is not whole: where the damage is, and what is whole behind it."""
    found = recovery.read_header(buffer)
    if isinstance(found, recovery.NotAHeader):
        kind = "version" if found.version is not None else found.kind
        findings.append(Finding(path=path, kind=kind, reason=found.reason, line_number=1, offset_bytes=0))
        return None, 0, _NOWHERE
    header, begin = found
    if mark is not None and mark.generation != header.generation:
        mark = None
    scan = recovery.scan(buffer, begin, mark.position if mark else begin)
    records = len(scan.starts)
    damage = scan.damage or (recovery.check_mark(mark, scan.starts, scan.end, buffer) if mark else None)
    if damage is None:
        return header, records, scan.end
    gaps: list[tuple[int, int]] = []
    at = damage.offset_bytes
    if scan.damage is not None:
        for whole in recovery.whole_lines(buffer, at, scan.stopped.head):
            records += 1
            gaps.append((at, whole.start))
            at = whole.end + (buffer[whole.end : whole.end + 1] == b"\n")
        gaps.append((at, len(buffer)))
    findings.append(
        Finding(
            path=path,
            kind=damage.kind,
            reason=damage.reason,
            line_number=damage.line_number,
            offset_bytes=damage.offset_bytes,
            length_bytes=gaps[0][1] - gaps[0][0] if gaps else None,
        )
    )
    line_number, counted = damage.line_number, damage.offset_bytes
    for start, stop in gaps[1:]:
        line_number, counted = line_number + buffer.count(b"\n", counted, start), start
        if start < stop:
            line_end = buffer.find(b"\n", start, stop)
            findings.append(
                Finding(
                    path=path,
                    kind="damaged-line",
                    reason=recovery.describe(buffer[start : line_end if line_end >= 0 else stop]),
                    line_number=line_number,
                    offset_bytes=start,
                    length_bytes=stop - start,
                )
            )
    return header, records, scan.end


def _agreement(folder: Folder, header: Header, document: MetadataDocument, findings: list[Finding]) -> None:
    """Whether transcript and metadata belong together. The transcript may be ahead: a replace that was cut off."""
    path = folder.path_of(TRANSCRIPT)
    if header.conversation != document.members["id"]:
        reason = f"it is of conversation {header.conversation}, metadata.json of {document.members['id']}"
        findings.append(Finding(path=path, kind="wrong-conversation", reason=reason))
    elif header.generation < document.members["generation"]:
        reason = f"it is of generation {header.generation}, metadata.json of {document.members['generation']}"
        findings.append(Finding(path=path, kind="wrong-generation", reason=reason))
    elif (
        header.generation == document.members["generation"]
        and document.mark is not None
        and document.mark.generation != header.generation
    ):
        reason = f"metadata.json has a mark of generation {document.mark.generation}"
        findings.append(Finding(path=path, kind="wrong-generation", reason=reason))


def _archive(archive: Folder, header: Header | None, folder: Folder, findings: list[Finding]) -> list[int]:
    """Check the archived generations: each by itself, and against what its successor says it replaced."""
    ends: dict[int, Position] = {}
    headers = {header.generation: header} if header else {}
    for name in archive.names():
        generation = generation_of(name)
        if generation is None:
            continue
        if header is not None and generation >= header.generation:
            copy = _read(archive, name, findings)
            if copy is None:
                continue
            live = _read(folder, TRANSCRIPT, findings) or b""
            if generation > header.generation or not live.startswith(copy):  # else a replace that never committed
                reason = f"it is not older than the live generation {header.generation}: a backup was restored over it"
                findings.append(Finding(path=archive.path_of(name), kind="wrong-generation", reason=reason))
            continue
        archived, _, end = _transcript(archive, name, None, findings)
        if archived is None:
            continue
        headers[generation], ends[generation] = archived, end
        if archived.generation != generation:
            reason = f"its name says generation {generation}, its header {archived.generation}"
            findings.append(Finding(path=archive.path_of(name), kind="wrong-generation", reason=reason))
    for generation, end in ends.items():
        successor = headers.get(generation + 1)
        replaced = successor.members.get("replaces") if successor else None
        if type(replaced) is dict and (replaced.get("records"), replaced.get("head")) != (end.seq, end.head.decode()):
            reason = f"it is not what generation {generation + 1} says it replaced: {replaced.get('records')} records"
            findings.append(Finding(path=archive.path_of(archive_name(generation)), kind="rewritten", reason=reason))
    return sorted(ends)
