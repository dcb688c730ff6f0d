"""Mutants that no test can notice, or none should, each with the reason; docs/durability.md has the same list."""

from __future__ import annotations

JUDGED: dict[str, str] = {
    "Lock._held_by_another: holder = orjson.loads(bytes(self._files.read(self._handle, 0, 4096))) → "
    "holder = orjson.loads(bytes(self._files.read(self._handle, 0, 4097)))": "how much is read of what is shorter",
    "Folder.take_over: self.path = other.path → pass": "today a folder is taken over only by one of the same path",
    "Writer._make_folder: for attempts_left in (2, 1, 0): → for attempts_left in (3, 1, 0):": "only 0 means something",
    "Writer._make_folder: for attempts_left in (2, 1, 0): → for attempts_left in (2, 2, 0):": "only 0 means something",
    '_first_append: while start and (end := stretch.find(b"\\n", start)) >= 0: → '
    "while start and ((end := stretch.find(b'\\n', start)) > 0):": (
        "it looks from behind a line feed on, so what it finds is not at 0"
    ),
    "Walk._goes_on: if len(rest) - line < RECORD_HEAD_BYTES: → if (len(rest) - line <= RECORD_HEAD_BYTES):": (
        "with just so many bytes the beginning is all there, and what decides on it decides the same with more"
    ),
    "Walk._goes_on: return rest.startswith(b'{\"seq\":%d,' % (self.stopped.seq + 1), line) and "
    'rest.find(b"\\0", line) < 0 → '
    'return rest.startswith(b\'{"seq":%d,\' % (self.stopped.seq + 1), line) and rest.find(b"\\0", line) < 1': (
        "a NUL at 0 would be in the place of the brace that was just seen there"
    ),
    "Image.pieces: if len(lines) >= PIECE_BYTES: → if (len(lines) > PIECE_BYTES):": "how much is written at a time",
    "opened: if number >= live.header.generation or folder.status(ARCHIVE) is None: → "
    "if (number > live.header.generation) or folder.status(ARCHIVE) is None:": (
        "whoever asks for the live generation by its number is given the open one before"
    ),
}
"""From a mutant's name to the reason."""
