"""A store gets another key while others read it: everything is opened by the old key or by the new one at any moment."""

from __future__ import annotations

import dataclasses
import errno
import os
import pickle
import shutil
import threading
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
    snapshot,
    store_at,
)
from transcript_store import CorruptSnapshotError, DecryptionError, FileStore, Hint, StorageError
from transcript_store.testing import FileSystemCall, SimulatedFileSystem

# ---- rotation --------------------------------------------------------------------------------------------------------


@BOTH
def test_a_rotation_seals_everything_with_the_new_key(tmp_path: Path, key: bytes | None) -> None:
    """Snapshots and media, sealed before or plain; the old key opens nothing any more, and no key does not either."""
    store = store_at(tmp_path, key)
    some = [snapshot(IMAGE), snapshot("canary")]
    for one in some:
        store.save(one)
    (tmp_path / "store/.tmp-0123456789abcdef0123456789abcdef").write_text("canary")
    store.rotate_key(OTHER_KEY)
    assert b"canary" not in everything(tmp_path / "store")
    assert IMAGE.encode() not in everything(tmp_path / "store")
    for one in some:
        assert store.load(one.id) == one
        assert store_at(tmp_path, OTHER_KEY).load(one.id) == one
        assert isinstance(error_of(lambda one=one: store_at(tmp_path, key).load(one.id)), DecryptionError)  # type: ignore[misc]
    assert store_at(tmp_path, OTHER_KEY).verify() == []
    assert store_at(tmp_path, key).list() == []
    store.save(snapshot("another"))
    assert len(store_at(tmp_path, OTHER_KEY).list()) == 3


def test_a_rotation_leaves_what_it_cannot_open(tmp_path: Path) -> None:
    """A file of another key, and one in the clear, are left as they are; all others are sealed; the error names the first."""
    stranger, plain, mine = snapshot("stranger"), snapshot("plain"), snapshot("mine")
    store_at(tmp_path, bytes(32)).save(stranger)
    store = store_at(tmp_path, KEY)
    store.save(mine)
    folder = tmp_path / "store"
    (folder / f"{plain.id}.json").write_bytes(plain.to_json())
    before = [(folder / f"{one.id}.json").read_bytes() for one in (stranger, plain)]
    for _ in range(2):
        error = error_of(lambda: store.rotate_key(OTHER_KEY))
        assert isinstance(error, DecryptionError)
        assert error.problem.endswith("it was skipped, and so was 1 more; 1 other is sealed with the new key now")
        assert error.hint is Hint.KEEP_BOTH_KEYS
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
        assert [(folder / f"{one.id}.json").read_bytes() for one in (stranger, plain)] == before
        assert store.load(mine.id) == mine
    assert store_at(tmp_path, OTHER_KEY).load(mine.id) == mine


def test_a_rotation_that_opens_one_thing_less_says_what_holds_of_the_rest(tmp_path: Path) -> None:
    """Nobody may take "nothing was changed" for leave to throw the new key away; where it would be true, it is said."""
    store = store_at(tmp_path, KEY)
    some = [snapshot(IMAGE), snapshot("two")]
    for one in some:
        store.save(one)
    bad = tmp_path / "store" / f"{snapshot().id}.json"
    bad.write_bytes(b"\xff" * 100)
    wrong = error_of(lambda: store_at(tmp_path, bytes(32)).rotate_key(OTHER_KEY))
    assert isinstance(wrong, DecryptionError)
    assert wrong.problem.endswith("it was skipped, and so were 3 more; nothing is sealed with the new key")
    for is_a_file in (True, False):
        if not is_a_file:
            bad.unlink()
            os.mkfifo(bad)
        error = error_of(lambda: store.rotate_key(OTHER_KEY))
        assert isinstance(error, DecryptionError | CorruptSnapshotError)
        assert error.path == str(bad)
        assert error.problem.endswith("; it was skipped; 3 others are sealed with the new key now")
        assert error.hint is Hint.KEEP_BOTH_KEYS
        assert "nothing was changed" not in str(error)
    assert [store_at(tmp_path, OTHER_KEY).load(one.id) for one in some] == some


def test_a_snapshot_that_goes_while_the_store_is_sealed() -> None:
    """go-tool-base deletes without a lock: a rotation passes over what is not there any more."""
    disk = SimulatedFileSystem()
    store = FileStore("/store", file_system=disk)
    gone, kept = sorted((snapshot("one"), snapshot("two")), key=lambda one: one.id)
    store.save(gone)
    store.save(kept)

    def delete(call: FileSystemCall) -> None:
        if call.path.endswith(f"{gone.id}.json"):
            disk.on_call = None
            folder = disk.open_directory("/store")
            disk.unlink(folder, f"{gone.id}.json")
            disk.close(folder)

    disk.on_call = delete
    store.rotate_key(KEY)
    assert [summary.id for summary in store.list()] == [kept.id]


def test_a_store_that_could_not_be_sealed_is_saved_to_in_the_clear_as_before() -> None:
    """P6: the disk refuses to sync the note of it, which is taken back; the program goes on, and a second call seals all."""
    disk = SimulatedFileSystem()
    before, after = snapshot("before"), snapshot("after")
    FileStore("/store", file_system=disk).save(before)
    store = FileStore("/store", file_system=disk)

    def refuse(call: FileSystemCall) -> None:
        if (call.name, call.path) == ("sync", "/store"):
            disk.on_call = None
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk.on_call = refuse
    with pytest.raises(StorageError):
        store.rotate_key(KEY)
    assert "/store/sealing" not in disk.tree()
    store.save(after)
    assert store.load(after.id) == after
    store.rotate_key(KEY)
    sealed = FileStore("/store", encryption_key=KEY, file_system=disk)
    assert [sealed.load(one.id) for one in (before, after)] == [before, after]


def test_a_forged_sealing_file_allows_no_plaintext(tmp_path: Path) -> None:
    """P17: a file ``sealing`` that was not sealed with the new key does not make a rotation take plaintext."""
    store = store_at(tmp_path, KEY)
    store.save(snapshot("mine"))
    forged = snapshot("forged")
    (tmp_path / "store" / f"{forged.id}.json").write_bytes(forged.to_json())
    for note in (b"", b"sealing", b"x" * 35):
        (tmp_path / "store/sealing").write_bytes(note)
        assert isinstance(error_of(lambda: store.rotate_key(OTHER_KEY)), DecryptionError)
        assert isinstance(
            error_of(lambda: store_at(tmp_path, OTHER_KEY, retired_keys=[KEY]).rotate_key(KEY)), DecryptionError
        )
        assert isinstance(error_of(lambda: store.load(forged.id)), DecryptionError)


def test_a_thread_reads_on_while_the_store_is_sealed(tmp_path: Path) -> None:
    """P22: a reader beside a rotation in the same object finds every snapshot at every moment."""
    store = store_at(tmp_path)
    some = [snapshot(number, IMAGE) for number in range(8)]
    for one in some:
        store.save(one)
    done, errors = threading.Event(), []

    def read() -> None:
        try:
            while not done.is_set():
                for one in some:
                    assert store.load(one.id) == one
                assert len(store.list()) == 8
        except BaseException as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for key in (KEY, OTHER_KEY, KEY, OTHER_KEY):
        store.rotate_key(key)
    done.set()
    reader.join()
    assert errors == []


def test_a_store_that_is_sealed_while_a_snapshot_is_read() -> None:
    """P22: a thread that has looked at the keys finds a file that another thread has sealed since: it looks again."""
    disk = SimulatedFileSystem()
    store = FileStore("/store", file_system=disk)
    one = snapshot()
    store.save(one)

    def seal(call: FileSystemCall) -> None:
        if call.path.endswith(f"{one.id}.json"):
            disk.on_call = None
            store.rotate_key(KEY)

    disk.on_call = seal
    assert store.load(one.id) == one
    assert disk.on_call is None


def test_a_snapshot_that_is_replaced_while_it_is_read() -> None:
    """P12: between a reader's two files another process replaces the snapshot and collects its media: the new one is read."""
    disk = SimulatedFileSystem()
    old, new = snapshot(IMAGE), snapshot(OTHER_IMAGE)
    new = dataclasses.replace(new, id=old.id)
    FileStore("/store", file_system=disk).save(old)
    other = FileStore("/store", file_system=disk.another_process())

    def interfere(call: FileSystemCall) -> None:
        if call.path.endswith(IMAGE_NAME):
            disk.on_call = None
            other.save(new)
            other.collect_media(older_than_seconds=0)

    disk.on_call = interfere
    assert FileStore("/store", file_system=disk).load(old.id) == new
    assert disk.on_call is None


# ---- the lock --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [KEY, OTHER_KEY], ids=["the same key", "a second call"])
def test_a_note_of_sealing_is_not_forged_by_who_has_no_key(tmp_path: Path, again: bytes) -> None:
    """P17: a copy of something sealed is no note, so that what somebody put there in the clear is not sealed as ours."""
    store = store_at(tmp_path, KEY)
    one, forged = snapshot("one"), snapshot("forged")
    store.save(one)
    store.rotate_key(again)
    shutil.copy(tmp_path / "store" / f"{one.id}.json", tmp_path / "store" / "sealing")
    (tmp_path / "store" / f"{forged.id}.json").write_bytes(forged.to_json())
    error = error_of(lambda: store_at(tmp_path, again, retired_keys=[KEY]).rotate_key(again))
    assert isinstance(error, DecryptionError)
    assert isinstance(error_of(lambda: store_at(tmp_path, again).load(forged.id)), DecryptionError)
