"""A snapshot store by a user: in a database, with public names only.

Incident: line S10 of the contract (what a listing tells, and in which order) could only be kept with ``summarize``, ``newest_first`` and
the removal of media from a size, all of them private. Whoever wrote a store had to copy them.
"""

from __future__ import annotations

import ast
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import transcript_store
import transcript_store.testing
from transcript_store import Snapshot, SnapshotNotFoundError, SnapshotStore, SnapshotSummary, validate_snapshot_id
from transcript_store.testing import check_snapshot_store

PUBLIC = {
    "transcript_store": set(dir(transcript_store)),
    "transcript_store.testing": {"check_snapshot_store"},
}
IMAGE = "iVBORw0KGgo" * 1000 + "AAAA"


class DatabaseStore:
    """Snapshots in SQLite: the JSON form, and beside it what a list shows, so that a list reads no snapshot."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._transaction() as database:
            database.execute("CREATE TABLE snapshots (id TEXT PRIMARY KEY, summary TEXT, json BLOB)")

    def save(self, snapshot: Snapshot) -> None:
        if not isinstance(snapshot, Snapshot):
            raise TypeError(f"save() takes a Snapshot, not {type(snapshot).__name__}")
        summary = json.dumps(asdict(SnapshotSummary.of(snapshot)))
        with self._transaction() as database:
            database.execute("REPLACE INTO snapshots VALUES (?, ?, ?)", (snapshot.id, summary, snapshot.to_json()))

    def load(self, id: str) -> Snapshot:
        validate_snapshot_id(id)
        with self._transaction() as database:
            row = database.execute("SELECT json FROM snapshots WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise SnapshotNotFoundError(id=id)
        return Snapshot.from_json(row[0])

    def list(self) -> list[SnapshotSummary]:
        with self._transaction() as database:
            rows = database.execute("SELECT summary FROM snapshots").fetchall()
        return SnapshotSummary.newest_first(SnapshotSummary(**json.loads(row[0])) for row in rows)

    def delete(self, id: str) -> None:
        validate_snapshot_id(id)
        with self._transaction() as database:
            if not database.execute("DELETE FROM snapshots WHERE id = ?", (id,)).rowcount:
                raise SnapshotNotFoundError(id=id)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=30)) as database, database:
            yield database


def test_a_store_of_public_names_keeps_the_contract(tmp_path: Path) -> None:
    """All fourteen lines, the listing among them."""
    made: list[Path] = []

    def make() -> SnapshotStore:
        made.append(tmp_path / f"{len(made)}.sqlite")
        return DatabaseStore(made[-1])

    check_snapshot_store(make)
    assert len(made) == 14


def test_the_names_are_public() -> None:
    """Whatever this file imports of the package is among the names that it publishes."""
    imports = [node for node in ast.walk(ast.parse(Path(__file__).read_text())) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if (node.module or "").startswith("transcript_store")]
    assert len(ours) == 2
    for node in ours:
        assert {alias.name for alias in node.names} <= PUBLIC[node.module or ""]


def test_a_summary_counts_no_media() -> None:
    """Neither in the tokens nor in the size, unless a store says how many bytes it takes there."""
    of_a_moment: dict[str, Any] = {"provider": "claude", "created_at": "2026-03-31T12:00:00Z"}
    with_image = Snapshot.create(**of_a_moment, messages=["x" * 400, IMAGE])
    without = Snapshot.create(**of_a_moment, messages=["x" * 400, ""])
    ours, plain = SnapshotSummary.of(with_image), SnapshotSummary.of(without)
    assert plain.size_bytes == len(without.to_json())
    assert ours.size_bytes - plain.size_bytes == len("chatmedia+sha256:") + 64
    assert ours.approximate_tokens - plain.approximate_tokens in (20, 21)  # a quarter of that
    assert SnapshotSummary.of(with_image, size_bytes=7).size_bytes == 7
    assert SnapshotSummary.of(with_image, size_bytes=0).size_bytes == 0


def test_a_summary_is_what_our_own_stores_show(tmp_path: Path) -> None:
    """A plain ``FileStore`` finds the same in its files, with the size of the file."""
    one = Snapshot.create(provider="openai", model="m", messages=["x", IMAGE], created_at="2026-03-31T12:00:00.5+02:00")
    for store in (transcript_store.MemorySnapshotStore(), transcript_store.FileStore(tmp_path / "s")):
        store.save(one)
        assert store.list() == [SnapshotSummary.of(one)]


def test_only_a_snapshot_has_a_summary() -> None:
    """Anything else is a ``TypeError`` that says so."""
    with pytest.raises(TypeError, match="takes a Snapshot, not dict"):
        SnapshotSummary.of({})  # type: ignore[arg-type]


def test_the_order_leaves_the_list_that_it_was_given_alone() -> None:
    """A new list each time: the newest first, and of one moment by id."""
    of_a_moment = [
        SnapshotSummary.of(Snapshot.create(provider="p", created_at=time, id=f"0e5a3c52-7f0b-4c39-9b60-0d6f3f2a9b1{k}"))
        for k, time in enumerate(
            ["2026-01-01T00:00:00Z", "2026-01-01T02:00:00+02:00", "2026-01-01T00:00:00.000000001Z"]
        )
    ]
    given = [of_a_moment[1], of_a_moment[0], of_a_moment[2]]
    kept = list(given)
    assert SnapshotSummary.newest_first(given) == [of_a_moment[2], of_a_moment[0], of_a_moment[1]]
    assert given == kept
    assert SnapshotSummary.newest_first(iter(given)) == SnapshotSummary.newest_first(given)
