"""How the golden copies of a library were made: one-file backups, and the objects of a bucket."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress

from tests.backends.shipped import FOLDER, ID, KEY, LIBRARY, files_in, library_on, with_a_history
from tests.kit.messages import user_message
from transcript_store.backends import BackupFile, ObjectStoreBackend, backup_library, ship
from transcript_store.backends._bucket import Bucket
from transcript_store.testing import FileSystemCall, SimulatedFileSystem, SimulatedStop

FILE_KEY = bytes(range(32, 64))
FILE = "/copies/chats.backup"
_BUCKETS = itertools.count()
Files = dict[str, bytes]


def plain() -> tuple[Files, Files]:
    """Two runs of a backup, with an append between them."""
    return _backed_up(None, None)


def sealed() -> tuple[Files, Files]:
    """The same of a sealed conversation, in a sealed file."""
    return _backed_up(KEY, FILE_KEY)


def interrupted() -> tuple[Files, Files]:
    """The second run was killed while it wrote: what a restore finds is the first."""
    disk = with_a_history()
    _run(disk, None)
    first = files_in(disk, FOLDER)
    with library_on(disk).open(ID) as conversation:
        conversation.append_message(user_message("not copied"))
    size = len(disk.tree()[FILE] or b"")

    def stop(call: FileSystemCall) -> None:
        if call.name.startswith("sync") and len(disk.tree()[FILE] or b"") > size:
            raise SimulatedStop

    disk.on_call = stop
    with suppress(SimulatedStop):
        _run(disk, None)
    disk = disk.kill_process()
    data = disk.tree()[FILE] or b""
    return {"chats.backup": data[: size + (len(data) - size) // 2]}, first


def bucket() -> tuple[Files, Files]:
    """A sealed conversation that was shipped with its key: slots, key and summary are objects."""
    disk = with_a_history(KEY)
    backend = ObjectStoreBackend(f"memory:///{next(_BUCKETS)}")
    ship(FOLDER, backend, with_key=True, file_system=disk)
    return objects_in(backend), files_in(disk, FOLDER)


def bucket_of(backend: ObjectStoreBackend) -> Bucket:
    return backend._bucket  # the names of the objects are part of the form


def objects_in(backend: ObjectStoreBackend) -> Files:
    names = [listed.key for page in bucket_of(backend).list("") for listed in page]
    found = {name: bucket_of(backend).get(name) for name in names}
    return {name: stored.data for name, stored in found.items() if stored}


COPIES: dict[str, Callable[[], tuple[Files, Files]]] = {
    writer.__name__: writer for writer in (plain, sealed, interrupted, bucket)
}
"""Each: the files of a copy by path, and those of the conversation that a restore of it makes."""


def _backed_up(key: bytes | None, file_key: bytes | None) -> tuple[Files, Files]:
    disk = with_a_history(key)
    _run(disk, file_key)
    with library_on(disk, key).open(ID) as conversation:
        conversation.append_message(user_message("after the first run"))
    _run(disk, file_key)
    return {"chats.backup": disk.tree()[FILE] or b""}, files_in(disk, FOLDER)


def _run(disk: SimulatedFileSystem, key: bytes | None) -> None:
    with BackupFile(FILE, writes=True, encryption_key=key, file_system=disk) as backup:
        assert len(list(backup_library(LIBRARY, backup, file_system=disk))) == 1
