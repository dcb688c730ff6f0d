"""A reader claims a file only by its program's own marks; nothing in a misread file is silently lost.

Reports: Qwen Code taken for Claude Code (vshulcz/deja-vu#117, zszz3/AgentRecall#475), Factory Droid for pi
(Dicklesworthstone/coding_agent_session_search#22, #23, xiufengsun/TokenTracker#89), others for plain JSON lines.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.formats.of_others import Bytes
from tests.reports.sessions import SESSION, ClaudeLines, call, imported, lines, result
from transcript_store import ConversationLibrary
from transcript_store.cli import main
from transcript_store.formats import READERS, head_of
from transcript_store.formats._times import time_in_either
from transcript_store.importing import import_conversations

AT = "2026-09-01T10:00:00.000Z"
QWEN: list[Any] = [
    {"uuid": "a", "parentUuid": None, "sessionId": SESSION, "timestamp": AT, "type": "user",
     "message": {"role": "user", "parts": [{"text": "Where is the zebra?"}]}},
    {"uuid": "b", "parentUuid": "a", "sessionId": SESSION, "timestamp": AT, "type": "assistant",
     "message": {"role": "model", "parts": [{"text": "In the stable."}]}},
]  # fmt: skip
QWEN_COMMAND = [{**QWEN[0], "type": "system", "message": None, "systemPayload": {"rawCommand": "/help"}}, QWEN[0]]
DROID: list[Any] = [
    {"type": "session_start", "id": "d", "title": "Zebra", "version": 2, "cwd": "/tmp/p"},
    {"type": "message", "id": "m1", "parentId": "d", "timestamp": AT,
     "message": {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Execute", "input": {}}]}},
    {"type": "message", "id": "m2", "parentId": "m1", "timestamp": AT,
     "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "stable"}]}},
]  # fmt: skip
CURSOR = [{"role": "user", "message": {"content": [{"type": "text", "text": "Where is the zebra?"}]}}]
ANTIGRAVITY = [{"step_index": 0, "source": "MODEL", "type": "PLANNER_RESPONSE", "created_at": AT, "content": "stable"}]
GROK = [{"type": "user", "content": [{"type": "text", "text": "Where?"}]}, {"type": "assistant", "content": "There."}]
OPENCODE = [{"id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": 1790000000000}}]
CURSOR_STREAM = [
    {"type": "system", "subtype": "init", "session_id": "s", "cwd": "/tmp/p", "model": "m"},
    {"type": "user", "session_id": "s", "message": {"role": "user", "content": [{"type": "text", "text": "Where?"}]}},
]
QWEN_STREAM = [
    {"type": "system", "subtype": "init", "uuid": "a", "session_id": "s", "qwen_code_version": "0.9"},
    {"type": "assistant", "uuid": "b", "session_id": "s", "parent_tool_use_id": None,
     "message": {"role": "assistant", "content": [{"type": "text", "text": "There."}]}},
]  # fmt: skip
STREAM = [{"type": "message", "session_id": "s", "timestamp": AT, "role": "user", "text": "Do it"}]


@pytest.mark.parametrize(
    ("program", "values"),
    [
        ("qwen-code", QWEN),
        ("qwen-code", QWEN_COMMAND),
        ("qwen-code", QWEN[::-1]),
        ("droid", DROID),
        ("droid", DROID[1:]),
        ("droid", STREAM),
        ("cursor", CURSOR),
    ],
)
def test_its_own_reader_alone_claims_it(tmp_path: Path, program: str, values: list[Any]) -> None:
    claimed = [reader.name for reader in READERS if reader.recognizes(head_of(Bytes(lines(values))))]
    assert claimed == [program]
    assert imported(tmp_path, values).report.action == "created"


@pytest.mark.parametrize("values", [GROK, OPENCODE, CURSOR_STREAM, QWEN_STREAM])
def test_no_other_programs_reader_claims_it(tmp_path: Path, values: list[Any]) -> None:
    claimed = [reader.name for reader in READERS if reader.recognizes(head_of(Bytes(lines(values))))]
    assert claimed == []
    assert imported(tmp_path, values).report.action == "refused"


DOCUMENTS = ["chat_messages", "mapping create_time", "requests requesterUsername", "sessionId history workspaceDirectory",
             "sessionId projectHash", "sessionId startTime chatMessages", "sessionId updated_at messages",
             "session_id session_start last_updated messages"]  # fmt: skip


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("length", [0, 70_000])
@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("members", DOCUMENTS)
def test_a_line_that_quotes_a_document_makes_no_document_of_the_file(
    tmp_path: Path, members: str, is_first: bool, length: int
) -> None:
    """A tool that saves chats is called with one: the lines around it are messages all the same; so it is if it is the only line."""
    arguments = {"type": "tool_use", "id": "t", "name": "save", "input": {name: [] for name in members.split()}}
    said: list[dict[str, Any]] = [{"role": "user", "content": "Save it."}]
    said += [{"role": "assistant", "content": [arguments], "padding": "x" * length}]
    said = said[1:] if is_first else said
    done = imported(tmp_path, said)
    assert done.report.format == "jsonl"
    with done.library.open(str(done.report.id), read_only=True) as store:
        assert store.get_messages() == said
        ours = Path(store.directory, "transcript.jsonl").read_bytes()
    assert [reader.name for reader in READERS if reader.recognizes(head_of(Bytes(ours)))] == []


def test_what_a_reader_was_added_for_is_claimed_by_it_alone() -> None:
    claimed = [reader.name for reader in READERS if reader.recognizes(head_of(Bytes(lines(ANTIGRAVITY))))]
    assert claimed == ["antigravity"]


@pytest.mark.parametrize(("format", "values"), [("claude-code", QWEN), ("kimi", QWEN[:1])])
def test_a_file_in_which_somebody_speaks_and_nothing_is_read_is_an_error(
    tmp_path: Path, format: str, values: list[Any]
) -> None:
    """It was "created, 0 messages", exit 0."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(lines(values))
    assert main(["import", str(path), "--into", str(tmp_path / "library"), "--format", format]) == 1


def test_a_known_file_whose_speakers_say_nothing_that_is_known_has_a_finding(tmp_path: Path) -> None:
    path = tmp_path / f"{SESSION}.jsonl"
    newer = {
        "uuid": "a",
        "parentUuid": None,
        "sessionId": SESSION,
        "timestamp": AT,
        "type": "user",
        "isSidechain": False,
    }
    path.write_bytes(lines([{**newer, "message": {"role": "user", "content": {"v2": "Where is the zebra?"}}}]))
    assert main(["import", str(path), "--into", str(tmp_path / "library")]) == 1
    got = imported(tmp_path / "again", path.read_bytes())
    assert "unread" in got.findings()


@pytest.mark.parametrize(
    ("time", "stored"),
    [("2026-09-01T10:00:00.000000", "2026-09-01T10:00:00.000000Z"), (1788256800, "2026-09-01T10:00:00.000000Z"), (1788256800000, "2026-09-01T10:00:00.000000Z"),
     (1788256800000000, "2026-09-01T10:00:00.000000Z"), (1788256800000000000, "2026-09-01T10:00:00.000000Z")],
)  # fmt: skip
def test_a_time_without_a_zone_and_a_number_are_times(tmp_path: Path, time: object, stored: str) -> None:
    got = imported(tmp_path, [{"role": "user", "content": "Where?", "timestamp": time}])
    with got.library.open(str(got.report.id), read_only=True) as store:
        (said, _) = store.get_records()
        assert said.at == stored
        assert (said.extra or {})["source"].get("at") == (time if isinstance(time, str) else None)
    assert got.has_its_bytes()


def test_a_header_that_is_younger_than_the_messages_does_not_hold_them_back(tmp_path: Path) -> None:
    """pi: a session that was forked has its own time in the header, and took its messages along."""
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-09-02T10:00:00.000Z", "cwd": "/tmp"}
    said = [f"2026-09-01T1{hour}:00:00.000Z" for hour in range(3)]
    messages = [
        {"type": "message", "id": at, "parentId": said[place - 1] if place else None, "timestamp": at, "message": {"role": "user", "content": at}}
        for place, at in enumerate(said)
    ]  # fmt: skip
    got = imported(tmp_path, [header, *messages])
    with got.library.open(str(got.report.id), read_only=True) as store:
        assert [record.at[:13] for record in store.get_records() if record.message] == [at[:13] for at in said]


def streamed(kind: str, number: int, content: Any, **members: Any) -> dict[str, Any]:
    """A line that Claude Code prints with --output-format stream-json."""
    message = {"role": kind, "content": content, **({"id": f"msg_{number}"} if kind == "assistant" else {})}
    about = {"session_id": SESSION, "uuid": f"u{number}", "parent_tool_use_id": None}
    return {"type": kind, "message": message, **about, **members}


def test_what_claude_code_prints_is_its_own_and_no_second_file_of_the_session(tmp_path: Path) -> None:
    """Saved output was refused. What a sub-agent said is a conversation of its own."""
    agent = {"parent_tool_use_id": "toolu_1"}
    values = [
        {"type": "system", "subtype": "init", "session_id": SESSION, "claude_code_version": "2.1.278", "cwd": "/tmp/p"},
        streamed("user", 1, "Where is the zebra?"),
        streamed("assistant", 2, [call()]),
        streamed("user", 3, "Look for it", **agent),
        streamed("assistant", 4, [{"type": "text", "text": "quagga"}], **agent),
        streamed("user", 5, result()),
        streamed("assistant", 6, [{"type": "text", "text": "In the stable."}]),
        {"type": "result", "session_id": SESSION, "result": "In the stable."},
    ]
    session = ClaudeLines()
    session.user("Where is the zebra?")
    library = imported(tmp_path, session.lines).library
    path = tmp_path / "printed.jsonl"
    path.write_bytes(lines(values))
    whole, part = import_conversations([path], library)
    assert [(one.action, one.messages, one.is_part) for one in (whole, part)] == [
        ("created", 4, False),
        ("created", 2, True),
    ]
    with library.open(str(part.id), read_only=True) as store:
        assert store.get_metadata().labels["part_of"] == whole.session
    assert [report.action for report in import_conversations([tmp_path], library)] == ["unchanged"] * 3


def test_lines_that_a_tool_left_without_a_session_are_claude_codes(tmp_path: Path) -> None:
    """They were refused: with --format claude-code they came in, in their order."""
    session = ClaudeLines()
    session.user("Where is the zebra?")
    session.reply("In the stable.")
    kept = [{name: line[name] for name in ("type", "uuid", "message", "timestamp")} for line in session.lines]
    got = imported(tmp_path, kept, "cut.jsonl")
    assert (got.report.format, got.report.messages, got.findings()) == ("claude-code", 2, [])


@pytest.mark.parametrize("time", ["1788256800", "1788256800.5", "1788256800000"])
def test_a_number_in_a_text_is_a_time(tmp_path: Path, time: str) -> None:
    got = imported(tmp_path, [{"role": "user", "content": "Where?", "timestamp": time}])
    with got.library.open(str(got.report.id), read_only=True) as store:
        assert store.get_records()[0].at.startswith("2026-09-01T10:00:00")


@pytest.mark.parametrize("time", ["20261128", "202611281458", "20261128145800", 10**400])
def test_a_date_without_separators_and_a_number_without_an_end_are_no_numbers_since_1970(time: object) -> None:
    assert time_in_either(time) == str(time)


def test_items_of_another_program_are_no_entries_of_pi(tmp_path: Path) -> None:
    """CodeBuddy's lines have the members of pi's entries, and items of Responses in place of ``message``."""
    items = [
        {"id": "1", "parentId": None, "timestamp": 1788256800000, "type": "message", "role": "user", "content": [{"type": "input_text", "text": "Where is the zebra?"}]},
        {"id": "2", "parentId": "1", "timestamp": 1788256801000, "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Here."}]},
    ]  # fmt: skip
    got = imported(tmp_path, items)
    assert (got.report.format, got.report.messages, got.findings()) == ("jsonl", 2, [])
    assert got.has_its_bytes()


def test_a_log_with_the_members_of_codexs_lines_is_not_codexs(tmp_path: Path) -> None:
    """It was counted as a session without a message, exit code 0, and what was said in it was stored nowhere."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(lines([{"timestamp": AT, "type": "message", "payload": {"speaker": "human", "text": "A zebra?"}}]))
    (report,) = import_conversations([path], ConversationLibrary(tmp_path / "library"))
    assert (report.action, "of no format" in str(report.reason)) == ("refused", True)


DOCUMENT = {"model": "m", "messages": [{"role": "user", "content": "Where is the zebra?"}]}
LM_STUDIO = {"name": "n", "messages": [{"versions": [{"role": "user", "content": [{"type": "text", "text": "?"}]}]}]}
OPEN_WEBUI = [{"id": "a", "chat": {"history": {"messages": {"a": {"role": "user", "content": "?"}}}}}]


@pytest.mark.parametrize(
    ("value", "command"),
    [
        (DOCUMENT, "jq -c '.messages[]'"),
        (DOCUMENT["messages"], "jq -c '.[]'"),
        ({"role": "user", "content": "?"}, "jq -c ."),
        (LM_STUDIO, None),
        (OPEN_WEBUI, None),
    ],
)
def test_a_command_is_recommended_only_if_its_output_can_be_imported(
    tmp_path: Path, value: Any, command: str | None
) -> None:
    """For documents of programs that are not known it made a file that was refused too."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps(value, indent=2))
    (report,) = import_conversations([path], ConversationLibrary(tmp_path / "library"))
    assert report.action == "refused"
    assert (f"{command} makes" in str(report.reason)) if command else ("jq" not in str(report.reason))
