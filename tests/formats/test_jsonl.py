"""JSON lines, one message a line: whose form it is is told where a message can tell it, and nothing on a line raises."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.of_others import Bytes
from tests.formats.of_others import messages as messages_in
from tests.formats.sources import check_accounts, entries_of, json_lines
from tests.kit.cases import for_each
from transcript_store.formats import READERS, head_of
from transcript_store.formats._jsonl import JsonLines
from transcript_store.testing.strategies import json_values

ASKED = {"role": "user", "content": "Hello"}


def plan(values):
    data = json_lines(values)
    (found,) = JsonLines().plans(Bytes(data))
    check_accounts(found, data)
    return found


@for_each(
    "message, provider",
    [
        (ASKED, None),
        ({"role": "model", "parts": [{"text": "Hi"}]}, "gemini"),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}, "claude"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "openai"),
        ({"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Claude's"}]}, None),
    ],
)
def test_the_first_distinctive_message_decides_the_form(message, provider):
    found = plan([ASKED, message, ASKED])
    assert found.provider == provider
    assert messages_in(found) == [ASKED, message, ASKED]


ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
    {"type": "reasoning", "summary": [], "encrypted_content": "x"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "r"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes"}]},
]
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "r"},
    {"role": "assistant", "content": "Yes"},
]


def test_f7_the_items_of_the_responses_api_become_messages_that_can_be_sent():
    """They were sent to chat completions as they are, which refuse them. Other objects are events, other messages as they were."""
    found = plan([*ITEMS, {"type": "summary", "summary": "no message"}, ASKED])
    assert (messages_in(found), found.provider) == ([*CHAT, ASKED], "openai")
    assert [(loss.kind, loss.count) for loss in found.losses] == [("thinking", 1)]
    assert messages_in(plan([ASKED, *ITEMS[1:]])) == [ASKED, *CHAT[1:]]


def test_items_that_show_prints_become_messages_too():
    """With what stands beside each, whatever its members are called."""
    beside = {"line": 1, "item": 2, "at": 3, "model": "m"}
    found = plan(
        [{"seq": n, "at": f"2026-01-01T00:00:0{n}Z", "message": item, "extra": beside} for n, item in enumerate(ITEMS)]
    )
    assert messages_in(found) == CHAT
    said = entries_of(found)
    assert [entry.at for entry in said] == [f"2026-01-01T00:00:0{n}Z" for n in (0, 1, 3, 4)]
    assert all(beside.items() <= entry.extra.items() for entry in said)


@pytest.mark.parametrize("name", ["timestamp", "created_at"])
def test_a_message_that_says_when_it_was_said_has_that_time(name):
    """It was dated with the moment of the import. What is no text is no time."""
    dated = {**ASKED, name: "2026-01-01T10:00:00+02:00"}
    said = entries_of(plan([dated, {**ASKED, name: 7}, {**ITEMS[0], name: "2026-01-02T00:00:00Z"}]))
    assert [entry.at for entry in said] == ["2026-01-01T10:00:00+02:00", None, "2026-01-02T00:00:00Z"]
    assert said[0].message == dated


def test_what_show_prints_comes_in_with_its_extra_and_its_time():
    said = entries_of(plan([{"seq": 1, "at": "2026-01-01T00:00:00Z", "message": ASKED, "extra": {"model": "m"}}]))[0]
    assert (said.message, said.extra["model"], said.at) == (ASKED, "m", "2026-01-01T00:00:00Z")


MEMBERS = st.sampled_from(
    [
        "role",
        "type",
        "message",
        "content",
        "parts",
        "call_id",
        "extra",
        "at",
        "uuid",
        "sessionId",
        "id",
        "payload",
        "cwd",
        "timestamp",
        "output",
    ]
)
VALUES = json_values(
    strings=MEMBERS | st.sampled_from(["", "user", "session", "function_call", "function_call_output", "reasoning"]),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(MEMBERS, VALUES, max_size=4), min_size=1, max_size=4))
def test_no_object_on_a_line_raises_in_the_readers_of_lines(values):
    data = json_lines(values)
    for reader in READERS:
        reader.recognizes(head_of(Bytes(data)))
        if reader.name in ("claude-code", "pi", "jsonl"):
            for found in reader.plans(Bytes(data)):
                if not found.is_part:
                    check_accounts(found, data)


def test_a_message_within_a_message_within_a_message_is_no_message():
    data = b'{"message":' * 900 + b'{"role":"user","content":"x"}' + b"}" * 900 + b"\n"
    (found,) = JsonLines().plans(Bytes(data))
    assert messages_in(found) == []


def test_a_message_with_a_type_and_a_role_is_no_item():
    """Its type ends as those of the Responses API do, and it has a role, as none of those has: it stays as it is."""
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = [
        {"role": "user", "content": "Look"},
        {"type": "tool_call", "role": "assistant", "content": None, "tool_calls": [call]},
        {"type": "function_call_output", "role": "tool", "tool_call_id": "a", "content": "out"},
    ]
    (plan,) = JsonLines().plans(Bytes(json_lines(said)))
    assert messages_in(plan) == said
