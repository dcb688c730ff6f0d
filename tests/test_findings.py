"""What ``verify`` says of each damaged place is what whoever opens the file there finds.

The incident: a mutant of the reader of damage counted lines wrongly behind a blank one, and no test noticed, because each
looked at the first finding alone. A person goes by the second one too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from transcript_store import ConversationStore, Finding, verify

SAID = [{"role": "user", "content": f"message {n}"} for n in range(8)]


@pytest.fixture
def lines(scratch: Path) -> list[bytes]:
    """The lines of a conversation's transcript, each with its line feed; the conversation is in ``scratch``."""
    with ConversationStore(scratch) as store:
        store.initialize(messages=SAID)
    return (scratch / "transcript.jsonl").read_bytes().splitlines(keepends=True)


def found_in(scratch: Path, lines: list[bytes]) -> tuple[bytes, tuple[Finding, ...]]:
    """The file that these lines are, and what is found in it."""
    data = b"".join(lines)
    (scratch / "transcript.jsonl").write_bytes(data)
    return data, verify(scratch).findings


def edited(line: bytes) -> bytes:
    return line.replace(b"message", b"massage")


def test_each_damaged_line_is_found_under_its_number(scratch: Path, lines: list[bytes]) -> None:
    """P10: also behind blank lines that an editor put in, and behind two records on one line."""
    lines[2] = edited(lines[2])
    lines[3] = lines[3].rstrip(b"\n")
    lines[5] = edited(lines[5])
    lines[6] += b"\n \n\n"
    lines[8] = edited(lines[8])
    data, findings = found_in(scratch, lines)
    assert [data[found.offset_bytes or 0 :][: found.length_bytes] for found in findings] == [
        lines[number].rstrip(b"\n") for number in (2, 5, 8)
    ]
    assert [found.line_number for found in findings] == [
        data.count(b"\n", 0, found.offset_bytes or 0) + 1 for found in findings
    ]
