"""JSON lines: one message a line in any provider's form, or ``{"message", "extra", "at"}`` as ``show --json`` prints it.

The file is one session. Its id is that of its beginning, through the first message that is no prompt of the system: many
sessions share a prompt. A file that grew is the same session, a copy of it too. While it has no such message it is known by its
first line, as all were by an earlier version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from transcript_store.formats._blocks import objects, text_in
from transcript_store.formats._lines import Line, Lines
from transcript_store.formats._original import pack
from transcript_store.formats._plan import Entry, Head, Plan, Source

_WRAPPED = frozenset({"message", "extra", "at", "seq", "generation"})
_ROLES = ("user", "assistant", "system", "developer", "tool", "model", "function")
_PROMPTS = ("system", "developer")


class JsonLines:
    """Reads messages that stand one on a line."""

    name = "jsonl"

    def recognizes(self, head: Head) -> bool:
        if not head.objects:
            return False
        first = head.objects[0]
        return _message(first) is not None or ({"message", "extra", "seq"} <= first.keys() <= _WRAPPED)

    def plans(self, source: Source) -> Iterable[Plan]:
        lines = Lines(source)
        first, beginning, is_begun, provider = b"", hashlib.sha256(), False, None
        for line in lines:
            message = None if line.value is None else _message(line.value)
            first = first or line.raw
            if not is_begun:
                beginning.update(_whole(line.raw))
                is_begun = message is not None and message.get("role") not in _PROMPTS
            if provider is None and message is not None:
                provider = _provider(message)
        if not lines.count:
            return
        beginning = beginning if is_begun else hashlib.sha256(_whole(first))
        yield Plan(
            format=self.name,
            session=beginning.hexdigest(),
            former_session=hashlib.sha256(first).hexdigest(),
            lines=lines.count,
            generations=(partial(_entries, source),),
            provider=provider,
            findings=tuple(lines.findings),
            tail=lines.tail,
        )


def _whole(raw: bytes) -> bytes:
    """With its line end, which the last line may get when the next one is written."""
    return raw if not raw or raw.endswith(b"\n") else raw + b"\n"


def _entries(source: Source) -> Iterator[Entry]:
    for line in Lines(source):
        if line.raw:
            yield _entry(line)


def _entry(line: Line) -> Entry:
    message = None if line.value is None else _message(line.value)
    extra: dict[str, Any] = {}
    at = None
    if message is not None and line.value is not message and line.value is not None:
        if isinstance(line.value.get("extra"), dict):
            extra.update(line.value["extra"])
        at = line.value["at"] if isinstance(line.value.get("at"), str) else None
    extra["source"] = {"lines": [pack(line.number, line.raw, line.value, message, part=line.part)]}
    return Entry(message, extra, at, (line.number,))


def _message(value: dict[str, Any]) -> dict[str, Any] | None:
    if isinstance(value.get("message"), dict) and value.keys() <= _WRAPPED:
        value = value["message"]
    kind = value.get("type")
    item = isinstance(kind, str) and ("call_id" in value or "content" in value or kind == "reasoning")
    return value if item or value.get("role") in _ROLES else None


def _provider(message: dict[str, Any]) -> str | None:
    """Whose form it is, where one message can tell; None where any could be meant."""
    if "parts" in message:
        return "gemini"
    if message.get("role") in ("system", "developer", "tool") or "tool_calls" in message or "call_id" in message:
        return "openai"
    content = message.get("content")
    kinds = {text_in(block, "type") for block in objects(content)}
    if kinds & {"tool_use", "tool_result", "thinking", "redacted_thinking"}:
        return "claude"
    return "openai" if kinds & {"input_text", "output_text", "image_url"} else None
