"""Which messages are retracted? One value, :class:`TakenBack`, and its form in a copy with new numbers.

A *retraction* is a record that names records before it, from a first number to a last one (``record.retracts_of`` says
which form counts). Each message among those is retracted: readers of messages skip it, readers of records still see it.
A record without a message cannot be retracted, nor can a retraction.

T1  The retracted records are a function of the bytes up to a record. Nothing but an append changes it.
T2  A retraction names records before it only. So a reader from the end meets it before the records that it names.
T3  No copy retracts a message that its original did not.

Nothing here does I/O.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from transcript_store._log.record import Copied, may_retract, retracts_of, with_retracts


class TakenBack:
    """The numbers that retractions name, as ranges that do not touch. It only grows: no record undoes a retraction."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, other: TakenBack | None = None) -> None:
        self._firsts: list[int] = [] if other is None else other._firsts[:]
        self._lasts: list[int] = [] if other is None else other._lasts[:]

    def add(self, first: int, last: int) -> None:
        """Retract the records from one number to another."""
        begin = bisect_left(self._lasts, first - 1)
        end = bisect_right(self._firsts, last + 1)
        if begin < end:  # these ranges touch the new one
            first, last = min(first, self._firsts[begin]), max(last, self._lasts[end - 1])
        self._firsts[begin:end], self._lasts[begin:end] = [first], [last]

    def add_all(self, other: TakenBack) -> None:
        """Retract what another value retracts."""
        if not self._firsts:  # an agent that retracts again and again has a range for each time
            self._firsts, self._lasts = other._firsts[:], other._lasts[:]
            return
        for first, last in zip(other._firsts, other._lasts, strict=True):
            self.add(first, last)

    def read(self, lines: bytes | bytearray, before: int, through: int | None = None) -> None:
        """Retract what the retractions among whole lines name; ``before`` records precede the lines.

        Records with a number greater than ``through`` are skipped.
        """
        if may_retract(lines):
            whole: Sequence[bytes | bytearray] = lines.split(b"\n")[:-1]
            for seq, line in enumerate(whole, before + 1):
                if (named := retracts_of(seq, line, line.index(b","))) and (through is None or seq <= through):
                    self.add(*named)

    def leave_out(self, records: list[Any], before: int) -> None:
        """Remove the retracted ones from a list of records; ``before`` records precede its first one."""
        begin = bisect_left(self._lasts, before + 1)
        end = bisect_right(self._firsts, before + len(records))
        for number in reversed(range(begin, end)):
            del records[max(0, self._firsts[number] - before - 1) : self._lasts[number] - before]

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __contains__(self, seq: int) -> bool:
        return self.meets(seq, seq)

    def meets(self, first: int, last: int) -> bool:
        """True if one of these numbers is retracted."""
        at = bisect_left(self._lasts, first)
        return at < len(self._firsts) and self._firsts[at] <= last

    def covers(self, first: int, last: int) -> bool:
        """True if all numbers from one to another are retracted."""
        at = bisect_left(self._lasts, first)
        return at < len(self._firsts) and self._firsts[at] <= first and last <= self._lasts[at]


class Renumbering:
    """Renumbers copies of records in order, so that a retraction names the same records by their new numbers.

    A copied retraction names those of its records that were copied, perhaps none. A record that is out of order (a
    person put it there) may come between two that were named together. So no retraction after such a record names one
    before it: a message may become live again, but none is retracted that was not.
    """

    def __init__(self) -> None:
        self._old, self._new = array("Q"), array("Q")

    def members_of(self, copy: Copied, seq: int) -> bytes:
        """The bytes after the number of the copied record, whose number is now ``seq``."""
        members, old = copy
        if old is None:
            return members  # a note of a repair: no record names it, and it has no message
        named = retracts_of(old, members)
        if old > (self._old[-1] if self._old else 0):
            self._old.append(old)
            self._new.append(seq)
        else:
            del self._old[:], self._new[:]
        if not named:
            # A member that named nothing there, because of its form or its position, must not name something here.
            return with_retracts(members, ())
        begin, end = bisect_left(self._old, named[0]), bisect_right(self._old, named[1])
        return with_retracts(members, (self._new[begin], self._new[end - 1]) if begin < end else ())
