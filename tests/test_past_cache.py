"""Reads past the cache: what a writer believes after an unclean end is what the disk holds, not what some process has mapped.

``drop_cache`` was trusted: but Linux keeps every page that a process has mapped, and after a failed sync those show what the
disk never got. What it is good for is tried on disks that fail (tests/crash/test_failing_disk.py); here is that such a
read gives the bytes that any other read gives, wherever it begins and ends, and lets go of what it opened.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from transcript_store import ConversationStore, StorageError
from transcript_store._os.filesystem import PosixFileSystem
from transcript_store.testing import FileSystemCall, SimulatedFileSystem

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps mapped pages so")


@pytest.fixture
def files() -> PosixFileSystem:
    return PosixFileSystem()


def is_open_twice(path: Path) -> bool:
    """Whether it is read past the cache: through a second descriptor, opened for that."""
    handles = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return sum(os.path.lexists(handle) and os.readlink(handle) == str(path) for handle in handles) == 2


def opened(files: PosixFileSystem, path: Path) -> int:
    return files.open_append(files.open_directory(str(path.parent)), path.name)


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 70_000, (1 << 18) + 4096, (1 << 20) + 17])
def test_it_reads_the_same_bytes(files: PosixFileSystem, tmp_path: Path, size: int) -> None:
    """From any offset, of any length, beyond the end too."""
    content = Random(size).randbytes(size)
    path = tmp_path / "file"
    path.write_bytes(content)
    handle = opened(files, path)
    files.sync_data(handle)
    files.drop_cache(handle)
    if not is_open_twice(path):
        pytest.skip("this file system has no reads past the cache")
    choose = Random(1)
    edges = [0, 1, 4095, 4096, 4097, size - 1, size, size + 1, size + 5000]
    for _ in range(200):
        offset = max(0, choose.choice([*edges, choose.randrange(size + 1)]))
        length = max(0, choose.choice([*edges, choose.randrange(size + 1)]))
        assert files.read(handle, offset, length) == content[offset : offset + length], (offset, length)


def test_it_sees_what_is_written_meanwhile(files: PosixFileSystem, tmp_path: Path) -> None:
    """What is on its way to the disk is read too, and the next sync ends it."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 5000)
    handle = opened(files, path)
    files.drop_cache(handle)
    files.write(handle, b"appended")
    assert files.read(handle, 4990, 100) == b"x" * 10 + b"appended"
    files.sync_data(handle)
    assert not is_open_twice(path)
    assert files.read(handle, 4990, 100) == b"x" * 10 + b"appended"


@pytest.mark.parametrize("end", ["close", "sync_data"])
def test_nothing_stays_open(files: PosixFileSystem, tmp_path: Path, end: str) -> None:
    """Dropped twice, it is opened once, and closed."""
    path = tmp_path / "file"
    path.write_bytes(b"x")
    before = len(os.listdir("/proc/self/fd"))
    handle = opened(files, path)
    files.drop_cache(handle)
    files.drop_cache(handle)
    getattr(files, end)(handle)
    if end == "sync_data":
        files.close(handle)
    assert len(os.listdir("/proc/self/fd")) == before + 1  # the folder


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOENT, errno.EACCES], ids=errno.errorcode.get)
def test_a_file_system_without_such_reads_is_read_as_before(
    files: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """No O_DIRECT, no /proc: the cache is dropped, and read."""
    real = os.open

    def refuse(path: Any, flags: int, *arguments: Any, **named: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(code, os.strerror(code))
        return real(path, flags, *arguments, **named)

    path = tmp_path / "file"
    path.write_bytes(b"content")
    handle = opened(files, path)
    monkeypatch.setattr(os, "open", refuse)
    files.drop_cache(handle)
    assert files.read(handle, 0, 100) == b"content"


def test_blocks_of_another_size_are_read_as_before(
    files: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk whose blocks are larger than ours refuses the read itself."""
    real = os.preadv

    def refuse(handle: int, buffers: Any, offset: int) -> int:
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(handle, buffers, offset)

    path = tmp_path / "file"
    path.write_bytes(b"content")
    handle = opened(files, path)
    files.drop_cache(handle)
    monkeypatch.setattr(os, "preadv", refuse)
    assert files.read(handle, 1, 3) == b"ont"
    assert not is_open_twice(path)


def test_too_many_open_files_are_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P7: that the disk cannot be asked is an error of ours, not a reason to believe the cache."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[{"n": 1}])
    with (tmp_path / "c" / "transcript.jsonl").open("ab") as transcript:
        transcript.write(b"torn")  # it does not end at the mark
    real = os.open

    def refuse(path: Any, flags: int, *arguments: Any, **named: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, flags, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(StorageError) as caught:
            ConversationStore(tmp_path / "c").load()
    assert caught.value.errno == errno.EMFILE
    with ConversationStore(tmp_path / "c") as store:
        store.load()
        assert store.get_messages() == [{"n": 1}]


def test_a_message_that_the_disk_refused_is_not_shown_while_the_file_is_mapped() -> None:
    """P6: and what is acknowledged after it is not lost behind it. On real disks: tests/crash/test_failing_disk.py."""
    disk = SimulatedFileSystem()

    def refuse(call: FileSystemCall) -> None:
        if call.name == "sync_data":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    store = ConversationStore("/c", file_system=disk)
    store.initialize(messages=[{"n": 1}])
    disk.map_file("/c/transcript.jsonl")
    disk.on_call = refuse
    with pytest.raises(StorageError):
        store.append_message({"n": "refused"})
    disk.on_call = None
    store.load()
    assert store.get_messages() == [{"n": 1}]
    store.append_message({"n": 2})
    with ConversationStore("/c", file_system=disk.worst_power_failure()) as after:
        after.load()
        assert after.get_messages() == [{"n": 1}, {"n": 2}]
