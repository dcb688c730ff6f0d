"""What must a snapshot store do, and what does its listing show? Nothing here does I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from transcript_store._json import times, verbatim
from transcript_store._snapshots import media
from transcript_store._snapshots.snapshot import (
    APPROXIMATE_TOKENS,
    BYTES_PER_TOKEN,
    NO_TIME,
    Snapshot,
    as_corrupt,
    check_envelope,
    normal_time,
    optional_member,
    validate_snapshot_id,
    with_messages,
)
from transcript_store.errors import SnapshotNotFoundError

_SUMMARIZED = ("id", "provider", "model", "metadata", "created_at", "version")
_TOKENS = re.compile(r"\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSummary:
    """The facts of a snapshot in a listing.

    ``approximate_tokens`` is the snapshot's ``metadata["transcript_store.approximate_tokens"]``, which ``snapshot_of``
    writes. Without that it is a quarter of the bytes of its messages as compact JSON, without media. ``size_bytes`` is
    what the snapshot takes where it is stored, without media.

    Your own store creates one with :meth:`of` when a snapshot is saved, and lists them with :meth:`newest_first`.
    """

    id: str
    provider: str
    model: str
    created_at: str
    message_count: int
    approximate_tokens: int
    size_bytes: int

    @classmethod
    def of(cls, snapshot: Snapshot, *, size_bytes: int | None = None) -> SnapshotSummary:
        """The summary of a snapshot; no message is decoded.

        ``size_bytes`` is its stored size. By default it is the length of its JSON form as a
        ``FileStore`` writes it: with a reference of 81 bytes instead of each long base64 text.
        """
        if not isinstance(snapshot, Snapshot):
            raise TypeError(f"of() takes a Snapshot, not {type(snapshot).__name__}")
        messages = media.move_out(snapshot.messages_json, lambda *_: None)
        return read_summary(with_messages(snapshot, messages).to_json(), size_bytes=size_bytes)

    @staticmethod
    def newest_first(summaries: Iterable[SnapshotSummary]) -> list[SnapshotSummary]:
        """A new list in the order of every listing: the newest first, those of one moment by id.

        Moments are compared to the nanosecond, whatever the offset of ``created_at``.
        """
        by_id = sorted(summaries, key=lambda summary: summary.id)
        return sorted(by_id, key=lambda summary: times.instant(summary.created_at), reverse=True)

    @property
    def created_at_datetime(self) -> datetime:
        """``created_at`` as an aware ``datetime``, cut to microseconds."""
        return times.as_datetime(self.created_at)


Summaries = list[SnapshotSummary]


class SnapshotStore(Protocol):
    """Where snapshots are kept: four calls. ``testing.check_snapshot_store`` checks that an implementation keeps the
    contract.

    docs/snapshots.md has an example with public names only.
    """

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot, atomically; one with the same id is replaced."""
        ...

    def load(self, id: str) -> Snapshot:
        """The snapshot with this id, equal to the one saved. Raises ``SnapshotNotFoundError``, ``InvalidSnapshotIdError``."""
        ...

    def list(self) -> Summaries:
        """All snapshots, newest first. Damaged and foreign ones are skipped."""
        ...

    def delete(self, id: str) -> None:
        """Remove the snapshot with this id. Raises ``SnapshotNotFoundError``, ``InvalidSnapshotIdError``."""
        ...


def read_summary(
    data: bytes, *, path: str | None = None, id: str | None = None, size_bytes: int | None = None
) -> SnapshotSummary:
    """The summary of a snapshot in its JSON form; no message is decoded. Raises what ``snapshot.read`` raises.

    ``id`` is the id that it must have. Without it any id is accepted, as for a snapshot in memory.
    """
    with as_corrupt(path):
        members, messages = verbatim.outline(data, "messages", _SUMMARIZED)
        check_envelope(members, path, id)
        metadata = optional_member(members, "metadata", dict, {})
        tokens = metadata.get(APPROXIMATE_TOKENS)
        if type(tokens) is not str or not _TOKENS.fullmatch(tokens):
            tokens = verbatim.compact_length(messages) // BYTES_PER_TOKEN if messages else 0
        return SnapshotSummary(
            id=optional_member(members, "id", str, ""),
            provider=optional_member(members, "provider", str, ""),
            model=optional_member(members, "model", str, ""),
            created_at=normal_time(optional_member(members, "created_at", str, NO_TIME)),
            message_count=len(messages),
            approximate_tokens=int(tokens),
            size_bytes=len(data) if size_bytes is None else size_bytes,
        )


# ---- memory store ----
# Snapshots in memory: for tests, and for data that need not outlive the process.


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
