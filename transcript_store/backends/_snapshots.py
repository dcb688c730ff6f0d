"""How are snapshots stored on a backend?"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from transcript_store._os import filesystem
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import MEDIA, SEALING
from transcript_store._snapshots.file_store import FileStore
from transcript_store._snapshots.media import is_hash
from transcript_store._snapshots.store import KeptSnapshots
from transcript_store._snapshots.stored import (
    MARK_BYTES,
    NONCE_BYTES,
    Failure,
    Key,
    NotOpenedError,
    PlainSample,
    StoredFiles,
    StoreKeys,
    has_size_of_mark,
    is_mark,
    mark,
    media_file,
    require_size,
)
from transcript_store.backends._addresses import open_backend
from transcript_store.backends._backend import (
    BackendError,
    BackendUnreachableError,
    HasKeyValueStore,
    KeyValueStore,
    ListedValue,
    OutcomeUnknownError,
    StoredValue,
    UnsupportedByBackendError,
    is_in_vain,
    patiently,
)
from transcript_store.backends._claims import WAITS_SECONDS
from transcript_store.errors import DecryptionError, TranscriptStoreError
from transcript_store.hints import Hint

__all__ = ["BackendSnapshotStore", "open_snapshot_store"]


# ---- snapshot files ----
# The files of a snapshot store as versioned values of a backend. There is no lock: a write names the version that it
# replaces.
#
# Invariants, which the tests name:
#
# V1  A value replaces only one that was read and judged, or an empty name. So no value is replaced that the keys do not
#     open, a rotation never undoes a concurrent save, and a late request meets another version.
# V2  Media first, then the snapshot. If the backend can, the put of a snapshot holds its media in the same step. If
#     not, media is never removed. So a snapshot never lacks its media.
# V3  A collection lists media before it reads snapshots, and removes only what still has the listed version. A snapshot
#     that was put before that read was seen; a later one has given its media another version.
# V4  A request without an answer may have been done, or may be done later. Whatever a write meets after that, its
#     outcome is unknown, unless its value is found. That includes a refused put, perhaps because its media was removed,
#     while the version that it named still exists: a late repeat may find the media again.
# V5  A store without a key puts a placeholder under an empty name. Then it checks whether the store is sealed. Then it
#     replaces the value that it had before that check. A sealing puts its note first, then replaces each value,
#     placeholders too, and removes the note last. So either it meets the placeholder, and the later put is refused; or
#     the check meets the note, or a sealed snapshot.

T = TypeVar("T")
R = TypeVar("R")
_ROUNDS = 100
"""How often a write is repeated after a concurrent one won. Each time one of them succeeded."""


class _Write:
    """A write that is repeated until it is done, and whether it is in doubt."""

    is_unsure = False

    def ask(self, change: Callable[[], bool]) -> bool:
        """Request the change. Without an answer it stays in doubt."""
        try:
            return change()
        except OutcomeUnknownError as error:
            self.is_unsure |= not isinstance(error, BackendUnreachableError)
            raise


class ValueFiles(StoredFiles):
    """The values of a backend, for one call of a store."""

    def __init__(
        self,
        cells: KeyValueStore,
        path: str,
        doing: str,
        keys: Callable[[], StoreKeys],
        witness: PlainSample,
        logger: logging.Logger,
        machine: FileSystem,
        waits_seconds: Sequence[float],
    ) -> None:
        super().__init__(keys, witness, logger)
        self._cells = cells
        self._path_of_all = path
        self._doing = doing
        self._machine = machine
        self._waits = waits_seconds

    # ---- read -------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        return self._path_of_all

    def names(self) -> list[str]:
        return [cell.name for cell in self._beside_media()]

    def names_to_show(self) -> list[str]:
        return [cell.name for cell in self._beside_media() if not has_size_of_mark(cell.size_bytes)]

    def _beside_media(self) -> list[ListedValue]:
        return [cell for cell in self._patiently(partial(self._cells.list, "")) if "/" not in cell.name]

    def media_names(self) -> list[str]:
        listed = self._patiently(partial(self._cells.list, f"{MEDIA}/"))
        return [name for cell in listed if is_hash(name := cell.name.removeprefix(f"{MEDIA}/"))]

    def each(self, act: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        return self._cells.each(act, items)

    def _raw(self, name: str, at_most_bytes: int | None = None) -> bytes:
        found = self._patiently(partial(self._cells.get, name))
        if found is None or is_mark(found.data):
            raise FileNotFoundError
        require_size(self.path_of(name), len(found.data))
        return found.data[:at_most_bytes]

    def _patiently(self, ask: Callable[[], T]) -> T:
        return patiently(ask, self._waits, self._machine.wait, path=self.path, doing=self._doing)

    # ---- write ---------------------------------------------------------------------------------------------------

    def save(self, name: str, data: bytes, media: dict[str, bytes]) -> None:
        while True:
            keys = self.keys()
            try:
                self._save(keys, name, {**{media_file(each): text for each, text in media.items()}, name: data})
            except DecryptionError:
                if keys is self.keys():  # otherwise another thread has begun a rotation: these keys may open it
                    raise
            else:
                return

    def _save(self, keys: StoreKeys, name: str, texts: dict[str, bytes]) -> None:
        """Put media, then the snapshot, which comes last in ``texts``."""
        kept = {each: keys.seal(self._machine.random_bytes(NONCE_BYTES), text) for each, text in texts.items()}
        media = [each for each in texts if each != name]

        # The version to replace when a put was refused, although a late repeat might succeed.
        refused: list[StoredValue | None] = []
        was_unsure = False

        def attempt(write: _Write) -> bool:
            nonlocal refused, was_unsure
            there = dict(zip(texts, self.each(self._cells.get, texts), strict=True))
            its = there[name]
            if refused and refused != [its]:
                write.is_unsure, refused = (
                    was_unsure,
                    [],
                )  # that version no longer exists, so its repeat is refused, too
            if write.is_unsure and its is not None and its.data == kept[name]:
                return True  # V4: it is found, so its media was held
            for each, cell in there.items():
                if cell is not None and not is_mark(cell.data) and keys.is_of_others(cell.data):
                    raise self.not_ours(each)  # V1
            if not keys.can_seal:
                if self._marked(there):
                    return False
                self.refuse_to_save_in_the_clear()  # V5
            for each in media:
                cell = there[each]
                is_kept = cell is not None and not is_mark(cell.data) and keys.open_current(cell.data) == texts[each]
                if not is_kept and not self._cells.put(each, kept[each], cell):
                    return False
            refused, before = [], write.is_unsure
            is_done = write.ask(partial(self._cells.put, name, kept[name], its, sorted(media)))
            # Perhaps its media was removed. A late repeat of this request may find it again.
            if not is_done and media:
                refused, was_unsure, write.is_unsure = [its], before, True
            return is_done

        self._insist(attempt)

    def _marked(self, there: dict[str, StoredValue | None]) -> bool:
        """Put placeholders under empty names; True if all were empty."""
        missing = [name for name, cell in there.items() if cell is None]
        for name in missing:
            self._cells.put(name, self._mark(), None)
        return bool(missing)

    def _mark(self) -> bytes:
        return mark(self._machine.random_bytes(MARK_BYTES))

    def _seal_again(self, name: str) -> None:
        is_there = False

        def attempt(write: _Write) -> bool:
            nonlocal is_there
            there = self._cells.get(name)
            if there is None:
                return True
            keys = self.keys()
            if is_mark(there.data):
                return not keys.takes_plain or write.ask(partial(self._cells.put, name, self._mark(), there))  # V5
            is_there = True
            if keys.open_current(there.data) is not None:
                return True
            try:
                plain = keys.open(there.data)
            except NotOpenedError as error:
                raise DecryptionError(path=self.path_of(name), reason=error.reason, hint=error.hint) from None
            sealed = keys.seal(self._machine.random_bytes(NONCE_BYTES), plain)
            return write.ask(partial(self._cells.put, name, sealed, there))

        self._insist(attempt)
        if not is_there:
            raise FileNotFoundError

    def reseal(self) -> tuple[int, list[Failure]]:
        with self._done_in_part():
            return super().reseal()

    def note_sealing(self, key: Key) -> None:
        note = key.seal(self._machine.random_bytes(NONCE_BYTES), SEALING.encode())

        def attempt(write: _Write) -> bool:
            return write.ask(partial(self._cells.put, SEALING, note, self._cells.get(SEALING)))

        self._insist(attempt)

    def discard_note(self) -> None:
        self._remove(
            SEALING, lambda there: self.keys().open_current(there.data) is not None
        )  # another rotation's note stays

    def delete(self, name: str) -> None:
        if not self._remove(name):
            raise FileNotFoundError

    def _remove(self, name: str, is_meant: Callable[[StoredValue], bool] = lambda _: True) -> bool:
        """Replace the value by a placeholder, if it is the expected one; returns whether it was."""
        was_there = False

        def attempt(write: _Write) -> bool:
            nonlocal was_there
            there = self._cells.get(name)
            if there is None or is_mark(there.data) or not is_meant(there):
                return True
            was_there = True
            return write.ask(partial(self._cells.put, name, self._mark(), there))

        self._insist(attempt)
        return was_there

    def collect(self, in_use: Callable[[], set[str] | None], older_than_seconds: float) -> list[str]:
        listed = self._patiently(partial(self._cells.list, f"{MEDIA}/"))  # V3: first
        if (used := in_use()) is None:
            return []
        removed = []
        with self._done_in_part():
            for cell in listed:
                name = cell.name.removeprefix(f"{MEDIA}/")
                if (
                    is_hash(name)
                    and name not in used
                    and cell.age_seconds >= older_than_seconds
                    and self._patiently(partial(self._cells.remove, cell.name, cell))
                ):
                    removed.append(name)
        return removed

    # ---- until it is done ----------------------------------------------------------------------------------------

    @contextmanager
    def _done_in_part(self) -> Iterator[None]:
        """For many files: that nothing of the last one was stored does not hold for those before it."""
        try:
            yield
        except BackendError as error:
            if error.outcome == "unknown":
                raise
            reason = error.strerror or ""
            raise BackendError(path=self.path, doing=self._doing, reason=reason, outcome="unknown") from error

    def _insist(self, attempt: Callable[[_Write], bool]) -> None:
        """Repeat a write until it is done: at once if another one came first, after a wait if there was no answer.

        Raises:
            BackendError: ``outcome`` is ``"unknown"`` if the write is in doubt; else ``"not stored"``: there was no
                answer before it was sent, or others came first each time.
            TranscriptStoreError: what ``attempt`` raises, unless the write is in doubt.
        """
        waits, write, waited = iter(self._waits), _Write(), 0.0
        for _ in range(_ROUNDS + len(self._waits)):
            try:
                if attempt(write):
                    return
            except OutcomeUnknownError as error:
                if (wait := next(waits, None)) is None or (not write.is_unsure and is_in_vain(error, waited)):
                    raise self._failed(write, str(error) or "no answer came in time") from error
                waited += wait
                self._machine.wait(wait)
            except TranscriptStoreError as error:
                if not write.is_unsure:
                    raise
                met = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
                raise self._failed(write, f"an answer was lost; now {met}") from error
        raise self._failed(write, "others wrote it at the same time, each time")

    def _failed(self, write: _Write, reason: str) -> BackendError:
        outcome = "unknown" if write.is_unsure else "not stored"
        return BackendError(path=self.path, doing=self._doing, reason=reason, outcome=outcome)  # type: ignore[arg-type]


# ---- snapshots ----

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class BackendSnapshotStore(KeptSnapshots):
    """A ``SnapshotStore`` on a backend: the bytes that :class:`FileStore` writes into files, under the same names.

    There is no lock. A write names the version that it replaces, in one atomic step of the backend:

    - Of two concurrent saves of one id, the later one wins. Each is whole, neither is an error. A save whose answer was
      lost may be repeated, over another one that came between.
    - A value that the keys do not open is never replaced. A rotation never undoes a concurrent save.
    - Of two concurrent rotations to different keys, each reports which files it could not open.
    - A store without a key writes no plaintext into a sealed one, even if it is being sealed right now.
    - A call that writes and is not answered is ``BackendError`` with the outcome ``"unknown"``: the old value is
      stored, or the new one is now or later. The next call reads it. On an object store a plain snapshot has one
      version with every other of the same bytes, so a late request may replace the same bytes that were saved again.
    - A deletion leaves a placeholder of 49 bytes, so that a late request does not bring the value back.

    Args:
        backend: a backend of this library, or any object with a ``name`` and ``cells``.
        encryption_key: seals what is saved, as in a :class:`FileStore`.
        retired_keys: open values that are not sealed with that key yet.
        logger: gets what was skipped; default ``transcript_store.backends``.
        file_system: whose clock waits and whose randomness is used; for tests.
        waits_seconds: how long it waits before each further attempt without an answer.

    Raises:
        InvalidKeyError: a key is not 32 bytes.
        TypeError: the backend keeps no snapshots.
        ValueError: there are retired keys and no encryption key.
    """

    def __init__(
        self,
        backend: HasKeyValueStore,
        *,
        encryption_key: bytes | None = None,
        retired_keys: Sequence[bytes] = (),
        logger: logging.Logger | None = None,
        file_system: FileSystem | None = None,
        waits_seconds: Iterable[float] = WAITS_SECONDS,
    ) -> None:
        cells = getattr(backend, "cells", None)
        if cells is None:
            raise TypeError(f"a {type(backend).__name__} keeps no snapshots")
        its_logger = logging.getLogger("transcript_store.backends") if logger is None else logger
        super().__init__(f"{backend.name}/snapshots", encryption_key, retired_keys, its_logger)
        self._cells = cells
        self._machine = filesystem.REAL if file_system is None else file_system
        self._waits = tuple(waits_seconds)

    def collect_media(self, *, older_than_seconds: float = 86_400) -> list[str]:
        """Remove media that no snapshot refers to, as ``FileStore.collect_media`` does; on PostgreSQL also during saves.

        On an object store it is refused: none can hold media while a snapshot is put, so media of a save that is under
        way could go. Copy the objects below ``snapshots/`` into a directory; there a ``FileStore`` collects.

        Raises:
            UnsupportedByBackendError: it is an object store. Nothing was removed.
            ValueError: ``older_than_seconds`` is negative or not finite.
            BackendError: the backend refused, or did not answer; no media that a snapshot refers to was removed.
        """
        if not self._cells.can_hold:
            raise UnsupportedByBackendError(path=self.directory, doing="collect media", hint=Hint.COLLECT_A_COPY)
        return super().collect_media(older_than_seconds=older_than_seconds)

    @contextmanager
    def _reading(self, doing: str) -> Iterator[ValueFiles | None]:
        yield ValueFiles(
            self._cells, self.directory, doing, lambda: self.keys, self.witness, self.logger, self._machine, self._waits
        )

    @contextmanager
    def _writing(
        self,
        doing: str,
        consequence: str,  # noqa: ARG002 (a backend's error says what holds)
        hint: Hint | None = None,  # noqa: ARG002
        *,
        creates: bool = False,  # noqa: ARG002
    ) -> Iterator[ValueFiles | None]:
        with self._reading(doing) as files:
            yield files


def open_snapshot_store(
    where: str | os.PathLike[str],
    *,
    create: bool = False,
    encryption_key: bytes | None = None,
    retired_keys: Sequence[bytes] = (),
    logger: logging.Logger | None = None,
) -> FileStore | BackendSnapshotStore:
    """Open the snapshot store in a directory or at an address, as written in an environment variable or on a command line.

    An address of a library, as :func:`open_backend` has them (``postgresql://user@host/database``,
    ``s3://bucket/prefix``), is a :class:`BackendSnapshotStore`; a library and a store may have one address. Any other
    name is the directory of a ``FileStore``. Nothing connects yet.

    Args:
        where: the directory, or the address.
        create: make the tables of a database when they are missing, or of an earlier version.
        encryption_key: seals what is saved, as in a ``FileStore``.
        retired_keys: open what is not sealed with that key yet.
        logger: gets what was skipped.

    Raises:
        InvalidKeyError: a key is not 32 bytes.
        ValueError: no backend has such an address, or it is malformed (its text is not repeated); or there are retired
            keys and no key.
        MissingExtraError: the backend's client library is not installed; the message says what to install.
        BackendError: an object store cannot be used with what the address and the environment say.
    """
    if not isinstance(where, str) or not _ADDRESS.match(where):
        return FileStore(where, encryption_key=encryption_key, retired_keys=retired_keys, logger=logger)
    backend: Any = open_backend(where, create=create)  # each of ours keeps snapshots
    return BackendSnapshotStore(backend, encryption_key=encryption_key, retired_keys=retired_keys, logger=logger)
