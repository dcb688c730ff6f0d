"""What is left of a damaged conversation on a place becomes a folder, as it stands: whatever reads and repairs damaged folders reads it.

Slots are written once, each chained to the one before: nothing behind a damaged one can be taken in, and nothing put in its place. So the
place stays as it is. The lines of all slots, those that verify and those behind them, are what a damaged transcript is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from transcript_store._log.header import NotAHeader, read_header
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import ARCHIVE, KEY, METADATA, TRANSCRIPT, archive_name
from transcript_store.places._filling import fill
from transcript_store.places._place import Piece
from transcript_store.places._slots import LogState, NotASlotError, Slot, split, taken_in


def write_remains(files: FileSystem, path: str, id: str, pieces: Sequence[Piece], key: bytes | None) -> None:
    """Write what is left into a folder that is not there yet. On return it is synced."""
    slots, behind = _verified(id, [data for _, data in sorted(_split(pieces))])
    lines = [_lines(data) for data in behind]
    begins = [number for number, data in enumerate(lines) if not isinstance(read_header(data), NotAHeader)]
    if slots:
        fill(files, path, slots)
    with Folder.make(files, path) as folder:
        if key is not None:
            folder.replace_file(KEY, [key])
        if not slots:
            folder.replace_file(TRANSCRIPT, lines[begins[-1] :] if begins else lines)
        elif begins:
            _begin_another(folder, slots[-1].after.generation, lines[begins[-1] :])
        elif lines:
            with folder.reading(TRANSCRIPT) as source:
                folder.replace_file(TRANSCRIPT, [source.read(0, source.size), *lines])


def _begin_another(folder: Folder, verified: int, lines: Sequence[bytes]) -> None:
    """A generation that began behind the damage is the live one; the one that verifies is an earlier one."""
    with folder.subfolder(ARCHIVE, create=True) as archive:
        name = archive_name(verified)
        archive.discard(name)
        folder.files.link(folder.handle, TRANSCRIPT, archive.handle, name)
        archive.sync()
    folder.replace_file(TRANSCRIPT, lines)
    folder.discard(METADATA)  # it is of the earlier one, and the header has what was true when this one began


def _split(pieces: Sequence[Piece]) -> Iterator[tuple[int, bytes]]:
    """The slots in pieces, each once; one piece whole, if nobody can tell what is in it. A pack counts before a slot."""
    found: dict[int, bytes] = {}
    for piece in sorted(pieces, key=lambda piece: not piece.is_pack):
        try:
            held = [*split(piece)]
        except NotASlotError:
            held = [(piece.first, piece.data)]
        for number, data in held:
            found.setdefault(number, data)
    yield from found.items()


def _verified(id: str, found: Sequence[bytes]) -> tuple[list[Slot], Sequence[bytes]]:
    """The slots that verify, from the first one on, and what stands behind them."""
    state, taken = LogState(conversation=id), list[Slot]()
    for data in found:
        try:
            state, slot = taken_in(state, data)
        except NotASlotError:
            break
        taken.append(slot)
    return taken, found[len(taken) :]


def _lines(data: bytes) -> bytes:
    """Everything but the envelopes: of a pack that cannot be taken apart there are several."""
    return b"".join(line for line in data.splitlines(keepends=True) if not line.startswith(b'{"slot":'))
