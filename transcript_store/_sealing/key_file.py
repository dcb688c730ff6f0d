"""How is a user's key stored in a file? As 64 hex digits or 32 raw bytes, readable by its owner only."""

from __future__ import annotations

import re
import secrets

from transcript_store._os import filesystem
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.os_errors import NotOursError, refusals
from transcript_store._sealing.data_key import KEY_BYTES
from transcript_store.display import many
from transcript_store.errors import InvalidKeyError
from transcript_store.hints import Hint

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
    files = filesystem.REAL if file_system is None else file_system
    directory, _, name = filesystem.absolute_path(path).rpartition("/")
    text = secrets.token_bytes(KEY_BYTES).hex().encode() + b"\n"
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
