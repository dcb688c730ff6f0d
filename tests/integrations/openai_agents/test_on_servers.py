"""Sessions on servers that processes share: the contract, and agents under the SDK's own runner that are killed at random.

Pods and replicas lose the disk with the process. Here the next process has nothing of the last one but the address of the server.
"""

from __future__ import annotations

import asyncio
import functools
import os

from agents import Agent, RunConfig, Runner
from agents.testing import ScriptedModel, assistant_message

from tests.backends.servers import seaweedfs
from tests.integrations.killed import live_and_die, numbers_in
from tests.integrations.openai_agents.bench import Bench
from transcript_store import ConversationLibrary
from transcript_store.backends import PostgresBackend
from transcript_store.integrations.openai_agents import TranscriptSession
from transcript_store.messages import parts_of
from transcript_store.testing import check_integration


def test_the_contract_of_integrations_on_postgresql(url):
    """I1 to I11: processes take turns at one key, also if one of them is killed."""
    check_integration(Bench, backend=lambda: PostgresBackend(url))


def test_the_contract_of_integrations_on_an_object_store(tmp_path):
    """I1 to I10 on SeaweedFS. (What I11 forks cannot use the client of an object store, and is refused.)"""
    server = seaweedfs(tmp_path)
    try:
        check_integration(Bench, backend=lambda: server.backend("agents"), is_shared=False)
    finally:
        server.kill()


def test_what_the_runner_was_told_is_stored_is_there_once_and_in_order(url, record_property):
    """Each run that returned has its question and its answer on the server, once, behind those before it; the next process takes over."""

    @functools.cache
    def session_of(process: int) -> TranscriptSession:
        return TranscriptSession("user-1", ConversationLibrary(PostgresBackend(url)))

    async def turn(n: int) -> None:
        agent = Agent(name="Assistant", model=ScriptedModel([[assistant_message(f"answer {n}")]]))
        config = RunConfig(tracing_disabled=True)
        result = await Runner.run(agent, f"question {n}", session=session_of(os.getpid()), run_config=config)
        assert result.final_output == f"answer {n}"

    def said() -> list[int]:
        with session_of(os.getpid()).conversation() as conversation:
            return numbers_in([parts_of(message)[0].text for message in conversation.get_messages()])

    kills = 30
    assert live_and_die(turn, said, kills) >= kills
    record_property("agents of a framework killed on PostgreSQL", kills)


def test_processes_that_take_turns_at_one_session(url):
    """Two hosts add and clear at the same time: each item that was acknowledged is there once, or once in what was cleared."""
    one, two = (TranscriptSession("user-1", ConversationLibrary(PostgresBackend(url))) for _ in range(2))

    async def scenario():
        for n in range(20):
            await asyncio.gather(
                one.add_items([{"role": "user", "content": f"one {n}"}]),
                two.add_items([{"role": "user", "content": f"two {n}"}]),
                *([one.clear_session()] if n % 5 == 4 else ()),
            )

    asyncio.run(scenario())
    with one.conversation() as conversation:
        said = [
            record.message["content"]
            for generation in conversation.generations()
            for record in conversation.get_records(generation=generation.number)
            if record.message
        ]
    assert sorted(said) == sorted(f"{name} {n}" for name in ("one", "two") for n in range(20))
    for session in (one, two):
        session.close()
