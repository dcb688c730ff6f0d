"""A directory lists files that were added after it was opened, although btrfs and FUSE show its old content.

A program that kept its ``FileStore`` open on btrfs did not see the snapshots that it had saved since the last listing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.crash.forgetful import mounted
from tests.crash.volumes import volume
from transcript_store import ConversationLibrary, FileStore, Snapshot
from transcript_store._os.filesystem import REAL

KINDS = [
    *(
        pytest.param(kind, marks=pytest.mark.needs("mkfs.xfs", "mkfs.btrfs"))
        for kind in ("ext4", "xfs", "btrfs", "overlay")
    ),
    pytest.param("fuse", marks=pytest.mark.needs("/dev/fuse", "fusermount3")),
]
pytestmark = [pytest.mark.root, pytest.mark.parametrize("kind", KINDS)]


@contextmanager
def place(kind: str) -> Iterator[Path]:
    if kind == "fuse":
        with mounted("tests.crash.forgetful") as path:
            yield Path(path)
    else:
        with volume(kind) as there:
            yield there.path


def test_a_listing_has_what_was_made_since(kind: str) -> None:
    """Through a handle that was open before, each time."""
    with place(kind) as path:
        handle = REAL.open_directory(str(path))
        try:
            for name in ("first", "second"):
                REAL.close(REAL.create(handle, name))
                assert name in REAL.list_directory(handle)
            REAL.unlink(handle, "first")
            assert "first" not in REAL.list_directory(handle)
        finally:
            REAL.close(handle)


def test_an_open_store_lists_what_it_saved(kind: str) -> None:
    """P12: snapshots, and conversations of a library, as they come and go."""
    with place(kind) as path:
        store = FileStore(path / "snapshots")
        snapshots = [
            Snapshot.create(provider="claude", messages=[{"role": "user", "content": str(n)}]) for n in range(3)
        ]
        for count, snapshot in enumerate(snapshots, 1):
            store.save(snapshot)
            assert len(store.list()) == count
        store.delete(snapshots[0].id)
        assert {one.id for one in store.list()} == {snapshot.id for snapshot in snapshots[1:]}
        library = ConversationLibrary(path / "chats")
        for count in (1, 2):
            library.create(provider="claude").close()
            assert len(library.list()) == count
