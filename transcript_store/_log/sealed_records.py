"""How is a record sealed, and how is its line turned back into the plaintext line?

::

    record := {"seq":N,"at":TIME[,"retracts":[[first,last]]],"sealed":BASE64[,"sealed_at":[generation,seq]][,"batch":[k,n]],"hash":HASH}

The sealed part is a JSON object with the record's other members, as a plaintext line has them: ``clock``, ``retracts``,
``message``, ``extra``. ``retracts`` is in plaintext too, so that a record keeps its meaning when it is copied without
the key; it counts only if the sealed part says the same. ``sealed_at`` is where the record was sealed, if it was moved
since: a repair without the key copied it. It counts only among the first ``kept_sealed`` records, which the header
states.

Nothing here does I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat

from transcript_store._log.record import Batch, Copied, Retracts, retracts_of, with_retracts
from transcript_store._log.record import retracts_member as in_sight
from transcript_store._sealing.data_key import NONCE_BYTES, DataKey

_TIME_BYTES = len("2026-11-23T00:33:14.263368Z")
_BEFORE_AT = len(b',"at":"')
_SEALED = b'","sealed":"'
_RETRACTS = re.compile(rb'","retracts":\[(?:[1-9]\d{0,18},[1-9]\d{0,18})?\],"sealed":"')
_USUAL = frozenset({b',"hash', b',"batc'})
"""The bytes that follow a sealed text, unless it was sealed elsewhere."""
_AFTER = re.compile(
    rb'"(?:,"sealed_at":\[(0|[1-9]\d{0,18}),([1-9]\d{0,18})\])?(?:,"batch":\[[1-9]\d{0,8},[1-9]\d{0,8}\])?(?:,"hash":"[0-9a-f]{32}"\})?\Z'
)
_COPIED = re.compile(
    rb',"at":"[0-9TZ:.-]{27}"(?:,"retracts":\[(?:\d+,\d+)?\])?,"sealed":"[A-Za-z0-9+/]+={0,2}"'
    rb"(?:,\"sealed_at\":\[(0|[1-9]\d{0,18}),([1-9]\d{0,18})\])?"
)


class RecordSealer:
    """Seals and unseals the records of one generation: one object for a log, so that nothing is derived for each record."""

    __slots__ = ("_key", "_place", "_random_bytes", "generation")

    def __init__(self, key: DataKey, generation: int, random_bytes: Callable[[int], bytes]) -> None:
        self.generation = generation
        self._key = key
        self._place = key.place_of_records(generation)
        self._random_bytes = random_bytes

    def body(
        self, seq: int, at: bytes, members: bytes, batch: bytes = b"", retracts: Retracts | None = None
    ) -> list[bytes]:
        """The body of a record, in parts; ``members`` is the JSON object to seal, and ``batch`` the member of that name."""
        sealed = self._key.seal(self._random_bytes(NONCE_BYTES), members, b"%b%d/%b" % (self._place, seq, at))
        named = b"" if retracts is None else in_sight(retracts)
        return [b'{"seq":%d,"at":"%b"%b,"sealed":"' % (seq, at, named), sealed, b'"' + batch]

    def body_of_copy(self, seq: int, members: bytes) -> list[bytes]:
        """The same for a copy of a plaintext record, from its members."""
        at_end = _BEFORE_AT + _TIME_BYTES
        rest = members[at_end + 2 :]  # after the quotation mark and the comma
        return self.body(seq, members[_BEFORE_AT:at_end], b"{%b}" % rest, retracts=retracts_of(seq, members))

    def opened(self, line: bytes | bytearray, seq: int, kept_sealed: int) -> bytes | None:
        """The plaintext line of a sealed one; None if it was not sealed with this key for this position."""
        at_start = len(b'{"seq":%d,"at":"' % seq)
        at_end = at_start + _TIME_BYTES
        named = None
        if line.startswith(_SEALED, at_end):
            start = at_end + len(_SEALED)
        elif (named := _RETRACTS.match(line, at_end)) is not None:
            start = named.end()
        else:
            return None
        end = line.find(b'"', start)
        after = _AFTER.match(line, end)
        if after is None or not line.startswith(b'{"seq":%d,"at":"' % seq):
            return None
        place, sealed_at = self._place, seq
        is_copy = after[1] is not None
        if is_copy:
            if seq > kept_sealed:
                return None
            place, sealed_at = self._key.place_of_records(int(after[1])), int(after[2])
        at = bytes(line[at_start:at_end])
        plain = self._key.open(bytes(line[start:end]), b"%b%d/%b" % (place, sealed_at, at))
        if plain is None or not plain.startswith(b"{"):
            return None
        opened = b'{"seq":%d,"at":"%b"%b%b' % (seq, at, b"" if plain == b"{}" else b",", plain[1:])
        if b'"retracts":' not in plain[:64] and named is None:
            return opened
        return self._retraction(opened, bytes(line), seq, is_copy=is_copy)

    def all_opened(self, lines: list[bytes], first_seq: int) -> list[bytes] | None:
        """The unsealed JSON objects of these lines; None if one line is unusual: then each is unsealed by itself.

        One call for a range of records, with as few Python steps per record as possible: a reader of everything waits
        for this.
        """
        place, decrypt = self._place, self._key.decrypt
        try:
            parts = [line.split(b'"', 10) for line in lines]
            if {part[7] for part in parts} != {b"sealed"} or not {part[10][:6] for part in parts} <= _USUAL:
                return None
            places = [b"%b%d/%b" % (place, seq, part[5]) for seq, part in enumerate(parts, first_seq)]
            sealed = [*map(self._key.from_base64, [part[9] for part in parts], repeat(None), repeat(True))]
            return [*map(decrypt, [one[:NONCE_BYTES] for one in sealed], [one[NONCE_BYTES:] for one in sealed], places)]
        except Exception:  # whatever it is, unsealing each by itself finds the faulty record
            return None

    @staticmethod
    def _retraction(opened: bytes, line: bytes, seq: int, *, is_copy: bool) -> bytes | None:
        """The plaintext line of a retraction, if its plaintext and sealed parts agree, or it names the records by new
        numbers.
        """
        start = opened.index(b",")
        seen = retracts_of(seq, line, start)
        if not is_copy:
            return opened if retracts_of(seq, opened, start) == seen else None
        # It may have been sealed with any numbers, also greater than its own number is now.
        if (retracts_of(2**62, opened, start) is None) != (seen is None):
            return None
        return opened[:start] + with_retracts(opened[start:], seen) if seen is not None else opened


def first_plain(data: bytes | bytearray, starts: Iterable[int]) -> int | None:
    """The first of the lines starting at these positions that is not sealed; None if all are. Only their form is looked
    at.
    """
    startswith = data.startswith
    for index, start in enumerate(starts):
        at_end = data.find(b'"at":"', start, start + 64) + 6 + _TIME_BYTES
        if not startswith(_SEALED, at_end) and _RETRACTS.match(data, at_end) is None:
            return index
    return None


def sealed_place(line: bytes | bytearray) -> tuple[int, int] | None:
    """The generation and the number that a moved record was sealed with; None if it was sealed where it is."""
    found = _COPIED.match(line, line.index(b","))
    return None if found is None or found[1] is None else (int(found[1]), int(found[2]))


def batch_member(batch: Batch) -> bytes:
    """The member ``batch`` of a record."""
    return b',"batch":[%d,%d]' % batch


def plain_members(
    message: bytes | None, extra: bytes | None, clock: bytes | None, retracts: Retracts | None = None
) -> bytes:
    """The part of a record that is sealed, from encoded members."""
    parts = []
    if clock is not None:
        parts.append(b'"clock":"%b"' % clock)
    if retracts is not None:
        parts.append(in_sight(retracts)[1:])
    if message is not None:
        parts.append(b'"message":' + message)
    if extra is not None:
        parts.append(b'"extra":' + extra)
    return b"{%b}" % b",".join(parts)


def still_sealed(records: Iterable[Copied], generation: int) -> Iterator[Copied]:
    """Sealed records of a generation, to be copied without the key: each states where it was sealed, in ascending order.

    Records that are not sealed are left out, and so are those that claim to be sealed before the record that precedes
    them.
    """
    last = (-1, 0)
    for members, seq in records:
        found = _COPIED.fullmatch(members)
        if found is None or not seq:
            continue
        place = (int(found[1]), int(found[2])) if found[1] is not None else (generation, seq)
        if place > last:
            last = place
            yield Copied(members if found[1] is not None else b'%b,"sealed_at":[%d,%d]' % (members, *place), seq)
