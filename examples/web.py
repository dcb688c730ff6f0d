"""A small web backend: ``CHATS=chats uvicorn --app-dir examples web:app --workers 4``. It needs the extras ``aio`` and ``view``.

A turn holds the conversation's lock, so that there is one at a time, whichever worker has it; a second tab is answered 409. A tab says
what it has seen (``head``). The answer is stored though the tab is closed, and a worker that is killed leaves a question on record.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from transcript_store import (
    ConversationChangedError,
    ConversationLockedError,
    ConversationNotFoundError,
    InvalidIdError,
)
from transcript_store.aio import AsyncConversationLibrary, AsyncConversationStore

library = AsyncConversationLibrary(os.environ.get("CHATS", "chats"))
turns: set[asyncio.Task[None]] = set()
LONGEST_BODY = 1 << 20
EXPECTED = {
    ConversationChangedError: (409, "the conversation has changed: read it again"),
    ConversationLockedError: (409, "another turn is under way"),
    ConversationNotFoundError: (404, "there is no such conversation"),
    InvalidIdError: (404, "there is no such conversation"),
}


async def model(messages: list[dict[str, Any]]) -> AsyncIterator[str]:
    for word in f"You said: {messages[-1]['content']}".split():  # here stands your provider's stream
        yield f"{word} "


async def texts_of(request: Request, *names: str) -> list[str]:
    """These members of the body, a JSON object. Anything else is the client's mistake, and is answered 4xx."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LONGEST_BODY:
            raise HTTPException(413, f"the body is longer than {LONGEST_BODY} bytes")
    try:
        given = json.loads(body)
        texts = [given[name] for name in names]
        "".join(texts).encode()  # TypeError: not a text; UnicodeEncodeError, a ValueError: half of a surrogate pair
    except (ValueError, TypeError, LookupError, RecursionError):
        raise HTTPException(400, f"the body must be a JSON object with these texts: {', '.join(names)}") from None
    return texts


async def create(request: Request) -> Response:
    (title,) = await texts_of(request, "title")
    async with await library.create(title=title) as conversation:
        return JSONResponse({"id": conversation.id, "head": await conversation.head}, 201)


async def show(request: Request) -> Response:
    async with await library.open(request.path_params["id"], read_only=True) as conversation:  # also during a turn
        return JSONResponse({"head": await conversation.head, "messages": await conversation.get_messages()})


async def ask(request: Request) -> Response:
    text, head = await texts_of(request, "text", "head")
    chunks: asyncio.Queue[str | None] = asyncio.Queue()
    conversation = await library.open(request.path_params["id"], verify="tail")  # with its lock, until the turn ends
    try:
        await conversation.append_message({"role": "user", "content": text}, if_head=head)
    except BaseException:
        await conversation.close()
        raise
    turns.add(task := asyncio.create_task(answer(conversation, chunks)))  # of its own: the tab may be closed meanwhile
    task.add_done_callback(turns.discard)
    return StreamingResponse(said_so_far(chunks), media_type="text/plain")


async def answer(conversation: AsyncConversationStore, chunks: asyncio.Queue[str | None]) -> None:
    said = []
    try:
        async with conversation:
            async for text in model(await conversation.get_messages(last=50)):
                said.append(text)
                chunks.put_nowait(text)
            await conversation.append_message({"role": "assistant", "content": "".join(said)})
    finally:
        chunks.put_nowait(None)


async def said_so_far(chunks: asyncio.Queue[str | None]) -> AsyncIterator[str]:
    while (text := await chunks.get()) is not None:
        yield text


async def mistaken(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def refused(_: Request, error: Exception) -> Response:
    status, said = next(answer for kind, answer in EXPECTED.items() if isinstance(error, kind))
    return JSONResponse({"error": said}, status)  # the error's own text is for the log: it names paths of this host


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    yield
    if turns:
        await asyncio.wait(turns)  # SIGTERM: turns that are under way end, even if one of them fails


app = Starlette(
    routes=[
        Route("/chats", create, methods=["POST"]),
        Route("/chats/{id}", show),
        Route("/chats/{id}/turns", ask, methods=["POST"]),
    ],
    exception_handlers={**dict.fromkeys(EXPECTED, refused), HTTPException: mistaken},
    lifespan=lifespan,
)
