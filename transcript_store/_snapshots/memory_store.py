"""Snapshots in memory: for tests, and for what need not outlive the process."""

from __future__ import annotations

from transcript_store._snapshots.snapshot import Snapshot, validate_snapshot_id
from transcript_store._snapshots.summary import SnapshotSummary, Summaries
from transcript_store.errors import SnapshotNotFoundError


class MemorySnapshotStore:
    """A ``SnapshotStore`` in memory. Several threads may use it."""

    def __init__(self) -> None:
        self._stored: dict[str, tuple[Snapshot, SnapshotSummary]] = {}

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot; one with the same id is replaced."""
        if not isinstance(snapshot, Snapshot):
            raise TypeError(f"save() takes a Snapshot, not {type(snapshot).__name__}")
        self._stored[snapshot.id] = (snapshot, SnapshotSummary.of(snapshot))

    def load(self, id: str) -> Snapshot:
        """The snapshot with this id. Raises ``SnapshotNotFoundError`` and ``InvalidSnapshotIdError``."""
        validate_snapshot_id(id)
        if (found := self._stored.get(id)) is None:
            raise SnapshotNotFoundError(id=id)
        return found[0]

    def list(self) -> Summaries:
        """All snapshots, newest first."""
        return SnapshotSummary.newest_first(summary for _, summary in tuple(self._stored.values()))

    def delete(self, id: str) -> None:
        """Forget the snapshot with this id. Raises ``SnapshotNotFoundError`` and ``InvalidSnapshotIdError``."""
        validate_snapshot_id(id)
        if self._stored.pop(id, None) is None:
            raise SnapshotNotFoundError(id=id)
