"""Lines in neutral form → records in the form of the session's provider, for programs that use several.

A reader turns each line into neutral messages, and takes the form of the last reply. Blocks that this form cannot hold are counted
as losses; a file that it cannot hold leaves its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from transcript_store.formats._arranging import FORMS
from transcript_store.formats._blocks import Block, Call, Media, Result, Text, Thinking
from transcript_store.formats._forms import Claude
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import Json, count_member, first_text, obj
from transcript_store.formats._neutral import Form, Losses, NeutralMessage, Role, name_in_path, text_in_file
from transcript_store.formats._plan import PlannedRecord, Source
from transcript_store.formats._replay import Draft, Replay, Steps, replayed
from transcript_store.formats._trees import left_entry
from transcript_store.messages import as_text, cost_in, provider_family

_OF_OPENAI = frozenset({"openai", "openai-codex", "azure", "azure-openai-responses"})


@dataclass(slots=True)
class NeutralLine:
    """A line of a source with its messages: several if it holds a reply with results."""

    lines: list[SourceLine]
    """Its lines. Empty if an earlier generation accounts for them."""
    said: list[tuple[NeutralMessage, Json]] = field(default_factory=list)
    """Each with what belongs to it and is not sent."""
    at: str | None = None
    is_left: bool = False
    """True if it is on a branch that the conversation left."""

    def carried(self) -> NeutralLine:
        """The line for a later generation, which does not account for it again."""
        return NeutralLine([], self.said, self.at)


@lru_cache(maxsize=64)  # a session has few models, and thousands of replies
def form_by_name(api: str, provider: str, model: str) -> str:
    """The form of a conversation, by the API of its replies if one is named, else by the provider's name."""
    api, provider, model = api.lower(), provider.lower(), model.lower()
    is_claude = "claude" in model or "anthropic" in model
    if "anthropic" in (api or provider) or ("bedrock" in (api or provider) and is_claude):
        return "claude"
    if (api or provider).startswith("google"):
        return "gemini"
    return "openai" if provider in _OF_OPENAI else "openai-compatible"


def neutral_records(lines: Iterable[NeutralLine], form: Form, losses: Losses) -> Iterator[PlannedRecord]:
    """The records of these lines: at least one each, an event if the form holds nothing of it."""
    for one in lines:
        for draft in drafts_of(one, form, losses):
            yield left_entry(draft.entry()) if one.is_left else draft.entry()


def drafts_of(one: NeutralLine, form: Form, losses: Losses) -> list[Draft]:
    """The records of a line, which may still be changed; none of a carried line that the form holds nothing of."""
    drafts: list[Draft] = []
    for turn, about in one.said:
        held = tuple(block for each in turn.blocks for block in held_blocks(each, turn.role, form, losses))
        if held:
            made = form.messages_of(NeutralMessage(turn.role, held))
            # A form that cannot mark failures puts results first, a message each: the mark goes into ``extra``.
            failed = [] if form.marks_failures else [block.failed for block in held if isinstance(block, Result)]
            for place, message in enumerate(made):
                has_failed = place < len(failed) and failed[place]
                drafts.append(Draft(message, {**about, "failed": True} if has_failed else about, one.at))
    if one.lines:
        drafts = drafts or [Draft(at=one.at)]
        drafts[0].lines += one.lines
    return drafts


def held_blocks(block: Block, role: Role, form: Form, losses: Losses) -> Iterator[Block]:
    """The block if the form holds it, or a text that mentions it."""
    if isinstance(block, Result):
        shown = (one for each in block.content for one in held_blocks(each, "user", form, losses))
        yield replace(block, content=tuple(one for one in shown if isinstance(one, (Text, Media))))
    elif isinstance(block, (Text, Thinking)) and not (block.text or (isinstance(block, Thinking) and block.signature)):
        return
    elif form.holds(block, role):
        yield block
    elif isinstance(block, Thinking):
        losses.note("thinking", "thinking of another provider's model, or without its signature, is kept, and not sent")
    elif isinstance(block, Media) and (said := text_in_file(block)) is not None:
        yield said
    elif isinstance(block, Media):
        losses.note(
            "media", "a file of which only the path is known, or that the form has no place for: its name is sent"
        )
        named = name_in_path(first_text(obj(block.own).get("path")) or "") or (block.url or "")
        yield Text(f"[{block.type}: {named}]" if named else f"[{block.type}]")


# ---- messages api ----
#
# Messages with the blocks of Claude's API, which programs keep for every provider: Cline, Roo, Factory Droid, Cursor.
#
# A conversation has the form of the provider of its last reply. Thinking of others is lost to it, and counted.

_CLAUDE = Claude()
_MEMBERS: dict[str, frozenset[str]] = {
    "text": frozenset({"type", "text", "citations", "cache_control"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"}),
    "image": frozenset({"type", "source", "cache_control"}),
    "document": frozenset({"type", "source", "title", "context", "citations", "cache_control"}),
}
"""The members that the API knows, by the type of block. A block with others is written again without them."""


def named_provider(provider: str | None, model: str | None) -> str:
    """The form of a conversation, by the provider of its last reply, or by the model alone."""
    said, name = (provider or "").lower(), (model or "").lower()
    maker = "anthropic" if "claude" in name else "google" if name.startswith("gemini") else ""
    if not said or "vertex" in said:
        said = maker or said
    elif "claude" in said:
        said = "anthropic"
    elif said.startswith("gemini"):
        said = "google"
    return form_by_name("", said, name)


def turn_in(
    message: Json, provider: str, shown: Callable[[Any], tuple[str, bool] | None] = lambda _: None
) -> NeutralMessage:
    """The message in neutral form. ``provider`` wrote it, if it is a reply.

    ``shown`` returns the text of a result in the program's own form, and True if the call failed; None for any other content.
    """
    turn = _CLAUDE.turn_of(message)
    family = provider_family(provider)
    return NeutralMessage(turn.role, tuple(_block(block, family, shown) for block in turn.blocks))


def _block(block: Block, family: str, shown: Callable[[Any], tuple[str, bool] | None]) -> Block:
    own = block.own
    known = own is not None and own.keys() <= _MEMBERS.get(str(own.get("type")), frozenset())
    match block:
        case Thinking():
            signature = block.signature if family == "claude" else ""
            its = own if known and family == "claude" else None
            return Thinking(block.text, signature, redacted=block.redacted, own=its, provider=family)
        case Result() if own is not None:
            content = own.get("content")
            if (said := shown(content)) is not None:
                return Result(block.id, "", (Text(said[0]),), failed=block.failed or said[1])
            if not _is_content(content):
                said_so = () if content is None else (Text(as_text(content)),)
                return Result(block.id, "", said_so, failed=block.failed)
            return block if known else Result(block.id, "", block.content, failed=block.failed)
        case Text() if not known:
            return Text(block.text, title=block.title)
        case Call() if not known:
            return Call(block.id, block.name, block.arguments)
        case Media() if not known:
            return Media(block.type, block.data, block.url)
    return block


def _is_content(content: object) -> bool:
    """True for the content of a result: a text, or blocks of the API."""
    return isinstance(content, str) or (
        isinstance(content, list)
        and all(isinstance(one, dict) and one.get("type") in ("text", "image", "document") for one in content)
    )


def usage_of(counts: Iterable[object], about: Json) -> Json:
    """The counts of a reply as Claude's API has them, with cached input apart.

    ``counts``: input including cached input, as most programs count it; output; read from the cache; written to it. ``about`` may
    have the cost.
    """
    taken, said, read, written = counts
    named = {"cache_read_input_tokens": read, "cache_creation_input_tokens": written}
    usage: Json = {name: found for name, value in named.items() if (found := count_member(value)) is not None}
    if (found := count_member(taken)) is not None:
        usage["input_tokens"] = max(0, found - sum(usage.values()))
    if (found := count_member(said)) is not None:
        usage["output_tokens"] = found
    cost = cost_in(about)
    return {**usage, "cost": cost} if usage and cost is not None else usage


def said_drafts(
    turn: NeutralMessage, provider: str, about: Json, at: str | None, line: SourceLine | None, losses: Losses
) -> list[Draft]:
    """A turn as messages of a provider; the first one has the line. An event if the form holds none of its blocks.

    Thinking that the form does not hold is in ``extra.thinking``.
    """
    form = FORMS[provider_family(provider)]
    lost = (block for block in turn.blocks if isinstance(block, Thinking) and not form.holds(block, turn.role))
    about = {**about, "thinking": "\n\n".join(block.text for block in lost if block.text)}
    about = {name: value for name, value in about.items() if value not in (None, "", {})}
    said = NeutralLine([] if line is None else [line], [(turn, about)], at)
    return drafts_of(said, form, losses) or [Draft(at=at)]


def walked(source: Source, walk: Callable[[Losses], Steps]) -> tuple[Replay, Losses]:
    """The records of a walk, and its losses."""
    losses = Losses()
    return replayed(source, walk(losses), lambda: walk(Losses())), losses
