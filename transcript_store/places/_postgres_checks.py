"""What ``doctor`` asks a PostgreSQL."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from transcript_store._doctor.probes import POWER, Check
from transcript_store.places._examining import latency, timed
from transcript_store.words import many

Rows = list[tuple[Any, ...]]
Ask = Callable[[str, Any], Rows]

_WRITES = 100
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
        checks.append(Check(name="rights", result="ill" if lacking else "well", found=found))
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
        result="well" if is_known else "ill",
        found=f"PostgreSQL {version}" + ("" if is_known else ": 13 or later is needed"),
    )
    yield Check(
        name="primary",
        result="ill" if is_standby else "well",
        found="it is a standby, which takes no writes: connect to the primary" if is_standby else "it takes writes",
    )
    is_off = synchronous == "off"
    why = ": the server forgets what it acknowledged; each write is refused until ALTER ROLE … SET synchronous_commit = on"
    yield Check(
        name="synchronous_commit",
        result="ill" if is_off else "well",
        found=synchronous + why * is_off,
        promises=POWER if is_off else (),
    )
    is_off = fsync == "off"
    why = ": a power cut of the server takes what it acknowledged, and may damage the database"
    yield Check(
        name="fsync", result="ill" if is_off else "well", found=fsync + why * is_off, promises=POWER if is_off else ()
    )
    if full_pages == "off":
        yield Check(name="full_page_writes", result="note", found="off: a page that a power cut tears cannot be mended")
    if standbys and not names:
        found = f"{many(standbys, 'standby')}, asynchronous: one that is promoted may lack what was acknowledged"
        yield Check(name="standbys", result="note", found=found)


def _of_clock(server: float, before: float, after: float) -> Check:
    """The clock of the server beside ours, as near as the length of the request tells."""
    ahead = server - after if server > after else server - before if server < before else 0.0
    at = datetime.fromtimestamp(server, UTC).strftime("%H:%M:%S")
    result = "ill" if abs(ahead) > _TOO_FAR_SECONDS else "note" if abs(ahead) > _FAR_SECONDS else "well"
    found = f"the server's clock says {at} UTC, {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} this host's"
    if ahead == 0:
        found = f"the server's clock and this host's differ by less than {after - before:.3f} s"
    return Check(name="clock", result=result, found=found)  # type: ignore[arg-type]


def _of_tables(applied: int, known: int, schema: str | None) -> Check:
    where = f"schema {schema}" if schema else "no schema that exists is in the search_path"
    if applied == known:
        return Check(name="tables", result="well", found=f"version {applied}, in {where}")
    if not applied:
        found = f"there are none yet ({where}): a command that writes makes them, and so does create=True"
        return Check(name="tables", result="note", found=found)
    if applied > known:
        return Check(
            name="tables", result="ill", found=f"version {applied}, and this program knows {known}: upgrade it"
        )
    return Check(
        name="tables",
        result="ill",
        found=f"version {applied} of {known}: create=True, or a command that writes, brings them up to date",
    )


def _commits(ask: Ask) -> list[float]:
    """Rows of ids that no conversation has, in the table of keys, which no list shows; removed again."""
    ids, data = [str(uuid4()) for _ in range(_WRITES)], secrets.token_bytes(1024)
    try:
        return timed(
            lambda number: ask(
                "INSERT INTO ts_key (conversation, data) VALUES (%s::uuid, %s) RETURNING 1", (ids[number], data)
            ),
            _WRITES,
        )
    finally:
        ask("DELETE FROM ts_key WHERE conversation = ANY(%s::uuid[]) RETURNING 1", (ids,))
