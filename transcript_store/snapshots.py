"""Snapshots: immutable copies of a conversation that can be stored, sealed, moved and continued.

.. code-block:: python

    from transcript_store import ConversationStore, FileStore, restore_snapshot, snapshot_of

    with ConversationStore("agent/main") as conversation:
        conversation.initialize(provider="claude")
        conversation.append_message({"role": "user", "content": "Remember this."})
        snapshot = snapshot_of(conversation)
    FileStore("snapshots").save(snapshot)
    with ConversationStore("agent/again") as another:
        restore_snapshot(FileStore("snapshots").load(snapshot.id), another)
"""

from transcript_store._snapshots.file_store import FileStore
from transcript_store._snapshots.history import restore_snapshot, snapshot_of
from transcript_store._snapshots.snapshot import (
    MemorySnapshotStore,
    Snapshot,
    SnapshotStore,
    SnapshotSummary,
    validate_snapshot_id,
)
from transcript_store._snapshots.stored import generate_encryption_key
from transcript_store._snapshots.tools import ToolSnapshot

__all__ = [
    "FileStore",
    "MemorySnapshotStore",
    "Snapshot",
    "SnapshotStore",
    "SnapshotSummary",
    "ToolSnapshot",
    "generate_encryption_key",
    "restore_snapshot",
    "snapshot_of",
    "validate_snapshot_id",
]
