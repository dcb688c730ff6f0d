"""OpenHands: ``conversations/<id>/events/event-NNNNN-<uuid>.json``, an event per file, which ``sources`` returns as lines.

* ``MessageEvent``: a message of the user or the agent. ``extended_content`` is the program's addition to a prompt.
* ``ActionEvent``: a call. Those of one reply have its ``llm_response_id``, and only the first has the thought.
* ``ObservationEvent``, ``AgentErrorEvent``, ``UserRejectObservation``: the result of the call ``tool_call_id``, in the order of
  completion.
* ``Condensation``: the ids of forgotten events, and a summary of them: a new generation.

The final answer is only in the call ``finish`` and its result. ``base_state.json`` beside the events has the id, the folder, the
current model, and the tokens of each reply.

Source: openhands-sdk 1.21.0, in files of the CLI 1.16.0; condensations from its source alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from transcript_store.formats._blocks import Block, Call, Media, Result, Text
from transcript_store.formats._dialogue import Dialogue, thinking
from transcript_store.formats._lines import SourceLine, SourceLines
from transcript_store.formats._members import Json, count_member, counts_of, first_text, obj, objects, text_in
from transcript_store.formats._neutral import arguments_of, media_at
from transcript_store.formats._plan import SessionPlan, Source, SourceHead
from transcript_store.formats._replay import Draft, Restart, Steps, facts_of, replayed
from transcript_store.formats._rows import object_beside
from transcript_store.formats._scaffolding import marked, marked_summary

_KINDS = frozenset({"SystemPromptEvent", "MessageEvent", "ActionEvent", "ObservationEvent", "AgentErrorEvent"})
_ANSWERS = ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation")


class OpenHands:
    """Reads the events of an OpenHands conversation."""

    name = "openhands"

    def recognizes(self, head: SourceHead) -> bool:
        return any(
            text_in(value, "kind") in _KINDS and "timestamp" in value and "source" in value for value in head.objects
        )

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        state = object_beside(source, "base_state.json")
        lines, session = SourceLines(source), _Events(state)
        said = replayed(source, session.walk(lines), lambda: _Events(state).walk(SourceLines(source)))
        if not lines.count:
            return
        facts = facts_of(
            session=first_text(state.get("id")) or session.first,
            model=obj(obj(state.get("agent")).get("llm")).get("model"),
            system_prompt=session.prompt,
            cwd=obj(state.get("workspace")).get("working_dir"),
            part_of=object_beside(source, "../../base_state.json").get("id"),
        )
        yield facts.plan(self.name, lines, said, session.dialogue.provider, session.dialogue.losses)


class _Events:
    """The state of a conversation while its events are read."""

    def __init__(self, state: Json) -> None:
        metrics = obj(obj(obj(state.get("stats")).get("usage_to_metrics")).get("agent"))
        self._usage = {text_in(one, "response_id"): _counts(one) for one in objects(metrics.get("token_usages"))}
        self.dialogue = Dialogue()
        self.first = ""
        self.prompt = ""
        self._context: list[Draft] = []

    def walk(self, lines: Iterable[SourceLine]) -> Steps:
        for line in lines:
            self.first = self.first or text_in(line.value or {}, "id") or f"line {line.number}"
            if line.raw:
                yield from self._event(line, line.value or {})
        yield from self.dialogue.take(self._context)

    def _event(self, line: SourceLine, value: Json) -> Steps:
        at, kind = first_text(value.get("timestamp")), value.get("kind")
        if kind == "MessageEvent":
            message = obj(value.get("llm_message"))
            if value.get("source") == "agent":
                self._reply(line, value, [*_thoughts(message), *_blocks(message.get("content"))], at)
                return
            yield from self.dialogue.take(self._context)
            blocks, added = _blocks(message.get("content")), _blocks(value.get("extended_content"))
            typed = "\n\n".join(block.text for block in blocks if isinstance(block, Text)) if added else None
            self.dialogue.user([*blocks, *added], line, at, marked(typed, is_said=True))
        elif kind == "ActionEvent":
            given = obj(value.get("tool_call"))
            name = text_in(value, "tool_name") or text_in(given, "name")
            call = Call(_id(value), name, arguments_of(given.get("arguments")))
            self._reply(line, value, [*_thoughts(value), *_blocks(value.get("thought")), call], at)
        elif kind in _ANSWERS and _id(value):
            self.dialogue.result(_result(value), line, at)
        elif kind == "Condensation" and isinstance(value.get("forgotten_event_ids"), list):
            yield from self._condense(line, value, at)
        else:
            if kind == "SystemPromptEvent":
                self.prompt = text_in(obj(value.get("system_prompt")), "text") or self.prompt
            self.dialogue.event(line, at=at)

    def _reply(self, line: SourceLine, value: Json, blocks: list[Block], at: str | None) -> None:
        response = first_text(value.get("llm_response_id"))
        about = {"response_id": response, "usage": self._usage.get(response or "")}
        self.dialogue.reply(blocks, line, at, about, key=response)

    def _condense(self, line: SourceLine, value: Json, at: str | None) -> Steps:
        yield from self.dialogue.take(self._context)
        forgotten = {one for one in value["forgotten_event_ids"] if isinstance(one, str)}
        stays = [_ids(draft).isdisjoint(forgotten) for draft in self._context]
        first = next((place for place, one in enumerate(stays) if not one), len(stays))
        before = [draft for draft, stay in zip(self._context[:first], stays, strict=False) if stay]
        after = [draft for draft, stay in zip(self._context[first:], stays[first:], strict=True) if stay]
        yield Restart(carried=lambda: [draft.carried() for draft in before])
        self._context = before
        summary = first_text(value.get("summary"))
        self.dialogue.user([Text(summary)] if summary else [], line, at, marked_summary())
        yield from self.dialogue.take(self._context)
        yield from (Draft(draft.message, draft.extra, draft.at) for draft in after)
        self._context += after


def _ids(draft: Draft) -> set[str]:
    return {text_in(line.value or {}, "id") for line in draft.lines}


def _id(value: Json) -> str:
    return text_in(value, "tool_call_id") or text_in(obj(value.get("tool_call")), "id")


def _thoughts(value: Json) -> Iterator[Block]:
    said = text_in(value, "reasoning_content") or "\n".join(
        text_in(one, "thinking") for one in objects(value.get("thinking_blocks")) if one.get("thinking")
    )
    if said:
        yield thinking(said)


def _blocks(content: Any) -> list[Block]:
    found: list[Block] = []
    for one in [{"type": "text", "text": content}] if isinstance(content, str) else objects(content):
        if text_in(one, "text"):
            found.append(Text(one["text"]))
        urls = one.get("image_urls")
        urls = urls if isinstance(urls, list) else ()
        found += [media_at(url) for url in urls if isinstance(url, str)]
    return found


def _result(value: Json) -> Result:
    observation = obj(value.get("observation"))
    said = _blocks(observation.get("content")) or [Text(text_in(value, "error", "rejection_reason"))]
    failed = value.get("kind") != "ObservationEvent" or observation.get("is_error") is True
    content = tuple(block for block in said if isinstance(block, (Text, Media)))
    return Result(_id(value), text_in(value, "tool_name"), content, failed=failed)


def _counts(usage: Json) -> Json:
    counts = counts_of(usage, {"prompt_tokens": "prompt_tokens", "completion_tokens": "completion_tokens"})
    cached = count_member(usage.get("cache_read_tokens"))
    return {**counts, **({"prompt_tokens_details": {"cached_tokens": cached}} if cached else {})}
