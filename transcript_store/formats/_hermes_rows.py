"""Hermes' messages: those of chat completions, from a row or from JSON, and the facts beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from transcript_store.formats._document import parse_object
from transcript_store.formats._document_lines import objects_on
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import Json, count_member, first_text, obj, objects, present, text_member
from transcript_store.formats._scaffolding import Scaffolding, marked, texts_in
from transcript_store.messages import as_text

_COMPACTED = "[CONTEXT COMPACTION"
_SCAFFOLDING = Scaffolding(
    openings=(_COMPACTED, "[System:", "[IMPORTANT:", "[Note:"), headings=(("[The user attached an image.", "]\n\n"),)
)
_AT_ONCE_SECONDS = 1e-4
"""Rows that a compaction inserts are a microsecond apart; those of a turn are milliseconds apart."""


@dataclass(slots=True)
class HermesRow:
    """A message, as a row or a JSON document has it."""

    line: SourceLine | None
    value: Json
    active: Any
    compacted: Any

    @property
    def is_taken_back(self) -> bool:
        return bool(self.active == 0 and self.compacted == 0)


def beginnings_of(rows: list[HermesRow]) -> set[int]:
    """Where each context after a compaction starts: at the rows around its summary, which have one time, or after rows that were
    compacted without a summary. Rows that were inserted again count as compacted, whatever their marks.
    """
    found = set()
    times = [time if isinstance(time := row.value.get("timestamp"), (int, float)) else 0 for row in rows]
    for at, row in enumerate(rows):
        if compacts(row.value):
            while at > 0 and 0 <= times[at] - times[at - 1] < _AT_ONCE_SECONDS:
                at -= 1  # noqa: PLW2901
            found.add(at)
    cuts = [0, *sorted(found - {0}), len(rows)]
    for begin, middle, end in zip(cuts, cuts[1:], cuts[2:], strict=False):
        again = {_said(row) for row in rows[middle:end]}
        for row in rows[begin:middle]:
            if row.is_taken_back and _said(row) in again:
                row.compacted = 1
    gone = [at for at in range(cuts[-2], len(rows)) if rows[at].compacted == 1 and rows[at].active == 0]
    return found | ({gone[-1] + 1} if gone else set())


def _said(row: HermesRow) -> tuple[str, ...]:
    return tuple(str(row.value.get(name)) for name in ("role", "content", "tool_call_id", "tool_calls"))


def message_of_row(row: Json) -> Json | None:
    role, content = row.get("role"), row.get("content")
    if isinstance(content, str) and content[1:].startswith("json:") and content[0] in "\x00\x01":
        content = objects_on(content[6:]) or content
    if role == "assistant":
        calls = [found for call in objects_on(row.get("tool_calls")) if (found := _call(call)) is not None]
        thoughts = first_text(row.get("reasoning_content"), row.get("reasoning"))
        if not (calls or thoughts or text_member(content) or objects(content)):
            return None
        reply: Json = {"role": "assistant", "content": content if isinstance(content, (str, list)) else None}
        return reply | present(reasoning_content=thoughts, tool_calls=calls or None)
    if not isinstance(content, (str, list)) or role not in ("user", "tool", "system"):
        return None
    answers = {"tool_call_id": text_member(row.get("tool_call_id")) or ""} if role == "tool" else {}
    return {"role": role, **answers, "content": content}


def _call(call: Json) -> Json | None:
    """A call as the API has it: the program adds the ids that other APIs give it."""
    function = obj(call.get("function"))
    if not text_member(function.get("name")):
        return None
    arguments = function.get("arguments")
    function = {"name": function["name"], "arguments": arguments if isinstance(arguments, str) else as_text(arguments)}
    return {"id": text_member(call.get("id")) or "", "type": "function", "function": function}


def compacts(row: Json) -> bool:
    """True if it is the summary of a compaction."""
    return row.get("role") == "user" and str(row.get("content")).startswith(_COMPACTED)


def about_row(value: Json, used: list[Json]) -> Iterator[tuple[str, Any]]:
    """What belongs to a message and is not sent. ``used`` are the rows of ``session_model_usage`` of its session."""
    match value.get("role"):
        case "assistant":
            yield "model", _model_at(value.get("timestamp"), used)
            yield "stop_reason", text_member(value.get("finish_reason"))
            tokens = count_member(value.get("token_count"))
            yield "usage", {"output_tokens": tokens} if tokens else None
        case "tool":
            yield "failed", value.get("finish_reason") == "error" or _says_failed(value.get("content"))
        case "user" if compacts(value):
            yield "compaction", True
            yield "scaffolding", {"typed": ""}
        case "user":
            message = obj(message_of_row(value))
            yield from marked(_SCAFFOLDING.typed_of(texts_in(message["content"]))).items()


def _says_failed(said: object) -> bool:
    """True if the text of a tool's answer reports a failure: no column does."""
    if not isinstance(said, str):
        return False
    answer = parse_object(said.encode(errors="replace")) if said.startswith("{") else None
    if answer is not None:
        return bool(answer.get("error")) or answer.get("success") is False
    return said.startswith(("Error", "Tool '"))


def _model_at(time: object, used: list[Json]) -> str | None:
    """The one model that was in use at a time; None if several were, or none is known."""
    if not isinstance(time, (int, float)):
        return None
    asked = (one for one in used if not one["task"] and isinstance(one["first_seen"], (int, float)))
    models = {one["model"] for one in asked if one["first_seen"] - 1 <= time <= last_seen(one) + 5}
    return text_member(models.pop()) if len(models) == 1 else None


def last_seen(used: Json) -> float:
    return float(used["last_seen"]) if isinstance(used["last_seen"], (int, float)) else 0.0


def object_on_text(said: object) -> Json:
    return parse_object(said.encode(errors="replace")) or {} if isinstance(said, str) else obj(said)
