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
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from transcript_store.formats._document import Span, objects_of, parse_object, read_all
from transcript_store.formats._lines import BytesSource, SourceLine, lines_of_document, objects_on
from transcript_store.formats._members import Json, count_member, first_text, obj, objects, present
from transcript_store.formats._neutral import Losses
from transcript_store.formats._neutral_lines import walked
from transcript_store.formats._plan import ImportFinding, SessionPlan, SourceHead
from transcript_store.formats._replay import Draft, Restart, Steps, facts_of
from transcript_store.formats._rows import (
    as_texts,
    is_file_source,
    object_in,
    row_line,
    rows_of,
    seconds_of,
    sessions_in,
    spans_of,
    stamps_in,
)
from transcript_store.formats._scaffolding import Scaffolding, marked, texts_in
from transcript_store.formats._times import time_member, time_of_member
from transcript_store.formats._trees import left_draft
from transcript_store.messages import as_text

# ---- hermes rows ----
#
# Hermes' messages: those of chat completions, from a row or from JSON, and the facts beside them.

_COMPACTED = "[CONTEXT COMPACTION"
_SCAFFOLDING = Scaffolding(
    openings=(_COMPACTED, "[System:", "[IMPORTANT:", "[Note:"), headings=(("[The user attached an image.", r"\]\n\n"),)
)
_AT_ONCE_SECONDS = 1e-4
"""Rows that a compaction inserts are a microsecond apart; those of a turn are milliseconds apart."""


_OTHER_ROLES = {"developer": "system", "function": "tool"}


@dataclass(slots=True)
class HermesRow:
    """A message, as a row or a JSON document has it."""

    line: SourceLine | None
    value: Json
    active: Any
    compacted: Any

    @property
    def is_taken_back(self) -> bool:
        return bool(self.active == 0 and self.compacted == 0)


def beginnings_of(rows: list[HermesRow]) -> set[int]:
    """Where each context after a compaction starts: at the rows around its summary, which have one time, or after rows that were
    compacted without a summary. Rows that were inserted again count as compacted, whatever their marks.
    """
    found = set()
    times = [time if isinstance(time := row.value.get("timestamp"), (int, float)) else 0 for row in rows]
    for at, row in enumerate(rows):
        if compacts(row.value):
            while at > 0 and 0 <= times[at] - times[at - 1] < _AT_ONCE_SECONDS:
                at -= 1  # noqa: PLW2901
            found.add(at)
    cuts = [0, *sorted(found - {0}), len(rows)]
    for begin, middle, end in zip(cuts, cuts[1:], cuts[2:], strict=False):
        again = {_said(row) for row in rows[middle:end]}
        for row in rows[begin:middle]:
            if row.is_taken_back and _said(row) in again:
                row.compacted = 1
    gone = [at for at in range(cuts[-2], len(rows)) if rows[at].compacted == 1 and rows[at].active == 0]
    return found | ({gone[-1] + 1} if gone else set())


def _said(row: HermesRow) -> tuple[str, ...]:
    return tuple(str(row.value.get(name)) for name in ("role", "content", "tool_call_id", "tool_calls"))


def message_of_row(row: Json) -> Json | None:
    role, content = row.get("role"), row.get("content")
    if isinstance(content, str) and content[1:].startswith("json:") and content[0] in "\x00\x01":
        content = objects_on(content[6:]) or content
    if isinstance(content, dict):  # what a gateway or a plugin made of it: its text, or else all of it
        content = first_text(content.get("text"), content.get("content"), content.get("output")) or as_text(content)
    role = _OTHER_ROLES.get(role, role) if isinstance(role, str) else role
    if role == "assistant":
        calls = [found for call in objects_on(row.get("tool_calls")) if (found := _call(call)) is not None]
        thoughts = first_text(row.get("reasoning_content"), row.get("reasoning"))
        if not (calls or thoughts or first_text(content) or objects(content)):
            return None
        reply: Json = {"role": "assistant", "content": content if isinstance(content, (str, list)) else None}
        return reply | present(reasoning_content=thoughts, tool_calls=calls or None)
    if not isinstance(content, (str, list)) or role not in ("user", "tool", "system"):
        return None
    answers = {"tool_call_id": first_text(row.get("tool_call_id")) or ""} if role == "tool" else {}
    return {"role": role, **answers, "content": content}


def _call(call: Json) -> Json | None:
    """A call as the API has it: the program adds the ids that other APIs give it."""
    function = obj(call.get("function"))
    if not first_text(function.get("name")):
        return None
    arguments = function.get("arguments")
    function = {"name": function["name"], "arguments": arguments if isinstance(arguments, str) else as_text(arguments)}
    return {"id": first_text(call.get("id")) or "", "type": "function", "function": function}


def compacts(row: Json) -> bool:
    """True if it is the summary of a compaction."""
    return row.get("role") == "user" and str(row.get("content")).startswith(_COMPACTED)


def about_row(value: Json, used: list[Json]) -> Iterator[tuple[str, Any]]:
    """What belongs to a message and is not sent. ``used`` are the rows of ``session_model_usage`` of its session."""
    match value.get("role"):
        case "assistant":
            yield "model", _model_at(value.get("timestamp"), used)
            yield "stop_reason", first_text(value.get("finish_reason"))
            tokens = count_member(value.get("token_count"))
            yield "usage", {"output_tokens": tokens} if tokens else None
        case "tool":
            yield "failed", value.get("finish_reason") == "error" or _says_failed(value.get("content"))
        case "user" if compacts(value):
            yield "compaction", True
            yield "scaffolding", {"typed": ""}
        case "user":
            message = obj(message_of_row(value))
            yield from marked(_SCAFFOLDING.typed_of(texts_in(message["content"]))).items()


def _says_failed(said: object) -> bool:
    """True if the text of a tool's answer reports a failure: no column does."""
    if not isinstance(said, str):
        return False
    answer = parse_object(said.encode(errors="replace")) if said.startswith("{") else None
    if answer is not None:
        return bool(answer.get("error")) or answer.get("success") is False
    return said.startswith(("Error", "Tool '"))


def _model_at(time: object, used: list[Json]) -> str | None:
    """The one model that was in use at a time; None if several were, or none is known."""
    if not isinstance(time, (int, float)):
        return None
    asked = (one for one in used if not one["task"] and isinstance(one["first_seen"], (int, float)))
    models = {one["model"] for one in asked if one["first_seen"] - 1 <= time <= last_seen(one) + 5}
    return first_text(models.pop()) if len(models) == 1 else None


def last_seen(used: Json) -> float:
    return float(used["last_seen"]) if isinstance(used["last_seen"], (int, float)) else 0.0


# ---- hermes ----

_SESSION = "id source model model_config system_prompt parent_session_id started_at cwd git_branch title"
_MESSAGE = (
    "id session_id role content tool_call_id tool_calls tool_name timestamp token_count finish_reason reasoning "
    "reasoning_content reasoning_details codex_reasoning_items codex_message_items api_content"
)
_STANDING = ("active", "compacted")
"""Columns that a compaction changes. They are not part of a row's line, which would change with them."""
_USED = "session_id model task first_seen last_seen"


class Hermes:
    """Reads the database, an export, or a file of one session."""

    name = "hermes"
    revision = 1

    def recognizes(self, head: SourceHead) -> bool:
        if head.has_table("messages", "session_id role tool_calls finish_reason"):
            return head.has_table("sessions", "id source started_at")
        if any({"id", "source", "started_at", "end_reason", "messages"} <= one.keys() for one in head.objects):
            return True
        return head.is_document_with("session_id", "session_start", "last_updated", "messages")

    def session_stamps(self, source: Any) -> dict[str, str]:
        """Of each session what changes with any of its rows: these are added, and taken back or compacted."""
        return stamps_in(source, "title cwd model parent_session_id", "id active compacted")

    def session_times(self, source: Any) -> list[tuple[float, float]]:
        """When each session began, and when its last message was said."""
        last: dict[object, float] = {}
        for row in rows_of(source, "messages", "session_id timestamp"):
            last[row["session_id"]] = max(last.get(row["session_id"], 0.0), seconds_of(row["timestamp"]) or 0.0)
        began = rows_of(source, "sessions", "id started_at")
        return spans_of((row["started_at"], last.get(row["id"])) for row in began)

    def plans(self, source: Any, *, skip: Container[str] = ()) -> Iterable[SessionPlan]:
        if is_file_source(source):
            yield from map(_of_document, _documents(source))
            return
        for row in sessions_in(source, _SESSION, "started_at id", skip):
            where = {"session_id": row["id"]}
            used = list(rows_of(source, "session_model_usage", _USED, "first_seen", where))
            findings: list[ImportFinding] = []
            rows = partial(_rows_in, source, where, findings)
            yield _plan(source, as_texts(row, findings), rows, used, findings)


def _rows_in(source: Any, where: Json, findings: list[ImportFinding]) -> Iterator[HermesRow]:
    for number, row in enumerate(rows_of(source, "messages", f"{_MESSAGE} active compacted", "id", where), 1):
        # A compaction changes these columns of old rows: in the line they would make it another one.
        standing = {name: row.pop(name) for name in _STANDING}
        yield HermesRow(row_line(number, row), as_texts(row, findings, number), **standing)


def _documents(source: Any) -> Iterator[BytesSource]:
    """Each session of a file: one document, or one on each line."""
    spans = list(objects_of(source))
    if not spans:
        return
    ends = [*(span.offset for span in spans[1:]), source.size]
    begin = 0
    for end in ends:
        yield BytesSource(source.name, read_all(source, Span(begin, end - begin)))
        begin = end


def _of_document(source: BytesSource) -> SessionPlan:
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
    config = object_in(row.get("model_config"))
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
