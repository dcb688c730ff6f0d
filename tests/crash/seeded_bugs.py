"""Stores that are broken on purpose, one way at a time: the crash tests must catch every one.

Most are bugs that real stores had. Each is applied through pytest's ``monkeypatch`` to the classes of the store or of the
machines below it, and names the case on which it shows, the technique on the simulated disk that must catch it, and those on
the real kernel that catch it too. A bug is put inside, so private members are named here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from tests.crash.model import IN_TURNS, LIBRARY, Machine
from tests.crash.operations import (
    Case,
    append,
    append_by_another_killed,
    append_given_again,
    append_long,
    append_with_failed_sync_while_mapped,
    batch,
    batch_with_times,
    beside_another_library,
    beside_imported_ones,
    close,
    copy_by_the_writer,
    create_another_together,
    create_together,
    create_together_again,
    delete,
    delete_again,
    delete_generation,
    delete_imported,
    delete_second_generation,
    fork,
    fork_after_a_failed_sync,
    fork_all,
    fork_elsewhere,
    fork_within_a_replace,
    grown,
    imported,
    initialize,
    initialize_with_times,
    keep_live_messages,
    keep_records,
    leaked,
    load,
    named_and_not_synced,
    nothing,
    prune_into_snapshots,
    prune_while_another_writes,
    rename_by_another,
    rename_by_another_killed,
    rename_by_another_seen_by_a_third,
    replace,
    replace_with_times,
    replaced_twice,
    restore_snapshot_into_nothing,
    retract,
    retractable,
    torn,
    unmarked,
    update_compaction_count,
    update_metadata,
    without_line_feed,
)
from tests.crash.real_disk import RealDisk
from tests.crash.sealed_conversations import (
    CREATED,
    FINISHED_ROTATION,
    ROTATION,
    ROTATION_ALONE,
    SEALED_BESIDE,
    SHRED,
    SHRED_BEHIND_A_ROTATION,
)
from tests.crash.snapshot_stores import BEING_SEALED, PLAIN, rotate, save, save_media, two
from transcript_store import ConversationChangedError, ConversationStore, FileStore, Snapshot
from transcript_store._conversation import archive as _archive
from transcript_store._conversation import deleting, shared_writer, storage, writer
from transcript_store._conversation.key_changes import Rotator
from transcript_store._conversation.shared_writer import SharedWriter
from transcript_store._conversation.storage import Storage
from transcript_store._conversation.writer import Writer
from transcript_store._json.times import given_time
from transcript_store._library import group
from transcript_store._library.group import StagingArea
from transcript_store._log import damage, log, resync
from transcript_store._log.lines import Cache, CachedLines
from transcript_store._log.log import Log
from transcript_store._log.record import Mark, Position, record_body
from transcript_store._log.retractions import Renumbering
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import storage_error, unsynced
from transcript_store._os.lock import Lock
from transcript_store._os.names import KEY, METADATA, is_trash, trash_name
from transcript_store._snapshots.file_store import SnapshotFiles
from transcript_store.library import ConversationLibrary
from transcript_store.testing import SimulatedFileSystem

Patch = pytest.MonkeyPatch
MACHINES: tuple[Any, ...] = (SimulatedFileSystem, RealDisk)
RECORD = re.compile(rb'\{"seq":.*,"hash":"[0-9a-f]{32}"\}', re.DOTALL)


@dataclass(frozen=True)
class Bug:
    """One way to break the store, the case that shows it, and the technique that must catch it."""

    break_it: Callable[[Patch], None]
    case: Case
    caught_by: str
    on_the_kernel: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.break_it.__name__


def _nothing(*_: object, **__: object) -> None:
    return None


def no_sync_of_appends(patch: Patch) -> None:
    for machine in MACHINES:
        patch.setattr(machine, "sync_data", _nothing)


def no_sync_of_directories(patch: Patch) -> None:
    sync = Folder.sync
    patch.setattr(Folder, "sync", lambda self, handle=None: None if handle is None else sync(self, handle))


def rename_before_sync(patch: Patch) -> None:
    sync = Folder.sync
    patch.setattr(Folder, "sync", lambda self, handle=None: sync(self) if handle is None else None)


def rewrite_in_place(patch: Patch) -> None:
    """Instead of a rename, the old file is emptied and written again."""

    def rename(self: Machine, parent: int, old: str, new: str) -> None:
        try:
            target = self.open_append(parent, new)
        except FileNotFoundError:
            real[type(self)](self, parent, old, new)
            return
        source = self.open_read(parent, old)
        self.truncate(target, 0)
        self.write(target, self.read(source, 0, 1 << 20))
        self.sync(target)
        self.unlink(parent, old)

    real = {machine: machine.rename for machine in MACHINES}
    for machine in MACHINES:
        patch.setattr(machine, "rename", rename)


def unlink_before_rename(patch: Patch) -> None:
    def rename(self: Machine, parent: int, old: str, new: str) -> None:
        if new in self.list_directory(parent):
            self.unlink(parent, new)
        real[type(self)](self, parent, old, new)

    real = {machine: machine.rename for machine in MACHINES}
    for machine in MACHINES:
        patch.setattr(machine, "rename", rename)


def torn_tail_left(patch: Patch) -> None:
    """The torn tail is forgotten in memory and stays in the file, so the next line is glued to it."""
    patch.setattr(Log, "_recover", lambda self, torn, size: None)
    patch.setattr(Log, "size_bytes", lambda self: self.end.offset_bytes)
    patch.setattr(Log, "is_as_remembered", lambda self: True)


def torn_tail_cut_before_quarantine(patch: Patch) -> None:
    def keep(folder: Folder, pieces: object, **_: Any) -> str:
        return folder.path_of("quarantine/nothing")

    patch.setattr(log, "quarantine_bytes", keep)


def whole_record_without_line_feed_cut(patch: Patch) -> None:
    """A record that verifies is cut because its LF is missing."""
    stretches = resync.stretches
    patch.setattr(
        damage, "stretches", lambda read, size, begin: (one for one in stretches(read, size, begin) if one.end < size)
    )


def append_after_a_failed_sync(patch: Patch) -> None:
    """The failed sync is reported, forgotten, and tried again with the next append."""

    def poison(self: Writer, error: OSError, doing: str) -> Exception:
        self.log.is_current = True
        return storage_error(error, self.path, doing)

    patch.setattr(Writer, "_poison", poison)
    patch.setattr(Log, "is_as_remembered", lambda self: True)


def failed_sync_hidden(patch: Patch) -> None:
    for machine in MACHINES:

        def sync_data(self: Any, handle: int, sync: Any = machine.sync_data) -> None:
            with suppress(OSError):
                sync(self, handle)

        patch.setattr(machine, "sync_data", sync_data)


def cache_trusted_after_a_failed_sync(patch: Patch) -> None:
    for machine in MACHINES:
        patch.setattr(machine, "drop_cache", _nothing)


def mapped_pages_trusted_after_a_failed_sync(patch: Patch) -> None:
    """The cache is dropped and then trusted, although pages that another process has mapped stay in it."""

    def advise(self: RealDisk, handle: int) -> None:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)

    def drop_cache(self: SimulatedFileSystem, handle: int) -> None:
        self._disk.drop_cache(self._handles[handle].inode)

    patch.setattr(RealDisk, "drop_cache", advise)
    patch.setattr(SimulatedFileSystem, "drop_cache", drop_cache)


def partial_write_left(patch: Patch) -> None:
    """A full disk cut the line short, and the part that was written stays before the next one."""
    patch.setattr(Log, "_cut_back", _nothing)
    patch.setattr(Log, "is_as_remembered", lambda self: True)


def stale_temporary_reused(patch: Patch) -> None:
    """A temporary with a fixed name is opened as it is, with what a crash left in it."""

    def create(self: Machine, parent: int, name: str) -> int:
        if name.startswith(".tmp-"):
            try:
                return self.open_append(parent, name)
            except FileNotFoundError:
                pass
        handle: int = real[type(self)](self, parent, name)
        return handle

    real = {machine: machine.create for machine in MACHINES}
    for machine in MACHINES:
        patch.setattr(machine, "create", create)
        patch.setattr(machine, "random_bytes", lambda self, count: bytes(count))
    patch.setattr(Folder, "sweep", _nothing)


def batch_not_marked(patch: Patch) -> None:
    def unmarked_body(seq: int, at: bytes, message: bytes, extra: bytes, *_: Any) -> list[bytes]:
        return record_body(seq, at, message, extra)

    patch.setattr(log, "record_body", unmarked_body)


def damaged_line_skipped(patch: Patch) -> None:
    """Lines that do not verify are silently skipped, wherever they are."""

    def verify(self: Log, mark: Mark | None) -> None:
        begin, size = self.begin, self.size_bytes()
        rest = bytes(self.read(begin.offset_bytes, size))
        lines = [line + b"\n" for line in rest.split(b"\n") if RECORD.fullmatch(line)]
        end = Position(len(lines), size, lines[-1][-35:-3] if lines else begin.head)
        self.cache = Cache(1 << 20, begin)
        self.cache.put(CachedLines(begin, b"".join(lines), end))
        self.end = self.synced = end
        self.verified_from = begin
        self.is_current = True

    patch.setattr(Log, "verify", verify)  # the public verify() looks on


def hole_cut(patch: Patch) -> None:
    """Bad bytes are taken for a torn tail, whatever follows them."""
    patch.setattr(damage, "stretches", lambda *_: iter(()))


def mark_before_sync(patch: Patch) -> None:
    """The mark vouches for records that were not synced."""

    def sync(self: Log) -> None:
        self.synced = self.end

    patch.setattr(Log, "sync", sync)


def recovery_not_synced(patch: Patch) -> None:
    """What a killed process left in the cache is shown, and not put on the disk."""
    opened = Log.open

    def open_without_sync(self: Log, mark: Any) -> None:
        with patch.context() as within:
            within.setattr(Log, "_sync", _nothing)
            opened(self, mark)

    patch.setattr(Log, "open", open_without_sync)


def metadata_outside_the_commit(patch: Patch) -> None:
    """A replace commits its transcript, and its metadata in a second commit that a crash can prevent."""

    def image(self: Log, members: dict[str, Any], entries: Any, features: Any = (), **more: Any) -> Any:
        if more:
            members = {**members, "model": self.header.metadata["model"], "compaction_count": 0}
        return real(self, members, entries, features, **more)

    real = Log.image
    patch.setattr(Log, "image", image)


def leftovers_not_swept(patch: Patch) -> None:
    patch.setattr(Folder, "sweep", _nothing)


def lock_not_released_after_a_failed_load(patch: Patch) -> None:
    patch.setattr(Storage, "let_go", _nothing)


def unfinished_replace_kept(patch: Patch) -> None:
    """The archive entry of a replace that never committed stays, and the next replace meets it."""
    patch.setattr(_archive, "tidy", _nothing)


def parents_not_synced(patch: Patch) -> None:
    """The folder's own name is not put into its parent."""

    def make(cls: type[Folder], files: Any, path: str) -> Folder:
        folder = cls.open(files, "/")
        for name in path.strip("/").split("/"):
            with suppress(FileExistsError):
                files.make_directory(folder.handle, name)
            folder = folder.subfolder(name)
        return folder

    patch.setattr(Folder, "make", classmethod(make))


def pruned_before_the_snapshot(patch: Patch) -> None:
    """A conversation goes, and its snapshot is stored after that."""
    real, save = deleting.delete, FileStore.save

    def delete(files: Any, library: str, name: str, agreed: Callable[[], bool]) -> bool:
        waits: list[tuple[FileStore, Snapshot]] = []
        with patch.context() as within:
            within.setattr(FileStore, "save", lambda store, snapshot: waits.append((store, snapshot)))
            deleted = real(files, library, name, agreed)
        for store, snapshot in waits:
            save(store, snapshot)
        return deleted

    patch.setattr("transcript_store._library.pruning.delete", delete)


def expiry_not_checked_again(patch: Patch) -> None:
    """A conversation that had expired at the time of the list is removed, although it was written to since."""
    patch.setattr(
        "transcript_store._library.pruning.delete",
        lambda files, library, name, agreed: deleting.delete(files, library, name),
    )


def deletion_noted_after_the_delete(patch: Patch) -> None:
    """The deletion is noted after the conversation is removed: after a kill in between, an import brings it back."""
    note, move = deleting.note_deletion, deleting.move_to_trash
    waits: list[Any] = []
    patch.setattr(
        "transcript_store._conversation.deleting.note_deletion",
        lambda parent, name, folder: waits.append((parent, name, folder)),
    )

    def move_to_trash(parent: Folder, name: str) -> None:
        given = waits.pop()
        parent.files.rename(parent.handle, name, hidden := f".trash-{'0' * 32}")
        note(parent, name, given[2])
        parent.files.rename(parent.handle, hidden, name)
        move(parent, name)

    patch.setattr(deleting, "move_to_trash", move_to_trash)


def delete_in_place(patch: Patch) -> None:
    """The files go one by one, under the conversation's own name."""

    def move_to_trash(parent: Folder, name: str) -> None:
        parent.remove_tree(name)
        parent.sync()

    patch.setattr(deleting, "move_to_trash", move_to_trash)


def files_removed_before_the_rename_is_synced(patch: Patch) -> None:
    def move_to_trash(parent: Folder, name: str) -> None:
        trash = trash_name(parent.files)
        parent.files.rename(parent.handle, name, trash)
        parent.remove_tree(trash)
        parent.sync()

    patch.setattr(deleting, "move_to_trash", move_to_trash)


def trash_swept_before_the_rename_is_synced(patch: Patch) -> None:
    """A delete is killed; the next change removes the files of a folder that a power cut gives its name back."""

    def sweep(files: Any, library: str) -> None:
        with suppress(OSError), Folder.open(files, library) as parent:
            for name in filter(is_trash, parent.names()):
                parent.remove_tree(name)

    patch.setattr(deleting, "sweep", sweep)


def trash_not_swept(patch: Patch) -> None:
    patch.setattr(deleting, "sweep", _nothing)


def create_without_a_note(patch: Patch) -> None:
    """No note names the fork that a killed process was creating, so its leftovers are never found."""
    patch.setattr(deleting, "noted", lambda *_: nullcontext())


def fork_message_by_message(patch: Patch) -> None:
    """A fork is a create and then an append for each record."""

    def fork(self: ConversationLibrary, id: str, *, through_seq: int | None = None, **_: Any) -> str:
        with self.open(id, read_only=True) as source, self.create() as copy:
            for message in source.get_messages()[:through_seq]:
                copy.append_message(message)
            return copy.get_metadata().id

    patch.setattr(ConversationLibrary, "fork", fork)


def group_renamed_before_sync(patch: Patch) -> None:
    patch.setattr(Folder, "sync_all", _nothing)


def group_returned_before_names_are_synced(patch: Patch) -> None:
    commit = StagingArea.commit

    def hasty(self: StagingArea, ids: Any) -> list[str]:
        with patch.context() as within:
            within.setattr(Folder, "sync", _nothing)
            return commit(self, ids)

    patch.setattr(StagingArea, "commit", hasty)


def group_written_under_final_names(patch: Patch) -> None:
    patch.setattr(group, "staged_name", lambda *stage_and_id: stage_and_id[1])


def staging_area_not_swept(patch: Patch) -> None:
    patch.setattr(deleting, "stage_of", _nothing)


def unsynced_name_trusted(patch: Patch) -> None:
    for module in (storage, writer):
        patch.setattr(module, "sync_name", _nothing)


def names_of_a_killed_group_trusted(patch: Patch) -> None:
    """What is on it is removed, as it should be."""
    sweep = deleting.sweep

    def hasty(files: Any, library: str) -> None:
        with patch.context() as within:
            within.setattr(Folder, "sync", _nothing)
            sweep(files, library)

    patch.setattr(deleting, "sweep", hasty)


def copy_of_unsynced_records(patch: Patch) -> None:
    """A fork, or a snapshot of a reader, has what a power cut takes from the original."""
    patch.setattr(Folder, "sync_to_copy", _nothing)


def copy_of_cached_records(patch: Patch) -> None:
    """Its sync succeeds, because the failed sync was reported to the writer and the pages are clean now."""
    for machine in MACHINES:
        patch.setattr(machine, "drop_cache", _nothing)


def snapshot_of_unsynced_records(patch: Patch) -> None:
    """The same of a writer whose appends are not synced."""
    patch.setattr(Writer, "sync_before_copy", _nothing)


def generation_deleted_without_a_sync(patch: Patch) -> None:
    def remove(folder: Folder, live: Log, number: int) -> None:
        with folder.subfolder("archive") as archive:
            archive.remove_tree(f"transcript-{number:06d}.jsonl")

    patch.setattr(_archive, "remove_archived", remove)


def end_of_previous_generation_not_kept(patch: Patch) -> None:
    """A deleted generation stated where the previous one ends; the statement is lost with it."""
    patch.setattr(_archive, "without", lambda folder, members, number: members)


def end_of_previous_generation_kept_too_late(patch: Patch) -> None:
    """The statement is kept only after the deletion: after a crash in between it is lost for ever."""

    def delete_generation(self: Writer, number: int) -> None:
        members = _archive.without(self.folder, self.members, number)
        _archive.remove_archived(self.folder, self.log, number)
        self.write_metadata(members)

    patch.setattr(Writer, "delete_generation", delete_generation)


def snapshot_before_its_media(patch: Patch) -> None:
    """A snapshot is put in place, and then the media that it refers to."""

    def save(self: SnapshotFiles, name: str, data: bytes, media: dict[str, bytes]) -> None:
        real(self, name, data, {})
        for media_name, text in media.items():
            real(self, name, data, {media_name: text})

    real = SnapshotFiles.save
    patch.setattr(SnapshotFiles, "save", save)


def sealing_without_a_note(patch: Patch) -> None:
    """No note says that a plain store is being sealed, so a process that has only the new key cannot finish."""
    patch.setattr(SnapshotFiles, "note_sealing", _nothing)


def restored_in_two_commits(patch: Patch) -> None:
    """A conversation is created from a snapshot, and its messages are appended after that."""

    def restore(self: ConversationStore, messages: Any, **more: Any) -> None:
        real(self, [], **more)
        self.append_messages(messages)

    real = ConversationStore.restore
    patch.setattr(ConversationStore, "restore", restore)


def created_then_appended(patch: Patch) -> None:
    """A conversation is created, and its messages are appended with their times after that."""

    def initialize(self: ConversationStore, **contents: Any) -> None:
        brought = {name: contents.pop(name) for name in ("messages", "extras", "times") if name in contents}
        real(self, **contents)
        if brought:
            self.append_messages(**brought)

    real = ConversationStore.initialize
    patch.setattr(ConversationStore, "initialize", initialize)


def replaced_then_appended(patch: Patch) -> None:
    """The same of a replace."""

    def replace(self: ConversationStore, messages: Any, *, extras: Any, times: Any, **more: Any) -> None:
        real(self, [], **more)
        self.append_messages(messages, extras=extras, times=times)

    real = ConversationStore.replace_transcript
    patch.setattr(ConversationStore, "replace_transcript", replace)


def events_of_a_batch_appended_separately(patch: Patch) -> None:
    """A batch is cut where it has a record without a message."""

    def append(self: ConversationStore, messages: Any, *, extras: Any, times: Any) -> None:
        for message, extra, time in zip(messages, extras, times, strict=True):
            real(self, [message], extras=[extra], times=[time])

    real = ConversationStore.append_messages
    patch.setattr(ConversationStore, "append_messages", append)


def records_kept_one_by_one(patch: Patch) -> None:
    """The records that are kept are appended to an empty generation, one after the other."""

    def keep(self: Writer, seqs: Any, changed: Any, members: dict[str, Any], features: Any = ()) -> None:
        kept = [copy.members for copy in self.log.copies_of(seqs, changed)]
        self.replace([], members)
        for text in kept:
            record = orjson.loads(b"{" + text[1:] + b"}")
            parts = (record.get("message"), record.get("extra"))
            message, extra = (None if part is None else orjson.dumps(part) for part in parts)
            self.append([(message, extra, given_time(record["at"]))])

    patch.setattr(Writer, "keep", keep)


def retracted_one_by_one(patch: Patch) -> None:
    """Several messages are taken back by as many records."""

    def retract(self: Writer, count: int) -> Any:
        return [real(self, 1) for _ in range(count)][-1]

    real = Writer.retract
    patch.setattr(Writer, "retract", retract)


def retraction_not_synced(patch: Patch) -> None:
    """A retraction is written like an append without a sync."""

    def prepare(self: Log, first: int, last: int) -> Any:
        patch.setattr(log.Log, "append", lambda self, prepared, *, sync: append(self, prepared, sync=False))
        return real(self, first, last)

    real, append = Log.prepare_retraction, Log.append
    patch.setattr(Log, "prepare_retraction", prepare)


def retraction_numbers_not_adjusted(patch: Patch) -> None:
    """A retraction that is copied names the numbers that it named before."""
    patch.setattr(Renumbering, "members_of", lambda self, copy, seq: copy.members)


def fork_noted_in_the_wrong_library(patch: Patch) -> None:
    """The note of a fork is in the original's library, so leftovers of a killed fork in the other library are never found."""
    noted = deleting.noted
    patch.setattr(deleting, "noted", lambda files, library, new: noted(files, LIBRARY, new))


def head_in_memory_trusted(patch: Patch) -> None:
    """The head that is asked for is compared with what memory has, before an interrupted append is looked for on the disk."""

    def begin_write(self: Writer) -> None:
        self.was_looked_at = False

    def require_head(self: Writer, head: str) -> None:
        if self.log.end.head.decode() != head:
            raise ConversationChangedError(path=self.path, reason="seeded", expected_head=head, head="")

    patch.setattr(Writer, "begin_write", begin_write)
    patch.setattr(Writer, "require_head", require_head)


def memory_trusted_between_calls(patch: Patch) -> None:
    """A shared writer checks only the transcript when it takes the lock: another process's change of the metadata is overwritten."""
    patch.setattr(SharedWriter, "_is_as_i_left_it", lambda self: self.log.is_as_remembered())


def name_in_the_lock_not_compared(patch: Patch) -> None:
    """A writer that left no validator takes another process's name without a validator for its own."""

    def is_as_i_left_it(self: SharedWriter) -> bool:
        return self.lock.found in (b"", self._statement()) and self.log.is_as_remembered()

    patch.setattr(SharedWriter, "_is_as_i_left_it", is_as_i_left_it)


def validator_without_the_metadata(patch: Patch) -> None:
    patch.setattr(shared_writer, "document_hash", lambda document: "")


def validator_left_during_a_call(patch: Patch) -> None:
    """The lock file is written when the lock is released, not when it is taken: an old validator stays if the writer is killed."""

    def sign(self: Lock) -> None:
        self._is_signed = True

    def pause(self: Lock, leaving: bytes) -> None:
        if self.is_taken:
            self._files.truncate(self._handle, 0)
            self._files.write(self._handle, b"\n" + leaving)
        real(self, b"")

    real = Lock.pause
    patch.setattr(Lock, "sign", sign)
    patch.setattr(Lock, "pause", pause)


def records_of_a_killed_writer_not_synced(patch: Patch) -> None:
    """A load between two calls shows the cache without a sync."""
    look = SharedWriter.look_at_all

    def look_without_a_sync(self: SharedWriter) -> None:
        with patch.context() as within:
            within.setattr(Log, "_sync", _nothing)
            look(self)

    patch.setattr(SharedWriter, "look_at_all", look_without_a_sync)


def key_file_before_the_void_mark(patch: Patch) -> None:
    """A killed create leaves only a key file, which no later create overwrites."""
    real = Folder.replace_file

    def replace_file(self: Folder, name: str, chunks: Any) -> None:
        if name == METADATA and self.status(METADATA) is None and self.status(KEY) is None:
            real(self, KEY, [b"to be written"])
        real(self, name, chunks)

    patch.setattr(Folder, "replace_file", replace_file)


def sealed_before_the_key_file_exists(patch: Patch) -> None:
    """The sealed generation is committed, and its key file written after that."""
    put, replace_file = Writer._put_in_place, Folder.replace_file
    waits: list[Any] = []

    def later(self: Folder, name: str, chunks: Any) -> None:
        waits.append(chunks) if name == KEY else replace_file(self, name, chunks)

    def put_in_place(self: Writer, *args: Any) -> None:
        put(self, *args)
        for chunks in waits:
            replace_file(self.folder, KEY, chunks)
        waits.clear()

    patch.setattr(Folder, "replace_file", later)
    patch.setattr(Writer, "_put_in_place", put_in_place)


def rotation_not_synced(patch: Patch) -> None:
    """The rotation returns when the new key files have their names, before the names are synced."""
    commit = Rotator._commit

    def hasty(self: Rotator, batch: Any) -> None:
        syncs: list[Any] = []

        def first_only(folder: Folder) -> None:
            if not syncs:
                sync_all(folder)
            syncs.append(folder)

        sync_all = Folder.sync_all
        with patch.context() as within:
            within.setattr(Folder, "sync_all", first_only)
            commit(self, batch)

    patch.setattr(Rotator, "_commit", hasty)


def key_files_renamed_before_sync(patch: Patch) -> None:
    commit = Rotator._commit

    def hasty(self: Rotator, batch: Any) -> None:
        syncs: list[Any] = []

        def all_but_the_first(folder: Folder) -> None:
            if syncs:
                sync_all(folder)
            syncs.append(folder)

        sync_all = Folder.sync_all
        with patch.context() as within:
            within.setattr(Folder, "sync_all", all_but_the_first)
            commit(self, batch)

    patch.setattr(Rotator, "_commit", hasty)


def already_rotated_keys_not_synced(patch: Patch) -> None:
    """Keys that already have the new wrapping are not synced, although a killed rotation may have left them."""
    commit = Rotator._commit

    def only_new_ones(self: Rotator, batch: Any) -> None:
        self._already += [one.found.conversation for one in batch if not one.new]
        commit(self, [one for one in batch if one.new])

    patch.setattr(Rotator, "_commit", only_new_ones)


def syncfs_trusted_on_any_file_system(patch: Patch) -> None:
    """Each folder is taken for synced with the whole file system, although this file system does not guarantee that."""
    made = Rotator.__init__

    def init(self: Rotator, *args: Any) -> None:
        made(self, *args)
        self._files = unsynced(self._files)

    patch.setattr(Rotator, "__init__", init)


def shred_leaves_temporaries(patch: Patch) -> None:
    patch.setattr("transcript_store._conversation.key_changes.is_temporary", lambda name: False)


def shred_not_synced(patch: Patch) -> None:
    for machine in MACHINES:
        patch.setattr(machine, "sync", _nothing)


def key_file_emptied_first(patch: Patch) -> None:
    """A shred takes the key file away, and writes its note after that."""
    replace_file = Folder.replace_file

    def unlink_first(self: Folder, name: str, chunks: Any) -> None:
        if name == KEY and self.status(name) is not None:
            self.files.unlink(self.handle, name)
        replace_file(self, name, chunks)

    patch.setattr(Folder, "replace_file", unlink_first)


BUGS = [
    Bug(key_file_before_the_void_mark, CREATED, "kills", ("kills_at_system_calls",)),
    Bug(sealed_before_the_key_file_exists, SEALED_BESIDE, "kills", ("kills_at_system_calls", "traced_power_cuts")),
    Bug(rotation_not_synced, ROTATION, "power_cuts", ("traced_power_cuts",)),
    Bug(key_files_renamed_before_sync, ROTATION, "power_cuts", ("traced_power_cuts",)),
    Bug(already_rotated_keys_not_synced, FINISHED_ROTATION, "power_cuts"),
    Bug(syncfs_trusted_on_any_file_system, ROTATION_ALONE, "power_cuts", ("traced_power_cuts",)),
    Bug(rewrite_in_place, ROTATION, "kills", ("kills_at_system_calls", "traced_power_cuts")),
    Bug(rewrite_in_place, SHRED, "kills", ("kills_at_system_calls", "traced_power_cuts")),
    Bug(shred_leaves_temporaries, SHRED_BEHIND_A_ROTATION, "kills", ("kills_at_system_calls",)),
    Bug(shred_not_synced, SHRED, "power_cuts", ("traced_power_cuts",)),
    Bug(key_file_emptied_first, SHRED, "kills", ("kills_at_system_calls",)),
    Bug(
        memory_trusted_between_calls,
        Case(grown, (rename_by_another, update_compaction_count), world=IN_TURNS),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(
        name_in_the_lock_not_compared,
        Case(grown, (append, rename_by_another, update_compaction_count), world=IN_TURNS),
        "kills",
        (),  # on the kernel the other one closes, and leaves a statement
    ),
    Bug(
        validator_without_the_metadata,
        Case(grown, (rename_by_another_seen_by_a_third, update_compaction_count), world=IN_TURNS),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(
        validator_left_during_a_call,
        Case(grown, (rename_by_another_killed, update_compaction_count), world=IN_TURNS),
        "kills",
    ),
    Bug(
        records_of_a_killed_writer_not_synced,
        Case(grown, (append_by_another_killed, append), world=IN_TURNS),
        "power_cuts",
    ),
    Bug(no_sync_of_appends, Case(grown, (append,)), "power_cuts", ("traced_power_cuts",)),
    Bug(
        no_sync_of_directories,
        Case(grown, (replace,)),
        "power_cuts",
        ("traced_power_cuts", "traced_kills_then_power_cuts"),
    ),
    Bug(
        rename_before_sync, Case(grown, (replace,)), "power_cuts", ("traced_power_cuts", "traced_kills_then_power_cuts")
    ),
    Bug(rewrite_in_place, Case(grown, (replace,)), "power_cuts", ("traced_power_cuts", "kills_at_system_calls")),
    Bug(rewrite_in_place, Case(grown, (update_metadata,)), "kills", ("kills_at_system_calls", "traced_power_cuts")),
    Bug(
        unlink_before_rename,
        Case(grown, (replace,)),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts", "errors_at_system_calls"),
    ),
    Bug(torn_tail_left, Case(torn, (load, append)), "kills", ("kills_at_system_calls",)),
    Bug(
        torn_tail_cut_before_quarantine,
        Case(torn, (load, append)),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(
        whole_record_without_line_feed_cut,
        Case(without_line_feed, (load, append)),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(
        append_after_a_failed_sync, Case(grown, (append, append)), "errors", ("errors_at_system_calls", "failing_disk")
    ),
    Bug(failed_sync_hidden, Case(grown, (append,)), "errors", ("failing_disk",)),
    Bug(cache_trusted_after_a_failed_sync, Case(grown, (append,)), "errors", ("failing_disk",)),
    Bug(
        mapped_pages_trusted_after_a_failed_sync,
        Case(grown, (append_with_failed_sync_while_mapped, append, append)),
        "power_cuts",
        ("failing_disk",),
    ),
    Bug(partial_write_left, Case(grown, (append_long,)), "errors", ("limits",)),
    Bug(
        stale_temporary_reused, Case(grown, (update_metadata,)), "kills", ("kills_at_system_calls", "traced_power_cuts")
    ),
    Bug(batch_not_marked, Case(grown, (batch,)), "kills", ("traced_power_cuts",)),
    Bug(
        damaged_line_skipped,
        Case(grown, (append, append)),
        "power_cuts_without_syncs",
        ("traced_power_cuts_without_syncs",),
    ),
    Bug(hole_cut, Case(grown, (append, append, append)), "damage", ("damage",)),
    Bug(
        mark_before_sync, Case(grown, (append, close)), "power_cuts_without_syncs", ("traced_power_cuts_without_syncs",)
    ),
    Bug(
        recovery_not_synced,
        Case(unmarked, (append, append)),
        "kills_then_power_cuts",
        ("traced_kills_then_power_cuts",),
    ),
    Bug(metadata_outside_the_commit, Case(grown, (replace,)), "kills", ("kills_at_system_calls", "traced_power_cuts")),
    Bug(leftovers_not_swept, Case(grown, (update_metadata,)), "kills", ("kills_at_system_calls", "traced_power_cuts")),
    Bug(lock_not_released_after_a_failed_load, Case(torn, (load, append)), "errors", ("errors_at_system_calls",)),
    Bug(unfinished_replace_kept, Case(grown, (replace,)), "kills", ("kills_at_system_calls", "traced_power_cuts")),
    Bug(parents_not_synced, Case(nothing, (initialize, append)), "power_cuts", ("traced_power_cuts",)),
    Bug(deletion_noted_after_the_delete, Case(beside_imported_ones, (delete_imported,)), "kills"),
    Bug(delete_in_place, Case(grown, (close, delete)), "kills", ("kills_at_system_calls", "traced_power_cuts")),
    Bug(files_removed_before_the_rename_is_synced, Case(grown, (close, delete)), "power_cuts", ("traced_power_cuts",)),
    Bug(trash_swept_before_the_rename_is_synced, Case(grown, (close, delete_again)), "power_cuts"),
    Bug(
        trash_swept_before_the_rename_is_synced,
        Case(grown, (close, delete)),
        "kills_then_power_cuts",
        ("traced_kills_then_power_cuts",),
    ),
    Bug(trash_not_swept, Case(grown, (close, delete)), "kills", ("kills_at_system_calls", "traced_power_cuts")),
    Bug(create_without_a_note, Case(grown, (fork,)), "kills", ("kills_at_system_calls", "traced_power_cuts")),
    Bug(group_renamed_before_sync, Case(nothing, (create_together, load)), "power_cuts", ("traced_power_cuts",)),
    Bug(
        group_returned_before_names_are_synced, Case(nothing, (create_together,)), "power_cuts", ("traced_power_cuts",)
    ),
    Bug(
        group_written_under_final_names,
        Case(nothing, (create_together, load)),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(
        staging_area_not_swept,
        Case(grown, (create_another_together,)),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(unsynced_name_trusted, Case(named_and_not_synced, (load, append)), "power_cuts"),
    Bug(unsynced_name_trusted, Case(named_and_not_synced, (fork_elsewhere,)), "power_cuts"),
    Bug(names_of_a_killed_group_trusted, Case(named_and_not_synced, (create_together_again,)), "power_cuts"),
    Bug(fork_message_by_message, Case(grown, (fork,)), "kills", ("kills_at_system_calls", "traced_power_cuts")),
    Bug(copy_of_unsynced_records, Case(grown, (append, fork_within_a_replace)), "power_cuts"),
    Bug(
        copy_of_unsynced_records,
        Case(grown, (append, fork_all)),
        "power_cuts_without_syncs",
        ("traced_power_cuts_without_syncs",),
    ),
    Bug(copy_of_cached_records, Case(grown, (fork_after_a_failed_sync, append)), "power_cuts", ("failing_disk",)),
    Bug(
        snapshot_of_unsynced_records,
        Case(grown, (append, copy_by_the_writer)),
        "power_cuts_without_syncs",
        ("traced_power_cuts_without_syncs",),
    ),
    Bug(generation_deleted_without_a_sync, Case(leaked, (delete_generation,)), "power_cuts", ("traced_power_cuts",)),
    Bug(
        end_of_previous_generation_not_kept,
        Case(replaced_twice, (append, delete_second_generation)),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(
        end_of_previous_generation_kept_too_late,
        Case(replaced_twice, (append, delete_second_generation)),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(
        pruned_before_the_snapshot,
        Case(grown, (close, prune_into_snapshots)),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(expiry_not_checked_again, Case(grown, (append, close, prune_while_another_writes)), "kills"),
    Bug(
        snapshot_before_its_media,
        Case(nothing, (save, save_media), world=PLAIN),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(
        sealing_without_a_note,
        Case(two, (rotate,), world=BEING_SEALED),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(
        restored_in_two_commits,
        Case(nothing, (restore_snapshot_into_nothing,)),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(
        created_then_appended,
        Case(nothing, (initialize_with_times,)),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(
        replaced_then_appended,
        Case(imported, (replace_with_times,)),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(
        events_of_a_batch_appended_separately,
        Case(imported, (batch_with_times,)),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(
        records_kept_one_by_one,
        Case(imported, (batch_with_times, keep_records)),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(
        retracted_one_by_one,
        Case(retractable, (retract, append)),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(retraction_not_synced, Case(retractable, (retract,)), "power_cuts", ("traced_power_cuts",)),
    Bug(
        retraction_numbers_not_adjusted,
        Case(retractable, (keep_live_messages, append)),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(
        fork_noted_in_the_wrong_library,
        Case(beside_another_library, (append, fork_elsewhere)),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
    Bug(
        head_in_memory_trusted,
        Case(grown, (append_given_again,)),
        "kills",
        ("kills_at_system_calls", "traced_power_cuts"),
    ),
]
