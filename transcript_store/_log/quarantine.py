"""Where are the bytes kept that were removed from a transcript? In a folder, each with a note that says why.

``quarantine/g<generation>-o<offset>-<first 16 hex of SHA-256>`` holds the bytes: the name says where they were. The
same name with ``.json`` holds the note. The store never deletes them by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256

import orjson

from transcript_store._json.times import format_time
from transcript_store._log.scan import has_bytes
from transcript_store._os.directory import Folder
from transcript_store._os.names import QUARANTINE, is_temporary, quarantine_name


def purge(folder: Folder) -> int:
    """Remove all quarantined bytes, durably; returns how many files there were."""
    if folder.status(QUARANTINE) is None:
        return 0
    with folder.subfolder(QUARANTINE) as quarantine:
        names = quarantine.names()
        for name in names:
            quarantine.remove_tree(name)
        quarantine.sync()
        return sum(not name.endswith(".json") and not is_temporary(name) for name in names)


def keep(
    folder: Folder,
    pieces: Callable[[], Iterable[bytes | bytearray]],
    *,
    generation: int,
    offset_bytes: int,
    kind: str,
    reason: str,
) -> str:
    """Keep bytes that are about to be removed from a transcript; returns the path of the file.

    On return they are on disk. ``pieces`` reads them from their start each time: they may be larger than memory. The
    same bytes kept again are one file, so an interrupted recovery can be repeated.
    """
    name, digest, length = named(pieces, generation=generation, offset_bytes=offset_bytes)
    note = {
        "at": format_time(folder.files.now_us()),
        "generation": generation,
        "offset": offset_bytes,
        "bytes": length,
        "sha256": digest,
        "kind": kind,
        "reason": reason,
    }
    with folder.subfolder(QUARANTINE, create=True) as quarantine:
        if quarantine.read_file(f"{name}.json") is None:
            quarantine.replace_file(f"{name}.json", [orjson.dumps(note, option=orjson.OPT_INDENT_2) + b"\n"])
        try:
            with quarantine.reading(name) as kept:
                is_kept = has_bytes(kept.read, kept.size, pieces())
        except FileNotFoundError:
            is_kept = False
        if is_kept:
            quarantine.sync()  # the process that wrote it may have been killed before it did this
        else:
            quarantine.replace_file(name, pieces())
        return quarantine.path_of(name)


def named(
    pieces: Callable[[], Iterable[bytes | bytearray]], *, generation: int, offset_bytes: int
) -> tuple[str, str, int]:
    """The name of the file that keeps these bytes, their SHA-256, and their number."""
    digest, length = sha256(), 0
    for piece in pieces():
        digest.update(piece)
        length += len(piece)
    found = digest.hexdigest()
    return quarantine_name(found, generation=generation, offset_bytes=offset_bytes), found, length
