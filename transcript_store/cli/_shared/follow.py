"""What do other processes append to a conversation? Every record once, in order, also when the transcript is replaced."""

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
    """Yield what is appended from now on; ends when the conversation is deleted.

    ``conversation`` is read-only and loaded. What it has already is not repeated.
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
            # It was replaced since the last look, perhaps several times. What was appended before each replace, and not
            # seen yet, is in the archive by now.
            try:
                if generation < shown_from:
                    end = "its end is not shown: secrets were taken out since"
                    yield News(generation, (), f"generation {generation}: {end}")
                else:
                    yield News(generation, conversation.get_records(generation=generation)[seen:])
            except GenerationNotFoundError:
                yield News(generation, (), f"generation {generation} is not in the archive: its end cannot be shown")
            generation, seen = generation + 1, 0
            yield News(generation, (), f"the transcript was replaced: generation {generation} begins")
        count = conversation.record_count
        # A writer never lowers the generation, nor takes records away within one: somebody restored a backup.
        if generation > live or count < seen:
            yield News(live, (), "an older copy of the conversation was put in its place")
        elif count > seen:
            yield News(live, conversation.get_records(last=count - seen))
        generation, seen = live, count
