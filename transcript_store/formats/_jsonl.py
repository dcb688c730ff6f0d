"""JSON lines: one message per line in any provider's form, or ``{"message", "extra", "at"}`` as ``show --json`` prints it.

The file is one session. Its id is the hash of its lines through the first message that is not a system prompt, because many
sessions share a prompt. So a file that grew, or a copy, is the same session. A file without such a message has the hash of its
first line, as in an earlier version.

Items of OpenAI's Responses become messages of chat completions, which can be sent; any other message stays as it is.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from transcript_store.formats._forms import is_item
from transcript_store.formats._gptme import is_gptme
from transcript_store.formats._lines import SourceLines
from transcript_store.formats._members import objects, text_in
from transcript_store.formats._plan import PlannedRecord, SessionPlan, Source, SourceHead
from transcript_store.formats._replay import Draft, facts_of
from transcript_store.formats._responses_items import Items
from transcript_store.formats._times import time_in_either
from transcript_store.formats._vibe import is_of_vibe
from transcript_store.messages import PROMPT_ROLES

_WRAPPED = frozenset({"message", "extra", "at", "seq", "generation"})
_ROLES = ("user", "assistant", "system", "developer", "tool", "model", "function")
_TIMES = ("timestamp", "created_at")
_MOST_PROMPTS = 20
"""Lines before the first message that is not a system prompt, in a file of an unknown format."""
_CALLS = frozenset({"tool_calls", "function_call", "refusal"})
_ITEM_MEMBERS = frozenset({"call_id", "content", "summary", "encrypted_content", "action", "output", "id"})
_SECONDS_FROM = 10**8
"""As seconds since 1970 this is 1973. A smaller number is no time."""


class JsonLines:
    """Reads messages, one per line."""

    name = "jsonl"
    revision = 2

    def recognizes(self, head: SourceHead) -> bool:
        if not head.objects:
            return False
        first = head.objects[0]
        return (_message(first) is not None and not is_of_vibe(first) and not is_gptme(first)) or (
            {"message", "extra", "seq"} <= first.keys() <= _WRAPPED
        )

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        lines = SourceLines(source)
        provider, has_items = None, False
        for line in lines:
            message = None if line.value is None else _message(line.value)
            if provider is None and message is not None:
                provider = _provider(message)
            has_items = has_items or (message is not None and is_item(message))
        if not lines.count:
            return
        items = Items()
        if has_items:
            deque(_entries(source, items), maxlen=0)  # the losses are known after reading
        session, former = jsonl_sessions(source)
        records = partial(_entries, source)
        yield facts_of(session=session).plan(self.name, lines, records, provider, items.losses, former_session=former)


def jsonl_sessions(source: Source, most_lines: int | None = None) -> tuple[str, str]:
    """The id of the session that a file of JSON lines is, and the one that an earlier version gave it. Reads the file's beginning."""
    first, beginning = b"", hashlib.sha256()
    for line in islice(SourceLines(source), most_lines):
        first = first or line.raw
        beginning.update(_whole(line.raw))
        message = None if line.value is None else _message(line.value)
        if message is not None and message.get("role") not in PROMPT_ROLES:
            break
    else:
        beginning = hashlib.sha256(_whole(first))
    return beginning.hexdigest(), hashlib.sha256(first).hexdigest()


def generic_sessions(source: Source) -> list[tuple[str, str]]:
    """The format and the ids of a file that may have been taken for JSON lines, because no reader of that time claimed it."""
    return [(JsonLines.name, session) for session in dict.fromkeys(jsonl_sessions(source, _MOST_PROMPTS))]


def _whole(raw: bytes) -> bytes:
    """With its line end, which the last line may get when the next one is written."""
    return raw if not raw or raw.endswith(b"\n") else raw + b"\n"


def _entries(source: Source, items: Items | None = None) -> Iterator[PlannedRecord]:
    items = items or Items()
    for line in SourceLines(source):
        if not line.raw:
            continue
        message = None if line.value is None else _message(line.value)
        if message is None:
            items.event(line)
        elif is_item(message):
            extra, at = _about(line.value or {}, message)
            items.item(message, line, at, extra)
        else:
            items.close()
            extra, at = _about(line.value or {}, message)
            items.drafts.append(Draft(message, extra, at, [line]))
        if not items.open:
            yield from (draft.entry() for draft in items.take())
    yield from (draft.entry() for draft in items.take())


def _about(value: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The extra of a message, and its time."""
    if value is message:
        return {}, next((at for name in _TIMES if (at := _time(value.get(name))) is not None), None)
    extra, at = value.get("extra"), value.get("at")
    return dict(extra) if isinstance(extra, dict) else {}, at if isinstance(at, str) else None


def _time(value: object) -> str | None:
    return None if isinstance(value, (int, float)) and value < _SECONDS_FROM else time_in_either(value)


def _message(value: dict[str, Any]) -> dict[str, Any] | None:
    """The message that an object is, or wraps: one of a known role with content that can be sent, or an item."""
    if isinstance(value.get("message"), dict) and value.keys() <= _WRAPPED:
        value = value["message"]
    if value.get("role") in _ROLES:
        return value if _can_be_sent(value) else None
    return value if "role" not in value and is_item(value) and _ITEM_MEMBERS & value.keys() else None


def _can_be_sent(message: dict[str, Any]) -> bool:
    if _CALLS & message.keys():
        return True
    content = message.get("content", message.get("parts"))
    return isinstance(content, (str, list))


def _provider(message: dict[str, Any]) -> str | None:
    """The provider of a message, if its form shows it; else None."""
    if is_item(message):
        return "openai"
    if "parts" in message:
        return "gemini"
    if message.get("role") in ("system", "developer", "tool") or "tool_calls" in message or "call_id" in message:
        return "openai"
    content = message.get("content")
    kinds = {text_in(block, "type") for block in objects(content)}
    if kinds & {"tool_use", "tool_result", "thinking", "redacted_thinking"}:
        return "claude"
    return "openai" if kinds & {"input_text", "output_text", "image_url"} else None
