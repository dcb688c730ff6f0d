"""One line of a transcript: its grammar, its sequence number, its hash chain.

::

    file    := header LF (record LF)*
    header  := {"format":"transcript-store","version":1,"conversation":UUID,"generation":N,"at":TIME,"metadata":OBJECT[,…],"hash":HASH}
    record  := {"seq":N,"at":TIME[,"clock":TIME][,"message":OBJECT][,"extra":OBJECT][,…][,"batch":[k,n]],"hash":HASH}

Every line ends in the 43 bytes ``,"hash":"<32 hex>"}``. The hash is the first 128 bits, in lower-case hex, of SHA-256
over the previous line's hash (32 ASCII characters, 32 zeros before the header) followed by the line's bytes before
those 43, its *body*. So a line vouches for its own bytes, for its place, and for every line before it. Checking it needs
no JSON parser. docs/format.md has a worked example.

Nothing here does I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from transcript_store._json.times import parse_time

FORMAT = b'{"format":"transcript-store",'
VERSION = 1
GENESIS = b"0" * 32
"""What the header's hash is chained to: there is no line before it."""

HASH_MEMBER = b',"hash":"'
SUFFIX_BYTES = 43
"""The length of ``,"hash":"<32 hex>"}``, the end of every line before its LF."""

LONGEST_METADATA_BYTES = 64 * 2**20
"""The most that metadata.json may take, and a first line, which holds the same. One that is longer is not read."""

RECORD_HEAD_BYTES = 128
"""More than the longest ``{"seq":…,"at":…,"clock":…,"message":``."""

DAY_US = 86_400_000_000

_TIME = rb'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)"'
_RECORD_START = re.compile(rb'\{"seq":([1-9]\d{0,18}),"at":' + _TIME + rb'(?:,"clock":' + _TIME + rb")?")
_BATCH_END = re.compile(rb',"batch":\[([1-9]\d{0,8}),([1-9]\d{0,8})\]\Z')
_LONGEST_BATCH = len(',"batch":[999999999,999999999]')


class Position(NamedTuple):
    """A place between two lines: ``seq`` records before it, ``offset_bytes`` into the file, after the line with hash ``head``."""

    seq: int
    offset_bytes: int
    head: bytes


class Batch(NamedTuple):
    """Record ``k`` of the ``n`` that were appended as one."""

    k: int
    n: int


SINGLE = Batch(1, 1)


Entry = tuple[bytes | None, bytes | None]
"""What a record carries: an encoded message, an encoded extra."""


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

    ``seq`` counts from 1 within a generation. ``at`` is when the record was written: RFC 3339 in UTC with microseconds.
    A record carries a ``message``, an ``extra``, or both; what it does not carry is None.
    """

    seq: int
    at: str
    message: dict[str, Any] | None
    extra: dict[str, Any] | None

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
    """The body of a header line. ``more`` holds optional members (``replaces``, ``repaired_from``)."""
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
) -> list[bytes]:
    """The body of a record line in parts, from members that are encoded already: a long message is not copied here."""
    parts = [b'{"seq":%d,"at":"%b"' % (seq, at)]
    if clock is not None:
        parts.append(b',"clock":"%b"' % clock)
    if message is not None:
        parts += (b',"message":', message)
    if extra is not None:
        parts += (b',"extra":', extra)
    if batch is not SINGLE:
        parts.append(b',"batch":[%d,%d]' % batch)
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Bytes of a transcript that are no record, or that a repair does not keep."""

    offset_bytes: int
    length_bytes: int
    reason: str


class Copied(NamedTuple):
    """A record of another transcript, to be copied: every byte but its number, its batch and its hash."""

    members: bytes


def copied(body: bytes | bytearray) -> Copied:
    """The part of a record's body that goes with it when it is copied; the body must begin like a record."""
    start = body.index(b",")
    batch = _BATCH_END.search(body, max(start, len(body) - _LONGEST_BATCH))
    return Copied(bytes(body[start : batch.start() if batch else None]))


def as_record(members: dict[str, Any]) -> Record | None:
    """The value users see, from a decoded line; None if the line is no record of ours."""
    seq, at, message, extra = members.get("seq"), members.get("at"), members.get("message"), members.get("extra")
    if (
        type(seq) is not int
        or type(at) is not str
        or not isinstance(message, dict | None)
        or not isinstance(extra, dict | None)
    ):
        return None
    return Record(seq=seq, at=at, message=message, extra=extra)


class RecordHead(NamedTuple):
    """What the beginning of a record says. ``at`` has the form of a time; its day may not exist."""

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

    ``buffer[start:end]`` is the body. Nothing else can look like a batch mark at a body's end: ``"batch":`` is a member, so
    what closes right behind it is the line's own object, and not an array or a string within it.
    """
    if buffer[end - 1] != 0x5D:  # the closing bracket: no other member that we write ends in one
        return SINGLE
    match = _BATCH_END.search(buffer, max(start, end - _LONGEST_BATCH), end)
    return Batch(int(match[1]), int(match[2])) if match else SINGLE
