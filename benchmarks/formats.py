"""What becomes of other programs' files, and how fast: ``python -m benchmarks.formats PATH…`` prints two tables.

Each session in the files is read as an import reads it. Counted are lines, messages, events and findings, and what each writer says
that its program cannot hold. The time is that of a reader's plan and of all its entries, made once; beside it that of
``orjson.loads`` of the same lines, and that of a bare loop which decodes each line, encodes it again, compares the bytes and makes
an entry: less than that no reader in Python takes that keeps F3. All are the least of several rounds in one process, in seconds of
the processor.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.formats import READERS, WRITERS, PlannedRecord, SessionPlan, SessionReader
from transcript_store.sources import FileSource, UnreadableSourceError, find_sources, open_parts

ROUNDS = 5
_SESSION, _NOW = "0195cafe-0000-4000-8000-000000000001", "2026-01-01T00:00:00.000000Z"


@dataclass
class Figures:
    """Of all files of one format."""

    sessions: int = 0
    size: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    losses: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    plan_seconds: float = 0.0
    json_seconds: float = 0.0
    bare_seconds: float = 0.0

    def add(self, reader: SessionReader, data: bytes, source: FileSource) -> None:
        for plan in reader.plans(source):
            self.sessions += 1
            self._count(plan)
        self.size += len(data)
        lines = data.split(b"\n")
        self.plan_seconds += least(lambda: _planned(reader, source))
        self.json_seconds += least(lambda: _loaded(lines))
        self.bare_seconds += least(lambda: _compared(lines))

    def _count(self, plan: SessionPlan) -> None:
        if not plan.is_part:
            self.counts["lines"] += plan.lines
        self.findings.update(finding.kind for finding in plan.findings)
        self.losses["imported"].update({loss.kind: loss.count for loss in plan.losses})
        said: list[dict[str, Any]] = []
        for generation in plan.generations:
            entries = list(generation())
            said = [entry.message for entry in entries if entry.message is not None]
            self.counts["messages"] += len(said)
            self.counts["events"] += len(entries) - len(said)
        if said:  # of the live generation, the last one
            for writer in WRITERS:
                self.losses[writer.name].update(_written(writer.name, said, plan))


def _planned(reader: SessionReader, source: FileSource) -> None:
    for plan in reader.plans(source):
        for generation in plan.generations:
            for _ in generation():
                pass


def _loaded(lines: Iterable[bytes]) -> None:
    for line in lines:
        try:
            orjson.loads(line)
        except orjson.JSONDecodeError:
            continue


def _compared(lines: Iterable[bytes]) -> None:
    """The least that keeps a line's bytes: it is spelled again and compared, and an entry is made of it."""
    for number, line in enumerate(lines, 1):
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        packed = {"n": number, "line": value} if orjson.dumps(value) == line else {"n": number, "raw": line.decode()}
        PlannedRecord(value, {"source": {"lines": [packed]}}, None, (number,))


def _written(to: str, said: list[dict[str, Any]], plan: SessionPlan) -> Counter[str]:
    records = [Record(seq=seq, at=_NOW, message=message, extra=None) for seq, message in enumerate(said, 1)]
    about = ConversationMetadata(
        id=_SESSION,
        created_at=_NOW,
        updated_at=_NOW,
        provider=plan.provider,
        model=plan.model,
        system_prompt=plan.system_prompt,
        tools=list(plan.tools) or None,
        labels=dict(plan.labels),
        compaction_count=0,
        generation=0,
    )
    (writer,) = (writer for writer in WRITERS if writer.name == to)
    try:
        written = writer.write(iter(records), about, session=_SESSION, cwd="/home/me", now=_NOW)
    except ValueError:
        return Counter({"not written": 1})
    return Counter({loss.kind: loss.count for loss in written.losses})


def least(act: Callable[[], object]) -> float:
    """The least processor time of some rounds."""
    seconds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        act()
        seconds.append(time.process_time() - began)
    return min(seconds)


def figures_of(paths: Iterable[str]) -> dict[str, Figures]:
    """The figures of all files of lines and documents below the paths, by their format; what is of none is passed over."""
    figures: dict[str, Figures] = defaultdict(Figures)
    for path in paths:
        for found in find_sources(path):
            try:
                with open_parts(found.path) as parts:
                    for part in parts:
                        if isinstance(part, UnreadableSourceError):
                            continue
                        head, source = part
                        reader = next((reader for reader in READERS if reader.recognizes(head)), None)
                        if reader is not None and isinstance(source, FileSource):
                            figures[reader.name].add(reader, source.read(0, source.size), source)
            except UnreadableSourceError:
                continue
    return dict(sorted(figures.items()))


def tables(figures: dict[str, Figures]) -> list[str]:
    """Two tables in Markdown."""
    rows = [
        "| format | sessions | lines | messages | events | findings | bytes | plan | `orjson.loads` | of it | bare, of it |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, of in figures.items():
        took = (of.plan_seconds, of.json_seconds, of.bare_seconds)
        speeds = [of.size / 1e6 / max(seconds, 1e-9) for seconds in took]
        counts = " | ".join(f"{of.counts[kind]:,}" for kind in ("lines", "messages", "events"))
        rows.append(
            f"| `{name}` | {of.sessions} | {counts} | {_told(of.findings)} | {of.size:,} | "
            f"{speeds[0]:.0f} MB/s | {speeds[1]:.0f} MB/s | {speeds[0] / speeds[1]:.2f} | {speeds[2] / speeds[1]:.2f} |"
        )
    targets = ["imported", *(writer.name for writer in WRITERS)]
    rows += ["", f"| losses | {' | '.join(targets)} |", "|---|" + "---|" * len(targets)]
    for name, of in figures.items():
        rows.append(f"| `{name}` | {' | '.join(_told(of.losses[target]) for target in targets)} |")
    return rows


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()) if count) or "–"


def main() -> None:
    """Print the tables."""
    if len(sys.argv) < 2 or not all(Path(path).exists() for path in sys.argv[1:]):
        sys.exit("python -m benchmarks.formats PATH…: files, or folders with all below them")
    print("\n".join(tables(figures_of(sys.argv[1:]))))


if __name__ == "__main__":
    main()
