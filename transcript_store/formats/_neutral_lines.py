"""Lines in neutral form → records in the form of the session's provider, for programs that use several.

A reader turns each line into neutral messages, and takes the form of the last reply. Blocks that this form cannot hold are counted
as losses; a file that it cannot hold leaves its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from transcript_store.formats._blocks import Block, Media, Result, Text, Thinking
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import Json, obj, text_member
from transcript_store.formats._neutral import Form, Losses, NeutralMessage, Role
from transcript_store.formats._plan import PlannedRecord
from transcript_store.formats._replay import Draft
from transcript_store.formats._trees import left_entry

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
    elif isinstance(block, Media):
        losses.note(
            "media", "a file of which only the path is known, or that the form has no place for: its name is sent"
        )
        named = re.split(r"[/\\]", text_member(obj(block.own).get("path")) or "")[-1] or (block.url or "")
        yield Text(f"[{block.type}: {named}]" if named else f"[{block.type}]")
