"""How are snapshots stored in a directory, sealed or plaintext?

::

    <store>/                      0700; files 0600
      <snapshot id>.json          the JSON form of a snapshot, or that sealed; replaced whole
      media/<SHA-256>             a long base64 string out of its messages, under the hash of its text
      sealing                     only while a plaintext store is being sealed
      lock                        held during a write

Order of writes: media first, each by a temporary file, a sync and a rename; then a sync of their directory; then the
snapshot in the same way. So a snapshot never lacks its media. Readers take no lock.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from transcript_store._os import filesystem
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem, NotOursError, refusals
from transcript_store._os.lock import Lock
from transcript_store._os.names import MEDIA, SEALING
from transcript_store._snapshots import media as _media
from transcript_store._snapshots.store import KeptSnapshots
from transcript_store._snapshots.stored import (
    BEGINNING_BYTES,
    NONCE_BYTES,
    Key,
    PlainSample,
    StoredFiles,
    StoreKeys,
    media_file,
    require_size,
)
from transcript_store.errors import CorruptSnapshotError
from transcript_store.hints import Hint

# ---- files ----
# The files of a snapshot store in a directory: how they are read, and replaced so that they survive a power loss. The
# head of this module lists them; ``stored`` decides. Errors of the operating system pass through, for the caller to
# translate.


class SnapshotFiles(StoredFiles):
    """The directory of a store, open; use ``with``."""

    def __init__(
        self, folder: Folder, keys: Callable[[], StoreKeys], witness: PlainSample, logger: logging.Logger
    ) -> None:
        super().__init__(keys, witness, logger)
        self.folder = folder
        self._files = folder.files
        self._media_folder: Folder | None = None

    def __enter__(self) -> SnapshotFiles:
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            if self._media_folder is not None:
                self._media_folder.__exit__(*raised)
        finally:
            self.folder.__exit__(*raised)

    # ---- read -------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        return self.folder.path

    def path_of(self, name: str) -> str:
        return self.folder.path_of(name)

    def names(self) -> list[str]:
        return self.folder.names()

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

    def _raw(self, name: str, at_most_bytes: int | None = None) -> bytes:
        path = self.path_of(name)
        folder, name = self._place_of(name)
        try:
            with folder.reading(name) as source:
                size = source.size
                require_size(path, size)
                return bytes(source.read(0, size if at_most_bytes is None else min(size, at_most_bytes)))
        except NotOursError as error:
            raise CorruptSnapshotError(path=path, kind="foreign", reason=error.reason) from None

    def _place_of(self, name: str) -> tuple[Folder, str]:
        """The folder of a file, and its name there. Raises ``FileNotFoundError`` if there is no folder of media."""
        of_media, _, own = name.rpartition("/")
        if not of_media:
            return self.folder, name
        if (folder := self.media()) is None:
            raise FileNotFoundError
        return folder, own

    # ---- write, with the lock held -------------------------------------------------------------------------------

    def refuse_to_save(self, name: str, media: Iterable[str]) -> None:
        """Raise ``DecryptionError`` if this snapshot, or one of these media, exists and is sealed with a key that we do
        not have.

        Other snapshots may refer to the media. Plaintext files may be replaced. Without a key the whole store is
        checked.
        """
        # Before anything is written: a forgotten key must not put plaintext beside sealed snapshots.
        self.refuse_to_save_in_the_clear()
        for each in (name, *map(media_file, media)):
            if self._is_of_others(each):
                raise self.not_ours(each)

    def _is_of_others(self, name: str) -> bool:
        """True if a file exists and is sealed with a key that we do not have."""
        keys = self.keys()
        try:
            return keys.is_of_others(self._raw(name, None if keys.can_seal else BEGINNING_BYTES))
        except (FileNotFoundError, CorruptSnapshotError):
            return False

    def save(self, name: str, data: bytes, media: dict[str, bytes]) -> None:
        if media:
            folder = self.media()
            if folder is None:
                folder = self._media_folder = self.folder.subfolder(MEDIA, create=True)
            else:
                self.folder.sync()  # the process that created it may have died before it synced
            for media_name, text in media.items():
                self._keep_media(folder, media_name, text)
            folder.sync()
        # Last, after the media are synced: a snapshot never refers to media that a power loss can take.
        self._put(self.folder, name, data)

    def _keep_media(self, folder: Folder, name: str, text: bytes) -> None:
        """Store media, unless it exists already and is sealed with the current key: then make sure that it is durable.

        It may be in the page cache alone: go-tool-base does not sync, and a sync that failed is reported only once. So
        it is synced first and then read from the disk.
        """
        try:
            with suppress(NotOursError), folder.reading(name) as source:
                folder.sync(source.handle)
                self._files.drop_cache(source.handle)
            there = self.keys().open_current(self._raw(media_file(name)))
        except (FileNotFoundError, CorruptSnapshotError):
            there = None
        if there != text:
            self._put(folder, name, text)

    def _put(self, folder: Folder, name: str, plain: bytes) -> None:
        folder.replace_file(name, [self.keys().seal(self._files.random_bytes(NONCE_BYTES), plain)])

    def _seal_again(self, name: str) -> None:
        if self.keys().open_current(self._raw(name)) is not None:
            return
        plain, _ = self.opened(name)
        self._put(*self._place_of(name), plain)

    def delete(self, name: str) -> None:
        self._files.unlink(self.folder.handle, name)
        self.folder.sync()

    def collect(self, in_use: Callable[[], set[str] | None], older_than_seconds: float) -> list[str]:
        removed: list[str] = []
        if (used := in_use()) is None:
            return removed
        self.sweep()
        written_before_us = self._files.now_us() - int(older_than_seconds * 1_000_000)
        if (folder := self.media()) is None:
            return removed
        for name in self.media_names():
            status = folder.status(name)
            # Young media may belong to a save in another process that has not written its snapshot yet.
            if name not in used and status is not None and status.st_mtime_ns // 1000 <= written_before_us:
                self._files.unlink(folder.handle, name)
                removed.append(name)
        return removed

    def note_sealing(self, key: Key) -> None:
        is_first = self.folder.status(SEALING) is None
        try:
            self.folder.replace_file(SEALING, [key.seal(self._files.random_bytes(NONCE_BYTES), SEALING.encode())])
        except OSError:
            if is_first:  # nothing is sealed yet, and a process without the key may continue
                self.discard_note()
            raise

    def discard_note(self) -> None:
        self.folder.discard(SEALING)

    def sweep(self) -> None:
        self.folder.sweep()
        with suppress(CorruptSnapshotError):
            if (media := self.media()) is not None:
                media.sweep()


# ---- file store ----

LOCK_TIMEOUT_SECONDS = 10.0


class FileStore(KeptSnapshots):
    """A ``SnapshotStore`` in a directory, which the first ``save`` creates.

    With an ``encryption_key`` (32 bytes, see ``generate_encryption_key``) all snapshots and media are sealed with
    AES-256-GCM, and plaintext files are refused. ``retired_keys`` only open files that are not sealed with that key
    yet. docs/encryption.md says what is sealed and what is not. ``logger`` (default ``transcript_store.file_store``)
    gets the skipped files, at DEBUG, and as warnings the names of tools that the Go library cannot read; no other
    contents. ``file_system`` is for tests.

    Several threads and processes may use one store: a call that writes takes a lock, and waits ten seconds for it.
    Files of the store that are links, or not files, are refused and never followed. Nothing is open between calls. A
    store cannot be pickled, because it has keys.

    Raises:
        InvalidKeyError: a key is not 32 bytes.
        ValueError: there are retired keys and no encryption key.
    """

    def __init__(
        self,
        directory: filesystem.AnyPath,
        *,
        encryption_key: bytes | None = None,
        retired_keys: Sequence[bytes] = (),
        logger: logging.Logger | None = None,
        file_system: FileSystem | None = None,
    ) -> None:
        super().__init__(
            filesystem.absolute_path(directory),
            encryption_key,
            retired_keys,
            logging.getLogger("transcript_store.file_store") if logger is None else logger,
        )
        self._files = filesystem.REAL if file_system is None else file_system

    @contextmanager
    def _reading(self, doing: str) -> Iterator[SnapshotFiles | None]:
        with self._opened(doing) as files:
            yield files

    @contextmanager
    def _writing(
        self, doing: str, consequence: str, hint: Hint | None = None, *, creates: bool = False
    ) -> Iterator[SnapshotFiles | None]:
        """The directory, with its lock held."""
        with self._opened(doing, consequence, hint, creates=creates) as files:
            if files is None:
                yield None
                return
            lock = Lock(files.folder)
            with lock.released_at_the_end():
                is_there = lock.take(LOCK_TIMEOUT_SECONDS)
                if creates and not is_there:
                    raise FileNotFoundError(errno.ENOENT, "the directory was removed")
                yield files if is_there else None

    @contextmanager
    def _opened(
        self, doing: str, consequence: str = "", hint: Hint | None = None, *, creates: bool = False
    ) -> Iterator[SnapshotFiles | None]:
        with refusals(self.directory, doing, consequence, hint), ExitStack() as stack:
            try:
                files = self._create() if creates else self._open()
            except FileNotFoundError:
                if creates:
                    raise
                yield None
            else:
                yield stack.enter_context(files)

    def _open(self) -> SnapshotFiles:
        """The directory; raises ``FileNotFoundError`` if there is none."""
        return SnapshotFiles(Folder.open(self._files, self.directory), lambda: self.keys, self.witness, self.logger)

    def _create(self) -> SnapshotFiles:
        """The directory, created if it is missing; the first time its parents are synced too."""
        if self.is_prepared:
            with suppress(FileNotFoundError):
                return self._open()
        return SnapshotFiles(Folder.make(self._files, self.directory), lambda: self.keys, self.witness, self.logger)
