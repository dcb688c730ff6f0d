"""omp: pi's entries behind a line of the title, and results that the program replaces in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.formats.of_others import few_or_many_seeds, lines
from tests.formats.of_programs import READER, by_prompt, made, plan_of_bytes, plans_at, said
from tests.importing.helpers import imported
from transcript_store import ConversationLibrary
from transcript_store.testing import check_format

READ = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "notes.txt"}}
SUPERSEDED = "[Superseded by a newer read of this file]"


def entry(id: str, parent: str | None, kind: str = "message", **more: Any) -> dict[str, Any]:
    return {"type": kind, "id": id, "parentId": parent, "timestamp": "2026-11-27T09:57:00.000Z", **more}


def reply(id: str, parent: str, *content: Any, **more: Any) -> dict[str, Any]:
    about = {"api": "openai-completions", "provider": "p", "model": "large", "usage": {"input": 8, "output": 2}}
    return entry(
        id, parent, message={"role": "assistant", "content": [*content], **about, "stopReason": "stop", **more}
    )


def result(id: str, parent: str, text: str, *, failed: bool = False, **more: Any) -> dict[str, Any]:
    about = {"toolCallId": "c1", "toolName": "read", "isError": failed}
    return entry(
        id, parent, message={"role": "toolResult", "content": [{"type": "text", "text": text}], **about, **more}
    )


def user(id: str, parent: str | None, text: str, role: str = "user") -> dict[str, Any]:
    return entry(id, parent, message={"role": role, "content": [{"type": "text", "text": text}]})


def session(title: str = "", answer: str = "apples: 3\npears: 5", **header: Any) -> bytes:
    started = {"toolCallId": "c1", "toolName": "read"}
    return lines(
        {"type": "title", "v": 1, "title": title, "updatedAt": "2026-11-27T09:57:00.000Z", "pad": " " * 80},
        {"type": "session", "version": 3, "id": "s-1", "cwd": "/home/ada/garden", "title": "Old", **header},
        entry("m", None, "model_change", model="p/large"),
        user("1", "m", "What is in the notes?"),
        reply("2", "1", {"type": "thinking", "thinking": "I read.", "thinkingSignature": "reasoning_content"}, READ),
        entry("3", "2", "custom", customType="tool_execution_start", data=started),
        result("4", "3", answer, failed=answer.startswith("No")),
        entry("5", "4", "title_change", title="Fruit", source="auto"),
        reply("6", "5", {"type": "text", "text": "Apples and pears."}),
        user("7", "6", "<system-reminder>\nYou are idle.\n</system-reminder>", "developer"),
    )


@few_or_many_seeds
def test_the_contract(seeds):
    check_format(READER["omp"], [session(), session("Fruit count", titleSource="user")], seeds=seeds)


def test_a_complete_session_is_read():
    plan = plan_of_bytes("omp", session())
    assert said(plan) == [
        "user: What is in the notes?",
        "assistant: (I read.) read#c1{'path': 'notes.txt'}",
        "#c1: apples: 3\npears: 5",
        "assistant: Apples and pears.",
        "*user: <system-reminder>\nYou are idle.\n</system-reminder>",
    ]
    assert (plan.model, plan.labels) == ("large", {"title": "Fruit", "cwd": "/home/ada/garden"})


def test_the_line_of_the_title_counts_before_all_others():
    """It is rewritten in place, while the header keeps the title that the session began with."""
    assert plan_of_bytes("omp", session("Fruit count")).labels["title"] == "Fruit count"


def test_a_failed_call_is_told_as_failed():
    assert "#c1 failed: No such file" in said(plan_of_bytes("omp", session(answer="No such file")))


def test_a_fork_has_the_id_of_its_parent_and_a_helper_its_path():
    forked = plan_of_bytes("omp", session(parentSession="s-0"))
    assert (forked.labels["forked_from"], "part_of" in forked.labels) == ("s-0", False)
    helper = plan_of_bytes(
        "omp", session(parentSession="/home/ada/.omp/agent/sessions/-garden/2026-11-27T09_s-0.jsonl")
    )
    assert (helper.labels["part_of"], "forked_from" in helper.labels) == ("s-0", False)


def test_a_result_that_the_program_replaced_stays_in_the_earlier_generation(tmp_path: Path):
    """When a file is read again, omp overwrites the earlier result in its own session file."""
    library = ConversationLibrary(tmp_path / "library")
    file = tmp_path / "session.jsonl"
    file.write_bytes(session())
    first = imported(file, library)
    file.write_bytes(session(answer=SUPERSEDED) + lines(user("8", "7", "And now?")))
    second = imported(file, library)
    assert (first.action, second.action, second.id) == ("created", "replaced", first.id)
    assert first.id is not None
    with library.open(first.id, read_only=True) as store:
        now = [record.message["content"] for record in store.iter_records() if record.message]
        before = [record.message["content"] for record in store.get_records(generation=0) if record.message]
    assert SUPERSEDED in now
    assert "apples: 3\npears: 5" in before
    assert imported(file, library).action == "unchanged"


def test_what_18_2_3_wrote():
    paths = made("omp", "18.2.3")
    (again,) = by_prompt(paths, "#tools Read the notes")
    assert sum(SUPERSEDED in one for one in said(again)) == 2
    assert again.provider == "claude"  # it was resumed with a model of Anthropic's API
    compacted = next(plan for plan in by_prompt(paths, "#short Hello.") if "forked_from" not in plan.labels)
    assert (len(compacted.generations), compacted.labels["title"]) == (2, "Fruit count")
    (stopped,) = by_prompt(paths, "#slow Tell another story.")
    assert said(stopped)[-1].startswith("assistant: word0 word1")
    (killed,) = by_prompt(paths, "#hang")
    assert "bash#" in said(killed)[-1]  # the call, and no result that nobody gave
    helpers = [plan for path in paths for plan in plans_at(path) if "part_of" in plan.labels]
    assert helpers
    assert all(plan.labels["part_of"] for plan in helpers)
    pictured = [one for path in paths for plan in plans_at(path) for one in said(plan) if "[image/" in one]
    assert len(pictured) == 1
