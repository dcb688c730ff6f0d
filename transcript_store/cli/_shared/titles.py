"""What a conversation without a title is called where a person reads it: as the pages call it, by its first prompt."""

from __future__ import annotations

from transcript_store import TranscriptStoreError
from transcript_store.cli._shared.places import is_address


def called(directory: str, title: str | None) -> str | None:
    """The title of a conversation, or else its first prompt.

    None if nothing is known of it. So it is of a conversation on a place, of a sealed one and of one that cannot be read.
    """
    if title or is_address(directory):
        return title
    from transcript_store.view import first_prompt

    try:
        return first_prompt(directory)
    except TranscriptStoreError:
        return None
