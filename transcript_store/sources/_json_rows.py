"""A session that a program keeps as a JSON file for each message and each part, as the rows of the tables that it has them in today.

OpenCode before 1.2, and what descends from it: ``storage/session/PROJECT/SESSION.json``, ``storage/message/SESSION/*.json`` and
``storage/part/MESSAGE/*.json``. The file of the session is the source; the others are read with it, each to its end and no link.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import orjson

from transcript_store.sources._files import Rows, Stamp, UnreadableSourceError, open_source

_LONGEST_FILE_BYTES = 64 << 20
_MEMBERS = {name: name for name in ("id", "directory", "title", "version")} | {"parent_id": "parentID"}
_MEMBERS |= {f"time_{name}": f"time.{name}" for name in ("created", "updated", "archived")}


def is_stored_apart(path: str) -> bool:
    """True for the JSON file of a session whose messages are in another folder."""
    storage, kind = os.path.split(os.path.dirname(os.path.dirname(path)))
    return kind == "session" and path.endswith(".json") and os.path.isdir(f"{storage}/message")


class JsonRows(Rows):
    """The tables ``session``, ``message`` and ``part`` of one session."""

    def __init__(self, path: str, stamp: Stamp) -> None:  # no connection: there is no database
        self.name, self.stamp = path, stamp
        storage = os.path.dirname(os.path.dirname(os.path.dirname(path)))
        session = _row(path, None)
        its_id = str(session["id"])
        messages = _rows(f"{storage}/message", its_id, its_id)
        parts = [
            part | {"message_id": message["id"]}
            for message in messages
            for part in _rows(f"{storage}/part", str(message["id"]), its_id)
        ]
        self._rows = {"session": [session], "message": messages, "part": parts}

    def columns(self, table: str) -> tuple[str, ...]:
        return tuple(rows[0]) if (rows := self._rows.get(table)) else ()

    def tables(self) -> dict[str, tuple[str, ...]]:
        return {
            "message": ("id", "session_id", "data"),
            **{table: self.columns(table) for table in self._rows if self._rows[table]},
        }

    def rows(
        self,
        table: str,
        columns: Iterable[str],
        order: Iterable[str],  # noqa: ARG002 (the names of the files are the order)
        where: Mapping[str, object] = MappingProxyType({}),
    ) -> Iterator[tuple[Any, ...]]:
        wanted = tuple(columns)
        found = [row for row in self._rows[table] if all(row[name] == value for name, value in where.items())]
        return iter([tuple(row[name] for name in wanted) for row in found])


def _rows(above: str, name: str, session: str) -> list[dict[str, Any]]:
    """The files of a folder named by an id, by their names; none if the id is not a valid folder name."""
    folder = f"{above}/{name}"
    if os.path.basename(folder) != name or name in ("", ".", ".."):
        return []
    try:
        names = sorted(each for each in os.listdir(folder) if each.endswith(".json"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return []
    except OSError as error:
        raise UnreadableSourceError(path=folder, reason=f"cannot be listed: {error.strerror}") from error
    return [_row(f"{folder}/{each}", session) for each in names]


def _row(path: str, session: str | None) -> dict[str, Any]:
    """A file as a row. A file that is not a JSON object is a row with its text, which the reader reports."""
    with open_source(path) as handle:
        status = os.fstat(handle)
        size = status.st_size
        if size > _LONGEST_FILE_BYTES:
            raise UnreadableSourceError(path=path, reason=f"is longer than {_LONGEST_FILE_BYTES:,} bytes")
        raw = os.pread(handle, size, 0)
    try:
        value = orjson.loads(raw)
    except ValueError:
        value = {}
    value = value if isinstance(value, dict) else {}
    row: dict[str, Any] = {}
    for column, name in _MEMBERS.items():
        outer, _, inner = name.partition(".")
        found = value.get(outer)
        row[column] = found.get(inner) if inner and isinstance(found, dict) else None if inner else found
    revert = value.get("revert")
    name = os.path.basename(path)[:-5]
    row |= {"id": row["id"] if isinstance(row["id"], str) else name, "session_id": session}
    if session is not None:
        row["time_updated"] = status.st_mtime_ns  # the only sign that a message or a part changed
    return row | {
        "data": raw.decode(errors="replace"),
        "revert": None if revert is None else orjson.dumps(revert).decode(),
    }
