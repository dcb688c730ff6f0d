"""Grok Build's ``chat_history.jsonl``: the messages of the context, one per line. A session with ``updates.jsonl`` is read from
that.

* ``system``: the prompt. ``user``: the user's message; with ``synthetic_reason`` the program's. ``tool_result``: a call's result.
* ``assistant``: text and ``tool_calls``. The ``reasoning`` before it is its thinking; its encrypted part is kept, and not sent.
* ``backend_tool_call``: a search by xAI itself.

No line has a time. ``summary.json`` beside it has the id, the folder, the title, and the session's start and last change.

Source: files in the tests of jazzyalex/agent-sessions; the files that version 1.0.41 wrote.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from transcript_store.formats._acp import facts_in_summary
from transcript_store.formats._blocks import Block, Call, Result, Text
from transcript_store.formats._dialogue import Dialogue, thinking
from transcript_store.formats._lines import SourceLine, SourceLines
from transcript_store.formats._members import Json, first_text, obj, objects, text_in
from transcript_store.formats._neutral import arguments_of, media_at
from transcript_store.formats._plan import PlannedRecord, SessionPlan, Source, SourceHead
from transcript_store.formats._replay import SessionFacts
from transcript_store.formats._rows import object_beside
from transcript_store.formats._scaffolding import marked

_OWN = ("model_fingerprint", "model_id", "synthetic_reason", "prompt_index")


class GrokHistory:
    """Reads the chat history of a session of Grok Build."""

    name = "grok"

    def recognizes(self, head: SourceHead) -> bool:
        kinds = ("user", "assistant", "system", "reasoning", "tool_result")
        has_kinds = bool(head.objects) and all(value.get("type") in kinds or "kind" in value for value in head.objects)
        return has_kinds and any(name in value for value in head.objects for name in _OWN)

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        about = object_beside(source, "summary.json")
        lines, history = SourceLines(source), _History(about)
        entries = list(history.entries(lines))
        if not lines.count:
            return
        known = first_text(obj(about.get("info")).get("id"))
        begun = history.beginning.hexdigest() if history.is_begun or not history.former else history.former
        facts, dialogue = history.facts, history.dialogue
        facts.first(session=known or begun, **facts_in_summary(about))
        former = None if known else history.former or None
        yield facts.plan(self.name, lines, entries.copy, dialogue.provider, dialogue.losses, former_session=former)


class _History:
    """The state of a session while its messages are read."""

    def __init__(self, about: Json) -> None:
        self.dialogue = Dialogue()
        self.beginning = hashlib.sha256()
        self.facts = SessionFacts()
        self._at = first_text(about.get("created_at"))
        self.former = ""
        """The hash of its lines through the first message. It is the id while the user has said nothing."""
        self.is_begun = False
        self._thoughts: list[tuple[Block, SourceLine]] = []
        """Reasoning whose reply has not followed."""

    def entries(self, lines: Iterable[SourceLine]) -> Iterator[PlannedRecord]:
        for line in lines:
            value = line.value or {}
            kind = value.get("type")
            if not self.is_begun:  # many sessions share the prompt, and the program's text about its surroundings
                self.beginning.update(line.raw.strip())
                self.is_begun = kind == "assistant" or (kind == "user" and "synthetic_reason" not in value)
                if not self.former and (kind != "system" or self.is_begun):
                    self.former = self.beginning.hexdigest()
            if line.raw:
                self._message(line, value, text_in(value, "content"), self._at)
                self._at = None
        self._thought()
        yield from (draft.entry() for draft in self.dialogue.take())

    def _message(self, line: SourceLine, value: Json, said: str, at: str | None) -> None:
        kind = value.get("type")
        if kind == "reasoning":
            shown = [text_in(one, "text") for one in (*objects(value.get("summary")), *objects(value.get("content")))]
            self._thoughts.append((thinking("\n".join(filter(None, shown))), line))
            return
        if kind == "assistant":
            self.facts.last(model=value.get("model_id"))
            given = ((text_in(one, "id"), text_in(one, "name"), one) for one in objects(value.get("tool_calls")))
            calls = [Call(number, name, arguments_of(one.get("arguments"))) for number, name, one in given]
            extra = {"model": first_text(value.get("model_id"))}
            thoughts, self._thoughts = self._thoughts, []
            blocks = [*(block for block, _ in thoughts if getattr(block, "text", "")), Text(said), *calls]
            draft = self.dialogue.reply(blocks, None, at, extra, key=f"{line.number} {line.part}")
            draft.lines += [*(one for _, one in thoughts), line]
            return
        self._thought()
        if kind == "user":
            is_own = "synthetic_reason" in value
            self.dialogue.user(_blocks(value.get("content")), line, at, marked("") if is_own else {})
        elif kind == "tool_result":
            failed = value.get("is_error") is True
            self.dialogue.result(Result(text_in(value, "tool_call_id"), "", (Text(said),), failed=failed), line, at)
        else:
            self.facts.first(system_prompt=said if kind == "system" else None)
            self.dialogue.event(line, at=at)

    def _thought(self) -> None:
        """Reasoning that no reply followed."""
        for block, line in self._thoughts:
            self.dialogue.reply([block] if getattr(block, "text", "") else [], line, key=f"{line.number} {line.part}")
        self._thoughts = []


def _blocks(content: object) -> list[Block]:
    found: list[Block] = [Text(content)] if isinstance(content, str) else []
    for one in objects(content):
        if one.get("type") == "image" and text_in(one, "url"):
            found.append(media_at(one["url"]))
        elif said := text_in(one, "text"):
            found.append(Text(said))
    return found
