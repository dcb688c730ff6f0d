"""A thousand transcripts of each kind of damage, each held against the oracle."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest

from tests.kit.damage import write
from tests.kit.machines import HASTY
from tests.kit.oracle_of_repair import Items, kept_by_the_oracle
from tests.kit.scratch import scratch_directory
from tests.repair.helpers import carried, nuls, repaired
from transcript_store import (
    ConversationStore,
    Repair,
)
from transcript_store._log.salvage import GAP, MODES, Mode


class Randomly:
    """A transcript, and what may happen to it. Every choice comes from the seed."""

    def __init__(self, seed: int, directory: str) -> None:
        self.random = random.Random(seed)
        for name in ("ours", "other"):
            with ConversationStore(
                f"{directory}/{name}", durability="process-crash", file_system=HASTY
            ) as conversation:
                conversation.initialize(provider="claude")
                for n in range(16):
                    text = "".join(self.random.choices('ab"{}[],:\\ü \u2028', k=self.random.randrange(30)))
                    conversation.append_message({"role": "user", "content": text, "n": n})
                    if n % 5 == 1:
                        conversation.append_messages(
                            [{"n": n, "k": k} for k in range(3)], extras=[None, {"u": 1}, None]
                        )
                    if n % 7 == 2:
                        conversation.append_event({"marker": n})
        self.metadata = Path(directory, "ours/metadata.json").read_bytes()
        self.data = Path(directory, "ours/transcript.jsonl").read_bytes()
        self.lines = self.data.splitlines(keepends=True)
        self.other = Path(directory, "other/transcript.jsonl").read_bytes().splitlines(keepends=True)

    def place(self) -> int:
        return self.random.randrange(len(self.data))

    def line(self) -> int:
        return self.random.randrange(len(self.lines))

    def changed_byte(self) -> bytes:
        at = self.place()
        return self.data[:at] + bytes([self.data[at] ^ self.random.randrange(1, 256)]) + self.data[at + 1 :]

    def lost_line(self) -> bytes:
        at = self.line()
        return b"".join(self.lines[:at] + self.lines[at + self.random.choice([1, 1, 1, 2, 5]) :])

    def moved_line(self) -> bytes:
        lines = [*self.lines]
        lines.insert(self.line(), lines.pop(self.line()))
        return b"".join(lines)

    def repeated_line(self) -> bytes:
        lines = [*self.lines]
        lines.insert(self.line(), self.random.choice(lines))
        return b"".join(lines)

    def foreign_line(self) -> bytes:
        lines, at = [*self.lines], self.line()
        first = self.random.randrange(len(self.other))
        lines[at:at] = self.other[first : first + self.random.choice([1, 1, 2, 4])]
        return b"".join(lines)

    def cut(self) -> bytes:
        return self.data[: self.place()]

    def lost_bytes(self) -> bytes:
        at = self.place()
        return self.data[:at] + self.data[at + self.random.choice([1, 1, 20, 200, 700]) :]

    def zeroed_run(self) -> bytes:
        at = self.place()
        return nuls(self.data, at, min(at + self.random.choice([1, 1, 16, 200, 512, 4096]), len(self.data)))

    def glued(self) -> bytes:
        lines = [*self.lines]
        for _ in range(self.random.choice([1, 1, 2, 4])):
            at = self.line()
            lines[at] = lines[at].removesuffix(b"\n") + self.random.choice([b"", b"", b" ", b"\0", b"garbage", b"}"])
        return b"".join(lines)

    def repeated_tail(self) -> bytes:
        return self.data + self.data[self.random.choice([self.place(), self.data.index(self.lines[self.line()])]) :]

    def two_things(self) -> bytes:
        """Damage on damage."""
        whole = self.data, self.lines
        self.data = getattr(self, self.random.choice(KINDS[:-1]))() or b"\n"
        self.lines = self.data.splitlines(keepends=True)
        try:
            return bytes(getattr(self, self.random.choice(KINDS[:-1]))())
        finally:
            self.data, self.lines = whole


KINDS = [name for name, kind in vars(Randomly).items() if callable(kind) and name not in ("__init__", "place", "line")]


@pytest.mark.parametrize("count", [pytest.param(6, id="6"), pytest.param(1000, id="1000", marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_transcripts_damaged_at_random(kind: str, count: int) -> None:
    """P10: of a thousand of each kind, a repair keeps exactly what the oracle says; the original is there; once is enough.

    The modes take turns. The same damage in the same mode, which a few kinds come to again and again, is repaired once.
    """
    seed = 20260922
    print(f"seed {seed}")
    tried: set[tuple[bytes, Mode]] = set()
    with scratch_directory() as directory:
        randomly = Randomly(seed, directory)
        created_at = json.loads(randomly.metadata)["created_at"]
        for number, mode in zip(range(count), itertools.cycle(MODES)):
            data = getattr(randomly, kind)()
            if (data, mode) in tried:
                continue
            tried.add((data, mode))
            write(f"{directory}/c", randomly.metadata, data)
            done = repaired(f"{directory}/c", mode)
            found: Items = [
                None if GAP in (extra or ()) else (at, m, extra) for at, m, extra in carried(f"{directory}/c")
            ]
            assert found[:-1] == kept_by_the_oracle(data, mode, created_at), f"{kind} {number}, {mode}, seed {seed}"
            _only_what_is_lost_is_in_a_gap(data, done)
    assert {mode for _, mode in tried} == {*MODES}


def _only_what_is_lost_is_in_a_gap(data: bytes, done: Repair) -> None:
    """The gaps are in order, apart from each other, within the file, and one record tells of each."""
    end = -1
    for gap in done.gaps:
        assert end < gap.offset_bytes < gap.offset_bytes + gap.length_bytes <= len(data)
        end = gap.offset_bytes + gap.length_bytes
