"""What an export writes: JSON lines, and files that are new, 0600, complete and synced before they have their names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

import orjson

from transcript_store.conversation import Record
from transcript_store.errors import TranscriptStoreError
from transcript_store.temporaries import temporary


class ExportError(TranscriptStoreError):
    """A conversation, or a file to be written, at ``path`` stands in the way of an export. Nothing was written."""

    path: str
    reason: str


def json_lines(records: Iterable[Record], generation: int) -> Iterator[bytes]:
    """A line a record, as ``show --json`` prints it."""
    for record in records:
        members = {name: getattr(record, name) for name in ("seq", "at", "message", "extra")}
        if record.retracts is not None:
            members["retracts"] = record.retracts
        yield orjson.dumps({"generation": generation, **members}, option=orjson.OPT_APPEND_NEWLINE)


_FOLDER_MODE = 0o700
_BEGINS = ".transcript-store-"


def write_new(path: str, pieces: Iterable[bytes]) -> None:
    """Write a file that must not exist. On return it is whole and durable; after a crash it is whole or not there.

    After an error there is no file of that name, as far as the system still removes one. A power cut just then may bring it back: it is
    whole then, as it was synced before it had its name. A crash may leave a temporary file beside it, which the next write into
    that folder removes.

    Raises:
        ExportError: something stands there, or the system refuses.
        TranscriptStoreError: what ``pieces`` raises.
    """
    folder = os.path.dirname(path)
    try:
        _make_folder(folder)
        with temporary(folder, _BEGINS) as (file, written):
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
            os.link(written, path, follow_symlinks=False)  # a rename would replace what stands there
        try:
            _sync_folder(folder)
        except OSError:
            # Nobody knows whether the name lasts: the caller is told that nothing was written, so take it away.
            with suppress(OSError):
                os.unlink(path)
            raise
    except TranscriptStoreError:
        raise  # some of these are OSErrors too
    except FileExistsError:
        raise ExportError(path=path, reason="something is there already; choose another place") from None
    except OSError as error:
        raise ExportError(path=path, reason=f"cannot be written: {error.strerror}") from error


def write_all(folder: str, files: Iterable[tuple[str, bytes]]) -> list[str]:
    """Write files below a folder, in their order; returns the paths of those that are new. An equal one is left as it is.

    Raises:
        ExportError: a file is there with other bytes, or as :func:`write_new`; those that were written before are removed again.
    """
    wanted = [(_below(folder, name), data) for name, data in files]
    written: list[str] = []
    try:
        for path, data in [(path, data) for path, data in wanted if not _is_there(path, data)]:
            write_new(path, (data,))
            written.append(path)
    except ExportError:
        for path in written:
            with suppress(OSError):
                os.unlink(path)
        raise
    return written


def _below(folder: str, name: str) -> str:
    parts = name.split("/")
    if not all(part and part not in (".", "..") and "\0" not in part for part in parts):
        raise ExportError(path=folder, reason=f"{name!r} is not the path of a file below it")
    return os.path.join(folder, *parts)


def _is_there(path: str, data: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            there = file.read(len(data) + 1)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ExportError(path=path, reason=f"cannot be read: {error.strerror}") from error
    if there != data:
        raise ExportError(path=path, reason="another file is there already; nothing was written")
    return True


def _make_folder(folder: str) -> None:
    """Make a folder and those above it that are missing, and sync the names of the new ones."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    _make_folder(above)
    with suppress(FileExistsError):
        os.mkdir(folder, _FOLDER_MODE)
        try:
            _sync_folder(above)
        except OSError:  # whoever tries again has to sync it: it must not look as if that was done
            with suppress(OSError):
                os.rmdir(folder)
            raise


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
