"""One turn at a time on a conversation, whichever of its clients takes it.

The turns belong to the conversation, not to a client. Whoever begins a turn settles the calls without a result. So a second
client would say of a tool that the first one is running that it was interrupted.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from transcript_store import ConversationStore
from transcript_store.chat._protocols import StreamEvent

_UNDER_WAY = "another turn of this conversation is under way"

Steps = Generator[StreamEvent, None, None]


class Turns:
    """The turns of one conversation, and the streams in which some of them are read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: object = None  # whose turn it is
        self._streams: weakref.WeakSet[Steps] = weakref.WeakSet()
        """Weak, so that a stream is finalized, and its partial reply recorded, as soon as the caller drops it."""

    @contextmanager
    def one(self, client: object) -> Iterator[None]:
        """Let a turn run. First end the stream that was left unfinished, so that its partial reply is recorded.

        Raises:
            RuntimeError: another turn is under way.
        """
        self.end_stream()
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(_UNDER_WAY)
        self._client = client
        try:
            yield
        finally:
            self._client = None
            self._lock.release()

    def read(self, client: object, steps: Steps) -> Steps:
        """A turn that runs while it is read. It begins when its first event is asked for."""
        stream = self._while_read(client, steps)
        self._streams.add(stream)
        return stream

    def end(self, client: object) -> None:
        """End the turn of this client, if it has one. That of another client goes on.

        Raises:
            RuntimeError: it cannot be ended: it runs in another thread, or one of its tools called this.
        """
        if self._client is client:
            self.end_stream()
            if self._client is client:
                raise RuntimeError(_UNDER_WAY)

    def end_stream(self) -> None:
        """End the stream that waits for its reader. One that runs right now belongs to another thread, and cannot be ended."""
        for stream in list(self._streams):
            if inspect.getgeneratorstate(stream) == inspect.GEN_SUSPENDED:
                stream.close()

    def _while_read(self, client: object, steps: Steps) -> Steps:
        with self.one(client):
            yield from steps


_TURNS: weakref.WeakKeyDictionary[ConversationStore, Turns] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def turns_of(conversation: ConversationStore | None) -> Turns:
    """The turns of a conversation, the same for each of its clients. A stream of them ends with ``close()`` of the conversation."""
    if conversation is None:
        return Turns()
    with _making:
        turns = _TURNS.get(conversation)
        if turns is None:
            turns = _TURNS[conversation] = Turns()
            conversation.on_close(turns.end_stream)
        return turns
