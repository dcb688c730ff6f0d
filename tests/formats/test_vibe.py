"""Mistral Vibe: messages a line in version 2; in version 3 a folder with what the person saw, what the model is sent, and a journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.formats.of_others import few_or_many_seeds, lines
from tests.formats.of_programs import READER, by_prompt, made, plan_of_bytes, said
from tests.importing.helpers import imported
from transcript_store import ConversationLibrary
from transcript_store.importing import import_conversations
from transcript_store.testing import check_format

CALL = {"id": "c1", "function": {"name": "read_file", "arguments": '{"path": "missing.txt"}'}, "type": "function"}
SECOND = [
    {"role": "user", "content": "Read it.", "injected": False, "message_id": "m1"},
    {
        "role": "assistant",
        "content": "I read.",
        "injected": False,
        "reasoning_content": "Hm.",
        "tool_calls": [CALL],
        "message_id": "m2",
    },
    {
        "role": "tool",
        "content": "<tool_error>not found</tool_error>",
        "injected": False,
        "name": "read_file",
        "tool_call_id": "c1",
    },
    {"role": "user", "content": "Go on.", "injected": True, "message_id": "m3"},
    {"role": "assistant", "content": "It is missing.", "injected": False, "message_id": "m4"},
]
SAID = [
    "user: Read it.",
    "assistant: (Hm.) I read. read_file#c1{'path': 'missing.txt'}",
    "#c1 failed: <tool_error>not found</tool_error>",
    "*user: Go on.",
    "assistant: It is missing.",
]


def text(said: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": said}]


def shown(number: int, of: str, **more: Any) -> dict[str, Any]:
    about = {"id": f"e{number}", "sessionId": "s-1", "createdAt": 1795773727000 + number * 1000}
    return {"type": of, **about, "generationStatus": "completed", **more}


def sent(turn: int, role: str, content: list[Any], source: str = "history", **more: Any) -> dict[str, Any]:
    return {"source": source, "turn_index": turn, "message": {"role": role, "content": content, **more}}


def effect(number: int, name: str, state: dict[str, Any]) -> dict[str, Any]:
    return shown(number, "effect", detail={"toolName": name, "input": {"path": "a"}}, state=state)


PROJECTION = [
    shown(0, "message", role="user", content=text("Before?")),
    effect(1, "fs.read", {"status": "failed", "error": {"message": "no file"}}),
    shown(2, "message", role="assistant", content=text("No.")),
    shown(3, "checkpoint", kind="compaction", message="Context compacted"),
    shown(4, "message", role="user", content=text("And after?")),
    shown(5, "reasoning", text="Hm."),
    shown(6, "message", role="assistant", content=text("I look.")),
    shown(7, "message", role="user", content=text("A story.")),
    shown(
        8, "message", role="assistant", content=text("Once upon"), outcome={"type": "discarded", "cause": "interrupt"}
    ),
]
CHECKPOINT = [
    sent(0, "user", text("The summary: nothing."), "injection"),
    sent(1, "user", text("And after?")),
    sent(
        1,
        "assistant",
        [
            {"type": "reasoning", "content": text("Hm.")},
            *text("I look."),
            {"type": "tool_call", "id": "c9", "name": "no_such_tool", "arguments": {"type": "json", "value": {"x": 1}}},
        ],
    ),
    sent(1, "tool", text("unsupported tool"), name="no_such_tool", tool_call_id="c9", outcome="failure"),
    sent(2, "user", text("A story.")),
]


def journal(sequence: int, kind: str, **payload: Any) -> dict[str, Any]:
    return {"sequence": sequence, "type": kind, "payload": payload, "recovery_journal_record_version": 1}


KILLED = [
    journal(1, "command_reserved", method="turn/start", client_command_id="turn-1", params={"message": text("Wait."), "sessionId": "s-2"}),
    journal(2, "projection_delta", delta=[{"op": "append_entry", "entry": {**effect(1, "fs.bash", {"status": "running"}), "sessionId": "s-2"}}]),
]  # fmt: skip


@few_or_many_seeds
def test_the_contract(seeds):
    check_format(
        READER["mistral-vibe"], [lines(*SECOND), lines(*PROJECTION, *CHECKPOINT), lines(*KILLED)], seeds=seeds // 2
    )


def test_a_complete_session_of_version_2_is_read():
    assert said(plan_of_bytes("mistral-vibe", lines(*SECOND))) == SAID


def test_a_session_that_is_continued_in_a_copy_is_one(tmp_path: Path):
    """``vibe -c`` copies all lines into another folder, with another id: one of the two is how the other begins."""
    library = ConversationLibrary(tmp_path / "library")
    (tmp_path / "logs/a").mkdir(parents=True)
    (tmp_path / "logs/b").mkdir()
    (tmp_path / "logs/a/messages.jsonl").write_bytes(lines(*SECOND))
    (tmp_path / "logs/b/messages.jsonl").write_bytes(
        lines(*SECOND, {"role": "user", "content": "And?", "injected": False, "message_id": "m5"})
    )
    about = {"title": "Missing", "environment": {"working_directory": "/home/ada/garden"}, "git_branch": "main"}
    (tmp_path / "logs/b/meta.json").write_text(json.dumps({**about, "config": {"active_model": "large"}}))
    first, second = import_conversations([tmp_path / f"logs/{name}/messages.jsonl" for name in "ab"], library)
    assert (first.action, second.action, second.id) == ("created", "grew", first.id)
    assert imported(tmp_path / "logs/a/messages.jsonl", library).action == "unchanged"
    assert second.id is not None
    with library.open(second.id, read_only=True) as store:
        labels = store.get_metadata().labels
    assert (labels["title"], labels["cwd"], labels["git_branch"]) == ("Missing", "/home/ada/garden", "main")


def test_version_3_has_the_turns_of_the_checkpoint_and_those_that_only_the_person_saw():
    plan = plan_of_bytes("mistral-vibe", lines(*PROJECTION, *CHECKPOINT))
    assert said(plan, 0) == [
        "user: Before?",
        "assistant: fs.read#e1{'path': 'a'}",
        "#e1 failed: no file",
        "assistant: No.",
    ]
    assert said(plan) == [
        "*user: The summary: nothing.",
        "user: And after?",
        "assistant: (Hm.) I look. no_such_tool#c9{'x': 1}",
        "#c9 failed: unsupported tool",  # which the person did not see
        "user: A story.",
        "assistant: Once upon",  # which the model is not sent
    ]


def test_a_turn_that_was_killed_is_read_from_the_journal():
    plan = plan_of_bytes("mistral-vibe", lines(*KILLED))
    assert (plan.session, said(plan)) == ("s-2", ["user: Wait.", "assistant: fs.bash#e1{'path': 'a'}"])


def unified(folder: Path, projection: list[Any], checkpoint: list[Any]) -> Path:
    for name in ("generations/7", "chunks", "journal"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "chunks/p.json").write_text(json.dumps(projection))
    (folder / "chunks/c.json").write_text(json.dumps(checkpoint))
    manifest = {
        "projection_state": {"chunks": ["p"]},
        "checkpoint": {"chunks": ["c", "../../../secret"]},
        "recovery_journal_segment": {"path": "journal/8.jsonl"},
    }
    (folder / "generations/7/manifest.json").write_text(json.dumps(manifest))
    (folder / "generations/7/checkpoint.json").write_text(json.dumps({"checkpoint_version": 1}))
    (folder / "journal/8.jsonl").write_text("")
    (folder / "meta.json").write_text(json.dumps({"title": "Fruit count"}))
    (folder / "CURRENT").write_text(json.dumps({"generation": "7"}))
    return folder / "CURRENT"


def test_a_folder_of_version_3_is_read_by_what_it_names_and_grows(tmp_path: Path):
    """What a foreign file says is no path: a chunk outside the folder is not read."""
    library = ConversationLibrary(tmp_path / "library")
    (tmp_path / "secret.json").write_text(json.dumps(CHECKPOINT))
    first = imported(unified(tmp_path / "unified/s-1", PROJECTION[:3], []), library)
    assert (first.action, first.title, first.messages) == ("created", "Fruit count", 4)
    both = PROJECTION[:3], [sent(0, "user", text("Before?"))]
    assert imported(unified(tmp_path / "unified/s-1", *both), library).action in ("grew", "unchanged")
    more = [*PROJECTION[:3], shown(4, "message", role="user", content=text("And?"))]
    grown = imported(unified(tmp_path / "unified/s-1", more, both[1]), library)
    assert (grown.action, grown.id, grown.messages) == ("grew", first.id, 5)
    assert imported(tmp_path / "unified/s-1/CURRENT", library).action == "unchanged"


def test_what_2_11_1_and_3_0_3_wrote():
    (second,) = {plan.session: plan for plan in by_prompt(made("mistral-vibe", "2.11.1"), "#tools")}.values()
    assert len([one for one in said(second) if " failed: <tool_error>" in one]) == 2
    new = made("mistral-vibe", "3.0.3")
    (tools,) = by_prompt(new, "#tools Read")
    assert [one.split(":")[0] for one in said(tools) if " failed" in one] == [
        "#call_0004_0 failed",
        "#call_0004_1 failed",
    ]
    (compacted,) = by_prompt(new, "#tools Do it all.")
    assert (len(compacted.generations), compacted.labels["title"]) == (2, "Fruit count")
    assert any(one.startswith("assistant: word0 word1") for one in said(compacted))
    (killed,) = by_prompt(new, "#hang Wait a while.")
    assert said(killed)[-1].endswith(
        "file_system.bash#effect-bf8447c9-43ed-5c04-9303-e6d28124a0b7{'command': 'sleep 45'}"
    )
    (unanswered,) = by_prompt(new, "#slow Tell a long story.")
    assert len(said(unanswered)) == 1


def test_a_part_that_is_missing_is_not_passed_over(tmp_path: Path):
    """Nothing is imported of it, and what was imported before stays as it was."""
    library = ConversationLibrary(tmp_path / "library")
    anchor = unified(tmp_path / "s-1", PROJECTION[:3], [])
    first = imported(anchor, library)
    (tmp_path / "s-1/chunks/p.json").unlink()
    (tmp_path / "s-1/chunks/p.json").symlink_to(tmp_path / "elsewhere.json")
    (tmp_path / "elsewhere.json").write_text("[]")
    report = imported(anchor, library)
    assert (report.action, "its part chunks/p.json" in str(report.reason)) == ("refused", True)
    assert first.id is not None
    with library.open(first.id, read_only=True) as store:
        assert len(store.get_messages()) == 4
