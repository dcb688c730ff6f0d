"""Media: collected when nothing refers to it and only then, verified, and never believed on the word of a cache."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from hashlib import sha256
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
    kinds,
    snapshot,
    store_at,
)
from transcript_store import FileStore, Snapshot, StorageError
from transcript_store._snapshots import file_store as _snapshot_files
from transcript_store.testing import FileSystemCall, SimulatedFileSystem

# ---- media that nothing refers to ------------------------------------------------------------------------------------


@BOTH
def test_only_media_that_nothing_refers_to_goes(tmp_path: Path, key: bytes | None) -> None:
    """Deleting a snapshot leaves its media; collecting removes it, unless another snapshot has it, or it is young."""
    store = store_at(tmp_path, key)
    one, two = snapshot(IMAGE, OTHER_IMAGE), snapshot(IMAGE)
    store.save(one)
    store.save(two)
    store.delete(one.id)
    media = tmp_path / "store/media"
    (media / "somebody's file").write_text("kept")
    assert store.collect_media() == []
    (gone,) = {path.name for path in media.iterdir()} - {IMAGE_NAME, "somebody's file"}
    assert store.collect_media(older_than_seconds=3600) == []
    os.utime(media / gone, (1, 1))
    os.utime(media / IMAGE_NAME, (1, 1))
    assert store.collect_media(older_than_seconds=3600) == [gone]
    assert {path.name for path in media.iterdir()} == {IMAGE_NAME, "somebody's file"}
    assert store.load(two.id) == two
    store.delete(two.id)
    for folder in (tmp_path / "store", media):
        (folder / f".tmp-{'0' * 32}").write_bytes(b"a save that was killed")
    assert store.collect_media(older_than_seconds=0) == [IMAGE_NAME]
    assert not list((tmp_path / "store").rglob(".tmp-*"))
    for never in (-1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="older_than_seconds"):
            store.collect_media(older_than_seconds=never)


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


SPOIL: dict[str, Callable[[Path], None]] = {
    "cut": damaged,
    "a later version": lambda path: (
        path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 9')),
        None,
    )[1],
    "another id": lambda path: (
        path.write_bytes(path.read_bytes().replace(path.stem.encode(), snapshot().id.encode())),
        None,
    )[1],
    "a bad reference": lambda path: (path.write_bytes(path.read_bytes().replace(b"sha256:", b"sha256:x")), None)[1],
}


@pytest.mark.parametrize("how", SPOIL)
def test_nothing_is_collected_while_a_snapshot_cannot_be_opened(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its references are not known, so all media might be its own; a warning says so."""
    store = store_at(tmp_path)
    one = snapshot(IMAGE)
    store.save(one)
    SPOIL[how](tmp_path / "store" / f"{one.id}.json")
    assert store.collect_media(older_than_seconds=0) == []
    assert (tmp_path / "store/media" / IMAGE_NAME).exists()
    assert one.id in caplog.text
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_nothing_is_collected_without_the_key(tmp_path: Path) -> None:
    """Neither with none nor with another."""
    store_at(tmp_path, KEY).save(snapshot(IMAGE))
    for key in (None, OTHER_KEY):
        assert store_at(tmp_path, key).collect_media(older_than_seconds=0) == []
    assert (tmp_path / "store/media" / IMAGE_NAME).exists()


# ---- the lock --------------------------------------------------------------------------------------------------------


def test_media_that_nobody_refers_to_is_verified_too(tmp_path: Path) -> None:
    """Its snapshot may be deleted, or be somebody else's that no key of ours opens: damage to it is damage."""
    store, one = store_at(tmp_path), snapshot(IMAGE)
    store.save(one)
    store.delete(one.id)
    assert kinds(store) == []
    (tmp_path / "store/media" / IMAGE_NAME).write_text(OTHER_IMAGE)
    assert kinds(store) == ["wrong-media"]


def test_media_that_is_collected_while_it_is_verified_is_not_missing() -> None:
    """P12: it was listed, and nothing refers to it any more: its removal is no error."""
    disk = SimulatedFileSystem()
    store, one = FileStore("/store", file_system=disk), snapshot(IMAGE)
    store.save(one)
    store.delete(one.id)

    def collect(call: FileSystemCall) -> None:
        if call.path.endswith(IMAGE_NAME):
            disk.on_call = None
            other = FileStore("/store", file_system=disk.another_process())
            assert other.collect_media(older_than_seconds=0) == [IMAGE_NAME]

    disk.on_call = collect
    assert kinds(store) == []
    assert disk.on_call is None


def test_verify_beside_a_writer_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Media that is stored, or collected with its snapshot, after the look at media is not missing."""
    store = store_at(tmp_path)
    gone = snapshot("gone", OTHER_IMAGE)
    store.save(gone)
    names = _snapshot_files.SnapshotFiles.media_names
    references = _snapshot_files.SnapshotFiles.references

    def before_the_save(files: _snapshot_files.SnapshotFiles) -> list[str]:
        found = names(files)
        monkeypatch.setattr(_snapshot_files.SnapshotFiles, "media_names", names)
        store.save(snapshot("new", IMAGE))
        return [name for name in found if name != sha256(OTHER_IMAGE.encode()).hexdigest()]

    def before_the_collection(files: _snapshot_files.SnapshotFiles, id: str) -> set[str]:
        found = references(files, id)
        if id == gone.id:
            monkeypatch.setattr(_snapshot_files.SnapshotFiles, "references", references)
            store.delete(gone.id)
            store.collect_media(older_than_seconds=0)
        return found

    monkeypatch.setattr(_snapshot_files.SnapshotFiles, "media_names", before_the_save)
    monkeypatch.setattr(_snapshot_files.SnapshotFiles, "references", before_the_collection)
    assert store.verify() == []
    assert len(store.list()) == 1
    (tmp_path / "store/media" / IMAGE_NAME).unlink()
    assert kinds(store) == ["missing"]


def test_media_is_not_believed_on_the_word_of_the_cache() -> None:
    """P6: after a failed sync the cache shows what the disk never got, and the second sync does not say so again."""
    disk = SimulatedFileSystem()
    store = FileStore("/s", file_system=disk)
    store.save(snapshot("one"))
    folder = disk.open_directory("/s")
    disk.make_directory(folder, "media")
    disk.sync(folder)
    media = disk.open_directory("media", folder)
    disk.write(disk.create(media, IMAGE_NAME), IMAGE.encode())  # by a program that does not sync
    disk.sync(media)
    two = snapshot("two", IMAGE)

    def refuse(call: FileSystemCall) -> None:
        if call.name.startswith("sync") and call.path.endswith(IMAGE_NAME):
            raise OSError(errno.EIO, "a bad block")

    disk.on_call = refuse
    assert isinstance(error_of(lambda: store.save(two)), StorageError)
    disk.on_call = None
    store.save(two)
    assert FileStore("/s", file_system=disk.worst_power_failure()).load(two.id) == two


QUOTED = ("chatmedia+sha256:" + "0" * 64, "chatmedia+sha256:none", "data:image/png;base64," + "A" * 600, "A" * 600)


def test_a_text_that_quotes_a_reference_is_a_text(scratch: Path) -> None:
    """A mark inside a string begins no string: what a person wrote about references comes back as it was."""
    quoted = [f'{before}"{what}"{after}' for before in ("", "say ", "\\") for after in ("", " now") for what in QUOTED]
    snapshot = Snapshot.create(provider="claude", model="m", messages=[{"role": "user", "content": quoted}])
    store = FileStore(scratch)
    store.save(snapshot)
    assert store.load(snapshot.id) == snapshot
    assert store.verify() == []
    assert not (scratch / "media").exists()
