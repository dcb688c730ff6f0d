"""Files of the Go library and ours mean the same; what it refuses is refused here by name."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.kit.vectors import VECTORS
from tests.snapshots.helpers import KEY, error_of, kinds, store_at
from transcript_store import CorruptSnapshotError, DecryptionError, FileStore, InvalidSnapshotIdError, Snapshot

INDEX = json.loads((VECTORS / "index.json").read_text())


def vector(name: str, tmp_path: Path, key: bytes | None) -> FileStore:
    shutil.copytree(VECTORS / name / "store", tmp_path / "store")
    return FileStore(tmp_path / "store", encryption_key=key)


@pytest.mark.parametrize("case", INDEX["vectors"], ids=lambda case: case["name"])
def test_what_go_stored_is_loaded_as_go_loads_it(case: Any, tmp_path: Path) -> None:
    """Every store that the Go library wrote: plain, sealed, with media; and its listing."""
    folder = VECTORS / case["name"]
    store = vector(case["name"], tmp_path, KEY if case["encrypted"] else None)
    assert json.loads(store.load(case["id"]).to_json()) == json.loads((folder / "loaded.json").read_bytes())
    (listed,) = json.loads((folder / "list.json").read_bytes())
    (summary,) = store.list()
    assert {name: getattr(summary, name) for name in listed} == listed
    assert store.verify() == []


@pytest.mark.parametrize("case", INDEX["vectors"], ids=lambda case: case["name"])
def test_go_stores_the_same_files(case: Any, tmp_path: Path) -> None:
    """The same names, modes and sizes; the media's bytes; what is sealed holds the same; nothing but our lock besides."""
    folder = VECTORS / case["name"]
    store = store_at(tmp_path, KEY if case["encrypted"] else None)
    given = Snapshot.from_json((folder / "input.json").read_bytes())
    store.save(given)
    assert store.load(given.id) == given
    found = {
        f"store/{path.relative_to(store.directory)}": path
        for path in Path(store.directory).rglob("*")
        if path.is_file()
    }
    assert found.pop("store/lock")
    assert found.keys() == {file["path"] for file in case["files"]}
    for file in case["files"]:
        path = found[file["path"]]
        assert stat.S_IMODE(path.stat().st_mode) == int(file["mode"], 8)
        if not given.tools:  # whose parameters Go changes
            assert path.stat().st_size == file["bytes"]
        if "media" in file["path"] and not case["encrypted"]:
            assert path.read_bytes() == (folder / file["path"]).read_bytes()
    for name, mode in case["dir_modes"].items():
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == int(mode, 8)


DAMAGE: dict[str, list[str]] = {
    "neg-media-missing": ["missing"],
    "neg-truncated-json": ["damaged"],
    "neg-wrong-key": ["unopened"],
    "neg-no-key-on-encrypted": ["unopened"],
    "neg-ciphertext-bit-flipped": ["unopened"],
    "neg-bad-id": [],
    "neg-list-skips-foreign-names": ["damaged", "wrong-id"],  # and no word of files under other names
}
EXPECTED = {
    "neg-media-missing": CorruptSnapshotError,
    "neg-truncated-json": CorruptSnapshotError,
    "neg-wrong-key": DecryptionError,
    "neg-no-key-on-encrypted": DecryptionError,
    "neg-ciphertext-bit-flipped": DecryptionError,
    "neg-bad-id": InvalidSnapshotIdError,
    "neg-list-skips-foreign-names": CorruptSnapshotError,
}


@pytest.mark.parametrize("case", INDEX["negative"], ids=lambda case: case["name"])
def test_what_go_refuses_is_refused_by_name(case: Any, tmp_path: Path) -> None:
    """And one thing more: a file that holds another id than its name, which Go loads as an empty snapshot."""
    store = vector(case["name"], tmp_path, None if case["key"] == "-" else bytes.fromhex(case["key"]))
    before = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    assert type(error_of(lambda: store.load(case["id"]))) is EXPECTED[case["name"]]
    assert kinds(store) == DAMAGE[case["name"]]
    listed = [summary.id for summary in store.list()]
    assert listed == [summary["id"] for summary in json.loads(case["list"]) or () if summary["id"]]
    assert {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()} == before
