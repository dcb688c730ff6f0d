"""One conversation: a metadata document and an append-only transcript, written by one process (or by several in turn), read by many.

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
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Literal, NoReturn, Self, TypedDict, Unpack, get_args

from transcript_store._conversation import arguments
from transcript_store._conversation import metadata as _metadata
from transcript_store._conversation.archive import Generation
from transcript_store._conversation.group_commit import GroupCommit
from transcript_store._conversation.layout import occupant
from transcript_store._conversation.metadata import ConversationMetadata
from transcript_store._conversation.reader import Reader, RefreshResult
from transcript_store._conversation.reads import ConversationState, HeldConversation, Reads, TranscriptPosition
from transcript_store._conversation.storable import Contents, Storable
from transcript_store._conversation.storage import Options, Storage
from transcript_store._conversation.turns import WAIT_SECONDS, TurnWriter
from transcript_store._conversation.writer import Writer
from transcript_store._json.strict import EncodedMessage, encode
from transcript_store._log.log import AppendResult, Recovery
from transcript_store._log.record import Entry, Gap, Record
from transcript_store._os import filesystem
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import new_id
from transcript_store._sealing.providers import EncryptionKey, keyring_of
from transcript_store.errors import (
    ConversationExistsError,
    ConversationNotFoundError,
    ConversationNotLoadedError,
    ProviderMismatchError,
    ReadOnlyError,
)
from transcript_store.ways_out import WayOut

logger: logging.Logger = logging.getLogger("transcript_store.conversation")

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
Verify = Literal["all", "tail"]
Feature = Literal["retract"]
TakeOver = Literal["released"] | bool
Redact = Callable[[dict[str, Any]], dict[str, Any]]
"""From a JSON object, such as a message, to the one that may be stored in its place."""
_DURABILITIES = get_args(Durability)
_WAYS_TO_VERIFY = get_args(Verify)
DEFAULT_MAX_LINE_BYTES = 64 * 2**20
DEFAULT_CACHE_BYTES = 8 * 2**20


class NewConversation(TypedDict, total=False):
    """What a conversation can begin with. Every member may be left out."""

    provider: str | None
    """Whose form the messages have: ``claude``, ``openai``, ``openai-compatible``, ``gemini``, or a name of your own."""
    model: str | None
    system_prompt: str | None
    tools: Sequence[Mapping[str, Any]] | None
    """JSON objects with ``name``, ``description`` and ``parameters`` (a JSON schema)."""
    labels: dict[str, str] | None
    """Texts of your own; ``ConversationLibrary.list()`` shows ``labels["title"]`` as the title."""
    messages: Iterable[Mapping[str, Any] | EncodedMessage | None]
    """None where a record has no message and only an extra (an event)."""
    extras: Iterable[Mapping[str, Any] | EncodedMessage | None] | None
    """One for each message."""
    times: Iterable[str | datetime | None] | None
    """One for each message, as in :meth:`ConversationStore.append_messages`. The conversation was created at the first of them."""
    features: Sequence[Feature] | None
    """What the conversation can besides, which earlier versions of this library do not know; so they refuse to read it.
    ``retract``: messages can be taken back (:meth:`ConversationStore.retract`)."""


class ConversationStore(Reads):
    """A conversation in a directory of its own.

    Making a store touches nothing. Call ``load()``, ``initialize()`` or ``load_or_initialize()`` first. Several threads may
    use one store: every call is atomic, and ``seq`` is the order. Appends that wait for the disk at the same time share one
    write and one sync. A store belongs to the process that loaded it; after a fork the child must open the conversation anew.

    Args:
        directory: the conversation's folder.
        durability: what an append survives once it has returned. With ``"power-loss"``, the end of the process and of the
            machine: each append is one write and one sync. With ``"process-crash"``, the end of the process: appends are
            written, but not synced; after a power loss ``load()`` gives a prefix of what was appended, or refuses.
        read_only: take no lock and change nothing. A reader works beside a writer, and on a read-only mount.
        hold_lock: keep the lock from ``load()`` to ``close()``: one process writes. With False each call takes the lock and gives
            it back, so that several processes take turns: each call is atomic among them too, and shows and goes on with what
            the others wrote before it. Positions, numbers and heads that you keep may be of an earlier moment: ``if_head``
            tells. Whoever holds the lock keeps everybody else waiting.
        lock_timeout_seconds: how long to wait for another writer. None: no time if this store holds its lock, else 10 seconds.
        max_line_bytes: how long an appended line may be. Longer lines can still be read.
        cache_bytes: how much of the transcript is kept in memory, its newest lines. Older lines are read from the disk when
            they are asked for, and verified again.
        redact: takes out what must not be stored, before anything is: a ``transcript_store.redaction.SecretRedactor``, or a function
            of yours from message to message. It is called with each message, each extra, and the metadata that has texts (model,
            system prompt, tools, labels), all JSON objects, and with copies of them; by several threads if you use several. The
            record's ``extra["redacted"]`` then counts what was taken out, by kind. What is stored already stays, and what is
            copied as it is stored: :meth:`keep_records`, forks. docs/secrets.md says what it does not reach. None for nothing.
        encryption_key: the key of a sealed conversation, 32 bytes or a :class:`KeyProvider`. What is created is sealed with a data
            key of its own, which this key wraps. What is not sealed is refused (:class:`NotSealedError`); see :meth:`seal`. Without a
            key a sealed conversation can be loaded, verified and copied as files, and nothing of it is read or written.
            docs/encryption.md has what is sealed, and what stays in sight.
        retired_keys: earlier keys, for what is not wrapped with the key of today yet (``ConversationLibrary.rotate_key``).
        take_over: for a conversation on a place (``transcript_store.places``): with True it is claimed even if its last writer neither
            closed it nor was idle for a minute; that one is told. In a folder it changes nothing: a lock ends with its process.
        holder: on a place, what a writer that is deposed is told of this one, beside host and pid: a name for people.
        file_system: another file system, for tests (``transcript_store.testing``).

    Raises:
        TypeError: any call; an argument has the wrong type.
        ValueError: any call; an argument has a value that it cannot have.
        ConversationNotLoadedError: any call before a load, or after ``close()``; call ``load()``.
        RuntimeError: a call within another call of the same thread (in a ``held()`` block, or a signal handler).
        ConversationLockedError: a call that writes; somebody removed the lock file. Call ``load()`` again. With
            ``hold_lock=False`` any call; somebody else kept the lock for ``lock_timeout_seconds``. Nothing was done; try again.
        ConversationNotFoundError: with ``hold_lock=False`` any call; the conversation was deleted or moved since the last one.
        CorruptTranscriptError: any call after an interrupted one, which looks at the disk; ``verify()`` says what is damaged.
        CorruptMetadataError: the same, of metadata.json.
        KeyNeededError: any call that reads or writes what is sealed, without a key. Nothing was written.
        WrongKeyError: any load; none of the keys opens the conversation.
        KeyProviderError: any load or create; the provider raised. Nothing was written.
        CorruptKeyFileError: any load with a key; ``key.json`` is missing or damaged. Restore it.
        ConversationShreddedError: any load with a key; the key was destroyed.
        NotSealedError: any load with a key; the conversation is not sealed.
        DataKeyExhaustedError: any call that writes; the data key has sealed as much as it may. A fork has another one.
    """

    def __init__(
        self,
        directory: filesystem.AnyPath,
        *,
        durability: Durability = "power-loss",
        read_only: bool = False,
        hold_lock: bool = True,
        lock_timeout_seconds: float | None = None,
        max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        redact: Redact | None = None,
        encryption_key: EncryptionKey | None = None,
        retired_keys: Iterable[EncryptionKey] = (),
        take_over: TakeOver = "released",
        holder: str = "",
        file_system: FileSystem | None = None,
    ) -> None:
        arguments.require_one_of("durability", durability, _DURABILITIES)
        arguments.require_bool("hold_lock", hold_lock)
        if lock_timeout_seconds is None:
            lock_timeout_seconds = 0.0 if hold_lock else WAIT_SECONDS
        arguments.require_timeout("lock_timeout_seconds", lock_timeout_seconds)
        arguments.require_count("max_line_bytes", max_line_bytes, least=1024)
        arguments.require_count("cache_bytes", cache_bytes)
        if take_over != "released":
            arguments.require_bool("take_over", take_over)
        if type(holder) is not str:
            raise TypeError(f"holder must be a str, not {type(holder).__name__}")
        self._path = self._named(directory)
        self._files = filesystem.REAL if file_system is None else file_system
        self._read_only = read_only
        self._options = Options(
            max_line_bytes=max_line_bytes,
            sync_appends=durability == "power-loss",
            lock_timeout_seconds=lock_timeout_seconds,
            cache_bytes=cache_bytes,
            hold_lock=hold_lock,
            keys=keyring_of(encryption_key, retired_keys),
            take_over=take_over is True,
            holder=holder,
        )
        self._storable = Storable(redact, self._path, max_line_bytes)
        self._storage: Storage | None = None
        self._loaded_by: int | None = None
        """In a forked child, the process that may have loaded it."""
        self._process_id = self._files.process_id()
        self._mutex = threading.RLock()
        self._group_commit = GroupCommit()
        self._on_close: dict[object, Callable[[], object]] = {}

    @staticmethod
    def _named(directory: Any) -> str:
        """What errors, and ``directory``, call the conversation."""
        if hasattr(directory, "library_class"):
            raise TypeError(
                "a ConversationStore has a folder; ConversationLibrary(place) creates and opens conversations on a place"
            )
        return filesystem.absolute_path(directory)

    def _new_storage(self, options: Options, *, read_only: bool) -> Storage:
        """The conversation where it lives, as this store opens it; nothing is looked at yet."""
        kind = Reader if read_only else Writer if options.hold_lock else TurnWriter
        return kind(self._files, self._path, options)

    def _occupant(self) -> str | None:
        """Why no conversation can be created there, in words; None if one can."""
        return occupant(self._files, self._path)

    @property
    def directory(self) -> str:
        """The absolute path of the conversation's folder."""
        return self._path

    @property
    def max_line_bytes(self) -> int:
        """How long a line of the transcript may be, in bytes: a message, its extra and about 200 bytes around them."""
        return self._options.max_line_bytes

    @property
    def redacts(self) -> bool:
        """Whether the store was given a ``redact``: then what is stored may be less than what was given."""
        return self._storable.redacts

    # ---- begin and end -------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether ``initialize()`` would refuse: a conversation is there or around it, or a damaged one, or something else.

        Raises:
            StorageError: the folder cannot be looked at; the message says why.
        """
        return self._occupant() is not None

    def initialize(self, *, id: str | None = None, **contents: Unpack[NewConversation]) -> None:
        """Create the conversation, with its first messages if there are any, and leave it loaded.

        On return all of it survives a power loss, whatever the ``durability``. After a crash before that, all of it is there
        or nothing is. Missing parent folders are made.

        Args:
            id: a canonical lower-case UUID; a new random one if none is given.
            contents: members of :class:`NewConversation`; none of them is required.

        Raises:
            ConversationExistsError: something is there, or the folder is inside another conversation's. Nothing was touched.
            ConversationLockedError: another process is creating it right now; ``load()`` it when that is done.
            InvalidMessageError: JSON, or ``max_line_bytes``, cannot carry a message, or a time is not valid. Nothing was written.
            InvalidMetadataError: a field cannot have this value. Nothing was written.
            RedactionError: the store's ``redact`` raised, or gave no message. Nothing was written.
            InvalidIdError: the id is not a canonical lower-case UUID.
            ReadOnlyError: the store was opened with ``read_only=True``.
            StorageError: the system refused; the message says what holds and what to do.
        """
        if id is not None:
            _metadata.checked_id(id)
        new = self._storable.contents(contents, NewConversation.__annotations__)
        with self._exclusively():
            self._refuse_read_only()
            self._initialize(new, id)

    def load(self, *, verify: Verify = "all", accept_unkeyed_repair: bool = False) -> None:
        """Open the conversation: verify every line, recover a torn tail, take the writer's lock.

        On return everything that ``get_messages()`` shows is on the medium, and ``recovery`` says what recovery did. A store
        with ``read_only=True`` takes no lock, changes nothing, and passes over an unfinished tail. A store that is loaded
        already is closed and opened anew; after a ``PoisonedError`` that is the way on.

        Args:
            verify: with ``"tail"`` the cost does not grow with the transcript. Of what was stored before the last mark only
                the end is read, and checked against the mark. (A mark is set by a clean ``close()``, a load, a change of the
                metadata, and each thousandth record that is synced.) The rest is read and verified when a call first needs
                it: ``get_records()``, ``replace_transcript()``, a snapshot, or ``get_messages()`` that reaches so far back.
                Such a call may then raise ``CorruptTranscriptError`` for damage that ``load()`` would have refused.
            accept_unkeyed_repair: take a sealed conversation as a repair without its key left it. Records may be missing that
                whoever lacks the key took out; none was added or changed. A writer notes that it is accepted. All is verified.

        Raises:
            ConversationNotFoundError: nothing is there; check the path, or ``initialize()``.
            ConversationLockedError: another writer holds it; the message says which. Wait, or open with ``read_only=True``.
            CorruptTranscriptError: the transcript is damaged. Nothing was touched; see ``verify()`` and ``repair()``.
            CorruptMetadataError: metadata.json is damaged or missing. Nothing was touched; see ``repair()``.
            UnsupportedVersionError: a later version wrote it; upgrade to read it.
            StorageError: the system refused; the message says why.
        """
        arguments.require_bool("accept_unkeyed_repair", accept_unkeyed_repair)
        tail_only = _wants_the_tail_only(verify) and not accept_unkeyed_repair
        with self._exclusively():
            self._load(tail_only=tail_only, accept_unkeyed_repair=accept_unkeyed_repair)

    def load_or_initialize(self, *, verify: Verify = "all", **contents: Unpack[NewConversation]) -> bool:
        """Load the conversation, or create it as ``initialize()`` does if there is none; True if it was created.

        What is on record wins: an existing conversation keeps its model, prompt and messages, whatever is given here. A
        warning names the given fields that differ, once in a process; ``update_metadata`` changes them. Given messages are
        passed over without a warning. If two processes race, one creates; the other loads, or meets the lock.

        Args:
            verify: as in :meth:`load`.
            contents: as in :meth:`initialize`.

        Raises:
            TranscriptStoreError: as :meth:`load` and :meth:`initialize`.
        """
        tail_only = _wants_the_tail_only(verify)
        new = self._storable.contents(contents, NewConversation.__annotations__)
        with self._exclusively():
            created = self._load_or_initialize(new, tail_only=tail_only)
            if not created:
                names = [*_metadata.differing(new.fields, self._readable().members)]
                if not set(new.features) <= set(self._readable().log.header.features):
                    names.append("features")
                if names:
                    _warn_of_what_differs(self._path, ", ".join(names))
        return created

    def _load_or_initialize(self, new: Contents, *, tail_only: bool) -> bool:
        while True:
            try:
                self._load(tail_only=tail_only)
                return False
            except ConversationNotFoundError:
                if self._read_only:
                    raise
            try:
                self._initialize(new)
                return True
            except ConversationExistsError as occupied:
                # Another process was faster, so there is something to load; it may be gone again when we do.
                if self._occupant() is None:
                    continue
                try:
                    self._load(tail_only=tail_only)
                except ConversationNotFoundError:
                    raise occupied from None  # nothing to load, and nothing can be created here: this says why
                return False

    def close(self) -> None:
        """Sync, note how far, release the lock. Closing twice, or before a load, does nothing.

        After a failed sync only the lock is released, and nothing more is written.

        Raises:
            StorageError: messages that were not synced (``durability="process-crash"``) cannot be synced now. They were
                written, and the lock is released.
        """
        try:
            for callback in list(self._on_close.values()):
                callback()
        finally:
            with self._exclusively():
                self._close()

    def on_close(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call ``callback()`` whenever ``close()`` begins, while the store still takes appends; returns what undoes this.

        For a client that has something to record at the end. The store keeps a reference to the callback until it is undone.
        That may be done at any time, in any thread, more than once. An exception of a callback comes out of ``close()``: the
        store is closed, and later callbacks are not called.
        """
        key = object()
        self._on_close[key] = callback
        # Nothing but a dictionary: the garbage collector may run this, in the middle of another call of the store.
        return partial(self._on_close.pop, key, None)  # type: ignore[return-value]

    def __del__(self) -> None:
        """Release the lock if ``close()`` was forgotten. Nothing is written: everything acknowledged is stored already."""
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
        return self._append(self._storable.one(entry), if_head)[0]

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
            n: how many messages that were not taken back yet, from the end.
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
        with self._exclusively():
            storage = self._writable()
            if if_head is not None:
                storage.require_head(if_head)
            return storage.retract(n)

    def replace_transcript(
        self,
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
            metadata_changes: as in :meth:`update_metadata`.

        Raises:
            TranscriptStoreError: as :meth:`append_message` and :meth:`update_metadata`. The old messages are in place.
        """
        entries = self._storable.entries(messages, extras, times)
        self._next_generation(
            lambda writer, *given: writer.replace(entries, *given), if_head, features, metadata_changes
        )

    def keep_records(
        self,
        seqs: Iterable[int],
        *,
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
            if_head: as in :meth:`append_message`: a record that came since you chose would be left out too.
            features: as in :meth:`replace_transcript`.
            metadata_changes: as in :meth:`update_metadata`.

        Raises:
            ValueError: there is no record with one of these numbers.
            TranscriptStoreError: as :meth:`append_message`, :meth:`update_metadata` and :meth:`get_records`. The old records are
                in place.
        """
        numbers = arguments.record_numbers(seqs)
        self._next_generation(lambda writer, *given: writer.keep(numbers, *given), if_head, features, metadata_changes)

    def _next_generation(
        self,
        write: Callable[[Writer, dict[str, Any], Sequence[str]], None],
        if_head: str | None,
        features: Sequence[Feature] | None,
        metadata_changes: dict[str, Any],
    ) -> None:
        """Archive the live generation, and begin the next one with ``write``: one commit."""
        if if_head is not None:
            arguments.require_head("if_head", if_head)
        changes = self._storable.changes(metadata_changes)
        enabled = arguments.features(features)
        with self._exclusively():
            storage = self._writable()
            changed = self._changed(storage, changes)
            self._group_commit.settle(storage)
            if if_head is not None:
                storage.require_head(if_head)
            write(storage, changed, enabled)

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

        If there is no conversation, it is created with an id of its own. If there is one, it is loaded if necessary, and its
        transcript is replaced as :meth:`replace_transcript` does it. On return all of it survives a power loss; before that,
        the old conversation is untouched.

        Args:
            messages: JSON objects in the provider's own form. An ``EncodedMessage`` (``transcript_store.messages``) is not checked
                and encoded again.
            provider: whose form the messages have. A conversation without a provider gets it; any other keeps its own.
            extras: one entry for each message, or None for no extras.
            restored_from: a JSON object that says where the messages come from, for ``get_metadata().restored_from``.
            metadata_changes: as in :meth:`update_metadata`.

        Raises:
            ProviderMismatchError: the conversation's messages have another provider's form; nothing was changed.
            TranscriptStoreError: as :meth:`load`, :meth:`initialize` and :meth:`replace_transcript`.
        """
        entries = self._storable.entries(messages, extras)
        changes = self._storable.changes(metadata_changes)
        origin = self._storable.fields({} if restored_from is None else {"restored_from": restored_from})
        given = self._storable.fields({"provider": provider})
        with self._exclusively():
            self._refuse_read_only()
            if self._storage is None or not self._storage.is_open:
                try:
                    self._load()
                except ConversationNotFoundError:
                    self._initialize(Contents({**changes, **given, **origin}, entries, ()))
                    return
            storage = self._writable()
            storage.settle()
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

        All changes are made or none, and they are durable on return. ``labels`` and ``tools`` are replaced whole. Without
        changes nothing is written.

        Raises:
            TypeError: a name that cannot be changed, or a provider whose messages have another form. (``openai`` and
                ``openai-compatible`` have the same.)
            InvalidMetadataError: a field cannot have this value. Nothing was written.
            TranscriptStoreError: as :meth:`append_message`.
        """
        checked = self._storable.changes(changes)
        with self._exclusively():
            storage = self._writable()
            if checked:
                storage.write_metadata(self._changed(storage, checked))

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
        with self._exclusively():
            self._writable().delete_generation(generation)

    def purge_quarantine(self) -> int:
        """Remove the bytes that recovery and repairs took out and kept; returns how many pieces there were.

        On return they are removed, also after a power loss.

        Raises:
            TranscriptStoreError: as :meth:`append_message`.
        """
        with self._exclusively():
            return self._writable().purge_quarantine()

    def seal(self, *, keep_plain: bool = False) -> None:
        """Seal a conversation that is plain, with the store's ``encryption_key``; it is loaded on return.

        The records, byte for byte, become the next generation, sealed; that is one commit, as :meth:`replace_transcript`. Then the
        plain generations and ``quarantine/`` are removed. After a crash the same call goes on; of a conversation that is
        sealed already it removes what is plain. Call it before a load: a store with a key refuses to load what is plain.

        A file that is deleted may stay on the medium (flash, snapshots of the file system, backups), and what others copied stays
        theirs: docs/encryption.md says what that means.

        Args:
            keep_plain: whether the plain generations and ``quarantine/`` stay. Everybody who has the files can read them.

        Raises:
            ValueError: the store has no ``encryption_key``.
            TranscriptStoreError: as :meth:`load`, :meth:`replace_transcript` and :meth:`delete_generation`.
        """
        arguments.require_bool("keep_plain", keep_plain)
        keys = self._options.keys
        if keys is None:
            raise ValueError("seal() needs the key: open the conversation with encryption_key")
        with self._exclusively():
            self._refuse_read_only()
            self._load(accept_plain=True)
            storage = self._writable()
            self._group_commit.settle(storage)
            storage.seal(keys, keep_plain=keep_plain)

    def unseal(self) -> None:
        """Make a sealed conversation plain again, and close the store: open it without a key to go on.

        The records become the next generation, plain. Earlier generations stay sealed in ``archive/``, and their key stays beside
        them, until :meth:`delete_generation`. After a crash the conversation is sealed or plain.

        Raises:
            KeyNeededError: the store has no ``encryption_key``.
            TranscriptStoreError: as :meth:`replace_transcript`.
        """
        with self._exclusively():
            storage = self._writable()
            self._group_commit.settle(storage)
            storage.unseal()
            self._close()

    # ---- within --------------------------------------------------------------------------------------------------

    def _exclusively(self) -> AbstractContextManager[object]:
        """What makes a call atomic, for a ``with`` statement."""
        if self._files.process_id() != self._process_id:
            # A forked child. The handles are its parent's, and closed here already; the mutex may be held for ever.
            self._storage = None
            self._loaded_by, self._process_id = self._process_id, self._files.process_id()
            self._mutex = threading.RLock()
            self._group_commit = GroupCommit()
        if self._mutex._is_owned():  # type: ignore[attr-defined]  # what threading.Condition asks it
            raise RuntimeError(
                "a call on this ConversationStore is under way in this thread (a held() block, or a signal handler?)"
            )
        return self._alone()

    def _alone(self) -> AbstractContextManager[object]:
        """The mutex: among threads. Between processes there is the lock: it is held, or taken by the first that needs it in a turn."""
        return self._mutex if self._options.hold_lock else self._turn()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self._mutex, ExitStack() as stack:
            for _ in range(2):  # the second time if the first is interrupted (Ctrl-C)
                stack.callback(self._end_turn)
            yield

    def _end_turn(self) -> None:
        if self._storage is not None:
            self._storage.end_turn()

    def _append(self, entries: Sequence[Entry], if_head: str | None = None) -> Sequence[AppendResult]:
        if if_head is not None:
            arguments.require_head("if_head", if_head)
        alone = self._exclusively()
        if self._options.sync_appends and if_head is None and entries:
            return self._group_commit.append(entries, self._alone, self._writable)
        with alone:  # of several threads that ask for one head only the first may append: no group stores them together
            storage = self._writable()
            if if_head is not None:
                storage.require_head(if_head)
            return storage.append(entries) if entries else ()

    def _load(self, *, tail_only: bool = False, **accept: Any) -> None:
        options = self._options._replace(tail_only=tail_only, **accept)
        storage = self._new_storage(options, read_only=self._read_only)
        self._begin(storage, storage.load)

    def _initialize(self, new: Contents, id: str | None = None) -> None:
        if self._storage is not None and self._storage.is_open:
            raise ConversationExistsError(path=self._path, reason="there is a conversation, and it is loaded")
        members_at = partial(_metadata.new_members, id=id or new_id(self._files), **new.fields)
        storage = self._new_storage(self._options, read_only=False)
        assert isinstance(storage, Writer)
        self._begin(storage, lambda: storage.create(members_at, new.entries, new.features))
        provider = new.fields.get("provider")
        if provider is not None and provider not in (*_metadata.PROVIDERS, *_metadata.FRAMEWORKS):
            _warn_of_an_unknown_provider(provider)

    def _begin(self, storage: Storage, begin: Callable[[], None]) -> None:
        self._close()
        self._storage = storage
        try:
            begin()
        except BaseException:
            storage.let_go()
            raise

    def _close(self) -> None:
        if self._storage is not None:
            if self._storage.is_open:
                self._storage.close()
            else:
                self._storage.let_go()  # what an interrupted close left

    def _loaded(self) -> Storage:
        if self._storage is not None and self._storage.is_open:
            self._storage.begin_turn()
            return self._storage
        reason, way_out = "it is not loaded yet", WayOut.LOAD
        if self._storage is not None:
            reason, way_out = "it was closed, or its last load failed", WayOut.LOAD_ANEW
        elif self._loaded_by is not None:
            reason, way_out = f"it was loaded by process {self._loaded_by}, not by its fork", WayOut.LOAD_HERE
        raise ConversationNotLoadedError(path=self._path, reason=reason, way_out=way_out)

    def _writable(self) -> Writer:
        storage = self._loaded()
        if not isinstance(storage, Writer):
            raise ReadOnlyError(path=self._path)
        storage.begin_write()
        return storage

    def _refuse_read_only(self) -> None:
        if self._read_only:
            raise ReadOnlyError(path=self._path)

    def _readable(self, last: int | None = None) -> Storage:
        if last is not None:
            arguments.require_count("last", last)
        storage = self._loaded()
        storage.settle()
        return storage

    @staticmethod
    def _changed(storage: Writer, changes: dict[str, Any]) -> dict[str, Any]:
        storage.settle()  # members are what an interrupted call left on the disk, not what memory had before it
        return arguments.changed(storage.members, changes)


@lru_cache(maxsize=1000)  # an agent opens its conversation again and again, always with the same arguments
def _warn_of_what_differs(path: str, names: str) -> None:
    """Log, without values, that arguments do not count; once for a conversation and what differs."""
    logger.warning("%s: the given %s differs from what is on record, which is kept", path, names)


@lru_cache(maxsize=100)
def _warn_of_an_unknown_provider(provider: str) -> None:
    """Log that a new conversation names a provider that nothing here knows: once a name, however many are created.

    It may be a misspelled name or one of the caller's own, and it can never be changed to another provider's.
    """
    logger.warning(
        "provider %r is none of %s: its messages are kept as they are, and no chat client of ours goes on with them",
        provider[:60],
        ", ".join(_metadata.PROVIDERS),
    )


def _wants_the_tail_only(verify: str) -> bool:
    arguments.require_one_of("verify", verify, _WAYS_TO_VERIFY)
    return verify == "tail"
