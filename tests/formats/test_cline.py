"""Cline and Roo: one document a session, written anew with each turn. The traps are those of the files that Cline 3.0.65 wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.formats.of_others import Bytes, a_handful_or_many_seeds, assert_nothing_is_lost, entries, messages, original
from tests.reports.sessions import Imported, imported
from transcript_store.formats import SessionPlan, head_of
from transcript_store.formats._cline import Cline
from transcript_store.importing import import_conversations
from transcript_store.testing import check_format

ID = "1795772724655_7wyoy"


def user(text: str, number: int = 1) -> dict[str, Any]:
    said = f'<user_input mode="act">{text}</user_input>'
    return {
        "id": f"u{number}",
        "role": "user",
        "content": [{"type": "text", "text": said}],
        "ts": 1795772725000 + number,
    }


def reply(
    number: int, *blocks: Any, provider: str = "openai-compatible", model: str = "m1", **members: Any
) -> dict[str, Any]:
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    metrics = {"inputTokens": 100, "outputTokens": 34, "cacheReadTokens": 20, "cacheWriteTokens": 0}
    about = {"modelInfo": {"id": model, "provider": provider}, "metrics": metrics, "ts": 1795772725000 + number}
    return {"id": f"msg_{number}", "role": "assistant", "content": content, **about, **members}


def result(number: int, of: str, content: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": of, "name": "read_files", "content": content}
    return {"id": f"r{number}", "role": "user", "content": [block], "ts": 1795772725000 + number}


def call(number: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": number, "name": "read_files", "input": {"files": [{"path": number}]}}


THOUGHT = {"type": "thinking", "thinking": "Hm."}
READ = [{"query": "a", "result": "first line", "success": True}]
MISSED = [{"query": "b", "result": "", "error": "ENOENT", "success": False}]
EDITED = json.dumps({"query": "edit:a", "result": "Edited a", "success": True}, separators=(",", ":"))
TURN = [
    user("Read both."),
    reply(2, THOUGHT, "Both.", call("a"), call("b"), call("c")),
    result(3, "a", READ),
    result(4, "b", MISSED),
    result(5, "c", EDITED),
    reply(6, "Done.", model="m2"),
]


def document(*said: Any, **members: Any) -> bytes:
    about = {"version": 1, "updated_at": "2026-11-27T09:46:04.638Z", "agent": "lead", "sessionId": ID}
    origin = {"source": "cli", "mode": "user", "sessionId": ID, "version": "3.0.65"}
    return json.dumps({**about, "origin": origin, **members, "messages": list(said)}, indent=2).encode()


def plan_of(data: bytes) -> SessionPlan:
    source = Bytes(data)
    assert Cline().recognizes(head_of(source))
    (plan,) = Cline().plans(source)
    assert_nothing_is_lost(plan)
    assert original(plan) == data
    return plan


@a_handful_or_many_seeds
def test_it_keeps_the_contract(seeds: int) -> None:
    check_format(Cline(), [document(*TURN), json.dumps(TASK).encode()], seeds=seeds)


def test_results_are_what_the_tool_said_and_whether_it_failed() -> None:
    """Cline keeps them as objects of its own, or as the JSON text of one, and nothing there is called an error."""
    plan = plan_of(document(*TURN))
    answers = [entry for entry in entries(plan) if (entry.message or {}).get("role") == "tool"]
    assert [entry.message["content"] for entry in answers if entry.message] == ["first line", "ENOENT", "Edited a"]
    assert [entry.extra.get("failed") for entry in answers] == [None, True, None]
    claude = plan_of(document(*TURN, reply(7, "Indeed.", provider="anthropic", model="claude-x")))
    assert [message["content"][0].get("is_error") for message in messages(claude)[2:5]] == [None, True, None]


def test_a_prompt_is_what_was_typed_and_a_reply_has_its_model_and_counts() -> None:
    plan = plan_of(document(*TURN))
    first, second, *_, last = (entry.extra for entry in entries(plan) if entry.message)
    assert first["scaffolding"] == {"typed": "Read both."}
    counts = {"cache_read_input_tokens": 20, "cache_creation_input_tokens": 0, "input_tokens": 80, "output_tokens": 34}
    assert second["usage"] == counts, "the input has the cached ones"
    assert (second["model"], last["model"], plan.model, plan.provider) == ("m1", "m2", "m2", "openai-compatible")
    assert messages(plan)[1]["reasoning_content"] == "Hm."


def test_thinking_that_the_provider_cannot_be_sent_stands_beside_the_message() -> None:
    """Cline keeps no signature, and Claude takes no thinking without one."""
    plan = plan_of(document(user("Hi"), reply(2, THOUGHT, "Hello.", provider="anthropic", model="claude-x")))
    assert messages(plan)[1] == {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]}
    assert entries(plan)[2].extra["thinking"] == "Hm."
    assert [(loss.kind, loss.count) for loss in plan.losses] == [("thinking", 1)]


def test_the_programs_own_error_is_no_reply() -> None:
    """SIGINT: the user's message becomes a plain text, and an invented message tells of the error."""
    stopped = {"id": "u1", "role": "user", "content": '<user_input mode="act">Tell a story.</user_input>'}
    error = reply(2, "Capability owner client disconnected.", metadata={"displayOnly": True, "displayRole": "error"})
    plan = plan_of(document(stopped, error))
    assert [message["role"] for message in messages(plan)] == ["user"]


def folder_of(folder: Path, data: bytes, **beside: Any) -> Imported:
    for name, value in beside.items():
        path = folder / f"{ID}.{name}.json" if name != "session" else folder / f"{ID}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    return imported(folder, data, f"{ID}.messages.json")


SESSION = {
    "session_id": ID, "cwd": "/home/ada/project", "provider": "anthropic", "model": "m1", "started_at": "2026-11-27T09:46:28.186Z",
    "metadata": {"title": "Notes", "prompt": "Tell a story.", "git": {"branch": "main"}, "systemPrompt": "You are Cline."},
}  # fmt: skip


def test_what_stands_beside_a_session_is_its_title_its_folder_and_its_prompt(tmp_path: Path) -> None:
    """Killed before the first reply, the prompt stands in the session's row alone."""
    got = folder_of(tmp_path, document(), session=SESSION)
    with got.library.open(str(got.report.id), read_only=True) as store:
        about = store.get_metadata()
        assert about.labels == {"title": "Notes", "cwd": "/home/ada/project", "git_branch": "main", "source": "cline"}
        assert about.system_prompt == "You are Cline."
        assert [message["content"] for message in store.get_messages()] == ["Tell a story."]
    assert got.has_its_bytes()


def test_a_compaction_beside_it_is_what_a_model_is_sent(tmp_path: Path) -> None:
    summary = {
        "role": "user",
        "content": "Context summary: both were read.",
        "metadata": {"kind": "compaction_summary"},
    }
    compaction = {"source_message_count": 6, "messages": [summary, TURN[5]]}
    got = folder_of(tmp_path, document(*TURN, user("And?", 7)), session=SESSION, compaction=compaction)
    with got.library.open(str(got.report.id), read_only=True) as store:
        sent = [record for record in store.get_records() if record.message]
        assert [str((record.message or {})["content"])[:15] for record in sent] == [
            "Context summary",
            "Done.",
            "<user_input mod",
        ]
        assert (sent[0].extra or {})["compaction"] is True
        assert sum(record.message is not None for record in store.iter_records(generation=0)) == 6
    assert got.has_its_bytes()


def test_a_compaction_that_comes_later_or_is_of_other_messages(tmp_path: Path) -> None:
    got = folder_of(tmp_path, document(*TURN), session=SESSION)
    beside = got.path.parent / f"{ID}.compaction.json"
    compaction = {
        "source_message_count": 6,
        "source_last_message_key": "id:msg_6",
        "messages": [user("Context summary: all.")],
    }
    beside.write_text(json.dumps({**compaction, "source_last_message_key": "id:undone"}))
    assert {report.action for report in import_conversations([got.path], got.library)} == {"unchanged"}
    beside.write_text(json.dumps(compaction))
    (report,) = import_conversations([got.path], got.library)
    with got.library.open(str(report.id), read_only=True) as store:
        assert len(store.get_messages()) == 1
        assert sum(record.message is not None for record in store.iter_records(generation=0)) == 6
    assert got.has_its_bytes()


def test_a_sub_agent_is_part_of_its_session() -> None:
    origin = {"source": "cli", "mode": "subagent", "parentThreadId": ID, "version": "3.0.65"}
    plan = plan_of(document(*TURN, sessionId=f"{ID}__agent_1", origin=origin))
    assert (plan.session, plan.labels) == (f"{ID}__agent_1", {"part_of": ID})


def test_a_file_that_was_written_anew_with_more_has_only_grown(tmp_path: Path) -> None:
    """The whole file is written with each turn: that is no reason to keep the conversation twice."""
    got = imported(tmp_path, document(*TURN), f"{ID}.messages.json")
    got.path.write_bytes(document(*TURN, user("And?", 7), reply(8, "Yes."), updated_at="2026-11-27T09:47:00.000Z"))
    (report,) = import_conversations([got.path], got.library)
    assert report.action == "grew"
    assert got.has_its_bytes()
    got.path.write_bytes(document(TURN[0], reply(2, "Other."), updated_at="2026-11-27T09:48:00.000Z"))
    (report,) = import_conversations([got.path], got.library)
    assert report.action == "replaced", "what was undone stays in the archive"
    with got.library.open(str(got.report.id), read_only=True) as store:
        assert sum(record.message is not None for record in store.iter_records(generation=0)) == 8
    assert got.has_its_bytes()


TASK: list[dict[str, Any]] = [
    {"role": "user", "ts": 1767812640310, "content": [
        {"type": "text", "text": "<task>\nFix it\n</task>"}, {"type": "text", "text": "<environment_details>\nNow\n</environment_details>"}]},
    {"role": "assistant", "ts": 1767812641310, "content": [{"type": "text", "text": "<read_file><path>a</path></read_file>"}]},
    {"role": "user", "ts": 1767812642310, "condenseParent": "c", "content": [
        {"type": "text", "text": "[read_file for 'a'] Result:"}, {"type": "text", "text": "content"},
        {"type": "text", "text": "<feedback>\nNot that\n</feedback>"}]},
    {"role": "assistant", "type": "reasoning", "encrypted_content": "x", "summary": [], "ts": 1767812642310},
    {"role": "user", "content": "Summary so far", "isSummary": True, "condenseId": "c", "ts": 1767812643310},
    {"role": "assistant", "ts": 1767812644310, "content": [{"type": "tool_use", "id": "t1", "name": "read_file", "input": {}}]},
    {"role": "user", "ts": 1767812645310, "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": "no such file", "is_error": True},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}]},
]  # fmt: skip


def test_a_task_of_an_extension_is_read_with_its_condensed_context() -> None:
    plan = plan_of(json.dumps(TASK).encode())
    assert len(messages(plan, 0)) == 3
    live = entries(plan)
    assert [one.message["content"] for one in live[:3] if one.message][2] == "Summary so far", (
        "what Roo still sends stands before"
    )
    typed = [
        entry.extra.get("scaffolding") for entry in entries(plan, 0) if (entry.message or {}).get("role") == "user"
    ]
    assert typed == [{"typed": "Fix it"}, {"typed": "Not that"}]
    assert (live[-1].message or {})["content"][0]["image_url"]["url"] == "data:image/png;base64,aGk="
    assert entries(plan, 0)[1].at == "2026-01-07T19:04:00.310000Z"


def test_the_folder_of_a_task_says_when_and_what(tmp_path: Path) -> None:
    """Messages of older versions have no times: what the program showed has them, and Roo's item the id and the task."""
    said = [{name: value for name, value in message.items() if name != "ts"} for message in TASK[:2]]
    (tmp_path / "ui_messages.json").write_text(json.dumps([{"ts": 1767812640310, "conversationHistoryIndex": 0}]))
    item = {"id": "1767812640000", "task": "Fix it", "workspace": "/home/ada/project", "parentTaskId": "1767812630000"}
    (tmp_path / "history_item.json").write_text(json.dumps(item))
    metadata = {"model_usage": [{"model_id": "claude-x", "model_provider_id": "anthropic"}]}
    (tmp_path / "task_metadata.json").write_text(json.dumps(metadata))
    got = imported(tmp_path, json.dumps(said).encode(), "api_conversation_history.json")
    with got.library.open(str(got.report.id), read_only=True) as store:
        about = store.get_metadata()
        labels = {"title": "Fix it", "cwd": "/home/ada/project", "part_of": "1767812630000", "source": "cline"}
        assert (about.labels, about.model, about.provider) == (labels, "claude-x", "claude")
        assert store.get_records()[1].at == "2026-01-07T19:04:00.310000Z"


def test_an_array_of_anybody_is_no_task() -> None:
    for data in (b'[{"role": "user", "content": "hi"}]', b'[{"ts": 1767812640310}]', b"[]"):
        assert not Cline().recognizes(head_of(Bytes(data)))
