"""The calls of a store that write to the conversation that it has loaded; ``conversation`` has those that begin and end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from transcript_store._conversation import arguments
from transcript_store._conversation.arguments import Feature, Storable
from transcript_store._conversation.guard import StorageGuard
from transcript_store._conversation.storage import Options
from transcript_store._conversation.writer import Writer
from transcript_store._json.strict import EncodedMessage, encode
from transcript_store._log.log import AppendResult
from transcript_store._log.record import Entry


class Writes:
    """What a store changes of the conversation that it has loaded."""

    _guard: StorageGuard
    _options: Options
    _storable: Storable

    def append_message(
        self, message: Mapping[str, Any], *, extra: Mapping[str, Any] | None = None, if_head: str | None = None
    ) -> AppendResult:
        """Append one message; on return it is as durable as the store was opened for.

        The cost is one write and one sync, however long the conversation is. With each thousandth record that is synced,
        metadata.json is written too. If the call is interrupted (Ctrl-C), the message is stored whole or not at all, and the
        next call finds out which.

        Args:
            message: a JSON object (a ``dict``, a ``TypedDict``) in the provider's own form; it is copied.
            extra: a JSON object of yours that belongs to the message and is not sent (usage, response id); it is copied.
            if_head: append only if ``head`` is still this one, so directly behind what was read when it was. If the call is
                interrupted, give the same again: then the message is never stored twice.

        Returns:
            The record's seq, time, offset and length in bytes, its hash, and the hash of the record before it.

        Raises:
            ConversationChangedError: the transcript does not end in ``if_head``. Nothing was written; read what came, and
                give the head that it ends in.
            InvalidMessageError: JSON, or ``max_line_bytes``, cannot carry it. Nothing was written.
            RedactionError: the store's ``redact`` raised, or gave no message. Nothing was written.
            StorageError: the system refused; the message says what holds and what to do.
            PoisonedError: a sync failed before; ``load()`` shows what the disk holds.
            ReadOnlyError: the store was opened with ``read_only=True``.
            CorruptTranscriptError: another file took the transcript's place (``kind`` is ``replaced``), or somebody cut it
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
        """Append several messages as one: after a crash all of them are there or none is. One write, one sync.

        An empty batch writes nothing.

        Args:
            messages: JSON objects in the provider's own form. None is a record without a message, an event: it has an extra.
                An ``EncodedMessage`` (``transcript_store.messages``), here and in ``extras``, is not checked and encoded again.
            extras: one entry for each message, or None for no extras.
            times: when each message was, or None for now: one entry for each message. A time is text of RFC 3339 or an aware
                ``datetime``, and None is now. A record's time is never later than now, nor before the record before it.
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
        """Take back the last ``n`` messages; on return that is as durable as an append.

        It is an append, and costs as much: a record that says that those messages do not count. ``get_messages()``, snapshots,
        forks, pages, exports and searches leave them out. Nothing is removed: ``get_records()`` shows the messages, marked
        (``is_retracted``), and the record that took them back (``retracts``); so does ``jq``. Events among the messages stay.
        (To remove a secret, see :meth:`delete_generation`.)

        If the call is interrupted (Ctrl-C), the messages are taken back or not; the next call finds out. With ``if_head`` the
        same call can be made again then: it never takes back more.

        Args:
            n: how many messages that were not taken back yet, from the end. If a call of a tool stays and its result is taken back, the
                log says so (``transcript_store.storage``): providers refuse such a history until the result is there again.
                :meth:`retract_turn` keeps calls and results together.
            if_head: as in :meth:`append_message`. It says that the messages are those that you have seen.

        Returns:
            What was appended, as :meth:`append_message`.

        Raises:
            FeatureNotEnabledError: the live generation cannot take messages back: it did not begin with
                ``features=["retract"]``. Nothing was written; the next generation can have it.
            ValueError: there are not so many messages. Nothing was written.
            TranscriptStoreError: as :meth:`append_message`, and as :meth:`get_messages`, since the messages are looked for.
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
        """Take back the last turn: the last prompt of the user, and all replies, calls and results that follow it.

        It is :meth:`retract` of so many messages: one append, and nothing is removed. What was said before the prompt stays as it is.

        Args:
            if_head: as in :meth:`append_message`.

        Returns:
            What was appended, as :meth:`append_message`.

        Raises:
            FeatureNotEnabledError: as :meth:`retract`.
            ValueError: there is no prompt: no message of a user that is more than results of tools. Nothing was written.
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
        **metadata_changes: Any,
    ) -> None:
        """Replace all messages, and change metadata, in one commit: after a crash the old ones are there or the new ones.

        Compaction: ``replace_transcript(shorter, compaction_count=n)``. Rewind (undo):
        ``replace_transcript(conversation.get_messages()[:n])``. The old messages stay readable in ``archive/``
        (``transcript-000000.jsonl`` is the first generation). On return the change survives a power loss, whatever the
        ``durability``.

        Args:
            messages: JSON objects in the provider's own form, or None for an event, as in :meth:`append_messages`.
            extras: one entry for each message, or None: then the new records have no extras.
            times: as in :meth:`append_messages`, or None: then the new records have the time of the replace. The new
                generation began at the first of them.
            if_head: as in :meth:`append_message`: a message that came since you read would be replaced too.
            features: what the new generation can besides, as in :class:`NewConversation`. It can all that the old one can.
            metadata_changes: as in :meth:`update_metadata`. ``provider`` may be any other one too: the new messages have
                its form.

        Raises:
            TranscriptStoreError: as :meth:`append_message` and :meth:`update_metadata`. The old messages are in place.
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
        **metadata_changes: Any,
    ) -> None:
        """Keep only these records of the live generation, in their order, and archive the rest, in one commit.

        For a rewind or a compaction that keeps times, extras and events: each record is copied byte for byte, and numbered
        anew from 1. What is left out stays readable in ``archive/``, as after :meth:`replace_transcript`. On return the change
        survives a power loss, whatever the ``durability``; after a crash before that, the old records are there or the kept ones.

        A message that was taken back (:meth:`retract`) stays so as long as the record is kept that took it back. Without that one
        it counts again.

        Args:
            seqs: the numbers of the records to keep; ``range(1, n + 1)`` for the first n.
            changed: by number, another message and another extra for some of them; a None leaves it out. Such a record keeps its
                time, and takes back what it took back. To take a secret out of what is stored: then delete the generation that
                this call archives.
            if_head: as in :meth:`append_message`: a record that came since you chose would be left out too.
            features: as in :meth:`replace_transcript`.
            metadata_changes: as in :meth:`update_metadata`.

        Raises:
            ValueError: there is no record with one of these numbers, one that is changed is not kept, or it takes
                messages back and is to carry one. Nothing was written.
            TranscriptStoreError: as :meth:`append_message`, :meth:`update_metadata` and :meth:`get_records`. The old records are
                in place.
        """
        numbers = arguments.record_numbers(seqs)
        given = dict(changed or {})
        if not_kept := [seq for seq in given if seq not in numbers]:
            raise ValueError(f"record {not_kept[0]} is to be changed, and is not kept: give its number in seqs")
        entries = self._storable.entries([one for one, _ in given.values()], [extra for _, extra in given.values()])
        contents = dict(zip(given, entries, strict=True))
        self._next_generation(
            lambda writer, *more: writer.keep(numbers, contents, *more), if_head, features, metadata_changes
        )

    def update_metadata(self, /, **changes: Any) -> None:
        """Change ``model``, ``compaction_count``, ``system_prompt``, ``tools``, ``labels``, ``title``, or ``provider``.

        All changes are made or none, and they are durable on return. ``tools`` are replaced whole. ``labels`` are merged with those
        on record: ``labels={"pinned": "yes", "draft": None}`` sets one, removes another and keeps the rest.
        ``replace_labels={…}`` replaces all of them. ``title`` is the label ``title``. Without changes nothing is written.

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
        """Set the label ``title``, which lists, pages and searches show; None removes it. Other labels stay. Durable on return.

        Raises:
            InvalidMetadataError: it is no text. Nothing was written.
            TranscriptStoreError: as :meth:`update_metadata`.
        """
        self.update_metadata(title=title)

    def delete_generation(self, generation: int) -> None:
        """Remove an earlier generation from ``archive/`` for good: messages that only it had are lost.

        To remove a secret: ``replace_transcript`` without it, delete the generations that have it, and
        ``purge_quarantine()``. On return the file is removed, also after a power loss. (The disk may keep its blocks.)

        Raises:
            GenerationNotFoundError: there is no such generation; the message lists those that there are.
            ValueError: it is the live generation; ``replace_transcript()`` first.
            TranscriptStoreError: as :meth:`append_message`.
        """
        arguments.require_count("generation", generation)
        with self._guard.locked():
            self._guard.writer().delete_generation(generation)

    def purge_quarantine(self) -> int:
        """Remove the bytes that recovery and repairs took out and kept; returns how many pieces there were.

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
        metadata_changes: dict[str, Any],
        *,
        with_messages: bool = False,
    ) -> None:
        """Archive the live generation, and begin the next one with ``write``: one commit.

        ``with_messages`` says that all messages are new ones, so that their form may be another provider's.
        """
        if if_head is not None:
            arguments.require_head("if_head", if_head)
        changes = self._storable.changes(metadata_changes)
        enabled = arguments.features(features)
        with self._guard.locked():
            storage = self._guard.writer()
            members = arguments.changed(storage.members, changes, with_messages=with_messages)
            self._guard.group_commit.settle(storage)
            if if_head is not None:
                storage.require_head(if_head)
            write(storage, members, enabled)

    def _append(self, entries: Sequence[Entry], if_head: str | None) -> Sequence[AppendResult]:
        if if_head is not None:
            arguments.require_head("if_head", if_head)
        return self._guard.append(entries, if_head, in_group=self._options.sync_appends)
