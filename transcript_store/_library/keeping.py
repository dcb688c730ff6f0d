"""A conversation is kept as a snapshot before a prune deletes it; what the store of snapshots raises is told as that store's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from transcript_store.conversation import ConversationStore

if TYPE_CHECKING:
    from transcript_store._snapshots.snapshot import Snapshot
    from transcript_store._snapshots.summary import SnapshotStore

_T = TypeVar("_T")


def require_store(snapshots: object) -> None:
    """Raise ``TypeError`` unless snapshots can be stored there: also before a dry run, which stores none."""
    if snapshots is not None and not callable(getattr(snapshots, "save", None)):
        kind = type(snapshots).__name__
        raise TypeError(f"snapshots must be a SnapshotStore, such as FileStore(directory), not {kind}")


class _NotSavedError(Exception):
    """Carries what a store of snapshots raised past those who judge errors of the conversation. Nobody else meets it."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def save(snapshots: SnapshotStore, snapshot: Snapshot) -> str:
    """Store a snapshot, and return its id; call it within :func:`with_what_save_raised`.

    What the store raises is about that store: its lock, its key, its disk. So it is no reason to leave the conversation alone.
    """
    try:
        snapshots.save(snapshot)
    except Exception as error:
        raise _NotSavedError(error) from None
    return snapshot.id


def with_what_save_raised(prune: Callable[[], _T]) -> _T:
    """What a function gives that prunes; raises what :func:`save` met in it, as the store of snapshots raised it."""
    try:
        return prune()
    except _NotSavedError as carrier:
        error = carrier.error
    raise error  # here, where nothing else is handled any more: it has no context but its own


def snapshot_to_keep(reader: ConversationStore) -> Snapshot:
    """A snapshot of a loaded conversation before it goes.

    The id is the transcript's head, written as a UUID: a prune that was cut off and is made again stores the same snapshot again.
    """
    from transcript_store._snapshots.adapter import snapshot_of  # here: most libraries are never pruned

    return replace(snapshot_of(reader), id=_as_id(reader.head))


def _as_id(head: str) -> str:
    return "-".join((head[:8], head[8:12], head[12:16], head[16:20], head[20:]))
