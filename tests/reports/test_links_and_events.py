"""What other readers missed because they looked in one place alone: the one link of a tree, the one kind of line that says it.

Reports: Codex from 0.147 on says it in ``item_completed`` (pacphi/agentic-kit#170, Daily-Nerd/daimon#623), from 0.153 on in items alone
(zilliztech/memsearch#742, PixelPaw-Labs/codex-trace#283); a message that was sent twice (Latand/live-log-viewer-next#14); exports of ChatGPT
without links to children (nowledge-co/community#261) or without metadata (danny-avila/LibreChat#15229), and with several first prompts
(anima-research/animachat#60); the logs that OpenClaw keeps beside its sessions (openclaw/openclaw#104323).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reports.sessions import Imported, imported, lines
from transcript_store.sources import discover


def said_in(got: Imported) -> list[tuple[str, str]]:
    with got.library.open(str(got.report.id), read_only=True) as store:
        return [(message["role"], str(message["content"])) for message in store.get_messages()]


def codex(*payloads: tuple[str, dict[str, Any]]) -> list[Any]:
    meta = ("session_meta", {"id": "s1", "cwd": "/p", "cli_version": "0.153.4"})
    return [
        {"timestamp": f"2026-09-01T10:00:{second:02}.000Z", "type": kind, "payload": payload}
        for second, (kind, payload) in enumerate((meta, *payloads))
    ]


def item(role: str, said: str) -> tuple[str, dict[str, Any]]:
    kind = "output_text" if role == "assistant" else "input_text"
    return "response_item", {"type": "message", "role": role, "content": [{"type": kind, "text": said}]}


def event(kind: str, said: str) -> tuple[str, dict[str, Any]]:
    if kind[0].isupper():
        content = [{"type": "Text" if kind == "AgentMessage" else "text", "text": said}]
        return "event_msg", {"type": "item_completed", "item": {"type": kind, "content": content}}
    return "event_msg", {"type": kind, "message": said}


BOTH = [("user", "Where is the zebra?"), ("assistant", "In the stable.")]


@pytest.mark.parametrize(
    "payloads",
    [
        [item("user", BOTH[0][1]), item("assistant", BOTH[1][1])],
        [event("user_message", BOTH[0][1]), event("agent_message", BOTH[1][1])],
        [event("UserMessage", BOTH[0][1]), event("AgentMessage", BOTH[1][1])],
        [item("user", BOTH[0][1]), event("UserMessage", BOTH[0][1]), item("assistant", BOTH[1][1]), event("agent_message", BOTH[1][1])],
    ],
    ids=["items", "events", "events with items", "both"],
)  # fmt: skip
def test_codex_says_it_once_wherever_it_stands(tmp_path: Path, payloads: list[Any]) -> None:
    """Where events alone said it, the session was left out as one in which nothing was said."""
    got = imported(tmp_path, codex(*payloads))
    assert said_in(got) == BOTH
    assert len(got.found("zebra")) == 1
    assert got.has_its_bytes()


def test_what_the_user_sent_twice_stands_there_twice(tmp_path: Path) -> None:
    got = imported(tmp_path, codex(item("user", "go"), item("user", "go"), item("assistant", "ok"), item("user", "go")))
    assert [said for _, said in said_in(got)] == ["go", "go", "ok", "go"]


def chatgpt(*nodes: tuple[str, str | None, str, str], links: str = "both", **members: Any) -> bytes:
    """An export with one conversation; its nodes name their parents, their children, or both."""
    mapping: dict[str, Any] = {"r": {"id": "r", "message": None}}
    for name, _, role, said in nodes:
        content = {"content_type": "text", "parts": [said]}
        mapping[name] = {"id": name, "message": {"id": name, "author": {"role": role}, "content": content}}
    for name, parent, _, _ in nodes:
        if links != "children":
            mapping[name]["parent"] = parent
        if links != "parents":
            mapping[str(parent)].setdefault("children", []).append(name)
    return json.dumps(
        [{"conversation_id": "c", "title": "T", "create_time": 1.79e9, "mapping": mapping, **members}]
    ).encode()


@pytest.mark.parametrize("links", ["both", "parents", "children"])
@pytest.mark.parametrize("current", [{"current_node": "a"}, {}])
def test_chatgpt_leaves_out_the_one_link_or_the_other(tmp_path: Path, links: str, current: dict[str, str]) -> None:
    """And metadata, times of messages, the model. What was tried first is a branch that was left."""
    nodes = (
        ("u0", "r", "user", "Where is the quagga?"),
        ("a0", "u0", "assistant", "Gone."),
        ("u", "r", "user", BOTH[0][1]),
        ("a", "u", "assistant", BOTH[1][1]),
    )
    got = imported(
        tmp_path, chatgpt(*nodes, links=links, default_model_slug="gpt-5", **current), "conversations-000.json"
    )
    assert said_in(got) == BOTH
    assert got.findings() == ["left-branch"]
    assert [hit["beside"] for hit in got.found("quagga")] == ["left-branch"]
    assert got.has_its_bytes()


def test_the_logs_that_openclaw_keeps_beside_its_sessions_are_none(tmp_path: Path) -> None:
    """Each was refused, at every import of all that is on the machine."""
    folder = tmp_path / ".openclaw" / "agents" / "main" / "sessions"
    folder.mkdir(parents=True)
    for name in ("a.jsonl", "a.trajectory.jsonl"):
        (folder / name).write_bytes(lines([{"type": "session", "version": 3, "id": "a"}]))
    found = discover(tmp_path, {"HOME": str(tmp_path)})
    assert [Path(one.path).name for one in found] == ["a.jsonl"]
