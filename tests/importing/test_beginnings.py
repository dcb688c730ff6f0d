"""A format is told from how a source begins, and files begin badly: a first line that a crash tore, one with a picture that is
longer than what is looked at, a run of NUL, the text of a Windows program. Each of these was refused as of no format that is known.
"""

from __future__ import annotations

import base64
import json
import random
import shlex
import subprocess
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


@pytest.mark.sampled(every=5)
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
def test_text_of_two_bytes_a_character_is_refused_with_the_hint(named, encoding, tmp_path: Path) -> None:
    """What PowerShell writes behind ``>``: it said that no line is a message, and not why."""
    source, library = tmp_path / "session", ConversationLibrary(tmp_path / "library")
    source.write_bytes(("\ufeff" + b"".join(lines(*SESSIONS["jsonl"])).decode()).encode(encoding))
    (report,) = import_conversations([source], library, format=named)
    assert report.action == "refused"
    assert "iconv -f UTF-16 -t UTF-8" in str(report.reason)
    source.write_bytes(source.read_bytes().decode("utf-16").encode())
    assert [report.action for report in import_conversations([source], library, format=named)] == ["created"]


@pytest.mark.needs("iconv")
@pytest.mark.parametrize("named", [None, "jsonl"])
def test_text_in_latin_1_is_refused_with_the_byte_and_the_hint(named, tmp_path: Path) -> None:
    """It said "surrogates not allowed, at character 1". On a later line it is a finding, which names the byte too."""
    source, library = tmp_path / "session.jsonl", ConversationLibrary(tmp_path / "library")
    source.write_bytes('{"role":"user","content":"Grüße"}\n'.encode("latin-1"))
    (report,) = import_conversations([source], library, format=named)
    assert (report.action, "byte 0xfc on its first line" in str(report.reason)) == ("refused", True)
    assert "iconv -f LATIN1 -t UTF-8" in str(report.reason)
    made = subprocess.run(["iconv", "-f", "LATIN1", "-t", "UTF-8", source], check=True, stdout=subprocess.PIPE).stdout
    later = b'{"role":"user","content":"Hi"}\n' + source.read_bytes()
    source.write_bytes(made)
    assert [report.action for report in import_conversations([source], library, format=named)] == ["created"]
    source.write_bytes(later)
    (report,) = import_conversations([source], ConversationLibrary(tmp_path / "another"), format=named)
    assert "byte 0xfc is not UTF-8, at byte 29" in report.findings[0].message


SAID = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
NEARLY = {
    "carriage returns": ("".join(json.dumps(line) + "\r" for line in SAID), "tr '\\r' '\\n'"),
    "over several lines": ("".join(json.dumps(line, indent=2) + "\n" for line in SAID), "jq -c . "),
    "an array": (json.dumps(SAID), "jq -c '.[]'"),
    "an array over several lines": (json.dumps(SAID, indent=2), "jq -c '.[]'"),
    "undefined": ('{"role":"user","content":"Hi","n":undefined}\n', "unexpected character"),
    "nothing": ("", "is empty"),
    "ends of lines": ("\n\r\n", "is empty"),
    "what a power loss leaves": ("\0" * 5000, "nothing but NUL bytes"),
    "Python's own": (repr(SAID[0]) + "\n", "at character 2"),
}


@pytest.mark.parametrize("name", NEARLY)
@pytest.mark.parametrize("format", [None, "jsonl"])
def test_what_is_nearly_lines_of_json_is_refused_with_what_it_is_and_the_hint(
    tmp_path: Path, name: str, format: str | None
) -> None:
    """F6. People have such files. "Of no format that is known" helped nobody."""
    text, hint = NEARLY[name]
    path = tmp_path / "session.jsonl"
    path.write_text(text)
    (report,) = import_conversations([path], ConversationLibrary(tmp_path / "chats"), format=format)
    assert report.action == ("refused" if text.strip() else "empty")
    assert hint in str(report.reason)
    assert "no format" not in str(report.reason)


@pytest.mark.needs("jq", "tr")
@pytest.mark.parametrize("name", [name for name, (_, hint) in NEARLY.items() if hint[:2] in ("tr", "jq")])
def test_the_hint_of_what_is_nearly_lines_of_json_is_one(tmp_path: Path, name: str) -> None:
    """The command that the reason names, as it is named: its output is imported whole."""
    text, _ = NEARLY[name]
    path, made = tmp_path / "session.jsonl", tmp_path / "made.jsonl"
    path.write_text(text)
    library = ConversationLibrary(tmp_path / "chats")
    (report,) = import_conversations([path], library)
    command = str(report.reason).partition(": ")[2].partition(" makes ")[0]
    program = shlex.split(command)
    with path.open("rb") as given:
        made.write_bytes(subprocess.run(program, stdin=given, check=True, capture_output=True).stdout)
    (report,) = import_conversations([made], library)
    assert (report.action, report.messages, report.findings) == ("created", 2, ())


@pytest.mark.parametrize("text", ['[{"uuid": "u", "full_name": "Ada"}]', '{\n  "name": "p",\n  "version": "1"\n}\n'])
def test_no_command_is_recommended_for_a_file_without_messages(tmp_path: Path, text: str) -> None:
    """The other files in an export of Claude.ai, or settings: the command's output would be refused too."""
    path = tmp_path / "users.json"
    path.write_text(text)
    (report,) = import_conversations([path], ConversationLibrary(tmp_path / "chats"))
    assert (report.action, str(report.reason).partition(";")[0]) == ("refused", "is of no format that is known here")
