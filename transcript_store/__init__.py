"""Durable conversations for AI agents: an append-only transcript that does not lose a message.

This file lists what is public; everything else may change. ``transcript_store.testing`` is public too.

A name is imported when somebody first asks for it (PEP 562), so that nobody waits for what he does not use. The
lists below, for type checkers, for ``import *`` and for that, name the same; a test compares them.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from transcript_store._conversation.archive import Generation
    from transcript_store._conversation.metadata import ConversationMetadata
    from transcript_store._conversation.repair import Repair, repair
    from transcript_store._conversation.storage import RefreshResult
    from transcript_store._conversation.summary import ConversationSummary
    from transcript_store._conversation.verify import Finding, Verification, verify
    from transcript_store._log.log import AppendResult, Recovery
    from transcript_store._log.record import Record
    from transcript_store._log.salvage import Gap
    from transcript_store._snapshots.adapter import restore_snapshot, snapshot_of
    from transcript_store._snapshots.encryption import generate_encryption_key
    from transcript_store._snapshots.file_store import FileStore
    from transcript_store._snapshots.memory_store import MemorySnapshotStore
    from transcript_store._snapshots.snapshot import (
        Snapshot,
        SnapshotStore,
        SnapshotSummary,
        ToolSnapshot,
        validate_snapshot_id,
    )
    from transcript_store.conversation import ConversationState, ConversationStore, TranscriptPosition
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
    from transcript_store.library import ConversationLibrary, list_conversations

__version__ = "0.1.0"

__all__ = [
    "AppendResult",
    "ConversationExistsError",
    "ConversationLibrary",
    "ConversationLockedError",
    "ConversationMetadata",
    "ConversationNotFoundError",
    "ConversationNotLoadedError",
    "ConversationState",
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
    "RefreshResult",
    "Repair",
    "Snapshot",
    "SnapshotNotFoundError",
    "SnapshotStore",
    "SnapshotSummary",
    "StorageError",
    "ToolSnapshot",
    "TranscriptPosition",
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

_HOMES = {
    "AppendResult": "_log.log",
    "ConversationLibrary": "library",
    "ConversationMetadata": "_conversation.metadata",
    "ConversationState": "conversation",
    "ConversationStore": "conversation",
    "ConversationSummary": "_conversation.summary",
    "FileStore": "_snapshots.file_store",
    "Finding": "_conversation.verify",
    "Gap": "_log.salvage",
    "Generation": "_conversation.archive",
    "MemorySnapshotStore": "_snapshots.memory_store",
    "Record": "_log.record",
    "Recovery": "_log.log",
    "RefreshResult": "_conversation.storage",
    "Repair": "_conversation.repair",
    "Snapshot": "_snapshots.snapshot",
    "SnapshotStore": "_snapshots.snapshot",
    "SnapshotSummary": "_snapshots.snapshot",
    "ToolSnapshot": "_snapshots.snapshot",
    "TranscriptPosition": "conversation",
    "Verification": "_conversation.verify",
    "generate_encryption_key": "_snapshots.encryption",
    "list_conversations": "library",
    "repair": "_conversation.repair",
    "restore_snapshot": "_snapshots.adapter",
    "snapshot_of": "_snapshots.adapter",
    "validate_snapshot_id": "_snapshots.snapshot",
    "verify": "_conversation.verify",
}
"""The modules of what is public, but for the errors, which have one of their own."""


if not _typing.TYPE_CHECKING:  # a type checker that sees it takes any name for public

    def __getattr__(name: str) -> _typing.Any:
        """Import a public name; from then on it stands in this module."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(_importlib.import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
