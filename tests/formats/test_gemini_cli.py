"""Gemini CLI's sessions: the log of today, where the last line of an id counts, and the document of the versions before.

The lines have the members that the program itself wrote (0.61.0, against a server on loopback).
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.formats import of_others
from tests.formats.of_others import (
    Bytes,
    assert_nothing_is_lost,
    entries,
    few_or_many_seeds,
    lines,
    messages,
    original,
)
from transcript_store.formats import head_of
from transcript_store.formats._gemini_cli import GeminiCli, GeminiCliWriter
from transcript_store.testing import check_format

HEAD = {
    "sessionId": "6b35bf73-e193-4ed3-9af0-5485cb74ab78",
    "projectHash": "73c1",
    "startTime": "2026-11-23T06:32:50.784Z",
    "lastUpdated": "2026-11-23T06:32:50.784Z",
    "kind": "main",
}
CONTEXT = {"id": "c", "timestamp": "t0", "type": "user", "content": [{"text": "<session_context>\nToday is Monday"}]}
ASKED = {"id": "u", "timestamp": "t1", "type": "user", "content": [{"text": "Say what is here"}]}
REPLY: dict[str, Any] = {
    "id": "g",
    "timestamp": "t2",
    "type": "gemini",
    "content": "Let me list.",
    "thoughts": [{"subject": "Plan", "description": "look around", "timestamp": "t2"}],
    "tokens": {"input": 50, "output": 9, "cached": 0, "thoughts": 3, "tool": 0, "total": 59},
    "model": "gemini-3.8-flash",
}
RESULT = {"functionResponse": {"id": "call", "name": "ls", "response": {"output": "a.txt"}}}
CALLED = {
    **REPLY,
    "toolCalls": [{"id": "call", "name": "ls", "args": {"path": "."}, "result": [RESULT], "status": "success"}],
}
ANSWERED = {"id": "r", "timestamp": "t3", "type": "user", "content": [RESULT]}
DONE = {
    "id": "d",
    "timestamp": "t4",
    "type": "gemini",
    "content": "All good.",
    "thoughts": [],
    "model": "gemini-3.8-flash",
}
UPDATED = {"$set": {"lastUpdated": "2026-11-23T06:32:50.810Z"}}
SESSION = [HEAD, {"$set": {"messages": [CONTEXT]}}, ASKED, UPDATED, REPLY, UPDATED, CALLED, ANSWERED, DONE]

CALL_PART = {"functionCall": {"id": "call", "name": "ls", "args": {"path": "."}}}
THOUGHT = {"text": "**Plan** look around", "thought": True}


plan_of = partial(of_others.plan_of, GeminiCli())


def test_a_session_is_what_was_sent():
    """Thoughts, text and calls are one reply, at the place of its first line; the last line of its id counts."""
    plan = plan_of(*SESSION)
    assert plan.session == HEAD["sessionId"]
    assert (plan.provider, plan.model, len(plan.generations)) == ("gemini", "gemini-3.8-flash", 1)
    assert messages(plan) == [
        {"role": "user", "parts": CONTEXT["content"]},
        {"role": "user", "parts": ASKED["content"]},
        {"role": "model", "parts": [THOUGHT, {"text": "Let me list."}, CALL_PART]},
        {"role": "user", "parts": [RESULT]},
        {"role": "model", "parts": [{"text": "All good."}]},
    ]
    reply = next(entry for entry in entries(plan) if entry.at == "t2")
    assert reply.lines == (5, 7)
    assert reply.extra["usage"]["promptTokenCount"] == 50
    assert entries(plan)[2].extra["scaffolding"] is True


def test_results_that_stand_only_with_the_call_become_a_turn():
    """Older versions wrote no message of results."""
    plan = plan_of(HEAD, ASKED, CALLED, DONE)
    assert messages(plan)[2] == {"role": "user", "parts": [RESULT]}
    plain = {**CALLED, "toolCalls": [{"id": "call", "name": "ls", "args": {}, "result": "a.txt"}]}
    assert messages(plan_of(HEAD, ASKED, plain))[2] == {"role": "user", "parts": [RESULT]}


def test_results_that_are_written_twice_are_sent_once():
    """The incident: 0.61.0 writes them again when it resumes, and the API refuses two results of one call."""
    again = {**ASKED, "id": "again", "content": [RESULT]}
    plan = plan_of(HEAD, ASKED, CALLED, again, {**again, "id": "and again"}, DONE)
    assert messages(plan).count({"role": "user", "parts": [RESULT]}) == 1
    assert len(messages(plan)) == 4
    assert [entry.lines for entry in entries(plan) if entry.message is None][-1] == (5,)


def test_a_rewind_is_a_generation():
    """It takes over what stood before the message that it names; what was said there stays on record in the one before."""
    plan = plan_of(
        HEAD, ASKED, DONE, {**ASKED, "id": "u2"}, {"$rewindTo": "u2"}, {**ASKED, "id": "u3", "content": "Else"}
    )
    assert len(plan.generations) == 2
    assert len(messages(plan, 0)) == 3
    assert messages(plan, 1) == [*messages(plan, 0)[:2], {"role": "user", "parts": [{"text": "Else"}]}]


def test_a_rewind_to_what_is_not_there_takes_everything_back():
    plan = plan_of(HEAD, ASKED, DONE, {"$rewindTo": "nobody"}, {**ASKED, "id": "u2"})
    assert [len(messages(plan, n)) for n in range(2)] == [2, 1]


def test_messages_that_are_set_replace_those_before():
    """Unless they only go on: the program also sets what it has."""
    plan = plan_of(HEAD, ASKED, DONE, {"$set": {"messages": [ASKED, DONE, {**ASKED, "id": "more"}]}})
    assert [len(messages(plan, n)) for n in range(len(plan.generations))] == [3]
    plan = plan_of(HEAD, ASKED, DONE, {"$set": {"messages": [{**ASKED, "id": "summary"}]}})
    assert [len(messages(plan, n)) for n in range(len(plan.generations))] == [2, 1]


def test_the_document_of_the_versions_before():
    """Its bytes come out again, indented as they were."""
    whole = {
        **HEAD,
        "messages": [ASKED, CALLED, {"id": "i", "type": "info", "content": "Update available"}, DONE],
        "summary": "S",
    }
    source = Bytes(json.dumps(whole, indent=2).encode())
    assert GeminiCli().recognizes(head_of(source))
    (plan,) = GeminiCli().plans(source)
    assert_nothing_is_lost(plan)
    assert original(plan) == source.data
    assert plan.labels == {"title": "S"}
    assert (plan.lines, len(messages(plan))) == (5, 4)


def test_a_document_may_begin_with_blanks_and_a_byte_order_mark():
    """A blank before the bracket made 60 lines that are no JSON of it."""
    for before in (b" ", b"\n\n\t", b"\xef\xbb\xbf \r\n"):
        source = Bytes(before + json.dumps({**HEAD, "messages": [ASKED, DONE]}, indent=2).encode())
        assert GeminiCli().recognizes(head_of(source))
        (plan,) = GeminiCli().plans(source)
        assert_nothing_is_lost(plan)
        assert original(plan) == source.data
        assert (plan.findings, len(messages(plan))) == ((), 2)


def test_a_document_that_is_cut_is_kept_and_said():
    (plan,) = GeminiCli().plans(Bytes(b'{\n "sessionId": "s", "projectHash": "p", "messages": [{"id": '))
    assert_nothing_is_lost(plan)
    assert [finding.kind for finding in plan.findings] == ["not-json"]


def test_a_document_that_is_too_long_is_named(monkeypatch):
    monkeypatch.setattr("transcript_store.formats._lines.LONGEST_BYTES", 50)
    (plan,) = GeminiCli().plans(Bytes(json.dumps({**HEAD, "messages": [ASKED]}, indent=2).encode()))
    assert_nothing_is_lost(plan)
    assert [finding.kind for finding in plan.findings] == ["too-long"]


def test_a_document_that_has_its_messages_twice_is_kept_and_said():
    """The last one counts, as for the program itself. It was said that no message was read, and that was not so."""
    said = json.dumps({**HEAD, "messages": [ASKED]}, indent=2)
    source = Bytes((said[:-2] + ',\n  "messages": ' + json.dumps([DONE]) + "\n}").encode())
    assert GeminiCli().recognizes(head_of(source))
    (plan,) = GeminiCli().plans(source)
    assert_nothing_is_lost(plan)
    assert original(plan) == source.data
    ((kind, line, offset, message),) = [(one.kind, one.line, one.offset, one.message) for one in plan.findings]
    assert (kind, line, offset, messages(plan)) == (
        "twice",
        1,
        0,
        [{"role": "model", "parts": [{"text": "All good."}]}],
    )
    assert "the last of the two were read" in message


NESTED = "[" * 100_000 + "]" * 100_000


def test_a_document_that_is_nested_too_deep_is_kept_and_said():
    said = json.dumps({**HEAD, "messages": [ASKED, {**DONE, "content": "HERE"}]}, indent=2)
    source = Bytes(said.replace('"HERE"', NESTED).encode())
    (plan,) = GeminiCli().plans(source)
    assert_nothing_is_lost(plan)
    assert original(plan) == source.data
    assert [(one.kind, one.line, one.offset) for one in plan.findings] == [("too-deep", 1, 0)]
    assert "import the file again" in plan.findings[0].message


STEPS = st.lists(
    st.one_of(
        st.builds(lambda n: {**ASKED, "id": str(n)}, st.integers(0, 4)),
        st.builds(lambda n: {**CALLED, "id": str(n)}, st.integers(0, 4)),
        st.builds(lambda n: {"$rewindTo": str(n)}, st.integers(0, 5)),
        st.builds(
            lambda ns: {"$set": {"messages": [{**ASKED, "id": str(n)} for n in ns]}}, st.lists(st.integers(0, 4))
        ),
        st.just(UPDATED),
    ),
    max_size=12,
)


@given(STEPS, st.integers(0, 200))
def test_any_order_of_lines_cut_anywhere(steps, cut):
    """Each whole line is accounted for, and the bytes come out again."""
    data = lines(HEAD, *steps)
    source = Bytes(data[: max(len(lines(HEAD)), len(data) - cut)])
    (plan,) = GeminiCli().plans(source)
    assert_nothing_is_lost(plan)
    assert original(plan) == source.data


def test_the_directory_is_the_path_in_the_scene_that_has_the_hash_of_the_project():
    """The file has no other trace of it (0.61.0). A path that only looks like it is not taken."""
    scene = (
        "<session_context>\nThis is the Gemini CLI.\nThe project's temporary directory is: /home/me/.gemini/tmp/work\n"
        "- **Workspace Directories:**\n  - /home/me/other\n  - /home/me/work\n- **Directory Structure:**\n</session_context>"
    )
    said = {**CONTEXT, "content": [{"text": scene}]}
    known = {**HEAD, "projectHash": hashlib.sha256(b"/home/me/work").hexdigest()}
    assert plan_of(known, said).labels["cwd"] == "/home/me/work"
    assert plan_of(known, {"$set": {"messages": [said]}}).labels["cwd"] == "/home/me/work"
    assert "cwd" not in plan_of(HEAD, said).labels
    assert "cwd" not in plan_of(known, {**said, "content": [{"text": "/home/me/work"}]}).labels, "the user wrote it"


@few_or_many_seeds
def test_it_keeps_the_contract_of_formats(seeds):
    check_format(
        GeminiCli(),
        [lines(*SESSION), json.dumps({**HEAD, "messages": [ASKED, CALLED]}).encode()],
        GeminiCliWriter(),
        seeds=seeds,
    )
