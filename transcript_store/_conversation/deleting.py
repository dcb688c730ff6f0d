"""How is a conversation deleted? Its folder is renamed to a trash name under the writer's lock; from then on it is
deleted.

A caller's last check runs under that lock: no writer adds anything after the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from transcript_store._conversation.layout import occupant_of, read_metadata, require_conversation, strangers, sync_name
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem, NotOursError, refusals
from transcript_store._os.lock import Lock
from transcript_store._os.names import DELETED, LOCK, is_id, is_trash, note_name, noted_id, stage_of, trash_name
from transcript_store.errors import (
    ConversationLockedError,
    ConversationNotFoundError,
    CorruptMetadataError,
    CorruptTranscriptError,
    TranscriptStoreError,
    UnsupportedVersionError,
)
from transcript_store.hints import Hint

# ---- leftovers ----
# What killed creates, deletes and groups leave in a library, and how the next call removes it.
#
# * A delete renames the folder to a trash name. From then on the conversation is deleted; its files are removed afterwards.
# * A create holds a creation note, ``.new-<id>``, whose lock is free when its process is dead. The folder of that id is
#   then removed if it holds only part of a conversation.
# * A staging area (``_library/group``) has a staging note, ``.stage-<32 hex>``. When its process is dead, its contents are
#   removed. Names already given are synced first: no other process can know that they are not durable.
#
# All of it is best effort, except the rename: the guarantees hold without it, and leftovers only take up space.

_NOTE_TIMEOUT_SECONDS = 10.0


def move_to_trash(parent: Folder, name: str) -> None:
    """Delete the folder with a name; on return it is deleted, also after a power loss."""
    trash = trash_name(parent.files)
    parent.files.rename(parent.handle, name, trash)
    holds = "It is deleted, or comes back whole after a power loss"
    with refusals(parent.path_of(name), "delete the conversation", holds):
        parent.sync()  # before any file in it is removed: a power loss must not bring back a part of it
    with suppress(OSError):
        parent.remove_tree(trash)


def sweep(files: FileSystem, library: str) -> None:
    """Remove the leftovers of interrupted deletes and creates."""
    with suppress(FileNotFoundError), Folder.open(files, library) as parent:
        names = parent.names()
        if trash := [name for name in names if is_trash(name)]:
            parent.sync()  # or a power loss gives the leftover its old name back
            for name in trash:
                with suppress(OSError):
                    parent.remove_tree(name)
        for stage in sorted({stage for name in names if (stage := stage_of(name)) is not None}):
            _sweep_stage(parent, stage, [name for name in names if name != stage and stage_of(name) == stage])
        for name in names:
            if (unfinished := noted_id(name)) is not None:
                _sweep_noted(parent, unfinished)


def _sweep_stage(parent: Folder, stage: str, left: list[str]) -> None:
    note = Lock(parent, name=stage)
    with note.released_at_the_end():
        is_dead = False
        with suppress(OSError, ConversationLockedError):
            note.take(0)  # refused: its process is still running, or the system refuses
            is_dead = True
        parent.sync()  # the names of its conversations: a caller that was given them relies on it
        if not is_dead:
            return
        with suppress(OSError):
            for name in left:
                parent.remove_tree(name)
            # The note last: while conversations are left, it tells the next process to remove them (A3).
            parent.discard(stage)


def _sweep_noted(parent: Folder, id: str) -> None:
    note = Lock(parent, name=note_name(id))
    with suppress(OSError, ConversationLockedError), note.released_at_the_end():
        note.take(0)  # refused: its process is still at work
        with suppress(OSError, ConversationLockedError), parent.subfolder(id) as folder:
            lock = Lock(folder)
            with lock.released_at_the_end():
                # Checked twice: no lock is put into a folder that is not ours, and another process may finish it before
                # we hold the lock.
                if occupant_of(folder) is None and lock.take(0) and occupant_of(folder) is None:
                    move_to_trash(parent, id)
        _discard_note(parent, note, id)


@contextmanager
def noted(files: FileSystem, library: str, id: str) -> Iterator[None]:
    """Hold a creation note while a conversation is being created, so that a later call can remove what a killed process
    leaves.

    The note stays if the folder is still incomplete afterwards, because the disk refused to finish it and to remove it.
    An error of the note itself is ignored. A library that does not exist yet has no note.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            parent = Folder.open(files, library)
            stack.callback(_quietly, parent.close)
            note = Lock(parent, name=note_name(id))
            stack.enter_context(note.released_at_the_end())
            stack.callback(_discard_note, parent, note, id)
            note.take(_NOTE_TIMEOUT_SECONDS)
        yield


def discard(files: FileSystem, library: str, id: str) -> None:
    """Remove the leftovers of a failed create, under an id that no caller has."""
    with suppress(OSError), Folder.open(files, library) as parent:
        move_to_trash(parent, id)


def _discard_note(parent: Folder, note: Lock, id: str) -> None:
    """Remove a held note, unless its conversation is still incomplete."""
    with suppress(OSError):
        # While the folder is incomplete the note has to stay: it is what tells the next process to remove the folder.
        if note.is_held() and not _is_half_made(parent, id):
            parent.discard(note_name(id))


def _is_half_made(parent: Folder, id: str) -> bool:
    try:
        with parent.subfolder(id) as folder:
            return occupant_of(folder) is None and folder.names() != []
    except (FileNotFoundError, NotOursError):
        return False


def _quietly(close: Callable[[], None]) -> None:
    with suppress(OSError):
        close()


# ---- deletions ----
# Which deleted imports must not come back? A file in the library keeps their ids for later imports. The id of an
# imported conversation is a UUID of version 5: a hash of the program's format and the session's own id. So the file
# reveals only that hash, and other conversations need no line. A line has no effect while a conversation with that id
# exists.


def note_deletion(parent: Folder, name: str, folder: Folder) -> None:
    """Note that the conversation in this folder of a library is about to be deleted, or its key destroyed, if it was
    imported.

    On return the note survives a power loss. It has no effect until the conversation is deleted.

    Raises:
        StorageError: the system refused. Nothing is noted, or part of a line, which is ignored.
    """
    own_id = name
    labels: dict[str, object] = {}
    with suppress(TranscriptStoreError):
        members = read_metadata(folder).members
        own_id, labels = members["id"], members.get("labels") or {}
    # An integration's id is a hash too, of the framework's key. It has labels, but not that of an import.
    if not (is_id(own_id) and own_id[14] == "5") or (labels and "source" not in labels):
        return
    with refusals(parent.path_of(DELETED), "note that the conversation is deleted", "Nothing was deleted"):
        if own_id not in _ids_in(parent):
            _append(parent, json.dumps({"id": own_id, "format": labels.get("source")}, separators=(",", ":")).encode())


def deleted_ids(files: FileSystem, library: str) -> frozenset[str]:
    """The ids of the imported conversations that were deleted from a library; empty if nothing is noted, or the file is
    unreadable.
    """
    try:
        with Folder.open(files, library) as parent:
            return _ids_in(parent)
    except (OSError, NotOursError):
        return frozenset()


def _ids_in(parent: Folder) -> frozenset[str]:
    ids = set()
    for line in (parent.read_file(DELETED) or b"").splitlines():
        with suppress(ValueError):  # a line that a power loss cut off
            entry = json.loads(line)
            if isinstance(entry, dict) and isinstance(entry.get("id"), str):
                ids.add(entry["id"])
    return frozenset(ids)


def _append(parent: Folder, line: bytes) -> None:
    with suppress(FileExistsError):
        parent.files.close(parent.files.create(parent.handle, DELETED))
    handle, status = parent.open_file(DELETED, to_append=True)
    try:
        # A killed process may have left half a line. A line feed ends it, so that our own line stays readable.
        is_torn = status.st_size > 0 and bytes(parent.files.read(handle, status.st_size - 1, 1)) != b"\n"
        parent.write_all(handle, (b"\n" if is_torn else b"") + line + b"\n")
        parent.sync(handle)
    finally:
        parent.files.close(handle)
    parent.sync()  # also for a name that an earlier process made before it was killed, unsynced


# ---- deleting ----


@contextmanager
def locked(folder: Folder, *, is_settled: bool = False) -> Iterator[None]:
    """Hold the writer's lock of a folder; raises an error of ours if it cannot be taken."""
    if not is_settled:
        sync_name(folder)
    lock = Lock(folder)
    with lock.released_at_the_end():
        try:
            is_taken = lock.take(0)
        except NotOursError as error:
            reason = f"{LOCK}: {error.reason}"
            raise CorruptTranscriptError(path=folder.path, kind="foreign", reason=reason) from None
        if not is_taken or not folder.is_at_its_path():
            raise ConversationNotFoundError(path=folder.path, reason="the conversation was moved away just now")
        yield


def delete(files: FileSystem, library: str, name: str, agreed: Callable[[], bool] = lambda: True) -> bool:
    """Delete the conversation in a folder of a library, if ``agreed()`` is true once its lock is held; returns that.

    Raises what ``ConversationLibrary.delete`` does, and what ``agreed`` does. Then nothing was touched.
    """
    with refusals(f"{library.rstrip('/')}/{name}", "delete the conversation"), Folder.open(files, library) as parent:
        # It ends: another process moved the folder away each time, so some process made progress.
        while (deleted := _delete_from(parent, name, agreed)) is None:
            pass
    return deleted


def _delete_from(parent: Folder, name: str, agreed: Callable[[], bool]) -> bool | None:
    """Delete the conversation; return None if another process was faster (the caller tries again)."""
    try:
        folder = parent.subfolder(name)
    except FileNotFoundError:
        reason = "there is no such conversation in the library"
        path = parent.path_of(name)
        raise ConversationNotFoundError(path=path, reason=reason, hint=Hint.LIST_CONVERSATIONS) from None
    with folder:
        try:
            require_conversation(folder)
        except (CorruptMetadataError, UnsupportedVersionError):
            pass  # damaged, but a conversation
        except (ConversationNotFoundError, CorruptTranscriptError) as error:
            if not folder.is_at_its_path():
                return None
            # Other damage is no reason to keep it: a damaged conversation can be deleted.
            if isinstance(error, ConversationNotFoundError) or error.kind == "foreign":
                raise  # it is not ours
        # A delete is not undoable, so a folder with files of others is refused as a whole.
        if others := strangers(folder):
            reason = f"the folder also holds other files: {others}"
            raise CorruptTranscriptError(path=folder.path, kind="foreign", reason=reason, hint=Hint.MOVE_OTHERS_AWAY)
        lock = Lock(folder)
        with lock.released_at_the_end():
            with refusals(folder.path_of(LOCK), "take the writer's lock"):
                lock.take(0)
                if not folder.is_at_its_path():  # nor is a folder that was removed before it was locked
                    return None
            if not agreed():
                return False
            # Before it is deleted: a noted conversation that still exists is imported as usual.
            note_deletion(parent, name, folder)
            # One rename, so that no reader sees a half-deleted conversation; the contents are removed under the new
            # name.
            move_to_trash(parent, name)
    return True
