"""What did an import note in a transcript, and which earlier generations may a reader show?

No reader shows generations older than a redaction unless asked. Those that a compaction ended may be searched, and used
for names.

A redaction is a replace: it leaves the generation that has the secrets in ``archive/``. The records of a generation
show that it started so. The note of an import names the redaction; any other record with ``extra.redacted`` lost its
secrets in this replace, unless the generation before has the same record.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from transcript_store.conversation import ConversationStore, Record
from transcript_store.errors import CorruptTranscriptError, GenerationNotFoundError, KeyNeededError

UNREADABLE = (GenerationNotFoundError, CorruptTranscriptError, KeyNeededError)
"""An earlier generation that was deleted, is damaged, or is sealed while the conversation is not."""


def note_of(record: Record) -> dict[str, Any] | None:
    """The import note in this record; None if it has none."""
    note = (record.extra or {}).get("import") if record.message is None else None
    return note if isinstance(note, dict) and isinstance(note.get("generation"), int) else None


def is_imported(record: Record) -> bool:
    """True if an import wrote this record: it names lines of the source."""
    source = (record.extra or {}).get("source")
    return isinstance(source, dict) and isinstance(source.get("lines"), list)


def redaction_covers(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """True if the first redaction removes everything that the second does. None removes nothing."""
    if not other:
        return True
    if not one:
        return False
    return bool(one["known"] >= other["known"] and set(other["patterns"]) <= set(one["patterns"]))


class _Life(NamedTuple):
    """The facts of a generation that show whether secrets were removed when it started."""

    first: dict[str, Any] | None
    """The redaction of its first import note; None if it has no note, or that import removed nothing."""
    last: dict[str, Any] | None
    first_at: str
    last_at: str
    redacted: dict[int, str]
    """Records with counts of secrets: a hash of each one's content, and its time."""


def first_shown(conversation: ConversationStore) -> int:
    """The oldest generation that may be shown without its number: 0 if no secrets were ever removed from stored records.

    Every older one may hold the removed secrets, whatever ended it, even a compaction. Reads the conversation's
    generations up to that one.

    Raises:
        TranscriptStoreError: as :meth:`ConversationStore.iter_records` of the live generation.
    """
    number = conversation.get_metadata().generation
    if not number or _were_all_imported_so(conversation, number):
        return 0
    later: _Life | None = None
    is_gap = False
    for earlier in reversed(range(number)):
        try:
            before = _life(conversation.iter_records(generation=earlier))
        except UNREADABLE:
            is_gap = True
            continue
        later = later or _life(conversation.iter_records())
        # An unreadable generation may have started with a redaction, unless the next one says what an import removed.
        if _began_with_a_redaction(later, before) or (is_gap and not later.first):
            return number
        number, later, is_gap = earlier, before, False
    return 0


def _were_all_imported_so(conversation: ConversationStore, live: int) -> bool:
    """True if each generation ends in an import note with the same redaction as the live one's last record."""
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
    return all(redaction_covers(each, redactions[-1]) for each in redactions)


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
        return not redaction_covers(before.last, later.first)
    # Later appends lost their secrets before they were stored. A replace stamps its records with one time, or with
    # their own.
    begun_by = max(before.last_at, later.first_at)
    return any(at <= begun_by and said not in before.redacted for said, at in later.redacted.items())


class _Generation(NamedTuple):
    """The facts of a generation that show how it started and ended."""

    first: dict[str, Any] | None
    """Its first import note."""
    last: dict[str, Any] | None
    said: frozenset[int]
    """A hash of each message that replaces compacted ones, or that secrets were removed from."""
    compactions: frozenset[int]


def earlier_generations(conversation: ConversationStore) -> tuple[int, ...]:
    """The numbers of the generations before the live one that a compaction by an import or a program ended, ascending.

    None of them is older than a generation that a user created (an edit, a rewind, a redaction): messages that a user
    removed stay hidden, and so do those with secrets that were removed since.

    Raises:
        TranscriptStoreError: as :meth:`ConversationStore.iter_records` of the live generation.
    """
    found: list[int] = []
    number = conversation.get_metadata().generation
    later = _generation(conversation.iter_records()) if number else None
    for earlier in reversed(range(number)):
        try:
            before = _generation(conversation.iter_records(generation=earlier))
        except UNREADABLE:
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
        return goes_on and redaction_covers(before.last.get("redaction"), later.first.get("redaction"))
    return later.first is None and bool(later.compactions - before.compactions) and later.said <= before.said


def _generation(records: Iterable[Record]) -> _Generation:
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


# ---- exported sessions ----
# Recognizes sessions that an export wrote into another program's folder, by their own bytes: no other record of them is
# kept.
#
# The id of such a session is a hash of its file (a UUID of version 5). So an unchanged export can be distinguished from
# a file that the program continued. The file contains ids, and other ids are derived from them; so the hash is of the
# file without its ids.

_NAMESPACE = uuid.UUID("0d1f5b0c-6f0f-5b7e-8f55-3c1a86b0a3e4")
_ID = re.compile(rb"(?:ses|msg|prt)_[0-9a-f]{12}[0-9A-Za-z]{14}(?![0-9A-Za-z-])|[0-9a-f-]{16,}")
"""Ids are written with and without dashes, whole and cut: each is such a run. OpenCode's have letters in their second half."""
MOST = 64
"""The same conversation can be exported so often."""


def session_id(data: bytes, number: int) -> str:
    """The id of a session whose file has these bytes, whatever its ids are; ``number`` distinguishes equal exports."""
    return str(uuid.uuid5(_NAMESPACE, f"{number} {hashlib.sha256(_ID.sub(b'', data)).hexdigest()}"))


def is_as_exported(session: str, data: bytes) -> bool:
    """True if an export wrote this session, and its file is unchanged since."""
    if len(session) != 36 or session[14] != "5":
        return False
    return any(session == session_id(data, number) for number in range(MOST))
