"""The way back from damage: :func:`repair` says what of a conversation can be kept, and on request makes it whole.

.. code-block:: python

    from transcript_store import repair

    proposal = repair("agent/main")                      # looks, and changes nothing
    print(proposal.records_kept, proposal.records_left_out, proposal.gaps)
    repair("agent/main", mode="salvage", dry_run=False)  # every whole record; the original is kept in quarantine/

Order of writes: the damaged files into ``quarantine/``, synced; the new generation under a temporary name, sync, **rename**,
sync the folder; metadata. A crash before the rename leaves the damaged conversation as it was, one after it a whole
transcript whose metadata the next repair writes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import orjson

from transcript_store import _files, _quarantine, _recovery, _salvage
from transcript_store._files import FileSystem
from transcript_store._folder import LOCK, Folder, Lock, NotOursError, refusals
from transcript_store._layout import ARCHIVE, METADATA, archive_name, generation_of, insist_on_a_conversation
from transcript_store._log import TRANSCRIPT, Image, Log
from transcript_store._metadata import (
    ENVELOPE,
    Mark,
    MetadataDocument,
    decode_document,
    encode_document,
    new_members,
    problem_with_members,
)
from transcript_store._quarantine import QUARANTINE
from transcript_store._records import Position, format_time
from transcript_store._salvage import MODES, Gap, Mode
from transcript_store.errors import (
    ConversationNotFoundError,
    CorruptMetadataError,
    CorruptTranscriptError,
    UnsupportedVersionError,
)
from transcript_store.inspection import Finding, look

MetadataSource = Literal["metadata.json", "header", "archive", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What a repair would do, or has done."""

    directory: str
    mode: Mode
    applied: bool
    """False for a dry run, and where there was nothing to do."""
    findings: tuple[Finding, ...]
    """What is wrong, as :func:`verify` says it; empty if there is nothing to do."""
    records_kept: int
    """How many records of the damaged transcript the repaired one has."""
    records_left_out: int
    """How many records that verify are not kept: those behind the damage, with ``mode="prefix"``."""
    gaps: tuple[Gap, ...]
    """The bytes of the damaged transcript that are not kept."""
    metadata_from: MetadataSource
    """Where the metadata comes from. Anything but ``metadata.json`` may be older than the last change of it."""
    generation: int | None
    """The generation that holds the repaired transcript; None where the transcript is whole and stays as it is."""
    originals: tuple[str, ...]
    """Where the damaged files are kept, byte for byte."""


def repair(
    directory: _files.AnyPath, *, mode: Mode = "prefix", dry_run: bool = True, file_system: FileSystem | None = None
) -> Repair:
    """Say what of a damaged conversation can be kept, and with ``dry_run=False`` make it whole. Never runs by itself.

    ``mode`` says what is kept of a damaged transcript:

    * ``"prefix"``: the records before the first damage. Nothing is doubtful, and what stands behind it is left out.
    * ``"salvage"``: every whole record. Where something is missing between two, a record without a message says so, with
      the offset and the length of the gap in its ``extra`` as ``transcript_store.gap``.
    * ``"accept-edits"``: every line that has the form of a record, whole or not: for files that were edited by hand.

    When it returns from a repair that was applied, ``verify()`` finds nothing, the repaired transcript is a new generation
    whose records keep their times, messages and extras, and the damaged files are in ``quarantine/`` byte for byte. Damaged
    or lost metadata is rebuilt from the transcript's header (which does not know of later changes), a damaged generation
    in ``archive/`` is taken out. It is committed like a replace: a crash leaves the damage as it was, or the repaired
    conversation. A dry run takes no lock.

    Raises ``ConversationNotFoundError``, ``ConversationLockedError`` (a live writer; not for a dry run),
    ``CorruptTranscriptError`` and ``CorruptMetadataError`` of kind ``foreign`` if something that is no file stands where
    one of ours should be (move it away), ``UnsupportedVersionError``, ``ValueError`` for an unknown mode, and
    ``StorageError`` if the disk refuses (then the damaged files are in place).
    """
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(map(repr, MODES))}, not {mode!r}")
    path = _files.absolute_path(directory)
    files = _files.REAL if file_system is None else file_system
    with refusals(path, "repair the conversation", "The damaged files are in place"):
        try:
            folder = Folder.open(files, path)
        except FileNotFoundError:
            raise ConversationNotFoundError(f"{path}: there is nothing", path=path) from None
        except NotADirectoryError:
            reason = "a file stands where a conversation's folder should be"
            raise CorruptTranscriptError(path=path, kind="foreign", reason=reason) from None
        with folder:
            _insist_on_something_to_repair(folder)
            if dry_run:
                return _Work(folder, mode).proposal
            lock = Lock(folder)
            try:
                if not lock.take(0) or not folder.is_at_its_path():
                    raise ConversationNotFoundError(f"{path}: the conversation was moved away just now", path=path)
                work = _Work(folder, mode)
                return work.apply() if work.proposal.findings else work.proposal
            except NotOursError as error:
                raise CorruptTranscriptError(path=path, kind="foreign", reason=f"{LOCK}: {error.reason}") from None
            finally:
                lock.release()


def _insist_on_something_to_repair(folder: Folder) -> None:
    """Raise unless the folder holds a conversation, or what is left of one, in files."""
    problem: CorruptTranscriptError | CorruptMetadataError | None = None
    try:
        insist_on_a_conversation(folder)
    except (CorruptTranscriptError, CorruptMetadataError) as error:
        problem = error
    try:
        buffer = folder.read_file(TRANSCRIPT)
    except NotOursError as error:
        reason = f"{error.reason}: move it away, then repair"
        raise CorruptTranscriptError(path=folder.path_of(TRANSCRIPT), kind="foreign", reason=reason) from None
    if problem is not None and problem.kind == "foreign" and not (buffer and _salvage.is_ours(buffer)):
        raise problem


class _Original(NamedTuple):
    """A damaged file, which goes to quarantine; ``name`` is its path within the conversation."""

    name: str
    content: bytes
    generation: int
    finding: Finding


class _Work:
    """One look at a damaged conversation, and what follows from it."""

    def __init__(self, folder: Folder, mode: Mode) -> None:
        self._folder = folder
        self._mode = mode
        self._now = format_time(folder.files.now_us())
        self._verification = look(folder)
        for finding in self._verification.findings:
            if finding.kind == "version":
                raise UnsupportedVersionError(
                    f"{finding.path}: {finding.reason}; upgrade to repair it", path=finding.path
                )
        self._findings = {finding.path: finding for finding in reversed(self._verification.findings)}
        self._data = folder.read_file(METADATA)
        self._buffer = folder.read_file(TRANSCRIPT)
        header = _recovery.read_header(self._buffer or b"")
        self._header = None if isinstance(header, _recovery.NotAHeader) else header[0]
        self._archived = self._read_archive()
        self._rewrites_transcript = not {folder.path, folder.path_of(TRANSCRIPT)}.isdisjoint(self._findings)
        self._members, self._metadata_from = self._choose_metadata()
        known = [self._members["generation"], *self._archived]
        if self._header is not None:
            known.append(self._header.generation)
        self._damaged_generation = self._header.generation if self._header else self._members["generation"]
        self._generation = max(known) + 1 if self._rewrites_transcript else self._damaged_generation
        self._originals = list(self._damaged_files())
        self._plan = self._plan_transcript()

    # ---- what there is -------------------------------------------------------------------------------------------

    def _read_archive(self) -> dict[int, bytes]:
        """The files of the archive by their number."""
        found: dict[int, bytes] = {}
        if self._folder.status(ARCHIVE) is not None:
            with self._folder.subfolder(ARCHIVE) as archive:
                for name in archive.names():
                    if (number := generation_of(name)) is not None:
                        found[number] = archive.read_file(name) or b""
        return found

    def _choose_metadata(self) -> tuple[dict[str, Any], MetadataSource]:
        """The metadata of the repaired conversation, and where it is from: the most that is known for certain."""
        document = decode_document(self._data or b"")
        header = self._header
        if isinstance(document, MetadataDocument):
            members = document.members
            if header is None or (header.conversation == members["id"] and header.generation <= members["generation"]):
                return members, "metadata.json"
        elif self._mode == "accept-edits" and (edited := _edited_members(self._data or b"")):
            identity = {"id": header.conversation, "generation": header.generation} if header else {}
            return {**edited, **identity}, "metadata.json"
        if header is not None:
            return header.metadata, "header"
        first_line = (self._buffer or b"").split(b"\n", 1)[0]
        if self._mode == "accept-edits" and (edited := _edited_members(first_line)):
            return edited, "header"
        for number in sorted(self._archived, reverse=True):
            archived = _recovery.read_header(self._archived[number])
            if not isinstance(archived, _recovery.NotAHeader):
                return archived[0].metadata, "archive"
        new_id = str(uuid.UUID(bytes=self._folder.files.random_bytes(16), version=4))
        return new_members(id=new_id, at=self._now), "nothing"

    def _damaged_files(self) -> Iterator[_Original]:
        files = [(METADATA, self._data, self._damaged_generation), (TRANSCRIPT, self._buffer, self._damaged_generation)]
        files += [(f"{ARCHIVE}/{archive_name(number)}", self._archived[number], number) for number in self._archived]
        for name, content, generation in files:
            finding = self._findings.get(self._folder.path_of(name))
            if finding is not None and content is not None:
                yield _Original(name, content, generation, finding)

    def _plan_transcript(self) -> _salvage.Plan:
        if not self._rewrites_transcript or self._buffer is None:
            return _salvage.Plan([], 0, 0, ())
        name = _quarantine.name_of(self._buffer, generation=self._damaged_generation, offset_bytes=0)
        return _salvage.plan(self._buffer, self._mode, at=self._members["created_at"], original=name)

    # ---- what follows --------------------------------------------------------------------------------------------

    @property
    def proposal(self) -> Repair:
        """What the repair would do."""
        folder = f"{self._folder.path_of(QUARANTINE)}/"
        names = [_quarantine.name_of(o.content, generation=o.generation, offset_bytes=0) for o in self._originals]
        return Repair(
            directory=self._folder.path,
            mode=self._mode,
            applied=False,
            findings=self._verification.findings,
            records_kept=self._plan.kept if self._rewrites_transcript else self._verification.records,
            records_left_out=self._plan.left_out,
            gaps=self._plan.gaps,
            metadata_from=self._metadata_from,
            generation=self._generation if self._rewrites_transcript else None,
            originals=tuple(folder + name for name in names),
        )

    def apply(self) -> Repair:
        """Do it. Nothing damaged is replaced or removed before it is safe in quarantine."""
        folder = self._folder
        folder.sync()
        folder.sweep()
        for original in self._originals:
            _quarantine.keep(
                folder,
                original.content,
                generation=original.generation,
                offset_bytes=0,
                kind=original.finding.kind,
                reason=f"{original.name}: {original.finding.reason}",
            )
        if self._rewrites_transcript:
            image = self._image()
            folder.replace_file(TRANSCRIPT, [image.buffer])
            self._write_metadata(image.header.metadata, image.end)
        elif folder.path_of(METADATA) in self._findings:
            found = _recovery.read_header(self._buffer or b"")
            assert not isinstance(found, _recovery.NotAHeader)
            end = _recovery.scan(self._buffer or b"", found[1], found[1]).end
            self._write_metadata({**self._members, "generation": self._generation}, end)
        for original in self._originals:
            if original.name.startswith(f"{ARCHIVE}/"):
                with folder.subfolder(ARCHIVE) as archive:
                    archive.remove_tree(original.name.removeprefix(f"{ARCHIVE}/"))
                    archive.sync()
        return replace(self.proposal, applied=True)

    def _image(self) -> Image:
        log = Log(self._folder, writable=True, max_line_bytes=0)
        updated_at = max(self._now, self._members["updated_at"])
        members = {**self._members, "generation": self._generation, "updated_at": updated_at}
        origin = {"generation": self._damaged_generation, "mode": self._mode, "records": self._plan.kept}
        return log.image(members, self._plan.records, repaired_from=origin)

    def _write_metadata(self, members: dict[str, Any], end: Position) -> None:
        document = encode_document(members, Mark(members["generation"], end))
        self._folder.replace_file(METADATA, [document])


def _edited_members(data: bytes) -> dict[str, Any] | None:
    """The members of a metadata.json, or of a header's metadata, that somebody edited; None if they are not what they must be."""
    try:
        document = orjson.loads(data.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        return None
    if type(document) is not dict or document.get("format") != "transcript-store":
        return None
    found = document.get("metadata", document)
    if type(found) is not dict:
        return None
    members = {key: value for key, value in found.items() if key not in ENVELOPE}
    return None if problem_with_members(members) else members
