"""Damage × operation: each gives the right error of the right kind, again and again, and changes nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.helpers import MESSAGES, METADATA, TRANSCRIPT, load, load_or_initialize
from tests.kit.trees import tree
from transcript_store import (
    ConversationExistsError,
    ConversationStore,
    CorruptMetadataError,
    CorruptTranscriptError,
    TranscriptStoreError,
    verify,
)
from transcript_store._conversation.metadata import MetadataDocument, decode_document, encode_document

# ---- damage × operation ---------------------------------------------------------------------------------------------

CLAUDE_CODE = (
    b'{"parentUuid":null,"isSidechain":false,"userType":"external","cwd":"/home/u","sessionId":"0b0f","version":"2.0.1",'
    b'"type":"user","message":{"role":"user","content":"hi"},"uuid":"9a","timestamp":"2026-01-01T00:00:00.000Z"}\n'
    b'{"parentUuid":"9a","type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"hello"}]}}\n'
)


def _rewrite(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        path = directory / name
        path.write_bytes(change(path.read_bytes()))

    return damage


def _metadata(**changes: Any) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        document = decode_document(data)
        assert isinstance(document, MetadataDocument)
        return encode_document({**document.members, **changes}, document.mark)

    return change


def _remove(*names: str) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for name in names:
            (directory / name).unlink()

    return damage


def _only_quarantine(directory: Path) -> None:
    for entry in directory.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    (directory / "quarantine").mkdir()
    (directory / "quarantine/g0-o1-00").write_bytes(b"{")


DAMAGE: dict[str, tuple[Callable[[Path], None], type[TranscriptStoreError], str]] = {
    "empty transcript": (_rewrite(TRANSCRIPT, lambda d: b""), CorruptTranscriptError, "damaged-header"),
    "one line feed": (_rewrite(TRANSCRIPT, lambda d: b"\n"), CorruptTranscriptError, "foreign"),
    "header cut": (_rewrite(TRANSCRIPT, lambda d: d[:100]), CorruptTranscriptError, "damaged-header"),
    "header without its LF": (
        _rewrite(TRANSCRIPT, lambda d: d[: d.index(b"\n")]),
        CorruptTranscriptError,
        "damaged-header",
    ),
    "header overwritten": (
        _rewrite(TRANSCRIPT, lambda d: b"X" * d.index(b"\n") + d[d.index(b"\n") :]),
        CorruptTranscriptError,
        "foreign",
    ),
    "header's first block lost": (
        _rewrite(TRANSCRIPT, lambda d: bytes(200) + d[200:]),
        CorruptTranscriptError,
        "damaged-header",
    ),
    "header dropped": (
        _rewrite(TRANSCRIPT, lambda d: d[d.index(b"\n") + 1 :]),
        CorruptTranscriptError,
        "damaged-header",
    ),
    "garbage": (_rewrite(TRANSCRIPT, lambda d: bytes(range(256)) * 4), CorruptTranscriptError, "foreign"),
    "NULs": (_rewrite(TRANSCRIPT, lambda d: bytes(len(d))), CorruptTranscriptError, "foreign"),
    "somebody else's JSONL": (_rewrite(TRANSCRIPT, lambda d: CLAUDE_CODE), CorruptTranscriptError, "foreign"),
    "a word edited by hand": (
        _rewrite(TRANSCRIPT, lambda d: d.replace(b'"one"', b'"eins"')),
        CorruptTranscriptError,
        "damaged-line",
    ),
    "saved by an editor with CR LF": (
        _rewrite(TRANSCRIPT, lambda d: d.replace(b"\n", b"\r\n")),
        CorruptTranscriptError,
        "damaged-header",
    ),
    "cut at a line": (
        _rewrite(TRANSCRIPT, lambda d: d[: d.index(b"\n") + 1]),
        CorruptTranscriptError,
        "truncated",
    ),
    "transcript removed": (_remove(TRANSCRIPT), CorruptTranscriptError, "missing"),
    "only the archive left": (_remove(TRANSCRIPT, METADATA), CorruptTranscriptError, "missing"),
    "only a quarantine left": (_only_quarantine, CorruptTranscriptError, "missing"),
    "metadata removed": (_remove(METADATA), CorruptMetadataError, "missing"),
    "metadata empty": (_rewrite(METADATA, lambda d: b""), CorruptMetadataError, "damaged"),
    "metadata cut": (_rewrite(METADATA, lambda d: d[:-30]), CorruptMetadataError, "damaged"),
    "metadata edited by hand": (
        _rewrite(METADATA, lambda d: d.replace(b"claude", b"openai")),
        CorruptMetadataError,
        "damaged",
    ),
    "metadata of something else": (_rewrite(METADATA, lambda d: b'{"name":"x"}\n'), CorruptMetadataError, "damaged"),
    "metadata of another conversation": (
        _rewrite(METADATA, _metadata(id="00000000-0000-4000-8000-000000000000")),
        CorruptTranscriptError,
        "wrong-conversation",
    ),
    "metadata of a later generation": (
        _rewrite(METADATA, _metadata(generation=2)),
        CorruptTranscriptError,
        "wrong-generation",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_conversation_is_refused_and_left_unchanged(conversation, name):
    """P13: whatever is damaged, each operation gives the right error of the right kind, again and again, and changes nothing."""
    damage, error, kind = DAMAGE[name]
    damage(conversation)
    before = tree(conversation)

    store = ConversationStore(conversation)
    assert store.exists()
    with pytest.raises(ConversationExistsError) as caught:
        store.initialize(messages=MESSAGES)
    assert caught.value.path == str(conversation)
    found = verify(conversation)
    assert found.findings
    assert kind in {finding.kind for finding in found.findings}
    assert tree(conversation) == before

    for operation in (load, load_or_initialize):
        for read_only in (True, False, False):  # the second writer finds the lock free: a refused load holds nothing
            store = ConversationStore(conversation, read_only=read_only)
            with pytest.raises(error) as refused:
                operation(store)
            assert type(refused.value) is error
            assert refused.value.kind == kind  # type: ignore[attr-defined]
            assert str(conversation) in str(refused.value)
            if not read_only:
                # A writer takes the lock before it looks, and signs it: nothing else may differ.
                before.pop(f"{conversation}/lock", None)
                assert tree(conversation, but=("lock",)) == before
                before = tree(conversation)
            assert tree(conversation) == before


def test_a_line_edited_by_hand_is_named(conversation):
    """P10: the error says which line and which byte, so that the editor's user can undo the edit; undone, it loads."""
    path = conversation / TRANSCRIPT
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"one"', b'"ONE"'))
    with pytest.raises(CorruptTranscriptError) as caught:
        ConversationStore(conversation).load()
    assert (caught.value.line_number, caught.value.offset_bytes) == (2, data.index(b"\n") + 1)
    path.write_bytes(data)
    with ConversationStore(conversation) as store:
        store.load()
        assert store.get_messages() == MESSAGES


def test_a_refused_load_of_somebody_elses_folder_leaves_no_lock_in_it(tmp_path):
    """P13: a folder that holds a foreign transcript.jsonl (a common name) gets no file of ours when load() refuses it."""
    (tmp_path / TRANSCRIPT).write_bytes(CLAUDE_CODE)
    (tmp_path / "notes.txt").write_text("mine")
    before = tree(tmp_path)
    with pytest.raises((CorruptTranscriptError, CorruptMetadataError)):
        ConversationStore(tmp_path).load()
    assert tree(tmp_path) == before


# ---- other users, full disks, read-only mounts: as root -------------------------------------------------------------


def test_the_foreign_file_used_here_is_one():
    """The table itself: the foreign JSONL is JSON on every line, so that only its content can have it refused."""
    lines = [json.loads(line) for line in CLAUDE_CODE.split(b"\n")[:-1]]
    assert [line["message"]["role"] for line in lines] == ["user", "assistant"]
