"""The calls of a store that read, and what they give. Nothing here writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from transcript_store._conversation import arguments
from transcript_store._conversation import metadata as _metadata
from transcript_store._conversation.archive import Generation
from transcript_store._conversation.guard import StorageGuard
from transcript_store._conversation.iteration import each_record
from transcript_store._conversation.metadata import ConversationMetadata
from transcript_store._conversation.reader import Reader, RefreshResult
from transcript_store._conversation.storage import Storage
from transcript_store._conversation.usage import TokenUsage, UsageCount
from transcript_store._log.log import Recovery
from transcript_store._log.record import Gap, Record


class TranscriptPosition(NamedTuple):
    """Where a transcript ends: how many records it has, and the hash of the last one (of the header, if there is none).

    The hash covers the generation and every record before it. So two equal positions are the same transcript.
    """

    seq: int
    head: str


class ConversationState(NamedTuple):
    """A conversation at one moment: no append and no change of the metadata comes between its parts."""

    metadata: ConversationMetadata
    records: list[Record]
    position: TranscriptPosition
    at_start: ConversationMetadata
    """The metadata when the live generation began, as the transcript's first line has it."""


class HeldConversation(NamedTuple):
    """A conversation that does not change while it is read: :class:`ConversationState` for any number of records."""

    metadata: ConversationMetadata
    records: Iterator[Record]
    """All records, once; each is decoded when it is asked for."""
    position: TranscriptPosition
    at_start: ConversationMetadata


class Reads:
    """What a store shows of the conversation that it has loaded."""

    _guard: StorageGuard

    @contextmanager
    def _reading(self) -> Iterator[Storage]:
        with self._guard.locked():
            yield self._guard.reader()

    def get_messages(self, *, last: int | None = None, before_seq: int | None = None) -> list[dict[str, Any]]:
        """The messages in order, or only the ``last`` so many: fresh copies, which you may change.

        What was taken back (:meth:`retract`) is not among them.

        Only the messages that are returned are decoded. Lines that are not in memory are read and verified again.

        Args:
            last: how many messages, from the end; events and what was taken back do not count. None for all.
            before_seq: only messages of records before the one with this number: the page before a page. (:meth:`get_records` has the
                numbers.) What was taken back later is left out as well. None for no such limit.

        Raises:
            CorruptTranscriptError: older lines were damaged since the load. Newer messages can still be read with ``last``.
            StorageError: the system refuses to read older lines; the same holds.
        """
        if before_seq is not None:
            arguments.require_count("before_seq", before_seq, least=1)
        with self._guard.locked():
            return self._guard.reader(last).log.messages(last, before_seq)

    def get_records(
        self, *, last: int | None = None, before_seq: int | None = None, generation: int | None = None
    ) -> list[Record]:
        """The records in order, or only the ``last`` so many: seq, time, message and extra; fresh copies.

        A message that was taken back is there too, with ``is_retracted``, and the record that took it back, with ``retracts``.

        Args:
            last: how many records, from the end, events included; None for all.
            before_seq: only records before the one with this number; None for no such limit.
            generation: an earlier generation, with the records that it had when it was replaced: what a compaction left out,
                or an undo dropped. Its file is read. None for the live one.

        Raises:
            GenerationNotFoundError: there is no such generation; the message lists those that there are.
            CorruptTranscriptError: the lines that are read, or the archived file, are damaged.
            StorageError: the system refuses to read them.
        """
        if generation is not None:
            arguments.require_count("generation", generation)
        if before_seq is not None:
            arguments.require_count("before_seq", before_seq, least=1)
        with self._guard.locked():
            storage = self._guard.reader(last)
            if generation is None:
                return storage.log.records(last, before_seq)
            with storage.archived(generation) as log:
                return log.records(last, before_seq)

    def iter_records(
        self, *, after_seq: int = 0, through_seq: int | None = None, generation: int | None = None
    ) -> Iterator[Record]:
        """The records in order, one at a time, however long the conversation is; verified as :meth:`get_records` does.

        Memory holds a piece of the file (256 KB, or the longest append). Between two pieces other calls may come in:

        * An append changes nothing here: what is read ends where the transcript ended when the first record was asked for.
        * After a replace, ``ConversationChangedError``. What was replaced is read with ``generation``.
        * After ``close()``, ``ConversationNotLoadedError``. After a new ``load()`` it goes on.

        Args:
            after_seq: begin behind the record with this number; what stands before it is not read. If there is nothing
                behind it, there are no records.
            through_seq: end behind the record with this number, as if nothing stood behind it: what was taken back later is not
                marked. None for all.
            generation: as in :meth:`get_records`.

        Raises:
            ConversationChangedError: while the records are read; the transcript was replaced, or is no longer the one that
                was read. Begin anew.
            TranscriptStoreError: while the records are read, as :meth:`get_records`.
        """
        arguments.require_count("after_seq", after_seq)
        if through_seq is not None:
            arguments.require_count("through_seq", through_seq)
        if generation is not None:
            arguments.require_count("generation", generation)
        return each_record(self._reading, after_seq, through_seq, generation)

    def generations(self) -> list[Generation]:
        """Every generation that there is, the oldest first and the live one last: number, when, records, head.

        ``replace_transcript`` ends a generation. It stays in ``archive/`` until :meth:`delete_generation`. The whole archive is
        read, and its SHA-256 computed; a damaged generation says so in ``damage``. A number is missing where the generation
        was deleted, or where it was damaged and repaired (then the damaged file is in ``quarantine/``).

        Raises:
            StorageError: the system refuses to read the archive.
        """
        with self._guard.locked():
            return self._guard.reader().generations()

    def usage(self) -> TokenUsage:
        """The tokens of all replies that are on record, by day and model, whatever client asked; what a client's ``usage`` counts
        ends with the client.

        They are read from the ``usage`` in each record's extra, where the chat clients, imports and ``messages.from_reply`` put it, also in
        earlier generations and of what was taken back: those tokens were paid for. A reply that was copied (``keep_records``, a fork)
        counts once. All records are read.

        Raises:
            CorruptTranscriptError: the live transcript is damaged. (An earlier generation that is damaged is in ``skipped``.)
            TranscriptStoreError: as :meth:`get_records`.
        """
        count = UsageCount()
        count.add_conversation(self)
        return count.result()

    def get_metadata(self, *, at_start: bool = False) -> ConversationMetadata:
        """What the conversation is: a frozen value and a fresh copy.

        With ``at_start`` the metadata when the live generation began, as the first line of the transcript has it.
        """
        with self._guard.locked():
            storage = self._guard.reader()
            return _metadata_at_start(storage) if at_start else _metadata_now(storage)

    @property
    def id(self) -> str:
        """The conversation's id, a canonical lower-case UUID. Every generation and every copy has it; a fork has another.

        It is what was loaded or created last, and waits for no call: it can be read within a call of another thread, and after
        ``close()``.

        Raises:
            ConversationNotLoadedError: nothing was loaded or created yet.
        """
        return self._guard.loaded_id()

    @property
    def features(self) -> tuple[str, ...]:
        """What the live generation can besides: the features that it began with. See :class:`NewConversation`."""
        with self._guard.locked():
            return self._guard.reader().log.header.features

    @property
    def position(self) -> TranscriptPosition:
        """How many records the live generation has, and the hash of the last one, in one call; costs nothing.

        It stays equal until somebody appends or replaces. ``AppendResult.previous_head`` tells whether an append stands
        directly behind a position.
        """
        with self._guard.locked():
            return _position(self._guard.reader())

    @property
    def record_count(self) -> int:
        """How many records the live generation has, events included; costs nothing."""
        return self.position.seq

    @property
    def head(self) -> str:
        """The hash of the last record, 32 hex digits: a fingerprint of the whole transcript.

        Keep it elsewhere, and it shows any later change of the history. It is not keyed: anyone who can write the file can
        compute it.
        """
        return self.position.head

    def state(self) -> ConversationState:
        """Metadata, records and position of one moment, whatever other threads append: what a copy is made of.

        As :meth:`held`, with all records in memory.

        Raises:
            TranscriptStoreError: as :meth:`held`.
        """
        with self.held() as (metadata, records, position, at_start):
            return ConversationState(metadata, list(records), position, at_start)

    @contextmanager
    def held(self) -> Iterator[HeldConversation]:
        """Hold the conversation still and read it record by record, however long it is; use ``with``.

        Other threads wait for the end of the block. Within it, a call on this store raises ``RuntimeError``. Memory holds one
        record at a time, and what the block keeps.

        All of it is on the medium. Appends that were not synced are synced now. A reader is refreshed from the medium: after
        a failed sync of the writer, it may have seen messages that the disk does not have.

        Raises:
            TranscriptStoreError: as :meth:`get_records`, also while the records are read; of a reader also as :meth:`refresh`.
        """
        with self._guard.locked():
            storage = self._guard.reader()
            storage.sync_before_copy()
            yield HeldConversation(
                _metadata_now(storage), storage.log.each_record(), _position(storage), _metadata_at_start(storage)
            )

    @property
    def recovery(self) -> Recovery | None:
        """What recovery did to the transcript's end, at ``load()`` or after an interrupted call; None if nothing."""
        with self._guard.locked():
            return self._guard.reader().log.recovery

    @property
    def is_fully_verified(self) -> bool:
        """Whether every line was verified since the load: False after ``load(verify="tail")``, until one call read all of it."""
        with self._guard.locked():
            return self._guard.reader().log.is_fully_verified

    @property
    def torn_tail(self) -> Gap | None:
        """For a reader: the bytes behind the last whole record, which it passed over; None if there are none.

        A crash left them, or a writer is writing them now. The next load that may write cuts them, and keeps them in
        ``quarantine/``. For a writer this is None: ``recovery`` says what it cut.
        """
        with self._guard.locked():
            return self._guard.reader().log.torn_tail

    def refresh(self) -> RefreshResult:
        """For a reader: read what a writer added since, the metadata too. A writer is always up to date.

        Returns:
            How many records were added, and whether the transcript was read from its start again. That happens after a
            replace, or when lines that were read before have changed; then ``records_added`` counts all records.

        Raises:
            TranscriptStoreError: as :meth:`load`. What was read before can still be read.
        """
        with self._guard.locked():
            storage = self._guard.reader()
            return storage.refresh() if isinstance(storage, Reader) else RefreshResult(0, False)


def _metadata_now(storage: Storage) -> ConversationMetadata:
    return _metadata.public(storage.members, storage.updated_at, sealed=storage.log.header.is_sealed)


def _metadata_at_start(storage: Storage) -> ConversationMetadata:
    header = storage.log.header
    return _metadata.public(storage.members_at_start, header.at, sealed=header.is_sealed)


def _position(storage: Storage) -> TranscriptPosition:
    end = storage.log.end
    return TranscriptPosition(end.seq, end.head.decode())
