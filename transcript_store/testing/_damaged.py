"""Damage that disks, programs and people do to a file, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

from hypothesis import strategies as st

DamageKind = Literal[
    "torn", "zeros", "stale page", "flipped bit", "lost line", "swapped lines", "repeated line", "glued", "foreign line"
]
_KINDS: tuple[DamageKind, ...] = get_args(DamageKind)
_PAGES = (16, 64, 512, 4096)
_FOREIGN = (
    b'{"role":"user","content":"appended by hand"}\n',
    b'{"seq":1,"time":"2026-01-01T00:00:00Z","message":{},"hash":"00000000000000000000000000000000"}\n',
    b"garbage\n",
    b"\n",
    b"\0\n",
)


class DamagedBytes(NamedTuple):
    """Bytes that were damaged, and how."""

    kind: DamageKind
    data: bytes


def damaged_bytes(data: bytes, *, kinds: Sequence[DamageKind] = _KINDS) -> st.SearchStrategy[DamagedBytes]:
    """Damaged variants of these bytes, never the original.

    Args:
        data: the content of a file.
        kinds: what may happen to it. ``"torn"``: its end is gone. ``"zeros"``: a stretch reads as NULs. ``"stale
            page"``: a page has what an earlier page of the file has. ``"flipped bit"``. ``"lost line"``, ``"swapped
            lines"``, ``"repeated line"``. ``"glued"``: a line feed is gone. ``"foreign line"``: another program's line
            is there.

    Raises:
        ValueError: ``data`` is empty, or a kind is not one of these.
    """
    if unknown := set(kinds) - set(_KINDS):
        raise ValueError(f"kinds must be of {', '.join(_KINDS)}; not {', '.join(sorted(unknown))}")
    if not data:
        raise ValueError("nothing can be damaged in an empty file")

    @st.composite
    def one(draw: st.DrawFn) -> DamagedBytes:
        kind = draw(st.sampled_from(list(kinds)))
        return DamagedBytes(kind, _WAYS[kind](data, lambda least, most: draw(st.integers(least, max(least, most)))))

    return one().filter(lambda damage: damage.data != data)


Choose = Callable[[int, int], int]


def _torn(data: bytes, choose: Choose) -> bytes:
    return data[: len(data) - choose(1, len(data))]  # shrinks to the last byte


def _zeros(data: bytes, choose: Choose) -> bytes:
    start = choose(0, len(data) - 1)
    count = min(choose(1, 600), len(data) - start)
    return data[:start] + bytes(count) + data[start + count :]


def _stale_page(data: bytes, choose: Choose) -> bytes:
    """A page of one write is lost, and the block keeps its earlier content: here, another page of the file."""
    size = _PAGES[choose(0, len(_PAGES) - 1)]
    pages = [data[at : at + size] for at in range(0, len(data), size)]
    page = choose(0, len(pages) - 1)
    stale = pages[choose(0, page)]
    pages[page] = (stale + bytes(size))[: len(pages[page])]
    return b"".join(pages)


def _flipped_bit(data: bytes, choose: Choose) -> bytes:
    at = choose(0, len(data) - 1)
    return data[:at] + bytes([data[at] ^ 1 << choose(0, 7)]) + data[at + 1 :]


def _lost_line(data: bytes, choose: Choose) -> bytes:
    lines = _lines(data)
    first = choose(0, len(lines) - 1)
    return b"".join(lines[:first] + lines[first + choose(1, 3) :])


def _swapped_lines(data: bytes, choose: Choose) -> bytes:
    lines = _lines(data)
    one, other = choose(0, len(lines) - 1), choose(0, len(lines) - 1)
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def _repeated_line(data: bytes, choose: Choose) -> bytes:
    lines = _lines(data)
    lines.insert(choose(0, len(lines)), lines[choose(0, len(lines) - 1)])
    return b"".join(lines)


def _glued(data: bytes, choose: Choose) -> bytes:
    lines = _lines(data)
    at = choose(0, len(lines) - 1)
    lines[at] = lines[at].removesuffix(b"\n")
    return b"".join(lines)


def _foreign_line(data: bytes, choose: Choose) -> bytes:
    lines = _lines(data)
    lines.insert(choose(0, len(lines)), _FOREIGN[choose(0, len(_FOREIGN) - 1)])
    return b"".join(lines)


def _lines(data: bytes) -> list[bytes]:
    """With their line feeds. Only a line feed ends a line, so ``splitlines`` would find too many."""
    return [line + b"\n" for line in data.split(b"\n")[:-1]] + ([rest] if (rest := data.rpartition(b"\n")[2]) else [])


_WAYS: dict[DamageKind, Callable[[bytes, Choose], bytes]] = {
    "torn": _torn,
    "zeros": _zeros,
    "stale page": _stale_page,
    "flipped bit": _flipped_bit,
    "lost line": _lost_line,
    "swapped lines": _swapped_lines,
    "repeated line": _repeated_line,
    "glued": _glued,
    "foreign line": _foreign_line,
}
