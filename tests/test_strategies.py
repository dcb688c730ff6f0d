"""The public strategies draw what they say, and a failing test ends with the smallest example.

A user's test is as good as its counterexamples. So this says how far each of them shrinks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from tests.kit.cases import few
from transcript_store import ConversationStore, MemorySnapshotStore, Snapshot
from transcript_store.installation import install_command
from transcript_store.messages import encode_message
from transcript_store.testing import (
    SimulatedFileSystem,
    check_integration,
    check_key_provider,
    check_snapshot_store,
    crash_test,
)
from transcript_store.testing._exchanges import calls_in, problem_with, results_in
from transcript_store.testing.strategies import (
    FAULTS,
    PROVIDERS,
    DamagedBytes,
    conversations,
    damaged_bytes,
    json_objects,
    json_values,
    messages,
    metadata,
    schedules,
    snapshots,
    texts,
    tool_exchanges,
)

LINES = b"".join(b'{"line":%d}\n' % number for number in range(9))
QUICK = settings(
    max_examples=1000, deadline=None, derandomize=True, database=None, phases=[Phase.generate, Phase.shrink]
)


def smallest(strategy: st.SearchStrategy[Any], holds: Callable[[Any], bool]) -> Any:
    return find(strategy, holds, settings=QUICK)


def test_importing_the_kit_does_not_need_hypothesis() -> None:
    """Whoever takes the disk or a contract need not install it."""
    names = "SimulatedFileSystem, check_snapshot_store, crash_test"
    program = f"import sys; sys.modules['hypothesis'] = None; from transcript_store.testing import {names}"
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


@pytest.mark.parametrize("module", ["strategies", "machines", "profiles"])
def test_without_hypothesis_the_error_says_what_to_install(module: str) -> None:
    program = f"import sys; sys.modules['hypothesis'] = None; import transcript_store.testing.{module}"
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert install_command("testing") in done.stderr.splitlines()[-1]


def test_a_contract_is_given_what_makes_one() -> None:
    """If the argument is an object instead of a factory, that is the error, not a failure of the first rule."""
    for check in (check_snapshot_store, check_key_provider, check_integration):
        with pytest.raises(TypeError, match="must be a function that makes a new one each time"):
            check(MemorySnapshotStore())  # type: ignore[arg-type]


# ---- what they draw ----------------------------------------------------------------------------------------------------


@settings(max_examples=few(50))
@given(json_objects())
def test_a_conversation_takes_every_object(drawn: dict[str, Any]) -> None:
    """P14: each is a message, and comes back as it is."""
    assert json.loads(encode_message(drawn, "message", 2**20)) == drawn


@settings(max_examples=few(30), deadline=None)
@given(st.data(), st.sampled_from(PROVIDERS), metadata())
def test_a_conversation_is_valid_for_its_provider(data: st.DataObject, provider: Any, fields: dict[str, Any]) -> None:
    """Without faults no provider knows a reason to refuse it, and a store takes it with its metadata."""
    said = data.draw(conversations(provider))
    assert problem_with(said) is None
    with ConversationStore("/c", file_system=SimulatedFileSystem()) as store:
        store.initialize(provider=provider, messages=said, **fields)
        store.append_message(data.draw(messages(provider)))
        assert store.get_messages()[:-1] == said


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_an_exchange_is_what_it_says(provider: Any, fault: Any) -> None:
    """All but another order is refused by every provider; an order is no more than that."""

    @settings(max_examples=20, database=None)
    @given(tool_exchanges(provider, faults=[fault]).filter(lambda drawn: refused(drawn) or fault == "out of order"))
    def holds(exchange: list[Any]) -> None:
        asked = [call.id for message in exchange for call in calls_in(message)]
        answered = [one for message in exchange for one in results_in(message)]
        if fault == "out of order":
            assert sorted(asked) == sorted(answered)
        elif fault == "missing":
            assert len(answered) == len(asked) - 1
        elif fault == "late":
            assert not calls_in(exchange[1])
            assert not results_in(exchange[1])
        else:
            assert len(answered) == len(asked) + 1

    holds()


def refused(exchange: list[Any]) -> bool:
    return problem_with(exchange) is not None


@settings(max_examples=few(30), deadline=None)
@given(snapshots())
def test_a_snapshot_is_whole(drawn: Snapshot) -> None:
    """It reads back from its own text as it is."""
    assert Snapshot.from_json(drawn.to_json()) == drawn


@settings(max_examples=few(60))
@given(st.binary(min_size=1, max_size=60) | st.just(LINES), st.data())
def test_what_is_damaged_is_never_as_it_was(data: bytes, draw: st.DataObject) -> None:
    assert draw.draw(damaged_bytes(data, kinds=["torn", "zeros", "flipped bit", "foreign line"])).data != data


def test_mistakes_are_told() -> None:
    with pytest.raises(ValueError, match="provider must be one of claude, openai, gemini"):
        messages("mistral")  # type: ignore[arg-type]
    for exchanges in (tool_exchanges, conversations):
        with pytest.raises(TypeError, match=r"faults must be a list of faults, not one of them: give \['late'\]"):
            exchanges("claude", faults="late")  # type: ignore[arg-type]
        with pytest.raises(
            ValueError, match="a fault must be one of missing, out of order, late, twice, foreign; not 'gone'"
        ):
            exchanges("claude", faults=["late", "gone"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="nothing can be damaged"):
        damaged_bytes(b"")
    with pytest.raises(ValueError, match=r"kinds must be of torn, .*; not fire"):
        damaged_bytes(b"x", kinds=["fire"])  # type: ignore[list-item]


# ---- how far they shrink -----------------------------------------------------------------------------------------------


SMALLEST: list[tuple[str, st.SearchStrategy[Any], Callable[[Any], bool], Any]] = [
    ("a value", json_values(), lambda _: True, None),
    ("a list that has something", json_values(), lambda value: isinstance(value, list) and len(value) > 0, [None]),
    ("a text", json_values(), lambda value: isinstance(value, str) and value != "", "0"),
    ("a big integer", json_values(), lambda value: type(value) is int and value > 2**53, 2**53 + 1),
    ("an object", json_objects(), lambda value: any(isinstance(one, list) for one in value.values()), {"": []}),
    ("a text with a line end", texts(), lambda text: "\n" in text, "\n"),
    ("a message", messages("claude"), lambda _: True, {"role": "user", "content": ""}),
    ("a reply", messages("gemini"), lambda one: one["role"] == "model", {"role": "model", "parts": [{"text": ""}]}),
    ("a conversation", conversations("openai"), lambda _: True, []),
    (
        "a conversation that has an answer",
        conversations("openai"),
        lambda said: any(one["role"] == "assistant" for one in said),
        [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}],
    ),
    (
        "an exchange",
        tool_exchanges("claude", faults=FAULTS),
        lambda _: True,
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": ""},
                    {"type": "tool_use", "id": "call_0_0", "name": "a", "input": {}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_0_0", "content": ""}]},
        ],
    ),
    (
        "an exchange that would be refused",
        tool_exchanges("openai", faults=FAULTS),
        refused,
        [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "call_0_0", "type": "function", "function": {"name": "a", "arguments": "{}"}}],
            }
        ],
    ),
    ("metadata", metadata(), lambda _: True, {}),
    ("metadata with a label", metadata(), lambda fields: bool(fields.get("labels")), {"labels": {"": ""}}),
    ("damage", damaged_bytes(LINES), lambda _: True, DamagedBytes("torn", LINES[:-1])),
    (
        "lines that changed places",
        damaged_bytes(LINES, kinds=["swapped lines"]),
        lambda _: True,
        DamagedBytes("swapped lines", b'{"line":1}\n{"line":0}\n' + LINES[22:]),
    ),
    ("a schedule", schedules(), lambda _: True, [(1, "kill", 0)]),
    (
        "a power cut after a kill",
        schedules(),
        lambda cuts: [cut.way for cut in cuts] == ["kill", "power cut"] and cuts[0].moment > 6,
        [(7, "kill", 0), (1, "power cut", 0)],
    ),
]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("strategy", "holds", "expected"), [one[1:] for one in SMALLEST], ids=[one[0] for one in SMALLEST]
)
def test_it_shrinks_to(strategy: st.SearchStrategy[Any], holds: Callable[[Any], bool], expected: Any) -> None:
    """The smallest that there is, and not merely a small one."""
    assert smallest(strategy, holds) == expected


def test_a_deep_value_shrinks_to_the_depth_that_matters() -> None:
    def depth(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return 1 + max(map(depth, inner), default=0)

    found = smallest(json_values(), lambda value: depth(value) > 40)
    assert json.dumps(found) == "[" * 41 + "]" * 41


def test_a_snapshot_shrinks_to_an_empty_one() -> None:
    found = smallest(snapshots("claude"), lambda _: True)
    assert (found.model, found.messages, found.system_prompt, found.tools, found.metadata) == ("", [], "", (), {})
    assert found.created_at == "2000-01-01T00:00:00Z"


# ---- schedules are what crash_test takes -------------------------------------------------------------------------------


def test_a_schedule_can_be_replayed() -> None:
    """Hypothesis finds the crash that repeats the question, and shrinks it: what ``crash_test`` finds by going through them all."""

    def asks_again(conversation: ConversationStore, tools: Any, model: Any) -> None:
        with conversation:
            conversation.load_or_initialize(provider="openai")
            if conversation.record_count < 7:
                conversation.append_message({"role": "user", "content": "What is on the list?"})
                for step in range(5):
                    conversation.append_event({"thinks": step})
                conversation.append_message(model(conversation.get_messages()))

    def model(_: Any) -> dict[str, Any]:
        return {"role": "assistant", "content": "Bread."}

    def fails(schedule: list[Any]) -> bool:
        try:
            crash_test(asks_again, model=model, replay=schedule)
        except AssertionError:
            return True
        except ValueError:  # the agent does not come so far
            return False
        return False

    few = settings(QUICK, max_examples=100)
    found = find(schedules(moments=100, max_cuts=1, ways=["kill", "power cut"]), fails, settings=few)
    assert [cut[1:] for cut in found] == [("kill", 0)]
