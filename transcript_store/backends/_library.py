"""A library on a backend: the class that ``ConversationLibrary(backend)`` creates, and how a search index reads it."""

from __future__ import annotations

import builtins
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

from transcript_store._conversation.arguments import require_bool
from transcript_store._conversation.key_changes import IS_NOT_THERE, KEY_IS_GONE, NOT_SEALED, required, several
from transcript_store._conversation.metadata import checked_id
from transcript_store._conversation.storage import Reader, StorageOptions
from transcript_store._conversation.summary import ConversationSummary, require_page, summary_in
from transcript_store._conversation.transcript_file import TranscriptFile, transcript_in
from transcript_store._conversation.verify import Finding, Verification, verify_folder
from transcript_store._conversation.writer import Writer
from transcript_store._library.folders import ConversationWriter, Folders
from transcript_store._library.group import ConversationGroup
from transcript_store._library.pruning import (
    LABELS_ARE_SEALED,
    LEFT_ALONE,
    PrunedItem,
    Pruning,
    Rule,
    require_store,
    rule_of,
    save,
    snapshot_to_keep,
    with_what_save_raised,
)
from transcript_store._os import filesystem
from transcript_store._os.filesystem import FileSystem, refusals
from transcript_store._sealing.keys import EncryptionKey, Keyring
from transcript_store.backends._backend import Backend, UnsupportedByBackendError, patiently
from transcript_store.backends._claims import WAITS_SECONDS, ClaimedLog
from transcript_store.backends._keys import rotate
from transcript_store.backends._restoring import write_damaged
from transcript_store.backends._storage import BackendConversation, BackendReader, BackendWriter
from transcript_store.backends._summary import listing_row, said_and_touched
from transcript_store.conversation import DEFAULT_MAX_LINE_BYTES, ConversationStore, Redact
from transcript_store.errors import (
    ConversationExistsError,
    ConversationLockedError,
    ConversationNotFoundError,
    CorruptTranscriptError,
    TranscriptStoreError,
    UnsupportedVersionError,
)
from transcript_store.hints import Hint
from transcript_store.library import ConversationLibrary, Rotation, Shredding

if TYPE_CHECKING:
    from transcript_store._snapshots.snapshot import SnapshotStore

__all__ = ["BackendLibrary"]

_INDEX_PAGE = 1000
_KEPT = 32
"""So many conversations stay fetched: the next read of one of them requests only its new slots."""


class BackendIndexSource:
    """The ``IndexSource`` of a library on a backend. A conversation is named by its id; one thread at a time may use it.

    Args:
        backend: the backend.
        reader: creates a reader of a conversation.
        store: creates a store that reads one, with keys.
        patience: the waits between two attempts, and the function that waits.
    """

    def __init__(
        self,
        backend: Backend,
        reader: Callable[[str], BackendReader],
        store: Callable[..., ConversationStore],
        patience: tuple[tuple[float, ...], Callable[[float], None]],
    ) -> None:
        self.name: str = backend.name
        self.identity: str | None = backend.identity
        self._backend = backend
        self._reader = reader
        self._store = store
        self._patience = patience
        self._fetched: OrderedDict[str, BackendReader] = OrderedDict()

    def path(self, folder: str) -> str:
        """A conversation's name in errors and hits."""
        return f"{self.name}/{folder}"

    # ---- stamps ---------------------------------------------------------------------------------------------------

    def looks(self, known: Mapping[str, str], *, refresh: bool) -> tuple[Iterator[list[tuple[str, str]]], bool]:
        """Pages of all ids, each with its stamp (the number of its last slot), and whether that is current.

        A backend that can list the last slots is asked for them. For another one the list summaries are used, which may
        be late, and lack conversations without one; with ``refresh`` every conversation is read for new slots.

        Args:
            known: known stamps.
            refresh: True to read each one if the backend cannot list all at once.
        """
        first = self._ends("")
        if first is not None:
            return self._pages_from(first), True
        return (self._asked(known), True) if refresh else (self._left(known), False)

    def _pages_from(self, page: list[tuple[str, int]]) -> Iterator[list[tuple[str, str]]]:
        while page:
            yield [(each, str(slot)) for each, slot in page]
            page = self._ends(page[-1][0]) or []

    def _ends(self, after: str) -> list[tuple[str, int]] | None:
        found: list[tuple[str, int]] | None = self._ask(lambda: self._backend.ends(after=after, limit=_INDEX_PAGE))
        return found

    def _asked(self, known: Mapping[str, str]) -> Iterator[list[tuple[str, str]]]:
        after = ""
        while page := self._ask(lambda after=after: self._backend.conversations(after=after, limit=_INDEX_PAGE)):  # type: ignore[misc]
            found = ((each, self._last_slot(each, _number(known.get(each)))) for each in page)
            yield [(each, str(slot)) for each, slot in found if slot]
            after = page[-1]

    def _last_slot(self, id: str, known: int) -> int:
        new = self._ask(lambda: self._backend.read(id, known))
        return max((piece.last for piece in new), default=known)

    def _left(self, known: Mapping[str, str]) -> Iterator[list[tuple[str, str]]]:
        before: tuple[str, str] | None = None
        while page := self._ask(lambda before=before: self._backend.summaries(before=before, limit=_INDEX_PAGE)):  # type: ignore[misc]
            yield [(each.id, str(max(each.slot, _number(known.get(each.id))))) for each in page]
            before = page[-1].updated_at, page[-1].id

    def _ask(self, call: Callable[[], Any]) -> Any:
        waits, sleep = self._patience
        return patiently(call, waits, sleep, path=self.name, doing="list the conversations")

    # ---- one of them -----------------------------------------------------------------------------------------------------

    def summary(self, folder: str) -> ConversationSummary | None:
        """The current row of a listing; None if it was deleted."""
        path = self.path(folder)
        try:
            reader = self._read(folder)
        except ConversationNotFoundError:
            return None
        except (CorruptTranscriptError, UnsupportedVersionError) as error:
            return ConversationSummary(id=folder, directory=path, damage=error.reason)
        return summary_in(reader.mirror, path)

    @contextmanager
    def transcript(self, folder: str) -> Iterator[TranscriptFile]:
        """The current live transcript, open to read.

        Raises:
            ConversationNotFoundError: it was deleted.
            CorruptTranscriptError: its slots do not verify.
            BackendError: the backend does not answer.
        """
        reader = self._read(folder)
        with transcript_in(reader.mirror, self.path(folder)) as transcript:
            yield transcript

    def store(self, folder: str, **keys: Any) -> ConversationStore:
        """A store that reads the conversation, not loaded yet."""
        return self._store(folder, read_only=True, **keys)

    def close(self) -> None:
        """Release what was fetched."""
        while self._fetched:
            self._fetched.popitem()[1].let_go()

    def _read(self, id: str) -> BackendReader:
        reader = self._fetched.pop(id, None) or self._reader(id)
        try:
            reader.look()
        except BaseException:
            reader.let_go()
            raise
        self._fetched[id] = reader
        if len(self._fetched) > _KEPT:
            self._fetched.popitem(last=False)[1].let_go()
        return reader


def _number(look: str | None) -> int:
    return int(look) if look and look.isdecimal() else 0


_PAGE = 200
_OPTIONS = StorageOptions(max_line_bytes=DEFAULT_MAX_LINE_BYTES)
"""The options of a conversation that the library itself reads or writes."""


def _opens(log: ClaimedLog, data_key: bytes) -> bool | None:
    """True if a data key unseals the metadata of a conversation; None if it is not sealed, missing, or damaged."""
    with suppress(ConversationNotFoundError, CorruptTranscriptError, UnsupportedVersionError):
        log.load_patiently()
    return log.opens(data_key)


class _Alone(ConversationGroup):
    """A group without a staging area, which needs a folder."""

    creates_alone = True


class BackendLibrary(ConversationLibrary):
    """A ``ConversationLibrary`` on a backend. ``ConversationLibrary(backend)`` creates one; it opens
    :class:`BackendConversation` objects.

    What differs:

    * ``list()`` shows what the writers left when they opened and closed a conversation, changed its metadata, and with
      each thousandth record. So ``record_count`` may be too low, and no slot is read.
    * ``delete()`` refuses a conversation that is damaged. An id that was deleted cannot be created again.
    * ``group()`` creates each conversation by itself.
    * A rotation and a shred replace one value of the backend each, and also work on conversations that are open to
      write. ``shred()`` claims the conversation, if it is readable, so that its writer gets an error.
    * A repair is made in a folder: ``export_damaged()`` writes a damaged conversation into one.
    * Calls that need files raise ``UnsupportedByBackendError``: ``delete_folder()``, ``shred_folder()``, and
      ``keep_generations`` of ``prune()``.
    * ``prune(snapshots=)`` deletes a conversation after its snapshot was acknowledged; without an answer it stays, and
      is released.

    Args:
        directory: the backend.
        waits_seconds: how long to wait between two attempts of an unanswered call.
        file_system: for tests, whose clock, chance and waiting are used.
    """

    _folders: Folders
    _given: dict[str, Any]

    def __init__(
        self,
        directory: Backend,
        *,
        redact: Redact | None = None,
        encryption_key: EncryptionKey | None = None,
        retired_keys: Iterable[EncryptionKey] = (),
        waits_seconds: Iterable[float] = WAITS_SECONDS,
        file_system: FileSystem | None = None,
    ) -> None:
        self._backend = directory
        self._waits = tuple(waits_seconds)
        self._machine = filesystem.REAL if file_system is None else file_system
        super().__init__(
            directory,
            redact=redact,
            encryption_key=encryption_key,
            retired_keys=retired_keys,
            file_system=file_system,
        )

    def _folders_of(self, directory: Any, files: FileSystem, keys: Keyring | None) -> Folders:
        return _Slots(files, str(directory.name), keys, self._slots)

    @property
    def index_source(self) -> BackendIndexSource:
        """The library as an index reads it (``transcript_store.search``); each index has its own, and closes it."""

        def reader(id: str) -> BackendReader:
            return BackendReader(self._slots(checked_id(id)), self._machine, _OPTIONS)

        return BackendIndexSource(self._backend, reader, self.store, (self._waits, self._machine.wait))

    # ---- differences from a folder ----------------------------------------------------------------------------------

    @contextmanager
    def group(self) -> Iterator[ConversationGroup]:
        yield _Alone(self.directory, self._machine, self.create, self.redact, None)

    def list(
        self, *, last_extra: bool = False, limit: int | None = None, before: ConversationSummary | None = None
    ) -> builtins.list[ConversationSummary]:
        require_page(limit, before)
        return [*islice(self._summaries(last_extra, before, _PAGE if limit is None else min(limit, _PAGE)), limit)]

    def iter_list(self, *, last_extra: bool = False) -> Iterator[ConversationSummary]:
        return self._summaries(last_extra, None, _PAGE)

    def _summaries(
        self, last_extra: bool, before: ConversationSummary | None, page_size: int
    ) -> Iterator[ConversationSummary]:
        if last_extra:
            self._refuse("list the last extra", Hint.OPEN_ONE_OF_THEM)
        backend = self._backend
        last = None if before is None else (before.updated_at or "", before.id or "")
        while True:
            ask = partial(backend.summaries, before=last, limit=page_size)
            page = patiently(ask, self._waits, self._machine.wait, path=self.directory, doing="list the conversations")
            for summary in page:
                yield listing_row(summary, f"{self.directory}/{summary.id}")
            if len(page) < page_size:
                return
            last = page[-1].updated_at, page[-1].id

    def verify(self, id: str) -> Verification:
        reader = BackendReader(self._slots(checked_id(id)), self._machine, _OPTIONS)
        with reader.let_go_at_the_end():
            try:
                reader.load()
            except CorruptTranscriptError as error:
                finding = Finding(
                    path=error.path, kind=error.kind, reason=error.reason, hint=error.hint or Hint.RESTORE
                )
                return Verification(directory=reader.path, findings=(finding,))
            return verify_folder(reader.folder)

    def export_damaged(self, id: str, directory: filesystem.AnyPath) -> None:
        """Write a damaged conversation into a folder, unchanged; the backend stays unchanged, and nothing is claimed.

        :func:`transcript_store.salvage` reads that folder, ``repair()`` repairs it, and ``fork_from()`` brings it back
        under another id. It also has what follows the first damaged slot: the lines of a slot, if its envelope can be
        read, else its bytes. The labels are those of the last slot that verifies, or of the live transcript's first
        line. A sealed conversation stays sealed there.

        Args:
            id: the conversation.
            directory: a folder that does not exist yet, on a disk.

        Raises:
            ConversationNotFoundError: there is no such conversation, or it was deleted.
            ConversationExistsError: the path is taken. Nothing was written.
            TranscriptStoreError: no answer, or the system refused.
        """
        slots, files, path = self._slots(checked_id(id)), filesystem.REAL, filesystem.absolute_path(directory)
        with suppress(CorruptTranscriptError, UnsupportedVersionError):  # that is the reason for the call
            slots.load_patiently()
        ask = partial(self._backend.read, id)
        pieces = patiently(ask, self._waits, self._machine.wait, path=slots.path, doing="read the damaged conversation")
        key = slots.key.read()
        if os.path.lexists(path):
            raise ConversationExistsError(path=path, reason="the path is taken; choose a new folder")
        with refusals(path, "write the damaged conversation"):
            write_damaged(files, path, id, pieces, key)

    def delete(self, id: str) -> None:
        slots = self._slots(checked_id(id))
        writer = BackendWriter(slots, self._machine, _OPTIONS)
        with writer.let_go_at_the_end():
            writer.delete()

    def deleted_ids(self) -> frozenset[str]:
        return frozenset()  # a backend keeps nothing of deleted conversations

    def delete_folder(self, name: str) -> None:  # noqa: ARG002
        self._refuse("delete a folder")

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
        require_bool("dry_run", dry_run)
        rule = rule_of(self._machine, older_than, keep_generations, keep_quarantine, labels)
        if keep_generations is not None:
            self._refuse("remove earlier generations", Hint.FORK_AND_DELETE)
        require_store(snapshots)
        due = [
            item for summary in self._summaries(False, None, _PAGE) if (item := self._due(summary, rule)) is not None
        ]
        if not dry_run:
            tried = (with_what_save_raised(partial(self._pruned, each, rule, snapshots)) for each in due)
            due = [item for item in tried if item is not None]
        return Pruning(applied=not dry_run, items=tuple(due))

    def _due(self, summary: ConversationSummary, rule: Rule) -> PrunedItem | None:
        """The item, if the list has the conversation as expired."""
        touched_at = summary.touched_at or summary.updated_at
        if (touched_at or "") >= (rule.before or ""):
            return None
        item = PrunedItem(
            what="conversation",
            id=summary.id or "",
            title=summary.title,
            updated_at=touched_at,
            size_bytes=summary.size_bytes or 0,
        )
        labels = summary.labels
        if rule.labels and summary.sealed and (labels := self._sealed_labels(item.id)) is None:
            return replace(item, skipped=LABELS_ARE_SEALED)
        return item if rule.labels.items() <= (labels or {}).items() else None

    def _sealed_labels(self, id: str) -> dict[str, str] | None:
        with suppress(TranscriptStoreError), self.open(id, read_only=True, verify="tail") as conversation:
            return conversation.get_metadata().labels
        return None

    def _pruned(self, item: PrunedItem, rule: Rule, snapshots: SnapshotStore | None) -> PrunedItem | None:
        """Delete an expired conversation after its claim and its snapshot; None if it is no longer expired, or was
        deleted.
        """
        if item.skipped is not None:
            return item
        writer = BackendWriter(self._slots(item.id), self._machine, _OPTIONS)
        kept: list[str] = []

        def is_due_and_saved() -> bool:
            # Those of the list may be of an earlier moment.
            is_sealed = rule.labels and writer.slots.state.is_sealed
            labels = (self._sealed_labels(item.id) if is_sealed else writer.slots.state.members.get("labels")) or {}
            _, touched_at = said_and_touched(writer.files, writer.path, writer.updated_at)
            # Checked again under the claim: the listing is older, and the conversation may have been used since.
            if touched_at >= (rule.before or "") or not rule.labels.items() <= labels.items():
                return False
            if snapshots is not None:
                kept.append(self._saved(item.id, writer, snapshots))
            return True

        with writer.let_go_at_the_end():
            try:
                is_gone = writer.delete(is_due_and_saved)
            except ConversationNotFoundError:
                return None
            except LEFT_ALONE as error:
                return replace(item, skipped=str(error))
            return replace(item, snapshot=kept[0] if kept else None) if is_gone else None

    def _saved(self, id: str, writer: BackendWriter, snapshots: SnapshotStore) -> str:
        """Keep a snapshot of a conversation that is claimed; returns its id. A writer that comes meanwhile has claimed
        it: then it stays.
        """
        keys: dict[str, Any] = {}
        if not writer.slots.state.is_sealed:  # the library's key may be meant for the snapshots
            keys = {"encryption_key": None, "retired_keys": ()}
        with self.store(id, read_only=True, **keys) as reader:
            reader.load()
            snapshot = snapshot_to_keep(reader)
            # The snapshot must have every record that is about to be deleted.
            if reader.head != writer.slots.state.end.head.decode():
                raise ConversationLockedError(path=writer.path, reason="another process is writing to it")
        return save(snapshots, snapshot)

    def rotate_key(self, names: Iterable[str] | None = None) -> Rotation:
        chosen = several(names)
        ids = self._ids() if chosen is None else map(checked_id, chosen)
        logs = map(self._slots, ids)
        done = rotate(((log.key, partial(_opens, log)) for log in logs), required(self._folders.keys))
        without = [each for each, why in done.skipped if why == NOT_SEALED]
        why_not = self._why_without_key(without, by_summary=chosen is None)
        return replace(done, skipped=tuple((each, why_not.get(each, why)) for each, why in done.skipped))

    def _why_without_key(self, ids: Sequence[str], *, by_summary: bool) -> dict[str, str]:
        """Why these sealed conversations have no key: from the listing, in a few requests for all, or from their slots."""
        if by_summary:
            summaries = self._summaries(False, None, _PAGE) if ids else ()
            return {summary.id: KEY_IS_GONE for summary in summaries if summary.sealed and summary.id}
        found = {}
        for each in ids:
            slots = self._slots(each)
            with suppress(CorruptTranscriptError, UnsupportedVersionError):
                try:
                    slots.load_patiently()
                except ConversationNotFoundError:
                    found[each] = IS_NOT_THERE
                else:
                    if slots.state.is_sealed:
                        found[each] = KEY_IS_GONE
        return found

    def writers(self) -> builtins.list[ConversationWriter]:
        """As :meth:`ConversationLibrary.writers`."""
        found = []
        for each in self._ids():
            slots = self._slots(each)
            try:
                slots.load_patiently()
            except (ConversationNotFoundError, CorruptTranscriptError, UnsupportedVersionError):
                continue  # it was deleted; or it cannot be written to
            state = slots.state
            if state.claim is not None and not state.is_released:
                name, pid, host = (state.claim.holder.get(part) for part in ("name", "pid", "host"))
                found.append(
                    ConversationWriter(
                        id=each,
                        name=str(name) if name else None,
                        pid=pid if type(pid) is int else None,
                        host=str(host) if host else None,
                        since=state.claim.at,
                        last_write_at=state.at,
                        takes_turns=bool(state.claim.holder.get("turns")),
                    )
                )
        return found

    def _ids(self) -> Iterator[str]:
        after = ""
        while True:
            ask = partial(self._backend.conversations, after=after, limit=_PAGE)
            page = patiently(ask, self._waits, self._machine.wait, path=self.directory, doing="list the conversations")
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1]

    def shred_folder(self, name: str) -> NoReturn:  # noqa: ARG002
        self._refuse("read a folder")

    def shred(self, id: str) -> Shredding:
        writer = BackendWriter(self._slots(checked_id(id)), self._machine, _OPTIONS)
        with writer.let_go_at_the_end():
            return writer.shred()

    # ---- within ----------------------------------------------------------------------------------------------------------

    def _refuse(self, doing: str, hint: Hint | None = Hint.SAVE_AND_FORK) -> NoReturn:
        raise UnsupportedByBackendError(path=self.directory, doing=doing, hint=hint)

    def _slots(self, id: str) -> ClaimedLog:
        return ClaimedLog(self._backend, id, waits_seconds=self._waits, sleep=self._machine.wait)

    def _store(self, id: str, options: Mapping[str, Any]) -> ConversationStore:
        given = {"redact": self.redact, **self._given, **options, "file_system": self._machine}
        return BackendConversation(self._backend, id, waits_seconds=self._waits, **given)


class _Slots(Folders):
    """The folder operations of a library, on a backend: there are no folders, no links and no leftovers."""

    def __init__(self, files: FileSystem, path: str, keys: Keyring | None, slots: Callable[[str], ClaimedLog]) -> None:
        super().__init__(files, path, keys)
        self._slots = slots

    def reader(self, id: str) -> Reader:
        return BackendReader(self._slots(id), self.files, self.options)

    def writer(self, id: str) -> Writer:
        return BackendWriter(self._slots(id), self.files, self.options)

    def making(self, id: str, *, is_reported: bool = False) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()  # a create is one slot

    def require(self, name: str) -> None:
        """No-op: there are no links on a backend."""

    def refuse_occupied(self, id: str) -> None:
        """No-op: a create reports a conflict itself."""


Backend.library_class = BackendLibrary  # code with a backend has imported the package, which imports this
