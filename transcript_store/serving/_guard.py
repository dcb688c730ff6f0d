"""Which requests are answered (F13)? Those with the token, for exactly this host, and not from another site's page.

Any page in the browser can send requests to 127.0.0.1, and a name of its own can be made to lead there (DNS rebinding).
Any other user of the machine can connect. So each rule is independent: the next one may stop what one lets through.
"""

from __future__ import annotations

import resource
import secrets
from asyncio import AbstractEventLoop, Transport
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any

import h11
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

_LONGEST_HEAD_BYTES = 16_384
"""Of a request: its path and its headers."""
_MOST_AT_ONCE = 64
"""How many requests with the token are answered at the same time; an open page is one. Requests without it use no slot
of them.
"""
ON_OWNER = "transcript_store.on_owner"
"""In the state of a request's scope: a function to call when its connection has shown the token."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""What every answer has, refusals too. A page has a policy of its own instead."""


class Guard:
    """Wraps an application, which gets the path after the token.

    Args:
        app: what answers.
        hosts: the address with each port, as a browser names them: that of the server, and one that is forwarded to it.
        token: the first part of the path.
        failed: called with what the application raises. The client learns nothing of it.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Iterable[str], token: str, failed: Callable[[BaseException], object]
    ) -> None:
        self._app = app
        self._hosts = {host.encode() for host in hosts}
        self._token = token.encode()
        self._failed = failed
        self._at_once = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # a WebSocket is closed by that
        begun = False

        async def send_on(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = _with_headers(message["headers"])
            await send(message)

        refused = self._refusal(scope)
        if refused is not None:
            await refused(scope, receive, send_on)
            return
        self._at_once += 1
        inner = {**scope, "path": _behind_token(scope["path"]), "root_path": ""}
        try:
            await self._app(inner, receive, send_on)
        except Exception as error:  # details go to the operator's log, not to the client
            self._failed(error)
            if not begun:
                await PlainTextResponse("the page cannot be made", 500)(scope, receive, send_on)
        finally:
            self._at_once -= 1

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        asked = _RequestHeaders(scope["headers"])
        if asked.size() + len(scope["raw_path"]) + len(scope["query_string"]) > _LONGEST_HEAD_BYTES:
            return _refusal("too large", 431)
        host = asked.only(b"host")
        if host is None or host not in self._hosts:
            return _refusal("not this host", 421)  # a name that leads here is not this address
        if not _is_of_own_page(asked, host):
            return _refusal("not this origin", 403)
        token = scope["path"].encode("utf-8", "surrogateescape").split(b"/")[1:2]
        if not token or not secrets.compare_digest(token[0], self._token):
            return _refusal("not found", 404)
        if on_owner := scope.get("state", {}).get(ON_OWNER):
            on_owner()
        if scope["method"] != "GET":
            return _refusal("only GET", 405, Allow="GET")
        if self._at_once >= _MOST_AT_ONCE:
            return _refusal("too many at once: close some of the pages", 503)
        return None


def _refusal(why: str, status: int, **headers: str) -> PlainTextResponse:
    """A refusal ends the connection, so that a stranger has to begin again, at the end of the line, for each request."""
    return PlainTextResponse(why, status, {**headers, "Connection": "close"})


class _RequestHeaders:
    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._headers = list(headers)

    def size(self) -> int:
        return sum(len(key) + len(value) for key, value in self._headers)

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self._headers if key.lower() == name]

    def only(self, name: bytes) -> bytes | None:
        """The header's value; None if there is none, or more than one."""
        found = self.all(name)
        return found[0] if len(found) == 1 else None


def _is_of_own_page(asked: _RequestHeaders, host: bytes) -> bool:
    """True if the request comes from a page of this server, or from a person who opens one in a new window.

    A browser says by ``Origin`` and ``Sec-Fetch-Site`` whose page asks. Another site's page may open a window here, as
    every link does: it cannot read its content.
    """
    if any(origin != b"http://" + host for origin in asked.all(b"origin")):
        return False
    if all(site in (b"same-origin", b"none") for site in asked.all(b"sec-fetch-site")):
        return True
    return asked.only(b"sec-fetch-mode") == b"navigate" and asked.only(b"sec-fetch-dest") == b"document"


def _behind_token(path: str) -> str:
    return "/" + path.split("/", 2)[2] if path.count("/") > 1 else ""


def _with_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    given: list[tuple[bytes, bytes]] = list(headers)
    names = {name.lower() for name, _ in given}
    return given + [(name, value) for name, value in own_headers() if name not in names]


def own_headers() -> list[tuple[bytes, bytes]]:
    """What every answer has, as it is sent."""
    return [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]


def page_headers(policy: str) -> dict[str, Any]:
    """The headers of a page with this policy. No other page may have it in a frame."""
    return {"Content-Security-Policy": f"{policy}; frame-ancestors 'none'"}


# ---- connections ----
#
# Which connections stay open: strangers in small number, silent ones for a short time, so that the owner is always answered (F13).
#
# Until a connection has shown the token it belongs to a stranger: any user of the machine can open thousands. So strangers never
# get more than a fraction of the descriptors. One more makes the oldest of them give way, which is never a connection of the owner.

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
        """Close it without waiting for unread data."""
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
