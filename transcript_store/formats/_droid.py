"""Factory Droid: JSON lines whose messages have Claude's blocks and name their parents.

The first line is ``session_start`` {id, title, cwd, version: 2}. A ``message`` has ``id``, ``parentId``, ``timestamp``, and the
message in the form of Claude's API. ``agent_turn_outcome`` marks the end of a turn; a stopped one has none. ``compaction_state``
{summaryText, anchorMessage {id}} replaces everything before the anchor. ``<uuid>.settings.json`` beside the session has its model
and the sums of its tokens.

* Before the first prompt is a message of the program about its surroundings, whose id starts with ``context-``.
* A reply names its model (``modelId``), and its thinking the provider (``signatureProvider``).
* The output of ``droid exec -o stream-json`` is read too: ``message``, ``tool_call``, ``tool_result`` and ``completion``.

Source: files of 0.225.2; compactions from tenequm/pond#208, the output from fixtures of jazzyalex/agent-sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from transcript_store.formats._blocks import Result, Text
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import Json, first_text, obj, objects, text_in
from transcript_store.formats._neutral import Losses
from transcript_store.formats._neutral_lines import named_provider, said_drafts, turn_in
from transcript_store.formats._plan import PlannedRecord, SessionPlan, Source, SourceHead
from transcript_store.formats._replay import Draft, SessionFacts
from transcript_store.formats._rows import file_of, object_beside
from transcript_store.formats._scaffolding import CLAUDE_CODE, marked, marked_summary
from transcript_store.formats._times import time_in_ms
from transcript_store.formats._trees import Chain, Link, TreeMessage, chain_of


class Droid:
    """Reads a session file, or the output of ``droid exec``."""

    name = "droid"
    revision = 1

    def recognizes(self, head: SourceHead) -> bool:
        return any(map(_is_ours, head.objects))

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        about = _DroidAbout()
        chain = chain_of(source, about.link_of)
        if not chain.lines.count:
            return
        settings = object_beside(source, f"{file_of(source).removesuffix('.jsonl')}.settings.json")
        replies = [about.replies[link.place] for link in chain.way if link.place in about.replies]
        named = next((thinker for thinker, _ in reversed(replies) if thinker), "")
        facts, model = (
            about.facts,
            first_text(*(one[1] for one in replies[-1:]), settings.get("model"), about.facts.model) or "",
        )
        provider = named_provider(named or first_text(settings.get("providerLock")), model)
        losses = Losses()
        for link in chain.way:
            if link.says:
                _drafts(chain.lines[link.place], provider, losses)
        facts.first(session=chain.first)
        facts.last(model=model)
        said, speaks = chain.generations(partial(_entries, chain, provider)), any(link.says for link in chain.links)
        yield facts.plan(self.name, chain.lines, said, provider if speaks else None, losses)


def _is_ours(value: Json) -> bool:
    """True for the first line, a message, or printed output: a crash may tear the first line."""
    kind, message = value.get("type"), obj(value.get("message"))
    if kind == "session_start":
        return isinstance(value.get("id"), str) and ("cwd" in value or "title" in value)
    if kind == "message" and value.keys() >= {"id", "timestamp", "message"}:
        blocks = objects(message.get("content"))
        return "parentId" in value and any(block.get("type") in ("tool_use", "tool_result") for block in blocks)
    return (kind == "agent_turn_outcome" and "turnId" in value) or _is_printed(value)


def _is_printed(value: Json) -> bool:
    kind = value.get("type")
    members = {"message": "text", "tool_call": "toolName", "tool_result": "value", "completion": "finalText"}
    return members.get(str(kind)) in value and isinstance(value.get("sessionId", value.get("session_id")), str)


class _DroidAbout:
    """Facts of the session, complete after the last line."""

    def __init__(self) -> None:
        self.facts = SessionFacts()
        self.replies: dict[int, tuple[str, str]] = {}
        """By its place: who thought, and which model answered."""
        self._last = ""
        self._compacted: dict[str, str] = {}
        """A line that follows the key now follows the value, which comes after it."""

    def link_of(self, place: int, value: Json) -> Link | None:
        kind = value.get("type")
        if kind == "session_start" or (kind == "system" and value.get("subtype") == "init"):
            known_as, version = value.get("id") if kind == "session_start" else None, value.get("version")
            self.facts.first(session=first_text(known_as, value.get("sessionId")))
            self.facts.last(title=first_text(value.get("sessionTitle"), value.get("title")), cwd=value.get("cwd"))
            self.facts.last(
                part_of=value.get("callingSessionId"), version=str(version) if type(version) is int else None
            )
            self.facts.model = first_text(value.get("model"))
            return None
        link: Link | None = None
        if kind == "message" and isinstance(value.get("message"), dict):
            parent = first_text(value.get("parentId")) or ""
            link = Link(place, text_in(value, "id"), self._compacted.get(parent, parent), _is_said(value["message"]))
            if value["message"].get("role") == "assistant":
                self.replies[place] = (_thinker(value["message"]), first_text(value["message"].get("modelId")) or "")
        elif kind == "compaction_state" and first_text(value.get("summaryText")):
            anchor = first_text(obj(value.get("anchorMessage")).get("id")) or ""
            link = Link(place, f"compaction/{place}", self._last, begins=True, kept_behind=anchor)
            self._compacted[self._last] = link.id
        elif _is_printed(value):
            self.facts.first(session=first_text(value.get("sessionId"), value.get("session_id")))
            link = Link(place, f"printed/{place}", self._last)
        if link is not None:
            self._last = link.id or self._last
        return link


def _is_said(message: Json) -> bool:
    return message.get("role") in ("user", "assistant") and isinstance(message.get("content"), (str, list))


def _thinker(message: Json) -> str:
    """The provider that signed the thinking of a reply."""
    return first_text(*(block.get("signatureProvider") for block in objects(message.get("content")))) or ""


def _entries(chain: Chain, provider: str, said: TreeMessage[Link], taken_over: bool) -> Iterator[PlannedRecord]:
    first, *more = (chain.lines[link.place] for link in said.nodes)
    drafts = _drafts(first, provider, Losses())
    drafts[0].lines += more
    if taken_over:
        yield from (draft.carried() for draft in drafts if draft.message is not None)
    else:
        yield from (draft.entry() for draft in drafts)


def _drafts(line: SourceLine, provider: str, losses: Losses) -> list[Draft]:
    value = line.value or {}
    at = time_in_ms(value.get("timestamp"))
    if value.get("type") == "compaction_state":
        summary = {"role": "user", "content": value["summaryText"]}
        return said_drafts(turn_in(summary, provider), provider, marked_summary(), at, line, losses)
    is_stored = isinstance(value.get("message"), dict) and value.get("type") == "message"
    message = value["message"] if is_stored else _printed(value)
    thinker = _thinker(message)
    turn = turn_in(message, named_provider(thinker, None) if thinker else provider)
    if turn.role == "assistant":
        return said_drafts(turn, provider, {"model": message.get("modelId")}, at, line, losses)
    texts = [block.text for block in turn.blocks if isinstance(block, Text)]
    is_context = str(value.get("id")).startswith("context-")
    answers = any(isinstance(block, Result) for block in turn.blocks)
    mark = marked("") if is_context else {} if answers else marked(CLAUDE_CODE.typed_of(texts))
    return said_drafts(turn, provider, mark, at, line, losses)


def _printed(value: Json) -> Json:
    """The message of a printed line, in the form of Claude's API."""
    kind, number = value.get("type"), first_text(value.get("toolCallId"), value.get("id")) or ""
    if kind == "tool_call":
        name = first_text(value.get("toolName"), value.get("toolId"))
        call = {"type": "tool_use", "id": number, "name": name, "input": obj(value.get("parameters"))}
        return {"role": "assistant", "content": [call]}
    if kind == "tool_result":
        result = {"type": "tool_result", "tool_use_id": number, "content": value.get("value")}
        result |= {"is_error": True} if value.get("isError") is True else {}
        return {"role": "user", "content": [result]}
    role = "assistant" if kind == "completion" or value.get("role") == "assistant" else "user"
    return {"role": role, "content": first_text(value.get("text")) or first_text(value.get("finalText")) or ""}
