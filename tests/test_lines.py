"""Lines in memory were verified before. So a line that no longer verifies is reported as damage since then.

LevelDB's log reader would have these branches reviewed one by one; each has a story here: a disk that lies once, a program that
knows the format and writes something else, a record that stands where no append put it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.cases import for_each
from transcript_store import ConversationStore, CorruptTranscriptError
from transcript_store._log import scan
from transcript_store._log.lines import GATHERED_BYTES, CachedLines, FromTheEnd, newest_lines_first, numbered
from transcript_store._log.record import GENESIS, Position, close_line, record_body
from transcript_store._os.filesystem import PosixFileSystem

AT = b"2026-01-01T00:00:00.000000Z"
SAID = [{"role": "user", "content": f"message {n}"} for n in range(6)]


class LyingOnce(PosixFileSystem):
    """Gives one byte of a transcript wrong, the first time that it is read after ``lies`` was set."""

    lies = False

    def read(self, handle: int, offset: int, length: int) -> bytearray:
        data = super().read(handle, offset, length)
        if self.lies and b"message 2" in data:
            self.lies = False
            data[data.index(b"message 2")] ^= 1
        return data


@pytest.mark.parametrize("last", [None, 6])
def test_a_read_that_differs_from_the_file_blames_the_disk(tmp_path: Path, last: int | None) -> None:
    """A wrong read is an error, never a wrong message; the next one gives what is there, and the writer goes on."""
    files = LyingOnce()
    with ConversationStore(tmp_path / "c", cache_bytes=0, file_system=files) as store:
        store.initialize(messages=SAID)
        files.lies = True
        with pytest.raises(CorruptTranscriptError, match="was damaged when it was read and is whole now"):
            store.get_messages(last=last)
        assert store.get_messages(last=last) == SAID
        store.append_message({"role": "user", "content": "on"})
        assert len(store.get_messages()) == 7


@pytest.mark.parametrize("message", [b"7", b'"text"', b"[]", b"{no JSON"])
def test_a_line_that_verifies_and_is_no_record_is_named(tmp_path: Path, message: bytes) -> None:
    """Anybody can compute the chain. What is no record of ours is refused when it is read, by line and offset; nothing is guessed."""
    path = tmp_path / "c" / "transcript.jsonl"
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=SAID[:2])
    content = path.read_bytes()
    line, head = close_line(content[-35:-3], *record_body(3, AT, message, None))
    behind, _ = close_line(head, *record_body(4, AT, b'{"n":4}', None))
    path.write_bytes(content + line + behind)
    with ConversationStore(tmp_path / "c", read_only=True) as store:
        store.load()
        for read in (store.get_messages, store.get_records, lambda: store.get_messages(last=3)):
            with pytest.raises(CorruptTranscriptError, match="is not a record") as caught:
                read()
            assert (caught.value.kind, caught.value.line_number) == ("foreign", 4)
            assert caught.value.offset_bytes == len(content)


def test_a_record_with_a_wrong_number_behind_the_last_one_is_never_cut(tmp_path: Path) -> None:
    """R1: it is chained to the last record and complete, so it was written whole; that its number is wrong is no torn tail."""
    path = tmp_path / "c" / "transcript.jsonl"
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=SAID[:2])
    content = path.read_bytes()
    line, _ = close_line(content[-35:-3], *record_body(9, AT, b'{"n":9}', None))
    path.write_bytes(content + line)
    with (
        ConversationStore(tmp_path / "c") as store,
        pytest.raises(CorruptTranscriptError, match="out of order") as caught,
    ):
        store.load()
    assert caught.value.kind == "hole"
    assert path.read_bytes() == content + line


@for_each("kind", [bytes, bytearray])
@for_each("texts", [[b"one"], [b"", b"two", b""], [b"%d" % n * n for n in range(60)]])
def test_from_the_end_on_the_lines_of_a_block_are_the_same(kind: type, texts: list[bytes]) -> None:
    """A search for the last few lines finds the same lines with the same numbers as splitting the whole file."""
    lines = kind(b"".join(text + b"\n" for text in texts))
    block = CachedLines(Position(5, 100, GENESIS), lines, Position(5 + len(texts), 100 + len(lines), GENESIS))
    found = list(newest_lines_first(block))
    assert [(seq, line) for seq, line, _ in found] == numbered(block)[::-1]
    for k, (seq, _, place) in enumerate(found, 1):
        assert place == (seq - 1, 100 + len(b"".join(text + b"\n" for text in texts[: seq - 6])))
        assert list(newest_lines_first(block, place)) == found[k:], "and from each line's beginning on those before it"
    assert numbered(block)[0] == (6, texts[0])


@for_each("count", [1, 2, 3, 5, 100])
@for_each("kind", [bytes, bytearray])
def test_as_many_lines_from_the_end_on_as_are_asked_for(kind: type, count: int) -> None:
    """In stretches without a gap: so many lines each, none twice and none left out. Where blocks were passed over a stretch ends."""
    lengths = [1, 4, 1, 1, 7, 2, 1]
    blocks, seq = [], 10
    for length in lengths:
        lines = kind(b"".join(b"line %d\n" % n for n in range(seq + 1, seq + 1 + length)))
        blocks.append(CachedLines(Position(seq, 0, GENESIS), lines, Position(seq + length, 0, GENESIS)))
        seq += length
    del blocks[3]  # with one record, the number 17
    from_the_end = FromTheEnd(reversed(blocks))
    found: list[bytes] = []
    sizes: list[int] = []
    while stretch := from_the_end.take(count):
        lines = [line.rstrip(b"\n") for line in stretch.lines()]
        assert {*map(type, stretch.lines())} == {bytes}
        assert stretch.numbered() == list(enumerate(lines, stretch.after_seq + 1))
        assert lines == [b"line %d" % n for n in range(stretch.after_seq + 1, stretch.through_seq + 1)]
        found = lines + found
        sizes.append(len(lines))
    assert found == [b"line %d" % n for n in range(11, 28) if n != 17]
    behind = 10  # what the gap leaves behind it
    assert sizes[: behind // count] == [count] * (behind // count)
    assert from_the_end.take(1) is None


def test_long_lines_are_not_gathered_without_a_bound() -> None:
    """However many are asked for, what is decoded together is little more than a line, or than the bound."""
    line = b"x" * (GATHERED_BYTES // 2) + b"\n"
    blocks = [CachedLines(Position(n, 0, GENESIS), line, Position(n + 1, 0, GENESIS)) for n in range(5)]
    from_the_end = FromTheEnd(reversed(blocks))
    sizes = []
    while stretch := from_the_end.take(1000):
        sizes.append(stretch.through_seq - stretch.after_seq)
    assert sizes == [2, 2, 1]


def test_what_was_verified_once_is_not_hashed_line_by_line_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L1: after a load, reads compare one sum for each stretch; a byte that changed since is still found, by line and offset."""
    path = tmp_path / "c" / "transcript.jsonl"
    messages = [{"role": "user", "content": f"{n:05} {'x' * 1000}"} for n in range(1000)]
    with ConversationStore(tmp_path / "c") as store:
        store.initialize()
        for begin in range(0, 1000, 250):
            store.append_messages(messages[begin : begin + 250])
    content = path.read_bytes()
    hashed = []
    resume = scan.resume

    def noting(buffer: bytearray, base: int, before: scan.Scan) -> scan.Scan:
        after = resume(buffer, base, before)
        hashed.append(after.stopped.offset_bytes - before.stopped.offset_bytes)
        return after

    monkeypatch.setattr(scan, "resume", noting)
    with ConversationStore(tmp_path / "c", read_only=True, cache_bytes=0) as store:
        store.load()
        assert sum(hashed) == len(content) - content.index(b"\n") - 1, "a load verifies each line once"
        hashed.clear()
        assert store.get_messages() == messages
        assert not hashed
        for offset in (content.index(b"\n") + 9, len(content) // 2, len(content) - 40):
            path.write_bytes(content[:offset] + bytes([content[offset] ^ 1]) + content[offset + 1 :])
            with pytest.raises(CorruptTranscriptError) as caught:
                store.get_messages()
            assert caught.value.line_number == content[:offset].count(b"\n") + 1
            path.write_bytes(content)
            assert store.get_messages() == messages


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_the_key_of_a_sum_differs_per_process(seed: str) -> None:
    """L1: also where PYTHONHASHSEED fixes how Python hashes, the sums of two processes differ, so an edit can't aim at one."""
    code = "from transcript_store._os.checksum import checksum; print(checksum(b'a' * 9) == checksum(bytearray(b'a' * 9)), checksum(b'a' * 9))"
    printed = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert [each[0] for each in printed] == [b"True", b"True"]
    assert printed[0][1] != printed[1][1]
