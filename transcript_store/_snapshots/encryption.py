"""How are snapshots sealed? With AES-256-GCM.

::

    sealed := nonce (12 bytes) ciphertext tag (16 bytes)

There is no associated data, because go-tool-base has none. The sealed content binds a file to its name: a snapshot's
id, or the hash that names media. Nonces are random and passed in; with random nonces a key may seal 2^32 files (NIST SP
800-38D, section 8.3). Nothing here does I/O.
"""

from __future__ import annotations

import codecs
import hmac
import secrets
from typing import Any, NoReturn

from transcript_store._sealing.providers import checked_key
from transcript_store.hints import Hint

KEY_BYTES, NONCE_BYTES, TAG_BYTES = 32, 12, 16
OVERHEAD_BYTES = NONCE_BYTES + TAG_BYTES
_LOOKED_AT_BYTES = 4096
BEGINNING_BYTES = _LOOKED_AT_BYTES + 1
"""So many bytes of a file show whether it is sealed."""


def generate_encryption_key() -> bytes:
    """A fresh key of 32 random bytes. Store it apart from the snapshots; without it they cannot be opened."""
    return secrets.token_bytes(KEY_BYTES)


class NotOpenedError(Exception):
    """No key opens these bytes. ``reason`` is a predicate without its subject, and reveals nothing of the content."""

    def __init__(self, reason: str, hint: Hint) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class Key:
    """One key, which neither ``repr`` nor pickling shows. Raises ``InvalidKeyError`` for anything but 32 bytes."""

    __slots__ = ("_bytes", "_cipher")

    def __init__(self, key: bytes) -> None:
        self._bytes = checked_key(key)
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # slow, and not needed without a key

        self._cipher = AESGCM(self._bytes)

    def seal(self, nonce: bytes, plain: bytes) -> bytes:
        return nonce + self._cipher.encrypt(nonce, plain, None)

    def open(self, sealed: bytes) -> bytes | None:
        """Unseal; None if it was sealed with another key, changed, or never sealed."""
        from cryptography.exceptions import InvalidTag

        if len(sealed) < OVERHEAD_BYTES:
            return None
        view = memoryview(sealed)
        try:
            return self._cipher.decrypt(view[:NONCE_BYTES], view[NONCE_BYTES:], None)
        except InvalidTag:
            return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and hmac.compare_digest(self._bytes, other._bytes)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "<Key>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an encryption key cannot be pickled or copied: pass it on yourself")


class StoreKeys:
    """The keys of a store: the first one seals, each of them opens. Without a key nothing is sealed.

    ``plain_too`` is for a plaintext store that is being sealed: files that are not sealed yet open too.
    """

    def __init__(self, *keys: Key, plain_too: bool = False) -> None:
        self._keys = keys
        self._plain_too = plain_too or not keys

    @property
    def can_seal(self) -> bool:
        return bool(self._keys)

    @property
    def takes_plain(self) -> bool:
        """True if plaintext files open too: without a key, and while a plaintext store is being sealed."""
        return self._plain_too

    def seal(self, nonce: bytes, plain: bytes) -> bytes:
        """The bytes sealed with the first key; unchanged without a key."""
        return self._keys[0].seal(nonce, plain) if self._keys else plain

    def open(self, data: bytes) -> bytes:
        """The content of the bytes; raises ``NotOpenedError``."""
        for key in self._keys:
            plain = key.open(data)
            if plain is not None:
                return plain
        is_plain = is_text(data)
        if self._plain_too and is_plain:
            return data
        if not self._keys:
            raise NotOpenedError("it is not text, so it is sealed", Hint.GIVE_THE_KEY)
        if not data:
            raise NotOpenedError("it is empty: it was cut, or never written", Hint.RESTORE)
        if is_plain:
            raise NotOpenedError(
                "it is not sealed, but this store has a key: another program put it there, or it was stored without a key",
                Hint.SEAL_IT,
            )
        raise NotOpenedError(
            "none of the keys opens it: it was sealed with another key, or it was changed or cut", Hint.GIVE_THE_KEY
        )

    def is_of_others(self, data: bytes) -> bool:
        """True if these bytes are sealed with none of these keys. Without a key the first bytes of a file are enough."""
        return not is_text(data) and not any(key.open(data) is not None for key in self._keys)

    def open_current(self, data: bytes) -> bytes | None:
        """The content of the bytes if :meth:`seal` would seal them with the same key; None otherwise."""
        return self._keys[0].open(data) if self._keys else data

    def rotated_to(self, key: Key, *, plain_too: bool) -> StoreKeys:
        """The keys during a rotation: the new one seals, all of them open."""
        others = [other for other in self._keys if other != key]
        return StoreKeys(key, *others, plain_too=plain_too or not self._keys or self._plain_too)

    def __repr__(self) -> str:
        return f"<{len(self._keys)} keys>"


def is_text(data: bytes) -> bool:
    """True if these bytes are not sealed: sealed bytes are random, and do not start like UTF-8, except for a few short
    ones.
    """
    try:
        codecs.utf_8_decode(data[:_LOOKED_AT_BYTES], "surrogatepass", len(data) <= _LOOKED_AT_BYTES)
    except UnicodeDecodeError:
        return False
    return True


def store_keys(encryption_key: Any, retired_keys: Any) -> StoreKeys:
    """The keys that a caller passes to a store. Raises ``InvalidKeyError``, and ``ValueError`` for retired keys alone."""
    if isinstance(retired_keys, bytes | bytearray | str):
        raise TypeError(f"retired_keys is a sequence of keys, not {type(retired_keys).__name__}")
    retired = [Key(key) for key in retired_keys]
    if encryption_key is None:
        if retired:
            raise ValueError("retired_keys only open earlier snapshots; a store with them needs an encryption_key")
        return StoreKeys()
    return StoreKeys(Key(encryption_key), *retired)
