"""What does the server read from its library, in a directory or on a backend? Nothing is written.

What was read for a row (tokens, cost, the last prompt) is kept as long as the conversation looks the same. A page of
the list waits for a moment only: the rest is read when the page asks again.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, NamedTuple, Protocol, TypeAlias

from transcript_store.conversation import ConversationStore
from transcript_store.display import dollars, many
from transcript_store.errors import ConversationNotFoundError, TranscriptStoreError
from transcript_store.file_names import is_id
from transcript_store.library import ConversationLibrary, ConversationSummary
from transcript_store.naming import is_prompt, label_of, turn_of
from transcript_store.search import IndexSource, index_source
from transcript_store.transcripts import summary_of
from transcript_store.view.served import LiveConversation

Source: TypeAlias = "tuple[str | ConversationStore, Mapping[str, Any]]"
"""A folder and the keys of what is in it; or a store that is not loaded yet."""


class ServedLibrary(Protocol):
    """A library. A conversation is called by its folder's name, or its id. Several threads may ask."""

    name: str
    """What the pages call it. It has no user, no password and no options."""
    poll_seconds: float
    """How often an open conversation is checked for new records."""
    is_near: bool
    """True if a conversation may be read for its row in the list. Of a backend each would be fetched."""

    def has(self, name: str) -> bool:
        """True if a conversation may have this name: it comes from a browser, and no disk or server was asked before."""
        ...

    def source(self, name: str) -> Source:
        """What the page of a conversation is made of. Keys are given to what is sealed: a library may have others beside it."""
        ...


class _FolderHome:
    poll_seconds = 0.1  # two calls of `stat`
    is_near = True

    def __init__(self, directory: str, keys: Mapping[str, Any]) -> None:
        self.name = directory
        self._keys = keys

    def has(self, name: str) -> bool:
        if not name or name.startswith(".") or len(name) > 255 or any(c in name for c in "/\\\0"):
            return False
        path = self._path(name)
        return os.path.isdir(path) and not os.path.islink(path)

    def source(self, name: str) -> Source:
        path = self._path(name)
        return path, self._keys if self._is_sealed(path) else {}

    def _path(self, name: str) -> str:
        return os.path.join(self.name, name)

    def _is_sealed(self, path: str) -> bool:
        summary = summary_of(path)
        return summary is not None and summary.sealed


class _PlacedHome:
    poll_seconds = 1.0  # a request
    is_near = False

    def __init__(self, source: IndexSource, keys: Mapping[str, Any]) -> None:
        self.name = source.name
        self._source = source
        self._keys = keys
        self._asking = Lock()

    def has(self, name: str) -> bool:
        return is_id(name)

    def source(self, name: str) -> Source:
        return self._source.store(name, **(self._keys if self._keys and self._is_sealed(name) else {})), {}

    def _is_sealed(self, name: str) -> bool:
        with self._asking:
            summary = self._source.summary(name)
        return summary is not None and summary.sealed


def home_of(library: ConversationLibrary, keys: Mapping[str, Any]) -> ServedLibrary:
    """The library, to be served.

    Raises:
        ConversationNotFoundError: there is no such directory.
        TranscriptStoreError: the backend does not answer.
    """
    if getattr(library, "index_source", None) is not None:
        library.list(limit=1)
        return _PlacedHome(index_source(library), keys)
    if not os.path.isdir(library.directory):
        raise ConversationNotFoundError(path=library.directory, reason="there is no such directory")
    return _FolderHome(library.directory, keys)


# ---- views ----
# The conversations that are open in some browser: each is read and rendered once, for all viewers.

_MOST_IDLE = 4
"""How many unused rendered conversations are kept."""


class Lease:
    """A conversation that is open, and how many use it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.users = 0
        self.opening = Lock()
        self.live: LiveConversation | None = None

    @property
    def conversation(self) -> LiveConversation:
        assert self.live is not None
        return self.live

    def close(self) -> None:
        if self.live is not None:
            self.live.close()


class Views:
    """Conversations by their folder's name. A page and its events use the same."""

    def __init__(self, home: ServedLibrary) -> None:
        self._home = home
        self._mutex = Lock()
        self._leases: OrderedDict[str, Lease] = OrderedDict()

    @contextmanager
    def opened(self, name: str) -> Iterator[LiveConversation]:
        """The conversation, to be used in the block.

        Raises:
            TranscriptStoreError: as :class:`LiveConversation`.
        """
        lease = self.take(name)
        try:
            yield lease.conversation
        except TranscriptStoreError:
            self.forget(lease)
            raise
        finally:
            self.give_back(lease)

    def take(self, name: str) -> Lease:
        """The conversation, which stays open until it is given back.

        Raises:
            TranscriptStoreError: as :class:`LiveConversation`.
        """
        with self._mutex:
            lease = self._leases.setdefault(name, Lease(name))
            self._leases.move_to_end(name)
            lease.users += 1
        try:
            with lease.opening:
                if lease.live is None:
                    source, keys = self._home.source(name)
                    lease.live = LiveConversation(source, keys=keys)
        except BaseException:
            self.forget(lease)
            self.give_back(lease)
            raise
        return lease

    def give_back(self, lease: Lease) -> None:
        """Of the unused ones, the last used are kept."""
        with self._mutex:
            lease.users -= 1
            idle = [each for each in self._leases.values() if not each.users]
            gone = idle[: max(0, len(idle) - _MOST_IDLE)]
            for each in gone:
                del self._leases[each.name]
            if not lease.users and self._leases.get(lease.name) is not lease and lease not in gone:
                gone.append(lease)
        for each in gone:
            each.close()

    def forget(self, lease: Lease) -> None:
        """The next viewer reads it again: it is damaged or deleted, and may be repaired."""
        with self._mutex:
            if self._leases.get(lease.name) is lease:
                del self._leases[lease.name]

    def close(self) -> None:
        with self._mutex:
            leases, self._leases = list(self._leases.values()), OrderedDict()
        for lease in leases:
            lease.close()


_MOST_FACTS = 2_000
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
                    while len(self._known) > _MOST_FACTS:
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
