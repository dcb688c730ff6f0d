"""How do several writers share a conversation? Each takes the lock for one call, and still knows what the conversation
holds.

A writer that keeps its lock knows what the disk holds, since no other process may write. A writer that releases the
lock after each call knows nothing afterwards, and would have to load before every call. But usually no other process
came in between, or one that only read.

The name in the lock file says who came last: every process that takes the lock writes its own name there, with a later
time than that of the previous name. A process that finds the file unchanged to the byte was the last writer. A
*validator*, a line after the name, says what other processes did:

    {"boot":"…","generation":0,"seq":12,"offset":3456,"head":"…","synced":3456,"metadata":"…"}

It states where the transcript ends, how far it is synced, the hash of metadata.json, and the boot id of the kernel
under which that was true. A process that only read keeps the validator, so that others can still use it. A process that
changed something leaves only its name: no other process can have the new state in memory. The next process writes the
validator that the previous one would have written.

If the lock file is as this process left it, or contains the validator that it would write, and the transcript has the
inode and the length that it remembers, the call continues at once. In any other case it loads, as a newly started
process does: it syncs, bypasses the cache and recovers.

Invariants, which the tests name:

U1  A validator exists only while nothing was changed since it was written. The lock's holder removes it before it
    writes or syncs anything; if it cannot, it does neither. A process that finds the file as it left it, and only
    reads, keeps it: it is true, and a killed process leaves what it found. Every other process removes the validator as
    soon as it has the lock: a shared writer whose memory differs, a writer that keeps the lock, a repair, a delete, an
    earlier version. Each of them signs the lock with its own name, or does nothing.
U2  Memory is trusted, and a validator written, only after a call that completed: memory is what the disk holds, no sync
    failed, nothing was interrupted.
U3  The validator is only compared. No value in it is ever used.

So every failure ends in a load, or in nothing worse:

* A process was killed during its call, perhaps between a write and its sync: the lock file has its name (U1), and the
  only process that could trust that is dead. The next one loads, and a load syncs what it shows.
* A validator is torn, stale, or written by hand: it differs from ours in some byte, or it states what we know (U3).
* The power failed: the file may hold anything, but every process that knew something is dead. A validator of another
  kernel, of a machine that shares the folder, has another boot id: one kernel's cache says nothing about another's. A
  process that was saved as an image, and is resumed after a power cut, is not supported: it has to open the
  conversation again.
* Another process moved, deleted or replaced the folder, the lock file or the transcript: each call checks the lock and
  the transcript at their paths.
* Appends that are not synced (``process-crash``): no validator covers them. Every other process loads, and a load
  syncs. So only the process that chose not to sync builds on what is not synced.

Where the system has no boot id (all but Linux) there are no validators, and each call loads. The lock file itself is
never synced.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from transcript_store._conversation.metadata import document_hash
from transcript_store._conversation.storage import State, StorageOptions
from transcript_store._conversation.writer import MARK_EVERY, Writer
from transcript_store._log.record import Mark
from transcript_store._os.filesystem import FileSystem, SyncFailedError, storage_error
from transcript_store.errors import (
    ConversationLockedError,
    ConversationNotFoundError,
    CorruptTranscriptError,
    StorageError,
)
from transcript_store.hints import Hint

WAIT_SECONDS = 10.0
"""How long a call waits for other writers by default."""


class _Facts(NamedTuple):
    """The facts that a validator states."""

    transcript: tuple[object, ...]
    members: dict[str, Any]
    mark: Mark | None

    def are(self, others: _Facts | None) -> bool:
        """True if these are the same. A change of metadata creates a new object: members that are only equal (``1`` and
        ``True`` are) differ.
        """
        if others is None or self.transcript != others.transcript:
            return False
        return self.members is others.members and self.mark is others.mark


class SharedWriter(Writer):
    """A conversation as one of several writers sees it, with the lock held only during a call."""

    _poll_seconds = 0.002  # a writer that makes call after call leaves the lock free for some 20 µs: a hundredth of the time, or less

    def __init__(self, files: FileSystem, path: str, options: StorageOptions) -> None:
        super().__init__(files, path, options)
        self._boot_id = files.boot_id()
        self._id: str | None = None
        """The conversation's id, after the first call."""
        self._met: _Facts | None = None
        """The facts when the call started, or after it loaded."""
        self._stated: tuple[_Facts | None, bytes] = (None, b"")
        """The facts of the last validator, and that validator: the next call looks for what this one left."""

    def begin_read(self) -> None:
        self.begin_call()
        self.resolve()

    def begin_write(self) -> None:
        self.begin_call()
        self._sign()

    def begin_call(self) -> None:
        """Take the lock, and make sure that memory is what the disk holds; a poisoned writer makes no more calls.

        Once per call; a second time does nothing.
        """
        if self.state is State.POISONED or (self.lock.is_taken and self.state is State.READY):
            return
        try:
            is_known = self.state is State.UNLOCKED
            if not self.take_lock():  # also if the last call was interrupted at its end
                self.load()  # moved away: its path is empty, or leads to another conversation
            # The fast path (U1, U2): no other process changed anything, so memory is current and nothing is read.
            elif is_known and self._is_as_i_left_it():
                self._met = self._facts()
                self.state, self.was_looked_at = State.READY, True
            else:
                self.lock.sign()  # a load syncs, and perhaps recovers
                self.look_at_all()
                # A new mark changes metadata.json, so every other writer would have to load. It is not renewed for each
                # load.
                if self.mark is None or self.log.end.seq >= self.mark.position.seq + MARK_EVERY:
                    self.renew_mark()
        except StorageError:
            raise
        except OSError as error:
            raise storage_error(error, self.path, "look at the conversation again") from error
        # A delete and a new create may have put another conversation at the path: this store must not write into it.
        if self._id not in (None, self.members["id"]):
            self.state = State.CHANGING
            reason = f"conversation {self._id} was removed, and its path leads to another one"
            raise ConversationNotFoundError(path=self.path, reason=reason, hint=Hint.RELOAD)

    def look_at_all(self) -> None:
        super().look_at_all()
        self._met = self._facts()

    def end_call(self) -> None:
        """Release the lock, and leave a validator for processes with the same memory (U2). May be interrupted and
        called again.
        """
        leaving, self.was_looked_at = None, False
        if self.state is State.READY:
            self._id = self.members["id"]
            # A validator is true until the next boot: a power cut may take what was not synced. Without a boot id there
            # is none.
            if self._boot_id and self.log.is_current:
                leaving = self._to_leave()
            self.state = State.UNLOCKED
        self.lock.pause(leaving)

    def _to_leave(self) -> bytes:
        if not self._facts().are(self._met):
            # We changed something, so no other process can have this state in memory. A validator here would match only
            # ours, and ours is recognized by the signature.
            return b""
        return self.lock.found if self.lock.is_as_left else self._statement()

    def resolve(self) -> None:
        if not self.log.is_current:
            self._sign()  # reading again may recover a torn tail
        super().resolve()

    def _sign(self) -> None:
        """Remove the validator before anything is changed (U1)."""
        if self.lock.is_taken:  # a poisoned writer has no lock
            try:
                self.lock.sign()
            except OSError as error:
                raise self.no_lock(error) from error

    def close(self) -> None:
        """Sync the unsynced bytes, note in metadata.json how far if we have the lock, and release it.

        If another process wrote since, or is writing, it writes that note.
        """
        try:
            if self.state is State.UNLOCKED:
                self._sync_to_close()
        finally:
            self.let_go()

    def _sync_to_close(self) -> None:
        try:
            # Syncing needs no lock, and other writers need not wait for the disk.
            self.log.sync()  # without the lock: nothing is written
        except SyncFailedError as error:
            consequence = "Every message was written; whether the last ones are on the disk is unknown"
            raise storage_error(error, self.path, "sync the transcript while closing", consequence) from error
        left = b""
        try:
            # Without waiting: a mark is optional, and a close must not wait for other writers.
            if self.lock.take(0):
                if self._is_as_i_left_it():
                    self.lock.sign()
                    self.state = State.READY
                    self.renew_mark()
                    left = self._statement() if self.state is State.READY else b""
                else:
                    # Another process wrote last: its validator stays, since it describes the current state.
                    left = self.lock.found
        except (OSError, ConversationLockedError, CorruptTranscriptError):
            pass  # all that was acknowledged is stored; the mark is optional
        finally:
            self.lock.pause(left)

    def _is_as_i_left_it(self) -> bool:
        if not self.lock.is_as_left and (not self.lock.found or self.lock.found != self._statement()):
            return False
        try:
            # The validator says what writers of this library did. Another program may have changed the file without the
            # lock.
            return self.log.is_as_remembered()
        except CorruptTranscriptError:
            return False  # another file, or none: the load reports the problem

    def _facts(self) -> _Facts:
        return _Facts((self.log.header.generation, self.log.end, self.log.synced.offset_bytes), self.members, self.mark)

    def _statement(self) -> bytes:
        """The validator for the state in memory, on one line; empty if there is no boot id."""
        if not self._boot_id:
            return b""
        if not (facts := self._facts()).are(self._stated[0]):
            statement = {
                "boot": self._boot_id,
                "generation": self.log.header.generation,
                "seq": self.log.end.seq,
                "offset": self.log.end.offset_bytes,
                "head": self.log.end.head.decode(),
                "synced": self.log.synced.offset_bytes,
                "metadata": document_hash(self.document(self.members, self.mark)),
            }
            self._stated = facts, orjson.dumps(statement, option=orjson.OPT_APPEND_NEWLINE)
        return self._stated[1]
