"""A repair does not touch intact conversations, other folders, later versions, or a writer's conversation."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.kit.cases import for_each
from tests.kit.damage import resealed, write
from tests.kit.machines import HASTY
from tests.kit.scratch import scratch_directory
from tests.kit.trees import contents
from tests.repair.helpers import SECOND, Base, repaired, with_archive
from transcript_store import (
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationStore,
    CorruptMetadataError,
    CorruptTranscriptError,
    TranscriptStoreError,
    UnsupportedVersionError,
    repair,
    salvage,
)
from transcript_store._log.repair_plan import MODES, Mode

# ---- earlier generations, and backups restored in part ---------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_whole_conversation_is_left_unchanged(base: Base, mode: Mode) -> None:
    """Nothing is found, nothing is done, and nothing is in quarantine."""
    with scratch_directory() as directory:
        write(f"{directory}/c", base.metadata, b"".join(base.lines))
        done = repair(f"{directory}/c", mode=mode, dry_run=False, file_system=HASTY)
        assert (done.applied, done.findings, done.originals, done.generation) == (False, (), (), None)
        assert (done.records_kept, done.records_left_out, done.gaps) == (8, 0, ())
        assert contents(f"{directory}/c") == {"metadata.json": base.metadata, "transcript.jsonl": b"".join(base.lines)}


def test_what_a_killed_process_left_is_swept(base: Base) -> None:
    """A temporary file beside the damaged ones is gone after the repair."""
    with scratch_directory() as directory:
        write(f"{directory}/c", base.metadata, b"".join(base.lines)[:-5])
        Path(directory, "c/.tmp-0123456789abcdef0123456789abcdef").write_bytes(b"half of it")
        repair(f"{directory}/c", dry_run=False, file_system=HASTY)
        assert not [name for name in contents(f"{directory}/c") if ".tmp-" in name]


# ---- what is refused -------------------------------------------------------------------------------------------------


@for_each("kind", ["directory", "link", "fifo"])
@for_each("name", ["transcript.jsonl", "metadata.json", "archive", SECOND, "quarantine", "lock"])
def test_something_that_is_no_file_in_a_place_of_ours(name: str, kind: str) -> None:
    """P13, P16: refused as foreign, with its path; nothing is followed, and nothing is touched."""
    with scratch_directory() as directory:
        with_archive(f"{directory}/c")
        path = f"{directory}/c/{name}"
        if name in ("transcript.jsonl", "metadata.json", SECOND):
            os.remove(path)
        elif name == "archive":
            shutil.rmtree(path)
        if name != "transcript.jsonl":
            with open(f"{directory}/c/transcript.jsonl", "ab") as file:
                file.write(b"garbage")
        if kind == "directory":
            if name in ("archive", "quarantine"):
                Path(path).write_bytes(b"a file")  # here that is what should not be
            else:
                os.mkdir(path)
                Path(path, "precious").write_bytes(b"precious")
        elif kind == "link":
            Path(f"{directory}/precious").write_bytes(b"precious")
            os.symlink(f"{directory}/precious", path)
        else:
            os.mkfifo(path)
        before = sorted(os.walk(directory))
        error = CorruptMetadataError if name == "metadata.json" else CorruptTranscriptError
        for dry_run in (True, False) if name != "lock" else (False,):  # a dry run takes none
            with pytest.raises(error) as caught:
                repair(f"{directory}/c", mode="salvage", dry_run=dry_run, file_system=HASTY)
            assert (caught.value.kind, caught.value.path) == ("foreign", path if name != "lock" else f"{directory}/c")  # type: ignore[attr-defined]
        assert sorted(os.walk(directory)) == before
        assert kind != "link" or Path(f"{directory}/precious").read_bytes() == b"precious"


def test_a_folder_of_other_programs_with_names_like_ours(base: Base) -> None:
    """P13: metadata.json and transcript.jsonl are not rare names; files that were never ours are not replaced."""
    with scratch_directory() as directory:
        for metadata in (b'{"name": "a dataset"}', None):
            write(f"{directory}/c", metadata or b"", b'{"speaker": 1, "text": "hello"}\n')
            if metadata is None:
                os.remove(f"{directory}/c/metadata.json")
            before = contents(f"{directory}/c")
            for mode in MODES:
                with pytest.raises(CorruptTranscriptError) as caught:
                    repair(f"{directory}/c", mode=mode, dry_run=False, file_system=HASTY)
                assert caught.value.kind == "foreign"
            assert contents(f"{directory}/c") == before
            assert not os.path.exists(f"{directory}/c/lock")


def test_metadata_of_ours_beside_a_lost_transcript_that_never_was() -> None:
    """An ``initialize()`` that never finished is no conversation."""
    from transcript_store._conversation.metadata import encode_document, new_members

    with scratch_directory() as directory:
        os.mkdir(f"{directory}/c")
        members = new_members("2026-01-01T00:00:00.000000Z", id="0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51")
        Path(directory, "c/metadata.json").write_bytes(encode_document(members, None))
        with pytest.raises(ConversationNotFoundError):
            repair(f"{directory}/c", dry_run=False)


def test_nothing_and_a_file(base: Base) -> None:
    """A path where nothing is, and one where a file stands: errors of ours, and nothing is made."""
    with scratch_directory() as directory:
        with pytest.raises(ConversationNotFoundError):
            repair(f"{directory}/nothing", dry_run=False)
        Path(directory, "file").write_bytes(b"precious")
        with pytest.raises(CorruptTranscriptError) as caught:
            repair(f"{directory}/file", dry_run=False)
        assert caught.value.kind == "foreign"
        assert contents(directory) == {"file": b"precious"}


def test_a_later_version_is_not_repaired(base: Base) -> None:
    """P20: what a later version wrote is refused, damaged or not; it may be whole for that version."""
    later = resealed(base.lines, lambda body: body.replace(b'"version":1', b'"version":2'))
    with scratch_directory() as directory:
        write(f"{directory}/c", base.metadata[:9], later)
        before = contents(f"{directory}/c")
        for mode in MODES:
            with pytest.raises(UnsupportedVersionError):
                repair(f"{directory}/c", mode=mode, dry_run=False, file_system=HASTY)
        with pytest.raises(UnsupportedVersionError):
            salvage(f"{directory}/c", file_system=HASTY)
        assert contents(f"{directory}/c") == before


def test_a_live_writer_is_not_repaired_under_its_hands(base: Base) -> None:
    """P11: with a writer at work a repair is refused and names it; a dry run looks all the same."""
    with scratch_directory() as directory:
        write(f"{directory}/c", base.metadata, b"".join(base.lines))
        with ConversationStore(f"{directory}/c", file_system=HASTY) as conversation:
            conversation.load()
            assert not repair(f"{directory}/c", file_system=HASTY).findings
            with open(f"{directory}/c/transcript.jsonl", "ab") as file:
                file.write(b"garbage")
            assert repair(f"{directory}/c", file_system=HASTY).findings
            with pytest.raises(ConversationLockedError) as caught:
                repair(f"{directory}/c", dry_run=False, file_system=HASTY)
            assert caught.value.holder_pid == os.getpid()


def test_an_unknown_mode(base: Base) -> None:
    """A mistyped mode is an error before anything is looked at."""
    with pytest.raises(ValueError, match="accept-edits"):
        repair("/nowhere", mode="everything")  # type: ignore[arg-type]


def test_after_the_last_generation_there_is_none(base: Base) -> None:
    """P15: a number that somebody made up at the end of the range is an error of ours."""
    lines = resealed(base.lines, lambda body: body.replace(b'"generation":0', b'"generation":%d' % (2**62 - 1)))
    with scratch_directory() as directory:
        write(f"{directory}/c", b"", lines[:-9])
        os.remove(f"{directory}/c/metadata.json")
        with pytest.raises(TranscriptStoreError):
            repair(f"{directory}/c", dry_run=False, file_system=HASTY)
        assert contents(f"{directory}/c") == {"transcript.jsonl": lines[:-9]}


@pytest.mark.parametrize("number", [2**62 - 1, 2**62, 10**30])
def test_a_name_in_the_archive_with_a_number_at_the_end_of_the_range(base: Base, number: int) -> None:
    """P15: such a file does not decide which generation comes next; with a number that is none it is no name of ours."""
    with scratch_directory() as directory:
        write(f"{directory}/c", base.metadata, b"".join(base.lines)[:-5])
        os.mkdir(f"{directory}/c/archive")
        path = Path(directory, f"c/archive/transcript-{number}.jsonl")
        path.write_bytes(b"".join(base.lines))
        done = repaired(f"{directory}/c", "prefix")
        assert done.generation == 1
        assert path.exists() == (number >= 2**62)
