"""Turns at one conversation: a writer that takes the lock for each call, and still knows what the conversation holds.

A writer that keeps its lock knows what the disk holds, since nobody else may write. One that gives the lock back knows nothing
afterwards, and would have to load before every call. But mostly nobody came in between, or somebody who only read.

Whether somebody came, the name in the lock's file tells: each who takes the lock puts his own there, with a later time than that of
the name that stood there. Who finds the file to the byte as he left it was here last. What others who came did, a *statement*
tells, one line behind the name:

    {"boot":"…","generation":0,"seq":12,"offset":3456,"head":"…","synced":3456,"metadata":"…"}

where the transcript ends, how far it is synced, the hash of metadata.json, and under which start of which kernel that was true.
Whoever looked at the conversation and changed nothing leaves it, for those who know the same. Whoever changed something leaves his
name alone: nobody else can know yet what he knows. Who comes next makes the statement that he would have left himself.

If the file is as he left it, or the very same statement stands there, and the transcript has the inode and the length that he
remembers, he goes on at once. In any other case he loads, as a process that was just started does: he syncs, reads past the cache
and recovers.

Invariants, which the tests name:

U1  A statement stands there only while nothing was changed since it was left. Whoever has the lock removes it before he writes or
    syncs anything; if he cannot, he does neither. Who finds the file as he left it, and only reads, leaves it so: it is true, and
    killed he leaves what he found. Anybody else removes it as soon as he has the lock: who finds another one, every writer that
    keeps its lock, a repair and a delete, and earlier versions. Each of them signs the lock with its own name, or does nothing.
U2  Memory is believed, and a statement left, only behind a call that came to its end: memory is what the disk holds, no sync failed,
    nothing was interrupted.
U3  What stands there is compared, and never believed. Nobody learns a number or a hash from it.

So what may go wrong has one answer:

* A process was killed in its turn, perhaps between a write and its sync: its name stands there (U1), and who would go on with that
  is dead. The next one loads, and the load syncs what it shows.
* A statement is torn, stale, or written by hand: it differs from mine in some byte, or it says what I know (U3).
* The power failed: the file may hold anything, but who knew something is dead. A statement of another kernel, of a machine that shares
  the folder, has another boot id: what one kernel caches says nothing about another's. A process that was saved as an image, and goes
  on from that after a power cut, is not provided for: it has to open the conversation anew.
* Somebody moved, deleted or replaced the folder, the lock file or the transcript: the lock, or the transcript, is looked for at its
  path in each turn.
* Appends that are not synced (``process-crash``): no statement tells of them. Whoever did not make them loads, and a load syncs. So
  nobody builds on what is not synced, except the one who said that it need not be.

Where the system tells no boot id (all but Linux) there are no statements, and each call loads. The lock file itself is never synced.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from transcript_store._conversation.metadata import document_hash
from transcript_store._conversation.storage import State, StorageOptions
from transcript_store._conversation.writer import MARK_EVERY, Writer
from transcript_store._log.record import Mark
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.os_errors import SyncFailedError, storage_error
from transcript_store.errors import (
    ConversationLockedError,
    ConversationNotFoundError,
    CorruptTranscriptError,
    StorageError,
)
from transcript_store.hints import Hint

WAIT_SECONDS = 10.0
"""How long a call waits for the turns of others, if nothing else was asked for."""


class _Facts(NamedTuple):
    """What a statement tells."""

    transcript: tuple[object, ...]
    members: dict[str, Any]
    mark: Mark | None

    def are(self, others: _Facts | None) -> bool:
        """Whether these are the same. A change of metadata makes new members: those that are only equal (``1`` and ``True`` are) differ."""
        if others is None or self.transcript != others.transcript:
            return False
        return self.members is others.members and self.mark is others.mark


class SharedWriter(Writer):
    """A conversation as one of several writers sees it, each in its turn."""

    _poll_seconds = (
        0.002  # one that takes turn after turn leaves the lock free for some 20 µs: a hundredth of the time, or less
    )

    def __init__(self, files: FileSystem, path: str, options: StorageOptions) -> None:
        super().__init__(files, path, options)
        self._boot_id = files.boot_id()
        self._id: str | None = None
        """The conversation's id, once there was a turn."""
        self._met: _Facts | None = None
        """What was true when the turn began, or when it had looked at all."""
        self._stated: tuple[_Facts | None, bytes] = (None, b"")
        """What was true when a statement was made last, and the statement: what one turn leaves is what the next one looks for."""

    def begin_read(self) -> None:
        self.begin_call()
        self.resolve()

    def begin_write(self) -> None:
        self.begin_call()
        self._sign()

    def begin_call(self) -> None:
        """Take the lock, and make sure that memory is what the disk holds; a poisoned writer has no more turns.

        Once in a call; a second time does nothing.
        """
        if self.state is State.POISONED or (self.lock.is_taken and self.state is State.READY):
            return
        try:
            is_known = self.state is State.BETWEEN_TURNS
            if not self.take_lock():  # also if the last turn was interrupted at its end
                self.load()  # it was moved away: there is nothing, or another one, at its path
            elif is_known and self._is_as_i_left_it():
                self._met = self._facts()
                self.state, self.was_looked_at = State.READY, True
            else:
                self.lock.sign()  # to load is to sync, and perhaps to recover
                self.look_at_all()
                # A mark changes metadata.json, so every other writer would have to load. It is not renewed for each that came.
                if self.mark is None or self.log.end.seq >= self.mark.position.seq + MARK_EVERY:
                    self.renew_mark()
        except StorageError:
            raise
        except OSError as error:
            raise storage_error(error, self.path, "look at the conversation again") from error
        if self._id not in (None, self.members["id"]):
            self.state = State.CHANGING
            reason = f"conversation {self._id} is gone, and another one stands in its place"
            raise ConversationNotFoundError(path=self.path, reason=reason, hint=Hint.RELOAD)

    def look_at_all(self) -> None:
        super().look_at_all()
        self._met = self._facts()

    def end_call(self) -> None:
        """Let go of the lock, and leave what those may go on with who know the same (U2). May be interrupted and called again."""
        leaving, self.was_looked_at = None, False
        if self.state is State.READY:
            self._id = self.members["id"]
            if self._boot_id and self.log.is_current:
                leaving = self._to_leave()
            self.state = State.BETWEEN_TURNS
        self.lock.pause(leaving)

    def _to_leave(self) -> bytes:
        if not self._facts().are(self._met):
            return b""  # nobody else knows it
        return self.lock.found if self.lock.is_as_left else self._statement()

    def resolve(self) -> None:
        if not self.log.is_current:
            self._sign()  # to look again may be to recover
        super().resolve()

    def _sign(self) -> None:
        """Remove the statement before anything is changed (U1)."""
        if self.lock.is_taken:  # a poisoned writer has no turn
            try:
                self.lock.sign()
            except OSError as error:
                raise self.no_lock(error) from error

    def close(self) -> None:
        """Sync what was not synced, note in metadata.json how far if it is our turn now, and let go.

        If others wrote since, or are writing, it is theirs to note.
        """
        try:
            if self.state is State.BETWEEN_TURNS:
                self._sync_to_close()
        finally:
            self.let_go()

    def _sync_to_close(self) -> None:
        try:
            self.log.sync()  # without the lock: nothing is written
        except SyncFailedError as error:
            consequence = "Every message was written; whether the last ones are on the disk is unknown"
            raise storage_error(error, self.path, "sync the transcript while closing", consequence) from error
        left = b""
        try:
            if self.lock.take(0):
                if self._is_as_i_left_it():
                    self.lock.sign()
                    self.state = State.READY
                    self.renew_mark()
                    left = self._statement() if self.state is State.READY else b""
                else:
                    left = self.lock.found
        except (OSError, ConversationLockedError, CorruptTranscriptError):
            pass  # all that was acknowledged is stored; a mark is something to have besides
        finally:
            self.lock.pause(left)

    def _is_as_i_left_it(self) -> bool:
        if not self.lock.is_as_left and (not self.lock.found or self.lock.found != self._statement()):
            return False
        try:
            return self.log.is_as_remembered()
        except CorruptTranscriptError:
            return False  # another file stands there, or none: the load says what is the matter

    def _facts(self) -> _Facts:
        return _Facts((self.log.header.generation, self.log.end, self.log.synced.offset_bytes), self.members, self.mark)

    def _statement(self) -> bytes:
        """What is true of the conversation as memory has it, on one line; nothing where there is no boot id."""
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
