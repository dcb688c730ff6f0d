"""Which messages and records do the lines of a log hold, and which messages are live?

Every line that comes from :class:`VerifiedLines` is verified. If it still cannot be decoded, another program that knows
the format wrote it; the error says ``foreign``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from transcript_store._json.strict import JSONDecodeError, decode
from transcript_store._log.lines import (
    CachedLines,
    FromTheEnd,
    LineRun,
    Place,
    Tail,
    VerifiedLines,
    gathered,
    newest_lines_first,
    numbered,
)
from transcript_store._log.record import (
    Copied,
    Entry,
    Position,
    Record,
    Retracts,
    as_record,
    copied,
    copies,
    may_retract,
    record_head,
    retracts_of,
    with_contents,
)
from transcript_store._log.retractions import TakenBack
from transcript_store._os.directory import Folder
from transcript_store.errors import CorruptTranscriptError
from transcript_store.hints import Hint

NOTHING = TakenBack()
"""Where nothing can be retracted; it is never changed."""


class Messages(VerifiedLines):
    """A transcript whose lines are decoded when their contents are needed."""

    def __init__(self, folder: Folder, name: str, cache_bytes: int) -> None:
        super().__init__(folder, name, cache_bytes)
        self._known_taken_back = (0, TakenBack())
        """The retractions of the records up to this number."""
        self._passed_over: Tail | None = None

    # ---- messages ------------------------------------------------------------------------------------------------

    def messages(self, last: int | None = None, before_seq: int | None = None) -> list[dict[str, Any]]:
        """The messages in order, or the ``last`` so many, of all records or of those before one; fresh copies."""
        found: list[dict[str, Any]] = []
        if before_seq is not None:
            taken_back = self.taken_back()
            for seq, line in self._newest_before(before_seq):
                if last is not None and len(found) >= last:
                    break
                if seq not in taken_back:
                    self._decode((self.opened(seq, line),), found)
            return found[::-1]
        if last is None:
            taken_back = self.taken_back() if self.header.can_retract else NOTHING
            for stretch in gathered(self.blocks()):
                found += self._messages_of(stretch, taken_back)
            return found
        taken_back = TakenBack() if self._passed_over is None else TakenBack(self._passed_over.taken_back)
        from_the_end, at_least = FromTheEnd(self.newest_blocks_first(self._passed_over)), 1
        while (missing := last - len(found)) > 0 and (some := from_the_end.take(max(missing, at_least))):
            found[:0] = self._messages_of(some, taken_back)
            at_least *= 2  # several rounds if some carry no message; there may be many of those
        return found[max(0, len(found) - last) :]

    def _messages_of(self, stretch: LineRun, taken_back: TakenBack) -> list[dict[str, Any]]:
        """The live messages of a range. What its own records retract before it is added to ``taken_back``."""
        after_seq, parts, through_seq = stretch
        if (
            self.header.can_retract
            and taken_back.covers(after_seq + 1, through_seq)
            and not any(map(may_retract, parts))
        ):
            return []
        if (together := self._messages_together(stretch, taken_back)) is not None:
            return together
        found: list[dict[str, Any]] = []
        each = stretch.numbered()
        if self.header.can_retract:
            for seq, line in each:
                if may_retract(line) and (named := self._retracts_in(seq, line)):
                    taken_back.add(*named)
        self._decode((self.opened(seq, line) for seq, line in each if seq not in taken_back), found)
        return found

    def _messages_together(self, stretch: LineRun, taken_back: TakenBack) -> list[dict[str, Any]] | None:
        """The same for lines that are decoded together, as one array: every reader waits for this.

        It takes two thirds of the time of one line after the other. None if a line is unusual: then each line is
        decoded by itself, which also shows what is wrong with it. (An attacker who can forge lines that verify, and are
        records only together, can also forge a record.)
        """
        after_seq, parts, through_seq = stretch
        sealer = self.sealer_to_write() if self.header.is_sealed else None
        if sealer is None:
            array = bytearray().join((b"[", *parts)).replace(b"\n", b",")
            array[-1:] = b"]"
        else:
            opened = sealer.all_opened(stretch.lines(), after_seq + 1)
            if opened is None:
                return None
            array = bytearray(b"[%b]" % b",".join(opened))
        try:
            records = decode(array)
            # A line that ends within an array and one that begins there would be one record together.
            if len(records) != through_seq - after_seq:
                return None
            if (sealer is not None or self.header.can_retract) and any("retracts" in record for record in records):
                if sealer is not None:
                    return None  # which must be in plaintext, too
                for record, (seq, line) in zip(records, stretch.numbered(), strict=True):
                    if "retracts" in record and (named := self._retracts_in(seq, line)):
                        taken_back.add(*named)
            if self.header.can_retract:
                taken_back.leave_out(records, after_seq)
            messages = [message for record in records if (message := record.get("message")) is not None]
        except (JSONDecodeError, AttributeError, TypeError):
            return None
        return messages if {*map(type, messages)} <= {dict} else None

    def _decode(self, lines: Iterable[bytes | bytearray], found: list[dict[str, Any]]) -> None:
        append = found.append
        line: bytes | bytearray = b""
        try:
            for line in lines:
                message = decode(line).get("message")
                if type(message) is dict:
                    append(message)
                elif message is not None:
                    raise self._not_a_record(line)
        except JSONDecodeError:
            raise self._not_a_record(line) from None

    # ---- which messages count ---------------------------------------------------------------------------------------

    def last_messages(self, count: int) -> tuple[list[int], list[bytes | bytearray], Tail]:
        """The numbers of the last live messages, the newest first, and fewer if there are not enough; their lines; and
        what starts with the first of them.
        """
        found: list[int] = []
        lines: list[bytes | bytearray] = []
        begin, place, taken_back = self.end[:2], self.end, TakenBack()
        for seq, line, line_begin, block_end in self._in_force_newest_first(taken_back):
            if self._has_message(line):
                found.append(seq)
                lines.append(line)
                begin, place = line_begin, block_end
                if len(found) == count:
                    break
        return found, lines, Tail(begin, place, self.end.seq, taken_back)

    def messages_in(self, lines: Iterable[bytes | bytearray]) -> list[dict[str, Any]]:
        """The messages of lines that can be decoded."""
        found: list[dict[str, Any]] = []
        self._decode(lines, found)
        return found

    def pass_over(self, tail: Tail) -> None:
        """Note that no message of a tail is live, so that a caller that retracts again and again need not read it
        again.
        """
        self._passed_over = tail

    def _has_message(self, line: bytes | bytearray) -> bool:
        if b'"message":' not in line:
            return False
        head = record_head(line)
        return (head is not None and head.has_message) or self._record_of(0, line).message is not None

    def _in_force_newest_first(self, taken_back: TakenBack) -> Iterator[tuple[int, bytes | bytearray, Place, Position]]:
        """The records that are not retracted, from the end: number, line, where it starts, and the end of its block.

        A retraction follows the records that it names, so it is met before them: ``taken_back`` grows on the way.
        """
        can_retract, passed_over, is_plain = self.header.can_retract, self._passed_over, self.sealer_to_write() is None
        if passed_over is not None:
            taken_back.add_all(passed_over.taken_back)
        for block in self.newest_blocks_first(passed_over):
            is_covered = taken_back.covers(block.begin.seq + 1, block.end.seq)
            if is_covered and not (can_retract and may_retract(block.lines)):
                continue
            before = None
            if (
                passed_over is not None
                and block.begin.seq <= passed_over.begin[0] < block.end.seq <= passed_over.through_seq
            ):
                before = passed_over.begin
            for seq, line, begin in newest_lines_first(block, before):
                if can_retract and may_retract(line) and (named := self._retracts_in(seq, line)):
                    taken_back.add(*named)
                if not taken_back or seq not in taken_back:
                    yield seq, line if is_plain else self.opened(seq, line), begin, block.end

    def _retracts_in(self, seq: int, line: bytes | bytearray) -> Retracts | None:
        """The retraction of a record. A sealed record that can be unsealed must have the same one inside."""
        named = retracts_of(seq, line, line.index(b","))
        if named is not None and self.sealer is not None:
            self.opened(seq, line)  # raises if another program wrote it
        return named

    def taken_back(self, after_seq: int = 0, through_seq: int | None = None) -> TakenBack:
        """The retractions of the records after one number, up to another; later appends do not change them."""
        if not self.header.can_retract:
            return TakenBack()
        through = self.end.seq if through_seq is None else min(through_seq, self.end.seq)
        known_to, known = self._known_taken_back
        if known_to > through:
            known_to, known = 0, TakenBack()
        found, floor = TakenBack(known), max(known_to, after_seq)
        for block in self.newest_blocks_first():
            if block.end.seq <= floor:
                break
            if self.sealer is None:
                found.read(block.lines, block.begin.seq, through)
            elif may_retract(block.lines):
                for seq, line in numbered(block):
                    if seq <= through and (named := self._retracts_in(seq, line)):
                        found.add(*named)
        if floor == known_to and through == self.end.seq:
            self._known_taken_back = through, TakenBack(found)
        return found

    # ---- records ----------------------------------------------------------------------------------------------------

    def records(self, last: int | None = None, before_seq: int | None = None) -> list[Record]:
        """The records in order, or the ``last`` so many, of all or of those before one; fresh copies."""
        if before_seq is not None:
            known = self.taken_back()
            return [self._record_in(*each, known) for each in islice(self._newest_before(before_seq), last)][::-1]
        if last is None:
            return list(self.each_record())
        taken_back, found = TakenBack(), []
        for seq, line in islice(self._newest_first(), last):
            record = self._record_in(seq, line, taken_back)
            if record.retracts:
                taken_back.add(*record.retracts)  # it follows what it retracts, and is met before it
            found.append(record)
        return found[::-1]

    def each_record(self) -> Iterator[Record]:
        """The records in order, each decoded on iteration. The log must not change during the iteration."""
        taken_back = self.taken_back()
        return (self._record_in(seq, line, taken_back) for block in self.blocks() for seq, line in numbered(block))

    def _record_in(self, seq: int, line: bytes | bytearray, taken_back: TakenBack | None = None) -> Record:
        return self._record_of(seq, self.opened(seq, line), taken_back)

    def _record_of(self, seq: int, line: bytes | bytearray, taken_back: TakenBack | None = None) -> Record:
        named = retracts_of(seq, line, line.index(b",")) if self.header.can_retract else None
        try:
            record = as_record(decode(line), named, is_retracted=taken_back is not None and seq in taken_back)
        except JSONDecodeError:
            record = None
        if record is None:
            raise self._not_a_record(line)
        return record

    def records_in(self, block: CachedLines, after_seq: int, through_seq: int, taken_back: TakenBack) -> list[Record]:
        """The records of a block whose numbers are greater than the first number, and at most the second."""
        lines = numbered(block)[max(0, after_seq - block.begin.seq) : through_seq - block.begin.seq]
        return [self._record_in(seq, line, taken_back) for seq, line in lines]

    def _newest_first(self) -> Iterator[tuple[int, bytes | bytearray]]:
        return ((seq, line) for block in self.newest_blocks_first() for seq, line, _ in newest_lines_first(block))

    def _newest_before(self, before_seq: int) -> Iterator[tuple[int, bytes | bytearray]]:
        """The lines of the records before the one with this number, the newest first."""
        for block in self.blocks_before(before_seq):
            for seq, line, _ in newest_lines_first(block):
                if seq < before_seq:
                    yield seq, line

    def copies(self, count: int) -> Iterator[Copied]:
        """The first so many records, for another transcript."""
        if self.header.is_sealed:
            opened = (self.opened(seq, line) for block in self.blocks() for seq, line in numbered(block))
            found = islice((copied(line[:-1]) for line in opened), count)
        else:
            found = islice((copy for block in self.blocks() for copy in copies(block.lines)), count)
        # In a generation without `retract` no record names others, whatever it says, nor does its copy.
        return found if self.header.can_retract else (copy._replace(seq=0) for copy in found)

    def copies_of(self, seqs: Container[int], changed: Mapping[int, Entry]) -> Iterator[Copied]:
        """The records with these numbers, in their order, for another transcript; those in ``changed`` with new contents."""
        for seq, copy in enumerate(self.copies(self.end.seq), 1):
            if seq in seqs:
                yield with_contents(copy, *changed[seq][:2]) if seq in changed else copy

    def _not_a_record(self, line: bytes | bytearray) -> CorruptTranscriptError:
        reason = "the line verifies but is not a record: another program that knows the format wrote it"
        seq = int(line[len(b'{"seq":') : line.index(b",")])  # a line verifies only if it starts with its number
        offset = self.place_after(seq - 1).offset_bytes
        return self.corrupt("foreign", reason, Hint.RESTORE_OR_REPAIR, line_number=seq + 1, offset_bytes=offset)
