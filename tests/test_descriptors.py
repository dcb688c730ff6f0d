"""Every descriptor is closed, whatever its number and whatever else fails.

The incident is what a run of mutants asked (tests/mutants): nothing noticed a descriptor 0 that was taken for none, a close that
hid the error before it, or a lock that ended only with the last process that had inherited it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest

from tests.kit.meanwhile import CHAT, TRANSCRIPT, a_conversation, opened
from transcript_store import (
    ConversationLibrary,
    ConversationLockedError,
    ConversationStore,
    FileStore,
    Snapshot,
    TranscriptStoreError,
    repair,
    verify,
)
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import PosixFileSystem
from transcript_store._os.lock import Lock
from transcript_store.testing import FileSystemCall, SimulatedFileSystem

SAID = [{"role": "user", "content": f"message {n}" * 50} for n in range(3)]
SNAPSHOT = Snapshot.create(provider="claude", model="m", messages=[{"image": "QUJD" * 400}])
KEY = bytes(range(32))


# ---- descriptor 0 ---------------------------------------------------------------------------------------------------


class Daemon(PosixFileSystem):
    """A process without standard input: one of the names that it opens gets the number 0, again and again."""

    def __init__(self, which: int) -> None:
        super().__init__()
        self._until = which
        self.name: str | None = None

    def _numbered(self, name: str, handle: int) -> int:
        self._until -= 1
        if self._until == 0:
            self.name = name
        if name != self.name or 0 in self._handles:  # of the file system that it is
            return handle
        os.dup2(handle, 0, inheritable=False)
        self.close(handle)
        self._handles.add(0)  # as it keeps what it opened itself
        return 0

    def open_directory(self, path: str, parent: int | None = None) -> int:
        return self._numbered(path, super().open_directory(path, parent))

    def open_read(self, parent: int, name: str) -> int:
        return self._numbered(name, super().open_read(parent, name))

    def open_append(self, parent: int, name: str) -> int:
        return self._numbered(name, super().open_append(parent, name))

    def create(self, parent: int, name: str) -> int:
        return self._numbered(name, super().create(parent, name))


def a_day(path: Path, files: PosixFileSystem) -> None:
    """What a program does with its conversations and snapshots."""
    library = ConversationLibrary(path / "chats", file_system=files)
    with library.create(messages=SAID) as conversation:
        chat = conversation.get_metadata().id
        conversation.replace_transcript(SAID[:1], model="m")
    with library.open(chat) as conversation:
        conversation.append_messages(SAID)
    with library.open(chat, read_only=True) as reader:
        with library.open(chat) as conversation:
            conversation.replace_transcript(SAID[:2])
        reader.refresh()  # loads anew, beside the file that it has open
    assert verify(path / "chats" / chat, file_system=files).is_intact
    repair(path / "chats" / chat, dry_run=False, file_system=files)
    library.delete(library.fork(chat))
    store = FileStore(path / "store", file_system=files)
    store.save(SNAPSHOT)
    store.rotate_key(KEY)
    assert store.load(SNAPSHOT.id) == SNAPSHOT
    assert store.collect_media(older_than_seconds=0) == []


def test_a_descriptor_0_is_closed_like_any_other(scratch: Path):
    """P11: a daemon may have closed its standard input, and then something that it opens gets 0. Its lock ends too."""
    names: list[str] = []
    standard_input = os.dup(0)
    try:
        while True:
            files = Daemon(len(names) + 1)
            a_day(scratch / str(len(names)), files)
            if files.name is None:
                break
            names.append(os.path.basename(files.name))
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(0)
            os.dup2(standard_input, 0)
    finally:
        os.dup2(standard_input, 0)
        os.close(standard_input)
    assert {"lock", "transcript.jsonl", "metadata.json", "archive", "store", "media"} < set(names)


def test_a_folder_and_a_lock_may_have_the_number_0():
    """The same of each alone: held, let go, and closed once."""
    files = mock.Mock()
    files.now_us.return_value = 0
    files.process_id.return_value, files.host_name.return_value = 1, "here"
    folder = Folder(files, "/chats", 0)
    files.open_append.return_value, files.read.return_value = 0, b""
    files.status.return_value = files.handle_status.return_value = os.stat(__file__)
    lock = Lock(folder)
    assert lock.take(0)
    assert lock.is_held()
    for held in (lock.release, folder.close):
        held()
        held()
        files.close.assert_called_once_with(0)
        files.close.reset_mock()
    files.unlock.assert_called_once_with(0)
    assert not lock.is_held()


# ---- the first error ------------------------------------------------------------------------------------------------


def initialize(disk: SimulatedFileSystem) -> None:
    with ConversationStore("/a/b/chat", file_system=disk) as store:
        store.initialize(messages=SAID)


def load(disk: SimulatedFileSystem) -> None:
    with ConversationStore("/chats/chat", file_system=disk) as store:
        store.load()


def read(disk: SimulatedFileSystem) -> None:
    with ConversationStore("/chats/chat", file_system=disk, read_only=True) as store:
        store.load()
        store.refresh()


def replace(disk: SimulatedFileSystem) -> None:
    with ConversationStore("/chats/chat", file_system=disk) as store:
        store.load()
        store.replace_transcript(SAID)


def save(disk: SimulatedFileSystem) -> None:
    FileStore("/store", file_system=disk).save(SNAPSHOT)


def load_snapshot(disk: SimulatedFileSystem) -> None:
    FileStore("/store", file_system=disk).load(SNAPSHOT.id)


def rotate(disk: SimulatedFileSystem) -> None:
    FileStore("/store", file_system=disk).rotate_key(KEY)


Operation = Callable[[SimulatedFileSystem], None]
OPERATIONS: tuple[Operation, ...] = (initialize, load, read, replace, save, load_snapshot, rotate)


@pytest.fixture(scope="module")
def a_disk() -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    with ConversationStore("/chats/chat", file_system=disk) as store:
        store.initialize(messages=SAID)
    FileStore("/store", file_system=disk).save(SNAPSHOT)
    return disk


def refuses(number: int, disk: SimulatedFileSystem, *, closes_too: bool) -> None:
    """The call of this number is refused, and if that is wanted every close from then on fails."""

    def refuse(call: FileSystemCall) -> None:
        if call.number == number and call.name != "close":
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        if call.number >= number and call.name == "close" and closes_too:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk.on_call = refuse


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_error_that_is_told_is_the_first(a_disk: SimulatedFileSystem, operation: Operation):
    """P7: a call is refused, and every close after it fails, as on NFS when a quota is exhausted. What is told is the quota,
    with its way out, not a failing disk; and whatever was opened is closed.
    """
    counted = a_disk.copy()
    operation(counted)
    told = 0
    for number in range(1, counted.calls_made + 1):
        errors = []
        for closes_too in (False, True):
            disk = a_disk.copy()
            refuses(number, disk, closes_too=closes_too)
            try:
                operation(disk)
            except TranscriptStoreError as error:
                errors.append(error)
            assert disk.open_handles == []
        if len(errors) == 2 and getattr(errors[0], "errno", None) == errno.EDQUOT:
            assert str(errors[1]) == str(errors[0])
            told += 1
    assert told > 5


# ---- others ---------------------------------------------------------------------------------------------------------


def test_a_lock_ends_with_its_writer_though_a_child_has_the_descriptor(tmp_path: Path):
    """P11: a library in C forks, and Python's hooks do not run in the child: it keeps every descriptor until it ends."""
    store = ConversationStore(tmp_path / "chat")
    store.initialize(messages=SAID)
    libc = ctypes.CDLL(None)
    child = libc.fork()
    if child == 0:
        while True:
            libc.pause()
    assert child > 0  # -1, which is "no process left", would mean all of them below
    try:
        with pytest.raises(ConversationLockedError):
            ConversationStore(tmp_path / "chat").load()
        store.close()
        with ConversationStore(tmp_path / "chat") as next_one:
            next_one.load()
    finally:
        os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)


def test_a_refused_lock_leaves_no_open_file():
    """P11: a library that is polled for a conversation somebody writes to does not run out of descriptors."""
    disk = SimulatedFileSystem()
    library = ConversationLibrary("/chats", file_system=disk)
    with library.create(messages=SAID) as conversation:
        chat = conversation.get_metadata().id
        other = disk.another_process()
        for call in (
            lambda: ConversationLibrary("/chats", file_system=other).open(chat),
            lambda: ConversationLibrary("/chats", file_system=other).delete(chat),
            lambda: repair(f"/chats/{chat}", dry_run=False, file_system=other),
        ):
            with pytest.raises(ConversationLockedError):
                call()
            assert other.open_handles == []
        with Folder.open(other, f"/chats/{chat}") as folder:
            with pytest.raises(ConversationLockedError):
                Lock(folder).take(0)
            assert other.open_handles == [folder.path]


def refusing_to_close(disk: SimulatedFileSystem) -> list[FileSystemCall]:
    """The calls in which the disk refuses to close a transcript."""
    refused: list[FileSystemCall] = []

    def refuse(call: FileSystemCall) -> None:
        if (call.name, call.path) == ("close", TRANSCRIPT):
            refused.append(call)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk.on_call = refuse
    return refused


def test_a_replace_is_done_though_what_it_replaced_is_not_closed():
    """Its rename was the commit: an error of what comes behind it would say that the old messages are still there."""
    disk = a_conversation()
    with opened(disk) as writer:
        refused = refusing_to_close(disk)
        writer.replace_transcript([{"n": "anew"}])
        disk.on_call = None
        assert refused
        assert writer.get_messages() == [{"n": "anew"}]


def test_a_close_of_what_was_read_before_hides_nothing_new():
    """A reader looks again, and the disk refuses to close the file that it had open: what it has read now is there."""
    disk = a_conversation()
    with ConversationStore(CHAT, file_system=disk, read_only=True) as reader:
        reader.load()
        with opened(disk.another_process()) as writer:
            writer.append_message({"n": "later"})
            writer.replace_transcript([{"n": "anew"}])
        refused = refusing_to_close(disk)
        reader.refresh()
        disk.on_call = None
        assert refused
        assert reader.get_messages() == [{"n": "anew"}]


@pytest.mark.parametrize("else_fails", [False, True])
def test_a_folder_that_is_not_closed_is_told_unless_something_else_failed(else_fails: bool) -> None:
    """The error of the work matters more; without one, that of the close is not lost."""
    disk = a_conversation()

    def refuse(call: FileSystemCall) -> None:
        if call.name == "close":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(OSError, match="the work" if else_fails else os.strerror(errno.EIO)):
        with Folder.open(disk, CHAT):
            disk.on_call = refuse
            if else_fails:
                raise OSError(errno.ENOSPC, "the work")
