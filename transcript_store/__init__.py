"""Durable conversations for AI agents: an append-only transcript that does not lose a message.

This file lists what is public; everything else may change. ``transcript_store.testing`` is public too.
"""

from transcript_store._archive import Generation
from transcript_store._log import Appended, Recovery
from transcript_store._metadata import ConversationMetadata
from transcript_store._records import Record
from transcript_store._salvage import Gap
from transcript_store._storage import Refreshed
from transcript_store._summaries import ConversationSummary
from transcript_store.conversation import ConversationStore
from transcript_store.errors import (
    ConversationExistsError,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationNotLoadedError,
    CorruptMetadataError,
    CorruptTranscriptError,
    GenerationNotFoundError,
    InvalidIdError,
    InvalidMessageError,
    InvalidMetadataError,
    PoisonedError,
    ReadOnlyError,
    StorageError,
    TranscriptStoreError,
    UnsupportedVersionError,
)
from transcript_store.inspection import Finding, Verification, verify
from transcript_store.library import ConversationLibrary, list_conversations
from transcript_store.repairs import Repair, repair

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
    "CorruptTranscriptError",
    "Finding",
    "Gap",
    "Generation",
    "GenerationNotFoundError",
    "InvalidIdError",
    "InvalidMessageError",
    "InvalidMetadataError",
    "PoisonedError",
    "ReadOnlyError",
    "Record",
    "Recovery",
    "Refreshed",
    "Repair",
    "StorageError",
    "TranscriptStoreError",
    "UnsupportedVersionError",
    "Verification",
    "list_conversations",
    "repair",
    "verify",
]
