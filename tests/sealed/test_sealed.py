"""A sealed conversation: with its key it is a conversation as any other; without it nothing of what was said is there.

Promises: P17 for live conversations, P18 (nothing of the content in an error, a log or a file), P20 (an earlier version refuses it).
"""

import base64
import copy
import errno
import hashlib
import hmac
import json
import logging
import traceback

import pytest

from tests.kit.cases import for_each
from tests.sealed.attacks import (
    ATTACKS,
    OTHERS,
    append_plain,
    append_plain_retraction,
    forge_the_archive,
    repaired_as,
    with_hash,
    without_key,
)
from tests.sealed.conversations import (
    CANARY,
    FIRST_ARCHIVED,
    FOLDER,
    ID,
    KEY,
    KEY_FILE,
    MESSAGES,
    METADATA,
    OTHER_KEY,
    TRANSCRIPT,
    content,
    lines,
    opened,
    sealed,
)
from transcript_store import (
    ConversationLibrary,
    ConversationShreddedError,
    ConversationStore,
    CorruptMetadataError,
    CorruptTranscriptError,
    DataKeyExhaustedError,
    InvalidMetadataError,
    KeyNeededError,
    KeyProviderError,
    NotSealedError,
    PoisonedError,
    TranscriptStoreError,
    UnsupportedVersionError,
    WrongKeyError,
    repair,
    salvage,
    verify,
)
from transcript_store.testing import SimulatedFileSystem

LIBRARY = "/library"


def refused(disk, **options):
    """The error of a load with the key, and of every read behind it."""
    with pytest.raises(TranscriptStoreError) as raised, opened(disk.copy(), **options) as store:
        store.load()
        store.get_records()
        store.get_messages()
        for generation in store.generations()[:-1]:
            store.get_records(generation=generation.number)
    assert CANARY not in "".join(traceback.format_exception(raised.value))
    return raised.value


# ---- with the key ----------------------------------------------------------------------------------------------------


@for_each("replaced", [False, True])
@for_each("options", [{}, {"cache_bytes": 0}, {"read_only": True}, {"hold_lock": False}])
def test_with_its_key_it_is_a_conversation_as_any_other(replaced, options):
    """Messages, extras, events, retractions and metadata come back as they were given, from memory and from the disk."""
    with opened(sealed(replaced=replaced), **options) as store:
        store.load()
        assert store.get_messages() == MESSAGES
        assert store.get_messages(last=2) == MESSAGES[2:]
        records = store.get_records()
        assert [record.extra for record in records] == [
            None,
            None,
            {"usage": CANARY},
            {"marker": CANARY},
            None,
            None,
            None,
        ]
        assert [record.is_retracted for record in records] == [False] * 5 + [True, False]
        assert records[-1].retracts == (6, 6)
        assert list(store.iter_records(after_seq=3)) == records[3:]
        for metadata in (store.get_metadata(), store.get_metadata(at_start=True)):
            assert metadata.system_prompt == f"{CANARY} prompt"
            assert metadata.labels == {"title": f"{CANARY} title"}
            assert metadata.sealed
        if replaced:
            assert [record.message for record in store.get_records(generation=0)] == MESSAGES[:2]


def test_what_was_appended_since_is_refreshed_by_a_reader():
    disk = sealed()
    with opened(disk) as writer, opened(disk, read_only=True) as reader:
        writer.load()
        reader.load()
        writer.append_message({"content": "more"})
        writer.update_metadata(system_prompt="another")
        assert reader.refresh().records_added == 1
        assert reader.get_messages()[-1] == {"content": "more"}
        assert reader.get_metadata().system_prompt == "another"


def test_two_take_turns_at_it_without_loading_each_time():
    disk = sealed()
    with opened(disk, hold_lock=False) as one, opened(disk.another_process(), hold_lock=False) as other:
        one.load()
        other.load()
        for number in range(3):
            one.append_message({"one": number})
            other.append_message({"other": number})
        other.update_metadata(labels={"title": "new"})
        assert one.get_metadata().labels == {"title": "new"}
        assert len(one.get_messages()) == len(other.get_messages()) == 10


def test_metadata_is_sealed_anew_only_when_it_changes():
    """A nonce is spent on a change, and not on a mark."""
    disk = sealed()
    before = json.loads(content(disk, METADATA))
    with opened(disk) as store:
        store.load()
        store.append_message({})
    assert json.loads(content(disk, METADATA))["sealed"] == before["sealed"]
    with opened(disk) as store:
        store.load()
        store.update_metadata(replace_labels={})
    assert json.loads(content(disk, METADATA))["sealed"] != before["sealed"]


def test_no_nonce_is_used_twice_though_a_number_is():
    """After a crash a record is written again under its number, with another message."""
    disk, nonces = sealed(), set()
    for attempt in range(5):
        again = disk.copy()
        with opened(again) as store:
            store.load()
            store.append_message({"attempt": attempt})
        nonces |= {base64.b64decode(json.loads(line)["sealed"])[:12] for line in lines(again)[-1:]}
        disk.clock_us += 1
        disk.random_bytes(8)
    assert len(nonces) == 5


def test_the_data_key_seals_no_more_than_it_may(monkeypatch):
    disk = sealed()
    monkeypatch.setattr("transcript_store._sealing.data_key.MOST_SEALS", 12)
    with opened(disk) as store:
        store.load()
        store.append_messages([{}, {}])
        with pytest.raises(DataKeyExhaustedError):
            store.append_messages([{}, {}, {}])
        with pytest.raises(DataKeyExhaustedError):
            store.replace_transcript([{}, {}])  # and the metadata
        store.append_messages([{}, {}])
        for call in (
            lambda: store.append_message({}),
            lambda: store.update_metadata(model="m"),
            lambda: store.replace_transcript([]),
            store.retract,
        ):
            with pytest.raises(DataKeyExhaustedError):
                call()
        count = store.record_count
    fork = ConversationLibrary(LIBRARY, encryption_key=KEY, file_system=disk).fork(ID, through_seq=2)
    with ConversationLibrary(LIBRARY, encryption_key=KEY, file_system=disk).open(fork) as store:
        store.append_message({})
    assert count == 11


@pytest.mark.parametrize(
    ("seals", "call"),
    [
        (1, lambda store: store.append_message({})),
        (2, lambda store: store.append_messages([{}, {}])),
        (1, lambda store: store.retract()),
        (1, lambda store: store.update_metadata(model="m")),
        (1, lambda store: store.replace_transcript([])),
        (3, lambda store: store.replace_transcript([{}, {}])),  # with the metadata
        (3, lambda store: store.keep_records([1, 2])),
        (0, lambda store: store.unseal()),
    ],
)
def test_what_the_data_key_may_seal_just_so_often_is_done(monkeypatch, seals, call):
    """Each call is done if there are as many seals left as it needs, and with one less it is refused, and nothing is changed."""
    disk = sealed()
    with opened(disk) as store:
        store.load()
        monkeypatch.setattr("transcript_store._sealing.data_key.MOST_SEALS", 0)
        with pytest.raises(DataKeyExhaustedError) as told:
            store.append_message({})
        monkeypatch.setattr("transcript_store._sealing.data_key.MOST_SEALS", told.value.count + seals - 1)
        before = disk.tree()
        with pytest.raises(DataKeyExhaustedError):
            call(store)
        assert disk.tree() == before
        monkeypatch.setattr("transcript_store._sealing.data_key.MOST_SEALS", told.value.count + seals)
        call(store)


def test_what_is_sealed_of_a_plain_conversation_is_counted(monkeypatch):
    """Each record, and the metadata."""
    disk = SimulatedFileSystem()
    with opened(disk, None) as store:
        store.initialize(id=ID, messages=MESSAGES)
    with opened(disk) as store:
        store.seal()
        monkeypatch.setattr("transcript_store._sealing.data_key.MOST_SEALS", 0)
        with pytest.raises(DataKeyExhaustedError) as told:
            store.append_message({})
    assert told.value.count == 2 * len(MESSAGES) + 1  # the plain ones are counted too: rather one too many


def test_a_transcript_that_was_cut_is_not_unsealed():
    """P10: the file is looked at first. Otherwise what is gone would be missing in the next generation, and nobody told."""
    disk = sealed()
    with opened(disk) as store:
        store.load()
        disk.write_file(TRANSCRIPT, content(disk)[:-1])
        before = disk.tree()
        with pytest.raises(CorruptTranscriptError) as told:
            store.unseal()
        assert told.value.kind == "truncated"
        assert disk.tree() == before


def test_nothing_is_sealed_behind_a_sync_that_failed_while_it_was_loaded():
    """P5: the load needs no mark, so it says nothing; but from the failed sync on this writer writes nothing more."""
    disk = SimulatedFileSystem()
    store = opened(disk, None)
    store.initialize(id=ID, messages=MESSAGES)
    store.append_message({"content": "behind the mark"})
    disk = disk.kill_process()
    calls = []

    def fail(call):
        calls.append((call.name, call.path))
        if call.name.startswith("sync") and ("rename", METADATA) in calls:
            raise OSError(errno.EIO, "refused")

    disk.on_call = fail
    before = disk.tree()
    with opened(disk) as store, pytest.raises(PoisonedError):
        store.seal()
    assert ("rename", METADATA) in calls
    assert KEY_FILE not in disk.tree()
    assert disk.tree()[TRANSCRIPT] == before[TRANSCRIPT]


# ---- without the key -------------------------------------------------------------------------------------------------


def test_without_its_key_it_is_verified_listed_repaired_and_copied_and_never_read():
    disk = sealed(replaced=True)
    assert verify(FOLDER, file_system=disk).is_intact
    (summary,) = ConversationLibrary(LIBRARY, file_system=disk).list()
    assert (summary.id, summary.sealed, summary.title, summary.record_count) == (ID, True, None, 7)
    assert (summary.provider, summary.model, summary.damage) == ("claude", "m-1", None)
    with opened(disk, None) as store:
        store.load()
        assert store.record_count == 7
        assert store.get_metadata().sealed
        assert store.get_metadata().system_prompt is None
        for call in (
            store.get_messages,
            store.get_records,
            lambda: store.get_messages(last=1),
            lambda: list(store.iter_records()),
            store.state,
            lambda: store.append_message({"role": "user"}),
            lambda: store.replace_transcript([]),
            lambda: store.keep_records([1]),
            lambda: store.update_metadata(model="m"),
            lambda: store.delete_generation(0),
            store.retract,
            store.unseal,
        ):
            with pytest.raises(KeyNeededError):
                call()
    assert repair(FOLDER, file_system=disk).findings == ()
    found = salvage(FOLDER, file_system=disk)
    assert CANARY not in repr(found)
    with opened(disk) as store:
        store.load()
        assert store.get_messages() == MESSAGES


def test_a_torn_tail_is_cut_without_the_key_and_the_key_accepts_that():
    disk = sealed()
    with opened(disk) as store:
        store.load()
        store.append_message({"content": "last"})
    disk.write_file(TRANSCRIPT, content(disk) + b'{"seq":9,"at":"2026')
    with opened(disk, None) as store:
        store.load()
        assert store.recovery is not None
        assert store.recovery.torn_bytes == 19
    with opened(disk) as store:
        store.load()
        assert store.get_messages()[-1] == {"content": "last"}


def test_nothing_of_what_was_said_is_in_any_file_log_or_temporary(caplog):
    """P18: a canary in every message, prompt, label, tool and extra, through every operation."""
    caplog.set_level(logging.DEBUG)
    disk = sealed(replaced=True)
    seen = []
    with opened(disk) as store:
        store.load()
        store.replace_transcript(MESSAGES, system_prompt=f"{CANARY} again")
        seen.append(disk.tree())
        store.keep_records([2])
        store.update_metadata(labels={"title": f"{CANARY} other"})
        store.delete_generation(0)
    library = ConversationLibrary(LIBRARY, encryption_key=KEY, file_system=disk)
    library.fork(ID)
    disk.write_file(TRANSCRIPT, content(disk)[:-50])
    repair(FOLDER, mode="salvage", dry_run=False, file_system=disk)
    seen.append(disk.tree())
    for tree in seen:
        assert not [path for path, data in tree.items() if data and CANARY.encode() in data]
        assert not [path for path, data in tree.items() if data and base64.b64encode(CANARY.encode())[:12] in data]
    assert CANARY not in caplog.text


def test_what_was_deleted_does_not_excuse_what_stood_between(tmp_path):
    """P18: the generations before it and behind it were deleted with the key; without it nobody can take it away unnoticed."""
    with ConversationStore(tmp_path / "c", encryption_key=KEY) as store:
        store.initialize(messages=MESSAGES)
        for _ in range(3):
            store.replace_transcript(MESSAGES)
        store.delete_generation(0)
        store.delete_generation(2)
        store.close()
        store.load()
        store.close()
        (tmp_path / "c/archive/transcript-000001.jsonl").unlink()
        with pytest.raises(CorruptTranscriptError, match="generation 1 is missing"):
            store.load()


def test_a_version_that_does_not_know_it_refuses_the_file(monkeypatch):
    """P20: it would otherwise show a conversation without messages, and append plain ones."""
    disk = sealed()
    monkeypatch.setattr("transcript_store._log.header.FEATURES", frozenset({"retract"}))
    before = content(disk)
    for read_only in (False, True):
        with opened(disk, None, read_only=read_only) as store, pytest.raises(UnsupportedVersionError, match="sealed"):
            store.load()
    (summary,) = ConversationLibrary(LIBRARY, file_system=disk).list()
    assert summary.damage is not None
    assert "sealed" in summary.damage
    assert content(disk) == before


# ---- keys ------------------------------------------------------------------------------------------------------------


def test_a_wrong_key_a_missing_one_and_a_destroyed_one_are_told_apart():
    disk = sealed()
    assert isinstance(refused(disk, key=OTHER_KEY), WrongKeyError)
    damaged = disk.copy()
    damaged.write_file(KEY_FILE, content(disk, KEY_FILE)[:-9])
    assert refused(damaged).kind == "damaged"
    ConversationLibrary(LIBRARY, file_system=disk).shred(ID)
    assert isinstance(refused(disk), ConversationShreddedError)


def test_a_provider_that_raises_leaves_nothing_half_written():
    class Down:
        id = "vault:1"

        def wrap(self, data_key):
            raise ConnectionError("no route")

        unwrap = wrap

    disk = SimulatedFileSystem()
    store = opened(disk, Down())
    with pytest.raises(KeyProviderError) as raised:
        store.initialize(messages=MESSAGES)
    assert isinstance(raised.value.__cause__, ConnectionError)
    assert disk.tree() == {}


def test_a_key_opens_nothing_that_is_plain():
    """Plaintext is never accepted where sealed is due; and nothing of it is shown."""
    disk = SimulatedFileSystem()
    with opened(disk, None) as store:
        store.initialize(id=ID, messages=MESSAGES)
    assert isinstance(refused(disk), NotSealedError)
    with opened(disk) as store, pytest.raises(NotSealedError):
        store.load_or_initialize()


# ---- what somebody does to the files: docs/encryption.md has the table, attacks.py the deeds ----------------------------


def test_metadata_that_is_forged_while_a_reader_is_open_is_not_taken_in():
    """P17: with the document's own hash made anew, and the keyed check of before. The reader keeps what it has."""
    disk = sealed()
    with opened(disk, read_only=True) as reader:
        reader.load()
        document = json.loads(content(disk, METADATA))
        check = document["check"]
        forged = without_key(disk) | {"provider": "openai"}
        disk.write_file(METADATA, with_hash(json.dumps(forged).encode()[:-1] + b',"check":"%b"' % check.encode()))
        with pytest.raises(CorruptMetadataError) as raised:
            reader.refresh()
        assert raised.value.kind == "not-genuine"
        assert reader.get_metadata().provider == "claude"
        assert reader.get_messages() == MESSAGES


@for_each("replaced", [False, True])
@for_each("attack", ATTACKS)
def test_every_change_without_the_key_is_detected(attack, replaced):
    """P17: each row of the table of attacks."""
    disk = sealed(replaced=replaced).copy()
    attack(disk)
    error = refused(disk)
    assert isinstance(error, CorruptTranscriptError | CorruptMetadataError)
    assert error.kind == ATTACKS[attack]


@for_each("mode", ["prefix", "salvage", "accept-edits"])
@for_each("attack", [append_plain, append_plain_retraction])
def test_a_plain_record_is_found_without_the_key(attack, mode):
    """A load and a verify refuse it; a repair leaves it out, and writes nothing plain."""
    disk = sealed(replaced=True).copy()
    attack(disk)
    with opened(disk, None) as store, pytest.raises(CorruptTranscriptError) as raised:
        store.load()
    assert raised.value.kind == "not-genuine"
    (finding,) = verify(FOLDER, file_system=disk).findings
    assert (finding.kind, finding.line_number) == ("not-genuine", len(lines(disk)))
    done = repair(FOLDER, mode=mode, dry_run=False, file_system=disk)
    assert (done.records_kept, done.records_left_out, done.gaps) == (7, 1, ())
    assert b"forged" not in content(disk)
    assert verify(FOLDER, file_system=disk).is_intact
    with opened(disk) as store:
        store.load(accept_unkeyed_repair=True)
        assert store.get_messages() == MESSAGES


@for_each("attack", OTHERS)
def test_every_file_replaced_without_the_key_is_detected(attack):
    """P17: the rows about whole files."""
    disk = sealed(replaced=True).copy()
    attack(disk)
    if attack is forge_the_archive:
        with opened(disk) as store, pytest.raises(CorruptTranscriptError):
            store.load()
            store.get_records(generation=0)
    else:
        assert isinstance(refused(disk), OTHERS[attack])


def test_the_first_records_of_a_generation_cannot_be_cut_off_with_an_earlier_mark():
    """A replace that was cut off before it wrote metadata.json: the mark is of the generation before, and genuine."""
    disk = sealed()
    earlier = content(disk, METADATA)
    with opened(disk) as store:
        store.load()
        store.replace_transcript(MESSAGES)
    disk = disk.copy()
    disk.write_file(METADATA, earlier)
    with opened(disk.copy()) as store:  # that alone is what a crash leaves
        store.load()
        assert store.get_messages() == MESSAGES
    disk.write_file(TRANSCRIPT, b"".join(line + b"\n" for line in lines(disk)[:3]))
    assert refused(disk).kind == "truncated"


def small():
    """One message in each of two generations, in the fewest bytes."""
    disk = SimulatedFileSystem()
    with opened(disk) as store:
        store.initialize(id=ID, messages=MESSAGES[:1])
        store.replace_transcript(MESSAGES[1:2])
    return disk


def flips(disk, every):
    for path in (TRANSCRIPT, METADATA, KEY_FILE, FIRST_ARCHIVED):
        data = content(disk, path)
        for at in range(0, len(data), every):
            yield path, data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :], at


@pytest.mark.parametrize(
    ("make", "every"),
    [(small, 31), pytest.param(small, 1, marks=pytest.mark.long), pytest.param(sealed, 13, marks=pytest.mark.long)],
)
def test_no_byte_of_a_sealed_file_changes_unseen(make, every):
    """P17: a bit of each byte flipped is refused, and nothing else is ever shown. (``long``: every byte of a small conversation.)"""
    disk = make(replaced=True) if make is sealed else make()
    size = sum(len(content(disk, path)) for path in (TRANSCRIPT, METADATA, KEY_FILE, FIRST_ARCHIVED))
    count = 0
    for path, data, at in flips(disk, every):
        other = disk.copy()
        other.write_file(path, data)
        with opened(other) as store, pytest.raises(TranscriptStoreError) as raised:
            store.load()
            store.get_records(generation=0)
            pytest.fail(f"byte {at} of {path} was changed unseen")
        assert CANARY not in str(raised.value)
        count += 1
    assert count >= size // every


# ---- repair without the key ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["prefix", "salvage", "accept-edits"])
def test_a_repair_without_the_key_writes_nothing_plain_and_counts_only_when_it_is_accepted(mode):
    """What is whole is kept as it is; what somebody glued in between, plain, is not."""
    disk = sealed(replaced=True).copy()
    found = lines(disk)
    found[3] = found[3][:60] + b'"},"message":{"role":"user","content":"forged"}' + found[3][60:]
    found.insert(2, b'{"role":"user","content":"forged too"}')
    data = b"".join(line + b"\n" for line in found)
    disk.write_file(TRANSCRIPT, data)
    done = repair(FOLDER, mode=mode, dry_run=False, file_system=disk)
    assert done.applied
    assert verify(FOLDER, file_system=disk).is_intact
    assert b"forged" not in content(disk)
    assert b'"message"' not in content(disk)
    assert (done.records_kept, done.records_left_out) == ((1, 5) if mode == "prefix" else (6, 0))
    told = [data[gap.offset_bytes :][: gap.length_bytes] for gap in done.gaps]
    assert told == ([b"\n".join(found[2:])] if mode == "prefix" else [found[2], found[4]])
    assert refused(disk).kind == "unkeyed-repair"
    for _ in range(2):  # the second time without being asked
        with opened(disk, read_only=_ == 0) as store:
            with pytest.raises(CorruptTranscriptError):
                store.load()
            store.load(accept_unkeyed_repair=True)
            kept = store.get_messages()
    assert kept == (MESSAGES[:1] if mode == "prefix" else [MESSAGES[0], MESSAGES[1], MESSAGES[3]])
    with opened(disk) as store:
        store.load()
        assert store.get_messages() == kept
        store.append_message({"content": "after"})
        store.replace_transcript(store.get_messages())
        assert store.get_messages() == [*kept, {"content": "after"}]


def test_a_repair_of_a_repair_keeps_where_each_record_was_sealed():
    disk = sealed().copy()
    for _ in range(2):
        found = lines(disk)
        found[2] = found[2].replace(b'"sealed":"', b'"sealed":"!')
        disk.write_file(TRANSCRIPT, b"".join(line + b"\n" for line in found))
        repair(FOLDER, mode="salvage", dry_run=False, file_system=disk)
    assert [json.loads(line)["sealed_at"] for line in lines(disk)[1:]] == [[0, seq] for seq in (1, 4, 5, 6, 7)]
    with opened(disk) as store:
        store.load(accept_unkeyed_repair=True)
        assert store.get_messages() == [MESSAGES[0], MESSAGES[3]]
        assert store.get_records()[-1].retracts == (4, 4)


@for_each("kept", [[3, 2, 1], [1, 1, 2], [2, 1], [1, 2, 4, 4]])
def test_a_repair_without_the_key_cannot_turn_records_round_or_repeat_them(kept):
    """P17: also if it is accepted. What it may do is leave records out."""
    disk = sealed().copy()
    repaired_as(disk, kept)
    for read_only in (True, False):
        with opened(disk, read_only=read_only) as store, pytest.raises(CorruptTranscriptError) as raised:
            store.load(accept_unkeyed_repair=True)
        assert raised.value.kind == "not-genuine"
    disk = sealed().copy()
    repaired_as(disk, [1, 3])
    with opened(disk) as store:
        store.load(accept_unkeyed_repair=True)
        assert store.get_messages() == [MESSAGES[0], MESSAGES[2]]


# ---- seal and unseal -------------------------------------------------------------------------------------------------


def plain():
    disk = SimulatedFileSystem()
    with opened(disk, None) as store:
        store.initialize(id=ID, messages=MESSAGES[:2], system_prompt=CANARY, features=["retract"])
        store.replace_transcript(MESSAGES)
        store.append_event({"marker": CANARY})
    disk.write_file(TRANSCRIPT, content(disk) + b'{"seq":6,"at":"' + CANARY.encode())
    return disk


def traces(disk):
    return [path for path, data in disk.tree().items() if data and CANARY.encode() in data]


def test_seal_leaves_nothing_plain_and_unseal_brings_all_of_it_back():
    disk = plain()
    with opened(disk) as store:
        store.seal()
        assert store.get_messages() == MESSAGES
        assert [generation.number for generation in store.generations()] == [2]
    assert traces(disk) == []
    assert verify(FOLDER, file_system=disk).is_intact
    with opened(disk) as store:
        store.load()
        records = store.get_records()
        store.unseal()
    with opened(disk, None) as store:
        store.load()
        assert store.get_records() == records
        assert store.get_metadata().system_prompt == CANARY
        assert not store.get_metadata().sealed
    with opened(disk) as store:
        store.seal()
        assert store.get_records() == records
        assert store.get_records(generation=2) == records


def test_seal_keeps_what_is_plain_if_it_is_asked_to_and_removes_it_when_called_again():
    disk = plain()
    with opened(disk) as store:
        store.seal(keep_plain=True)
        assert [record.message for record in store.get_records(generation=0)] == MESSAGES[:2]
    assert len(traces(disk)) == 3
    with opened(disk) as store:
        store.seal()
    assert traces(disk) == []


def test_a_seal_that_is_refused_leaves_the_plain_one_as_it_was(monkeypatch):
    disk = SimulatedFileSystem()
    with opened(disk, None) as store:
        store.initialize(id=ID, messages=MESSAGES, system_prompt="x" * 30_000)
    before = {path: data for path, data in disk.tree().items() if not path.endswith("/lock")}
    monkeypatch.setattr("transcript_store._conversation.metadata.LONGEST_METADATA_BYTES", (1 << 20) + 36_000)
    with opened(disk) as store, pytest.raises(InvalidMetadataError):
        store.seal()
    assert {path: data for path, data in disk.tree().items() if not path.endswith("/lock")} == before


def test_seal_needs_a_key():
    with opened(plain(), None) as store, pytest.raises(ValueError, match="encryption_key"):
        store.seal()


# ---- libraries -------------------------------------------------------------------------------------------------------


def library(disk, key=KEY, retired=()):
    return ConversationLibrary(LIBRARY, encryption_key=key, retired_keys=retired, file_system=disk)


def test_a_fork_and_a_group_are_sealed_with_data_keys_of_their_own():
    disk = sealed()
    fork = library(disk).fork(ID)
    with library(disk).group() as group:
        other = group.add(messages=MESSAGES)
        with group.adding(messages=MESSAGES[:1]) as store:
            store.append_message(MESSAGES[1])
            third = store.id
    for one, messages in ((fork, MESSAGES), (other, MESSAGES), (third, MESSAGES[:2])):
        with library(disk).open(one) as store:
            assert store.get_messages() == messages
    wrapped = {content(disk, f"{LIBRARY}/{one}/key.json") for one in (ID, fork, other, third)}
    assert len(wrapped) == 4
    assert traces(disk) == []


def test_a_fork_never_makes_plain_what_is_sealed():
    disk = sealed()
    plain_library = ConversationLibrary("/plain", file_system=disk)
    with pytest.raises(KeyNeededError):
        library(disk).fork(ID, into=plain_library)
    with pytest.raises(KeyNeededError):
        ConversationLibrary(LIBRARY, file_system=disk).fork(ID)
    fork = library(disk).fork(ID, into="/plain")
    with ConversationLibrary("/plain", encryption_key=KEY, file_system=disk).open(fork) as store:
        assert store.get_messages() == MESSAGES
    assert traces(disk) == []


def test_a_rotation_touches_no_record_and_passes_by_what_is_not_its_own():
    disk = sealed()
    fork = library(disk).fork(ID)
    busy = library(disk).create(messages=MESSAGES)
    with ConversationLibrary(LIBRARY, file_system=disk).create() as store:
        bare = store.id
    disk.make_directory(disk.open_directory(LIBRARY), "a folder")
    before = {path: data for path, data in disk.tree().items() if not path.endswith(("/lock", "key.json"))}
    with busy:
        found = library(disk, OTHER_KEY, [KEY]).rotate_key()
        assert sorted(found.rotated) == sorted([ID, fork])
        assert {name for name, _ in found.skipped} == {busy.id, bare, "a folder"}
        busy.append_message({"content": "meanwhile"})
        busy_id = busy.id
    assert before == {
        path: before.get(path) for path in disk.tree() if path in before and not path.endswith(("/lock", "key.json"))
    }
    found = library(disk, OTHER_KEY, [KEY]).rotate_key()
    assert found.rotated == (busy_id,)
    assert sorted(found.already_current) == sorted([ID, fork])
    for one in (ID, fork, busy_id):
        with pytest.raises(WrongKeyError):
            library(disk).open(one)
        with library(disk, OTHER_KEY).open(one) as store:
            assert store.get_messages()[:4] == MESSAGES


def test_links_that_lead_out_of_a_library_are_neither_rotated_nor_shredded(tmp_path):
    outside = ConversationLibrary(tmp_path / "outside", encryption_key=KEY)
    with outside.create(messages=MESSAGES) as store:
        outside_id = store.id
    key_file = tmp_path / "outside" / outside_id / "key.json"
    before = key_file.read_bytes()
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / outside_id).symlink_to(tmp_path / "outside" / outside_id)
    inside = ConversationLibrary(tmp_path / "inside", encryption_key=OTHER_KEY, retired_keys=[KEY])
    assert [name for name, _ in inside.rotate_key().skipped] == [outside_id]
    with pytest.raises(CorruptTranscriptError):
        inside.shred(outside_id)
    assert key_file.read_bytes() == before


def test_what_was_shredded_is_gone_with_its_archive_and_what_is_plain_is_named():
    disk = sealed(replaced=True)
    wrapped = json.loads(content(disk, KEY_FILE))["wrapped"]
    disk.write_file(f"{FOLDER}/.tmp-{'0' * 32}", content(disk, KEY_FILE))  # a rotation was killed here
    done = library(disk).shred(ID)
    assert (done.id, done.still_readable) == (ID, ())
    assert library(disk).shred(ID) == done
    assert not [path for path, data in disk.tree().items() if data and wrapped.encode() in data]
    assert isinstance(refused(disk), ConversationShreddedError)
    assert [summary.id for summary in library(disk).list()] == [ID]
    library(disk).delete(ID)
    assert library(disk).list() == []

    disk = plain()
    with opened(disk) as store:
        store.seal(keep_plain=True)
    assert len(library(disk).shred(ID).still_readable) == 3


def test_what_was_never_sealed_is_not_shredded():
    disk = plain()
    with pytest.raises(NotSealedError):
        library(disk).shred(ID)


@pytest.mark.parametrize("key", [KEY, None])
def test_what_stands_in_the_place_of_the_transcript_is_not_taken_for_sealed(tmp_path, key):
    """Nobody can tell what a link leads to: its key is destroyed, and it is named as something that may still be read."""
    shelf = ConversationLibrary(tmp_path, encryption_key=key)
    with shelf.create(id=ID, messages=MESSAGES):
        pass
    transcript = tmp_path / ID / "transcript.jsonl"
    transcript.rename(tmp_path / "elsewhere")
    transcript.symlink_to(tmp_path / "elsewhere")
    if key is None:
        with pytest.raises(NotSealedError):
            shelf.shred(ID)
        assert not (tmp_path / ID / "key.json").exists()
    else:
        assert shelf.shred(ID).still_readable == (str(transcript),)
        assert "shredded_at" in json.loads((tmp_path / ID / "key.json").read_text())


# ---- another language ------------------------------------------------------------------------------------------------


def test_what_the_page_says_is_enough_to_read_it():
    """docs/format.md, done with nothing of ours: the data key, a record, the metadata, both checks."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    disk = sealed()
    key_file = json.loads(content(disk, KEY_FILE))
    wrapped = base64.b64decode(key_file["wrapped"])
    data_key = AESGCM(KEY).decrypt(wrapped[:12], wrapped[12:], b"transcript-store/1/key/" + key_file["key_id"].encode())

    def unsealed(text, place):
        data = base64.b64decode(text)
        return json.loads(AESGCM(data_key).decrypt(data[:12], data[12:], place.encode()))

    header, *records = [json.loads(line) for line in lines(disk)]
    for record in records:
        place = f"transcript-store/1/record/{ID}/{header['generation']}/{record['seq']}/{record['at']}"
        assert CANARY in str(unsealed(record["sealed"], place)) or "retracts" in record
    metadata = json.loads(content(disk, METADATA))
    assert unsealed(metadata["sealed"], f"transcript-store/1/metadata/{ID}")["system_prompt"] == f"{CANARY} prompt"

    extracted = hmac.new(bytes(32), data_key, hashlib.sha256).digest()
    check_key = hmac.new(extracted, b"transcript-store/1/check\x01", hashlib.sha256).digest()
    for line in (lines(disk)[0], content(disk, METADATA).rstrip(b"\n")):
        body, _, rest = line.rpartition(b',"check":"')
        assert hmac.new(check_key, body, hashlib.sha256).hexdigest().encode() == rest[:64]


def test_a_store_neither_shows_its_key_nor_is_copied_with_it():
    store = opened(sealed())
    assert KEY.hex() not in repr(vars(store))
    with pytest.raises(TypeError):
        copy.copy(store)
    assert isinstance(store, ConversationStore)
