"""How does a conversation on a backend become a folder, and one in a folder a :class:`RemoteState`?

It is written in a staging area (``_library/group``), under a name that no process looks for. So its own name has
nothing, or all of it, whatever is interrupted; the next run removes the leftovers of a killed one. An existing folder
that is behind is brought up to date. More invariants of shipping (S1–S4: ``_shipping``):

S5  Nothing is written into a folder unless it is an earlier state of the backend's conversation: its transcript is a
    prefix of that generation there, byte for byte, and its metadata was stored there at some time. This is checked
    before the lock is taken, and again with it.
S6  A generation is written as by a replace: the old one is archived first, and the new one is whole and on disk before
    it is renamed. So wherever it is interrupted, the folder is an earlier state of the conversation, and the next run
    continues.

An append would be enough for new records of one generation. But a power cut may tear many appends that are written as
one anywhere, and whole records after a hole are damage. So the live transcript is rewritten, too: all of it was read
from the backend anyway.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import orjson

from transcript_store._conversation import archive, layout
from transcript_store._conversation.deleting import sweep
from transcript_store._conversation.layout import occupant, read_metadata
from transcript_store._conversation.metadata import MetadataDocument, checked_id, document_body
from transcript_store._conversation.storage import Reader, State, Storage, StorageOptions
from transcript_store._conversation.verify import verify_folder
from transcript_store._conversation.writer import Writer
from transcript_store._log.header import Image, NotAHeader, read_header
from transcript_store._log.record import CHECK_MEMBER, HASH_MEMBER, Header, Mark, Position, close_line
from transcript_store._log.scan import Read, Walk, first_line
from transcript_store._os import filesystem
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem, refusals, storage_error
from transcript_store._os.lock import Lock
from transcript_store._os.names import ARCHIVE, KEY, METADATA, TRANSCRIPT, archive_name, stage_name, staged_name
from transcript_store.backends._backend import Backend, SlotRange
from transcript_store.backends._claims import WAITS_SECONDS, ClaimedLog
from transcript_store.backends._mirror import fill, slot_metadata
from transcript_store.backends._slots import START, LogState, NotASlotError, Slot, slot_lines, split, taken_in
from transcript_store.errors import (
    ConversationExistsError,
    ConversationLockedError,
    CorruptTranscriptError,
    StorageError,
)
from transcript_store.hints import Hint

__all__ = ["Restored", "restore"]


class RemoteTranscript(NamedTuple):
    """One generation of the source: how to read its bytes, and its end."""

    read: Read
    end: Position

    def pieces(self, path: str, begin: Position = START) -> Iterator[bytes]:
        """The lines after a position in pieces of whole lines, the first line alone; all of them are verified.

        Raises ``CorruptTranscriptError`` of this path if a line is not whole.
        """
        if begin == START:
            begin = self.header(path)[1]
            yield bytes(self.read(0, begin.offset_bytes))
        walk = Walk(self.read, begin, self.end.offset_bytes)
        for piece in walk:
            yield bytes(piece.data)
        if walk.end != self.end:
            reason = f"the lines after record {walk.end.seq} have changed"
            raise CorruptTranscriptError(path=path, kind="damaged-line", reason=reason)

    def header(self, path: str) -> tuple[Header, Position]:
        """The header and its end; raises ``CorruptTranscriptError`` if the first line is not one."""
        found = read_header(first_line(self.read, self.end.offset_bytes))
        if isinstance(found, NotAHeader):
            raise CorruptTranscriptError(path=path, kind=found.kind, reason=found.reason)
        return found

    def holds(self, position: Position) -> bool:
        """True if the lines lead through this position: its hash covers every byte before."""
        suffix = HASH_MEMBER + position.head + b'"}\n'
        begin = position.offset_bytes - len(suffix)
        return position.offset_bytes <= self.end.offset_bytes and self.read(begin, len(suffix)) == suffix


class RemoteState(NamedTuple):
    """A conversation of the source, to become a folder."""

    state: LogState
    transcripts: Mapping[int, RemoteTranscript]
    """By generation, in their order."""
    earlier_metadata: frozenset[bytes]
    """The metadata of each time, without the time of its last change."""
    document: bytes
    """metadata.json."""
    key: bytes | None = None
    """key.json of a sealed conversation, if it comes along."""
    folder: str = ""
    """The name of its folder, if that is not its id."""
    synced: Callable[[], RemoteState] | None = None
    """Gives the same, synced: to be asked for before anything of this is written. None if it is synced."""

    @classmethod
    def of(cls, slots: Sequence[Slot], key: bytes | None = None) -> RemoteState:
        """The state after all slots of a conversation."""
        lines: dict[int, tuple[bytearray, Position]] = {}
        for slot in slots:
            if slot.kind in ("generation", "append"):
                held = lines.get(slot.after.generation, (bytearray(), START))[0]
                held += slot_lines(slot.data)
                lines[slot.after.generation] = held, slot.after.end
        transcripts = {number: RemoteTranscript(partial(_part, held), end) for number, (held, end) in lines.items()}
        state, earlier_metadata = slots[-1].after, frozenset(timeless(slot.after.members) for slot in slots)
        return cls(state, transcripts, earlier_metadata, slot_metadata(state), key)

    def is_all_in(self, folder: Storage) -> bool:
        """True if a folder has the backend's transcript."""
        header, state = folder.log.header, self.state
        return (header.conversation, header.generation, folder.log.end) == (
            state.conversation,
            state.generation,
            state.end,
        )

    def has_news_for(self, folder: Storage) -> bool:
        """True if a folder that is an earlier state lacks something."""
        is_noted = folder.mark is not None  # otherwise metadata.json is of the generation before
        return not (is_noted and self.is_all_in(folder) and timeless(folder.members) == timeless(self.state.members))

    def why_not_from(self, folder: Storage) -> str | None:
        """S5: why a folder is not an earlier state of the backend's conversation; None if it is."""
        log, state = folder.log, self.state
        if log.header.conversation != state.conversation:
            return f"the existing one is the conversation {log.header.conversation}"
        ends = f"the existing one ends in {log.end.head.decode()} (generation {log.header.generation})"
        there = f"on the backend it ends in {state.end.head.decode()} (generation {state.generation})"
        known = self.transcripts.get(log.header.generation)
        if known is None:
            return f"{ends}, which the backend lacks; {there}"
        if not known.holds(log.end):
            return f"{ends}, and is not a prefix of the backend's conversation; {there}"
        if timeless(folder.members) not in self.earlier_metadata or str(folder.members["updated_at"]) > max(
            state.at, str(state.members["updated_at"]), log.updated_at
        ):
            return f"{ends}, and its metadata was changed here; {there}"
        return None


def _part(held: bytearray, offset: int, length: int) -> bytearray:
    return held[offset : offset + length]


def timeless(members: dict[str, Any]) -> bytes:
    """Metadata without the time of its last change, to be compared."""
    kept = {name: value for name, value in members.items() if name != "updated_at"}
    return orjson.dumps(kept, option=orjson.OPT_SORT_KEYS)


def catch_up(files: FileSystem, path: str, standing: RemoteState, key: bytes | None) -> int:
    """Bring a folder up to date that is an earlier state of the conversation; returns how many records it did not have.

    ``key`` is put beside it if there is no key file. Raises ``ConversationExistsError`` if it is not an earlier state:
    nothing was written.
    """
    writer = Writer(
        files, path, StorageOptions(max_line_bytes=0)
    )  # no key is needed: sealed records are copied unchanged
    with writer.let_go_at_the_end():
        writer.load()
        with refusals(path, "compare it with the backend", "It is unchanged"):
            reason = standing.why_not_from(writer)
        if reason is not None:
            raise ConversationExistsError(path=path, reason=reason)
        live, end = writer.log.header.generation, writer.log.end
        due = [
            transcript
            for number, transcript in standing.transcripts.items()
            if number > live or (number == live and transcript.end != end)
        ]
        writer.go_on_with((Kept(transcript, path) for transcript in due), standing.document, key)
        added = sum(transcript.end.seq for transcript in due)
        return added - (end.seq if standing.transcripts[live] in due else 0)


class Kept(Image):
    """A transcript of the source, byte for byte."""

    def __init__(self, transcript: RemoteTranscript, path: str) -> None:
        never = (0, "", None)  # nothing is written after it before it is loaded again
        line = transcript.read(0, transcript.header(path)[1].offset_bytes)
        super().__init__(bytes(line), never, never, (), cache_bytes=0)
        self._transcript, self._path = transcript, path

    def pieces(self) -> Iterator[bytes | bytearray]:
        yield from self._transcript.pieces(self._path)
        self.end = self._transcript.end
        self.cache.skip_to(self.end)


_OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY})
_DOING = "copy the conversation"
_IS_WHOLE = "It exists, and is complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The result of :func:`restore`."""

    id: str
    directory: str
    generation: int
    record_count: int
    """The records of the live generation."""
    head: str
    """The hash of the last of them."""
    is_new: bool
    """True if the folder was created. Otherwise it existed, and was brought up to date, or had everything already."""
    added_records: int
    """How many records the folder did not have, of all generations."""
    key_is_missing: bool
    """True if the conversation is sealed, and has no key.json."""
    copy_of: str | None = None
    """If it diverged in the library: the id of the original, beside which it is stored as a copy."""
    is_changed: bool = True
    """True if anything was written."""


def restore(
    backend: Backend,
    id: str,
    directory: filesystem.AnyPath,
    *,
    with_key: bool = False,
    waits_seconds: Sequence[float] = WAITS_SECONDS,
    file_system: FileSystem | None = None,
) -> Restored:
    """Create the folder of a conversation from a backend: every generation and the metadata, byte for byte.

    On return the folder is whole and survives a power loss. If this raises, or is killed, the folder does not exist, or
    is whole: repeat the call. Nothing is claimed on the backend, and its writer may be active.

    A folder that is an earlier state of the conversation is brought up to date, under its lock: the generations that it
    lacks, what the live one lacks, and the metadata. If that raises, or is killed, the folder is an earlier state of
    the conversation; repeat the call. A folder with the same transcript stays unchanged, also if its metadata was
    changed there.

    Args:
        backend: where the conversation is.
        id: of the conversation.
        directory: the new folder. Missing parents are created.
        with_key: also restore the wrapped key of a sealed conversation, if the backend has it. Otherwise add key.json yourself.
            An existing key.json stays; a missing one is put there, under the lock of its folder.
        waits_seconds: how long to wait between two attempts of a call without an answer.
        file_system: for tests.

    Raises:
        ConversationExistsError: the path has something else, or a folder that is not an earlier state: the message has
            both heads. It was not changed. Choose another folder.
        ConversationLockedError: the folder is behind, and another process is writing to it. Close that writer first.
        ConversationNotFoundError: the backend has no such conversation, or it was deleted there.
        CorruptTranscriptError: the conversation on the backend is damaged.
        UnsupportedVersionError: a later version of this library wrote it.
        BackendError: the backend refused, or did not answer. Call it again.
        StorageError: the folder cannot be written, or cannot be synced; ``consequence`` says whether it exists.
    """
    files = filesystem.REAL if file_system is None else file_system
    path = filesystem.absolute_path(directory)
    slots = ClaimedLog(backend, checked_id(id), waits_seconds=waits_seconds, sleep=files.wait)
    # All slots are verified before anything is written.
    slots.load_patiently()
    state, key = slots.state, slots.key.read() if with_key and slots.state.is_sealed else None
    standing, added = RemoteState.of(slots.fresh, key), 0
    with refusals(path, _DOING, "Nothing was written there"):
        sweep(files, os.path.dirname(path))  # of a run that was killed: a name that it gave is synced, too
        reason = occupant(files, path)
    if is_new := reason is None:
        StagedFolder(files, path, id).make(standing)
        added = sum(transcript.end.seq for transcript in standing.transcripts.values())
    elif _is_behind(files, path, standing, reason):
        added = catch_up(files, path, standing, key)
    key_is_missing = not _has_key(files, path) and state.is_sealed
    if key_is_missing and key is not None:
        _put_key(files, path, key)
        key_is_missing = False
    return Restored(
        id=id,
        directory=path,
        generation=state.generation,
        record_count=state.end.seq,
        head=state.end.head.decode(),
        is_new=is_new,
        added_records=added,
        key_is_missing=key_is_missing,
    )


def _has_key(files: FileSystem, path: str) -> bool:
    with refusals(path, "look for its key", _IS_WHOLE), Folder.open(files, path) as folder:
        return folder.status(KEY) is not None


def _put_key(files: FileSystem, path: str, key: bytes) -> None:
    """Put the wrapped key beside a conversation that lacks only that."""
    writer = Writer(files, path, StorageOptions(max_line_bytes=0))
    with writer.let_go_at_the_end(), refusals(path, "restore its key", _IS_WHOLE):
        writer.load()
        # Looked up again under the lock: a key that came meanwhile is the one that the folder is used with.
        if writer.folder.status(KEY) is None:
            writer.folder.replace_file(KEY, [key])


def _is_behind(files: FileSystem, path: str, standing: RemoteState, reason: str | None) -> bool:
    """True if the folder at a path lacks something; raises if it is not an earlier state of the conversation, with
    ``reason``.
    """
    # The folder is only inspected here: any error means that it is not an earlier state.
    with suppress(Exception):  # whatever is wrong with it, it is not touched
        reader = Reader(files, path, StorageOptions(max_line_bytes=0))
        with reader.let_go_at_the_end():
            reader.load()
            reason = standing.why_not_from(reader)
            if reason is None:
                return standing.has_news_for(reader)
            if standing.is_all_in(reader):
                return False  # metadata that was changed here stays
    raise ConversationExistsError(path=path, reason=reason or "the name is taken")


class StagedFolder:
    """A folder that has no name yet."""

    def __init__(self, files: FileSystem, path: str, id: str) -> None:
        self._files = files
        self._path = path
        self._library, self._name = os.path.split(path)
        self._note = stage_name(files)
        self._staged = staged_name(self._note, id)
        self._holds = "There is none yet"
        """The consequence if the system refuses the next step."""

    def make(self, standing: RemoteState, *, verifies: bool = False) -> None:
        """Write all files, and give the folder its name. If this raises, there is none of that name, or all of it.

        If it ``verifies``, what was written is read again before, and a folder with damage gets no name.
        """
        try:
            self._make(standing, verifies)
        except StorageError:
            raise
        except OSError as error:
            raise storage_error(error, self._path, _DOING, self._holds) from error

    def _make(self, standing: RemoteState, verifies: bool) -> None:
        with Folder.make(self._files, self._library) as parent:
            note = Lock(parent, name=self._note)
            with note.released_at_the_end():
                note.take(0)
                try:
                    with parent.subfolder(self._staged, create=True) as folder:
                        _write(folder, standing, self._path)
                        if verifies:
                            _require_intact(folder, self._path)
                    self._give_name(parent, note)
                except BaseException:
                    with suppress(OSError):
                        parent.remove_tree(self._staged)
                        parent.discard(self._note)
                    raise
                parent.sync()  # if that is refused the note stays: the process that sweeps it syncs the name
                self._holds = _IS_WHOLE
                parent.discard(self._note)

    def _give_name(self, parent: Folder, note: Lock) -> None:
        # Checked directly before the rename: without the note another process may have swept the staged folder.
        if not note.is_held():
            what = "the staging note was removed while this process held it, so another process may have removed the folder"
            raise ConversationLockedError(path=parent.path, reason=what, hint=Hint.CREATE_THE_REST)
        try:
            # The commit. It fails if the name is taken, so nothing is ever replaced.
            self._files.rename(parent.handle, self._staged, self._name)
        except OSError as error:
            if error.errno not in _OCCUPIED:
                raise
            raise ConversationExistsError(path=parent.path_of(self._name), reason="the name is taken") from None
        self._holds = f"{_IS_WHOLE}, and a power loss may take it away"


def _require_intact(folder: Folder, path: str) -> None:
    """Raise ``CorruptTranscriptError``, of the path that the folder is to have, if anything in it is damaged."""
    if findings := verify_folder(folder).findings:
        first = findings[0]
        own_path = first.path.replace(folder.path, path, 1)
        raise CorruptTranscriptError(path=own_path, kind=first.kind, reason=f"{first.reason}; it was not restored")


def _write(folder: Folder, standing: RemoteState, path: str) -> None:
    """All files of the conversation, on the medium: each is synced, and then its name."""
    transcripts = dict(standing.transcripts)
    live = transcripts.pop(standing.state.generation)
    if transcripts:
        with folder.subfolder(ARCHIVE, create=True) as archive:
            for number, transcript in transcripts.items():
                _write_file(archive, archive_name(number), transcript.pieces(path))
            archive.sync()
    if standing.key is not None:
        _write_file(folder, KEY, [standing.key])
    _write_file(folder, METADATA, [standing.document])
    # The transcript last: a staged folder without it can only be a leftover.
    _write_file(folder, TRANSCRIPT, live.pieces(path))
    folder.sync()


def _write_file(folder: Folder, name: str, chunks: Iterable[bytes]) -> None:
    handle = folder.files.create(folder.handle, name)
    try:
        for chunk in chunks:
            folder.write_all(handle, chunk)
        folder.sync(handle)
    finally:
        folder.files.close(handle)


# ---- damaged conversations ----
# Writes a damaged conversation of a backend into a folder, unchanged, for the code that reads and repairs damaged
# folders.
#
# Slots are written once, each chained to the one before: nothing after a damaged one can be applied, and nothing can
# replace it. So the backend stays unchanged. The lines of all slots, those that verify and those after them, become a
# damaged transcript.


def write_damaged(files: FileSystem, path: str, id: str, pieces: Sequence[SlotRange], key: bytes | None) -> None:
    """Write the damaged conversation into a new folder. On return it is synced."""
    slots, behind = _verified(id, [data for _, data in sorted(_split(pieces))])
    lines = [_lines(data) for data in behind]
    begins = [number for number, data in enumerate(lines) if not isinstance(read_header(data), NotAHeader)]
    if slots:
        fill(files, path, slots)
    with Folder.make(files, path) as folder:
        if key is not None:
            folder.replace_file(KEY, [key])
        if not slots:
            folder.replace_file(TRANSCRIPT, lines[begins[-1] :] if begins else lines)
        elif begins:
            _begin_another(folder, slots[-1].after.generation, lines[begins[-1] :])
        elif lines:
            with folder.reading(TRANSCRIPT) as source:
                folder.replace_file(TRANSCRIPT, [source.read(0, source.size), *lines])


def _begin_another(folder: Folder, verified: int, lines: Sequence[bytes]) -> None:
    """A generation that started after the damage is the live one; the one that verifies is an earlier one."""
    with folder.subfolder(ARCHIVE, create=True) as archive:
        name = archive_name(verified)
        archive.discard(name)
        folder.files.link(folder.handle, TRANSCRIPT, archive.handle, name)
        archive.sync()
    folder.replace_file(TRANSCRIPT, lines)
    folder.discard(METADATA)  # it belongs to the earlier generation; the header has the metadata of this one's start


def _split(pieces: Sequence[SlotRange]) -> Iterator[tuple[int, bytes]]:
    """The slots of these ranges, each once; a range that cannot be split is kept whole. A pack wins over a slot."""
    found: dict[int, bytes] = {}
    for piece in sorted(pieces, key=lambda piece: not piece.is_pack):
        try:
            held = [*split(piece)]
        except NotASlotError:
            held = [(piece.first, piece.data)]
        for number, data in held:
            # Packs come first in the order, so a pack wins over a single slot that a stalled writer left.
            found.setdefault(number, data)
    yield from found.items()


def _verified(id: str, found: Sequence[bytes]) -> tuple[list[Slot], Sequence[bytes]]:
    """The slots that verify, from the first one on, and what follows them."""
    state, taken = LogState(conversation=id), list[Slot]()
    for data in found:
        try:
            state, slot = taken_in(state, data)
        except NotASlotError:
            break
        taken.append(slot)
    return taken, found[len(taken) :]


def _lines(data: bytes) -> bytes:
    """Everything but the envelopes: of a pack that cannot be taken apart there are several."""
    return b"".join(line for line in data.splitlines(keepends=True) if not line.startswith(b'{"slot":'))


class Moment(NamedTuple):
    """The contents of metadata.json, read with its transcript."""

    found: MetadataDocument
    """The bytes of the file."""
    agreed: MetadataDocument
    """As it holds: a replace that was cut off before it wrote metadata.json has the metadata in its header."""


def read_at_one_moment(reader: Reader) -> Moment:
    """Refresh a reader to a consistent state of transcript and metadata, both synced."""
    if reader.state is State.NEW:
        reader.load()
    while True:
        document = read_metadata(reader.folder)
        reader.refresh()
        reader.sync_before_copy()
        agreed = layout.of_live(reader.log.header, document)
        if isinstance(agreed, MetadataDocument) and read_metadata(reader.folder) == document:
            return Moment(document, agreed)


@contextmanager
def standing_in(files: FileSystem, path: str, *, with_key: bool = True) -> Iterator[RemoteState]:
    """The contents of a folder, to be compared within the block, and ``synced`` to be copied (S4). Nothing is locked; it may have a writer.

    Two syncs of directories take most of the time of a backup in which nothing is new.
    """
    reader = Reader(files, path, StorageOptions(max_line_bytes=0, tail_only=True))

    def standing(moment: Moment) -> RemoteState:
        return standing_of_folder(reader, moment, reader.folder.read_file(KEY) if with_key else None)

    def synced() -> RemoteState:
        return standing(read_at_one_moment(reader))

    with reader.let_go_at_the_end(), refusals(path, "copy the conversation"):
        reader.load()
        document = read_metadata(reader.folder)
        agreed = layout.of_live(reader.log.header, document)
        if isinstance(agreed, MetadataDocument):
            yield standing(Moment(document, agreed))._replace(synced=synced)
        else:  # it was replaced just now
            yield synced()


def standing_of_folder(storage: Storage, moment: Moment | None = None, key: bytes | None = None) -> RemoteState:
    """The contents of an open folder. Its lines are read on demand, so the storage stays open that long."""
    header, end = storage.log.header, storage.log.end
    members = storage.members if moment is None else moment.agreed.members
    state = LogState(
        conversation=header.conversation,
        slot=1,
        at=storage.log.updated_at,
        generation=header.generation,
        members=members,
        end=end,
        is_sealed=header.is_sealed,
    )
    if moment is None or (moment.found is moment.agreed and moment.found.check is None):
        document = encoded_document(members, Mark(header.generation, end))
    else:  # a check covers the mark that is already there
        document = encoded_document(moment.found.members, moment.found.mark, moment.found.check)
    return RemoteState(state, _Transcripts(storage), frozenset({timeless(members)}), document, key)


def encoded_document(members: dict[str, object], mark: Mark | None, check: tuple[bytes, bytes] | None = None) -> bytes:
    """metadata.json, with its keyed check if it has one."""
    body = document_body(members, mark)
    return close_line(b"", body if check is None else b'%b%b%b"' % (body, CHECK_MEMBER, check[1]))[0]


class _Transcripts(Mapping[int, RemoteTranscript]):
    """The generations in a folder. An earlier one is verified when it is opened."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._live = storage.log.header.generation
        self._known = {self._live: RemoteTranscript(storage.log.read, storage.log.end)}

    def __getitem__(self, number: int) -> RemoteTranscript:
        if number not in self._known:
            if number not in self:
                raise KeyError(number)
            with self._storage.archived(number) as log:
                self._known[number] = RemoteTranscript(self._reads(number), log.end)
        return self._known[number]

    def _reads(self, number: int) -> Read:
        """How an earlier generation is read: its file is never changed, and is open only while it is read."""

        def read(offset: int, length: int) -> bytearray:
            with self._refusals(), archive.reading(self._storage.folder, number) as source:
                return source.read(offset, length)

        return read

    def _numbers(self) -> list[int]:
        with self._refusals():
            return [*(number for number in archive.numbers(self._storage.folder) if number < self._live), self._live]

    def _refusals(self) -> AbstractContextManager[None]:
        return refusals(self._storage.folder.path, "copy its archive")

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers())

    def __len__(self) -> int:
        return len(self._numbers())

    def __contains__(self, number: object) -> bool:
        return number in self._numbers()
