"""One conversation, read without a lock beside a writer at work. Nothing here is written."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from transcript_store._conversation.layout import open_folder, read_metadata, settle_name, twice
from transcript_store._conversation.storage import State, Storage
from transcript_store._log.record import Mark
from transcript_store._os.directory import identity
from transcript_store._os.names import TRANSCRIPT
from transcript_store._os.refusals import refusals
from transcript_store.errors import CorruptMetadataError, CorruptTranscriptError, UnsupportedVersionError


class RefreshResult(NamedTuple):
    """What ``refresh()`` saw: how many records are new, and whether the transcript was read from its start again."""

    records_added: int
    started_over: bool


class Reader(Storage):
    """A conversation as one reader sees it: what was there when it was loaded, or last refreshed."""

    writable = False

    def load_what_is_there(self) -> bool:
        if (error := twice(self.files, self._try_to_read, lambda error: error is None, key=str)) is not None:
            raise error
        self.state = State.READY
        return True

    def _try_to_read(self) -> CorruptTranscriptError | CorruptMetadataError | None:
        try:
            self.take_in()
        except (CorruptTranscriptError, CorruptMetadataError) as error:
            return error
        return None

    def refresh(self) -> RefreshResult:
        """Read what was added since; start over if another transcript stands there, or the one that was read was changed."""
        with refusals(self.path, "read the conversation again"):
            self._reopen()
            before = self.log.end.seq
            status = self.folder.status(TRANSCRIPT)
            if status is not None and identity(status) == self.log.inode and self.log.read_on():
                document = read_metadata(self.folder)
                if document.members["id"] == self.log.header.conversation:
                    # After a replace the metadata may be that of the next generation already; the next refresh starts over.
                    if document.members["generation"] == self.log.header.generation:
                        self.members = self.opened(document)
                    return RefreshResult(self.log.end.seq - before, False)
                # Another conversation's metadata.json was put here: the load names both conversations.
            self.load_what_is_there()
            return RefreshResult(self.log.end.seq, True)

    def _reopen(self) -> None:
        self.folder.take_over(open_folder(self.files, self.path, absent="the conversation is gone"))

    def members_now(self) -> dict[str, Any]:
        """The members as they are on the disk; those that were read, if what stands there now cannot be believed."""
        with suppress(CorruptMetadataError, CorruptTranscriptError, UnsupportedVersionError):
            return self.opened(read_metadata(self.folder))
        return self.members

    def resolve(self) -> None:
        """Nothing to do: a reader writes nothing, and an interrupted refresh leaves what was known before."""

    def sync_before_copy(self) -> None:
        """Sync what its writer may not have synced, and read it again from the medium.

        After a failed sync of the writer, the operating system's cache shows bytes that the disk never got, and another sync
        reports success. So the cache is not believed. Only what the mark covers need not be read again.
        """
        with refusals(self.path, "sync what is to be copied", "Nothing was copied"):
            if not self.from_medium and self.mark != Mark(self.log.header.generation, self.log.end):
                self.from_medium = True
                try:
                    self._reopen()
                    self.load_what_is_there()
                finally:
                    self.from_medium = False
            settle_name(self.folder)
            self.folder.sync_to_copy()  # the names of the transcript and of the metadata

    def close(self) -> None:
        """Let go: there is nothing to finish."""
        self.let_go()
