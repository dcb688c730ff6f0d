"""Which calls of a store read or write a loaded conversation, and what do they return?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from typing import Any, NamedTuple, Unpack

from transcript_store._conversation import arguments
from transcript_store._conversation import metadata as _metadata
from transcript_store._conversation.archive import Generation
from transcript_store._conversation.arguments import Feature, MetadataUpdate, Storable
from transcript_store._conversation.guard import StorageGuard
from transcript_store._conversation.metadata import ConversationMetadata
from transcript_store._conversation.storage import Reader, RefreshResult, Storage, StorageOptions
from transcript_store._conversation.summary import TokenUsage, UsageCount
from transcript_store._conversation.writer import Writer
from transcript_store._json.strict import EncodedMessage, encode
from transcript_store._log.log import AppendResult, Log, Recovery
from transcript_store._log.messages import Messages
from transcript_store._log.record import Entry, Gap, Position, Record
from transcript_store._os.filesystem import refusals
from transcript_store.errors import ConversationChangedError
from transcript_store.hints import Hint

# ---- iteration ----
# Yields the records of a conversation one by one, reading chunk by chunk, while the conversation may grow. A chunk is
# 256 KB of the file, or the longest append. Between two chunks only a position is kept, so other calls may come in
# between. Each chunk is verified from the hash at that position to a known hash.

Reading = Callable[[], AbstractContextManager[Storage]]
"""Returns the loaded storage and freezes the conversation while it is used; raises if it is not loaded."""


def each_record(reading: Reading, after_seq: int, through_seq: int | None, generation: int | None) -> Iterator[Record]:
    """The records after ``after_seq``, up to ``through_seq``, that a generation has when iteration starts."""
    with ExitStack() as archive:
        with reading() as storage:
            live = storage.log.header.generation
            is_live = generation is None or generation == live
            # An archived file is never changed, so it is verified once and stays open until the end.
            archived = storage.log if generation is None else archive.enter_context(storage.archived(generation))
            end = archived.end
            last = end.seq if through_seq is None else min(through_seq, end.seq)
            place = archived.append_behind(after_seq) if after_seq < last else end
            taken_back = archived.taken_back(after_seq, last)  # as of now: later appends are not read
        while place.seq < last:
            with reading() as storage:
                log = _unchanged(storage, live, end) if is_live else archived
                block = log.block_after(place)
                records = log.records_in(block, after_seq, last, taken_back)
            yield from records
            place = block.end


def _unchanged(storage: Storage, generation: int, end: Position) -> Messages:
    """The live log, which may have been loaded again since; raises if it is not the one that is being read."""
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
        hint=Hint.RESTART_READING,
    )


# ---- reads ----


class TranscriptPosition(NamedTuple):
    """Where a transcript ends: how many records it has, and the hash of the last one (of the header, if there is none).

    The hash covers the generation and every record before it. So two equal positions are the same transcript.
    """

    seq: int
    head: str


class ConversationState(NamedTuple):
    """A conversation at one moment: no append or change of the metadata comes between its parts."""

    metadata: ConversationMetadata
    records: list[Record]
    position: TranscriptPosition
    at_start: ConversationMetadata
    """The metadata when the live generation started, as the transcript's first line has it."""


class FrozenConversation(NamedTuple):
    """A conversation that does not change while it is read: :class:`ConversationState` for any number of records."""

    metadata: ConversationMetadata
    records: Iterator[Record]
    """All records, once; each is decoded when it is asked for."""
    position: TranscriptPosition
    at_start: ConversationMetadata


class Reads:
    """The reading calls of a store, on the conversation that it has loaded."""

    _guard: StorageGuard

    @contextmanager
    def _reading(self) -> Iterator[Storage]:
        with self._guard.locked():
            yield self._guard.reader()

    def get_messages(self, *, last: int | None = None, before_seq: int | None = None) -> list[dict[str, Any]]:
        """The messages in order, or only the ``last`` so many: fresh copies, which you may change.

        Retracted messages (:meth:`retract`) are left out.

        Only the messages that are returned are decoded. Lines that are not in memory are read and verified again.

        Args:
            last: how many messages, from the end; events and retracted messages do not count. None for all.
            before_seq: only messages of records before the one with this number: the page before a page.
                (:meth:`get_records` has the numbers.) Messages that were retracted later are left out as well. None for
                no such limit.

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

        It contains retracted messages too, with ``is_retracted``, and the records that retracted them, with
        ``retracts``.

        Args:
            last: how many records, from the end, events included; None for all.
            before_seq: only records before the one with this number; None for no such limit.
            generation: an earlier generation, with the records that it had when it was replaced: those that a
                compaction left out, or an undo dropped. Its file is read. None for the live one.

        Raises:
            GenerationNotFoundError: there is no such generation; the message lists the existing ones.
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

        Memory holds one chunk of the file (256 KB, or the longest append). Between two chunks other calls may come:

        * An append changes nothing here: the iteration ends where the transcript ended when it started.
        * After a replace, ``ConversationChangedError``. Read the replaced records with ``generation``.
        * After ``close()``, ``ConversationNotLoadedError``. After a new ``load()`` it continues.

        Args:
            after_seq: start after the record with this number; nothing before it is read. If no record follows it, the
                result is empty.
            through_seq: end after the record with this number, as if it were the last: later retractions are not
                marked. None for all.
            generation: as in :meth:`get_records`.

        Raises:
            ConversationChangedError: while the records are read; the transcript was replaced, or is no longer the one
                that was read. Start again.
            TranscriptStoreError: while the records are read, as :meth:`get_records`.
        """
        arguments.require_count("after_seq", after_seq)
        if through_seq is not None:
            arguments.require_count("through_seq", through_seq)
        if generation is not None:
            arguments.require_count("generation", generation)
        return each_record(self._reading, after_seq, through_seq, generation)

    def generations(self) -> list[Generation]:
        """Every existing generation, the oldest first and the live one last: number, time, records, head.

        ``replace_transcript`` ends a generation. It stays in ``archive/`` until :meth:`delete_generation`. The whole
        archive is read, and its SHA-256 computed; a damaged generation says so in ``damage``. A number is missing where
        the generation was deleted, or where it was damaged and repaired (then the damaged file is in ``quarantine/``).

        Raises:
            StorageError: the system refuses to read the archive.
        """
        with self._guard.locked():
            return self._guard.reader().generations()

    def usage(self) -> TokenUsage:
        """The tokens of all stored replies, by day and model, from any client. (A client's own ``usage`` ends with the
        client.)

        They are read from the ``usage`` in each record's extra, where the chat clients, imports and
        ``messages.from_reply`` put it, also in earlier generations and of retracted messages: those tokens were paid
        for. A reply that was copied (``keep_records``, a fork) counts once. All records are read.

        Raises:
            CorruptTranscriptError: the live transcript is damaged. (An earlier generation that is damaged is in
                ``skipped``.)
            TranscriptStoreError: as :meth:`get_records`.
        """
        count = UsageCount()
        count.add_conversation(self)
        return count.result()

    def get_metadata(self, *, at_start: bool = False, generation: int | None = None) -> ConversationMetadata:
        """The conversation's metadata: a frozen value and a fresh copy.

        Args:
            at_start: the metadata when the live generation started, as the first line of the transcript has it.
            generation: the same of the generation with this number.

        Raises:
            GenerationNotFoundError: there is no such generation.
        """
        if generation is not None:
            arguments.require_count("generation", generation)
        with self._guard.locked():
            storage = self._guard.reader()
            if generation is not None:
                with storage.archived(generation) as log:
                    return _metadata_at_start(storage, log)
            return _metadata_at_start(storage, storage.log) if at_start else _metadata_now(storage)

    @property
    def id(self) -> str:
        """The conversation's id, a canonical lower-case UUID. Every generation and every copy has it; a fork has another.

        It belongs to what was loaded or created last. Reading it waits for no call: it can be read during a call of
        another thread, and after ``close()``.

        Raises:
            ConversationNotLoadedError: nothing was loaded or created yet.
        """
        return self._guard.loaded_id()

    @property
    def features(self) -> tuple[str, ...]:
        """The optional abilities of the live generation, which it started with. See :class:`NewConversation`."""
        with self._guard.locked():
            return self._guard.reader().log.header.features

    @property
    def position(self) -> TranscriptPosition:
        """How many records the live generation has, and the hash of the last one, in one call; costs nothing.

        It stays equal until an append or a replace. ``AppendResult.previous_head`` shows whether an append directly
        follows a position.
        """
        with self._guard.locked():
            return _position(self._guard.reader())

    @property
    def record_count(self) -> int:
        """How many records the live generation has, events included; costs nothing."""
        return self.position.seq

    @property
    def head(self) -> str:
        """The hash of the last record, 32 hex digits: it identifies the whole transcript.

        A copy kept elsewhere reveals any later change of the history. It is not keyed: anyone who can write the file
        can compute it.
        """
        return self.position.head

    def state(self) -> ConversationState:
        """Metadata, records and position of one moment, whatever other threads append: enough to make a copy.

        As :meth:`frozen`, with all records in memory.

        Raises:
            TranscriptStoreError: as :meth:`frozen`.
        """
        with self.frozen() as (metadata, records, position, at_start):
            return ConversationState(metadata, list(records), position, at_start)

    @contextmanager
    def frozen(self) -> Iterator[FrozenConversation]:
        """Freeze the conversation and read it record by record, however long it is; use ``with``.

        Other threads wait for the end of the block. Within it, a call on this store raises ``RuntimeError``. Memory
        holds one record at a time, and what the block itself keeps.

        All of it is on disk. Appends that were not synced are synced now. A reader is refreshed from the disk: after
        a failed sync of the writer, it may have seen messages that the disk does not have.

        Raises:
            TranscriptStoreError: as :meth:`get_records`, also while the records are read; of a reader also as
                :meth:`refresh`.
        """
        with self._guard.locked():
            storage = self._guard.reader()
            storage.sync_before_copy()
            yield FrozenConversation(
                _metadata_now(storage),
                storage.log.each_record(),
                _position(storage),
                _metadata_at_start(storage, storage.log),
            )

    @property
    def recovery(self) -> Recovery | None:
        """The recovery of the transcript's end, at ``load()`` or after an interrupted call; None without one."""
        with self._guard.locked():
            return self._guard.reader().log.recovery

    @property
    def is_fully_verified(self) -> bool:
        """True if every line was verified since the load: False after ``load(verify="tail")``, until one call reads all
        of it.
        """
        with self._guard.locked():
            return self._guard.reader().log.is_fully_verified

    @property
    def torn_tail(self) -> Gap | None:
        """For a reader: the bytes after the last whole record, which it skipped; None if there are none.

        A crash left them, or a writer is writing them now. The next load that may write cuts them off and keeps them in
        ``quarantine/``. For a writer this is None: ``recovery`` says what it cut.
        """
        with self._guard.locked():
            return self._guard.reader().log.torn_tail

    def refresh(self) -> RefreshResult:
        """For a reader: read what a writer has added, the metadata included. A writer is always up to date.

        Returns:
            How many records were added, and whether the transcript was read from its start again. That happens after a
            replace, or when lines that were read before have changed; then ``records_added`` counts all records.

        Raises:
            TranscriptStoreError: as :meth:`load`. The records read before stay readable.
        """
        with self._guard.locked():
            storage = self._guard.reader()
            return storage.refresh() if isinstance(storage, Reader) else RefreshResult(0, False)


def _metadata_now(storage: Storage) -> ConversationMetadata:
    return _metadata.public(storage.members, storage.updated_at, sealed=storage.log.header.is_sealed)


def _metadata_at_start(storage: Storage, log: Log) -> ConversationMetadata:
    return _metadata.public(storage.members_at_start(log), log.header.at, sealed=log.header.is_sealed)


def _position(storage: Storage) -> TranscriptPosition:
    end = storage.log.end
    return TranscriptPosition(end.seq, end.head.decode())


# ---- writes ----
# The calls of a store that write to the conversation that it has loaded; ``conversation`` has those that open and close
# it.


class Writes:
    """The writing calls of a store, on the conversation that it has loaded."""

    _guard: StorageGuard
    _options: StorageOptions
    _storable: Storable

    def append_message(
        self, message: Mapping[str, Any], *, extra: Mapping[str, Any] | None = None, if_head: str | None = None
    ) -> AppendResult:
        """Append one message; on return it is as durable as the store was opened for.

        The cost is one write and one sync, however long the conversation is. With each thousandth record that is
        synced, metadata.json is written too. If the call is interrupted (Ctrl-C), the message is stored whole or not at
        all, and the next call finds out which.

        Args:
            message: a JSON object (a ``dict``, a ``TypedDict``) in the provider's own form; it is copied.
            extra: a JSON object of yours that belongs to the message and is not sent (usage, response id); it is copied.
            if_head: append only if ``head`` is still this one, so directly after what you read. If the call is
                interrupted, pass the same again: then the message is never stored twice.

        Returns:
            The record's seq, time, offset and length in bytes, its hash, and the hash of the record before it.

        Raises:
            ConversationChangedError: the transcript does not end in ``if_head``. Nothing was written; read the new
                records, and pass the new head.
            InvalidMessageError: it is not JSON, or is longer than ``max_line_bytes``. Nothing was written.
            RedactionError: the store's ``redact`` raised, or returned no message. Nothing was written.
            StorageError: the system refused; the message says which data is intact and what to do.
            PoisonedError: a sync failed before; ``load()`` shows what the disk holds.
            ReadOnlyError: the store was opened with ``read_only=True``.
            CorruptTranscriptError: another file replaced the transcript (``kind`` is ``replaced``), or it was cut
                (``truncated``). Call ``load()`` again.
        """
        limit = self._options.max_line_bytes
        entry = (encode(message, "message", limit), None if extra is None else encode(extra, "extra", limit), None)
        entries = (entry,) if self._storable.redacting is None else self._storable.one(entry)
        if if_head is not None:
            arguments.require_head("if_head", if_head)
        return self._guard.append(entries, if_head, in_group=self._options.sync_appends)[0]

    def append_messages(
        self,
        messages: Iterable[Mapping[str, Any] | EncodedMessage | None],
        *,
        extras: Iterable[Mapping[str, Any] | EncodedMessage | None] | None = None,
        times: Iterable[str | datetime | None] | None = None,
        if_head: str | None = None,
    ) -> tuple[AppendResult, ...]:
        """Append several messages as one: after a crash all of them are stored or none. One write, one sync.

        An empty batch writes nothing.

        Args:
            messages: JSON objects in the provider's own form. None is a record without a message, an event: it has an
                extra. An ``EncodedMessage`` (``transcript_store.messages``), here and in ``extras``, is not checked and
                encoded again.
            extras: one entry for each message, or None for no extras.
            times: when each message was, or None for now: one entry for each message. A time is text of RFC 3339 or an
                aware ``datetime``, and None is now. A record's time is never later than now, nor before the record
                before it.
            if_head: as in :meth:`append_message`.

        Raises:
            ValueError: there are not as many extras, or times, as messages.
            InvalidMessageError: also for a time that is not valid; ``member`` names it (``times[2]``). Nothing was written.
            TranscriptStoreError: as :meth:`append_message`.
        """
        return tuple(self._append(self._storable.entries(messages, extras, times), if_head))

    def append_event(self, extra: Mapping[str, Any], *, if_head: str | None = None) -> AppendResult:
        """Append a record without a message: ``get_messages()`` skips it, ``get_records()`` shows it.

        For what happens between messages: a marker, or a tool's result before its turn is complete. ``if_head`` is as in
        :meth:`append_message`.

        Raises:
            TranscriptStoreError: as :meth:`append_message`.
        """
        entry = None, encode(extra, "extra", self._options.max_line_bytes), None
        return self._append(self._storable.one(entry), if_head)[0]

    def retract(self, n: int = 1, *, if_head: str | None = None) -> AppendResult:
        """Retract the last ``n`` messages; on return that is as durable as an append.

        It appends one record, which says that those messages do not count, and costs as much as any append.
        ``get_messages()``, snapshots, forks, pages, exports and searches leave them out. Nothing is removed:
        ``get_records()`` shows the messages, marked (``is_retracted``), and the record that retracted them
        (``retracts``); so does ``jq``. Events among the messages stay. (To remove a secret, see
        :meth:`delete_generation`.)

        If the call is interrupted (Ctrl-C), the messages are retracted or not; the next call finds out. With
        ``if_head`` the same call can then be repeated: it never retracts more.

        Args:
            n: how many live messages, from the end. If a tool call stays and its result is retracted, a warning is
                logged (``transcript_store.storage``): providers refuse such a history until the result is appended
                again. :meth:`retract_turn` keeps calls and results together.
            if_head: as in :meth:`append_message`. It makes sure that you have seen the messages.

        Returns:
            What was appended, as :meth:`append_message`.

        Raises:
            FeatureNotEnabledError: messages of the live generation cannot be retracted: it did not start with
                ``features=["retract"]``. Nothing was written; the next generation can have it.
            ValueError: there are fewer messages. Nothing was written.
            TranscriptStoreError: as :meth:`append_message`, and as :meth:`get_messages`, since the messages are read.
        """
        arguments.require_count("n", n, least=1)
        if if_head is not None:
            arguments.require_head("if_head", if_head)
        with self._guard.locked():
            storage = self._guard.writer()
            if if_head is not None:
                storage.require_head(if_head)
            return storage.retract(n)

    def retract_turn(self, *, if_head: str | None = None) -> AppendResult:
        """Retract the last turn: the user's last prompt, and all replies, calls and results that follow it.

        It is :meth:`retract` for those messages: one append, and nothing is removed. Messages before the prompt stay.

        Args:
            if_head: as in :meth:`append_message`.

        Returns:
            What was appended, as :meth:`append_message`.

        Raises:
            FeatureNotEnabledError: as :meth:`retract`.
            ValueError: there is no prompt: every user message holds only results of tools. Nothing was written.
            TranscriptStoreError: as :meth:`retract`.
        """
        if if_head is not None:
            arguments.require_head("if_head", if_head)
        with self._guard.locked():
            storage = self._guard.writer()
            if if_head is not None:
                storage.require_head(if_head)
            return storage.retract_turn()

    def replace_transcript(
        self,
        /,
        messages: Iterable[Mapping[str, Any] | EncodedMessage | None],
        *,
        extras: Iterable[Mapping[str, Any] | None] | None = None,
        times: Iterable[str | datetime | None] | None = None,
        if_head: str | None = None,
        features: Sequence[Feature] | None = None,
        **metadata_changes: Unpack[MetadataUpdate],
    ) -> None:
        """Replace all messages, and change metadata, in one commit: after a crash either the old ones are stored or the
        new ones.

        Compaction: ``replace_transcript(shorter, compaction_count=n)``. Rewind (undo):
        ``replace_transcript(conversation.get_messages()[:n])``. The old messages stay readable in ``archive/``
        (``transcript-000000.jsonl`` is the first generation). On return the change survives a power loss, whatever the
        ``durability``.

        Args:
            messages: JSON objects in the provider's own form, or None for an event, as in :meth:`append_messages`.
            extras: one entry for each message, or None: then the new records have no extras.
            times: as in :meth:`append_messages`, or None: then the new records have the time of the replace. The first
                time is when the new generation started.
            if_head: as in :meth:`append_message`: a message appended since you read would be replaced too.
            features: more features for the new generation, as in :class:`NewConversation`. It keeps those of the old one.
            metadata_changes: as in :meth:`update_metadata`. ``provider`` may also change to any other one: the new
                messages have its form.

        Raises:
            TranscriptStoreError: as :meth:`append_message` and :meth:`update_metadata`. The old messages are unchanged.
        """
        # All messages are checked and encoded before the store is touched: a refused one changes nothing.
        entries = self._storable.entries(messages, extras, times)
        self._next_generation(
            lambda writer, *given: writer.replace(entries, *given),
            if_head,
            features,
            metadata_changes,
            with_messages=True,
        )

    def keep_records(
        self,
        /,
        seqs: Iterable[int],
        *,
        changed: Mapping[int, tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]] | None = None,
        if_head: str | None = None,
        features: Sequence[Feature] | None = None,
        restored_from: Mapping[str, Any] | None = None,
        **metadata_changes: Unpack[MetadataUpdate],
    ) -> None:
        """Keep only these records of the live generation, in their order, and archive the rest, in one commit.

        For a rewind or a compaction that keeps times, extras and events: each record is copied byte for byte and gets a
        new number, from 1. Omitted records stay readable in ``archive/``, as after :meth:`replace_transcript`. On
        return the change survives a power loss, whatever the ``durability``; after a crash before that, either the old
        records are stored or the kept ones.

        A retracted message (:meth:`retract`) stays retracted if the record that retracted it is kept. Without that
        record it is live again.

        Args:
            seqs: the numbers of the records to keep; ``range(1, n + 1)`` for the first n.
            changed: by number, another message and another extra for some of them; None leaves it out. Such a record
                keeps its time and its retraction. Use it to remove a secret; then delete the generation that this call
                archives.
            if_head: as in :meth:`append_message`: a record appended since you chose would be left out too.
            features: as in :meth:`replace_transcript`.
            restored_from: another value of ``get_metadata().restored_from``, without a secret; None leaves it.
            metadata_changes: as in :meth:`update_metadata`.

        Raises:
            ValueError: a number has no record, a changed record is not among the kept ones, or a retraction would get a
                message. Nothing was written.
            TranscriptStoreError: as :meth:`append_message`, :meth:`update_metadata` and :meth:`get_records`. The old
                records are unchanged.
        """
        numbers = arguments.record_numbers(seqs)
        given = dict(changed or {})
        if not_kept := [seq for seq in given if seq not in numbers]:
            raise ValueError(f"record {not_kept[0]} is to be changed but is not kept: add its number to seqs")
        entries = self._storable.entries([one for one, _ in given.values()], [extra for _, extra in given.values()])
        contents = dict(zip(given, entries, strict=True))
        origin = self._storable.fields({} if restored_from is None else {"restored_from": restored_from})
        self._next_generation(
            lambda writer, members, enabled: writer.keep(numbers, contents, {**members, **origin}, enabled),
            if_head,
            features,
            metadata_changes,
        )

    def update_metadata(self, /, **changes: Unpack[MetadataUpdate]) -> None:
        """Change ``model``, ``compaction_count``, ``system_prompt``, ``tools``, ``labels``, ``title``, or ``provider``.

        All changes are made or none, and they are durable on return. ``tools`` are replaced whole. ``labels`` are
        merged with the stored ones: ``labels={"pinned": "yes", "draft": None}`` sets one, removes another and keeps the
        rest. ``replace_labels={…}`` replaces all of them. ``title`` is the label ``title``. Without changes nothing is
        written.

        Raises:
            TypeError: a name that cannot be changed, or a provider whose messages have another form. (``openai`` and
                ``openai-compatible`` have the same.) :meth:`replace_transcript` changes both in one commit.
            InvalidMetadataError: a field cannot have this value. Nothing was written.
            TranscriptStoreError: as :meth:`append_message`.
        """
        checked = self._storable.changes(changes)
        with self._guard.locked():
            storage = self._guard.writer()
            if checked.fields:
                storage.write_metadata(arguments.changed(storage.members, checked))

    def set_title(self, title: str | None) -> None:
        """Set the label ``title``, which lists, pages and searches show; None removes it. Other labels stay. Durable on
        return.

        Raises:
            InvalidMetadataError: it is not text. Nothing was written.
            TranscriptStoreError: as :meth:`update_metadata`.
        """
        self.update_metadata(title=title)

    def delete_generation(self, generation: int) -> None:
        """Remove an earlier generation from ``archive/`` permanently: messages that only it had are lost.

        To remove a secret: ``replace_transcript`` without it, delete the generations that have it, and
        ``purge_quarantine()``. On return the file is removed, also after a power loss. (The disk may keep its blocks.)

        Raises:
            GenerationNotFoundError: there is no such generation; the message lists the existing ones.
            ValueError: it is the live generation; ``replace_transcript()`` first.
            TranscriptStoreError: as :meth:`append_message`.
        """
        arguments.require_count("generation", generation)
        with self._guard.locked():
            self._guard.writer().delete_generation(generation)

    def purge_quarantine(self) -> int:
        """Remove the bytes that recovery and repairs put into quarantine; returns how many files there were.

        On return they are removed, also after a power loss.

        Raises:
            TranscriptStoreError: as :meth:`append_message`.
        """
        with self._guard.locked():
            return self._guard.writer().purge_quarantine()

    def _next_generation(
        self,
        write: Callable[[Writer, dict[str, Any], Sequence[str]], None],
        if_head: str | None,
        features: Sequence[Feature] | None,
        metadata_changes: MetadataUpdate,
        *,
        with_messages: bool = False,
    ) -> None:
        """Archive the live generation, and start the next one with ``write``: one commit.

        ``with_messages`` means that all messages are new, so they may have another provider's form.
        """
        if if_head is not None:
            arguments.require_head("if_head", if_head)
        changes = self._storable.changes(metadata_changes)
        enabled = arguments.features(features)
        with self._guard.locked():
            storage = self._guard.writer()
            members = arguments.changed(storage.members, changes, with_messages=with_messages)
            self._guard.group_commit.resolve(storage)
            if if_head is not None:
                storage.require_head(if_head)
            write(storage, members, enabled)

    def _append(self, entries: Sequence[Entry], if_head: str | None) -> Sequence[AppendResult]:
        if if_head is not None:
            arguments.require_head("if_head", if_head)
        return self._guard.append(entries, if_head, in_group=self._options.sync_appends)
