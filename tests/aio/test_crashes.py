"""Power cuts and SIGKILL while many tasks append: an acknowledged call is stored, and each call completely or not at all."""

from __future__ import annotations

import signal
from collections import defaultdict
from contextlib import suppress
from typing import Any

import anyio
import pytest

from tests.aio.helpers import BACKENDS
from tests.kit.children import Child
from transcript_store import ConversationStore
from transcript_store.aio import AsyncConversationStore
from transcript_store.testing import CrashTestError, FileSystemCall, SimulatedFileSystem, SimulatedStop, crash_test

TASKS, CALLS = 4, 3


class Life:
    """Tasks that append pairs, then a replace: on a disk that stops at its nth call."""

    def __init__(self, disk: SimulatedFileSystem, stops_at: int) -> None:
        self.disk = disk
        self.told: set[Any] = set()
        self.is_replaced = False
        self.calls_left = stops_at
        disk.on_call = self._on_call

    def _on_call(self, _: FileSystemCall) -> None:
        if self.calls_left == 0:
            raise SimulatedStop
        self.calls_left -= 1

    async def live(self) -> None:
        conversation = AsyncConversationStore("/c", file_system=self.disk)
        await conversation.load()

        async def talk(task: int) -> None:
            for n in range(CALLS):
                await conversation.append_messages([{"n": [task, n, "call"]}, {"n": [task, n, "result"]}])
                self.told.add((task, n))

        async with anyio.create_task_group() as tasks:
            for task in range(TASKS):
                tasks.start_soon(talk, task)
        await conversation.replace_transcript([{"n": "compacted"}], model="another")
        self.is_replaced = True
        await conversation.close()

    def judge(self, machine: SimulatedFileSystem) -> None:
        """What the next process finds after the power cut."""
        with ConversationStore("/c", file_system=machine) as store:
            store.load()
            found = [message["n"] for message in store.get_messages()]
            was_replaced = found == ["compacted"]
            assert was_replaced or not self.is_replaced
            assert (store.get_metadata().model == "another") == was_replaced
            if was_replaced:
                found = [record.message["n"] for record in store.get_records(generation=0) if record.message]
        pairs = [tuple(one[:2]) for one in found[::2]]
        assert [[*pair, what] for pair in pairs for what in ("call", "result")] == found
        assert self.told <= set(pairs)
        of_task = defaultdict(list)
        for task, n in pairs:
            of_task[task].append(n)
        for ns in of_task.values():
            assert ns == list(range(len(ns)))


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_power_fails_at_any_call(backend, quiet, record_property):
    """P1: what a task was told is there. P3: a call's messages are there together or not at all, though batches of many calls are
    written. P4: the replace is there with its metadata, or what was there before; the earlier generation stays readable.
    """
    disk = SimulatedFileSystem()
    with ConversationStore("/c", file_system=disk) as store:
        store.initialize()
    machines = 0
    for nth in range(10_000):
        life = Life(disk.copy(), nth)
        with suppress(SimulatedStop, BaseExceptionGroup):
            anyio.run(life.live, backend=backend)
        for machine in life.disk.power_failures(limit=5, seed=nth):
            life.judge(machine)
            machines += 1
        if life.calls_left:
            break
    assert life.is_replaced
    assert len(life.told) == TASKS * CALLS
    assert machines > 100
    record_property("power cuts under tasks", machines)


def model(messages: Any) -> Any:
    return {"role": "assistant", "content": "Bread and milk."}


@pytest.mark.parametrize("asks_again", [False, True])
def test_an_agent_of_tasks_under_crash_test(asks_again):
    """``crash_test`` sees what tasks store through ``AsyncConversationStore.of``: it passes the agent that is right, and finds the
    one that asks again in each process.
    """

    def agent(conversation: Any, tools: Any, model: Any) -> None:
        async def main() -> None:
            async with AsyncConversationStore.of(conversation) as awaited:
                await awaited.load_or_initialize(provider="openai")
                if asks_again or not await awaited.get_messages():
                    await awaited.append_messages(
                        [{"role": "user", "content": "What is on the list?"}], extras=[{"n": 1}]
                    )
                if (await awaited.get_messages(last=1))[0]["role"] == "user":
                    await awaited.append_message(await awaited.call(lambda store: model(store.get_messages())))

        anyio.run(main)

    if asks_again:
        with pytest.raises(CrashTestError, match="does not end as it does without a crash"):
            crash_test(agent, model=model, examples=60)
    else:
        assert crash_test(agent, model=model, examples=60).examples == 60


@pytest.mark.parametrize("backend", BACKENDS)
def test_kill_9_while_tasks_append(backend, scratch):
    """P1, P22: killed at any moment, again and again: every message that a task was told of is there, once, and in the task's order."""
    told: set[str] = set()
    for life in range(4):

        def work(say: Any, life: int = life) -> None:
            async def main() -> None:
                conversation = AsyncConversationStore(scratch / "c")
                await conversation.load_or_initialize()

                async def talk(task: int) -> None:
                    for n in range(1_000_000):
                        await conversation.append_message({"n": f"{life} {task} {n}"})
                        say(f"{life} {task} {n}")

                async with anyio.create_task_group() as tasks:
                    for task in range(TASKS):
                        tasks.start_soon(talk, task)

            anyio.run(main, backend=backend)

        child = Child(work)
        child.wait_for(1 + 23 * life)
        told.update(child.end(signal.SIGKILL))
    with ConversationStore(scratch / "c") as store:
        store.load()
        found = [message["n"] for message in store.get_messages()]
    assert len(set(found)) == len(found)
    assert told <= set(found)
    numbers = defaultdict(list)
    for name in found:
        life, task, n = map(int, name.split())
        numbers[life, task].append(n)
    for ns in numbers.values():
        assert ns == list(range(len(ns)))
