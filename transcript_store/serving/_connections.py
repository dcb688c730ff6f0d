"""Which connections stay open: strangers in small number, silent ones for a short time, so that the owner is always answered (F13).

Until a connection has shown the token it belongs to a stranger: any user of the machine can open thousands. So strangers never
get more than a fraction of the descriptors. One more makes the oldest of them give way, which is never a connection of the owner.
"""

from __future__ import annotations

import resource
from asyncio import AbstractEventLoop, Transport
from time import monotonic
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from transcript_store.serving._guard import ON_OWNER, own_headers

_MOST_STRANGERS = 256
_DESCRIPTORS_FOR_EACH = 8
"""Strangers have at most one descriptor in so many."""
_TURNS = 8
"""To take as many connections as there may be strangers, the event loop needs so many turns, between which the oldest give way."""
_WAIT_SECONDS = 10
"""For the whole head of a request, from the connection's start, or from the end of the answer before."""
_STALL_SECONDS = 60
"""An answer of which nothing was read for so long is ended."""


class OpenConnections:
    """The open connections of one server. ``protocol`` is what uvicorn makes of each. Use it in the event loop's thread."""

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        share = _MOST_STRANGERS if soft == resource.RLIM_INFINITY else soft // _DESCRIPTORS_FOR_EACH
        self._most_strangers = max(1, min(_MOST_STRANGERS, share))
        self.accepted_at_once = max(1, self._most_strangers // _TURNS)
        """How many connections one turn of the event loop may accept."""
        self._strangers: dict[_Connection, None] = {}  # the oldest first
        self._all: set[_Connection] = set()

    def protocol(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> H11Protocol:
        """A connection that is counted here, as ``uvicorn.Config(http=)`` wants it."""
        return _Connection(self, config, server_state, app_state, _loop)

    def close_overdue(self) -> None:
        """Close the connections that kept the server waiting for too long. To be called about once a second."""
        now = monotonic()
        for connection in [each for each in self._all if each.is_overdue(now)]:
            connection.abort()

    def close_strangers(self) -> None:
        """Close all connections that have not shown the token: the system has no descriptors left."""
        for connection in list(self._strangers):
            connection.abort()

    def opened(self, connection: _Connection) -> None:
        self._all.add(connection)
        self._strangers[connection] = None
        if len(self._strangers) > self._most_strangers:
            next(iter(self._strangers)).abort()

    def shown_token(self, connection: _Connection) -> None:
        self._strangers.pop(connection, None)

    def closed(self, connection: _Connection) -> None:
        self._all.discard(connection)
        self._strangers.pop(connection, None)


class _Connection(H11Protocol):
    """One connection, as uvicorn has it, and when it was last of use."""

    def __init__(self, connections: OpenConnections, config: Config, state: ServerState, *rest: Any) -> None:
        super().__init__(config, state, *rest)
        self._connections = connections
        self.app_state = {**self.app_state, ON_OWNER: self._shown_token}
        self._useful_at = monotonic()
        self._unread = 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connections.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.closed(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._useful_at = monotonic()
        super().on_response_complete()

    def abort(self) -> None:
        """Close it without waiting for what was not read."""
        self._connections.closed(self)  # at once: the transport tells of the end only in the next turn of the loop
        self.transport.abort()

    def is_overdue(self, now: float) -> bool:
        """True if it sent no whole head, or read nothing of its answer, for too long. Bytes of half a head do not count."""
        unread = self.transport.get_write_buffer_size()
        is_being_answered = self.cycle is not None and not self.cycle.response_complete
        if unread != self._unread or (is_being_answered and not unread):
            self._useful_at = now  # it reads, or it is the server that has nothing for it yet
        self._unread = unread
        return now - self._useful_at > (_STALL_SECONDS if unread else _WAIT_SECONDS)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, with the headers of every other answer. It never reaches the guard."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close"), *own_headers()]
            response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
            for event in (response, h11.Data(data=msg.encode("ascii")), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()  # else an answer is on its way, and what came is no end of its request

    def _shown_token(self) -> None:
        self._connections.shown_token(self)
