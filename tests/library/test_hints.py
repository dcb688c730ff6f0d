"""An error names a way out that its call has."""

from __future__ import annotations

import errno
import os

import pytest

from tests.library.helpers import ID, OTHER_ID, make
from transcript_store import ConversationLibrary, ConversationLockedError, FileStore, Snapshot, StorageError, repair
from transcript_store.testing import FileSystemCall, SimulatedFileSystem

WRITING = {"create", "write", "open_append", "make_directory", "rename", "unlink", "truncate"}


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_hint_is_one_that_the_call_has(number):
    """P7: on a read-only mount only calls that open a conversation suggest read_only=True; no other call has that option."""
    disk = SimulatedFileSystem()
    library, snapshots = ConversationLibrary("/l", file_system=disk), FileStore("/s", file_system=disk)
    for chat in (ID, OTHER_ID):
        library.create(id=chat).close()
    snapshots.save(Snapshot.create(provider="p", messages=[]))
    handle = disk.open_append(disk.open_directory(f"/l/{OTHER_ID}"), "transcript.jsonl")
    disk.write(handle, b"garbage")

    def refuse(call: FileSystemCall) -> None:
        if call.name in WRITING:
            raise OSError(number, os.strerror(number))

    disk.on_call = refuse
    with pytest.raises(StorageError, match="read_only=True"):
        library.open(ID)
    for call in (
        library.create,
        lambda: library.delete(ID),
        lambda: repair(f"/l/{ID}", dry_run=False, file_system=disk),
        lambda: repair(f"/l/{OTHER_ID}", dry_run=False, file_system=disk),
        lambda: snapshots.save(Snapshot.create(provider="p", messages=[])),
    ):
        with pytest.raises(StorageError) as caught:
            call()
        assert "read_only" not in str(caught.value)
        assert "quarantine" not in str(caught.value)
        assert caught.value.errno == number


def test_a_locked_error_has_the_hint_for_its_call(library, root):
    """An open can wait, or read only; a repair or a delete can do neither, so its hint does not suggest it."""
    chat = make(library, "a")
    with library.open(chat):
        with pytest.raises(ConversationLockedError, match="lock_timeout_seconds"):
            library.open(chat)
        for call in (lambda: library.delete(chat), lambda: repair(root / chat, dry_run=False)):
            with pytest.raises(ConversationLockedError, match="close that writer, or try again") as caught:
                call()
            assert "lock_timeout_seconds" not in str(caught.value)
            assert "read_only" not in str(caught.value)


def test_a_repair_that_is_refused_half_way_says_where_the_original_is():
    """Before anything is moved, nothing was; from then on, the damaged files are in place or in quarantine."""
    for name, said in (("open_append", "Nothing of it was changed"), ("rename", "in place or in quarantine/")):
        disk = SimulatedFileSystem()
        ConversationLibrary("/l", file_system=disk).create(id=ID).close()
        disk.write(disk.open_append(disk.open_directory(f"/l/{ID}"), "transcript.jsonl"), b"garbage\n")

        def refuse(call: FileSystemCall, name: str = name) -> None:
            if call.name == name:
                raise OSError(errno.EIO, "injected")

        disk.on_call = refuse
        with pytest.raises(StorageError, match=said):
            repair(f"/l/{ID}", dry_run=False, file_system=disk)
