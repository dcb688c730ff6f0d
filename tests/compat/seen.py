"""A reader's view of a conversation, as JSON: the expected half of a golden one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from transcript_store import ConversationNotFoundError, ConversationStore, Record, verify


def content(folder: Path) -> dict[str, bytes]:
    """Its files by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _members(record: Record) -> dict[str, Any]:
    """A record as JSON; of taking back only what there is."""
    named = {} if record.retracts is None else {"retracts": list(record.retracts)}
    marked = {"is_retracted": True} if record.is_retracted else {}
    return {"seq": record.seq, "at": record.at, "message": record.message, "extra": record.extra, **named, **marked}


def seen(path: Path) -> dict[str, Any]:
    """Everything that a reader and ``verify`` say of it."""
    with ConversationStore(path, read_only=True) as store:
        try:
            store.load()
        except ConversationNotFoundError:
            return {"conversation": None}
        conversation = {
            # What is None is left out: later versions add members, and know nothing of them for these.
            # Without what nobody could say then: None where there is no such thing, and that it is not sealed.
            "metadata": {
                name: value
                for name, value in asdict(store.get_metadata()).items()
                if value is not None and value is not False
            },
            "records": [_members(record) for record in store.get_records()],
            "messages": store.get_messages(),
            "head": store.head,
        }
    verification = verify(path)
    return {
        "conversation": conversation,
        "findings": [finding.kind for finding in verification.findings],
        "generation": verification.generation,
        "archived": list(verification.archived_generations),
    }
