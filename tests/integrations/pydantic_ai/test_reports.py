"""Public reports about the histories of pydantic-ai agents, with the right value of each.

The rule behind them: what a run has when it ends, however it ends, is on record, and the next run is sent it as pydantic-ai sends a
``message_history``. Each test names its reports.
"""

from __future__ import annotations

import asyncio
import itertools
import warnings
from typing import Any

import pydantic_ai
import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    ToolReturn,
    UsageLimits,
    capture_run_messages,
)
from pydantic_ai.capabilities import AbstractCapability, ProcessHistory
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

from transcript_store import ConversationLockedError
from transcript_store.integrations.pydantic_ai import TranscriptHistory


class Out(BaseModel):
    a: int


class _Tells(AbstractCapability[Any]):  # type: ignore[misc]  # the framework's types are not followed
    """Sets an event when the tool ``pay`` is done and its result is with the run."""

    def __init__(self, world):
        self.world = world

    async def wrap_tool_execute(self, ctx, *, call, tool_def, args, handler):
        try:
            return await handler(args)
        finally:
            if call.tool_name == "pay":
                self.world.is_paid.set()


class World:
    """An agent with a few tools, a model that gives the replies of a script, and a history."""

    def __init__(self, folder, *script, capabilities=(), **options):
        self.history = TranscriptHistory("user-1", folder)
        self.script = iter(script)
        self.numbers = itertools.count()
        self.sent: list[Any] = []
        self.is_paid = asyncio.Event()
        self.is_slow = asyncio.Event()
        model = FunctionModel(self._reply, stream_function=self._stream)
        self.agent: Agent[None, Any] = Agent(model, capabilities=[*capabilities, _Tells(self), self.history], **options)
        self.agent.tool_plain(self.pay)
        self.agent.tool_plain(self.slow)
        self.agent.tool_plain(self.broken)

    async def pay(self) -> ToolReturn:
        return ToolReturn("PAID", metadata={"receipt": 4711})

    async def slow(self) -> str:
        await self.is_paid.wait()
        self.is_slow.set()
        await asyncio.Event().wait()
        return ""

    async def broken(self) -> str:
        await self.is_paid.wait()
        raise RuntimeError("boom")

    def _parts(self, messages, info):
        assert out_of_order(messages) == []
        self.sent.append([*messages])
        reply = next(self.script)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, str):
            return [TextPart(reply)]
        names = [info.output_tools[0].name if name == "out" else name for name in reply]
        return [
            ToolCallPart(name, {"a": 1} if called == "out" else {}, tool_call_id=f"{called}-{next(self.numbers)}")
            for name, called in zip(names, reply, strict=True)
        ]

    def _reply(self, messages, info):
        return ModelResponse(parts=self._parts(messages, info))

    async def _stream(self, messages, info):
        for number, part in enumerate(self._parts(messages, info)):
            if isinstance(part, TextPart):
                for word in part.content.split():
                    yield f"{word} "
            else:
                yield {number: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}

    async def stored(self):
        return await self.history.messages()


@pytest.fixture
def world(tmp_path):
    made: list[World] = []

    def make(*script, **options):
        made.append(World(tmp_path / str(len(made)), *script, **options))
        return made[-1]

    yield make
    for each in made:
        each.history.close()


def out_of_order(messages):
    """The calls that have no result right behind them, and the results that have no call right before them."""
    wrong: list[str] = []
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            wrong += waiting
            waiting = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
            continue
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                if part.tool_call_id in waiting:
                    waiting.remove(part.tool_call_id)
                else:
                    wrong.append(part.tool_call_id)
        wrong, waiting = [*wrong, *waiting], []
    return wrong


def told(messages):
    return [
        (part.tool_name, part.content) for each in messages for part in each.parts if isinstance(part, ToolReturnPart)
    ]


def texts(messages):
    return [part.content for each in messages for part in each.parts if hasattr(part, "content")]


# ---- however a run ends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [("pay", "out"), ("out", "pay"), ("pay", "out", "out", "pay")])
@pytest.mark.parametrize("strategy", ["early", "graceful", "exhaustive"])
def test_an_output_tool_that_is_streamed(world, calls, strategy):
    """The results of the tools beside a streamed output: pydantic/pydantic-ai#2640, #174."""
    there = world(calls, calls, output_type=Out, end_strategy=strategy)

    async def scenario():
        for question in ("one", "two"):
            async with there.agent.run_stream(question) as run:
                assert await run.get_output() == Out(a=1)
            assert told(await there.stored()) == told(run.all_messages())
        assert sorted(told(there.sent[-1])) == sorted(told(run.all_messages())[: len(calls)])

    asyncio.run(scenario())


async def _is_cancelled(there):
    task = asyncio.ensure_future(there.agent.run("q"))
    await there.is_slow.wait()
    task.cancel()
    await task


async def _by_a_token(there):
    token = pydantic_ai.CancellationToken()
    task = asyncio.ensure_future(there.agent.run("q", cancellation_token=token))
    await there.is_slow.wait()
    token.cancel()
    await task


async def _streamed(there):
    async with there.agent.run_stream("q") as run:
        await run.get_output()


async def _given_up_while_it_streams(there):
    async with there.agent.run_stream("q") as run:
        async for _ in run.stream_text():
            raise TimeoutError


ENDS = {
    "its task is cancelled": (("pay", "slow"), _is_cancelled),
    "its token is cancelled": (("pay", "slow"), _by_a_token),
    "a sibling raises": (("pay", "broken"), lambda there: there.agent.run("q")),
    "a sibling raises in a stream": (("pay", "broken"), _streamed),
    "no request is left": (("pay",), lambda there: there.agent.run("q", usage_limits=UsageLimits(request_limit=1))),
    "no token is left": (("pay",), lambda there: there.agent.run("q", usage_limits=UsageLimits(output_tokens_limit=1))),
    "no call is left": (
        ("pay", "pay"),
        lambda there: there.agent.run("q", usage_limits=UsageLimits(tool_calls_limit=1)),
    ),
    "nobody reads the stream on": ("some words more", _given_up_while_it_streams),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_run_that_does_not_finish(world, end):
    """What the run has is on record, to the letter, and is what the next one is sent: pydantic/pydantic-ai#7977, #5837, #1083."""
    reply, how = ENDS[end]
    if how is _by_a_token and not hasattr(pydantic_ai, "CancellationToken"):
        pytest.skip("this version has no CancellationToken")
    there = world(reply, "fine", "fine")

    async def scenario():
        with capture_run_messages() as had:
            with pytest.raises((asyncio.CancelledError, pydantic_ai.AgentRunError, RuntimeError, TimeoutError)):
                await how(there)
        stored = await there.stored()
        assert stored[: len(had)] == had
        # An older version may not tell its caller the result of a tool that ran beside the one that raised.
        assert all(told([more]) for more in stored[len(had) :])
        for question in ("go on", "and on"):
            result = await there.agent.run(question)
            assert await there.stored() == result.all_messages()
        assert told(stored) == [each for each in told(result.all_messages()) if each[1] == "PAID"]

    asyncio.run(scenario())


def test_a_run_that_its_caller_leaves(world):
    """``iter()`` that is left in the middle, and one that goes on: the same."""
    there = world(("pay",), "fine")

    async def scenario():
        async with there.agent.iter("q") as run:
            async for node in run:
                if Agent.is_call_tools_node(node):
                    break
        assert await there.stored() == run.all_messages()
        assert told((await there.agent.run("go on")).all_messages())[0][0] == "pay"

    asyncio.run(scenario())


# ---- system prompts ------------------------------------------------------------------------------------------------


def test_system_prompts_stand_in_front_and_once(world):
    """With today's value of a dynamic one, as with ``message_history=``: pydantic/pydantic-ai#531, #1646, NousResearch/hermes-agent#68257."""
    there = world("1", "2", "3", "4", system_prompt="BE BRIEF")
    hours = itertools.count(1)

    @there.agent.system_prompt(dynamic=True)
    def clock() -> str:
        return f"It is {next(hours)} o'clock"

    async def scenario():
        for question in ("one", "two", "three"):
            result = await there.agent.run(question)
            assert await there.stored() == result.all_messages()
        assert texts(there.sent[-1]) == ["BE BRIEF", "It is 3 o'clock", "one", "1", "two", "2", "three"]
        await there.agent.run("four", message_history=result.all_messages())
        assert texts(there.sent[-1])[:3] == ["BE BRIEF", "It is 4 o'clock", "one"]
        with there.history.conversation() as conversation:
            assert len(conversation.generations()) == 1  # and nothing was written again

    asyncio.run(scenario())


@pytest.mark.parametrize("keep", [lambda messages: messages[-3:], lambda messages: messages], ids=["last", "all"])
def test_a_processor_in_either_order(tmp_path, keep):
    """``ProcessHistory`` before it or behind it sees the whole history, and what it leaves is on record."""
    outcomes = []
    for n, is_first in enumerate((True, False)):
        sent: list[Any] = []

        def model(messages, info, sent=sent):
            sent.append(texts(messages))
            return ModelResponse(parts=[TextPart("fine")])

        history = TranscriptHistory("user-1", tmp_path / str(n))
        both = [ProcessHistory(keep), history]
        agent = Agent(FunctionModel(model), capabilities=both if is_first else both[::-1])

        async def scenario(agent=agent, history=history):
            for question in ("one", "two", "three"):
                result = await agent.run(question)
                assert await history.messages() == result.all_messages()

        asyncio.run(scenario())
        outcomes.append(sent)
        history.close()
    assert outcomes[0] == outcomes[1]


def test_one_conversation_has_one_id(world, tmp_path):
    """``conversation_id``, by which traces are told apart: pydantic/pydantic-ai#5224."""
    if not hasattr(pydantic_ai.capabilities.AbstractCapability, "get_default_conversation_id"):
        pytest.skip("a capability of this version cannot say which conversation it is")
    there = world("1", "2")

    async def scenario():
        ids = {(await there.agent.run(question)).conversation_id for question in ("one", "two")}
        assert ids == {there.history.directory.rpartition("/")[2]}
        older = TranscriptHistory("user-2", tmp_path)
        await older.append(
            [ModelRequest(parts=[UserPromptPart("one")], conversation_id="theirs"), ModelResponse(parts=[])]
        )
        result = await Agent(FunctionModel(lambda *_: ModelResponse(parts=[TextPart("x")])), capabilities=[older]).run(
            "two"
        )
        assert result.conversation_id == "theirs"

    asyncio.run(scenario())


# ---- two runs ------------------------------------------------------------------------------------------------------


def test_two_runs_at_once_take_turns(world):
    """The second one waits: google/adk-python#4751, bug-ops/zeph#5513."""
    there = world(("pay",), "first", ("pay",), "second", "third")

    async def scenario():
        await asyncio.gather(there.agent.run("one"), there.agent.run("two"))
        stored = await there.stored()
        assert [each.kind for each in stored] == ["request", "response"] * 4
        assert (await there.agent.run("three")).output == "third"

    asyncio.run(scenario())


def test_a_run_within_a_run_is_refused(world):
    """An agent that asks another one of the same key would wait for itself: strands-agents/harness-sdk#3651."""
    there = world(("ask",), "fine")

    @there.agent.tool_plain
    async def ask() -> str:
        return str((await Agent(FunctionModel(there._reply), capabilities=[there.history]).run("inner")).output)

    async def scenario():
        with pytest.raises(ConversationLockedError, match="started another run on it"):
            await there.agent.run("outer")
        assert (await there.agent.run("go on")).output == "fine"

    asyncio.run(scenario())


def test_a_history_that_was_spoilt_is_put_in_order(world):
    """Two processes stored by turns, and a result came twice: every call has its result right behind it, and no result is lost."""
    there = world("fine", "fine")

    def call(name):
        return ModelResponse(parts=[ToolCallPart("pay", {}, tool_call_id=name)])

    def result(name):
        return ModelRequest(parts=[ToolReturnPart("pay", f"PAID {name}", tool_call_id=name)])

    def ask(text):
        return ModelRequest(parts=[UserPromptPart(text)])

    async def scenario():
        await there.history.append(
            [
                *(ask("one"), call("a"), ask("two"), call("b"), result("a"), result("b"), result("b")),
                *(call("c"), ask("three"), ModelResponse(parts=[TextPart("so")]), result("nobody's")),
            ]
        )
        for question in ("go on", "and on"):
            answer = await there.agent.run(question)
            assert await there.stored() == answer.all_messages()
        assert [content for _, content in told(answer.all_messages())][:2] == ["PAID a", "PAID b"]
        assert [text for text in texts(answer.all_messages()) if text in {"one", "two", "three", "so"}] == [
            "one",
            "two",
            "three",
            "so",
        ]
        with there.history.conversation() as conversation:
            assert len(conversation.get_records(generation=0)) == 11  # and what was there can be read

    asyncio.run(scenario())


def test_two_calls_of_one_id(world):
    """A reply in which two calls have one id ends the run; the next one is sent a history that providers accept."""
    there = world("fine", "fine")

    def call(name):
        return ToolCallPart("pay", {}, tool_call_id=name)

    async def scenario():
        await there.history.append(
            [
                ModelRequest(parts=[UserPromptPart("one")]),
                ModelResponse(parts=[call("a"), call("a"), call("a_2"), call("a")]),
                ModelRequest(parts=[ToolReturnPart("pay", number, tool_call_id="a") for number in ("1", "2")]),
            ]
        )
        for question in ("go on", "and on"):
            answer = await there.agent.run(question)
            assert await there.stored() == answer.all_messages()
        calls = [part.tool_call_id for part in answer.all_messages()[1].parts]
        results = [part.tool_call_id for part in answer.all_messages()[2].parts if isinstance(part, ToolReturnPart)]
        assert calls == results == ["a", "a_3", "a_2", "a_4"]
        assert [content for _, content in told(answer.all_messages())][:2] == ["1", "2"]

    asyncio.run(scenario())


def test_half_a_character_in_a_result(world):
    """No request can carry it (a file name that is not UTF-8 has one), and every later run failed: the next one is sent U+FFFD."""
    there = world(("ls",), "fine", "fine", "fine")

    @there.agent.tool_plain
    def ls() -> dict[str, Any]:
        return {"names": ["caf\udce9", 2**70, "\\ud83d"]}

    async def scenario():
        with pytest.raises(Exception, match="surrogates not allowed"):
            await there.agent.run("list")
        assert ("ls", {"names": ["caf\udce9", 2**70, "\\ud83d"]}) in told(await there.stored())
        for question in ("go on", "and on"):
            answer = await there.agent.run(question)
            assert await there.stored() == answer.all_messages()
        assert ("ls", {"names": ["caf\ufffd", 2**70, "\\ud83d"]}) in told(answer.all_messages())

    asyncio.run(scenario())


# ---- a question again, an approval, and what no model gets ----------------------------------------------------------


@pytest.mark.parametrize("answered", [0, 1])
@pytest.mark.parametrize("way", ["the same question", "message_history", "neither"])
def test_a_question_without_an_answer_is_asked_once(world, answered, way):
    """However it is asked again: pydantic/pydantic-ai#4669, oneprolabs/sourcelens#207."""
    there = world(*["fine"] * answered, ConnectionError("503"), ConnectionError("503"), "at last")

    async def again():
        if way == "message_history":
            return await there.agent.run(message_history=await there.stored())
        return await (there.agent.run("pay 5 to Bob") if way == "the same question" else there.agent.run())

    async def scenario():
        for n in range(answered):
            await there.agent.run(f"answered {n}")
        with pytest.raises(ConnectionError):
            await there.agent.run("pay 5 to Bob")
        with pytest.raises(ConnectionError):
            await again()
        result = await again()
        assert texts(there.sent[-1]).count("pay 5 to Bob") == 1
        assert await there.stored() == result.all_messages()

    asyncio.run(scenario())


@pytest.mark.parametrize("answer", ["approved", "denied", "abandoned"])
def test_an_approval(world, answer):
    """One that never came is told as that: pydantic/pydantic-ai#1995, #6319."""
    there = world(("buy", "pay"), "fine", "fine", output_type=[str, DeferredToolRequests])

    @there.agent.tool_plain(requires_approval=True)
    def buy() -> str:
        return "BOUGHT"

    async def scenario():
        asked = (await there.agent.run("q")).output.approvals[0]
        results = DeferredToolResults(approvals={asked.tool_call_id: answer == "approved"})
        with pytest.raises(UserError, match=r"message_history=await history\.messages"):
            await there.agent.run(deferred_tool_results=results)
        if answer != "abandoned":
            await there.agent.run(message_history=await there.stored(), deferred_tool_results=results)
        result = await there.agent.run("never mind")
        assert await there.stored() == result.all_messages()
        said = {
            "approved": "BOUGHT",
            "denied": "The tool call was denied.",
            "abandoned": "This call was not approved and did not run.",
        }
        assert sorted(told(result.all_messages())) == sorted([("buy", said[answer]), ("pay", "PAID")])

    asyncio.run(scenario())


class Frame:
    """What an application keeps beside a result: JSON cannot carry it."""


@pytest.mark.parametrize("metadata", [{"frame": Frame()}, Frame(), {"it": {1: [Frame()]}}])
def test_metadata_that_json_cannot_carry(world, metadata):
    """It is left out with a warning, and the run goes on: pydantic/pydantic-ai#7335, #1859."""
    there = world(("look",), "fine", "fine")

    @there.agent.tool_plain
    def look() -> ToolReturn:
        return ToolReturn("SEEN", metadata=metadata)

    async def scenario():
        with pytest.warns(UserWarning, match="metadata of tool 'look' is not stored"):
            assert (await there.agent.run("q")).output == "fine"
        stored = await there.stored()
        assert told(stored) == [("look", "SEEN")]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await there.agent.run("next", message_history=stored)

    asyncio.run(scenario())


def test_a_tool_that_asks_for_another_call(world):
    """What ``ModelRetry`` says to the model is on record, in a run and beside a streamed output."""
    there = world(("hm", "out"), ("out",), output_type=Out, end_strategy="exhaustive")

    @there.agent.tool_plain
    def hm() -> str:
        raise ModelRetry("another one")

    async def scenario():
        async with there.agent.run_stream("q") as run:
            await run.get_output()
        stored, had = (
            ModelMessagesTypeAdapter.dump_python([await there.stored(), run.all_messages()][0]),
            run.all_messages(),
        )
        assert len(stored) == len(had)
        assert texts(await there.stored()) == texts(had)

    asyncio.run(scenario())


# ---- a client that has the history too -----------------------------------------------------------------------------


def test_the_history_of_a_page_that_comes_each_time(world):
    """A page of AG-UI or Vercel sends all it shows, without times, usage and system prompts: what is new in it is taken."""
    there = world(("pay",), "1", "2", system_prompt="BE BRIEF")

    async def scenario():
        shown = ModelMessagesTypeAdapter.dump_python((await there.agent.run("one")).all_messages(), mode="json")
        for message in shown:
            message["parts"] = [
                {
                    name: part[name]
                    for name in part
                    if name in {"part_kind", "content", "tool_name", "args", "tool_call_id"}
                }
                for part in message["parts"]
                if part["part_kind"] != "system-prompt"
            ]
        page = ModelMessagesTypeAdapter.validate_python([{n: m[n] for n in ("kind", "parts")} for m in shown])
        before = await there.stored()
        result = await there.agent.run(message_history=[*page, ModelRequest(parts=[UserPromptPart("two")])])
        assert result.output == "2"
        assert result.all_messages()[: len(before)] == before
        assert await there.stored() == result.all_messages()
        assert texts(there.sent[-1]) == ["BE BRIEF", "one", "PAID", "1", "two"]
        with pytest.raises(ValueError, match="does not begin with"):
            await there.agent.run("three", message_history=page[1:])

    asyncio.run(scenario())
