"""Crush: ``.crush/crush.db`` of a project, with the tables ``sessions`` and ``messages``; the ``parts`` of a message are a JSON
array.

A part is ``{"type", "data"}``, of ``text``, ``reasoning``, ``tool_call``, ``tool_result``, ``binary``, ``image_url``, ``finish``.
The session of a sub-agent has ``parent_session_id``. A message with ``is_summary_message`` is the summary of a compaction: a new
generation.

Source: ``internal/db`` and ``internal/message`` of charmbracelet/crush. It was not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from transcript_store.formats._blocks import Block, Call, Media, Result, Text
from transcript_store.formats._dialogue import Dialogue, thinking
from transcript_store.formats._lines import SourceLine, objects_on
from transcript_store.formats._members import Json, first_text, obj, text_in
from transcript_store.formats._neutral import arguments_of, media_at
from transcript_store.formats._plan import ImportFinding, PlannedRecord, SessionPlan, SourceHead, Tables
from transcript_store.formats._replay import Replay, Restart, Steps, facts_of
from transcript_store.formats._rows import row_line, rows_of
from transcript_store.formats._scaffolding import marked_summary
from transcript_store.formats._times import time_in_either

_SESSION = "id parent_session_id title created_at updated_at prompt_tokens completion_tokens cost"
_MESSAGE = "id session_id role parts model provider created_at finished_at is_summary_message"


class Crush:
    """Reads the database of a project."""

    name = "crush"

    def recognizes(self, head: SourceHead) -> bool:
        sessions = head.has_table("sessions", "id parent_session_id message_count")
        return sessions and head.has_table("messages", "id session_id role parts")

    def plans(self, source: Tables) -> Iterable[SessionPlan]:
        for row in rows_of(source, "sessions", _SESSION, "created_at id"):
            session = first_text(row["id"])
            if session is None:
                continue
            found = rows_of(source, "messages", _MESSAGE, "created_at id", {"session_id": session})
            lines = [row_line(number, one) for number, one in enumerate((row, *found), 1)]
            yield _plan(session, row, lines)


def _plan(session: str, row: Json, lines: list[SourceLine]) -> SessionPlan:
    dialogue, findings = Dialogue(), list[ImportFinding]()
    generations: list[list[PlannedRecord]] = [[]]
    for step in _steps(dialogue, lines, findings):
        if isinstance(step, Restart):
            generations.append([])
        else:
            generations[-1].append(step.entry())
    models = [entry.extra["model"] for entries in generations for entry in entries if "model" in entry.extra]
    facts = facts_of(
        session=session, title=row["title"], part_of=row["parent_session_id"], model=(models or [None])[-1]
    )
    said = Replay(tuple(entries.copy for entries in generations), tuple(findings))
    return facts.plan(Crush.name, lines, said, dialogue.provider, dialogue.losses, edition=("", ""))


def _steps(dialogue: Dialogue, lines: list[SourceLine], findings: list[ImportFinding]) -> Steps:
    dialogue.event(lines[0], at=time_in_either((lines[0].value or {}).get("created_at")))
    for line in lines[1:]:
        row = line.value or {}
        at, parts = time_in_either(row.get("created_at")), objects_on(row.get("parts"))
        if not parts and row.get("parts") not in (None, "", "[]"):
            findings.append(
                ImportFinding("not-json", f"the parts of the message {row.get('id')} are not a JSON array", line.number)
            )
        if row.get("is_summary_message") in (1, True):
            yield from dialogue.take()
            yield Restart()
            said = [block for part in parts for block in _blocks(part) if isinstance(block, Text)]
            dialogue.user(said, line, at, marked_summary())
        else:
            _message(dialogue, line, row, parts, at)
    yield from dialogue.take()


def _message(dialogue: Dialogue, line: SourceLine, row: Json, parts: list[Json], at: str | None) -> None:
    blocks = [block for part in parts for block in _blocks(part)]
    if row.get("role") == "assistant":
        ended = next((obj(part.get("data")) for part in parts if part.get("type") == "finish"), {})
        about = {"model": first_text(row.get("model")), "stop_reason": first_text(ended.get("reason"))}
        dialogue.reply(blocks, line, at, about, key=str(line.number))
        return
    drafts = [dialogue.result(block, None, at) for block in blocks if isinstance(block, Result)]
    said = [block for block in blocks if not isinstance(block, Result) and row.get("role") == "user"]
    if said or not drafts:
        drafts.append(dialogue.user(said, None, at))
    drafts[0].lines.append(line)


def _blocks(part: Json) -> Iterator[Block]:
    data = obj(part.get("data"))
    number = text_in(data, "tool_call_id", "id")
    match part.get("type"):
        case "text":
            yield Text(text_in(data, "text"))
        case "reasoning" if text_in(data, "thinking"):
            yield thinking(data["thinking"])
        case "tool_call":
            yield Call(number, text_in(data, "name"), arguments_of(data.get("input")))
        case "tool_result":
            failed = data.get("is_error") is True
            yield Result(number, text_in(data, "name"), (Text(text_in(data, "content")),), failed=failed)
        case "binary":
            yield Media(text_in(data, "mime_type", "MIMEType") or "image/*", text_in(data, "data", "Data"))
        case "image_url":
            yield media_at(text_in(data, "url"))
