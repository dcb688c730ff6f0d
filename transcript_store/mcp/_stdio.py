"""How does the server answer on standard input and output? It finishes what it was asked before the input ended."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.server import MCPServer
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCRequest

_LAST_ANSWERS_SECONDS = 60
"""How long the answers to open requests may take once the input has ended."""
_NEVER_ANSWERED = "subscriptions/listen"
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600
_CHUNK_BYTES = 1 << 16


class StdioServer(MCPServer[Any]):  # type: ignore[misc]  # the SDK is not followed
    """The SDK's server, which on its own drops every request that is open when its input ends."""

    async def run_stdio_async(self) -> None:
        """Answer requests until standard input ends, and then those that are still open.

        Raises:
            OSError: standard input or output is closed or has failed; BrokenPipeError if the client has closed the output.
        """
        if sys.stdin is None or sys.stdout is None:
            raise OSError(errno.EBADF, "standard input or output is closed")
        try:
            with _diverted(sys.stdout.fileno()) as wire:
                # The first is only iterated, the second only written to.
                stdin = cast("anyio.AsyncFile[str]", _InputLines(sys.stdin.fileno()))
                stdout = cast("anyio.AsyncFile[str]", _Output(wire))
                async with stdio_server(stdin, stdout) as (asked, answers):
                    await self._answer(asked, answers)
        except BaseExceptionGroup as group:
            failed: BaseException | None = group.subgroup(OSError)
            while isinstance(failed, BaseExceptionGroup):
                failed = failed.exceptions[0]
            if failed is None:
                raise
            raise failed from None

    async def _answer(self, asked: Any, answers: Any) -> None:
        to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception]()
        to_client, from_server = anyio.create_memory_object_stream[SessionMessage]()
        requests = _OpenRequests()
        low_level = self._lowlevel_server  # as the method of the SDK that this replaces
        async with answers, anyio.create_task_group() as tasks:
            tasks.start_soon(requests.pass_on_questions, asked, to_server, to_client.clone())
            tasks.start_soon(requests.pass_on_answers, from_server, answers)
            await low_level.run(from_client, to_client, low_level.create_initialization_options())


@contextmanager
def _diverted(descriptor: int) -> Iterator[int]:
    """A copy of standard output; what is printed meanwhile goes to standard error, and not between the answers."""
    wire = os.dup(descriptor)
    try:
        with suppress(OSError):  # there is no standard error
            os.dup2(2, descriptor)
        yield wire
    finally:
        os.dup2(wire, descriptor)
        os.close(wire)


class _Output:
    """Writes to a descriptor without a buffer, which would be written once more when the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def write(self, text: str) -> None:
        await anyio.to_thread.run_sync(self._write_all, text.encode())

    def _write_all(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]

    async def flush(self) -> None:
        """There is no buffer."""


class _OpenRequests:
    """The requests without an answer yet."""

    def __init__(self) -> None:
        self._ids: set[str | int] = set()
        self._input_ended = False
        self._all_answered = anyio.Event()

    async def pass_on_questions(
        self,
        asked: ObjectReceiveStream[SessionMessage | Exception],
        to_server: ObjectSendStream[SessionMessage | Exception],
        to_client: ObjectSendStream[SessionMessage],
    ) -> None:
        """Give the server what the client asks. The server's input ends only once it has answered."""
        async with to_server, to_client:
            async for item in asked:
                if isinstance(item, Exception):  # the SDK drops it, and a client that sent a batch would wait forever
                    await to_client.send(_not_a_request(item))
                    continue
                message = item.message
                if isinstance(message, JSONRPCRequest) and message.method != _NEVER_ANSWERED:
                    self._ids.add(message.id)
                elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
                    self._close((message.params or {}).get("requestId"))
                await to_server.send(item)
            self._input_ended = True
            self._close(None)
            with anyio.move_on_after(_LAST_ANSWERS_SECONDS):
                await self._all_answered.wait()

    async def pass_on_answers(
        self, from_server: ObjectReceiveStream[SessionMessage], answers: ObjectSendStream[SessionMessage]
    ) -> None:
        """Give the client what the server answers."""
        async for item in from_server:
            await answers.send(item)
            self._close(getattr(item.message, "id", None))

    def _close(self, request: object) -> None:
        if isinstance(request, str | int):
            self._ids.discard(request)
        if self._input_ended and not self._ids:
            self._all_answered.set()


def _not_a_request(error: Exception) -> SessionMessage:
    kinds = {found["type"] for found in getattr(error, "errors", list)()}
    if "json_invalid" in kinds:
        said = ErrorData(code=_PARSE_ERROR, message="this line is not JSON")
    else:
        said = ErrorData(code=_INVALID_REQUEST, message="this line is not one JSON-RPC message; send no batches")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=said))


_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>u[dD][89a-fA-F]..)|.)")


def _text_of(line: bytes) -> str:
    """A line, with U+FFFD instead of an escape that is half a character.

    Clients in JavaScript send those: models and programs cut texts within an emoji. The SDK refuses the whole line, so its answer could not
    have the request's id, and the client would wait for one until its own limit.
    """
    text = line.decode("utf-8", "replace")
    return (
        _ESCAPE.sub(lambda escape: "\\ufffd" if escape["half"] else escape[0], text) if "\\ud" in text.lower() else text
    )


class _InputLines:
    """The lines that can be read from a descriptor. The SDK would read in a thread, and the process could not end while it waits."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def __aiter__(self) -> AsyncIterator[str]:
        line: list[bytes] = []
        while chunk := await self._read():
            first, *rest = chunk.split(b"\n")
            line.append(first)
            for following in rest:
                if complete := b"".join(line).strip():
                    yield _text_of(complete)
                line = [following]
        if last := b"".join(line).strip():
            yield _text_of(last)

    async def _read(self) -> bytes:
        try:
            await anyio.wait_readable(self._descriptor)
        except PermissionError:  # a file, which is always readable
            await anyio.lowlevel.checkpoint()
        return os.read(self._descriptor, _CHUNK_BYTES)
