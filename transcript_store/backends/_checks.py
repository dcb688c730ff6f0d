"""``doctor`` for a backend: tests the properties that conversations rely on, and reads its settings."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from transcript_store._doctor import POWER, Check, Diagnosis
from transcript_store.backends._backend import BackendError, OutcomeUnknownError
from transcript_store.backends._bucket import Bucket
from transcript_store.display import many

if TYPE_CHECKING:
    from transcript_store.backends._backend import Backend

__all__ = ["examine"]


def examine(backend: Backend) -> Diagnosis:
    """Check what conversations need of a backend, as :func:`transcript_store.doctor` does of a directory.

    Of a database: ``synchronous_commit``, ``fsync``, whether it is a standby, the version of the tables, rights, how
    long a commit takes, and the distance of its clock. Of an object store: conditional writes, lists, and how long a
    write takes. The test data is removed again; no conversation is changed.

    Returns:
        ``directory`` is the backend's name. ``sync_microseconds`` is how long a committed write of 1 KB takes: the
            median and the 99th
        percentile; None if none could be tried.

    Raises:
        BackendError: the server does not answer, or rejects this user.
    """
    try:
        checks, times = backend.examined()
    except OutcomeUnknownError as error:
        reason = str(error) or "no answer"
        raise BackendError(
            path=backend.name, doing="examine the backend", reason=reason, outcome="not stored"
        ) from error
    return Diagnosis(directory=backend.name, checks=tuple(checks), sync_microseconds=percentiles(times))


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
        return Check(name=what, result="skipped", found="not measured, because nothing could be written")
    return Check(
        name=what, result="ok", found=f"p50 {found[0] / 1000:.1f} ms, p99 {found[1] / 1000:.1f} ms of {len(times)}"
    )


# ---- object checks ----
# What ``doctor`` tries on an object store, under names that no conversation has.

_BUCKET_WRITES = 30


def object_checks(bucket: Bucket) -> tuple[list[Check], list[float]]:
    """The checks, and how many microseconds each write took."""
    folder = f"probe/{secrets.token_hex(16)}"
    keys = [f"{folder}/{number:03}" for number in range(_BUCKET_WRITES)]
    checks: list[Check] = []
    times: list[float] = []
    try:
        data = secrets.token_bytes(1024)
        times = timed(lambda number: bucket.create(keys[number], data), _BUCKET_WRITES)
        checks += [_conditions(bucket, keys[0]), _list(bucket, folder, keys)]
    finally:
        with suppress(BackendError, OutcomeUnknownError):  # this user may have no right to remove
            bucket.delete(keys)
    checks.append(_removal(bucket, folder))
    checks.append(latency("a write of 1 KB", times))
    unasked = "cannot be asked through this client library: look at the bucket's settings"
    kept = "deleted conversations stay readable in old versions"
    checks.append(Check(name="versioning", result="skipped", found=f"{unasked}; where it is on, {kept}"))
    checks.append(
        Check(
            name="lifecycle rules",
            result="skipped",
            found=f"{unasked}; none may remove anything under c/, k/, m/ or d/",
        )
    )
    return checks, times


def _conditions(bucket: Bucket, key: str) -> Check:
    name = "conditional writes"
    if bucket.create(key, b"2"):
        return Check(
            name=name, result="failed", found="If-None-Match is ignored: two writers would overwrite each other"
        )
    there = bucket.get(key)
    if there is None:
        return Check(name=name, result="failed", found="a value that was just written cannot be read")
    if not bucket.swap(key, b"3", there) or bucket.swap(key, b"4", there):
        return Check(
            name=name,
            result="failed",
            found="If-Match is ignored or refused: keys and summaries cannot be replaced safely",
        )
    return Check(name=name, result="ok", found="If-None-Match and If-Match are kept")


def _list(bucket: Bucket, folder: str, keys: list[str]) -> Check:
    found = {listed.key for listed in chain.from_iterable(bucket.list(folder))}
    if missing := len(set(keys) - found):
        return Check(
            name="lists",
            result="failed",
            found=f"{missing} of {len(keys)} objects that were just written are not listed",
        )
    return Check(name="lists", result="ok", found="new objects are listed at once")


def _removal(bucket: Bucket, folder: str) -> Check:
    left = sum(1 for _ in chain.from_iterable(bucket.list(folder)))
    if left:
        return Check(
            name="removal",
            result="note",
            found="this user may not remove objects: deleted conversations are emptied, and their names stay",
        )
    return Check(name="removal", result="ok", found="removed objects are no longer listed")


# ---- postgres checks ----
#
# What ``doctor`` asks a PostgreSQL.

Rows = list[tuple[Any, ...]]
Ask = Callable[[str, Any], Rows]

_DATABASE_WRITES = 100
_FAR_SECONDS = 5.0
_TOO_FAR_SECONDS = 30.0
"""Half of the minute after which a writer counts as idle."""

_SETTINGS = """
    SELECT current_setting('server_version'), current_setting('server_version_num')::int, pg_is_in_recovery(),
           current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes'),
           current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication),
           current_schema(), extract(epoch FROM clock_timestamp())::float8
"""
_TABLES = ("ts_slot", "ts_summary", "ts_key", "ts_snapshot")
_LACKING = """
    SELECT t || ' (' || string_agg(p, ', ' ORDER BY p) || ')' FROM unnest(%s::text[]) AS t, unnest(%s::text[]) AS p
     WHERE to_regclass(t) IS NOT NULL AND NOT has_table_privilege(to_regclass(t)::oid, p) GROUP BY t ORDER BY t
"""


def postgres_checks(ask: Ask, known: int) -> tuple[list[Check], list[float]]:
    """The checks, and how many microseconds each committed insert took. ``known`` is the number of the newest migration."""
    before = time.time()
    row = ask(_SETTINGS, None)[0]
    after = time.time()
    checks = [*_of_settings(*row[:8]), _of_clock(float(row[9]), before, after)]
    applied = 0
    if ask("SELECT to_regclass('ts_migration') IS NOT NULL", None)[0][0]:
        applied = ask("SELECT coalesce(max(number), 0) FROM ts_migration", None)[0][0]
    checks.append(_of_tables(applied, known, row[8]))
    lacking = (
        [each for (each,) in ask(_LACKING, (list(_TABLES), ["SELECT", "INSERT", "UPDATE", "DELETE"]))]
        if applied
        else []
    )
    if applied:
        found = f"this user lacks {'; '.join(lacking)}" if lacking else "this user may read and write all tables"
        checks.append(Check(name="rights", result="failed" if lacking else "ok", found=found))
    times = [] if lacking or row[2] or not applied else _commits(ask)
    checks.append(latency("a commit of 1 KB", times))
    return checks, times


def _of_settings(
    version: str,
    number: int,
    is_standby: bool,
    synchronous: str,
    fsync: str,
    full_pages: str,
    names: str,
    standbys: int,
) -> Iterator[Check]:
    is_known = number >= 130000
    yield Check(
        name="server",
        result="ok" if is_known else "failed",
        found=f"PostgreSQL {version}" + ("" if is_known else ": 13 or later is needed"),
    )
    yield Check(
        name="primary",
        result="failed" if is_standby else "ok",
        found="it is a standby, which accepts no writes: connect to the primary" if is_standby else "it accepts writes",
    )
    is_off = synchronous == "off"
    why = ": the server may lose acknowledged writes; each write is refused until ALTER ROLE … SET synchronous_commit = on"
    yield Check(
        name="synchronous_commit",
        result="failed" if is_off else "ok",
        found=synchronous + why * is_off,
        promises=POWER if is_off else (),
    )
    is_off = fsync == "off"
    why = ": a power cut of the server loses acknowledged writes, and may damage the database"
    yield Check(
        name="fsync", result="failed" if is_off else "ok", found=fsync + why * is_off, promises=POWER if is_off else ()
    )
    if full_pages == "off":
        yield Check(name="full_page_writes", result="note", found="off: a page that a power cut tears cannot be mended")
    if standbys and not names:
        found = f"{many(standbys, 'standby')}, asynchronous: after a promotion, acknowledged writes may be missing"
        yield Check(name="standbys", result="note", found=found)


def _of_clock(server: float, before: float, after: float) -> Check:
    """The clock of the server beside ours, as near as the length of the request tells."""
    ahead = server - after if server > after else server - before if server < before else 0.0
    at = datetime.fromtimestamp(server, UTC).strftime("%H:%M:%S")
    result = "failed" if abs(ahead) > _TOO_FAR_SECONDS else "note" if abs(ahead) > _FAR_SECONDS else "ok"
    found = f"the server's clock says {at} UTC, {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} this host's"
    if ahead == 0:
        found = f"the server's clock and this host's differ by less than {after - before:.3f} s"
    return Check(name="clock", result=result, found=found)  # type: ignore[arg-type]


def _of_tables(applied: int, known: int, schema: str | None) -> Check:
    where = f"schema {schema}" if schema else "no schema that exists is in the search_path"
    if applied == known:
        return Check(name="tables", result="ok", found=f"version {applied}, in {where}")
    if not applied:
        found = f"there are none yet ({where}): a command that writes makes them, and so does create=True"
        return Check(name="tables", result="note", found=found)
    if applied > known:
        return Check(
            name="tables", result="failed", found=f"version {applied}, and this program knows {known}: upgrade it"
        )
    return Check(
        name="tables",
        result="failed",
        found=f"version {applied} of {known}: create=True, or a command that writes, brings them up to date",
    )


def _commits(ask: Ask) -> list[float]:
    """Rows of ids that no conversation has, in the table of keys, which no list shows; removed again."""
    ids, data = [str(uuid4()) for _ in range(_DATABASE_WRITES)], secrets.token_bytes(1024)
    try:
        return timed(
            lambda number: ask(
                "INSERT INTO ts_key (conversation, data) VALUES (%s::uuid, %s) RETURNING 1", (ids[number], data)
            ),
            _DATABASE_WRITES,
        )
    finally:
        ask("DELETE FROM ts_key WHERE conversation = ANY(%s::uuid[]) RETURNING 1", (ids,))
