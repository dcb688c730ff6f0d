"""What the commands say of sealed conversations, and which of them the keys at hand open."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from transcript_store import ConversationStore, ConversationSummary, TranscriptStoreError, list_conversations
from transcript_store.cli._shared.keys import VARIABLE, Keys
from transcript_store.cli._shared.places import summary_at
from transcript_store.cli._shared.terminal import complain, many
from transcript_store.words import title_in


def keys_if_sealed(name: str, keys: Keys) -> dict[str, Any]:
    """What a store is given of the keys, for a command whose keys are first those of something else."""
    summary = summary_at(name) if keys else None
    return keys.options if summary is not None and summary.sealed else {}


def has_sealed(library: str) -> bool:
    """Whether a conversation of a library is sealed."""
    return any(summary.sealed for summary in list_conversations(library))


def counted_sealed(directory: str) -> str:
    """How many conversations in a directory are sealed, as a sentence; "" if none is."""
    with suppress(TranscriptStoreError):
        found = list_conversations(directory)
        if count := sum(summary.sealed for summary in found):
            return f"sealed: {count:,} of {many(len(found), 'conversation')}"
    return ""


def with_titles(found: list[ConversationSummary], keys: Keys) -> list[ConversationSummary]:
    """Summaries with the titles and labels that the keys open; those that do not open are counted on standard error."""
    if not keys:
        return found
    opened = [_with_title(summary, keys) if summary.sealed else summary for summary in found]
    _complain_of(sum(summary is None for summary in opened))
    return [summary or before for summary, before in zip(opened, found, strict=True)]


def say_what_does_not_open(library: str, keys: Keys) -> None:
    """Say on standard error how many sealed conversations of a library will not be read."""
    sealed = [summary for summary in list_conversations(library) if summary.sealed]
    if not keys:
        if sealed:
            complain(f"{many(len(sealed), 'sealed conversation')} not read: give the key, in --key-file or {VARIABLE}")
        return
    _complain_of(sum(_with_title(summary, keys) is None for summary in sealed))


def _complain_of(count: int) -> None:
    if count:
        complain(f"{many(count, 'sealed conversation')} not opened by the key that was given: `verify` says why")


def _with_title(summary: ConversationSummary, keys: Keys) -> ConversationSummary | None:
    """The summary with what is sealed of it; None if the keys do not open it."""
    try:
        with ConversationStore(summary.directory, read_only=True, **keys.options) as conversation:
            conversation.load(verify="tail")
            labels = conversation.get_metadata().labels
    except TranscriptStoreError:
        return None
    return replace(summary, title=title_in(labels), labels=labels)
