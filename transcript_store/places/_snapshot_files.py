"""The files of a store of snapshots as cells of a place. There is no lock: a write names the version that it replaces.

Invariants, which the tests name:

V1  A cell is put in the place of what was read and judged, or where nothing was. So nothing is replaced that the keys do not open, a
    rotation puts back nothing that a save replaced meanwhile, and a request that comes late meets another version.
V2  Media first, then the snapshot. Where the engine can, the put of a snapshot holds its media in the same step. Where it cannot, media
    is never removed. So a snapshot never lacks its media.
V3  A collection lists media before it looks at snapshots, and removes what still has the version that it listed. A snapshot that was
    put before that look was seen; one that was put after has given its media another version.
V4  A write whose answer is lost is looked for before it is made again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import MEDIA, SEALING
from transcript_store._snapshots.encryption import NONCE_BYTES, Key, Keys, NotOpenedError
from transcript_store._snapshots.media import is_hash
from transcript_store._snapshots.stored import StoredFiles, media_file, require_size
from transcript_store.errors import DecryptionError
from transcript_store.places._cells import Cell, Cells
from transcript_store.places._errors import NotReachedError, PlaceError, UnavailableError
from transcript_store.places._patience import is_in_vain, patiently

T = TypeVar("T")
R = TypeVar("R")
_ROUNDS = 100
"""So often a write that another one forestalled is made again. Each time one of them came through."""


class PlacedFiles(StoredFiles):
    """The cells of a place, for one call of a store."""

    def __init__(
        self,
        cells: Cells,
        path: str,
        doing: str,
        keys: Callable[[], Keys],
        logger: logging.Logger,
        machine: FileSystem,
        waits_seconds: Sequence[float],
    ) -> None:
        super().__init__(keys, logger)
        self._cells = cells
        self._path_of_all = path
        self._doing = doing
        self._machine = machine
        self._waits = waits_seconds

    # ---- what is there -------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        return self._path_of_all

    def names(self) -> list[str]:
        return [cell.name for cell in self._patiently(partial(self._cells.list, "")) if "/" not in cell.name]

    def media_names(self) -> list[str]:
        listed = self._patiently(partial(self._cells.list, f"{MEDIA}/"))
        return [name for cell in listed if is_hash(name := cell.name.removeprefix(f"{MEDIA}/"))]

    def each(self, act: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        return self._cells.each(act, items)

    def _raw(self, name: str, at_most_bytes: int | None = None) -> bytes:
        if (found := self._patiently(partial(self._cells.get, name))) is None:
            raise FileNotFoundError
        require_size(self.path_of(name), len(found.data))
        return found.data[:at_most_bytes]

    def _patiently(self, ask: Callable[[], T]) -> T:
        return patiently(ask, self._waits, self._machine.wait, path=self.path, doing=self._doing)

    # ---- write ---------------------------------------------------------------------------------------------------

    def save(self, name: str, data: bytes, media: dict[str, bytes]) -> None:
        sealed = self._sealed(data)
        texts = {media_file(each): text for each, text in media.items()}
        kept = {each: self._sealed(text) for each, text in texts.items()}

        def attempt(was_asked: bool) -> bool:
            there = self._cells.get(name)
            if was_asked and there is not None and there.data == sealed:
                return True  # V4: so its media was held
            self._require_ours(name, there)
            for each, text in texts.items():
                if not self._keep_media(each, text, kept[each]):
                    return False
            return self._cells.put(name, sealed, there, sorted(texts))

        self._insist(attempt)

    def _keep_media(self, name: str, text: bytes, sealed: bytes) -> bool:
        """Put media, unless it is there already and sealed with the current key. False: look again."""
        there = self._cells.get(name)
        self._require_ours(name, there)
        if there is not None and self.keys().open_current(there.data) == text:
            return True
        return self._cells.put(name, sealed, there)

    def _require_ours(self, name: str, there: Cell | None) -> None:
        """V1: what the keys do not open is not replaced."""
        if there is not None and self.keys().is_of_others(there.data):
            raise self.not_ours(name)

    def _seal_anew(self, name: str) -> None:
        def attempt(was_asked: bool) -> bool:  # noqa: ARG001 (what it put opens with the current key)
            there = self._cells.get(name)
            if there is None or self.keys().open_current(there.data) is not None:
                return True
            try:
                plain = self.keys().open(there.data)
            except NotOpenedError as error:
                raise DecryptionError(path=self.path_of(name), reason=error.reason, way_out=error.way_out) from None
            return self._cells.put(name, self._sealed(plain), there)

        self._insist(attempt)

    def note_sealing(self, key: Key) -> None:
        note = key.seal(self._machine.random_bytes(NONCE_BYTES), SEALING.encode())

        def attempt(was_asked: bool) -> bool:
            there = self._cells.get(SEALING)
            if was_asked and there is not None and there.data == note:
                return True
            return self._cells.put(SEALING, note, there)

        self._insist(attempt)

    def discard_note(self) -> None:
        self._remove(SEALING)

    def delete(self, name: str) -> None:
        if not self._remove(name):
            raise FileNotFoundError

    def _remove(self, name: str) -> bool:
        """Whether it was there."""
        was_there = False

        def attempt(was_asked: bool) -> bool:  # noqa: ARG001 (gone is gone)
            nonlocal was_there
            if (there := self._cells.get(name)) is None:
                return True
            was_there = True
            return self._cells.remove(name, there)

        self._insist(attempt)
        return was_there

    def collect(self, in_use: Callable[[], set[str] | None], older_than_seconds: float) -> list[str]:
        listed = self._patiently(partial(self._cells.list, f"{MEDIA}/"))  # V3: first
        if (used := in_use()) is None:
            return []
        removed = []
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

    def _sealed(self, plain: bytes) -> bytes:
        return self.keys().seal(self._machine.random_bytes(NONCE_BYTES), plain)

    def _insist(self, attempt: Callable[[bool], bool]) -> None:
        """Make a write until it is done: at once if another one came first, and after a wait if nobody answered.

        ``attempt`` is told whether an earlier one may have been done.

        Raises:
            PlaceError: ``outcome`` is ``"unknown"`` if an answer is missing, and ``"not stored"`` if others came first each time.
        """
        waits = iter(self._waits)
        was_asked, waited = False, 0.0
        for _ in range(_ROUNDS + len(self._waits)):
            try:
                if attempt(was_asked):
                    return
                was_asked = True  # an object store may say no to what it did
            except UnavailableError as error:
                was_asked |= not isinstance(error, NotReachedError)
                if (wait := next(waits, None)) is None or (not was_asked and is_in_vain(error, waited)):
                    raise self._failed(str(error) or "no answer came in time", is_known=not was_asked) from error
                waited += wait
                self._machine.wait(wait)
        raise self._failed("others wrote it at the same time, each time", is_known=True)

    def _failed(self, reason: str, *, is_known: bool) -> PlaceError:
        outcome = "not stored" if is_known else "unknown"
        return PlaceError(path=self.path, doing=self._doing, reason=reason, outcome=outcome)  # type: ignore[arg-type]
