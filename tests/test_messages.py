"""Which values a message may hold: those that come back equal; others are refused before a byte is written.

The fast JSON encoders are helpful where a store must not be: they turn NaN into null, a tuple into a list, an Enum into
its value, a UUID into text, and a Fragment into whatever bytes it holds. A peer stored ``{"id": uuid4()}`` that way and
got a message back that its provider refused. Here everything but the seven JSON types, exactly, is refused by name.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import math
import re
import subprocess
import sys
import textwrap
import tracemalloc
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.cases import few, for_each
from transcript_store import ConversationStore, InvalidMessageError, Snapshot, ToolSnapshot, snapshot_of
from transcript_store._json.strict import MAX_DEPTH, parse
from transcript_store.testing.strategies import json_objects

FORMAT = (Path(__file__).parent.parent / "docs/format.md").read_text()


@pytest.fixture
def store(tmp_path):
    with ConversationStore(tmp_path / "c", durability="process-crash", max_line_bytes=1 << 20) as store:
        store.initialize(messages=[{"role": "user", "content": "first"}])
        yield store


def content_of(store: ConversationStore) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(store.directory).rglob("*") if path.is_file()}


# ---- refused ---------------------------------------------------------------------------------------------------------


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Fraction(float):
    pass


class Mapping(dict[str, Any]):
    pass


class Sequence(list[Any]):
    pass


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 1


class Word(enum.StrEnum):
    YES = "yes"


@dataclasses.dataclass
class Point:
    x: int = 1


Pair = collections.namedtuple("Pair", "a b")

VALUES: dict[str, tuple[Any, str]] = {
    "a lone high surrogate": ("a\ud800", "surrogate"),
    "a lone low surrogate": ("\udfffa", "surrogate"),
    "surrogates in the wrong order": ("\udc00\ud800", "surrogate"),
    "NaN": (math.nan, "nan"),
    "infinity": (math.inf, "inf"),
    "minus infinity": (-math.inf, "-inf"),
    "an integer below 64 bits": (-(2**63) - 1, "64 bits"),
    "an integer above 64 bits": (2**64, "64 bits"),
    "an integer far above 64 bits": (10**5000, "64 bits"),
    "a str subclass": (Text("x"), "Text"),
    "an int subclass": (Number(1), "Number"),
    "a float subclass": (Fraction(1.0), "Fraction"),
    "a dict subclass": (Mapping(a=1), "Mapping"),
    "a list subclass": (Sequence([1]), "Sequence"),
    "an ordered dict": (collections.OrderedDict(a=1), "OrderedDict"),
    "a default dict": (collections.defaultdict(list), "defaultdict"),
    "a tuple": ((1, 2), "tuple"),
    "an empty tuple": ((), "tuple"),
    "a named tuple": (Pair(1, 2), "Pair"),
    "a set": ({1}, "set"),
    "a frozen set": (frozenset(), "frozenset"),
    "bytes": (b"x", "bytes"),
    "a bytearray": (bytearray(b"x"), "bytearray"),
    "a memoryview": (memoryview(b"x"), "memoryview"),
    "a datetime": (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), "datetime.datetime"),
    "a date": (datetime.date(2026, 1, 1), "datetime.date"),
    "a time": (datetime.time(1), "datetime.time"),
    "a UUID": (uuid.UUID(int=1), "uuid.UUID"),
    "an Enum": (Color.RED, "Color"),
    "an IntEnum": (Level.HIGH, "Level"),
    "a StrEnum": (Word.YES, "Word"),
    "a dataclass": (Point(), "Point"),
    "a Fragment": (orjson.Fragment(b'"injected"}\n{"seq":1'), "Fragment"),
    "a Decimal": (decimal.Decimal("1.5"), "Decimal"),
    "a complex number": (1j, "complex"),
    "an object": (object(), "object"),
    "a type": (int, "type"),
    "a function": (print, "builtin_function_or_method"),
    "a generator": ((n for n in range(1)), "generator"),
    "an ellipsis": (..., "ellipsis"),
}

REMEDIES = {
    "a path": (Path("notes"), "convert it first, with str()"),
    "a UUID": (uuid.UUID(int=1), "convert it first, with str()"),
    "a Decimal": (decimal.Decimal("1.5"), "convert it first, with str()"),
    "a date": (datetime.date(2026, 1, 1), "convert it first, with .isoformat()"),
    "a dataclass": (Point(), "convert it first, with dataclasses.asdict()"),
    "an Enum": (Color.RED, "store its .value"),
    "an ordered dict": (collections.OrderedDict(a=1), "make a dict of it"),
    "a tuple": ((1, 2), "make a list of it"),
    "a generator": ((n for n in range(1)), "make a list of it"),
    "the keys of a dict": ({}.keys(), "make a list of it"),
    "bytes": (b"x", "decode it, or store base64 text"),
    "NaN": (math.nan, "store None, or text"),
    "a big integer": (2**64, "store it as text"),
}


@pytest.mark.parametrize(("value", "remedy"), REMEDIES.values(), ids=REMEDIES.keys())
def test_it_is_said_how_to_make_json_of_it(store, value, remedy):
    with pytest.raises(InvalidMessageError, match=f"{re.escape(remedy)} \\(nothing was stored\\)$"):
        store.append_message({"role": "user", "content": value})


def test_what_nothing_is_known_of_has_no_remedy(store):
    """Nothing is guessed of a function."""
    with pytest.raises(InvalidMessageError, match=r"not a plain JSON value \(nothing was stored\)$"):
        store.append_message({"role": "user", "content": print})


KEYS: dict[str, tuple[Any, str]] = {
    "an int": (1, "int"),
    "a bool": (True, "bool"),
    "None": (None, "NoneType"),
    "a float": (1.5, "float"),
    "a tuple": ((), "tuple"),
    "bytes": (b"a", "bytes"),
    "a str subclass": (Text("a"), "Text"),
    "a StrEnum": (Word.YES, "Word"),
    "a UUID": (uuid.UUID(int=1), "uuid.UUID"),
    "a lone surrogate": ("a\ud800", "surrogate"),
}


def refusals_of(store: ConversationStore, message: Any) -> list[tuple[str, InvalidMessageError]]:
    """Try a value in every place that takes one; returns the errors with the name of the place."""
    fine = {"role": "user"}
    places: list[tuple[str, Callable[[], object]]] = [
        ("message", lambda: store.append_message(message)),
        ("extra", lambda: store.append_message(fine, extra=message)),
        ("messages[1]", lambda: store.append_messages([fine, message, fine])),
        ("extras[2]", lambda: store.append_messages([fine, fine, fine], extras=[fine, None, message])),
        ("extra", lambda: store.append_event(message)),
        ("messages[0]", lambda: store.replace_transcript([message])),
        ("extras[0]", lambda: store.replace_transcript([fine], extras=[message])),
        ("messages[0]", lambda: ConversationStore(f"{store.directory}-new").initialize(messages=[message])),
        ("messages[0]", lambda: ConversationStore(f"{store.directory}-new").load_or_initialize(messages=[message])),
    ]
    errors = []
    for name, call in places:
        with pytest.raises(InvalidMessageError) as caught:
            call()
        errors.append((name, caught.value))
    assert not Path(f"{store.directory}-new").exists()
    return errors


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_would_not_come_back_equal_is_refused_by_name(store, name):
    """P15: what is not exactly a JSON value is refused wherever it stands, the error names the member, nothing is written."""
    value, word = VALUES[name]
    before = content_of(store)
    for place, error in refusals_of(store, {"role": "user", "content": [{"text": "fine"}, {"deep": [0, value]}]}):
        assert error.member == f'{place}["content"][1]["deep"][1]'
        assert word in error.reason
        assert str(error) == f"{error.member}: {error.reason} (nothing was stored)"
    for place, error in refusals_of(store, {"a": value}):
        assert error.member == f'{place}["a"]'
    assert content_of(store) == before
    assert store.get_messages() == [{"role": "user", "content": "first"}]


@pytest.mark.parametrize("name", KEYS)
def test_a_key_that_is_not_a_str_is_refused_by_name(store, name):
    """P15: keys are str, exactly, and Unicode; the error names the object that has another."""
    key, word = KEYS[name]
    before = content_of(store)
    for place, error in refusals_of(store, {"fine": {"b": 1, key: 2}}):
        assert error.member == f'{place}["fine"]'
        assert word in error.reason
    assert content_of(store) == before


@pytest.mark.parametrize(
    "top", [None, [], [1], "text", 1, 1.5, True, (), b"{}", Mapping(), '{"role":"user"}', object()]
)
def test_only_a_dict_is_a_message(store, top):
    """P15: a message is a JSON object; anything else at the top is refused, and so is a dict subclass."""
    before = content_of(store)
    for call in (
        lambda: store.append_message(top),
        lambda: store.append_messages([{}, top]),
        lambda: store.append_event(top),
        lambda: store.replace_transcript([top]),
    ):
        with pytest.raises(InvalidMessageError, match=r"must be a JSON object|there is nothing to store"):
            call()
    if top is not None:
        with pytest.raises(InvalidMessageError, match="must be a JSON object"):
            store.append_message({}, extra=top)
    assert content_of(store) == before


@pytest.mark.parametrize("messages", [{"role": "user"}, "text", b"bytes"])
def test_one_message_where_a_list_is_due_is_a_type_error(store, messages):
    """P15: the usual slip (a single message, or text, instead of a list of messages) is told apart from a bad message."""
    before = content_of(store)
    for call in (store.append_messages, store.replace_transcript):
        with pytest.raises(TypeError, match="list of JSON objects"):
            call(messages)
    assert content_of(store) == before


def nested(depth: int, innermost: Any, kind: str) -> dict[str, Any]:
    """A message of exactly so many levels, the message itself the first."""
    value = innermost
    for level in range(depth - 1):
        value = [value] if kind == "lists" or (kind == "both" and level % 2) else {"a": value}
    return {"top": value}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("kind", ["lists", "dicts", "both"])
@pytest.mark.parametrize("innermost", [None, 1.5, "text", [], {}])
def test_nesting_of_exactly_200_levels(store, kind, innermost):
    """P15: 200 levels are stored and come back, 201 are refused; what stands in the last level makes no difference."""
    own = isinstance(innermost, (list, dict))  # an empty container is a level too
    deepest = nested(MAX_DEPTH - own, innermost, kind)
    store.append_message(deepest)
    assert store.get_messages()[-1] == deepest
    before = content_of(store)
    for place, error in refusals_of(store, nested(MAX_DEPTH + 1 - own, innermost, kind)):
        assert error.reason == f"nests more than {MAX_DEPTH} levels deep"
        assert error.member == place
    assert content_of(store) == before


def test_cycles(store):
    """P15: a value that contains itself is refused at once."""
    in_dict: dict[str, Any] = {"role": "user"}
    in_dict["self"] = in_dict
    in_list: list[Any] = []
    in_list += [1, in_list, "two"]
    before = content_of(store)
    for message in (in_dict, {"list": in_list}):
        for _, error in refusals_of(store, message):
            assert error.reason == "contains itself"
    many: dict[str, Any] = {}
    many.update({str(n): many for n in range(50)})
    with pytest.raises(InvalidMessageError, match="max_line_bytes"):
        store.append_message(many)
    assert content_of(store) == before


def in_a_child(script: str, timeout_seconds: float) -> None:
    """Run a script in a fresh interpreter with 1 GB of memory at most; it must end well, and in time."""
    limits = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
    script = limits + textwrap.dedent(script)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("limit", [1 << 20, pytest.param(64 << 20, marks=pytest.mark.long)])
@pytest.mark.parametrize("bad", ["", ", math.nan", ", ()", ", 2**64", ", '\\ud800'"])
def test_a_value_shared_exponentially_often_neither_hangs_nor_balloons(bad, limit):
    """P15: fifty lists that each hold the next one twice are 2^50 values to write; with a bad value behind them or
    without, they are refused in moments and within bounded memory.
    """
    in_a_child(
        f"""
        import math
        from transcript_store import InvalidMessageError
        from transcript_store._json.strict import encode
        shared = ["x"]
        for _ in range(50):
            shared = [shared, shared]
        for message in ({{"a": [shared{bad}]}}, {{"a": {{"b": [shared{bad}], "c": shared}}}}):
            try:
                encode(message, "message", {limit})
            except InvalidMessageError as error:
                print(error)
            else:
                raise AssertionError
        """,
        timeout_seconds=20 if limit == 1 << 20 else 60,
    )


def test_a_wide_value_is_refused_in_the_memory_that_it_takes_itself():
    """P15: naming the one bad member among many takes memory in proportion to the depth, not to the width."""
    from transcript_store._json.strict import encode

    wide = {"a": [*range(100_000), math.nan]}
    tracemalloc.start()
    try:
        with pytest.raises(InvalidMessageError) as caught:
            encode(wide, "message", 64 << 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.member == 'message["a"][100000]'
    assert peak < 5_000_000, f"{peak:,} bytes to refuse a list of 100,000 integers"


def test_a_line_longer_than_allowed_is_refused(store, tmp_path):
    """P15: max_line_bytes bounds the whole line, to the byte, in every way to write one; reading has no such bound."""
    with ConversationStore(tmp_path / "d", max_line_bytes=4096) as small:
        small.initialize()
        spare = 4096 - small.append_message({"a": ""}).length_bytes
        assert small.append_message({"a": "x" * spare}).length_bytes == 4096
        before = content_of(small)
        for message in ({"a": "x" * (spare + 1)}, {"a": "x" * 4096}, {"a": "\x01" * 1000}, {"a": ["x"] * 5000}):
            for call in (
                small.append_message,
                lambda m: small.append_messages([{}, m]),
                lambda m: small.append_message({}, extra=m),
                lambda m: small.append_event({"more": 0, **m}),
                lambda m: small.replace_transcript([m]),
            ):
                with pytest.raises(InvalidMessageError, match=r"max_line_bytes"):
                    call(message)
        assert content_of(small) == before
    with ConversationStore(tmp_path / "d", max_line_bytes=1024) as smaller:
        smaller.load()
        assert len(smaller.get_messages()[-1]["a"]) == spare


def test_a_batch_with_one_bad_message_stores_none(store):
    """P15, P3: nothing of a batch is written if one of its messages cannot be, and the error says which one it is."""
    before = content_of(store)
    with pytest.raises(InvalidMessageError) as caught:
        store.append_messages([{"n": 1}, {"n": 2}, {"n": {"deep": math.nan}}])
    assert caught.value.member == 'messages[2]["n"]["deep"]'
    assert content_of(store) == before


def test_long_keys_are_shortened_in_errors(store):
    """P15: an error names the member without repeating a book, and never the value itself."""
    with pytest.raises(InvalidMessageError) as caught:
        store.append_message({"k" * 10_000: {"secret": b"hunter2"}})
    assert len(str(caught.value)) < 300
    assert "hunter2" not in str(caught.value)


# ---- accepted --------------------------------------------------------------------------------------------------------


def same(a: Any, b: Any) -> bool:
    """Equal, with the same types, the same order of keys and the same sign of zero, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return bool(a == b)


def test_same_tells_what_equality_does_not():
    """The helper itself: 1, 1.0 and True are equal to Python, and so are 0.0 and -0.0; here they are not."""
    assert 1 == 1.0 == True
    assert not same([1], [1.0])
    assert not same([1], [True])
    assert not same(0.0, -0.0)
    assert not same({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert same({"a": [1, -0.0, True, None, ""]}, {"a": [1, -0.0, True, None, ""]})


objects = json_objects()


@settings(max_examples=few(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=objects, extra=st.none() | objects)
def test_whatever_json_can_say_comes_back_the_same(store, message, extra):
    """P14: any JSON object comes back equal, type for type, keys in order: from memory, from a reader, and after a load."""
    input_before = json.dumps(message)
    appended = store.append_message(message, extra=extra)
    assert json.dumps(message) == input_before, "the input was changed"
    record = store.get_records(last=1)[0]
    assert same(record.message, message)
    assert same(record.extra, extra)
    with ConversationStore(store.directory, read_only=True) as reader:
        reader.load()
        assert same(reader.get_messages(last=1)[0], message)
        assert same(reader.get_records(last=1)[0].extra, extra)
    with open(f"{store.directory}/transcript.jsonl", "rb") as file:
        file.seek(appended.offset_bytes)
        assert same(json.loads(file.read(appended.length_bytes).decode())["message"], message)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"": ""},
        {"role": "user", "content": ""},
        {"n": -(2**63)},
        {"n": 2**64 - 1},
        {"zero": [0, -0.0, 0.0, False, None]},
        {"b": 1, "a": 2, "unknown key": {"z": [], "y": {}}},
        {"hash": "0" * 32, "seq": 1, "batch": [1, 2], "message": {"message": {}}},
        {"text": ',"batch":[1,2],"hash":"' + "0" * 32 + '"}'},
        {"lines": "a\nb\r\nc\u2028d\u2029e\x85f\0g"},
        {"array": [[[]], [{}], [",", "]", "}"]]},
    ],
)
def test_messages_that_look_like_something_else(store, message):
    """P14: emptiness, extremes, and texts that look like our own envelope are stored as what they are, batch or not."""
    store.append_message(message)
    store.append_messages([message, {"between": 1}, message], extras=[None, message, message])
    store.append_event(message)
    store.close()
    store.load()
    assert store.recovery is None
    assert all(same(m, message) for m in [store.get_messages()[i] for i in (1, 2, 4)])
    assert same([record.extra for record in store.get_records()[2:]], [None, message, message, message])


def test_what_is_returned_is_a_fresh_copy_each_time(store):
    """Copies: changing what went in, or what came out, changes neither the file nor what the next call returns."""
    message: dict[str, Any] = {"content": [{"text": "a"}]}
    extra: dict[str, Any] = {"usage": {"tokens": 1}}
    store.append_message(message, extra=extra)
    store.append_messages([message], extras=[extra])
    message["content"][0]["text"] = "changed"
    extra["usage"]["tokens"] = 99
    for _ in range(2):
        got = store.get_messages()
        assert got[1:] == [{"content": [{"text": "a"}]}] * 2
        got[1]["content"][0]["text"] = "changed too"
        got.clear()
        record = store.get_records()[1]
        assert record.message == {"content": [{"text": "a"}]}
        assert record.extra == {"usage": {"tokens": 1}}
        record.message.clear()
        record.extra.clear()


# ---- JSON that somebody else wrote -----------------------------------------------------------------------------------


@for_each(
    "text, reason",
    [
        (b'{"a":1,"a":2}', "twice"),
        (b'{"b":{"a":1,"\\u0061":2}}', "twice"),
        (b'{"b":[{"x":1,"y":2,"x":1}]}', "twice"),
        (b'{"a":18446744073709551616}', "64 bits"),
        (b'{"a":-9223372036854775809}', "64 bits"),
        (b'{"a":' + b"9" * 5000 + b"}", "64 bits"),
        (b'{"a":NaN}', "NaN"),
        (b'{"a":[-Infinity]}', "-Infinity"),
        (b'\xef\xbb\xbf{"a":1}', "byte order mark"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8"),
        ('{"a":1}'.encode("utf-16-le"), "not JSON"),
        ('{"a":1}'.encode("utf-32-be"), "not JSON"),
        (b'{"a":"\xff"}', "not UTF-8 at byte 6"),
        (b'{"a":"\xed\xa0\x80"}', "not UTF-8"),
        (b'{"a":"\xc0\x80"}', "not UTF-8"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "levels deep"),
        (b'{"a":' * 100_000, "levels deep"),
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a":1}{"b":2}', "not JSON"),
        (b"{'a':1}", "not JSON"),
        (b'{"a":1,}', "not JSON"),
        (b'{"a":01}', "not JSON"),
        (b'{"a":"\n"}', "not JSON"),
        (b"[1]", "an array"),
        (b'"text"', "a string"),
        (b"null", "null"),
        (b"true", "a boolean"),
        (b"1", "a number"),
        (b"1.5", "a number"),
    ],
)
def test_parse_refuses_what_reading_would_change_in_silence(text, reason):
    """P15: duplicate keys, integers beyond 64 bits, constants JSON has not, other encodings, endless nesting: refused."""
    with pytest.raises(InvalidMessageError) as caught:
        parse(text, "line 3")
    assert caught.value.member == "line 3"
    assert reason in caught.value.reason
    assert len(str(caught.value)) < 200


@for_each(
    "text, value",
    [
        (b'{"a":18446744073709551615,"b":-9223372036854775808}', {"a": 2**64 - 1, "b": -(2**63)}),
        (b' {"a" : [1.0, 1e2, -0.0, 0] }\r\n', {"a": [1.0, 100.0, -0.0, 0]}),
        ('{"ü":"\u2028"}'.encode(), {"ü": "\u2028"}),
        (b'{"a":{"a":1},"b":{"a":1}}', {"a": {"a": 1}, "b": {"a": 1}}),
    ],
)
def test_parse_reads_the_rest_as_it_stands(text, value):
    """P15: what JSON can say and 64 bits can carry is read exactly."""
    assert same(parse(text), value)


def test_the_value_of_a_float_is_kept_and_not_its_spelling(store):
    """P14, as docs/format.md says: on the disk each has the shortest spelling that reads back as the same float."""
    given = b'{"a":0.000005,"b":1e3,"c":1.50,"d":1E+22,"e":-0.0,"f":0.1000000000000000055511151231257827}'
    appended = store.append_message(parse(given))
    line = Path(store.directory, "transcript.jsonl").read_bytes()[appended.offset_bytes :]
    assert b'"message":{"a":5e-6,"b":1000.0,"c":1.5,"d":1e+22,"e":-0.0,"f":0.1}' in line
    assert same(store.get_messages(last=1)[0], json.loads(given))
    assert "0.000005 is written 5e-6, 1e3 as 1000.0, 1.50 as 1.5" in FORMAT
    snapshot = snapshot_of(store)
    assert b'"a":5e-6,"b":1000.0' in snapshot.messages_json
    read = Snapshot.from_json(snapshot.to_json().replace(b"5e-6", b"0.000005"))
    assert b'"a":0.000005,"b":1000.0' in read.messages_json
    assert ToolSnapshot("t", "", {"multipleOf": json.loads("0.000005")}).parameters == {"multipleOf": 5e-6}


@given(objects, st.sampled_from([None, 2]), st.booleans())
def test_parse_agrees_with_json_loads(message, indent, ascii_only):
    """P15: on what ``json.dumps`` writes, in whatever layout, ``parse`` gives what ``json.loads`` gives."""
    text = json.dumps(message, indent=indent, ensure_ascii=ascii_only)
    assert same(parse(text.encode()), json.loads(text))
    assert same(parse(text.encode()), message)


@given(st.binary(max_size=60) | st.text('{}[]":,0123456789.eE+-nul truefas\\\n\0é', max_size=40).map(str.encode))
def test_parse_of_any_bytes_agrees_with_json_loads_or_refuses(text):
    """P15: whatever the bytes, ``parse`` gives what ``json.loads`` gives for their UTF-8, or an InvalidMessageError."""
    expected = outcome(json.loads, text)
    value = outcome(parse, text)
    if isinstance(value, InvalidMessageError):
        ours = any(word in value.reason for word in ("twice", "64 bits", "cannot carry"))
        assert type(expected) is not dict or ours
    else:
        assert same(value, expected)


def outcome(function: Callable[[Any], Any], text: bytes) -> Any:
    """What a parser makes of bytes that ought to be UTF-8: a value, or the error."""
    try:
        return function(text) if function is parse else function(text.decode("utf-8"))
    except (ValueError, InvalidMessageError) as error:
        return error
