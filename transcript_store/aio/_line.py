"""A line of turns and the thread that takes them, which waits between two turns.

An executor makes a future of each turn and asks each time whether it needs a thread: that took a fifth of the way into a thread and back.
Nothing here knows of tasks. Whoever puts turns into a line says what a turn is, and who waits for it.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet


class Work(Protocol):
    """What the thread does in one go."""

    tell: Callable[[], object]
    """Tells those who wait that it is done."""

    def run(self) -> None:
        """Called in the thread; nothing is raised."""

    def is_joined_by(self, other: Any) -> bool:
        """Take over the work of another turn that would stand right behind this one; False if that cannot be."""


W = TypeVar("W", bound=Work)


class Line(Generic[W]):
    """Turns, taken one at a time in the order in which they were put.

    The thread is started by the first turn. It ends when the line is empty and nobody needs it any more: :meth:`let_go` says so, and the
    end of the interpreter, which waits for it. The next turn starts another one.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        """Held while the line is looked at or changed, and never for long."""
        self._turns: deque[W] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()
        """Rung for each turn, and when the thread may end."""
        self._thread: threading.Thread | None = None
        """Who takes the turns: one thread at most."""
        self._may_end = False

    def put(self, turn: W) -> W:
        """Put a turn at the end; returns it, or the turn there that took over its work.

        Raises:
            RuntimeError: no thread can be started. Nothing was put into the line.
        """
        with self._mutex:
            if self._turns and self._turns[-1].is_joined_by(turn):
                return self._turns[-1]
            self._may_end = False
            if self._thread is None or self._thread.ident is None:  # None: its start was interrupted, or refused
                self._thread = threading.Thread(target=self._work, name="transcript_store")
                _end.will_let_go(self)
                self._thread.start()
            self._turns.append(turn)
            self._bell.put(None)
        if _end.has_come:
            self.let_go()
        return turn

    def let_go(self) -> None:
        """Let the thread end when the line is empty. It takes no lock: the garbage collector may call it anywhere."""
        self._may_end = True
        self._bell.put(None)

    def _work(self) -> None:
        with self._mutex:
            if self._thread is not threading.current_thread():
                return  # whoever started it was interrupted, and started another one in its place
        while self._take_one():
            pass

    def _take_one(self) -> bool:
        """Take the next turn, and hold nothing of it on return; False at the end."""
        self._bell.get()
        with self._mutex:
            if self._turns:
                turn = self._turns.popleft()
            elif self._may_end:
                self._thread = None
                return False
            else:
                return True
        turn.run()
        tell = turn.tell
        del turn  # first: a task that goes on may forget its store, which is then collected, and not a moment later
        with suppress(RuntimeError):  # the event loop has ended, and nobody waits any more
            tell()
        return True


class _End:
    """The end of the interpreter, which comes when the main thread has ended and waits for all others: it lets every line go."""

    def __init__(self) -> None:
        self.has_come = False
        self._is_waited_for = False
        self._lines: WeakSet[Line[Any]] = WeakSet()
        self._guard = threading.Lock()

    def will_let_go(self, line: Line[Any]) -> None:
        """See to it that this line is let go."""
        with self._guard:
            self._lines.add(line)
            if not self._is_waited_for:
                threading.Thread(target=self._wait, name="end of transcript_store").start()
                self._is_waited_for = True

    def _wait(self) -> None:
        threading.main_thread().join()
        self.has_come = True
        with self._guard:
            lines = list(self._lines)
        for line in lines:
            line.let_go()


def _begin_anew() -> None:
    """In a forked child: the lines are its parent's, and another thread may hold the guard for ever."""
    global _end  # noqa: PLW0603
    _end = _End()


_end = _End()
os.register_at_fork(after_in_child=_begin_anew)
