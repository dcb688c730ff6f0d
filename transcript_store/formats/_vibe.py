"""Mistral Vibe: ``messages.jsonl`` of version 2, a message of chat completions per line; and the folder of version 3, below.

A line of version 2 has ``injected`` (True if the program wrote it), and all but results have a ``message_id``. Resuming copies a
session, with its message ids, into a folder with another id. So the id of the first message identifies it: the copy is the same
session, which grew. Times, model, title and folder are in ``meta.json`` beside it.

Source: files of 2.11.1 and 3.0.3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from transcript_store.formats._blocks import Block, Call, Result, Text
from transcript_store.formats._dialogue import PROVIDER, Dialogue, thinking
from transcript_store.formats._lines import SourceLine, SourceLines
from transcript_store.formats._members import Json, first_text, labels, obj, objects, text_in
from transcript_store.formats._neutral import arguments_of
from transcript_store.formats._plan import PlannedRecord, SessionPlan, Source, SourceHead
from transcript_store.formats._replay import Draft, Restart, Steps, facts_of, replayed
from transcript_store.formats._rows import lines_beside, object_beside
from transcript_store.formats._scaffolding import marked, marked_summary
from transcript_store.formats._times import time_in_ms
from transcript_store.messages import as_text

# ---- entries of version 3 ----
#
# The entries of the projection and of the checkpoint as messages.


@dataclass(slots=True)
class SeenEntry:
    """An entry of the projection, and the lines that have it."""

    value: Json
    lines: list[SourceLine] = field(default_factory=list)

    @property
    def at(self) -> str | None:
        created = self.value.get("createdAt")
        return time_in_ms(created) if isinstance(created, int) else None

    @property
    def is_prompt(self) -> bool:
        return self.value.get("type") == "message" and self.value.get("role") == "user"

    @property
    def is_compaction(self) -> bool:
        return self.value.get("type") == "checkpoint" and self.value.get("kind") == "compaction"


def text_of(content: object) -> str:
    """The texts of some content."""
    return "\n".join(text_in(one, "text") for one in objects(content))


def blocks_in(content: object) -> list[Block]:
    """The blocks of some content."""
    found: list[Block] = []
    for one in objects(content):
        match one.get("type"):
            case "text":
                found.append(Text(text_in(one, "text")))
            case "reasoning" if said := text_of(one.get("content")):
                found.append(thinking(said))
            case "tool_call":
                given = obj(one.get("arguments"))
                arguments = arguments_of(given.get("value", given.get("raw")))
                found.append(Call(text_in(one, "id"), text_in(one, "name"), arguments))
    return found


def replay(dialogue: Dialogue, replies: list[SourceLine], times: list[str | None]) -> None:
    """Add the messages of a turn after its prompt, from the checkpoint."""
    at: Iterator[str | None] = iter(times)
    for line in replies:
        message = obj((line.value or {}).get("message"))
        if message.get("role") == "tool":
            failed = message.get("outcome") == "failure"
            said = (Text(text_of(message.get("content"))),)
            dialogue.result(
                Result(text_in(message, "tool_call_id"), text_in(message, "name"), said, failed=failed), line
            )
        else:
            dialogue.reply(blocks_in(message.get("content")), line, next(at, None), key=f"line {line.number}")


def show_entry(dialogue: Dialogue, seen: SeenEntry) -> None:
    """Add a turn as the person saw it."""
    value, kind = seen.value, seen.value.get("type")
    first = next(iter(seen.lines), None)
    if kind == "message" and value.get("role") == "user":
        draft: Draft = dialogue.user(blocks_in(value.get("content")), first, seen.at)
    elif kind in ("message", "reasoning"):
        said = [thinking(text_in(value, "text"))] if kind == "reasoning" else blocks_in(value.get("content"))
        draft = dialogue.reply(
            said, first, seen.at, {"stop_reason": first_text(obj(value.get("outcome")).get("cause"))}
        )
    elif kind == "effect":
        detail, state = obj(value.get("detail")), obj(value.get("state"))
        number, name = text_in(value, "id"), text_in(detail, "toolName") or text_in(value, "title")
        draft = dialogue.reply([Call(number, name, arguments_of(detail.get("input")))], first, seen.at)
        output, error = obj(state.get("output")), text_in(obj(state.get("error")), "message")
        if output or error or state.get("status") in ("completed", "failed"):
            answer = error or text_of(output.get("content")) or as_text(output.get("structured_content", ""))
            dialogue.result(
                Result(number, name, (Text(answer),), failed=state.get("status") == "failed"), None, seen.at
            )
    else:
        if seen.lines:
            dialogue.event(*seen.lines, at=seen.at)
        return
    draft.lines += seen.lines[1:]


# ---- version 3 ----
#
# A session is a folder with two histories, which ``sources`` returns as lines, one after the other.
#
# * The projection is the person's view: entries ``message``, ``reasoning``, ``effect`` (a call and its result) and ``checkpoint`` (a
#   compaction), with times, and with the text of stopped replies.
# * The checkpoint is the model's context: ``{"message", "source", "turn_index"}``, with the ids of calls, and with calls of unknown
#   tools. It has no times, and after a compaction only the new context.
# * The journal has later events, with entries of the projection. A killed turn is only there.
#
# A turn has the checkpoint's messages at the projection's times; a turn that the checkpoint lacks has the projection's.

_ENTRIES = frozenset({"message", "reasoning", "effect", "checkpoint"})


def is_unified(value: Json) -> bool:
    """True if it is a line of version 3."""
    if "recovery_journal_record_version" in value or "checkpoint_version" in value:
        return True
    is_message = isinstance(value.get("message"), dict) and isinstance(value.get("turn_index"), int)
    return (is_message and "source" in value) or ("generationStatus" in value and text_in(value, "type") in _ENTRIES)


class UnifiedSession:
    """A session of version 3. Its members are complete after a walk."""

    def __init__(self, lines: Callable[[], Iterable[SourceLine]]) -> None:
        self._lines = lines
        self.id: str | None = None
        self.dialogue = Dialogue()
        """Of the last walk."""

    def relation(self, about: Json, index: Json) -> dict[str, str]:
        """Of which session it is a part, or a fork."""
        of = (obj(one.get("identity")) for one in objects(index.get("entries")))
        kind = next((one.get("kind") for one in of if one.get("session_id") == self.id), None)
        parent = about.get("parent_session_id")
        return labels(**{"forked_from" if kind in (None, "root") else "part_of": parent})

    def walk(self) -> Steps:
        """The records, step by step."""
        entries: dict[str, SeenEntry] = {}
        sent: list[SourceLine] = []
        others: list[SourceLine] = []
        for line in self._lines():
            value = line.value or {}
            if "generationStatus" in value:
                self._see(entries, value).lines.append(line)
            elif isinstance(value.get("message"), dict) and "turn_index" in value:
                sent.append(line)
            elif line.raw:
                others.append(line)
                self._journal(entries, value)
        self.dialogue = dialogue = Dialogue()
        yield from self._both(dialogue, list(entries.values()), sent)
        for line in others:
            dialogue.event(line)
        yield from dialogue.take()

    def _see(self, entries: dict[str, SeenEntry], value: Json) -> SeenEntry:
        self.id = self.id or first_text(value.get("sessionId"))
        name = text_in(value, "id") or f"number {len(entries)}"
        seen = entries.setdefault(name, SeenEntry(value))
        seen.value = value  # a later line has more of it
        return seen

    def _journal(self, entries: dict[str, SeenEntry], value: Json) -> None:
        payload = obj(value.get("payload"))
        for one in objects(payload.get("delta")):
            if entry := obj(one.get("entry")):
                self._see(entries, entry)
        asked = obj(payload.get("params"))
        if payload.get("method") == "turn/start" and asked.get("message"):
            self.id = self.id or first_text(asked.get("sessionId"))
            turn = text_in(payload, "client_command_id")
            seen = SeenEntry({"type": "message", "role": "user", "content": asked["message"], "turnId": turn})
            entries.setdefault(f"user-{turn}-1", seen)

    def _both(self, dialogue: Dialogue, entries: list[SeenEntry], sent: list[SourceLine]) -> Steps:
        last = max((place for place, one in enumerate(entries) if one.is_compaction), default=-1)
        kept = 1 + max((place for place, one in enumerate(sent) if _is_injected(one)), default=-1)
        turns = _turns_of(sent[kept:])
        for place, seen in enumerate(entries):
            if seen.is_compaction:
                yield from dialogue.take()
                yield Restart()
            if place == last:
                self._compacted(dialogue, sent[:kept])
            if place > last and seen.is_prompt and turns and _said(turns[0][0]) == text_of(seen.value.get("content")):
                prompt, *replies = turns.pop(0)
                of_turn = _turn_at(entries, place)
                draft = dialogue.user(blocks_in(seen.value.get("content")), prompt, seen.at)
                if replies:
                    draft.lines = [*(line for one in of_turn for line in one.lines), prompt]
                    replay(dialogue, replies, list(dict.fromkeys(one.at for one in of_turn[1:])))
                    for one in of_turn[1:]:
                        one.value = {}
                    continue
                draft.lines = [*seen.lines, prompt]
            elif seen.value:
                show_entry(dialogue, seen)
        for turn in turns:  # the person did not see it
            dialogue.user(blocks_in(obj((turn[0].value or {}).get("message")).get("content")), turn[0])
            replay(dialogue, turn[1:], [])
        if last < 0 and kept:
            self._compacted(dialogue, sent[:kept])

    def _compacted(self, dialogue: Dialogue, sent: list[SourceLine]) -> None:
        for line in sent:
            extra = marked_summary() if _is_injected(line) else {}
            dialogue.user(blocks_in(obj((line.value or {}).get("message")).get("content")), line, None, extra)


def _turn_at(entries: list[SeenEntry], place: int) -> list[SeenEntry]:
    ends = next((at for at in range(place + 1, len(entries)) if entries[at].is_prompt), len(entries))
    return entries[place:ends]


def _turns_of(sent: list[SourceLine]) -> list[list[SourceLine]]:
    turns: list[list[SourceLine]] = []
    for line in sent:
        if obj((line.value or {}).get("message")).get("role") == "user" or not turns:
            turns.append([])
        turns[-1].append(line)
    return turns


def _is_injected(line: SourceLine) -> bool:
    return (line.value or {}).get("source") == "injection"


def _said(line: SourceLine) -> str:
    return text_of(obj((line.value or {}).get("message")).get("content"))


# ---- reader ----

_MEMBERS = ("role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name")
_ROLES = ("user", "assistant", "system", "tool")
_FAILED = "<tool_error>"


class MistralVibe:
    """Reads the sessions of Mistral Vibe."""

    name = "mistral-vibe"

    def recognizes(self, head: SourceHead) -> bool:
        return any(map(is_of_vibe, head.objects))

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        lines = SourceLines(source)
        first, last, speaks, is_new = "", 0, False, False
        for line in lines:
            value = line.value or {}
            first = first or first_text(value.get("message_id")) or hashlib.sha256(line.raw).hexdigest()
            is_new = is_new or is_unified(value)
            if _is_second(value):
                speaks, last = True, line.number
        if not lines.count:
            return
        about = object_beside(source, "meta.json")
        parent = object_beside(source, "../.session-index.json") if is_new else {}
        config, environment = obj(about.get("config")), obj(about.get("environment"))
        facts = facts_of(
            model=first_text(config.get("model_name"), config.get("active_model")),
            title=about.get("title"),
            cwd=first_text(environment.get("working_directory"), about.get("origin_directory")),
            git_branch=about.get("git_branch"),
            part_of=_parent(source),
            archived=about.get("archived_at"),
        )
        if is_new:
            session = UnifiedSession(lambda: SourceLines(source))
            said = replayed(source, session.walk(), session.walk)
            facts.last(session=session.id or first, **session.relation(about, parent))
            dialogue = session.dialogue
            yield facts.plan(self.name, lines, said, dialogue.provider, dialogue.losses, edition=("", ""))
            return
        times = first_text(about.get("start_time")), first_text(about.get("end_time"))
        facts.session = first
        records = partial(_records, source, times, last)
        yield facts.plan(self.name, lines, records, PROVIDER if speaks else None)


def is_of_vibe(value: Json) -> bool:
    """True if it is a line of one of the versions."""
    return _is_second(value) or is_unified(value)


def _is_second(value: Json) -> bool:
    has_id = isinstance(value.get("message_id"), str) or isinstance(value.get("tool_call_id"), str)
    return value.get("role") in _ROLES and isinstance(value.get("injected"), bool) and has_id


def _records(source: Source, times: tuple[str | None, str | None], last: int) -> Iterator[PlannedRecord]:
    begins, ends = times
    for line in SourceLines(source):
        value = line.value or {}
        if not line.raw:
            continue
        if not _is_second(value):
            yield Draft(lines=[line]).entry()
            continue
        at, begins = begins, None
        message = {name: value[name] for name in _MEMBERS if name in value}
        yield Draft(message, _beside(value), at or (ends if line.number == last else None), [line]).entry()


def _beside(value: Json) -> Json:
    if value["injected"] and value["role"] == "user":
        return marked("", is_said=True)
    failed = value["role"] == "tool" and str(value.get("content")).startswith(_FAILED)
    return {"failed": True} if failed else {}


def _parent(source: Any) -> str | None:
    """Of a sub-agent's folder, which lies in ``agents`` of the session's: the session's id."""
    above = str(source.name).replace("\\", "/").split("/")[-3:-2]
    first = lines_beside(source, "../../messages.jsonl")[:1] if above == ["agents"] else []
    return first_text(first[0].get("message_id")) if first else None
