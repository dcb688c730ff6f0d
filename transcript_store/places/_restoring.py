"""The way back: a conversation on a place becomes a folder, which gets its name when it is whole and on the medium.

It is written on a stage (``_conversation/stage``), under a name that nobody looks for. So under its own name there is nothing, or all of
it, whatever is cut off; what is left of a run that was killed goes with the next one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from transcript_store._conversation.layout import occupant
from transcript_store._conversation.leftovers import sweep
from transcript_store._conversation.metadata import checked_id
from transcript_store._conversation.reader import Reader
from transcript_store._conversation.storage import Options
from transcript_store._os import filesystem
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.lock import Lock
from transcript_store._os.names import ARCHIVE, KEY, METADATA, TRANSCRIPT, archive_name, stage_name, staged_name
from transcript_store._os.refusals import refusals
from transcript_store.errors import ConversationExistsError, ConversationLockedError
from transcript_store.places._claimed import WAITS_SECONDS, ClaimedLog
from transcript_store.places._filling import metadata_of
from transcript_store.places._place import Place
from transcript_store.places._slots import LogState, Slot, lines_of
from transcript_store.ways_out import WayOut

__all__ = ["Restored", "restore"]

_OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY})
_DOING, _HOLDS = "restore the conversation", "There is none yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What :func:`restore` came to."""

    id: str
    directory: str
    generation: int
    record_count: int
    """The records of the live generation."""
    head: str
    """The hash of the last of them."""
    is_new: bool
    """False if the folder had all of it already."""
    key_is_missing: bool
    """Whether the conversation is sealed, and there is no key.json beside it."""


def restore(
    place: Place,
    id: str,
    directory: filesystem.AnyPath,
    *,
    with_key: bool = False,
    waits_seconds: Sequence[float] = WAITS_SECONDS,
    file_system: FileSystem | None = None,
) -> Restored:
    """Make the folder of a conversation of what stands on a place: every generation and the metadata, byte for byte.

    On return the folder is whole and survives a power loss. If this raises, or is killed, there is no folder of that name, or all of it.
    On the place nothing is claimed, and its writer may be at work. A folder that has the same transcript already is left as it is.

    Args:
        place: where the conversation is.
        id: of the conversation.
        directory: the folder to make. Its parents are made if they are missing.
        with_key: of a sealed conversation, put its wrapped key beside it, if it is on the place. Otherwise put key.json there yourself.
        waits_seconds: how long to wait between two attempts of a call that nobody answers.
        file_system: for tests.

    Raises:
        ConversationExistsError: something else is there; it was not touched. Choose another folder.
        ConversationNotFoundError: the place has no such conversation, or it was deleted there.
        CorruptTranscriptError: what is on the place is damaged.
        UnsupportedVersionError: a later version of this library wrote it.
        PlaceError: the place refused, or did not answer. Call it again.
        StorageError: the folder cannot be written.
    """
    files = filesystem.REAL if file_system is None else file_system
    path = filesystem.absolute_path(directory)
    slots = ClaimedLog(place, checked_id(id), waits_seconds=waits_seconds, sleep=files.wait)
    slots.load_patiently()
    state, key = slots.state, slots.key.read() if with_key and slots.state.is_sealed else None
    with refusals(path, _DOING, _HOLDS):
        sweep(files, os.path.dirname(path))  # of a run that was killed: a name that it gave is synced, too
        if is_new := not _is_there(files, path, state):
            _Staged(files, path, id).make(slots.fresh, state, key)
        with Folder.open(files, path) as folder:
            key_is_missing = state.is_sealed and folder.status(KEY) is None
    return Restored(
        id=id,
        directory=path,
        generation=state.generation,
        record_count=state.end.seq,
        head=state.end.head.decode(),
        is_new=is_new,
        key_is_missing=key_is_missing,
    )


def _is_there(files: FileSystem, path: str, state: LogState) -> bool:
    """Whether a folder has the transcript that the place has; raises if it has another one, or is something else."""
    if (reason := occupant(files, path)) is None:
        return False
    with suppress(Exception):
        reader = Reader(files, path, Options(max_line_bytes=0))
        with reader.let_go_at_the_end():
            reader.load()
            header, end = reader.log.header, reader.log.end
            if (header.conversation, header.generation, end) == (state.conversation, state.generation, state.end):
                return True
            if header.conversation == state.conversation:
                theirs = f"it ends in {state.end.head.decode()} on the place (generation {state.generation})"
                reason = f"it is there, and ends in {end.head.decode()} (generation {header.generation}); {theirs}"
    raise ConversationExistsError(path=path, reason=reason)


class _Staged:
    """A folder that has no name yet."""

    def __init__(self, files: FileSystem, path: str, id: str) -> None:
        self._files = files
        self._library, self._name = os.path.split(path)
        self._note = stage_name(files)
        self._staged = staged_name(self._note, id)

    def make(self, slots: Sequence[Slot], state: LogState, key: bytes | None) -> None:
        with Folder.make(self._files, self._library) as parent:
            note = Lock(parent, name=self._note)
            with note.released_at_the_end():
                note.take(0)
                try:
                    with parent.subfolder(self._staged, create=True) as folder:
                        _write(folder, slots, state, key)
                    self._give_name(parent, note)
                except BaseException:
                    with suppress(OSError):
                        parent.remove_tree(self._staged)
                        parent.discard(self._note)
                    raise
                parent.sync()  # if that is refused the note stays: whoever sweeps it syncs the name
                parent.discard(self._note)

    def _give_name(self, parent: Folder, note: Lock) -> None:
        if not note.is_held():
            what = "the note of the stage was removed while we held it, so others may have removed what was on it"
            raise ConversationLockedError(path=parent.path, reason=what, way_out=WayOut.CREATE_THE_REST)
        try:
            self._files.rename(parent.handle, self._staged, self._name)
        except OSError as error:
            if error.errno not in _OCCUPIED:
                raise
            raise ConversationExistsError(path=parent.path_of(self._name), reason="something is there") from None


def _write(folder: Folder, slots: Sequence[Slot], state: LogState, key: bytes | None) -> None:
    """All files of the conversation, on the medium: each is synced, and then its name."""
    transcripts: dict[int, list[bytes]] = {}
    for slot in slots:
        if slot.kind in ("generation", "append"):
            transcripts.setdefault(slot.after.generation, []).append(lines_of(slot.data))
    live = transcripts.pop(state.generation)
    if transcripts:
        with folder.subfolder(ARCHIVE, create=True) as archive:
            for number, lines in transcripts.items():
                _write_file(archive, archive_name(number), lines)
            archive.sync()
    if key is not None:
        _write_file(folder, KEY, [key])
    _write_file(folder, METADATA, [metadata_of(state)])
    _write_file(folder, TRANSCRIPT, live)
    folder.sync()


def _write_file(folder: Folder, name: str, chunks: Iterable[bytes]) -> None:
    handle = folder.files.create(folder.handle, name)
    try:
        for chunk in chunks:
            folder.write_all(handle, chunk)
        folder.sync(handle)
    finally:
        folder.files.close(handle)
