"""A task that is cancelled never leaves a message half known: the call is made to its end, and then the cancellation is raised.

The incident: ``asyncio.to_thread`` returns at once when its caller is cancelled, and the message is stored behind its back, or not.
``anyio.to_thread`` waits, but not if ``asyncio.wait_for``, ``asyncio.timeout`` or Ctrl-C cancel the task: those know no shield.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import warnings

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from tests.aio.helpers import BACKENDS, Behind
from transcript_store import ConversationLockedError, ConversationStore, StorageError
from transcript_store.aio import AsyncConversationLibrary, AsyncConversationStore
from transcript_store.testing import SimulatedFileSystem

pytestmark = pytest.mark.anyio
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])


async def test_cancelled_at_the_disk_and_in_line(tmp_path):
    """P1, P22: whoever is cancelled, while his message is written or before, finds it stored; and not before is he told."""
    behind = Behind(tmp_path / "c")
    told: list[tuple[int, bool]] = []

    async def cancelled(name: int, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                await behind.store.append_message({"n": name})
            finally:
                told.append((name, behind.gate.open.is_set()))

    scopes = [anyio.CancelScope() for _ in range(3)]
    async with behind.begin():
        for n, scope in enumerate(scopes):
            behind.tasks.start_soon(cancelled, n, scope)
        await anyio.wait_all_tasks_blocked()
        for scope in scopes:
            scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert told == []
        behind.append("not cancelled")
    assert sorted(told) == [(n, True) for n in range(3)]
    assert all(scope.cancelled_caught for scope in scopes)
    assert sorted(map(str, behind.stored())) == ["0", "1", "2", "first", "not cancelled"]


async def test_cancelled_before_it_called(tmp_path):
    """What is appended on the way out of a cancelled scope is stored: a cancelled append is an append."""
    async with AsyncConversationStore(tmp_path / "c") as conversation:
        await conversation.initialize()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await conversation.append_event({"event": "cancelled"})
            pytest.fail("the cancellation is raised when the event is stored")
        assert scope.cancelled_caught
        assert (await conversation.get_records())[0].extra == {"event": "cancelled"}


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("ticks", range(12))
async def test_cancelled_at_any_await(ticks):
    """P22: two tasks append turn by turn, and are cancelled after any number of steps of the event loop. What a task called is
    stored, once and in its order; what it did not call is not.
    """
    disk = SimulatedFileSystem()
    called: list[str] = []
    conversation = AsyncConversationStore("/c", file_system=disk)
    await conversation.initialize()

    async def talk(name: str) -> None:
        for n in range(1000):
            called.append(f"{name}{n}")
            await conversation.append_message({"n": called[-1]})

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk, "a")
        tasks.start_soon(talk, "b")
        for _ in range(ticks):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert [message["n"] for message in await conversation.get_messages()] == called
    await conversation.close()


@on_asyncio
async def test_task_cancel_is_waited_for_too(tmp_path):
    """``Task.cancel()`` goes through every shield; it may come again; the first one is raised when the message is stored."""
    behind = Behind(tmp_path / "c")
    async with behind.begin():
        task = asyncio.create_task(behind.store.append_message({"n": "cancelled"}))
        await anyio.wait_all_tasks_blocked()
        for message in ("first", "again", "and again"):
            task.cancel(message)
            await anyio.wait_all_tasks_blocked()
            assert not task.done()
        behind.gate.open.set()
        with pytest.raises(asyncio.CancelledError, match="first"):
            await task
        assert task.cancelled()
    assert behind.stored() == ["first", "cancelled"]


@on_asyncio
async def test_asyncio_timeout_is_a_timeout(tmp_path):
    """The deadline passes while the disk waits; ``TimeoutError`` comes when the message is stored."""
    behind = Behind(tmp_path / "c")
    async with behind.begin():
        open_later = asyncio.get_running_loop().call_soon
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as deadline:
                open_later(deadline.reschedule, 0)
                open_later(open_later, open_later, behind.gate.open.set)
                await behind.store.append_message({"n": "late"})
        assert "late" in [message["n"] for message in await behind.store.get_messages()]


async def test_an_error_of_a_cancelled_call_is_raised(tmp_path):
    """P7: a refusal is not lost because nobody waits for the message any more. A scope's cancellation comes at the next await."""
    behind = Behind(tmp_path / "c")
    went_on = False
    async with behind.begin():
        with anyio.CancelScope() as scope:

            async def let_through() -> None:
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
                behind.gate.refuse_longer_than = 10
                behind.gate.open.set()

            behind.tasks.start_soon(let_through)
            with pytest.raises(StorageError):
                await behind.store.append_message({"n": "no room"})
            await anyio.lowlevel.checkpoint()
            went_on = True
        behind.gate.refuse_longer_than = None
    assert scope.cancelled_caught
    assert not went_on
    assert behind.stored() == ["first"]


async def test_a_library_closes_what_nobody_gets(tmp_path):
    """P11: a create or an open whose caller is cancelled leaves no lock behind, and nothing for the garbage collector."""
    library = AsyncConversationLibrary(tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await library.create()
            pytest.fail("cancelled")
        (summary,) = await library.list()
        assert summary.id is not None
        with anyio.CancelScope() as scope:
            scope.cancel()
            await library.open(summary.id)
            pytest.fail("cancelled")
        gc.collect()
    assert [str(one.message) for one in caught if str(tmp_path) in str(one.message)] == []
    async with await library.open(summary.id) as conversation:
        with pytest.raises(ConversationLockedError):
            await library.open(summary.id)
        assert conversation.id == summary.id


async def test_a_close_that_is_cancelled_closes(tmp_path):
    """P11: the lock is free when the block is left, however it is left."""
    with anyio.CancelScope() as scope:
        async with AsyncConversationStore(tmp_path / "c") as conversation:
            await conversation.initialize()
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    with ConversationStore(tmp_path / "c") as store:
        store.load()


@pytest.mark.parametrize("backend", BACKENDS)
def test_ctrl_c(tmp_path, backend):
    """P21: Ctrl-C while the main task waits in line; when it is raised the message is stored."""
    behind, when_raised = Behind(tmp_path / "c"), []

    async def press() -> None:
        await anyio.wait_all_tasks_blocked()
        await anyio.to_thread.run_sync(os.kill, os.getpid(), signal.SIGINT)  # the main thread waits for its event loop
        await anyio.wait_all_tasks_blocked()
        behind.gate.open.set()

    async def main() -> None:
        async with behind.begin():
            behind.tasks.start_soon(press)
            try:
                await behind.store.append_message({"n": "interrupted"})
            finally:
                when_raised.append(behind.gate.syncs - behind.syncs_before)

    with pytest.raises(BaseException) as caught:  # trio puts it into a group
        anyio.run(main, backend=backend)
    assert "KeyboardInterrupt" in repr(caught.value)
    assert when_raised == [2]
    assert behind.stored() == ["first", "interrupted"]
