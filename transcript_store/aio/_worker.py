"""How do tasks call one store? Its own thread makes the calls, and the tasks wait for them.

Tasks put *jobs* into a queue, and the thread takes one after the other. Each store has a thread of its own, so a store
that waits for a lock or for its disk keeps no other store waiting.

What holds:

* W1. Jobs run in the order in which they were queued, one at a time.
* W2. A queued job is run, whatever happens to the tasks that wait for it: they are cancelled, or their
  event loop ends.
* W3. A waiting task continues when its job is done, and not before, also if it is cancelled. So nothing is stored
  after a task was given another answer.

``asyncio.to_thread`` breaks W3. ``anyio.to_thread.run_sync`` breaks W2 and W3 if a task is cancelled by
``Task.cancel()``, as ``asyncio.wait_for`` and Ctrl-C do it: only anyio's own scopes know its shield (anyio 4.16).
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from datetime import datetime
from types import CoroutineType
from typing import Any, Generic, NamedTuple, Self, TypeVar

import anyio
from anyio.lowlevel import current_token

from transcript_store._conversation import arguments
from transcript_store._json.strict import EncodedMessage, encode
from transcript_store.conversation import AppendResult, ConversationStore
from transcript_store.errors import ConversationLockedError, TranscriptStoreError
from transcript_store.hints import Hint

T = TypeVar("T")
Wake = Callable[[Callable[[], object]], object]
"""Has a function called in an event loop, from any thread."""


def interruptions() -> tuple[type[BaseException], ...]:
    """The exceptions that end a task's wait: its cancellation, and Ctrl-C, which trio raises in its main task."""
    return anyio.get_cancelled_exc_class(), KeyboardInterrupt


class Job(ABC):
    """One unit of work of the thread."""

    # Set when the turn is put into the line, in the event loop in which the tasks wait for it:
    done: anyio.Event
    wake: Wake
    interruptions: tuple[type[BaseException], ...]

    @abstractmethod
    def run(self) -> None:
        """Run in the thread. Never raises: an error is kept for the waiting tasks."""

    def takes(self, other: Self) -> bool:  # noqa: ARG002
        """Take over the work of another job that would directly follow this one; False if that is impossible."""
        return False

    async def finished(self) -> None:
        """Wait until the turn is done; only then raise what interrupted the wait."""
        try:
            await self.done.wait()
        except self.interruptions:
            # The call runs on in the thread. Returned earlier, a task could not know whether its message is stored.
            with anyio.CancelScope(shield=True):
                while not self.done.is_set():
                    with suppress(*self.interruptions):  # Task.cancel() knows no shield, and may come again
                        await self.done.wait()
            raise


class _CallJob(Job, Generic[T]):
    """A function, called for one task."""

    result: T
    error: BaseException | None = None

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function

    def run(self) -> None:
        try:
            self.result = self._function()
            if isinstance(self.result, CoroutineType):
                self.result.close()  # it has not started, and no task would await it
                raise TypeError(
                    "a function that is called in a store's thread must not be async: nothing awaits it there"
                )
        except BaseException as error:
            self.error = error


class Worker:
    """A line of turns, and a thread that takes them. The thread is started by the first turn, and waits between turns.

    At the end of the interpreter the queued jobs are run first.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process_id = os.getpid()
        self._mutex = threading.Lock()
        """Held while the queue is read or changed, never for long."""
        self._line: deque[Job] = deque()
        self._is_at_work = False
        """True if the thread is going to check the queue again."""
        self._thread: ThreadPoolExecutor | None = None

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function in the thread, and return what it returns or raise what it raises.

        If the caller is cancelled, the function still runs to completion. Then its error is raised, or if there is none
        the cancellation.
        """
        call = _CallJob(function)
        self.put(call)
        try:
            await call.finished()
        finally:
            if call.error is not None:
                raise call.error
        return call.result

    def put(self, turn: Job) -> Job:
        """Put a turn at the end of the line; returns it, or the turn there that took over its work.

        Raises:
            RuntimeError: the interpreter is ending, and no thread can be started. Nothing was put into the line.
        """
        wake = _wake()
        if self._process_id != os.getpid():
            self._begin()  # a forked child: the line and the thread are its parent's
        with self._mutex:
            # Only the last in the queue: joining an earlier one would overtake the calls between them (W1). Only of the
            # same event loop: `done` is an event of that loop.
            if self._line and self._line[-1].wake == wake and self._line[-1].takes(turn):
                return self._line[-1]
            # One submission for many jobs: the running loop takes whatever is queued.
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
            del turn  # first: a task that continues may drop its store, which is then collected at once
            with suppress(RuntimeError):  # the event loop has ended, and no task waits any more
                wake(done.set)


def _wake() -> Wake:
    loop: Any = current_token().native_token
    wake: Wake = loop.call_soon_threadsafe if hasattr(loop, "call_soon_threadsafe") else loop.run_sync_soon
    return wake


# ---- appends ----
# Appends of many tasks, stored as one batch: one write and one sync. While the thread stores one batch, the new appends
# form the next. Each caller's messages stay together, in the order of the calls.

_MOST_BYTES = 8 << 20
"""The most bytes of a batch. A larger call is a batch of its own."""


class Records(NamedTuple):
    """The records of one call: checked, encoded, and so copied, before the call waits for anything."""

    messages: Sequence[EncodedMessage | None]
    extras: Sequence[EncodedMessage | None]
    times: Sequence[str | datetime | None]

    @property
    def size(self) -> int:
        return sum(len(part.text) for parts in (self.messages, self.extras) for part in parts if part is not None)


def record(message: Mapping[str, Any] | None, extra: Mapping[str, Any] | None, max_bytes: int) -> Records:
    """One message, with an extra or without; or an event, which has only that."""
    encoded = None if message is None else EncodedMessage(encode(message, "message", max_bytes))
    return Records((encoded,), (None if extra is None else EncodedMessage(encode(extra, "extra", max_bytes)),), (None,))


def records(
    messages: Iterable[Mapping[str, Any] | EncodedMessage | None],
    extras: Iterable[Mapping[str, Any] | EncodedMessage | None] | None,
    times: Iterable[str | datetime | None] | None,
    max_bytes: int,
) -> Records:
    """Several messages, as ``ConversationStore.append_messages`` takes them; raises as that does."""
    times = None if times is None else list(times)
    entries = arguments.entries(messages, extras, times, max_bytes)
    return Records(
        [None if message is None else EncodedMessage(message) for message, _, _ in entries],
        [None if extra is None else EncodedMessage(extra) for _, extra, _ in entries],
        times or [None] * len(entries),
    )


class Member:
    """One call that appends, and its answer."""

    __slots__ = ("error", "records", "stored")

    def __init__(self, records: Records) -> None:
        self.records = records
        self.stored: tuple[AppendResult, ...] = ()
        self.error: BaseException | None = None
        """Its error; None if it is stored."""


class AppendJob(Job):
    """The calls that are stored together, in one turn."""

    def __init__(self, conversation: ConversationStore, member: Member) -> None:
        self._conversation = conversation
        self._members = [member]
        self._size = member.records.size

    def takes(self, other: Job) -> bool:
        if not isinstance(other, AppendJob) or self._size + other._size > _MOST_BYTES:
            return False
        self._members += other._members
        self._size += other._size
        return True

    def run(self) -> None:
        try:
            self._store(self._members)
        except TranscriptStoreError as refusal:
            # A batch of which the disk may have a part, or all, is never stored again: each of its calls gets that error. So does
            # each of a batch that did not get the lock: one after another they would wait for it again.
            is_of_all = refusal.hint is Hint.LOAD_TO_SEE or isinstance(refusal, ConversationLockedError)
            if len(self._members) == 1 or is_of_all:
                self._refuse(refusal)
            else:
                # Nothing of the batch was stored, so each call is stored once.
                self._store_each()
        except BaseException as error:  # no task's own error: for example no memory
            for member in self._members:
                member.error = error

    def _store_each(self) -> None:
        """Store each call separately: a refusal of one does not affect the others."""
        for member in self._members:
            try:
                self._store([member])
            except BaseException as error:
                member.error = error

    def _refuse(self, error: TranscriptStoreError) -> None:
        for member in self._members:
            member.error = _another(error)

    def _store(self, members: Sequence[Member]) -> None:
        stored = self._conversation.append_messages(
            [message for member in members for message in member.records.messages],
            extras=[extra for member in members for extra in member.records.extras],
            times=[time for member in members for time in member.records.times],
        )
        start = 0
        for member in members:
            end = start + len(member.records.messages)
            member.stored = stored[start:end]
            start = end


def _another(error: TranscriptStoreError) -> TranscriptStoreError:
    """The same error for one more task: an error notes what it is raised through."""
    another = copy(error)
    another.__cause__ = error.__cause__
    return another.with_traceback(error.__traceback__)
