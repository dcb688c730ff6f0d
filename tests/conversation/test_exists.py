"""``exists()`` says just whether ``initialize()`` would refuse.

The incident, in a store we read: they disagreed, and the caller's ``if not exists(): initialize()`` overwrote a
conversation.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.conversation.helpers import ONE, THREE, TWO, both
from tests.kit.trees import tree
from transcript_store import (
    ConversationExistsError,
    ConversationNotFoundError,
    ConversationStore,
    TranscriptStoreError,
    repair,
    verify,
)
from transcript_store._conversation.metadata import MetadataDocument, decode_document, encode_document

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


def _target(path: Path) -> Path:
    return path.parent / "target"


ABSENT: dict[str, Callable[[Path], object]] = {
    "absent": lambda p: None,
    "empty": lambda p: p.mkdir(),
    "a fresh volume": _in_folder(lambda p: (p / "lost+found").mkdir()),
    "a lock": _in_folder(lambda p: (p / "lock").write_bytes(b"")),
    "a temporary": _in_folder(lambda p: (p / A_TEMPORARY).write_bytes(b"{")),
    "void metadata": _void,
    "void metadata, lock, temporaries": both(
        _void, lambda p: (p / A_TEMPORARY).write_bytes(b"{"), lambda p: (p / "lock").write_bytes(b"{}")
    ),
    "a symlink to an empty folder": both(lambda p: _target(p).mkdir(), lambda p: p.symlink_to(_target(p))),
}

OCCUPIED: dict[str, Callable[[Path], object]] = {
    "a conversation": _conversation,
    "a conversation without transcript": _conversation_without("transcript.jsonl"),
    "a conversation without metadata": _conversation_without("metadata.json"),
    "an archive only": both(_conversation_without("transcript.jsonl"), lambda p: (p / "metadata.json").unlink()),
    "an empty archive": _in_folder(lambda p: (p / "archive").mkdir()),
    "a quarantine only": _in_folder(lambda p: (p / "quarantine").mkdir()),
    "void metadata and a transcript": both(_void, lambda p: (p / "transcript.jsonl").write_bytes(b"")),
    "void metadata and an archive": both(_void, lambda p: (p / "archive").mkdir()),
    "damaged metadata": both(_void, lambda p: (p / "metadata.json").write_bytes(b"{}")),
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
    "a symlink to a file": both(lambda p: _target(p).write_text("mine"), lambda p: p.symlink_to(_target(p))),
    "a symlink to a conversation": both(lambda p: _conversation(_target(p)), lambda p: p.symlink_to(_target(p))),
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


def test_a_mistyped_path_is_not_answered_with_initialize_alone(tmp_path):
    """A newcomer mistyped a path, and was told to create a conversation there: the path comes first."""
    with pytest.raises(ConversationNotFoundError) as caught:
        ConversationStore(tmp_path / "agnet").load()
    assert str(caught.value) == (
        f"{tmp_path}/agnet: there is no conversation; check the path; initialize() starts a new conversation there"
    )


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
        assert verify(path).is_intact
        assert not list(path.glob(".tmp-*"))
        store.close()


def test_a_folder_in_the_name_of_a_temporary_is_left_unchanged(tmp_path):
    """P13: what we sweep is files of ours; a folder that has such a name keeps its content."""
    (tmp_path / "c" / A_TEMPORARY).mkdir(parents=True)
    (tmp_path / "c" / A_TEMPORARY / "mine").write_text("mine")
    with ConversationStore(tmp_path / "c") as store:
        store.load_or_initialize(messages=[ONE])
    assert (tmp_path / "c" / A_TEMPORARY / "mine").read_text() == "mine"
