"""What an engine must offer so that snapshots can be kept on it: values under names, each with a version.

A name is that of a file in a directory of snapshots: ``<id>.json``, ``media/<SHA-256>``, ``sealing``. What stands under it are the bytes
of that file. So a copy of the cells is a directory of snapshots, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

__all__ = ["Cell", "Cells", "KeepsCells", "ListedCell"]

T = TypeVar("T")
R = TypeVar("R")


class Cell(NamedTuple):
    """What stands under a name."""

    data: bytes
    version: object
    """What the engine compares: another one after each put. Two puts of the same bytes may have one, on an object store."""


class ListedCell(NamedTuple):
    """A name as a list shows it."""

    name: str
    version: object
    age_seconds: float
    """Since it was put or held last, by the engine's clock."""
    size_bytes: int
    """Of its data. By it a mark of what was deleted is known, and not asked for."""


class Cells(Protocol):
    """The cells of a place. Each call but :meth:`each` may raise ``UnavailableError``: it is not known whether it was done; or
    ``PlaceError``: it was not.
    """

    can_hold: bool
    """Whether :meth:`put` can hold other cells in the same step, and :meth:`remove` can look at a version. Without that media stays."""

    def get(self, name: str) -> Cell | None:
        """What stands under a name; None if nothing does."""
        ...

    def put(self, name: str, data: bytes, known: Cell | None, holding: Sequence[str] = ()) -> bool:
        """Put ``data`` in the place of ``known``, as one step of the engine; True if this call did it. None: nothing may be there.

        Where the engine can, that step also requires that the cells ``holding`` are there, and gives each another version. False: this
        call did not do it, and nothing of it will be there. Whoever is not sure of that raises ``UnavailableError``.
        """
        ...

    def remove(self, name: str, known: Cell | ListedCell) -> bool:
        """Remove what stands under a name, if it is ``known``, as one step of the engine. False: this call did not.

        It is called where the cells :attr:`can_hold`.
        """
        ...

    def list(self, prefix: str) -> Sequence[ListedCell]:
        """The cells whose names begin so. What was put before the call is there; of what is put meanwhile, some."""
        ...

    def each(self, act: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        """``act`` on each, several at the same time where that is faster."""
        ...


class KeepsCells(Protocol):
    """What a ``PlacedSnapshotStore`` is made of: a place that has cells, or anything else with a name and cells."""

    @property
    def name(self) -> str:
        """What errors call it. It holds no password, key or user."""
        ...

    @property
    def cells(self) -> Cells:
        """The cells of its snapshots, and of nothing else."""
        ...
