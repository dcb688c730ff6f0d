"""Print the messages of a conversation, verified, with Python alone: ``python rescue.py FOLDER|FILE``.

Copy this file beside an archive: it outlives the library. It prints each message whose record verifies, a JSON object a line;
on standard error what is missing, and then the exit status is 1. It changes nothing. docs/format.md describes the format.
"""

import json
import re
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

START = re.compile(rb'\{"seq":([1-9]\d{0,18}),"at":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"(?:,"clock":"[^"]*")?')
END = re.compile(rb',"hash":"[0-9a-f]{32}"\}')
RECORD = re.compile(START.pattern + rb'(?:,"retracts":\[([1-9]\d*),([1-9]\d*)\](?!,"message":)|,"message":)')
GENESIS = b"0" * 32


def chained(previous: bytes, body: bytes) -> bytes:
    """The hash of a line, without its last 43 bytes, after a line that has this hash."""
    return sha256(previous + body).hexdigest()[:32].encode()


class Transcript:
    """Finds the records that verify: in order, glued to others, or after damage."""

    def __init__(self) -> None:
        self.missing = ["line 1: there is no header"]
        self.head, self.generation, self.retracts = GENESIS, None, True  # of the line before; of the header
        self.last, self.seq = GENESIS + b'"}', 0  # the last line that is whole, and its number
        self.before = [GENESIS]  # the hash at the end of the line before: as stored, and recomputed
        self.seen: dict[bytes, bytes] = {}  # of each whole record, by its hash, the hash before it

    def previous(self, text: bytes) -> bytes | None:
        """The hash that a whole line is chained to; None if it is not whole."""
        body, stated = (text[:-43], text[-34:-2]) if END.fullmatch(text[-43:]) else (text, b"")
        heads = [*self.before, self.last[-34:-2], self.seen.get(stated, GENESIS)]
        return next((head for head in heads if chained(head, body) == stated), None)

    def records(self, line: bytes, number: int) -> Iterator[bytes]:
        """The whole records on a line; what else is on it is noted."""
        line = line.strip(b" \t\r\n")
        if number == 1 and line.startswith(b'{"format":"transcript-store"'):
            header = line if (glued := START.search(line)) is None or self.previous(line) else line[: glued.start()]
            known = json.loads(header) if self.previous(header) else {}
            self.missing = [] if known else ["line 1: the header is damaged"]
            if known.get("version", 1) != 1 or (known.get("requires") or ["retract"]) != ["retract"]:
                sys.exit("it is sealed, or a later version of transcript-store wrote it: this program cannot read it")
            self.generation, self.retracts = known.get("generation"), not known or bool(known.get("requires"))
            self.before, self.head = [header[-34:-2], chained(self.head, header[:-43])], header[-34:-2]
            self.last, line = header, line[len(header) :]
        at, starts = 0, [match.start() for match in START.finditer(line)]
        while at < len(line):
            ends = (match.end() for match in END.finditer(line, at) if at in starts)
            end = next((end for end in ends if self.previous(line[at:end])), None)
            text = line[at:end] if end else line[at : next((start for start in starts if start > at), None)]
            at, previous = at + len(text), self.previous(text) if end else None
            if len(text) > 43:
                self.before, self.head = [text[-34:-2], chained(self.head, text[:-43])], text[-34:-2]
            if previous is None and text.strip():
                self.missing.append(f"line {number}: {len(text)} bytes do not verify")
            elif previous and self.head not in self.seen and (begin := START.match(text)):
                self.seen[self.head], self.before, self.last, self.seq = previous, [self.head], text, int(begin[1])
                yield text


def main(path: Path) -> int:
    """Print the messages; returns 1 if something is missing."""
    if not (file := path / "transcript.jsonl" if path.is_dir() else path).is_file():
        sys.exit(f"{file}: no such file: pass the folder of one conversation, or its transcript.jsonl")
    with file.open("rb") as lines:
        transcript, ahead, gone = Transcript(), Transcript(), list[range]()
        for record in (record for at, line in enumerate(lines, 1) for record in ahead.records(line, at)):
            if ahead.retracts and (match := RECORD.match(record)) and match[2] and int(match[3]) < ahead.seq:
                gone.append(range(int(match[2]), int(match[3]) + 1))
        lines.seek(0)
        for record in (record for at, line in enumerate(lines, 1) for record in transcript.records(line, at)):
            if (match := RECORD.match(record)) and not match[2] and not any(transcript.seq in part for part in gone):
                value, end = json.JSONDecoder().raw_decode(text := record[match.end() :].decode())
                shown = json.dumps(value) if sys.stdout.isatty() else text[:end]  # a terminal obeys what JSON allows
                sys.stdout.buffer.write(f"{shown}\n".encode())  # UTF-8, whatever the system's own encoding is
    if re.search(rb',"batch":\[(\d+),(?!\1\])\d+\]' + END.pattern + b"$", transcript.last):
        transcript.missing.append("the end: the last append was interrupted and never acknowledged")
    if path.is_dir():
        try:
            mark = json.loads((path / "metadata.json").read_bytes())["mark"] or {"generation": -1}
            if transcript.generation in (mark["generation"], None) and mark["seq"] > transcript.seq:
                transcript.missing.append(f"the end: there were {mark['seq']} records at least, and some are missing")
        except (OSError, ValueError, LookupError, TypeError) as error:
            transcript.missing.append(f"metadata.json cannot be read: {error}")
    sys.stderr.writelines(f"{what}\n" for what in transcript.missing)
    return int(bool(transcript.missing))


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])) if len(sys.argv) == 2 and sys.argv[1][:1] != "-" else __doc__)
    except OSError as error:
        sys.exit(str(error))
