"""The last messages, wherever the lines stand that they are taken from: in memory as they were appended, in memory as they were read, or
in the file. What was taken back before is passed over, and nothing else is.

The incident: mutants of the search from the end, of which a few showed a message less, in a state that no test had made.
"""

import random

import pytest

from tests.kit.cases import for_each
from transcript_store import ConversationStore, verify
from transcript_store._log.record import close_line
from transcript_store.testing import FileSystemCall, SimulatedFileSystem

FOLDER = "/chat"


def interrupt_the_next_append(disk: SimulatedFileSystem, store: ConversationStore) -> None:
    """A signal before its write: nothing of it is there, and the next call reads the file from the last sync on."""

    def on_call(call: FileSystemCall) -> None:
        if call.name == "write":
            raise KeyboardInterrupt

    disk.on_call = on_call
    with pytest.raises(KeyboardInterrupt):
        store.append_message({"never": "stored"})
    disk.on_call = None


@pytest.mark.parametrize("synced", [False, True])
def test_what_was_appended_behind_what_is_passed_over_is_found_after_a_look_again(synced):
    """The block that is read again starts at or before the start of the skipped tail, and ends after it."""
    disk = SimulatedFileSystem()
    with ConversationStore(FOLDER, file_system=disk, durability="process-crash") as store:
        store.initialize(features=["retract"], messages=[{"n": 1}])
        store.append_message({"n": 2})
        if synced:
            store.update_metadata(labels={"title": "t"})  # syncs what was appended
        store.retract()
        store.append_message({"n": 4})
        interrupt_the_next_append(disk, store)
        store.append_message({"n": 5})
        assert store.get_messages(last=9) == [{"n": 1}, {"n": 4}, {"n": 5}]
        store.retract(3)
        assert store.get_messages() == store.get_messages(last=1) == []


@for_each("seed", range(8))
def test_the_last_so_many_are_the_last_of_all(seed):
    """Appends, batches, events and retractions at random, short and long, with any cache, with loads and looks again between."""
    chance = random.Random(seed)
    disk = SimulatedFileSystem()
    cache_bytes = chance.choice([0, 1500, 20_000, 1 << 23])
    store = ConversationStore(
        FOLDER, file_system=disk, durability=chance.choice(["power-loss", "process-crash"]), cache_bytes=cache_bytes
    )
    store.initialize(features=["retract"], messages=[{"n": -1}] * chance.randrange(4))
    lengths = [0, 300, 5000] if seed % 4 else [0, 70_000]
    said = store.get_messages()
    records = len(said)
    for n in range(40):
        text = "x" * chance.choice(lengths)
        kind = chance.randrange(11)
        if kind < 4:
            store.append_message({"n": n, "text": text})
            said, records = [*said, {"n": n, "text": text}], records + 1
        elif kind == 4:
            together = [{"n": n, "k": k, "text": text[:500]} for k in range(chance.randrange(1, 5))]
            store.append_messages(together)
            said, records = said + together, records + len(together)
        elif kind == 5:
            store.append_event({"message": {"n": n}, "text": text})
            records += 1
        elif kind < 9 and said:
            count = chance.randrange(1, min(len(said), 4) + 1)
            store.retract(count)
            said, records = said[:-count], records + 1
        elif kind == 9:
            store.load(verify=chance.choice(["tail", "all"]))
        elif kind == 10:
            interrupt_the_next_append(disk, store)
        last = chance.randrange(6)
        assert store.get_messages(last=last) == said[max(0, len(said) - last) :]
        assert [record.seq for record in store.get_records(last=last)] == [*range(1, records + 1)][
            max(0, records - last) :
        ]
        if n % 6 == 0:
            assert store.get_messages() == said
            after = chance.randrange(records + 1)
            assert [one.seq for one in store.iter_records(after_seq=after)] == [*range(after + 1, records + 1)]
    assert store.get_messages() == said
    in_force = [one.message for one in store.get_records() if one.message is not None and not one.is_retracted]
    assert in_force == said
    store.close()
    assert verify(FOLDER, file_system=disk).is_intact


def test_a_message_counts_whatever_the_members_in_front_of_it():
    """A program that knows the format, and that writes the time behind the message."""
    disk = SimulatedFileSystem()
    with ConversationStore(FOLDER, file_system=disk) as store:
        store.initialize(features=["retract"], messages=[{"n": 1}])
        head, at = store.head.encode(), store.get_records()[0].at.encode()
    line, _ = close_line(head, b'{"seq":2,"message":{"n":2},"at":"%b"' % at)
    disk.write_file(f"{FOLDER}/transcript.jsonl", (disk.tree()[f"{FOLDER}/transcript.jsonl"] or b"") + line)
    with ConversationStore(FOLDER, file_system=disk) as store:
        store.load()
        assert store.get_messages() == [{"n": 1}, {"n": 2}]
        store.retract()
        assert store.get_messages() == [{"n": 1}]
        assert store.get_records()[-1].retracts == (2, 2)
