"""A close, a fork, or the end of an event loop or interpreter while calls are running."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import warnings

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from tests.aio.helpers import Behind
from tests.kit.children import Child
from transcript_store import ConversationNotLoadedError, ConversationStore
from transcript_store.aio import AsyncConversationLibrary, AsyncConversationStore


@pytest.mark.anyio
async def test_close_waits_for_what_is_under_way(tmp_path):
    """Calls made before it are answered; calls made after it find the store closed."""
    behind = Behind(tmp_path / "c")
    async with behind.begin():
        for n in range(3):
            behind.append(n)
        await anyio.wait_all_tasks_blocked()
        behind.tasks.start_soon(behind.store.close)
        await anyio.wait_all_tasks_blocked()
        behind.append("late")
    assert all(behind.outcomes[n][0].seq for n in range(3))
    assert isinstance(behind.outcomes["late"], ConversationNotLoadedError)
    assert sorted(map(str, behind.stored())) == ["0", "1", "2", "first"]


@pytest.mark.anyio
async def test_a_closed_store_has_no_thread_and_can_be_loaded_again(tmp_path):
    """A thread for each open store, and none for others; a library leaves none."""

    async def until_there_are(count: int) -> None:
        while len([thread for thread in threading.enumerate() if thread.name.startswith("transcript_store")]) != count:
            await anyio.sleep(0.001)

    gc.collect()
    await until_there_are(0)
    library = AsyncConversationLibrary(tmp_path)
    conversation = await library.create()
    for _ in range(2):
        await conversation.append_message({"n": 1})
        await until_there_are(1)
        await conversation.close()
        await conversation.close()
        await until_there_are(0)
        await conversation.load()
    assert await conversation.record_count == 2
    await conversation.close()


def test_a_store_goes_from_one_event_loop_to_the_next(tmp_path):
    """Nothing of a loop that has ended is kept."""
    pytest.importorskip("trio")
    conversation = AsyncConversationStore(tmp_path / "c")
    anyio.run(conversation.initialize, backend="asyncio")
    anyio.run(conversation.append_message, {"n": 1}, backend="trio")
    anyio.run(conversation.append_message, {"n": 2}, backend="asyncio")
    assert [message["n"] for message in anyio.run(conversation.get_messages, backend="trio")] == [1, 2]
    anyio.run(conversation.close, backend="asyncio")


def test_one_store_in_two_event_loops(tmp_path):
    """P22: two loops, in two threads, at the same time: each call is answered in its own."""
    pytest.importorskip("trio")
    conversation = AsyncConversationStore(tmp_path / "c")
    anyio.run(conversation.initialize)

    async def talk(name: str) -> None:
        async with anyio.create_task_group() as tasks:
            for n in range(20):
                tasks.start_soon(conversation.append_message, {"n": f"{name}{n}"})

    loops = [
        threading.Thread(target=anyio.run, args=(talk, backend), kwargs={"backend": backend})
        for backend in ("asyncio", "trio")
    ]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join(30)
        assert not loop.is_alive()
    assert len(anyio.run(conversation.get_messages)) == 40
    anyio.run(conversation.close)


def test_an_event_loop_that_is_closed_while_a_message_is_written(tmp_path):
    """The message is stored, nobody is there to be told, and the store goes on in another loop."""
    behind = Behind(tmp_path / "c")
    store = AsyncConversationStore(tmp_path / "c", file_system=behind.gate)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(store.initialize())
    behind.gate.armed = True
    task = loop.create_task(store.append_message({"n": "under way"}))
    loop.run_until_complete(asyncio.to_thread(behind.gate.arrived.wait, 30))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    behind.gate.open.set()
    assert [message["n"] for message in asyncio.run(store.get_messages())] == ["under way"]
    asyncio.run(store.close())
    del task
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


def test_a_fork_while_a_message_is_written(tmp_path):
    """P11: the child has to open the conversation anew, and is told so, whatever its parent was doing; the parent goes on."""

    async def main() -> None:
        behind = Behind(tmp_path / "c")
        async with behind.begin():
            behind.append("in line")
            await anyio.wait_all_tasks_blocked()

            async def in_the_child() -> str:
                try:
                    await behind.store.append_message({"n": "child"})
                except ConversationNotLoadedError as error:
                    return "another process" if "not by its fork" in str(error) else str(error)
                return "stored"

            child = Child(lambda say: say(asyncio.run(in_the_child())))
            assert child.wait_for(1) == ["another process"]
            child.end()
        assert behind.stored() == ["first", "in line"]

    anyio.run(main)


ABANDONED = """
import asyncio, sys
from transcript_store.aio import AsyncConversationStore

conversation = AsyncConversationStore(sys.argv[1])
loop = asyncio.new_event_loop()
loop.run_until_complete(conversation.initialize())

async def begin():
    tasks.extend(loop.create_task(conversation.append_message({"n": n})) for n in range(20))
    await asyncio.sleep(0)

tasks = []
loop.run_until_complete(begin())
print("in line", flush=True)
"""


def test_an_interpreter_that_ends(tmp_path):
    """W2: what is in line when the interpreter ends is stored first, though nobody waits any more."""
    done = subprocess.run(
        [sys.executable, "-c", ABANDONED, str(tmp_path / "c")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "in line\n", done.stderr
    with ConversationStore(tmp_path / "c") as store:
        store.load()
        assert [message["n"] for message in store.get_messages()] == list(range(20))
