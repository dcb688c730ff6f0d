"""Every request has a result for each call, whatever the history.

Incident, in many agents: an imported, trimmed or interrupted history made every later request fail with 400. The histories here
are made up: results in any order and place, missing, doubled, without a call, with and without ids.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.chat.dialects import DIALECTS
from transcript_store.chat._create import PROVIDERS
from transcript_store.chat._provider import Message, Request, ToolCall, WireFormat
from transcript_store.chat._turns import from_request_start, owed, paired

WIRES: dict[str, WireFormat] = {name: PROVIDERS[name].wire() for name in ("claude", "openai", "gemini")}


def reply(name: str, calls: list[str], text: str) -> Message:
    """A native reply; each call is a letter: its id, and its tool's name."""
    if name == "claude":
        blocks = [{"type": "tool_use", "id": c, "name": c, "input": {}} for c in calls]
        return {"role": "assistant", "content": [{"type": "text", "text": text}, *blocks]}
    if name == "openai":
        message: Message = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [{"id": c, "type": "function", "function": {"name": c, "arguments": "{}"}} for c in calls]  # fmt: skip
        return message
    return {"role": "model", "parts": [{"text": text}, *({"functionCall": {"name": c, "args": {}}} for c in calls)]}


def results(name: str, ids: list[str], *, where: int | None = None) -> list[Message]:
    """The messages that carry these results, and perhaps a text among them."""
    wire = WIRES[name]
    natives = [wire.result(ToolCall(id=None if name == "gemini" else c, name=c, arguments={}), f"r-{c}", is_error=False) for c in ids]  # fmt: skip
    if wire.results_are_messages:
        return natives
    message = wire.results_message(natives)
    parts, text = (message["content"], {"type": "text", "text": "and this"}) if name == "claude" else (message["parts"], {"text": "and this"})  # fmt: skip
    if where is not None:
        parts.insert(min(where, len(parts)), text)
    return [message] if parts else []


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, list[Message]]:
    name = draw(st.sampled_from(sorted(WIRES)))
    messages: list[Message] = []
    for number in range(draw(st.integers(0, 7))):
        kind = draw(st.sampled_from(["user", "reply", "results"]))
        if kind == "user":
            messages.append(WIRES[name].user_message(f"u{number}"))
        elif kind == "reply":
            calls = draw(st.lists(st.sampled_from("abc"), max_size=3, unique=name != "gemini"))
            messages.append(reply(name, calls, f"t{number}"))
        else:
            ids = draw(st.lists(st.sampled_from("abcd"), max_size=3))
            messages += results(name, ids, where=draw(st.none() | st.integers(0, 3)))
    return name, messages


@given(histories())
def test_what_is_sent_is_paired(case: tuple[str, list[Message]]) -> None:
    """Each call has its result right behind it and no result stands alone; all that was said is there, in order; twice is once."""
    name, messages = case
    wire = WIRES[name]
    before = json.dumps(messages)
    sent = paired(wire, messages)
    assert json.dumps(messages) == before
    opening = wire.user_message("the question")
    body = wire.request(Request(model="m", system_prompt=None, messages=[opening, *sent]), stream=False)
    assert DIALECTS[name].refusal(body) is None
    assert paired(wire, sent) == sent
    assert said(sent) == said(messages)
    if DIALECTS[name].refusal({"messages": messages, "contents": messages}) is None:
        assert all(ours is theirs for ours, theirs in zip(sent, messages, strict=True))


@given(histories(), st.integers(0, 9), st.integers(0, 9))
def test_a_selection_starts_with_a_user_message(case: tuple[str, list[Message]], begin: int, end: int) -> None:
    """Any stretch of a record, be it empty, makes a request that is not refused, and all of it from its first opening is sent.

    Incident: the last n messages began with a reply; Gemini refused the function call, and Claude the assistant.
    """
    name, messages = case
    wire = WIRES[name]
    record = [wire.user_message("the question"), *messages]
    chosen = record[begin:end]
    sent = from_request_start(wire, chosen, record)
    body = wire.request(Request(model="m", system_prompt=None, messages=paired(wire, sent)), stream=False)
    assert DIALECTS[name].refusal(body) is None
    assert wire.may_open(sent[0])
    for place, message in enumerate(chosen):
        if wire.may_open(message):
            assert [id(one) for one in sent] == [id(one) for one in chosen[place:]]
            return
    assert any(sent[0] is message for message in record)
    assert not any(map(wire.is_reply, chosen)) or [id(one) for one in sent[1:]] == [id(one) for one in chosen]


@given(histories())
def test_owed_results_complete_the_record(case: tuple[str, list[Message]]) -> None:
    """A history that ends behind calls, and the results it owes to them, need nothing more; the known results are kept."""
    name, messages = case
    wire = WIRES[name]
    replies = [place for place, message in enumerate(messages) if wire.is_reply(message)]
    tail = messages[replies[-1] :] if replies else []
    calls = wire.calls(tail[0]) if tail else []
    known = {0: wire.result(calls[0], "as it was", is_error=False)} if calls else {}
    debt = owed(wire, tail, known, cut_short=False)
    after = owed(wire, [*tail, *debt.messages], {}, cut_short=False)
    assert after.messages == ()
    if len(tail) == 1:
        assert paired(wire, [*tail, *debt.messages]) == [*tail, *debt.messages]
        assert json.dumps(debt.messages).count("as it was") == min(len(calls), 1)
        assert json.dumps(debt.messages).count("outcome is unknown") == len(debt.interrupted) == max(len(calls) - 1, 0)


def said(messages: list[Message]) -> list[str]:
    """The texts that are not results, in order."""
    out: list[str] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("type") == "tool_result" or node.get("role") == "tool" or "functionResponse" in node:
                return
            out.extend(v for k, v in node.items() if k == "text" or (k == "content" and isinstance(v, str)))
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(messages)
    return out


def test_a_moved_result_keeps_its_content() -> None:
    """A result that stands behind a remark is moved in front of it; one that is missing says that it is."""
    for name, wire in WIRES.items():
        one, remark = reply(name, ["a", "b"], "t"), wire.user_message("wait")
        sent = paired(wire, [one, remark, *results(name, ["b"])])
        assert sent[0] is one
        assert sent[-1] is remark
        told = json.dumps(sent[1:-1])
        assert told.index("not in this conversation") < told.index("r-b")
