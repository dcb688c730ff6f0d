"""How does a conversation's key file change? A shred destroys the key; a rotation wraps many keys again. No record is
touched.

A shred replaces key.json as a whole, atomically: temporary file, sync, **rename**, sync the folder. A crash's leftover
under a temporary name is removed before the call returns: it may hold the key. Shared writers load the conversation
again afterwards, because their validator is gone from the lock file.

A rotation needs two syncs for a whole batch; one by one, each conversation would need two:

1. each folder is opened, its key file read, and its data key wrapped again: nothing is locked yet, for a provider may
   take its time;
2. each is locked, and its new key file written under a temporary name, if the key file is still the one that was read;
3. one sync of the file system: all the new files are on disk (``_os/filesystem.py`` says where that can be relied upon);
4. each new file is renamed to ``key.json``;
5. one sync of the file system: the names are on disk. Only now are the locks released and the result returned.

On other file systems a batch is one conversation, and its file and its folder are synced instead.

Invariants, which the tests name:

K1  At every moment, and after any crash, each key file is whole: wrapped with the earlier key or with the new one.
K2  A key that is reported as wrapped with the new key is so on disk. That includes files that an earlier rotation
    renamed: it may have been killed before its last sync.
K3  Only a process that holds the writer's lock changes a key file, so a rotation never restores a shredded key.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from transcript_store._conversation import archive
from transcript_store._conversation.deleting import locked
from transcript_store._conversation.layout import header_of, read_metadata, require_conversation
from transcript_store._conversation.metadata import opens
from transcript_store._json.times import format_time
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import NotOursError, refusals, unsynced
from transcript_store._os.names import ARCHIVE, KEY, LOCK, QUARANTINE, TRANSCRIPT, archive_name, is_id, is_temporary
from transcript_store._sealing.data_key import DataKey
from transcript_store._sealing.keys import (
    Keyring,
    WrappedKey,
    conversation_in_key_file,
    encode_key_file,
    encode_shredded,
    read_key_file_of,
)
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

_NOT_WHOLE = (ConversationNotFoundError, CorruptMetadataError, CorruptTranscriptError, UnsupportedVersionError)
"""The files that identify a folder whose transcript or metadata.json is missing or damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shredding:
    """The result of :meth:`ConversationLibrary.shred`, and the files that it could not reach."""

    id: str
    shredded_at: str
    still_readable: tuple[str, ...]
    """Files of the conversation that are not sealed, so everybody who has them can read them: plaintext generations
    that were kept, and files in quarantine/. Delete them, or the conversation.
    """


def id_in_folder(folder: Folder) -> str:
    """The id of the conversation in a folder with another name: from the transcript, metadata.json or key.json."""
    if (header := header_of(folder)) is not None:
        return header.conversation
    try:
        return str(read_metadata(folder).members["id"])
    except (CorruptMetadataError, UnsupportedVersionError):
        if (of := conversation_in_key_file(folder)) is not None and is_id(of):
            return of
        require_conversation(folder)  # if this is not a conversation, its error says why
        raise


def shred(folder: Folder, id: str) -> Shredding:
    """Destroy the data key of the conversation in a folder; on return it is destroyed, also after a power loss.

    After a crash, call it again to continue. The transcript and metadata.json may be missing or damaged, if the key
    file is that of ``id``.
    """
    path = folder.path_of(KEY)
    try:
        require_conversation(folder)
    except _NOT_WHOLE:
        # A shred must work on a damaged conversation too: the key file alone proves whose key it is.
        if conversation_in_key_file(folder) != id:
            raise
    if folder.status(KEY) is None and not is_sealed(folder, TRANSCRIPT):
        reason = "it was never sealed, so there is no key to destroy"
        raise NotSealedError(path=folder.path, reason=reason, hint=None)
    with refusals(path, "destroy the key", "It is in place, or destroyed"), locked(folder):
        at = format_time(folder.files.now_us())
        try:
            read_key_file_of(folder, id)
        except ConversationShreddedError as error:
            # A repeated shred keeps the time of the first one, and syncs again what a crash may have undone.
            at = error.shredded_at
        except (CorruptKeyFileError, UnsupportedVersionError):
            # A damaged file is destroyed too.
            pass  # any file there may hold the key
        for name in folder.names():
            if is_temporary(name):
                folder.files.unlink(
                    folder.handle, name
                )  # leftovers of an interrupted rotation; synced with what follows
        # Replaced, not removed: a missing key file could come back from an unsynced directory, and could not be
        # distinguished from damage.
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
    """True if a file starts like a sealed generation. A fragment of one does not, and counts as plaintext."""
    header = header_of(folder, name)
    return header is not None and header.is_sealed


def opens_folder(folder: Folder, conversation: str, data_key: bytes) -> bool | None:
    """True if a data key unseals the metadata in a folder, or made the check of its newest sealed generation; None if
    unknown.
    """
    members: dict[str, Any] = {}
    with suppress(CorruptMetadataError, UnsupportedVersionError):
        members = read_metadata(folder).members
    header = header_of(folder)
    if header is None or not header.is_sealed:
        # Without a sealed live generation, the newest sealed one in the archive proves the key as well.
        header = archive.last_sealed(folder)
    return opens(DataKey(data_key, conversation), members, header)


MOST_TOGETHER = 200
"""The size of a batch: two files are open for each, and a process may usually open a thousand. If it may not, batches
get smaller.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """The result of :meth:`ConversationLibrary.rotate_key`. Each member names folders of the library."""

    rotated: tuple[str, ...]
    """Their data key was wrapped with a retired key, and is now wrapped with the current key."""
    already_current: tuple[str, ...]
    """Their data key was already wrapped with the current key."""
    skipped: tuple[tuple[str, str], ...]
    """What was skipped, each with a reason: it has a writer, is not sealed, is not a conversation, is not accessible to
    this user, or is wrapped with a key that was not given. For a sealed conversation, keep its earlier key and call
    again.
    """


def required(keys: Keyring | None) -> Keyring:
    """The keys of a library that is to be rotated; raises ``ValueError`` if it has none."""
    if keys is None:
        raise ValueError("rotate_key() needs the new key: open the library with encryption_key, and retired_keys")
    return keys


def several(names: Iterable[str] | None) -> list[str] | None:
    """Each of these once; raises ``TypeError`` for a single text, which would be split into letters."""
    if isinstance(names, str):
        raise TypeError(f"names must be a list; for one name write [{names!r}]")
    return None if names is None else [*dict.fromkeys(names)]


NOT_SEALED = "it is not sealed"
IS_NOT_THERE = "there is no such conversation in the library"
KEY_IS_GONE = "it is sealed, and key.json, without which it cannot be read, is missing: restore that file from a backup"
NOT_AS_WRITTEN = "the disk does not return its new key file as it was written; the earlier one is in place"

_LEFT_ALONE = (
    *_NOT_WHOLE,
    NotOursError,
    ConversationLockedError,
    ConversationShreddedError,
    CorruptKeyFileError,
    NotSealedError,
    WrongKeyError,
)
"""Why a rotation skips a folder and continues with the next."""


@dataclass(slots=True)
class _One:
    """A conversation of a batch: its folder, held open, and the old and new contents of its key file."""

    name: str
    folder: Folder
    found: WrappedKey
    new: bytes
    """Empty if it is already wrapped with the current key."""
    temporary: str = ""


class Rotator:
    """One rotation of a library, whose folder is held open; ``result`` grows with each batch."""

    def __init__(self, library: Folder, keys: Keyring, *, by_any_name: bool = False) -> None:
        self._library, self._keys = library, keys
        self._by_any_name = by_any_name
        """True if folders whose name is not an id are included."""
        self._together = library.files.can_sync_all(library.handle)
        self._files = unsynced(library.files) if self._together else library.files
        self._device = library.files.handle_status(library.handle).st_dev
        self._rotated: list[str] = []
        self._already: list[str] = []
        self._left_alone: list[tuple[str, str]] = []

    def rotate(self, names: Sequence[str]) -> Rotation:
        """Wrap the data keys of these folders again, as far as possible; raises for what concerns more than one of them."""
        # The others are being created or deleted; a caller who names one means it.
        waiting = [name for name in names if self._by_any_name or not name.startswith(".")]
        most = MOST_TOGETHER if self._together else 1
        while waiting:
            batch, noted = waiting[:most], len(self._left_alone)
            try:
                with ExitStack() as held:
                    self._rotate(batch, held)
            except OSError as error:
                # Each conversation of a batch has two open files; with a low limit of the process the batch shrinks
                # instead of failing.
                if most == 1 or not _is_too_many(error):
                    raise
                most = max(1, most // 4)  # nothing of this batch was changed
                del self._left_alone[noted:]
                continue
            waiting = waiting[most:]
        left = tuple(sorted(self._left_alone))
        return Rotation(rotated=tuple(self._rotated), already_current=tuple(self._already), skipped=left)

    def _rotate(self, names: list[str], held: ExitStack) -> None:
        """Rotate one batch. If one folder fails, those before it are still rotated: otherwise they never would be if it
        always fails.
        """
        found: list[_One] = []
        written: list[_One] = []
        failures: list[Exception] = []
        try:
            for name in names:
                with self._passing_by(name):
                    found.append(self._rewrapped(name, held))
        except Exception as error:
            failures.append(error)
        try:
            self._write(found, held, written)
        except Exception as error:
            failures.append(error)
        # With too many open files the whole batch is tried again in smaller parts, so nothing of it is committed now.
        if not (len(names) > 1 and any(map(_is_too_many, failures))):
            self._commit(written)
        if failures:
            raise failures[0]

    @contextmanager
    def _passing_by(self, name: str) -> Iterator[None]:
        """Note why a folder is skipped, and continue; do not report one that was deleted just now, unless the caller
        named it.
        """
        try:
            yield
        except FileNotFoundError:
            if self._by_any_name:
                self._left_alone.append((name, IS_NOT_THERE))
        except _LEFT_ALONE as error:
            self._left_alone.append((name, getattr(error, "reason", None) or str(error)))
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM):
                raise
            self._left_alone.append((name, f"this user may not access it: {error.strerror}"))

    def _rewrapped(self, name: str, held: ExitStack) -> _One:
        """Step 1 for one of them."""
        if not is_id(name) and not self._by_any_name:
            raise NotSealedError(path=name, reason="its name is not the id of a conversation", hint=None)
        folder = held.enter_context(self._library.subfolder(name))
        # A folder may be a mount point. Then the sync of the library does not reach it, and it keeps syncs of its own.
        if folder.files.handle_status(folder.handle).st_dev == self._device:
            folder.files = self._files  # one sync of the library's file system covers it
        found = _key_of(folder, name)
        path = folder.path_of(KEY)
        if self._keys.is_current(found.key_id, path):
            return _One(name, folder, found, b"")
        data_key = self._keys.unwrap_to_seal(
            found.key_id, found.wrapped, path, partial(opens_folder, folder, found.conversation)
        )
        return _One(
            name, folder, found, encode_key_file(WrappedKey(found.conversation, *self._keys.wrap(data_key, path)))
        )

    def _write(self, batch: list[_One], held: ExitStack, written: list[_One]) -> None:
        """Step 2; ``written`` are those to commit: their new key file is written, or they need none."""
        self._settle_names(batch)
        for one in batch:
            name = one.name
            with self._passing_by(name):
                if one.new:
                    held.enter_context(locked(one.folder, is_settled=True))
                    # Checked again under the lock: wrapping took time, and a shred or another rotation may have come
                    # in between.
                    if _key_of(one.folder, name) != one.found:
                        raise ConversationLockedError(path=one.folder.path, reason="its key was changed just now")
                    with refusals(one.folder.path_of(KEY), "wrap the key again", "The earlier one is in place"):
                        one.folder.sweep()
                        one.temporary, handle = one.folder.write_temporary([one.new])
                        held.callback(self._discard, one)
                        one.folder.files.close(handle)
                        with one.folder.reading(one.temporary) as source:
                            # Read back before the rename: a key file that the disk garbled would make the
                            # conversation unreadable for good.
                            if bytes(source.read(0, source.size)) != one.new:
                                raise CorruptKeyFileError(path=one.folder.path, kind="damaged", reason=NOT_AS_WRITTEN)
                written.append(one)

    @staticmethod
    def _discard(one: _One) -> None:
        if one.temporary:
            one.folder.discard(one.temporary)

    def _settle_names(self, batch: list[_One]) -> None:
        """One sync of the library, which does what ``sync_name`` does for each: their folders are open, so these names
        are on disk.
        """
        if any(one.new and one.folder.status(LOCK) is None for one in batch):
            with refusals(self._library.path, "wrap keys again", "The earlier ones are in place"):
                self._library.sync_to_copy()

    def _commit(self, batch: list[_One]) -> None:
        """Steps 3 to 5; on return the batch is on disk."""
        if not batch:
            return
        with refusals(
            self._library.path, "wrap keys again", "Each is wrapped with the earlier key or with the new one"
        ):
            if self._together and any(one.new for one in batch):
                self._library.sync_all()
            for one in batch:
                if one.new:
                    # Only now, with all new files on disk: a power cut leaves each conversation with one complete key
                    # file, old or new.
                    one.folder.files.rename(one.folder.handle, one.temporary, KEY)
                    one.temporary = ""
            for one in batch:
                one.folder.sync()
            if self._together:
                self._library.sync_all()
        for one in batch:
            (self._rotated if one.new else self._already).append(one.name)


def _is_too_many(error: Exception) -> bool:
    """True if more files would be open than the process may have."""
    return getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE)


def _key_of(folder: Folder, name: str) -> WrappedKey:
    if folder.status(KEY) is None:
        require_conversation(folder)
        if is_sealed(folder, TRANSCRIPT):
            raise CorruptKeyFileError(path=folder.path_of(KEY), kind="missing", reason=KEY_IS_GONE)
        raise NotSealedError(path=folder.path, reason=NOT_SEALED, hint=None)
    return read_key_file_of(folder, name if is_id(name) else id_in_folder(folder))
