"""Cursors: where the next page begins. They mean something to this process alone, and hold nothing."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

_KEPT = 1000

_T = TypeVar("_T")


class Cursors(Generic[_T]):
    """Places that were given out. What an agent sees of one is a random text: so none can be forged, and none tells a secret."""

    def __init__(self) -> None:
        self._places: OrderedDict[str, _T] = OrderedDict()
        self._lock = Lock()

    def given(self, place: _T) -> str:
        """A cursor for a place. The oldest is forgotten when there are a thousand."""
        cursor = secrets.token_urlsafe(12)
        with self._lock:
            self._places[cursor] = place
            if len(self._places) > _KEPT:
                self._places.popitem(last=False)
        return cursor

    def place(self, cursor: str) -> _T:
        """The place of a cursor; it may be asked for again. Raises ``ValueError`` if it was not given out here."""
        with self._lock:
            place = self._places.get(cursor)
        if place is None:
            raise ValueError("this cursor is not of this tool, or too old: ask again without one")
        return place
