"""Durable conversations for AI agents: an append-only transcript that does not lose a message.

This file lists what is public; everything else may change. ``transcript_store.testing`` is public too.
"""

from transcript_store._archive import Generation
from transcript_store._log import Appended, Recovery
from transcript_store._metadata import ConversationMetadata
from transcript_store._records import Record
from transcript_store._salvage import Gap
from transcript_store._sealing import generate_encryption_key
from transcript_store._storage import Refreshed
from transcript_store._summaries import ConversationSummary
from transcript_store.adapter import restore_snapshot, snapshot_of
from transcript_store.conversation import ConversationStore
from transcript_store.errors import (
    ConversationExistsError,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationNotLoadedError,
    CorruptMetadataError,
    CorruptSnapshotError,
    CorruptTranscriptError,
    DecryptionError,
    GenerationNotFoundError,
    IncompleteResponseError,
    InvalidBaseUrlError,
    InvalidIdError,
    InvalidKeyError,
    InvalidMessageError,
    InvalidMetadataError,
    InvalidSnapshotIdError,
    MaxStepsError,
    MissingExtraError,
    MissingTokenError,
    PoisonedError,
    ProviderMismatchError,
    ReadOnlyError,
    SnapshotNotFoundError,
    StorageError,
    TranscriptStoreError,
    UnsupportedVersionError,
)
from transcript_store.file_store import FileStore
from transcript_store.inspection import Finding, Verification, verify
from transcript_store.library import ConversationLibrary, list_conversations
from transcript_store.memory_store import MemorySnapshotStore
from transcript_store.repairs import Repair, repair
from transcript_store.snapshots import (
    Snapshot,
    SnapshotStore,
    SnapshotSummary,
    ToolSnapshot,
    validate_snapshot_id,
)

__version__ = "0.1.0"

__all__ = [
    "Appended",
    "ConversationExistsError",
    "ConversationLibrary",
    "ConversationLockedError",
    "ConversationMetadata",
    "ConversationNotFoundError",
    "ConversationNotLoadedError",
    "ConversationStore",
    "ConversationSummary",
    "CorruptMetadataError",
    "CorruptSnapshotError",
    "CorruptTranscriptError",
    "DecryptionError",
    "FileStore",
    "Finding",
    "Gap",
    "Generation",
    "GenerationNotFoundError",
    "IncompleteResponseError",
    "InvalidBaseUrlError",
    "InvalidIdError",
    "InvalidKeyError",
    "InvalidMessageError",
    "InvalidMetadataError",
    "InvalidSnapshotIdError",
    "MaxStepsError",
    "MemorySnapshotStore",
    "MissingExtraError",
    "MissingTokenError",
    "PoisonedError",
    "ProviderMismatchError",
    "ReadOnlyError",
    "Record",
    "Recovery",
    "Refreshed",
    "Repair",
    "Snapshot",
    "SnapshotNotFoundError",
    "SnapshotStore",
    "SnapshotSummary",
    "StorageError",
    "ToolSnapshot",
    "TranscriptStoreError",
    "UnsupportedVersionError",
    "Verification",
    "generate_encryption_key",
    "list_conversations",
    "repair",
    "restore_snapshot",
    "snapshot_of",
    "validate_snapshot_id",
    "verify",
]
