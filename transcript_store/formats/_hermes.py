"""Hermes: the rows of ``state.db``; the lines of ``hermes sessions export``, one per session; and the JSON files of its first
versions.

Messages are those of chat completions, for every provider: ``tool_calls`` are a JSON text, and a content with parts is one after
the mark ``json:``, which starts with NUL or U+0001. Files of 0.19.0 show:

* A compaction sets ``compacted`` of all rows. It inserts the kept rows again, a microsecond apart, around a summary of the user's
  (``[CONTEXT COMPACTION``). Such a run of rows starts a generation.
* Rows that ``/undo`` takes back are neither ``active`` nor ``compacted``: they are kept as a branch that was left.
* Only a result's text tells a failure. No row has its model, but the times of each model's requests are stored.
* A sub-agent is a session with that ``source``. A session that continues a compacted one names it as its parent too.
* Tokens are the session's sums; replies have none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from transcript_store.formats._document import Span, objects_of, read_all
from transcript_store.formats._document_lines import lines_of_document, objects_on
from transcript_store.formats._facts import facts_of
from transcript_store.formats._hermes_rows import (
    HermesRow,
    about_row,
    beginnings_of,
    last_seen,
    message_of_row,
    object_on_text,
)
from transcript_store.formats._members import Json, first_text, obj
from transcript_store.formats._messages_api import walked
from transcript_store.formats._neutral import Losses
from transcript_store.formats._openclaw import SessionLines
from transcript_store.formats._plan import ImportFinding, SessionPlan, SourceHead
from transcript_store.formats._replay import Draft, Restart, Steps
from transcript_store.formats._rows import (
    column_names,
    is_file_source,
    row_line,
    rows_of,
    seconds_of,
    sessions_in,
    spans_of,
    stamps_in,
)
from transcript_store.formats._times import time_member, time_of_member
from transcript_store.formats._trees import left_draft

_SESSION = column_names("id source model model_config system_prompt parent_session_id started_at cwd git_branch title")
_MESSAGE = column_names(
    "id session_id role content tool_call_id tool_calls tool_name timestamp token_count finish_reason reasoning "
    "reasoning_content reasoning_details codex_reasoning_items codex_message_items api_content"
)
_STANDING = ("active", "compacted")
"""Columns that a compaction changes. They are not part of a row's line, which would change with them."""
_USED = column_names("session_id model task first_seen last_seen")


class Hermes:
    """Reads the database, an export, or a file of one session."""

    name = "hermes"
    revision = 1

    def recognizes(self, head: SourceHead) -> bool:
        columns = set(head.tables.get("messages", ()))
        if {"session_id", "role", "tool_calls", "finish_reason"} <= columns:
            return {"id", "source", "started_at"} <= set(head.tables.get("sessions", ()))
        if head.objects:
            return any({"id", "source", "started_at", "end_reason", "messages"} <= one.keys() for one in head.objects)
        names = (b'"session_id"', b'"session_start"', b'"last_updated"', b'"messages"')
        return head.start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and all(name in head.start for name in names)

    def session_stamps(self, source: Any) -> dict[str, str]:
        """Of each session what changes with any of its rows: these are added, and taken back or compacted."""
        return stamps_in(source, ("title", "cwd", "model", "parent_session_id"), ("id", *_STANDING))

    def session_times(self, source: Any) -> list[tuple[float, float]]:
        """When each session began, and when its last message was said."""
        last: dict[object, float] = {}
        for row in rows_of(source, "messages", ("session_id", "timestamp"), ()):
            last[row["session_id"]] = max(last.get(row["session_id"], 0.0), seconds_of(row["timestamp"]) or 0.0)
        began = rows_of(source, "sessions", ("id", "started_at"), ())
        return spans_of((row["started_at"], last.get(row["id"])) for row in began)

    def plans(self, source: Any, *, skip: Container[str] = ()) -> Iterable[SessionPlan]:
        if is_file_source(source):
            yield from map(_of_document, _documents(source))
            return
        for row in sessions_in(source, _SESSION, ("started_at", "id"), skip):
            where = {"session_id": row["id"]}
            used = list(rows_of(source, "session_model_usage", _USED, ("first_seen",), where))
            rows = partial(_rows_in, source, where)
            yield _plan(source, row, rows, used, [])


def _rows_in(source: Any, where: Json) -> Iterator[HermesRow]:
    for number, row in enumerate(rows_of(source, "messages", (*_MESSAGE, *_STANDING), ("id",), where), 1):
        # A compaction changes these columns of old rows: in the line they would make it another one.
        standing = {name: row.pop(name) for name in _STANDING}
        yield HermesRow(row_line(number, row), row, **standing)


def _documents(source: Any) -> Iterator[SessionLines]:
    """Each session of a file: one document, or one on each line."""
    spans = list(objects_of(source))
    if not spans:
        return
    ends = [*(span.offset for span in spans[1:]), source.size]
    begin = 0
    for end in ends:
        yield SessionLines(source.name, read_all(source, Span(begin, end - begin)), ())
        begin = end


def _of_document(source: SessionLines) -> SessionPlan:
    lines, findings = lines_of_document(source)
    about = obj(lines[0].value)
    rows = [HermesRow(line, obj(line.value), **_standing_of(obj(line.value))) for line in lines[1:]]
    rows = rows or [HermesRow(None, message, **_standing_of(message)) for message in objects_on(about.get("messages"))]
    first = HermesRow(lines[0], {}, 1, 0)
    named = first_text(about.get("id"), about.get("session_id"))
    # The database may have the session too, and grows, while the file does not: so they are two conversations.
    row = {**about, "id": None if named is None else f"{named}/file"}
    row.setdefault("started_at", about.get("session_start"))
    changed = time_of_member(about.get("last_updated", about.get("last_active")))
    plan = _plan(source, row, lambda: [first, *rows], [], findings)
    return replace(plan, edition=(changed, ""))


def _standing_of(message: Json) -> Json:
    return {name: message.get(name, 1 - number) for number, name in enumerate(_STANDING)}


def _plan(
    source: Any, row: Json, rows: Callable[[], Iterable[HermesRow]], used: list[Json], findings: list[ImportFinding]
) -> SessionPlan:
    held, began = list(rows()), time_member(row.get("started_at"))
    said, losses = walked(source, partial(_walk, held, used, began))
    model = next((one["model"] for one in sorted(used, key=last_seen, reverse=True) if not one["task"]), None)
    config = object_on_text(row.get("model_config"))
    is_agent = row.get("source") == "subagent" or "_delegate_from" in config
    speaks = any(message_of_row(one.value) is not None for one in held)
    left = sum(one.is_taken_back and message_of_row(one.value) is not None for one in held)
    facts = facts_of(
        session=str(row["id"]) if row["id"] is not None else _made_id(held),
        model=first_text(model, row.get("model")),
        cwd=first_text(row.get("cwd"), config.get("cwd")),
        **{name: row.get(name) for name in ("system_prompt", "title", "git_branch")},
        **{"part_of" if is_agent else "forked_from": row.get("parent_session_id")},
    )
    count, provider = sum(one.line is not None for one in held), "openai-compatible" if speaks else None
    return facts.plan(Hermes.name, count, said, provider, losses, findings=findings, left=left)


def _made_id(rows: list[HermesRow]) -> str:
    first = next((row.line.raw for row in rows if row.line is not None), b"")
    return hashlib.sha256(first.strip()).hexdigest()


def _walk(rows: list[HermesRow], used: list[Json], began: str | None, _losses: Losses) -> Steps:
    beginnings, says = beginnings_of(rows), False
    for at, row in enumerate(rows):
        message = message_of_row(row.value)
        if at in beginnings and says:
            yield Restart()
        says = says or message is not None
        extra = {name: found for name, found in about_row(row.value, used) if found} if message is not None else {}
        said_at = time_member(row.value.get("timestamp")) or (began if at == 0 else None)
        draft = Draft(message, extra, said_at, [] if row.line is None else [row.line])
        yield left_draft(draft) if row.is_taken_back else draft
