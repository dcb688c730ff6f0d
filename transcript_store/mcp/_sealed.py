"""A sealed conversation, opened with its key, to be read page by page as a plain one is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transcript_store.conversation import ConversationStore
from transcript_store.transcripts import Place, PlacedRecord


class SealedTranscript:
    """The live transcript of a loaded store. A place is the number of a record and, as its head, the generation."""

    size_bytes = 0
    """Nothing stands behind the last record that could be read."""

    def __init__(self, store: ConversationStore) -> None:
        metadata = store.get_metadata()
        self._store = store
        self.conversation = metadata.id
        self.begin = Place(0, 0, str(metadata.generation))

    def holds(self, place: Place) -> bool:
        """Whether it is still the generation that the place is in."""
        return place.head == self.begin.head and place.seq <= self._store.record_count

    def records(self, after: Place) -> Iterator[tuple[PlacedRecord, Place]]:
        """The records behind a place, with the place behind each."""
        for record in self._store.iter_records(after_seq=after.seq):
            yield PlacedRecord(record, 0, ""), Place(record.seq, 0, self.begin.head)


@contextmanager
def opened(store: ConversationStore) -> Iterator[SealedTranscript]:
    """Load the store of a sealed conversation to read it; raises as its ``load()``, and ``KeyNeededError`` without keys."""
    with store:
        store.load()
        yield SealedTranscript(store)
