"""What a page calls a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from transcript_store.naming import is_prompt, label_of, title_among
from transcript_store.view._contents import Contents, Stretch
from transcript_store.view._turns import said_in
from transcript_store.words import title_in


def title_of(contents: Contents) -> str:
    """Its title, or else the first prompt of what is shown, or else its program and when it began."""
    metadata = contents.metadata
    parts = (*(earlier.stretches for earlier in contents.before), contents.stretches)
    found = (title_among(_prompts(stretches, metadata.provider)) for stretches in parts)
    if name := title_in(metadata.labels) or next(filter(None, found), None):
        return name
    program = metadata.labels.get("source") or metadata.provider or "conversation"
    return f"{program}, {metadata.created_at[:10]} {metadata.created_at[11:16]}"


def prompts_of(contents: Contents) -> Iterator[str]:
    """What was asked in what is shown, each prompt's beginning on one line."""
    return _prompts(contents.stretches, contents.metadata.provider)


def _prompts(stretches: Iterable[Stretch], provider: str | None) -> Iterator[str]:
    for each in said_in(stretches, provider):
        extra = each.stretch.record.extra if each.stretch.record else None
        if each.turn is not None and is_prompt(each.turn, extra):
            yield label_of(each.turn, extra)
