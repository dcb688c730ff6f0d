"""How are many conversations created with one commit? One sync of the file system for all, then their names.

Creating one conversation syncs seven times. In the staging area each is written in full without a sync, under a name
that no process looks for, ``.stage-<32 hex>-<id>`` in the library. Then:

1. one sync of the file system: all that was written is on disk (``_os/syncfs.py`` says where that can be relied upon);
2. each is renamed to its id. A directory replaces only an empty one: the faster process keeps the name;
3. one sync of the library: the names are on disk. Only now does a caller learn of them.

Invariants, which the tests name:

A1  Under its id a conversation is whole and on the medium, from the first moment. Only the name itself may not be.
A2  A name that is not synced is known to be so: the stage's note exists, and the process that sweeps it syncs the library first; and the
    conversation has no lock file, so a process that writes to it or copies it syncs its name first (``layout.sync_name``).
A3  What is on a stage belongs to the process that holds the lock of its note, ``.stage-<32 hex>``. When that is dead, the next
    create, delete or stage removes it.
A4  After a failed sync nothing more is put on the stage, and nothing of it gets a name.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from transcript_store._conversation.storage import StorageOptions
from transcript_store._conversation.writer import Writer
from transcript_store._log.record import Copied, Entry
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem, unsynced
from transcript_store._os.lock import Lock
from transcript_store._os.names import LOCK, stage_name, staged_name
from transcript_store._os.os_errors import SyncFailedError, refusals, storage_error
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
