"""Many conversations under one directory, each in a folder named by its id.

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
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from inspect import signature
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, TypedDict, Unpack

from transcript_store._conversation.arguments import require_bool, require_redact
from transcript_store._conversation.key_changes import Rotation, Shredding, required
from transcript_store._conversation.metadata import checked_id
from transcript_store._conversation.storage import Reader
from transcript_store._conversation.summary import (
    ConversationSummary,
    TokenUsage,
    UsageCount,
    require_page,
    summary_in,
)
from transcript_store._library.folders import ConversationWriter, Folders, fork, in_another_folder
from transcript_store._library.group import ConversationGroup
from transcript_store._library.pruning import PrunedItem, Pruner, Pruning, require_store, rule_of
from transcript_store._os import filesystem
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import TRANSCRIPT, is_id, new_id
from transcript_store._sealing.keys import EncryptionKey, Keyring, keyring_of
from transcript_store.conversation import (
    ConversationStore,
    Durability,
    NewConversation,
    Redact,
    TakeOver,
    Verify,
    store_with_id,
)
from transcript_store.display import title_in
from transcript_store.errors import ConversationNotFoundError, InvalidIdError, StorageError, TranscriptStoreError
from transcript_store.hints import Hint

if TYPE_CHECKING:
    from transcript_store._conversation.verify import Verification
    from transcript_store._snapshots.snapshot import SnapshotStore

__all__ = [
    "ConversationGroup",
    "ConversationLibrary",
    "ConversationSummary",
    "ConversationWriter",
    "CreateArguments",
    "PrunedItem",
    "Pruning",
    "Rotation",
    "Shredding",
    "StoreOptions",
    "delete_conversation",
    "list_conversations",
]


_BEGINNING = re.compile(r"[0-9a-f-]{4,36}")
"""The start of an id; a whole one has 36 characters."""


class StoreOptions(TypedDict, total=False):
    """What a :class:`ConversationStore` can be opened with, beside its directory."""

    durability: Durability
    read_only: bool
    hold_lock: bool
    lock_timeout_seconds: float | None
    max_line_bytes: int
    cache_bytes: int
    redact: Redact | None
    encryption_key: EncryptionKey | None
    retired_keys: Iterable[EncryptionKey]
    take_over: TakeOver
    holder: str


class CreateArguments(NewConversation, StoreOptions, total=False):
    """What a conversation can begin with, and what its store can be opened with."""


class LibraryBackend(Protocol):
    """Where conversations can live instead of a directory: a backend (``transcript_store.backends``)."""

    @property
    def library_class(self) -> type[ConversationLibrary]:
        """The class of a library on this backend."""
        ...


Into: TypeAlias = "ConversationLibrary | filesystem.AnyPath | LibraryBackend"
"""A library, or its directory, or its backend."""


class ConversationLibrary:
    """The conversations in a directory, or on a backend, by id. Stateless: every call reads the disk.

    Constructing one changes nothing; the first ``create()`` creates the directory. An id is a canonical lower-case
    UUID. It is checked before it becomes part of a path. Several processes may use one library at the same time.

    Args:
        directory: the library's folder, or a backend (``transcript_store.backends``); docs/backends.md lists the
            differences.
        redact: what the conversations are opened and created with (:class:`ConversationStore`), unless the call gives
            another one. A fork is a copy of the stored records.
        encryption_key: the key that the conversations are sealed with (:class:`ConversationStore`), unless the call
            gives another one. A listing, a delete and a verify need none.
        retired_keys: earlier keys, for conversations that are not wrapped with the current key yet.
        file_system: another file system, for tests (``transcript_store.testing``).
    """

    def __new__(cls, directory: filesystem.AnyPath | LibraryBackend = "", *_: Any, **__: Any) -> Self:
        # As pathlib.Path() creates the Path class of its system, this creates the library class of its backend. Further
        # arguments belong to a subclass.
        if isinstance(directory, type):
            raise TypeError(f"{directory.__name__} is a class, not a backend: {directory.__name__}(…) creates one")
        other: type[ConversationLibrary] = getattr(directory, "library_class", cls)
        return super().__new__(other if issubclass(other, cls) else cls)

    def __init__(
        self,
        directory: filesystem.AnyPath | LibraryBackend,
        *,
        redact: Redact | None = None,
        encryption_key: EncryptionKey | None = None,
        retired_keys: Iterable[EncryptionKey] = (),
        file_system: FileSystem | None = None,
    ) -> None:
        if redact is not None:
            require_redact(redact)
        keys = keyring_of(encryption_key, retired_keys)
        self._given: dict[str, Any] = (
            {} if keys is None else {"encryption_key": keys.current, "retired_keys": keys.retired}
        )
        """The keys as a store, or a library, is given them."""
        self._redact = redact
        files = filesystem.REAL if file_system is None else file_system
        self._folders = self._folders_of(directory, files, keys)

    __new__.__signature__ = signature(__init__)  # type: ignore[attr-defined]  # help() shows that of __new__

    def _folders_of(self, directory: Any, files: FileSystem, keys: Keyring | None) -> Folders:
        """The folders of the library."""
        return Folders(files, filesystem.absolute_path(directory), keys)

    @property
    def directory(self) -> str:
        """The absolute path of the library."""
        return self._folders.path

    @property
    def redact(self) -> Redact | None:
        """What the library's conversations are opened and created with, unless a call gives another one."""
        return self._redact

    def __repr__(self) -> str:
        return f"ConversationLibrary({self.directory!r})"

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
        own_id = new_id(self._folders.files) if id is None else id
        store = self._store(own_id, options)
        self._folders.refuse_occupied(own_id)
        try:
            with self._folders.making(own_id, is_reported=id is not None):
                store.initialize(id=own_id, **contents)
        except BaseException:
            store.close()  # no caller gets it
            raise
        return store

    @contextmanager
    def group(self) -> Iterator[ConversationGroup]:
        """Create many conversations as a group: one wait for the disk for all of them, instead of several for each.

        .. code-block:: python

            library = ConversationLibrary("conversations")
            histories = [[{"role": "user", "content": "Hello"}], [{"role": "user", "content": "Good evening"}]]
            with library.group() as group:
                for messages in histories:
                    group.add(messages=messages)

        At the end of the block all that was added is created, and survives a power loss; :class:`ConversationGroup`
        says what holds before that. If the block raises, uncommitted conversations are not created.

        Raises:
            StorageError: the system refused; the message says what holds and what to do.
            TranscriptStoreError: as :meth:`ConversationGroup.commit`.
        """
        folders = self._folders
        # It also syncs the names that an earlier group could not.
        folders.sweep("remove the leftovers of interrupted creates", folders.path)
        group = ConversationGroup(folders.path, folders.files, self.create, self._redact, folders.keys)
        try:
            yield group
            group.end()
        finally:
            group.close()

    def open(self, id: str, *, verify: Verify = "all", **options: Unpack[StoreOptions]) -> ConversationStore:
        """Load the conversation with this id and return its store: use it in a ``with`` statement, or close it.

        Args:
            id: the conversation's id.
            verify: as in :meth:`ConversationStore.load`; ``"tail"`` opens a long conversation as fast as a short one.
            options: members of :class:`StoreOptions`; none of them is required.

        Raises:
            InvalidIdError: the id is not a canonical lower-case UUID.
            ConversationNotFoundError: there is no such conversation; ``list()`` shows those that there are.
            CorruptTranscriptError: the folder of that name holds another conversation (``wrong-conversation``), or is
                not a folder (``foreign``), or as :meth:`ConversationStore.load`.
            TranscriptStoreError: as :meth:`ConversationStore.load`.
        """
        if type(id) is str and not is_id(id) and _BEGINNING.fullmatch(id):
            raise InvalidIdError(
                reason=f"{id!r} is not a whole id; library[{id!r}] opens the conversation whose id starts so"
            )
        store = self._store(id, options)
        self._folders.require(id)
        store.load(verify=verify)
        try:
            self._folders.require_its_own(id, store.id)
        except BaseException:
            store.close()
            raise
        return store

    def rename(self, id: str, title: str | None) -> None:
        """Set the title of the conversation with this id; None removes it. Other labels stay. Durable on return.

        Only its end is read. Waits up to 10 seconds for a writer that holds its lock.

        Raises:
            InvalidMetadataError: the title is not text. Nothing was written.
            ConversationLockedError: a writer holds it: set ``title`` of that store.
            TranscriptStoreError: as :meth:`open`.
        """
        with self.open(id, verify="tail", hold_lock=False) as conversation:
            conversation.set_title(title)

    def store(self, id: str, **options: Unpack[StoreOptions]) -> ConversationStore:
        """The store of the conversation with this id, neither loaded nor created: for a caller that opens it later, or
        again and again.

        Nothing is read. :meth:`open` and :meth:`create` do the same and load it; they also refuse a conversation in a
        folder of another name.

        Args:
            id: a canonical lower-case UUID.
            options: members of :class:`StoreOptions`; none of them is required.

        Raises:
            InvalidIdError: the id is not a canonical lower-case UUID.
            TypeError: an option is of another type.
            ValueError: an option has no such value.
        """
        return self._store(id, options)

    def list(
        self, *, last_extra: bool = False, limit: int | None = None, before: ConversationSummary | None = None
    ) -> builtins.list[ConversationSummary]:
        """All conversations, the last changed one first; empty if there is no such directory.

        For each, its metadata, its header and its last record are read. No message is decoded, and memory does not grow
        with the length of the transcripts. A conversation in which these are damaged is listed, and ``damage`` says
        what is wrong. The records before the last are not read: ``verify`` does that. A folder that is not named by an
        id is skipped: ``list_conversations`` lists it.

        Args:
            last_extra: True to decode the last record for its ``extra``. The record is read in any case.
            limit: how many at most, for a page; None for all. In a directory all of them are read in any case.
            before: the last one of the page before; None to start at the newest.

        Raises:
            TypeError: ``before`` is not a summary but, for example, an id.
            ValueError: ``limit`` is not a count.
            StorageError: the directory cannot be read, or is a file.
        """
        require_page(limit, before)
        return self._folders.summaries_by_id(last_extra, before)[:limit]

    def iter_list(self, *, last_extra: bool = False) -> Iterator[ConversationSummary]:
        """As :meth:`list`, one at a time. On a backend the next page is requested when it is needed.

        Raises:
            StorageError: as :meth:`list`.
        """
        yield from self.list(last_extra=last_extra)

    def writers(self) -> builtins.list[ConversationWriter]:
        """The writers of each conversation, by id. Nothing is locked or claimed.

        In a directory: the holders of locks; a store with ``hold_lock=False`` holds one only during a call. On a
        backend: writers that claimed and did not release; a writer that was killed is among them until another takes
        over. Every conversation is read for that.

        Raises:
            StorageError: the library cannot be listed.
        """
        return self._folders.writers()

    def usage(self) -> TokenUsage:
        """The tokens of all stored replies in all conversations, by day and model; a reply that a fork has too counts
        once.

        Every record is read. Unreadable conversations are in ``skipped``.

        Raises:
            StorageError: the library cannot be listed.
        """
        count = UsageCount()
        for id in self._ids():  # noqa: A001
            try:
                with self.open(id, read_only=True, verify="tail") as conversation:
                    count.add_conversation(conversation)
            except ConversationNotFoundError:
                continue  # it was deleted since
            except TranscriptStoreError as error:
                count.skipped.append(error.problem)
        return count.result()

    def find(self, beginning: str) -> str:
        """The id of the one conversation whose id starts so: a whole id, or at least its first four characters.

        No conversation is read.

        Raises:
            ConversationNotFoundError: no id starts so; ``list()`` shows the existing ones.
            InvalidIdError: it is not the start of an id, it is too short, or several ids start so; the message has
                three of them.
            StorageError: the library cannot be listed.
        """
        if type(beginning) is not str or not _BEGINNING.fullmatch(beginning):
            raise InvalidIdError(reason=f"the start of an id has 4 to 36 of 0-9, a-f and '-', not {beginning!r:.50}")
        found = sorted(id for id in self._ids() if id.startswith(beginning))  # noqa: A001
        if len(found) > 1:
            shown = ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
            raise InvalidIdError(reason=f"several conversations have an id that starts with {beginning}: {shown}")
        if not found:
            raise self._folders.not_found(beginning)
        return found[0]

    def __getitem__(self, id: str) -> ConversationStore:
        """``library[id]`` opens the conversation with this id, or whose id starts so: use it in a ``with`` statement,
        or close it.
        """
        return self.open(id if type(id) is str and is_id(id) else self.find(id))

    def __iter__(self) -> Iterator[ConversationSummary]:
        """The summaries, the one that changed last first: :meth:`iter_list`."""
        return self.iter_list()

    def __contains__(self, id: object) -> bool:
        """True if there is a conversation with this whole id; False for anything else."""
        if type(id) is not str or not is_id(id):
            return False
        try:
            self.open(id, read_only=True, verify="tail").close()
        except ConversationNotFoundError:
            return False
        except StorageError:
            raise
        except TranscriptStoreError:
            return True  # it is damaged, or of a later version
        return True

    def verify(self, id: str) -> Verification:
        """Check every line of a conversation, as ``verify()`` of its folder does. Changes nothing, and takes no lock.

        Raises:
            InvalidIdError: the id is not a canonical lower-case UUID.
            ConversationNotFoundError: there is no such conversation; ``list()`` shows those that there are.
            StorageError: the system refuses to read it; the message says what to do.
        """
        self._folders.require(checked_id(id))
        from transcript_store._conversation.verify import verify  # a listing does not need it

        files, path = self._folders.files, self._folders.path_of(id)
        found, summary = verify(path, file_system=files), summary_in(files, path)
        return found if summary is None else with_misplaced(found, id, summary.id)

    def fork(self, id: str, *, through_seq: int | None = None, into: Into | None = None) -> str:
        """Copy a conversation, or its records up to ``through_seq``, into a new one; returns the id of the new one.

        On return the fork is whole and synced; after a crash before that, it is absent or whole. Its records keep their
        times, extras and messages byte for byte. Its metadata is the original's, except id, times and generation;
        ``get_metadata().forked_from`` says where it came from. (The fork of a restored conversation keeps
        ``restored_from``.)

        The original is read without its lock, and may have a live writer; the fork has what was written when it was
        read. That is synced before it is copied, so a fork never has a message that the original could lose in a power
        loss.

        The fork of a sealed conversation is sealed again, with its own data key; ``into`` must have a key.

        Args:
            id: the original's id.
            through_seq: the number of the last record to copy, from 0 for none; None for all.
            into: the library for the fork, or its directory; None for this one. It is created if it is missing.

        Raises:
            ValueError: the original has fewer records than ``through_seq``.
            TranscriptStoreError: as :meth:`open` for the original, and as :meth:`create` for the fork.
        """
        folders = self._folders
        return fork(folders.reader(checked_id(id)), self._other(into)._folders, through_seq, (folders, id))

    def fork_from(
        self, directory: filesystem.AnyPath, *, through_seq: int | None = None, into: Into | None = None
    ) -> str:
        """As :meth:`fork`, of a conversation in any folder, in this library or elsewhere, whatever the folder is called.

        Raises:
            ValueError: the original has fewer records than ``through_seq``.
            TranscriptStoreError: as :meth:`ConversationStore.load` for the original, and as :meth:`create` for the fork.
        """
        files = self._folders.files
        reader = Reader(files, filesystem.absolute_path(directory), self._folders.options, from_medium=True)
        return fork(reader, self._other(into)._folders, through_seq)

    def _other(self, library: Into | None) -> ConversationLibrary:
        """The given library, on the same file system if it is a directory; this one if it is None."""
        if library is None:
            return self
        if isinstance(library, ConversationLibrary):
            return library
        return ConversationLibrary(library, file_system=self._folders.files, **self._given)

    def delete(self, id: str) -> None:
        """Delete a conversation, its archive and its quarantine.

        On return it is deleted; after a crash before that, it is whole or deleted. A damaged conversation can be
        deleted too.

        Raises:
            InvalidIdError: the id is not a canonical lower-case UUID.
            ConversationNotFoundError: there is no such conversation; ``list()`` shows those that there are.
            ConversationLockedError: it has a live writer; close that first.
            CorruptTranscriptError: the folder holds no conversation, or other files besides it (``foreign``). Nothing was
                touched.
            StorageError: the system refused. The conversation is whole, or it is deleted and some of its files take up
                space until the next create, fork or delete here.
        """
        self.delete_folder(checked_id(id))

    def delete_folder(self, name: str) -> None:
        """As :meth:`delete`, of a conversation whose folder in this library is called ``name``, and not by its id.

        Raises:
            TypeError: the name is not a string.
            ValueError: the name leads out of the library, or cannot be that of a folder.
            TranscriptStoreError: as :meth:`delete`.
        """
        self._folders.delete(name)

    def deleted_ids(self) -> frozenset[str]:
        """The ids of imported conversations that were deleted, pruned or shredded here: an import skips their sessions.

        An id stays there permanently. It has no effect while a conversation with that id exists. A library on a backend
        keeps no such list, and the set is empty: there the next import brings deleted conversations back.
        """
        return self._folders.deleted_ids()

    def prune(
        self,
        *,
        older_than: str | datetime | timedelta | None = None,
        keep_generations: int | None = None,
        keep_quarantine: bool = True,
        labels: Mapping[str, str] | None = None,
        snapshots: SnapshotStore | None = None,
        dry_run: bool = True,
    ) -> Pruning:
        """List the items that a rule makes expire, and with ``dry_run=False`` remove them. Never runs by itself.

        .. code-block:: python

            from datetime import timedelta

            from transcript_store import ConversationLibrary, FileStore

            library = ConversationLibrary("conversations")
            due = library.prune(older_than=timedelta(days=365), snapshots=FileStore("kept"))
            for item in due.pruned:
                print(item.id, item.updated_at, item.size_bytes)  # nothing was changed yet

        On return the items are removed, also after a power loss. Each item is removed by itself: a conversation with
        all its files, a generation, the quarantine of one conversation. After a crash or an error, some of them are
        removed and the others are whole; repeat the call to continue. Each item is checked again under the
        conversation's lock: a conversation that was written to since then stays. So does one that is open to write, or
        damaged, or has other files in its folder, or that this user may not change; ``skipped`` names those. (With
        ``hold_lock=False`` it is open only during a call.) A dry run takes no lock, so it does not detect open
        conversations.

        Args:
            older_than: delete conversations that changed last before this moment, or so long ago: an aware
                ``datetime``, text of RFC 3339, or a ``timedelta``. None for none.
            keep_generations: of each conversation that stays, remove the earlier generations, except so many of the
                newest. None for none.
            keep_quarantine: True to keep ``quarantine/`` of those that stay. With False all of it is removed, except
                the bytes that this call itself has cut from a torn transcript.
            labels: only conversations that have all of these labels.
            snapshots: where a snapshot of each conversation is stored before it is removed (:func:`snapshot_of` says
                what is in one: the messages, and not the events, extras, times and earlier generations). Its id is the
                transcript's head.
            dry_run: only list what would be removed.

        Raises:
            TypeError: an argument is of another type: for example a path instead of a ``SnapshotStore``. Nothing was
                touched.
            ValueError: no rule was given, a count or a moment is not valid, or the moment is in the future. Nothing was
                touched.
            StorageError: the system refused. Items removed before that stay removed.
            Exception: what ``snapshots.save`` raises, as it raises it. The conversation is in place; items removed
                before it stay removed.
        """
        require_bool("dry_run", dry_run)
        require_store(snapshots)
        folders = self._folders
        rule = rule_of(folders.files, older_than, keep_generations, keep_quarantine, labels)
        if not dry_run:
            folders.sweep("prune the library", folders.path)
        pruner = Pruner(folders.files, folders.path, rule, snapshots, self._given)
        items = pruner.items(self.list(), dry_run=dry_run)
        return Pruning(applied=not dry_run, items=tuple(items))

    # ---- keys ----------------------------------------------------------------------------------------------------

    def rotate_key(self, names: Iterable[str] | None = None) -> Rotation:
        """Wrap the data key of every sealed conversation with the library's ``encryption_key``; no record is touched.

        Create the library with the current key and the earlier ones as ``retired_keys``. On return everything in
        ``rotated`` or ``already_current`` survives a power loss. After a crash, and after an error, each conversation
        is wrapped with the earlier key or with the new one, and repeating the call does the rest. Conversations that
        are open to write are skipped (with ``hold_lock=False``: open during a call). Symbolic links are not followed.
        Ten thousand take some seconds on ext4, xfs and btrfs on Linux 5.17 and later; elsewhere each waits for the disk
        twice.

        When no sealed conversation is ``skipped``, the earlier keys are no longer needed, except for backups of key
        files.

        Args:
            names: folders of the library, whatever their names; None for all that are named by an id. A missing one is
                ``skipped``.

        Raises:
            TypeError: ``names`` is one text, or something in it is not a text.
            ValueError: the library has no ``encryption_key``, or a name leads out of it.
            KeyProviderError: the provider failed. The conversations before that one are rotated.
            StorageError: the system refused; the message says what holds.
        """
        return self._folders.rotate(required(self._folders.keys), names)

    def shred(self, id: str) -> Shredding:
        """Destroy the key of a sealed conversation. It can never be read again, its archive and its quarantine included.

        On return the key is destroyed, also after a power loss. After a crash before that it exists or is destroyed;
        repeat the call. The conversation stays listed, and ``delete()`` removes it.

        It cannot reach: a copy of the key file (keep backups of key files apart, and delete it there), what the disk
        keeps of deleted files, forks, snapshots and exports, a process that has the conversation open for reading, and
        its plaintext files, which ``still_readable`` names.

        Raises:
            NotSealedError: it was never sealed; ``delete()`` it.
            ConversationLockedError: it has a live writer; close that first.
            TranscriptStoreError: as :meth:`delete`.
        """
        return self._folders.shred(checked_id(id), id)

    def shred_folder(self, name: str) -> Shredding:
        """As :meth:`shred`, of a conversation whose folder in this library is called ``name``, and not by its id.

        Raises:
            TypeError, ValueError: as :meth:`delete_folder`.
            TranscriptStoreError: as :meth:`shred`.
        """
        return self._folders.shred(name, None)

    # ---- within --------------------------------------------------------------------------------------------------

    def _store(self, id: str, options: Mapping[str, Any]) -> ConversationStore:
        options = {"redact": self._redact, **self._given, **options}
        return store_with_id(checked_id(id), self._folders.path_of(id), file_system=self._folders.files, **options)

    def _ids(self) -> Iterator[str]:
        return iter(self._folders.ids())


def iter_with_labels(library: ConversationLibrary, *, last_extra: bool = False) -> Iterator[ConversationSummary]:
    """A list with the titles and labels of the sealed conversations that the library's keys open; each of these is opened.

    A sealed conversation that does not open is listed without them.

    Raises:
        StorageError: as :meth:`ConversationLibrary.iter_list`.
    """
    for summary in library.iter_list(last_extra=last_extra):
        if summary.sealed and summary.id is not None:
            yield with_labels(summary, library.store(summary.id, read_only=True)) or summary
        else:
            yield summary


def with_labels(summary: ConversationSummary, conversation: ConversationStore) -> ConversationSummary | None:
    """The summary with the title and labels of a sealed conversation; None if its keys do not open it."""
    with suppress(TranscriptStoreError), conversation:
        conversation.load(verify="tail")
        labels = conversation.get_metadata().labels
        return replace(summary, title=title_in(labels), labels=labels)
    return None


def with_misplaced(found: Verification, name: str, own_id: str | None) -> Verification:
    """A verification, with a finding if the folder's name is the id of another conversation: a library does not open it."""
    if own_id is None or own_id == name or not is_id(name):
        return found
    from transcript_store._conversation.verify import Finding  # a listing does not need it

    reason, path = in_another_folder(own_id, name), f"{found.directory}/{TRANSCRIPT}"
    finding = Finding(path=path, kind="wrong-conversation", reason=reason, hint=Hint.RENAME_THE_FOLDER)
    return replace(found, findings=(*found.findings, finding))


def delete_conversation(directory: filesystem.AnyPath, *, file_system: FileSystem | None = None) -> None:
    """Delete the conversation in a folder, whatever the folder is called.

    Raises:
        ValueError: the path is ``/``, or cannot name a file.
        TranscriptStoreError: as :meth:`ConversationLibrary.delete`.
    """
    parent, _, name = filesystem.absolute_path(directory).rpartition("/")
    ConversationLibrary(parent or "/", file_system=file_system).delete_folder(name)


def list_conversations(
    directory: filesystem.AnyPath, *, last_extra: bool = False, file_system: FileSystem | None = None
) -> list[ConversationSummary]:
    """Every conversation directly under a directory, whatever its folder's name, the last changed one first.

    As :meth:`ConversationLibrary.list` otherwise.

    Raises:
        ConversationNotFoundError: there is no such directory; check the path.
        StorageError: the directory cannot be read, or is a file.
    """
    files = filesystem.REAL if file_system is None else file_system
    return Folders(files, filesystem.absolute_path(directory), None).summaries(last_extra)
