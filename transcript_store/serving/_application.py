"""What is answered: the list and the search, the page of a conversation, and its events. All of it is read only."""

from __future__ import annotations

import json
import os
from asyncio import Event, wait_for
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import cast

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
from transcript_store.search import Order, SearchIndex
from transcript_store.serving._guard import page_headers
from transcript_store.serving._homes import Home
from transcript_store.serving._library_page import ORDERS, WHERE, Asked, error_page, hits_page, listing_page
from transcript_store.serving._pages import SLICE, Pages, TooMuchAtOnceError
from transcript_store.serving._views import Views
from transcript_store.view.served import LiveConversation, Position, Served, policies, still_page

_KEEP_ALIVE_SECONDS = 10
"""After so long without news a comment is sent, so that a connection that nobody reads is noticed."""
_MOST_MADE_AT_ONCE = 2
"""Pages of conversations. To make one takes several times its bytes."""
_LONGEST_QUERY = 4_000
_MOST_HITS = 100


class Application:
    """The answers for one library. ``closing`` ends the streams of events."""

    def __init__(self, home: Home, index: SearchIndex) -> None:
        self._library = home.name
        self._home = home
        self._index = index
        self._views = Views(home)
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
            except ValueError:  # `after` is of another order, or of nobody
                listing = self._index.list(filter=asked.filter, sort=asked.sort)
            return listing_page(self._library, listing, asked, self._index.facets())
        except TranscriptStoreError as error:
            return error_page(self._library, str(error))

    async def _page(self, request: Request) -> Response:
        name = self._named(request)
        asked = request.query_params.get("g")
        generation = int(asked) if asked and asked.isascii() and asked.isdigit() and len(asked) < 19 else None
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
                return self._answer(live.page(served), "live")
        source, keys = self._home.source(name)
        return self._answer(still_page(source, generation=generation, served=served, keys=keys), "still")

    async def _events(self, request: Request) -> Response:
        name = self._named(request)
        # What the browser has seen by its last event counts before what the page had when it was made.
        said = request.headers.get("last-event-id") or request.query_params.get("after") or ""
        position = Position.parse(said)
        if position is None:
            return PlainTextResponse("no position", 400)
        return StreamingResponse(self._stream(name, position), media_type="text/event-stream")

    async def _stream(self, name: str, position: Position) -> AsyncIterator[str]:
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

    async def _changes(self, conversation: LiveConversation, position: Position) -> AsyncIterator[str]:
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
