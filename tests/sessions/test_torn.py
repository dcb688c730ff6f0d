"""A torn file of lines: every whole object stays, in order, once; only unreadable bytes are cut.

The reports are in tests/reports/test_torn_session_files.py. Here stand the properties, for files that nobody thought of.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.formats.sources import SHARED
from transcript_store.sessions import mend_document, mend_lines
from transcript_store.testing.strategies import json_values

INNER = json_values() | st.sampled_from(
    [
        "a\nb",
        "}{",
        '{"type":"x"',
        "\u2028",
        "\\",
        '"',
        "{}\n{}",
        "\x00",
        "\r",
        {"type": "message"},
        {"id": "id-0", "body": 1},
    ]
)
"""Values, and some that look like what a torn line looks like."""


def lines_of(bodies: list[Any]) -> list[bytes]:
    """Lines as a program writes them, each with an id and its parent."""
    return [
        json.dumps(
            {"type": "message", "id": f"id-{number}", "parentId": f"id-{number - 1}" if number else None, "body": body},
            ensure_ascii=False,
            separators=(",", ":"),
        ).encode()
        for number, body in enumerate(bodies)
    ]


def ids(data: bytes) -> list[str]:
    return [json.loads(line)["id"] for line in data.split(b"\n")[:-1]]


BODIES = st.lists(INNER, min_size=2, max_size=5)


@given(BODIES)
def test_a_whole_file_keeps_its_bytes(bodies: list[Any]) -> None:
    """Nothing is said of it, and nothing is changed, whatever its texts look like."""
    data = b"".join(line + b"\n" for line in lines_of(bodies))
    mended = mend_lines(data, escapes_separators=False)
    assert (mended.data, mended.mends, mended.lines) == (data, (), len(bodies))


@given(
    BODIES, st.lists(st.sampled_from([b"\n", b"", b"\r\n", b"\n\n", b"\x00" * 7 + b"\n", b"\n\x00\x00", b"\r", b" "]))
)
def test_whole_lines_stay_whatever_separates_them(bodies: list[Any], between: list[bytes]) -> None:
    """Objects on one line, CR, NUL runs and empty lines: every object is a line, in order, with the same value."""
    lines = lines_of(bodies)
    ends = [*between, *[b"\n"] * len(lines)][: len(lines)]
    mended = mend_lines(b"".join(line + end for line, end in zip(lines, ends, strict=True)))
    assert [json.loads(line) for line in mended.data.split(b"\n")[:-1]] == [json.loads(line) for line in lines]
    assert [mend for mend in mended.mends if mend.kind == "torn"] == []
    assert mend_lines(mended.data).mends == ()


@given(BODIES, st.data())
@example([0, {"a": {"type": "message"}}, 0], None)
def test_of_a_torn_line_nothing_else_is_lost(bodies: list[Any], data: st.DataObject | None) -> None:
    """A writer is killed within a line and the next one continues on it, or on a new line: the others stay, and no piece of it is a line."""
    lines = lines_of(bodies)
    number = data.draw(st.integers(0, len(lines) - 1)) if data else 1
    torn = lines[number]
    cut = torn[: data.draw(st.integers(1, len(torn) - 1)) if data else len(torn) - 3]
    end = data.draw(st.sampled_from([b"", b"\n", b"\x00" * 5])) if data else b""
    raw = b"".join(line + b"\n" for line in lines[:number]) + cut + end
    raw += b"".join(line + b"\n" for line in lines[number + 1 :])
    mended = mend_lines(raw)
    wanted = [f"id-{each}" for each in range(len(lines)) if each != number]
    assert ids(mended.data) == wanted
    [mend] = [mend for mend in mended.mends if mend.kind == "torn"]
    assert raw[mend.offset : mend.offset + mend.length].strip(b"\x00\n") == cut.strip()
    parents = [json.loads(line)["parentId"] for line in mended.data.split(b"\n")[:-1]]
    assert parents == [None, *wanted[:-1]] or number == 0
    assert mend_lines(mended.data).mends == ()


@given(BODIES, st.integers(0, 4))
def test_raw_control_characters_come_back_as_they_were(bodies: list[Any], number: int) -> None:
    """A text was written with raw line feeds, tabs and returns: the line is one again, and says the same."""
    bodies = [*bodies, "one\ntwo\tthree\r\n\nfour"]
    bodies.insert(number % len(bodies), "x\ny")
    lines = lines_of(bodies)
    raw = b"".join(
        line.replace(b"\\n", b"\n").replace(b"\\t", b"\t").replace(b"\\r", b"\r") + b"\n"
        if json.loads(line)["body"] in ("one\ntwo\tthree\r\n\nfour", "x\ny")
        else line + b"\n"
        for line in lines
    )
    mended = mend_lines(raw)
    assert [json.loads(line) for line in mended.data.split(b"\n")[:-1]] == [json.loads(line) for line in lines]


@given(st.binary(max_size=200))
@example(b'{"a":1}\xff\xfe{"a":2}')
@example(b"\xff\xfe\x00")
@example(b'\xef\xbb\xbf\xef\xbb\xbf{"type":1}')
@example(b'{"type":{"type":{"type":' * 40)
def test_any_bytes_become_lines_of_json(raw: bytes) -> None:
    """Whatever stands there: no exception, each line is an object, and a mended file needs no mend."""
    mended = mend_lines(raw)
    if mended.mends:
        assert all(isinstance(json.loads(line), dict) for line in mended.data.split(b"\n")[:-1])
        assert mended.data[-1:] in (b"", b"\n")
        assert mend_lines(mended.data).mends == ()
    assert all(0 <= mend.offset <= len(raw) for mend in mended.mends)


@given(INNER)
def test_a_document_is_mended_or_refused(body: Any) -> None:
    """A file that is one value: NUL bytes and raw control characters go; of a half one nothing is made up."""
    text = json.dumps({"body": body}, indent=2, ensure_ascii=False).encode()
    whole = mend_document(text)
    assert whole is not None
    assert (whole.data, whole.mends) == (text, ())
    mended = mend_document(b"\xef\xbb\xbf" + text + b"\x00" * 9)
    assert mended is not None
    assert json.loads(mended.data) == json.loads(text)
    assert mend_document(text.rstrip()[:-1]) is None


WILD = sorted(Path(SHARED, "corpora").rglob("*.jsonl")) if SHARED else []


@pytest.mark.sampled(every=40)
@pytest.mark.parametrize("path", WILD, ids=lambda path: path.stem[-40:])
def test_files_of_real_programs_are_left_unchanged_or_named(path: Path) -> None:
    """Of what programs wrote only a torn line (three files have one) is cut, and each line that can be read stays as it is."""
    raw = path.read_bytes()
    mended = mend_lines(raw, escapes_separators=False)
    torn = [mend for mend in mended.mends if mend.kind == "torn"]
    assert len(torn) <= 1
    kept = [
        line
        for line in raw.split(b"\n")
        if line.strip() and not any(line.startswith(one.excerpt.encode()) for one in torn)
    ]
    assert mended.data.split(b"\n")[:-1] == [line.rstrip(b"\r") for line in kept]
