"""The server: one socket of the loopback address, and the file that leads a browser to it."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import h11
import uvicorn
from anyio.to_thread import run_sync
from uvicorn.protocols.http.h11_impl import H11Protocol

from transcript_store.library import ConversationLibrary
from transcript_store.search import SearchIndex
from transcript_store.serving._application import Application
from transcript_store.serving._guard import Guard, own_headers
from transcript_store.serving._homes import home_of

_ADDRESS = "127.0.0.1"
_LONGEST_HEAD_BYTES = 32_768
"""Of what is kept of a request whose end has not come. What has come is measured by the guard."""
_ENDINGS = (signal.SIGTERM, signal.SIGHUP)


def run(
    library: ConversationLibrary,
    *,
    ready: Callable[[str], object],
    failed: Callable[[BaseException], object],
    cache: str | os.PathLike[str] | None,
    keys: Mapping[str, Any],
) -> None:
    """As :func:`transcript_store.serving.serve`, which explains the arguments."""
    token = secrets.token_urlsafe(32)
    home = home_of(library, keys)
    with _interrupting(), _listening() as listener, SearchIndex(library, cache=cache, **keys) as index:
        host = f"{_ADDRESS}:{listener.getsockname()[1]}"
        application = Application(home, index)
        config = uvicorn.Config(
            Guard(application.app, host=host, token=token, failed=failed),
            http=_Connection,
            ws="none",
            lifespan="off",
            proxy_headers=False,  # nobody stands between: what a header says of the sender is a lie
            server_header=False,
            access_log=False,  # the token is in the paths
            log_config=None,
            log_level="critical",
            h11_max_incomplete_event_size=_LONGEST_HEAD_BYTES,
            timeout_graceful_shutdown=1,
        )
        try:
            with _entrance(f"http://{host}/{token}/") as path:
                _Server(config, started=lambda: ready(path), closing=application.closing.set).run(sockets=[listener])
        finally:
            application.close()


class _Connection(H11Protocol):
    """What is no request never comes to the guard. It is refused with the headers that every other answer has."""

    def send_400_response(self, msg: str) -> None:
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close"), *own_headers()]
        response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (response, h11.Data(data=msg.encode("ascii")), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class _Server(uvicorn.Server):
    """Says when it answers, and ends the streams of events before it waits for them."""

    def __init__(self, config: uvicorn.Config, *, started: Callable[[], object], closing: Callable[[], object]) -> None:
        super().__init__(config)
        self._say_started = started
        self._close = closing

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        await run_sync(self._say_started)  # who starts a browser may wait for it, and that for an answer

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._close()
        await super().shutdown(sockets)


@contextmanager
def _listening() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((_ADDRESS, 0))
        listener.listen()
        yield listener


@contextmanager
def _entrance(address: str) -> Iterator[str]:
    """A file that leads a browser to the address, 0600 in a folder of its own. A process list or a log shows its path alone."""
    folder = tempfile.mkdtemp(prefix="transcript-store-")  # 0700
    path = os.path.join(folder, "open.html")
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(
                '<!doctype html><html lang="en"><head><meta name="referrer" content="no-referrer">'
                f'<meta http-equiv="refresh" content="0;url={address}"><title>transcript_store</title></head>'
                f'<body><a href="{address}">transcript_store</a></body></html>\n'
            )
        yield path
    finally:
        with suppress(OSError):
            os.unlink(path)
        with suppress(OSError):
            os.rmdir(folder)


@contextmanager
def _interrupting() -> Iterator[None]:
    """Within the block the signals that end a process interrupt it, as Ctrl-C does, so that the file is taken away."""

    def interrupt(_number: int, _frame: FrameType | None) -> Any:
        raise KeyboardInterrupt

    heeded = [number for number in _ENDINGS if signal.getsignal(number) is not signal.SIG_IGN]  # `nohup` ignores one
    before = {number: signal.signal(number, interrupt) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
