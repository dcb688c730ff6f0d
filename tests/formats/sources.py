"""Foreign files, and the byte-by-byte rules for the plans of a file of lines."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import orjson

from tests.formats.of_others import messages
from transcript_store.formats import PlannedRecord, SessionPlan, original_lines

SHARED = os.environ.get("TRANSCRIPT_STORE_SHARED")


def corpora(folder: str) -> list[Path]:
    """Files that nobody here wrote; none where the shared folder is not."""
    return sorted((Path(SHARED) / "corpora" / folder).glob("*.jsonl")) if SHARED else []


def json_lines(values: Iterable[object]) -> bytes:
    return b"".join(orjson.dumps(value) + b"\n" for value in values)


def entries_of(plan: SessionPlan) -> list[PlannedRecord]:
    """Of all generations, as a store would give them back: nothing is the same object any more."""
    return [
        PlannedRecord(orjson.loads(orjson.dumps(one.message)), orjson.loads(orjson.dumps(one.extra)), one.at, one.lines)
        for generation in plan.generations
        for one in generation()
    ]


def texts_in(plan: SessionPlan, generation: int = -1) -> list[str]:
    """What was said, one text a message; a call by its name, a result by its text."""
    found = []
    for message in messages(plan, generation):
        content = message["content"]
        blocks = content if isinstance(content, list) else [{"text": content}]
        found.append(
            " ".join(str(b.get("text") or b.get("name") or b.get("content") or b.get("thinking")) for b in blocks)
        )
    return found


def check_accounts(plan: SessionPlan, data: bytes) -> None:
    """Every line ends in a message, an event or a finding (F6), and the original bytes come out (F3)."""
    entries = entries_of(plan)
    packed = [(line, entry.message) for entry in entries for line in entry.extra["source"]["lines"]]
    for entry in entries:
        assert tuple(line["n"] for line in entry.extra["source"]["lines"]) == entry.lines
    pieces = Counter((line["n"], line.get("part", 0)) for line, _ in packed)
    assert set(pieces.values()) <= {1}, "a line is accounted for twice"
    too_long = {finding.line for finding in plan.findings if finding.kind == "too-long"}
    assert {number for number, _ in pieces} | too_long == set(range(1, plan.lines + 1))
    assert b"".join(original_lines(packed)) + plan.tail == data
