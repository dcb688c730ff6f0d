"""What a program's list needs beside the session's file, planned as steps. Nothing is written here.

Claude Code 2.1, pi and most others list the files of a folder, which is named after the project's. Gemini CLI 0.61 finds that folder by
``.project_root`` in it. Codex 0.169 lists the rows of ``threads`` in its state database and makes a row for a file only when it scans;
what it shows of a long session is in a second database, which counts the bytes of the file.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import orjson

from transcript_store.sessions._journal import DatabaseChange, FileChange, SessionChangeError, sha256_at
from transcript_store.sessions._rows import RowChange, keys_of_table, open_database, rows_where, table_columns

_STATE = re.compile(r"state_(\d+)\.sqlite")
_HISTORY = re.compile(r"thread_history_(\d+)\.sqlite")
_THREAD = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.jsonl$")
_PROJECTED = ("thread_history_projection_state", "thread_turns", "thread_items", "thread_realtime_items")
_LONGEST_PREVIEW = 500
_OWN_WORDS = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<permissions instructions>")
"""How messages of the role user begin that Codex wrote itself."""


def objects_in(data: bytes) -> Iterator[dict[str, Any]]:
    """The objects of a file of lines; other lines are passed over."""
    for line in data.split(b"\n"):
        with suppress(orjson.JSONDecodeError):
            value = orjson.loads(line)
            if isinstance(value, dict):
                yield value


# ---- Codex ------------------------------------------------------------------------------------------------------------


def codex_row(path: str, data: bytes, *, archived: bool) -> dict[str, Any] | None:
    """The row of ``threads`` for a rollout, as far as the rollout says it; None if it has no session header."""
    meta, context, prompt, tokens, last = None, {}, "", 0, None
    for value in objects_in(data):
        payload = value.get("payload")
        if not isinstance(payload, dict):
            continue
        last = value.get("timestamp") or last
        match value.get("type"):
            case "session_meta":
                meta = meta or payload
            case "turn_context":
                context = payload
            case "event_msg":
                info = payload.get("info")
                if payload.get("type") == "token_count" and isinstance(info, dict):
                    tokens = _number(info, "total_token_usage", "total_tokens") or tokens
                if payload.get("type") == "user_message" and isinstance(payload.get("message"), str):
                    prompt = prompt or payload["message"]
            case "token_usage_record":
                tokens = _number(payload, "thread_token_usage", "total_tokens") or tokens
            case "response_item" if payload.get("role") == "user":
                prompt = prompt or _own_words(payload)
            case _:
                pass
    if meta is None or not isinstance(meta.get("id"), str):
        return None
    created = _milliseconds(meta.get("timestamp")) or _milliseconds(last) or 0
    updated = max(created, _milliseconds(last) or 0)
    source = meta.get("source")
    git = meta["git"] if isinstance(meta.get("git"), dict) else {}
    policy = context.get("sandbox_policy") or context.get("permission_profile") or {"type": "read-only"}
    return {
        "id": meta["id"],
        "rollout_path": path,
        "created_at": created // 1000,
        "updated_at": updated // 1000,
        "created_at_ms": created,
        "updated_at_ms": updated,
        "recency_at": updated // 1000,
        "recency_at_ms": updated,
        "source": source if isinstance(source, str) else json.dumps(source or "cli", separators=(",", ":")),
        "thread_source": _text(meta.get("thread_source")),
        "model_provider": _text(meta.get("model_provider")) or "openai",
        "model": _text(context.get("model")),
        "reasoning_effort": _text(context.get("effort")),
        "cwd": _text(meta.get("cwd")) or _text(context.get("cwd")) or "",
        "title": prompt[:_LONGEST_PREVIEW],
        "first_user_message": prompt[:_LONGEST_PREVIEW],
        "preview": prompt[:_LONGEST_PREVIEW],
        "sandbox_policy": json.dumps(policy, separators=(",", ":")),
        "approval_mode": _text(context.get("approval_policy")) or "on-request",
        "tokens_used": tokens,
        "has_user_event": int(bool(prompt)),
        "archived": int(archived),
        "archived_at": updated // 1000 if archived else None,
        "git_sha": _text(git.get("commit_hash")),
        "git_branch": _text(git.get("branch")),
        "git_origin_url": _text(git.get("repository_url")),
        "cli_version": _text(meta.get("cli_version")) or "",
        "originator": _text(meta.get("originator")),
        "history_mode": _text(meta.get("history_mode")) or "legacy",
    }


def codex_steps(folder: str, rollouts: Mapping[str, bytes]) -> list[DatabaseChange]:
    """The changes that make Codex list rollouts; none for those that it lists.

    Args:
        folder: the program's folder.
        rollouts: path and bytes of each rollout, as they will be.
    """
    if (state := newest(folder, _STATE)) is None:
        return []  # Codex makes one from the files when it starts
    rows = {
        path: row
        for path, data in rollouts.items()
        if (row := codex_row(path, data, archived="/archived_sessions/" in path)) is not None
    }
    found = ask_database(state, lambda connection: _thread_changes(connection, rows))
    return [DatabaseChange(state, tuple(found))] if found else []


def codex_projections(folder: str, rollouts: Iterable[str]) -> list[DatabaseChange]:
    """The changes that make Codex read rollouts again whose bytes change: it keeps how far it read them, and what it found.

    Args:
        folder: the program's folder.
        rollouts: the paths. Each ends in the id of its thread.
    """
    history = newest(folder, _HISTORY)
    ids = [found[1] for path in rollouts if (found := _THREAD.search(path))]
    if history is None or not ids:
        return []
    found = ask_database(history, lambda connection: _projections(connection, ids))
    return [DatabaseChange(history, tuple(found))] if found else []


def codex_moves(folder: str, new_path: Callable[[str], str | None]) -> list[DatabaseChange]:
    """The changes that give threads their new directories."""
    state = newest(folder, _STATE)
    if state is None:
        return []
    found = directory_rows(state, (("threads", "cwd"), ("project_roots", "path")), new_path)
    return [DatabaseChange(state, tuple(found))] if found else []


def directory_rows(
    path: str, columns: Iterable[tuple[str, str]], new_path: Callable[[str], str | None]
) -> list[RowChange]:
    """The changes of the rows of a database whose column is a directory that has another name now.

    Args:
        path: the database.
        columns: tables and their columns with a directory; missing ones are skipped.
        new_path: what a directory is called now; None if it was not moved.

    Raises:
        SessionChangeError: the database cannot be read.
    """

    def changes(connection: sqlite3.Connection) -> list[RowChange]:
        found = []
        for table, column in columns:
            if column not in table_columns(connection, table):
                continue
            keys = keys_of_table(connection, table)
            for row in rows_where(connection, table, {}):
                old = row[column]
                if isinstance(old, str) and (new := new_path(old)) is not None:
                    where = {name: row[name] for name in keys}
                    found.append(RowChange(table, where, (row,), ({**row, column: new},)))
        return found

    return list(ask_database(path, changes))


def opencode_rows(path: str, new_path: Callable[[str], str | None]) -> list[RowChange]:
    """The changes that give opencode's sessions their new directories.

    A session has its directory twice: since 1.18 ``path`` has it below the project's worktree, and the list goes by that.

    Raises:
        SessionChangeError: the database cannot be read.
    """

    def changes(connection: sqlite3.Connection) -> list[RowChange]:
        roots = {row.get("id"): row.get("worktree") for row in rows_where(connection, "project", {})}
        found = []
        for table in ("session", "session_v2"):
            if "directory" not in table_columns(connection, table):
                continue
            for row in rows_where(connection, table, {}):
                old, root = row["directory"], roots.get(row.get("project_id"))
                if not isinstance(old, str) or (new := new_path(old)) is None:
                    continue
                after = {**row, "directory": new}
                if isinstance(root, str) and row.get("path") == path_below(old, root):
                    after["path"] = path_below(new, new_path(root) or root)
                found.append(RowChange(table, {"id": row["id"]}, (row,), (after,)))
        return found

    return [*directory_rows(path, (("project", "worktree"),), new_path), *ask_database(path, changes)]


def path_below(path: str, root: str) -> str | None:
    """The path as OpenCode has it: from a root; empty for the root itself, None if it is elsewhere."""
    below = os.path.relpath(path, root)
    return "" if below == "." else None if below.startswith("..") else below


def newest(folder: str, pattern: re.Pattern[str]) -> str | None:
    """The path of the database with the highest number in a folder; None if there is none."""
    folder = os.environ.get("CODEX_SQLITE_HOME") or folder
    try:
        names = [(int(found[1]), name) for name in os.listdir(folder) if (found := pattern.fullmatch(name))]
    except OSError:
        return None
    return os.path.join(folder, max(names)[1]) if names else None


def ask_database(path: str, ask: Callable[[sqlite3.Connection], Any]) -> Any:
    """What a question about a database gives, in one transaction that only reads.

    Raises:
        SessionChangeError: the database cannot be read.
    """
    try:
        with open_database(path) as connection:
            return ask(connection)
    except sqlite3.Error as error:
        raise SessionChangeError(path=path, reason=f"the database cannot be read: {error}") from error


def _thread_changes(connection: sqlite3.Connection, rows: Mapping[str, dict[str, Any]]) -> list[RowChange]:
    columns = table_columns(connection, "threads")
    found = []
    for path, wanted in rows.items():
        row = {name: value for name, value in wanted.items() if name in columns}
        if missing := [name for name, is_needed in columns.items() if is_needed and row.get(name) is None]:
            reason = f"threads needs {missing[0]}, which the rollout lacks: this version of Codex is unknown"
            raise SessionChangeError(path=path, reason=reason)
        there = rows_where(connection, "threads", {"id": row["id"]})
        if not there:
            found.append(RowChange("threads", {"id": row["id"]}, (), (row,)))
        elif there[0]["rollout_path"] != path and not os.path.exists(there[0]["rollout_path"]):
            after = {**there[0], "rollout_path": path, "archived": row["archived"], "archived_at": row["archived_at"]}
            found.append(RowChange("threads", {"id": row["id"]}, tuple(there), (after,)))
    return found


def _projections(connection: sqlite3.Connection, ids: list[str]) -> list[RowChange]:
    wheres = [
        (table, {"thread_id": own_id}) for table in _PROJECTED if table_columns(connection, table) for own_id in ids
    ]
    found = ((table, where, rows_where(connection, table, where)) for table, where in wheres)
    changes = [RowChange(table, where, tuple(rows), ()) for table, where, rows in found if rows]
    return changes[::-1]  # a trigger of the first table clears the last one


def _own_words(payload: Mapping[str, Any]) -> str:
    parts = payload.get("content")
    for part in parts if isinstance(parts, list) else ():
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(text, str) and text.strip() and not text.lstrip().startswith(_OWN_WORDS):
            return text
    return ""


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Mapping[str, Any], *names: str) -> int:
    found: Any = value
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if type(found) is int else 0


def _milliseconds(at: object) -> int:
    with suppress(ValueError, TypeError, OverflowError):
        return int(datetime.fromisoformat(str(at)).timestamp() * 1000)
    return 0


# ---- Gemini CLI -------------------------------------------------------------------------------------------------------


def gemini_folder(folder: str, cwd: str, wanted: str) -> tuple[str, list[FileChange]]:
    """The name of the folder in which Gemini CLI looks for a project's sessions, and the steps that make it so.

    Args:
        folder: the program's folder.
        cwd: the project's directory.
        wanted: the name to use if the program has none for it yet.
    """
    registered = read_document(os.path.join(folder, "projects.json")).get("projects")
    name = registered.get(cwd) if isinstance(registered, dict) else None
    if isinstance(name, str) and re.fullmatch(r"[\w-][\w.-]*", name) and _owner(folder, name) in (cwd, None):
        return name, _marker(folder, name, cwd)
    with suppress(OSError):
        for entry in sorted(os.listdir(os.path.join(folder, "tmp"))):
            if _owner(folder, entry) == cwd:
                return entry, []
    name, number = wanted, 1
    while _owner(folder, name) not in (cwd, None):
        name, number = f"{wanted}-{number}", number + 1
    return name, _marker(folder, name, cwd)


def _marker(folder: str, name: str, cwd: str) -> list[FileChange]:
    path = os.path.join(folder, "tmp", name, ".project_root")
    return [] if os.path.exists(path) else [FileChange(path, cwd.encode(), None)]


def _owner(folder: str, name: str) -> str | None:
    with suppress(OSError, UnicodeDecodeError), open(os.path.join(folder, "tmp", name, ".project_root"), "rb") as file:
        return file.read(1 << 16).decode().strip()
    return None


def read_document(path: str) -> dict[str, Any]:
    """A small JSON document; empty if there is none."""
    with suppress(OSError, ValueError), open(path, "rb") as file:
        found = json.loads(file.read())
        return found if isinstance(found, dict) else {}
    return {}


def document_change(path: str, value: Mapping[str, Any]) -> FileChange:
    """The step that gives a JSON document other contents, as JavaScript writes them with two spaces."""
    return FileChange(path, json.dumps(value, indent=2, ensure_ascii=False).encode(), sha256_at(path))
