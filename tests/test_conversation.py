"""ConversationStore as it is documented: what each call does, returns and refuses, on a disk that behaves.

Written from the docstrings. The crash tests prove what survives; this file proves that there is something worth surviving:
that what was put in comes out, that a refused call changed nothing, and that ``exists()`` and ``initialize()`` never
disagree (they once did in a store we read, and the caller's ``if not exists(): initialize()`` overwrote a conversation).
"""

from __future__ import annotations

import copy
import dataclasses
import errno
import gc
import importlib
import inspect
import json
import os
import pickle
import stat
import subprocess
import sys
import tracemalloc
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import transcript_store
from transcript_store import (
    AppendResult,
    ConversationExistsError,
    ConversationLockedError,
    ConversationMetadata,
    ConversationNotFoundError,
    ConversationNotLoadedError,
    ConversationStore,
    CorruptMetadataError,
    CorruptSnapshotError,
    CorruptTranscriptError,
    DecryptionError,
    GenerationNotFoundError,
    IncompleteResponseError,
    InvalidBaseUrlError,
    InvalidIdError,
    InvalidKeyError,
    InvalidMessageError,
    InvalidMetadataError,
    InvalidSnapshotIdError,
    MaxStepsError,
    MissingExtraError,
    MissingTokenError,
    PoisonedError,
    ProviderMismatchError,
    ReadOnlyError,
    RefreshResult,
    SnapshotNotFoundError,
    StorageError,
    TranscriptStoreError,
    UnsupportedVersionError,
    WayOut,
    errors,
    repair,
    verify,
)
from transcript_store._conversation.metadata import MetadataDocument, decode_document, encode_document
from transcript_store._log.record import GENESIS, close_line
from transcript_store._os.filesystem import PosixFileSystem
from transcript_store.testing import Call, SimulatedFileSystem

ONE, TWO, THREE = ({"role": "user", "content": text} for text in ("one", "two", "three"))
TOOL = {"name": "search", "description": "finds things", "parameters": {"type": "object"}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ConversationStore]:
    """A conversation with two messages."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[ONE, TWO])
        yield store


def tree(directory: Path | str, *, but: tuple[str, ...] = ()) -> dict[str, tuple[int, bytes]]:
    """Everything below a path (itself too): its mode, and its bytes or its target."""
    top = Path(directory)
    found: dict[str, tuple[int, bytes]] = {}
    for path in [top, *sorted(top.rglob("*"))] if top.is_dir() else [top]:
        if path.name not in but and os.path.lexists(path):
            mode = path.lstat().st_mode
            content = path.read_bytes() if stat.S_ISREG(mode) else b""
            found[str(path)] = mode, os.readlink(os.fsencode(path)) if stat.S_ISLNK(mode) else content
    return found


# ---- begin and end ---------------------------------------------------------------------------------------------------

NEEDS_LOADING: dict[str, Callable[[ConversationStore], object]] = {
    "append_message": lambda s: s.append_message(ONE),
    "append_messages": lambda s: s.append_messages([ONE]),
    "append_event": lambda s: s.append_event({}),
    "replace_transcript": lambda s: s.replace_transcript([]),
    "update_metadata": lambda s: s.update_metadata(model="m"),
    "get_messages": lambda s: s.get_messages(),
    "get_records": lambda s: s.get_records(),
    "get_metadata": lambda s: s.get_metadata(),
    "id": lambda s: s.id,
    "record_count": lambda s: s.record_count,
    "head": lambda s: s.head,
    "position": lambda s: s.position,
    "state": lambda s: s.state(),
    "recovery": lambda s: s.recovery,
    "torn_tail": lambda store: store.torn_tail,
    "refresh": lambda s: s.refresh(),
    "is_fully_verified": lambda s: s.is_fully_verified,
    "generations": lambda s: s.generations(),
    "delete_generation": lambda s: s.delete_generation(0),
    "purge_quarantine": lambda s: s.purge_quarantine(),
}
NEEDS_NO_LOADING = {
    "directory",
    "max_line_bytes",
    "exists",
    "initialize",
    "load",
    "load_or_initialize",
    "restore",
    "on_close",
    "close",
}
WRITES = {
    "append_message",
    "append_messages",
    "append_event",
    "replace_transcript",
    "update_metadata",
    "delete_generation",
    "purge_quarantine",
}


def test_every_method_is_known_to_this_file():
    """A method that is added to ConversationStore must say here whether it needs a load."""
    public = {name for name in vars(ConversationStore) if not name.startswith("_")}
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


def test_what_type_checkers_know():
    """A ``TypedDict`` is a message; a name that is not public is none for them either (mypy reads this)."""
    from typing import TypedDict

    class Said(TypedDict):
        role: str

    said: Said = {"role": "user"}
    with pytest.raises(ImportError):
        from transcript_store import ConversationStoer  # type: ignore[attr-defined]  # noqa: F401
    with pytest.raises(ConversationNotLoadedError):
        ConversationStore("nowhere").append_messages([said])


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
        ({"lock_timeout_seconds": None}, TypeError, "lock_timeout_seconds"),
        ({"max_line_bytes": 100}, ValueError, "max_line_bytes"),
        ({"max_line_bytes": 1e6}, ValueError, "max_line_bytes"),
        ({"max_line_bytes": True}, ValueError, "max_line_bytes"),
    ],
)
def test_the_constructor_refuses_what_it_does_not_know(tmp_path, options, error, word):
    """A wrong option is refused when it is given, by name."""
    with pytest.raises(error, match=word):
        ConversationStore(tmp_path, **options)


@pytest.mark.parametrize("path", [b"bytes", 5, None, ["list"]])
def test_a_path_is_a_str_or_a_path(path):
    """A path of another type is a TypeError at once."""
    with pytest.raises(TypeError):
        ConversationStore(path)


# ---- exists() is "initialize() would refuse" -------------------------------------------------------------------------

A_TEMPORARY = ".tmp-" + "0123456789abcdef" * 2


def _conversation(path: Path) -> None:
    with ConversationStore(path) as store:
        store.initialize(messages=[ONE])
        store.replace_transcript([TWO])


def _void(path: Path, **changes: Any) -> None:
    """What an initialize() leaves that was cut off before its commit."""
    _conversation(path)
    metadata = (path / "metadata.json").read_bytes()
    for entry in [*path.glob("*/*"), *path.glob("*")]:
        entry.unlink() if entry.is_file() else entry.rmdir()
    document = decode_document(metadata)
    assert isinstance(document, MetadataDocument)
    data = encode_document(document.members, None)
    if changes:
        members = {**json.loads(data), **changes}
        members.pop("hash")
        body = json.dumps(members, indent=2).encode()[:-1]
        data = body + b',"hash":"' + sha256(body).hexdigest()[:32].encode() + b'"}\n'
    (path / "metadata.json").write_bytes(data)


def _in_folder(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def build(path: Path) -> None:
        path.mkdir()
        make(path)

    return build


def _conversation_without(name: str) -> Callable[[Path], None]:
    def build(path: Path) -> None:
        _conversation(path)
        (path / name).unlink()

    return build


def _both(*makes: Callable[[Path], object]) -> Callable[[Path], None]:
    def build(path: Path) -> None:
        for make in makes:
            make(path)

    return build


def _target(path: Path) -> Path:
    return path.parent / "target"


ABSENT: dict[str, Callable[[Path], object]] = {
    "absent": lambda p: None,
    "empty": lambda p: p.mkdir(),
    "a fresh volume": _in_folder(lambda p: (p / "lost+found").mkdir()),
    "a lock": _in_folder(lambda p: (p / "lock").write_bytes(b"")),
    "a temporary": _in_folder(lambda p: (p / A_TEMPORARY).write_bytes(b"{")),
    "void metadata": _void,
    "void metadata, lock, temporaries": _both(
        _void, lambda p: (p / A_TEMPORARY).write_bytes(b"{"), lambda p: (p / "lock").write_bytes(b"{}")
    ),
    "a symlink to an empty folder": _both(lambda p: _target(p).mkdir(), lambda p: p.symlink_to(_target(p))),
}

OCCUPIED: dict[str, Callable[[Path], object]] = {
    "a conversation": _conversation,
    "a conversation without transcript": _conversation_without("transcript.jsonl"),
    "a conversation without metadata": _conversation_without("metadata.json"),
    "an archive only": _both(_conversation_without("transcript.jsonl"), lambda p: (p / "metadata.json").unlink()),
    "an empty archive": _in_folder(lambda p: (p / "archive").mkdir()),
    "a quarantine only": _in_folder(lambda p: (p / "quarantine").mkdir()),
    "void metadata and a transcript": _both(_void, lambda p: (p / "transcript.jsonl").write_bytes(b"")),
    "void metadata and an archive": _both(_void, lambda p: (p / "archive").mkdir()),
    "damaged metadata": _both(_void, lambda p: (p / "metadata.json").write_bytes(b"{}")),
    "empty metadata": _in_folder(lambda p: (p / "metadata.json").write_bytes(b"")),
    "metadata of another program": _in_folder(lambda p: (p / "metadata.json").write_text('{"name": "x"}')),
    "void metadata of a later version": lambda p: _void(p, version=2),
    "metadata that is a folder": _in_folder(lambda p: (p / "metadata.json").mkdir()),
    "an empty transcript": _in_folder(lambda p: (p / "transcript.jsonl").write_bytes(b"")),
    "a transcript that is a dangling symlink": _in_folder(lambda p: (p / "transcript.jsonl").symlink_to("nowhere")),
    "a file in its place": lambda p: p.write_text("mine"),
    "an empty file in its place": lambda p: p.write_text(""),
    "a FIFO in its place": os.mkfifo,
    "a foreign file": _in_folder(lambda p: (p / "main.py").write_text("")),
    "a hidden foreign file": _in_folder(lambda p: (p / ".git").write_text("")),
    "a subfolder": _in_folder(lambda p: (p / "conversations").mkdir()),
    "a name that is nearly a temporary": _in_folder(lambda p: (p / ".tmp-123").write_text("")),
    "a temporary's name in capitals": _in_folder(lambda p: (p / A_TEMPORARY.upper()).write_text("")),
    "a lock and a foreign file": _in_folder(lambda p: [(p / n).write_text("") for n in ("lock", "x")]),
    "a dangling symlink": lambda p: p.symlink_to("nowhere"),
    "a symlink to a file": _both(lambda p: _target(p).write_text("mine"), lambda p: p.symlink_to(_target(p))),
    "a symlink to a conversation": _both(lambda p: _conversation(_target(p)), lambda p: p.symlink_to(_target(p))),
    "a lock that is a symlink": _in_folder(lambda p: (p / "lock").symlink_to("nowhere")),
    "a lock that is a folder": _in_folder(lambda p: (p / "lock").mkdir()),
    "a lock that is a FIFO": _in_folder(lambda p: os.mkfifo(p / "lock")),
}


@pytest.mark.parametrize("state", OCCUPIED)
def test_exists_is_true_where_initialize_refuses_and_nothing_is_touched(tmp_path, state):
    """P13: exists() is true, initialize() and load_or_initialize() refuse or load, and not a byte or mode changes."""
    path = tmp_path / "c"
    OCCUPIED[state](path)
    before = tree(tmp_path)
    store = ConversationStore(path)
    existed = store.exists()
    with pytest.raises(TranscriptStoreError) as caught:
        store.initialize(messages=[THREE])
    store.close()
    assert tree(tmp_path) == before
    assert existed, f"initialize() refused ({caught.value}), and exists() said there is nothing"
    assert type(caught.value) is ConversationExistsError
    assert caught.value.path == str(path)
    if state not in ("a conversation", "a symlink to a conversation"):
        with pytest.raises(TranscriptStoreError):
            ConversationStore(path).load_or_initialize(messages=[THREE])
        after = tree(tmp_path, but=("lock",))  # a writer may sign the lock before it looks
        assert {name: value for name, value in before.items() if not name.endswith("/lock")} == after


@pytest.mark.parametrize("state", ABSENT)
def test_exists_is_false_where_initialize_works(tmp_path, state):
    """P13: exists() is false where there is nothing, or only what an unfinished create leaves; then initialize() works."""
    for method in (ConversationStore.initialize, ConversationStore.load_or_initialize):
        path = tmp_path / method.__name__ / "c"
        path.parent.mkdir()
        ABSENT[state](path)
        before = tree(path)
        store = ConversationStore(path)
        assert not store.exists()
        for read_only in (False, True):
            with pytest.raises(ConversationNotFoundError):
                ConversationStore(path, read_only=read_only).load()
        for look in (verify, repair):
            with pytest.raises(ConversationNotFoundError):
                look(path)
        assert tree(path) == before
        method(store, messages=[ONE])
        assert store.exists()
        store.close()
        store.load()
        assert store.get_messages() == [ONE]
        assert verify(path).is_whole
        assert not list(path.glob(".tmp-*"))
        store.close()


def test_a_folder_in_the_name_of_a_temporary_is_left_alone(tmp_path):
    """P13: what we sweep is files of ours; a folder that has such a name keeps its content."""
    (tmp_path / "c" / A_TEMPORARY).mkdir(parents=True)
    (tmp_path / "c" / A_TEMPORARY / "mine").write_text("mine")
    with ConversationStore(tmp_path / "c") as store:
        store.load_or_initialize(messages=[ONE])
    assert (tmp_path / "c" / A_TEMPORARY / "mine").read_text() == "mine"


# ---- append ----------------------------------------------------------------------------------------------------------


def test_appended_points_at_the_very_line(store):
    """AppendResult names seq, time, offset and length; the file's bytes there are the record, LF included."""
    stored: list[AppendResult] = [
        store.append_message(THREE, extra={"e": 1}),
        *store.append_messages([ONE, TWO, THREE], extras=[None, {"e": 2}, None]),
        store.append_event({"marker": "ü"}),
        store.append_message({}),
    ]
    data = Path(store.directory, "transcript.jsonl").read_bytes()
    records = store.get_records()
    for appended, record in zip(stored, records[2:], strict=True):
        line = data[appended.offset_bytes : appended.offset_bytes + appended.length_bytes]
        assert line.endswith(b'"}\n')
        assert line.count(b"\n") == 1
        members = json.loads(line)
        assert (members["seq"], members["at"]) == (appended.seq, appended.at) == (record.seq, record.at)
        assert (members.get("message"), members.get("extra")) == (record.message, record.extra)
    assert [appended.seq for appended in stored] == [3, 4, 5, 6, 7, 8]
    assert stored[-1].offset_bytes + stored[-1].length_bytes == len(data)
    for previous, appended in pairwise(stored):
        assert appended.offset_bytes == previous.offset_bytes + previous.length_bytes
        assert appended.at >= previous.at


def test_the_file_is_as_documented(store):
    """The format, read without the package: header and records, members in order, and a chain of SHA-256 to the head."""
    store.append_messages([THREE, {}], extras=[{"e": 1}, None])
    store.append_event({})
    header, *lines = Path(store.directory, "transcript.jsonl").read_bytes().split(b"\n")[:-1]
    members = json.loads(header)
    names = ["format", "version", "conversation", "generation", "at", "metadata", "hash"]
    assert list(members) == names
    assert (members["format"], members["version"], members["generation"]) == ("transcript-store", 1, 0)
    assert [list(json.loads(line)) for line in lines] == [
        ["seq", "at", "message", "hash"],
        ["seq", "at", "message", "hash"],
        ["seq", "at", "message", "extra", "batch", "hash"],
        ["seq", "at", "message", "batch", "hash"],
        ["seq", "at", "extra", "hash"],
    ]
    assert [json.loads(line)["batch"] for line in lines[2:4]] == [[1, 2], [2, 2]]
    head = b"0" * 32
    for line in (header, *lines):
        head = sha256(head + line[:-43]).hexdigest()[:32].encode()
        assert line[-43:] == b',"hash":"' + head + b'"}'
    assert store.head == head.decode()


def test_an_empty_batch_writes_nothing(store):
    """append_messages([]) returns an empty tuple and leaves every file as it is."""
    before = tree(store.directory)
    times = [path.stat().st_mtime_ns for path in Path(store.directory).iterdir()]
    assert store.append_messages([]) == ()
    assert store.append_messages(iter(()), extras=[]) == ()
    assert tree(store.directory) == before
    assert [path.stat().st_mtime_ns for path in Path(store.directory).iterdir()] == times


@pytest.mark.parametrize("extras", [[], [None], [None] * 3, [{}] * 4])
def test_extras_of_another_length(store, tmp_path, extras):
    """One extra for each message: any other number is a ValueError that gives both, and nothing is written."""
    before = tree(tmp_path)
    for call in (
        lambda: store.append_messages([ONE, TWO], extras=extras),
        lambda: store.replace_transcript([ONE, TWO], extras=extras),
        lambda: ConversationStore(tmp_path / "new").initialize(messages=[ONE, TWO], extras=extras),
        lambda: ConversationStore(tmp_path / "new").load_or_initialize(messages=[ONE, TWO], extras=extras),
    ):
        with pytest.raises(ValueError, match=f"2 messages and {len(extras)} extras"):
            call()
    assert tree(tmp_path) == before


def test_batches_of_one_are_single_records(store):
    """A batch of one needs no mark in its record: it cannot be there in part."""
    store.append_messages([THREE])
    assert b'"batch"' not in Path(store.directory, "transcript.jsonl").read_bytes()


def test_events_are_skipped_by_get_messages_and_shown_by_get_records(store):
    """append_event stores an extra without a message: a record of its own that no provider ever sees."""
    store.append_event({"tool": "started"})
    store.append_message(THREE)
    assert store.get_messages() == [ONE, TWO, THREE]
    third = store.get_records()[2]
    assert (third.seq, third.message, third.extra) == (3, None, {"tool": "started"})
    assert third.at_datetime.tzinfo is UTC
    assert abs((datetime.now(UTC) - third.at_datetime).total_seconds()) < 3600


def test_the_last_so_many(store):
    """get_messages(last=n) and get_records(last=n) give the end of what they give without, in order."""
    store.append_event({"between": 1})
    store.append_messages([THREE, ONE])
    messages, records = store.get_messages(), store.get_records()
    for last in (*range(8), 10**9):
        assert store.get_messages(last=last) == (messages[-last:] if last else [])
        assert store.get_records(last=last) == (records[-last:] if last else [])
    for bad in (-1, 1.0, "1", True):
        with pytest.raises(ValueError, match="last"):
            store.get_messages(last=bad)
        with pytest.raises(ValueError, match="last"):
            store.get_records(last=bad)


def test_record_count_counts_events_too(store):
    """record_count is the number of records of the live generation: what get_records() returns, without reading it."""
    assert store.record_count == 2
    store.append_event({})
    store.append_messages([THREE, THREE])
    assert store.record_count == len(store.get_records()) == 5
    store.replace_transcript([ONE])
    assert store.record_count == 1


def test_a_load_gives_what_memory_had(store):
    """After any calls, a load (and a reader) shows exactly what the writer showed: messages, records, metadata, head."""
    seen = []
    for n in range(3):
        store.append_message({"n": n}, extra={"n": [n]})
        store.append_messages([{"batch": n}, {}])
        store.update_metadata(model=f"m{n}", labels={"n": str(n)}, tools=[TOOL])
        store.append_event({"n": n})
        store.replace_transcript(store.get_messages()[-3:], compaction_count=n)
        store.append_message({"after": n})
        state = store.get_messages(), store.get_records(), store.get_metadata(), store.head
        with ConversationStore(store.directory, read_only=True) as reader:
            reader.load()
            assert (reader.get_messages(), reader.get_records(), reader.get_metadata(), reader.head) == state
        store.close()
        store.load()
        assert (store.get_messages(), store.get_records(), store.get_metadata(), store.head) == state
        assert store.recovery is None
        seen.append(state)
    assert len({head for *_, head in seen}) == 3
    assert verify(store.directory).is_whole


# ---- replace ---------------------------------------------------------------------------------------------------------


def test_replace_keeps_the_old_generation_byte_for_byte(store):
    """P4: each replaced generation stays in archive/ under its number, the very bytes; seq begins again at 1."""
    path = Path(store.directory, "transcript.jsonl")
    generations = []
    for n in range(3):
        generations.append(path.read_bytes())
        store.replace_transcript([{"generation": n + 1}], extras=[{"why": "compaction"}])
        assert [(r.seq, r.message, r.extra) for r in store.get_records()] == [
            (1, {"generation": n + 1}, {"why": "compaction"})
        ]
        assert store.get_metadata().generation == n + 1
        assert store.append_message(ONE).seq == 2
    archived = sorted(Path(store.directory, "archive").iterdir())
    assert [path.name for path in archived] == [f"transcript-{n:06d}.jsonl" for n in range(3)]
    assert [path.read_bytes() for path in archived] == generations
    found = verify(store.directory)
    assert found.is_whole
    assert (found.generation, found.archived_generations, found.records) == (3, (0, 1, 2), 2)


def test_a_generation_says_what_it_replaced(store):
    """The header of a generation names its predecessor, with its number of records and its head."""
    head = store.head
    store.replace_transcript([])
    header = json.loads(Path(store.directory, "transcript.jsonl").read_bytes().split(b"\n")[0])
    assert header["replaces"] == {"generation": 0, "records": 2, "head": head}
    assert store.get_messages() == []
    assert store.get_records() == []


def test_replace_changes_metadata_in_the_same_commit(store):
    """P4: the changes stand in the new header too: with metadata.json as it was before, the new generation's win."""
    old = Path(store.directory, "metadata.json").read_bytes()
    store.replace_transcript(
        [THREE], compaction_count=7, model="m2", labels={"a": "b"}, system_prompt="s", tools=[TOOL]
    )
    wanted = store.get_metadata()
    assert (wanted.compaction_count, wanted.model, wanted.labels, wanted.system_prompt) == (7, "m2", {"a": "b"}, "s")
    store.close()
    Path(store.directory, "metadata.json").write_bytes(old)  # as after a crash between the two renames
    for read_only in (True, False):
        with ConversationStore(store.directory, read_only=read_only) as fresh:
            fresh.load()
            assert fresh.get_metadata() == wanted
            assert fresh.get_messages() == [THREE]


def test_a_replace_that_is_refused_changes_nothing(store):
    """P4: bad messages, extras or metadata are refused before anything is written."""
    before = tree(store.directory)
    for call in (
        lambda: store.replace_transcript([ONE, {"bad": b""}]),
        lambda: store.replace_transcript([ONE], compaction_count=-1),
        lambda: store.replace_transcript([ONE], compaction_count=1.5),
        lambda: store.replace_transcript([ONE], generation=5),
        lambda: store.replace_transcript([ONE], id="x"),
    ):
        with pytest.raises((InvalidMessageError, InvalidMetadataError, TypeError)):
            call()
    assert tree(store.directory) == before
    assert not Path(store.directory, "archive").exists()


def test_rewind(store):
    """The undo that the docstring shows: the first n messages, and the rest still readable in the archive."""
    store.append_message(THREE)
    store.replace_transcript(store.get_messages()[:1])
    assert store.get_messages() == [ONE]
    archived = Path(store.directory, "archive/transcript-000000.jsonl").read_bytes()
    assert [json.loads(line)["message"] for line in archived.split(b"\n")[1:-1]] == [ONE, TWO, THREE]


# ---- metadata --------------------------------------------------------------------------------------------------------


def test_update_metadata_changes_what_it_names(store):
    """Each field changes alone, whole, and is durable on return; None clears what may be None."""
    changes: list[dict[str, Any]] = [
        {"model": "a"},
        {"system_prompt": "be kind"},
        {"tools": [TOOL]},
        {"tools": (TOOL, TOOL)},
        {"labels": {"a": "1", "b": ""}},
        {"labels": {"c": "2"}},
        {"compaction_count": 2**63 - 1},
        {"model": None, "system_prompt": None, "tools": None, "labels": None, "compaction_count": 0},
    ]
    expected = dataclasses.asdict(store.get_metadata())
    for change in changes:
        store.update_metadata(**change)
        expected |= change
        expected["labels"] = expected["labels"] or {}
        expected["tools"] = None if expected["tools"] is None else list(expected["tools"])
        with ConversationStore(store.directory, read_only=True) as reader:
            reader.load()
            for metadata in (store.get_metadata(), reader.get_metadata()):
                assert dataclasses.asdict(metadata) == {**expected, "updated_at": metadata.updated_at}
    assert store.get_messages() == [ONE, TWO]


def test_an_update_without_changes_writes_nothing(store):
    """update_metadata() with no argument leaves every file as it is."""
    before = tree(store.directory)
    store.update_metadata()
    assert tree(store.directory) == before


@pytest.mark.parametrize("name", ["id", "created_at", "updated_at", "generation", "mark", "modle", "hash", "messages"])
def test_what_cannot_change_is_a_type_error_that_lists_what_can(store, name):
    """The TypeError names the field and lists every field that can change."""
    before = tree(store.directory)
    for call in (store.update_metadata, lambda **kw: store.replace_transcript([], **kw)):
        if name == "messages" and call is not store.update_metadata:
            continue
        with pytest.raises(TypeError, match=repr(name)) as caught:
            call(**{name: "x"})
        for changeable in ("model", "compaction_count", "system_prompt", "tools", "labels", "provider"):
            assert changeable in str(caught.value)
    assert tree(store.directory) == before


def test_a_provider_that_nobody_knows_is_named_once(tmp_path, caplog):
    """`provider="anthropc"` was noticed by the first client, a week of messages later. A name of one's own is only named."""
    for place in range(3):
        with ConversationStore(tmp_path / str(place)) as store:
            store.initialize(provider="anthropc")
        with ConversationStore(tmp_path / str(place)) as store:
            store.load_or_initialize(provider="anthropc")
    for provider in (None, "claude", "openai", "openai-compatible", "gemini"):
        with ConversationStore(tmp_path / f"known-{provider}") as store:
            store.initialize(provider=provider)
    (record,) = [record for record in caplog.records if "provider" in record.getMessage()]
    assert record.levelname == "WARNING"
    assert "provider 'anthropc' is none of claude, openai, openai-compatible, gemini" in record.getMessage()


def test_the_provider_can_be_set_once(store, tmp_path):
    """The provider may be set while it is None; then its messages stay its own, and the error says what else can change."""
    store.update_metadata(provider="claude")
    store.update_metadata(provider="claude")
    before = tree(store.directory)
    for provider in ("openai", None):
        for call in (store.update_metadata, lambda **kw: store.replace_transcript([], **kw)):
            with pytest.raises(TypeError, match="'claude'") as caught:
                call(provider=provider, model="m")
            assert "model, compaction_count, system_prompt, tools, labels" in str(caught.value)
    assert tree(store.directory) == before
    with ConversationStore(tmp_path / "d") as other:
        other.initialize()
        other.replace_transcript([], provider="gemini")
        assert other.get_metadata().provider == "gemini"
    with ConversationStore(tmp_path / "e") as other:
        other.initialize(provider="openai")
        other.update_metadata(provider="openai-compatible")  # the same messages
        assert other.get_metadata().provider == "openai-compatible"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("provider", 5),
        ("provider", ""),
        ("model", b"m"),
        ("system_prompt", ["s"]),
        ("system_prompt", "\ud800"),
        ("labels", {"a": 1}),
        ("labels", {1: "a"}),
        ("labels", {"a": None}),
        ("labels", ["a"]),
        ("labels", {"a": "\udfff"}),
        ("tools", {}),
        ("tools", "search"),
        ("tools[0]", ["search"]),
        ("tools[0]", [{}]),
        ("tools[0]", [{"name": ""}]),
        ("tools[0]", [{"name": 5}]),
        ("tools[1]", [TOOL, {"name": "x", "description": None}]),
        ("tools[0]", [{"name": "x", "parameters": []}]),
        ("tools", [{"name": "x", "parameters": {"a": float("nan")}}]),
        ("tools", [{"name": "x", "parameters": {"a": (1,)}}]),
    ],
)
def test_metadata_of_another_type_is_refused_by_name(store, tmp_path, field, value):
    """InvalidMetadataError names the field; nothing was written, whichever call it was."""
    name = field.partition("[")[0]
    before = tree(tmp_path)
    new = ConversationStore(tmp_path / "new")
    for call in (
        store.update_metadata,
        lambda **kw: store.replace_transcript([], **kw),
        new.initialize,
        new.load_or_initialize,
    ):
        with pytest.raises(InvalidMetadataError) as caught:
            call(**{name: value})
        assert caught.value.field == field
    assert tree(tmp_path) == before


def test_metadata_that_was_accepted_does_not_stand_in_the_way_of_a_replace(tmp_path):
    """P4, P15: metadata too long for the header of a next generation is refused when it is given, not when it is needed."""
    with ConversationStore(tmp_path / "c", max_line_bytes=1024) as store:
        store.initialize(messages=[ONE])
        refused = 0
        for length in range(100, 1200, 100):
            try:
                store.update_metadata(system_prompt="x" * length)
            except InvalidMetadataError:
                refused += 1
            store.replace_transcript([ONE])
        assert refused > 0


@pytest.mark.parametrize("value", [-1, 2**63, 1.0, True, "1", None])
def test_compaction_count_is_an_int_from_0(store, value):
    """compaction_count is exactly an int of 63 bits."""
    with pytest.raises(InvalidMetadataError, match="compaction_count"):
        store.update_metadata(compaction_count=value)


def test_metadata_is_a_frozen_fresh_copy(store):
    """Changing what get_metadata returned, or what went in, changes nothing that is stored."""
    tools, labels = [copy.deepcopy(TOOL)], {"a": "1"}
    store.update_metadata(tools=tools, labels=labels)
    tools[0]["name"] = labels["a"] = "changed"
    metadata = store.get_metadata()
    with pytest.raises(dataclasses.FrozenInstanceError):
        metadata.model = "m"
    assert metadata.tools is not None
    metadata.tools[0]["name"] = metadata.labels["a"] = "changed"
    assert store.get_metadata().tools == [TOOL]
    assert store.get_metadata().labels == {"a": "1"}
    assert store.get_metadata() is not metadata


@pytest.mark.parametrize("verify", ["all", "tail"])
def test_metadata_as_it_was_at_the_start(store, verify):
    """``at_start`` shows what the first line of the live generation says, whatever was changed since; a replace starts anew."""
    first = store.get_metadata()
    assert store.get_metadata(at_start=True) == first
    store.update_metadata(system_prompt="New.", labels={"a": "1"})
    store.append_message(ONE)
    for writer in (True, False):
        store.close()
        with ConversationStore(store.directory, read_only=not writer) as again:
            again.load(verify=verify)
            assert again.get_metadata(at_start=True) == first
            assert again.get_metadata().system_prompt == "New."
    store.load(verify=verify)
    store.replace_transcript([THREE], compaction_count=1)
    at_start = store.get_metadata(at_start=True)
    assert (at_start.generation, at_start.system_prompt, at_start.compaction_count) == (1, "New.", 1)
    assert at_start.labels == {"a": "1"}


def test_unknown_members_of_the_metadata_survive(store):
    """P20: members that a later minor version wrote stay through updates and replaces, in metadata.json and header."""
    store.close()
    path = Path(store.directory, "metadata.json")
    document = decode_document(path.read_bytes())
    assert isinstance(document, MetadataDocument)
    future = {"colour": ["blue", {"deep": 1}], "rank": 7}
    path.write_bytes(encode_document({**document.members, **future}, document.mark))
    store.load()
    store.update_metadata(model="m")
    assert future.items() <= json.loads(path.read_bytes()).items()
    store.replace_transcript([THREE], compaction_count=1)
    assert future.items() <= json.loads(path.read_bytes()).items()
    header = json.loads(Path(store.directory, "transcript.jsonl").read_bytes().split(b"\n")[0])
    assert future.items() <= header["metadata"].items()
    store.close()
    store.load()
    store.update_metadata(labels={"a": "b"})
    assert future.items() <= json.loads(path.read_bytes()).items()


class Clock(PosixFileSystem):
    """The real file system with a clock that the test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_800_000_000_000_000

    def now_us(self) -> int:
        return self.now


def test_updated_at_never_goes_back(tmp_path):
    """P19: updated_at is the time of the last change, never earlier than the last record, whatever the clock does."""
    clock = Clock()
    store = ConversationStore(tmp_path / "c", file_system=clock)
    store.initialize(messages=[ONE])
    seen = [store.get_metadata().updated_at]
    created_at = store.get_metadata().created_at
    assert created_at == "2027-01-15T08:00:00.000000Z"
    assert store.get_metadata().created_at_datetime == datetime(2027, 1, 15, 8, tzinfo=UTC)
    for step, change in (
        (+1_000_000, lambda: store.append_message(TWO)),
        (-3_600_000_000, lambda: store.append_message(TWO)),
        (-1, lambda: store.update_metadata(model="m")),
        (+3_601_000_000, lambda: store.update_metadata(model="n")),
        (-90_000_000, lambda: store.replace_transcript([TWO])),
        (0, store.load),
        (+1, lambda: store.append_event({})),
        (+100_000_000, lambda: store.replace_transcript([THREE])),
        (-(10**12), lambda: store.update_metadata(labels={})),
        (0, store.load),
    ):
        clock.now += step
        change()
        metadata = store.get_metadata()
        seen.append(metadata.updated_at)
        assert metadata.updated_at_datetime.isoformat(timespec="microseconds")[:26] == metadata.updated_at[:26]
        assert metadata.created_at == created_at
        assert all(record.at <= metadata.updated_at for record in store.get_records())
        with ConversationStore(tmp_path / "c", read_only=True) as reader:
            reader.load()
            assert reader.get_metadata().updated_at == metadata.updated_at
    assert seen == sorted(seen)
    assert len(set(seen)) > 3
    store.close()


def test_an_append_is_news_for_updated_at_at_once(store):
    """updated_at follows an append although an append does not write metadata.json."""
    before = Path(store.directory, "metadata.json").read_bytes()
    appended = store.append_message(THREE)
    assert Path(store.directory, "metadata.json").read_bytes() == before
    assert store.get_metadata().updated_at == appended.at


# ---- paths -----------------------------------------------------------------------------------------------------------


def test_a_tilde_is_expanded(tmp_path, monkeypatch):
    """A path may begin with ~, for the store and for verify."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with ConversationStore("~/agents/c") as store:
        assert store.directory == str(tmp_path / "agents/c")
        store.initialize(messages=[ONE])
    assert (tmp_path / "agents/c/transcript.jsonl").exists()
    assert verify("~/agents/c").records == 1


def test_a_relative_path_is_resolved_once(tmp_path, monkeypatch):
    """A relative path means what it meant when the store was made, wherever the process goes afterwards."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = ConversationStore("c")
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.initialize(messages=[ONE])
    store.update_metadata(model="m")
    store.replace_transcript([TWO])
    store.close()
    store.load()
    store.close()
    assert (tmp_path / "c/transcript.jsonl").exists()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_the_users_own_path_may_lead_through_links(tmp_path):
    """P16: links are refused inside a conversation only; the path to it may hold them, at its end too."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with ConversationStore(tmp_path / "link/new/c") as store:
        store.initialize(messages=[ONE])
    (tmp_path / "direct").symlink_to("real/new/c")
    with ConversationStore(tmp_path / "direct") as store:
        store.load()
        store.append_message(TWO)
        store.replace_transcript([THREE])
        with pytest.raises(ConversationLockedError):
            ConversationStore(tmp_path / "real/new/c").load()
    assert verify(tmp_path / "real/new/c").is_whole


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def test_modes_without_proc(tmp_path, monkeypatch):
    """P16: a bare container has no /proc to reach a folder by its handle; the folder is opened instead."""

    def no_proc(path: object, *_: object, **__: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "no such file", path)

    monkeypatch.setattr(os, "chmod", no_proc)
    with umask(0o177), ConversationStore(tmp_path / "a" / "c") as store:
        store.initialize()
        store.replace_transcript([])
    for path in (tmp_path / "a", tmp_path / "a" / "c", tmp_path / "a" / "c" / "archive"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_modes_do_not_depend_on_the_umask(tmp_path, mask):
    """P16: every file is 0600 and every folder 0700, parents that were made included, whatever the umask is."""
    path = tmp_path / "made/by/us"
    with umask(mask):
        with ConversationStore(path) as store:
            store.initialize(messages=[ONE])
            store.append_message(TWO)
            store.update_metadata(model="m")
            store.replace_transcript([THREE])
        with open(path / "transcript.jsonl", "ab") as file:
            file.write(b"torn")
        with ConversationStore(path) as store:
            store.load()
            assert store.recovery is not None
            store.update_metadata(model="n")
    modes = {p: stat.S_IMODE(p.lstat().st_mode) for p in [tmp_path / "made", *(tmp_path / "made").rglob("*")]}
    assert {path.name for path in modes} >= {"made", "by", "us", "archive", "quarantine", "lock", "metadata.json"}
    assert {p: oct(mode) for p, mode in modes.items() if mode != (0o700 if p.is_dir() else 0o600)} == {}
    assert len(modes) == 3 + 2 + 3 + 1 + 2


def test_a_folder_that_was_there_keeps_its_mode(tmp_path):
    """P16: an existing empty folder is the user's; its mode is not ours to change."""
    (tmp_path / "c").mkdir()
    (tmp_path / "c").chmod(0o750)
    with ConversationStore(tmp_path / "c") as store:
        store.initialize()
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o750


# ---- later versions --------------------------------------------------------------------------------------------------


def _header(**changes: Any) -> Callable[[Path], None]:
    """Rewrite a transcript's header with the real hash, as a later version would write it."""

    def change(path: Path) -> None:
        members = json.loads((path / "transcript.jsonl").read_bytes().split(b"\n")[0])
        del members["hash"]
        body = json.dumps({**members, **changes}, separators=(",", ":")).encode()[:-1]
        (path / "transcript.jsonl").write_bytes(close_line(GENESIS, body)[0])

    return change


def _metadata_version(version: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        members = json.loads((path / "metadata.json").read_bytes())
        del members["hash"]
        body = json.dumps({**members, "version": version}, indent=2).encode()[:-1]
        digest = sha256(body).hexdigest()[:32].encode()
        (path / "metadata.json").write_bytes(body + b',"hash":"' + digest + b'"}\n')

    return change


LATER: dict[str, Callable[[Path], None]] = {
    "a header of version 2": _header(version=2),
    "a header of a version that is no number": _header(version="1"),
    "a header that requires sealing": _header(requires=["sealing"]),
    "a header that requires something odd": _header(requires={"x": 1}),
    "metadata of version 2": _metadata_version(2),
    "metadata of version 99 and a header of version 99": _both(_header(version=99), _metadata_version(99)),
}


@pytest.mark.parametrize("name", LATER)
def test_a_later_version_is_refused_and_never_rewritten(tmp_path, name):
    """P20: a greater version, or a feature that a reader must know, is an UnsupportedVersionError; the files stay as they are."""
    path = tmp_path / "c"
    with ConversationStore(path) as store:
        store.initialize(messages=[ONE])
    LATER[name](path)
    before = tree(tmp_path, but=("lock",))
    for read_only in (False, True):
        store = ConversationStore(path, read_only=read_only)
        for call in (store.load, store.load_or_initialize):
            with pytest.raises(UnsupportedVersionError, match="upgrade") as caught:
                call()
            assert caught.value.path.startswith(str(path))
    assert ConversationStore(path).exists()
    with pytest.raises(ConversationExistsError):
        ConversationStore(path).initialize()
    assert "version" in {finding.kind for finding in verify(path).findings}
    assert tree(tmp_path, but=("lock",)) == before


def test_unknown_members_of_header_and_records_are_kept(tmp_path):
    """P20: a reader keeps members that it does not know, where nothing says that it must know them."""
    path = tmp_path / "c"
    with ConversationStore(path) as store:
        store.initialize()
    _header(colour="blue")(path)
    data = (path / "transcript.jsonl").read_bytes()
    line, _ = close_line(
        data[-35:-3], b'{"seq":1,"at":"2026-01-01T00:00:00.000000Z","message":{"a":1},"mood":{"x":[1]},"list":[1]'
    )
    (path / "transcript.jsonl").write_bytes(data + line)
    metadata = decode_document((path / "metadata.json").read_bytes())
    assert isinstance(metadata, MetadataDocument)
    # Whoever rewrites a header has another head, and so another mark.
    assert metadata.mark is not None
    mark = metadata.mark._replace(position=metadata.mark.position._replace(offset_bytes=len(data), head=data[-35:-3]))
    (path / "metadata.json").write_bytes(encode_document(metadata.members, mark))
    with ConversationStore(path) as store:
        store.load()
        assert store.get_messages() == [{"a": 1}]
        store.append_message(TWO)
    assert (path / "transcript.jsonl").read_bytes().startswith(data + line)
    assert verify(path).is_whole


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
        expected = f"{tmp_path}/c: what was given as {names} differs from what is on record, which stays"
        assert said == ([expected] if names else [])
        caplog.clear()
    with ConversationStore(tmp_path / "c") as store:
        store.load()
        store.update_metadata(labels={"a": "b", "title": "more"})
    with ConversationStore(tmp_path / "c") as store:
        store.load_or_initialize(**given)
    assert caplog.records == []


# ---- errors and names ------------------------------------------------------------------------------------------------

ERRORS: list[TranscriptStoreError] = [
    TranscriptStoreError(path="/p", reason="r"),
    ConversationNotLoadedError(path="/p", reason="r", way_out=WayOut.LOAD_HERE),
    ConversationNotFoundError(path="/p", reason="r"),
    GenerationNotFoundError(path="/p", number=3, available=(0, 4)),
    ConversationExistsError(path="/p", reason="r"),
    ConversationLockedError(path="/p", reason="r", holder_pid=5, holder_host="h"),
    ConversationLockedError(path="/p", reason="r"),
    ReadOnlyError(path="/p"),
    CorruptTranscriptError(path="/p", kind="hole", reason="r", line_number=3, offset_bytes=99),
    CorruptTranscriptError(path="/p", kind="missing", reason="r"),
    CorruptMetadataError(path="/p", kind="damaged", reason="r"),
    UnsupportedVersionError(path="/p", reason="r"),
    InvalidMessageError(member='message["a"]', reason="r"),
    InvalidMetadataError(field="labels", reason="r"),
    InvalidIdError(reason="r"),
    StorageError(errno=28, strerror="No space left on device", path="/p", doing="append", consequence="So it is."),
    PoisonedError(path="/p", reason="r"),
    InvalidSnapshotIdError(reason="r", id="../etc"),
    SnapshotNotFoundError(id="3b2f"),
    CorruptSnapshotError(path="/p", kind="damaged", reason="r"),
    CorruptSnapshotError(path=None, kind="damaged", reason="r"),
    DecryptionError(path="/p", reason="r"),
    InvalidKeyError(reason="r", length_bytes=33),
    ProviderMismatchError(recorded_provider="claude", provider="openai"),
    InvalidBaseUrlError(reason="r"),
    MissingExtraError(provider="claude", extra="claude"),
    MissingExtraError(provider="claude-local", extra=None, program="claude"),
    MissingTokenError(provider="claude", variables=("ANTHROPIC_API_KEY",)),
    MaxStepsError(steps=20),
    IncompleteResponseError(reason="r", text="t"),
]


def test_every_error_class_is_in_the_list():
    """A class that is added to errors.py must be pickled here."""
    classes = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)}
    assert {type(error) for error in ERRORS} == classes


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


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling_and_copying(error):
    """An error that crosses a process (multiprocessing, a job queue) keeps its class, text, facts and notes."""
    error.add_note("seen in a worker")
    copies = [copy.copy(error), copy.deepcopy(error)]
    copies += [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for again in copies:
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.args == error.args
        assert vars(again) == vars(error)
        if isinstance(error, OSError):
            assert (again.errno, again.strerror, again.filename) == (error.errno, error.strerror, error.filename)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (ConversationNotLoadedError, RuntimeError),
        (ConversationNotFoundError, LookupError),
        (GenerationNotFoundError, LookupError),
        (CorruptTranscriptError, ValueError),
        (CorruptMetadataError, ValueError),
        (UnsupportedVersionError, ValueError),
        (InvalidMessageError, ValueError),
        (InvalidMetadataError, ValueError),
        (InvalidIdError, ValueError),
        (InvalidSnapshotIdError, ValueError),
        (SnapshotNotFoundError, LookupError),
        (CorruptSnapshotError, ValueError),
        (DecryptionError, ValueError),
        (InvalidKeyError, ValueError),
        (ProviderMismatchError, ValueError),
        (StorageError, OSError),
    ],
)
def test_errors_are_the_builtins_that_a_caller_expects(error, builtin):
    """Each error is also the builtin error that its cause would be."""
    assert issubclass(error, builtin)
    assert issubclass(error, TranscriptStoreError)


PACKAGE: Any = transcript_store
DOORS = ("ways_out", "errors", "conversation", "library", "maintenance", "snapshots")


def test_what_is_public_is_listed_once():
    """The names in the package are those of its doors, no name in two of them, and each comes from this package."""
    listed = [name for door in DOORS for name in names_of(importlib.import_module(f"transcript_store.{door}"))]
    assert PACKAGE.__all__ == sorted(listed)
    for name in listed:
        assert getattr(transcript_store, name).__module__.startswith("transcript_store.")
    shown = {name for name, value in vars(transcript_store).items() if not isinstance(value, types.ModuleType)}
    assert {name for name in shown if not name.startswith("_")} == set(listed)


def names_of(door: Any) -> list[str]:
    """The door's own list; the errors are what their module defines."""
    defined = [name for name, value in vars(door).items() if getattr(value, "__module__", "") == door.__name__]
    return list(getattr(door, "__all__", None) or [name for name in defined if not name.startswith("_")])


def test_a_public_name_is_there_before_it_is_imported():
    """For ``dir()``, for ``import *`` and for whoever asks; a name imports no door behind its own, and a wrong name is none."""
    script = (
        "import sys, transcript_store\n"
        "there = lambda: {name for name in sys.modules if name.startswith('transcript_store.')}\n"
        "assert there() == {'transcript_store._doors'}\n"
        "from transcript_store import StorageError\n"
        "assert 'transcript_store.errors' in there() and 'transcript_store.conversation' not in there()\n"
        "from transcript_store import ConversationStore\n"
        "assert 'transcript_store.library' not in there()\n"
        "assert set(transcript_store.__all__) <= set(dir(transcript_store))\n"
        "before = set(globals())\n"
        "from transcript_store import *\n"
        "assert set(globals()) - before - {'before'} == set(transcript_store.__all__) - before\n"
        "assert not hasattr(transcript_store, 'no_such_name')"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_everything_public_has_a_docstring():
    """Every public class, function, method and property says what it is for."""
    missing = []
    for name in PACKAGE.__all__:
        thing = getattr(transcript_store, name)
        if not (thing.__doc__ or "").strip():
            missing.append(name)
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                is_ours = inspect.isfunction(value) or isinstance(value, (property, classmethod, staticmethod))
                if not member.startswith("_") and is_ours and not inspect.getdoc(getattr(thing, member)):
                    missing.append(f"{name}.{member}")
    assert missing == []


def test_values_are_frozen_and_slotted():
    """What calls return cannot be changed by accident: dataclasses are frozen and slotted, the others are tuples."""
    from transcript_store import Finding, Record, Recovery, Verification

    for kind in (ConversationMetadata, Record, Recovery, Finding, Verification):
        assert dataclasses.is_dataclass(kind)
        assert vars(kind)["__dataclass_params__"].frozen
        assert "__slots__" in vars(kind)
    assert issubclass(AppendResult, tuple)
    assert issubclass(RefreshResult, tuple)


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


def test_a_refused_replace_can_be_done_again(tmp_path):
    """P7: the archive entry that a refused replace left does not stand in the way of the next one."""
    disk = SimulatedFileSystem()
    with ConversationStore("/c", file_system=disk) as store:
        store.initialize(messages=[{"n": 1}])

        def full(call: Call) -> None:
            if call.name == "write":
                raise OSError(errno.ENOSPC, "injected")

        disk.on_call = full
        with pytest.raises(StorageError):
            store.replace_transcript([{"n": 2}])
        disk.on_call = None
        assert store.get_messages() == [{"n": 1}]
        store.replace_transcript([{"n": 3}])
        assert b'"n":1' in (disk.tree()["/c/archive/transcript-000000.jsonl"] or b"")
    assert verify("/c", file_system=disk).is_whole


@pytest.mark.parametrize(
    "body",
    [
        b'{"seq":1,"at":"2026-01-01T00:00:00.000000Z","message":{"role":',
        b'{"seq":1,"x":1',
        b'{"seq":1,"at":"2026-01-01T00:00:00.000000Z","message":[1]',
        b'{"seq":1,"at":"2026-01-01T00:00:00.000000Z","message":{"a":"\xff"}',
    ],
)
def test_a_line_that_verifies_and_is_no_record_is_said_to_be_none(tmp_path, body):
    """P15: the chain is not keyed, so a line may verify and hold anything; reading it is an error of ours."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize()
        line, _ = close_line(store.head.encode(), body)
    with (tmp_path / "c" / "transcript.jsonl").open("ab") as file:
        file.write(line)
    with ConversationStore(tmp_path / "c", read_only=True) as reader:
        reader.load()
        with pytest.raises(CorruptTranscriptError, match="not a record") as caught:
            reader.get_records()
        assert (caught.value.line_number, caught.value.kind) == (2, "foreign")


def test_restoring_a_backup_loses_nothing_from_the_archive(tmp_path):
    """P4, P8: after a backup of an earlier generation was put back, the archive holds the only copy of what came later."""
    folder = tmp_path / "c"
    with ConversationStore(folder) as store:
        store.initialize(messages=[{"n": 1}])
    backup = {name: (folder / name).read_bytes() for name in ("metadata.json", "transcript.jsonl")}
    with ConversationStore(folder) as store:
        store.load()
        store.append_message({"n": "only in generation 0"})
        store.replace_transcript([{"n": "only in generation 1"}])
        store.replace_transcript([{"n": 4}])
    for name, content in backup.items():
        (folder / f"{name}.new").write_bytes(content)
        (folder / f"{name}.new").rename(folder / name)
    assert {finding.kind for finding in verify(folder).findings} == {"wrong-generation"}
    with ConversationStore(folder) as store:
        store.load()
        assert store.get_messages() == [{"n": 1}]
        store.replace_transcript([{"n": 5}])
        store.replace_transcript([{"n": 6}])
    kept = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert b"only in generation 0" in kept
    assert b"only in generation 1" in kept
    assert verify(folder).is_whole


def test_close_writes_nothing_over_a_restored_backup(tmp_path):
    """P11: what was put in the place of an open conversation is not touched by the close of the old one."""
    folder = tmp_path / "c"
    store = ConversationStore(folder)
    store.initialize(messages=[{"n": 1}])
    backup = {name: (folder / name).read_bytes() for name in ("metadata.json", "transcript.jsonl")}
    store.append_message({"n": 2})
    for name, content in backup.items():
        (folder / f"{name}.new").write_bytes(content)
        (folder / f"{name}.new").rename(folder / name)
    store.close()
    assert {name: (folder / name).read_bytes() for name in backup} == backup
    assert verify(folder).is_whole


def test_close_syncs_after_an_interrupted_append(monkeypatch):
    """P2, P21: with process-crash durability close() puts on the disk what was appended, whatever ended the last append."""
    disk = SimulatedFileSystem()
    with ConversationStore("/c", file_system=disk, durability="process-crash") as store:
        store.initialize()
        for n in range(5):
            store.append_message({"n": n})

        def interrupt(call: Call) -> None:
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

    def refuse(call: Call) -> None:
        if call.name == "sync":
            raise OSError(errno.EIO, "injected")

    disk.on_call = refuse
    for _ in range(10):
        with pytest.raises(StorageError):
            ConversationStore("/a/b/c", file_system=disk).initialize()
    assert disk.open_handles == []
