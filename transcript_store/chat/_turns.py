"""One turn at a time on a conversation, whichever of its clients takes it.

The turns belong to the conversation, not to a client. Whoever begins a turn settles the calls without a result. So a second
client would say of a tool that the first one is running that it was interrupted.
"""

from __future__ import annotations

import inspect
import os
import threading
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from transcript_store import ConversationStore, IncompleteResponseError
from transcript_store.chat._protocols import Complete, StreamEvent

_UNDER_WAY = "another turn of this conversation is under way"

Events = Generator[StreamEvent, None, None]
Steps = Generator[StreamEvent, None, Complete]
"""The events of a turn but the last, which it returns: then the turn is over."""


class _Turn(NamedTuple):
    """One that is under way."""

    client: object
    thread: threading.Thread
    """Which began it."""
    process_id: int


class Turns:
    """The turns of one conversation, and the streams in which some of them are read."""

    def __init__(self) -> None:
        self._held: dict[None, _Turn] = {}
        """The turn that is under way. One call of the dictionary begins it, and one ends it, so Ctrl-C cannot come in between."""
        self._streams: weakref.WeakSet[Steps] = weakref.WeakSet()
        """Weak, so that a stream is finalized, and its partial reply recorded, as soon as the caller drops it."""

    @contextmanager
    def one(self, client: object) -> Iterator[None]:
        """Let a turn run. First end a stream of this thread that was left unfinished, so that its partial reply is recorded.

        A stream of another thread is still in use, as far as anybody knows, unless that thread has ended.

        Raises:
            RuntimeError: another turn is under way.
        """
        began = self._under_way()
        if began is not None and (began.thread is threading.current_thread() or not began.thread.is_alive()):
            self.end_stream()
        turn = _Turn(client, threading.current_thread(), os.getpid())
        try:
            if self._held.setdefault(None, turn) is not turn:
                raise RuntimeError(_UNDER_WAY)
            yield
        finally:
            if self._held.get(None) is turn:
                del self._held[None]

    def read(self, client: object, steps: Steps) -> Events:
        """The events of a turn that runs while they are read. It begins when the first one is asked for."""
        stream = self._while_read(client, steps)
        self._streams.add(stream)
        return events(stream)

    def end(self, client: object) -> None:
        """End the turn of this client, if it has one. That of another client goes on.

        Raises:
            RuntimeError: it cannot be ended: it runs in another thread, or one of its tools called this.
        """
        if self._is_of(client):
            self.end_stream()
            if self._is_of(client):
                raise RuntimeError(_UNDER_WAY)

    def end_stream(self) -> None:
        """End the stream that waits for its reader. One that runs right now belongs to another thread, and cannot be ended."""
        self._under_way()  # or a forked child would end, and record, what its parent still reads
        for stream in list(self._streams):
            if inspect.getgeneratorstate(stream) == inspect.GEN_SUSPENDED:
                stream.close()

    def _is_of(self, client: object) -> bool:
        turn = self._under_way()
        return turn is not None and turn.client is client

    def _under_way(self) -> _Turn | None:
        turn = self._held.get(None)
        if turn is None or turn.process_id == os.getpid():
            return turn
        self._held.clear()  # a forked child: the turn, and its stream, are its parent's
        self._streams.clear()
        return None

    def _while_read(self, client: object, steps: Steps) -> Steps:
        with self.one(client):
            return (yield from steps)


def events(steps: Steps) -> Events:
    """All events of a turn.

    Raises:
        IncompleteResponseError: somebody else ended the turn. Without an error its reader would take what came for all of it.
    """
    complete: Complete | None = yield from steps  # None if it was closed from outside
    if complete is None:
        raise IncompleteResponseError(
            reason="the stream was ended: another turn began, or its client or conversation was closed", text=""
        )
    yield complete


_TURNS: dict[int, Turns] = {}
"""By the id of the store, for as long as there is that one: a store of somebody's own may be equal to another, or have no hash."""
_making = threading.Lock()


def turns_of(conversation: ConversationStore | None) -> Turns:
    """The turns of a conversation, the same for each of its clients. A stream of them ends with ``close()`` of the conversation."""
    if conversation is None:
        return Turns()
    with _making:
        turns = _TURNS.get(id(conversation))
        if turns is None:
            turns = _TURNS[id(conversation)] = Turns()
            weakref.finalize(conversation, _TURNS.pop, id(conversation), None).atexit = False
            conversation.on_close(turns.end_stream)
        return turns
