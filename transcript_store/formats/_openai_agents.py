"""The sessions of OpenAI's Agents SDK in a SQLite file: ``agent_messages``, one item of Responses a row, in the order of ``id``.

A row of an ``EncryptedSession`` is ``{"__enc__": 1, …}``. Its key is the application's: such a row is kept as an event, and named.

Source: ``agents/memory/sqlite_session.py`` and ``extensions/memory/encrypt_session.py`` of openai-agents 0.24.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

from transcript_store.formats._document import read_object, why_unread
from transcript_store.formats._plan import ImportFinding, PlannedRecord, SessionPlan, SourceHead, Tables
from transcript_store.formats._replay import SessionFacts
from transcript_store.formats._responses_items import Items
from transcript_store.formats._rows import rows_of, sql_time, text_line

_COLUMNS = "session_id id message_data created_at"

Row = dict[str, Any]


class OpenAIAgents:
    """Reads the sessions of OpenAI's Agents SDK."""

    name = "openai-agents"
    revision = 2

    def recognizes(self, head: SourceHead) -> bool:
        return head.has_table("agent_messages", "session_id message_data")

    def plans(self, source: Tables) -> Iterable[SessionPlan]:
        rows = rows_of(source, "agent_messages", _COLUMNS, "session_id id")
        for session, found in groupby(rows, key=lambda row: str(row["session_id"])):
            yield self._plan(session, list(found))

    def _plan(self, session: str, rows: list[Row]) -> SessionPlan:
        items = Items()
        said = sum(entry.message is not None for entry in _entries(rows, items))
        records, findings = partial(_entries, rows), _findings(rows)
        facts, provider = SessionFacts(session), "openai" if said else None
        return facts.plan(self.name, len(rows), records, provider, items.losses, findings=findings)


def _entries(rows: list[Row], items: Items | None = None) -> Iterator[PlannedRecord]:
    items = items or Items()
    for number, row in enumerate(rows, 1):
        line, at = text_line(number, row["message_data"]), sql_time(row["created_at"])
        if line.value is None or "__enc__" in line.value:
            items.event(line, at)
            continue
        if not items.open:
            yield from (draft.entry() for draft in items.take())
        items.item(line.value, line, at)
    yield from (draft.entry() for draft in items.take())


def _findings(rows: list[Row]) -> Iterator[ImportFinding]:
    for number, row in enumerate(rows, 1):
        where, kept = f"the row {row['id']} of agent_messages", text_line(number, row["message_data"]).raw
        value, odd = read_object(kept)
        yield from (ImportFinding(kind, f"{where} has {message}", number) for kind, message in odd)
        if value is None:
            yield ImportFinding(*why_unread(kept, f"{where} is", f"{where} holds no JSON object"), number)
        elif "__enc__" in value:
            message = f"{where} is encrypted with a key of its application: it cannot be read"
            yield ImportFinding("encrypted", message, number)
