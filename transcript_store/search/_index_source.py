"""Where the conversations of an index are: what it asks of a folder, and of a library that is not in a folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from transcript_store.errors import StorageError, TranscriptStoreError
from transcript_store.hints import Hint, way_out_of_number
from transcript_store.transcripts import TranscriptFile, open_transcript, summary_of

if TYPE_CHECKING:
    from transcript_store.conversation import ConversationStore
    from transcript_store.library import ConversationLibrary, ConversationSummary


_OF_THE_PROCESS = frozenset({Hint.ALLOW_MORE_FILES, Hint.FREE_MEMORY})


def raise_if_of_the_process(error: TranscriptStoreError) -> None:
    """Raise an error that says what this process lacks. It says nothing of a conversation, so none may be missing for it."""
    if error.hint in _OF_THE_PROCESS:
        raise error


def index_error(error: OSError, path: str, doing: str) -> StorageError:
    """What the system refused, with what to do about it."""
    number = error.errno or errno.EIO
    why = error.strerror or str(error)
    return StorageError(path=path, doing=doing, errno=number, strerror=why, hint=way_out_of_number(number))


class IndexSource(Protocol):
    """A library as an index reads it: a conversation is called by its folder, on a place by its id. Only one thread at a time may ask."""

    name: str
    """What errors call it: of a place the address, without its user, password and options."""

    identity: str | None
    """What names its index: the same for the same library, on each host and in each process. None: its index is kept by nobody."""

    def path(self, folder: str) -> str:
        """What a conversation is called to people."""
        ...

    def summary(self, folder: str) -> ConversationSummary | None:
        """A line of a list, as it stands there now; None if there is no conversation any more."""
        ...

    def transcript(self, folder: str) -> AbstractContextManager[TranscriptFile]:
        """The live transcript, as it stands there now."""
        ...

    def store(self, folder: str, **keys: Any) -> ConversationStore:
        """A store that reads a conversation, not loaded yet."""
        ...

    def close(self) -> None:
        """Let go of what is held for the next call."""
        ...


class TrackedIndexSource(IndexSource, Protocol):
    """One whose conversations look as somebody says, and not as files do."""

    def looks(self, known: Mapping[str, str], *, refresh: bool) -> tuple[Iterator[list[tuple[str, str]]], bool]:
        """Pages of all conversations with how they look. Whether they look so now, or only did when somebody left word."""
        ...


class FolderShelf:
    """A library in a directory."""

    def __init__(self, directory: str) -> None:
        self.name: str = directory
        self.identity: str | None = directory

    def names(self) -> list[bytes]:
        """What stands there, conversations among it.

        Raises:
            StorageError: the library cannot be read. (One that does not exist has no conversations.)
        """
        try:
            return [name for name in os.listdir(os.fsencode(self.name)) if not name.startswith(b".")]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise index_error(error, self.name, "list the conversations") from error

    def path(self, folder: str) -> str:
        return f"{self.name}/{folder}"

    def summary(self, folder: str) -> ConversationSummary | None:
        return summary_of(self.path(folder))

    def transcript(self, folder: str) -> AbstractContextManager[TranscriptFile]:
        return open_transcript(self.path(folder))

    def store(self, folder: str, **keys: Any) -> ConversationStore:
        from transcript_store.conversation import ConversationStore

        return ConversationStore(self.path(folder), read_only=True, **keys)

    def close(self) -> None:
        """Nothing: each file is closed when it was read."""


def index_source(library: ConversationLibrary | str) -> FolderShelf | TrackedIndexSource:
    """A library, or its directory, as an index reads it, whatever it is on. Close it. It claims nothing, and takes no lock."""
    if isinstance(library, str):
        return FolderShelf(library)
    found: TrackedIndexSource | None = getattr(library, "shelf", None)
    return FolderShelf(library.directory) if found is None else found
