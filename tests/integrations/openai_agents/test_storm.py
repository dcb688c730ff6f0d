"""Several processes at one session under the SDK's own runner, killed at random: web workers that answer the same user.

Every run reads the history, stores its question, and stores its answer; between any two of these another process has its turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from agents import Agent, RunConfig, Runner
from agents.testing import ScriptedModel, assistant_message

from tests.kit.children import check_storm, storm
from transcript_store import ConversationLibrary
from transcript_store.backends import PostgresBackend
from transcript_store.integrations.openai_agents import TranscriptSession
from transcript_store.messages import parts_of

Say = Callable[[object], None]


@pytest.mark.parametrize("where", ["a folder", "PostgreSQL"])
def test_a_storm_of_eight_runners_at_one_session(where, request, tmp_path, record_property):
    """P1, P3, P11: what a run that returned has stored is there once, each process's own in order, and whole to the SDK's own reader."""
    address = request.getfixturevalue("url") if where == "PostgreSQL" else None

    def session() -> TranscriptSession:
        home = tmp_path if address is None else ConversationLibrary(PostgresBackend(address))
        return TranscriptSession("user-1", home, lock_timeout_seconds=120)

    def writer(number: int) -> Callable[[Say], None]:
        async def life(say: Say) -> None:
            shared = session()
            for n in range(10_000):
                agent = Agent(name="Assistant", model=ScriptedModel([[assistant_message(f"{number} {2 * n + 1}")]]))
                config = RunConfig(tracing_disabled=True)
                result = await Runner.run(agent, f"{number} {2 * n}", session=shared, run_config=config)
                assert result.final_output == f"{number} {2 * n + 1}"
                say(2 * n + 2)

        return lambda say: asyncio.run(life(say))

    kills = 20
    acknowledged = storm(writer, kills, Random(21))
    with session().conversation() as conversation:
        messages = conversation.get_messages()
    found: dict[int, list[int]] = {}
    for message in messages:
        who, n = parts_of(message)[0].text.split()
        found.setdefault(int(who), []).append(int(n))
    assert len(asyncio.run(session().get_items())) == len(messages)
    check_storm(acknowledged, found, kills)
    record_property(f"runners in a storm killed, {where}", kills + 8)
    record_property(f"items acknowledged in it, {where}", sum(acknowledged.values()))
