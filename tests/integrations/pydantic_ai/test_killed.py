"""SIGKILL at random under pydantic-ai's own runs, with a model that is scripted and a tool."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from tests.integrations.killed import live_and_die, numbers_in
from transcript_store.integrations.pydantic_ai import TranscriptHistory


def test_what_a_run_returned_is_stored_is_there_once_and_in_order(tmp_path, record_property):
    """Each run that returned has its question and its answer on disk, once, behind those before it."""
    history = TranscriptHistory("user-1", tmp_path)

    async def turn(n: int) -> None:
        model = FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart(f"answer {n}")]))
        result = await Agent(model, capabilities=[history]).run(f"question {n}")
        assert result.output == f"answer {n}"

    def said() -> list[int]:
        with history.conversation() as conversation:
            parts = [part for message in conversation.get_messages() for part in message["parts"]]
        return numbers_in([part["content"] for part in parts])

    kills = 20
    assert live_and_die(turn, said, kills) >= kills
    record_property("agents of a framework killed", kills)
