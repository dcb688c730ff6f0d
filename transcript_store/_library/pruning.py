"""What does ``ConversationLibrary.prune()`` remove, and how?

Each item is checked twice: once from the listing (what a dry run returns), and again under the conversation's lock. So
a conversation that was written to in between, or that a process has open, stays.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from transcript_store._conversation import archive
from transcript_store._conversation.arguments import require_bool, require_count
from transcript_store._conversation.deleting import delete
from transcript_store._conversation.layout import strangers
from transcript_store._conversation.metadata import checked_fields
from transcript_store._conversation.summary import ConversationSummary, summarize
from transcript_store._json.parts import imported_at
from transcript_store._json.times import format_time, given_time, is_time
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem, NotOursError, refusals
from transcript_store._os.names import ARCHIVE, QUARANTINE, archive_name
from transcript_store.conversation import ConversationStore
from transcript_store.errors import (
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationShreddedError,
    CorruptKeyFileError,
    CorruptMetadataError,
    CorruptTranscriptError,
    InvalidMessageError,
    InvalidMetadataError,
    KeyNeededError,
    NotSealedError,
    StorageError,
    TranscriptStoreError,
    UnsupportedVersionError,
    WrongKeyError,
)

if TYPE_CHECKING:
    from transcript_store._snapshots.snapshot import Snapshot, SnapshotStore


_T = TypeVar("_T")


def require_store(snapshots: object) -> None:
    """Raise ``TypeError`` unless snapshots can be stored there: also before a dry run, which stores none."""
    if snapshots is not None and not callable(getattr(snapshots, "save", None)):
        kind = type(snapshots).__name__
        raise TypeError(f"snapshots must be a SnapshotStore, such as FileStore(directory), not {kind}")


class _NotSavedError(Exception):
    """Carries a snapshot store's error past the handlers for conversation errors. Never leaves this package."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def save(snapshots: SnapshotStore, snapshot: Snapshot) -> str:
    """Store a snapshot, and return its id; call it within :func:`with_what_save_raised`.

    The store's error is about that store: its lock, its key, its disk. So it is no reason to skip the conversation.
    """
    try:
        snapshots.save(snapshot)
    except Exception as error:
        raise _NotSavedError(error) from None
    return snapshot.id


def with_what_save_raised(prune: Callable[[], _T]) -> _T:
    """Call a function that prunes; raises the snapshot store's error as that raised it."""
    try:
        return prune()
    except _NotSavedError as carrier:
        error = carrier.error
    raise error  # here, where no other error is being handled: it has only its own context


def snapshot_to_keep(reader: ConversationStore) -> Snapshot:
    """A snapshot of a loaded conversation before it is removed.

    The id is the transcript's head, written as a UUID: a repeated prune stores the same snapshot again.
    """
    from transcript_store._snapshots.history import snapshot_of  # here: most libraries are never pruned

    return replace(snapshot_of(reader), id=_as_id(reader.head))


def _as_id(head: str) -> str:
    return "-".join((head[:8], head[8:12], head[12:16], head[16:20], head[20:]))


_OF_KEYS = (
    KeyNeededError,
    WrongKeyError,
    CorruptKeyFileError,
    ConversationShreddedError,
    NotSealedError,
)

LEFT_ALONE = (
    ConversationLockedError,
    ConversationNotFoundError,
    CorruptTranscriptError,
    CorruptMetadataError,
    UnsupportedVersionError,
    InvalidMessageError,
    InvalidMetadataError,
    *_OF_KEYS,
)
"""Errors about one conversation: it is skipped, and the prune continues. A refusal of the system ends the prune, unless it is
about permissions, which belong to one folder.
"""
_CLOSED = (errno.EACCES, errno.EPERM)

LABELS_ARE_SEALED = "whether it is expired is unknown: its labels are sealed, and the library has no key that opens it"

_METADATA_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedItem:
    """One expired item: a conversation, an earlier generation of one, or the contents of its quarantine."""

    what: Literal["conversation", "generation", "quarantine"]
    id: str
    """The conversation's id."""
    title: str | None = None
    updated_at: str | None = None
    """When the conversation was last written to: the latest of its last message, its import, and a change of its metadata. RFC 3339 in
    UTC."""
    generation: int | None = None
    """The number of the generation, if the item is one."""
    size_bytes: int = 0
    """The size of its files. For a conversation including its archive and quarantine."""
    snapshot: str | None = None
    """The id of the snapshot that was made of the conversation before it was removed."""
    skipped: str | None = None
    """Why an expired item was skipped, in a sentence: it is open to write, it is damaged, its folder holds something
    else. None if it was removed, or would be after a dry run.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """The items that :meth:`ConversationLibrary.prune` removed, or would remove."""

    applied: bool
    """False after a dry run: nothing was changed."""
    items: tuple[PrunedItem, ...]
    """All expired items, also the skipped ones."""

    @property
    def pruned(self) -> tuple[PrunedItem, ...]:
        """The items that were removed, or would be."""
        return tuple(item for item in self.items if item.skipped is None)

    @property
    def skipped(self) -> tuple[PrunedItem, ...]:
        """The expired items that stayed, each with the reason."""
        return tuple(item for item in self.items if item.skipped is not None)

    @property
    def size_bytes(self) -> int:
        """The size of the files that were removed, or would be."""
        return sum(item.size_bytes for item in self.pruned)


class Rule(NamedTuple):
    """The rule by which items are expired."""

    before: str | None
    """Conversations last changed before this time; None: no conversation is expired."""
    keep_generations: int | None
    """Earlier generations, except so many of the newest; None: no generation is expired."""
    keep_quarantine: bool
    labels: Mapping[str, str]
    """Only conversations that have all of these labels."""


def rule_of(
    files: FileSystem,
    older_than: str | datetime | timedelta | None,
    keep_generations: int | None,
    keep_quarantine: bool,
    labels: Mapping[str, str] | None,
) -> Rule:
    """The rule of these arguments; raises if they ask for nothing, or are implausible."""
    if older_than is None and keep_generations is None and keep_quarantine:
        raise ValueError("nothing to prune: pass older_than, keep_generations or keep_quarantine=False")
    if keep_generations is not None:
        require_count("keep_generations", keep_generations)
    require_bool("keep_quarantine", keep_quarantine)
    if not isinstance(labels, Mapping | None):
        raise TypeError(f"labels must be a dict of str to str, not {type(labels).__name__}")
    wanted = checked_fields({"labels": dict(labels or {})}, _METADATA_BYTES)["labels"]
    return Rule(None if older_than is None else _moment(files, older_than), keep_generations, keep_quarantine, wanted)


def _moment(files: FileSystem, older_than: str | datetime | timedelta) -> str:
    if isinstance(older_than, timedelta):
        if older_than < timedelta(0):
            raise ValueError(f"older_than must not be negative: {older_than}")
        return format_time(max(0, files.now_us() - older_than // timedelta(microseconds=1)))
    if not isinstance(older_than, (str, datetime)):
        kind = type(older_than).__name__
        raise TypeError(f"older_than must be a timedelta, an aware datetime or text of RFC 3339, not {kind}")
    try:
        before_us = given_time(older_than)
    except ValueError as error:
        raise ValueError(f"older_than: {error}; a timedelta says how long ago") from None
    if before_us > (now_us := files.now_us()):  # a mistyped year must not remove everything
        reason = f"is in the future (by the clock it is {format_time(now_us)}), so every conversation would be expired"
        raise ValueError(f"older_than: {format_time(before_us)} {reason}; pass a time in the past")
    return format_time(before_us)


class Pruner:
    """Prunes the conversations of one library by a rule."""

    def __init__(
        self, files: FileSystem, library: str, rule: Rule, snapshots: SnapshotStore | None, keys: Mapping[str, Any]
    ) -> None:
        self._keys = keys
        """As a store is given them."""
        self._files, self._library, self._rule, self._snapshots = files, library, rule, snapshots

    def items(self, summaries: Iterable[ConversationSummary], *, dry_run: bool) -> Iterator[PrunedItem]:
        """The expired items, conversation by conversation; each is removed when it is yielded, unless this is a dry run."""
        prune = self._due if dry_run else self._prune
        for summary in summaries:
            yield from with_what_save_raised(partial(self._items_of, prune, summary))

    def _items_of(
        self, prune: Callable[[ConversationSummary], list[PrunedItem]], summary: ConversationSummary
    ) -> list[PrunedItem]:
        with refusals(summary.directory, "prune the conversation"):
            return prune(summary)

    # ---- expired items ---------------------------------------------------------------------------------------------

    def _due(self, summary: ConversationSummary) -> list[PrunedItem]:
        name = summary.directory.rpartition("/")[2]
        known = PrunedItem(what="conversation", id=name, title=summary.title, updated_at=summary.touched_at)
        if summary.damage is not None and (summary.touched_at is None or summary.labels is None):
            return [replace(known, skipped=f"whether it is expired is unknown: {summary.damage}")]
        labels = summary.labels
        if self._rule.labels and summary.sealed and (labels := self._sealed_labels(name)) is None:
            return [replace(known, skipped=LABELS_ARE_SEALED)]
        if not self._rule.labels.items() <= (labels or {}).items():
            return []
        try:
            with Folder.open(self._files, self._library) as parent, parent.subfolder(name) as folder:
                found = self._due_of(folder, summary, known)
        except FileNotFoundError:
            return []  # another process deleted it
        except NotOursError as error:
            return [replace(known, skipped=f"it cannot be read: {error.reason}")]
        except OSError as error:
            if error.errno not in _CLOSED:
                raise
            return [replace(known, skipped=f"it cannot be read: {error.strerror}")]
        if summary.damage is not None:
            return [replace(item, skipped=f"it is damaged: {summary.damage}") for item in found]
        return found

    def _sealed_labels(self, name: str) -> dict[str, str] | None:
        with suppress(TranscriptStoreError), self._reader(name) as reader:
            reader.load(verify="tail")
            return reader.get_metadata().labels
        return None

    def _reader(self, name: str) -> ConversationStore:
        return ConversationStore(self._path_of(name), read_only=True, file_system=self._files, **self._keys)

    def _due_now(self, name: str) -> list[PrunedItem]:
        """The expired items of a conversation whose lock is held: everything listed, labels too, may have changed since."""
        with Folder.open(self._files, self._library) as parent:
            now = summarize(parent, name)
        return [] if now is None else self._due(now)

    def _due_of(self, folder: Folder, summary: ConversationSummary, known: PrunedItem) -> list[PrunedItem]:
        if self._is_old(folder, summary):
            found = [replace(known, size_bytes=_size(folder))]
        else:
            found = [
                replace(known, what="generation", generation=number, size_bytes=size)
                for number, size in self._generations_due(folder, summary.generation or 0)
            ]
            if not self._rule.keep_quarantine and (size := _size_within(folder, QUARANTINE)):
                found.append(replace(known, what="quarantine", size_bytes=size))
        if found and (
            others := strangers(folder)
        ):  # a file that a person put there may belong to what would be removed
            return [replace(item, skipped=f"the folder also has {others}") for item in found]
        return found

    def _is_old(self, folder: Folder, summary: ConversationSummary) -> bool:
        before, at = self._rule.before, summary.touched_at
        if before is None or at is None or not is_time(at) or at >= before:
            return False
        return not self._was_imported_since(before, folder)

    def _was_imported_since(self, before: str, folder: Folder) -> bool:
        """When an import wrote last, if it did: its records have the times of the source."""
        with Folder.open(self._files, self._library) as parent:
            now = summarize(parent, folder.path.rpartition("/")[2], last_extra=True)
        return imported_at(now.last_extra if now else None) >= before

    def _generations_due(self, folder: Folder, live: int) -> list[tuple[int, int]]:
        """The numbers of the expired generations, and their sizes. An interrupted replace may have left a file that is
        none.
        """
        keep = self._rule.keep_generations
        if keep is None:
            return []
        earlier = [number for number in archive.numbers(folder) if number < live]
        if len(earlier) <= keep:
            return []
        with folder.subfolder(ARCHIVE) as archived:
            status = [(number, archived.status(archive_name(number))) for number in earlier[: len(earlier) - keep]]
        return [(number, found.st_size) for number, found in status if found is not None]

    # ---- removal -----------------------------------------------------------------------------------------------

    def _prune(self, summary: ConversationSummary) -> list[PrunedItem]:
        due = self._due(summary)
        if not due or due[0].skipped is not None:
            return due
        gone: list[PrunedItem] = []
        reason = "it has changed and is no longer expired"
        try:
            if due[0].what == "conversation":
                self._delete(due[0], gone)
            else:
                self._trim(due, gone)
        except ConversationNotFoundError:
            return gone  # another process deleted it
        except LEFT_ALONE as error:
            reason = _reason(error)
        except StorageError as error:
            # An error of the disk concerns every conversation: the prune ends. What another program put there, and what
            # this user may not change, concerns this one alone.
            if not (isinstance(error.__cause__, NotOursError) or error.errno in _CLOSED):
                raise
            reason = _reason(error)
        stay = {(item.what, item.generation) for item in due} - {(item.what, item.generation) for item in gone}
        return gone + [replace(item, skipped=reason) for item in due if (item.what, item.generation) in stay]

    def _delete(self, item: PrunedItem, gone: list[PrunedItem]) -> None:
        snapshot: list[str] = []

        def is_due_and_saved() -> bool:
            # Under the lock: the dry run and the user's confirmation were minutes ago.
            if [(one.what, one.skipped) for one in self._due_now(item.id)] != [("conversation", None)]:
                return False
            if self._snapshots is not None:
                snapshot.append(self._saved(item.id, self._snapshots))
            return True

        # The snapshot is durable before the delete starts, and both happen under one lock.
        if delete(self._files, self._library, item.id, is_due_and_saved):
            gone.append(replace(item, snapshot=snapshot[0] if snapshot else None))

    def _saved(self, id: str, snapshots: SnapshotStore) -> str:
        """Keep a snapshot of a conversation whose lock is held; returns its id."""
        with self._reader(id) as reader:
            reader.load()
            _require_id(reader, id)
            snapshot = snapshot_to_keep(reader)
        return save(snapshots, snapshot)

    def _trim(self, due: list[PrunedItem], gone: list[PrunedItem]) -> None:
        """Remove earlier generations, the oldest first, and then the contents of the quarantine; each completely or not
        at all.
        """
        name = due[0].id
        with ConversationStore(self._path_of(name), file_system=self._files, **self._keys) as store:
            store.load(verify="tail")
            _require_id(store, name)
            due_now = {_what_goes(item) for item in self._due_now(name)}
            for item in due:
                if _what_goes(item) not in due_now:
                    continue  # for example a quarantine that this load has added to: no user has seen that yet
                if item.generation is not None:
                    store.delete_generation(item.generation)
                else:
                    store.purge_quarantine()
                gone.append(item)

    def _path_of(self, name: str) -> str:
        return f"{self._library.rstrip('/')}/{name}"


def _what_goes(item: PrunedItem) -> tuple[str, int | None, int, str | None]:
    return item.what, item.generation, item.size_bytes, item.skipped


def _require_id(store: ConversationStore, name: str) -> None:
    if store.id != name:
        reason = f"conversation {store.id} is in the folder that belongs to {name}"
        raise CorruptTranscriptError(path=store.directory, kind="wrong-conversation", reason=reason)


def _reason(error: TranscriptStoreError) -> str:
    reason: Any = getattr(error, "reason", None)
    return reason if isinstance(reason, str) else error.problem


def _size(folder: Folder) -> int:
    """The total size of a conversation's files."""
    return _size_of(folder) + sum(_size_within(folder, name) for name in (ARCHIVE, QUARANTINE))


def _size_within(folder: Folder, name: str) -> int:
    if folder.status(name) is None:
        return 0
    with folder.subfolder(name) as inner:
        return _size_of(inner)


def _size_of(folder: Folder) -> int:
    found = (folder.status(name) for name in folder.names())
    return sum(status.st_size for status in found if status is not None and stat.S_ISREG(status.st_mode))
