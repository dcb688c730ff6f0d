"""One line about a conversation, from as little as tells it: its metadata, its header and its last whole record.

A summary is not a verification. What stands in the middle of a transcript is not looked at; what is seen to be damaged is
said to be, and stops nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transcript_store._conversation import agreement
from transcript_store._conversation.layout import metadata_bytes, read_metadata, require_conversation
from transcript_store._conversation.metadata import MetadataDocument, NotADocument, decode_document
from transcript_store._conversation.twice import twice
from transcript_store._log.damage import first_line
from transcript_store._log.header import NotAHeader, is_header_of, read_header
from transcript_store._log.record import Header, Mark
from transcript_store._log.tail import LastRecord, last_record, look_back, searched_bytes
from transcript_store._os.directory import Folder, Source
from transcript_store._os.names import METADATA, TRANSCRIPT
from transcript_store._os.refusals import NotOursError, refused
from transcript_store.errors import (
    ConversationNotFoundError,
    CorruptMetadataError,
    CorruptTranscriptError,
    UnsupportedVersionError,
)

_FIRST_READ_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSummary:
    """What a list says of a conversation. Where damage hides a fact, it is None."""

    id: str | None
    directory: str
    title: str | None
    """The label ``title``."""
    provider: str | None
    model: str | None
    created_at: str | None
    updated_at: str | None
    """The time of the last record, or of the last change of the metadata: RFC 3339 in UTC."""
    record_count: int | None
    """How many records the live generation has, events included: the number of its last whole one."""
    generation: int | None
    size_bytes: int | None
    """The length of transcript.jsonl."""
    damage: str | None
    """What is wrong as far as this look can tell, in a sentence; None if nothing is. ``verify()`` looks at everything."""
    torn_bytes: int = 0
    """How many bytes stand behind the last whole record: a torn tail, which the next load that may write cuts, or a line that
    is being written. 0 too where there is damage."""


def summarize(parent: Folder, name: str) -> ConversationSummary | None:
    """Look at the conversation in a folder of ``parent``; None if there is none (nor a part of one) at that name."""
    files, path = parent.files, f"{parent.path.rstrip('/')}/{name}"

    def look() -> ConversationSummary | None:
        try:
            with Folder(files, path, files.open_directory(name, parent.handle)) as folder:
                return _look(folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            return _summary(path, damage=f"it cannot be looked at: {refused(error, path, 'look at it').strerror}")

    def is_fine(summary: ConversationSummary | None) -> bool:
        return summary is None or (summary.damage is None and not summary.torn_bytes)

    return twice(files, look, is_fine)


def _look(folder: Folder) -> ConversationSummary | None:
    try:
        data = metadata_bytes(folder)
        with folder.reading(TRANSCRIPT) as source:
            return _read(folder, data, source)
    except (FileNotFoundError, NotOursError):
        return _explain(folder)


def _explain(folder: Folder) -> ConversationSummary | None:
    """What a folder is that lacks a transcript, or has something else in its place: nothing of ours, or damaged."""
    try:
        require_conversation(folder)
        read_metadata(folder)
        folder.files.close(folder.open_file(TRANSCRIPT))
    except ConversationNotFoundError:
        return None
    except CorruptTranscriptError as error:
        if error.kind == "foreign":
            return None
        reason = error.reason
    except (CorruptMetadataError, UnsupportedVersionError) as error:
        reason = f"{METADATA}: {error.reason}"
    except NotOursError as error:
        reason = f"{TRANSCRIPT}: {error.reason}"
    else:
        return _look(folder)  # it appeared just now
    return _summary(folder.path, damage=reason)


def _read(folder: Folder, data: bytes | NotADocument | None, source: Source) -> ConversationSummary | None:
    problems: list[str] = []
    members: dict[str, Any] | None = None
    mark: Mark | None = None
    document = decode_document(data, check_members=False)
    if not isinstance(document, NotADocument):
        members, mark = document
    read, size = source.read, source.size
    tail = read(max(0, size - _FIRST_READ_BYTES), min(size, _FIRST_READ_BYTES))
    start = tail if size == len(tail) else first_line(read, size)
    begin = start.find(b"\n") + 1
    if members is None or not is_header_of(start[:begin], members.get("id"), members.get("generation")):
        # Not the plain case, in which the two hashes vouch for all that a summary says.
        if not isinstance(document, NotADocument):
            document = decode_document(data)
        members, mark = (None, None) if isinstance(document, NotADocument) else document
        if isinstance(document, NotADocument):
            problems.append(f"{METADATA}: {document.reason}")
        header = read_header(start)
        if isinstance(header, NotAHeader):
            if data is None and header.kind == "foreign" and header.version is None:
                return None  # another program's transcript.jsonl
            problems.append(f"{TRANSCRIPT}: {header.reason}")
            begin = 0
        else:
            found = None if isinstance(document, NotADocument) else document
            members, mark = _reconcile(header[0], found, problems)
    elif mark is not None and mark.generation != members["generation"]:
        problems.append(f"{METADATA} has a mark of generation {mark.generation}")
    last = last_record(tail, size - len(tail))
    if last is None and len(tail) < size:
        last = look_back(read, size)
        if last is None:
            problems.append(f"{TRANSCRIPT}: no whole record ends in its last {searched_bytes(size):,} bytes")
    whole_to = last.end if last is not None else begin
    if mark is not None and whole_to < mark.position.offset_bytes:
        problems.append(f"{TRANSCRIPT}: the last record that was stored is not there, or not whole")
    torn_bytes = 0 if problems else size - whole_to
    return _summary(folder.path, members, last, size, "; ".join(problems) or None, torn_bytes)


def _reconcile(
    header: Header, document: MetadataDocument | None, problems: list[str]
) -> tuple[dict[str, Any], Mark | None]:
    """The metadata that holds: the header's, where metadata.json is not of this generation."""
    if document is None:
        return header.metadata, None
    agreed = agreement.of_live(header, document)
    if isinstance(agreed, agreement.Disagreement):
        problems.append(f"{TRANSCRIPT}: {agreed.reason}")
        return document.members, None
    return agreed


def _summary(
    path: str,
    members: dict[str, Any] | None = None,
    last: LastRecord | None = None,
    size_bytes: int | None = None,
    damage: str | None = None,
    torn_bytes: int = 0,
) -> ConversationSummary:
    known = members or {}
    labels = known.get("labels")
    updated_at, last_at = _text(known.get("updated_at")), last.at if last else None
    return ConversationSummary(
        id=_text(known.get("id")),
        directory=path,
        title=_text(labels.get("title")) if type(labels) is dict else None,
        provider=_text(known.get("provider")),
        model=_text(known.get("model")),
        created_at=_text(known.get("created_at")),
        updated_at=max(updated_at, last_at) if updated_at and last_at else updated_at or last_at,
        record_count=None if size_bytes is None else last.seq if last else 0,
        generation=generation if type(generation := known.get("generation")) is int else None,
        size_bytes=size_bytes,
        damage=damage,
        torn_bytes=torn_bytes,
    )


def _text(member: Any) -> str | None:
    """A member of metadata for which only a hash vouches."""
    return member if type(member) is str else None
