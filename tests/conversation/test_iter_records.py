"""Reading a conversation record by record while it changes."""

from __future__ import annotations

import shutil
import tracemalloc
from itertools import islice
from pathlib import Path

import pytest

from tests.conversation.helpers import ONE, THREE, TWO
from transcript_store import (
    ConversationChangedError,
    ConversationNotLoadedError,
    ConversationStore,
    CorruptTranscriptError,
    GenerationNotFoundError,
)
from transcript_store._log.record import close_line
from transcript_store._log.scan import PIECE_BYTES

LONG = 400
"""Records that make some pieces: each has 4 KB."""


def grow(store: ConversationStore, first: int = 0, count: int = LONG) -> None:
    """Single records, batches and events, by turns."""
    for n in range(first, first + count, 4):
        texts = [{"n": n + k, "text": "x" * 4000} for k in range(4)]
        store.append_message(texts[0])
        store.append_messages([texts[1], None, texts[3]], extras=[None, texts[2], {"e": n}])


@pytest.fixture(params=[0, 100_000, 8 << 20], ids=["no-cache", "small-cache", "all-in-memory"])
def long(request, tmp_path):
    """A conversation of several pieces, with none of it in memory, its end, or all."""
    with ConversationStore(tmp_path / "c", durability="process-crash", cache_bytes=request.param) as store:
        store.initialize()
        grow(store)
        yield store


# ---- what is read ---------------------------------------------------------------------------------------------------


def test_it_gives_what_get_records_gives(long):
    """All records, or those behind a number, in the middle of a batch too, from memory or from the file, after a load too."""
    for _ in range(2):
        records = long.get_records()
        for after in (0, 1, 2, 3, 198, 199, 200, LONG - 1, LONG, LONG + 1, 10**9):
            assert list(long.iter_records(after_seq=after)) == records[after:]
        assert list(long.iter_records(generation=0)) == records
        long.load(verify="tail")


def test_a_reader_reads_what_it_knows(long):
    """A reader beside the writer gives what it saw when it was loaded, or last refreshed."""
    with ConversationStore(long.directory, read_only=True, cache_bytes=0) as reader:
        reader.load()
        known = reader.get_records()
        records = reader.iter_records()
        seen = [next(records)]
        long.append_message(ONE)
        seen += islice(records, LONG // 2)
        assert reader.refresh().records_added == 1
        assert [*seen, *records] == known
        assert len(list(reader.iter_records())) == LONG + 1


def test_an_empty_conversation(tmp_path):
    """Nothing, and no error."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize()
        assert list(store.iter_records()) == list(store.iter_records(after_seq=5)) == []


def test_an_earlier_generation(long):
    """What was replaced is read from the archive, also behind a number, and also when the live one is replaced meanwhile."""
    records = long.get_records()
    long.replace_transcript([ONE])
    assert list(long.iter_records(generation=0, after_seq=7)) == records[7:]
    earlier = long.iter_records(generation=0)
    seen = list(islice(earlier, 3))
    long.replace_transcript([TWO])
    long.delete_generation(0)  # its file is open, and stays so to the end
    assert [*seen, *earlier] == records
    with pytest.raises(GenerationNotFoundError):
        list(long.iter_records(generation=0))
    assert [record.message for record in long.iter_records(generation=1)] == [ONE]


def test_only_a_piece_is_in_memory(tmp_path):
    """64 MB are read with memory for a few pieces; what stands before ``after_seq`` is not read at all."""
    with ConversationStore(tmp_path / "c", durability="process-crash", cache_bytes=0) as store:
        store.initialize()
        for n in range(64):
            store.append_messages([{"n": 16 * n + k, "text": "x" * 64_000} for k in range(16)])
        tracemalloc.start()
        try:
            assert sum(1 for _ in store.iter_records()) == 1024
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 40 * PIECE_BYTES, f"{most:,} bytes"
        transcript = Path(store.directory, "transcript.jsonl")
        with transcript.open("r+b") as file:
            file.seek(transcript.stat().st_size // 2)
            file.write(b"\0")
        assert [record.seq for record in store.iter_records(after_seq=1020)] == [1021, 1022, 1023, 1024]


@pytest.mark.parametrize("bad", [-1, 1.0, "1", True, None])
def test_what_is_no_number(store, bad):
    """A wrong argument is told by the call, not by the first record."""
    with pytest.raises(ValueError, match="after_seq"):
        store.iter_records(after_seq=bad)
    if bad is not None:
        with pytest.raises(ValueError, match="generation"):
            store.iter_records(generation=bad)


# ---- what happens meanwhile -----------------------------------------------------------------------------------------


def test_an_append_meanwhile_is_not_read(long):
    """What is read ends where the transcript ended when the first record was asked for; the next iteration goes on there."""
    records = long.iter_records()
    seen = [next(records)]
    grow(long, LONG, 40)
    seen += records
    assert [record.seq for record in seen] == list(range(1, LONG + 1))
    assert [record.seq for record in long.iter_records(after_seq=LONG)] == list(range(LONG + 1, LONG + 41))


def test_it_begins_when_the_first_record_is_asked_for(store):
    """The call reads nothing yet: an append before the first record is read."""
    records = store.iter_records()
    store.append_message(THREE)
    assert [record.message for record in records] == [ONE, TWO, THREE]


def test_the_records_may_be_appended_to_the_same_store(store):
    """Between two records any call of the store works, an append too, and the iteration ends."""
    for record in store.iter_records():
        store.append_event({"seen": record.seq})
    assert [record.extra for record in store.get_records()] == [None, None, {"seen": 1}, {"seen": 2}]


@pytest.mark.parametrize("generation", [None, 0])
def test_a_replace_during_iteration_raises(long, generation):
    """The transcript that is read is no longer live: an error that says so, and how to read on in the archive."""
    all_of_it = long.get_records()
    records = long.iter_records(generation=generation)
    seen = [next(records)]
    long.replace_transcript([ONE])
    with pytest.raises(
        ConversationChangedError, match=r"generation 0 was replaced.*iter_records\(generation=…\)"
    ) as caught:
        seen.extend(records)
    assert (caught.value.expected_head, caught.value.head) == (long.generations()[0].head, long.head)
    assert [*seen, *long.iter_records(generation=0, after_seq=len(seen))] == all_of_it
    assert list(records) == [], "an iterator that raised is at its end"


def test_a_reader_that_starts_over(long):
    """A refresh that meets another transcript ends what is being read, as a replace does."""
    with ConversationStore(long.directory, read_only=True, cache_bytes=0) as reader:
        reader.load()
        records = reader.iter_records()
        next(records)
        long.replace_transcript([ONE])
        assert reader.refresh().started_over
        with pytest.raises(ConversationChangedError):
            list(records)


def test_another_history_of_the_same_generation(tmp_path):
    """A backup that went its own way is put in place: the generation is the same, and the records are not those that were read."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[ONE])
    shutil.copytree(tmp_path / "c", tmp_path / "backup")
    for name, text in (("c", "x"), ("backup", "y")):
        with ConversationStore(tmp_path / name) as store:
            store.load()
            store.append_messages([{"text": text * 4000} for _ in range(LONG)])
    with ConversationStore(tmp_path / "c", read_only=True, cache_bytes=0) as reader:
        reader.load()
        records = reader.iter_records()
        assert next(records).message == ONE
        (tmp_path / "c").rename(tmp_path / "away")
        (tmp_path / "backup").rename(tmp_path / "c")
        assert reader.refresh().started_over
        with pytest.raises(ConversationChangedError):
            list(records)
        assert {str(record.message)[:12] for record in islice(reader.iter_records(), 1, None)} == {"{'text': 'yy"}


@pytest.mark.parametrize("generation", [None, 0])
def test_closing_during_iteration_raises(long, generation):
    """What was read of a piece is still given; then the error is that the store is not loaded. A new load goes on."""
    if generation is not None:
        long.replace_transcript([ONE])
    expected = long.get_records(generation=generation)
    for is_loaded_again in (True, False):
        records = long.iter_records(generation=generation)
        seen = [next(records)]
        long.close()
        if is_loaded_again:
            long.load()
            assert [*seen, *records] == expected
        elif generation is not None or len(expected) == LONG:
            with pytest.raises(ConversationNotLoadedError):
                seen.extend(records)
            assert seen == expected[: len(seen)]
            long.load()


def test_damage_during_iteration_raises_with_its_position(tmp_path):
    """P15: bytes that changed since the load are refused with their place; what was read before was whole."""
    with ConversationStore(tmp_path / "c", durability="process-crash", cache_bytes=0) as store:
        store.initialize()
        grow(store)
        records = store.iter_records()
        seen = [next(records)]
        transcript = Path(store.directory, "transcript.jsonl")
        middle = store.get_records()[LONG // 2]
        content = bytearray(transcript.read_bytes())
        offset = content.index(b'{"seq":%d,' % middle.seq)
        content[offset + 100] ^= 1
        transcript.write_bytes(content)
        with pytest.raises(CorruptTranscriptError) as caught:
            seen.extend(records)
        assert caught.value.offset_bytes == offset
        assert [record.seq for record in seen] == list(range(1, len(seen) + 1))
        assert len(seen) < middle.seq


@pytest.mark.parametrize("forged", range(1, 11))
def test_a_beginning_that_somebody_wrote_anew(tmp_path, forged):
    """P15: lines that verify among themselves, and do not lead to those in memory, are refused, wherever memory begins."""
    with ConversationStore(tmp_path / "c", cache_bytes=2_000) as store:
        store.initialize()
        for n in range(10):
            store.append_message({"n": n})
        transcript = Path(store.directory, "transcript.jsonl")
        header, *lines = transcript.read_bytes().splitlines(keepends=True)
        head, written = header[-35:-3], [header]
        for line in lines[:forged]:
            forgery, head = close_line(head, line[:-44].replace(b'"n"', b'"m"'))
            written.append(forgery)
        transcript.write_bytes(b"".join([*written, *lines[forged:]]))
        with pytest.raises((CorruptTranscriptError, ConversationChangedError)):
            list(store.iter_records())


def test_within_held_it_is_refused(store):
    """held() keeps the conversation still; reading it another way there is the mistake that it is for any call."""
    records = store.iter_records()
    with store.frozen(), pytest.raises(RuntimeError, match="under way in this thread"):
        next(records)
