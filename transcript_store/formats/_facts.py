"""What a reader learns of a session while it reads the lines or rows, and the plan that is made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import labels
from transcript_store.formats._neutral import Losses
from transcript_store.formats._plan import ImportFinding, PlannedRecord, SessionPlan
from transcript_store.formats._replay import Replay
from transcript_store.formats._trees import left_finding


class ReadLines(Protocol):
    """The lines of a source, after they were read."""

    @property
    def count(self) -> int: ...

    @property
    def findings(self) -> list[ImportFinding]: ...

    @property
    def tail(self) -> bytes: ...


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
        lines: ReadLines | Sequence[SourceLine] | int,
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
