"""How are earlier generations kept? ``archive/`` holds one file for each replace.

A generation is linked into the archive before the replace that ends it commits, and its entry is never changed. So an
entry with the live generation's number belongs to a replace that never committed.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from transcript_store._conversation import layout
from transcript_store._conversation.layout import header_of
from transcript_store._conversation.metadata import Sealing
from transcript_store._log.log import Log, quarantine_bytes
from transcript_store._log.record import Header
from transcript_store._log.scan import read_chunks
from transcript_store._os.directory import Folder, OpenFile
from transcript_store._os.names import ARCHIVE, TRANSCRIPT, archive_name, generation_of
from transcript_store.errors import CorruptTranscriptError, GenerationNotFoundError, UnsupportedVersionError

logger = logging.getLogger("transcript_store.storage")

_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One life of a transcript: from its start, or a replace, to the next replace or until now."""

    number: int
    is_live: bool
    began_at: str | None = None
    """When it started: RFC 3339 in UTC. This and the following members are None where damage hides them."""
    record_count: int | None = None
    head: str | None = None
    """The hash of its last record."""
    size_bytes: int | None = None
    damage: str | None = None
    """Its damage, in a sentence."""


def archive_live(folder: Folder, live: Log) -> None:
    """Keep the live transcript under its archive name: a hard link, or a copy where links are refused."""
    name = archive_name(live.header.generation)
    with folder.subfolder(ARCHIVE, create=True) as archive:
        # Under our lock and not yet referred to by any header, so nothing is lost.
        archive.discard(name)  # of a replace that was refused after this
        try:
            folder.files.link(folder.handle, TRANSCRIPT, archive.handle, name)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # A copy costs the length of the transcript, but works on file systems without hard links; replace_file()
            # syncs it.
            archive.replace_file(name, live.contents())
        else:
            # Must be durable before writer._put_in_place() renames over the live name: after that the link is the only
            # name of the old generation, and a power cut could lose it.
            archive.sync()


def tidy(folder: Folder, live: Log) -> None:
    """Remove from the archive the entries that are not older than the live generation.

    A copy of the live transcript's start belongs to a replace that never committed. Any other entry belongs to another
    line of history (a backup was restored). It goes to quarantine, because its messages may exist nowhere else.
    """
    if folder.status(ARCHIVE) is None:
        return
    with folder.subfolder(ARCHIVE) as archive:
        # First: the numbers below must be those that a power loss would leave.
        archive.sync()  # a process that deleted a generation may have been killed before this
        for generation in _numbers_in(archive):
            if generation < live.header.generation:
                continue
            name = archive_name(generation)
            with archive.reading(name) as source:
                if generation > live.header.generation or not live.begins_with(source):
                    reason = "an archived generation that is not older than the live one: a backup was restored"
                    kept = quarantine_bytes(
                        folder,
                        partial(read_chunks, source.read, 0, source.size),
                        generation=generation,
                        offset_bytes=0,
                        kind="wrong-generation",
                        reason=reason,
                    )
                    logger.warning("%s: %s; it is kept as %s", archive.path_of(name), reason, kept)
            folder.files.unlink(archive.handle, name)


def generations(
    folder: Folder, live: Log, members_now: Callable[[], dict[str, Any]], sealing: Sealing | None = None
) -> list[Generation]:
    """Every existing generation, the oldest first, the live one last; each archived one is read and verified."""
    found = []
    for number in _earlier(folder, live):
        try:
            with open_archived(folder, live, members_now, number, sealing) as log:
                found.append(_describe(number, log, is_live=False))
        except GenerationNotFoundError:
            continue  # removed just now
        # One damaged generation must not hide the others from a listing.
        except (CorruptTranscriptError, UnsupportedVersionError) as error:
            reason = error.reason if isinstance(error, CorruptTranscriptError) else str(error)
            found.append(Generation(number=number, is_live=False, damage=reason))
    return [*found, _describe(live.header.generation, live, is_live=True)]


def _describe(number: int, log: Log, *, is_live: bool) -> Generation:
    return Generation(
        number=number,
        is_live=is_live,
        began_at=log.header.at,
        record_count=log.end.seq,
        head=log.end.head.decode(),
        size_bytes=log.end.offset_bytes,
    )


@contextmanager
def open_archived(
    folder: Folder, live: Log, members_now: Callable[[], dict[str, Any]], number: int, sealing: Sealing | None = None
) -> Iterator[Log]:
    """Open an archived generation to read. It must be whole, of this conversation, and what its successor says it
    replaced.

    ``members_now`` gives the conversation's metadata. It is called if the successor does not state the end. If the
    successor was deleted just now, the metadata has what it stated. With ``sealing`` sealed records can be unsealed.
    Then a generation is refused unless something written with the key states where it end
    """
    if number >= live.header.generation or folder.status(ARCHIVE) is None:
        raise _not_found(folder, live, number)
    conversation = live.header.conversation
    name = archive_name(number)
    with folder.subfolder(ARCHIVE) as archive:
        log = Log(archive, name=name, writable=False)
        try:
            _open(log, folder, live, number)
            if sealing is not None and log.header.is_sealed:
                log.sealer = sealing.sealer(log.header.generation)
            log.verify(None)
            _require(folder, number, layout.of_archived(number, log.header, conversation))
            if log.size_bytes() != log.end.offset_bytes:
                raise _corrupt(folder, number, "torn-tail", "its last record is cut")
            # The next generation's header states where this one ended: without it, records cut from the end would go
            # unnoticed.
            successor = live.header if number + 1 == live.header.generation else _header(archive, number + 1)
            replaced = layout.end_of(number, conversation, successor, {})
            if replaced is None:
                replaced = layout.end_of(number, conversation, None, members_now())
            # Without a keyed statement of its end, records could be cut off its end without the key (P17).
            if sealing is not None and replaced is None:
                if archive.status(name) is None:
                    raise _not_found(folder, live, number)  # removed just now, and with it the note about its end
                raise _corrupt(folder, number, "not-genuine", "nothing written with the key states where it ended")
            _require(folder, number, layout.of_end(number, log.end, replaced))
            yield log
        finally:
            log.close()


def _open(log: Log, folder: Folder, live: Log, number: int) -> None:
    try:
        log.open(None)
    except CorruptTranscriptError as error:
        if error.kind != "missing":
            raise
        raise _not_found(folder, live, number) from None  # perhaps it was removed just now


def _require(folder: Folder, number: int, found: layout.Mismatch | None) -> None:
    if found is not None:
        raise _corrupt(folder, number, *found)


@contextmanager
def reading(folder: Folder, number: int) -> Iterator[OpenFile]:
    """The file of an archived generation, to read pieces of it; ``FileNotFoundError`` if it was removed."""
    with folder.subfolder(ARCHIVE) as archive, archive.reading(archive_name(number)) as source:
        yield source


def without(folder: Folder, members: dict[str, Any], number: int) -> dict[str, Any]:
    """The metadata after an archived generation is deleted: it keeps what that header says of the generation before it."""
    if folder.status(ARCHIVE) is None:
        return members
    with folder.subfolder(ARCHIVE) as archive:
        header = _header(archive, number)
    return layout.remembering(members, [header] if header else [], numbers(folder))


def _header(archive: Folder, number: int) -> Header | None:
    """The header of an archived generation; None if it is not there, or damaged."""
    return header_of(archive, archive_name(number))


def remove_archived(folder: Folder, live: Log, number: int) -> None:
    """Remove an archived generation; on return it does not come back after a power loss."""
    if number == live.header.generation:
        raise ValueError(f"generation {number} is the live one: replace_transcript() first, then it can be deleted")
    if folder.status(ARCHIVE) is None:
        raise _not_found(folder, live, number)
    with folder.subfolder(ARCHIVE) as archive:
        is_there = archive.status(archive_name(number)) is not None
        archive.remove_tree(archive_name(number))
        archive.sync()  # also if it was removed earlier: that call may have been interrupted before this
    if not is_there:
        raise _not_found(folder, live, number)


def numbers(folder: Folder) -> list[int]:
    """The numbers of the generations in a conversation's archive, ascending, whole or damaged."""
    if folder.status(ARCHIVE) is None:
        return []
    with folder.subfolder(ARCHIVE) as archive:
        return _numbers_in(archive)


def last_sealed(folder: Folder) -> Header | None:
    """The first line of the newest sealed earlier generation; None if none can be read."""
    if folder.status(ARCHIVE) is None:
        return None
    with folder.subfolder(ARCHIVE) as archive:
        headers = (_header(archive, number) for number in reversed(_numbers_in(archive)))
        return next((header for header in headers if header is not None and header.is_sealed), None)


def plain_numbers(folder: Folder) -> list[int]:
    """The numbers of the generations in the archive that are not sealed, damaged ones among them."""
    if folder.status(ARCHIVE) is None:
        return []
    with folder.subfolder(ARCHIVE) as archive:
        found = ((number, _header(archive, number)) for number in _numbers_in(archive))
        # A damaged header counts as plaintext: what cannot be proved to be sealed is reported and removed.
        return [number for number, header in found if header is None or not header.is_sealed]


def _numbers_in(archive: Folder) -> list[int]:
    return sorted(number for name in archive.names() if (number := generation_of(name)) is not None)


def _earlier(folder: Folder, live: Log) -> list[int]:
    return [number for number in numbers(folder) if number < live.header.generation]


def _not_found(folder: Folder, live: Log, number: int) -> GenerationNotFoundError:
    available = (*_earlier(folder, live), live.header.generation)
    return GenerationNotFoundError(path=folder.path, number=number, available=available)


def _corrupt(folder: Folder, number: int, kind: str, reason: str) -> CorruptTranscriptError:
    return CorruptTranscriptError(path=f"{folder.path_of(ARCHIVE)}/{archive_name(number)}", kind=kind, reason=reason)
