"""Users can do what our own clients do: position, state at one time, restore, close callbacks.

The incident: version 0.1 had four back doors (``_state``, ``_restore``, ``_before_close``, ``_max_line_bytes``). The chat
clients and the snapshots used them, and nobody outside could write a client or an adapter as good as ours, although
``testing.check_chat_client`` invites them to. A client that asked for head and count in two calls could see the one before an append
of another thread, and the other after it.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.cases import for_each
from transcript_store import (
    ConversationLibrary,
    ConversationNotLoadedError,
    ConversationState,
    ConversationStore,
    InvalidMetadataError,
    ProviderMismatchError,
    ReadOnlyError,
    TranscriptPosition,
    verify,
)
from transcript_store.testing import FileSystemCall, SimulatedFileSystem, SimulatedStop

SEEDS = itertools.count()
USER, REPLY = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}


def begun(*messages: dict[str, Any], **fields: Any) -> ConversationStore:
    store = ConversationStore("/conversation", file_system=SimulatedFileSystem(seed=next(SEEDS)))
    store.initialize(messages=messages, **fields)
    return store


# ---- where the transcript ends -----------------------------------------------------------------------------------------


def test_a_position_is_count_and_head_of_one_moment():
    """It is what ``record_count`` and ``head`` say; of an empty conversation it has the header's hash."""
    with begun() as store:
        empty = store.position
        assert empty == (0, store.head)
        assert len(empty.head) == 32
        appended = store.append_message(USER)
        assert store.position == TranscriptPosition(1, appended.head) == (store.record_count, store.head)
    with pytest.raises(ConversationNotLoadedError):
        _ = store.position


def test_an_append_says_behind_what_it_stands(tmp_path):
    """``head`` is the hash in the line, ``previous_head`` the one in the line before: of each append, each of a batch, each event."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize()
        before = store.head
        stored = [
            store.append_message(USER),
            *store.append_messages([REPLY, USER, REPLY]),
            store.append_event({"n": 1}),
        ]
        lines = (tmp_path / "c" / "transcript.jsonl").read_bytes().splitlines()
        hashes = [json.loads(line)["hash"] for line in lines]
        assert [result.head for result in stored] == hashes[1:]
        assert [result.previous_head for result in stored] == [before, *hashes[1:-1]]
        assert hashes[0] == before


def test_an_append_detects_another_threads_append():
    """Eight threads append; each append knows whether it stands directly behind the position that its thread saw."""
    with begun() as store:
        barrier = threading.Barrier(8)
        seen: list[tuple[TranscriptPosition, Any]] = []

        def work() -> None:
            barrier.wait()
            for number in range(20):
                position = store.position
                seen.append((position, store.append_message({"n": number})))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == store.record_count == 160
        for position, appended in seen:
            assert (appended.previous_head == position.head) == (appended.seq == position.seq + 1)


def test_an_equal_position_is_the_same_transcript():
    """A replace by the very same messages is another position: the hash covers the generation."""
    with begun(USER, REPLY) as store:
        before = store.position
        store.replace_transcript(store.get_messages())
        assert store.position.seq == before.seq
        assert store.position.head != before.head


# ---- one moment --------------------------------------------------------------------------------------------------------


def test_a_state_is_of_one_moment():
    """Beside a thread that appends and changes the metadata, the parts of a state never contradict each other.

    The label always says how many records there are or will be: a state that took its parts one by one would be behind.
    """
    with begun(labels={"count": "0"}) as store:
        done = threading.Event()

        def work() -> None:
            for number in range(1, 150):
                store.update_metadata(labels={"count": str(number)})
                store.append_message({"n": number})
            done.set()

        thread = threading.Thread(target=work)
        thread.start()
        states: list[ConversationState] = []
        while not done.is_set():
            states.append(store.state())
        thread.join()
        states.append(store.state())
        for metadata, records, position, _ in states:
            assert position.seq == len(records) == (records[-1].seq if records else 0)
            assert int(metadata.labels["count"]) - position.seq in (0, 1)
        assert states[-1].position == store.position
        assert states[-1].metadata == store.get_metadata()
        assert states[-1].at_start == store.get_metadata(at_start=True)
        assert states[-1].records == store.get_records()


# ---- a restore ---------------------------------------------------------------------------------------------------------


def test_a_copy_can_be_made_with_what_is_public(tmp_path):
    """An adapter of one's own: a conversation's state, and a restore of it into another, into a new one and one that is there."""
    with ConversationStore(tmp_path / "a") as original:
        original.initialize(provider="claude", model="m", labels={"title": "A"})
        original.append_message(USER, extra={"usage": {"input_tokens": 3}})
        original.append_message(REPLY)
        metadata, records, position, _ = original.state()
    for path in (tmp_path / "new", tmp_path / "there"):
        copy = ConversationStore(path)
        if path.name == "there":
            with copy:
                copy.initialize(provider="claude", messages=[{"role": "user", "content": "what was there"}])
        with copy:
            copy.restore(
                [record.message for record in records if record.message is not None],
                extras=[record.extra for record in records],
                provider=metadata.provider,
                model=metadata.model,
                labels=metadata.labels,
                restored_from={"conversation": metadata.id, "seq": position.seq, "head": position.head},
            )
            assert copy.get_messages() == [USER, REPLY]
            assert [record.extra for record in copy.get_records()] == [record.extra for record in records]
            found = copy.get_metadata()
            assert (found.provider, found.model, found.labels) == ("claude", "m", {"title": "A"})
            assert found.restored_from == {"conversation": metadata.id, "seq": 2, "head": position.head}
            assert found.id != metadata.id
        assert verify(path).is_intact
    with ConversationStore(tmp_path / "there") as copy:
        copy.load()
        assert copy.get_records(generation=0)[0].message == {"role": "user", "content": "what was there"}
        copy.restore([USER], provider="claude")
        assert copy.get_metadata().restored_from is None, "what it holds now comes from nowhere else"


def test_a_restore_sets_the_provider_of_a_conversation_that_has_none():
    """And leaves it out if the messages are nobody's."""
    with begun() as store:
        store.restore([USER])
        assert store.get_metadata().provider is None
        store.restore([USER], provider="openai-compatible")
        assert store.get_metadata().provider == "openai-compatible"
        store.restore([REPLY], provider="openai")
        assert store.get_metadata().provider == "openai-compatible", "one family: what is on record stays"


@for_each(
    "arguments, error",
    [
        ({"provider": "claude"}, ProviderMismatchError),
        ({}, ProviderMismatchError),
        ({"provider": ""}, InvalidMetadataError),
        ({"provider": "openai", "restored_from": "a backup"}, InvalidMetadataError),
        ({"provider": "openai", "restored_from": {"at": float("nan")}}, InvalidMetadataError),
        ({"provider": "openai", "labels": {"n": 1}}, InvalidMetadataError),
        ({"provider": "openai", "no_such_field": 1}, TypeError),
        ({"provider": "openai", "extras": []}, ValueError),
    ],
)
def test_a_restore_that_is_refused_changed_nothing(arguments: dict[str, Any], error: type[Exception]):
    """Another provider's messages, and arguments that are none: position and metadata are what they were."""
    with begun(USER, provider="openai") as store:
        before = store.state()
        with pytest.raises(error) as raised:
            store.restore([REPLY], **arguments)
        assert store.state() == before
        if not arguments:
            assert "messages without a provider cannot be continued with 'openai'" in str(raised.value)


def test_a_reader_restores_nothing(tmp_path):
    """Neither into a conversation that is there nor into a new one."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[USER])
    for path in (tmp_path / "c", tmp_path / "new"):
        with ConversationStore(path, read_only=True) as reader, pytest.raises(ReadOnlyError):
            reader.restore([REPLY])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("limit", [12, pytest.param(40, marks=pytest.mark.long)])
def test_a_power_loss_in_a_restore_leaves_what_was_there_or_all_that_was_given(limit):
    """P4: at every call of the disk, messages and ``restored_from`` are both the old ones or both the new ones.

    (``tests/crash`` has it too, as ``restore_snapshot``, in every process and on real disks.)
    """
    old: tuple[int, Any] = (1, None)
    new: tuple[int, Any] = (2, {"backup": "of Monday"})
    outcomes = set()
    for stop_at in itertools.count(1):
        disk = SimulatedFileSystem(seed=stop_at)
        with ConversationStore("/c", file_system=disk) as store:
            store.initialize(provider="claude", messages=[USER])
        left = itertools.count(1)

        def stop(_: FileSystemCall, left: Iterator[int] = left, stop_at: int = stop_at) -> None:
            if next(left) == stop_at:
                raise SimulatedStop

        disk.on_call = stop
        store = ConversationStore("/c", file_system=disk)
        try:
            store.restore([REPLY, USER], provider="claude", restored_from={"backup": "of Monday"})
            may_be = [new]
        except SimulatedStop:
            may_be = [old, new]
        disk.on_call = None
        for failed in disk.power_failures(limit=limit):
            with ConversationStore("/c", file_system=failed) as found:
                found.load()
                outcome = (len(found.get_messages()), found.get_metadata().restored_from)
            assert outcome in may_be
            outcomes.add(outcome[0])
        store.close()
        if may_be == [new]:
            break
    assert outcomes == {1, 2}


# ---- the end -----------------------------------------------------------------------------------------------------------


def test_a_callback_records_its_last_word(tmp_path):
    """It is called while the store still takes appends, and what it appends is on disk; at each end, until it is taken back."""
    store = ConversationStore(tmp_path / "c")
    store.initialize()
    take_back = store.on_close(lambda: store.append_event({"end": store.record_count}))
    store.close()
    store.load()
    store.close()
    take_back()
    take_back()
    store.load()
    assert [record.extra for record in store.get_records()] == [{"end": 0}, {"end": 1}]
    store.close()


def test_a_callback_is_not_called_where_nothing_is_loaded(tmp_path):
    """Before a load, and after a close: it could record nothing. The incident: a second ``close()`` raised what its append raised."""
    called: list[int] = []

    def last_word() -> None:
        called.append(store.append_event({"end": 1}).seq)

    store = ConversationStore(tmp_path / "c")
    store.on_close(last_word)
    store.close()
    store.initialize()
    store.close()
    store.close()
    assert called == [1]
    with pytest.raises(TypeError, match="callback must be a function without arguments, not NoneType"):
        store.on_close(None)  # type: ignore[arg-type]


def test_a_forked_child_records_no_last_word(tmp_path):
    """It has nothing loaded: its ``close()`` does nothing, and its parent's comes."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize()
        store.on_close(lambda: store.append_event({"pid": os.getpid()}))
        child = os.fork()
        if not child:
            try:
                store.close()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    with ConversationStore(tmp_path / "c", read_only=True) as reader:
        reader.load()
        assert [record.extra for record in reader.get_records()] == [{"pid": os.getpid()}]


def test_a_callback_that_raises_keeps_nobody_out(tmp_path):
    """Its error comes out of ``close()``, and the store is closed: another writer loads it."""
    store = ConversationStore(tmp_path / "c")
    store.initialize()

    def fail() -> None:
        raise LookupError("nothing to say")

    store.on_close(fail)
    with pytest.raises(LookupError, match="nothing to say"):
        store.close()
    with ConversationStore(tmp_path / "c") as other:
        other.load()


def test_a_callback_can_be_removed_within_another_call():
    """The garbage collector forgets a client when it likes, in the middle of an append too: taking back meets no lock."""
    disk = SimulatedFileSystem(seed=next(SEEDS))
    with ConversationStore("/c", file_system=disk) as store:
        store.initialize()
        called: list[int] = []
        undo = [store.on_close(lambda: called.append(1))]

        def forget(_: FileSystemCall) -> None:
            if undo:
                undo.pop()()

        disk.on_call = forget
        store.append_message(USER)
        disk.on_call = None
        assert undo == []
    assert called == []


def test_the_longest_line_is_told(tmp_path: Path):
    """What does not fit is refused by the append; whoever splits what is long asks first."""
    store = ConversationStore(tmp_path / "c", max_line_bytes=4096)
    assert store.max_line_bytes == 4096
    assert ConversationStore(tmp_path / "c").max_line_bytes == 64 * 2**20


# ---- the beginning -----------------------------------------------------------------------------------------------------


def test_what_a_conversation_begins_with_is_known_by_name(tmp_path: Path):
    """A misspelled argument is refused by all three calls that create one, and nothing is created."""
    library = ConversationLibrary(tmp_path / "chats")
    store = ConversationStore(tmp_path / "c")
    misspelled: dict[str, Any] = {"provder": "claude"}
    for create in (store.initialize, store.load_or_initialize, library.create):
        with pytest.raises(TypeError, match="provder"):
            create(**misspelled)
    assert not store.exists()
    assert library.list() == []
