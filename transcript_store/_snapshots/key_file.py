"""A key in a file of its own."""

from __future__ import annotations

from transcript_store._os import filesystem
from transcript_store._os.filesystem import FileSystem
from transcript_store._sealing.user_key_file import write_key_file


def write_encryption_key(path: filesystem.AnyPath, *, file_system: FileSystem | None = None) -> None:
    """Write a fresh key to a new file: 64 hex digits and a line feed, readable by its owner only.

    It is :func:`write_key_file` under an earlier name. On return the key survives a power loss. Store it away from the snapshots; without
    it they cannot be opened.

    Raises:
        StorageError: the file cannot be written, or there is one already. Nothing that was there was changed.
    """
    write_key_file(path, file_system=file_system)
