"""How is a conversation's folder opened and read: the log of the live generation, the metadata, the archive?

``ConversationStore`` uses nothing below this module. :class:`Storage` is what a reader and a writer share: they open
the folder, verify its files, and read earlier generations. :class:`Reader` reads beside a writer; ``writer.Writer``
holds the lock and changes the files. Backends have subclasses of their own.

What a storage knows of its folder is one value, :class:`State`. These calls change it:

======================  ==========  ==============================================================================
call                    from        to
======================  ==========  ==============================================================================
load, create            NEW         READY; NEW if it is refused; the caller closes the storage
append                  READY       READY; POISONED if the sync failed
replace, metadata, …    READY       CHANGING, then READY; READY too if it is refused; POISONED if a sync failed
(interrupted)           CHANGING    CHANGING: the next call loads what is on the disk, and then it is READY
load by the next call   CHANGING    READY; CHANGING if it is refused
close, let_go           any         CLOSED
end of a call           READY       UNLOCKED; the lock is released in any state
start of a call         UNLOCKED    READY: unchanged, or loaded; UNLOCKED if loading is refused
start of a call         CHANGING    READY: it was loaded; CHANGING if that is refused
======================  ==========  ==============================================================================

An interrupted append changes nothing here: its log is no longer ``is_current``, and reads its file again. A reader is
only ever NEW, READY or CLOSED. Only a shared writer (``shared_writer``) is ever UNLOCKED.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from typing import Any, NamedTuple

from transcript_store._conversation import archive, layout
from transcript_store._conversation.archive import Generation
from transcript_store._conversation.layout import open_folder, read_metadata, require_conversation, sync_name, twice
from transcript_store._conversation.metadata import (
    GONE,
    MetadataDocument,
    Sealing,
    encode_document,
    missing_ranges,
    opens,
)
from transcript_store._log.log import Log
from transcript_store._log.record import Header, Mark
from transcript_store._os.directory import Folder, identity
from transcript_store._os.filesystem import FileSystem, refusals
from transcript_store._os.lock import POLL_SECONDS, Lock
from transcript_store._os.names import ARCHIVE, KEY, METADATA, TRANSCRIPT
from transcript_store._sealing.keys import Keyring
from transcript_store.display import many
from transcript_store.errors import (
    ConversationNotFoundError,
    CorruptMetadataError,
    CorruptTranscriptError,
    NotSealedError,
    UnsupportedVersionError,
)
from transcript_store.hints import Hint


class State(Enum):
    """The state of a conversation's folder in memory; the table above has the transitions."""

    NEW = "nothing was loaded or created yet"
    READY = "memory is what the disk holds"
    CHANGING = "a change was started and has not ended: the next call reads what the disk holds"
    POISONED = "a sync failed: what the disk holds is unknown, and nothing more is written"
    UNLOCKED = "the lock is released: memory is what the disk held then"
    CLOSED = "every handle is closed, and the lock is free"


class StorageOptions(NamedTuple):
    """How a conversation is opened; ``ConversationStore`` explains them. The first three are for a writer."""

    max_line_bytes: int
    sync_appends: bool = True
    lock_timeout_seconds: float = 0.0
    cache_bytes: int = 0
    tail_only: bool = False
    hold_lock: bool = True
    keys: Keyring | None = None
    """The keys that unseal the conversation, and seal a new one."""
    accept_unkeyed_repair: bool = False
    accept_plain: bool = False
    """True if a plaintext conversation may be loaded with keys: to seal it."""
    take_over: bool = False
    """On a backend: True to take over from another writer. In a folder a lock ends with its process."""
    holder: str = ""
    """On a backend: the name of this writer, which a fenced writer sees in its error."""


class Storage(ABC):
    """One conversation in one folder, opened to read or to write."""

    writable: bool
    _poll_seconds = POLL_SECONDS

    def __init__(self, files: FileSystem, path: str, options: StorageOptions, *, from_medium: bool = False) -> None:
        self.path = path
        self.members: dict[str, Any] = {}
        self.files = files
        self.options = options
        self.from_medium = from_medium
        """For a reader: True while it reads something to copy, which must be on disk."""
        self.folder = Folder(files, path, -1)
        self.lock = Lock(self.folder, Hint.WAIT_OR_READ, poll_seconds=self._poll_seconds)
        """A reader never takes it."""
        self.log = self._new_log()
        """The log of the live generation."""
        self.mark: Mark | None = None
        self.sealing: Sealing | None = None
        """The data key, if the conversation is sealed and the key was given. Then ``members`` include the sealed ones."""
        self.sealing_ahead: Sealing | None = None
        """The data key that was read before the lock was taken, for the load or the seal that follows."""
        self.was_repaired = False
        """True if a repair without the key was loaded, which the caller accepts."""
        self.state = State.NEW

    @property
    def is_open(self) -> bool:
        """False after ``let_go()``."""
        return self.state is not State.CLOSED

    @property
    def updated_at(self) -> str:
        """The later of the metadata's ``updated_at`` and the last record's time."""
        return max(str(self.members["updated_at"]), self.log.updated_at)

    # ---- load ----------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Open the conversation and verify it; a writer takes the lock and recovers a torn tail."""
        with refusals(self.path, "open the conversation", can_read_only=self.writable):
            while not self._load():
                pass

    def _load(self) -> bool:
        """Load the conversation at the path; False if it was moved away meanwhile (deleted, for example), so that the
        path must be opened again.
        """
        self.folder.take_over(open_folder(self.files, self.path, hint=Hint.INITIALIZE))
        try:
            require_conversation(self.folder)
            return self.load_what_is_there()
        except (CorruptTranscriptError, CorruptMetadataError, ConversationNotFoundError):
            # Damage counts only if the folder is still the one at the path: a folder that is being deleted looks
            # damaged.
            if self.folder.is_at_its_path():
                raise
            self.lock.release()
            return False

    @abstractmethod
    def load_what_is_there(self) -> bool:
        """Load the folder that is open; False if it is no longer the one at the path."""

    def take_in(self) -> None:
        """Read metadata.json, then the transcript. In this order a reader never meets an older generation than its
        metadata.

        The old state stays until everything new is verified.
        """
        log = (
            self.log if self.log.handle < 0 else self._new_log()
        )  # the first load uses the one that was created with the storage
        try:
            document = read_metadata(self.folder)
            log.open(document.mark)
            agreed = layout.of_live(log.header, document)
            if isinstance(agreed, layout.Mismatch):
                raise self.corrupt(*agreed)
            sealing = self._unlocked(log.header)
            was_repaired = False
            if sealing is not None:
                # Before verify(): a forged header must not decide how the records are read.
                was_repaired = self._require_genuine(sealing, log.header, document, agreed)
                log.sealer = sealing.sealer(log.header.generation)
            log.verify(agreed.mark)
            members, mark, _ = agreed
            if sealing is not None:
                members = sealing.opened(members, self.folder.path_of(METADATA))
                # A repair without the key cannot write keyed counts, so only the order of the sealed records can be
                # checked.
                if was_repaired:
                    log.require_kept_in_order()
                else:
                    self._require_all(log, members)
        except BaseException:
            with suppress(OSError):
                log.close()
            if log is self.log:  # the next attempt starts with nothing
                self.log = self._new_log()
            raise
        before, self.log, self.members, self.mark = self.log, log, members, mark
        self.sealing, self.was_repaired = sealing, was_repaired
        if before is not log:
            with suppress(OSError):
                before.close()

    # ---- a call ----------------------------------------------------------------------------------------------------

    def begin_read(self) -> None:
        """Before a call that reads: make sure that memory is what the disk holds."""
        self.resolve()

    @abstractmethod
    def resolve(self) -> None:
        """Find out what an interrupted call left, if one was."""

    def end_call(self) -> None:  # noqa: B027 (only a writer that lets go of the conversation between calls has something to do)
        """At the end of a call, whatever its result."""

    # ---- sealed --------------------------------------------------------------------------------------------------

    def _unlocked(self, header: Header) -> Sealing | None:
        """The data key of the conversation; None if it is plaintext, or no keys were given. Raises for plaintext where
        it must be sealed.
        """
        if self.options.keys is None:
            return None
        if not header.is_sealed:
            if self.options.accept_plain:
                return None
            reason = "a key was given, but the conversation is not sealed"
            raise NotSealedError(path=self.path, reason=reason)
        known, self.sealing_ahead = self.sealing_ahead or self.sealing, None
        return Sealing.of(self.options.keys, self.folder, header.conversation, known)

    def _require_genuine(
        self, sealing: Sealing, header: Header, document: MetadataDocument, agreed: MetadataDocument
    ) -> bool:
        """Raise unless the header and the metadata were written with the key; True if a repair wrote them, and the
        caller accepts it.

        The header of an accepted repair has no check of its own: the mark's head covers it.
        """
        of_header = sealing.is_genuine(header)
        if of_header is False:
            # If the key opens no part of it, it is another key (a wrong argument), and not a change of the file.
            if self.options.keys is not None and opens(sealing.key, document.members, None) is False:
                self.options.keys.refuse_another(sealing.key_id, self.folder.path_of(KEY))
            raise self.corrupt("not-genuine", "its first line was not written with the key", Hint.RESTORE)
        of_document = sealing.is_genuine(document)
        if of_document is False:
            path = self.folder.path_of(METADATA)
            reason = "it was not written with the key, or is out of date: it was changed, or replaced by an older one"
            raise CorruptMetadataError(path=path, kind="not-genuine", reason=reason)
        is_genuine = of_header is True
        if agreed is document:  # else a replace was interrupted before it wrote metadata.json
            is_genuine = of_document is True and (is_genuine or document.mark is not None)
        if is_genuine:
            return False
        if not self.options.accept_unkeyed_repair:
            reason = "it was repaired, or rewritten, without its key"
            raise self.corrupt("unkeyed-repair", reason, Hint.ACCEPT_THE_REPAIR)
        return True

    def _require_all(self, log: Log, members: dict[str, Any]) -> None:
        """Raise if something is missing that can be removed without the key: the first records, or an earlier generation."""
        # The chain is not keyed, so a process without the key can cut records off. The header, which is keyed, counts the
        # first ones (P17).
        if log.end.seq < log.header.begins_with:
            reason = f"it started with {many(log.header.begins_with, 'record')}, and has {log.end.seq:,}"
            raise self.corrupt("truncated", reason)
        there = {*archive.numbers(self.folder)}
        gone = missing_ranges(log.header.generation, there, members.get(GONE) or [])
        if gone:
            reason = f"generation {gone[0][0]} is missing, and was not deleted with the key"
            raise CorruptTranscriptError(path=self.folder.path_of(ARCHIVE), kind="missing", reason=reason)

    def opened(self, document: MetadataDocument) -> dict[str, Any]:
        """The unsealed members of a metadata.json of the loaded generation."""
        if self.sealing is None:
            return document.members
        self._require_genuine(self.sealing, self.log.header, document, document)
        return self.sealing.opened(document.members, self.folder.path_of(METADATA))

    def members_now(self) -> dict[str, Any]:
        """The members on the disk. A writer has them."""
        return self.members

    def members_at_start(self, log: Log) -> dict[str, Any]:
        """The metadata when a generation started: the live one, or an :meth:`archived` one."""
        members = log.header.metadata
        if self.sealing is None or not log.header.is_sealed:
            return members
        return Sealing(self.sealing.key, self.files, b"").opened(members, log.path)

    def document(self, members: dict[str, Any], mark: Mark | None) -> bytes:
        """The stored metadata.json."""
        return encode_document(members, mark) if self.sealing is None else self.sealing.document(members, mark)

    # ---- read ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def sync_before_copy(self) -> None:
        """Before a copy of what was read: make sure that it is on disk.

        Otherwise a copy could have a message that a power loss takes from the original.
        """

    def generations(self) -> list[Generation]:
        """Every existing generation, the oldest first, the live one last."""
        with refusals(self.path, "read the archive"):
            return archive.generations(self.folder, self.log, self.members_now, self.sealing)

    @contextmanager
    def archived(self, number: int) -> Iterator[Log]:
        """An earlier generation, verified, to read; the live one for its own number."""
        with refusals(self.path, "read an earlier generation"):
            if number == self.log.header.generation:
                yield self.log
                return
            with archive.open_archived(self.folder, self.log, self.members_now, number, self.sealing) as log:
                yield log

    # ---- end -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def close(self) -> None:
        """Finish the operation in progress, and release everything."""

    def let_go(self) -> None:
        """Close every handle, release the lock, and forget what was read, whatever happens.

        May be interrupted and called again.
        """
        self.state = State.CLOSED
        # The lock first: if this is interrupted, other processes can continue.
        for release in (self.lock.release, self.log.close, self.folder.close):
            with suppress(OSError):
                release()
        self.log = self._new_log()

    @contextmanager
    def let_go_at_the_end(self) -> Iterator[None]:
        """Release everything at the end of a block, also if that is interrupted (Ctrl-C) the first time."""
        with ExitStack() as stack:
            for _ in range(2):
                stack.callback(self.let_go)
            yield

    def _new_log(self) -> Log:
        return Log(
            self.folder,
            writable=self.writable,
            max_line_bytes=self.options.max_line_bytes,
            cache_bytes=self.options.cache_bytes,
            tail_only=self.options.tail_only,
            from_medium=self.from_medium,
        )

    def corrupt(self, kind: str, reason: str, hint: Hint | None = None) -> CorruptTranscriptError:
        return CorruptTranscriptError(path=self.path, kind=kind, reason=reason, hint=hint)


# ---- reader ----
# One conversation, read without a lock beside an active writer. Nothing here writes.


class RefreshResult(NamedTuple):
    """The result of ``refresh()``: how many records are new, and whether the transcript was read from its start again."""

    records_added: int
    started_over: bool


class Reader(Storage):
    """A conversation as one reader sees it: as it was when it was loaded, or last refreshed."""

    writable = False

    def load_what_is_there(self) -> bool:
        if (error := twice(self.files, self._try_to_read, lambda error: error is None, key=str)) is not None:
            raise error
        self.state = State.READY
        return True

    def _try_to_read(self) -> CorruptTranscriptError | CorruptMetadataError | None:
        try:
            self.take_in()
        except (CorruptTranscriptError, CorruptMetadataError) as error:
            return error
        return None

    def refresh(self) -> RefreshResult:
        """Read the new records; start over if another transcript is there, or the one that was read was changed."""
        with refusals(self.path, "read the conversation again"):
            self._reopen()
            before = self.log.end.seq
            status = self.folder.status(TRANSCRIPT)
            if status is not None and identity(status) == self.log.inode and self.log.read_on():
                document = read_metadata(self.folder)
                # Compared although the inode is the same: a restore may have replaced metadata.json alone.
                if document.members["id"] == self.log.header.conversation:
                    # After a replace the metadata may be that of the next generation already; the next refresh starts over.
                    if document.members["generation"] == self.log.header.generation:
                        self.members = self.opened(document)
                    return RefreshResult(self.log.end.seq - before, False)
                # This is another conversation's metadata.json: the load names both conversations.
            self.load_what_is_there()
            return RefreshResult(self.log.end.seq, True)

    def _reopen(self) -> None:
        self.folder.take_over(open_folder(self.files, self.path, absent="the conversation was removed"))

    def members_now(self) -> dict[str, Any]:
        """The members as they are on disk; those that were read, if the file cannot be trusted now."""
        # A reader takes no lock, so it may look while the file is being restored: what it read before is still true of
        # that time (P12).
        with suppress(CorruptMetadataError, CorruptTranscriptError, UnsupportedVersionError):
            return self.opened(read_metadata(self.folder))
        return self.members

    def resolve(self) -> None:
        """Nothing to do: a reader writes nothing, and an interrupted refresh leaves what was known before."""

    def sync_before_copy(self) -> None:
        """Sync what its writer may not have synced, and read it again from disk.

        After a failed sync of the writer, the page cache shows bytes that the disk never got, and another sync reports
        success. So the cache is not trusted. Only what the mark covers need not be read again.
        """
        with refusals(self.path, "sync before the copy", "Nothing was copied"):
            # A mark at the end says that everything was synced, and nothing need be read again.
            if not self.from_medium and self.mark != Mark(self.log.header.generation, self.log.end):
                self.from_medium = True
                try:
                    self._reopen()
                    self.load_what_is_there()
                finally:
                    self.from_medium = False
            sync_name(self.folder)
            self.folder.sync_to_copy()  # the names of the transcript and of the metadata

    def close(self) -> None:
        """Release everything: there is nothing to finish."""
        self.let_go()
