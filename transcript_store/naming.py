"""What is a conversation's name? Its title, else its first real prompt, else its program and its time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from transcript_store.conversation import ConversationStore, Record
from transcript_store.errors import TranscriptStoreError
from transcript_store.formats import Media, NeutralMessage, Text, is_form_known, to_neutral
from transcript_store.messages import pydantic_ai_in_claude_form, typed_of

if TYPE_CHECKING:
    from transcript_store.library import ConversationSummary

_LONGEST = 120
_RECORDS = 400
"""So many records are searched for a prompt: a log starts with events of its program."""
_SLASH_COMMAND = re.compile(r"/[A-Za-z][\w:-]*(?:\s|$)")
_OF_CLAUDE = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"})


def name_of(summary: ConversationSummary, prompt: str | None = None) -> str:
    """The name of a conversation: its title, or its first prompt, or its program and start; its id if nothing is known."""
    if name := summary.title or prompt:
        return name
    program = "sealed" if summary.sealed else (summary.labels or {}).get("source") or summary.provider
    if not summary.created_at:
        return summary.id or summary.directory.rpartition("/")[2]
    return f"{program or 'conversation'}, {summary.created_at[:10]} {summary.created_at[11:16]}"


def name_at(summary: ConversationSummary, **keys: Any) -> str:
    """The same for a conversation in a folder: its first prompt is read there, without a lock, if it has no title.

    ``keys`` are the arguments ``encryption_key`` and ``retired_keys`` of the store, if it is sealed.
    """
    prompt = None
    if summary.title is None and summary.damage is None and (keys or not summary.sealed):
        with suppress(TranscriptStoreError):  # it is named all the same
            if summary.generation == 0 and not summary.sealed:  # nothing stood before: a quarter of the time
                from transcript_store.transcripts import open_transcript  # of one that is loaded nothing is read here

                with open_transcript(summary.directory) as transcript:
                    records = (placed.record for placed, _ in transcript.records(transcript.begin))
                    prompt = first_prompt_in(records, summary.provider)
            else:
                prompt = first_prompt(summary.directory, **keys)
    return name_of(summary, prompt)


def first_prompt(directory: str | os.PathLike[str], **keys: Any) -> str | None:
    """The first prompt of the conversation in a folder; None if its first records have none. No lock is taken.

    Raises:
        TranscriptStoreError: as :meth:`ConversationStore.load` and ``iter_records``.
    """
    from transcript_store.import_notes import earlier_generations  # what was never replaced has none

    with ConversationStore(directory, read_only=True, cache_bytes=0, **keys) as conversation:
        conversation.load(verify="tail")
        # The first prompt is in the first generation, if a program's compaction removed it.
        for generation in (*earlier_generations(conversation), None):
            records = conversation.iter_records(generation=generation)
            if (found := first_prompt_in(records, conversation.get_metadata().provider)) is not None:
                return found
    return None


def first_prompt_in(records: Iterable[Record], provider: str | None) -> str | None:
    """The same from the first records of a conversation; no more of them are read than needed."""
    return title_among(_prompts(islice(records, _RECORDS), provider))


def _prompts(records: Iterable[Record], provider: str | None) -> Iterator[str]:
    for record in records:
        if record.message is not None and not record.is_retracted:
            turn = turn_of(record.message, provider)
            if is_prompt(turn, record.extra):
                yield label_of(turn, record.extra)


def is_prompt(turn: NeutralMessage, extra: Mapping[str, Any] | None) -> bool:
    """True if a person may have written it: a user's message, neither only results nor written by a program in the
    user's name.
    """
    if turn.role != "user" or not any(isinstance(block, (Text, Media)) for block in turn.blocks):
        return False
    return typed_of(extra, "typed") != ""


def label_of(turn: NeutralMessage, extra: Mapping[str, Any] | None) -> str:
    """The start of the user's typed prompt, on one line; a document's only if there is nothing else."""
    texts = [block for block in turn.blocks if isinstance(block, Text) and block.text.strip()]
    typed = [block for block in texts if block.title is None] or texts
    prompt = typed_of(extra, " ".join(block.text for block in typed))
    words = " ".join(prompt[: _LONGEST * 4].split())
    return (words[:_LONGEST] + ("…" if len(words) > _LONGEST else "")) or "(an image)"


def title_among(labels: Iterable[str]) -> str | None:
    """The first title that says something. ``/mode`` is for the program, not for the model."""
    first = None
    for label in labels:
        if not _SLASH_COMMAND.match(label):
            return label
        first = first or label
    return first


def turn_of(message: dict[str, Any], provider: str | None) -> NeutralMessage:
    """The neutral form of a message."""
    return to_neutral((message,), _form(message, provider))[0]


def _form(message: dict[str, Any], provider: str | None) -> str:
    """The provider whose form a message has. If the provider is unknown, the message itself shows it."""
    if provider is not None and is_form_known(provider):
        return provider
    if isinstance(message.get("parts"), list):
        return "gemini" if pydantic_ai_in_claude_form(message) is None else "pydantic-ai"
    content = message.get("content")
    kinds = {block.get("type") for block in content if isinstance(block, dict)} if isinstance(content, list) else set()
    return "claude" if any(kind in _OF_CLAUDE for kind in kinds if isinstance(kind, str)) else "openai"


_NOT_IN_A_FILE_NAME = re.compile(r"[^\w.]+")


def file_name_of(name: str, at: str | None) -> str:
    """A name as that of a file, without its ending: ``fix-the-flaky-checkout-test-2026-11-26``. Never empty, hidden, or longer than 80."""
    words = _NOT_IN_A_FILE_NAME.sub("-", name.lower()).strip("-._")[:60].rstrip("-._")
    day = (at or "")[:10]
    return "-".join(filter(None, (words or "conversation", day if re.fullmatch(r"\d{4}-\d\d-\d\d", day) else "")))
