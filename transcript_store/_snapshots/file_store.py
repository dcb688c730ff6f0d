"""Snapshots in a directory, sealed or plain.

::

    <store>/                      0700; files 0600
      <snapshot id>.json          the JSON form of a snapshot, or that sealed; replaced whole
      media/<SHA-256>             a long base64 string out of its messages, under the hash of its text
      sealing                     only while a plain store is being sealed
      lock                        held while something is written

Order of writes: media first, each by a temporary file, a sync and a rename; then a sync of their directory; then the snapshot
in the same way. So a snapshot never lacks its media. Readers take no lock.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from transcript_store._os import filesystem
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.lock import Lock
from transcript_store._os.refusals import refusals
from transcript_store._snapshots.files import SnapshotFiles
from transcript_store._snapshots.store import KeptSnapshots
from transcript_store.ways_out import WayOut

LOCK_TIMEOUT_SECONDS = 10.0


class FileStore(KeptSnapshots):
    """A ``SnapshotStore`` in a directory, which the first ``save`` creates.

    With an ``encryption_key`` (32 bytes, see ``generate_encryption_key``) all snapshots and media are sealed with AES-256-GCM, and
    what is not sealed is refused. ``retired_keys`` only open what is not sealed with that key yet. docs/encryption.md says what
    is sealed and what is not. ``logger`` (default ``transcript_store.file_store``) gets what was skipped, at DEBUG, and as
    warnings the names of tools that the Go library cannot read; no other contents. ``file_system`` is for tests.

    Several threads and processes may use one store: a call that writes takes a lock, and waits ten seconds for it. Files of the
    store that are links, or not files, are refused and never followed. Nothing is open between calls. A store cannot be pickled,
    because it has keys.

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
        self, doing: str, consequence: str, way_out: WayOut | None = None, *, creates: bool = False
    ) -> Iterator[SnapshotFiles | None]:
        """The directory, with its lock held."""
        with self._opened(doing, consequence, way_out, creates=creates) as files:
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
        self, doing: str, consequence: str = "", way_out: WayOut | None = None, *, creates: bool = False
    ) -> Iterator[SnapshotFiles | None]:
        with refusals(self.directory, doing, consequence, way_out), ExitStack() as stack:
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
        """The directory, made if it is not there; the first time its parents are synced too."""
        if self.is_prepared:
            with suppress(FileNotFoundError):
                return self._open()
        return SnapshotFiles(Folder.make(self._files, self.directory), lambda: self.keys, self.witness, self.logger)
