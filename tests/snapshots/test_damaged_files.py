"""Every byte counts: each kind of damage is an error with its own name."""

from __future__ import annotations

import json
import os
import shutil
from functools import partial
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
from transcript_store import (
    CorruptSnapshotError,
    DecryptionError,
    FileStore,
    InvalidMessageError,
    UnsupportedVersionError,
)
from transcript_store._snapshots import stored
from transcript_store._snapshots.stored import Key
from transcript_store.testing import SimulatedFileSystem


@pytest.mark.parametrize("with_media", [False, True])
def test_every_byte_of_a_sealed_snapshot_counts(with_media: bool) -> None:
    """P17: any one byte changed, in the snapshot or in its media, is an error, whatever it is changed to."""
    disk = SimulatedFileSystem()
    store = FileStore("/store", encryption_key=KEY, file_system=disk)
    one = snapshot("chatmedia+sha256:x" if with_media else "text", created_at="2026-03-31T12:00:00Z")
    store.save(one)
    flipped = 0
    for path, content in disk.tree().items():
        if content is None or path.endswith("lock"):
            continue
        for offset in range(len(content)):
            for bit in (0x01, 0x80):
                disk.write_file(path, content[:offset] + bytes([content[offset] ^ bit]) + content[offset + 1 :])
                assert type(error_of(lambda: store.load(one.id))) is DecryptionError
                flipped += 1
        disk.write_file(path, content)
    assert store.load(one.id) == one
    assert flipped > 300


def test_a_plain_file_that_is_damaged_is_not_taken_for_a_sealed_one(tmp_path: Path) -> None:
    """P17: whether it is sealed shows where it begins; a byte behind that, with which it is not UTF-8, is damage. Media too."""
    store = store_at(tmp_path)
    one, other = snapshot("é" * 5_000), snapshot("A" * 8_000)
    store.save(one)
    store.save(other)
    (media,) = (tmp_path / "store/media").iterdir()
    for path in (tmp_path / f"store/{one.id}.json", media):
        content = path.read_bytes()
        path.write_bytes(content[:-400] + b"\xff" + content[-399:])
    for damaged, kind in ((one.id, "damaged"), (other.id, "wrong-media")):
        error = error_of(partial(store.load, damaged))
        assert isinstance(error, CorruptSnapshotError)
        assert error.kind == kind
    assert [summary.id for summary in store.list()] == [other.id]
    assert sorted(kinds(store)) == ["damaged", "wrong-media"]


def test_every_cut_of_a_file_is_an_error() -> None:
    """P17: a sealed file that was cut anywhere does not open; a plain one is not JSON any more."""
    for key, expected in ((KEY, DecryptionError), (None, CorruptSnapshotError)):
        disk = SimulatedFileSystem()
        store = FileStore("/store", encryption_key=key, file_system=disk)
        one = snapshot("text")
        store.save(one)
        path = f"/store/{one.id}.json"
        content = disk.tree()[path] or b""
        for length in range(len(content)):
            disk.write_file(path, content[:length])
            assert isinstance(error_of(partial(store.load, one.id)), expected), length
            assert store.list() == []


@BOTH
def test_media_is_held_to_its_hash(tmp_path: Path, key: bytes | None) -> None:
    """P17: media that was exchanged, changed or removed is an error; Go reads it as if nothing were."""
    store = store_at(tmp_path, key)
    one, other = snapshot(IMAGE), snapshot(OTHER_IMAGE)
    store.save(one)
    store.save(other)
    media = tmp_path / "store/media"
    (second,) = {path.name for path in media.iterdir()} - {IMAGE_NAME}
    first = (media / IMAGE_NAME).read_bytes()
    (media / IMAGE_NAME).write_bytes((media / second).read_bytes())
    error = error_of(lambda: store.load(one.id))
    assert isinstance(error, CorruptSnapshotError)
    assert (error.kind, error.path) == ("wrong-media", str(media / IMAGE_NAME))
    assert store.load(other.id) == other
    assert kinds(store) == ["wrong-media"]
    (media / IMAGE_NAME).unlink()
    error = error_of(lambda: store.load(one.id))
    assert isinstance(error, CorruptSnapshotError)
    assert (error.kind, error.path) == ("missing", str(media / IMAGE_NAME))
    assert kinds(store) == ["missing"]
    shutil.rmtree(media)
    assert kinds(store) == ["missing", "missing"]
    error = error_of(lambda: store.load(one.id))
    assert isinstance(error, CorruptSnapshotError)
    assert error.kind == "missing"
    media.mkdir()
    (media / IMAGE_NAME).write_bytes(first)
    assert store.load(one.id) == one


@BOTH
def test_saving_mends_media_and_never_trusts_it(tmp_path: Path, key: bytes | None) -> None:
    """A medium that is there under the right name with the wrong content is replaced by who has the right one."""
    store = store_at(tmp_path, key)
    (tmp_path / "store/media").mkdir(parents=True)
    (tmp_path / "store/media" / IMAGE_NAME).write_bytes(b"somebody else's")
    one = snapshot(IMAGE)
    store.save(one)
    assert store.load(one.id) == one
    assert store.verify() == []


def test_media_that_is_not_sealed_is_sealed_by_a_save(tmp_path: Path) -> None:
    """P17: in a store with a key, what stands there in the clear is replaced; and with a retired key, renewed."""
    store_at(tmp_path).save(snapshot(IMAGE))
    for path in (tmp_path / "store").glob("*.json"):
        path.unlink()
    media = tmp_path / "store/media" / IMAGE_NAME
    store = store_at(tmp_path, KEY)
    store.save(snapshot(IMAGE))
    assert IMAGE.encode() not in media.read_bytes()
    renewed = snapshot(IMAGE)
    store_at(tmp_path, OTHER_KEY, retired_keys=[KEY]).save(renewed)
    assert store_at(tmp_path, OTHER_KEY).load(renewed.id) == renewed


@pytest.mark.parametrize(
    "reference", ["", "0" * 63, "0" * 65, "A" * 64, "../" + "0" * 61, "/etc/passwd", "0" * 64 + "\n"]
)
def test_a_bad_reference_is_an_error(tmp_path: Path, reference: str) -> None:
    """What stands behind ``chatmedia+sha256:`` is a SHA-256 in lower case, or the snapshot is damaged."""
    store = store_at(tmp_path)
    one = snapshot("PLACE")
    store.save(one)
    path = tmp_path / "store" / f"{one.id}.json"
    path.write_bytes(path.read_bytes().replace(b"PLACE", json.dumps("chatmedia+sha256:" + reference)[1:-1].encode()))
    error = error_of(lambda: store.load(one.id))
    assert isinstance(error, CorruptSnapshotError)
    assert error.kind == "damaged"
    assert kinds(store) == ["damaged"]
    assert len(store.list()) == 1


def test_media_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    """Whoever has the key may seal anything under its hash; a message is text."""
    store = store_at(tmp_path, KEY)
    one = snapshot("PLACE")
    store.save(one)
    name = sha256(b"\xff").hexdigest()
    text = one.to_json().replace(b"PLACE", b"chatmedia+sha256:" + name.encode())
    (tmp_path / "store/media").mkdir()
    (tmp_path / "store/media" / name).write_bytes(Key(KEY).seal(bytes(12), b"\xff"))
    (tmp_path / "store" / f"{one.id}.json").write_bytes(Key(KEY).seal(bytes(12), text))
    error = error_of(lambda: store.load(one.id))
    assert isinstance(error, CorruptSnapshotError)
    assert error.kind == "damaged"


@BOTH
def test_a_snapshot_under_another_name_is_an_error(tmp_path: Path, key: bytes | None) -> None:
    """P17: a sealed file is bound to its name by the id inside; so is a plain one."""
    store = store_at(tmp_path, key)
    one, other = snapshot("one"), snapshot("other")
    store.save(one)
    store.save(other)
    folder = tmp_path / "store"
    shutil.copy(folder / f"{one.id}.json", folder / f"{other.id}.json")
    error = error_of(lambda: store.load(other.id))
    assert isinstance(error, CorruptSnapshotError)
    assert error.kind == "wrong-id"
    assert [summary.id for summary in store.list()] == [one.id]
    assert kinds(store) == ["wrong-id"]


def test_a_later_version_is_listed_nowhere_and_never_touched(tmp_path: Path) -> None:
    """It is not damaged: the error says to upgrade, and ``verify`` says the same."""
    store = store_at(tmp_path)
    one = snapshot("one")
    store.save(one)
    path = tmp_path / "store" / f"{one.id}.json"
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 2'))
    assert isinstance(error_of(lambda: store.load(one.id)), UnsupportedVersionError)
    assert store.list() == []
    assert kinds(store) == ["version"]


def test_files_of_any_size_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P15: a sparse file of a terabyte, or a small one that refers to a large one a thousand times."""
    store = store_at(tmp_path)
    one = snapshot([IMAGE] * 1000)
    store.save(one)
    monkeypatch.setattr(stored, "MAX_FILE_BYTES", 1_000_000)
    error = error_of(lambda: store.load(one.id))
    assert isinstance(error, CorruptSnapshotError)
    assert error.kind == "too-large"
    path = tmp_path / "store" / f"{one.id}.json"
    os.truncate(path, 2**40)
    error = error_of(lambda: store.load(one.id))
    assert isinstance(error, CorruptSnapshotError)
    assert error.kind == "too-large"
    assert store.list() == []


@pytest.mark.parametrize(("limit", "words"), [(400, 80), (400, 40)])
def test_what_could_not_be_loaded_is_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, words: int
) -> None:
    """P15: the limit binds who saves too, before anything is written."""
    monkeypatch.setattr(stored, "MAX_FILE_BYTES", limit)
    with pytest.raises(InvalidMessageError):
        store_at(tmp_path).save(snapshot("word " * words))
    assert not (tmp_path / "store").exists()


def test_the_largest_snapshot_is_saved_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P15: what may be saved may be loaded, to the byte; of one byte more neither."""
    store, one = store_at(tmp_path, KEY), snapshot("word " * 80)
    largest = len(one.to_json()) + 28  # what sealing adds

    def limit(size: int) -> None:
        monkeypatch.setattr(stored, "MAX_FILE_BYTES", size)

    limit(largest - 1)
    with pytest.raises(InvalidMessageError):
        store.save(one)
    limit(largest)
    store.save(one)
    assert (tmp_path / "store" / f"{one.id}.json").stat().st_size == largest
    assert store.load(one.id) == one
    limit(largest - 1)
    with pytest.raises(CorruptSnapshotError, match="more than a snapshot can have"):
        store.load(one.id)


def test_media_as_large_as_can_be_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P15: the limit is on what a snapshot is with its media in place, each as often as it is referred to."""
    store, one = store_at(tmp_path), snapshot([IMAGE, IMAGE])
    store.save(one)
    monkeypatch.setattr(stored, "MAX_FILE_BYTES", 2 * len(IMAGE))
    assert store.load(one.id) == one
    monkeypatch.setattr(stored, "MAX_FILE_BYTES", 2 * len(IMAGE) - 1)
    with pytest.raises(CorruptSnapshotError, match="larger than a snapshot can be"):
        store.load(one.id)
    monkeypatch.setattr(stored, "MAX_FILE_BYTES", len(one.messages_json) - 1)
    with pytest.raises(InvalidMessageError):
        store.save(one)
