"""Damaged conversations, put where a test wants them."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.kit.machines import HASTY
from tests.kit.oracle import sealed
from transcript_store import ConversationStore

NEW = {"role": "user", "content": "after the damage"}


def write(directory: str, metadata: bytes, transcript: bytes) -> None:
    """A conversation of these two files and nothing else, whatever stood there."""
    shutil.rmtree(directory, ignore_errors=True)
    os.mkdir(directory, 0o700)
    for name, data in (("metadata.json", metadata), ("transcript.jsonl", transcript)):
        with open(f"{directory}/{name}", "wb") as file:
            file.write(data)


def flipped(data: bytes, at: int, bit: int) -> bytes:
    """The same with one bit of the byte at ``at`` the other way."""
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def resealed(lines: list[bytes], change: Callable[[bytes], bytes]) -> bytes:
    """A rewritten history, with a chain that verifies."""
    head, out = b"0" * 32, b""
    for line in lines:
        out += sealed(head, change(line[:-44]))
        head = out[-35:-3]
    return out


def nuls(data: bytes, start: int, end: int) -> bytes:
    """The same with NULs from ``start`` to ``end``."""
    return data[:start] + bytes(end - start) + data[end:]


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
