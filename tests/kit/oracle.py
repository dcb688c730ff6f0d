"""The expected result of ``load()`` for any bytes: docs/format.md implemented again, slowly, without the package."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple


class Verdict(NamedTuple):
    answer: str
    """``whole``, ``torn`` (recovered) or ``refused``."""
    at: int
    """Where the first line begins that is not whole."""
    keep: int = 0
    """For ``torn``: how many bytes stay."""
    complete: int = 0
    """For ``torn``: where the last complete append ends, LF and all: what a reader sees."""
    kinds: tuple[str, ...] = ()


_END = re.compile(rb',"hash":"([0-9a-f]{32})"\}')


def digest(previous: bytes, body: bytes) -> bytes:
    """The hash at the end of a line, from the hash before it and the line up to there."""
    return sha256(previous + body).hexdigest()[:32].encode()


def sealed(previous: bytes, body: bytes) -> bytes:
    """The line of a body behind a hash: anybody can make one that verifies."""
    return body + b',"hash":"' + digest(previous, body) + b'"}\n'


def oracle(data: bytes, mark: int) -> Verdict:
    """What ``load()`` must answer to these bytes, by docs/format.md."""
    at, head, seq, inside = 0, b"0" * 32, -1, (0, 0)
    complete, complete_seq = 0, -1
    while (line_feed := data.find(b"\n", at)) >= 0:
        line = data[at:line_feed]
        if line[-43:] != b',"hash":"' + digest(head, line[:-43]) + b'"}':
            break
        record = json.loads(line)
        k, n = record.get("batch", (1, 1))
        if record.get("seq", 0) != seq + 1 or k != inside[0] + 1 or n != (inside[1] or n):
            break
        at, head, seq, inside = line_feed + 1, line[-34:-2], seq + 1, ((0, 0) if k == n else (k, n))
        if k == n:
            complete, complete_seq = at, seq
    if seq < 0:
        return Verdict("refused", 0, kinds=("damaged-header", "foreign"))
    if complete < mark:
        return Verdict("refused", at, kinds=("damaged-line", "truncated"))
    if complete == len(data):
        return Verdict("whole", at)
    kept, next_seq = 0, seq + 1
    for start, end, record, previous, own in _records_behind(data, at, head):
        k, n = record.get("batch", (1, 1))
        if previous == head:  # the next record of this very transcript: never cut, wherever it stands
            if (record["seq"], k) != (next_seq, inside[0] + 1):
                return Verdict("refused", at, kinds=("hole",))
            if k < n:
                head, next_seq, inside = own, next_seq + 1, (k, n)
                continue
            line_feed = data.find(b"\n", end)
            others = (len(data) if line_feed < 0 else line_feed) - end
            if start != at or others > 1:
                return Verdict("refused", at, kinds=("hole",))
            kept = end
        elif record["seq"] > seq and record["seq"] - k != complete_seq:
            return Verdict("refused", at, kinds=("hole",))
    if _is_written_by_hand(data[at:]):
        return Verdict("refused", at, kinds=("foreign",))
    return Verdict("torn", at, kept or complete, complete)


def _is_written_by_hand(rest: bytes) -> bool:
    """Objects in JSON, none of whose lines begins or ends as ours do, up to a line feed: no crash leaves that."""
    *lines, end = rest.split(b"\n")
    begins = (b'{"seq":', b'{"format":"transcript-store",')
    if end or any(line.startswith(begins) or re.search(rb',"hash":".{32}"}$', line) for line in lines):
        return False
    objects, open_lines = 0, b""
    for line in lines:
        open_lines += line + b"\n"
        try:
            found = json.loads(open_lines) if open_lines.strip() else {}
        except ValueError:
            continue
        if type(found) is not dict:
            return False
        objects, open_lines = objects + bool(open_lines.strip()), b""
    return objects > 0 and not open_lines.strip()


def _records_behind(data: bytes, at: int, head: bytes) -> Iterator[tuple[int, int, dict[str, Any], bytes, bytes]]:
    """Every record at or after ``at`` whose hash verifies against what the line before it says, or ought to say, or
    against the last record before it that is whole; with that hash, and its own.
    """
    last = head
    before = {head}
    start = at
    while start < len(data):
        line_feed = data.find(b"\n", start)
        end = len(data) if line_feed < 0 else line_feed
        begins = [start, *(match.start() for match in re.compile(rb'\{"seq":[1-9]').finditer(data, start + 1, end))]
        for match in _END.finditer(data, start, end):
            for begin in begins:
                body = data[begin : match.start()]
                for previous in {*before, last}:
                    if begin < match.start() and body.startswith(b'{"seq":') and digest(previous, body) == match[1]:
                        last = match[1]
                        yield begin, match.end(), json.loads(body + b"}"), previous, last
        line = data[start:end]
        before = {line[-34:-2], last, *(digest(previous, line[:-43]) for previous in before)}
        start = end + 1
