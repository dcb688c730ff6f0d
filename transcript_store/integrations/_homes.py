"""Where a framework's conversations are, how each is called there, and what it is opened with."""

from __future__ import annotations

import asyncio
import json
import os
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from transcript_store.conversation import ConversationStore, Durability, Redact
from transcript_store.file_names import absolute_path
from transcript_store.integrations._values import of_items
from transcript_store.library import ConversationLibrary

Home = str | ConversationLibrary
"""Where the conversations are: the absolute path of their folder, or a library, which may be on a place."""

NAMESPACE = UUID("6d1f1f0a-2f3c-5f0e-8a43-0b6a54f1c7d9")
"""It never changes: with another one no conversation would be found again."""
CACHE_BYTES = 1280 << 10
"""Of each open conversation at most so much is in memory: the end, which the next request reads again. A thousand messages of 1 KB
fit. What is read from the disk is verified again, which takes several times as long."""


class Options(NamedTuple):
    """What a conversation is opened with."""

    durability: Durability = "power-loss"
    lock_timeout_seconds: float = 10.0
    redact: Redact | None = None

    @classmethod
    def of(cls, home: Home, durability: Durability, lock_timeout_seconds: float, redact: Redact | None) -> Options:
        """With what the library takes out of messages, if nothing else was asked for."""
        if redact is None and isinstance(home, ConversationLibrary):
            redact = home.redact
        return cls(durability, lock_timeout_seconds, redact)

    def store(self, home: Home, id: str) -> ConversationStore:
        """A store that is not loaded; raises ``TypeError`` or ``ValueError`` if an option cannot be."""
        options: Any = {
            **self._replace(redact=of_items(self.redact))._asdict(),
            "hold_lock": False,
            "cache_bytes": CACHE_BYTES,
        }
        library = ConversationLibrary(home) if isinstance(home, str) else home
        return library.store(id, **options)

    def key(self) -> tuple[object, ...]:
        """Equal for two options that one store can be opened with."""
        try:
            hash(self.redact)
        except TypeError:  # an object that can be called, and compared by its value
            return *self[:2], id(self.redact)
        return tuple(self)


def id_of(framework: str, *key: str) -> str:
    """The id of the conversation that belongs to a key, which may hold any characters and any number of them.

    Raises:
        TypeError: it is no text. An id that a program forgot to set, None, would be one conversation for everybody.
    """
    for part in key:
        if not isinstance(part, str):
            raise TypeError(f"a key must be text, not {type(part).__name__}")
    return _id_of(framework, *key)


@lru_cache(maxsize=1000)  # a store of many sessions is told in each call which one is meant
def _id_of(*names: str) -> str:
    return str(uuid5(NAMESPACE, json.dumps(names)))


def home_at(directory: str | os.PathLike[str] | ConversationLibrary) -> Home:
    """The library that was given, or the absolute path of the folder with the conversations.

    In an event loop an absolute path is taken as it is, so that a constructor does not wait for the disk. Objects that name one folder
    through different links are then two writers, which take turns.

    Raises:
        TypeError: it is no path, and no library.
        ValueError: a file is there: the database of the store that was used before, say.
        NotAPathError: it is an address; make a library of its place.
    """
    if isinstance(directory, ConversationLibrary):
        return directory
    path = absolute_path(directory)
    given = os.path.expanduser(directory)
    if _is_in_an_event_loop() and os.path.isabs(given) and ".." not in given.split("/"):
        return path  # the disk is not asked here: the first call does that, in the store's thread, and refuses a file
    path = os.path.realpath(given)  # links are followed before ``..`` is
    if os.path.isfile(path):
        raise ValueError(f"{path} is a file: name the folder for the conversations, which is made if there is none")
    return path


def _is_in_an_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def path_of(home: Home) -> str:
    """What errors call a home, and what a conversation's path begins with."""
    return home if isinstance(home, str) else home.directory


def is_folder(home: Home) -> bool:
    """Whether the conversations are in a folder, and not on a place."""
    return isinstance(home, str) or type(home) is ConversationLibrary


def to_read(home: Home, id: str) -> ConversationStore:
    """The conversation's store, loaded to read.

    Raises:
        ConversationNotFoundError: nothing was stored yet.
        TranscriptStoreError: as ``ConversationStore.load``.
    """
    library = ConversationLibrary(home) if isinstance(home, str) else home
    store = library.store(id, read_only=True)
    store.load()
    return store
