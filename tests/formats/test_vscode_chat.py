"""Copilot chat of Visual Studio Code: a document, or a log of operations on one. Made here from its sources; it was not run."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.formats.of_others import Bytes, few_or_many_seeds, lines
from tests.formats.of_programs import READER, plan_of_bytes, said
from tests.importing.helpers import imported
from transcript_store import ConversationLibrary
from transcript_store.formats import head_of
from transcript_store.formats._vscode_chat import applied
from transcript_store.testing import check_format
from transcript_store.testing._format_samples import JUNK

INVOKED = {
    "kind": "toolInvocationSerialized",
    "toolCallId": "t1",
    "toolId": "copilot_readFile",
    "invocationMessage": {"value": "Reading"},
    "pastTenseMessage": {"value": "Read"},
    "isComplete": True,
    "isConfirmed": {"type": 1},
}
RESULT = {
    "metadata": {
        "toolCallRounds": [{"toolCalls": [{"id": "t1", "name": "read_file", "arguments": '{"path": "notes.txt"}'}]}],
        "toolCallResults": {"t1": {"content": [{"value": "apples: 3"}]}},
    }
}
PARTS = [
    {"kind": "thinking", "value": "I should look."},
    {"value": "I look."},
    INVOKED,
    {"kind": "undoStop", "id": "1"},
    {"value": "Apples, see "},
    {"kind": "inlineReference", "inlineReference": {"path": "/home/ada/notes.txt"}},
]
SAID = [
    "user: What is in it?",
    "assistant: (I should look.) I look. read_file#t1{'path': 'notes.txt'}",
    "#t1: apples: 3",
    "assistant: Apples, see `notes.txt`",
]


def request(number: int, text: str, response: list[Any], **more: Any) -> dict[str, Any]:
    about = {
        "requestId": f"r{number}",
        "timestamp": 1795773000000 + number * 60_000,
        "message": {"text": text, "parts": []},
    }
    return {**about, "variableData": {"variables": []}, "response": response, "modelId": "copilot/gpt-5", **more}


ASKED = request(1, "What is in it?", PARTS, result=RESULT, promptTokens=100, completionTokens=20)
CANCELLED = request(2, "And the nuts?", [{"value": "No"}], modelState={"value": 2})
ABOUT = {"version": 3, "creationDate": 1795773000000, "initialLocation": "panel", "responderUsername": "GitHub Copilot"}


def document(*requests: Any) -> bytes:
    return json.dumps({**ABOUT, "requests": [*requests], "sessionId": "s-1", "customTitle": "Fruit"}, indent=1).encode()


def log(*operations: Any) -> bytes:
    return lines({"kind": 0, "v": {**ABOUT, "sessionId": "s-1", "requests": []}}, *operations)


def push(path: list[Any], *values: Any, kept: int | None = None) -> dict[str, Any]:
    return {"kind": 2, "k": path, "v": [*values], **({} if kept is None else {"i": kept})}


LOG = log(
    push(["requests"], {**ASKED, "response": [], "result": None}),
    push(["requests", 0, "response"], *PARTS[:2]),
    push(["requests", 0, "response"], *PARTS[2:]),
    {"kind": 1, "k": ["requests", 0, "result"], "v": RESULT},
    {"kind": 1, "k": ["customTitle"], "v": "Fruit"},
    push(["requests"], request(2, "And the plums?", [{"value": "None."}])),
    {"kind": 3, "k": ["requests", 1, "vote"]},
    push(["requests"], CANCELLED, kept=1),
)


@few_or_many_seeds
def test_the_contract(seeds):
    check_format(READER["vscode-chat"], [document(ASKED, CANCELLED), LOG], seeds=seeds // 3)


def test_a_document_as_it_was_shown():
    plan = plan_of_bytes("vscode-chat", document(ASKED, CANCELLED))
    assert said(plan) == [*SAID, "user: And the nuts?", "assistant: No"]
    assert (plan.model, plan.labels) == ("copilot/gpt-5", {"title": "Fruit"})
    extras = [entry.extra for entry in plan.generations[0]()]
    assert {"prompt_tokens": 100, "completion_tokens": 20} in [extra.get("usage") for extra in extras]
    assert extras[-1]["stop_reason"] == "cancelled"


def test_a_log_ends_as_the_document_and_what_was_retracted_is_a_generation():
    plan = plan_of_bytes("vscode-chat", LOG)
    assert said(plan, 0) == [*SAID, "user: And the plums?", "assistant: None."]
    assert said(plan) == [*SAID, "user: And the nuts?", "assistant: No"]
    assert [finding.kind for finding in plan.findings] == ["left-branch"]


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({**INVOKED, "isConfirmed": False, "pastTenseMessage": "Denied"}, "#t1 failed: apples: 3"),
        ({**INVOKED, "resultDetails": {"isError": True}}, "#t1 failed: apples: 3"),
        ({**INVOKED, "isComplete": False}, "#t1: apples: 3"),
    ],
)
def test_how_a_call_ended(part, told):
    assert said(plan_of_bytes("vscode-chat", document(request(1, "?", [part], result=RESULT))))[-1] == told


def test_a_call_without_an_end_has_no_result():
    running = {**INVOKED, "isComplete": False, "pastTenseMessage": None}
    assert said(plan_of_bytes("vscode-chat", document(request(1, "?", [running]))))[-1].startswith("assistant: copilot")


def test_an_operation_that_fits_nothing_is_told_and_kept():
    plan = plan_of_bytes(
        "vscode-chat", LOG + lines(push(["requests", 9, "response"], 1), {"kind": 1, "k": [[]], "v": 0})
    )
    assert [(finding.kind, finding.line) for finding in plan.findings[:2]] == [
        ("bad-operation", 10),
        ("bad-operation", 11),
    ]
    assert said(plan)[:4] == SAID


def test_any_operation_on_any_object_raises_nothing():
    values = [*JUNK, {"a": [{}]}, [[1], {"b": 2}]]
    steps = ["a", "b", 0, 1, -1, 10**30, None, True, "requests"]
    for seed in range(2000):
        choose = random.Random(seed)
        state = {"requests": copy.deepcopy(choose.choice(values)), "a": [{"b": [1, {"a": []}]}]}
        path = [choose.choice(steps) for _ in range(choose.randint(0, 4))]
        kept = choose.choice([None, 0, 1, -1, 10**30, "x"])
        applied(state, {"kind": choose.randint(-1, 4), "k": path, "v": choose.choice(values), "i": kept})


def test_a_log_grows_and_has_its_folder_beside_it(tmp_path: Path):
    library = ConversationLibrary(tmp_path / "library")
    (tmp_path / "w/chatSessions").mkdir(parents=True)
    (tmp_path / "w/workspace.json").write_text('{"folder": "file:///home/ada/my%20garden"}')
    file = tmp_path / "w/chatSessions/s-1.jsonl"
    file.write_bytes(log(push(["requests"], ASKED)))
    first = imported(file, library)
    file.write_bytes(log(push(["requests"], ASKED), push(["requests"], CANCELLED)))
    grown = imported(file, library)
    assert (first.action, grown.action, grown.id, grown.messages) == ("created", "grew", first.id, 6)
    assert imported(file, library).action == "unchanged"
    assert grown.id is not None
    with library.open(grown.id, read_only=True) as store:
        assert store.get_metadata().labels["cwd"] == "/home/ada/my garden"
    file.write_bytes(log(push(["requests"], ASKED), push(["requests"], CANCELLED), {**push(["requests"], kept=1)}))
    back = imported(file, library)
    assert (back.action, back.messages) == ("grew", len(SAID))
    with library.open(grown.id, read_only=True) as store:
        assert sum(record.message is not None for record in store.get_records(generation=0)) == len(SAID) + 2


def test_a_picture_is_in_the_prompt():
    seen = {"kind": "image", "name": "a.png", "mimeType": "image/png", "value": {"$base64": "aGk="}}
    asked = {**ASKED, "variableData": {"variables": [seen, {"kind": "image", "name": "b.png", "value": {}}]}}
    assert said(plan_of_bytes("vscode-chat", document(asked)))[0] == "user: What is in it? [image/png] [image: b.png]"


def test_a_log_without_its_beginning_is_no_chat():
    assert not READER["vscode-chat"].recognizes(head_of(Bytes(lines(push(["a"], 1)))))
