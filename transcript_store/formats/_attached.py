"""Pictures, sounds and documents beside the conversations of an export, found by the ids in messages.

A file's name starts with its id: ``file-AbC.dat``, ``file_00ff-zebra.png``. Its first bytes tell its type. The user's name for it
is in ``conversation_asset_file_names.json``, or in the message.
"""

from __future__ import annotations

import base64
import re
from functools import cached_property
from typing import Any, NamedTuple

from transcript_store.formats._members import Json, text_member
from transcript_store.formats._rows import object_beside

LONGEST_BYTES = 16 << 20
"""A larger file stays a name: base64 in a message costs a third more than its bytes."""
_FILE_ID = re.compile(r"file[-_][A-Za-z0-9]+")
_NAMES = "conversation_asset_file_names.json"
_BEGINS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"ID3", "audio/mp3"),
    (b"\xff\xfb", "audio/mp3"),
    (b"%PDF-", "application/pdf"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}


class Attached(NamedTuple):
    """A file of an export."""

    name: str
    """The user's name for it, or its name in the export."""
    type: str
    """``text/plain`` of a text, whatever it is; empty if it is of no known type."""
    data: bytes

    def part(self) -> Json | None:
        """As a part of a message of chat completions; None of what has no place there."""
        encoded = base64.b64encode(self.data).decode()
        if self.type.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": f"data:{self.type};base64,{encoded}"}}
        if self.type.startswith("audio/"):
            return {"type": "input_audio", "input_audio": {"data": encoded, "format": self.type[len("audio/") :]}}
        if self.type == "application/pdf":
            data = f"data:{self.type};base64,{encoded}"
            return {"type": "file", "file": {"filename": self.name, "file_data": data}}
        return {"type": "text", "text": f"[file: {self.name}]\n{self.data.decode()}"} if self.type else None


class AttachedFiles:
    """The files beside a source."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def find(self, pointer: str, name: str | None = None) -> Attached | None:
        """The file that a message names by id, or by an address with the id; None if it is missing or too long. ``name`` is its
        name there.
        """
        path = next((self._paths[each] for each in _FILE_ID.findall(pointer) if each in self._paths), None)
        data = None if path is None else self._source.beside(path, longest=LONGEST_BYTES)
        if path is None or data is None:
            return None
        file = path.rpartition("/")[2]
        known = text_member(self._names.get(path)) or text_member(self._names.get(file)) or file
        return Attached(name or known.rpartition("/")[2], _type_of(data), data)

    @cached_property
    def _paths(self) -> dict[str, str]:
        names = getattr(self._source, "names_beside", None)
        found: dict[str, str] = {}
        for path in () if names is None else names():
            if (its_id := _FILE_ID.match(path.rpartition("/")[2])) is not None:
                found.setdefault(its_id[0], path)
        return found

    @cached_property
    def _names(self) -> Json:
        return object_beside(self._source, _NAMES)


def _type_of(data: bytes) -> str:
    if data.startswith(b"RIFF"):
        return _RIFF.get(data[8:12], "")
    for begins, kind in _BEGINS:
        if data.startswith(begins):
            return kind
    try:
        return "" if b"\0" in data or not data.decode().strip() else "text/plain"
    except UnicodeDecodeError:
        return ""
