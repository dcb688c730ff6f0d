"""What does metadata.json hold? The facts about a conversation that need no transcript; it is always replaced as a
whole, atomically.

::

    file := body `,"hash":"<32 hex>"}` LF
    body := an indented JSON object without its closing brace

The hash is the first 128 bits, in lower-case hex, of SHA-256 over the body. ``mark`` remembers how far the transcript
was synced: a lower bound of what must still exist. A null (void) mark in a folder without a transcript means an
``initialize()`` that never finished.

Nothing here does I/O.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from transcript_store._json.strict import encode
from transcript_store._json.times import is_time
from transcript_store._log.record import (
    CHECK_MEMBER,
    HASH_MEMBER,
    LONGEST_METADATA_BYTES,
    SEALED,
    SUFFIX_BYTES,
    VERSION,
    Header,
    Mark,
    Position,
    chain_hash,
    check_of,
    close_line,
)
from transcript_store._log.sealed_records import RecordSealer
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import KEY, LAST_GENERATION, is_id
from transcript_store._sealing.data_key import KEY_BYTES, NONCE_BYTES, DataKey
from transcript_store._sealing.keys import Keyring, Opens, WrappedKey, encode_key_file, read_key_file_of
from transcript_store.display import many
from transcript_store.errors import CorruptMetadataError, InvalidIdError, InvalidMessageError, InvalidMetadataError

PROVIDERS = ("claude", "openai", "openai-compatible", "gemini", "claude-local")
"""The providers whose names have a meaning here. Any other name is stored unchanged."""

FRAMEWORKS = ("openai-agents", "claude-agent-sdk", "pydantic-ai")
"""The value of ``provider`` where ``transcript_store.integrations`` stores a framework's own items."""

_FAMILIES = {"openai-compatible": "openai"}
"""Providers whose messages are those of another one."""

CHANGEABLE = ("model", "compaction_count", "system_prompt", "tools", "labels", "provider")
"""The fields that ``update_metadata`` can change; ``provider`` only while it is None, or within its family."""

_EXAMPLE_ID = "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"
REPLACED = "replaced"
"""Where earlier generations ended whose successor was deleted: a list of ``conversation``, ``generation``, ``records``, ``head``."""
_RESERVED_BYTES = 1 << 20
"""Reserved in metadata.json for what the store itself adds."""
SEALED_MEMBER = "sealed"
"""For a sealed conversation: the members that reveal something of the content, sealed."""
SEALS = "seals"
"""Of a sealed conversation: how many texts its data key had sealed when the live generation started, and of metadata
since.
"""
GONE = "gone"
"""In a sealed conversation: the deleted earlier generations, as ranges ``[first, last]``."""
ENVELOPE = ("format", "version", "mark", "check", "hash")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationMetadata:
    """A conversation's metadata, as :meth:`ConversationStore.get_metadata` returns it: frozen, and a fresh copy.

    Times are RFC 3339 text in UTC with microseconds. ``updated_at`` is never older than the last record. ``generation``
    counts the replaces, from 0. ``compaction_count`` is whatever the caller last set.
    """

    id: str
    created_at: str
    updated_at: str
    provider: str | None
    model: str | None
    system_prompt: str | None
    tools: list[dict[str, Any]] | None
    compaction_count: int
    labels: dict[str, str]
    generation: int
    forked_from: dict[str, Any] | None = None
    """For a fork: the ``conversation``, ``generation``, ``seq`` and ``head`` of the last record that it shares with the
    original.
    """
    restored_from: dict[str, Any] | None = None
    """For a restored conversation: the ``snapshot``'s id, and the metadata of the snapshot's conversation."""

    sealed: bool = False
    """True if the conversation is sealed. Without its key ``system_prompt``, ``tools``, ``labels`` and
    ``restored_from`` look empty.
    """

    @property
    def created_at_datetime(self) -> datetime:
        """``created_at`` as an aware ``datetime`` in UTC."""
        return datetime.fromisoformat(self.created_at)

    @property
    def updated_at_datetime(self) -> datetime:
        """``updated_at`` as an aware ``datetime`` in UTC."""
        return datetime.fromisoformat(self.updated_at)


_PUBLIC = [field.name for field in dataclasses.fields(ConversationMetadata)]
_AT_FIRST: dict[str, Any] = {
    **dict.fromkeys(("provider", "model", "system_prompt", "tools")),
    "compaction_count": 0,
    "labels": {},
    "generation": 0,
}
"""The members of an empty conversation, without its id and its times, in the order in which they are written."""


class MetadataDocument(NamedTuple):
    """metadata.json decoded: its members (unknown ones too, without those of the envelope) and its mark."""

    members: dict[str, Any]
    mark: Mark | None
    check: tuple[bytes, bytes] | None = None
    """The bytes that its keyed check covers, and the check; None if it has none."""


class NotADocument(NamedTuple):
    """Why a metadata.json cannot be read; ``version`` is set when the only reason is that it is a later one."""

    reason: str
    version: int | None = None


def checked_id(text: object) -> str:
    """The given id if it is a canonical lower-case UUID; raises ``InvalidIdError`` otherwise."""
    if type(text) is not str or not is_id(text):
        shown = repr(text[:40]) if type(text) is str else type(text).__name__
        raise InvalidIdError(reason=f"an id must be a lower-case UUID such as {_EXAMPLE_ID}, not {shown}")
    return text


def new_members(at: str, *, id: str, **fields: Any) -> dict[str, Any]:
    """The members of a new conversation."""
    return {"id": id, "created_at": at, "updated_at": at, **_AT_FIRST, "labels": {}, **fields}


def family(provider: str) -> str:
    """The providers that share native messages: ``openai`` and ``openai-compatible`` are one family."""
    return _FAMILIES.get(provider, provider)


def differing(fields: dict[str, Any], members: dict[str, Any]) -> list[str]:
    """The names of the given fields that differ from the stored ones. Stored labels that were not given do not count."""
    given = {name: value for name, value in fields.items() if value is not None}
    recorded = members.get("labels") or {}
    labels = given.pop("labels", {})
    names = [name for name, value in given.items() if members.get(name) != value]
    return names + ["labels"] * any(recorded.get(label) != text for label, text in labels.items())


def copied_members(members: dict[str, Any], at: str, *, id: str, **origin: Any) -> dict[str, Any]:
    """The members of a new conversation that copies another; ``origin`` names it."""
    kept = {key: value for key, value in members.items() if key not in ("forked_from", REPLACED)}
    return {**kept, "id": id, "created_at": at, "updated_at": at, "generation": 0, **origin}


def checked_fields(fields: dict[str, Any], max_bytes: int) -> dict[str, Any]:
    """Check what a caller wants to set and return a deep copy; raises ``InvalidMetadataError`` naming the field."""
    given = dict(fields)
    if type(tools := given.get("tools")) is tuple:
        given["tools"] = list(tools)
    if "labels" in given and given["labels"] is None:
        given["labels"] = {}
    for field, value in given.items():
        _check_field(field, value)
    try:
        return dict(orjson.loads(encode(given, "metadata", max_bytes)))
    except InvalidMessageError:  # one of them cannot be stored, or each fits by itself
        return {field: _checked_alone(field, value, max_bytes) for field, value in given.items()}


def _checked_alone(field: str, value: Any, max_bytes: int) -> Any:
    try:
        return orjson.loads(encode({field: value}, "metadata", max_bytes))[field]
    except InvalidMessageError as error:
        raise InvalidMetadataError(field=field, reason=str(error)) from None


def _check_field(field: str, value: Any) -> None:
    kind, reason = type(value), None
    if field in ("provider", "model", "system_prompt"):
        if value is not None and kind is not str:
            reason = f"must be a str or None, not {kind.__name__}"
        elif field == "provider" and value == "":
            reason = "must not be empty; None means not known yet"
    elif field == "compaction_count":
        if kind is not int or not 0 <= value < 2**63:
            reason = f"must be an int from 0, not {value!r:.40}"
    elif field == "labels":
        if kind is not dict:
            reason = f"must be a dict of str to str, not {kind.__name__}"
        for name, text in value.items() if kind is dict else ():
            if type(name) is not str or type(text) is not str:
                reason = f"must be a dict of str to str, and {name!r:.40} is {text!r:.40}"
                break
    elif field == "restored_from":
        if kind is not dict:
            reason = f"must be a JSON object, not {kind.__name__}"
    elif field == "tools" and value is not None:
        if kind is not list:
            reason = f"must be a list of JSON objects, not {kind.__name__}"
        for number, tool in enumerate(value if kind is list else ()):
            if (problem := _problem_with_tool(tool)) is not None:
                raise InvalidMetadataError(field=f"tools[{number}]", reason=problem)
    if reason is not None:
        raise InvalidMetadataError(field=field, reason=reason)


def _problem_with_tool(tool: Any) -> str | None:
    if type(tool) is not dict:
        return f"must be a JSON object, not {type(tool).__name__}"
    if type(tool.get("name")) is not str or not tool["name"]:
        return "must have a name, a str that is not empty"
    if type(tool.get("description", "")) is not str:
        return "must have a description that is a str"
    if type(tool.get("parameters", {})) is not dict:
        return "must have parameters that are a JSON object (a JSON Schema)"
    return None


def encode_document(members: dict[str, Any], mark: Mark | None) -> bytes:
    """metadata.json as bytes."""
    return close_line(b"", document_body(members, mark))[0]


def document_body(members: dict[str, Any], mark: Mark | None) -> bytes:
    """metadata.json without its hash and what closes it."""
    document = {
        "format": "transcript-store",
        "version": VERSION,
        **members,
        "mark": mark.as_json() if mark else None,
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)[:-1]


def document_hash(document: bytes) -> str:
    """The hash that a metadata.json ends in."""
    return document[-len(b'0123456789abcdef0123456789abcdef"}\n') : -len(b'"}\n')].decode()


def decode_document(
    data: bytes | NotADocument | None, *, check_members: bool = True
) -> MetadataDocument | NotADocument:
    """Decode what :func:`layout.metadata_bytes` returned, or say why it is not a metadata.json.

    Without ``check_members`` the types of the members are not checked: the hash shows that a store wrote them.
    """
    if data is None:
        return NotADocument("it is missing")
    if isinstance(data, NotADocument):
        return data
    if not data:
        return NotADocument("it is empty")
    body, suffix = data[: -SUFFIX_BYTES - 1], data[-SUFFIX_BYTES - 1 :]
    if suffix != HASH_MEMBER + chain_hash(b"", (body,)) + b'"}\n':
        return NotADocument("its hash does not match its bytes: it was cut, edited or damaged")
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        return NotADocument(f"it is not JSON: {error.msg}")
    if type(document) is not dict or document.get("format") != "transcript-store":
        return NotADocument("it is not one of ours")
    version = document.get("version")
    if type(version) is int and version > VERSION:
        return NotADocument(f"it is of format version {version}, this program reads version {VERSION}", version)
    members = {key: value for key, value in document.items() if key not in ENVELOPE}
    if check_members and (problem := problem_with_members(members)):
        return NotADocument(problem)
    try:
        return MetadataDocument(members, _mark(document.get("mark")), check_of(body) if "check" in document else None)
    except (KeyError, TypeError, AttributeError, ValueError):
        return NotADocument("its mark is not one")


def _mark(stated: Any) -> Mark | None:
    """The mark that a metadata.json states; raises one of Python's errors if it is not one."""
    if stated is None:
        return None
    generation, seq, offset, head = stated["generation"], stated["seq"], stated["offset"], stated["head"].encode()
    if {*map(type, (generation, seq, offset))} != {int} or min(generation, seq, offset) < 0 or len(head) != 32:
        raise ValueError
    return Mark(generation, Position(seq, offset, head))


def require_to_fit(members: dict[str, Any], document: bytes) -> None:
    """Raise ``InvalidMetadataError`` if a metadata.json with these members is longer than a reader accepts."""
    length = len(document) + _RESERVED_BYTES
    if length > LONGEST_METADATA_BYTES:
        sizes = {
            field: len(orjson.dumps(members[field])) for field in (*CHANGEABLE, "restored_from") if field in members
        }
        field = max(sizes, key=lambda field: sizes[field])
        reason = f"has {many(sizes[field], 'byte')}: with it all metadata would have {length:,}; at most {LONGEST_METADATA_BYTES:,} fit"
        raise InvalidMetadataError(field=field, reason=reason)


def problem_with_members(members: dict[str, Any]) -> str | None:
    """The problem of the metadata's members in a whole file; None if there is none."""
    if type(members.get("id")) is not str or not is_id(members["id"]):
        return "its id is not a canonical lower-case UUID"
    for field in ("created_at", "updated_at"):
        if not is_time(members.get(field)):
            return f"its {field} is not a time"
    if type(members.get("generation")) is not int or not 0 <= members["generation"] <= LAST_GENERATION:
        return "its generation is not a number"
    try:
        orjson.dumps(members)
    except orjson.JSONEncodeError:
        return "it nests too deeply"
    try:
        for field in CHANGEABLE:
            # A member that another program left out has its default; some programs write null for that.
            if field in members and (members[field] is not None or field == "compaction_count"):
                _check_field(field, members[field])
        if members.get("tools") is not None:
            encode({"tools": members["tools"]}, "tools", LONGEST_METADATA_BYTES)  # the other fields are flat
    except (InvalidMetadataError, InvalidMessageError) as error:
        return f"its {error}"
    return None


def public(members: dict[str, Any], updated_at: str, *, sealed: bool = False) -> ConversationMetadata:
    """The frozen value users see; a fresh copy."""
    copy = {**_AT_FIRST, **orjson.loads(orjson.dumps(members))}
    copy |= {"updated_at": max(copy["updated_at"], updated_at), "labels": copy["labels"] or {}, "sealed": sealed}
    return ConversationMetadata(**{name: copy[name] for name in _PUBLIC if name in copy})


# ---- sealing ----
# Which metadata is sealed, and what do the keyed checks of the plaintext parts cover?
#
# ::
#
#     metadata.json := body `,"check":"<64 hex>"` `,"hash":"<32 hex>"}` LF
#     header        := body `,"check":"<64 hex>"` `,"hash":"<32 hex>"}` LF
#
# A check is an HMAC over the bytes before it, with a key that is derived from the data key. So without the key no
# process can change those bytes unseen, nor cut the transcript back to before the mark, whose head covers every line
# before it. A repair without the key writes neither check: the next load with the key refuses it until a user accepts
# it.
#
# ``PLAINTEXT_MEMBERS`` are the members that reveal nothing of the content. All others, including those that this
# version does not know, are sealed.

PLAINTEXT_MEMBERS = frozenset(
    {
        "id",
        "created_at",
        "updated_at",
        "provider",
        "model",
        "compaction_count",
        "generation",
        "forked_from",
        REPLACED,
        SEALS,
        GONE,
    }
)


class Sealing:
    """The data key of one conversation in use. Sealed metadata is not sealed again until it changes."""

    def __init__(self, key: DataKey, files: FileSystem, key_file: bytes, key_id: str = "") -> None:
        self.key = key
        self.key_file, self.key_id = key_file, key_id
        """The bytes of key.json, and which key unwraps them."""
        self._files = files
        self._last: tuple[bytes, str] = (b"", "")

    @classmethod
    def new(cls, keys: Keyring, conversation: str, files: FileSystem, path: str) -> Sealing:
        """A fresh data key, wrapped; nothing is written."""
        data_key = files.random_bytes(KEY_BYTES)
        wrapped = WrappedKey(conversation, *keys.wrap(data_key, path))
        return cls(DataKey(data_key, conversation), files, encode_key_file(wrapped), wrapped.key_id)

    @classmethod
    def of(cls, keys: Keyring, folder: Folder, conversation: str, known: Sealing | None) -> Sealing:
        """The data key in a conversation's key file; ``known`` is tried first, so that a provider is called once."""
        wrapped = read_key_file_of(folder, conversation)
        key_file = encode_key_file(wrapped)
        if known is not None and known.key_file == key_file:
            return known
        return cls.unwrapped(keys, wrapped, folder.files, folder.path_of(KEY))

    @classmethod
    def unwrapped(
        cls, keys: Keyring, wrapped: WrappedKey, files: FileSystem, path: str, opens: Opens | None = None
    ) -> Sealing:
        """Unwrap the data key; ``path`` is for the error. To seal with it, pass ``opens``, which must not return False
        for it.
        """
        given = wrapped.key_id, wrapped.wrapped, path
        data_key = keys.unwrap(*given) if opens is None else keys.unwrap_to_seal(*given, opens)
        return cls(DataKey(data_key, wrapped.conversation), files, encode_key_file(wrapped), wrapped.key_id)

    def sealer(self, generation: int) -> RecordSealer:
        """The object that seals and unseals the records of a generation."""
        return RecordSealer(self.key, generation, self._files.random_bytes)

    # ---- metadata ------------------------------------------------------------------------------------------------

    def stored(self, members: dict[str, Any]) -> dict[str, Any]:
        """The members in stored form: the plaintext ones, and the others sealed."""
        secret = orjson.dumps({name: value for name, value in members.items() if name not in PLAINTEXT_MEMBERS})
        plain, text = self._last
        # Sealed again only if it changed. With a fresh nonce each time, every mark would give metadata.json another hash, and
        # shared writers compare that: each call would load.
        if secret != plain:
            nonce = self._files.random_bytes(NONCE_BYTES)
            text = self.key.seal(nonce, secret, self.key.place_of_metadata).decode()
            self._last = secret, text
        shown = {name: value for name, value in members.items() if name in PLAINTEXT_MEMBERS}
        return {**shown, "requires": [SEALED], SEALED_MEMBER: text}

    def opened(self, stored: dict[str, Any], path: str) -> dict[str, Any]:
        """The stored members, unsealed; raises ``CorruptMetadataError`` if they cannot be."""
        text = stored.get(SEALED_MEMBER)
        plain = self.key.open(text, self.key.place_of_metadata) if type(text) is str and text.isascii() else None
        if plain is None:
            reason = "its sealed part was not sealed with this conversation's key"
            raise CorruptMetadataError(path=path, kind="not-genuine", reason=reason)
        self._last = plain, str(text)
        return {**{name: value for name, value in stored.items() if name in PLAINTEXT_MEMBERS}, **orjson.loads(plain)}

    def document(self, members: dict[str, Any], mark: Mark | None) -> bytes:
        """metadata.json as bytes, with its keyed check."""
        return close_line(b"", self.checked(document_body(self.stored(members), mark)))[0]

    # ---- checks --------------------------------------------------------------------------------------------------

    def checked(self, body: bytes) -> bytes:
        """A body with the keyed check of its bytes."""
        return b'%b%b%b"' % (body, CHECK_MEMBER, self.key.check(body))

    def is_genuine(self, source: Header | MetadataDocument) -> bool | None:
        """True if the keyed check of a header or of metadata.json holds; None if it has none."""
        if source.check is None:
            return None
        return self.key.is_checked(*source.check)


def opens(key: DataKey, members: dict[str, Any], header: Header | None) -> bool | None:
    """True if a data key belongs to a conversation with this metadata and this first line; None if neither shows it.

    One of them is enough: the other may be damaged, or come from a repair without the key.
    """
    text = members.get(SEALED_MEMBER)
    answers = []
    if type(text) is str and text.isascii():
        answers.append(key.open(text, key.place_of_metadata) is not None)
    if header is not None and header.check is not None:
        answers.append(key.is_checked(*header.check))
    return any(answers) if answers else None


Ranges = list[list[int]]


def missing_ranges(live: int, there: set[int], gone: Any) -> Ranges:
    """Which generations before the live one are neither present nor known to be deleted, as ranges."""
    known = [(first, last) for first, last in gone]
    missing: Ranges = []
    for number in range(live):
        if number in there or any(first <= number <= last for first, last in known):
            continue
        if missing and missing[-1][1] == number - 1:
            missing[-1][1] = number
        else:
            missing.append([number, number])
    return missing


def with_gone(members: dict[str, Any], live: int, there: set[int]) -> dict[str, Any]:
    """The metadata that lists every missing earlier generation as deleted."""
    gone = missing_ranges(live, there, ())
    if gone:
        return {**members, GONE: gone}
    return {name: value for name, value in members.items() if name != GONE}
