"""Who may write to a folder? The holder of the kernel's lock on its file ``lock``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from weakref import WeakValueDictionary

import orjson

from transcript_store._json.times import format_time, parse_time
from transcript_store._os.directory import Folder, identity
from transcript_store._os.names import LOCK
from transcript_store._os.protocol import FileStatus
from transcript_store.errors import ConversationLockedError
from transcript_store.hints import Hint

POLL_SECONDS = 0.02
_LONGEST_BYTES = 4096
_HOLDER = {"pid", "host", "at"}
"""The members of a writer's signature."""
_NO_NAME = ValueError, KeyError, TypeError, OverflowError
"""Errors of parsing the time in a line that is not a writer's name."""


_LOCKS: WeakValueDictionary[int, Lock] = WeakValueDictionary()
"""The locks of this process. They show who holds a file where the name in it does not: that is the last holder's until
the next one signs, and a process in another container may have our process id.
"""
_LONGEST_DECISION = 1000
"""How often a thread that is about to take a lock, or to find it taken, is checked: one millisecond each."""
_NOT_CALLERS = ("transcript_store", "concurrent", "threading", "contextlib", "asyncio", "anyio", "functools")


class Lock:
    """The kernel's lock on a file in a folder: held by one writer, free as soon as its process dies.

    The file contains the name of the writer that has the lock, or had it last, and on the next line what that writer
    left for the next holder (:meth:`pause`). Consecutive names differ: the time in each is later than the time in the
    previous one.
    """

    def __init__(
        self,
        folder: Folder,
        hint: Hint = Hint.WAIT,
        *,
        name: str = LOCK,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self.is_taken = False
        self.found = b""
        """The bytes that the last holder left; empty if there are none, or if the file may not be ours."""
        self.is_as_left = False
        """True if no other process had the lock since our last pause: the file is unchanged to the byte."""
        self._left: bytes | None = None
        """The file's contents as we left them, name included, if we may rely on them."""
        self._is_ours = self._is_signed = False
        self._signature = b""
        """The line with our name, as last written."""
        self._name_found: bytes | None = None
        """The line with the last holder's name; None if the file could not be read."""
        self._folder = folder
        self._name = name
        self._hint = hint
        self._poll_seconds = poll_seconds
        self._files = folder.files
        self.opened_at = _caller()
        """The line of the caller's program that opened the store."""
        self._taken_by: int | None = None
        """The process that took the lock, or is about to."""
        self._is_locked = False
        _LOCKS[id(self)] = self
        self._handle = -1
        """The file; it may be open while the lock is not taken."""
        self._inode: tuple[int, int] | None = None
        """The file's identity, once it was locked: as long as it is open, no other file can have it."""

    def take(self, timeout_seconds: float) -> bool:
        """Take the lock, waiting at most so long. False if the folder was removed, so that there is nothing to lock.

        Then the file contains our name and nothing else. Only if it is as we left it (:meth:`pause`), it stays
        unchanged until :meth:`sign`.

        Raises:
            ConversationLockedError: another writer has it; the error says what that writer wrote about itself.
            NotOursError: something other than a file has the lock's name.
        """
        # The sum of the waits. The lock of a dead process is released by the kernel, so no lock is ever stolen by its
        # age.
        waited_seconds = 0.0  # counted, not read off a clock that may jump
        while True:
            if self._handle < 0:
                try:
                    self._handle, _ = self._folder.open_file(self._name, to_append=True)
                except FileNotFoundError:
                    try:
                        # The file is never removed at a release: a process that waits on the old file and one that
                        # creates a new one would both hold a lock.
                        self._handle = self._files.create(self._folder.handle, self._name)
                    except FileExistsError:
                        continue  # another process created it in between
                    except FileNotFoundError:
                        return False
            try:
                self._inode = self._inode or identity(self._files.handle_status(self._handle))
                self._taken_by = (
                    self._files.process_id()
                )  # first: another thread may be about to register as the holder
                if self._files.try_lock(self._handle):
                    self._is_locked = True
                    # The file may have been removed before it was locked. Then a second writer locks the next one of that
                    # name, and both hold a lock: so only the file that still has the name counts.
                    there = self._at_its_name()
                    if there is not None:
                        self._look(there)
                        if not self.is_as_left:
                            self.sign()
                        self.is_taken = True
                        return True
                elif waited_seconds >= timeout_seconds:
                    self._taken_by = None
                    raise self._held_by_another()
                else:
                    self._taken_by = None
                    self._files.wait(self._poll_seconds)
                    waited_seconds += self._poll_seconds
            except BaseException:
                self._let_go()  # not release(): a close that fails would hide this error
                raise
            self.release()

    def is_held(self) -> bool:
        """True if the locked file is still the one with its name; if not, another writer may hold the new one."""
        return self._handle >= 0 and self._at_its_name() is not None

    def _at_its_name(self) -> FileStatus | None:
        """The status of the open file, if it is the one with its name."""
        try:
            there = self._files.status(self._folder.handle, self._name)
        except FileNotFoundError:
            return None
        if self._inode is None:
            self._inode = identity(self._files.handle_status(self._handle))
        return there if identity(there) == self._inode else None

    def pause(self, leaving: bytes | None) -> None:
        """Release the lock but keep the file open; write this after our name, for the next process. May be called again.

        With None nothing is left, and this process may not rely on the file either: whatever it finds does not count as
        unchanged.
        """
        if not self.is_taken:
            return
        self._left = None
        # A call that changed nothing leaves the file as it was, to the byte. With our name in it, the writer whose name
        # is there now would not recognize its own file, and would have to load again (U1).
        # Written before the unlock: afterwards the file belongs to the next holder.
        if self._is_ours and (self._is_signed or leaving != self.found):
            with suppress(OSError):  # then the next process finds nothing, or a part of it, or something still true
                self.sign()
                if leaving:
                    self._files.write(self._handle, leaving)
        if leaving is not None and self._is_ours:
            self._left = self._signature + leaving  # as it should be: the next comparison shows whether it is
        try:
            self._files.unlock(self._handle)
            self.is_taken, self._is_locked, self._taken_by = False, False, None
        except OSError:
            self._let_go()

    def release(self) -> None:
        """Release the lock, if it is held. May be interrupted and called again."""
        self.is_taken, self._is_locked, self._taken_by = False, False, None
        if self._handle >= 0:
            try:
                self._files.unlock(self._handle)
            finally:
                handle, self._handle, self._inode = self._handle, -1, None
                self._files.close(handle)

    @contextmanager
    def released_at_the_end(self) -> Iterator[None]:
        """Release it at the end of a block, whatever happens; again if that is interrupted (Ctrl-C) the first time."""
        with ExitStack() as stack:
            for _ in range(2):
                stack.callback(self._let_go)
            yield

    def _let_go(self) -> None:
        with suppress(OSError):  # the kernel releases it at the close, whatever the unlock returned
            self.release()

    def sign(self) -> None:
        """Replace what the last holder left, which is true until something changes, by our name.

        Call it with the lock taken, before anything is changed. A second time it does nothing.

        Raises:
            OSError: the old contents are still there, so nothing may be changed. A writer that finds only its own name
                would believe that no other process came after it.
        """
        if self._is_signed or not self._is_ours:
            return
        self._left = (
            None  # first: if this is interrupted after the write, our name would stand for a call that never took place
        )
        name = self._name_found or b""
        is_gone = self._name_found == b""
        # The first byte, with which every name starts, stays: ext4 frees the block of a file that is truncated to
        # nothing, and flushes it at its close. That is 0.15 ms of an open and 0.04 of a close. A name of one byte means
        # nothing.
        kept = len(name) if name and name == self._signature else int(name.startswith(b"{"))
        with suppress(OSError):
            self._files.truncate(self._handle, kept)
            is_gone = True
        if kept <= 1 or not is_gone:
            self._write_name(kept if is_gone else 0, is_gone=is_gone)
        self._is_signed = True

    def _write_name(self, kept: int, *, is_gone: bool) -> None:
        now_us = self._files.now_us()
        at = format_time(now_us)
        with suppress(*_NO_NAME):
            if (later_us := parse_time(orjson.loads(self._name_found or b"")["at"]) + 1) > now_us:
                at = format_time(later_us)
        # Later than the name that is there, even if the clock was set back: two calls of one writer must differ, or a
        # stale file could look unchanged.
        holder = {"pid": self._files.process_id(), "host": self._files.host_name(), "at": at}
        self._signature = orjson.dumps(holder) + b"\n"
        try:
            self._files.write(self._handle, self._signature[kept:])
        except OSError:
            if not is_gone:
                raise  # any byte of ours after it is enough: no holder leaves that
            # Else it was best effort: it only improves the next process's error message.

    def _look(self, status: FileStatus) -> None:
        """Read the file, which has this status, and decide whether we may change it."""
        self._is_signed, self.is_as_left, self._name_found, self.found = False, False, None, b""
        # A planted hard link can be locked as well, but its contents are not ours. But a backup may consist of links
        # too (cp -al), and what was left in the file must be removed all the same: the link may be removed before its
        # writer reads the file again.
        length = min(status.st_size, _LONGEST_BYTES)
        self._is_ours = status.st_nlink == 1 or self._is_a_lock(length)
        if self._is_ours:
            with suppress(OSError):
                self._name_found, self.found = self._content(length)
                self.is_as_left = self._left == self._name_found + self.found
                self._is_signed = self.is_as_left and not self.found

    def _is_a_lock(self, length: int) -> bool:
        """True if the file holds only what a lock file holds, so nothing valuable."""
        name, left = self._content(length)
        try:
            holder = orjson.loads(name)
        except orjson.JSONDecodeError:
            return False
        return type(holder) is dict and holder.keys() == _HOLDER and left.count(b"\n") <= 1

    def _content(self, length: int = _LONGEST_BYTES) -> tuple[bytes, bytes]:
        """The line with the name in the file, and what was left after it."""
        content = bytes(self._files.read(self._handle, 0, length))
        end = content.find(b"\n") + 1 or len(content)
        return content[:end], content[end:]

    def _holder_in_this_process(self) -> Lock | None:
        """The lock of this process that holds the same file; waits for one that is just being taken until that is decided."""
        for _ in range(_LONGEST_DECISION):
            locks = [
                lock
                for reference in _LOCKS.valuerefs()
                if (lock := reference()) is not None and self._shares_file(lock)
            ]
            if not locks:
                return None
            if (holder := next((lock for lock in locks if lock._is_locked), None)) is not None:
                return holder
            self._files.wait(0.001)
        return None

    def _shares_file(self, other: Lock) -> bool:
        is_ours = other._taken_by == self._files.process_id()
        return is_ours and other is not self and other._inode == self._inode

    def _held_by_another(self) -> ConversationLockedError:
        pid, host, opened_at = *self._name_in_the_file(), None
        us = self._files.process_id(), self._files.host_name()
        if (holder := self._holder_in_this_process()) is not None:
            (pid, host), opened_at = us, holder.opened_at
            by = "this process is writing to it, with a store that is not closed" + (
                f", opened at {opened_at}" if opened_at else ""
            )
        else:
            # Containers share a host's file system, but not its process numbers: our own number proves nothing.
            if (pid, host) == us:  # we left that name, or it comes from another container
                pid = host = None
            by = f"process {pid}" + (f" on {host}" if host else "") if pid else "another process"
            by += " is writing to it"
        return ConversationLockedError(
            path=self._folder.path,
            reason=by,
            holder_pid=pid,
            holder_host=host,
            holder_opened_at=opened_at,
            hint=self._hint,
        )

    def _name_in_the_file(self) -> tuple[int | None, str | None]:
        pid = host = None
        with suppress(OSError, orjson.JSONDecodeError):
            holder = orjson.loads(self._content()[0])
            if type(holder) is dict:
                pid = holder.get("pid") if type(holder.get("pid")) is int else None
                host = holder.get("host") if type(holder.get("host")) is str else None
        return pid, host


def _caller() -> str | None:
    """The file and the line that called this package; None in a thread of our own."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_CALLERS:
        frame = frame.f_back  # type: ignore[assignment]
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


# ---- held ----
# Which files are locked right now, according to the kernel. No lock is taken: a look must not refuse a writer that
# comes meanwhile.

_FLOCK = re.compile(r"^\d+: (?:FLOCK|OFDLCK)\s+\S+\s+WRITE\s+(-?\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", re.MULTILINE)


def locked_files() -> set[tuple[int, int]] | None:
    """Device and inode of each file that is locked to write, and process and inode; None where the kernel does not
    report them.

    Linux does. A file of btrfs or overlayfs has another device there than in ``stat``, so the process is compared as
    well.
    """
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    found = set()
    for pid, major, minor, inode in _FLOCK.findall(text):
        found |= {(os.makedev(int(major, 16), int(minor, 16)), int(inode)), (-int(pid), int(inode))}
    return found


def is_alive(pid: int) -> bool:
    """True if a process of this host has this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
