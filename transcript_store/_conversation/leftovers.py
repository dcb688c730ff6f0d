"""What creates, deletes and stages leave in a library when their process is killed, and how the next one removes it.

* A delete renames the folder to a name of trash. From then on the conversation is deleted; its files go afterwards.
* A create holds a note, ``.new-<id>``, whose lock is free when its process is dead. The folder of that id is then removed if
  it is only half of a conversation.
* A stage (``stage.py``) holds a note too, ``.stage-<32 hex>``. When its process is dead, what is left on it is removed. What has
  its name already is synced first: nobody else may know that it is not.

All of it is best effort, except the rename: the promises hold without it, and leftovers only take up room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from transcript_store._conversation.layout import occupant_of
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.lock import Lock
from transcript_store._os.names import is_trash, note_name, noted_id, stage_of, trash_name
from transcript_store._os.refusals import NotOursError, refusals
from transcript_store.errors import ConversationLockedError

_NOTE_TIMEOUT_SECONDS = 10.0


def move_to_trash(parent: Folder, name: str) -> None:
    """Delete what stands at a name; on return it is deleted, also after a power loss."""
    trash = trash_name(parent.files)
    parent.files.rename(parent.handle, name, trash)
    holds = "It is gone, or comes back whole after a power loss"
    with refusals(parent.path_of(name), "delete the conversation", holds):
        parent.sync()  # before anything in it goes: a power loss must not bring a part of it back
    with suppress(OSError):
        parent.remove_tree(trash)


def sweep(files: FileSystem, library: str) -> None:
    """Remove what is left of deletes and creates that were cut off."""
    with suppress(FileNotFoundError), Folder.open(files, library) as parent:
        names = parent.names()
        if trash := [name for name in names if is_trash(name)]:
            parent.sync()  # or a power loss gives its old name back to what is left of it
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
            note.take(0)  # refused: its process is still at work, or the system says no
            is_dead = True
        parent.sync()  # the names of those that were on it: whoever is told that they exist believes it
        if not is_dead:
            return
        with suppress(OSError):
            for name in left:
                parent.remove_tree(name)
            parent.discard(stage)


def _sweep_noted(parent: Folder, id: str) -> None:
    note = Lock(parent, name=note_name(id))
    with suppress(OSError, ConversationLockedError), note.released_at_the_end():
        note.take(0)  # refused: its process is still at work
        with suppress(OSError, ConversationLockedError), parent.subfolder(id) as folder:
            lock = Lock(folder)
            with lock.released_at_the_end():
                # Asked twice: no lock is put into a folder that is not ours, and somebody may finish it before we hold the lock.
                if occupant_of(folder) is None and lock.take(0) and occupant_of(folder) is None:
                    move_to_trash(parent, id)
        _discard_note(parent, note, id)


@contextmanager
def noted(files: FileSystem, library: str, id: str) -> Iterator[None]:
    """Hold a note while a conversation is being created, so that a later call can sweep what a killed process leaves.

    The note stays if the folder is still half-made afterwards, because the disk refused to finish it and to remove it. An
    error of the note itself stops nothing. A library that does not exist yet has no note.
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
    """Remove what is left of a create that failed, under an id that nobody was told."""
    with suppress(OSError), Folder.open(files, library) as parent:
        move_to_trash(parent, id)


def _discard_note(parent: Folder, note: Lock, id: str) -> None:
    """Remove a note that is held, unless what it tells of is still there, half-made."""
    with suppress(OSError):
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
