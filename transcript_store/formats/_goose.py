"""Goose: the rows of ``sessions.db``, and its JSON lines before 1.10.

A message has a role and, as JSON, a list of contents: ``text``, ``image`` {data, mimeType}, ``thinking``, ``redactedThinking``,
``toolRequest`` {id, toolCall {status, value {name, arguments} | error}}, ``toolResponse`` {id, toolResult {status, value [contents]
| value {content, isError} | error}}, and contents for the person alone (``systemNotification``).

* A compaction hides the messages before it from the model (``metadata_json`` {agentVisible, userVisible}), and inserts a summary
  for the model alone; all rows get new ids. So neither is a part of a row's line.
* ``usage_ledger`` has the tokens and the model of each request, in the order of the replies.

Source: block/goose @5ab0e6df and tenequm/pond PR#197; the columns of schema 15 and 16. No file of the program itself was available.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from transcript_store.formats._blocks import Block, Call, Media, Result, Text, Thinking
from transcript_store.formats._dialogue import merged_texts
from transcript_store.formats._lines import SourceLine, SourceLines, objects_on
from transcript_store.formats._members import Json, first_text, obj, objects, text_in
from transcript_store.formats._neutral import Losses, NeutralMessage, arguments_of
from transcript_store.formats._neutral_lines import named_provider, said_drafts, usage_of, walked
from transcript_store.formats._plan import PlannedRecord, SessionPlan, SourceHead
from transcript_store.formats._replay import Draft, Restart, Steps, facts_of
from transcript_store.formats._rows import (
    as_texts,
    is_file_source,
    object_in,
    row_line,
    rows_of,
    sessions_in,
    spans_of,
    stamps_in,
)
from transcript_store.formats._scaffolding import Scaffolding, marked, marked_summary
from transcript_store.formats._times import time_member
from transcript_store.messages import as_text, provider_family

# ---- goose contents ----
#
# Goose's messages, and their contents as blocks.

_MILLISECONDS_FROM = 10**11


@dataclass(slots=True)
class GooseMessage:
    """A message, as a row or a line has it, or several rows that were written while it came."""

    lines: list[SourceLine]
    value: Json
    content: list[Json]
    is_sent: bool = True
    """True if the model still sees it."""
    seen: Json = field(default_factory=dict)
    usage: Json = field(default_factory=dict)
    """Its row of the ledger."""

    @property
    def is_summary(self) -> bool:
        return self.is_sent and self.seen.get("userVisible") is False

    @property
    def stamp(self) -> float | None:
        """When it was said, in seconds since 1970."""
        return goose_seconds(self.value.get("created_timestamp", self.value.get("created")))

    def turn(self, provider: str) -> NeutralMessage | None:
        """The message; None if it has nothing for a model."""
        role = self.value.get("role")
        blocks = [block for content in self.content for block in blocks_in_goose(content, provider)]
        if not blocks or role not in ("user", "assistant"):
            return None
        is_reply = role == "assistant"
        return NeutralMessage("assistant" if is_reply else "user", tuple(merged_texts(blocks) if is_reply else blocks))


def goose_seconds(value: object) -> float | None:
    """Seconds since 1970; some rows have milliseconds."""
    if not isinstance(value, (int, float)):
        return None
    return value / 1000 if value >= _MILLISECONDS_FROM else value


def whole_messages(rows: Iterable[GooseMessage]) -> list[GooseMessage]:
    """The rows, with those of one message that follow one another as one."""
    found: list[GooseMessage] = []
    for row in rows:
        last = found[-1] if found else None
        number = first_text(row.value.get("message_id"))
        same = last is not None and number is not None and last.value.get("message_id") == number
        if last is not None and same and (last.value.get("role"), last.seen) == (row.value.get("role"), row.seen):
            last.lines += row.lines
            last.content += row.content
        else:
            found.append(row)
    return found


def give_usage(messages: list[GooseMessage], ledger: list[Json]) -> None:
    """Give each reply the request of the ledger that it is the answer to: of the replies before it the last, if that has none."""
    replies = [(at, one) for one in messages if one.value.get("role") == "assistant" and (at := one.stamp) is not None]
    times = [at for at, _ in replies]
    for entry in ledger:
        at = goose_seconds(entry["created_timestamp"])
        before = 0 if at is None or entry["is_compaction"] else bisect_right(times, at)
        if before and not replies[before - 1][1].usage:
            replies[before - 1][1].usage = entry


def blocks_in_goose(content: Json, provider: str) -> Iterator[Block]:
    match content.get("type"):
        case "text" if first_text(content.get("text")):
            yield Text(content["text"])
        case "image" if first_text(content.get("data")):
            yield Media(text_in(content, "mimeType", "mime_type") or "image/*", content["data"])
        case "thinking":
            yield Thinking(
                text_in(content, "thinking"), text_in(content, "signature"), provider=provider_family(provider)
            )
        case "redactedThinking":
            yield Thinking("", text_in(content, "data"), redacted=True, provider=provider_family(provider))
        case "toolRequest" | "frontendToolRequest":
            asked = obj(content.get("toolCall"))
            call = obj(asked.get("value")) or asked
            if name := first_text(call.get("name")):
                yield Call(text_in(content, "id"), name, arguments_of(call.get("arguments")))
            elif error := first_text(asked.get("error")):
                # What the model wrote was no call; its answer names it all the same.
                yield Call(text_in(content, "id"), "invalid_call", {"error": error})
        case "toolResponse":
            yield _result(content)


def _result(content: Json) -> Result:
    answer = obj(content.get("toolResult"))
    value = answer.get("value")
    shown = obj(value).get("content") if isinstance(value, dict) else value
    found = (part for one in objects(shown) for part in blocks_in_goose(one, ""))
    parts = tuple(part for part in found if isinstance(part, (Text, Media)))
    failed = answer.get("status") == "error" or True in (obj(value).get("isError"), obj(value).get("is_error"))
    if not parts and (error := answer.get("error", value if not objects(shown) else None)) not in (None, [], {}):
        parts = (Text(as_text(error)),)
    return Result(text_in(content, "id"), "", parts, failed=failed)


# ---- goose ----

_SESSION = "id name description session_type working_dir created_at provider_name model_config_json parent_session_id"
_MESSAGE = "message_id role content_json created_timestamp tokens"
_COUNTS = "input_tokens output_tokens cache_read_tokens cache_write_tokens"
_LEDGER = f"id created_timestamp model {_COUNTS} cost is_compaction"
_SCAFFOLDING = Scaffolding(frozenset({"info-msg", "system-reminder"}))


class Goose:
    """Reads the database, or the file of one session of before."""

    name = "goose"
    revision = 1

    def recognizes(self, head: SourceHead) -> bool:
        if head.has_table("sessions", "working_dir"):
            return head.has_table("messages", "session_id role content_json created_timestamp")
        return any(map(_is_header, head.objects[:1])) or any(map(_is_line, head.objects))

    def session_stamps(self, source: Any) -> dict[str, str]:
        """For each session a text that changes with any of its rows: a compaction rewrites them with other ids."""
        return stamps_in(source, "updated_at name description model_config_json", "id")

    def session_times(self, source: Any) -> list[tuple[float, float]]:
        """When each session began and last changed."""
        rows = rows_of(source, "sessions", "created_at updated_at")
        return spans_of((row["created_at"], row["updated_at"]) for row in rows)

    def plans(self, source: Any, *, skip: Container[str] = ()) -> Iterable[SessionPlan]:
        if is_file_source(source):
            yield from _of_lines(source)
            return
        for row in sessions_in(source, _SESSION, "created_at id", skip):
            where = {"session_id": row["id"]}
            found = rows_of(source, "messages", f"{_MESSAGE} metadata_json", "id", where)
            rows = sorted(found, key=lambda one: goose_seconds(one["created_timestamp"]) or 0)
            messages = whole_messages(_message(number, one) for number, one in enumerate(rows, 1))
            ledger = list(rows_of(source, "usage_ledger", _LEDGER, "id", where))
            yield _plan(source, as_texts(row, []), messages, ledger)


def _message(number: int, row: Json) -> GooseMessage:
    # A compaction changes this column of old rows. It is not part of the line, or every compaction would rewrite all of them.
    seen = object_in(row.pop("metadata_json"))
    content = objects_on(row["content_json"])
    return GooseMessage([row_line(number, row)], row, content, seen.get("agentVisible") is not False, seen)


def _is_header(value: Json) -> bool:
    return "working_dir" in value and "message_count" in value and "description" in value


def _is_line(value: Json) -> bool:
    is_said = value.get("role") in ("user", "assistant") and isinstance(value.get("content"), list)
    return is_said and type(value.get("created")) is int


def _of_lines(source: Any) -> Iterator[SessionPlan]:
    lines = SourceLines(source)
    held = list(lines)
    if not held:
        return
    about = next((line.value for line in held if line.value is not None and _is_header(line.value)), {})
    given = ((line, line.value or {}) for line in held if line.raw)
    messages = [GooseMessage([line], value, objects(value.get("content"))) for line, value in given]
    first = next((line.raw for line in held if line.value is not None and line.value is not about), held[0].raw)
    row = {**about, "id": hashlib.sha256(first.strip()).hexdigest(), "provider_name": None}
    yield _plan(source, row, messages, [], lines)


def _plan(
    source: Any,
    row: Json,
    messages: list[GooseMessage],
    ledger: list[Json],
    lines: SourceLines | None = None,
) -> SessionPlan:
    give_usage(messages, ledger)
    config = object_in(row.get("model_config_json"))
    model = first_text(*(one.usage.get("model") for one in reversed(messages)), config.get("model_name"))
    provider = named_provider(first_text(row.get("provider_name")), model)
    said, losses = walked(source, partial(_walk, messages, provider))
    is_agent = row.get("session_type") == "sub_agent"
    title = first_text(row.get("name"), row.get("description"))
    facts = facts_of(session=str(row["id"]), model=model, title=title, cwd=row.get("working_dir"))
    facts.first(**{"part_of" if is_agent else "forked_from": row.get("parent_session_id")})
    speaks = any(one.turn(provider) is not None for one in messages)
    count = sum(len(one.lines) for one in messages)
    return facts.plan(Goose.name, lines or count, said, provider if speaks else None, losses)


def _walk(messages: list[GooseMessage], provider: str, losses: Losses) -> Steps:
    for number, one in enumerate(messages):
        if one.is_summary and number and not messages[number - 1].is_summary:
            kept = [before for before in messages[:number] if before.is_sent]
            yield Restart(partial(_carried, kept, provider))
        drafts = _drafts(one, provider, losses)
        drafts[0].lines += one.lines
        yield from drafts


def _carried(kept: list[GooseMessage], provider: str) -> list[PlannedRecord]:
    drafts = (draft for one in kept for draft in _drafts(one, provider, Losses()))
    return [draft.carried() for draft in drafts if draft.message is not None]


def _drafts(one: GooseMessage, provider: str, losses: Losses) -> list[Draft]:
    at = time_member(one.stamp)
    turn = one.turn(provider)
    if turn is None:
        return [Draft(at=at)]
    about: Json = {}
    if turn.role == "assistant":
        usage = usage_of(map(one.usage.get, _COUNTS.split()), one.usage)
        about = {"model": first_text(one.usage.get("model")), "usage": usage}
    elif one.is_summary:
        about = marked_summary()
    elif not any(isinstance(block, Result) for block in turn.blocks):
        about = marked(_SCAFFOLDING.typed_of(block.text for block in turn.blocks if isinstance(block, Text)))
    return said_drafts(turn, provider, about, at, None, losses)
