"""How are many conversations created as a group, with one commit? ``ConversationLibrary.group()``.

Creating one conversation syncs at least seven times. In the staging area each is written in full without a sync, under a name
that no process looks for, ``.stage-<32 hex>-<id>`` in the library. Then:

1. one sync of the file system: all that was written is on disk (``_os/filesystem.py`` says where that can be relied upon);
2. each is renamed to its id. A directory replaces only an empty one: the faster process keeps the name;
3. one sync of the library: the names are on disk. Only now does a caller learn of them.

Invariants, which the tests name:

A1  Under its id a conversation is whole and on disk, from the first moment. Only the name itself may not be.
A2  A name that is not synced is known to be so: the stage's note exists, and the process that sweeps it syncs the library first; and the
    conversation has no lock file, so a process that writes to it or copies it syncs its name first (``layout.sync_name``).
A3  What is on a stage belongs to the process that holds the lock of its note, ``.stage-<32 hex>``. When that is dead, the next
    create, delete or stage removes it.
A4  After a failed sync nothing more is put on the stage, and nothing of it gets a name.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Unpack

from transcript_store._conversation.arguments import Redacting, new_conversation
from transcript_store._conversation.metadata import checked_id, new_members
from transcript_store._conversation.storage import StorageOptions
from transcript_store._conversation.writer import Writer
from transcript_store._log.record import Copied, Entry
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem, SyncFailedError, refusals, storage_error, unsynced
from transcript_store._os.lock import Lock
from transcript_store._os.names import LOCK, new_id, stage_name, staged_name
from transcript_store._sealing.keys import Keyring
from transcript_store.conversation import DEFAULT_MAX_LINE_BYTES, ConversationStore, NewConversation, Redact
from transcript_store.errors import ConversationExistsError, ConversationLockedError, PoisonedError
from transcript_store.hints import Hint

_OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY})
"""The error numbers of a directory's rename onto something that it does not replace: a folder, a file, a link, a mount."""
_CREATING = "create the conversations"


class StagingArea:
    """A staging area in a library, held open by one process. Calls must not overlap, except ``write``."""

    def __init__(self, files: FileSystem, library: str) -> None:
        self.files = unsynced(files)
        """The file system that writes the contents."""
        self._failure = ""
        self._has_names_to_sync = False
        with refusals(library, _CREATING, "None of them was created"):
            self._parent = Folder.make(
                files, library
            )  # before anything is written: sync_all reports errors from here on
            self._note_name = stage_name(files)
            self._note = Lock(self._parent, name=self._note_name)
            try:
                self._note.take(0)
            except BaseException:
                self.close()
                raise

    def path_of(self, id: str) -> str:
        """The path of a conversation in the staging area."""
        return self._parent.path_of(staged_name(self._note_name, id))

    def write(
        self,
        id: str,
        members_at: Callable[[str], dict[str, Any]],
        entries: Iterable[Entry | Copied],
        options: StorageOptions,
        features: Sequence[str] = (),
    ) -> None:
        """Write a conversation into the staging area, whole and closed. Raises ``ConversationExistsError`` if its id is
        taken.
        """
        path = self._parent.path_of(id)
        self._require_it_is_sound()
        with refusals(path, "create the conversation", "There is none yet"):
            # Early, for a clear error. The rename in commit() decides: it refuses an existing name.
            if self._parent.status(id) is not None:
                raise ConversationExistsError(path=path, reason="the name is taken")
            name = staged_name(self._note_name, id)
            try:
                Writer(self.files, path, options).create_aside(self._parent, name, members_at, entries, features)
            except BaseException:
                self.discard(id)
                raise

    def finish(self, id: str) -> None:
        """Take the lock file out of a conversation that a store was opened on, and closed: A2."""
        with (
            refusals(self.path_of(id), _CREATING),
            self._parent.subfolder(staged_name(self._note_name, id)) as folder,
            suppress(FileNotFoundError),
        ):
            self.files.unlink(folder.handle, LOCK)

    def commit(self, ids: Iterable[str]) -> list[str]:
        """Give whole conversations their names; returns those whose id another process took meanwhile.

        On return all others are created, and survive a power loss.
        """
        self._require_it_is_sound()
        with refusals(self._parent.path, _CREATING):
            if not self._note.is_held():
                what = "the staging note was removed while this process held it, so another process may have removed the conversations"
                raise ConversationLockedError(path=self._parent.path, reason=what, hint=Hint.CREATE_THE_REST)
        try:
            # One syncfs for all files of the group, before any name: a conversation with a name has to be complete
            # (A1).
            self._parent.sync_all()
        except SyncFailedError as error:
            raise self._poison(error, "None of them was created") from error
        some = "Some of them may be there, each of them whole"
        self._has_names_to_sync = True
        with refusals(self._parent.path, _CREATING, some):
            # Each rename is atomic: a kill in between leaves some conversations created, and each of them complete.
            taken = [one for one in ids if not self._name(one)]
        try:
            self._parent.sync()
        except SyncFailedError as error:
            raise self._poison(error, some) from error
        self._has_names_to_sync = False
        self.discard(*taken)
        return taken

    def _name(self, id: str) -> bool:
        try:
            self._parent.files.rename(self._parent.handle, staged_name(self._note_name, id), id)
        except OSError as error:
            if error.errno not in _OCCUPIED:
                raise
            return False
        return True

    def discard(self, *ids: str) -> None:
        """Remove conversations from the staging area, ignoring errors."""
        for one in ids:
            with suppress(OSError):
                self._parent.remove_tree(staged_name(self._note_name, one))

    def close(self) -> None:
        """Release the note. Its file stays if names are not synced yet: the process that finds it syncs them."""
        with self._note.released_at_the_end(), suppress(OSError):
            # A2: with unsynced names the note stays, since the process that finds it syncs the library first.
            if not self._has_names_to_sync and self._note.is_held():
                self._parent.discard(self._note_name)
        with suppress(OSError):
            self._parent.close()

    def _require_it_is_sound(self) -> None:
        if self._failure:
            raise PoisonedError(path=self._parent.path, reason=self._failure)

    def _poison(self, error: OSError, holds: str) -> Exception:
        self._failure = str(error.strerror)
        return storage_error(error, self._parent.path, _CREATING, holds, Hint.CREATE_THE_REST)


def is_of_use(files: FileSystem, library: str) -> bool:
    """True if a library's file system can be synced as a whole. If not, a staging area gains nothing."""
    with refusals(library, _CREATING):
        while True:
            try:
                with Folder.open(files, library) as folder:
                    return files.can_sync_all(folder.handle)
            except FileNotFoundError:
                if library == "/":
                    raise
                library = library.rpartition("/")[0] or "/"  # it will be created there


_MOST = 1000
_MOST_BYTES = 64 << 20
"""A commit happens after so many conversations, or so many bytes of messages: that is what a crash can cost."""
_OPTIONS = StorageOptions(max_line_bytes=DEFAULT_MAX_LINE_BYTES)


class _CommitFailedError(PoisonedError):
    """The failure may not be a sync, and ``load()`` does not help."""

    hint: Hint | None = Hint.CREATE_THE_REST

    _says = "{error.path}: {error.reason}, so nothing more is created"


class ConversationGroup:
    """Conversations of one library that are made durable together. :meth:`ConversationLibrary.group` returns one.

    An added conversation does not exist yet: no listing shows it, and a crash leaves nothing of it. A commit makes all
    of them durable at once, each one whole. The group commits by itself when it has a thousand conversations or 64 MB,
    and at the end of its ``with`` statement; a block that ends in an error adds nothing more.

    On a file system that cannot be synced as a whole (anything but ext4, xfs and btrfs on Linux 5.17 or later) each
    conversation is created by itself, when it is added. Several threads may use a group.
    """

    def __init__(
        self,
        library: str,
        files: FileSystem,
        create_alone: Callable[..., ConversationStore],
        redact: Redact | None = None,
        keys: Keyring | None = None,
    ) -> None:
        self._keys = keys
        self._library, self._files, self._create_alone, self._redact = library, files, create_alone, redact
        self._mutex = threading.RLock()
        self._is_of_use: bool | None = None
        self._stage: StagingArea | None = None
        self._being_added: set[str] = set()
        self._staged: dict[str, None] = {}
        """The conversations that the next commit will create."""
        self._staged_bytes = 0
        self._unknown: set[str] = set()
        """The conversations of a failed commit."""
        self._taken: set[str] = set()
        self._process_id: int | None = files.process_id()
        """The process that may use it; None when it is closed."""

    @property
    def existing_ids(self) -> frozenset[str]:
        """Ids that were added but not created: another process had created a conversation with that id before the commit."""
        return frozenset(self._taken)

    @property
    def creates_alone(self) -> bool:
        """True if each conversation is created by itself, when it is added: the file system cannot be synced as a whole.

        Raises:
            StorageError: the file system cannot be examined; the message says why.
        """
        if self._is_of_use is None:
            self._is_of_use = is_of_use(self._files, self._library)
        return not self._is_of_use

    def __len__(self) -> int:
        """How many conversations wait for a commit."""
        return len(self._staged)

    def __contains__(self, id: object) -> bool:
        """True if a conversation waits for a commit, is being added, or was in a failed commit."""
        return any(id in those for those in (self._being_added, self._staged, self._unknown))

    def add(self, *, id: str | None = None, **contents: Unpack[NewConversation]) -> str:
        """Add a conversation with these contents; returns its id.

        Args:
            id: a canonical lower-case UUID; a new random one if none is given.
            contents: members of :class:`NewConversation`; none of them is required.

        Raises:
            ConversationExistsError: the name is taken, or it is in the group already.
            PoisonedError: a commit failed; ``list()`` shows the created ones, and the rest can be created again in a
                new group.
            RuntimeError: the group has ended, perhaps during the call, or this is a fork of the process that created it.
            TranscriptStoreError: as :meth:`ConversationStore.initialize`. The others in the group wait as before.
        """
        own_id = new_id(self._files) if id is None else checked_id(id)
        stage = self._ready_stage(own_id)
        if stage is None:
            self._create_alone(id=own_id, **contents).close()
            return own_id
        with self._being_put(stage, own_id) as put:
            put(contents)
        return own_id

    @contextmanager
    def adding(self, *, id: str | None = None, **contents: Unpack[NewConversation]) -> Iterator[ConversationStore]:
        """As :meth:`add`, with a store in which more can be done to the conversation before it is committed.

        What the store acknowledges survives a crash only when it is committed. The end of the block closes the store. If the
        block raises, the conversation is not added.

        Raises:
            TranscriptStoreError: as :meth:`add`.
        """
        own_id = new_id(self._files) if id is None else checked_id(id)
        stage = self._ready_stage(own_id)
        if stage is None:
            with self._create_alone(id=own_id, **contents) as store:
                yield store
            return
        with self._being_put(stage, own_id) as put:
            put(contents)
            path, keys = stage.path_of(own_id), self._keys
            key = None if keys is None else keys.current
            retired = () if keys is None else keys.retired
            with ConversationStore(
                path, redact=self._redact, encryption_key=key, retired_keys=retired, file_system=stage.files
            ) as store:
                store.load()
                yield store
            stage.finish(own_id)

    def commit(self) -> None:
        """Create the added conversations, except those in ``existing_ids``. On return they survive a power loss.

        Raises:
            StorageError: the system refused; the message says what still holds and what to do. After a failed sync the
                group takes nothing more.
            PoisonedError: an earlier commit failed.
            RuntimeError: the group has ended, or this is a fork of the process that made it.
            ConversationLockedError: another process removed the group's note from the library, and perhaps the waiting
                conversations.
        """
        with self._mutex:
            self._require_it_goes_on()
            if self._stage is not None and self._staged:
                ids = list(self._staged)
                try:
                    self._taken.update(self._stage.commit(ids))
                except BaseException:
                    # Some renames may have happened: list() shows which. So nothing of this group is retried here.
                    self._unknown.update(ids)
                    self._stage.discard(*ids)  # those with their names are no longer in the staging area
                    raise
                finally:  # last: another thread takes what does not wait for created
                    self._staged, self._staged_bytes = {}, 0

    def end(self) -> None:
        """Commit and close, so that no other thread adds anything in between. The end of the ``with`` statement calls it.

        Raises:
            TranscriptStoreError: as :meth:`commit`.
        """
        with self._mutex:
            self.commit()
            self.close()

    def close(self) -> None:
        """Discard the waiting conversations. A ``with`` statement that ends in an error calls it.

        A conversation that another thread is still adding is not created, and that thread gets a ``RuntimeError``.
        """
        with self._mutex:
            if self._process_id not in (None, self._files.process_id()):
                # The note's lock and the files belong to the parent, which still uses them.
                self._stage = None  # a child of fork() closes nothing of its parent's
            elif self._stage is not None:
                self._stage.discard(*self._staged)
            self._staged, self._process_id = {}, None
            self._let_go_of_the_stage()

    # ---- within --------------------------------------------------------------------------------------------------

    def _require_it_goes_on(self) -> None:
        if self._process_id is None:
            raise RuntimeError(
                "the group has ended: nothing can be added after its with statement; create another group"
            )
        if self._files.process_id() != self._process_id:
            raise RuntimeError("the group belongs to the process that created it; create another group here")
        if self._unknown:
            raise _CommitFailedError(path=self._library, reason="a commit of this group failed")

    def _let_go_of_the_stage(self) -> None:
        """The last of ``close`` and of the threads that are still adding closes it: those first remove what they wrote
        there.
        """
        if self._process_id is None and self._stage is not None and not self._being_added:
            stage, self._stage = self._stage, None
            stage.close()

    def _ready_stage(self, id: str) -> StagingArea | None:
        """The staging area, with room for one more; None if each conversation is created by itself."""
        with self._mutex:
            self._require_it_goes_on()
            if self.creates_alone:
                return None
            if id in self:
                path = f"{self._library.rstrip('/')}/{id}"
                raise ConversationExistsError(path=path, reason="it is in the group already and waits for the commit")
            # Committed before the next one is added, so that a crash costs at most one batch.
            if len(self._staged) >= _MOST or self._staged_bytes >= _MOST_BYTES:
                self.commit()
            if self._stage is None:
                self._stage = StagingArea(self._files, self._library)
            self._being_added.add(id)
            return self._stage

    @contextmanager
    def _being_put(self, stage: StagingArea, id: str) -> Iterator[Callable[[NewConversation], None]]:
        """While a conversation is written into the staging area; it waits for the commit only if the block ends without
        an error.
        """
        sizes = [0]

        def put(contents: NewConversation) -> None:
            fields, entries, features = new_conversation(contents, DEFAULT_MAX_LINE_BYTES)
            if self._redact is not None:
                redacting = Redacting(self._redact, f"{self._library.rstrip('/')}/{id}", DEFAULT_MAX_LINE_BYTES)
                fields, entries = redacting.fields(fields), redacting.entries(entries)
            sizes[0] = sum(len(message or b"") + len(extra or b"") for message, extra, _ in entries)
            stage.write(
                id, partial(new_members, id=id, **fields), entries, _OPTIONS._replace(keys=self._keys), features
            )

        try:
            yield put
            with self._mutex:
                self._require_it_goes_on()  # it may have ended, or failed, since
                self._staged_bytes += sizes[0]
                self._staged[id] = None
        finally:
            with self._mutex:
                if id not in self._staged:
                    stage.discard(id)
                self._being_added.discard(id)
                self._let_go_of_the_stage()
