"""What can still be read of a damaged conversation? Its existing files, and each readable line of its transcript.
Changes nothing.

A repair starts with this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from transcript_store._conversation import archive
from transcript_store._conversation.layout import (
    in_place_of_file,
    metadata_bytes,
    names_in,
    open_folder,
    require_conversation,
)
from transcript_store._conversation.metadata import (
    ENVELOPE,
    ConversationMetadata,
    MetadataDocument,
    NotADocument,
    decode_document,
    new_members,
    problem_with_members,
    public,
)
from transcript_store._json.times import format_time
from transcript_store._log.header import NotAHeader, read_header
from transcript_store._log.record import VERSION, Header
from transcript_store._log.repair_plan import Salvaged, contents
from transcript_store._log.resync import is_ours
from transcript_store._log.retractions import TakenBack
from transcript_store._log.scan import first_line
from transcript_store._os import filesystem
from transcript_store._os.directory import Folder, OpenFile
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import ARCHIVE, METADATA, QUARANTINE, TRANSCRIPT, archive_name, generation_of, new_id
from transcript_store._os.os_errors import NotOursError, refusals
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
