"""``list_snapshots``: it says what ``store.list()`` says, whatever happened to the store or to what was kept; and reads what changed."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transcript_store import FileStore, Snapshot, StorageError
from transcript_store.search import list_snapshots


def id_of(number: int) -> str:
    return f"{number:08}-0000-4000-8000-000000000000"


def ids(*numbers: int) -> list[str]:
    return [id_of(number) for number in numbers]


def snapshot(number: int, *texts: str, **fields: Any) -> Snapshot:
    messages = [{"role": "user", "content": text} for text in texts]
    return Snapshot.create(id=id_of(number), provider="claude", model="m", messages=messages, **fields)


@pytest.fixture(autouse=True)
def _much_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the files had been written an hour ago. (A ctime cannot be set, so the clock is.)"""
    later = time.time_ns() + 3600 * 10**9
    monkeypatch.setattr("time.time_ns", lambda: later)


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    store = FileStore(tmp_path / "store")
    for number in range(5):
        store.save(snapshot(number, *["hi"] * number, created_at=f"2026-01-0{number + 1}T00:00:00Z"))
    return store


class Watched(FileStore):
    """A store that says which snapshots a list read."""

    def list(self, ids: Any = None) -> Any:
        self.asked = None if ids is None else sorted(ids)
        return super().list(ids)


def test_unchanged_files_are_not_read_again(store: FileStore, tmp_path: Path) -> None:
    watched = Watched(store.directory)
    first = list_snapshots(watched, cache=tmp_path / "cache")
    assert watched.asked == ids(0, 1, 2, 3, 4)
    assert first == store.list()
    assert list_snapshots(watched, cache=tmp_path / "cache") == first
    assert watched.asked == []
    store.save(snapshot(2, "another", "and another"))
    store.delete(id_of(4))
    store.save(snapshot(9, "new"))
    assert list_snapshots(watched, cache=tmp_path / "cache") == store.list()
    assert watched.asked == ids(2, 9)


def test_what_was_written_a_moment_ago_is_read_again(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    watched = Watched(store.directory)
    for _ in range(2):
        assert list_snapshots(watched, cache=tmp_path / "cache") == store.list()
        assert watched.asked == ids(0, 1, 2, 3, 4)


def test_a_damaged_one_is_left_out_and_read_again_when_it_is_whole(store: FileStore, tmp_path: Path) -> None:
    path = Path(store.directory, f"{id_of(3)}.json")
    whole = path.read_bytes()
    list_snapshots(store, cache=tmp_path / "cache")
    path.write_bytes(whole[:-10])
    assert [one.id for one in list_snapshots(store, cache=tmp_path / "cache")] == ids(4, 2, 1, 0)
    path.write_bytes(whole)
    assert list_snapshots(store, cache=tmp_path / "cache") == store.list()


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:100]),
        lambda path: path.write_bytes(path.read_bytes().replace(b"00000001", b"00000007")),
        lambda path: path.write_bytes(b"\xff" * 1000),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), subprocess.run(["mkfifo", path], check=True)),
        lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    ],
    ids=["gone", "empty", "cut", "changed", "noise", "a directory", "a pipe", "a link"],
)
def test_damage_to_what_is_kept_costs_time_and_no_answer(
    store: FileStore, tmp_path: Path, harm: Callable[[Path], object]
) -> None:
    list_snapshots(store, cache=tmp_path / "cache")
    (kept,) = (tmp_path / "cache").glob("snapshots-*")
    assert kept.stat().st_mode & 0o777 == 0o600
    harm(kept)
    assert list_snapshots(store, cache=tmp_path / "cache") == store.list()


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
def test_no_flipped_bit_changes_the_list(tmp_path: Path, step: int) -> None:
    store = FileStore(tmp_path / "store")
    store.save(snapshot(1, "hi"))
    said = list_snapshots(store, cache=tmp_path / "cache")
    (kept,) = (tmp_path / "cache").glob("snapshots-*")
    data = kept.read_bytes()
    for place in range(0, len(data), step):
        harmed = bytearray(data)
        harmed[place] ^= 1 << place % 8
        kept.write_bytes(harmed)
        assert list_snapshots(store, cache=tmp_path / "cache") == said


def test_another_store_at_the_same_path_is_another(store: FileStore, tmp_path: Path) -> None:
    list_snapshots(store, cache=tmp_path / "cache")
    shutil.rmtree(store.directory)
    assert list_snapshots(store, cache=tmp_path / "cache") == []
    store.save(snapshot(1, "not the one that it was"))
    assert list_snapshots(store, cache=tmp_path / "cache") == store.list()


def test_a_place_that_cannot_be_written_costs_time(store: FileStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert list_snapshots(store, cache=tmp_path / "file" / "cache") == store.list()


def test_a_store_that_is_no_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        list_snapshots(FileStore(tmp_path / "file"), cache=tmp_path / "cache")


def test_nothing_of_a_sealed_store_is_kept(tmp_path: Path) -> None:
    sealed = FileStore(tmp_path / "sealed", encryption_key=bytes(32))
    sealed.save(snapshot(1, "hi"))
    assert [one.id for one in list_snapshots(sealed, cache=tmp_path / "cache")] == ids(1)
    assert list_snapshots(FileStore(sealed.directory), cache=tmp_path / "cache") == []  # without the key
    assert not (tmp_path / "cache").exists()
