"""The library that is served, in a directory or on a place: what stands in it, and what a page is made of. Nothing is written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from threading import Lock
from typing import Any, Protocol, TypeAlias

from transcript_store.conversation import ConversationStore
from transcript_store.errors import ConversationNotFoundError, TranscriptStoreError
from transcript_store.file_names import TRANSCRIPT, is_id
from transcript_store.library import ConversationLibrary
from transcript_store.search import Shelf, shelf_of
from transcript_store.transcripts import summary_of
from transcript_store.view import first_prompt

_MOST_NAMES = 10_000

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

    def called(self, name: str) -> str | None:
        """What a conversation without a title is called in a list; None if there is no word for it, or it cannot be read."""
        ...


class _FolderHome:
    poll_seconds = 0.1  # two calls of `stat`

    def __init__(self, directory: str, keys: Mapping[str, Any]) -> None:
        self.name = directory
        self._keys = keys
        self._names: dict[str, tuple[int, str]] = {}

    def has(self, name: str) -> bool:
        if not name or name.startswith(".") or len(name) > 255 or any(c in name for c in "/\\\0"):
            return False
        path = self._path(name)
        return os.path.isdir(path) and not os.path.islink(path)

    def source(self, name: str) -> Source:
        path = self._path(name)
        return path, self._keys if self._is_sealed(path) else {}

    def called(self, name: str) -> str | None:
        """Its first prompt; None if it is sealed: that is not read for a list."""
        path = self._path(name)
        try:
            inode = os.stat(os.path.join(path, TRANSCRIPT)).st_ino
            if (found := self._names.get(name)) and found[0] == inode:
                return found[1]
            called = first_prompt(path) if self.has(name) and not (self._keys and self._is_sealed(path)) else None
        except (OSError, TranscriptStoreError):
            return None
        if called:  # it stands in its place until another transcript takes the place of this one
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            self._names[name] = inode, called
        return called

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

    def called(self, name: str) -> None:
        """None: all of a conversation would be fetched for its first line."""

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
