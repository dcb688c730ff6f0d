"""The lines of a source, to be asked for again in any order: a tree is walked from its last leaf, and told from its root."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from transcript_store.formats._lines import Line, Lines, object_on
from transcript_store.formats._original import pack
from transcript_store.formats._plan import Entry, Finding, Source

_IN_MEMORY_BYTES = 16 << 20
"""The bytes of a source up to this size are held. Of a larger one only the places of its lines are, and each is read again.

What a line says is decoded anew each time: that takes less time than to hold it, for Python's collector looks through all that is held.
"""
_WITH_VALUES_BYTES = 256 << 10
"""Of a source up to this size what its lines say is held too: the collector has little to look through, and most sessions are small."""


class KeptLines:
    """All pieces of all lines, by their place from 0. Nothing is known before :meth:`read` was gone through."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lines = Lines(source)
        self._whole: list[Line] | None = [] if source.size <= _WITH_VALUES_BYTES else None
        self._held: list[bytes] | None = [] if source.size <= _IN_MEMORY_BYTES else None
        self._places = array("q")  # number, part, offset, length of each: four of them take less than one object

    def read(self) -> Iterator[Line]:
        """Every piece, in order. Once only."""
        for line in self._lines:
            if self._whole is not None:
                self._whole.append(line)
            else:
                self._places.extend((line.number, line.part, line.offset, len(line.raw)))
                if self._held is not None:
                    self._held.append(line.raw)
            yield line

    def __len__(self) -> int:
        return len(self._places) // 4 if self._whole is None else len(self._whole)

    def __getitem__(self, place: int) -> Line:
        if self._whole is not None:
            return self._whole[place]
        number, part, offset, length = self._places[4 * place : 4 * place + 4]
        raw = self._source.read(offset, length) if self._held is None else self._held[place]
        if raw.isspace():
            return Line(number, offset, raw, None, part, raw.count(b"\n"))
        return Line(number, offset, raw, object_on(raw), part)

    def number(self, place: int) -> int:
        """Of its line, from 1."""
        return self._places[4 * place] if self._whole is None else self._whole[place].number

    def offset(self, place: int) -> int:
        """Of its first byte."""
        return self._places[4 * place + 2] if self._whole is None else self._whole[place].offset

    @property
    def count(self) -> int:
        """How many lines there are."""
        return self._lines.count

    @property
    def tail(self) -> bytes:
        """What stands behind the last whole line."""
        return self._lines.tail

    @property
    def findings(self) -> list[Finding]:
        """What is wrong with the lines themselves."""
        return self._lines.findings

    def finding(self, kind: str, message: str, place: int) -> Finding:
        return Finding(kind, message, self.number(place), self.offset(place))

    def event(self, place: int) -> Iterator[Entry]:
        """A line that no model is sent. Nothing if nothing of it was kept: then a finding says so."""
        line = self[place]
        if not line.raw:
            return
        at = line.value.get("timestamp") if line.value is not None else None
        packed = pack(line.number, line.raw, line.value, part=line.part)
        yield Entry(None, {"source": {"lines": [packed]}}, at if isinstance(at, str) else None, line.numbers)
