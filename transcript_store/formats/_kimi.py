"""Kimi Code: ``agents/<agent>/wire.jsonl``, a log of events, ``{"type", …, "time"}`` after a line ``metadata``.

* ``context.append_message``: a message, ``{"role", "content", "toolCalls", "toolCallId", "origin"}``.
* ``context.append_loop_event``: a piece of a reply. ``step.begin``, ``content.part``, ``tool.call`` and ``step.end`` with its usage
  are one message; each ``tool.result`` is one. Messages appended while results are missing follow these.
* A result is text alone there, so its pictures are the user's, after the results.
* ``context.apply_compaction``, ``context.undo``, ``context.clear``: a new generation.
* ``config.update``: the model, the system prompt, the folder.

Kimi uses chat completions with any server, so messages have that form; thinking is ``reasoning_content``. The file does not name
its session: its folder does. A file elsewhere is identified by its first lines, which a fork has too. The section ``kimi python``
reads the lines of the version before.

Source: ``packages/agent-core-v2`` of MoonshotAI/kimi-code, protocol 1.5, run as version 2.1.0; ``wire-short.jsonl`` of
openclaw-session-viewer (1.4).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from transcript_store.formats._lines import SourceLine, SourceLines
from transcript_store.formats._members import Json, count_member, first_text, obj, objects, present, text_in
from transcript_store.formats._neutral import Losses
from transcript_store.formats._plan import PlannedRecord, SessionPlan, Source, SourceHead
from transcript_store.formats._replay import Draft, Restart, SessionFacts, Steps, replayed
from transcript_store.formats._rows import object_beside
from transcript_store.formats._scaffolding import KIMI, marked, marked_summary, texts_in
from transcript_store.formats._times import time_in_ms, time_member
from transcript_store.messages import as_text

# ---- kimi python ----
#
# The wire log of Kimi CLI in Python, in the records of the one that followed it: ``{"timestamp", "message": {"type", "payload"}}``.
#
# It does not have the context after a compaction: the conversation continues as if there had been none.
#
# Source: ``src/kimi_cli/wire`` of MoonshotAI/kimi-cli, protocol 1.1 to 1.10, run as version 1.51.0.


def record_of(value: Json) -> Json:
    """The record, with its time in seconds under ``timestamp``. One of another type has no type."""
    message = obj(value.get("message"))
    kind, payload = first_text(message.get("type")), obj(message.get("payload"))
    event: Json | None = None
    if kind in ("TurnBegin", "SteerInput"):
        said = payload.get("user_input")
        content = [{"type": "text", "text": said}] if isinstance(said, str) else said
        return {"type": "context.append_message", "message": {"role": "user", "content": content}}
    if kind == "StepBegin":
        event = {"type": "step.begin"}
    elif kind == "ContentPart":
        event = {"type": "content.part", "part": payload}
    elif kind == "ToolCall":
        function = obj(payload.get("function"))
        event = {"type": "tool.call", "toolCallId": payload.get("id"), "name": function.get("name")}
        event["args"] = function.get("arguments")
    elif kind == "ToolResult":
        returned = obj(payload.get("return_value"))
        result = {"output": returned.get("output") or returned.get("message"), "isError": returned.get("is_error")}
        event = {"type": "tool.result", "toolCallId": payload.get("tool_call_id"), "result": result}
    elif kind in ("StatusUpdate", "StepInterrupted", "TurnEnd"):
        used = obj(payload.get("token_usage"))
        if used or kind != "StatusUpdate":
            event = {"type": "step.end", "usage": {_USAGE[name]: used[name] for name in _USAGE if name in used}}
            event["messageId"] = payload.get("message_id")
    return {} if event is None else {"type": "context.append_loop_event", "event": event}


_USAGE = {"input_other": "inputOther", "output": "output"}
_USAGE |= {"input_cache_read": "inputCacheRead", "input_cache_creation": "inputCacheCreation"}


# ---- kimi ----

_USERS_OWN = ("user", "skill_activation", "plugin_command")
_SHOWN = "tool_result"
"""The origin of the pictures of a result: a message here, but not in Kimi's context."""
_NOT_SENT = ("audio_url", "video_url")
_NO_PLACE = "a sound or a video is kept, and not sent: chat completions have no place for it"


class Kimi:
    """Reads the wire logs of Kimi Code."""

    name = "kimi"
    revision = 3

    def recognizes(self, head: SourceHead) -> bool:
        return any(map(_is_ours, head.objects))

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        lines, session = SourceLines(source), _Session()
        said = replayed(source, _walk(lines, session), lambda: _walk(SourceLines(source), _Session()))
        if not lines.count:
            return
        about, known_as, part_of = _beside(source)
        facts, provider = session.facts, "openai-compatible" if session.speaks else None
        facts.first(session=known_as or (session.beginning.hexdigest() if session.is_begun else session.former))
        if part_of is None:
            facts.first(title=first_text(about.get("title"), about.get("custom_title")))
            facts.first(forked_from=about.get("forkedFrom"))
        facts.first(cwd=about.get("workDir"), part_of=part_of)
        yield facts.plan(self.name, lines, said, provider, session.losses, former_session=session.former)


_ID = re.compile(r"(session_)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _beside(source: Source) -> tuple[Json, str | None, str | None]:
    """The session's facts in ``state.json``, its id if its folder has one for a name, and its parent's id for the log of a sub-agent."""
    session, agents, agent, _ = ("", "", "", *source.name.replace("\\", "/").split("/"))[-4:]
    if agents not in ("agents", "subagents"):  # the version before: its state is in the same folder
        about = object_beside(source, "state.json") or object_beside(source, "metadata.json")
        return about, agent if _ID.fullmatch(agent) else None, None
    about = object_beside(source, "../../state.json")
    parent = agents == "subagents" or obj(obj(about.get("agents")).get(agent)).get("parentAgentId")
    part_of = session if parent or (about and agent != "main") else None
    known_as = f"{session}/{agent}" if part_of else session
    return about, known_as if _ID.fullmatch(session) else None, part_of


def _is_ours(value: Json) -> bool:
    """True for the first line, or one that only this program writes: a crash may tear the first one."""
    if value.get("type") == "metadata":
        return "protocol_version" in value
    return value.get("type") in ("context.append_message", "context.append_loop_event")


class _Session:
    """The state of a session while its lines are read."""

    def __init__(self) -> None:
        self.beginning = hashlib.sha256()
        self.former = ""
        """The hash of the first line. It is the id while no line has a time, or each new line would change the id."""
        self.is_begun = False
        self.facts = SessionFacts()
        self.speaks = False
        self.losses = Losses()
        self.context: list[tuple[PlannedRecord, Json]] = []
        """The messages in force, each with its origin."""
        self._drafts: list[tuple[Draft, Json]] = []
        self._later: list[tuple[Draft, Json]] = []
        """Messages appended while results were missing."""
        self._step: Draft | None = None
        self._missing: set[str] = set()

    def begin(self, line: SourceLine, at: str | None) -> None:
        """The id of a session is its beginning, through the first line with a time: all of a version may have the same first line."""
        if not self.is_begun:
            self.beginning.update(line.raw.removesuffix(b"\n") if self.former else line.raw)
            self.former = self.former or self.beginning.hexdigest()
            self.is_begun = at is not None

    def learn(self, value: Json) -> None:
        if value.get("type") == "metadata":
            self.facts.first(version=value.get("protocol_version"))
        elif value.get("type") in ("config.update", "profile.bind"):
            self.facts.last(model=value.get("modelAlias"), system_prompt=value.get("systemPrompt"))
            self.facts.last(cwd=first_text(value.get("cwd"), obj(value.get("environmentDisclosure")).get("cwd")))

    def event(self, line: SourceLine, at: str | None) -> None:
        self._drafts.append((Draft(at=at, lines=[line]), {}))

    def append(self, message: Json, line: SourceLine, at: str | None) -> None:
        origin = obj(message.get("origin"))
        kind = first_text(origin.get("kind"))
        extra: Json = {"origin": kind} if kind not in (None, "user") else {}
        if message.get("role") == "user":
            extra |= _injected(message, origin)
        self._count_lost(message.get("content"))
        draft = Draft(_message(message), extra, at, [line])
        (self._later if self._missing else self._drafts).append((draft, origin))

    def loop(self, event: Json, line: SourceLine, at: str | None) -> None:
        kind = event.get("type")
        if kind == "step.begin":
            self.settle()
            self._step = Draft({"role": "assistant", "content": ""}, {}, at, [line])
            self._drafts.append((self._step, {}))
        elif kind == "tool.result" and first_text(event.get("toolCallId")) in self._missing:
            self._missing.discard(event["toolCallId"])
            output = obj(event.get("result")).get("output")
            self._count_lost(output)
            shown = [picture for part in objects(output) if (picture := _picture(part)) is not None]
            # The message with the pictures gets the line: it shares their text, so they are not stored twice.
            extra: Json = {"failed": True} if obj(event.get("result")).get("isError") is True else {}
            self._drafts.append((Draft(_result(event), extra, at, [] if shown else [line]), {}))
            if shown:
                seen = Draft({"role": "user", "content": shown}, {"origin": _SHOWN}, at, [line])
                self._later.append((seen, {"kind": _SHOWN}))
            self._go_on()
        elif self._step is not None and kind in ("content.part", "tool.call", "step.end"):
            self._step.lines.append(line)
            if kind == "content.part":
                self._count_lost([event.get("part")])
                _add_part(obj(self._step.message), obj(event.get("part")))
            elif kind == "tool.call" and (call := _call(event)) is not None:
                obj(self._step.message).setdefault("tool_calls", []).append(call)
                self._missing.add(call["id"])
            elif kind == "step.end":
                self._end_step(event)
        else:
            self.event(line, at)

    def settle(self) -> None:
        """End the reply and its calls: missing results stay missing."""
        if self._step is not None:
            self._end_step({})
        self._missing.clear()
        self._go_on()

    def settled(self) -> Iterator[Draft]:
        """The records so far, unless a reply or a result is missing."""
        if self._step is not None or self._missing:
            return
        for draft, origin in self._drafts:
            if draft.message is not None:
                self.speaks = True
                self.context.append((draft.carried(), origin))
            yield draft
        self._drafts = []

    def restart(self, kept: list[tuple[PlannedRecord, Json]], *, taken_back: int = 0) -> Steps:
        self.context = kept
        self.speaks = self.speaks or bool(kept)
        yield Restart(lambda: [entry for entry, _ in kept], taken_back)

    def _end_step(self, event: Json) -> None:
        step, self._step = self._step, None
        assert step is not None
        message = obj(step.message)
        step.extra |= present(
            model=self.facts.model,
            usage=_usage(obj(event.get("usage"))),
            stop_reason=first_text(event.get("finishReason")),
            response_id=first_text(event.get("messageId")),
        )
        if not (message["content"] or message.get("tool_calls")):
            step.message = None
        elif not message["content"]:
            message["content"] = None

    def _count_lost(self, parts: Any) -> None:
        for part in objects(parts):
            if part.get("type") in _NOT_SENT:
                self.losses.note("media", _NO_PLACE)

    def _go_on(self) -> None:
        if not self._missing:
            self._drafts += self._later
            self._later = []


def _walk(lines: Iterable[SourceLine], session: _Session) -> Steps:
    for line in lines:
        if not line.raw:
            continue
        value = line.value or {}
        if "message" in value and "type" not in value:
            at, value = time_member(value.get("timestamp")), record_of(value)
        else:
            at = time_in_ms(value.get("time", value.get("created_at")))
        kind = first_text(value.get("type"))
        session.begin(line, at)
        session.learn(value)
        if kind == "context.append_message":
            session.append(obj(value.get("message")), line, at)
        elif kind == "context.append_loop_event":
            session.loop(obj(value.get("event")), line, at)
        else:
            if kind in _RESTARTS:
                session.settle()
                yield from session.settled()
                kept = _RESTARTS[kind](value, session.context)
                if kept is not None:
                    gone = len(session.context) - len(kept)
                    yield from session.restart(kept, taken_back=gone if kind == "context.undo" else 0)
            session.event(line, at)
        yield from session.settled()
    session.settle()
    yield from session.settled()


Context = list[tuple[PlannedRecord, Json]]


def _undone(value: Json, context: Context) -> Context | None:
    """Without the last prompts of the user, and what followed each. Not past a summary: then the program does nothing."""
    left = count_member(value.get("count")) or 0
    for place in range(len(context) - 1, -1, -1):
        entry, origin = context[place]
        if origin.get("kind") == "compaction_summary":
            return None
        if obj(entry.message).get("role") == "user" and _is_the_users(origin):
            left -= 1
            if left <= 0:
                return context[:place]
    return None


def _compacted(value: Json, context: Context) -> Context | None:
    """The kept prompts and the summary; in older versions the summary and the newest messages."""
    given = value.get("summary")
    parts = objects(obj(given).get("content"))
    said = first_text(value.get("contextSummary"), given) or "".join(text_in(part, "text") for part in parts)
    record = PlannedRecord({"role": "user", "content": said}, marked_summary())
    summary: Context = [(record, {"kind": "compaction_summary"})] if said else []
    kept = count_member(value.get("keptUserMessageCount"))
    if kept is None or value.get("legacyTail") is True:
        gone = count_member(value.get("compactedCount", value.get("count")))
        counted = [place for place, (_, origin) in enumerate(context) if origin.get("kind") != _SHOWN]
        return summary + ([] if gone is None or gone >= len(counted) else context[counted[gone] :])
    users = [each for each in context if obj(each[0].message).get("role") == "user" and _is_the_users(each[1])]
    head = min(count_member(value.get("keptHeadUserMessageCount")) or 0, kept)
    tail = users[max(len(users) - (kept - head), head) :]
    return users[:head] + tail + summary


_RESTARTS = {
    "context.clear": lambda _value, _context: [],
    "context.undo": _undone,
    "context.apply_compaction": _compacted,
}


def _is_the_users(origin: Json) -> bool:
    kind = origin.get("kind", "user")
    return kind == "user" or (kind in _USERS_OWN and origin.get("trigger") == "user-slash")


def _injected(message: Json, origin: Json) -> Json:
    """The mark of what Kimi wrote in the user's name."""
    typed = KIMI.typed_of(texts_in(message.get("content")))
    if _is_the_users(origin) or origin.get("name") == "subagent":  # what another agent asks of this one is its prompt
        return marked(typed)
    return marked("", is_said=True)


def _message(given: Json) -> Json | None:
    """The message in the form of chat completions; None if it has nothing to send."""
    role = given.get("role")
    message: Json = {"role": role, "content": ""}
    for part in objects(given.get("content")):
        _add_part(message, part)
    if isinstance(given.get("content"), str):
        message["content"] = given["content"]
    if role == "tool":
        return {**message, "tool_call_id": given["toolCallId"]} if first_text(given.get("toolCallId")) else None
    calls = [
        _function_call(call["id"], call["name"], text_in(call, "arguments"))
        for call in objects(given.get("toolCalls"))
        if text_in(call, "id") and text_in(call, "name")
    ]
    if role == "assistant" and calls:
        return {**message, "content": message["content"] or None, "tool_calls": calls}
    return message if role in ("user", "assistant", "system") and message["content"] else None


def _add_part(message: Json, part: Json) -> None:
    kind = part.get("type")
    content = message["content"]
    if kind == "think" and first_text(part.get("think")):
        message["reasoning_content"] = message.get("reasoning_content", "") + part["think"]
    elif kind == "text" and first_text(part.get("text")):
        if isinstance(content, str):
            message["content"] = content + part["text"] if content else part["text"]
        else:
            content.append({"type": "text", "text": part["text"]})
    elif (picture := _picture(part)) is not None:
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
        message["content"] = [*parts, picture]


def _picture(part: Json) -> Json | None:
    url = text_in(obj(part.get("imageUrl", part.get("image_url"))), "url")
    return {"type": "image_url", "image_url": {"url": url}} if url and part.get("type") == "image_url" else None


def _call(event: Json) -> Json | None:
    known_as, name, given = first_text(event.get("toolCallId")), first_text(event.get("name")), event.get("args")
    if known_as is None or name is None:
        return None
    arguments = given if isinstance(given, str) else "{}" if given is None else json.dumps(given, ensure_ascii=False)
    return _function_call(known_as, name, arguments)


def _function_call(number: str, name: str, arguments: str) -> Json:
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments or "{}"}}


def _result(event: Json) -> Json:
    result = obj(event.get("result"))
    output: Any = result.get("output")
    if isinstance(output, list):
        texts = (part for part in objects(output) if _picture(part) is None and part.get("type") not in _NOT_SENT)
        output = "\n".join(first_text(part.get("text")) or as_text(part) for part in texts)
    said = output if isinstance(output, str) else "" if output is None else as_text(output)
    note = first_text(result.get("note"))
    said = f"{said}\n{note}" if note else said
    said = f"Error: {said}" if result.get("isError") is True else said
    return {"role": "tool", "tool_call_id": event["toolCallId"], "content": said}


def _usage(given: Json) -> Json:
    """The counts under the names of chat completions; cached input is part of the input."""
    parts = [count_member(given.get(name)) for name in ("inputOther", "inputCacheRead", "inputCacheCreation")]
    if all(part is None for part in parts) or count_member(given.get("output")) is None:
        return {}
    cached = {"prompt_tokens_details": {"cached_tokens": parts[1]}} if parts[1] else {}
    return {"prompt_tokens": sum(part or 0 for part in parts), "completion_tokens": given["output"], **cached}
