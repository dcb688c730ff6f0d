"""OpenHands: a conversation is a folder of events, a file each, and what came of a call stands where it was done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.formats.of_others import few_or_many_seeds, lines
from tests.formats.of_programs import READER, by_prompt, made, plan_of_bytes, plans_at, said
from tests.importing.helpers import imported
from transcript_store import ConversationLibrary
from transcript_store.exporting import export
from transcript_store.importing import import_conversations
from transcript_store.sources import find_sources
from transcript_store.testing import check_format


def event(number: int, kind: str, source: str = "agent", **more: Any) -> dict[str, Any]:
    return {"id": f"e{number}", "timestamp": f"2026-11-27T10:03:{number:02}.5", "source": source, **more, "kind": kind}


def message(number: int, source: str, text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    about = {"role": "user" if source == "user" else "assistant", "content": content, **more}
    return event(number, "MessageEvent", source, llm_message=about, llm_response_id=f"r{number}")


def action(number: int, call: str, name: str, response: str, **more: Any) -> dict[str, Any]:
    given = {"id": call, "name": name, "arguments": '{"a": 1}', "origin": "completion"}
    about = {"tool_name": name, "tool_call_id": call, "tool_call": given, "llm_response_id": response}
    return event(number, "ActionEvent", **{"thought": [], **about, **more})


def answer(number: int, call: str, text: str, *, failed: bool = False) -> dict[str, Any]:
    observation = {"content": [{"type": "text", "text": text}], "is_error": failed, "kind": "Observation"}
    return event(number, "ObservationEvent", "environment", tool_name="t", tool_call_id=call, observation=observation)


EVENTS = [
    event(0, "SystemPromptEvent", system_prompt={"type": "text", "text": "You are OpenHands."}, tools=[]),
    message(1, "user", "Read and count."),
    action(2, "c0", "read", "r", thought=[{"type": "text", "text": "I do both."}], reasoning_content="Both."),
    action(3, "c1", "count", "r"),
    answer(4, "c1", "2 lines"),  # in the order of completion
    answer(5, "c0", "apples: 3"),
    action(6, "c2", "no_such_tool", "q"),  # refused: it has no action
    event(7, "AgentErrorEvent", tool_name="no_such_tool", tool_call_id="c2", error="Tool 'no_such_tool' not found."),
    action(8, "c3", "finish", "s"),
    answer(9, "c3", "Counted."),
]
SAID = [
    "user: Read and count.",
    "assistant: (Both.) I do both. read#c0{'a': 1} count#c1{'a': 1}",
    "#c1: 2 lines",
    "#c0: apples: 3",
    "assistant: no_such_tool#c2{'a': 1}",
    "#c2 failed: Tool 'no_such_tool' not found.",
    "assistant: finish#c3{'a': 1}",
    "#c3: Counted.",
]


def folder_with(path: Path, events: list[dict[str, Any]], *, id: str = "c-1") -> Path:
    """A conversation as the program keeps it; returns the file that stands for it."""
    (path / "events").mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(events):
        (path / f"events/event-{number:05}-{one['id']}.json").write_text(json.dumps(one, separators=(",", ":")))
    usage = {"response_id": "r", "prompt_tokens": 1002, "completion_tokens": 52, "cache_read_tokens": 200}
    state = {
        "id": id,
        "agent": {"llm": {"model": "openai/large"}},
        "workspace": {"working_dir": "/home/ada/garden"},
        "stats": {"usage_to_metrics": {"agent": {"token_usages": [usage]}}},
    }
    (path / "base_state.json").write_text(json.dumps(state))
    return path / "base_state.json"


@few_or_many_seeds
def test_the_contract(seeds):
    condensed = [*EVENTS, event(10, "Condensation", forgotten_event_ids=["e2", "e3"], summary="Both were read.")]
    check_format(READER["openhands"], [lines(*condensed)], seeds=seeds)


def test_a_complete_conversation_is_read():
    plan = plan_of_bytes("openhands", lines(*EVENTS))
    assert said(plan) == SAID
    assert plan.system_prompt == "You are OpenHands."


def test_what_a_condensation_forgot_stays_in_the_earlier_generation():
    forgotten = ["e2", "e3", "e4", "e5"]
    events = [*EVENTS, event(10, "Condensation", forgotten_event_ids=forgotten, summary="Two lines.")]
    plan = plan_of_bytes("openhands", lines(*events, message(11, "user", "And now?")))
    assert said(plan, 0) == SAID
    assert said(plan) == [SAID[0], "*user: Two lines.", *SAID[4:], "user: And now?"]


def test_what_the_program_added_to_a_prompt_was_not_typed():
    added = {
        **message(1, "user", "Look."),
        "extended_content": [{"type": "text", "text": "<EXTRA_INFO>…</EXTRA_INFO>"}],
    }
    assert said(plan_of_bytes("openhands", lines(EVENTS[0], added)))[0].startswith("*user: Look.")


def test_a_folder_is_one_source_that_grows(tmp_path: Path):
    """Its events are parts, its sub-agents are sessions of their own, and only what is new is written."""
    library = ConversationLibrary(tmp_path / "library")
    top = tmp_path / "conversations"
    anchor = folder_with(top / "abc", EVENTS[:4])
    folder_with(top / "abc/subagents/def", [message(1, "user", "Count.")], id="c-2")
    (top / "abc/TASKS.json").write_text("[]")
    assert [Path(found.path).relative_to(top).as_posix() for found in find_sources(top)] == [
        "abc/base_state.json",
        "abc/subagents/def/base_state.json",
    ]
    first, helper = import_conversations([top], library)
    assert (first.action, helper.action, first.messages) == ("created", "created", 2)
    assert [one.action for one in import_conversations([top], library)] == ["unchanged", "unchanged"]
    folder_with(top / "abc", EVENTS)
    grown = imported(anchor, library)
    assert (grown.action, grown.id, grown.messages) == ("grew", first.id, len(SAID))
    assert grown.id is not None
    assert helper.id is not None
    with library.open(grown.id, read_only=True) as store:
        usage = [record.extra["usage"] for record in store.iter_records() if record.extra and "usage" in record.extra]
        assert store.get_metadata().labels["cwd"] == "/home/ada/garden"
    assert usage == [{"prompt_tokens": 1002, "completion_tokens": 52, "prompt_tokens_details": {"cached_tokens": 200}}]
    with library.open(helper.id, read_only=True) as store:
        assert store.get_metadata().labels["part_of"] == first.session
    export(library, grown.id, to="original", output=tmp_path / "events.jsonl")
    assert (tmp_path / "events.jsonl").read_bytes() == b"".join(
        json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in EVENTS
    )


def test_an_event_that_is_being_written_is_left_for_the_next_time(tmp_path: Path):
    library = ConversationLibrary(tmp_path / "library")
    anchor = folder_with(tmp_path / "c", EVENTS[:3])
    last = tmp_path / "c/events/event-00002-e2.json"
    whole = last.read_text()
    last.write_text(whole[:40])
    first = imported(anchor, library)
    last.write_text(whole)
    grown = imported(anchor, library)
    assert (first.action, first.messages, grown.action, grown.messages) == ("created", 1, "grew", 2)


def test_what_1_16_0_wrote():
    paths = made("openhands", "1.16.0")
    (tools,) = by_prompt(paths, "#tools")
    told = said(tools)
    assert any(one.startswith("#call_0004_1 failed: Tool 'no_such_tool' not found") for one in told)
    assert any(one.startswith("#call_0004_0 failed: Invalid `path` parameter") for one in told)
    assert "#call_0006_0: Fixed the pears." in told  # the final answer, which no message has
    assert tools.model == "openai/fake-small"
    (hung,) = by_prompt(paths, "#hang")
    assert "terminal#" in said(hung)[-1]
    (slow,) = by_prompt(paths, "#slow")
    assert len(said(slow)) == 1
    (parent,) = by_prompt(paths, "#task")
    assert [plan.labels["part_of"] for path in paths for plan in plans_at(path) if "part_of" in plan.labels] == [
        parent.session
    ]
