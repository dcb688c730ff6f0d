"""One conversation: a metadata document and an append-only transcript, one writer at a time, any number of readers.

.. code-block:: python

    from transcript_store import ConversationStore

    with ConversationStore("agent/main") as conversation:
        conversation.load_or_initialize(provider="claude", model="claude-opus-4-8")
        conversation.append_message({"role": "user", "content": "Where were we?"})   # on disk when this returns
        messages = conversation.get_messages()                                       # fresh copies, ready to send
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from inspect import isfunction
from typing import Any, Literal, NoReturn, Self, Unpack, get_args

from transcript_store._conversation import arguments
from transcript_store._conversation import metadata as _metadata
from transcript_store._conversation.archive import Generation
from transcript_store._conversation.arguments import (
    MetadataUpdate,
    NewContents,
    NewConversation,
    RestoredMetadata,
    Storable,
)
from transcript_store._conversation.calls import (
    ConversationState,
    FrozenConversation,
    Reads,
    TranscriptPosition,
    Writes,
)
from transcript_store._conversation.guard import StorageGuard
from transcript_store._conversation.layout import occupant
from transcript_store._conversation.metadata import ConversationMetadata
from transcript_store._conversation.shared_writer import WAIT_SECONDS, SharedWriter
from transcript_store._conversation.storage import Reader, RefreshResult, Storage, StorageOptions
from transcript_store._conversation.summary import TokenUsage, UsageRow
from transcript_store._conversation.writer import Writer
from transcript_store._json.strict import EncodedMessage
from transcript_store._log.log import AppendResult, Recovery
from transcript_store._log.record import Gap, Record
from transcript_store._os import filesystem
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import new_id
from transcript_store._sealing.keys import EncryptionKey, keyring_of
from transcript_store.display import title_in
from transcript_store.errors import (
    ConversationExistsError,
    ConversationNotFoundError,
    ProviderMismatchError,
    ReadOnlyError,
)

logger: logging.Logger = logging.getLogger("transcript_store.conversation")

__all__ = [
    "AppendResult",
    "ConversationMetadata",
    "ConversationState",
    "ConversationStore",
    "FrozenConversation",
    "Gap",
    "Generation",
    "MetadataUpdate",
    "NewConversation",
    "Record",
    "Recovery",
    "RefreshResult",
    "RestoredMetadata",
    "TokenUsage",
    "TranscriptPosition",
    "UsageRow",
]

Durability = Literal["power-loss", "process-crash"]
Verify = Literal["all", "tail"]
TakeOver = Literal["released"] | bool
Redact = Callable[[dict[str, Any]], dict[str, Any]]
"""A function from a JSON object, such as a message, to the object to store instead."""
_DURABILITIES = get_args(Durability)
_WAYS_TO_VERIFY = get_args(Verify)
DEFAULT_MAX_LINE_BYTES = 64 * 2**20
DEFAULT_CACHE_BYTES = 8 * 2**20


class ConversationStore(Reads, Writes):
    """A conversation in a directory of its own.

    Creating a store object changes nothing on disk. Call ``load()``, ``initialize()`` or ``load_or_initialize()``
    first. Several threads may use one store: every call is atomic, and ``seq`` is the order. Appends that wait for the
    disk at the same time share one write and one sync. A store belongs to the process that loaded it; after a fork the
    child must open the conversation again.

    Args:
        directory: the conversation's folder.
        durability: what an append survives once it has returned. With ``"power-loss"``, the end of the process and of the
            machine: each append is one write and one sync. With ``"process-crash"``, the end of the process: appends are
            written, but not synced; after a power loss ``load()`` gives a prefix of the appended records, or refuses.
        read_only: take no lock and change nothing. A reader works beside a writer, and on a read-only mount.
        hold_lock: keep the lock from ``load()`` to ``close()``: one process writes. With False each call takes the lock
            and releases it, so that several processes can write: each call is atomic among them too, and starts from
            what the others wrote before it. Positions, numbers and heads that you keep may be out of date: ``if_head``
            detects that. While one process holds the lock, all others wait.
        lock_timeout_seconds: how long to wait for another writer. None: no time if this store holds its lock, else 10
            seconds.
        max_line_bytes: how long an appended line may be. Longer lines can still be read.
        cache_bytes: how much of the transcript is kept in memory, its newest lines. Older lines are read from disk when
            they are needed, and verified again.
        redact: removes what must not be stored, before anything is stored: a
            ``transcript_store.redaction.SecretRedactor``, or a function of yours from message to message. It is called
            with each message, each extra, and the metadata that has texts (model, system prompt, tools, labels), all
            JSON objects, and with copies of them; by several threads if you use several. The record's
            ``extra["redacted"]`` then counts what was removed, by kind. Stored records stay, and copies of them are not
            redacted: :meth:`keep_records`, forks. docs/secrets.md lists its limits. None for no redaction.
        encryption_key: the key of a sealed conversation, 32 bytes or a :class:`KeyProvider`. A new conversation is
            sealed with its own data key, which this key wraps. A plaintext one is refused (:class:`NotSealedError`);
            see :meth:`seal`. Without a key a sealed conversation can be loaded, verified and copied as files, but its
            contents can be neither read nor written. docs/encryption.md says what is sealed, and what stays plaintext.
        retired_keys: earlier keys, for conversations that are not wrapped with the current key yet
            (``ConversationLibrary.rotate_key``).
        take_over: for a conversation on a backend (``transcript_store.backends``): with True it is claimed even if its
            last writer neither closed it nor was idle for a minute; that writer gets an error. In a folder it has no
            effect: a lock ends with its process.
        holder: on a backend, a name of this writer, for people. A fenced writer's error shows it, beside host and pid.
        file_system: another file system, for tests (``transcript_store.testing``).

    Raises:
        TypeError: any call; an argument has the wrong type.
        ValueError: any call; an argument has an invalid value. Where a count or one of several words is expected, such
            a value may be of any type.
        ConversationNotLoadedError: any call before a load, or after ``close()``; call ``load()``.
        RuntimeError: a call within another call of the same thread (in a ``frozen()`` block, or a signal handler).
        ConversationLockedError: a call that writes; the lock file was removed. Call ``load()`` again. With
            ``hold_lock=False`` any call; another process kept the lock for ``lock_timeout_seconds``. Nothing was done;
            try again.
        ConversationNotFoundError: with ``hold_lock=False`` any call; the conversation was deleted or moved since the
            last one.
        CorruptTranscriptError: any call after an interrupted one, which reads the disk; ``verify()`` lists the damage.
        CorruptMetadataError: the same, of metadata.json.
        KeyNeededError: any call that reads or writes sealed data, without a key. Nothing was written.
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
        arguments.require_bool("read_only", read_only)
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
        self._options = StorageOptions(
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
        self._guard = StorageGuard(self._files, self._path, hold_lock=hold_lock)
        self._on_close: dict[object, Callable[[], object]] = {}

    _own_id: str | None = None
    """The id of a conversation created here, if a library or a backend names it by that; None for any."""

    @staticmethod
    def _named(directory: Any) -> str:
        """The conversation's name in errors and in ``directory``."""
        if hasattr(directory, "library_class"):
            raise TypeError(
                "a ConversationStore has a folder; ConversationLibrary(backend) creates and opens conversations on a backend"
            )
        return filesystem.absolute_path(directory)

    def _new_storage(self, options: StorageOptions, *, read_only: bool) -> Storage:
        """The storage that this store opens; nothing is read yet."""
        kind = Reader if read_only else Writer if options.hold_lock else SharedWriter
        return kind(self._files, self._path, options)

    def _occupant(self) -> str | None:
        """Why no conversation can be created there, in words; None if one can."""
        return occupant(self._files, self._path)

    @property
    def directory(self) -> str:
        """The absolute path of the conversation's folder."""
        return self._path

    @property
    def title(self) -> str | None:
        """The label ``title``, which listings show; None if there is none. Setting it calls :meth:`set_title`.

        Raises:
            TranscriptStoreError: as :meth:`get_metadata`; when it is set, as :meth:`set_title`.
        """
        return title_in(self.get_metadata().labels)

    @title.setter
    def title(self, title: str | None) -> None:
        self.set_title(title)

    @property
    def max_line_bytes(self) -> int:
        """How long a line of the transcript may be, in bytes: a message, its extra and about 200 bytes around them."""
        return self._options.max_line_bytes

    @property
    def redacts(self) -> bool:
        """True if the store has a ``redact``: then the stored messages may have less than the given ones."""
        return self._storable.redacting is not None

    # ---- begin and end -------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """True if ``initialize()`` would refuse: the path has a conversation, a damaged one, or other files, or is
        inside another conversation.

        Raises:
            StorageError: the folder cannot be read; the message says why.
        """
        return self._occupant() is not None

    def initialize(self, *, id: str | None = None, **contents: Unpack[NewConversation]) -> None:
        """Create the conversation, with its first messages if there are any, and leave it loaded.

        On return all of it survives a power loss, whatever the ``durability``. After a crash before that, all of it is
        stored or nothing. Missing parent folders are created.

        Args:
            id: a canonical lower-case UUID; a new random one if none is given. A store that a library created has its
                id already.
            contents: members of :class:`NewConversation`; none of them is required.

        Raises:
            ConversationExistsError: the path is taken, or the folder is inside another conversation's. Nothing was changed.
            ConversationLockedError: another process is creating it right now; ``load()`` it when that is done.
            InvalidMessageError: a message is not JSON or is longer than ``max_line_bytes``, or a time is not valid.
                Nothing was written.
            InvalidMetadataError: a field cannot have this value. Nothing was written.
            RedactionError: the store's ``redact`` raised, or returned no message. Nothing was written.
            InvalidIdError: the id is not a canonical lower-case UUID.
            ReadOnlyError: the store was opened with ``read_only=True``.
            StorageError: the system refused; the message says what still holds and what to do.
        """
        if id is not None:
            _metadata.checked_id(id)
        new = self._storable.contents(contents)
        with self._guard.locked():
            self._refuse_read_only()
            self._initialize(new, id)

    def load(self, *, verify: Verify = "all", accept_unkeyed_repair: bool = False) -> None:
        """Open the conversation: verify every line, recover a torn tail, take the writer's lock.

        On return everything that ``get_messages()`` shows is on disk, and ``recovery`` says what recovery did. A store
        with ``read_only=True`` takes no lock, changes nothing, and skips an unfinished tail. A store that is loaded
        already is closed and opened again, which is also what to do after a ``PoisonedError``.

        Args:
            verify: with ``"tail"`` the cost does not grow with the transcript. Of the records before the last mark only
                the end is read, and checked against the mark. (A mark is set by a clean ``close()``, a load, a change
                of the metadata, and each thousandth record that is synced.) The rest is read and verified when a call
                first needs it: ``get_records()``, ``replace_transcript()``, a snapshot, or ``get_messages()`` that
                reaches so far back. Such a call may then raise ``CorruptTranscriptError`` for damage that ``load()``
                would have refused.
            accept_unkeyed_repair: load a sealed conversation that was repaired without its key. That repair may have
                left records out, or restored some of earlier generations. It cannot have added or changed one. A writer
                notes that it is accepted, and the next load needs only the key. Every line is verified, whatever
                ``verify`` says.

        Raises:
            ConversationNotFoundError: the path holds no conversation; check it, or ``initialize()``.
            ConversationLockedError: another writer holds it; the message says which. Wait, or open with ``read_only=True``.
            CorruptTranscriptError: the transcript is damaged. Nothing was changed; see ``verify()`` and ``repair()``.
            CorruptMetadataError: metadata.json is damaged or missing. Nothing was changed; see ``repair()``.
            UnsupportedVersionError: a later version wrote it; upgrade to read it.
            StorageError: the system refused; the message says why.
        """
        arguments.require_bool("accept_unkeyed_repair", accept_unkeyed_repair)
        arguments.require_one_of("verify", verify, _WAYS_TO_VERIFY)
        tail_only = verify == "tail" and not accept_unkeyed_repair
        with self._guard.locked():
            self._load(tail_only=tail_only, accept_unkeyed_repair=accept_unkeyed_repair)

    def load_or_initialize(self, *, verify: Verify = "all", **contents: Unpack[NewConversation]) -> bool:
        """Load the conversation, or create it as ``initialize()`` does if there is none; True if it was created.

        Stored values win: an existing conversation keeps its model, prompt and messages, whatever is given here. A
        warning names the given fields that differ, once in a process; ``update_metadata`` changes them. Given messages
        are ignored without a warning. If two processes race, one creates; the other loads, or finds it locked.

        Args:
            verify: as in :meth:`load`.
            contents: as in :meth:`initialize`.

        Raises:
            TranscriptStoreError: as :meth:`load` and :meth:`initialize`.
        """
        arguments.require_one_of("verify", verify, _WAYS_TO_VERIFY)
        tail_only = verify == "tail"
        new = self._storable.contents(contents)
        with self._guard.locked():
            created = self._load_or_initialize(new, tail_only=tail_only)
            if not created:
                names = [*_metadata.differing(new.fields, self._guard.reader().members)]
                if not set(new.features) <= set(self._guard.reader().log.header.features):
                    names.append("features")
                if names:
                    _warn_of_what_differs(self._path, ", ".join(names))
        return created

    def _load_or_initialize(self, new: NewContents, *, tail_only: bool) -> bool:
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
                # Another process was faster, so there is something to load; it may be deleted again when we do.
                if self._occupant() is None:
                    continue
                try:
                    self._load(tail_only=tail_only)
                except ConversationNotFoundError:
                    raise occupied from None  # nothing to load, and nothing can be created here: this says why
                return False

    def close(self) -> None:
        """Sync, note how far, release the lock. If nothing is loaded, this does nothing: before a load, or after a close.

        After a failed sync only the lock is released, and nothing more is written.

        Raises:
            StorageError: messages that were not synced (``durability="process-crash"``) cannot be synced now. They were
                written, and the lock is released.
        """
        try:
            with self._guard.locked():  # a forked child has nothing loaded, and detects it here
                is_loaded = self._guard.is_loaded
            for callback in list(self._on_close.values()) if is_loaded else ():
                callback()
        finally:
            with self._guard.locked():
                self._guard.close()

    def on_close(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call ``callback()`` when a ``close()`` starts, while the store still accepts appends; returns a function that
        undoes this.

        For a client that has something to record at the end. The store keeps a reference to the callback until it is
        undone. That may be done at any time, in any thread, more than once. ``close()`` raises the exception of a
        callback: the store is closed, and later callbacks are not called.
        """
        if not callable(callback):
            raise TypeError(f"callback must be a function without arguments, not {type(callback).__name__}")
        key = object()
        self._on_close[key] = callback
        # Only a dictionary is used: the garbage collector may run this in the middle of another call of the store.
        return partial(self._on_close.pop, key, None)  # type: ignore[return-value]

    def __del__(self) -> None:
        """Release the lock if ``close()`` was forgotten. Nothing is written: everything acknowledged is stored already."""
        opened: StorageGuard | None = getattr(self, "_guard", None)
        if opened is not None and opened.let_go_of_what_is_forgotten():
            warnings.warn(
                f"a ConversationStore on {self._path} was not closed; use `with`",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def __repr__(self) -> str:
        return f"ConversationStore({self._path!r})"

    def __reduce__(self) -> NoReturn:
        # copy.copy() calls this too: a copy would own the lock as well, and free it when it is collected.
        raise TypeError(
            "a ConversationStore cannot be pickled or copied, as it holds a lock: open another one, or fork()"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- changes that load or close the conversation -----------------------------------------------------

    def restore(
        self,
        /,
        messages: Iterable[Mapping[str, Any] | EncodedMessage],
        *,
        provider: str | None = None,
        extras: Iterable[Mapping[str, Any] | None] | None = None,
        restored_from: Mapping[str, Any] | None = None,
        **metadata_changes: Unpack[RestoredMetadata],
    ) -> None:
        """Make the conversation hold these messages, and this metadata, in one commit; it is loaded on return.

        If there is no conversation, it is created, as :meth:`initialize` does it. If there is one, it is loaded if
        necessary, and its transcript is replaced as :meth:`replace_transcript` does it. On return all of it survives a
        power loss; before that, the old conversation is untouched.

        Args:
            messages: JSON objects in the provider's own form. An ``EncodedMessage`` (``transcript_store.messages``) is
                not checked and encoded again.
            provider: the provider whose form the messages have. A conversation without a provider gets it. Any other
                keeps its own, and accepts only messages of that form: without a ``provider`` they are refused.
            extras: one entry for each message, or None for no extras.
            restored_from: a JSON object about the origin of the messages, for ``get_metadata().restored_from``.
            metadata_changes: as in :meth:`update_metadata`.

        Raises:
            ProviderMismatchError: the conversation's messages have another provider's form; nothing was changed.
            TranscriptStoreError: as :meth:`load`, :meth:`initialize` and :meth:`replace_transcript`.
        """
        entries = self._storable.entries(messages, extras)
        changes = self._storable.changes(metadata_changes)
        origin = self._storable.fields({} if restored_from is None else {"restored_from": restored_from})
        given = self._storable.fields({"provider": provider})
        with self._guard.locked():
            self._refuse_read_only()
            if not self._guard.is_loaded:
                try:
                    self._load()
                except ConversationNotFoundError:
                    self._initialize(NewContents({**arguments.changed({}, changes), **given, **origin}, entries, ()))
                    return
            storage = self._guard.writer()
            recorded = storage.members.get("provider")
            if recorded is None:
                changes.fields.update(given)
            elif _metadata.family(provider or "") != _metadata.family(recorded):
                raise ProviderMismatchError(recorded_provider=provider or "", provider=recorded)
            changed = arguments.changed(storage.members, changes)
            changed.pop("restored_from", None)
            self._guard.group_commit.resolve(storage)
            storage.replace(entries, {**changed, **origin})

    def seal(self, *, keep_plain: bool = False) -> None:
        """Seal a plaintext conversation with the store's ``encryption_key``; it is loaded on return.

        The records, byte for byte, become the next generation, sealed; that is one commit, as
        :meth:`replace_transcript`. Then the plaintext generations and ``quarantine/`` are removed. After a crash, call
        it again to continue; on a sealed conversation it removes the plaintext files. Call it before a load: a store
        with a key refuses to load plaintext.

        The disk may keep deleted files (flash, snapshots of the file system, backups), and copies made by others stay
        unchanged: docs/encryption.md says what that means.

        Args:
            keep_plain: True to keep the plaintext generations and ``quarantine/``. Everybody who has the files can read
                them.

        Raises:
            ValueError: the store has no ``encryption_key``.
            TranscriptStoreError: as :meth:`load`, :meth:`replace_transcript` and :meth:`delete_generation`.
        """
        arguments.require_bool("keep_plain", keep_plain)
        keys = self._options.keys
        if keys is None:
            raise ValueError("seal() needs the key: open the conversation with encryption_key")
        with self._guard.locked():
            self._refuse_read_only()
            self._load(accept_plain=True)
            storage = self._guard.writer()
            self._guard.group_commit.resolve(storage)
            storage.seal(keys, keep_plain=keep_plain)

    def unseal(self) -> None:
        """Turn a sealed conversation into plaintext again, and close the store: open it without a key to continue.

        The records become the next generation, in plaintext. Earlier generations stay sealed in ``archive/``, and their
        key stays beside them, until :meth:`delete_generation`. After a crash the conversation is sealed or plaintext.

        Raises:
            KeyNeededError: the store has no ``encryption_key``.
            TranscriptStoreError: as :meth:`replace_transcript`.
        """
        with self._guard.locked():
            storage = self._guard.writer()
            self._guard.group_commit.resolve(storage)
            storage.unseal()
            self._guard.close()

    # ---- within --------------------------------------------------------------------------------------------------

    def _load(self, *, tail_only: bool = False, **accept: Any) -> None:
        options = self._options._replace(tail_only=tail_only, **accept)
        storage = self._new_storage(options, read_only=self._read_only)
        self._guard.begin(storage, storage.load)

    def _initialize(self, new: NewContents, id: str | None = None) -> None:
        if self._guard.is_loaded:
            raise ConversationExistsError(path=self._path, reason="there is a conversation, and it is loaded")
        if self._own_id is not None and id not in (None, self._own_id):
            raise ValueError(f"the conversation's id is {self._own_id}: its folder or backend is named by that")
        members_at = partial(_metadata.new_members, id=self._own_id or id or new_id(self._files), **new.fields)
        storage = self._new_storage(self._options, read_only=False)
        assert isinstance(storage, Writer)
        self._guard.begin(storage, lambda: storage.create(members_at, new.entries, new.features))
        provider = new.fields.get("provider")
        if provider is not None and provider not in (*_metadata.PROVIDERS, *_metadata.FRAMEWORKS):
            _warn_of_an_unknown_provider(provider)

    def _refuse_read_only(self) -> None:
        if self._read_only:
            raise ReadOnlyError(path=self._path)


def store_with_id(id: str, directory: filesystem.AnyPath, **options: Any) -> ConversationStore:
    """A store whose folder is named by the conversation's id; a new conversation gets that id."""
    store = ConversationStore(directory, **options)
    store._own_id = id
    return store


for _calls in (Reads, Writes):  # so that Python's own errors, and help(), name the class that users know
    for _name, _call in vars(_calls).items():
        if isfunction(_call):
            _call.__qualname__ = f"{ConversationStore.__name__}.{_name}"


@lru_cache(maxsize=1000)  # an agent opens its conversation again and again, always with the same arguments
def _warn_of_what_differs(path: str, names: str) -> None:
    """Log, without values, that arguments are ignored; once for each conversation and difference."""
    logger.warning("%s: the given %s differs from the stored value, which is kept", path, names)


@lru_cache(maxsize=100)
def _warn_of_an_unknown_provider(provider: str) -> None:
    """Log that a new conversation has an unknown provider: once per name, however many are created.

    It may be a misspelled name or one of the caller's own, and it can never be changed to another provider's.
    """
    logger.warning(
        "provider %r is none of %s: its messages are stored unchanged, and no chat client of ours can continue it",
        provider[:60],
        ", ".join(_metadata.PROVIDERS),
    )
