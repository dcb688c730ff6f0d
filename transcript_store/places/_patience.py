"""A call of a place that changes nothing, made until somebody answers; and how long anybody is waited for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from transcript_store.places._errors import NotReachedError, PlaceError, UnavailableError

FIRST_SECONDS = 3.0
"""How long a server is waited for that has never answered. Its address may be mistyped, or it is not started."""

T = TypeVar("T")


def is_in_vain(error: UnavailableError, waited: float) -> bool:
    """Whether no further attempt is worth its wait, after so many seconds."""
    return isinstance(error, NotReachedError) and not error.has_answered and waited >= FIRST_SECONDS


def patiently(
    call: Callable[[], T], waits: Sequence[float], sleep: Callable[[float], None], *, path: str, doing: str
) -> T:
    """Make a call that changes nothing until it is answered; ``PlaceError`` if the attempts are over."""
    waited = 0.0
    for wait in (*waits, None):
        try:
            return call()
        except UnavailableError as error:
            if wait is None or is_in_vain(error, waited):
                raise PlaceError(
                    path=path, doing=doing, reason=str(error) or "no answer", outcome="not stored"
                ) from error
            waited += wait
            sleep(wait)
    raise AssertionError("the last attempt returns or raises")
