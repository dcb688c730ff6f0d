"""How does an index read a library, in a folder or elsewhere?"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from transcript_store.errors import StorageError, TranscriptStoreError
from transcript_store.hints import Hint, hint_of_errno
from transcript_store.transcripts import TranscriptFile, open_transcript, summary_of

if TYPE_CHECKING:
    from transcript_store.conversation import ConversationStore
    from transcript_store.library import ConversationLibrary, ConversationSummary


_OF_THE_PROCESS = frozenset({Hint.ALLOW_MORE_FILES, Hint.FREE_MEMORY})


def raise_if_of_the_process(error: TranscriptStoreError) -> None:
    """Raise an error about this process itself (files, memory): no conversation may be skipped for it."""
    if error.hint in _OF_THE_PROCESS:
        raise error


def index_error(error: OSError, path: str, doing: str) -> StorageError:
    """The system's refusal, with a hint."""
    number = error.errno or errno.EIO
    why = error.strerror or str(error)
    return StorageError(path=path, doing=doing, errno=number, strerror=why, hint=hint_of_errno(number))


class IndexSource(Protocol):
    """A library as an index reads it: a conversation is named by its folder, on a backend by its id. Only one thread at
    a time may use it.
    """

    name: str
    """Its name in errors: for a backend the address, without its user, password and options."""

    identity: str | None
    """The name of its index: the same for a library on each host and in each process. None: its index is not kept."""

    def path(self, folder: str) -> str:
        """The name of a conversation for people."""
        ...

    def summary(self, folder: str) -> ConversationSummary | None:
        """The current row of a listing; None if the conversation no longer exists."""
        ...

    def transcript(self, folder: str) -> AbstractContextManager[TranscriptFile]:
        """The current live transcript."""
        ...

    def store(self, folder: str, **keys: Any) -> ConversationStore:
        """A store that reads a conversation, not loaded yet."""
        ...

    def close(self) -> None:
        """Release the resources kept for the next call."""
        ...


class TrackedIndexSource(IndexSource, Protocol):
    """An index source that reports the stamps of its conversations itself, instead of files."""

    def looks(self, known: Mapping[str, str], *, refresh: bool) -> tuple[Iterator[list[tuple[str, str]]], bool]:
        """Pages of all conversations with their stamps, and whether these are current or only the last reported ones."""
        ...


class FolderIndexSource:
    """A library in a directory."""

    def __init__(self, directory: str) -> None:
        self.name: str = directory
        self.identity: str | None = directory

    def names(self) -> list[bytes]:
        """All names in the directory, conversations among them.

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
        """No-op: each file is closed after it was read."""


def index_source(library: ConversationLibrary | str) -> FolderIndexSource | TrackedIndexSource:
    """The index source of a library, or of its directory. Close it. It claims nothing, and takes no lock."""
    if isinstance(library, str):
        return FolderIndexSource(library)
    found: TrackedIndexSource | None = getattr(library, "index_source", None)
    return FolderIndexSource(library.directory) if found is None else found
