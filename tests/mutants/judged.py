"""Mutants that no test can notice, or none should, each with the reason; docs/durability.md has the same list."""

from __future__ import annotations

JUDGED: dict[str, str] = {
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
    "Image.pieces: if len(lines) >= PIECE_BYTES: → if (len(lines) > PIECE_BYTES):": "how much is written at a time",
    '_Reader._stated_at: return bytes(self._read(end - 34, 32)) if end - start > SUFFIX_BYTES else b"" → '
    'return bytes(self._read(end - 34, 32)) if (end - start >= SUFFIX_BYTES) else b""': (
        "a line that is a hash and nothing else is no record, and nobody writes one"
    ),
    "last_record: if start > SUFFIX_BYTES: → if (start >= SUFFIX_BYTES):": "a line with a hash has at least a byte before it",
    "last_record: rest = file(near, size - near) → rest = file(near, (size + near))": "a file is read up to its end at most",
    "Lock.released_at_the_end: for _ in range(2): → for _ in range(3):": "a third time nothing is left to release",
    "Lines.newest_blocks_first: place, length = self.cache.begin, PIECE_BYTES // 4 → "
    "place, length = self.cache.begin, PIECE_BYTES // 5": "how much is read at a time",
    "Lines.newest_blocks_first: place, length = begin, min(2 * length, 4 * PIECE_BYTES) → "
    "place, length = begin, min(3 * length, 4 * PIECE_BYTES)": "how much is read at a time",
    "Lines.newest_blocks_first: place, length = begin, min(2 * length, 4 * PIECE_BYTES) → "
    "place, length = begin, min(2 * length, 5 * PIECE_BYTES)": "how much is read at a time",
    "_line_feed_before: offset, step = start, min(2 * step, PIECE_BYTES) → "
    "offset, step = start, min(3 * step, PIECE_BYTES)": "how much is read at a time",
    "opened: if number >= live.header.generation or folder.status(ARCHIVE) is None: → "
    "if (number > live.header.generation) or folder.status(ARCHIVE) is None:": (
        "whoever asks for the live generation by its number is given the open one before"
    ),
    "_Reader._is_there_already: first, last = self._seen.get(head, (0, -1)) → first, last = self._seen.get(head, (1, -1))": (
        "either length is negative, so nothing has it"
    ),
    "last_record: floor, near = max(0, size - LONGEST_TAIL_BYTES), max(0, size - _NEAR_BYTES) → "
    "floor, near = max(0, size - LONGEST_TAIL_BYTES), max(1, size - _NEAR_BYTES)": "the first byte is one of the first line's, and no record's",
    "Log.image: if (carried if sealer is None else carried * 4 // 3) + _LONGEST_FRAME_BYTES >= self._max_line_bytes: → "
    "if ((carried if sealer is None else carried * 4 // 3) + _LONGEST_FRAME_BYTES > self._max_line_bytes):": (
        "it chooses what is made to be measured, and no record has so many bytes beside what it carries"
    ),
    "Log.image: if (carried if sealer is None else carried * 4 // 3) + _LONGEST_FRAME_BYTES >= self._max_line_bytes: → "
    "if (carried if sealer is None else carried * 5 // 3) + _LONGEST_FRAME_BYTES >= self._max_line_bytes:": (
        "it chooses what is made to be measured: more than need be"
    ),
    "plan: if features is None and retracts_of(item[1].seq or 0, item[1].members) is not None: → "
    "if features is None and retracts_of(item[1].seq or 1, item[1].members) is not None:": (
        "no record stands before number 1 either, so it takes nothing back"
    ),
    "is_header_of: return line[-SUFFIX_BYTES - 1 :] == HASH_MEMBER + chain_hash(GENESIS, [body]) + b'\"}\\n' → return line[(-SUFFIX_BYTES + 1) :] == HASH_MEMBER + chain_hash(GENESIS, [body]) + b'\"}\\n'": "no header is known to be plain then, and each is read in full: slower, and the same",
    "is_header_of: return line[-SUFFIX_BYTES - 1 :] == HASH_MEMBER + chain_hash(GENESIS, [body]) + b'\"}\\n' → return line[-SUFFIX_BYTES - 2 :] == HASH_MEMBER + chain_hash(GENESIS, [body]) + b'\"}\\n'": "no header is known to be plain then, and each is read in full: slower, and the same",
    "Messages._messages_of: if taken_back.covers(after_seq + 1, through_seq) and not any(map(may_retract, parts)): → "
    "if taken_back.covers((after_seq - 1), through_seq) and not any(map(may_retract, parts)):": (
        "it spares the decoding of what was taken back whole; what is decoded all the same is left out then"
    ),
    "_Reader.parts: limit = end + len(more) - _LONGEST_TOKEN if more else end → "
    "limit = (end - len(more)) - _LONGEST_TOKEN if more else end": "a token is taken a piece later, and is the same",
    'RecordSealer.all_opened: if {part[7] for part in parts} != {b"sealed"} or not {part[10][:6] for part in parts} <= _USUAL: → '
    "if ({part[7] for part in parts} != {b'sealed'} and (not {part[10][:6] for part in parts} <= _USUAL)):": (
        "what is not sealed does not decode, what was sealed elsewhere does not open: then each is opened by itself, too"
    ),
    "Lines.newest_blocks_first: behind = takewhile(lambda block: block.end.seq > last and block.begin.seq >= first, held) → "
    "behind = takewhile(lambda block: (block.end.seq >= last) and block.begin.seq >= first, held)": (
        "a block of what is passed over is looked at again, and nothing in it counts"
    ),
    "ConversationLibrary.fork_from: reader = Reader(files, filesystem.absolute_path(directory), self._folders.options, from_medium=True) → "
    "reader = Reader(files, filesystem.absolute_path(directory), self._folders.options, from_medium=False)": (
        "what its mark does not cover is read again from the medium then, as for any reader that copies: it is only read once more"
    ),
    "fork: writer.close() → pass": (
        "a create leaves nothing to do; what is there is let go of anyhow, and the close only renews the mark again if the system refused that"
    ),
}
"""From a mutant's name to the reason."""
