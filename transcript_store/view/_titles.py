"""What a conversation is called that has no title: its first prompt."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from transcript_store.conversation import ConversationStore
from transcript_store.formats import Media, Text, Turn
from transcript_store.import_notes import earlier_generations
from transcript_store.messages import typed_of
from transcript_store.view._contents import Contents, Stretch
from transcript_store.view._turns import said_in
from transcript_store.words import title_in

_LONGEST = 120
_RECORDS = 400
"""So many are looked at for a prompt: a log begins with events of its program."""
_SLASH_COMMAND = re.compile(r"/[A-Za-z][\w:-]*(?:\s|$)")


def is_prompt(turn: Turn, extra: Mapping[str, Any] | None) -> bool:
    """Whether a person may have said it: the user's, and neither results alone nor what a program wrote in the user's name."""
    if turn.role != "user" or not any(isinstance(block, (Text, Media)) for block in turn.blocks):
        return False
    return typed_of(extra, "said") != ""


def label_of(turn: Turn, extra: Mapping[str, Any] | None) -> str:
    """The beginning of what the user typed of a prompt, on one line; of a document only if that is all there is."""
    texts = [block for block in turn.blocks if isinstance(block, Text) and block.text.strip()]
    typed = [block for block in texts if block.title is None] or texts
    said = typed_of(extra, " ".join(block.text for block in typed))
    words = " ".join(said[: _LONGEST * 4].split())
    return (words[:_LONGEST] + ("…" if len(words) > _LONGEST else "")) or "(an image)"


def title_among(labels: Iterable[str]) -> str | None:
    """The first that tells what it is about. ``/mode`` is told to the program, not to the model."""
    first = None
    for label in labels:
        if not _SLASH_COMMAND.match(label):
            return label
        first = first or label
    return first


def title_of(contents: Contents) -> str:
    """What a page calls a conversation: its title, or else the first prompt of what is shown."""
    provider = contents.metadata.provider
    parts = (*(earlier.stretches for earlier in contents.before), contents.stretches)
    found = (title_among(_prompts(stretches, provider)) for stretches in parts)
    return title_in(contents.metadata.labels) or next(filter(None, found), None) or "Conversation"


def first_prompt(directory: str | os.PathLike[str]) -> str | None:
    """What the conversation begins with; None if nothing is found among its first records. It is read only, without a lock.

    Raises:
        TranscriptStoreError: as :meth:`ConversationStore.load` and ``iter_records``.
    """
    with ConversationStore(directory, read_only=True, cache_bytes=0) as conversation:
        conversation.load(verify="tail")
        provider = conversation.get_metadata().provider
        # What began it stands in the first generation, where a program's compaction took it away.
        for generation in (*earlier_generations(conversation), None):
            records = islice(conversation.iter_records(generation=generation), _RECORDS)
            in_force = (Stretch(record) for record in records if not record.is_retracted)
            if (found := title_among(_prompts(in_force, provider))) is not None:
                return found
    return None


def _prompts(stretches: Iterable[Stretch], provider: str | None) -> Iterator[str]:
    for each in said_in(stretches, provider):
        extra = each.stretch.record.extra if each.stretch.record else None
        if each.turn is not None and is_prompt(each.turn, extra):
            yield label_of(each.turn, extra)
