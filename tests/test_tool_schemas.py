"""Tools' JSON schemas, between this library and go-tool-base, which decodes them into a struct.

Two incidents. One load and one save by the Go program turned a tool's ``{}`` into ``true``: the whole snapshot was refused here from
then on, and ``collect_media`` stopped for the whole store. And the reverse: a tool with ``"type": ["string", "null"]``, as strict mode
and MCP servers have them, made Go's ``Load`` fail and its ``List`` leave the snapshot out, and nobody said so.

tests/vectors/schemas.json and 18-empty-schemas were written by the Go program: its verdict on each keyword with each kind of value.
"""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.kit.cases import for_each
from tests.kit.vectors import VECTORS
from transcript_store import (
    ConversationStore,
    CorruptSnapshotError,
    FileStore,
    InvalidMetadataError,
    MemorySnapshotStore,
    Snapshot,
    SnapshotStore,
    ToolSnapshot,
    restore_snapshot,
    snapshot_of,
)
from transcript_store._json import verbatim
from transcript_store.testing import SimulatedFileSystem

GO: dict[str, Any] = json.loads((VECTORS / "schemas.json").read_text())
EMPTY = VECTORS / "18-empty-schemas"
NULLABLE = {"type": ["string", "null"]}
TUPLE = {"items": [{"type": "string"}]}
IMAGE = "iVBORw0KGgo" * 100 + "AA=="


def saved(*tools: ToolSnapshot, **fields: Any) -> Snapshot:
    return Snapshot.create(**{"provider": "claude", "messages": [], "tools": tools, **fields})


def begun(*tools: dict[str, Any]) -> ConversationStore:
    conversation = ConversationStore("/conversation", file_system=SimulatedFileSystem())
    conversation.initialize(provider="claude", tools=tools)
    return conversation


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# ---- true and false (what Go writes of an empty schema) ----------------------------------------------------------------


def test_a_store_that_go_saved_a_tool_without_parameters_in(tmp_path: Path) -> None:
    """It loads, lists and verifies; media is collected; and what is saved again are the bytes that Go wrote."""
    shutil.copytree(EMPTY / "store", tmp_path / "store")
    store = FileStore(tmp_path / "store")
    (summary,) = store.list()
    loaded = store.load(summary.id)
    assert {tool.name: tool.parameters for tool in loaded.tools} == {
        "now": True,
        "anything": True,
        "nothing": False,
        "none": None,
    }
    store.save(saved(messages=[IMAGE], id="0e5a3c52-7f0b-4c39-9b60-0d6f3f2a9b11"))
    store.delete("0e5a3c52-7f0b-4c39-9b60-0d6f3f2a9b11")
    assert len(store.collect_media(older_than_seconds=0)) == 1
    file = tmp_path / "store" / f"{summary.id}.json"
    before = file.read_bytes()
    store.save(loaded)
    assert file.read_bytes() == before
    assert store.verify() == []


@pytest.mark.parametrize("store", [MemorySnapshotStore, lambda: FileStore("/s", file_system=SimulatedFileSystem())])
def test_an_empty_schema_is_written_as_go_writes_it(store: Any) -> None:
    """``{}`` is ``true``; both come back as they were saved, from any store."""
    kept: SnapshotStore = store()
    one = saved(ToolSnapshot("now", "", {}), ToolSnapshot("anything", "", True), ToolSnapshot("nothing", "", False))
    kept.save(one)
    assert kept.load(one.id) == one == Snapshot.from_json(one.to_json())
    assert [tool.get("parameters") for tool in json.loads(one.to_json())["tools"]] == [True, True, False]
    assert one.tools[0] == ToolSnapshot("now", "", True)


def test_a_conversation_takes_them_as_objects_and_gives_them_back() -> None:
    """A model is given an object: ``{}``, and ``{"not": {}}``, which nothing satisfies. A snapshot of it has the same value."""
    one = Snapshot.from_json((EMPTY / "input.json").read_bytes())
    copy = ConversationStore("/copy", file_system=SimulatedFileSystem())
    restore_snapshot(one, copy)
    tools = {tool["name"]: tool.get("parameters") for tool in copy.get_metadata().tools or ()}
    assert tools == {"now": {}, "anything": {}, "nothing": {"not": {}}, "none": None}
    assert snapshot_of(copy).tools == one.tools
    copy.close()


@for_each("parameters", [1, "true", [], [True], 0.5])
def test_nothing_else_is_a_schema(parameters: Any) -> None:
    """What is neither an object nor a bool stays refused, given and read."""
    with pytest.raises(InvalidMetadataError, match="dict or a bool"):
        ToolSnapshot("t", "", parameters)
    text = saved(ToolSnapshot("t", "", True)).to_json()
    with pytest.raises(CorruptSnapshotError):
        Snapshot.from_json(text.replace(b'"parameters": true', b'"parameters": ' + json.dumps(parameters).encode()))


# ---- an equal form that Go can read ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "equal"),
    [
        (NULLABLE, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"type": ["string"]}, {"type": "string"}),
        ({"minLength": 1.0, "maxItems": 2e3}, {"minLength": 1, "maxItems": 2000}),
        (
            {"title": "t", "type": ["integer", "null"], "enum": [1, None]},
            {"title": "t", "anyOf": [{"type": "integer"}, {"type": "null"}], "enum": [1, None]},
        ),
        (
            {"type": ["object", "null"], "anyOf": [{"minProperties": 1}]},
            {"anyOf": [{"minProperties": 1}], "allOf": [{"anyOf": [{"type": "object"}, {"type": "null"}]}]},
        ),
        (
            {"type": ["a", "b"], "anyOf": [True], "allOf": [False]},
            {"anyOf": [True], "allOf": [False, {"anyOf": [{"type": "a"}, {"type": "b"}]}]},
        ),
        (
            {"properties": {"a": NULLABLE, "type": {"items": NULLABLE}}, "$defs": {"x": {"not": NULLABLE}}},
            {
                "properties": {
                    "a": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "type": {"items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
                },
                "$defs": {"x": {"not": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
            },
        ),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_what_go_cannot_read_is_written_in_an_equal_form(given: Any, equal: Any, tmp_path: Path) -> None:
    """On the disk, in the order of the members; from a conversation too; and what is saved is what is loaded."""
    store = FileStore(tmp_path / "store")
    one = saved(ToolSnapshot("search", "", given))
    store.save(one)
    (written,) = json.loads((tmp_path / "store" / f"{one.id}.json").read_bytes())["tools"]
    assert json.dumps(written["parameters"]) == json.dumps(equal)
    assert store.load(one.id) == one
    assert one.tools[0].unreadable_for_go == []
    with begun({"name": "search", "description": "", "parameters": given}) as conversation:
        assert snapshot_of(conversation).tools == one.tools
        assert (conversation.get_metadata().tools or [])[0]["parameters"] == given


@for_each(
    "given",
    [
        {"default": NULLABLE, "enum": [NULLABLE], "const": {"minLength": 1.0}, "examples": [NULLABLE]},
        {"x-own": NULLABLE, "definitions": {"a": NULLABLE}},
        {"properties": {"type": {"type": "string"}, "minLength": {"default": 1.0}}, "multipleOf": 1.0},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}, "required": ["z", "a"]},
        {"type": [], "anyOf": []},
        {"type": ["string", {"type": "null"}]},
        {"type": ["string", "null"], "anyOf": [], "allOf": {}},
        {"minLength": 1.5, "maxLength": "1"},
    ],
)
def test_all_else_is_kept_as_it_was_given(given: dict[str, Any]) -> None:
    """What looks like a schema in data, what no dialect knows, what has no equal form: to the last member, in its order."""
    assert json.dumps(ToolSnapshot("t", "", given).parameters) == json.dumps(given)


def test_a_schema_as_deep_as_can_be_stays_loadable() -> None:
    """An equal form has two levels more: where that is too deep, the schema is kept as it was given."""
    schema: Any = NULLABLE
    for _ in range(498):
        schema = {"not": schema}
    one = saved(ToolSnapshot("deep", "", schema))
    assert one.tools[0].parameters == schema
    assert one.tools[0].unreadable_for_go == ["type is not a text"]
    assert Snapshot.from_json(one.to_json()) == one


# ---- what Go cannot read, said aloud -----------------------------------------------------------------------------------


UNREADABLE = [
    (TUPLE, "items is not a schema"),
    ({"exclusiveMinimum": True, "minimum": 5}, "exclusiveMinimum is not a number"),
    ({"minLength": 1.5}, "minLength is not a whole number"),
    ({"properties": {"canary": {"default": 10**309}}}, "default holds a number beyond"),
    ({"default": {"canary": [{"n": 10**309}]}}, "default holds a number beyond"),
    ({"type": ["string", {"type": "canary"}]}, "type is not a text"),
    ({"Type": ["canary"]}, "type is not a text"),
]


@pytest.mark.parametrize(("schema", "reason"), UNREADABLE, ids=[reason for _, reason in UNREADABLE])
def test_a_tool_that_go_cannot_read_is_kept_and_named(
    schema: dict[str, Any], reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """``snapshot_of`` and ``save`` warn, with the tool's name and a reason in our own words; nothing is refused or changed."""
    fine = {"name": "stop", "description": "", "parameters": {"type": "object"}}
    if reason != "default holds a number beyond":  # which no conversation can hold
        with begun({"name": "search", "description": "canary", "parameters": schema}, fine) as conversation:
            snapshot = snapshot_of(conversation)
        (said,) = warnings(caplog)
        assert "'search'" in said
        assert reason in said
        assert snapshot.tools[0].parameters == schema
        caplog.clear()
    store = FileStore(tmp_path / "store", encryption_key=bytes(32))
    one = saved(ToolSnapshot("search", "canary", schema), ToolSnapshot("stop", "", {"type": "object"}))
    store.save(one)
    (said,) = warnings(caplog)
    assert "'search'" in said
    assert reason in said
    assert "canary" not in said
    assert store.load(one.id) == one


def test_a_name_cannot_write_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """It is somebody else's text: no control sequence, and no more of it than a line takes."""
    MemorySnapshotStore().save(saved(ToolSnapshot("x", "", TUPLE)))  # whose snapshots Go never sees
    assert warnings(caplog) == []
    FileStore("/s", file_system=SimulatedFileSystem()).save(saved(ToolSnapshot("\x1b[31m\n" * 10_000, "", TUPLE)))
    (said,) = warnings(caplog)
    assert said.isprintable()
    assert len(said) < 400


# ---- Go's own verdict --------------------------------------------------------------------------------------------------


def tool_of(schema: str) -> ToolSnapshot | None:
    """A tool with a schema that is given as JSON; None if no snapshot can hold it (1e400 is no number of Python's)."""
    try:
        return ToolSnapshot("t", "", verbatim.decode(schema.encode()))
    except InvalidMetadataError:
        return None


@for_each("keyword", GO["reads"])
def test_what_go_reads_of_each_keyword(keyword: str) -> None:
    """With each kind of value: what it reads is never warned of, and whatever it does not is warned of or written otherwise."""
    mended = 0
    for value, verdict in zip(GO["values"], GO["reads"][keyword], strict=True):
        given = f'{{"{keyword}":{value}}}'
        tool = tool_of(given)
        if tool is None:
            assert "1e400" in given
            continue
        is_read = not tool.unreadable_for_go
        assert is_read or verdict == "-", given
        if is_read and verdict == "-":
            mended += 1
            assert repr(tool.parameters) != repr(verbatim.decode(given.encode())), given
    assert mended < 4


@for_each("row", GO["whole"])
def test_what_go_reads_of_whole_schemas(row: dict[str, Any]) -> None:
    """Names in any case, keys that need escapes, schemas in schemas; and what it wrote of them is read here."""
    tool = tool_of(row["in"])
    if tool is not None:
        given = verbatim.decode(row["in"].encode())
        assert (not tool.unreadable_for_go) == row["ok"] or repr(tool.parameters) != repr(given)
    else:
        assert not row["ok"] or "1e400" in row["in"]
    if row.get("out"):
        written = tool_of(row["out"])
        assert written is not None
        assert written.unreadable_for_go == []
