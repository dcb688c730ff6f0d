"""Qwen Code: JSON lines that name their parents, like Claude Code's, with Gemini's contents as messages.

A line is ``{"uuid", "parentUuid", "sessionId", "timestamp", "type", "message"}``; ``user``, ``assistant`` and ``tool_result`` are
messages. Files of 0.24.4, and its ``chatRecordingService``, show:

* Lines of one ``uuid`` are one message. A reply of thoughts alone (in a sub-agent's file) starts the next reply. The results of one
  reply's calls, a line each, are one content: the API refuses them one by one.
* A ``system`` line of the subtype ``chat_compression`` has the new context. ``custom_title`` names the session; telemetry only
  repeats calls and results.
* After a rewind the next line names the parent of the turn that was taken back: that turn is a branch that was left.
* A fork repeats all lines with ``forkedFrom``; a sub-agent has another file, and ``isSidechain``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from transcript_store.formats._lines import KeptLines
from transcript_store.formats._members import Json, count_member, first_text, obj, objects
from transcript_store.formats._plan import PlannedRecord, SessionPlan, Source, SourceHead
from transcript_store.formats._replay import Draft, SessionFacts
from transcript_store.formats._rows import file_of, object_beside
from transcript_store.formats._scaffolding import GEMINI_CLI, marked, texts_in
from transcript_store.formats._trees import Link, TreeMessage, chain_of

_JOINED = frozenset({("thoughts", "thoughts"), ("thoughts", "assistant"), ("tool_result", "tool_result")})
_SPEAKERS = ("user", "assistant", "tool_result")
_SCAFFOLDING = replace(
    GEMINI_CLI, openings=(*GEMINI_CLI.openings, "This is the Qwen Code. We are setting up the context for our chat.")
)


class QwenCode:
    """Reads a session file, or the file of a sub-agent."""

    name = "qwen-code"
    revision = 1

    def recognizes(self, head: SourceHead) -> bool:
        return any(map(_is_ours, head.objects))

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        about = _QwenAbout()
        facts = about.facts
        chain = chain_of(source, about.link_of)
        if not chain.lines.count:
            return
        beside = object_beside(source, f"{file_of(source).removesuffix('.jsonl')}.meta.json") if about.agent else {}
        titles = [about.titles[link.id] for link in chain.way if link.id in about.titles]
        said = chain.generations(partial(_entries, chain.lines, about.prompts), _JOINED)
        models = [about.models[link.id] for link in chain.way if link.id in about.models]
        facts.first(session=chain.first, title=next(reversed(titles), beside.get("description")))
        facts.last(model=models[-1] if models else None)
        if about.agent:
            facts.session, facts.part_of = f"{facts.session}/agent-{about.agent}", facts.session
        speaks = any(link.says for link in (*chain.way, *chain.links))
        yield facts.plan(self.name, chain.lines, said, "gemini" if speaks else None)


def _is_ours(value: Json) -> bool:
    if not isinstance(value.get("uuid"), str) or "sessionId" not in value:
        return False
    message = obj(value.get("message"))
    return "systemPayload" in value or ("parts" in message and "content" not in message)


class _QwenAbout:
    """Facts of the session, complete after the last line."""

    def __init__(self) -> None:
        self.facts = SessionFacts()
        self.agent: str | None = None
        self.titles: dict[str, str] = {}
        """By the uuid of the line."""
        self.prompts: set[int] = set()
        """Hashes of the user's prompts, which a compaction may keep."""
        self.models: dict[str, str] = {}

    def link_of(self, place: int, value: Json) -> Link | None:
        if not isinstance(value.get("type"), str) or not isinstance(value.get("uuid"), str):
            return None
        copied = obj(value.get("forkedFrom")).get("sessionId")
        self.facts.first(session=value.get("sessionId"), cwd=value.get("cwd"), forked_from=copied)
        self.facts.last(git_branch=value.get("gitBranch"), version=value.get("version"))
        if value.get("isSidechain") is True:
            self.agent = self.agent or first_text(value.get("agentId"))
        known_as = value["uuid"]
        payload = obj(value.get("systemPayload"))
        if value.get("subtype") == "custom_title" and (title := first_text(payload.get("customTitle"))):
            self.titles[known_as] = title
        if value["type"] == "assistant" and (model := first_text(value.get("model"))):
            self.models[known_as] = model
        said = _said(value)
        if value["type"] == "user" and said:
            self.prompts.add(hash(tuple(texts_in(said[0]["parts"]))))
        return Link(
            place,
            known_as,
            first_text(value.get("parentUuid")) or "",
            says=bool(said),
            begins=value.get("subtype") == "chat_compression" and bool(said),
            kind="thoughts" if _is_thoughts_alone(value, said) else value["type"],
        )


def _said(value: Json) -> list[Json]:
    """The contents of a line, as its own objects; several for a compaction."""
    if value.get("subtype") == "chat_compression":
        history = objects(obj(value.get("systemPayload")).get("compressedHistory"))
        return [content for content in history if _is_content(content)]
    message = value.get("message")
    is_said = value.get("type") in _SPEAKERS and isinstance(message, dict) and _is_content(message)
    return [message] if is_said and isinstance(message, dict) else []


def _is_content(content: Json) -> bool:
    return content.get("role") in ("user", "model") and bool(objects(content.get("parts")))


def _is_thoughts_alone(value: Json, said: list[Json]) -> bool:
    return value.get("type") == "assistant" and all(
        part.get("thought") is True for content in said for part in objects(content["parts"])
    )


def _entries(
    lines: KeptLines, prompts: set[int], said: TreeMessage[Link], _taken_over: bool
) -> Iterator[PlannedRecord]:
    """The message of these lines, or the messages of a compaction."""
    given = [lines[link.place] for link in said.nodes]
    values = [line.value for line in given if line.value is not None]
    contents = [_said(value) for value in values]
    at = first_text(values[0].get("timestamp"))
    first, *others = contents[0]
    parts = [part for found in contents for part in objects(found[0]["parts"])]
    is_whole = len(contents) == 1 and len(parts) == len(first["parts"]) and first.keys() == {"role", "parts"}
    message = first if is_whole else {"role": first["role"], "parts": parts}
    yield Draft(message, {name: found for name, found in _about(values, message) if found}, at, given).entry()
    for content in others:
        kept = {"role": content["role"], "parts": objects(content["parts"])}
        is_typed = content["role"] == "model" or hash(tuple(texts_in(kept["parts"]))) in prompts
        mark = _typed(kept, None) if is_typed else marked("", is_said=True)
        yield Draft(kept, mark, at).carried()


def _about(values: list[Json], message: Json) -> Iterator[tuple[str, Any]]:
    """What belongs to a message and is not sent."""
    first = values[0]
    if first.get("subtype") == "chat_compression":
        yield "compaction", True
        yield "scaffolding", {"typed": ""}
    elif message["role"] == "model":
        yield "model", next((found for value in values if (found := first_text(value.get("model")))), None)
        yield "usage", next((counts for value in values if (counts := _usage(obj(value.get("usageMetadata"))))), None)
    elif first.get("type") == "user":
        is_news = first.get("subtype") == "notification"
        shown = first_text(obj(first.get("systemPayload")).get("displayText"))
        yield from (marked("", is_said=True) if is_news else _typed(message, shown)).items()


def _typed(message: Json, shown: str | None) -> Json:
    """The mark of the text around what the user typed. ``shown`` is the prompt as the program shows it, if it does."""
    texts = texts_in(message["parts"])
    if message["role"] != "user" or (shown is not None and texts == [shown]):
        return {}
    return marked(_SCAFFOLDING.typed_of(texts) if shown is None else shown)


def _usage(usage: Json) -> Json:
    """The counts of a reply. Gemini counts thoughts apart from output; other providers' replies include them."""
    found: Json = {name: value for name, value in usage.items() if count_member(value) is not None}
    asked, said, thought = (found.get(f"{name}TokenCount", 0) for name in ("prompt", "candidates", "thoughts"))
    if thought and said >= thought and found.get("totalTokenCount") == asked + said:
        found["candidatesTokenCount"] = said - thought
    return found
