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
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict, Unpack

from transcript_store._conversation import leftovers
from transcript_store._conversation.arguments import require_count
from transcript_store._conversation.layout import require_conversation, strangers
from transcript_store._conversation.metadata import checked_id, copied_members
from transcript_store._conversation.reader import Reader
from transcript_store._conversation.storage import Options
from transcript_store._conversation.summary import ConversationSummary, summarize
from transcript_store._conversation.writer import Writer
from transcript_store._os import filesystem
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.lock import Lock
from transcript_store._os.names import LOCK, is_id, is_trash, new_id
from transcript_store._os.refusals import kind_of, refusals
from transcript_store.conversation import DEFAULT_MAX_LINE_BYTES, ConversationStore, Durability, NewConversation, Verify
from transcript_store.errors import (
    ConversationExistsError,
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

    Making one touches nothing; the first ``create()`` makes the directory. An id is a canonical lower-case UUID. It is checked
    before any path is made of it. Several processes may use one library at the same time.

    Args:
        directory: the library's folder.
        file_system: another file system, for tests (``transcript_store.testing``).
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

        Args:
            id: a canonical lower-case UUID; a new random one if none is given.
            arguments: members of :class:`NewConversation` and :class:`StoreOptions`; none of them is required.

        Raises:
            TranscriptStoreError: as :meth:`ConversationStore.initialize`.
        """
        contents: dict[str, Any] = {**arguments}
        options = {name: contents.pop(name) for name in StoreOptions.__annotations__ if name in contents}
        own_id = new_id(self._files) if id is None else id
        store = self._store(own_id, options)
        self._refuse_occupied(own_id)
        try:
            with self._making(own_id, is_told=id is not None):
                store.initialize(id=own_id, **contents)
        except BaseException:
            store.close()  # nobody gets it
            raise
        return store

    def open(self, id: str, *, verify: Verify = "all", **options: Unpack[StoreOptions]) -> ConversationStore:
        """Load the conversation with this id and return its store: use it in a ``with`` statement, or close it.

        Args:
            id: the conversation's id.
            verify: as in :meth:`ConversationStore.load`; ``"tail"`` opens a long conversation as fast as a short one.
            options: members of :class:`StoreOptions`; none of them is required.

        Raises:
            InvalidIdError: the id is not a canonical lower-case UUID.
            ConversationNotFoundError: there is no such conversation; ``list()`` shows those that there are.
            CorruptTranscriptError: another conversation stands in the folder of that name (``wrong-conversation``), or what
                stands there is not a folder (``foreign``), or as :meth:`ConversationStore.load`.
            TranscriptStoreError: as :meth:`ConversationStore.load`.
        """
        store = self._store(id, options)
        self._refuse_links(id)
        store.load(verify=verify)
        try:
            self._require_its_own_folder(id, store.id)
        except BaseException:
            store.close()
            raise
        return store

    def list(self) -> builtins.list[ConversationSummary]:
        """The conversations that there are, the one that changed last first; none if there is no such directory.

        For each, its metadata, its header and its last record are read. No message is decoded, and memory does not grow with
        the length of the transcripts. A conversation in which these are damaged is listed, and ``damage`` says what is wrong.
        The records before the last are not looked at: ``verify`` does that. A folder that is not named by an id is passed over:
        ``list_conversations`` lists it.

        Raises:
            StorageError: the directory cannot be read, or is a file.
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

    @staticmethod
    def _misplaced(summary: ConversationSummary, name: str) -> ConversationSummary:
        """The summary of a folder whose metadata is of another conversation, or cannot be read."""
        problems = [summary.damage] if summary.damage else []
        if summary.id is not None:
            problems.append(_in_another_folder(summary.id, name))
        return replace(summary, id=name, damage="; ".join(problems))

    def fork(self, id: str, *, through_seq: int | None = None) -> str:
        """Copy a conversation, or its records up to ``through_seq``, into a new one; returns the id of the new one.

        On return the fork is whole and synced; after a crash before that, it is absent or whole. Its records keep their times,
        extras and messages byte for byte. Its metadata is the original's, except id, times and generation;
        ``get_metadata().forked_from`` says where it came from. (The fork of a restored conversation keeps ``restored_from``.)

        The original is read without its lock, and may have a live writer; the fork has what was written when it was read. That
        is synced before it is copied, so a fork never has a message that a power loss could take from the original.

        Args:
            id: the original's id.
            through_seq: the number of the last record to copy, from 0 for none; None for all.

        Raises:
            ValueError: the original has fewer records than ``through_seq``.
            TranscriptStoreError: as :meth:`open` for the original, and as :meth:`create` for the fork.
        """
        checked_id(id)
        return self._fork(self._path_of(id), id, through_seq)

    def fork_from(self, directory: filesystem.AnyPath, *, through_seq: int | None = None) -> str:
        """As :meth:`fork`, of a conversation in any folder, in this library or elsewhere, whatever the folder is called.

        Raises:
            ValueError: the original has fewer records than ``through_seq``.
            TranscriptStoreError: as :meth:`ConversationStore.load` for the original, and as :meth:`create` for the fork.
        """
        return self._fork(filesystem.absolute_path(directory), None, through_seq)

    def _fork(self, path: str, expected_id: str | None, through_seq: int | None) -> str:
        if through_seq is not None:
            require_count("through_seq", through_seq)
        options = Options(max_line_bytes=DEFAULT_MAX_LINE_BYTES)
        source = Reader(self._files, path, options, from_medium=True)
        with source.let_go_at_the_end():
            if expected_id is not None:
                self._refuse_links(expected_id)
            source.load()
            source.settle_to_copy()
            source_id, log = source.members["id"], source.log
            if expected_id is not None:
                self._require_its_own_folder(expected_id, source_id)
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
            fork_id = new_id(self._files)
            members_at = partial(copied_members, source.members, id=fork_id, forked_from=origin)
            fork = Writer(self._files, self._path_of(fork_id), options)
            with self._making(fork_id), fork.let_go_at_the_end():
                fork.create(members_at, log.copies(count))
            return fork_id

    @contextmanager
    def _making(self, id: str, *, is_told: bool = False) -> Iterator[None]:
        """While a conversation is being created: hold a note of it, and if that fails remove what is left.

        An id that the caller chose is told: something else may stand there, or come there, so nothing is removed.
        """
        with suppress(OSError):
            leftovers.sweep(self._files, self._path)
        with leftovers.noted(self._files, self._path, id):
            try:
                yield
            except BaseException:
                if not is_told:
                    leftovers.discard(self._files, self._path, id)
                raise

    def delete(self, id: str) -> None:
        """Delete a conversation, its archive and its quarantine.

        On return it is deleted; after a crash before that, it is whole or deleted. A damaged conversation can be deleted too.

        Raises:
            InvalidIdError: the id is not a canonical lower-case UUID.
            ConversationNotFoundError: there is no such conversation; ``list()`` shows those that there are.
            ConversationLockedError: it has a live writer; close that first.
            CorruptTranscriptError: the folder holds no conversation, or something else beside it (``foreign``). Nothing was
                touched.
            StorageError: the system refused. The conversation is whole, or it is deleted and some of its files take up room
                until the next create, fork or delete here.
        """
        self.delete_folder(checked_id(id))

    def delete_folder(self, name: str) -> None:
        """As :meth:`delete`, of a conversation whose folder in this library is called ``name``, and not by its id.

        Raises:
            TranscriptStoreError: as :meth:`delete`.
        """
        path, doing = self._path_of(name), "delete the conversation"
        with refusals(path, doing):
            # This syncs what an earlier delete could not, before this one says that it is gone.
            leftovers.sweep(self._files, self._path)
        self._refuse_links(name)
        with refusals(path, doing), Folder.open(self._files, self._path) as parent:
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
            except (CorruptMetadataError, UnsupportedVersionError):
                pass  # damaged, but a conversation
            except (ConversationNotFoundError, CorruptTranscriptError) as error:
                if not folder.is_at_its_path():
                    return False
                if isinstance(error, ConversationNotFoundError) or error.kind == "foreign":
                    raise  # it is not ours
            if others := strangers(folder):
                reason = f"the folder holds {others} beside the conversation"
                raise CorruptTranscriptError(
                    path=folder.path, kind="foreign", reason=reason, way_out=WayOut.MOVE_OTHERS_AWAY
                )
            lock = Lock(folder)
            with lock.released_at_the_end():
                with refusals(folder.path_of(LOCK), "take the writer's lock"):
                    if not lock.take(0) or not folder.is_at_its_path():
                        return False
                leftovers.move_to_trash(parent, name)
        return True

    # ---- within --------------------------------------------------------------------------------------------------

    def _path_of(self, name: str) -> str:
        return f"{self._path.rstrip('/')}/{name}"

    def _store(self, id: str, options: Mapping[str, Any]) -> ConversationStore:
        return ConversationStore(self._path_of(checked_id(id)), file_system=self._files, **options)

    def _refuse_links(self, name: str) -> None:
        """Raise unless a directory has this name. Only the path of the library itself may go through symbolic links."""
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
        """A create would follow a symbolic link, and leave the library."""
        try:
            self._refuse_links(id)
        except ConversationNotFoundError:
            pass
        except CorruptTranscriptError as error:
            raise ConversationExistsError(path=self._path_of(id), reason=error.reason) from None

    def _require_its_own_folder(self, id: str, found: str) -> None:
        if found != id:
            reason = _in_another_folder(found, id)
            raise CorruptTranscriptError(path=self._path_of(id), kind="wrong-conversation", reason=reason)

    def _not_found(self, name: str) -> ConversationNotFoundError:
        reason = "there is no such conversation in the library"
        return ConversationNotFoundError(path=self._path_of(name), reason=reason, way_out=WayOut.LIST_TELLS)


def _in_another_folder(found: str, id: str) -> str:
    return f"conversation {found} is in the folder that belongs to {id}"


def delete_conversation(directory: filesystem.AnyPath, *, file_system: FileSystem | None = None) -> None:
    """Delete the conversation in a folder, whatever the folder is called.

    Raises:
        TranscriptStoreError: as :meth:`ConversationLibrary.delete`.
    """
    parent, _, name = filesystem.absolute_path(directory).rpartition("/")
    ConversationLibrary(parent or "/", file_system=file_system).delete_folder(name)


def list_conversations(
    directory: filesystem.AnyPath, *, file_system: FileSystem | None = None
) -> list[ConversationSummary]:
    """Every conversation directly under a directory, whatever its folder is called, the one that changed last first.

    As :meth:`ConversationLibrary.list` otherwise.

    Raises:
        ConversationNotFoundError: there is no such directory; check the path.
        StorageError: the directory cannot be read, or is a file.
    """
    return _summaries(filesystem.REAL if file_system is None else file_system, filesystem.absolute_path(directory))


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
