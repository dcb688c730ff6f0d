"""A snapshot as a value, and its JSON form: the bytes of the Go library, and nothing lost on the way.

The vectors were written by the Go reference (tests/vectors/README.md). Two decisions are held up here: messages are never
decoded and encoded again, so what a provider wrote comes back as it was; and what Go reads with a shrug (a version that
it does not know, a name of another type) is refused.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import re
import uuid
from collections import OrderedDict
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.kit.cases import for_each
from tests.kit.vectors import VECTORS
from transcript_store import (
    CorruptSnapshotError,
    FileStore,
    InvalidMessageError,
    InvalidMetadataError,
    InvalidSnapshotIdError,
    Snapshot,
    SnapshotSummary,
    ToolSnapshot,
    UnsupportedVersionError,
    validate_snapshot_id,
)
from transcript_store._json import verbatim
from transcript_store._json.verbatim import NotJSONError
from transcript_store._snapshots.snapshot import read_summary
from transcript_store.testing import SimulatedFileSystem
from transcript_store.testing.strategies import json_values

any_json = json_values(integers=st.integers())
"""A snapshot takes integers that no conversation takes."""

ID = "0e5a3c52-7f0b-4c39-9b60-0d6f3f2a9b11"
PLAIN = ["01-plain-claude", "03-plain-openai-compatible", "05-unicode-html", "07-time-nanoseconds", "15-messages-null"]
ALL = sorted(path.name for path in VECTORS.glob("[0-9]*"))


def snapshot(**fields: Any) -> Snapshot:
    return Snapshot.create(
        **{"provider": "claude", "model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    )


def with_messages(text: bytes) -> Snapshot:
    return dataclasses.replace(snapshot(), messages_json=text)


def form(**members: Any) -> bytes:
    """The JSON form with other members; None leaves one out."""
    whole = {
        "id": ID,
        "provider": "p",
        "model": "m",
        "messages": [],
        "created_at": "2026-03-31T12:00:00Z",
        "version": 1,
    }
    return json.dumps({name: value for name, value in {**whole, **members}.items() if value is not ...}).encode()


# ---- the vectors ------------------------------------------------------------------------------------------------------


def test_the_vectors_are_there() -> None:
    """A folder without vectors would prove nothing."""
    assert len(ALL) == 11


@for_each("name", ALL)
def test_what_go_was_given_becomes_what_go_loaded(name: str) -> None:
    """Read from the input, a vector has the value that the Go library loads, tools' parameters apart, which Go changes."""
    ours = json.loads(Snapshot.from_json((VECTORS / name / "input.json").read_bytes()).to_json())
    theirs = json.loads((VECTORS / name / "loaded.json").read_bytes())
    for tool in (*ours.get("tools", ()), *theirs.get("tools", ())):
        tool.pop("parameters", None)
    assert ours == theirs


@for_each("name", [name for name in ALL if name[:2] not in ("06", "09", "10", "13", "14")])
def test_our_bytes_are_those_of_go(name: str) -> None:
    """Indentation, order, escapes and what is left out: byte for byte, and from Go's own file too."""
    (theirs,) = (VECTORS / name / "store").glob("*.json")
    for source in (VECTORS / name / "input.json", theirs):
        assert Snapshot.from_json(source.read_bytes()).to_json() == theirs.read_bytes()


def test_but_for_the_parameters_of_tools_they_are_too() -> None:
    """Go reorders a JSON Schema and drops what it does not know of it; we keep it as it is. All else is the same bytes."""
    ours = Snapshot.from_json((VECTORS / "06-tools-nested/input.json").read_bytes())
    (theirs,) = (VECTORS / "06-tools-nested/store").glob("*.json")
    parameters = re.compile(rb'"parameters": \{\n.*\n      \}', re.DOTALL)
    assert parameters.sub(b"", ours.to_json()) == parameters.sub(b"", theirs.read_bytes())
    assert isinstance(ours.tools[0].parameters, dict)
    assert ours.tools[0].parameters["x-custom"] == {"keep": "me"}
    assert list(ours.tools[0].parameters) == [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "$defs",
        "x-custom",
    ]


@for_each(
    "text, is_good", [(case["in"], case["ok"]) for case in json.loads((VECTORS / "validate_id.json").read_text())]
)
def test_an_id_is_what_go_takes_for_one(text: str, is_good: bool) -> None:
    """Good and bad ids are those of the Go library, and an error shows at most 32 characters."""
    if is_good:
        validate_snapshot_id(text)
        return
    with pytest.raises(InvalidSnapshotIdError) as caught:
        validate_snapshot_id(text)
    assert caught.value.id == text[:32]
    assert text[33:] == "" or text[:33] not in str(caught.value)


# ---- messages ---------------------------------------------------------------------------------------------------------


@given(st.lists(any_json, max_size=5))
def test_any_json_value_survives(values: list[Any]) -> None:
    """Whatever JSON holds comes back equal, through the text and through the file's form."""
    one = snapshot(messages=values)
    assert one.messages == values
    again = Snapshot.from_json(one.to_json())
    assert again == one
    assert again.messages == values
    assert json.loads(one.to_json())["messages"] == values
    assert one.message_count == len(values)


@given(st.lists(any_json, max_size=5), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_white_space_and_escapes_are_another_spelling_only(values: list[Any], indent: Any, ascii_only: bool) -> None:
    """The compact form is one form: laying it out and reading it gives the same bytes."""
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    compact = verbatim.compact(text)
    assert verbatim.compact(verbatim.indented(compact)) == compact
    assert json.loads(compact) == values
    assert not re.search(rb"[<>&]|\xe2\x80[\xa8\xa9]", compact)


@given(st.text(alphabet=st.sampled_from('\\ud8c3f0"\x7fé😀\ud800\udfff'), max_size=30))
def test_lone_surrogates_survive(text: str) -> None:
    """JSON may hold half a surrogate pair; it stays exactly where it was, whatever stands beside it."""
    written = json.dumps([text, {text: text}]).encode()
    text = json.loads(json.dumps(text))  # two halves side by side are one character
    assert json.loads(with_messages(written).to_json())["messages"] == [text, {text: text}]
    assert with_messages(written).messages_json == written.replace(b", ", b",").replace(b": ", b":")
    assert [json.loads(element) for element in verbatim.elements(written)] == [text, {text: text}]


def test_nothing_is_decoded_and_encoded_again() -> None:
    """Repeated keys, big integers, exponents, minus zero and escapes keep their spelling."""
    text = rb'[{"b":1,"a":2,"b":3},123456789012345678901234567890,1.0,1e3,1E+5,-0.0,-0,"\u0041\/\u00e9",1e999]'
    one = with_messages(text)
    assert one.messages_json == text
    assert Snapshot.from_json(one.to_json()).messages_json == text
    assert one.messages[0] == {"b": 3, "a": 2}
    assert one.messages[1] == 123456789012345678901234567890


def test_messages_are_fresh_copies() -> None:
    """A list that was handed out, or handed in, is the caller's to change."""
    given = [{"role": "user"}]
    one = snapshot(messages=given)
    given.append({"role": "changed"})
    one.messages.append("changed")
    one.messages[0]["role"] = "changed"
    assert one.messages == [{"role": "user"}]


def test_null_stays_null() -> None:
    """``null`` is written back as ``null``, and read as no messages."""
    one = with_messages(b" null ")
    assert one.messages == []
    assert one.message_count == 0
    assert b'"messages": null' in one.to_json()
    assert snapshot(messages=None).messages_json == b"null"


@for_each(
    "bad",
    [b"", b"{}", b'"text"', b"1", b"[", b"[1,]", b"[01]", b"[NaN]", b"[1]x", b"\xef\xbb\xbf[]", b'["\xff"]', b'["\n"]', b'["\xed\xa0\x80"]', b"[" * 100_000, b"[" * 502 + b"]" * 502],
)  # fmt: skip
def test_what_is_not_an_array_of_json_is_refused(bad: bytes) -> None:
    """A text that is cut, not JSON, not UTF-8, or too deep is refused when a snapshot is made, and when one is read."""
    with pytest.raises(InvalidMessageError) as caught:
        with_messages(bad)
    assert caught.value.member == "messages"
    if bad:
        with pytest.raises(CorruptSnapshotError):
            Snapshot.from_json(b'{"id":"%b","messages":%b}' % (ID.encode(), bad))


def test_the_limit_of_nesting_is_a_limit() -> None:
    """500 levels are kept, and can be read by Python's parser."""
    one = with_messages(b"[" * 500 + b"]" * 500)
    depth, value = 0, one.messages
    while value:
        depth, value = depth + 1, value[0]
    assert depth == 499
    assert Snapshot.from_json(one.to_json()) == one


@for_each("bad", [[{1: "a"}], [(1, 2)], [float("nan")], [float("inf")], ["\ud800"], [b"x"], [{"a": {1}}], [object()]])
def test_values_that_would_come_back_changed_are_refused(bad: list[Any]) -> None:
    """A tuple, a key that is no text, NaN, half a character: refused, with nothing stored. The error says which message."""
    with pytest.raises(InvalidMessageError) as refused:
        snapshot(messages=["fine", *bad])
    assert refused.value.member == "messages[1]"


@pytest.mark.parametrize("bad", ["text", b"bytes", {"role": "user"}])
def test_messages_are_a_list(bad: Any) -> None:
    """A text or an object where the list of messages belongs would be taken apart in silence."""
    with pytest.raises(InvalidMessageError):
        snapshot(messages=bad)


def test_a_cycle_is_refused() -> None:
    """A message that contains itself has no end."""
    message: list[Any] = []
    message.append(message)
    with pytest.raises(InvalidMessageError):
        snapshot(messages=message)


@pytest.mark.parametrize("depth", [600, 990, 5000])
def test_what_nests_too_deeply_is_refused(depth: int) -> None:
    """At any depth, and before Python's own limit is an error that nobody expects."""
    message: list[Any] = [1]
    for _ in range(depth):
        message = [message]
    with pytest.raises(InvalidMessageError):
        snapshot(messages=message)
    for member in ("model", "tools", "metadata", "messages", "unknown"):
        text = b'{"id":"%b","%b":%b}' % (ID.encode(), member.encode(), b"[" * depth + b"1" + b"]" * depth)
        if member != "unknown":
            with pytest.raises(CorruptSnapshotError):
                Snapshot.from_json(text)
        with suppress(CorruptSnapshotError):  # neither looks at everything, and must not fail otherwise
            Snapshot.from_json(text)
        with suppress(CorruptSnapshotError):
            read_summary(text)


@for_each("bad", [None, "[]", 7, [1]])
def test_messages_json_is_bytes(bad: Any) -> None:
    """A text, or a list, is refused with its type."""
    with pytest.raises(InvalidMessageError, match="must be bytes"):
        with_messages(bad)


def test_an_id_that_is_no_text_is_refused() -> None:
    """None, or a ``uuid.UUID``, is not an id."""
    for bad in (None, uuid.uuid4(), 7, ID.encode()):
        with pytest.raises(InvalidSnapshotIdError):
            validate_snapshot_id(bad)  # type: ignore[arg-type]


def test_an_integer_of_too_many_digits_is_kept_and_not_read() -> None:
    """Python refuses to read integers of more than 4,300 digits: the bytes stay, and the error says so."""
    one = with_messages(b"[" + b"7" * 5000 + b"]")
    assert Snapshot.from_json(one.to_json()) == one
    with pytest.raises(InvalidMessageError, match="5,000 digits"):
        _ = one.messages


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    "text",
    [
        b'["' + b"\x7f" * 100_000 + rb'\ud800"]',
        b'["' + rb"\ud800" * 30_000 + b"\x7f" * 30_000 + b'"]',
        b'["' + rb"\\" * 100_000 + rb'\ud800"]',
        b'["' + "é".encode() * 1_500_000 + b'"]',
        b'["' + b'\\"' * 100_000 + b'"]',
        b"[" + b'"",' * 100_000 + b"1]",
    ],
    ids=range(6),
)
def test_hostile_texts_take_no_longer_than_others(text: bytes) -> None:
    """P15: the work is linear in the bytes, whatever they are: no run of escapes, shields or strings makes it more."""
    one = with_messages(text)
    assert one.messages_json == text
    assert Snapshot.from_json(one.to_json()) == one
    disk = SimulatedFileSystem()
    FileStore("/store", file_system=disk).save(one)
    assert FileStore("/store", file_system=disk).load(one.id) == one


def test_not_utf_8_across_a_piece() -> None:
    """Texts are checked in pieces; a character may lie across two of them, and half of one may not."""
    edge = b'["' + b"x" * (2**20 - 3) + "é".encode()
    assert with_messages(edge + b'"]').messages_json == edge + b'"]'
    with pytest.raises(InvalidMessageError, match="UTF-8"):
        with_messages(edge[:-1] + b'"]')


# ---- the other members ------------------------------------------------------------------------------------------------


@given(st.text(), st.text(), st.text(), st.dictionaries(st.text(), st.text(), max_size=4))
def test_any_text_survives(provider: str, model: str, prompt: str, metadata: dict[str, str]) -> None:
    """Provider, model, prompt and metadata are any text; metadata is written in the order of its keys."""
    one = snapshot(provider=provider, model=model, system_prompt=prompt, metadata=metadata)
    assert Snapshot.from_json(one.to_json()) == one
    written = json.loads(one.to_json())
    assert (written["provider"], written["model"], written.get("system_prompt", "")) == (provider, model, prompt)
    assert list(written.get("metadata", {}).items()) == sorted(metadata.items())


def test_empty_members_are_left_out() -> None:
    """As with Go's ``omitempty``: prompt, tools and metadata, and nothing else."""
    one = Snapshot.from_json(form(provider="", model="", system_prompt="", tools=[], metadata={}, version=0))
    assert json.loads(one.to_json()).keys() == {"id", "provider", "model", "messages", "created_at", "version"}
    assert one.version == 0


def test_null_and_absent_members_are_empty() -> None:
    """As in Go; a time that is not there is Go's zero time."""
    one = Snapshot.from_json(
        form(provider=None, model=..., tools=None, metadata=None, created_at=None, messages=..., version=...)
    )
    assert (one.provider, one.model, one.tools, one.metadata, one.version) == ("", "", (), {}, 0)
    assert (one.created_at, one.messages_json) == ("0001-01-01T00:00:00Z", b"null")


def test_members_that_are_not_known_are_left_out() -> None:
    """As Go does; there is no member for a token, so none is carried on."""
    assert b"sk-secret" not in Snapshot.from_json(form(api_key="sk-secret", token={"a": "sk-secret"})).to_json()


@for_each(
    "bad",
    [
        b"", b"null", b"[]", b"garbage", b"{", form()[:-1], b"\xff" + form(), form() + b"x",
        form(id=...), form(id="../x"), form(id=ID.upper()), form(id=7), form(provider=7), form(model=["m"]),
        form(system_prompt={}), form(tools={}), form(tools=["t"]), form(tools=[{"name": 7}]), form(tools=[{"parameters": 7}]),
        form(metadata=[]), form(metadata={"a": 1}), form(created_at=7), form(created_at="yesterday"),
        form(version="1"), form(version=1.0), form(version=True), form(version=-1), form(messages={}), form(messages="x"),
        form(model="\ud800"),
    ],
)  # fmt: skip
def test_anything_but_a_snapshot_is_corrupt(bad: bytes) -> None:
    """Garbage, a cut file, a member of another type: an error with a kind, and never half a snapshot."""
    with pytest.raises(CorruptSnapshotError) as caught:
        Snapshot.from_json(bad)
    assert caught.value.kind == "damaged"
    assert caught.value.path is None


class _Text(str):
    __slots__ = ()


class _Number(IntEnum):
    ONE = 1


class _Kind(Enum):
    ONE = "one"


class _Pair(NamedTuple):
    a: int
    b: int


@given(any_json)
@example([2**64, -(2**63) - 1, 10**40])
@example([1e16, 1e-7, -0.0, 5e-324, 1.7976931348623157e308])
@example("\x00\x1f\x7f\u2028<>&é日🙂\ud7ff")
@example([_Number.ONE, _Text("text"), {_Text("key"): OrderedDict(a=1)}])
@example(json.loads("[" * 400 + "]" * 400))
def test_the_quick_way_to_encode_gives_what_the_slow_one_does(value: Any) -> None:
    """Whatever it is, and whichever of the two takes it."""
    quick = verbatim.encode_compact(value)
    slow = verbatim._encode_slowly(value)  # which of them it takes is its own affair
    assert repr(json.loads(quick)) == repr(json.loads(slow))
    assert verbatim.decode(quick) == value


@for_each(
    "value",
    [(1,), [_Pair(1, 2)], uuid.UUID(ID), [datetime.now(UTC)], {1: 2}, [float("nan")], [float("-inf")], "\ud800",
     b"x", orjson.Fragment(b"{}"), {1, 2}, [_Kind.ONE], ToolSnapshot("t")],
)  # fmt: skip
def test_what_would_come_back_changed_is_refused(value: Any) -> None:
    """Though ``orjson`` would write most of it."""
    with pytest.raises(NotJSONError):
        verbatim.encode_compact(value)
    with pytest.raises(InvalidMessageError):
        snapshot(messages=[{"content": value}])


@given(
    pairs=st.lists(
        st.tuples(st.sampled_from(["messages", "id", "model", "other", "ID"]), any_json | st.just("\ud800")),
        max_size=6,
    ),
    indent=st.sampled_from([None, 2]),
    respelled=st.booleans(),
)
def test_one_look_sees_what_several_would(pairs: list[tuple[str, Any]], indent: int | None, respelled: bool) -> None:
    """Members, and the elements of an array: as they are written, the last of those that are repeated, lone surrogates too."""
    members = [f"{json.dumps(key)}: {json.dumps(value, indent=indent)}" for key, value in pairs]
    text = "{{{}}}".format(", ".join(members))
    if respelled:
        text = text.replace('"id"', '"\\u0069d"')
    seen = {key: bytes(member) for key, member in verbatim.members(text.encode()).items()}
    array = seen.get("messages", b"null")
    if not array.startswith(b"[") and array != b"null":
        with pytest.raises(NotJSONError, match="neither an array nor null"):
            verbatim.outline(text.encode(), "messages", ("id", "model"))
        return
    found, elements = verbatim.outline(text.encode(), "messages", ("id", "model"))
    assert {name: bytes(member) for name, member in found.items()} == {
        name: seen.get(name, b"null") for name in ("id", "model")
    }
    assert list(map(bytes, elements)) == ([] if array == b"null" else list(verbatim.elements(array)))
    compact = json.dumps(json.loads(array) or [], separators=(",", ":"))
    assert verbatim.compact_length(elements) == len(compact)


@for_each("bad", [{}, "text", 7, True])
def test_a_listing_leaves_out_what_has_no_messages(bad: Any) -> None:
    """Neither an array nor null: what load() refuses is not worth listing."""
    with pytest.raises(CorruptSnapshotError):
        read_summary(form(messages=bad))
    assert read_summary(form(messages=None)).message_count == 0


def test_a_later_version_is_refused() -> None:
    """Go loads version 2 as if it were 1. What a later version means is not known here."""
    with pytest.raises(UnsupportedVersionError, match="version 2"):
        Snapshot.from_json(form(version=2, messages="a later form"))
    with pytest.raises(UnsupportedVersionError):
        dataclasses.replace(snapshot(), version=2)


@pytest.mark.parametrize("field", ["provider", "model", "system_prompt"])
def test_texts_are_texts(field: str) -> None:
    """A number or half a character where a text belongs is refused by name."""
    for bad in (7, b"bytes", "\ud800"):
        with pytest.raises(InvalidMetadataError) as caught:
            snapshot(**{field: bad})
        assert caught.value.field == field


@for_each(
    "fields",
    [
        {"metadata": {"a": 1}},
        {"metadata": {1: "a"}},
        {"tools": [{"name": "a dict"}]},
        {"id": "x"},
        {"created_at": datetime(2026, 1, 1)},
    ],
)
def test_wrong_arguments_are_refused(fields: dict[str, Any]) -> None:
    """What cannot be stored is refused when the snapshot is made, not when it is saved."""
    with pytest.raises((InvalidMetadataError, InvalidSnapshotIdError)):
        snapshot(**fields)


def test_each_snapshot_has_an_id_of_its_own() -> None:
    """Two snapshots of one conversation are two, and each id is one that a store takes."""
    ids = {snapshot().id for _ in range(100)}
    assert len(ids) == 100
    for one in ids:
        validate_snapshot_id(one)


def test_tools_have_no_room_for_a_handler() -> None:
    """A tool is name, description and parameters; the schema is a copy of its own, in the order given."""
    schema = {"type": "object", "properties": {"z": {}, "a": {}}, "x-own": 1.5}
    tool = ToolSnapshot("search", "finds", schema)
    schema["type"] = "changed"
    assert tool.parameters == {"type": "object", "properties": {"z": {}, "a": {}}, "x-own": 1.5}
    one = snapshot(tools=[tool, ToolSnapshot("stop")])
    assert Snapshot.from_json(one.to_json()).tools == (tool, ToolSnapshot("stop", "", None))
    assert [list(written) for written in json.loads(one.to_json())["tools"]] == [
        ["name", "description", "parameters"],
        ["name", "description"],
    ]
    with pytest.raises(TypeError):
        ToolSnapshot("search", handler=print)  # type: ignore[call-arg]
    for bad in (7, b"bytes", "\ud800"):
        with pytest.raises(InvalidMetadataError, match="a tool's name"):
            ToolSnapshot(bad)  # type: ignore[arg-type]
        with pytest.raises(InvalidMetadataError, match="a tool's description"):
            ToolSnapshot("search", bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidMetadataError):
        ToolSnapshot("search", "finds", {"default": print})


def test_a_snapshot_is_a_value() -> None:
    """Frozen; equal to its copies; and its ``repr`` shows nothing that was said."""
    one = snapshot(
        system_prompt="canary", messages=["canary"], tools=[ToolSnapshot("canary")], metadata={"a": "canary"}
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.model = "other"  # type: ignore[misc]
    assert copy.deepcopy(one) == one == pickle.loads(pickle.dumps(one))
    assert "canary" not in repr(one)
    assert len({one, copy.deepcopy(one), snapshot()}) == 2
    with pytest.raises(TypeError, match=r"from_json\(\) takes bytes, not str"):
        Snapshot.from_json(one.to_json().decode())  # type: ignore[arg-type]


# ---- time -------------------------------------------------------------------------------------------------------------


@for_each(
    "text, normal",
    [
        ("2026-03-31T12:00:00.123456789Z", "2026-03-31T12:00:00.123456789Z"),
        ("2026-03-31T14:00:00.120000000+02:00", "2026-03-31T14:00:00.12+02:00"),
        ("2026-03-31T14:00:00.000-11:30", "2026-03-31T14:00:00-11:30"),
        ("2026-03-31T14:00:00+00:00", "2026-03-31T14:00:00Z"),
        ("2026-03-31T14:00:00-00:00", "2026-03-31T14:00:00Z"),
        ("2026-03-31T14:00:00.1234567891Z", "2026-03-31T14:00:00.123456789Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("2028-02-29T23:59:59Z", "2028-02-29T23:59:59Z"),
    ],
)
def test_times_are_written_as_go_writes_them(text: str, normal: str) -> None:
    """Nanoseconds and the offset stay; zeros at the end go; no offset is ``Z``."""
    assert snapshot(created_at=text).created_at == normal


@for_each(
    "bad",
    [
        "",
        "2026-03-31",
        "2026-03-31 12:00:00Z",
        "2026-03-31T12:00:00",
        "2026-02-30T12:00:00Z",
        "2026-03-31T24:00:00Z",
        "2026-03-31T12:00:60Z",
        "2026-03-31t12:00:00z",
        "2026-03-31T12:00:00,5Z",
        "2026-03-31T12:00:00+24:00",
        "٢026-03-31T12:00:00Z",
        "0000-01-01T00:00:00Z",
    ],
)
def test_what_is_not_a_time_is_refused(bad: str) -> None:
    """RFC 3339, strictly, as Go's parser has it."""
    with pytest.raises(InvalidMetadataError) as caught:
        snapshot(created_at=bad)
    assert caught.value.field == "created_at"


def test_a_moment_without_a_time_zone_is_refused() -> None:
    """It would be another moment on another machine; the error says what is missing."""
    with pytest.raises(InvalidMetadataError, match="must have a time zone"):
        snapshot(created_at=datetime(2026, 3, 31, 12))


def test_times_as_datetimes() -> None:
    """``datetime`` has microseconds: the rest is cut, and the moment is the same."""
    one = snapshot(created_at="2026-03-31T14:00:00.123456789+02:00")
    assert one.created_at_datetime == datetime(2026, 3, 31, 12, 0, 0, 123456, tzinfo=UTC)
    assert one.created_at_datetime.utcoffset() == timedelta(hours=2)
    moment = datetime(2026, 3, 31, 12, 0, 0, 120000, tzinfo=UTC)
    assert snapshot(created_at=moment).created_at == "2026-03-31T12:00:00.12Z"
    assert snapshot(created_at="2026-03-31T14:00:00Z").created_at_datetime == datetime(2026, 3, 31, 14, tzinfo=UTC)
    assert read_summary(one.to_json()).created_at_datetime == one.created_at_datetime


@given(
    st.lists(
        st.tuples(
            st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)),
            st.integers(-1439, 1439),
            st.integers(0, 999),
        ),
        max_size=8,
    )
)
def test_newest_first_is_by_the_moment(times: list[tuple[datetime, int, int]]) -> None:
    """Whatever the offsets, down to a nanosecond."""
    moments, summaries = [], []
    for moment, offset, nanoseconds in times:
        local = moment + timedelta(minutes=offset)
        sign, minutes = "-" if offset < 0 else "+", abs(offset)
        text = f"{local:%H:%M:%S}.{moment.microsecond:06d}{nanoseconds:03d}{sign}{minutes // 60:02d}:{minutes % 60:02d}"
        created_at = snapshot(created_at=f"{local.year:04d}-{local:%m-%d}T{text}").created_at
        moments.append((moment, nanoseconds))
        summaries.append(
            (
                SnapshotSummary(
                    id=ID,
                    provider="",
                    model="",
                    created_at=created_at,
                    message_count=0,
                    approximate_tokens=0,
                    size_bytes=0,
                ),
                moments[-1],
            )
        )
    order = SnapshotSummary.newest_first([summary for summary, _ in summaries])
    by_text = {summary.created_at: moment for summary, moment in summaries}
    assert [by_text[summary.created_at] for summary in order] == sorted(moments, reverse=True)
