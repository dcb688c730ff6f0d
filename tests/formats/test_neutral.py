"""A conversation keeps its content through another provider's form, and every provider accepts the result."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.kit.cases import for_each
from transcript_store.formats._arranging import FORMS, MISSING, OPENING, messages_of, to_neutral
from transcript_store.formats._blocks import Call, Media, Result, Text, Thinking
from transcript_store.formats._neutral import NeutralMessage
from transcript_store.testing.strategies import json_values

SCREENSHOT = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
CLAUDE: list[dict[str, Any]] = [
    {"role": "user", "content": "Is the build green? Look at both machines."},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "I ask both.", "signature": "c2lnbmF0dXJl"},
            {"type": "text", "text": "I look.", "citations": None},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "linux"}},
            {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {"at": "mac"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "green"},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "red"}, SCREENSHOT], "is_error": True},
            {"type": "text", "text": "Hurry."},
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "Linux is green."}]},
]  # fmt: skip


def said(turns):
    """What a conversation says, whichever form it had: who, and the text, the calls and their results."""
    found: list[tuple[Any, ...]] = []
    for turn in turns:
        for block in turn.blocks:
            match block:
                case Text(text=text):
                    found.append((turn.role, text))
                case Call():
                    found.append(("call", block.name, block.arguments))
                case Result():
                    found.append(("result", block.text, block.failed))
    return found


def refused(messages, provider):
    """Why a provider would refuse these messages; read from the messages themselves, with no code of ours."""
    owed: list[str] = []
    last = None
    for message in messages:
        blocks = message.get("content") if isinstance(message.get("content"), list) else []
        if provider == "claude":
            calls = [b["id"] for b in blocks if b["type"] == "tool_use"]
            results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
            if [b["type"] == "tool_result" for b in blocks] != sorted(
                (b["type"] == "tool_result" for b in blocks), reverse=True
            ):
                return "results do not stand first"
            if any(not isinstance(b["input"], dict) for b in blocks if b["type"] == "tool_use"):
                return "an input that is no object"
        elif provider == "gemini":
            calls = [p["functionCall"].get("id") for p in message["parts"] if "functionCall" in p]
            results = [p["functionResponse"].get("id") for p in message["parts"] if "functionResponse" in p]
        elif provider == "openai":
            calls = [call["id"] for call in message.get("tool_calls", ())]
            results = [message["tool_call_id"]] if message["role"] == "tool" else []
            if any(not isinstance(call["function"]["arguments"], str) for call in message.get("tool_calls", ())):
                return "arguments that are no text"
        else:
            calls = [message["call_id"]] if message["type"] == "function_call" else []
            results = [message["call_id"]] if message["type"] == "function_call_output" else []
        if provider in ("claude", "gemini"):
            if last is None and message["role"] != "user":
                return "the user does not begin"
            if message["role"] == last:
                return f"{last} speaks twice"
            last = message["role"]
        if any(one not in owed for one in results):
            return "a result without its call"
        for one in results:
            owed.remove(one)
        by_the_model = provider == "openai-responses" and (calls or message.get("role") == "assistant")
        if owed and not results and not by_the_model:
            return "a call without its result behind it"
        owed += calls
        if len(set(owed)) != len(owed):
            return "two calls with one id"
    return "a call without its result" if owed else None


@for_each("form", FORMS)
def test_what_is_said_survives_the_way_there_and_back(form):
    there = messages_of(to_neutral(CLAUDE, "claude"), form)
    assert refused(there.messages, form) is None
    back = messages_of(to_neutral(there.messages, form), "claude")
    wanted = said(to_neutral(CLAUDE, "claude"))
    if form.startswith("openai"):  # which says so
        assert "failed" in {loss.kind for loss in there.losses}
        wanted = [(*one[:2], False) if one[0] == "result" else one for one in wanted]
    assert said(to_neutral(back.messages, "claude")) == wanted
    assert json.dumps(back.messages).count("iVBORw0KGgo=") == 1


def test_a_provider_gets_its_own_messages_as_the_very_objects_they_were():
    before = copy.deepcopy(CLAUDE)
    found = messages_of(to_neutral(CLAUDE, "claude"), "claude")
    assert all(one is other for one, other in zip(found.messages, CLAUDE, strict=True))
    assert found.losses == ()
    assert found.origins == ((0,), (1,), (2,), (3,))
    assert before == CLAUDE


def test_thinking_goes_to_its_own_provider_alone_and_what_was_left_out_is_counted():
    turns = to_neutral(CLAUDE, "claude")
    for form in ("openai", "openai-responses", "gemini"):
        handed = messages_of(turns, form)
        assert "I ask both." not in json.dumps(handed.messages)
        assert [(loss.kind, loss.count) for loss in handed.losses if loss.kind == "thinking"] == [("thinking", 1)]
        as_text = messages_of(turns, form, thinking_as_text=True)
        assert "<thinking>\\nI ask both.\\n</thinking>" in json.dumps(as_text.messages)


def test_a_call_without_a_result_gets_one_that_says_so():
    found = messages_of(to_neutral([*CLAUDE[:2], CLAUDE[3]], "claude"), "claude")
    assert refused(found.messages, "claude") is None
    assert [block["content"] for block in found.messages[2]["content"]] == [MISSING, MISSING]
    assert all(block["is_error"] for block in found.messages[2]["content"])
    assert [(loss.kind, loss.count) for loss in found.losses] == [("no-result", 2)]
    assert found.origins[2] == ()


def test_results_that_came_late_or_alone_stand_directly_behind_their_calls():
    """Claude Code writes each result of one reply on a line of its own, and a hook may speak in between."""
    one, other = CLAUDE[2]["content"][:2]
    late = [
        *CLAUDE[:2],
        {"role": "user", "content": [other]},
        {"role": "user", "content": "a hook"},
        {"role": "user", "content": [one]},
    ]
    found = messages_of(to_neutral(late, "claude"), "claude")
    assert refused(found.messages, "claude") is None
    assert found.messages[2]["content"] == [one, other, {"type": "text", "text": "a hook"}]
    assert found.losses == ()
    assert set(found.origins[2]) == {2, 3, 4}


def test_a_result_that_nobody_called_for_is_left_out_and_counted():
    found = messages_of(to_neutral([CLAUDE[0], CLAUDE[2]], "claude"), "openai")
    assert [message["role"] for message in found.messages] == ["user", "user"]
    assert {loss.kind: loss.count for loss in found.losses} == {"no-call": 2}


def test_a_conversation_that_begins_with_a_reply_is_given_a_beginning():
    found = messages_of(to_neutral(CLAUDE[3:], "claude"), "gemini")
    assert [content["role"] for content in found.messages] == ["user", "model"]
    assert found.messages[0]["parts"] == [{"text": OPENING}]
    assert [loss.kind for loss in found.losses] == ["opening"]


def test_gemini_calls_without_ids_are_matched_by_name_and_keep_their_signatures():
    contents: list[dict[str, Any]] = [
        {"role": "user", "parts": [{"text": "Go."}]},
        {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"n": 1}}, "thoughtSignature": "sig"}, {"functionCall": {"name": "look", "args": {"n": 2}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "one"}}}, {"functionResponse": {"name": "look", "response": {"output": "two"}}}]},
    ]  # fmt: skip
    turns = to_neutral(contents, "gemini")
    assert list(messages_of(turns, "gemini").messages) == contents
    for form in ("claude", "openai", "openai-responses"):
        found = messages_of(turns, form)
        assert refused(found.messages, form) is None
        assert [one for one in said(to_neutral(found.messages, form)) if one[0] == "result"] == [
            ("result", "one", False),
            ("result", "two", False),
        ]


def test_ids_become_ones_that_the_provider_allows_and_fit_on_both_sides():
    odd = json.loads(json.dumps(CLAUDE).replace("toolu_1", "call|fc/" + "x" * 90).replace("toolu_2", "call:2"))
    for form in FORMS:
        found = messages_of(to_neutral(odd, "claude"), form)
        assert refused(found.messages, form) is None
        assert said(to_neutral(found.messages, form))[3] == ("call", "look", {"at": "mac"})
    assert messages_of(to_neutral(odd, "claude"), "claude") == messages_of(to_neutral(odd, "claude"), "claude")


def test_a_message_of_either_form_of_openai_says_itself_which_one_it_has():
    items = messages_of(to_neutral(CLAUDE, "claude"), "openai-responses").messages
    assert messages_of(to_neutral(items, "openai"), "openai-responses").messages == items
    assert said(to_neutral(items, "openai-compatible")) == said(to_neutral(items, "openai-responses"))


def test_arguments_that_are_no_object_are_kept_under_an_empty_name():
    for spelled, wanted in (
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("[1]", {"": "[1]"}),
        ("{", {"": "{"}),
        ({"a": 1}, {"a": 1}),
    ):
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": spelled}}
        (turn,) = to_neutral([{"role": "assistant", "content": None, "tool_calls": [call]}], "openai")
        assert turn.blocks == (Call("c", "f", wanted, own=turn.blocks[0].own, provider="openai"),)
        assert isinstance(messages_of([turn], "openai").messages[0]["tool_calls"][0]["function"]["arguments"], str)


VALUES = json_values(max_leaves=8)
NAMES = st.sampled_from(
    [
        "role",
        "content",
        "parts",
        "tool_calls",
        "type",
        "text",
        "id",
        "call_id",
        "tool_use_id",
        "functionCall",
        "source",
        "input",
        "function",
        "arguments",
        "summary",
        "output",
        "image_url",
        "own",
    ]
)
ANYTHING = st.dictionaries(NAMES, VALUES | st.dictionaries(NAMES, VALUES, max_size=4) | st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=3), max_size=5)  # fmt: skip


@given(
    st.lists(ANYTHING, max_size=6), st.sampled_from([*FORMS, "openai-compatible", "nobody"]), st.sampled_from([*FORMS])
)
def test_messages_of_any_shape_are_read_and_handed_on(messages, provider, form):
    """What other programs left is data: nothing in it raises."""
    json.dumps(messages_of(to_neutral(messages, provider), form).messages)


WORDS = st.text(st.characters(codec="utf-8"), max_size=8)
BLOCKS = st.one_of(
    st.builds(Text, WORDS),
    st.builds(Thinking, WORDS, WORDS, provider=st.sampled_from([*FORMS])),
    st.builds(Call, st.sampled_from(["", "a", "b", "a|b", "x" * 70]), st.sampled_from(["look", "go"]), st.just({"n": 1})),
    st.builds(Result, st.sampled_from(["", "a", "b", "a|b", "c"]), st.sampled_from(["", "look"]), st.tuples(st.builds(Text, WORDS)), st.booleans()),
    st.builds(Media, st.sampled_from(["image/png", "audio/wav", "video/mp4"]), st.just("AAAA")),
)  # fmt: skip
TURNS = st.lists(
    st.builds(
        NeutralMessage, st.sampled_from(["user", "assistant", "system"]), st.lists(BLOCKS, max_size=4).map(tuple)
    ),
    max_size=8,
)


@given(TURNS, st.sampled_from([*FORMS]))
def test_every_provider_accepts_what_it_is_handed(turns, form):
    turns = [NeutralMessage(t.role, tuple(b for b in t.blocks if (isinstance(b, Call) <= (t.role == "assistant")) and (isinstance(b, Result) <= (t.role == "user")))) for t in turns]  # fmt: skip
    found = messages_of(turns, form)
    assert refused(found.messages, form) is None
    assert len(found.origins) == len(found.messages)
    again = messages_of(to_neutral(found.messages, form), form)
    assert again.messages == found.messages  # what was arranged once is in order
    assert [loss for loss in again.losses if loss.kind not in ("failed",)] == []


@given(TURNS)
def test_no_text_is_lost_on_the_way_to_another_form(turns):
    for form in FORMS:
        found = messages_of(turns, form)
        texts = [
            block.text for turn in turns for block in turn.blocks if isinstance(block, Text) and block.text.strip()
        ]
        handed = json.dumps(found.messages)
        assert all(json.dumps(text)[1:-1] in handed for text in texts)


def test_the_turns_of_one_speaker_are_one_message_where_roles_alternate():
    turns = [
        NeutralMessage("user", (Text("one"),)),
        NeutralMessage("system", (Text("two"),)),
        NeutralMessage("assistant", (Text("three"),)),
        NeutralMessage("assistant", (Text("four"),)),
    ]
    for form in ("claude", "gemini"):
        found = messages_of(turns, form)
        assert found.origins == ((0, 1), (2, 3))
        assert all(one["role"] != other["role"] for one, other in pairwise(found.messages))
