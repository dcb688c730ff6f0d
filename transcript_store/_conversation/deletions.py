"""The ids of deleted imports: a file in the library keeps them, so that a later import does not bring the conversations back.

The id of an imported conversation is a UUID of version 5: a hash of the program's format and the session's own id. So the file
reveals nothing but that hash, and other conversations need no line. A line has no effect while a conversation with that id exists.
"""

from __future__ import annotations

import json
from contextlib import suppress

from transcript_store._conversation.layout import read_metadata
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import DELETED, is_id
from transcript_store._os.refusals import NotOursError, refusals
from transcript_store.errors import TranscriptStoreError


def note_deletion(parent: Folder, name: str, folder: Folder) -> None:
    """Note that the conversation in this folder of a library is about to be deleted, or its key destroyed, if it was imported.

    On return the note survives a power loss. Until the conversation is gone it has no effect.

    Raises:
        StorageError: the system refused. Nothing is noted, or a part of a line, which counts for nothing.
    """
    own_id, source = name, None
    with suppress(TranscriptStoreError):
        members = read_metadata(folder).members
        own_id, source = members["id"], (members.get("labels") or {}).get("source")
    if not (is_id(own_id) and own_id[14] == "5"):
        return
    with refusals(parent.path_of(DELETED), "note that the conversation is deleted", "Nothing was deleted"):
        if own_id not in _ids_in(parent):
            _append(parent, json.dumps({"id": own_id, "format": source}, separators=(",", ":")).encode())


def deleted_ids(files: FileSystem, library: str) -> frozenset[str]:
    """The ids of the imported conversations that were deleted from a library; none if nothing is noted, or it cannot be read."""
    try:
        with Folder.open(files, library) as parent:
            return _ids_in(parent)
    except (OSError, NotOursError):
        return frozenset()


def _ids_in(parent: Folder) -> frozenset[str]:
    ids = set()
    for line in (parent.read_file(DELETED) or b"").splitlines():
        with suppress(ValueError):  # a line that a power loss cut off
            said = json.loads(line)
            if isinstance(said, dict) and isinstance(said.get("id"), str):
                ids.add(said["id"])
    return frozenset(ids)


def _append(parent: Folder, line: bytes) -> None:
    with suppress(FileExistsError):
        parent.files.close(parent.files.create(parent.handle, DELETED))
    handle, status = parent.open_file(DELETED, to_append=True)
    try:
        is_torn = status.st_size > 0 and bytes(parent.files.read(handle, status.st_size - 1, 1)) != b"\n"
        parent.write_all(handle, (b"\n" if is_torn else b"") + line + b"\n")
        parent.sync(handle)
    finally:
        parent.files.close(handle)
    parent.sync()  # also of a name that an earlier process made, and was killed before it synced it
