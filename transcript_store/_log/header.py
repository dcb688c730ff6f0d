"""How does a transcript begin? Its first line, and a whole new file that a create, a replace or a repair puts in place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from transcript_store._json.times import is_time
from transcript_store._log.damage import Kind, describe
from transcript_store._log.lines import Cache, CachedLines
from transcript_store._log.record import (
    FEATURES,
    FORMAT,
    GENESIS,
    HASH_MEMBER,
    RECORD_HEAD_BYTES,
    SUFFIX_BYTES,
    VERSION,
    Copied,
    Entry,
    Header,
    Position,
    Stamp,
    chain_hash,
    check_of,
    record_body,
    record_time_us,
    stamp_of,
)
from transcript_store._log.retractions import Renumbering
from transcript_store._log.scan import PIECE_BYTES
from transcript_store._log.sealed_records import RecordSealer, plain_members
from transcript_store._os.names import LAST_GENERATION, is_id

_PLAIN_HEADER = re.compile(
    rb'\{"format":"transcript-store","version":1,"conversation":"([0-9a-f-]{36})","generation":(0|[1-9]\d{0,17}),"at":"[^"]*","metadata":\{'
)


class NotAHeader(NamedTuple):
    """Why the first line is not a readable header. ``version`` is set if a later version wrote it."""

    kind: Kind
    reason: str
    version: object = None


def read_header(data: bytes | bytearray) -> tuple[Header, Position] | NotAHeader:
    """The header of a transcript, and the position after it.

    ``data`` holds at least the first line. The caller checks what the header's metadata says.
    """
    if not data:
        return NotAHeader("damaged-header", "the file is empty")
    end = data.find(b"\n")
    line = bytes(data[: end if end >= 0 else None])
    if not line.startswith(FORMAT) and HASH_MEMBER not in line[-SUFFIX_BYTES:]:
        return NotAHeader("foreign", f"the first line is not a header of ours: {describe(line)}")
    if end < 0:
        return NotAHeader("damaged-header", "the first line has no end: the header was cut")
    head = chain_hash(GENESIS, [line[:-SUFFIX_BYTES]])
    if line[-SUFFIX_BYTES:] != HASH_MEMBER + head + b'"}':
        return NotAHeader("damaged-header", f"the header's hash does not match: {describe(line)}")
    try:
        members = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return NotAHeader("damaged-header", f"the header is not JSON: {error.msg}")
    if type(members) is not dict or members.get("format") != "transcript-store":
        return NotAHeader("foreign", "the first line is not a header of ours")
    version, requires = members.get("version"), members.get("requires") or []
    if type(version) is not int or version > VERSION or (requires and not _all_known(requires)):
        wanted = f"version {version!r:.20}" + (f" with {requires!r:.60}" if requires else "")
        return NotAHeader("foreign", f"the file is of format {wanted}, this program reads version {VERSION}", version)
    if problem := _problem_with(members):
        return NotAHeader("damaged-header", f"the header is whole, but {problem}")
    header = Header(
        conversation=members["conversation"],
        generation=members["generation"],
        at=members["at"],
        metadata=members["metadata"],
        members=members,
        check=check_of(line[:-SUFFIX_BYTES]) if requires else None,
    )
    return header, Position(0, end + 1, head)


def _all_known(requires: object) -> bool:
    """True if this version knows every feature that the header requires."""
    return type(requires) is list and all(type(feature) is str and feature in FEATURES for feature in requires)


def _problem_with(members: dict[str, Any]) -> str | None:
    conversation, generation = members.get("conversation"), members.get("generation")
    if type(conversation) is not str or not is_id(conversation):
        return "its conversation is not a canonical lower-case UUID"
    if type(generation) is not int or not 0 <= generation <= LAST_GENERATION:
        return "its generation is not a number"
    metadata = members.get("metadata")
    if type(metadata) is not dict:
        return "it has no metadata"
    if (conversation, generation) != (metadata.get("id"), metadata.get("generation")):
        return "its metadata belongs to another conversation or generation"
    return None if is_time(members.get("at")) else "it has no time"


def is_header_of(line: bytes | bytearray, conversation: object, generation: object) -> bool:
    """True if a first line, with its LF, is a whole header of this conversation and generation as this version writes
    it.

    A listing calls it for each conversation: 45 µs each, where :func:`read_header`, which gives a reason, takes 63.
    """
    match = _PLAIN_HEADER.match(line)
    if match is None or (match[1].decode(), int(match[2])) != (conversation, generation) or b'"requires"' in line:
        return False
    body = line[: -SUFFIX_BYTES - 1]
    return line[-SUFFIX_BYTES - 1 :] == HASH_MEMBER + chain_hash(GENESIS, [body]) + b'"}\n'


def begins_at(now: Stamp, entries: Iterable[Entry | Copied]) -> Stamp:
    """The time of a transcript that starts now with these records: the first record's time, if its caller gave one."""
    first = entries[0] if isinstance(entries, Sequence) and entries else None
    given_us = None if first is None or isinstance(first, Copied) else first[2]
    return now if given_us is None else stamp_of(given_us, now, before_us=min(given_us, now[0]))


class Image:
    """The bytes of a new transcript, produced while they are written: memory holds one chunk at a time."""

    def __init__(
        self,
        line: bytes,
        begins: Stamp,
        now: Stamp,
        entries: Iterable[Entry | Copied],
        cache_bytes: int,
        sealer: RecordSealer | None = None,
    ) -> None:
        suffix = line[-SUFFIX_BYTES - len(b"\n") :]
        self.begin = self.end = Position(0, len(line), suffix[len(HASH_MEMBER) : -len(b'"}\n')])
        self.cache = Cache(cache_bytes, self.begin)
        self.last_at_us = begins[0]
        """The time of the last record, or of the header: the next record is not before it."""
        self.sealer = sealer
        """Seals its records; None if they are plaintext, or are copied unchanged."""
        self._line = line
        self._now = now
        self._entries = entries

    @cached_property
    def header(self) -> Header:
        """The parsed first line, decoded on first use: a group of many transcripts is closed without reading it."""
        found = read_header(self._line)
        assert not isinstance(found, NotAHeader)
        return found[0]

    def pieces(self) -> Iterator[bytes | bytearray]:
        """Yields the file's bytes; iterate once. Afterwards ``end`` and ``cache`` describe the written file.

        A short transcript is one chunk, because each chunk is one write.
        """
        first: bytes = self._line
        begin, lines = self.begin, bytearray()
        entry: Entry | Copied | None = None
        body: Sequence[bytes] = ()
        sealer = self.sealer
        renumbering = Renumbering()
        for seq, entry in enumerate(self._entries, 1):
            if isinstance(entry, Copied):
                # Its members are unchanged after a new number; a retraction names the new numbers of its records.
                members = renumbering.members_of(entry, seq) if self.header.can_retract else entry.members
                body = (b'{"seq":%d' % seq, members) if sealer is None else sealer.body_of_copy(seq, members)
            else:
                message, extra, given_us = entry
                self.last_at_us, at, clock = stamp_of(given_us, self._now, self.last_at_us)
                if sealer is None:
                    body = record_body(seq, at.encode(), message, extra, clock)
                else:
                    body = sealer.body(seq, at.encode(), plain_members(message, extra, clock))
            head = chain_hash(self.end.head, body)
            for part in (*body, b',"hash":"%b"}\n' % head):
                lines += part
            self.end = Position(seq, begin.offset_bytes + len(lines), head)
            if len(lines) >= PIECE_BYTES:
                self.cache.put(CachedLines(begin, lines, self.end))
                if first:
                    yield first
                yield lines
                begin, lines, first = self.end, bytearray(), b""
        if lines:
            self.cache.put(CachedLines(begin, lines, self.end))
        if first or lines:
            yield first + lines
        # Copied records keep their times: the last of them may be later than the header.
        if isinstance(entry, Copied) and (at_us := record_time_us(b"".join(body)[:RECORD_HEAD_BYTES])) is not None:
            self.last_at_us = max(self.last_at_us, at_us)
