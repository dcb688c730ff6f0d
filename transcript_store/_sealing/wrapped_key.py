"""What does ``key.json`` hold? The wrapped data key of a conversation, in a separate file, so that it can be kept
elsewhere or destroyed.

::

    file := body `,"hash":"<32 hex>"}` LF
    body := {"format":"transcript-store-key","version":1,"conversation":UUID,"key_id":TEXT,"wrapped":BASE64
          | {"format":"transcript-store-key","version":1,"conversation":UUID,"shredded_at":TIME

The hash is the first 128 bits, in lower-case hex, of SHA-256 over the body: it only distinguishes damage from a wrong
key. The file is always replaced as a whole, atomically.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from transcript_store._json.times import is_time
from transcript_store._os.directory import Folder
from transcript_store._os.names import KEY
from transcript_store._os.os_errors import NotOursError, refusals
from transcript_store._sealing.providers import LONGEST_WRAPPED_BYTES, is_key_id
from transcript_store.errors import ConversationShreddedError, CorruptKeyFileError, UnsupportedVersionError

VERSION = 1
_LONGEST_BYTES = 2 * LONGEST_WRAPPED_BYTES
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
                if source.size > _LONGEST_BYTES:
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
