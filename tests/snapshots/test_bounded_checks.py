"""How much of a store is checked: how many snapshots, how many bytes, and files of which age."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.snapshots.helpers import (
    BOTH,
    IMAGE,
    IMAGE_NAME,
    KEY,
    OTHER_IMAGE,
    OTHER_KEY,
    error_of,
    everything,
    kinds,
    snapshot,
    store_at,
)
from transcript_store import DecryptionError, FileStore, Snapshot, SnapshotNotFoundError, StorageError
from transcript_store.testing import FileSystemCall, SimulatedFileSystem


def numbered(number: int) -> Snapshot:
    """A snapshot with an id by which its place among the files of a store is known."""
    return snapshot(number, id=f"{number:08x}-0000-4000-8000-000000000000")


@pytest.mark.parametrize("strangers", [0, 1, 7, 8, 9])
def test_a_key_opens_a_store_if_it_opens_one_of_the_first_eight(tmp_path: Path, strangers: int) -> None:
    """Several keys may share a store. So one file of another key says little, and eight say that the key may be wrong."""
    for number in range(strangers):
        store_at(tmp_path, OTHER_KEY).save(numbered(number))
    store = store_at(tmp_path, KEY)
    store.save(numbered(strangers))
    assert store.opens() is (strangers < 8)
    store.delete(numbered(strangers).id)
    assert store.opens() is (strangers == 0)


def test_what_cannot_be_read_does_not_say_that_a_store_is_plain(tmp_path: Path) -> None:
    """P17: eight folders are called like snapshots, and the ninth is a sealed file: nothing is saved in the clear beside it."""
    store_at(tmp_path, KEY).save(numbered(8))
    for number in range(8):
        (tmp_path / "store" / f"{numbered(number).id}.json").mkdir()
    assert isinstance(error_of(lambda: store_at(tmp_path).save(snapshot("canary"))), DecryptionError)
    assert b"canary" not in everything(tmp_path / "store")


def test_a_sealed_file_is_not_called_damaged_by_who_has_no_key(tmp_path: Path) -> None:
    """It is said what is missing: a key, and not another key."""
    store_at(tmp_path, KEY).save(one := snapshot("one"))
    assert "it is not text, so it is sealed" in str(error_of(lambda: store_at(tmp_path).load(one.id)))
    assert "none of the keys opens it" in str(error_of(lambda: store_at(tmp_path, OTHER_KEY).load(one.id)))


def test_a_long_snapshot_of_ones_own_is_replaced(tmp_path: Path) -> None:
    """Whether a file is of another key shows at its end: all of it is read, however long it is."""
    one, again = (numbered(1), snapshot("word " * 4000, id=numbered(1).id))
    for key in (KEY, None):
        store = store_at(tmp_path / str(key), key)
        for each in (again, one, again):
            store.save(each)
            assert store.load(one.id) == each


def test_a_copy_of_a_backends_store_has_no_snapshot_where_nothing_was(tmp_path: Path) -> None:
    """A backend that cannot delete keeps a mark under a name. In a directory it is the same: nothing is there."""
    store = store_at(tmp_path)
    store.save(one := numbered(1))
    gone = numbered(0)
    (tmp_path / "store" / f"{gone.id}.json").write_bytes(b"nothing is here: " + b"0f" * 16)
    assert isinstance(error_of(lambda: store.load(gone.id)), SnapshotNotFoundError)
    assert [summary.id for summary in store.list()] == [one.id]
    assert kinds(store) == []
    assert store.collect_media(older_than_seconds=0) == []
    store.rotate_key(KEY)
    assert store.load(one.id) == one
    assert store.opens()


@BOTH
def test_the_first_save_sweeps_what_a_killed_one_left(tmp_path: Path, key: bytes | None) -> None:
    """Beside the snapshots and beside media. Later saves leave it to others, as it may be what they write."""
    store_at(tmp_path, key).save(snapshot(IMAGE))
    store = store_at(tmp_path, key)
    left = [tmp_path / "store" / folder / f".tmp-{'0' * 32}" for folder in ("", "media")]
    for is_first in (True, False):
        for path in left:
            path.write_bytes(b"a save that was killed")
        store.save(snapshot("one"))
        assert [path.exists() for path in left] == [not is_first, not is_first]


def test_a_list_of_some_ids_has_those_that_there_are(tmp_path: Path) -> None:
    """Newest first as ever; an id that is not there is no error."""
    store = store_at(tmp_path)
    for number in range(3):
        store.save(numbered(number))
    wanted = [numbered(number).id for number in (2, 0, 7)]
    assert {summary.id for summary in store.list(wanted)} == {*wanted[:2]}
    assert store.list([]) == []
    assert len(store.list()) == 3


class Stopped(SimulatedFileSystem):
    """A machine whose clock moves when a test moves it."""

    def now_us(self) -> int:
        return self.clock_us


def test_media_is_collected_when_it_is_just_as_old_as_was_said() -> None:
    """To the microsecond of the file system's clock: not one sooner, for somebody may be about to refer to it."""
    disk = Stopped()
    store, one = FileStore("/store", file_system=disk), snapshot(IMAGE)
    store.save(one)
    store.delete(one.id)
    disk.clock_us += 3_600_000_000 - 1
    assert store.collect_media(older_than_seconds=3600) == []
    disk.clock_us += 1
    assert store.collect_media(older_than_seconds=3600) == [IMAGE_NAME]


def test_what_went_while_a_store_was_sealed_is_not_counted_as_sealed() -> None:
    """One file has another key, one is removed: nothing may indicate that a file needs the new key."""
    disk = SimulatedFileSystem()
    FileStore("/store", encryption_key=OTHER_KEY, file_system=disk).save(numbered(0))
    store = FileStore("/store", encryption_key=KEY, file_system=disk)
    store.save(gone := numbered(1))

    def delete(call: FileSystemCall) -> None:
        if call.name == "open_read" and call.path.endswith(f"{gone.id}.json"):
            disk.on_call = None
            folder = disk.open_directory("/store")
            disk.unlink(folder, f"{gone.id}.json")
            disk.close(folder)

    disk.on_call = delete
    error = error_of(lambda: store.rotate_key(bytes(32)))
    assert isinstance(error, DecryptionError)
    assert error.problem.endswith("it was skipped; nothing is sealed with the new key")


def test_a_note_of_sealing_that_fails_is_reported_though_it_cannot_be_undone_either() -> None:
    """The first of the two errors is the cause: a full disk, and not the removal that it kept from being done."""
    disk = SimulatedFileSystem()
    FileStore("/store", file_system=disk).save(snapshot(OTHER_IMAGE))
    numbers = {("sync", "/store"): errno.ENOSPC, ("unlink", "/store/sealing"): errno.EIO}
    refused: list[int] = []

    def refuse(call: FileSystemCall) -> None:
        if number := numbers.get((call.name, call.path)):
            refused.append(number)
            raise OSError(number, os.strerror(number))

    disk.on_call = refuse
    error = error_of(lambda: FileStore("/store", file_system=disk).rotate_key(KEY))
    assert isinstance(error, StorageError)
    assert refused == [errno.ENOSPC, errno.EIO]
    assert error.errno == errno.ENOSPC
