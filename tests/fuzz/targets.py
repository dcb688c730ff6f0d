"""The fuzz targets: functions that must return for any bytes.

Each raises ``AssertionError`` where a property does not hold, and lets everything through that is not an error of ours.
To fuzz something else add a function to ``TARGETS``, and a seed to ``corpus/``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any
from unicodedata import category
from urllib.parse import urlsplit

import orjson

from tests.crash.model import DIRECTORY, observe, store_on
from tests.crash.operations import TRANSCRIPT
from tests.fuzz.formats import FORMATS
from tests.fuzz.queries import QUERIES
from transcript_store import (
    CorruptMetadataError,
    CorruptSnapshotError,
    CorruptTranscriptError,
    InvalidBaseUrlError,
    InvalidMessageError,
    InvalidMetadataError,
    InvalidSnapshotIdError,
    NotAPathError,
    Snapshot,
    UnsupportedVersionError,
)
from transcript_store._conversation.metadata import MetadataDocument, checked_fields, decode_document, encode_document
from transcript_store._json.strict import MAX_DEPTH, encode, parse
from transcript_store._log.damage import judge
from transcript_store._log.header import NotAHeader, read_header
from transcript_store._log.record import SUFFIX_BYTES, as_record, close_line
from transcript_store._log.scan import Walk
from transcript_store._os.filesystem import absolute_path
from transcript_store._snapshots.snapshot import validate_snapshot_id
from transcript_store.chat._config import MAX_BASE_URL_LENGTH, validate_base_url
from transcript_store.testing import SimulatedFileSystem

LIMIT_BYTES = 1 << 20
MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


@cache
def _base() -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    with store_on(disk) as store:
        store.initialize(messages=MESSAGES[:1])
    store = store_on(disk)
    store.load()
    store.append_messages(MESSAGES)
    return disk.kill_process().copy()


def _transcript(data: bytes) -> bytes:
    """A transcript made of an input: the first byte says how."""
    good = _base().tree()[TRANSCRIPT] or b""
    mode, data = data[:1], data[1:]
    if mode == b"t":  # a tail behind what is whole
        return good + data
    if mode == b"s":  # lines that verify, whatever they hold
        return good + b"".join(_sealed(good, data.split(b"\n")))
    if mode == b"x" and len(data) > 2:  # bytes written over it
        at = int.from_bytes(data[:2]) % len(good)
        return good[:at] + data[2:] + good[at + len(data) - 2 :]
    return mode + data


def _sealed(good: bytes, bodies: list[bytes]) -> Iterator[bytes]:
    head = good[-34:-2]
    for body in bodies:
        line, head = close_line(head, body)
        yield line


def _reader(content: bytes) -> Callable[[int, int], bytearray]:
    return lambda offset, length: bytearray(content[offset : offset + length])


def lines(data: bytes) -> None:
    """The line reader: nothing before the damage is lost (R1), and what recovery leaves is whole (R3)."""
    content = _transcript(data)
    found = read_header(content)
    if isinstance(found, NotAHeader):
        return
    begin = found[1]
    read = _reader(content)
    walk = Walk(read, begin, len(content))
    starts = [piece.begin.offset_bytes + start for piece in walk for start in piece.starts]
    assert begin.offset_bytes <= walk.end.offset_bytes <= len(content)
    assert len(starts) == walk.end.seq
    damage = judge(read, len(content), walk, begin)
    if damage is None:
        assert walk.end.offset_bytes == len(content)
    elif damage.kind == "torn-tail":
        cut = damage.cut_at_bytes
        assert begin.offset_bytes <= cut <= len(content)
        left = content[:cut] + (b"\n" if damage.line_feed_missing else b"")
        again = Walk(_reader(left), begin, len(left))
        assert again.to_the_end().seq >= walk.end.seq
        assert again.end.offset_bytes == len(left)
    for start in starts:
        line = content[start : content.index(b"\n", start)]
        with suppress(orjson.JSONDecodeError):
            members = orjson.loads(line)
            if type(members) is dict:
                as_record(members)
        assert len(line) >= SUFFIX_BYTES


def conversation(data: bytes) -> None:
    """All of it: the judge of the crash tests opens a folder with this transcript, and finds it whole or refuses it."""
    disk = _base().copy()
    disk.write_file(TRANSCRIPT, _transcript(data))
    before = disk.tree()[TRANSCRIPT]
    try:
        state = observe(disk)
    except (UnsupportedVersionError, CorruptMetadataError, CorruptTranscriptError):
        assert disk.tree()[TRANSCRIPT] == before, "refused, and touched"
        return
    assert state.refused is None or disk.tree()[TRANSCRIPT] == before, "refused, and touched"
    assert state.records is None or state.records[:1] == (orjson.dumps([MESSAGES[0], None]),)


def metadata(data: bytes) -> None:
    """metadata.json: decoded or not ours; and what is decoded is encoded alike."""
    for document in (data, *_as_document(data)):
        found = decode_document(document)
        if isinstance(found, MetadataDocument):
            again = decode_document(encode_document(found.members, found.mark))
            assert again == found


def _as_document(data: bytes) -> Iterator[bytes]:
    """The same as members of a document that verifies."""
    with suppress(InvalidMessageError):
        members = parse(data)
        whole = decode_document(_base().tree()[f"{DIRECTORY}/metadata.json"] or b"")
        assert isinstance(whole, MetadataDocument)
        with suppress(TypeError, ValueError, KeyError):
            yield encode_document({**whole.members, **members}, None)


def message_text(data: bytes) -> None:
    """JSON text of somebody else: refused, or it comes back equal from every reader."""
    try:
        value = parse(data)
    except InvalidMessageError:
        return
    _insist_on_a_round_trip(value)


def message_value(data: bytes) -> None:
    """A Python value of any kind: refused, or it comes back equal."""
    _insist_on_a_round_trip({"v": _value(iter(data), 0)})


def _insist_on_a_round_trip(value: Any) -> None:
    try:
        encoded = encode(value, "message", LIMIT_BYTES)
    except InvalidMessageError:
        return
    assert b"\n" not in encoded
    assert len(encoded) <= LIMIT_BYTES
    assert _same(orjson.loads(encoded), value)
    assert _same(json.loads(encoded), value)


def _same(one: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down: 1 is not True, and -0.0 not 0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(_same, one.values(), other.values()))
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


def _value(data: Iterator[int], depth: int) -> Any:
    """A value that the bytes describe: a kind, a size, contents."""
    kind, size = next(data, 0) % 16, next(data, 0)
    if depth > MAX_DEPTH + 20:
        return None
    match kind:
        case 0:
            return [_value(data, depth + 1) for _ in range(size % 4)]
        case 1:
            return {_text(data, size % 4): _value(data, depth + 1) for _ in range(size % 3)}
        case 2:
            return [[_value(data, depth + 2)]]
        case 3:
            return _text(data, size)
        case 4:
            return size - 128
        case 5:
            return (1 << (size % 70)) * (1 if size < 128 else -1)
        case 6:
            return float(f"{'-' if size & 1 else ''}{size}e{next(data, 0) * 3 - 380}")
        case 7:
            return [math.nan, math.inf, -math.inf, -0.0][size % 4]
        case 8:
            return [True, False, None][size % 3]
        case 9:
            return (_value(data, depth + 1),)
        case 10:
            return bytes([size])
        case 11:
            return {size: 1}
        case 12:
            return chr(0xD800 + size * 8)
        case 13:
            return orjson.Fragment(b'"a\n"')
        case 14:
            return {"a" * size: {}}
        case _:
            return _Text("a subclass")


class _Text(str):
    __slots__ = ()


def _text(data: Iterator[int], size: int) -> str:
    return "".join(chr(next(data, 65) * (1 + size % 3) * 17) for _ in range(size % 40))


def metadata_fields(data: bytes) -> None:
    """What a caller gives as metadata: refused, or stored and read back equal."""
    with suppress(InvalidMessageError):
        fields = parse(data)
        try:
            checked = checked_fields(dict(fields), LIMIT_BYTES)
        except (InvalidMetadataError, InvalidMessageError, TypeError, KeyError):
            return
        assert orjson.loads(orjson.dumps(checked)) == checked


def path(data: bytes) -> None:
    """A path: refused, or absolute, with no step upward left in it."""
    try:
        made = absolute_path(data.decode("utf-8", "surrogateescape"))
    except (ValueError, TypeError, NotAPathError):
        return
    assert made.startswith("/")
    assert ".." not in made.split("/")
    assert "\0" not in made


def snapshot(data: bytes) -> None:
    """A snapshot's JSON form: refused, or it comes back equal, and is written the same from then on."""
    try:
        read = Snapshot.from_json(data)
    except (CorruptSnapshotError, UnsupportedVersionError):
        return
    written = read.to_json()
    again = Snapshot.from_json(written)
    assert again == read
    assert again.to_json() == written


def ids(data: bytes) -> None:
    """An id: refused, or one that no path, no NUL and no other spelling hides in."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        validate_snapshot_id(text)
    except InvalidSnapshotIdError as error:
        if len(str(error)) > 400:
            raise AssertionError("an error that repeats all of it") from error
        return
    assert len(text) == 36
    assert set(text) <= set("0123456789abcdef-")


def url(data: bytes) -> None:
    """A base URL: refused, or credentials go to one host over https, in a request that can be sent."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        validate_base_url(text)
    except InvalidBaseUrlError:
        return
    if text:
        parts = urlsplit(text)
        assert parts.scheme == "https"
        assert parts.hostname
        assert "@" not in parts.netloc
        assert not any(category(character) in ("Cc", "Cs") for character in text)
        assert len(text.encode()) <= MAX_BASE_URL_LENGTH


TARGETS: dict[str, Callable[[bytes], None]] = {
    "lines": lines,
    "conversation": conversation,
    "metadata": metadata,
    "metadata-fields": metadata_fields,
    "message-text": message_text,
    "message-value": message_value,
    "path": path,
    "snapshot": snapshot,
    "ids": ids,
    "url": url,
    **FORMATS,
    **QUERIES,
}
