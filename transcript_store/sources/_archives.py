"""Members of an archive, by name only: nothing is unpacked to where a member's name says, and no bomb fills the disk."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import IO, cast

from transcript_store.installation import install_command
from transcript_store.sources._files import FileSource, Stamp, UnreadableSourceError, private_copy

ZIP, ZSTANDARD = b"PK\x03\x04", b"\x28\xb5\x2f\xfd"
LONGEST_MEMBER_BYTES = 4 << 30
_MOST_MEMBERS = 1000
_WANTED = ("conversations.json", "conversations-*.json", "*.jsonl")
_HIGHEST_RATIO = 200
"""Text of conversations packs to a tenth or less, not to a five-hundredth."""
_ALWAYS_BYTES = 1 << 20
_REFUSALS = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError)
"""What ``zipfile`` raises for damage, unknown methods and passwords."""


def members(name: str, archive: zipfile.ZipFile) -> Iterator[tuple[zipfile.ZipInfo, str | None]]:
    """The members that may hold conversations, and why each is refused (or None).

    Raises:
        UnreadableSourceError: there are too many; behind the first thousand.
    """
    wanted = [
        info
        for info in archive.infolist()
        if any(fnmatchcase(info.filename.rpartition("/")[2], pattern) for pattern in _WANTED) and not info.is_dir()
    ]
    for info in wanted[:_MOST_MEMBERS]:
        yield info, _why_not(info)
    if len(wanted) > _MOST_MEMBERS:
        raise UnreadableSourceError(path=name, reason=f"has more than {_MOST_MEMBERS:,} members with conversations")


@contextmanager
def member(name: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, stamp: Stamp) -> Iterator[FileSource]:
    """One member as a source.

    Raises:
        UnreadableSourceError: it is damaged, encrypted, or larger than it may be.
    """
    called = f"{name}!{info.filename}"
    try:
        with archive.open(info) as stream, private_copy(called, stream, stamp, LONGEST_MEMBER_BYTES) as source:
            source.neighbours = _Members(archive, info.filename.rpartition("/")[0])
            yield source
    except _REFUSALS as error:
        raise UnreadableSourceError(path=called, reason=f"cannot be unpacked: {error}") from error


class _Members:
    """The other members of an archive, as the files beside one of them."""

    def __init__(self, archive: zipfile.ZipFile, folder: str) -> None:
        self._archive, self._below = archive, f"{folder}/" if folder else ""

    def read(self, path: str, longest: int) -> tuple[bytes | None, None]:
        try:
            info = self._archive.getinfo(self._below + path)
            if info.file_size > longest or _why_not(info) is not None:
                return None, None
            with self._archive.open(info) as stream:
                found = stream.read(longest + 1)
        except (KeyError, *_REFUSALS):
            return None, None
        return (found if len(found) <= longest else None), None

    def names(self) -> Iterator[str]:
        for name in self._archive.namelist():
            if name.startswith(self._below) and not name.endswith("/"):
                yield name[len(self._below) :]


@contextmanager
def unpacked(name: str, handle: int, stamp: Stamp) -> Iterator[FileSource]:
    """A file that zstandard packed, as a source.

    Raises:
        UnreadableSourceError: it is damaged or too large, or the module ``zstandard`` is not installed.
    """
    try:
        import zstandard
    except ImportError:
        raise UnreadableSourceError(path=name, reason=f"is packed with zstandard: {install_command('zstd')}") from None
    try:
        with (
            os.fdopen(os.dup(handle), "rb") as packed,
            zstandard.ZstdDecompressor().stream_reader(packed) as stream,
            private_copy(name, cast("IO[bytes]", stream), stamp, LONGEST_MEMBER_BYTES) as source,
        ):
            yield source
    except zstandard.ZstdError as error:
        raise UnreadableSourceError(path=name, reason=f"cannot be unpacked: {error}") from error


def _why_not(info: zipfile.ZipInfo) -> str | None:
    if info.file_size > LONGEST_MEMBER_BYTES:
        return f"says that it unpacks to {info.file_size:,} bytes"
    if info.file_size > _ALWAYS_BYTES + info.compress_size * _HIGHEST_RATIO:
        return f"would unpack {info.compress_size:,} bytes to {info.file_size:,}"
    return None


@contextmanager
def archive(name: str, handle: int) -> Iterator[zipfile.ZipFile]:
    """An archive, open. Its list of members is read once: a hostile one is long.

    Raises:
        UnreadableSourceError: it is damaged.
    """
    with os.fdopen(os.dup(handle), "rb") as file:
        try:
            found = zipfile.ZipFile(file)
        except _REFUSALS as error:
            raise UnreadableSourceError(path=name, reason=f"is no ZIP archive that can be read: {error}") from error
        with found:
            yield found
