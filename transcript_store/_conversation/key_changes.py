"""The key of a conversation, destroyed; and the lock that whoever changes its key file holds.

So a rotation (:mod:`rotation`) never puts back what a shred took away. Whoever takes turns at the conversation loads it anew
afterwards, because its statement is gone from the lock file.

Order of writes: key.json is replaced as a whole, atomically: temporary file, sync, **rename**, sync the folder. After a crash the old
one is there or the new one. What a crash left under a temporary name is removed before the call returns: it may hold the key.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from transcript_store._conversation import archive
from transcript_store._conversation.layout import header_of, read_metadata, require_conversation
from transcript_store._conversation.locked import locked
from transcript_store._conversation.sealing import opens
from transcript_store._json.times import format_time
from transcript_store._os.directory import Folder
from transcript_store._os.names import ARCHIVE, KEY, QUARANTINE, TRANSCRIPT, archive_name, is_id, is_temporary
from transcript_store._os.refusals import refusals
from transcript_store._sealing.data_key import DataKey
from transcript_store._sealing.key_file import conversation_in_key_file, encode_shredded, read_key_file_of
from transcript_store.errors import (
    ConversationNotFoundError,
    ConversationShreddedError,
    CorruptKeyFileError,
    CorruptMetadataError,
    CorruptTranscriptError,
    NotSealedError,
    UnsupportedVersionError,
)

_NOT_WHOLE = (ConversationNotFoundError, CorruptMetadataError, CorruptTranscriptError, UnsupportedVersionError)
"""What a folder is told by from which the transcript or metadata.json is missing, or in which it is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shredding:
    """What :meth:`ConversationLibrary.shred` did, and what it could not reach."""

    id: str
    shredded_at: str
    still_readable: tuple[str, ...]
    """Files of the conversation that are not sealed, so that everybody who has them can read them: plain generations that were kept,
    and what stands in quarantine/. Delete them, or the conversation."""


def id_of(folder: Folder) -> str:
    """The id of the conversation in a folder that is not called by it: the transcript says it, or metadata.json, or key.json."""
    if (header := header_of(folder)) is not None:
        return header.conversation
    try:
        return str(read_metadata(folder).members["id"])
    except (CorruptMetadataError, UnsupportedVersionError):
        if (of := conversation_in_key_file(folder)) is not None and is_id(of):
            return of
        require_conversation(folder)  # if this is no conversation, its error says why
        raise


def shred(folder: Folder, id: str) -> Shredding:
    """Destroy the data key of the conversation in a folder; on return it is destroyed, also after a power loss.

    Called again after a crash it goes on. The transcript and metadata.json may be missing or damaged, if the key file is that of ``id``.
    """
    path = folder.path_of(KEY)
    try:
        require_conversation(folder)
    except _NOT_WHOLE:
        if conversation_in_key_file(folder) != id:
            raise
    if folder.status(KEY) is None and not is_sealed(folder, TRANSCRIPT):
        reason = "it was never sealed, so that there is no key to destroy"
        raise NotSealedError(path=folder.path, reason=reason, way_out=None)
    with refusals(path, "destroy the key", "It is in place, or destroyed"), locked(folder):
        at = format_time(folder.files.now_us())
        try:
            read_key_file_of(folder, id)
        except ConversationShreddedError as error:
            at = error.shredded_at
        except (CorruptKeyFileError, UnsupportedVersionError):
            pass  # whatever stands there may hold the key
        for name in folder.names():
            if is_temporary(name):
                folder.files.unlink(
                    folder.handle, name
                )  # what a rotation that was cut off left; synced with what follows
        folder.replace_file(KEY, [encode_shredded(id, at)])
        return Shredding(id=id, shredded_at=at, still_readable=tuple(plain_files(folder)))


def plain_files(folder: Folder) -> list[str]:
    """The files of a conversation that are not sealed."""
    is_plain = folder.status(TRANSCRIPT) is not None and not is_sealed(folder, TRANSCRIPT)
    found = [folder.path_of(TRANSCRIPT)] if is_plain else []
    found += [f"{folder.path_of(ARCHIVE)}/{archive_name(number)}" for number in archive.plain_numbers(folder)]
    if folder.status(QUARANTINE) is not None:
        with folder.subfolder(QUARANTINE) as quarantine:
            found += [
                quarantine.path_of(name)
                for name in quarantine.names()
                if not name.endswith(".json") and not is_sealed(quarantine, name)
            ]
    return found


def is_sealed(folder: Folder, name: str) -> bool:
    """Whether a file begins like a sealed generation. A piece of one does not, and counts as plain: nobody can tell."""
    header = header_of(folder, name)
    return header is not None and header.is_sealed


def opens_folder(folder: Folder, conversation: str, data_key: bytes) -> bool | None:
    """Whether a data key opens the metadata in a folder, or made the check of its newest sealed generation; None if neither tells."""
    members: dict[str, Any] = {}
    with suppress(CorruptMetadataError, UnsupportedVersionError):
        members = read_metadata(folder).members
    header = header_of(folder)
    if header is None or not header.is_sealed:
        header = archive.last_sealed(folder)
    return opens(DataKey(data_key, conversation), members, header)
