"""Mistral Vibe 3: the entries of the projection and of the checkpoint as messages. See ``_vibe_unified``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from transcript_store.formats._blocks import Block, Call, Result, Text
from transcript_store.formats._dialogue import Dialogue, thinking
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import Json, obj, objects, text_in, text_member
from transcript_store.formats._neutral import arguments_of
from transcript_store.formats._replay import Draft
from transcript_store.formats._times import time_in_ms
from transcript_store.messages import as_text


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
            said, first, seen.at, {"stop_reason": text_member(obj(value.get("outcome")).get("cause"))}
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
