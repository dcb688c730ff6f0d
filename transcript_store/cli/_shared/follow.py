"""What other processes append to a conversation, as it comes: every record once, in order, across replaces too."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from transcript_store import ConversationNotFoundError, ConversationStore, GenerationNotFoundError, Record

_POLL_SECONDS = 0.2


class News(NamedTuple):
    """Records that were appended to a generation; or, instead, what happened to the conversation."""

    generation: int
    records: Sequence[Record]
    event: str | None = None


def news(conversation: ConversationStore) -> Iterator[News]:
    """Wait for what is appended after what the conversation, loaded to read, has now. Ends when it is deleted."""
    generation, seen = conversation.get_metadata().generation, conversation.record_count
    while True:
        time.sleep(_POLL_SECONDS)
        try:
            conversation.refresh()
        except ConversationNotFoundError:
            yield News(generation, (), "the conversation was deleted")
            return
        live = conversation.get_metadata().generation
        while generation < live:
            try:
                yield News(generation, conversation.get_records(generation=generation)[seen:])
            except GenerationNotFoundError:
                yield News(generation, (), f"generation {generation} is not in the archive: its end cannot be shown")
            generation, seen = generation + 1, 0
            yield News(generation, (), f"the transcript was replaced: generation {generation} begins")
        count = conversation.record_count
        if generation > live or count < seen:
            yield News(live, (), "an older copy of the conversation was put in its place")
        elif count > seen:
            yield News(live, conversation.get_records(last=count - seen))
        generation, seen = live, count
