"""Goose's messages, and their contents as blocks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

from transcript_store.formats._blocks import Block, Call, Media, Result, Text, Thinking
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import Json, obj, objects, text_in, text_member
from transcript_store.formats._neutral import NeutralMessage, arguments_of
from transcript_store.messages import as_text, provider_family

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
        return NeutralMessage("assistant" if is_reply else "user", tuple(_joined(blocks) if is_reply else blocks))


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
        number = text_member(row.value.get("message_id"))
        same = last is not None and number is not None and last.value.get("message_id") == number
        if last is not None and same and (last.value.get("role"), last.seen) == (row.value.get("role"), row.seen):
            last.lines += row.lines
            last.content += row.content
        else:
            found.append(row)
    return found


def _joined(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks of a reply: thinking and text are stored in the pieces in which they came, a word each."""
    for kind, run in groupby(blocks, key=lambda block: type(block) if not _is_redacted(block) else id(block)):
        first, *more = run
        if kind is Text and more:
            yield Text("".join(block.text for block in (first, *more) if isinstance(block, Text)))
        elif isinstance(first, Thinking) and more:
            pieces = [block for block in (first, *more) if isinstance(block, Thinking)]
            signature = next((piece.signature for piece in reversed(pieces) if piece.signature), "")
            yield Thinking("".join(piece.text for piece in pieces), signature, provider=first.provider)
        else:
            yield from (first, *more)


def _is_redacted(block: Block) -> bool:
    return isinstance(block, Thinking) and block.redacted


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
        case "text" if text_member(content.get("text")):
            yield Text(content["text"])
        case "image" if text_member(content.get("data")):
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
            if name := text_member(call.get("name")):
                yield Call(text_in(content, "id"), name, arguments_of(call.get("arguments")))
            elif error := text_member(asked.get("error")):
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
