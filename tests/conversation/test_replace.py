"""A replaced transcript keeps the old one byte for byte, also beside a backup that was put back."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from tests.conversation.helpers import ONE, THREE, TOOL, TWO
from tests.kit.trees import tree
from transcript_store import ConversationStore, InvalidMessageError, InvalidMetadataError, StorageError, verify
from transcript_store.testing import FileSystemCall, SimulatedFileSystem

# ---- replace --------------------------------------------------------------------------------------------------------


def test_replace_keeps_the_old_generation_byte_for_byte(store):
    """P4: each replaced generation stays in archive/ under its number, the very bytes; seq begins again at 1."""
    path = Path(store.directory, "transcript.jsonl")
    generations = []
    for n in range(3):
        generations.append(path.read_bytes())
        store.replace_transcript([{"generation": n + 1}], extras=[{"why": "compaction"}])
        assert [(r.seq, r.message, r.extra) for r in store.get_records()] == [
            (1, {"generation": n + 1}, {"why": "compaction"})
        ]
        assert store.get_metadata().generation == n + 1
        assert store.append_message(ONE).seq == 2
    archived = sorted(Path(store.directory, "archive").iterdir())
    assert [path.name for path in archived] == [f"transcript-{n:06d}.jsonl" for n in range(3)]
    assert [path.read_bytes() for path in archived] == generations
    found = verify(store.directory)
    assert found.is_intact
    assert (found.generation, found.archived_generations, found.records) == (3, (0, 1, 2), 2)


def test_a_generation_says_what_it_replaced(store):
    """The header of a generation names its predecessor, with its number of records and its head."""
    head = store.head
    store.replace_transcript([])
    header = json.loads(Path(store.directory, "transcript.jsonl").read_bytes().split(b"\n")[0])
    assert header["replaces"] == {"generation": 0, "records": 2, "head": head}
    assert store.get_messages() == []
    assert store.get_records() == []


def test_replace_changes_metadata_in_the_same_commit(store):
    """P4: the changes stand in the new header too: with metadata.json as it was before, the new generation's win."""
    old = Path(store.directory, "metadata.json").read_bytes()
    store.replace_transcript(
        [THREE], compaction_count=7, model="m2", labels={"a": "b"}, system_prompt="s", tools=[TOOL]
    )
    wanted = store.get_metadata()
    assert (wanted.compaction_count, wanted.model, wanted.labels, wanted.system_prompt) == (7, "m2", {"a": "b"}, "s")
    store.close()
    Path(store.directory, "metadata.json").write_bytes(old)  # as after a crash between the two renames
    for read_only in (True, False):
        with ConversationStore(store.directory, read_only=read_only) as fresh:
            fresh.load()
            assert fresh.get_metadata() == wanted
            assert fresh.get_messages() == [THREE]


def test_a_replace_that_is_refused_changes_nothing(store):
    """P4: bad messages, extras or metadata are refused before anything is written."""
    before = tree(store.directory)
    for call in (
        lambda: store.replace_transcript([ONE, {"bad": b""}]),
        lambda: store.replace_transcript([ONE], compaction_count=-1),
        lambda: store.replace_transcript([ONE], compaction_count=1.5),
        lambda: store.replace_transcript([ONE], generation=5),
        lambda: store.replace_transcript([ONE], id="x"),
    ):
        with pytest.raises((InvalidMessageError, InvalidMetadataError, TypeError)):
            call()
    assert tree(store.directory) == before
    assert not Path(store.directory, "archive").exists()


def test_rewind(store):
    """The undo that the docstring shows: the first n messages, and the rest still readable in the archive."""
    store.append_message(THREE)
    store.replace_transcript(store.get_messages()[:1])
    assert store.get_messages() == [ONE]
    archived = Path(store.directory, "archive/transcript-000000.jsonl").read_bytes()
    assert [json.loads(line)["message"] for line in archived.split(b"\n")[1:-1]] == [ONE, TWO, THREE]


# ---- errors and names -----------------------------------------------------------------------------------------------


def test_a_refused_replace_can_be_done_again(tmp_path):
    """P7: the archive entry that a refused replace left does not stand in the way of the next one."""
    disk = SimulatedFileSystem()
    with ConversationStore("/c", file_system=disk) as store:
        store.initialize(messages=[{"n": 1}])

        def full(call: FileSystemCall) -> None:
            if call.name == "write":
                raise OSError(errno.ENOSPC, "injected")

        disk.on_call = full
        with pytest.raises(StorageError):
            store.replace_transcript([{"n": 2}])
        disk.on_call = None
        assert store.get_messages() == [{"n": 1}]
        store.replace_transcript([{"n": 3}])
        assert b'"n":1' in (disk.tree()["/c/archive/transcript-000000.jsonl"] or b"")
    assert verify("/c", file_system=disk).is_intact


def test_restoring_a_backup_loses_nothing_from_the_archive(tmp_path):
    """P4, P8: after a backup of an earlier generation was put back, the archive holds the only copy of what came later."""
    folder = tmp_path / "c"
    with ConversationStore(folder) as store:
        store.initialize(messages=[{"n": 1}])
    backup = {name: (folder / name).read_bytes() for name in ("metadata.json", "transcript.jsonl")}
    with ConversationStore(folder) as store:
        store.load()
        store.append_message({"n": "only in generation 0"})
        store.replace_transcript([{"n": "only in generation 1"}])
        store.replace_transcript([{"n": 4}])
    for name, content in backup.items():
        (folder / f"{name}.new").write_bytes(content)
        (folder / f"{name}.new").rename(folder / name)
    assert {finding.kind for finding in verify(folder).findings} == {"wrong-generation"}
    with ConversationStore(folder) as store:
        store.load()
        assert store.get_messages() == [{"n": 1}]
        store.replace_transcript([{"n": 5}])
        store.replace_transcript([{"n": 6}])
    kept = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert b"only in generation 0" in kept
    assert b"only in generation 1" in kept
    assert verify(folder).is_intact


def test_close_writes_nothing_over_a_restored_backup(tmp_path):
    """P11: what was put in the place of an open conversation is not touched by the close of the old one."""
    folder = tmp_path / "c"
    store = ConversationStore(folder)
    store.initialize(messages=[{"n": 1}])
    backup = {name: (folder / name).read_bytes() for name in ("metadata.json", "transcript.jsonl")}
    store.append_message({"n": 2})
    for name, content in backup.items():
        (folder / f"{name}.new").write_bytes(content)
        (folder / f"{name}.new").rename(folder / name)
    store.close()
    assert {name: (folder / name).read_bytes() for name in backup} == backup
    assert verify(folder).is_intact
