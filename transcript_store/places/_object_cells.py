"""Snapshots in an object store: a cell is an object below ``snapshots/``, under the name that it has in a directory.

No object store looks at a version when it removes an object, but each does when it puts one. So nothing is removed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeVar, cast

from transcript_store.places._bucket import Bucket, Found
from transcript_store.places._cells import Cell, Cells, ListedCell

T = TypeVar("T")
R = TypeVar("R")
_FOLDER = "snapshots"


class ObjectCells(Cells):
    """``require_fit`` refuses a server that ignores conditions."""

    can_hold = False

    def __init__(self, bucket: Bucket, require_fit: Callable[[], None]) -> None:
        self._bucket = bucket
        self._require_fit = require_fit

    def get(self, name: str) -> Cell | None:
        found = self._bucket.get(f"{_FOLDER}/{name}")
        return Cell(found.data, found) if found else None

    def put(self, name: str, data: bytes, known: Cell | None, holding: Sequence[str] = ()) -> bool:  # noqa: ARG002
        self._require_fit()
        key = f"{_FOLDER}/{name}"
        if known is None:
            return self._bucket.create(key, data)
        return self._bucket.swap(key, data, cast(Found, known.version))

    def remove(self, name: str, known: Cell | ListedCell) -> bool:
        raise NotImplementedError  # see can_hold

    def list(self, prefix: str) -> Sequence[ListedCell]:
        folder = f"{_FOLDER}/{prefix}".rstrip("/")
        now = datetime.now(UTC)
        return [
            ListedCell(
                each.key.removeprefix(f"{_FOLDER}/"),
                each.tag,
                (now - each.modified).total_seconds(),
                each.size,
            )
            for page in self._bucket.list(folder)
            for each in page
        ]

    def each(self, act: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        return self._bucket.at_once(act, [*items])
