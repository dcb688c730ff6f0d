"""The server: one socket of the loopback address, and the file that leads a browser to it."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import signal
import socket
import tempfile
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import uvicorn
from anyio.to_thread import run_sync

from transcript_store.library import ConversationLibrary
from transcript_store.search import SearchIndex
from transcript_store.serving._application import Application
from transcript_store.serving._connections import OpenConnections
from transcript_store.serving._guard import Guard
from transcript_store.serving._homes import home_of

_ADDRESS = "127.0.0.1"
_LONGEST_HEAD_BYTES = 32_768
"""Of what is kept of a request whose end has not come. What has come is measured by the guard."""
_LONGEST_LINE = 1024
"""Of connections that the kernel keeps until they are accepted."""
_ENDINGS = (signal.SIGTERM, signal.SIGHUP)
_NO_MORE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def run(
    library: ConversationLibrary,
    *,
    ready: Callable[[str], object],
    show_address: Callable[[str], object],
    failed: Callable[[BaseException], object],
    port: int,
    forwarded_port: int | None,
    cache: str | os.PathLike[str] | None,
    keys: Mapping[str, Any],
) -> None:
    """As :func:`transcript_store.serving.serve`, which explains the arguments."""
    token = secrets.token_urlsafe(32)
    home = home_of(library, keys)
    with _interrupting(), _listening(port) as listener, SearchIndex(library, cache=cache, **keys) as index:
        own = listener.getsockname()[1]
        application, connections = Application(home, index), OpenConnections()
        config = uvicorn.Config(
            Guard(application.app, hosts={_host(own), _host(forwarded_port or own)}, token=token, failed=failed),
            http=connections.protocol,  # type: ignore[arg-type]  # it is only called
            ws="none",
            lifespan="off",
            proxy_headers=False,  # nobody stands between: what a header says of the sender is a lie
            server_header=False,
            access_log=False,  # the token is in the paths
            log_config=None,
            log_level="critical",
            backlog=connections.accepted_at_once,  # asyncio accepts as many in a turn as this
            h11_max_incomplete_event_size=_LONGEST_HEAD_BYTES,
            timeout_graceful_shutdown=1,
        )

        def started() -> None:
            listener.listen(_LONGEST_LINE)  # uvicorn made the line as short as what it accepts in a turn
            show_address(address)
            ready(path)

        address = f"http://{_host(forwarded_port or own)}/{token}/"
        try:
            with _entrance(address) as path:
                _Server(config, connections, started=started, closing=application.closing.set, failed=failed).run(
                    sockets=[listener]
                )
        finally:
            application.close()


def _host(port: int) -> str:
    """The address and a port, as a browser names them."""
    return _ADDRESS if port == 80 else f"{_ADDRESS}:{port}"


class _Server(uvicorn.Server):
    """Says when it answers, closes connections that are of no use, and ends the streams of events before it waits for them."""

    def __init__(
        self,
        config: uvicorn.Config,
        connections: OpenConnections,
        *,
        started: Callable[[], object],
        closing: Callable[[], object],
        failed: Callable[[BaseException], object],
    ) -> None:
        super().__init__(config)
        self._connections = connections
        self._say_started = started
        self._close = closing
        self._failed = failed
        self._told: set[str] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._went_wrong)
        await super().startup(sockets)
        await run_sync(self._say_started)  # who starts a browser may wait for it, and that for an answer

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:  # a second
            self._connections.close_overdue()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._close()
        await super().shutdown(sockets)

    def _went_wrong(self, _: AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report an error of the event loop, each kind once: asyncio writes a traceback each time, and a stranger can cause many."""
        error = context.get("exception")
        if not isinstance(error, Exception):
            error = RuntimeError(context["message"])
        if isinstance(error, OSError) and error.errno in _NO_MORE:
            self._connections.close_strangers()  # asyncio tries again after a second, and the owner may be next
            error = OSError(error.errno, f"no connection can be accepted now ({error.strerror}); this is reported once")
        kind = f"{context['message']} {type(error).__name__} {getattr(error, 'errno', '')}"
        if kind not in self._told:
            self._told.add(kind)
            self._failed(error)


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        if port:  # or the port of a server that ended a moment ago could not be had for a minute
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_ADDRESS, port))
        except OSError as error:
            raise OSError(
                error.errno, f"cannot listen at port {port}: {error.strerror}; choose another, or 0 for a free one"
            ) from error
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
