"""What a program keeps of a session in small files beside it: its title, its parent. They are read with the session, and not kept."""

from __future__ import annotations

from typing import Any

from transcript_store.formats._document import parsed
from transcript_store.formats._members import Json


def text_beside(source: Any, path: str) -> bytes:
    """What a file beside a source holds; empty if there is none, or if the source is no file by itself.

    ``path`` is relative to the folder of the source, with ``/``.
    """
    read = getattr(source, "beside", None)
    return (read(path) if read is not None else None) or b""


def object_beside(source: Any, path: str) -> Json:
    """The JSON object that a file beside a source holds; empty if it holds none."""
    return parsed(text_beside(source, path)) or {}


def lines_beside(source: Any, path: str) -> list[Json]:
    """The JSON objects on the lines of a file beside a source."""
    values = map(parsed, text_beside(source, path).split(b"\n"))
    return [value for value in values if value is not None]


def file_of(source: Any) -> str:
    """The name of a source's file, without its folders."""
    return str(source.name).replace("\\", "/").rpartition("/")[2]
