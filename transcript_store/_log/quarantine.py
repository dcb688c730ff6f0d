"""Where bytes go that were taken out of a transcript: kept under a name that says where they stood, with a note why.

``quarantine/g<generation>-o<offset>-<first 16 hex of SHA-256>`` holds the bytes, the same name with ``.json`` the note.
Nothing in the store ever deletes them by itself.
"""

from __future__ import annotations

from hashlib import sha256

import orjson

from transcript_store._json.times import format_time
from transcript_store._os.directory import Folder
from transcript_store._os.names import QUARANTINE, is_temporary, quarantine_name


def purge(folder: Folder) -> int:
    """Remove what is kept, durably; returns how many pieces there were."""
    if folder.status(QUARANTINE) is None:
        return 0
    with folder.subfolder(QUARANTINE) as quarantine:
        names = quarantine.names()
        for name in names:
            quarantine.remove_tree(name)
        quarantine.sync()
        return sum(not name.endswith(".json") and not is_temporary(name) for name in names)


def keep(folder: Folder, removed: bytes, *, generation: int, offset_bytes: int, kind: str, reason: str) -> str:
    """Keep bytes that are about to be taken out of a conversation's transcript; returns the path of the file.

    They are on the medium when it returns. The same bytes kept twice are one file, so a recovery that was cut off can
    be done again.
    """
    name = quarantine_name(removed, generation=generation, offset_bytes=offset_bytes)
    note = {
        "at": format_time(folder.files.now_us()),
        "generation": generation,
        "offset": offset_bytes,
        "bytes": len(removed),
        "sha256": sha256(removed).hexdigest(),
        "kind": kind,
        "reason": reason,
    }
    with folder.subfolder(QUARANTINE, create=True) as quarantine:
        if quarantine.read_file(f"{name}.json") is None:
            quarantine.replace_file(f"{name}.json", [orjson.dumps(note, option=orjson.OPT_INDENT_2) + b"\n"])
        if quarantine.read_file(name) != removed:
            quarantine.replace_file(name, [removed])
        else:
            quarantine.sync()  # whoever wrote it may have been killed before this
        return quarantine.path_of(name)
