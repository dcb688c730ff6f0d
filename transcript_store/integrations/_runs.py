"""Which run may use a conversation? One at a time; the other runs of this process wait in a queue.

A framework's run reads the history when it begins and stores messages until it ends. Two runs at once would put their
messages between each other's, and a provider refuses a call whose result is elsewhere. The runs of other processes are
not in this queue.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial

from transcript_store.errors import ConversationLockedError
from transcript_store.integrations._conversations import Home, path_of

_Key = tuple[Home, str]
_Place = Future[None]
"""A position in a queue; it has its result when it is the first one."""

_lines: dict[_Key, deque[_Place]] = {}
_guard = threading.Lock()
_of_this_task: ContextVar[tuple[_Place, ...]] = ContextVar("transcript_store_runs", default=())
"""The positions of the runs that contain this task. A tool's task inherits them, so a run within a tool knows its outer runs."""


async def begin_turn(home: Home, id: str, timeout_seconds: float) -> Callable[[], None]:
    """Wait for the conversation's turn, in any event loop and thread of this process; returns the function that ends it.

    Raises:
        ConversationLockedError: another run still has the turn after so many seconds, or this run is part of one that has it.
    """
    key, place = (home, id), _Place()
    path = f"{path_of(home)}/{id}"
    with _guard:
        line = _lines.setdefault(key, deque())
        if line and line[0] in _of_this_task.get():
            reason = "a run on this history started another run on it, which would wait forever: give the inner agent another key"
            raise ConversationLockedError(path=path, reason=reason, holder_pid=os.getpid(), hint=None)
        line.append(place)
        if line[0] is place:
            place.set_result(None)
    end = partial(_leave, key, place)
    if not place.done():
        try:
            # The shield: a run that gives up leaves the queue, so no entry in it is cancelled.
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(place)), timeout_seconds)
        except TimeoutError:
            end()
            reason = f"another run has this history, and did not end within {timeout_seconds:g} seconds"
            raise ConversationLockedError(path=path, reason=reason, holder_pid=os.getpid()) from None
        except BaseException:
            end()
            raise
    _of_this_task.set((*_of_this_task.get(), place))
    return end


def _leave(key: _Key, place: _Place) -> None:
    with _guard:
        line = _lines.get(key)
        if line is None or place not in line:
            return  # a forked child: the line was its parent's
        line.remove(place)
        if not line:
            del _lines[key]
        elif not line[0].done():
            line[0].set_result(None)


def _start_again() -> None:
    global _lines, _guard
    _lines, _guard = {}, threading.Lock()


os.register_at_fork(after_in_child=_start_again)
