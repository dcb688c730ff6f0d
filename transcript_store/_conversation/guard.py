"""May this call use the loaded storage? One thread at a time, under the shared lock, and never in a forked child.

Every call of a store is ``with guard.locked():``, and within it ``guard.reader()`` or ``guard.writer()`` returns the
storage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress

from transcript_store._conversation import arguments
from transcript_store._conversation.storage import State, Storage
from transcript_store._conversation.writer import Writer
from transcript_store._log.log import AppendResult, Prepared
from transcript_store._log.record import Entry
from transcript_store._os.filesystem import FileSystem
from transcript_store.errors import ConversationNotLoadedError, ReadOnlyError, TranscriptStoreError
from transcript_store.hints import Hint

# ---- group commit ----
# One write and one sync for all threads that wait to append. A thread that wants to append joins the open group. The
# first member to get there leads it: it waits for the store's mutex, closes the group, and stores its members' records
# as one batch, so that after a crash all of it is stored or nothing. While it syncs, the next group fills. A thread
# that meets no other needs no group.
#
# What can go wrong, and what holds then:
#
# * A member is interrupted (Ctrl-C) while it waits: its lock ``waiting`` is free then, and the leader skips it.
# * The leader is interrupted: the lock ``leading`` is free then, and the next member leads. If the leader had started
#   to store, the hashes show whether the batch is stored, so nothing is stored twice.
# * There is nothing to write to (the lock was not taken in time): every waiting member gets that error, for none of
#   them started.
# * The batch is refused, and nothing of it is stored (a full disk, a line that is too long): the leader stores its own
#   part alone, and the next member leads the rest.
# * The sync fails, or a backend does not answer: the batch is in doubt. Every member of it gets that error.


class _Member:
    """One call that wants to append."""

    __slots__ = ("entries", "error", "stored", "waiting")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.waiting = threading.Lock()
        """Held as long as the call is under way."""
        self.stored: Sequence[AppendResult] | None = None
        self.error: TranscriptStoreError | None = None

    @property
    def is_answered(self) -> bool:
        return self.stored is not None or self.error is not None


class _Group:
    """The calls that are stored together."""

    __slots__ = ("batch", "generation", "leading", "members", "prepared")

    def __init__(self) -> None:
        self.leading = threading.RLock()
        """Held by the member that leads."""
        self.members: list[_Member] = []
        self.batch: Sequence[_Member] = ()
        self.prepared: Prepared | None = None
        """The prepared append of the ``batch``, while it is in doubt; None once it is resolved."""
        self.generation = 0
        """The transcript it was prepared for: another process may replace that before the doubt is resolved."""


class GroupCommit:
    """Appends to one store, for all of its threads."""

    def __init__(self) -> None:
        self.open = _Group()
        """The group that calls join."""
        self._undecided: _Group | None = None
        """The group that is being stored, or whose leader was interrupted while it stored it."""
        self.is_at_work = False
        """True if a call seems to be storing something. Measured, a single thread saves 2 µs in an append without a group."""

    def append(
        self,
        entries: Sequence[Entry],
        locked: AbstractContextManager[object],
        writer: Callable[[], Writer],
    ) -> Sequence[AppendResult]:
        """Append records as one, perhaps with those of other threads.

        Within ``locked`` one thread alone uses the storage. There ``writer`` returns it, or raises if there is none to
        write to.

        Raises what :meth:`Writer.append` does.
        """
        member = _Member(entries)
        with member.waiting:
            group = self.open
            # If the group was closed since the line above, no leader answers this call, and it leads again.
            group.members.append(member)
            # Held = "this call still wants an answer". Ctrl-C releases it, and a leader then skips the member instead
            # of storing a message whose caller got an error.
            with group.leading:
                if not member.is_answered:
                    with locked:
                        self.is_at_work = True
                        self.open = _Group()
                        self._lead(group, member, self._storage_for(group, writer))
                        self.is_at_work = False
        if member.stored is None:
            assert member.error is not None
            raise member.error
        return member.stored

    def resolve(self, storage: Writer) -> None:
        """Before the transcript is replaced: find out whether it has the batch of an interrupted leader.

        If it has, the members get their answer. If not, they store it in the new transcript. So it is never stored
        twice.
        """
        group, self._undecided = self._undecided, None
        if group is not None and group.prepared is not None:
            self._take_over(group, storage)
            group.prepared = None

    def _storage_for(self, group: _Group, writer: Callable[[], Writer]) -> Writer:
        """The storage; an error is the answer for all waiting members, because each would wait as long again."""
        try:
            return writer()
        except TranscriptStoreError as error:
            # An error is not passed on if a batch is in doubt: its members would learn that nothing was stored.
            if group.prepared is None:  # else a part of them may be stored, and the next call finds out
                self._refuse(self._waiting_in(group), error)
            raise

    def _lead(self, group: _Group, own: _Member, storage: Writer) -> None:
        """Store the records of a group's members. On return at least ``own`` has its answer."""
        if group.prepared is not None:
            self._take_over(group, storage)
        if own.is_answered:
            return
        # Chosen under the lock: members that gave up before this point are left out, those that come later join the
        # next group.
        group.batch = self._waiting_in(group)
        try:
            self._store(group, storage)
        except TranscriptStoreError as error:
            if len(group.batch) == 1:
                raise
            # The batch may be stored. A retry could store it twice, so every member gets the error that says so.
            if storage.is_in_doubt:
                self._refuse(group.batch, error)
                return
            # Refused before anything was written (disk full, a line too long), so a retry stores nothing twice. Alone,
            # our part cannot be failed by another member; the next leader retries the rest.
            group.batch = [own]
            self._store(group, storage)

    def _store(self, group: _Group, storage: Writer) -> None:
        group.prepared = None
        prepared = storage.prepare([entry for member in group.batch for entry in member.entries])
        group.generation = storage.log.header.generation
        # Set before the write, in this order: an interruption between the two lines finds a group without a batch,
        # which is harmless.
        self._undecided = group
        group.prepared = prepared
        storage.store(prepared)
        self._answer(group, prepared)
        self._undecided = None

    @staticmethod
    def _waiting_in(group: _Group) -> list[_Member]:
        return [member for member in group.members if member.waiting.locked() and not member.is_answered]

    @staticmethod
    def _refuse(members: Iterable[_Member], error: TranscriptStoreError) -> None:
        for member in members:
            member.error = error

    @staticmethod
    def _take_over(group: _Group, storage: Writer) -> None:
        """Find out whether the batch of an interrupted leader is stored, and answer its members if it is."""
        storage.resolve()
        assert group.prepared is not None
        # The end of the batch has a hash over all that precedes it: if the transcript leads there, the batch is stored,
        # whole (P3).
        if storage.holds(group.generation, group.prepared.end):
            GroupCommit._answer(group, group.prepared)

    @staticmethod
    def _answer(group: _Group, prepared: Prepared) -> None:
        """Give each member of the batch its result."""
        start = 0
        for member in group.batch:
            end = start + len(member.entries)
            member.stored = prepared.stored[start:end]
            start = end


# ---- guard ----


class StorageGuard:
    """The storage of one store: what was loaded last, or nothing."""

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

    # ---- which call may run ----------------------------------------------------------------------------------------

    def locked(self) -> AbstractContextManager[object]:
        """The context that makes a call atomic, for one ``with`` statement.

        Among threads it is the mutex. Between processes it is the lock: it is held, or the call takes it when it needs
        it.

        Raises:
            RuntimeError: this thread is already in a call on this store.
        """
        if self._files.process_id() != self._process_id:
            # A forked child. The handles are its parent's, and closed here already; the mutex may be held for ever.
            self.storage = None
            # flock belongs to the open file, which parent and child share: a child that unlocked it would unlock the
            # parent.
            self._loaded_by, self._process_id = self._process_id, self._files.process_id()
            self._mutex = threading.RLock()
            self.group_commit = GroupCommit()
        # The mutex is reentrant, because a signal handler may run in the middle of a call. A second call there would
        # see half a change.
        if self._mutex._is_owned():  # type: ignore[attr-defined]  # what threading.Condition asks it
            raise RuntimeError(
                "a call on this ConversationStore is under way in this thread (a frozen() block, or a signal handler?)"
            )
        return self._mutex if self._hold_lock else self._shared()

    @contextmanager
    def _shared(self) -> Iterator[None]:
        end = _EndOfCall(self)
        with self._mutex, end, end:  # the second time if the first is interrupted (Ctrl-C)
            yield

    @property
    def is_inherited(self) -> bool:
        """True in a forked child before its first call: the open files are its parent's."""
        return self._files.process_id() != self._process_id

    # ---- what is loaded ------------------------------------------------------------------------------------------

    def reader(self, last: int | None = None) -> Storage:
        """The loaded storage, up to date with the disk; raises if nothing is loaded, or the number of records is invalid."""
        if last is not None:
            arguments.require_count("last", last)
        storage = self.storage
        if storage is None or storage.state is State.CLOSED:
            raise self._not_loaded()
        storage.begin_read()
        return storage

    def writer(self) -> Writer:
        """The loaded storage, with its lock; raises if nothing is loaded, or if it was opened to read."""
        storage = self.storage
        if storage is None or storage.state is State.CLOSED:
            raise self._not_loaded()
        if not isinstance(storage, Writer):
            raise ReadOnlyError(path=self._path)
        storage.begin_write()
        return storage

    def loaded_id(self) -> str:
        """The id of what was loaded or created last, also when it is closed. It never changes, so no lock is taken."""
        if self.storage is None or "id" not in self.storage.members:
            raise self._not_loaded()
        return str(self.storage.members["id"])

    def _not_loaded(self) -> ConversationNotLoadedError:
        reason, hint = "it is not loaded yet", Hint.LOAD
        if self.storage is not None:
            reason, hint = "it was closed, or its last load failed", Hint.RELOAD
        elif self._loaded_by is not None:
            reason, hint = f"it was loaded by process {self._loaded_by}, not by its fork", Hint.LOAD_HERE
        return ConversationNotLoadedError(path=self._path, reason=reason, hint=hint)

    def append(
        self, entries: Sequence[Entry], if_head: str | None = None, *, in_group: bool = True
    ) -> Sequence[AppendResult]:
        """Append records as one; with ``in_group`` perhaps together with those of other threads, with one sync for all.

        Of several threads that pass one head only the first may append, so a call with ``if_head`` joins no group.

        Raises what :meth:`Writer.append` does.
        """
        locked, group_commit = self.locked(), self.group_commit
        # A single thread never pays for a group: it costs 2 µs of an append.
        if in_group and if_head is None and entries and (group_commit.is_at_work or group_commit.open.members):
            return group_commit.append(entries, locked, self.writer)
        with locked:
            # A guess that only chooses the faster path: a failed call leaves it True, and the next one waits for no
            # thread.
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
        """True if there is anything to close: False before a load, after a close, and after a failed load."""
        return self.storage is not None and self.storage.is_open

    def begin(self, storage: Storage, begin: Callable[[], None]) -> None:
        """Close the loaded storage, and load or create another one with ``begin``."""
        self.close()
        self.storage = storage
        try:
            begin()
        except BaseException:
            storage.let_go()
            raise

    def close(self) -> None:
        """Close the loaded storage, if there is one."""
        if self.storage is not None:
            if self.storage.is_open:
                self.storage.close()
            else:
                self.storage.let_go()  # what an interrupted close left

    def let_go_of_what_is_forgotten(self) -> bool:
        """Release the lock of a store that was garbage-collected without a close, in the process that loaded it; True
        if it held one.
        """
        storage = self.storage
        if storage is None or not storage.is_open or self.is_inherited:
            return False
        with suppress(BaseException):
            storage.let_go()
        return True


class _EndOfCall:
    """Ends a call at the end of a block, whatever happens in it. An ``ExitStack`` would take several times as long."""

    __slots__ = ("_guard",)

    def __init__(self, guard: StorageGuard) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        # In a child that was forked within the call the handles are closed, and their numbers may be other files' by now.
        if self._guard.storage is not None and not self._guard.is_inherited:
            self._guard.storage.end_call()
