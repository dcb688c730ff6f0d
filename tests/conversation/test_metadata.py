"""Metadata: what can be changed and what cannot, what is kept of what this version does not know, and when it was changed."""

from __future__ import annotations

import copy
import dataclasses
import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conversation.helpers import ONE, THREE, TOOL, TWO
from tests.kit.machines import Clock
from tests.kit.trees import tree
from transcript_store import ConversationStore, InvalidMetadataError
from transcript_store._conversation.metadata import MetadataDocument, decode_document, encode_document


def test_update_metadata_changes_what_it_names(store):
    """Each field changes alone, whole, and is durable on return; None clears what may be None."""
    changes: list[dict[str, Any]] = [
        {"model": "a"},
        {"system_prompt": "be kind"},
        {"tools": [TOOL]},
        {"tools": (TOOL, TOOL)},
        {"labels": {"a": "1", "b": ""}},
        {"replace_labels": {"c": "2"}},
        {"compaction_count": 2**63 - 1},
        {"model": None, "system_prompt": None, "tools": None, "replace_labels": {}, "compaction_count": 0},
    ]
    expected = dataclasses.asdict(store.get_metadata())
    for change in changes:
        store.update_metadata(**change)
        expected |= {name.removeprefix("replace_"): value for name, value in change.items()}
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


def test_the_provider_changes_with_all_messages_alone(store, tmp_path):
    """The provider may be set while it is None; then its messages stay its own, and the error says what else can change.

    A replace may change it: the new messages have the other provider's form. It cannot take it away.
    """
    store.update_metadata(provider="claude")
    store.update_metadata(provider="claude")
    before = tree(store.directory)
    keep, replace = partial(store.keep_records, []), partial(store.replace_transcript, [])
    for provider, calls in (("openai", (store.update_metadata, keep)), (None, (store.update_metadata, keep, replace))):
        for call in calls:
            with pytest.raises(TypeError, match="'claude'") as caught:
                call(provider=provider, model="m")
            assert "model, compaction_count, system_prompt, tools, labels" in str(caught.value)
    assert tree(store.directory) == before
    store.replace_transcript([{"role": "user", "parts": [{"text": "hi"}]}], provider="gemini")
    assert store.get_metadata().provider == "gemini"
    store.close()
    with ConversationStore(store.directory) as again:
        again.load()
        assert (again.get_metadata().provider, len(again.get_messages())) == ("gemini", 1)
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
    store.update_metadata(compaction_count=2**63 - 1)
    assert store.get_metadata().compaction_count == 2**63 - 1


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
