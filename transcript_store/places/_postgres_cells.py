"""Snapshots on PostgreSQL: a cell is a row, and its version changes with each statement that puts or holds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from transcript_store.places._cells import Cell, Cells, ListedCell

T = TypeVar("T")
R = TypeVar("R")

_HELD = """
    WITH held AS (
        UPDATE ts_snapshot SET version = gen_random_uuid(), put_at = now() WHERE name = ANY(%(holding)s::text[]) RETURNING name
    )
"""
_IS_HELD = "(SELECT count(*) FROM held) = %(count)s AND current_setting('synchronous_commit') <> 'off'"
_PUT_FIRST = f"""{_HELD}
    INSERT INTO ts_snapshot (name, version, put_at, data)
    SELECT %(name)s::text, gen_random_uuid(), now(), %(data)s::bytea WHERE {_IS_HELD}
    ON CONFLICT DO NOTHING
"""
_PUT = f"""{_HELD}
    UPDATE ts_snapshot SET version = gen_random_uuid(), put_at = now(), data = %(data)s::bytea
     WHERE name = %(name)s::text AND version = %(known)s::uuid AND {_IS_HELD}
"""  # noqa: S608 (its parts stand above)
_GET = "SELECT data, version::text FROM ts_snapshot WHERE name = %s::text"
_REMOVE = "DELETE FROM ts_snapshot WHERE name = %s::text AND version = %s::uuid"
_LIST = """
    SELECT name, version::text, extract(epoch FROM now() - put_at)::float8, octet_length(data) FROM ts_snapshot
     WHERE starts_with(name, %s::text) ORDER BY name
"""


class PostgresCells(Cells):
    """``run`` runs one statement of the place; ``refuse_if_forgetful`` refuses a server that would forget what it acknowledged."""

    can_hold = True

    def __init__(self, run: Callable[[str, Any, str], Any], refuse_if_forgetful: Callable[[str], None]) -> None:
        self._run = run
        self._refuse_if_forgetful = refuse_if_forgetful

    def get(self, name: str) -> Cell | None:
        found = self._run(_GET, (name,), "read a snapshot").fetchall()
        return Cell(bytes(found[0][0]), found[0][1]) if found else None

    def put(self, name: str, data: bytes, known: Cell | None, holding: Sequence[str] = ()) -> bool:
        given = {"name": name, "data": data, "holding": [*holding], "count": len(holding)}
        doing = "put a snapshot"
        more = {} if known is None else {"known": known.version}
        is_put = bool(self._run(_PUT if more else _PUT_FIRST, {**given, **more}, doing).rowcount == 1)
        if not is_put:
            self._refuse_if_forgetful(doing)
        return is_put

    def remove(self, name: str, known: Cell | ListedCell) -> bool:
        return bool(self._run(_REMOVE, (name, known.version), "remove a snapshot").rowcount == 1)

    def list(self, prefix: str) -> Sequence[ListedCell]:
        return [ListedCell(*row) for row in self._run(_LIST, (prefix,), "list the snapshots").fetchall()]

    def each(self, act: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        return map(act, items)
