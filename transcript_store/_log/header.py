"""What does the first line of a transcript say: its conversation, its generation and its first metadata?

Nothing here does I/O.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson

from transcript_store._json.times import is_time
from transcript_store._log.damage import Kind, describe
from transcript_store._log.record import (
    FEATURES,
    FORMAT,
    GENESIS,
    HASH_MEMBER,
    SUFFIX_BYTES,
    VERSION,
    Header,
    Position,
    chain_hash,
    check_of,
)
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
