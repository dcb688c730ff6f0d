"""Mutants that no test can notice, or none should, each with the reason."""

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
    "VerifiedLines.newest_blocks_first: place, length = self.cache.begin, PIECE_BYTES // 4 → "
    "place, length = self.cache.begin, PIECE_BYTES // 5": "how much is read at a time",
    "VerifiedLines.newest_blocks_first: place, length = begin, min(2 * length, 4 * PIECE_BYTES) → "
    "place, length = begin, min(3 * length, 4 * PIECE_BYTES)": "how much is read at a time",
    "VerifiedLines.newest_blocks_first: place, length = begin, min(2 * length, 4 * PIECE_BYTES) → "
    "place, length = begin, min(2 * length, 5 * PIECE_BYTES)": "how much is read at a time",
    "_line_feed_before: offset, step = start, min(2 * step, PIECE_BYTES) → "
    "offset, step = start, min(3 * step, PIECE_BYTES)": "how much is read at a time",
    "open_archived: if number >= live.header.generation or folder.status(ARCHIVE) is None: → "
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
    "_Reader.parts: limit = end + len(more) - _LONGEST_TOKEN if more else end → "
    "limit = (end - len(more)) - _LONGEST_TOKEN if more else end": "a token is taken a piece later, and is the same",
    'RecordSealer.all_opened: if {part[7] for part in parts} != {b"sealed"} or not {part[10][:6] for part in parts} <= _USUAL: → '
    "if ({part[7] for part in parts} != {b'sealed'} and (not {part[10][:6] for part in parts} <= _USUAL)):": (
        "what is not sealed does not decode, what was sealed elsewhere does not open: then each is opened by itself, too"
    ),
    "VerifiedLines.newest_blocks_first: behind = takewhile(lambda block: block.end.seq > last and block.begin.seq >= first, held) → "
    "behind = takewhile(lambda block: (block.end.seq >= last) and block.begin.seq >= first, held)": (
        "a block of what is passed over is looked at again, and nothing in it counts"
    ),
    "RecordSealer.all_opened: if {part[7] for part in parts} != {b\"sealed\"} or not {part[10][:6] for part in parts} <= _USUAL: → if ({part[7] for part in parts} == {b'sealed'}) or not {part[10][:6] for part in parts} <= _USUAL:": (
        "each is opened by itself then: slower, and the same"
    ),
    'RecordSealer.all_opened: if {part[7] for part in parts} != {b"sealed"} or not {part[10][:6] for part in parts} <= _USUAL: → if {part[7] for part in parts} != {b"sealed"} or not ({part[10][:6] for part in parts} < _USUAL):': (
        "each is opened by itself then: slower, and the same"
    ),
    'RecordSealer.all_opened: if {part[7] for part in parts} != {b"sealed"} or not {part[10][:6] for part in parts} <= _USUAL: → if not ({part[7] for part in parts} != {b"sealed"} or not {part[10][:6] for part in parts} <= _USUAL):': (
        "each is opened by itself then: slower, and the same"
    ),
    "Messages.__init__: self._known_taken_back = (0, TakenBack()) → self._known_taken_back = (1, TakenBack())": (
        "the first record takes nothing back"
    ),
    "VerifiedLines.require_kept_in_order: last = (-1, 0) → last = (-1, 1)": (
        "no generation is before 0, so every place is behind this one"
    ),
    "Messages._has_message: return (head is not None and head.has_message) or self._record_of(0, line).message is not None → return (head is not None and head.has_message) or self._record_of(1, line).message is not None": (
        "only the message of that record is asked for"
    ),
    "is_header_of: body = line[: -SUFFIX_BYTES - 1] → body = line[: (-SUFFIX_BYTES + 1)]": (
        "no header is known to be plain then, and each is read in full: slower, and the same"
    ),
    "Messages.last_messages: begin, place, taken_back = self.end[:2], self.end, TakenBack() → begin, place, taken_back = self.end[:3], self.end, TakenBack()": (
        "it is what was found if nothing was, and then nothing is taken back"
    ),
    "Messages._in_force_newest_first: is_covered = taken_back.covers(block.begin.seq + 1, block.end.seq) → is_covered = taken_back.covers((block.begin.seq - 1), block.end.seq)": (
        "it spares the look at a block that was taken back whole; its lines are left out one by one then"
    ),
    "Messages._in_force_newest_first: if is_covered and not (can_retract and may_retract(block.lines)): → if is_covered and not ((can_retract or may_retract(block.lines))):": (
        "where nothing can be taken back, nothing is covered; and where it can, each line is looked at: slower, and the same"
    ),
    "FromTheEnd.take: after_seq = through_seq = length = 0 → after_seq = through_seq = length = 1": (
        "both numbers are set before they are asked for, and a stretch is ended a byte earlier"
    ),
    'FromTheEnd.take: start = lines.rfind(b"\\n", 0, start - 1) + 1 → start = lines.rfind(b"\\n", 0, start - 2) + 1': (
        "no line is empty, so no line ends there"
    ),
    'FromTheEnd.take: start = lines.rfind(b"\\n", 0, start - 1) + 1 → start = lines.rfind(b"\\n", 1, start - 1) + 1': (
        "no line is empty, so no line ends there"
    ),
    "Log.image: continue → pass": (
        "what is copied comes one by one and never as a sequence; the line tells the type checker"
    ),
    "VerifiedLines.__init__: self.is_current = False → self.is_current = True": (
        "what a log has before it is opened, and open() and verify() set it"
    ),
    "VerifiedLines.__init__: self.begin = self.end = Position(0, 0, GENESIS) → self.begin = self.end = Position(1, 0, GENESIS)": (
        "what a log has before it is opened, and open() and verify() set it"
    ),
    "VerifiedLines.__init__: self.begin = self.end = Position(0, 0, GENESIS) → self.begin = self.end = Position(0, 1, GENESIS)": (
        "what a log has before it is opened, and open() and verify() set it"
    ),
    "Log.__init__: self._last_at_us = 0 → self._last_at_us = 1": (
        "what a log has before it is opened, and open() and verify() set it"
    ),
    "RecordSealer._retraction: if (retracts_of(2**62, opened, start) is None) != (seen is None): → if (retracts_of(3**62, opened, start) is None) != (seen is None):": (
        "no record has such a number"
    ),
    "VerifiedLines.append_behind: return self.begin if seq == 0 else next(b.begin for b in self.newest_blocks_first() if b.begin.seq <= seq) → return self.begin if seq == 1 else next(b.begin for b in self.newest_blocks_first() if b.begin.seq <= seq)": (
        "the first block begins there too; and behind the first record more is read than need be"
    ),
    "Messages.messages: at_least *= 2 → pass": ("how many are looked at at a time"),
    "gathered: if length >= GATHERED_BYTES: → if (length > GATHERED_BYTES):": ("how much is decoded at a time"),
    "last_record: floor, near = max(0, size - LONGEST_TAIL_BYTES), max(0, size - _NEAR_BYTES) → floor, near = max(1, size - LONGEST_TAIL_BYTES), max(0, size - _NEAR_BYTES)": (
        "the first byte is one of the first line's, and no record's"
    ),
    "Messages.taken_back: break → pass": ("what is known already is read again"),
    "VerifiedLines.require_kept_in_order: place = sealed_place(line) or (0 if sealer is None else sealer.generation, seq) → place = sealed_place(line) or (1 if sealer is None else sealer.generation, seq)": (
        "who asks this has the key; the line tells the type checker"
    ),
    "RecordSealer.opened: is_copy = after[1] is not None → is_copy = after[2] is not None": (
        "the two numbers are there together or not at all"
    ),
    "sealed_place: return None if found is None or found[1] is None else (int(found[1]), int(found[2])) → return None if found is None or found[2] is None else (int(found[1]), int(found[2]))": (
        "the two numbers are there together or not at all"
    ),
    "still_sealed: place = (int(found[1]), int(found[2])) if found[1] is not None else (generation, seq) → place = (int(found[1]), int(found[2])) if found[2] is not None else (generation, seq)": (
        "the two numbers are there together or not at all"
    ),
    "still_sealed: yield Copied(members if found[1] is not None else b'%b,\"sealed_at\":[%d,%d]' % (members, *place), seq) → yield Copied(members if found[2] is not None else b'%b,\"sealed_at\":[%d,%d]' % (members, *place), seq)": (
        "the two numbers are there together or not at all"
    ),
    "still_sealed: last = (-1, 0) → last = (-1, 1)": ("no generation is before 0, so every place is behind this one"),
    "Log.adopt: self._known_taken_back, self._passed_over = (0, TakenBack()), None → self._known_taken_back, self._passed_over = (1, TakenBack()), None": (
        "the first record takes nothing back"
    ),
    "Messages.taken_back: known_to, known = 0, TakenBack() → known_to, known = 1, TakenBack()": (
        "the first record takes nothing back"
    ),
    "VerifiedLines.newest_blocks_first: if passed_over is not None and first < place.seq <= last: → if passed_over is not None and (first <= place.seq <= last):": (
        "it is the same place then"
    ),
    "VerifiedLines.newest_blocks_first: if passed_over is not None and first < place.seq <= last: → if passed_over is not None and (first < place.seq < last):": (
        "what is passed over is looked at again then, and nothing in it counts"
    ),
    "RecordSealer.opened: if b'\"retracts\":' not in plain[:64] and named is None: → if b'\"retracts\":' not in plain[:65] and named is None:": (
        "a byte more is looked at; whatever has a member of that name is read by its form"
    ),
    'first_plain: at_end = data.find(b\'"at":"\', start, start + 64) + 6 + _TIME_BYTES → at_end = data.find(b\'"at":"\', start, start + 65) + 6 + _TIME_BYTES': (
        "more than any number is long"
    ),
    'RecordSealer.all_opened: if {part[7] for part in parts} != {b"sealed"} or not {part[10][:6] for part in parts} <= _USUAL: → if {part[7] for part in parts} != {b"sealed"} or not {part[10][:7] for part in parts} <= _USUAL:': (
        "each is opened by itself then: slower, and the same"
    ),
    'RecordSealer.all_opened: if {part[7] for part in parts} != {b"sealed"} or not {part[10][:6] for part in parts} <= _USUAL: → if {part[7] for part in parts} != {b"sealed"} or not {part[11][:6] for part in parts} <= _USUAL:': (
        "each is opened by itself then: slower, and the same"
    ),
    'RecordSealer.all_opened: if {part[7] for part in parts} != {b"sealed"} or not {part[10][:6] for part in parts} <= _USUAL: → if {part[8] for part in parts} != {b"sealed"} or not {part[10][:6] for part in parts} <= _USUAL:': (
        "each is opened by itself then: slower, and the same"
    ),
    "RecordSealer.all_opened: parts = [line.split(b'\"', 10) for line in lines] → parts = [line.split(b'\"', 11) for line in lines]": (
        "each is opened by itself then: slower, and the same"
    ),
    'RecordSealer.all_opened: places = [b"%b%d/%b" % (place, seq, part[5]) for seq, part in enumerate(parts, first_seq)] → places = [b"%b%d/%b" % (place, seq, part[6]) for seq, part in enumerate(parts, first_seq)]': (
        "each is opened by itself then: slower, and the same"
    ),
    "RecordSealer.all_opened: sealed = [*map(self._key.from_base64, [part[9] for part in parts], repeat(None), repeat(True))] → sealed = [*map(self._key.from_base64, [part[10] for part in parts], repeat(None), repeat(True))]": (
        "each is opened by itself then: slower, and the same"
    ),
    "RecordSealer._retraction: if (retracts_of(2**62, opened, start) is None) != (seen is None): → if (retracts_of(2**63, opened, start) is None) != (seen is None):": (
        "no record has such a number"
    ),
    "VerifiedLines.append_behind: return self.begin if seq == 0 else next(b.begin for b in self.newest_blocks_first() if b.begin.seq <= seq) → return self.begin if seq == 0 else next(b.begin for b in self.newest_blocks_first() if (b.begin.seq < seq))": (
        "it begins a block earlier, and more is read than need be"
    ),
    "is_header_of: body = line[: -SUFFIX_BYTES - 1] → body = line[: -SUFFIX_BYTES - 2]": (
        "no header is known to be plain then, and each is read in full: slower, and the same"
    ),
    "_Reader._pieces: if start >= self._base: → if (start > self._base):": "the same bytes, read anew from the file",
    "_edited: limit = 6 * len(line) + 64 → limit = 6 * len(line) + 65": "no JSON text that was shorter gets so long",
    "_Reader.parts: if done < limit: → if (done <= limit):": "nothing stands between a place and itself",
    "_Reader.parts: if start >= limit: → if (start > limit):": (
        "a token that begins there is all there; line feeds that go on behind it are counted with the next piece"
    ),
    "_Reader._end_candidate: batch = body_batch(self._window, 0, token.start()) → "
    "batch = body_batch(self._window, 1, token.start())": "a record's beginning is longer than a byte, so no mark of a batch has the first",
    "read_chunks: while start < end and (piece := read(start, min(PIECE_BYTES, end - start))): → "
    "while (start <= end) and (piece := read(start, min(PIECE_BYTES, end - start))):": "no bytes are asked for once more, and none come",
    "TakenBack.add_all: for first, last in zip(other._firsts, other._lasts, strict=True): → "
    "for first, last in zip(other._firsts, other._lasts, strict=False):": "each range has a first number and a last one",
    "append_before: length *= 4 → length *= 5": "how much is read at a time",
    "_long_strings: while found >= 0: → while found >= 1:": "the text begins with a bracket or a comma, which is no base64",
    "_long_strings: while found >= 0: → while (found > 0):": "the text begins with a bracket or a comma, which is no base64",
    "_long_strings: found = samples.find(_RUN, max(found + 1, end // _STRIDE)) if end >= 0 else -1 → found = samples.find(_RUN, max(found + 1, end // _STRIDE)) if (end > 0) else -1": "it is looked for behind a byte, so it is not at 0",
    "_long_strings: found = samples.find(_RUN, max(found + 1, end // _STRIDE)) if end >= 0 else -1 → found = samples.find(_RUN, max(found + 1, end // _STRIDE)) if end >= 1 else -1": "it is looked for behind a byte, so it is not at 0",
    "_long_strings: start, end = text.rfind(b'\"', 0, middle + 1), text.find(b'\"', middle + 1) → start, end = text.rfind(b'\"', 0, middle + 1), text.find(b'\"', (middle - 1))": "a quotation mark is never at 0, nor beside a byte of base64 unless the string before it ends there, and a look too many finds the next one",
    "_long_strings: start, end = text.rfind(b'\"', 0, middle + 1), text.find(b'\"', middle + 1) → start, end = text.rfind(b'\"', 0, middle + 1), text.find(b'\"', middle + 2)": "a quotation mark is never at 0, nor beside a byte of base64 unless the string before it ends there, and a look too many finds the next one",
    "_long_strings: start, end = text.rfind(b'\"', 0, middle + 1), text.find(b'\"', middle + 1) → start, end = text.rfind(b'\"', 0, middle + 2), text.find(b'\"', middle + 1)": "a quotation mark is never at 0, nor beside a byte of base64 unless the string before it ends there, and a look too many finds the next one",
    "_long_strings: start, end = text.rfind(b'\"', 0, middle + 1), text.find(b'\"', middle + 1) → start, end = text.rfind(b'\"', 1, middle + 1), text.find(b'\"', middle + 1)": "a quotation mark is never at 0, nor beside a byte of base64 unless the string before it ends there, and a look too many finds the next one",
    "_long_strings: start >= 0 and text[start + 1] in _IN_BASE64 → start >= 0 and text[start + 2] in _IN_BASE64": "all of a string that is base64 is in that set, so its second byte is; what begins at the end of a string is no media",
    "_Writer.__init__: self._waiting_bytes = 0 → self._waiting_bytes = 1": "how much is escaped at a time",
    "_Writer._end_piece: self._waiting, self._waiting_bytes = [], 0 → self._waiting, self._waiting_bytes = [], 1": "how much is escaped at a time",
    "_Writer.put: if self._waiting_bytes > _PIECE_BYTES: → if (self._waiting_bytes >= _PIECE_BYTES):": "how much is escaped at a time",
    "_Writer.__init__: self._tokens = 0 → self._tokens = 1": "whoever writes a history counts its prompt before anything else",
    "_Writer.__init__: self._counted_pieces = 0 → self._counted_pieces = 1": "whoever writes a history counts its prompt before anything else",
    'check_envelope: version = optional_member(members, "version", int, 0) → version = optional_member(members, "version", int, 1)': "neither is a later version",
    "Key.open: if len(sealed) < OVERHEAD_BYTES: → if (len(sealed) <= OVERHEAD_BYTES):": "nothing that is empty is sealed: a snapshot is not, nor is media",
    "NotOpenedError.__init__: super().__init__(reason) → pass": "it never comes out, and whoever catches it takes its reason",
    "StoredFiles.refuse_to_save_in_the_clear: self._witness.name = next(iter(looked_at), None) → pass": "the save that it is before becomes the witness too",
    "Storage.__init__: self.was_repaired = False → self.was_repaired = True": (
        "each load says it anew before anybody asks, and a create asks nobody"
    ),
    "TranscriptFile.record_at: head = chain_hash(before[:32], [line[: max(0, end - SUFFIX_BYTES)]]) → "
    "head = chain_hash(before[:32], [line[: max(1, end - SUFFIX_BYTES)]])": (
        "a line that is no longer than what closes one is no record, whatever its hash"
    ),
    "ConversationLibrary.fork_from: reader = Reader(files, filesystem.absolute_path(directory), self._folders.options, from_medium=True) → "
    "reader = Reader(files, filesystem.absolute_path(directory), self._folders.options, from_medium=False)": (
        "what its mark does not cover is read again from the medium then, as for any reader that copies: it is only read once more"
    ),
    "fork: writer.close() → pass": (
        "a create leaves nothing to do; what is there is let go of anyhow, and the close only renews the mark again if the system refused that"
    ),
    "SharedWriter.resolve: self._sign() → pass": (
        "only a call that wrote leaves a log to be read again: it signed, and left no validator"
    ),
}
