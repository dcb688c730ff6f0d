"""The exports of Claude.ai and ChatGPT: one document with all conversations, each a tree of messages."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.of_others import (
    Bytes,
    assert_nothing_is_lost,
    entries,
    few_or_many_seeds,
    messages,
    original,
)
from tests.kit.cases import for_each
from transcript_store.formats import SessionPlan, SessionReader, head_of
from transcript_store.formats._chat_exports import ChatGpt, ClaudeAi
from transcript_store.testing import check_format


def claude(number: int, parent: int | None, sender: str, *content: dict[str, Any], **more: Any) -> dict[str, Any]:
    text = "".join(block.get("text", "") for block in content)
    parents = {} if parent is None else {"parent_message_uuid": f"m{parent}"}
    at = f"2026-01-01T00:00:0{number}.000000Z"
    known = {
        "uuid": f"m{number}",
        **parents,
        "text": text,
        "content": list(content),
        "sender": sender,
        "created_at": at,
    }
    return {**known, "attachments": [], "files": [], **more}


def text(said: str) -> dict[str, Any]:
    return {"start_timestamp": None, "type": "text", "text": said, "citations": []}


USE = {"type": "tool_use", "id": None, "name": "web_search", "input": {"query": "x"}, "message": "Searching"}
FOUND = {
    "type": "tool_result",
    "tool_use_id": None,
    "name": "web_search",
    "content": [{"type": "text", "text": "found"}],
    "is_error": False,
}
CLAUDE: list[dict[str, Any]] = [
    {
        "uuid": "c-1",
        "name": "Searching for x",
        "created_at": "2026-01-01T00:00:00Z",
        "chat_messages": [
            claude(
                1, None, "human", text("Look for x"), attachments=[{"file_name": "a.txt", "extracted_content": "AAA"}]
            ),
            claude(
                2,
                1,
                "assistant",
                {"type": "thinking", "thinking": "Hm."},
                text("I look."),
                USE,
                FOUND,
                text("It is there."),
            ),
            claude(3, 2, "human", text("No")),
            claude(4, 2, "human", text("Thanks"), files=[{"file_name": "b.png"}]),
            claude(5, 4, "assistant", text("You are welcome.")),
        ],
    },
    {
        "uuid": "c-2",
        "name": "",
        "chat_messages": [{**claude(1, None, "human"), "text": "Hi"}, claude(2, None, "assistant", text("Hello"))],
    },
]


def node(name: str, parent: str | None, role: str, said: str, kind: str = "text", **more: Any) -> dict[str, Any]:
    content = (
        {"content_type": kind, "text": said}
        if kind in ("code", "execution_output")
        else {"content_type": kind, "parts": [said]}
    )
    author = {"role": role, "name": more.pop("author", None), "metadata": {}}
    known = {
        "id": name,
        "author": author,
        "create_time": 1700000000.5,
        "content": content,
        "recipient": more.pop("to", "all"),
    }
    return {"id": name, "parent": parent, "children": [], "message": {**known, "metadata": more}}


NODES = [
    {"id": "root", "parent": None, "children": ["s"], "message": None},
    node("s", "root", "system", "", is_visually_hidden_from_conversation=True),
    node("u", "s", "user", "Draw it"),
    node("old", "u", "assistant", "No."),
    node("call", "u", "assistant", "print(1)", "code", to="python", model_slug="gpt-4o"),
    node("out", "call", "tool", "1", "execution_output", author="python"),
    node("idea", "out", "assistant", "", "thoughts"),
    node("a", "idea", "assistant", "It is 1.", model_slug="gpt-4o"),
]
CHATGPT: list[dict[str, Any]] = [
    {
        "title": "Drawing",
        "create_time": 1700000000.5,
        "mapping": {value["id"]: value for value in NODES},
        "current_node": "a",
        "conversation_id": "g-1",
    }
]
EXPORTS: list[tuple[SessionReader, Any]] = [(ClaudeAi(), CLAUDE), (ChatGpt(), CHATGPT)]


def plans_of(reader: SessionReader, value: object, **spelled: Any) -> list[SessionPlan]:
    source = Bytes(json.dumps(value, **spelled).encode())
    assert reader.recognizes(head_of(source))
    plans = list(reader.plans(source))
    for plan in plans:
        assert_nothing_is_lost(plan)
        assert original(plan) in source.data
    return plans


def test_claude_ai_is_the_way_to_the_newest_message():
    """The results of tools become the user's turns; what was asked otherwise is an event."""
    plan, other = plans_of(ClaudeAi(), CLAUDE)
    document = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "AAA"},
        "title": "a.txt",
    }
    use = messages(plan)[1]["content"][1]
    assert messages(plan) == [
        {"role": "user", "content": [document, {"type": "text", "text": "Look for x"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": use["id"], "name": "web_search", "input": {"query": "x"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": "found"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "It is there."}]},
        {"role": "user", "content": [{"type": "text", "text": "Thanks"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "You are welcome."}]},
    ]
    assert (plan.session, plan.labels, plan.provider, plan.lines) == ("c-1", {"title": "Searching for x"}, "claude", 6)
    assert {loss.kind: loss.count for loss in plan.losses} == {"thinking": 1, "files": 1}
    assert [message["role"] for message in messages(other)] == ["user", "assistant"]


def test_chatgpt_is_the_way_to_the_current_node():
    """What goes to a tool is a call, and what it says next the result; hidden nodes and thoughts are events."""
    (plan,) = plans_of(ChatGpt(), CHATGPT)
    call = {"id": "call", "type": "function", "function": {"name": "python", "arguments": '{"input": "print(1)"}'}}
    assert messages(plan) == [
        {"role": "user", "content": "Draw it"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call", "content": "1"},
        {"role": "assistant", "content": "It is 1."},
    ]
    assert (plan.session, plan.model, plan.labels, plan.lines) == ("g-1", "gpt-4o", {"title": "Drawing"}, 9)
    assert [entry.at for entry in entries(plan) if entry.message] == ["2023-11-14T22:13:20.500000Z"] * 4


@for_each("reader, value", EXPORTS)
@for_each("indent", [None, 1])
def test_each_conversation_comes_out_as_it_stood(reader, value, indent):
    """Its own bytes; what stands between conversations is nobody's. An only one has the whole document."""
    several = [value[0], {**value[0], "uuid": "another", "conversation_id": "another"}]
    source = json.dumps(several, indent=indent)
    for plan, conversation in zip(plans_of(reader, several, indent=indent), several, strict=True):
        assert json.loads(original(plan)) == conversation
        assert original(plan).decode() in source
    (only,) = plans_of(reader, value[:1], indent=indent)
    assert original(only).decode() == json.dumps(value[:1], indent=indent)


@pytest.mark.parametrize(("reader", "value"), EXPORTS)
def test_a_document_larger_than_what_is_read_at_once(reader, value, monkeypatch):
    """A text, an escape and a bracket may stand across two pieces."""
    monkeypatch.setattr("transcript_store.formats._document._READ_BYTES", 7)
    value = json.loads(json.dumps(value).replace("Thanks", 'a \\"{[ \\\\ b').replace("It is 1.", "\\\\\\\\"))
    for plan, conversation in zip(plans_of(reader, [*value, value[0]]), value, strict=False):
        assert json.loads(original(plan)) == conversation


@pytest.mark.parametrize(("reader", "value"), EXPORTS)
def test_a_document_that_is_cut_anywhere(reader, value):
    """Whole conversations are read. Of the last what is there is kept, and the finding says so."""
    data = json.dumps(value).encode()
    for end in range(200, len(data) - 1, 37):
        plans = list(reader.plans(Bytes(data[:end])))
        for plan in plans:
            assert_nothing_is_lost(plan)
        read = [plan for plan in plans if {finding.kind for finding in plan.findings} <= {"left-branch"}]
        assert len(plans) - len(read) <= 1


@pytest.mark.parametrize(("reader", "value"), EXPORTS)
def test_a_conversation_that_is_too_long_is_named(reader, value, monkeypatch):
    """The others are read all the same."""
    monkeypatch.setattr("transcript_store.formats._chat_exports.LONGEST_BYTES", 5000)
    long, other = plans_of(reader, [{**value[0], "padding": "x" * 5000}, value[0]])
    assert [finding.kind for finding in long.findings] == ["too-long"]
    assert entries(long) == []
    assert messages(other)


def test_a_circle_of_parents_ends():
    circle = [{**CHATGPT[0], "mapping": {**CHATGPT[0]["mapping"], "s": {**NODES[1], "parent": "a"}}}]
    (plan,) = plans_of(ChatGpt(), circle)
    assert [finding.kind for finding in plan.findings] == ["circle", "left-branch"]
    lost = [{**CHATGPT[0], "current_node": "../nobody"}]
    assert [finding.kind for finding in plans_of(ChatGpt(), lost)[0].findings] == ["no-leaf"]


def shown(name: str, parent: str, *parts: Any, **more: Any) -> dict[str, Any]:
    made = node(name, parent, "user", "", "multimodal_text", **more)
    made["message"]["content"]["parts"] = list(parts)
    return made


def tree(*nodes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**CHATGPT[0], "mapping": {value["id"]: value for value in nodes}, "current_node": nodes[-1]["id"]}]


def test_what_was_uploaded_to_chatgpt_and_said_aloud_is_named():
    """The names of files stood nowhere, and a turn that was only spoken was gone."""
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-2"}
    sound = {"content_type": "audio_asset_pointer", "asset_pointer": "sediment://file_x"}
    spoken = {
        "content_type": "real_time_user_audio_video_asset_pointer",
        "audio_asset_pointer": sound,
        "frames_asset_pointers": [],
    }
    nodes = [
        node("a", None, "user", "What is in it?", attachments=[{"id": "file-1", "name": "report.pdf"}]),
        shown("b", "a", picture, "And here?", attachments=[{"id": "file-2", "name": "cat.png"}]),
        shown("c", "b", spoken),
        node("d", "c", "user", "", attachments=[{"id": "file-3", "name": "b.csv"}]),
        node("e", "d", "assistant", "A table."),
    ]
    (plan,) = plans_of(ChatGpt(), tree(*nodes))
    assert [message["content"] for message in messages(plan)] == [
        "What is in it?",
        "[image_asset_pointer: cat.png, file-service://file-2]\nAnd here?",
        "[audio_asset_pointer: sediment://file_x]",
        "[file: b.csv]",
        "A table.",
    ]
    assert {loss.kind: loss.count for loss in plan.losses} == {"files": 2, "media": 2}


def thoughts(name: str, parent: str, *said: tuple[str, str], **more: Any) -> dict[str, Any]:
    thought = node(name, parent, "assistant", "", "thoughts", **more)
    thought["message"]["content"] = {
        "content_type": "thoughts",
        "thoughts": [{"summary": about, "content": text, "chunks": [], "finished": True} for about, text in said],
    }
    return thought


def test_what_chatgpt_thought_belongs_to_the_reply_that_follows():
    """To a call as well. Hidden thoughts, and those that no reply follows, stay events; no line is lost."""
    nodes = [
        node("u", None, "user", "What is it?"),
        thoughts("t1", "u", ("Looking", "I run it."), ("", "It is short.")),
        thoughts("h", "t1", ("Hidden", "x"), is_visually_hidden_from_conversation=True),
        node("call", "h", "assistant", "print(1)", "code", to="python"),
        thoughts("t2", "call", ("Reading", "")),
        node("out", "t2", "tool", "1", "execution_output", author="python"),
        thoughts("t3", "out", ("Answering", "It is one.")),
        node("recap", "t3", "assistant", "Thought for 3 s", "reasoning_recap"),
        node("a", "recap", "assistant", "It is 1."),
        thoughts("t4", "a", ("Stopped", "No reply.")),
        node("v", "t4", "user", "Thanks"),
        node("b", "v", "assistant", "You are welcome."),
    ]
    (plan,) = plans_of(ChatGpt(), tree(*nodes))
    assert [(message["role"], message.get("reasoning_content")) for message in messages(plan)] == [
        ("user", None),
        ("assistant", "Looking\nI run it.\nIt is short."),
        ("tool", None),
        ("assistant", "Reading\nAnswering\nIt is one."),
        ("user", None),
        ("assistant", None),
    ]


def test_a_tool_of_chatgpt_that_says_more_than_one_thing_gives_one_result():
    """A search says each file by itself: only the first was a result, and the others, it said, nobody had called."""
    asks = [
        node(name, before, "assistant", "{}", "code", to="file_search.msearch")
        for name, before in (("p", "u"), ("q", "p"))
    ]
    finds = [
        node(name, before, "tool", said, author="file_search")
        for name, before, said in (("1", "q", "one"), ("2", "1", "two"), ("3", "2", "three"))
    ]
    (plan,) = plans_of(
        ChatGpt(), tree(node("u", None, "user", "Look"), *asks, *finds, node("z", "3", "assistant", "There"))
    )
    assert [(said["tool_call_id"], said["content"]) for said in messages(plan) if said["role"] == "tool"] == [
        ("p", "one"),
        ("q", "two\nthree"),
    ]
    assert plan.losses == ()
    again = tree(
        node("u", None, "user", "Look"),
        node("t", "u", "tool", "x", author="python"),
        node("z", "t", "assistant", "?"),
    )
    assert [loss.kind for loss in plans_of(ChatGpt(), again)[0].losses] == ["no-call"]


@pytest.mark.parametrize("root", [None, "00000000-0000-4000-8000-000000000000", "00000000-0000-0000-0000-000000000000"])
def test_a_parent_that_is_not_there_is_told_and_cuts_nothing_off(root):
    """What stood before was events without a word. The first message names nobody, or the site's nobody."""
    first, *others = CLAUDE[0]["chat_messages"]
    first = {**first, "parent_message_uuid": root}
    (found,) = plans_of(ClaudeAi(), [{**CLAUDE[0], "chat_messages": [first, *others]}])[0].findings
    assert found.kind == "left-branch"
    others[2] = {**others[2], "parent_message_uuid": "gone"}
    (plan,) = plans_of(ClaudeAi(), [{**CLAUDE[0], "chat_messages": [first, *others]}])
    ((kind, told), *left) = [(finding.kind, finding.message) for finding in plan.findings]
    assert not left
    assert (kind, "m4 names a parent that is not there: it follows the message before it" in told) == (
        "dangling-parent",
        True,
    )
    texts = json.dumps(messages(plan))
    assert all(said in texts for said in ("Look for x", "It is there.", "Thanks", "You are welcome."))
    moved: list[Any] = [{**value, "parent": "gone"} if value["id"] == "u" else value for value in NODES[2:]]
    (other,) = plans_of(ChatGpt(), tree(*moved))
    assert [(finding.kind, "starts here" in finding.message) for finding in other.findings] == [
        ("dangling-parent", True),
        ("left-branch", False),
    ]
    assert len(messages(other)) == 4
    branch = node("left", "r", "assistant", "An answer that was left")
    (apart,) = plans_of(
        ChatGpt(), tree(branch, *moved)
    )  # a mapping has no order: what stands in front was not said before
    assert len(messages(apart)) == 4
    assert "was left" not in json.dumps(messages(apart))


def seconds_to_find_the_way(size: int) -> float:
    """CPU seconds for an export in which low messages name high ones whose parents are not there, above a block that was seen."""
    parents = [*(f"h{size - 1 - n}" for n in range(size)), *(f"b{n + 1}" for n in range(size)), *["gone"] * size, "b0"]
    ids = [f"{kind}{n}" for kind in "lbh" for n in range(size)]
    said = [
        {"uuid": own, "parent_message_uuid": parent, "sender": "human", "text": "x"}
        for own, parent in zip([*ids, "leaf"], parents, strict=True)
    ]
    source = Bytes(json.dumps([{"uuid": "c", "current_leaf_message_uuid": "leaf", "chat_messages": said}]).encode())
    began = time.process_time()
    (plan,) = ClaudeAi().plans(source)
    spent = time.process_time() - began
    assert len(plan.findings) == size + 1
    return spent


def test_parents_that_are_not_there_are_passed_in_linear_time():
    """From each of them it went down over all that was seen: 2 MB took 23 s."""
    for _ in range(3):  # whoever else works on the machine slows one down, and not all three
        small, large = seconds_to_find_the_way(500), seconds_to_find_the_way(4000)
        if large < 20 * small + 0.25:
            return
    pytest.fail(f"{small:.3f} s, and {large:.3f} s for eight times the messages")


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.integers(0, 5),
            st.sampled_from(["user", "assistant", "tool"]),
            st.sampled_from(["all", "python"]),
        ),
        max_size=6,
    )
)
def test_any_tree(shape):
    """Parents that are missing, that come later, or that are their own."""
    nodes = {f"n{own}": node(f"n{own}", f"n{parent}", role, "said", to=to) for own, parent, role, to in shape}
    plans_of(ChatGpt(), [{"create_time": 1, "mapping": nodes, "conversation_id": "x"}])


@few_or_many_seeds
@pytest.mark.parametrize(("reader", "value"), EXPORTS)
def test_it_keeps_the_contract_of_formats(reader, value, seeds):
    check_format(reader, [json.dumps(value).encode()], seeds=seeds)


@for_each(
    "told, document, sessions, kinds",
    [
        ("an object that is no conversation", b'[{"a": {"chat_messages": []}}]', 1, ["no-messages"]),
        ("a conversation within an array", b'[{"uuid": "c", "chat_messages": []}, [{"uuid": "d", "chat_messages": []}]]', 1, ["beside"]),
        ("a text and a number", b'[1, {"uuid": "c", "chat_messages": []}, {"uuid": "d", "chat_messages": []}, "x"]', 2, ["beside"] * 2),
        ("a conversation without a message", b'[{"uuid": "c", "chat_messages": []}]', 1, []),
        ("white space alone", b'\xef\xbb\xbf [ {"uuid": "c", "chat_messages": []} ,\r\n {"uuid": "d", "chat_messages": []}\t]\n', 2, []),
    ],
)  # fmt: skip
def test_f6_what_is_no_conversation_is_told(told: str, document: bytes, sessions: int, kinds: list[str]) -> None:
    """It became an empty conversation without a word, or was passed over in silence."""
    plans = list(ClaudeAi().plans(Bytes(document)))
    found = [finding for plan in plans for finding in plan.findings]
    assert (len(plans), [finding.kind for finding in found]) == (sessions, kinds), told
