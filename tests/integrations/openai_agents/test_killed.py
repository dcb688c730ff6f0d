"""SIGKILL at random under the SDK's own runner, with a model that is scripted."""

from __future__ import annotations

from agents import Agent, RunConfig, Runner
from agents.testing import ScriptedModel, assistant_message

from tests.integrations.killed import live_and_die, numbers_in
from transcript_store.integrations.openai_agents import TranscriptSession
from transcript_store.messages import parts_of


def test_what_the_runner_was_told_is_stored_is_there_once_and_in_order(tmp_path, record_property):
    """Each run that returned has its question and its answer on disk, once, behind those before it."""
    session = TranscriptSession("user-1", tmp_path)

    async def turn(n: int) -> None:
        agent = Agent(name="Assistant", model=ScriptedModel([[assistant_message(f"answer {n}")]]))
        config = RunConfig(tracing_disabled=True)
        result = await Runner.run(agent, f"question {n}", session=session, run_config=config)
        assert result.final_output == f"answer {n}"

    def said() -> list[int]:
        with session.conversation() as conversation:
            return numbers_in([parts_of(message)[0].text for message in conversation.get_messages()])

    kills = 30
    assert live_and_die(turn, said, kills) >= kills
    record_property("agents of a framework killed", kills)
