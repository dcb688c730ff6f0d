"""P20: stores of snapshots that version 1 wrote, plain and sealed, are read for ever, to the byte.

A sealed store that no program of next year opens is as lost as one whose key is lost. If a test here fails, the code is wrong, not
the golden files.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.compat.seen import content
from tests.compat.stores import FROM_GO, KEY, KEYS, SNAPSHOTS, STORES, as_json, files, opened, seen
from transcript_store import FileStore, Snapshot

STORED = Path(__file__).parent / "v1-stores"
NAMES = sorted(path.name for path in STORED.iterdir() if path.is_dir())
each = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def golden(tmp_path: Path, name: str) -> Path:
    """A copy, as it came out of a backup."""
    return Path(shutil.copytree(STORED / name, tmp_path / name))


@each
def test_a_reader_sees_what_was_written(golden: Path, name: str) -> None:
    """P20: every snapshot with its media, every member, every finding; and nothing changes by reading it."""
    before = content(golden)
    assert as_json(seen(opened(golden, name))) == (STORED / f"{name}.json").read_text()
    assert content(golden) == before


@pytest.mark.parametrize("name", ["plain", "sealed", "half-rotated"])
def test_what_is_read_is_what_was_saved(golden: Path, name: str) -> None:
    """P20: the snapshots are equal to those that went in, media and all; the plain files are their JSON form, to the byte."""
    store = opened(golden, name)
    found = [store.load(snapshot.id) for snapshot in SNAPSHOTS]
    assert found == SNAPSHOTS
    if name == "plain":
        assert (golden / f"{SNAPSHOTS[1].id}.json").read_bytes() == found[1].to_json()
        assert store.load(Snapshot.from_json(FROM_GO).id) == Snapshot.from_json(FROM_GO)


@each
def test_a_writer_continues(golden: Path, name: str) -> None:
    """P20: a save of today touches no file of another snapshot, and no media."""
    before = content(golden)
    store = opened(golden, name)
    new = Snapshot.create(provider="claude", messages=[*SNAPSHOTS[2].messages, "years later"])
    store.save(new)
    assert store.load(new.id) == new
    after = content(golden)
    assert set(after) - set(before) == {f"{new.id}.json"}
    changed = {path for path in before if after.get(path) != before[path]}
    assert changed <= {"lock", *(path for path in before if path.startswith(".tmp-"))}


@each
def test_a_rotation_begins_or_is_finished(golden: Path, name: str) -> None:
    """P20: whatever was left of a rotation, or none: the same call finishes it, and the new key opens everything."""
    opened(golden, name).rotate_key(KEY)
    store = FileStore(golden, encryption_key=KEY)
    assert [store.load(snapshot.id) for snapshot in SNAPSHOTS] == SNAPSHOTS
    assert store.verify() == []
    assert sorted(path.name for path in golden.iterdir() if not path.name.endswith(".json")) == ["lock", "media"]


@each
def test_it_is_written_alike_today(name: str) -> None:
    """P20: the same calls with the same random bytes give the same files: the form did not change unnoticed."""
    assert files(STORES[name]()) == content(STORED / name)


def test_every_golden_store_is_there() -> None:
    """None was forgotten, none was removed; and of each that is half-done both halves are there."""
    assert sorted(STORES) == NAMES
    assert sorted(path.stem for path in STORED.glob("*.json")) == NAMES
    assert set(KEYS) < set(NAMES)
    half = json.loads((STORED / "half-sealed.json").read_text())
    assert half["snapshots"]
    assert half["findings"]
    alone = FileStore(STORED / "half-rotated", encryption_key=KEY)
    assert 0 < len(alone.list()) < len(SNAPSHOTS)
