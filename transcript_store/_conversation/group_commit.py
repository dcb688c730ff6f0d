"""Group commit: one write and one sync for all threads that wait to append.

A thread that wants to append joins the group that is open. The first of a group to get there leads it: it waits for the
store's mutex, closes the group, and stores what its members brought as one batch, so that after a crash all of it is
there or none. While it syncs, the next group fills. A thread that finds nobody at work needs no group.

What can go wrong, and what holds then:

* A member is interrupted (Ctrl-C) while it waits: its lock ``waiting`` is free then, and the leader passes it over.
* The leader is interrupted: the lock ``leading`` is free then, and the next member leads. If the leader had begun to store,
  the hashes tell whether the batch is there, so nothing is stored twice.
* There is nothing to write to (the lock was not got in time): every member that waits gets that error, for none of them began.
* The batch is refused, and nothing of it is stored (a full disk, a line that is too long): the leader stores its own part
  alone, and the next member leads the rest.
* The sync fails, or an engine does not answer: nobody knows whether the batch is stored. Every member of it gets that error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

from transcript_store._conversation.writer import Writer
from transcript_store._log.log import AppendResult, Prepared
from transcript_store._log.record import Entry
from transcript_store.errors import TranscriptStoreError


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
        """What was prepared for the ``batch`` and perhaps stored. None as soon as it is known whether it was."""
        self.generation = 0
        """That it was prepared for: another process may replace that before it is known."""


class GroupCommit:
    """Appends to one store, for all of its threads."""

    def __init__(self) -> None:
        self.open = _Group()
        """The group that calls join."""
        self._undecided: _Group | None = None
        """The group that is being stored, or whose leader was interrupted while it stored it."""
        self.is_at_work = False
        """Whether a call is storing something. A guess: measured, a thread on its own saves 2 µs in an append without a group."""

    def append(
        self,
        entries: Sequence[Entry],
        locked: AbstractContextManager[object],
        writer: Callable[[], Writer],
    ) -> Sequence[AppendResult]:
        """Append records as one, perhaps with those of other threads.

        Within ``locked`` a thread is the only one to use the storage. There ``writer`` gives the storage, or raises if there is
        none to write to.

        Raises what :meth:`Writer.append` does.
        """
        member = _Member(entries)
        with member.waiting:
            group = self.open
            # If the group was closed since the line above, nobody answers this call, and it leads again.
            group.members.append(member)
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

    def settle(self, storage: Writer) -> None:
        """Before the transcript is replaced: find out whether it has the batch of an interrupted leader.

        If it has, the members get their answer. If not, they store it in the new transcript. So it is never there twice.
        """
        group, self._undecided = self._undecided, None
        if group is not None and group.prepared is not None:
            self._take_over(group, storage)
            group.prepared = None

    def _storage_for(self, group: _Group, writer: Callable[[], Writer]) -> Writer:
        """The storage; what it raises instead is the answer for all members that wait: one after another they would wait as long again."""
        try:
            return writer()
        except TranscriptStoreError as error:
            if group.prepared is None:  # else a part of them may be stored, and the next one finds out
                self._refuse(self._waiting_in(group), error)
            raise

    def _lead(self, group: _Group, own: _Member, storage: Writer) -> None:
        """Store what the members of a group brought. On return at least ``own`` has its answer."""
        if group.prepared is not None:
            self._take_over(group, storage)
        if own.is_answered:
            return
        group.batch = self._waiting_in(group)
        try:
            self._store(group, storage)
        except TranscriptStoreError as error:
            if len(group.batch) == 1:
                raise
            if storage.is_in_doubt:
                self._refuse(group.batch, error)
                return
            group.batch = [own]
            self._store(group, storage)

    def _store(self, group: _Group, storage: Writer) -> None:
        group.prepared = None
        prepared = storage.prepare([entry for member in group.batch for entry in member.entries])
        group.generation = storage.log.header.generation
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
        if storage.holds(group.generation, group.prepared.end):
            GroupCommit._answer(group, group.prepared)

    @staticmethod
    def _answer(group: _Group, prepared: Prepared) -> None:
        """Give each member of the batch what was stored for it."""
        start = 0
        for member in group.batch:
            end = start + len(member.entries)
            member.stored = prepared.stored[start:end]
            start = end
