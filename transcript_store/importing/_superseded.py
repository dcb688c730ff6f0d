"""A conversation that another format made of a source: it is labelled, and the one that is made of it now stands beside it.

An earlier version, or a version without the package that adds the right format, may have taken the source for another program's. Its
conversation has another id, so nothing would tell that the two are one session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from transcript_store.errors import TranscriptStoreError
from transcript_store.formats import READERS, Finding, Plan, generic_sessions
from transcript_store.import_notes import note_of
from transcript_store.importing._note import conversation_id, plain
from transcript_store.importing._standing import begins_as_noted, is_continued, noted_file
from transcript_store.library import ConversationLibrary
from transcript_store.sources import FileSource, Rows

SUPERSEDED = "superseded"
"""The label of a conversation of a misread source. Its value is the id of the one that is read right."""
_WAIT_SECONDS = 10.0


def supersede(library: ConversationLibrary, its_id: str, plan: Plan, source: FileSource | Rows) -> Iterator[Finding]:
    """Label what another format made of this source, before the conversation ``its_id`` is made of it; a finding for each.

    One that a user continued is left alone, and so is one that cannot be opened.
    """
    for name, session in _misread(plan, source):
        other = conversation_id(name, session)
        if os.path.isdir(library.directory) and not os.path.lexists(os.path.join(library.directory, other)):
            continue  # a look is cheaper than an open, where the library is a directory here
        with suppress(TranscriptStoreError):
            if _is_superseded(library, other, its_id, source):
                message = f"the conversation {other}, which was made of it as {name}, has the label {SUPERSEDED} now"
                yield Finding(SUPERSEDED, message)


def _misread(plan: Plan, source: FileSource | Rows) -> Iterator[tuple[str, str]]:
    """The formats, and the ids of the session, as which an earlier version may have read it."""
    for reader in READERS:
        if reader.name != plan.format:
            yield reader.name, plan.session
    if isinstance(source, FileSource) and not plan.is_part:
        yield from (each for each in generic_sessions(source) if each[0] != plan.format)


def _is_superseded(library: ConversationLibrary, other: str, its_id: str, source: FileSource | Rows) -> bool:
    with library.open(other, lock_timeout_seconds=_WAIT_SECONDS) as store:
        notes = [note for record in store.iter_records() if (note := note_of(record)) is not None]
        labels = store.get_metadata().labels
        if not notes or SUPERSEDED in labels or is_continued(store):
            return False
        if noted_file(notes[-1]) != plain(source.name) and not begins_as_noted(source, notes[-1]):
            return False
        store.update_metadata(labels={**labels, SUPERSEDED: its_id})
        return True
