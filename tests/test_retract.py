"""Retractions: a record says that the last messages do not count. Readers skip them; nothing is removed."""

from __future__ import annotations

import errno
import json
import os
import random
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.conversation.helpers import ONE, THREE, TWO
from tests.kit.cases import for_each
from transcript_store import (
    ConversationChangedError,
    ConversationLibrary,
    ConversationStore,
    CorruptTranscriptError,
    FeatureNotEnabledError,
    PoisonedError,
    ReadOnlyError,
    Record,
    TranscriptStoreError,
    UnsupportedVersionError,
    repair,
    rescue,
    salvage,
    snapshot_of,
    verify,
)
from transcript_store._json.strict import decode
from transcript_store._log import messages as log_messages
from transcript_store._log.record import close_line
from transcript_store._log.retractions import TakenBack
from transcript_store.exporting import export
from transcript_store.search import SearchIndex
from transcript_store.testing import FileSystemCall, SimulatedFileSystem
from transcript_store.transcripts import open_transcript
from transcript_store.view import write_page

RETRACT: Any = ["retract"]


@pytest.fixture(params=[0, 8 << 20], ids=["no-cache", "in-memory"])
def store(request, tmp_path):
    """Five messages and an event, the last three messages appended together, in a generation that can take back."""
    with ConversationStore(tmp_path / "c", cache_bytes=request.param) as store:
        store.initialize(messages=[ONE, TWO], features=RETRACT)
        store.append_event({"event": 3})
        store.append_messages([{"n": 4}, {"n": 5}, {"n": 6}])
        yield store


def in_force(records: list[Record]) -> list[Any]:
    return [record.message for record in records if record.message is not None and not record.is_retracted]


def every_way_to_read(store: ConversationStore) -> list[list[Any]]:
    """The messages as each reader of the conversation gives them."""
    with ConversationStore(store.directory, read_only=True) as tail:
        tail.load(verify="tail")
        lasts = [tail.get_messages(last=n) for n in range(8)]
        whole = tail.get_messages()
    assert [whole[max(0, len(whole) - n) :] for n in range(8)] == lasts
    with open_transcript(store.directory) as transcript:
        placed = [placed.record for placed, _ in transcript.records(transcript.begin)]
    out = Path(store.directory).parent / "out.jsonl"
    out.unlink(missing_ok=True)
    export(store, to="jsonl", output=out)
    exported = [json.loads(line)["message"] for line in out.read_text().splitlines()]
    found = [one.record for one in salvage(store.directory).found if one.record]
    with store.frozen() as held:
        held_records = list(held.records)
    return [
        store.get_messages(),
        in_force(store.get_records()),
        in_force(list(store.iter_records())),
        in_force(store.get_records(last=10_000)),
        in_force(held_records),
        in_force(found),
        in_force(placed),
        [message for message in exported if message is not None],
        json.loads(snapshot_of(store).messages_json or "[]"),
        whole,
    ]


def expect(store: ConversationStore, messages: list[Any]) -> None:
    for found in every_way_to_read(store):
        assert found == messages
    store.load()
    assert store.get_messages() == messages
    assert verify(store.directory).is_intact


def test_what_was_retracted_counts_for_no_reader_and_is_still_a_record(store):
    appended = store.retract()
    assert appended.seq == 7
    expect(store, [ONE, TWO, {"n": 4}, {"n": 5}])
    taken, retraction = store.get_records(last=2)
    assert (taken.message, taken.is_retracted, retraction.retracts) == ({"n": 6}, True, (6, 6))
    assert (retraction.message, retraction.extra, retraction.is_retracted) == (None, None, False)


def test_messages_behind_a_retraction_are_retracted_with_those_before_it(store):
    """Two messages, one at each side of what was taken back before and of an event, which stays."""
    store.retract(2)
    store.append_message(THREE)
    store.retract(3)
    assert store.get_records()[-1].retracts == (2, 8)
    expect(store, [ONE])
    assert [record.extra for record in store.get_records() if record.extra] == [{"event": 3}]
    store.append_message(TWO)
    expect(store, [ONE, TWO])
    store.retract(2)
    expect(store, [])


def test_no_more_is_retracted_than_there_is(store):
    with pytest.raises(ValueError, match="6 messages cannot be retracted: there are 5"):
        store.retract(6)
    for wrong in (0, -1, True, 1.0, "1"):
        with pytest.raises(ValueError, match="n must be an int from 1"):
            store.retract(wrong)
    assert store.record_count == 6
    store.retract(5)
    with pytest.raises(ValueError, match="there are 0"):
        store.retract()


def test_an_event_that_has_a_member_message_is_no_message(store):
    store.append_event({"message": "is what the event calls it", "n": 7})
    store.retract()
    assert store.get_messages() == [ONE, TWO, {"n": 4}, {"n": 5}]


def test_after_a_sync_that_failed_nothing_is_undone():
    """P6: what the disk has is not known, so nothing is written behind it."""
    disk = SimulatedFileSystem()

    def refuse(call: FileSystemCall) -> None:
        if "sync" in call.name:
            raise OSError(errno.EIO, "refused")

    with ConversationStore("/agent", file_system=disk) as store:
        store.initialize(messages=[ONE, TWO], features=RETRACT)
        disk.on_call = refuse
        with pytest.raises(TranscriptStoreError):
            store.append_message(THREE)
        disk.on_call = None
        before = disk.tree()
        with pytest.raises(PoisonedError):
            store.retract()
        assert disk.tree() == before


def test_the_same_call_again_retracts_no_more(store):
    head = store.head
    store.retract(if_head=head)
    with pytest.raises(ConversationChangedError):
        store.retract(if_head=head)
    assert store.get_messages() == [ONE, TWO, {"n": 4}, {"n": 5}]


def test_a_reader_retracts_nothing(store):
    with ConversationStore(store.directory, read_only=True) as reader:
        reader.load()
        with pytest.raises(ReadOnlyError):
            reader.retract()
        store.retract()
        reader.refresh()
        assert reader.get_messages() == [ONE, TWO, {"n": 4}, {"n": 5}]


# ---- the feature -------------------------------------------------------------------------------------------------------


def test_a_generation_without_the_feature_names_the_next_one(tmp_path):
    """Nothing is written, and the way out that the error names works: every record is kept, and can be taken back."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[ONE, TWO])
        before = (tmp_path / "c/transcript.jsonl").read_bytes()
        assert b"requires" not in before
        with pytest.raises(FeatureNotEnabledError, match=r"keep_records.*features=\['retract'\]"):
            store.retract()
        assert (tmp_path / "c/transcript.jsonl").read_bytes() == before
        assert not store.features
        store.keep_records(range(1, store.record_count + 1), features=["retract"])
        store.retract()
        assert (store.get_messages(), store.features) == ([ONE], ("retract",))
        store.replace_transcript([TWO, THREE])
        store.retract()
        assert (store.get_messages(), store.features) == ([TWO], ("retract",)), "the next generations have it too"


def test_replace_can_enable_it(tmp_path):
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[ONE])
        store.replace_transcript([ONE, TWO], features=["retract"])
        store.retract()
        expect(store, [ONE])


def test_every_way_to_create_can_enable_it(tmp_path):
    library = ConversationLibrary(tmp_path)
    with library.group() as group:
        ids = [group.add(messages=[ONE], features=RETRACT)]
    with library.create(messages=[ONE], features=RETRACT) as store:
        ids.append(store.id)
    for one in ids:
        with library.open(one) as store:
            store.retract()
            assert store.get_messages() == []


@pytest.mark.parametrize("wrong", [["sealing"], ["retract", 1], [None]])
def test_a_feature_that_there_is_not_is_refused(tmp_path, wrong):
    store = ConversationStore(tmp_path / "c")
    with pytest.raises(ValueError, match="features must be"):
        store.initialize(features=wrong)
    with pytest.raises(TypeError):
        store.initialize(features="retract")  # type: ignore[arg-type]
    assert not store.exists()


def test_a_version_that_does_not_know_it_refuses_the_file(store, monkeypatch):
    store.retract()
    store.close()
    monkeypatch.setattr("transcript_store._log.header.FEATURES", frozenset())
    with pytest.raises(UnsupportedVersionError, match=r"requires|with \['retract'\]"):
        ConversationStore(store.directory, read_only=True).load()


def test_what_is_on_record_wins(tmp_path, caplog):
    with ConversationStore(tmp_path / "c") as store:
        store.initialize()
        store.load_or_initialize(features=["retract"])
        assert store.features == ()
    assert "the given features differs" in caplog.text


# ---- copies ------------------------------------------------------------------------------------------------------------


def test_a_fork_has_what_counted_at_that_record(tmp_path):
    library = ConversationLibrary(tmp_path)
    with library.create(messages=[ONE, TWO, THREE], features=RETRACT) as store:
        store.retract(2)
        store.append_message(TWO)
        id = store.id  # noqa: A001
    expected = {0: [], 2: [ONE, TWO], 3: [ONE, TWO, THREE], 4: [ONE], 5: [ONE, TWO], None: [ONE, TWO]}
    for through, messages in expected.items():
        with library.open(library.fork(id, through_seq=through)) as fork:
            assert (fork.get_messages(), fork.features) == (messages, ("retract",))
        with library.open(id, read_only=True) as original:
            assert in_force(list(original.iter_records(through_seq=through))) == messages
            out = tmp_path / "out.md"
            out.unlink(missing_ok=True)
            export(original, to="markdown", output=out, through_seq=through)
            assert out.read_text().count("\n## ") == len(messages)


@pytest.mark.parametrize(
    ("kept", "retracts", "messages"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], (4, 6), [ONE, TWO, THREE]),
        ([1, 4, 6, 7], (2, 3), [ONE]),
        ([1, 6, 7, 8], (2, 2), [ONE, THREE]),
        ([1, 7, 8], (), [ONE, THREE]),
        ([1, 3, 4, 5, 6], None, [ONE, {"n": 4}, {"n": 5}, {"n": 6}]),
    ],
)
def test_records_that_are_kept_are_named_by_their_new_numbers(store, kept, retracts, messages):
    """Only those that are still there are taken back; without the record that took them back they count again."""
    store.retract(3)
    store.append_message(THREE)
    store.keep_records(kept)
    assert next((record.retracts for record in store.get_records() if record.retracts is not None), None) == retracts
    expect(store, messages)
    store.keep_records(range(1, store.record_count + 1))
    expect(store, messages)


def damaged(store: ConversationStore, seq: int) -> Path:
    """The conversation, with a byte of one record changed."""
    store.close()
    path = Path(store.directory, "transcript.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[seq] = lines[seq].replace(b'"at":"2', b'"at":"3')
    path.write_bytes(b"".join(lines))
    return path


@pytest.mark.parametrize("lost", [4, 5, 6])
def test_of_what_a_gap_swallowed_the_rest_stays_retracted(store, lost):
    store.retract(3)
    damaged(store, lost)
    repair(store.directory, mode="salvage", dry_run=False)
    store.load()
    expect(store, [ONE, TWO])
    kept = [record for record in store.get_records() if record.is_retracted]
    assert [record.message for record in kept] == [{"n": n} for n in (4, 5, 6) if n != lost]


def test_if_the_retraction_is_lost_its_messages_count_again(store):
    """Nothing says any more that they were taken back; to show too much is better than to hide what nobody took back."""
    store.retract(2)
    store.append_message(THREE)
    damaged(store, 7)
    repair(store.directory, mode="salvage", dry_run=False)
    store.load()
    expect(store, [ONE, TWO, {"n": 4}, {"n": 5}, {"n": 6}, THREE])


@pytest.mark.parametrize("mode", ["salvage", "accept-edits"])
def test_with_the_header_lost_the_records_say_what_counts(store, mode):
    store.retract(3)
    damaged(store, 0)
    assert in_force([one.record for one in salvage(store.directory).found if one.record]) == [ONE, TWO]
    repair(store.directory, mode=mode, dry_run=False)
    store.load()
    assert store.features == ("retract",)
    expect(store, [ONE, TWO])


def test_a_retraction_that_was_edited_by_hand_is_taken_as_it_is(store):
    store.retract(3)
    store.close()
    path = Path(store.directory, "transcript.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"retracts":[4,6]', b'"retracts":[5,6]'))
    assert not verify(store.directory).is_intact
    repair(store.directory, mode="accept-edits", dry_run=False)
    store.load()
    expect(store, [ONE, TWO, {"n": 4}])


def test_prefix_keeps_what_was_retracted_before_the_damage(store):
    store.retract(3)
    store.append_message(THREE)
    damaged(store, 8)
    repair(store.directory, mode="prefix", dry_run=False)
    store.load()
    expect(store, [ONE, TWO])


def test_a_message_that_a_person_put_in_is_never_hidden(store):
    """A line without a number stands between two messages that are named together: those come back, and it is shown."""
    store.append_message(THREE)
    store.retract(4)
    store.close()
    path = Path(store.directory, "transcript.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    lines.insert(6, b'{"role":"user","content":"put in"}\n')
    path.write_bytes(b"".join(lines))
    repair(store.directory, mode="accept-edits", dry_run=False)
    store.load()
    assert {"role": "user", "content": "put in"} in store.get_messages()
    assert THREE not in store.get_messages()


# ---- hostile values ----------------------------------------------------------------------------------------------------

HOSTILE = [
    b"[2,1]",
    b"[1,3]",
    b"[2,9223372036854775807]",
    b"[99999999999999999999999,99999999999999999999999]",
    b"[0,1]",
    b"[-1,1]",
    b"[01,1]",
    b"[true,true]",
    b"[1.0,2.0]",
    b"[1]",
    b"[1,2,2]",
    b"[1, 2]",
    b'["1","2"]',
    b"null",
    b"{}",
    b"1",
    b'[1,2],"message":{"n":3}',
]
"""What a program that knows the format may write as record 3, behind ``"retracts":``."""


def forged(path: Path, *members: bytes, requires: Any = RETRACT) -> None:
    """A conversation of two messages and then records with these members; every hash is right."""
    with ConversationStore(path) as store:
        store.initialize(messages=[ONE, TWO], features=requires)
        head, at = store.head.encode(), store.get_records()[-1].at.encode()
    with (path / "transcript.jsonl").open("ab") as file:
        for seq, member in enumerate(members, 3):
            line, head = close_line(head, b'{"seq":%d,"at":"%b",%b' % (seq, at, member))
            file.write(line)


@pytest.mark.parametrize("value", HOSTILE)
def test_a_malformed_retraction_retracts_nothing(tmp_path, value):
    """One form counts: it names records before it, from a smaller number to a greater one. Anything else is passed over."""
    forged(tmp_path / "c", b'"retracts":' + value)
    with ConversationStore(tmp_path / "c") as store:
        try:
            store.load()
            messages = store.get_messages()
        except CorruptTranscriptError:  # a line that no JSON parser reads is damage, as it always was
            return
        assert messages[:2] == [ONE, TWO]
        count = len(messages)
        expect(store, messages)
        store.retract()
        store.append_message(THREE)
        store.append_message(THREE)
        store.keep_records(range(1, store.record_count + 1))
        assert len(store.get_messages()) == count + 1, "nor does its copy, whose number is another one"


def test_retractions_may_overlap_and_repeat(tmp_path):
    names = [b"[1,1]", b"[1,2]", b"[2,2]", b"[1,4]", b"[]", b"[3,5]"]
    forged(tmp_path / "c", *(b'"retracts":' + name for name in names))
    with ConversationStore(tmp_path / "c") as store:
        store.load()
        expect(store, [])
        assert [record.retracts for record in store.get_records()[2:]] == [(1, 1), (1, 2), (2, 2), (1, 4), (), (3, 5)]


def test_without_the_feature_the_member_says_nothing(tmp_path):
    """A version that does not know it would show the messages; so does this one. And a copy does not begin to mean something."""
    forged(tmp_path / "c", b'"retracts":[1,2]', requires=None)
    with ConversationStore(tmp_path / "c") as store:
        store.load()
        expect(store, [ONE, TWO])
        store.keep_records([1, 2, 3])
        expect(store, [ONE, TWO])
        assert b'"retracts":[1,2]' in (tmp_path / "c/transcript.jsonl").read_bytes(), "kept as it was"
        store.keep_records([1, 2, 3], features=["retract"])
        expect(store, [ONE, TWO])


# ---- others who read ---------------------------------------------------------------------------------------------------


def test_search_does_not_find_what_was_retracted(tmp_path):
    """Before and after it was indexed, also when it is the last that was indexed, so that no number is given twice."""
    library = ConversationLibrary(tmp_path / "library")
    with library.create(messages=[{"role": "user", "content": "apple"}], features=RETRACT) as store:
        with SearchIndex(library, cache=tmp_path / "cache") as index:
            store.append_message({"role": "user", "content": "banana"})
            assert len(index.search("banana")) == 1
            store.retract()
            assert len(index.search("banana")) == 0
            store.append_message({"role": "user", "content": "cherry"})
            store.append_message({"role": "user", "content": "banana"})
            store.append_message({"role": "user", "content": "date"})
            store.retract(2)
            assert [len(index.search(word)) for word in ("apple", "banana", "cherry", "date")] == [1, 0, 1, 0]
            index.rebuild()
            assert [len(index.search(word)) for word in ("apple", "banana", "cherry", "date")] == [1, 0, 1, 0]


def test_a_page_does_not_show_what_was_retracted(tmp_path):
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(
            messages=[{"role": "user", "content": "apple"}, {"role": "user", "content": "banana"}], features=RETRACT
        )
        store.retract()
        store.replace_transcript([{"role": "user", "content": "cherry"}])
    write_page(tmp_path / "c", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert ("apple" in page, "banana" in page, "cherry" in page) == (True, False, True)


def test_the_rescue_program_leaves_it_out(store, capsys):
    store.retract(2)
    store.append_message(THREE)
    store.close()
    assert rescue.main(Path(store.directory)) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [ONE, TWO, {"n": 4}, THREE]


# ---- cost, threads, many -----------------------------------------------------------------------------------------------


def test_at_random_every_reader_agrees(tmp_path):
    """Appends, events, batches and retractions, beside a list."""
    rng, number = random.Random(21), 0
    expected: list[Any] = []
    with ConversationStore(tmp_path / "c", durability="process-crash", cache_bytes=2000) as store:
        store.initialize(features=RETRACT)
        for step in range(400):
            kind = rng.choice(["append", "batch", "event", "retract", "retract"])
            if kind == "retract" and expected:
                count = rng.randint(1, min(4, len(expected)))
                store.retract(count)
                del expected[-count:]
            elif kind == "event":
                store.append_event({"step": step})
            else:
                new = [{"n": number + k} for k in range(3 if kind == "batch" else 1)]
                number += len(new)
                store.append_messages(new)
                expected += new
            if step % 40 == 39:
                assert store.get_messages() == expected
                kept = sorted(rng.sample(range(1, store.record_count + 1), store.record_count * 9 // 10))
                if step == 199:
                    before = {record.seq: record for record in store.get_records()}
                    has_all = [seq for seq in before if before[seq].retracts is not None or seq in kept]
                    store.keep_records(has_all)
                    expected = [before[q].message for q in has_all if before[q].message and not before[q].is_retracted]
        expect(store, expected)


def test_threads_retract_what_others_append(tmp_path):
    """P22: each retraction takes back one message that counts; no two of them take the same."""
    with ConversationStore(tmp_path / "c", durability="process-crash") as store:
        store.initialize(messages=[{"n": n} for n in range(100)], features=RETRACT)

        def work(number: int) -> None:
            for k in range(20):
                store.append_message({"thread": number, "k": k})
                store.retract()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store.get_messages()) == 100
        assert sum(record.is_retracted for record in store.get_records()) == 100
        expect(store, store.get_messages())


def test_a_pop_costs_an_append_however_long_the_conversation_is(tmp_path):
    """It reads the end of the file and writes one line: no generation, no archive."""
    with ConversationStore(tmp_path / "c", durability="process-crash") as store:
        store.initialize(messages=[{"role": "user", "content": "x" * 1000}] * 3000, features=RETRACT)
    size = os.path.getsize(tmp_path / "c/transcript.jsonl")
    with ConversationStore(tmp_path / "c", durability="process-crash") as store:
        store.load(verify="tail")
        store.retract()
        assert os.path.getsize(tmp_path / "c/transcript.jsonl") - size < 150
        assert not (tmp_path / "c/archive").exists()
        assert not store.is_fully_verified, "what stands before the end was not read"


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("seed", range(40))
def test_no_repair_retracts_what_was_not_retracted(tmp_path, seed):
    """T3: lines lost, swapped, repeated, changed, glued and put in, at random; whatever is kept, nothing else is hidden."""
    rng = random.Random(seed)
    path = tmp_path / "c"
    with ConversationStore(path, durability="process-crash") as store:
        store.initialize(features=RETRACT)
        for n in range(30):
            store.append_message({"n": n}) if n % 7 else store.append_event({"n": n})
            if rng.random() < 0.4 and (there := len(store.get_messages())):
                store.retract(rng.randint(1, min(3, there)))
        counted = [message["n"] for message in store.get_messages()]
    lines = (path / "transcript.jsonl").read_bytes().splitlines(keepends=True)
    for _ in range(rng.randint(1, 4)):
        k = rng.randrange(0 if rng.random() < 0.2 else 1, len(lines))
        other = rng.randrange(1, len(lines))
        match rng.randrange(5):
            case 0:
                del lines[k]
            case 1:
                lines[k], lines[other] = lines[other], lines[k]
            case 2:
                lines.insert(other, lines[k])
            case 3:
                lines[k] = lines[k].replace(b'"at":"2', b'"at":"3')
            case _:
                lines[k] = lines[k][:-1] + b'{"torn'
    (path / "transcript.jsonl").write_bytes(b"".join(lines))
    kept = {one.record.seq: one for one in salvage(path).found if one.record and one.damage is None}
    mode = "prefix" if seed % 4 == 0 else "salvage"
    repair(path, mode=mode, dry_run=False)  # type: ignore[arg-type]
    with ConversationStore(path) as store:
        store.load()
        shown = [message["n"] for message in store.get_messages()]
        hidden = [record.message["n"] for record in store.get_records() if record.is_retracted and record.message]
    assert not set(hidden) & set(counted), "only what was taken back is hidden"
    whole = [one.record.message["n"] for one in kept.values() if one.record and one.record.message]
    if mode == "salvage":
        assert set(whole) & set(counted) <= set(shown), "and all that counts and is whole is shown"
    assert verify(path).is_intact


def test_the_last_messages_are_read_without_a_look_at_all_that_stands_with_them(tmp_path, monkeypatch):
    """What a get of the last few costs does not depend on the length of the piece that they stand in, nor on how often something was
    taken back before: add, take back, and again, was quadratic.
    """
    calls = decoded = added = 0

    def count(text: bytes | bytearray) -> Any:
        nonlocal calls, decoded
        calls, decoded = calls + 1, decoded + len(text)
        return decode(text)

    def add(self: TakenBack, first: int, last: int) -> None:
        nonlocal added
        added += 1
        real(self, first, last)

    real = TakenBack.add
    monkeypatch.setattr(log_messages, "decode", count)
    monkeypatch.setattr(TakenBack, "add", add)
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[{"n": n, "text": "x" * 1000} for n in range(200)], features=RETRACT)
        store.close()
        store.load()
        assert [message["n"] for message in store.get_messages(last=3)] == [197, 198, 199]
        assert 3000 < decoded < 3500
        assert calls == 1, "the last messages are decoded together"
        for n in range(60):
            store.append_messages([{"kept": n}, {"gone": n}])
            store.retract()
        added = 0
        store.append_messages([{"kept": 60}, {"gone": 60}])
        store.retract()
        assert store.get_messages(last=61) == [{"kept": n} for n in range(61)]
        assert added <= 70, "once for each that is read, and not for each at each call"
        assert [record.message for record in store.get_records(last=3)] == [{"kept": 60}, {"gone": 60}, None]


def test_each_of_many_that_are_retracted_one_by_one_costs_the_same(tmp_path):
    """Also of those that stand together, as a load or one append leaves them: the hundredth looked at the ninety-nine before it again."""

    def calls_of_a_retraction(store: ConversationStore) -> int:
        calls = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            store.retract()
        finally:
            sys.setprofile(None)
        return calls

    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[{"n": n} for n in range(150)], features=RETRACT)
        costs = [calls_of_a_retraction(store) for _ in range(140)]
        assert max(costs[2:]) <= costs[2] + 20, "a search among the blocks that are held is all that grows"
        assert store.get_messages() == [{"n": n} for n in range(10)]
        assert store.get_messages(last=3) == [{"n": n} for n in range(7, 10)]


@for_each("seed", range(30))
def test_only_retracted_messages_are_left_out_of_a_range(seed):
    """Whoever decodes a stretch together leaves out the same records as whoever asks of each, wherever the ranges begin and end."""
    chance = random.Random(seed)
    taken_back = TakenBack()
    for _ in range(chance.randrange(6)):
        first = chance.randrange(1, 40)
        taken_back.add(first, first + chance.randrange(8))
    for before in range(40):
        numbers = list(range(before + 1, before + 1 + chance.randrange(12)))
        left = [seq for seq in numbers if seq not in taken_back]
        taken_back.leave_out(numbers, before)
        assert numbers == left


def test_what_is_retracted_before_the_first_that_is_asked_for_is_not_forgotten(store):
    """The mutant: what a reader of the end was told of retractions was kept as all that there are."""
    store.retract()
    for _ in range(4):
        store.append_message({"text": "x" * 500_000})  # so that the end is not read together with what stands before
    with ConversationStore(store.directory, read_only=True, cache_bytes=0) as reader:
        reader.load()
        assert len(list(reader.iter_records(after_seq=10))) == 1
        assert [message for message in in_force(reader.get_records()) if "n" in message][-1] == {"n": 5}
