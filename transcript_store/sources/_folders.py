"""Sessions that are a folder of small files, read as one source of lines: the file that stands for the folder, and those with its lines.

A file is one line, an array is a line for each of its objects, and a file of lines is those. A reader and ``--to original`` get the
lines of all of them, in the order of :attr:`FolderLayout.parts`.
"""

from __future__ import annotations

import io
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from transcript_store.formats._document import objects_of, parse_object
from transcript_store.formats._lines import BytesSource
from transcript_store.formats._members import Json, obj, text_in
from transcript_store.sources._files import (
    FileSource,
    Rows,
    Stamp,
    UnreadableSourceError,
    how_it_looks,
    open_source,
    private_copy,
)

ReadBeside = Callable[[str], bytes | None]
"""Reads a file by its path below the folder; None if it is missing or too long."""
NamesIn = Callable[[str], list[str]]
"""The names of the files in a folder below it, sorted."""


class FolderLayout(NamedTuple):
    """How one program lays a session out."""

    anchor: str
    """The file that stands for the folder: the program writes it at every change of the session."""
    beside: tuple[str, ...]
    """Files and folders beside the anchor that are not sessions. If the first is a folder, its files are parts."""
    parts: Callable[[ReadBeside, NamesIn], Iterable[str]]
    """The paths of its parts, in order. Each has to be there: a session of which a part is missing is refused."""


def _of_openhands(_: ReadBeside, names: NamesIn) -> Iterator[str]:
    for name in names("events"):
        if name.startswith("event-") and name.endswith(".json"):
            yield f"events/{name}"


def _of_vibe(read: ReadBeside, names: NamesIn) -> Iterator[str]:
    """The parts of the generation that ``CURRENT`` names: the person's view, the model's, and later events."""
    generation = text_in(_object(read("CURRENT")), "generation")
    if not _is_name(generation):
        return
    folder = f"generations/{generation}"
    manifest = _object(read(f"{folder}/manifest.json"))
    for state in ("projection_state", "checkpoint"):
        chunks = obj(manifest.get(state)).get("chunks")
        yield from (f"chunks/{one}.json" for one in (chunks if isinstance(chunks, list) else ()) if _is_name(one))
    yield from (f"{folder}/{name}" for name in names(folder) if name == "checkpoint.json")
    journal = text_in(obj(manifest.get("recovery_journal_segment")), "path").rpartition("/")[2]
    yield from (f"journal/{name}" for name in names("journal") if name == journal)


def _object(raw: bytes | None) -> Json:
    return parse_object(raw or b"") or {}


def _is_name(given: object) -> bool:
    """True for the name of one file: text of a foreign file is not a path."""
    return isinstance(given, str) and given not in ("", ".", "..") and {"/", "\\", "\0"}.isdisjoint(given)


_BESIDE_GROKS_UPDATES = (
    *("chat_history.jsonl", "compaction_checkpoints", "summary.json", "plan.json", "rewind_points.jsonl"),
    *("signals.json", "feedback.jsonl"),
)
"""Grok Build's session is one file: the others repeat it, or are read with it."""
LAYOUTS: tuple[FolderLayout, ...] = (
    FolderLayout("base_state.json", ("events", "TASKS.json"), _of_openhands),
    FolderLayout("updates.jsonl", _BESIDE_GROKS_UPDATES, lambda _read, _names: ()),
    FolderLayout("CURRENT", ("generations", "chunks", "journal", "meta.json", "scheduled-loops.json"), _of_vibe),
)

LONGEST_FOLDER_BYTES = 4 << 30
_LONGEST_PART_BYTES = 256 << 20
ANCHORS = frozenset(layout.anchor for layout in LAYOUTS)


def layout_of(path: str) -> FolderLayout | None:
    """The layout of a session folder, if the file is its anchor; else None."""
    folder, name = os.path.split(path)
    for layout in LAYOUTS:
        if layout.anchor == name and os.path.isdir(os.path.join(folder, layout.beside[0])):
            return layout
    return None


def bytes_beside(path: str) -> int:
    """The bytes of the other files of a session: those that lie beside the anchor of its folder, or in other folders."""
    folder, name = os.path.split(path)
    if (layout := layout_of(path)) is not None:
        return sum(_bytes_below(os.path.join(folder, one)) for one in layout.beside)
    if not is_stored_apart(path):
        return 0
    storage = os.path.dirname(os.path.dirname(folder))
    messages = f"{storage}/message/{name.removesuffix('.json')}"
    with suppress(OSError):
        parts = [f"{storage}/part/{one.removesuffix('.json')}" for one in os.listdir(messages)]
        return _bytes_below(messages) + sum(map(_bytes_below, parts))
    return 0


def _bytes_below(path: str) -> int:
    """Of a file, or of all files below a folder; 0 of what cannot be read. No link is followed."""
    files = [os.path.join(above, name) for above, _, names in os.walk(path) for name in names] or [path]
    statuses = []
    for file in files:
        with suppress(OSError):
            statuses.append(os.lstat(file))
    return sum(status.st_size for status in statuses if stat.S_ISREG(status.st_mode))


def without_parts(paths: Iterable[str]) -> set[str]:
    """The paths that are not parts of a folder whose anchor is among them."""
    given = list(paths)
    parts = {
        os.path.join(os.path.dirname(path), name)
        for path in given
        for layout in LAYOUTS
        if os.path.basename(path) == layout.anchor
        for name in layout.beside
    }
    return {path for path in given if not parts or parts.isdisjoint(_with_above(path))}


@contextmanager
def folder_source(path: str, anchor: FileSource, layout: FolderLayout) -> Iterator[FileSource]:
    """The files of a session as one source. A change is seen by the stamps of the anchor and of their folders.

    Raises:
        UnreadableSourceError: a part is missing, is a link or is too long; or they have more than 4 GB.
    """
    folder = os.path.dirname(path)
    seen = {os.path.join(folder, name): how_it_looks(os.path.join(folder, name)) for name in layout.beside}

    def read(part: str) -> bytes | None:
        return anchor.beside(part, longest=_LONGEST_PART_BYTES)

    def required(part: str) -> bytes:
        if (found := read(part)) is None:
            reason = (
                f"its part {part} is missing, is not a regular file, or is longer than {_LONGEST_PART_BYTES:,} bytes"
            )
            raise UnreadableSourceError(path=path, reason=reason)
        return found

    def names(part: str) -> list[str]:
        try:
            with os.scandir(os.path.join(folder, part)) as entries:
                return sorted(entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise UnreadableSourceError(
                path=path, reason=f"its folder {part} cannot be read: {error.strerror}"
            ) from error

    data = b"".join(line for part in layout.parts(read, names) for line in _lines_of(required(part)))
    if (last := data.removesuffix(b"\n").rpartition(b"\n")[2]) and not _is_json(last):
        data = data.removesuffix(b"\n")  # it is being written: left for the next import, as of any file of lines
    stamp = anchor.stamp._replace(size=len(data))
    with private_copy(path, io.BytesIO(data), stamp, LONGEST_FOLDER_BYTES) as source:
        source.neighbours, source.seen_beside = anchor.neighbours, seen
        yield source


def _lines_of(data: bytes) -> Iterator[bytes]:
    if data.lstrip()[:1] == b"[":
        source = BytesSource("a part", data)
        yield from (data[span.offset : span.offset + span.size] + b"\n" for span in objects_of(source))
    elif data:
        yield data if data.endswith(b"\n") else data + b"\n"


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


def _with_above(path: str) -> Iterator[str]:
    """A path, and the folders that it lies in."""
    yield path
    while (above := os.path.dirname(path)) != path:
        path = above
        yield path


# ---- json rows ----
#
# A session that a program keeps as a JSON file for each message and each part, as the rows of the tables that it has them in today.
#
# OpenCode before 1.2, and what descends from it: ``storage/session/PROJECT/SESSION.json``, ``storage/message/SESSION/*.json`` and
# ``storage/part/MESSAGE/*.json``. The file of the session is the source; the others are read with it, each to its end and no link.

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
