"""The library that is served, in a directory or on a place: what stands in it, and what a page is made of. Nothing is written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from threading import Lock
from typing import Any, Protocol, TypeAlias

from transcript_store.conversation import ConversationStore
from transcript_store.errors import ConversationNotFoundError
from transcript_store.file_names import is_id
from transcript_store.library import ConversationLibrary
from transcript_store.search import Shelf, shelf_of
from transcript_store.transcripts import summary_of

Source: TypeAlias = "tuple[str | ConversationStore, Mapping[str, Any]]"
"""A folder and the keys of what is in it; or a store that is not loaded yet."""


class Home(Protocol):
    """A library. A conversation is called by its folder's name, or its id. Several threads may ask."""

    name: str
    """What the pages call it. It has no user, no password and no options."""
    poll_seconds: float
    """How often a conversation that somebody looks at is asked for news."""

    def has(self, name: str) -> bool:
        """Whether a conversation may have this name: it comes from a browser, and nothing is asked of a disk or a server before."""
        ...

    def source(self, name: str) -> Source:
        """What the page of a conversation is made of. Keys are given to what is sealed: a library may have others beside it."""
        ...


class _FolderHome:
    poll_seconds = 0.1  # two calls of `stat`

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

    def __init__(self, shelf: Shelf, keys: Mapping[str, Any]) -> None:
        self.name = shelf.name
        self._shelf = shelf
        self._keys = keys
        self._asking = Lock()

    def has(self, name: str) -> bool:
        return is_id(name)

    def source(self, name: str) -> Source:
        return self._shelf.store(name, **(self._keys if self._keys and self._is_sealed(name) else {})), {}

    def _is_sealed(self, name: str) -> bool:
        with self._asking:
            summary = self._shelf.summary(name)
        return summary is not None and summary.sealed


def home_of(library: ConversationLibrary, keys: Mapping[str, Any]) -> Home:
    """The library, to be served.

    Raises:
        ConversationNotFoundError: there is no such directory.
        TranscriptStoreError: nobody answers on the place.
    """
    if getattr(library, "shelf", None) is not None:
        library.list(limit=1)
        return _PlacedHome(shelf_of(library), keys)
    if not os.path.isdir(library.directory):
        raise ConversationNotFoundError(path=library.directory, reason="there is no such directory")
    return _FolderHome(library.directory, keys)
