"""The sessions that programs of this machine will delete, for a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from transcript_store import ConversationLibrary, TranscriptStoreError
from transcript_store.cli._shared.folders import import_cache
from transcript_store.cli._shared.terminal import complain, one_line, say

if TYPE_CHECKING:
    from transcript_store.keeping import RetentionOutlook

_SHOWN = 10


def outlooks_of(directory: str) -> list[RetentionOutlook]:
    """The sessions that they will delete, compared with a library; empty on failure, which is reported."""
    from transcript_store.keeping import retention_outlook
    from transcript_store.sources import discover

    try:
        return retention_outlook(discover(), ConversationLibrary(directory), cache=import_cache())
    except TranscriptStoreError as error:
        complain(error.problem)
        return []


def say_outlooks(outlooks: Sequence[RetentionOutlook]) -> None:
    """Print what programs will delete, and the setting that keeps it."""
    for one in outlooks:
        say(one.sentence)
        if one.problem is not None:
            complain(one.problem)
        for source in one.missing[:_SHOWN]:
            say(f"    not in the library: {one_line(source)}")
        if (more := len(one.missing) - _SHOWN) > 0:
            say(f"    and {more:,} more (--json names each)")
        if one.days is not None:
            say(f"    to keep them: {one.keeps} in {one_line(one.setting)}{f' ({one.note})' if one.note else ''}")
