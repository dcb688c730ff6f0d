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
    from transcript_store._conversation.salvage import Salvage, salvage
    from transcript_store._conversation.storage import Refreshed
    from transcript_store._conversation.summary import ConversationSummary
    from transcript_store._conversation.verify import Finding, Verification, verify
    from transcript_store._log.log import Appended, Recovery
    from transcript_store._log.record import Gap, Record
    from transcript_store._log.salvage import Salvaged
    from transcript_store._snapshots.adapter import restore_snapshot, snapshot_of
    from transcript_store._snapshots.encryption import generate_encryption_key
    from transcript_store._snapshots.file_store import FileStore
    from transcript_store._snapshots.memory_store import MemorySnapshotStore
    from transcript_store._snapshots.snapshot import Snapshot, validate_snapshot_id
    from transcript_store._snapshots.summary import SnapshotStore, SnapshotSummary
    from transcript_store._snapshots.tool import ToolSnapshot
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
    from transcript_store.library import ConversationLibrary, delete_conversation, list_conversations
    from transcript_store.ways_out import WayOut

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
    "Salvage",
    "Salvaged",
    "Snapshot",
    "SnapshotNotFoundError",
    "SnapshotStore",
    "SnapshotSummary",
    "StorageError",
    "ToolSnapshot",
    "TranscriptStoreError",
    "UnsupportedVersionError",
    "Verification",
    "WayOut",
    "delete_conversation",
    "generate_encryption_key",
    "list_conversations",
    "repair",
    "restore_snapshot",
    "salvage",
    "snapshot_of",
    "validate_snapshot_id",
    "verify",
]

_HOMES = {
    "Appended": "_log.log",
    "ConversationLibrary": "library",
    "ConversationMetadata": "_conversation.metadata",
    "ConversationStore": "conversation",
    "ConversationSummary": "_conversation.summary",
    "FileStore": "_snapshots.file_store",
    "Finding": "_conversation.verify",
    "Gap": "_log.record",
    "Generation": "_conversation.archive",
    "MemorySnapshotStore": "_snapshots.memory_store",
    "Record": "_log.record",
    "Recovery": "_log.log",
    "Refreshed": "_conversation.storage",
    "Repair": "_conversation.repair",
    "Salvage": "_conversation.salvage",
    "Salvaged": "_log.salvage",
    "Snapshot": "_snapshots.snapshot",
    "SnapshotStore": "_snapshots.summary",
    "SnapshotSummary": "_snapshots.summary",
    "ToolSnapshot": "_snapshots.tool",
    "Verification": "_conversation.verify",
    "WayOut": "ways_out",
    "delete_conversation": "library",
    "generate_encryption_key": "_snapshots.encryption",
    "list_conversations": "library",
    "repair": "_conversation.repair",
    "restore_snapshot": "_snapshots.adapter",
    "salvage": "_conversation.salvage",
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
