"""The words of a lock: two tasks of one process were told that "another process is writing to it", in 9 of 20 tries.

Public reports: "database is locked" without who locks it, or for how long one waits (sqlite3, LevelDB: "Resource temporarily
unavailable", Chroma, LangGraph's SQLite saver).
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from transcript_store import ConversationLockedError, ConversationStore
from transcript_store.aio import AsyncConversationLibrary

HERE = Path(__file__).name


@pytest.fixture
def conversation(tmp_path):
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize()
        yield conversation


def refused(path, **options):
    with pytest.raises(ConversationLockedError) as caught, ConversationStore(path, **options) as other:
        other.load()
    return caught.value


def test_this_process_is_named_and_the_line_that_opened_the_store(conversation):
    error = refused(conversation.directory)
    assert "this process is writing to it" in error.problem
    assert HERE in (error.holder_opened_at or "")
    assert (error.holder_pid, error.holder_host) == (os.getpid(), socket.gethostname())
    assert all(
        hint in str(error) for hint in ("hold_lock=False", "lock_timeout_seconds", "waits 0 seconds", "read_only=True")
    )


def test_the_lock_error_does_not_trust_the_file(conversation):
    """The name in the file is of the last holder until the next one signs, and another container may have our number."""
    lock = Path(conversation.directory, "lock")
    ours = lock.read_bytes()
    for content in (b"", b"{", ours.replace(str(os.getpid()).encode(), b"7"), ours):
        lock.write_bytes(content)
        assert refused(conversation.directory).holder_pid == os.getpid()


def test_tasks_that_open_one_conversation_at_the_same_time(tmp_path):
    """Twenty times two tasks: exactly one has it, and the other one is told that this process has it."""

    async def main() -> None:
        library = AsyncConversationLibrary(tmp_path)
        async with await library.create() as conversation:
            pass
        opened, errors = [], []

        async def open_it() -> None:
            try:
                opened.append(await library.open(conversation.id))
            except ConversationLockedError as error:
                errors.append(error)

        for _ in range(20):
            await asyncio.gather(open_it(), open_it())
            for one in opened:
                await one.close()
            assert len(opened) <= 1 or not errors  # one may have been opened and closed before the other came
            opened.clear()
        assert all("this process" in error.problem for error in errors), errors

    asyncio.run(main())


def test_threads_that_race(conversation):
    """The lock is taken and not signed yet: the holder's thread is stopped right there."""
    conversation.close()
    at_the_sign, go_on = threading.Event(), threading.Event()
    from transcript_store._os.lock import Lock

    sign = Lock.sign
    patched: Any = Lock

    def slowly(lock):
        at_the_sign.set()
        assert go_on.wait(60)
        sign(lock)

    def hold():
        with ConversationStore(conversation.directory) as other:
            patched.sign = slowly
            other.load()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert at_the_sign.wait(60)
        patched.sign = sign
        assert "this process" in refused(conversation.directory).problem
    finally:
        patched.sign = sign
        go_on.set()
        thread.join()


def test_another_process_is_named(tmp_path):
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize()
    program = (
        "import sys; from transcript_store import ConversationStore; conversation = ConversationStore(sys.argv[1]);"
        "conversation.load(); print('held', flush=True); sys.stdin.read(); conversation.close()"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "c")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        error = refused(tmp_path / "c")
        assert error.holder_pid == child.pid
        assert f"process {child.pid} on {socket.gethostname()} is writing to it" in error.problem
        assert error.holder_opened_at is None


def test_a_name_that_we_left_is_not_ours_to_claim(conversation):
    """Another writer took the lock behind us and could not write its name: it is another process, whose number is not known."""
    path = conversation.directory
    named = json.loads(Path(path, "lock").read_bytes().splitlines()[0])
    conversation.close()
    assert named["pid"] == os.getpid()
    import fcntl

    handle = os.open(Path(path, "lock"), os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        error = refused(path)
        assert "another process is writing to it" in error.problem
        assert error.holder_pid is None
    finally:
        os.close(handle)
