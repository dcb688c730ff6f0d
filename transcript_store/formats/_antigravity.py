"""Antigravity: ``brain/<id>/.system_generated/logs/transcript.jsonl``, a step per line: ``{"step_index", "source", "type",
"created_at"}``.

* ``USER_INPUT``: the user's text is in ``<USER_REQUEST>``, the program's additions follow.
* ``PLANNER_RESPONSE``: a reply, with ``thinking`` and ``tool_calls``, which have no ids.
* any other step of the source ``MODEL`` (``RUN_COMMAND``, ``VIEW_FILE``): the result of the next open call, if there is one.
* ``CHECKPOINT``: a compaction, with the new context: a new generation.

No line has the id of the session: its first lines identify it. The databases beside it have the same content, and are not read.

Source: files in the tests of jazzyalex/agent-sessions and of others. It was not run.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Iterable

from transcript_store.formats._blocks import Block, Call, Result, Text
from transcript_store.formats._dialogue import Dialogue, thinking
from transcript_store.formats._document import parse_object
from transcript_store.formats._lines import SourceLine, SourceLines
from transcript_store.formats._members import Json, counts_of, first_text, obj, objects, text_in
from transcript_store.formats._neutral import arguments_of
from transcript_store.formats._plan import SessionPlan, Source, SourceHead
from transcript_store.formats._replay import Restart, Steps, facts_of, replayed
from transcript_store.formats._scaffolding import Scaffolding, marked, marked_summary

_MODEL = re.compile(r"setting `?Model Selection`? from .{0,200}? to ([^.`<\n]*(?:\.\d[^.`<\n]*)*)")
_ADDED = Scaffolding(frozenset({"ADDITIONAL_METADATA", "USER_SETTINGS_CHANGE", "SYSTEM_MESSAGE", "EPHEMERAL_MESSAGE"}))
_USAGE = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
_USAGE |= {"prompt_token_count": "prompt_tokens", "candidates_token_count": "completion_tokens"}


class Antigravity:
    """Reads the readable transcript of a conversation of Antigravity."""

    name = "antigravity"

    def recognizes(self, head: SourceHead) -> bool:
        return any(map(_is_step, head.objects))

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        lines, session = SourceLines(source), _Steps()
        said = replayed(source, session.walk(lines), lambda: _Steps().walk(SourceLines(source)))
        if lines.count:
            facts, dialogue = facts_of(session=session.beginning.hexdigest(), model=session.model), session.dialogue
            yield facts.plan(self.name, lines, said, dialogue.provider, dialogue.losses)


def _is_step(value: Json) -> bool:
    kinds = ("USER_INPUT", "PLANNER_RESPONSE", "CONVERSATION_HISTORY")
    return "step_index" in value and "created_at" in value and value.get("type") in kinds


class _Steps:
    """The state of a conversation while its steps are read."""

    def __init__(self) -> None:
        self.dialogue = Dialogue()
        self.beginning = hashlib.sha256()
        self.model: str | None = None
        self._is_begun = False
        self._waiting: deque[Call] = deque()
        """Calls of the last reply that have no result yet."""

    def walk(self, lines: Iterable[SourceLine]) -> Steps:
        for line in lines:
            value = line.value or {}
            if not self._is_begun:
                self.beginning.update(line.raw.strip())
                self._is_begun = value.get("type") in ("USER_INPUT", "PLANNER_RESPONSE")
            if line.raw:
                yield from self._step(line, value, first_text(value.get("created_at")))
        yield from self.dialogue.take()

    def _step(self, line: SourceLine, value: Json, at: str | None) -> Steps:
        kind, said = value.get("type"), _said(value.get("content"))
        if kind == "USER_INPUT":
            yield from self.dialogue.take()
            self._waiting.clear()
            request, closed, _ = said.partition("<USER_REQUEST>")[2].partition("</USER_REQUEST>")
            if (chosen := _MODEL.search(said)) is not None:
                self.model = chosen[1].strip()
            typed = request.strip() if closed else _ADDED.typed_of([said])
            self.dialogue.user([Text(said)], line, at, marked(typed, is_said=True))
        elif kind == "PLANNER_RESPONSE":
            self._reply(line, value, said, at)
        elif kind == "CHECKPOINT" and said:
            yield from self.dialogue.take()
            yield Restart()
            self.dialogue.user([Text(said)], line, at, marked_summary())
        elif kind == "SYSTEM_MESSAGE" and said:
            self.dialogue.user([Text(said)], line, at, marked("", is_said=True))
        elif value.get("source") == "MODEL" and self._waiting:
            call = self._waiting.popleft()
            failed = value.get("status") in ("ERROR", "FAILED", "CANCELED")
            self.dialogue.result(Result(call.id, call.name, (Text(said),), failed=failed), line, at)
        else:
            self.dialogue.event(line, at=at)

    def _reply(self, line: SourceLine, value: Json, said: str, at: str | None) -> None:
        blocks: list[Block] = [thinking(thought)] if (thought := text_in(value, "thinking")) else []
        blocks.append(Text(said))
        self._waiting.clear()
        for number, call in enumerate(objects(value.get("tool_calls"))):
            given = arguments_of(call.get("args", call.get("arguments")))
            arguments = {name: _plain(one) for name, one in given.items()}
            self._waiting.append(Call(f"step_{line.number}_{number}", text_in(call, "name"), arguments))
        blocks += self._waiting
        counts = counts_of({**value, **obj(value.get("usage"))}, _USAGE)
        self.model = first_text(value.get("model")) or self.model
        about = {"model": self.model, "usage": {name: count for name, count in counts.items() if count}}
        self.dialogue.reply(blocks, line, at, about, key=f"{line.number} {line.part}")


def _said(content: object) -> str:
    return content if isinstance(content, str) else text_in(obj(content), "text", "response", "message", "content")


def _plain(value: object) -> object:
    """An argument: the program writes each as JSON text."""
    found = parse_object(b'{"":%s}' % value.encode(errors="surrogatepass")) if isinstance(value, str) else None
    return found[""] if found is not None and len(found) == 1 else value
