"""The folders of a library, and their contents."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

import orjson

from transcript_store._conversation import deleting
from transcript_store._conversation.arguments import require_count
from transcript_store._conversation.deleting import delete, deleted_ids, note_deletion
from transcript_store._conversation.key_changes import (
    IS_NOT_THERE,
    Rotation,
    Rotator,
    Shredding,
    id_in_folder,
    several,
    shred,
)
from transcript_store._conversation.metadata import copied_members
from transcript_store._conversation.storage import Reader, StorageOptions
from transcript_store._conversation.summary import ConversationSummary, summarize
from transcript_store._conversation.writer import Writer
from transcript_store._os.directory import Folder, identity
from transcript_store._os.filesystem import FileSystem, NotOursError, kind_of, refusals
from transcript_store._os.lock import is_alive, locked_files
from transcript_store._os.names import LOCK, is_id, is_trash, new_id, stage_of
from transcript_store._sealing.keys import Keyring
from transcript_store.conversation import DEFAULT_MAX_LINE_BYTES
from transcript_store.display import many
from transcript_store.errors import (
    ConversationExistsError,
    ConversationNotFoundError,
    CorruptTranscriptError,
    KeyNeededError,
    StorageError,
)
from transcript_store.hints import Hint

# ---- writers ----
# Who is writing to which conversations of a library right now?


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationWriter:
    """A writer that has a conversation open, by its own account. Unknown members are None."""

    id: str
    """The conversation's."""
    pid: int | None
    host: str | None
    since: str | None
    """When it took the lock, or on a backend claimed the conversation: RFC 3339, by its own clock."""
    name: str | None = None
    """On a backend the ``holder=`` that it was opened with."""
    last_write_at: str | None = None
    """On a backend when it wrote last, by its own clock."""
    takes_turns: bool = False
    """True if it was opened with ``hold_lock=False`` on a backend: then others may write too."""


def writers_in(library: Folder, ids: list[str]) -> Iterator[ConversationWriter]:
    """The writers that hold the lock of a conversation in a directory. No lock is taken."""
    locked, host = locked_files(), library.files.host_name()
    for its_id in sorted(ids):
        with suppress(FileNotFoundError, NotOursError):
            with library.subfolder(its_id) as folder, folder.reading(LOCK) as source:
                pid, at_host, since = _name_in(bytes(source.read(0, min(source.size, 4096))))
                file = identity(source.status)
            # Without a table of locks the name in the file is all there is. It may be that of a process that has ended,
            # so it must be alive.
            if locked is None:
                is_held = pid is not None and at_host == host and is_alive(pid)
            else:
                is_held = file in locked or (pid is not None and (-pid, file[1]) in locked)
            if is_held:
                yield ConversationWriter(id=its_id, pid=pid, host=at_host, since=since)


def _name_in(content: bytes) -> tuple[int | None, str | None, str | None]:
    try:
        holder = orjson.loads(content.partition(b"\n")[0])
    except orjson.JSONDecodeError:
        holder = None
    if type(holder) is not dict:
        return None, None, None
    pid, host, at = (holder.get(part) for part in ("pid", "host", "at"))
    return (pid if type(pid) is int else None), (host if type(host) is str else None), (at if type(at) is str else None)


# ---- folders ----


class Folders:
    """The directory of one library. A conversation's folder that the library created is named by its id; other folders
    may exist.
    """

    def __init__(self, files: FileSystem, path: str, keys: Keyring | None) -> None:
        self.files = files
        self.path = path
        self.keys = keys

    @property
    def options(self) -> StorageOptions:
        """The options for a conversation that the library itself reads or writes."""
        return StorageOptions(max_line_bytes=DEFAULT_MAX_LINE_BYTES, keys=self.keys)

    def path_of(self, name: str) -> str:
        """The path of the folder with this name."""
        return f"{self.path.rstrip('/')}/{name}"

    def reader(self, id: str) -> Reader:
        """The conversation with this id, to be copied; nothing is read yet."""
        return Reader(self.files, self.path_of(id), self.options, from_medium=True)

    def writer(self, id: str) -> Writer:
        """The conversation with this id, to be created; nothing is read yet."""
        return Writer(self.files, self.path_of(id), self.options)

    # ---- names --------------------------------------------------------------------------------

    def require(self, name: str) -> None:
        """Raise unless a directory has this name. Only the path of the library itself may go through symbolic links."""
        with refusals(self.path, "read the library"):
            try:
                with Folder.open(self.files, self.path) as parent:
                    status = parent.status(name)
            except FileNotFoundError:
                status = None
        if status is None:
            raise self.not_found(name)
        if not stat.S_ISDIR(status.st_mode):
            reason = f"{kind_of(status)} is in the place of a conversation's folder"
            raise CorruptTranscriptError(path=self.path_of(name), kind="foreign", reason=reason)

    def refuse_occupied(self, id: str) -> None:
        """Raise if a create would follow a symbolic link out of the library."""
        try:
            self.require(id)
        except ConversationNotFoundError:
            pass
        except CorruptTranscriptError as error:
            raise ConversationExistsError(path=self.path_of(id), reason=error.reason) from None

    def require_its_own(self, id: str, found: str) -> None:
        """Raise if the folder with this id holds another conversation."""
        if found != id:
            reason = in_another_folder(found, id)
            path, hint = self.path_of(id), Hint.RENAME_THE_FOLDER
            raise CorruptTranscriptError(path=path, kind="wrong-conversation", reason=reason, hint=hint)

    def not_found(self, name: str) -> ConversationNotFoundError:
        """The error for a conversation with this name, or whose name starts so."""
        reason = "there is no such conversation in the library"
        return ConversationNotFoundError(path=self.path_of(name), reason=reason, hint=Hint.LIST_CONVERSATIONS)

    # ---- all of them ---------------------------------------------------------------------------------------------

    def summaries(self, last_extra: bool) -> list[ConversationSummary]:
        """The summaries of all conversations, whatever their folders are called, the last changed one first.

        Raises ``ConversationNotFoundError`` if there is no such directory.
        """
        with refusals(self.path, "list the conversations"):
            try:
                parent = Folder.open(self.files, self.path)
            except FileNotFoundError:
                raise ConversationNotFoundError(path=self.path, reason="there is no such directory") from None
            with parent:
                # Staged and trashed conversations are not part of the library: a kill may have left them.
                names = (name for name in parent.names() if not is_trash(name) and stage_of(name) is None)
                looked_at = (summarize(parent, name, last_extra) for name in names)
                found = [summary for summary in looked_at if summary is not None]
        return sorted(found, key=_newest_first, reverse=True)

    def writers(self) -> list[ConversationWriter]:
        """The lock holders by conversation; empty if there is no such directory."""
        with refusals(self.path, "look for writers"):
            try:
                parent = Folder.open(self.files, self.path)
            except FileNotFoundError:
                return []
            with parent:
                return list(writers_in(parent, [name for name in parent.names() if is_id(name)]))

    def ids(self) -> list[str]:
        """The ids that name folders; empty if there is no such directory."""
        with refusals(self.path, "list the conversations"):
            try:
                parent = Folder.open(self.files, self.path)
            except FileNotFoundError:
                return []
            with parent:
                return [name for name in parent.names() if is_id(name)]

    def summaries_by_id(self, last_extra: bool, before: ConversationSummary | None) -> list[ConversationSummary]:
        """The summaries of folders named by ids, after ``before``; empty if there is no such directory."""
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

    # ---- creates and their leftovers ----------------------------------------------------------------------------

    def sweep(self, doing: str, path: str) -> None:
        """Remove the leftovers of interrupted creates, and sync what an earlier delete could not, before another one
        reports a deletion.
        """
        with refusals(path, doing):
            deleting.sweep(self.files, self.path)

    def making(self, id: str, *, is_reported: bool = False) -> AbstractContextManager[None]:
        """While a conversation is being created, hold a creation note; if that fails, remove the leftovers.

        If the caller chose the id, nothing is removed: something else may exist there, or be created there.
        """
        return self._noted(id, is_reported)

    @contextmanager
    def _noted(self, id: str, is_reported: bool) -> Iterator[None]:
        with suppress(OSError):
            deleting.sweep(self.files, self.path)
        with deleting.noted(self.files, self.path, id):
            try:
                yield
            except BaseException:
                if not is_reported:
                    deleting.discard(self.files, self.path, id)
                raise

    # ---- deletes, and keys ---------------------------------------------------------------------------------------

    def delete(self, name: str) -> None:
        """Delete a conversation, with all that it has."""
        checked_name(name)
        self.sweep("delete the conversation", self.path_of(name))
        self.require(name)
        delete(self.files, self.path, name)

    def rotate(self, keys: Keyring, names: Iterable[str] | None) -> Rotation:
        """Wrap the data keys of these folders again, or of all that are named by an id."""
        chosen = several(names)
        if chosen is not None:
            chosen = [checked_name(name) for name in chosen]
        with refusals(self.path, "rotate the key"):
            try:
                parent = Folder.open(self.files, self.path)
            except FileNotFoundError:
                return Rotation(
                    rotated=(), already_current=(), skipped=tuple((name, IS_NOT_THERE) for name in chosen or ())
                )
            with parent:
                if chosen is not None:
                    return Rotator(parent, keys, by_any_name=True).rotate(chosen)
                return Rotator(parent, keys).rotate(parent.names())

    def shred(self, name: str, id: str | None) -> Shredding:
        """Destroy the key of the conversation in this folder; ``id`` is the expected conversation, None if unknown."""
        path = self.path_of(checked_name(name))
        self.require(name)
        with refusals(path, "destroy the key"):
            try:
                folder = Folder.open(self.files, path)
            except FileNotFoundError:
                raise self.not_found(name) from None
            with folder:
                done = shred(folder, id or id_in_folder(folder))
                # The key is destroyed, and that must be reported: a note that cannot be written changes nothing about
                # it.
                with suppress(StorageError, OSError), Folder.open(self.files, self.path) as parent:
                    note_deletion(parent, name, folder)  # until it is deleted, its folder keeps an import away, too
                return done

    def deleted_ids(self) -> frozenset[str]:
        """The ids of imported conversations that were deleted here."""
        return deleted_ids(self.files, self.path)


def checked_name(name: str) -> str:
    """The name of a folder in a library; raises ``TypeError`` or ``ValueError`` for a name that would lead elsewhere."""
    if type(name) is not str:
        raise TypeError(f"a folder's name must be a str, not {type(name).__name__}")
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is not the name of a folder in the library: it must be one part of a path")
    return name


def _misplaced(summary: ConversationSummary, name: str) -> ConversationSummary:
    """The summary of a folder whose metadata is of another conversation, or cannot be read."""
    problems = [summary.damage] if summary.damage else []
    if summary.id is not None:
        problems.append(in_another_folder(summary.id, name))
    return replace(summary, id=name, damage="; ".join(problems))


def _newest_first(summary: ConversationSummary) -> tuple[str, str]:
    return summary.updated_at or "", summary.directory


def in_another_folder(found: str, id: str) -> str:
    """The sentence for a folder whose name is the id of another conversation."""
    return f"conversation {found} is in the folder that belongs to {id}"


# ---- forking ----
# Copies a conversation into a new one: its records up to a number, byte for byte, in one commit.


def fork(source: Reader, into: Folders, through_seq: int | None, named: tuple[Folders, str] | None = None) -> str:
    """Copy what ``source`` reads into a new conversation of ``into``; returns its id.

    ``named`` is the library of the original, with its id there; None if the original is in any folder.
    """
    if through_seq is not None:
        require_count("through_seq", through_seq)
    with source.let_go_at_the_end():
        if named is not None:
            named[0].require(named[1])
        source.load()
        # A fork must not have a record that a power loss takes from the original.
        source.sync_before_copy()
        source_id, log = source.members["id"], source.log
        # The plaintext of a sealed conversation is never written to a library without a key (P17).
        if log.sealer_to_write() is not None and into.keys is None:
            reason = "the original is sealed, and the library that it is to be forked into has no key"
            raise KeyNeededError(path=into.path, reason=reason)
        if named is not None:
            named[0].require_its_own(named[1], source_id)
        count = log.end.seq if through_seq is None else through_seq
        if count > log.end.seq:
            there = many(log.end.seq, "record")
            raise ValueError(f"through_seq is {count}, and conversation {source_id} has {there}")
        origin = {
            "conversation": source_id,
            "generation": log.header.generation,
            "seq": count,
            "head": log.place_after(count).head.decode(),
        }
        fork_id = new_id(into.files)
        members_at = partial(copied_members, source.members, id=fork_id, forked_from=origin)
        writer = into.writer(fork_id)
        with into.making(fork_id), writer.let_go_at_the_end():
            writer.create(members_at, log.copies(count), log.header.features, count)
            writer.close()
        return fork_id
