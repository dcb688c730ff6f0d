"""Removals by another program and errors of the disk at any point, in a snapshot store and beside it.

The incident: no plain test ran these lines, so mutants of them passed: one said that a new key was written, and it was not.
"""

from __future__ import annotations

import errno
import os

import pytest

from tests.kit.meanwhile import in_folder, meanwhile
from transcript_store import FileStore, Snapshot, StorageError
from transcript_store.keys import write_key_file
from transcript_store.testing import FileSystemCall, SimulatedFileSystem

MEDIA = "A" * 1000


def of(text: str) -> Snapshot:
    return Snapshot.create(provider="claude", model="m", messages=[{"role": "user", "content": text}])


def test_a_snapshot_that_goes_while_media_is_collected_keeps_none() -> None:
    """go-tool-base deletes without a lock. Its media is of nobody then; that of the others stays."""
    disk = SimulatedFileSystem()
    store = FileStore("/store", file_system=disk)
    stays, goes = sorted((of(MEDIA), of("B" * 1000)), key=lambda snapshot: snapshot.id)
    for one in (stays, goes):
        store.save(one)
    seen = meanwhile(
        disk,
        "open_read",
        f"{goes.id}.json",
        lambda other: in_folder(other, "/store", lambda folder: other.unlink(folder, f"{goes.id}.json")),
    )
    assert len(store.collect_media(older_than_seconds=0)) == 1
    assert seen
    assert store.verify() == []
    assert store.load(stays.id) == stays


@pytest.mark.parametrize("call", ["create", "write", "sync"])
def test_a_key_that_cannot_be_written_is_an_error(call: str) -> None:
    """P7: a full or failing disk: no key is reported as written, and no partial key file is left."""
    disk = SimulatedFileSystem()

    def refuse(asked: FileSystemCall) -> None:
        if asked.name == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk.on_call = refuse
    with pytest.raises(StorageError):
        write_key_file("/key", file_system=disk)
    assert disk.tree() == {}
    assert disk.open_handles == []


def test_a_key_that_was_written_survives_a_power_cut() -> None:
    """Nobody has another copy of it: the file and its name are on the medium when the call returns."""
    disk = SimulatedFileSystem()
    write_key_file("/key", file_system=disk)
    written = disk.tree()["/key"]
    assert written is not None
    assert len(bytes.fromhex(written.decode())) == 32
    assert disk.worst_power_failure().tree() == {"/key": written}


def test_retired_keys_are_a_sequence_of_keys() -> None:
    """One key in their place would be taken for 32 keys of one byte."""
    key = bytes(range(32))
    for given in (key, bytearray(key), "a" * 32):
        with pytest.raises(TypeError, match="retired_keys is a sequence of keys"):
            FileStore("/store", encryption_key=key, retired_keys=given)  # type: ignore[arg-type]
