"""Cells in memory, whose requests a simulated place loses, delays and repeats."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from itertools import count
from typing import Any, NamedTuple, TypeVar

from transcript_store.places import Cell, Cells, ListedCell

__all__ = ["SimulatedCells"]

T = TypeVar("T")
R = TypeVar("R")


class _Kept(NamedTuple):
    cell: Cell
    at: int


class SimulatedCells(Cells):
    """Cells as a database has them, where each call is one request of one moment; or as an object store has them.

    There a version is a hash of the bytes, a list is made of pages of two names, each a request, and nothing is held or removed.

    Args:
        ask: makes one request of the place: the call, the name, what it does, and whether it changes something.
        can_hold: whether they are those of a database.
    """

    def __init__(self, ask: Callable[..., Any], *, can_hold: bool) -> None:
        self.can_hold = can_hold
        self._ask = ask
        self._there: dict[str, _Kept] = {}
        self._numbers = count(1)
        """Each put has one: of a database it is the version, and the time as well."""

    # ---- for tests -------------------------------------------------------------------------------------------------------

    @property
    def contents(self) -> dict[str, bytes]:
        """What stands under each name."""
        return {name: kept.cell.data for name, kept in self._there.items()}

    def set(self, name: str, data: bytes | None) -> None:
        """Change what stands under a name, as no writer may; None removes it."""
        if data is None:
            self._there.pop(name, None)
        else:
            number = next(self._numbers)
            version = number if self.can_hold else sha256(data).hexdigest()
            self._there[name] = _Kept(Cell(data, version), number)

    # ---- Cells -----------------------------------------------------------------------------------------------------------

    def get(self, name: str) -> Cell | None:
        """What stands under a name."""

        def act() -> Cell | None:
            kept = self._there.get(name)
            return None if kept is None else kept.cell

        found: Cell | None = self._ask("get", name, act)
        return found

    def put(self, name: str, data: bytes, known: Cell | None, holding: Sequence[str] = ()) -> bool:
        """Put ``data`` in the place of ``known``; of a database, with what it holds."""
        is_put: bool = self._ask("put", name, partial(self._put, name, data, known, (*holding,)), changes=True)
        return is_put

    def _put(self, name: str, data: bytes, known: Cell | None, holding: tuple[str, ...]) -> bool:
        if not self._is(name, known):
            return False
        if self.can_hold:
            if not all(each in self._there for each in holding):
                return False
            for each in holding:
                self.set(each, self._there[each].cell.data)
        self.set(name, data)
        return True

    def _is(self, name: str, known: Cell | ListedCell | None) -> bool:
        there = self._there.get(name)
        if there is None or known is None:
            return (there is None) == (known is None)
        return there.cell.version == known.version

    def remove(self, name: str, known: Cell | ListedCell) -> bool:
        """Remove what stands under a name, if it is ``known``: of a database."""
        if not self.can_hold:
            raise NotImplementedError

        def act() -> bool:
            return self._is(name, known) and self._there.pop(name, None) is not None

        is_gone: bool = self._ask("remove", name, act, changes=True)
        return is_gone

    def list(self, prefix: str) -> Sequence[ListedCell]:
        """The cells whose names begin so, in the order of their names."""
        if self.can_hold:
            found: builtins.list[ListedCell] = self._ask("list", prefix, lambda: self._page(prefix, ""))
            return found
        return [*self._pages(prefix)]

    def _pages(self, prefix: str) -> Iterator[ListedCell]:
        after, size = "", 2
        while True:
            page = self._ask("list", prefix, lambda after=after: self._page(prefix, after)[:size])
            yield from page
            if len(page) < size:
                return
            after = page[-1].name

    def _page(self, prefix: str, after: str) -> builtins.list[ListedCell]:
        last = max((kept.at for kept in self._there.values()), default=0)
        return [
            ListedCell(name, kept.cell.version, float(last - kept.at), len(kept.cell.data))
            for name, kept in sorted(self._there.items())
            if name.startswith(prefix) and name > after
        ]

    def each(self, act: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        """``act`` on each, one after another."""
        return map(act, items)
