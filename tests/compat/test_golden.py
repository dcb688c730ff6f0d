"""P20: what version 1 of the format wrote is read for ever, to the byte.

A store that was improved until it could not read last year's conversations has lost them as surely as a disk that failed. If a
test here fails, the code is wrong, not the golden files; a format that has to change gets a new version, and files of its own.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.compat.seen import content, seen
from tests.compat.writers import GOLDEN, files
from transcript_store import ConversationNotFoundError, ConversationStore, verify

V1 = Path(__file__).parent / "v1"
NAMES = sorted(path.name for path in V1.iterdir() if path.is_dir())
each = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def golden(tmp_path: Path, name: str) -> Path:
    """A copy, as it came out of a backup."""
    return Path(shutil.copytree(V1 / name, tmp_path / name))


@each
def test_a_reader_sees_what_was_written(golden: Path, name: str) -> None:
    """P20: every record, every number, every time, and the head; and nothing changes by reading it."""
    before = content(golden)
    assert seen(golden) == json.loads((V1 / f"{name}.json").read_text())
    assert content(golden) == before


@each
def test_a_writer_continues_where_it_ended(golden: Path, name: str) -> None:
    """P20: a writer of today appends to it, and every line that was whole stays as it is, to the byte."""
    expected = json.loads((V1 / f"{name}.json").read_text())["conversation"]
    before = content(golden)
    with ConversationStore(golden) as store:
        if expected is None:
            with pytest.raises(ConversationNotFoundError):
                store.load()
            store.initialize()
            return
        store.load()
        assert store.get_messages() == expected["messages"]
        assert store.head == expected["head"]
        store.append_message({"role": "user", "content": "years later"})
        store.update_metadata(labels={"read": "again"})
    after = content(golden)
    whole = before["transcript.jsonl"][: before["transcript.jsonl"].index(expected["head"].encode()) + 35]
    assert after["transcript.jsonl"].startswith(whole)
    assert verify(golden).is_intact
    for path, data in before.items():
        if path.startswith(("archive/", "quarantine/")):
            assert after[path] == data


@each
def test_what_was_not_understood_is_kept(golden: Path, name: str) -> None:
    """P20: members of metadata.json that a later version added survive a change by this one."""
    document = json.loads((golden / "metadata.json").read_text())
    if document["mark"] is None and not (golden / "transcript.jsonl").exists():
        return
    with ConversationStore(golden) as store:
        store.load()
        store.update_metadata(model="another")
    changed = json.loads((golden / "metadata.json").read_text())
    assert changed.get("later") == document.get("later")
    assert list(changed) == list(document)


LATER_FORMS = {"repaired": "repaired-undoable", "repaired-remembering": "repaired-undoable"}
"""Written otherwise since then: a repair remembers what the damaged header said that it replaced, in a member of the metadata; and it
keeps the metadata that went with the damaged transcript, so that it can be undone."""


@each
def test_it_is_written_alike_today(name: str) -> None:
    """P20: the same calls at the same times give the same bytes: the format did not change unnoticed."""
    assert files(GOLDEN[name]()) == content(V1 / LATER_FORMS.get(name, name))


def test_every_golden_conversation_is_there() -> None:
    """None was forgotten, none was removed."""
    assert sorted(GOLDEN) == NAMES
    assert sorted(path.stem for path in V1.glob("*.json")) == NAMES
