"""JSON lines, one message a line: whose form it is is told where a message can tell it, and nothing on a line raises."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.of_others import Bytes
from tests.formats.of_others import messages as messages_in
from tests.formats.sources import check_accounts, entries_of, json_lines
from transcript_store.formats import READERS, head_of
from transcript_store.formats._jsonl import JsonLines
from transcript_store.testing.strategies import json_values

ASKED = {"role": "user", "content": "Hello"}


def plan(values):
    data = json_lines(values)
    (found,) = JsonLines().plans(Bytes(data))
    check_accounts(found, data)
    return found


@pytest.mark.parametrize(
    ("message", "provider"),
    [
        (ASKED, None),
        ({"role": "model", "parts": [{"text": "Hi"}]}, "gemini"),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}, "claude"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "openai"),
        ({"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}, "openai"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, "openai"),
    ],
)
def test_whose_form_it_is_is_told_by_the_first_message_that_can_tell(message, provider):
    found = plan([ASKED, message, ASKED])
    assert found.provider == provider
    assert messages_in(found) == [ASKED, message, ASKED]


def test_the_items_of_the_responses_api_are_messages_and_other_objects_are_events():
    items: list[dict[str, Any]] = [
        {"type": "reasoning", "summary": []},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
    ]
    assert messages_in(plan([ASKED, *items, {"type": "summary", "summary": "no message"}])) == [ASKED, *items]


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
    ]
)
VALUES = json_values(strings=MEMBERS | st.sampled_from(["", "user", "session"]), max_leaves=6)


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
