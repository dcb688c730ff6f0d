"""A change of one label that loses the others: pinning a chat removed its title.

Reported of metadata in many stores ("update_metadata overwrites existing keys"). ``labels=`` merges wherever metadata is changed, None
removes, ``replace_labels=`` replaces, and ``title`` is a property; in a folder, with a shared lock, sealed, on a backend and for tasks.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from transcript_store import (
    ConversationLibrary,
    ConversationLockedError,
    InvalidMetadataError,
    ReadOnlyError,
    restore_snapshot,
    snapshot_of,
)
from transcript_store.aio import AsyncConversationLibrary, AsyncConversationStore
from transcript_store.redaction import SecretRedactor
from transcript_store.testing import SimulatedBackend, SimulatedFileSystem

TOKEN = "ghp_" + "0123456789abcdef0123456789abcdef0123"
FIRST = {"title": "Moving house", "project": "x"}


@pytest.fixture(params=["folder", "shared lock", "sealed", "redacted", "backend"])
def library(request, tmp_path):
    if request.param == "backend":
        return ConversationLibrary(SimulatedBackend(), file_system=SimulatedFileSystem())
    options: dict[str, Any] = {"sealed": {"encryption_key": b"k" * 32}, "redacted": {"redact": SecretRedactor()}}
    return ConversationLibrary(tmp_path, **options.get(request.param, {}))


@pytest.fixture
def conversation(library, request):
    options = {"hold_lock": False} if "shared" in request.node.name else {}
    with library.create(provider="claude", labels=FIRST, **options) as conversation:
        yield conversation


def changes_of(conversation):
    """Each call that changes metadata."""
    return [
        conversation.update_metadata,
        lambda **changes: conversation.replace_transcript([{"role": "user", "content": "?"}], **changes),
        lambda **changes: conversation.keep_records([1], **changes),
        lambda **changes: conversation.restore([], provider="claude", **changes),
    ]


def test_labels_are_merged_whatever_changes_them(conversation, library):
    for number, change in enumerate(changes_of(conversation)):
        change(labels={"pinned": str(number), "project": None})
        assert conversation.get_metadata().labels == {"title": "Moving house", "pinned": str(number)}
        change(labels={"project": "x"}, model="m")
        change(labels={})
        assert conversation.get_metadata().labels == {**FIRST, "pinned": str(number)}
        change(labels={"nothing of that name": None})
        change(replace_labels={"only": "this"})
        assert conversation.get_metadata().labels == {"only": "this"}
        change(replace_labels={})
        assert conversation.get_metadata().labels == {}
        change(title="Moving house", labels=MappingProxyType({"project": "x"}))
        assert conversation.get_metadata().labels == FIRST
    conversation.close()
    with library.open(conversation.directory.rpartition("/")[2], read_only=True) as again:
        assert again.get_metadata().labels == FIRST
        assert again.title == "Moving house"
        with pytest.raises(ReadOnlyError):
            again.title = "Another"


def test_a_title(conversation, library):
    """It is the label, in the store, in lists, in the library and in what begins a conversation; other labels stay."""
    assert conversation.title == "Moving house"
    conversation.title = "Moved"
    assert conversation.get_metadata().labels == {**FIRST, "title": "Moved"}
    conversation.title = None
    assert conversation.get_metadata().labels == {"project": "x"}
    its_id = conversation.id
    conversation.close()
    library.rename(its_id, "From outside")
    with library.open(its_id) as again:
        assert again.title == "From outside"
        assert again.get_metadata().labels["project"] == "x"
    library.rename(its_id, None)
    with library.open(its_id) as again:
        assert again.title is None
    with library.create(title="At once", labels={"a": "b"}) as another:
        assert another.get_metadata().labels == {"title": "At once", "a": "b"}
    with library.create(title=None, labels=None) as another:
        assert another.get_metadata().labels == {}


def test_a_title_is_redacted_as_a_label_is(tmp_path):
    with ConversationLibrary(tmp_path, redact=SecretRedactor()).create(title=f"of {TOKEN}") as conversation:
        conversation.update_metadata(labels={"a": TOKEN, "b": None})
        assert TOKEN not in str(conversation.get_metadata())
        conversation.title = TOKEN
        assert TOKEN not in str(conversation.get_metadata())
        assert conversation.get_metadata().labels.keys() == {"a", "title"}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "changes",
    [
        {"labels": None},
        {"replace_labels": None},
        {"labels": [("a", "b")]},
        {"labels": {"a": 3}},
        {"labels": {3: None}},
        {"replace_labels": {"a": 3}},
        {"title": 3},
        {"title": b"x"},
        {"labels": {"a": "b"}, "replace_labels": {}},
        {"label": {}},
    ],
)
def test_what_is_refused_changes_nothing(conversation, changes):
    for change in changes_of(conversation):
        with pytest.raises((InvalidMetadataError, TypeError)):
            change(**changes)
    assert conversation.get_metadata().labels == FIRST
    assert conversation.record_count == 0


def test_a_holder_of_the_lock_is_named_when_it_is_renamed(tmp_path):
    """The library cannot change what a writer holds; the error comes after a wait, which a read-only library has not."""
    library = ConversationLibrary(tmp_path, file_system=SimulatedFileSystem())
    with library.create(title="Mine") as conversation:
        with pytest.raises(ConversationLockedError):
            library.rename(conversation.id, "Yours")
        assert conversation.title == "Mine"


def test_a_snapshot_brings_its_labels_and_no_others(tmp_path):
    library = ConversationLibrary(tmp_path)
    with library.create(labels=FIRST) as conversation, library.create(labels={"pinned": "yes"}) as other:
        restore_snapshot(snapshot_of(conversation), other)
        assert other.get_metadata().labels == FIRST


def test_for_tasks(tmp_path: Path):
    async def main() -> None:
        async with AsyncConversationStore(tmp_path / "c") as conversation:
            await conversation.initialize(title="Mine", labels={"project": "x"})
            await asyncio.gather(*(conversation.update_metadata(labels={str(n): "y"}) for n in range(4)))
            assert len((await conversation.get_metadata()).labels) == 6
            await conversation.set_title("Ours")
            assert await conversation.title == "Ours"

        library = AsyncConversationLibrary(tmp_path / "chats")
        async with await library.create(title="A") as one:
            its_id = await one.call(lambda store: store.id)
        await library.rename(its_id, "B")
        assert [summary.title for summary in await library.list()] == ["B"]

    asyncio.run(main())
