"""What does the server read from its library, in a directory or on a backend? Nothing is written."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, Protocol, TypeAlias

from transcript_store.conversation import ConversationStore
from transcript_store.errors import ConversationNotFoundError, TranscriptStoreError
from transcript_store.file_names import is_id
from transcript_store.library import ConversationLibrary
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

_MOST = 4
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
            gone = idle[: max(0, len(idle) - _MOST)]
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
