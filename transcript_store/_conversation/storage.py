"""A conversation's folder: the log of the live generation, the metadata beside it, the archive, the writer's lock.

This is all that ``ConversationStore`` needs of what is below it: read the lines of the current generation, append lines
durably, replace the generation atomically, read and write one metadata document, hold the writer's lock. Another engine
would have the same door.

Order of writes (docs/durability.md says why each sync is there):

* create: lock; metadata with a void mark; transcript under a temporary name, sync, **rename**, sync the folder; metadata.
* replace: sync the old transcript; link it into ``archive/``, sync that; new transcript as above, **rename**; metadata.
* metadata: sync the transcript, so that the mark is true; temporary file, sync, **rename**, sync the folder.

What a storage is, is one value, :class:`State`; which call leads from which to which:

======================  ==========  ==============================================================================
call                    from        to
======================  ==========  ==============================================================================
load, create            NEW         READY; if it is refused it stays NEW, and whoever called lets go of it
append                  READY       READY; POISONED if the sync failed
replace, metadata, …    READY       CHANGING, then READY; READY too if it is refused; POISONED if a sync failed
(interrupted)           CHANGING    CHANGING: the next call loads what is on the disk, and then it is READY
load to write           CHANGING    READY; if it is refused it stays CHANGING
close, let_go           any         CLOSED
======================  ==========  ==============================================================================

An append that is interrupted changes nothing here: its log knows that it is not ``settled``, and looks at its file again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any, NamedTuple

from transcript_store._conversation import agreement, archive
from transcript_store._conversation.archive import Generation
from transcript_store._conversation.layout import (
    FILE_IN_PLACE,
    occupant,
    occupant_of,
    read_metadata,
    require_conversation,
)
from transcript_store._conversation.metadata import encode_document, require_to_fit
from transcript_store._conversation.twice import twice
from transcript_store._log import quarantine
from transcript_store._log.log import AppendResult, CannotCutBackError, Entry, Image, Log, Prepared
from transcript_store._log.record import Copied, Mark
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.lock import Lock
from transcript_store._os.names import ARCHIVE, LOCK, METADATA, QUARANTINE, TRANSCRIPT
from transcript_store._os.refusals import NotOursError, SyncFailedError, refusals, refused
from transcript_store.errors import (
    ConversationExistsError,
    ConversationLockedError,
    ConversationNotFoundError,
    CorruptMetadataError,
    CorruptTranscriptError,
    PoisonedError,
    StorageError,
)
from transcript_store.ways_out import WayOut

logger = logging.getLogger("transcript_store.storage")

MARK_EVERY = 1000
"""Records between two marks of a writer that syncs each append: two syncs more among a thousand."""

_UNKNOWN = "Whether it is on the disk is unknown, and this store writes nothing more"


class State(Enum):
    """What is known of a conversation's folder; the table above says what leads from which to which."""

    NEW = "nothing was loaded or created yet"
    READY = "memory is what the disk holds"
    CHANGING = "a change was begun, and has not ended: what the disk holds must be looked at"
    POISONED = "a sync failed: what the disk holds is not known, and nothing more is written"
    CLOSED = "every handle is closed, and the lock is free"


class RefreshResult(NamedTuple):
    """What ``refresh()`` saw: how many records are new, and whether the transcript was read from its start again."""

    records_added: int
    started_over: bool


class Storage:
    """One conversation in one folder, as one writer or one reader sees it."""

    def __init__(
        self,
        files: FileSystem,
        path: str,
        *,
        sync_appends: bool,
        read_only: bool,
        lock_timeout_seconds: float,
        max_line_bytes: int,
        cache_bytes: int,
        tail_only: bool = False,
        from_medium: bool = False,
    ) -> None:
        self.path = path
        self.members: dict[str, Any] = {}
        self._files = files
        self._sync_appends = sync_appends
        self._read_only = read_only
        self._lock_timeout_seconds = lock_timeout_seconds
        self._max_line_bytes = max_line_bytes
        self._cache_bytes = cache_bytes
        self._tail_only = tail_only
        self._from_medium = from_medium
        """Of a reader: whether what it reads is to be copied, and so must be on the medium."""
        self._folder = Folder(files, path, -1)
        self._lock = Lock(self._folder, WayOut.WAIT_OR_READ)
        self._log = self._new_log()
        self._mark: Mark | None = None
        self._mark_due = MARK_EVERY
        """With the record of this number the mark is renewed, if appends are synced."""
        self._state = State.NEW
        self._failure = ""
        """What the sync that failed said."""

    @property
    def log(self) -> Log:
        """The log of the live generation, to read."""
        return self._log

    @property
    def is_open(self) -> bool:
        """False once it was let go of."""
        return self._state is not State.CLOSED

    @property
    def is_poisoned(self) -> bool:
        """Whether a sync failed, so that nothing more is written."""
        return self._state is State.POISONED

    @property
    def updated_at(self) -> str:
        """The later of the metadata's ``updated_at`` and the last record's time."""
        return max(str(self.members["updated_at"]), self._log.updated_at)

    # ---- begin ---------------------------------------------------------------------------------------------------

    def create(self, members_at: Callable[[str], dict[str, Any]], entries: Iterable[Entry | Copied]) -> None:
        """Create the conversation with its first records; ``members_at`` gives its metadata for a time.

        The commit is the rename of the transcript to its name. Raises ``ConversationExistsError`` if anything but the
        leftovers of an unfinished create is there; then nothing was touched.
        """
        self._refuse_occupied(occupant(self._files, self.path))
        members = members_at(self._log.stamp()[1])
        require_to_fit(members)
        image = self._log.image(members, entries)
        doing = "create the conversation"
        with refusals(self.path, doing, "There is none yet"):
            while True:
                self._make_folder()
                self._refuse_occupied(occupant_of(self._folder))  # not even a lock is put into what is not ours
                if self._take_lock():
                    break
            self._refuse_occupied(occupant_of(self._folder))  # another process may have been faster
            self._folder.sweep()
            self._folder.replace_file(METADATA, [encode_document(members, None)])
            try:
                self._put_in_place(image, members)
            except SyncFailedError as error:
                unknown = "Whether there is one now is unknown"
                raise refused(error, self.path, doing, unknown, WayOut.EXISTS_TELLS) from error
        self._state = State.READY
        self._renew_mark()

    def _make_folder(self) -> None:
        """Make the folder; what is moved away (deleted, say) between two calls is made anew."""
        for attempts_left in (2, 1, 0):
            try:
                self._folder.take_over(Folder.make(self._files, self.path))
                return
            except (FileExistsError, NotADirectoryError):
                self._refuse_occupied("a file stands where a folder should be")
            except FileNotFoundError:
                if not attempts_left:
                    raise  # a file system in which nothing can be made

    def _refuse_occupied(self, what: str | None) -> None:
        if what is not None:
            raise ConversationExistsError(path=self.path, reason=what)

    def load(self) -> None:
        """Open the conversation that is there, verify it, recover it if we may write, and hold the writer's lock."""
        with refusals(self.path, "open the conversation", can_read_only=not self._read_only):
            while not self._load():
                pass

    def _load(self) -> bool:
        """Load what is at the path; False if it was moved away (deleted, say) meanwhile, so that it must be looked at anew."""
        try:
            self._folder.take_over(Folder.open(self._files, self.path))
        except FileNotFoundError:
            raise ConversationNotFoundError(
                path=self.path, reason="there is no conversation", way_out=WayOut.INITIALIZE
            ) from None
        except NotADirectoryError:
            raise self._corrupt("foreign", FILE_IN_PLACE, WayOut.CHOOSE_A_FOLDER) from None
        try:
            require_conversation(self._folder)
            if self._read_only:
                self._load_to_read()
            elif self._take_lock(can_read_only=True):
                self._load_to_write()
            else:
                return False
        except (CorruptTranscriptError, CorruptMetadataError, ConversationNotFoundError):
            if self._folder.is_at_its_path():
                raise
            self._lock.release()
            return False
        return True

    def _take_lock(self, *, can_read_only: bool = False) -> bool:
        """Take the writer's lock; False if the folder was moved away, or removed, before it was taken."""
        self._lock = Lock(self._folder, WayOut.WAIT_OR_READ)
        with refusals(self._folder.path_of(LOCK), "take the writer's lock", can_read_only=can_read_only):
            try:
                if self._lock.take(self._lock_timeout_seconds) and self._folder.is_at_its_path():
                    return True
                self._lock.release()
                return False
            except NotOursError as error:
                raise self._corrupt("foreign", f"{LOCK}: {error.reason}") from None

    def _load_to_read(self) -> None:
        """Load without a lock. A writer at work can make one moment look damaged: only what is seen twice is damage."""
        if (error := twice(self._files, self._try_to_read, lambda error: error is None, key=str)) is not None:
            raise error
        self._state = State.READY

    def _try_to_read(self) -> CorruptTranscriptError | CorruptMetadataError | None:
        try:
            self._take_in(self._new_log())
        except (CorruptTranscriptError, CorruptMetadataError) as error:
            return error
        return None

    def _load_to_write(self) -> None:
        """Load with the lock held; renew the mark if the transcript grew past it.

        The folder is synced first: a process that was killed between a rename and its sync left a name that a power cut
        would take back, and with it whatever is appended under it.
        """
        if self._state is not State.NEW:
            self._state = State.CHANGING
        self._folder.sync()
        self._sweep()
        self._take_in(self._new_log())
        archive.tidy(self._folder, self._log)
        if self._log.hard_links() > 1:
            what = "the transcript has a second name (a hard link): what is written there is written here"
            logger.warning("%s: %s", self.path, what)
        self._state = State.READY
        self._renew_mark()

    def _sweep(self) -> None:
        """Remove the temporaries that earlier writers left."""
        self._folder.sweep()
        for name in (ARCHIVE, QUARANTINE):
            with suppress(OSError), self._folder.subfolder(name) as subfolder:
                subfolder.sweep()

    def _take_in(self, log: Log) -> None:
        """Read metadata.json, then the transcript: in this order, so that a reader never meets an older generation.

        What was known before stays until all of it is verified.
        """
        try:
            document = read_metadata(self._folder)
            log.open(document.mark)
            agreed = agreement.of_live(log.header, document)
            if isinstance(agreed, agreement.Disagreement):
                raise self._corrupt(*agreed)
            members, mark = agreed
            log.verify(mark)
        except BaseException:
            with suppress(OSError):
                log.close()
            raise
        log, self._log, self.members, self._mark = self._log, log, members, mark
        with suppress(OSError):
            log.close()

    # ---- write ---------------------------------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> list[AppendResult]:
        """Append records as one, as durable on return as this storage was opened for."""
        prepared = self.prepare(entries)
        self.store(prepared)
        return prepared.stored

    def prepare(self, entries: Sequence[Entry]) -> Prepared:
        """The first half of an append: everything but the write."""
        self._make_sure()
        return self._log.prepare(entries)

    def store(self, prepared: Prepared) -> None:
        """The second half: to be called right after the first, without anything in between."""
        try:
            self._log.append(prepared, sync=self._sync_appends)
        except CannotCutBackError as error:
            raise self._poison(error, "append") from error
        except SyncFailedError as error:
            raise self._poison(error, "sync what was appended") from error
        except OSError as error:
            path = self._folder.path_of(TRANSCRIPT)
            raise refused(error, path, "append", "Nothing of it was stored; everything before is intact") from error
        if self._sync_appends and prepared.end.seq >= self._mark_due:
            self._renew_mark()

    def replace(self, entries: Sequence[Entry], members: dict[str, Any]) -> None:
        """Start the next generation with these records and this metadata: one commit, the rename of its transcript."""
        self._make_sure()
        self._log.complete()  # what goes into the archive was verified
        live = self._log.header.generation
        end = self._log.end
        members = {**members, "generation": live + 1, "updated_at": max(self.updated_at, self._log.stamp()[1])}
        require_to_fit(members)
        replaces = {"generation": live, "records": end.seq, "head": end.head.decode()}
        image = self._log.image(members, entries, replaces=replaces)
        with self._changing("replace the transcript"):
            self._log.sync()
            self._state = State.CHANGING
            archive.keep(self._folder, self._log)
            self._put_in_place(image, members)
        self._state = State.READY
        self._renew_mark()

    def write_metadata(self, members: dict[str, Any]) -> None:
        """Replace the metadata document, with a mark of everything that is stored."""
        self._make_sure()
        members = {**members, "updated_at": max(self.updated_at, self._log.stamp()[1])}
        require_to_fit(members)
        with self._changing("write the metadata"):
            self._remember(members)

    def _remember(self, members: dict[str, Any]) -> None:
        self._log.sync()
        self._state = State.CHANGING
        self._write_document(members)
        self._state = State.READY

    @contextmanager
    def _changing(self, doing: str) -> Iterator[None]:
        """A change that ends in a commit. What is refused before that left everything as it was; a failed sync poisons;
        after anything else (an interruption) the folder is read anew.
        """
        try:
            self._insist_on_the_lock()
            yield
        except SyncFailedError as error:
            raise self._poison(error, doing) from error
        except OSError as error:
            self._state = State.READY
            raise refused(error, self.path, doing, "What was there before is in place and intact") from error

    def _poison(self, error: OSError, doing: str) -> Exception:
        self._state, self._failure = State.POISONED, str(error.strerror)
        return refused(error, self._folder.path_of(TRANSCRIPT), doing, _UNKNOWN, WayOut.LOAD_TO_SEE)

    def _put_in_place(self, image: Image, members: dict[str, Any]) -> None:
        """Write a new transcript and give it its name: the commit of a create and of a replace.

        Raises ``SyncFailedError`` if it may or may not have its name, any other ``OSError`` if it has not.
        """
        temporary, handle = self._folder.write_temporary(image.pieces())
        try:
            status = self._files.handle_status(handle)
            self._files.rename(self._folder.handle, temporary, TRANSCRIPT)
        except BaseException:
            with suppress(OSError):
                self._files.close(handle)
            self._folder.discard(temporary)
            raise
        self._log.adopt(image, handle, (status.st_dev, status.st_ino))
        self.members, self._mark = members, None
        self._folder.sync()

    def _write_document(self, members: dict[str, Any]) -> None:
        mark = Mark(self._log.header.generation, self._log.synced)
        self._folder.replace_file(METADATA, [encode_document(members, mark)])
        self.members, self._mark = members, mark

    def _renew_mark(self) -> None:
        """Remember in metadata.json what is synced, if that is news. Best effort: what matters is stored already."""
        self._mark_due = self._log.end.seq + MARK_EVERY
        if self._mark == Mark(self._log.header.generation, self._log.synced):
            return
        try:
            self._insist_on_the_lock()
            if not self._log.is_as_remembered():
                return  # the next call looks at it again
            self._write_document({**self.members, "updated_at": self.updated_at})
        except (OSError, ConversationLockedError, CorruptTranscriptError) as error:
            if isinstance(error, SyncFailedError):
                self._state, self._failure = State.POISONED, str(error.strerror)
            logger.warning(
                "%s: metadata.json could not note how far the transcript is synced (%s); what was acknowledged is stored, and "
                "the next load tries again",
                self.path,
                error,
            )

    def _make_sure(self) -> None:
        """Before a write: the file is what memory says, the lock is ours, no sync failed and no call was interrupted."""
        if self._state is State.POISONED:
            raise PoisonedError(path=self.path, reason=self._failure)
        try:
            if self._state is State.READY and self._log.is_as_remembered():
                return
            self._insist_on_the_lock()
            if self._state is not State.READY:
                self._load_to_write()
            else:
                self._log.look_again()
        except SyncFailedError as error:
            raise self._poison(error, "sync what was written") from error
        except StorageError:
            raise
        except OSError as error:
            raise refused(error, self.path, "look at the transcript") from error

    def _insist_on_the_lock(self) -> None:
        """Before anything but a plain append: that compares the transcript's size, and notices another writer's by it."""
        if not self._lock.is_held():
            what = "the lock file was removed while we held it, so others may write"
            raise ConversationLockedError(path=self.path, reason=what, way_out=WayOut.LOAD_ANEW)

    def settle(self) -> None:
        """Before a read: look at what an interrupted call left."""
        if self._read_only or self._state is State.POISONED:
            return
        if self._state is not State.READY or not self._log.settled:
            self._make_sure()

    def settle_to_copy(self) -> None:
        """Before what was read is copied: put it on the medium, or a copy would have what a power cut takes from the original.

        A reader reads it anew from the medium: after a sync that failed for its writer the cache shows what the disk never got,
        and another sync says that all is well. Only what is synced up to the mark need not be read again.
        """
        if not self._read_only:
            if self._state is State.READY:  # a poisoned one gives what was acknowledged
                try:
                    self._log.sync()
                except SyncFailedError as error:
                    raise self._poison(error, "sync what is to be copied") from error
            return
        with refusals(self.path, "sync what is to be copied", "Nothing was copied"):
            if not self._from_medium and self._mark != Mark(self._log.header.generation, self._log.end):
                self._from_medium = True
                try:
                    self._reopen()
                    self._load_to_read()
                finally:
                    self._from_medium = False
            self._folder.sync_to_copy()  # the name of the transcript, and that of the metadata

    # ---- earlier generations -------------------------------------------------------------------------------------

    def generations(self) -> list[Generation]:
        """Every generation that there is, the oldest first, the live one last."""
        with refusals(self.path, "look into the archive"):
            return archive.generations(self._folder, self._log, self.members)

    @contextmanager
    def archived(self, number: int) -> Iterator[Log]:
        """An earlier generation, verified, to read; the live one for its own number."""
        with refusals(self.path, "read an earlier generation"):
            if number == self._log.header.generation:
                yield self._log
                return
            with archive.opened(self._folder, self._log, self.members, number) as log:
                yield log

    def delete_generation(self, number: int) -> None:
        """Remove an earlier generation from the archive, durably. First the metadata takes over what it says of the one before."""
        self._make_sure()
        with self._changing("delete an earlier generation"):
            members = archive.without(self._folder, self.members, number)
            if members != self.members:
                self._remember(members)
            archive.remove(self._folder, self._log, number)

    def purge_quarantine(self) -> int:
        """Remove everything in quarantine/, durably; returns how many pieces of damaged files were in it."""
        self._make_sure()
        with self._changing("purge the quarantine"):
            return quarantine.purge(self._folder)

    # ---- read along, and end -------------------------------------------------------------------------------------

    def refresh(self) -> RefreshResult:
        """For a reader: read what was added since; start over if the transcript is not the one it was."""
        with refusals(self.path, "read the conversation again"):
            self._reopen()
            before = self._log.end.seq
            status = self._folder.status(TRANSCRIPT)
            if status is not None and self._log.is_at((status.st_dev, status.st_ino)) and self._log.read_on():
                members = read_metadata(self._folder).members
                if members["generation"] == self._log.header.generation:
                    self.members = members
                return RefreshResult(self._log.end.seq - before, False)
            self._load_to_read()
            return RefreshResult(self._log.end.seq, True)

    def _reopen(self) -> None:
        try:
            self._folder.take_over(Folder.open(self._files, self.path))
        except FileNotFoundError:
            raise ConversationNotFoundError(path=self.path, reason="the conversation is gone") from None

    def close(self) -> None:
        """Sync, renew the mark, let go. A poisoned storage is only let go of: neither synced nor marked."""
        try:
            if self._state in (State.READY, State.CHANGING) and not self._read_only:
                self._settle_to_close()
        finally:
            self.let_go()

    def _settle_to_close(self) -> None:
        consequence = "Every message was written; whether the last ones are on the disk is unknown"
        with refusals(self.path, "sync the transcript while closing", consequence):
            try:
                self._make_sure()
                self._log.sync()
            except (CorruptTranscriptError, CorruptMetadataError, ConversationLockedError) as error:
                logger.warning("%s: closed as it is: %s", self.path, error)
                return
            self._renew_mark()

    def let_go(self) -> None:
        """Close every handle, release the lock, and forget what was read, whatever happens. May be interrupted and called again."""
        self._state = State.CLOSED
        self._log.settled = False
        for release in (self._lock.release, self._log.close, self._folder.close):
            with suppress(OSError):
                release()
        self._log = self._new_log()

    def _new_log(self) -> Log:
        return Log(
            self._folder,
            writable=not self._read_only,
            max_line_bytes=self._max_line_bytes,
            cache_bytes=self._cache_bytes,
            tail_only=self._tail_only,
            from_medium=self._from_medium,
        )

    def _corrupt(self, kind: str, reason: str, way_out: WayOut | None = None) -> CorruptTranscriptError:
        return CorruptTranscriptError(path=self.path, kind=kind, reason=reason, way_out=way_out)
