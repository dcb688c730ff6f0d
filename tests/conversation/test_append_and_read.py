"""Appended records come back: single ones, batches, events, extras, the last n."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest

from tests.conversation.helpers import ONE, THREE, TOOL, TWO
from tests.kit.trees import tree
from transcript_store import AppendResult, ConversationStore, CorruptTranscriptError, verify
from transcript_store._log.record import close_line

# ---- append ---------------------------------------------------------------------------------------------------------


def test_appended_points_at_the_very_line(store):
    """AppendResult names seq, time, offset and length; the file's bytes there are the record, LF included."""
    stored: list[AppendResult] = [
        store.append_message(THREE, extra={"e": 1}),
        *store.append_messages([ONE, TWO, THREE], extras=[None, {"e": 2}, None]),
        store.append_event({"marker": "ü"}),
        store.append_message({}),
    ]
    data = Path(store.directory, "transcript.jsonl").read_bytes()
    records = store.get_records()
    for appended, record in zip(stored, records[2:], strict=True):
        line = data[appended.offset_bytes : appended.offset_bytes + appended.length_bytes]
        assert line.endswith(b'"}\n')
        assert line.count(b"\n") == 1
        members = json.loads(line)
        assert (members["seq"], members["at"]) == (appended.seq, appended.at) == (record.seq, record.at)
        assert (members.get("message"), members.get("extra")) == (record.message, record.extra)
    assert [appended.seq for appended in stored] == [3, 4, 5, 6, 7, 8]
    assert stored[-1].offset_bytes + stored[-1].length_bytes == len(data)
    for previous, appended in pairwise(stored):
        assert appended.offset_bytes == previous.offset_bytes + previous.length_bytes
        assert appended.at >= previous.at


def test_the_file_is_as_documented(store):
    """The format, read without the package: header and records, members in order, and a chain of SHA-256 to the head."""
    store.append_messages([THREE, {}], extras=[{"e": 1}, None])
    store.append_event({})
    header, *lines = Path(store.directory, "transcript.jsonl").read_bytes().split(b"\n")[:-1]
    members = json.loads(header)
    names = ["format", "version", "conversation", "generation", "at", "metadata", "hash"]
    assert list(members) == names
    assert (members["format"], members["version"], members["generation"]) == ("transcript-store", 1, 0)
    assert [list(json.loads(line)) for line in lines] == [
        ["seq", "at", "message", "hash"],
        ["seq", "at", "message", "hash"],
        ["seq", "at", "message", "extra", "batch", "hash"],
        ["seq", "at", "message", "batch", "hash"],
        ["seq", "at", "extra", "hash"],
    ]
    assert [json.loads(line)["batch"] for line in lines[2:4]] == [[1, 2], [2, 2]]
    head = b"0" * 32
    for line in (header, *lines):
        head = sha256(head + line[:-43]).hexdigest()[:32].encode()
        assert line[-43:] == b',"hash":"' + head + b'"}'
    assert store.head == head.decode()


def test_an_empty_batch_writes_nothing(store):
    """append_messages([]) returns an empty tuple and leaves every file as it is."""
    before = tree(store.directory)
    times = [path.stat().st_mtime_ns for path in Path(store.directory).iterdir()]
    assert store.append_messages([]) == ()
    assert store.append_messages(iter(()), extras=[]) == ()
    assert tree(store.directory) == before
    assert [path.stat().st_mtime_ns for path in Path(store.directory).iterdir()] == times


@pytest.mark.parametrize("extras", [[], [None], [None] * 3, [{}] * 4])
def test_extras_of_another_length(store, tmp_path, extras):
    """One extra for each message: any other number is a ValueError that gives both, and nothing is written."""
    before = tree(tmp_path)
    for call in (
        lambda: store.append_messages([ONE, TWO], extras=extras),
        lambda: store.replace_transcript([ONE, TWO], extras=extras),
        lambda: ConversationStore(tmp_path / "new").initialize(messages=[ONE, TWO], extras=extras),
        lambda: ConversationStore(tmp_path / "new").load_or_initialize(messages=[ONE, TWO], extras=extras),
    ):
        with pytest.raises(ValueError, match=f"2 messages and {len(extras)} extras"):
            call()
    assert tree(tmp_path) == before


def test_batches_of_one_are_single_records(store):
    """A batch of one needs no mark in its record: it cannot be there in part."""
    store.append_messages([THREE])
    assert b'"batch"' not in Path(store.directory, "transcript.jsonl").read_bytes()


def test_events_are_skipped_by_get_messages_and_shown_by_get_records(store):
    """append_event stores an extra without a message: a record of its own that no provider ever sees."""
    store.append_event({"tool": "started"})
    store.append_message(THREE)
    assert store.get_messages() == [ONE, TWO, THREE]
    third = store.get_records()[2]
    assert (third.seq, third.message, third.extra) == (3, None, {"tool": "started"})
    assert third.at_datetime.tzinfo is UTC
    assert abs((datetime.now(UTC) - third.at_datetime).total_seconds()) < 3600


def test_the_last_so_many(store):
    """get_messages(last=n) and get_records(last=n) give the end of what they give without, in order."""
    store.append_event({"between": 1})
    store.append_messages([THREE, ONE])
    messages, records = store.get_messages(), store.get_records()
    for last in (*range(8), 10**9):
        assert store.get_messages(last=last) == (messages[-last:] if last else [])
        assert store.get_records(last=last) == (records[-last:] if last else [])
    for bad in (-1, 1.0, "1", True):
        with pytest.raises(ValueError, match="last"):
            store.get_messages(last=bad)
        with pytest.raises(ValueError, match="last"):
            store.get_records(last=bad)


def test_record_count_counts_events_too(store):
    """record_count is the number of records of the live generation: what get_records() returns, without reading it."""
    assert store.record_count == 2
    store.append_event({})
    store.append_messages([THREE, THREE])
    assert store.record_count == len(store.get_records()) == 5
    store.replace_transcript([ONE])
    assert store.record_count == 1


def test_a_load_gives_what_memory_had(store):
    """After any calls, a load (and a reader) shows exactly what the writer showed: messages, records, metadata, head."""
    seen = []
    for n in range(3):
        store.append_message({"n": n}, extra={"n": [n]})
        store.append_messages([{"batch": n}, {}])
        store.update_metadata(model=f"m{n}", labels={"n": str(n)}, tools=[TOOL])
        store.append_event({"n": n})
        store.replace_transcript(store.get_messages()[-3:], compaction_count=n)
        store.append_message({"after": n})
        state = store.get_messages(), store.get_records(), store.get_metadata(), store.head
        with ConversationStore(store.directory, read_only=True) as reader:
            reader.load()
            assert (reader.get_messages(), reader.get_records(), reader.get_metadata(), reader.head) == state
        store.close()
        store.load()
        assert (store.get_messages(), store.get_records(), store.get_metadata(), store.head) == state
        assert store.recovery is None
        seen.append(state)
    assert len({head for *_, head in seen}) == 3
    assert verify(store.directory).is_intact


# ---- errors and names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b'{"seq":1,"at":"2026-01-01T00:00:00.000000Z","message":{"role":',
        b'{"seq":1,"x":1',
        b'{"seq":1,"at":"2026-01-01T00:00:00.000000Z","message":[1]',
        b'{"seq":1,"at":"2026-01-01T00:00:00.000000Z","message":{"a":"\xff"}',
    ],
)
def test_a_line_that_verifies_and_is_no_record_is_said_to_be_none(tmp_path, body):
    """P15: the chain is not keyed, so a line may verify and hold anything; reading it is an error of ours."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize()
        line, _ = close_line(store.head.encode(), body)
    with (tmp_path / "c" / "transcript.jsonl").open("ab") as file:
        file.write(line)
    with ConversationStore(tmp_path / "c", read_only=True) as reader:
        reader.load()
        with pytest.raises(CorruptTranscriptError, match="not a record") as caught:
            reader.get_records()
        assert (caught.value.line_number, caught.value.kind) == (2, "foreign")
