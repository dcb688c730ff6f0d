"""A log that is read from its first line to its last, and restarts where a conversation was compacted or taken back.

A reader yields records line by line, and ``Restart`` where the earlier ones stop counting. To read a generation, it walks to its
start: only the live context is kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain, pairwise
from typing import Any, NamedTuple

import orjson

from transcript_store.formats._lines import SourceLine, SourceLines
from transcript_store.formats._members import labels
from transcript_store.formats._neutral import Losses
from transcript_store.formats._packing import pack_line, places_in
from transcript_store.formats._plan import ImportFinding, PlannedRecord, SessionPlan, Source


@dataclass(slots=True)
class Draft:
    """A record whose lines are not packed yet. It may still change: a later line may belong to it."""

    message: dict[str, Any] | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    at: str | None = None
    lines: list[SourceLine] = field(default_factory=list)

    def entry(self) -> PlannedRecord:
        """The entry, with its lines packed."""
        if not self.lines:
            return self.carried()
        places = places_in(self.message) if self.message is not None and len(self.lines) > 1 else None
        packed = [
            pack_line(li.number, li.raw, li.value, self.message, part=li.part, places=places) for li in self.lines
        ]
        numbers: Sequence[int] = self.lines[0].numbers
        if len(self.lines) > 1:
            numbers = tuple(dict.fromkeys(chain.from_iterable(line.numbers for line in self.lines)))
        return PlannedRecord(self.message, {**self.extra, "source": {"lines": packed}}, self.at, numbers)

    def carried(self) -> PlannedRecord:
        """The record for a later generation: without lines, because an earlier one accounts for them."""
        return PlannedRecord(self.message, dict(self.extra), self.at)


class Restart(NamedTuple):
    """A new generation."""

    carried: Callable[[], Iterable[PlannedRecord]] = tuple
    """The records that it takes over. Called before the next step, or not at all."""
    taken_back: int = 0
    """How many messages the user took back."""


Steps = Iterator[Draft | Restart]
Entries = Callable[[], Iterable[PlannedRecord]]


class Allowance:
    """Limits the number of generations, and the bytes that they take over.

    Each generation is a file of the archive, with a sync. Each takes over what it keeps of the one before, so a file full of turns
    that were taken back would grow far beyond its size.
    """

    TIMES = 1000
    BYTES, OF_THE_SOURCE = 64 << 20, 8
    """This much, or so many times the source."""
    RECORD = 200
    """The bytes of a record beside its message."""

    def __init__(self, source: Source | None = None) -> None:
        self._times = self.TIMES
        self._bytes = max(self.BYTES, self.OF_THE_SOURCE * (0 if source is None else source.size))

    def takes(self, sizes: Iterable[int]) -> bool:
        """True if another generation may start that takes over messages of these sizes in bytes."""
        self._times -= 1
        self._bytes -= sum(self.RECORD + size for size in sizes)
        return self._times > 0 and self._bytes >= 0


class Replay(NamedTuple):
    """The result of a walk."""

    generations: tuple[Entries, ...]
    findings: tuple[ImportFinding, ...]


def replayed(source: Source, first: Steps, again: Callable[[], Steps]) -> Replay:
    """The records of each generation of a walk. ``first`` is consumed at once, to count them.

    ``again`` starts another walk when records are requested; generations requested in order share one walk. Keeping the records of
    the first walk would be as slow, because Python's collector traverses them.

    Beyond the allowance, all generations but the last become one with all their records.
    """
    allowance = Allowance(source)
    last, joined, taken_back = 0, 0, 0
    for step in first:
        if isinstance(step, Restart):
            last += 1
            taken_back += step.taken_back
            if not joined and not allowance.takes(map(_size, step.carried())):
                joined = last
    walk = _Walk(again)
    cuts = range(last + 2) if joined in (0, last) else (*range(joined + 1), last, last + 1)
    generations = tuple(partial(walk.generation, range(*cut)) for cut in pairwise(cuts))
    findings = taken_back_finding(taken_back)
    if len(generations) == last + 1:
        return Replay(generations, findings)
    message = f"it restarts {last:,} times: everything between restart {joined:,} and the last one is one generation"
    return Replay(generations, (ImportFinding("many-generations", message), *findings))


def taken_back_finding(count: int) -> tuple[ImportFinding, ...]:
    """The finding about messages that the user took back."""
    said = "1 message was" if count == 1 else f"{count:,} messages were"
    why = f"{said} taken back: kept in an earlier generation, which `show --generation` shows"
    return (ImportFinding("left-branch", why),) if count else ()


def left_finding(count: int) -> list[ImportFinding]:
    """The finding about messages on branches that the conversation left."""
    if not count:
        return []
    said = "1 message is on a branch" if count == 1 else f"{count:,} messages are on branches"
    return [ImportFinding("left-branch", f"{said} that the conversation left: kept beside it, and shown by --branches")]


def _size(entry: PlannedRecord) -> int:
    try:
        return len(orjson.dumps(entry.message))
    except orjson.JSONEncodeError:  # too deep for a store too: its lines are kept, and they were counted
        return 0


class _Walk:
    """A walk that continues where the previous generation ended."""

    def __init__(self, walk: Callable[[], Steps]) -> None:
        self._walk = walk
        self._begun: tuple[int, Restart, Steps] | None = None
        """The index of the generation that it has reached, its restart, and the steps after it."""

    def generation(self, places: range) -> Iterator[PlannedRecord]:
        """The records of these generations: what the first one takes over, and all records up to the end of the last."""
        begun, self._begun = self._begun, None
        if begun is not None and begun[0] == places.start:
            at, begins, steps = begun
            yield from begins.carried()
        else:
            at, steps = 0, self._walk()
        for step in steps:
            if isinstance(step, Restart):
                at += 1
                if at == places.stop:
                    self._begun = at, step, steps
                    return
                if at == places.start:
                    yield from step.carried()
            elif at in places:
                yield step.entry()


# ---- facts ----
#
# What a reader learns of a session while it reads the lines or rows, and the plan that is made of it.


@dataclass(slots=True)
class SessionFacts:
    """Facts of a session. A value that is not a text, or is empty, is not a fact."""

    session: str | None = None
    version: str | None = None
    model: str | None = None
    system_prompt: str | None = None
    title: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    part_of: str | None = None
    forked_from: str | None = None
    archived: str | None = None

    def first(self, **found: object) -> None:
        """Note facts that are unknown so far."""
        for name, value in found.items():
            if value.__class__ is str and value and getattr(self, name) is None:
                setattr(self, name, value)

    def last(self, **found: object) -> None:
        """Note facts; the last value of each counts."""
        for name, value in found.items():
            if value.__class__ is str and value:
                setattr(self, name, value)

    def plan(
        self,
        format: str,
        lines: SourceLines | Sequence[SourceLine] | int,
        said: Replay | Callable[[], Iterable[PlannedRecord]],
        provider: str | None,
        losses: Losses | None = None,
        *,
        findings: Iterable[ImportFinding] = (),
        left: int = 0,
        **more: Any,
    ) -> SessionPlan:
        """The plan. ``lines`` may be their number alone; ``left`` counts messages on branches; ``more`` are other members of a plan."""
        replay = said if isinstance(said, Replay) else Replay((said,), ())
        count = lines if isinstance(lines, int) else len(lines) if isinstance(lines, Sequence) else lines.count
        of_lines = () if isinstance(lines, int | Sequence) else lines.findings
        named = {each.name: getattr(self, each.name) for each in fields(SessionFacts) if each.name != "session"}
        known = {name: named.pop(name) for name in ("version", "model", "system_prompt")}
        return SessionPlan(
            format=format,
            session=self.session or "",
            lines=count,
            generations=replay.generations,
            provider=provider,
            labels=labels(**named),
            findings=(*of_lines, *findings, *replay.findings, *left_finding(left)),
            losses=() if losses is None else losses.found(),
            **{"tail": b"" if isinstance(lines, int | Sequence) else lines.tail, **known, **more},
        )


def facts_of(**found: object) -> SessionFacts:
    """The facts among these values."""
    facts = SessionFacts()
    facts.first(**found)
    return facts
