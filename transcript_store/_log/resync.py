"""Which records of a damaged file are whole? The only reader of damaged files: it finds every whole record, wherever it
is, and the gaps between.

``load``, ``verify``, ``show`` and ``repair`` all use :func:`parts`, so they agree. Nothing here does I/O: the caller
passes a :data:`Read`.

R4  The work is linear in the bytes, and memory holds one chunk of them, whatever they hold. (R1 to R3 are ``damage``'s.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from itertools import pairwise
from typing import Any, NamedTuple

from transcript_store._log.record import GENESIS, SUFFIX_BYTES, Batch, Position, body_batch, chain_hash
from transcript_store._log.scan import PIECE_BYTES, Read, first_line, has_bytes, read_chunks

_TOKEN = re.compile(
    rb'\n+|\{"seq":([1-9]\d{0,18}),"at":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"|,"hash":"([0-9a-f]{32})"\}'
)
"""Line feeds, the beginning of a record, the end of one: all that the reader looks for."""

_LONGEST_TOKEN = 128
_BEHIND = 64
"""How many bytes before a token are kept with it: more than the longest mark of a batch."""

_BLANK = b" \t\r"
_NOT_BLANK = re.compile(rb"[^ \t\r]")
_HEADER = re.compile(rb'(?:\xef\xbb\xbf)?\{\s*"format"\s*:\s*"transcript-store"')


class Whole(NamedTuple):
    """The facts of a record that verifies, wherever it is."""

    seq: int
    batch: Batch
    head: bytes
    previous: bytes
    """The hash that it is chained to."""


class ByteRange(NamedTuple):
    """Bytes of a file from ``start`` to ``end``, its LF not counted: a record that verifies, or something else."""

    start: int
    end: int
    whole: Whole | None


class DamagedLine(NamedTuple):
    """A line of a file, or the part of it up to where a record ends: its ranges in order, without blank ones."""

    line_number: int
    stretches: list[ByteRange]

    @property
    def start(self) -> int:
        return self.stretches[0].start

    @property
    def end(self) -> int:
        return self.stretches[-1].end


def parts(read: Read, size: int, begin: Position | None = None) -> Iterator[DamagedLine]:
    """Split a file, from ``begin`` or from the end of its header, into records and other bytes.

    A record is looked for where a line begins (space around it, that an editor put there, does not count), directly
    after a record, and where something on a line that is not one record starts like one. It is whole if its hash
    verifies against the hash at the end of the line before it, against that line's hash recomputed (the hash may be
    the damaged bytes), or against the last intact record. An intact record that occurs a second time is yielded
    once.
    """
    if begin is not None:
        reader = _Reader(read, [begin.head], begin.offset_bytes, begin.seq + 2)
    else:
        offset, before = _behind_header(read, size)
        reader = _Reader(read, before, offset, 1)
    return reader.parts(size)


def stretches(read: Read, size: int, begin: Position | None = None) -> Iterator[ByteRange]:
    """The stretches of all :func:`parts`, in order."""
    return (stretch for part in parts(read, size, begin) for stretch in part.stretches)


def is_ours(read: Read, size: int) -> bool:
    """True if a file was once a transcript: it starts with a header, edited or damaged, or holds a record that verifies."""
    return bool(_HEADER.match(first_line(read, size))) or any(one.whole for one in stretches(read, size))


def count_whole(read: Read, size: int) -> int:
    """How many records of a file verify, wherever they are: what a repair with ``salvage`` keeps."""
    return sum(stretch.whole is not None for stretch in stretches(read, size))


def _behind_header(read: Read, size: int) -> tuple[int, list[bytes]]:
    """Where the header ends, edited or damaged, and its hash: as stored, and as recomputed."""
    line = bytes(first_line(read, size))
    match = _HEADER.match(line)
    if match is None:
        return 0, [GENESIS]
    end = line.find(b"\n")
    line = line[: end if end >= 0 else None]
    record = next((token for token in _TOKEN.finditer(line) if token[1]), None)
    content = line.rstrip(b" \t\r")
    if record is not None and content[-34:-2] != chain_hash(GENESIS, [content[:-SUFFIX_BYTES]]):
        line = content = line[: record.start()]  # a record is glued to it
    if len(content) <= SUFFIX_BYTES:
        return len(line), [GENESIS]
    return len(line), [content[-34:-2], chain_hash(GENESIS, [content[:-SUFFIX_BYTES]])]


class _Candidate:
    """Bytes that may be a record: where they start, and their hash so far, chained to each hash that may precede them."""

    __slots__ = ("_before", "_hashed", "_hashers", "_pieces", "seq", "start")

    def __init__(
        self, start: int, seq: int, before: list[bytes], pieces: Callable[[int, int], Iterable[bytearray]]
    ) -> None:
        self.start = start
        self.seq = seq
        self._before = before
        self._pieces = pieces
        self._hashed = start
        self._hashers: list[tuple[bytes, Any]] = []

    def chained_to(self, stated: bytes, end: int) -> bytes | None:
        """The hash that it is chained to, if the bytes up to ``end`` have the hash ``stated``; None if they have another."""
        if not self._hashers:  # not before: a hostile file may hold a million starts and no end
            self._hashers = [(head, sha256(head)) for head in dict.fromkeys(self._before)]
        # R4. Each byte is hashed once, however many ends are tried.
        start, self._hashed = self._hashed, end
        for piece in self._pieces(start, end):
            for _, hasher in self._hashers:
                hasher.update(piece)
        for previous, hasher in self._hashers:
            if hasher.hexdigest()[:32].encode() == stated:
                return previous
        return None


class _Reader:
    """Reads a file once, chunk by chunk, from one token to the next.

    Two candidates are followed on a line. ``_outer`` starts where the line does, or where something first looks like a
    record. ``_inner`` is the latest such position after it. So a record that holds another one (a transcript that a
    tool has read) is found whole, and so is one after garbage, while each byte is hashed a few times at most.
    """

    def __init__(self, read: Read, before: list[bytes], offset: int, line_number: int) -> None:
        self._read = read
        self._window, self._base = bytearray(), offset
        """A chunk of the file, and its offset."""
        self._line_number = line_number
        self._before = before
        """The hash of the line before: as stored, and as recomputed."""
        self._last_whole = before[0]
        self._seen: dict[bytes, tuple[int, int]] = {}
        """The position of the whole record with this hash."""
        self._begin_part()

    def _begin_part(self) -> None:
        self._start: int | None = None  # the position of its first byte that is not blank
        self._end: int  # and where the last one ends, if there is one
        self._outer: _Candidate | None = None
        self._inner: _Candidate | None = None
        self._cuts: list[int] = []
        self._found: list[ByteRange] = []

    def parts(self, size: int) -> Iterator[DamagedLine]:
        """All parts, in order."""
        done = self._base
        while True:
            window, end = self._window, self._base + len(self._window)
            more = self._read(end, min(PIECE_BYTES, size - end))
            window += more
            limit = end + len(more) - _LONGEST_TOKEN if more else end
            for token in _TOKEN.finditer(window, done - self._base):
                start = self._base + token.start()
                if start >= limit:
                    break
                self._pass_over(done, start)
                yield from self._take(token)
                done = self._base + token.end()
            if done < limit:
                self._pass_over(done, limit)
                done = limit
            if not more:
                yield from self._end_part()
                return
            keep = max(0, done - self._base - _BEHIND)
            del window[:keep]
            self._base += keep

    def _pieces(self, start: int, end: int) -> Iterable[bytearray]:
        """Bytes before the current token, from the window if they are still in it."""
        if start >= self._base:
            return [self._window[start - self._base : end - self._base]]
        return read_chunks(self._read, start, end)

    def _pass_over(self, start: int, end: int) -> None:
        """Note where the bytes between two tokens start and end; space does not count, an editor may have added it."""
        between = self._window[start - self._base : end - self._base]
        if (first := _NOT_BLANK.search(between)) is not None:
            if self._start is None:
                self._start = start + first.start()
            self._end = start + len(between.rstrip(_BLANK))

    def _take(self, token: re.Match[bytes]) -> Iterator[DamagedLine]:
        start, end = self._base + token.start(), self._base + token.end()
        if token[1] is None and token[2] is None:
            yield from self._end_part()
            self._begin_part()
            self._line_number += end - start
            return
        if token[1] is not None:
            if self._window.endswith(b'"}', 0, token.start()) and self._start is not None:
                yield from self._end_part()  # two records are glued together: they count as two lines
                self._begin_part()
            candidate = _Candidate(start, int(token[1]), [*self._before, self._last_whole], self._pieces)
            if self._outer is None:
                self._outer = candidate
            else:
                self._inner = candidate
            if self._start is not None:
                self._cuts.append(start)
        elif (ended := self._end_candidate(token)) is not None:
            yield from ended
            self._begin_part()
            return
        if self._start is None:
            self._start = start
        self._end = end

    def _end_candidate(self, token: re.Match[bytes]) -> list[DamagedLine] | None:
        """Something ends like a record: returns the part that ends here, if it started with that record; None if it
        continues.
        """
        start, end, stated = self._base + token.start(), self._base + token.end(), bytes(token[2])
        for candidate in (self._outer, self._inner):
            if candidate is None or (previous := candidate.chained_to(stated, start)) is None:
                continue
            # body_batch() looks at the last bytes alone, and a window keeps more of them than that.
            batch = body_batch(self._window, 0, token.start())
            found = ByteRange(candidate.start, end, Whole(candidate.seq, batch, stated, previous))
            if candidate is self._inner:
                self._last_whole = stated
                self._found.append(found)
                self._inner = None
                self._cuts.append(end)
                return None
            self._before = [stated]
            stretches = [] if self._start is None else self._once(ByteRange(self._start, found.start, None))
            if fresh := self._once(found):
                self._last_whole = stated
            stretches += fresh
            return [DamagedLine(self._line_number, stretches)] if stretches else []
        return None

    def _end_part(self) -> Iterator[DamagedLine]:
        """The facts of a part at its end, if no record in it started with it."""
        if self._start is None:
            return
        start, end = self._start, self._end
        stated = self._stated_at(start, end)
        if self._is_there_already(stated, start, end):
            self._before = [stated]
            return
        if self._found and self._found[-1].end == end:
            self._before = [self._last_whole]
        elif stated:
            # The next record may be chained to either: the hash itself may be damaged.
            self._before = [stated, chain_hash(self._before[0], read_chunks(self._read, start, end - SUFFIX_BYTES))]
        if stretches := self._stretches(start, end):
            yield DamagedLine(self._line_number, stretches)

    def _stretches(self, start: int, end: int) -> list[ByteRange]:
        found = {stretch.start: stretch for stretch in self._found}
        bounds = sorted({start, *self._cuts, *(stretch.start for stretch in self._found), end})
        stretches: list[ByteRange] = []
        for a, b in pairwise(bounds):
            # No bound lies within a found record: what begins within one takes its place as the candidate.
            stretches += self._once(found.get(a) or ByteRange(a, b, None))
        return stretches

    def _once(self, stretch: ByteRange) -> list[ByteRange]:
        """A range, if it is not empty and not the copy of a whole record."""
        start, end, whole = stretch
        head = self._stated_at(start, end) if whole is None else whole.head
        if start == end or self._is_there_already(head, start, end):
            return []
        if whole is not None:
            self._seen[head] = (start, end)
        return [stretch]

    def _stated_at(self, start: int, end: int) -> bytes:
        """The bytes where a record has its hash."""
        return bytes(self._read(end - 34, 32)) if end - start > SUFFIX_BYTES else b""

    def _is_there_already(self, head: bytes, start: int, end: int) -> bool:
        """True if these bytes equal the record that has this hash."""
        first, last = self._seen.get(head, (0, -1))
        if last - first != end - start:
            return False
        return has_bytes(
            lambda at, length: self._read(start + at, length), end - start, read_chunks(self._read, first, last)
        )
