"""Lines that a program, a crash or a person left in a file: each byte is in a line or in the tail, and oddities are reported."""

from __future__ import annotations

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from tests.formats.of_others import Bytes
from tests.kit.cases import for_each
from transcript_store.formats import SourceLines, head_of

WHOLE = b'{"role":"user","content":"hello"}'
DEEP = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def read(data, **given):
    lines = SourceLines(Bytes(data), **given)
    return list(lines), lines


@for_each(
    "told, data, values, kinds, tail",
    [
        ("a whole file", WHOLE + b"\n" + WHOLE + b"\n", 2, [], b""),
        ("CR LF", WHOLE + b"\r\n", 1, [], b""),
        ("no line end, but whole", WHOLE, 1, [], b""),
        ("torn", WHOLE + b"\n" + WHOLE[:9], 1, ["torn"], WHOLE[:9]),
        ("a byte order mark", b"\xef\xbb\xbf" + WHOLE + b"\n", 1, ["byte-order-mark"], b""),
        ("NUL bytes before it", b"\x00" * 512 + WHOLE + b"\n", 1, ["nul"], b""),
        ("nothing but NUL bytes", b"\x00" * 512 + b"\n", 0, ["nul"], b""),
        ("two on a line", WHOLE + WHOLE + b"\n", 2, ["glued"], b""),
        ("torn, and the next one glued on", WHOLE[:12] + WHOLE + b"\n", 1, ["glued"], b""),
        ("an empty line", b"\n" + WHOLE + b"\n", 1, ["empty"], b""),
        ("no JSON", b"hello\n", 0, ["not-json"], b""),
        ("NUL bytes behind it", WHOLE + b"\x00" * 9 + b"\n", 1, ["nul"], b""),
        ("NUL bytes behind the last one", WHOLE + b"\x00" * 9, 1, ["nul"], b""),
        ("no UTF-8", b'{"a":"\xff"}\n', 1, ["not-utf8"], b""),
        ("no UTF-8 in what is no object", b'["\xff"]\n', 0, ["not-json"], b""),
        ("a control character", b'{"a":"\x1b\t"}\n', 1, ["control-character"], b""),
        ("no number", b'{"a":[NaN,-Infinity,1e400]}\n', 1, ["no-number"], b""),
        (
            "all of these behind a byte order mark",
            b'\xef\xbb\xbf {"a":NaN,"b":"\\ud800\x1b"} \n',
            1,
            ["byte-order-mark", "half-character", "no-number", "control-character"],
            b"",
        ),
        ("half a character", b'{"a":"\\ud800"}\n', 1, ["half-character"], b""),
        ("no object", b"[1]\n", 0, ["not-an-object"], b""),
        ("deeper than anybody can read", DEEP + b"\n", 0, ["too-deep"], b""),
        ("a line separator of Unicode, which ends no line", b'{"a":"\xe2\x80\xa8"}\n', 1, [], b""),
        ("nothing at all", b"", 0, [], b""),
    ],
)
def test_what_stands_on_a_line_is_told_apart_and_reported(told, data, values, kinds, tail):
    found, lines = read(data)
    assert sum(line.value is not None for line in found) == values
    assert [finding.kind for finding in lines.findings] == kinds
    assert lines.tail == tail
    assert b"".join(line.raw for line in found) + lines.tail == data


def test_a_finding_says_on_which_line_it_is_and_at_which_byte():
    _, lines = read(WHOLE + b"\n" + b"nonsense\n" + WHOLE + WHOLE + b"\n" + b"{")
    told = [(finding.kind, finding.line, finding.offset) for finding in lines.findings]
    first, second = len(WHOLE) + 1, len(WHOLE) + 10
    assert told == [("not-json", 2, first), ("glued", 3, second), ("torn", 4, second + 2 * len(WHOLE) + 1)]


def test_a_line_longer_than_the_limit_is_left_out_by_name_and_the_rest_is_read():
    found, lines = read(WHOLE + b"\n" + b"x" * 3_000_000 + b"\n" + WHOLE + b"\n", max_line_bytes=1000)
    assert [(line.number, line.raw == b"", line.value is not None) for line in found] == [
        (1, False, True),
        (2, True, False),
        (3, False, True),
    ]
    assert [(finding.kind, finding.line) for finding in lines.findings] == [("too-long", 2)]


def test_the_pieces_of_a_line_have_its_number_and_follow_each_other():
    (first, second, third), _ = read(b'{"a":1} {"b":2}{"torn\n')
    assert [(piece.number, piece.part, piece.value) for piece in (first, second, third)] == [
        (1, 0, {"a": 1}),
        (1, 1, {"b": 2}),
        (1, 2, None),
    ]
    assert second.offset == len(first.raw)


def test_how_a_file_begins_is_known_from_its_first_lines_though_the_next_one_is_long():
    head = head_of(Bytes(b"\xef\xbb\xbf" + WHOLE + b"\n" + b'{"a":"' + b"x" * 100_000 + b'"}\n'))
    assert head.objects == (orjson.loads(WHOLE),)


PIECES = st.sampled_from([WHOLE, WHOLE[:9], b"\x00", b"\n", b"\r\n", b"\xef\xbb\xbf", b"\xff", b"{", b'"', b"[1]", b"nonsense", b'{"a":{"b":1}}', b'{"a":"\\ud800"}', b"{}", b"\xe2\x80\xa8", b"NaN"])  # fmt: skip


@given(st.binary(max_size=60) | st.lists(PIECES, max_size=12).map(b"".join))
@example(b"{}\n\xef\xbb\xbf{}\n")
def test_every_byte_is_in_a_line_or_in_the_tail(data):
    found, lines = read(data)
    assert b"".join(line.raw for line in found) + lines.tail == data
    assert [line.offset for line in found] == [sum(len(one.raw) for one in found[:at]) for at in range(len(found))]
    assert lines.count == data.count(b"\n") + (bool(found) and not found[-1].raw.endswith(b"\n"))
    assert all(line.value is None or type(line.value) is dict for line in found)
