"""The failing disk: a sync returns EIO, a later one succeeds, and the bytes in between are only in the cache.

The incident is PostgreSQL's of 2018: Linux tells of a write that failed once, marks its pages clean and keeps them, so that a
program that tries its sync again is told that all is well, and one that reads the file again is shown what the disk never
got. Here real file systems stand on a disk that refuses to write certain blocks. P6.

Dropping the cache is not enough where somebody else has the file mapped, a search tool or an indexer: its pages stay, and the
store believed them, acknowledged what came after, and was ``damaged-line`` with 21,390 NUL bytes after the next mount.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from tests.crash.failing_disk import Failing, failing_volume
from tests.crash.model import DIRECTORY, ID, library_on, store_on
from tests.crash.operations import TRANSCRIPT
from tests.crash.real_disk import RealDisk
from tests.crash.seeded_bugs import BUGS, Bug
from tests.crash.volumes import Volume
from tests.kit.children import Child
from transcript_store import (
    ConversationLibrary,
    ConversationStore,
    PoisonedError,
    StorageError,
    TranscriptStoreError,
    snapshot_of,
    verify,
)

pytestmark = [pytest.mark.root, pytest.mark.needs("/dev/fuse", "fusermount3", "losetup")]

KINDS = pytest.mark.parametrize(
    "kind",
    [
        pytest.param("ext4", marks=pytest.mark.needs("mkfs.ext4")),
        pytest.param("xfs", marks=pytest.mark.needs("mkfs.xfs")),
        pytest.param("btrfs", marks=pytest.mark.needs("mkfs.btrfs")),
        pytest.param("overlay", marks=pytest.mark.needs("mkfs.ext4")),
    ],
)
MAPPED = pytest.mark.parametrize("mapped", [False, True], ids=["not mapped", "mapped"])

DOOMED = {"role": "user", "content": "DOOMED " * 3000}
"""Several pages: the last of them will be written again by what comes behind it, the others never."""


def good(number: int) -> dict[str, object]:
    return {"role": "user", "content": f"good {number}"}


def texts(store: ConversationStore) -> list[str]:
    return [message["content"].split()[0] for message in store.get_messages()]


@contextmanager
def mapped_by_another(path: Path) -> Iterator[None]:
    """Another process has all of a file mapped, and has looked at each page."""

    def look(say: Callable[[object], None]) -> None:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
            say(sum(pages[:: mmap.PAGESIZE]))
            signal.pause()

    child = Child(look)
    child.wait_for(1)
    try:
        yield
    finally:
        child.end(signal.SIGKILL)


def fail_a_sync_and_go_on(volume: Volume, disk: Failing, *, cut: bool, durability: str, mapped: bool) -> None:
    """A message meets the failing disk; the disk recovers; the store is loaded anew, goes on, and loses the cache."""
    store = store_on(RealDisk(volume.path), durability=durability)
    try:
        expected = refuse_a_message(store, volume, disk)
        with mapped_by_another(transcript_on(volume)) if mapped else nullcontext():
            expected = _go_on(store, expected, durability)
        if cut:
            volume.cut_power()
    finally:
        with suppress(TranscriptStoreError):  # after a cut it only lets go
            store.close()
    volume.unmount()
    volume.mount()
    with store_on(RealDisk(volume.path, seed=2)) as after:
        after.load()
        assert after.get_messages() == expected
    assert verify(f"{volume.path}{DIRECTORY}").is_intact


def transcript_on(volume: Volume) -> Path:
    return Path(f"{volume.path}{TRANSCRIPT}")


def refuse_a_message(store: ConversationStore, volume: Volume, disk: Failing) -> list[dict[str, object]]:
    """Store two messages; the disk refuses a third, and recovers. Returns the two."""
    store.initialize(id=ID, messages=[good(1)])
    store.append_message(good(2))
    expected = store.get_messages()

    disk.refuse(b"DOOMED")
    with pytest.raises(StorageError, match="this store writes nothing more") as caught:
        store.append_message(DOOMED)
        store.update_metadata(model="syncs what was appended")
    assert caught.value.errno == errno.EIO
    assert disk.refused > 0
    disk.refuse(b"")
    with pytest.raises(PoisonedError):
        store.append_message(good(3))
    assert b"DOOMED" in transcript_on(volume).read_bytes(), "the cache does not lie here: nothing is tested"
    return expected


def _go_on(store: ConversationStore, expected: list[dict[str, object]], durability: str) -> list[dict[str, object]]:
    store.load()
    if durability == "process-crash":  # what was not synced stood in a page that the disk refused: a prefix, as P2 says
        assert store.get_messages() in (expected, expected[:1])
        expected = store.get_messages()
    assert store.get_messages() == expected, "what the disk never got is shown"
    store.append_message(good(4))
    store.append_message(good(5))
    store.update_metadata(model="later")
    return [*expected, good(4), good(5)]


@KINDS
@MAPPED
@pytest.mark.parametrize("cut", [False, True], ids=["unmounted", "cut"])
@pytest.mark.parametrize("durability", ["power-loss", "process-crash"])
def test_a_sync_that_failed(kind: str, cut: bool, durability: str, mapped: bool) -> None:
    """P6: the store stops, says so, and a new load() shows what is on the platter; what is stored then stays."""
    with failing_volume(kind) as (volume, disk):
        fail_a_sync_and_go_on(volume, disk, cut=cut, durability=durability, mapped=mapped)


def copy_what_was_refused(volume: Volume, disk: Failing, *, mapped: bool) -> None:
    """Beside the writer that was told, a reader is shown the message; a fork, and a snapshot of the reader, must not have it."""
    machine = RealDisk(volume.path)
    store = store_on(machine)
    try:
        expected = refuse_a_message(store, volume, disk)
        with (
            mapped_by_another(transcript_on(volume)) if mapped else nullcontext(),
            store_on(RealDisk(volume.path, seed=2), read_only=True) as reader,
        ):
            reader.load()
            assert texts(reader)[-1] == "DOOMED", "the reader is not shown what the cache shows: nothing is tested"
            copied = json.loads(snapshot_of(reader).messages_json)
            fork = library_on(RealDisk(volume.path, seed=3)).fork(ID)
    finally:
        store.close()
    volume.unmount()
    volume.mount()
    library = library_on(RealDisk(volume.path, seed=4))
    with library.open(ID) as original, library.open(fork) as copy:
        assert original.get_messages() == expected
        assert copy.get_messages() == expected, "the fork has what the original lost"
    assert copied == expected, "the snapshot has what the original lost"


@KINDS
@MAPPED
def test_a_copy_holds_what_the_disk_holds(kind: str, mapped: bool) -> None:
    """P12: a reader may see what its writer was told is not stored; nothing that copies makes it durable.

    The incident: a fork stored a message for good that the original lost.
    """
    with failing_volume(kind) as (volume, disk):
        copy_what_was_refused(volume, disk, mapped=mapped)


SYNCED_WHOLE = pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
ONE, TWO, THREE = (f"0000000{number}-0000-4000-8000-000000000000" for number in range(3))


@SYNCED_WHOLE
@pytest.mark.parametrize("is_met_early", [False, True], ids=["at the sync", "before it"])
def test_a_group_that_meets_the_failing_disk_is_refused_as_a_whole(kind: str, is_met_early: bool) -> None:
    """P6, A4: also if the kernel met the error on its own, before the group asked; and what is made then stays.

    With the real ``syncfs``, and what is believed of it: not one conversation of the group has its name.
    """
    with failing_volume(kind) as (volume, disk):
        library = ConversationLibrary(volume.path / "library")
        with pytest.raises(StorageError, match="None of them was created") as caught, library.group() as group:
            assert not group.creates_alone
            group.add(id=ONE, messages=[good(1)])
            group.commit()
            disk.refuse(b"DOOMED")
            group.add(id=TWO, messages=[DOOMED])
            group.add(id=THREE, messages=[good(3)])
            if is_met_early:
                os.sync()
                assert disk.refused > 0
        assert caught.value.errno == errno.EIO
        assert disk.refused > 0
        disk.refuse(b"")
        assert [summary.id for summary in library.list()] == [ONE]
        with library.group() as group:
            group.add(id=TWO, messages=[DOOMED])
            group.add(id=THREE, messages=[good(3)])
        volume.cut_power()
        volume.unmount()
        volume.mount()
        for summary, message in ((ONE, good(1)), (TWO, DOOMED), (THREE, good(3))):
            with library.open(summary) as store:
                assert store.get_messages() == [message]
            assert verify(f"{library.directory}/{summary}").is_intact


@SYNCED_WHOLE
@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_leaves_a_group_that_was_committed_and_nothing_of_one_that_was_not(kind: str, seed: int) -> None:
    """P1, A1: of the blocks that no flush was asked for, some are lost; the committed group is there, the other one is not."""
    with failing_volume(kind) as (volume, _):
        library = ConversationLibrary(volume.path / "library")
        group = library.group()
        waiting = group.__enter__()
        ids = [waiting.add(messages=[good(seed), DOOMED]) for _ in range(20)]
        waiting.commit()
        for _ in range(20):
            waiting.add(messages=[DOOMED])
        volume.cut_power()
        with suppress(TranscriptStoreError, PoisonedError):
            group.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        volume.unmount()
        volume.mount()
        assert sorted(str(summary.id) for summary in library.list()) == sorted(ids)
        assert all(verify(summary.directory).is_intact for summary in library.list())
        with library.group():
            pass
        assert sorted(os.listdir(library.directory)) == sorted(ids)


@SYNCED_WHOLE
def test_a_file_system_that_shut_down_commits_nothing(kind: str) -> None:
    """A4: it has nothing to sync any more, and may say so with success; the group is refused all the same."""
    with failing_volume(kind) as (volume, _):
        library = ConversationLibrary(volume.path / "library")
        with pytest.raises(StorageError), library.group() as group:
            group.add(id=ONE, messages=[good(1)])
            volume.cut_power()
        volume.unmount()
        volume.mount()
        assert library.list() == []


@pytest.mark.needs("mkfs.ext4")
def test_an_overlay_is_not_believed() -> None:
    """It does not pass on what its upper layer met: there each conversation is created by itself."""
    with failing_volume("overlay") as (volume, _), ConversationLibrary(volume.path / "library").group() as group:
        assert group.creates_alone


@pytest.mark.parametrize("bug", [bug for bug in BUGS if "failing_disk" in bug.on_the_kernel], ids=lambda bug: bug.name)
def test_a_seeded_bug_is_caught(bug: Bug) -> None:
    """P6: a store that hides the failure, goes on, or believes the cache, is found out."""
    with failing_volume("ext4") as (volume, disk), pytest.MonkeyPatch.context() as patch:
        bug.break_it(patch)
        mapped = "mapped" in bug.name
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            if "copy" in bug.name:
                copy_what_was_refused(volume, disk, mapped=False)
            else:
                fail_a_sync_and_go_on(volume, disk, cut=False, durability="power-loss", mapped=mapped)
