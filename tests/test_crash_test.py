"""``crash_test``: six faults that real agents had are found, each with a story of a few steps; the agent without them passes.

Each faulty agent is the good one with one thing done otherwise. All of them work as long as nobody stops them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.kit.cases import for_each
from transcript_store import ConversationStore
from transcript_store.testing import Aftermath, CrashTestError, crash_test
from transcript_store.testing._crash_test import story_of

Message = dict[str, Any]
QUESTION = {"role": "user", "content": "Pay the two bills."}
BILLS = ["rent", "light"]


def model(messages: list[Message]) -> Message:
    """Pays one bill after the other."""
    paid = sum(message["role"] == "tool" for message in messages)
    if paid == len(BILLS):
        return {"role": "assistant", "content": "Both are taken care of."}
    function = {"name": "pay", "arguments": json.dumps({"bill": BILLS[paid]})}
    return {"role": "assistant", "tool_calls": [{"id": f"call_{paid}", "type": "function", "function": function}]}


def pay(bill: str) -> str:
    return f"paid the {bill}"


def arguments_of(call: Message) -> Any:
    return json.loads(call["function"]["arguments"])


def owed(messages: list[Message]) -> list[Message]:
    answered = {message.get("tool_call_id") for message in messages}
    return [call for message in messages for call in message.get("tool_calls", []) if call["id"] not in answered]


def is_done(messages: list[Message]) -> bool:
    return messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]


def begin(store: ConversationStore) -> None:
    store.load_or_initialize(provider="openai")
    if not store.get_messages():
        store.append_message(QUESTION)


def settle(store: ConversationStore, tools: Any) -> None:
    """Run what is owed, each at most once."""
    begun = {record.extra["runs"] for record in store.get_records() if record.extra and "runs" in record.extra}
    for call in owed(store.get_messages()):
        result = "interrupted: it may be paid"
        if call["id"] not in begun:
            store.append_event({"runs": call["id"]})
            result = tools["pay"](**arguments_of(call))
        store.append_message({"role": "tool", "tool_call_id": call["id"], "content": result})


def good(store: ConversationStore, tools: Any, model: Any) -> None:
    with store:
        begin(store)
        while True:
            settle(store, tools)
            if is_done(store.get_messages()):
                return
            store.append_message(model(store.get_messages()))


# ---- with one fault each -----------------------------------------------------------------------------------------------


def runs_before_it_is_on_record(store: ConversationStore, tools: Any, model: Any) -> None:
    """The reply and the result are stored together, after the tool ran: a crash between them, and the bill is paid twice."""
    with store:
        begin(store)
        while not is_done(store.get_messages()):
            reply = model(store.get_messages())
            results = [
                {"role": "tool", "tool_call_id": call["id"], "content": tools["pay"](**arguments_of(call))}
                for call in reply.get("tool_calls", [])
            ]
            store.append_messages([reply, *results])


def keeps_results_in_memory(store: ConversationStore, tools: Any, model: Any) -> None:
    """The list that the model is sent is kept beside the store, and the results go into the list alone until the end."""
    with store:
        begin(store)
        messages = store.get_messages()
        results: list[Message] = []
        while not is_done(messages):
            reply = model(messages)
            messages.append(reply)
            if reply.get("tool_calls"):
                store.append_message(reply) if not results else None
            for call in reply.get("tool_calls", []):
                results.append({"role": "tool", "tool_call_id": call["id"], "content": "paid"})
                messages.append(results[-1])
        store.replace_transcript(messages)


def asks_again(store: ConversationStore, tools: Any, model: Any) -> None:
    """Each process begins with the question, as the retry of a request does."""
    with store:
        store.load_or_initialize(provider="openai")
        if not store.get_messages() or not is_done(store.get_messages()):
            settle(store, tools)
            store.append_message(QUESTION)
        while not is_done(store.get_messages()):
            store.append_message(model(store.get_messages()))
            settle(store, tools)


def clears_before_it_sums_up(store: ConversationStore, tools: Any, model: Any) -> None:
    """What was said before is replaced by nothing, and then a summary of it is asked for and stored."""
    with store:
        store.load_or_initialize(provider="openai", messages=EARLIER)
        if len(said := store.get_messages()) > 1:
            store.replace_transcript([])
            store.append_message(model(said))


def takes_a_part_for_the_whole(store: ConversationStore, tools: Any, model: Any) -> None:
    """What has come of a stream is stored when the connection breaks; whoever comes next sees an answer."""
    with store:
        begin(store)
        if is_done(store.get_messages()):
            return
        text = ""
        try:
            for piece in model(store.get_messages()):
                text += piece
        finally:
            store.append_message({"role": "assistant", "content": text})


def forgets_a_lock(store: ConversationStore, tools: Any, model: Any) -> None:
    """A label says that somebody is at work, so that no two are; whoever dies leaves it there."""
    with store:
        store.load_or_initialize(provider="openai")
        if store.get_metadata().labels.get("busy"):
            raise RuntimeError("somebody else is at work")
        store.update_metadata(labels={"busy": "yes"})
        if not store.get_messages():
            store.append_message(QUESTION)
        while not is_done(store.get_messages()):
            settle(store, tools)
            store.append_message(model(store.get_messages()))
            settle(store, tools)
        store.update_metadata(labels={"busy": None})


EARLIER = [QUESTION, {"role": "assistant", "content": "The rent is paid."}, {"role": "user", "content": "Go on."}]


def sums_up(messages: list[Message]) -> Message:
    return {"role": "user", "content": f"So far there were {len(messages)} messages, and the rent is paid."}


def stream(messages: list[Message]) -> Iterator[str]:
    yield from ("Both are ", "taken ", "care of.")


FAULTS: list[tuple[Callable[..., None], Callable[..., Any], str]] = [
    (runs_before_it_is_on_record, model, "the tool pay(bill='rent') runs, and its call is not on record"),
    (keeps_results_in_memory, model, "a request would be refused: the call call_0 has no result"),
    (asks_again, model, "does not end as it does without a crash"),
    (clears_before_it_sums_up, sums_up, "does not end as it does without a crash: nothing"),
    (takes_a_part_for_the_whole, stream, "does not end as it does without a crash"),
    (forgets_a_lock, model, "ended with RuntimeError: somebody else is at work"),
]


@pytest.mark.parametrize("count", [pytest.param(60, id="60"), pytest.param(2000, id="2000", marks=pytest.mark.long)])
def test_the_good_agent_passes(count: int) -> None:
    """Every place it can be stopped in, in every way, and as many pairs as there is time for."""
    report = crash_test(good, model=model, tools={"pay": pay}, examples=count)
    assert report.examples == count
    assert report.moments > 100


@for_each("agent, answers, problem", FAULTS)
def test_a_fault_is_found_with_a_short_story(
    agent: Callable[..., None], answers: Callable[..., Any], problem: str
) -> None:
    """Within 200 examples, by one crash at most, with at most six steps before it; and the replay tells the same."""
    with pytest.raises(CrashTestError) as caught:
        crash_test(agent, model=answers, tools={"pay": pay}, examples=200)
    found = caught.value
    assert problem in found.problem
    assert len(found.schedule) <= 1
    cut = next((number for number, line in enumerate(found.story) if ">>" in line), len(found.story))
    assert len(found.story[1:cut]) <= 6
    assert found.examples <= 200
    assert found.problem in str(found)
    assert all(line in str(found) for line in found.story)
    if found.schedule:
        with pytest.raises(CrashTestError) as again:
            crash_test(agent, model=answers, tools={"pay": pay}, replay=found.schedule)
        assert again.value.story == found.story


def test_a_problem_is_told_though_the_agent_takes_it_for_an_error_of_its_tool() -> None:
    """Incident: a chat client gives the model whatever a tool raises. The objection went there too, and the test passed."""

    def forgives(store: ConversationStore, tools: Any, model: Any) -> None:
        with store:
            begin(store)
            with suppress(Exception):
                tools["pay"](bill="rent")

    with pytest.raises(CrashTestError, match="runs, and its call is not on record"):
        crash_test(forgives, model=model, tools={"pay": pay}, examples=1)


def test_an_invariant_of_ones_own() -> None:
    """What matters to the user of an agent: no bill is paid twice. The good agent keeps it, whatever happens to it."""

    def once(end: Aftermath) -> None:
        paid = [run.arguments["bill"] for run in end.runs]
        assert len(set(paid)) == len(paid), f"paid twice: {paid}"
        assert len(end.requests) >= 1
        assert end.processes in (1, 2, 3)

    crash_test(good, model=model, tools={"pay": pay}, invariants=[once], examples=60)

    def never(end: Aftermath) -> None:
        assert len(end.runs) < 2, "two bills are too many"

    with pytest.raises(CrashTestError, match="two bills are too many") as caught:
        crash_test(good, model=model, tools={"pay": pay}, invariants=[never])
    assert "found without a crash" in str(caught.value)


def test_an_agent_that_is_not_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs end differently without a crash: then an end says nothing, and the caller has to say so."""
    numbers = iter(range(1000))

    def moody(messages: list[Message]) -> Message:
        return {"role": "assistant", "content": f"answer {next(numbers)}"}

    with pytest.raises(ValueError, match="ends_alike=False"):
        crash_test(good, model=moody)
    crash_test(good, model=moody, ends_alike=False, examples=60)


def test_what_was_acknowledged_may_go_with_the_power_only_where_that_was_chosen() -> None:
    """P1, P2: with ``process-crash`` a power cut takes a suffix; the agent asks again, and ends as it should."""
    crash_test(good, model=model, tools={"pay": pay}, durability="process-crash", ends_alike=True, examples=60)


def test_a_store_that_loses_is_told() -> None:
    """The kit objects to what it is for: an agent that undoes what it had stored, generation and all."""

    def undoes(store: ConversationStore, tools: Any, model: Any) -> None:
        with store:
            begin(store)
            settle(store, tools)
            if not is_done(store.get_messages()):
                store.append_message({"role": "assistant", "content": "Done."})
            if len(store.generations()) == 1:
                store.replace_transcript(store.get_messages())
                store.delete_generation(0)

    with pytest.raises(CrashTestError, match="was acknowledged, and is lost"):
        crash_test(undoes, model=model)


def test_wrong_arguments_raise() -> None:
    """Each is told at once; none passes in silence."""

    async def asynchronous(store: ConversationStore, tools: Any, model: Any) -> None:
        good(store, tools, model)

    def idle(store: ConversationStore, tools: Any, model: Any) -> None:
        """Does nothing."""

    with pytest.raises(CrashTestError, match="it is async or a generator"):
        crash_test(asynchronous, model=model)
    with pytest.raises(ValueError, match=r"the agent did nothing .* none of its own"):
        crash_test(idle, model=model)
    for wrong in ({"agent": "agent.py"}, {"model": "claude"}, {"tools": {"pay": "now"}}, {"invariants": ["paid"]}):
        with pytest.raises(TypeError, match="must be a function, not str"):
            crash_test(**{"agent": good, "model": model, **wrong})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"tools must be functions by their names, .* not list"):
        crash_test(good, model=model, tools=[pay])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"not a function: give \[function\]"):
        crash_test(good, model=model, invariants=print)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="examples must be at least 1"):
        crash_test(good, model=model, examples=0)


@for_each("replay", [[(9999, "kill")], [(-1, "kill", 0)], [(3, "boom", 0)], [("x", "kill")], (3, "kill"), []])
def test_a_replay_that_tries_nothing_does_not_pass(replay: Any) -> None:
    """An old one in CI, after the agent has changed, passed for ever."""
    with pytest.raises(ValueError, match=r"nothing was tried|a replay is a list of"):
        crash_test(good, model=model, tools={"pay": pay}, replay=replay)


def test_an_agent_that_never_ends_is_stopped() -> None:
    """The model calls a tool for ever: the story is short, and memory is not filled."""

    def endless(messages: list[Message]) -> Message:
        function = {"name": "pay", "arguments": json.dumps({"bill": str(len(messages))})}
        return {
            "role": "assistant",
            "tool_calls": [{"id": str(len(messages)), "type": "function", "function": function}],
        }

    def forgetful(store: ConversationStore, tools: Any, model: Any) -> None:
        with store:
            begin(store)
            while True:
                model([QUESTION])

    with pytest.raises(CrashTestError, match="asked the model 1,000 times") as caught:
        crash_test(forgetful, model=endless)
    assert str(caught.value).count("\n") < 100


def test_an_invariant_that_fails_otherwise_has_its_story_too() -> None:
    def wrong(end: Aftermath) -> None:
        end.messages[99]

    with pytest.raises(CrashTestError, match="an invariant ended with IndexError"):
        crash_test(good, model=model, tools={"pay": pay}, invariants=[wrong])


def test_a_tool_may_be_called_as_python_allows() -> None:
    """By position: the call on record has names, and is the same one."""

    def by_position(store: ConversationStore, tools: Any, model: Any) -> None:
        def pay_it(bill: str) -> Any:
            return tools["pay"](bill)

        good(store, {"pay": pay_it}, model)

    crash_test(by_position, model=model, tools={"pay": pay}, examples=40)


# ---- whose call it is, in each provider's form --------------------------------------------------------------------------

CLAUDE: list[Message] = [
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {"at": "x"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "seen"}]},
]
GEMINI: list[Message] = [
    {"role": "user", "parts": [{"text": "Look."}]},
    {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"at": "x"}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "seen"}}}]},
]
OPENAI: list[Message] = [
    {"role": "user", "content": "Look."},
    {
        "role": "assistant",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at":"x"}'}}],
    },
    {"role": "tool", "tool_call_id": "a", "content": "seen"},
]


@pytest.mark.parametrize("messages", [CLAUDE, GEMINI, OPENAI], ids=["claude", "gemini", "openai"])
def test_requests_of_each_provider(messages: list[Message]) -> None:
    """One call, one result: whole, without its result, without its call, with another question between, answered twice."""

    def sends(*sent: Message) -> Callable[..., None]:
        def agent(store: ConversationStore, tools: Any, model: Any) -> None:
            with store:
                store.load_or_initialize(provider="gemini")
                model(list(sent))

        return agent

    question, call, result = messages
    crash_test(sends(question, call, result), model=lambda _: {"role": "assistant"}, examples=5)
    refused = [
        (question, call),
        (question, result),
        (question, call, question, result),
        (question, call, result, result),
    ]
    for sent in refused:
        with pytest.raises(CrashTestError, match="a request would be refused"):
            crash_test(sends(*sent), model=lambda _: {"role": "assistant"}, examples=5)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("messages", [CLAUDE, GEMINI, OPENAI], ids=["claude", "gemini", "openai"])
def test_tools_of_each_provider(messages: list[Message]) -> None:
    """The call that is on record is the one that runs, whichever form it has."""

    def agent(store: ConversationStore, tools: Any, model: Any) -> None:
        with store:
            store.load_or_initialize(provider="claude")
            for message in messages[len(store.get_messages()) : 2]:
                store.append_message(message)
            if len(store.get_messages()) == 2:
                tools["look"](at="x")
                store.append_message(messages[2])

    crash_test(agent, model=model, tools={"look": lambda at: f"seen at {at}"}, examples=120)


def test_a_story_has_the_text_of_blocks() -> None:
    """Claude's replies are lists of blocks: the story has what they say, and other content as JSON."""
    blocks = [{"type": "text", "text": "Fine, "}, {"type": "text", "text": "thanks."}]
    assert story_of([{"role": "assistant", "content": blocks}]) == "assistant: 'Fine, thanks.'"
    assert story_of([{"role": "assistant", "content": [{"type": "image"}]}]) == """assistant: '[{"type": "image"}]'"""
