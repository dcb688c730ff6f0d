"""What a repair must keep of any bytes: docs/format.md and the docstring of ``repair()`` implemented again, slowly."""

from __future__ import annotations

import itertools
import json
import re
from datetime import datetime
from typing import Any

from tests.kit.oracle import digest, oracle
from transcript_store._log.repair_plan import Mode

Carried = tuple[str, Any, Any]
"""What a record carries: its time, its message, its extra."""


def of_line(line: bytes) -> Carried:
    members = json.loads(line)
    return members["at"], members.get("message"), members.get("extra")


_BEGINS = re.compile(rb'\{"seq":[1-9]\d{0,18},"at":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"')
_ENDS = re.compile(rb',"hash":"[0-9a-f]{32}"\}')
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")

Items = list[Carried | None]
"""Records in their order; None for a gap."""


def kept_by_the_oracle(data: bytes, mode: Mode, created_at: str) -> Items:
    """What a repair must keep of these bytes."""
    if mode == "prefix":
        verdict = oracle(data, 0)
        if verdict.answer == "refused":
            return [*map(of_line, data[: end_of_complete_appends(data)].splitlines()[1:])]
        text = data[: verdict.keep] if verdict.answer == "torn" else data
        return [of_line(line) for line in text.split(b"\n")[1:] if line]
    return Salvage(data, mode, created_at).items


def end_of_complete_appends(data: bytes) -> int:
    head, at, complete, inside = b"0" * 32, 0, 0, 0
    for number, line in enumerate(data.split(b"\n")[:-1]):
        if line[-43:] != b',"hash":"' + digest(head, line[:-43]) + b'"}':
            break
        members = json.loads(line)
        k, n = members.get("batch", (1, 1))
        if members.get("seq", 0) != number or k != inside + 1:
            break
        head, at, inside = line[-34:-2], at + len(line) + 1, 0 if k == n else k
        complete = at if k == n else complete
    return complete


class Salvage:
    """Every record that can be vouched for, wherever it stands; each question is asked of each place."""

    def __init__(self, data: bytes, mode: Mode, at: str) -> None:
        self.items: Items = []
        self.edits = mode == "accept-edits"
        self.at = at
        self.before = {b"0" * 32}
        self.stated = b"0" * 32
        self.last_kept = b"0" * 32
        self.kept: set[bytes] = set()
        lines = re.sub(rb'(?<="\})(?=\{"seq":)', b"\n", data).split(b"\n")
        for number, text in enumerate(lines):
            line = text.strip(b" \t\r")
            if number == 0 and line.startswith(b'{"format":"transcript-store"'):
                first = _BEGINS.search(line)
                header = line[: first.start()] if first and not self.is_whole(line) else line
                self.go_past(header)
                self.last_kept = self.stated
                line = line[len(header) :]
            if line and not self.record(line):
                self.take_apart(line)

    def is_whole(self, text: bytes) -> bool:
        candidates = self.before | {self.last_kept}
        return bool(_ENDS.fullmatch(text[-43:])) and any(digest(b, text[:-43]) == text[-34:-2] for b in candidates)

    def record(self, text: bytes) -> bool:
        if text in self.kept:
            self.before, self.stated = {text[-34:-2]}, text[-34:-2]
            return True
        if _BEGINS.match(text) and self.is_whole(text):
            self.kept.add(text)
            self.before, self.stated, self.last_kept = {text[-34:-2]}, text[-34:-2], text[-34:-2]
            self.items.append(of_line(text))
        elif self.edits and (members := strict_json(text)) is not None:
            self.go_past(text)
            at = members.get("at")
            self.items.append((str(at) if is_time(at) else self.at, members.get("message"), members.get("extra")))
        else:
            return False
        found = self.items[-1]
        assert found is not None
        self.at = found[0]
        return True

    def take_apart(self, line: bytes) -> None:
        """The longest way is asked first: from the left, every end of a record; then every beginning of one."""
        begin = 0
        for end in (match.end() for match in _ENDS.finditer(line)):
            if _BEGINS.match(line) and self.is_whole(line[:end]):
                assert self.record(line[:end])
                begin = end
                break
        cuts = [
            begin,
            *(m.start() for m in _BEGINS.finditer(line) if m.start() > begin or m.start() == begin > 0),
            len(line),
        ]
        for start, stop in itertools.pairwise(cuts):
            ends = [start + match.end() for match in _ENDS.finditer(line[start:stop])]
            cut = next((end for end in ends if _BEGINS.match(line, start) and self.is_whole(line[start:end])), stop)
            for text in (line[start:cut], line[cut:stop]):
                if text.strip(b" \t\r") and not self.record(text):
                    self.go_past(text)
                    if self.items[-1:] != [None]:
                        self.items.append(None)

    def go_past(self, text: bytes) -> None:
        """Any bytes in the position of the hash may be the hash, damaged or not."""
        if len(text) > 43:
            self.before = {text[-34:-2], digest(self.stated, text[:-43])}
            self.stated = text[-34:-2]


def is_time(at: object) -> bool:
    try:
        return isinstance(at, str) and bool(_TIME.fullmatch(at)) and bool(datetime.fromisoformat(at))
    except ValueError:
        return False


def strict_json(text: bytes) -> dict[str, Any] | None:
    """A JSON object with a message or an extra; None if it is not one, or has a key twice."""

    def no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError
        return dict(pairs)

    try:
        members = json.loads(text.decode(), object_pairs_hook=no_key_twice)
    except ValueError:
        return None
    if not isinstance(members, dict):
        return None
    members = {key: value for key, value in members.items() if key == "at" or isinstance(value, dict)}
    return members if {"message", "extra"} & members.keys() else None
