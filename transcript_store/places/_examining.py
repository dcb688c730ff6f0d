"""``doctor`` of a backend: what conversations need of it, tried, and what its settings say."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from transcript_store._doctor.diagnosis import Diagnosis
from transcript_store._doctor.probes import Check
from transcript_store.places._errors import PlaceError, UnavailableError

if TYPE_CHECKING:
    from transcript_store.places._place import Place

__all__ = ["examine"]


def examine(place: Place) -> Diagnosis:
    """Try what conversations need of a backend, as :func:`transcript_store.doctor` does of a directory.

    Of a database: ``synchronous_commit``, ``fsync``, whether it is a standby, the version of the tables, rights, how long a commit takes,
    and the distance of its clock. Of an object store: conditional writes, lists, and how long a write takes. What is written for that is
    removed again; no conversation is touched.

    Returns:
        ``directory`` is the backend's name. ``sync_microseconds`` is how long a committed write of 1 KB takes: the median and the 99th
        percentile; None if none could be tried.

    Raises:
        PlaceError: there is no answer, or the server does not let this user in.
    """
    try:
        checks, times = place.examined()
    except UnavailableError as error:
        reason = str(error) or "no answer"
        raise PlaceError(path=place.name, doing="look at the backend", reason=reason, outcome="not stored") from error
    return Diagnosis(directory=place.name, checks=tuple(checks), sync_microseconds=percentiles(times))


def timed(act: Callable[[int], object], count: int) -> list[float]:
    """How many microseconds each of so many calls takes."""
    times = []
    for number in range(count):
        begin = time.perf_counter()
        act(number)
        times.append((time.perf_counter() - begin) * 1e6)
    return times


def percentiles(times: Sequence[float]) -> tuple[float, float] | None:
    """The median and the 99th percentile."""
    ordered = sorted(times)
    return (ordered[len(ordered) // 2], ordered[-1 - len(ordered) // 100]) if ordered else None


def latency(what: str, times: Sequence[float]) -> Check:
    """How long a write takes, for a person."""
    found = percentiles(times)
    if found is None:
        return Check(name=what, result="untried", found="nothing could be written")
    return Check(
        name=what, result="well", found=f"p50 {found[0] / 1000:.1f} ms, p99 {found[1] / 1000:.1f} ms of {len(times)}"
    )
