"""A provider on this machine: real HTTP, so that the SDKs run as they are, with every raw body captured.

It answers each request with the next scripted :class:`Answer`, and refuses what the real services refuse: a request in which a
tool call stands without its result, or the reverse. (No public test server checks that.)
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen


@dataclass(frozen=True)
class Answer:
    """What the server says to one request. ``cut_after`` ends the connection after so many bytes of the body.

    One that ``stalls`` keeps the connection open and silent before it ends it.
    """

    body: bytes
    content_type: str = "application/json"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    stalls: bool = False


@dataclass(frozen=True)
class Captured:
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


class Server:
    """``answers`` are given in order, or asked of ``upstream``; ``requests`` is what came, raw."""

    def __init__(self) -> None:
        self.answers: list[Answer | Callable[[], Answer]] = []
        self.requests: list[Captured] = []
        self.pages: dict[str, Any] = {}
        """What is at a path for whoever reads it: JSON, or bytes; else 404."""
        self.upstream: str | None = None
        """The base URL of another server: this one then only records and passes on."""
        self.url = ""
        self.released = threading.Event()
        """Set: answers that stall end."""
        self.stalls: Callable[[], object] = lambda: None
        """Called when an answer stalls: what comes before is sent."""

    @property
    def bodies(self) -> list[Any]:
        return [request.body for request in self.requests]


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            server.requests.append(Captured(self.path, dict(self.headers), raw))
            if server.upstream is not None:
                answer = passed_on(server.upstream, server.requests[-1])
            else:
                scripted = server.answers.pop(0)
                answer = scripted if isinstance(scripted, Answer) else scripted()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if answer.cut_after is None:
                self.wfile.write(answer.body)
            else:
                self.wfile.write(answer.body[: answer.cut_after])
                self.wfile.flush()
                if answer.stalls:
                    server.stalls()
                    server.released.wait(30)
                self.close_connection = True

        def do_GET(self) -> None:
            page = server.pages.get(self.path)
            body = page if isinstance(page, bytes) else json.dumps(page).encode()
            self.send_response(404 if page is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def passed_on(upstream: str, request: Captured) -> Answer:
    kept = {name: value for name, value in request.headers.items() if name.lower() not in ("host", "connection")}
    try:
        with urlopen(
            Request(upstream + request.path, request.raw, {**kept, "Accept-Encoding": "identity"})
        ) as response:
            return Answer(response.read(), response.headers["Content-Type"], response.status)
    except HTTPError as error:
        return Answer(error.read(), error.headers["Content-Type"], error.code)


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    http.daemon_threads = True
    http.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that hung up
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        http.shutdown()
        http.server_close()
        thread.join()
