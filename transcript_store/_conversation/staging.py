"""Many conversations created together: one sync of the file system for all of them, and then their names.

A conversation that is created by itself waits for the disk seven times. On a stage each is written whole, and without a sync,
under a name that nobody looks for, ``.stage-<32 hex>-<id>`` in the library. Then:

1. one sync of the file system: all that was written is on the medium (``_os/syncfs.py`` says where that can be relied upon);
2. each is renamed to its id. A directory replaces nothing but an empty one: whoever was faster stays;
3. one sync of the library: the names are on the medium. Only now is anybody told.

Invariants, which the tests name:

A1  Under its id a conversation is whole and on the medium, from the first moment. Only the name itself may not be.
A2  A name that is not synced is known to be so: the stage's note is there, and whoever sweeps it syncs the library first; and the
    conversation has no lock file, so whoever writes to it or copies it syncs its name first (``layout.sync_name``).
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
"""What a rename of a directory says where something is that it does not replace: a folder, a file, a link, a mount."""
_CREATING = "create the conversations"


class StagingArea:
    """A stage in a library, held open by one process. Calls must not overlap, except ``write``."""

    def __init__(self, files: FileSystem, library: str) -> None:
        self.files = unsynced(files)
        """What is on the stage is written through this."""
        self._failure = ""
        self._has_names_to_sync = False
        with refusals(library, _CREATING, "None of them is there"):
            self._parent = Folder.make(files, library)  # before anything is written: sync_all answers from here on
            self._note_name = stage_name(files)
            self._note = Lock(self._parent, name=self._note_name)
            try:
                self._note.take(0)
            except BaseException:
                self.close()
                raise

    def path_of(self, id: str) -> str:
        """Where a conversation stands as long as it is on the stage."""
        return self._parent.path_of(staged_name(self._note_name, id))

    def write(
        self,
        id: str,
        members_at: Callable[[str], dict[str, Any]],
        entries: Iterable[Entry | Copied],
        options: StorageOptions,
        features: Sequence[str] = (),
    ) -> None:
        """Put a conversation on the stage, whole and closed. Raises ``ConversationExistsError`` if its id is taken."""
        path = self._parent.path_of(id)
        self._require_it_is_sound()
        with refusals(path, "create the conversation", "There is none yet"):
            if self._parent.status(id) is not None:
                raise ConversationExistsError(path=path, reason="something is there")
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
        """Give conversations that are whole their names; returns those whose id somebody else has taken meanwhile.

        On return all others are created, and survive a power loss.
        """
        self._require_it_is_sound()
        with refusals(self._parent.path, _CREATING):
            if not self._note.is_held():
                what = "the note of the stage was removed while we held it, so others may have removed what was on it"
                raise ConversationLockedError(path=self._parent.path, reason=what, hint=Hint.CREATE_THE_REST)
        try:
            self._parent.sync_all()
        except SyncFailedError as error:
            raise self._poison(error, "None of them is there") from error
        some = "Some of them may be there, each of them whole"
        self._has_names_to_sync = True
        with refusals(self._parent.path, _CREATING, some):
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
        """Take conversations off the stage, as far as the system allows it."""
        for one in ids:
            with suppress(OSError):
                self._parent.remove_tree(staged_name(self._note_name, one))

    def close(self) -> None:
        """Let go. The note stays if names are to be synced that are not: who finds it does that."""
        with self._note.released_at_the_end(), suppress(OSError):
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
    """Whether a library's file system can be synced as a whole. If not, nothing is gained by a stage."""
    with refusals(library, _CREATING):
        while True:
            try:
                with Folder.open(files, library) as folder:
                    return files.can_sync_all(folder.handle)
            except FileNotFoundError:
                if library == "/":
                    raise
                library = library.rpartition("/")[0] or "/"  # it will be made there
