"""A conversation in a folder, as a :class:`RemoteState`: of one moment, whatever its writer does, and read a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from transcript_store._conversation import archive, layout
from transcript_store._conversation.layout import read_metadata
from transcript_store._conversation.metadata import MetadataDocument, document_body
from transcript_store._conversation.storage import Reader, State, Storage, StorageOptions
from transcript_store._log.record import CHECK_MEMBER, Mark, close_line
from transcript_store._log.scan import Read
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import KEY
from transcript_store._os.os_errors import refusals
from transcript_store.backends._restoring import RemoteState, RemoteTranscript, timeless
from transcript_store.backends._slots import LogState


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
            with archive.reading(self._storage.folder, number) as source:
                return source.read(offset, length)

        return read

    def _numbers(self) -> list[int]:
        earlier = (number for number in archive.numbers(self._storage.folder) if number < self._live)
        return [*earlier, self._live]

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers())

    def __len__(self) -> int:
        return len(self._numbers())

    def __contains__(self, number: object) -> bool:
        return number in self._numbers()
