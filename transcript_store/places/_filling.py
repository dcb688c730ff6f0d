"""Slots become a folder in a spool: transcript.jsonl, metadata.json and archive/, as a writer on a disk would have left them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from transcript_store._conversation.metadata import document_body
from transcript_store._log.header import NotAHeader, read_header
from transcript_store._log.record import CHECK_MEMBER, Mark, close_line
from transcript_store._log.scan import PIECE_BYTES, first_line
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import ARCHIVE, METADATA, TRANSCRIPT, archive_name
from transcript_store.places._slots import LogState, Slot, lines_of


def fill(files: FileSystem, path: str, slots: Sequence[Slot]) -> None:
    """Write what slots hold into a folder that has what stands before them. Slot 1 begins it anew.

    If this is cut off, the folder is of no use any more: begin it anew.
    """
    with Folder.make(files, path) as folder:
        for kind, run in groupby(slots, lambda slot: slot.kind):
            if kind == "append":
                _append(folder, run)
            elif kind == "generation":
                for slot in run:
                    _begin(folder, slot)
        _note(folder, slots[-1].after)


def _begin(folder: Folder, slot: Slot) -> None:
    if slot.number == 1:
        folder.remove_tree(ARCHIVE)
    else:
        with folder.reading(TRANSCRIPT) as source:
            before = read_header(first_line(source.read, source.size))
        assert not isinstance(before, NotAHeader)  # it was verified, and written here
        name = archive_name(before[0].generation)
        with folder.subfolder(ARCHIVE, create=True) as archive:
            archive.discard(name)  # of a replace that did not come to its slot
            folder.files.link(folder.handle, TRANSCRIPT, archive.handle, name)
    folder.replace_file(TRANSCRIPT, [lines_of(slot.data)])


def _append(folder: Folder, slots: Iterable[Slot]) -> None:
    handle, _ = folder.open_file(TRANSCRIPT, to_append=True)
    try:
        piece = bytearray()
        for slot in slots:
            piece += lines_of(slot.data)
            if len(piece) >= PIECE_BYTES:
                folder.write_all(handle, piece)
                piece = bytearray()
        folder.write_all(handle, piece)
    finally:
        folder.files.close(handle)


def _note(folder: Folder, state: LogState) -> None:
    folder.replace_file(METADATA, [metadata_of(state)])


def metadata_of(state: LogState) -> bytes:
    """metadata.json. Of a sealed conversation it is what the last one with the key made a check of: marks are the spool's own affair."""
    if state.checked is None:
        body = document_body(state.members, Mark(state.generation, state.end))
    else:
        mark, check = state.checked
        body = b'%b%b%b"' % (document_body(state.members, mark), CHECK_MEMBER, check)
    return close_line(b"", body)[0]
