"""OpenCode, and its descendants Kilo and MiMoCode: one database with all sessions, or a JSON file for each message and part.

* version 1: ``session``, ``message``, ``part``; a call and its result are one part, which the program updates in place. Before 1.2
  the same objects were files below ``storage/``, which are read as these tables.
* version 2: only ``session_v2`` identifies it (late databases of version 1 have an empty ``session_message``). A migrated session
  keeps what the migration dropped in the tables of version 1, under the same ids: both are read, version 1 first.
* ``export``: ``{"info", "messages": [{"info", "parts"}]}``, which ``import`` takes too.

A line is a message with its parts. It leaves out ``summary`` of a user's message (patches, which the program writes much later) and
the note that an old result is no longer sent: both would change the line.

Source: OpenCode 1.18.33 and Kilo 7.7.7, which were run; of version 2 OpenCode's ``packages/schema/src/session-message.ts`` and
getagentseal/codeburn#1293.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from transcript_store.formats._arranging import FORMS
from transcript_store.formats._blocks import Text
from transcript_store.formats._facts import facts_of
from transcript_store.formats._members import Json, count_member, first_text, obj, text_member
from transcript_store.formats._neutral import Form, Losses, NeutralMessage
from transcript_store.formats._neutral_lines import NeutralLine, neutral_records
from transcript_store.formats._opencode_parts import about_stored_reply, asked_in, form_of, provider_in, replied_in
from transcript_store.formats._opencode_stored import StoredMessage, StoredSession, exported_session, stored_sessions
from transcript_store.formats._plan import PlannedRecord, SessionPlan, SourceHead
from transcript_store.formats._replay import Allowance, Replay
from transcript_store.formats._rows import NOTHING, is_file_source, json_column, rows_of
from transcript_store.formats._scaffolding import marked, marked_summary
from transcript_store.formats._times import time_in_ms, time_of_member
from transcript_store.messages import provider_family

_UNTITLED = re.compile(r"(New|Child) session - \d{4}-\d\d-\d\dT")
"""Until a model has made a title."""
_EXPORTED = re.compile(rb'\A(\xef\xbb\xbf)?\s*\{\s*"info"\s*:\s*\{.{,65536}?"sessionID"\s*:\s*"', re.DOTALL)
_KILO = re.compile(rb'"agent"\s*:\s*"code"')


class OpenCode:
    """Reads the sessions of OpenCode."""

    name = "opencode"

    def recognizes(self, head: SourceHead) -> bool:
        return _written_by(head) == self.name

    def plans(self, source: Any, *, skip: Container[str] = ()) -> Iterable[SessionPlan]:
        for session in exported_session(source) if is_file_source(source) else stored_sessions(source, skip):
            yield self._plan(session)

    def session_stamps(self, source: Any) -> dict[str, str]:
        """Of each session what changes whenever something of it does: the count of its events, and when its rows were updated."""
        found: dict[str, list[str]] = defaultdict(list)

        def note(table: str, key: str, changed: str, where: Mapping[str, object] = NOTHING) -> None:
            for row in rows_of(source, table, (key, changed), (key, changed), where):
                found[str(row[key])].append(f"{table} {row[changed]}")

        note("session", "id", "time_updated")
        note("session_v2", "id", "time_updated")
        sessions = list(found)
        note("session_message", "session_id", "time_updated")
        counted = {str(row["aggregate_id"]) for row in rows_of(source, "event_sequence", ("aggregate_id",), ())}
        note("event_sequence", "aggregate_id", "seq")
        # The others are an older version's, or were brought in by its ``import``.
        for session in (one for one in sessions if one not in counted):
            note("message", "session_id", "time_updated", {"session_id": session})
            note("part", "session_id", "time_updated", {"session_id": session})
        return {one: hashlib.sha256("\n".join(found[one]).encode()).hexdigest()[:32] for one in sessions}

    def session_times(self, source: Any) -> Iterable[tuple[float, float]]:
        """When each session began and last changed."""
        found: dict[object, tuple[float, float]] = {}
        for table in ("session", "session_v2"):
            for row in rows_of(source, table, ("id", "time_created", "time_updated"), ()):
                if (began := count_member(row["time_created"])) is not None:
                    found[row["id"]] = (began / 1000, (count_member(row["time_updated"]) or began) / 1000)
        return found.values()

    def _plan(self, session: StoredSession) -> SessionPlan:
        about, losses = session.about, Losses()
        replies = [one for one in reversed(session.messages) if one.kind == "assistant"]
        # Not every reply of a provider holds what it signed.
        its = [form_of(one.data, one.parts) for one in replies if provider_in(one.data) == provider_in(replies[0].data)]
        provider = next((one for one in its if not one.startswith("openai")), (*its, "openai-compatible")[0])
        form = FORMS[provider_family(provider)]
        generations, left = _generations(session)
        records = (record for lines in generations for record in neutral_records(lines, form, losses))
        speaks = sum(record.message is not None for record in records) > 0
        title, updated = text_member(about.get("title")) or "", time_in_ms(about.get("time_updated"))
        facts = facts_of(
            session=str(about["id"]),
            version=about.get("version"),
            model=next((found for one in replies if (found := about_stored_reply(one.data).get("model"))), None),
            title=None if _UNTITLED.match(title) else title,
            cwd=about.get("directory"),
            part_of=about.get("parent_id"),
            forked_from=about.get("fork_session_id"),
            archived=time_in_ms(about.get("time_archived")),
        )
        said = Replay(tuple(partial(_records, lines, form) for lines in generations), tuple(session.findings))
        more: Json = {"is_exported": about.get("slug") == exported_slug([one.id for one in session.messages])}
        more["edition"] = (edited, "") if (edited := time_of_member(updated)) else None
        count = len(session.messages) + len(session.before)
        return facts.plan(self.name, count, said, provider if speaks else None, losses, left=left, **more)


class Kilo(OpenCode):
    """Reads the sessions of Kilo, which writes OpenCode's tables from version 7 on."""

    name = "kilo"


class MiMoCode(OpenCode):
    """Reads the sessions of MiMo Code, which writes OpenCode's tables."""

    name = "mimocode"


def _written_by(head: SourceHead) -> str | None:
    """Which of the programs wrote it: by a table or a member that only Kilo has, or else by what its database is called."""
    is_first = {"id", "directory"} <= set(head.tables.get("session", ())) and "data" in head.tables.get("message", ())
    if not (is_first or "session_v2" in head.tables or _EXPORTED.match(head.start)):
        return None
    file = re.split(r"[/\\\\]", head.name)[-1]
    if "kilo_board" in head.tables or file.startswith("kilo") or _KILO.search(head.start):
        return Kilo.name
    return MiMoCode.name if file.startswith("mimocode") else OpenCode.name


def exported_slug(messages: list[str]) -> str:
    """The slug of a session that this library wrote: as long as it has these messages, nothing was added to it."""
    return f"transcript-store-{hashlib.sha256('/'.join(messages).encode()).hexdigest()[:16]}"


def _records(lines: list[NeutralLine], form: Form) -> Iterator[PlannedRecord]:
    return neutral_records(lines, form, Losses())


def _generations(session: StoredSession) -> tuple[list[list[NeutralLine]], int]:
    """The lines, split at compactions, and the number of messages that were taken back and still exist."""
    revert = session.about.get("revert")
    reverted = obj(revert if isinstance(revert, dict) else json_column(revert)[0]).get("messageID")
    summarized = {one.data.get("parentID") for one in session.messages if _is_summary(one)}
    places = {one.id: place for place, one in enumerate(session.messages)}
    allowance, is_left, left = Allowance(), False, 0  # the size of a database is not that of a session
    found: list[list[NeutralLine]] = [[NeutralLine([line]) for line in session.before]]
    so_far: list[NeutralLine] = []
    kept: list[NeutralLine] = []
    for message in session.messages:
        parts = message.parts if message.kind == "user" else []
        marker = next((part for part in parts if part.get("type") == "compaction"), None)
        begins = message.id in summarized if marker is not None else message.kind == "compaction"
        one = _said(message, is_orphan=marker is not None and not begins)
        is_left = is_left or (reverted is not None and message.id == reverted)
        one.is_left, left = is_left, left + (is_left and bool(one.said))
        if begins and one.said and not is_left:
            first = places.get(str(obj(marker).get("tail_start_id")), len(so_far))
            kept = [line.carried() for line in so_far[first:] if not line.is_left]
            if allowance.takes(len(str(line.said)) for line in kept):
                found.append([])
            else:
                kept = []
        found[-1].append(one)
        so_far.append(one)
        if kept and (_is_summary(message) or message.kind == "compaction"):  # it follows the summary
            found[-1] += kept
            kept = []
    return found if found[0] or len(found) == 1 else found[1:], left


def _is_summary(message: StoredMessage) -> bool:
    said = any(text_member(part.get("text")) for part in message.parts)
    return message.kind == "assistant" and message.data.get("summary") is True and "error" not in message.data and said


def _said(message: StoredMessage, *, is_orphan: bool) -> NeutralLine:
    """The messages of a row; none if it is only about the session."""
    data, parts, said = message.data, message.parts, text_member(message.data.get("text"))
    found: list[tuple[NeutralMessage, Json]] = []
    if is_orphan:
        pass  # the marker of a compaction that failed, or whose summary a fork left out
    elif message.kind == "user":
        turn, typed = asked_in(parts)
        found = [(turn, marked(typed, is_said=True))]
    elif message.kind == "assistant":
        about = about_stored_reply(data) | ({"compaction": True} if _is_summary(message) else {})
        for turn in replied_in(parts, form_of(data, parts)):
            found.append((turn, about if turn.role == "assistant" else {}))
            about = {name: about[name] for name in about if name == "model"}  # usage is that of the whole
    elif message.kind == "shell" and (command := text_member(data.get("command"))):
        output = first_text(data.get("output"), *obj(data.get("output")).values()) or ""
        found = [(NeutralMessage("user", (Text(f"Ran `{command}`\n{output}"),)), marked(f"! {command}"))]
    elif message.kind == "compaction" and data.get("status") in (None, "completed"):
        pieces = text_member(data.get("summary")), text_member(data.get("recent"))
        blocks = tuple(Text(piece) for piece in pieces if piece) if pieces[0] else ()
        found = [(NeutralMessage("user", blocks), marked_summary())]
    elif message.kind in ("synthetic", "skill", "system") and said:
        found = [(NeutralMessage("user", (Text(said),)), marked("", is_said=message.kind != "system"))]
    at = time_in_ms(obj(data.get("time")).get("created", message.created))
    return NeutralLine([message.line], [one for one in found if one[0].blocks], at)
