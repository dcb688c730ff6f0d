"""Writers wait for the lock, readers do not, and nothing is held between calls."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.snapshots.helpers import IMAGE, KEY, error_of, snapshot, store_at
from transcript_store import (
    ConversationLockedError,
    FileStore,
    Hint,
    MemorySnapshotStore,
    SnapshotNotFoundError,
    StorageError,
)
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import REAL
from transcript_store._os.lock import Lock
from transcript_store._snapshots import file_store
from transcript_store.testing import FileSystemCall, SimulatedFileSystem


def test_writers_wait_for_the_lock_and_readers_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save, delete, rotate and collect meet another process's lock; the error names it; load, list and verify go on."""
    store = store_at(tmp_path)
    one = snapshot("one")
    store.save(one)
    monkeypatch.setattr(file_store, "LOCK_TIMEOUT_SECONDS", 0.0)
    with Folder.open(REAL, store.directory) as folder:
        lock = Lock(folder)
        lock.take(0)
        for call in (
            lambda: store.save(one),
            lambda: store.delete(one.id),
            lambda: store.rotate_key(KEY),
            store.collect_media,
        ):
            error = error_of(call)
            assert isinstance(error, ConversationLockedError)
            assert error.holder_pid == os.getpid()
            assert "read_only" not in str(error)
        assert store.load(one.id) == one
        assert len(store.list()) == 1
        assert store.verify() == []
        lock.release()
    store.delete(one.id)


def test_a_directory_that_goes_while_its_lock_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P11: nothing is done without the lock; a save says that the directory is not there, a delete that the snapshot is not."""
    store = store_at(tmp_path)
    one = snapshot("one")
    store.save(one)
    monkeypatch.setattr(Lock, "take", lambda self, timeout_seconds: False)
    assert isinstance(error_of(lambda: store.save(one)), StorageError)
    assert isinstance(error_of(lambda: store.delete(one.id)), SnapshotNotFoundError)
    assert store.load(one.id) == one


def test_a_directory_whose_parent_goes_while_it_is_made() -> None:
    """Nothing is stored, and the error is the disk's, with what may hold of the snapshot."""
    disk = SimulatedFileSystem()

    def refuse(call: FileSystemCall) -> None:
        if call.name == "make_directory":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    disk.on_call = refuse
    error = error_of(lambda: FileStore("/parent/store", file_system=disk).save(snapshot("one")))
    assert isinstance(error, StorageError)
    assert (error.errno, error.hint) == (errno.ENOENT, Hint.LOAD_TO_CHECK)
    assert disk.open_handles == []


def test_nothing_is_left_open(tmp_path: Path) -> None:
    """Between calls a store holds no descriptor and no lock, whatever the call came to."""
    disk = SimulatedFileSystem()
    store = FileStore("/store", file_system=disk)
    one = snapshot(IMAGE)
    store.save(one)
    for call in (
        lambda: store.load(one.id),
        store.list,
        store.verify,
        store.collect_media,
        lambda: store.rotate_key(KEY),
        lambda: store.load(snapshot().id),
        lambda: store.delete(one.id),
    ):
        error_of(call)
        assert disk.open_handles == []


def test_only_snapshots_are_saved(tmp_path: Path) -> None:
    """A dict, or a snapshot's JSON, is a mistake of the caller's."""
    bad: Any
    for bad in ({}, b"{}", None):
        for store in (store_at(tmp_path), MemorySnapshotStore()):
            with pytest.raises(TypeError, match=r"save\(\) takes a Snapshot"):
                store.save(bad)
