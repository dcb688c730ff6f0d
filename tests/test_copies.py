"""A copy holds what is on the disk.  P12.

A reader takes no lock and may be shown what its writer has written and not synced, or was told is not stored. That is its
right: but a fork of such a message, or a snapshot, would keep for good what the original loses. So whatever copies syncs
its source first, and reads past the cache what is not known to be synced. (The crash matrix has the same with power cuts,
tests/crash/test_failing_disk.py on disks that fail.)
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable

import pytest

from tests.kit.meanwhile import library_on
from transcript_store import (
    ConversationNotFoundError,
    ConversationStore,
    PoisonedError,
    StorageError,
    snapshot_of,
)
from transcript_store.testing import FileSystemCall, SimulatedFileSystem

ID = "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"
ONE, TWO, REFUSED = {"n": 1}, {"n": 2}, {"n": "refused"}


def refuse(code: int, *names: str) -> Callable[[FileSystemCall], None]:
    def on_call(call: FileSystemCall) -> None:
        if call.name in names:
            raise OSError(code, os.strerror(code))

    return on_call


def with_a_refused_message() -> tuple[SimulatedFileSystem, ConversationStore]:
    """The disk took one message and refused the next: its writer knows, and the cache shows both."""
    disk = SimulatedFileSystem()
    writer = library_on(disk).create(id=ID, messages=[ONE])
    disk.on_call = refuse(errno.EIO, "sync_data")
    with pytest.raises(StorageError):
        writer.append_message(REFUSED)
    disk.on_call = None
    return disk, writer


def reader_on(disk: SimulatedFileSystem) -> ConversationStore:
    return library_on(disk.another_process()).open(ID, read_only=True)


def copied(store: ConversationStore) -> list[dict[str, object]]:
    messages: list[dict[str, object]] = json.loads(snapshot_of(store).messages_json)
    return messages


def test_a_reader_is_shown_what_the_disk_refused_and_copies_none_of_it() -> None:
    """P12: the incident: a fork stored that message for good, and the original lost it."""
    disk, writer = with_a_refused_message()
    with reader_on(disk) as reader:
        assert reader.get_messages() == [ONE, REFUSED]
        assert copied(reader) == [ONE]
        assert reader.get_messages() == [ONE], "the reader was refreshed, and knows"
    fork = library_on(disk.another_process()).fork(ID)
    writer.close()
    after = library_on(disk.worst_power_failure())
    with after.open(ID) as original, after.open(fork) as copy:
        assert original.get_messages() == copy.get_messages() == [ONE]


def test_a_poisoned_writer_copies_what_was_acknowledged() -> None:
    """P6, P12: to save it elsewhere must not need the disk that failed."""
    _, writer = with_a_refused_message()
    assert copied(writer) == [ONE]
    with pytest.raises(PoisonedError):
        writer.append_message(TWO)


@pytest.mark.parametrize("copy", ["fork", "snapshot of a reader", "snapshot of the writer"])
def test_what_is_copied_is_on_the_disk(copy: str) -> None:
    """P12: also where appends are not synced: with the copy the original is."""
    disk = SimulatedFileSystem()
    with library_on(disk).create(id=ID, messages=[ONE], durability="process-crash") as writer:
        writer.append_message(TWO)
        assert not _survives(disk), "it is synced anyway: nothing is tested"
        if copy == "fork":
            library_on(disk.another_process()).fork(ID)
        elif copy == "snapshot of the writer":
            assert copied(writer) == [ONE, TWO]
        else:
            with reader_on(disk) as reader:
                assert copied(reader) == [ONE, TWO]
        assert _survives(disk)


def _survives(disk: SimulatedFileSystem) -> bool:
    with library_on(disk.worst_power_failure()).open(ID) as after:
        return after.get_messages() == [ONE, TWO]


def test_a_snapshot_of_what_was_closed_well_reads_it_once() -> None:
    """What the mark covers was synced: a reader of it is not read again."""
    disk = SimulatedFileSystem()
    library_on(disk).create(id=ID, messages=[ONE] * 100).close()
    other = disk.another_process()
    with library_on(other).open(ID, read_only=True) as reader:
        made: list[FileSystemCall] = []
        other.on_call = made.append
        assert len(copied(reader)) == 100
        assert "open_read" not in {call.name for call in made}


def test_a_sync_that_is_refused_to_a_reader_is_said() -> None:
    """P7: nothing is copied, and the reader goes on reading."""
    disk, _ = with_a_refused_message()
    other = disk.another_process()
    with library_on(other).open(ID, read_only=True) as reader:
        other.on_call = refuse(errno.EIO, "sync")
        with pytest.raises(StorageError, match="Nothing was copied"):
            snapshot_of(reader)
        with pytest.raises(StorageError):
            library_on(other).fork(ID)
        other.on_call = None
        assert reader.get_messages()[0] == ONE


def test_a_read_only_file_system_needs_no_sync() -> None:
    """A read-only file system (squashfs) does not know how to sync."""
    disk = SimulatedFileSystem()
    with library_on(disk).create(id=ID, messages=[ONE]) as writer:
        writer.append_message(TWO)
        other = disk.another_process()
        with library_on(other).open(ID, read_only=True) as reader:
            other.on_call = refuse(errno.EINVAL, "sync", "sync_data")
            assert copied(reader) == [ONE, TWO]
            other.on_call = None


def test_a_reader_of_what_is_gone_copies_nothing() -> None:
    """It says that the conversation is gone; what it has read it still gives."""
    disk = SimulatedFileSystem()
    writer = library_on(disk).create(id=ID, messages=[ONE], durability="process-crash")
    writer.append_message(TWO)
    with reader_on(disk) as reader:
        writer.close()
        library_on(disk).delete(ID)
        with pytest.raises(ConversationNotFoundError):
            snapshot_of(reader)
        assert reader.get_messages() == [ONE, TWO]
