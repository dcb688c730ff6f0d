"""Earlier generations, and backups restored in part."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.kit.cases import for_each
from tests.kit.damage import write
from tests.kit.machines import HASTY
from tests.kit.scratch import scratch_directory
from tests.kit.trees import contents
from tests.repair.helpers import FIRST, SECOND, Base, messages_of, metadata_of, repaired, with_archive
from transcript_store import ConversationNotFoundError, ConversationStore, repair, verify
from transcript_store._log.repair_plan import MODES, Mode


@pytest.mark.parametrize("mode", MODES)
def test_the_transcript_is_lost(mode: Mode) -> None:
    """An empty transcript of the next generation; the metadata and the archive stay."""
    with scratch_directory() as directory:
        before = with_archive(f"{directory}/c")
        os.remove(f"{directory}/c/transcript.jsonl")
        done = repaired(f"{directory}/c", mode)
        assert (done.records_kept, done.generation, done.originals) == (0, 3, ())
        assert metadata_of(f"{directory}/c").compaction_count == 2
        after = contents(f"{directory}/c")
        assert (after[FIRST], after[SECOND]) == (before[FIRST], before[SECOND])
        assert messages_of(f"{directory}/c", 1) == [{"n": 1}, {"n": 2}, {"n": 3}]


@pytest.mark.parametrize("mode", MODES)
def test_transcript_and_metadata_are_lost_and_there_is_an_archive(mode: Mode) -> None:
    """Identity and settings come from the latest generation in the archive, which stays."""
    with scratch_directory() as directory:
        before = with_archive(f"{directory}/c")
        os.remove(f"{directory}/c/transcript.jsonl")
        os.remove(f"{directory}/c/metadata.json")
        done = repaired(f"{directory}/c", mode)
        assert (done.metadata_from, done.records_kept, done.generation) == ("archive", 0, 2)
        metadata = metadata_of(f"{directory}/c")
        assert metadata.id == json.loads(before["metadata.json"])["id"]
        assert (metadata.provider, metadata.compaction_count) == ("claude", 1)
        assert messages_of(f"{directory}/c", 1) == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_transcript_and_metadata_are_lost_and_there_is_no_archive(base: Base) -> None:
    """What is in quarantine shows that there was a conversation: it begins anew, with nothing. An empty folder holds none."""
    with scratch_directory() as directory:
        os.mkdir(f"{directory}/c")
        with pytest.raises(ConversationNotFoundError):
            repair(f"{directory}/c", dry_run=False)
        assert os.listdir(f"{directory}/c") == []
        os.mkdir(f"{directory}/c/quarantine")
        Path(directory, "c/quarantine/g0-o9-0123456789abcdef").write_bytes(b"torn")
        done = repaired(f"{directory}/c", "prefix")
        assert (done.metadata_from, done.records_kept) == ("nothing", 0)


@for_each("mode", MODES)
@for_each("how", ["changed", "cut", "without its last line", "of another program", "empty"])
def test_a_file_in_the_archive_is_damaged(how: str, mode: Mode) -> None:
    """It goes to quarantine; transcript and other generations stay as they are, and so does the metadata, which takes over
    what the damaged generation said of the one before it (P10: tests/test_consistency.py).
    """
    with scratch_directory() as directory:
        before = with_archive(f"{directory}/c")
        whole = before[SECOND]
        damaged = {
            "changed": whole.replace(b'"n":2', b'"n":9'),
            "cut": whole[:-20],
            "without its last line": b"".join(whole.splitlines(keepends=True)[:-1]),
            "of another program": b"#!/bin/sh\n",
            "empty": b"",
        }[how]
        os.remove(f"{directory}/c/{SECOND}")  # it may be a hard link
        Path(directory, "c", SECOND).write_bytes(damaged)
        done = repair(f"{directory}/c", mode=mode, dry_run=False, file_system=HASTY)
        after = contents(f"{directory}/c")
        assert done.generation is None
        assert [Path(original).read_bytes() for original in done.originals] == [damaged]
        assert os.path.basename(done.originals[0]).startswith("g1-o0-")
        assert SECOND not in after
        others = [name for name in before if name not in (SECOND, "metadata.json")]
        assert [after[name] for name in others] == [before[name] for name in others]
        members, original = json.loads(after["metadata.json"]), json.loads(before["metadata.json"])
        for document in (members, original):
            document.pop("hash")
            document.pop("replaced", None)
        assert members == original
        assert verify(f"{directory}/c", file_system=HASTY).is_intact
        assert messages_of(f"{directory}/c", 0) == [{"n": 0}]


@pytest.mark.parametrize("mode", MODES)
def test_everything_is_damaged_at_once(mode: Mode) -> None:
    """Transcript, metadata and archive: each original is kept under a name of its own."""
    with scratch_directory() as directory:
        before = with_archive(f"{directory}/c")
        for name, content in before.items():
            os.remove(f"{directory}/c/{name}")
            Path(directory, "c", name).write_bytes(content[:-60] + b"\0\0" + content[-58:])
        done = repaired(f"{directory}/c", mode)
        assert len(done.originals) == 4
        assert done.records_kept == {"prefix": 3, "salvage": 3, "accept-edits": 3}[mode]


@pytest.mark.parametrize("mode", MODES)
def test_a_transcript_of_another_conversation(base: Base, mode: Mode) -> None:
    """The transcript is the truth, with the metadata in its header; the metadata.json beside it is kept."""
    with scratch_directory() as directory:
        other = with_archive(f"{directory}/other")
        write(f"{directory}/c", base.metadata, other["transcript.jsonl"])
        done = repaired(f"{directory}/c", mode)
        assert done.metadata_from == "header"
        assert [Path(original).read_bytes() for original in done.originals] == [
            other["transcript.jsonl"],
            base.metadata,
        ]
        assert metadata_of(f"{directory}/c").id == json.loads(other["metadata.json"])["id"]
        assert done.records_kept == 4


@pytest.mark.parametrize("mode", MODES)
def test_a_transcript_from_a_backup_of_before_a_replace(mode: Mode) -> None:
    """Its records, with the newer metadata, as a generation that comes after both."""
    with scratch_directory() as directory:
        before = with_archive(f"{directory}/c")
        os.remove(f"{directory}/c/transcript.jsonl")
        Path(directory, "c/transcript.jsonl").write_bytes(before[SECOND])
        done = repaired(f"{directory}/c", mode)
        assert done.generation == 3
        assert metadata_of(f"{directory}/c").compaction_count == 2
        assert messages_of(f"{directory}/c")[:-1] == [{"n": 1}, {"n": 2}, {"n": 3}]


@pytest.mark.parametrize("mode", MODES)
def test_a_backup_restored_over_a_later_generation(mode: Mode) -> None:
    """What the archive holds of the other line of history goes to quarantine; the restored conversation is whole."""
    with scratch_directory() as directory:
        before = with_archive(f"{directory}/c")
        with ConversationStore(f"{directory}/c", file_system=HASTY) as conversation:
            conversation.load()
            conversation.replace_transcript([{"n": 8}])
            conversation.replace_transcript([{"n": 9}])
        os.remove(f"{directory}/c/lock")
        later = contents(f"{directory}/c")
        for name, content in before.items():
            if not name.startswith("archive/"):
                os.remove(f"{directory}/c/{name}")
                Path(directory, "c", name).write_bytes(content)
        done = repaired(f"{directory}/c", mode)
        assert done.generation is None
        assert [Path(original).read_bytes() for original in done.originals] == [
            later["archive/transcript-000003.jsonl"]
        ]
        assert messages_of(f"{directory}/c")[:-1] == [{"n": 4}, {"n": 5}, {"n": 6}, {"n": 7}]


@for_each("mode", MODES)
@for_each("as_copy", [False, True])
def test_a_damaged_transcript_that_an_unfinished_replace_linked_into_the_archive(mode: Mode, as_copy: bool) -> None:
    """A replace was cut off before its commit: its entry is the damaged transcript itself, and is no generation."""
    with scratch_directory() as directory:
        with_archive(f"{directory}/c")
        live, link = Path(directory, "c/transcript.jsonl"), Path(directory, "c/archive/transcript-000002.jsonl")
        if as_copy:
            shutil.copy(live, link)  # of before the damage
            with live.open("ab") as file:
                file.write(b"garbage")
        else:
            live.write_bytes(live.read_bytes().replace(b'"n":6', b'"n":0'))
            os.link(live, link)
        done = repaired(f"{directory}/c", mode)
        assert done.generation == 3
        assert not link.exists()


@pytest.mark.parametrize("mode", MODES)
def test_a_replace_that_was_cut_off_needs_no_repair(mode: Mode) -> None:
    """The transcript is a generation ahead of metadata.json: load() takes its header's, and nothing is to be done."""
    with scratch_directory() as directory:
        with ConversationStore(f"{directory}/c", file_system=HASTY) as conversation:
            conversation.initialize(provider="claude", messages=[{"n": 0}])
        old = Path(directory, "c/metadata.json").read_bytes()
        with ConversationStore(f"{directory}/c", file_system=HASTY) as conversation:
            conversation.load()
            conversation.replace_transcript([{"n": 1}], model="m-9")
        Path(directory, "c/metadata.json").write_bytes(old)
        os.remove(f"{directory}/c/lock")
        for damage in (b"", b"garbage"):
            with open(f"{directory}/c/transcript.jsonl", "ab") as file:
                file.write(damage)
            if damage:
                done = repaired(f"{directory}/c", mode)
                assert (done.metadata_from, done.generation) == ("header", 2)
                assert metadata_of(f"{directory}/c").model == "m-9"
            else:
                before = contents(f"{directory}/c")
                assert not repair(f"{directory}/c", mode=mode, dry_run=False, file_system=HASTY).findings
                assert contents(f"{directory}/c") == before
                os.remove(f"{directory}/c/lock")
