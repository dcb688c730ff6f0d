"""P20: one-file backups and the objects of a bucket that version 1 wrote are read for ever, to the byte.

A backup is often opened years later, when it is the only copy. If a test here fails, the code is wrong, not the golden
files.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from tests.backends.shipped import ID, KEY
from tests.compat.copies import COPIES, FILE_KEY, bucket_of, objects_in
from tests.compat.seen import content
from tests.kit.messages import user_message
from transcript_store import ConversationLibrary, ConversationStore
from transcript_store.backends import BackupFile, ObjectStoreBackend, backup_library, restore, restore_library, ship

STORED = Path(__file__).parent / "v1-copies"
NAMES = sorted(path.name for path in STORED.iterdir())
BACKUPS = {"plain": None, "interrupted": None, "sealed": FILE_KEY}
_BUCKETS = itertools.count()
each_backup = pytest.mark.parametrize("name", BACKUPS)


def conversation(folder: Path) -> dict[str, bytes]:
    return {path: data for path, data in content(folder).items() if path != "lock"}


def brought_back(file: Path, name: str, to: Path) -> dict[str, bytes]:
    with BackupFile(file, encryption_key=BACKUPS[name]) as backup:
        assert not [found for found in restore_library(backup, to) if hasattr(found, "error")]
    return conversation(to / ID)


def golden_bucket() -> ObjectStoreBackend:
    backend = ObjectStoreBackend(f"memory:///golden-{next(_BUCKETS)}")
    for path, data in content(STORED / "bucket" / "copy").items():
        assert bucket_of(backend).create(path, data)
    return backend


@each_backup
def test_a_backup_is_restored_as_it_was(name: str, tmp_path: Path) -> None:
    """P20: every file of the conversation, to the byte; of an interrupted run, what the run before it copied."""
    file = STORED / name / "copy" / "chats.backup"
    assert brought_back(file, name, tmp_path / "back") == content(STORED / name / "conversation")


@each_backup
def test_a_backup_is_continued(name: str, tmp_path: Path) -> None:
    """P20: a run of today keeps every byte up to the end of the last complete run, and adds only new records."""
    file = Path(shutil.copy(STORED / name / "copy" / "chats.backup", tmp_path / "chats.backup"))
    before = file.read_bytes()
    library, key = tmp_path / "chats", KEY if name == "sealed" else None
    shutil.copytree(STORED / name / "conversation", library / ID)
    with ConversationLibrary(library, encryption_key=key).open(ID) as store:
        store.append_message(user_message("years later"))
    with BackupFile(file, writes=True, encryption_key=BACKUPS[name]) as backup:
        assert len(list(backup_library(library, backup))) == 1
    kept = len(before) if name != "interrupted" else before.rindex(b'"kind":"end"')
    assert file.read_bytes()[:kept] == before[:kept]
    assert brought_back(file, name, tmp_path / "back") == conversation(library / ID)


def test_a_bucket_is_restored_as_it_was(tmp_path: Path) -> None:
    """P20: slots, the wrapped key and the summary; each file of the conversation, to the byte."""
    backend = golden_bucket()
    restore(backend, ID, tmp_path / "back", with_key=True)
    assert conversation(tmp_path / "back") == content(STORED / "bucket" / "conversation")
    (listed,) = ConversationLibrary(backend, encryption_key=KEY).list()
    assert (listed.id, listed.model) == (ID, "second")


def test_a_bucket_is_continued(tmp_path: Path) -> None:
    """P20: a ship of today changes no slot."""
    backend, folder = golden_bucket(), tmp_path / ID
    shutil.copytree(STORED / "bucket" / "conversation", folder)
    with ConversationStore(folder, encryption_key=KEY) as store:
        store.load()
        store.append_message(user_message("years later"))
    ship(folder, backend, with_key=True)
    before, after = content(STORED / "bucket" / "copy"), objects_in(backend)
    assert {path for path, data in before.items() if after.get(path) != data} == {f"m/{ID}"}
    restore(backend, ID, tmp_path / "back", with_key=True)
    assert conversation(tmp_path / "back") == conversation(folder)


@pytest.mark.parametrize("name", ["plain", "interrupted"])
def test_it_is_written_alike_today(name: str) -> None:
    """P20: the same calls give the same bytes: the form did not change unnoticed. (Sealed ones have random nonces.)"""
    copied, folder = COPIES[name]()
    assert copied == content(STORED / name / "copy")
    assert folder == content(STORED / name / "conversation")


def test_every_golden_copy_is_there() -> None:
    """None was forgotten, none was removed."""
    assert sorted(COPIES) == NAMES == sorted([*BACKUPS, "bucket"])
