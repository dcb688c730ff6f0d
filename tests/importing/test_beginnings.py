"""A format is told from how a source begins, and files begin badly: a first line that a crash tore, one with a picture that is
longer than what is looked at, a run of NUL, the text of a Windows program. Each of these was refused as of no format that is known.
"""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

from transcript_store import ConversationLibrary
from transcript_store.exporting import export
from transcript_store.importing import import_conversations

AT = "2026-01-01T10:00:00.000Z"


def uuid_line(uuid: str, parent: str | None, role: str) -> dict[str, Any]:
    said = {"role": role, "content": f"say {uuid}"}
    return {"type": role, "uuid": uuid, "parentUuid": parent, "sessionId": "s", "timestamp": AT, "message": said}


def entry(id: str, parent: str | None, role: str) -> dict[str, Any]:
    said = {"role": role, "content": [{"type": "text", "text": id}], "api": "anthropic-messages", "stopReason": "stop"}
    return {"type": "message", "id": id, "parentId": parent, "timestamp": AT, "message": said}


def item(role: str) -> dict[str, Any]:
    said = {"type": "message", "role": role, "content": [{"type": "input_text", "text": role}]}
    return {"timestamp": AT, "type": "response_item", "payload": said}


def appended(role: str) -> dict[str, Any]:
    return {"type": "context.append_message", "message": {"role": role, "content": role, "toolCalls": []}, "time": 1}


SESSIONS: dict[str, list[dict[str, Any]]] = {
    "claude-code": [
        {"type": "summary", "summary": "A title", "leafUuid": "b"},
        *(uuid_line("a", None, "user"), uuid_line("b", "a", "assistant")),
    ],
    "codex": [
        {"timestamp": AT, "type": "session_meta", "payload": {"id": "s", "cwd": "/home/me"}},
        *(item("user"), item("assistant")),
    ],
    "gemini-cli": [
        {"sessionId": "s", "projectHash": "p", "startTime": AT, "kind": "main"},
        {"id": "a", "timestamp": AT, "type": "user", "content": [{"text": "Hi"}]},
        {"id": "b", "timestamp": AT, "type": "gemini", "content": "Hello"},
    ],
    "kimi": [{"type": "metadata", "protocol_version": "1.5"}, appended("user"), appended("assistant")],
    "pi": [
        {"type": "session", "version": 3, "id": "s", "timestamp": AT, "cwd": "/home/me"},
        *(entry("a", None, "user"), entry("b", "a", "assistant")),
    ],
    "jsonl": [
        {"role": "system", "content": "Be brief."},
        *({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}),
    ],
}


def lines(*values: dict[str, Any]) -> list[bytes]:
    return [json.dumps(value, separators=(",", ":")).encode() + b"\n" for value in values]


def torn(session: list[bytes]) -> bytes:
    return b"".join([session[0][:15], b"\n", *session[1:]])


def with_a_picture(session: list[bytes]) -> bytes:
    """A quarter of a megabyte in the first line, as a message that begins with a screenshot has it."""
    picture = base64.b64encode(random.Random(18).randbytes(190_000))
    return b"".join([session[0][:-2], b',"picture":"', picture, b'"}\n', *session[1:]])


def behind_nul(session: list[bytes]) -> bytes:
    return b"\x00" * (70 << 10) + b"".join(session)


@pytest.mark.parametrize("format", SESSIONS)
@pytest.mark.parametrize("begins", [torn, with_a_picture, behind_nul])
def test_a_session_is_told_by_what_can_be_read_of_its_beginning(begins, format, tmp_path: Path) -> None:
    """F3, F6: it is imported as what it is, every line is accounted for, and its bytes come out again."""
    source, library = tmp_path / "session", ConversationLibrary(tmp_path / "library")
    source.write_bytes(begins(lines(*SESSIONS[format])))
    (report,) = import_conversations([source], library)
    assert (report.action, report.format, report.lines.total) == ("created", format, 3)
    assert report.lines.in_messages + report.lines.in_events == 3
    assert report.messages >= 2
    assert report.id is not None
    export(library, report.id, to="original", output=str(tmp_path / "again"))
    assert (tmp_path / "again").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("named", [None, "jsonl"])
def test_text_of_two_bytes_a_character_is_refused_with_the_way_out(named, encoding, tmp_path: Path) -> None:
    """What PowerShell writes behind ``>``: it said that no line is a message, and not why."""
    source, library = tmp_path / "session", ConversationLibrary(tmp_path / "library")
    source.write_bytes(("\ufeff" + b"".join(lines(*SESSIONS["jsonl"])).decode()).encode(encoding))
    (report,) = import_conversations([source], library, format=named)
    assert report.action == "refused"
    assert "iconv -f UTF-16 -t UTF-8" in str(report.reason)
    source.write_bytes(source.read_bytes().decode("utf-16").encode())
    assert [report.action for report in import_conversations([source], library, format=named)] == ["created"]
