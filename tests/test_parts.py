"""Which records of a damaged file are whole: the shared answer of ``verify``, ``salvage`` and ``repair``.

The file is read in pieces. So each case is read in pieces of every size too: a token, a record or a copy may lie across two of
them, and a mutant that forgets the second piece is right about every small file.
"""

from __future__ import annotations

import pytest

from tests.kit.cases import for_each
from transcript_store._log import damage, resync, scan
from transcript_store._log.record import GENESIS, Position, close_line, header_body, record_body

AT = b"2026-01-01T00:00:00.000000Z"


def transcript() -> list[bytes]:
    """The header and six records, without their line feeds; the last but one holds what looks like a record."""
    lines = [header_body(conversation="c", generation=0, at=AT.decode(), metadata={})]
    head = b""
    messages = [b'{"n":1}', b'{"n":2}', b'{"n":"%b"}' % (b"long " * 90), b'{"n":4}', b"", b'{"n":6}']
    line, head = close_line(GENESIS, lines[0])
    lines = [line]
    for seq, message in enumerate(messages, 1):
        inner = b'{"seq":1,"at":"%b","message":{},"hash":"%b"}' % (AT, b"0" * 32)
        line, head = close_line(head, *record_body(seq, AT, message or inner, None))
        lines.append(line)
    return [line.rstrip(b"\n") for line in lines]


HEADER, *RECORDS = transcript()
ONE, TWO, LONG, FOUR, NESTED, SIX = RECORDS
EDITED = LONG.replace(b"long", b"LONG", 1)
WITHOUT_HASH = TWO[:-34] + b"f" * 32 + TWO[-2:]
OTHER_END = LONG[:-60] + b"!" + LONG[-59:]
Found = list[tuple[int, list[bytes], list[bool]]]


def whole(*lines: tuple[int, bytes]) -> Found:
    return [(number, [line], [True]) for number, line in lines]


def gap(number: int, data: bytes) -> Found:
    return [(number, [data], [False])]


def read_apart(data: bytes) -> Found:
    """The number of each part's line, its stretches, and which of them are records."""

    def read(offset: int, length: int) -> bytearray:
        assert 0 <= offset <= offset + length <= len(data)  # a writer may be at work behind that
        return bytearray(data[offset : offset + length])

    return [
        (
            part.line_number,
            [data[stretch.start : stretch.end] for stretch in part.stretches],
            [stretch.whole is not None for stretch in part.stretches],
        )
        for part in resync.parts(read, len(data))
    ]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([HEADER, *RECORDS, b""], whole(*enumerate(RECORDS, 2)), id="nothing is wrong"),
        pytest.param([HEADER, *RECORDS], whole(*enumerate(RECORDS, 2)), id="the last line feed is missing"),
        pytest.param([HEADER, b"", b" \t", ONE, b"", TWO], whole((4, ONE), (6, TWO)), id="blank lines"),
        pytest.param([HEADER, b"  " + ONE + b" \r", b"\t" + TWO], whole((2, ONE), (3, TWO)), id="indented"),
        pytest.param(
            [HEADER, b"\xef\xbb\xbf" + ONE, TWO],
            [(2, [b"\xef\xbb\xbf", ONE], [False, True]), *whole((3, TWO))],
            id="BOM",
        ),
        pytest.param([HEADER, ONE + TWO, LONG], whole((2, ONE), (2, TWO), (3, LONG)), id="glued"),
        pytest.param([HEADER + ONE, TWO], whole((1, ONE), (2, TWO)), id="glued to the header"),
        pytest.param(
            [HEADER, ONE, TWO, TWO, LONG, LONG, LONG, FOUR], whole((2, ONE), (3, TWO), (5, LONG), (8, FOUR)), id="twice"
        ),
        pytest.param(
            [HEADER, ONE, TWO, LONG, TWO, LONG, FOUR],
            whole((2, ONE), (3, TWO), (4, LONG), (7, FOUR)),
            id="a block twice",
        ),
        pytest.param(
            [HEADER, ONE, TWO, LONG, OTHER_END, FOUR],
            [*whole((2, ONE), (3, TWO), (4, LONG)), *gap(5, OTHER_END), *whole((6, FOUR))],
            id="a copy that differs at its end",
        ),
        pytest.param(
            [HEADER, ONE, TWO, LONG, LONG + b"!", FOUR],
            [*whole((2, ONE), (3, TWO), (4, LONG)), *gap(5, LONG + b"!"), *whole((6, FOUR))],
            id="a copy and more",
        ),
        pytest.param([HEADER, ONE, LONG, FOUR], [*whole((2, ONE)), *gap(3, LONG), *whole((4, FOUR))], id="one is gone"),
        pytest.param(
            [HEADER, ONE, WITHOUT_HASH, LONG],
            [*whole((2, ONE)), *gap(3, WITHOUT_HASH), *whole((4, LONG))],
            id="another hash",
        ),
        pytest.param(
            [HEADER, ONE, TWO[:60], LONG, FOUR],
            [*whole((2, ONE)), *gap(3, TWO[:60]), *gap(4, LONG), *whole((5, FOUR))],
            id="cut",
        ),
        pytest.param(
            [HEADER, ONE, TWO[:60] + TWO, LONG],
            [*whole((2, ONE)), (3, [TWO[:60], TWO], [False, True]), *whole((4, LONG))],
            id="torn, then whole",
        ),
        pytest.param(
            [HEADER, ONE, b"xx" + TWO + b"yy", LONG],
            [*whole((2, ONE)), (3, [b"xx", TWO], [False, True]), *gap(3, b"yy"), *whole((4, LONG))],
            id="between other bytes",
        ),
        pytest.param(
            [HEADER, ONE, TWO[:60] + TWO + b" yy", LONG],
            [*whole((2, ONE)), (3, [TWO[:60], TWO, b" yy"], [False, True, False]), *whole((4, LONG))],
            id="torn, then whole, then more",
        ),
        pytest.param(
            [HEADER, ONE, TWO[:60] + TWO + b" " + EDITED, FOUR],
            [*whole((2, ONE)), (3, [TWO[:60], TWO, b" ", EDITED], [False, True, False, False]), *whole((4, FOUR))],
            id="torn, then whole, then an edited one that the next follows",
        ),
        pytest.param(
            [HEADER, *RECORDS[:4], b"x" + NESTED, SIX],
            [*whole(*enumerate(RECORDS[:4], 2)), (6, [b"x", NESTED], [False, True]), *whole((7, SIX))],
            id="one that holds one",
        ),
        pytest.param(
            [b"[" + HEADER[1:], ONE, TWO], [*gap(1, b"[" + HEADER[1:]), *whole((2, ONE), (3, TWO))], id="no header"
        ),
        pytest.param([HEADER.replace(b'"c"', b'"d"'), ONE, TWO], whole((2, ONE), (3, TWO)), id="an edited header"),
        pytest.param(
            [HEADER[:-34] + b"f" * 32 + b'"}', ONE, TWO], whole((2, ONE), (3, TWO)), id="a header with another hash"
        ),
        pytest.param([HEADER, bytes(300), ONE, TWO], [*gap(2, bytes(300)), *whole((3, ONE), (4, TWO))], id="NULs"),
    ],
)
def test_what_is_whole_is_found_wherever_it_stands(
    lines: list[bytes], expected: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R1, R4: each record once, on its line, with what lies around it; the same whatever is read at a time."""
    for piece_bytes in (1, 50, 129, 200, 1 << 18):
        for module in (resync, scan):
            monkeypatch.setattr(module, "PIECE_BYTES", piece_bytes)
        assert read_apart(b"\n".join(lines)) == expected, f"in pieces of {piece_bytes} bytes"


def test_the_rest_of_a_file_is_numbered_from_where_it_begins() -> None:
    """R1: behind a record that is known to be whole the lines go on with the number after its own."""
    data = b"\n".join([HEADER, ONE, TWO, b"nothing", LONG])
    begin = Position(1, len(HEADER + ONE) + 2, ONE[-34:-2])
    found = resync.parts(lambda offset, length: bytearray(data[offset : offset + length]), len(data), begin)
    assert [part.line_number for part in found] == [3, 4, 5]


@for_each("tail", [b"", b"torn", b'{"seq":3,', bytes(9), b'{"note":1}\n', TWO, TWO[:-1], b"torn\n" + LONG])
def test_nothing_behind_the_size_is_looked_at(tail: bytes) -> None:
    """P12: the size is that of the moment when the file was opened; a writer may be at work behind it."""
    whole = b"".join(line + b"\n" for line in (HEADER, ONE))
    data = whole + tail

    def read(offset: int, length: int) -> bytearray:
        assert 0 <= offset <= offset + length <= len(data)
        return bytearray((data + b"more\n")[offset : offset + length])

    found, end = damage.check(read, len(data), *[Position(0, len(HEADER) + 1, HEADER[-34:-2])] * 2)
    assert end.offset_bytes == len(whole)
    assert (found is None) == (tail == b"")


def test_a_first_line_that_does_not_end_is_read_no_further_than_a_header_may_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P15: a file of zeros may have any size; so much of it is in memory at once, and no more."""
    monkeypatch.setattr(scan, "LONGEST_METADATA_BYTES", 64 * 1024)
    assert len(scan.first_line(lambda offset, length: bytearray(length), 1 << 40)) == 64 * 1024
