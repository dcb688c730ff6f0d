"""A library that keeps up with the programs of this machine by itself: ``transcript-store keep``.

docs/keep.md has its setup and its guarantees.
"""

from transcript_store.keeping._keeper import (
    AlreadyKeptError,
    Keeper,
    KeepEvent,
    KeepState,
    KeptProgram,
    is_kept,
    only_keeper,
    read_state,
    state_path,
)
from transcript_store.keeping._retention import RetentionOutlook, retention_outlook
from transcript_store.keeping._units import KeepService, service_for
from transcript_store.keeping._watching import PollingWatcher, SystemWatcher, Watcher, best_watcher

__all__ = [
    "AlreadyKeptError",
    "KeepEvent",
    "KeepService",
    "KeepState",
    "Keeper",
    "KeptProgram",
    "PollingWatcher",
    "RetentionOutlook",
    "SystemWatcher",
    "Watcher",
    "best_watcher",
    "is_kept",
    "only_keeper",
    "read_state",
    "retention_outlook",
    "service_for",
    "state_path",
]
