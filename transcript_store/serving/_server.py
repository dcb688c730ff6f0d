"""How does the server run? One socket of the loopback address, and a file that leads a browser to it."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import secrets
import signal
import socket
import tempfile
from asyncio import AbstractEventLoop, Event, wait_for
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import FrameType
from typing import Any, cast

import uvicorn
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from transcript_store.errors import (
    ConversationNotFoundError,
    CorruptMetadataError,
    CorruptTranscriptError,
    GenerationNotFoundError,
    TranscriptStoreError,
)
from transcript_store.importing import conversation_id
from transcript_store.library import ConversationLibrary
from transcript_store.search import Order, SearchIndex
from transcript_store.serving._guard import Guard, OpenConnections, page_headers
from transcript_store.serving._library import RowFactsCache, ServedLibrary, Views, home_of
from transcript_store.serving._pages import (
    ORDERS,
    SLICE,
    WHERE,
    Asked,
    Pages,
    TooMuchAtOnceError,
    error_page,
    hits_page,
    listing_page,
)
from transcript_store.view.served import LiveConversation, PagePosition, Served, policies, still_page

# ---- application ----
# What is answered: the listing and the search, the page of a conversation, and its events. All of it is read-only.

_KEEP_ALIVE_SECONDS = 10
"""After so long without news a comment is sent, so that a connection without a reader is noticed."""
_MOST_MADE_AT_ONCE = 2
"""Pages of conversations. To make one takes several times its bytes."""
_LONGEST_QUERY = 4_000
_MOST_HITS = 100
_MOST_PARTS = 200
"""Sub-agents of a session that its page names, the latest of them."""


class Application:
    """The answers for one library. ``closing`` ends the streams of events."""

    def __init__(self, home: ServedLibrary, index: SearchIndex) -> None:
        self._library = home.name
        self._home = home
        self._index = index
        self._views = Views(home)
        self._facts = RowFactsCache(home)
        self._pages = Pages()
        self._making = CapacityLimiter(_MOST_MADE_AT_ONCE)
        self._policies = policies()
        self.closing = Event()
        self.app = Starlette(
            routes=[
                Route("/", self._list, methods=["GET"]),
                Route("/c/{name}/", self._page, methods=["GET"]),
                Route("/c/{name}/events", self._events, methods=["GET"]),
            ]
        )
        self.app.router.redirect_slashes = False

    def close(self) -> None:
        self._views.close()

    async def _list(self, request: Request) -> Response:
        given = {name: value[:_LONGEST_QUERY] for name, value in request.query_params.items()}
        asked = Asked(
            query=given.get("q", ""),
            filter=given.get("filter", ""),
            where=given.get("in", "") if given.get("in") in WHERE else "",
            sort=cast(Order, given.get("sort")) if given.get("sort") in ORDERS else "updated",
        )
        html = await run_sync(self._listed, asked, given.get("after") or None)
        return self._answer([html], "library")

    def _listed(self, asked: Asked, after: str | None) -> bytes:
        try:
            if asked.query.strip():
                found = self._index.search(
                    f"{asked.query} {WHERE[asked.where][1]} {asked.conversations}", limit=_MOST_HITS
                )
                return hits_page(self._library, found, asked, self._index.facets())
            try:
                listing = self._index.list(filter=asked.filter, sort=asked.sort, after=after)
            except ValueError:  # `after` belongs to another order, or to no conversation
                listing = self._index.list(filter=asked.filter, sort=asked.sort)
            return listing_page(self._library, listing, asked, self._index.facets(), self._facts.of(listing))
        except TranscriptStoreError as error:
            return error_page(self._library, str(error))

    async def _page(self, request: Request) -> Response:
        name = self._named(request)
        asked = request.query_params.get("g")
        if asked and not re.fullmatch(r"[0-9]{1,18}", asked):  # of no generation, as any other number that is none
            raise HTTPException(404, "not found")
        generation = int(asked) if asked else None
        try:
            return await run_sync(self._shown, name, generation, limiter=self._making)
        except (ConversationNotFoundError, GenerationNotFoundError) as error:
            raise HTTPException(404, "not found") from error
        except TranscriptStoreError as error:
            return self._answer([error_page(self._library, str(error))], "library", 500)

    def _shown(self, name: str, generation: int | None) -> Response:
        served = self._served()
        if generation is None:
            with suppress(CorruptTranscriptError, CorruptMetadataError), self._views.opened(name) as live:
                parts = self._parts(name, live.imported_session)
                return self._answer(live.page(replace(served, parts=parts)), "live")
        source, keys = self._home.source(name)
        return self._answer(still_page(source, generation=generation, served=served, keys=keys), "still")

    def _parts(self, name: str, session: str | None) -> list[tuple[str, str]]:
        """The conversations of a session's sub-agents as :attr:`Served.parts`, the earliest first."""
        if session is None or re.search(r'[\s"]', session):
            return []
        parts, of_conversation = [], self._served().of_conversation
        with suppress(TranscriptStoreError):  # the page does without them
            found = self._index.list(filter=f"label:part_of={session}", sort="created", limit=_MOST_PARTS)
            for summary, title in zip(found, found.names, strict=True):
                program, folder = (summary.labels or {}).get("source", ""), os.path.basename(summary.directory)
                if conversation_id(program, session) == name and (address := of_conversation(folder)):
                    parts.append((title, address))
        return parts[::-1]

    async def _events(self, request: Request) -> Response:
        name = self._named(request)
        # What the browser has seen by its last event counts before what the page had when it was made.
        said = request.headers.get("last-event-id") or request.query_params.get("after") or ""
        position = PagePosition.parse(said)
        if position is None:
            return PlainTextResponse("no position", 400)
        return StreamingResponse(self._stream(name, position), media_type="text/event-stream")

    async def _stream(self, name: str, position: PagePosition) -> AsyncIterator[str]:
        """The changes since a position, one event each; ``gone`` at the end, if the conversation cannot be read any more."""
        yield "retry: 500\n\n"
        lease = None
        try:
            lease = await run_sync(self._views.take, name)
            async for said in self._changes(lease.conversation, position):
                yield said
        except TranscriptStoreError:
            if lease is not None:
                self._views.forget(lease)
            yield "event: gone\ndata:\n\n"
        finally:
            if lease is not None:
                self._views.give_back(lease)

    async def _changes(self, conversation: LiveConversation, position: PagePosition) -> AsyncIterator[str]:
        quiet, keep_alive = 0, round(_KEEP_ALIVE_SECONDS / self._home.poll_seconds)
        while not self.closing.is_set():
            change = await run_sync(conversation.change_since, position, self._served())
            if change is not None:
                position = change.position
                event = f"id: {position}\ndata: {json.dumps(change.as_json())}\n\n"
                for start in range(0, len(event), SLICE):
                    yield event[start : start + SLICE]
            quiet = 0 if change else quiet + 1
            if quiet % keep_alive == keep_alive - 1:
                yield ": still here\n\n"
            with suppress(TimeoutError):
                await wait_for(self.closing.wait(), self._home.poll_seconds)

    def _named(self, request: Request) -> str:
        name = os.fsdecode(request.path_params["name"].encode("utf-8", "surrogateescape"))
        if not self._home.has(name):
            raise HTTPException(404, "not found")
        return name

    def _served(self) -> Served:
        def of_conversation(id: str) -> str | None:
            return f"../{id}/" if self._home.has(id) else None

        def of_generation(number: int | None) -> str:
            return "./" if number is None else f"?g={number}"

        return Served(home="../../", of_conversation=of_conversation, of_generation=of_generation)

    def _answer(self, pieces: Iterable[bytes], kind: str, status: int = 200) -> Response:
        try:
            return self._pages.answer(pieces, status=status, headers=page_headers(self._policies[kind]))
        except TooMuchAtOnceError:
            return PlainTextResponse("too much at once: close some of the pages", 503)


# ---- server ----

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
    alive: Callable[[], object],
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
            proxy_headers=False,  # there is no proxy: what a header says of the sender is a lie
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
                closing = application.closing.set
                server = _Server(config, connections, started=started, closing=closing, failed=failed, alive=alive)
                server.run(sockets=[listener])
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
        alive: Callable[[], object],
    ) -> None:
        super().__init__(config)
        self._connections = connections
        self._say_started = started
        self._close = closing
        self._failed = failed
        self._alive = alive
        self._told: set[str] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._went_wrong)
        await super().startup(sockets)
        await run_sync(self._say_started)  # who starts a browser may wait for it, and that for an answer

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:  # a second
            self._connections.close_overdue()
            self._alive()
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
