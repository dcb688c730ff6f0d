"""Logs of the Agent Client Protocol: ``session/update`` notifications, one per line, as in Grok Build's ``updates.jsonl``.

A line is ``{"method", "params": {"sessionId", "update": {"sessionUpdate", …}}}``, or its ``params`` alone; Grok adds ``timestamp``.
Messages come in chunks. ``tool_call`` starts a call, and ``tool_call_update`` has its changed members: the call has ended if its
status is ``completed`` or ``failed``. A recorded ``session/prompt`` is the user's message.

Grok's own updates: ``turn_completed`` has the tokens of a turn; ``rewind_marker`` takes back everything from a prompt on, by its
number. ``summary.json`` beside it has the title, the folder, the model and the parent. The context after a compaction is in other
files.

Source: schema 1 of the protocol; xai-org/grok-build, ``session/storage/mod.rs``. It was not run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from transcript_store.formats._blocks import Block, Call, Media, Result, Text
from transcript_store.formats._dialogue import Dialogue, merged_texts, thinking
from transcript_store.formats._lines import SourceLine, SourceLines
from transcript_store.formats._members import Json, count_member, counts_of, first_text, obj, objects, present, text_in
from transcript_store.formats._neutral import arguments_of
from transcript_store.formats._plan import SessionPlan, Source, SourceHead
from transcript_store.formats._replay import Allowance, Draft, Restart, SessionFacts, Steps, replayed
from transcript_store.formats._rows import object_beside
from transcript_store.formats._scaffolding import CLAUDE_CODE, marked
from transcript_store.formats._times import time_in_ms, time_member
from transcript_store.messages import as_text

# ---- acp blocks ----
#
# The blocks of the Agent Client Protocol, which are those of MCP, and what a call answered.


def blocks_of(content: object) -> list[Block]:
    """The blocks of ACP, which are those of MCP."""
    found: list[Block] = []
    for one in objects(content):
        kind = one.get("type")
        resource = obj(one.get("resource"))
        if kind == "text":
            found.append(Text(text_in(one, "text")))
        elif kind in ("image", "audio"):
            held = first_text(one.get("data")), first_text(one.get("uri"))
            found.append(Media(text_in(one, "mimeType") or f"{kind}/*", *held))
        elif kind == "resource":
            found.append(Text(text_in(resource, "text") or f"[{text_in(resource, 'uri')}]"))
        elif kind == "resource_link":
            found.append(Text(f"[{first_text(one.get('uri'), one.get('name')) or 'resource'}]"))
    return found


def answer_of(call: Json) -> Iterator[Text | Media]:
    """The result of a call: its content, else its raw output."""
    found = False
    for one in objects(call.get("content")):
        inner = blocks_of([one.get("content")]) if one.get("type") == "content" else blocks_of([one])
        if one.get("type") == "diff":
            inner = [Text(as_text({name: one.get(name) for name in ("path", "oldText", "newText")}))]
        for block in inner:
            if isinstance(block, (Text, Media)):
                found = True
                yield block
    if not found and call.get("rawOutput") is not None:
        yield Text(as_text(call["rawOutput"]))


# ---- acp ----

_ENDED = ("completed", "failed")
_USAGE = {"inputTokens": "prompt_tokens", "outputTokens": "completion_tokens", "totalTokens": "total_tokens"}
_USAGE |= {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens", "total_tokens": "total_tokens"}


class AcpUpdates:
    """Reads logs of ACP's session updates."""

    name = "acp"
    revision = 2

    def recognizes(self, head: SourceHead) -> bool:
        return any(_update(value) for value in head.objects)

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        lines, session = SourceLines(source), _Updates(source)
        said = replayed(source, session.walk(lines), lambda: _Updates(source).walk(SourceLines(source)))
        if not lines.count:
            return
        about, facts, dialogue = object_beside(source, "summary.json"), session.facts, session.dialogue
        facts.last(title=about.get("generated_title"))
        facts.first(session=session.first, **facts_in_summary(about))
        yield facts.plan(self.name, lines, said, dialogue.provider, dialogue.losses)


def facts_in_summary(about: Json) -> Json:
    """The facts that Grok Build keeps beside a session, in ``summary.json``."""
    return {
        "title": first_text(about.get("generated_title"), about.get("session_summary")),
        "model": about.get("current_model_id"),
        "cwd": obj(about.get("info")).get("cwd"),
        "git_branch": about.get("head_branch"),
        "part_of" if about.get("session_kind") == "subagent" else "forked_from": about.get("parent_session_id"),
    }


def _update(value: Json) -> Json:
    """The update that a line carries; empty if it carries none."""
    params = obj(value.get("params")) if "params" in value else value
    if value.get("method") == "session/prompt":
        return {"sessionUpdate": "user_prompt", "prompt": params.get("prompt")}
    update = obj(params.get("update"))
    return update if isinstance(update.get("sessionUpdate"), str) and isinstance(params.get("sessionId"), str) else {}


class _Updates:
    """The state of a session while its updates are read."""

    def __init__(self, source: Source) -> None:
        self._allowance, self._is_allowed = Allowance(source), True
        self.dialogue = Dialogue()
        self.facts = SessionFacts()
        self.first = ""
        self._context: list[Draft] = []
        self._prompts: list[int] = []
        """The index in the context of each prompt that counts."""
        self._has_numbers = False
        """True if a prompt had its number: from then on those without one are no prompts of the user."""
        self._asked: list[Block] = []
        self._asked_lines: list[SourceLine] = []
        self._asked_at, self._counts = "", False
        self._calls: dict[str, tuple[Call, Json]] = {}
        self._reply: Draft | None = None

    def walk(self, lines: Iterable[SourceLine]) -> Steps:
        for line in lines:
            self.first = self.first or hashlib.sha256(line.raw).hexdigest()
            if line.raw:
                value = line.value or {}
                self.facts.first(session=first_text(obj(value.get("params")).get("sessionId"), value.get("sessionId")))
                yield from self._line(line, _update(value), _at(value))
        yield from self._asked_out()
        yield from self.dialogue.take(self._context)

    def _line(self, line: SourceLine, update: Json, at: str | None) -> Steps:
        kind = update.get("sessionUpdate")
        if kind in ("user_message_chunk", "user_prompt"):
            number = obj(update.get("_meta")).get("promptIndex")
            self.facts.last(model=obj(update.get("_meta")).get("modelId"))
            is_new = kind == "user_prompt" or (self._asked and number is not None)
            if not self._asked_lines or is_new:
                yield from self._asked_out()
                yield from self.dialogue.take(self._context)
                self._has_numbers = self._has_numbers or number is not None
                self._counts, self._asked_at = number is not None or not self._has_numbers, at or ""
            self._asked += blocks_of(update.get("prompt", [update.get("content")]))
            self._asked_lines.append(line)
            return
        yield from self._asked_out()
        if kind == "agent_message_chunk":
            self._reply = self.dialogue.reply(blocks_of([update.get("content")]), line, at, {"model": self.facts.model})
        elif kind == "agent_thought_chunk":
            said = text_in(obj(update.get("content")), "text")
            self._reply = self.dialogue.reply([thinking(said)] if said else [], line, at, {"model": self.facts.model})
        elif kind in ("tool_call", "tool_call_update") and first_text(update.get("toolCallId")):
            self._tool(line, update, at)
        elif kind == "rewind_marker" and count_member(update.get("target_prompt_index")) is not None:
            yield from self._rewind(line, update["target_prompt_index"], at)
        else:
            self._learn(str(kind), update)
            self.dialogue.event(line, at=at)

    def _asked_out(self) -> Iterator[Draft]:
        """Yield the user's message, whose chunks have ended."""
        if self._asked_lines:
            if self._counts:
                self._prompts.append(len(self._context))
            blocks, lines = self._asked, self._asked_lines
            self._asked, self._asked_lines = [], []
            blocks = merged_texts(blocks)
            mark = marked(CLAUDE_CODE.typed_of(block.text for block in blocks if isinstance(block, Text)))
            self.dialogue.user(blocks, None, self._asked_at or None, mark).lines += lines
            yield from self.dialogue.take(self._context)

    def _tool(self, line: SourceLine, update: Json, at: str | None) -> None:
        number = update["toolCallId"]
        is_new = number not in self._calls
        call, known = self._calls.setdefault(number, (Call(number, "", {}), {}))
        given = known.get("rawInput")
        known.update({name: value for name, value in update.items() if value is not None})
        if given and "variant" in obj(update.get("rawInput")):  # Grok's own reading of what the model gave
            known["rawInput"] = given
        if is_new:
            self._reply = self.dialogue.reply([call], line, at, {"model": self.facts.model})
        # Until the reply is taken the call may still be changed: an update has what was not known at its beginning.
        call.name = call.name or first_text(known.get("title"), known.get("kind")) or ""
        call.arguments = arguments_of(known["rawInput"]) if known.get("rawInput") is not None else call.arguments
        if update.get("status") in _ENDED:
            shown = tuple(answer_of(known))
            result = Result(number, call.name, shown, failed=update["status"] == "failed")
            self.dialogue.result(result, None if is_new else line, at)
        elif not is_new:
            self.dialogue.event(line, at=at)

    def _learn(self, kind: str, update: Json) -> None:
        if kind in ("session_info_update", "session_summary_generated"):
            self.facts.last(title=first_text(update.get("title"), update.get("session_summary")))
        elif kind in ("model_changed", "response_started"):
            self.facts.last(model=first_text(update.get("model_id"), update.get("model")))
        elif kind == "turn_completed" and self._reply is not None:
            used = obj(update.get("usage"))
            counts: Json = {name: count for name, count in counts_of(used, _USAGE).items() if count}
            if cached := count_member(used.get("cachedReadTokens")):
                counts["prompt_tokens_details"] = {"cached_tokens": cached}
            self._reply.extra |= present(usage=counts, stop_reason=first_text(update.get("stop_reason")))

    def _rewind(self, line: SourceLine, target: int, at: str | None) -> Steps:
        yield from self.dialogue.take(self._context)
        place = self._prompts[target] if target < len(self._prompts) else len(self._context)
        kept, taken = self._context[:place], len(self._context) - place
        self._is_allowed = self._is_allowed and self._allowance.takes(len(str(one.message)) for one in kept)
        if taken and self._is_allowed:
            yield Restart(carried=lambda: [draft.carried() for draft in kept], taken_back=taken)
            self._context, self._prompts = kept, self._prompts[:target]
        self.dialogue.event(line, at=at)


def _at(value: Json) -> str | None:
    meta = obj(obj(value.get("params")).get("_meta"))
    if (exact := count_member(meta.get("agentTimestampMs"))) is not None:
        return time_in_ms(exact)
    return time_member(value.get("timestamp"))
