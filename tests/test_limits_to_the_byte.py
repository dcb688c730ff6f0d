"""Each limit holds at its very byte: what has just that much passes, and what has one more does not.

The incident: off by one, or with a plus for a minus, each of these limits passed every test, for they tried what is far beyond.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.trees import transcript_lines
from transcript_store import (
    ConversationLibrary,
    ConversationStore,
    CorruptTranscriptError,
    InvalidMessageError,
    InvalidMetadataError,
    list_conversations,
    repair,
    verify,
)
from transcript_store._conversation import metadata
from transcript_store._log import damage, header, lines, log, repair_plan, resync, scan
from transcript_store._log.record import GENESIS, HASH_MEMBER, Position, chain_hash

SAID = [{"role": "user", "content": f"message {n}"} for n in range(9)]


# ---- a line ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1024, 1500])
def test_the_longest_line_is_stored_and_the_next_is_not(scratch: Path, length: int) -> None:
    """P15: ``max_line_bytes`` counts the whole line, its LF too, whoever makes it: a create, an append or a replace."""
    with ConversationStore(scratch / "measured") as store:
        store.initialize(messages=[{"content": ""}])
    frame = len(transcript_lines(scratch / "measured")[1])
    longest, longer = {"content": "a" * (length - frame)}, {"content": "a" * (length - frame + 1)}
    with ConversationStore(scratch / "c", max_line_bytes=length) as store:
        with pytest.raises(InvalidMessageError, match=rf"messages\[1\].*{length + 1:,} bytes.*{length:,}"):
            store.initialize(messages=[longest, longer])
        store.initialize(messages=[longest])
        assert store.append_message(longest).length_bytes == length
        with pytest.raises(InvalidMessageError, match=f"message.*{length + 1:,} bytes"):
            store.append_message(longer)
        with pytest.raises(InvalidMessageError, match=rf"messages\[1\].*{length + 1:,} bytes"):
            store.replace_transcript([longest, longer])
        store.replace_transcript([longest] * 9)  # the tenth has a number of two digits
        assert store.get_messages() == [longest] * 9
    assert [len(line) for line in transcript_lines(scratch / "c")[1:]] == [length] * 9


@pytest.mark.parametrize("size", range(640, 646))
def test_the_longest_sealed_line_is_stored_and_the_next_is_not(scratch: Path, size: int) -> None:
    """P15: the same where records are sealed: it is the line that counts, a third longer than what is sealed in it.

    The incident: a create and a replace estimated that line, so they refused what an append takes, and took what it refuses.
    """
    key = bytes(range(32))
    longest, longer = {"content": "a" * size}, {"content": "a" * (size + 3)}  # three bytes are four of base64
    with ConversationStore(scratch / "measured", encryption_key=key) as store:
        store.initialize()
        length = store.append_message(longest).length_bytes
    with ConversationStore(scratch / "c", encryption_key=key, max_line_bytes=length) as store:
        with pytest.raises(InvalidMessageError, match=rf"messages\[1\].*{length + 4:,} bytes.*{length:,}"):
            store.initialize(messages=[longest, longer])
        store.initialize(messages=[longest])
        store.append_message(longest)
        with pytest.raises(InvalidMessageError, match=f"message.*{length + 4:,} bytes"):
            store.append_message(longer)
        with pytest.raises(InvalidMessageError, match=rf"messages\[1\].*{length + 4:,} bytes"):
            store.replace_transcript([longest, longer])
        store.replace_transcript([longest] * 9)
        assert store.get_messages() == [longest] * 9
    assert [len(line) for line in transcript_lines(scratch / "c")[1:]] == [length] * 9


def test_each_field_of_the_metadata_may_be_as_long_as_a_line(tmp_path: Path) -> None:
    """P15: it is the field that counts, and not all of them together; the error names the one that is too long."""
    limit = 2000
    longest = "a" * (limit - len('{"system_prompt":""}'))
    with ConversationStore(tmp_path / "c", max_line_bytes=limit) as store:
        store.initialize(model="m" * 1500, system_prompt=longest)
        assert store.get_metadata().system_prompt == longest
        with pytest.raises(InvalidMetadataError) as refused:
            store.update_metadata(model="n", system_prompt=longest + "a")
        assert refused.value.field == "system_prompt"


def test_metadata_is_written_up_to_what_is_read_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """P15: with the room for what the store itself adds, just as much as a reader takes."""
    members = metadata.new_members(
        id="0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51", at="2026-01-01T00:00:00.000000Z", model="m"
    )
    document = metadata.encode_document(members, None)
    monkeypatch.setattr(metadata, "LONGEST_METADATA_BYTES", 0)
    with pytest.raises(InvalidMetadataError, match="all metadata would have") as refused:
        metadata.require_to_fit(members, document)
    said = re.search(r"would have ([\d,]+)", str(refused.value))
    assert said is not None
    takes = int(said[1].replace(",", ""))
    monkeypatch.setattr(metadata, "LONGEST_METADATA_BYTES", takes)
    metadata.require_to_fit(members, document)
    monkeypatch.setattr(metadata, "LONGEST_METADATA_BYTES", takes - 1)
    with pytest.raises(InvalidMetadataError, match=f"would have {takes:,}; at most {takes - 1:,} fit"):
        metadata.require_to_fit(members, document)


# ---- what is kept in memory -------------------------------------------------------------------------------------------------


def test_many_small_appends_are_counted_with_what_holds_them() -> None:
    """A block of one byte takes hundreds in memory. So many are held as there is room for, and the oldest go first."""
    one_takes = lines.OVERHEAD_BYTES + 1
    held = lines.Cache(10 * one_takes, Position(0, 0, GENESIS))
    for n in range(100):
        held.put(lines.CachedLines(Position(n, n, GENESIS), b"x", Position(n + 1, n + 1, GENESIS)))
        assert [block.begin.seq for block in held] == list(range(max(0, n - 9), n + 1))
        assert held.begin.seq == max(0, n - 9)
    held.skip_to(Position(200, 200, GENESIS))
    assert held.begin.seq == 200
    held.put(
        lines.CachedLines(
            Position(200, 200, GENESIS), b"x" * (10 * one_takes - lines.OVERHEAD_BYTES), Position(201, 201, GENESIS)
        )
    )
    assert held.begin.seq == 200, "what went does not count any more"
    for n in range(201, 211):
        held.put(lines.CachedLines(Position(n, n, GENESIS), b"x", Position(n + 1, n + 1, GENESIS)))
    for length, left in ((one_takes * 4 - lines.OVERHEAD_BYTES, 7), (one_takes * 10, 0)):
        begin = held._end.seq  # where the next stands; nothing else says so
        held.put(lines.CachedLines(Position(begin, 0, GENESIS), b"x" * length, Position(begin + 1, 0, GENESIS)))
        assert len([*held]) == left, "as many go as have to"


@pytest.mark.parametrize("cache_bytes", [0, 2_000, 1 << 20])
@pytest.mark.parametrize("piece_bytes", [4, 400, 1 << 18])
def test_whatever_is_read_at_a_time_everything_is_read(
    scratch: Path, piece_bytes: int, cache_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L1: what is in memory and what is on the disk make one transcript, from its beginning and from its end on."""
    for module in (scan, header, lines, resync):
        monkeypatch.setattr(module, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(log, "TAIL_BYTES", 300)
    library = ConversationLibrary(scratch)
    with library.create(messages=SAID[:3], cache_bytes=cache_bytes) as store:
        store.append_messages(SAID[3:6])
        store.append_event({"marker": 1})
        store.append_message(SAID[6])
        original, directory = store.id, Path(store.directory)
    assert list_conversations(scratch)[0].record_count == 8
    for how in ("all", "tail"):
        with ConversationStore(directory, cache_bytes=cache_bytes) as store:
            store.load(verify=how)
            heads = [line[-35:-3].decode() for line in transcript_lines(directory)]
            for last in range(10):
                assert store.get_messages(last=last) == SAID[max(0, 7 - last) : 7]
                assert [record.seq for record in store.get_records(last=last)] == list(range(max(1, 9 - last), 9))
            assert store.get_messages() == SAID[:7]
            assert store.head == heads[-1]
    for seq in range(9):
        with library.open(library.fork(original, through_seq=seq), read_only=True) as fork:
            assert fork.record_count == seq
            came_from = fork.get_metadata().forked_from
            assert came_from is not None
            assert (came_from["seq"], came_from["head"]) == (seq, heads[seq])


# ---- what stands behind the end ---------------------------------------------------------------------------------------------


def test_lines_of_others_are_refused_up_to_a_size(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody appends so many megabytes by hand: from there on it is a torn tail, which is cut and kept."""
    with ConversationStore(scratch) as store:
        store.initialize(messages=SAID)
    whole = (scratch / "transcript.jsonl").read_bytes()
    by_hand = b'{"note":1}\n' * 5
    (scratch / "transcript.jsonl").write_bytes(whole + by_hand)
    monkeypatch.setattr(damage, "_LINES_BYTES", len(by_hand))
    with pytest.raises(CorruptTranscriptError) as refused:
        ConversationStore(scratch).load()
    assert refused.value.kind == "foreign"
    monkeypatch.setattr(damage, "_LINES_BYTES", len(by_hand) - 1)
    with ConversationStore(scratch) as store:
        store.load()
        assert store.recovery is not None
        assert store.recovery.torn_bytes == len(by_hand)


@pytest.mark.parametrize(
    "line", [b'[{"note":1}]\n', b'"note"\n', b'{"note":1}\n{"note":\n', b'{"note":1}\n{"seq":9}\n']
)
def test_what_is_not_lines_of_objects_is_a_torn_tail(scratch: Path, line: bytes) -> None:
    """P8: one line that is no object, or that begins as ours do, and all of it is a tail that is cut."""
    with ConversationStore(scratch) as store:
        store.initialize(messages=SAID)
    whole = (scratch / "transcript.jsonl").read_bytes()
    (scratch / "transcript.jsonl").write_bytes(whole + line)
    with ConversationStore(scratch) as store:
        store.load()
        assert store.recovery is not None
        assert store.recovery.torn_bytes == len(line)


def test_a_list_looks_back_so_far_for_the_last_record(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tail of NULs may have any size: the record before it is found up to a bound, and the list says where it ends."""
    directory = scratch / "c"
    with ConversationStore(directory) as store:
        store.initialize(messages=SAID)
    whole = (directory / "transcript.jsonl").read_bytes()
    (directory / "transcript.jsonl").write_bytes(whole + bytes(20_000))
    reaches = 20_000 + len(whole.splitlines(keepends=True)[-1]) + 1
    monkeypatch.setattr(scan, "LONGEST_TAIL_BYTES", reaches)
    [summary] = list_conversations(scratch)
    assert (summary.record_count, summary.torn_bytes, summary.damage) == (9, 20_000, None)
    monkeypatch.setattr(scan, "LONGEST_TAIL_BYTES", reaches - 1)
    [summary] = list_conversations(scratch)
    assert summary.record_count == 0
    assert summary.damage is not None
    assert f"in its last {reaches - 1:,} bytes" in summary.damage


def test_a_line_that_is_a_hash_and_nothing_else_is_no_last_record(scratch: Path) -> None:
    """Whoever can compute the chain can also write a line without a body: a list passes over it."""
    directory = scratch / "c"
    with ConversationStore(directory) as store:
        store.initialize(messages=SAID)
    whole = (directory / "transcript.jsonl").read_bytes()
    forged = HASH_MEMBER + chain_hash(whole[-35:-3], [b""]) + b'"}\n'
    (directory / "transcript.jsonl").write_bytes(whole + forged)
    [summary] = list_conversations(scratch)
    assert (summary.record_count, summary.torn_bytes, summary.damage) == (9, len(forged), None)


# ---- what a person edited -----------------------------------------------------------------------------------------------------


def test_an_edited_line_is_a_record_up_to_a_length(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it stands: a line far behind that length is no longer than the first one."""
    with ConversationStore(scratch) as store:
        store.initialize(messages=SAID)
    lines = [line.replace(b"message ", b"massage ") for line in transcript_lines(scratch)]
    longest = max(map(len, lines[1:])) - 1
    lines[5] = lines[5].replace(b"massage", b"massages")
    (scratch / "transcript.jsonl").write_bytes(b"".join(lines))
    monkeypatch.setattr(repair_plan, "_EDITED_BYTES", longest)
    proposal = repair(scratch, mode="accept-edits")
    assert proposal.records_kept == len(SAID) - 1
    [gap] = proposal.gaps
    assert (gap.offset_bytes, gap.length_bytes) == (len(b"".join(lines[:5])), longest + 1)
    repair(scratch, mode="accept-edits", dry_run=False)
    assert verify(scratch).is_intact


def test_of_a_long_line_only_the_beginning_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of gigabytes is not read to say what is wrong with it."""
    monkeypatch.setattr(damage, "_SAMPLE_BYTES", 10)

    def described(data: bytes) -> str:
        before = b"what stands before it"
        whole = before + data

        def read(offset: int, length: int) -> bytearray:
            assert length <= 10
            return bytearray(whole[offset : offset + length])

        return damage.describe_at(read, len(before), len(whole))

    assert described(b"") == "an empty line"
    assert described(b"x" * 10).startswith("it does not end in a hash")
    assert described(b"x" * 11) == "it has 11 bytes and does not verify"
    assert described(b"x" * 9 + b"\0x").startswith("it has 11 bytes, NUL bytes among them")
    assert described(b"x" * 10 + b"\0") == "it has 11 bytes and does not verify"
