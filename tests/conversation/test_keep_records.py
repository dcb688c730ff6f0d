"""A rewind, or a compaction, that keeps records as they are: their times, extras and events, byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conversation.helpers import ONE, THREE, TWO
from tests.kit.trees import tree
from transcript_store import (
    ConversationChangedError,
    ConversationStore,
    CorruptTranscriptError,
    InvalidMetadataError,
    ReadOnlyError,
    verify,
)

TIMES = [f"2024-0{month}-01T08:00:00Z" for month in range(1, 8)]


@pytest.fixture(params=[0, 8 << 20], ids=["no-cache", "in-memory"])
def seven(request, tmp_path):
    """Seven records: messages, an event, a batch, times of their own."""
    with ConversationStore(tmp_path / "c", cache_bytes=request.param) as store:
        store.initialize(messages=[ONE, None, TWO], extras=[{"usage": 1}, {"event": 2}, None], times=TIMES[:3])
        store.append_messages([ONE, TWO, THREE], extras=[None, {"big": 2**60}, None], times=TIMES[3:6])
        store.append_messages([{"n": 1e300, "text": "密度 \u2028"}], times=TIMES[6:])
        yield store


def bodies(store):
    """Each record's bytes, except its number, its batch mark and its hash."""
    lines = Path(store.directory, "transcript.jsonl").read_bytes().splitlines()[1:]
    return [re.sub(rb',"batch":\[\d+,\d+\]$', b"", line[line.index(b",") : -43]) for line in lines]


@pytest.mark.parametrize("kept", [[], [1], [7], [2, 5], [4, 6], [1, 2, 3, 4, 5, 6, 7], [6, 1, 1, 3]])
def test_what_is_kept_is_as_it_was(seven, kept):
    """In their order, numbered anew, in the middle of a batch too; the rest is in the archive, with all the others."""
    records, lines = seven.get_records(), bodies(seven)
    seven.keep_records(iter(kept), compaction_count=1, model="m")
    expected = sorted(set(kept))
    for _ in range(2):
        assert bodies(seven) == [lines[seq - 1] for seq in expected]
        assert [(record.at, record.message, record.extra) for record in seven.get_records()] == [
            (records[seq - 1].at, records[seq - 1].message, records[seq - 1].extra) for seq in expected
        ]
        assert [record.seq for record in seven.get_records()] == list(range(1, len(expected) + 1))
        assert seven.get_records(generation=0) == records
        metadata = seven.get_metadata()
        assert (metadata.generation, metadata.compaction_count, metadata.model) == (1, 1, "m")
        seven.load()
    appended = seven.append_message(THREE)
    assert (appended.seq, appended.at > TIMES[6]) == (len(expected) + 1, True)
    assert verify(seven.directory).is_intact


@pytest.mark.parametrize("kept", [range(1, 4), range(7, 0, -2), range(3, 4), range(0)], ids=str)
def test_a_range_is_what_its_numbers_are(seven, kept):
    """In whatever direction, one number, or none."""
    lines = bodies(seven)
    seven.keep_records(kept)
    assert bodies(seven) == [lines[seq - 1] for seq in sorted(kept)]


@pytest.mark.parametrize("bad", [range(1, 10**30), range(10**30, 0, -1), range(7), range(2, -1, -1)], ids=str)
def test_a_range_is_judged_by_its_ends(seven, tmp_path, bad):
    """However long it is. The incident: all its numbers were listed before anybody looked how many records there are."""
    before = tree(tmp_path)
    with pytest.raises(ValueError, match=r"seqs must be|there is no record (10+|9+): the transcript has 7 records"):
        seven.keep_records(bad)
    assert tree(tmp_path) == before


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("bad", [[0], [8], [1, 8], [-1], [1.0], ["1"], [True], [None]])
def test_a_record_that_is_not_there(seven, tmp_path, bad):
    """Nothing is written; the error says how many there are."""
    before = tree(tmp_path)
    with pytest.raises(ValueError, match=r"seqs must be|there is no record 8: the transcript has 7 records"):
        seven.keep_records(bad)
    assert tree(tmp_path) == before
    with pytest.raises(TypeError):
        seven.keep_records(3)
    with pytest.raises(InvalidMetadataError):
        seven.keep_records([1], model=7)
    assert tree(tmp_path) == before


def test_keep_records_with_if_head_refuses_newer_records(seven):
    """With if_head a record that came after the choice stops it; without, it is left out, and stays in the archive."""
    head = seven.head
    seven.append_message(THREE)
    with pytest.raises(ConversationChangedError):
        seven.keep_records([1, 2], if_head=head)
    assert seven.record_count == 8
    seven.keep_records([1, 2], if_head=seven.head)
    assert seven.record_count == 2
    assert seven.get_records(generation=0)[-1].message == THREE


def test_a_reader_may_not(seven):
    """As any change."""
    with ConversationStore(seven.directory, read_only=True) as reader:
        reader.load()
        with pytest.raises(ReadOnlyError):
            reader.keep_records([1])


def test_damage_is_not_copied(tmp_path):
    """P15: a line that is damaged since the load is refused with its place, nothing is replaced, and appends go on."""
    with ConversationStore(tmp_path / "c", cache_bytes=0) as store:
        store.initialize(messages=[ONE] + 50 * [{"text": "x" * 4000}])
        transcript = Path(store.directory, "transcript.jsonl")
        content = bytearray(transcript.read_bytes())
        offset = content.index(b'{"seq":1,')
        content[offset + 60] ^= 1
        transcript.write_bytes(content)
        for _ in range(2):
            with pytest.raises(CorruptTranscriptError) as caught:
                store.keep_records([3])
            assert caught.value.offset_bytes == offset
            assert transcript.read_bytes() == content
        assert not list(tmp_path.glob("c/.tmp-*"))
        assert store.get_metadata().generation == 0
        assert store.append_message(THREE).seq == 52
        assert store.get_messages(last=1) == [THREE]
        content = bytearray(transcript.read_bytes())
        content[offset + 60] ^= 1
        transcript.write_bytes(content)
        store.load()
        store.keep_records([1, 52])
        assert store.get_messages() == [ONE, THREE]
        assert [generation.damage for generation in store.generations()] == [None, None]


def test_some_records_get_other_contents_and_every_other_byte_stays(seven):
    """At their times, and where they were; the rest is copied, and what was before is archived."""
    before, records = bodies(seven), seven.get_records()
    seven.keep_records(range(1, 8), changed={3: (ONE, {"redacted": {"key": 1}}), 2: (None, {"event": 3})}, model="m")
    after = bodies(seven)
    assert [n for n in range(7) if before[n] != after[n]] == [1, 2]
    assert [record.at for record in seven.get_records()] == [record.at for record in records]
    assert seven.get_records()[2].message == ONE
    assert seven.get_records()[1].extra == {"event": 3}
    assert seven.get_records(generation=0) == records
    assert verify(seven.directory).is_intact


def test_what_cannot_be_changed_is_refused_and_nothing_is_written(tmp_path):
    """A record that is not kept or not there, a message in the record that takes others back, what is no message."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[ONE, TWO], features=["retract"])
        store.retract()
        before = tree(tmp_path)
        for seqs, changed in (([1], {2: (ONE, None)}), ([1, 9], {9: (ONE, None)}), ([1, 2, 3], {3: (ONE, None)})):
            with pytest.raises(ValueError, match="record"):
                store.keep_records(seqs, changed=changed)
        assert tree(tmp_path) == before
        store.keep_records([1, 2, 3], changed={2: (THREE, None)})
        assert store.get_messages() == [ONE]
        assert store.get_records()[1].message == THREE
        assert store.get_records()[1].is_retracted
