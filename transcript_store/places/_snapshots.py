"""Stores of snapshots on a place."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from transcript_store._os import filesystem
from transcript_store._os.filesystem import FileSystem
from transcript_store._snapshots.file_store import FileStore
from transcript_store._snapshots.store import KeptSnapshots
from transcript_store.places._cells import KeepsCells
from transcript_store.places._claimed import WAITS_SECONDS
from transcript_store.places._errors import NotOnAPlaceError
from transcript_store.places._snapshot_files import PlacedFiles
from transcript_store.places._urls import open_place
from transcript_store.ways_out import WayOut

__all__ = ["PlacedSnapshotStore", "open_snapshot_store"]

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class PlacedSnapshotStore(KeptSnapshots):
    """A ``SnapshotStore`` on a place: what :class:`FileStore` writes into files, byte for byte, under the same names.

    There is no lock. A write names the version that it replaces, as one step of the engine:

    - Of two that save one id at the same time, the one that the engine does last stands. Each is whole, neither is an error. One
      whose answer was lost may be put once more, over another's that came between.
    - What the keys do not open is not replaced, whoever put it there, and whenever. A rotation puts back nothing that was saved meanwhile.
    - Of two rotations to different keys at the same time, each tells which files it could not open.
    - A store without a key puts nothing in the clear into one that is sealed, also if it is sealed at this moment.
    - A call that writes and is not answered is ``PlaceError`` with the outcome ``"unknown"``: the old one is there, or the new one, or it
      will be. The next call looks. On an object store a plain snapshot has one version with every other of the same bytes, so there a
      request that comes late may land where those bytes were saved again.
    - What was deleted leaves a mark of 49 bytes, so that a request which the network delivers late does not bring it back.

    Args:
        place: a place that has cells, as those of this library have, or anything else with a ``name`` and ``cells``.
        encryption_key: seals what is saved, as in a :class:`FileStore`.
        retired_keys: open what is not sealed with that key yet.
        logger: gets what was skipped; default ``transcript_store.places``.
        file_system: whose clock waits and whose randomness is used; for tests.
        waits_seconds: how long it waits before each further attempt if nobody answers.

    Raises:
        InvalidKeyError: a key is not 32 bytes.
        TypeError: the place keeps no snapshots.
        ValueError: there are retired keys and no encryption key.
    """

    def __init__(
        self,
        place: KeepsCells,
        *,
        encryption_key: bytes | None = None,
        retired_keys: Sequence[bytes] = (),
        logger: logging.Logger | None = None,
        file_system: FileSystem | None = None,
        waits_seconds: Iterable[float] = WAITS_SECONDS,
    ) -> None:
        cells = getattr(place, "cells", None)
        if cells is None:
            raise TypeError(f"a {type(place).__name__} keeps no snapshots")
        its_logger = logging.getLogger("transcript_store.places") if logger is None else logger
        super().__init__(f"{place.name}/snapshots", encryption_key, retired_keys, its_logger)
        self._cells = cells
        self._machine = filesystem.REAL if file_system is None else file_system
        self._waits = tuple(waits_seconds)

    def collect_media(self, *, older_than_seconds: float = 86_400) -> list[str]:
        """Remove media that no snapshot refers to, as ``FileStore.collect_media`` does; on PostgreSQL, whoever saves meanwhile.

        On an object store it is refused: none can hold media while a snapshot is put, so media of a save that is under way could go.
        Copy the objects below ``snapshots/`` into a directory; there a ``FileStore`` collects.

        Raises:
            NotOnAPlaceError: it is an object store. Nothing was removed.
            ValueError: ``older_than_seconds`` is negative or not finite.
            PlaceError: the place refused, or nobody answered; nothing that a snapshot refers to was removed.
        """
        if not self._cells.can_hold:
            raise NotOnAPlaceError(path=self.directory, doing="collect media", way_out=WayOut.COLLECT_A_COPY)
        return super().collect_media(older_than_seconds=older_than_seconds)

    @contextmanager
    def _reading(self, doing: str) -> Iterator[PlacedFiles | None]:
        yield PlacedFiles(
            self._cells, self.directory, doing, lambda: self.keys, self.witness, self.logger, self._machine, self._waits
        )

    @contextmanager
    def _writing(
        self,
        doing: str,
        consequence: str,  # noqa: ARG002 (an error of a place says what holds)
        way_out: WayOut | None = None,  # noqa: ARG002
        *,
        creates: bool = False,  # noqa: ARG002
    ) -> Iterator[PlacedFiles | None]:
        with self._reading(doing) as files:
            yield files


def open_snapshot_store(
    where: str | os.PathLike[str],
    *,
    create: bool = False,
    encryption_key: bytes | None = None,
    retired_keys: Sequence[bytes] = (),
    logger: logging.Logger | None = None,
) -> FileStore | PlacedSnapshotStore:
    """The store of snapshots in a directory or at an address, as it stands in a variable of the environment or on a command line.

    An address of a library, as :func:`open_place` has them (``postgresql://user@host/database``, ``s3://bucket/prefix``), is a
    :class:`PlacedSnapshotStore`; a library and a store may have one address. Any other name is the directory of a ``FileStore``.
    Nobody is asked for anything yet.

    Args:
        where: the directory, or the address.
        create: make the tables of a database when they are missing, or of an earlier version.
        encryption_key: seals what is saved, as in a ``FileStore``.
        retired_keys: open what is not sealed with that key yet.
        logger: gets what was skipped.

    Raises:
        InvalidKeyError: a key is not 32 bytes.
        ValueError: no engine has such an address, or it is malformed (its text is not repeated); or there are retired keys and no key.
        MissingExtraError: what talks to the engine is not installed; the message says what to install.
        PlaceError: an object store cannot be used with what the address and the environment say.
    """
    if not isinstance(where, str) or not _ADDRESS.match(where):
        return FileStore(where, encryption_key=encryption_key, retired_keys=retired_keys, logger=logger)
    place: Any = open_place(where, create=create)  # each of ours keeps snapshots
    return PlacedSnapshotStore(place, encryption_key=encryption_key, retired_keys=retired_keys, logger=logger)
