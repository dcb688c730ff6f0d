"""How does a conversation's data key seal and check? AES-256-GCM for sealed texts, HMAC-SHA256 for plaintext parts.

::

    sealed := BASE64(nonce (12 bytes) ciphertext tag (16 bytes))
    check  := HMAC-SHA256(HKDF-SHA256(data key, info="transcript-store/1/check"), bytes), in 64 lower-case hex digits

A sealed text is bound to its position by its associated data, in ASCII:

::

    record   := transcript-store/1/record/<conversation>/<generation>/<seq>/<at>
    metadata := transcript-store/1/metadata/<conversation>

``generation`` and ``seq`` are those at which a record was sealed. So a text that is moved, copied or replayed elsewhere
cannot be unsealed.

A nonce is random, and never derived from a number: after a crash a record may be written again under the number that it
had, with another message. With random nonces a key may seal 2^32 texts (NIST SP 800-38D, section 8.3); ``MOST_SEALS``
is a quarter of that.

Nothing here does I/O: the caller passes the nonce.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from hashlib import sha256
from typing import NoReturn

KEY_BYTES, NONCE_BYTES, TAG_BYTES = 32, 12, 16
OVERHEAD_BYTES = NONCE_BYTES + TAG_BYTES
CHECK_BYTES = 64
"""The length of a check: hex digits."""

MOST_SEALS = 2**30
"""How many texts a data key may seal: rewrites after a crash are not counted, so it is far below the limit."""

_CHECK_INFO = b"transcript-store/1/check"


class DataKey:
    """The key of one conversation, which neither ``repr`` nor pickling shows. Created once, and used for every record."""

    __slots__ = ("_check_key", "_encrypt", "_to_base64", "conversation", "decrypt", "from_base64")

    def __init__(self, key: bytes, conversation: str) -> None:
        # Slow to import, and not needed without a key. The base64 of the standard library costs more than AES does.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from pybase64 import b64decode, b64encode

        key = bytes(key)  # a copy: a caller may wipe a bytearray afterwards
        if len(key) != KEY_BYTES:
            raise ValueError(f"a data key has {KEY_BYTES} bytes")
        cipher = AESGCM(key)
        self._encrypt, self.decrypt = cipher.encrypt, cipher.decrypt
        self._check_key = _subkey(key, _CHECK_INFO)
        self.conversation = conversation
        self._to_base64: Callable[[bytes], bytes] = b64encode
        self.from_base64: Callable[..., bytes] = b64decode

    def place_of_records(self, generation: int) -> bytes:
        """The start of the associated data of every record sealed in a generation."""
        return b"transcript-store/1/record/%b/%d/" % (self.conversation.encode(), generation)

    @property
    def place_of_metadata(self) -> bytes:
        """The associated data of metadata."""
        return b"transcript-store/1/metadata/%b" % self.conversation.encode()

    def seal(self, nonce: bytes, plain: bytes, place: bytes) -> bytes:
        """The base64 of a sealed text; ``place`` is its associated data."""
        return self._to_base64(nonce + self._encrypt(nonce, plain, place))

    def open(self, sealed: bytes | bytearray | memoryview | str, place: bytes) -> bytes | None:
        """Unseal a text; None if it was not sealed with this key for this associated data."""
        try:
            data = self.from_base64(sealed, validate=True)
        except ValueError:
            return None
        if len(data) < OVERHEAD_BYTES:
            return None
        try:
            return self.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], place)
        except Exception as error:
            if type(error).__name__ == "InvalidTag":  # its module is imported with the cipher, not with this one
                return None
            raise

    def check(self, text: bytes) -> bytes:
        """The keyed check of plaintext bytes."""
        return hmac.new(self._check_key, text, sha256).hexdigest().encode()

    def is_checked(self, text: bytes, check: bytes) -> bool:
        """True if this is the check of these bytes."""
        return hmac.compare_digest(self.check(text), check)

    def __repr__(self) -> str:
        return "<DataKey>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a data key cannot be pickled or copied")


def _subkey(key: bytes, info: bytes) -> bytes:
    """HKDF-SHA256 (RFC 5869) without a salt, of one block."""
    extracted = hmac.new(bytes(32), key, sha256).digest()
    return hmac.new(extracted, info + b"\x01", sha256).digest()
