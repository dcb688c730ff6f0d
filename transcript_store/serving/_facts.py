"""What does a row of the list say beside its summary? The tokens, their cost, and the last prompt: each conversation is read for it once.

What was read is kept as long as the conversation looks the same. A page of the list waits for a moment only: the rest is read when the
page asks again.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from threading import Lock
from typing import NamedTuple

from transcript_store.conversation import ConversationStore
from transcript_store.display import dollars, many
from transcript_store.errors import TranscriptStoreError
from transcript_store.library import ConversationSummary
from transcript_store.naming import is_prompt, label_of, turn_of
from transcript_store.serving._library import ServedLibrary

_MOST = 2_000
"""So many conversations are remembered."""
_SECONDS = 0.3
"""How long one page waits."""
_LAST_RECORDS = 500
"""The last prompt is looked for among so many."""


class RowFacts(NamedTuple):
    """What a row says besides."""

    tokens: int = 0
    cost: float | None = None
    """In US dollars; None if a reply has no price."""
    last_prompt: str = ""

    @property
    def said(self) -> tuple[str, ...]:
        """The tokens and their cost, for a person; nothing where none are on record."""
        if not self.tokens:
            return ()
        return (many(self.tokens, "token"), *((dollars(self.cost),) if self.cost else ()))


NO_FACTS = RowFacts()


class RowFactsCache:
    """The facts of a library's conversations. Threads may share it."""

    def __init__(self, home: ServedLibrary) -> None:
        self._home = home
        self._mutex = Lock()
        self._known: OrderedDict[object, RowFacts] = OrderedDict()

    def of(self, summaries: Iterable[ConversationSummary]) -> tuple[list[RowFacts], bool]:
        """The facts of each, as far as there was time for them, and whether these are all."""
        deadline = time.monotonic() + _SECONDS
        found, is_whole = [], True
        with self._mutex:  # two pages that are asked for at once read nothing twice
            for summary in summaries:
                stamp = (
                    summary.directory,
                    summary.generation,
                    summary.record_count,
                    summary.size_bytes,
                    summary.updated_at,
                )
                facts = self._known.get(stamp)
                if facts is None:
                    if time.monotonic() > deadline:
                        found.append(NO_FACTS)
                        is_whole = False
                        continue
                    facts = self._read(summary)
                    self._known[stamp] = facts
                    while len(self._known) > _MOST:
                        self._known.popitem(last=False)
                else:
                    self._known.move_to_end(stamp)
                found.append(facts)
        return found, is_whole

    def _read(self, summary: ConversationSummary) -> RowFacts:
        from transcript_store.usage import conversation_usage

        if summary.damage is not None or not self._home.is_near:
            return NO_FACTS
        source, keys = self._home.source(os.path.basename(summary.directory))
        store = source if isinstance(source, ConversationStore) else ConversationStore(source, read_only=True, **keys)
        with suppress(TranscriptStoreError), store as conversation:
            conversation.load()
            usage = conversation_usage(conversation)
            return RowFacts(usage.total_tokens, usage.cost_usd, _last_prompt(conversation))
        return NO_FACTS  # it was deleted meanwhile, or its key is not there


def _last_prompt(conversation: ConversationStore) -> str:
    provider = conversation.get_metadata().provider
    for record in reversed(conversation.get_records(last=_LAST_RECORDS)):
        if record.message is not None and not record.is_retracted:
            turn = turn_of(record.message, provider)
            if is_prompt(turn, record.extra):
                return label_of(turn, record.extra)
    return ""
