"""A call of a place that changes nothing, made until somebody answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from transcript_store.places._errors import PlaceError, UnavailableError

T = TypeVar("T")


def patiently(
    call: Callable[[], T], waits: Sequence[float], sleep: Callable[[float], None], *, path: str, doing: str
) -> T:
    """Make a call that changes nothing until it is answered; ``PlaceError`` if the attempts are over."""
    for wait in (*waits, None):
        try:
            return call()
        except UnavailableError as error:
            if wait is None:
                raise PlaceError(
                    path=path, doing=doing, reason=str(error) or "no answer", outcome="not stored"
                ) from error
            sleep(wait)
    raise AssertionError("the last attempt returns or raises")
