"""Our own contract, and what is ours of this one: what a run has and what is stored are equal, at each step."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

from tests.compat.api import surface
from tests.integrations.pydantic_ai.bench import Bench
from transcript_store import ConversationChangedError, ConversationStore
from transcript_store.integrations.pydantic_ai import TranscriptHistory
from transcript_store.redaction import SecretRedactor
from transcript_store.testing import SimulatedBackend, SimulatedObjectStore, check_integration


@pytest.fixture
def history(tmp_path):
    history = TranscriptHistory("user-1", tmp_path)
    yield history
    history.close()


def run(agent, question, **more):
    return asyncio.run(agent.run(question, **more))  # run_sync() leaves an event loop to the garbage collector


def asked(messages):
    return [part.content for part in messages[-1].parts if isinstance(part, UserPromptPart)]


def answering(seen=None):
    """A model that calls a tool if it is asked to, and notes what it was sent."""

    async def model(messages, info):
        if seen is not None:
            seen.append([*messages])
        if asked(messages) == ["look"]:
            return ModelResponse(parts=[ToolCallPart("look", {"at": 1})])
        return ModelResponse(parts=[TextPart(f"answer {len(messages)}")])

    async def streamed(messages, info):
        if asked(messages) == ["look"]:
            yield {0: DeltaToolCall(name="look", json_args='{"at": 1}', tool_call_id="1")}
        else:
            yield "answer "
            yield f"{len(messages)}"

    return FunctionModel(model, stream_function=streamed)


def test_the_contract_of_integrations():
    """I1 to I11."""
    check_integration(Bench)


@pytest.mark.parametrize("make_backend", [SimulatedBackend, SimulatedObjectStore])
def test_the_contract_of_integrations_on_a_backend(make_backend):
    """I1 to I10: no call of a framework sees that the conversation is on a backend, which one process has in memory."""
    backend = make_backend()
    check_integration(Bench, backend=lambda: backend, is_shared=False)


def test_a_history_comes_back_by_itself(history):
    """The next run sends what was said before; all_messages() of a run, and what is stored, are the same."""
    seen: list[Any] = []
    agent = Agent(answering(seen), capabilities=[history])
    for n in range(3):
        result = run(agent, f"question {n}")
        assert asyncio.run(history.messages()) == result.all_messages()
        assert len(result.new_messages()) == 2
        assert len(seen[-1]) == 2 * n + 1
    with history.conversation() as conversation:
        assert conversation.record_count == 6
        assert conversation.get_metadata().labels["title"] == "user-1"


def test_each_message_is_on_disk_before_what_follows_it(history):
    """The question when the model is asked, the reply when a tool runs, the result when the model is asked again."""
    on_disk = []

    async def kinds():
        return [message.kind for message in await history.messages()]

    async def model(messages, info):
        on_disk.append(await kinds())
        called = any(isinstance(part, ToolCallPart) for message in messages for part in message.parts)
        return ModelResponse(parts=[TextPart("done") if called else ToolCallPart("look", {})])

    agent = Agent(FunctionModel(model), capabilities=[history])

    @agent.tool_plain
    async def look() -> str:
        on_disk.append(await kinds())
        return "seen"

    run(agent, "look")
    assert on_disk == [["request"], ["request", "response"], ["request", "response", "request"]]
    assert asyncio.run(kinds()) == ["request", "response"] * 2


def test_streamed(history):
    """A run that is streamed stores the same."""
    agent = Agent(answering(), capabilities=[history])

    @agent.tool_plain
    def look(at: int) -> str:
        return "seen"

    async def scenario():
        for question in ("look", "again"):
            async with agent.run_stream(question) as stream:
                assert (await stream.get_output()).startswith("answer")
            assert [m.kind for m in await history.messages()] == [m.kind for m in stream.all_messages()]

    asyncio.run(scenario())


def test_a_reply_that_was_sent_back(history):
    """What the model is told to do again is stored too, as it is in the run's own history."""
    tries = []
    agent = Agent(answering(), capabilities=[history])

    @agent.output_validator
    def check(output: str) -> str:
        tries.append(output)
        if len(tries) == 1:
            raise ModelRetry("again")
        return output

    result = run(agent, "question")
    assert len(result.all_messages()) == 4
    assert asyncio.run(history.messages()) == result.all_messages()


@pytest.mark.parametrize("is_same_object", [True, False])
def test_the_same_history_twice(history, tmp_path, is_same_object):
    """An agent may have a history of its own, and be given the same for a run: each message is sent once and stored once."""
    other = history if is_same_object else TranscriptHistory("user-1", tmp_path)
    seen: list[Any] = []
    agent = Agent(answering(seen), capabilities=[history, other])

    @agent.tool_plain
    def look(at: int) -> str:
        return "seen"

    for question in ("one", "look", "two"):
        result = run(agent, question)
        assert asyncio.run(history.messages()) == asyncio.run(other.messages()) == result.all_messages()
    assert [len(sent) for sent in seen] == [1, 3, 5, 7]
    with history.conversation() as conversation:
        assert conversation.record_count == 8


def test_a_retract_that_another_run_got_in_front_of(history, tmp_path):
    """A run that has to take back what it stored takes back nothing if another one stored something behind it: an error, and both are kept."""
    told: list[str] = []
    agent = Agent(answering(), capabilities=[history, _Drops()])

    @agent.output_validator
    def check(output: str) -> str:
        if not told:
            told.append(output)
            with ConversationStore(history.directory, hold_lock=False) as other:
                other.load()
                other.append_message({"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "other"}]})
            raise ModelRetry("again")
        return output

    with pytest.raises(ConversationChangedError):
        run(agent, "one")
    with history.conversation() as conversation:
        records = conversation.get_records()
    assert not any(record.is_retracted for record in records)
    assert [record.message["kind"] for record in records] == ["request", "response", "request"]


def test_a_history_that_is_given(history):
    """It has to begin with what is stored; what it has more is stored. Anything else is refused before a request is made."""
    seen: list[Any] = []
    agent = Agent(answering(seen), capabilities=[history])
    first = run(agent, "one").all_messages()
    more = [*first, ModelRequest(parts=[UserPromptPart("by hand")]), ModelResponse(parts=[TextPart("so")])]
    result = run(agent, "two", message_history=more)
    assert asyncio.run(history.messages()) == result.all_messages()
    assert len(result.all_messages()) == 6
    before = len(seen)
    for other in (first, more[2:], [ModelRequest(parts=[UserPromptPart("else")])]):
        with pytest.raises(ValueError, match="does not begin with the 6 messages"):
            run(agent, "three", message_history=other)
    assert len(seen) == before
    assert asyncio.run(history.messages()) == result.all_messages()


@pytest.mark.parametrize("messages", ["Hello", [ModelRequest(parts=[]), {"role": "user", "content": "Hello"}]])
def test_what_is_no_message_is_refused(history, messages):
    """It would be stored, and then no run could read the history."""
    with pytest.raises(TypeError, match=r"messages\[[01]\] must be a ModelRequest or a ModelResponse, not (str|dict)"):
        asyncio.run(history.append(messages))
    assert asyncio.run(history.messages()) == []


def test_a_run_that_failed_continues(history):
    """If the model fails, the question is stored; the next run sends it before its own."""

    def fails(messages, info):
        raise RuntimeError("no connection")

    with pytest.raises(RuntimeError, match="no connection"):
        run(Agent(FunctionModel(fails), capabilities=[history]), "one")
    seen: list[Any] = []
    run(Agent(answering(seen), capabilities=[history]), "two")
    assert [part.content for message in seen[-1] for part in message.parts] == ["one", "two"]


def test_a_call_whose_tool_was_cut_off_gets_a_result(history):
    """A process that ended within a tool leaves a call without a result, which providers refuse; the next run says so to the model."""
    seen: list[Any] = []
    agent = Agent(answering(seen), capabilities=[history])

    @agent.tool_plain
    async def look(at: int) -> str:  # no function here has a thread: this error leaves those of anyio waiting for ever
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(agent, "look")
    _, reply, *behind = asyncio.run(history.messages())
    assert reply.parts[0].tool_name == "look"
    assert not [message for message in behind if message.parts]  # later versions mark that tools were cut off
    result = run(agent, "and now?")
    told, question = seen[-1][-1].parts
    assert (told.tool_name, told.outcome, question.content) == ("look", "interrupted", "and now?")
    assert asyncio.run(history.messages()) == result.all_messages()


class _Drops(AbstractCapability[Any]):  # type: ignore[misc]  # the framework's types are not followed
    """One that takes the reply that was sent back out of the history."""

    async def before_model_request(self, ctx, request_context):
        if len(ctx.messages) > 2:
            del ctx.messages[1:-1]
        return replace(request_context, messages=list(ctx.messages))


SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def test_a_secret_never_reaches_the_disk(tmp_path):
    """P22: the run that is under way has the text that it was given, the history has it no more, and no file does."""
    history = TranscriptHistory("user-1", tmp_path, redact=SecretRedactor())
    run(Agent(answering(), capabilities=[history]), f"use {SECRET}")
    seen: list[Any] = []
    run(Agent(answering(seen), capabilities=[history]), "and now")
    assert "[redacted:github-token]" in repr(seen[0])
    assert SECRET not in repr(seen[0])
    history.close()
    assert not any(SECRET.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_the_public_surface():
    """After a change that is meant, write what this finds into api.txt, and a line into CHANGELOG.md."""
    if not hasattr(AbstractCapability, "prepare_model_request"):
        pytest.skip("an older version has other hooks")
    agreed = Path(__file__).with_name("api.txt").read_text().splitlines()
    assert surface([".integrations.pydantic_ai"]) == agreed
