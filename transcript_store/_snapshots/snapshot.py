"""What is a snapshot, and what must a store of snapshots do? Nothing here does I/O.

The JSON form is that of the Go library go-tool-base (``pkg/chat``), byte for byte, in both directions: two spaces a
level, these members in this order, an optional one only if it is not empty, no line feed at the end::

    {id, provider, model, system_prompt?, messages, tools?, metadata?, created_at, version}

No member can hold a handler or a token.
"""

from __future__ import annotations

import dataclasses
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Protocol, TypeVar

from transcript_store._json import times, verbatim
from transcript_store._json.verbatim import NotJSONError
from transcript_store._os.names import is_id
from transcript_store._snapshots import media
from transcript_store._snapshots.tools import ToolSnapshot, check_text, read_tool, tool_json
from transcript_store.errors import (
    CorruptSnapshotError,
    InvalidMessageError,
    InvalidMetadataError,
    InvalidSnapshotIdError,
    SnapshotNotFoundError,
    UnsupportedVersionError,
)

SNAPSHOT_VERSION = 1
OURS = "transcript_store."
"""The prefix of our keys in ``metadata``."""

APPROXIMATE_TOKENS = OURS + "approximate_tokens"
"""The key in ``metadata`` for the number of tokens, in decimal digits."""

BYTES_PER_TOKEN = 4
"""For an estimate of tokens."""

NO_TIME = "0001-01-01T00:00:00Z"
"""How Go writes its zero time."""

_NO_MESSAGES = b"null"
_SHOWN_CHARACTERS = 32

_T = TypeVar("_T")


def validate_snapshot_id(id: str) -> None:
    """Check a snapshot's id: a canonical lower-case UUID. Call it where an id comes from outside: a request, a command
    line.

    No path, no NUL and no other spelling passes.

    Raises:
        InvalidSnapshotIdError: this is not such an id; the error shows its first 32 characters.
    """
    if not isinstance(id, str):
        raise InvalidSnapshotIdError(reason=f"a snapshot's id is a str, not {type(id).__name__}", id="")
    if not is_id(id):
        shown = id[:_SHOWN_CHARACTERS]
        more = "…" if len(id) > _SHOWN_CHARACTERS else ""
        what = f"{shown!r}{more} is not a canonical lower-case UUID" if id else "a snapshot's id must not be empty"
        raise InvalidSnapshotIdError(reason=what, id=shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """An immutable copy of a conversation, to be stored, listed, sealed, moved and continued.

    Its members cannot be set. Do not change what ``metadata`` and ``tools`` hold either: a ``MemorySnapshotStore``
    keeps the value itself, and returns the same value from every load.

    ``messages_json`` is the provider's own history as JSON bytes in compact form, an array or ``null``. It is kept as
    text: the order of keys, repeated keys, big integers and the spelling of numbers survive a load and a save.
    ``created_at`` is RFC 3339 with its offset and up to nine digits of a second, without trailing zeros, as Go writes
    it. ``metadata`` maps str to str; keys that begin with ``transcript_store.`` are ours.

    :meth:`create` makes a snapshot from Python values. The constructor takes the members as they are.

    Raises:
        InvalidSnapshotIdError: the id is not a canonical lower-case UUID.
        InvalidMessageError: ``messages_json`` is not a JSON array or ``null``, or nests more than 500 levels deep.
        InvalidMetadataError: any other member is not valid; the error names it.
        UnsupportedVersionError: the version is above 1.
    """

    id: str
    provider: str
    model: str
    messages_json: bytes = field(repr=False)
    created_at: str
    system_prompt: str = field(default="", repr=False)
    tools: tuple[ToolSnapshot, ...] = field(default=(), repr=False)
    metadata: dict[str, str] = field(default_factory=dict, repr=False, hash=False)
    version: int = SNAPSHOT_VERSION

    def __post_init__(self) -> None:
        validate_snapshot_id(self.id)
        if type(self.version) is not int or self.version < 0:
            raise InvalidMetadataError(field="version", reason=f"must be an int from 0, not {self.version!r:.40}")
        if self.version > SNAPSHOT_VERSION:
            what = f"snapshot {self.id} is of version {self.version}, this program reads version {SNAPSHOT_VERSION}"
            raise UnsupportedVersionError(path="", reason=what)
        for name in ("provider", "model", "system_prompt"):
            check_text(name, "it", getattr(self, name))
        tools = tuple(self.tools)
        if not all(isinstance(tool, ToolSnapshot) for tool in tools):
            raise InvalidMetadataError(field="tools", reason="must be ToolSnapshots")
        metadata = dict(self.metadata)
        for key, value in metadata.items():
            check_text("metadata", "a key", key)
            check_text("metadata", "a value", value)
        if not isinstance(self.messages_json, bytes | bytearray | memoryview):
            reason = f"messages_json must be bytes, not {type(self.messages_json).__name__}"
            raise InvalidMessageError(member="messages", reason=reason)
        normal: dict[str, Any] = {
            "tools": tools,
            "metadata": metadata,
            "created_at": normal_time(self.created_at),
            "messages_json": _compact_messages(bytes(self.messages_json)),
        }
        for name, value in normal.items():
            object.__setattr__(self, name, value)

    @classmethod
    def create(
        cls,
        *,
        provider: str,
        model: str = "",
        messages: Iterable[Any] | None = (),
        system_prompt: str | None = None,
        tools: Iterable[ToolSnapshot] = (),
        metadata: Mapping[str, str] | None = None,
        created_at: str | datetime | None = None,
        id: str | None = None,
    ) -> Snapshot:
        """Make a snapshot from Python values, with a fresh id and the current time unless they are given.

        ``messages`` are JSON values in the provider's own form; they are copied.

        Raises:
            InvalidMessageError: a message would not come back equal (NaN, a tuple, a lone surrogate); the error says which.
            TranscriptStoreError: what the constructor raises.
        """
        if isinstance(messages, str | bytes | Mapping):
            reason = f"must be a list of JSON values, not {type(messages).__name__}"
            raise InvalidMessageError(member="messages", reason=reason)
        values = None if messages is None else list(messages)
        try:
            encoded = verbatim.encode_compact(values)
        except NotJSONError as error:
            raise _first_refused(values or (), error) from None
        if created_at is None:
            created_at = datetime.now(UTC)
        if isinstance(created_at, datetime):
            if created_at.tzinfo is None:
                raise InvalidMetadataError(field="created_at", reason="must have a time zone")
            created_at = created_at.isoformat()
        snapshot = cls(
            id=str(uuid.uuid4()) if id is None else id,
            provider=provider,
            model=model,
            messages_json=_NO_MESSAGES,
            created_at=created_at,
            system_prompt="" if system_prompt is None else system_prompt,
            tools=tuple(tools),
            metadata={} if metadata is None else dict(metadata),
        )
        return with_messages(snapshot, encoded)

    @property
    def messages(self) -> list[Any]:
        """The messages as Python values: a fresh list, the caller's to change. ``null`` gives ``[]``.

        Of a repeated key only the last one is here.

        Raises:
            InvalidMessageError: an integer has more than 4,300 digits; ``messages_json`` still has it.
        """
        try:
            return verbatim.decode(self.messages_json) or []
        except NotJSONError as error:
            raise InvalidMessageError(member="messages", reason=str(error)) from None

    @property
    def message_count(self) -> int:
        """The number of messages; none is decoded."""
        return verbatim.count_elements(self.messages_json) or 0

    @property
    def created_at_datetime(self) -> datetime:
        """``created_at`` as an aware ``datetime``, cut to microseconds."""
        return times.as_datetime(self.created_at)

    def to_json(self) -> bytes:
        """The JSON form: the bytes that the Go library writes."""
        return verbatim.indented(_compact_json(self))

    @classmethod
    def from_json(cls, data: bytes) -> Snapshot:
        """Read the JSON form. Unknown members are dropped, as the Go library does.

        Raises:
            CorruptSnapshotError: this is not a snapshot; the error names the fault.
            UnsupportedVersionError: a later version of this library wrote it.
        """
        if not isinstance(data, bytes):
            raise TypeError(f"from_json() takes bytes, not {type(data).__name__}")
        return read(data)


# ---- the JSON form -----------------------------------------------------------------------------------------------------


def _compact_json(snapshot: Snapshot) -> bytes:
    string = verbatim.encode_string
    parts: list[tuple[str, bytes]] = [
        ("id", string(snapshot.id)),
        ("provider", string(snapshot.provider)),
        ("model", string(snapshot.model)),
    ]
    if snapshot.system_prompt:
        parts.append(("system_prompt", string(snapshot.system_prompt)))
    parts.append(("messages", snapshot.messages_json))
    if snapshot.tools:
        parts.append(("tools", b"[" + b",".join(map(tool_json, snapshot.tools)) + b"]"))
    if snapshot.metadata:
        pairs = (string(key) + b":" + string(value) for key, value in sorted(snapshot.metadata.items()))
        parts.append(("metadata", b"{" + b",".join(pairs) + b"}"))
    parts += [("created_at", string(snapshot.created_at)), ("version", b"%d" % snapshot.version)]
    members = (piece for name, value in parts for piece in (b",", string(name), b":", value))
    return b"".join((b"{", *islice(members, 1, None), b"}"))


def read(data: bytes, *, path: str | None = None, id: str | None = None) -> Snapshot:
    """Read the JSON form; ``path`` is for errors, ``id`` is the id that it must have.

    Raises ``CorruptSnapshotError`` and ``UnsupportedVersionError``.
    """
    with as_corrupt(path):
        members = verbatim.members(data)
        check_envelope(members, path, id)
        snapshot = Snapshot(
            id=optional_member(members, "id", str, ""),
            provider=optional_member(members, "provider", str, ""),
            model=optional_member(members, "model", str, ""),
            system_prompt=optional_member(members, "system_prompt", str, ""),
            messages_json=_NO_MESSAGES,
            tools=tuple(read_tool(tool) for tool in optional_member(members, "tools", list, [])),
            metadata=optional_member(members, "metadata", dict, {}),
            created_at=optional_member(members, "created_at", str, NO_TIME),
            version=optional_member(members, "version", int, 0),
        )
        return with_messages(snapshot, _compact_messages(members.get("messages", _NO_MESSAGES), is_unicode=True))


def with_messages(snapshot: Snapshot, compact: bytes) -> Snapshot:
    """The same snapshot with other messages, in compact form. They are not checked again: that would read all of them."""
    snapshot = dataclasses.replace(snapshot, messages_json=_NO_MESSAGES)
    object.__setattr__(snapshot, "messages_json", compact)
    return snapshot


def _first_refused(values: Iterable[Any], error: NotJSONError) -> InvalidMessageError:
    for number, value in enumerate(values):
        try:
            verbatim.encode_compact(value)
        except NotJSONError as its_own:
            return InvalidMessageError(member=f"messages[{number}]", reason=str(its_own))
    return InvalidMessageError(member="messages", reason=str(error))  # the list of them is one level more


@contextmanager
def as_corrupt(path: str | None) -> Iterator[None]:
    """Raise errors of invalid arguments as ``CorruptSnapshotError``: here the values come from a file."""
    try:
        yield
    except (NotJSONError, InvalidMessageError, InvalidMetadataError, InvalidSnapshotIdError) as error:
        raise CorruptSnapshotError(path=path, kind="damaged", reason=str(error)) from error


def check_envelope(members: dict[str, bytes], path: str | None, id: str | None) -> None:
    """Raise ``UnsupportedVersionError`` for a later version, and ``CorruptSnapshotError`` for another id than this one."""
    version = optional_member(members, "version", int, 0)
    if version > SNAPSHOT_VERSION:
        what = f"the snapshot is of version {version}, this program reads version {SNAPSHOT_VERSION}"
        raise UnsupportedVersionError(path=path or "", reason=what)
    if id is not None and (found := optional_member(members, "id", str, "")) != id:
        reason = f"it contains snapshot {found!r:.40}, not {id}: another file was put in its place"
        raise CorruptSnapshotError(path=path, kind="wrong-id", reason=reason)


def optional_member(members: dict[str, bytes], name: str, kind: type[_T], absent: _T) -> _T:
    """A member's value; null counts as absent, as it does in Go."""
    value = verbatim.decode(members.get(name, b"null"))
    if value is None:
        return absent
    if type(value) is not kind:
        raise NotJSONError(f"has a {name} that is of another type")
    return value


def _compact_messages(text: bytes, *, is_unicode: bool = False) -> bytes:
    try:
        compact = verbatim.compact(text, is_unicode=is_unicode)
    except NotJSONError as error:
        raise InvalidMessageError(member="messages", reason=str(error)) from None
    if compact != b"null" and not compact.startswith(b"["):
        raise InvalidMessageError(member="messages", reason="must be a JSON array, or null")
    return compact


def normal_time(text: Any) -> str:
    """The time as Go writes it; raises ``InvalidMetadataError`` if it is not a time."""
    try:
        return times.normal(text)
    except ValueError:
        reason = f"must be a time like 2026-03-31T12:00:00Z (RFC 3339), not {text!r:.60}"
        raise InvalidMetadataError(field="created_at", reason=reason) from None


_SUMMARIZED = ("id", "provider", "model", "metadata", "created_at", "version")
_TOKENS = re.compile(r"\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSummary:
    """The facts of a snapshot in a listing.

    ``approximate_tokens`` is the snapshot's ``metadata["transcript_store.approximate_tokens"]``, which ``snapshot_of``
    writes. Without that it is a quarter of the bytes of its messages as compact JSON, without media. ``size_bytes`` is
    what the snapshot takes where it is stored, without media.

    Your own store creates one with :meth:`of` when a snapshot is saved, and lists them with :meth:`newest_first`.
    """

    id: str
    provider: str
    model: str
    created_at: str
    message_count: int
    approximate_tokens: int
    size_bytes: int

    @classmethod
    def of(cls, snapshot: Snapshot, *, size_bytes: int | None = None) -> SnapshotSummary:
        """The summary of a snapshot; no message is decoded.

        ``size_bytes`` is its stored size. By default it is the length of its JSON form as a
        ``FileStore`` writes it: with a reference of 81 bytes instead of each long base64 text.
        """
        if not isinstance(snapshot, Snapshot):
            raise TypeError(f"of() takes a Snapshot, not {type(snapshot).__name__}")
        messages = media.move_out(snapshot.messages_json, lambda *_: None)
        return read_summary(with_messages(snapshot, messages).to_json(), size_bytes=size_bytes)

    @staticmethod
    def newest_first(summaries: Iterable[SnapshotSummary]) -> list[SnapshotSummary]:
        """A new list in the order of every listing: the newest first, those of one moment by id.

        Moments are compared to the nanosecond, whatever the offset of ``created_at``.
        """
        by_id = sorted(summaries, key=lambda summary: summary.id)
        return sorted(by_id, key=lambda summary: times.instant(summary.created_at), reverse=True)

    @property
    def created_at_datetime(self) -> datetime:
        """``created_at`` as an aware ``datetime``, cut to microseconds."""
        return times.as_datetime(self.created_at)


Summaries = list[SnapshotSummary]


class SnapshotStore(Protocol):
    """Where snapshots are kept: four calls. ``testing.check_snapshot_store`` checks that an implementation keeps the
    contract.

    docs/snapshots.md has an example with public names only.
    """

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot, atomically; one with the same id is replaced."""
        ...

    def load(self, id: str) -> Snapshot:
        """The snapshot with this id, equal to the one saved. Raises ``SnapshotNotFoundError``, ``InvalidSnapshotIdError``."""
        ...

    def list(self) -> Summaries:
        """All snapshots, newest first. Damaged and foreign ones are skipped."""
        ...

    def delete(self, id: str) -> None:
        """Remove the snapshot with this id. Raises ``SnapshotNotFoundError``, ``InvalidSnapshotIdError``."""
        ...


def read_summary(
    data: bytes, *, path: str | None = None, id: str | None = None, size_bytes: int | None = None
) -> SnapshotSummary:
    """The summary of a snapshot in its JSON form; no message is decoded. Raises what ``snapshot.read`` raises.

    ``id`` is the id that it must have. Without it any id is accepted, as for a snapshot in memory.
    """
    with as_corrupt(path):
        members, messages = verbatim.outline(data, "messages", _SUMMARIZED)
        check_envelope(members, path, id)
        metadata = optional_member(members, "metadata", dict, {})
        tokens = metadata.get(APPROXIMATE_TOKENS)
        if type(tokens) is not str or not _TOKENS.fullmatch(tokens):
            tokens = verbatim.compact_length(messages) // BYTES_PER_TOKEN if messages else 0
        return SnapshotSummary(
            id=optional_member(members, "id", str, ""),
            provider=optional_member(members, "provider", str, ""),
            model=optional_member(members, "model", str, ""),
            created_at=normal_time(optional_member(members, "created_at", str, NO_TIME)),
            message_count=len(messages),
            approximate_tokens=int(tokens),
            size_bytes=len(data) if size_bytes is None else size_bytes,
        )


# ---- memory store ----
# Snapshots in memory: for tests, and for data that need not outlive the process.


class MemorySnapshotStore:
    """A ``SnapshotStore`` in memory. Several threads may use it."""

    def __init__(self) -> None:
        self._stored: dict[str, tuple[Snapshot, SnapshotSummary]] = {}

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot; one with the same id is replaced."""
        if not isinstance(snapshot, Snapshot):
            raise TypeError(f"save() takes a Snapshot, not {type(snapshot).__name__}")
        self._stored[snapshot.id] = (snapshot, SnapshotSummary.of(snapshot))

    def load(self, id: str) -> Snapshot:
        """The snapshot with this id. Raises ``SnapshotNotFoundError`` and ``InvalidSnapshotIdError``."""
        validate_snapshot_id(id)
        if (found := self._stored.get(id)) is None:
            raise SnapshotNotFoundError(id=id)
        return found[0]

    def list(self) -> Summaries:
        """All snapshots, newest first."""
        return SnapshotSummary.newest_first(summary for _, summary in tuple(self._stored.values()))

    def delete(self, id: str) -> None:
        """Forget the snapshot with this id. Raises ``SnapshotNotFoundError`` and ``InvalidSnapshotIdError``."""
        validate_snapshot_id(id)
        if self._stored.pop(id, None) is None:
            raise SnapshotNotFoundError(id=id)
