"""The files of a store of snapshots: opened, checked, sealed and replaced.

``file_store`` says what stands where. Here a file is one value, and damage is an error of ours that names the file. Errors of
the operating system pass through, for the caller to translate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice

from transcript_store._os.directory import Folder
from transcript_store._os.names import MEDIA, SEALING
from transcript_store._os.refusals import NotOursError
from transcript_store._snapshots import media as _media
from transcript_store._snapshots.encryption import BEGINNING_BYTES, NONCE_BYTES, Key, Keys, NotOpenedError
from transcript_store._snapshots.snapshot import Snapshot, damaged, read, validate_snapshot_id, with_messages
from transcript_store._snapshots.summary import SnapshotSummary, read_summary
from transcript_store.errors import CorruptSnapshotError, DecryptionError, InvalidSnapshotIdError
from transcript_store.ways_out import WayOut

MAX_FILE_BYTES = 2**30
"""What a snapshot may take, with its media in place: so a file of any size cannot fill the memory of whoever loads it."""

SAMPLE = 8
"""How many snapshots are looked at to see whether a store is sealed, and whether a key opens it."""

_SUFFIX = ".json"

Failure = CorruptSnapshotError | DecryptionError


def file_name(id: str) -> str:
    """The name of a snapshot's file. Raises ``InvalidSnapshotIdError`` unless this is an id."""
    validate_snapshot_id(id)
    name = f"{id}{_SUFFIX}"
    # No id passes that could do this. It is checked again because a mistake there would open any file of the machine.
    if "/" in name or "\0" in name or name.startswith("."):
        raise InvalidSnapshotIdError(reason="a snapshot's id must not lead out of its store", id=id[:32])
    return name


class SnapshotFiles:
    """The directory of a store, open; use ``with``. ``keys`` gives the store's keys, which a rotation changes at any time."""

    def __init__(self, folder: Folder, keys: Callable[[], Keys], logger: logging.Logger) -> None:
        self.folder = folder
        self._keys = keys
        self._files = folder.files
        self._logger = logger
        self._media_folder: Folder | None = None

    def __enter__(self) -> SnapshotFiles:
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            if self._media_folder is not None:
                self._media_folder.__exit__(*raised)
        finally:
            self.folder.__exit__(*raised)

    # ---- what is there -------------------------------------------------------------------------------------------

    def ids(self) -> Iterator[str]:
        """The ids of the snapshots, from the names of their files."""
        for name in self.folder.names():
            if name.endswith(_SUFFIX):
                found = name.removesuffix(_SUFFIX)
                try:
                    validate_snapshot_id(found)
                except InvalidSnapshotIdError as error:
                    self.skipped(error.id, error)
                else:
                    yield found

    def media(self) -> Folder | None:
        """The directory of media; None if there is none. Raises ``CorruptSnapshotError`` if it is not a directory."""
        if self._media_folder is None and self.folder.status(MEDIA) is not None:
            try:
                self._media_folder = self.folder.subfolder(MEDIA)
            except NotOursError as error:
                path = self.folder.path_of(MEDIA)
                raise CorruptSnapshotError(path=path, kind="foreign", reason=error.reason) from None
        return self._media_folder

    def media_names(self) -> list[str]:
        """The names of all media, also of those that no snapshot refers to."""
        folder = self.media()
        return [] if folder is None else [name for name in folder.names() if _media.is_hash(name)]

    def skipped(self, name: str, error: Exception) -> None:
        """Log at DEBUG what a listing leaves out: of the error only its class, because its text may hold contents."""
        self._logger.debug("%s: skipped %r: %s", self.folder.path, name, type(error).__name__)

    # ---- read ----------------------------------------------------------------------------------------------------

    def load(self, id: str) -> Snapshot:
        """A snapshot with its media in place. Raises ``FileNotFoundError``, and an error of ours for damage."""
        snapshot = self._without_media(id)
        texts: dict[str, bytes] = {}
        size = 0

        def get(name: str) -> bytes:
            nonlocal size
            if name not in texts:
                texts[name] = self.media_text(name)
            size += len(texts[name])
            if size > MAX_FILE_BYTES:
                reason = "with its media it is larger than a snapshot can be"
                raise CorruptSnapshotError(path=self._path(id), kind="too-large", reason=reason)
            return texts[name]

        try:
            with damaged(self._path(id)):
                messages = _media.move_in(snapshot.messages_json, get)
        except CorruptSnapshotError as error:
            if error.kind == "missing" and self._without_media(id) != snapshot:
                return self.load(id)  # it was replaced, and its media collected, while it was read
            raise
        return with_messages(snapshot, messages) if texts else snapshot

    def summarize(self, id: str) -> SnapshotSummary:
        """What a listing shows of a snapshot. Raises what :meth:`load` raises; no media is looked at."""
        data, size = self._open(self.folder, file_name(id))
        return read_summary(data, path=self._path(id), id=id, size_bytes=size)

    def references(self, id: str) -> set[str]:
        """The names of the media that a snapshot refers to. Raises what :meth:`summarize` raises."""
        with damaged(self._path(id)):
            return _media.references(self._without_media(id).messages_json)

    def media_text(self, name: str) -> bytes:
        """The text of media, whose hash is its name. Raises ``CorruptSnapshotError`` and ``DecryptionError``."""
        try:
            if (folder := self.media()) is None:
                raise FileNotFoundError
            text, _ = self._open(folder, name)
        except FileNotFoundError:
            reason = "a snapshot refers to this media, and it is not there"
            path = self.folder.path_of(f"{MEDIA}/{name}")
            raise CorruptSnapshotError(path=path, kind="missing", reason=reason) from None
        if _media.hash_of(text) != name:
            reason = "its content does not have the hash that is its name: it was changed, or put there by somebody"
            raise CorruptSnapshotError(path=folder.path_of(name), kind="wrong-media", reason=reason)
        return text

    def _without_media(self, id: str) -> Snapshot:
        data, _ = self._open(self.folder, file_name(id))
        return read(data, path=self._path(id), id=id)

    def _path(self, id: str) -> str:
        return self.folder.path_of(file_name(id))

    def _raw(self, folder: Folder, name: str, at_most_bytes: int | None = None) -> bytes:
        """The bytes of a file, or its first ones."""
        path = folder.path_of(name)
        try:
            with folder.reading(name) as source:
                size = source.size
                if size > MAX_FILE_BYTES:
                    reason = f"it has {size:,} bytes, more than a snapshot can have ({MAX_FILE_BYTES:,})"
                    raise CorruptSnapshotError(path=path, kind="too-large", reason=reason)
                return bytes(source.read(0, size if at_most_bytes is None else min(size, at_most_bytes)))
        except NotOursError as error:
            raise CorruptSnapshotError(path=path, kind="foreign", reason=error.reason) from None

    def _is_of_others(self, folder: Folder, name: str) -> bool:
        """Whether a file is there, and sealed with a key that we do not have."""
        keys = self._keys()
        try:
            return keys.is_of_others(self._raw(folder, name, None if keys.can_seal else BEGINNING_BYTES))
        except (FileNotFoundError, CorruptSnapshotError):
            return False

    def _open(self, folder: Folder, name: str) -> tuple[bytes, int]:
        """What a file holds, opened with our keys, and the size of the file."""
        while True:
            keys = self._keys()
            raw = self._raw(folder, name)
            try:
                return keys.open(raw), len(raw)
            except NotOpenedError as error:
                if keys is self._keys():  # otherwise a thread began a rotation meanwhile: these keys may open it
                    raise DecryptionError(
                        path=folder.path_of(name), reason=error.reason, way_out=error.way_out
                    ) from None

    # ---- write, with the lock held -------------------------------------------------------------------------------

    def refuse_to_save_in_the_clear(self) -> None:
        """Raise ``DecryptionError`` if the store is sealed: if ``sealing`` is there, or one of the first snapshots is sealed.

        A file that cannot be read does not count.
        """
        for name in (SEALING, *map(file_name, islice(self.ids(), SAMPLE))):
            with suppress(OSError):
                if self._is_of_others(self.folder, name):
                    reason = "it is sealed, and there is no key (is a variable not set?), so this would save in the clear beside it"
                    path, way_out = self.folder.path_of(name), WayOut.GIVE_THE_KEY_OR_SAVE_ELSEWHERE
                    raise DecryptionError(path=path, reason=reason, way_out=way_out)

    def refuse_to_replace(self, name: str, media: Iterable[str]) -> None:
        """Raise ``DecryptionError`` if this snapshot, or one of these media, is there and sealed with a key that we do not have.

        Other snapshots may refer to the media. What is there and not sealed may be replaced.
        """
        does_not_open = f"does not open {'with these keys' if self._keys().can_seal else 'without a key'}"
        if self._is_of_others(self.folder, name):
            reason = f"a snapshot with this id is there, and {does_not_open}"
            path = self.folder.path_of(name)
            raise DecryptionError(path=path, reason=reason, way_out=WayOut.GIVE_THE_KEY_OR_DELETE)
        if not media or (folder := self.media()) is None:
            return
        for media_name in media:
            if self._is_of_others(folder, media_name):
                reason = f"media that this snapshot has in common with others is there, and {does_not_open}"
                path = folder.path_of(media_name)
                raise DecryptionError(path=path, reason=reason, way_out=WayOut.GIVE_THE_KEY_OR_SAVE_ELSEWHERE)

    def save(self, name: str, data: bytes, media: dict[str, bytes]) -> None:
        """Store media, then the snapshot that refers to it; on return all of it survives a power loss."""
        if media:
            folder = self.media()
            if folder is None:
                folder = self._media_folder = self.folder.subfolder(MEDIA, create=True)
            else:
                self.folder.sync()  # the process that made it may have died before it synced
            for media_name, text in media.items():
                self._keep_media(folder, media_name, text)
            folder.sync()
        self._put(self.folder, name, data)

    def _keep_media(self, folder: Folder, name: str, text: bytes) -> None:
        """Store media, unless it is there already and sealed with the current key: then make sure that it stays.

        It may be in the system's cache alone: go-tool-base does not sync, and a sync that failed is reported only once. So it
        is synced first and then read from the disk.
        """
        try:
            with suppress(NotOursError), folder.reading(name) as source:
                folder.sync(source.handle)
                self._files.drop_cache(source.handle)
            there = self._keys().open_current(self._raw(folder, name))
        except (FileNotFoundError, CorruptSnapshotError):
            there = None
        if there != text:
            self._put(folder, name, text)

    def _put(self, folder: Folder, name: str, plain: bytes) -> None:
        folder.replace_file(name, [self._keys().seal(self._files.random_bytes(NONCE_BYTES), plain)])

    def delete(self, name: str) -> None:
        """Remove a snapshot, durably. Raises ``FileNotFoundError``."""
        self._files.unlink(self.folder.handle, name)
        self.folder.sync()

    def collect(self, in_use: set[str], written_before_us: int) -> list[str]:
        """Remove media that is not in use and was written before this time; returns the names."""
        removed: list[str] = []
        if (folder := self.media()) is None:
            return removed
        for name in self.media_names():
            status = folder.status(name)
            if name not in in_use and status is not None and status.st_mtime_ns // 1000 <= written_before_us:
                self._files.unlink(folder.handle, name)
                removed.append(name)
        return removed

    def note_sealing(self, key: Key) -> None:
        """Note that a plain store is being sealed, in a file that is sealed itself: nobody without the key can write it."""
        self.folder.replace_file(SEALING, [key.seal(self._files.random_bytes(NONCE_BYTES), SEALING.encode())])

    def is_being_sealed_with(self, key: Key) -> bool:
        """Whether a plain store was being sealed with this key. Then a file that is not sealed yet is accepted."""
        try:
            return (
                key.open(self._raw(self.folder, SEALING)) == SEALING.encode()
            )  # not any sealed file that was copied there
        except (FileNotFoundError, CorruptSnapshotError):
            return False

    def reseal(self) -> tuple[int, list[Failure]]:
        """Seal everything with the current key; returns how many files are sealed with it, and the errors of the others."""
        sealed = 0
        failures: list[Failure] = []
        try:
            if (media := self.media()) is not None:
                sealed += sum(self._reseal(media, name, failures) for name in self.media_names())
        except CorruptSnapshotError as error:
            failures.append(error)
        sealed += sum(self._reseal(self.folder, file_name(one), failures) for one in self.ids())
        if not failures:
            self.folder.discard(SEALING)
        return sealed, failures

    def _reseal(self, folder: Folder, name: str, failures: list[Failure]) -> bool:
        """Seal a file with the current key, unless it is; returns whether it is now."""
        try:
            if self._keys().open_current(self._raw(folder, name)) is None:
                self._put(folder, name, self._open(folder, name)[0])
            return True
        except FileNotFoundError:
            return False  # it was deleted: go-tool-base takes no lock
        except (CorruptSnapshotError, DecryptionError) as error:
            failures.append(error)
            return False

    def sweep(self) -> None:
        """Remove temporary files that killed processes left."""
        self.folder.sweep()
        with suppress(CorruptSnapshotError):
            if (media := self.media()) is not None:
                media.sweep()
