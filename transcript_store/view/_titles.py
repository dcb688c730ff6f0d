"""What a conversation is called that has no title: its first prompt."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from itertools import islice

from transcript_store.conversation import ConversationStore
from transcript_store.formats import Media, Text, Turn
from transcript_store.view._contents import Stretch
from transcript_store.view._turns import said_in

_LONGEST = 120
_RECORDS = 40
"""So many are looked at for a prompt: a log begins with events of its program."""
_SLASH_COMMAND = re.compile(r"/[A-Za-z][\w:-]*(?:\s|$)")


def is_prompt(turn: Turn) -> bool:
    """Whether a person may have said it: the user's, and not results alone."""
    return turn.role == "user" and any(isinstance(block, (Text, Media)) for block in turn.blocks)


def label_of(turn: Turn) -> str:
    """The beginning of a prompt, on one line."""
    said = " ".join(block.text for block in turn.blocks if isinstance(block, Text))
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


def first_prompt(directory: str | os.PathLike[str]) -> str | None:
    """What the conversation begins with; None if nothing is found among its first records. It is read only, without a lock.

    Raises:
        TranscriptStoreError: as :meth:`ConversationStore.load` and ``iter_records``.
    """
    with ConversationStore(directory, read_only=True, cache_bytes=0) as conversation:
        conversation.load(verify="tail")
        provider = conversation.get_metadata().provider
        records = islice(conversation.iter_records(), _RECORDS)
        said = said_in((Stretch(record) for record in records if not record.is_retracted), provider)
    return title_among(label_of(each.turn) for each in said if each.turn and is_prompt(each.turn))
