"""How does an export write its files? Each is new, 0600, complete and synced before it gets its name."""

from __future__ import annotations

import base64
import hashlib
import os
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from itertools import chain as chain_of
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from transcript_store.conversation import ConversationStore, Record
from transcript_store.errors import GenerationNotFoundError, TranscriptStoreError
from transcript_store.formats import unpack_line
from transcript_store.import_notes import first_shown, note_of
from transcript_store.new_files import make_folder, temporary


class ExportError(TranscriptStoreError):
    """The conversation or the file at ``path`` prevents an export; ``reason`` says why. Nothing was written."""

    path: str
    reason: str


def json_lines(records: Iterable[Record], generation: int) -> Iterator[bytes]:
    """A line for each record, as ``show --json`` prints it."""
    for record in records:
        members = {name: getattr(record, name) for name in ("seq", "at", "message", "extra")}
        if record.retracts is not None:
            members["retracts"] = record.retracts
        yield orjson.dumps({"generation": generation, **members}, option=orjson.OPT_APPEND_NEWLINE)


_BEGINS = ".transcript-store-"


def write_new(path: str, pieces: Iterable[bytes]) -> None:
    """Write a file that must not exist. On return it is complete and durable; after a crash it is complete or missing.

    After an error there is no file of that name, as far as the system still removes one. A power cut just then may bring it back: it is
    whole then, as it was synced before it had its name. A crash may leave a temporary file beside it, which the next write into
    that folder removes.

    Raises:
        ExportError: the path is taken, or the system refuses.
        TranscriptStoreError: what ``pieces`` raises.
    """
    folder = os.path.dirname(path)
    try:
        _make_folder(folder)
        with temporary(folder, _BEGINS) as (file, written):
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
            os.link(written, path, follow_symlinks=False)  # a rename would replace the existing file
        try:
            _sync_folder(folder)
        except OSError:
            # The rename may not be durable, and we report "nothing was written": remove the file.
            with suppress(OSError):
                os.unlink(path)
            raise
    except TranscriptStoreError:
        raise  # a StorageError is an OSError too
    except FileExistsError:
        raise ExportError(path=path, reason="the path is taken; choose another one") from None
    except OSError as error:
        raise ExportError(path=path, reason=f"cannot be written: {error.strerror}") from error


def write_all(folder: str, files: Iterable[tuple[str, bytes]]) -> list[str]:
    """Write files below a folder, in order; return the paths of the new ones. An equal file is kept.

    Raises:
        ExportError: a file exists with other bytes, or as :func:`write_new`; the files written so far are removed again.
    """
    wanted = [(_below(folder, name), data) for name, data in files]
    written: list[str] = []
    try:
        for path, data in [(path, data) for path, data in wanted if not _is_there(path, data)]:
            write_new(path, (data,))
            written.append(path)
    except ExportError:
        # Only files of this call: equal ones that existed before stay.
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
            # One byte more than expected: a longer file is another one, and is not read completely.
            there = file.read(len(data) + 1)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ExportError(path=path, reason=f"cannot be read: {error.strerror}") from error
    if there != data:
        raise ExportError(path=path, reason="another file exists there; nothing was written")
    return True


def _make_folder(folder: str) -> None:
    """Create a folder and its missing parents, and sync the names of the new ones."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    _make_folder(above)
    with suppress(FileExistsError):
        make_folder(folder)
        try:
            _sync_folder(above)
        except OSError:  # removed, so that a retry creates and syncs it again
            with suppress(OSError):
                os.rmdir(folder)
            raise


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---- original ----
# The source's own bytes, from the lines that an import packed into the records (F3).

_NUMBER_BITS, _PART_BITS = 36, 28
"""A source has fewer lines, and a line fewer pieces, than two to this power."""


def original_bytes(conversation: ConversationStore) -> Iterator[bytes]:
    """The bytes of the file that the conversation was imported from, as it was at the last import, in pieces.

    What was added here is not in them. On return they are known to have the SHA-256 that the import noted: the records
    are read once to see in which order the lines come, once to check the sum, and a third time for the caller's
    iteration. In memory are eight bytes for each line, and the lines whose records come before those of an earlier
    line.

    Raises:
        ExportError: no import wrote the conversation; or the import took secrets out of it; or the source was no file
            of lines of which this was the only session; or lines are missing, because a reader left them out or
            a generation was removed.
    """
    path = conversation.directory
    chain = _generations(conversation)
    if not chain:
        raise ExportError(
            path=path, reason="was not imported, so there is no original of it; the form jsonl has all that is stored"
        )
    note = chain[-1][1]
    expected = (note.get("file") or {}).get("sha256")
    if not isinstance(expected, str):
        reason = (
            "was imported from a database, from a file with several sessions, or from a file that changed during the import: "
            "the bytes of its file are unknown. If they changed, import the file again; if you continued the conversation here, "
            "export it as jsonl"
        )
        raise ExportError(path=path, reason=reason)
    generations, tail = [number for number, _ in chain], [_tail(note)]
    order = array("Q", sorted(line.key for line in _packed(conversation, generations)))
    again = Counter(key for key, next_key in pairwise(order) if key == next_key)
    """For each line with several records, the number of records before the last, which counts."""
    if again:
        order = array("Q", sorted({*order}))
    if (lines := note.get("lines")) is not None:  # later ones belong to an earlier export, which had more
        del order[bisect_left(order, (lines + 1) << _PART_BITS) :]
    if _sha256(chain_of(_lines(conversation, generations, order, again), tail)) != expected:
        if any("redaction" in note for _, note in chain):
            reason = "was redacted when it was imported: its original bytes are not kept here, and nothing was written"
            raise ExportError(path=path, reason=reason)
        reason = "the stored records do not add up to the imported file; nothing was written"
        raise ExportError(path=path, reason=reason)
    return chain_of(_lines(conversation, generations, order, again), tail)


def _generations(conversation: ConversationStore) -> list[tuple[int, dict[str, Any]]]:
    """The conversation's generations that hold the source's, in the source's order, each with its last note.

    A rewritten source started again somewhere: from the newest backwards, each generation of the source counts once.
    """
    found: list[tuple[int, dict[str, Any]]] = []
    wanted: int | None = None
    live = conversation.get_metadata().generation
    for number in reversed(range(first_shown(conversation), live + 1)):
        try:
            notes = [note for record in conversation.iter_records(generation=number) if (note := note_of(record))]
        except GenerationNotFoundError:
            continue
        if notes and (wanted is None or notes[-1]["generation"] == wanted):
            found.append((number, notes[-1]))
            wanted = notes[-1]["generation"] - 1
    return found[::-1]


def imported_lines(conversation: ConversationStore) -> list[bytes]:
    """The lines that the conversation was imported from, in the source's order, each once. A row of a database is a line.

    Raises:
        ExportError: no import wrote the conversation, it took secrets out of it, or lines are missing.
    """
    chain, path = _generations(conversation), conversation.directory
    if not chain:
        raise ExportError(path=path, reason="was not imported, so it has no lines of another program")
    if any("redaction" in note for _, note in chain):
        raise ExportError(path=path, reason="was redacted when it was imported: the original lines are not kept here")
    found = {line.key: line.unpacked() for line in _packed(conversation, [number for number, _ in chain])}
    wanted = chain[-1][1].get("lines")
    if (isinstance(wanted, int) and len({key >> _PART_BITS for key in found}) < wanted) or b"" in found.values():
        raise ExportError(path=path, reason="lines of the source are missing here; nothing was written")
    return [found[key] for key in sorted(found)]


class _PackedLine(NamedTuple):
    """A packed line, or one piece of it."""

    key: int
    """Its position in the source: the line's number, then the piece's."""
    packed: dict[str, Any]
    message: dict[str, Any] | None

    def unpacked(self) -> bytes:
        try:
            return unpack_line(self.packed, self.message)
        except (KeyError, ValueError):
            return b""  # it could not be stored: the checksum will differ


def _packed(conversation: ConversationStore, generations: list[int]) -> Iterator[_PackedLine]:
    """The packed lines, in the order of their records. Lines carried over from an earlier generation count once."""
    earlier = array("Q")  # the numbers of the lines that earlier generations have, sorted
    for generation in generations:
        new = array("Q")
        for record in conversation.iter_records(generation=generation):
            source = (record.extra or {}).get("source")
            for packed in source.get("lines", ()) if isinstance(source, dict) else ():
                number, part = packed["n"], packed.get("part", 0)
                if not (0 <= number < 1 << _NUMBER_BITS and 0 <= part < 1 << _PART_BITS):
                    continue  # no import wrote it
                place = bisect_left(earlier, number)
                if place < len(earlier) and earlier[place] == number:
                    continue
                if generation != generations[-1]:
                    new.append(number)
                yield _PackedLine(number << _PART_BITS | part, packed, record.message)
        if new:
            earlier = array("Q", sorted({*earlier, *new}))


def _lines(
    conversation: ConversationStore, generations: list[int], order: Sequence[int], again: Counter[int]
) -> Iterator[bytes]:
    """The lines in the source's order, the pieces of a line in theirs. One whose record comes too early waits for the others."""
    waiting: list[tuple[int, int, bytes]] = []
    written = 0
    earlier = Counter(again)
    for count, line in enumerate(_packed(conversation, generations)):
        if earlier[line.key] > 0:
            earlier[line.key] -= 1
            continue
        heappush(waiting, (line.key, count, line.unpacked()))
        while waiting and written < len(order) and waiting[0][0] == order[written]:
            written += 1
            yield heappop(waiting)[2]


def _sha256(pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _tail(note: dict[str, Any]) -> bytes:
    return base64.b64decode(note.get("tail_base64") or "")
