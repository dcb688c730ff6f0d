"""A delete: the folder gets a name of trash while the writer's lock is held, and from then on there is no conversation.

Whoever has to be sure of something before it goes is asked under that lock: no writer adds anything after the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from transcript_store._conversation import leftovers
from transcript_store._conversation.deletions import note_deletion
from transcript_store._conversation.layout import require_conversation, settle_name, strangers
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.lock import Lock
from transcript_store._os.names import LOCK
from transcript_store._os.refusals import NotOursError, refusals
from transcript_store.errors import (
    ConversationNotFoundError,
    CorruptMetadataError,
    CorruptTranscriptError,
    UnsupportedVersionError,
)
from transcript_store.ways_out import WayOut


@contextmanager
def locked(folder: Folder, *, is_settled: bool = False) -> Iterator[None]:
    """Hold the writer's lock of a folder; raises an error of ours if that cannot be had."""
    if not is_settled:
        settle_name(folder)
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
        while (deleted := _delete_from(parent, name, agreed)) is None:
            pass
    return deleted


def _delete_from(parent: Folder, name: str, agreed: Callable[[], bool]) -> bool | None:
    """Delete what is there; None if another process was faster, so that it must be looked at anew."""
    try:
        folder = parent.subfolder(name)
    except FileNotFoundError:
        reason = "there is no such conversation in the library"
        path = parent.path_of(name)
        raise ConversationNotFoundError(path=path, reason=reason, way_out=WayOut.LIST_TELLS) from None
    with folder:
        try:
            require_conversation(folder)
        except (CorruptMetadataError, UnsupportedVersionError):
            pass  # damaged, but a conversation
        except (ConversationNotFoundError, CorruptTranscriptError) as error:
            if not folder.is_at_its_path():
                return None
            if isinstance(error, ConversationNotFoundError) or error.kind == "foreign":
                raise  # it is not ours
        if others := strangers(folder):
            reason = f"the folder holds {others} beside the conversation"
            raise CorruptTranscriptError(
                path=folder.path, kind="foreign", reason=reason, way_out=WayOut.MOVE_OTHERS_AWAY
            )
        lock = Lock(folder)
        with lock.released_at_the_end():
            with refusals(folder.path_of(LOCK), "take the writer's lock"):
                lock.take(0)
                if not folder.is_at_its_path():  # nor is one that was removed, in which there was nothing to lock
                    return None
            if not agreed():
                return False
            # Before it is gone: what is noted and still there is imported as ever.
            note_deletion(parent, name, folder)
            leftovers.move_to_trash(parent, name)
    return True
