"""The thread in which the calls on one store are made, and the tasks that wait for them.

Tasks put *turns* into a line, and the thread takes one after the other. Each store has a thread of its own, so a store that
waits for a lock or for its disk keeps no other store waiting.

What holds:

* W1. Turns are taken in the order in which they were put, one at a time.
* W2. A turn that is in the line is taken, whatever happens to the tasks that wait for it: they are cancelled, or their event
  loop ends.
* W3. A task that waits goes on when its turn is done, and not before, also if it is cancelled. So nothing is stored behind the
  back of a task that was told something else.

``asyncio.to_thread`` breaks W3. ``anyio.to_thread.run_sync`` breaks W2 and W3 if a task is cancelled by ``Task.cancel()``, as
``asyncio.wait_for`` and Ctrl-C do it: only anyio's own scopes know its shield (anyio 4.16).
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import CoroutineType
from typing import Any, Generic, Self, TypeVar

import anyio
from anyio.lowlevel import current_token

T = TypeVar("T")
Wake = Callable[[Callable[[], object]], object]
"""Has a function called in an event loop, from any thread."""


def interruptions() -> tuple[type[BaseException], ...]:
    """What ends the wait of a task: its cancellation, and Ctrl-C, which trio raises in its main task."""
    return anyio.get_cancelled_exc_class(), KeyboardInterrupt


class Turn(ABC):
    """What the thread does in one go."""

    # Set when the turn is put into the line, in the event loop in which the tasks wait for it:
    done: anyio.Event
    wake: Wake
    interruptions: tuple[type[BaseException], ...]

    @abstractmethod
    def run(self) -> None:
        """In the thread. Nothing is raised: what goes wrong is kept for those who wait."""

    def takes(self, other: Self) -> bool:  # noqa: ARG002
        """Take over the work of another turn that would stand right behind this one; False if that cannot be."""
        return False

    async def finished(self) -> None:
        """Wait until the turn is done; only then raise what interrupted the wait."""
        try:
            await self.done.wait()
        except self.interruptions:
            with anyio.CancelScope(shield=True):
                while not self.done.is_set():
                    with suppress(*self.interruptions):  # Task.cancel() knows no shield, and may come again
                        await self.done.wait()
            raise


class _Call(Turn, Generic[T]):
    """A function, called for one task."""

    result: T
    error: BaseException | None = None

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function

    def run(self) -> None:
        try:
            self.result = self._function()
            if isinstance(self.result, CoroutineType):
                self.result.close()  # it has not begun, and nobody would await it
                raise TypeError(
                    "a function that is called in a store's thread must not be async: nothing awaits it there"
                )
        except BaseException as error:
            self.error = error


class Worker:
    """A line of turns, and a thread that takes them. The thread is started by the first turn, and waits between turns.

    At the end of the interpreter the turns that are in the line are taken first.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process_id = os.getpid()
        self._mutex = threading.Lock()
        """Held while the line is looked at or changed, and never for long."""
        self._line: deque[Turn] = deque()
        self._is_at_work = False
        """Whether somebody is going to look at the line again."""
        self._thread: ThreadPoolExecutor | None = None

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function in the thread, and return what it returns or raise what it raises.

        If the caller is cancelled meanwhile, the function is called to its end. Then its error is raised, or if there is none
        the cancellation.
        """
        call = _Call(function)
        self.put(call)
        try:
            await call.finished()
        finally:
            if call.error is not None:
                raise call.error
        return call.result

    def put(self, turn: Turn) -> Turn:
        """Put a turn at the end of the line; returns it, or the turn there that took over its work.

        Raises:
            RuntimeError: the interpreter is ending, and no thread can be started. Nothing was put into the line.
        """
        wake = _wake()
        if self._process_id != os.getpid():
            self._begin()  # a forked child: the line and the thread are its parent's
        with self._mutex:
            if self._line and self._line[-1].wake == wake and self._line[-1].takes(turn):
                return self._line[-1]
            if not self._is_at_work:
                self._thread = self._thread or ThreadPoolExecutor(1, "transcript_store")
                self._thread.submit(self._work)
                self._is_at_work = True
            turn.done, turn.wake, turn.interruptions = anyio.Event(), wake, interruptions()
            self._line.append(turn)
            return turn

    def let_go(self) -> None:
        """Let the thread end when the line is empty. The next turn starts another one."""
        with self._mutex:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=False)

    def _work(self) -> None:
        while True:
            with self._mutex:
                if not self._line:
                    self._is_at_work = False
                    return
                turn = self._line.popleft()
            turn.run()
            done, wake = turn.done, turn.wake
            del turn  # first: a task that goes on may forget its store, which is then collected, and not a moment later
            with suppress(RuntimeError):  # the event loop has ended, and nobody waits any more
                wake(done.set)


def _wake() -> Wake:
    loop: Any = current_token().native_token
    wake: Wake = loop.call_soon_threadsafe if hasattr(loop, "call_soon_threadsafe") else loop.run_sync_soon
    return wake
