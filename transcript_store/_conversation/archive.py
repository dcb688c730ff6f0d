"""``archive/``: the earlier generations of a transcript, one file for each replace.

An entry is made before the replace that ends its generation commits, and never changed. So an entry of the live generation
is of a replace that never committed.
"""

from __future__ import annotations

import errno
import logging
from dataclasses import dataclass
from typing import Any

from transcript_store._conversation import agreement
from transcript_store._log import quarantine, recovery
from transcript_store._log.log import Log
from transcript_store._log.record import Header
from transcript_store._os.directory import Folder
from transcript_store._os.names import ARCHIVE, TRANSCRIPT, archive_name, generation_of
from transcript_store._os.refusals import NotOursError
from transcript_store.errors import CorruptTranscriptError, GenerationNotFoundError, UnsupportedVersionError

logger = logging.getLogger("transcript_store.storage")

_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One whole life of a transcript: from its beginning, or a replace, to the next replace or until now.

    Where it is damaged, ``damage`` says how, and what cannot be known is None.
    """

    number: int
    is_live: bool
    began_at: str | None
    """When it began: RFC 3339 in UTC."""
    record_count: int | None
    head: str | None
    """The hash of its last record."""
    size_bytes: int | None
    damage: str | None


def keep(folder: Folder, live: Log) -> None:
    """Keep the live transcript under its archive name: a hard link, or a copy where links are refused."""
    name = archive_name(live.header.generation)
    with folder.subfolder(ARCHIVE, create=True) as archive:
        archive.discard(name)  # of a replace that was refused after this
        try:
            folder.files.link(folder.handle, TRANSCRIPT, archive.handle, name)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            live.complete()
            archive.replace_file(name, [live.buffer])
        else:
            archive.sync()


def tidy(folder: Folder, live: Log) -> None:
    """Take out of the archive what is not older than the live generation; sync it first, so that what is gone stays gone.

    What is a copy of the live transcript's beginning is of a replace that never committed. Anything else is of another
    line of history (a backup was restored), and goes to quarantine: nothing else may have its messages.
    """
    if folder.status(ARCHIVE) is None:
        return
    with folder.subfolder(ARCHIVE) as archive:
        archive.sync()  # whoever deleted a generation may have been killed before this
        for generation in _numbers(archive):
            if generation < live.header.generation:
                continue
            name = archive_name(generation)
            content = archive.read_file(name) or b""
            live.complete()
            if generation > live.header.generation or not live.buffer.startswith(content):
                reason = "an archived generation that is not older than the live one: a backup was restored"
                kept = quarantine.keep(
                    folder, content, generation=generation, offset_bytes=0, kind="wrong-generation", reason=reason
                )
                logger.warning("%s: %s; it is kept as %s", archive.path_of(name), reason, kept)
            folder.files.unlink(archive.handle, name)


def generations(folder: Folder, live: Log, members: dict[str, Any]) -> list[Generation]:
    """Every generation that there is, the oldest first, the live one last; each archived one is read and verified.

    ``members`` is the conversation's metadata, here as in :func:`read`.
    """
    found = []
    for number in _available(folder, live)[:-1]:
        try:
            found.append(_describe(number, read(folder, live, members, number), is_live=False))
        except GenerationNotFoundError:
            continue  # removed just now
        except (CorruptTranscriptError, UnsupportedVersionError) as error:
            found.append(
                Generation(
                    number=number,
                    is_live=False,
                    began_at=None,
                    record_count=None,
                    head=None,
                    size_bytes=None,
                    damage=error.reason if isinstance(error, CorruptTranscriptError) else str(error),
                )
            )
    return [*found, _describe(live.header.generation, live, is_live=True)]


def _describe(number: int, log: Log, *, is_live: bool) -> Generation:
    return Generation(
        number=number,
        is_live=is_live,
        began_at=log.header.at,
        record_count=log.end.seq,
        head=log.end.head.decode(),
        size_bytes=log.end.offset_bytes,
        damage=None,
    )


def read(folder: Folder, live: Log, members: dict[str, Any], number: int) -> Log:
    """An archived generation in memory: verified, whole, of this conversation, and what its successor says it replaced."""
    if number >= live.header.generation or folder.status(ARCHIVE) is None:
        raise _not_found(folder, live, number)
    conversation = live.header.conversation
    name = archive_name(number)
    with folder.subfolder(ARCHIVE) as archive:
        if archive.status(name) is None:
            raise _not_found(folder, live, number)  # removed just now
        log = Log(archive, name=name, writable=False, max_line_bytes=0)
        try:
            log.open(None)
        finally:
            log.close()
        size_bytes = len(log.buffer)
        log.verify(None)
        _insist(folder, number, agreement.of_archived(number, log.header, conversation))
        if size_bytes != log.end.offset_bytes:
            raise _corrupt(folder, number, "torn-tail", "its last record is cut")
        successor = live.header if number + 1 == live.header.generation else _header(archive, number + 1)
    _insist(
        folder, number, agreement.of_end(number, log.end, agreement.end_of(number, conversation, successor, members))
    )
    return log


def _insist(folder: Folder, number: int, found: agreement.Disagreement | None) -> None:
    if found is not None:
        raise _corrupt(folder, number, *found)


def without(folder: Folder, members: dict[str, Any], number: int) -> dict[str, Any]:
    """The metadata for when an archived generation is gone: it has what that one says of the one before it."""
    if folder.status(ARCHIVE) is None:
        return members
    with folder.subfolder(ARCHIVE) as archive:
        header, numbers = _header(archive, number), _numbers(archive)
    return agreement.remembering(members, [header] if header else [], numbers)


def _header(archive: Folder, number: int) -> Header | None:
    """The header of an archived generation; None if it is not there, or damaged: that is not the one before's fault."""
    try:
        handle = archive.open_file(archive_name(number))
    except (FileNotFoundError, NotOursError):
        return None
    try:
        header = recovery.read_header(archive.first_line(handle))
    finally:
        archive.files.close(handle)
    return None if isinstance(header, recovery.NotAHeader) else header[0]


def remove(folder: Folder, live: Log, number: int) -> None:
    """Remove an archived generation; on return it does not come back after a power cut."""
    if number == live.header.generation:
        raise ValueError(f"generation {number} is the live one: replace_transcript() first, then it can be deleted")
    if folder.status(ARCHIVE) is None:
        raise _not_found(folder, live, number)
    with folder.subfolder(ARCHIVE) as archive:
        is_there = number in _numbers(archive)
        archive.remove_tree(archive_name(number))
        archive.sync()  # also if it is gone already: whoever removed it may have been interrupted before this
    if not is_there:
        raise _not_found(folder, live, number)


def _available(folder: Folder, live: Log) -> list[int]:
    """The numbers of the generations that there are, ascending, the live one last."""
    numbers: list[int] = []
    if folder.status(ARCHIVE) is not None:
        with folder.subfolder(ARCHIVE) as archive:
            numbers = [number for number in _numbers(archive) if number < live.header.generation]
    return [*numbers, live.header.generation]


def _numbers(archive: Folder) -> list[int]:
    return sorted(number for name in archive.names() if (number := generation_of(name)) is not None)


def _not_found(folder: Folder, live: Log, number: int) -> GenerationNotFoundError:
    return GenerationNotFoundError(path=folder.path, number=number, available=tuple(_available(folder, live)))


def _corrupt(folder: Folder, number: int, kind: str, reason: str) -> CorruptTranscriptError:
    return CorruptTranscriptError(path=f"{folder.path_of(ARCHIVE)}/{archive_name(number)}", kind=kind, reason=reason)
