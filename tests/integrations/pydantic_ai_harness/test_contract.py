"""``TranscriptStepStore`` answers as the harness's own stores do, and keeps what ours promise besides."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    InMemoryStepStore,
    RunRecord,
    StepEvent,
    StepPersistence,
    StepStore,
    ToolEffectRecord,
    annotate_tool_effect,
    continue_run,
)

from tests.compat.api import surface
from tests.kit.children import Child
from transcript_store import ConversationLibrary, CorruptTranscriptError, list_conversations, verify
from transcript_store.integrations.pydantic_ai_harness import TranscriptStepStore
from transcript_store.redaction import SecretRedactor
from transcript_store.testing import SimulatedBackend, SimulatedObjectStore

RUNS = ("r1", "r2")
NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


def message(n: int) -> Any:
    if n % 2:
        return ModelResponse(parts=[TextPart(f"answer {n}")], timestamp=NOW)
    return ModelRequest(parts=[UserPromptPart(f"question {n}", timestamp=NOW)], timestamp=NOW)


keys = st.sampled_from([None, None, "a", "b"])
runs = st.sampled_from(("r1", *RUNS))
records = st.builds(
    RunRecord,
    run_id=runs,
    conversation_id=keys,
    parent_run_id=keys,
    started_at=st.datetimes(timezones=st.just(UTC)),
    metadata=st.sampled_from([{}, {"a": "\ud800"}]),
)
events = st.builds(
    StepEvent,
    run_id=runs,
    kind=st.sampled_from(["run_started", "tool_call_failed"]),
    step_index=st.integers(0, 3),
    timestamp=st.just(NOW),
    error=st.sampled_from([None, "x\ud800y"]),
    metadata=st.sampled_from([{}, {"a": "1"}]),
    idempotency_key=keys,
)
snapshots = st.builds(
    ContinuableSnapshot,
    run_id=runs,
    step_index=st.integers(0, 3),
    messages=st.lists(st.integers(0, 2).map(message), max_size=4),
    timestamp=st.just(NOW),
    state=st.sampled_from(["complete", "interrupted"]),
    idempotency_key=keys,
)
effects = st.builds(
    ToolEffectRecord,
    run_id=runs,
    tool_call_id=st.sampled_from(["c1", "c2"]),
    tool_name=st.just("pay"),
    status=st.sampled_from(["started", "completed", "failed"]),
    started_at=st.just(NOW),
    idempotency_key=keys,
)


def once(one: Any) -> Any:
    """A run is registered once."""
    return one.run_id if isinstance(one, RunRecord) else object()


async def store_one(store: Any, one: Any) -> None:
    if isinstance(one, RunRecord):
        await store.register_run(one)
    elif isinstance(one, StepEvent):
        await store.append_event(one)
    elif isinstance(one, ContinuableSnapshot):
        await store.save_snapshot(one)
    else:
        await store.record_tool_effect(one)


async def all_of(store: Any) -> list[Any]:
    """What each call that reads gives."""
    found: list[Any] = [await store.list_runs(), await store.list_runs(parent_run_id="a", conversation_id="b")]
    for run_id in (*RUNS, "missing"):
        found.append(await store.get_run(run_id=run_id))
        found.append(await store.list_events(run_id=run_id))
        found.append(await store.list_unresolved_tool_effects(run_id=run_id))
        found.append([await store.get_tool_effect(run_id=run_id, tool_call_id=one) for one in ("c1", "c2", "c3")])
        for interrupted in (False, True):
            found.append(await store.latest_snapshot(run_id=run_id, include_interrupted=interrupted))
            found.append(await store.list_snapshots(run_id=run_id, include_interrupted=interrupted))
    return found


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(ones=st.lists(records | events | snapshots | effects | effects, min_size=5, max_size=15, unique_by=once))
def test_it_answers_as_theirs_do(ones):
    """Whatever is stored in whatever order: each call that reads gives what their store gives, also once it is opened anew."""

    async def scenario(folder: str) -> None:
        theirs, ours = InMemoryStepStore(), TranscriptStepStore(folder, durability="process-crash")
        for one in ones:
            await store_one(theirs, one)
            await store_one(ours, one)
        assert await all_of(ours) == await all_of(theirs)
        ours.close()
        assert await all_of(TranscriptStepStore(folder)) == await all_of(theirs)
        ours.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(scenario(folder))


def test_a_run_is_registered_once(tmp_path):
    """Another record with its id is refused; the same one changes nothing, so a registration can be tried again."""
    store = TranscriptStepStore(tmp_path)
    run = RunRecord(run_id="r1", started_at=NOW)
    for _ in range(2):
        asyncio.run(store.register_run(run))
    with pytest.raises(ValueError, match="run_id 'r1' is already in the store"):
        asyncio.run(store.register_run(replace(run, agent_name="another")))
    assert asyncio.run(store.list_runs()) == [run]
    store.close()


@pytest.fixture(params=["directory", "sealed directory", "place", "object place"])
def store(request, tmp_path):
    """A store in a directory, in a sealed library, and on each kind of place."""
    libraries = {
        "sealed directory": lambda: ConversationLibrary(tmp_path / "runs", encryption_key=b"k" * 32),
        "place": lambda: ConversationLibrary(SimulatedBackend()),
        "object place": lambda: ConversationLibrary(SimulatedObjectStore()),
    }
    store = TranscriptStepStore(libraries[request.param]() if request.param in libraries else tmp_path / "runs")
    yield store
    store.close()


def paying(store: Any, **more: Any) -> Any:
    agent: Any = Agent(TestModel(), capabilities=[StepPersistence(store=store, run_id="r1", **more)])

    @agent.tool
    async def pay(ctx: RunContext, amount: int) -> int:
        await annotate_tool_effect(store, ctx, idempotency_key=f"bill-{amount}")
        return amount

    return agent


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_run_can_be_continued_from_its_last_message(store, is_streamed):
    """``continue_run()`` gives what ``all_messages()`` gave; events, tool effects and the run's record are there."""

    async def scenario() -> None:
        agent = paying(store, agent_name="clerk")
        if is_streamed:
            async with agent.run_stream("pay", conversation_id="talk") as result:
                await result.get_output()
        else:
            result = await agent.run("pay", conversation_id="talk")
        assert await continue_run(store, run_id="r1") == result.all_messages()
        assert [event.kind for event in await store.list_events(run_id="r1")][-1] == "run_completed"
        (run,) = await store.list_runs(conversation_id="talk")
        assert (run.run_id, run.agent_name) == ("r1", "clerk")
        effect = await store.get_tool_effect(run_id="r1", tool_call_id="pyd_ai_tool_call_id__pay")
        assert (effect.status, effect.idempotency_key) == ("completed", "bill-0")
        assert await store.list_unresolved_tool_effects(run_id="r1") == []

    assert isinstance(store, StepStore)
    asyncio.run(scenario())


def test_a_run_that_failed_leaves_what_it_had(store):
    """A tool that raised: the history up to it, marked as interrupted, and its effect, which failed."""

    async def scenario() -> None:
        agent = Agent(TestModel(), capabilities=[StepPersistence(store=store, run_id="r1")])

        @agent.tool_plain
        def pay() -> None:
            raise RuntimeError("no money")

        with pytest.raises(RuntimeError):
            await agent.run("pay")
        snapshot = await store.latest_snapshot(run_id="r1", include_interrupted=True)
        assert snapshot.state == "interrupted"
        assert isinstance(snapshot.messages[1].parts[0], ToolCallPart)
        assert await store.latest_snapshot(run_id="r1") is None
        effect = await store.get_tool_effect(run_id="r1", tool_call_id="pyd_ai_tool_call_id__pay")
        assert (effect.status, "no money" in effect.effect_summary) == ("failed", True)
        with pytest.raises(ValueError, match="already in the store"):
            await agent.run("pay again")

    asyncio.run(scenario())


def test_a_history_that_becomes_shorter(store):
    """A snapshot with fewer or other messages than the one before it: both are read, and the conversation shows the newer."""

    async def scenario() -> None:
        histories = [[0, 1], [0, 1, 2, 1], [2, 1], [], [2, 1, 0]]
        for step, history in enumerate(histories):
            await store.save_snapshot(
                ContinuableSnapshot(run_id="r1", step_index=step, messages=[*map(message, history)], timestamp=NOW)
            )
        found = await store.list_snapshots(run_id="r1")
        assert [each.messages for each in found] == [[*map(message, history)] for history in histories]

    asyncio.run(scenario())
    with store.conversation("r1") as conversation:
        assert [each["kind"] for each in conversation.get_messages()] == ["request", "response", "request"]
        assert conversation.get_metadata().provider == "pydantic-ai"


def test_writers_of_one_run_take_turns(tmp_path):
    """Two stores with other options are two writers: a key is stored once, and every event of both is there."""

    async def scenario() -> None:
        stores = [TranscriptStepStore(tmp_path, lock_timeout_seconds=seconds) for seconds in (30.0, 31.0)]
        shared = [StepEvent(run_id="r1", kind="run_started", step_index=n, idempotency_key=f"{n}") for n in range(20)]
        own = [StepEvent(run_id="r1", kind="run_failed", step_index=n) for n in range(20)]
        await asyncio.gather(*(each.append_event(one) for one in (*shared, *own) for each in stores))
        found = await stores[0].list_events(run_id="r1")
        assert sorted(each.step_index for each in found if each.idempotency_key) == [*range(20)]
        assert len(found) == 60
        for each in stores:
            each.close()

    asyncio.run(scenario())


def test_damage_is_an_error(tmp_path):
    """A damaged run is never read as one without events."""
    store = TranscriptStepStore(tmp_path)
    event = StepEvent(run_id="r1", kind="run_started", step_index=0)
    for _ in range(3):
        asyncio.run(store.append_event(event))
    store.close()
    transcript = Path(store.directory("r1")) / "transcript.jsonl"
    transcript.write_bytes(transcript.read_bytes().replace(b"run_started", b"run_stopped", 1))
    with pytest.raises(CorruptTranscriptError):
        asyncio.run(store.list_events(run_id="r1"))
    store.close()


def test_secrets_are_taken_out_of_all_that_is_stored(tmp_path):
    """Messages, events, effects and the run's record. A snapshot of what was redacted stores nothing twice."""
    secret = "sk-ant-api03-" + "Ab1" * 31 + "AA"  # a form, and no key
    store = TranscriptStepStore(tmp_path, redact=SecretRedactor())

    async def scenario() -> None:
        await store.register_run(RunRecord(run_id="r1", metadata={"key": secret}))
        await store.append_event(StepEvent(run_id="r1", kind="run_failed", step_index=0, error=secret))
        await store.record_tool_effect(
            ToolEffectRecord(
                run_id="r1", tool_call_id="c", tool_name="t", status="failed", effect_summary=f"gave {secret}"
            )
        )
        said = [ModelRequest(parts=[UserPromptPart(f"my key is {secret}")])]
        for step in range(3):
            await store.save_snapshot(ContinuableSnapshot(run_id="r1", step_index=step, messages=said))

    asyncio.run(scenario())
    store.close()
    stored = b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
    assert secret.encode() not in stored
    with store.conversation("r1") as conversation:
        assert len(conversation.get_messages()) == len([*conversation.get_records()]) - 5 == 1


def test_a_run_is_an_ordinary_conversation(tmp_path):
    """It is listed by the run's id, verified, and read without this module; its name is derived from any id."""
    store = TranscriptStepStore(tmp_path)
    run_ids = ["r1", "../../etc/passwd", "a/b", "", "x" * 1000, "\ud800"]
    for run_id in run_ids:
        asyncio.run(store.save_snapshot(ContinuableSnapshot(run_id=run_id, step_index=0, messages=[message(0)])))
        assert len(asyncio.run(continue_run(store, run_id=run_id))) == 1
        assert verify(store.directory(run_id)).is_intact
    assert len(list_conversations(tmp_path)) == len(run_ids)
    assert "r1" in {(each.labels or {})["title"] for each in list_conversations(tmp_path)}
    store.close()


def test_killed_within_a_tool(tmp_path):
    """A process that is killed in a tool leaves the reply with its call, and the effect as one that began."""

    async def life(say: Any) -> None:
        async def call(messages: Any, info: Any) -> Any:
            return ModelResponse(parts=[ToolCallPart("pay", {}, tool_call_id="c1")])

        agent = Agent(
            FunctionModel(call),
            capabilities=[StepPersistence(store=TranscriptStepStore(tmp_path), run_id="r1", capture_frontier=True)],
        )

        @agent.tool_plain
        async def pay() -> None:
            say("within")
            await asyncio.Event().wait()

        await agent.run("pay")

    child = Child(lambda say: asyncio.run(life(say)))
    child.wait_for(1)
    child.end(signal.SIGKILL)
    store = TranscriptStepStore(tmp_path)

    async def scenario() -> None:
        snapshot = await store.latest_snapshot(run_id="r1", include_interrupted=True)
        assert snapshot is not None
        assert snapshot.state == "interrupted"
        assert isinstance(snapshot.messages[-1].parts[0], ToolCallPart)
        (effect,) = await store.list_unresolved_tool_effects(run_id="r1")
        assert effect.tool_name == "pay"
        assert "run_failed" not in {event.kind for event in await store.list_events(run_id="r1")}

    asyncio.run(scenario())
    store.close()


def test_killed_anywhere(tmp_path):
    """Each snapshot that a process was told is stored is there once, with its own messages, whatever the one that was cut off left."""

    def messages(step: int) -> list[Any]:
        return [*map(message, [0, 1, 2, 1][: step % 4 + 1] if step % 3 else [2, 1])]

    async def life(say: Any, first: int) -> None:
        store = TranscriptStepStore(tmp_path)
        for step in range(first, first + 1000):
            snapshot = ContinuableSnapshot(
                run_id="r1", step_index=step, messages=messages(step), idempotency_key=f"{step}"
            )
            await store.save_snapshot(snapshot)
            say(step)

    store, told = TranscriptStepStore(tmp_path), [-1]
    for n in range(8):
        last = told[-1]  # that one again: its key is known
        child = Child(lambda say, last=last: asyncio.run(life(say, last)))  # type: ignore[misc]
        child.wait_for(n + 1)
        told += map(int, child.end(signal.SIGKILL))
        found = asyncio.run(store.list_snapshots(run_id="r1"))
        steps = [each.step_index for each in found]
        assert steps == [*range(-1, steps[-1] + 1)]
        assert steps[-1] >= told[-1]
        assert all(each.messages == messages(each.step_index) for each in found)
        store.close()


def test_the_public_surface():
    """After a change that is meant, write what this finds into api.txt, and a line into CHANGELOG.md."""
    agreed = Path(__file__).with_name("api.txt").read_text().splitlines()
    assert surface([".integrations.pydantic_ai_harness"]) == agreed
