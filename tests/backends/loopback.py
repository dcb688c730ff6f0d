"""A local server in front of an object store that disturbs requests as networks do, or answers by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import unquote, urlsplit


class Ask(NamedTuple):
    """A request: ``PUT`` and ``/bucket/prefix/c/…``; of a list, the path is that of the bucket."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Fate(Enum):
    """What becomes of a request, beside an :class:`Answer`."""

    DONE = "it is done, and answered"
    LOST = "it is done, and its answer is lost"
    REFUSED = "it is not done, and the connection ends"
    LATE = "it is done when land() is called, and the connection ends now"


class Answer(NamedTuple):
    """A server's answer that replaces the true one."""

    status: int
    body: str = ""
    is_done: bool = False
    """Whether what was asked is done all the same."""


Decide = Callable[[Ask], "Fate | Answer | None"]


class Loopback:
    """A context: what asks ``http://127.0.0.1:<port>`` asks the server at ``upstream``, a port of this machine, as ``on_request`` permits."""

    def __init__(self, upstream: int | None = None, on_request: Decide | None = None) -> None:
        self.upstream = upstream
        self.on_request = on_request
        self.asked: list[Ask] = []
        self.late: list[Ask] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Loopback:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def puts(self, part: str) -> list[Ask]:
        return [ask for ask in self.asked if ask.method == "PUT" and part in ask.path]

    def land(self) -> int:
        """Do now what was late; returns what the server answered."""
        return self.forward(self.late.pop(0))[0]

    def forward(self, ask: Ask) -> tuple[int, list[tuple[str, str]], bytes]:
        assert self.upstream is not None
        connection = HTTPConnection("127.0.0.1", self.upstream, timeout=60)
        try:
            connection.putrequest(ask.method, ask.path, skip_host=True, skip_accept_encoding=True)
            for name, value in ask.headers.items():
                connection.putheader(name, value)
            connection.endheaders(ask.body)
            response: HTTPResponse = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                ask = Ask(self.command, self.path, dict(self.headers.items()), body)
                named = ask._replace(path=unquote(urlsplit(self.path).path))
                proxy.asked.append(named)
                fate = (proxy.on_request and proxy.on_request(named)) or Fate.DONE
                if isinstance(fate, Answer):
                    if fate.is_done:
                        proxy.forward(ask)
                    self.answer(fate.status, [("Content-Type", "application/xml"), ("ETag", '"1"')], fate.body.encode())
                elif fate is Fate.DONE:
                    self.answer(*proxy.forward(ask))
                else:
                    if fate is Fate.LOST:
                        proxy.forward(ask)
                    elif fate is Fate.LATE:
                        proxy.late.append(ask)
                    self.close_connection = True

            def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        for method in ("GET", "PUT", "DELETE", "POST", "HEAD"):
            setattr(Handler, f"do_{method}", Handler.handle_any)
        return Handler
