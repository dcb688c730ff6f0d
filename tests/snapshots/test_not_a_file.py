"""Links, pipes and directories in place of a file; paths that lead elsewhere; modes."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.snapshots.helpers import BOTH, IMAGE, IMAGE_NAME, KEY, error_of, kinds, snapshot, store_at
from transcript_store import (
    CorruptSnapshotError,
    FileStore,
    InvalidSnapshotIdError,
    SnapshotNotFoundError,
    StorageError,
)
from transcript_store._snapshots import stored
from transcript_store.testing import FileSystemCall, SimulatedFileSystem


def link(path: Path, target: Path) -> None:
    path.symlink_to(target)


PUT: dict[str, Callable[[Path, Path], None]] = {
    "a link": link,
    "a dangling link": lambda path, target: path.symlink_to(target.parent / "nowhere"),
    "a pipe": lambda path, target: os.mkfifo(path),
    "a directory": lambda path, target: path.mkdir(),
}


@pytest.mark.parametrize("what", PUT)
@BOTH
def test_links_and_pipes_are_not_followed(tmp_path: Path, what: str, key: bytes | None) -> None:
    """P16: a snapshot's file is a file. A link to a good one is refused all the same, and a pipe is never waited for."""
    store = store_at(tmp_path, key)
    one = snapshot(IMAGE)
    store.save(one)
    path = tmp_path / "store" / f"{one.id}.json"
    path.rename(tmp_path / "good.json")
    PUT[what](path, tmp_path / "good.json")
    error = error_of(lambda: store.load(one.id))
    assert isinstance(error, CorruptSnapshotError)
    assert error.kind == "foreign"
    assert store.list() == []
    assert kinds(store) == ["foreign"]
    assert store.collect_media(older_than_seconds=0) == []
    assert (tmp_path / "store/media" / IMAGE_NAME).exists()


@pytest.mark.parametrize("what", PUT)
def test_media_behind_a_link_is_refused(tmp_path: Path, what: str) -> None:
    """P16: neither a medium nor the directory of media may be somewhere else."""
    store = store_at(tmp_path)
    one = snapshot(IMAGE)
    store.save(one)
    media = tmp_path / "store/media"
    (media / IMAGE_NAME).rename(tmp_path / "image")
    PUT[what](media / IMAGE_NAME, tmp_path / "image")
    assert kinds(store) == ["foreign"]
    assert isinstance(error_of(lambda: store.load(one.id)), CorruptSnapshotError)
    if what == "a directory":
        return
    store.save(one)
    assert store.load(one.id) == one
    assert not (media / IMAGE_NAME).is_symlink()
    if what == "a link":
        assert (tmp_path / "image").read_text() == IMAGE


def test_a_directory_of_media_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """P16: nothing is read, written, sealed or collected through it."""
    store = store_at(tmp_path)
    one = snapshot(IMAGE)
    store.save(one)
    (tmp_path / "store/media").rename(tmp_path / "elsewhere")
    (tmp_path / "store/media").symlink_to(tmp_path / "elsewhere")
    assert isinstance(error_of(lambda: store.load(one.id)), CorruptSnapshotError)
    assert isinstance(error_of(lambda: store.save(snapshot(IMAGE))), CorruptSnapshotError)
    assert isinstance(error_of(lambda: store.collect_media(older_than_seconds=0)), CorruptSnapshotError)
    store_at(tmp_path).save(snapshot("without media"))
    assert len(store.list()) == 2
    assert isinstance(error_of(lambda: store.rotate_key(KEY)), CorruptSnapshotError)
    assert "foreign" in kinds(store)
    assert (tmp_path / "elsewhere" / IMAGE_NAME).read_text() == IMAGE


def test_saving_over_a_link_replaces_the_link(tmp_path: Path) -> None:
    """P16: what it led to is untouched."""
    store = store_at(tmp_path)
    one = snapshot("one")
    store.save(one)
    path = tmp_path / "store" / f"{one.id}.json"
    path.rename(tmp_path / "target")
    path.symlink_to(tmp_path / "target")
    (tmp_path / "target").write_text("somebody's")
    store.save(one)
    assert store.load(one.id) == one
    assert (tmp_path / "target").read_text() == "somebody's"


@pytest.mark.parametrize("id", ["../../etc/passwd", "..", "/etc/passwd", "a/b", ".", "x\0y"])
def test_an_id_is_checked_twice(tmp_path: Path, id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """P16: were the check of the form ever loosened, a name that leads out of the store is still refused."""
    store = store_at(tmp_path)
    for call in (store.load, store.delete):  # also where nothing is yet
        for each in (id, "x", "", snapshot().id.upper()):
            with pytest.raises(InvalidSnapshotIdError):
                call(each)
    store.save(snapshot("one"))
    for _ in range(2):
        for call in (store.load, store.delete):
            with pytest.raises(InvalidSnapshotIdError):
                call(id)
        monkeypatch.setattr(stored, "validate_snapshot_id", lambda _: None)


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    """P16: directories 0700 and files 0600, whatever the process's umask is."""
    for umask in (0o000, 0o777):
        store = FileStore(tmp_path / f"{umask}/store", encryption_key=KEY)
        before = os.umask(umask)
        try:
            store.save(snapshot(IMAGE))
        finally:
            os.umask(before)
        for path in (tmp_path / f"{umask}").rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_file_where_the_store_should_be(tmp_path: Path) -> None:
    """An error of ours from every call, and the file stays."""
    (tmp_path / "store").write_text("a file")
    store = store_at(tmp_path)
    for call in (
        lambda: store.save(snapshot()),
        store.list,
        store.verify,
        lambda: store.load(snapshot().id),
        lambda: store.delete(snapshot().id),
    ):
        assert isinstance(error_of(call), StorageError)
    assert (tmp_path / "store").read_text() == "a file"


def test_a_store_that_is_not_there_is_empty_and_stays_away(tmp_path: Path) -> None:
    """Only a save creates it."""
    store = store_at(tmp_path)
    assert store.list() == []
    assert store.verify() == []
    assert store.collect_media() == []
    assert isinstance(error_of(lambda: store.load(snapshot().id)), SnapshotNotFoundError)
    assert isinstance(error_of(lambda: store.delete(snapshot().id)), SnapshotNotFoundError)
    store.rotate_key(KEY)
    assert not (tmp_path / "store").exists()
    one = snapshot("one")
    store.save(one)
    assert b"one" not in (tmp_path / "store" / f"{one.id}.json").read_bytes()
    shutil.rmtree(tmp_path / "store")
    store.save(one)
    assert store_at(tmp_path, KEY).load(one.id) == one


def test_a_listing_tells_at_debug_what_it_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And never what stands in it: a damaged file's text, or what an error says of it."""
    own = logging.getLogger("the-caller's")
    store = store_at(tmp_path, logger=own)
    one = snapshot("canary", created_at="2026-03-31T12:00:00Z")
    store.save(one)
    path = tmp_path / "store" / f"{one.id}.json"
    path.write_bytes(path.read_bytes().replace(b"2026-03-31T12:00:00Z", b"canary"))
    (tmp_path / "store/x\nFORGED.json").write_text("{}")
    with caplog.at_level(logging.DEBUG):
        assert store.list() == []
    assert [(record.name, record.levelname) for record in caplog.records] == [("the-caller's", "DEBUG")] * 2
    assert "canary" not in caplog.text
    assert "\nFORGED" not in caplog.text
    assert one.id in caplog.text


def test_an_error_that_is_not_one_files_fault_ends_a_listing() -> None:
    """A process with too many files open must not look like a store without snapshots."""
    disk = SimulatedFileSystem()
    store = FileStore("/store", file_system=disk)
    store.save(snapshot("one"))

    def refuse(call: FileSystemCall) -> None:
        if call.name == "open_read":
            raise OSError(number, "injected")

    disk.on_call = refuse
    number = errno.EMFILE
    assert type(error_of(store.list)) is StorageError
    number = errno.EIO
    assert store.list() == []
