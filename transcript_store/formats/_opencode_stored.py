"""OpenCode's messages in the rows of both versions, or in an exported document. ``_opencode`` interprets them."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from transcript_store.formats._document import LONGEST_BYTES, Span, pieces_within, read_all
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import Json, obj, objects, text_member
from transcript_store.formats._plan import ImportFinding
from transcript_store.formats._rows import column_names, json_column, row_line, rows_of, sql_value
from transcript_store.messages import as_text

_SESSION = column_names(
    "id parent_id fork_session_id directory title version revert slug time_created time_updated time_archived"
)
_FORK = re.compile(r" \(fork #\d+\)\Z")


@dataclass(slots=True)
class StoredMessage:
    id: str
    kind: str
    """``user``, ``assistant``, or another type of version 2."""
    data: Json
    parts: list[Json]
    line: SourceLine
    created: Any = None


@dataclass(slots=True)
class StoredSession:
    about: Json
    messages: list[StoredMessage] = field(default_factory=list)
    before: list[SourceLine] = field(default_factory=list)
    """The part of a document before its messages."""
    findings: list[ImportFinding] = field(default_factory=list)


def stored_sessions(tables: Any, skip: Container[str]) -> Iterator[StoredSession]:
    """The sessions of both versions, each once."""
    about: dict[str, Json] = {}
    for table in ("session", "session_v2"):
        for row in rows_of(tables, table, _SESSION, ("time_created", "id")):
            known = {name: value for name, value in row.items() if value is not None}
            about.setdefault(str(row["id"]), {}).update(known)
    titled = {text_member(row.get("title")): key for key, row in reversed(about.items())}
    for key, row in about.items():
        if key in skip:
            continue
        session = StoredSession({**row, "id": key})
        for message in _messages(tables, row.get("id"), session.findings):
            session.messages.append(message)
        title = str(row.get("title"))
        if (origin := titled.get(_FORK.sub("", title))) not in (None, key) and _FORK.search(title):
            first = next(iter(_messages(tables, about[str(origin)].get("id"), [], most=1)), None)
            if first is not None and session.messages and _created(first) == _created(session.messages[0]):
                session.about.setdefault("fork_session_id", origin)  # version 1 copies all, and notes it nowhere
        yield session


def _created(message: StoredMessage) -> Any:
    return obj(message.data.get("time")).get("created")


def _messages(
    tables: Any, session: object, findings: list[ImportFinding], most: int | None = None
) -> Iterator[StoredMessage]:
    """The messages of a session: those of version 1, then those of version 2 that are not among them."""
    known, where = ("id", "time_created", "data"), {"session_id": session}
    first = sorted(rows_of(tables, "message", known, ("time_created", "id"), where), key=_ascending)
    has_session = "session_id" in tables.columns("part")
    parts: dict[object, list[Json]] = defaultdict(list)
    if has_session and most is None:
        for row in rows_of(tables, "part", ("id", "message_id", "data"), ("id",), where):
            parts[row["message_id"]].append(row)
    number = 0
    for number, row in enumerate(islice(first, most), 1):
        if not has_session:
            parts[row["id"]] = list(rows_of(tables, "part", ("id", "data"), ("id",), {"message_id": row["id"]}))
        yield _message(number, row, None, sorted(parts.pop(row["id"], ()), key=_ascending), findings)
    seen = {row["id"] for row in first}
    if tables.columns("session_v2"):
        for row in rows_of(tables, "session_message", (*known, "type"), ("seq",), where):
            if row["id"] not in seen:
                number += 1
                yield _message(number, row, str(row["type"]), (), findings)


def _ascending(row: Json) -> str:
    """By the id: the program's ids ascend with time. Rows with other ids keep their order."""
    key = row["id"]
    return key if isinstance(key, str) and re.match(r"(msg|prt)_[0-9a-f]{12}", key) else ""


def _message(
    number: int, row: Json, kind: str | None, rows: Iterable[Json], findings: list[ImportFinding]
) -> StoredMessage:
    data, why_not = json_column(row["data"])
    findings += [ImportFinding(*why_not, number)] if why_not is not None else []
    kept: Json = {"id": row["id"], "time_created": row["time_created"], "data": row["data"] if data is None else data}
    kept |= {} if kind is None else {"type": kind}
    found, data = [], dict(data or {})
    for each in rows:
        part, why_not = json_column(each["data"])
        findings += [ImportFinding(*why_not, number)] if why_not is not None else []
        found.append(each["data"] if part is None else _without_note(part))
    if kind is None:
        data["role"] = kind = text_member(data.get("role")) or "unreadable"
        kept["parts"] = found
        # The program adds the patches to a prompt long after it: they would change a line that is on record.
        if kind == "user" and kept["data"] is not row["data"]:
            kept["data"] = {name: member for name, member in kept["data"].items() if name != "summary"}
    parts = [one for one in found if isinstance(one, dict)] or _of_second_version(kind, data)
    try:
        line = row_line(number, kept)
    except RecursionError:  # nested nearly as deep as JSON may be
        line, parts = row_line(number, {"id": row["id"], "data": as_text(sql_value(row["data"]))}), []
        kind = "unreadable"
    return StoredMessage(str(row["id"]), kind, data, parts, line, row["time_created"])


def _of_second_version(kind: str, data: Json) -> list[Json]:
    if kind == "user" and text_member(data.get("text")):
        files = ({**one, "type": "file"} for one in objects(data.get("files")))
        return [{"type": "text", "text": data["text"]}, *files]
    return objects(data.get("content"))


def _without_note(part: Json) -> Json:
    """The part without the note that its old result is no longer sent: the program sets it long after the message."""
    time = obj(obj(part.get("state")).get("time"))
    if "compacted" not in time:
        return part
    kept = {name: member for name, member in time.items() if name != "compacted"}
    return {**part, "state": {**part["state"], "time": kept}}


def exported_session(source: Any) -> Iterator[StoredSession]:
    """The session of a document; its first line is everything before the messages."""
    raw = read_all(source, Span(0, min(source.size, LONGEST_BYTES)))
    if not raw:
        return
    document, why_not = json_column(raw.removeprefix(b"\xef\xbb\xbf"))
    document = document or {}
    messages, pieces = objects(document.get("messages")), pieces_within(raw, "messages")
    info, times = obj(document.get("info")), obj(obj(document.get("info")).get("time"))
    about: Json = {name: info[name] for name in ("directory", "title", "version", "revert") if name in info}
    about |= {"parent_id": info["parentID"]} if "parentID" in info else {}
    about |= {f"time_{name}": times[name] for name in ("updated", "archived") if name in times}
    number = text_member(info.get("id")) or hashlib.sha256(raw[:65536]).hexdigest()
    session = StoredSession({**about, "id": number})
    session.findings += [ImportFinding(*why_not, 1, 0)] if why_not is not None else []
    if source.size > LONGEST_BYTES:
        message = f"a document longer than {LONGEST_BYTES:,} bytes was left out"
        session.findings.append(ImportFinding("too-long", message, 1, 0))
        session.before = [SourceLine(1, 0, b"", None)]
    elif len(pieces) != 1 + len(messages):
        session.before = [SourceLine(1, 0, raw, None)]
    else:
        session.before = [SourceLine(1, 0, pieces[0][1], None)]
        for place, ((offset, piece), value) in enumerate(zip(pieces[1:], messages, strict=True), 2):
            data = obj(value.get("info"))
            its_id, kind, parts = str(data.get("id")), str(data.get("role")), objects(value.get("parts"))
            session.messages.append(StoredMessage(its_id, kind, data, parts, SourceLine(place, offset, piece, value)))
    yield session
