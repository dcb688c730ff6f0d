"""What does a listing show of a conversation on a backend? Its writer's list summary, read back as untrusted."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import orjson

from transcript_store._conversation.summary import ConversationSummary, summary_in
from transcript_store._json.parts import imported_at
from transcript_store._os.filesystem import FileSystem
from transcript_store.backends._backend import BackendError, OutcomeUnknownError, StoredSummary
from transcript_store.backends._claims import ClaimedLog
from transcript_store.display import title_in

_MOST_BYTES = 64 * 1024
_SHOWN = ("id", "created_at", "updated_at", "provider", "model", "labels")


def keep_summary(slots: ClaimedLog, files: FileSystem, path: str, touched_at: str) -> None:
    """Store a list summary after the last slot, if the backend accepts it now. Without it only the listing is late.

    ``files`` and ``path`` are the folder that the slots were applied to. The summary's ``updated_at``, by which
    listings are sorted, is that of the last record, as in a folder. The later of ``touched_at`` and the last import is
    in its data.
    """
    updated_at, touched_at = said_and_touched(files, path, touched_at)
    state = slots.state
    # The plaintext of the slots: a sealed conversation has no labels there.
    metadata = {name: state.members[name] for name in _SHOWN if name in state.members}
    metadata["updated_at"] = touched_at
    facts = {
        "seq": state.end.seq,
        "head": state.end.head.decode(),
        "generation": state.generation,
        "bytes": state.end.offset_bytes,
    }
    if state.is_sealed:
        facts["sealed"] = True
    data = orjson.dumps({"metadata": metadata, **facts})
    if len(data) > _MOST_BYTES:
        data = orjson.dumps({"metadata": {**metadata, "labels": {}, "model": None}, **facts})
    with suppress(OutcomeUnknownError, BackendError):
        slots.backend.put_summary(StoredSummary(slots.id, updated_at, state.slot, data))


def said_and_touched(files: FileSystem, path: str, touched_at: str) -> tuple[str, str]:
    """The time of the last record of the conversation in a folder, and of its last write: an import counts there."""
    here = summary_in(files, path, last_extra=True)
    if here is None:
        return touched_at, touched_at
    return here.updated_at or touched_at, max(touched_at, imported_at(here.last_extra))


def listing_row(summary: StoredSummary, path: str) -> ConversationSummary:
    """A row of a listing. An invalid summary is shown as damaged, without facts.

    An empty one of slot 0 represents a conversation whose writer stored none yet; it has no facts.
    """
    if not (summary.slot or summary.data):
        return ConversationSummary(id=summary.id, directory=path, updated_at=summary.updated_at)
    try:
        found = orjson.loads(summary.data)
        metadata = found["metadata"]
        labels = metadata.get("labels")
        if type(labels) is not dict or not {str}.issuperset(map(type, labels.values())):
            labels = None
        facts = {name: _text(metadata.get(name)) for name in ("provider", "model", "created_at")}
        counts = {name: _count(found.get(of)) for name, of in _COUNTS.items()}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        damage = "its summary is invalid; open it to see its state"
        return ConversationSummary(id=summary.id, directory=path, updated_at=summary.updated_at, damage=damage)
    return ConversationSummary(
        id=summary.id,
        directory=path,
        updated_at=summary.updated_at,
        touched_at=_text(metadata.get("updated_at")) or summary.updated_at,
        title=title_in(labels),
        labels=labels,
        sealed=found.get("sealed") is True,
        **facts,  # type: ignore[arg-type]
        **counts,  # type: ignore[arg-type]
    )


_COUNTS = {"record_count": "seq", "generation": "generation", "size_bytes": "bytes"}


def _text(member: Any) -> str | None:
    return member if type(member) is str else None


def _count(member: Any) -> int | None:
    return member if type(member) is int else None
