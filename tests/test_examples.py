"""The examples are agents that are killed: each is run, stopped with SIGKILL wherever it may be, and run again to its end."""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.crash.strace import CALLS
from transcript_store import ConversationLibrary, ConversationStore, verify

EXAMPLES = Path(__file__).parent.parent / "examples"


def start(name: str, *arguments: Path | str, kill_at: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run one; with ``kill_at`` the kernel kills it at so many system calls that change or sync a file."""
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    if kill_at is not None:
        traced = "write,fdatasync,fsync,renameat,renameat2,rename,unlinkat,mkdirat"
        inject = f"{traced}:signal=KILL:when={kill_at}"
        command = [
            "strace",
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            f"trace={traced}",
            "-e",
            f"inject={inject}",
            *command,
        ]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_they_are_short() -> None:
    for example in EXAMPLES.glob("*.py"):
        assert example.read_text().count("\n") <= (130 if example.name == "web.py" else 60)


def test_an_agent_with_tools(tmp_path: Path) -> None:
    for _ in range(2):  # the second time there is nothing left to do
        assert start("tools.py", tmp_path).returncode == 0
    assert (tmp_path / "receipts").read_text().splitlines() == ["bread", "milk", "tea"]


@pytest.mark.long
@pytest.mark.needs("strace")
def test_an_agent_with_tools_is_killed_at_every_call(tmp_path: Path) -> None:
    """No tool runs twice, each call has one result, and what was bought is on record or in doubt."""
    assert {"write", "fdatasync"} <= set(CALLS)
    kills = 0
    for kill_at in range(1, 200):
        folder = tmp_path / str(kill_at)
        folder.mkdir()
        stopped = start("tools.py", folder, kill_at=kill_at)
        if stopped.returncode == 0:
            break
        kills += 1
        ended = start("tools.py", folder)
        assert ended.returncode == 0, ended.stderr
        bought = (folder / "receipts").read_text().splitlines() if (folder / "receipts").exists() else []
        assert len(set(bought)) == len(bought)
        with ConversationStore(folder / "chat", read_only=True) as conversation:
            conversation.load()
            messages = conversation.get_messages()
        results = [message for message in messages if message["role"] == "tool"]
        assert [message["tool_call_id"] for message in results] == ["call_0", "call_1", "call_2"]
        in_doubt = sum("interrupted" in message["content"] for message in results)
        assert len(bought) + in_doubt >= 3 >= len(bought)
        assert verify(folder / "chat").is_intact
    assert kills >= 20
    assert stopped.returncode == 0


def test_an_agent_that_compacts(tmp_path: Path) -> None:
    """Two runs: what was compacted is still there, and each run leaves a fork."""
    for _ in range(2):
        done = start("compact.py", tmp_path)
        assert done.returncode == 0, done.stderr
    library = ConversationLibrary(tmp_path)
    assert len(library.list()) == 3
    main = next(found.directory for found in library.list() if (Path(found.directory) / "archive").exists())
    with ConversationStore(main, read_only=True) as conversation:
        conversation.load()
        lines = [
            record.message["content"]
            for generation in conversation.generations()
            for record in conversation.get_records(generation=generation.number)
            if record.message is not None
        ]
    assert set(lines) >= {f"line {number}" for number in range(20)}


@pytest.mark.long
@pytest.mark.needs("strace")
def test_an_agent_that_compacts_is_killed_at_every_call(tmp_path: Path) -> None:
    """Whatever it had stored is in some generation; the next run goes on."""
    kills = 0
    for kill_at in range(1, 400, 3):
        folder = tmp_path / str(kill_at)
        stopped = start("compact.py", folder, kill_at=kill_at)
        if stopped.returncode == 0:
            break
        kills += 1
        assert stopped.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
        assert start("compact.py", folder).returncode == 0
        for found in ConversationLibrary(folder).list():
            assert found.damage is None
            assert verify(found.directory).is_intact
    assert kills >= 10
    assert stopped.returncode == 0


def test_the_examples_leave_ordinary_jsonl(tmp_path: Path) -> None:
    """P14: a line is JSON, whoever reads it."""
    start("tools.py", tmp_path)
    lines = (tmp_path / "chat/transcript.jsonl").read_text().splitlines()
    assert [json.loads(line).get("seq") for line in lines] == [None, *range(1, len(lines))]


@contextmanager
def backends(chats: Path) -> Iterator[list[str]]:
    """``examples/web.py`` in two processes, as two workers; gives their addresses."""
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "web:app", "--port", "0"]
    environment = {**os.environ, "CHATS": str(chats)}
    workers = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        running = [next(line for line in worker.stderr or () if "running on" in line) for worker in workers]
        yield [line.split("running on ")[1].split()[0] for line in running]
    finally:
        for worker in workers:
            worker.terminate()
        said = [worker.communicate(timeout=60)[1] for worker in workers]
    assert "Traceback" not in "".join(said)


def asked(address: str, body: object = None, method: str | None = None) -> tuple[int, str]:
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = Request(address, data, method=method)
    try:
        with urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def refused(address: str, body: bytes | None = None, method: str | None = None) -> int:
    """The status of an answer that gives the reason in one sentence."""
    status, text = asked(address, body, method)
    (sentence,) = json.loads(text).values()
    assert sentence
    return status


def test_a_web_backend(tmp_path: Path) -> None:
    """Two workers on one library: a streamed turn, a second tab that is behind, a turn at a time, an id that does not exist."""
    with backends(tmp_path) as (one, two):
        status, text = asked(f"{one}/chats", {"title": "Moving"})
        chat = json.loads(text)
        assert (status, [summary.title for summary in ConversationLibrary(tmp_path).list()]) == (201, ["Moving"])
        turn = {"text": "Where do I begin?", "head": chat["head"]}
        assert asked(f"{one}/chats/{chat['id']}/turns", turn) == (200, "You said: Where do I begin? ")
        assert asked(f"{two}/chats/{chat['id']}/turns", turn)[0] == 409  # of the other tab, which has not seen that
        status, text = asked(f"{two}/chats/{chat['id']}")
        seen = json.loads(text)
        assert [message["role"] for message in seen["messages"]] == ["user", "assistant"]
        with ConversationLibrary(tmp_path).open(chat["id"]):  # a turn of a third worker
            assert asked(f"{one}/chats/{chat['id']}/turns", {**turn, "head": seen["head"]})[0] == 409
            assert asked(f"{one}/chats/{chat['id']}")[0] == 200
        assert asked(f"{two}/chats/{chat['id']}/turns", {**turn, "head": seen["head"]})[0] == 200
        assert asked(f"{one}/chats/no-id")[0] == 404
        turns = f"{one}/chats/{chat['id']}/turns"
        for body in (
            b"",
            b"{",
            b"\xff",
            b"null",
            b'"title"',
            b"[]",
            b"[" * 100_000,
            b"{}",
            b'{"title": 7}',
            b'{"title": "\\ud800"}',
        ):
            assert refused(f"{one}/chats", body) == 400
        for members in (
            {"text": "x"},
            {"head": "x"},
            {"text": "x", "head": None},
            {"text": ["x"], "head": "x"},
            ["text", "head"],
        ):
            assert refused(turns, json.dumps(members).encode()) == 400
        assert refused(turns, b" " * (1 << 20) + b"{}") == 413
        assert [refused(turns, method="GET"), refused(f"{one}/chats", method="PUT"), refused(f"{one}/other")] == [
            405,
            405,
            404,
        ]
        assert asked(f"{one}/chats/0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51")[0] == 404
    assert len(list((tmp_path / chat["id"]).glob("transcript.jsonl"))) == 1


def test_a_turn_that_fails_while_the_backend_ends_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their answers are stored."""
    monkeypatch.setenv("CHATS", str(tmp_path))
    web = runpy.run_path(str(EXAMPLES / "web.py"))

    async def stopped() -> bool:
        has_failed = asyncio.Event()

        async def failing() -> None:
            has_failed.set()
            raise OSError("the model's server is gone")

        async def answering() -> None:
            await has_failed.wait()
            for _ in range(3):
                await asyncio.sleep(0)

        answer = asyncio.create_task(answering())
        async with web["lifespan"](web["app"]):
            web["turns"].update({answer, failure := asyncio.create_task(failing())})
        return answer.done() and failure.exception() is not None

    assert asyncio.run(stopped())
