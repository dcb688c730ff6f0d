"""What is left of a damaged conversation, and how is it repaired?

.. code-block:: python

    from transcript_store import ConversationStore, repair

    with ConversationStore("agent/main") as conversation:
        conversation.load_or_initialize(messages=[{"role": "user", "content": "Hello"}])
    proposal = repair("agent/main")                      # reads, and changes nothing
    print(proposal.records_kept, proposal.records_left_out, proposal.gaps)
    repair("agent/main", mode="salvage", dry_run=False)  # every whole record; the original is kept in quarantine/

Order of writes: the damaged files into ``quarantine/``, synced; the new generation under a temporary name, sync,
**rename**, sync the folder; metadata. After a crash before the rename the damaged conversation is unchanged. After a
crash after it the transcript is whole, and the next repair writes its metadata.

Before that, :func:`salvage` reads the existing files and each readable line of the transcript, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import orjson

from transcript_store._conversation import archive, layout
from transcript_store._conversation.arguments import require_one_of
from transcript_store._conversation.deleting import locked
from transcript_store._conversation.layout import (
    in_place_of_file,
    metadata_bytes,
    names_in,
    open_folder,
    require_conversation,
)
from transcript_store._conversation.metadata import (
    ENVELOPE,
    SEALED_MEMBER,
    ConversationMetadata,
    MetadataDocument,
    NotADocument,
    decode_document,
    encode_document,
    new_members,
    problem_with_members,
    public,
)
from transcript_store._conversation.verify import Finding, verify_folder
from transcript_store._json.times import format_time
from transcript_store._log.header import Image, NotAHeader, read_header
from transcript_store._log.log import Log, name_in_quarantine, quarantine_bytes
from transcript_store._log.record import VERSION, Gap, Header, Mark, Position
from transcript_store._log.repair_plan import MODES, NOTHING, Mode, RepairPlan, Salvaged, contents, plan, sealed_plan
from transcript_store._log.resync import is_ours
from transcript_store._log.retractions import TakenBack
from transcript_store._log.scan import first_line, read_chunks
from transcript_store._os import filesystem
from transcript_store._os.directory import Folder, OpenFile
from transcript_store._os.filesystem import FileSystem, NotOursError, refusals
from transcript_store._os.names import (
    ARCHIVE,
    LAST_GENERATION,
    METADATA,
    QUARANTINE,
    TRANSCRIPT,
    archive_name,
    generation_of,
    new_id,
)
from transcript_store.errors import CorruptMetadataError, CorruptTranscriptError, UnsupportedVersionError
from transcript_store.hints import Hint

MetadataSource = Literal["metadata.json", "header", "archive", "nothing"]


@contextmanager
def open_damaged(directory: filesystem.AnyPath, file_system: FileSystem | None, doing: str) -> Iterator[Folder]:
    """Open the folder of a conversation, whole or damaged."""
    path = filesystem.absolute_path(directory)
    files = filesystem.REAL if file_system is None else file_system
    with refusals(path, doing, "Nothing of it was changed"), open_folder(files, path) as folder:
        _require_something(folder)
        yield folder


def _require_something(folder: Folder) -> None:
    """Raise unless the folder holds a conversation, whole or damaged, in files and folders of ours."""
    for name in (METADATA, TRANSCRIPT):
        _require_a_file(folder, name)
    for name in (ARCHIVE, QUARANTINE):
        try:
            with folder.subfolder(name) as subfolder:
                for entry in subfolder.names() if name == ARCHIVE else ():
                    if generation_of(entry) is not None:
                        _require_a_file(subfolder, entry)
        except FileNotFoundError:
            pass
        except NotOursError as error:
            raise _foreign(folder, name, error.reason) from None
    try:
        require_conversation(folder)
    except (CorruptTranscriptError, CorruptMetadataError) as error:
        if error.kind != "missing" and not {METADATA, TRANSCRIPT} & names_in(folder):
            raise  # it says what the folder is instead: a library, or its contents
        if error.kind != "missing" and not _is_ours(folder):
            reason = "none of its files is recognizable as ours"
            raise CorruptTranscriptError(
                path=folder.path, kind="foreign", reason=reason, hint=Hint.CHOOSE_A_FOLDER
            ) from None


def _is_ours(folder: Folder) -> bool:
    """True if the folder is a conversation's, whatever happened to its files. Other programs use such names too."""
    if folder.status(ARCHIVE) is not None:
        return True
    for name in (METADATA, TRANSCRIPT):
        with suppress(FileNotFoundError), folder.reading(name) as source:
            if is_ours(source.read, source.size):
                return True
    return False


def _require_a_file(folder: Folder, name: str) -> None:
    if (reason := in_place_of_file(folder, name)) is not None:
        raise _foreign(folder, name, reason)


def _foreign(folder: Folder, name: str, reason: str) -> CorruptTranscriptError | CorruptMetadataError:
    kind = CorruptMetadataError if name == METADATA else CorruptTranscriptError
    return kind(path=folder.path_of(name), kind="foreign", reason=reason)


class DamagedConversation:
    """The files of a conversation, and its metadata, as far as that is known for certain.

    With ``accepts_edits`` metadata that a person edited counts too. Raises ``UnsupportedVersionError`` for what a later version
    wrote, because it could be misread.
    """

    def __init__(self, folder: Folder, *, accepts_edits: bool) -> None:
        self.folder = folder
        self.now = format_time(folder.files.now_us())
        self.data = metadata_bytes(folder)
        """The bytes of metadata.json; None if it does not exist."""
        self.has_transcript = folder.status(TRANSCRIPT) is not None
        self.header = self.header_of(TRANSCRIPT)
        self.archived = archive.numbers(folder)
        self.members, self.metadata_from = self._choose_metadata(accepts_edits)

    @contextmanager
    def reading(self, name: str) -> Iterator[OpenFile]:
        """A file of the conversation, by its relative path."""
        subfolder, _, name = name.rpartition("/")
        with ExitStack() as stack:
            folder = stack.enter_context(self.folder.subfolder(subfolder)) if subfolder else self.folder
            yield stack.enter_context(folder.reading(name))

    def header_of(self, name: str) -> Header | None:
        """The header of a transcript; None if it cannot be read."""
        try:
            with self.reading(name) as source:
                found = read_header(first_line(source.read, source.size))
        except FileNotFoundError:
            return None
        if isinstance(found, NotAHeader):
            if found.version is not None:
                raise UnsupportedVersionError(path=self.folder.path_of(name), reason=found.reason)
            return None
        return None if problem_with_members(found[0].metadata) else found[0]

    def _choose_metadata(self, accepts_edits: bool) -> tuple[dict[str, Any], MetadataSource]:
        """The metadata that the repaired conversation gets, and its source."""
        document = decode_document(self.data)
        header = self.header
        if isinstance(document, NotADocument) and document.version is not None:
            raise UnsupportedVersionError(path=self.folder.path_of(METADATA), reason=document.reason)
        if isinstance(document, MetadataDocument):
            members = document.members
            # A later header counts more: a replace committed, and was interrupted before it wrote metadata.json.
            if header is None or (header.conversation == members["id"] and header.generation <= members["generation"]):
                return members, "metadata.json"
        elif accepts_edits and isinstance(self.data, bytes) and (edited := _edited_members(self.data)):
            identity = {"id": header.conversation, "generation": header.generation} if header else {}
            return {**edited, **identity}, "metadata.json"
        if header is not None:
            return header.metadata, "header"
        if accepts_edits and self.has_transcript:
            with self.reading(TRANSCRIPT) as source:
                line = bytes(first_line(source.read, source.size)).partition(b"\n")[0]
            if edited := _edited_members(line):
                return edited, "header"
        # The newest first: its metadata is the last that is known.
        for number in sorted(self.archived, reverse=True):
            if (archived := self.header_of(path_in_archive(number))) is not None:
                return archived.metadata, "archive"
        return new_members(self.now, id=new_id(self.folder.files)), "nothing"


def path_in_archive(generation: int) -> str:
    return f"{ARCHIVE}/{archive_name(generation)}"


def _edited_members(data: bytes) -> dict[str, Any] | None:
    """The members of an edited metadata.json, or of the metadata in an edited header; None if they are not valid."""
    try:
        document = orjson.loads(data.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        return None
    if type(document) is not dict or (document.get("format"), document.get("version")) != ("transcript-store", VERSION):
        return None
    found = document.get("metadata", document)
    if type(found) is not dict:
        return None
    members = {key: value for key, value in found.items() if key not in ENVELOPE}
    return None if problem_with_members(members) else members


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvage:
    """The readable parts of a conversation, intact or damaged."""

    directory: str
    metadata: ConversationMetadata
    metadata_from: MetadataSource
    """Where the metadata comes from. Unless this is ``metadata.json``, it may be older than its last change."""
    found: tuple[Salvaged, ...]
    """The live transcript without its header, in order."""

    @property
    def is_intact(self) -> bool:
        """True if every record verifies, with no other bytes between or after them."""
        return all(found.damage is None for found in self.found)


def salvage(directory: filesystem.AnyPath, *, file_system: FileSystem | None = None) -> Salvage:
    """Read a damaged conversation as far as that is possible. Changes nothing and takes no lock.

    The result has every record that verifies, wherever it is. It also has every changed line that has the form of a
    record; ``damage`` then says so, and the content may differ from the stored one. Other bytes are given by their length.
    So a conversation is readable without a repair. :func:`repair` with ``mode="accept-edits"`` keeps the same records.

    The result holds the whole transcript in memory. Beside a live writer the last line may be one that is being
    written.

    Raises:
        ConversationNotFoundError: the path does not exist; check it.
        CorruptTranscriptError: no file there is ours (``kind`` is ``foreign``); choose another folder.
        CorruptMetadataError: something other than a file is named metadata.json (``foreign``); move it away.
        UnsupportedVersionError: a later version wrote it; upgrade.
        StorageError: the system refuses to read it; the message says what to do.
    """
    with open_damaged(directory, file_system, "read the conversation") as folder:
        left = DamagedConversation(folder, accepts_edits=True)
        found: tuple[Salvaged, ...] = ()
        if left.has_transcript:
            with left.reading(TRANSCRIPT) as source:
                found = _marked(list(contents(source.read, source.size, at=left.members["created_at"])))
        return Salvage(
            directory=folder.path,
            metadata=public(left.members, left.members["updated_at"]),
            metadata_from=left.metadata_from,
            found=found,
        )


def _marked(found: Sequence[Salvaged]) -> tuple[Salvaged, ...]:
    """The same, with the retracted records marked."""
    taken_back, marked = TakenBack(), []
    for one in reversed(found):
        record = one.record
        if record is not None and record.retracts:
            taken_back.add(*record.retracts)
        is_retracted = record is not None and record.message is not None and record.seq in taken_back
        marked.append(replace(one, record=replace(record, is_retracted=True)) if record and is_retracted else one)
    return tuple(reversed(marked))


_FROM_THERE = "The damaged files are in place or in quarantine/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """The result of a repair, or of a dry run."""

    directory: str
    mode: Mode
    applied: bool
    """False for a dry run, and if there was nothing to do."""
    findings: tuple[Finding, ...]
    """The findings of :func:`verify`; empty if there is nothing to do."""
    records_kept: int
    """How many records of the damaged transcript the repaired one has."""
    records_left_out: int
    """How many records that verify are not kept: those after the damage, with ``mode="prefix"``."""
    gaps: tuple[Gap, ...]
    """The bytes of the damaged transcript that are not kept."""
    metadata_from: MetadataSource
    """Where the metadata comes from. Unless this is ``metadata.json``, it may be older than its last change."""
    generation: int | None
    """The generation that holds the repaired transcript; None if the transcript is whole and stays unchanged."""
    originals: tuple[str, ...]
    """Where the damaged files are kept, byte for byte; with a damaged transcript also its metadata.json."""
    taken_from: tuple[str, ...]
    """The original path of each, in the same order. Copy each back there to undo the repair."""


def repair(
    directory: filesystem.AnyPath, *, mode: Mode = "prefix", dry_run: bool = True, file_system: FileSystem | None = None
) -> Repair:
    """Say what of a damaged conversation can be kept, and with ``dry_run=False`` repair it. Never runs by itself.

    When an applied repair returns, ``verify()`` finds nothing. The repaired transcript is a new generation, whose
    records keep their times, messages and extras. The damaged files are in ``quarantine/``, byte for byte. Damaged or
    lost metadata is rebuilt from the transcript's header, which does not have later changes. A damaged generation is
    removed from ``archive/``.

    A repair is committed like a replace: after a crash the damage is unchanged, or the conversation is repaired. A dry
    run takes no lock.

    Args:
        directory: the conversation's folder.
        mode: which records of a damaged transcript are kept.

            * ``"prefix"``: the records before the first damage, or before the batch that it is in. Each of them is as
              it was stored. Everything after the damage is left out.
            * ``"salvage"``: every whole record, also those of a damaged batch. Where something is missing between two
              records, a record without a message says so: its ``extra`` has the offset and the length of the gap as
              ``transcript_store.gap``.
            * ``"accept-edits"``: every line that has the form of a record, whole or not. For files that were edited by
              hand.
        dry_run: only say what a repair would do.
        file_system: another file system, for tests (``transcript_store.testing``).

    Raises:
        ConversationNotFoundError: the path does not exist; check it.
        ConversationLockedError: it has a live writer; close that first. Not raised by a dry run.
        CorruptTranscriptError: no file there is ours, or something other than a file has the name of one of ours; move
            it away. (``kind`` is ``foreign``.)
        CorruptMetadataError: the same, of metadata.json.
        UnsupportedVersionError: a later version wrote it; upgrade.
        ValueError: there is no such mode.
        StorageError: the system refused. The message says whether the conversation is unchanged, or its damaged files
            are in place or in ``quarantine/``; then the next ``repair()`` continues from there.
    """
    require_one_of("mode", mode, MODES)
    doing = "repair the conversation"
    with open_damaged(directory, file_system, doing) as folder:
        if dry_run:
            return _RepairJob(folder, mode).proposal
        with locked(folder):
            _settle(folder)
            # Read again under the lock: the proposal of a dry run may be out of date.
            work = _RepairJob(folder, mode)
            if not work.proposal.findings:
                return work.proposal
            with refusals(folder.path, doing, _FROM_THERE, Hint.REPAIR_AGAIN):
                return work.apply()


def _settle(folder: Folder) -> None:
    """Sync the names that a killed process left: nothing is reported as whole that a power loss could undo."""
    folder.sync()
    if folder.status(ARCHIVE) is not None:
        with folder.subfolder(ARCHIVE) as archive:
            archive.sync()


class _Original(NamedTuple):
    """A file that goes to quarantine, and why."""

    name: str
    """Its path within the conversation."""
    generation: int
    kind: str
    reason: str
    kept_as: str
    """Its name in quarantine/."""


class _RepairJob(DamagedConversation):
    """One reading of a damaged conversation, and the repair of it."""

    def __init__(self, folder: Folder, mode: Mode) -> None:
        self._mode = mode
        self._verification = verify_folder(folder)
        for finding in self._verification.findings:
            # A later version may have records of another form: a repair would take them for damage and leave them out
            # (P20).
            if finding.kind == "version":
                raise UnsupportedVersionError(path=finding.path, reason=finding.reason)
        super().__init__(folder, accepts_edits=mode == "accept-edits")
        self._findings = {finding.path: finding for finding in reversed(self._verification.findings)}
        self._rewrites_transcript = not {folder.path, folder.path_of(TRANSCRIPT)}.isdisjoint(self._findings)
        self._rewrites_metadata = self._rewrites_transcript or folder.path_of(METADATA) in self._findings
        self._damaged_generation = self.header.generation if self.header else self.members["generation"]
        self._generation = self._next_generation() if self._rewrites_transcript else self._damaged_generation
        self._originals = list(self._choose_originals())
        self._is_sealed = self.header.is_sealed if self.header else SEALED_MEMBER in self.members
        """True if the transcript is sealed. Without its key sealed records are copied unchanged, and nothing else is kept."""
        self._plan = NOTHING
        if self._rewrites_transcript and self.has_transcript:
            with self.reading(TRANSCRIPT) as source:
                self._plan = self._plan_of(source)

    def _is_damaged(self, name: str) -> bool:
        return self.folder.path_of(name) in self._findings

    def _next_generation(self) -> int:
        """A number that no generation of the conversation had, as far as can be known."""
        archived = (number for number in self.archived if not self._is_damaged(path_in_archive(number)))
        last: int = max(self._damaged_generation, self.members["generation"], *archived)
        if last >= LAST_GENERATION:
            reason = f"it is of generation {last}, which is the highest possible number"
            raise CorruptTranscriptError(path=self.folder.path, kind="wrong-generation", reason=reason)
        return last + 1

    def _choose_originals(self) -> Iterator[_Original]:
        """The files that will be replaced or removed: damaged ones, and the metadata that goes with a transcript.

        Without its metadata, a restored transcript would disagree with metadata.json about the generation, and have no
        mark.
        """
        live = self._damaged_generation
        candidates = [(TRANSCRIPT, live)] if self.has_transcript else []
        candidates += [(METADATA, live)] if self.data is not None else []
        candidates += [(path_in_archive(number), number) for number in self.archived]
        for name, generation in candidates:
            finding = self._findings.get(self.folder.path_of(name))
            if finding is not None:
                yield self._original(name, generation, finding.kind, finding.reason)
            elif name == METADATA and self._rewrites_metadata and self._is_of_another_conversation():
                reason = "it does not belong to the transcript beside it"
                yield self._original(name, generation, "wrong-conversation", reason)
            elif name == METADATA and self._rewrites_transcript and self.has_transcript:
                reason = "it goes with the transcript, which was damaged"
                yield self._original(name, generation, "replaced", reason)

    def _is_of_another_conversation(self) -> bool:
        """True if a whole metadata.json belongs to another conversation than the transcript."""
        document = decode_document(self.data)
        return isinstance(document, MetadataDocument) and document.members["id"] != self.members["id"]

    def _original(self, name: str, generation: int, kind: str, reason: str) -> _Original:
        with self.reading(name) as source:
            pieces = partial(read_chunks, source.read, 0, source.size)
            kept_as, *_ = name_in_quarantine(pieces, generation=generation, offset_bytes=0)
        return _Original(name, generation, kind, reason, kept_as)

    def _plan_of(self, source: OpenFile) -> RepairPlan:
        """The records of the transcript that are kept."""
        original = next(original.kept_as for original in self._originals if original.name == TRANSCRIPT)
        at = self.members["created_at"]
        if not self._is_sealed:
            return plan(source.read, source.size, self._mode, at=at, original=original)
        return sealed_plan(source.read, source.size, self._mode, self._damaged_generation, at=at)

    # ---- the plan and the repair --------------------------------------------------------------------------------------------

    @property
    def proposal(self) -> Repair:
        """The plan of the repair."""
        folder = f"{self.folder.path_of(QUARANTINE)}/"
        return Repair(
            directory=self.folder.path,
            mode=self._mode,
            applied=False,
            findings=self._verification.findings,
            records_kept=self._plan.kept if self._rewrites_transcript else self._verification.records,
            records_left_out=self._plan.left_out,
            gaps=self._plan.gaps,
            metadata_from=self.metadata_from,
            generation=self._generation if self._rewrites_transcript else None,
            originals=tuple(folder + original.kept_as for original in self._originals),
            taken_from=tuple(self.folder.path_of(original.name) for original in self._originals),
        )

    def apply(self) -> Repair:
        """Repair. No damaged file is replaced or removed before it is safe in quarantine."""
        folder = self.folder
        folder.sweep()
        for original in self._originals:
            with self.reading(original.name) as source:
                quarantine_bytes(
                    folder,
                    partial(read_chunks, source.read, 0, source.size),
                    generation=original.generation,
                    offset_bytes=0,
                    kind=original.kind,
                    reason=f"{original.name}: {original.reason}",
                )
        removed = [original.generation for original in self._originals if original.name.startswith(f"{ARCHIVE}/")]
        members = self._remembering(removed)
        if self._rewrites_transcript:
            self._take_out_of_archive(self._uncommitted())
            image = self._write_transcript(members)
            self._write_metadata(image.header.metadata, image.end)
        elif self._rewrites_metadata or members != self.members:
            self._write_metadata({**members, "generation": self._generation}, self._end_on_the_medium())
        self._take_out_of_archive(removed)  # last: until now the metadata, or a part of it, may exist only there
        return replace(self.proposal, applied=True)

    def _uncommitted(self) -> list[int]:
        """Archive entries of a replace that never committed, which would count as generations after the repair.

        They hold the beginning of the damaged transcript, which is in quarantine.
        """
        if self.header is None:
            return []
        live = self.header.generation
        return [n for n in self.archived if n >= live and not self._is_damaged(path_in_archive(n))]

    def _remembering(self, removed: list[int]) -> dict[str, Any]:
        """The metadata, with what the headers of the quarantined generations say of the generations before them."""
        found = (self.header_of(path_in_archive(number)) for number in removed)
        headers = [header for header in found if header is not None]
        if self._rewrites_transcript and self.header is not None:
            headers.append(self.header)
        return layout.remembering(self.members, headers, self.archived)

    def _end_on_the_medium(self) -> Position:
        """The end of a whole transcript, synced: a mark must be true."""
        log = Log(self.folder, writable=True)
        try:
            log.open(None)
            log.verify(None)
            return log.end
        finally:
            log.close()

    def _take_out_of_archive(self, numbers: list[int]) -> None:
        """Remove archived generations that are no longer needed there."""
        if numbers:
            with self.folder.subfolder(ARCHIVE) as archive:
                for number in numbers:
                    archive.remove_tree(archive_name(number))
                archive.sync()

    def _write_transcript(self, members: dict[str, Any]) -> Image:
        """Put the repaired transcript in place. Readers see the original until the rename."""
        log = Log(self.folder, writable=True)
        updated_at = max(self.now, self.members["updated_at"])
        members = {**members, "generation": self._generation, "updated_at": updated_at}
        origin = {"generation": self._damaged_generation, "mode": self._mode, "records": self._plan.kept}
        with ExitStack() as stack:
            kept = self._plan_of(stack.enter_context(self.reading(TRANSCRIPT))) if self.has_transcript else self._plan
            more: dict[str, Any] = {"kept_sealed": kept.kept} if self._is_sealed else {}
            image = log.image(members, kept.records(), kept.features, repaired_from=origin, **more)
            self.folder.replace_file(TRANSCRIPT, image.pieces())
        return image

    def _write_metadata(self, members: dict[str, Any], end: Position) -> None:
        document = encode_document(members, Mark(members["generation"], end))
        self.folder.replace_file(METADATA, [document])
