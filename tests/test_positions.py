"""Records with their positions in the file: a reader that stopped after any record continues exactly there.

The incident: with the place behind a record computed wrongly, no test noticed but those of the index, which is one of several readers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from transcript_store import ConversationNotFoundError, ConversationStore, CorruptTranscriptError
from transcript_store._conversation.transcript_file import transcript_in
from transcript_store._log import scan
from transcript_store.testing import FileSystemCall, SimulatedFileSystem
from transcript_store.transcripts import open_transcript


@pytest.mark.parametrize("piece_bytes", [scan.PIECE_BYTES, 300])
def test_behind_each_record_reading_continues_with_the_next(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    """In the middle of a batch too, and whatever is read at a time. Each place is that of its line, and is found again."""
    monkeypatch.setattr(scan, "PIECE_BYTES", piece_bytes)
    with ConversationStore(scratch / "c") as store:
        store.initialize(features=["retract"], messages=[{"n": 0}, {"n": 1}])
        store.append_messages([{"n": 2}, {"n": 3}, {"n": 4}])
        store.append_event({"n": 5})
        store.retract()
        store.append_message({"n": "a" * 700})
        store.append_message({"n": "a" * 20_000})  # a line that is not read at once
        records = store.get_records()
    data = (scratch / "c/transcript.jsonl").read_bytes()
    with open_transcript(scratch / "c") as transcript:
        found = list(transcript.records(transcript.begin))
        assert [placed.record for placed, _ in found] == records
        for n, (placed, behind) in enumerate(found):
            assert data[placed.offset_bytes : behind.offset_bytes].endswith(b'"hash":"%b"}\n' % behind.head.encode())
            assert data[: behind.offset_bytes].count(b"\n") == n + 2
            assert behind.seq == placed.record.seq
            assert transcript.holds(behind)
            at_it = transcript.record_at(placed.offset_bytes)
            assert at_it is not None
            assert (at_it.record.message, at_it.head) == (placed.record.message, behind.head)
            assert list(transcript.records(behind)) == found[n + 1 :]


def test_an_empty_line_is_no_record_however_long_the_next_one_is() -> None:
    """Somebody put an empty line between two records: nothing is read behind it, and so the memory does not grow."""
    disk = SimulatedFileSystem()
    with ConversationStore("/c", file_system=disk) as store:
        store.initialize(messages=[{"n": 0}])
        end = len(disk.tree()["/c/transcript.jsonl"] or b"")
        store.append_message({"n": "a" * 200_000})
    data = disk.tree()["/c/transcript.jsonl"] or b""
    disk.write_file("/c/transcript.jsonl", data[:end] + b"\n" + data[end:])
    with transcript_in(disk, "/c") as transcript:
        calls: list[FileSystemCall] = []
        disk.on_call = calls.append
        assert transcript.record_at(end) is None
        assert [call.name for call in calls] == ["read"]
        assert transcript.record_at(end + 1) is None  # the hash of the line before is another
        assert transcript.record_at(len(data) - 2) is None  # within a line: nothing ends before it


@pytest.mark.parametrize(
    "error", [FileNotFoundError(2, "mine"), FileExistsError(17, "mine"), OSError(28, "mine")], ids=repr
)
def test_an_error_of_the_caller_s_own_block_is_his(scratch: Path, error: OSError) -> None:
    """The incident: a file of the caller's that was not there became a conversation that is not there."""
    with ConversationStore(scratch / "c") as store:
        store.initialize(messages=[{"n": 0}])
    with pytest.raises(type(error)) as raised, open_transcript(scratch / "c"):
        raise error
    assert raised.value is error


def test_what_is_no_transcript_is_told_when_it_is_opened(scratch: Path) -> None:
    """No folder, no file in it, something else in the file's place, a first line that is not ours: each says what it is."""
    with pytest.raises(ConversationNotFoundError, match="there is no conversation"), open_transcript(scratch / "c"):
        pass
    (scratch / "c").mkdir()
    with (
        pytest.raises(ConversationNotFoundError, match=r"there is no transcript\.jsonl"),
        open_transcript(scratch / "c"),
    ):
        pass
    (scratch / "c/transcript.jsonl").mkdir()
    with pytest.raises(CorruptTranscriptError, match="a directory is in the place"), open_transcript(scratch / "c"):
        pass
    (scratch / "c/transcript.jsonl").rmdir()
    (scratch / "c/transcript.jsonl").write_bytes(b"mine\n")
    with pytest.raises(CorruptTranscriptError), open_transcript(scratch / "c"):
        pass
