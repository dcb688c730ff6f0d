"""The writer's lock on a folder."""

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
"""What a writer says of itself."""
_NO_NAME = ValueError, KeyError, TypeError, OverflowError
"""What is raised when the time is read in a line that is no writer's name."""


_LOCKS: WeakValueDictionary[int, Lock] = WeakValueDictionary()
"""The locks of this process. They say who holds a file, where the name in it does not: it is the last holder's until the next one signs,
and a process in another container may have our number."""
_LONGEST_DECISION = 1000
"""How many times a thread that is about to take a lock, or to find it taken, is looked at: a millisecond each."""
_NOT_CALLERS = ("transcript_store", "concurrent", "threading", "contextlib", "asyncio", "anyio", "functools")


class Lock:
    """The kernel's lock on a file in a folder: held by one writer, free the moment its process dies.

    In the file stands the name of the writer that has the lock, or had it last; on the next line what that one left for whoever
    takes it next (:meth:`pause`). Names that follow each other differ: the time in one is later than the time in the name before it.
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
        """What the last one left; nothing if it left nothing, or if this may be somebody else's file."""
        self.is_as_left = False
        """Whether nobody else had the lock since our last pause: the file is to the byte as we left it."""
        self._left: bytes | None = None
        """How we left the file, name and all, if we may go on with that."""
        self._is_ours = self._is_signed = False
        self._signature = b""
        """The line with our name, as we wrote it last."""
        self._name_found: bytes | None = None
        """The line with the name of the last one; None if the file could not be read."""
        self._folder = folder
        self._name = name
        self._way_out = hint
        self._poll_seconds = poll_seconds
        self._files = folder.files
        self.opened_at = _caller()
        """The line of the caller's program that opened the store."""
        self._taken_by: int | None = None
        """The process that took it, or is about to."""
        self._is_locked = False
        _LOCKS[id(self)] = self
        self._handle = -1
        """The file; it may be open while the lock is not taken."""
        self._inode: tuple[int, int] | None = None
        """What tells that file from every other, once it was locked: as long as it is open, it is no other's."""

    def take(self, timeout_seconds: float) -> bool:
        """Take the lock, waiting for it at most so long. False if the folder was removed, so that there is nothing to lock.

        Then our name stands in the file, and nothing else. Only if it is as we left it (:meth:`pause`), it stays so until :meth:`sign`.

        Raises:
            ConversationLockedError: another writer has it; the error says what that one wrote about itself.
            NotOursError: something other than a file stands at the lock's name.
        """
        waited_seconds = 0.0  # counted, not read off a clock that may jump
        while True:
            if self._handle < 0:
                try:
                    self._handle, _ = self._folder.open_file(self._name, to_append=True)
                except FileNotFoundError:
                    try:
                        self._handle = self._files.create(self._folder.handle, self._name)
                    except FileExistsError:
                        continue  # somebody made it in between
                    except FileNotFoundError:
                        return False
            try:
                self._inode = self._inode or identity(self._files.handle_status(self._handle))
                self._taken_by = self._files.process_id()  # first: another thread may be about to say who has it
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
        """Whether the file that is locked is still the one at its name; if not, another writer may hold the new one."""
        return self._handle >= 0 and self._at_its_name() is not None

    def _at_its_name(self) -> FileStatus | None:
        """The status of the file that is open, if it is the one at its name."""
        try:
            there = self._files.status(self._folder.handle, self._name)
        except FileNotFoundError:
            return None
        if self._inode is None:
            self._inode = identity(self._files.handle_status(self._handle))
        return there if identity(there) == self._inode else None

    def pause(self, leaving: bytes | None) -> None:
        """Let go of the lock, keep its file open, and leave this for the next one, behind our name. May be called again.

        With None nothing is left, and we ourselves may not go on with it either: however we find the file, it is not as we left it.
        """
        if not self.is_taken:
            return
        self._left = None
        if self._is_ours and (self._is_signed or leaving != self.found):
            with suppress(OSError):  # then the next one finds nothing, or a part of it, or what is true still
                self.sign()
                if leaving:
                    self._files.write(self._handle, leaving)
        if leaving is not None and self._is_ours:
            self._left = self._signature + leaving  # as it has to be: the next look sees whether it is
        try:
            self._files.unlock(self._handle)
            self.is_taken, self._is_locked, self._taken_by = False, False, None
        except OSError:
            self._let_go()

    def release(self) -> None:
        """Let go of the lock, if it is held. May be interrupted and called again."""
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
        with suppress(OSError):  # the kernel releases it at the close, whatever unlocking says
            self.release()

    def sign(self) -> None:
        """Put our name into the file instead of what the last one left, which is true until somebody changes something.

        Call it with the lock taken, before anything is changed. A second time it does nothing.

        Raises:
            OSError: what was left stands there still, so nothing may be changed. Another's name alone says to that one that nobody
                came behind him.
        """
        if self._is_signed or not self._is_ours:
            return
        self._left = None  # first: interrupted behind the write, our name stands there for a turn that never was
        name = self._name_found or b""
        is_gone = self._name_found == b""
        # The first byte, with which every name begins, stays: ext4 frees the block of a file that is cut to nothing, and flushes
        # it at its close. That is 0.15 ms of an open and 0.04 of a close. A name that is one byte long says nothing.
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
        holder = {"pid": self._files.process_id(), "host": self._files.host_name(), "at": at}
        self._signature = orjson.dumps(holder) + b"\n"
        try:
            self._files.write(self._handle, self._signature[kept:])
        except OSError:
            if not is_gone:
                raise  # any byte of ours behind it would do: nobody leaves that
            # Else it was best effort: it only helps the message that the next one gets.

    def _look(self, status: FileStatus) -> None:
        """See what stands in the file, which has this status, and whether it is ours to change."""
        self._is_signed, self.is_as_left, self._name_found, self.found = False, False, None, b""
        # A hard link that somebody planted locks as well, and what it holds is not ours. But a backup may be made of links too
        # (cp -al), and what was left in the file must go all the same: the link may be gone before who left it looks again.
        length = min(status.st_size, _LONGEST_BYTES)
        self._is_ours = status.st_nlink == 1 or self._is_a_lock(length)
        if self._is_ours:
            with suppress(OSError):
                self._name_found, self.found = self._content(length)
                self.is_as_left = self._left == self._name_found + self.found
                self._is_signed = self.is_as_left and not self.found

    def _is_a_lock(self, length: int) -> bool:
        """Whether the file holds what a lock holds, and so nothing that anybody would miss."""
        name, left = self._content(length)
        try:
            holder = orjson.loads(name)
        except orjson.JSONDecodeError:
            return False
        return type(holder) is dict and holder.keys() == _HOLDER and left.count(b"\n") <= 1

    def _content(self, length: int = _LONGEST_BYTES) -> tuple[bytes, bytes]:
        """The line with the name that stands in the file, and what was left behind it."""
        content = bytes(self._files.read(self._handle, 0, length))
        end = content.find(b"\n") + 1 or len(content)
        return content[:end], content[end:]

    def _holder_in_this_process(self) -> Lock | None:
        """The lock of this process that holds the same file; one that is just being taken is waited for until that is decided."""
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
            if (pid, host) == us:  # we left that name, or it is of another container
                pid = host = None
            by = f"process {pid}" + (f" on {host}" if host else "") if pid else "another process"
            by += " is writing to it"
        return ConversationLockedError(
            path=self._folder.path,
            reason=by,
            holder_pid=pid,
            holder_host=host,
            holder_opened_at=opened_at,
            hint=self._way_out,
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
    """The file and the line that called this package; None in a thread that is ours."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_CALLERS:
        frame = frame.f_back  # type: ignore[assignment]
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


# ---- held ----
#
# Which files are locked right now, as the kernel tells, without taking a lock: a look must not refuse a writer that comes meanwhile.

_FLOCK = re.compile(r"^\d+: (?:FLOCK|OFDLCK)\s+\S+\s+WRITE\s+(-?\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", re.MULTILINE)


def locked_files() -> set[tuple[int, int]] | None:
    """Device and inode of each file that is locked to write, and process and inode; None where the kernel does not tell.

    Linux does. A file of btrfs or overlayfs has another device there than ``stat`` says, so the process is taken as well.
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
    """Whether a process of this host has this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
