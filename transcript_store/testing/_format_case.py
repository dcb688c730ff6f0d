"""What the contract of formats works on: a reader and one sample, and what must be true of every plan."""

from __future__ import annotations

from dataclasses import dataclass

from transcript_store.errors import TranscriptStoreError
from transcript_store.formats import Entry, Head, Plan, Reader, Writer, head_of, original
from transcript_store.messages import encode_message
from transcript_store.testing._format_samples import MemorySource, MemoryTables, Rows

_MAX_BYTES = 64 << 20


@dataclass
class Case:
    """A reader, and one sample of what it reads."""

    reader: Reader
    sample: bytes | Rows
    writer: Writer | None
    seeds: int
    where: str = ""
    """What was done to the sample."""

    def read(self, sample: bytes | Rows, name: str = "somebody's source") -> list[Plan]:
        if isinstance(sample, bytes):
            return list(self.reader.plans(MemorySource(sample, name)))
        return list(self.reader.plans(MemoryTables(sample, name)))

    def read_anything(self, sample: bytes | Rows) -> list[Plan]:
        """What a damaged source gives. An error that we raise on purpose is an answer too."""
        try:
            self.reader.recognizes(head(sample))
            return self.read(sample)
        except TranscriptStoreError:
            return []

    def wholes(self, sample: bytes | Rows) -> list[Plan]:
        return [plan for plan in self.read(sample) if not plan.is_part]


def head(sample: bytes | Rows) -> Head:
    """How a sample begins."""
    if isinstance(sample, bytes):
        return head_of(MemorySource(sample))
    tables = MemoryTables(sample)
    return Head(tables.name, b"SQLite format 3\0", (), {name: tables.columns(name) for name in sample})


def entries_of(plan: Plan, generation: int | None = None) -> list[Entry]:
    """Its entries, of one generation or of all."""
    chosen = plan.generations if generation is None else (plan.generations[generation],)
    return [entry for one in chosen for entry in one()]


def original_of(plan: Plan) -> bytes:
    """The bytes of the session's lines, from what its entries keep, and of the line that is still being written."""
    kept = [
        (packed, entry.message)
        for entry in entries_of(plan)
        for packed in entry.extra.get("source", {}).get("lines", [])
    ]
    return b"".join(original(kept)) + plan.tail


def check_accounts(plan: Plan) -> None:
    """Whether each line of a session ends in a message, an event or a finding (F6)."""
    named = {number for entry in entries_of(plan) for number in entry.lines}
    told = {finding.line for finding in plan.findings if finding.line is not None}
    if plan.is_part:
        assert len(named) == plan.lines, f"the part has {plan.lines} lines, and its entries name {len(named)}"
        return
    lost = sorted(set(range(1, plan.lines + 1)) - named - told)
    assert not lost, f"line {lost[0]} of {plan.lines} is in no message, no event and no finding"
    beyond = sorted(named - set(range(1, plan.lines + 1)))
    assert not beyond, f"an entry names line {beyond[:1]}, and there are {plan.lines}"


def check_storable(plan: Plan) -> None:
    """Whether what is planned can be stored."""
    for entry in entries_of(plan):
        encode_message(entry.extra, "extra", _MAX_BYTES)
        if entry.message is not None:
            encode_message(entry.message, "message", _MAX_BYTES)
        assert entry.at is None or isinstance(entry.at, str), f"a time is {entry.at!r}"
    assert all(isinstance(text, str) for text in plan.labels.values()), f"labels are {dict(plan.labels)!r}"
