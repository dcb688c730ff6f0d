"""What ``doctor`` tries on an object store, under names that no conversation has."""

from __future__ import annotations

import secrets
from contextlib import suppress
from itertools import chain

from transcript_store._doctor.probes import Check
from transcript_store.places._bucket import Bucket
from transcript_store.places._errors import PlaceError, UnavailableError
from transcript_store.places._examining import latency, timed

_WRITES = 30


def object_checks(bucket: Bucket) -> tuple[list[Check], list[float]]:
    """The checks, and how many microseconds each write took."""
    folder = f"probe/{secrets.token_hex(16)}"
    keys = [f"{folder}/{number:03}" for number in range(_WRITES)]
    checks: list[Check] = []
    times: list[float] = []
    try:
        data = secrets.token_bytes(1024)
        times = timed(lambda number: bucket.create(keys[number], data), _WRITES)
        checks += [_conditions(bucket, keys[0]), _list(bucket, folder, keys)]
    finally:
        with suppress(PlaceError, UnavailableError):  # this user may have no right to remove
            bucket.delete(keys)
    checks.append(_removal(bucket, folder))
    checks.append(latency("a write of 1 KB", times))
    unasked = "cannot be asked through this client library: look at the bucket's settings"
    kept = "deleted conversations stay readable in old versions"
    checks.append(Check(name="versioning", result="untried", found=f"{unasked}; where it is on, {kept}"))
    checks.append(
        Check(
            name="lifecycle rules",
            result="untried",
            found=f"{unasked}; none may remove anything under c/, k/, m/ or d/",
        )
    )
    return checks, times


def _conditions(bucket: Bucket, key: str) -> Check:
    name = "conditional writes"
    if bucket.create(key, b"2"):
        return Check(name=name, result="ill", found="If-None-Match is ignored: two writers would overwrite each other")
    there = bucket.get(key)
    if there is None:
        return Check(name=name, result="ill", found="what was just written cannot be read")
    if not bucket.swap(key, b"3", there) or bucket.swap(key, b"4", there):
        return Check(
            name=name,
            result="ill",
            found="If-Match is ignored or refused: keys and summaries cannot be replaced safely",
        )
    return Check(name=name, result="well", found="If-None-Match and If-Match are kept")


def _list(bucket: Bucket, folder: str, keys: list[str]) -> Check:
    found = {listed.key for listed in chain.from_iterable(bucket.list(folder))}
    if missing := len(set(keys) - found):
        return Check(
            name="lists", result="ill", found=f"{missing} of {len(keys)} objects that were just written are not listed"
        )
    return Check(name="lists", result="well", found="what was just written is listed")


def _removal(bucket: Bucket, folder: str) -> Check:
    left = sum(1 for _ in chain.from_iterable(bucket.list(folder)))
    if left:
        return Check(
            name="removal",
            result="note",
            found="this user may not remove objects: deleted conversations are emptied, and their names stay",
        )
    return Check(name="removal", result="well", found="what is removed is not listed any more")
