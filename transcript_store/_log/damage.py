"""The one reader of what does not verify: which lines of a damaged file are whole, what lies between, what caused it.

Two kinds of bad bytes, told apart by their cause (LevelDB's log reader does the same):

* A *torn tail* is what a crash leaves of an append that was under way: bad bytes at the end, after the mark, with nothing whole
  behind them. Damage to the last records behind the mark looks the same, so what is cut may have been acknowledged. Recovery
  cuts it; its bytes are kept in quarantine.
* Anything else is *corrupt*: damage to something acknowledged. It is refused and left alone.

Invariants, which the tests name:

R1  A record that verifies and completes an append is never cut.
R2  Nothing at or before the mark is ever cut.
R3  Reading what recovery left gives the same records and no damage.
R4  The work is linear in the bytes, and memory holds a piece of them, whatever they hold.

:func:`parts` finds the records, :func:`judge` says what stands where a walk stopped. ``load``, ``verify``, ``list``,
``show`` and ``repair`` all ask them, so they agree. Nothing here does I/O: a :data:`Read` is given.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import orjson

from transcript_store._log.record import (
    FORMAT,
    GENESIS,
    HASH_MEMBER,
    LONGEST_METADATA_BYTES,
    SUFFIX_BYTES,
    Batch,
    Position,
    body_batch,
    chain_hash,
)
from transcript_store._log.scan import PIECE_BYTES, Piece, Read, Walk, continues, pieces_of
from transcript_store.words import many

Kind = Literal[
    "torn-tail",
    "hole",
    "damaged-line",
    "damaged-header",
    "truncated",
    "rewritten",
    "missing",
    "foreign",
    "wrong-conversation",
    "wrong-generation",
    "replaced",
]
"""What can be wrong with a transcript; docs/format.md describes each and the way out."""

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
_SAMPLE_BYTES = 1 << 20
_LINES_BYTES = 16 * 2**20
"""More than that is nothing that a person appended by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """The first place where a transcript is not whole."""

    kind: Kind
    reason: str
    offset_bytes: int
    """Where the first line that is not whole begins."""
    line_number: int
    """That line's number, from 1."""
    cut_at_bytes: int = 0
    """For a torn tail: where recovery cuts."""
    line_feed_missing: bool = False
    """For a torn tail: whether what stands before the cut is a whole record that only lacks its LF."""


class Whole(NamedTuple):
    """What is known of a record that verifies, wherever it stands."""

    seq: int
    batch: Batch
    head: bytes
    previous: bytes
    """The hash that it is chained to."""


class Stretch(NamedTuple):
    """Bytes of a file from ``start`` to ``end``, its LF not counted: a record that verifies, or something else."""

    start: int
    end: int
    whole: Whole | None


class Part(NamedTuple):
    """A line of a file, or the part of it up to where a record ends: its stretches in order, without blank ones."""

    line_number: int
    stretches: list[Stretch]

    @property
    def start(self) -> int:
        return self.stretches[0].start

    @property
    def end(self) -> int:
        return self.stretches[-1].end


# ---- which records are whole ---------------------------------------------------------------------------------------------


def parts(read: Read, size: int, begin: Position | None = None) -> Iterator[Part]:
    """Take a file apart, from ``begin`` or from behind its header on: what is a record, and what is not.

    A record is looked for where a line begins (space around it, that an editor put there, does not count), right behind a
    record, and where on a line that is not one record something begins like one. It is whole if its hash verifies against
    the hash at the end of the line before it, against that line's hash recomputed (the hash may be what was damaged), or
    against the last record that was whole. A whole record that stands there twice is given once.
    """
    if begin is not None:
        reader = _Reader(read, [begin.head], begin.offset_bytes, begin.seq + 2)
    else:
        offset, before = _behind_header(read, size)
        reader = _Reader(read, before, offset, 1)
    return reader.parts(size)


def is_ours(read: Read, size: int) -> bool:
    """Whether a file was a transcript once: it begins with a header, edited or damaged, or holds a record that verifies."""
    if _HEADER.match(read(0, min(size, 4096))):
        return True
    return any(stretch.whole for part in parts(read, size) for stretch in part.stretches)


def count_whole(read: Read, size: int) -> int:
    """How many records of a file verify, wherever they stand: what a repair with ``salvage`` keeps."""
    return sum(stretch.whole is not None for part in parts(read, size) for stretch in part.stretches)


def _behind_header(read: Read, size: int) -> tuple[int, list[bytes]]:
    """Where the header ends, edited or damaged, and what its hash is: as it stands there, and as it ought to be."""
    line = bytes(first_line(read, size))
    match = _HEADER.match(line)
    if match is None:
        return 0, [GENESIS]
    end = line.find(b"\n")
    line = line[: end if end >= 0 else None]
    record = next((token for token in _TOKEN.finditer(line) if token[1]), None)
    content = line.rstrip(b" \t\r")
    if record is not None and content[-34:-2] != chain_hash(GENESIS, content[:-SUFFIX_BYTES]):
        line = content = line[: record.start()]  # a record is glued to it
    if len(content) <= SUFFIX_BYTES:
        return len(line), [GENESIS]
    return len(line), [content[-34:-2], chain_hash(GENESIS, content[:-SUFFIX_BYTES])]


def first_line(read: Read, size: int, length: int = 16 * 1024) -> bytearray:
    """The beginning of a file, up to its first line feed at least; of a line that no header can be, only a beginning."""
    while True:
        start = read(0, min(length, size))
        if b"\n" in start or len(start) < length or length >= LONGEST_METADATA_BYTES:
            return start
        length *= 4


class _Candidate:
    """Bytes that may be a record: where they begin, and their hash so far, chained to each hash that may come before."""

    __slots__ = ("_before", "_hashed", "_hashers", "_read", "seq", "start")

    def __init__(self, read: Read, start: int, seq: int, before: list[bytes]) -> None:
        self.start = start
        self.seq = seq
        self._read = read
        self._before = before
        self._hashed = start
        self._hashers: list[tuple[bytes, Any]] = []

    def chained_to(self, stated: bytes, end: int, window: bytearray, base: int) -> bytes | None:
        """The hash before, if with it the bytes up to ``end`` have this one. ``window`` stands at ``base`` in the file."""
        if not self._hashers:  # only now: of what is begun like a record, hostile bytes may hold any number
            self._hashers = [(head, sha256(head)) for head in dict.fromkeys(self._before)]
        # Each byte is hashed once, however many ends are tried: R4.
        start, self._hashed = self._hashed, end
        content = [window[start - base : end - base]] if start >= base else pieces_of(self._read, start, end)
        for piece in content:
            for _, hasher in self._hashers:
                hasher.update(piece)
        for previous, hasher in self._hashers:
            if hasher.hexdigest()[:32].encode() == stated:
                return previous
        return None


class _Reader:
    """Reads a file once, a piece at a time.

    Two candidates are followed on a line: ``_outer``, which begins where the line does or where something first begins
    like a record, and ``_inner``, the latest such place behind it. So a record that holds another one (a transcript that a
    tool has read) is found whole, and one behind garbage too, while each byte is hashed a few times at most.
    """

    def __init__(self, read: Read, before: list[bytes], offset: int, line_number: int) -> None:
        self._read = read
        self._offset = offset
        self._line_number = line_number
        self._before = before
        """The hash of the line before: as it stands there, and as recomputed."""
        self._last_whole = before[0]
        self._seen: dict[bytes, tuple[int, int]] = {}
        """Where the whole record with this hash stands."""
        self._begin_part()

    def _begin_part(self) -> None:
        self._start: int | None = None  # where its first byte that is not blank stands
        self._end = 0  # and where the last one ends
        self._outer: _Candidate | None = None
        self._inner: _Candidate | None = None
        self._cuts: list[int] = []
        self._found: list[Stretch] = []

    def parts(self, size: int) -> Iterator[Part]:
        """All parts, in order."""
        window, base, done = bytearray(), self._offset, self._offset
        while True:
            more = self._read(base + len(window), min(PIECE_BYTES, size - base - len(window)))
            window += more
            is_last = not more or base + len(window) >= size
            limit = base + len(window) - (0 if is_last else _LONGEST_TOKEN)
            for token in _TOKEN.finditer(window, done - base):
                start, end = base + token.start(), base + token.end()
                if start >= limit:
                    break
                self._feed(window, base, done, start)
                yield from self._take(window, base, token)
                done = end
            if done < limit:
                self._feed(window, base, done, limit)
                done = limit
            if is_last:
                yield from self._end_part()
                return
            keep = max(0, done - base - _BEHIND)
            del window[:keep]
            base += keep

    def _feed(self, window: bytearray, base: int, start: int, end: int) -> None:
        """Let bytes between two tokens go by."""
        between = window[start - base : end - base]
        if (first := _NOT_BLANK.search(between)) is not None:
            if self._start is None:
                self._start = start + first.start()
            self._end = start + len(between.rstrip(_BLANK))

    def _take(self, window: bytearray, base: int, token: re.Match[bytes]) -> Iterator[Part]:
        start, end = base + token.start(), base + token.end()
        if token[1] is None and token[2] is None:
            yield from self._end_part()
            self._begin_part()
            self._line_number += end - start
            return
        if token[1] is not None:
            if window[max(0, token.start() - 2) : token.start()] == b'"}' and self._start is not None:
                yield from self._end_part()  # two records are glued together: they count as two lines
                self._begin_part()
            self._begin_candidate(start, int(token[1]))
        elif (ended := self._end_candidate(window, base, token)) is not None:
            yield from ended
            self._begin_part()
            return
        if self._start is None:
            self._start = start
        self._end = end

    def _begin_candidate(self, start: int, seq: int) -> None:
        candidate = _Candidate(self._read, start, seq, [*self._before, self._last_whole])
        if self._outer is None:
            self._outer = candidate
        else:
            self._inner = candidate
        if self._start is not None:
            self._cuts.append(start)

    def _end_candidate(self, window: bytearray, base: int, token: re.Match[bytes]) -> list[Part] | None:
        """What is known now that something ends like a record: the part that ends with it, if it is one, or none."""
        start, end, stated = base + token.start(), base + token.end(), bytes(token[2])
        for candidate in (self._outer, self._inner):
            if candidate is None or (previous := candidate.chained_to(stated, start, window, base)) is None:
                continue
            # body_batch() looks at the last bytes alone, and a window keeps more of them than that.
            batch = body_batch(window, max(0, token.start() - _BEHIND), token.start())
            found = Stretch(candidate.start, end, Whole(candidate.seq, batch, stated, previous))
            if candidate is self._inner:
                self._last_whole = stated
                self._found.append(found)
                self._inner = None
                self._cuts.append(end)
                return None
            self._before = [stated]
            stretches = [] if self._start is None else self._once(Stretch(self._start, found.start, None))
            if fresh := self._once(found):
                self._last_whole = stated
            stretches += fresh
            return [Part(self._line_number, stretches)] if stretches else []
        return None

    def _end_part(self) -> Iterator[Part]:
        """What is known of a part when it ends, and no record in it began with it."""
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
            hasher = sha256(self._before[0])
            for piece in pieces_of(self._read, start, end - SUFFIX_BYTES):
                hasher.update(piece)
            self._before = [stated, hasher.hexdigest()[:32].encode()]
        if stretches := self._stretches(start, end):
            yield Part(self._line_number, stretches)

    def _stretches(self, start: int, end: int) -> list[Stretch]:
        found = {stretch.start: stretch for stretch in self._found}
        bounds = sorted({start, *self._cuts, *(stretch.start for stretch in self._found), end})
        stretches: list[Stretch] = []
        inside = start
        for a, b in pairwise(bounds):
            if a < inside:
                continue
            stretch = found.get(a) or Stretch(a, b, None)
            inside = stretch.end
            stretches += self._once(stretch)
        return stretches

    def _once(self, stretch: Stretch) -> list[Stretch]:
        """A stretch, if there is anything in it and it is not the copy of a whole record."""
        start, end, whole = stretch
        head = self._stated_at(start, end) if whole is None else whole.head
        if start == end or self._is_there_already(head, start, end):
            return []
        if whole is not None:
            self._seen[head] = (start, end)
        return [stretch]

    def _stated_at(self, start: int, end: int) -> bytes:
        """What stands where a record has its hash."""
        return bytes(self._read(end - 34, 32)) if end - start > SUFFIX_BYTES else b""

    def _is_there_already(self, head: bytes, start: int, end: int) -> bool:
        """Whether these bytes are those of the record that has this hash."""
        if head not in self._seen or self._seen[head][1] - self._seen[head][0] != end - start:
            return False
        first = self._seen[head][0]
        return all(
            self._read(first + at, min(PIECE_BYTES, end - start - at))
            == self._read(start + at, min(PIECE_BYTES, end - start - at))
            for at in range(0, end - start, PIECE_BYTES)
        )


# ---- what is wrong -------------------------------------------------------------------------------------------------------


def check(read: Read, size: int, begin: Position, mark: Position) -> tuple[Damage | None, Position]:
    """Verify a whole file from behind its header; returns what is wrong, and where the last complete append ends before that.

    ``mark`` is where it was last known to be synced, ``begin`` if that is not known.
    """
    walk = Walk(read, begin, size)
    at_the_mark = begin
    for piece in walk:
        if at_the_mark.offset_bytes < mark.offset_bytes:
            at_the_mark = _boundary(piece, mark.offset_bytes)
    damage = judge(read, size, walk, mark)
    if at_the_mark != mark and (damage is None or damage.offset_bytes >= mark.offset_bytes):
        damage = rewritten(mark, at_the_mark)
    return damage, walk.end


def _boundary(piece: Piece, offset: int) -> Position:
    """The first place in a piece, at or after an offset, where a record begins or the piece ends."""
    index = bisect_left(piece.starts, offset - piece.begin.offset_bytes)
    if index == len(piece.starts):
        return piece.end
    start = piece.starts[index]
    if index == 0:
        return piece.begin
    return Position(
        piece.begin.seq + index, piece.begin.offset_bytes + start, bytes(piece.data[start - 35 : start - 3])
    )


def judge(read: Read, size: int, walk: Walk, mark: Position) -> Damage | None:
    """What stands where a walk through a whole file stopped; None if nothing does, and the mark was reached.

    ``mark`` is where the transcript was last known to be synced.
    """
    complete, stopped = walk.end, walk.stopped
    offset, line_number = stopped.offset_bytes, stopped.seq + 2
    if complete.offset_bytes >= size:
        if max(mark.offset_bytes, complete.offset_bytes) <= size:
            return None
        return Damage(
            kind="truncated",
            reason=f"the transcript ends here, but {many(mark.seq, 'record')} and {many(mark.offset_bytes, 'byte')} of it were synced",
            offset_bytes=complete.offset_bytes,
            line_number=complete.seq + 2,
        )
    line_end = _find_line_feed(read, offset, size)
    reason = describe_at(read, offset, size if line_end is None else line_end)
    if offset == size:
        reason = "the file ends in the middle of a batch"
    if complete.offset_bytes < mark.offset_bytes:
        # R2. Everything up to the mark was synced, so no crash explains this.
        kind: Kind = "truncated" if size < mark.offset_bytes and line_end is None else "damaged-line"
        if line_end is None and _is_whole_but_for_its_line_feed(read, stopped, size):
            reason = (
                "the last line feed is gone, and the record before it is whole: an editor trimmed the file; put it back"
            )
        return Damage(kind=kind, reason=reason, offset_bytes=offset, line_number=line_number)
    found = _torn_or_hole(read, size, walk, reason, line_end)
    if found.kind == "torn-tail" and _is_foreign(read, offset, size):
        what = "lines of JSON, and no records of ours: another program or a person appended them"
        return Damage(kind="foreign", reason=what, offset_bytes=offset, line_number=line_number)
    return found


def _torn_or_hole(read: Read, size: int, walk: Walk, reason: str, line_end: int | None) -> Damage:
    """Behind the mark: bad bytes are a torn tail, unless a whole record that a crash cannot explain stands behind them."""
    complete, stopped = walk.end, walk.stopped
    offset, line_number = stopped.offset_bytes, stopped.seq + 2
    kept: Stretch | None = None
    chained, chained_batch = stopped, walk.batch
    for part in parts(read, size, stopped):
        for start, end, whole in part.stretches:
            if whole is None:
                continue
            if whole.previous == chained.head:
                # R1. Written whole, right behind the last good record; wherever it stands now.
                if whole.seq != chained.seq + 1 or not continues(chained_batch, whole.batch):
                    what = "a record is out of its order"
                elif whole.batch.k < whole.batch.n:
                    chained, chained_batch = Position(whole.seq, end, whole.head), whole.batch
                    continue
                elif start == offset and (size if line_end is None else line_end) - end <= 1:
                    kept = Stretch(start, end, whole)
                    continue
                else:
                    what = "a stored record has other bytes before it or behind it"
                return Damage(kind="hole", reason=f"{what}: {reason}", offset_bytes=offset, line_number=line_number)
            if whole.seq <= stopped.seq or whole.seq - whole.batch.k == complete.seq:
                continue  # a stale block, or more of the batch that was being written
            return Damage(
                kind="hole",
                reason=f"bad bytes with a whole record behind them (seq {whole.seq}, byte {start}): {reason}",
                offset_bytes=offset,
                line_number=line_number,
            )
    if kept is not None:
        reason = "the last record is whole but for its line feed"
    elif line_end is not None and read(offset, 7) == b'{"seq":':
        # Nothing tells a write that was cut off from a record that was damaged later: the mark is not so far yet.
        reason = f"{reason}; the line has its end, so it may have been acknowledged"
    return Damage(
        kind="torn-tail",
        reason=reason,
        offset_bytes=offset,
        line_number=line_number,
        cut_at_bytes=complete.offset_bytes if kept is None else kept.end,
        line_feed_missing=kept is not None,
    )


def rewritten(mark: Position, found: Position) -> Damage:
    """Every line verifies, but the transcript does not lead through the mark; ``found`` is the first boundary at or after it."""
    seq, offset, head = mark
    return Damage(
        kind="rewritten",
        reason=f"every line verifies, but not as what was synced: the mark remembers seq {seq} at byte {offset} with head {head.decode()}",
        offset_bytes=found.offset_bytes,
        line_number=found.seq + 2,
    )


def _find_line_feed(read: Read, offset: int, size: int) -> int | None:
    while offset < size and (piece := read(offset, min(PIECE_BYTES, size - offset))):
        found = piece.find(b"\n")
        if found >= 0:
            return offset + found
        offset += len(piece)
    return None


def _is_whole_but_for_its_line_feed(read: Read, before: Position, size: int) -> bool:
    """Whether the rest of the file is one record."""
    stretches = [stretch for part in parts(read, size, before) for stretch in part.stretches]
    return [(stretch.end, stretch.whole is not None) for stretch in stretches] == [(size, True)] and (
        stretches[0].whole is not None and stretches[0].whole.previous == before.head
    )


def _is_foreign(read: Read, start: int, size: int) -> bool:
    """Whether what stands behind the last record is whole lines of JSON that do not begin as ours do.

    No crash leaves that: it leaves a part of what was written, an earlier line of ours, or a block that ends anywhere.
    """
    if size - start > _LINES_BYTES or read(start, 1) != b"{":
        return False
    *lines, rest = bytes(read(start, size - start)).split(b"\n")
    if not lines or rest or any(line.startswith((b'{"seq":', FORMAT)) for line in lines):
        return False
    try:
        return all(type(orjson.loads(line)) is dict for line in lines)
    except orjson.JSONDecodeError:
        return False


def describe_at(read: Read, start: int, end: int) -> str:
    """:func:`describe` for a line of a file; of one that is very long only a beginning is looked at."""
    if end - start <= _SAMPLE_BYTES:
        return describe(bytes(read(start, end - start)))
    sample = bytes(read(start, _SAMPLE_BYTES))
    if b"\0" in sample:
        return f"it has {end - start:,} bytes, NUL bytes among them: a power cut or a failing disk leaves such runs"
    return f"it has {end - start:,} bytes, and does not verify"


def describe(line: bytes) -> str:
    """A sentence on what a bad line looks like; no byte of it is repeated."""
    if not line:
        return "an empty line"
    if line.startswith(b"\xef\xbb\xbf"):
        return "it begins with a byte order mark: an editor wrote this file"
    if b"\0" in line:
        return f"it holds {many(line.count(0), 'NUL byte')}: a power cut or a failing disk leaves such runs"
    if line.endswith(b'"}\r'):
        return "it ends in CR LF: an editor changed the line ends"
    if line.count(b'{"seq":') > 1 and HASH_MEMBER in line[:-SUFFIX_BYTES]:
        return "two records are glued together on one line"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"it is not UTF-8 at its byte {error.start}"
    if line[-SUFFIX_BYTES:][: len(HASH_MEMBER)] != HASH_MEMBER:
        return "it does not end in a hash: it was cut, or something else wrote it"
    return "its hash does not match: it was changed, or a line before it is missing or foreign"
