"""Decides whether a call of a store may use what is loaded: among threads, between processes that share the lock, and after a fork.

Every call of a store is ``with guard.locked():``, and within it ``guard.reader()`` or ``guard.writer()`` gives the storage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress

from transcript_store._conversation import arguments
from transcript_store._conversation.group_commit import GroupCommit
from transcript_store._conversation.storage import State, Storage
from transcript_store._conversation.writer import Writer
from transcript_store._log.log import AppendResult
from transcript_store._log.record import Entry
from transcript_store._os.filesystem import FileSystem
from transcript_store.errors import ConversationNotLoadedError, ReadOnlyError
from transcript_store.ways_out import WayOut


class StorageGuard:
    """The storage of one store: what was loaded last, if anything was."""

    def __init__(self, files: FileSystem, path: str, *, hold_lock: bool) -> None:
        self._files = files
        self._path = path
        self._hold_lock = hold_lock
        self.storage: Storage | None = None
        self.group_commit = GroupCommit()
        self._loaded_by: int | None = None
        """In a forked child, the process that may have loaded it."""
        self._process_id = files.process_id()
        self._mutex = threading.RLock()

    # ---- whose turn it is ----------------------------------------------------------------------------------------

    def locked(self) -> AbstractContextManager[object]:
        """What makes a call atomic, for one ``with`` statement.

        Among threads that is the mutex. Between processes it is the lock: it is held, or the call takes it when it needs it.

        Raises:
            RuntimeError: a call on this store is under way in this thread.
        """
        if self._files.process_id() != self._process_id:
            # A forked child. The handles are its parent's, and closed here already; the mutex may be held for ever.
            self.storage = None
            self._loaded_by, self._process_id = self._process_id, self._files.process_id()
            self._mutex = threading.RLock()
            self.group_commit = GroupCommit()
        if self._mutex._is_owned():  # type: ignore[attr-defined]  # what threading.Condition asks it
            raise RuntimeError(
                "a call on this ConversationStore is under way in this thread (a held() block, or a signal handler?)"
            )
        return self._mutex if self._hold_lock else self._shared()

    @contextmanager
    def _shared(self) -> Iterator[None]:
        end = _EndOfCall(self)
        with self._mutex, end, end:  # the second time if the first is interrupted (Ctrl-C)
            yield

    @property
    def is_inherited(self) -> bool:
        """Whether this is a forked child, and no call was made in it yet: what is open here is its parent's."""
        return self._files.process_id() != self._process_id

    # ---- what is loaded ------------------------------------------------------------------------------------------

    def reader(self, last: int | None = None) -> Storage:
        """What is loaded, as it is on the disk; raises if nothing is, or if so many records cannot be asked for."""
        if last is not None:
            arguments.require_count("last", last)
        storage = self.storage
        if storage is None or storage.state is State.CLOSED:
            raise self._not_loaded()
        storage.begin_read()
        return storage

    def writer(self) -> Writer:
        """What is loaded, with its lock; raises if nothing is, or if it was opened to read."""
        storage = self.storage
        if storage is None or storage.state is State.CLOSED:
            raise self._not_loaded()
        if not isinstance(storage, Writer):
            raise ReadOnlyError(path=self._path)
        storage.begin_write()
        return storage

    def loaded_id(self) -> str:
        """The id of what was loaded or created last, also when it is closed. It never changes, so nothing is locked for it."""
        if self.storage is None or "id" not in self.storage.members:
            raise self._not_loaded()
        return str(self.storage.members["id"])

    def _not_loaded(self) -> ConversationNotLoadedError:
        reason, way_out = "it is not loaded yet", WayOut.LOAD
        if self.storage is not None:
            reason, way_out = "it was closed, or its last load failed", WayOut.LOAD_ANEW
        elif self._loaded_by is not None:
            reason, way_out = f"it was loaded by process {self._loaded_by}, not by its fork", WayOut.LOAD_HERE
        return ConversationNotLoadedError(path=self._path, reason=reason, way_out=way_out)

    def append(
        self, entries: Sequence[Entry], if_head: str | None = None, *, in_group: bool = True
    ) -> Sequence[AppendResult]:
        """Append records as one; with ``in_group`` perhaps with those of other threads, which costs one sync for all of them.

        Of several threads that name one head only the first may append, so ``if_head`` is in no group.

        Raises what :meth:`Writer.append` does.
        """
        locked, group_commit = self.locked(), self.group_commit
        if in_group and if_head is None and entries and (group_commit.is_at_work or group_commit.open.members):
            return group_commit.append(entries, locked, self.writer)
        with locked:
            # A guess, which only chooses the quicker way: a call that fails leaves it True, and the next one waits for nobody.
            group_commit.is_at_work = True
            storage = self.writer()
            if if_head is not None:
                storage.require_head(if_head)
            stored = storage.append(entries) if entries else ()
            group_commit.is_at_work = False
            return stored

    # ---- begin and end -------------------------------------------------------------------------------------------

    @property
    def is_loaded(self) -> bool:
        """Whether there is anything to close: False before a load, after a close, and after a load that failed."""
        return self.storage is not None and self.storage.is_open

    def begin(self, storage: Storage, begin: Callable[[], None]) -> None:
        """Close what is loaded, and load or create this instead, with ``begin``."""
        self.close()
        self.storage = storage
        try:
            begin()
        except BaseException:
            storage.let_go()
            raise

    def close(self) -> None:
        """Close what is loaded, if anything is."""
        if self.storage is not None:
            if self.storage.is_open:
                self.storage.close()
            else:
                self.storage.let_go()  # what an interrupted close left

    def let_go_of_what_is_forgotten(self) -> bool:
        """Release the lock of a store that is collected and was not closed, in the process that loaded it; whether there was one."""
        storage = self.storage
        if storage is None or not storage.is_open or self.is_inherited:
            return False
        with suppress(BaseException):
            storage.let_go()
        return True


class _EndOfCall:
    """Ends a call at the end of a block, whatever happens in it. An ``ExitStack`` does the same and takes several times as long."""

    __slots__ = ("_guard",)

    def __init__(self, guard: StorageGuard) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        if self._guard.storage is not None and not self._guard.is_inherited:
            self._guard.storage.end_call()
