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
import json
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.formats._arranging import FORMS, form_family
from transcript_store.formats._blocks import Block, Call, Media, Other, Result, Text, Thinking
from transcript_store.formats._document import LONGEST_BYTES, Span, pieces_within, read_all
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import Json, count_member, first_text, obj, objects, present, text_in
from transcript_store.formats._neutral import Losses, NeutralMessage, Role, arguments_of, media_at
from transcript_store.formats._neutral_lines import NeutralLine, form_by_name, neutral_records
from transcript_store.formats._outgoing import ProgramForm, arranged_records
from transcript_store.formats._plan import ImportFinding, SessionPlan, SourceHead, WrittenSession
from transcript_store.formats._replay import Allowance, Replay, facts_of
from transcript_store.formats._rows import (
    NOTHING,
    is_file_source,
    json_column,
    object_in,
    row_line,
    rows_of,
    sql_value,
)
from transcript_store.formats._scaffolding import marked, marked_summary
from transcript_store.formats._times import time_in_ms, time_of_member
from transcript_store.messages import as_text, cost_in, provider_family, tokens_in

# ---- parts ----
#
# OpenCode's parts → blocks of neutral form: those of version 1 (a row of ``part``) and those of version 2 (an item of
# ``content``).
#
# A tool's part has its call and its result; ``state`` tells its progress. Names that differ are read side by side: ``callID`` and
# ``id``, ``output`` and ``content``, ``metadata`` and ``native``.

ASKED = "What did we do so far?"
"""What OpenCode itself sends in the place of a part ``compaction``, before the summary (1.18)."""
_UNDER_WAY = ("pending", "running", "streaming")
_READ_OUT = ("text/plain", "application/x-directory")
"""The content of a file of these kinds is a text part of its own."""


def form_of(data: Json, parts: Iterable[Json]) -> str:
    """The form of a reply: a signature proves it, else the provider's name decides."""
    for part in parts:
        signed = _signed(part)
        if "anthropic" in signed:
            return "claude"
        if "google" in signed or "vertex" in signed:
            return "gemini"
    model = obj(data.get("model"))
    named = first_text(data.get("modelID"), model.get("modelID"), model.get("id")) or ""
    return form_by_name("", provider_in(data), named)


def _signed(part: Json) -> Json:
    """The member with the provider's signature."""
    return obj(part.get("metadata")) or obj(part.get("native")) or obj(part.get("state"))


def provider_in(data: Json) -> str:
    """The name that the user gave the provider of a reply."""
    return first_text(data.get("providerID"), obj(data.get("model")).get("providerID")) or ""


def asked_in(parts: list[Json]) -> tuple[NeutralMessage, str | None]:
    """The user's message, and the part that the user typed; None for all of it."""
    blocks: list[Block] = []
    typed: list[str] = []
    added = False
    for part in parts:
        kind, said = part.get("type"), first_text(part.get("text"))
        if kind == "text" and said and part.get("ignored") is not True:
            blocks.append(Text(said))
            added = added or part.get("synthetic") is True
            typed += [] if part.get("synthetic") is True else [said]
        elif kind == "file" and (part.get("mime") not in _READ_OUT or _has_only_data(part, parts)):
            blocks.append(_media(part))
        elif kind == "compaction":
            blocks, typed, added = [Text(ASKED)], [], True
        elif kind == "subtask" and (prompt := first_text(part.get("prompt"))):
            blocks.append(Text(prompt))
    return NeutralMessage("user", tuple(blocks)), "\n\n".join(typed) if added else None


def _has_only_data(part: Json, parts: list[Json]) -> bool:
    """True if no text part has the content of a text file: another client than OpenCode's own sent it."""
    return text_in(part, "url").startswith("data:") and not any(one.get("synthetic") is True for one in parts)


def replied_in(parts: list[Json], form: str) -> Iterator[NeutralMessage]:
    """The reply and its results: one reply per step, because early versions store several in a message."""
    said: list[Block] = []
    results: list[Block] = []
    for part in [*parts, {"type": "step-start"}]:
        kind = part.get("type")
        if (kind == "step-start" or (kind in ("text", "reasoning") and results)) and said:
            yield NeutralMessage("assistant", tuple(said))
            if results:
                yield NeutralMessage("user", tuple(results))
            said, results = [], []
        if kind == "text" and (found := first_text(part.get("text"))):
            said.append(Text(found))
        elif kind == "reasoning":
            said.append(_thinking(part, form))
        elif kind == "tool":
            call, result = _tool(part)
            said.append(call)
            results += [result] if result is not None else []


def about_stored_reply(data: Json) -> Json:
    """What belongs to a reply and is not sent. OpenCode counts cached tokens apart from the input, and reasoning from the output."""
    model, tokens = obj(data.get("model")), obj(data.get("tokens"))
    cache = obj(tokens.get("cache"))
    thought = count_member(tokens.get("reasoning")) or 0
    written = count_member(tokens.get("output"))
    usage = present(
        input_tokens=count_member(tokens.get("input")),
        output_tokens=None if written is None else written + thought,
        cache_read_input_tokens=count_member(cache.get("read")),
        cache_creation_input_tokens=count_member(cache.get("write")),
        output_tokens_details={"reasoning_tokens": thought} if thought else None,
        cost=cost_in(data) or None,
    )
    is_counted = usage.get("input_tokens") or usage.get("output_tokens")
    return present(
        model=first_text(data.get("modelID"), model.get("id"), model.get("modelID")),
        stop_reason=first_text(data.get("finish")),
        usage=usage if is_counted else None,
    )


def _thinking(part: Json, form: str) -> Thinking:
    said, signed = text_in(part, "text"), _signed(part)
    claude, google = obj(signed.get("anthropic")), obj(signed.get("google")) or obj(signed.get("vertex"))
    if hidden := first_text(claude.get("redactedData")):
        return Thinking("", hidden, redacted=True, provider="claude")
    if signature := first_text(google.get("thoughtSignature")):
        own = {"text": said, "thought": True, "thoughtSignature": signature}
        return Thinking(said, signature, own=own, provider="gemini")
    return Thinking(said, text_in(claude, "signature"), provider="openai" if form.startswith("openai") else form)


def _tool(part: Json) -> tuple[Call, Result | None]:
    state = obj(part.get("state"))
    number = first_text(part.get("callID"), part.get("id")) or ""
    name = first_text(part.get("tool"), part.get("name")) or ""
    given = arguments_of(state.get("input"))
    call, status = Call(number, name, given), state.get("status")
    if status in _UNDER_WAY or status is None:
        return call, None  # it was stopped there, or is still at work
    error = state.get("error")
    failed = status == "error" or (name == "invalid" and "error" in given)  # a call that no tool took is ``completed``
    said = first_text(error) or first_text(obj(error).get("message")) if status == "error" else None
    output = said or first_text(state.get("output"))
    shown: list[Text | Media] = [Text(output)] if output else []
    for each in (*objects(state.get("content")), *objects(state.get("attachments"))):
        found = first_text(each.get("text"))
        if found and not output:
            shown.append(Text(found))
        elif each.get("type") in ("file", "media"):
            shown.append(_media(each))
    if not shown and error is not None:
        shown.append(Text(as_text(error)))
    return call, Result(number, name, tuple(shown), failed=failed)


def _media(part: Json) -> Media:
    """An attached file. Its path is on the user's machine, so it is not an address."""
    kind = first_text(part.get("mime"), part.get("mediaType")) or "image/*"
    where = first_text(part.get("url"), part.get("uri")) or ""
    named = first_text(part.get("filename"), part.get("name"))
    own: Json = {"own": {"path": named or where}, "provider": "opencode"}
    if data := first_text(part.get("data")):
        return Media(kind, data, **own)
    if where.startswith(("data:", "http:", "https:")):
        return media_at(where, kind, **own if named else {})
    return Media(kind, **own)


# ---- stored ----
#
# OpenCode's messages in the rows of both versions, or in an exported document.

_SESSION = "id parent_id fork_session_id directory title version revert slug time_created time_updated time_archived"
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
        for row in rows_of(tables, table, _SESSION, "time_created id"):
            known = {name: value for name, value in row.items() if value is not None}
            about.setdefault(str(row["id"]), {}).update(known)
    titled = {first_text(row.get("title")): key for key, row in reversed(about.items())}
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
    known, where = "id time_created data", {"session_id": session}
    first = sorted(rows_of(tables, "message", known, "time_created id", where), key=_ascending)
    has_session = "session_id" in tables.columns("part")
    parts: dict[object, list[Json]] = defaultdict(list)
    if has_session and most is None:
        for row in rows_of(tables, "part", "id message_id data", "id", where):
            parts[row["message_id"]].append(row)
    number = 0
    for number, row in enumerate(islice(first, most), 1):
        if not has_session:
            parts[row["id"]] = list(rows_of(tables, "part", "id data", "id", {"message_id": row["id"]}))
        yield _message(number, row, None, sorted(parts.pop(row["id"], ()), key=_ascending), findings)
    seen = {row["id"] for row in first}
    if tables.columns("session_v2"):
        for row in rows_of(tables, "session_message", f"{known} type", "seq", where):
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
        data["role"] = kind = first_text(data.get("role")) or "unreadable"
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
    if kind == "user" and first_text(data.get("text")):
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
    number = first_text(info.get("id")) or hashlib.sha256(raw[:65536]).hexdigest()
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


# ---- reader ----

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
            for row in rows_of(source, table, f"{key} {changed}", f"{key} {changed}", where):
                found[str(row[key])].append(f"{table} {row[changed]}")

        note("session", "id", "time_updated")
        note("session_v2", "id", "time_updated")
        sessions = list(found)
        note("session_message", "session_id", "time_updated")
        counted = {str(row["aggregate_id"]) for row in rows_of(source, "event_sequence", "aggregate_id")}
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
            for row in rows_of(source, table, "id time_created time_updated"):
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
        title, updated = first_text(about.get("title")) or "", time_in_ms(about.get("time_updated"))
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
        said = Replay(
            tuple(partial(neutral_records, lines, form, Losses()) for lines in generations), tuple(session.findings)
        )
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
    is_first = head.has_table("session", "id directory") and head.has_table("message", "data")
    if not (is_first or "session_v2" in head.tables or _EXPORTED.match(head.start)):
        return None
    file = re.split(r"[/\\\\]", head.name)[-1]
    if "kilo_board" in head.tables or file.startswith("kilo") or _KILO.search(head.start):
        return Kilo.name
    return MiMoCode.name if file.startswith("mimocode") else OpenCode.name


def exported_slug(messages: list[str]) -> str:
    """The slug of a session that this library wrote: as long as it has these messages, nothing was added to it."""
    return f"transcript-store-{hashlib.sha256('/'.join(messages).encode()).hexdigest()[:16]}"


def _generations(session: StoredSession) -> tuple[list[list[NeutralLine]], int]:
    """The lines, split at compactions, and the number of messages that were taken back and still exist."""
    revert = session.about.get("revert")
    reverted = object_in(revert).get("messageID")
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
    said = any(first_text(part.get("text")) for part in message.parts)
    return message.kind == "assistant" and message.data.get("summary") is True and "error" not in message.data and said


def _said(message: StoredMessage, *, is_orphan: bool) -> NeutralLine:
    """The messages of a row; none if it is only about the session."""
    data, parts, said = message.data, message.parts, first_text(message.data.get("text"))
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
    elif message.kind == "shell" and (command := first_text(data.get("command"))):
        output = first_text(data.get("output"), *obj(data.get("output")).values()) or ""
        found = [(NeutralMessage("user", (Text(f"Ran `{command}`\n{output}"),)), marked(f"! {command}"))]
    elif message.kind == "compaction" and data.get("status") in (None, "completed"):
        pieces = first_text(data.get("summary")), first_text(data.get("recent"))
        blocks = tuple(Text(piece) for piece in pieces if piece) if pieces[0] else ()
        found = [(NeutralMessage("user", blocks), marked_summary())]
    elif message.kind in ("synthetic", "skill", "system") and said:
        found = [(NeutralMessage("user", (Text(said),)), marked("", is_said=message.kind != "system"))]
    at = time_in_ms(obj(data.get("time")).get("created", message.created))
    return NeutralLine([message.line], [one for one in found if one[0].blocks], at)


# ---- writer ----
#
# A conversation as the document that ``opencode import`` and ``kilo import`` take: each call and its result are one part.
#
# What a part needs was tried key by key (OpenCode 1.18.33). Ids are made of the times, as the program's own are: it sorts by them.

_PROVIDERS = {"claude": "anthropic", "gemini": "google", "openai": "openai", "openai-responses": "openai"}
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LONGEST_TITLE = 200


class PartsForm(ProgramForm):
    """The form of OpenCode's parts. Their metadata names the provider of thinking, so all thinking is kept."""

    name = "opencode"

    def holds(self, block: Block, role: Role) -> bool:
        if isinstance(block, Thinking):
            return role == "assistant" and bool(block.text)
        if isinstance(block, Media):
            return role == "user" and block.data_url is not None and block.data is not None
        return not isinstance(block, Other)


class OpenCodeWriter:
    """Writes sessions for OpenCode."""

    name = "opencode"
    agent = "build"

    def write(
        self, records: Iterable[Record], metadata: ConversationMetadata, *, session: str, cwd: str, now: str
    ) -> WrittenSession:
        """See :class:`formats.SessionWriter`."""
        losses = Losses()
        turns = arranged_records(records, metadata, PartsForm(), losses, now)
        document = _Document(session, self.agent, cwd, metadata, turns[0][2])
        for turn in turns:
            document.add(*turn)
        title = metadata.labels.get("title") or " ".join(document.prompt.split())[:_LONGEST_TITLE] or "Imported"
        times = {"created": document.began, "updated": document.at}
        info = {"id": document.id, "slug": document.slug, "projectID": "global", "directory": cwd, "title": title}
        whole = {"info": {**info, "version": "1.18.33", "time": times}, "messages": document.messages}
        data = json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        command = f"{self.name} import {{file}} && {self.name} --session {document.id}"
        return WrittenSession(((f"transcript-store/{document.id}.json", data),), command, losses.found(), document.id)


class KiloWriter(OpenCodeWriter):
    """Writes sessions for Kilo."""

    name = "kilo"
    agent = "code"


class _Document:
    """The messages, as they are added. A user's turn of results alone ends the calls of the reply before it."""

    def __init__(self, session: str, agent: str, cwd: str, metadata: ConversationMetadata, began: str) -> None:
        self._session, self._agent, self._cwd, self._metadata = session, agent, cwd, metadata
        self.began = self.at = _milliseconds(began)
        self._stamp = 0
        self.id = self._id("ses")
        self.messages: list[Json] = []
        self.prompt = ""
        self._asked = ""
        self._calls: dict[str, Json] = {}

    @property
    def slug(self) -> str:
        """By which an import knows the session again, and leaves it alone as long as nothing is added to it."""
        return exported_slug([message["info"]["id"] for message in self.messages])

    def add(self, turn: NeutralMessage, extra: Json, at: str) -> None:
        self.at = max(self.at, _milliseconds(at))
        for block in turn.blocks:
            if isinstance(block, Result) and (part := self._calls.pop(block.id, None)) is not None:
                part["state"] = self._state(part, block)
        blocks = [block for block in turn.blocks if not isinstance(block, Result)]
        if blocks and turn.role == "assistant":
            self._reply(blocks, extra)
        elif blocks:
            self._prompt(blocks)

    def _prompt(self, blocks: Sequence[Block]) -> None:
        self._asked = number = self._id("msg")
        self.prompt = self.prompt or next((block.text for block in blocks if isinstance(block, Text)), "")
        model = {"providerID": self._provider(), "modelID": self._metadata.model or "unknown"}
        info = {"id": number, "sessionID": self.id, "role": "user", "time": {"created": self.at}}
        info |= {"agent": self._agent, "model": model}
        self.messages.append({"info": info, "parts": [self._part(number, block) for block in blocks]})

    def _reply(self, blocks: Sequence[Block], extra: Json) -> None:
        number, tokens = self._id("msg"), tokens_in(obj(extra.get("usage")))
        calls = any(isinstance(block, Call) for block in blocks)
        counts = {"input": tokens.input or 0, "output": tokens.output or 0, "reasoning": 0}
        info = {
            "id": number,
            "sessionID": self.id,
            "role": "assistant",
            "parentID": self._asked or self._id("msg"),
            "mode": self._agent,
            "agent": self._agent,
            "path": {"cwd": self._cwd, "root": self._cwd},
            "cost": 0,
            "tokens": {**counts, "cache": {"read": 0, "write": 0}},
            "modelID": text_in(extra, "model") or self._metadata.model or "unknown",
            "providerID": self._provider(),
            "time": {"created": self.at, "completed": self.at},
            "finish": "tool-calls" if calls else "stop",
        }
        self.messages.append({"info": info, "parts": [self._part(number, block) for block in blocks]})

    def _part(self, message: str, block: Block) -> Json:
        part: Json = {"id": self._id("prt"), "sessionID": self.id, "messageID": message}
        match block:
            case Text(text=text):
                return {**part, "type": "text", "text": text}
            case Thinking(text=text):
                signed = (
                    {"metadata": {"anthropic": {"signature": block.signature}}} if block.provider == "claude" else {}
                )
                return {**part, "type": "reasoning", "text": text, **signed, "time": {"start": self.at, "end": self.at}}
            case Media(type=kind):
                return {**part, "type": "file", "mime": kind, "url": block.data_url, "filename": kind.replace("/", ".")}
            case Call():
                state = {"status": "running", "input": block.arguments, "time": {"start": self.at}}
                part |= {"type": "tool", "callID": block.id, "tool": block.name, "state": state}
                self._calls[block.id] = part
                return part
        raise TypeError(f"OpenCode has no place for {type(block).__name__}")  # holds() was not asked

    def _state(self, part: Json, result: Result) -> Json:
        state = {"input": part["state"]["input"], "time": {**part["state"]["time"], "end": self.at}}
        if result.failed:
            return {"status": "error", **state, "error": result.text or "failed"}
        shown = [self._part(part["messageID"], media) for media in result.media if media.data is not None]
        attached = {"attachments": shown} if shown else {}
        return {"status": "completed", **state, "output": result.text, "title": "", "metadata": {}, **attached}

    def _provider(self) -> str:
        return _PROVIDERS.get(form_family(self._metadata.provider or ""), "openai-compatible")

    def _id(self, kind: str) -> str:
        """48 bits of the time in ms, times 4096, and a counter; of a session their complement. Then 14 letters."""
        self._stamp = max(self._stamp + 1, self.at * 4096 + 1)
        number = int.from_bytes(hashlib.sha256(f"{self._session}/{self._stamp}".encode()).digest()[:16])
        letters = "".join(_LETTERS[number // 62**place % 62] for place in range(14))
        stamp = ~self._stamp if kind == "ses" else self._stamp
        return f"{kind}_{stamp & 0xFFFFFFFFFFFF:012x}{letters}"


def _milliseconds(at: str) -> int:
    return int(datetime.fromisoformat(at).timestamp() * 1000)
