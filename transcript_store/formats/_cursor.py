"""Cursor: three stores. A session of one may also have a transcript, which has less of it.

* Transcripts of its agent: ``projects/SLUG/agent-transcripts/ID/ID.jsonl``, and ``ID/subagents/ID.jsonl``. A line is ``{"role",
  "message": {"content"}}`` with blocks of Claude's API, without times and ids of calls, and mostly without results; others mark the
  end of a turn. Only the path has the id; elsewhere the first line identifies a file.
* The agent's ``store.db``: see ``_cursor_store``.
* The editor's ``state.vscdb``: see ``_cursor_editor``.

The prompt is within ``<user_query>``, Cursor's additions in other elements; a ``<timestamp>`` is the only time. Source:
skillsynchq/txcript, kenn-io/agentsview, fixtures of jazzyalex/agent-sessions. No file of the program itself was available.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

from transcript_store.formats._cursor_blocks import CURSOR, claude_blocks, tied, without_redacted
from transcript_store.formats._cursor_editor import editor_plans, editor_stamps, editor_times, is_editor
from transcript_store.formats._cursor_store import is_store, store_plans, store_times
from transcript_store.formats._facts import facts_of
from transcript_store.formats._lines import SourceLine, SourceLines
from transcript_store.formats._members import Json, obj, text_member
from transcript_store.formats._messages_api import named_provider, said_drafts, turn_in, walked
from transcript_store.formats._neutral import Losses
from transcript_store.formats._plan import SessionPlan, Source, SourceHead
from transcript_store.formats._replay import Draft, Steps
from transcript_store.formats._rows import is_file_source
from transcript_store.formats._scaffolding import marked, texts_in

_ID = r"[A-Za-z0-9_-]{8,80}"
_PLACE = re.compile(rf"/agent-transcripts/(?:(?P<parent>{_ID})/)?(?:subagents/)?(?P<id>{_ID})\.jsonl\Z")
_TIME = re.compile(
    r"<timestamp>\s*(?:\w+, )?(?P<month>[A-Z][a-z]{2})[a-z]* (?P<day>\d{1,2}), (?P<year>\d{4}),? (?:at )?"
    r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::\d\d)?\s?(?P<half>[AP]M)?(?: \((?:UTC|GMT)(?P<zone>[+-]\d{1,2})?(?::(?P<part>\d\d))?\))?"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Cursor:
    """Reads a transcript, or one of the databases."""

    name = "cursor"
    revision = 1

    def recognizes(self, head: SourceHead) -> bool:
        are_lines = [_is_line(value) for value in head.objects if not _is_of_nobody(value)]
        return is_store(head) or is_editor(head) or (bool(are_lines) and all(are_lines))

    def session_stamps(self, source: Any) -> dict[str, str]:
        """Of each conversation of the editor what changes with it; a ``store.db`` has one session, and is read as a whole."""
        return editor_stamps(source)

    def session_times(self, source: Any) -> list[tuple[float, float]]:
        """When each session of a database began and last changed."""
        return [*store_times(source), *editor_times(source)]

    def plans(self, source: Any, *, skip: Container[str] = ()) -> Iterable[SessionPlan]:
        if not is_file_source(source):
            yield from store_plans(source)
            yield from editor_plans(source, skip)
            return
        lines = list(SourceLines(source))
        if lines:
            yield _plan(source, lines)


def _is_line(value: Json) -> bool:
    """True for a message with content alone, and no member that names it."""
    message = value.get("message")
    is_named = bool({"type", "uuid", "id", "seq", "at", "extra"} & value.keys())
    is_message = isinstance(message, dict) and "content" in message and "role" not in message
    return value.get("role") in ("user", "assistant") and is_message and not is_named


def _is_of_nobody(value: Json) -> bool:
    """True for a line without message and session, such as ``turn_ended``."""
    return not {"role", "message", "sessionId", "session_id", "uuid"} & value.keys()


def _plan(source: Source, lines: list[SourceLine]) -> SessionPlan:
    again = SourceLines(source)
    for _ in again:
        pass
    place = _PLACE.search(str(source.name).replace("\\", "/"))
    values = [line.value or {} for line in lines]
    model = next((model for value in reversed(values) if (model := text_member(value.get("model")))), "")
    provider = named_provider(None, model)
    said, losses = walked(source, partial(_walk, lines, provider))
    speaks = any(value.get("role") in ("user", "assistant") for value in values)
    parent = place["parent"] if place is not None and place["parent"] != place["id"] else None
    first = hashlib.sha256(lines[0].raw.strip()).hexdigest()
    # Only the path has the id. Elsewhere two transcripts that start with one prompt would claim it, so the first line decides. The
    # database has more of the same session, so "/transcript" makes this another conversation.
    known_as = first if place is None else f"{place['id']}/transcript"
    facts = facts_of(session=known_as, model=model, part_of=parent and f"{parent}/transcript")
    return facts.plan(Cursor.name, again, said, provider if speaks else None, losses)


def _walk(lines: list[SourceLine], provider: str, losses: Losses) -> Steps:
    contents = tied([claude_blocks(obj((line.value or {}).get("message")).get("content")) for line in lines])
    for line, content in zip(lines, contents, strict=True):
        value = line.value or {}
        role = value.get("role")
        if role not in ("user", "assistant") or content is None:
            if line.raw:
                yield Draft(lines=[line])
            continue
        texts = texts_in(content)
        about = {"model": value.get("model")} if role == "assistant" else marked(CURSOR.typed_of(texts))
        said = without_redacted(content) if role == "assistant" else content
        turn = turn_in({"role": role, "content": said}, provider)
        yield from said_drafts(turn, provider, about, next(filter(None, map(_time_in, texts)), None), line, losses)


def _time_in(said: str) -> str | None:
    found = _TIME.search(said)
    if found is None or found["month"] not in _MONTHS:
        return None
    hour = int(found["hour"]) % 12 + 12 * (found["half"] == "PM") if found["half"] else int(found["hour"])
    hours, minutes = int(found["zone"] or 0), int(found["part"] or 0)
    try:
        zone = timezone(timedelta(hours=hours, minutes=minutes if hours >= 0 else -minutes))
        day = int(found["year"]), _MONTHS.index(found["month"]) + 1, int(found["day"])
        return datetime(*day, hour, int(found["minute"]), tzinfo=zone).isoformat()
    except ValueError:
        return None
