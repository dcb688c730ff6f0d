"""Two processes run agents on one key at once: no provider refuses what either sends, then or later, and nothing is lost.

Reports: google/adk-python #4751 (two runs on a session, the history is spoilt for good), langchain-ai/langgraph #4289 (calls without a
result in a stored history), pydantic/pydantic-ai #4728 (a history that is refused for ever).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel

from tests.kit.children import Child, Gate
from transcript_store.integrations.pydantic_ai import TranscriptHistory
from transcript_store.testing._exchanges import calls_in, problem_with, results_in

RUNS = 6


def agent_of(history: TranscriptHistory, name: str, pause: Any) -> Any:
    """It calls two tools side by side, then another one, and answers; it refuses what a provider would refuse."""

    async def model(messages: Any, info: Any) -> ModelResponse:
        sent = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
        if (problem := problem_with(sent)) is not None:
            raise AssertionError(problem)
        last = max(n for n, each in enumerate(messages) if any(isinstance(part, UserPromptPart) for part in each.parts))
        asked = [part.content for part in messages[last].parts if isinstance(part, UserPromptPart)][-1]
        step = (len(messages) - last) // 2
        calls = [ToolCallPart("pay", {}, tool_call_id=f"{asked} {step} {n}") for n in range((2, 1, 0)[step])]
        return ModelResponse(parts=calls or [TextPart(f"answer to {asked}")])

    agent: Any = Agent(FunctionModel(model), capabilities=[history], name=name)

    @agent.tool_plain
    async def pay() -> str:
        await pause()
        return "paid"

    return agent


def test_runs_of_two_processes_at_once(tmp_path):
    """Each run is sent calls with their results right behind them, and at the end each question, call, result and answer is there once."""
    gate = Gate()

    def life(name: str, say: Any) -> None:
        async def pause() -> None:
            await asyncio.sleep(0.002)

        async def live() -> None:
            agent = agent_of(TranscriptHistory("user-1", tmp_path, durability="process-crash"), name, pause)
            for n in range(RUNS):
                result = await agent.run(f"{name} {n}")
                assert result.output == f"answer to {name} {n}"

        gate.wait()
        asyncio.run(live())
        say("done")

    children = [Child(partial(life, name)) for name in ("a", "b")]
    gate.open()
    for child in children:
        assert child.end() == ["done"]
    history = TranscriptHistory("user-1", tmp_path)

    async def once_more() -> Any:
        async def pause() -> None: ...

        return await agent_of(history, "c", pause).run("c 0")

    messages = ModelMessagesTypeAdapter.dump_python(asyncio.run(once_more()).all_messages(), mode="json")
    assert problem_with(messages) is None
    said = Counter(
        part["content"]
        for message in messages
        for part in message["parts"]
        if part["part_kind"] in {"user-prompt", "text"}
    )
    questions = [*(f"{name} {n}" for name in "ab" for n in range(RUNS)), "c 0"]
    assert said == Counter([*questions, *(f"answer to {each}" for each in questions)])
    calls = [call.id for message in messages for call in calls_in(message)]
    assert sorted(calls) == sorted(one for message in messages for one in results_in(message))
    assert len({*calls}) == len(calls) == 3 * len(questions)
    history.close()
