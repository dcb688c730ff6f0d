"""Cline and Roo: one JSON document with the whole conversation, rewritten with each turn.

* Cline since 4 (its CLI 3): ``sessions/ID/ID.messages.json``, ``{"version", "sessionId", "origin", "system_prompt", "messages"}``;
  of a sub-agent ``agent_ID.messages.json``, whose ``origin.parentThreadId`` is its parent. ``ID.json`` beside it has the title, the
  folder, and the prompt, which is nowhere else until the first reply; ``ID.compaction.json`` replaces the first
  ``source_message_count`` messages.
* Their extensions: ``tasks/ID/api_conversation_history.json``, an array of messages. ``ui_messages.json`` beside it has the times,
  ``history_item.json`` (Roo) the id and the task, ``task_metadata.json`` the models.

Messages have Claude's blocks. A result may be a list of ``{"query", "result", "error"?, "success"}``, or the JSON text of one. The
prompt is within ``<user_input>`` or ``<task>``. A reply whose ``metadata`` has ``displayOnly`` was never sent: it is the program's
error. Source: files of Cline 3.0.65; of the extensions tenequm/pond#204 and kenn-io/agentsview PR#1722.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from transcript_store.formats._blocks import Result, Text
from transcript_store.formats._document import parse_object
from transcript_store.formats._lines import SourceLine, lines_of_document, objects_on
from transcript_store.formats._members import Json, count_member, first_text, obj, objects
from transcript_store.formats._neutral import Losses
from transcript_store.formats._neutral_lines import named_provider, said_drafts, turn_in, usage_of, walked
from transcript_store.formats._plan import PlannedRecord, SessionPlan, Source, SourceHead
from transcript_store.formats._replay import Draft, Restart, Steps, facts_of
from transcript_store.formats._rows import file_of, object_beside, text_beside
from transcript_store.formats._scaffolding import Scaffolding, marked, marked_summary
from transcript_store.formats._times import time_in_ms, time_of_member

# ---- cline messages ----
#
# What Cline and Roo put into their messages: what was typed of them, what a tool answered, what a reply cost.

_WITHIN = ("user_input", "task", "user_message", "feedback", "answer")
_SCAFFOLDING = Scaffolding(
    frozenset({*_WITHIN, "environment_details", "mode_notice", "explicit_instructions", "system-reminder"}),
    ("[ERROR] You did not use a tool", "Context summary:"),
    (("[TASK RESUMPTION]", "(?=<user_message>)"),),  # what the user typed to go on stands behind it
    typed_within=lambda found: "\n\n".join(found[name] for name in _WITHIN if found.get(name)),
)
_OPENED = re.compile(rf"<({'|'.join(_WITHIN)})\b[^<>]*>")
_ANSWERED = re.compile(r"\[\w+(?: for .*)?\] Result:")
"""The start of a result in the extensions, where calls are elements in the text of a reply."""


def is_message(message: Json) -> bool:
    """True if a model was sent it, or said it: not the program's own words, nor reasoning that only its provider can read."""
    is_sent = obj(message.get("metadata")).get("displayOnly") is not True
    return is_sent and message.get("role") in ("user", "assistant") and isinstance(message.get("content"), (str, list))


def typed_in_cline(texts: list[str]) -> Json:
    """The mark of the text around what the user typed. After a result only elements are the user's."""
    behind = next((number for number, said in enumerate(texts) if _ANSWERED.match(said)), len(texts))
    before = _SCAFFOLDING.typed_of(texts[:behind])
    if behind == len(texts):
        return marked(before)
    said = [one.strip() for text in texts[behind:] for one in _elements_in(text)]
    before_them = texts[:behind] if before is None else [before]
    return marked("\n\n".join(filter(None, (*before_them, *said))), is_said=True)


def _elements_in(text: str) -> Iterator[str]:
    """The content of each element. A name that is not closed is looked for once: a text may open one ten thousand times."""
    at, unclosed = 0, set()
    while opened := _OPENED.search(text, at):
        at, name = opened.end(), opened[1]
        end = -1 if name in unclosed else text.find(f"</{name}>", at)
        if end < 0:
            unclosed.add(name)
        else:
            yield text[at:end]
            at = end + len(f"</{name}>")


def is_hidden(message: Json) -> bool:
    """True if Roo no longer sends it, because a summary or a cut replaces it."""
    return bool(first_text(message.get("condenseParent")) or first_text(message.get("truncationParent")))


def answered(content: Any) -> tuple[str, bool] | None:
    """A result as text, and True if the call failed, where Cline stores its own objects; None for any other result."""
    given = content
    if isinstance(content, str):
        given = [parse_object(content.encode(errors="replace"))] if content.startswith('{"query"') else None
    answers = objects(given)
    if (
        not answers
        or len(answers) != len(given or ())
        or not all({"query", "success"} <= one.keys() for one in answers)
    ):
        return None
    said = []
    for one in answers:
        result, error = first_text(one.get("result")) or "", first_text(one.get("error"))
        shown = result if error is None or error in result else "\n".join(filter(None, (result, error)))
        said.append(f"{one['query']}:\n{shown}" if len(answers) > 1 else shown)
    return "\n\n".join(said), any(one["success"] is False for one in answers)


def usage_in(metrics: Json) -> Json:
    """The counts of a reply: Cline's, or within ``tokens`` those of its extension."""
    tokens = obj(metrics.get("tokens"))
    if tokens:
        return usage_of((*map(tokens.get, ("prompt", "completion", "cached")), None), metrics)
    names = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")
    return usage_of(map(metrics.get, names), metrics)


# ---- cline ----

_ARRAY = re.compile(rb'\[\s*\{\s*"(?:role|content|ts|id|type)"\s*:')
_OF_A_TASK = (b"<task>", b"<environment_details>", b"<user_message>")


class Cline:
    """Reads a session of Cline's, or a task of one of the extensions."""

    name = "cline"
    revision = 1

    def recognizes(self, head: SourceHead) -> bool:
        start = head.start.removeprefix(b"\xef\xbb\xbf").lstrip()
        if _ARRAY.match(start):
            return b'"role"' in start and (any(one in start for one in _OF_A_TASK) or _TIME.search(start) is not None)
        return head.is_document_with("sessionId", "updated_at", "messages") and b'"projectHash"' not in start

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        session = _ClineDocument(source)
        said, losses = walked(source, session.walk)
        about, beside, item = session.about, session.beside, session.item
        origin, metadata = obj(about.get("origin")), obj(beside.get("metadata"))
        known_as = first_text(about.get("sessionId"), origin.get("sessionId"), item.get("id"))
        facts = facts_of(
            session=known_as or session.made_id(),
            version=origin.get("version"),
            model=session.model,
            system_prompt=first_text(about.get("system_prompt"), metadata.get("systemPrompt")),
            title=first_text(metadata.get("title"), item.get("task")),
            cwd=first_text(session.home.get("cwd"), item.get("workspace"), item.get("cwdOnTaskInitialization")),
            git_branch=obj(obj(session.home.get("metadata")).get("git")).get("branch"),
            part_of=first_text(session.parent, item.get("parentTaskId")),
        )
        # The program rewrites the document with each turn. With an edition the import compares messages, so growth is appended.
        provider, edition = session.provider if session.speaks else None, session.edition()
        count = len(session.lines)
        yield facts.plan(self.name, count, said, provider, losses, findings=session.findings, edition=edition)


_TIME = re.compile(rb'"ts"\s*:\s*1[0-9]{12}\b')


class _ClineDocument:
    def __init__(self, source: Source) -> None:
        self.lines, self.findings = lines_of_document(source)
        self.about = obj(self.lines[0].value)
        self.messages: list[tuple[Json, SourceLine | None]] = [(obj(line.value), line) for line in self.lines[1:]]
        if not self.messages:  # the member occurs twice, or is missing
            self.messages = [(message, None) for message in objects(self.about.get("messages"))]
        self.parent = first_text(obj(self.about.get("origin")).get("parentThreadId"))
        stem = file_of(source).removesuffix(".messages.json")
        self.beside, self.compaction = (object_beside(source, f"{stem}{end}") for end in (".json", ".compaction.json"))
        self.home = self.beside or (object_beside(source, f"{self.parent}.json") if self.parent else {})
        self.item, metadata = (object_beside(source, name) for name in ("history_item.json", "task_metadata.json"))
        shown = text_beside(source, "ui_messages.json")
        self.shown = objects_on(shown)
        first = re.search(rb'"ts"\s*:\s*([0-9]+)', shown)
        self.began = self.shown[0].get("ts") if self.shown else int(first[1]) if first else None
        """When the task began, also if the file beside it was cut while it was written: the session's id is made of that."""
        self.speaks = any(is_message(message) for message, _ in self.messages) or bool(self._prompt())
        infos = [info for message, _ in self.messages if (info := obj(message.get("modelInfo")))]
        last, used = (infos or [{}])[-1], (objects(metadata.get("model_usage")) or [{}])[-1]
        self.model = first_text(last.get("id"), last.get("modelId"), used.get("model_id"), self.beside.get("model"))
        named = last.get("provider"), last.get("providerId"), used.get("model_provider_id")
        self.provider = named_provider(first_text(*named, self.beside.get("provider")), self.model)

    def made_id(self) -> str:
        """An id for a task that only its folder names: made of how the task started."""
        first = self.lines[1].raw if len(self.lines) > 1 else self.lines[0].raw
        return hashlib.sha256(b"%r" % self.began if self.began else first.strip(b", \t\r\n]")).hexdigest()

    def edition(self) -> tuple[str, str]:
        """When the document was written, and when its last message was sent, if that is known: the program rewrites it as a whole."""
        times = (time_in_ms(message.get("ts")) for message, _ in self.messages)
        return time_of_member(self.about.get("updated_at")), max(map(time_of_member, times), default="")

    def walk(self, losses: Losses) -> Steps:
        yield Draft(lines=[self.lines[0]], at=first_text(self.about.get("updated_at")))
        if not self.messages and (prompt := self._prompt()):
            # The program was killed before the first reply: only the file beside the document has the prompt.
            yield Draft({"role": "user", "content": prompt}, {}, first_text(self.beside.get("started_at")))
        kept, behind = self._compacted()
        for number, (message, line) in enumerate(self.messages):
            if kept and number == behind > 0:
                yield Restart(partial(self._carried, kept, is_compacted=True))
            elif message.get("isSummary") is True or message.get("isTruncationMarker") is True:
                yield Restart(partial(self._carried, [one for one, _ in self.messages[:number] if not is_hidden(one)]))
            yield from self._drafts(message, line, number, losses)
        if kept and behind == len(self.messages) > 0:
            yield Restart(partial(self._carried, kept, is_compacted=True))

    def _compacted(self) -> tuple[list[Json], int]:
        """The messages that replace the first ones, and how many they replace; none if those have changed since."""
        behind = count_member(self.compaction.get("source_message_count")) or 0
        key = self.compaction.get("source_last_message_key")
        last = self.messages[behind - 1][0].get("id") if 0 < behind <= len(self.messages) else None
        is_other = isinstance(key, str) and key.startswith("id:") and key != f"id:{last}"
        return ([], 0) if is_other else (objects(self.compaction.get("messages")), behind)

    def _carried(self, messages: list[Json], *, is_compacted: bool = False) -> Iterator[PlannedRecord]:
        for message in messages:
            for draft in self._drafts(message, None, -1, Losses()):
                if is_compacted and obj(message.get("metadata")).get("kind") == "compaction_summary":
                    draft.extra |= marked_summary()
                if draft.message is not None:
                    yield draft.carried()

    def _drafts(self, message: Json, line: SourceLine | None, number: int, losses: Losses) -> list[Draft]:
        at = time_in_ms(message.get("ts")) or self._time_of(number)
        at = first_text(self.beside.get("started_at")) if at is None and number == 0 else at
        if not is_message(message):
            return [] if line is None else [Draft(lines=[line], at=at)]
        info = obj(message.get("modelInfo"))
        named = first_text(info.get("provider"), info.get("providerId"))
        provider = named_provider(named, self.model) if info else self.provider
        turn = turn_in(message, provider, answered)
        about: Json = {}
        if turn.role == "assistant":
            usage = usage_in(obj(message.get("metrics")))
            about = {"model": first_text(info.get("id"), info.get("modelId")), "usage": usage}
        elif not any(isinstance(block, Result) for block in turn.blocks):
            about = typed_in_cline([block.text for block in turn.blocks if isinstance(block, Text)])
        if message.get("isSummary") is True:
            about |= marked_summary()
        return said_drafts(turn, self.provider, about, at, line, losses)

    def _prompt(self) -> str | None:
        return first_text(obj(self.beside.get("metadata")).get("prompt")) or first_text(self.beside.get("prompt"))

    def _time_of(self, number: int) -> str | None:
        """When the program showed a message, from the list of what it showed; for messages without times."""
        indices = ((one.get("ts"), count_member(one.get("conversationHistoryIndex"))) for one in self.shown)
        times = (time for time, index in indices if index is not None and index >= number)
        return time_in_ms(next(times, None)) if number >= 0 else None
