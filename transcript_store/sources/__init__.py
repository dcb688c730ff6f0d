"""Session folders of other programs on this machine, and their files and databases, opened read-only (F1).

``discover()`` searches the folders of known programs; ``find_sources()`` takes a path. ``open_parts()`` opens a found source: a
file of lines, the tables of a database, the members of an archive.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager

from transcript_store.descriptors import DATABASE
from transcript_store.formats import SessionFolder, SourceHead, head_of
from transcript_store.sources import _files, _folders
from transcript_store.sources._files import FileSource, Rows, Stamp, UnreadableSourceError, how_it_looks, open_source
from transcript_store.sources._program_table import PROGRAMS, KnownProgram, Retention, program_table
from transcript_store.sources._programs import (
    SESSION_FOLDERS,
    FoundSource,
    UnusableFormatError,
    added_formats,
    added_names,
    discover,
    find_sources,
    folder_of,
    session_at,
    session_folders,
)

__all__ = [
    "PROGRAMS", "SESSION_FOLDERS", "FileSource", "FoundSource", "KnownProgram", "Retention", "Rows", "SessionFolder",
    "Stamp", "UnreadableSourceError", "UnusableFormatError", "added_formats", "added_names", "discover",
    "find_sources", "folder_of", "how_it_looks", "open_parts", "program_table", "session_at", "session_folders",
]  # fmt: skip

_HEAD_BYTES = 16
_Part = tuple[SourceHead, FileSource | Rows] | UnreadableSourceError


@contextmanager
def open_parts(path: str) -> Iterator[Iterator[_Part]]:
    """Open a file and yield its parts, each with its head; an archive has several.

    A part is open until the next one is requested. A member that cannot be read comes as an error among the parts, so that the
    others are still read.

    Raises:
        UnreadableSourceError: the file cannot be opened, or is not a regular file.
    """
    with open_source(path) as handle, ExitStack() as stack:
        parts = _parts(path, handle)
        stack.callback(parts.close)
        yield parts


def _parts(path: str, handle: int) -> Generator[_Part, None, None]:
    source = FileSource(path, handle, folder=os.path.dirname(path))
    try:
        start = source.read(0, _HEAD_BYTES)
        if start.startswith(DATABASE):
            with _files.database(path, handle, source.stamp) as rows:
                yield SourceHead(path, start, (), rows.tables()), rows
        elif start[:1] == b"{" and _folders.is_stored_apart(path):
            apart = _folders.JsonRows(path, source.stamp)
            yield SourceHead(path, start, (), apart.tables()), apart
        elif start.startswith(_files.ZIP):
            yield from _members(path, handle, source.stamp)
        elif start.startswith(_files.ZSTANDARD):
            with _files.unpacked(path, handle, source.stamp) as unpacked:
                yield head_of(unpacked), unpacked
        elif (layout := _folders.layout_of(path)) is not None:
            with _folders.folder_source(path, source, layout) as lines:
                yield head_of(lines), lines
        else:
            yield head_of(source), source
    except UnreadableSourceError as error:
        yield error


def _members(path: str, handle: int, stamp: Stamp) -> Iterator[_Part]:
    with _files.archive(path, handle) as archive:
        for info, why_not in _files.archive_members(path, archive):
            if why_not is not None:
                yield UnreadableSourceError(path=f"{path}!{info.filename}", reason=why_not)
                continue
            try:
                with _files.open_member(path, archive, info, stamp) as source:
                    yield head_of(source), source
            except UnreadableSourceError as error:
                yield error
