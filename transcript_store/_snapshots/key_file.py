"""A key in a file of its own."""

from __future__ import annotations

from transcript_store._os import filesystem
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.refusals import refusals
from transcript_store._snapshots.encryption import generate_encryption_key


def write_encryption_key(path: filesystem.AnyPath, *, file_system: FileSystem | None = None) -> None:
    """Write a fresh key to a new file: 64 hex digits and a line feed, readable by its owner only.

    On return it survives a power loss. Store it away from the snapshots; without it they cannot be opened.

    Raises:
        StorageError: the file cannot be written, or there is one already. Nothing that was there was changed.
    """
    files = filesystem.REAL if file_system is None else file_system
    directory, _, name = filesystem.absolute_path(path).rpartition("/")
    text = generate_encryption_key().hex().encode() + b"\n"
    with (
        refusals(str(path), "write a new key", "Nothing that was there was changed"),
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
