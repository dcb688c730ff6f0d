"""Where in a conversation's life secrets were taken out, so that no reader shows what is older unless somebody names it.

A redaction is a replace: it leaves the generation that has the secrets in ``archive/``. That a generation began so stands in its
records. The note of an import names the redaction; any other record with ``extra.redacted`` lost its secrets in this replace,
unless the generation before has the same record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson

from transcript_store.conversation import ConversationStore, Record
from transcript_store.errors import CorruptTranscriptError, GenerationNotFoundError, KeyNeededError
from transcript_store.formats import covers
from transcript_store.importing._note import note_of

UNREADABLE = (GenerationNotFoundError, CorruptTranscriptError, KeyNeededError)
"""An earlier generation that was deleted, is damaged, or is sealed while the conversation is not."""


class _Life(NamedTuple):
    """What of a generation tells whether secrets were taken out when it began."""

    first: dict[str, Any] | None
    """The redaction of its first import note; None if it has no note, or that import took nothing out."""
    last: dict[str, Any] | None
    first_at: str
    last_at: str
    redacted: dict[int, str]
    """Records with counts of secrets: a hash of what each says, and its time."""


def first_shown(conversation: ConversationStore) -> int:
    """The oldest generation that may be shown without its number: 0 if no secrets were ever taken out of what was stored before.

    Every older one may hold what was taken out, whatever ended it: a compaction too. Reads the conversation's generations up to
    that one.

    Raises:
        TranscriptStoreError: as :meth:`ConversationStore.iter_records` of the live generation.
    """
    number = conversation.get_metadata().generation
    if not number or _were_all_imported_so(conversation, number):
        return 0
    later: _Life | None = None
    for earlier in reversed(range(number)):
        try:
            before = _life(conversation.iter_records(generation=earlier))
        except UNREADABLE:
            continue
        later = later or _life(conversation.iter_records())
        if _began_with_a_redaction(later, before):
            return number
        number, later = earlier, before
    return 0


def _were_all_imported_so(conversation: ConversationStore, live: int) -> bool:
    """Whether each generation ends in an import's note with the redaction that the live one ends with: their last records say it."""
    redactions = []
    for number in (*range(live), None):
        try:
            last = conversation.get_records(last=1, generation=number)
        except UNREADABLE:
            continue
        note = note_of(last[0]) if last else None
        if note is None:
            return False
        redactions.append(note.get("redaction"))
    return all(covers(each, redactions[-1]) for each in redactions)


def _life(records: Iterable[Record]) -> _Life:
    notes: list[dict[str, Any]] = []
    first_at = last_at = ""
    redacted = {}
    for record in records:
        first_at, last_at = first_at or record.at, record.at
        if (note := note_of(record)) is not None:
            notes = [*notes[:1], note]
        elif "redacted" in (record.extra or {}):
            said = record.extra if record.message is None else record.message
            redacted[hash(orjson.dumps(said, option=orjson.OPT_SORT_KEYS))] = record.at
    redactions = [note.get("redaction") for note in notes] or [None]
    return _Life(redactions[0], redactions[-1], first_at, last_at, redacted)


def _began_with_a_redaction(later: _Life, before: _Life) -> bool:
    if later.first:
        return not covers(before.last, later.first)
    # What was appended afterwards lost its secrets on its way in. A replace stamps its records with one time, or with theirs.
    begun_by = max(before.last_at, later.first_at)
    return any(at <= begun_by and said not in before.redacted for said, at in later.redacted.items())
