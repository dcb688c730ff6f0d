"""``transcript-store mcp`` as a process, asked by the SDK's own client over standard input and output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.cli.helpers import COMMAND
from tests.search.libraries import begun
from transcript_store import ConversationLibrary
from transcript_store.cli import INTERRUPTED, OUTPUT_CLOSED

pytestmark = pytest.mark.skipif(not find_spec("mcp"), reason="needs the extra `mcp`")

TOOLS = ("list_conversations", "search_conversations", "read_conversation", "read_record")


@pytest.fixture
def chats(tmp_path: Path) -> ConversationLibrary:
    return ConversationLibrary(tmp_path / "chats")


@asynccontextmanager
async def asked(library: ConversationLibrary, *options: str, mode: str = "auto") -> AsyncIterator[Any]:
    """A client of a server for this library. The server's process ends with it."""
    from mcp.client import Client  # a second: for the worker that asks, not for each that collects the tests
    from mcp.client.stdio import StdioServerParameters, stdio_client

    cache = f"{library.directory}-cache"
    process = StdioServerParameters(
        command=sys.executable,
        args=[*COMMAND[1:], "mcp", library.directory, *options],
        env={**os.environ, "XDG_CACHE_HOME": cache},
    )
    # The default is what was standard error when the SDK was imported: of another test, perhaps, and closed since.
    async with Client(stdio_client(process, errlog=sys.__stderr__), mode=mode) as client:
        yield client


async def told(client: Any, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a tool answers: the same as text and as an object."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    (text,) = result.content
    assert json.loads(text.text) == result.structured_content
    found: dict[str, Any] = result.structured_content
    return found


async def refused(client: Any, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error, (tool, arguments)
    text: str = result.content[0].text
    return text


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_agent_finds_and_reads_what_was_said(chats: ConversationLibrary, mode: str) -> None:
    own_id = begun(chats, "Why does the socket time out?", "And the pipe?", labels={"title": "A socket"})

    async def ask() -> None:
        async with asked(chats, mode=mode) as client:
            tools = (await client.list_tools()).tools
            assert tuple(tool.name for tool in tools) == TOOLS
            for tool in tools:
                assert tool.annotations.read_only_hint
                assert not {"path", "file", "directory", "library"} & tool.input_schema["properties"].keys()
            (listed,) = (await told(client, "list_conversations", query="socket"))["conversations"]
            assert (listed["id"], listed["quoted"]["title"]) == (own_id, "A socket")
            (hit,) = (await told(client, "search_conversations", query='"time out"'))["hits"]
            assert (hit["id"], hit["seq"]) == (own_id, 1)
            first = await told(client, "read_conversation", id=own_id, limit=1)
            (second,) = (await told(client, "read_conversation", cursor=first["cursor"]))["messages"]
            assert second["quoted"]["parts"] == [{"kind": "text", "text": "And the pipe?"}]
            record = await told(client, "read_record", id=own_id, seq=1)
            assert record["quoted"]["parts"][0]["text"] == "Why does the socket time out?"

    anyio.run(ask)


def test_hostile_arguments_are_refused_and_the_server_continues(chats: ConversationLibrary, tmp_path: Path) -> None:
    """A path that is given besides is not looked at. Many calls at once are each answered. Labels and patterns of the command line hold."""
    labels = {"project": "x"}
    own_id = begun(chats, "a socket of ACME-123456", labels=labels)
    many = begun(chats, *(f"plug {number}" for number in range(20)), labels=labels)
    begun(chats, "another socket", labels={"project": "y"})
    other = ConversationLibrary(tmp_path / "other")
    begun(other, "a secret pipe")
    hostile: list[dict[str, Any]] = [
        {"id": "../../etc/passwd"},
        {"id": "/etc/passwd"},
        {"id": "x" * 1_000_000},
        {"id": None},
        {"id": {"$ne": ""}},
        {"id": own_id, "cursor": "forged"},
        {"id": own_id, "seq": "1; DROP TABLE conversation", "from_seq": [1]},
        {"path": "/etc/passwd"},
    ]

    async def ask() -> None:
        async with asked(chats, "--label", "project=x", "--redact-pattern", r"ACME-\d{6}") as client:
            for arguments in hostile:
                for tool in ("read_conversation", "read_record"):
                    assert "root:" not in await refused(client, tool, **arguments)
            for tool in TOOLS[:2]:
                for arguments in (
                    {"query": "x" * 1001},
                    {"query": 7},
                    {"limit": -1},
                    {"sort": "rank; --"},
                    {"cursor": "x" * 101},
                ):
                    await refused(client, tool, **arguments)
            await refused(client, "write_conversation")
            (hit,) = (await told(client, "search_conversations", query="socket", limit=10**30))["hits"]
            assert (hit["id"], hit["quoted"]["excerpt"]) == (own_id, "a socket of [redacted:pattern]")
            assert (await told(client, "read_conversation", id=own_id, from_seq=10**30))["messages"] == []
            answer = await told(client, "search_conversations", query="pipe", library=other.directory)
            assert answer["hits"] == []
            async with anyio.create_task_group() as group:
                for seq in range(1, 21):
                    group.start_soon(one_of_many, client, seq)

    async def one_of_many(client: Any, seq: int) -> None:
        answer = await told(client, "read_record", id=many, seq=seq)
        assert answer["quoted"]["parts"][0]["text"] == f"plug {seq - 1}"

    anyio.run(ask)


# ---- how it ends ----


def line(method: str, id: int | None = None, **params: Any) -> bytes:
    return (
        json.dumps({"jsonrpc": "2.0", "method": method, "params": params} | ({} if id is None else {"id": id})).encode()
        + b"\n"
    )


def call(id: int) -> bytes:
    return line("tools/call", id, name="search_conversations", arguments={"query": "socket"})


HELLO = line(
    "initialize", 0, protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "test", "version": "1"}
) + line("notifications/initialized")
BATCH = b"[" + call(1).strip() + b"," + call(2).strip() + b"]\n"


@pytest.fixture
def server(chats: ConversationLibrary) -> Iterator[subprocess.Popen[bytes]]:
    begun(chats, "Why does the socket time out?")
    with subprocess.Popen(
        [*COMMAND, "mcp", chats.directory],
        env={**os.environ, "XDG_CACHE_HOME": f"{chats.directory}-cache"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("last", "answered"),
    [pytest.param(call(9).rstrip(), [9], id="a whole line"), pytest.param(call(9)[:-9], [-32700], id="part of a line")],
)
def test_what_was_asked_before_the_input_ends_is_answered(
    server: subprocess.Popen[bytes], last: bytes, answered: list[int]
) -> None:
    """A line that is not JSON and a batch are answered too. A call that the client cancelled needs no answer."""
    cancelled = call(5) + line("notifications/cancelled", requestId=5)
    calls = b"".join(map(call, (3, 4, 6, 7, 8)))
    said, complaints = server.communicate(HELLO + b"\xff\n\r\n" + BATCH + cancelled + calls + last)
    answers = [json.loads(each) for each in said.splitlines()]
    ids = [each["id"] if each["id"] is not None else each["error"]["code"] for each in answers if each["id"] != 5]
    assert (server.returncode, complaints) == (0, b"")
    assert sorted(ids) == sorted([0, -32700, -32600, 3, 4, 6, 7, 8, *answered])
    assert all("socket" in str(each["result"]) for each in answers if each["id"])


HALVES = {
    r"socket \ud83d": "socket \ufffd",
    r"\uDE00\ud83d\ude00 \\ud83d": "\ufffd\U0001f600 \\ud83d",
    r"\ud83d\ud83d\ude00\\\ud83d": "\ufffd\U0001f600\\\ufffd",
}


def test_half_a_character_in_a_request(server: subprocess.Popen[bytes]) -> None:
    """The answer has the request's id; it was an error without one, which no client can relate to what it asked."""
    from transcript_store.mcp._stdio import _text_of

    asked = [call(n).replace(b'"socket"', f'"{query} -socket"'.encode()) for n, query in enumerate(HALVES, 1)]
    said, _ = server.communicate(HELLO + b"".join(asked))
    answers = [json.loads(each) for each in said.splitlines()][1:]
    assert sorted(answer["id"] for answer in answers) == [1, 2, 3]
    assert not any(answer["result"].get("isError") for answer in answers)
    read = [json.loads(_text_of(each))["params"]["arguments"]["query"] for each in asked]
    assert read == [f"{meant} -socket" for meant in HALVES.values()]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "output closed"])
def test_it_ends_at_once_while_its_input_is_open(server: subprocess.Popen[bytes], how: str) -> None:
    assert server.stdin
    assert server.stdout
    assert server.stderr
    server.stdin.write(HELLO)
    server.stdin.flush()
    assert json.loads(server.stdout.readline())["id"] == 0
    if how == "output closed":
        server.stdout.close()
        server.stdin.write(call(1))
        server.stdin.flush()
        expected = OUTPUT_CLOSED
    else:
        server.send_signal(getattr(signal, how))
        expected = -signal.SIGTERM if how == "SIGTERM" else INTERRUPTED
    assert (server.wait(), server.stderr.read()) == (expected, b"")


def test_an_output_that_fails_is_one_sentence(chats: ConversationLibrary, tmp_path: Path) -> None:
    begun(chats, "Why does the socket time out?")
    (tmp_path / "asked").write_bytes(HELLO)
    with (tmp_path / "asked").open("rb") as asked, open("/dev/full", "wb") as full:
        command = [*COMMAND, "mcp", chats.directory]
        done = subprocess.run(command, stdin=asked, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr.count(b"\n"), b"No space left" in done.stderr) == (1, 1, True)


PRINTS = """
import os, subprocess, sys
from transcript_store.mcp import LibraryTools, make_server

class Printing(LibraryTools):
    def search_conversations(self, *arguments, **named):
        print("printed")
        os.write(1, b"written\\n")
        subprocess.run(["echo", "by a child"], check=True)
        return super().search_conversations(*arguments, **named)

with Printing(sys.argv[1], cache=sys.argv[2]) as past:
    make_server(past).run()
print("afterwards")
"""


def test_what_a_tool_prints_is_no_answer(chats: ConversationLibrary, tmp_path: Path) -> None:
    """It goes to standard error: bytes of a library, of a descriptor or of a child would break the stream of answers."""
    begun(chats, "Why does the socket time out?")
    command = [sys.executable, "-u", "-c", PRINTS, chats.directory, str(tmp_path / "cache")]
    done = subprocess.run(command, input=HELLO + call(1), capture_output=True, check=True)
    *answers, last = done.stdout.splitlines()
    assert [json.loads(each)["id"] for each in answers] == [0, 1]
    assert (last, done.stderr.split(b"\n")) == (b"afterwards", [b"printed", b"written", b"by a child", b""])
