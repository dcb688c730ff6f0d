"""Attacks without the key on records after the mark, which no reader may accept as genuine.

The incident: mutants. The rows of tests/sealed/attacks.py are all refused by whoever reads everything, and each of these is met by
one look alone. So each is read by every way of its own here.
"""

import json

import pytest

from tests.kit.cases import for_each
from tests.sealed.attacks import rechained, repaired_as
from tests.sealed.conversations import FOLDER, ID, KEY, MESSAGES, TRANSCRIPT, content, lines, opened, sealed
from transcript_store import ConversationStore, CorruptTranscriptError, repair
from transcript_store.testing import SimulatedFileSystem


def written():
    """Four messages and two retractions, of which the second takes back what stands at both sides of the first."""
    disk = SimulatedFileSystem()
    with opened(disk) as store:
        store.initialize(id=ID, features=["retract"])
    store = opened(disk)  # and is killed: no mark covers these
    store.load()
    store.append_messages(MESSAGES[:3])
    store.retract()
    store.append_message(MESSAGES[3])
    store.retract(2)
    assert store.get_messages() == MESSAGES[:1]
    return disk


def changed(number, what, becomes):
    """One record's line, with every hash computed anew."""
    disk = written()
    found = lines(disk)
    assert what in found[number]
    found[number] = found[number].replace(what, becomes)
    disk.write_file(TRANSCRIPT, rechained(found))
    return disk


def of_an_earlier_generation(claim=b',"sealed_at":[0,1]'):
    """A record of the generation before as the first of this one, which says where it was sealed."""
    disk = SimulatedFileSystem()
    with opened(disk) as store:
        store.initialize(id=ID, messages=MESSAGES[:1])
        before = lines(disk)[1]
        store.replace_transcript([])
    store = opened(disk)
    store.load()
    store.append_message(MESSAGES[1])
    again = before[: before.rindex(b',"hash":')] + claim + b',"hash":""}'
    disk.write_file(TRANSCRIPT, rechained([lines(disk)[0], again]))
    return disk


FORGED = {
    "a member behind what is sealed": lambda: changed(1, b'","batch"', b'","x":1,"batch"'),
    "a byte more in what is sealed": lambda: changed(1, b'"sealed":"', b'"sealed":"!'),
    "a message that takes others back in sight": lambda: changed(5, b',"sealed":', b',"retracts":[1,1],"sealed":'),
    "a message that takes nothing back in sight": lambda: changed(5, b',"sealed":', b',"retracts":[],"sealed":'),
    "a retraction that names more in sight, and was taken back": lambda: changed(
        4, b'"retracts":[3,3]', b'"retracts":[1,3]'
    ),
    "one of an earlier generation that says so": of_an_earlier_generation,
    "one of an earlier generation that does not": lambda: of_an_earlier_generation(b""),
}
READS = {
    "messages": ConversationStore.get_messages,
    "the last messages": lambda store: store.get_messages(last=4),
    "records": ConversationStore.get_records,
    "each record": lambda store: [*store.iter_records()],
}


@for_each("read", READS)
@for_each("forged", FORGED)
def test_what_was_changed_behind_the_mark_is_refused_by_whoever_reads_it(forged, read):
    """P17: with and without what is in memory."""
    disk = FORGED[forged]()
    for cache_bytes in (0, 1 << 20):
        with opened(disk.copy(), cache_bytes=cache_bytes, read_only=True) as store:
            with pytest.raises(CorruptTranscriptError) as raised:
                store.load()
                READS[read](store)
            assert raised.value.kind == "not-genuine"


def test_a_repair_without_the_key_leaves_out_what_stands_there_again_or_too_late():
    """Records that somebody copied and turned round, and a line that is damaged. Each record says where it was sealed."""
    disk = sealed().copy()
    repaired_as(disk, [1, 1, 2, 1, 3, 2])
    disk.write_file(TRANSCRIPT, content(disk) + b"damaged\n")
    done = repair(FOLDER, mode="salvage", dry_run=False, file_system=disk)
    assert (done.records_kept, done.records_left_out) == (3, 3)
    assert [json.loads(line)["sealed_at"] for line in lines(disk)[1:]] == [[0, 1], [0, 2], [0, 3]]
    with opened(disk) as store:
        store.load(accept_unkeyed_repair=True)
        assert store.get_messages() == MESSAGES[:3]


def test_a_clock_that_is_far_back_is_kept_with_what_is_sealed():
    """Of a message, an event and a retraction: in sight stands the time of the record before, and the clock comes back with the key."""
    disk = SimulatedFileSystem()
    with opened(disk) as store:
        store.initialize(id=ID, features=["retract"], messages=MESSAGES[:2])
        disk.clock_us -= 3 * 86_400_000_000
        store.append_message(MESSAGES[2])
        store.append_event({"event": 1})
        store.retract()
        assert b'"clock"' not in content(disk)
        assert store.get_messages() == MESSAGES[:2]
    with ConversationStore(FOLDER, encryption_key=KEY, file_system=disk) as store:
        store.load()
        assert store.get_messages() == MESSAGES[:2]
        store.unseal()
    found = [json.loads(line) for line in lines(disk)[1:]]
    assert ["clock" in record for record in found] == [False, False, True, True, True]
    assert all(record["clock"] < record["at"] for record in found[2:])
    assert found[-1]["retracts"] == [3, 3]
