"""A session as rows of OpenCode's database, which Kilo has too: what its own ``import`` would write, planned. Nothing is written here.

Tried with OpenCode 1.18.33 and Kilo 7.7.7. A session belongs to the project whose folder it is in, and to ``global`` if there is none:
the list goes by that, and by the session's path below the project. Events, which the program writes along, are not needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from transcript_store.display import many
from transcript_store.sessions._journal import DatabaseChange, SessionChangeError
from transcript_store.sessions._listed import ask_database, path_below
from transcript_store.sessions._rows import Row, RowChange, rows_where, table_columns

ROW_PROGRAMS = ("opencode", "kilo")
"""The programs with these tables."""

_TABLES = ("session", "message", "part")
_STAMP = re.compile(r"msg_([0-9a-f]{12})")
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class StoredRows:
    """A session as rows."""

    session: Row
    messages: tuple[Row, ...]
    parts: tuple[Row, ...]

    @property
    def id(self) -> str:
        """What the program calls the session."""
        return str(self.session["id"])


def session_database(program: str, folder: str, environ: Mapping[str, str] | None = None) -> str:
    """The path of a program's database."""
    environ = os.environ if environ is None else environ
    return environ.get(f"{program.upper()}_DB") or os.path.join(folder, f"{program}.db")


def rows_of_document(data: bytes, cwd: str) -> StoredRows:
    """The rows of a document that the program's ``export`` writes, or this package for it.

    Raises:
        ValueError: it is no such document.
    """
    document = orjson.loads(data)
    try:
        info, messages = document["info"], document["messages"]
        times = info.get("time") or {}
        created = int(times.get("created") or messages[0]["info"]["time"]["created"])
        session = {
            "id": info["id"],
            "parent_id": info.get("parentID"),
            "slug": info.get("slug") or _slug(info["id"]),
            "directory": cwd,
            "title": info["title"],
            "version": info["version"],
            "time_created": created,
            "time_updated": int(times.get("updated") or created),
            "time_archived": times.get("archived"),
        }
        rows: list[Row] = []
        parts: list[Row] = []
        for message in messages:
            own = message["info"]
            at = int(own["time"]["created"])
            rows.append(_row(own["id"], at, _without(own, "id", "sessionID"), session_id=info["id"]))
            for part in message["parts"]:
                its = {"message_id": own["id"], "session_id": info["id"]}
                parts.append(_row(part["id"], _began(part, at), _without(part, "id", "sessionID", "messageID"), **its))
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"no session of OpenCode: {error}") from error
    return StoredRows(session, tuple(rows), tuple(parts))


def rows_of_lines(lines: Iterable[bytes], note: Mapping[str, Any], labels: Mapping[str, str], cwd: str) -> StoredRows:
    """The rows of a session that was imported from such a database, from its lines, what its import noted, and its labels.

    The messages have their own ids and bytes. A line does not have the ids of its parts: they are made of the message's, in order. What
    the session's own row said besides (slug, permissions, sums of a patch) is not on record.

    Raises:
        ValueError: a line is no message of version 1.
    """
    session = str(note["session"])
    rows: list[Row] = []
    parts: list[Row] = []
    for line in lines:
        said = orjson.loads(line)
        if not isinstance(said, dict) or not isinstance(said.get("parts"), list) or not isinstance(said.get("id"), str):
            raise ValueError("it has messages of version 2, whose rows are not known here")
        at = int(said["time_created"])
        rows.append(_row(said["id"], at, said["data"], session_id=session))
        for number, part in enumerate(said["parts"], 1):
            its = {"message_id": said["id"], "session_id": session}
            parts.append(_row(_part_id(said["id"], at, number), _began(part, at), part, **its))
    if not rows:
        raise ValueError("it has no message")
    about = {
        "id": session,
        "parent_id": labels.get("part_of"),
        "slug": _slug(session),
        "directory": cwd,
        "title": labels.get("title") or f"New session - {_iso(rows[0]['time_created'])}",
        "version": note.get("version") or "0.0.0",
        "time_created": rows[0]["time_created"],
        "time_updated": _milliseconds((note.get("edition") or [None])[0]) or rows[-1]["time_created"],
        "time_archived": _milliseconds(labels.get("archived")),
        **_sums(rows),
    }
    return StoredRows(about, tuple(rows), tuple(parts))


def row_steps(database: str, sessions: Sequence[StoredRows]) -> DatabaseChange | None:
    """The change that makes a program list and resume sessions; None if it has all of them. What it has is left alone.

    Raises:
        SessionChangeError: there is no database, or it is another version's.
    """
    if not os.path.isfile(database):
        raise SessionChangeError(path=database, reason="is not there: start the program once, and run this again")
    changes = ask_database(database, lambda connection: _changes(connection, database, sessions))
    return DatabaseChange(database, tuple(changes)) if changes else None


def said_of_rows(change: DatabaseChange) -> str:
    """How many rows of each kind a change has."""
    counts = {table: sum(len(each.after) for each in change.rows if each.table == table) for table in _TABLES}
    return ", ".join(many(count, table) for table, count in counts.items() if count)


def _changes(connection: sqlite3.Connection, database: str, sessions: Sequence[StoredRows]) -> list[RowChange]:
    if table_columns(connection, "session_v2") and connection.execute("SELECT 1 FROM session_v2").fetchone():
        reason = "has sessions of version 2: `export --to` writes a file that the program's own import takes"
        raise SessionChangeError(path=database, reason=reason)
    found: list[RowChange] = []
    projects: dict[str, Row] = {}
    for each in sessions:
        if rows_where(connection, "session", {"id": each.id}):
            continue
        project = _project(connection, each.session["directory"], each.session["time_created"])
        if not rows_where(connection, "project", {"id": project["id"]}):
            projects[project["id"]] = project
        session = {
            **each.session,
            "project_id": project["id"],
            "path": path_below(each.session["directory"], project["worktree"]),
        }
        for table, where, rows in (
            ("session", {"id": each.id}, (session,)),
            ("message", {"session_id": each.id}, each.messages),
            ("part", {"session_id": each.id}, each.parts),
        ):
            fitting = tuple(_fitting(connection, database, table, row) for row in rows)
            before = tuple(
                rows_where(connection, table, where)
            )  # rows without a session are nobody's: they are replaced
            if fitting or before:
                found.append(RowChange(table, where, before, fitting))
    made = [
        RowChange("project", {"id": own}, (), (_fitting(connection, database, "project", row),))
        for own, row in projects.items()
    ]
    return [*made, *found]


def _project(connection: sqlite3.Connection, cwd: str, at: int) -> Row:
    """The project whose folder is the nearest above a directory; the one for all other directories if there is none."""
    above = [
        row
        for row in rows_where(connection, "project", {})
        if isinstance(row["worktree"], str) and os.path.commonpath([row["worktree"], cwd]) == row["worktree"]
    ]
    if above:
        return max(above, key=lambda row: len(row["worktree"]))
    return {"id": "global", "worktree": "/", "time_created": at, "time_updated": at, "sandboxes": "[]"}


def _fitting(connection: sqlite3.Connection, database: str, table: str, row: Row) -> Row:
    """The row with the columns that this version of the table has."""
    columns = table_columns(connection, table)
    fitting = {name: value for name, value in row.items() if name in columns and value is not None}
    if missing := [name for name, is_needed in columns.items() if is_needed and name not in fitting]:
        reason = f"{table} needs {missing[0]}, which is not on record here: this version of the program is not known"
        raise SessionChangeError(path=database, reason=reason)
    return fitting


def _row(own: str, at: int, data: object, **more: str) -> Row:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return {"id": own, **more, "time_created": at, "time_updated": at, "data": text}


def _without(value: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: member for name, member in value.items() if name not in names}


def _began(part: object, otherwise: int) -> int:
    """When a part began, by itself or by the state of its tool."""
    if isinstance(part, dict):
        for holder in (part.get("state"), part):
            times = holder.get("time") if isinstance(holder, dict) else None
            if isinstance(times, dict) and type(times.get("start")) is int:
                return int(times["start"])
    return otherwise


def _part_id(message: str, at: int, number: int) -> str:
    """An id as the program makes them: they ascend, and sort the parts of a message."""
    found = _STAMP.match(message)
    stamp = (int(found[1], 16) if found else at * 4096 & 0xFFFFFFFFFFFF) + number
    digest = int.from_bytes(hashlib.sha256(f"{message}/{number}".encode()).digest()[:16])
    letters = "".join(_LETTERS[digest // 62**place % 62] for place in range(14))
    return f"prt_{stamp & 0xFFFFFFFFFFFF:012x}{letters}"


def _slug(session: str) -> str:
    return f"restored-{hashlib.sha256(session.encode()).hexdigest()[:8]}"


def _sums(messages: Sequence[Row]) -> Row:
    """What the session's row says of its replies: their tokens, the model and the agent of the last one."""
    found: Row = {"cost": 0.0}
    for row in messages:
        with suppress(ValueError, AttributeError):
            data = orjson.loads(row["data"])
            if data.get("role") != "assistant":
                continue
            tokens = data.get("tokens") or {}
            cache = tokens.get("cache") or {}
            counts = {name: tokens.get(name) for name in ("input", "output", "reasoning")}
            counts |= {"cache_read": cache.get("read"), "cache_write": cache.get("write")}
            for name, count in counts.items():
                found[f"tokens_{name}"] = found.get(f"tokens_{name}", 0) + (count if type(count) is int else 0)
            cost = data.get("cost")
            found["cost"] += cost if isinstance(cost, int | float) else 0
            found["agent"] = data.get("agent") or data.get("mode")
            if data.get("modelID") and data.get("providerID"):
                found["model"] = json.dumps(
                    {"id": data["modelID"], "providerID": data["providerID"]}, separators=(",", ":")
                )
    return found


def _iso(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"


def _milliseconds(at: object) -> int | None:
    with suppress(ValueError, TypeError, OverflowError):
        return int(datetime.fromisoformat(str(at)).timestamp() * 1000)
    return None
