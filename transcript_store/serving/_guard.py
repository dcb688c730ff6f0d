"""Who is answered (F13): whoever knows the token, asks this very address, and does not ask for the page of somebody else.

Any page in the browser can send requests to 127.0.0.1, and a name of its own can be made to lead there (DNS rebinding). Any other
user of the machine can connect. So each rule stands alone: what one lets through, the next may stop.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LONGEST_HEAD_BYTES = 16_384
"""Of a request: its path and its headers."""
_MOST_AT_ONCE = 64
"""Requests of whoever knows the token that are answered at the same time; an open page is one. Others take no place from them."""
ON_OWNER = "transcript_store.on_owner"
"""In the state of a request's scope: what is called when its connection has shown the token, and is no stranger's any more."""
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
    """Stands before an application, which gets the path behind the token.

    Args:
        app: what answers.
        hosts: the address with each port, as a browser names them: that of the server, and one that is forwarded to it.
        token: the first part of the path.
        failed: called with what the application raises. Whoever asked learns nothing of it.
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
        except Exception as error:  # what went wrong is said to who runs the server, and to nobody else
            self._failed(error)
            if not begun:
                await PlainTextResponse("the page cannot be made", 500)(scope, receive, send_on)
        finally:
            self._at_once -= 1

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        asked = _Asked(scope["headers"])
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


class _Asked:
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


def _is_of_own_page(asked: _Asked, host: bytes) -> bool:
    """Whether the request comes from a page of this server, or from a person who opens one in a window of its own.

    A browser says by ``Origin`` and ``Sec-Fetch-Site`` whose page asks. Somebody else's may open a window here, as every link does: it
    cannot read what is in it.
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
