"""Homes of programs with a session in each, small and made up, in the form that the real programs write (tests/programs has those)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

SESSION = "01a21e2e-ea5d-7102-967e-1d79e96c2518"
_AT = "2026-11-27T18:05:2{}.000Z"

THREADS = """
CREATE TABLE threads (id TEXT PRIMARY KEY, rollout_path TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
 source TEXT NOT NULL, model_provider TEXT NOT NULL, cwd TEXT NOT NULL, title TEXT NOT NULL, sandbox_policy TEXT NOT NULL,
 approval_mode TEXT NOT NULL, tokens_used INTEGER NOT NULL DEFAULT 0, archived INTEGER NOT NULL DEFAULT 0, archived_at INTEGER,
 first_user_message TEXT NOT NULL DEFAULT '', preview TEXT NOT NULL DEFAULT '', created_at_ms INTEGER, name TEXT)
"""
HISTORY = """
CREATE TABLE thread_history_projection_state (thread_id TEXT PRIMARY KEY, next_rollout_byte_offset INTEGER NOT NULL)
"""


def joined(values: Iterable[dict[str, Any]]) -> bytes:
    """Lines as JavaScript and Rust write them."""
    return b"".join(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for value in values)


def claude_code(home: Path, cwd: str, *, session: str = SESSION, folder: str | None = None) -> Path:
    """A session with a sub-agent beside it, the project's memory, a history of prompts and the settings."""
    common = {"isSidechain": False, "cwd": cwd, "sessionId": session, "version": "2.1.330"}
    said = [
        {"parentUuid": None, **common, "type": "user", "message": {"role": "user", "content": f"What is in {cwd}?"}},
        {"parentUuid": "u0", **common, "type": "assistant", "message": reply("A note.")},
    ]
    lines = [{**one, "uuid": f"u{number}", "timestamp": _AT.format(number)} for number, one in enumerate(said)]
    project = (
        home
        / ".claude/projects"
        / (folder or "".join(each if each.isalnum() and each.isascii() else "-" for each in cwd))
    )
    write(project / f"{session}.jsonl", joined(lines))
    agent = [{**one, "isSidechain": True, "agentId": "a1"} for one in lines]
    write(project / session / "subagents/agent-a1.jsonl", joined(agent))
    write(project / session / "tool-results/t1.txt", b"of a tool\n")
    write(project / "memory/MEMORY.md", b"remember\n")
    write(
        home / ".claude/history.jsonl",
        joined([{"display": "hi", "project": cwd}, {"display": "no", "project": f"{cwd}-docker"}]),
    )
    projects = {cwd: {"hasTrustDialogAccepted": True}, f"{cwd}-docker": {"allowedTools": []}}
    write(home / ".claude.json", json.dumps({"userID": "x", "projects": projects}, indent=2).encode())
    return project / f"{session}.jsonl"


def reply(text: str) -> dict[str, Any]:
    """Of Anthropic's API."""
    content = [{"type": "text", "text": text}]
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content, "usage": {}}


def codex(home: Path, cwd: str, *, row: bool = True) -> Path:
    """A rollout, the state database, and the one that counts the rollout's bytes."""
    path = home / f".codex/sessions/2026/11/27/rollout-2026-11-27T18-05-20-{SESSION}.jsonl"
    meta = {"id": SESSION, "timestamp": _AT.format(0), "cwd": cwd, "originator": "codex_exec", "cli_version": "0.169.0"}
    meta |= {"source": "exec", "model_provider": "lab"}
    user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"What is in {cwd}?"}]}
    context = {"cwd": cwd, "approval_policy": "never", "sandbox_policy": {"type": "read-only"}, "model": "gpt-5"}
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A note."}]}
    said = [("session_meta", meta), ("turn_context", context), ("response_item", user), ("response_item", answer)]
    lines = [
        {"timestamp": _AT.format(number), "type": kind, "payload": payload}
        for number, (kind, payload) in enumerate(said)
    ]
    write(path, joined(lines))
    for name, schema in (
        ("state_5.sqlite", THREADS),
        ("state_4.sqlite", THREADS),
        ("thread_history_1.sqlite", HISTORY),
    ):
        with closing(sqlite3.connect(home / ".codex" / name)) as database:
            database.execute(schema)
            if name == "thread_history_1.sqlite":
                database.execute("INSERT INTO thread_history_projection_state VALUES (?, ?)", (SESSION, 100))
            elif row and name == "state_5.sqlite":
                values = (SESSION, str(path), 1, 2, "exec", "lab", cwd, "t", "{}", "never")
                columns = "id, rollout_path, created_at, updated_at, source, model_provider, cwd, title, sandbox_policy, approval_mode"
                database.execute(f"INSERT INTO threads ({columns}) VALUES ({', '.join('?' * len(values))})", values)
            database.commit()
    return path


def gemini_cli(home: Path, cwd: str, *, name: str = "shop") -> Path:
    """A session, the mark of the folder's owner, and the registry of folders."""
    path = home / f".gemini/tmp/{name}/chats/session-2026-11-27T18-05-{SESSION[:8]}.jsonl"
    about = {
        "sessionId": SESSION,
        "projectHash": "0" * 64,
        "startTime": _AT.format(0),
        "lastUpdated": _AT.format(1),
        "kind": "main",
    }
    said = [
        {"id": "1", "timestamp": _AT.format(0), "type": "user", "content": [{"text": f"What is in {cwd}?"}]},
        {"id": "2", "timestamp": _AT.format(1), "type": "gemini", "content": [{"text": "A note."}]},
    ]
    write(path, joined([about, *said]))
    for below in ("tmp", "history"):
        write(home / f".gemini/{below}/{name}/.project_root", cwd.encode())
    write(
        home / ".gemini/projects.json",
        json.dumps({"projects": {cwd: name, f"{cwd}-docker": "docker"}}, indent=2).encode(),
    )
    return path


def pi(home: Path, cwd: str) -> Path:
    """A session in the project's folder."""
    folder = "--" + cwd.lstrip("/").replace("/", "-") + "--"
    header = {"type": "session", "version": 3, "id": SESSION, "timestamp": _AT.format(0), "cwd": cwd}
    user = {"role": "user", "content": [{"type": "text", "text": f"What is in {cwd}?"}], "timestamp": 1}
    line = {"type": "message", "id": "a0", "parentId": None, "timestamp": _AT.format(1), "message": user}
    path = home / f".pi/agent/sessions/{folder}/2026-11-27T18-05-20-000Z_{SESSION}.jsonl"
    write(path, joined([header, line]))
    return path


OPENCODE = """
CREATE TABLE project (id TEXT PRIMARY KEY, worktree TEXT NOT NULL, time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL,
 sandboxes TEXT NOT NULL);
CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT NOT NULL REFERENCES project ON DELETE CASCADE, parent_id TEXT,
 slug TEXT NOT NULL, directory TEXT NOT NULL, path TEXT, title TEXT NOT NULL, version TEXT NOT NULL, cost REAL DEFAULT 0 NOT NULL,
 tokens_input INTEGER DEFAULT 0 NOT NULL, tokens_output INTEGER DEFAULT 0 NOT NULL, agent TEXT, model TEXT,
 time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL, time_archived INTEGER);
CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT NOT NULL REFERENCES session ON DELETE CASCADE,
 time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL, data TEXT NOT NULL);
CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT NOT NULL REFERENCES message ON DELETE CASCADE, session_id TEXT NOT NULL,
 time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL, data TEXT NOT NULL);
CREATE INDEX message_role_idx ON message (id, json_extract(data, '$.role'));
"""
OPENCODE_SESSION = "ses_de10db6d9ffegfQc1BoCmVeDoO"


def opencode(home: Path, cwd: str, *, program: str = "opencode") -> Path:
    """A database with a session that read a file, and the session of its sub-agent."""
    path = home / f".local/share/{program}/{program}.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    began = 1_795_815_524_647

    def rows(session: str, parent: str | None, number: int) -> list[tuple[str, tuple[Any, ...]]]:
        user, reply = (f"msg_21ef24d{number}{each}001n0gxoEsH6WrXF" for each in (1, 2))
        state = {
            "status": "completed",
            "input": {"filePath": "a"},
            "output": "A note.",
            "time": {"start": began + 3, "end": began + 4},
        }
        parts = [
            (user, {"type": "text", "text": f"What is in {cwd}? ({number})"}),
            (reply, {"type": "step-start"}),
            (reply, {"type": "tool", "tool": "read", "callID": "c1", "state": state}),
            (reply, {"type": "text", "text": "A note.", "time": {"start": began + 5}}),
        ]
        said = {
            "role": "user",
            "time": {"created": began},
            "agent": "build",
            "model": {"providerID": "p", "modelID": "m"},
        }
        answered = {
            "role": "assistant",
            "parentID": user,
            "agent": "build",
            "modelID": "m",
            "providerID": "p",
            "cost": 0.5,
        }
        answered |= {
            "tokens": {"input": 3, "output": 5},
            "time": {"created": began + 2},
            "path": {"cwd": cwd, "root": "/"},
        }
        about = (
            session,
            "global",
            parent,
            "s",
            cwd,
            cwd[1:],
            f"Title {number}",
            "1.18.33",
            0.5,
            3,
            5,
            "build",
            "{}",
            began,
            began + 9,
        )
        return [
            ("session", (*about, None)),
            *(
                ("message", (own, session, began, began, json.dumps(data)))
                for own, data in ((user, said), (reply, answered))
            ),
            *(
                ("part", (f"prt_21ef24d{number}{at}001n0gxoEsH6WrXF", own, session, began, began, json.dumps(data)))
                for at, (own, data) in enumerate(parts)
            ),
        ]

    with closing(sqlite3.connect(path)) as database:
        database.executescript(OPENCODE)
        database.execute("INSERT INTO project VALUES ('global', '/', ?, ?, '[]')", (began, began))
        other = OPENCODE_SESSION[:-1] + "P"
        for table, row in [*rows(OPENCODE_SESSION, None, 1), *rows(other, OPENCODE_SESSION, 2)]:
            database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        database.commit()
    return path


def forget_sessions(path: Path) -> None:
    """What the program's own command for it deletes."""
    with closing(sqlite3.connect(path)) as database:
        for table in ("part", "message", "session"):
            database.execute(f"DELETE FROM {table}")
        database.commit()


MAKERS: dict[str, Callable[[Path, str], Path]] = {
    "claude-code": claude_code,
    "codex": codex,
    "gemini-cli": gemini_cli,
    "pi": pi,
}


def write(path: Path, data: bytes) -> None:
    """A file, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
