"""One line of a transcript: its grammar, its sequence number, its hash chain.

::

    file    := header LF (record LF)*
    header  := {"format":"transcript-store","version":1,"conversation":UUID,"generation":N,"at":TIME,"metadata":OBJECT[,…],"hash":HASH}
    record  := {"seq":N,"at":TIME[,"clock":TIME][,"message":OBJECT][,"extra":OBJECT][,…][,"batch":[k,n]],"hash":HASH}
             | {"seq":N,"at":TIME[,"clock":TIME],"retracts":[[first,last]][,…][,"batch":[k,n]],"hash":HASH}

Every line ends in the 43 bytes ``,"hash":"<32 hex>"}``. The hash is the first 128 bits, in lower-case hex, of SHA-256
over the previous line's hash (32 ASCII characters, 32 zeros before the header) followed by the line's bytes before
those 43, its *body*. So a line vouches for its own bytes, its position, and every line before it. Checking it needs
no JSON parser. docs/format.md has a worked example.

Nothing here does I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from transcript_store._json.times import format_time, parse_time

RETRACT = "retract"
SEALED = "sealed"
ENABLED_BY_USERS = frozenset({RETRACT})
FEATURES = ENABLED_BY_USERS | {SEALED}
"""The features that a header may require: a program that does not know one must not read the file."""

FORMAT = b'{"format":"transcript-store",'
VERSION = 1
GENESIS = b"0" * 32
"""The hash before the header's: there is no line before it."""

HASH_MEMBER = b',"hash":"'
CHECK_MEMBER = b',"check":"'
_CHECK = re.compile(rb',"check":"([0-9a-f]{64})"\Z')
SUFFIX_BYTES = 43
"""The length of ``,"hash":"<32 hex>"}``, the end of every line before its LF."""

LONGEST_METADATA_BYTES = 64 * 2**20
"""The maximum length of metadata.json, and of a first line, which holds the same. A longer one is not read."""

RECORD_HEAD_BYTES = 128
"""More than the longest ``{"seq":…,"at":…,"clock":…,"message":``."""

DAY_US = 86_400_000_000

_TIME = rb'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)"'
_RECORD_START = re.compile(rb'\{"seq":([1-9]\d{0,18}),"at":' + _TIME + rb'(?:,"clock":' + _TIME + rb")?")
_RETRACTS = b',"retracts":['
_HEAD = re.compile(rb',"at":"[^"]*"(?:,"clock":"[^"]*")?(?:,"retracts":\[[0-9,]*\])?')
"""The bytes before a record's message."""
_RETRACTION = re.compile(
    rb',"at":'
    + _TIME
    + rb'(?:,"clock":'
    + _TIME
    + rb')?(,"retracts":\[(?:([1-9]\d{0,18}),([1-9]\d{0,18}))?\])(?!,"message":)'
)
_BATCH_END = re.compile(rb',"batch":\[([1-9]\d{0,8}),([1-9]\d{0,8})\]\Z')
_LONGEST_BATCH = len(',"batch":[999999999,999999999]')


class Position(NamedTuple):
    """A position between two lines: ``seq`` records before it, ``offset_bytes`` into the file, after the line with hash
    ``head``.
    """

    seq: int
    offset_bytes: int
    head: bytes


class Batch(NamedTuple):
    """Record ``k`` of the ``n`` that were appended as one."""

    k: int
    n: int


SINGLE = Batch(1, 1)


Retracts = tuple[int, int] | tuple[()]
"""The numbers of the first and the last record that a retraction names; empty if it no longer names any."""


Entry = tuple[bytes | None, bytes | None, int | None]
"""The contents of a record: an encoded message, an encoded extra, and its time in microseconds (None for now)."""


Stamp = tuple[int, str, bytes | None]
"""A record's time: in microseconds, as text, and the clock's reading if that is a day or more earlier."""


def stamp_of(given_us: int | None, now: Stamp, before_us: int) -> Stamp:
    """The time of a record: the given time, but never later than now, nor before the previous record's."""
    if given_us is None:
        return now
    at_us = max(min(given_us, now[0]), before_us)
    return now if at_us == now[0] else (at_us, format_time(at_us), None)


class Mark(NamedTuple):
    """A moment when the transcript was synced."""

    generation: int
    position: Position

    def as_json(self) -> dict[str, Any]:
        seq, offset, head = self.position
        return {"generation": self.generation, "seq": seq, "offset": offset, "head": head.decode()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of a transcript, as :meth:`ConversationStore.get_records` gives it: a fresh copy.

    ``seq`` counts from 1 within a generation. ``at`` is when the record was written, or the time that was given with it: RFC
    3339 in UTC with microseconds.
    A record carries a ``message``, an ``extra``, or both; what it does not carry is None.
    """

    seq: int
    at: str
    message: dict[str, Any] | None
    extra: dict[str, Any] | None
    retracts: Retracts | None = None
    """For a retraction: the numbers of the first and the last record that it names; empty if none of them was copied
    with it. None for any other record.
    """
    is_retracted: bool = False
    """True if a later record retracted the message: ``get_messages()`` leaves it out."""

    @property
    def at_datetime(self) -> datetime:
        """``at`` as an aware ``datetime`` in UTC."""
        return datetime.fromisoformat(self.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a transcript."""

    conversation: str
    generation: int
    at: str
    metadata: dict[str, Any]
    members: dict[str, Any]
    """The whole line, with members that this version does not know."""
    check: tuple[bytes, bytes] | None = None
    """Of a sealed generation: the bytes that its keyed check covers, and the check; None if it has none."""
    features: tuple[str, ...] = field(init=False)
    """The features that the generation requires of its readers."""
    is_sealed: bool = field(init=False)
    """True if the records of this generation are sealed."""
    can_retract: bool = field(init=False)
    """True if messages can be retracted in this generation. If not, no record retracts one, whatever it says."""

    def __post_init__(self) -> None:
        features = tuple(self.members.get("requires") or ())
        for name, value in (
            ("features", features),
            ("is_sealed", SEALED in features),
            ("can_retract", RETRACT in features),
        ):
            object.__setattr__(self, name, value)  # known once, because every call asks

    @property
    def kept_sealed(self) -> int:
        """How many of the first records may have been sealed elsewhere: a repair without the key copied them."""
        number = self.members.get("kept_sealed")
        return number if type(number) is int else 0

    @property
    def begins_with(self) -> int:
        """How many records a sealed generation began with."""
        number = self.members.get("begins_with")
        return number if type(number) is int else 0


def check_of(body: bytes) -> tuple[bytes, bytes] | None:
    """The bytes that the keyed check at the end of a body covers, and the check; None if the body has no check."""
    found = _CHECK.search(body, max(0, len(body) - 80))
    return None if found is None else (body[: found.start()], found[1])


def chain_hash(previous: bytes, body: Iterable[bytes | bytearray]) -> bytes:
    """The hash of a line with this body, given in parts, after the line whose hash is ``previous``: 32 ASCII characters."""
    digest = sha256(previous)
    for part in body:
        digest.update(part)
    return digest.hexdigest()[:32].encode()


def close_line(previous: bytes, *body: bytes) -> tuple[bytes, bytes]:
    """Close a body, given in parts, into a whole line with its LF; returns the line and its hash."""
    head = chain_hash(previous, body)
    return b"".join((*body, HASH_MEMBER, head, b'"}\n')), head


def header_body(*, conversation: str, generation: int, at: str, metadata: dict[str, Any], **more: Any) -> bytes:
    """The body of a header line. ``more`` holds optional members (``replaces``, ``repaired_from``, ``requires``)."""
    members = {
        "format": "transcript-store",
        "version": VERSION,
        "conversation": conversation,
        "generation": generation,
        "at": at,
        "metadata": metadata,
        **more,
    }
    return orjson.dumps(members)[:-1]


def record_body(
    seq: int,
    at: bytes,
    message: bytes | None,
    extra: bytes | None,
    clock: bytes | None = None,
    batch: Batch = SINGLE,
    retracts: Retracts | None = None,
) -> list[bytes]:
    """The body of a record line in parts, from members that are encoded already: a long message is not copied here."""
    parts = [b'{"seq":%d,"at":"%b"' % (seq, at)]
    if clock is not None:
        parts.append(b',"clock":"%b"' % clock)
    if retracts is not None:
        parts.append(retracts_member(retracts))
    if message is not None:
        parts += (b',"message":', message)
    if extra is not None:
        parts += (b',"extra":', extra)
    if batch is not SINGLE:
        parts.append(b',"batch":[%d,%d]' % batch)
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Bytes of a transcript that are not a record, or that a repair does not keep."""

    offset_bytes: int
    length_bytes: int
    reason: str


class Copied(NamedTuple):
    """A record of another transcript, to be copied: every byte but its number, its batch and its hash."""

    members: bytes
    seq: int | None
    """The number that it had. 0 if it had none, or if its generation has no ``retract``; None for a note of a repair.
    """


def copied(body: bytes | bytearray) -> Copied:
    """The part of a record's body that goes with it when it is copied; the body must begin like a record."""
    start = body.index(b",")
    batch = _BATCH_END.search(body, max(start, len(body) - _LONGEST_BATCH))
    return Copied(bytes(body[start : batch.start() if batch else None]), int(body[len(b'{"seq":') : start]))


def copies(lines: bytes | bytearray) -> Iterator[Copied]:
    """The records of whole lines, to be put into another transcript."""
    return (copied(line[:-SUFFIX_BYTES]) for line in lines.split(b"\n")[:-1])


def retracts_member(named: Retracts) -> bytes:
    """The member ``retracts`` of a record, with the comma before it."""
    return b"%b%b]" % (_RETRACTS, b"%d,%d" % named if named else b"")


def retracts_of(seq: int, members: bytes | bytearray, start: int = 0) -> Retracts | None:
    """The range that a record retracts; None if it is not a retraction.

    Only one form is one: ``"retracts"`` directly follows the record's time, and no message follows it; it is empty, or
    two numbers of records before this one, the smaller one first. Any other member of that name is ignored.

    Args:
        seq: the number of the record.
        members: the record's line, or the part after its number.
        start: the start of the part after its number.
    """
    found = _RETRACTION.match(members, start)
    if found is None:
        return None
    if found[4] is None:
        return ()
    first, last = int(found[4]), int(found[5])
    return (first, last) if first <= last < seq else None


def may_retract(lines: bytes | bytearray) -> bool:
    """True if these lines may contain a retraction; a check of each line would take much longer."""
    return _RETRACTS in lines


def with_retracts(members: bytes, named: Retracts) -> bytes:
    """The members of a record with other numbers where it names records; unchanged if it names none."""
    found = _RETRACTION.match(members)
    if found is None:
        return members
    return members[: found.start(3)] + retracts_member(named) + members[found.end(3) :]


def with_contents(copy: Copied, message: bytes | None, extra: bytes | None) -> Copied:
    """The record with its time and its retraction, but another message and another extra.

    Raises:
        ValueError: it does not start with its time, as records do.
    """
    head = _HEAD.match(copy.members)
    if head is None:
        raise ValueError("a record that does not begin with its time cannot be changed")
    if message is not None and _RETRACTS in head[0]:
        raise ValueError("a record that takes messages back carries no message")
    parts = [head[0]]
    if message is not None:
        parts += (b',"message":', message)
    if extra is not None:
        parts += (b',"extra":', extra)
    return copy._replace(members=b"".join(parts))


def as_record(
    members: dict[str, Any], retracts: Retracts | None = None, *, is_retracted: bool = False
) -> Record | None:
    """The public value of a decoded line; None if the line is not a record of this format."""
    seq, at, message, extra = members.get("seq"), members.get("at"), members.get("message"), members.get("extra")
    if (
        type(seq) is not int
        or type(at) is not str
        or not isinstance(message, dict | None)
        or not isinstance(extra, dict | None)
    ):
        return None
    is_retracted = is_retracted and message is not None
    return Record(seq=seq, at=at, message=message, extra=extra, retracts=retracts, is_retracted=is_retracted)


class RecordHead(NamedTuple):
    """The facts at the start of a record. ``at`` has the form of a time; its day may not exist."""

    seq: int
    at: str
    has_message: bool


def record_head(line: bytes | bytearray) -> RecordHead | None:
    """The head of a line; None if the line does not begin like a record. Its first ``RECORD_HEAD_BYTES`` are enough."""
    match = _RECORD_START.match(line)
    if match is None:
        return None
    return RecordHead(int(match[1]), match[2].decode(), line.startswith(b',"message":', match.end()))


def record_time_us(line: bytes | bytearray) -> int | None:
    """When a record was written, in microseconds since 1970; None if its time cannot be read."""
    head = record_head(line)
    try:
        return parse_time(head.at) if head else None
    except ValueError:
        return None


def body_batch(buffer: bytes | bytearray, start: int, end: int) -> Batch:
    """Which part of which batch a body is, read from its last bytes without a parser.

    ``buffer[start:end]`` is the body. Nothing else can look like a ``batch`` member at a body's end: what closes
    directly after it is the line's own object, not an array or a string within it.
    """
    if buffer[end - 1] != 0x5D:  # the closing bracket: no other member that we write ends in one
        return SINGLE
    match = _BATCH_END.search(buffer, max(start, end - _LONGEST_BATCH), end)
    return Batch(int(match[1]), int(match[2])) if match else SINGLE
