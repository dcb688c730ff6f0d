"""Many conversations under one directory, each in a folder that is named by its id.

.. code-block:: python

    from transcript_store import ConversationLibrary

    library = ConversationLibrary("chats")
    with library.create(provider="claude", labels={"title": "Moving house"}) as conversation:
        conversation.append_message({"role": "user", "content": "Where do I begin?"})
        id = conversation.get_metadata().id
    for summary in library.list():
        print(summary.id, summary.title, summary.record_count)
    with library.open(library.fork(id, through_seq=1)) as fork:
        print(fork.get_messages())
"""

from __future__ import annotations

import builtins
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any, Literal, TypedDict, Unpack

from transcript_store._conversation.layout import occupant_of, require_conversation, strangers
from transcript_store._conversation.metadata import checked_id, copied_members
from transcript_store._conversation.storage import Storage
from transcript_store._conversation.summary import ConversationSummary, summarize
from transcript_store._os import filesystem
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.lock import Lock
from transcript_store._os.names import LOCK, is_id, is_trash, new_id, note_name, noted_id, trash_name
from transcript_store._os.refusals import NotOursError, kind_of, refusals
from transcript_store.conversation import DEFAULT_MAX_LINE_BYTES, ConversationStore, Durability, NewConversation
from transcript_store.errors import (
    ConversationExistsError,
    ConversationLockedError,
    ConversationNotFoundError,
    CorruptMetadataError,
    CorruptTranscriptError,
    UnsupportedVersionError,
)
from transcript_store.ways_out import WayOut
from transcript_store.words import many

__all__ = [
    "ConversationLibrary",
    "ConversationSummary",
    "CreateArguments",
    "StoreOptions",
    "delete_conversation",
    "list_conversations",
]

_NOTE_TIMEOUT_SECONDS = 10.0


class StoreOptions(TypedDict, total=False):
    """What a :class:`ConversationStore` can be opened with, beside its directory."""

    durability: Durability
    read_only: bool
    lock_timeout_seconds: float
    max_line_bytes: int
    cache_bytes: int


class CreateArguments(NewConversation, StoreOptions, total=False):
    """What a conversation can begin with, and what its store can be opened with."""


class ConversationLibrary:
    """The conversations in a directory, by id. Keeps nothing in memory: every call looks at the disk.

    Making one touches nothing; the first ``create()`` makes the directory. An id is a canonical lower-case UUID, and is
    looked at before any path is made of it. Several processes may use one library at the same time.
    """

    def __init__(self, directory: filesystem.AnyPath, *, file_system: FileSystem | None = None) -> None:
        self._path = filesystem.absolute_path(directory)
        self._files = filesystem.REAL if file_system is None else file_system

    @property
    def directory(self) -> str:
        """The absolute path of the library."""
        return self._path

    def __repr__(self) -> str:
        return f"ConversationLibrary({self._path!r})"

    def create(self, *, id: str | None = None, **arguments: Unpack[CreateArguments]) -> ConversationStore:
        """Create a conversation and return its store, loaded: use it in a ``with`` statement, or close it.

        ``id`` is a new random one if none is given. All else is as in :meth:`ConversationStore.initialize`, and so are the
        errors; besides, ``InvalidIdError``.
        """
        contents: dict[str, Any] = {**arguments}
        options = {name: contents.pop(name) for name in StoreOptions.__annotations__ if name in contents}
        own_id = new_id(self._files) if id is None else id
        store = self._store(own_id, options)
        with suppress(OSError):
            self._sweep()
        self._refuse_occupied(own_id)
        try:
            with self._noted(own_id):
                try:
                    store.initialize(id=own_id, **contents)
                except BaseException:
                    if id is None:
                        self._discard(own_id)
                    raise
        except BaseException:
            store.close()  # nobody gets it
            raise
        return store

    def open(
        self, id: str, *, verify: Literal["all", "tail"] = "all", **options: Unpack[StoreOptions]
    ) -> ConversationStore:
        """Load the conversation with this id and return its store: use it in a ``with`` statement, or close it.

        ``verify`` is as in :meth:`ConversationStore.load`: ``"tail"`` opens a long conversation as fast as a short one.
        Raises ``InvalidIdError``, ``ConversationNotFoundError``, ``CorruptTranscriptError`` of kind ``wrong-conversation``
        if another conversation stands in the folder of that name, and what :meth:`ConversationStore.load` does.
        """
        store = self._store(id, options)
        self._refuse_links(id)
        store.load(verify=verify)
        try:
            self._insist_on_its_own_folder(id, store.get_metadata().id)
        except BaseException:
            store.close()
            raise
        return store

    def list(self) -> builtins.list[ConversationSummary]:
        """What conversations there are, the one that changed last first; none if there is no such directory.

        Costs, for each, a look at its metadata, its header and its last record: no message is decoded, and memory does
        not grow with the length of the transcripts. One whose metadata, header or last record is damaged is listed, with
        what is wrong as ``damage``; what stands between is not looked at: ``verify`` does that.
        Folders that are not named by an id are passed over (``list_conversations`` lists them).
        Raises ``StorageError`` if the directory cannot be read, or is a file.
        """
        try:
            found = _summaries(self._files, self._path)
        except ConversationNotFoundError:
            return []
        return [
            summary if summary.id == name else self._misplaced(summary, name)
            for summary in found
            if is_id(name := summary.directory.rpartition("/")[2])
        ]

    def _misplaced(self, summary: ConversationSummary, name: str) -> ConversationSummary:
        """The summary of a folder whose metadata is of another conversation, or cannot be read."""
        problems = [summary.damage] if summary.damage else []
        if summary.id is not None:
            problems.append(f"conversation {summary.id} is in the folder that belongs to {name}")
        return replace(summary, id=name, damage="; ".join(problems))

    def fork(self, id: str, *, through_seq: int | None = None) -> str:
        """Copy a conversation, or its records up to ``through_seq``, into a new one; returns the id of the new one.

        On return it is there, whole and synced; before, it is absent or whole. Its records keep their times, extras and
        messages byte for byte, its metadata is the original's but for id, times and generation (a fork of what was restored
        is still restored from there), and ``get_metadata().forked_from`` says where it came from. The
        original is read without its lock, and may have a live writer; the fork has what was written when it was read. That
        is synced before it is copied: a fork never has a message that a power cut could take from the original.

        Raises ``ValueError`` if there are fewer records than ``through_seq``, and what :meth:`open` and :meth:`create` do.
        """
        checked_id(id)
        return self._fork(self._path_of(id), id, through_seq)

    def fork_from(self, directory: filesystem.AnyPath, *, through_seq: int | None = None) -> str:
        """The same with the conversation in any folder, in this library or elsewhere, whatever the folder is called.

        Raises ``ValueError`` if there are fewer records than ``through_seq``, and what :meth:`ConversationStore.load` and
        :meth:`create` do.
        """
        return self._fork(filesystem.absolute_path(directory), None, through_seq)

    def _fork(self, path: str, expected_id: str | None, through_seq: int | None) -> str:
        if through_seq is not None and (type(through_seq) is not int or through_seq < 0):
            raise ValueError(f"through_seq must be an int from 0, not {through_seq!r}")
        source = self._storage(path)
        try:
            if expected_id is not None:
                self._refuse_links(expected_id)
            source.load()
            source.settle_to_copy()
            source_id = source.members["id"]
            if expected_id is not None:
                self._insist_on_its_own_folder(expected_id, source_id)
            log = source.log
            count = log.end.seq if through_seq is None else through_seq
            if count > log.end.seq:
                raise ValueError(
                    f"through_seq is {count}, and conversation {source_id} has {many(log.end.seq, 'record')}"
                )
            origin = {
                "conversation": source_id,
                "generation": log.header.generation,
                "seq": count,
                "head": log.head_at(count),
            }
            with suppress(OSError):
                self._sweep()
            fork_id = new_id(self._files)
            fork = self._storage(self._path_of(fork_id), read_only=False)
            with self._noted(fork_id), ExitStack() as stack:
                for _ in range(2):  # also if the first time is interrupted
                    stack.callback(fork.let_go)
                try:
                    fork.create(
                        lambda at: copied_members(source.members, id=fork_id, at=at, forked_from=origin),
                        log.copies(count),
                    )
                except BaseException:
                    self._discard(fork_id)
                    raise
            return fork_id
        finally:
            source.let_go()

    def delete(self, id: str) -> None:
        """Delete a conversation, its archive and its quarantine. On return it is gone; before, it is whole or gone.

        A damaged conversation can be deleted too; a folder that holds something else, or something else beside it, is left
        alone (``CorruptTranscriptError``, ``foreign``). Raises ``InvalidIdError``, ``ConversationNotFoundError``,
        ``ConversationLockedError`` if it has a live writer, and ``StorageError`` if the disk refuses: then it is whole, or
        gone and some of its files take up room until the next call here sweeps them.
        """
        self.delete_folder(checked_id(id))

    def delete_folder(self, name: str) -> None:
        """The same of a conversation whose folder in this library has a name of its own, and not its id."""
        path = self._path_of(name)
        with refusals(path, "delete the conversation"):
            self._sweep()  # and sync what an earlier delete could not, before this one says that it is gone
        self._refuse_links(name)
        with refusals(path, "delete the conversation"), Folder.open(self._files, self._path) as parent:
            while not self._delete_from(parent, name):
                pass

    def _delete_from(self, parent: Folder, name: str) -> bool:
        """Delete what is there; False if another process was faster, so that it must be looked at anew."""
        try:
            folder = parent.subfolder(name)
        except FileNotFoundError:
            raise self._not_found(name) from None
        with folder:
            try:
                require_conversation(folder)
            except (ConversationNotFoundError, CorruptTranscriptError) as error:
                if not folder.is_at_its_path():
                    return False
                if isinstance(error, ConversationNotFoundError) or error.kind == "foreign":
                    raise  # it is not ours
            except (CorruptMetadataError, UnsupportedVersionError):
                pass
            if others := strangers(folder):
                raise CorruptTranscriptError(
                    path=folder.path,
                    kind="foreign",
                    reason=f"the folder holds {others} beside the conversation",
                    way_out=WayOut.MOVE_OTHERS_AWAY,
                )
            lock = Lock(folder)
            try:
                with refusals(folder.path_of(LOCK), "take the writer's lock"):
                    if not lock.take(0) or not folder.is_at_its_path():
                        return False
                self._throw_away(parent, name)
            finally:
                with suppress(OSError):
                    lock.release()
        return True

    def _throw_away(self, parent: Folder, name: str) -> None:
        trash = trash_name(self._files)
        self._files.rename(parent.handle, name, trash)
        with refusals(
            self._path_of(name), "delete the conversation", "It is gone, or comes back whole after a power cut"
        ):
            parent.sync()  # before anything in it goes: a power cut must not bring a part of it back
        with suppress(OSError):
            parent.remove_tree(trash)

    # ---- within --------------------------------------------------------------------------------------------------

    def _path_of(self, name: str) -> str:
        return f"{self._path.rstrip('/')}/{name}"

    def _store(self, id: str, options: Mapping[str, Any]) -> ConversationStore:
        return ConversationStore(self._path_of(checked_id(id)), file_system=self._files, **options)

    def _storage(self, path: str, *, read_only: bool = True) -> Storage:
        return Storage(
            self._files,
            path,
            sync_appends=True,
            read_only=read_only,
            lock_timeout_seconds=0,
            max_line_bytes=DEFAULT_MAX_LINE_BYTES,
            cache_bytes=0,
            from_medium=read_only,
        )

    def _refuse_links(self, name: str) -> None:
        """Only the user's own path may go through symlinks; raises if anything but a directory has this name."""
        with refusals(self._path, "look into the library"):
            try:
                with Folder.open(self._files, self._path) as parent:
                    status = parent.status(name)
            except FileNotFoundError:
                status = None
        if status is None:
            raise self._not_found(name)
        if not stat.S_ISDIR(status.st_mode):
            reason = f"{kind_of(status)} stands where a conversation's folder should be"
            raise CorruptTranscriptError(path=self._path_of(name), kind="foreign", reason=reason)

    def _refuse_occupied(self, id: str) -> None:
        """A create would follow a symlink, and leave the library."""
        try:
            self._refuse_links(id)
        except ConversationNotFoundError:
            pass
        except CorruptTranscriptError as error:
            raise ConversationExistsError(path=self._path_of(id), reason=error.reason) from None

    def _insist_on_its_own_folder(self, id: str, found: str) -> None:
        if found != id:
            reason = f"conversation {found} is in the folder that belongs to {id}"
            raise CorruptTranscriptError(path=self._path_of(id), kind="wrong-conversation", reason=reason)

    def _not_found(self, name: str) -> ConversationNotFoundError:
        return ConversationNotFoundError(
            path=self._path_of(name),
            reason="there is no such conversation in the library",
            way_out=WayOut.LIST_TELLS,
        )

    @contextmanager
    def _noted(self, id: str) -> Iterator[None]:
        """Hold the note that a conversation is being made: if this process is killed, it says what there is to sweep; so
        it does if the disk refuses to finish it, and to remove what is there.

        No promise needs it, so what is refused to it stops nothing. A library that its first conversation makes has none.
        """
        with ExitStack() as stack:
            made = False
            with suppress(OSError):
                parent = Folder.open(self._files, self._path)
                stack.callback(_close, parent)
                note = _note_of(parent, id)
                stack.callback(_release, note)  # also if what comes before it is interrupted
                stack.callback(lambda: _put_away(parent, note, id, made=made))
                note.take(_NOTE_TIMEOUT_SECONDS)
            yield
            made = True

    def _sweep(self) -> None:
        """Remove what deletes and creates that were cut off have left, as far as that is possible."""
        with suppress(FileNotFoundError), Folder.open(self._files, self._path) as parent:
            names = parent.names()
            if trash := [name for name in names if is_trash(name)]:
                parent.sync()  # or a power cut gives its old name back to what is left of it
                for name in trash:
                    with suppress(OSError):
                        parent.remove_tree(name)
            for name in names:
                if (unfinished := noted_id(name)) is not None:
                    self._sweep_unfinished(parent, unfinished)

    def _sweep_unfinished(self, parent: Folder, id: str) -> None:
        """Remove what a create has left whose process is gone, if it is only half of a conversation, and its note."""
        note = _note_of(parent, id)
        with suppress(OSError, ConversationLockedError):  # somebody is at work on it
            try:
                note.take(0)
                with suppress(FileNotFoundError, NotOursError), parent.subfolder(id) as folder:
                    lock = Lock(folder)
                    try:
                        if occupant_of(folder) is None and lock.take(0) and occupant_of(folder) is None:
                            self._throw_away(parent, id)
                    finally:
                        lock.release()
            finally:
                try:
                    _put_away(parent, note, id)
                finally:
                    _release(note)

    def _discard(self, id: str) -> None:
        """Remove, if that is possible, what is left of a create that failed, under an id that nobody was told."""
        with suppress(OSError), Folder.open(self._files, self._path) as parent:
            self._throw_away(parent, id)


def _note_of(parent: Folder, id: str) -> Lock:
    return Lock(parent, name=note_name(id))


def _put_away(parent: Folder, note: Lock, id: str, *, made: bool = False) -> None:
    """Let go of a note; remove it if it is held, unless what it speaks of is still there, half-made."""
    with suppress(OSError):
        if note.is_held() and (made or not _is_half_made(parent, id)):
            parent.discard(note_name(id))
    _release(note)


def _release(note: Lock) -> None:
    with suppress(OSError):
        note.release()


def _is_half_made(parent: Folder, id: str) -> bool:
    try:
        with parent.subfolder(id) as folder:
            return occupant_of(folder) is None and folder.names() != []
    except (FileNotFoundError, NotOursError):
        return False


def _close(folder: Folder) -> None:
    with suppress(OSError):
        folder.close()


def delete_conversation(directory: filesystem.AnyPath, *, file_system: FileSystem | None = None) -> None:
    """Delete the conversation in a folder, whatever the folder is called. As :meth:`ConversationLibrary.delete`."""
    parent, _, name = filesystem.absolute_path(directory).rpartition("/")
    ConversationLibrary(parent or "/", file_system=file_system).delete_folder(name)


def list_conversations(
    directory: filesystem.AnyPath, *, file_system: FileSystem | None = None
) -> list[ConversationSummary]:
    """Every conversation directly under a directory, whatever its folder is called, the one that changed last first.

    As :meth:`ConversationLibrary.list`, and raises ``ConversationNotFoundError`` if there is no such directory.
    """
    files = filesystem.REAL if file_system is None else file_system
    return _summaries(files, filesystem.absolute_path(directory))


def _summaries(files: FileSystem, path: str) -> list[ConversationSummary]:
    with refusals(path, "list the conversations"):
        try:
            parent = Folder.open(files, path)
        except FileNotFoundError:
            raise ConversationNotFoundError(path=path, reason="there is no such directory") from None
        with parent:
            looked_at = (summarize(parent, name) for name in parent.names() if not is_trash(name))
            found = [summary for summary in looked_at if summary is not None]
    return sorted(found, key=lambda summary: (summary.updated_at or "", summary.directory), reverse=True)
