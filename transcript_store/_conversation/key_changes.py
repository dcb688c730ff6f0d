"""What happens to the key file of a conversation: it is wrapped anew, or destroyed. No record is touched, and none is read.

Both hold the writer's lock, so that neither puts back what the other took away. Whoever takes turns at the conversation loads it anew
afterwards, because its statement is gone from the lock file.

Order of writes: key.json is replaced as a whole, atomically: temporary file, sync, **rename**, sync the folder. After a crash the old
one is there or the new one. What a crash left under a temporary name is removed before the call returns: it may hold the key.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from transcript_store._conversation import archive
from transcript_store._conversation.layout import require_conversation, settle_name
from transcript_store._json.times import format_time
from transcript_store._log.header import NotAHeader, read_header
from transcript_store._log.scan import first_line
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.lock import Lock
from transcript_store._os.names import ARCHIVE, KEY, LOCK, QUARANTINE, TRANSCRIPT, archive_name, is_id, is_temporary
from transcript_store._os.refusals import NotOursError, refusals
from transcript_store._sealing.key_file import WrappedKey, encode_key_file, encode_shredded, read_key_file_of
from transcript_store._sealing.providers import Keyring
from transcript_store.errors import (
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationShreddedError,
    CorruptKeyFileError,
    CorruptMetadataError,
    CorruptTranscriptError,
    NotSealedError,
    UnsupportedVersionError,
    WrongKeyError,
)

_LEFT_ALONE = (
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationShreddedError,
    CorruptKeyFileError,
    CorruptMetadataError,
    CorruptTranscriptError,
    NotSealedError,
    UnsupportedVersionError,
    WrongKeyError,
)
"""Why a rotation passes a folder by, and goes on with the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """What :meth:`ConversationLibrary.rotate_key` did. Each member names folders of the library."""

    rotated: tuple[str, ...]
    """Their data key was wrapped with an earlier key, and is wrapped with the key of today now."""
    already: tuple[str, ...]
    """Their data key was wrapped with the key of today already."""
    left_alone: tuple[tuple[str, str], ...]
    """What was passed by, each with the reason in words: it is open to write, not sealed, not a conversation, or wrapped with a key
    that was not given. Where it is a sealed conversation, keep its earlier key and call again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shredding:
    """What :meth:`ConversationLibrary.shred` did, and what it could not reach."""

    id: str
    shredded_at: str
    still_readable: tuple[str, ...]
    """Files of the conversation that are not sealed, so that everybody who has them can read them: plain generations that were kept,
    and what stands in quarantine/. Delete them, or the conversation."""


def rotate(files: FileSystem, library: str, keys: Keyring) -> Rotation:
    """Wrap the data key of every sealed conversation in a library with the key of today, each by itself."""
    rotated: list[str] = []
    already: list[str] = []
    left_alone: list[tuple[str, str]] = []
    try:
        parent = Folder.open(files, library)
    except FileNotFoundError:
        return Rotation(rotated=(), already=(), left_alone=())
    with parent:
        for name in parent.names():
            if name.startswith("."):
                continue  # what is being made or deleted, and what a killed process left of that
            if not is_id(name):
                left_alone.append((name, "its name is not the id of a conversation"))
                continue
            try:
                with parent.subfolder(name) as folder:
                    (rotated if _rewrap(folder, name, keys) else already).append(name)
            except FileNotFoundError:
                pass  # deleted just now
            except (NotOursError, *_LEFT_ALONE) as error:
                left_alone.append((name, getattr(error, "reason", None) or str(error)))
    return Rotation(rotated=tuple(rotated), already=tuple(already), left_alone=tuple(left_alone))


def _rewrap(folder: Folder, name: str, keys: Keyring) -> bool:
    """Wrap the data key of the conversation in a folder with the key of today; False if it is already.

    Raises what says why it is left alone.
    """
    wrapped = _key_of(folder, name)
    path = folder.path_of(KEY)
    if wrapped.key_id == keys.current_id(path):
        return False
    with refusals(path, "wrap the key anew", "The earlier one is in place"), _locked(folder):
        wrapped = _key_of(folder, name)  # as it is now that nobody else may change it
        data_key = keys.unwrap(wrapped.key_id, wrapped.wrapped, path)
        new = WrappedKey(wrapped.conversation, *keys.wrap(data_key, path))
        folder.sweep()
        folder.replace_file(KEY, [encode_key_file(new)])
    return True


def shred(folder: Folder, id: str) -> Shredding:
    """Destroy the data key of the conversation in a folder; on return it is destroyed, also after a power loss.

    Called again after a crash it goes on.
    """
    path = folder.path_of(KEY)
    require_conversation(folder)
    if folder.status(KEY) is None and not _is_sealed(folder, TRANSCRIPT):
        reason = "it was never sealed, so that there is no key to destroy"
        raise NotSealedError(path=folder.path, reason=reason, way_out=None)
    with refusals(path, "destroy the key", "It is in place, or destroyed"), _locked(folder):
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
        return Shredding(id=id, shredded_at=at, still_readable=tuple(_plain_files(folder)))


def _plain_files(folder: Folder) -> list[str]:
    found = [] if _is_sealed(folder, TRANSCRIPT) else [folder.path_of(TRANSCRIPT)]
    found += [f"{folder.path_of(ARCHIVE)}/{archive_name(number)}" for number in archive.plain_numbers(folder)]
    if folder.status(QUARANTINE) is not None:
        with folder.subfolder(QUARANTINE) as quarantine:
            found += [
                quarantine.path_of(name)
                for name in quarantine.names()
                if not name.endswith(".json") and not _is_sealed(quarantine, name)
            ]
    return found


def _is_sealed(folder: Folder, name: str) -> bool:
    """Whether a file begins like a sealed generation. A piece of one does not, and counts as plain: nobody can tell."""
    try:
        with folder.reading(name) as source:
            found = read_header(first_line(source.read, source.size))
    except (FileNotFoundError, NotOursError):
        return False
    return not isinstance(found, NotAHeader) and found[0].is_sealed


def _key_of(folder: Folder, name: str) -> WrappedKey:
    if folder.status(KEY) is None:
        require_conversation(folder)
        raise NotSealedError(path=folder.path, reason="it is not sealed", way_out=None)
    return read_key_file_of(folder, name)


@contextmanager
def _locked(folder: Folder) -> Iterator[None]:
    """Hold the writer's lock of a folder; raises an error of ours if that cannot be had."""
    settle_name(folder)
    lock = Lock(folder)
    with lock.released_at_the_end():
        try:
            is_taken = lock.take(0)
        except NotOursError as error:
            reason = f"{LOCK}: {error.reason}"
            raise CorruptTranscriptError(path=folder.path, kind="foreign", reason=reason) from None
        if not is_taken or not folder.is_at_its_path():
            raise ConversationNotFoundError(path=folder.path, reason="it was moved away just now")
        yield
