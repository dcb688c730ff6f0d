"""The failing disk: a sync says EIO, a later one says OK, and what was written in between is in the cache and nowhere else.

The incident is PostgreSQL's of 2018: Linux tells of a write that failed once, marks its pages clean and keeps them, so that a
program that tries its sync again is told that all is well, and one that reads the file again is shown what the disk never
got. Here real ext4 and xfs stand on a disk that refuses to write certain blocks. P6.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

import pytest

from tests.crash.failing_disk import Failing, failing_volume
from tests.crash.model import DIRECTORY, store_on
from tests.crash.operations import TRANSCRIPT
from tests.crash.real_disk import RealDisk
from tests.crash.seeded_bugs import BUGS, Bug
from tests.crash.volumes import Volume
from transcript_store import ConversationStore, PoisonedError, StorageError, TranscriptStoreError, verify

pytestmark = [pytest.mark.root, pytest.mark.needs("/dev/fuse", "fusermount3", "mkfs.ext4", "mkfs.xfs", "losetup")]

DOOMED = {"role": "user", "content": "DOOMED " * 3000}
"""Several pages: the last of them will be written again by what comes behind it, the others never."""


def good(number: int) -> dict[str, object]:
    return {"role": "user", "content": f"good {number}"}


def texts(store: ConversationStore) -> list[str]:
    return [message["content"].split()[0] for message in store.get_messages()]


def fail_a_sync_and_go_on(volume: Volume, disk: Failing, *, cut: bool, durability: str) -> None:
    """A message meets the failing disk; the disk recovers; the store is loaded anew, goes on, and loses the cache."""
    store = store_on(RealDisk(volume.path), durability=durability)
    try:
        expected = _go_through_it(store, volume, disk, durability)
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
    assert verify(f"{volume.path}{DIRECTORY}").is_whole


def _go_through_it(store: ConversationStore, volume: Volume, disk: Failing, durability: str) -> list[dict[str, object]]:
    store.initialize(messages=[good(1)])
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
    transcript = Path(f"{volume.path}{TRANSCRIPT}")
    assert b"DOOMED" in transcript.read_bytes(), "the cache does not lie here: nothing is tested"

    store.load()
    if durability == "process-crash":  # what was not synced stood in a page that the disk refused: a prefix, as P2 says
        assert store.get_messages() in (expected, expected[:1])
        expected = store.get_messages()
    assert store.get_messages() == expected, "what the disk never got is shown"
    store.append_message(good(4))
    store.append_message(good(5))
    store.update_metadata(model="later")
    return [*expected, good(4), good(5)]


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
@pytest.mark.parametrize("cut", [False, True], ids=["unmounted", "cut"])
@pytest.mark.parametrize("durability", ["power-loss", "process-crash"])
def test_a_sync_that_failed(kind: str, cut: bool, durability: str) -> None:
    """P6: the store stops, says so, and a new load() shows what is on the platter; what is stored then stays."""
    with failing_volume(kind) as (volume, disk):
        fail_a_sync_and_go_on(volume, disk, cut=cut, durability=durability)


@pytest.mark.parametrize("bug", [bug for bug in BUGS if "failing_disk" in bug.on_the_kernel], ids=lambda bug: bug.name)
def test_a_seeded_bug_is_caught(bug: Bug) -> None:
    """P6: a store that hides the failure, goes on, or believes the cache, is found out."""
    with failing_volume("ext4") as (volume, disk), pytest.MonkeyPatch.context() as patch:
        bug.break_it(patch)
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            fail_a_sync_and_go_on(volume, disk, cut=False, durability="power-loss")
