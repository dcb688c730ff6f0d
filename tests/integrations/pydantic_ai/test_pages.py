"""The histories that AG-UI's and Vercel's pages send, made by the framework's own adapters.

A page sends all that it shows, each time. What it shows is what reached it: after a stop button, a lost connection or a process that was
killed, that is less than what is stored, for as long as the page lives. Reports: vercel/ai #10638 and #7900 (partial messages after a stop),
CopilotKit #2974 (stopped within a tool, and the next message is refused), langgenius/dify #36779, eneo-ai/eneo #349 (a stop loses the turn).
"""

from __future__ import annotations

import asyncio
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter, UserPromptPart
from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall, FunctionModel

from tests.integrations.pydantic_ai.pages import AgUi, Vercel
from transcript_store.integrations.pydantic_ai import TranscriptHistory
from transcript_store.testing._exchanges import problem_with

QUESTIONS = ("hello", "look twice", "say and look", "think")


@pytest.fixture
def world(tmp_path):
    """A history, an agent with it, and what its model was sent."""
    sent: list[Any] = []
    history = TranscriptHistory("user-1", tmp_path, durability="process-crash")

    async def model(messages: Any, info: Any) -> Any:
        sent.append([*messages])
        asked = questions([messages[-1]])
        n = len(sent)
        if asked[-1:] == ["look twice"]:
            yield {place: DeltaToolCall("look", '{"at": 1}', tool_call_id=f"{n}-{place}") for place in (0, 1)}
        elif asked[-1:] == ["say and look"]:
            yield "I will look."
            yield {1: DeltaToolCall("look", '{"at": 1}', tool_call_id=f"{n}")}
        elif asked[-1:] == ["think"]:
            yield {0: DeltaThinkingPart(content="hm", signature="signature")}
            yield "I "
            yield "thought"
        else:
            yield "answer "
            yield f"{n}"

    agent: Any = Agent(FunctionModel(stream_function=model), system_prompt="BE BRIEF", capabilities=[history])

    @agent.tool_plain
    def look(at: int) -> str:
        return f"seen {at}"

    yield agent, history, sent
    history.close()


def questions(messages: Any) -> list[Any]:
    return [part.content for each in messages for part in each.parts if isinstance(part, UserPromptPart)]


def said(messages: Any) -> list[Any]:
    return [[getattr(part, "content", None) or part.tool_call_id for part in each.parts] for each in messages]


def plain(messages: Any) -> Any:
    return ModelMessagesTypeAdapter.dump_python(messages, mode="json")


@pytest.mark.parametrize("make_page", [AgUi, Vercel])
def test_what_a_page_sends_each_time_is_stored_once(world, make_page):
    """Texts, calls side by side, thoughts: each question is sent once, behind all that was said, and the page is never refused."""
    agent, history, sent = world

    async def scenario() -> None:
        page = make_page(agent)
        for number, question in enumerate(QUESTIONS):
            await page.ask(question)
            stored = await history.messages()
            assert questions(stored) == [*QUESTIONS[: number + 1]]
            assert said(stored)[: len(sent[-1])] == said(sent[-1])
            assert problem_with(plain(sent[-1])) is None
        assert [part.part_kind for part in stored[-1].parts] == ["thinking", "text"]

    asyncio.run(scenario())


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("make_page", [AgUi, Vercel])
def test_a_stop_button_blocks_nothing(world, make_page, question):
    """Stopped behind each of its events: the next question is answered, with all that was stored before in what is sent."""
    agent, history, sent = world

    async def scenario() -> None:
        page = make_page(agent)
        asked = ["hello"]
        await page.ask("hello")
        for stop_after in range(1, 40):
            asked.append(question)
            got = await page.ask(question, stop_after)
            before = await history.messages()
            asked.append("and now?")
            await page.ask("and now?")
            assert problem_with(plain(sent[-1])) is None
            assert questions(sent[-1]) == asked
            stored = await history.messages()
            assert said(stored)[: len(before) - 1] == said(before)[:-1]
            assert stored[-1].parts[-1].content.startswith("answer")
            if got < stop_after:
                return
        raise AssertionError("the run never ended")

    asyncio.run(scenario())


@pytest.mark.parametrize("make_page", [AgUi, Vercel])
def test_a_process_that_was_killed_blocks_nothing(world, make_page, tmp_path):
    """The page shows the beginning of a reply that was never stored, since the process died while it came."""
    agent, history, sent = world

    async def scenario() -> None:
        page = make_page(agent)
        await page.ask("hello")
        before = await history.messages()
        await page.ask("think", 6)
        killed = TranscriptHistory("killed", tmp_path)
        await killed.append([*before, (await history.messages())[len(before)]])  # the question alone
        page.agent = Agent(agent.model, system_prompt="BE BRIEF", capabilities=[killed])
        await page.ask("and now?")
        assert questions(sent[-1]) == ["hello", "think", "and now?"]
        assert problem_with(plain(sent[-1])) is None
        killed.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("make_page", [AgUi, Vercel])
def test_a_failed_question_that_the_page_takes_away(world, make_page):
    """The provider failed, and the page shows the question no more: the next one is answered, and the model gets both."""
    agent, history, sent = world

    async def scenario() -> None:
        page = make_page(agent)
        await page.ask("hello")
        shown = deepcopy(page.messages)
        await page.ask("think", 3)
        page.messages = shown
        await page.ask("and now?")
        assert questions(sent[-1]) == questions(await history.messages()) == ["hello", "think", "and now?"]

    asyncio.run(scenario())


@pytest.mark.parametrize("make_page", [AgUi, Vercel])
def test_a_page_that_edits_is_refused(world, make_page):
    """An answered question that is missing, or an answer that says something else, is no history of ours: nothing is sent or stored."""
    agent, history, sent = world

    async def scenario() -> None:
        page = make_page(agent)
        await page.ask("hello")
        await page.ask("think")
        before, shown, count = plain(await history.messages()), deepcopy(page.messages), len(sent)
        edited = deepcopy(shown)
        if make_page is AgUi:
            edited[1].content = "another answer"
        else:
            next(part for part in edited[1]["parts"] if part["type"] == "text")["text"] = "another answer"
        for history_of_page in (shown[2:], edited):
            page.messages = deepcopy(history_of_page)
            with pytest.raises((AssertionError, ValueError), match="does not begin with"):
                await page.ask("and now?")
        assert (plain(await history.messages()), len(sent)) == (before, count)

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("make_page", [AgUi, Vercel])
def test_whatever_happens_to_a_page(world, make_page, seed):
    """Asked, stopped anywhere, asked again, taken away before an answer, in any order: each question reaches the model, as the last one,
    in a request that no provider refuses, and nothing of what was answered is lost.
    """
    agent, history, sent = world
    drawn = Random(seed)

    async def scenario() -> None:
        page = make_page(agent)
        answered: list[Any] = []
        for number in range(drawn.randint(3, 8)):
            question = drawn.choice([*QUESTIONS, "and now?", f"question {number}"])
            shown = deepcopy(page.messages)
            what = drawn.choice(["ask", "ask", "stop", "again", "take away"])
            if what != "ask":
                await page.ask(question, drawn.randint(1, 3 if what == "take away" else 12))
            if what == "take away":
                page.messages = shown
            elif what != "stop":
                await page.ask(question)
                assert questions(sent[-1])[-1] == question
                answered.append((await history.messages())[-1])
            if sent:
                assert problem_with(plain(sent[-1])) is None
        stored = said(await history.messages())
        assert [each for each in said(answered) if each not in stored] == []

    asyncio.run(scenario())


IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


@pytest.mark.parametrize("make_page", [AgUi, Vercel])
def test_a_page_with_an_image(world, make_page):
    """The bytes of an image, and its address, are compared; what the page says of its name and type differs from time to time."""
    agent, history, sent = world

    async def scenario() -> None:
        page = make_page(agent)
        page.messages.append(page.question_with_image("see", IMAGE))
        for number, question in enumerate((None, "and now?", "look twice", "hello")):
            await page.ask(question)
            assert len(questions(await history.messages())) == number + 1
        (text, image, *_) = questions(sent[-1])[0]
        assert (text, len(image.data)) == ("see", 70)

    asyncio.run(scenario())
