"""From the constructor to close(): what works before a load, after it, after a close, and for a reader."""

from __future__ import annotations

import copy
import dataclasses
import errno
import gc
import os
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conversation.helpers import ONE, THREE, TOOL, TWO
from tests.kit.cases import for_each
from tests.kit.trees import tree
from transcript_store import (
    ConversationExistsError,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationNotLoadedError,
    ConversationStore,
    InvalidMetadataError,
    ReadOnlyError,
    StorageError,
)
from transcript_store.testing import FileSystemCall, SimulatedFileSystem

# ---- begin and end --------------------------------------------------------------------------------------------------

NEEDS_LOADING: dict[str, Callable[[ConversationStore], object]] = {
    "append_message": lambda s: s.append_message(ONE),
    "append_messages": lambda s: s.append_messages([ONE]),
    "append_event": lambda s: s.append_event({}),
    "replace_transcript": lambda s: s.replace_transcript([]),
    "update_metadata": lambda s: s.update_metadata(model="m"),
    "get_messages": lambda s: s.get_messages(),
    "get_records": lambda s: s.get_records(),
    "keep_records": lambda s: s.keep_records([1]),
    "retract": lambda s: s.retract(),
    "iter_records": lambda s: list(s.iter_records()),
    "get_metadata": lambda s: s.get_metadata(),
    "set_title": lambda s: s.set_title("t"),
    "retract_turn": lambda s: s.retract_turn(),
    "title": lambda s: s.title,
    "usage": lambda s: s.usage(),
    "id": lambda s: s.id,
    "record_count": lambda s: s.record_count,
    "features": lambda s: s.features,
    "head": lambda s: s.head,
    "position": lambda s: s.position,
    "state": lambda s: s.state(),
    "frozen": lambda s: s.frozen().__enter__(),
    "recovery": lambda s: s.recovery,
    "torn_tail": lambda store: store.torn_tail,
    "refresh": lambda s: s.refresh(),
    "is_fully_verified": lambda s: s.is_fully_verified,
    "generations": lambda s: s.generations(),
    "delete_generation": lambda s: s.delete_generation(0),
    "purge_quarantine": lambda s: s.purge_quarantine(),
    "unseal": lambda s: s.unseal(),
}
NEEDS_NO_LOADING = {
    "directory",
    "redacts",
    "max_line_bytes",
    "exists",
    "initialize",
    "load",
    "load_or_initialize",
    "restore",
    "seal",
    "on_close",
    "close",
}
WRITES = {
    "append_message",
    "append_messages",
    "append_event",
    "retract",
    "replace_transcript",
    "update_metadata",
    "set_title",
    "retract_turn",
    "delete_generation",
    "purge_quarantine",
}


def test_every_method_is_known_to_this_file():
    """A method that is added to ConversationStore must say here whether it needs a load."""
    public = {name for name in dir(ConversationStore) if not name.startswith("_")}
    assert public == NEEDS_LOADING.keys() | NEEDS_NO_LOADING


@pytest.mark.parametrize("method", NEEDS_LOADING)
def test_nothing_works_before_a_load_or_after_a_close(tmp_path, method):
    """Each method says "load() first" before a load, after a close and after a load that failed, and writes nothing."""
    call = NEEDS_LOADING[method]
    with ConversationStore(tmp_path / "c") as other:
        other.initialize(messages=[ONE])
    before = tree(tmp_path, but=("lock",))
    for read_only in (False, True):
        store = ConversationStore(tmp_path / "c", read_only=read_only)
        with pytest.raises(ConversationNotLoadedError, match=r"load\(\)"):
            call(store)
        store.load()
        store.close()
        if method == "id":  # it never changes
            assert call(store) == other.id
            continue
        with pytest.raises(ConversationNotLoadedError):
            call(store)
        with ConversationStore(tmp_path / "c") as other:
            other.load()
            if not read_only:
                with pytest.raises(ConversationLockedError):
                    store.load()
                with pytest.raises(ConversationNotLoadedError):
                    call(store)
    assert tree(tmp_path, but=("lock",)) == before


def test_the_id_is_the_conversations(tmp_path):
    """``id`` is the one on record, whichever generation is live."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[ONE])
        known = store.id
        store.replace_transcript([])
        assert store.id == store.get_metadata().id == known


def test_load_or_initialize_can_verify_the_tail(tmp_path):
    """``verify`` is passed on to the load, and looked at before anything is created."""
    with ConversationStore(tmp_path / "c") as store:
        with pytest.raises(ValueError, match="'all' or 'tail'"):
            store.load_or_initialize(verify="none")  # type: ignore[arg-type]
        assert not store.exists()
        store.load_or_initialize(messages=[{"text": "x" * 1000}] * 200, verify="tail")
    with ConversationStore(tmp_path / "c") as store:
        assert not store.load_or_initialize(verify="tail")
        assert not store.is_fully_verified
        assert not store.load_or_initialize()
        assert store.is_fully_verified


def test_an_empty_batch_and_an_empty_update_need_a_load_too(tmp_path):
    """A call that would write nothing is refused all the same where the store is not loaded."""
    store = ConversationStore(tmp_path / "c")
    for call in (lambda: store.append_messages([]), store.update_metadata):
        with pytest.raises(ConversationNotLoadedError):
            call()


@pytest.mark.parametrize("method", [*sorted(WRITES), "initialize"])
def test_a_reader_writes_nothing(tmp_path, method):
    """P12: with read_only=True everything that would write raises ReadOnlyError, and nothing is written."""
    with ConversationStore(tmp_path / "c") as writer:
        writer.initialize(messages=[ONE])
    before = tree(tmp_path)
    with ConversationStore(tmp_path / "c", read_only=True) as reader:
        reader.load()
        with pytest.raises(ReadOnlyError):
            NEEDS_LOADING.get(method, ConversationStore.initialize)(reader)
        assert reader.get_messages() == [ONE]
    absent = ConversationStore(tmp_path / "absent", read_only=True)
    with pytest.raises(ReadOnlyError):
        absent.initialize()
    with pytest.raises(ConversationNotFoundError):
        absent.load_or_initialize()
    assert tree(tmp_path) == before


def test_making_a_store_touches_nothing(tmp_path):
    """The constructor only remembers; the folder appears with initialize()."""
    store = ConversationStore(tmp_path / "a/b/c")
    assert store.directory == str(tmp_path / "a/b/c")
    assert not list(tmp_path.iterdir())
    store.initialize()
    assert Path(store.directory).is_dir()
    store.close()


def test_initialize_takes_everything_at_once(tmp_path):
    """initialize() stores metadata and first messages with their extras, and leaves the conversation loaded."""
    store = ConversationStore(tmp_path / "c")
    store.initialize(
        provider="claude",
        model="claude-opus-4-8",
        system_prompt="",
        tools=(TOOL, {"name": "x"}),
        labels={"team": "ü"},
        messages=iter([ONE, TWO]),
        extras=iter([None, {"usage": 1}]),
    )
    assert store.get_messages() == [ONE, TWO]
    assert [r.extra for r in store.get_records()] == [None, {"usage": 1}]
    metadata = store.get_metadata()
    assert dataclasses.asdict(metadata) == {
        "id": metadata.id,
        "created_at": metadata.created_at,
        "updated_at": metadata.updated_at,
        "provider": "claude",
        "model": "claude-opus-4-8",
        "system_prompt": "",
        "tools": [TOOL, {"name": "x"}],
        "compaction_count": 0,
        "labels": {"team": "ü"},
        "generation": 0,
        "sealed": False,
        "forked_from": None,
        "restored_from": None,
    }
    store.close()
    store.load()
    assert store.get_metadata() == metadata
    assert store.get_messages() == [ONE, TWO]
    store.close()


def test_ids_are_version_4_uuids_and_differ(tmp_path):
    """Each conversation gets an id of its own, a canonical lower-case UUID, which never changes."""
    import uuid

    ids = set()
    for name in "abc":
        with ConversationStore(tmp_path / name) as store:
            store.initialize()
            first = store.get_metadata().id
            store.update_metadata(model="m")
            store.replace_transcript([ONE])
            assert store.get_metadata().id == first
            assert str(uuid.UUID(first)) == first
            assert uuid.UUID(first).version == 4
            ids.add(first)
    assert len(ids) == 3


def test_load_or_initialize(tmp_path):
    """It creates what is not there, loads what is, says which, and what is on record wins."""
    store = ConversationStore(tmp_path / "c")
    assert store.load_or_initialize(model="first", messages=[ONE]) is True
    store.append_message(TWO)
    assert store.load_or_initialize(model="second", messages=[THREE]) is False
    assert store.get_messages() == [ONE, TWO]
    assert store.get_metadata().model == "first"
    store.close()
    assert ConversationStore(tmp_path / "c", read_only=True).load_or_initialize() is False
    for bad in ({"model": 5}, {"labels": {"a": 1}}):
        with pytest.raises(InvalidMetadataError):
            store.load_or_initialize(**bad)


def test_a_loaded_store_does_not_initialize_again(store):
    """initialize() on a loaded store refuses, and the store stays loaded."""
    with pytest.raises(ConversationExistsError):
        store.initialize()
    assert store.append_message(THREE).seq == 3


def test_load_of_a_loaded_store_opens_it_anew(store):
    """load() closes what was loaded and opens it again: the same content, and the lock is still ours."""
    store.append_message(THREE)
    store.load()
    assert store.get_messages() == [ONE, TWO, THREE]
    with pytest.raises(ConversationLockedError):
        ConversationStore(store.directory).load()


def test_close_can_be_called_at_any_time(tmp_path):
    """close() before a load and twice does nothing; after it the lock is free; a with block closes on errors too."""
    store = ConversationStore(tmp_path / "c")
    store.close()
    store.initialize()
    store.close()
    store.close()
    with pytest.raises(ZeroDivisionError), ConversationStore(tmp_path / "c") as other:
        other.load()
        raise ZeroDivisionError
    with ConversationStore(tmp_path / "c") as third:
        assert third.load_or_initialize() is False


@pytest.mark.parametrize(("messages", "kind"), [(None, "NoneType"), (1, "int"), ({"a": 1}, "dict"), ("x", "str")])
def test_messages_are_a_list(tmp_path, messages, kind):
    """Anything else is refused by name, and nothing is changed."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[{"n": 1}])
        for call in (store.append_messages, store.replace_transcript):
            with pytest.raises(TypeError, match=f"messages must be a list of JSON objects, not {kind}"):
                call(messages)
        assert store.get_messages() == [{"n": 1}]


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"durability": "fast"}, ValueError, "durability"),
        ({"durability": None}, ValueError, "durability"),
        ({"lock_timeout_seconds": -1}, ValueError, "lock_timeout_seconds"),
        ({"lock_timeout_seconds": float("nan")}, ValueError, "lock_timeout_seconds"),
        ({"lock_timeout_seconds": "5"}, TypeError, "lock_timeout_seconds must be a number, not str"),
        ({"max_line_bytes": 100}, ValueError, "max_line_bytes"),
        ({"max_line_bytes": 1e6}, ValueError, "max_line_bytes"),
        ({"max_line_bytes": True}, ValueError, "max_line_bytes"),
    ],
)
def test_the_constructor_refuses_what_it_does_not_know(tmp_path, options, error, word):
    """A wrong option is refused when it is given, by name."""
    with pytest.raises(error, match=word):
        ConversationStore(tmp_path, **options)


@for_each("path", [b"bytes", 5, None, ["list"]])
def test_a_path_is_a_str_or_a_path(path):
    """A path of another type is a TypeError at once."""
    with pytest.raises(TypeError):
        ConversationStore(path)


# ---- later versions -------------------------------------------------------------------------------------------------


def test_arguments_that_do_not_count_are_named_once(tmp_path, caplog):
    """`load_or_initialize(model="new")` of what is there with another model says so, without values, once in a process.

    A newcomer changed the prompt in his program, and wondered for an hour why the model did not know of it.
    """
    given: dict[str, Any] = {
        "provider": "claude",
        "model": "m",
        "system_prompt": "canary",
        "tools": [{"name": "t"}],
        "labels": {"a": "b"},
    }
    cases: list[tuple[dict[str, Any], str | None]] = [
        ({}, None),
        ({"model": None, "tools": None, "labels": None}, None),
        ({"labels": {}}, None),
        ({"system_prompt": "another canary"}, "system_prompt"),
        ({"model": "n", "tools": [{"name": "u"}], "labels": {"a": "c"}}, "model, tools, labels"),
    ]
    for changes, names in cases:
        for _ in range(3):
            with ConversationStore(tmp_path / "c") as store:
                store.load_or_initialize(**{**given, **changes})
                assert store.get_metadata().system_prompt == "canary"
        said = [record.getMessage() for record in caplog.records]
        expected = f"{tmp_path}/c: the given {names} differs from the stored value, which is kept"
        assert said == ([expected] if names else [])
        caplog.clear()
    with ConversationStore(tmp_path / "c") as store:
        store.load()
        store.update_metadata(labels={"a": "b", "title": "more"})
    with ConversationStore(tmp_path / "c") as store:
        store.load_or_initialize(**given)
    assert caplog.records == []


# ---- errors and names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copy_of", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_store_cannot_be_copied(tmp_path, copy_of):
    """P11: a copy would own the lock too. The incident: collected, it closed the first one's files and freed its lock."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[{"n": 1}])
        with pytest.raises(
            TypeError, match=r"cannot be pickled or copied, as it holds a lock: open another one, or fork\(\)"
        ):
            copy_of(store)
        gc.collect()
        with pytest.raises(ConversationLockedError):
            ConversationStore(tmp_path / "c").load()
        store.append_message({"n": 2})
        assert store.get_messages() == [{"n": 1}, {"n": 2}]


def test_a_forgotten_store_lets_go_of_its_lock(tmp_path):
    """P11: a store that is collected without a close() holds nobody up, says so, and loses nothing."""

    def forget() -> None:
        store = ConversationStore(tmp_path / "c")
        store.initialize()
        store.append_message({"n": 1})

    gc.disable()  # it is collected when the last reference goes: nothing in it refers to the store
    try:
        with pytest.warns(ResourceWarning, match="was not closed"):
            forget()
    finally:
        gc.enable()
    with ConversationStore(tmp_path / "c") as store:
        store.load()
        assert store.get_messages() == [{"n": 1}]


@pytest.mark.parametrize("options", [{}, {"verify": "tail"}], ids=["all", "tail"])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_closed_store_keeps_no_messages_in_memory(tmp_path, read_only, options):
    """A program that opens one long conversation after the other does not need memory for all of them."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[{"n": n, "pad": "x" * 1000} for n in range(10)])
    store = ConversationStore(tmp_path / "c", read_only=read_only)
    tracemalloc.start()
    try:
        for _ in range(3):
            store.load(**options)
            assert len(store.get_messages()) == 10
            store.close()
        taken = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/transcript_store/*")])
        assert sum(trace.size for trace in taken.statistics("filename")) < 10_000
    finally:
        tracemalloc.stop()


def test_a_store_says_what_it_is(tmp_path):
    """A log line or a debugger shows which conversation a store is on."""
    assert repr(ConversationStore(tmp_path / "c")) == f"ConversationStore({str(tmp_path / 'c')!r})"


def test_close_syncs_after_an_interrupted_append(monkeypatch):
    """P2, P21: with process-crash durability close() puts on the disk what was appended, whatever ended the last append."""
    disk = SimulatedFileSystem()
    with ConversationStore("/c", file_system=disk, durability="process-crash") as store:
        store.initialize()
        for n in range(5):
            store.append_message({"n": n})

        def interrupt(call: FileSystemCall) -> None:
            if call.name == "write":
                raise KeyboardInterrupt

        disk.on_call = interrupt
        with pytest.raises(KeyboardInterrupt):
            store.append_message({"n": "interrupted"})
        disk.on_call = None
    with ConversationStore("/c", file_system=disk.worst_power_failure()) as store:
        store.load()
        assert store.get_messages() == [{"n": n} for n in range(5)]


def test_a_refused_initialize_leaves_nothing_open():
    """P7: ten refused creates do not use up the process's descriptors."""
    disk = SimulatedFileSystem()

    def refuse(call: FileSystemCall) -> None:
        if call.name == "sync":
            raise OSError(errno.EIO, "injected")

    disk.on_call = refuse
    for _ in range(10):
        with pytest.raises(StorageError):
            ConversationStore("/a/b/c", file_system=disk).initialize()
    assert disk.open_handles == []


def test_a_parent_that_its_owner_may_not_read_is_passed_by():
    """The user may not list the folder that holds his home. The store made no name in that folder, so it has nothing to sync there."""
    disk = SimulatedFileSystem()

    def as_another_user(
        call: FileSystemCall,
    ) -> None:  # whoever runs this may be root, for whom no mode of a folder counts
        if call.name == "open_directory" and call.path == "/":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), call.path)

    with ConversationStore("/home/other", file_system=disk) as store:
        store.initialize()
    disk.on_call = as_another_user
    with ConversationStore("/home/conversation", file_system=disk) as store:
        store.initialize(messages=[{"role": "user", "content": "kept"}])
