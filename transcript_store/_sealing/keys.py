"""What wraps data keys, and where is the wrapped key kept? The user's 32-byte key, or a keyring, vault or service; key.json.

A user's key file holds 64 hex digits or 32 raw bytes, readable by its owner only. A provider may do I/O. The wrapped key
is in key.json::

    file := body `,"hash":"<32 hex>"}` LF
    body := {"format":"transcript-store-key","version":1,"conversation":UUID,"key_id":TEXT,"wrapped":BASE64
          | {"format":"transcript-store-key","version":1,"conversation":UUID,"shredded_at":TIME

The hash is the first 128 bits, in lower-case hex, of SHA-256 over the body: it only distinguishes damage from a wrong
key. The file is always replaced as a whole, atomically.
"""

from __future__ import annotations

import hmac
import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar, runtime_checkable

import orjson

from transcript_store._json.times import is_time
from transcript_store._os import filesystem
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem, NotOursError, refusals
from transcript_store._os.names import KEY
from transcript_store._sealing.data_key import KEY_BYTES, NONCE_BYTES, OVERHEAD_BYTES
from transcript_store.display import many
from transcript_store.errors import (
    ConversationShreddedError,
    CorruptKeyFileError,
    InvalidKeyError,
    KeyProviderError,
    UnsupportedVersionError,
    WrongKeyError,
)
from transcript_store.hints import Hint

_T = TypeVar("_T")

LONGEST_ID = 200
LONGEST_WRAPPED_BYTES = 64 * 1024

_RAW_ID = "aes-256-gcm:"
_RAW_PLACE = b"transcript-store/1/key/"


@runtime_checkable
class KeyProvider(Protocol):
    """Wraps and unwraps data keys: a keyring, a vault, a key management service. ``testing.check_key_provider`` is its
    contract.

    It is called when a conversation is created, opened, sealed or rotated, never for a record, and by several threads;
    by forked processes only in an import with ``jobs=``. It must be able to unwrap at once what it wraps: nothing is
    stored before that. An error of it becomes the cause of a ``KeyProviderError``; then nothing was written.
    """

    @property
    def id(self) -> str:
        """The key's id: printable ASCII, 1 to 200 characters. It is stored as plaintext beside the wrapped key, and
        never changes.
        """
        ...

    def wrap(self, data_key: bytes) -> bytes:
        """Encrypt a data key of 32 bytes, so that it cannot be changed unseen; at most 64 KB."""
        ...

    def unwrap(self, wrapped: bytes) -> bytes:
        """Return the data key; raise for anything that ``wrap`` of the same key did not return."""
        ...


EncryptionKey = bytes | bytearray | memoryview | KeyProvider
"""32 bytes, or a provider that has them."""

Opens = Callable[[bytes], bool | None]
"""True if a data key unseals a conversation's data; None if nothing is sealed, or all of it is damaged."""

_OF_THE_CALLER = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""Errors that end the caller's work, whatever raised them. Any other error of a provider is its own failure."""


_ANOTHER = "it unwrapped another data key than the conversation's"


class RawKey:
    """A key of 32 bytes as a provider. Neither ``repr`` nor pickling shows it."""

    __slots__ = ("_bytes", "_cipher", "id")

    def __init__(self, key: bytes | bytearray | memoryview) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._bytes = checked_key(key)
        self._cipher = AESGCM(self._bytes)
        self.id = _RAW_ID + hmac.new(self._bytes, b"transcript-store/1/key-id", sha256).hexdigest()[:16]

    def wrap(self, data_key: bytes) -> bytes:
        from secrets import token_bytes  # it imports random

        nonce = token_bytes(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, data_key, _RAW_PLACE + self.id.encode())

    def unwrap(self, wrapped: bytes) -> bytes:
        if len(wrapped) < OVERHEAD_BYTES:
            raise ValueError("it is too short to be a wrapped key")
        return self._cipher.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], _RAW_PLACE + self.id.encode())

    def __repr__(self) -> str:
        return "<RawKey>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an encryption key cannot be pickled or copied: pass it on yourself")


def checked_key(key: Any) -> bytes:
    """A copy of the 32 bytes of a key; raises ``InvalidKeyError`` for anything else."""
    if not isinstance(key, bytes | bytearray | memoryview):
        raise InvalidKeyError(
            reason=f"an encryption key is {KEY_BYTES} bytes, not {type(key).__name__}",
            length_bytes=None,
            hint=Hint.MAKE_BYTES if isinstance(key, str) else Hint.MAKE_A_KEY,
        )
    found = bytes(key)
    if len(found) != KEY_BYTES:
        reason = f"an encryption key has {KEY_BYTES} bytes, this one has {len(found)}"
        raise InvalidKeyError(reason=reason, length_bytes=len(found))
    return found


class Keyring:
    """A caller's keys: the first wraps, and each of them unwraps what it has wrapped."""

    __slots__ = ("_current", "_retired")

    def __init__(self, current: KeyProvider, retired: Iterable[KeyProvider] = ()) -> None:
        self._current = current
        self._retired = tuple(retired)

    @property
    def current(self) -> KeyProvider:
        """The key that wraps."""
        return self._current

    @property
    def retired(self) -> tuple[KeyProvider, ...]:
        """The keys that only unwrap."""
        return self._retired

    def is_current(self, key_id: str, path: str) -> bool:
        """True if the wrapped key with this id was wrapped by the current key.

        If a retired key has the same id, that is undecidable; then it counts as retired, and a rotation wraps it again.
        """
        if key_id != _id_of(self._current, path):
            return False
        others = (one for one in self._retired if one is not self._current and not isinstance(one, RawKey))
        return all(_id_of(one, path) != key_id for one in others)

    def wrap(self, data_key: bytes, path: str) -> tuple[str, bytes]:
        """The id of the key, and the data key wrapped with it, after a comparison with its unwrapped form. ``path`` is
        for the error.

        Raises:
            KeyProviderError: the provider raised, or returned no valid wrapped key, or it does not unwrap to this data
                key.
        """
        provider = self._current
        key_id = _id_of(provider, path)
        wrapped = _asked(lambda: provider.wrap(data_key), "wrap a data key", path, key_id)
        if not isinstance(wrapped, bytes) or not 0 < len(wrapped) <= LONGEST_WRAPPED_BYTES or data_key in wrapped:
            raise _broken(path, key_id, "it returned no valid wrapped key")
        wrapped = bytes(wrapped)  # as a key file holds it, without what a subclass adds
        # Checked before anything is sealed: with a provider that cannot unwrap, all later records would be lost.
        if not hmac.compare_digest(_unwrapped_by(provider, key_id, wrapped, path), data_key):
            raise _broken(path, key_id, "it does not unwrap what it wrapped to the same data key")
        # key.json stores the id: under a changed one the key would not be found again.
        if _id_of(provider, path) != key_id:
            raise _broken(path, key_id, "its id changed while it wrapped a data key")
        return key_id, wrapped

    def unwrap(self, key_id: str, wrapped: bytes, path: str) -> bytes:
        """The data key that was wrapped with the key of this id.

        Raises:
            WrongKeyError: none of the keys has this id, or the one with this id does not unwrap it.
            KeyProviderError: the provider with this id raised, or returned something else.
        """
        return self._unwrapped(key_id, wrapped, path)[0]

    def unwrap_to_seal(self, key_id: str, wrapped: bytes, path: str, opens: Opens) -> bytes:
        """As :meth:`unwrap`, for a data key that will seal data or be wrapped again: with a wrong one, that data would
        be lost.

        A 32-byte key authenticates what it unwraps. A provider's result has to unseal existing data; where ``opens``
        returns None, the provider is called a second time.

        Raises:
            WrongKeyError: as :meth:`unwrap`.
            KeyProviderError: as :meth:`unwrap`, or the provider returned another data key.
        """
        data_key, provider = self._unwrapped(key_id, wrapped, path)
        # AES-GCM authenticates: a wrong key cannot unwrap.
        if isinstance(provider, RawKey):
            return data_key
        is_right = opens(data_key)
        if is_right is None:
            is_right = hmac.compare_digest(_unwrapped_by(provider, key_id, wrapped, path), data_key)
        if not is_right:
            raise _broken(path, key_id, _ANOTHER)
        return data_key

    def refuse_another(self, key_id: str, path: str) -> None:
        """Raise ``KeyProviderError`` for a data key that unseals nothing; a 32-byte key authenticates what it unwraps."""
        if not any(isinstance(one, RawKey) and one.id == key_id for one in (self._current, *self._retired)):
            raise _broken(path, key_id, _ANOTHER)

    def _unwrapped(self, key_id: str, wrapped: bytes, path: str) -> tuple[bytes, KeyProvider]:
        """The data key, and the first provider with this id that unwraps it."""
        failure: WrongKeyError | KeyProviderError | None = None
        for provider in (self._current, *self._retired):
            if _id_of(provider, path) == key_id:
                try:
                    return _unwrapped_by(provider, key_id, wrapped, path), provider
                # Two providers may have one id. The first failure is raised only if none of them unwraps it.
                except (WrongKeyError, KeyProviderError) as error:
                    failure = failure or error
        reason = f"it is wrapped with key {key_id!r:.80}, which was not given"
        raise failure or WrongKeyError(path=path, key_id=key_id, reason=reason)

    def __repr__(self) -> str:
        return f"<{1 + len(self._retired)} keys>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("keys cannot be pickled or copied: pass them on yourself")


def keyring_of(encryption_key: Any, retired_keys: Any) -> Keyring | None:
    """The keyring of a caller's keys; None without any. Raises ``InvalidKeyError``, and ``ValueError`` for retired keys
    alone.
    """
    if isinstance(retired_keys, bytes | bytearray | memoryview | str):
        raise TypeError(f"retired_keys must be a list of keys, not {type(retired_keys).__name__}: pass [key]")
    retired = [_provider_of(key) for key in retired_keys]
    if encryption_key is None:
        if retired:
            raise ValueError("retired_keys open what was wrapped before; a store with them needs an encryption_key")
        return None
    return Keyring(_provider_of(encryption_key), retired)


def _provider_of(key: Any) -> KeyProvider:
    is_provider = all(hasattr(type(key), name) or hasattr(key, name) for name in ("id", "wrap", "unwrap"))
    # A class has the methods too, but is not a provider; RawKey refuses it with the right error.
    return key if is_provider and not isinstance(key, type) else RawKey(key)


def _broken(path: str, key_id: str, reason: str) -> KeyProviderError:
    """The error for a provider that returned a wrong value."""
    return KeyProviderError(path=path, key_id=key_id, reason=reason, hint=Hint.CHECK_THE_PROVIDER)


def _id_of(provider: KeyProvider, path: str) -> str:
    named = _asked(lambda: provider.id, "say its id", path, "")
    if not is_key_id(named):
        raise _broken(path, "", f"its id must be 1 to {LONGEST_ID} printable characters of ASCII")
    return named


def _unwrapped_by(provider: KeyProvider, key_id: str, wrapped: bytes, path: str) -> bytes:
    try:
        data_key = _asked(lambda: provider.unwrap(wrapped), "unwrap a data key", path, key_id)
    except KeyProviderError:
        if not isinstance(provider, RawKey):
            raise
        reason = f"key {key_id!r:.80} does not unwrap it: it was changed, or another key wrapped it"
        raise WrongKeyError(path=path, key_id=key_id, reason=reason) from None
    if not isinstance(data_key, bytes) or len(data_key) != KEY_BYTES:
        raise _broken(path, key_id, "it returned no valid data key")
    return bytes(data_key)


def _asked(call: Callable[[], _T], doing: str, path: str, key_id: str) -> _T:
    """A provider's result. Its error is reported by its type only: its text is the provider's own, and may contain too
    much.
    """
    try:
        return call()
    except _OF_THE_CALLER:
        raise
    # Also what is no Exception: a provider is the caller's code, and its error text may hold the data key.
    except BaseException as error:
        reason = f"it was called to {doing}, and raised {type(error).__name__}"
        raise KeyProviderError(path=path, key_id=key_id, reason=reason) from error


def is_key_id(id: object) -> bool:
    """True if this may be the id of a key."""
    return isinstance(id, str) and 0 < len(id) <= LONGEST_ID and id.isascii() and id.isprintable()


_LONGEST_BYTES = 4096
_HEX = re.compile(rb"\s*([0-9A-Fa-f]{64})\s*")


def read_key_file(path: filesystem.AnyPath, *, file_system: FileSystem | None = None) -> bytes:
    """Read your own key file: 32 bytes, or 64 hex digits.

    Raises:
        InvalidKeyError: the file is missing, holds no key, or is readable by others than its owner (``chmod 600``).
        StorageError: the system refuses to read it.
    """
    files = filesystem.REAL if file_system is None else file_system
    shown = str(path)
    directory, _, name = filesystem.real_path(path).rpartition("/")
    with refusals(shown, "read the key"):
        try:
            with Folder.open(files, directory or "/") as folder, folder.reading(name) as source:
                mode, data = source.status.st_mode, bytes(source.read(0, _LONGEST_BYTES))
        except (FileNotFoundError, NotADirectoryError):
            raise InvalidKeyError(reason=f"{shown}: there is no such key file", length_bytes=None) from None
        except NotOursError as error:
            raise InvalidKeyError(reason=f"{shown}: {error.reason}", length_bytes=None) from None
    # Before the content is judged: a key that others can read is refused even if it is a valid one.
    if mode & 0o077:
        reason = f"{shown}: others than its owner may read this key (mode {mode & 0o777:03o})"
        raise InvalidKeyError(reason=reason, length_bytes=None, hint=Hint.PROTECT_THE_KEY)
    if len(data) == KEY_BYTES:
        return data
    found = _HEX.fullmatch(data)
    if found is None:
        length = len(data)
        reason = f"{shown}: a key is {KEY_BYTES} bytes or 64 hex digits; this is neither, at {many(length, 'byte')}"
        raise InvalidKeyError(reason=reason, length_bytes=length)
    return bytes.fromhex(found[1].decode())


def write_key_file(path: filesystem.AnyPath, *, file_system: FileSystem | None = None) -> None:
    """Write a fresh key to a new file: 64 hex digits and a line feed, readable by its owner only.

    On return it survives a power loss. Store it apart from the data that it seals; without it that data cannot be read.

    Raises:
        StorageError: the file cannot be written, or exists already. No existing file was changed.
    """
    from secrets import token_bytes  # it imports random

    files = filesystem.REAL if file_system is None else file_system
    directory, _, name = filesystem.absolute_path(path).rpartition("/")
    text = token_bytes(KEY_BYTES).hex().encode() + b"\n"
    with (
        refusals(str(path), "write a new key", "No existing file was changed"),
        Folder.open(files, directory or "/") as folder,
    ):
        handle = files.create(folder.handle, name)
        try:
            folder.write_all(handle, text)
            folder.sync(handle)
        except BaseException:
            folder.discard(name)
            raise
        finally:
            files.close(handle)
        folder.sync()


VERSION = 1
_LONGEST_KEY_JSON_BYTES = 2 * LONGEST_WRAPPED_BYTES
_SUFFIX_BYTES = len(',"hash":"0123456789abcdef0123456789abcdef"}\n')


class WrappedKey(NamedTuple):
    """A data key as a key file holds it."""

    conversation: str
    key_id: str
    wrapped: bytes


def encode_key_file(key: WrappedKey) -> bytes:
    """A key file as bytes."""
    wrapped = b2a_base64(key.wrapped, newline=False).decode()
    return _encoded({"conversation": key.conversation, "key_id": key.key_id, "wrapped": wrapped})


def encode_shredded(conversation: str, at: str) -> bytes:
    """The file that replaces a destroyed key file."""
    return _encoded({"conversation": conversation, "shredded_at": at})


def _encoded(members: dict[str, str]) -> bytes:
    body = orjson.dumps({"format": "transcript-store-key", "version": VERSION, **members})[:-1]
    return b'%b,"hash":"%b"}\n' % (body, _hash(body))


def read_key_file_of(folder: Folder, conversation: str) -> WrappedKey:
    """The wrapped key in a conversation's folder.

    Raises:
        CorruptKeyFileError: it is missing, damaged, or of another conversation.
        ConversationShreddedError: the key was destroyed.
        UnsupportedVersionError: a later version wrote it.
    """
    return decode_key_file(_read(folder), folder.path_of(KEY), conversation)


def conversation_in_key_file(folder: Folder) -> str | None:
    """The conversation of a folder's key file (:func:`conversation_of`); None if the file is missing or damaged."""
    try:
        return conversation_of(_read(folder), folder.path_of(KEY))
    except CorruptKeyFileError:
        return None


def conversation_of(data: bytes, path: str) -> str | None:
    """The conversation of a key file, also if its key was destroyed, or a later version wrote it;
    ``CorruptKeyFileError`` if it is not whole.
    """
    of = _members(data, path).get("conversation")
    return of if type(of) is str else None


def _read(folder: Folder) -> bytes:
    path = folder.path_of(KEY)
    with refusals(path, "read the key"):
        try:
            with folder.reading(KEY) as source:
                if source.size > _LONGEST_KEY_JSON_BYTES:
                    raise CorruptKeyFileError(path=path, kind="damaged", reason="it is too long for a key file")
                return bytes(source.read(0, source.size))
        except FileNotFoundError:
            raise CorruptKeyFileError(path=path, kind="missing", reason="the file is missing") from None
        except NotOursError as error:
            raise CorruptKeyFileError(path=path, kind="foreign", reason=error.reason) from None


def decode_key_file(data: bytes, path: str, conversation: str) -> WrappedKey:
    """The wrapped key in these bytes; raises as :func:`read_key_file_of`."""
    members = _members(data, path)
    version = members.get("version")
    if type(version) is int and version > VERSION:
        reason = f"it is of key file version {version}, this program reads version {VERSION}"
        raise UnsupportedVersionError(path=path, reason=reason)
    of, shredded_at = members.get("conversation"), members.get("shredded_at")
    if of != conversation:
        reason = f"it is of conversation {of!r:.60}, but lies beside {conversation}"
        raise CorruptKeyFileError(path=path, kind="wrong-conversation", reason=reason)
    if type(shredded_at) is str and is_time(shredded_at):
        raise ConversationShreddedError(path=path, shredded_at=shredded_at)
    key_id, wrapped = members.get("key_id"), members.get("wrapped")
    if type(key_id) is not str or not is_key_id(key_id) or type(wrapped) is not str:
        raise _holds_no_key(path)
    try:
        return WrappedKey(conversation, key_id, a2b_base64(wrapped.encode(), strict_mode=True))
    except (Base64Error, UnicodeError):
        raise _holds_no_key(path) from None


def _members(data: bytes, path: str) -> dict[str, Any]:
    """The members of a key file of any version."""
    body, suffix = data[:-_SUFFIX_BYTES], data[-_SUFFIX_BYTES:]
    if suffix != b',"hash":"%b"}\n' % _hash(body):
        raise CorruptKeyFileError(path=path, kind="damaged", reason="its hash does not match: it was cut or changed")
    try:
        members = orjson.loads(body + b"}")
    except orjson.JSONDecodeError:
        raise _holds_no_key(path) from None
    if type(members) is not dict or members.get("format") != "transcript-store-key":
        raise _holds_no_key(path)
    return members


def _holds_no_key(path: str) -> CorruptKeyFileError:
    return CorruptKeyFileError(path=path, kind="damaged", reason="it is whole but holds no key")


def _hash(body: bytes) -> bytes:
    return sha256(body).hexdigest()[:32].encode()
