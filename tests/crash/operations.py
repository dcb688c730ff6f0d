"""The rows of the crash matrix: the operation during the crash, and the conversation that it works on."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from dataclasses import replace as with_
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from tests.crash.model import (
    ABSENT,
    CONVERSATION,
    DIRECTORY,
    ELSEWHERE,
    GIVEN_YEAR,
    ID,
    IN_TURNS,
    KEPT,
    LIBRARY,
    SECRET,
    State,
    World,
    insist,
    library_on,
    store_on,
)
from tests.kit.machines import machine_of
from transcript_store import (
    ConversationChangedError,
    ConversationExistsError,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationStore,
    FileStore,
    Snapshot,
    StorageError,
    repair,
    restore_snapshot,
    snapshot_of,
    verify,
)
from transcript_store._conversation.writer import Writer
from transcript_store._json.times import format_time, parse_time
from transcript_store._log import log
from transcript_store.testing import FileSystemCall, SimulatedFileSystem, SimulatedStop

TRANSCRIPT = f"{DIRECTORY}/transcript.jsonl"
LOCK = f"{DIRECTORY}/lock"

OTHER_ID = "11111111-0000-4000-8000-000000000001"
IMPORTED_ID = "11111111-0000-5000-8000-000000000001"

Step = Callable[[Any], object]
ANOTHER_IMPORTED_ID = "11111111-0000-5000-8000-000000000002"


def message(number: int, size: int = 20) -> dict[str, object]:
    return {"role": "user" if number % 2 else "assistant", "content": f"message {number} " + "x" * size}


# ---- conversations that something happens to --------------------------------------------------------------------------


def nothing() -> SimulatedFileSystem:
    """An empty disk. Small pages, so that a short line can be torn in many places."""
    return SimulatedFileSystem(page_bytes=256, sector_bytes=64)


def unsynced_parents() -> SimulatedFileSystem:
    """The parents are there, made by somebody who was killed before they were synced."""
    disk = nothing()
    root = disk.open_directory("/")
    disk.make_directory(root, "home")
    disk.make_directory(disk.open_directory("home", root), "agent")
    return disk.kill_process()


def empty() -> SimulatedFileSystem:
    disk = nothing()
    with store_on(disk) as store:
        store.initialize(id=ID, provider="claude", model="first", system_prompt="be brief", labels={"title": "a test"})
    return disk.copy()


def grown() -> SimulatedFileSystem:
    """Three messages, one of them longer than a page, and the mark at their end."""
    disk = empty()
    with store_on(disk) as store:
        store.load()
        for number in range(3):
            store.append_message(message(number, size=300 if number == 1 else 20))
    return disk.copy()


def retractable() -> SimulatedFileSystem:
    """Five messages, of which two are taken back, in a generation that can; killed before the mark was renewed."""
    disk = empty()
    store = store_on(disk)
    store.load()
    store.replace_transcript([message(0), message(1, size=300), message(2)], features=["retract"])
    store.retract()
    store.append_messages([message(3), message(4)])
    store.retract()
    return disk.kill_process().copy()


def torn_retraction() -> SimulatedFileSystem:
    """A retraction that a crash cut off before its line feed, and in its hash: it takes nothing back."""
    disk = retractable()
    disk.write_file(TRANSCRIPT, (disk.tree()[TRANSCRIPT] or b"")[:-9])
    return disk


def damaged_retractable() -> SimulatedFileSystem:
    """A message that is taken back is damaged, before the mark."""
    disk = retractable()
    with store_on(disk) as store:
        store.load()
    disk = disk.copy()
    disk.write_file(TRANSCRIPT, (disk.tree()[TRANSCRIPT] or b"").replace(b"message 2", b"massage 2"))
    return disk


def unmarked() -> SimulatedFileSystem:
    """The same, but killed before the mark was renewed."""
    disk = grown()
    store = store_on(disk)
    store.load()
    store.append_message(message(3), extra={"usage": 7})
    store.append_messages([message(4), message(5)])
    return disk.kill_process().copy()


TORN = b'{"seq":7,"at":"2026-09-21T14:13:20.004000Z","mess'


def torn() -> SimulatedFileSystem:
    """A line that a crash cut off: recovery has something to do."""
    disk = unmarked()
    disk.write_file(TRANSCRIPT, (disk.tree()[TRANSCRIPT] or b"") + TORN)
    return disk


def half_recovered() -> SimulatedFileSystem:
    """The same, and a process was killed while it put the torn line into quarantine, before the last sync of that."""
    disk = torn()
    names_made = 0

    def stop(call: FileSystemCall) -> None:
        nonlocal names_made
        names_made += call.name == "rename" and "/quarantine/" in call.path
        if names_made == 2 and call.name == "sync":
            raise SimulatedStop

    disk.on_call = stop
    with pytest.raises(SimulatedStop):
        store_on(disk).load()
    return disk.kill_process()


def without_line_feed() -> SimulatedFileSystem:
    """The last line lacks only its LF."""
    disk = unmarked()
    disk.write_file(TRANSCRIPT, (disk.tree()[TRANSCRIPT] or b"")[:-1])
    return disk


def half_a_batch() -> SimulatedFileSystem:
    """The first of the two lines of a batch is whole, the second is not there."""
    disk = unmarked()
    content = disk.tree()[TRANSCRIPT] or b""
    disk.write_file(TRANSCRIPT, b"".join(content.splitlines(keepends=True)[:-1]))
    return disk


def imported() -> SimulatedFileSystem:
    """A conversation of another program, with its times."""
    disk = nothing()
    with store_on(disk) as store:
        initialize_with_times(store)
    return disk.copy()


def stop_behind_the_rename(disk: SimulatedFileSystem, path: str) -> None:
    """Kill whoever uses the disk at the first call behind the rename that gives something its name ``path``."""
    is_named = False

    def stop(call: FileSystemCall) -> None:
        nonlocal is_named
        if is_named:
            raise SimulatedStop
        is_named = call.name == "rename" and call.path == path

    disk.on_call = stop


def named_and_not_synced() -> SimulatedFileSystem:
    """A group was killed between giving a conversation its name and the sync of that; another library is there, and empty."""
    disk = beside_another_library()
    library_on(disk).delete(ID)
    disk = disk.copy()
    stop_behind_the_rename(disk, DIRECTORY)
    with pytest.raises(SimulatedStop), library_on(disk).group() as group:
        group.add(id=ID, messages=[message(0), message(1)])
    return disk.kill_process()


def beside_another_library() -> SimulatedFileSystem:
    """Another library is there, and is empty."""
    disk = grown()
    library = library_on(disk, ELSEWHERE)
    library.create(id=OTHER_ID).close()
    library.delete(OTHER_ID)
    return disk.copy()


def beside_imported_ones() -> SimulatedFileSystem:
    """Two conversations that were imported stand in the library: their ids are hashes."""
    disk = grown()
    for own_id in (IMPORTED_ID, ANOTHER_IMPORTED_ID):
        library_on(disk).create(id=own_id, labels={"source": "codex"}).close()
    return disk.copy()


def beside_a_torn_note() -> SimulatedFileSystem:
    """One of them was deleted, and a crash cut off the note of the other's deletion."""
    disk = beside_imported_ones()
    library_on(disk).delete(IMPORTED_ID)
    disk = disk.copy()
    path = f"{LIBRARY}/deleted.jsonl"
    disk.write_file(path, (disk.tree()[path] or b"") + b'{"id":"1111')
    return disk


def replaced() -> SimulatedFileSystem:
    disk = grown()
    with store_on(disk) as store:
        store.load()
        store.replace_transcript([message(10)], compaction_count=1)
        store.append_message(message(11))
    return disk.copy()


def replaced_twice() -> SimulatedFileSystem:
    """Two earlier generations."""
    disk = replaced()
    with store_on(disk) as store:
        store.load()
        store.replace_transcript([message(12), message(13)], compaction_count=2)
    return disk.copy()


def leaked() -> SimulatedFileSystem:
    """A secret that was replaced away: it is in the archive, and in the quarantine, where a torn tail went."""
    disk = empty()
    with store_on(disk) as store:
        store.load()
        store.append_message({"role": "user", "content": f"my key is {SECRET.decode()}"})
    disk.write_file(TRANSCRIPT, (disk.tree()[TRANSCRIPT] or b"") + b'{"seq":2,' + SECRET)
    with store_on(disk) as store:
        store.load()
        store.replace_transcript([message(10)])
    return disk.copy()


def interrupted_replace() -> SimulatedFileSystem:
    """Killed after the commit of a replace, before its metadata: the transcript is a generation ahead."""
    disk = grown()
    store = store_on(disk)
    store.load()
    old = disk.tree()[f"{DIRECTORY}/metadata.json"] or b""
    store.replace_transcript([message(10), message(11)], compaction_count=1)
    disk = disk.kill_process().copy()
    disk.write_file(f"{DIRECTORY}/metadata.json", old)
    return disk


METADATA = f"{DIRECTORY}/metadata.json"
ARCHIVED = f"{DIRECTORY}/archive/transcript-000000.jsonl"


def damaged(disk: SimulatedFileSystem, *paths: str) -> SimulatedFileSystem:
    """One byte in the middle of each of these files changed."""
    for path in paths:
        content = disk.tree()[path] or b""
        middle = len(content) // 2
        disk.write_file(path, content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    return disk


def damaged_transcript() -> SimulatedFileSystem:
    return damaged(unmarked(), TRANSCRIPT)


def damaged_metadata() -> SimulatedFileSystem:
    """The transcript is whole, and its last record was never synced: its writer was killed."""
    disk = grown()
    store = store_on(disk, durability="process-crash")
    store.load()
    store.append_message(message(3))
    disk = disk.kill_process()
    disk.write_file(METADATA, b"#!/bin/sh\n")
    disk.sync_path(METADATA)
    return disk


def damaged_archive() -> SimulatedFileSystem:
    return damaged(replaced(), ARCHIVED)


def damaged_second_generation() -> SimulatedFileSystem:
    """A record of it; how long the first should be is known only by its header."""
    disk = replaced_twice()
    path = f"{DIRECTORY}/archive/transcript-000001.jsonl"
    disk.write_file(path, (disk.tree()[path] or b"").replace(b"message 11", b"no message"))
    return disk


def damaged_everything() -> SimulatedFileSystem:
    return damaged(replaced(), TRANSCRIPT, METADATA, ARCHIVED)


def lost_transcript() -> SimulatedFileSystem:
    """Only the archive is left."""
    disk = replaced()
    folder = disk.open_directory(DIRECTORY)
    disk.unlink(folder, "transcript.jsonl")
    disk.unlink(folder, "metadata.json")
    return disk.copy()


def edited_by_hand() -> SimulatedFileSystem:
    """A message and the model edited."""
    disk = unmarked()
    for path, old, new in ((TRANSCRIPT, b"message 1", b"no message"), (METADATA, b'"first"', b'"second"')):
        disk.write_file(path, (disk.tree()[path] or b"").replace(old, new))
    return disk


def unfinished_replace() -> SimulatedFileSystem:
    """A replace was cut off before its commit, and the transcript that it linked into the archive is damaged."""
    disk = damaged_transcript()
    folder = disk.open_directory(DIRECTORY)
    disk.make_directory(folder, "archive")
    disk.link(folder, "transcript.jsonl", disk.open_directory(f"{DIRECTORY}/archive"), "transcript-000000.jsonl")
    return disk.copy()


def interrupted_repair() -> SimulatedFileSystem:
    """Killed with the damaged transcript in quarantine under its name, before that name was synced."""
    disk = damaged_transcript()
    renames = 0

    def stop(call: FileSystemCall) -> None:
        nonlocal renames
        renames += call.name == "rename"
        if renames == 2 and call.name == "sync":  # of the folder: the first rename is the note's
            raise SimulatedStop

    disk.on_call = stop
    with suppress(SimulatedStop):
        repair(DIRECTORY, mode="salvage", dry_run=False, file_system=disk)
    return disk.kill_process()


# ---- what happens ------------------------------------------------------------------------------------------------------


def initialize(store: ConversationStore) -> None:
    store.initialize(id=ID, provider="claude", model="first", messages=[message(0), message(1)])


def create_together(store: ConversationStore) -> None:
    """In a group, of one: the others of a group are made and named each by itself."""
    with library_on(machine_of(store)).group() as group:
        group.add(id=ID, provider="claude", model="first", messages=[message(0), message(1, size=300)])


def create_together_again(store: ConversationStore) -> None:
    """What an import does when it is run again: what it finds there it reports as stored."""
    with library_on(machine_of(store)).group() as group, pytest.raises(ConversationExistsError):
        group.add(id=ID, messages=[message(0)])


def create_another_together(store: ConversationStore) -> None:
    """Beside a conversation that is open; more is done to it before it is committed."""
    with (
        library_on(machine_of(store)).group() as group,
        group.adding(id=OTHER_ID, messages=[message(0), message(1)]) as staged,
    ):
        staged.replace_transcript([message(2)], compaction_count=1)
        staged.append_message(message(3))


def append(store: ConversationStore) -> None:
    store.append_message(message(20))


def append_long(store: ConversationStore) -> None:
    store.append_message(message(21, size=700), extra={"usage": {"tokens": 3}})


def append_event(store: ConversationStore) -> None:
    store.append_event({"marker": "compacting"})


def batch(store: ConversationStore) -> None:
    store.append_messages([message(22), message(23, size=200), message(24)])


def replace(store: ConversationStore) -> None:
    store.replace_transcript([message(30), message(31, size=300)], compaction_count=2, model="second")


def given_time(month: int) -> str:
    return f"{GIVEN_YEAR}{month:02}-01T08:00:00Z"


WITH_AN_EVENT: list[Any] = [message(50), None, message(51, size=300)]
ITS_EXTRAS = [None, {"event": "compacting"}, {"usage": 7}]


def initialize_with_times(store: ConversationStore) -> None:
    """What an import does first: messages and an event, each with its own time."""
    store.initialize(id=ID, messages=WITH_AN_EVENT, extras=ITS_EXTRAS, times=[given_time(month) for month in (1, 2, 3)])


def batch_with_times(store: ConversationStore) -> None:
    """What an import does when its source grew."""
    store.append_messages(WITH_AN_EVENT, extras=ITS_EXTRAS, times=[given_time(month) for month in (4, 2, 5)])


def replace_with_times(store: ConversationStore) -> None:
    """What an import does when its source was rewritten: the new generation may begin before the old one.

    Its messages may have another provider's form.
    """
    times = [given_time(month) for month in (1, 6, 7)]
    store.replace_transcript(WITH_AN_EVENT, extras=ITS_EXTRAS, times=times, compaction_count=6, provider="gemini")


def append_given_again(store: ConversationStore) -> None:
    """Ctrl-C between the write and the sync; the same head is given again, and the store knows whether it is there."""
    head = store.head
    with _interrupted_behind_the_write(store), pytest.raises(KeyboardInterrupt):
        store.append_message(message(27), if_head=head)
    with suppress(ConversationChangedError):
        store.append_message(message(27), if_head=head)


def keep_records(store: ConversationStore) -> None:
    """What a rewind does that keeps times, extras and events: from the middle of a batch too."""
    store.keep_records([1, 2, 6], compaction_count=7)


def change_records(store: ConversationStore) -> None:
    """What takes a secret out: every record is kept, and one of a message and one of an event get other contents, at their times."""
    events = [record.seq for record in store.get_records() if record.message is None and record.retracts is None]
    changed: dict[int, Any] = {1: (message(43), {"redacted": {"key": 1}})}
    changed |= {seq: (None, {"kind": "changed"}) for seq in events[:1]}
    store.keep_records(range(1, store.record_count + 1), changed=changed, labels={"title": "changed"})


def retract(store: ConversationStore) -> None:
    """The last two messages, at both sides of what was taken back before."""
    store.retract(2)


def retract_again(store: ConversationStore) -> None:
    """Ctrl-C between the write and the sync; the same head is given again, and no more is taken back."""
    head = store.head
    with _interrupted_behind_the_write(store), pytest.raises(KeyboardInterrupt):
        store.retract(if_head=head)
    with suppress(ConversationChangedError):
        store.retract(if_head=head)


def keep_live_messages(store: ConversationStore) -> None:
    """Records with a retraction among them, which names them by their new numbers."""
    store.keep_records([1, 3, 5, 6, 7])


def fork_in_the_middle(store: ConversationStore) -> None:
    """Up to a record that is taken back behind it: there it counts."""
    library_on(machine_of(store)).fork(ID, through_seq=5)


RESTORED = Snapshot.create(
    id="00000000-0000-4000-8000-000000000001",
    provider="claude",
    model="restored",
    system_prompt="be brief again",
    messages=[message(40), message(41, size=300)],
    metadata={"transcript_store.labels": '{"title":"restored"}', "transcript_store.compaction_count": "4"},
)


def restore(store: ConversationStore) -> None:
    restore_snapshot(RESTORED, store)


def restore_snapshot_into_nothing(store: ConversationStore) -> None:
    """There is no conversation yet."""
    restore_snapshot(RESTORED, store)


def interrupted_append(store: ConversationStore) -> None:
    """Ctrl-C between the write and the sync; what is shown afterwards has to stay."""
    with _interrupted_behind_the_write(store), pytest.raises(KeyboardInterrupt):
        store.append_message(message(25))
    assert store.get_messages()[-1] == message(25)


@contextmanager
def _interrupted_behind_the_write(store: ConversationStore) -> Iterator[None]:
    storage = store._guard.storage  # whose write is interrupted
    assert storage is not None
    write = storage.files.write

    def write_and_be_interrupted(handle: int, data: bytes) -> int:
        written = write(handle, data)
        if handle != storage.log.handle:
            return written
        while written < len(data):
            written += write(handle, data[written:])
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage.files, "write", write_and_be_interrupted)
        yield


def replace_without_mark(store: ConversationStore) -> None:
    """The replace commits, and the metadata that should remember it is refused: the mark stays the old one's."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "injected")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "_write_document", refuse)  # no call on a disk is only of this write
        store.replace_transcript([message(32)], compaction_count=3)


def append_with_mark(store: ConversationStore) -> None:
    """The append after which a mark is due."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store._guard.storage, "_mark_due", 0)  # or a thousand appends come first
        store.append_message(message(26))


def append_with_failed_sync(store: ConversationStore) -> None:
    """The disk refuses a sync, and loses what was written; the store is loaded anew and goes on without it."""
    disk = machine_of(store)
    on_call = disk.on_call

    def refuse(call: FileSystemCall) -> None:
        if call.name == "sync_data":
            raise OSError(errno.EIO, "injected")

    disk.on_call = refuse
    try:
        with pytest.raises(StorageError):
            store.append_message(message(33))
    finally:
        disk.on_call = on_call
    store.load()


def append_with_failed_sync_while_mapped(store: ConversationStore) -> None:
    """The same while a search tool has the transcript mapped: the cache goes on showing what the disk refused."""
    machine_of(store).map_file(TRANSCRIPT)
    append_with_failed_sync(store)


def update_metadata(store: ConversationStore) -> None:
    store.update_metadata(model="third", labels={"title": "renamed"})


def update_compaction_count(store: ConversationStore) -> None:
    store.update_metadata(compaction_count=9)


def delete_generation(store: ConversationStore) -> None:
    store.delete_generation(0)


def delete_second_generation(store: ConversationStore) -> None:
    """What it says of the first is kept: the judge tries whether that is known to its last record."""
    store.delete_generation(1)


def purge_quarantine(store: ConversationStore) -> None:
    assert store.purge_quarantine() == 1


def fork(store: ConversationStore) -> None:
    """While the original is being written."""
    library_on(machine_of(store)).fork(ID, through_seq=2)


def fork_all(store: ConversationStore) -> None:
    """With what was written last, synced or not."""
    library_on(machine_of(store)).fork(ID)


def fork_elsewhere(store: ConversationStore) -> None:
    """Into another library."""
    library_on(machine_of(store)).fork(ID, into=ELSEWHERE)


def fork_within_a_replace(store: ConversationStore) -> None:
    """Another process forks when a replace has given the new transcript its name, and has not synced that."""
    with _forked_after_a_rename_to(TRANSCRIPT, store):
        store.replace_transcript([message(34)], compaction_count=5)


def fork_within_an_update(store: ConversationStore) -> None:
    """The same when metadata.json has its name, and the name is not synced."""
    with _forked_after_a_rename_to(METADATA, store):
        store.update_metadata(model="fourth")


@contextmanager
def _forked_after_a_rename_to(path: str, store: ConversationStore) -> Iterator[None]:
    disk = machine_of(store)
    on_call = disk.on_call
    made: list[tuple[str, str]] = []

    def fork_then(call: FileSystemCall) -> int | None:
        if made[-1:] == [("rename", path)]:
            made.append(("fork", path))
            library_on(disk.another_process()).fork(ID)
        answer: int | None = on_call(call) if on_call is not None else None
        made.append((call.name, call.path))
        return answer

    disk.on_call = fork_then
    try:
        yield
    finally:
        if disk.on_call is fork_then:
            disk.on_call = on_call


def fork_after_a_failed_sync(store: ConversationStore) -> None:
    """The disk refuses a message; before its writer is loaded anew another process sees it in the cache, and forks."""
    disk = machine_of(store)
    on_call = disk.on_call
    disk.on_call = _refuse_the_sync
    try:
        with pytest.raises(StorageError):
            store.append_message(message(35))
    finally:
        disk.on_call = on_call
    library_on(disk).fork(ID)
    store.load()


def _refuse_the_sync(call: FileSystemCall) -> None:
    if call.name == "sync_data":
        raise OSError(errno.EIO, "injected")


def copy_by_a_reader(store: ConversationStore) -> None:
    """A reader beside the writer makes a snapshot, and another conversation of that."""
    with ConversationStore(DIRECTORY, read_only=True, file_system=machine_of(store)) as reader:
        reader.load()
        copy_by_the_writer(reader)


def copy_by_the_writer(store: ConversationStore) -> None:
    """The same by the writer."""
    library_on(machine_of(store)).create(messages=json.loads(snapshot_of(store).messages_json)).close()


def delete(store: ConversationStore) -> None:
    library_on(machine_of(store)).delete(ID)


def delete_imported(store: ConversationStore) -> None:
    library_on(machine_of(store)).delete(IMPORTED_ID)


def delete_another_imported(store: ConversationStore) -> None:
    library_on(machine_of(store)).delete(ANOTHER_IMPORTED_ID)


def delete_again(store: ConversationStore) -> None:
    """The disk refuses the sync of a delete; the caller tries again, and is told that it is gone."""
    disk = machine_of(store)
    on_call = disk.on_call

    def refuse(call: FileSystemCall) -> None:
        if call.name == "sync" and call.path == LIBRARY:
            raise OSError(errno.EIO, "injected")

    disk.on_call = refuse
    try:
        with pytest.raises(StorageError, match="It is deleted, or comes back whole"):
            delete(store)
    finally:
        disk.on_call = on_call
    with pytest.raises(ConversationNotFoundError):
        delete(store)


def prune(store: ConversationStore) -> None:
    _prune(an_hour_later(store), older_than=timedelta(minutes=1))


def prune_into_snapshots(store: ConversationStore) -> None:
    """It may go only when its messages are kept: the judge looks for them where it is gone."""
    disk = an_hour_later(store)
    _prune(disk, older_than=timedelta(minutes=1), snapshots=FileStore(KEPT, file_system=disk))


def an_hour_later(store: ConversationStore) -> Any:
    """Its machine: the clock of a real disk begins anew in each process, before the times that are on record."""
    disk = machine_of(store)
    disk.clock_us += 3_600_000_000
    return disk


def prune_while_another_writes(store: ConversationStore) -> None:
    """It is due when the library is listed; before its lock is taken another process appends to it, so it stays."""
    disk = machine_of(store)
    on_call = disk.on_call
    (summary,) = library_on(disk).list()
    a_moment_later = parse_time(str(summary.updated_at)) + 1
    appended: list[bool] = []

    def append_then(call: FileSystemCall) -> int | None:
        if call.name == "try_lock" and call.path == LOCK and not appended:
            appended.append(True)
            with store_on(disk.another_process()) as other:
                other.load()
                other.append_message(message(60))
        answer: int | None = on_call(call) if on_call is not None else None
        return answer

    disk.on_call = append_then
    try:
        done = library_on(disk).prune(older_than=format_time(a_moment_later), dry_run=False)
    finally:
        if disk.on_call is append_then:
            disk.on_call = on_call
    if done.skipped and not appended:  # its folder may not be read or changed: it was skipped before its lock was taken
        raise ConversationLockedError(path=LIBRARY, reason=str(done.skipped))
    assert appended


def prune_generations(store: ConversationStore) -> None:
    _prune(machine_of(store), keep_generations=1)


def prune_all_generations(store: ConversationStore) -> None:
    _prune(machine_of(store), keep_generations=0)


def prune_quarantine(store: ConversationStore) -> None:
    _prune(machine_of(store), keep_quarantine=False)


def _prune(disk: Any, **rule: Any) -> None:
    done = library_on(disk).prune(**rule, dry_run=False)
    if done.skipped:  # whoever is told that something stays is not told that it is gone
        raise ConversationLockedError(path=LIBRARY, reason=str(done.skipped))


# ---- what another process does that takes its turns ---------------------------------------------------------------------


@contextmanager
def another(store: ConversationStore) -> Iterator[tuple[Any, ConversationStore]]:
    """Another process with a store of its own, loaded, which ends here; and the machine that it works on."""
    disk = machine_of(store).another_process()
    other = store_on(disk, hold_lock=False, lock_timeout_seconds=0)
    other.load()
    try:
        yield disk, other
    finally:
        # On a disk in memory it is killed, on the kernel it closes: there the calls of both are stopped at.
        getattr(disk, "kill_process", other.close)()


def append_by_another(store: ConversationStore) -> None:
    with another(store) as (_, other):
        other.append_message(message(60))


def retract_by_another(store: ConversationStore) -> None:
    with another(store) as (_, other):
        other.retract()


def replace_by_another(store: ConversationStore) -> None:
    with another(store) as (_, other):
        other.replace_transcript([message(61), message(62, size=300)], compaction_count=8)


def rename_by_another(store: ConversationStore) -> None:
    """Only the metadata change: the transcript stays as long as it was."""
    with another(store) as (_, other):
        other.update_metadata(labels={"title": "renamed by another"})


def rename_by_another_seen_by_a_third(store: ConversationStore) -> None:
    """The same; behind it a third one looks at all, and leaves a statement of it."""
    rename_by_another(store)
    with another(store):
        pass


def rename_by_another_killed(store: ConversationStore) -> None:
    """The same; killed when metadata.json has its name, and this store shows what it says."""
    with another(store) as (disk, other):
        stop_behind_the_rename(disk, METADATA)
        with pytest.raises(SimulatedStop):
            other.update_metadata(labels={"title": "renamed again"})
    insist(store.get_metadata().labels == {"title": "renamed again"}, "what another one changed is not shown")


def append_by_another_killed(store: ConversationStore) -> None:
    """Killed between the write and the sync; this store shows what was written, so it has to stay."""
    with another(store) as (disk, other):

        def stop(call: FileSystemCall) -> None:
            if call.name == "sync_data":
                raise SimulatedStop

        disk.on_call = stop
        with pytest.raises(SimulatedStop):
            other.append_message(message(63))
    insist(store.get_messages()[-1] == message(63), "what another one wrote is not shown")


def append_by_another_with_failed_sync(store: ConversationStore) -> None:
    """The disk refuses a sync of the other one, and loses what was written; its cache goes on showing it."""
    machine_of(store).map_file(TRANSCRIPT)
    with another(store) as (disk, other):
        disk.on_call = _refuse_the_sync
        with pytest.raises(StorageError):
            other.append_message(message(64))
    insist(message(64) not in store.get_messages(), "what another one could not sync is shown")


def repair_prefix(store: ConversationStore) -> None:
    repair(DIRECTORY, mode="prefix", dry_run=False, file_system=machine_of(store))


def repair_salvage(store: ConversationStore) -> None:
    repair(DIRECTORY, mode="salvage", dry_run=False, file_system=machine_of(store))


def repair_accept_edits(store: ConversationStore) -> None:
    repair(DIRECTORY, mode="accept-edits", dry_run=False, file_system=machine_of(store))


REPAIRING = (repair_prefix, repair_salvage, repair_accept_edits)


def load(store: ConversationStore) -> None:
    store.load()


def load_tail(store: ConversationStore) -> None:
    """Only the tail, and little of it: memory begins behind the first record."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "TAIL_BYTES", 100)
        store.load(verify="tail")


def close(store: ConversationStore) -> None:
    store.close()


WITH_A_FAILED_SYNC = {append_with_failed_sync, append_with_failed_sync_while_mapped, fork_after_a_failed_sync}
KILLED_IN_THEIR_TURNS = {rename_by_another_killed, append_by_another_killed, append_by_another_with_failed_sync}
ON_A_DISK_IN_MEMORY = {
    *WITH_A_FAILED_SYNC,
    *KILLED_IN_THEIR_TURNS,
    delete_again,
    fork_within_a_replace,
    fork_within_an_update,
    prune_while_another_writes,
}
"""Steps that need a disk whose calls can be met."""


@cache
def _made(base: Callable[[], SimulatedFileSystem]) -> SimulatedFileSystem:
    return base()


@dataclass(frozen=True)
class Case:
    """Steps on a conversation; each returns before the next begins, and is acknowledged when it returns."""

    base: Callable[[], SimulatedFileSystem]
    steps: tuple[Step, ...]
    keeps: bytes = b""
    """Bytes that must stay in some file, whatever happens: a torn tail goes to quarantine before it is cut."""
    world: World = CONVERSATION

    def disk(self) -> SimulatedFileSystem:
        """The conversation on a disk of its own; made once, by a store that is not broken, if all of it is durable."""
        made = _made(self.base)
        is_durable = not made._disk.pending()  # what a disk has still to write, nobody outside sees
        return made.copy() if is_durable else self.base()

    @property
    def name(self) -> str:
        name = f"{self.base.__name__}-{'-'.join(step.__name__ for step in self.steps)}"
        return f"{name}-in-turns" if self.world is IN_TURNS else name

    @property
    def durabilities(self) -> tuple[str, ...]:
        """What the case can be run with: one that needs a sync to fail needs appends that sync."""
        always = self.world not in (CONVERSATION, IN_TURNS) or self.repairs or WITH_A_FAILED_SYNC & set(self.steps)
        return ("power-loss",) if always else ("power-loss", "process-crash")

    @property
    def repairs(self) -> bool:
        """Whether it is the repair of a conversation that cannot be loaded."""
        return self.steps[0] in REPAIRING

    @property
    def before_it_returns(self) -> set[State]:
        """What a power cut may leave beside the states, before the first step has returned: nobody was told of anything yet."""
        return {ABSENT} if self.base is named_and_not_synced else set()

    @property
    def must_keep(self) -> list[bytes]:
        """All that must stay in some file: of a repair, every damaged file."""
        if not self.repairs:
            return [self.keeps] if self.keeps else []
        disk = self.base()
        files = disk.tree()
        return [
            files[finding.path] or b""
            for finding in verify(DIRECTORY, file_system=disk).findings
            if finding.path in files
        ]

    @property
    def starts_loaded(self) -> bool:
        """Whether the conversation is loaded before the first step: not where that step is about loading."""
        return self.steps[0] not in (
            initialize,
            initialize_with_times,
            create_together,
            create_together_again,
            fork_elsewhere,
            load,
            load_tail,
            restore_snapshot_into_nothing,
            *REPAIRING,
        )


CASES = [
    Case(nothing, (initialize, append)),
    Case(unsynced_parents, (initialize,)),
    Case(empty, (append, append, close)),
    Case(grown, (append,)),
    Case(grown, (append_long, append)),
    Case(grown, (append_with_mark, append)),
    Case(grown, (append_event, batch)),
    Case(unmarked, (batch, append)),
    Case(grown, (interrupted_append, append)),
    Case(grown, (append, replace)),
    Case(grown, (append_with_failed_sync, append)),
    Case(unmarked, (replace_without_mark, append, append_with_failed_sync, append)),
    Case(grown, (append_with_failed_sync_while_mapped, append, append)),
    Case(grown, (replace, append, close)),
    Case(replaced, (replace,)),
    Case(unmarked, (update_metadata,)),
    Case(grown, (append, update_metadata, append)),
    Case(torn, (load, append), keeps=TORN),
    Case(half_recovered, (load,), keeps=TORN),
    Case(without_line_feed, (load, append)),
    Case(half_a_batch, (load, batch)),
    Case(torn, (load, replace), keeps=TORN),
    Case(interrupted_replace, (load, append)),
    Case(grown, (load_tail, append, replace)),
    Case(unmarked, (load_tail, batch)),
    Case(torn, (load_tail, append), keeps=TORN),
    Case(leaked, (delete_generation, purge_quarantine, append)),
    Case(replaced_twice, (append, delete_second_generation, append)),
    Case(grown, (fork, append)),
    Case(grown, (append, fork_all)),
    Case(grown, (append, fork_within_a_replace)),
    Case(grown, (fork_within_an_update, append)),
    Case(grown, (fork_after_a_failed_sync, append)),
    Case(grown, (append, copy_by_a_reader)),
    Case(grown, (append, copy_by_the_writer)),
    Case(replaced, (close, delete)),
    Case(grown, (close, delete_again)),
    Case(beside_imported_ones, (delete_imported, delete_another_imported)),
    Case(beside_a_torn_note, (delete_another_imported,)),
    Case(replaced, (close, prune)),
    Case(grown, (close, prune_into_snapshots)),
    Case(grown, (append, close, prune_while_another_writes)),
    Case(replaced_twice, (append, close, prune_generations)),
    Case(leaked, (append, close, prune_all_generations, prune_quarantine)),
    Case(nothing, (restore_snapshot_into_nothing,)),
    Case(grown, (restore,)),
    Case(nothing, (initialize_with_times, batch_with_times)),
    Case(imported, (replace_with_times, batch_with_times)),
    Case(grown, (append_given_again, append)),
    Case(imported, (batch_with_times, keep_records, append)),
    Case(imported, (batch_with_times, change_records, append)),
    Case(retractable, (change_records, retract)),
    Case(retractable, (retract, append)),
    Case(retractable, (append, retract, replace)),
    Case(retractable, (retract_again, append)),
    Case(torn_retraction, (load, retract)),
    Case(retractable, (keep_live_messages, append)),
    Case(retractable, (append, retract, fork_in_the_middle)),
    Case(beside_another_library, (append, fork_elsewhere)),
    Case(nothing, (create_together, load, append)),
    Case(grown, (append, create_another_together)),
    Case(named_and_not_synced, (load, append)),
    Case(named_and_not_synced, (fork_elsewhere,)),
    Case(named_and_not_synced, (create_together_again,)),
]

TURNS = [
    Case(grown, (append, append_by_another, append), world=IN_TURNS),
    Case(grown, (rename_by_another, update_compaction_count, append), world=IN_TURNS),
    Case(grown, (append, rename_by_another, update_compaction_count), world=IN_TURNS),
    Case(grown, (rename_by_another_seen_by_a_third, update_compaction_count), world=IN_TURNS),
    Case(grown, (rename_by_another_killed, update_compaction_count), world=IN_TURNS),
    Case(grown, (append_by_another_killed, append), world=IN_TURNS),
    Case(grown, (append_by_another_with_failed_sync, append), world=IN_TURNS),
    Case(unmarked, (replace_by_another, append, close), world=IN_TURNS),
    Case(retractable, (retract_by_another, retract, append), world=IN_TURNS),
    Case(grown, (replace, append_by_another, update_metadata), world=IN_TURNS),
    Case(grown, (append_given_again, interrupted_append, append), world=IN_TURNS),
]
"""Several processes that take turns."""
ALL_IN_TURNS = [with_(case, world=IN_TURNS) for case in CASES if case.base is not unsynced_parents]
"""What one process does, in a turn for each call."""
CASES += TURNS

REPAIRS = [
    Case(damaged_transcript, (repair_salvage,)),
    Case(damaged_metadata, (repair_prefix,)),
    Case(damaged_archive, (repair_prefix,)),
    Case(interrupted_repair, (repair_salvage,)),
    Case(damaged_everything, (repair_accept_edits,)),
    Case(lost_transcript, (repair_salvage,)),
    Case(edited_by_hand, (repair_accept_edits,)),
    Case(unfinished_replace, (repair_prefix,)),
    Case(torn, (repair_salvage,)),
    Case(half_a_batch, (repair_prefix,)),
    Case(damaged_second_generation, (repair_prefix,)),
    Case(damaged_retractable, (repair_salvage,)),
]
"""Repairs: what is damaged, and each mode."""


def stale(case: Case) -> bytes:
    """What a block may have held before: lines of this very transcript, which verify among themselves."""
    return case.disk().tree().get(TRANSCRIPT) or b'{"seq":1,"at":"stale"}\n'
