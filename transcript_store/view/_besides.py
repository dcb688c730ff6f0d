"""What is known of a record besides what is said: who replied, what it took and cost, what a client noted, what an event is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transcript_store.conversation import Record
from transcript_store.messages import cost_in, role_of, tokens_in
from transcript_store.words import dollars


def about_of(record: Record) -> dict[str, Any]:
    """Who replied and what it took: as a client notes it, or as frameworks store it in the message; ``reply`` is the reply's id."""
    extra, message = record.extra or {}, record.message or {}
    if message.get("role") != "assistant" and message.get("kind") != "response":
        return extra
    said = {"model": message.get("model") or message.get("model_name"), "usage": message.get("usage")}
    reply = message.get("id")
    return {**said, "reply": reply if isinstance(reply, str) else None, **extra}


def tokens_told(extra: dict[str, Any]) -> str:
    """The tokens of a reply, and what it cost, as far as it is known."""
    usage = extra.get("usage")
    if not isinstance(usage, dict):
        return ""
    tokens, cost = tokens_in(usage), cost_in(usage)
    known = [f"{number:,} tokens {way}" for number, way in ((tokens.input, "in"), (tokens.output, "out")) if number]
    said = ", ".join(known).replace(" tokens out", " out") if tokens.input else ", ".join(known)
    return ", ".join(filter(None, [said, dollars(cost) if cost else ""]))


def notes_of(extra: dict[str, Any]) -> Iterator[str]:
    """What a client noted of a reply that a person should know."""
    incomplete = extra.get("incomplete")
    if isinstance(incomplete, dict) and isinstance(incomplete.get("reason"), str):
        yield f"Interrupted: {incomplete['reason']}"
    refused = extra.get("refused")
    if isinstance(refused, dict) and isinstance(refused.get("reason"), str):
        yield f"Refused: {refused['reason']}"
    lost = extra.get("interrupted")
    if isinstance(lost, list):
        yield f"Interrupted: nobody knows the outcome of {', '.join(map(str, lost))}"
    if extra.get("compaction") is True:
        yield "This stands for what was compacted."


def event_of(extra: dict[str, Any]) -> tuple[str, Any]:
    """What an event is called, and what it says: of an imported line the line."""
    source = extra.get("source")
    lines = source.get("lines") if isinstance(source, dict) else None
    first = lines[0] if isinstance(lines, list) and len(lines) == 1 else None
    if isinstance(first, dict):
        line = first.get("line", first.get("raw", first))
        return (role_of(line) if isinstance(line, dict) else "a line that is no message"), line
    return ", ".join(extra) or "event", extra
