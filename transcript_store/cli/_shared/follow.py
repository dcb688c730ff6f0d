"""Follow what other processes append to a conversation: every record once, in order, across replaces."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from transcript_store import ConversationNotFoundError, ConversationStore, GenerationNotFoundError, Record
from transcript_store.import_notes import first_shown

_POLL_SECONDS = 0.2


class News(NamedTuple):
    """Either records that were appended to a generation, or an event: a sentence about the conversation."""

    generation: int
    records: Sequence[Record]
    event: str | None = None


def news(conversation: ConversationStore) -> Iterator[News]:
    """Yield new records; end when the conversation is deleted.

    ``conversation`` is read-only and loaded. Its current records are not repeated.
    """
    generation, seen = conversation.get_metadata().generation, conversation.record_count
    while True:
        time.sleep(_POLL_SECONDS)
        try:
            conversation.refresh()
        except ConversationNotFoundError:
            yield News(generation, (), "the conversation was deleted")
            return
        live = conversation.get_metadata().generation
        shown_from = first_shown(conversation) if generation < live else 0
        while generation < live:
            # It was replaced since the last refresh, perhaps several times. Records that were appended before a replace, and not
            # seen yet, are in the archive now.
            try:
                if generation < shown_from:
                    end = "its end is not shown: secrets were removed since"
                    yield News(generation, (), f"generation {generation}: {end}")
                else:
                    yield News(generation, conversation.get_records(generation=generation)[seen:])
            except GenerationNotFoundError:
                yield News(generation, (), f"generation {generation} is not in the archive: its end cannot be shown")
            generation, seen = generation + 1, 0
            yield News(generation, (), f"the transcript was replaced: generation {generation} starts")
        count = conversation.record_count
        # A writer never lowers the generation or removes records within one: a backup was restored.
        if generation > live or count < seen:
            yield News(live, (), "an older copy of the conversation was put in its place")
        elif count > seen:
            yield News(live, conversation.get_records(last=count - seen))
        generation, seen = live, count
