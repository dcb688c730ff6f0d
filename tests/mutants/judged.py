"""Mutants that no test can notice, or none should, each with the reason; docs/durability.md has the same list."""

from __future__ import annotations

JUDGED: dict[str, str] = {
    "ConversationLibrary._storage: sync_appends=True, → sync_appends=False,": (
        "a fork reads with it and creates with it, and neither appends"
    ),
}
"""From a mutant's name to the reason."""
