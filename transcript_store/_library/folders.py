"""The folders of a library: which names there are, and what stands under them."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace

from transcript_store._conversation import leftovers
from transcript_store._conversation.deleting import delete
from transcript_store._conversation.deletions import deleted_ids, note_deletion
from transcript_store._conversation.key_changes import IS_NOT_THERE, Rotation, Rotator, Shredding, id_of, several, shred
from transcript_store._conversation.reader import Reader
from transcript_store._conversation.storage import Options
from transcript_store._conversation.summary import ConversationSummary, summarize
from transcript_store._conversation.writer import Writer
from transcript_store._library.writers import ConversationWriter, writers_in
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import is_id, is_trash, stage_of
from transcript_store._os.refusals import kind_of, refusals
from transcript_store._sealing.providers import Keyring
from transcript_store.conversation import DEFAULT_MAX_LINE_BYTES
from transcript_store.errors import (
    ConversationExistsError,
    ConversationNotFoundError,
    CorruptTranscriptError,
    StorageError,
)
from transcript_store.ways_out import WayOut


class Folders:
    """The directory of one library. A folder of a conversation that the library made is called by its id; others may be there."""

    def __init__(self, files: FileSystem, path: str, keys: Keyring | None) -> None:
        self.files = files
        self.path = path
        self.keys = keys

    @property
    def options(self) -> Options:
        """Of a conversation that the library itself reads or writes."""
        return Options(max_line_bytes=DEFAULT_MAX_LINE_BYTES, keys=self.keys)

    def path_of(self, name: str) -> str:
        """The path of the folder with this name."""
        return f"{self.path.rstrip('/')}/{name}"

    def reader(self, id: str) -> Reader:
        """The conversation with this id, to be copied; nothing is looked at yet."""
        return Reader(self.files, self.path_of(id), self.options, from_medium=True)

    def writer(self, id: str) -> Writer:
        """The conversation with this id, to be created; nothing is looked at yet."""
        return Writer(self.files, self.path_of(id), self.options)

    # ---- what stands under a name --------------------------------------------------------------------------------

    def require(self, name: str) -> None:
        """Raise unless a directory has this name. Only the path of the library itself may go through symbolic links."""
        with refusals(self.path, "look into the library"):
            try:
                with Folder.open(self.files, self.path) as parent:
                    status = parent.status(name)
            except FileNotFoundError:
                status = None
        if status is None:
            raise self.not_found(name)
        if not stat.S_ISDIR(status.st_mode):
            reason = f"{kind_of(status)} stands where a conversation's folder should be"
            raise CorruptTranscriptError(path=self.path_of(name), kind="foreign", reason=reason)

    def refuse_occupied(self, id: str) -> None:
        """Raise if a create would follow a symbolic link, and leave the library."""
        try:
            self.require(id)
        except ConversationNotFoundError:
            pass
        except CorruptTranscriptError as error:
            raise ConversationExistsError(path=self.path_of(id), reason=error.reason) from None

    def require_its_own(self, id: str, found: str) -> None:
        """Raise if another conversation was found in the folder that is called by this id."""
        if found != id:
            reason = _in_another_folder(found, id)
            raise CorruptTranscriptError(path=self.path_of(id), kind="wrong-conversation", reason=reason)

    def not_found(self, name: str) -> ConversationNotFoundError:
        """The error for a conversation of this name, or one whose name begins so."""
        reason = "there is no such conversation in the library"
        return ConversationNotFoundError(path=self.path_of(name), reason=reason, way_out=WayOut.LIST_TELLS)

    # ---- all of them ---------------------------------------------------------------------------------------------

    def summaries(self, last_extra: bool) -> list[ConversationSummary]:
        """Of every conversation, whatever its folder is called, the one that changed last first.

        Raises ``ConversationNotFoundError`` if there is no such directory.
        """
        with refusals(self.path, "list the conversations"):
            try:
                parent = Folder.open(self.files, self.path)
            except FileNotFoundError:
                raise ConversationNotFoundError(path=self.path, reason="there is no such directory") from None
            with parent:
                names = (name for name in parent.names() if not is_trash(name) and stage_of(name) is None)
                looked_at = (summarize(parent, name, last_extra) for name in names)
                found = [summary for summary in looked_at if summary is not None]
        return sorted(found, key=_newest_first, reverse=True)

    def writers(self) -> list[ConversationWriter]:
        """Who holds the lock of which conversation; none if there is no such directory."""
        with refusals(self.path, "look for writers"):
            try:
                parent = Folder.open(self.files, self.path)
            except FileNotFoundError:
                return []
            with parent:
                return list(writers_in(parent, [name for name in parent.names() if is_id(name)]))

    def ids(self) -> list[str]:
        """The ids by which folders are called; none if there is no such directory."""
        with refusals(self.path, "list the conversations"):
            try:
                parent = Folder.open(self.files, self.path)
            except FileNotFoundError:
                return []
            with parent:
                return [name for name in parent.names() if is_id(name)]

    def summaries_by_id(self, last_extra: bool, before: ConversationSummary | None) -> list[ConversationSummary]:
        """Of those whose folders are called by ids, from behind ``before`` on; none if there is no such directory."""
        try:
            found = self.summaries(last_extra)
        except ConversationNotFoundError:
            return []
        named = [
            summary if summary.id == name else _misplaced(summary, name)
            for summary in found
            if is_id(name := summary.directory.rpartition("/")[2])
        ]
        return [summary for summary in named if before is None or _newest_first(summary) < _newest_first(before)]

    # ---- creates, and what they leave ----------------------------------------------------------------------------

    def sweep(self, doing: str, path: str) -> None:
        """Remove what is left of creates that were cut off, and sync what an earlier delete could not, before another one
        says that something is gone.
        """
        with refusals(path, doing):
            leftovers.sweep(self.files, self.path)

    def making(self, id: str, *, is_told: bool = False) -> AbstractContextManager[None]:
        """While a conversation is being created: hold a note of it, and if that fails remove what is left.

        An id that the caller chose is told: something else may stand there, or come there, so nothing is removed.
        """
        return self._noted(id, is_told)

    @contextmanager
    def _noted(self, id: str, is_told: bool) -> Iterator[None]:
        with suppress(OSError):
            leftovers.sweep(self.files, self.path)
        with leftovers.noted(self.files, self.path, id):
            try:
                yield
            except BaseException:
                if not is_told:
                    leftovers.discard(self.files, self.path, id)
                raise

    # ---- deletes, and keys ---------------------------------------------------------------------------------------

    def delete(self, name: str) -> None:
        """Delete a conversation, with all that it has."""
        checked_name(name)
        self.sweep("delete the conversation", self.path_of(name))
        self.require(name)
        delete(self.files, self.path, name)

    def rotate(self, keys: Keyring, names: Iterable[str] | None) -> Rotation:
        """Wrap the data keys of these folders anew, or of all that are called by an id."""
        chosen = several(names)
        if chosen is not None:
            chosen = [checked_name(name) for name in chosen]
        with refusals(self.path, "rotate the key"):
            try:
                parent = Folder.open(self.files, self.path)
            except FileNotFoundError:
                return Rotation(rotated=(), already=(), left_alone=tuple((name, IS_NOT_THERE) for name in chosen or ()))
            with parent:
                if chosen is not None:
                    return Rotator(parent, keys, by_any_name=True).rotate(chosen)
                return Rotator(parent, keys).rotate(parent.names())

    def shred(self, name: str, id: str | None) -> Shredding:
        """Destroy the key of the conversation in this folder; ``id`` is whose it should be, None if that is not known."""
        path = self.path_of(checked_name(name))
        self.require(name)
        with refusals(path, "destroy the key"):
            try:
                folder = Folder.open(self.files, path)
            except FileNotFoundError:
                raise self.not_found(name) from None
            with folder:
                done = shred(folder, id or id_of(folder))
                with suppress(StorageError, OSError), Folder.open(self.files, self.path) as parent:
                    note_deletion(parent, name, folder)  # its folder keeps an import away, too, until it is deleted
                return done

    def deleted_ids(self) -> frozenset[str]:
        """The ids of what was imported, and deleted here since."""
        return deleted_ids(self.files, self.path)


def checked_name(name: str) -> str:
    """The name of a folder in a library; raises ``TypeError`` or ``ValueError`` for what would lead elsewhere."""
    if type(name) is not str:
        raise TypeError(f"a folder's name must be a str, not {type(name).__name__}")
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is not the name of a folder in the library: it must be one part of a path")
    return name


def _misplaced(summary: ConversationSummary, name: str) -> ConversationSummary:
    """The summary of a folder whose metadata is of another conversation, or cannot be read."""
    problems = [summary.damage] if summary.damage else []
    if summary.id is not None:
        problems.append(_in_another_folder(summary.id, name))
    return replace(summary, id=name, damage="; ".join(problems))


def _newest_first(summary: ConversationSummary) -> tuple[str, str]:
    return summary.updated_at or "", summary.directory


def _in_another_folder(found: str, id: str) -> str:
    return f"conversation {found} is in the folder that belongs to {id}"
