"""Text that was pasted or attached is text: folded under its name, searched, counted right.

Reports: kenn-io/agentsview#913, lugia19/Claude-QoL#43, Superkikim/nexus-ai-chat-importer#76, #32. ChatGPT's citations and uploads stand
with them: an address, and a name.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.reports.sessions import imported, lines, told

SAID = "attached zebra text"
IN_BASE64 = base64.b64encode(SAID.encode()).decode()


def claude_ai() -> bytes:
    message = {"uuid": "a", "sender": "human", "text": "", "content": [], "created_at": "2026-09-01T10:00:00Z"}
    attached = [{"file_name": "notes.txt", "file_type": "txt", "extracted_content": SAID}]
    chat = {"uuid": "c", "name": "Only attachments", "chat_messages": [{**message, "attachments": attached}]}
    return json.dumps([chat]).encode()


@pytest.mark.parametrize(
    "data",
    [
        claude_ai(),
        {"type": "text", "media_type": "text/plain", "data": SAID},
        {"type": "content", "content": [{"type": "text", "text": SAID}]},
        {"type": "content", "content": SAID},
        {"type": "base64", "media_type": "text/plain", "data": IN_BASE64},
    ],
)
def test_a_document_of_text_is_text(tmp_path: Path, data: bytes | dict[str, Any]) -> None:
    if isinstance(data, dict):
        block = {"type": "document", "source": data, "title": "notes.txt"}
        data = (json.dumps({"role": "user", "content": [block]}) + "\n").encode()
    got = imported(tmp_path, data, "conversations.json" if data.startswith(b"[") else "a.jsonl")
    for shown in (got.show(), got.page(), told("export", got.directory, "--to", "markdown").replace("\\", "")):
        assert SAID in shown
        assert "notes.txt" in shown
    assert [hit["where"] for hit in got.found("zebra")] == ["text"]
    assert len(got.found("notes.txt")) == 1
    assert got.has_its_bytes()


def node(name: str, parent: str | None, role: str, said: str, **metadata: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": [said]}
    message = {
        "author": {"role": role},
        "content": content,
        "create_time": 1790000000.0,
        "recipient": "all",
        "metadata": metadata,
    }
    return {"id": name, "parent": parent, "children": [], "message": message}


def test_a_citation_is_its_address_and_events_say_what_they_are(tmp_path: Path) -> None:
    marker = "\ue200cite\ue202turn0search3\ue201"
    pages = [{"title": "T", "url": "https://example.org/"}]
    cited = [{"matched_text": marker, "type": "grouped_webpages", "items": pages}]
    nodes = [
        {"id": "r", "parent": None, "children": [], "message": None},
        node("s", "r", "system", "", is_visually_hidden_from_conversation=True),
        node("u", "s", "user", "alpha one"),
        node("a", "u", "assistant", f"beta {marker} end", content_references=cited),
    ]
    chat = {"title": "N", "create_time": 1.0, "mapping": {one["id"]: one for one in nodes}, "current_node": "a"}
    got = imported(tmp_path, json.dumps([chat]).encode(), "conversations.json")
    shown = got.show()
    assert "beta [T](https://example.org/) end" in shown
    assert "text that is not a JSON object" not in shown
    assert "hidden message (system)" in shown
    assert got.has_its_bytes()


DATA_URL = f"data:text/markdown;base64,{IN_BASE64}"
ASKED = {"type": "text", "text": "What is it?"}
CHAT_FILE = {"type": "file", "file": {"filename": "notes.txt", "file_data": DATA_URL}}
ITEM_FILE = {"type": "input_file", "filename": "notes.txt", "file_data": DATA_URL}
FOUND = {"type": "search_result", "source": "u", "title": "notes.txt", "content": [{"type": "text", "text": SAID}]}


def exported_by_opencode() -> bytes:
    time = {"created": 1788256800000}
    about = {"id": "ses_1", "title": "T", "directory": "/p", "version": "1", "time": time}
    file = {"id": "prt_2", "type": "file", "mime": "text/plain", "filename": "notes.txt", "url": DATA_URL}
    asked = {"info": {"id": "msg_1", "role": "user", "sessionID": "ses_1", "time": time}, "parts": [file]}
    return json.dumps({"info": about, "messages": [asked]}).encode()


def stored_by_vscode() -> bytes:
    pasted = {
        "kind": "paste",
        "id": "p",
        "name": "notes.txt",
        "code": SAID,
        "language": "text",
        "pastedLines": "1 line",
    }
    asked = {
        "requestId": "r",
        "message": {"text": "What is it?"},
        "variableData": {"variables": [pasted]},
        "response": [],
    }
    return json.dumps({"version": 3, "sessionId": "s", "requesterUsername": "a", "requests": [asked]}).encode()


def stored_by_copilot() -> bytes:
    data = {"content": "What is it?", "attachments": [{"type": "selection", "displayName": "notes.txt", "text": SAID}]}
    return lines(
        [{"type": "user.message", "data": data, "id": "1", "parentId": None, "timestamp": "2026-09-01T10:00:00Z"}]
    )


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (lines([{"role": "user", "content": [ASKED, CHAT_FILE]}]), "a.jsonl"),
        (lines([{"role": "user", "content": [ASKED, FOUND]}]), "a.jsonl"),
        (exported_by_opencode(), "o.json"),
        (stored_by_vscode(), "v.json"),
        (stored_by_copilot(), "events.jsonl"),
    ],
)
def test_what_other_programs_attach_is_text_under_its_name(tmp_path: Path, data: bytes, name: str) -> None:
    got = imported(tmp_path, data, name)
    assert SAID in got.show("--full")
    for shown in (got.page(), told("export", got.directory, "--to", "markdown").replace("\\", "")):
        assert SAID in shown
        assert "notes.txt" in shown
    assert len(got.found("zebra")) == 1
    assert SAID not in got.name()
    assert got.has_its_bytes()


def test_a_file_in_an_item_of_responses_is_text_in_the_message(tmp_path: Path) -> None:
    got = imported(tmp_path, [{"type": "message", "role": "user", "content": [ITEM_FILE]}])
    assert (got.report.messages, SAID in got.show(), len(got.found("zebra"))) == (1, True, 1)
    assert got.has_its_bytes()
