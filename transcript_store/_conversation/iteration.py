"""The records of a conversation one after the other, read a piece at a time, while the conversation goes on.

A piece is 256 KB of the file, or the longest append. Between two pieces nothing is held but a place in the transcript, so other
calls come in between. Each piece is verified from the hash at that place on, up to a hash that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

from transcript_store._conversation.storage import Storage
from transcript_store._log.messages import Messages
from transcript_store._log.record import Position, Record
from transcript_store._os.refusals import refusals
from transcript_store.errors import ConversationChangedError
from transcript_store.ways_out import WayOut

Reading = Callable[[], AbstractContextManager[Storage]]
"""Gives the loaded storage, and holds the conversation still while it is used; raises if it is not loaded."""


def each_record(reading: Reading, after_seq: int, through_seq: int | None, generation: int | None) -> Iterator[Record]:
    """The records behind ``after_seq``, up to ``through_seq``, that a generation has when the first of them is asked for."""
    with ExitStack() as archive:
        with reading() as storage:
            live = storage.log.header.generation
            is_live = generation is None or generation == live
            # An archived file is never changed, so it is verified once, and stays open to its end.
            archived = storage.log if generation is None else archive.enter_context(storage.archived(generation))
            end = archived.end
            last = end.seq if through_seq is None else min(through_seq, end.seq)
            place = archived.append_behind(after_seq) if after_seq < last else end
            taken_back = archived.taken_back(
                after_seq, last
            )  # as it is now: what is appended meanwhile is not read either
        while place.seq < last:
            with reading() as storage:
                log = _unchanged(storage, live, end) if is_live else archived
                block = log.block_after(place)
                records = log.records_in(block, after_seq, last, taken_back)
            yield from records
            place = block.end


def _unchanged(storage: Storage, generation: int, end: Position) -> Messages:
    """The live log, which may have been loaded anew meanwhile; raises if it is not the one that is being read."""
    log = storage.log
    with refusals(storage.path, "read it"):
        if log.holds(end):  # its hash covers the header too: another generation has another
            return log
    reason = f"generation {generation} was replaced, or changed, while it was read"
    raise ConversationChangedError(
        path=storage.path,
        reason=reason,
        expected_head=end.head.decode(),
        head=log.end.head.decode(),
        way_out=WayOut.READ_ANEW,
    )
