"""Codex, read and written: ``rollout-*.jsonl``, lines ``{"timestamp", "type", "payload"}``.

* ``session_meta``: the session; the first counts, because a fork has those of its parents after its own.
* ``response_item``: messages, as items of OpenAI's Responses. Nothing else is sent to a model: ``event_msg`` repeats them. In a
  file without items the events count. What an assistant said in an event alone, of a turn that was aborted, is a branch that was left.
* ``turn_context``: the model from here on.
* ``compacted``: a new generation, which starts with its ``replacement_history``; older versions continued with the user's messages
  and the summary.
* ``event_msg`` of the type ``thread_rolled_back``: a new generation without the user's last ``num_turns``.

Usage is in ``token_usage_record`` after a reply; before 0.160 only in ``token_count``, which repeats itself, so it counts when its
total changes. Without ``last_token_usage`` the difference of the totals counts. The cost of a compaction stays with its event. The
versions of early 2025 had the items themselves as lines.

Source: ``codex-rs/protocol`` and ``codex-rs/core/src/rollout``, and files of 0.169.0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.formats._lines import SourceLine, SourceLines
from transcript_store.formats._members import Json, count_member, first_text, obj, objects
from transcript_store.formats._neutral import Losses
from transcript_store.formats._outgoing import handed, json_line
from transcript_store.formats._plan import PlannedRecord, SessionPlan, Source, SourceHead, WrittenSession
from transcript_store.formats._replay import Draft, Restart, Steps, facts_of, replayed
from transcript_store.formats._responses_items import Items
from transcript_store.formats._rows import lines_beside
from transcript_store.formats._scaffolding import CODEX, marked, marked_summary, texts_in
from transcript_store.messages import typed_of

_TYPES = frozenset(
    {"session_meta", "response_item", "event_msg", "turn_context", "compacted", "token_usage_record", "world_state"}
)
_EARLY_ITEMS = frozenset({"message", "reasoning", "function_call", "function_call_output", "local_shell_call"})


_SPEAKERS = {"user_message": "user", "UserMessage": "user", "agent_message": "assistant", "AgentMessage": "assistant"}
"""Who speaks in an event, by its type."""
_REPEATING_SECONDS = 1.0
"""So soon after a fork began no model has answered."""


class Codex:
    """Reads rollouts of Codex."""

    name = "codex"
    revision = 3

    def recognizes(self, head: SourceHead) -> bool:
        if not head.objects:
            return False
        # Logs of many programs have these three members: one of the first lines has to be of a type that Codex writes.
        has_form = {"timestamp", "type", "payload"} <= head.objects[0].keys()
        return _kind(head.objects[0]) == "session_meta" or (has_form and any(_kind(o) in _TYPES for o in head.objects))

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        for hears in (False, True):
            lines, session = SourceLines(source), _Session(hears=hears)
            said = replayed(source, _walk(lines, session), partial(_walked, source, session.said, hears=hears))
            if session.speaks or not session.is_heard:
                break
        if not lines.count:
            return
        meta = session.meta
        known_as, parent = first_text(meta.get("id")), _parent(meta)
        facts = facts_of(
            session=known_as or hashlib.sha256(session.first).hexdigest(),
            version=meta.get("cli_version"),
            model=session.model,
            system_prompt=first_text(obj(meta.get("base_instructions")).get("text"), meta.get("instructions")),
            title=session.title or _title_beside(source, known_as),
            cwd=meta.get("cwd"),
            git_branch=obj(meta.get("git")).get("branch"),
            part_of=parent,
            forked_from=None if parent else meta.get("forked_from_id"),
        )
        yield facts.plan(
            self.name,
            lines,
            said,
            "openai" if session.speaks else None,
            session.items.losses,
            left=len(session.heard - session.said),
        )


def _title_beside(source: Source, session: str | None) -> str | None:
    """The name that ``session_index.jsonl`` in the program's folder has for a session: the last one counts."""
    for folder in ("../../../../", "../"):  # of sessions/<year>/<month>/<day>, and of archived_sessions
        for value in reversed(lines_beside(source, f"{folder}session_index.jsonl")):
            if session is not None and value.get("id") == session and first_text(value.get("thread_name")):
                return first_text(value["thread_name"])
    return None


class _Session:
    """The state of a session while its lines are read."""

    def __init__(self, *, hears: bool = False, said: set[int] | None = None) -> None:
        self.hears = hears
        """True if the text of events counts, because no item has it."""
        self.is_heard = False
        """True if an event has a message of the user or the model."""
        self.said: set[int] = set()
        """The hashes of the assistant's texts in items."""
        self.heard: set[int] = set()
        """The same of its texts in events."""
        self.all_said = said
        """What ``said`` is after the last line; None in the first walk, which finds it out."""
        self.meta: Json = {}
        self.first = b""
        self.model: str | None = None
        self.title: str | None = None
        self.speaks = False
        self.items = Items()
        self.context: list[PlannedRecord] = []
        self.total: Json = {}
        """The running total of ``token_count``."""
        self.has_records = False
        """True if there is a ``token_usage_record``: a ``token_count`` that no reply waits for repeats it."""
        self.forked_at: str | None = None
        """When a fork or a sub-agent started. Counts that it repeats from its parent are older, or were written at the same moment."""
        self.unmetered: Draft | None = None
        """The last reply, until its cost is known."""

    def learn(self, kind: str | None, payload: Json, at: str | None) -> None:
        if kind == "session_meta" and (first_text(payload.get("forked_from_id")) or _parent(payload)):
            self.forked_at = max(self.forked_at or "", at or "")
        if kind == "session_meta":
            self.meta = self.meta or payload
            self.total = {}  # another process counts from zero
        elif kind == "turn_context":
            self.model = first_text(payload.get("model")) or self.model
        elif kind == "event_msg" and payload.get("type") == "thread_name_updated":
            self.title = first_text(payload.get("thread_name")) or self.title

    def awaits(self, payload: Json) -> bool:
        """True if the last reply may continue, or its cost may still follow: after the results of its calls."""
        if str(payload.get("type")).endswith("_output"):
            return True
        return self.items.open and payload.get("role", "assistant") == "assistant"

    def hear(self, said: Json) -> Json:
        """What an event of the assistant has for its record: its message, if no item and no earlier event has it."""
        texts = texts_in(said.get("content"))
        found = hash("\n".join(texts).strip())
        is_left = self.all_said is not None and found not in self.all_said and found not in self.heard
        self.heard.add(found)
        return {"left_branch": {"message": {"role": "assistant", "content": "\n".join(texts)}}} if is_left else {}

    def item(self, payload: Json, line: SourceLine, at: str | None) -> None:
        if payload.get("role") == "assistant":
            texts = texts_in(payload.get("content"))
            self.said.update(hash(each.strip()) for each in (*texts, "\n".join(texts), "".join(texts)))
        reply = self.items.item(payload, line, at, _extra(payload))
        if reply is not None:
            self.unmetered = reply
            if self.model:
                reply.extra["model"] = self.model

    def meter(self, payload: Json, at: str | None = None) -> Json:
        """Note the cost of the last reply; return it if it belongs to no reply."""
        is_count = payload.get("type") == "token_count"
        usage = self._counted(payload) if is_count else obj(payload.get("usage"))
        about = {"usage": usage, "response_id": first_text(payload.get("response_id")), "model": self.model}
        about = {name: value for name, value in about.items() if value}
        if is_count and self.forked_at is not None and _seconds_between(self.forked_at, at) < _REPEATING_SECONDS:
            usage, self.unmetered = {}, None  # it counts in the session that the fork is of
        # A reply that two requests made has the cost of the first. A request without a reply, such as a compaction, is the event's.
        if not usage or self.unmetered is None or "usage" in self.unmetered.extra:
            return about if usage and not (is_count and self.has_records) else {}
        self.unmetered.extra.update(about)
        self.unmetered = None
        return {}

    def _counted(self, payload: Json) -> Json:
        """The counts since the last ``token_count``. One of rate limits alone has no total."""
        info = obj(payload.get("info"))
        before, total = self.total, obj(info.get("total_token_usage"))
        if not total or total == before:
            return {}
        self.total = total
        if last := obj(info.get("last_token_usage")):
            return last
        counts = {name: number for name, each in total.items() if (number := count_member(each)) is not None}
        less = {name: number - (count_member(before.get(name)) or 0) for name, number in counts.items()}
        return counts if any(number < 0 for number in less.values()) else less

    def settled(self) -> Iterator[Draft]:
        """The records so far. Their messages are now in the context."""
        self.unmetered = None
        for draft in self.items.take():
            if draft.message is not None:
                self.speaks = True
                self.context.append(draft.carried())
            yield draft

    def restart(self, kept: list[PlannedRecord], *, taken_back: int = 0) -> Steps:
        yield from self.settled()
        self.context = kept
        self.speaks = self.speaks or bool(kept)
        yield Restart(partial(islice, kept, len(kept)), taken_back)


def _walked(source: Source, said: set[int], *, hears: bool) -> Steps:
    return _walk(SourceLines(source), _Session(hears=hears, said=said))


def _walk(lines: Iterable[SourceLine], session: _Session) -> Steps:
    for line in lines:
        if not line.raw:
            continue
        session.first = session.first or line.raw
        value = line.value or {}
        kind, payload, at = _kind(value), obj(value.get("payload", value)), first_text(value.get("timestamp"))
        session.learn(kind, payload, at)
        about: Json = {}
        if kind == "event_msg" and (heard := _heard(payload)) is not None:
            session.is_heard = True
            if session.hears:
                kind, payload = "response_item", heard
            elif heard["role"] == "assistant":
                about = session.hear(heard)
        if kind == "response_item":
            if not session.awaits(payload):
                yield from session.settled()
            session.item(payload, line, at)
            continue
        if kind == "compacted":
            yield from session.settled()
            yield from session.restart(_compacted(payload, session.context, session.items.losses))
        elif kind == "event_msg" and payload.get("type") == "thread_rolled_back":
            yield from session.settled()
            said = len(session.context)
            kept = _rolled_back(session.context, count_member(payload.get("num_turns")) or 0)
            yield from session.restart(kept, taken_back=said - len(kept))
        if kind == "token_usage_record":
            session.has_records = True
            session.items.close()
            about = session.meter(payload)
        elif kind == "event_msg" and payload.get("type") == "token_count":
            about = session.meter(payload, at)
        session.items.event(line, at, about)
    yield from session.settled()


def _seconds_between(earlier: str, later: str | None) -> float:
    try:
        return (datetime.fromisoformat(later or "") - datetime.fromisoformat(earlier)).total_seconds()
    except (ValueError, TypeError):  # no time, or one of two without a zone
        return _REPEATING_SECONDS


def _heard(payload: Json) -> Json | None:
    """The message of an event as an item; None if it has none. Since 0.147 an event has the item itself."""
    said = obj(payload.get("item")) if payload.get("type") == "item_completed" else payload
    role = _SPEAKERS.get(first_text(said.get("type")) or "")
    texts = texts_in(said.get("content")) or texts_in(first_text(said.get("message"), said.get("text")))
    if role is None or not texts:
        return None
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": each} for each in texts]}


def _kind(value: Json) -> str | None:
    """The line's type. A line of early 2025 is the session or an item itself."""
    if "payload" in value:
        return first_text(value.get("type"))
    if first_text(value.get("type")) in _EARLY_ITEMS:
        return "response_item"
    return "session_meta" if first_text(value.get("id")) and "timestamp" in value and "instructions" in value else None


def _compacted(payload: Json, context: list[PlannedRecord], losses: Losses) -> list[PlannedRecord]:
    """The context after a compaction: its own history; in older versions the user's messages and the summary."""
    history = payload.get("replacement_history")
    if not isinstance(history, list):
        said = [entry for entry in context if _begins_turn(entry)]
        summary = first_text(payload.get("message"))
        return said + ([PlannedRecord({"role": "user", "content": summary}, marked_summary())] if summary else [])
    items = Items(losses)
    for item in objects(history):
        items.item(item, None, None, _extra(item))
    return [draft.carried() for draft in items.take() if draft.message is not None]


def _rolled_back(context: list[PlannedRecord], turns: int) -> list[PlannedRecord]:
    """The list without its last turns. Only these are read: a file may be full of rollbacks."""
    cut = len(context)
    for place in range(len(context) - 1, -1, -1):
        if not turns:
            break
        if _begins_turn(context[place]):
            cut, turns = place, turns - 1
    del context[cut:]
    return context


def _begins_turn(entry: PlannedRecord) -> bool:
    return obj(entry.message).get("role") == "user" and typed_of(entry.extra, "said") != ""


def _extra(item: Json) -> Json:
    """Marks what Codex itself wrote."""
    return marked(CODEX.typed_of(texts_in(item.get("content")))) if item.get("role") in ("user", "developer") else {}


def _parent(meta: Json) -> str | None:
    """The session that began this one as a part of its work."""
    spawned = obj(obj(obj(meta.get("source")).get("subagent")).get("thread_spawn"))
    return first_text(spawned.get("parent_thread_id"), meta.get("parent_thread_id"))


# ---- codex writer ----
#
# A conversation as a rollout of Codex: the session, its items, and what the terminal shows of them.
#
# Codex sends the items. It shows, and lists, the messages in ``event_msg``. With ``session_meta`` it wants ``id``, ``timestamp``, ``cwd``,
# ``originator``, ``cli_version`` and ``source``. Which model of which provider is called it takes from the user's settings.

_ORIGINATOR = "transcript_store"
_OWN = "codex"


class CodexWriter:
    """Writes sessions for Codex."""

    name = "codex"

    def write(
        self, records: Iterable[Record], metadata: ConversationMetadata, *, session: str, cwd: str, now: str
    ) -> WrittenSession:
        """See :class:`formats.SessionWriter`."""
        was_codex = metadata.labels.get("source") == _OWN
        found = handed(records, metadata, "openai-responses", now, keeps_prompt=was_codex)
        meta: dict[str, Any] = {
            "id": session,
            "timestamp": _milliseconds(now),
            "cwd": cwd,
            "originator": _ORIGINATOR,
            "cli_version": "0.0.0",
            "source": "cli",  # and no model_provider: Codex resumes with no other than the one that is recorded
        }
        if was_codex and metadata.system_prompt:
            meta["base_instructions"] = {"text": metadata.system_prompt}
        lines = [_line(now, "session_meta", meta)]
        if title := metadata.labels.get("title"):
            named = {"type": "thread_name_updated", "thread_id": session, "thread_name": title}
            lines.append(_line(now, "event_msg", named))
        for message, at in found.messages:
            item = _item(message)
            lines.append(_line(at, "response_item", item))
            lines += [_line(at, "event_msg", event) for event in _shown(item)]
        day, _, second = now.partition("T")
        name = f"rollout-{day}T{second[:8].replace(':', '-')}-{session}.jsonl"
        path = f"sessions/{day.replace('-', '/')}/{name}"
        return WrittenSession(((path, b"".join(lines)),), f"codex resume {session}", found.losses)


def _line(at: str, kind: str, payload: dict[str, Any]) -> bytes:
    return json_line({"timestamp": _milliseconds(at), "type": kind, "payload": payload})


def _item(message: dict[str, Any]) -> dict[str, Any]:
    """Codex requires the type of a message; our system message is its developer's."""
    if "role" not in message:
        return message
    role = "developer" if message["role"] == "system" else message["role"]
    content = message.get("content")
    kind = "output_text" if role == "assistant" else "input_text"
    parts = [{"type": kind, "text": content}] if isinstance(content, str) else content
    return {"type": "message", **message, "role": role, "content": parts}


def _shown(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    said = "\n".join(part["text"] for part in objects(item.get("content")) if first_text(part.get("text")))
    if said and item.get("role") == "user":
        yield {"type": "user_message", "message": said, "images": []}
    elif said and item.get("role") == "assistant":
        yield {"type": "agent_message", "message": said}


def _milliseconds(at: str) -> str:
    """Ours has six digits, JavaScript's and Codex's times have three."""
    head, dot, fraction = at.rstrip("Z").partition(".")
    return f"{head}{dot}{fraction[:3]}Z"
