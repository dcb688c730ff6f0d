"""Which earlier generations of a conversation are a part of it that a compaction took out of sight, and may be found and named by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson

from transcript_store.conversation import ConversationStore, Record
from transcript_store.errors import CorruptTranscriptError, GenerationNotFoundError, KeyNeededError
from transcript_store.import_notes import covers, first_shown, note_of


class _Generation(NamedTuple):
    """What of a generation tells how it began, and how it ended."""

    first: dict[str, Any] | None
    """Its first import note."""
    last: dict[str, Any] | None
    said: frozenset[int]
    """A hash of each message that stands for what was compacted, or that secrets were taken out of."""
    compactions: frozenset[int]


def earlier_generations(conversation: ConversationStore) -> tuple[int, ...]:
    """The numbers of the generations before the live one that a compaction of an import or of a program ended, ascending.

    None of them is older than a generation that a user put in its place (an edit, a rewind, a redaction): what was taken back by
    hand stays unfound, and so does what secrets were taken out of since.

    Raises:
        TranscriptStoreError: as :meth:`ConversationStore.iter_records` of the live generation.
    """
    found: list[int] = []
    number = conversation.get_metadata().generation
    later = _life(conversation.iter_records()) if number else None
    for earlier in reversed(range(number)):
        try:
            before = _life(conversation.iter_records(generation=earlier))
        except (GenerationNotFoundError, CorruptTranscriptError, KeyNeededError):
            break
        if later is None or not _is_compaction(before, later):
            break
        found.append(earlier)
        later = before
    oldest = first_shown(conversation) if found else 0
    return tuple(number for number in reversed(found) if number >= oldest)


def _is_compaction(before: _Generation, later: _Generation) -> bool:
    if later.first is not None and before.last is not None:
        goes_on = later.first["generation"] > before.last["generation"]
        return goes_on and covers(before.last.get("redaction"), later.first.get("redaction"))
    return later.first is None and bool(later.compactions - before.compactions) and later.said <= before.said


def _life(records: Iterable[Record]) -> _Generation:
    notes: list[dict[str, Any]] = []
    said: set[int] = set()
    compactions: set[int] = set()
    for record in records:
        extra = record.extra or {}
        if (note := note_of(record)) is not None:
            notes = [*notes[:1], note]
        elif record.message is not None and ("redacted" in extra or extra.get("compaction") is True):
            number = hash(orjson.dumps(record.message, option=orjson.OPT_SORT_KEYS))
            (said if "redacted" in extra else compactions).add(number)
    return _Generation(
        notes[0] if notes else None, notes[-1] if notes else None, frozenset(said), frozenset(compactions)
    )
