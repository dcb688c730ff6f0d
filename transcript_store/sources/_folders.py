"""A session that is a folder of small files, as one source of lines. :mod:`transcript_store.formats._folders` names the files."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from transcript_store.formats import LAYOUTS, FolderLayout, objects_of
from transcript_store.sources._files import FileSource, UnreadableSourceError, how_it_looks, private_copy

LONGEST_FOLDER_BYTES = 4 << 30
_LONGEST_PART_BYTES = 256 << 20
ANCHORS = frozenset(layout.anchor for layout in LAYOUTS)


def layout_of(path: str) -> FolderLayout | None:
    """The layout of a session folder, if the file is its anchor; else None."""
    folder, name = os.path.split(path)
    for layout in LAYOUTS:
        if layout.anchor == name and os.path.isdir(os.path.join(folder, layout.beside[0])):
            return layout
    return None


def without_parts(paths: Iterable[str]) -> set[str]:
    """The paths that are not parts of a folder whose anchor is among them."""
    given = list(paths)
    parts = {
        os.path.join(os.path.dirname(path), name)
        for path in given
        for layout in LAYOUTS
        if os.path.basename(path) == layout.anchor
        for name in layout.beside
    }
    return {path for path in given if not parts or parts.isdisjoint(_with_above(path))}


@contextmanager
def folder_source(path: str, anchor: FileSource, layout: FolderLayout) -> Iterator[FileSource]:
    """The files of a session as one source. A change is seen by the stamps of the anchor and of their folders.

    Raises:
        UnreadableSourceError: a part is missing, is a link or is too long; or they have more than 4 GB.
    """
    folder = os.path.dirname(path)
    seen = {os.path.join(folder, name): how_it_looks(os.path.join(folder, name)) for name in layout.beside}

    def read(part: str) -> bytes | None:
        return anchor.beside(part, longest=_LONGEST_PART_BYTES)

    def required(part: str) -> bytes:
        if (found := read(part)) is None:
            reason = (
                f"its part {part} is missing, is not a regular file, or is longer than {_LONGEST_PART_BYTES:,} bytes"
            )
            raise UnreadableSourceError(path=path, reason=reason)
        return found

    def names(part: str) -> list[str]:
        try:
            with os.scandir(os.path.join(folder, part)) as entries:
                return sorted(entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise UnreadableSourceError(
                path=path, reason=f"its folder {part} cannot be read: {error.strerror}"
            ) from error

    data = b"".join(line for part in layout.parts(read, names) for line in _lines_of(required(part)))
    if (last := data.removesuffix(b"\n").rpartition(b"\n")[2]) and not _is_json(last):
        data = data.removesuffix(b"\n")  # it is being written: left for the next import, as of any file of lines
    stamp = anchor.stamp._replace(size=len(data))
    with private_copy(path, io.BytesIO(data), stamp, LONGEST_FOLDER_BYTES) as source:
        source.neighbours, source.seen_beside = anchor.neighbours, seen
        yield source


def _lines_of(data: bytes) -> Iterator[bytes]:
    if data.lstrip()[:1] == b"[":
        source = _Bytes(data)
        yield from (data[span.offset : span.offset + span.size] + b"\n" for span in objects_of(source))
    elif data:
        yield data if data.endswith(b"\n") else data + b"\n"


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


class _Bytes:
    name = "a part"

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]


def _with_above(path: str) -> Iterator[str]:
    """A path, and the folders that it lies in."""
    yield path
    while (above := os.path.dirname(path)) != path:
        path = above
        yield path
