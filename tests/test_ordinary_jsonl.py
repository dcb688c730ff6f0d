"""The transcript is ordinary JSONL: ``jq`` and any language's JSON library read every message from it.

A file format that only its own library reads is a hostage taker. The traps are small: a reader that splits lines on
U+2028 or U+0085 (``str.splitlines`` does), one that stops at a NUL, one whose numbers are doubles. So what any of them
sees is compared here with what was put in, through the real jq and through Python's json, and not through this package.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.cases import few
from transcript_store import ConversationStore
from transcript_store.testing.strategies import json_objects

needs_jq = pytest.mark.needs("jq")

SEPARATORS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
any_objects = json_objects()
# jq prints 17 significant digits and reads what it prints; subnormal numbers are where old versions differ.
jq_objects = json_objects(
    integers=st.integers(-(2**53), 2**53),
    floats=st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False),
)


def write(directory: Path, messages: list[dict[str, Any]]) -> Path:
    """Store messages in every way there is: at initialize, one by one, as a batch, with extras and events between."""
    shutil.rmtree(directory, ignore_errors=True)
    with ConversationStore(directory, durability="process-crash") as store:
        third = len(messages) // 3
        store.initialize(messages=messages[:third])
        for message in messages[third : 2 * third]:
            store.append_message(message, extra={"message": {"not": "one"}})
            store.append_event({"message": "not one"})
        store.append_messages(messages[2 * third :])
    return directory / "transcript.jsonl"


def through_json(path: Path) -> list[Any]:
    """The lines as a reader sees them that knows only that a line ends in a line feed."""
    lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b""
    return [message for line in lines if (message := json.loads(line.decode("utf-8")).get("message")) is not None]


def through_jq(path: Path, program: str = ".message // empty") -> list[Any]:
    """What the README's command prints."""
    done = subprocess.run(["jq", "-c", program, str(path)], capture_output=True, check=True)
    assert done.stderr == b""
    return [json.loads(line) for line in done.stdout.split(b"\n")[:-1]]


def same(a: Any, b: Any) -> bool:
    """Equal, with the order of keys; a number may change between int and float (jq has one kind), a bool may not."""
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)) and (isinstance(a, float) or isinstance(b, float)):
        return math.isclose(a, b, rel_tol=1e-15, abs_tol=0.0)
    return bool(a == b)


@settings(max_examples=few(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=st.lists(any_objects, max_size=7))
def test_json_reads_every_message(tmp_path, messages):
    """P14: Python's json gives back an equal message for each line that has one, in order, types and all."""
    got = through_json(write(tmp_path / "c", messages))
    assert json.dumps(got) == json.dumps(messages)


@needs_jq
@settings(max_examples=few(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=st.lists(jq_objects, min_size=1, max_size=8))
def test_jq_reads_every_message(tmp_path, messages):
    """P14: ``jq -c '.message // empty'`` prints an equal message for each record that has one, keys in order."""
    path = write(tmp_path / "c", messages)
    got = through_jq(path)
    assert len(got) == len(messages)
    for seen, message in zip(got, messages, strict=True):
        assert same(seen, message), f"{seen!r} is not {message!r}"


def _program_of_the_documentation() -> str:
    text = (Path(__file__).parent.parent / "docs/format.md").read_text()
    return text.split("jq -nc '")[1].split("'")[0]


@needs_jq
def test_jq_shows_what_was_retracted(tmp_path):
    """P14: a message that was taken back is printed as before, and so is what took it back; the documented program leaves it out."""
    path = tmp_path / "c"
    messages = [{"n": n} for n in range(6)]
    with ConversationStore(path) as store:
        store.initialize(messages=messages[:4], features=["retract"])
        store.retract(2)
        store.append_messages(messages[4:])
        store.retract()
        store.keep_records([1, 2, 4, 5, 6, 7, 8])
        counting = store.get_messages()
    transcript = path / "transcript.jsonl"
    assert through_jq(transcript) == through_json(transcript) == [{"n": n} for n in (0, 1, 3, 4, 5)]
    assert through_jq(transcript, ".retracts // empty") == [[3, 3], [6, 6]]
    assert counting == [{"n": 0}, {"n": 1}, {"n": 4}]
    done = subprocess.run(
        ["jq", "-nc", _program_of_the_documentation(), str(transcript)], capture_output=True, check=True
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == counting


TRAPS: list[dict[str, Any]] = [
    {"separators": f"a{SEPARATORS}b", SEPARATORS: 1},
    {"u2028": "\u2028", "u2029": "\u2029", "nel": "\x85"},
    {"nul": "\0", "\0": "a\0b"},
    {"controls": "".join(map(chr, range(32))) + "\x7f"},
    {"quotes": '"\\"\\\\\'', "slash": "</script>"},
    {"beyond": "\U0010ffff\U0001f600\ufffe\uffff", "bom": "\ufeff"},
    {"": {"": [[], {}, "", None, False]}},
    {"looks": '{"seq":9,"message":{}}\n{"seq":10}', "like": ',"hash":"' + "0" * 32 + '"}\n'},
    {"numbers": [0, -0.0, 1e300, -1e-300, 2**53, -(2**53), 0.1]},
    {"false": False, "null": None},
]


@needs_jq
def test_the_traps(tmp_path):
    """P14: what other readers split on, stop at or escape differently reaches them whole: U+2028, U+0085, NUL, controls."""
    path = write(tmp_path / "c", TRAPS)
    assert through_json(path) == TRAPS
    for seen, message in zip(through_jq(path), TRAPS, strict=True):
        assert same(seen, message)


def test_lines_are_split_on_line_feeds_only(tmp_path):
    """P14: there are as many line feeds as lines, whatever the messages hold, and no byte of a control character."""
    path = write(tmp_path / "c", TRAPS)
    data = path.read_bytes()
    singles = len(TRAPS) // 3
    assert data.count(b"\n") == 1 + len(TRAPS) + singles  # the header, the messages, an event for each that went alone
    assert not {byte for byte in data if byte < 32} - {0x0A}
    assert len(data.decode("utf-8").splitlines()) > data.count(b"\n"), "splitlines would not have been a trap"


@needs_jq
def test_every_line_is_one_json_object(tmp_path):
    """P14: header, messages and events are all objects; jq finds the header's format and each record's seq."""
    path = write(tmp_path / "c", TRAPS)
    assert through_jq(path, "type") == ["object"] * path.read_bytes().count(b"\n")
    seqs = through_jq(path, ".seq // empty")
    assert seqs == list(range(1, len(seqs) + 1))
    assert through_jq(path, ".format // empty") == ["transcript-store"]


@needs_jq
def test_metadata_and_archive_are_ordinary_too(tmp_path):
    """P14: metadata.json is one JSON document, and an archived generation reads like a live one."""
    path = write(tmp_path / "c", TRAPS)
    with ConversationStore(tmp_path / "c") as store:
        store.load()
        store.update_metadata(labels={"a\u2028": "b\0"}, system_prompt="s\x85")
        store.replace_transcript([{"only": 1}])
    metadata = json.loads((tmp_path / "c/metadata.json").read_bytes())
    assert metadata["labels"] == {"a\u2028": "b\0"}
    assert through_jq(tmp_path / "c/metadata.json", ".system_prompt") == ["s\x85"]
    assert through_jq(path) == [{"only": 1}]
    archived = tmp_path / "c/archive/transcript-000000.jsonl"
    assert through_json(archived) == TRAPS
    assert len(through_jq(archived)) == len(TRAPS)


def test_same_is_strict():
    """The helper itself: a bool is no number, the order of keys counts, and close is not near."""
    assert not same({"a": 1}, {"a": True})
    assert not same({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert not same([1.0], [1.0000001])
    assert not same([2**53], [2**53 - 1])
    assert same([1, 77807763098532780], [1.0, 7.780776309853278e16])
