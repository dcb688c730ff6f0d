"""Continue: one document a session, written anew each time, in which results stand beside their calls and nothing has a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.formats.of_others import few_or_many_seeds
from tests.formats.of_programs import READER, by_prompt, made, plan_of_bytes, plans_at, said
from tests.importing.helpers import imported
from transcript_store import ConversationLibrary
from transcript_store.exporting import export
from transcript_store.testing import check_format

CALLS = [
    {"id": f"c{number}", "type": "function", "function": {"name": "Read", "arguments": '{"filepath": "a"}'}}
    for number in range(3)
]


def item(role: str, content: Any, beside: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"message": {"role": role, "content": content, **more}, "contextItems": [], **(beside or {})}


def state(number: int, status: str, *output: str) -> dict[str, Any]:
    shown = {"output": [{"content": one, "name": "Tool Result"} for one in output]} if output else {}
    return {"toolCallId": f"c{number}", "toolCall": CALLS[number], "status": status, **shown}


HISTORY = [
    item("user", "Read both.", {"contextItems": [{"content": "the file that is open", "name": "a.txt"}]}),
    item(
        "assistant",
        "I read.",
        {"toolCallStates": [state(0, "done", "apples"), state(1, "errored", "no file"), state(2, "calling")]},
        toolCalls=CALLS,
        usage={"prompt_tokens": 1002, "completion_tokens": 52, "model": "large"},
    ),
    item("user", [{"type": "imageUrl", "imageUrl": {"url": "data:image/png;base64,aGk="}}]),
]
SAID = [
    "*user: Read both. the file that is open",
    "assistant: I read. " + " ".join(f"Read#c{number}{{'filepath': 'a'}}" for number in range(3)),
    "#c0: apples",
    "#c1 failed: no file",  # the third call was interrupted: it has no result
    "user: [image/png]",
]


def document(history: list[Any], title: str = "Fruit count") -> bytes:
    about = {"sessionId": "s-1", "title": title, "workspaceDirectory": "/home/ada/garden"}
    return json.dumps({**about, "history": history, "usage": {"promptTokens": 1002}}, indent=2).encode()


@few_or_many_seeds
def test_the_contract(seeds):
    check_format(READER["continue"], [document(HISTORY)], seeds=seeds)


def test_a_complete_session_is_read():
    plan = plan_of_bytes("continue", document(HISTORY))
    assert said(plan) == SAID
    assert (plan.model, plan.labels) == ("large", {"title": "Fruit count", "cwd": "/home/ada/garden"})
    assert "title" not in plan_of_bytes("continue", document(HISTORY, "Untitled Session")).labels


def test_a_document_that_is_written_anew_grows_and_what_a_compaction_took_away_stays(tmp_path: Path):
    library = ConversationLibrary(tmp_path / "library")
    file = tmp_path / "s-1.json"
    (tmp_path / "sessions.json").write_text(json.dumps([{"sessionId": "s-1", "dateCreated": "1795773333870"}]))
    file.write_bytes(document(HISTORY[:2]))
    first = imported(file, library)
    file.write_bytes(document(HISTORY))
    grown = imported(file, library)
    assert (first.action, grown.action, grown.id, grown.messages) == ("created", "grew", first.id, len(SAID))
    assert imported(file, library).action == "unchanged"
    assert first.id is not None
    export(library, first.id, to="original", output=tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == file.read_bytes()
    with library.open(first.id, read_only=True) as store:
        assert next(store.iter_records()).at.startswith("2026-11-27T09:55:33.870")
    file.write_bytes(document([item("assistant", "Apples.", {"conversationSummary": "Apples."}), HISTORY[2]]))
    assert imported(file, library).action == "replaced"
    with library.open(first.id, read_only=True) as store:
        before = [record.message for record in store.get_records(generation=0) if record.message]
        after = [record for record in store.iter_records() if record.message]
    assert (len(before), len(after)) == (len(SAID), 2)
    assert after[0].extra
    assert after[0].extra["compaction"] is True


def test_a_session_that_begins_as_another_one_is_its_fork(tmp_path: Path):
    """``cn --fork`` copies the items, and names the session nowhere."""
    library = ConversationLibrary(tmp_path / "library")
    about = {"workspaceDirectory": "/home/ada/garden", "dateCreated": "1795773333870"}
    known = [{"sessionId": name, **about} for name in ("../s-0", "s-1", "s-2")]
    (tmp_path / "sessions.json").write_text(json.dumps(known))
    (tmp_path / "s-1.json").write_bytes(document(HISTORY[:2]))
    (tmp_path / "s-2.json").write_bytes(document(HISTORY).replace(b'"s-1"', b'"s-2"'))
    first, fork = (imported(tmp_path / f"s-{number}.json", library) for number in (1, 2))
    found = {summary.id: (summary.labels or {}).get("forked_from") for summary in library.list()}
    assert found == {first.id: None, fork.id: "s-1"}


def test_what_1_5_47_wrote():
    paths = made("continue", "1.5.47")
    (tools,) = by_prompt(paths, "#tools")
    assert [one.split(":")[0] for one in said(tools) if " failed" in one]
    (hung,) = by_prompt(paths, "#short One.")
    assert "Bash#call_0025_0" in said(hung)[-1]
    assert hung.labels["title"] == "Apples and pears in a short note"
    (fork,) = [plan for path in paths for plan in plans_at(path) if "forked_from" in plan.labels]
    assert fork.labels["forked_from"].startswith("2dcf5375")
    starts = [said(plan)[0] for path in paths for plan in plans_at(path)]
    assert sum(one.startswith("*user: Done with") for one in starts) == 2  # compacted, and its fork
