"""``load(verify="tail")``: a long conversation opens as fast as a short one, and tells the same.

What stands before the mark is believed on the word of the hash chain that ends at the mark, read when it is asked for, and
verified then. So two things are to be proved: that less is read, and that nothing else is different.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.kit.machines import Counting
from transcript_store import ConversationStore, CorruptTranscriptError, verify
from transcript_store._conversation.metadata import MetadataDocument, decode_document, encode_document
from transcript_store._log import log
from transcript_store._os.filesystem import PosixFileSystem

TRANSCRIPT = "transcript.jsonl"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tail is a few records; otherwise these small files would be nothing but tail."""
    monkeypatch.setattr(log, "TAIL_BYTES", 400)


def make(directory: Path, records: int, *, after_mark: int = 0, seed: int = 0) -> list[Any]:
    """A conversation of messages, events and batches, with the mark before the last ``after_mark`` appends."""
    rng = random.Random(seed)
    number = 0

    def message() -> dict[str, Any]:
        nonlocal number
        number += 1
        return {"role": "user", "content": f"{number} " + "x" * rng.choice((0, 5, 50, 300))}

    with ConversationStore(directory) as store:
        store.initialize(model="m", system_prompt="be brief")
    for appends in (records, after_mark):
        with ConversationStore(directory, durability="process-crash") as store:
            store.load()
            metadata = (directory / "metadata.json").read_bytes()
            for _ in range(appends):
                kind = rng.randrange(4)
                if kind == 0:
                    store.append_messages([message() for _ in range(rng.randint(1, 5))])
                elif kind == 1:
                    store.append_event({"marker": rng.randrange(100)})
                else:
                    store.append_message(message(), extra={"usage": number} if kind == 2 else None)
            everything = store.get_messages()
    if after_mark:
        (directory / "metadata.json").write_bytes(metadata)  # as if it had been killed instead of closed
    return everything


def is_whole(store: ConversationStore) -> bool:
    """Whether all of the file was verified."""
    return store.is_fully_verified


def test_the_cost_does_not_grow_with_what_stands_before_the_mark(tmp_path):
    """A writer and a reader that open a conversation, read the last 50 messages and append, read as much of a long one as
    of one a tenth of its length.
    """
    read: dict[tuple[bool, int], int] = {}
    for count in (2_000, 20_000):
        directory = tmp_path / str(count)
        with ConversationStore(directory) as store:
            store.initialize(messages=({"role": "user", "content": f"message {n:06d}"} for n in range(count)))
        for read_only in (True, False):
            files = Counting()
            with ConversationStore(directory, read_only=read_only, file_system=files) as store:
                store.load(verify="tail")
                last = store.get_messages(last=50)
                assert [message["content"] for message in last] == [f"message {n:06d}" for n in range(count)[-50:]]
                assert store.record_count == count
                if not read_only:
                    assert store.append_message({"n": "next"}).seq == count + 1
                read[read_only, count] = files.bytes_read
    for read_only in (True, False):
        assert read[read_only, 20_000] < 1.1 * read[read_only, 2_000] < 200_000


@pytest.mark.sampled(every=3)
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_it_tells_what_a_whole_load_tells(tmp_path, seed, read_only):
    """Whatever is asked for first, at any length of the tail: messages, records, head, count and time are the same."""
    messages = make(tmp_path / "c", 40, after_mark=seed % 3 * 4, seed=seed)
    with ConversationStore(tmp_path / "c", read_only=True) as whole:
        whole.load()
        records = whole.get_records()
        expected = (whole.head, whole.record_count, whole.get_metadata().updated_at)
        assert whole.get_messages() == messages
    for first in range(0, len(messages) + 3, 3):
        metadata = (tmp_path / "c/metadata.json").read_bytes()
        with ConversationStore(tmp_path / "c", read_only=read_only) as store:
            store.load(verify="tail")
            if first == 0:
                assert not is_whole(store), "all of it is in the tail: this proves nothing"
            assert (store.head, store.record_count, store.get_metadata().updated_at) == expected
            assert store.get_messages(last=first) == messages[len(messages) - first if first < len(messages) else 0 :]
            assert store.get_records(last=first) == records[len(records) - first if first < len(records) else 0 :]
            if first % 2:
                assert store.get_messages() == messages
            assert store.get_records() == records
            assert store.recovery is None
        if not read_only:
            (tmp_path / "c/metadata.json").write_bytes(metadata)  # the mark where it was


@pytest.mark.usefixtures("short")
def test_a_reader_reads_along_from_the_tail(tmp_path):
    """P12: a reader of the tail sees what a writer adds, and starts over after a replace, still with the tail only."""
    make(tmp_path / "c", 40)
    with ConversationStore(tmp_path / "c") as writer, ConversationStore(tmp_path / "c", read_only=True) as reader:
        writer.load()
        reader.load(verify="tail")
        for n in range(5):
            writer.append_messages([{"n": n}, {"n": -n}])
            assert reader.refresh().records_added == 2
            assert reader.get_messages(last=2) == [{"n": n}, {"n": -n}]
        assert not is_whole(reader)
        assert reader.get_messages() == writer.get_messages()
        writer.replace_transcript([{"n": n, "text": "x" * 50} for n in range(40)])
        assert reader.refresh().started_over
        assert not is_whole(reader)
        assert reader.get_messages() == writer.get_messages()


@pytest.mark.usefixtures("short")
def test_foreign_bytes_behind_the_tail_are_recovered(tmp_path):
    """P8, P11: torn bytes that appear under an open store are cut and kept, as they are with all of the file in memory."""
    messages = make(tmp_path / "c", 40)
    with ConversationStore(tmp_path / "c") as store:
        store.load(verify="tail")
        with open(tmp_path / "c" / TRANSCRIPT, "ab") as file:
            file.write(b'{"seq":99,"at"')
        store.append_message({"n": "next"})
        assert store.recovery is not None
        assert store.recovery.torn_bytes == 14
        assert store.recovery.messages_kept == len(messages)
        assert store.get_messages() == [*messages, {"n": "next"}]
    assert verify(tmp_path / "c").is_intact


@pytest.mark.usefixtures("short")
def test_a_fork_a_snapshot_and_a_replace_take_all_of_it(tmp_path):
    """P4: what needs the whole conversation gets it: the archive of a replace is the old transcript to the byte."""
    messages = make(tmp_path / "c", 40)
    before = (tmp_path / "c" / TRANSCRIPT).read_bytes()
    with ConversationStore(tmp_path / "c") as store:
        store.load(verify="tail")
        _, records, (_, head), _ = store.state()
        assert [record.message for record in records if record.message] == messages
        assert head == store.head
    with ConversationStore(tmp_path / "c") as store:
        store.load(verify="tail")
        store.replace_transcript([{"summary": True}])
        assert [record.message for record in store.get_records(generation=0) if record.message] == messages
    assert (tmp_path / "c/archive/transcript-000000.jsonl").read_bytes() == before


def mutated(data: bytes, kind: str, rng: random.Random) -> bytes:
    """Damage somewhere behind the header."""
    lines = data.splitlines(keepends=True)
    k = rng.randrange(1, len(lines) - 1)
    at = rng.randrange(len(lines[0]), len(data) - 60)
    if kind == "a bit":
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if kind == "zeroed":
        return data[:at] + b"\0" * 60 + data[at + 60 :]
    if kind == "inserted":
        return data[:at] + b"x" + data[at:]
    if kind == "removed":
        return data[:at] + data[at + 1 + rng.randrange(200) :]
    if kind == "cut":
        return data[:at]
    if kind == "lost":
        return b"".join(lines[:k] + lines[k + 1 :])
    if kind == "repeated":
        return b"".join(lines[: k + 1] + lines[k:])
    assert kind == "moved"
    return b"".join([*lines[:k], lines[k + 1], lines[k], *lines[k + 2 :]])


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("count", [5, pytest.param(150, marks=pytest.mark.long)])
def test_damage_is_never_shown(tmp_path, count, read_only):
    """P10, P8: where a whole load refuses, a load of the tail refuses the same, or shows true messages until what is
    damaged is asked for, and refuses that; where a whole load recovers, so does it.
    """
    seed = 3
    print(f"seed {seed}")
    rng = random.Random(seed)
    original = make(tmp_path / "c", 30, after_mark=4, seed=seed)
    transcript, document = tmp_path / "c" / TRANSCRIPT, tmp_path / "c/metadata.json"
    data, metadata = transcript.read_bytes(), document.read_bytes()
    refused_early = refused_late = whole = 0
    for kind in ("a bit", "zeroed", "inserted", "removed", "cut", "lost", "repeated", "moved"):
        for _ in range(count):
            damaged = mutated(data, kind, rng)
            outcomes: list[Any] = []
            for mode in ("all", "tail"):
                transcript.write_bytes(damaged)
                document.write_bytes(metadata)
                shown: list[Any] = []
                try:
                    with ConversationStore(tmp_path / "c", read_only=read_only) as store:
                        store.load(verify=mode)
                        for last in (1, 5, 12):
                            shown = store.get_messages(last=last)
                        outcomes.append((store.get_messages(), store.get_records(), store.recovery))
                        whole += 1
                except CorruptTranscriptError as error:
                    refused_early += not shown
                    refused_late += bool(shown)
                    outcomes.append((error.kind, error.offset_bytes, error.line_number, error.reason))
                    assert all(message in original for message in shown), f"{kind}: it showed what nobody wrote"
            assert outcomes[0] == outcomes[1], f"{kind}: a whole load and a load of the tail tell different things"
    assert refused_late > count
    assert refused_early > count
    assert whole > count // 2


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("bytes_more", [-1, 1])
def test_what_moved_the_mark_is_noticed_at_once(tmp_path, bytes_more):
    """P10: the mark must be where it was: a byte lost or put in anywhere before it, and be it in the first record."""
    make(tmp_path / "c", 40)
    transcript = tmp_path / "c" / TRANSCRIPT
    data = transcript.read_bytes()
    at = data.index(b"\n") + 70
    transcript.write_bytes(data[:at] + b"x" * max(0, bytes_more) + data[at + max(0, -bytes_more) :])
    with ConversationStore(tmp_path / "c") as store, pytest.raises(CorruptTranscriptError) as refused:
        store.load(verify="tail")
    assert (refused.value.kind, refused.value.line_number) == ("damaged-line", 2)


@pytest.mark.usefixtures("short")
def test_another_tail_that_verifies_is_noticed_at_once(tmp_path):
    """P10: a transcript that was exchanged for one with the same beginning is not what the mark remembers."""
    make(tmp_path / "c", 40)
    shutil.copytree(tmp_path / "c", tmp_path / "other")
    for name in ("c", "other"):
        with ConversationStore(tmp_path / name) as store:
            store.load()
            for n in range(10):
                store.append_message({"n": n, "of": name[:1]})
    shutil.copy(tmp_path / "other" / TRANSCRIPT, tmp_path / "c" / TRANSCRIPT)
    with ConversationStore(tmp_path / "c") as store, pytest.raises(CorruptTranscriptError) as refused:
        store.load(verify="tail")
    assert refused.value.kind == "rewritten"


@pytest.mark.usefixtures("short")
def test_a_mark_of_another_generation_is_no_mark(tmp_path):
    """P10, P4: after a replace that was killed before it wrote the mark, nothing vouches for the beginning: all is read."""
    make(tmp_path / "c", 40)
    metadata = (tmp_path / "c/metadata.json").read_bytes()
    with ConversationStore(tmp_path / "c") as store:
        store.load()
        store.replace_transcript([{"n": n, "text": "x" * 100} for n in range(200)])
    (tmp_path / "c/metadata.json").write_bytes(metadata)
    with ConversationStore(tmp_path / "c") as store:
        store.load(verify="tail")
        assert is_whole(store)
        assert store.record_count == 200
    with ConversationStore(tmp_path / "c") as store:
        store.load(verify="tail")  # the mark is renewed
        assert not is_whole(store)


@pytest.mark.usefixtures("short")
def test_after_late_damage_the_store_continues(tmp_path):
    """P13: damage that is found when old messages are asked for is told each time; the tail is read and appended to."""
    messages = make(tmp_path / "c", 40)
    transcript = tmp_path / "c" / TRANSCRIPT
    data = bytearray(transcript.read_bytes())
    data[data.index(b"\n") + 70] ^= 1
    transcript.write_bytes(data)
    with ConversationStore(tmp_path / "c") as store:
        store.load(verify="tail")
        for n in range(3):
            with pytest.raises(CorruptTranscriptError) as refused:
                store.get_messages()
            assert (refused.value.kind, refused.value.line_number) == ("damaged-line", 2)
            with pytest.raises(CorruptTranscriptError):
                store.replace_transcript([])
            store.append_message({"n": n})
            assert store.get_messages(last=2 + n)[0] == messages[-1]
    assert [finding.line_number for finding in verify(tmp_path / "c").findings] == [2]
    assert transcript.read_bytes().startswith(data)


def test_an_unknown_way_to_verify(tmp_path):
    with pytest.raises(ValueError, match="'all' or 'tail'"):
        ConversationStore(tmp_path / "c").load(verify="none")  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


class Largest(PosixFileSystem):
    """Refuses to read more than these tests can need, as a machine with that much memory would."""

    def read(self, handle: int, offset: int, length: int) -> bytearray:
        assert length < 2**20
        return super().read(handle, offset, length)


@pytest.mark.parametrize("offset", [2**32, 2**45])
def test_a_mark_far_behind_the_end_is_refused_before_anything_is_read(tmp_path, offset):
    """As ``verify="all"`` refuses it: what somebody wrote into the metadata reserves no memory."""
    make(tmp_path / "c", 3)
    path = tmp_path / "c" / "metadata.json"
    document = decode_document(path.read_bytes())
    assert isinstance(document, MetadataDocument)
    assert document.mark is not None
    far = document.mark._replace(position=document.mark.position._replace(offset_bytes=offset))
    path.write_bytes(encode_document(document.members, far))
    files = Largest()
    for read_only in (True, False):
        with pytest.raises(CorruptTranscriptError, match="the transcript ends here"):
            ConversationStore(tmp_path / "c", read_only=read_only, file_system=files).load(verify="tail")


def test_the_last_messages_read_nothing_that_stands_before_them(tmp_path: Path) -> None:
    """P11: all that was asked for stood in memory, and it was refused for damage in the message before it."""
    files = Counting()
    with ConversationStore(tmp_path / "c", cache_bytes=2_000, file_system=files) as store:  # the last fits in
        store.initialize(messages=[{"text": f"{number} {'x' * 4_000}"} for number in range(3)])
        store.append_message({"text": "last"})
        path = tmp_path / "c" / TRANSCRIPT
        path.write_bytes(path.read_bytes().replace(b'"2 x', b'"3 x'))
        read_before = files.bytes_read
        assert store.get_messages(last=1) == [{"text": "last"}]
        assert files.bytes_read == read_before
