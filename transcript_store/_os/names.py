"""Which file names may the store create? Nothing here does I/O.

::

    <conversation>/   metadata.json   transcript.jsonl   lock   key.json   archive/transcript-000000.jsonl …
        quarantine/g…-o…-…[.json]
    <library>/        <id>/ …         deleted.jsonl   .new-<id>   .trash-<32 hex>/   .stage-<32 hex>   .stage-<32 hex>-<id>/
    <snapshot store>/ <id>.json …     media/<sha256> …   sealing   lock
    anywhere          .tmp-<32 hex>
"""

from __future__ import annotations

import re

from transcript_store._os.filesystem import FileSystem

METADATA = "metadata.json"
TRANSCRIPT = "transcript.jsonl"
ARCHIVE = "archive"
QUARANTINE = "quarantine"
LOCK = "lock"
KEY = "key.json"
MEDIA = "media"
SEALING = "sealing"
DELETED = "deleted.jsonl"

LAST_GENERATION = 2**62 - 1
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TEMPORARY = re.compile(r"\.tmp-[0-9a-f]{32}")
_TRASH = re.compile(r"\.trash-[0-9a-f]{32}")
_NOTE = ".new-"
_STAGED = re.compile(rf"(\.stage-[0-9a-f]{{32}})(?:-({_ID.pattern}))?")
_QUARANTINED = re.compile(r"g\d+-o\d+-[0-9a-f]{16}(\.json)?")


def is_id(text: str) -> bool:
    """True if a text is a canonical lower-case UUID: the name of a conversation's folder, or of a snapshot."""
    return _ID.fullmatch(text) is not None


def new_id(files: FileSystem) -> str:
    """A new name of that kind: a random UUID (RFC 9562, version 4)."""
    from uuid import UUID  # here: it imports `platform`, and both would be a twentieth of the import of the package

    return str(UUID(bytes=files.random_bytes(16), version=4))


def archive_name(generation: int) -> str:
    """The name of a generation in the archive."""
    return f"transcript-{generation:06d}.jsonl"


def generation_of(name: str) -> int | None:
    """The generation of a name in the archive; None if the name is not one of ours."""
    digits = name.removeprefix("transcript-").removesuffix(".jsonl")
    number = int(digits) if digits.isascii() and digits.isdigit() else -1
    return number if 0 <= number <= LAST_GENERATION and name == archive_name(number) else None


def is_generation(name: str) -> bool:
    """True if a name in the archive is that of a generation."""
    return generation_of(name) is not None


def temporary_name(files: FileSystem) -> str:
    """A new name for a file that is being written."""
    return f".tmp-{files.random_bytes(16).hex()}"


def is_temporary(name: str) -> bool:
    """True if a name is one of our temporary names."""
    return _TEMPORARY.fullmatch(name) is not None


def trash_name(files: FileSystem) -> str:
    """A new name for a folder to remove: the conversation is deleted as soon as its folder has this name."""
    return f".trash-{files.random_bytes(16).hex()}"


def is_trash(name: str) -> bool:
    """True for the name of a folder that is being deleted."""
    return _TRASH.fullmatch(name) is not None


def note_name(id: str) -> str:
    """The name of the creation note for a conversation with this id."""
    return f"{_NOTE}{id}"


def noted_id(name: str) -> str | None:
    """The id in the name of a creation note; None if it is not one."""
    found = name.removeprefix(_NOTE)
    return found if name.startswith(_NOTE) and is_id(found) else None


def stage_name(files: FileSystem) -> str:
    """A new name for a staging note, of a group of conversations."""
    return f".stage-{files.random_bytes(16).hex()}"


def staged_name(stage: str, id: str) -> str:
    """The name of a conversation's folder in the staging area with this note."""
    return f"{stage}-{id}"


def stage_of(name: str) -> str | None:
    """The staging note that this name is, or that belongs to this staged folder; None if it is neither."""
    found = _STAGED.fullmatch(name)
    return None if found is None else found[1]


def quarantine_name(digest: str, *, generation: int, offset_bytes: int) -> str:
    """The name of the file that keeps bytes with this SHA-256 from this position."""
    return f"g{generation}-o{offset_bytes}-{digest[:16]}"


def is_quarantined(name: str) -> bool:
    """True if a name in quarantine/ is one of ours: of kept bytes, or of their quarantine note."""
    return _QUARANTINED.fullmatch(name) is not None
