"""What of a conversation's metadata is sealed, and the keyed checks of what is in sight.

::

    metadata.json := body `,"check":"<64 hex>"` `,"hash":"<32 hex>"}` LF
    header        := body `,"check":"<64 hex>"` `,"hash":"<32 hex>"}` LF

A check is made with a key that is derived from the data key, over the bytes before it. So whoever lacks the key can change nothing
in them unseen, nor take the transcript back behind the mark, whose head covers every line before it. A repair without the key writes
neither check: the next load with the key refuses that, until somebody accepts it.

``IN_SIGHT`` are the members that say nothing of the content. All others, those that this version does not know too, are sealed.
"""

from __future__ import annotations

from typing import Any

import orjson

from transcript_store._conversation.metadata import (
    GONE,
    REPLACED,
    SEALED_MEMBER,
    SEALS,
    MetadataDocument,
    document_body,
)
from transcript_store._log.record import CHECK_MEMBER, SEALED, Header, Mark, close_line
from transcript_store._log.sealed import RecordSealer
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import KEY
from transcript_store._sealing.data_key import KEY_BYTES, NONCE_BYTES, DataKey
from transcript_store._sealing.key_file import WrappedKey, encode_key_file, read_key_file_of
from transcript_store._sealing.providers import Keyring, Opens
from transcript_store.errors import CorruptMetadataError

IN_SIGHT = frozenset(
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
    """The data key of one conversation at work. What was sealed of the metadata is not sealed anew until it changes."""

    def __init__(self, key: DataKey, files: FileSystem, key_file: bytes, key_id: str = "") -> None:
        self.key = key
        self.key_file, self.key_id = key_file, key_id
        """What stands in key.json, and which key unwraps it."""
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
        """The data key that a conversation's key file holds; ``known`` is asked first, so that a provider is asked once."""
        wrapped = read_key_file_of(folder, conversation)
        key_file = encode_key_file(wrapped)
        if known is not None and known.key_file == key_file:
            return known
        return cls.unwrapped(keys, wrapped, folder.files, folder.path_of(KEY))

    @classmethod
    def unwrapped(
        cls, keys: Keyring, wrapped: WrappedKey, files: FileSystem, path: str, opens: Opens | None = None
    ) -> Sealing:
        """The data key that was wrapped; ``path`` is for the error. To seal with it, give ``opens``, which must not deny it."""
        given = wrapped.key_id, wrapped.wrapped, path
        data_key = keys.unwrap(*given) if opens is None else keys.unwrap_to_seal(*given, opens)
        return cls(DataKey(data_key, wrapped.conversation), files, encode_key_file(wrapped), wrapped.key_id)

    def sealer(self, generation: int) -> RecordSealer:
        """What seals and opens the records of a generation."""
        return RecordSealer(self.key, generation, self._files.random_bytes)

    # ---- metadata ------------------------------------------------------------------------------------------------

    def stored(self, members: dict[str, Any]) -> dict[str, Any]:
        """The members as they are stored: those in sight, and the others sealed."""
        secret = orjson.dumps({name: value for name, value in members.items() if name not in IN_SIGHT})
        plain, text = self._last
        # Sealed again only if it changed. With a fresh nonce each time, every mark would give metadata.json another hash, and
        # shared writers compare that: each call would load.
        if secret != plain:
            nonce = self._files.random_bytes(NONCE_BYTES)
            text = self.key.seal(nonce, secret, self.key.place_of_metadata).decode()
            self._last = secret, text
        shown = {name: value for name, value in members.items() if name in IN_SIGHT}
        return {**shown, "requires": [SEALED], SEALED_MEMBER: text}

    def opened(self, stored: dict[str, Any], path: str) -> dict[str, Any]:
        """The members that were stored; raises ``CorruptMetadataError`` if what is sealed does not open."""
        text = stored.get(SEALED_MEMBER)
        plain = self.key.open(text, self.key.place_of_metadata) if type(text) is str and text.isascii() else None
        if plain is None:
            reason = "what is sealed in it is not what was sealed with this conversation's key"
            raise CorruptMetadataError(path=path, kind="not-genuine", reason=reason)
        self._last = plain, str(text)
        return {**{name: value for name, value in stored.items() if name in IN_SIGHT}, **orjson.loads(plain)}

    def document(self, members: dict[str, Any], mark: Mark | None) -> bytes:
        """metadata.json as bytes, with its keyed check."""
        return close_line(b"", self.checked(document_body(self.stored(members), mark)))[0]

    # ---- checks --------------------------------------------------------------------------------------------------

    def checked(self, body: bytes) -> bytes:
        """A body with the keyed check of its bytes."""
        return b'%b%b%b"' % (body, CHECK_MEMBER, self.key.check(body))

    def is_genuine(self, source: Header | MetadataDocument) -> bool | None:
        """Whether the keyed check of a header or of metadata.json holds; None if it has none."""
        if source.check is None:
            return None
        return self.key.is_checked(*source.check)


def opens(key: DataKey, members: dict[str, Any], header: Header | None) -> bool | None:
    """Whether a data key is that of a conversation with this metadata and this first line; None if neither tells.

    One of them is enough: the other may be damaged, or of a repair without the key.
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
    """Which generations before the live one are neither there nor known to be gone, as ranges."""
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
    """The metadata that says of every earlier generation that is not there that it is gone."""
    gone = missing_ranges(live, there, ())
    if gone:
        return {**members, GONE: gone}
    return {name: value for name, value in members.items() if name != GONE}
