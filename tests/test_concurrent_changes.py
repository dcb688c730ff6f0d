"""Changes by another process at any point of a call, and the second read that notices them.

The incident: an outside reviewer removed lines and conditions of the store by hand, and twelve of 46 such mutants survived
the plain suite. Nine are named here, each by the loss that it would cause. Most remove a second check of the same fact,
which matters only if another process changes that fact in between. So each test runs another process at one call of ours.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from tests.kit.meanwhile import (
    CHAT,
    ID,
    OTHER_ID,
    SAID,
    TRANSCRIPT,
    a_conversation,
    in_folder,
    library_on,
    meanwhile,
    messages,
    opened,
)
from transcript_store import (
    ConversationExistsError,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationStore,
    CorruptMetadataError,
    CorruptSnapshotError,
    CorruptTranscriptError,
    FileStore,
    Snapshot,
    repair,
    verify,
)
from transcript_store._conversation.layout import twice
from transcript_store._os.filesystem import PosixFileSystem
from transcript_store.testing import FileSystemCall, SimulatedFileSystem, SimulatedStop

KEY = bytes(range(32))

# ---- writing --------------------------------------------------------------------------------------------------------


def test_a_write_that_is_short_again_and_again_is_finished():
    """P1, P3: a write may be short any number of times in a row. The mutant tried once more and left a hole behind."""
    disk = SimulatedFileSystem()
    disk.on_call = lambda call: 7 if call.name == "write" else None
    with ConversationStore(CHAT, file_system=disk) as store:
        store.initialize(id=ID, messages=SAID)
        store.append_message({"role": "assistant", "content": "a" * 100})
        store.replace_transcript([*store.get_messages(), *SAID], model="m")
        store.append_messages(SAID)
    said = messages(disk)
    assert said == [*SAID, {"role": "assistant", "content": "a" * 100}, *SAID, *SAID]
    assert verify(CHAT, file_system=disk).is_intact
    snapshot = Snapshot.create(provider="claude", model="m", messages=said)
    snapshots = FileStore("/snapshots", encryption_key=KEY, file_system=disk)
    snapshots.save(snapshot)
    assert snapshots.load(snapshot.id) == snapshot


def test_a_transcript_that_is_swapped_while_it_is_synced_gets_no_mark(caplog: pytest.LogCaptureFixture):
    """P11: between the sync and the note how far it reached, somebody puts a backup in the transcript's place.

    The mutant noted the end of the file that is gone: the backup, which is whole, was refused as cut off.
    """
    disk = a_conversation()
    backup = disk.tree()[TRANSCRIPT]
    assert backup is not None
    store = ConversationStore(CHAT, file_system=disk, durability="process-crash")
    store.load()
    store.append_message({"role": "assistant", "content": "not in the backup"})

    def restore(other: SimulatedFileSystem) -> None:
        other.write_file(f"{CHAT}/backup", backup)
        in_folder(other, CHAT, lambda folder: other.rename(folder, "backup", "transcript.jsonl"))

    metadata = disk.tree()[f"{CHAT}/metadata.json"]
    seen = meanwhile(disk, "sync_data", "/transcript.jsonl", restore)
    with caplog.at_level(logging.WARNING):
        store.close()
    assert seen
    assert "call load() again" in caplog.text
    assert disk.tree()[f"{CHAT}/metadata.json"] == metadata
    assert messages(disk.another_process()) == SAID


# ---- locks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["open_append", "try_lock"])
def test_a_lock_on_a_removed_lock_file_is_no_lock(call: str):
    """P11: the lock file is removed before it is opened, or between that and the lock: both are done again.

    The mutant kept the lock of a file without a name: the next writer made a new file, and there were two writers.
    """
    disk = a_conversation()
    seen = meanwhile(
        disk,
        call,
        "/lock",
        lambda other: in_folder(other, CHAT, lambda folder: other.unlink(folder, "lock")),
    )
    with opened(disk) as store:
        assert seen
        with pytest.raises(ConversationLockedError):
            opened(disk.another_process())
        store.append_message({"role": "assistant", "content": "alone"})
    assert disk.open_handles == []


def test_a_locked_error_says_that_this_process_holds_the_lock():
    """P11: the error that names the holder says that it is this very process."""
    disk = a_conversation()
    with opened(disk):
        with pytest.raises(
            ConversationLockedError, match="this process is writing to it, with a store that is not closed"
        ):
            opened(disk)
        with pytest.raises(ConversationLockedError) as refused:
            opened(disk.another_process())
        assert "this process" not in str(refused.value)


@pytest.mark.parametrize("call", ["truncate", "write"])
def test_a_lock_that_cannot_be_signed_is_a_lock(call: str):
    """P7, P11: on a full disk the lock file stays without the name of its holder, and the conversation opens all the same."""
    disk = a_conversation()

    def refuse(asked: FileSystemCall) -> None:
        if asked.name == call and asked.path.endswith("/lock") and not refused:
            refused.append(asked)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    refused: list[FileSystemCall] = []
    disk.on_call = refuse
    with opened(disk) as store:
        with pytest.raises(ConversationLockedError):
            opened(disk.another_process())
        assert store.get_messages() == SAID
    assert refused


def test_a_repair_leaves_a_folder_alone_that_was_moved_away():
    """P11: the damaged folder is moved aside, and a backup stands in its place, just as a repair takes the lock.

    The mutant repaired what had been moved aside, and said that the conversation at the path was repaired.
    """
    disk = a_conversation()
    whole = disk.tree()[TRANSCRIPT]
    assert whole is not None
    damaged = whole.replace(b"message 1", b"massage 1")
    disk.write_file(TRANSCRIPT, damaged)

    def move(other: SimulatedFileSystem) -> None:
        in_folder(other, "/chats", lambda folder: other.rename(folder, ID, "aside"))
        with ConversationStore(CHAT, file_system=other) as store:
            store.initialize(id=ID, messages=SAID)

    seen = meanwhile(disk, "try_lock", "/lock", move)
    with pytest.raises(ConversationNotFoundError):
        repair(CHAT, mode="salvage", dry_run=False, file_system=disk)
    assert seen
    assert disk.tree()["/chats/aside/transcript.jsonl"] == damaged
    assert not any("/quarantine" in path for path in disk.tree())
    assert messages(disk.another_process()) == SAID


def test_a_changing_conversation_is_read_until_two_reads_agree():
    """P12: a writer that is at work for several looks in a row is no damage; the mutant looked twice and believed the second."""
    disk = SimulatedFileSystem()
    found = iter(["torn at 10", "torn at 20", "torn at 30", "fine", "never asked"])
    assert twice(disk, lambda: next(found), lambda what: what == "fine") == "fine"
    assert next(found) == "never asked"
    found = iter(["torn at 10", "torn at 20", "torn at 20", "never asked"])
    assert twice(disk, lambda: next(found), lambda what: what == "fine") == "torn at 20"
    counted = iter(range(100))
    assert twice(disk, lambda: next(counted), lambda _: False) == 19  # the last of twenty


# ---- removing -------------------------------------------------------------------------------------------------------


def test_a_sweep_looks_again_when_it_has_the_lock():
    """P1: a create was killed half-way; while its leftovers are swept, another process creates the conversation there.

    The mutant removed the whole conversation, which had been acknowledged.
    """
    disk = SimulatedFileSystem()
    library_on(disk).create(id=OTHER_ID).close()
    stopped: list[FileSystemCall] = []

    def stop(call: FileSystemCall) -> None:
        if stopped or (call.name, call.path) == ("rename", TRANSCRIPT):
            stopped.append(call)
            raise SimulatedStop

    disk.on_call = stop
    with pytest.raises(SimulatedStop):
        library_on(disk).create(id=ID, messages=SAID)
    disk = disk.kill_process()
    assert f"{CHAT}/metadata.json" in disk.tree()
    assert TRANSCRIPT not in disk.tree()

    def create(other: SimulatedFileSystem) -> None:
        with ConversationStore(CHAT, file_system=other) as store:
            store.initialize(id=ID, messages=SAID)

    seen = meanwhile(disk, "try_lock", f"{ID}/lock", create)
    library_on(disk).delete(OTHER_ID)  # whatever changes a library sweeps it
    assert seen
    assert disk.open_handles == []
    with opened(disk.another_process()) as store:
        assert store.get_messages() == SAID


def test_a_create_looks_again_when_it_has_the_lock():
    """P11: another process creates the conversation while this one waits for its lock: it stays, and this one is told.

    The mutant put its own transcript over it.
    """
    disk = SimulatedFileSystem()

    def create(other: SimulatedFileSystem) -> None:
        library_on(other).create(id=ID, messages=SAID[:1]).close()

    seen = meanwhile(disk, "try_lock", f"{ID}/lock", create)
    with pytest.raises(ConversationExistsError):
        library_on(disk).create(id=ID, messages=SAID)
    assert seen
    assert messages(disk.another_process()) == SAID[:1]


@pytest.mark.parametrize(
    ("moment", "path"), [("open_read", "/transcript.jsonl"), ("list_directory", ID), ("try_lock", "/lock")]
)
def test_a_delete_looks_again_when_another_was_faster(moment: str, path: str):
    """P11: another process deletes the conversation and makes it anew while this one looks at it, or takes its lock.

    The mutant said that it was deleted, and the new one stood there.
    """
    disk = a_conversation()

    def recreate(other: SimulatedFileSystem) -> None:
        library_on(other).delete(ID)
        library_on(other).create(id=ID, messages=SAID[:1]).close()

    seen = meanwhile(disk, moment, path, recreate)
    library_on(disk).delete(ID)
    assert seen
    assert disk.tree() == {"/chats": None}


def test_a_tree_that_grows_while_it_is_removed_is_removed():
    """Whoever opened a folder before it was moved away may put a lock into it. The mutant left the folder as trash."""
    disk = a_conversation()
    seen = meanwhile(
        disk,
        "remove_directory",
        "",
        lambda other: in_folder(
            other,
            next(path for path, content in other.tree().items() if content is None and "/.trash-" in path),
            lambda folder: other.close(other.create(folder, "lock")),
        ),
    )
    library_on(disk).delete(ID)
    assert seen
    assert disk.tree() == {"/chats": None}


def test_a_sweep_waits_for_nobody():
    """A note that is held is of a create under way: whoever changes the library passes it over and does not wait."""
    disk = a_conversation()
    other = disk.another_process()
    waited: list[float] = []

    def change(_: SimulatedFileSystem) -> None:
        with mock.patch.object(other, "wait", waited.append):
            library_on(other).delete(ID)

    seen = meanwhile(disk, "rename", f"{OTHER_ID}/transcript.jsonl", change)
    library_on(disk).create(id=OTHER_ID, messages=SAID).close()
    assert seen
    assert waited == []
    assert [summary.id for summary in library_on(disk).list()] == [OTHER_ID]


# ---- opening --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["metadata.json", "transcript.jsonl", "lock"])
def test_a_file_that_is_swapped_while_it_is_opened_is_not_believed(tmp_path: Path, name: str):
    """P16: it was a file when it was looked at, and is a FIFO when it is opened: nobody waits for its writer."""

    class Swapped(PosixFileSystem):
        def _swap(self, at: str) -> None:
            if at == name and not stat.S_ISFIFO((tmp_path / "chat" / name).stat().st_mode):
                (tmp_path / "chat" / name).unlink()
                os.mkfifo(tmp_path / "chat" / name)

        def open_read(self, parent: int, name: str) -> int:
            self._swap(name)
            return super().open_read(parent, name)

        def open_append(self, parent: int, name: str) -> int:
            self._swap(name)
            return super().open_append(parent, name)

    with ConversationStore(tmp_path / "chat") as store:
        store.initialize(messages=SAID)
    with pytest.raises((CorruptTranscriptError, CorruptMetadataError), match="a FIFO is in the place of"):
        ConversationStore(tmp_path / "chat", file_system=Swapped()).load()


# ---- reading --------------------------------------------------------------------------------------------------------


@contextmanager
def a_moment(disk: SimulatedFileSystem, damaged: bytes = b"message 1") -> Iterator[list[float]]:
    """Until this process waits, a byte of the transcript reads as NUL: a page that a writer is just changing."""
    whole = disk.tree()[TRANSCRIPT]
    assert whole is not None
    at = whole.index(damaged)
    waited: list[float] = []
    real_read, real_wait = disk.read, disk.wait

    def read(handle: int, offset: int, length: int) -> bytearray:
        found = real_read(handle, offset, length)
        inside = offset <= at < offset + len(found) and found[at - offset : at - offset + 1] == b"m"
        if not waited and inside:
            found[at - offset] = 0
        return found

    def wait(seconds: float) -> None:
        waited.append(seconds)
        real_wait(seconds)

    with mock.patch.object(disk, "read", read), mock.patch.object(disk, "wait", wait):
        yield waited


def test_a_reader_believes_no_damage_at_first_sight():
    """P12: one moment beside a writer at work can look like damage; what is seen a second time is. The mutant raised."""
    disk = a_conversation()
    with a_moment(disk) as waited:
        assert messages(disk) == SAID
    assert len(waited) == 1


def test_a_refresh_believes_no_damage_at_first_sight():
    """P12: the same of a reader that looks again, whose folder was replaced since."""
    disk = a_conversation()
    with ConversationStore(CHAT, file_system=disk, read_only=True) as store:
        store.load()
        with opened(disk.another_process()) as writer:
            writer.replace_transcript(SAID)
        with a_moment(disk) as waited:
            store.refresh()
        assert len(waited) == 1
        assert store.get_messages() == SAID


def test_verify_believes_no_damage_at_first_sight():
    """P12: the same of whoever verifies."""
    disk = a_conversation()
    with a_moment(disk) as waited:
        assert verify(CHAT, file_system=disk).is_intact
    assert len(waited) == 1


def test_a_list_believes_no_damage_at_first_sight():
    """P12: the same of a list, which looks at the last record only."""
    disk = a_conversation()
    with a_moment(disk, b"message 2") as waited:
        [summary] = library_on(disk).list()
    assert (summary.record_count, summary.damage) == (3, None)
    assert len(waited) == 1


@pytest.mark.parametrize("there", [1, 2])
def test_a_list_does_not_count_an_unfinished_batch(there: int):
    """P3: of a batch of three, one or two lines reached the file before the process was killed. They were never there.

    The mutant counted them: a list said 5 records, and the load that followed had 3.
    """
    disk = a_conversation()
    store = opened(disk)
    before = disk.tree()[TRANSCRIPT]
    store.append_messages(SAID)
    after = disk.tree()[TRANSCRIPT]
    assert before is not None
    assert after is not None
    disk = disk.kill_process()
    lines = after.removeprefix(before).splitlines(keepends=True)
    disk.write_file(TRANSCRIPT, before + b"".join(lines[:there]))
    [summary] = library_on(disk).list()
    assert (summary.record_count, summary.damage) == (3, None)
    with opened(disk) as store:
        assert store.get_messages() == SAID


# ---- sealing --------------------------------------------------------------------------------------------------------


def test_a_store_that_was_sealed_but_for_one_file_can_be_sealed_to_its_end():
    """P17: sealing a plain store meets a file that it cannot read; once that is mended, a second call finishes.

    The mutant forgot that the store was being sealed: what had not been sealed yet was refused for good, as plaintext
    in a sealed store.
    """
    disk = SimulatedFileSystem()
    some = [Snapshot.create(provider="claude", model="m", messages=[{"n": n}]) for n in range(3)]
    store = FileStore("/store", file_system=disk)
    for one in some:
        store.save(one)
    path = f"/store/{some[1].id}.json"
    plain = disk.tree()[path]
    assert plain is not None
    in_folder(disk, "/store", lambda folder: disk.unlink(folder, f"{some[1].id}.json"))
    in_folder(disk, "/store", lambda folder: disk.make_directory(folder, f"{some[1].id}.json"))
    with pytest.raises(CorruptSnapshotError, match="2 others are sealed"):
        store.rotate_key(KEY)
    in_folder(disk, "/store", lambda folder: disk.remove_directory(folder, f"{some[1].id}.json"))
    disk.write_file(path, plain)
    FileStore("/store", encryption_key=KEY, file_system=disk).rotate_key(KEY)
    assert [FileStore("/store", encryption_key=KEY, file_system=disk).load(one.id) for one in some] == some
    assert disk.tree()[path] != plain


# ---- the file system around a folder ----------------------------------------------------------------------------------


def test_parents_are_synced_up_to_their_mount_point_and_no_further():
    """P1: whoever makes a conversation made no names beyond the mount point of its disk: another disk is not made to wait."""
    disk = SimulatedFileSystem()
    disk.make_directory(disk.open_directory("/"), "mnt")
    synced: list[str] = []
    real = disk.handle_status

    def handle_status(handle: int) -> object:
        status = real(handle)
        return status._replace(st_dev=status.st_dev + (status.st_ino == root.st_ino))

    root = real(disk.open_directory("/"))
    disk.on_call = lambda call: synced.append(call.path) if call.name == "sync" else None
    with mock.patch.object(disk, "handle_status", handle_status):
        with ConversationStore("/mnt/a/b", file_system=disk) as store:
            store.initialize(messages=SAID)
    assert {"/mnt", "/mnt/a", "/mnt/a/b"} <= {*synced}
    assert not {"", "/"} & {*synced}


def test_parents_that_an_earlier_attempt_made_are_synced_too():
    """P1: a process made all folders and was killed before it synced one; the next one finds them, and must sync them all.

    The mutant synced the nearest: a power cut took a folder above it, and with it an acknowledged conversation.
    """
    disk = SimulatedFileSystem()
    for path, name in (("/", "a"), ("/a", "b"), ("/a/b", "c"), ("/a/b/c", "chat")):
        disk.make_directory(disk.open_directory(path), name)
    with ConversationStore("/a/b/c/chat", file_system=disk) as store:
        store.initialize(messages=SAID)
    after = disk.worst_power_failure()
    with ConversationStore("/a/b/c/chat", file_system=after, read_only=True) as store:
        store.load()
        assert store.get_messages() == SAID


def test_leftovers_that_cannot_be_removed_do_not_block_a_create():
    """P7: the disk refuses to remove what an earlier delete left. A group of conversations is created all the same.

    The mutant let that error out, and the import of a whole library failed over a folder in the trash.
    """
    disk = SimulatedFileSystem()
    library_on(disk).create(id=OTHER_ID, messages=SAID).close()

    def refuse(call: FileSystemCall) -> None:
        if call.name in ("remove", "remove_directory", "unlink", "rmdir") and "/.trash-" in call.path:
            refused.append(call)
            raise OSError(errno.EPERM, "injected")

    refused: list[FileSystemCall] = []
    disk.on_call = refuse
    library_on(disk).delete(OTHER_ID)
    with library_on(disk).group() as group:
        group.add(messages=SAID)
    assert len(refused) >= 2
    assert any("/.trash-" in path for path in disk.tree())
    assert len(library_on(disk).list()) == 1
