"""One conversation: a metadata document and an append-only transcript, written by one process, read by many.

.. code-block:: python

    from transcript_store import ConversationStore

    with ConversationStore("agent/main") as conversation:
        conversation.load_or_initialize(provider="claude", model="claude-opus-4-8")
        conversation.append_message({"role": "user", "content": "Where were we?"})   # on disk when this returns
        messages = conversation.get_messages()                                       # fresh copies, ready to send
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, NoReturn, Self, TypedDict, Unpack

from transcript_store._conversation import metadata as _metadata
from transcript_store._conversation.archive import Generation
from transcript_store._conversation.group_commit import GroupCommit
from transcript_store._conversation.layout import occupant
from transcript_store._conversation.metadata import ConversationMetadata
from transcript_store._conversation.storage import RefreshResult, Storage
from transcript_store._json.strict import EncodedMessage, encode, fitted
from transcript_store._log.log import AppendResult, Entry, Recovery
from transcript_store._log.record import Gap, Record
from transcript_store._os import filesystem
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import new_id
from transcript_store.errors import (
    ConversationExistsError,
    ConversationNotFoundError,
    ConversationNotLoadedError,
    ProviderMismatchError,
    ReadOnlyError,
)
from transcript_store.ways_out import WayOut

logger = logging.getLogger("transcript_store.conversation")

__all__ = [
    "AppendResult",
    "ConversationMetadata",
    "ConversationState",
    "ConversationStore",
    "Gap",
    "Generation",
    "HeldConversation",
    "NewConversation",
    "Record",
    "Recovery",
    "RefreshResult",
    "TranscriptPosition",
]

Durability = Literal["power-loss", "process-crash"]
DEFAULT_MAX_LINE_BYTES = 64 * 2**20
DEFAULT_CACHE_BYTES = 8 * 2**20


class NewConversation(TypedDict, total=False):
    """What a conversation can begin with; what is left out is None, or nothing."""

    provider: str | None
    """Whose form the messages have: ``claude``, ``openai``, ``openai-compatible``, ``gemini``, or a name of your own."""
    model: str | None
    system_prompt: str | None
    tools: Sequence[Mapping[str, Any]] | None
    """JSON objects with ``name``, ``description`` and ``parameters`` (a JSON schema)."""
    labels: dict[str, str] | None
    """Texts of your own; ``ConversationLibrary.list()`` shows ``labels["title"]`` as the title."""
    messages: Iterable[Mapping[str, Any]]
    extras: Iterable[Mapping[str, Any] | None] | None
    """One for each message."""


class TranscriptPosition(NamedTuple):
    """Where a transcript ends: how many records it has, and the hash of the last one (of the header, if there is none).

    The hash covers every record before it, and the generation. So two equal positions are the same transcript.
    """

    seq: int
    head: str


class ConversationState(NamedTuple):
    """A conversation at one moment: no append and no change of the metadata stands between its parts."""

    metadata: ConversationMetadata
    records: list[Record]
    position: TranscriptPosition
    at_start: ConversationMetadata
    """The metadata as the transcript's first line has it: what it was when the live generation began."""


class HeldConversation(NamedTuple):
    """A conversation that does not change while it is read: :class:`ConversationState` for any number of records."""

    metadata: ConversationMetadata
    records: Iterator[Record]
    """All records, once; each is decoded when it is asked for."""
    position: TranscriptPosition
    at_start: ConversationMetadata


class ConversationStore:
    """A conversation in a directory of its own.

    ``durability`` says what an append survives once it has returned:

    * ``"power-loss"`` (the default): the end of the process and of the machine. Each append is one write and one sync.
    * ``"process-crash"``: the end of the process. Appends are written, not synced; after a power cut ``load()`` gives a
      prefix of what was appended, or refuses.

    ``read_only=True`` takes no lock, changes nothing, and works beside a writer and on a read-only mount.
    ``lock_timeout_seconds`` is how long to wait for another writer. ``max_line_bytes`` bounds what can be appended, never
    what can be read. ``cache_bytes`` bounds what is kept in memory: the newest lines; older ones are read from the disk when
    they are asked for, and verified again. ``file_system`` is for tests (``transcript_store.testing``).

    May be used from several threads: every call is atomic, ``seq`` is the order; appends that wait for the disk at the same
    time share one write and one sync. Belongs to the process that loaded it:
    after a fork the child must open it anew. Making one touches nothing; call ``load()``, ``initialize()`` or
    ``load_or_initialize()`` first.

    Besides what it documents, every call raises ``TypeError`` and ``ValueError`` for arguments that are none,
    ``ConversationNotLoadedError`` before a load and after a ``close()``, and ``RuntimeError`` within another call of the
    same thread (a signal handler); what changes anything, ``ConversationLockedError`` if the lock was taken away, and after
    a call that was interrupted any call may find damage: ``CorruptTranscriptError``, ``CorruptMetadataError``.
    """

    def __init__(
        self,
        directory: filesystem.AnyPath,
        *,
        durability: Durability = "power-loss",
        read_only: bool = False,
        lock_timeout_seconds: float = 0.0,
        max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        file_system: FileSystem | None = None,
    ) -> None:
        if durability not in ("power-loss", "process-crash"):
            raise ValueError(f"durability must be 'power-loss' or 'process-crash', not {durability!r}")
        try:
            is_a_time = lock_timeout_seconds >= 0
        except TypeError:
            kind = type(lock_timeout_seconds).__name__
            raise TypeError(f"lock_timeout_seconds must be a number, not {kind}") from None
        if not is_a_time:
            raise ValueError(f"lock_timeout_seconds must be 0 or more, not {lock_timeout_seconds!r}")
        if type(max_line_bytes) is not int or max_line_bytes < 1024:
            raise ValueError(f"max_line_bytes must be an int of at least 1024, not {max_line_bytes!r}")
        if type(cache_bytes) is not int or cache_bytes < 0:
            raise ValueError(f"cache_bytes must be an int from 0, not {cache_bytes!r}")
        self._path = filesystem.absolute_path(directory)
        self._files = filesystem.REAL if file_system is None else file_system
        self._durability = durability
        self._read_only = read_only
        self._lock_timeout_seconds = lock_timeout_seconds
        self._max_line_bytes = max_line_bytes
        self._cache_bytes = cache_bytes
        self._storage: Storage | None = None
        self._loaded_by: int | None = None
        self._process_id = self._files.process_id()
        self._mutex = threading.RLock()
        self._group_commit = GroupCommit(self._mutex)
        self._on_close: dict[object, Callable[[], object]] = {}

    @property
    def directory(self) -> str:
        """The absolute path of the conversation's folder."""
        return self._path

    @property
    def max_line_bytes(self) -> int:
        """How long a line of the transcript may be, in bytes: a message, its extra and about 200 bytes around them."""
        return self._max_line_bytes

    # ---- begin and end -------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether ``initialize()`` would refuse: a conversation is there or around it, or a damaged one, or something else.

        Raises ``StorageError`` if the folder cannot be looked at.
        """
        return occupant(self._files, self._path) is not None

    def initialize(self, *, id: str | None = None, **contents: Unpack[NewConversation]) -> None:
        """Create the conversation, with its first messages if there are any, and leave it loaded.

        On return all of it survives a power cut, whatever the ``durability``; before, all of it or nothing does. Missing
        parent folders are made. ``contents`` are the members of :class:`NewConversation`, none of which must be given; ``id``
        is a canonical lower-case UUID, a new random one if none is given.

        Raises ``ConversationExistsError`` if anything is there already, or the folder is inside another conversation's (then
        nothing was touched),
        ``ConversationLockedError`` if another process is creating it right now, ``InvalidMessageError``,
        ``InvalidMetadataError``, ``InvalidIdError``, ``ReadOnlyError``, and ``StorageError`` if the disk refuses.
        """
        if id is not None:
            _metadata.checked_id(id)
        fields, entries = self._new(contents)
        with self._exclusively():
            self._refuse_read_only()
            self._initialize(fields, entries, id)

    def load(self, *, verify: Literal["all", "tail"] = "all") -> None:
        """Open the conversation: verify every line, recover a torn tail, take the writer's lock.

        With ``verify="tail"`` the cost does not grow with what was stored before the last mark (a clean ``close()``, a
        load, a change of metadata, each thousandth record that is synced): of that only the end is read, and checked
        against the mark. The rest is read and verified, once, when it is asked for: by ``get_messages()`` without ``last``
        or with one that reaches so far, ``get_records()``, ``replace_transcript()``, a snapshot. Those may then raise
        ``CorruptTranscriptError`` for damage that ``load()`` would have refused.

        On return ``recovery`` says what recovery did, and everything that ``get_messages()`` shows is on the medium (not
        with ``read_only=True``: a reader takes no lock, changes nothing, and passes over an unfinished tail). A store that
        is loaded already is closed and opened anew; after a ``PoisonedError`` that is the way on.

        Raises ``ConversationNotFoundError`` (nothing is there), ``ConversationLockedError`` (another writer; it says
        which), ``CorruptTranscriptError`` and ``CorruptMetadataError`` (nothing was touched; see ``verify``),
        ``UnsupportedVersionError``, and ``StorageError`` if the disk refuses.
        """
        tail_only = _wants_the_tail_only(verify)
        with self._exclusively():
            self._load(tail_only=tail_only)

    def load_or_initialize(
        self, *, verify: Literal["all", "tail"] = "all", **contents: Unpack[NewConversation]
    ) -> bool:
        """Load the conversation, or create it as ``initialize()`` does if there is none; True if it was created.

        What is on record wins: an existing conversation keeps its model, prompt and messages, whatever is given here. What is
        given and differs is named in a warning, once in a process, unless it is messages: ``update_metadata`` changes it.
        ``verify`` is as in :meth:`load`. Of two processes that race one creates, and the other loads or meets the lock.
        Raises what those two raise.
        """
        tail_only = _wants_the_tail_only(verify)
        fields, entries = self._new(contents)
        with self._exclusively():
            created = self._load_or_initialize(fields, entries, tail_only=tail_only)
            if not created and (names := _metadata.differing(fields, self._readable().members)):
                _warn_of_what_differs(self._path, ", ".join(names))
        return created

    def _load_or_initialize(self, fields: dict[str, Any], entries: list[Entry], *, tail_only: bool) -> bool:
        while True:
            try:
                self._load(tail_only=tail_only)
                return False
            except ConversationNotFoundError:
                if self._read_only:
                    raise
            try:
                self._initialize(fields, entries)
                return True
            except ConversationExistsError as occupied:
                # Another process was faster, so there is something to load; it may be gone again when we do.
                if occupant(self._files, self._path) is None:
                    continue
                try:
                    self._load(tail_only=tail_only)
                except ConversationNotFoundError:
                    raise occupied from None  # nothing to load, and nothing can be created here: this says why
                return False

    def close(self) -> None:
        """Sync, note how far, release the lock. Closing twice, or before a load, does nothing.

        A store with a failed sync behind it is only let go of: nothing more is written. Raises ``StorageError`` if
        unsynced messages (``durability="process-crash"``) cannot be synced; the lock is released all the same.
        """
        try:
            for callback in list(self._on_close.values()):
                callback()
        finally:
            with self._exclusively():
                self._close()

    def on_close(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call ``callback()`` whenever ``close()`` begins, while the store still takes appends; returns what undoes this.

        For whoever has something to record at the end. The store keeps a reference to the callback until it is undone,
        which may be done at any time, in any thread, more than once. What a callback raises comes out of ``close()``; the
        store is closed anyway, and later callbacks are not called.
        """
        key = object()
        self._on_close[key] = callback
        # Nothing but a dictionary: the garbage collector may run this, in the middle of another call of the store.
        return partial(self._on_close.pop, key, None)  # type: ignore[return-value]

    def __del__(self) -> None:
        """Let go of the lock if this was forgotten; nothing is written, and everything acknowledged is stored already."""
        storage = getattr(self, "_storage", None)
        if storage is not None and storage.is_open and self._files.process_id() == self._process_id:
            with suppress(BaseException):
                storage.let_go()
            warnings.warn(
                f"a ConversationStore on {self._path} was not closed; use `with`",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def __repr__(self) -> str:
        return f"ConversationStore({self._path!r})"

    def __reduce__(self) -> NoReturn:
        # copy.copy() asks this too: a copy would own the lock as well, and free it when it is collected.
        raise TypeError(
            "a ConversationStore cannot be pickled or copied, as it holds a lock: open another one, or fork()"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- write ---------------------------------------------------------------------------------------------------

    def append_message(self, message: Mapping[str, Any], *, extra: Mapping[str, Any] | None = None) -> AppendResult:
        """Append one message; on return it is as durable as the store was opened for.

        ``message`` is a JSON object (a ``dict``, a ``TypedDict``) in the provider's own form; ``extra`` is a JSON object of
        the caller's that belongs to it but is not sent (usage, response id). Both are copied. Cost: one write and one sync,
        at any length of the conversation; with each thousandth record that is synced, metadata.json is written too.
        Returns the record's seq, time, offset and length in bytes, its hash, and the hash of what stands before it.

        Raises ``InvalidMessageError`` (nothing was written), ``StorageError`` (the disk refused: its message says what
        holds), ``PoisonedError`` (a sync failed before: ``load()`` anew), ``ReadOnlyError``, and
        ``CorruptTranscriptError`` of kind ``replaced`` or ``truncated`` if another file took the transcript's place, or
        somebody cut it. If anything else is
        raised (Ctrl-C), the message is stored whole or not at all, and the next call finds out which.
        """
        limit = self._max_line_bytes
        entry = (encode(message, "message", limit), None if extra is None else encode(extra, "extra", limit))
        return self._append((entry,))[0]

    def append_messages(
        self, messages: Iterable[Mapping[str, Any]], *, extras: Iterable[Mapping[str, Any] | None] | None = None
    ) -> tuple[AppendResult, ...]:
        """Append several messages as one: after a crash all of them are there or none is. One write, one sync.

        ``extras``, if given, has one entry for each message (``ValueError`` otherwise). An empty batch writes nothing.
        Raises what :meth:`append_message` does.
        """
        entries = self._entries(messages, extras)
        if not entries:
            with self._exclusively():
                self._writable()
            return ()
        return tuple(self._append(entries))

    def append_event(self, extra: Mapping[str, Any]) -> AppendResult:
        """Append a record without a message: ``get_messages()`` skips it, ``get_records()`` shows it.

        For what happened between messages (a marker, a tool's result before its turn is complete). Raises what
        :meth:`append_message` does.
        """
        encoded = encode(extra, "extra", self._max_line_bytes)
        return self._append([(None, encoded)])[0]

    def replace_transcript(
        self,
        messages: Iterable[Mapping[str, Any]],
        *,
        extras: Iterable[Mapping[str, Any] | None] | None = None,
        **metadata_changes: Any,
    ) -> None:
        """Replace all messages, and change metadata, in one commit: after a crash the old ones are there or the new ones.

        Compaction: ``replace_transcript(shorter, compaction_count=n)``. Rewind (undo):
        ``replace_transcript(conversation.get_messages()[:n])``. What was there stays readable in
        ``archive/`` (``transcript-000000.jsonl`` is the first generation). The new records get the time of the replace, and
        no extras but those given. On return the change survives a power cut, whatever the ``durability``. ``metadata_changes`` as in
        :meth:`update_metadata`. Raises what :meth:`append_message` does; until then the old messages are in place.
        """
        entries = self._entries(messages, extras)
        changes = self._changes(metadata_changes)
        with self._exclusively():
            storage = self._writable()
            changed = self._changed(storage, changes)
            self._group_commit.settle(storage)
            storage.replace(entries, changed)

    def restore(
        self,
        messages: Iterable[Mapping[str, Any] | EncodedMessage],
        *,
        provider: str | None = None,
        extras: Iterable[Mapping[str, Any] | None] | None = None,
        restored_from: Mapping[str, Any] | None = None,
        **metadata_changes: Any,
    ) -> None:
        """Make the conversation hold these messages, and this metadata, in one commit; it is loaded on return.

        If there is no conversation, it is created with an id of its own. If there is one, it is loaded unless it is, and its
        transcript is replaced as :meth:`replace_transcript` does it. On return all of it survives a power loss; before,
        what was there is untouched. ``provider`` is whose form the messages have: a conversation without a provider
        gets it, any other keeps its own. A message that is an ``EncodedMessage`` (``transcript_store.messages``) is not checked
        and encoded again. ``restored_from`` is a JSON object that says where they come from;
        ``get_metadata().restored_from`` gives it back. ``metadata_changes`` as in :meth:`update_metadata`.

        Raises:
            ProviderMismatchError: the conversation's messages have another provider's form; nothing was changed.
            TranscriptStoreError: what :meth:`load`, :meth:`initialize` and :meth:`replace_transcript` raise.
        """
        entries = self._entries(messages, extras)
        changes = self._changes(metadata_changes)
        origin = {} if restored_from is None else {"restored_from": restored_from}
        origin = _metadata.checked_fields(origin, self._max_line_bytes)
        given = _metadata.checked_fields({"provider": provider}, self._max_line_bytes)
        with self._exclusively():
            self._refuse_read_only()
            if self._storage is None or not self._storage.is_open:
                try:
                    self._load()
                except ConversationNotFoundError:
                    self._initialize({**changes, **given, **origin}, entries)
                    return
            storage = self._readable()
            recorded = storage.members.get("provider")
            if recorded is None:
                changes.update(given)
            elif _metadata.family(provider or "") != _metadata.family(recorded):
                raise ProviderMismatchError(recorded_provider=provider or "", provider=recorded)
            changed = self._changed(storage, changes)
            changed.pop("restored_from", None)
            self._group_commit.settle(storage)
            storage.replace(entries, {**changed, **origin})

    def update_metadata(self, **changes: Any) -> None:
        """Change ``model``, ``compaction_count``, ``system_prompt``, ``tools``, ``labels``, or ``provider``.

        A provider that is set changes only to one with the same messages (``openai``, ``openai-compatible``). All or
        nothing, and durable on return; without changes nothing is written. ``labels`` and ``tools`` are replaced whole.
        Raises ``TypeError`` for any other name (and provider), ``InvalidMetadataError`` for a value of another type, and
        what :meth:`append_message` does.
        """
        checked = self._changes(changes)
        with self._exclusively():
            storage = self._writable()
            if checked:
                storage.write_metadata(self._changed(storage, checked))

    def delete_generation(self, generation: int) -> None:
        """Remove an earlier generation from ``archive/`` for good: all messages that only it had are gone.

        For a secret that must not be kept: ``replace_transcript`` without it, delete the generations that have it, and
        ``purge_quarantine()``. On return the file is removed and does not come back after a power cut (the disk may keep
        its blocks). Raises ``GenerationNotFoundError``, ``ValueError`` for the live generation, and what
        :meth:`append_message` does.
        """
        _refuse_generation(generation)
        with self._exclusively():
            self._writable().delete_generation(generation)

    def purge_quarantine(self) -> int:
        """Remove what recovery and repairs took out of the transcript and kept; returns how many pieces there were.

        On return they do not come back after a power cut. Raises what :meth:`append_message` does.
        """
        with self._exclusively():
            return self._writable().purge_quarantine()

    # ---- read ----------------------------------------------------------------------------------------------------

    def get_messages(self, *, last: int | None = None) -> list[dict[str, Any]]:
        """The messages in order, or only the ``last`` so many: fresh copies, the caller's to change.

        Costs a decode of what is returned, not of the rest. Lines that are not in memory are read and verified again. Raises
        ``CorruptTranscriptError`` if they are damaged now, and ``StorageError`` if the disk refuses; newer messages can
        still be read with ``last``.
        """
        with self._exclusively():
            return self._readable(last).log.messages(last)

    def get_records(self, *, last: int | None = None, generation: int | None = None) -> list[Record]:
        """The records in order, or only the ``last`` so many: seq, time, message and extra; fresh copies.

        With a ``generation`` those that it had when it was replaced: what a compaction left out, or an undo dropped, is
        here. That costs a read of its file. Raises ``GenerationNotFoundError`` and, if the file is damaged,
        ``CorruptTranscriptError``.
        """
        _refuse_generation(generation)
        with self._exclusively():
            storage = self._readable(last)
            if generation is None:
                return storage.log.records(last)
            with storage.archived(generation) as log:
                return log.records(last)

    def generations(self) -> list[Generation]:
        """Every generation that there is, the oldest first and the live one last: number, when, records, head.

        A generation ends with a ``replace_transcript`` and stays in ``archive/`` until :meth:`delete_generation`. Costs a
        read and a SHA-256 of the archive; one that is damaged says so in ``damage``. A number is missing where the
        generation was deleted, or was damaged and repaired (then the damaged file is in ``quarantine/``).
        """
        with self._exclusively():
            return self._readable().generations()

    def get_metadata(self, *, at_start: bool = False) -> ConversationMetadata:
        """What the conversation is: a frozen value and a fresh copy.

        With ``at_start`` what it was when its live generation began, as the first line of the transcript has it.
        """
        with self._exclusively():
            storage = self._readable()
            return _metadata_at_start(storage) if at_start else _metadata_now(storage)

    @property
    def id(self) -> str:
        """The conversation's id, a canonical lower-case UUID: the same in every generation and copy, another in a fork."""
        with self._exclusively():
            return str(self._readable().members["id"])

    @property
    def position(self) -> TranscriptPosition:
        """How many records the live generation has, and the hash of the last one, in one call; costs nothing.

        Equal to an earlier position as long as nobody appended or replaced anything: ``AppendResult.previous_head`` tells
        whether an append stands directly behind a position.
        """
        with self._exclusively():
            return _position(self._readable())

    @property
    def record_count(self) -> int:
        """How many records the live generation has, events included; costs nothing."""
        return self.position.seq

    @property
    def head(self) -> str:
        """The hash of the last record, 32 hex digits: a fingerprint of the whole transcript.

        Kept elsewhere it shows any later change of the history. It is not keyed: who can write the file can compute it.
        """
        return self.position.head

    def state(self) -> ConversationState:
        """Metadata, records and position of one moment, whatever other threads append: what a copy is made of.

        As :meth:`held`, with all records in memory.
        """
        with self.held() as (metadata, records, position, at_start):
            return ConversationState(metadata, list(records), position, at_start)

    @contextmanager
    def held(self) -> Iterator[HeldConversation]:
        """Hold the conversation still and read it record by record, however long it is; use ``with``.

        Metadata, records and position are of one moment, and ``at_start`` is the metadata when the live generation began. Until
        the block ends, calls of other threads wait, and a call on this store within the block raises ``RuntimeError``.

        What is read is on stable storage. Appends that were not synced are synced first. A reader is refreshed, because it may
        have been shown what its writer was told is not stored.

        Raises:
            TranscriptStoreError: what :meth:`get_records` raises, also while the records are read.
        """
        with self._exclusively():
            storage = self._readable()
            storage.settle_to_copy()
            yield HeldConversation(
                _metadata_now(storage), storage.log.each_record(), _position(storage), _metadata_at_start(storage)
            )

    @property
    def recovery(self) -> Recovery | None:
        """What recovery did to the transcript's end, at ``load()`` or after an interrupted call; None if nothing."""
        with self._exclusively():
            return self._readable().log.recovery

    @property
    def is_fully_verified(self) -> bool:
        """Whether every line was verified since the load: False after ``load(verify="tail")``, until all of it was read."""
        with self._exclusively():
            return self._readable().log.is_fully_verified

    @property
    def torn_tail(self) -> Gap | None:
        """For a reader: the bytes behind the last whole record, which it passed over; None if there are none.

        A crash left them, or a writer is writing them now. The next load that may write cuts them, and keeps them in
        ``quarantine/``. A writer has no torn tail: ``recovery`` says what it cut.
        """
        with self._exclusively():
            return self._readable().log.torn_tail

    def refresh(self) -> RefreshResult:
        """For a reader: read what a writer added since, the metadata too.

        Returns how many records were added, and whether the transcript was read from its start again (after a replace,
        or when what was read before is not there any more): then ``records_added`` counts all of it. A writer is always
        up to date. Raises what ``load()`` does.
        """
        with self._exclusively():
            storage = self._readable()
            return storage.refresh() if self._read_only else RefreshResult(0, False)

    # ---- within --------------------------------------------------------------------------------------------------

    def _exclusively(self) -> threading.RLock:
        """The mutex that makes a call atomic, for a ``with`` statement."""
        if self._files.process_id() != self._process_id:
            # A forked child. The handles are its parent's, and closed here already; the mutex may be held for ever.
            self._storage = None
            self._loaded_by, self._process_id = self._process_id, self._files.process_id()
            self._mutex = threading.RLock()
            self._group_commit = GroupCommit(self._mutex)
        if self._mutex._is_owned():  # type: ignore[attr-defined]  # what threading.Condition asks it
            raise RuntimeError("a call on this ConversationStore is under way in this thread (a signal handler?)")
        return self._mutex

    def _append(self, entries: Sequence[Entry]) -> Sequence[AppendResult]:
        mutex = self._exclusively()
        if self._durability == "power-loss":
            return self._group_commit.append(entries, self._writable)
        with mutex:
            return self._writable().append(entries)

    def _load(self, *, tail_only: bool = False) -> None:
        self._begin(Storage.load, tail_only=tail_only)

    def _initialize(self, fields: dict[str, Any], entries: list[Entry], id: str | None = None) -> None:
        if self._storage is not None and self._storage.is_open:
            raise ConversationExistsError(path=self._path, reason="there is a conversation, and it is loaded")
        own_id = id or new_id(self._files)
        self._begin(
            lambda storage: storage.create(lambda at: _metadata.new_members(id=own_id, at=at, **fields), entries)
        )
        if (provider := fields.get("provider")) is not None and provider not in _metadata.PROVIDERS:
            _warn_of_an_unknown_provider(provider)

    def _begin(self, begin: Callable[[Storage], None], *, tail_only: bool = False) -> None:
        self._close()
        self._storage = Storage(
            self._files,
            self._path,
            sync_appends=self._durability == "power-loss",
            read_only=self._read_only,
            lock_timeout_seconds=self._lock_timeout_seconds,
            max_line_bytes=self._max_line_bytes,
            cache_bytes=self._cache_bytes,
            tail_only=tail_only,
        )
        try:
            begin(self._storage)
        except BaseException:
            self._storage.let_go()
            raise

    def _close(self) -> None:
        if self._storage is not None:
            if self._storage.is_open:
                self._storage.close()
            else:
                self._storage.let_go()  # what an interrupted close left

    def _loaded(self) -> Storage:
        if self._storage is not None and not self._storage.is_open:
            raise ConversationNotLoadedError(
                path=self._path, reason="it was closed, or its last load failed", way_out=WayOut.LOAD_ANEW
            )
        if self._storage is None:
            if self._loaded_by is not None:
                reason = f"it was loaded by process {self._loaded_by}, not by its fork"
                raise ConversationNotLoadedError(path=self._path, reason=reason, way_out=WayOut.LOAD_HERE)
            raise ConversationNotLoadedError(path=self._path, reason="it is not loaded yet")
        return self._storage

    def _writable(self) -> Storage:
        storage = self._loaded()
        if self._read_only:
            self._refuse_read_only()
        return storage

    def _refuse_read_only(self) -> None:
        if self._read_only:
            raise ReadOnlyError(path=self._path)

    def _readable(self, last: int | None = None) -> Storage:
        if last is not None and (type(last) is not int or last < 0):
            raise ValueError(f"last must be an int from 0, not {last!r}")
        storage = self._loaded()
        storage.settle()
        return storage

    def _new(self, contents: NewConversation) -> tuple[dict[str, Any], list[Entry]]:
        """The metadata and the records of a conversation that begins with these contents; raises if it cannot."""
        if unknown := contents.keys() - NewConversation.__annotations__.keys():
            raise TypeError(f"a conversation has no {', '.join(sorted(unknown))} to begin with")
        given: dict[str, Any] = {**contents}
        messages, extras = given.pop("messages", ()), given.pop("extras", None)
        return _metadata.checked_fields(given, self._max_line_bytes), self._entries(messages, extras)

    def _entries(
        self,
        messages: Iterable[Mapping[str, Any] | EncodedMessage],
        extras: Iterable[Mapping[str, Any] | None] | None,
    ) -> list[Entry]:
        wrong = TypeError(f"messages must be a list of JSON objects, not {type(messages).__name__}")
        if isinstance(messages, (dict, str, bytes)):
            raise wrong
        try:
            messages = iter(messages)
        except TypeError:
            raise wrong from None
        limit = self._max_line_bytes
        messages = list(messages)
        extras = [None] * len(messages) if extras is None else list(extras)
        if len(extras) != len(messages):
            raise ValueError(f"there are {len(messages)} messages and {len(extras)} extras")
        return [
            (
                message.text
                if isinstance(message, EncodedMessage)
                else fitted(encode(message, f"messages[{k}]", limit)),
                None if extra is None else fitted(encode(extra, f"extras[{k}]", limit)),
            )
            for k, (message, extra) in enumerate(zip(messages, extras, strict=True))
        ]

    def _changes(self, changes: dict[str, Any]) -> dict[str, Any]:
        for name in changes:
            if name not in _metadata.CHANGEABLE:
                raise TypeError(f"cannot change {name!r}; what can change: {', '.join(_metadata.CHANGEABLE)}")
        return _metadata.checked_fields(changes, self._max_line_bytes)

    def _changed(self, storage: Storage, changes: dict[str, Any]) -> dict[str, Any]:
        storage.settle()  # members are what an interrupted call left on the disk, not what memory had before it
        recorded = storage.members.get("provider")
        if recorded is not None and _metadata.family(changes.get("provider", recorded)) != _metadata.family(recorded):
            others = ", ".join(name for name in _metadata.CHANGEABLE if name != "provider")
            raise TypeError(f"cannot change 'provider', which is {recorded!r}; what can change: {others}")
        return {**storage.members, **changes}


@lru_cache(maxsize=1000)  # an agent opens its conversation again and again, always with the same arguments
def _warn_of_what_differs(path: str, names: str) -> None:
    """Log, without values, that arguments do not count; once for a conversation and what differs."""
    logger.warning("%s: what was given as %s differs from what is on record, which stays", path, names)


def _metadata_now(storage: Storage) -> ConversationMetadata:
    return _metadata.public(storage.members, storage.updated_at)


def _metadata_at_start(storage: Storage) -> ConversationMetadata:
    return _metadata.public(storage.log.header.metadata, storage.log.header.at)


def _position(storage: Storage) -> TranscriptPosition:
    end = storage.log.end
    return TranscriptPosition(end.seq, end.head.decode())


@lru_cache(maxsize=100)
def _warn_of_an_unknown_provider(provider: str) -> None:
    """Log that a new conversation names a provider that nothing here knows: once a name, however many are created.

    A misspelled name cannot be told from one of somebody's own, and it can never be changed to another provider's.
    """
    logger.warning(
        "provider %r is none of %s: its messages are kept as they are, and no chat client of ours goes on with them",
        provider[:60],
        ", ".join(_metadata.PROVIDERS),
    )


def _wants_the_tail_only(verify: str) -> bool:
    if verify not in ("all", "tail"):
        raise ValueError(f"verify must be 'all' or 'tail', not {verify!r}")
    return verify == "tail"


def _refuse_generation(number: int | None) -> None:
    if number is not None and (type(number) is not int or number < 0):
        raise ValueError(f"generation must be an int from 0, not {number!r}")
